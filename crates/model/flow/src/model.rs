//! Effects of the parts of a node on a transfer: the sections of a machine description.
//!
//! Every field is checked as it is read, so that an error names the line. What a protocol costs is
//! stated in bytes for a packet of payload; an efficiency is a share of a theoretical peak.

use pathline_schema::{Bytes, MemKind, RuntimeCall};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The largest rate that a description may state, in GB/s.
const MAX_GBS: f64 = 1e6;
/// The longest time that a description may state, in its own unit.
const MAX_TIME: f64 = 1e9;

fn float<'de, D: Deserializer<'de>>(
    d: D,
    fits: impl Fn(f64) -> bool,
    what: &str,
) -> Result<f64, D::Error> {
    let value = f64::deserialize(d)?;
    if value.is_finite() && fits(value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("{value} is out of range; expected {what}")))
    }
}

pub(crate) fn gbs<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (1e-6..=MAX_GBS).contains(&v), "a rate in GB/s from 1e-6 to 1e6")
}
pub(crate) fn maybe_gbs<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    gbs(d).map(Some)
}
pub(crate) fn share<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (1e-3..=1.0).contains(&v), "a share from 0.001 to 1")
}
fn part<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (0.0..=1.0).contains(&v), "a part of the time, from 0 to 1")
}
fn loss<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (0.0..=10.0).contains(&v), "a share of the time, from 0 to 10")
}
fn full() -> f64 {
    1.0
}
fn payload<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (1.0..=65536.0).contains(&v), "bytes of payload in a packet, from 1 to 65536")
}
fn overhead<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (0.0..=65536.0).contains(&v), "bytes for each packet, from 0 to 65536")
}
fn one() -> u32 {
    1
}
pub(crate) fn time<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (0.0..=MAX_TIME).contains(&v), "a time from 0 to 1e9")
}
fn maybe_time<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    time(d).map(Some)
}
fn maybe_share<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    share(d).map(Some)
}
fn maybe_overhead<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    overhead(d).map(Some)
}
fn maybe_bytes<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    bytes(d).map(Some)
}
pub(crate) fn some_time<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    float(d, |v| (1e-3..=MAX_TIME).contains(&v), "a time from 0.001 to 1e9")
}

fn whole<'de, D: Deserializer<'de>>(d: D, max: u64, what: &str) -> Result<u64, D::Error> {
    let value = u64::deserialize(d)?;
    if (1..=max).contains(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("{value} is out of range; expected {what}")))
    }
}

pub(crate) fn count<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    whole(d, 1 << 16, "a number from 1 to 65536").map(|n| n as u32)
}
pub(crate) fn gib<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    whole(d, 1 << 20, "a size in GiB from 1 to 1048576")
}
pub(crate) fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    whole(d, 1 << 50, "a size in bytes from 1 to 2^50")
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeModel {
    pub gpu_memory: GpuMemory,
    pub fabric: FabricModel,
    pub copy_engine: CopyEngineModel,
    pub kernel: KernelModel,
    pub host_link: HostLink,
    pub pageable: Vec<PageableRegime>,
    pub migration: MigrationModel,
    pub cpu: CpuModel,
    pub time: TimeModel,
    pub calls: Vec<CallCost>,
}

/// One `[[calls]]` row: what a call of the runtime costs the host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallCost {
    pub call: RuntimeCall,
    /// Kind of memory that it is about; none for calls about no memory.
    #[serde(default)]
    pub mem: Option<MemKind>,
    /// Whatever the size.
    #[serde(deserialize_with = "time")]
    pub us: f64,
    /// On top, for each MiB.
    #[serde(default, deserialize_with = "time")]
    pub us_per_mib: f64,
    /// In place of both, for memory of less than `small_bytes`: the runtime takes it from a block that it
    /// has, or gives it back to one.
    #[serde(default, deserialize_with = "maybe_time")]
    pub small_us: Option<f64>,
    /// Such a block.
    #[serde(default, deserialize_with = "maybe_bytes")]
    pub small_bytes: Option<u64>,
}

impl CallCost {
    /// Host time of the call about `bytes` of memory, us.
    pub(crate) fn us(&self, bytes: Bytes) -> f64 {
        let small = self.small_us.filter(|_| self.small_bytes.is_some_and(|block| bytes.0 < block));
        small.unwrap_or(self.us + self.us_per_mib * bytes.as_f64() / Bytes::mib(1).as_f64())
    }
}

/// `[gpu_memory]`: the device's own memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuMemory {
    /// Share of the peak that kernels reach, read + written.
    #[serde(deserialize_with = "share")]
    pub kernel_efficiency: f64,
    /// The same for kernels that only store; as `kernel_efficiency` if it is left out.
    #[serde(default, deserialize_with = "maybe_share")]
    pub store_efficiency: Option<f64>,
    /// What turning between reads and writes adds to the time of a byte, as a share: all of it where a kernel
    /// writes as much as it reads, nothing where it only does one.
    #[serde(default, deserialize_with = "loss")]
    pub turnaround: f64,
    /// Rate of the runtime's copy inside one GPU, read + written, GB/s.
    #[serde(deserialize_with = "gbs")]
    pub local_copy_gbs: f64,
    /// Whether that copy is a kernel of the runtime's rather than a copy engine.
    pub local_copy_by_kernel: bool,
    /// Whether a GPU has no memory besides that of its NUMA domain.
    #[serde(default)]
    pub unified: bool,
}

/// Bytes that one kind of transfer puts on a link besides its payload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkOverhead {
    /// Bytes besides the payload of each packet, in the direction of the payload.
    #[serde(deserialize_with = "overhead")]
    pub header_bytes: f64,
    /// Bytes that each packet of payload causes in the other direction: requests,
    /// acknowledgements.
    #[serde(deserialize_with = "overhead")]
    pub reverse_bytes: f64,
}

/// `[fabric]`: links between GPUs, by what moves the bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FabricModel {
    /// Payload of a packet.
    #[serde(deserialize_with = "payload")]
    pub payload_bytes: f64,
    /// How much longer a packet is, in either direction, if it passes another GPU; once, however
    /// many it passes. Not for the copy engine, whose cost of a GPU passed is a time.
    #[serde(default, deserialize_with = "overhead")]
    pub forwarded_bytes: f64,
    /// Bytes for each packet that go with the payload where the other direction takes the same
    /// links, and against it where it takes others. Not for the copy engine.
    #[serde(default, deserialize_with = "overhead")]
    pub apart_bytes: f64,
    /// Header of the lines that the L2 writes back at a kernel's last fence, which are whole; bytes for
    /// each packet. As of other stores if it is left out.
    #[serde(default, deserialize_with = "maybe_overhead")]
    pub write_back_header_bytes: Option<f64>,
    /// Copies by a copy engine.
    pub engine: LinkOverhead,
    /// Loads by a kernel, and the runtime's copy kernel where it pulls.
    pub read: LinkOverhead,
    /// Stores by a kernel, and the runtime's copy kernel where it pushes.
    pub write: LinkOverhead,
}

/// Bytes on the links of a route per byte of payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinkBytes {
    /// In its own direction.
    pub forward: f64,
    /// In the other direction.
    pub reverse: f64,
    /// Length of a packet, in bytes, of which `FabricModel::payload_bytes` are payload.
    pub packet: f64,
}

impl FabricModel {
    /// For packets that pass another GPU or not, and whose answers take other links or not.
    pub(crate) fn wire(&self, verb: &LinkOverhead, forwards: bool, apart: bool) -> LinkBytes {
        let extra = if forwards { self.forwarded_bytes } else { 0.0 };
        let moved = if apart { self.apart_bytes } else { 0.0 };
        let packet = self.payload_bytes + (verb.header_bytes + extra - moved).max(0.0);
        LinkBytes {
            forward: packet / self.payload_bytes,
            reverse: (verb.reverse_bytes + extra + moved) / self.payload_bytes,
            packet,
        }
    }
}

/// `[copy_engine]`: the DMA engines of a GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyEngineModel {
    /// The most that one transfer gets from its engine.
    #[serde(deserialize_with = "gbs")]
    pub gbs: f64,
    /// Factor on what a transfer by an engine gets, for each GPU that the route passes between the
    /// ends: an engine has a fixed number of bytes in flight, and a longer route takes longer.
    #[serde(deserialize_with = "share")]
    pub per_hop: f64,
    /// Engines that the runtime puts on one copy.
    #[serde(default = "one", deserialize_with = "count")]
    pub gang: u32,
    /// Engines that serve transfers between GPUs.
    #[serde(deserialize_with = "count")]
    pub peer_engines: u32,
    /// Engines that serve transfers with the host.
    #[serde(deserialize_with = "count")]
    pub host_engines: u32,
    /// Whether a GPU's copies to others, its copies in and its copies out run one stream after the
    /// other each, instead of sharing.
    #[serde(default)]
    pub serial: bool,
}

/// `[kernel]`: what limits a kernel besides bandwidth.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelModel {
    /// Threads that a compute unit holds at once.
    #[serde(deserialize_with = "count")]
    pub threads_per_unit: u32,
    /// Bytes of one chain of dependent loads that is in flight to each memory, as a time.
    #[serde(deserialize_with = "some_time")]
    pub local_load_ns: f64,
    #[serde(deserialize_with = "some_time")]
    pub peer_load_ns: f64,
    /// On top, for each GPU that the route passes between the ends.
    #[serde(deserialize_with = "time")]
    pub hop_load_ns: f64,
    #[serde(deserialize_with = "some_time")]
    pub host_load_ns: f64,
    /// Rates at which one compute unit stores to its own GPU's memory, to another GPU's and to the host's,
    /// GB/s: a thread loads again once its stores are out. Without one, stores do not limit a unit.
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub local_store_gbs: Option<f64>,
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub peer_store_gbs: Option<f64>,
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub host_store_gbs: Option<f64>,
    /// Share of the peak of its multipliers that a compute kernel reaches.
    #[serde(default = "full", deserialize_with = "share")]
    pub arithmetic_efficiency: f64,
    /// Whether a unit issues arithmetic or loads in a cycle, not both: kernels that compute then leave no
    /// cycles to others.
    #[serde(default)]
    pub single_issue: bool,
    /// Whether a GPU starts kernels in the order of their arrival: a grid that fills it runs to its last
    /// block before any block of the next kernel starts. Otherwise such grids share its time.
    #[serde(default)]
    pub in_order: bool,
    /// Smallest first.
    #[serde(default)]
    pub cache: Vec<GpuCacheLevel>,
}

/// One `[[kernel.cache]]` level of a GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuCacheLevel {
    #[serde(deserialize_with = "count")]
    pub level: u32,
    /// Of a compute unit at level 1, else of the GPU.
    #[serde(deserialize_with = "bytes")]
    pub bytes: u64,
    #[serde(deserialize_with = "some_time")]
    pub load_ns: f64,
    /// Rate at which it takes the stores of a kernel to its own memory, GB/s; without it stores are as
    /// fast as the memory.
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub store_gbs: Option<f64>,
}

/// `[host_link]`: between GPU and host memory. `*_header_bytes` are bytes besides the payload of
/// each packet, in the direction of the payload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostLink {
    /// Payload of a packet.
    #[serde(deserialize_with = "payload")]
    pub payload_bytes: f64,
    /// Bytes that each packet of payload causes in the other direction.
    #[serde(deserialize_with = "overhead")]
    pub reverse_bytes: f64,
    /// Copy engine, host to GPU.
    #[serde(deserialize_with = "overhead")]
    pub engine_in_header_bytes: f64,
    /// Copy engine, GPU to host.
    #[serde(deserialize_with = "overhead")]
    pub engine_out_header_bytes: f64,
    /// Kernel that loads from host memory.
    #[serde(deserialize_with = "overhead")]
    pub kernel_read_header_bytes: f64,
    /// Kernel that stores to host memory.
    #[serde(deserialize_with = "overhead")]
    pub kernel_write_header_bytes: f64,
    /// The largest buffer that the CPUs' caches hold after a core has written it. An engine copies such a
    /// buffer into a GPU no faster than a kernel loads it. 1 where cores write no buffers before copies.
    #[serde(deserialize_with = "bytes")]
    pub cached_up_to_bytes: u64,
    /// Share of the peak of a NUMA domain's memory that GPUs get out of it.
    #[serde(deserialize_with = "share")]
    pub memory_efficiency: f64,
}

/// One `[[pageable]]` regime: copies of pageable memory up to a size.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageableRegime {
    /// Largest copy of this regime; the last regime also takes larger ones.
    #[serde(deserialize_with = "bytes")]
    pub up_to_bytes: u64,
    #[serde(deserialize_with = "gbs")]
    pub in_gbs: f64,
    #[serde(deserialize_with = "gbs")]
    pub out_gbs: f64,
    #[serde(deserialize_with = "time")]
    pub start_us: f64,
    /// What the first piece adds to the start, which a core stages before anything can move.
    #[serde(default)]
    pub ramp: StartRamp,
    /// How often each byte crosses the host's memory: 3 where a CPU thread stages it.
    #[serde(deserialize_with = "count")]
    pub memory_passes: u32,
    /// How far the times of single copies spread: see [`crate::FlowOperation::spread`].
    #[serde(default, deserialize_with = "part")]
    pub spread: f64,
}

/// `[migration]`: managed pages on the move.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrationModel {
    /// Bytes that one fault moves.
    #[serde(deserialize_with = "bytes")]
    pub fault_bytes: u64,
    /// Its cost besides the transfer.
    #[serde(deserialize_with = "time")]
    pub fault_us: f64,
    /// Time before the first page of an operation moves, to or from the host, and between GPUs.
    #[serde(default, deserialize_with = "time")]
    pub start_us: f64,
    #[serde(default, deserialize_with = "time")]
    pub peer_start_us: f64,
    /// Time of one round of faults in the first `round_bytes`, of which each round brings twice as much as the
    /// one before, from `fault_bytes` on. All faults cost `fault_us` if it is left out.
    #[serde(default, deserialize_with = "maybe_time")]
    pub round_us: Option<f64>,
    #[serde(default, deserialize_with = "maybe_bytes")]
    pub round_bytes: Option<u64>,
    /// Whether a kernel loads managed pages of another GPU in place.
    #[serde(default)]
    pub peers_in_place: bool,
    /// Time before the first page of a prefetch moves: into a GPU from the host, out into the host, and between
    /// GPUs; the last two as the first if they are left out.
    #[serde(default, deserialize_with = "time")]
    pub prefetch_start_us: f64,
    #[serde(default, deserialize_with = "maybe_time")]
    pub prefetch_out_start_us: Option<f64>,
    #[serde(default, deserialize_with = "maybe_time")]
    pub prefetch_peer_start_us: Option<f64>,
    /// Bytes that one step of a prefetch moves.
    #[serde(deserialize_with = "bytes")]
    pub prefetch_bytes: u64,
    /// Its cost besides the transfer.
    #[serde(deserialize_with = "time")]
    pub prefetch_us: f64,
    /// The same out of a GPU into the host, and between GPUs; as `prefetch_us` if they are left out.
    #[serde(default, deserialize_with = "maybe_time")]
    pub prefetch_out_us: Option<f64>,
    #[serde(default, deserialize_with = "maybe_time")]
    pub prefetch_peer_us: Option<f64>,
}

/// `[cpu]`: the host's cores and caches.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CpuModel {
    /// Share of the peak of a NUMA domain's memory that its cores get out of it.
    #[serde(deserialize_with = "share")]
    pub memory_efficiency: f64,
    /// Memory traffic that one thread can keep going, GB/s.
    #[serde(deserialize_with = "gbs")]
    pub core_gbs: f64,
    /// Load latency of the domain's own memory.
    #[serde(deserialize_with = "some_time")]
    pub memory_ns: f64,
    /// First touch of a base page, and of a huge page.
    #[serde(deserialize_with = "some_time")]
    pub page_fault_us: f64,
    #[serde(deserialize_with = "some_time")]
    pub huge_fault_us: f64,
    /// Size from which the C library's `memcpy` and `rep movsb` write around the caches.
    #[serde(deserialize_with = "bytes")]
    pub memcpy_streams_from_bytes: u64,
    /// Start-up of the threads of a team.
    #[serde(deserialize_with = "time")]
    pub start_us: f64,
    /// How cores reach the memory of GPUs; none where no core does, or nothing is known of it.
    #[serde(default)]
    pub gpu_memory: Option<GpuMapping>,
    /// Smallest first.
    #[serde(default)]
    pub cache: Vec<CacheLevel>,
}

/// `[cpu.gpu_memory]`: the mapping of the memory of GPUs that the driver gives to CPU threads.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuMapping {
    /// Whether the cores cache it: loads bring lines, several at a time, and a plain store loads its line
    /// first. Otherwise it is write-combined: stores leave as lines, and loads go one at a time, as wide as
    /// the instruction.
    #[serde(default)]
    pub cached: bool,
    /// Latency of a load.
    #[serde(deserialize_with = "time")]
    pub load_ns: f64,
    /// Lines that a core loads at once where the mapping is cached.
    #[serde(deserialize_with = "count")]
    pub lines_in_flight: u32,
    /// Stores of one thread that leave as lines, GB/s.
    #[serde(deserialize_with = "gbs")]
    pub store_gbs: f64,
    /// Bytes besides the payload of a packet, which holds what one load or one line of stores does.
    #[serde(deserialize_with = "overhead")]
    pub load_header_bytes: f64,
    #[serde(deserialize_with = "overhead")]
    pub store_header_bytes: f64,
}

impl GpuMapping {
    /// Loads and stores that the link alone limits.
    fn ideal() -> Self {
        Self {
            cached: true,
            load_ns: 0.0,
            lines_in_flight: 1,
            store_gbs: f64::INFINITY,
            load_header_bytes: 0.0,
            store_header_bytes: 0.0,
        }
    }
}

/// One `[[cpu.cache]]` level.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheLevel {
    #[serde(deserialize_with = "count")]
    pub level: u32,
    #[serde(deserialize_with = "bytes")]
    pub bytes: u64,
    /// CPUs that share one.
    #[serde(deserialize_with = "count")]
    pub shared_by: u32,
    #[serde(deserialize_with = "some_time")]
    pub load_ns: f64,
    /// Traffic of one thread, loads and stores together, with 32-byte accesses.
    #[serde(deserialize_with = "gbs")]
    pub core_gbs: f64,
}

/// `[time]`: what calls and starts cost.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeModel {
    /// Host time of a copy call and of a kernel launch.
    #[serde(deserialize_with = "time")]
    pub copy_call_us: f64,
    #[serde(deserialize_with = "time")]
    pub launch_call_us: f64,
    /// Host time of a call that enqueues many copies; none if the runtime has no such call.
    #[serde(default, deserialize_with = "maybe_time")]
    pub batch_call_us: Option<f64>,
    /// Device time of a copy before its first byte: inside a GPU, to a neighbour, more for each
    /// GPU passed, to or from the host.
    #[serde(deserialize_with = "time")]
    pub local_copy_us: f64,
    #[serde(deserialize_with = "time")]
    pub peer_copy_us: f64,
    #[serde(deserialize_with = "time")]
    pub hop_copy_us: f64,
    #[serde(deserialize_with = "time")]
    pub host_copy_us: f64,
    /// Device time between two records of events with nothing between them.
    #[serde(default, deserialize_with = "time")]
    pub event_gap_us: f64,
    /// What a copy inside a GPU adds to its start while it fills the compute units.
    #[serde(default)]
    pub local_ramp: StartRamp,
    /// Device time of a kernel that moves next to nothing, in its own GPU's memory.
    #[serde(deserialize_with = "time")]
    pub kernel_us: f64,
    /// The same for kernels whose bytes cross links, and what of the start hides their bytes.
    #[serde(default)]
    pub kernel_start: KernelStarts,
    /// Device time of the runtime's copy kernel in addition to its bytes: its start, and the flush
    /// of the caches at its end that makes them visible to others. As `kernel_us` if it is left
    /// out.
    #[serde(default, deserialize_with = "maybe_time")]
    pub blit_us: Option<f64>,
    /// The same inside one GPU, where the copy kernel is selected; as `blit_us` if it is left out.
    #[serde(default, deserialize_with = "maybe_time")]
    pub local_blit_us: Option<f64>,
    /// Measured copy latencies, row = source GPU, column = destination, in the order of the GPUs;
    /// they count instead of the classes above.
    #[serde(default)]
    pub copy_us_matrix: Vec<Vec<f64>>,
}

/// What is added to a start: it grows in proportion to size up to `bytes`, and stays `us` beyond.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRamp {
    #[serde(deserialize_with = "time")]
    pub us: f64,
    #[serde(deserialize_with = "bytes")]
    pub bytes: u64,
}

impl StartRamp {
    /// Time added to the start of an operation of `bytes`, us.
    pub(crate) fn added_us(&self, bytes: u64) -> f64 {
        self.us * (bytes as f64 / self.bytes.max(1) as f64).min(1.0)
    }
}

/// `[time.kernel_start]`: starts of kernels whose bytes cross links.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelStarts {
    /// Time of a kernel that moves next to nothing to or from another GPU; as `kernel_us` if it is left
    /// out.
    #[serde(default, deserialize_with = "maybe_time")]
    pub peer_us: Option<f64>,
    /// On top for each link of the route, where the timer waits for the fence.
    #[serde(default, deserialize_with = "time")]
    pub link_us: f64,
    /// As `peer_us`, with the host.
    #[serde(default, deserialize_with = "maybe_time")]
    pub host_us: Option<f64>,
    /// Part of the start that runs while loads from another GPU, or from the host, move already.
    #[serde(default, deserialize_with = "time")]
    pub peer_hidden_us: f64,
    #[serde(default, deserialize_with = "time")]
    pub host_hidden_us: f64,
    /// Stores over links that are on their route when the kernel ends: their time hides in the start.
    #[serde(default, deserialize_with = "maybe_bytes")]
    pub posted_bytes: Option<u64>,
}

impl NodeModel {
    /// Links and memories that lose nothing, engines without limits, no latencies: what theory
    /// allows.
    pub(crate) fn ideal() -> Self {
        let verb = LinkOverhead { header_bytes: 0.0, reverse_bytes: 0.0 };
        const FREE: f64 = f64::INFINITY;
        Self {
            gpu_memory: GpuMemory {
                kernel_efficiency: 1.0,
                store_efficiency: None,
                turnaround: 0.0,
                local_copy_gbs: FREE,
                local_copy_by_kernel: false,
                unified: false,
            },
            fabric: FabricModel {
                payload_bytes: 64.0,
                forwarded_bytes: 0.0,
                apart_bytes: 0.0,
                write_back_header_bytes: None,
                engine: verb.clone(),
                read: verb.clone(),
                write: verb,
            },
            copy_engine: CopyEngineModel {
                gbs: FREE,
                per_hop: 1.0,
                gang: 1,
                peer_engines: 1,
                host_engines: 1,
                serial: false,
            },
            kernel: KernelModel {
                threads_per_unit: 1 << 16,
                local_load_ns: 0.0,
                peer_load_ns: 0.0,
                hop_load_ns: 0.0,
                host_load_ns: 0.0,
                local_store_gbs: None,
                peer_store_gbs: None,
                host_store_gbs: None,
                arithmetic_efficiency: 1.0,
                single_issue: false,
                in_order: false,
                cache: Vec::new(),
            },
            host_link: HostLink {
                payload_bytes: 64.0,
                reverse_bytes: 0.0,
                engine_in_header_bytes: 0.0,
                engine_out_header_bytes: 0.0,
                kernel_read_header_bytes: 0.0,
                kernel_write_header_bytes: 0.0,
                cached_up_to_bytes: 1,
                memory_efficiency: 1.0,
            },
            pageable: Vec::new(),
            migration: MigrationModel {
                fault_bytes: 4096,
                fault_us: 0.0,
                start_us: 0.0,
                peer_start_us: 0.0,
                prefetch_bytes: 4096,
                round_us: None,
                round_bytes: None,
                peers_in_place: false,
                prefetch_start_us: 0.0,
                prefetch_out_start_us: None,
                prefetch_peer_start_us: None,
                prefetch_us: 0.0,
                prefetch_out_us: None,
                prefetch_peer_us: None,
            },
            cpu: CpuModel {
                memory_efficiency: 1.0,
                core_gbs: FREE,
                memory_ns: 0.0,
                page_fault_us: 0.0,
                huge_fault_us: 0.0,
                memcpy_streams_from_bytes: 1,
                start_us: 0.0,
                gpu_memory: Some(GpuMapping::ideal()),
                cache: Vec::new(),
            },
            time: TimeModel {
                copy_call_us: 0.0,
                launch_call_us: 0.0,
                batch_call_us: Some(0.0),
                local_copy_us: 0.0,
                peer_copy_us: 0.0,
                hop_copy_us: 0.0,
                host_copy_us: 0.0,
                event_gap_us: 0.0,
                local_ramp: StartRamp::default(),
                kernel_us: 0.0,
                kernel_start: KernelStarts::default(),
                blit_us: None,
                local_blit_us: None,
                copy_us_matrix: Vec::new(),
            },
            calls: Vec::new(),
        }
    }
}
