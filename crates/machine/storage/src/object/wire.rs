//! The socket of a connection: plain, or with TLS for `https://`.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// What a client needs to speak TLS with one server.
#[derive(Clone)]
pub(super) struct TlsSetup {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl TlsSetup {
    /// For a server of this name, which an authority that this host trusts must have certified: those of
    /// `SSL_CERT_FILE` or `SSL_CERT_DIR`, else the system's.
    ///
    /// # Errors
    /// The host has no certificates of authorities, or the name is none.
    pub(super) fn of_host(server: &str) -> Result<Self, String> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
            return Err(format!(
                "this host has no certificates of authorities{why}: install ca-certificates, or set \
                 SSL_CERT_FILE to the one of the server"
            ));
        }
        Self::with_roots(server, roots)
    }

    pub(super) fn with_roots(server: &str, roots: RootCertStore) -> Result<Self, String> {
        let bare = server.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server =
            ServerName::try_from(bare).map_err(|_| format!("{server} is no name of a host"))?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config), server })
    }
}

/// A connected socket that does not wait.
#[derive(Debug)]
pub(super) struct ObjectWire {
    socket: TcpStream,
    /// The session of an `https://` endpoint.
    session: Option<Box<ClientConnection>>,
}

impl ObjectWire {
    /// Connects within a time.
    pub(super) fn connect(
        address: &SocketAddr,
        tls: Option<&TlsSetup>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(address, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let session =
            |tls: &TlsSetup| ClientConnection::new(tls.config.clone(), tls.server.clone());
        let session = tls.map(session).transpose().map_err(io::Error::other)?;
        Ok(Self { socket, session: session.map(Box::new) })
    }

    pub(super) fn descriptor(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Sends what the socket takes; 0 if it takes nothing now. `more` follows at once.
    pub(super) fn send(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        if let Some(session) = &mut self.session {
            let taken = session.writer().write(bytes)?;
            self.flush()?;
            return Ok(taken);
        }
        let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        loop {
            // SAFETY: the pointer and length are those of a slice, which the kernel only reads.
            let done =
                unsafe { libc::send(self.descriptor(), bytes.as_ptr().cast(), bytes.len(), flags) };
            if done >= 0 {
                return Ok(done.unsigned_abs());
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                error => return Err(error),
            }
        }
    }

    /// Receives into memory. `None` if there is nothing now; 0 at the end.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(session) = &mut self.session else {
            return until_it_blocks(|| self.socket.read(into));
        };
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.map(Some),
            }
            match until_it_blocks(|| session.read_tls(&mut self.socket))? {
                None => return Ok(None),
                Some(0) if session.is_handshaking() => return Ok(Some(0)),
                Some(_) => {}
            }
            let processed = session.process_new_packets();
            // Goes on with the handshake, or sends the alert that says why it ends here.
            let sent = write_all(session, &mut self.socket);
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            sent?;
        }
    }

    /// Whether it goes on once the socket takes bytes, of TLS or `more` of the caller; during a handshake the
    /// server has to send first.
    pub(super) fn waits_to_send(&mut self, more: bool) -> io::Result<bool> {
        let held = self.flush()?;
        let shakes = self.session.as_ref().is_some_and(|session| session.is_handshaking());
        Ok(held || (more && !shakes))
    }

    /// Sends what TLS still holds. Whether something is left.
    fn flush(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else { return Ok(false) };
        write_all(session, &mut self.socket)
    }
}

/// Sends what a session holds. Whether something is left because the socket takes nothing now.
fn write_all(session: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<bool> {
    while session.wants_write() {
        if until_it_blocks(|| session.write_tls(socket))?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The result of a call on a socket; `None` if it would wait.
fn until_it_blocks(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(done) => return Ok(Some(done)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
