//! Plans from a short measurement of a node, where there is no description and no twin of it.

use std::collections::BTreeMap;

use pathline_schema::{CopyAgent, GpuSet, Place, Unit};
use serde::{Deserialize, Serialize};

use super::end_gpu;
use super::paths::{CandidatePath, LegCost, with_issuer};
use super::plan::{MultipathPlan, PathSource, PlanRequest, plan};
use crate::operation::{NoPath, ResourceUse};

/// What host memory and GPUs move in one direction, in GB/s of payload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLimits {
    /// Rate of each GPU alone, by its number; 0 if it was not measured.
    pub alone: Vec<f64>,
    /// Sets of GPUs that copied at once, and the sum of their rates. What any part of a set moves is limited by it,
    /// too.
    #[serde(default)]
    pub sets: Vec<(Vec<u32>, f64)>,
}

/// A node as a probe of a second or two finds it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedNode {
    /// From host memory to GPUs.
    pub into: HostLimits,
    /// From GPUs to host memory.
    pub out_of: HostLimits,
    /// Rate of a copy from the GPU of the row to that of the column, GB/s; 0 if it was not measured.
    pub peers: Vec<Vec<f64>>,
    /// Whether the copies of a GPU with its peers share one port, as behind NVLink switches; else each pair has
    /// its own links.
    pub one_port: bool,
    /// Time before the first byte of a copy, in microseconds.
    pub start_us: f64,
    /// Host time of the call for a copy and of that for the event behind it, in microseconds.
    pub call_us: f64,
}

/// Plans a copy from what a probe measured, with copies by copy engines.
///
/// # Errors
/// The plain copy was not measured.
pub fn plan_from_probe(node: &ProbedNode, request: &PlanRequest) -> Result<MultipathPlan, NoPath> {
    plan(&ProbedPaths::new(node, request), request)
}

/// Paths by the rates of a probe.
struct ProbedPaths<'n> {
    node: &'n ProbedNode,
    src: Place,
    dst: Place,
    capacities: Vec<f64>,
    /// Sets of each direction with the resource of each.
    sets: [Vec<(GpuSet, u32)>; 2],
    /// Inward and outward time of the port of each GPU.
    ports: BTreeMap<u32, [u32; 2]>,
}

const INTO: usize = 0;
const OUT_OF: usize = 1;

impl<'n> ProbedPaths<'n> {
    fn new(node: &'n ProbedNode, request: &PlanRequest) -> Self {
        let mut capacities = Vec::new();
        let mut resource = |capacity: f64| {
            capacities.push(capacity);
            u32::try_from(capacities.len() - 1).unwrap_or(u32::MAX)
        };
        let mut limits = |limits: &HostLimits| -> Vec<(GpuSet, u32)> {
            let measured = limits.sets.iter().filter(|(_, gbs)| *gbs > 0.0);
            measured.map(|(gpus, gbs)| (gpus.iter().copied().collect(), resource(*gbs))).collect()
        };
        let sets = [limits(&node.into), limits(&node.out_of)];
        let count = node.peers.len().min(GpuSet::CAPACITY as usize) as u32;
        let ports = (0..count).map(|gpu| (gpu, [resource(1.0), resource(1.0)])).collect();
        let capacities = with_issuer(capacities);
        Self { node, src: request.src, dst: request.dst, capacities, sets, ports }
    }

    fn leg(&self, src: Unit, dst: Unit) -> Result<LegCost, NoPath> {
        match (src, dst) {
            (Unit::Numa(_), Unit::Gpu(gpu)) => self.host(gpu, INTO),
            (Unit::Gpu(gpu), Unit::Numa(_)) => self.host(gpu, OUT_OF),
            (Unit::Gpu(from), Unit::Gpu(to)) => self.peer(from, to),
            _ => Err(NoPath(format!("the probe measured no copy from {src} to {dst}"))),
        }
    }

    fn host(&self, gpu: u32, direction: usize) -> Result<LegCost, NoPath> {
        let limits = if direction == INTO { &self.node.into } else { &self.node.out_of };
        let cap = limits.alone.get(gpu as usize).copied();
        let cap = measured(cap, || format!("the host link of gpu{gpu}"))?;
        let sets = self.sets.get(direction).into_iter().flatten();
        let uses = sets.filter(|(gpus, _)| gpus.contains(gpu));
        let uses = uses.map(|&(_, resource)| ResourceUse { resource, weight: 1.0 }).collect();
        Ok(self.cost(uses, cap, format!("the host link of gpu{gpu}")))
    }

    fn peer(&self, from: u32, to: u32) -> Result<LegCost, NoPath> {
        let cap = self.node.peers.get(from as usize).and_then(|row| row.get(to as usize));
        let cap = measured(cap.copied(), || format!("copies from gpu{from} to gpu{to}"))?;
        let ends =
            [self.ports.get(&to).map(|port| port[INTO]), self.ports.get(&from).map(|p| p[OUT_OF])];
        let shared = ends.into_iter().flatten().filter(|_| self.node.one_port);
        let uses = shared.map(|resource| ResourceUse { resource, weight: 1.0 / cap }).collect();
        Ok(self.cost(uses, cap, format!("the links from gpu{from} to gpu{to}")))
    }

    fn cost(&self, uses: Vec<ResourceUse>, cap: f64, limit: String) -> LegCost {
        let ns = |us: f64| if us.is_finite() { us.max(0.0) * 1e3 } else { 0.0 };
        let (start, calls) = (ns(self.node.start_us), ns(self.node.call_us));
        LegCost { uses, queue: None, cap, limit, start, is_chained: false, calls }
    }
}

/// A rate that was measured.
fn measured(gbs: Option<f64>, what: impl Fn() -> String) -> Result<f64, NoPath> {
    let usable = gbs.filter(|gbs| gbs.is_finite() && *gbs > 0.0);
    usable.ok_or_else(|| NoPath(format!("the probe did not measure {}; probe again", what())))
}

impl PathSource for ProbedPaths<'_> {
    fn capacities(&self) -> Vec<f64> {
        self.capacities.clone()
    }
    fn agents(&self) -> &[CopyAgent] {
        &[CopyAgent::Engine]
    }
    fn direct(&self, _: CopyAgent) -> Result<CandidatePath, NoPath> {
        let at = end_gpu(self.src, self.dst);
        at.ok_or_else(|| NoPath("neither end is a GPU".into()))?;
        let leg = self.leg(self.src.unit, self.dst.unit)?;
        Ok(CandidatePath { via: None, legs: vec![leg], hops: 1 })
    }
    fn over(&self, relay: u32, _: CopyAgent) -> Result<CandidatePath, NoPath> {
        let slot = Unit::Gpu(relay);
        let legs = vec![self.leg(self.src.unit, slot)?, self.leg(slot, self.dst.unit)?];
        Ok(CandidatePath { via: Some(relay), legs, hops: 2 })
    }
    fn through_member(
        &self,
        owner: u32,
        members: &[u32],
        _: CopyAgent,
    ) -> Result<CandidatePath, NoPath> {
        let mut legs = vec![self.leg(self.src.unit, Unit::Gpu(owner))?];
        for &puller in members.iter().filter(|&&member| member != owner) {
            legs.push(self.leg(Unit::Gpu(owner), Unit::Gpu(puller))?);
        }
        Ok(CandidatePath { via: Some(owner), legs, hops: 2 })
    }
}
