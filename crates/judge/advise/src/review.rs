//! Review: whether variables that are set gain anything.

use std::collections::BTreeSet;

use pathline_schema::{EffectBasis, SizeEffects};

use crate::advice::{Advice, AdviceVerdict, removal_choice, untried_setting};
use crate::arm::{AdviceScope, ArmEnv, TrialArm};
use crate::gain_text::share_text;
use crate::guard_figure::{GuardCheck, GuardOutcome, add_block, harm_text};
use crate::proof::{GainInterval, HarmCheck, MAX_BLOCKS, ProofTarget, TrialBlock};
use crate::session::{AdviceLimits, AdviceSession, AdviceStep, TrialRunner};

/// Beginnings of the names of variables that GPU runtimes, MPI, NCCL, RCCL and UCX read.
const FAMILIES: &str = "NCCL_ RCCL_ HSA_ HIP_ ROCR_ AMD_ GPU_ CUDA_ UCX_ UCC_ MPICH_ OMPI_MCA_ PMIX_MCA_ \
    PRTE_MCA_ FI_ PSM2_ MPIR_CVAR_ MPIR_PARAM_ I_MPI_";
/// Variables of these families that choose devices or print: to unset one measures something else.
const NO_SETTINGS: &str = "VISIBLE_DEVICES DEVICE_ORDER _DEBUG _DEBUG_FILE _DEBUG_SUBSYS _LOG_LEVEL _PATH _HOME \
    _ROOT _VERSION _DIR _COMM_ID";

/// Whether a variable is a setting of a library that moves data, by its name.
pub fn is_setting(name: &str) -> bool {
    FAMILIES.split(' ').any(|family| name.starts_with(family))
        && !NO_SETTINGS.split(' ').any(|end| name.ends_with(end))
}

/// Says of each variable whether it gains anything in the given questions, of which only the defaults
/// are measured: with everything that is set, and without this variable.
pub fn review(
    variables: &ArmEnv,
    scopes: &[AdviceScope],
    runner: &mut dyn TrialRunner,
    limits: &AdviceLimits,
    show: &mut dyn FnMut(AdviceStep<'_>),
) -> Vec<Advice> {
    let random = fastrand::Rng::with_seed(limits.seed);
    let mut session = AdviceSession { runner, limits, random, show };
    // Each comparison may remove a variable falsely.
    let candidates = (variables.len() * scopes.len()).max(1);
    let target = ProofTarget { min_gain: limits.min_gain, level: limits.level, candidates };
    let all = variables.len().max(1) as f64;
    let of = |(at, (name, value)): (usize, (&String, &String))| {
        // A share of the time each, so that one noisy comparison does not starve the others.
        let part = (at as f64 / all, 1.0 / all);
        session.review_one((name, value), scopes, target, part)
    };
    variables.iter().enumerate().map(of).collect()
}

/// The answer for variables that no trial can decide on; `why` is a sentence without a full stop.
pub fn not_reviewed(variables: &ArmEnv, why: &str) -> Vec<Advice> {
    let of = |(name, value): (&String, &String)| {
        untried_setting(name, value, AdviceVerdict::Unclear, why.to_owned())
    };
    variables.iter().map(of).collect()
}

/// What the removal of a variable does to one question.
struct RemovalEffect<'s> {
    scope: &'s AdviceScope,
    /// None while undecided.
    harms: Option<bool>,
    /// What happens to a guarded figure, if that is the harm.
    harmed: Option<String>,
    /// Of the removal: negative if it makes things slower.
    gain: Option<GainInterval>,
    error: Option<String>,
}

impl AdviceSession<'_> {
    fn review_one(
        &mut self,
        (name, value): (&str, &str),
        scopes: &[AdviceScope],
        target: ProofTarget,
        (begin, share): (f64, f64),
    ) -> Advice {
        let removal = ArmEnv::from([(name.to_owned(), String::new())]);
        let baseline = TrialArm {
            label: format!("{name}={value}"),
            task: crate::ArmTask::Command,
            env: ArmEnv::new(),
        };
        let mut effects = Vec::new();
        let scopes: Vec<&AdviceScope> =
            scopes.iter().filter(|scope| scope.baseline.may_read(name)).collect();
        for (at, scope) in scopes.iter().enumerate() {
            let until = begin + share * (at + 1) as f64 / scopes.len() as f64;
            // Questions about one default differ in their choices only.
            if !effects.iter().any(|known: &RemovalEffect| known.scope.baseline == scope.baseline) {
                effects.push(self.removal_effect(&removal, scope, target, until));
            }
        }
        let arm = scopes.first().map_or_else(|| baseline.clone(), |s| s.baseline.clone());
        let choice = Some(removal_choice(name, arm.clone()));
        let subject = format!("{name}={value}");
        let by_size = setting_by_size((name, value), &effects, self.runner.is_model());
        let gains = match self.runner.is_model() {
            true => AdviceVerdict::Predicted,
            false => AdviceVerdict::Proven,
        };
        if let Some(answer) = Advice::of_sizes((name, value), &by_size, gains) {
            let reason = format!("{}; {}", answer.reason, tried_text(&effects));
            return Advice { reason, ..answer };
        }
        let (verdict, reason, gain) = conclude(name, value, &effects, target.min_gain);
        Advice { choice, gain, ..Advice::new(subject, arm, verdict, reason) }
    }

    fn removal_effect<'s>(
        &mut self,
        removal: &ArmEnv,
        scope: &'s AdviceScope,
        target: ProofTarget,
        until: f64,
    ) -> RemovalEffect<'s> {
        let without = scope.baseline.with_env("without", removal.clone());
        let level = target.share();
        let mut check = HarmCheck::new(target.min_gain, 0.0, level);
        let mut guards = GuardCheck::of_all(&self.runner.guard_figures(), level);
        let mut error = None;
        for blocks in 0..MAX_BLOCKS {
            if harms_any(&check, &guards).is_some() || self.is_over(until).is_some() {
                break;
            }
            let name = removal.keys().next().map_or("", String::as_str);
            let subject = scope.subject.as_str();
            (self.show)(AdviceStep { doing: "reviewing", subject, choice: name, blocks });
            let Some(costs) = self.block(&scope.baseline, &[&without]) else { break };
            match costs.only() {
                (Ok([a, b]), Ok(choice)) => {
                    add_block(&mut guards, [&a, &b, &choice]);
                    check.add(TrialBlock { baselines: [a.cost, b.cost], choice: choice.cost });
                }
                (baselines, choice) => {
                    error = baselines.err().or(choice.err());
                    break;
                }
            }
        }
        let harms = harms_any(&check, &guards);
        let outcomes: Vec<GuardOutcome> = guards.iter().map(GuardCheck::outcome).collect();
        let harmed = harm_text(&outcomes).filter(|_| check.harms() != Some(true));
        RemovalEffect { scope, harms, harmed, gain: check.gain(), error }
    }
}

/// Whether the cost or a guarded figure gets worse; none while that is open of one, and none is harmed.
fn harms_any(check: &HarmCheck, guards: &[GuardCheck]) -> Option<bool> {
    let all: Vec<Option<bool>> = std::iter::once(check.harms())
        .chain(guards.iter().map(|guard| guard.outcome().harms))
        .collect();
    match all.contains(&Some(true)) {
        true => Some(true),
        false => (!all.contains(&None)).then_some(false),
    }
}

/// What a variable that is set does by size.
fn setting_by_size(
    (name, value): (&str, &str),
    effects: &[RemovalEffect<'_>],
    is_simulated: bool,
) -> SizeEffects {
    let basis = if is_simulated { EffectBasis::Simulated } else { EffectBasis::Measured };
    let mut found = SizeEffects::new(format!("{name}={value}"), basis);
    for of in effects.iter().filter(|of| of.harms.is_some()) {
        let RemovalEffect { scope, gain, .. } = of;
        let (transfer, bytes) = (scope.baseline.transfer(), scope.baseline.bytes());
        if let (Some(transfer), Some(bytes), Some(gain)) = (transfer, bytes, gain) {
            // To set it is the inverse of its removal.
            found.add(transfer, scope.ends.as_str(), gain.inverse().at(bytes));
        }
    }
    found
}

/// Between which ends the removal was tried, and whether time was left for all.
fn tried_text(effects: &[RemovalEffect<'_>]) -> String {
    let ends = |is_tried: bool| -> BTreeSet<&str> {
        let of = effects.iter().filter(|of| !is_tried || of.gain.is_some() && of.harms.is_some());
        of.map(|of| of.scope.ends.as_str()).collect()
    };
    let (tried, all) = (ends(true), ends(false));
    let names: Vec<&str> = tried.iter().copied().collect();
    let more = if tried.len() < all.len() { "; a longer --budget tries all" } else { "" };
    let examples = names.iter().take(2).copied().collect::<Vec<_>>().join(", ");
    let rest = if names.len() > 2 { " and others" } else { "" };
    format!("tried {} of {}: {examples}{rest}{more}", tried.len(), all.len())
}

fn conclude(
    name: &str,
    value: &str,
    effects: &[RemovalEffect<'_>],
    min_gain: f64,
) -> (AdviceVerdict, String, Option<GainInterval>) {
    let all = effects.len();
    let harmed = effects.iter().filter(|effect| effect.harms == Some(true));
    let loss = |effect: &&RemovalEffect| effect.gain.map_or(0.0, |gain| gain.gain);
    let harmed = harmed.min_by(|a, b| loss(a).total_cmp(&loss(b)));
    if let Some(harmed) = harmed {
        let by = harmed.gain.map(|gain| format!(": {gain}")).unwrap_or_default();
        let why = match &harmed.harmed {
            Some(text) => format!("to unset it {text}"),
            None => format!("without it, {} get slower{by}", harmed.scope.subject),
        };
        return (AdviceVerdict::Keep, why, harmed.gain);
    }
    if all == 0 {
        let why = "no transfer that can be tried here depends on it".to_owned();
        return (AdviceVerdict::Unclear, why, None);
    }
    if let Some(open) = effects.iter().find(|effect| effect.harms.is_none()) {
        let why = match &open.error {
            Some(error) => format!("{} cannot be compared: {error}", open.scope.subject),
            None => format!(
                "the trials do not decide whether {} get slower without it; a longer --budget may",
                open.scope.subject
            ),
        };
        return (AdviceVerdict::Unclear, why, open.gain);
    }
    let best =
        effects.iter().filter_map(|effect| effect.gain).max_by(|a, b| a.low.total_cmp(&b.low));
    let margin = share_text(min_gain);
    match best {
        Some(gain) if gain.low > min_gain => {
            let why = format!(
                "{name}={value} makes things slower; no question loses {margin} % without it"
            );
            (AdviceVerdict::Remove, why, Some(gain))
        }
        best => {
            let why = format!("it does nothing: no question of {all} loses {margin} % without it");
            (AdviceVerdict::Remove, why, best)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard_figure::TrialCost;

    /// Each arm's cost by whether the variable is gone, in questions `base`, `base` ...
    struct ReviewWorld {
        without: Vec<f64>,
        random: fastrand::Rng,
        time: f64,
    }

    impl TrialRunner for ReviewWorld {
        fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
            self.time += 0.1;
            let cost = |arm: &&TrialArm| {
                let of: usize = arm.env.get("AT").and_then(|at| at.parse().ok()).unwrap_or(0);
                let factor = if arm.env.contains_key("NCCL_X") { self.without[of] } else { 1.0 };
                Ok((factor * (1.0 + 0.004 * (self.random.f64() - 0.5))).into())
            };
            arms.iter().map(cost).collect()
        }
        fn elapsed(&self) -> f64 {
            self.time
        }
        fn interrupted(&self) -> Option<String> {
            None
        }
    }

    fn verdict(without: &[f64]) -> Advice {
        verdicts(without, &["NCCL_X"], 120.0).remove(0)
    }

    fn verdicts(without: &[f64], set: &[&str], budget: f64) -> Vec<Advice> {
        let scope = |at: usize| AdviceScope {
            subject: format!("question {at}"),
            ends: String::new(),
            baseline: TrialArm {
                label: "as set".to_owned(),
                task: crate::ArmTask::Command,
                env: ArmEnv::from([("AT".to_owned(), at.to_string())]),
            },
            choices: Vec::new(),
        };
        let scopes: Vec<AdviceScope> = (0..without.len()).map(scope).collect();
        let random = fastrand::Rng::with_seed(1);
        let mut world = ReviewWorld { without: without.to_vec(), random, time: 0.0 };
        let set: ArmEnv = set.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        let limits = AdviceLimits { budget, ..AdviceLimits::default() };
        review(&set, &scopes, &mut world, &limits, &mut |_| ())
    }

    #[test]
    fn settings_are_kept_or_removed_by_what_they_do() {
        let kept = verdict(&[1.0, 1.2]);
        assert_eq!(kept.verdict, AdviceVerdict::Keep);
        assert!(kept.reason.contains("question 1 get slower"), "{}", kept.reason);
        assert!((kept.gain.unwrap().gain + 1.0 / 6.0).abs() < 0.01, "1 / 1.2 - 1");
        let void = verdict(&[1.0, 1.0]);
        assert_eq!(void.verdict, AdviceVerdict::Remove);
        assert!(void.reason.starts_with("it does nothing"), "{}", void.reason);
        let harmful = verdict(&[1.0, 0.8]);
        assert_eq!(harmful.verdict, AdviceVerdict::Remove);
        assert!(harmful.reason.contains("makes things slower"), "{}", harmful.reason);
        assert!((harmful.gain.unwrap().gain - 0.25).abs() < 0.01);
    }

    /// One of 5 questions has 0.2 %: (2.8^6 + 1.8^6) / 2 = 258, with 7 blocks 705. One of two variables has half of
    /// the time, 5 blocks; then 0.5 s and five times 0.1 s are a little less than 1 s, so that 6 follow.
    #[test]
    fn questions_share_the_level_and_variables_the_time() {
        assert_eq!(verdict(&[0.8; 5]).gain.unwrap().blocks, 7);
        let two = verdicts(&[0.8], &["NCCL_A", "NCCL_X"], 1.0);
        let verdicts = two.iter().map(|advice| advice.verdict);
        assert!(verdicts.eq([AdviceVerdict::Unclear, AdviceVerdict::Remove]));
    }

    /// A setting that gains at 1 MiB and loses at 64 KiB is said by size only where trials decided at both.
    #[test]
    fn sizes_count_where_trials_decided() {
        let scope = |size: &str| AdviceScope {
            subject: size.to_owned(),
            ends: "a".to_owned(),
            baseline: TrialArm {
                label: String::new(),
                task: crate::ArmTask::Case(
                    format!("gpu0.vram > gpu1.vram by dma@gpu0 x {size}").parse().unwrap(),
                ),
                env: ArmEnv::new(),
            },
            choices: Vec::new(),
        };
        let scopes = [scope("64KiB"), scope("1MiB")];
        let text = |harms: [Option<bool>; 2]| {
            let of = |((scope, gain), harms)| {
                let gain = Some(GainInterval { gain, low: gain, high: gain, blocks: 9 });
                RemovalEffect { scope, harms, harmed: None, gain, error: None }
            };
            // Without it 64 KiB take 1 / 1.25 of the time, and 1 MiB twice as long.
            let effects = scopes.iter().zip([0.25, -0.5]).zip(harms).map(of);
            let effects: Vec<RemovalEffect<'_>> = effects.collect();
            (setting_by_size(("X", "1"), &effects, false).verdict(), tried_text(&effects))
        };
        let (by_size, tried) = text([Some(false), Some(true)]);
        let expected = "X=1, measured: faster from 1MiB on between GPUs (up to 100 %); below up to 20 % slower. ";
        assert!(by_size.is_some_and(|text| text.starts_with(expected)));
        assert_eq!(tried, "tried 1 of 1: a");
        for harms in [[None, Some(true)], [Some(false), None]] {
            assert_eq!(text(harms).0, None);
        }
        assert_eq!(text([None; 2]).1, "tried 0 of 1: ; a longer --budget tries all");
    }

    /// Copies say nothing of NCCL's variables; collectives and commands do.
    #[test]
    fn a_variable_is_judged_where_its_library_takes_part() {
        let arm = |case: &str| TrialArm::of_case("", case.parse().expect("a case"));
        let copy = arm("r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB");
        let sum = arm("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 1MiB");
        let command = TrialArm { task: crate::ArmTask::Command, ..copy.clone() };
        let reads = |name: &str| [&copy, &sum, &command].map(|arm| arm.may_read(name));
        assert_eq!(reads("NCCL_NVLS_ENABLE"), [false, true, true]);
        assert_eq!(reads("HSA_ENABLE_SDMA"), [true; 3]);
    }

    #[test]
    fn choices_of_devices_and_logs_are_no_settings() {
        for name in ["NCCL_ALGO", "UCX_TLS", "HSA_ENABLE_SDMA", "MPICH_GPU_SUPPORT_ENABLED"] {
            assert!(is_setting(name), "{name}");
        }
        for name in ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "CUDA_HOME", "PATH", "OMP_NUM_THREADS"] {
            assert!(!is_setting(name), "{name}");
        }
    }

    /// Harm (shown, excluded, open) and gain with its low end of the removal in each question; the answer.
    #[test]
    fn the_worst_harm_counts_then_what_is_open_then_the_best_gain() {
        let scopes: Vec<AdviceScope> = (0..3)
            .map(|at| AdviceScope {
                subject: format!("q{at}"),
                ends: format!("ends {at}"),
                baseline: TrialArm {
                    label: String::new(),
                    task: crate::ArmTask::Command,
                    env: ArmEnv::new(),
                },
                choices: Vec::new(),
            })
            .collect();
        let (harm, fine, open) = (Some(true), Some(false), None);
        let (keep, remove, unclear) =
            (AdviceVerdict::Keep, AdviceVerdict::Remove, AdviceVerdict::Unclear);
        for (effects, verdict, why, gain, tried) in [
            (
                vec![(harm, -0.1), (harm, -0.3), (open, 0.0)],
                keep,
                "q1 get slower: -30 %",
                -0.3,
                "tried 2 of 3: ends 0, ends 1; a longer",
            ),
            (
                vec![(fine, 0.0), (open, 0.1), (open, 0.2)],
                unclear,
                "decide whether q1 get slower",
                0.1,
                "tried 1 of 3: ends 0; a longer",
            ),
            (
                vec![(fine, 0.02), (fine, 0.2), (fine, 0.1)],
                remove,
                "X=1 makes things slower; no question loses 1 %",
                0.2,
                "tried 3 of 3: ends 0, ends 1 and others",
            ),
            (
                vec![(fine, 0.0), (fine, 0.01)],
                remove,
                "it does nothing: no question of 2 loses 1 %",
                0.01,
                "tried 2 of 2: ends 0, ends 1",
            ),
        ] {
            let effects: Vec<RemovalEffect<'_>> = effects
                .into_iter()
                .zip(&scopes)
                .map(|((harms, gain), scope)| {
                    let gain = Some(GainInterval { gain, low: gain, high: gain, blocks: 9 });
                    RemovalEffect { scope, harms, harmed: None, gain, error: None }
                })
                .collect();
            let (found, reason, interval) = conclude("X", "1", &effects, 0.01);
            assert!(found == verdict && reason.contains(why), "{found:?} {reason}");
            assert_eq!(interval.map(|of| of.gain), Some(gain), "{reason}");
            let text = tried_text(&effects);
            assert!(
                text.starts_with(tried) && text.contains("longer") == tried.contains("longer"),
                "{text}"
            );
        }
    }
}
