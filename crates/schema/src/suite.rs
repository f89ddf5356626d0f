//! Names of suites: the planner lists their cases and the report draws their figures.

use crate::words;

/// A suite, by its name on the command line and in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the planner's table documents what each answers")]
pub enum SuiteId {
    Host,
    Local,
    HostLink,
    Pairs,
    Latency,
    Sweep,
    Fan,
    Patterns,
    Managed,
    Overhead,
    Overlap,
    NumaGpu,
    Routes,
    Contention,
    Concurrent,
    MpiLatency,
    MpiBandwidth,
    MpiBothWays,
    MpiMixed,
    MpiOneSided,
    MpiPairs,
    MpiPeers,
    MpiConcurrent,
    MpiCollectives,
    CclCollectives,
    CollectiveTypes,
    CclPairs,
    Ucx,
    UcxMixed,
    UcxSwitches,
    Registration,
    Shm,
    Storage,
    StorageGrid,
    Metadata,
}
words!(SuiteId, "suite", {
    Host => "host",
    Local => "local",
    HostLink => "host-link",
    Pairs => "pairs",
    Latency => "latency",
    Sweep => "sweep",
    Fan => "fan",
    Patterns => "patterns",
    Managed => "managed",
    Overhead => "overhead",
    Overlap => "overlap",
    NumaGpu => "numa-gpu",
    Routes => "routes",
    Contention => "contention",
    Concurrent => "concurrent",
    MpiLatency => "mpi-latency",
    MpiBandwidth => "mpi-bandwidth",
    MpiBothWays => "mpi-both-ways",
    MpiMixed => "mpi-mixed",
    MpiOneSided => "mpi-one-sided",
    MpiPairs => "mpi-pairs",
    MpiPeers => "mpi-peers",
    MpiConcurrent => "mpi-concurrent",
    MpiCollectives => "mpi-collectives",
    CclCollectives => "ccl-collectives",
    CollectiveTypes => "collective-types",
    CclPairs => "ccl-pairs",
    Ucx => "ucx",
    UcxMixed => "ucx-mixed",
    UcxSwitches => "ucx-switches",
    Registration => "registration",
    Shm => "shm",
    Storage => "storage",
    StorageGrid => "storage-grid",
    Metadata => "metadata",
});

impl From<SuiteId> for String {
    fn from(suite: SuiteId) -> Self {
        suite.word().to_owned()
    }
}
