//! What the probes of a health check lose against their peers, as far as it may be a part that is damaged.

use pathline_stats::{ascending, hodges_lehmann, interpolated};

use crate::culprit::{PathLoss, PathLosses};
use crate::health::monitor::{HealthMonitor, ProbeSeries};
use crate::health::steady::LATE_SHARE;

/// The losses of all probes. A path that is slow in a few processes or rounds says nothing about parts, unless
/// no other is slow.
pub(crate) fn probe_losses<'p>(monitor: &HealthMonitor<'p>) -> PathLosses<'p> {
    let plan = monitor.plan;
    // Most nodes have nothing to explain.
    let off = |probe| {
        monitor.series(probe).any(|s| s.is_slow() || s.is_fast()) || monitor.is_unstable(probe)
    };
    if !(0..plan.probes.len()).any(off) {
        return PathLosses::new(&plan.edits, Vec::new(), Vec::new());
    }
    let (states_of_few, slow): (Vec<usize>, Vec<usize>) =
        monitor.suspects().into_iter().partition(|&probe| monitor.is_process_state(probe));
    let steady: Vec<usize> =
        slow.into_iter().filter(|&probe| !monitor.is_unstable(probe)).collect();
    let probes = 0..plan.probes.len();
    let unstable: Vec<usize> = probes.filter(|&probe| monitor.is_unstable(probe)).collect();
    let (confirmed, steady): (Vec<usize>, Vec<usize>) =
        steady.into_iter().partition(|&probe| monitor.is_confirmed(probe));
    let states = [unstable.as_slice(), &states_of_few].concat();
    let by_certainty = [&confirmed, &steady, &unstable];
    let suspects =
        by_certainty.into_iter().find(|list| !list.is_empty()).cloned().unwrap_or_default();
    // Of what comes and goes the rounds in which it is slow say how much the part loses.
    let comes_and_goes = suspects == unstable;
    let scales: Vec<f64> = (0..plan.classes.len()).map(|class| scale(monitor, class)).collect();
    let path = |(nth, probe): (usize, &'p crate::HealthProbe)| {
        let medians = monitor.series(nth).filter_map(|s| hodges_lehmann(&s.relative));
        let relative = interpolated(&ascending(medians), 0.5);
        let (slow_rounds, rounds) = monitor.steadiness(nth).rounds;
        let relative = match comes_and_goes && slow_rounds as f64 > LATE_SHARE * rounds as f64 {
            true => monitor.slow_speed(nth).filter(|_| suspects.contains(&nth)),
            false => relative,
        };
        PathLoss {
            label: &probe.label,
            case: &probe.case,
            class: probe.class,
            ln: relative.filter(|_| suspects.contains(&nth) || !states.contains(&nth)).map(|r| -r),
            scale: scales.get(probe.class).copied().unwrap_or(0.0),
            margin: monitor.settings.margin_of(monitor.tail(nth)),
        }
    };
    let paths = plan.probes.iter().enumerate().map(path).collect();
    PathLosses::new(&plan.edits, paths, suspects)
}

/// Scale of the errors of a class: noise of rounds, and not what paths differ by, since half of a small class may
/// be damaged.
fn scale(monitor: &HealthMonitor<'_>, class: usize) -> f64 {
    let rounds = monitor.members(class).iter().flat_map(|&probe| monitor.series(probe));
    let distances = ascending(rounds.flat_map(ProbeSeries::deviations));
    let spread = interpolated(&distances, 0.5).unwrap_or(0.0);
    let tail = monitor.plan.classes.get(class).map_or(crate::TailKind::Latency, |class| class.tail);
    let floor = monitor.settings.margin_of(tail) / 5.0;
    floor.max(1.5 * spread.min(5.0 * floor)).max(1e-6)
}
