//! From which size non-temporal copies are faster.

use pathline_explain::figures::host::{StoreCrossover, store_crossovers};
use pathline_explain::fmt;
use pathline_schema::{Bytes, CpuHow, CpuOp, Mover};

use crate::evidence::{Evidence, SoundValue, lost};
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "non-temporal-copies";

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    // With every core at work, as an application would.
    let crossovers = store_crossovers(&evidence.run);
    crossovers.last().and_then(|c| finding(evidence, c)).into_iter().collect()
}

/// The copy loop of a number of threads over blocks of a size, in the memory of their domain.
fn copy<'a>(
    evidence: &Evidence<'a>,
    how: CpuHow,
    threads: u32,
    bytes: Bytes,
) -> Option<SoundValue<'a>> {
    let wanted = |by: &Mover| match by {
        Mover::Cpu { work, threads: n, .. } => {
            work.op == CpuOp::Copy && work.how == how && *n == threads
        }
        _ => false,
    };
    let mut found = evidence.lone().filter(|(_, f)| {
        wanted(&f.by) && f.bytes == bytes && f.src.unit == f.dst.unit && f.src.unit == f.by.at()
    });
    evidence.rate(found.next()?.0)
}

fn finding(evidence: &Evidence, crossover: &StoreCrossover) -> Option<Finding> {
    let (from, _) = crossover.at?;
    let largest = crossover.sizes.1;
    let value = |how: CpuHow| copy(evidence, how, crossover.threads, largest);
    let streaming = value(crossover.streaming.0)?;
    let temporal = value(crossover.temporal.0)?;
    let factor = streaming.gain_over(&temporal)?;
    let memcpy = value(CpuHow::Memcpy);
    // An application that calls memcpy has the gain already.
    if memcpy.is_some_and(|memcpy| streaming.gain_over(&memcpy).is_none()) {
        return None;
    }
    let memcpy_text =
        memcpy.map_or(String::new(), |m| format!(", memcpy {}", fmt::number(m.value)));
    let observation = format!(
        "With {}, non-temporal copies lead from {} on: at {} {} reaches {}, {} {}{memcpy_text}.",
        fmt::threads(crossover.threads),
        from.rounded(),
        largest.rounded(),
        crossover.streaming.0,
        streaming.text(),
        crossover.temporal.0,
        fmt::number(temporal.value),
    );
    let mut factors = vec![factor];
    factors.extend(memcpy.and_then(|m| streaming.gain_over(&m)));
    let mut arms = vec![
        streaming.arm(crossover.streaming.0.to_string()),
        temporal.arm(crossover.temporal.0.to_string()),
    ];
    arms.extend(memcpy.map(|m| m.arm("memcpy")));
    Some(Finding {
        short: format!(
            "{} {} copies from {} on, {} {} (non-temporal, {})",
            crossover.streaming.0,
            fmt::gbs(streaming.value),
            from.rounded(),
            crossover.temporal.0,
            fmt::number(temporal.value),
            fmt::threads(crossover.threads)
        ),
        cause: "Ordinary stores read each line of the destination before they overwrite it."
            .to_owned(),
        action: format!(
            "Copy blocks of {} and more with {} where the copy is not read soon.",
            from.rounded(),
            crossover.streaming.0
        ),
        gain: evidence.gain(&factors),
        cost: "The destination is not in the caches afterwards.".to_owned(),
        places: vec![format!("{} of the host", fmt::threads(crossover.threads))],
        arms,
        weight: lost(&streaming, &temporal),
        ..Finding::new(ID, FindingSeverity::Gain, observation)
    })
}
