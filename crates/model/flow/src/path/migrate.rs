//! Migration of managed pages.

use pathline_schema::{Flow, MemKind, MigrateHow, Unit};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, no};
use crate::graph::NodeGraph;
use crate::model::MigrationModel;
use crate::operation::{BuiltPath, NoPath};

/// The path of migrating pages.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    how: MigrateHow,
) -> Result<BuiltPath, NoPath> {
    let (src, dst) = (flow.src, flow.dst);
    if src.mem != MemKind::Managed || dst.mem != MemKind::Managed {
        return no("only managed memory migrates");
    }
    if src.unit == dst.unit || dst.unit != at {
        return no(format!("expected pages that go to {at} from another unit"));
    }
    let mover = if at.gpu().is_some() { at } else { src.unit };
    let Ok((g, gpu)) = gpu_at(net, mover) else {
        return no("pages migrate between a GPU and another unit");
    };
    if how == MigrateHow::Fault
        && gpu.caps.page_fault_env.is_some()
        && net.switches.xnack == Some(false)
    {
        return no("with HSA_XNACK=0 no page fault can be served; unset it or set it to 1");
    }
    let model = &net.model.migration;
    let between_gpus = src.unit.gpu().is_some() && dst.unit.gpu().is_some();
    let mut path = PathBuilder::new(net, flow);
    let time = &net.model.time;
    if how == MigrateHow::Fault && between_gpus && model.peers_in_place {
        path.leg(g, src.unit, LegSide::In, LegMover::Read, 1.0, 1.0)?;
        path.memories(None);
        let start_us = time.kernel_start.peer_us.unwrap_or(time.kernel_us);
        return path.finish("loads in place", start_us, time.launch_call_us, false, 0.0);
    }
    path.leg(g, src.unit, LegSide::In, LegMover::Engine, 1.0, 1.0)?;
    path.leg(g, dst.unit, LegSide::Out, LegMover::Engine, 1.0, 1.0)?;
    path.memories(None);
    let (start_us, name) = match how {
        MigrateHow::Fault => {
            cap_by_faults(&mut path, model, flow.bytes.as_f64());
            let of_peers = if between_gpus { model.peer_start_us } else { model.start_us };
            (of_peers, "page faults")
        }
        MigrateHow::Prefetch => {
            let (start_us, step_us) = match () {
                () if between_gpus => (model.prefetch_peer_start_us, model.prefetch_peer_us),
                () if dst.unit.gpu().is_none() => {
                    (model.prefetch_out_start_us, model.prefetch_out_us)
                }
                () => (None, None),
            };
            let step_us = step_us.unwrap_or(model.prefetch_us);
            cap_by_steps(&mut path, "prefetch", model.prefetch_bytes as f64, step_us);
            (start_us.unwrap_or(model.prefetch_start_us), "prefetch")
        }
    };
    path.finish(name, time.kernel_us.max(start_us), time.launch_call_us, false, 0.0)
}

/// Each step moves `bytes` and costs `step_us` besides the transfer.
fn cap_by_steps(path: &mut PathBuilder<'_>, name: &str, bytes: f64, step_us: f64) {
    path.cap(bytes / (step_us * 1e3 + bytes / path.cap), &format!("{name} of {bytes} B"));
}

/// Page faults of one operation. Where the driver doubles what each fault brings, n times the first bytes take
/// log2(1 + n) rounds in the first stretch; pages behind it cost the same each.
fn cap_by_faults(path: &mut PathBuilder<'_>, model: &MigrationModel, bytes: f64) {
    let step = model.fault_bytes as f64;
    let Some((round_us, stretch)) = model.round_us.zip(model.round_bytes) else {
        cap_by_steps(path, "page faults", step, model.fault_us);
        return;
    };
    let first = bytes.min(stretch as f64);
    let rounds = (first / step).ln_1p() / std::f64::consts::LN_2;
    let later = (bytes - first) / step * model.fault_us;
    let time_ns = (rounds * round_us + later) * 1e3 + bytes / path.cap;
    path.cap(bytes / time_ns, "page faults");
}
