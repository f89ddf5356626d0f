//! Trials that measure cases, in a new process each block where the machine has processes.

use std::collections::BTreeMap;

use pathline_advise::{
    ArmEnv, ArmTask, MpiReport, TrialArm, TrialCost, TrialRunner, is_shown_by_choice,
};
use pathline_bench::{
    CaseTask, Executor, InterruptCheck, PlannedCase, RunPlan, TaskEnd, TaskEvent,
};
use pathline_schema::{Case, Flow, JournalRecord, MeasuredCase, MpiControls, Ns, Transport};
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
    /// What a library chose for each arm that was measured, by the arm's text.
    chosen: BTreeMap<String, String>,
    /// The MPI of the ranks, and what they reported of it for each arm.
    mpi: Option<MpiControls>,
    reports: BTreeMap<String, MpiReport>,
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
        let (chosen, reports) = (BTreeMap::new(), BTreeMap::new());
        Self { executor, plan, interrupt, begun, chosen, mpi: None, reports }
    }

    /// The same with ranks that have this MPI, without any setting.
    #[must_use]
    pub fn with_mpi(self, mpi: Option<MpiControls>) -> Self {
        Self { mpi, ..self }
    }

    /// What the process of an arm is started with.
    fn env(&self, arm: &TrialArm) -> ArmEnv {
        let planned = match &arm.task {
            ArmTask::Case(case) => self.plan.get(case).map(|entry| entry.env.clone()),
            ArmTask::Command => None,
        };
        let mut env = planned.unwrap_or_default();
        env.extend(arm.env.clone());
        env
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
        let (mut chosen, mut report) = (None, None);
        let by_mpi = is_by_mpi(case);
        let end = self.executor.measure(&task, self.interrupt, &mut |event| {
            match event {
                TaskEvent::Record(JournalRecord::Measured(measured)) => {
                    result = cost(&measured);
                    let mut engines = measured.series.iter().map(|series| &series.engine);
                    match by_mpi {
                        true => report = engines.next().map(|engine| MpiReport::read(engine)),
                        false => {
                            let of = |engine: &String| library_choice(engine).map(str::to_owned);
                            chosen = engines.find_map(of);
                        }
                    }
                }
                TaskEvent::Record(JournalRecord::Faulted(fault)) => result = Err(fault.error),
                TaskEvent::Record(JournalRecord::Skipped(skip)) => result = Err(skip.why),
                _ => {}
            }
            Ok(())
        });
        if let Some(chosen) = chosen {
            self.chosen.insert(arm.to_string(), chosen);
        }
        if let Some(report) = report {
            self.reports.insert(arm.to_string(), report);
        }
        match end {
            Ok(TaskEnd::Done) => result,
            Ok(TaskEnd::Lost(loss)) => Err(loss.error),
            Ok(TaskEnd::Gone(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TrialRunner for CaseTrials<'_> {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
        // Each process makes its files again, which takes longer than to read them, and their speed is
        // no state of a process.
        let on_files = |arm: &&TrialArm| match &arm.task {
            ArmTask::Case(case) => case.flows().all(|flow| flow.by.is_on_files()),
            ArmTask::Command => false,
        };
        let envs: Vec<ArmEnv> = arms.iter().map(|arm| self.env(arm)).collect();
        // An arm whose neighbour has the same environment would share its process, and others would not: the
        // cost of an arm must not depend on where it stands, so then each has a process for itself.
        let is_shared = envs.windows(2).all(|pair| pair[0] == pair[1]);
        let mut is_due = !arms.iter().all(on_files);
        let measure = |arm: &&TrialArm| {
            if is_due || !is_shared {
                self.executor.restart();
            }
            is_due = false;
            self.measure(arm).map(TrialCost::from)
        };
        arms.iter().map(measure).collect()
    }
    fn is_model(&self) -> bool {
        self.executor.about().world.is_model()
    }
    fn elapsed(&self) -> f64 {
        (self.executor.now() - self.begun).as_secs()
    }
    fn interrupted(&self) -> Option<String> {
        (self.interrupt)()
    }
    fn honoured(&mut self, baseline: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        let differs = |(name, value): &(&String, &String)| baseline.env.get(*name) != Some(*value);
        let changed: ArmEnv =
            arm.env.iter().filter(differs).map(|(n, v)| (n.clone(), v.clone())).collect();
        let report = |arm: &TrialArm| self.reports.get(&arm.to_string());
        if let (Some(before), Some(after)) = (report(baseline), report(arm)) {
            return after.judge(before, &changed, self.mpi.as_ref()?);
        }
        let chosen = |arm: &TrialArm| self.chosen.get(&arm.to_string());
        let (before, after) = (chosen(baseline)?, chosen(arm)?);
        if before == after && is_shown_by_choice(&changed) {
            return Some(Err(format!("the library chooses {after} with and without it")));
        }
        Some(Ok(after.clone()))
    }
}

/// Whether an MPI carries all that is timed.
fn is_by_mpi(case: &Case) -> bool {
    let by_mpi =
        |flow: &Flow| flow.by.wire().is_some_and(|wire| wire.via.carrier() == Transport::Mpi);
    case.timed.iter().all(by_mpi)
}

/// What a collective library chose, in the texts of the engines that ports of the ranks report: `ring ll on 2
/// channels` of `NCCL 2.28.3, ring ll on 2 channels, via P2P/CUMEM, buffers registered`. None if no log shows
/// it; only the first rank logs choices.
fn library_choice(engines: &str) -> Option<&str> {
    if let Some(modelled) = engines.strip_suffix(", a model") {
        return modelled.split_once(": ").map(|(_, chosen)| chosen);
    }
    // What follows where the log shows no choice.
    let others = ["via ", "buffers ", "not all buffers "];
    engines.split(" | ").find_map(|engine| {
        let chosen = engine.split(", ").nth(1)?;
        (!others.iter().any(|other| chosen.starts_with(other))).then_some(chosen)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_a_library_is_read_from_its_engine() {
        let found = |engine: &str| library_choice(engine).map(str::to_owned);
        let whole = "NCCL 2.28.3, ring ll128 on 16 channels, via P2P/CUMEM, buffers registered";
        assert_eq!(found(whole).as_deref(), Some("ring ll128 on 16 channels"));
        let second = format!("NCCL 2.28.3, via P2P/CUMEM, buffers registered | {whole}");
        assert_eq!(found(&second).as_deref(), Some("ring ll128 on 16 channels"));
        assert_eq!(found("nccl: ring, LL, a model").as_deref(), Some("ring, LL"));
        let kernel = "NCCL 2.28.3, Kernel AllReduce_AGxLL_R nchannels 1";
        assert_eq!(found(kernel).as_deref(), Some("Kernel AllReduce_AGxLL_R nchannels 1"));
        for none in ["NCCL 2.19, via SHM", "NCCL 2.19", "", "copy engine", "copy, a model"] {
            assert_eq!(found(none), None, "{none}");
        }
        assert_eq!(found("NCCL 2.28.3, not all buffers registered"), None);
    }
}
