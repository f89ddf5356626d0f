//! Suites between processes: MPI, NCCL and RCCL, UCX.

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Cadence, Case, Collective, ElementReduction, ElementType, Flow, MemKind, MessageOp,
    Place, Rank, RankMember, ReduceOp, Transport, UcxSetting, Unit, WireOp,
};

use super::rank_flows::{
    divisible_bytes, first_pair, flow, group_ends, have_transport, lone_case, message_memories,
    pairs_of, place, ring_shifts, wire_mover,
};
use super::{coarse_first, collective_threads};
use crate::message_grid::OSU_WINDOW;
use crate::needs::needs_driver;
use crate::scope::PlanScope;

/// Sizes at which groups of any number of ranks are compared.
const QUOTED: [Bytes; 3] = [Bytes(8), Bytes::mib(1), Bytes::mib(256)];
/// Sizes of collectives that are not swept.
const SAMPLED: [Bytes; 7] = [
    Bytes(8),
    Bytes::kib(1),
    Bytes::kib(64),
    Bytes::mib(1),
    Bytes::mib(16),
    Bytes::mib(256),
    Bytes::gib(1),
];
/// Sizes of reductions of each type and operation.
const TYPE_SIZES: [Bytes; 3] = [Bytes::mib(64), Bytes::kib(1), Bytes::mib(1)];

/// Whether models cover such an exchange. Plans for a model leave out the others.
pub(crate) fn has_model(case: &Case) -> bool {
    let known = |flow: &Flow| {
        let Some(wire) = flow.by.wire() else { return true };
        let memory = |mem: MemKind| mem != MemKind::VramFine;
        let op = match wire.op {
            WireOp::Ping | WireOp::Send { .. } => true,
            WireOp::Group { in_place, unregistered, .. } => {
                !in_place && !unregistered && case.timed.len() == 1
            }
            WireOp::Consume => wire.via.shares_memory(),
            WireOp::Put { .. }
            | WireOp::Get { .. }
            | WireOp::Atomic(_)
            | WireOp::Overlapped { .. }
            | WireOp::PersistentPing
            | WireOp::PersistentSend { .. }
            | WireOp::PersistentGroup { .. } => false,
        };
        let library = match wire.via.carrier() {
            Transport::Mpi | Transport::Ccl | Transport::Ucx => wire.switch.is_none(),
            via => via.shares_memory(),
        };
        op && library && memory(flow.src.mem) && memory(flow.dst.mem)
    };
    let wired = case.flows().any(|flow| flow.by.wire().is_some());
    let as_graph = wired && case.cadence == Cadence::Graph;
    case.flows().all(known) && !as_graph && (!wired || case.background.is_empty())
}

fn messages(scope: &PlanScope<'_>, from: Bytes, to: Bytes) -> Vec<Bytes> {
    coarse_first(&scope.messages.ascending(from, to))
}

/// Transports of a library, each with a kind of memory: device memory also staged by pathline, if
/// the library is an MPI.
fn kinds(ranks: &[RankMember], via: Transport) -> Vec<(Transport, MemKind)> {
    let mut kinds: Vec<(Transport, MemKind)> =
        message_memories(ranks).into_iter().map(|mem| (via, mem)).collect();
    if via == Transport::Mpi && kinds.contains(&(via, MemKind::Vram)) {
        kinds.push((Transport::MpiStaged, MemKind::Vram));
    }
    kinds
}

fn latency(scope: &PlanScope<'_>, via: Transport) -> Vec<Case> {
    let mut cases = Vec::new();
    for (via, mem) in kinds(scope.ranks, via) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        // Latency is usually quoted at 8 B.
        let all = messages(scope, Bytes(1), Bytes::mib(4)).into_iter().chain([Bytes(8)]);
        cases.extend(all.map(|bytes| lone_case(flow(a, b, via, WireOp::Ping, bytes))));
    }
    cases
}

fn bandwidth(scope: &PlanScope<'_>, via: Transport, bidirectional: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (via, mem) in kinds(scope.ranks, via) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        for bytes in messages(scope, Bytes(1), Bytes::gib(1)) {
            let op = WireOp::Send { window: scope.messages.window(bytes) };
            let there = flow(a, b, via, op, bytes);
            let back = bidirectional.then(|| flow(b, a, via, op, bytes));
            cases.push(Case::together([there].into_iter().chain(back).collect()));
        }
    }
    cases
}

pub(super) fn mpi_latency(scope: &PlanScope<'_>) -> Vec<Case> {
    latency(scope, Transport::Mpi)
}

pub(super) fn mpi_bandwidth(scope: &PlanScope<'_>) -> Vec<Case> {
    bandwidth(scope, Transport::Mpi, false)
}

pub(super) fn mpi_bidirectional(scope: &PlanScope<'_>) -> Vec<Case> {
    bandwidth(scope, Transport::Mpi, true)
}

/// Pairs of unlike memory, as OSU's buffer options name them: D H, H D, M D, D M.
const MIXED: [(MemKind, MemKind); 4] = [
    (MemKind::Vram, MemKind::Paged),
    (MemKind::Paged, MemKind::Vram),
    (MemKind::Managed, MemKind::Vram),
    (MemKind::Vram, MemKind::Managed),
];

/// Round trips and windows of messages between unlike memories, at the sizes of equal ones. Of two
/// processes, or of one with itself.
fn mixed(scope: &PlanScope<'_>, ranks: [&RankMember; 2], via: Transport) -> Vec<Case> {
    let [a, b] = ranks;
    let mut cases = Vec::new();
    for (from, to) in MIXED {
        let Some((src, dst)) = place(a, from).zip(place(b, to)) else { continue };
        let latency = messages(scope, Bytes(1), Bytes::mib(4)).into_iter().chain([Bytes(8)]);
        cases.extend(latency.map(|bytes| lone_case(flow(src, dst, via, WireOp::Ping, bytes))));
        for bytes in messages(scope, Bytes(1), Bytes::gib(1)) {
            let op = WireOp::Send { window: scope.messages.window(bytes) };
            cases.push(lone_case(flow(src, dst, via, op, bytes)));
        }
    }
    cases
}

pub(super) fn mpi_mixed(scope: &PlanScope<'_>) -> Vec<Case> {
    let [a, b, ..] = scope.ranks else { return Vec::new() };
    mixed(scope, [a, b], Transport::Mpi)
}

/// Also within one process, as ucx_perftest's loop-back: UCX copies between its memories.
pub(super) fn ucx_mixed(scope: &PlanScope<'_>) -> Vec<Case> {
    let [a, ..] = scope.ranks else { return Vec::new() };
    let mut cases =
        scope.ranks.get(1).map_or_else(Vec::new, |b| mixed(scope, [a, b], Transport::Ucx));
    cases.extend(mixed(scope, [a, a], Transport::Ucx));
    cases
}

/// One-sided, between the first two.
pub(super) fn mpi_one_sided(scope: &PlanScope<'_>) -> Vec<Case> {
    one_sided(scope, Transport::Mpi)
}

fn one_sided(scope: &PlanScope<'_>, via: Transport) -> Vec<Case> {
    let mut cases = Vec::new();
    for mem in message_memories(scope.ranks) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        for bytes in messages(scope, Bytes(8), Bytes::mib(128)) {
            for window in BTreeSet::from([1, scope.messages.window(bytes)]) {
                cases.push(lone_case(flow(a, b, via, WireOp::Put { window }, bytes)));
                cases.push(lone_case(flow(a, b, via, WireOp::Get { window }, bytes)));
            }
        }
    }
    cases
}

/// Every ordered pair of processes: a small round trip, and large messages. With several nodes the
/// pairs inside each node, and between the first processes of each two nodes: alone, and all nodes
/// at once, each with the node at a fixed distance, so that every node sends and receives and none
/// waits.
pub(super) fn mpi_pairs(scope: &PlanScope<'_>) -> Vec<Case> {
    let ranks = scope.ranks;
    let send = WireOp::Send { window: OSU_WINDOW };
    let mut cases = Vec::new();
    for mem in message_memories(ranks)
        .into_iter()
        .filter(|&mem| matches!(mem, MemKind::Paged | MemKind::Vram))
    {
        let ends = |(a, b): (&RankMember, &RankMember)| Some((place(a, mem)?, place(b, mem)?));
        let message =
            |op, bytes| move |(a, b): (Place, Place)| flow(a, b, Transport::Mpi, op, bytes);
        let pairs: Vec<(Place, Place)> = pairs_of(ranks).into_iter().filter_map(ends).collect();
        for (op, bytes) in [(WireOp::Ping, Bytes(8)), (send, Bytes::mib(1))] {
            cases.extend(pairs.iter().copied().map(message(op, bytes)).map(lone_case));
            for shift in ring_shifts(ranks) {
                let flows = shift.into_iter().filter_map(ends).map(message(op, bytes));
                cases.push(Case::together(flows.collect()));
            }
        }
    }
    cases
}

/// 1, 2, 4 ... and all pairs at once: each process of the first half with one of the second.
pub(super) fn mpi_concurrent(scope: &PlanScope<'_>) -> Vec<Case> {
    let (first, second) = scope.ranks.split_at(scope.ranks.len() / 2);
    let all = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut cases = Vec::new();
    if all == 0 {
        return cases;
    }
    for mem in message_memories(scope.ranks) {
        for bytes in [Bytes(8), Bytes::kib(64), Bytes::mib(4)] {
            for pairs in super::ladder(all) {
                let op = WireOp::Send { window: scope.messages.window(bytes) };
                let pair = |(a, b): (&RankMember, &RankMember)| {
                    Some(flow(place(a, mem)?, place(b, mem)?, Transport::Mpi, op, bytes))
                };
                let flows: Vec<Flow> =
                    first.iter().zip(second).take(pairs as usize).filter_map(pair).collect();
                cases.push(Case::together(flows));
            }
        }
    }
    cases
}

fn collectives(
    scope: &PlanScope<'_>,
    via: Transport,
    mem: MemKind,
    cadences: &[Cadence],
) -> Vec<Case> {
    let mut cases = Vec::new();
    let all = Collective::ALL.iter().filter(|&&op| op != Collective::Barrier);
    // NCCL and RCCL have uneven parts by messages alone, of which one exchange shows the cost.
    let here =
        all.filter(|&&op| via != Transport::Ccl || !op.is_uneven() || op == Collective::AllToAllV);
    for &op in here {
        let swept = op <= Collective::AllToAll;
        let cadences = if swept { cadences } else { &[Cadence::Streaming] };
        let reduced = ElementReduction::USUAL;
        let group = |in_place, unregistered| WireOp::Group { op, reduced, in_place, unregistered };
        for (src, dst, n) in group_ends(scope.ranks, mem) {
            let of = |bytes, wire_op| Flow {
                src,
                dst,
                by: wire_mover(src.unit, MessageOp::new(via, wire_op)),
                bytes: divisible_bytes(op, bytes, n),
            };
            let whole = n == group_ends(scope.ranks, mem).last().map_or(0, |g| g.2);
            // Every size for the whole group, of rarer operations some; the quoted sizes for smaller
            // groups.
            let chosen = if whole && !swept {
                coarse_first(&SAMPLED)
            } else if whole {
                let all = messages(scope, Bytes(8), Bytes::gib(1));
                all.into_iter().chain(QUOTED.into_iter().filter(|b| b.0 > 8)).collect()
            } else {
                QUOTED.to_vec()
            };
            for bytes in chosen {
                for &cadence in cadences {
                    let case = lone_case(of(bytes, group(false, false)));
                    cases.push(Case { cadence, ..case });
                }
            }
            if whole && op.has_in_place(via) && op != Collective::AllReduce {
                let bytes = if via == Transport::Ccl { Bytes::gib(1) } else { Bytes::mib(1) };
                cases.push(lone_case(of(bytes, group(true, false))));
            }
            if via == Transport::Ccl && whole && op == Collective::AllReduce {
                let in_place = [Bytes(8), Bytes::gib(1)];
                cases.extend(in_place.map(|bytes| lone_case(of(bytes, group(true, false)))));
                // Smaller buffers share pages, which are registered as a whole.
                let large = [Bytes::mib(1), Bytes::mib(256), Bytes::gib(1)];
                cases.extend(large.map(|bytes| lone_case(of(bytes, group(false, true)))));
            }
        }
    }
    cases.dedup();
    cases
}

/// Reductions of the types that OSU's programs use, at sizes below those of 64-bit integers.
fn osu_reductions(scope: &PlanScope<'_>, via: Transport, mem: MemKind) -> Vec<Case> {
    let Some((src, dst, _)) = group_ends(scope.ranks, mem).pop() else { return Vec::new() };
    let mut cases = Vec::new();
    for op in [Collective::Reduce, Collective::AllReduce] {
        for element in [ElementType::Float, ElementType::Int8] {
            let reduced = ElementReduction { element, by: ReduceOp::Sum };
            for bytes in [Bytes(4), Bytes(16), Bytes(64)] {
                let op = WireOp::reduction(op, reduced);
                cases.push(lone_case(flow(src, dst, via, op, bytes)));
            }
        }
    }
    cases
}

/// all_reduce over the whole group of every type by every operation that the library has.
pub(super) fn collective_types(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut libraries = vec![(Transport::Ccl, MemKind::Vram)];
    libraries.extend(message_memories(scope.ranks).into_iter().map(|mem| (Transport::Mpi, mem)));
    let mut cases = Vec::new();
    for (via, mem) in libraries.into_iter().filter(|(via, _)| have_transport(scope, *via)) {
        let Some((src, dst, n)) = group_ends(scope.ranks, mem).pop() else { continue };
        for bytes in TYPE_SIZES {
            for reduced in reductions(via, n) {
                let op = WireOp::reduction(Collective::AllReduce, reduced);
                cases.push(lone_case(flow(src, dst, via, op, bytes)));
            }
        }
        for reduced in reductions(via, n).filter(|reduced| reduced.by == ReduceOp::Sum) {
            let op = WireOp::reduction(Collective::AllReduce, reduced);
            cases.push(lone_case(flow(src, dst, via, op, Bytes::mib(256))));
        }
    }
    cases
}

/// The reductions of a library whose results over `n` ranks are exact.
fn reductions(via: Transport, n: usize) -> impl Iterator<Item = ElementReduction> {
    let all = ElementType::ALL
        .iter()
        .flat_map(|&element| ReduceOp::ALL.iter().map(move |&by| ElementReduction { element, by }));
    all.filter(move |reduced| reduced.misfit(via).is_none() && reduced.is_exact(n))
}

pub(super) fn mpi_collectives(scope: &PlanScope<'_>) -> Vec<Case> {
    let cadences = [Cadence::Streaming];
    let mut cases: Vec<Case> = kinds(scope.ranks, Transport::Mpi)
        .into_iter()
        .flat_map(|(via, mem)| {
            let small = osu_reductions(scope, via, mem);
            collectives(scope, via, mem, &cadences).into_iter().chain(small)
        })
        .collect();
    for (src, dst, _) in group_ends(scope.ranks, MemKind::Paged) {
        let (src, dst) = (Place { mem: MemKind::Reg, ..src }, Place { mem: MemKind::Reg, ..dst });
        let op = WireOp::group(Collective::Barrier);
        cases.push(lone_case(flow(src, dst, Transport::Mpi, op, Bytes(1))));
    }
    cases
}

pub(super) fn ccl_collectives(scope: &PlanScope<'_>) -> Vec<Case> {
    let all = [Cadence::Streaming, Cadence::Graph, Cadence::Isolated];
    // Cadences differ where a call costs as much as the bytes.
    collectives(scope, Transport::Ccl, MemKind::Vram, &all)
        .into_iter()
        .chain(collective_threads::cases(scope))
        .filter(|c| {
            let small = c.timed.iter().all(|f| f.bytes <= Bytes::mib(1));
            c.cadence == Cadence::Streaming || small
        })
        .collect()
}

/// Every ordered pair of GPUs by send and receive.
pub(super) fn ccl_pairs(scope: &PlanScope<'_>) -> Vec<Case> {
    let places: Vec<Place> = match scope.ranks {
        [alone] => {
            let place =
                |&gpu: &u32| Place { rank: Rank(0), unit: Unit::Gpu(gpu), mem: MemKind::Vram };
            alone.gpus.iter().map(place).collect()
        }
        several => several.iter().filter_map(|m| m.gpu_memory(MemKind::Vram)).collect(),
    };
    let pairs = || {
        let all = places.iter().flat_map(|a| places.iter().map(move |b| (*a, *b)));
        all.filter(|(a, b)| a != b)
    };
    let mut cases: Vec<Case> = pairs()
        .map(|(a, b)| lone_case(flow(a, b, Transport::Ccl, WireOp::Ping, Bytes(8))))
        .collect();
    let send = WireOp::Send { window: 1 };
    cases
        .extend(pairs().map(|(a, b)| lone_case(flow(a, b, Transport::Ccl, send, Bytes::mib(256)))));
    cases
}

pub(super) fn ucx(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = latency(scope, Transport::Ucx);
    cases.extend(bandwidth(scope, Transport::Ucx, false));
    cases.extend(one_sided(scope, Transport::Ucx));
    cases
}

/// The effect of each setting of UCX: a small message, and windows of the sizes at which protocols
/// change, for every kind of memory. Settings of device-memory transports only for device memory.
pub(super) fn ucx_switches(scope: &PlanScope<'_>) -> Vec<Case> {
    let sizes = [Bytes::kib(8), Bytes::kib(64), Bytes::mib(1), Bytes::mib(16), Bytes::mib(128)];
    let windows = sizes.map(|bytes| (WireOp::Send { window: scope.messages.window(bytes) }, bytes));
    let mut cases = Vec::new();
    // A model knows no setting, and messages without one are those of suite ucx.
    if scope.simulated {
        return cases;
    }
    for mem in message_memories(scope.ranks) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        let of_device = matches!(mem, MemKind::Vram | MemKind::Managed);
        let switches = || UcxSetting::ALL.iter().filter(|s| of_device || !s.is_of_devices());
        for (op, bytes) in [(WireOp::Ping, Bytes(8))].into_iter().chain(windows) {
            for switch in [None].into_iter().chain(switches().copied().map(Some)) {
                let wire = MessageOp { switch, ..MessageOp::new(Transport::Ucx, op) };
                cases.push(lone_case(Flow { src: a, dst: b, by: wire_mover(a.unit, wire), bytes }));
            }
        }
    }
    cases
}

/// Why a flow between processes cannot be measured in such a run; `None` without a known reason.
pub(crate) fn cannot(scope: &PlanScope<'_>, flow: &Flow, wire: &MessageOp) -> Option<String> {
    let group: Vec<Rank> = match wire.op.collective() {
        Some(_) => (flow.src.rank.0..=flow.dst.rank.0).map(Rank).collect(),
        None => vec![flow.src.rank, flow.dst.rank],
    };
    let gpus = [flow.src, flow.dst].into_iter().filter_map(|place| place.unit.gpu());
    let gpus = gpus.filter(|_| wire.op.collective().is_none()).max();
    // A GPU beyond the last of these ranks needs a rank, too: there is one for each GPU.
    let by_gpus = gpus.map_or(0, |gpu| gpu.saturating_add(1));
    let needed = group.iter().map(|rank| rank.0.saturating_add(1)).max().unwrap_or(1);
    let needed = if by_gpus > needed { scope.topology.gpus.len() as u32 } else { needed };
    for rank in group {
        let Some(member) = scope.ranks.iter().find(|m| m.rank == rank) else {
            let launched = matches!(wire.via.carrier(), Transport::Mpi) && !scope.simulated;
            let start = match launched {
                true => format!(
                    "start it with `mpirun -n {needed}` or `srun -n {needed}`, or add --ranks \
                     {needed} --mpirun mpirun"
                ),
                false => format!("start it with --ranks {needed}"),
            };
            let has = match scope.ranks.len() {
                0 => "no ranks".to_owned(),
                1 => "one rank".to_owned(),
                n => format!("{n} ranks"),
            };
            return Some(format!("this run has {has}, and the case needs {needed}: {start}"));
        };
        let carrier = wire.via.carrier();
        if !member.ways.contains_key(&carrier) {
            let why = member.without.get(&carrier).map_or("not here", String::as_str);
            return Some(format!("no {} in rank {}: {why}", wire.via, rank.0));
        }
    }
    for place in [flow.src, flow.dst] {
        let Some(member) = scope.ranks.iter().find(|m| m.rank == place.rank) else { continue };
        if let Unit::Gpu(gpu) = place.unit
            && !member.gpus.contains(&gpu)
            && !collective_threads::has_threads(scope, flow, wire)
        {
            let owner = scope.ranks.iter().find(|member| member.gpus.contains(&gpu));
            let way_out = match owner {
                Some(owner) => format!("r{}.gpu{gpu} is the GPU of rank {0}", owner.rank.0),
                None => format!("--ranks {} gives each GPU a rank", scope.topology.gpus.len()),
            };
            return Some(format!("rank {} has no gpu{gpu}: {way_out}", place.rank.0));
        }
    }
    let ends = [flow.src, flow.dst];
    let on_gpu = |p: &Place| p.unit.gpu().is_some();
    if wire.via == Transport::MpiStaged && !ends.iter().all(|p| p.mem == MemKind::Vram) {
        return Some("staged messages go from device memory to device memory".to_owned());
    }
    let host_only = scope.ranks.iter().find_map(|m| m.host_only.get(&wire.via));
    if let Some(why) = host_only.filter(|_| ends.iter().any(on_gpu)) {
        return Some(format!("this {} takes host memory only: {why}", wire.via));
    }
    let setting = scope.topology.gpu_env(|caps| caps.copy_engine_env);
    if wire.agent.is_some() && setting.is_none() {
        return Some("the runtime of these GPUs has no setting for what copies".to_owned());
    }
    if needs_driver(flow)
        && let Some(why) = scope.without_runtime
    {
        return Some(format!("no GPU runtime: {why}; `pathline doctor` shows what is missing"));
    }
    None
}
