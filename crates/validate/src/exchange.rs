//! What a message library does between processes, one a GPU.

use std::fmt;

use pathline_schema::Bytes;

/// A message library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Library {
    /// Cray MPICH.
    Cray,
    /// An MPI over UCX.
    Ucx,
    /// RCCL.
    Rccl,
}

impl Library {
    /// Its name in the text of an exchange.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cray => "cray-mpich",
            Self::Ucx => "ucx",
            Self::Rccl => "rccl",
        }
    }
}

/// A collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collective {
    /// One to all.
    Broadcast,
    /// All to one, combined.
    Reduce,
    /// All to all, combined.
    AllReduce,
    /// All to all, combined, each keeps a part.
    ReduceScatter,
    /// Each part to all.
    AllGather,
    /// Each a part to each.
    AllToAll,
}

impl Collective {
    /// The words that name it in tools and metrics; the longer ones first, since `reduce` is a
    /// part of three of them.
    const NAMES: [(&str, Self); 10] = [
        ("reducescatter", Self::ReduceScatter),
        ("reduce_scatter", Self::ReduceScatter),
        ("allreduce", Self::AllReduce),
        ("all_reduce", Self::AllReduce),
        ("allgather", Self::AllGather),
        ("all_gather", Self::AllGather),
        ("alltoall", Self::AllToAll),
        ("all_to_all", Self::AllToAll),
        ("reduce", Self::Reduce),
        ("bcast", Self::Broadcast),
    ];

    /// The operation that a text names.
    pub fn named(text: &str) -> Option<Self> {
        let text = text.to_lowercase().replace(['-', ' '], "_");
        let hit = Self::NAMES.iter().find(|(name, _)| text.contains(name)).map(|(_, op)| *op);
        hit.or_else(|| text.contains("broadcast").then_some(Self::Broadcast))
    }

    /// Its name in the text of an exchange.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::AllToAll => "all_to_all",
        }
    }
}

/// What is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Sends of which so many are under way, from the first GPU to the second.
    Send(u32),
    /// The same both ways at once.
    Exchange(u32),
    /// One there and one back; its time is half of both.
    PingPong,
    /// A collective of all.
    Collective(Collective),
}

/// One operation of a message library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exchange {
    /// What is exchanged.
    pub what: What,
    /// The GPUs, one a process.
    pub over: Vec<u32>,
    /// Who does it.
    pub by: Library,
    /// Bytes of a message.
    pub bytes: Bytes,
    /// Whether its copies go to the SDMA engines.
    pub sdma: bool,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over: Vec<String> = self.over.iter().map(|g| format!("gpu{g}")).collect();
        let word = match self.what {
            What::Send(_) => "send",
            What::Exchange(_) => "exchange",
            What::PingPong => "ping_pong",
            What::Collective(op) => op.word(),
        };
        write!(f, "{word} over {} by {} x {}", over.join(","), self.by.word(), self.bytes)?;
        if let What::Send(window) | What::Exchange(window) = self.what {
            write!(f, " window {window}")?;
        }
        let copies = self.by != Library::Rccl && !self.sdma;
        f.write_str(if copies { " sdma off" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_by_any_of_their_names() {
        for (text, op) in [
            ("OSU_allreduce 7.0", Collective::AllReduce),
            ("reduce-scatter", Collective::ReduceScatter),
            ("osu_reduce_scatter", Collective::ReduceScatter),
            ("latency reduce", Collective::Reduce),
            ("all to all", Collective::AllToAll),
            ("osu_bcast", Collective::Broadcast),
            ("Broadcast", Collective::Broadcast),
            ("AllGather", Collective::AllGather),
        ] {
            assert_eq!(Collective::named(text), Some(op), "{text}");
        }
        assert_eq!(Collective::named("latency"), None);
    }

    #[test]
    fn texts() {
        let send = Exchange {
            what: What::Send(64),
            over: vec![0, 6],
            by: Library::Ucx,
            bytes: Bytes::mib(16),
            sdma: false,
        };
        assert_eq!(send.to_string(), "send over gpu0,gpu6 by ucx x 16MiB window 64 sdma off");
    }
}
