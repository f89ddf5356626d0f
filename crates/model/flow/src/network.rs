//! The resources of a node and what flows get of them: the facade over graph and paths.

use pathline_schema::{Bytes, Case, Flow, LinkEnd, MemKind, Ns, Rate, RuntimeCall, Topology};

use crate::fault::{FaultEffect, FaultElement, MachineFault};
use crate::flow_path::build_path;
use crate::graph::NodeGraph;
use crate::measured::MeasuredFlows;
use crate::model::{CacheLevel, NodeModel};
use crate::operation::{BuiltPath, FlowOperation, FlowResource, NoPath, PathStage};
use crate::path::{IoParts, parts};
use crate::routes::RouteTable;
use crate::{DescError, MachineDesc, RuntimeEnv};

/// The predicted rate and time of one timed flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowPrediction {
    /// Payload rate while all flows of the case run.
    pub rate: Rate,
    /// Time of one operation, start-up included, under contention. For a chase, of one step.
    pub time: Ns,
    /// Name of the resource or cap that binds.
    pub bound_by: String,
}

/// The ceiling of a flow and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowCeiling {
    /// Theoretical peak of the narrowest stage of the path.
    pub peak: Rate,
    /// The stretch.
    pub narrowest: String,
    /// The tightest bound that is known, if it is below the peak: an engine's cap, a protocol.
    pub bound: Option<(Rate, String)>,
    /// Units passed, ends included.
    pub route: Vec<LinkEnd>,
    /// The path, stage by stage.
    pub stages: Vec<PathStage>,
}

/// Resources and paths of one node.
#[derive(Debug, Clone)]
pub struct Network {
    pub(crate) graph: NodeGraph,
}

impl Network {
    /// From a machine description, as it behaves under `switches`.
    ///
    /// # Errors
    /// Two GPUs that neither a link nor the host joins.
    pub fn new(desc: &MachineDesc, switches: RuntimeEnv) -> Result<Self, DescError> {
        Self::with_faults(desc, switches, &[])
    }

    /// The same with faults. A flapping bundle is at its full rate; [`Self::slowed`] gives its operations
    /// while it is slow.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_faults(
        desc: &MachineDesc,
        switches: RuntimeEnv,
        faults: &[MachineFault],
    ) -> Result<Self, DescError> {
        let mut topology = desc.topology.clone();
        for fault in faults.iter().filter(|fault| is_striped(fault)) {
            let joined = topology.links.iter_mut().filter(|l| fault.element.joins(l.a, l.b));
            for link in joined {
                let Some(share) = fault.share_left(link.width) else { continue };
                link.peak = link.peak.map(|peak| peak * share);
                if let FaultEffect::Width { lost } = fault.effect {
                    link.width -= lost.min(link.width);
                }
            }
        }
        let mut graph = NodeGraph::new(&topology, desc.model.clone(), switches, true);
        faults.iter().filter(|fault| !is_striped(fault)).for_each(|fault| graph.damage(fault));
        graph.modelled = desc.modelled;
        graph.io.clone_from(&desc.io);
        desc.stores.iter().for_each(|store| graph.add_store(store));
        graph.add_measured(desc.measured.clone());
        for (&g, gpu) in &graph.gpus {
            let joined = graph.routes.neighbours(LinkEnd::Gpu(g)).next().is_some();
            // A twin needs no links: what was measured between two places is a path.
            if !joined && gpu.port.is_none() && graph.modelled {
                let reason = format!("gpu{g} has no link; expected one to a NUMA domain or a GPU");
                return Err(DescError { file: desc.file.clone(), reason });
            }
        }
        Ok(Self { graph })
    }

    /// Whether rates are those of a description, and not theoretical peaks.
    pub fn is_described(&self) -> bool {
        self.graph.described
    }

    /// From a discovered topology: theoretical peaks, no efficiencies, no latencies.
    pub fn from_topology(topology: &Topology) -> Self {
        let mut model = NodeModel::ideal();
        // Not for their rates, which are unknown, but to find traffic that never reaches the
        // memory.
        let mut caches: Vec<CacheLevel> = topology
            .caches
            .iter()
            .filter(|c| c.kind != "Instruction" && c.size.0 > 0)
            .map(|c| CacheLevel {
                level: c.level,
                bytes: c.size.0,
                shared_by: c.cpus.len().clamp(1, 1 << 16) as u32,
                load_ns: 0.0,
                core_gbs: f64::INFINITY,
            })
            .collect();
        caches.sort_by_key(|c| (c.level, c.bytes));
        caches.dedup();
        model.cpu.cache = caches;
        Self { graph: NodeGraph::new(topology, model, RuntimeEnv::default(), false) }
    }

    /// Measurements of this node; empty if its description models it.
    pub fn measured(&self) -> &MeasuredFlows {
        &self.graph.book.measured
    }

    /// Names of the engines that serve one stream of operations at a time.
    pub fn queues(&self) -> &[String] {
        &self.graph.queues
    }

    /// The resources that flows share.
    pub fn resources(&self) -> &[FlowResource] {
        &self.graph.resources
    }

    /// Routes of the node, for maps and matrices.
    pub fn routes(&self) -> &RouteTable {
        &self.graph.routes
    }

    /// Cost and resource use of one operation of `flow`.
    ///
    /// # Errors
    /// The hardware, the runtime or the switches allow no such transfer, or what it depends on is
    /// not known; in words for a skip.
    pub fn operation(&self, flow: &Flow) -> Result<FlowOperation, NoPath> {
        build_path(&self.graph, flow).map(|built| built.operation)
    }

    /// An operation while a flapping bundle is slow; none if the fault does not concern it.
    pub fn slowed(&self, operation: &FlowOperation, fault: &MachineFault) -> Option<FlowOperation> {
        let FaultEffect::Flapping { share, .. } = fault.effect else { return None };
        let struck = self.graph.resources_of(fault.element);
        let caps = operation.uses.iter().filter(|u| struck.contains(&u.resource)).filter_map(|u| {
            let capacity = self.graph.resources.get(u.resource as usize)?.capacity;
            Some(capacity.0 * share / u.weight)
        });
        let cap = caps.reduce(f64::min)?;
        (cap < operation.cap.0).then(|| FlowOperation { cap: Rate(cap), ..operation.clone() })
    }

    /// Resource use of I/O, part by part.
    ///
    /// # Errors
    /// No such store, or an engine that it does not have; in words for a skip.
    pub fn io_parts(&self, flow: &Flow) -> Result<IoParts, NoPath> {
        if let Some(why) = flow.misfit() {
            return Err(NoPath(why.into()));
        }
        let io = flow.by.io().ok_or_else(|| NoPath("it is no I/O".into()))?;
        parts(&self.graph, flow, io).map(|(_, parts)| parts)
    }

    /// The ceiling of `flow` alone.
    ///
    /// # Errors
    /// As [`Self::operation`].
    pub fn explain(&self, flow: &Flow) -> Result<FlowCeiling, NoPath> {
        let built = build_path(&self.graph, flow)?;
        let op = &built.operation;
        let narrowest = op.stages.iter().min_by(|a, b| a.peak.0.total_cmp(&b.peak.0));
        let Some(narrowest) = narrowest else {
            return Err(NoPath("no peak is known on its route".into()));
        };
        let alone = self.graph.solve(std::slice::from_ref(&built));
        let rate = alone.first().copied().unwrap_or(op.cap);
        let below = rate.0 < narrowest.peak.0 * (1.0 - 1e-9);
        let bound = below.then(|| (rate, self.graph.bound_by(&built, rate, &[(&built, rate)])));
        Ok(FlowCeiling {
            peak: narrowest.peak,
            narrowest: narrowest.name.clone(),
            bound,
            route: op.route.clone(),
            stages: op.stages.clone(),
        })
    }

    /// Rate of each timed flow of `case` while all its flows run. The cadence does not matter
    /// here: time of the host between isolated operations is not the flow's.
    ///
    /// # Errors
    /// As [`Self::operation`], for any flow of the case.
    pub fn predict(&self, case: &Case) -> Result<Vec<FlowPrediction>, NoPath> {
        let mut built: Vec<BuiltPath> =
            case.flows().map(|flow| build_path(&self.graph, flow)).collect::<Result<_, _>>()?;
        built.iter_mut().for_each(|built| self.graph.take_turns(&mut built.operation));
        let rates = self.graph.solve(&built);
        let loads: Vec<(&BuiltPath, Rate)> = built.iter().zip(rates.iter().copied()).collect();
        let predict = |(flow, &(built, rate)): (&Flow, &(&BuiltPath, Rate))| {
            let op = &built.operation;
            let time = if flow.by.is_chase() { op.step } else { op.alpha + rate.time(flow.bytes) };
            FlowPrediction { rate, time, bound_by: self.graph.bound_by(built, rate, &loads) }
        };
        Ok(case.timed.iter().zip(&loads).map(predict).collect())
    }

    /// The least hard peak on the route of a flow, in payload, and the stretch that has it; none where
    /// none is known.
    pub fn hard_peak(&self, flow: &Flow) -> Option<(Rate, String)> {
        let stages = self.operation(flow).ok()?.stages.into_iter();
        let hard = stages.filter_map(|stage| Some((stage.hard?, stage.name)));
        hard.min_by(|a, b| a.0.0.total_cmp(&b.0.0))
    }

    /// Whether the times of the smallest copies between GPUs are a matrix that the description
    /// carries. If so, they agree with published times by construction.
    pub fn carries_latencies(&self) -> bool {
        !self.graph.model.time.copy_us_matrix.is_empty()
    }

    /// Host time of a call about `bytes` of memory of a kind; none if the description has no row
    /// for it.
    pub fn call_time(&self, call: RuntimeCall, mem: Option<MemKind>, bytes: Bytes) -> Option<Ns> {
        self.graph.call_time(call, mem, bytes)
    }

    /// Device time between two records of events on a stream with nothing between them: what times one
    /// operation by events adds to it.
    pub fn event_gap(&self) -> Ns {
        self.graph.event_gap()
    }

    /// Host time of the call that enqueues many copies; none if this runtime has none.
    pub fn batch_call(&self) -> Option<Ns> {
        self.graph.batch_call()
    }
}

/// Whether transfers are spread over the links that are left. A GPU sends over all links to its switches in
/// proportion to their number; a forwarded route stays as it is, however narrow it becomes.
fn is_striped(fault: &MachineFault) -> bool {
    match (fault.element, fault.effect) {
        (FaultElement::Bundle { from, to, one_way: false }, FaultEffect::Width { .. }) => {
            [from, to].iter().any(|end| matches!(end, LinkEnd::Switch(_)))
        }
        _ => false,
    }
}
