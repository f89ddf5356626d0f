//! What copies between host memory and a GPU carry on a model, by kind of memory and size.

use std::collections::{BTreeMap, BTreeSet};

use pathline_advise::{Advice, ArmTask, TrialArm, questions};
use pathline_runner::MachineModel;
use pathline_schema::{Bytes, Case, MemKind, Ns, Rate, Topology};

use super::model_limits::rate_on;

/// GB/s by size of each kind of memory.
#[derive(Default)]
struct KindRates {
    kinds: BTreeMap<String, BTreeMap<Bytes, f64>>,
    /// The kind of the case that was asked about.
    default: Option<String>,
}

/// A table for each pair of ends that the answers are about; empty where they are about other copies.
pub(super) fn host_memory_table(answers: &[Advice], model: &MachineModel) -> String {
    let topology = model.desc().topology();
    let mut by_ends: BTreeMap<String, KindRates> = BTreeMap::new();
    for answer in answers {
        let ArmTask::Case(case) = &answer.baseline.task else { continue };
        let Some((asked, _)) = answer.baseline.host_copy() else { continue };
        // The choices of a case leave its own kind out: those of another kind have it.
        let other = if asked == MemKind::Paged { MemKind::Pinned } else { MemKind::Paged };
        let Some(flow) = case.timed.first() else { continue };
        for (ends, arm) in [asked, other].iter().flat_map(|mem| arms(&topology, case, *mem)) {
            let Some(rate) = rate_on(model, &arm) else { continue };
            let rates = by_ends.entry(ends).or_default();
            if rates.default.is_none() && arm.task == answer.baseline.task {
                rates.default = Some(arm.label.clone());
            }
            rates.kinds.entry(arm.label).or_default().insert(flow.bytes, rate);
        }
    }
    // Where there is one kind, such as copies over several GPUs, the answers have the rate.
    by_ends
        .iter()
        .filter(|(_, rates)| rates.kinds.len() > 1)
        .map(|(ends, rates)| kinds_table(ends, rates))
        .collect()
}

/// The single copies between which the owner of host memory chooses, with their ends, if a case has memory `mem`.
fn arms(topology: &Topology, case: &Case, mem: MemKind) -> Vec<(String, TrialArm)> {
    let mut case = case.clone();
    for place in case.timed.iter_mut().flat_map(|flow| [&mut flow.src, &mut flow.dst]) {
        if place.unit.numa().is_some() {
            place.mem = mem;
        }
    }
    let is_single = |arm: &TrialArm| matches!(&arm.task, ArmTask::Case(case) if case.timed.len() == 1 && arm.env.is_empty());
    let scopes = questions(topology, &[case], 1, None);
    let arms = scopes.into_iter().flat_map(|scope| {
        let ends = scope.ends;
        scope.choices.into_iter().map(move |choice| (ends.clone(), choice.arm))
    });
    arms.filter(|(_, arm)| is_single(arm)).collect()
}

/// Kinds down, sizes across, with a star at the best of each size and the times of the best and of the default.
fn kinds_table(ends: &str, KindRates { kinds, default }: &KindRates) -> String {
    let sizes: BTreeSet<Bytes> = kinds.values().flat_map(|rates| rates.keys()).copied().collect();
    let best =
        |size: &Bytes| kinds.values().filter_map(|r| r.get(size)).copied().fold(0.0, f64::max);
    let wide = kinds.keys().map(|kind| kind.chars().count()).max().unwrap_or(0);
    let heads: String = sizes.iter().map(|size| format!("{:>10}", size.to_string())).collect();
    let mut text = format!("\n{ends}, GB/s by the model, * the best:\n  {:wide$}{heads}\n", "");
    for (kind, rates) in kinds {
        let cell = |size: &Bytes| {
            rates.get(size).map_or("-".to_owned(), |&rate| {
                let star = if rate >= best(size) { "*" } else { "" };
                format!("{star}{}", Rate(rate).to_string().trim_end_matches(" GB/s"))
            })
        };
        let cells: String = sizes.iter().map(|size| format!("{:>10}", cell(size))).collect();
        text += &format!("  {kind:wide$}{cells}\n");
    }
    let rates = default.as_ref().and_then(|kind| kinds.get(kind));
    let of_default = |size: &Bytes| rates.and_then(|rates| rates.get(size)).copied();
    let mut add_times = |name: &str, rate: &dyn Fn(&Bytes) -> Option<f64>| {
        let time = |size: &Bytes| Some(Ns(size.as_f64() / rate(size)?).to_string());
        let cell = |size: &Bytes| time(size).unwrap_or_else(|| "-".to_owned());
        let cells: String = sizes.iter().map(|size| format!("{:>10}", cell(size))).collect();
        text += &format!("  {name:wide$}{cells}\n");
    };
    add_times("time of the best", &|size| Some(best(size)).filter(|rate| *rate > 0.0));
    if default.is_some() {
        add_times("time of the default", &of_default);
    }
    text
}
