//! Differences between runs of an unchanged machine, by class of case.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pathline_schema::{Bytes, Case, Flow, MemKind, Mover, WorldKind};
use pathline_stats::{RunNoise, largest_deviation};

/// Default values, with their origin.
const SHIPPED: &str = include_str!("../../data/run_noise.csv");

/// Minimum size of a bulk case.
const BULK: Bytes = Bytes::mib(16);
/// Minimum number of runs of a case to estimate the noise of its class.
pub(super) const MIN_RUNS: usize = 3;
/// Number of differences from which tails count as normal, and degrees of freedom for more and for
/// fewer.
const MANY: usize = 30;
const FREEDOM_OF_MANY: f64 = 12.0;
const FREEDOM_OF_FEW: f64 = 6.0;
/// Weight of a class, in further runs, if runs of both sides show the noise of each case.
const FREEDOM_OF_CLASS: f64 = 4.0;

/// Minimum cases of a class whose differences between two runs show its noise.
const MIN_DIFFERENCES: usize = 8;

/// The smallest deviation that is believed, as in the table.
const LEAST: f64 = 0.001;

/// A row of the noise table.
#[derive(Debug, Clone, PartialEq)]
struct NoiseRule {
    class: String,
    movers: Vec<String>,
    memories: Vec<String>,
    size: String,
    flows: Vec<String>,
    noise: RunNoise,
    pairs: usize,
    origin: String,
}

/// The noise between runs of one class of cases.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassNoise {
    /// `GPU copies of 16MiB and more`.
    pub class: String,
    /// Number of cases of this class on both sides.
    pub cases: usize,
    /// Standard deviation from run to run, relative: 0.01 is 1 %.
    pub deviation: f64,
    /// Origin of the deviation.
    pub origin: String,
    /// The smallest slowdown that is found 19 times in 20, of the median case: 0.12 is 12 %.
    pub visible: f64,
    /// Runs a side, at least 3, that show a slowdown of 10 % 19 times in 20 if they differ by the deviation;
    /// `None` if 1000 do not.
    pub runs_for_ten: Option<u32>,
}

/// How many runs a side show a slowdown of 10 %, where the compared runs are too few to show it.
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatAdvice {
    /// Runs a side, and the largest deviation from run to run through which they show it: 0.01 is 1 %.
    pub choices: Vec<(u32, f64)>,
    /// Classes in which it is not visible yet, with the runs that their stated deviation takes.
    pub classes: Vec<(String, Option<u32>)>,
}

impl RepeatAdvice {
    /// The advice; `None` if each class shows 10 % already, or runs of both sides gave the deviations.
    pub(super) fn of(
        noises: &[ClassNoise],
        runs: usize,
        threshold: f64,
        tolerance: f64,
    ) -> Option<Self> {
        let hidden = noises.iter().filter(|noise| noise.visible > TEN_PERCENT);
        let classes: Vec<_> = hidden.map(|n| (n.class.clone(), n.runs_for_ten)).collect();
        let through = |runs| (runs, deviation_for_ten(runs, threshold, tolerance));
        let choices = [3, 5, 10].map(through).to_vec();
        let useful = runs < MIN_RUNS && !classes.is_empty() && choices.iter().all(|c| c.1 > 0.0);
        useful.then_some(Self { choices, classes })
    }
}

/// The slowdown that the advice is about.
const TEN_PERCENT: f64 = 0.1;
/// The most runs a side that are counted.
const MAX_RUNS: u32 = 1000;

fn deviation_for_ten(runs: u32, threshold: f64, tolerance: f64) -> f64 {
    largest_deviation(runs, FREEDOM_OF_CLASS, TEN_PERCENT, threshold, tolerance)
}

/// Runs a side that show 10 % through a deviation.
pub(super) fn runs_for_ten(deviation: f64, threshold: f64, tolerance: f64) -> Option<u32> {
    // More runs see through more, so the first that suffices is found by halving.
    let suffices = |runs: u32| deviation_for_ten(runs, threshold, tolerance) >= deviation;
    let (mut low, mut high) = (MIN_RUNS as u32, MAX_RUNS);
    while low < high {
        let middle = low.midpoint(high);
        if suffices(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    suffices(low).then_some(low)
}

/// Origin of the noise between runs.
#[derive(Debug, Clone, Default)]
pub(super) struct NoiseTable {
    learnt: BTreeMap<&'static str, (RunNoise, String)>,
    is_model: bool,
}

fn rules() -> &'static [NoiseRule] {
    static RULES: OnceLock<Vec<NoiseRule>> = OnceLock::new();
    RULES.get_or_init(|| SHIPPED.lines().filter_map(rule).collect())
}

fn rule(line: &str) -> Option<NoiseRule> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.splitn(9, ',').map(str::to_owned);
    let mut next = || fields.next();
    let list = |text: String| text.split('|').map(str::to_owned).collect();
    let (class, movers, memories) = (next()?, list(next()?), list(next()?));
    let (size, flows) = (next()?, list(next()?));
    let deviation: f64 = next()?.parse().ok()?;
    let freedom = next()?.parse().ok()?;
    let pairs = next()?.parse().ok()?;
    let noise = RunNoise { deviation: deviation / 100.0, freedom };
    Some(NoiseRule { class, movers, memories, size, flows, noise, pairs, origin: next()? })
}

/// Name of the class of a case.
pub(super) fn class_of(case: &Case) -> &'static str {
    rule_of(case).map_or("others", |rule| rule.class.as_str())
}

fn rule_of(case: &Case) -> Option<&'static NoiseRule> {
    let mover = case.flows().map(mover_kind).min().map_or("", |(_, name)| name);
    let memory = case.flows().map(memory_kind).min().map_or("", |(_, name)| name);
    let bytes = case.flows().map(|f| f.bytes).max().unwrap_or(Bytes(0));
    let size = if bytes >= BULK { "bulk" } else { "small" };
    let flows = match case.timed.len() {
        _ if !case.background.is_empty() => "while",
        0 | 1 => "one",
        _ => "set",
    };
    let fits = |pattern: &[String], is: &str| pattern.iter().any(|p| p == "*" || p == is);
    rules().iter().find(|rule| {
        fits(&rule.movers, mover)
            && fits(&rule.memories, memory)
            && fits(std::slice::from_ref(&rule.size), size)
            && fits(&rule.flows, flows)
    })
}

/// Kind of mover; of several, the one with the lowest number, which is the noisiest.
fn mover_kind(flow: &Flow) -> (u8, &'static str) {
    match flow.by {
        Mover::Io { .. } | Mover::Meta { .. } => (0, "io"),
        Mover::Call { .. } => (1, "call"),
        Mover::Wire { .. } => (2, "wire"),
        Mover::Migrate { .. } => (3, "migrate"),
        // A CPU thread hands out the chunks of copies over several paths.
        Mover::Cpu { .. }
        | Mover::Threads { .. }
        | Mover::Relay { .. }
        | Mover::CopyToAll { .. } => (4, "cpu"),
        Mover::Kernel { .. } if flow.by.is_chase() => (5, "chase"),
        Mover::Kernel { .. } | Mover::Blocks { .. } => (6, "kernel"),
        Mover::Dma { .. } | Mover::Blit { .. } | Mover::Staged { .. } | Mover::Batch { .. } => {
            (7, "dma")
        }
    }
}

/// Kind of memory; of several, the one with the lowest number.
fn memory_kind(flow: &Flow) -> (u8, &'static str) {
    let staged = matches!(flow.by, Mover::Staged { .. });
    let kind = |mem: MemKind| match mem {
        MemKind::File => (0, "file"),
        MemKind::Managed => (1, "managed"),
        MemKind::Paged | MemKind::Huge => (2, "pageable"),
        MemKind::Pinned
        | MemKind::PinnedNonCoherent
        | MemKind::PinnedWc
        | MemKind::PinnedDefault
        | MemKind::Registered
        | MemKind::RegisteredHuge => (3, "pinned"),
        MemKind::Vram | MemKind::VramFine | MemKind::Reg if staged => (3, "pinned"),
        MemKind::Vram | MemKind::VramFine | MemKind::Reg => (4, "device"),
    };
    kind(flow.src.mem).min(kind(flow.dst.mem))
}

impl NoiseTable {
    /// The default values; none for a model, whose processes do not differ.
    pub(super) fn shipped(world: &WorldKind) -> Self {
        Self { learnt: BTreeMap::new(), is_model: *world != WorldKind::Real }
    }

    /// Replaces values by those from runs of unchanged machines: logarithms of medians, one group
    /// per case of one machine.
    pub(super) fn learn(&mut self, groups: &[(Case, Vec<f64>)]) {
        for (class, groups) in by_class(groups) {
            let differences: usize = groups.iter().map(|g| g.len() - 1).sum();
            let freedom = if differences >= MANY { FREEDOM_OF_MANY } else { FREEDOM_OF_FEW };
            if let Some(noise) = RunNoise::pooled(&groups, freedom) {
                let origin = format!("learnt from {} by --noise", cases(groups.len()));
                self.learnt.insert(class, (noise, origin));
            }
        }
    }

    /// Replaces values by the noise of the compared runs, if a class has cases with enough of them.
    pub(super) fn learn_from_sides(&mut self, groups: &[(Case, Vec<f64>)]) {
        for (class, groups) in by_class(groups) {
            if let Some(noise) = RunNoise::pooled(&groups, FREEDOM_OF_CLASS) {
                let origin = format!("these runs, {}", cases(groups.len() / 2));
                self.learnt.insert(class, (noise, origin));
            }
        }
    }

    /// Adjusts shipped values by the differences of logarithms between one run a side, of all cases of a class.
    pub(super) fn learn_from_differences(&mut self, differences: &[(Case, f64)]) {
        let mut classes: BTreeMap<&'static str, (&Case, Vec<f64>)> = BTreeMap::new();
        for (case, difference) in differences {
            classes.entry(class_of(case)).or_insert((case, Vec::new())).1.push(*difference);
        }
        classes.retain(|class, (_, all)| {
            all.len() >= MIN_DIFFERENCES && !self.learnt.contains_key(class)
        });
        for (class, (case, all)) in classes.into_iter().filter(|_| !self.is_model) {
            let (shipped, origin) = self.case_noise(case);
            let own = format!("these runs' {}", cases(all.len()));
            // Small operations are late now and then, in few of the cases: the table knows how often.
            let (noise, origin) = match rule_of(case) {
                Some(rule) if rule.size == "bulk" => {
                    let own_noise = RunNoise { freedom: 0.0, ..shipped }.with_differences(&all);
                    (RunNoise { deviation: own_noise.deviation.max(LEAST), ..own_noise }, own)
                }
                _ => (shipped.with_differences(&all), format!("{origin}; and {own}")),
            };
            self.learnt.insert(class, (noise, origin));
        }
    }

    /// The noise of a case, and its origin.
    pub(super) fn case_noise(&self, case: &Case) -> (RunNoise, String) {
        if let Some((noise, origin)) = self.learnt.get(class_of(case)) {
            return (*noise, origin.clone());
        }
        if self.is_model {
            let none = RunNoise { deviation: 0.0, freedom: FREEDOM_OF_MANY };
            return (none, "a model has none".to_owned());
        }
        match rule_of(case) {
            Some(rule) => {
                let origin = format!("shipped: {}, {} pairs", rule.origin, rule.pairs);
                (rule.noise, origin)
            }
            None => (RunNoise { deviation: 0.1, freedom: 4.0 }, "not measured".to_owned()),
        }
    }
}

fn cases(n: usize) -> String {
    crate::fmt::count(n.max(1), "case")
}

/// Groups of enough runs, by class.
fn by_class(groups: &[(Case, Vec<f64>)]) -> BTreeMap<&'static str, Vec<Vec<f64>>> {
    let mut classes: BTreeMap<&'static str, Vec<Vec<f64>>> = BTreeMap::new();
    for (case, logs) in groups.iter().filter(|(_, logs)| logs.len() >= MIN_RUNS) {
        classes.entry(class_of(case)).or_default().push(logs.clone());
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows = SHIPPED.lines().filter(|l| !l.starts_with('#')).count();
        // One row contains the column names.
        assert_eq!(rules().len(), rows - 1);
        assert!(rules().iter().all(|r| r.noise.deviation > 0.0 && r.noise.freedom >= 4.0));
        let last = rules().last().map(|r| (r.movers.join("|"), r.memories.join("|")));
        assert_eq!(last, Some(("*".to_owned(), "*".to_owned())), "every case has a class");
    }

    #[test]
    fn cases_have_the_class_of_their_noisiest_flow() {
        for (case, class) in [
            ("gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB", "GPU copies of 16MiB and more"),
            ("gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated", "GPU copies below 16MiB"),
            ("numa0.pinned > gpu0.vram by dma@gpu0 x 1GiB", "pinned host copies of 16MiB and more"),
            (
                "numa0.pinned > gpu0.vram by kernel@gpu0[copy-w16-u1-b256-g1] x 1GiB",
                "pinned host memory of 16MiB and more",
            ),
            ("numa0.paged > gpu0.vram by dma@gpu0 x 1GiB", "pageable copies"),
            ("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB", "host"),
            (
                "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB & numa0.pinned > gpu1.vram by dma@gpu1 x 64MiB",
                "GPU copies at the same time",
            ),
            ("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1GiB", "others"),
        ] {
            assert_eq!(class_of(&case.parse().unwrap()), class, "{case}");
        }
    }
}
