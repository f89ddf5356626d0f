//! Processes of a model, one for each GPU: the model of message libraries gives the time of their
//! messages on the one virtual clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_flow::{DescError, MachineDesc, MessageSoftware, RuntimeEnv};
use pathline_hal::{CallError, CallResult, ExchangeId, FlowTime, RankGroup, no_exchange};
use pathline_message::{ExchangeOp, ExchangeSpec, MessageLayer, MessageLibrary, exchange_of};
use pathline_schema::{
    Cadence, Case, CopyAgent, CpuSet, MessageOp, Ns, Rank, RankMember, Topology, Transport,
    VerifyResult, WireOp,
};

use crate::SimOptions;
use crate::world::SimWorld;

/// The processes of a model.
pub(crate) struct SimRanks {
    world: Rc<RefCell<SimWorld>>,
    layer: MessageLayer,
    software: MessageSoftware,
    sdma: bool,
    /// Whether the switches reduce where the library lets them.
    nvls: bool,
    members: Vec<RankMember>,
    state: RefCell<RanksState>,
}

#[derive(Debug, Default)]
struct RanksState {
    next: u64,
    bound: BTreeMap<ExchangeId, SimExchange>,
}

/// An exchange whose times are known.
#[derive(Debug, Clone)]
struct SimExchange {
    /// Of each timed flow: ns of one repetition, and of each rank that takes part.
    flows: Vec<(f64, BTreeMap<Rank, f64>)>,
    engine: String,
}

impl SimRanks {
    /// As many as `options` say, at least 1. One alone has all GPUs of its node; of several each has the
    /// GPU of its place among those of its node.
    pub(crate) fn new(
        world: Rc<RefCell<SimWorld>>,
        desc: &MachineDesc,
        switches: RuntimeEnv,
        options: &SimOptions,
    ) -> std::result::Result<Self, DescError> {
        let layer = MessageLayer::with_faults(desc, world.borrow().faults.all())?;
        let software = desc.software.clone();
        let members = {
            let world = world.borrow();
            members(&world.topology, &software, &desc.name, &ranks_of_nodes(desc, options))
        };
        // As elsewhere: unset means that copy engines copy.
        let sdma = switches.sdma != Some(false) && switches.peer_sdma != Some(false);
        let state = RefCell::default();
        let nvls = switches.nvls != Some(false);
        Ok(Self { world, layer, software, sdma, nvls, members, state })
    }

    /// The library that carries a transport in the model.
    fn library(&self, wire: &MessageOp) -> Option<MessageLibrary> {
        let software = &self.software;
        let sdma = wire.agent.map_or(self.sdma, |agent| agent == CopyAgent::Engine);
        match wire.via {
            Transport::Mpi | Transport::MpiStaged if software.cray_mpich.is_some() => {
                Some(MessageLibrary::CrayMpich { sdma })
            }
            // UCX alone takes the paths and protocols of an MPI over it. What the MPI adds is not known
            // apart from UCX's own start, so nothing is taken off.
            Transport::Mpi | Transport::MpiStaged | Transport::Ucx if software.ucx.is_some() => {
                Some(MessageLibrary::Ucx { sdma })
            }
            Transport::Ccl if software.rccl.is_some() => Some(MessageLibrary::Rccl),
            Transport::Ccl if software.nccl.is_some() => {
                Some(MessageLibrary::Nccl { nvls: self.nvls })
            }
            _ => None,
        }
    }

    /// The exchange that all timed flows of a case are, and the ranks of each flow.
    fn exchange(&self, case: &Case) -> std::result::Result<(ExchangeSpec, Vec<Vec<Rank>>), String> {
        let first = case.timed.first().ok_or("a case without flows")?;
        let wire = first.by.wire().ok_or("a flow that is not between processes")?;
        if !case.background.is_empty() {
            return Err("the model of messages has no background load".into());
        }
        let by = self.library(wire).ok_or_else(|| format!("no {} in this model", wire.via))?;
        if case.cadence == Cadence::Graph && by.is_mpi() {
            return Err("graphs hold operations of GPUs, and MPI's are the processor's".into());
        }
        if let Some(setting) = wire.switch {
            return Err(format!(
                "the model does not know what the setting {setting} of UCX changes"
            ));
        }
        match wire.op {
            WireOp::Group { in_place: true, .. } => {
                Err("the model does not distinguish operations in place".into())
            }
            WireOp::Group { unregistered: true, .. } => {
                Err("the model does not distinguish unregistered buffers".into())
            }
            _ => exchange_of(case, &self.members, by),
        }
    }

    /// Whether all timed flows go through memory that processes share.
    fn shares_memory(case: &Case) -> bool {
        case.timed.iter().all(|flow| flow.by.wire().is_some_and(|wire| wire.via.shares_memory()))
    }

    fn copies(&self, case: &Case) -> std::result::Result<SimExchange, String> {
        if !case.background.is_empty() {
            return Err("the model of messages has no background load".into());
        }
        let outcome = self.layer.shared_memory(case).map_err(|path| path.0)?;
        let flows = case.timed.iter().zip(&outcome.each).map(|(flow, time)| {
            let by_rank = [flow.src.rank, flow.dst.rank].map(|rank| (rank, time.0));
            (time.0, BTreeMap::from(by_rank))
        });
        Ok(SimExchange { flows: flows.collect(), engine: format!("{}, a model", outcome.how) })
    }

    fn messages(&self, case: &Case) -> std::result::Result<SimExchange, String> {
        let (exchange, ranks) = self.exchange(case)?;
        let outcome = self.layer.time(&exchange).map_err(|path| path.0)?;
        // The layer returns a window's time per message, and half of a ping's round trip.
        let passes = match &exchange.what {
            ExchangeOp::Send { window, .. } => f64::from(*window),
            ExchangeOp::Ping { .. } => 2.0,
            ExchangeOp::Collective { .. } => 1.0,
        };
        let each = |i: usize| outcome.each.get(i).map_or(outcome.time.0, |ns| ns.0) * passes;
        let flows = ranks
            .into_iter()
            .enumerate()
            .map(|(nth, ranks)| {
                let mut by_rank = BTreeMap::new();
                for (i, rank) in ranks.into_iter().enumerate() {
                    let collective = matches!(exchange.what, ExchangeOp::Collective { .. });
                    let time = each(if collective { i } else { nth });
                    let slot = by_rank.entry(rank).or_insert(0.0);
                    *slot = f64::max(*slot, time);
                }
                (by_rank.values().copied().fold(0.0, f64::max), by_rank)
            })
            .collect();
        let engine = format!("{}: {}, a model", exchange.by, outcome.algorithm);
        Ok(SimExchange { flows, engine })
    }
}

/// Number of ranks on each node that has any. Without [`SimOptions::nodes`] ranks take as many nodes of a
/// cluster as their GPUs need.
pub fn ranks_of_nodes(desc: &MachineDesc, options: &SimOptions) -> Vec<u32> {
    let count = options.ranks.max(1);
    let gpus = u32::try_from(desc.healthy_topology().gpus.len()).unwrap_or(u32::MAX).max(1);
    let needed = desc.cluster.as_ref().map_or(1, |_| count.div_ceil(gpus));
    let nodes = options.nodes.unwrap_or(needed).clamp(1, count);
    let (each, more) = (count / nodes, count % nodes);
    (0..nodes).map(|node| each + u32::from(node < more)).collect()
}

/// The processes themselves, by the number of them on each node.
fn members(
    topology: &Topology,
    software: &MessageSoftware,
    model: &str,
    of_nodes: &[u32],
) -> Vec<RankMember> {
    let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
    let count = of_nodes.iter().sum();
    let places = (0u32..).zip(of_nodes).flat_map(|(node, &n)| (0..n).map(move |nth| (node, nth)));
    (0..)
        .zip(places)
        .map(|(rank, (node, nth))| {
            let own = match count {
                0 | 1 => gpus.clone(),
                _ => gpus.get(nth as usize).copied().into_iter().collect(),
            };
            let home = own.first().and_then(|g| topology.gpus.iter().find(|x| x.index == *g));
            let numa = home.and_then(|g| g.numa).unwrap_or(0);
            let domain = topology.numa.iter().find(|d| d.id == numa);
            let (ways, without) = transports(software, own.is_empty(), count, model);
            RankMember {
                rank: Rank(rank),
                host: match of_nodes.len() {
                    0 | 1 => topology.host.hostname.to_string(),
                    _ => format!("{}-{node}", topology.host.hostname),
                },
                node,
                pid: 0,
                gpus: own,
                numa,
                cpus: domain.map_or_else(String::new, |d| d.cpus.to_string()),
                ways,
                without,
                gpu: None,
                gpu_identities: Vec::new(),
                host_only: BTreeMap::new(),
                device_memory: BTreeMap::new(),
            }
        })
        .collect()
}

type RankPaths = (BTreeMap<Transport, String>, BTreeMap<Transport, String>);

fn transports(software: &MessageSoftware, no_gpu: bool, count: u32, model: &str) -> RankPaths {
    let (mut present, mut without) = (BTreeMap::new(), BTreeMap::new());
    let mpi = match (&software.cray_mpich, &software.ucx) {
        (Some(_), _) => Ok("Cray MPICH, a model"),
        (None, Some(_)) => Ok("an MPI over UCX, a model"),
        (None, None) => Err("[software.cray-mpich] or [software.ucx]"),
    };
    let ccl = match (&software.rccl, &software.nccl) {
        (Some(_), _) => Ok("RCCL, a model"),
        (None, Some(_)) => Ok("NCCL, a model"),
        (None, None) => Err("[software.rccl] or [software.nccl]"),
    };
    let ucx = match &software.ucx {
        Some(_) => Ok("UCX, a model"),
        None => Err("[software.ucx]"),
    };
    for (via, found) in [(Transport::Mpi, mpi), (Transport::Ccl, ccl), (Transport::Ucx, ucx)] {
        let why = match found {
            _ if no_gpu => format!(
                "{model} has no GPU for this process, and its messages are those of processes with \
                 a GPU each: take fewer --ranks"
            ),
            _ if via != Transport::Ccl && count <= 1 => {
                "one process sends to nobody: --ranks 2 or more".to_owned()
            }
            Ok(library) => {
                present.insert(via, library.to_owned());
                continue;
            }
            Err(section) => format!(
                "the description of {model} has no section {section}; add one, as `pathline model show \
                 mi250x` has it"
            ),
        };
        without.insert(via, why);
    }
    for via in [Transport::Shm, Transport::Cma, Transport::Xpmem] {
        let why = match &software.shared_memory {
            _ if count <= 1 => "one process sends to nobody: --ranks 2 or more".to_owned(),
            Some(_) => {
                present.insert(via, "copies between cores, a model".to_owned());
                continue;
            }
            None => format!(
                "the description of {model} has no section [software.shared-memory]; add one, as \
                 `pathline model show mi250x` has it"
            ),
        };
        without.insert(via, why);
    }
    (present, without)
}

impl RankGroup for SimRanks {
    fn members(&self) -> &[RankMember] {
        &self.members
    }

    fn bind(&self, case: &Case, _: &CpuSet) -> CallResult<ExchangeId> {
        self.world.borrow_mut().enter(Rank(0), "ranks.bind", None)?;
        let no = |why: String| {
            CallError::unsupported("ranks.bind", case.to_string(), why)
                .or_try("measure it on a real node")
        };
        let bound = match Self::shares_memory(case) {
            true => self.copies(case).map_err(no)?,
            false => self.messages(case).map_err(no)?,
        };
        let mut state = self.state.borrow_mut();
        state.next += 1;
        let id = ExchangeId(state.next);
        state.bound.insert(id, bound);
        Ok(id)
    }

    fn run(&self, id: ExchangeId, reps: u64) -> CallResult<Vec<FlowTime>> {
        let mut world = self.world.borrow_mut();
        world.enter(Rank(0), "ranks.run", None)?;
        let state = self.state.borrow();
        let bound = state.bound.get(&id).ok_or_else(|| no_exchange("ranks.run", id))?;
        let took: Vec<FlowTime> = bound
            .flows
            .iter()
            .map(|(time, by_rank)| {
                let factor = world.jitter() * reps as f64;
                let of = |ns: f64| Ns(ns * factor);
                let by_rank = by_rank.iter().map(|(&rank, &ns)| (rank, of(ns))).collect();
                FlowTime { elapsed: of(*time), by_rank, io: None }
            })
            .collect();
        let last = took.iter().map(|t| t.elapsed.0).fold(0.0, f64::max);
        world.charge(Rank(0), last);
        Ok(took)
    }

    fn spoil(&self, id: ExchangeId) -> CallResult<()> {
        self.world.borrow_mut().enter(Rank(0), "ranks.spoil", None)?;
        let known = self.state.borrow().bound.contains_key(&id);
        known.then_some(()).ok_or_else(|| no_exchange("ranks.spoil", id))
    }

    fn check(&self, id: ExchangeId) -> CallResult<VerifyResult> {
        self.world.borrow_mut().enter(Rank(0), "ranks.check", None)?;
        let known = self.state.borrow().bound.contains_key(&id);
        let verdict = || VerifyResult::Unverified("a model's messages carry no bytes".to_owned());
        known.then(verdict).ok_or_else(|| no_exchange("ranks.check", id))
    }

    fn engine(&self, id: ExchangeId) -> String {
        self.state.borrow().bound.get(&id).map_or_else(String::new, |b| b.engine.clone())
    }

    fn release(&self, id: ExchangeId) -> CallResult<()> {
        self.state.borrow_mut().bound.remove(&id);
        Ok(())
    }
}
