//! Collects the times of the probes as evidence, by process.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use pathline_stats::{SignEvidence, ascending, interpolated};

use crate::health::plan::HealthPlan;
use crate::health::steady::SteadyEvidence;
use crate::labels::TailKind;
use crate::peers::median_without;

/// Evidence of one process against a path is 1000:1.
const SUSPECT_LEVEL: f64 = 1e-3;
/// Evidence that the median loss of a path is less than allowed is 100:1.
const CLEAR_LEVEL: f64 = 0.01;
/// Fewest rounds of a process: 9 agreeing signs clear a path, and a slow path has evidence against it by
/// then, so that it is measured on.
const MIN_ROUNDS: u32 = 10;
/// Rounds of a process that are useful: more of them see what is shorter or rarer, but a process has only
/// one state.
const USEFUL_ROUNDS: u32 = 24;
/// Most rounds of a process; a path that is undecided then is so close to the border, or so noisy, that
/// another process is of more use.
const MAX_ROUNDS: u32 = 48;
/// Most processes in which suspects are measured.
pub(crate) const MAX_PROCESSES: usize = 16;
/// Share of its speed that no healthy path to the host was seen to lose in any process, by far.
const GREAT_LOSS: f64 = 0.2;
/// Share of processes in which a damaged path is slow. The others of a small class hide it in a process
/// where most of them are in a slow state.
const SLOW_SHARE: f64 = 0.95;
/// Peers that are measured with a suspect in a fresh process, at least.
pub(crate) const REFERENCES: usize = 5;

/// How sure a verdict must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthSettings {
    /// Probability at most that a healthy node fails, such as 1e-5, if each of its paths is slow in at most
    /// the share of processes that [`Self::state_share`] assumes.
    pub alpha: f64,
    /// Share of its speed that a path may lose on a node that passes, such as 0.03.
    pub loss: f64,
    /// Share of its speed by which a path between GPUs may differ from its peers without being
    /// suspect, such as 0.005. Paths to the host get five times as much, a GPU's own memory six times,
    /// latencies forty times.
    pub margin: f64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self { alpha: 1e-5, loss: 0.03, margin: 0.005 }
    }
}

impl HealthSettings {
    /// Share of its speed by which a path of this kind may differ from its peers.
    pub fn margin_of(&self, tail: TailKind) -> f64 {
        let times = match tail {
            TailKind::GpuLink => 1.0,
            TailKind::HostLink => 5.0,
            TailKind::Local => 6.0,
            TailKind::Latency => 40.0,
        };
        (self.margin * times).clamp(0.0, 0.5)
    }

    /// Share of processes at most in which a healthy path loses `loss` of its speed, a share. What a path
    /// to the host takes depends on where its process has pages and CPUs: one of the 40 medians of
    /// recorded runs was 5 % slow, and none more. None of 144 between GPUs was.
    pub fn state_share(&self, tail: TailKind, loss: f64) -> f64 {
        match tail {
            TailKind::GpuLink | TailKind::Local => 0.004,
            TailKind::HostLink | TailKind::Latency if loss > GREAT_LOSS => 0.02,
            TailKind::HostLink | TailKind::Latency => 0.05,
        }
    }
}

/// What one process showed about one probe.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProbeSeries {
    /// Natural logarithms of speed relative to the median of the class without this probe, by round.
    pub(crate) relative: Vec<f64>,
    /// Times, ns.
    pub(crate) times: Vec<f64>,
    /// Median times of the others of the class, ns.
    pub(crate) references: Vec<f64>,
    /// Evidence that it is slower than the margin allows.
    pub(crate) slow: SignEvidence,
    /// Evidence that it is faster than the margin allows.
    pub(crate) fast: SignEvidence,
    /// Evidence that it loses less than the allowed loss.
    pub(crate) clear: SignEvidence,
}

impl ProbeSeries {
    /// Median share of its speed that it loses against its peers; none without rounds.
    fn loss(&self) -> Option<f64> {
        Some(1.0 - interpolated(&ascending(self.relative.iter().copied()), 0.5)?.exp())
    }
    /// Distances of its rounds from their median.
    pub(crate) fn deviations(&self) -> impl Iterator<Item = f64> {
        let median = interpolated(&ascending(self.relative.iter().copied()), 0.5).unwrap_or(0.0);
        self.relative.iter().map(move |relative| (relative - median).abs())
    }
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.rejects_at(SUSPECT_LEVEL)
    }
    pub(crate) fn is_fast(&self) -> bool {
        self.fast.rejects_at(SUSPECT_LEVEL)
    }
    /// Whether it was shown not to be slower than the loss, and rounds enough did not make it suspect.
    pub(crate) fn is_clear(&self) -> bool {
        let settled = self.slow.signs() >= MIN_ROUNDS && self.slow.log10() <= 0.0;
        !self.is_slow() && settled && self.clear.rejects_at(CLEAR_LEVEL)
    }
    /// Whether it was measured long enough and is not slow.
    pub(crate) fn is_fine(&self) -> bool {
        !self.is_slow() && (self.is_clear() || self.slow.signs() >= MAX_ROUNDS)
    }
    /// Whether more rounds in this process can decide.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_slow() && !self.is_clear() && self.slow.signs() < MAX_ROUNDS
    }
    /// Whether more rounds in this process show more of what comes and goes.
    pub(crate) fn is_short(&self) -> bool {
        self.slow.signs() < USEFUL_ROUNDS
    }
}

/// Logarithm of the relative speed below which a measurement is slow: it loses `least`, a share, and three standard
/// deviations by `spread`, the median distance of such logarithms from their median.
pub(crate) fn slow_limit(least: f64, spread: f64) -> f64 {
    (1.0 - least.clamp(0.0, 0.99)).ln().min(-3.0 * 1.4826 * spread)
}

/// Collects rounds and judges them.
#[derive(Debug, Clone)]
pub struct HealthMonitor<'p> {
    pub(crate) plan: &'p HealthPlan,
    pub(crate) settings: HealthSettings,
    /// By process, then by probe.
    pub(crate) processes: Vec<Vec<ProbeSeries>>,
    /// Indices of probes, by class.
    members: Vec<Vec<usize>>,
    /// Probes that cannot be measured here.
    left_out: BTreeSet<usize>,
    /// Logarithm of relative speed below which a round counts as slow, by process and class.
    limits: Vec<Vec<f64>>,
    pub(crate) rounds: usize,
    /// Classes of paths between GPUs in which no path can be judged, once the first process is over.
    pub(crate) unjudged: OnceCell<Vec<usize>>,
}

impl<'p> HealthMonitor<'p> {
    /// Without any measurement.
    pub fn new(plan: &'p HealthPlan, settings: HealthSettings) -> Self {
        let mut members = vec![Vec::new(); plan.classes.len()];
        for (nth, probe) in plan.probes.iter().enumerate() {
            if let Some(class) = members.get_mut(probe.class) {
                class.push(nth);
            }
        }
        Self {
            plan,
            settings,
            processes: Vec::new(),
            members,
            left_out: BTreeSet::new(),
            limits: Vec::new(),
            rounds: 0,
            unjudged: OnceCell::new(),
        }
    }

    /// Expects no rounds of these probes.
    pub fn leave_out(&mut self, probes: &[usize]) {
        self.left_out.extend(probes);
    }

    /// Adds a round of process `process`, counted from 0: the time of one operation of each probe in
    /// ns, in the order of the plan; none where it was not measured in this round. Times that are not
    /// positive and finite count as not measured. A path is compared with at least one other of its
    /// class that was measured in the same round.
    pub fn add_round(&mut self, process: usize, times_ns: &[Option<f64>]) {
        if self.processes.len() <= process && process < MAX_PROCESSES * 4 {
            let empty = vec![ProbeSeries::default(); self.plan.probes.len()];
            self.processes.resize(process + 1, empty);
            self.limits.resize(process + 1, vec![f64::NEG_INFINITY; self.plan.classes.len()]);
        }
        let Some(series) = self.processes.get_mut(process) else { return };
        self.rounds += 1;
        let time = |probe: usize| {
            times_ns.get(probe).copied().flatten().filter(|ns| ns.is_finite() && *ns > 0.0)
        };
        for (class, members) in self.plan.classes.iter().zip(&self.members) {
            let measured: Vec<(usize, f64)> =
                members.iter().filter_map(|&probe| Some((probe, time(probe)?))).collect();
            let sorted = ascending(measured.iter().map(|(_, ns)| *ns));
            let low = (1.0 - self.settings.margin_of(class.tail)).ln();
            let allowed = (1.0 - self.settings.loss.clamp(0.0, 0.99)).ln();
            for (probe, ns) in measured {
                let Some(reference) = median_without(&sorted, ns) else { continue };
                let Some(series) = series.get_mut(probe) else { continue };
                let relative = (reference / ns).ln();
                series.slow.add(relative < low);
                series.fast.add(relative > -low);
                series.clear.add(relative > allowed);
                series.relative.push(relative);
                series.times.push(ns);
                series.references.push(reference);
            }
        }
        let limits = (0..self.plan.classes.len()).map(|class| self.slow_limit(process, class));
        let limits = limits.collect();
        if let Some(known) = self.limits.get_mut(process) {
            *known = limits;
        }
    }

    /// A round is slow if it loses more than the allowed loss, twice the margin of its kind, and three
    /// standard deviations of the rounds of its class, by their median distance from the median of their
    /// path: what is noise on all paths of a class is no fault of one.
    fn slow_limit(&self, process: usize, class: usize) -> f64 {
        let tail = self.plan.classes.get(class).map_or(TailKind::Latency, |class| class.tail);
        let least = self.settings.loss.max(2.0 * self.settings.margin_of(tail));
        let series = self.processes.get(process);
        let members = self.members(class).iter().filter_map(|&probe| series?.get(probe));
        let spread = interpolated(&ascending(members.flat_map(ProbeSeries::deviations)), 0.5);
        slow_limit(least, spread.unwrap_or(0.0))
    }

    /// Greatest share of its speed that a round of a class may lose without being slow.
    pub(crate) fn unseen_loss(&self, class: usize) -> f64 {
        let limits = self.limits.iter().filter_map(|limits| limits.get(class));
        let limits = limits.filter(|limit| limit.is_finite());
        1.0 - limits.copied().fold(0.0, f64::min).exp()
    }

    /// Relative speeds of the rounds in which a path was slow, and the number of all of its rounds, by process.
    fn slow_rounds(&self, probe: usize) -> impl Iterator<Item = (Vec<f64>, usize)> {
        let class = self.plan.probes.get(probe).map_or(0, |probe| probe.class);
        self.processes.iter().zip(&self.limits).filter_map(move |(series, limits)| {
            let (series, limit) = (series.get(probe)?, limits.get(class)?);
            let slow = series.relative.iter().copied().filter(|relative| relative < limit);
            (!series.relative.is_empty()).then_some((slow.collect(), series.relative.len()))
        })
    }

    /// Logarithm of the median speed of the rounds in which a path was slow.
    pub(crate) fn slow_speed(&self, probe: usize) -> Option<f64> {
        let slow = ascending(self.slow_rounds(probe).flat_map(|(slow, _)| slow));
        interpolated(&slow, 0.5)
    }

    /// What all rounds of all processes say about whether a path is slow now and then.
    pub(crate) fn steadiness(&self, probe: usize) -> SteadyEvidence {
        // Its own processes do not say how much one of them loses.
        let state_share = self.settings.state_share(self.tail(probe), 0.0);
        let mut evidence = SteadyEvidence::default();
        for (slow, rounds) in self.slow_rounds(probe) {
            evidence.add_process(slow.len(), rounds, state_share);
        }
        evidence
    }

    /// Probes that are slower than their peers in a process.
    pub fn suspects(&self) -> Vec<usize> {
        let slow = |&probe: &usize| self.series(probe).any(ProbeSeries::is_slow);
        (0..self.plan.probes.len()).filter(slow).collect()
    }

    /// Probes with peers that were not shown to be within the loss and steady.
    pub fn undecided(&self) -> Vec<usize> {
        let probes = 0..self.plan.standing;
        probes.filter(|&probe| self.has_peers(probe) && !self.is_cleared(probe)).collect()
    }

    /// Whether a path was shown to lose less than allowed, and not to be slow now and then.
    pub(crate) fn is_cleared(&self, probe: usize) -> bool {
        let clear: f64 = self.series(probe).map(|series| series.clear.log10()).sum();
        clear >= -CLEAR_LEVEL.log10() && self.steadiness(probe).is_steady()
    }

    /// What each process that measured a probe showed about it.
    pub(crate) fn series(&self, probe: usize) -> impl Iterator<Item = &ProbeSeries> {
        let of_process = move |series: &'_ Vec<ProbeSeries>| -> bool {
            series.get(probe).is_some_and(|series| !series.times.is_empty())
        };
        self.processes.iter().filter(move |s| of_process(s)).filter_map(move |s| s.get(probe))
    }

    pub(crate) fn members(&self, class: usize) -> &[usize] {
        self.members.get(class).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn tail(&self, probe: usize) -> TailKind {
        let class = self.plan.probes.get(probe).and_then(|p| self.plan.classes.get(p.class));
        class.map_or(TailKind::Latency, |class| class.tail)
    }

    pub(crate) fn has_peers(&self, probe: usize) -> bool {
        let known = self.plan.probes.get(probe).filter(|_| !self.left_out.contains(&probe));
        known.is_some_and(|p| self.plan.peers(p.class) > 0)
    }

    /// Whether a suspect is slow in so large a share of processes, with so much evidence in them, that
    /// neither a state of some processes nor noise explains it.
    ///
    /// With processes as samples this is an e-process again: the likelihood of a path that is slow in
    /// [`SLOW_SHARE`] of processes, relative to one that is slow in [`HealthSettings::state_share`].
    pub(crate) fn is_confirmed(&self, probe: usize) -> bool {
        let paths = self.plan.standing.max(1) as f64;
        let asked = (paths / self.settings.alpha.max(1e-300)).log10();
        let slow = self.series(probe).filter(|series| series.is_slow());
        let loss = slow.filter_map(ProbeSeries::loss).fold(f64::INFINITY, f64::min);
        let share = self.settings.state_share(self.tail(probe), loss);
        let (mut agreement, mut greatest, mut evidence) = (0.0, 0.0f64, 0.0);
        for series in self.series(probe) {
            if series.is_slow() {
                agreement += (SLOW_SHARE / share).log10();
                evidence += series.slow.log10();
            } else if series.is_fine() {
                agreement += ((1.0 - SLOW_SHARE) / (1.0 - share)).log10();
            }
            greatest = greatest.max(agreement);
        }
        greatest >= asked && evidence >= asked
    }

    /// Whether a path is slow in some processes or rounds, more often than healthy paths are.
    pub(crate) fn is_unstable(&self, probe: usize) -> bool {
        let (slow, fine) = (self.slow_processes(probe), self.fine_processes(probe));
        !self.is_confirmed(probe)
            && (self.steadiness(probe).is_unsteady() && !(slow > 0 && fine == 0)
                || slow > 0 && fine > 0 && !self.is_process_state(probe))
    }

    /// Whether a suspect is slow in few of its processes, as healthy paths are: no reason to fail it.
    pub(crate) fn is_process_state(&self, probe: usize) -> bool {
        let slow = self.slow_processes(probe);
        slow > 0 && self.fine_processes(probe) >= 2 * slow
    }

    /// Whether more processes can show that a suspect is always slow. One that is fine in one process
    /// alone may still be confirmed.
    pub(crate) fn needs_process(&self, probe: usize) -> bool {
        let is_settled = self.steadiness(probe).is_unsteady() && self.fine_processes(probe) > 1;
        self.has_peers(probe)
            && self.slow_processes(probe) > 0
            && !self.is_confirmed(probe)
            && !self.is_process_state(probe)
            && !is_settled
    }

    /// Whether a path to the host was faster than its peers in the only process that measured it: perhaps
    /// most of them are slow there, and hide one that always is.
    pub(crate) fn hides_others(&self, probe: usize) -> bool {
        self.by_process(self.tail(probe))
            && self.has_peers(probe)
            && self.series(probe).any(|series| series.fast.rejects_at(CLEAR_LEVEL))
            && self.slow_processes(probe) + self.fine_processes(probe) < 2
    }

    /// Whether the time of healthy paths of a kind depends on the process.
    pub(crate) fn by_process(&self, tail: TailKind) -> bool {
        matches!(tail, TailKind::HostLink | TailKind::Latency)
    }

    pub(crate) fn slow_processes(&self, probe: usize) -> usize {
        self.series(probe).filter(|series| series.is_slow()).count()
    }

    /// Whether a process has measured it long enough without finding it slow.
    pub(crate) fn was_fine(&self, probe: usize) -> bool {
        self.fine_processes(probe) > 0
    }

    fn fine_processes(&self, probe: usize) -> usize {
        self.series(probe).filter(|series| series.is_fine()).count()
    }
}

#[cfg(test)]
mod tests;
