//! Copies over several paths as a choice: which GPUs, by the peaks of the links that the topology shows.

use pathline_flow::{MultipathPlan, Network, PlanRequest, plan_paths};
use pathline_schema::{
    Bytes, CopyAgent, Flow, GpuCaps, GpuSet, MemKind, Mover, MultipathSpec, Place, Topology, Unit,
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

/// Chunk of copies to all: 8 to 32 MiB were alike on eight H200s.
const SHARED_CHUNK: Bytes = Bytes::mib(8);

/// Loads of several GPUs from one place at once as one copy of the same bytes to all; none if they are no such
/// loads, or the links promise no gain.
pub(crate) fn to_all(topology: &Topology, loads: &[Flow]) -> Option<Flow> {
    let (first, others) = loads.split_first()?;
    let is_load = |flow: &Flow| {
        matches!(flow.by, Mover::Dma { at } if at == flow.dst.unit && at.gpu().is_some())
            && flow.src.unit.numa().is_some()
            && flow.dst == Place { unit: flow.dst.unit, ..first.dst }
            && (flow.src, flow.bytes) == (first.src, first.bytes)
    };
    let gpus: GpuSet = others.iter().filter_map(|flow| flow.dst.unit.gpu()).collect();
    let is_one_each = gpus.len() as usize == others.len()
        && first.dst.unit.gpu().is_some_and(|gpu| !gpus.contains(gpu));
    if others.is_empty() || !is_one_each || !loads.iter().all(is_load) || first.bytes < LEAST {
        return None;
    }
    let src = Place { mem: MemKind::Pinned, ..first.src };
    let request = PlanRequest::to_all(src, first.dst, first.bytes, gpus);
    let plan = plan_paths(&Network::from_topology(topology), &request).ok()?;
    plan.flow.by.paths()?;
    let paths = MultipathSpec { gpus, chunk: SHARED_CHUNK, agent: CopyAgent::Engine, shares: None };
    Some(Flow { src, by: Mover::CopyToAll { at: first.dst.unit, paths }, ..*first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Gpu, Link, LinkEnd, LinkKind, NumaDomain, Rate};

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
        let copy = |bytes: &str| {
            let flow = format!("gpu0.vram > gpu1.vram by dma@gpu0 x {bytes}");
            over_relays(&topology, &flow.parse().unwrap(), caps).map(|flow| flow.to_string())
        };
        let wanted = "r0.gpu0.vram > r0.gpu1.vram by relay@gpu1[gpu2+gpu3,2MiB,blit] x 64MiB";
        assert_eq!(copy("64MiB").as_deref(), Some(wanted));
        assert_eq!(["1MiB", "16383KiB"].map(copy), [None, None]);
    }

    #[test]
    fn loads_of_the_same_bytes_are_one_copy_to_all() {
        let gpu = |index| Gpu { index, vendor: "nvidia".into(), ..Gpu::default() };
        let mut topology = Topology { gpus: (0..3).map(gpu).collect(), ..Topology::default() };
        topology.numa.push(NumaDomain { id: 0, peak: Some(Rate(300.0)), ..NumaDomain::default() });
        let mut link = |a, b, kind, gbs| {
            topology.links.push(Link { a, b, kind, width: 1, peak: Some(Rate(gbs)) });
        };
        for at in 0..3 {
            // Each takes a third over 50 GB/s from the host, and the rest over 400 from the others.
            link(LinkEnd::Numa(0), LinkEnd::Gpu(at), LinkKind::Pcie, 50.0);
            link(LinkEnd::Gpu(at), LinkEnd::Gpu((at + 1) % 3), LinkKind::Nvlink, 400.0);
        }
        let loads = |ends: &[(u32, &str)]| {
            let text = |(to, bytes): &(u32, &str)| {
                format!("numa0.paged > gpu{to}.vram by dma@gpu{to} x {bytes}").parse().unwrap()
            };
            to_all(&topology, &ends.iter().map(text).collect::<Vec<Flow>>()).map(|f| f.to_string())
        };
        let wanted = "r0.numa0.pinned > r0.gpu0.vram by copy-to-all@gpu0[gpu1+gpu2,8MiB] x 64MiB";
        let all = [(0, "64MiB"), (1, "64MiB"), (2, "64MiB")];
        assert_eq!(loads(&all).as_deref(), Some(wanted));
        // Other bytes, one GPU twice, one GPU, small ones.
        assert_eq!(loads(&[(0, "64MiB"), (1, "32MiB")]), None);
        assert_eq!(loads(&[(0, "64MiB"), (1, "64MiB"), (1, "64MiB")]), None);
        assert_eq!(loads(&all[..1]), None);
        assert_eq!(loads(&[(0, "1MiB"), (1, "1MiB")]), None);
    }
}
