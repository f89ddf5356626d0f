//! The paths of a copy over several paths, leg by leg.

use pathline_schema::{Bytes, CopyAgent, Flow, Mover, Ns, Place, RuntimeCall, Unit};

use super::{end_gpu, staging};
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, FlowOperation, NoPath, ResourceUse};
use crate::path;

/// Payload for which legs are built: rates of pieces are those of a buffer that no CPU cache holds, however
/// small a piece is.
const LEG_BYTES: Bytes = Bytes::gib(1);

/// Part of the rate of the first leg of a relay below which pieces wait for the second one.
const SLOWER: f64 = 0.9;

/// One copy of a path: from an end or a staging slot to the next.
#[derive(Debug, Clone)]
pub(crate) struct LegCost {
    /// Shared resources, without the queue of its engine.
    pub uses: Vec<ResourceUse>,
    /// The engine that serves one copy at a time, as a resource of capacity 1 behind those with rates.
    pub queue: Option<u32>,
    /// GB/s alone.
    pub cap: f64,
    /// What the cap comes from.
    pub limit: String,
    /// Time before the first byte of each piece, ns.
    pub start: f64,
    /// Whether each piece waits for the one before it, so that none starts while another moves.
    pub is_chained: bool,
    /// Time of the host for the calls of each piece, ns: the copy, and the event by which its end is seen.
    pub calls: f64,
}

/// A path of a copy: legs that work on different pieces at the same time.
#[derive(Debug, Clone)]
pub(crate) struct CandidatePath {
    /// The relay, or the member of a copy to all that takes the piece from the source; none of the direct path.
    pub via: Option<u32>,
    /// Legs in the order in which a piece passes them.
    pub legs: Vec<LegCost>,
    /// Legs that a piece passes one after the other; those behind run at once.
    pub hops: usize,
}

/// Builds the paths between two places.
pub(crate) struct PathFinder<'n> {
    graph: &'n NodeGraph,
    src: Place,
    dst: Place,
}

impl<'n> PathFinder<'n> {
    pub(crate) fn new(graph: &'n NodeGraph, src: Place, dst: Place) -> Self {
        Self { graph, src, dst }
    }

    /// Straight from the source to the destination.
    pub(crate) fn direct(&self, agent: CopyAgent) -> Result<CandidatePath, NoPath> {
        let at = end_gpu(self.src, self.dst);
        let at = at.ok_or_else(|| NoPath("neither end is a GPU".into()))?;
        let leg = self.leg((self.src, self.dst), at, agent)?;
        Ok(CandidatePath { via: None, legs: vec![leg], hops: 1 })
    }

    /// Into staging memory of a relay, and on from there.
    pub(crate) fn over(&self, relay: u32, agent: CopyAgent) -> Result<CandidatePath, NoPath> {
        let slot = staging(relay, self.dst);
        let drain_at = if self.dst.unit.gpu().is_some() { self.dst.unit } else { slot.unit };
        let mut fill = self.leg((self.src, slot), slot.unit, agent)?;
        // Copies of the relay's owner come between two fills from host memory.
        fill.is_chained = self.src.unit.gpu().is_none() && agent == CopyAgent::Engine;
        let mut drain = self.leg((slot, self.dst), drain_at, agent)?;
        if drain.queue.is_some() && drain.cap < fill.cap * SLOWER {
            // Pieces wait for the drain, two in each of its streams, and an engine stays with a stream that has more:
            // it passes the event between two pieces first.
            drain.start += self.graph.event_gap().0;
        }
        Ok(CandidatePath { via: Some(relay), legs: vec![fill, drain], hops: 2 })
    }

    /// Into one of several destinations, from which all others pull.
    pub(crate) fn through_member(
        &self,
        owner: u32,
        members: &[u32],
        agent: CopyAgent,
    ) -> Result<CandidatePath, NoPath> {
        let buffer = |gpu: u32| Place { unit: Unit::Gpu(gpu), ..self.dst };
        let to = buffer(owner);
        let mut legs = vec![self.leg((self.src, to), to.unit, agent)?];
        for &puller in members.iter().filter(|&&member| member != owner) {
            legs.push(self.leg((to, buffer(puller)), Unit::Gpu(puller), agent)?);
        }
        Ok(CandidatePath { via: Some(owner), legs, hops: 2 })
    }

    fn leg(&self, ends: (Place, Place), at: Unit, agent: CopyAgent) -> Result<LegCost, NoPath> {
        let (src, dst) = ends;
        let build = |at: Unit| {
            let by = match agent {
                CopyAgent::Engine => Mover::Dma { at },
                CopyAgent::Kernel => Mover::Blit { at },
            };
            path::build(self.graph, &Flow { src, dst, by, bytes: LEG_BYTES })
        };
        // A twin may know the copy from its other end only.
        let other = [src.unit, dst.unit].into_iter().find(|&u| u != at && u.gpu().is_some());
        let built = build(at).or_else(|why| match other.filter(|_| !self.graph.modelled) {
            Some(other) => build(other),
            None => Err(why),
        });
        let BuiltPath { operation, limit } = built?;
        let rates = self.graph.resources.len();
        let queue = operation.queue.and_then(|queue| u32::try_from(rates + queue as usize).ok());
        let FlowOperation { uses, cap, alpha, call, .. } = operation;
        let event = self.graph.call_time(RuntimeCall::Event, None, Bytes(0));
        let calls = (call + event.unwrap_or(Ns::ZERO)).0;
        Ok(LegCost { uses, queue, cap: cap.0, limit, start: alpha.0, is_chained: false, calls })
    }
}

/// Capacities, and behind them that of the thread that issues all copies: its time.
pub(crate) fn with_issuer(mut capacities: Vec<f64>) -> Vec<f64> {
    capacities.push(1.0);
    capacities
}
