//! Description of a rank: its host, its GPUs, its CPUs.

use std::collections::BTreeMap;

use pathline_schema::{GpuIdentity, Rank, RankMember, Topology};

use crate::env::hostname;

/// This process as rank `local` of the `locals` on its node: its share of the GPUs, and their NUMA domain.
pub(crate) fn describe(rank: u32, (local, locals): (u32, u32), topology: &Topology) -> RankMember {
    let (gpus, numa) = share_of(topology, local, locals);
    let first = gpus.first().and_then(|first| topology.gpus.iter().find(|g| g.index == *first));
    let gpu = first.map(|gpu| {
        let name = if gpu.name.is_empty() { &gpu.arch } else { &gpu.name };
        format!("{name} of {}, {} on its host", gpu.memory.rounded(), topology.gpus.len())
    });
    let identities: Option<Vec<GpuIdentity>> =
        gpus.iter().map(|gpu| topology.gpu_identity(*gpu)).collect();
    RankMember {
        rank: Rank(rank),
        gpu_identities: identities.unwrap_or_default(),
        host: hostname(),
        node: 0,
        pid: std::process::id(),
        gpus,
        numa,
        cpus: topology.host.allowed_cpus.to_string(),
        ways: BTreeMap::new(),
        without: BTreeMap::new(),
        gpu,
        host_only: BTreeMap::new(),
        device_memory: BTreeMap::new(),
    }
}

/// GPUs and NUMA domain of one of a node's ranks: a GPU each in turn, and all if it is the only one.
pub(crate) fn share_of(topology: &Topology, local: u32, locals: u32) -> (Vec<u32>, u32) {
    let all: Vec<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let gpus = match (locals, all.len()) {
        (0 | 1, _) | (_, 0) => all,
        (_, count) => vec![all[local as usize % count]],
    };
    let first = gpus.first().and_then(|first| topology.gpus.iter().find(|g| g.index == *first));
    let domains: Vec<u32> =
        topology.numa.iter().filter(|d| !d.cpus.is_empty()).map(|d| d.id).collect();
    let spread = domains.get(local as usize % domains.len().max(1)).copied();
    (gpus, first.and_then(|gpu| gpu.numa).or(spread).unwrap_or(0))
}
