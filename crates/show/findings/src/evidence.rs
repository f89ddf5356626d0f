//! Values that findings may rest on, and comparisons of them.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::{
    CaseFate, FailedParts, SlowGroup, TrainedLink, compare_run, drain_node, reduced_links,
    slow_groups,
};
use pathline_explain::case_end::CaseEnds;
use pathline_explain::fmt;
use pathline_explain::run::{CaseQuantity, RunEntry, RunView};
use pathline_explain::run_identity::machine_of;
use pathline_flow::Network;
use pathline_schema::{
    Case, CaseOutcome, CopyAgent, Flow, Gpu, GpuCaps, GpuState, Journal, RunNote, SizeEffect,
    Topology, shell_word,
};

use crate::{ExpectedGain, FindingArm, GainBasis};

/// Least gain that is worth a finding. Between two processes of one node 9 of 10 host paths differ by
/// up to 5 % (fixtures `h200-x4` and `h200-x4-again`), which no interval of one process shows.
pub(crate) const LEAST_GAIN: f64 = 0.05;

/// The widest 95 % interval, to one side and relative, of a value that a finding rests on.
const WIDEST: f64 = 0.1;

/// Warnings whose results no finding rests on: the median is not that of one state, or not of what the
/// case names.
const SUSPECT_CODES: [&str; 8] = [
    "unsteady",
    // Of older journals.
    "bimodal",
    "wandering",
    "not-migrated",
    "memory-type",
    "beyond-ceiling",
    RunNote::UNLIKE_NEIGHBOURS,
    RunNote::OTHER_DOMAIN,
];

/// A measured run without the results that a finding must not rest on.
pub(crate) struct Evidence<'a> {
    /// Without results that are beyond a ceiling or that other programs disturbed.
    pub(crate) run: RunView<'a>,
    /// The machine as the model knows it.
    pub(crate) network: Option<&'a Network>,
    suspect: BTreeSet<&'a str>,
    /// Paths that are slower than their peers, by their cause.
    pub(crate) slow_groups: Vec<SlowGroup>,
    /// The cases of these paths that show it, the worst of the first group first.
    pub(crate) slow: Vec<Case>,
    /// These and others that the same part slows: they show the fault, and nothing else.
    pub(crate) covered: Vec<Case>,
    /// Results that rest on assumed constants of a model, which `run` lacks.
    assumed: Vec<RunEntry<'a>>,
    /// Links that the node itself states to be less than they should.
    pub(crate) reduced: Vec<TrainedLink>,
    /// The parts that failed cases have in common, if they have any.
    pub(crate) failed: Option<FailedParts>,
    /// Number of cases that were not started, since their part had failed before.
    pub(crate) not_started: usize,
    /// Number of cases that were compared with peers.
    pub(crate) compared: usize,
    /// Number of results that are left out.
    disturbed: usize,
}

/// What GPUs reported while cases moved bytes over their link to the host.
fn loaded_states(journal: &Journal) -> BTreeMap<u32, GpuState> {
    let measured = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) => Some(measured),
        _ => None,
    });
    let is_host = |flow: &Flow| [flow.src, flow.dst].iter().any(|at| at.unit.numa().is_some());
    let on_host = measured.filter(|measured| measured.case.flows().any(is_host));
    let states = on_host.flat_map(|measured| &measured.gpus);
    let states = states.filter_map(|(unit, read)| Some((unit.gpu()?, read.during.clone()?)));
    states.filter(|(_, state)| state.pcie.is_some()).collect()
}

/// The health check of the node of a run.
pub(crate) fn health_command(run: &RunView) -> String {
    let machine = machine_of(&run.journal.begin);
    match run.simulated().map(|name| machine.unwrap_or(name)) {
        Some(machine) => format!("pathline health -m {}", shell_word(machine)),
        None => "pathline health".to_owned(),
    }
}

/// Memory that lies on another NUMA domain than the run asked for, `pages of numa1 lie on numa3`, and what to do.
pub fn find_misplaced(journal: &Journal) -> Option<(String, String)> {
    let note = journal.notes.iter().find(|note| note.code == RunNote::OTHER_DOMAIN)?;
    let domain = note.text.split_whitespace().nth(2)?;
    let action =
        format!("`numastat -m` shows what fills {domain}; free it, or run where it is free");
    Some((note.text.clone(), action))
}

/// The part that fails in a run, in a sentence without a full stop, `gpu3 hangs: ...`, and what to do.
pub fn find_failure(journal: &Journal, network: Option<&Network>) -> Option<(String, String)> {
    let (failed, not_started) = failed_parts(journal, network);
    let failed = failed?;
    let text = failure_text(&failed, not_started);
    Some((text, failure_action(&failed, &RunView::new(journal, network))))
}

/// What to do about parts that fail: no more jobs, which part it is, its remedy.
pub(crate) fn failure_action(failed: &FailedParts, run: &RunView) -> String {
    let which = match failed.is_open() && !failed.parts.is_empty() {
        true => format!("`{}` tells which it is; ", health_command(run)),
        false => String::new(),
    };
    format!("{}; {which}{}", drain_node(&run.journal.begin), failed.remedy(run.topology()))
}

fn failure_text(failed: &FailedParts, not_started: usize) -> String {
    let more = match not_started {
        0 => String::new(),
        1 => "; 1 more was not started".to_owned(),
        n => format!("; {n} more were not started"),
    };
    format!("{}{more}", failed.sentence("case"))
}

/// What the cases that failed have in common, and how many were not started.
fn failed_parts(journal: &Journal, network: Option<&Network>) -> (Option<FailedParts>, usize) {
    let ends = CaseEnds::new(journal);
    let of_node: BTreeSet<&Case> = ends.of_node.iter().map(|fault| &fault.case).collect();
    let cases = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) => Some((&measured.case, CaseFate::Completed)),
        CaseOutcome::Faulted(fault) if of_node.contains(&fault.case) => {
            Some((&fault.case, CaseFate::Failed(&fault.error)))
        }
        CaseOutcome::Faulted(fault) => {
            fault.was_started().then_some((&fault.case, CaseFate::Ended))
        }
        CaseOutcome::Skipped(_) => None,
    });
    let cases: Vec<_> = cases.collect();
    (FailedParts::new(&cases, &journal.topology, network), ends.not_started.len())
}

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SoundValue<'a> {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) unit: &'static str,
    pub(crate) case: &'a Case,
}

impl<'a> Evidence<'a> {
    pub(crate) fn new(journal: &'a Journal, network: Option<&'a Network>) -> Self {
        let notes = journal.notes.iter();
        let suspect = notes.filter(|note| SUSPECT_CODES.contains(&note.code.as_str()));
        let whole = RunView::new(journal, network);
        let run = whole.sound();
        // What rests on an assumed constant of a model is left out, too, and is not disturbed.
        let real = |run: &RunView| run.entries.iter().filter(|e| !e.is_assumed()).count();
        let disturbed = real(&whole) - real(&run);
        let facts = journal.begin.gpus.iter();
        let facts = facts.filter_map(|(unit, facts)| Some((unit.gpu()?, facts.clone()))).collect();
        let comparison = compare_run(journal, network);
        let mut unlike = comparison.unlike_paths(&journal.topology);
        // What is assumed of a model is the same for all of a class.
        let assumed: Vec<RunEntry<'a>> =
            whole.entries.iter().filter(|entry| entry.is_assumed()).copied().collect();
        unlike.retain(|path| {
            run.entry(&path.case).is_some() || assumed.iter().any(|entry| *entry.case == path.case)
        });
        let slow_groups = slow_groups(unlike);
        let slow = comparison.cases.iter().filter(|case| case.slow && case.peers > 1);
        let mut slow: Vec<Case> = slow.map(|case| case.case.clone()).collect();
        let worst = slow_groups.first().and_then(SlowGroup::worst).map(|path| &path.case);
        slow.sort_by_key(|case| Some(case) != worst);
        let all: Vec<&Case> = whole.entries.iter().map(|entry| entry.case).collect();
        let covered = match slow_groups.is_empty() {
            true => Vec::new(),
            false => comparison.covered(&journal.topology, network, &all),
        };
        let (failed, not_started) = failed_parts(journal, network);
        Self {
            failed,
            not_started,
            slow_groups,
            slow,
            covered,
            assumed,
            run,
            network,
            suspect: suspect.map(|note| note.subject.as_str()).collect(),
            reduced: reduced_links(&journal.topology, network, &facts, &loaded_states(journal)),
            compared: comparison.compared(),
            disturbed,
        }
    }

    /// The same with the results that rest on assumed constants of a model.
    pub(crate) fn with_assumed(mut self) -> Self {
        self.run.entries.append(&mut self.assumed);
        self
    }

    /// The value of a case; none if it has too few samples for an interval, too wide a one, or a warning, or if a
    /// part that is slow makes it slow.
    pub(crate) fn value(
        &self,
        entry: &RunEntry<'a>,
        quantity: CaseQuantity,
    ) -> Option<SoundValue<'a>> {
        let value = self.value_of_any(entry, quantity, false)?;
        (!self.covered.contains(value.case)).then_some(value)
    }

    /// The value of a path that may be slow: the time of a chain of loads, else a rate.
    pub(crate) fn value_of_slow(&self, case: &Case) -> Option<SoundValue<'a>> {
        let assumed = || self.assumed.iter().find(|entry| entry.case == case);
        let entry = self.run.entry(case).or_else(assumed)?;
        // Two states are what a path that comes and goes has.
        let mut paths = self.slow_groups.iter().flat_map(|group| &group.paths);
        let has_states = paths.any(|path| path.comes_and_goes && path.case == *case);
        let value = |quantity| self.value_of_any(entry, quantity, has_states);
        match entry.lone().is_some_and(|flow| flow.by.is_chase()) {
            true => value(CaseQuantity::StepUs),
            false => value(CaseQuantity::Payload).or_else(|| self.extremes(entry)),
        }
    }

    fn value_of_any(
        &self,
        entry: &RunEntry<'a>,
        quantity: CaseQuantity,
        has_states: bool,
    ) -> Option<SoundValue<'a>> {
        let shown = entry.shown(quantity)?;
        let own = shown.interval?;
        let of_node = self.run.node_interval(entry.case, quantity);
        let (low, high) = of_node.map_or((own.low, own.high), |node| (node.low, node.high));
        let (value, unit, case) = (shown.value, quantity.unit(), entry.case);
        let narrow = high - low <= 2.0 * WIDEST * value;
        let is_sound = narrow && !self.suspect.contains(case.to_string().as_str());
        (has_states || is_sound).then_some(SoundValue { value, low, high, unit, case })
    }

    /// Number of results that were beyond a ceiling or disturbed.
    pub(crate) fn disturbed(&self) -> usize {
        self.disturbed
    }

    /// Payload of a case, GB/s.
    pub(crate) fn rate(&self, entry: &RunEntry<'a>) -> Option<SoundValue<'a>> {
        self.value(entry, CaseQuantity::Payload)
    }

    /// Payload of a case of five visits, one less than an interval takes, between the extremes of its samples:
    /// these hold the median with 1 - 2 / 2^5 = 94 %. Slow copies fit into their time limit no more often.
    pub(crate) fn rate_of_few(&self, entry: &RunEntry<'a>) -> Option<SoundValue<'a>> {
        let [series] = entry.series() else { return None };
        let found = self.extremes(entry).filter(|_| series.visits.len() == 5)?;
        (!self.covered.contains(found.case)).then_some(found)
    }

    /// Payload of a case of one flow between the extremes of its samples.
    fn extremes(&self, entry: &RunEntry<'a>) -> Option<SoundValue<'a>> {
        let [series] = entry.series() else { return None };
        let shown = entry.shown(CaseQuantity::Payload)?;
        let rates = series.samples_ns.iter().map(|ns| series.moved_bytes.as_f64() / ns);
        let (low, high) = range_of(&rates.collect::<Vec<_>>())?;
        let (value, unit, case) = (shown.value, CaseQuantity::Payload.unit(), entry.case);
        let is_narrow = low < value && high - low <= 2.0 * WIDEST * value;
        let is_sound = is_narrow && !self.suspect.contains(case.to_string().as_str());
        is_sound.then_some(SoundValue { value, low, high, unit, case })
    }

    /// Time of one step of a case, us.
    pub(crate) fn time(&self, entry: &RunEntry<'a>) -> Option<SoundValue<'a>> {
        self.value(entry, CaseQuantity::StepUs)
    }

    /// What failed, in a sentence without a full stop; none where nothing did, or no few parts explain it.
    pub(crate) fn failure(&self) -> Option<String> {
        Some(failure_text(self.failed.as_ref()?, self.not_started))
    }

    /// Whether a part hangs: comparisons of all paths then lack the paths of that part.
    pub(crate) fn hangs(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.hangs)
    }

    /// What the node states of the part that slows some paths: `xGMI gpu0-gpu6 runs 1 of 2 links`.
    pub(crate) fn stated_loss(&self, part: &str) -> Option<String> {
        self.reduced.iter().find(|link| link.is_part(part))?.loss()
    }

    /// Cases of one timed flow without background.
    pub(crate) fn lone(&self) -> impl Iterator<Item = (&RunEntry<'a>, &'a Flow)> {
        self.run.entries.iter().filter_map(|entry| Some((entry, entry.lone()?)))
    }

    pub(crate) fn topology(&self) -> &'a Topology {
        self.run.topology()
    }

    pub(crate) fn gpu(&self, index: u32) -> Option<&'a Gpu> {
        self.topology().gpus.iter().find(|gpu| gpu.index == index)
    }

    /// Capabilities of the runtime of the first GPU; those of an unknown one without GPUs.
    pub(crate) fn caps(&self) -> &'static GpuCaps {
        self.topology().gpus.first().map_or(GpuCaps::of_vendor(""), Gpu::caps)
    }

    /// What carried the runtime's copies of a case: `SDMA`, `blit kernel`. `None` if it has none.
    pub(crate) fn copies_by(&self, entry: &RunEntry<'a>) -> Option<&'static str> {
        Some(match entry.copy_agent()? {
            CopyAgent::Engine => self.caps().engine_name,
            CopyAgent::Kernel => CopyAgent::Kernel.engine(),
        })
    }

    /// The command that judges this node: `pathline health -m sick.toml`.
    pub(crate) fn health(&self) -> String {
        health_command(&self.run)
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.run.simulated().is_some()
    }

    /// A gain whose two sides are both in the run.
    pub(crate) fn gain(&self, factors: &[f64]) -> Option<ExpectedGain> {
        let basis = if self.is_simulated() { GainBasis::Simulated } else { GainBasis::Measured };
        let factor = range_of(factors)?;
        Some(ExpectedGain { factor, basis })
    }
}

impl SoundValue<'_> {
    pub(crate) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// `50.3 GB/s ±0.4 %`
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.plain_text(), self.within_text())
    }

    /// `50.3 GB/s`
    pub(crate) fn plain_text(&self) -> String {
        format!("{} {}", fmt::number(self.value), self.unit)
    }

    /// ` ±0.4 %`
    pub(crate) fn within_text(&self) -> String {
        within_text(self.half_width() / self.value)
    }

    pub(crate) fn arm(&self, label: impl Into<String>) -> FindingArm {
        FindingArm {
            label: label.into(),
            value: self.value,
            half_width: Some(self.half_width()),
            unit: self.unit.to_owned(),
            case: self.case.clone(),
        }
    }

    /// How many times as fast this rate is as another, if both intervals agree that the gain is worth it.
    pub(crate) fn gain_over(&self, slow: &SoundValue) -> Option<f64> {
        (self.low >= (1.0 + LEAST_GAIN) * slow.high).then_some(self.value / slow.value)
    }

    /// What this rate is instead of another of that size.
    pub(crate) fn effect_on(&self, before: &SoundValue) -> Option<SizeEffect> {
        let bytes = before.case.timed.first()?.bytes;
        let [gain, low, high] =
            [self.value / before.value, self.low / before.high, self.high / before.low];
        Some(SizeEffect { bytes, gain: gain - 1.0, low: low - 1.0, high: high - 1.0 })
    }

    /// How many times as fast this time is as another, on the same terms.
    pub(crate) fn time_gain_over(&self, slow: &SoundValue) -> Option<f64> {
        slow.gain_over(self)
    }
}

/// The least and the greatest; none of none.
pub(crate) fn range_of(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// `48.6-50.4`, or one number.
pub(crate) fn range_text(values: &[SoundValue]) -> String {
    let values: Vec<f64> = values.iter().map(|v| v.value).collect();
    range_of(&values).map_or(String::new(), |(low, high)| fmt::range(low, high))
}

/// The widest half width of these values, as ` ±0.4 %`.
pub(crate) fn widest_text(values: &[SoundValue]) -> String {
    let widest = values.iter().map(|v| v.half_width() / v.value).reduce(f64::max);
    widest.map_or(String::new(), within_text)
}

fn within_text(share: f64) -> String {
    if share < 0.0005 { " ±<0.1 %".to_owned() } else { format!(" ±{}", fmt::percent(share)) }
}

/// `1.5-3.1x`
pub(crate) fn factor_text(factors: &[f64]) -> String {
    range_of(factors).map_or(String::new(), |(low, high)| format!("{}x", fmt::range(low, high)))
}

/// The median; 0 of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// GB/s that the slower of two rates lacks.
pub(crate) fn lost(fast: &SoundValue, slow: &SoundValue) -> f64 {
    (fast.value - slow.value).max(0.0)
}
