//! Choices of a library of collectives next to its default, for `pathline audit`.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use pathline_advise::{ArmEnv, TrialArm, TrialRunner};
use pathline_audit::{
    DefaultCheck, DefaultVerdict, KEEP_LEVEL, LEAST_GAIN, LedgerRow, PairedChoice,
};
use pathline_message::{ExchangeOp, ExchangeSpec};
use pathline_runner::{
    CaseTrials, HostMachine, MachineChoice, MachineModel, RankJob, RunRequest, StorePlaces,
};
use pathline_schema::{Case, RunSettings};

use super::advise::settings;
use super::audit::{collective_case, name};
use super::case_machine::{on_machine, plan_cases};
use crate::args::AuditArgs;
use crate::progress::StopRequest;
use crate::say::{outln, paragraph};

/// What trials found.
#[derive(Debug, Default)]
pub(super) struct ChoiceTrials {
    /// The choices of each operation.
    checks: Vec<DefaultCheck>,
    /// Blocks of all settings.
    blocks: usize,
    /// Time of a block.
    block_seconds: f64,
    /// Settings that do not act or fail, with the reason.
    dropped: Vec<(String, String)>,
    /// Why the trials ended before all was decided.
    ended: Option<String>,
}

impl ChoiceTrials {
    /// Measures the default and each setting of --set in blocks, each arm once in a block and in an order that
    /// changes from block to block, until all operations are decided or the time is over.
    pub(super) fn new(args: &AuditArgs, exchanges: &[ExchangeSpec]) -> Result<Self> {
        let mut envs = vec![ArmEnv::new()];
        for words in &args.set {
            envs.push(settings(words)?);
        }
        let cases: Vec<Case> = exchanges.iter().map(collective_case).collect::<Result<_>>()?;
        let members = exchanges.iter().filter_map(|exchange| match &exchange.what {
            ExchangeOp::Collective { over, .. } => Some(over.len()),
            _ => None,
        });
        let count = members.max().unwrap_or(0) as u32;
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
            job: Some(RankJob::Own { count, nodes: None }),
            limit: None,
            faults: Vec::new(),
            repeat: 0,
        };
        let stopper = StopRequest::new(Instant::now(), None);
        on_machine(&request, &stopper, |executor| {
            let about = executor.about().clone();
            let plan =
                plan_cases(&about, cases.iter().cloned().collect::<BTreeSet<_>>(), &request)?;
            let interrupt = || stopper.reason();
            let mut runner = CaseTrials::new(executor, plan, &interrupt);
            Ok(Self::run(&mut runner, &cases, &args.set, &envs, args.budget.as_secs_f64()))
        })
    }

    fn run(
        runner: &mut dyn TrialRunner,
        cases: &[Case],
        labels: &[String],
        envs: &[ArmEnv],
        budget: f64,
    ) -> Self {
        let mut found = Self::default();
        for _ in cases {
            let mut check = DefaultCheck::default();
            check.choices.extend(labels.iter().map(PairedChoice::new));
            found.checks.push(check);
        }
        let arm = |env: usize, case: usize| {
            let label = if env == 0 { "default" } else { labels.get(env - 1).map_or("", |l| l) };
            let arm = TrialArm::of_case(label, cases.get(case)?.clone());
            Some(arm.with_env(label, envs.get(env)?.clone()))
        };
        loop {
            let open: Vec<usize> = (0..cases.len()).filter(|&at| found.is_open(at)).collect();
            let ended = runner.interrupted().or_else(|| {
                let is_over = found.blocks > 0 && runner.elapsed() >= budget;
                is_over.then(|| format!("the {budget:.0} s of --budget are over"))
            });
            if open.is_empty() || ended.is_some() {
                found.ended = ended.filter(|_| !open.is_empty());
                return found;
            }
            // All operations of a setting in one process. Each setting comes at each place in turn, so that
            // what drifts over a block favours none.
            let mut order: Vec<usize> = (0..envs.len()).collect();
            order.rotate_left(found.blocks % envs.len().max(1));
            if found.blocks / envs.len().max(1) % 2 == 1 {
                order.reverse();
            }
            let keys: Vec<(usize, usize)> =
                order.iter().flat_map(|env| open.iter().map(|case| (*env, *case))).collect();
            let arms: Vec<TrialArm> =
                keys.iter().filter_map(|(env, case)| arm(*env, *case)).collect();
            let costs = runner.block(&arms.iter().collect::<Vec<_>>());
            if runner.interrupted().is_some() {
                continue;
            }
            let cost = |env: usize, case: usize| {
                let at = keys.iter().position(|key| *key == (env, case))?;
                costs.get(at)
            };
            for &case in &open {
                for (nth, label) in labels.iter().enumerate() {
                    match (cost(0, case), cost(nth + 1, case)) {
                        (Some(Ok(default)), Some(Ok(choice))) => {
                            if let Some(check) = found.checks.get_mut(case) {
                                check.choice(label).add(default.cost, choice.cost);
                            }
                        }
                        (Some(Err(why)), _) => {
                            found.drop_at(case, label, &format!("the default fails: {why}"))
                        }
                        (_, Some(Err(why))) => found.drop_at(case, label, why),
                        _ => {}
                    }
                    let pair = arm(0, case).zip(arm(nth + 1, case));
                    let shown = pair.and_then(|(a, b)| runner.honoured(&a, &b));
                    if let Some(Err(why)) = shown {
                        found.drop_at(case, label, &format!("it does not act: {why}"));
                    }
                }
            }
            found.blocks += 1;
            found.block_seconds = runner.elapsed() / found.blocks as f64;
        }
    }

    fn is_open(&self, at: usize) -> bool {
        let Some(check) = self.checks.get(at) else { return false };
        let is_decided =
            || matches!(check.verdict(), Some(DefaultVerdict::Keep | DefaultVerdict::Change(_)));
        !check.choices.is_empty() && !is_decided()
    }

    /// Leaves a setting out of an operation.
    fn drop_at(&mut self, case: usize, label: &str, why: &str) {
        if let Some(check) = self.checks.get_mut(case) {
            check.choices.retain(|choice| choice.setting != label);
        }
        let entry = (label.to_owned(), why.to_owned());
        if !self.dropped.contains(&entry) {
            self.dropped.push(entry);
        }
    }

    /// Puts the choices into the rows, which are of the same operations.
    pub(super) fn fill(&self, rows: &mut [LedgerRow]) {
        for (row, check) in rows.iter_mut().zip(&self.checks) {
            row.choices = check.clone();
        }
    }

    /// What was tried and not compared.
    pub(super) fn show(&self) {
        for (label, why) in &self.dropped {
            paragraph(&format!("{label}: not compared, {why}."), 2);
        }
        if let Some(why) = &self.ended {
            outln!("Trials ended after {} blocks: {why}.", self.blocks);
        }
    }

    /// Seconds that a pair of each choice takes.
    pub(super) fn pair_seconds(&self) -> Option<f64> {
        (self.blocks > 0).then_some(self.block_seconds)
    }
}

/// Says of each operation with choices whether the default is to be kept.
pub(super) fn show_verdicts(rows: &[LedgerRow], pair_seconds: Option<f64>) {
    let bound = LEAST_GAIN * 100.0;
    let mut kept = Vec::new();
    let mut judged = 0;
    for row in rows {
        let Some((verdict, (best, gain))) = row.choices.verdict().zip(row.choices.best()) else {
            continue;
        };
        judged += 1;
        let what = format!("{} x {}", name(row), row.exchange.bytes);
        match verdict {
            DefaultVerdict::Keep => kept.push((what, best.setting.clone(), gain)),
            DefaultVerdict::Change(setting) => {
                let choice = row.choices.choices.iter().find(|choice| choice.setting == setting);
                let gain = choice.and_then(|choice| row.choices.gain(choice)).unwrap_or(gain);
                let text = format!("CHANGE {what}: {setting} gains {gain}, {} pairs.", gain.pairs);
                paragraph(&text, 2);
            }
            DefaultVerdict::Unclear { more_pairs } => {
                let open = row.choices.choices.iter().map(PairedChoice::pairs).min();
                let pairs = open.unwrap_or(0);
                let more = match (more_pairs, pair_seconds) {
                    (None, _) => "its gain is too close to that for any number of pairs".to_owned(),
                    (Some(more), Some(seconds)) => format!(
                        "about {more} more pairs decide, {:.0} s",
                        (more as f64 * seconds).ceil()
                    ),
                    (Some(more), None) => format!(
                        "about {more} more runs of each, default and settings in turn, decide"
                    ),
                };
                let text = format!(
                    "UNCLEAR {what}: {} {gain} over {pairs} pair{}; {more}.",
                    best.setting,
                    if pairs == 1 { "" } else { "s" }
                );
                paragraph(&text, 2);
            }
        }
    }
    if let Some((what, setting, gain)) = kept.iter().max_by(|a, b| a.2.high.total_cmp(&b.2.high)) {
        let text = format!(
            "KEEP the default in {} of {judged} rows: no setting gains {bound:.0} %, wrong with probability \
             {:.0} % at most. The most that one may: {what}, {setting} {gain}, {} pairs.",
            kept.len(),
            KEEP_LEVEL * 100.0,
            gain.pairs
        );
        paragraph(&text, 0);
    }
}
