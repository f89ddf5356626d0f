//! Cases of a finished run or twin next to their peers, and the parts that explain the slow ones.

use std::collections::BTreeMap;

use pathline_flow::Network;
use pathline_schema::{Case, CaseOutcome, CaseTimes, Journal, MeasuredCase, Mover, Topology};
use pathline_stats::{MIN_VISITS, MedianInterval, ascending, interpolated, median_interval};
use serde::Serialize;

use crate::culprit::{Culprit, PathLoss, PathLosses};
use crate::edits::node_edits;
use crate::expected_links::{expected_classes, expected_topology};
use crate::health::monitor::{HealthSettings, slow_limit};
use crate::health::report::as_text;
use crate::health::steady::{LATE_SHARE, SteadyEvidence};
use crate::labels::{TailKind, case_label, ends_label, is_read_by_engine, mover_label, tail_kind};
use crate::peers::{PeerRatio, compare_with_peers};
use crate::posterior;

/// Spreads of its kind by which a time of few visits may be off.
const FEW_SPREADS: f64 = 3.0;

/// A path that is slower than the other paths of its class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnlikePath {
    /// The case that shows it best.
    #[serde(serialize_with = "as_text")]
    pub case: Case,
    /// What the path is, for a reader: `gpu2→gpu3, SDMA copy`.
    pub path: String,
    /// The part that most probably slows it, if one explains what is slow: `xGMI gpu2>gpu3`.
    #[serde(skip)]
    pub part: Option<String>,
    /// That part with what it has left: `xGMI gpu2>gpu3, at the rate of 1 of 2 links`.
    #[serde(skip)]
    pub part_state: Option<String>,
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
    /// The speed of the opposite direction divided by the median speed of its peers, at most by its interval, and
    /// whether it is slower than normal; none if it was not compared or has no opposite.
    pub reverse: Option<(f64, bool)>,
    /// Number of cases that show it.
    pub cases: usize,
    /// Whether they show it in some of their samples only.
    pub comes_and_goes: bool,
}

/// A case with the time of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedCase {
    /// The case.
    pub case: Case,
    /// ns an operation of its slowest flow.
    pub time: MedianInterval,
    /// Its samples by visit, relative to their median; none where they are not known.
    pub visits: Vec<Vec<f64>>,
}

/// Samples relative to their median, by visit.
fn samples_by_visit(times: &CaseTimes) -> Vec<Vec<f64>> {
    let median = interpolated(&ascending(times.ns.iter().copied()), 0.5).unwrap_or(1.0);
    let mut samples = times.ns.iter().map(|ns| ns / median);
    times.visits.iter().map(|&n| samples.by_ref().take(n as usize).collect()).collect()
}

impl TimedCase {
    /// None with too few samples for an interval.
    pub fn from_measured(measured: &MeasuredCase) -> Option<Self> {
        let times = CaseTimes::slowest_flow(&measured.series);
        let reps = measured.series.iter().map(|series| series.reps).max()?.max(1) as f64;
        let time = median_interval(&times.ns, &times.visits)?.scaled(1.0 / reps);
        let visits = samples_by_visit(&times);
        (time.low > 0.0).then(|| Self { case: measured.case.clone(), time, visits })
    }

    /// The same of a case with fewer visits than an interval takes, which slow cases have where their time is limited:
    /// between the extremes of its samples, which hold the median of five visits with 94 %, and of fewer by the spread
    /// of its kind further.
    fn from_few(measured: &MeasuredCase) -> Option<Self> {
        let all = CaseTimes::slowest_flow(&measured.series);
        let visits = all.visits.len();
        let times = ascending(all.ns.iter().copied());
        let reps = measured.series.iter().map(|series| series.reps).max()?.max(1) as f64;
        let spreads = if visits + 1 < MIN_VISITS { FEW_SPREADS } else { 0.0 };
        let spread = 1.0 + spreads * usual_spread(&measured.case);
        let (low, high) = (times.first()?, times.last()?);
        let median = interpolated(&times, 0.5)?;
        let time = MedianInterval { median, low: low / spread, high: high * spread };
        let (case, visits) = (measured.case.clone(), samples_by_visit(&all));
        Some(Self { case, time: time.scaled(1.0 / reps), visits })
    }
}

/// A case next to the others of its class.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCase {
    /// Its index among the cases that were to be compared.
    pub nth: usize,
    /// The case.
    pub case: Case,
    /// Its speed divided by the median speed of the others.
    pub ratio: f64,
    /// The least and the greatest that its interval and those of the others allow for it.
    pub range: (f64, f64),
    /// Number of the others.
    pub peers: usize,
    /// Whether it is slower than normal. Of two cases that differ it is open which one is right.
    pub slow: bool,
    /// Share of its samples that are slower than normal.
    pub slow_share: f64,
    /// Whether it is slow in these only; `ratio` is theirs then.
    pub comes_and_goes: bool,
    class: usize,
}

/// Cases next to their peers, and what may be wrong with the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaseComparison {
    /// Every case that has a peer.
    pub cases: Vec<ComparedCase>,
    /// Parts that explain the slow cases of three and more, the most probable first; their paths are indices of
    /// cases.
    pub culprits: Vec<Culprit>,
}

impl CaseComparison {
    /// Compares cases of one node by [`compare_with_peers`] and by what is normal for their kind of path. If a
    /// third of a class is slow and no part explains it, the class is wrong, and no case in it counts as slow.
    ///
    /// `network` describes the node without faults; without it, peaks of the topology's links stand in.
    pub fn new(topology: &Topology, network: Option<&Network>, timed: &[TimedCase]) -> Self {
        let reported = topology;
        let topology = &expected_topology(reported, network);
        let cases: Vec<&Case> = timed.iter().map(|timed| &timed.case).collect();
        let mut classes: BTreeMap<usize, Vec<(usize, &TimedCase)>> = BTreeMap::new();
        let numbers = expected_classes(reported, topology, &cases);
        for (timed, class) in timed.iter().enumerate().zip(numbers) {
            classes.entry(class).or_default().push(timed);
        }
        let mut found = Self::default();
        for (&class, members) in classes.iter().filter(|(_, members)| members.len() > 1) {
            found.cases.extend(compare_class(class, members));
        }
        if found.cases.iter().any(|case| case.slow) {
            found.judge(topology, network);
        }
        found
    }

    /// Clears the slow cases of wrong classes, and names what explains the others.
    fn judge(&mut self, topology: &Topology, network: Option<&Network>) {
        let labels: Vec<String> =
            self.cases.iter().map(|case| case_label(topology, &case.case)).collect();
        let paths: Vec<(&Case, &str)> = self
            .cases
            .iter()
            .zip(&labels)
            .map(|(case, label)| (&case.case, label.as_str()))
            .collect();
        let edits = node_edits(topology, network, &paths);
        let losses = |wrong: &[usize]| {
            let rows = self.cases.iter().zip(&labels);
            let rows = rows.map(|(case, label)| path_loss(case, label)).collect();
            let is_suspect =
                |case: &ComparedCase| case.slow && case.peers > 1 && !wrong.contains(&case.class);
            let cases = self.cases.iter().enumerate();
            let suspects = cases.filter(|(_, case)| is_suspect(case)).map(|(n, _)| n).collect();
            PathLosses::new(&edits, rows, suspects)
        };
        let all = losses(&[]);
        let mut slow: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (n, case) in self.cases.iter().enumerate().filter(|(_, case)| case.slow) {
            slow.entry(case.class).or_default().push(n);
        }
        slow.retain(|_, slow| {
            let class = slow.first().and_then(|n| self.cases.get(*n)).map_or(0, |c| c.peers + 1);
            slow.len() > 1 && slow.len() * 3 >= class && !all.is_explained(slow)
        });
        let wrong: Vec<usize> = slow.into_keys().collect();
        self.culprits = losses(&wrong).culprits();
        self.cases.iter_mut().for_each(|case| case.slow &= !wrong.contains(&case.class));
    }
}

fn path_loss<'c>(case: &'c ComparedCase, label: &'c str) -> PathLoss<'c> {
    let margin = normal_spread(tail_kind(&case.case));
    let half_width = (case.range.1 / case.range.0).ln() / 2.0;
    PathLoss {
        label,
        case: &case.case,
        class: case.class,
        // What some of its samples lose says nothing about a part that is slow now and then.
        ln: (case.slow || case.slow_share <= LATE_SHARE).then(|| -case.ratio.ln()),
        scale: (margin / 5.0).max(half_width),
        margin,
    }
}

/// What a finished run shows of the paths of its node: cases of one or two flows over its own parts. What
/// messages, files and CPU threads take depends on cores and servers that a topology does not show, and in larger
/// sets on the order in which flows start.
///
/// One run cannot tell a slow path from a state of the process that measured it: a slow one is a suspect.
pub fn compare_run(journal: &Journal, network: Option<&Network>) -> CaseComparison {
    let measured = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) if is_comparable(&measured.case) => {
            TimedCase::from_measured(measured).or_else(|| TimedCase::from_few(measured))
        }
        _ => None,
    });
    CaseComparison::new(&journal.topology, network, &measured.collect::<Vec<_>>())
}

impl CaseComparison {
    /// Number of cases of classes of three or more: of fewer, no path can be seen to be slow.
    pub fn compared(&self) -> usize {
        self.cases.iter().filter(|case| case.peers > 1).count()
    }

    /// The part that explains what is slow, if the odds to the next one are 20 to 1 or more.
    pub fn part(&self) -> Option<&Culprit> {
        self.culprits.first().filter(|culprit| culprit.is_part && culprit.odds >= posterior::SURE)
    }

    /// The cases that are slower than their peers, and those of all cases that the named part slows.
    pub fn covered(
        &self,
        topology: &Topology,
        network: Option<&Network>,
        all: &[&Case],
    ) -> Vec<Case> {
        let slow = self.cases.iter().filter(|case| case.slow && case.peers > 1);
        let mut covered: Vec<Case> = slow.map(|case| case.case.clone()).collect();
        let Some(part) = self.part() else { return covered };
        let unnamed: Vec<(&Case, &str)> = all.iter().map(|case| (*case, "")).collect();
        for edit in node_edits(topology, network, &unnamed) {
            let Some((_, left)) = part.left.iter().find(|(name, _)| *name == edit.element) else {
                continue;
            };
            for exposure in &edit.exposures {
                let Some(case) = all.get(exposure.probe) else { continue };
                let is_slowed = exposure.slowdown(*left) > normal_spread(tail_kind(case));
                if is_slowed && !covered.contains(case) {
                    covered.push((*case).clone());
                }
            }
        }
        covered
    }

    /// Paths that are slower than their peers, the slowest first, one entry for each pair of ends.
    pub fn unlike_paths(&self, topology: &Topology) -> Vec<UnlikePath> {
        let mut paths: BTreeMap<String, Vec<(usize, &ComparedCase)>> = BTreeMap::new();
        for (nth, case) in self.cases.iter().enumerate().filter(|(_, case)| case.peers > 1) {
            let ends: Vec<String> = case.case.timed.iter().map(ends_label).collect();
            paths.entry(ends.join(" + ")).or_default().push((nth, case));
        }
        let is_read = |case: &ComparedCase| case.case.timed.iter().all(is_read_by_engine);
        let is_fine = |case: &ComparedCase| !case.slow || is_read(case);
        let reverse = |ends: &str| {
            let cases = paths.get(ends)?.iter().map(|(_, case)| *case);
            let cases = cases.filter(|case| !is_read(case));
            Some(cases.fold((1.0, false), |(ratio, slow), case| {
                (case.range.1.min(ratio), slow || !is_fine(case))
            }))
        };
        let unlike = paths.values().filter_map(|cases| {
            let (slow, others): (Vec<_>, Vec<_>) = cases.iter().partition(|(_, case)| case.slow);
            let worst = slow.iter().map(|(_, case)| *case);
            // A table of pairs has what the source or a kernel moves.
            let rank = |case: &ComparedCase| (is_read(case), case.ratio);
            let worst = worst.min_by(|a, b| {
                let (a, b) = (rank(a), rank(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            })?;
            let movers = movers_of(topology, &slow);
            let movers_fine = movers_of(topology, &others);
            let part = self.part().filter(|part| slow.iter().any(|(n, _)| part.paths.contains(n)));
            Some(UnlikePath {
                case: worst.case.clone(),
                path: case_label(topology, &worst.case),
                part: part.map(|part| part.element.clone()),
                part_state: part.map(Culprit::name),
                ratio: worst.ratio,
                ratio_range: worst.range,
                peers: worst.peers,
                movers_fine: movers_fine.into_iter().filter(|m| !movers.contains(m)).collect(),
                movers,
                reverse: opposite(&worst.case).and_then(|ends| reverse(&ends)),
                cases: slow.len(),
                comes_and_goes: slow.iter().all(|(_, case)| case.comes_and_goes),
            })
        });
        let mut unlike: Vec<UnlikePath> = unlike.collect();
        unlike.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        unlike
    }
}

fn movers_of(topology: &Topology, cases: &[(usize, &ComparedCase)]) -> Vec<String> {
    let flows = cases.iter().filter_map(|(_, case)| case.case.timed.first());
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

fn is_comparable(case: &Case) -> bool {
    let facts = |flow: &pathline_schema::Flow| {
        !flow.by.facts().uses_files
            && flow.by.threads() == 0
            && !matches!(flow.by, Mover::Wire { .. })
    };
    case.timed.len() <= 2 && case.background.is_empty() && case.flows().all(facts)
}

/// The share by which healthy paths of the kind of a case may differ within one run.
pub fn usual_spread(case: &Case) -> f64 {
    normal_spread(tail_kind(case))
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

fn compare_class(class: usize, members: &[(usize, &TimedCase)]) -> Vec<ComparedCase> {
    let times: Vec<MedianInterval> = members.iter().map(|(_, timed)| timed.time).collect();
    let normal = members.first().map_or(0.0, |(_, timed)| normal_spread(tail_kind(&timed.case)));
    let cases = members.iter().zip(compare_with_peers(&times, normal));
    let distances = members.iter().flat_map(|(_, timed)| timed.visits.iter().flatten());
    let spread = interpolated(&ascending(distances.map(|sample| sample.ln().abs())), 0.5);
    let limit = slow_limit(2.0 * normal, spread.unwrap_or(0.0));
    let case = |(&(nth, timed), found): (&(usize, &TimedCase), PeerRatio)| {
        let (case, peers) = (timed.case.clone(), members.len() - 1);
        let PeerRatio { ratio, range, slow } = found;
        let (slow_share, loss) = slow_samples(timed, ratio, limit);
        let loss = loss.filter(|_| !slow && peers > 1);
        let (ratio, range) = loss.map_or((ratio, range), |slow| (slow, (slow, slow)));
        let comes_and_goes = loss.is_some();
        let slow = slow || comes_and_goes;
        ComparedCase { nth, case, ratio, range, peers, slow, slow_share, comes_and_goes, class }
    };
    cases.map(case).collect()
}

/// The share of samples whose speed relative to the peers is below the limit, a logarithm; and the median speed of
/// those, if the visits show a path that comes and goes as the processes of a health check would.
fn slow_samples(timed: &TimedCase, ratio: f64, limit: f64) -> (f64, Option<f64>) {
    let state_share = HealthSettings::default().state_share(tail_kind(&timed.case), 0.0);
    let (mut evidence, mut slow) = (SteadyEvidence::default(), Vec::new());
    for visit in &timed.visits {
        let speeds = visit.iter().map(|sample| ratio / sample);
        let of_visit: Vec<f64> = speeds.filter(|speed| speed.ln() < limit).collect();
        evidence.add_process(of_visit.len(), visit.len(), state_share);
        slow.extend(of_visit);
    }
    let median = interpolated(&ascending(slow.iter().copied()), 0.5);
    let (slow, all) = evidence.rounds;
    (slow as f64 / all.max(1) as f64, median.filter(|_| evidence.is_unsteady()))
}
