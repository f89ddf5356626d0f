//! Copies between two processes of a node: the fastest one at each size, and its effect on the
//! receiver's loads of the data.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, CoreDistance, CpuHow, ShmCopies, SuiteId, Transport, WireOp};

use super::pivot::chart;
use super::sent_flows::{self, SentFlow, sent_flow};
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, cache_ring, sorted};
use crate::figures::messages::beats;
use crate::fmt;
use crate::run::CaseQuantity::{Payload, StepUs};
use crate::run::RunView;

const SUITE: SuiteId = SuiteId::Shm;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all = sent_flows::in_suite(run, SUITE);
    SuiteFindings::new(figures(run, &all), [sentence(run, &all)])
}

/// A message alone, whose bytes nobody loads.
const SEND: WireOp = WireOp::Send { window: 1 };

fn figures(run: &RunView, all: &[SentFlow<'_, '_>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let single = || all.iter().filter(|s| s.at_once == 1);
    for near in sorted(single().map(|s| s.wire.near)) {
        let alone: Vec<&SentFlow> = single().filter(|s| s.wire.near == near).collect();
        figures.extend(rates(run, near, SEND, &alone));
        figures.extend(rates(run, near, WireOp::Consume, &alone));
        figures.extend(latency(run, near, &alone));
        figures.extend(paid(run, near, &alone));
    }
    figures.extend(at_once(run, all));
    figures.extend(cache_ring::figure(run, all));
    figures
}

/// Those of one operation.
fn of_op<'s, 'b, 'a>(all: &[&'s SentFlow<'b, 'a>], op: WireOp) -> Vec<&'s SentFlow<'b, 'a>> {
    all.iter().filter(|s| s.wire.op == op).copied().collect()
}

/// `memcpy`, `avx512-nt in, memcpy out`, `read by the kernel`.
fn variant(sent: &SentFlow<'_, '_>) -> String {
    match (sent.wire.via, sent.wire.copies) {
        (_, Some(ShmCopies::InOut { copy_in, copy_out })) if copy_in == copy_out => {
            copy_in.to_string()
        }
        (_, Some(ShmCopies::InOut { copy_in, copy_out })) => {
            format!("{copy_in} in, {copy_out} out")
        }
        (_, Some(ShmCopies::Single(how))) => format!("xpmem, {how}"),
        (_, Some(ShmCopies::Read)) => "process_vm_readv".into(),
        (_, Some(ShmCopies::Write)) => "process_vm_writev".into(),
        (via, None) => via.to_string(),
    }
}

/// Whether its stores bypass the caches, on either side.
fn streams(sent: &SentFlow<'_, '_>) -> bool {
    let streaming = |how: CpuHow| how.is_streaming();
    match sent.wire.copies {
        Some(ShmCopies::InOut { copy_in, copy_out }) => streaming(copy_in) || streaming(copy_out),
        Some(ShmCopies::Single(how)) => streaming(how),
        _ => false,
    }
}

fn distance(near: Option<CoreDistance>) -> &'static str {
    match near {
        Some(CoreDistance::SameL3) => "cores of one L3",
        Some(CoreDistance::OtherL3) => "cores of two L3",
        None => "cores as started",
    }
}

fn id(name: &str, near: Option<CoreDistance>) -> String {
    near.map_or_else(|| format!("shm-{name}"), |near| format!("shm-{name}-{near}"))
}

fn rates(
    run: &RunView,
    near: Option<CoreDistance>,
    op: WireOp,
    all: &[&SentFlow<'_, '_>],
) -> Option<Figure> {
    let (name, what) = match op == WireOp::Consume {
        true => ("consume", "messages that the receiver then loads"),
        false => ("rate", "messages"),
    };
    let chosen = of_op(all, op);
    let title = format!("Two processes, {}: {what}, by who copies how", distance(near));
    let points = chosen.iter().map(|s| s.at_size(run, variant(s), Payload));
    chart((SUITE, &id(name, near)), title, (Payload, "B"), run, points, |_| {
        let fastest = winners(run, &chosen, 6).map(|winners| format!("Fastest: {winners}."));
        let texts = [fastest.unwrap_or_default()].into_iter().chain(overtakes(run, &chosen));
        fmt::join_any(texts, " ").unwrap_or_default()
    })
}

/// The least size, and of its copies the fastest.
fn latency(run: &RunView, near: Option<CoreDistance>, all: &[&SentFlow<'_, '_>]) -> Option<Figure> {
    let pings = of_op(all, WireOp::Ping);
    let title = format!("Two processes, {}: time of a message one way", distance(near));
    let points = pings.iter().map(|s| s.at_size(run, variant(s), StepUs));
    chart((SUITE, &id("latency", near)), title, (StepUs, "B"), run, points, |lines| {
        let first = lines.iter().filter_map(|l| Some((l.points.first()?, &l.name)));
        let first = first.filter_map(|((x, cell), name)| Some((*x, cell.value?, name)));
        let least = first.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        least.map_or(String::new(), |(x, us, name)| {
            format!("{} take {} us ({name}).", Bytes(x as u64), fmt::number(us))
        })
    })
}

/// The best copy at each size, and those with overlapping intervals.
fn best<'s, 'b, 'a>(
    run: &RunView,
    chosen: &[&'s SentFlow<'b, 'a>],
) -> BTreeMap<Bytes, Vec<(&'s SentFlow<'b, 'a>, FigureCell)>> {
    let mut by_size: BTreeMap<Bytes, Vec<(&'s SentFlow<'b, 'a>, FigureCell)>> = BTreeMap::new();
    for &sent in chosen {
        let cell = run.cell(sent.entry, Payload);
        if cell.value.is_some() {
            by_size.entry(sent.size()).or_default().push((sent, cell));
        }
    }
    for cells in by_size.values_mut() {
        cells.sort_by(|a, b| b.1.value.unwrap_or(0.0).total_cmp(&a.1.value.unwrap_or(0.0)));
        if let Some(first) = cells.first().map(|(_, cell)| cell.clone()) {
            cells.retain(|(_, cell)| !beats(&first, cell, BetterWhen::Higher));
        }
    }
    by_size
}

/// `memcpy up to 256KiB, avx512-nt from 512KiB`: a copy is replaced only by one whose interval is
/// entirely better.
fn winners(run: &RunView, chosen: &[&SentFlow<'_, '_>], most: usize) -> Option<String> {
    let mut runs: Vec<(String, Bytes, Bytes)> = Vec::new();
    for (size, alike) in best(run, chosen) {
        let names: Vec<String> = alike.iter().map(|(s, _)| variant(s)).collect();
        match runs.last_mut() {
            Some((name, _, to)) if names.contains(name) => *to = size,
            _ => runs.push((names.first()?.clone(), size, size)),
        }
    }
    let describe = |(name, from, to): &(String, Bytes, Bytes)| match from == to {
        true => format!("{name} at {from}"),
        false => format!("{name} from {from} to {to}"),
    };
    let mut texts: Vec<String> = runs.iter().take(most).map(describe).collect();
    if runs.len() > most {
        texts.push(format!("{} more changes", runs.len() - most));
    }
    fmt::list_any(texts)
}

/// Size from which streaming stores are better than every other loop, with disjoint intervals.
fn overtakes(run: &RunView, chosen: &[&SentFlow<'_, '_>]) -> Option<String> {
    let loops: Vec<&SentFlow> =
        chosen.iter().filter(|s| s.wire.via == Transport::Shm).copied().collect();
    if !loops.iter().any(|s| streams(s)) {
        return None;
    }
    let mut from: Option<(Bytes, String, f64)> = None;
    for (size, alike) in best(run, &loops) {
        if !alike.iter().all(|(s, _)| streams(s)) {
            from = None;
        } else if from.is_none() {
            let plain = loops.iter().filter(|s| s.size() == size && !streams(s));
            let next = plain.filter_map(|s| run.value(s.entry, Payload)).fold(0.0, f64::max);
            let (first, cell) = alike.first()?;
            from = Some((size, variant(first), cell.value? / next));
        }
    }
    Some(match from {
        None => "Streaming stores never overtake all other loops for good.".into(),
        Some((size, name, ratio)) => {
            let times = fmt::number(ratio);
            format!(
                "Streaming stores overtake all other loops from {size} on ({name}, {times} times there)."
            )
        }
    })
}

/// Time that loading the message adds to the time of the message alone.
fn paid(run: &RunView, near: Option<CoreDistance>, all: &[&SentFlow<'_, '_>]) -> Option<Figure> {
    let (sends, loads) = (of_op(all, SEND), of_op(all, WireOp::Consume));
    let points = loads.iter().filter_map(|s| {
        let same = |other: &&&SentFlow| other.size() == s.size() && variant(other) == variant(s);
        // The last of equal ones.
        let without = run.cell(sends.iter().rfind(same)?.entry, StepUs);
        let with = run.cell(s.entry, StepUs);
        let value = with.value? - without.value?;
        let half_width = with.half_width.hypot(without.half_width);
        // A logarithmic axis cannot show a value below its own half width.
        let value = Some((value > half_width).then_some(value)?);
        Some((variant(s), s.size().as_f64(), FigureCell { value, half_width, ..with }))
    });
    let title =
        format!("Two processes, {}: what the receiver pays to load its message", distance(near));
    chart((SUITE, &id("paid", near)), title, (StepUs, "B"), run, points, |_| {
        // Sizes at which the order of the copies changes when the receiver uses the data.
        let (sent, used) = (best(run, &sends), best(run, &loads));
        let changed = sent.iter().filter_map(|(size, fast)| {
            let useful = used.get(size)?;
            let first = variant(fast.first()?.0);
            let other = variant(useful.first()?.0);
            let is_fast = useful.iter().any(|(s, _)| variant(s) == first);
            (!is_fast).then(|| format!("{size} ({other} instead of {first})"))
        });
        const MAX_NAMED: usize = 4;
        let mut texts: Vec<String> = changed.collect();
        let more = texts.len().saturating_sub(MAX_NAMED);
        texts.truncate(MAX_NAMED);
        texts.extend((more > 0).then(|| fmt::count(more, "other size")));
        let end = match fmt::list_any(texts) {
            None => "The fastest copy stays among the fastest when its bytes are used.".to_owned(),
            Some(texts) => format!("Another copy is the fastest once bytes are used at {texts}."),
        };
        format!("Time with every byte loaded afterwards less the time without. {end}")
    })
}

fn at_once(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<Figure> {
    let is_several = |s: &&SentFlow| s.at_once > 1 && !cache_ring::is_ring(s);
    let several: Vec<&SentFlow> = all.iter().filter(is_several).collect();
    let size = several.iter().map(|s| s.size()).max()?;
    let title = format!("Several pairs of processes at once, {size} each, sum");
    // One pair on cores of one L3 represents a single pair.
    let alone = all.iter().filter(|s| {
        let single = s.at_once == 1 && s.wire.op == SEND && s.size() == size;
        single && s.wire.near != Some(CoreDistance::OtherL3)
    });
    let points =
        alone.chain(several).map(|s| (variant(s), s.at_once as f64, run.cell(s.entry, Payload)));
    chart((SUITE, "shm-at-once"), title, (Payload, "pairs"), run, points, |lines| {
        let last = lines.iter().filter_map(|l| Some((l.points.last()?, &l.name)));
        let last = last.filter_map(|((x, cell), name)| Some((*x, cell.value?, name)));
        let most = last.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        most.map_or(String::new(), |(pairs, rate, name)| {
            format!("{pairs} pairs get {} in all at best ({name}).", fmt::gbs(rate))
        })
    })
}

/// The fastest copies by the distance of the cores, in one sentence. None where a copy rests on assumed
/// constants of a model: it has no interval, and without it another one would be called the fastest.
fn sentence(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<String> {
    const MAX_NAMED: usize = 3;
    let send = |s: &&SentFlow| s.at_once == 1 && s.wire.op == SEND;
    let mut assumed = run.assumed.iter().filter_map(sent_flow);
    if assumed.any(|s| s.entry.is_in(SUITE) && send(&&s)) {
        return None;
    }
    let sends: Vec<&SentFlow> = all.iter().filter(send).collect();
    let texts = sorted(sends.iter().map(|s| s.wire.near)).into_iter().filter_map(|near| {
        let chosen: Vec<&SentFlow> =
            sends.iter().filter(|s| s.wire.near == near).copied().collect();
        Some(format!("on {} {}", distance(near), winners(run, &chosen, MAX_NAMED)?))
    });
    let texts = fmt::join_any(texts, "; ")?;
    Some(format!("The fastest copy between two processes is {texts}."))
}
