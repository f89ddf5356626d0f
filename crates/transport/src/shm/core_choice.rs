//! Which cores processes run on that are to be near each other, or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pathline_schema::{CoreDistance, CpuSet, Rank};

use pathline_host::{cpus, files};

/// What the kernel says of a logical CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CpuPlace {
    /// All CPUs of its core.
    core: CpuSet,
    /// All CPUs behind its last-level cache; none if the kernel does not tell.
    l3: Option<CpuSet>,
}

/// The processors of this host.
#[derive(Debug, Clone, Default)]
pub(super) struct HostCores {
    cpus: BTreeMap<u32, CpuPlace>,
    numa: BTreeMap<u32, CpuSet>,
}

/// Two processes, each with its NUMA domain, and how near they are to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPair {
    pub(super) ends: [(Rank, u32); 2],
    pub(super) near: CoreDistance,
}

impl HostCores {
    /// Reads them under `/sys`, or where a test has it.
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

    /// A CPU for each process of the pairs: no two on one core, and the two of a pair as near as
    /// asked. Cores of the CPUs `off` are left to others, who are to be behind the same last-level
    /// cache as pairs that share one. All processes that ask the same get the same answer.
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
            let candidates = pair.ends.map(|(rank, numa)| match chosen.get(&rank) {
                Some(&cpu) => vec![cpu],
                None => self.free(possible.get(&rank), numa, &taken),
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
                let beside = if off.is_empty() {
                    String::new()
                } else {
                    format!(" beside CPU {off}, which another flow of the case has")
                };
                let why = format!("the one could have CPUs {a}, the other {b}{beside}");
                return Err(self.none(pair, &why));
            };
            chosen.extend(pair.ends.iter().map(|(rank, _)| *rank).zip(found));
        }
        Ok(chosen)
    }

    fn none(&self, pair: &ProcessPair, why: &str) -> String {
        if self.cpus.values().all(|cpu| cpu.l3.is_none()) {
            return "the kernel does not say which CPUs share a last-level cache".into();
        }
        let [(a, _), (b, _)] = pair.ends;
        let apart = match pair.near {
            CoreDistance::SameL3 => "behind one last-level cache",
            CoreDistance::OtherL3 => "behind different last-level caches",
        };
        format!("no two free cores {apart} for ranks {} and {}: {why}", a.0, b.0)
    }

    /// CPUs of a domain on cores that nobody has, one of each core.
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

/// CPUs that a thread of this process could be pinned to: more than it may use now, if its launcher
/// has bound it; fewer than the host has, if its container is smaller.
pub(super) fn possible() -> CpuSet {
    // A thread of its own, so that this one stays where it is.
    let asked = std::thread::spawn(|| {
        let bound = cpus::allowed();
        match cpus::restrict(&CpuSet::new(0..8192)) {
            Ok(()) => cpus::allowed(),
            Err(_) => bound,
        }
    });
    asked.join().ok().and_then(Result::ok).unwrap_or_default()
}

/// While it lives, this thread runs on chosen CPUs; then again where it ran before.
pub(super) struct PinnedThread {
    before: CpuSet,
}

impl PinnedThread {
    pub(super) fn to(cpu: u32) -> std::io::Result<Self> {
        Self::within(&CpuSet::new([cpu]))
    }

    /// On any of these.
    fn within(cpus: &CpuSet) -> std::io::Result<Self> {
        let before = cpus::allowed()?;
        cpus::restrict(cpus)?;
        Ok(Self { before })
    }

    /// On the CPUs of a NUMA domain among those that are possible, so that pages that are taken
    /// meanwhile are its own. None where that cannot be, and pages come from wherever this runs.
    pub(super) fn at(sys: &Path, numa: u32, possible: &CpuSet) -> Option<Self> {
        let list = files::text(sys.join(format!("devices/system/node/node{numa}/cpulist")))?;
        let domain = list.parse::<CpuSet>().ok()?.intersect(possible);
        if domain.is_empty() { None } else { Self::within(&domain).ok() }
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // What was allowed before can only have become forbidden by somebody else's doing.
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
        // There and back: each rank stays on its core.
        let back = [pair((0, 0), (1, 0), other), pair((1, 0), (0, 0), other)];
        assert_eq!(choose(&back), Ok(vec![0, 2]));
        // Domain 0 has four cores, and six ranks want one.
        let three = [two[0], two[1], pair((4, 0), (5, 0), same)];
        let why = choose(&three).unwrap_err();
        assert!(why.contains("ranks 4 and 5"), "{why}");
        // No L3 reaches over two domains.
        let why = choose(&[pair((0, 0), (1, 1), same)]).unwrap_err();
        assert!(why.contains("no two free cores behind one"), "{why}");
        let why = choose(&[back[0], pair((1, 0), (0, 0), same)]).unwrap_err();
        assert!(why.contains("other flows"), "{why}");
    }

    #[test]
    fn pairs_leave_cores_to_who_works_beside_them_behind_one_cache() {
        let folder = tempfile::tempdir().unwrap();
        // One L3 of cores 0+1 and one of 2+3 in domain 0; siblings are 8 further on.
        let mut cores = machine(folder.path());
        let all: BTreeMap<Rank, CpuSet> = (0..2).map(|r| (Rank(r), set("0-15"))).collect();
        let near = [pair((0, 0), (1, 0), CoreDistance::SameL3)];
        // Behind the cache of CPU 0 one core is left, and behind the other one nobody is beside it.
        let why = cores.choose(&near, &all, &set("0")).unwrap_err();
        assert!(why.contains("beside CPU 0"), "{why}");
        // Four cores behind one L3: the sibling of CPU 8 is taken with it, 1 and 2 come next.
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
        // Rank 0 could have 1 and its sibling alone; 9 is no other core.
        let possible = BTreeMap::from([(Rank(0), set("1,9")), (Rank(1), set("0-3,8-11"))]);
        let near = [pair((0, 0), (1, 0), CoreDistance::SameL3)];
        let chosen = cores.choose(&near, &possible, &CpuSet::default()).unwrap();
        assert_eq!(chosen, BTreeMap::from([(Rank(0), 1), (Rank(1), 0)]));
        let why = HostCores::default().choose(&near, &possible, &CpuSet::default()).unwrap_err();
        assert!(why.contains("does not say"), "{why}");
    }

    #[test]
    fn a_pinned_thread_comes_back() {
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
