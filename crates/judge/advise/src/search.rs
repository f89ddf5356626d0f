//! From questions to answers: short trials select, fresh trials prove.

use pathline_schema::{Bytes, EffectBasis};
use pathline_tuner::TunerRow;

use crate::advice::{ALIKE, Advice, AdviceVerdict, ScreenedChoice};
use crate::arm::{AdviceChoice, AdviceScope, TrialArm};
use crate::by_size::say_by_size;
use crate::gain_bound::GainBound;
use crate::gain_text::{gain_text, share_text};
use crate::guard_figure::{GuardCheck, GuardOutcome, TrialCost, add_block, harm_text, open_text};
use crate::proof::{GainProof, HarmCheck, MAX_BLOCKS, ProofState, ProofTarget, TrialBlock};
use crate::session::{AdviceLimits, AdviceSession, AdviceStep, TrialRunner};
use crate::tuner_choice::tuner_row;

/// Blocks of the short trials. The median of three is not that of the one process in ten that is slow.
const SCREEN_BLOCKS: usize = 3;
/// Further blocks where they are cheap: three select a gain of 3 % among four choices in noise of 2 % in 85 %
/// of sessions, six in 95 %.
const FURTHER_SCREEN_BLOCKS: usize = 3;
/// Share of the time that short trials may take.
const SCREEN_SHARE: f64 = 0.4;
/// Share of the time after which short trials take no further block.
const CHEAP_SCREEN_SHARE: f64 = 0.1;
/// After the first block, a choice that is slower by more than this factor is not tried again.
const HOPELESS: f64 = 1.3;
/// Choices of one question that are worth a proof, the best first.
const MAX_PROOFS: usize = 2;
/// Loss of a guarded case that counts as none.
const ALLOWED_LOSS: f64 = 0.01;
/// Probability with which a larger loss of a guarded case may be overlooked.
const HARMLESS_LEVEL: f64 = 0.05;

/// Answers each question, in order. `show` is called before each block.
pub fn advise(
    scopes: &[AdviceScope],
    runner: &mut dyn TrialRunner,
    limits: &AdviceLimits,
    show: &mut dyn FnMut(AdviceStep<'_>),
) -> Vec<Advice> {
    let random = fastrand::Rng::with_seed(limits.seed);
    let mut session = AdviceSession { runner, limits, random, show };
    let selected: Vec<SelectedScope<'_>> =
        scopes.iter().map(|scope| session.select(scope, scopes.len())).collect();
    session.prove_all(selected)
}

/// A question with the choices that are worth a proof.
struct SelectedScope<'s> {
    scope: &'s AdviceScope,
    screened: Vec<ScreenedChoice>,
    /// The best last.
    worthy: Vec<&'s AdviceChoice>,
    answer: Option<(AdviceVerdict, String)>,
    /// Choices that can act, with what bounds their gain, in the order of the question.
    bounds: Vec<(&'s AdviceChoice, GainBound)>,
    /// Why the default is kept if no bound is shown: no choice is left that a proof is worth.
    keep: Option<String>,
    /// What no choice gains.
    bound: Option<f64>,
    choice: Option<&'s AdviceChoice>,
    proof: Option<GainProof>,
    /// Of the figures that the choice must not make worse.
    guards: Vec<GuardCheck>,
    /// What the last block of the proof took.
    seconds: f64,
    /// What the library chose under the proven setting.
    chosen: Option<String>,
    /// A size that the choice harms, and the gain there.
    harmed: Option<(Bytes, f64)>,
    /// The row of a tuner that does the same for this case alone, where the variable may harm others.
    by_row_only: Option<TunerRow>,
}

impl<'s> SelectedScope<'s> {
    fn new(scope: &'s AdviceScope) -> Self {
        Self {
            scope,
            screened: Vec::new(),
            worthy: Vec::new(),
            answer: None,
            bounds: Vec::new(),
            keep: None,
            bound: None,
            choice: None,
            proof: None,
            guards: Vec::new(),
            seconds: 0.0,
            chosen: None,
            harmed: None,
            by_row_only: None,
        }
    }

    fn is_in_proof(&self) -> bool {
        self.answer.is_none() && self.keep.is_none()
    }

    fn answered(mut self, verdict: AdviceVerdict, reason: String) -> Self {
        self.answer = Some((verdict, reason));
        self
    }

    /// Withdraws a choice that harms a guarded figure, or goes on with the next one.
    fn drop_harmful(&mut self, choice: &AdviceChoice, harm: &str) {
        let gain = self.proof.as_ref().and_then(GainProof::gain).filter(|gain| gain.low > 0.0);
        let gain = gain.map(|gain| format!("; it gains {gain}")).unwrap_or_default();
        let why = format!("{} {harm}{gain}", choice.arm.label);
        if self.worthy.is_empty() {
            self.answer = Some((AdviceVerdict::Withdrawn, why));
        } else {
            let harmed = self.screened.iter_mut().find(|s| s.label == choice.arm.label);
            harmed.into_iter().for_each(|screened| screened.error = Some(why.clone()));
            self.proof = None;
        }
    }

    fn into_advice(self) -> Advice {
        let (verdict, reason) = self.answer.unwrap_or_else(|| {
            (AdviceVerdict::Unclear, "the time is over before its trials began".to_owned())
        });
        let gain = self.proof.as_ref().and_then(GainProof::gain);
        let action = self.by_row_only.map(|row| format!("Give the library's tuner the row {row}"));
        let choice = self.choice.map(|choice| AdviceChoice {
            action: action.unwrap_or_else(|| choice.action.clone()),
            cost: if self.by_row_only.is_some() { String::new() } else { choice.cost.clone() },
            ..choice.clone()
        });
        let AdviceScope { subject, baseline, .. } = self.scope;
        Advice {
            choice,
            gain,
            chosen: self.chosen,
            bound: self.bound,
            by_row_only: self.by_row_only.is_some(),
            harmed: self.harmed,
            guarded: self.guards.iter().map(GuardCheck::outcome).collect(),
            screened: self.screened,
            ..Advice::new(subject.clone(), baseline.clone(), verdict, reason)
        }
    }
}

impl AdviceSession<'_> {
    /// Compares all choices of a question in a few blocks, and keeps the choices that may gain enough.
    fn select<'s>(&mut self, scope: &'s AdviceScope, scopes: usize) -> SelectedScope<'s> {
        let mut selected = SelectedScope::new(scope);
        let mut tried: Vec<TriedChoice<'s>> = Vec::new();
        for choice in &scope.choices {
            if let Some(why) = &choice.ignored {
                let label = choice.arm.label.clone();
                selected.screened.push(ScreenedChoice {
                    label,
                    gain: None,
                    error: Some(why.clone()),
                });
            } else {
                let bound = GainBound::new(self.limits.min_gain);
                tried.push(TriedChoice { choice, bound, error: None, is_ignored: false });
            }
        }
        let all_ignored = tried.is_empty().then(|| scope.choices.first()).flatten();
        if let Some(first) = all_ignored {
            selected.choice = Some(first);
            let why = first.ignored.clone().unwrap_or_default();
            // A reviewed setting can be dropped; a choice that cannot act decides nothing.
            let is_set = first.settings.values().any(String::is_empty);
            let verdict = if is_set { AdviceVerdict::Ignored } else { AdviceVerdict::Unclear };
            return selected.answered(verdict, why);
        }
        if let [only] = tried.as_slice() {
            // Nothing to select from: its proof says at once whether it gains.
            selected.worthy = vec![only.choice];
            selected.bounds = vec![(only.choice, GainBound::new(self.limits.min_gain))];
            return selected;
        }
        let begun = self.runner.elapsed();
        let budget = self.limits.begun_with.unwrap_or(self.limits.budget);
        let budget = budget / scopes.max(1) as f64;
        for block in 0..SCREEN_BLOCKS + FURTHER_SCREEN_BLOCKS {
            let share = if block < SCREEN_BLOCKS { SCREEN_SHARE } else { CHEAP_SCREEN_SHARE };
            // One block of each question is due whatever it takes, unless the whole time is over.
            let late = block > 0 && self.runner.elapsed() - begun >= share * budget;
            if late || self.is_over(1.0).is_some() {
                break;
            }
            (self.show)(AdviceStep {
                doing: "selecting",
                subject: &scope.subject,
                choice: "",
                blocks: block,
            });
            let active: Vec<usize> = (0..tried.len())
                .filter(|&i| tried.get(i).is_some_and(TriedChoice::is_promising))
                .collect();
            let arms: Vec<&TrialArm> =
                active.iter().filter_map(|&i| Some(&tried.get(i)?.choice.arm)).collect();
            let Some(costs) = self.block(&scope.baseline, &arms) else { break };
            let [a, b] = match costs.baselines {
                Ok(baselines) => baselines.map(|of| of.cost),
                Err(why) => {
                    let why = format!("the default cannot be measured: {why}");
                    return selected.answered(AdviceVerdict::Unclear, why);
                }
            };
            for (at, cost) in active.into_iter().zip(costs.choices) {
                let Some(tried) = tried.get_mut(at) else { continue };
                match cost {
                    Ok(TrialCost { cost: choice, .. }) => {
                        let block = TrialBlock { baselines: [a, b], choice };
                        if !tried.bound.add(&block) {
                            tried.error = Some("a figure is no positive number".to_owned());
                        }
                    }
                    Err(why) => tried.error = Some(why),
                }
            }
        }
        if tried.iter().all(|t| t.bound.blocks() == 0 && t.error.is_none()) {
            let why = self.is_over(1.0).unwrap_or_else(|| "no trial ended".to_owned());
            return selected.answered(AdviceVerdict::Unclear, why);
        }
        for tried in tried.iter_mut().filter(|tried| tried.error.is_none()) {
            let shown = self.runner.honoured(&scope.baseline, &tried.choice.arm);
            if let Some(Err(why)) = shown {
                (tried.error, tried.is_ignored) = (Some(why), true);
            }
        }
        if tried.iter().all(|tried| tried.is_ignored) {
            let why = tried.iter().find_map(|tried| tried.error.clone()).unwrap_or_default();
            selected.screened.extend(tried.into_iter().map(TriedChoice::into_screened));
            return selected.answered(AdviceVerdict::Unclear, format!("no setting acts: {why}"));
        }
        self.keep_worthy(selected, tried)
    }

    fn keep_worthy<'s>(
        &self,
        mut selected: SelectedScope<'s>,
        mut tried: Vec<TriedChoice<'s>>,
    ) -> SelectedScope<'s> {
        let promising = tried.iter().filter(|tried| tried.is_promising());
        selected.bounds = promising.map(|t| (t.choice, t.bound.clone())).collect();
        tried.sort_by(|a, b| b.score().total_cmp(&a.score()));
        let margin = self.limits.min_gain.max(0.0);
        let gains = |t: &&TriedChoice<'s>| t.is_promising() && t.score() > margin;
        let worthy: Vec<&TriedChoice<'s>> = tried.iter().filter(gains).take(MAX_PROOFS).collect();
        let most = worthy.first().map_or(f64::NEG_INFINITY, |t| t.score());
        // Of choices that gain alike, the first in the question: it asks for the least.
        let place = |t: &&TriedChoice<'s>| scope_place(selected.scope, t.choice);
        let alike = |t: &&TriedChoice<'s>| (1.0 + t.score()) * (1.0 + ALIKE) > 1.0 + most;
        let simplest = tried.iter().filter(gains).filter(alike).min_by_key(place).map(|t| t.choice);
        selected.worthy =
            worthy.iter().map(|t| t.choice).filter(|c| Some(*c) != simplest).collect();
        selected.worthy.truncate(MAX_PROOFS - 1);
        selected.worthy.extend(simplest);
        let best = tried.first().map(|t| (t.score(), t.choice.arm.label.clone()));
        let mut screened: Vec<ScreenedChoice> =
            tried.into_iter().map(TriedChoice::into_screened).collect();
        screened.append(&mut selected.screened);
        selected.screened = screened;
        if !selected.worthy.is_empty() {
            return selected;
        }
        let asked = share_text(self.limits.min_gain);
        match best.filter(|(score, _)| score.is_finite()) {
            Some((score, label)) => {
                let why = format!(
                    "no choice gains {asked} % in short trials; the best, {label}: {}",
                    gain_text(score)
                );
                selected.keep = Some(why);
                selected
            }
            None => {
                let error = selected.screened.iter().find_map(|s| s.error.clone());
                let error = error.unwrap_or_default();
                // The default was measured in the same blocks.
                let settings = selected.scope.choices.iter().filter(|c| c.is_of_process());
                match settings.count() == selected.scope.choices.len() {
                    true => {
                        let why = format!("the default works, and no choice does: {error}");
                        selected.answered(AdviceVerdict::Withdrawn, why)
                    }
                    false => {
                        let why = format!("no choice can be measured: {error}");
                        selected.answered(AdviceVerdict::Unclear, why)
                    }
                }
            }
        }
    }

    /// Proves in turn, a block of each question, so that no question starves another.
    fn prove_all(&mut self, mut scopes: Vec<SelectedScope<'_>>) -> Vec<Advice> {
        // What is divided: every claim that may still be made.
        let candidates = scopes.iter().map(|s| s.worthy.len()).sum();
        let AdviceLimits { min_gain, level, .. } = *self.limits;
        let target = ProofTarget { min_gain, level, candidates };
        loop {
            let mut turns: Vec<usize> = (0..scopes.len())
                .filter(|&at| scopes.get(at).is_some_and(SelectedScope::is_in_proof))
                .collect();
            if turns.is_empty() {
                break;
            }
            if let Some(cheapest) = self.only_turn(&scopes, &turns, target) {
                turns = vec![cheapest];
            }
            for at in turns {
                if let Some(scope) = scopes.get_mut(at) {
                    self.prove_block(scope, target);
                }
            }
        }
        // Proofs of gains come first: a default that is kept without a bound costs nothing.
        while scopes.iter().any(|scope| scope.answer.is_none()) {
            for scope in scopes.iter_mut().filter(|scope| scope.answer.is_none()) {
                self.bound_block(scope);
            }
        }
        let mut answers: Vec<Advice> = scopes.into_iter().map(SelectedScope::into_advice).collect();
        let is_model = self.runner.is_model();
        say_by_size(
            &mut answers,
            if is_model { EffectBasis::Simulated } else { EffectBasis::Measured },
        );
        if is_model {
            answers.iter_mut().for_each(Advice::predict);
        }
        answers
    }

    /// The question whose proof needs the least time, if the time that is left is not enough for a proof of
    /// each: blocks in turn would then prove nothing of any. `None` if it is enough, or not yet known.
    /// What blocks take decides, never what they show, so evidence keeps its meaning.
    fn only_turn(
        &self,
        scopes: &[SelectedScope<'_>],
        turns: &[usize],
        target: ProofTarget,
    ) -> Option<usize> {
        let needs = |at: usize| {
            let scope = scopes.get(at)?;
            let done = scope.proof.as_ref().map_or(0, GainProof::blocks);
            (done > 0).then(|| scope.seconds * target.least_blocks().saturating_sub(done) as f64)
        };
        let needs: Vec<(usize, f64)> =
            turns.iter().map(|&at| Some((at, needs(at)?))).collect::<Option<_>>()?;
        let left = self.limits.budget - self.runner.elapsed();
        let all: f64 = needs.iter().map(|(_, seconds)| seconds).sum();
        let cheapest = needs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        (all > left).then_some(cheapest.0)
    }

    /// One more block of a question in which no choice seems to gain, until that is shown of each.
    fn bound_block(&mut self, scope: &mut SelectedScope<'_>) {
        let level = self.limits.level;
        let why = scope.keep.clone().unwrap_or_default();
        let open: Vec<usize> = (0..scope.bounds.len())
            .filter(|&at| scope.bounds.get(at).is_some_and(|(_, b)| b.shown_at(level).is_none()))
            .collect();
        let Some(&first) = open.first() else {
            let shown = scope.bounds.iter().filter_map(|(_, bound)| bound.shown_at(level));
            scope.bound = shown.reduce(f64::max);
            let why = match scope.bound {
                Some(bound) => format!(
                    "no choice gains {} %; if one did, this would be printed with probability at most {} %",
                    share_text(bound),
                    share_text(level)
                ),
                None => why,
            };
            scope.answer = Some((AdviceVerdict::Keep, why));
            return;
        };
        let blocks = scope.bounds.get(first).map_or(0, |(_, bound)| bound.blocks());
        let over = self.is_over(1.0);
        if over.is_some() || blocks >= MAX_BLOCKS {
            let over = over.unwrap_or_else(|| format!("{MAX_BLOCKS} blocks are over"));
            let may_gain = scope.bounds.iter().find(|(_, bound)| {
                let is_above = bound.median().is_some_and(|gain| gain >= self.limits.min_gain);
                bound.shown_at(level).is_none() && is_above
            });
            scope.answer = Some(match may_gain {
                Some((choice, bound)) => {
                    let gain = gain_text(bound.median().unwrap_or(0.0));
                    let label = &choice.arm.label;
                    let blocks = bound.blocks();
                    let why = format!(
                        "{label} may gain: {gain} in {blocks} blocks, which prove nothing; {over}"
                    );
                    (AdviceVerdict::Unclear, why)
                }
                None => (AdviceVerdict::Keep, format!("{why}; not shown of all: {over}")),
            });
            return;
        }
        let subject = &scope.scope.subject;
        (self.show)(AdviceStep { doing: "bounding", subject, choice: "", blocks });
        let arms: Vec<&TrialArm> =
            open.iter().filter_map(|&at| Some(&scope.bounds.get(at)?.0.arm)).collect();
        let Some(costs) = self.block(&scope.scope.baseline, &arms) else { return };
        for (at, cost) in open.into_iter().zip(costs.choices) {
            match (&costs.baselines, cost, scope.bounds.get_mut(at)) {
                (Ok([a, b]), Ok(choice), Some((_, bound))) => {
                    let baselines = [a.cost, b.cost];
                    bound.add(&TrialBlock { baselines, choice: choice.cost });
                }
                _ => {
                    let failed = "a trial failed while its gain was bounded";
                    scope.answer = Some((AdviceVerdict::Keep, format!("{why}; {failed}")));
                }
            }
        }
    }

    /// One more block of the proof of a question, and its answer if that decides.
    fn prove_block(&mut self, scope: &mut SelectedScope<'_>, target: ProofTarget) {
        if scope.proof.is_none() {
            scope.choice = scope.worthy.pop();
            scope.proof = Some(GainProof::new(target));
            scope.guards = GuardCheck::of_all(&self.runner.guard_figures(), target.share());
        }
        let (Some(choice), Some(proof)) = (scope.choice, scope.proof.as_mut()) else {
            scope.answer = Some((AdviceVerdict::Unclear, "no choice is left".to_owned()));
            return;
        };
        if let Some(why) = self.is_over(1.0) {
            let way_out = if self.runner.interrupted().is_none() { TAKE_LONGER } else { "" };
            let why = ended_early_guarded(&why, proof, &scope.guards, choice);
            scope.answer = Some((AdviceVerdict::Unclear, why + way_out));
            return;
        }
        (self.show)(AdviceStep {
            doing: "proving",
            subject: &scope.scope.subject,
            choice: &choice.arm.label,
            blocks: proof.blocks(),
        });
        let begun = self.runner.elapsed();
        let costs = self.block(&scope.scope.baseline, &[&choice.arm]);
        scope.seconds = (self.runner.elapsed() - begun).max(0.0);
        let Some(costs) = costs else {
            let why = self.runner.interrupted().unwrap_or_default();
            scope.answer = Some((AdviceVerdict::Unclear, ended_early(&why, proof)));
            return;
        };
        let (a, b, cost) = match costs.only() {
            (Ok([a, b]), Ok(cost)) => (a, b, cost),
            (baselines, cost) => {
                let (verdict, why) = failed_block(baselines.err(), cost.err(), choice, proof);
                if scope.worthy.is_empty() {
                    scope.answer = Some((verdict, why));
                } else {
                    let failed = scope.screened.iter_mut().find(|s| s.label == choice.arm.label);
                    failed.into_iter().for_each(|screened| screened.error = Some(why.clone()));
                    scope.proof = None;
                }
                return;
            }
        };
        add_block(&mut scope.guards, [&a, &b, &cost]);
        let block = TrialBlock { baselines: [a.cost, b.cost], choice: cost.cost };
        proof.add(block);
        let bound = scope.bounds.iter_mut().find(|(of, _)| std::ptr::eq(*of, choice));
        bound.into_iter().for_each(|(_, bound)| _ = bound.add(&block));
        let shown = self.runner.honoured(&scope.scope.baseline, &choice.arm);
        if let Some(Err(why)) = shown {
            scope.answer = Some((AdviceVerdict::Ignored, not_acting(choice, &why)));
            return;
        }
        scope.chosen = shown.and_then(Result::ok);
        let guards: Vec<GuardOutcome> = scope.guards.iter().map(GuardCheck::outcome).collect();
        if let Some(harm) = harm_text(&guards) {
            scope.drop_harmful(choice, &harm);
            return;
        }
        let is_full = proof.blocks() + proof.unusable() >= MAX_BLOCKS;
        let undecided = open_text(&guards);
        scope.answer = match proof.state() {
            ProofState::Proven if undecided.is_some() => is_full.then(|| {
                let open = undecided.unwrap_or_default();
                let why = format!(
                    "{} gains in {MAX_BLOCKS} blocks; {open}; docs/use/advise.md says how a guard gets a wider margin",
                    choice.arm.label
                );
                (AdviceVerdict::Unclear, why)
            }),
            ProofState::Open if is_full => {
                let so_far = proof.gain().map(|gain| format!(": {gain}")).unwrap_or_default();
                let why = format!(
                    "{MAX_BLOCKS} blocks of {} do not decide between a gain and none{so_far}",
                    choice.arm.label
                );
                Some((AdviceVerdict::Unclear, why))
            }
            ProofState::Open => None,
            ProofState::NoGain if scope.worthy.is_empty() => {
                let gain = proof.gain().map(|gain| gain.to_string()).unwrap_or_default();
                let why = format!(
                    "{} gains less than {} % on fresh trials: {gain}",
                    choice.arm.label,
                    share_text(target.min_gain)
                );
                scope.keep = Some(why);
                None
            }
            ProofState::NoGain => {
                scope.proof = None;
                None
            }
            ProofState::Proven => Some(self.proven(scope, choice, target, &guards)),
        };
    }

    /// The answer for a proven gain: whether other cases allow it, and if not, whether a row of a tuner does.
    fn proven(
        &mut self,
        scope: &mut SelectedScope<'_>,
        choice: &AdviceChoice,
        target: ProofTarget,
        guards: &[GuardOutcome],
    ) -> (AdviceVerdict, String) {
        let chosen = scope.chosen.clone();
        let Some(proof) = &scope.proof else {
            return (AdviceVerdict::Unclear, "it has no proof".to_owned());
        };
        let mut answer =
            self.guarded((choice, proof, target), chosen.as_deref(), &mut scope.harmed);
        if let (AdviceVerdict::Proven, false) = (answer.0, guards.is_empty()) {
            let all: Vec<String> = guards.iter().map(|g| g.figure.to_string()).collect();
            answer.1 += &format!("; {}", all.join(", "));
        }
        let row = chosen.as_deref().and_then(|chosen| tuner_row(choice, chosen));
        match (answer.0, row) {
            (AdviceVerdict::Proven, _) => answer,
            // A row of a tuner acts on this size alone.
            (_, Some(row)) => {
                scope.by_row_only = Some(row);
                (AdviceVerdict::Proven, format!("by a row of a tuner only: {}", answer.1))
            }
            _ => answer,
        }
    }

    /// The verdict on a proven gain, by whether the choice harms nothing else; what it harms is kept in `harmed`.
    fn guarded(
        &mut self,
        (choice, proof, target): (&AdviceChoice, &GainProof, ProofTarget),
        chosen: Option<&str>,
        harmed: &mut Option<(Bytes, f64)>,
    ) -> (AdviceVerdict, String) {
        let label = &choice.arm.label;
        // What MPI_T reads begins with its name.
        let acted = chosen.map(|chosen| match chosen.starts_with("MPI_T ") {
            true => format!("; {chosen}"),
            false => format!("; the library's log shows {chosen}"),
        });
        let acted = acted.unwrap_or_default();
        for (before, after) in &choice.guards {
            let check = match self.check_harm(before, after) {
                Ok(check) => check,
                Err(error) => {
                    let why = format!("{label} gains here, and with it {before} fails: {error}");
                    return (AdviceVerdict::Withdrawn, why);
                }
            };
            match check.harms() {
                Some(false) => {}
                Some(true) => {
                    let gain = check.gain();
                    *harmed = before.bytes().zip(gain.map(|gain| gain.gain));
                    let loss = gain.map(|gain| format!(": {gain}")).unwrap_or_default();
                    let why = format!("{label} gains here and slows {before}{loss}");
                    return (AdviceVerdict::Withdrawn, why);
                }
                None => {
                    let why =
                        format!("{label} gains here; whether it slows {before} is not decided");
                    return (AdviceVerdict::Unclear, why);
                }
            }
        }
        let guards = match choice.guards.len() {
            0 => String::new(),
            1 => "; 1 other case is not slowed".to_owned(),
            n => format!("; {n} other cases are not slowed"),
        };
        let (blocks, level) = (proof.blocks(), share_text(target.level));
        let why = format!(
            "{blocks} fresh blocks; if it changed nothing, a session would print this with probability at most \
             {level} %{acted}{guards}"
        );
        (AdviceVerdict::Proven, why)
    }

    /// Whether a change harms another case; none if blocks or time end first.
    fn check_harm(&mut self, before: &TrialArm, after: &TrialArm) -> Result<HarmCheck, String> {
        let mut check = HarmCheck::new(ALLOWED_LOSS, 0.0, HARMLESS_LEVEL);
        for blocks in 0..MAX_BLOCKS {
            if self.is_over(1.0).is_some() {
                break;
            }
            let subject = before.to_string();
            let choice = &after.label;
            (self.show)(AdviceStep { doing: "checking", subject: &subject, choice, blocks });
            let Some(costs) = self.block(before, &[after]) else { break };
            let (baselines, choice) = costs.only();
            let baselines = baselines?.map(|of| of.cost);
            check.add(TrialBlock { baselines, choice: choice?.cost });
            if check.harms().is_some() {
                break;
            }
        }
        Ok(check)
    }
}

/// The place of a choice in its question, in which choices that ask for least come first.
fn scope_place(scope: &AdviceScope, choice: &AdviceChoice) -> usize {
    scope.choices.iter().position(|c| c == choice).unwrap_or(usize::MAX)
}

fn not_acting(choice: &AdviceChoice, why: &str) -> String {
    format!("{} does not act: {why}", choice.arm.label)
}

/// What helps where time was short.
const TAKE_LONGER: &str = "; a longer --budget may decide";

/// The same, where a gain may be shown and a guarded figure is open.
fn ended_early_guarded(
    why: &str,
    proof: &GainProof,
    guards: &[GuardCheck],
    choice: &AdviceChoice,
) -> String {
    let guards: Vec<GuardOutcome> = guards.iter().map(GuardCheck::outcome).collect();
    match (proof.state(), open_text(&guards)) {
        (ProofState::Proven, Some(open)) => format!("{} gains; {open}: {why}", choice.arm.label),
        _ => ended_early(why, proof),
    }
}

/// A proof that ends before it decides.
fn ended_early(why: &str, proof: &GainProof) -> String {
    match proof.blocks() {
        0 => format!("{why} before its proof began"),
        _ => format!("{why} before its proof ended"),
    }
}

/// The verdict on a choice of whose block an arm failed.
fn failed_block(
    default: Option<String>,
    of_choice: Option<String>,
    choice: &AdviceChoice,
    proof: &GainProof,
) -> (AdviceVerdict, String) {
    let label = &choice.arm.label;
    if let Some(why) = default {
        return (AdviceVerdict::Unclear, format!("the default fails: {why}"));
    }
    let why = of_choice.unwrap_or_default();
    match proof.blocks() {
        // A case that this machine cannot run harms nobody.
        0 if !choice.is_of_process() => {
            (AdviceVerdict::Unclear, format!("{label} cannot be measured: {why}"))
        }
        0 => (AdviceVerdict::Withdrawn, format!("the default works, and {label} does not: {why}")),
        _ => (AdviceVerdict::Withdrawn, format!("{label} failed during its proof: {why}")),
    }
}

/// A choice in short trials.
struct TriedChoice<'s> {
    choice: &'s AdviceChoice,
    bound: GainBound,
    error: Option<String>,
    /// Whether its error is that the setting does not act.
    is_ignored: bool,
}

impl TriedChoice<'_> {
    fn is_promising(&self) -> bool {
        self.error.is_none() && !self.bound.was_slower_by(HOPELESS)
    }

    /// The median gain of its blocks; below every other without one.
    fn score(&self) -> f64 {
        let of = self.error.is_none().then(|| self.bound.median());
        of.flatten().unwrap_or(f64::NEG_INFINITY)
    }

    fn into_screened(self) -> ScreenedChoice {
        let gain = Some(self.score()).filter(|score| score.is_finite());
        ScreenedChoice { label: self.choice.arm.label.clone(), gain, error: self.error }
    }
}
