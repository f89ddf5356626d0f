//! An exchange: what ranks do together, with which library. Its text is its identity.

use std::fmt;
use std::str::FromStr;

use pathline_schema::{Bytes, Cadence, Collective, ParseError, did_you_mean};

/// The most ranks of one exchange.
const MAX_RANKS: usize = 1 << 17;
/// The most GPUs of one node.
const MAX_GPUS: u32 = 1024;
/// Default number of messages in flight: OSU's window.
pub const WINDOW: u32 = 64;

/// A process that uses one GPU exclusively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeMember {
    /// Number of the node among equal ones; 0 is the described node.
    pub node: u32,
    /// Its GPU's number on that node.
    pub gpu: u32,
}

impl ExchangeMember {
    /// GPU `gpu` of the described node.
    pub const fn here(gpu: u32) -> Self {
        Self { node: 0, gpu }
    }
}

impl fmt::Display for ExchangeMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            0 => write!(f, "gpu{}", self.gpu),
            node => write!(f, "n{node}.gpu{}", self.gpu),
        }
    }
}

impl FromStr for ExchangeMember {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || wrong("rank", s, "gpuN, or nN.gpuN on another node, such as gpu3 or n1.gpu3");
        let (node, gpu) = match s.split_once('.') {
            Some((node, gpu)) => (number(node.strip_prefix('n').ok_or_else(bad)?), gpu),
            None => (Some(0), s),
        };
        let gpu = number(gpu.strip_prefix("gpu").ok_or_else(bad)?);
        let (node, gpu) = node.zip(gpu).ok_or_else(bad)?;
        Ok(Self { node, gpu })
    }
}

/// The operation and its ranks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExchangeOp {
    /// Pairs of a sender and a receiver, each with `window` messages in flight, as osu_bw and
    /// osu_mbw_mr do.
    Send {
        /// Sender and receiver.
        pairs: Vec<(ExchangeMember, ExchangeMember)>,
        /// Messages in flight of each pair.
        window: u32,
    },
    /// The same pairs with one message there and back; half of it counts, as in osu_latency.
    Ping {
        /// The two ranks of each ping.
        pairs: Vec<(ExchangeMember, ExchangeMember)>,
    },
    /// A collective; the first member is the root.
    Collective {
        /// The operation.
        op: Collective,
        /// In the order of their ranks.
        over: Vec<ExchangeMember>,
    },
}

/// The library that moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageLibrary {
    /// HPE's MPI; direct copies by copy engine, or by the runtime's copy kernel
    /// (`HSA_ENABLE_SDMA=0`).
    CrayMpich {
        /// By copy engine.
        sdma: bool,
    },
    /// An MPI over UCX; direct copies as in `CrayMpich`.
    Ucx {
        /// By copy engine.
        sdma: bool,
    },
    /// AMD's collectives.
    Rccl,
    /// NVIDIA's collectives.
    Nccl {
        /// With reductions inside the switches where the library chooses them; else by rings alone
        /// (`NCCL_NVLS_ENABLE=0`, `NCCL_ALGO=RING`).
        nvls: bool,
    },
}

impl MessageLibrary {
    /// The name of its section of the machine file, such as `cray-mpich`, without `[blit]` or `[ring]`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CrayMpich { .. } => "cray-mpich",
            Self::Ucx { .. } => "ucx",
            Self::Rccl => "rccl",
            Self::Nccl { .. } => "nccl",
        }
    }

    /// Whether it is an MPI.
    pub const fn is_mpi(self) -> bool {
        matches!(self, Self::CrayMpich { .. } | Self::Ucx { .. })
    }
}

impl fmt::Display for MessageLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrayMpich { sdma: false } | Self::Ucx { sdma: false } => {
                write!(f, "{}[blit]", self.word())
            }
            Self::Nccl { nvls: false } => write!(f, "{}[ring]", self.word()),
            _ => f.write_str(self.word()),
        }
    }
}

impl FromStr for MessageLibrary {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Ok(match s {
            "cray-mpich" | "cray-mpich[sdma]" => Self::CrayMpich { sdma: true },
            "cray-mpich[blit]" => Self::CrayMpich { sdma: false },
            "ucx" | "ucx[sdma]" => Self::Ucx { sdma: true },
            "ucx[blit]" => Self::Ucx { sdma: false },
            "rccl" => Self::Rccl,
            "nccl" => Self::Nccl { nvls: true },
            "nccl[ring]" => Self::Nccl { nvls: false },
            _ => {
                let expected =
                    "cray-mpich, cray-mpich[blit], ucx, ucx[blit], rccl, nccl or nccl[ring]";
                return Err(wrong("library", s, expected));
            }
        })
    }
}

/// The memory of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum BufferPlace {
    /// In the memory of the rank's GPU.
    #[default]
    Vram,
    /// In host memory near the rank's GPU.
    Host,
    /// Managed memory.
    Managed,
    /// In the memory of the rank's GPU, copied by pathline through pinned memory, so that the
    /// library sees host memory only.
    Staged,
}

impl BufferPlace {
    const ALL: [Self; 4] = [Self::Vram, Self::Host, Self::Managed, Self::Staged];

    const fn word(self) -> &'static str {
        match self {
            Self::Vram => "vram",
            Self::Host => "host",
            Self::Managed => "managed",
            Self::Staged => "staged",
        }
    }

    fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.word() == word)
    }
}

/// The memories of a sender's and a receiver's buffers; of a collective both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BufferPair {
    /// Of the sender.
    pub from: BufferPlace,
    /// Of the receiver.
    pub to: BufferPlace,
}

impl BufferPair {
    /// The same memory at both ends.
    pub const fn both(place: BufferPlace) -> Self {
        Self { from: place, to: place }
    }

    /// Of messages in the other direction.
    pub const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// How operations of a library of collectives start: what follows what, and how many GPUs a process
/// drives. MPI's messages are the same in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExchangeStart {
    /// How operations follow each other.
    pub cadence: Cadence,
    /// One process drives all GPUs of a node, by a launch each; else each GPU has a process.
    pub one_process: bool,
}

/// A joint operation of ranks: `all_reduce over gpu0-gpu7 by rccl x 1MiB`,
/// `send over gpu0>gpu1,gpu2>gpu3 by cray-mpich[blit] x 16MiB window 64`. Buffers are in device
/// memory, or as a suffix says: ` from host`, ` from managed`, ` from staged`, and with different
/// ends ` from vram to host`. A library of collectives has ` in one process`, ` isolated` and ` graph`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeSpec {
    /// The operation and its ranks.
    pub what: ExchangeOp,
    /// By which library.
    pub by: MessageLibrary,
    /// Of a message; of a collective the larger of a rank's buffers, as nccl-tests counts.
    pub bytes: Bytes,
    /// The memory of the buffers.
    pub buffers: BufferPair,
    /// How operations start.
    pub start: ExchangeStart,
}

impl ExchangeSpec {
    /// A collective of device memory over GPUs of the described node.
    pub fn collective(
        op: Collective,
        gpus: impl IntoIterator<Item = u32>,
        by: MessageLibrary,
        b: Bytes,
    ) -> Self {
        let over = gpus.into_iter().map(ExchangeMember::here).collect();
        let what = ExchangeOp::Collective { op, over };
        Self::of_device_memory(what, by, b)
    }

    /// Messages of device memory from one GPU of the described node to another.
    pub fn send(from: u32, to: u32, by: MessageLibrary, bytes: Bytes) -> Self {
        let pairs = vec![(ExchangeMember::here(from), ExchangeMember::here(to))];
        Self::of_device_memory(ExchangeOp::Send { pairs, window: WINDOW }, by, bytes)
    }

    fn of_device_memory(what: ExchangeOp, by: MessageLibrary, bytes: Bytes) -> Self {
        let (buffers, start) = (BufferPair::default(), ExchangeStart::default());
        Self { what, by, bytes, buffers, start }
    }

    /// All ranks, in order.
    pub fn members(&self) -> Vec<ExchangeMember> {
        match &self.what {
            ExchangeOp::Send { pairs, .. } | ExchangeOp::Ping { pairs } => {
                pairs.iter().flat_map(|&(a, b)| [a, b]).collect()
            }
            ExchangeOp::Collective { over, .. } => over.clone(),
        }
    }
}

impl fmt::Display for ExchangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, over, window) = match &self.what {
            ExchangeOp::Send { pairs, window } => ("send", show_pairs(pairs), Some(window)),
            ExchangeOp::Ping { pairs } => ("ping", show_pairs(pairs), None),
            ExchangeOp::Collective { op, over } => (op.word(), show_ranks(over), None),
        };
        write!(f, "{word} over {over} by {} x {}", self.by, self.bytes)?;
        if let Some(window) = window {
            write!(f, " window {window}")?;
        }
        let BufferPair { from, to } = self.buffers;
        match (from, to) {
            (BufferPlace::Vram, BufferPlace::Vram) => {}
            (from, to) if from == to => write!(f, " from {}", from.word())?,
            (from, to) => write!(f, " from {} to {}", from.word(), to.word())?,
        }
        if self.start.one_process {
            f.write_str(" in one process")?;
        }
        match self.start.cadence {
            Cadence::Streaming => Ok(()),
            cadence => write!(f, " {cadence}"),
        }
    }
}

impl FromStr for ExchangeSpec {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = |expected: &str| wrong("exchange", s, expected);
        const FORM: &str = "WHAT over RANKS by LIBRARY x SIZE, such as all_reduce over gpu0-gpu7 by \
                            rccl x 1MiB or send over gpu0>gpu1 by cray-mpich x 16MiB window 64";
        let words: Vec<&str> = s.split_whitespace().take(19).collect();
        let [word, "over", ranks, "by", by, "x", bytes, rest @ ..] = words.as_slice() else {
            return Err(bad(FORM));
        };
        let (window, rest) = match rest {
            ["window", n, rest @ ..] => {
                let n = number(n).filter(|n| (1..=1 << 16).contains(n));
                (Some(n.ok_or_else(|| bad("a window of 1 to 65536 messages"))?), rest)
            }
            rest => (None, rest),
        };
        let (rest, cadence) = match rest {
            [rest @ .., "isolated"] => (rest, Cadence::Isolated),
            [rest @ .., "graph"] => (rest, Cadence::Graph),
            rest => (rest, Cadence::Streaming),
        };
        let (rest, one_process) = match rest {
            [rest @ .., "in", "one", "process"] => (rest, true),
            rest => (rest, false),
        };
        let start = ExchangeStart { cadence, one_process };
        let buffers = match rest {
            [] => Some(BufferPair::default()),
            ["from", from] => BufferPlace::read(from).map(BufferPair::both),
            ["from", from, "to", to] => {
                let ends = BufferPlace::read(from).zip(BufferPlace::read(to));
                ends.map(|(from, to)| BufferPair { from, to })
            }
            _ => None,
        };
        let buffers = buffers.ok_or_else(|| {
            bad("window N, from host, from managed, from staged, from vram to host, in one process, \
                 isolated, graph or nothing after the size")
        })?;
        let op = Collective::ALL.iter().copied().find(|op| op.word() == *word);
        let what = match (*word, op) {
            ("send", _) => {
                ExchangeOp::Send { pairs: read_pairs(ranks)?, window: window.unwrap_or(WINDOW) }
            }
            ("ping", _) => ExchangeOp::Ping { pairs: read_pairs(ranks)? },
            (_, Some(op)) => ExchangeOp::Collective { op, over: read_ranks(ranks)? },
            _ => {
                let words: Vec<&str> = Collective::ALL.iter().map(|op| op.word()).collect();
                let near = did_you_mean(word, words.iter().copied().chain(["send", "ping"]));
                return Err(bad(&format!("send, ping, {}{near}", words.join(", "))));
            }
        };
        if window.is_some() && !matches!(what, ExchangeOp::Send { .. }) {
            return Err(bad("a window only for send"));
        }
        let one_memory = buffers.from == buffers.to;
        if !one_memory && matches!(what, ExchangeOp::Collective { .. }) {
            return Err(bad("one memory for all buffers of a collective"));
        }
        let staged = [buffers.from, buffers.to].contains(&BufferPlace::Staged);
        if staged && !one_memory {
            return Err(bad("staged buffers at both ends or at none"));
        }
        let bytes: Bytes = bytes.parse()?;
        if bytes.0 == 0 || bytes.0 > 1 << 50 {
            return Err(bad("a size of 1 byte to 1024 TiB"));
        }
        let by: MessageLibrary = by.parse()?;
        if by.is_mpi() && start != ExchangeStart::default() {
            return Err(bad("in one process, isolated and graph only for rccl and nccl"));
        }
        Ok(Self { what, by, bytes, buffers, start })
    }
}

fn wrong(what: &'static str, text: &str, expected: impl Into<String>) -> ParseError {
    let mut cut: String = text.chars().take(80).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    ParseError { what, text: cut, expected: expected.into() }
}

/// Digits only, without a sign and without leading zeros, so that each number has one text.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = text == "0" || !text.starts_with('0');
    (digits && plain).then(|| text.parse().ok()).flatten().filter(|n| *n < 1 << 16)
}

fn show_pairs(pairs: &[(ExchangeMember, ExchangeMember)]) -> String {
    pairs.iter().map(|(a, b)| format!("{a}>{b}")).collect::<Vec<_>>().join(",")
}

/// Rising runs of one node as `gpu0-gpu7`, and rising nodes with the same run as `n1-n9.gpu0-gpu7`.
fn show_ranks(ranks: &[ExchangeMember]) -> String {
    let mut runs: Vec<(ExchangeMember, ExchangeMember)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, end)) if end.node == rank.node && end.gpu.checked_add(1) == Some(rank.gpu) => {
                *end = rank;
            }
            _ => runs.push((rank, rank)),
        }
    }
    // Runs with the last of the nodes that have them.
    let mut nodes: Vec<(ExchangeMember, ExchangeMember, u32)> = Vec::new();
    for (a, b) in runs {
        match nodes.last_mut() {
            Some((first, last, node))
                if first.node > 0
                    && (first.gpu, last.gpu) == (a.gpu, b.gpu)
                    && node.checked_add(1) == Some(a.node) =>
            {
                *node = a.node;
            }
            _ => nodes.push((a, b, a.node)),
        }
    }
    let show = |&(a, b, node): &(ExchangeMember, ExchangeMember, u32)| {
        let gpus =
            if a == b { format!("gpu{}", a.gpu) } else { format!("gpu{}-gpu{}", a.gpu, b.gpu) };
        match (a.node, node) {
            (0, _) => gpus,
            (first, last) if first == last => format!("n{first}.{gpus}"),
            (first, last) => format!("n{first}-n{last}.{gpus}"),
        }
    };
    nodes.iter().map(show).collect::<Vec<_>>().join(",")
}

fn read_pairs(text: &str) -> Result<Vec<(ExchangeMember, ExchangeMember)>, ParseError> {
    let bad = || wrong("set of pairs", text, "different ranks, such as gpu0>gpu1,gpu2>gpu3");
    let pairs: Vec<(ExchangeMember, ExchangeMember)> = match text.split_once(',') {
        // Two ranks without an arrow are one pair.
        Some((a, b)) if !text.contains('>') => vec![(a.parse()?, b.parse()?)],
        _ => text
            .split(',')
            .take(MAX_RANKS)
            .map(|pair| {
                let (a, b) = pair.split_once('>').ok_or_else(bad)?;
                Ok((a.parse()?, b.parse()?))
            })
            .collect::<Result<_, ParseError>>()?,
    };
    if pairs.len() >= MAX_RANKS || pairs.iter().any(|(a, b)| a == b) {
        return Err(bad());
    }
    Ok(pairs)
}

fn read_ranks(text: &str) -> Result<Vec<ExchangeMember>, ParseError> {
    let bad = || {
        let form =
            "2 to 131072 different ranks, such as gpu0-gpu3,n1.gpu0-gpu3 or n0-n127.gpu0-gpu7";
        wrong("set of ranks", text, form)
    };
    let mut ranks: Vec<ExchangeMember> = Vec::new();
    for part in text.split(',').take(MAX_RANKS + 1) {
        let (nodes, gpus) = match part.split_once('.') {
            Some((nodes, gpus)) if nodes.contains('-') => {
                let (first, last) = nodes.split_once('-').ok_or_else(bad)?;
                let node = |text: &str| text.strip_prefix('n').and_then(number).ok_or_else(bad);
                (Some((node(first)?, node(last)?)), gpus)
            }
            _ => (None, part),
        };
        let (first, last) = gpus.split_once('-').unwrap_or((gpus, gpus));
        let (first, last): (ExchangeMember, ExchangeMember) = (first.parse()?, last.parse()?);
        // The node may be left out of a range's end, or repeated; behind a range of nodes it is none.
        let same = last.node == first.node || last.node == 0;
        let fits = last.gpu.saturating_sub(first.gpu) < MAX_GPUS;
        let rises = fits && (first.gpu < last.gpu || !gpus.contains('-'));
        let (from, to) = nodes.unwrap_or((first.node, first.node));
        let named = nodes.is_some() && (first.node > 0 || gpus.contains('.') || from >= to);
        let many = |from: u32, to: u32| to.saturating_sub(from) as usize + 1;
        let count = many(from, to).saturating_mul(many(first.gpu, last.gpu));
        if !same || !rises || named || ranks.len().saturating_add(count) > MAX_RANKS {
            return Err(bad());
        }
        for node in from..=to {
            ranks.extend((first.gpu..=last.gpu).map(|gpu| ExchangeMember { node, gpu }));
        }
    }
    let different: std::collections::BTreeSet<&ExchangeMember> = ranks.iter().collect();
    if ranks.len() < 2 || different.len() != ranks.len() {
        return Err(bad());
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_canonical() {
        for text in [
            "all_reduce over gpu0-gpu7 by rccl x 1MiB",
            "all_to_all over gpu0,gpu2,gpu4-gpu5 by nccl x 1000B",
            "broadcast over gpu3,gpu1 by ucx x 4B from host",
            "all_reduce over gpu0-gpu3,n1.gpu0-gpu3 by cray-mpich x 4B",
            "send over gpu0>gpu1 by cray-mpich[blit] x 16MiB window 64",
            "send over gpu0>gpu1,gpu2>n1.gpu3 by ucx[blit] x 1B window 1 from host",
            "ping over gpu7>gpu0 by cray-mpich x 8B",
            "send over gpu0>gpu1 by ucx x 1MiB window 64 from vram to host",
            "ping over gpu0>gpu1 by ucx x 8B from managed to vram",
            "all_reduce over gpu0-gpu7 by cray-mpich x 1MiB from staged",
            "all_reduce over gpu0-gpu7 by nccl x 8B in one process isolated",
            "send over gpu0>gpu1 by nccl x 1MiB window 1 graph",
            "all_reduce over gpu0-gpu7 by nccl[ring] x 1GiB",
        ] {
            assert_eq!(text.parse::<ExchangeSpec>().unwrap().to_string(), text);
        }
        for (text, canonical) in [
            (
                "send over gpu0,gpu1 by ucx[sdma] x 1MiB",
                "send over gpu0>gpu1 by ucx x 1MiB window 64",
            ),
            ("reduce over gpu0,gpu1 by rccl x 1024KiB", "reduce over gpu0-gpu1 by rccl x 1MiB"),
            ("reduce over n1.gpu0-n1.gpu1 by rccl x 1B", "reduce over n1.gpu0-gpu1 by rccl x 1B"),
            (
                "all_reduce over n0-n3.gpu0-gpu7 by rccl x 1MiB",
                "all_reduce over gpu0-gpu7,n1-n3.gpu0-gpu7 by rccl x 1MiB",
            ),
            ("reduce over n0-n2.gpu1 by rccl x 1B", "reduce over gpu1,n1-n2.gpu1 by rccl x 1B"),
        ] {
            assert_eq!(text.parse::<ExchangeSpec>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn a_parse_error_names_the_expected_form() {
        for (text, expected) in [
            ("", "WHAT over RANKS"),
            ("collect over gpu0-gpu1 by rccl x 1B", "send, ping, broadcast"),
            ("reduce over gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over gpu0,gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over gpu1-gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over gpu0-gpu65535 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over n3-n1.gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over n1-n3.n1.gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over n0-n65535.gpu0-gpu7 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over n0-n3.gpu0,n2.gpu0 by rccl x 1B", "2 to 131072 different ranks"),
            ("reduce over numa0,gpu0 by rccl x 1B", "gpuN"),
            ("reduce over gpu00,gpu1 by rccl x 1B", "gpuN"),
            ("send over gpu0>gpu0 by ucx x 1B", "different ranks"),
            ("send over gpu0 by ucx x 1B", "different ranks"),
            ("send over gpu0>gpu1 by mpi x 1B", "cray-mpich"),
            ("send over gpu0>gpu1 by ucx x 0B", "a size of 1 byte"),
            ("send over gpu0>gpu1 by ucx x 1B window 0", "1 to 65536"),
            ("ping over gpu0>gpu1 by ucx x 1B window 2", "only for send"),
            ("ping over gpu0>gpu1 by ucx x 1B from disk", "from host"),
            ("ping over gpu0>gpu1 by ucx x 1B from vram to disk", "from host"),
            ("ping over gpu0>gpu1 by ucx x 1B from staged to host", "both ends or at none"),
            ("reduce over gpu0-gpu1 by ucx x 8B from vram to host", "one memory"),
            ("send over gpu0>gpu1 by ucx x 1B window 1 from vram to host or else", "from host"),
            ("ping over gpu0>gpu1 by ucx x 1X", "KiB"),
            ("ping over gpu0>gpu1 by ucx x 1B isolated", "only for rccl and nccl"),
            ("reduce over gpu0-gpu1 by nccl x 8B graph isolated", "from host"),
        ] {
            let error = text.parse::<ExchangeSpec>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    fn exchanges() -> impl Strategy<Value = ExchangeSpec> {
        let members = prop::collection::btree_set((0u32..3, 0u32..9), 2..12);
        let library = prop::sample::select(vec![
            MessageLibrary::CrayMpich { sdma: true },
            MessageLibrary::CrayMpich { sdma: false },
            MessageLibrary::Ucx { sdma: true },
            MessageLibrary::Ucx { sdma: false },
            MessageLibrary::Rccl,
            MessageLibrary::Nccl { nvls: true },
            MessageLibrary::Nccl { nvls: false },
        ]);
        let place = || prop::sample::select(&BufferPlace::ALL[..]);
        let places = (place(), place());
        let cadence = [Cadence::Streaming, Cadence::Isolated, Cadence::Graph];
        let starts = (prop::sample::select(cadence.to_vec()), any::<bool>());
        let kinds = 0..Collective::ALL.len() + 2;
        (members, library, kinds, 1u64..1 << 50, 1u32..=1 << 16, places, starts).prop_map(
            |(members, by, kind, bytes, window, (from, to), (cadence, one_process))| {
                let over: Vec<ExchangeMember> =
                    members.into_iter().map(|(node, gpu)| ExchangeMember { node, gpu }).collect();
                let pairs = over.chunks_exact(2).map(|p| (p[0], p[1])).collect();
                let what = match kind {
                    0 => ExchangeOp::Send { pairs, window },
                    1 => ExchangeOp::Ping { pairs },
                    kind => ExchangeOp::Collective { op: Collective::ALL[kind - 2], over },
                };
                let one = kind >= 2 || [from, to].contains(&BufferPlace::Staged);
                let buffers = BufferPair { from, to: if one { from } else { to } };
                let start = match by.is_mpi() {
                    true => ExchangeStart::default(),
                    false => ExchangeStart { cadence, one_process },
                };
                ExchangeSpec { what, by, bytes: Bytes(bytes), buffers, start }
            },
        )
    }

    proptest! {
        #[test]
        fn text_and_value_are_inverse(exchange in exchanges()) {
            let text = exchange.to_string();
            prop_assert_eq!(text.parse::<ExchangeSpec>().unwrap(), exchange);
        }

        #[test]
        fn no_text_panics(text in "[a-z0-9_>,. -]{0,60}") {
            let _ = text.parse::<ExchangeSpec>();
        }
    }
}
