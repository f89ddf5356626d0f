//! What the harness itself costs.

use std::collections::BTreeMap;

use pathline_hal::{Machine, TeamWork};
use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, Ns, TimerKind};
use serde::{Deserialize, Serialize};

/// Which timers are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerScope {
    /// All that the machine has.
    All,
    /// Those of the host: for a machine whose GPUs are not to be touched before a case needs them.
    Host,
    /// None: it is known.
    Known,
}

const TRIES: usize = 15;

/// What an empty operation costs by each timer, in ns: the least of several, so that only the
/// harness itself is in it. Timers that cannot be measured are left out.
pub(crate) fn overhead(machine: &Machine, how: TimerScope) -> BTreeMap<String, f64> {
    let (host, gpus) = (how != TimerScope::Known, how == TimerScope::All);
    [
        (TimerKind::Host, host.then(|| clock(machine)).flatten()),
        (TimerKind::Threads, host.then(|| threads(machine)).flatten()),
        (TimerKind::DeviceEvents, gpus.then(|| events(machine)).flatten()),
    ]
    .into_iter()
    .filter_map(|(timer, ns)| Some((timer.word().to_owned(), ns?)))
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

fn threads(machine: &Machine) -> Option<f64> {
    let domains = machine.host.domains();
    let team = machine.team(domains.first()?.id, 1).ok()?;
    let empty = TeamWork {
        work: CpuWork { op: CpuOp::Read, how: CpuHow::Plain },
        src: 0,
        dst: 0,
        bytes: Bytes(0),
        reps: 1,
        isolated: false,
    };
    least(|| {
        let gate = machine.gate().ok()?;
        team.submit(&gate, &empty).ok()?;
        gate.release().ok()?;
        Some(team.reap().ok()?.elapsed)
    })
}

/// On the first GPU that answers: one that another process holds has no say.
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
