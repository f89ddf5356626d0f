//! The vocabulary of a table: tools, interfaces, ends, directions, metrics.
//!
//! A word that is not here is an error that names it; nothing is guessed.

use pathline_message::MessageLibrary;
use pathline_schema::Collective;

/// Why a row has no case: what is said, in words that are alike for rows of one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmappedRow {
    /// Whether the row itself is at fault: a value or unit that cannot be read.
    pub unreadable: bool,
    /// The reason.
    pub reason: String,
}

/// A row without a case.
pub(crate) fn no<T>(reason: impl Into<String>) -> Result<T, UnmappedRow> {
    Err(UnmappedRow { unreadable: false, reason: reason.into() })
}

/// A row that cannot be read.
pub(crate) fn unreadable<T>(reason: impl Into<String>) -> Result<T, UnmappedRow> {
    Err(UnmappedRow { unreadable: true, reason: reason.into() })
}

/// How a program makes its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchTool {
    /// CUDA/HIP sample: `hipMemcpyPeerAsync`, 5 back to back between events.
    P2p,
    /// Comm|Scope: one operation between events.
    CommScope,
    /// A STREAM kernel, timed by the host's clock.
    Stream(StreamOp),
    /// rocm-bandwidth-test: one copy at a time.
    RocmBandwidthTest,
    /// TransferBench: one launch at a time.
    TransferBench,
    /// nvbandwidth: copies back to back behind a gate.
    Nvbandwidth,
    /// OSU: windows of 64 sends one way.
    OsuBw,
    /// OSU: the same, both ways.
    OsuBibw,
    /// OSU: half of a round trip.
    OsuLatency,
    /// OSU: several pairs at once.
    OsuMultiple,
    /// OSU or rccl-tests: a collective.
    Collective {
        /// Which, if the tool's name says it.
        op: Option<Collective>,
        /// Whether it is OSU's.
        osu: bool,
    },
    /// Case texts of this program in the column of the interface.
    Pathline,
    /// Facts of the node's wiring.
    Topology,
    /// Facts of a datasheet.
    Datasheet,
    /// No program: computed, or said in a text.
    Nothing,
}

/// Kernels of STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamOp {
    /// `c = a`, and `b = s c`, which moves the same bytes.
    Copy,
    /// `a = b + s c`, and `c = a + b`.
    Triad,
    /// `sum += a b`: reads alone.
    Read,
    /// `a = s`: writes alone.
    Write,
}

/// The words that name collectives in tools and metrics; the longer ones first, since `reduce` is
/// a part of three of them.
const COLLECTIVES: [(&str, Collective); 11] = [
    ("reducescatter", Collective::ReduceScatter),
    ("reduce_scatter", Collective::ReduceScatter),
    ("allreduce", Collective::AllReduce),
    ("all_reduce", Collective::AllReduce),
    ("allgather", Collective::AllGather),
    ("all_gather", Collective::AllGather),
    ("alltoall", Collective::AllToAll),
    ("all_to_all", Collective::AllToAll),
    ("reduce", Collective::Reduce),
    ("bcast", Collective::Broadcast),
    ("broadcast", Collective::Broadcast),
];

/// The collective that a text names.
pub(crate) fn collective(text: &str) -> Option<Collective> {
    let text = text.to_lowercase().replace(['-', ' '], "_");
    COLLECTIVES.iter().find(|(name, _)| text.contains(name)).map(|(_, op)| *op)
}

impl BenchTool {
    /// By its name, with or without a version.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let has = |word: &str| name.contains(word);
        let begins = |word: &str| name.starts_with(word);
        Some(match name.as_str() {
            "topology" | "kfd weight/15" | "min cut" | "edge load" => Self::Topology,
            "datasheet" => Self::Datasheet,
            "-" | "" | "text" => Self::Nothing,
            "pathline" => Self::Pathline,
            _ if begins("p2pbandwidthlatencytest") => Self::P2p,
            _ if begins("comm|scope") || begins("comm_scope") || begins("commscope") => {
                Self::CommScope
            }
            _ if begins("stream") || begins("babelstream") => {
                Self::Stream(match name.rsplit([' ', '_']).next().unwrap_or_default() {
                    "triad" | "add" => StreamOp::Triad,
                    "dot" | "read" => StreamOp::Read,
                    "set" | "write" | "init" => StreamOp::Write,
                    _ => StreamOp::Copy,
                })
            }
            _ if begins("rocm-bandwidth-test")
                || begins("rocm_bandwidth_test")
                || name == "rbt" =>
            {
                Self::RocmBandwidthTest
            }
            _ if begins("transferbench") => Self::TransferBench,
            _ if begins("nvbandwidth") => Self::Nvbandwidth,
            _ if begins("osu_bibw") => Self::OsuBibw,
            _ if begins("osu_bw") => Self::OsuBw,
            _ if begins("osu_latency") => Self::OsuLatency,
            _ if begins("osu_mbw_mr") => Self::OsuMultiple,
            _ if begins("osu") || has("ccl-tests") || has("_perf") => {
                Self::Collective { op: collective(&name), osu: begins("osu") }
            }
            _ => return None,
        })
    }
}

/// Memory of the host, as interfaces call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostMemory {
    /// Page-locked.
    Pinned,
    /// Page-locked, cached by the GPU.
    NonCoherent,
    /// Page-locked, write-combined.
    WriteCombined,
    /// Page-locked after it was allocated.
    Registered,
    /// Not page-locked.
    Pageable,
    /// Managed.
    Managed,
}

/// What moves the bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MoveMeans {
    /// The runtime's copy, by its engines.
    Copy(HostMemory),
    /// The runtime's copy, by its kernel.
    Blit(HostMemory),
    /// A kernel.
    Kernel {
        /// Whether it reads what is remote, writes it, or both.
        verb: KernelVerb,
        /// Whether memory between GPUs is fine grained.
        fine: bool,
        /// The memory, where it is the host's.
        host: HostMemory,
        /// Whether source and destination are both in the far memory.
        both: bool,
    },
    /// Managed pages move on a fault.
    Fault,
    /// Managed pages are moved by a call.
    Prefetch,
    /// Dependent loads.
    Chase,
    /// Inside one GPU, as the tool does it.
    Local,
    /// A message library.
    Message(MessageLibrary),
    /// What the tool does by default.
    Default,
}

/// What a kernel does at the far memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelVerb {
    /// Reads it and keeps nothing.
    Read,
    /// Writes it.
    Write,
    /// Reads it and writes its own memory, or both in the far one.
    Copy,
}

impl MoveMeans {
    /// From the column of the interface.
    pub(crate) fn parse(interface: &str) -> Result<Self, UnmappedRow> {
        let text = interface.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
        let host = host_memory(&text);
        if has(&["shared-memory", "xpmem", "cico", "knem"]) {
            return no("messages through shared memory of the host are not simulated");
        }
        if has(&["rccl", "nccl"]) {
            let amd = has(&["rccl"]);
            return Ok(Self::Message(if amd {
                MessageLibrary::Rccl
            } else {
                MessageLibrary::Nccl
            }));
        }
        if has(&["mpi", "ucx"]) {
            let sdma = !has(&["blit", "hsa_enable_sdma=0"]);
            return Ok(Self::Message(if has(&["ucx", "open"]) {
                MessageLibrary::Ucx { sdma }
            } else {
                MessageLibrary::CrayMpich { sdma }
            }));
        }
        if has(&["p2p disabled", "p2p=disabled", "peer access off", "without peer access"]) {
            return no("copies with peer access off are not simulated");
        }
        let managed = host == Some(HostMemory::Managed);
        if has(&["prefetch"]) {
            return Ok(Self::Prefetch);
        }
        if has(&["migrat"]) || (managed && has(&["xnack=1"])) {
            return Ok(Self::Fault);
        }
        if has(&["chase", "load latency", "dependent load"]) {
            return Ok(Self::Chase);
        }
        let verb = || {
            if has(&["write", "store"]) && !has(&["read", "copy"]) {
                KernelVerb::Write
            } else if has(&["read", "load"]) && !has(&["write", "store", "copy"]) {
                KernelVerb::Read
            } else {
                KernelVerb::Copy
            }
        };
        if has(&["zero-copy", "zero copy", "zerocopy", "kernel"]) || managed {
            let both = has(&["both arrays", "both in"]);
            let fine = has(&["fine-grained", "fine grained"]);
            let host = host.unwrap_or(HostMemory::Managed);
            return Ok(Self::Kernel { verb: verb(), fine, host, both });
        }
        let host = host.unwrap_or(HostMemory::Pinned);
        if has(&["blit"]) || (has(&["sdma=0"]) && has(&["memcpy"])) {
            return Ok(Self::Blit(host));
        }
        let copies = ["sdma", "memcpy", "copy engine", "pinned", "pageable", "registered", "dma"];
        if has(&copies) {
            return Ok(Self::Copy(host));
        }
        match text.as_str() {
            "local" | "local copy" => Ok(Self::Local),
            "" | "-" => Ok(Self::Default),
            _ => no(format!("interface '{interface}' is not in the vocabulary")),
        }
    }
}

fn host_memory(text: &str) -> Option<HostMemory> {
    let has = |word: &str| text.contains(word);
    Some(match () {
        () if has("managed") => HostMemory::Managed,
        () if has("pageable") || has("malloc") => HostMemory::Pageable,
        () if has("registered") || has("hostregister") => HostMemory::Registered,
        () if has("write-combined") || has("write combined") => HostMemory::WriteCombined,
        () if has("non-coherent") || has("noncoherent") || has("coarse-grained host") => {
            HostMemory::NonCoherent
        }
        () if has("pinned") || has("page-locked") || has("hiphostmalloc") => HostMemory::Pinned,
        () => return None,
    })
}

/// One end of a path, or a set of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathEnd {
    /// These GPUs, as the row's system numbers them; `GCD` without a number is the first.
    Gpus(Vec<u32>),
    /// Every other GPU.
    Each,
    /// GPUs that a link of this many lanes joins: `quad`, `dual`, `single`.
    Tier(u32),
    /// The host, at the GPU's own NUMA domain.
    Host,
    /// A NUMA domain.
    Numa(u32),
    /// So many GPUs of packages of their own.
    Spread(u32),
    /// So many GPUs that share packages.
    Together(u32),
    /// So many GPUs, ranks or threads, in the order of their numbers.
    Count(u32),
    /// So many nodes.
    Nodes(u32),
    /// So many network adapters.
    Adapters(u32),
    /// A GPU of another node.
    Elsewhere,
    /// Nothing is said.
    Nothing,
}

impl PathEnd {
    /// From the columns of source and destination.
    pub(crate) fn parse(text: &str) -> Result<Self, UnmappedRow> {
        let lower = text.trim().to_lowercase();
        let bad = || no(format!("end '{text}' is not in the vocabulary"));
        match lower.as_str() {
            "" | "-" => return Ok(Self::Nothing),
            "each" | "all" | "peers" => return Ok(Self::Each),
            "quad" => return Ok(Self::Tier(4)),
            "dual" => return Ok(Self::Tier(2)),
            "single" => return Ok(Self::Tier(1)),
            "host" | "cpu" => return Ok(Self::Host),
            _ => {}
        }
        if lower.contains("remote") || lower.contains("node a") || lower.contains("node b") {
            return Ok(Self::Elsewhere);
        }
        let count = lower.split_whitespace().next().and_then(|n| n.parse::<u32>().ok());
        if let Some(count) = count.filter(|n| (1..=4096).contains(n)) {
            let rest = lower.split_once(' ').map_or("", |(_, rest)| rest);
            return Ok(match rest.split([' ', ',']).next().unwrap_or_default() {
                "node" | "nodes" => Self::Nodes(count),
                "nic" | "nics" => Self::Adapters(count),
                _ if rest.contains("one gpu") || rest.contains("same") => Self::Together(count),
                _ if rest.contains("spread") => Self::Spread(count),
                "gcd" | "gcds" | "gpu" | "gpus" | "rank" | "ranks" | "thread" | "threads"
                | "process" | "processes" | "partners" => Self::Count(count),
                _ => return bad(),
            });
        }
        if let Some(rest) = lower.strip_prefix("numa") {
            return rest.trim().parse().map(Self::Numa).or_else(|_| bad());
        }
        let Some(rest) = lower.strip_prefix("gcd").or_else(|| lower.strip_prefix("gpu")) else {
            return bad();
        };
        match numbers(rest.trim_start_matches('s').trim()) {
            Some(gpus) => Ok(Self::Gpus(gpus)),
            None => bad(),
        }
    }
}

/// `0`, `1,6,7`, `0-7`; nothing is the first.
fn numbers(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 4096;
    if text.is_empty() {
        return Some(vec![0]);
    }
    let mut all = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < MOST);
        let (from, to) = (number(from)?, number(to)?);
        all.extend(from..=to);
    }
    (!all.is_empty() && all.len() < MOST as usize).then_some(all)
}

/// How directions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedDirection {
    /// One way, payload once.
    One,
    /// Both ways at once, the sum of their payloads.
    BothSum,
    /// One kernel that reads and writes: both counted.
    Both2N,
    /// As the source calls it: payload of one way, whatever it is divided by.
    AsReported,
    /// Inside one memory, payload once.
    Local,
    /// Inside one memory, read + written.
    Local2N,
    /// A collective.
    Collective,
}

impl CountedDirection {
    pub(crate) fn parse(word: &str) -> Result<Self, UnmappedRow> {
        Ok(match word {
            "uni" | "" => Self::One,
            "bi_sum" => Self::BothSum,
            "bi_2N" => Self::Both2N,
            "bi_as_reported" => Self::AsReported,
            "local" => Self::Local,
            "local_2N" => Self::Local2N,
            "coll" => Self::Collective,
            _ => return no(format!("direction '{word}' is not in the vocabulary")),
        })
    }
}

/// What a value is a value of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowMetric {
    /// Payload over time.
    Bandwidth,
    /// Bus bandwidth of a collective.
    BusBandwidth,
    /// Time of one operation.
    Latency,
    /// Time of a collective, of which the row names the kind only: two passes.
    TwoPassLatency,
    /// Bandwidth over the peak of one direction.
    OfOneWayPeak,
    /// Bandwidth over the peak of both directions.
    OfTwoWayPeak,
    /// Bandwidth over that of this many GPUs.
    RatioTo(u32),
    /// One less the ratio to a STREAM copy over the same path.
    Deficit,
    /// Bandwidth is at most the value.
    UpperBound,
    /// Time or bandwidth is at least the value.
    LowerBound,
    /// The most that one engine gives.
    EngineLimit,
    /// Links between two units.
    Links,
    /// Links passed on a route.
    Hops,
    /// A theoretical peak or a size of a part; which.
    Peak(String),
    /// All to all, by the smallest cut of the node.
    CutBound,
    /// All to all, by the load of the fullest link under the routes in use.
    RouteBound,
}

impl RowMetric {
    pub(crate) fn parse(word: &str) -> Result<Self, UnmappedRow> {
        let lower = word.to_lowercase();
        if let Some(of) = lower.strip_prefix("peak:") {
            return Ok(Self::Peak(of.trim().to_owned()));
        }
        if let Some(of) = lower.strip_prefix("ratio to ") {
            let count = of.split(' ').next().unwrap_or_default();
            let count = if count == "one" { Some(1) } else { count.parse().ok() };
            return match count.filter(|n| (1..=4096).contains(n)) {
                Some(n) => Ok(Self::RatioTo(n)),
                None => no(format!("metric '{word}' is not in the vocabulary")),
            };
        }
        if lower.contains("all-to-all bound") {
            return Ok(if lower.contains("cut") { Self::CutBound } else { Self::RouteBound });
        }
        Ok(match lower.as_str() {
            "bandwidth" | "max bandwidth" | "algbw" | "throughput" => Self::Bandwidth,
            "busbw" | "bus bandwidth" => Self::BusBandwidth,
            "latency" | "time" | "min latency" => Self::Latency,
            "latency all-to-all type" | "latency two passes" => Self::TwoPassLatency,
            "fraction of unidirectional peak" => Self::OfOneWayPeak,
            "fraction of bidirectional peak" => Self::OfTwoWayPeak,
            "deficit against direct stream copy" => Self::Deficit,
            "engine limit" => Self::EngineLimit,
            "links" => Self::Links,
            "hops" => Self::Hops,
            _ if lower.ends_with("upper bound") => Self::UpperBound,
            _ if lower.ends_with("lower bound") => Self::LowerBound,
            // "latency allreduce": the operation is looked for among the words of the row.
            _ if lower.starts_with("latency ") => Self::Latency,
            _ => return no(format!("metric '{word}' is not in the vocabulary")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_by_their_names_with_versions() {
        use StreamOp::{Copy, Triad};
        for (name, tool) in [
            ("p2pBandwidthLatencyTest", BenchTool::P2p),
            ("Comm|Scope", BenchTool::CommScope),
            ("comm_scope", BenchTool::CommScope),
            ("STREAM copy", BenchTool::Stream(Copy)),
            ("STREAM", BenchTool::Stream(Copy)),
            ("BabelStream triad", BenchTool::Stream(Triad)),
            ("STREAM add", BenchTool::Stream(Triad)),
            ("STREAM dot", BenchTool::Stream(StreamOp::Read)),
            ("STREAM set", BenchTool::Stream(StreamOp::Write)),
            ("rocm-bandwidth-test", BenchTool::RocmBandwidthTest),
            ("rocm_bandwidth_test 2.6", BenchTool::RocmBandwidthTest),
            ("TransferBench", BenchTool::TransferBench),
            ("nvbandwidth 0.8", BenchTool::Nvbandwidth),
            ("OSU_bw 7.0", BenchTool::OsuBw),
            ("OSU_bw / pt2pt demo", BenchTool::OsuBw),
            ("osu_bibw", BenchTool::OsuBibw),
            ("osu_latency", BenchTool::OsuLatency),
            ("osu_mbw_mr", BenchTool::OsuMultiple),
            (
                "OSU_allreduce 7.0",
                BenchTool::Collective { op: Some(Collective::AllReduce), osu: true },
            ),
            (
                "rccl-tests all_reduce",
                BenchTool::Collective { op: Some(Collective::AllReduce), osu: false },
            ),
            ("rccl-tests", BenchTool::Collective { op: None, osu: false }),
            ("alltoall_perf", BenchTool::Collective { op: Some(Collective::AllToAll), osu: false }),
            ("topology", BenchTool::Topology),
            ("KFD weight/15", BenchTool::Topology),
            ("min cut", BenchTool::Topology),
            ("edge load", BenchTool::Topology),
            ("datasheet", BenchTool::Datasheet),
            ("pathline", BenchTool::Pathline),
            ("-", BenchTool::Nothing),
        ] {
            assert_eq!(BenchTool::parse(name), Some(tool), "{name}");
        }
        assert_eq!(BenchTool::parse("rocprof"), None);
    }

    #[test]
    fn interfaces_say_what_moves_the_bytes() {
        use HostMemory::{Managed, NonCoherent, Pageable, Pinned, Registered, WriteCombined};
        let kernel = |verb, fine, both| MoveMeans::Kernel { verb, fine, host: Managed, both };
        for (interface, means) in [
            ("SDMA hipMemcpyPeerAsync", MoveMeans::Copy(Pinned)),
            ("SDMA engine", MoveMeans::Copy(Pinned)),
            ("hipMemcpy pinned", MoveMeans::Copy(Pinned)),
            ("hipMemcpy pageable", MoveMeans::Copy(Pageable)),
            ("hipMemcpyAsync registered", MoveMeans::Copy(Registered)),
            ("hipMemcpy pinned write-combined", MoveMeans::Copy(WriteCombined)),
            ("hipMemcpy pinned non-coherent", MoveMeans::Copy(NonCoherent)),
            ("blit", MoveMeans::Blit(Pinned)),
            ("blit hipMemcpyPeerAsync (HSA_ENABLE_SDMA=0)", MoveMeans::Blit(Pinned)),
            ("hipMemcpyPeerAsync, HSA_ENABLE_SDMA=0", MoveMeans::Blit(Pinned)),
            ("hipMemcpyPeerAsync, HSA_ENABLE_SDMA=1", MoveMeans::Copy(Pinned)),
            ("zero-copy managed (HSA_XNACK=0)", kernel(KernelVerb::Copy, false, false)),
            ("managed (HSA_XNACK=0)", kernel(KernelVerb::Copy, false, false)),
            ("page migration managed (HSA_XNACK=1)", MoveMeans::Fault),
            ("managed (HSA_XNACK=1)", MoveMeans::Fault),
            ("managed prefetch", MoveMeans::Prefetch),
            ("kernel zero-copy, both arrays in host memory", kernel(KernelVerb::Copy, false, true)),
            ("kernel_write managed fine-grained", kernel(KernelVerb::Write, true, false)),
            ("kernel_read", kernel(KernelVerb::Read, false, false)),
            ("kernel_read (remote) + local write", kernel(KernelVerb::Copy, false, false)),
            ("kernel on GCD0, peer arrays", kernel(KernelVerb::Copy, false, false)),
            ("kernel local", kernel(KernelVerb::Copy, false, false)),
            ("pointer chase", MoveMeans::Chase),
            ("local copy", MoveMeans::Local),
            ("local", MoveMeans::Local),
            ("-", MoveMeans::Default),
            ("RCCL", MoveMeans::Message(MessageLibrary::Rccl)),
            ("MPI cray-mpich", MoveMeans::Message(MessageLibrary::CrayMpich { sdma: true })),
            (
                "MPI SDMA (UCX, HSA_ENABLE_SDMA=1)",
                MoveMeans::Message(MessageLibrary::Ucx { sdma: true }),
            ),
            (
                "MPI blit (UCX, HSA_ENABLE_SDMA=0)",
                MoveMeans::Message(MessageLibrary::Ucx { sdma: false }),
            ),
            (
                "MPI blit (cray-mpich 8.1.18, ROCm 5.2.3)",
                MoveMeans::Message(MessageLibrary::CrayMpich { sdma: false }),
            ),
        ] {
            assert_eq!(MoveMeans::parse(interface), Ok(means), "{interface}");
        }
        let why = MoveMeans::parse("carrier pigeon").unwrap_err().reason;
        assert_eq!(why, "interface 'carrier pigeon' is not in the vocabulary");
        assert!(
            MoveMeans::parse("SDMA (P2P disabled)").unwrap_err().reason.contains("peer access")
        );
        assert!(
            MoveMeans::parse("shared-memory non-temporal").unwrap_err().reason.contains("shared")
        );
    }

    #[test]
    fn collectives_by_any_of_their_names() {
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
            assert_eq!(collective(text), Some(op), "{text}");
        }
        assert_eq!(collective("latency"), None);
    }

    #[test]
    fn ends() {
        for (text, end) in [
            ("GCD0", PathEnd::Gpus(vec![0])),
            ("GPU 3", PathEnd::Gpus(vec![3])),
            ("GCD", PathEnd::Gpus(vec![0])),
            ("GCD1,6,7", PathEnd::Gpus(vec![1, 6, 7])),
            ("GCD0-3", PathEnd::Gpus(vec![0, 1, 2, 3])),
            ("each", PathEnd::Each),
            ("quad", PathEnd::Tier(4)),
            ("dual", PathEnd::Tier(2)),
            ("single", PathEnd::Tier(1)),
            ("host", PathEnd::Host),
            ("NUMA3", PathEnd::Numa(3)),
            ("2 GCDs of one GPU", PathEnd::Together(2)),
            ("2 GCDs spread", PathEnd::Spread(2)),
            ("8 GCDs", PathEnd::Count(8)),
            ("2 threads", PathEnd::Count(2)),
            ("8 ranks", PathEnd::Count(8)),
            ("1 node", PathEnd::Nodes(1)),
            ("2 nodes x4", PathEnd::Nodes(2)),
            ("GCD node A", PathEnd::Elsewhere),
            ("GCD remote node", PathEnd::Elsewhere),
            ("4 NIC", PathEnd::Adapters(4)),
            ("", PathEnd::Nothing),
        ] {
            assert_eq!(PathEnd::parse(text), Ok(end), "{text}");
        }
        for text in ["file", "GCDx", "GCD0-", "numa", "0 GCDs", "GCD99999", "7 dwarfs"] {
            assert!(PathEnd::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn metrics_and_directions() {
        assert_eq!(RowMetric::parse("ratio to one GCD"), Ok(RowMetric::RatioTo(1)));
        assert_eq!(RowMetric::parse("ratio to 4 GCDs"), Ok(RowMetric::RatioTo(4)));
        assert_eq!(RowMetric::parse("bandwidth upper bound"), Ok(RowMetric::UpperBound));
        assert_eq!(RowMetric::parse("latency all-to-all type"), Ok(RowMetric::TwoPassLatency));
        assert_eq!(RowMetric::parse("latency allreduce"), Ok(RowMetric::Latency));
        assert_eq!(
            RowMetric::parse("peak: NUMA domains"),
            Ok(RowMetric::Peak("numa domains".into()))
        );
        assert!(RowMetric::parse("gain").is_err() && RowMetric::parse("ratio to few").is_err());
        assert_eq!(CountedDirection::parse("bi_2N"), Ok(CountedDirection::Both2N));
        assert!(CountedDirection::parse("up").unwrap_err().reason.contains("'up'"));
    }
}
