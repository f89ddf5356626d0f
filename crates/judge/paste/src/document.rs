//! What was found in a paste: one document for each output of a tool.

use std::collections::BTreeMap;

use pathline_schema::{Collective, Topology};
use pathline_topo::LinkMatrix;

pub use crate::paste_context::PasteContext;
use crate::paste_context::RunTitle;
use crate::plain_rows::PlainTable;
pub use crate::profile_table::{ProfileRow, ProfileTable};

/// First and last line of something, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSpan {
    /// First line.
    pub first: u32,
    /// Last line.
    pub last: u32,
}

/// A paste, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PasteReading {
    /// The outputs of tools in it, in order.
    pub documents: Vec<PasteDocument>,
    /// What the text between them says.
    pub context: PasteContext,
    /// Lines that belong to no document, blank ones aside.
    pub unread: Vec<LineSpan>,
    /// Lines in all.
    pub lines: u32,
    /// Whether the paste was longer than what is read of one.
    pub is_cut: bool,
}

/// The output of one run of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct PasteDocument {
    /// Where it stands.
    pub span: LineSpan,
    /// What it is.
    pub content: PasteContent,
}

/// The kinds of outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum PasteContent {
    /// nccl-tests, rccl-tests.
    Collective(CollectiveTable),
    /// OSU's benchmarks.
    Messages(MessageTable),
    /// A matrix of rates or times: nvbandwidth, p2pBandwidthLatencyTest, TransferBench, rocm-bandwidth-test.
    Matrix(RateMatrix),
    /// Single transfers of TransferBench.
    Transfers(Vec<TimedTransfer>),
    /// perftest: ib_write_bw and its like.
    Network(NetworkTable),
    /// elbencho, fio.
    FileIo(FileIoResult),
    /// `nvidia-smi topo -m`, `rocm-smi --showtopo`.
    Links(LinkMatrix),
    /// `NCCL_DEBUG=INFO`.
    NcclLog(Box<NcclLog>),
    /// A topology file of NCCL.
    Topology(Box<Topology>),
    /// A summary of a profiler.
    Profile(ProfileTable),
    /// STREAM, BabelStream.
    Streams(StreamTable),
    /// Rates whose tool no reader knows, iperf3, mdtest.
    Plain(PlainTable),
}

impl PasteContent {
    /// The tool's name, for people.
    pub fn tool(&self) -> &str {
        match self {
            Self::Collective(CollectiveTable { profiler: Some(name), .. }) => name,
            Self::Collective(table) if table.is_rccl => "rccl-tests",
            Self::Collective(_) => "nccl-tests",
            Self::Messages(table) => table.tool,
            Self::Profile(profile) => profile.tool,
            Self::Streams(table) => table.tool,
            Self::Plain(table) => table.tool,
            Self::Matrix(matrix) => matrix.tool.name(),
            Self::Transfers(_) => "TransferBench",
            Self::Network(_) => "perftest",
            Self::FileIo(io) => io.tool,
            Self::Links(links) => links.tool,
            Self::NcclLog(log) if log.is_rccl => "RCCL log",
            Self::NcclLog(_) => "NCCL log",
            Self::Topology(_) => "NCCL topology file",
        }
    }

    /// Rows, cells or parts that were read.
    pub(crate) fn figures(&self) -> usize {
        match self {
            Self::Collective(table) => table.rows.len() + table.devices.len(),
            Self::Messages(table) => table.rows.len(),
            Self::Profile(profile) => profile.rows.len(),
            Self::Streams(table) => table.rows.len(),
            Self::Plain(table) if table.tool == StreamTable::STATED => 0,
            // A known tool says more than rows of none.
            Self::Plain(table) if table.tool != "table" => table.labels.len() * 64,
            Self::Plain(table) => table.labels.len(),
            Self::Matrix(matrix) => matrix.cells.len(),
            Self::Transfers(list) => list.len(),
            Self::Network(table) => table.rows.len(),
            Self::FileIo(_) => 1,
            Self::Links(links) => links.pairs.len() + links.numa.len(),
            Self::NcclLog(log) => log.transports.len() + log.warnings.len(),
            Self::Topology(topology) => topology.gpus.len(),
        }
    }
}

/// A table of nccl-tests or rccl-tests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CollectiveTable {
    /// The operation, where a command or header names it, or the ratio of its two rates decides it.
    pub op: Option<Collective>,
    /// Its title, and the settings before it.
    pub title: RunTitle,
    /// Whether `sendrecv_perf` made it.
    pub is_sendrecv: bool,
    /// Whether devices or header are AMD's.
    pub is_rccl: bool,
    /// Ranks of the communicator: those listed, or what the two rates imply.
    pub ranks: Option<u32>,
    /// Devices that the header lists: host and product name, by rank.
    pub devices: Vec<TestDevice>,
    /// GPUs of each thread (`-g`), threads of each process (`-t`).
    pub gpus_per_thread: Option<u32>,
    /// Rows by size.
    pub rows: Vec<CollectiveRow>,
    /// Processes that ran alone next to each other: headers in a row, or lists that repeat rank 0.
    pub runs: u32,
    /// `Avg bus bandwidth`, GB/s.
    pub average_busbw: Option<f64>,
    /// Wrong elements over all rows.
    pub wrong: f64,
    /// Nodes of the communicator, where the output states them.
    pub nodes: Option<u32>,
    /// Channels that carried it, where the output states them.
    pub channels: Option<u32>,
    /// The plugin that wrote the records, if no benchmark made them.
    pub profiler: Option<&'static str>,
    /// Whether the plugin's file lacks the line that says that nothing was dropped.
    pub is_incomplete: bool,
}

/// A device of nccl-tests' header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestDevice {
    /// Its rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Product name.
    pub name: String,
}

/// A row of nccl-tests: out of place where there is one, else in place.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CollectiveRow {
    /// Size as the tool counts it.
    pub bytes: u64,
    /// Time of an operation, us.
    pub time_us: f64,
    /// Size over time, GB/s.
    pub algbw: f64,
    /// algbw times the factor of the operation, GB/s.
    pub busbw: f64,
    /// busbw in place, GB/s.
    pub in_place_busbw: Option<f64>,
    /// Wrong elements.
    pub wrong: f64,
    /// The size over the bytes of its count: ranks, where each has a part; 0 where it is not printed.
    pub parts: u64,
}

/// What OSU's benchmarks measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MessageTest {
    /// Half a round trip.
    Latency,
    /// A window of messages in one direction.
    #[default]
    OneWay,
    /// Windows in both directions, summed.
    BothWays,
    /// Several pairs, summed.
    MultiPair,
    /// A collective.
    Group(Collective),
}

/// A table of OSU's benchmarks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageTable {
    /// `OSU Micro-Benchmarks`, `Intel MPI Benchmarks`, `ucx_perftest`.
    pub tool: &'static str,
    /// What was measured.
    pub test: MessageTest,
    /// The command above it, where there is one.
    pub command: String,
    /// Its title, and the settings before it.
    pub title: RunTitle,
    /// Whether sender's and receiver's buffers are in GPU memory, where the header says so.
    pub on_gpu: Option<(bool, bool)>,
    /// Bytes with GB/s, or with us where times were measured.
    pub rows: Vec<(u64, f64)>,
    /// Bytes with the longest time of a rank, us, where the tool prints it.
    pub longest: Vec<(u64, f64)>,
    /// Rates of the intervals of one run, GB/s.
    pub intervals: Vec<f64>,
}

/// The tools that print matrices, in the order of their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatrixTool {
    /// NVIDIA's nvbandwidth.
    Nvbandwidth,
    /// CUDA sample p2pBandwidthLatencyTest.
    P2pTest,
    /// CUDA sample bandwidthTest.
    BandwidthSample,
    /// AMD's TransferBench.
    TransferBench,
    /// AMD's rocm-bandwidth-test.
    RocmBandwidth,
    /// Not known: a matrix of GPUs under a title with its unit.
    Unnamed,
    /// AMD's ROCm Validation Suite.
    Rvs,
}

impl MatrixTool {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvbandwidth => "nvbandwidth",
            Self::P2pTest => "p2pBandwidthLatencyTest",
            Self::BandwidthSample => "bandwidthTest",
            Self::TransferBench => "TransferBench",
            Self::RocmBandwidth => "rocm-bandwidth-test",
            Self::Unnamed => "matrix",
            Self::Rvs => "ROCm Validation Suite",
        }
    }

    /// Whether it runs on AMD's GPUs alone.
    pub const fn is_amd(self) -> bool {
        matches!(self, Self::TransferBench | Self::RocmBandwidth | Self::Rvs)
    }
}

/// An end of a transfer in a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatrixEnd {
    /// Memory of a GPU.
    Gpu(u32),
    /// Host memory, of a NUMA domain where the tool says so.
    Host(Option<u32>),
}

/// How a matrix counts a rate that runs both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateCount {
    /// One direction runs.
    OneWay,
    /// Both run, and one of them is reported.
    OneOfBoth,
    /// Both run, and their sum is reported.
    Sum,
}

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMeans {
    /// Copy engine, SDMA.
    Engine,
    /// A kernel.
    Kernel,
    /// Not stated.
    Unstated,
}

/// A matrix of rates or times.
#[derive(Debug, Clone, PartialEq)]
pub struct RateMatrix {
    /// The tool.
    pub tool: MatrixTool,
    /// Its name for this matrix.
    pub test: String,
    /// Whether cells are us rather than GB/s.
    pub is_latency: bool,
    /// Which directions run and count.
    pub count: RateCount,
    /// Whether peer access was on, where the tool varies it.
    pub peer_access: Option<bool>,
    /// What moves the bytes.
    pub means: CopyMeans,
    /// Whether all pairs run at once.
    pub concurrent: bool,
    /// Whether the one cell is the sum over all GPUs or pairs, which were not pasted.
    pub is_sum: bool,
    /// Source, destination, value.
    pub cells: Vec<(MatrixEnd, MatrixEnd, f64)>,
}

/// One transfer of TransferBench.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedTransfer {
    /// Test that it belongs to; transfers of one test run at once.
    pub test: u32,
    /// Source, as the tool writes it: `G0`.
    pub source: String,
    /// Executor: `GPU00:032`, `DMA00:001`, `CPU00:004`.
    pub executor: String,
    /// Destination.
    pub destination: String,
    /// GB/s.
    pub gbs: f64,
    /// Bytes.
    pub bytes: u64,
}

/// A table of perftest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkTable {
    /// `RDMA_Write BW`, `Send`, ...
    pub test: String,
    /// Adapter.
    pub device: String,
    /// Whether it has times rather than rates.
    pub is_latency: bool,
    /// Whether both directions run.
    pub both_ways: bool,
    /// Whether a buffer is in GPU memory.
    pub on_gpu: bool,
    /// Bytes with average GB/s, or with typical us.
    pub rows: Vec<(u64, f64)>,
    /// Bytes with the time that 99 % of the operations stay below, us.
    pub longest: Vec<(u64, f64)>,
    /// Of the first row of times the mean, the time that 99.9 % stay below, and the longest, us.
    pub tail: Option<(f64, f64, f64)>,
    /// Reads in flight at once.
    pub outstanding_reads: Option<u32>,
    /// Greatest rate of the last row, GB/s, where it was measured.
    pub peak: Option<f64>,
    /// Messages of the last row.
    pub iterations: Option<f64>,
    /// Messages a second of the last row.
    pub messages: Option<f64>,
}

/// A result of elbencho, fio or gdsio.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileIoResult {
    /// `elbencho`, `fio` or `gdsio`.
    pub tool: &'static str,
    /// `READ`, `WRITE`, `read`, `randwrite`.
    pub operation: String,
    /// GB/s.
    pub gbs: f64,
    /// I/Os a second.
    pub iops: Option<f64>,
    /// Mean time of an I/O, us.
    pub latency_us: Option<f64>,
    /// Mean time until an I/O is handed over, us.
    pub submission_us: Option<f64>,
    /// Time of a CPU that a job takes, user and system, as a share.
    pub cpu_share: Option<f64>,
    /// Threads or jobs.
    pub workers: Option<u32>,
    /// I/Os in flight of each.
    pub depth: Option<u32>,
    /// Bytes of an I/O.
    pub block: Option<u64>,
    /// Files.
    pub files: Option<u32>,
    /// Whether the page cache is passed by.
    pub direct: Option<bool>,
    /// Whether blocks are in random order.
    pub is_random: Option<bool>,
    /// Whether the devices below saw next to none of the I/Os.
    pub is_cached: bool,
    /// Whether bytes go straight to a GPU (cuFile).
    pub gpu_direct: bool,
    /// Engine of fio, transfer type of gdsio.
    pub engine: String,
    /// Whether bytes reach a GPU through host memory.
    pub staged: bool,
    /// GB/s of all workers when the first of them was done, as elbencho prints.
    pub first_done_gbs: Option<f64>,
    /// GB/s of writes and of reads, of a phase that does both.
    pub mixed: Option<(f64, f64)>,
    /// Time since the start in ms with GB/s, of each interval that was printed.
    pub intervals: Vec<(u64, f64)>,
    /// File, folder or device, where the output names it.
    pub path: String,
    /// Jobs of fio that ran at once and are reported one by one, this one included; 0 where it is alone.
    pub together: u32,
    /// What they reached together, GB/s.
    pub together_gbs: f64,
    /// Times that 50, 99 and 99.9 % of the I/Os stay below, us; none where a list that was cut lacks it.
    pub percentiles: [Option<f64>; 3],
    /// Time of each worker or client, ms, where it is printed.
    pub worker_ms: Vec<f64>,
    /// Devices below the file system, as fio lists them.
    pub devices: Vec<DeviceUse>,
}

impl FileIoResult {
    /// A rate in GB/s of which nothing else is known.
    pub fn new(tool: &'static str, operation: impl Into<String>, gbs: f64) -> Self {
        Self { tool, operation: operation.into(), gbs, ..Self::default() }
    }
}
/// What a block device did during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceUse {
    /// `nvme0n1`.
    pub name: String,
    /// Requests that it finished.
    pub requests: f64,
    /// Mean time of a request, ms.
    pub mean_ms: f64,
    /// Share of the time with a request in it, 0 to 1.
    pub busy: f64,
}

/// A table of STREAM or BabelStream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamTable {
    /// `STREAM`, `BabelStream` or [`Self::STATED`].
    pub tool: &'static str,
    /// Kernels with their rate, GB/s; bytes read and written.
    pub rows: Vec<(String, f64)>,
}

impl StreamTable {
    /// The tool of rates that a sentence states.
    pub const STATED: &str = "a sentence";
}

/// What NCCL or RCCL wrote about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NcclLog {
    /// `2.21.5+cuda12.4`.
    pub version: String,
    /// Whether RCCL wrote it.
    pub is_rccl: bool,
    /// Channels between ranks by transport: `P2P/CUMEM`, `SHM/direct`, `NET/IB/0/GDRDMA`.
    pub transports: BTreeMap<String, u32>,
    /// Channels of collectives of a communicator.
    pub channels: Option<u32>,
    /// Ranks and nodes of the largest communicator.
    pub ranks: Option<u32>,
    /// Nodes.
    pub nodes: Option<u32>,
    /// Whether NVLink SHARP is used.
    pub nvls: Option<bool>,
    /// Ranks of one NVLink domain over several nodes: `cliqueSize` of `MNNVL 1`.
    pub nvlink_domain: Option<u32>,
    /// Adapters that `NET/IB : Using` or the graph lists; of several hosts the most.
    pub adapters: Option<u32>,
    /// Line rate of one, Gbit/s, where the log or its provider states it.
    pub adapter_gbits: Option<f64>,
    /// Network: `IB`, `Socket`, a plugin's name.
    pub network: String,
    /// Ranks by network, where one run takes several: `IB`, `Socket`.
    pub mixed_networks: BTreeMap<String, u32>,
    /// `NCCL_...=...` that the log says were set.
    pub settings: BTreeMap<String, String>,
    /// Warnings, without prefixes, each once.
    pub warnings: Vec<String>,
    /// Lines that say why a transport is off.
    pub reasons: Vec<String>,
    /// Host names that wrote it.
    pub hosts: Vec<String>,
}

impl NcclLog {
    /// Whether a channel has a transport with this in its name.
    pub fn has_transport(&self, part: &str) -> bool {
        self.transports.keys().any(|name| name.contains(part))
    }
}
