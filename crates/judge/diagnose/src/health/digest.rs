//! Digests: what is kept of a run to compare later ones of the same node with.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Case, CaseOutcome, CaseTimes, GpuFacts, Journal, RunBegin, Severity, Topology, Unit,
    VerifyResult, WorldKind,
};
use pathline_stats::{RunComparison, RunEstimate, RunNoise, ascending, interpolated};
use serde::{Deserialize, Serialize};

use crate::peers::rename_units;

/// Share of its speed that a path may lose against a reference before that counts. Twins err by some
/// percent; runs of one node differ by less.
pub const REFERENCE_ERROR: f64 = 0.1;

/// Format of [`RunDigest`].
const DIGEST_SCHEMA: u32 = 1;
/// Fewest earlier runs of the same software that a run is judged by.
pub const MIN_HISTORY: usize = 5;
/// What is assumed of the spread between runs before any was seen: 0.1 %, as between two runs on four H200s
/// (p50 of 97 cases), with the weight of two runs.
const USUAL_NOISE: RunNoise = RunNoise { deviation: 0.001, freedom: 2.0 };
/// Least size whose time says how long other sizes take: starts are some percent of it.
const LEAST_SCALED: u64 = 16 << 20;
/// Factor on a time of a path to the host that is scaled from another size.
const HOST_SIZE_ERROR: f64 = 1.1;
/// Significant digits of times: 1e-5 is below any interval.
const DIGITS: i32 = 5;

/// What is kept of one case: number of samples, median and quartiles of the time of one operation in ns,
/// operations in a sample, name of the timer.
pub type CaseDigest = (usize, f64, f64, f64, u64, String);

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDigest {
    /// Format of this file.
    pub digest: u32,
    /// Version of pathline.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// The simulated machine; none if the node is real.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
    /// When the run began, RFC 3339.
    pub started: String,
    /// Fingerprint of the parts of the node and how they are joined.
    pub hardware: String,
    /// Fingerprint of kernel, drivers and settings.
    pub software: String,
    /// Parts and software by name, such as `kernel`: what changed is read from it. Empty in a digest of a version
    /// that did not keep it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Cases by their text.
    pub cases: BTreeMap<String, CaseDigest>,
    /// Number of cases by class. Cases of a class differ only in unit numbers.
    #[serde(default)]
    pub classes: BTreeMap<String, usize>,
    /// How the run and its cases ended; none in a digest of a version that did not keep it, and of a check of
    /// health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<DigestEnds>,
}

/// How a run and its cases ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestEnds {
    /// Whether the run ended, by itself or by its time limit.
    pub ended: bool,
    /// Cases of which wrong bytes arrived.
    pub corrupt: usize,
    /// Cases that failed otherwise.
    pub failed: usize,
    /// Cases that were skipped.
    pub skipped: usize,
    /// Measured cases whose bytes were not verified.
    pub unverified: usize,
}

/// A file that is no digest, or a history that a run cannot be compared with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The text is no digest.
    #[error("no digest: {0}; `pathline health --history DIR RUN` writes one")]
    Format(String),
    /// A digest of another node.
    #[error("the run of {started} is of {other}, not of {node}: name a run of this one")]
    OtherNode {
        /// Its node.
        other: String,
        /// When its run began.
        started: String,
        /// The node to be compared.
        node: String,
    },
}

/// A case that is slower than in earlier runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowerCase {
    /// Text of the case.
    pub case: String,
    /// Share of its speed that it has lost.
    pub loss: f64,
    /// Probability that an unchanged node shows as much; none from fewer than [`MIN_HISTORY`] runs.
    pub probability: Option<f64>,
}

/// A run compared with earlier ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryComparison {
    /// Earlier runs of the same software.
    pub runs: usize,
    /// Earlier runs of other software, which were left out.
    pub other_software: usize,
    /// When the runs began that were left out since they were cut or have few of the cases.
    pub left_out: Vec<String>,
    /// Cases that this run has and [`MIN_HISTORY`] of the earlier ones, or all if these are fewer.
    pub cases: usize,
    /// Cases that lost more than allowed, the slowest first.
    pub slower: Vec<SlowerCase>,
    /// The class that is slower as a whole than in each earlier run, and by more than [`REFERENCE_ERROR`]: its
    /// name and share of speed lost.
    pub slow_class: Option<(String, f64)>,
    /// Whether one of the slower cases is significant over all cases.
    pub significant: bool,
    /// Why a comparison that found nothing slower says nothing.
    pub undecided: Option<String>,
}

impl RunDigest {
    /// What a run leaves behind.
    pub fn of(journal: &Journal) -> Self {
        let mut digest = Self::empty(&journal.begin, &journal.topology);
        let mut ends = DigestEnds { ended: journal.end.is_some(), ..DigestEnds::default() };
        for outcome in &journal.outcomes {
            match outcome {
                CaseOutcome::Faulted(f) if f.severity == Severity::Corrupt => ends.corrupt += 1,
                CaseOutcome::Faulted(_) => ends.failed += 1,
                CaseOutcome::Skipped(_) => ends.skipped += 1,
                CaseOutcome::Measured(m) => {
                    ends.unverified += usize::from(m.verdict != VerifyResult::Verified);
                }
            }
            let CaseOutcome::Measured(measured) = outcome else { continue };
            let Some(first) = measured.series.first() else { continue };
            let reps = first.reps.max(1);
            let times = CaseTimes::slowest_flow(&measured.series);
            let each: Vec<f64> = times.ns.iter().map(|ns| ns / reps as f64).collect();
            digest.add(&measured.case, &each, reps, first.timer.to_string());
        }
        digest.ends = Some(ends);
        digest
    }

    /// Median time of one operation of a case in ns, if the run has it.
    pub(crate) fn time_of(&self, case: &Case) -> Option<f64> {
        Some(self.cases.get(&case.to_string())?.1)
    }

    /// The time of a case in ns from the nearest size of 16 MiB or more; of a path to the host with the error
    /// that this has.
    pub(crate) fn scaled_time_of(&self, case: &Case) -> Option<f64> {
        let text = case.to_string();
        let sized = |text: &str| {
            let (path, size) = text.rsplit_once(" x ")?;
            let bytes = size.parse::<Bytes>().ok().filter(|bytes| bytes.0 >= LEAST_SCALED)?;
            Some((path.to_owned(), bytes.as_f64()))
        };
        let (path, bytes) = sized(&text)?;
        let others = self.cases.iter().filter_map(|(text, known)| Some((sized(text)?, known.1)));
        let same = others.filter(|((other, _), _)| *other == path);
        let nearest = same.map(|((_, size), ns)| ((size / bytes).ln().abs(), ns * bytes / size));
        let time = nearest.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, ns)| ns);
        let gpus =
            case.timed.iter().all(|f| f.src.unit.gpu().is_some() && f.dst.unit.gpu().is_some());
        time.map(|ns| if gpus { ns } else { ns * HOST_SIZE_ERROR })
    }

    /// The host, or the machine that was simulated on any.
    pub fn node_name(&self) -> String {
        self.simulated.as_ref().map_or(self.host.clone(), |name| format!("{name} (simulated)"))
    }

    /// A digest without cases.
    pub fn empty(begin: &RunBegin, topology: &Topology) -> Self {
        Self {
            digest: DIGEST_SCHEMA,
            version: begin.version.clone(),
            host: begin.host.clone(),
            simulated: match &begin.world {
                WorldKind::Real => None,
                WorldKind::Simulated(name) => Some(name.clone()),
            },
            started: begin.started.clone(),
            hardware: hardware_fingerprint(topology),
            software: software_fingerprint(begin, topology),
            facts: facts(begin, topology),
            cases: BTreeMap::new(),
            classes: BTreeMap::new(),
            ends: None,
        }
    }

    /// `kernel 6.4.0, GPU driver 580.1`: what a reader knows a node's software by.
    pub(crate) fn facts_text(&self) -> String {
        let facts = self.facts.iter().filter(|(name, _)| *name != "GPUs" && *name != "CPU");
        facts.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }

    /// What differs from an earlier result: `kernel: 5.14.0 to 6.4.0`.
    pub(crate) fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.facts.keys().chain(earlier.facts.keys()).collect();
        let value = |digest: &Self, name: &str| digest.facts.get(name).cloned();
        let changed = names.into_iter().filter_map(|name| {
            let (before, now) = (value(earlier, name), value(self, name));
            let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
            (before != now).then(|| format!("{name}: {} to {}", text(before), text(now)))
        });
        changed.collect()
    }

    /// Adds a case by the times of one operation, ns.
    pub fn add(&mut self, case: &Case, times_ns: &[f64], reps: u64, timer: String) {
        let times = ascending(times_ns.iter().copied());
        let at = |share: f64| rounded(interpolated(&times, share).unwrap_or_default());
        if times.is_empty() {
            return;
        }
        let text = case.to_string();
        *self.classes.entry(class_of(&text)).or_default() += 1;
        self.cases.insert(text, (times.len(), at(0.5), at(0.25), at(0.75), reps, timer));
    }

    /// Keeps about this share of the cases: those whose text has a small hash, so that runs of the same
    /// plan keep the same.
    pub fn thin(&mut self, share: f64) {
        let least = (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        self.cases.retain(|text, _| fnv(text.bytes()) <= least);
    }

    /// Reads a digest, also as a part of the result of a health check.
    ///
    /// # Errors
    /// No JSON, another format, or impossible times.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let misfit = |error: serde_json::Error| DigestError::Format(error.to_string());
        let within = || {
            let mut value: serde_json::Value = serde_json::from_str(text).map_err(misfit)?;
            if let Some(part) = value.get_mut("digest").filter(|part| part.is_object()) {
                value = part.take();
            }
            serde_json::from_value(value).map_err(misfit)
        };
        // A fleet has 100,000 of them, most alone in their file.
        let digest: Self = serde_json::from_str(text).or_else(|_| within())?;
        if digest.digest != DIGEST_SCHEMA {
            let why = format!("format {} is not {DIGEST_SCHEMA}", digest.digest);
            return Err(DigestError::Format(why));
        }
        let sane = |case: &CaseDigest| case.1.is_finite() && case.1 > 0.0;
        match digest.cases.iter().find(|(_, case)| !sane(case)) {
            Some((text, case)) => {
                Err(DigestError::Format(format!("'{text}' has a median of {} ns", case.1)))
            }
            None => Ok(digest),
        }
    }

    /// Compares this run with earlier ones of the same node and software that have it. Each case is divided by
    /// the median of its class in its run, so that what slows all paths of a kind alike counts for the class.
    /// `alpha` is the probability at most that an unchanged node has a significant case, if the logarithms
    /// of times are normally distributed between runs.
    ///
    /// # Errors
    /// A digest of another node.
    pub fn against(
        &self,
        history: &[Self],
        loss: f64,
        alpha: f64,
    ) -> Result<HistoryComparison, DigestError> {
        for earlier in history {
            let (node, other) = (self.node_name(), earlier.node_name());
            if other != node || earlier.hardware != self.hardware {
                let changed = if other == node { " with other parts" } else { "" };
                let (other, started) = (format!("{other}{changed}"), earlier.started.clone());
                return Err(DigestError::OtherNode { other, started, node });
            }
        }
        let of_software: Vec<&Self> =
            history.iter().filter(|d| d.software == self.software).collect();
        let common = |d: &Self| d.cases.keys().filter(|c| self.cases.contains_key(*c)).count();
        let usual = interpolated(&ascending(of_software.iter().map(|d| common(d) as f64)), 0.5);
        let is_cut = |d: &&Self| {
            let cut = d.ends.is_some_and(|ends| !ends.ended);
            cut || 2.0 * (common(d) as f64) < usual.unwrap_or_default()
        };
        let (cut, same): (Vec<&Self>, Vec<&Self>) = of_software.iter().partition(|d| is_cut(d));
        let relative: Vec<BTreeMap<&str, f64>> = same.iter().map(|d| d.relative()).collect();
        let mine = self.relative();
        let least = same.len().clamp(1, MIN_HISTORY);
        let common: Vec<(&str, f64, Vec<f64>)> = mine
            .iter()
            .map(|(&case, &now)| {
                (case, now, relative.iter().filter_map(|run| run.get(case).copied()).collect())
            })
            .filter(|(_, _, before): &(_, _, Vec<f64>)| before.len() >= least)
            .collect();
        let judges = same.len() >= MIN_HISTORY;
        let mut slower: Vec<SlowerCase> = Vec::new();
        for (case, now, before) in &common {
            let n = before.len() as f64;
            let mean = before.iter().sum::<f64>() / n;
            let lost = 1.0 - (mean - now).exp();
            if lost < loss {
                continue;
            }
            let before: Vec<RunEstimate> = before.iter().map(|&x| estimate(x)).collect();
            let compared = RunComparison::of(&before, &[estimate(*now)], USUAL_NOISE, 0.0);
            let probability = compared.filter(|_| judges).map(|compared| compared.p_value);
            slower.push(SlowerCase { case: (*case).to_owned(), loss: lost, probability });
        }
        slower.sort_by(|a, b| b.loss.total_cmp(&a.loss));
        let allowed = alpha / common.len().max(1) as f64;
        let significant = slower.iter().any(|s| s.probability.is_some_and(|p| p < allowed));
        let compared: Vec<&str> = common.iter().map(|(case, ..)| *case).collect();
        Ok(HistoryComparison {
            runs: same.len(),
            other_software: history.len() - of_software.len(),
            left_out: cut.iter().map(|digest| digest.started.clone()).collect(),
            cases: common.len(),
            slower,
            slow_class: self.slow_class(&same, &compared),
            significant,
            undecided: self.undecided(&same, compared.len()),
        })
    }

    /// The class that lost most of all that are slower than in each of these runs.
    fn slow_class(&self, runs: &[&Self], compared: &[&str]) -> Option<(String, f64)> {
        let mut classes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for case in compared {
            classes.entry(class_of(case)).or_default().push(case);
        }
        let time = |digest: &Self, case: &str| digest.cases.get(case).map(|known| known.1.ln());
        let lost = |(class, cases): (String, Vec<&str>)| {
            let usual = |case: &str| {
                interpolated(&ascending(runs.iter().filter_map(|run| time(run, case))), 0.5)
            };
            let above = |digest: &Self| {
                let of_case = |case: &&str| Some(time(digest, case)? - usual(case)?);
                interpolated(&ascending(cases.iter().filter_map(of_case)), 0.5)
            };
            let now = above(self)?;
            let is_slowest = runs.iter().filter_map(|run| above(run)).all(|before| before < now);
            let loss = 1.0 - (-now).exp();
            (is_slowest && loss > REFERENCE_ERROR).then_some((class, loss))
        };
        classes.into_iter().filter_map(lost).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Why a comparison of this many cases with these runs says nothing if it found nothing.
    fn undecided(&self, runs: &[&Self], compared: usize) -> Option<String> {
        if runs.len() < MIN_HISTORY {
            return Some(format!("{MIN_HISTORY} are needed to judge"));
        }
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        runs.iter()
            .flat_map(|run| run.cases.keys())
            .for_each(|c| *known.entry(c).or_default() += 1);
        known.retain(|case, count| 2 * *count > runs.len() && !self.cases.contains_key(*case));
        if let Some(first) = known.keys().next() {
            return Some(format!(
                "{} of their cases are missing here, such as {first}",
                known.len()
            ));
        }
        // A digest of a large plan keeps a share of its cases.
        let kept = |run: &&Self| {
            run.cases.len() as f64 / run.classes.values().sum::<usize>().max(1) as f64
        };
        let share = runs.iter().map(kept).fold(0.0, f64::max).min(1.0);
        if compared == 0 || 2.0 * (compared as f64) < share * self.cases.len() as f64 {
            return Some("few of its cases are in enough of them".to_owned());
        }
        let unverified = |run: &Self| run.ends.map(|ends| ends.unverified);
        let most = runs.iter().filter_map(|run| unverified(run)).max()?;
        let now = unverified(self).filter(|now| *now > most)?;
        Some(format!("the bytes of {now} cases were not verified, before of at most {most}"))
    }

    /// Logarithm of the time of each case divided by the median of its class; a class of fewer than three
    /// says nothing about its members.
    fn relative(&self) -> BTreeMap<&str, f64> {
        let mut classes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (text, case) in &self.cases {
            classes.entry(class_of(text)).or_default().push(case.1.ln());
        }
        let medians: BTreeMap<String, f64> = classes
            .into_iter()
            .map(|(class, times)| {
                let all = ascending(times);
                let median = interpolated(&all, 0.5).filter(|_| all.len() >= 3);
                (class, median.unwrap_or_default())
            })
            .collect();
        let of_class = |text: &str| medians.get(&class_of(text)).copied().unwrap_or_default();
        self.cases.iter().map(|(text, c)| (text.as_str(), c.1.ln() - of_class(text))).collect()
    }
}

/// A run's logarithm of a relative time. Its own error is small against what lies between runs.
fn estimate(log_median: f64) -> RunEstimate {
    RunEstimate { log_median, error: 0.0, freedom: 1.0, samples: 1, visits: 1 }
}

/// The text of a case without the numbers of its units: `gpu.vram > gpu.vram by dma@gpu x 64MiB`.
fn class_of(case: &str) -> String {
    rename_units(case, |kind, _| kind.to_owned())
}

fn rounded(ns: f64) -> f64 {
    if ns <= 0.0 || !ns.is_finite() {
        return ns;
    }
    let scale = 10_f64.powi(DIGITS - 1 - ns.log10().floor() as i32);
    // Division by a power of ten gives the shortest text, which multiplication by its inverse does not.
    if scale >= 1.0 { (ns * scale).round() / scale } else { (ns * scale).round() * scale.recip() }
}

fn hardware_fingerprint(topology: &Topology) -> String {
    let host = &topology.host;
    let mut text = format!("{} {} {}", host.arch, host.cpu_model, host.sockets);
    for numa in &topology.numa {
        // Installed memory varies by what the firmware takes.
        text += &format!(" numa{} {} {}", numa.id, numa.cpus.len(), numa.memory.0 >> 32);
    }
    for gpu in &topology.gpus {
        let link = gpu.host_link.map(|link| (link.max_width, link.max_speed_gts));
        text += &format!(
            " gpu{} {} {} {} {} {link:?}",
            gpu.index, gpu.name, gpu.arch, gpu.pci, gpu.compute_units
        );
    }
    let mut links: Vec<String> =
        topology.links.iter().map(|l| format!(" {}-{} {}", l.a, l.b, l.kind)).collect();
    links.sort();
    fingerprint(&(text + &links.concat()))
}

/// Parts and software that a reader knows by name.
fn facts(begin: &RunBegin, topology: &Topology) -> BTreeMap<String, String> {
    let mut gpus: BTreeMap<&str, usize> = BTreeMap::new();
    topology.gpus.iter().for_each(|gpu| *gpus.entry(&gpu.name).or_default() += 1);
    let gpus: Vec<String> = gpus.iter().map(|(name, count)| format!("{count} x {name}")).collect();
    let drivers: BTreeSet<&str> = begin.gpus.values().map(|gpu| gpu.source.as_str()).collect();
    let limits: BTreeSet<String> = begin
        .gpus
        .values()
        .filter_map(|gpu| gpu.power_limit_w)
        .map(|w| format!("{w:.0} W"))
        .collect();
    let known = [
        ("CPU", topology.host.cpu_model.clone()),
        ("kernel", topology.host.kernel.clone()),
        ("GPUs", gpus.join(", ")),
        ("GPU driver", drivers.into_iter().collect::<Vec<_>>().join(", ")),
        ("power limit", limits.into_iter().collect::<Vec<_>>().join(", ")),
        ("pathline", begin.version.clone()),
    ];
    let set = begin.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let known = known.into_iter().map(|(name, value)| (name.to_owned(), value));
    known.filter(|(_, value)| !value.is_empty()).chain(set).collect()
}

fn software_fingerprint(begin: &RunBegin, topology: &Topology) -> String {
    let drivers: Vec<(&Unit, &str)> = begin
        .gpus
        .iter()
        .map(|(unit, facts): (_, &GpuFacts)| (unit, facts.source.as_str()))
        .collect();
    fingerprint(&format!(
        "{} {drivers:?} {:?} {:?} {}",
        topology.host.kernel, begin.env, begin.machine_sha256, begin.version
    ))
}

fn fingerprint(text: &str) -> String {
    format!("{:016x}", fnv(text.bytes()))
}

/// FNV-1a, 64 bits, with the finalizer of splitmix64, since short texts differ in few low bits.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12 pairs of 4 GPUs, 64 MiB in 160 us, which run `nth` makes slower by 0.05 % of its number.
    fn run(nth: u32, slow: f64) -> RunDigest {
        let mut begin = RunBegin::new(WorldKind::Real);
        (begin.host, begin.started) = ("node7".into(), format!("2026-11-{nth:02}T00:00:00Z"));
        let mut digest = RunDigest::empty(&begin, &Topology::default());
        for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            let case = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 64MiB");
            let wobble = 1.0 + 0.0005 * f64::from((nth * 7 + a * 3 + b) % 5);
            let factor = if (a, b) == (2, 3) { 1.0 / (1.0 - slow) } else { 1.0 };
            let time = 160e3 * (1.0 + 0.01 * f64::from(nth)) * wobble * factor;
            digest.add(&case.parse().expect("a case"), &[time; 9], 2, "device-events".into());
        }
        digest
    }

    #[test]
    fn a_path_that_lost_a_tenth_is_found_and_what_slows_all_is_not() {
        let history: Vec<RunDigest> = (1..=8).map(|nth| run(nth, 0.0)).collect();
        // The ninth run is 9 % slower on all paths.
        let same = run(9, 0.0).against(&history, 0.03, 1e-5).expect("comparable");
        assert_eq!((same.runs, same.cases, same.slower.len()), (8, 12, 0));
        let slow = run(9, 0.1).against(&history, 0.03, 1e-5).expect("comparable");
        assert_eq!(slow.slower.len(), 1);
        let first = &slow.slower[0];
        assert!(first.case.starts_with("r0.gpu2.vram > r0.gpu3.vram"), "{first:?}");
        assert!((first.loss - 0.1).abs() < 0.002 && slow.significant, "{first:?}");
        // Each of 12 cases has a twelfth of the level.
        let probability = first.probability.expect("a probability");
        for (times, significant) in [(12.1, true), (11.9, false)] {
            let found =
                run(9, 0.1).against(&history, 0.03, times * probability).expect("comparable");
            assert_eq!(found.significant, significant);
        }
        // Four runs say what they were, and no probability.
        let few = run(9, 0.1).against(&history[..4], 0.03, 1e-5).expect("comparable");
        assert!(!few.significant && few.slower[0].probability.is_none());
    }

    #[test]
    fn another_node_is_refused_by_name_and_other_software_left_out() {
        let mut other = run(1, 0.0);
        other.host = "node8".into();
        let error = run(9, 0.0).against(&[other], 0.03, 1e-5).expect_err("another node");
        assert!(error.to_string().contains("node8") && error.to_string().contains("node7"));
        let mut other = run(1, 0.0);
        other.hardware = "0".into();
        let error = run(9, 0.0).against(&[other], 0.03, 1e-5).expect_err("other parts");
        assert!(error.to_string().contains("with other parts"), "{error}");
        let mut other = run(1, 0.0);
        other.software = "0".into();
        let compared = run(9, 0.0).against(&[other], 0.03, 1e-5).expect("comparable");
        assert_eq!((compared.runs, compared.other_software, compared.cases), (0, 1, 0));
        let mut other = run(1, 0.0);
        other.simulated = Some("x".into());
        assert!(run(9, 0.0).against(&[other], 0.03, 1e-5).is_err());
    }

    #[test]
    fn what_is_missing_or_slow_as_a_whole_is_not_fine() {
        let mut history: Vec<RunDigest> = (1..=6).map(|nth| run(nth, 0.0)).collect();
        let against = |digest: &RunDigest, history: &[RunDigest]| {
            digest.against(history, 0.03, 1e-5).expect("comparable")
        };
        // Times of the earlier runs are 1.01 to 1.06 of 160 us, those of the seventh 1.07.
        let mut now = run(7, 0.0);
        let found = against(&now, &history);
        assert_eq!((found.slow_class, found.undecided, found.cases), (None, None, 12));
        // A run with one case is left out, and does not keep the other cases from being compared.
        history[0].thin(0.0);
        let (case, known) = now.cases.first_key_value().expect("a case");
        history[0].cases.insert(case.clone(), known.clone());
        let found = against(&now, &history);
        assert_eq!((found.cases, found.runs, found.undecided), (12, 5, None));
        assert_eq!(found.left_out, ["2026-11-01T00:00:00Z"]);
        // A case that two of five runs had is not missed, one that three had is.
        for nth in 2..5 {
            history[nth].cases.insert("gone".to_owned(), known.clone());
            assert_eq!(against(&now, &history).undecided.is_some(), nth == 4);
        }
        history.iter_mut().for_each(|run| drop(run.cases.remove("gone")));
        // One that was cut, too; four runs are too few.
        history[1].ends = Some(DigestEnds::default());
        assert_eq!(against(&now, &history).left_out.len(), 2);
        assert!(against(&now, &history).undecided.is_some());
        history[1].ends = Some(DigestEnds { ended: true, ..DigestEnds::default() });
        // More unverified cases than before.
        now.ends = Some(DigestEnds { ended: true, unverified: 1, ..DigestEnds::default() });
        let text = against(&now, &history).undecided.expect("a reason");
        assert!(text.starts_with("the bytes of 1 cases"), "{text}");
        now.ends = None;
        // All paths take 1.25 times as long: 1 - 1 / (1.25 * 1.07 / 1.04) = 22 % against the middle run of
        // 1.02 to 1.06.
        let mut slow = now.clone();
        slow.cases.values_mut().for_each(|case| case.1 *= 1.25);
        let found = against(&slow, &history);
        assert!(!found.significant && found.slower.is_empty(), "{found:?}");
        let (class, loss) = found.slow_class.expect("a class");
        assert!(
            class.starts_with("r0.gpu.vram > ") && (loss - 0.22).abs() < 0.01,
            "{class} {loss}"
        );
        // 7 of 12 cases are gone.
        let gone: Vec<String> = now.cases.keys().take(7).cloned().collect();
        gone.iter().for_each(|case| drop(now.cases.remove(case)));
        let text = against(&now, &history).undecided.expect("a reason");
        assert!(text.starts_with("7 of their cases are missing here, such as r0.gpu"), "{text}");
        // Each case is in three of six runs.
        let mut halves: Vec<RunDigest> = (1..=6).map(|nth| run(nth, 0.0)).collect();
        for (nth, half) in halves.iter_mut().enumerate() {
            let mut at = nth;
            half.cases.retain(|_, _| {
                at += 1;
                at % 2 == 0
            });
        }
        let found = against(&run(7, 0.0), &halves);
        assert_eq!((found.cases, found.undecided.is_some()), (0, true));
    }

    /// Earlier digests of a large plan keep a few of its 12 cases, always the same: all of these are compared.
    #[test]
    fn what_earlier_digests_keep_is_enough() {
        let mut history: Vec<RunDigest> = (1..=6).map(|nth| run(nth, 0.0)).collect();
        history.iter_mut().for_each(|digest| digest.thin(0.3));
        let kept = history[0].cases.len();
        // Those that digests of other versions keep.
        let ends: Vec<&str> = history[0].cases.keys().map(|case| &case[..27]).collect();
        assert_eq!(
            ends,
            [
                "r0.gpu2.vram > r0.gpu0.vram",
                "r0.gpu2.vram > r0.gpu1.vram",
                "r0.gpu3.vram > r0.gpu1.vram"
            ]
        );
        let found = run(7, 0.0).against(&history, 0.03, 1e-5).expect("comparable");
        assert_eq!((found.cases, found.undecided), (kept, None));
    }

    #[test]
    fn another_size_of_the_same_path_is_scaled() {
        let digest = run(1, 0.0);
        let time = |case: &str| digest.scaled_time_of(&case.parse().expect("a case"));
        let known = time("gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB").expect("a time");
        // 368 MiB take 368 / 64 = 5.75 times as long.
        let larger = time("gpu0.vram > gpu1.vram by dma@gpu0 x 368MiB").expect("a time");
        assert!((larger / known - 5.75).abs() < 1e-9);
        let mut host = digest.clone();
        let case = |size: &str| {
            format!("numa0.pinned > gpu0.vram by dma@gpu0 x {size}").parse().expect("a case")
        };
        host.add(&case("256MiB"), &[5e6], 1, "device-events".into());
        // 32 MiB take an eighth of 5 ms, and caches up to a tenth more.
        assert_eq!(host.scaled_time_of(&case("32MiB")), Some(5e6 / 8.0 * 1.1));
        assert_eq!(host.time_of(&case("32MiB")), None);
        // Small sizes do not scale, and another path is another one.
        assert_eq!(time("gpu0.vram > gpu1.vram by dma@gpu0 x 64KiB"), None);
        assert_eq!(time("gpu0.vram > gpu1.vram by dma@gpu1 x 368MiB"), None);
    }

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let digest = run(3, 0.0);
        let text = serde_json::to_string(&digest).expect("JSON");
        assert_eq!(RunDigest::parse(&text).expect("a digest"), digest);
        let part = format!("{{\"state\":\"pass\",\"digest\":{text}}}");
        assert_eq!(RunDigest::parse(&part).expect("a digest"), digest);
        assert!(RunDigest::parse("{}").is_err());
        assert!(RunDigest::parse(&text.replace("\"digest\":1", "\"digest\":9")).is_err());
        assert_eq!(digest.classes.values().copied().collect::<Vec<_>>(), [12]);
        // 5 digits: 160 us times 1.03 times 1.001 or so.
        let (_, median, ..) = digest.cases.values().next().expect("a case");
        assert_eq!(median % 10.0, 0.0, "{median}");
        let mut thin = digest.clone();
        thin.thin(0.5);
        assert!((1..12).contains(&thin.cases.len()), "{}", thin.cases.len());
    }

    /// 16 MiB in 1 ms and 64 MiB in 3.2 ms: the nearest size counts, in proportion, if both are large.
    #[test]
    fn a_time_is_scaled_from_the_nearest_large_size() {
        let mut digest = RunDigest::empty(&RunBegin::new(WorldKind::Real), &Topology::default());
        let gpus = "gpu0.vram > gpu1.vram by dma@gpu0";
        let host = "numa0.pinned > gpu1.vram by dma@gpu1";
        for (path, size, ns) in [
            (gpus, "16MiB", 1e6),
            (gpus, "64MiB", 3.2e6),
            (gpus, "8MiB", 9e6),
            (host, "16MiB", 1e6),
        ] {
            let case = format!("{path} x {size}").parse().expect("a case");
            digest.add(&case, &[ns; 3], 2, "host".into());
        }
        for (path, size, ms) in [
            (gpus, "16MiB", Some(1.0)),
            (gpus, "24MiB", Some(1.5)),
            (gpus, "48MiB", Some(2.4)),
            (gpus, "256MiB", Some(12.8)),
            (gpus, "15MiB", None),
            (host, "32MiB", Some(2.0 * 1.1)),
            ("gpu1.vram > gpu0.vram by dma@gpu1", "16MiB", None),
        ] {
            let case: Case = format!("{path} x {size}").parse().expect("a case");
            let found = digest.scaled_time_of(&case).map(|ns| ns / 1e6);
            assert!(found.zip(ms).is_none_or(|(a, b)| (a - b).abs() < 1e-9), "{case}: {found:?}");
            assert_eq!(found.is_some(), ms.is_some(), "{case}");
        }
    }

    /// Times in any order: median and quartiles of 1 to 9 us with five digits; a case without times is none.
    #[test]
    fn a_case_is_kept_by_its_quartiles_and_a_share_by_its_text() {
        let mut digest = run(1, 0.0);
        let case: Case = "gpu0.vram > gpu0.vram by blit@gpu0 x 1MiB".parse().expect("a case");
        let times = [9, 1, 8, 2, 7, 3, 6, 4, 5].map(|us| f64::from(us) * 1111.1111);
        digest.add(&case, &[], 7, "host".into());
        assert_eq!((digest.cases.len(), digest.classes.len()), (12, 1));
        digest.add(&case, &times, 7, "host".into());
        let kept = (9, 5555.6, 3333.3, 7777.8, 7, "host".to_owned());
        assert_eq!(digest.cases.get(&case.to_string()), Some(&kept));
        let classes: Vec<usize> = digest.classes.values().copied().collect();
        assert_eq!(classes.iter().sum::<usize>(), 13);
        assert!(classes.contains(&12) && classes.contains(&1));
        let share = |share: f64| {
            let mut thin = digest.clone();
            thin.thin(share);
            thin.cases.into_keys().collect::<Vec<_>>()
        };
        let counts = [-1.0, 0.0, 0.5, 0.9, 1.0, 2.0].map(|of| share(of).len());
        assert!(
            counts.is_sorted() && counts[..2] == [0, 0] && counts[4..] == [13, 13],
            "{counts:?}"
        );
        assert!(counts[2] > 0 && share(0.5).iter().all(|case| share(0.9).contains(case)));
        for (ns, expected) in [
            (0.0, 0.0),
            (-1.0, -1.0),
            (123_456.7, 123_460.0),
            (0.123_456_7, 0.12346),
            (99_999.9, 1e5),
        ] {
            assert_eq!(rounded(ns), expected);
        }
        let facts = [("CPU", "c"), ("GPUs", "g"), ("kernel", "6.4"), ("libc", "2")];
        digest.facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(digest.facts_text(), "kernel 6.4, libc 2");
    }

    /// Of a class of three the median counts, of one of two nothing.
    #[test]
    fn a_time_is_relative_to_its_class_from_three_cases_on() {
        for (count, expected) in
            [(2, [10_f64.ln(), 20_f64.ln(), 0.0]), (3, [0.5_f64.ln(), 0.0, 2_f64.ln()])]
        {
            let mut digest =
                RunDigest::empty(&RunBegin::new(WorldKind::Real), &Topology::default());
            for (gpu, ns) in [10.0, 20.0, 40.0].into_iter().enumerate().take(count) {
                let case = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x 1MiB");
                digest.add(&case.parse().expect("a case"), &[ns; 3], 2, "host".into());
            }
            let found: Vec<f64> = digest.relative().into_values().collect();
            assert_eq!(found.len(), count);
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        }
    }
}
