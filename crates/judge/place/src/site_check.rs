//! Faults of where ranks run: what slows them down before they have done anything.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::CpuSet;
use serde::Serialize;

use crate::{PlannedRank, RankSite};

/// Share of remote pages from which a rank is warned of.
const REMOTE_PAGES: f64 = 0.05;
/// Distance from which two NUMA domains are of different sockets. Firmware states 10 for a domain itself
/// and 11 to 19 within a socket. Source: ACPI specification, SLIT; Linux takes 20 for remote memory.
const OTHER_SOCKET: u32 = 20;

/// One fault of one or several ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SiteFinding {
    /// Short stable name: `gpu-far-cpus`.
    pub code: &'static str,
    /// The ranks that it concerns, ascending.
    pub ranks: Vec<u32>,
    /// The observation.
    pub text: String,
    /// What to do.
    pub action: String,
}

/// Looks for faults: of each rank, of the ranks of a host together, and against a plan, if there is one.
pub fn check_sites(sites: &[RankSite], plan: Option<&[PlannedRank]>) -> Vec<SiteFinding> {
    let mut findings = Vec::new();
    let mut hosts: BTreeMap<&str, Vec<&RankSite>> = BTreeMap::new();
    for site in sites {
        hosts.entry(site.host.as_str()).or_default().push(site);
    }
    for ranks in hosts.values() {
        findings.extend(unbound(ranks));
        findings.extend(shared_cores(ranks));
        findings.extend(split_cores(ranks));
        findings.extend(shared_gpus(ranks));
        for site in ranks {
            findings.extend(far_cpus(site));
            findings.extend(remote_pages(site));
            findings.extend(far_nic(site));
            findings.extend(gpus_seen(site, ranks.len()));
            findings.extend(gpu_settings(site));
        }
    }
    if let Some(plan) = plan {
        findings.extend(sites.iter().flat_map(|site| against_plan(site, plan)));
        findings.extend(planned_hosts(sites, plan));
    }
    joined(findings)
}

/// Findings of the same text concern several ranks; by code and first rank.
fn joined(findings: Vec<SiteFinding>) -> Vec<SiteFinding> {
    let mut kept: Vec<SiteFinding> = Vec::new();
    for finding in findings {
        let same = |k: &&mut SiteFinding| {
            (k.code, &k.text, &k.action) == (finding.code, &finding.text, &finding.action)
        };
        match kept.iter_mut().find(same) {
            Some(known) => known.ranks.extend(finding.ranks),
            None => kept.push(finding),
        }
    }
    for finding in &mut kept {
        finding.ranks.sort_unstable();
        finding.ranks.dedup();
    }
    kept
}

fn finding(code: &'static str, ranks: &[&RankSite], text: String, action: &str) -> SiteFinding {
    let ranks = ranks.iter().map(|site| site.rank).collect();
    SiteFinding { code, ranks, text, action: action.to_owned() }
}

/// Ranks that may use every CPU of a host that they share.
fn unbound(ranks: &[&RankSite]) -> Option<SiteFinding> {
    let free: Vec<&RankSite> = ranks.iter().copied().filter(|site| site.is_unbound()).collect();
    let cpus = free.first()?.node.cpus.len();
    let domains = match free.first()?.node.numa.len() {
        0 | 1 => String::new(),
        several => format!(" in {several} NUMA domains"),
    };
    (ranks.len() > 1 && cpus > 1).then(|| {
        finding(
            "unbound",
            &free,
            format!(
                "not bound: the mask has all {cpus} CPUs of the host{domains}, which {} ranks share",
                ranks.len()
            ),
            "bind each rank: `pathline place --format LAUNCHER` prints the line",
        )
    })
}

/// Ranks that cannot each have a core: found by giving each rank a core in turn, and moving ranks
/// that have one to another of their cores (augmenting paths).
fn shared_cores(ranks: &[&RankSite]) -> Option<SiteFinding> {
    let cores: Vec<BTreeSet<(bool, usize)>> = ranks
        .iter()
        .map(|site| site.cpus.as_slice().iter().map(|cpu| site.node.core_of(*cpu)).collect())
        .collect();
    let mut owner: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for rank in 0..cores.len() {
        let mut seen = BTreeSet::new();
        if !give_core(rank, &cores, &mut owner, &mut seen) {
            // The ranks that were asked to move share too few cores.
            let mut crowd: BTreeSet<usize> =
                seen.iter().filter_map(|c| owner.get(c)).copied().collect();
            crowd.insert(rank);
            let few = seen.len();
            let crowd: Vec<&RankSite> =
                crowd.iter().filter_map(|at| ranks.get(*at)).copied().collect();
            let cores = if few == 1 { "core" } else { "cores" };
            let cpus = crowd.iter().fold(CpuSet::default(), |all, site| all.union(&site.cpus));
            return Some(finding(
                "shared-core",
                &crowd,
                format!("{} ranks have {few} {cores} in all (CPUs {cpus})", crowd.len()),
                "give each rank its own core: check the mask, and that the job asks for enough CPUs a task",
            ));
        }
    }
    None
}

fn give_core(
    rank: usize,
    cores: &[BTreeSet<(bool, usize)>],
    owner: &mut BTreeMap<(bool, usize), usize>,
    seen: &mut BTreeSet<(bool, usize)>,
) -> bool {
    for core in cores.get(rank).into_iter().flatten() {
        if !seen.insert(*core) {
            continue;
        }
        let moved = match owner.get(core).copied() {
            None => true,
            Some(other) => give_core(other, cores, owner, seen),
        };
        if moved {
            owner.insert(*core, rank);
            return true;
        }
    }
    false
}

/// Ranks whose CPUs are hardware threads of the same core.
fn split_cores(ranks: &[&RankSite]) -> Option<SiteFinding> {
    let mut split: BTreeSet<usize> = BTreeSet::new();
    let mut example = None;
    for core in ranks.first().map(|site| &site.node.cores)? {
        let on: Vec<(usize, CpuSet)> = ranks
            .iter()
            .enumerate()
            .map(|(at, site)| (at, site.cpus.intersect(core)))
            .filter(|(_, own)| !own.is_empty())
            .collect();
        // Ranks with the same mask share whole cores, which is another finding.
        let apart = on.iter().any(|(_, a)| on.iter().any(|(_, b)| a.intersect(b).is_empty()));
        if apart {
            split.extend(on.iter().map(|(at, _)| *at));
            example = example.or_else(|| Some(core.clone()));
        }
    }
    let core = example?;
    let ranks: Vec<&RankSite> = split.iter().filter_map(|at| ranks.get(*at)).copied().collect();
    Some(finding(
        "shared-threads",
        &ranks,
        format!("CPUs {core} are hardware threads of one core, and different ranks have them"),
        "bind by cores: --threads-per-core=1 or --hint=nomultithread (Slurm), --bind-to core (mpirun)",
    ))
}

/// Ranks that each see one GPU, and the same one.
fn shared_gpus(ranks: &[&RankSite]) -> Vec<SiteFinding> {
    // Instances of one GPU (MIG) have its address.
    let mut users: BTreeMap<(&str, Option<&str>), Vec<&RankSite>> = BTreeMap::new();
    for site in ranks {
        let only = site.only_gpu().filter(|gpu| !gpu.pci.is_empty());
        if let Some(gpu) = only {
            let key = (gpu.pci.as_str(), site.gpu_instance.as_deref());
            users.entry(key).or_default().push(site);
        }
    }
    let most = ranks.iter().map(|site| site.gpus_on_bus as usize).max().unwrap_or(0);
    // With more ranks than GPUs some share in any case.
    let fair = ranks.len().div_ceil(most.max(1));
    let shared = users.into_iter().filter(|(_, users)| users.len() > fair);
    shared
        .map(|((pci, _), users)| {
            finding(
                "shared-gpu",
                &users,
                format!(
                    "{} ranks see the same GPU alone ({pci}), of {most} on the host",
                    users.len()
                ),
                "give each rank another GPU: `pathline place --format LAUNCHER` prints a script",
            )
        })
        .collect()
}

/// A GPU whose NUMA domain has none of the rank's CPUs.
fn far_cpus(site: &RankSite) -> Option<SiteFinding> {
    let gpu = site.only_gpu()?;
    let domain = gpu.numa?;
    let near = site.node.domains_of(&site.cpus);
    // A domain without CPUs of the host is near to none.
    let has_cpus = site.node.numa.iter().any(|d| d.id == domain && !d.cpus.is_empty());
    (has_cpus && !near.is_empty() && !near.contains(&domain)).then(|| {
        let near: Vec<String> = near.iter().map(u32::to_string).collect();
        finding(
            "gpu-far-cpus",
            &[site],
            format!(
                "GPU {} is at NUMA domain {domain}, the CPUs {} at {}",
                gpu.pci,
                site.cpus,
                near.join(", ")
            ),
            "bind the rank to CPUs of the GPU's domain: `pathline place --format LAUNCHER`",
        )
    })
}

fn remote_pages(site: &RankSite) -> Option<SiteFinding> {
    let share = site.remote_share().filter(|share| *share > REMOTE_PAGES)?;
    Some(finding(
        "remote-pages",
        &[site],
        format!(
            "{:.0} % of the pages that it touches lie outside the NUMA domains of its CPUs",
            share * 100.0
        ),
        "see `numactl --show` in the job (a memory policy or cgroup), and bind before the program starts",
    ))
}

/// An adapter of another socket, or one that is farther than the nearest.
fn far_nic(site: &RankSite) -> Option<SiteFinding> {
    let nic = site.nic.as_ref()?;
    let at = nic.numa?;
    let from = site.only_gpu().and_then(|gpu| gpu.numa);
    let from = from.or_else(|| site.node.domains_of(&site.cpus).first().copied())?;
    let distance = site.node.distance(from, at)?;
    let nearest = site.node.nics.iter().filter_map(|nic| site.node.distance(from, *nic)).min()?;
    let socket = if distance >= OTHER_SOCKET { ", on another socket" } else { "" };
    (distance > nearest || distance >= OTHER_SOCKET).then(|| {
        let by = nic.set_by.as_deref().map(|by| format!(" ({by})")).unwrap_or_default();
        let nearer = if distance > nearest { "; a nearer adapter exists" } else { "" };
        finding(
            "far-nic",
            &[site],
            format!(
                "{}{by} is at NUMA domain {at}, distance {distance} from domain {from}{socket}{nearer}",
                nic.name
            ),
            "let each rank use the adapter next to its GPU: `pathline place` lists them",
        )
    })
}

/// Several GPUs, or none, for one of several ranks.
fn gpus_seen(site: &RankSite, ranks: usize) -> Option<SiteFinding> {
    match site.gpus.len() {
        0 if site.gpus_on_bus > 0 => Some(finding(
            "no-gpu",
            &[site],
            format!(
                "sees none of the host's {} GPUs{}{}",
                site.gpus_on_bus,
                match site.gpu_settings.as_slice() {
                    [] => String::new(),
                    settings => format!(" with {}", settings.join(" ")),
                },
                site.without_gpu.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
            ),
            "ask the launcher for GPUs, and see the variables that hide them",
        )),
        count if count > 1 && ranks > 1 => Some(finding(
            "several-gpus",
            &[site],
            format!(
                "sees {count} GPUs, so the program must choose one; without that all take the first"
            ),
            "show each rank one GPU (ROCR_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES), or see that the program \
             chooses by local rank",
        )),
        _ => None,
    }
}

/// Variables that name GPUs which the process does not get.
fn gpu_settings(site: &RankSite) -> Vec<SiteFinding> {
    let faults = site.gpu_setting_faults.iter();
    let action = "name each GPU once, by its number among the GPUs of the job, in one variable alone: the \
                  launcher's, or ROCR_VISIBLE_DEVICES (AMD) or CUDA_VISIBLE_DEVICES (NVIDIA) of a wrapper";
    faults.map(|why| finding("gpu-setting", &[site], why.clone(), action)).collect()
}

/// Ranks of one planned node on several hosts, and of several planned nodes on one.
fn planned_hosts(sites: &[RankSite], plan: &[PlannedRank]) -> Vec<SiteFinding> {
    let mut of_node: BTreeMap<u32, &RankSite> = BTreeMap::new();
    let mut of_host: BTreeMap<&str, (u32, &RankSite)> = BTreeMap::new();
    let mut findings = Vec::new();
    for site in sites {
        let planned = plan.iter().find(|planned| planned.local_rank == site.rank);
        let Some(node) = planned.and_then(|planned| planned.node) else { continue };
        let with = *of_node.entry(node).or_insert(site);
        let (other_node, other) = *of_host.entry(site.host.as_str()).or_insert((node, site));
        let text = if with.host != site.host {
            format!(
                "planned on the node of rank {}, which is {}; runs on {}",
                with.rank, with.host, site.host
            )
        } else if other_node != node {
            format!("planned on another node than rank {}; both run on {}", other.rank, site.host)
        } else {
            continue;
        };
        let action = "start the job by the plan's own line: its list of hosts (--hosts) gives the host of each rank";
        findings.push(finding("plan-host", &[site], text, action));
    }
    findings
}

/// What a plan asked for and the rank does not have.
fn against_plan(site: &RankSite, plan: &[PlannedRank]) -> Vec<SiteFinding> {
    let is_same = |planned: &&PlannedRank| match planned.node {
        Some(_) => planned.local_rank == site.rank,
        None => planned.local_rank == site.local_rank,
    };
    let Some(planned) = plan.iter().find(is_same) else {
        let text = match plan.iter().any(|planned| planned.node.is_some()) {
            true => format!("the plan has no rank {} of the job", site.rank),
            false => format!("the plan has no rank {} of a node", site.local_rank),
        };
        let action = "write a plan for as many ranks as the job has on a node";
        return vec![finding("plan-rank", &[site], text, action)];
    };
    let mut findings = Vec::new();
    if planned.cpus != site.cpus {
        let whole =
            if site.is_unbound() { " (all of the host: the mask was not applied)" } else { "" };
        findings.push(finding(
            "plan-cpus",
            &[site],
            format!("planned on CPUs {}, runs on {}{whole}", planned.cpus, site.cpus),
            "start the job by the plan's own line; Slurm applies masks only to steps that have every CPU of \
             the node (--exclusive)",
        ));
    }
    if let Some(planned_gpu) = planned.gpu {
        let seen = site.only_gpu();
        let as_planned = match (&planned.pci, seen) {
            (Some(pci), Some(gpu)) if !gpu.pci.is_empty() => gpu.pci == *pci,
            (_, Some(gpu)) => gpu.host_index.unwrap_or(gpu.index) == planned_gpu,
            (_, None) => false,
        };
        if !as_planned {
            let sees = match seen {
                Some(gpu) => {
                    format!("GPU {} ({})", gpu.host_index.unwrap_or(gpu.index), gpu.pci)
                }
                None => format!("{} GPUs", site.gpus.len()),
            };
            let pci = planned.pci.as_ref().map(|pci| format!(" ({pci})")).unwrap_or_default();
            findings.push(finding(
                "plan-gpu",
                &[site],
                format!("planned on GPU {planned_gpu}{pci}, sees {sees}"),
                "start the program by the plan's script, and add --gpu-bind=none if Slurm binds GPUs too",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_site::{SiteDomain, SiteGpu, SiteNic, SiteNode};

    /// Two sockets, a NUMA domain each, of four cores with two hardware threads: 0 to 3 with 8 to 11, 4 to
    /// 7 with 12 to 15. An adapter at each.
    fn node() -> SiteNode {
        let domain = |id: u32, cpus: &str, distances: [u32; 2]| SiteDomain {
            id,
            cpus: cpus.parse().unwrap(),
            distances: distances.to_vec(),
        };
        SiteNode {
            cpus: "0-15".parse().unwrap(),
            cores: (0..8).map(|core| CpuSet::new([core, core + 8])).collect(),
            numa: vec![domain(0, "0-3,8-11", [10, 32]), domain(1, "4-7,12-15", [32, 10])],
            nics: vec![0, 1],
        }
    }

    fn site(rank: u32, cpus: &str, gpu: Option<u32>) -> RankSite {
        let cpus: CpuSet = cpus.parse().unwrap();
        let domain = node().domains_of(&cpus).first().copied();
        RankSite {
            rank,
            local_rank: rank,
            host: "a".to_owned(),
            pages: domain.map(|domain| BTreeMap::from([(domain, 100)])),
            cpus,
            gpus: gpu
                .map(|index| SiteGpu {
                    index: 0,
                    host_index: Some(index),
                    pci: format!("0000:0{index}:00.0").parse().unwrap(),
                    numa: Some(index / 2),
                })
                .into_iter()
                .collect(),
            gpus_on_bus: 4,
            nic: domain.map(|domain| SiteNic {
                name: format!("mlx5_{domain}"),
                numa: Some(domain),
                set_by: None,
            }),
            node: node(),
            ..RankSite::default()
        }
    }

    fn codes(sites: &[RankSite]) -> Vec<(&'static str, Vec<u32>)> {
        check_sites(sites, None).into_iter().map(|f| (f.code, f.ranks)).collect()
    }

    #[test]
    fn a_good_placement_has_no_finding() {
        let good = [
            site(0, "0-1", Some(0)),
            site(1, "2-3", Some(1)),
            site(2, "4-5", Some(2)),
            site(3, "6-7", Some(3)),
        ];
        assert_eq!(codes(&good), []);
        // One rank of a host may have all of it.
        assert_eq!(codes(&[site(0, "0-15", None)])[0].0, "no-gpu");
    }

    #[test]
    fn each_fault_is_named_with_its_ranks() {
        // GPU 2 is at domain 1.
        assert_eq!(
            codes(&[site(0, "0-1", Some(2))]),
            [("gpu-far-cpus", vec![0]), ("far-nic", vec![0])]
        );
        let both = [site(0, "0-15", Some(0)), site(1, "0-15", Some(1))];
        assert_eq!(codes(&both), [("unbound", vec![0, 1])]);
        // Ranks 1 and 2 have core 4 alone; rank 0 has others.
        let crowd = [site(0, "0-1", Some(0)), site(1, "4", Some(2)), site(2, "4", Some(3))];
        assert_eq!(codes(&crowd), [("shared-core", vec![1, 2])]);
        // CPUs 4 and 12 are one core.
        let threads = [site(1, "4", Some(2)), site(2, "5,12", Some(3))];
        assert_eq!(codes(&threads), [("shared-threads", vec![1, 2])]);
        let same = [site(0, "0-1", Some(0)), site(1, "2-3", Some(0))];
        assert_eq!(codes(&same), [("shared-gpu", vec![0, 1])]);
        // 6 of 100 pages are more than 5 %, 5 are not.
        let pages = |remote| RankSite {
            pages: Some(BTreeMap::from([(0, 100 - remote), (1, remote)])),
            ..site(0, "0-1", Some(0))
        };
        assert_eq!(codes(&[pages(5)]), []);
        assert_eq!(codes(&[pages(6)]), [("remote-pages", vec![0])]);
        let many = |rank: u32, cpus: &str| {
            let gpus = [site(0, "0", Some(0)).gpus, site(0, "0", Some(1)).gpus].concat();
            RankSite { gpus, ..site(rank, cpus, None) }
        };
        assert_eq!(codes(&[many(0, "0"), many(1, "1")]), [("several-gpus", vec![0, 1])]);
        assert_eq!(codes(&[many(0, "0")]), [], "a single rank may use them all");
    }

    /// Three ranks on the masks {0, 1}, {1, 2}, {2, 0} fit: the third moves the others.
    #[test]
    fn overlapping_masks_with_room_are_no_fault() {
        let ring = [site(0, "0-1", Some(0)), site(1, "1-2", Some(1)), site(2, "0,2", Some(2))];
        assert!(codes(&ring).iter().all(|(code, _)| *code != "shared-core"));
        let four = [
            site(0, "0-1", Some(0)),
            site(1, "1-2", Some(1)),
            site(2, "0,2", Some(2)),
            site(3, "1", Some(3)),
        ];
        let found = check_sites(&four, None);
        let crowd = found.iter().find(|f| f.code == "shared-core").unwrap();
        assert_eq!(crowd.ranks, [0, 1, 2, 3]);
        assert!(crowd.text.starts_with("4 ranks have 3 cores"), "{}", crowd.text);
    }

    #[test]
    fn a_plan_that_was_not_applied_is_seen() {
        let plan = |cpus: &str, gpu: u32, pci: Option<&str>| {
            let (cpus, pci) = (cpus.parse().unwrap(), pci.map(|pci| pci.parse().unwrap()));
            [PlannedRank { local_rank: 0, node: None, cpus, gpu: Some(gpu), pci }]
        };
        let found = |site: &RankSite, plan: &[PlannedRank]| {
            let found = check_sites(std::slice::from_ref(site), Some(plan));
            found.into_iter().map(|f| f.code).collect::<Vec<_>>()
        };
        let as_planned = site(0, "0-1", Some(1));
        assert_eq!(found(&as_planned, &plan("0-1", 1, None)), [""; 0]);
        // The address decides, where the plan has one: numbers may differ between runtimes.
        assert_eq!(found(&as_planned, &plan("0-1", 7, Some("0000:01:00.0"))), [""; 0]);
        assert_eq!(found(&as_planned, &plan("0-1", 1, Some("0000:03:00.0"))), ["plan-gpu"]);
        assert_eq!(found(&as_planned, &plan("2-3", 0, None)), ["plan-cpus", "plan-gpu"]);
        let text = check_sites(&[site(0, "0-15", Some(1))], Some(&plan("0-1", 1, None)));
        assert!(text.iter().any(|f| f.text.contains("the mask was not applied")), "{text:?}");
        let other = RankSite { local_rank: 3, ..as_planned };
        assert_eq!(found(&other, &plan("0-1", 1, None)), ["plan-rank"]);
    }

    /// Rank 9 of a job is the second of its node: its line of the job's script counts, and not that of rank 1.
    #[test]
    fn a_plan_of_a_job_is_by_its_ranks() {
        let text = "1) cpus=4-5 gpu=2 node=0 nth=1 ;;\n9) cpus=0-1 gpu=1 node=1 nth=1 ;;\n";
        let plan = crate::read_plan(text).unwrap();
        let here = RankSite { rank: 9, ..site(1, "0-1", Some(1)) };
        assert_eq!(check_sites(std::slice::from_ref(&here), Some(&plan)), []);
        let absent = RankSite { rank: 10, ..here.clone() };
        let found = check_sites(&[absent], Some(&plan));
        assert_eq!(found[0].text, "the plan has no rank 10 of the job");
        // Rank 1 is planned on node 0: not on the host of rank 9, wherever that is.
        let first = RankSite { rank: 1, ..site(0, "4-5", Some(2)) };
        let hosts = |of_first: &str, of_second: &str| {
            let first = RankSite { host: of_first.to_owned(), ..first.clone() };
            let sites = [first, RankSite { host: of_second.to_owned(), ..here.clone() }];
            check_sites(&sites, Some(&plan))
                .into_iter()
                .map(|f| (f.code, f.ranks))
                .collect::<Vec<_>>()
        };
        assert_eq!(hosts("a", "b"), []);
        assert_eq!(hosts("a", "a"), [("plan-host", vec![9])]);
        let text = "0) cpus=0-1 gpu=1 node=0 nth=0 ;;\n1) cpus=4-5 gpu=2 node=0 nth=1 ;;\n";
        let together = crate::read_plan(text).unwrap();
        let zero = site(0, "0-1", Some(1));
        let one = RankSite { host: "b".to_owned(), ..site(1, "4-5", Some(2)) };
        let found = check_sites(&[zero, one], Some(&together));
        assert_eq!(found[0].text, "planned on the node of rank 0, which is a; runs on b");
    }
}
