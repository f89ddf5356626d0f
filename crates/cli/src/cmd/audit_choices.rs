//! Choices of a library of collectives next to its default, for `pathline advise --collectives`.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use pathline_advise::{
    Advice, AdviceChoice, AdviceLimits, AdviceScope, TrialArm, advise, answers_text,
};
use pathline_message::{ExchangeOp, ExchangeSpec};
use pathline_runner::{
    CaseTrials, HostMachine, MachineChoice, MachineModel, RankJob, RunRequest, StorePlaces,
};
use pathline_schema::{Case, RunSettings};

use super::case_machine::{on_machine, plan_cases};
use super::setting_words::parse_settings;
use crate::args::AuditArgs;
use crate::progress::StopRequest;
use crate::say::{out, width};

/// A setting that gains less is no choice: runs of a node differ by as much.
const LEAST_GAIN: f64 = 0.03;

/// What trials found: an answer for each operation.
pub(super) struct ChoiceTrials {
    answers: Vec<Advice>,
    limits: AdviceLimits,
}

impl ChoiceTrials {
    /// Asks of each operation whether a setting of --set gains, as `pathline advise` does.
    pub(super) fn new(args: &AuditArgs, exchanges: &[ExchangeSpec]) -> Result<Self> {
        let cases: Vec<Case> = exchanges.iter().map(collective_case).collect::<Result<_>>()?;
        let scopes: Vec<AdviceScope> =
            cases.iter().map(|case| question(case, &args.set)).collect::<Result<_>>()?;
        let count = exchanges.iter().map(|exchange| exchange.members().len()).max().unwrap_or(0);
        let machine = args.on.as_deref().unwrap_or(&args.machine);
        let machine = match machine {
            "here" => MachineChoice::Host(HostMachine {
                libraries: Default::default(),
                stores: StorePlaces::default(),
            }),
            name => MachineChoice::Model(Box::new(MachineModel::read(name)?)),
        };
        let request = RunRequest {
            machine,
            settings: RunSettings::default(),
            memory: None,
            job: Some(RankJob::Own { count: count as u32, nodes: None }),
            limit: None,
            faults: Vec::new(),
            repeat: 0,
        };
        let usual = AdviceLimits::default();
        let budget = args.budget.as_secs_f64();
        let limits = AdviceLimits { min_gain: LEAST_GAIN, budget, ..usual };
        let stopper = StopRequest::new(Instant::now(), None);
        let answers = on_machine(&request, &stopper, |executor| {
            let about = executor.about().clone();
            let all: BTreeSet<Case> = cases.into_iter().collect();
            let plan = plan_cases(&about, all, &request)?;
            let interrupt = || stopper.reason();
            let mut runner = CaseTrials::new(executor, plan, &interrupt);
            Ok(advise(&scopes, &mut runner, &limits, &mut |_| ()))
        })?;
        Ok(Self { answers, limits })
    }

    /// The best gain that each operation has shown.
    pub(super) fn best_gains(&self) -> Vec<Option<f64>> {
        let of = |answer: &Advice| {
            let proven = answer.gain.map(|gain| gain.gain);
            proven.or_else(|| answer.screened.first()?.gain)
        };
        self.answers.iter().map(of).collect()
    }

    /// Prints the answers.
    pub(super) fn show(&self) {
        out!("\n{}\n", answers_text(&self.answers, &self.limits, width()));
    }
}

/// Whether one of these settings gains in a collective.
fn question(case: &Case, sets: &[String]) -> Result<AdviceScope> {
    let baseline = TrialArm::of_case("default", case.clone());
    let choice = |words: &String| {
        let env = parse_settings(words)?;
        Ok(AdviceChoice {
            arm: baseline.with_env(words, env.clone()),
            action: format!("Set {words}"),
            cost: String::new(),
            settings: env,
            guards: Vec::new(),
            ignored: None,
            nodes: 1,
        })
    };
    let choices = sets.iter().map(choice).collect::<Result<_>>()?;
    let subject = case.to_string();
    Ok(AdviceScope { ends: subject.clone(), subject, baseline, choices })
}

/// The case of a collective whose first GPUs have a process each.
pub(super) fn collective_case(exchange: &ExchangeSpec) -> Result<Case> {
    let ExchangeOp::Collective { op, over } = &exchange.what else {
        bail!("{exchange}: it is no collective")
    };
    let last = over.len().saturating_sub(1);
    if over.iter().enumerate().any(|(nth, member)| member.gpu as usize != nth) {
        bail!(
            "--measure has a process for each of the first GPUs; name --gpus 0-{last}, or --runs"
        );
    }
    let bytes = exchange.bytes;
    let text = format!("r0.gpu0.vram > r{last}.gpu{last}.vram by ccl@gpu0[{op}] x {bytes}");
    text.parse().map_err(|error| anyhow!("{text}: {error}"))
}
