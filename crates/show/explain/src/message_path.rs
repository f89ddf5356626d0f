//! Paths of messages: the transfers of the node that carry the bytes of a case between processes,
//! with their ceiling, what bounds them, and the losses down to what was measured.

use pathline_flow::Network;
use pathline_message::TimeBounds;
use pathline_schema::{
    Case, CopyAgent, CpuHow, CpuOp, CpuWork, Flow, KernelOp, KernelVariant, LinkEnd, MemKind,
    MessageOp, Mover, Ns, Place, RankMember, ShmCopies, Topology, Transport, Unit,
};

use crate::figure::{LossBreakdown, LossKind, LossStep};
use crate::loss_breakdown::{SMALLEST_STEP, loss_breakdown, route_text};
use crate::run::{CaseQuantity, RunEntry, RunView};

/// How records of a model name messages that the CPU copies through memory which processes share.
const SHARED_MEMORY: &str = "through shared memory";

/// What bounds the result of a case between processes, in the unit of its figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MessageLimits {
    /// The peak of the narrowest hop, or of the narrowest cut; none of a time.
    pub(crate) ceiling: Option<f64>,
    /// What the engine lets through; of the time of a collective its least.
    pub(crate) bound: Option<f64>,
    pub(crate) path: LossBreakdown,
}

/// The transfers that carry the messages of a case.
#[derive(Debug, Clone, PartialEq)]
struct MessageCarrier {
    /// A transfer for each timed flow, on the narrowest part of its path.
    case: Case,
    /// Units that the first message passes, ends included.
    route: Vec<LinkEnd>,
    /// How often a core copies every byte, one copy after the other.
    copies: u32,
}

impl RunView<'_> {
    /// Limits of a case between processes of the described node; none of another case, or where the
    /// path of its bytes is not known.
    pub(crate) fn message_limits(
        &self,
        entry: &RunEntry,
        quantity: CaseQuantity,
    ) -> Option<MessageLimits> {
        let wire = entry.case.timed.first()?.by.wire()?;
        match wire.op.collective() {
            Some(_) => self.collective_limits(entry.case, quantity),
            None => self.sent_limits(entry, quantity),
        }
    }

    /// Lower bounds of the time of a collective of device memory by any library; none where its ranks are of
    /// several nodes.
    pub fn time_bounds(&self, case: &Case) -> Option<TimeBounds> {
        let (case, members) = self.by_node_numbers(case);
        self.exchange_bounds.find_bounds(
            &self.topology().whole_node(),
            self.network?,
            &members,
            &case,
        )
    }

    /// What nothing describes of the time of a message. A discovered topology has no efficiencies of
    /// packets, engines and loops, so they are in it.
    fn unknown_part(&self, case: &Case, known: &[LossStep]) -> &'static str {
        let of_device = case.timed.iter().any(|f| f.src.unit.gpu().or(f.dst.unit.gpu()).is_some());
        match (self.simulated().is_some(), of_device, known.is_empty()) {
            (true, ..) => "message protocol",
            (false, true, true) => "packets, copies and message protocol",
            (false, true, false) => "copies and message protocol",
            (false, false, _) => "copy loop and message protocol",
        }
    }

    fn collective_limits(&self, case: &Case, quantity: CaseQuantity) -> Option<MessageLimits> {
        let flow = case.timed.first()?;
        let bounds = self.time_bounds(case)?;
        let least = bounds.flow.0;
        if !(least.is_finite() && least > 0.0) {
            return None;
        }
        let (ceiling, bound) = match quantity {
            CaseQuantity::Payload => (Some(flow.bytes.as_f64() / least), None),
            CaseQuantity::StepNs => (None, Some(least)),
            CaseQuantity::StepUs => (None, Some(least / 1e3)),
            CaseQuantity::Traffic => return None,
        };
        let route = format!("{} to {}", flow.src.unit, flow.dst.unit);
        let path = LossBreakdown { route, narrowest: bounds.flow_by, losses: Vec::new() };
        Some(MessageLimits { ceiling, bound, path })
    }

    /// The node's number of the GPU of a place, if it is one: ranks that see one GPU each call it `gpu0`.
    pub(crate) fn node_gpu(&self, place: Place) -> Option<u32> {
        let gpu = place.unit.gpu()?;
        let member = self.journal.begin.ranks.iter().find(|member| member.rank == place.rank);
        Some(member.map_or(gpu, |member| self.topology().gpu_of_rank(member, gpu)))
    }

    /// A case and the ranks by the node's numbers of GPUs: see [`Self::node_gpu`].
    fn by_node_numbers(&self, case: &Case) -> (Case, Vec<RankMember>) {
        let topology = self.topology();
        let (mut case, mut members) = (case.clone(), self.journal.begin.ranks.clone());
        for flow in case.timed.iter_mut().chain(&mut case.background) {
            for place in [&mut flow.src, &mut flow.dst] {
                place.unit = self.node_gpu(*place).map_or(place.unit, Unit::Gpu);
            }
        }
        for member in &mut members {
            let gpus = member.gpus.iter().map(|gpu| topology.gpu_of_rank(member, *gpu)).collect();
            member.gpus = gpus;
        }
        (case, members)
    }

    fn sent_limits(&self, entry: &RunEntry, quantity: CaseQuantity) -> Option<MessageLimits> {
        let network = self.network?;
        let (case, members) = self.by_node_numbers(entry.case);
        let node = self.topology().whole_node();
        let carrier = carrier(network, &node, &members, &case, entry.engine())?;
        let known = loss_breakdown(network, &carrier.case, 1.0)?;
        let mut path = LossBreakdown {
            route: if carrier.route.is_empty() { known.route } else { route_text(&carrier.route) },
            narrowest: known.narrowest,
            losses: known.losses,
        };
        if matches!(quantity, CaseQuantity::StepNs | CaseQuantity::StepUs) {
            path.losses.clear();
            return Some(MessageLimits { ceiling: None, bound: None, path });
        }
        let (ceiling, bound) = self.network_limits(&carrier.case);
        let ceiling = ceiling?;
        let mut level = path.losses.last().map_or(ceiling, |loss| loss.to);
        if carrier.copies > 1 {
            let to = level / f64::from(carrier.copies);
            let why = format!("copied {} times, {SHARED_MEMORY}", carrier.copies);
            path.losses.push(LossStep { from: level, to, kind: LossKind::Limit, why });
            level = to;
        }
        let bound = (level < ceiling * (1.0 - SMALLEST_STEP)).then_some(level).or(bound);
        if let Some(value) = self.value(entry, quantity) {
            let what = self.unknown_part(entry.case, &path.losses);
            path.losses.extend(message_step(what, entry.case, level, value));
        }
        Some(MessageLimits { ceiling: Some(ceiling), bound, path })
    }
}

/// What is left between the last known level and the measured rate: the library's part, which no
/// description of hardware has.
fn message_step(what: &str, case: &Case, level: f64, value: f64) -> Option<LossStep> {
    if !(value > 0.0 && value < level * (1.0 - SMALLEST_STEP)) {
        return None;
    }
    let bytes: f64 = case.timed.iter().map(|flow| flow.bytes.as_f64()).sum();
    let why = format!("{what}, {} a message", Ns(bytes / value - bytes / level));
    Some(LossStep { from: level, to: value, kind: LossKind::Message, why })
}

/// The transfers that carry a case; none if a process is on another node, or if a library alone
/// knows the path.
fn carrier(
    network: &Network,
    topology: &Topology,
    members: &[RankMember],
    case: &Case,
    engine: &str,
) -> Option<MessageCarrier> {
    if members.iter().any(|member| member.node > 0) {
        return None;
    }
    let mut carried = MessageCarrier {
        case: Case { timed: Vec::new(), background: Vec::new(), cadence: case.cadence },
        route: Vec::new(),
        copies: 1,
    };
    for (nth, flow) in case.timed.iter().enumerate() {
        let wire = flow.by.wire()?;
        let legs = legs(topology, flow, wire, engine)?;
        let explained: Vec<_> =
            legs.iter().map(|leg| network.explain(leg).ok()).collect::<Option<_>>()?;
        let narrowest =
            (0..legs.len()).min_by(|&a, &b| explained[a].peak.0.total_cmp(&explained[b].peak.0))?;
        carried.case.timed.push(*legs.get(narrowest)?);
        if nth == 0 && legs.len() > 1 {
            carried.route = explained.iter().flat_map(|leg| leg.route.iter().copied()).collect();
            carried.route.dedup();
        }
        carried.copies = carried.copies.max(copies(flow, wire, engine));
    }
    Some(carried)
}

/// How often a core copies a byte before the next can be copied: a library's own core does both
/// copies through shared memory. Sender and receiver of `shm` copy at the same time.
fn copies(flow: &Flow, wire: &MessageOp, engine: &str) -> u32 {
    let of_host = flow.src.unit.numa().is_some() && flow.dst.unit.numa().is_some();
    let both = wire.via == Transport::Mpi && of_host && engine.contains(SHARED_MEMORY);
    if both { 2 } else { 1 }
}

/// The transfers that one message takes, in order.
fn legs(topology: &Topology, flow: &Flow, wire: &MessageOp, engine: &str) -> Option<Vec<Flow>> {
    let on_device = |place: Place| matches!(place.mem, MemKind::Vram | MemKind::VramFine);
    let on_host = |place: Place| {
        use MemKind::{Huge, Paged, Pinned, Registered};
        matches!(place.mem, Paged | Huge | Pinned | Registered)
    };
    let staged = wire.via == Transport::MpiStaged || engine.contains(SHARED_MEMORY);
    let leg = |src: Place, dst: Place, by: Mover| Flow { src, dst, by, bytes: flow.bytes };
    // Transfers inside a node name units only; ranks have done their part in `by_node_numbers`.
    let (src, dst) =
        (Place::new(flow.src.unit, flow.src.mem), Place::new(flow.dst.unit, flow.dst.mem));
    let host = |unit: Unit| Place::new(unit, MemKind::Pinned);
    match (src.unit, dst.unit) {
        // Two processes may call different GPUs by the same number.
        (Unit::Gpu(a), Unit::Gpu(b)) if a == b => None,
        (Unit::Gpu(a), Unit::Gpu(b)) if on_device(src) && on_device(dst) && staged => {
            let (from, to) = (host(home(topology, a)?), host(home(topology, b)?));
            Some(vec![
                leg(src, from, Mover::Dma { at: src.unit }),
                leg(to, dst, Mover::Dma { at: dst.unit }),
            ])
        }
        (Unit::Gpu(_), Unit::Gpu(_)) if on_device(src) && on_device(dst) => {
            let by = match wire.via {
                Transport::Mpi | Transport::Ucx if wire.agent == Some(CopyAgent::Kernel) => {
                    Mover::Blit { at: src.unit }
                }
                Transport::Mpi | Transport::Ucx => Mover::Dma { at: src.unit },
                Transport::Ccl => {
                    let variant = KernelVariant::standard(KernelOp::Copy);
                    Mover::Kernel { at: src.unit, variant }
                }
                _ => return None,
            };
            Some(vec![leg(src, dst, by)])
        }
        (Unit::Gpu(_), Unit::Numa(_)) if on_device(src) && on_host(dst) => {
            Some(vec![leg(src, host(dst.unit), Mover::Dma { at: src.unit })])
        }
        (Unit::Numa(_), Unit::Gpu(_)) if on_host(src) && on_device(dst) => {
            Some(vec![leg(host(src.unit), dst, Mover::Dma { at: dst.unit })])
        }
        (Unit::Numa(_), Unit::Numa(_)) if on_host(src) && on_host(dst) => {
            let how = match wire.copies {
                Some(ShmCopies::InOut { copy_out, .. } | ShmCopies::Single(copy_out)) => copy_out,
                _ => CpuHow::Memcpy,
            };
            let huge = |unit| Place::new(unit, MemKind::Huge);
            let work = CpuWork { op: CpuOp::Copy, how };
            let by = Mover::Cpu { at: dst.unit, work, threads: 1 };
            Some(vec![leg(huge(src.unit), huge(dst.unit), by)])
        }
        _ => None,
    }
}

/// The NUMA domain that a GPU hangs on.
fn home(topology: &Topology, gpu: u32) -> Option<Unit> {
    topology.gpus.iter().find(|g| g.index == gpu)?.numa.map(Unit::Numa)
}
