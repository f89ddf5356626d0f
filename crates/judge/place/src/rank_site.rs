//! Where one rank of a job runs, as its own process sees it.

use std::collections::BTreeMap;

use pathline_schema::{CacheGroup, CpuSet, Gpu, Nic, NumaDomain, PciAddress, Topology};
use serde::{Deserialize, Serialize};

use crate::PlacementPlan;
use crate::rank_places::nearest_nic;
use crate::visible_gpus::visible_gpus;

/// What the process of a rank may use, and where its memory lies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankSite {
    /// Its number in the job.
    pub rank: u32,
    /// Its number among the ranks of its host.
    pub local_rank: u32,
    /// The host's name.
    pub host: String,
    /// Its process there; 0 on a simulated machine.
    pub pid: u32,
    /// CPUs of its affinity mask.
    pub cpus: CpuSet,
    /// Pages that it touched first, by the NUMA domain where they lie; `None` where the kernel does not
    /// report it.
    pub pages: Option<BTreeMap<u32, u64>>,
    /// GPUs that it sees, in its own order.
    pub gpus: Vec<SiteGpu>,
    /// GPUs on the bus of its host, seen or not.
    pub gpus_on_bus: u32,
    /// Why it sees no GPU although the host has some.
    pub without_gpu: Option<String>,
    /// The variables that choose the GPUs which it sees, as `NAME=value`.
    pub gpu_settings: Vec<String>,
    /// What is wrong with them.
    pub gpu_setting_faults: Vec<String>,
    /// The MIG instance that it sees.
    pub gpu_instance: Option<String>,
    /// The network adapter that it would use.
    pub nic: Option<SiteNic>,
    /// Its host.
    pub node: SiteNode,
    /// Whether its GPUs, or all of it, are simulated.
    pub simulated: bool,
}

/// A GPU as a process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteGpu {
    /// Its number in this process.
    pub index: u32,
    /// Its number among all GPUs on the bus, by PCI address; `None` without an address.
    pub host_index: Option<u32>,
    /// PCI address; empty if unknown.
    pub pci: PciAddress,
    /// Its NUMA domain.
    pub numa: Option<u32>,
}

/// A network adapter that a rank would use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteNic {
    /// Interface or device name.
    pub name: String,
    /// Its NUMA domain.
    pub numa: Option<u32>,
    /// The variable that names it; `None` for the nearest adapter.
    pub set_by: Option<String>,
}

/// The parts of a host that placement depends on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SiteNode {
    /// Its logical CPUs.
    pub cpus: CpuSet,
    /// Logical CPUs of each core that has several.
    pub cores: Vec<CpuSet>,
    /// Its NUMA domains: number, CPUs, distance to every domain in the order of their numbers.
    pub numa: Vec<SiteDomain>,
    /// NUMA domains of its network adapters, as far as known.
    pub nics: Vec<u32>,
}

/// A NUMA domain of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteDomain {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Distance to every domain, in the order of their numbers; empty if unknown.
    pub distances: Vec<u32>,
}

/// Variables that name the network adapter of a library: of UCX, NCCL and libfabric's Cassini
/// provider. Sources: UCX, "Frequently asked questions"; NCCL, "Environment variables"; fi_cxi(7).
const NIC_VARIABLES: [&str; 3] = ["UCX_NET_DEVICES", "NCCL_IB_HCA", "FI_CXI_DEVICE_NAME"];

impl RankSite {
    /// A process on a host, with the topology as that process sees it. `pages` are the domains of pages
    /// that it touched, and `env` looks up a variable of its environment.
    pub fn new(
        topology: &Topology,
        pages: Option<BTreeMap<u32, u64>>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let node = SiteNode::new(topology);
        let allowed = &topology.host.allowed_cpus;
        let gpus: Vec<SiteGpu> =
            topology.gpus.iter().map(|gpu| SiteGpu::new(topology, gpu)).collect();
        let mut site = Self {
            host: topology.host.hostname.to_string(),
            cpus: if allowed.is_empty() { node.cpus.clone() } else { allowed.clone() },
            pages,
            gpus_on_bus: u32::try_from(gpus.len() + topology.hidden.gpus.len()).unwrap_or(u32::MAX),
            gpus,
            node,
            ..Self::default()
        };
        site.read_gpu_settings(topology, env);
        let gpu = topology.gpus.first().filter(|_| topology.gpus.len() == 1);
        site.nic = named_nic(&topology.nics, env).or_else(|| {
            let domain = site.node.domains_of(&site.cpus).first().copied();
            let nic = nearest_nic(&topology.nics, gpu, domain)?;
            Some(SiteNic { name: nic.name.clone(), numa: nic.numa, set_by: None })
        });
        site
    }

    /// Compares the variables that choose GPUs with the GPUs that the runtime lists.
    fn read_gpu_settings(&mut self, topology: &Topology, env: &dyn Fn(&str) -> Option<String>) {
        let all = || topology.gpus.iter().chain(&topology.hidden.gpus);
        let Some(first) = all().next() else { return };
        let of_vendor = || all().filter(|gpu| gpu.vendor == first.vendor);
        // Identifiers of GPUs are in no file that every user may read.
        let found = visible_gpus(first.caps(), &vec![None; of_vendor().count()], env);
        let (named, sees) = (found.listed.len(), topology.gpus.len());
        self.gpu_settings = found.settings;
        self.gpu_instance = found.instance;
        // A container may hide the bus: what the runtime lists is right.
        if sees <= named {
            self.gpu_setting_faults = found.faults;
        }
        let settings = self.gpu_settings.join(" ");
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        if sees > 0 && sees < named && !settings.is_empty() {
            self.gpu_setting_faults.push(format!(
                "{settings} shows {named} GPU{} of all on the host, and the runtime lists {sees}: a cgroup or container \
                 hides the others, and numbers count without these",
                plural(named)
            ));
        }
        if let Some((variable, value)) = first.caps().visible_order_env
            && env(variable).as_deref() != Some(value)
            && self.gpu_instance.is_none()
            && !settings.is_empty()
            && of_vendor().any(|gpu| gpu.name != first.name)
        {
            self.gpu_setting_faults.push(format!(
                "{settings} counts the fastest GPU first on this host of unlike GPUs; {variable}={value} makes it count \
                 as tools do"
            ));
        }
    }

    /// The GPU that it uses: the one that it sees.
    pub fn only_gpu(&self) -> Option<&SiteGpu> {
        self.gpus.first().filter(|_| self.gpus.len() == 1)
    }

    /// Whether it may use every CPU of its host.
    pub fn is_unbound(&self) -> bool {
        self.node.cpus.intersect(&self.cpus).len() == self.node.cpus.len()
    }

    /// Share of its first-touched pages that lie outside the NUMA domains of its CPUs, 0 to 1.
    pub fn remote_share(&self) -> Option<f64> {
        let pages = self.pages.as_ref()?;
        let near = self.node.domains_of(&self.cpus);
        let all: u64 = pages.values().sum();
        let remote: u64 =
            pages.iter().filter(|(domain, _)| !near.contains(domain)).map(|(_, n)| n).sum();
        (all > 0 && !near.is_empty()).then(|| remote as f64 / all as f64)
    }
}

impl SiteGpu {
    fn new(topology: &Topology, gpu: &Gpu) -> Self {
        let host_index = topology.gpu_identity(gpu.index).map(|identity| identity.host_index);
        Self { index: gpu.index, host_index, pci: gpu.pci.clone(), numa: gpu.numa }
    }
}

impl SiteNode {
    fn new(topology: &Topology) -> Self {
        let domain = |d: &NumaDomain| SiteDomain {
            id: d.id,
            cpus: d.cpus.clone(),
            distances: d.distances.clone(),
        };
        let numa: Vec<SiteDomain> = topology.numa.iter().map(domain).collect();
        let cpus = numa.iter().fold(topology.host.cpus.clone(), |all, d| all.union(&d.cpus));
        let first_level = |c: &&CacheGroup| c.level == 1 && c.kind != "Instruction";
        let mut cores: Vec<CpuSet> =
            topology.caches.iter().filter(first_level).map(|c| c.cpus.clone()).collect();
        cores.retain(|core| core.len() > 1);
        cores.sort_by(|a, b| a.as_slice().cmp(b.as_slice()));
        cores.dedup();
        let mut nics: Vec<u32> = topology.nics.iter().filter_map(|nic| nic.numa).collect();
        nics.sort_unstable();
        nics.dedup();
        Self { cpus, cores, numa, nics }
    }

    /// The domains that have some of these CPUs, in the order of their numbers.
    pub fn domains_of(&self, cpus: &CpuSet) -> Vec<u32> {
        let has = |d: &&SiteDomain| !d.cpus.intersect(cpus).is_empty();
        self.numa.iter().filter(has).map(|d| d.id).collect()
    }

    /// Distance of two domains as the firmware states it; 10 is local.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        let at = self.numa.iter().position(|d| d.id == to)?;
        self.numa.iter().find(|d| d.id == from)?.distances.get(at).copied()
    }

    /// The core of a CPU: its number among the cores with several CPUs, or the CPU itself.
    pub(crate) fn core_of(&self, cpu: u32) -> (bool, usize) {
        let at = self.cores.iter().position(|core| core.contains(cpu));
        at.map_or((false, cpu as usize), |at| (true, at))
    }
}

/// The first adapter of the host that a variable names. Lists have commas; `=` and `^` of NCCL may stand
/// first, and a name may end in a port, `mlx5_0:1`. A list of what to leave out (`^`) names none.
fn named_nic(nics: &[Nic], env: &dyn Fn(&str) -> Option<String>) -> Option<SiteNic> {
    NIC_VARIABLES.iter().find_map(|variable| {
        let value = env(variable)?;
        let list = value.trim();
        if list.starts_with('^') {
            return None;
        }
        let listed = list.trim_start_matches('=').split(',').find_map(|name| {
            let bare = name.trim().split(':').next().unwrap_or_default();
            nics.iter().find(|nic| nic.name == bare)
        })?;
        let set_by = Some((*variable).to_owned());
        Some(SiteNic { name: listed.name.clone(), numa: listed.numa, set_by })
    })
}

/// Ranks of a simulated node, each where a plan puts it.
pub fn planned_sites(topology: &Topology, plan: &PlacementPlan) -> Vec<RankSite> {
    let node = SiteNode::new(topology);
    let count = u32::try_from(topology.gpus.len()).unwrap_or(u32::MAX);
    let site = |place: &crate::RankPlace| {
        let gpu = topology.gpus.iter().find(|gpu| Some(gpu.index) == place.gpu);
        let nic = nearest_nic(&topology.nics, gpu, place.numa);
        RankSite {
            rank: place.rank,
            local_rank: place.rank,
            host: topology.source.clone(),
            cpus: place.cpus.clone(),
            // A process touches its memory on the CPUs that it has.
            pages: node
                .domains_of(&place.cpus)
                .first()
                .map(|domain| BTreeMap::from([(*domain, 1)])),
            gpus: gpu.map(|gpu| SiteGpu::new(topology, gpu)).into_iter().collect(),
            gpus_on_bus: count,
            nic: nic.map(|n| SiteNic { name: n.name.clone(), numa: n.numa, set_by: None }),
            node: node.clone(),
            simulated: true,
            ..RankSite::default()
        }
    };
    plan.ranks.iter().map(site).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nics() -> Vec<Nic> {
        let nic = |at: u32| Nic { name: format!("mlx5_{at}"), numa: Some(at), ..Nic::default() };
        (0..2).map(nic).collect()
    }

    #[test]
    fn variables_name_the_adapter() {
        let named = |variable: &'static str, value: &'static str| {
            named_nic(&nics(), &move |name| (name == variable).then(|| value.to_owned()))
                .map(|nic| nic.name)
        };
        assert_eq!(named("UCX_NET_DEVICES", "mlx5_1:1,mlx5_0:1").as_deref(), Some("mlx5_1"));
        assert_eq!(named("NCCL_IB_HCA", "=mlx5_0").as_deref(), Some("mlx5_0"));
        assert_eq!(named("NCCL_IB_HCA", "^mlx5_0"), None);
        assert_eq!(named("UCX_NET_DEVICES", "all"), None);
        assert_eq!(named("HOME", "mlx5_0"), None);
    }

    /// 3 of 4 pages in domain 1, and CPUs of domain 0 alone.
    #[test]
    fn pages_elsewhere_are_remote() {
        let domain = |id: u32, cpus: &str| SiteDomain {
            id,
            cpus: cpus.parse().unwrap(),
            distances: Vec::new(),
        };
        let node =
            SiteNode { numa: vec![domain(0, "0-3"), domain(1, "4-7")], ..SiteNode::default() };
        let site = |cpus: &str| RankSite {
            cpus: cpus.parse().unwrap(),
            pages: Some(BTreeMap::from([(0, 1), (1, 3)])),
            node: node.clone(),
            ..RankSite::default()
        };
        assert_eq!(site("0-1").remote_share(), Some(0.75));
        assert_eq!(site("2-5").remote_share(), Some(0.0));
        assert_eq!(RankSite { pages: None, ..site("0") }.remote_share(), None);
    }
}
