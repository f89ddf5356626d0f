//! Messages by kernels, all of them at once: one by one, by classes, or by the loads of links.

use pathline_flow::{NoPath, RateDemand};
use pathline_schema::Collective;

use crate::all_to_all::AllToAllFlows;
use crate::all_to_all_loads::AllToAllLoads;
use crate::bounds::{MessagePart, message_parts};
use crate::ccl_library::{CclLibrary, ChunkProtocol, LL128, protocols};
use crate::exchange::ExchangeMember;
use crate::exchange_time::{AlgorithmTime, us};
use crate::scene::{ByteCarrier, ExchangeScene};
use crate::symmetric::ends;
use crate::transfer::{ScheduledTransfer, rates};

/// All messages of an operation at once, each over its own route. A rank ends with its last message.
pub(crate) fn exchange_messages(
    scene: &ExchangeScene<'_>,
    library: &CclLibrary<'_>,
    op: Collective,
    over: &[ExchangeMember],
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    if op == Collective::AllToAll && over.len() > LEAST_CLASSES {
        let solver = AllToAllSolver::new(scene, over)?;
        return all_to_all(scene, library, &solver, over.len(), bytes);
    }
    let parts = message_parts(op, over, bytes);
    let outcome = direct(scene, library, &parts)?;
    let each = vec![outcome.time; over.len()];
    Ok(AlgorithmTime { mean: outcome.time, each, pairs: 1, ..outcome })
}

/// More ranks of an all_to_all are solved by classes of nodes.
const LEAST_CLASSES: usize = 64;

/// All messages of an all_to_all.
enum AllToAllSolver<'s, 'a> {
    Classes(AllToAllFlows),
    Loads(AllToAllLoads<'s, 'a>),
}

impl<'s, 'a> AllToAllSolver<'s, 'a> {
    fn new(scene: &'s ExchangeScene<'a>, over: &[ExchangeMember]) -> Result<Self, NoPath> {
        Ok(match AllToAllFlows::new(scene, over)? {
            Some(flows) => Self::Classes(flows),
            None => Self::Loads(AllToAllLoads::new(scene, over)?),
        })
    }

    /// The last end, and the least that it can be, ns.
    fn end(&self, bytes: impl Fn(f64) -> f64, start: impl Fn(Option<u32>) -> f64) -> (f64, f64) {
        match self {
            Self::Classes(flows) => {
                let ends = flows.ends(bytes, start);
                let last = ends.iter().map(|(end, _)| *end).fold(0.0, f64::max);
                (last, last)
            }
            Self::Loads(loads) => {
                let (from, until) = loads.interval(bytes, start);
                (until, from)
            }
        }
    }

    fn describe(&self, (last, least): (f64, f64)) -> String {
        match self {
            Self::Classes(flows) => format!("{} classes of them: {}", flows.len(), us(last)),
            Self::Loads(_) => format!(
                "by the loads of all links: {}, or up to {} less, as starts differ",
                us(last),
                us(last - least)
            ),
        }
    }

    fn full(&self) -> Vec<String> {
        match self {
            Self::Classes(flows) => flows.full(),
            Self::Loads(loads) => loads.full(),
        }
    }

    fn loads(&self, bytes: impl Fn(f64) -> f64) -> Vec<f64> {
        match self {
            Self::Classes(flows) => flows.loads(bytes),
            Self::Loads(loads) => loads.loads(bytes),
        }
    }
}

/// All to all by classes of messages or by the loads of links, as [`direct`] has them one by one.
fn all_to_all(
    scene: &ExchangeScene<'_>,
    library: &CclLibrary<'_>,
    solver: &AllToAllSolver<'_, '_>,
    ranks: usize,
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    let (ccl, base, n) = (library.ccl, library.base(), ranks as f64);
    let hop = scene.machine.fabric.as_ref().map_or(0.0, |fabric| fabric.graph.hop_ns());
    let part = bytes / n;
    let mut best: Option<((f64, f64), ChunkProtocol)> = None;
    // Sends and receives have no LL128.
    for p in protocols(ccl).into_iter().filter(|p| p.name != LL128) {
        let start = |hops: Option<u32>| match hops {
            None => p.start + p.step,
            Some(hops) => p.start + p.net_step + hop * f64::from(hops),
        };
        let end = solver.end(|cap| part / p.share_of(cap, ccl), start);
        if best.is_none_or(|((last, _), _)| end.0 < last) {
            best = Some((end, p));
        }
    }
    let (end, protocol) = best.ok_or_else(|| NoPath("no protocol is known".into()))?;
    let moved = end.0;
    let time = library.whole(moved);
    let steps = vec![
        format!("launch and channels: {}", us(base)),
        format!("{:.0} transfers of {part:.0} B at once, {}", n * (n - 1.0), solver.describe(end)),
    ];
    let moves = moved >= 2.0 * protocol.step;
    let loads = scene.counts_loads.then(|| solver.loads(|cap| part / protocol.share_of(cap, ccl)));
    Ok(AlgorithmTime {
        time,
        mean: time,
        each: vec![time; ranks],
        pairs: 1,
        algorithm: format!("direct, {}", protocol.name),
        steps,
        bound_by: if moves { solver.full() } else { Vec::new() },
        loads: loads.unwrap_or_default(),
        ..AlgorithmTime::default()
    })
}

/// Messages of pairs, each launched on its own: calls on one stream follow each other, so a window
/// of them is as many times one.
pub(crate) fn send_pairs(
    scene: &ExchangeScene<'_>,
    library: &CclLibrary<'_>,
    pairs: &[(ExchangeMember, ExchangeMember)],
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    let messages: Vec<MessagePart> = pairs.iter().map(|&(a, b)| (a, b, bytes)).collect();
    direct(scene, library, &messages)
}

/// One kernel for all pairs at once, which writes over their own routes.
fn direct(
    scene: &ExchangeScene<'_>,
    library: &CclLibrary<'_>,
    messages: &[MessagePart],
) -> Result<AlgorithmTime, NoPath> {
    let mut best: Option<(f64, AlgorithmTime)> = None;
    let (ccl, base) = (library.ccl, library.base());
    // Sends and receives have no LL128.
    for p in protocols(ccl).into_iter().filter(|p| p.name != LL128) {
        let mut transfers = Vec::new();
        for &(a, b, part) in messages {
            let path = scene.device(ByteCarrier::Kernel, a, b)?;
            let start = p.start + if a.node == b.node { p.step } else { p.net_step + path.alpha };
            let bytes = part / p.share_of(path.cap, ccl);
            transfers.push(ScheduledTransfer { path, bytes, start, tail: 0.0, after: Vec::new() });
        }
        let ends = ends(&scene.capacities, &transfers);
        let moved = ends.iter().copied().fold(0.0, f64::max);
        let each: Vec<f64> = ends.into_iter().map(|end| library.whole(end)).collect();
        let time = library.whole(moved);
        let flows: Vec<RateDemand<'_>> = transfers.iter().map(|t| t.path.demand()).collect();
        let full = scene.full(&flows, &rates(&scene.capacities, &flows));
        let steps = vec![
            format!("launch and channels: {}", us(base)),
            format!("{} transfers of {} at once: {}", transfers.len(), sizes(messages), us(moved)),
        ];
        if best.as_ref().is_none_or(|(least, _)| moved < *least) {
            let moves = moved >= 2.0 * p.step;
            let outcome = AlgorithmTime {
                time,
                mean: each.iter().sum::<f64>() / each.len().max(1) as f64,
                each,
                pairs: messages.len(),
                algorithm: format!("direct, {}", p.name),
                steps,
                rings: Vec::new(),
                bound_by: if moves { full } else { Vec::new() },
                loads: scene.loads(transfers.iter().map(|t| (t.path.uses.as_slice(), t.bytes))),
                maps: 0,
            };
            best = Some((moved, outcome));
        }
    }
    best.map(|(_, outcome)| outcome).ok_or_else(|| NoPath("no protocol is known".into()))
}

/// `128 B`, or `16 to 240 B`.
fn sizes(messages: &[MessagePart]) -> String {
    let sizes = || messages.iter().map(|(_, _, bytes)| *bytes);
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    if least < most { format!("{least:.0} to {most:.0} B") } else { format!("{most:.0} B") }
}

#[cfg(test)]
mod tests;
