//! What a model does not know: choices and answers that rest on it are no advice.

use anyhow::Result;
use pathline_advise::{Advice, AdviceChoice, AdviceScope, ArmEnv, ArmTask, TrialArm};
use pathline_bench::RunPlan;
use pathline_flow::RuntimeEnv;
use pathline_runner::{RunRequest, assumed_cases, switches};

/// Why a gain on a model is no advice.
const ASSUMED: &str = "withheld: its times rest on constants of the model that nobody measured";

/// The questions without what a model only assumes, and the answers that are withheld for that.
pub(super) fn without_assumed(
    scopes: Vec<AdviceScope>,
    request: &RunRequest,
    plan: &RunPlan,
) -> Result<(Vec<AdviceScope>, Vec<Advice>)> {
    let assumed = assumed_cases(request, &switches(), plan.clone())?;
    let is_assumed =
        |arm: &TrialArm| matches!(&arm.task, ArmTask::Case(case) if assumed.contains(case));
    let (mut asked, mut withheld) = (Vec::new(), Vec::new());
    for mut scope in scopes {
        for choice in scope.choices.iter_mut().filter(|choice| is_assumed(&choice.arm)) {
            choice.ignored = choice.ignored.take().or_else(|| Some(ASSUMED.to_owned()));
        }
        let has_choices = !scope.choices.is_empty();
        if is_assumed(&scope.baseline)
            || has_choices && scope.choices.iter().all(|c| is_assumed(&c.arm))
        {
            withheld.push(Advice::withheld(&scope, ASSUMED.to_owned()));
        } else {
            asked.push(scope);
        }
    }
    Ok((asked, withheld))
}

/// A model knows the effect of a few variables.
pub(super) fn ignore_unmodelled(scope: &mut AdviceScope) {
    let is_unknown = |choice: &&mut AdviceChoice| {
        let env = &choice.arm.env;
        !env.is_empty() && !env.iter().any(|(name, value)| is_modelled(name, value))
    };
    for choice in scope.choices.iter_mut().filter(is_unknown) {
        let label = &choice.arm.label;
        choice.ignored = Some(format!("the model does not know what {label} changes"));
    }
}

/// Whether a model knows what a variable changes.
pub(super) fn is_modelled(name: &str, value: &str) -> bool {
    let env = ArmEnv::from([(name.to_owned(), value.to_owned())]);
    RuntimeEnv::from_env(&env) != RuntimeEnv::default()
}
