//! What a model does not know: choices and answers that rest on it are no advice.

use anyhow::{Result, bail};
use pathline_advise::{
    Advice, AdviceChoice, AdviceScope, AdviceVerdict, ArmEnv, ArmTask, PIN_TIME, TrialArm,
    meant_setting, unset_setting,
};
use pathline_bench::RunPlan;
use pathline_diagnose::{predict_kernel_cost, predict_rate, predict_setting};
use pathline_flow::{Network, RuntimeEnv};
use pathline_message::MessageLayer;
use pathline_runner::{MachineModel, RunRequest, assumed_cases, switches};
use pathline_schema::{
    Bytes, Case, GpuCaps, MemKind, Mover, Ns, RuntimeCall, SizeEffects, Topology,
};

use super::model_gains::ArmTimes;

/// Why a gain on a model is no advice.
const ASSUMED: &str = "withheld: its times rest on constants of the model that nobody measured";

/// The questions without what a model only assumes, and the answers that are withheld for that. Copies of host memory
/// have their rates by the model.
pub(super) fn without_assumed(
    scopes: Vec<AdviceScope>,
    request: &RunRequest,
    plan: &RunPlan,
    min_gain: f64,
) -> Result<(Vec<AdviceScope>, Vec<Advice>)> {
    let assumed = assumed_cases(request, &switches(), plan.clone())?;
    let is_assumed =
        |arm: &TrialArm| matches!(&arm.task, ArmTask::Case(case) if assumed.contains(case));
    let (mut asked, mut withheld) = (Vec::new(), Vec::new());
    let model = request.machine.model();
    let rests = scopes.iter().filter(|scope| {
        is_assumed(&scope.baseline) || scope.choices.iter().any(|choice| is_assumed(&choice.arm))
    });
    let arms = rests
        .flat_map(|scope| scope.choices.iter().map(|choice| &choice.arm).chain([&scope.baseline]));
    let times = model.map(|model| ArmTimes::new(model, arms)).transpose()?;
    for mut scope in scopes {
        // The fastest choice decides where the default rests on an assumption, or the choice does.
        let gain = |arm: &TrialArm| times.as_ref()?.gain(&scope.baseline, arm);
        // Of a store a description has round figures.
        let is_file = |case: &Case| case.flows().any(|flow| matches!(flow.by, Mover::Io { .. }));
        let of_file = matches!(&scope.baseline.task, ArmTask::Case(case) if is_file(case));
        let by_rates = Advice::by_assumed(&scope, &gain, min_gain, ASSUMED).filter(|_| !of_file);
        let is_open = |answer: &Advice| {
            let choice = answer.choice.as_ref().is_some_and(|choice| is_assumed(&choice.arm));
            is_assumed(&scope.baseline) || choice && answer.verdict != AdviceVerdict::Keep
        };
        if let (Some(mut answer), Some(model)) = (by_rates.filter(is_open), model) {
            add_rates(std::slice::from_mut(&mut answer), model);
            withheld.push(answer);
            continue;
        }
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

/// What a setting such as `HSA_ENABLE_SDMA=0` does by size on a model, in a job with these variables; nothing of other
/// settings.
pub(super) fn effects_on(
    model: &MachineModel,
    topology: &Topology,
    setting: &str,
    set: &ArmEnv,
) -> SizeEffects {
    let Ok(network) = Network::new(model.desc(), RuntimeEnv::default()) else {
        return SizeEffects::default();
    };
    // An MPI that takes no GPU memory has no messages between GPUs.
    let has_messages = set.get("MPICH_GPU_SUPPORT_ENABLED").is_none_or(|value| value != "0");
    let layer = MessageLayer::new(model.desc()).ok().filter(|_| has_messages);
    predict_setting((&network, layer.as_ref()), topology, setting)
}

/// States of copies and messages between GPUs what the setting of their engine does by size and kind of transfer on a
/// model: its trials are of the pairs that were asked about. Of `all`, or of those where it is to be set.
pub(super) fn state_transfers_by_size(
    answers: &mut [Advice],
    all: bool,
    model: &MachineModel,
    topology: &Topology,
) {
    let Some(name) = topology.gpu_env(|caps| caps.copy_engine_env) else { return };
    let effects = effects_on(model, topology, &format!("{name}=0"), &ArmEnv::new());
    let peers = topology.gpu_env(|caps| caps.peer_engine_env).unwrap_or(name);
    let is_set = |choice: &AdviceChoice| {
        [name, peers].iter().any(|name| choice.settings.contains_key(*name))
    };
    let fails = ["the default fails", "the default cannot be measured"];
    let is_measured =
        |answer: &&mut Advice| !fails.iter().any(|fails| answer.reason.starts_with(fails));
    let of_setting = answers.iter_mut().filter(|a| a.choice.as_ref().is_some_and(is_set));
    for answer in of_setting.filter(is_measured) {
        if answer.only.is_some() {
            answer.limit_to_sizes(&effects);
        } else if all && effects.verdict().is_some() {
            answer.by_size = Some(effects.clone());
        }
    }
}

/// Answers about settings that, on a model and in a job with the variables `set`, gain at some sizes and lose at others. One that leaves copy engines in use is
/// judged by what taking them away does.
pub(super) fn review_by_size(
    settings: &ArmEnv,
    model: &MachineModel,
    topology: &Topology,
    set: &ArmEnv,
) -> Vec<Advice> {
    let of = |(name, value): (&String, &String)| {
        let mut answer = answer_by_size((name, "0"), model, topology, set)?;
        if value == "0" {
            let choice = answer.choice.as_mut()?;
            choice.action = choice.action.replacen("Set ", "Keep ", 1);
        } else if let Some(unset) = unset_setting(name) {
            answer.subject = unset.reason.replacen("it is not set", &format!("{name}={value}"), 1);
        }
        Some(answer)
    };
    settings.iter().filter_map(of).collect()
}

/// The answer about a variable, set or not, that gains at some sizes on a model and loses at others.
fn answer_by_size(
    (name, value): (&str, &str),
    model: &MachineModel,
    topology: &Topology,
    set: &ArmEnv,
) -> Option<Advice> {
    let effects = effects_on(model, topology, &format!("{name}={value}"), set);
    let mut answer = Advice::of_sizes((name, value), &effects, AdviceVerdict::Predicted)?;
    let caps = topology.gpus.first()?.caps();
    if let Some(choice) = answer.choice.as_mut().filter(|_| caps.copy_engine_env == Some(name)) {
        choice.action = caps.set_copy_kernel("")?;
        choice.cost = caps.copy_kernel_cost("the destination", None);
    }
    Some(answer)
}

/// Answers about variables that are not set, with what to set them to on a model, if that gains at some sizes.
pub(super) fn unset_on(
    names: &[String],
    model: Option<&MachineModel>,
    topology: &Topology,
    set: &ArmEnv,
) -> Result<Vec<Advice>> {
    names.iter().map(|name| unset_answer(name, model, topology, set)).collect()
}

/// The answer about the variable that takes copy engines away, which a job does not set, if it gains at some sizes.
pub(super) fn lacking_on(
    model: &MachineModel,
    topology: &Topology,
    set: &ArmEnv,
) -> Result<Option<Advice>> {
    let name = topology.gpu_env(|caps| caps.copy_engine_env);
    let Some(name) = name.filter(|name| !set.contains_key(*name)) else { return Ok(None) };
    let answer = unset_answer(name, Some(model), topology, set)?;
    Ok(answer.is_change().then_some(answer))
}

fn unset_answer(
    name: &str,
    model: Option<&MachineModel>,
    topology: &Topology,
    set: &ArmEnv,
) -> Result<Advice> {
    let Some(answer) = unset_setting(name) else {
        let meant = meant_setting(name);
        bail!("{name}: it is not set, and no library that pathline knows reads it{meant}");
    };
    let subject = answer.reason.replacen("it is", &format!("{name} is"), 1);
    let by_size = model.and_then(|model| answer_by_size((name, "0"), model, topology, set));
    Ok(by_size.map_or(answer, |by_size| Advice { subject, ..by_size }))
}

/// The rate of an arm by a model, GB/s.
pub(super) fn rate_on(model: &MachineModel, arm: &TrialArm) -> Option<f64> {
    let ArmTask::Case(case) = &arm.task else { return None };
    predict_rate(&Network::new(model.desc(), RuntimeEnv::default()).ok()?, case)
}

/// Adds to answers about host memory the rates of the default and of the choice.
pub(super) fn add_rates(answers: &mut [Advice], model: &MachineModel) {
    let open = answers.iter_mut().filter(|answer| answer.is_change() || answer.is_assumed());
    for answer in open.filter(|answer| answer.baseline.host_copy().is_some()) {
        let Some(choice) = &answer.choice else { continue };
        let rates = rate_on(model, &answer.baseline).zip(rate_on(model, &choice.arm));
        answer.rates = rates.map(|(default, rate)| [default, rate]);
        let time = pin_time(model, &choice.arm);
        if let (Some(time), Some(choice)) = (time, answer.choice.as_mut()) {
            choice.cost = choice.cost.replacen(PIN_TIME, &format!("{time} a GiB by the model"), 1);
        }
    }
}

/// States what copies by a kernel cost kernels by the model, where no run has measured it.
pub(super) fn state_kernel_cost(answers: &mut [Advice], model: &MachineModel) {
    let network = Network::new(model.desc(), RuntimeEnv::default());
    let cost = network.ok().and_then(|net| predict_kernel_cost(&net, &model.desc().topology()));
    let Some(cost) = cost else { return };
    for choice in answers.iter_mut().filter_map(|answer| answer.choice.as_mut()) {
        let by_model = format!("{cost} by the model");
        choice.cost = choice.cost.replacen(GpuCaps::UNKNOWN_KERNEL_COST, &by_model, 1);
    }
}

/// The time in which the runtime pins 1 GiB for the host memory of a copy, or of a kernel that needs it pinned.
fn pin_time(model: &MachineModel, arm: &TrialArm) -> Option<Ns> {
    let network = Network::new(model.desc(), RuntimeEnv::default()).ok()?;
    let (call, mem) = match arm.host_copy().map_or(MemKind::Pinned, |(mem, _)| mem) {
        MemKind::Registered => (RuntimeCall::Register, MemKind::Paged),
        mem => (RuntimeCall::Alloc, mem),
    };
    network.call_time(call, Some(mem), Bytes::gib(1))
}
