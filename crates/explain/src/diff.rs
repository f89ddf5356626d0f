//! Two runs, case by case: what changed, and how sure that is.

use std::collections::BTreeMap;

use pathline_schema::{
    Case, CaseOutcome, Flow, FlowSeries, Journal, KernelVariant, Mover, VerifyResult, WorldKind,
    plain_line,
};
use pathline_stats::{ChangeKind, SeriesSummary, compare};

use crate::beyond_ceiling::beyond_ceiling;
use crate::fmt;

/// Why two runs are not compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// One is real and one simulated, or they simulate different machines.
    #[error(
        "'{first}' and '{second}' cannot be compared: a model's figures are no baseline for hardware, nor one machine's for another; give two runs of one world"
    )]
    Worlds {
        /// World of the first run.
        first: String,
        /// World of the second run.
        second: String,
    },
}

/// What became of a case from the first run to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseChange {
    /// One of its figures is more than hardware can carry: there is nothing to compare.
    BeyondCeiling,
    /// It takes more time.
    Slower,
    /// Its bytes were verified in the first run and not in the second, however long it takes.
    Unverified,
    /// It has a figure in the first run only.
    OnlyFirst,
    /// It takes less time.
    Faster,
    /// The interval reaches over the tolerance: more samples would tell.
    Unclear,
    /// As long, and its bytes were verified in the second run only.
    Verified,
    /// It has a figure in the second run only.
    OnlySecond,
    /// The same within the tolerance.
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
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unclear => "unclear",
            Self::OnlyFirst => "only in first",
            Self::OnlySecond => "only in second",
        }
    }
    const ALL: [Self; 9] = [
        Self::BeyondCeiling,
        Self::Slower,
        Self::Unverified,
        Self::Faster,
        Self::Same,
        Self::Unclear,
        Self::Verified,
        Self::OnlyFirst,
        Self::OnlySecond,
    ];
}

/// One case in two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffRow {
    /// The case.
    pub case: Case,
    /// GB/s, or ns a step for a latency.
    pub unit: &'static str,
    /// Median of the first run, in the unit.
    pub a: Option<f64>,
    /// Median of the second run, in the unit.
    pub b: Option<f64>,
    /// Speed of the second run over that of the first, and its 95 % interval: 1.1 is 10 % faster.
    pub effect: Option<(f64, f64, f64)>,
    /// Samples of the first and of the second run.
    pub samples: (usize, usize),
    /// What follows.
    pub change: CaseChange,
    /// Why one side has no figure.
    pub why: String,
}

impl DiffRow {
    /// `+10.2 % [+9.8, +10.6]`. With too few samples, a note instead of the interval.
    fn effect_text(&self) -> String {
        let Some((effect, low, high)) = self.effect else { return String::new() };
        let effect = pc(effect);
        if low > 0.0 && high.is_finite() {
            format!("{effect:+.1} % [{:+.1}, {:+.1}]", pc(low), pc(high))
        } else if self.samples.0.min(self.samples.1) < 2 {
            format!("{effect:+.1} % [one sample: no interval]")
        } else {
            format!("{effect:+.1} % [too few samples]")
        }
    }
}

/// Two runs compared.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDiff {
    /// All cases of both runs, the worst news first.
    pub rows: Vec<DiffRow>,
    /// Differences up to this share are called the same: 0.02 is 2 %.
    pub tolerance: f64,
    /// What differs about how the runs were made: name, first, second.
    pub conditions: Vec<(String, String, String)>,
    /// Records of either journal that cannot be right: which run, how many, the first of them.
    pub rejected: Vec<String>,
}

impl RunDiff {
    /// How many cases changed so.
    pub fn count(&self, change: CaseChange) -> usize {
        self.rows.iter().filter(|r| r.change == change).count()
    }
    /// Whether a case became slower, lost its figure or its verification, or cannot be right.
    pub fn is_worse(&self) -> bool {
        let worse = [
            CaseChange::BeyondCeiling,
            CaseChange::Slower,
            CaseChange::Unverified,
            CaseChange::OnlyFirst,
        ];
        !self.rejected.is_empty() || worse.iter().any(|change| self.count(*change) > 0)
    }
}

/// Compares two runs of one world; differences up to `tolerance` (0.02 is 2 %) are called the same.
///
/// # Errors
///
/// Refuses to mix a real with a simulated run, or two simulated machines.
pub fn diff(first: &Journal, second: &Journal, tolerance: f64) -> Result<RunDiff, DiffError> {
    if first.begin.world != second.begin.world {
        return Err(DiffError::Worlds { first: world(first), second: world(second) });
    }
    let (a, b) = (sides(first), sides(second));
    let (pairs, b) = other_kernels(&a, b);
    let mut texts: Vec<&String> =
        a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))).collect();
    texts.sort();
    let mut rows: Vec<DiffRow> =
        texts.into_iter().filter_map(|k| row(a.get(k), b.get(k), tolerance)).collect();
    for row in &mut rows {
        if let Some(kernels) = pairs.get(&row.case.to_string()) {
            row.why.clone_from(kernels);
        }
    }
    let size = |r: &DiffRow| r.effect.map_or(0.0, |e| e.0.max(f64::MIN_POSITIVE).ln().abs());
    rows.sort_by(|x, y| x.change.cmp(&y.change).then(size(y).total_cmp(&size(x))));
    let rejected = [("first", first), ("second", second)];
    let rejected = rejected.into_iter().filter_map(|(name, run)| rejected_records(name, run));
    let rejected = rejected.collect();
    Ok(RunDiff { rows, tolerance, conditions: conditions(first, second), rejected })
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

/// Cases of the second run that differ from one of the first in their kernels alone, under the text of
/// that one; and which kernels those are. Only where either run has one such case is it clear which two
/// belong together.
fn other_kernels<'j>(
    a: &BTreeMap<String, DiffSide<'_>>,
    mut b: BTreeMap<String, DiffSide<'j>>,
) -> (BTreeMap<String, String>, BTreeMap<String, DiffSide<'j>>) {
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

/// Texts of the cases with kernels, by what they are without them.
fn by_path(sides: &BTreeMap<String, DiffSide<'_>>) -> BTreeMap<Case, Vec<String>> {
    let mut paths: BTreeMap<Case, Vec<String>> = BTreeMap::new();
    for (text, side) in sides {
        if !kernels(side).is_empty() {
            paths.entry(without_kernels(side.case)).or_default().push(text.clone());
        }
    }
    paths
}

/// The kernels of a case.
fn kernels(side: &DiffSide<'_>) -> String {
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

/// One side of a row.
struct DiffSide<'a> {
    case: &'a Case,
    series: &'a [FlowSeries],
    why: &'a str,
    is_verified: bool,
    /// Why its figure cannot be right.
    beyond: Option<String>,
}

fn sides(journal: &Journal) -> BTreeMap<String, DiffSide<'_>> {
    let mut sides: BTreeMap<String, DiffSide> =
        journal.outcomes.iter().map(|o| (o.case().to_string(), side(o))).collect();
    for result in beyond_ceiling(journal) {
        if let Some(side) = sides.get_mut(&result.case.to_string()) {
            side.beyond = Some(result.claim());
        }
    }
    sides
}

fn side(outcome: &CaseOutcome) -> DiffSide<'_> {
    let (series, why, is_verified): (&[FlowSeries], &str, bool) = match outcome {
        CaseOutcome::Measured(m) => (&m.series, "", m.verdict == VerifyResult::Verified),
        CaseOutcome::Skipped(s) => (&[], &s.why, false),
        CaseOutcome::Faulted(f) => (&[], &f.error, false),
    };
    DiffSide { case: outcome.case(), series, why, is_verified, beyond: None }
}

fn row(a: Option<&DiffSide>, b: Option<&DiffSide>, tolerance: f64) -> Option<DiffRow> {
    let case = a.or(b)?.case;
    let chase = case.timed.iter().any(|f| f.by.is_chase());
    let latency = chase || case.cadence == pathline_schema::Cadence::Isolated;
    let unit = if latency { "ns" } else { "GB/s" };
    let (times_a, times_b) = (a.map_or(Vec::new(), times), b.map_or(Vec::new(), times));
    let value = |times: &[f64]| {
        let ns = SeriesSummary::of(times)?.median;
        // Times are ns a byte for rates and ns a step for latencies.
        Some(if latency { ns } else { 1.0 / ns })
    };
    let (value_a, value_b) = (value(&times_a), value(&times_b));
    let why = [a, b].into_iter().flatten().map(|s| s.why).find(|w| !w.is_empty()).unwrap_or("");
    let beyond =
        |side: Option<&DiffSide>, run: &str| Some(format!("{run}: {}", side?.beyond.as_ref()?));
    let beyond: Vec<String> =
        [beyond(a, "first"), beyond(b, "second")].into_iter().flatten().collect();
    let (effect, change) = match (value_a, value_b) {
        (None, None) => return None,
        (Some(_), None) => (None, CaseChange::OnlyFirst),
        (None, Some(_)) => (None, CaseChange::OnlySecond),
        (Some(_), Some(_)) => judged(&times_a, &times_b, tolerance),
    };
    let verified = |side: Option<&DiffSide>| side.is_some_and(|s| s.is_verified);
    let (effect, change) = match (change, verified(a), verified(b)) {
        _ if !beyond.is_empty() => (None, CaseChange::BeyondCeiling),
        (CaseChange::Faster | CaseChange::Same | CaseChange::Unclear, true, false) => {
            (effect, CaseChange::Unverified)
        }
        (CaseChange::Same, false, true) => (effect, CaseChange::Verified),
        _ => (effect, change),
    };
    let why = match (verified(a), verified(b)) {
        _ if !beyond.is_empty() => beyond.join("; "),
        (true, false) if why.is_empty() && value_b.is_some() => {
            "its bytes were verified in the first run only".into()
        }
        _ => why.to_owned(),
    };
    Some(DiffRow {
        case: case.clone(),
        unit,
        a: value_a,
        b: value_b,
        effect,
        samples: (times_a.len(), times_b.len()),
        change,
        why: plain_line(&why).into_owned(),
    })
}

/// Time of each sample per byte or per step, of the slowest flow: runs may differ in repetitions.
fn times(side: &DiffSide) -> Vec<f64> {
    let latency = |s: &FlowSeries| {
        s.flow.by.is_chase() || side.case.cadence == pathline_schema::Cadence::Isolated
    };
    let samples = side.series.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
    let bytes: f64 = side.series.iter().map(|s| s.moved_bytes.as_f64()).sum();
    (0..samples)
        .map(|i| {
            let each = side.series.iter().map(|s| {
                let work = if latency(s) { s.steps.max(1) as f64 } else { bytes };
                s.samples_ns[i] / work
            });
            each.fold(0.0, f64::max)
        })
        .filter(|t| t.is_finite() && *t > 0.0)
        .collect()
}

fn judged(a: &[f64], b: &[f64], tolerance: f64) -> (Option<(f64, f64, f64)>, CaseChange) {
    let Some(found) = compare(a, b, tolerance) else { return (None, CaseChange::Unclear) };
    let change = match found.judgement {
        ChangeKind::Faster => CaseChange::Faster,
        ChangeKind::Slower => CaseChange::Slower,
        ChangeKind::Same => CaseChange::Same,
        ChangeKind::Unclear => CaseChange::Unclear,
    };
    // Time to speed: the ends of the interval change places.
    (Some((1.0 / found.effect, 1.0 / found.high, 1.0 / found.low)), change)
}

fn conditions(a: &Journal, b: &Journal) -> Vec<(String, String, String)> {
    let env = |j: &Journal| {
        let pairs: Vec<String> = j.begin.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(" ")
    };
    let host = |j: &Journal| j.topology.host.clone();
    [
        ("host", a.begin.host.clone(), b.begin.host.clone()),
        ("processor", host(a).cpu_model, host(b).cpu_model),
        ("kernel", host(a).kernel, host(b).kernel),
        ("environment", env(a), env(b)),
        ("version", a.begin.version.clone(), b.begin.version.clone()),
    ]
    .into_iter()
    .filter(|(_, a, b)| a != b)
    .map(|(name, a, b)| (name.to_owned(), plain_line(&a).into_owned(), plain_line(&b).into_owned()))
    .collect()
}

/// The most rows of a text; the counts cover all.
const MOST_ROWS: usize = 40;

impl std::fmt::Display for RunDiff {
    /// Counts, what differs about the runs, and the cases that changed, worst news first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts: Vec<String> = CaseChange::ALL
            .iter()
            .map(|&c| (c, self.count(c)))
            .filter(|(_, n)| *n > 0)
            .map(|(c, n)| format!("{n} {}", c.word()))
            .collect();
        let total = fmt::count(self.rows.len(), "case");
        let counts =
            if counts.is_empty() { "nothing to compare".into() } else { counts.join(", ") };
        writeln!(f, "{total}, tolerance {}: {counts}", fmt::percent(self.tolerance))?;
        for records in &self.rejected {
            writeln!(f, "  {records}")?;
        }
        for (name, a, b) in &self.conditions {
            writeln!(f, "  {name} differs: '{a}' and '{b}'")?;
        }
        let changed: Vec<&DiffRow> =
            self.rows.iter().filter(|r| r.change != CaseChange::Same).collect();
        if changed.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<14} {:>9} {:>9} {:<4}  {:<24} case",
            "", "first", "second", "", "speed [95 %]"
        )?;
        for row in changed.iter().take(MOST_ROWS) {
            let value = |v: Option<f64>| v.map_or("-".into(), fmt::number);
            let effect = row.effect_text();
            write!(
                f,
                "{:<14} {:>9} {:>9} {:<4}  {effect:<24} {}",
                row.change.word(),
                value(row.a),
                value(row.b),
                row.unit,
                row.case
            )?;
            if !row.why.is_empty() {
                write!(f, ": {}", row.why)?;
            }
            writeln!(f)?;
        }
        match changed.len().saturating_sub(MOST_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more"),
        }
    }
}

fn pc(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}
