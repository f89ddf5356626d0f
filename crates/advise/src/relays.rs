//! Relays as a choice for a copy: which GPUs, by the peaks of the links that the topology shows.

use pathline_flow::{MultipathPlan, Network, PlanRequest, plan_paths};
use pathline_schema::{
    Bytes, CopyAgent, Flow, GpuCaps, MemKind, Mover, MultipathSpec, Place, Topology, Unit,
};

/// Least payload for which relays are asked about: with less, a copy ends before a relay delivers much.
const LEAST: Bytes = Bytes::mib(16);

/// A chunk of which each path takes several of the least payload.
const CHUNK: Bytes = Bytes::mib(2);

/// The same bytes over relays, from or to pinned memory; none if the links promise no gain. Trials decide whether
/// there is one.
pub(crate) fn over_relays(topology: &Topology, flow: &Flow, caps: &GpuCaps) -> Option<Flow> {
    if flow.bytes < LEAST {
        return None;
    }
    let pinned = |place: Place| match place.unit {
        Unit::Numa(_) => Place { mem: MemKind::Pinned, ..place },
        _ => place,
    };
    let (src, dst) = (pinned(flow.src), pinned(flow.dst));
    let helpers = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let request = PlanRequest::between(src, dst, flow.bytes, helpers);
    let plan: MultipathPlan = plan_paths(&Network::from_topology(topology), &request).ok()?;
    let gpus = plan.flow.by.paths()?.gpus;
    let between_gpus = src.unit.gpu().is_some() && dst.unit.gpu().is_some();
    // Between GPUs a kernel gets more of a link than an engine of AMD's does.
    let agent =
        if between_gpus && caps.copy_kernel { CopyAgent::Kernel } else { CopyAgent::Engine };
    let paths = MultipathSpec { gpus, chunk: CHUNK, agent, shares: None };
    Some(Flow { src, dst, by: Mover::Relay { at: plan.flow.by.at(), paths }, bytes: flow.bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Gpu, Link, LinkEnd, LinkKind, Rate};

    #[test]
    fn a_mesh_has_relays_and_small_copies_have_none() {
        let gpu = |index| Gpu { index, vendor: "amd".into(), ..Gpu::default() };
        let mut topology = Topology { gpus: (0..4).map(gpu).collect(), ..Topology::default() };
        for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            topology.links.push(Link {
                a: LinkEnd::Gpu(a),
                b: LinkEnd::Gpu(b),
                kind: LinkKind::Xgmi,
                width: 1,
                peak: Some(Rate(50.0)),
            });
        }
        let caps = GpuCaps::of_vendor("amd");
        let copy = |bytes| {
            let flow = format!("gpu0.vram > gpu1.vram by dma@gpu0 x {bytes}");
            over_relays(&topology, &flow.parse().unwrap(), caps).map(|flow| flow.to_string())
        };
        let wanted = "r0.gpu0.vram > r0.gpu1.vram by relay@gpu1[gpu2+gpu3,2MiB,blit] x 64MiB";
        assert_eq!(copy("64MiB").as_deref(), Some(wanted));
        assert_eq!(copy("1MiB"), None);
    }
}
