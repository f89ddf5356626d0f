//! Movers between processes: which library carries the bytes, and what it is asked to do.

use std::fmt;
use std::str::FromStr;

use crate::place::number;
use crate::wire_words::{AtomicOp, OverlapWork, WindowKind, WindowSync};
use crate::{
    Collective, CopyAgent, CpuHow, ElementReduction, ElementType, ParseError, ReduceOp, UcxSetting,
    serde_as_text, words,
};

/// A transport between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// An MPI library.
    Mpi,
    /// The same with device memory that pathline copies through pinned host memory, since the library
    /// takes no other.
    MpiStaged,
    /// NCCL or RCCL.
    Ccl,
    /// UCX's libucp.
    Ucx,
    /// Copies by pathline into and out of a POSIX shared memory segment.
    Shm,
    /// `process_vm_readv` and `process_vm_writev`: one copy, by the kernel.
    Cma,
    /// xpmem: one copy by pathline between attached address spaces.
    Xpmem,
}
words!(Transport, "transport", {
    Mpi => "mpi", MpiStaged => "mpi-staged", Ccl => "ccl", Ucx => "ucx", Shm => "shm", Cma => "cma", Xpmem => "xpmem",
});

/// An operation of a message library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WireOp {
    /// A message there and one back; half of the time counts.
    Ping,
    /// A window of messages in flight from the source to the destination, and one small answer
    /// after each window.
    Send {
        /// Messages of a window, at least 1.
        window: u32,
    },
    /// The source writes into the destination's memory, a window of times before it waits.
    Put {
        /// Operations of a window, at least 1.
        window: u32,
    },
    /// The destination reads the source's memory, a window of times before it waits.
    Get {
        /// Operations of a window, at least 1.
        window: u32,
    },
    /// One message; the receiver then loads every byte of it, and the time ends after that.
    Consume,
    /// All ranks from that of the source to that of the destination; of one process, all its GPUs
    /// between the two.
    Group {
        /// The collective.
        op: Collective,
        /// Elements of a reduction; [`ElementReduction::USUAL`] of other collectives.
        reduced: ElementReduction,
        /// Whether a rank's result overwrites what it brought.
        in_place: bool,
        /// Whether buffers are left unregistered with the communicator of NCCL or RCCL, which
        /// otherwise are registered where the library has a call for it.
        unregistered: bool,
    },
    /// The same by a call that returns at once, and a wait for its end.
    Overlapped {
        /// The collective, out of place.
        op: Collective,
        /// What the process does between the two.
        work: OverlapWork,
    },
    /// A ping whose messages are set up once and started in each repetition.
    PersistentPing,
    /// A window of such messages.
    PersistentSend {
        /// Messages of a window, at least 1.
        window: u32,
    },
    /// A collective that is set up once and started in each repetition.
    PersistentGroup {
        /// The collective, out of place.
        op: Collective,
    },
    /// An atomic operation of the source on the destination's memory.
    Atomic(AtomicOp),
}

impl WireOp {
    /// Operations in flight before one waits.
    pub const fn window(self) -> u32 {
        match self {
            Self::Send { window }
            | Self::Put { window }
            | Self::Get { window }
            | Self::PersistentSend { window } => window,
            _ => 1,
        }
    }
    /// Whether each process sends and receives in a repetition, half of whose time counts.
    pub const fn is_ping(self) -> bool {
        matches!(self, Self::Ping | Self::PersistentPing)
    }
    /// Whether its time is the result, and not its rate.
    pub const fn is_timed_alone(self) -> bool {
        self.is_ping() || matches!(self, Self::Atomic(_))
    }
    /// Whether one process accesses the memory of the other, which makes no call for it.
    pub const fn is_one_sided(self) -> bool {
        matches!(self, Self::Put { .. } | Self::Get { .. } | Self::Atomic(_))
    }
    /// Its word, without windows and places.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Send { .. } => "send",
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Consume => "consume",
            Self::Group { op, .. } | Self::Overlapped { op, .. } | Self::PersistentGroup { op } => {
                op.word()
            }
            Self::PersistentPing => "persistent-ping",
            Self::PersistentSend { .. } => "persistent-send",
            Self::Atomic(op) => op.word(),
        }
    }
    /// A collective out of place, of 64-bit sums, with registered buffers where a library registers
    /// any.
    pub const fn group(op: Collective) -> Self {
        let reduced = ElementReduction::USUAL;
        Self::Group { op, reduced, in_place: false, unregistered: false }
    }
    /// The same of other elements, or with another operation on them.
    pub const fn reduction(op: Collective, reduced: ElementReduction) -> Self {
        Self::Group { op, reduced, in_place: false, unregistered: false }
    }
    /// Elements of a reduction; [`ElementReduction::USUAL`] of other operations.
    pub const fn reduced(self) -> ElementReduction {
        if let Self::Group { reduced, .. } = self { reduced } else { ElementReduction::USUAL }
    }
    /// The collective, if it is one.
    pub const fn collective(self) -> Option<Collective> {
        match self {
            Self::Group { op, .. } | Self::Overlapped { op, .. } | Self::PersistentGroup { op } => {
                Some(op)
            }
            _ => None,
        }
    }
}

impl fmt::Display for WireOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ping => f.write_str("ping"),
            Self::Send { window } => write!(f, "send-w{window}"),
            Self::Put { window } => write!(f, "put-w{window}"),
            Self::Get { window } => write!(f, "get-w{window}"),
            Self::Consume => f.write_str("consume"),
            Self::Group { op, reduced, in_place, unregistered } => {
                write!(f, "{op}")?;
                if reduced.element != ElementReduction::USUAL.element {
                    write!(f, "-{}", reduced.element)?;
                }
                if reduced.by != ElementReduction::USUAL.by {
                    write!(f, "-{}", reduced.by)?;
                }
                let place = if *in_place { "-inplace" } else { "" };
                let unregistered = if *unregistered { "-unregistered" } else { "" };
                write!(f, "{place}{unregistered}")
            }
            Self::Overlapped { op, work } => write!(f, "i{op}{}", work.suffix()),
            Self::PersistentPing => f.write_str("persistent-ping"),
            Self::PersistentSend { window } => write!(f, "persistent-send-w{window}"),
            Self::PersistentGroup { op } => write!(f, "persistent-{op}"),
            Self::Atomic(op) => write!(f, "{op}"),
        }
    }
}

impl FromStr for WireOp {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "operation between processes",
                s,
                "ping, send-wN, put-wN, get-wN, consume, or a collective such as all_reduce, of \
                 reductions with their type and operation (all_reduce-bf16-max), with -inplace if \
                 the result overwrites, and -unregistered if NCCL's buffers are to be so; \
                 persistent- before ping, send-wN or a collective; iall_reduce and others, with \
                 -compute or -compute-test; accumulate, get-accumulate, add, fetch-add, swap, \
                 compare-swap",
            )
        };
        if let Some((kind, window)) = s.split_once("-w") {
            let window = number(window).filter(|&n| n >= 1).ok_or_else(bad)?;
            return match kind {
                "send" => Ok(Self::Send { window }),
                "put" => Ok(Self::Put { window }),
                "get" => Ok(Self::Get { window }),
                "persistent-send" => Ok(Self::PersistentSend { window }),
                _ => Err(bad()),
            };
        }
        match s {
            "ping" => return Ok(Self::Ping),
            "consume" => return Ok(Self::Consume),
            "persistent-ping" => return Ok(Self::PersistentPing),
            _ => {}
        }
        if let Ok(op) = s.parse() {
            return Ok(Self::Atomic(op));
        }
        if let Some(op) = s.strip_prefix("persistent-") {
            return Ok(Self::PersistentGroup { op: op.parse().map_err(|_| bad())? });
        }
        if let Some((op, work)) = s.strip_prefix('i').and_then(OverlapWork::split)
            && let Ok(op) = op.parse()
        {
            return Ok(Self::Overlapped { op, work });
        }
        let cut = |s, end| str::strip_suffix(s, end).map_or((s, false), |rest| (rest, true));
        let (op, unregistered) = cut(s, "-unregistered");
        let (op, in_place) = cut(op, "-inplace");
        let mut reduced = ElementReduction::USUAL;
        let (op, by) = reduced_suffix::<ReduceOp>(op);
        reduced.by = by.unwrap_or(reduced.by);
        let (op, element) = reduced_suffix::<ElementType>(op);
        reduced.element = element.unwrap_or(reduced.element);
        let op: Collective = op.parse().map_err(|_| bad())?;
        if (by.is_some() || element.is_some()) && !op.reduces() {
            return Err(bad());
        }
        Ok(Self::Group { op, reduced, in_place, unregistered })
    }
}

/// A text without its last `-word`, and the value of that word; the whole text if it is no such word.
fn reduced_suffix<T: FromStr>(text: &str) -> (&str, Option<T>) {
    match text.rsplit_once('-').map(|(rest, word)| (rest, word.parse())) {
        Some((rest, Ok(value))) => (rest, Some(value)),
        _ => (text, None),
    }
}

/// The copies by each process where processes of one node share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShmCopies {
    /// The sender copies into a shared segment, the receiver out of it.
    InOut {
        /// The sender's loop.
        copy_in: CpuHow,
        /// The receiver's loop.
        copy_out: CpuHow,
    },
    /// One copy, by a loop of the receiver.
    Single(CpuHow),
    /// One copy, by a call of the receiver.
    Read,
    /// One copy, by a call of the sender.
    Write,
}

impl Transport {
    /// The transport whose library carries it.
    pub const fn carrier(self) -> Self {
        if let Self::MpiStaged = self { Self::Mpi } else { self }
    }

    /// Whether processes of one node copy through memory that both reach.
    pub const fn shares_memory(self) -> bool {
        matches!(self, Self::Shm | Self::Cma | Self::Xpmem)
    }
}

impl fmt::Display for ShmCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOut { copy_in, copy_out } => write!(f, "{copy_in}+{copy_out}"),
            Self::Single(how) => write!(f, "{how}"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
        }
    }
}

impl FromStr for ShmCopies {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => match s.split_once('+') {
                Some((a, b)) => Ok(Self::InOut { copy_in: a.parse()?, copy_out: b.parse()? }),
                None => Ok(Self::Single(s.parse()?)),
            },
        }
    }
}

/// How near the cores of two processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreDistance {
    /// Different cores behind one last-level cache.
    SameL3,
    /// Cores behind different last-level caches of the same or another NUMA domain: the places say
    /// which.
    OtherL3,
}
words!(CoreDistance, "nearness", { SameL3 => "same-l3", OtherL3 => "other-l3" });

/// How bytes go from process to process: `mpi@numa0[send-w64]`, `ccl@gpu0[all_reduce]`,
/// `mpi@gpu0[send-w64,blit]`, `shm@numa0[ping,avx512-nt+memcpy,same-l3]`,
/// `ucx@gpu0[send-w64,rndv-put]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageOp {
    /// The transport.
    pub via: Transport,
    /// The operation.
    pub op: WireOp,
    /// The copies, where pathline itself makes them.
    pub copies: Option<ShmCopies>,
    /// How MPI makes the window of a one-sided operation; `None` is `MPI_Win_create`.
    pub window: Option<WindowKind>,
    /// How one-sided operations of MPI are ended; `None` is `MPI_Win_flush` in one epoch for all.
    pub sync: Option<WindowSync>,
    /// Which cores the processes run on; `None` leaves them where they were started.
    pub near: Option<CoreDistance>,
    /// What the GPU runtime under an MPI or UCX copies device memory with; `None` leaves the runtime
    /// as it was started.
    pub agent: Option<CopyAgent>,
    /// The setting of UCX that differs for it; `None` leaves UCX as it was started. Under an MPI it is a
    /// variable of the processes, since the library reads it in `MPI_Init`.
    pub switch: Option<UcxSetting>,
}

impl MessageOp {
    /// An operation of a library, on the cores that the ranks were started on.
    pub const fn new(via: Transport, op: WireOp) -> Self {
        Self {
            via,
            op,
            copies: None,
            window: None,
            sync: None,
            near: None,
            agent: None,
            switch: None,
        }
    }

    /// Parses the text in brackets.
    pub(crate) fn parse(via: Transport, args: &str) -> Result<Self, ParseError> {
        let bad = || {
            ParseError::new(
                "operation between processes",
                args,
                "an operation such as send-w64; for shm, cma and xpmem who copies \
                 (memcpy+avx512-nt, read, write); for one-sided operations of mpi allocate or \
                 dynamic, then lock, fence or pscw; then same-l3 or other-l3; for mpi and ucx \
                 engine or blit, then a switch of UCX such as rndv-put",
            )
        };
        let mut words = args.split(',');
        let op: WireOp = words.next().unwrap_or_default().parse()?;
        let mut rest: Vec<&str> = words.collect();
        let by_window = via == Transport::Mpi && op.is_one_sided();
        let window = take_first(&mut rest, by_window);
        let sync = take_first(&mut rest, by_window);
        let switch = match (via, rest.last().map(|word| word.parse())) {
            (Transport::Mpi | Transport::Ucx, Some(Ok(switch))) => {
                rest.pop();
                Some(switch)
            }
            _ => None,
        };
        let agent = match (via, rest.last().map(|word| word.parse())) {
            (Transport::Mpi | Transport::Ucx, Some(Ok(agent))) => {
                rest.pop();
                Some(agent)
            }
            _ => None,
        };
        let ours = matches!(via, Transport::Shm | Transport::Cma | Transport::Xpmem);
        let (copies, near) = match (ours, rest.as_slice()) {
            (true, [copies]) => (Some(copies.parse()?), None),
            (true, [copies, near]) => (Some(copies.parse()?), Some(near.parse()?)),
            (false, []) => (None, None),
            (false, [near]) => (None, Some(near.parse()?)),
            _ => return Err(bad()),
        };
        let fits = matches!(
            (via, copies),
            (Transport::Shm, Some(ShmCopies::InOut { .. }))
                | (Transport::Cma, Some(ShmCopies::Read | ShmCopies::Write))
                | (Transport::Xpmem, Some(ShmCopies::Single(_)))
                | (Transport::Mpi | Transport::MpiStaged | Transport::Ccl | Transport::Ucx, None)
        );
        fits.then_some(Self { via, op, copies, window, sync, near, agent, switch }).ok_or_else(bad)
    }
}

/// Takes the first word of a list if it is one of a kind that may stand there.
fn take_first<T: FromStr>(words: &mut Vec<&str>, may_stand: bool) -> Option<T> {
    let found = words.first().filter(|_| may_stand)?.parse().ok()?;
    words.remove(0);
    Some(found)
}

impl fmt::Display for MessageOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        if let Some(copies) = self.copies {
            write!(f, ",{copies}")?;
        }
        if let Some(window) = self.window {
            write!(f, ",{window}")?;
        }
        if let Some(sync) = self.sync {
            write!(f, ",{sync}")?;
        }
        if let Some(near) = self.near {
            write!(f, ",{near}")?;
        }
        if let Some(agent) = self.agent {
            write!(f, ",{agent}")?;
        }
        self.switch.map_or(Ok(()), |switch| write!(f, ",{switch}"))
    }
}

serde_as_text!(Transport, Collective, ElementType, ReduceOp, WireOp, CoreDistance);
