//! Which kind of host memory, and which access to it, is fastest at which size.

use std::collections::BTreeSet;

use pathline_explain::fmt;
use pathline_explain::run::RunEntry;
use pathline_schema::{Bytes, MemKind, Mover, RuntimeCall};

use crate::evidence::{Evidence, LEAST_GAIN, SoundValue, lost, range_of, range_text, widest_text};
use crate::host_copies::{HostPathKind, HostTransfer, direction, host_transfers};
use crate::{Finding, FindingSeverity};

pub(super) const PAGEABLE: &str = "pageable-copies-slow";
pub(super) const BY_SIZE: &str = "memory-kind-by-size";
pub(super) const ZERO_COPY: &str = "zero-copy-for-small";
pub(super) const CROSSOVER: &str = "zero-copy-crossover";
pub(super) const NOT_CACHED: &str = "coherent-not-cached";
pub(super) const FAULTS: &str = "page-faults-slow";
pub(super) const ALIKE: &str = "pinned-kinds-alike";

/// A gain of at most this factor is little.
const LITTLE: f64 = 1.25;
/// Gains of at least this share of the greatest are nearly as great.
const NEARLY: f64 = 0.9;

/// From this size on rates hardly depend on the size, so that sizes may differ between two arms.
const LARGE: Bytes = Bytes::mib(16);

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let all = host_transfers(evidence);
    [
        pageable(evidence, &all),
        by_size(evidence, &all, true),
        by_size(evidence, &all, false),
        zero_copy(evidence, &all),
        crossover(evidence, &all),
        not_cached(evidence),
        faults(evidence, &all),
        alike(evidence, &all),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// GPUs of these transfers, ascending.
fn gpus(all: &[HostTransfer]) -> BTreeSet<u32> {
    all.iter().map(|t| t.gpu).collect()
}

/// `gpu0-gpu7`, `gpu0`, `gpu0, gpu2`.
fn gpu_list(gpus: &BTreeSet<u32>) -> String {
    match (gpus.first(), gpus.last()) {
        (Some(first), Some(last)) if first != last && (last - first) as usize == gpus.len() - 1 => {
            format!("gpu{first}-gpu{last}")
        }
        _ => gpus.iter().map(|g| format!("gpu{g}")).collect::<Vec<_>>().join(", "),
    }
}

/// Slow and fast transfer of one GPU, direction and size.
struct PinnedGain<'a> {
    pageable: HostTransfer<'a>,
    pinned: HostTransfer<'a>,
    factor: f64,
}

/// Pageable copies that pinned ones beat, at the size at which they do so the most.
fn pageable(evidence: &Evidence, all: &[HostTransfer]) -> Option<Finding> {
    let of_kind = |kind| all.iter().filter(move |t| t.kind == HostPathKind::Copy(kind));
    let key = |t: &HostTransfer| (t.gpu, !t.inward, t.bytes);
    let pairs = of_kind(MemKind::Paged).filter_map(|slow| {
        let fast = of_kind(MemKind::Pinned).find(|fast| key(fast) == key(slow))?;
        Some((*slow, *fast))
    });
    let mut found: Vec<PinnedGain> = pairs
        .filter_map(|(pageable, pinned)| {
            let factor = pinned.rate.gain_over(&pageable.rate)?;
            Some(PinnedGain { pageable, pinned, factor })
        })
        .collect();
    found.sort_by_key(|g| key(&g.pageable));
    let most = found.iter().map(|g| g.factor).reduce(f64::max)?;
    // Of sizes with nearly the same gain, the one that most GPUs have.
    let near = found.iter().filter(|g| g.factor >= NEARLY * most).map(|g| g.pageable.bytes);
    let paths = |size: Bytes| found.iter().filter(|g| g.pageable.bytes == size).count();
    let size = near.max_by_key(|size| (paths(*size), *size))?;
    // The largest smaller size at which pageable memory loses little.
    let fine = found.iter().filter(|g| g.pageable.bytes < size && g.factor <= LITTLE);
    let fine = fine.max_by_key(|g| g.pageable.bytes).map_or(String::new(), |g| {
        format!("at {} {}x", g.pageable.bytes.rounded(), fmt::number(g.factor))
    });
    found.retain(|g| g.pageable.bytes == size);
    let first = found.first()?;
    let mut parts = Vec::new();
    let mut arms = Vec::new();
    for inward in [true, false] {
        let of: Vec<&PinnedGain> = found.iter().filter(|g| g.pageable.inward == inward).collect();
        let Some(one) = of.first() else { continue };
        let slow: Vec<SoundValue> = of.iter().map(|g| g.pageable.rate).collect();
        let fast: Vec<SoundValue> = of.iter().map(|g| g.pinned.rate).collect();
        parts.push(format!(
            "{} {} GB/s{}, pinned {}",
            direction(inward),
            range_text(&slow),
            widest_text(&slow),
            range_text(&fast)
        ));
        arms.push(one.pageable.rate.arm(format!("pageable {}", direction(inward))));
        arms.push(one.pinned.rate.arm(format!("pinned {}", direction(inward))));
    }
    let concerned: BTreeSet<u32> = found.iter().map(|g| g.pageable.gpu).collect();
    let factors: Vec<f64> = found.iter().map(|g| g.factor).collect();
    let observation = format!(
        "Copies of {} from and to pageable host memory are slow: {} ({}).",
        size.rounded(),
        parts.join("; "),
        [fine.as_str(), &gpu_list(&concerned)].join("; ").trim_start_matches("; ")
    );
    let staged = first.pageable.engine;
    let calls = evidence.caps().pin_calls;
    let (cost, pin_arms) = pin_cost(evidence, &found);
    arms.extend(pin_arms);
    let (name, slow, fast) = (direction(first.pageable.inward), &first.pageable, &first.pinned);
    Some(Finding {
        short: format!(
            "Pageable {name} of {}: {} GB/s{}, pinned {} ({})",
            size.rounded(),
            fmt::number(slow.rate.value),
            widest_text(&[slow.rate]),
            fmt::number(fast.rate.value),
            [format!("{}x", fmt::number(first.factor)), fine].join(", ").trim_end_matches(", ")
        ),
        cause: if staged.is_empty() {
            String::new()
        } else {
            format!("The runtime copies pageable memory through its own pinned buffers ({staged}).")
        },
        action: format!(
            "Pin buffers that are copied often ({}, or allocate them pinned).",
            calls[0]
        ),
        gain: evidence.gain(&factors),
        cost,
        places: concerned.iter().map(|g| format!("gpu{g}")).collect(),
        arms,
        weight: found.iter().map(|g| lost(&g.pinned.rate, &g.pageable.rate)).sum(),
        ..Finding::new(PAGEABLE, FindingSeverity::Gain, observation)
    })
}

/// What pinning costs at the size of the finding, and after how many copies it pays.
fn pin_cost(evidence: &Evidence, found: &[PinnedGain]) -> (String, Vec<crate::FindingArm>) {
    let calls = evidence.caps().pin_calls;
    let mut arms = Vec::new();
    let mut parts = Vec::new();
    for (mem, pages) in [(MemKind::Paged, ""), (MemKind::Huge, " in huge pages")] {
        let Some(one) = found.first() else { break };
        let size = one.pageable.bytes;
        let time = |wanted: RuntimeCall| {
            let of = |entry: &RunEntry| {
                let flow = entry.lone()?;
                let Mover::Call { call, .. } = flow.by else { return None };
                let memory = flow.subject()?.mem;
                (call == wanted && memory == mem && flow.bytes == size).then_some(())
            };
            evidence.run.entries.iter().find(|e| of(e).is_some()).and_then(|e| evidence.time(e))
        };
        let (Some(pin), Some(unpin)) = (time(RuntimeCall::Register), time(RuntimeCall::Unregister))
        else {
            continue;
        };
        let saved = |g: &PinnedGain| {
            let us = |rate: f64| size.as_f64() / rate / 1e3;
            us(g.pageable.rate.value) - us(g.pinned.rate.value)
        };
        let copies = found.iter().map(|g| (pin.value + unpin.value) / saved(g));
        let copies: Vec<f64> = copies.map(f64::ceil).collect();
        let Some((least, most)) = range_of(&copies) else { continue };
        let pays = if most <= 1.0 {
            "the first copy".to_owned()
        } else if least == most {
            format!("{most:.0} copies")
        } else {
            format!("{least:.0} to {most:.0} copies")
        };
        parts.push(format!(
            "pinning {}{pages} takes {} ms and releasing it {} ms, which {pays} repay{}",
            size.rounded(),
            fmt::number(pin.value / 1e3),
            fmt::number(unpin.value / 1e3),
            if most <= 1.0 { "s" } else { "" },
        ));
        arms.push(pin.arm(format!("{}{pages}", calls[0])));
        arms.push(unpin.arm(format!("{}{pages}", calls[1])));
    }
    let text = match parts.is_empty() {
        true => "Pinned memory cannot be swapped, and pinning takes time.".to_owned(),
        false => format!("{}.", fmt::sentence(&parts.join("; "))),
    };
    (text, arms)
}

/// The fastest kind of copied memory at one size, if it is surely faster than pinned or pageable memory.
struct SizeWinner<'a> {
    bytes: Bytes,
    /// None where the intervals do not separate.
    winner: Option<HostPathKind>,
    pageable: SoundValue<'a>,
    pinned: SoundValue<'a>,
}

/// Where the best of pageable and pinned memory changes with the size.
fn by_size(evidence: &Evidence, all: &[HostTransfer], inward: bool) -> Option<Finding> {
    let gpu = *gpus(all).first()?;
    let of = || all.iter().filter(|t| t.gpu == gpu && t.inward == inward);
    let value = |mem: MemKind, bytes: Bytes| {
        of().find(|t| t.kind == HostPathKind::Copy(mem) && t.bytes == bytes).map(|t| t.rate)
    };
    let sizes: BTreeSet<Bytes> = of().map(|t| t.bytes).collect();
    let winners: Vec<SizeWinner> = sizes
        .into_iter()
        .filter_map(|bytes| {
            let (pageable, pinned) =
                (value(MemKind::Paged, bytes)?, value(MemKind::Pinned, bytes)?);
            let winner = if pageable.gain_over(&pinned).is_some() {
                Some(HostPathKind::Copy(MemKind::Paged))
            } else if pinned.gain_over(&pageable).is_some() {
                Some(HostPathKind::Copy(MemKind::Pinned))
            } else {
                None
            };
            Some(SizeWinner { bytes, winner, pageable, pinned })
        })
        .collect();
    // From the smallest size on pageable memory wins, or draws between sizes at which it wins.
    let pageable_wins = |w: &SizeWinner| w.winner == Some(HostPathKind::Copy(MemKind::Paged));
    let first_pinned =
        winners.iter().position(|w| w.winner == Some(HostPathKind::Copy(MemKind::Pinned)))?;
    let small: Vec<&SizeWinner> =
        winners.iter().take(first_pinned).filter(|w| pageable_wins(w)).collect();
    let (last, from) = (small.last()?, winners.get(first_pinned)?);
    if winners.iter().skip(first_pinned).any(pageable_wins) {
        return None;
    }
    let factors: Vec<f64> = small.iter().map(|w| w.pageable.value / w.pinned.value).collect();
    let best = small
        .iter()
        .max_by(|a, b| lost(&a.pageable, &a.pinned).total_cmp(&lost(&b.pageable, &b.pinned)))?;
    let us = |w: &SizeWinner, rate: SoundValue| w.bytes.as_f64() / rate.value / 1e3;
    let name = direction(inward);
    let observation = format!(
        "{name} copies of up to {} are faster from pageable memory than from pinned (gpu{gpu}, {}: {} \
         against {}); from {} on pinned memory is faster ({} against {} GB/s).",
        last.bytes.rounded(),
        best.bytes.rounded(),
        best.pageable.text(),
        best.pinned.text(),
        from.bytes.rounded(),
        fmt::number(from.pinned.value),
        fmt::number(from.pageable.value),
    );
    Some(Finding {
        short: format!(
            "Up to {}, {name} is faster from pageable memory: {} against {} GB/s at {}",
            last.bytes.rounded(),
            fmt::number(best.pageable.value),
            fmt::number(best.pinned.value),
            best.bytes.rounded()
        ),
        cause: format!(
            "The start of a copy dominates at these sizes: {} us from pageable memory, {} us from pinned \
             ({}, queued).",
            fmt::number(us(best, best.pageable)),
            fmt::number(us(best, best.pinned)),
            best.bytes.rounded()
        ),
        action: format!(
            "Leave buffers of copies of up to {} pageable; pin those of {} and more.",
            last.bytes.rounded(),
            from.bytes.rounded()
        ),
        gain: evidence.gain(&factors),
        cost: "The call may wait for a copy from pageable memory.".to_owned(),
        places: vec![format!("gpu{gpu}")],
        arms: vec![
            best.pageable.arm(format!("pageable {name}")),
            best.pinned.arm(format!("pinned {name}")),
            from.pageable.arm(format!("pageable {name}")),
            from.pinned.arm(format!("pinned {name}")),
        ],
        weight: lost(&best.pageable, &best.pinned),
        ..Finding::new(BY_SIZE, FindingSeverity::Gain, observation)
    })
}

/// Sizes at which a kernel that reads host memory in place beats the copy.
fn zero_copy(evidence: &Evidence, all: &[HostTransfer]) -> Option<Finding> {
    let gpu = *gpus(all).first()?;
    let of = || all.iter().filter(|t| t.gpu == gpu && t.inward);
    let sizes: BTreeSet<Bytes> = of().map(|t| t.bytes).collect();
    let mut both = Vec::new();
    for bytes in sizes {
        let at = || of().filter(move |t| t.bytes == bytes);
        let in_place = at().filter(|t| matches!(t.kind, HostPathKind::ZeroCopy(_)));
        let copies = at().filter(|t| matches!(t.kind, HostPathKind::Copy(_)));
        let faster = |a: &&HostTransfer, b: &&HostTransfer| a.rate.value.total_cmp(&b.rate.value);
        if let (Some(read), Some(copy)) = (in_place.max_by(faster), copies.max_by(faster)) {
            both.push((*read, *copy, read.rate.gain_over(&copy.rate)));
        }
    }
    let ahead: Vec<_> = both.iter().take_while(|b| b.2.is_some()).collect();
    let (read, copy, _) = ahead.last()?;
    let middle = ahead.get(ahead.len() / 2)?;
    let factors: Vec<f64> = ahead.iter().filter_map(|b| b.2).collect();
    let up_to = if ahead.len() == both.len() {
        format!("at every size up to {}", read.bytes.rounded())
    } else {
        format!("up to {}", read.bytes.rounded())
    };
    let observation = format!(
        "Zero-copy: a kernel that reads host memory in place beats the fastest H2D copy {up_to} (gpu{gpu}, \
         {}: {} against {} {}).",
        middle.0.bytes.rounded(),
        middle.0.rate.text(),
        fmt::gbs(middle.1.rate.value),
        middle.1.kind.label(),
    );
    let us = |t: &HostTransfer| t.bytes.as_f64() / t.rate.value / 1e3;
    Some(Finding {
        short: format!(
            "Zero-copy reads beat H2D copies {up_to}: {} against {} at {}",
            fmt::number(middle.0.rate.value),
            fmt::gbs(middle.1.rate.value),
            middle.0.bytes.rounded()
        ),
        cause: match ahead.first() {
            Some((read, copy, _)) => format!(
                "A copy takes {} us to start, a kernel {} us ({}, queued).",
                fmt::number(us(copy)),
                fmt::number(us(read)),
                read.bytes.rounded()
            ),
            None => String::new(),
        },
        action: format!(
            "Let the kernel read inputs of up to {} in place if it reads each byte once.",
            read.bytes.rounded()
        ),
        gain: evidence.gain(&factors),
        cost: "Each further read of the same bytes crosses the host link again.".to_owned(),
        places: vec![format!("gpu{gpu}")],
        arms: vec![
            middle.0.rate.arm(middle.0.kind.label()),
            middle.1.rate.arm(format!("{} copy", middle.1.kind.label())),
            read.rate.arm(read.kind.label()),
            copy.rate.arm(format!("{} copy", copy.kind.label())),
        ],
        weight: lost(&read.rate, &copy.rate),
        ..Finding::new(ZERO_COPY, FindingSeverity::Gain, observation)
    })
}

/// Zero-copy access next to the copy of pinned memory at one size.
struct InPlaceAndCopied<'a> {
    bytes: Bytes,
    read: HostTransfer<'a>,
    copy: HostTransfer<'a>,
}

/// The size up to which a kernel that reads host memory in place keeps up with a copy of pinned
/// memory, and the size from which the copy is faster at every size.
fn crossover(evidence: &Evidence, all: &[HostTransfer]) -> Option<Finding> {
    let gpu = *gpus(all).first()?;
    let of = || all.iter().filter(|t| t.gpu == gpu && t.inward);
    let sizes: BTreeSet<Bytes> = of().map(|t| t.bytes).collect();
    let at = |bytes: Bytes| {
        let faster = |a: &&HostTransfer, b: &&HostTransfer| a.rate.value.total_cmp(&b.rate.value);
        let reads =
            of().filter(|t| t.bytes == bytes && matches!(t.kind, HostPathKind::ZeroCopy(_)));
        let copy =
            of().find(|t| t.bytes == bytes && t.kind == HostPathKind::Copy(MemKind::Pinned))?;
        Some(InPlaceAndCopied { bytes, read: *reads.max_by(faster)?, copy: *copy })
    };
    let both: Vec<InPlaceAndCopied> = sizes.into_iter().filter_map(at).collect();
    let slower = |b: &InPlaceAndCopied| b.copy.rate.gain_over(&b.read.rate);
    // Both sides of the crossover need a size: one alone does not show where it lies.
    let first = both.iter().rposition(|b| slower(b).is_none())? + 1;
    let (last, from) = (both.get(first - 1)?, both.get(first)?);
    let factors: Vec<f64> = both.iter().skip(first).filter_map(slower).collect();
    let range = [last.bytes, from.bytes].map(|b| b.rounded());
    let rates = |b: &InPlaceAndCopied| {
        format!(
            "{} against {} GB/s",
            fmt::number(b.read.rate.value),
            fmt::number(b.copy.rate.value)
        )
    };
    let observation = format!(
        "Access in place ({}) keeps up with copies of pinned memory up to {} ({}); from {} on the copy \
         is faster ({}, gpu{gpu}).",
        last.read.kind.label(),
        range[0],
        rates(last),
        range[1],
        rates(from),
    );
    Some(Finding {
        short: format!(
            "Zero-copy keeps up with pinned copies to {}; at {} it has {} GB/s, a copy {}",
            range[0],
            range[1],
            fmt::number(from.read.rate.value),
            fmt::number(from.copy.rate.value)
        ),
        action: format!(
            "Read inputs of up to {} in place; copy larger ones from pinned memory first.",
            range[0]
        ),
        gain: evidence.gain(&factors),
        cost: "A copy takes device memory, and ends before the kernel starts.".to_owned(),
        places: vec![format!("gpu{gpu}")],
        arms: [last, from]
            .into_iter()
            .flat_map(|b| {
                let size = b.bytes.rounded();
                [
                    b.read.rate.arm(format!("{}, {size}", b.read.kind.label())),
                    b.copy.rate.arm(format!("{} copy, {size}", b.copy.kind.label())),
                ]
            })
            .collect(),
        weight: lost(&from.copy.rate, &from.read.rate),
        ..Finding::new(CROSSOVER, FindingSeverity::Gain, observation)
    })
}

/// Kernels that read the same host memory several times: coherent against non-coherent.
fn not_cached(evidence: &Evidence) -> Option<Finding> {
    let again = |wanted: MemKind| {
        let mut found = evidence.lone().filter_map(|(entry, flow)| {
            let Mover::Kernel { at, variant } = flow.by else { return None };
            let fits = variant.passes > 1 && flow.src.unit.numa().is_some();
            (fits && flow.src.mem == wanted).then_some((entry, flow, at, variant.passes))
        });
        let (entry, flow, at, passes) = found.next()?;
        Some((evidence.rate(entry)?, flow.bytes, at, passes))
    };
    let (coherent, bytes, at, passes) = again(MemKind::Pinned)?;
    let (cached, same_bytes, same_at, same_passes) = again(MemKind::PinnedNonCoherent)?;
    if (bytes, at, passes) != (same_bytes, same_at, same_passes) {
        return None;
    }
    let factor = cached.gain_over(&coherent)?;
    let us = |rate: &SoundValue| fmt::number(bytes.as_f64() / rate.value / 1e3);
    let observation = format!(
        "Coherent pinned memory is not cached by the GPU: a kernel that reads {} of it {passes} times takes \
         {} us, of non-coherent pinned memory {} us ({at}).",
        bytes.rounded(),
        us(&coherent),
        us(&cached),
    );
    Some(Finding {
        short: format!(
            "Coherent pinned memory is not cached: {passes} reads of {} take {} us, non-coherent {} us",
            bytes.rounded(),
            us(&coherent),
            us(&cached)
        ),
        cause: "Each read of coherent memory crosses the host link.".to_owned(),
        action: "Allocate host memory that kernels read more than once as non-coherent pinned memory, or \
                 copy it to the GPU first."
            .to_owned(),
        gain: evidence.gain(&[factor]),
        cost: "The CPU sees what a kernel writes to non-coherent memory only after the kernel ends."
            .to_owned(),
        places: vec![at.to_string()],
        arms: vec![
            coherent.arm(format!("coherent, read {passes} times")),
            cached.arm(format!("non-coherent, read {passes} times")),
        ],
        weight: lost(&cached, &coherent),
        ..Finding::new(NOT_CACHED, FindingSeverity::Gain, observation)
    })
}

/// Migration by page faults against a prefetch, or against access in place.
fn faults(evidence: &Evidence, all: &[HostTransfer]) -> Option<Finding> {
    let caps = evidence.caps();
    let large = || all.iter().filter(|t| t.inward && t.bytes >= LARGE);
    let slow: Vec<&HostTransfer> = gpus(all)
        .into_iter()
        .filter_map(|gpu| {
            let of = large().filter(|t| t.gpu == gpu && t.kind == HostPathKind::Faults);
            of.max_by_key(|t| t.bytes)
        })
        .collect();
    let first = *slow.first()?;
    let best = |wanted: &dyn Fn(HostPathKind) -> bool| {
        let of = large().filter(|t| t.gpu == first.gpu && wanted(t.kind));
        of.max_by_key(|t| (t.bytes == first.bytes, t.bytes))
    };
    let prefetch = best(&|kind| kind == HostPathKind::Prefetch)
        .and_then(|t| Some((t, t.rate.gain_over(&first.rate)?)));
    let in_place = best(&|kind| kind == HostPathKind::ZeroCopy(MemKind::Managed))
        .and_then(|t| Some((t, t.rate.gain_over(&first.rate)?)));
    let (mut parts, mut actions, mut factors) = (Vec::new(), Vec::new(), Vec::new());
    let mut others = Vec::new();
    let faults_label = match caps.page_fault_env {
        Some(name) => format!("page faults ({name}=1)"),
        None => "page faults".to_owned(),
    };
    let mut arms = vec![first.rate.arm(faults_label.clone())];
    let at = |t: &HostTransfer| match t.bytes == first.bytes {
        true => String::new(),
        false => format!(" ({})", t.bytes.rounded()),
    };
    if let Some((t, factor)) = prefetch {
        parts.push(format!("a prefetch reaches {}{}", fmt::gbs(t.rate.value), at(t)));
        others.push(format!("prefetch {}", fmt::number(t.rate.value)));
        actions.push(format!("call {} before the kernel", caps.prefetch_call));
        arms.push(t.rate.arm(caps.prefetch_call));
        factors.push(factor);
    }
    if let Some((t, factor)) = in_place {
        parts.push(format!("reading in place {}{}", fmt::gbs(t.rate.value), at(t)));
        others.push(format!("reading in place {}", fmt::number(t.rate.value)));
        let setting = caps.page_fault_env.map_or(String::new(), |name| format!(" ({name}=0)"));
        actions.push(format!("leave pages that are read once on the host{setting}"));
        arms.push(t.rate.arm(format!("read in place{setting}")));
        factors.push(factor);
    }
    let best_rate = [prefetch, in_place].into_iter().flatten().map(|t| t.0.rate.value);
    let best_rate = best_rate.reduce(f64::max)?;
    let observation = format!(
        "Managed memory migrates to gpu{} by {faults_label} at {} ({}); {}.",
        first.gpu,
        first.rate.text(),
        first.bytes.rounded(),
        fmt::list(&parts)
    );
    Some(Finding {
        short: format!(
            "Page faults move {} into gpu{} ({}), {}",
            fmt::gbs(first.rate.value),
            first.gpu,
            first.bytes.rounded(),
            others.join(", ")
        ),
        action: format!("{}.", fmt::sentence(&actions.join(", or "))),
        gain: evidence.gain(&factors),
        places: slow.iter().map(|t| format!("gpu{}", t.gpu)).collect(),
        arms,
        weight: best_rate - first.rate.value,
        ..Finding::new(FAULTS, FindingSeverity::Gain, observation)
    })
}

/// Kinds of page-locked memory that copy equally fast.
fn alike(_: &Evidence, all: &[HostTransfer]) -> Option<Finding> {
    let gpu = *gpus(all).first()?;
    let mut parts = Vec::new();
    let mut arms = Vec::new();
    let mut kinds = BTreeSet::new();
    let mut size = None;
    for inward in [true, false] {
        let of =
            || all.iter().filter(|t| t.gpu == gpu && t.inward == inward && t.kind.is_pinned_copy());
        let largest = of()
            .map(|t| t.bytes)
            .filter(|bytes| of().filter(|t| t.bytes == *bytes).count() >= 3)
            .max()?;
        let values: Vec<&HostTransfer> = of().filter(|t| t.bytes == largest).collect();
        let rates: Vec<f64> = values.iter().map(|t| t.rate.value).collect();
        let (low, high) = range_of(&rates)?;
        let sharp = values.iter().all(|t| t.rate.half_width() <= LEAST_GAIN / 2.0 * t.rate.value);
        if high > low * (1.0 + LEAST_GAIN) || !sharp {
            return None;
        }
        parts.push(format!("{} GB/s {}", fmt::range(low, high), direction(inward)));
        arms.extend(
            values.iter().map(|t| t.rate.arm(format!("{} {}", t.kind.label(), direction(inward)))),
        );
        kinds.extend(values.iter().map(|t| t.kind.label()));
        size = Some(largest);
    }
    let names: Vec<String> = kinds.into_iter().collect();
    let observation = format!(
        "The engine copies all kinds of page-locked memory alike ({}): {} (gpu{gpu}, {}).",
        names.join(", "),
        fmt::list(&parts),
        size?.rounded(),
    );
    Some(Finding {
        short: format!("All {} pinned kinds copy alike: {}", names.len(), fmt::list(&parts)),
        action: "Choose the kind by what the CPU does with it.".to_owned(),
        places: vec![format!("gpu{gpu}")],
        arms,
        ..Finding::new(ALIKE, FindingSeverity::Note, observation)
    })
}
