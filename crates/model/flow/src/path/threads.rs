//! The path of copies between pageable memory and a GPU by threads and pinned buffers.

use pathline_schema::{COPY_BUFFER, CpuHow, CpuOp, CpuWork, Flow, Unit, copy_chunk};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, no};
use super::cpu::CpuTeam;
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, NoPath};

/// The copy of libpathline's threads.
const WORK: CpuWork = CpuWork { op: CpuOp::Copy, how: CpuHow::Memcpy };

/// Threads and copy engine work at the same time, each on one buffer: the slower one counts, and once the other.
/// Buffers are assumed to leave the caches before they are used again.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    threads: u32,
) -> Result<BuiltPath, NoPath> {
    let (g, gpu) = gpu_at(net, at)?;
    let team = CpuTeam::new(net, flow.cores(), WORK, threads)?;
    if !net.described {
        return no("what threads of this machine copy is not known");
    }
    let chunk = copy_chunk(flow.bytes, u64::from(threads), COPY_BUFFER).as_f64();
    // Bytes of one chunk of each thread.
    let round = (chunk * team.threads).min(flow.bytes.as_f64());
    let traffic = 1.0 + team.stored_traffic(1.0, team.streams(chunk));
    let mut path = PathBuilder::new(net, flow);
    // The engine passes the host's memory once more.
    path.leg(g, flow.src.unit, LegSide::In, LegMover::Engine, 1.0, 1.0 + traffic)?;
    path.leg(g, flow.dst.unit, LegSide::Out, LegMover::Engine, 1.0, 1.0 + traffic)?;
    path.memories(None);
    path.engine(g, gpu, false);
    let (time, cpu) = (&net.model.time, &net.model.cpu);
    let (carried, copied) = (path.cap, team.threads * cpu.core_gbs / traffic);
    let start_ns = (cpu.start_us + time.copy_call_us) * 1e3;
    let name = format!("memory traffic of {}", team.size());
    path.cap(round / (round / copied + start_ns), &name);
    let ends_us = round / copied.max(carried) / 1e3;
    path.finish("copy by threads", time.host_copy_us + ends_us, time.copy_call_us, true, 0.0)
}
