//! Trials that are kept while they are made, so that an interrupted session goes on where it stopped.
//!
//! A session decides by its seed, by what trials cost and by the time that they took. So a later session that
//! is given the kept trials in their order makes the same decisions, asks for the same next trial, and comes to
//! the same answer as one that was never interrupted.

use std::collections::{BTreeMap, VecDeque};

use crate::arm::{AdviceScope, TrialArm};
use crate::guard_figure::{GuardFigure, TrialCost};
use crate::session::TrialRunner;
use crate::trial_record::TrialRecord;

impl TrialArm {
    /// What tells it from other arms of a session: its name and the names of its variables. Values are part of
    /// the name; one that is not, as the path of a script in memory, differs between sessions.
    pub fn key(&self) -> String {
        let names: Vec<&str> = self.env.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => self.label.clone(),
            names => format!("{} [{}]", self.label, names.join(" ")),
        }
    }
}

/// All arms of questions, in order: what a session asks for.
pub fn arm_keys(scopes: &[AdviceScope]) -> Vec<String> {
    let of = |scope: &AdviceScope| {
        let choices = scope.choices.iter().map(|choice| choice.arm.key());
        let baseline = format!("{}: {}", scope.subject, scope.baseline.key());
        std::iter::once(baseline).chain(choices).collect::<Vec<String>>()
    };
    scopes.iter().flat_map(of).collect()
}

/// Writes a record where it lasts, or says why it cannot.
pub type KeepRecord<'a> = &'a mut dyn FnMut(&TrialRecord) -> Result<(), String>;

/// A runner whose trials are kept, and which first gives what was kept earlier.
pub struct KeptTrials<'a> {
    runner: &'a mut dyn TrialRunner,
    past: VecDeque<TrialRecord>,
    keep: KeepRecord<'a>,
    seconds: f64,
    /// By both arms.
    evidence: BTreeMap<(String, String), Option<Result<String, String>>>,
    /// Why nothing more can be kept.
    broken: Option<String>,
}

impl<'a> KeptTrials<'a> {
    /// `past` is what `keep` has kept so far, in order.
    pub fn new(
        runner: &'a mut dyn TrialRunner,
        past: Vec<TrialRecord>,
        keep: KeepRecord<'a>,
    ) -> Self {
        let (past, evidence) = (past.into(), BTreeMap::new());
        Self { runner, past, keep, seconds: 0.0, evidence, broken: None }
    }

    fn store(&mut self, record: &TrialRecord) {
        self.seconds += record.seconds();
        if let Err(why) = (self.keep)(record) {
            self.broken = Some(why);
        }
    }

    /// The record that stands in this place, if it is of the past.
    fn next_past(&mut self, asked: &str) -> Option<Result<TrialRecord, String>> {
        let record = self.past.pop_front()?;
        self.seconds += record.seconds();
        if record.subject_text() == asked {
            self.runner.repeat(&record);
            return Some(Ok(record));
        }
        let why = format!(
            "the kept trials have {} where this session needs {asked}: another version wrote them; start a \
             new file",
            record.subject_text()
        );
        self.broken = Some(why.clone());
        Some(Err(why))
    }

    fn trial(&mut self, arm: &TrialArm) -> Result<TrialCost, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let key = arm.key();
        match self.next_past(&format!("a trial of {key}")) {
            Some(Ok(TrialRecord::Trial { cost, .. })) => return cost,
            Some(Err(why)) => return Err(why),
            _ => {}
        }
        if let Some(why) = self.runner.interrupted() {
            return Err(why);
        }
        let begun = self.runner.elapsed();
        let cost = self.runner.block(&[arm]).pop();
        let cost = cost.unwrap_or_else(|| Err("it was not measured".to_owned()));
        let seconds = (self.runner.elapsed() - begun).max(0.0);
        // JSON has no other numbers.
        let cost = cost.and_then(|cost| match cost.is_finite() {
            true => Ok(cost),
            false => Err(format!("{} is no cost", cost.cost)),
        });
        // Whoever ends the session ends the trial in flight, which says nothing of its arm.
        if cost.is_ok() || self.runner.interrupted().is_none() {
            self.store(&TrialRecord::Trial { arm: key, seconds, cost: cost.clone() });
        }
        cost
    }
}

impl TrialRunner for KeptTrials<'_> {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
        arms.iter().map(|arm| self.trial(arm)).collect()
    }

    fn guard_figures(&self) -> Vec<GuardFigure> {
        self.runner.guard_figures()
    }

    fn is_model(&self) -> bool {
        self.runner.is_model()
    }

    /// The time that trials took: not that between two sessions.
    fn elapsed(&self) -> f64 {
        self.seconds
    }

    fn interrupted(&self) -> Option<String> {
        if self.broken.is_some() {
            return self.broken.clone();
        }
        // What was kept takes no time, and its end is where this session may stop.
        if self.past.is_empty() { self.runner.interrupted() } else { None }
    }

    fn honoured(&mut self, baseline: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        let keys = (baseline.key(), arm.key());
        if let Some(shown) = self.evidence.get(&keys) {
            return shown.clone();
        }
        if self.broken.is_some() {
            return None;
        }
        if let Some(record) = self.next_past(&format!("the evidence of {}", keys.1)) {
            let Ok(TrialRecord::Evidence { shown, .. }) = record else { return None };
            self.evidence.insert(keys, shown.clone());
            return shown;
        }
        let begun = self.runner.elapsed();
        let shown = self.runner.honoured(baseline, arm);
        if self.runner.interrupted().is_some() {
            return None;
        }
        let seconds = (self.runner.elapsed() - begun).max(0.0);
        self.evidence.insert(keys.clone(), shown.clone());
        self.store(&TrialRecord::Evidence { arm: keys.1, seconds, shown: shown.clone() });
        shown
    }
}
