//! A copy over several paths as one operation of a flow.

use pathline_schema::{Flow, Mover, MultipathSpec, Ns, Rate};

use super::paths::{CandidatePath, PathFinder, with_issuer};
use super::rates::{self, PathRates};
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, FlowOperation, NoPath, PathStage};

/// The paths of a flow by `relay` or `copy-to-all`.
fn candidates(
    graph: &NodeGraph,
    flow: &Flow,
    paths: &MultipathSpec,
) -> Result<Vec<CandidatePath>, NoPath> {
    let finder = PathFinder::new(graph, flow.src, flow.dst);
    if let Mover::CopyToAll { at, .. } = flow.by {
        let at = at.gpu().ok_or_else(|| NoPath(format!("{at} is no GPU")))?;
        let members: Vec<u32> = paths.gpus.with(at).iter().collect();
        let owned = |&owner: &u32| finder.through_member(owner, &members, paths.agent);
        return members.iter().map(owned).collect();
    }
    let mut found = vec![finder.direct(paths.agent)?];
    for relay in paths.gpus.iter() {
        found.push(finder.over(relay, paths.agent)?);
    }
    Ok(found)
}

/// A copy over several paths as one operation: each resource is taken in proportion to the bytes that pass it.
pub(crate) fn build(
    graph: &NodeGraph,
    flow: &Flow,
    paths: &MultipathSpec,
) -> Result<BuiltPath, NoPath> {
    let found = candidates(graph, flow, paths)?;
    let found: Vec<&CandidatePath> = found.iter().collect();
    let capacities = with_issuer(graph.capacities());
    let shared = rates::share(&capacities, &found, (paths.chunk, flow.bytes), paths.shares);
    if shared.total <= 0.0 || !shared.total.is_finite() {
        return Err(NoPath("nothing is known to limit these paths".into()));
    }
    let limit = shared.narrowest(&capacities, &found, |resource| graph.shared_name(resource));
    let uses = shared.uses(&found).into_iter();
    // Queues have no rate that other flows could share; their part is in the cap.
    let uses = uses.filter(|u| (u.resource as usize) < graph.resources.len()).collect();
    let stage = describe_stage(&capacities, &found, &shared, &limit);
    let operation = FlowOperation {
        uses,
        cap: Rate(shared.total),
        share: 1.0,
        queue: None,
        turn: None,
        alpha: Ns(shared.time - flow.bytes.as_f64() / shared.total),
        call: Ns::us(graph.model.time.copy_call_us),
        blocking: false,
        spread: 0.0,
        step: Ns::ZERO,
        route: vec![flow.src.unit.into(), flow.dst.unit.into()],
        engine: flow.by.facts().engine.into(),
        stages: vec![stage],
    };
    Ok(BuiltPath { operation, limit })
}

/// All paths as one stage. Its peak is the bound of the same paths if every byte that passes were payload.
fn describe_stage(
    capacities: &[f64],
    found: &[&CandidatePath],
    shared: &PathRates,
    limit: &str,
) -> PathStage {
    let cap = Rate(shared.total);
    let peak = rates::peak(capacities, found).map_or(cap, |peak| Rate(peak.max(shared.total)));
    let why = format!("packets, starts and {limit}");
    PathStage { name: format!("{} paths, {limit}", found.len()), peak, cap, why, hard: None }
}
