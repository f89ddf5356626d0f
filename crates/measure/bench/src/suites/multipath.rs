//! Copies over several paths at once, each next to the plain copy that it replaces.

use pathline_flow::{Network, PlanRequest, plan_paths};
use pathline_schema::{
    Bytes, Case, CopyAgent, Flow, GpuSet, MemKind, Mover, MultipathSpec, Place, Topology, Unit,
};

use super::{dma, gpu, home, numa, pairs_of_each_class};

/// Payloads: about the least for which several paths gain, up to one of which the start is nothing.
const SIZES: [Bytes; 4] = [Bytes::mib(16), Bytes::mib(64), Bytes::mib(256), Bytes::gib(1)];

/// Numbers of relays between host memory and a GPU; all others besides.
const RELAYS: [usize; 3] = [1, 2, 3];

/// Between the host and the first GPU over 1, 2, 3 and all relays; a pair of each class of GPU pairs over the
/// relays that the links suggest; the same bytes to 2, 4 and all GPUs.
pub(super) fn multipath(topology: &Topology) -> Vec<Case> {
    let gpus: Vec<u32> =
        topology.gpus.iter().map(|g| g.index).filter(|&g| g < GpuSet::CAPACITY).collect();
    let Some((&first, others)) = gpus.split_first() else { return Vec::new() };
    // On a machine of one GPU these name a second one, so that the plan states that it is missing.
    let missing = [first + 1];
    let others = if others.is_empty() { missing.as_slice() } else { others };
    let (host, vram) = (numa(home(topology, first), MemKind::Pinned), gpu(first, MemKind::Vram));
    let mut cases = Vec::new();
    for bytes in SIZES {
        cases.extend(over_relays(topology, (host, vram), others, bytes));
        cases.extend(over_relays(topology, (vram, host), others, bytes));
    }
    for (a, b) in pairs_of_each_class(topology) {
        cases.extend(between(topology, a, b));
    }
    for bytes in SIZES {
        cases.extend(to_all(topology, (host, first), others, bytes));
    }
    cases
}

/// A chunk of which each path takes several.
fn chunk(bytes: Bytes) -> Bytes {
    if bytes < Bytes::mib(64) { Bytes::mib(1) } else { Bytes::mib(4) }
}

/// What carries the legs: copy engines, and copy kernels where the runtime has them.
fn agents(topology: &Topology) -> &'static [CopyAgent] {
    if topology.any_gpu(|caps| caps.copy_kernel) {
        &[CopyAgent::Engine, CopyAgent::Kernel]
    } else {
        &[CopyAgent::Engine]
    }
}

fn relayed(src: Place, dst: Place, gpus: GpuSet, agent: CopyAgent, bytes: Bytes) -> Case {
    let at = if dst.unit.gpu().is_some() { dst.unit } else { src.unit };
    let paths = MultipathSpec { gpus, chunk: chunk(bytes), agent, shares: None };
    Case::single(src, dst, Mover::Relay { at, paths }, bytes)
}

/// Between host memory and a GPU: plain, and over the first relays.
fn over_relays(
    topology: &Topology,
    (src, dst): (Place, Place),
    others: &[u32],
    bytes: Bytes,
) -> Vec<Case> {
    let at = dst.unit.gpu().or(src.unit.gpu()).unwrap_or_default();
    let mut cases = vec![Case::single(src, dst, dma(at), bytes)];
    let mut counts = RELAYS.to_vec();
    counts.push(others.len());
    counts.retain(|&count| count <= others.len());
    counts.dedup();
    for &agent in agents(topology) {
        let first = |&count: &usize| others.iter().take(count).copied().collect();
        let over = |count| relayed(src, dst, first(count), agent, bytes);
        cases.extend(counts.iter().map(over));
    }
    cases
}

/// Between two GPUs over the relays by which the peaks of links promise a gain; none where one copy fills all links
/// of an end.
fn between(topology: &Topology, a: u32, b: u32) -> Vec<Case> {
    let (src, dst) = (gpu(a, MemKind::Vram), gpu(b, MemKind::Vram));
    let helpers = topology.gpus.iter().map(|g| g.index).collect();
    let network = Network::from_topology(topology);
    let mut cases = Vec::new();
    for bytes in SIZES {
        let request = PlanRequest::between(src, dst, bytes, helpers);
        let plan = plan_paths(&network, &request);
        let relays = plan.ok().and_then(|plan| plan.flow.by.paths().map(|paths| paths.gpus));
        let Some(relays) = relays else { continue };
        // Both of what carries the runtime's copies, and both over relays.
        cases.push(Case::single(src, dst, dma(b), bytes));
        for &agent in agents(topology) {
            if agent == CopyAgent::Kernel {
                cases.push(Case::single(src, dst, super::blit(b), bytes));
            }
            cases.push(relayed(src, dst, relays, agent, bytes));
        }
    }
    cases
}

/// The same bytes to 2, 4 and all GPUs: each loads all, and by a copy to all.
fn to_all(
    topology: &Topology,
    (host, first): (Place, u32),
    others: &[u32],
    bytes: Bytes,
) -> Vec<Case> {
    let mut counts = vec![1, 3, others.len()];
    counts.retain(|&count| count <= others.len());
    counts.sort_unstable();
    counts.dedup();
    let mut cases = Vec::new();
    for count in counts {
        let members: Vec<u32> = others.iter().take(count).copied().collect();
        let load = |gpu_index: u32| Flow {
            src: host,
            dst: gpu(gpu_index, MemKind::Vram),
            by: dma(gpu_index),
            bytes,
        };
        let all = std::iter::once(first).chain(members.iter().copied());
        cases.push(Case::together(all.map(load).collect()));
        let gpus: GpuSet = members.into_iter().collect();
        for &agent in agents(topology) {
            let paths = MultipathSpec { gpus, chunk: chunk(bytes), agent, shares: None };
            let by = Mover::CopyToAll { at: Unit::Gpu(first), paths };
            cases.push(Case::single(host, gpu(first, MemKind::Vram), by, bytes));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::MachineDesc;

    fn cases(preset: &str) -> Vec<Case> {
        multipath(&MachineDesc::preset(preset).unwrap().topology())
    }

    fn of_gib(cases: &[Case]) -> usize {
        cases.iter().filter(|case| case.timed[0].bytes == Bytes::gib(1)).count()
    }

    /// Behind NVLink switches: into and out of a GPU plain and over 1, 2, 3, 7 relays; no pairs; 2, 4, 8 GPUs plain
    /// and by copy to all. On MI250X each case also by copy kernel, and a pair of each of its 5 classes: plain and
    /// relayed by both.
    #[test]
    fn cases_of_eight_gpus() {
        let switched = cases("hgx-h200");
        assert_eq!(switched.len(), SIZES.len() * (2 * 5 + 3 * 2));
        let mesh = cases("mi300x");
        assert_eq!(of_gib(&mesh), 2 * (1 + 2 * 4) + 4 + 3 * (1 + 2));
        let six = mesh.iter().filter_map(|case| {
            let flow = case.timed[0];
            let between = flow.src.unit.gpu().is_some() && flow.dst.unit.gpu().is_some();
            flow.by.paths().filter(|_| between).map(|paths| paths.gpus.len())
        });
        assert!(six.clone().count() > 0 && six.into_iter().all(|relays| relays == 6));
        let packages = cases("mi250x");
        assert!(packages.iter().all(|case| case.timed.iter().all(|flow| flow.misfit().is_none())));
        assert!(of_gib(&packages) > of_gib(&switched));
    }

    #[test]
    fn one_gpu_names_the_one_that_is_missing() {
        let mut topology = MachineDesc::preset("hgx-h200").unwrap().topology();
        topology.gpus.truncate(1);
        let cases = multipath(&topology);
        let relay = cases.iter().filter_map(|case| case.timed[0].by.paths());
        assert!(relay.clone().count() > 0);
        assert!(relay.into_iter().all(|paths| paths.gpus.to_string() == "gpu1"));
    }
}
