//! Identifies the process at the other end of a local socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process at the other end of a Unix socket, as recorded by the kernel: of a client when it
/// connected, of a server when it began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process number; 0 if it has none in this namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
}

/// Asks the kernel for the process at the other end (`SO_PEERCRED`).
///
/// # Errors
/// The socket is not a Unix socket, or is not connected.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let whole = size_of_val(&found) as libc::socklen_t;
    let mut len = whole;
    // SAFETY: the kernel stores at most `len` bytes into `found`, and their number into `len`; both
    // live through the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // A socket that was never connected has user -1.
    if len != whole || found.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(PeerCredentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_names_the_other_end() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let pid = std::process::id();
        assert_eq!(peer_credentials(socket.as_fd()).unwrap(), PeerCredentials { pid, uid });
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(peer_credentials(tcp.as_fd()).is_err());
    }
}
