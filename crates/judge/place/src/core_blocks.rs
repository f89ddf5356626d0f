//! Cores of a node, grouped by the last cache that they share.

use pathline_schema::{CacheGroup, CpuSet, Topology};

/// Cores behind one last-level cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoreBlock {
    /// The NUMA domain of its cores.
    pub(crate) numa: Option<u32>,
    /// Hardware threads of each core, in order of the first one.
    pub(crate) cores: Vec<CpuSet>,
}

/// The blocks of a node, in the order of their first CPU, without CPUs that this process may not use.
/// `skip_first` leaves out the first core of each, which some centres reserve for the system.
pub(crate) fn core_blocks(topology: &Topology, skip_first: bool) -> Vec<CoreBlock> {
    let host = &topology.host;
    let all = topology.numa.iter().fold(host.cpus.clone(), |all, d| all.union(&d.cpus));
    let usable = if host.allowed_cpus.is_empty() { all } else { all.intersect(&host.allowed_cpus) };
    let last = topology.caches.iter().map(|c| c.level).max().filter(|level| *level >= 2);
    let caches =
        topology.caches.iter().filter(|c| Some(c.level) == last && c.kind != "Instruction");
    let mut groups: Vec<CpuSet> = caches.map(|cache| cache.cpus.clone()).collect();
    // Domains without a known cache, and CPUs of no domain.
    groups.extend(topology.numa.iter().map(|domain| domain.cpus.clone()));
    groups.push(usable.clone());
    let mut free = usable;
    let mut blocks = Vec::new();
    for group in groups {
        let mine = group.intersect(&free);
        free = without(&free, &mine);
        let mut cores = cores_of(&topology.caches, &group);
        if skip_first && cores.len() > 1 {
            cores.remove(0);
        }
        let cores: Vec<CpuSet> = cores
            .iter()
            .map(|core| core.intersect(&mine))
            .filter(|core| !core.is_empty())
            .collect();
        let first = cores.first().and_then(|core| core.as_slice().first().copied());
        let Some(first) = first else { continue };
        let numa = topology.numa.iter().find(|domain| domain.cpus.contains(first)).map(|d| d.id);
        blocks.push(CoreBlock { numa, cores });
    }
    blocks.sort_by_key(|block| block.cores[0].as_slice()[0]);
    blocks
}

/// CPUs of a group by core. A core is the CPUs that share a first-level cache.
fn cores_of(caches: &[CacheGroup], group: &CpuSet) -> Vec<CpuSet> {
    let first_level = caches.iter().filter(|c| c.level == 1 && c.kind != "Instruction");
    let mut free = group.clone();
    let mut cores = Vec::new();
    for cache in first_level {
        let core = cache.cpus.intersect(&free);
        free = without(&free, &core);
        if !core.is_empty() {
            cores.push(core);
        }
    }
    cores.extend(free.as_slice().iter().map(|cpu| CpuSet::new([*cpu])));
    cores.sort_by_key(|core| core.as_slice()[0]);
    cores
}

fn without(from: &CpuSet, taken: &CpuSet) -> CpuSet {
    CpuSet::new(from.as_slice().iter().copied().filter(|cpu| !taken.contains(*cpu)))
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Bytes, NumaDomain};

    use super::*;

    fn cache(level: u32, cpus: &str) -> CacheGroup {
        CacheGroup {
            level,
            kind: "Unified".to_owned(),
            size: Bytes::mib(32),
            line: 64,
            cpus: cpus.parse().unwrap(),
        }
    }

    /// Two caches of four cores with two hardware threads each: threads 0 to 7 and 8 to 15. This process
    /// may not use CPU 8, and the first core of each block is left out on request.
    #[test]
    fn blocks_are_last_level_caches_and_cores_have_threads() {
        let mut topology = Topology::default();
        topology.host.cpus = "0-15".parse().unwrap();
        topology.host.allowed_cpus = "0-7,9-15".parse().unwrap();
        topology.numa =
            vec![NumaDomain { id: 4, cpus: "0-15".parse().unwrap(), ..NumaDomain::default() }];
        topology.caches = vec![cache(3, "0-3,8-11"), cache(3, "4-7,12-15")];
        topology.caches.extend((0..8).map(|core| cache(1, &format!("{core},{}", core + 8))));
        let text = |skip| {
            let blocks = core_blocks(&topology, skip);
            let cores = |b: &CoreBlock| b.cores.iter().map(CpuSet::to_string).collect::<Vec<_>>();
            assert!(blocks.iter().all(|block| block.numa == Some(4)));
            blocks.iter().map(cores).collect::<Vec<_>>()
        };
        assert_eq!(text(false), [["0", "1,9", "2,10", "3,11"], ["4,12", "5,13", "6,14", "7,15"]]);
        assert_eq!(text(true), [vec!["1,9", "2,10", "3,11"], vec!["5,13", "6,14", "7,15"]]);
    }

    /// Without caches a domain is a block; without domains all CPUs are.
    #[test]
    fn unknown_caches_leave_domains() {
        let mut topology = Topology::default();
        assert!(core_blocks(&topology, false).is_empty());
        topology.host.cpus = "0-3".parse().unwrap();
        assert_eq!(core_blocks(&topology, false).len(), 1);
        let domain = |id: u32, cpus: &str| NumaDomain {
            id,
            cpus: cpus.parse().unwrap(),
            ..NumaDomain::default()
        };
        topology.numa = vec![domain(0, "0-1"), domain(1, "2-3")];
        let blocks = core_blocks(&topology, false);
        assert_eq!(blocks.iter().map(|b| b.numa).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(blocks[1].cores.len(), 2);
    }
}
