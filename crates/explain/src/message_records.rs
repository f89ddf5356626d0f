//! What records of messages and collectives say: participants, library, times of single ranks.

use pathline_schema::{Flow, FlowSeries, Journal, Rank, Transport};

use crate::figure::extremes;

/// How many take part in a collective: ranks from first to last, or GPUs of the one process.
pub fn participants(flow: &Flow) -> usize {
    let between = |a: u32, b: u32| b.saturating_sub(a) as usize + 1;
    match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
        (Some(a), Some(b)) if flow.src.rank == flow.dst.rank => between(a, b),
        _ => between(flow.src.rank.0, flow.dst.rank.0),
    }
}

/// Name and version of the library behind a transport, as the first rank that has it records them.
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

/// Times of one operation as OSU and nccl-tests count them, from each rank's own time; us. A window
/// is one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedTimes {
    /// Of rank 0, or the first that took part: what OSU's programs of two ranks print.
    pub first: f64,
    /// Over ranks, of each rank's mean.
    pub mean: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
    /// Operations in all.
    pub operations: u64,
}

impl CountedTimes {
    /// Without times of single ranks, the sample, which is the time of the slowest, stands for all.
    pub fn of(series: &FlowSeries) -> Option<Self> {
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
