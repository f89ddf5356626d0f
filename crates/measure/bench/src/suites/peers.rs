//! MPI between GPUs next to the direct copies of the same pairs, by each agent that copies.

use pathline_schema::{
    Bytes, Case, CopyAgent, Flow, KernelOp, MemKind, MessageOp, Mover, Place, RankMember,
    Transport, Unit, WireOp,
};

use super::rank_flows::have_transport;
use super::{blit, dma, kernel};
use crate::scope::PlanScope;

/// osu_latency's message.
const SMALL: Bytes = Bytes(8);
/// Sizes of osu_bw: that of AMD's tables, and that of the KTH figures.
const LARGE: [Bytes; 2] = [Bytes::mib(16), Bytes::gib(1)];
/// Smaller messages, since an agent that is faster for large ones is slower for small ones.
const SMALLER: [Bytes; 2] = [Bytes::kib(64), Bytes::mib(1)];

/// In a model by default. On hardware windows of 64 x 1 GiB take 0.4 to 1.9 s each, so a run of
/// 7 peers by 2 agents takes minutes and has to be named.
pub(super) fn by_default(scope: &PlanScope<'_>) -> bool {
    scope.simulated && scope.ranks.len() >= 2 && have_transport(scope, Transport::Mpi)
}

/// osu_latency and osu_bw (window 64) from the first GPU, or from all of them, to every other GPU of
/// its node, once for each agent that the runtime can be started with, and the direct copies of the
/// same pairs and sizes: by copy engine, by copy kernel, and by a kernel that reads from the peer.
pub(super) fn mpi_peers(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (a, b) in pairs(scope) {
        let Some(((from, src), (to, dst))) = end(a).zip(end(b)) else { continue };
        for agent in agents(scope) {
            let message = |op, bytes| {
                let wire = MessageOp { agent, ..MessageOp::new(Transport::Mpi, op) };
                lone(Flow { src, dst, by: Mover::Wire { at: src.unit, wire }, bytes })
            };
            cases.push((agent, 0, message(WireOp::Ping, SMALL)));
            for (nth, bytes) in (1..).zip(LARGE.into_iter().chain(SMALLER)) {
                let window = WireOp::Send { window: crate::message_grid::OSU_WINDOW };
                cases.push((agent, nth, message(window, bytes)));
            }
        }
        // Direct copies are the first rank's, which sees all GPUs of its node.
        if a.node != 0 {
            continue;
        }
        let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        for (nth, bytes) in (1..).zip(LARGE) {
            let copy = |by| lone(Flow { src: place(from), dst: place(to), by, bytes });
            cases.push((Some(CopyAgent::Engine), nth, copy(dma(from))));
            if scope.topology.any_gpu(|caps| caps.copy_kernel) {
                cases.push((Some(CopyAgent::Kernel), nth, copy(blit(from))));
            }
            cases.push((None, nth, copy(kernel(to, KernelOp::Copy))));
        }
    }
    // By agent and size, so that pairs are sampled in turn and a process serves all of an agent.
    cases.sort_by_key(|(agent, nth, _)| (*agent, *nth));
    cases.into_iter().map(|(.., case)| case).collect()
}

fn lone(flow: Flow) -> Case {
    Case::together(vec![flow])
}

/// The GPU of a process, and its memory.
fn end(member: &RankMember) -> Option<(u32, Place)> {
    Some((*member.gpus.first()?, member.gpu_memory(MemKind::Vram)?))
}

/// Ordered pairs of processes of one node: of the first process, or of all.
fn pairs<'a>(scope: &PlanScope<'a>) -> Vec<(&'a RankMember, &'a RankMember)> {
    let sources = if scope.all_pairs { scope.ranks.len() } else { 1 };
    let all = scope.ranks.iter().take(sources);
    let all = all.flat_map(|a| scope.ranks.iter().map(move |b| (a, b)));
    all.filter(|(a, b)| a.node == b.node && a.rank != b.rank).collect()
}

/// What the runtime can be started with; none to choose where it has no such setting.
fn agents(scope: &PlanScope<'_>) -> Vec<Option<CopyAgent>> {
    match scope.topology.gpu_env(|caps| caps.copy_engine_env) {
        Some(_) => CopyAgent::ALL.iter().copied().map(Some).collect(),
        None => vec![None],
    }
}
