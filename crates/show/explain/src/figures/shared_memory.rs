//! Copies between two processes of a node: the fastest one at each size, and its effect on the
//! receiver's loads of the data.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Bytes, CoreDistance, CpuHow, ShmCopies, SuiteId, Transport, WireOp};

use super::sent_flows::{self, ChartSpec, SentFlow, sent_flow};
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, cache_ring};
use crate::figures::messages::beats;
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Shm;

/// Copies of one kind at one distance.
type ShmKey = (Option<CoreDistance>, String);

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all = sent_flows::in_suite(run, SUITE);
    SuiteFindings::new(figures(run, &all), [sentence(run, &all)])
}

fn figures(run: &RunView, all: &[SentFlow<'_, '_>]) -> Vec<Figure> {
    let nears: BTreeSet<Option<CoreDistance>> =
        all.iter().filter(|s| s.at_once == 1).map(|s| s.wire.near).collect();
    let mut figures = Vec::new();
    for near in nears {
        let alone = || all.iter().filter(move |s| s.at_once == 1 && s.wire.near == near);
        let ops = [(WireOp::Send { window: 1 }, "rate"), (WireOp::Consume, "consume")];
        for (op, name) in ops {
            let chosen: Vec<&SentFlow> = alone().filter(|s| s.wire.op == op).collect();
            figures.extend(rates(run, near, name, &chosen));
        }
        let pings: Vec<&SentFlow> = alone().filter(|s| s.wire.op == WireOp::Ping).collect();
        figures.extend(latency(run, near, &pings));
        figures.extend(paid(run, near, &alone().collect::<Vec<_>>()));
    }
    figures.extend(at_once(run, all));
    figures.extend(cache_ring::figure(run, all));
    figures
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
    name: &str,
    chosen: &[&SentFlow<'_, '_>],
) -> Option<Figure> {
    let (id, consumes) = (id(name, near), name == "consume");
    let what = if consumes { "messages that the receiver then loads" } else { "messages" };
    let chart = ChartSpec::new(
        (SUITE, &id),
        format!("Two processes, {}: {what}, by who copies how", distance(near)),
        CaseQuantity::Payload,
        "B",
    );
    let points = chosen
        .iter()
        .map(|s| (variant(s), s.size().as_f64(), run.cell(s.entry, CaseQuantity::Payload)));
    chart.draw(run, points, |_| {
        let mut text = winners(run, chosen, 6).map_or(String::new(), |w| format!("Fastest: {w}."));
        if let Some(size) = overtakes(run, chosen) {
            text += &format!(" {size}");
        }
        text
    })
}

fn latency(
    run: &RunView,
    near: Option<CoreDistance>,
    chosen: &[&SentFlow<'_, '_>],
) -> Option<Figure> {
    let id = id("latency", near);
    let chart = ChartSpec::new(
        (SUITE, &id),
        format!("Two processes, {}: time of a message one way", distance(near)),
        CaseQuantity::StepUs,
        "B",
    );
    let points = chosen
        .iter()
        .map(|s| (variant(s), s.size().as_f64(), run.cell(s.entry, CaseQuantity::StepUs)));
    chart.draw(run, points, |lines| {
        let least = lines.iter().filter_map(|l| {
            let (x, cell) = l.points.first()?;
            Some((cell.value?, *x, &l.name))
        });
        let least = least.min_by(|a, b| {
            (a.1, a.0).partial_cmp(&(b.1, b.0)).unwrap_or(std::cmp::Ordering::Equal)
        });
        least.map_or(String::new(), |(us, x, name)| {
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
        let cell = run.cell(sent.entry, CaseQuantity::Payload);
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
    (!texts.is_empty()).then(|| fmt::list(&texts))
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
        let all_stream = alike.iter().all(|(s, _)| streams(s));
        if !all_stream {
            from = None;
        } else if from.is_none() {
            let plain = loops.iter().filter(|s| s.size() == size && !streams(s));
            let next = plain.filter_map(|s| run.value(s.entry, CaseQuantity::Payload));
            let next = next.fold(0.0, f64::max);
            let (first, cell) = alike.first()?;
            from = Some((size, variant(first), cell.value? / next));
        }
    }
    Some(match from {
        None => "Streaming stores never overtake all other loops for good.".into(),
        Some((size, name, ratio)) => format!(
            "Streaming stores overtake all other loops from {size} on ({name}, {} times there).",
            fmt::number(ratio)
        ),
    })
}

/// Time that loading the message adds to the time of the message alone.
fn paid(run: &RunView, near: Option<CoreDistance>, all: &[&SentFlow<'_, '_>]) -> Option<Figure> {
    let id = id("paid", near);
    let chart = ChartSpec::new(
        (SUITE, &id),
        format!("Two processes, {}: what the receiver pays to load its message", distance(near)),
        CaseQuantity::StepUs,
        "B",
    );
    let alone: BTreeMap<(Bytes, ShmKey), FigureCell> = all
        .iter()
        .filter(|s| s.wire.op == WireOp::Send { window: 1 })
        .map(|s| ((s.size(), (near, variant(s))), run.cell(s.entry, CaseQuantity::StepUs)))
        .collect();
    let consumed = || all.iter().filter(|s| s.wire.op == WireOp::Consume);
    let points: Vec<(String, f64, FigureCell)> = consumed()
        .filter_map(|s| {
            let with = run.cell(s.entry, CaseQuantity::StepUs);
            let without = alone.get(&(s.size(), (near, variant(s))))?;
            let value = with.value? - without.value?;
            let half_width = with.half_width.hypot(without.half_width);
            // A logarithmic axis cannot show a value below its own half width.
            let value = (value > half_width).then_some(value)?;
            Some((
                variant(s),
                s.size().as_f64(),
                FigureCell { value: Some(value), half_width, ..with },
            ))
        })
        .collect();
    let sends: Vec<&SentFlow> =
        all.iter().filter(|s| s.wire.op == WireOp::Send { window: 1 }).copied().collect();
    let loads: Vec<&SentFlow> = consumed().copied().collect();
    chart.draw(run, points, |_| {
        // Sizes at which the order of the copies changes when the receiver uses the data.
        let (sent, used) = (best(run, &sends), best(run, &loads));
        let changed: Vec<String> = sent
            .iter()
            .filter_map(|(size, fast)| {
                let useful = used.get(size)?;
                let names: BTreeSet<String> = useful.iter().map(|(s, _)| variant(s)).collect();
                let first = variant(fast.first()?.0);
                let other = variant(useful.first()?.0);
                (!names.contains(&first)).then(|| format!("{size} ({other} instead of {first})"))
            })
            .collect();
        let text = "Time with every byte loaded afterwards less the time without.";
        match changed.as_slice() {
            [] => {
                format!("{text} The fastest copy stays among the fastest when its bytes are used.")
            }
            few => {
                const MAX_NAMED: usize = 4;
                let more = few.len().saturating_sub(MAX_NAMED);
                let mut texts: Vec<String> = few.iter().take(MAX_NAMED).cloned().collect();
                if more > 0 {
                    texts.push(fmt::count(more, "other size"));
                }
                format!(
                    "{text} Another copy is the fastest once bytes are used at {}.",
                    fmt::list(&texts)
                )
            }
        }
    })
}

fn at_once(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<Figure> {
    let is_several = |s: &&SentFlow| s.at_once > 1 && !cache_ring::is_ring(s);
    let several: Vec<&SentFlow> = all.iter().filter(is_several).collect();
    let size = several.iter().map(|s| s.size()).max()?;
    let chart = ChartSpec::new(
        (SUITE, "shm-at-once"),
        format!("Several pairs of processes at once, {size} each, sum"),
        CaseQuantity::Payload,
        "pairs",
    );
    // One pair on cores of one L3 represents a single pair.
    let alone = all.iter().filter(|s| {
        let send = s.wire.op == WireOp::Send { window: 1 };
        s.at_once == 1 && s.size() == size && send && s.wire.near != Some(CoreDistance::OtherL3)
    });
    let points = alone
        .chain(several)
        .map(|s| (variant(s), s.at_once as f64, run.cell(s.entry, CaseQuantity::Payload)));
    chart.draw(run, points, |lines| {
        let last = lines.iter().filter_map(|l| {
            let (x, cell) = l.points.last()?;
            Some((cell.value?, *x, &l.name))
        });
        let most = last.max_by(|a, b| {
            (a.1, a.0).partial_cmp(&(b.1, b.0)).unwrap_or(std::cmp::Ordering::Equal)
        });
        most.map_or(String::new(), |(rate, pairs, name)| {
            format!("{pairs} pairs get {} in all at best ({name}).", fmt::gbs(rate))
        })
    })
}

/// The fastest copies by the distance of the cores, in one sentence. None where a copy rests on assumed
/// constants of a model: it has no interval, and without it another one would be called the fastest.
fn sentence(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<String> {
    const MAX_NAMED: usize = 3;
    let send = |s: &&SentFlow| s.at_once == 1 && s.wire.op == WireOp::Send { window: 1 };
    let assumed: Vec<SentFlow> = run.assumed.iter().filter_map(sent_flow).collect();
    if assumed.iter().any(|s| s.entry.is_in(SUITE) && send(&s)) {
        return None;
    }
    let sends: Vec<&SentFlow> = all.iter().filter(send).collect();
    let nears: BTreeSet<Option<CoreDistance>> = sends.iter().map(|s| s.wire.near).collect();
    let texts: Vec<String> = nears
        .into_iter()
        .filter_map(|near| {
            let chosen: Vec<&SentFlow> =
                sends.iter().filter(|s| s.wire.near == near).copied().collect();
            Some(format!("on {} {}", distance(near), winners(run, &chosen, MAX_NAMED)?))
        })
        .collect();
    (!texts.is_empty())
        .then(|| format!("The fastest copy between two processes is {}.", texts.join("; ")))
}
