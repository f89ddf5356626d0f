//! Links between processes of this program: one JSON value a line, over a socket. A worker's
//! is its standard input; its standard output stays free for what libraries print.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line that is read: the topology of thousands of devices fits.
const MAX_LINE: usize = 64 << 20;
/// Send timeout: the other process stopped reading.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// A socket of either kind.
#[derive(Debug)]
pub(crate) enum LinkSocket {
    /// On one node.
    Unix(UnixStream),
    /// Over a network.
    Tcp(TcpStream),
}

impl LinkSocket {
    pub(crate) fn set_timeouts(
        &self,
        read: Option<Duration>,
        write: Option<Duration>,
    ) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_read_timeout(read).and_then(|()| s.set_write_timeout(write)),
            Self::Tcp(s) => {
                // A line waits for an answer: nothing is held back to be sent with the next.
                s.set_nodelay(true)?;
                s.set_read_timeout(read).and_then(|()| s.set_write_timeout(write))
            }
        }
    }
    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_write_timeout(Some(timeout)),
            Self::Tcp(s) => s.set_write_timeout(Some(timeout)),
        }
    }
    pub(crate) fn set_nonblocking(&self, is: bool) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_nonblocking(is),
            Self::Tcp(s) => s.set_nonblocking(is),
        }
    }
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(s) => Self::Unix(s.try_clone()?),
            Self::Tcp(s) => Self::Tcp(s.try_clone()?),
        })
    }
    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.shutdown(Shutdown::Both),
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
        }
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        }
    }
}

impl Read for LinkSocket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.read(to),
            Self::Tcp(s) => s.read(to),
        }
    }
}

impl Write for LinkSocket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.write(from),
            Self::Tcp(s) => s.write(from),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a socket.
#[derive(Debug)]
pub(crate) struct LineLink {
    stream: LinkSocket,
    read: Vec<u8>,
}

/// The result of a read from a link.
#[derive(Debug)]
pub(crate) enum LinkRecv<T> {
    /// A line.
    Line(T),
    /// Nothing within the link's timeout.
    Timeout,
    /// The other end is closed.
    End,
}

impl LineLink {
    /// An end whose `listen` returns after `timeout` at the latest; without one it waits for a line.
    pub(crate) fn new(stream: UnixStream, timeout: Option<Duration>) -> io::Result<Self> {
        Self::over(LinkSocket::Unix(stream), timeout)
    }

    /// The socket that a process of this program gives its children as standard input.
    ///
    /// # Errors
    /// Another program has started this process.
    pub(crate) fn from_standard_input() -> anyhow::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        // Processes that libraries start, such as compilers, must not hold the socket open.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
        }
        Self::new(UnixStream::from(socket), None)
            .context("this command is for `pathline run`, which starts it with a socket")
    }

    /// The same of either kind of socket.
    pub(crate) fn over(stream: LinkSocket, timeout: Option<Duration>) -> io::Result<Self> {
        stream.set_timeouts(timeout, Some(SEND_TIMEOUT))?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// The same end once more, for another thread: one listens, the other sends.
    pub(crate) fn twin(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, read: Vec::new() })
    }

    /// Waits until the other end is closed, without listening.
    pub(crate) fn wait_for_end(&self) -> io::Result<()> {
        let mut fds = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::RDHUP)];
        while poll(&mut fds, None)? == 0 {}
        Ok(())
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Sends bytes as they are: what a faulty process would.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Shuts the socket down, in both directions.
    pub(crate) fn close(&self) {
        // One that is closed already is closed.
        let _ = self.stream.shutdown();
    }

    /// Lets `listen` return after this long without a byte.
    pub(crate) fn set_listen_timeout(&self, timeout: Duration) -> io::Result<()> {
        // No time at all would mean no limit.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        self.stream.set_timeouts(timeout, Some(SEND_TIMEOUT))
    }

    /// Gives up sending after this long.
    pub(crate) fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        // No time at all would mean no limit.
        self.stream.set_write_timeout(timeout.max(Duration::from_millis(1)))
    }

    /// Waits for a line.
    pub(crate) fn listen<T: DeserializeOwned>(&mut self) -> io::Result<LinkRecv<T>> {
        self.listen_until(None)
    }

    /// The same, and gives up at an instant even if the other end sends parts of a line without end.
    pub(crate) fn listen_until<T: DeserializeOwned>(
        &mut self,
        until: Option<Instant>,
    ) -> io::Result<LinkRecv<T>> {
        let mut looked = 0;
        loop {
            if let Some(at) = self.read[looked..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=looked + at).collect();
                return Ok(LinkRecv::Line(serde_json::from_slice(&line)?));
            }
            looked = self.read.len();
            if looked > MAX_LINE {
                return Err(io::Error::new(ErrorKind::InvalidData, "a line without an end"));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(LinkRecv::Timeout);
            }
            let mut some = [0; 1 << 14];
            match self.stream.read(&mut some) {
                Ok(0) => return Ok(LinkRecv::End),
                Ok(read) => self.read.extend_from_slice(&some[..read]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(LinkRecv::Timeout);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(LinkRecv::End),
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (LineLink, LineLink) {
        let (a, b) = UnixStream::pair().unwrap();
        let timeout = Some(Duration::from_millis(20));
        (LineLink::new(a, timeout).unwrap(), LineLink::new(b, timeout).unwrap())
    }

    #[test]
    fn lines_arrive_whole_and_in_order_however_they_are_cut() {
        let (mut a, mut b) = pair();
        a.send(&"go").unwrap();
        a.send(&"stop").unwrap();
        a.stream.write_all(b"\"g").unwrap();
        let line = |link: &mut LineLink| match link.listen::<String>().unwrap() {
            LinkRecv::Line(text) => text,
            other => format!("{other:?}"),
        };
        assert_eq!((line(&mut b), line(&mut b)), ("go".to_owned(), "stop".to_owned()));
        assert_eq!(line(&mut b), "Timeout");
        a.stream.write_all(b"o\"\n").unwrap();
        assert_eq!(line(&mut b), "go");
        drop(a);
        assert_eq!(line(&mut b), "End");
        assert!(b.send(&"go").is_err());
    }

    #[test]
    fn a_line_that_is_no_json_is_an_error() {
        let (mut a, mut b) = pair();
        a.stream.write_all(b"hello\n").unwrap();
        assert!(b.listen::<String>().is_err());
    }
}
