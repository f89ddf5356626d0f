//! What passes between processes of this program: one JSON value a line, over a socket. A worker's
//! is its standard input; its standard output stays free for what libraries print.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use pathline_bench::{CaseTask, MachineInfo, TaskEvent, TimerScope};
use pathline_schema::RunSettings;
use rustix::event::{PollFd, PollFlags, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::inject::WorkerFault;
use crate::args::{LibraryArgs, StoreArgs};
use crate::ranks::RankJob;
use crate::world::SimSpread;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerOrder {
    /// Open the machine. First of all, once.
    Open(Box<MachineOpening>),
    /// Measure. Each word of it is answered with a [`WorkerReply`] before the work goes on.
    Measure(Box<(CaseTask, RunSettings)>),
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerReport {
    /// The machine is not open yet, and a new attempt at its processes begins.
    Retrying,
    /// The machine is open.
    Opened(Box<MachineInfo>),
    /// Those that measure together are not complete, which another process cannot change.
    Incomplete(String),
    /// Something of the task at hand.
    Word(Box<TaskEvent>),
    /// The task has ended.
    Done,
}

/// Whether the work goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerReply {
    /// It does.
    Go,
    /// It ends as soon as it can.
    Stop,
}

/// Which machine to open, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MachineOpening {
    /// The process that started the worker, which must not outlive it.
    pub(crate) parent: u32,
    /// Name and description of a model; none for this host.
    pub(crate) model: Option<(String, String)>,
    /// What a model draws its times from.
    pub(crate) spread: SimSpread,
    /// The processes that measure together, if there are several.
    pub(crate) job: Option<RankJob>,
    /// How long a step may take, if the user said so.
    #[serde(default)]
    pub(crate) limit: Option<Duration>,
    /// The places for files.
    #[serde(default)]
    pub(crate) stores: StoreArgs,
    /// Which GPU runtime, and where its libraries are, as far as that was said.
    pub(crate) libraries: LibraryArgs,
    /// Why the GPUs are to be left alone, if they are.
    pub(crate) without: Option<String>,
    /// Which timers to look at.
    pub(crate) overhead: TimerScope,
    /// What goes wrong on order.
    pub(crate) inject: Vec<WorkerFault>,
}

/// Longer lines are nobody's of ours: the topology of thousands of devices fits.
const MAX_LINE: usize = 64 << 20;
/// A line that is not taken in this time has nobody who would.
const TAKEN: Duration = Duration::from_secs(20);

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

/// What was heard.
#[derive(Debug)]
pub(crate) enum LinkRecv<T> {
    /// A line.
    Line(T),
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    End,
}

impl LineLink {
    /// An end that waits for `patience` at most where it listens; as long as it takes if none.
    pub(crate) fn new(stream: UnixStream, patience: Option<Duration>) -> io::Result<Self> {
        Self::over(LinkSocket::Unix(stream), patience)
    }

    /// The socket that a process of this program gives its children as standard input.
    ///
    /// # Errors
    /// Somebody else has started this process.
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
    pub(crate) fn over(stream: LinkSocket, patience: Option<Duration>) -> io::Result<Self> {
        stream.set_timeouts(patience, Some(TAKEN))?;
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

    /// Says that nothing more will be said. The other end hears of it.
    pub(crate) fn close(&self) {
        // One that is closed already is closed.
        let _ = self.stream.shutdown();
    }

    /// Waits for a line.
    pub(crate) fn listen<T: DeserializeOwned>(&mut self) -> io::Result<LinkRecv<T>> {
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
            let mut some = [0; 1 << 14];
            match self.stream.read(&mut some) {
                Ok(0) => return Ok(LinkRecv::End),
                Ok(read) => self.read.extend_from_slice(&some[..read]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(LinkRecv::Nothing);
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
        let patience = Some(Duration::from_millis(20));
        (LineLink::new(a, patience).unwrap(), LineLink::new(b, patience).unwrap())
    }

    #[test]
    fn lines_arrive_whole_and_in_order_however_they_are_cut() {
        let (mut a, mut b) = pair();
        a.send(&WorkerReply::Go).unwrap();
        a.send(&WorkerReply::Stop).unwrap();
        a.stream.write_all(b"\"g").unwrap();
        assert!(matches!(b.listen().unwrap(), LinkRecv::Line(WorkerReply::Go)));
        assert!(matches!(b.listen().unwrap(), LinkRecv::Line(WorkerReply::Stop)));
        assert!(matches!(b.listen::<WorkerReply>().unwrap(), LinkRecv::Nothing));
        a.stream.write_all(b"o\"\n").unwrap();
        assert!(matches!(b.listen().unwrap(), LinkRecv::Line(WorkerReply::Go)));
        drop(a);
        assert!(matches!(b.listen::<WorkerReply>().unwrap(), LinkRecv::End));
        assert!(b.send(&WorkerReply::Go).is_err());
    }

    #[test]
    fn what_is_no_line_of_ours_is_an_error() {
        let (mut a, mut b) = pair();
        a.stream.write_all(b"hello\n").unwrap();
        assert!(b.listen::<WorkerReply>().is_err());
    }
}
