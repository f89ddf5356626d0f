//! Collectives: the faster library by size, graphs for small sizes, and the share of the links' peak.

use std::collections::{BTreeMap, BTreeSet};

use pathline_explain::fmt;
use pathline_explain::message_records::{is_by_threads, participants};
use pathline_schema::{Bytes, Cadence, Case, Collective, MemKind, SuiteId, Transport, WireOp};

use crate::evidence::{Evidence, SoundValue, factor_text, lost};
use crate::{Finding, FindingSeverity};

pub(super) const LIBRARY: &str = "collective-library";
pub(super) const DIRECT: &str = "collectives-on-device-buffers";
pub(super) const GRAPH: &str = "collectives-in-graphs";

/// A measured collective of the usual kind: out of place, buffers registered where the library can.
#[derive(Debug, Clone, Copy)]
struct CollectiveTime<'a> {
    case: &'a Case,
    op: Collective,
    via: Transport,
    mem: MemKind,
    ranks: usize,
    bytes: Bytes,
    cadence: Cadence,
    /// us
    time: SoundValue<'a>,
    /// GB/s of the larger buffer.
    rate: SoundValue<'a>,
    gpus: (Option<u32>, Option<u32>),
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let all = times(evidence);
    let found = [library(evidence, &all), direct(evidence, &all), graphs(evidence, &all)];
    found.into_iter().flatten().collect()
}

fn times<'a>(evidence: &Evidence<'a>) -> Vec<CollectiveTime<'a>> {
    let suites = [SuiteId::MpiCollectives, SuiteId::CclCollectives];
    let entries = suites.into_iter().flat_map(|suite| evidence.run.suite(suite));
    let time = |entry: &pathline_explain::run::RunEntry<'a>| {
        let flow = entry.lone()?;
        let wire = flow.by.wire()?;
        let WireOp::Group { op, reduced, in_place: false, unregistered: false } = wire.op else {
            return None;
        };
        let is_usual = op != Collective::Barrier
            && reduced.is_usual()
            && !is_by_threads(evidence.run.journal, flow);
        is_usual.then_some(CollectiveTime {
            case: entry.case,
            op,
            via: wire.via,
            mem: flow.src.mem,
            ranks: participants(flow),
            bytes: flow.bytes,
            cadence: entry.case.cadence,
            time: evidence.time(entry)?,
            rate: evidence.rate(entry)?,
            gpus: (flow.src.unit.gpu(), flow.dst.unit.gpu()),
        })
    };
    entries.filter_map(time).collect()
}

/// Where one library overtakes another, for the operation that differs most.
fn library(evidence: &Evidence, all: &[CollectiveTime]) -> Option<Finding> {
    type GroupKey = (Collective, MemKind, usize);
    let mut groups: BTreeMap<GroupKey, BTreeMap<Bytes, Vec<&CollectiveTime>>> = BTreeMap::new();
    let is_library = |t: &&CollectiveTime| t.via != Transport::MpiStaged;
    for one in all.iter().filter(|t| t.cadence == Cadence::Streaming).filter(is_library) {
        let sizes = groups.entry((one.op, one.mem, one.ranks)).or_default();
        sizes.entry(one.bytes).or_default().push(one);
    }
    let name = |via: Transport| evidence.run.library(via);
    // What is fastest at which size, and the operations of which that is true.
    let (mut winners, mut operations) = (Vec::new(), 0);
    let (mut factors, mut arms) = (Vec::new(), Vec::new());
    let mut places = BTreeSet::new();
    let mut weight: f64 = 0.0;
    let most = groups.keys().map(|key| key.2).max()?;
    for ((op, _, ranks), sizes) in groups.iter().filter(|(key, _)| key.2 == most) {
        let mut wins: Vec<(Bytes, &CollectiveTime, &CollectiveTime, f64)> = Vec::new();
        for (bytes, of) in sizes {
            let by_time =
                |a: &&&CollectiveTime, b: &&&CollectiveTime| a.time.value.total_cmp(&b.time.value);
            let (Some(best), Some(worst)) = (of.iter().min_by(by_time), of.iter().max_by(by_time))
            else {
                continue;
            };
            if let Some(factor) =
                best.time.time_gain_over(&worst.time).filter(|_| best.via != worst.via)
            {
                wins.push((*bytes, best, worst, factor));
            }
        }
        let (Some(first), Some(last)) = (wins.first(), wins.last()) else { continue };
        let change = wins.windows(2).find(|w| w[0].1.via != w[1].1.via).map(|w| w[1]);
        let winner = match change {
            Some((from, winner, ..)) => {
                let (small, large) = (name(first.1.via), name(winner.via));
                format!("{small} below {}, {large} from there on", from.rounded())
            }
            None => name(first.1.via),
        };
        operations += 1;
        match winners.iter_mut().find(|known: &&mut (String, Vec<String>)| known.0 == winner) {
            Some(known) => known.1.push(op.to_string()),
            None => winners.push((winner, vec![op.to_string()])),
        }
        for (_, best, worst, factor) in [first, last] {
            factors.push(*factor);
            weight = weight.max(lost(&best.rate, &worst.rate));
            arms.push(best.time.arm(format!("{op}, {}", name(best.via))));
            arms.push(worst.time.arm(format!("{op}, {}", name(worst.via))));
        }
        places.insert(format!("{ranks} ranks"));
    }
    winners.sort_by_key(|(_, ops)| std::cmp::Reverse(ops.len()));
    let (winner, ops) = winners.first()?;
    let named = match ops.len() {
        0..=5 => fmt::list(ops),
        n => format!("{n} of {operations} operations"),
    };
    let short = format!("Use {winner}, for {named} ({})", factor_text(&factors));
    let texts: Vec<String> =
        winners.iter().map(|(winner, ops)| format!("{winner}: {}", fmt::list(ops))).collect();
    let observation = format!(
        "Fastest library over {most} ranks, at sizes that several have: {}.",
        texts.join("; ")
    );
    let action = match winners.as_slice() {
        [(winner, _)] => format!("Use {winner}."),
        _ => "Choose the library by operation and size.".to_owned(),
    };
    Some(Finding {
        short,
        action,
        gain: evidence.gain(&factors),
        places: places.into_iter().collect(),
        arms,
        weight,
        ..Finding::new(LIBRARY, FindingSeverity::Gain, observation)
    })
}

/// What staging through host memory costs where MPI takes device pointers.
fn direct(evidence: &Evidence, all: &[CollectiveTime]) -> Option<Finding> {
    let usual = |t: &&CollectiveTime| t.cadence == Cadence::Streaming;
    let ranks = all.iter().filter(usual).map(|t| t.ranks).max()?;
    let of = |via| all.iter().filter(usual).filter(move |t| (t.via, t.ranks) == (via, ranks));
    let (mut gains, mut lost_by, mut compared) = (Vec::new(), BTreeSet::new(), 0);
    for staged in of(Transport::MpiStaged) {
        let same =
            |t: &&CollectiveTime| (t.op, t.mem, t.bytes) == (staged.op, staged.mem, staged.bytes);
        let Some(device) = of(Transport::Mpi).find(same) else { continue };
        compared += 1;
        if let Some(factor) = device.time.time_gain_over(&staged.time) {
            gains.push((device, staged, factor));
        } else if staged.time.time_gain_over(&device.time).is_some() {
            lost_by.insert(staged.op.to_string());
        }
    }
    let (device, staged, _) = gains.iter().max_by(|a, b| a.2.total_cmp(&b.2)).copied()?;
    let library = evidence.run.library(Transport::Mpi);
    let lost_by: Vec<String> = lost_by.into_iter().collect();
    let but = match lost_by.is_empty() {
        true => String::new(),
        false => format!("; staging is faster at some sizes of {}", fmt::list(&lost_by)),
    };
    let what = format!("{} of {}", device.op, device.bytes.rounded());
    let observation = format!(
        "{library} on device buffers, {ranks} ranks: {what} takes {}, staged through host memory {}; faster in {}{but}.",
        device.time.text(),
        staged.time.plain_text(),
        fmt::of_all(gains.len(), compared, "compared case"),
    );
    let factors: Vec<f64> = gains.iter().map(|gain| gain.2).collect();
    Some(Finding {
        short: format!(
            "{what} on device buffers {}, staged through the host {} ({})",
            device.time.plain_text(),
            staged.time.plain_text(),
            factor_text(&factors)
        ),
        action: "Pass device pointers to MPI.".to_owned(),
        gain: evidence.gain(&factors),
        places: vec![format!("{ranks} ranks")],
        arms: vec![device.time.arm("device buffers"), staged.time.arm("staged")],
        weight: gains.iter().map(|gain| lost(&gain.0.rate, &gain.1.rate)).fold(0.0, f64::max),
        ..Finding::new(DIRECT, FindingSeverity::Gain, observation)
    })
}

/// What a graph saves at small sizes.
fn graphs(evidence: &Evidence, all: &[CollectiveTime]) -> Option<Finding> {
    let mut gains: Vec<(&CollectiveTime, &CollectiveTime, f64)> = Vec::new();
    let mut compared = 0;
    for graph in all.iter().filter(|t| t.cadence == Cadence::Graph) {
        let same = |t: &&CollectiveTime| {
            t.cadence == Cadence::Streaming
                && (t.op, t.via, t.mem, t.ranks, t.bytes)
                    == (graph.op, graph.via, graph.mem, graph.ranks, graph.bytes)
        };
        let Some(queued) = all.iter().find(same) else { continue };
        compared += 1;
        if let Some(factor) = graph.time.time_gain_over(&queued.time) {
            gains.push((graph, queued, factor));
        }
    }
    // A gain that is there at some sizes only by chance is none.
    if gains.len() * 2 < compared {
        return None;
    }
    gains.sort_by_key(|g| (g.0.bytes, g.0.op));
    let best = gains.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let largest = gains.iter().map(|g| g.0.bytes).max()?;
    let factors: Vec<f64> = gains.iter().map(|g| g.2).collect();
    let ops: BTreeSet<String> = gains.iter().map(|g| g.0.op.to_string()).collect();
    let ops: Vec<String> = ops.into_iter().collect();
    let observation = format!(
        "As graphs, collectives of {} up to {} take less time than queued: {} of {} over {} ranks {}, \
         queued {} us.",
        evidence.run.library(best.0.via),
        largest.rounded(),
        best.0.op,
        best.0.bytes.rounded(),
        best.0.ranks,
        best.0.time.text(),
        fmt::number(best.1.time.value),
    );
    Some(Finding {
        short: format!(
            "As a graph {} of {} takes {} us, queued {} us ({}, {} ranks)",
            best.0.op,
            best.0.bytes.rounded(),
            fmt::number(best.0.time.value),
            fmt::number(best.1.time.value),
            evidence.run.library(best.0.via),
            best.0.ranks
        ),
        cause: "Queued, each operation costs the host its calls; a graph is launched as one."
            .to_owned(),
        action: "Capture loops of small collectives in a graph.".to_owned(),
        gain: evidence.gain(&factors),
        places: ops,
        arms: vec![best.0.time.arm("graph"), best.1.time.arm("queued")],
        weight: gains.iter().map(|g| lost(&g.0.rate, &g.1.rate)).fold(0.0, f64::max),
        ..Finding::new(GRAPH, FindingSeverity::Gain, observation)
    })
}

/// The all_reduce that headlines rest on.
pub(crate) struct LargestAllReduce<'a> {
    /// Payload, GB/s.
    pub(crate) rate: SoundValue<'a>,
    /// Bus bandwidth, GB/s.
    pub(crate) bus: f64,
    /// Bus bandwidth that no library exceeds, GB/s, and by what; none if ranks are not one to a GPU of a node.
    pub(crate) limit: Option<(f64, String)>,
    /// `NCCL 2.28.9, busbw, 8 GPUs, 1GiB`
    pub(crate) detail: String,
    /// Payload over size, GB/s.
    pub(crate) by_size: Vec<f64>,
    pub(super) gpus: Vec<u32>,
}

/// The largest all_reduce of device memory over most ranks, by the faster library.
pub(crate) fn largest_all_reduce<'a>(evidence: &Evidence<'a>) -> Option<LargestAllReduce<'a>> {
    let all = times(evidence);
    let usual = |t: &&CollectiveTime| {
        t.op == Collective::AllReduce && t.cadence == Cadence::Streaming && t.mem == MemKind::Vram
    };
    let most = all.iter().filter(usual).map(|t| t.ranks).max()?;
    let mut best: BTreeMap<Transport, &CollectiveTime> = BTreeMap::new();
    for one in all.iter().filter(usual).filter(|t| t.ranks == most) {
        let slot = best.entry(one.via).or_insert(one);
        if one.bytes > slot.bytes {
            *slot = one;
        }
    }
    let one = *best.values().max_by(|a, b| a.rate.value.total_cmp(&b.rate.value))?;
    let same = all.iter().filter(usual).filter(|t| (t.ranks, t.via) == (one.ranks, one.via));
    let mut by_size: Vec<(Bytes, f64)> = same.map(|t| (t.bytes, t.rate.value)).collect();
    by_size.sort_by_key(|point| point.0);
    let gpus: Vec<u32> = match one.gpus {
        (Some(first), Some(last)) if (first..=last).count() == one.ranks => {
            (first..=last).collect()
        }
        _ => Vec::new(),
    };
    let factor = one.op.bus_factor(one.ranks);
    let bounds =
        evidence.run.time_bounds(one.case).filter(|bounds| !gpus.is_empty() && bounds.flow.0 > 0.0);
    let limit = bounds.map(|b| (one.bytes.as_f64() / b.flow.0 * factor, b.flow_by));
    let library = evidence.run.library(one.via);
    let of = if gpus.is_empty() { "ranks" } else { "GPUs" };
    let (ranks, size) = (one.ranks, one.bytes.rounded());
    Some(LargestAllReduce {
        rate: one.rate,
        bus: one.rate.value * factor,
        limit,
        detail: format!("{library}, busbw, {ranks} {of}, {size}"),
        by_size: by_size.into_iter().map(|point| point.1).collect(),
        gpus,
    })
}
