//! Chooses cores for processes that are to run near each other or far apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pathline_schema::{CoreDistance, CpuSet, Rank};

use pathline_host::{cpus, files};

/// A logical CPU as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CpuPlace {
    /// All CPUs of its core.
    core: CpuSet,
    /// All CPUs behind its last-level cache; `None` if the kernel does not report it.
    l3: Option<CpuSet>,
}

/// The processors of this host.
#[derive(Debug, Clone, Default)]
pub(super) struct HostCores {
    cpus: BTreeMap<u32, CpuPlace>,
    numa: BTreeMap<u32, CpuSet>,
}

/// Two processes, each with its NUMA domain, and their distance.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPair {
    pub(super) ends: [(Rank, u32); 2],
    pub(super) near: CoreDistance,
}

impl HostCores {
    /// Reads the processors under `/sys` or a test's folder.
    pub(super) fn read(sys: &Path, wanted: &CpuSet) -> Self {
        let set = |path: &Path| files::text(path)?.parse::<CpuSet>().ok();
        let mut cores = Self::default();
        for &cpu in wanted.as_slice() {
            let folder = sys.join(format!("devices/system/cpu/cpu{cpu}"));
            let core = set(&folder.join("topology/thread_siblings_list"));
            let l3 = (0..10).find_map(|index| {
                let cache = folder.join(format!("cache/index{index}"));
                let level = files::number(cache.join("level"))?;
                (level == 3).then(|| set(&cache.join("shared_cpu_list"))).flatten()
            });
            let core = core.unwrap_or_else(|| CpuSet::new([cpu]));
            cores.cpus.insert(cpu, CpuPlace { core, l3 });
        }
        let nodes = std::fs::read_dir(sys.join("devices/system/node")).into_iter().flatten();
        for node in nodes.flatten() {
            let name = node.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok());
            if let (Some(number), Some(cpus)) = (number, set(&node.path().join("cpulist"))) {
                cores.numa.insert(number, cpus);
            }
        }
        cores
    }

    /// A CPU for each process of the pairs: no two on one core, and each pair at its distance. Processes
    /// that are to be behind different caches spread over all of them, so that a ring of as many
    /// processes as there are last-level caches has one behind each.
    /// Cores of the CPUs `off` stay free for another flow, which is to share the last-level cache
    /// of pairs that share one. All processes with the same arguments get the same result.
    pub(super) fn choose(
        &self,
        pairs: &[ProcessPair],
        possible: &BTreeMap<Rank, CpuSet>,
        off: &CpuSet,
    ) -> Result<BTreeMap<Rank, u32>, String> {
        let mut chosen: BTreeMap<Rank, u32> = BTreeMap::new();
        for pair in pairs {
            if pair.ends.iter().all(|(rank, _)| chosen.contains_key(rank)) {
                let [a, b] = pair.ends.map(|(rank, _)| chosen[&rank]);
                if !self.fits(pair.near, a, b) {
                    return Err(self.none(pair, "other flows of the case need them elsewhere"));
                }
                continue;
            }
            let taken: BTreeSet<u32> = chosen.values().chain(off.as_slice()).copied().collect();
            let neighbours = |cpu: &u32| -> usize {
                let is_near = |other: &&u32| self.are_behind(*cpu, &CpuSet::new([**other]));
                chosen.values().filter(is_near).count()
            };
            let candidates = pair.ends.map(|(rank, numa)| match chosen.get(&rank) {
                Some(&cpu) => vec![cpu],
                None => {
                    let mut free = self.free(possible.get(&rank), numa, &taken);
                    if pair.near == CoreDistance::OtherL3 {
                        free.sort_by_key(neighbours);
                    }
                    free
                }
            });
            let [first, second] = &candidates;
            let found = first.iter().find_map(|&a| {
                let b = second.iter().find(|&&b| {
                    self.fits(pair.near, a, b)
                        && (pair.near == CoreDistance::OtherL3 || self.are_behind(a, off))
                })?;
                Some([a, *b])
            });
            let Some(found) = found else {
                let [a, b] = candidates.map(|c| CpuSet::new(c).to_string());
                let in_use = if off.is_empty() {
                    String::new()
                } else {
                    format!(" next to CPU {off}, which another flow of the case uses")
                };
                let why = format!("the one could have CPUs {a}, the other {b}{in_use}");
                return Err(self.none(pair, &why));
            };
            chosen.extend(pair.ends.iter().map(|(rank, _)| *rank).zip(found));
        }
        Ok(chosen)
    }

    fn none(&self, pair: &ProcessPair, why: &str) -> String {
        if self.cpus.values().all(|cpu| cpu.l3.is_none()) {
            return "the kernel does not report which CPUs share a last-level cache".into();
        }
        let [(a, _), (b, _)] = pair.ends;
        let apart = match pair.near {
            CoreDistance::SameL3 => "behind one last-level cache",
            CoreDistance::OtherL3 => "behind different last-level caches",
        };
        format!("no two free cores {apart} for ranks {} and {}: {why}", a.0, b.0)
    }

    /// One CPU of each free core of a domain.
    fn free(&self, possible: Option<&CpuSet>, numa: u32, taken: &BTreeSet<u32>) -> Vec<u32> {
        let of_domain = |cpu: u32| self.numa.get(&numa).is_none_or(|cpus| cpus.contains(cpu));
        let mut cores: BTreeSet<&[u32]> = BTreeSet::new();
        let mut free = Vec::new();
        for &cpu in possible.map_or(&[][..], CpuSet::as_slice) {
            let Some(about) = self.cpus.get(&cpu) else { continue };
            let used = about.core.as_slice().iter().any(|sibling| taken.contains(sibling));
            if of_domain(cpu) && !used && cores.insert(about.core.as_slice()) {
                free.push(cpu);
            }
        }
        free
    }

    /// Whether these CPUs are behind the same last-level cache as `cpu`.
    fn are_behind(&self, cpu: u32, others: &CpuSet) -> bool {
        let l3 = self.cpus.get(&cpu).and_then(|about| about.l3.as_ref());
        others.as_slice().iter().all(|&other| l3.is_some_and(|l3| l3.contains(other)))
    }

    fn fits(&self, near: CoreDistance, a: u32, b: u32) -> bool {
        let (Some(first), Some(second)) = (self.cpus.get(&a), self.cpus.get(&b)) else {
            return false;
        };
        let Some(l3) = &first.l3 else { return false };
        let same = l3.contains(b);
        first.core != second.core && second.l3.is_some() && same == (near == CoreDistance::SameL3)
    }
}

/// CPUs that a thread of this process can be pinned to: more than its current affinity mask, if its
/// launcher has bound it; fewer than the host has, if its container is smaller.
pub(super) fn possible() -> CpuSet {
    // In another thread, so that this one keeps its affinity mask.
    let asked = std::thread::spawn(|| {
        let bound = cpus::allowed();
        match cpus::restrict(&CpuSet::new(0..8192)) {
            Ok(()) => cpus::allowed(),
            Err(_) => bound,
        }
    });
    asked.join().ok().and_then(Result::ok).unwrap_or_default()
}

/// Pins this thread to chosen CPUs while it lives; dropping it restores the previous mask.
pub(super) struct PinnedThread {
    before: CpuSet,
}

impl PinnedThread {
    pub(super) fn to(cpu: u32) -> std::io::Result<Self> {
        Self::within(&CpuSet::new([cpu]))
    }

    /// Pins this thread to these CPUs.
    fn within(cpus: &CpuSet) -> std::io::Result<Self> {
        let before = cpus::allowed()?;
        cpus::restrict(cpus)?;
        Ok(Self { before })
    }

    /// Pins this thread to the possible CPUs of a NUMA domain, so that new pages come from that
    /// domain. `None` where that fails; pages then come from the current domain.
    pub(super) fn at(sys: &Path, numa: u32, possible: &CpuSet) -> Option<Self> {
        let list = files::text(sys.join(format!("devices/system/node/node{numa}/cpulist")))?;
        let domain = list.parse::<CpuSet>().ok()?.intersect(possible);
        if domain.is_empty() { None } else { Self::within(&domain).ok() }
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // Restoring the mask fails only if something else has forbidden those CPUs since.
        let _ = cpus::restrict(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    /// Two domains of two L3s of two cores of two threads: CPUs 0-7, siblings 8-15.
    fn machine(sys: &Path) -> HostCores {
        for cpu in 0..16_u32 {
            let core = cpu % 8;
            let folder = sys.join(format!("devices/system/cpu/cpu{cpu}"));
            let l3 = core / 2 * 2;
            for (file, text) in [
                ("topology/thread_siblings_list", format!("{core},{}\n", core + 8)),
                ("cache/index0/level", "1\n".into()),
                ("cache/index3/level", "3\n".into()),
                (
                    "cache/index3/shared_cpu_list",
                    format!("{l3}-{},{}-{}\n", l3 + 1, l3 + 8, l3 + 9),
                ),
            ] {
                let path = folder.join(file);
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                std::fs::write(path, text).expect("written");
            }
        }
        for (node, cpus) in [(0, "0-3,8-11"), (1, "4-7,12-15")] {
            let folder = sys.join(format!("devices/system/node/node{node}"));
            std::fs::create_dir_all(&folder).expect("made");
            std::fs::write(folder.join("cpulist"), cpus).expect("written");
        }
        HostCores::read(sys, &CpuSet::new(0..16))
    }

    fn pair(a: (u32, u32), b: (u32, u32), near: CoreDistance) -> ProcessPair {
        ProcessPair { ends: [a, b].map(|(rank, numa)| (Rank(rank), numa)), near }
    }

    #[test]
    fn pairs_share_neither_cores_nor_siblings() {
        let folder = tempfile::tempdir().unwrap();
        let cores = machine(folder.path());
        let all: BTreeMap<Rank, CpuSet> = (0..6).map(|r| (Rank(r), set("0-15"))).collect();
        let choose = |pairs: &[ProcessPair]| {
            let chosen = cores.choose(pairs, &all, &CpuSet::default())?;
            Ok::<_, String>(chosen.into_values().collect::<Vec<_>>())
        };
        let (same, other) = (CoreDistance::SameL3, CoreDistance::OtherL3);
        // Cores 0+1 share an L3, as do 2+3.
        assert_eq!(choose(&[pair((0, 0), (1, 0), same)]), Ok(vec![0, 1]));
        assert_eq!(choose(&[pair((0, 0), (1, 0), other)]), Ok(vec![0, 2]));
        assert_eq!(choose(&[pair((0, 0), (1, 1), other)]), Ok(vec![0, 4]));
        let two = [pair((0, 0), (1, 0), same), pair((2, 0), (3, 0), same)];
        assert_eq!(choose(&two), Ok(vec![0, 1, 2, 3]));
        // Both directions: each rank keeps its core.
        let back = [pair((0, 0), (1, 0), other), pair((1, 0), (0, 0), other)];
        assert_eq!(choose(&back), Ok(vec![0, 2]));
        // Domain 0 has four cores, and six ranks want one.
        let three = [two[0], two[1], pair((4, 0), (5, 0), same)];
        let why = choose(&three).unwrap_err();
        assert!(why.contains("ranks 4 and 5"), "{why}");
        // No L3 spans two domains.
        let why = choose(&[pair((0, 0), (1, 1), same)]).unwrap_err();
        assert!(why.contains("no two free cores behind one"), "{why}");
        let why = choose(&[back[0], pair((1, 0), (0, 0), same)]).unwrap_err();
        assert!(why.contains("other flows"), "{why}");
    }

    /// One domain with all four L3s: cores 0+1, 2+3, 4+5, 6+7.
    #[test]
    fn a_ring_has_a_process_behind_each_cache() {
        let folder = tempfile::tempdir().unwrap();
        let mut cores = machine(folder.path());
        cores.numa = BTreeMap::from([(0, set("0-15"))]);
        let all: BTreeMap<Rank, CpuSet> = (0..4).map(|r| (Rank(r), set("0-15"))).collect();
        let other = CoreDistance::OtherL3;
        let ring: Vec<ProcessPair> =
            (0..4).map(|r| pair((r, 0), ((r + 1) % 4, 0), other)).collect();
        let chosen = |pairs: &[ProcessPair]| {
            cores.choose(pairs, &all, &CpuSet::default()).unwrap().into_values().collect::<Vec<_>>()
        };
        assert_eq!(chosen(&ring), [0, 2, 4, 6]);
        // Two pairs take four caches, not two.
        assert_eq!(chosen(&[ring[0], ring[2]]), [0, 2, 4, 6]);
    }

    #[test]
    fn pairs_leave_cores_to_other_flows_behind_the_same_cache() {
        let folder = tempfile::tempdir().unwrap();
        // One L3 of cores 0+1 and one of 2+3 in domain 0; siblings are 8 further on.
        let mut cores = machine(folder.path());
        let all: BTreeMap<Rank, CpuSet> = (0..2).map(|r| (Rank(r), set("0-15"))).collect();
        let near = [pair((0, 0), (1, 0), CoreDistance::SameL3)];
        // One core is left behind the cache of CPU 0, and no flow uses the other cache.
        let why = cores.choose(&near, &all, &set("0")).unwrap_err();
        assert!(why.contains("next to CPU 0"), "{why}");
        // Four cores behind one L3: the sibling of CPU 8 is excluded with it; 1 and 2 come next.
        for cpu in [0_u32, 1, 2, 3, 8, 9, 10, 11] {
            cores.cpus.get_mut(&cpu).unwrap().l3 = Some(set("0-3,8-11"));
        }
        let chosen = cores.choose(&near, &all, &set("8")).unwrap();
        assert_eq!(chosen.into_values().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn only_cpus_that_a_rank_may_have_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let cores = machine(folder.path());
        // Rank 0 can have only 1 and its sibling; 9 is no other core.
        let possible = BTreeMap::from([(Rank(0), set("1,9")), (Rank(1), set("0-3,8-11"))]);
        let near = [pair((0, 0), (1, 0), CoreDistance::SameL3)];
        let chosen = cores.choose(&near, &possible, &CpuSet::default()).unwrap();
        assert_eq!(chosen, BTreeMap::from([(Rank(0), 1), (Rank(1), 0)]));
        let why = HostCores::default().choose(&near, &possible, &CpuSet::default()).unwrap_err();
        assert!(why.contains("does not report"), "{why}");
    }

    #[test]
    fn a_pinned_thread_gets_its_mask_back() {
        let before = cpus::allowed().unwrap();
        assert!(possible().len() >= before.len());
        let last = *before.as_slice().last().unwrap();
        let pinned = PinnedThread::to(last).unwrap();
        assert_eq!(cpus::allowed().unwrap(), CpuSet::new([last]));
        drop(pinned);
        assert_eq!(cpus::allowed().unwrap(), before);
        // A domain whose list names the last CPU and one that this process cannot have.
        let folder = tempfile::tempdir().unwrap();
        let node = folder.path().join("devices/system/node/node3");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), format!("{last},60000\n")).unwrap();
        let pinned = PinnedThread::at(folder.path(), 3, &before).unwrap();
        assert_eq!(cpus::allowed().unwrap(), CpuSet::new([last]));
        drop(pinned);
        assert_eq!(cpus::allowed().unwrap(), before);
        assert!(PinnedThread::at(folder.path(), 4, &before).is_none());
        assert!(PinnedThread::at(folder.path(), 3, &CpuSet::new([60_001])).is_none());
    }
}
