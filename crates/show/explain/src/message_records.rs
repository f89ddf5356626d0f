//! Records of messages and collectives: participants, library, times of single ranks.

use pathline_schema::{Flow, FlowSeries, Journal, Rank, Transport};

use crate::figure::extremes;

/// Number of members in a collective: ranks from first to last, or GPUs of the only process.
pub fn participants(flow: &Flow) -> usize {
    let between = |a: u32, b: u32| b.saturating_sub(a) as usize + 1;
    match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
        (Some(a), Some(b)) if flow.src.rank == flow.dst.rank => between(a, b),
        _ => between(flow.src.rank.0, flow.dst.rank.0),
    }
}

/// Whether threads of one process carry a collective in a run of several processes, as in a model. Its
/// figures are of processes, so threads are compared apart from them.
pub fn is_by_threads(journal: &Journal, flow: &Flow) -> bool {
    journal.begin.ranks.len() > 1 && flow.src.rank == flow.dst.rank
}

/// Name and version of the library behind a transport, from the first rank that records it.
pub fn library_name(journal: &Journal, via: Transport) -> String {
    let members = &journal.begin.ranks;
    let recorded = members.iter().find_map(|m| m.ways.get(&via.carrier()));
    // Versions and files follow the name.
    let name = recorded.and_then(|text| text.split([',', '(']).next()).map(str::trim);
    match (name.filter(|n| !n.is_empty()), via) {
        (Some(name), _) => name.to_owned(),
        (None, Transport::Mpi | Transport::MpiStaged) => "MPI".into(),
        (None, Transport::Ccl) => "NCCL or RCCL".into(),
        (None, Transport::Ucx) => "UCX".into(),
        (None, Transport::Shm) => "shared memory".into(),
        (None, Transport::Cma) => "process_vm_readv and writev".into(),
        (None, Transport::Xpmem) => "xpmem".into(),
    }
}

/// Times in us of one operation as in OSU and nccl-tests, from each rank's own time. A window is
/// one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedTimes {
    /// Of rank 0, or of the first participating rank: the result of OSU's two-rank programs.
    pub first: f64,
    /// Mean over ranks of each rank's mean.
    pub mean: f64,
    /// Minimum over ranks.
    pub min: f64,
    /// Maximum over ranks.
    pub max: f64,
    /// Total number of operations.
    pub operations: u64,
}

impl CountedTimes {
    /// If times of single ranks are missing, the sample, the time of the slowest, counts for all.
    pub fn from_series(series: &FlowSeries) -> Option<Self> {
        let reps = series.reps.max(1) as f64;
        let mean = |samples: &[f64]| {
            let n = samples.len();
            (n > 0).then(|| samples.iter().sum::<f64>() / n as f64 / reps / 1e3)
        };
        let ranks: Vec<(Rank, f64)> = series
            .by_rank
            .iter()
            .filter_map(|(&rank, samples)| Some((rank, mean(samples)?)))
            .collect();
        let whole = mean(&series.samples_ns)?;
        let first = ranks.iter().find(|(rank, _)| *rank == series.flow.src.rank).map(|r| r.1);
        let times: Vec<f64> =
            if ranks.is_empty() { vec![whole] } else { ranks.iter().map(|r| r.1).collect() };
        let (min, max) = extremes(&times);
        Some(Self {
            first: first.unwrap_or(whole),
            mean: times.iter().sum::<f64>() / times.len() as f64,
            min,
            max,
            operations: series.reps * series.samples_ns.len() as u64,
        })
    }
}
