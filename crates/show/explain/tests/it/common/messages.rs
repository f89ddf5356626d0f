//! Journals of messages and collectives.

use pathline_flow::MachineDesc;
use pathline_schema::{CaseOutcome, Journal, MeasuredCase, Rank, WorldKind};

use super::{at_latency, journal, member};

pub(crate) fn run(ranks: u32, outcomes: Vec<CaseOutcome>) -> Journal {
    let topology = MachineDesc::preset("mi250x").expect("the preset").topology();
    let mut journal = journal(WorldKind::Real, topology, outcomes);
    journal.begin.ranks = (0..ranks).map(member).collect();
    journal
}

/// One operation of `us` by the latest rank, and of these times in us by each rank.
pub(crate) fn timed(suite: &str, case: &str, us: f64, by_rank: &[f64]) -> CaseOutcome {
    let CaseOutcome::Measured(measured) = at_latency(suite, case, us * 1e3) else {
        panic!("{case} is measured")
    };
    let mut measured: MeasuredCase = *measured;
    for series in &mut measured.series {
        let messages = u64::from(series.flow.by.wire().map_or(1, |w| w.op.window()));
        // A sample is 100 operations.
        series.reps = 100;
        series.steps = 100 * messages;
        series.moved_bytes.0 = series.flow.bytes.0 * 100 * messages;
        let samples = series.samples_ns.len();
        series.by_rank = by_rank
            .iter()
            .enumerate()
            .map(|(rank, us)| (Rank(rank as u32), vec![us * 1e3 * 100.0; samples]))
            .collect();
    }
    CaseOutcome::Measured(Box::new(measured))
}

/// 2 ranks: a ping of 2 us, windows of 64 x 1 MiB in 8 ms by rank 0 and 9 ms by rank 1; 4 ranks:
/// an all_reduce of 10, 11, 12 and 15 us.
pub(crate) fn messages() -> Journal {
    let host = |op: &str, size: &str| {
        format!("r0.numa0.paged > r1.numa0.paged by mpi@numa0[{op}] x {size}")
    };
    let group =
        |op: &str, size: &str| format!("r0.gpu0.vram > r3.gpu3.vram by mpi@gpu0[{op}] x {size}");
    let ccl =
        |op: &str, size: &str| format!("r0.gpu0.vram > r3.gpu3.vram by ccl@gpu0[{op}] x {size}");
    let each = [10.0, 11.0, 12.0, 15.0];
    run(
        4,
        vec![
            timed("mpi-latency", &host("ping", "8B"), 2.1, &[2.0, 2.1]),
            timed("mpi-bandwidth", &host("send-w64", "1MiB"), 9000.0, &[8000.0, 9000.0]),
            timed("mpi-bandwidth", &host("send-w64", "64KiB"), 900.0, &[800.0, 900.0]),
            timed("mpi-collectives", &group("all_reduce", "8B"), 15.0, &each),
            timed("mpi-collectives", &group("all_gather", "1MiB"), 15.0, &each),
            timed("ccl-collectives", &ccl("all_reduce", "1MiB"), 16.0, &[16.0; 4]),
            timed("ccl-collectives", &ccl("all_reduce-inplace", "1MiB"), 8.0, &[8.0; 4]),
            timed("ccl-collectives", &ccl("broadcast", "1MiB"), 32.0, &[32.0; 4]),
        ],
    )
}

/// All-reduce over 8 ranks of registered and of other buffers: 256 MiB in 4 and in 5 ms.
pub(crate) fn registered_and_not() -> Journal {
    let case =
        |op: &str, size: &str| format!("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[{op}] x {size}");
    let outcomes = vec![
        timed("ccl-collectives", &case("all_reduce", "256MiB"), 4000.0, &[]),
        timed("ccl-collectives", &case("all_reduce-unregistered", "256MiB"), 5000.0, &[]),
        timed("ccl-collectives", &case("all_reduce", "1GiB"), 10_000.0, &[]),
    ];
    run(8, outcomes)
}
