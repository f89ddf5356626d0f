//! Trials that measure cases, in a new process each block where the machine has processes.

use std::collections::BTreeMap;

use pathline_advise::{ArmTask, TrialArm, TrialRunner};
use pathline_bench::{
    CaseTask, Executor, InterruptCheck, PlannedCase, RunPlan, TaskEnd, TaskEvent,
};
use pathline_schema::{Case, JournalRecord, MeasuredCase, Ns};
use pathline_stats::SeriesSummary;

/// Time of a case in a block, unless it takes longer once. A block is one sample of the proof, so its
/// precision matters less than the number of blocks.
const ARM_TIME: Ns = Ns(20_000_000.0);

/// Measures the cases of arms.
pub struct CaseTrials<'a> {
    executor: &'a mut dyn Executor,
    plan: BTreeMap<Case, PlannedCase>,
    interrupt: InterruptCheck<'a>,
    begun: Ns,
}

impl<'a> CaseTrials<'a> {
    /// On the machine of an executor. The plan has each case of the arms, with the environment that it
    /// needs here or the reason why it cannot be measured.
    pub fn new(
        executor: &'a mut dyn Executor,
        plan: RunPlan,
        interrupt: InterruptCheck<'a>,
    ) -> Self {
        let begun = executor.now();
        let plan = plan.entries.into_iter().map(|entry| (entry.case.clone(), entry)).collect();
        Self { executor, plan, interrupt, begun }
    }

    fn measure(&mut self, arm: &TrialArm) -> Result<f64, String> {
        let ArmTask::Case(case) = &arm.task else {
            return Err("a command is no case".to_owned());
        };
        let Some(entry) = self.plan.get(case) else {
            return Err(format!("{case}: not planned"));
        };
        if let Some(why) = &entry.skip {
            return Err(why.clone());
        }
        let mut entry = PlannedCase { budget: Some(ARM_TIME), group: 0, ..entry.clone() };
        entry.env.extend(arm.env.clone());
        let task = CaseTask { entries: vec![entry], carried: Vec::new() };
        let mut result = Err("it has no outcome".to_owned());
        let end = self.executor.measure(&task, self.interrupt, &mut |event| {
            match event {
                TaskEvent::Record(JournalRecord::Measured(measured)) => result = cost(&measured),
                TaskEvent::Record(JournalRecord::Faulted(fault)) => result = Err(fault.error),
                TaskEvent::Record(JournalRecord::Skipped(skip)) => result = Err(skip.why),
                _ => {}
            }
            Ok(())
        });
        match end {
            Ok(TaskEnd::Done) => result,
            Ok(TaskEnd::Lost(loss)) => Err(loss.error),
            Ok(TaskEnd::Gone(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TrialRunner for CaseTrials<'_> {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<f64, String>> {
        // Each process makes its files again, which takes longer than to read them, and their speed is
        // no state of a process.
        let on_files = |arm: &&TrialArm| match &arm.task {
            ArmTask::Case(case) => case.flows().all(|flow| flow.by.is_on_files()),
            ArmTask::Command => false,
        };
        if !arms.iter().all(on_files) {
            self.executor.restart();
        }
        arms.iter().map(|arm| self.measure(arm)).collect()
    }
    fn elapsed(&self) -> f64 {
        (self.executor.now() - self.begun).as_secs()
    }
    fn interrupted(&self) -> Option<String> {
        (self.interrupt)()
    }
}

/// Time for a byte of the slowest timed flow, in ns; of one step where no bytes are counted.
fn cost(measured: &MeasuredCase) -> Result<f64, String> {
    let mut slowest = 0.0_f64;
    for series in &measured.series {
        let Some(summary) = SeriesSummary::of(&series.samples_ns) else {
            return Err("it has no sample".to_owned());
        };
        let amount = match series.moved_bytes.0 {
            0 => series.steps,
            bytes => bytes,
        };
        slowest = slowest.max(summary.median / amount.max(1) as f64);
    }
    if slowest > 0.0 { Ok(slowest) } else { Err("it took no time".to_owned()) }
}
