//! GPU, cores and network adapter of each rank.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{CpuSet, Gpu, Nic, Topology};

use crate::core_blocks::{CoreBlock, core_blocks};

/// What to place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceRequest {
    /// Ranks on the node; 0 is one for each GPU, or for each last-level cache of a node without GPUs.
    pub ranks: u32,
    /// Leave out the first core behind each last-level cache, where a centre reserves it for the system.
    pub skip_first_core: bool,
    /// Give a rank all hardware threads of its cores, not the first of each only.
    pub hardware_threads: bool,
}

/// The place of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlace {
    /// Its number on the node, from 0.
    pub rank: u32,
    /// The number of its GPU in the topology.
    pub gpu: Option<u32>,
    /// The NUMA domain of its cores.
    pub numa: Option<u32>,
    /// Its CPUs; never empty.
    pub cpus: CpuSet,
    /// The nearest network adapter.
    pub nic: Option<String>,
}

/// The places of all ranks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementPlan {
    /// In the order of their numbers.
    pub ranks: Vec<RankPlace>,
    /// What is not as near as it could be, a sentence each.
    pub warnings: Vec<String>,
}

impl PlacementPlan {
    /// Whether every rank has an adapter of Slingshot or InfiniBand, as its name shows: one that libraries of messages
    /// use, whatever else the node has.
    pub fn has_fabric(&self) -> bool {
        let is_fabric = |name: &str| ["hsn", "mlx"].iter().any(|kind| name.starts_with(kind));
        let mut names = self.ranks.iter().map(|place| place.nic.as_deref());
        !self.ranks.is_empty() && names.all(|name| name.is_some_and(is_fabric))
    }

    /// The same places with other ranks: rank `r` gets what rank `at[r]` has here. Ranks whose place does
    /// not exist are left out.
    pub fn reordered(&self, at: &[usize]) -> Self {
        let place = |(rank, at): (usize, &usize)| {
            let place = self.ranks.get(*at)?;
            Some(RankPlace { rank: u32::try_from(rank).ok()?, ..place.clone() })
        };
        let ranks = at.iter().enumerate().filter_map(place).collect();
        Self { ranks, warnings: self.warnings.clone() }
    }
}

/// A request that no placement meets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The topology has no CPU that this process may use.
    #[error(
        "this topology has no CPU that this process may use; read one with CPUs (--from, --machine)"
    )]
    NoCpu,
    /// More ranks than cores.
    #[error(
        "{ranks} ranks need as many cores, and {near} has {cores}; ask for fewer ranks{or_keep_first}"
    )]
    TooFewCores {
        /// Ranks that share the cores.
        ranks: usize,
        /// The cores that they share, in words.
        near: String,
        /// Cores there.
        cores: usize,
        /// Another action that gives more cores.
        or_keep_first: &'static str,
    },
}

/// Places ranks. They get the GPUs in order, spread over packages where there are fewer ranks than GPUs, and
/// the cores behind the last-level caches of the GPU's NUMA domain, which the GPUs of the domain share in
/// order. Without GPUs the ranks spread over the caches.
///
/// # Errors
/// The node has no usable CPU, or fewer cores than ranks.
pub fn place_ranks(
    topology: &Topology,
    request: &PlaceRequest,
) -> Result<PlacementPlan, PlaceError> {
    let blocks = core_blocks(topology, request.skip_first_core);
    if blocks.is_empty() {
        return Err(PlaceError::NoCpu);
    }
    let mut plan = PlacementPlan::default();
    let gpus: Vec<&Gpu> = topology.gpus.iter().collect();
    let wanted = match (request.ranks as usize, gpus.len()) {
        (0, 0) => blocks.len(),
        (0, count) => count,
        (ranks, _) => ranks,
    };
    // Ranks that share one unit, in order: the GPUs, or the blocks of a node without any.
    let mut shares: Vec<(Option<&Gpu>, Vec<CpuSet>)> = Vec::new();
    if gpus.is_empty() {
        let taken = wanted.min(blocks.len());
        shares
            .extend((0..taken).map(|nth| (None, blocks[nth * blocks.len() / taken].cores.clone())));
    } else {
        let chosen = spread_gpus(&gpus, wanted);
        let near = cores_near(topology, &blocks, &gpus, &mut plan.warnings);
        let of = |gpu: &&Gpu| near.get(&gpu.index).cloned().unwrap_or_default();
        shares.extend(chosen.iter().map(|gpu| (Some(*gpu), of(gpu))));
    }
    let count = shares.len();
    for (nth, (gpu, cores)) in shares.iter().enumerate() {
        let ranks: Vec<usize> = (0..wanted).filter(|rank| rank * count / wanted == nth).collect();
        if cores.len() < ranks.len() {
            let near = gpu.map_or_else(|| "a cache".to_owned(), |g| format!("gpu{}", g.index));
            let or_keep_first =
                if request.skip_first_core { " or keep the first cores" } else { "" };
            let cores = cores.len();
            return Err(PlaceError::TooFewCores { ranks: ranks.len(), near, cores, or_keep_first });
        }
        for (k, rank) in ranks.iter().enumerate() {
            let mine = &cores[k * cores.len() / ranks.len()..(k + 1) * cores.len() / ranks.len()];
            let cpus = threads_of(mine, request.hardware_threads);
            let first = cpus.as_slice().first().copied().unwrap_or_default();
            let numa = topology.numa.iter().find(|d| d.cpus.contains(first)).map(|d| d.id);
            plan.ranks.push(RankPlace {
                rank: *rank as u32,
                gpu: gpu.map(|gpu| gpu.index),
                numa,
                cpus,
                nic: nearest_nic(&topology.nics, *gpu, numa).map(|nic| nic.name.clone()),
            });
        }
    }
    warn_of_shared_parts(&mut plan);
    Ok(plan)
}

/// Chooses a GPU for each rank, at most all GPUs. Each choice takes a GPU of the package, then of the NUMA
/// domain, from which the fewest were taken: GPUs of a package share its link to the host.
fn spread_gpus<'t>(gpus: &[&'t Gpu], ranks: usize) -> Vec<&'t Gpu> {
    let mut rest = gpus.to_vec();
    let mut taken: Vec<&Gpu> = Vec::new();
    while taken.len() < ranks && !rest.is_empty() {
        let alike = |key: &dyn Fn(&Gpu) -> Option<u32>, gpu: &Gpu| {
            taken.iter().filter(|t| key(t).is_some() && key(t) == key(gpu)).count()
        };
        let load = |gpu: &Gpu| (alike(&|g| g.package, gpu), alike(&|g| g.numa, gpu), gpu.index);
        let best = (0..rest.len()).min_by_key(|&at| load(rest[at])).unwrap_or_default();
        taken.push(rest.remove(best));
    }
    taken.sort_by_key(|gpu| gpu.index);
    taken
}

/// The cores of each GPU: those of its NUMA domain, shared by the GPUs of the domain in order, in whole
/// blocks where there are enough. GPUs whose domain is unknown or has no usable CPU get the blocks of domains
/// without GPUs.
fn cores_near(
    topology: &Topology,
    blocks: &[CoreBlock],
    gpus: &[&Gpu],
    warnings: &mut Vec<String>,
) -> BTreeMap<u32, Vec<CpuSet>> {
    let has_cpus = |numa: Option<u32>| {
        numa.filter(|numa| blocks.iter().any(|block| block.numa == Some(*numa)))
    };
    let mut by_domain: BTreeMap<Option<u32>, Vec<&Gpu>> = BTreeMap::new();
    for gpu in gpus {
        by_domain.entry(has_cpus(gpu.numa)).or_default().push(gpu);
    }
    let claimed: BTreeSet<Option<u32>> =
        by_domain.keys().copied().filter(Option::is_some).collect();
    let mut near = BTreeMap::new();
    for (numa, mut mine) in by_domain {
        mine.sort_by_key(|gpu| gpu.index);
        for gpu in mine.iter().filter(|_| numa.is_none() && topology.numa.len() > 1) {
            warnings.push(match gpu.numa {
                Some(domain) => format!(
                    "gpu{}: this process may use no CPU of its NUMA domain {domain}; ask the launcher \
                     for the whole node",
                    gpu.index
                ),
                None => format!("gpu{}: its NUMA domain is unknown, so it gets any CPUs", gpu.index),
            });
        }
        let mut own: Vec<&CoreBlock> = match numa {
            Some(_) => blocks.iter().filter(|block| block.numa == numa).collect(),
            None => blocks.iter().filter(|block| !claimed.contains(&block.numa)).collect(),
        };
        if own.is_empty() {
            own = blocks.iter().collect();
            warnings.push("GPUs without near CPUs share the cores of the others".to_owned());
        }
        if own.len() >= mine.len() {
            for (nth, gpu) in mine.iter().enumerate() {
                let part = &own[nth * own.len() / mine.len()..(nth + 1) * own.len() / mine.len()];
                near.insert(gpu.index, part.iter().flat_map(|block| block.cores.clone()).collect());
            }
        } else {
            let cores: Vec<CpuSet> = own.iter().flat_map(|block| block.cores.clone()).collect();
            for (nth, gpu) in mine.iter().enumerate() {
                let part = nth * cores.len() / mine.len()..(nth + 1) * cores.len() / mine.len();
                near.insert(gpu.index, cores[part].to_vec());
            }
        }
    }
    near
}

fn threads_of(cores: &[CpuSet], all: bool) -> CpuSet {
    let threads = |core: &CpuSet| {
        let most = if all { core.len() } else { 1 };
        core.as_slice().iter().copied().take(most).collect::<Vec<u32>>()
    };
    CpuSet::new(cores.iter().flat_map(threads))
}

/// The adapter that the topology names as nearest to the GPU; else one of the same NUMA domain.
pub(crate) fn nearest_nic<'t>(
    nics: &'t [Nic],
    gpu: Option<&Gpu>,
    numa: Option<u32>,
) -> Option<&'t Nic> {
    let near_gpu = gpu.and_then(|gpu| nics.iter().find(|nic| nic.near_gpu == Some(gpu.index)));
    let of_package = || {
        let package = gpu.and_then(|gpu| gpu.numa).or(numa)?;
        nics.iter().find(|nic| nic.numa == Some(package))
    };
    near_gpu.or_else(of_package)
}

fn warn_of_shared_parts(plan: &mut PlacementPlan) {
    let of = |gpu: u32| plan.ranks.iter().filter(move |place| place.gpu == Some(gpu)).count();
    let shared = plan.ranks.iter().filter_map(|place| place.gpu).find(|gpu| of(*gpu) > 1);
    if let Some(gpu) = shared {
        let gpus: BTreeSet<u32> = plan.ranks.iter().filter_map(|place| place.gpu).collect();
        let others = match gpus.iter().filter(|gpu| of(**gpu) > 1).count() {
            1 => String::new(),
            shared => format!(", as on {} other GPUs", shared - 1),
        };
        let gpus = gpus.len();
        plan.warnings.push(format!(
            "{} ranks share gpu{gpu}{others}: {gpus} ranks at most have a GPU each (--ranks {gpus})",
            of(gpu)
        ));
    }
    let without = plan.ranks.iter().filter(|place| place.nic.is_none()).count();
    if without > 0 && without < plan.ranks.len() {
        plan.warnings.push(format!(
            "{without} of {} ranks have no network adapter in their NUMA domain",
            plan.ranks.len()
        ));
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Bytes, CacheGroup, NumaDomain};

    use super::*;

    /// LUMI's node: NUMA domains of 16 cores and two caches; GPUs 0 and 1 at domain 3, 2 and 3 at 1, 4
    /// and 5 at 0, 6 and 7 at 2; packages of two.
    fn lumi() -> Topology {
        let mut topology = Topology::default();
        topology.host.cpus = "0-127".parse().unwrap();
        topology.numa = (0..4)
            .map(|id| {
                let first = id * 16;
                let cpus = format!("{first}-{},{}-{}", first + 15, first + 64, first + 79);
                NumaDomain { id, cpus: cpus.parse().unwrap(), ..NumaDomain::default() }
            })
            .collect();
        let cache = |level: u32, cpus: String| CacheGroup {
            level,
            kind: "Unified".to_owned(),
            size: Bytes::mib(32),
            line: 64,
            cpus: cpus.parse().unwrap(),
        };
        let blocks = (0..8).map(|b: u32| {
            cache(3, format!("{}-{},{}-{}", b * 8, b * 8 + 7, b * 8 + 64, b * 8 + 71))
        });
        topology.caches = blocks.collect();
        topology.caches.extend((0..64).map(|core: u32| cache(1, format!("{core},{}", core + 64))));
        topology.gpus = [3, 3, 1, 1, 0, 0, 2, 2]
            .iter()
            .zip(0..)
            .map(|(numa, index)| Gpu {
                index,
                numa: Some(*numa),
                package: Some(index / 2),
                ..Gpu::default()
            })
            .collect();
        let nic = |package: u32| Nic {
            name: format!("hsn{package}"),
            near_gpu: Some(2 * package + 1),
            numa: topology.gpus[2 * package as usize].numa,
            ..Nic::default()
        };
        topology.nics = (0..4).map(nic).collect();
        topology
    }

    fn request(ranks: u32) -> PlaceRequest {
        PlaceRequest { ranks, ..PlaceRequest::default() }
    }

    fn cpus(plan: &PlacementPlan) -> Vec<String> {
        plan.ranks.iter().map(|place| place.cpus.to_string()).collect()
    }

    /// The binding that LUMI's documentation gives for a rank a GPU: cores 49-55, 57-63, 17-23, ...
    #[test]
    fn a_rank_of_each_gpu_gets_the_cache_next_to_it() {
        let plan =
            place_ranks(&lumi(), &PlaceRequest { skip_first_core: true, ..request(0) }).unwrap();
        assert_eq!(
            cpus(&plan),
            ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
        );
        assert!(plan.ranks.iter().all(|place| place.gpu == Some(place.rank)));
        assert_eq!(plan.ranks[0].numa, Some(3));
        // hsn0 is nearest to GPU 1; GPU 0 shares its NUMA domain with it.
        let nics: Vec<_> = plan.ranks.iter().filter_map(|place| place.nic.as_deref()).collect();
        assert_eq!(nics, ["hsn0", "hsn0", "hsn1", "hsn1", "hsn2", "hsn2", "hsn3", "hsn3"]);
        assert_eq!(plan.warnings, Vec::<String>::new());
    }

    #[test]
    fn fewer_ranks_than_gpus_take_a_gpu_of_each_package() {
        let plan = place_ranks(&lumi(), &request(4)).unwrap();
        let gpus: Vec<_> = plan.ranks.iter().filter_map(|place| place.gpu).collect();
        assert_eq!(gpus, [0, 2, 4, 6]);
        let plan = place_ranks(&lumi(), &request(2)).unwrap();
        let gpus: Vec<_> = plan.ranks.iter().filter_map(|place| place.gpu).collect();
        assert_eq!(gpus, [0, 2]);
    }

    /// 16 ranks on 8 GPUs: two share the 8 cores of a cache, 4 each; with hardware threads 8 CPUs each.
    #[test]
    fn more_ranks_than_gpus_share_the_cores_of_one() {
        let plan = place_ranks(&lumi(), &request(16)).unwrap();
        assert_eq!(cpus(&plan)[..4], ["48-51", "52-55", "56-59", "60-63"]);
        assert_eq!(plan.ranks.iter().filter(|place| place.gpu == Some(7)).count(), 2);
        let all = PlaceRequest { hardware_threads: true, ..request(16) };
        assert_eq!(cpus(&place_ranks(&lumi(), &all).unwrap())[0], "48-51,112-115");
        let error = place_ranks(&lumi(), &request(72)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "9 ranks need as many cores, and gpu0 has 8; ask for fewer ranks"
        );
    }

    #[test]
    fn without_gpus_ranks_spread_over_the_caches() {
        let mut topology = lumi();
        topology.gpus.clear();
        let plan = place_ranks(&topology, &request(2)).unwrap();
        assert_eq!(cpus(&plan), ["0-7", "32-39"]);
        assert_eq!(place_ranks(&topology, &request(0)).unwrap().ranks.len(), 8);
        assert_eq!(place_ranks(&Topology::default(), &request(1)), Err(PlaceError::NoCpu));
    }

    /// A job that got the first NUMA domain only: GPU 0, at domain 3, has none of its CPUs.
    #[test]
    fn a_gpu_without_near_cpus_is_named() {
        let mut topology = lumi();
        topology.host.allowed_cpus = "0-15".parse().unwrap();
        topology.gpus.truncate(1);
        let plan = place_ranks(&topology, &request(1)).unwrap();
        assert_eq!(cpus(&plan), ["0-15"]);
        // A second GPU at domain 1, whose CPUs it keeps.
        let mut topology = lumi();
        topology.host.allowed_cpus = "0-31".parse().unwrap();
        topology.gpus.truncate(3);
        topology.gpus.remove(1);
        let plan = place_ranks(&topology, &request(2)).unwrap();
        assert_eq!(cpus(&plan), ["0-15", "16-31"]);
        assert!(
            plan.warnings[0].starts_with("gpu0: this process may use no CPU of its NUMA domain 3")
        );
    }

    /// Whatever is asked of whatever node: every rank has CPUs, and no two ranks have the same one.
    #[test]
    fn no_cpu_has_two_ranks() {
        for gpus in 0..=8 {
            for ranks in 0..=40 {
                let mut topology = lumi();
                topology.gpus.truncate(gpus);
                let request = PlaceRequest { skip_first_core: ranks % 2 == 1, ..request(ranks) };
                let Ok(plan) = place_ranks(&topology, &request) else { continue };
                let mut seen = CpuSet::default();
                for place in &plan.ranks {
                    assert!(!place.cpus.is_empty(), "{gpus} GPUs, {place:?}");
                    assert!(seen.intersect(&place.cpus).is_empty(), "{gpus} GPUs, {place:?}");
                    seen = seen.union(&place.cpus);
                }
                let numbers: Vec<u32> = plan.ranks.iter().map(|place| place.rank).collect();
                assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
            }
        }
    }
}
