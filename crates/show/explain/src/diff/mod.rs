//! Compares runs before with runs after, case by case: changes and their significance.

mod groups;
mod identity;
mod noise;
mod sides;
mod text;
mod topology_changes;

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Case, Flow, Journal, KernelVariant, LinkEnd, Mover, Topology, WorldKind, plain_line,
};
use pathline_stats::{FalseDiscovery, RunComparison};

use crate::fmt;
pub use groups::ChangeGroup;
pub use identity::SideIdentity;
pub use noise::{ClassNoise, RepeatAdvice};
use noise::{MIN_RUNS, NoiseTable, class_of, runs_for_ten};
use sides::{CaseSide, case_sides, logs_of_runs};
pub use topology_changes::TopologyChange;

/// Share of the largest change from which on a change counts as one of the largest.
const MOSTLY: f64 = 0.8;

/// False discovery rate: the maximum expected share of false changes among those reported.
const FALSE_SHARE: f64 = 0.05;

/// Why runs are not compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// One is real and one simulated, or they simulate different machines.
    #[error(
        "a {first} and a {second} cannot be compared: figures of a model are no baseline for hardware, nor those of one machine for another"
    )]
    Worlds {
        /// World of the first run.
        first: String,
        /// World of the run that differs from it.
        second: String,
    },
    /// No case has a result on both sides.
    #[error(
        "no case has a figure in the runs before and after ({before} before, {after} after){}: give runs of the same suites; `pathline report RUN` lists what a run has",
        unlike_text(unlike)
    )]
    NoCommonCase {
        /// Cases with a figure before.
        before: usize,
        /// Cases with a figure after.
        after: usize,
        /// Differences between hosts, GPUs, versions and settings: name, before, after.
        unlike: Vec<(String, String, String)>,
    },
    /// A side has no run.
    #[error(
        "there is no run to compare: name runs before and runs after, `pathline diff BEFORE... -- AFTER...`"
    )]
    NoRun,
}

/// `; host differs: 'n1' and 'n2'`, for each difference.
fn unlike_text(unlike: &[(String, String, String)]) -> String {
    unlike.iter().map(|(name, a, b)| format!("; {name} differs: '{a}' and '{b}'")).collect()
}

/// Change of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseChange {
    /// One of its results exceeds the hardware's limits: there is nothing to compare.
    BeyondCeiling,
    /// It takes more time.
    Slower,
    /// It has a result before; after, it failed or was skipped.
    Lost,
    /// Its bytes were verified before and not after, whatever its times.
    Unverified,
    /// It takes less time.
    Faster,
    /// A change above the tolerance is neither shown nor excluded.
    Unclear,
    /// Unchanged, but its bytes were verified only after.
    Verified,
    /// Only runs before contain it.
    OnlyFirst,
    /// Only runs after contain it.
    OnlySecond,
    /// Unchanged within the tolerance.
    Same,
}

impl CaseChange {
    /// Name in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::BeyondCeiling => "beyond ceiling",
            Self::Unverified => "unverified",
            Self::Verified => "verified now",
            Self::Slower => "slower",
            Self::Lost => "lost",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unclear => "undecided",
            Self::OnlyFirst => "only before",
            Self::OnlySecond => "only after",
        }
    }
    const ALL: [Self; 10] = [
        Self::BeyondCeiling,
        Self::Slower,
        Self::Lost,
        Self::Unverified,
        Self::Faster,
        Self::Unclear,
        Self::Verified,
        Self::OnlyFirst,
        Self::OnlySecond,
        Self::Same,
    ];
}

/// One case before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffRow {
    /// The case.
    pub case: Case,
    /// GB/s, or ns per step for a latency.
    pub unit: &'static str,
    /// Value before, in the unit: the median of the run, or the geometric mean of several runs'
    /// medians.
    pub a: Option<f64>,
    /// Value after.
    pub b: Option<f64>,
    /// Speed after divided by speed before, with its 95 % interval: 1.1 is 10 % faster.
    pub effect: Option<(f64, f64, f64)>,
    /// Probability of such an effect on a machine that changed by no more than the tolerance.
    pub p_value: f64,
    /// Number of samples in all runs before and after.
    pub samples: (usize, usize),
    /// Number of runs before and after that measured it.
    pub runs: (usize, usize),
    /// The smallest slowdown that would be found 19 times in 20: 0.12 is 12 %.
    pub visible: f64,
    /// Conclusion.
    pub change: CaseChange,
    /// Whether other programs disturbed the result of a side, so that no change is concluded from it.
    pub disturbed: bool,
    /// Reason if one side has no result, or is disturbed.
    pub why: String,
}

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions<'j> {
    /// The smallest change of interest; smaller ones count as unchanged. 0.02 is 2 %.
    pub tolerance: f64,
    /// Runs of an unchanged machine, from which to estimate the noise between runs. Journals of one
    /// host count as runs of one machine.
    pub noise: Vec<&'j Journal>,
}

/// A comparison of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDiff {
    /// All cases of all runs, the most severe changes first.
    pub rows: Vec<DiffRow>,
    /// Differences up to this share count as unchanged: 0.02 is 2 %.
    pub tolerance: f64,
    /// Identities of the runs before and after.
    pub sides: [SideIdentity; 2],
    /// Differences between the runs' conditions: name, before, after.
    pub conditions: Vec<(String, String, String)>,
    /// Differences between the nodes: GPUs, links.
    pub topology: Vec<TopologyChange>,
    /// Impossible records: run, count, the first of them.
    pub rejected: Vec<String>,
    /// Changes with a common path or place, slower first.
    pub groups: Vec<ChangeGroup>,
    /// Noise between runs that was allowed for, by class of cases.
    pub noise: Vec<ClassNoise>,
    /// Threshold of significance, given the number of cases.
    pub judged: FalseDiscovery,
    /// Runs that would show a slowdown of 10 %, where these do not.
    pub repeats: Option<RepeatAdvice>,
    /// The part that slows the runs after and not those before, if it is known: `xGMI gpu2-gpu4`.
    pub part: Option<String>,
    /// What to do where something is worse; empty without a finding.
    pub action: String,
    /// What the runs after do not see of a node, where nothing is worse.
    pub unseen: String,
    /// What fails in the runs after and not in those before: `gpu3 hangs: ...`. The cases that are lost are its.
    pub failure: Option<String>,
}

impl RunDiff {
    /// Number of cases with a kind of change.
    pub fn count(&self, change: CaseChange) -> usize {
        self.rows.iter().filter(|r| r.change == change).count()
    }
    /// Cases with a result on both sides.
    pub fn compared(&self) -> usize {
        self.rows.iter().filter(|r| r.a.is_some() && r.b.is_some()).count()
    }
    /// Cases with a result before of which the runs after have no outcome.
    pub fn missing(&self) -> usize {
        let missing = |r: &&DiffRow| r.change == CaseChange::OnlyFirst && r.a.is_some();
        self.rows.iter().filter(missing).count()
    }
    /// The loss that the nodes state: of the part that slows the runs after, else the first.
    pub fn main_loss(&self) -> Option<&TopologyChange> {
        self.stated_loss().or_else(|| self.topology.iter().find(|change| change.is_loss))
    }
    /// The loss that the node itself states of the part which slows the runs after.
    pub fn stated_loss(&self) -> Option<&TopologyChange> {
        let part = self.part.as_ref()?;
        let is_part = |name: &str| {
            part.strip_prefix(name)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.topology.iter().find(|change| change.is_loss && is_part(&change.part.0))
    }
    /// Why a comparison in which nothing is worse says less than its counts.
    pub fn undecided(&self) -> Option<String> {
        let [before, after] = &self.sides;
        let unknown = self.count(CaseChange::OnlySecond);
        if before.killed + after.killed > 0 || (before.cut > 0 && unknown > 0) {
            let (count, side) = match (unknown, self.missing()) {
                (0, missing) => (missing, "after"),
                (unknown, _) => (unknown, "before"),
            };
            return Some(format!("a run was cut; {count} cases were not measured {side}"));
        }
        // One sample has no interval, so any change fits.
        let lone =
            |r: &&DiffRow| r.change == CaseChange::Unclear && r.samples.0.min(r.samples.1) == 1;
        let lone = self.rows.iter().filter(lone).count();
        let (all, unclear) = (self.compared(), self.count(CaseChange::Unclear));
        if 2 * lone > all {
            return Some(format!("{lone} cases have one sample on a side"));
        }
        let (tolerance, same) = (fmt::percent(self.tolerance), self.count(CaseChange::Same));
        (2 * unclear > all).then(|| {
            format!("{unclear} of {all} cases are too noisy for {tolerance}, {same} are within it")
        })
    }
    /// Whether a case became slower, lost its result or its verification, or is impossible; or GPUs
    /// are missing after.
    pub fn is_worse(&self) -> bool {
        let worse = [
            CaseChange::BeyondCeiling,
            CaseChange::Slower,
            CaseChange::Unverified,
            CaseChange::Lost,
        ];
        let [before, after] = &self.sides;
        !self.rejected.is_empty()
            || after.gpu_count < before.gpu_count
            || self.topology.iter().any(|change| change.is_loss)
            || worse.iter().any(|change| self.count(*change) > 0)
    }
}

/// Compares two runs of one world; differences up to `tolerance` (0.02 is 2 %) count as unchanged.
///
/// # Errors
///
/// Those of [`diff_runs`].
pub fn diff(first: &Journal, second: &Journal, tolerance: f64) -> Result<RunDiff, DiffError> {
    diff_runs(&[first], &[second], &DiffOptions { tolerance, noise: Vec::new() })
}

/// Compares runs before with runs after. Each repeat of a journal counts as a run.
///
/// # Errors
///
/// Real and simulated runs, or two simulated machines, are mixed; no case has a result on both
/// sides.
pub fn diff_runs(
    before: &[&Journal],
    after: &[&Journal],
    options: &DiffOptions<'_>,
) -> Result<RunDiff, DiffError> {
    let (Some(first), Some(_)) = (before.first(), after.first()) else {
        return Err(DiffError::NoRun);
    };
    let other = before.iter().chain(after).find(|j| j.begin.world != first.begin.world);
    if let Some(other) = other {
        return Err(DiffError::Worlds { first: world(first), second: world(other) });
    }
    let (a, b) = (case_sides(before), case_sides(after));
    let figures = |side: &BTreeMap<String, CaseSide<'_>>| {
        side.values().filter(|s| !s.runs.is_empty()).count()
    };
    let counts = (figures(&a), figures(&b));
    let (pairs, b) = other_kernels(&a, b);
    let mut table = NoiseTable::shipped(&first.begin.world);
    table.learn(&learnt_groups(&options.noise));
    table.learn_from_sides(&side_groups(&a, &b));
    table.learn_from_differences(&single_differences(&a, &b));
    let texts: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut rows: Vec<DiffRow> = Vec::new();
    let mut found: Vec<Option<RunComparison>> = Vec::new();
    for text in texts {
        if let Some((mut row, comparison)) =
            row(a.get(text), b.get(text), &table, options.tolerance)
        {
            if let Some(kernels) = pairs.get(text) {
                row.why.clone_from(kernels);
            }
            rows.push(row);
            found.push(comparison);
        }
    }
    // Rejected results are named, which is more informative than an empty comparison.
    let rejects = before.iter().chain(after).any(|journal| !journal.rejected.is_empty());
    if !rejects && !rows.iter().any(|row| row.a.is_some() && row.b.is_some()) {
        let unlike = identity::conditions(before, after);
        return Err(DiffError::NoCommonCase { before: counts.0, after: counts.1, unlike });
    }
    // The same command, ended, was to have every case that the run before has; kernels are chosen by a search.
    if asked_alike(before, after) {
        let is_lost = |row: &&mut DiffRow| {
            let chosen = row.case.flows().any(|flow| matches!(flow.by, Mover::Kernel { .. }));
            row.change == CaseChange::OnlyFirst && row.a.is_some() && !chosen
        };
        for row in rows.iter_mut().filter(is_lost) {
            row.change = CaseChange::Lost;
            row.why = "the run after has no outcome of it".to_owned();
        }
    }
    let judgeable = rows.iter().zip(&found).filter(|(row, _)| !row.disturbed);
    let p_values: Vec<f64> = judgeable.filter_map(|(_, c)| Some(c.as_ref()?.p_value)).collect();
    let judged = FalseDiscovery::control(&p_values, FALSE_SHARE);
    for (row, comparison) in rows.iter_mut().zip(&found) {
        judge_row(row, comparison.as_ref(), &judged);
        let sides = (a.get(&row.case.to_string()), b.get(&row.case.to_string()));
        look_at_verification(row, sides);
    }
    let plan = (judged.next_threshold(), options.tolerance);
    let noise = class_noises(&rows, &table, plan);
    let size = |r: &DiffRow| r.effect.map_or(0.0, |e| e.0.max(f64::MIN_POSITIVE).ln().abs());
    rows.sort_by(|x, y| x.change.cmp(&y.change).then(size(y).total_cmp(&size(x))));
    list_direct_first(&mut rows, &first.topology, &size);
    let rejected = [("first", before), ("second", after)];
    let rejected = rejected
        .into_iter()
        .flat_map(|(name, runs)| runs.iter().filter_map(move |run| rejected_records(name, run)))
        .collect();
    let sides = [SideIdentity::from_journals(before), SideIdentity::from_journals(after)];
    let runs = sides.iter().map(|side| side.runs).min().unwrap_or(0);
    let repeats = RepeatAdvice::of(&noise, runs, plan.0, plan.1);
    Ok(RunDiff {
        groups: groups::groups(&rows),
        conditions: identity::conditions(before, after),
        topology: topology_changes::topology_changes(before, after),
        rows,
        tolerance: options.tolerance,
        sides,
        rejected,
        noise,
        judged,
        repeats,
        part: None,
        action: String::new(),
        failure: None,
        unseen: String::new(),
    })
}

/// Of changes of nearly the size of the largest, one flow between neighbours comes before routes that include their
/// link, and before several flows at once.
fn list_direct_first(rows: &mut [DiffRow], topology: &Topology, size: &dyn Fn(&DiffRow) -> f64) {
    let is_linked = |a: LinkEnd, b: LinkEnd| {
        topology.links.iter().any(|link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a))
    };
    let is_indirect = |row: &DiffRow| match row.case.timed.as_slice() {
        [flow] if row.case.background.is_empty() => {
            flow.src.unit.gpu().is_some()
                && flow.dst.unit.gpu().is_some()
                && !is_linked(flow.src.unit.into(), flow.dst.unit.into())
        }
        _ => true,
    };
    for change in [CaseChange::Slower, CaseChange::Faster] {
        let begin = rows.partition_point(|row| row.change < change);
        let most = rows.get(begin).filter(|row| row.change == change).map_or(0.0, size);
        let is_large = |row: &&DiffRow| row.change == change && size(row) >= MOSTLY * most;
        let count = rows.iter().skip(begin).take_while(is_large).count();
        if let Some(large) = rows.get_mut(begin..begin + count) {
            large.sort_by_key(is_indirect);
        }
    }
}

/// Whether the runs after ended, and were started by a command of the runs before (but for `--out`).
fn asked_alike(before: &[&Journal], after: &[&Journal]) -> bool {
    let command = |journal: &&Journal| -> Vec<String> {
        let mut words = journal.begin.command.iter().skip(1).cloned();
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--out" | "-o" => drop(words.next()),
                _ if word.starts_with("--out=") => (),
                _ => kept.push(word),
            }
        }
        kept
    };
    let known: BTreeSet<Vec<String>> = before.iter().map(command).collect();
    let ended = |journal: &Journal| journal.is_complete();
    after.iter().all(|journal| {
        let words = command(journal);
        ended(journal) && !words.is_empty() && known.contains(&words)
    })
}

/// Logarithms of the medians of all runs of each case and host.
fn learnt_groups(journals: &[&Journal]) -> Vec<(Case, Vec<f64>)> {
    let mut hosts: BTreeMap<&str, Vec<&Journal>> = BTreeMap::new();
    for journal in journals {
        hosts.entry(&journal.begin.host).or_default().push(journal);
    }
    hosts.values().flat_map(|runs| logs_of_runs(&case_sides(runs))).collect()
}

/// Logarithms of the medians of each case and side, for cases with enough runs on both sides.
fn side_groups(
    a: &BTreeMap<String, CaseSide<'_>>,
    b: &BTreeMap<String, CaseSide<'_>>,
) -> Vec<(Case, Vec<f64>)> {
    let has_enough = |side: &CaseSide<'_>| side.runs.len() >= MIN_RUNS;
    let both = a.iter().filter_map(|(text, a)| Some((a, b.get(text)?)));
    both.filter(|(a, b)| has_enough(a) && has_enough(b))
        .flat_map(|(a, b)| [a, b].map(|side| (side.case.clone(), side.logs())))
        .collect()
}

/// Differences of the logarithms of medians, of undisturbed cases with one run a side.
fn single_differences(
    a: &BTreeMap<String, CaseSide<'_>>,
    b: &BTreeMap<String, CaseSide<'_>>,
) -> Vec<(Case, f64)> {
    let both = a.iter().filter_map(|(text, a)| Some((a, b.get(text)?)));
    both.filter(|(a, b)| a.disturbed.is_none() && b.disturbed.is_none())
        .filter_map(|(a, b)| match (a.runs.as_slice(), b.runs.as_slice()) {
            ([a_run], [b_run]) => Some((a.case.clone(), b_run.log_median - a_run.log_median)),
            _ => None,
        })
        .collect()
}

fn judge_row(row: &mut DiffRow, comparison: Option<&RunComparison>, judged: &FalseDiscovery) {
    let Some(found) = comparison else { return };
    row.visible = found.smallest_visible(judged.next_threshold());
    row.change = match found.effect > 1.0 {
        true if judged.holds(found.p_value) => CaseChange::Slower,
        false if judged.holds(found.p_value) => CaseChange::Faster,
        _ if found.is_same() => CaseChange::Same,
        _ => CaseChange::Unclear,
    };
    // What a busy machine adds to a time is none of the noise that the comparison allows for: it can
    // exceed any of it, and is not random between the two sides.
    if row.disturbed && matches!(row.change, CaseChange::Slower | CaseChange::Faster) {
        row.change = CaseChange::Unclear;
    }
}

/// Differences in verification, and impossible results, take precedence over times.
fn look_at_verification(row: &mut DiffRow, sides: (Option<&CaseSide>, Option<&CaseSide>)) {
    let beyond =
        |side: Option<&CaseSide>, name: &str| Some(format!("{name}: {}", side?.beyond.as_ref()?));
    let beyond: Vec<String> =
        [beyond(sides.0, "first"), beyond(sides.1, "second")].into_iter().flatten().collect();
    if !beyond.is_empty() {
        (row.change, row.effect) = (CaseChange::BeyondCeiling, None);
        row.why = plain_line(&beyond.join("; ")).into_owned();
        return;
    }
    let verified = |side: Option<&CaseSide>| side.is_some_and(CaseSide::is_verified);
    match (row.change, verified(sides.0), verified(sides.1)) {
        (CaseChange::Faster | CaseChange::Same | CaseChange::Unclear, true, false) => {
            row.change = CaseChange::Unverified;
        }
        (CaseChange::Same, false, true) => row.change = CaseChange::Verified,
        _ => {}
    }
    let only_before = verified(sides.0) && !verified(sides.1) && row.b.is_some();
    if only_before && (row.why.is_empty() || row.disturbed) {
        row.why = "its bytes were verified in the first run only".into();
    }
}

/// The noise that was allowed for by class, the classes with the most cases first. `plan`: threshold of
/// p-values and tolerance.
fn class_noises(rows: &[DiffRow], table: &NoiseTable, plan: (f64, f64)) -> Vec<ClassNoise> {
    let mut classes: BTreeMap<&str, Vec<&DiffRow>> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.effect.is_some()) {
        classes.entry(class_of(&row.case)).or_default().push(row);
    }
    let mut noises: Vec<ClassNoise> = classes
        .into_iter()
        .filter_map(|(class, rows)| {
            let (noise, origin) = table.case_noise(&rows.first()?.case);
            let mut visible: Vec<f64> = rows.iter().map(|r| r.visible).collect();
            visible.sort_by(f64::total_cmp);
            Some(ClassNoise {
                class: class.to_owned(),
                cases: rows.len(),
                deviation: noise.deviation,
                origin,
                visible: visible.get(rows.len() / 2).copied()?,
                runs_for_ten: runs_for_ten(noise.deviation, plan.0, plan.1),
            })
        })
        .collect();
    noises.sort_by_key(|noise| std::cmp::Reverse(noise.cases));
    noises
}

fn rejected_records(run: &str, journal: &Journal) -> Option<String> {
    let first = journal.rejected.first()?;
    Some(format!(
        "{} of the {run} run cannot be right and give no figures, the first on line {} ({}): {}",
        fmt::count(journal.rejected.len(), "record"),
        first.line,
        first.case,
        first.why
    ))
}

/// Cases of the second run that differ from a case of the first only in their kernels, under the
/// text of that case; and those kernels. Two cases correspond only if neither run has several such
/// cases.
fn other_kernels<'j>(
    a: &BTreeMap<String, CaseSide<'_>>,
    mut b: BTreeMap<String, CaseSide<'j>>,
) -> (BTreeMap<String, String>, BTreeMap<String, CaseSide<'j>>) {
    let (paths, others) = (by_path(a), by_path(&b));
    let mut pairs = BTreeMap::new();
    for (path, texts) in paths {
        let ([one], Some([other])) = (texts.as_slice(), others.get(&path).map(Vec::as_slice))
        else {
            continue;
        };
        if one == other {
            continue;
        }
        if let (Some(first), Some(second)) = (a.get(one), b.remove(other)) {
            pairs.insert(one.clone(), format!("{} -> {}", kernels(first), kernels(&second)));
            b.insert(one.clone(), second);
        }
    }
    (pairs, b)
}

/// Texts of the cases with kernels, by their text without them.
fn by_path(sides: &BTreeMap<String, CaseSide<'_>>) -> BTreeMap<Case, Vec<String>> {
    let mut paths: BTreeMap<Case, Vec<String>> = BTreeMap::new();
    for (text, side) in sides {
        if !kernels(side).is_empty() {
            paths.entry(without_kernels(side.case)).or_default().push(text.clone());
        }
    }
    paths
}

/// The kernels of a case.
fn kernels(side: &CaseSide<'_>) -> String {
    let of = |flow: &Flow| match flow.by {
        Mover::Kernel { variant, .. } => Some(variant.to_string()),
        _ => None,
    };
    side.case.flows().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// A case with plain kernels of the same operations.
fn without_kernels(case: &Case) -> Case {
    let mut case = case.clone();
    for flow in case.timed.iter_mut().chain(&mut case.background) {
        if let Mover::Kernel { variant, .. } = &mut flow.by {
            *variant = KernelVariant::standard(variant.op);
        }
    }
    case
}

fn world(journal: &Journal) -> String {
    match &journal.begin.world {
        WorldKind::Real => format!("real run on {}", journal.begin.host),
        WorldKind::Simulated(name) => format!("simulated {name}"),
    }
}

fn row(
    a: Option<&CaseSide>,
    b: Option<&CaseSide>,
    table: &NoiseTable,
    tolerance: f64,
) -> Option<(DiffRow, Option<RunComparison>)> {
    let case = a.or(b)?.case;
    let unit = if sides::is_latency(case) { "ns" } else { "GB/s" };
    let value = |side: Option<&CaseSide>| {
        let logs = side?.logs();
        let mean = (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)?;
        // Times are ns per byte for rates and ns per step for latencies.
        Some(if unit == "ns" { mean.exp() } else { (-mean).exp() })
    };
    let runs = |side: Option<&CaseSide>| side.map_or(0, |s| s.runs.len());
    let samples =
        |side: Option<&CaseSide>| side.map_or(0, |s| s.runs.iter().map(|r| r.samples).sum());
    let (value_a, value_b) = (value(a), value(b));
    let other_method = a.zip(b).is_some_and(|(a, b)| {
        a.is_difference != b.is_difference && !a.runs.is_empty() && !b.runs.is_empty()
    });
    let (change, comparison) = match (value_a, value_b) {
        (None, None) => return None,
        (Some(_), None) if b.is_some() => (CaseChange::Lost, None),
        (Some(_), None) => (CaseChange::OnlyFirst, None),
        (None, Some(_)) => (CaseChange::OnlySecond, None),
        (Some(_), Some(_)) if other_method => (CaseChange::Unclear, None),
        (Some(_), Some(_)) => {
            let (a, b) = (a?, b?);
            let noise = table.case_noise(case).0;
            let found = RunComparison::of(&a.runs, &b.runs, noise, tolerance);
            // A case that sometimes fails has a result from the other runs.
            let fails = b.failed > 0 && a.failed == 0;
            (if fails { CaseChange::Lost } else { CaseChange::Unclear }, found.filter(|_| !fails))
        }
    };
    let reason = |side: Option<&CaseSide>, name: &str| {
        side?.disturbed.as_ref().map(|why| format!("busy {name}: {why}"))
    };
    let disturbed: Vec<String> =
        [reason(a, "before"), reason(b, "after")].into_iter().flatten().collect();
    let why = match (a, b) {
        _ if other_method => {
            "one run timed it with an empty pair of events, the other subtracted that".to_owned()
        }
        (_, Some(b)) if change == CaseChange::Lost && !b.runs.is_empty() => {
            let all = b.runs.len() + b.failed;
            format!("it failed in {} of {all} later runs: {}", b.failed, b.why)
        }
        _ if comparison.is_some() && !disturbed.is_empty() => disturbed.join("; "),
        _ => {
            let whys = [a, b].into_iter().flatten().map(|s| s.why);
            whys.into_iter().find(|w| !w.is_empty()).unwrap_or("").to_owned()
        }
    };
    // From time to speed: the ends of the interval are exchanged.
    let effect = comparison.map(|c| (1.0 / c.effect, 1.0 / c.high, 1.0 / c.low));
    let row = DiffRow {
        case: case.clone(),
        unit,
        a: value_a,
        b: value_b,
        effect,
        p_value: comparison.map_or(1.0, |c| c.p_value),
        samples: (samples(a), samples(b)),
        runs: (runs(a), runs(b)),
        visible: 1.0,
        change,
        disturbed: comparison.is_some() && !disturbed.is_empty(),
        why: plain_line(&why).into_owned(),
    };
    Some((row, comparison))
}
