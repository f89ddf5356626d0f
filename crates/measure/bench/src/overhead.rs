//! The cost of the harness itself.

use std::collections::BTreeMap;

use pathline_hal::{Machine, TeamWork, ThreadTeam};
use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, MemKind, Ns, Place, TimerKind, Unit};
use serde::{Deserialize, Serialize};

use crate::lane::SOURCE_SEED;

/// The timers to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerScope {
    /// All timers of the machine.
    All,
    /// Host timers only: for a machine whose GPUs must stay untouched until a case needs them.
    Host,
    /// None: the costs are known.
    Known,
}

const TRIES: usize = 15;

/// Cost of a repetition of a pass of CPU threads, without the pass.
pub(crate) const REPETITION: &str = "threads-repetition";
/// Cost of a barrier of two threads between two isolated repetitions.
pub(crate) const BARRIER: &str = "threads-barrier";
/// Repetitions for such a cost: some 100 us in total.
const REPETITIONS: u64 = 50_000;
/// Bytes of the smallest block of the plain loop.
const BLOCK: Bytes = Bytes(64);

/// Time of an empty operation by each timer, in ns: the minimum of several, so that it contains
/// only the harness. Timers that cannot be measured are omitted.
pub(crate) fn overhead(machine: &Machine, how: TimerScope) -> BTreeMap<String, f64> {
    let (host, gpus) = (how != TimerScope::Known, how == TimerScope::All);
    let threads = host.then(|| of_threads(machine)).flatten().unwrap_or_default();
    [
        (TimerKind::Host.word(), host.then(|| clock(machine)).flatten()),
        (TimerKind::Threads.word(), threads.empty),
        (REPETITION, threads.repetition),
        (BARRIER, threads.barrier),
        (TimerKind::DeviceEvents.word(), gpus.then(|| events(machine)).flatten()),
    ]
    .into_iter()
    .filter_map(|(name, ns)| Some((name.to_owned(), ns?)))
    .collect()
}

fn least(once: impl FnMut() -> Option<Ns>) -> Option<f64> {
    std::iter::repeat_with(once).take(TRIES).flatten().map(|ns| ns.0).reduce(f64::min)
}

fn clock(machine: &Machine) -> Option<f64> {
    least(|| {
        let start = machine.clock.now();
        Some(machine.clock.now() - start)
    })
}

/// Costs of threads of the first domain, in ns.
#[derive(Default)]
struct ThreadOverhead {
    empty: Option<f64>,
    repetition: Option<f64>,
    barrier: Option<f64>,
}

fn of_threads(machine: &Machine) -> Option<ThreadOverhead> {
    let domain = machine.host.domains().first()?.clone();
    let team = machine.team(domain.id, 1).ok()?;
    let empty = least_of_work(machine, &team, &EMPTY);
    if team.cpus().is_empty() {
        // Threads of a model repeat at no cost.
        return Some(ThreadOverhead { empty, ..ThreadOverhead::default() });
    }
    let repetition = repetition(machine, domain.id, &team);
    let barrier = (domain.threads > 1).then(|| barrier(machine, domain.id)).flatten();
    Some(ThreadOverhead { empty, repetition, barrier })
}

const EMPTY: TeamWork = TeamWork {
    work: CpuWork { op: CpuOp::Read, how: CpuHow::Plain },
    src: 0,
    dst: 0,
    bytes: Bytes(0),
    reps: 1,
    isolated: false,
    chase_steps: None,
};

fn least_of_work(machine: &Machine, team: &ThreadTeam<'_>, work: &TeamWork) -> Option<f64> {
    least(|| {
        let gate = machine.gate().ok()?;
        team.submit(&gate, work).ok()?;
        gate.release().ok()?;
        Some(team.reap().ok()?.elapsed)
    })
}

/// Extrapolates the times of passes over one and two blocks to zero blocks.
fn repetition(machine: &Machine, numa: u32, team: &ThreadTeam<'_>) -> Option<f64> {
    let place = Place::new(Unit::Numa(numa), MemKind::Paged);
    let buffer = machine.buffer(place, Bytes(2 * BLOCK.0)).ok()?;
    buffer.fill(SOURCE_SEED, false).ok()?;
    let time = |blocks: u64| {
        let bytes = Bytes(blocks * BLOCK.0);
        let work = TeamWork { src: buffer.address(), bytes, reps: REPETITIONS, ..EMPTY };
        least_of_work(machine, team, &work)
    };
    let (one, two) = (time(1)?, time(2)?);
    Some(((2.0 * one - two) / REPETITIONS as f64).max(0.0))
}

fn barrier(machine: &Machine, numa: u32) -> Option<f64> {
    let team = machine.team(numa, 2).ok()?;
    // Few, since each can take a time slice on a machine with more threads than CPUs.
    let reps = 16;
    let work = TeamWork { reps, isolated: true, ..EMPTY };
    Some(least_of_work(machine, &team, &work)? / reps as f64)
}

/// On the first GPU that works: a GPU that another process holds is passed over.
fn events(machine: &Machine) -> Option<f64> {
    machine.topology.gpus.iter().find_map(|gpu| {
        let gpu = machine.gpu(gpu.index).ok()?;
        let (stream, start, end) = (gpu.stream().ok()?, gpu.event().ok()?, gpu.event().ok()?);
        least(|| {
            stream.record(&start).ok()?;
            stream.record(&end).ok()?;
            stream.wait().ok()?;
            end.since(&start).ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};

    use super::*;

    /// A model's threads start and repeat at no cost, and have no CPUs to repeat on.
    #[test]
    fn what_repeating_costs_is_extrapolated_from_two_blocks() {
        let desc = MachineDesc::preset("mi250x").expect("a preset");
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("a machine");
        let all = overhead(&machine, TimerScope::All);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["device-events", "host", "threads"]);
        let host = overhead(&machine, TimerScope::Host);
        assert_eq!(host.keys().collect::<Vec<_>>(), ["host", "threads"]);
        assert_eq!(overhead(&machine, TimerScope::Known), BTreeMap::new());
        assert!(all["device-events"] > 100.0 && all["host"] == 1.0 && all["threads"] == 0.0);
        // 50000 passes over a block and over two: what is left is the start of the first, 1.1 us.
        let team = machine.team(0, 1).expect("a team");
        let start = repetition(&machine, 0, &team).expect("a cost") * REPETITIONS as f64;
        assert!((1000.0..1300.0).contains(&start), "{start}");
        assert_eq!(barrier(&machine, 0), Some(0.0));
        assert_eq!(barrier(&machine, 99), None);
    }
}
