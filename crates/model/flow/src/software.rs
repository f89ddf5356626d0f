//! Costs of message libraries: the `[software.*]` sections of a machine description.
//!
//! The times and sizes of software, and nothing of hardware: rates come from links, engines and
//! memories. Every section is optional; a library without one cannot be asked about.

use serde::Deserialize;

use crate::model::{bytes, count, maybe_gbs, share, some_time, time};

/// `[software]`: the message libraries that are described.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageSoftware {
    /// HPE's MPI.
    #[serde(default, rename = "cray-mpich")]
    pub cray_mpich: Option<MpiModel>,
    /// An MPI over UCX.
    #[serde(default)]
    pub ucx: Option<MpiModel>,
    /// AMD's collectives.
    #[serde(default)]
    pub rccl: Option<CclModel>,
    /// NVIDIA's collectives.
    #[serde(default)]
    pub nccl: Option<CclModel>,
    /// Share of an adapter that messages between nodes get.
    #[serde(default)]
    pub network: Option<NetworkCost>,
    /// Memory that processes of a node share.
    #[serde(default, rename = "shared-memory")]
    pub shared_memory: Option<SharedMemoryCost>,
}

/// `[software.cray-mpich]`, `[software.ucx]`: an MPI that takes device pointers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiModel {
    /// Largest message, in bytes, that the CPU loads and stores and that goes through memory which the
    /// processes share. Larger ones are copied from GPU to GPU directly.
    #[serde(alias = "ipc_from_bytes", deserialize_with = "bytes")]
    pub ipc_above_bytes: u64,
    /// Time of such a small message within a node before its bytes count, in us.
    #[serde(deserialize_with = "some_time")]
    pub host_message_us: f64,
    /// Rate of the bytes of a small message over all its copies, in GB/s.
    #[serde(deserialize_with = "crate::model::gbs")]
    pub host_message_gbs: f64,
    /// The library's overhead on a blocking direct copy: the handshake, in us.
    #[serde(deserialize_with = "time")]
    pub handshake_us: f64,
    /// What announcing a message from GPU to GPU adds from `announced_from_bytes` on outside of collectives,
    /// in us.
    #[serde(default, deserialize_with = "time")]
    pub announced_us: f64,
    /// The smallest message that is announced so, in bytes.
    #[serde(default, deserialize_with = "maybe_bytes")]
    pub announced_from_bytes: Option<u64>,
    /// Time to map a buffer of another process's GPU, which the first message to it pays, in us.
    #[serde(default, deserialize_with = "time")]
    pub map_us: f64,
    /// Start of the copy kernel, in us; copies queued behind each other pay it, too.
    #[serde(deserialize_with = "time")]
    pub blit_us: f64,
    /// Start of a copy engine that has the next copy queued, in us. One that is idle takes what the
    /// machine's own copy latencies say.
    #[serde(deserialize_with = "time")]
    pub engine_us: f64,
    /// Time of a message between nodes before its bytes count, in us.
    #[serde(deserialize_with = "some_time")]
    pub net_us: f64,
    /// Smallest host message, in bytes, that a CPU copies once, out of the sender's memory.
    #[serde(deserialize_with = "bytes")]
    pub single_copy_from_bytes: u64,
    /// Pieces, in bytes, in which messages between device and host memory are copied. Without it
    /// such messages are not modelled.
    #[serde(default, deserialize_with = "maybe_bytes")]
    pub fragment_bytes: Option<u64>,
    /// Fan-out of the tree that every broadcast takes. Without it the sizes of MPICH decide.
    #[serde(default, deserialize_with = "maybe_count")]
    pub broadcast_radix: Option<u32>,
}

/// `[software.rccl]`, `[software.nccl]`: collectives by kernels on rings and trees.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CclModel {
    /// Fixed cost of an operation that follows another: launch, channels, last flag. Where `kernel_us`
    /// is known, the time between two launches by the process of one GPU. In us.
    #[serde(deserialize_with = "some_time")]
    pub base_us: f64,
    /// What each further GPU of the same process adds to a launch, in us.
    #[serde(default, deserialize_with = "time")]
    pub gpu_launch_us: f64,
    /// Fixed cost of an operation on the GPU alone, as in a replayed graph, in us. Without it graphs
    /// are not modelled, and launches add to the steps of an operation.
    #[serde(default, deserialize_with = "maybe_some_time")]
    pub kernel_us: Option<f64>,
    /// What an operation takes longer whose end the process awaits before the next, in us.
    #[serde(default, deserialize_with = "time")]
    pub isolated_us: f64,
    /// What whole chunks take longer to begin than words with flags, in us.
    #[serde(default, deserialize_with = "time")]
    pub simple_us: f64,
    /// Time of the copy by which a GPU takes its last part out of the library's buffer, over that of the
    /// part on a link.
    #[serde(default, deserialize_with = "share")]
    pub drain_share: f64,
    /// Share of a link's rate that a kernel of sends and receives gets.
    #[serde(default = "whole", deserialize_with = "share")]
    pub message_share: f64,
    /// The library's own table, by which it chooses a protocol: its starts in us. Without it the fastest
    /// is taken.
    #[serde(default)]
    pub choice: Option<ProtocolTable>,
    /// Lines of 128 B with a flag each (protocol LL128), where the library has them.
    #[serde(default)]
    pub ll128: Option<Ll128Cost>,
    /// Reductions inside the switches, where the library has them.
    #[serde(default)]
    pub nvls: Option<NvlsCost>,
    /// The most that LL moves on all channels, in GB/s.
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub ll_gbs: Option<f64>,
    /// Channels of a large operation. LL takes one for each 4 KiB of a rank's part. Without it small
    /// operations have the rate of large ones.
    #[serde(default, deserialize_with = "maybe_channels")]
    pub channels: Option<u32>,
    /// A step to a neighbour with whole chunks behind one flag (protocol Simple), in us.
    #[serde(deserialize_with = "some_time")]
    pub step_us: f64,
    /// A step with a flag in every word (protocol LL), in us.
    #[serde(deserialize_with = "some_time")]
    pub ll_step_us: f64,
    /// Share of the rate of whole chunks that LL gets.
    #[serde(deserialize_with = "share")]
    pub ll_share: f64,
    /// Steps to another node, Simple and LL, in us.
    #[serde(deserialize_with = "some_time")]
    pub net_step_us: f64,
    #[serde(deserialize_with = "some_time")]
    /// The same for LL.
    pub net_ll_step_us: f64,
    /// What each such step takes besides, in us: the threads of both processes that post it, the wire and the
    /// arrival in the memory of the other GPU.
    #[serde(default, deserialize_with = "time")]
    pub net_proxy_us: f64,
    /// Bytes that a neighbour is handed at once, Simple.
    #[serde(deserialize_with = "bytes")]
    pub chunk_bytes: u64,
    /// The same for LL.
    #[serde(deserialize_with = "bytes")]
    pub ll_chunk_bytes: u64,
    /// The most rings that are looked for, both directions counted.
    #[serde(deserialize_with = "count")]
    pub max_channels: u32,
}

/// `[software.nccl.choice]`: starts by which a library chooses a protocol, in us.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolTable {
    /// Of LL.
    #[serde(deserialize_with = "time")]
    pub ll_us: f64,
    /// Of LL128.
    #[serde(deserialize_with = "time")]
    pub ll128_us: f64,
    /// Of Simple.
    #[serde(deserialize_with = "time")]
    pub simple_us: f64,
}

/// `[software.nccl.ll128]`: protocol LL128.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ll128Cost {
    /// What it takes longer to begin than LL, in us.
    #[serde(deserialize_with = "time")]
    pub start_us: f64,
    /// A step to a neighbour, in us.
    #[serde(deserialize_with = "some_time")]
    pub step_us: f64,
    /// A step to another node, in us.
    #[serde(deserialize_with = "some_time")]
    pub net_step_us: f64,
    /// Share of the rate of whole chunks that it gets.
    #[serde(deserialize_with = "share")]
    pub share: f64,
}

/// `[software.nccl.nvls]`: an all_reduce by loads that the switches sum and stores that they multiply
/// (NVLink SHARP). Of n GPUs each moves 1 + 1/n times the bytes, both out and in.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvlsCost {
    /// Its start in the library's own table, by which it is chosen, in us.
    #[serde(deserialize_with = "some_time")]
    pub start_us: f64,
    /// What the library's table takes it to move, as a share of what all rings move together.
    #[serde(deserialize_with = "share")]
    pub table_share: f64,
    /// Share of the peak of a GPU's links to switches that it moves.
    #[serde(deserialize_with = "share")]
    pub link_share: f64,
    /// The fewest GPUs for which the library takes it.
    #[serde(deserialize_with = "count")]
    pub least_gpus: u32,
    /// Channels that work at once.
    #[serde(deserialize_with = "count")]
    pub channels: u32,
    /// The largest chunk: what a channel moves at once of the part of each GPU.
    #[serde(deserialize_with = "bytes")]
    pub chunk_bytes: u64,
    /// What a chunk takes besides its bytes, in us.
    #[serde(deserialize_with = "some_time")]
    pub chunk_us: f64,
}

impl NvlsCost {
    /// Chunk of an all_reduce of `bytes` over `gpus` of one node: the largest down to 16 KiB of which the
    /// channels have enough (NCCL 2.27, `enqueue.cc`).
    pub fn chunk(&self, bytes: f64, gpus: f64) -> f64 {
        let at_once = f64::from(self.channels) * gpus;
        let mut chunk = self.chunk_bytes as f64;
        for (most, times) in [(65_536.0, 64.0), (32_768.0, 8.0), (16_384.0, 2.0)] {
            if bytes < times * at_once * chunk && chunk > most {
                chunk = most;
            }
        }
        chunk
    }
}

/// `[software.shared-memory]`: what it costs that a cache line moves from core to core, and what calls
/// of the kernel add.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemoryCost {
    /// Time of the code around one message, without its cache lines, in ns.
    #[serde(deserialize_with = "some_time")]
    pub message_ns: f64,
    /// Time until a core has a line that another core behind the same L3 wrote, in ns.
    #[serde(deserialize_with = "some_time")]
    pub same_l3_ns: f64,
    /// The same behind another L3 of the same NUMA domain, in ns; longer by its distance to another
    /// domain.
    #[serde(deserialize_with = "some_time")]
    pub other_l3_ns: f64,
    /// Lines of other cores that one core waits for at once.
    #[serde(deserialize_with = "count")]
    pub lines_in_flight: u32,
    /// A call that copies from process to process (process_vm_readv), without its bytes, in us.
    #[serde(deserialize_with = "time")]
    pub call_us: f64,
    /// What such a call adds for each base page, in us.
    #[serde(deserialize_with = "time")]
    pub page_us: f64,
    /// Share of the time of a single copy that remains where its loads bypass the caches and the
    /// bytes lie behind another L3.
    #[serde(deserialize_with = "share")]
    pub single_past_share: f64,
}

/// `[software.network]`: what a message between nodes gets of its adapter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCost {
    /// Share of the line rate that is payload.
    #[serde(deserialize_with = "share")]
    pub payload_share: f64,
}

const fn whole() -> f64 {
    1.0
}

fn maybe_some_time<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    some_time(d).map(Some)
}

fn maybe_channels<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    count(d).map(Some)
}

fn maybe_bytes<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    bytes(d).map(Some)
}

fn maybe_count<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let n = count(d)?;
    if n >= 2 {
        Ok(Some(n))
    } else {
        Err(serde::de::Error::custom("1 is out of range; expected a fan-out of at least 2"))
    }
}
