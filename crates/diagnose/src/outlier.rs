//! Paths of a finished run that are slower than the paths that should equal them.

use std::collections::BTreeMap;

use pathline_schema::{Case, CaseOutcome, CaseTimes, Journal, MeasuredCase, Mover, Topology, Unit};
use pathline_stats::{MedianInterval, ascending, interpolated, median_interval};
use serde::Serialize;

use crate::health::report::as_text;
use crate::labels::{TailKind, case_label, ends_label, mover_label, tail_kind};
use crate::peers::equal_groups;

/// Fewest cases of a class: of two, it is open which one is slow.
const MIN_CLASS: usize = 3;
/// A slow case is farther from the median of its equals than this many times the distance that holds
/// three quarters of the faster half of them.
const TIMES_SPREAD: f64 = 4.0;

/// A path that is slower than the other paths of its class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnlikePath {
    /// The case that shows it best.
    #[serde(serialize_with = "as_text")]
    pub case: Case,
    /// What the path is, for a reader: `gpu2→gpu3, SDMA copy`.
    pub path: String,
    /// Its speed divided by the median speed of the others, 0 to 1.
    pub ratio: f64,
    /// The least and the greatest that its interval and those of the others allow for it.
    pub ratio_range: (f64, f64),
    /// Number of the other paths in the class.
    pub peers: usize,
    /// Movers that show it on this path: `SDMA copy`, `kernel read`.
    pub movers: Vec<String>,
    /// Movers that were compared on this path and do not show it.
    pub movers_fine: Vec<String>,
    /// Whether the opposite direction was compared and is as fast as its equals; none if it was not
    /// compared or has no opposite.
    pub reverse_fine: Option<bool>,
    /// Number of cases that show it.
    pub cases: usize,
}

/// Time of a case with its interval, in ns an operation.
struct TimedCase<'j> {
    case: &'j Case,
    time: MedianInterval,
}

/// A case of a class of at least [`MIN_CLASS`], and whether it is slow.
struct ComparedCase<'j> {
    case: &'j Case,
    ratio: f64,
    range: (f64, f64),
    peers: usize,
    slow: bool,
}

/// Paths of a run that are slower than their equals, the slowest first, one entry for each pair of ends.
///
/// Cases are equal if they differ only in the units that they name and a symmetry of the node's
/// topology exchanges those. A case is slow if it takes longer than the median of the others of its
/// class by more than what is normal for its kind of path (1 % between GPUs, 5 % within one, 10 % with
/// the host, 25 % for latencies and for memory that migrates), by more than four times the distance
/// that holds three quarters of the faster half of the others, and with an interval that does not meet theirs. If a third
/// of a class is slow and no single unit explains it, then the class is wrong, and nobody in it is slow.
///
/// One run cannot tell a slow path from a state of the process that measured it: a path in this list
/// is a suspect.
pub fn unlike_paths(journal: &Journal) -> Vec<UnlikePath> {
    let mut paths: BTreeMap<String, Vec<ComparedCase<'_>>> = BTreeMap::new();
    for compared in compare_equals(journal) {
        let ends: Vec<String> = compared.case.timed.iter().map(ends_label).collect();
        paths.entry(ends.join(" + ")).or_default().push(compared);
    }
    let fine = |ends: &str| paths.get(ends).map(|cases| cases.iter().all(|case| !case.slow));
    let topology = &journal.topology;
    let mut unlike: Vec<UnlikePath> = paths
        .values()
        .filter_map(|cases| {
            let slow = cases.iter().filter(|case| case.slow);
            let worst = slow.clone().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
            let movers = movers_of(topology, cases.iter().filter(|case| case.slow));
            let movers_fine = movers_of(topology, cases.iter().filter(|case| !case.slow))
                .into_iter()
                .filter(|mover| !movers.contains(mover))
                .collect();
            Some(UnlikePath {
                case: worst.case.clone(),
                path: case_label(topology, worst.case),
                ratio: worst.ratio,
                ratio_range: worst.range,
                peers: worst.peers,
                movers,
                movers_fine,
                reverse_fine: opposite(worst.case).and_then(|ends| fine(&ends)),
                cases: slow.count(),
            })
        })
        .collect();
    unlike.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    unlike
}

/// Number of cases of a run that were compared with equals; of 0, no path can be seen to be slow.
pub fn compared_cases(journal: &Journal) -> usize {
    compare_equals(journal).len()
}

fn movers_of<'c, 'j: 'c>(
    topology: &Topology,
    cases: impl Iterator<Item = &'c ComparedCase<'j>>,
) -> Vec<String> {
    let flows = cases.filter_map(|case| case.case.timed.first());
    let mut movers: Vec<String> = flows.map(|flow| mover_label(topology, flow)).collect();
    movers.sort_unstable();
    movers.dedup();
    movers
}

/// Ends of the opposite direction of a case of one flow between two units.
fn opposite(case: &Case) -> Option<String> {
    let [flow] = case.timed.as_slice() else { return None };
    let (src, dst) = (flow.src.unit, flow.dst.unit);
    (src != dst).then(|| format!("{dst}→{src}"))
}

/// Every case that has equals, compared with them.
fn compare_equals(journal: &Journal) -> Vec<ComparedCase<'_>> {
    let measured = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) if is_comparable(&measured.case) => timed_case(measured),
        _ => None,
    });
    let timed: Vec<TimedCase<'_>> = measured.collect();
    let cases: Vec<&Case> = timed.iter().map(|timed| timed.case).collect();
    let mut classes: BTreeMap<usize, Vec<&TimedCase<'_>>> = BTreeMap::new();
    for (timed, class) in timed.iter().zip(equal_groups(&journal.topology, &cases)) {
        classes.entry(class).or_default().push(timed);
    }
    classes.values().filter(|class| class.len() >= MIN_CLASS).flat_map(|c| compare(c)).collect()
}

/// Cases of one or two flows over the node's own parts. What messages, files and CPU threads take
/// depends on cores and servers that a topology does not show, and in larger sets on the order in which
/// flows start.
fn is_comparable(case: &Case) -> bool {
    let facts = |flow: &pathline_schema::Flow| {
        !flow.by.facts().uses_files
            && flow.by.threads() == 0
            && !matches!(flow.by, Mover::Wire { .. })
    };
    case.timed.len() <= 2 && case.background.is_empty() && case.flows().all(facts)
}

fn timed_case(measured: &MeasuredCase) -> Option<TimedCase<'_>> {
    let times = CaseTimes::slowest_flow(&measured.series);
    let reps = measured.series.iter().map(|series| series.reps).max()?.max(1) as f64;
    let time = median_interval(&times.ns, &times.visits)?.scaled(1.0 / reps);
    (time.low > 0.0).then_some(TimedCase { case: &measured.case, time })
}

/// The share by which healthy paths of a kind may differ within one run.
const fn normal_spread(tail: TailKind) -> f64 {
    match tail {
        TailKind::GpuLink => 0.01,
        TailKind::Local => 0.05,
        TailKind::HostLink => 0.10,
        TailKind::Latency => 0.25,
    }
}

fn compare<'j>(class: &[&TimedCase<'j>]) -> Vec<ComparedCase<'j>> {
    let one = |nth: usize, timed: &TimedCase<'j>| -> Option<ComparedCase<'j>> {
        let others = class.iter().enumerate().filter(|(n, _)| *n != nth).map(|(_, t)| &t.time);
        let median = |value: &dyn Fn(&MedianInterval) -> f64| {
            interpolated(&ascending(others.clone().map(value)), 0.5)
        };
        let reference = median(&|time| time.median)?;
        let (low, high) = (median(&|time| time.low)?, median(&|time| time.high)?);
        // Nothing is too fast, so the fast side shows what is normal, however many are slow.
        let fast = interpolated(&ascending(others.clone().map(|time| time.median)), 0.125)?;
        let spread = (1.0 - fast / reference).max(0.0);
        let time = &timed.time;
        let longer = time.median / reference - 1.0;
        let slow = longer > normal_spread(tail_kind(timed.case)).max(TIMES_SPREAD * spread)
            && time.low > high;
        Some(ComparedCase {
            case: timed.case,
            ratio: reference / time.median,
            range: (low / time.high, high / time.low),
            peers: class.len() - 1,
            slow,
        })
    };
    let mut compared: Vec<ComparedCase<'j>> =
        class.iter().enumerate().filter_map(|(nth, timed)| one(nth, timed)).collect();
    let slow: Vec<&Case> = compared.iter().filter(|case| case.slow).map(|case| case.case).collect();
    if slow.len() * 3 >= class.len() && slow.len() > 1 && !have_common_unit(&slow) {
        compared.iter_mut().for_each(|case| case.slow = false);
    }
    compared
}

/// Whether all cases have a unit in common, which may be what is slow.
fn have_common_unit(cases: &[&Case]) -> bool {
    let units = |case: &Case| -> Vec<Unit> {
        case.flows().flat_map(|flow| [flow.src.unit, flow.dst.unit]).collect()
    };
    let Some((first, rest)) = cases.split_first() else { return false };
    units(first).iter().any(|unit| rest.iter().all(|case| units(case).contains(unit)))
}
