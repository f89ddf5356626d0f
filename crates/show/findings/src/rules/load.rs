//! What libpathline gains: pageable memory by threads, scattered blocks by one kernel.

use pathline_explain::figures::load::{LoadCell, LoadMethod, LoadTask, copies};
use pathline_explain::fmt;
use pathline_schema::{MemKind, SuiteId};

use crate::evidence::{Evidence, SoundValue, lost};
use crate::{Finding, FindingSeverity};

pub(super) const THREADS: &str = "pageable-by-threads";
pub(super) const KERNEL: &str = "blocks-by-kernel";

/// Fewer threads are named if they reach this share of the best rate.
const NEARLY: f64 = 0.95;

/// A task by a method of libpathline and by the best other one.
struct LoadGain<'a> {
    task: LoadTask,
    method: LoadMethod,
    fast: SoundValue<'a>,
    slow: SoundValue<'a>,
    slow_method: LoadMethod,
    pinned: Option<f64>,
    factor: f64,
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    [by_threads(evidence), by_kernel(evidence)].into_iter().flatten().collect()
}

/// Tasks in which methods of a kind gain over all others but pinned memory.
fn gains<'a>(
    evidence: &Evidence<'a>,
    suite: SuiteId,
    is_own: fn(LoadMethod) -> bool,
) -> Vec<LoadGain<'a>> {
    let all = copies(&evidence.run, suite);
    let mut tasks: Vec<LoadTask> = Vec::new();
    for copy in &all {
        if !tasks.contains(&copy.task) {
            tasks.push(copy.task);
        }
    }
    let rate = |copy: &LoadCell<'_, 'a>| {
        let is_paged = copy
            .entry
            .case
            .flows()
            .any(|flow| [flow.src.mem, flow.dst.mem].contains(&MemKind::Paged));
        let of_few = || evidence.rate_of_few(copy.entry).filter(|_| is_paged);
        Some((copy.method, evidence.rate(copy.entry).or_else(of_few)?))
    };
    let gain = |task: LoadTask| {
        let rates: Vec<(LoadMethod, SoundValue<'a>)> =
            all.iter().filter(|copy| copy.task == task).filter_map(rate).collect();
        let best = |own: bool| {
            let of = rates.iter().filter(|(m, _)| is_own(*m) == own && *m != LoadMethod::Pinned);
            of.copied().max_by(|a, b| a.1.value.total_cmp(&b.1.value))
        };
        let (most, (slow_method, slow)) = (best(true)?.1.value, best(false)?);
        let enough = rates.iter().filter(|(m, rate)| is_own(*m) && rate.value >= NEARLY * most);
        let &(method, fast) = enough.min_by_key(|(method, _)| *method)?;
        let pinned = rates.iter().find(|(m, _)| *m == LoadMethod::Pinned);
        let pinned = pinned.map(|(_, rate)| rate.value);
        let factor = fast.gain_over(&slow)?;
        Some(LoadGain { task, method, fast, slow, slow_method, pinned, factor })
    };
    tasks.into_iter().filter_map(gain).collect()
}

/// Pageable memory by threads, in each direction.
fn by_threads(evidence: &Evidence) -> Option<Finding> {
    let gains = gains(evidence, SuiteId::Load, |m| matches!(m, LoadMethod::Threads(_)));
    let part = |gain: &LoadGain| {
        let pinned = gain.pinned.map_or(String::new(), |v| format!(", pinned {}", fmt::number(v)));
        format!(
            "{}: {} by the runtime, {} by {}{pinned}",
            gain.task.direction(),
            fmt::gbs(gain.slow.value),
            fmt::number(gain.fast.value),
            gain.method.label()
        )
    };
    let first = gains.first()?;
    let parts: Vec<String> = gains.iter().map(part).collect();
    Some(Finding {
        short: format!("Pageable {}", part(first)),
        cause: "The runtime copies pageable memory by one thread through its own pinned buffers.".to_owned(),
        action: "Copy it with libpathline (pl_copy, pathline.copy in Python), or pin what is copied often."
            .to_owned(),
        cost: format!("CPU time of {} while it lasts, 8 MiB of pinned memory each.", first.method.label()),
        ..finding(evidence, &gains, THREADS, format!("Pageable memory, {}.", parts.join("; ")))
    })
}

/// Blocks by one kernel: the largest size at which it gains, in each direction, and the smallest.
fn by_kernel(evidence: &Evidence) -> Option<Finding> {
    let gains = gains(evidence, SuiteId::Blocks, |m| matches!(m, LoadMethod::Kernel(_)));
    let part = |inward: bool| {
        let of = || gains.iter().filter(|gain| gain.task.outward != inward);
        let (least, largest) =
            (of().min_by_key(|g| g.task.bytes)?, of().max_by_key(|g| g.task.bytes)?);
        Some(format!(
            "{} up to {} ({}: {}, {} {})",
            least.task.direction(),
            largest.task.bytes,
            least.task.bytes,
            fmt::gbs(least.fast.value),
            fmt::number(least.slow.value),
            match least.slow_method {
                LoadMethod::Batch => "by one call for many",
                _ => "by a copy each",
            }
        ))
    };
    let parts: Vec<String> = [true, false].into_iter().filter_map(part).collect();
    let first = gains.iter().max_by(|a, b| a.factor.total_cmp(&b.factor))?;
    Some(Finding {
        short: format!(
            "Blocks of {} {}: {} by one kernel, {} otherwise",
            first.task.bytes,
            first.task.direction(),
            fmt::gbs(first.fast.value),
            fmt::number(first.slow.value)
        ),
        cause: "A copy engine starts once for each block.".to_owned(),
        action: "Copy them by one call of libpathline (pl_copy_batch_async, pathline.copy_addresses in Python)."
            .to_owned(),
        cost: match first.method {
            LoadMethod::Kernel(units) => format!("{units} multiprocessors while it lasts."),
            _ => String::new(),
        },
        ..finding(
            evidence,
            &gains,
            KERNEL,
            format!("One kernel copies scattered blocks fastest: {}.", parts.join("; ")),
        )
    })
}

/// What both findings have in common.
fn finding(
    evidence: &Evidence,
    gains: &[LoadGain],
    id: &'static str,
    observation: String,
) -> Finding {
    let factors: Vec<f64> = gains.iter().map(|gain| gain.factor).collect();
    let arms = gains.iter().flat_map(|gain| {
        [(gain.fast, gain.method), (gain.slow, gain.slow_method)]
            .map(|(rate, method)| rate.arm(method.label()))
    });
    Finding {
        gain: evidence.gain(&factors),
        places: gains
            .iter()
            .map(|gain| format!("{} {}", gain.task.direction(), gain.task.bytes))
            .collect(),
        arms: arms.collect(),
        weight: gains.iter().map(|gain| lost(&gain.fast, &gain.slow)).fold(0.0, f64::max),
        ..Finding::new(id, FindingSeverity::Gain, observation)
    }
}
