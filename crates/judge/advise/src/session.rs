//! A session: what runs its trials, its limits, and its blocks.

use crate::arm::TrialArm;
use crate::guard_figure::{GuardFigure, TrialCost};
use crate::trial_record::TrialRecord;

/// Runs trials.
pub trait TrialRunner {
    /// Measures arms, each once and in this order, in processes that no earlier block used where the
    /// machine has processes. The costs in the same order: time, or anything of which less is better;
    /// or why there is none.
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>>;
    /// The figures that trials give besides their cost and that a change must not make worse.
    fn guard_figures(&self) -> Vec<GuardFigure> {
        Vec::new()
    }
    /// Seconds that have passed, on the clock of the machine.
    fn elapsed(&self) -> f64;
    /// Why everything must end now, if it must.
    fn interrupted(&self) -> Option<String>;
    /// Whether trials are simulated: what they show is what a model assumes.
    fn is_model(&self) -> bool {
        false
    }
    /// What a library chose for an arm that was measured, or why the settings by which it differs from the
    /// baseline do not act in its process. None if nothing shows it.
    fn honoured(&mut self, baseline: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        let _ = (baseline, arm);
        None
    }
    /// Learns of a trial that an earlier session made instead of this runner.
    fn repeat(&mut self, record: &TrialRecord) {
        let _ = record;
    }
}

/// Limits of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceLimits {
    /// Least gain that is worth a change: 0.01 is 1 %.
    pub min_gain: f64,
    /// Largest probability that the session recommends anything falsely.
    pub level: f64,
    /// Seconds that it may take.
    pub budget: f64,
    /// Seconds of which the trials that select take their share, if an earlier session with another budget made
    /// them.
    pub begun_with: Option<f64>,
    /// Of the orders of arms.
    pub seed: u64,
}

impl Default for AdviceLimits {
    fn default() -> Self {
        Self { min_gain: 0.01, level: 0.01, budget: 120.0, begun_with: None, seed: 1 }
    }
}

/// A step of a session, for its display.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceStep<'a> {
    /// `selecting`, `proving`, `checking`.
    pub doing: &'static str,
    /// What is moved.
    pub subject: &'a str,
    /// The choice at hand; empty while several are compared.
    pub choice: &'a str,
    /// Blocks of this step so far.
    pub blocks: usize,
}

/// The trials of a session, and its limits.
pub(crate) struct AdviceSession<'a> {
    pub(crate) runner: &'a mut dyn TrialRunner,
    pub(crate) limits: &'a AdviceLimits,
    pub(crate) random: fastrand::Rng,
    pub(crate) show: &'a mut dyn FnMut(AdviceStep<'_>),
}

/// What a block gave.
pub(crate) struct BlockCosts {
    pub(crate) baselines: Result<[TrialCost; 2], String>,
    /// In the order of the choices.
    pub(crate) choices: Vec<Result<TrialCost, String>>,
}

impl BlockCosts {
    /// The baselines with the one choice.
    pub(crate) fn only(self) -> (Result<[TrialCost; 2], String>, Result<TrialCost, String>) {
        let none = || Err("it was not measured".to_owned());
        (self.baselines, self.choices.into_iter().next().unwrap_or_else(none))
    }
}

impl AdviceSession<'_> {
    /// Why no further block may begin.
    pub(crate) fn is_over(&self, share: f64) -> Option<String> {
        self.runner.interrupted().or_else(|| {
            let budget = self.limits.budget;
            (self.runner.elapsed() >= share * budget)
                .then(|| format!("the {budget:.0} s of --budget are over"))
        })
    }

    /// One block in a drawn order: the baseline twice and each of `choices` once. None if the session was
    /// interrupted: whoever ends it ends the trial in flight, which says nothing of its arm.
    pub(crate) fn block(
        &mut self,
        baseline: &TrialArm,
        choices: &[&TrialArm],
    ) -> Option<BlockCosts> {
        let arms = [&[baseline, baseline], choices].concat();
        let mut order: Vec<usize> = (0..arms.len()).collect();
        self.random.shuffle(&mut order);
        let drawn: Vec<&TrialArm> = order.iter().filter_map(|&i| arms.get(i).copied()).collect();
        let none = || Err("it was not measured".to_owned());
        let mut costs: Vec<Result<TrialCost, String>> = vec![none(); arms.len()];
        for (cost, &at) in self.runner.block(&drawn).into_iter().zip(&order) {
            if let Some(slot) = costs.get_mut(at) {
                *slot = cost;
            }
        }
        let mut costs = costs.into_iter();
        let mut next = || costs.next().unwrap_or_else(none);
        let (a, b) = (next(), next());
        let baselines = a.and_then(|a| Ok([a, b?]));
        let choices = choices.iter().map(|_| next()).collect();
        self.runner.interrupted().is_none().then_some(BlockCosts { baselines, choices })
    }
}
