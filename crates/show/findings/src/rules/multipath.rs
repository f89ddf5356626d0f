//! Copies over several paths at once: where they gain, and where they do not.

use pathline_explain::figures::multipath::{MultipathCell, PathTask, copies, model_seconds};
use pathline_explain::fmt;
use pathline_schema::Mover;

use crate::evidence::{Evidence, SoundValue, lost, median};
use crate::{Finding, FindingSeverity};

pub(super) const FASTER: &str = "several-paths-faster";
pub(super) const NO_GAIN: &str = "several-paths-no-gain";

/// The fastest plain copy of a task and the fastest over several paths, GB/s into each destination.
struct PathComparison<'a> {
    task: PathTask,
    plain: SoundValue<'a>,
    several: SoundValue<'a>,
    by: Mover,
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let all = comparisons(evidence);
    let faster = |several: bool| faster(evidence, &all, several);
    [faster(true), faster(false), no_gain(&all)].into_iter().flatten().collect()
}

/// Of each task with sound values, the two that are compared.
fn comparisons<'a>(evidence: &Evidence<'a>) -> Vec<PathComparison<'a>> {
    let copies = copies(&evidence.run);
    let mut tasks: Vec<&PathTask> = Vec::new();
    for copy in &copies {
        if !tasks.contains(&&copy.task) {
            tasks.push(&copy.task);
        }
    }
    // The sum of plain copies to several GPUs is shared by them.
    let value = |copy: &MultipathCell<'_, 'a>| {
        let sum = evidence.rate(copy.entry)?;
        let each = 1.0 / copy.entry.case.timed.len().max(1) as f64;
        Some(SoundValue {
            value: sum.value * each,
            low: sum.low * each,
            high: sum.high * each,
            ..sum
        })
    };
    let compare = |task: &&PathTask| {
        let of_task = || copies.iter().filter(|copy| copy.task == **task);
        let fastest = |is_several: bool| {
            let of_kind = of_task().filter(|copy| {
                copy.entry.case.timed.iter().any(|flow| flow.by.paths().is_some()) == is_several
            });
            of_kind.filter_map(value).max_by(|a, b| a.value.total_cmp(&b.value))
        };
        let (plain, several) = (fastest(false)?, fastest(true)?);
        let by = several.case.timed.first()?.by;
        Some(PathComparison { task: (*task).clone(), plain, several, by })
    };
    tasks.iter().filter_map(compare).collect()
}

/// The greatest gain into one place, or into several GPUs; all gains of its kind are its range.
fn faster(evidence: &Evidence, all: &[PathComparison], several: bool) -> Option<Finding> {
    let of_kind = all.iter().filter(|c| (c.task.gpus > 1) == several);
    let gains: Vec<(&PathComparison, f64)> =
        of_kind.filter_map(|c| Some((c, c.several.gain_over(&c.plain)?))).collect();
    let &(most, _) = gains.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let factors: Vec<f64> = gains.iter().map(|(_, factor)| *factor).collect();
    let (slow, fast) = (model_seconds(most.plain.value), model_seconds(most.several.value));
    let observation = match most.task.gpus {
        0 | 1 => format!(
            "64 GB from {} take {fast} instead of {slow}: {} over several paths at once, {} plain ({} at a \
             time).",
            most.task.ends(),
            most.several.text(),
            fmt::number(most.plain.value),
            most.task.bytes
        ),
        gpus => format!(
            "64 GB to all {gpus} GPUs take {fast} instead of {slow}: {} into each if each loads a part and the \
             others pull it, {} if each loads all ({} at a time).",
            most.several.text(),
            fmt::number(most.plain.value),
            most.task.bytes
        ),
    };
    let cause = match most.task.gpus {
        0 | 1 => "One copy uses the links of one GPU; the links of the relays are idle.",
        _ => "Every GPU loads the same bytes over the memory and links that they share.",
    };
    let helpers = most.by.paths().map_or(0, |paths| paths.gpus.len());
    Some(Finding {
        short: format!(
            "Several paths: 64 GB {} in {fast}, plain in {slow}",
            match most.task.gpus {
                0 | 1 => format!("from {}", most.task.ends()),
                gpus => format!("to all {gpus} GPUs"),
            }
        ),
        cause: cause.to_owned(),
        action: format!("Copy over several paths: {}.", most.by),
        gain: evidence.gain(&factors),
        cost: match most.task.gpus {
            0 | 1 => format!(
                "Links of {helpers} more GPUs while it lasts, and four chunks of memory on each."
            ),
            _ => String::new(),
        },
        places: gains.iter().map(|(c, _)| c.task.label()).collect(),
        arms: vec![most.several.arm("over several paths"), most.plain.arm("plain")],
        weight: lost(&most.several, &most.plain) * most.task.gpus.max(1) as f64,
        ..Finding::new(FASTER, FindingSeverity::Gain, observation)
    })
}

/// Tasks in which several paths are not faster, at their largest payload.
fn no_gain(all: &[PathComparison]) -> Option<Finding> {
    let ends = |task: &PathTask| (task.src, task.dst, task.gpus);
    let is_largest = |c: &&PathComparison| {
        let others = all.iter().filter(|other| ends(&other.task) == ends(&c.task));
        others.map(|other| other.task.bytes).max() == Some(c.task.bytes)
    };
    let without: Vec<&PathComparison> =
        all.iter().filter(is_largest).filter(|c| c.several.gain_over(&c.plain).is_none()).collect();
    let first = without.first()?;
    let part = |c: &&PathComparison| {
        format!(
            "{}: {} over several paths, {} plain",
            c.task.label(),
            c.several.text(),
            fmt::number(c.plain.value)
        )
    };
    let parts: Vec<String> = without.iter().map(part).collect();
    Some(Finding {
        short: format!("Several paths gain nothing: {}", part(first)),
        cause: "The plain copy already fills what all paths share.".to_owned(),
        action: "Leave these to the plain copy.".to_owned(),
        places: without.iter().map(|c| c.task.label()).collect(),
        arms: vec![first.several.arm("over several paths"), first.plain.arm("plain")],
        weight: median(without.iter().map(|c| c.plain.value)),
        ..Finding::new(
            NO_GAIN,
            FindingSeverity::Note,
            format!("Several paths gain nothing: {}.", parts.join("; ")),
        )
    })
}
