//! Choices of a library of collectives next to its default, for `pathline advise --collectives`.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use pathline_advise::{
    Advice, AdviceChoice, AdviceLimits, AdviceScope, TrialArm, advise, answers_text,
};
use pathline_diagnose::{LedgerRow, PairedChoice};
use pathline_message::ExchangeSpec;
use pathline_runner::{
    CaseTrials, HostMachine, MachineChoice, MachineModel, RankJob, RunRequest, StorePlaces,
};
use pathline_schema::{Case, RunSettings};

use super::advise::settings;
use super::audit::{collective_case, name};
use super::case_machine::{on_machine, plan_cases};
use crate::args::AuditArgs;
use crate::progress::StopRequest;
use crate::say::{out, paragraph, width};

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
        let env = settings(words)?;
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

/// Says that a difference between recorded runs proves nothing, and what does.
pub(super) fn show_pairs(rows: &[LedgerRow]) {
    for row in rows {
        let gain = |choice: &PairedChoice| choice.gain().unwrap_or(0.0);
        let best = row.choices.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let Some(best) = best else { continue };
        let (pairs, setting) = (best.pairs(), &best.setting);
        let text = format!(
            "UNDECIDED {} x {}: {setting} {:+.1} % over {pairs} pair{} of runs; the order of runs was not drawn, \
             so they prove nothing: --on here --set {setting} decides.",
            name(row),
            row.exchange.bytes,
            gain(best) * 100.0,
            if pairs == 1 { "" } else { "s" }
        );
        paragraph(&text, 2);
    }
}
