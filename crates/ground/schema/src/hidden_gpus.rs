//! GPUs of a host that this process may not use, and the numbers that GPUs have on their host.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Gpu, GpuRoute, Link, PciAddress, RankMember, Topology};

/// GPUs on the bus that the runtime does not list, because a variable such as `ROCR_VISIBLE_DEVICES`
/// or a container hides them, with their links. Their numbers follow those of the listed GPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenGpus {
    /// The GPUs.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Links with such a GPU at one end or both.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Routes that start, pass or end at such a GPU.
    #[serde(default)]
    pub routes: Vec<GpuRoute>,
}

impl HiddenGpus {
    /// Whether no GPU is hidden.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }
}

/// The identity of a GPU on its host, which no visibility variable changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuIdentity {
    /// PCI address: `0000:c1:00.0`.
    pub pci: PciAddress,
    /// Number among all GPUs on the bus of its host, in the order of their PCI addresses, from 0.
    pub host_index: u32,
}

impl Topology {
    /// The node with its hidden GPUs as if they were listed: what routes and ceilings depend on.
    pub fn whole_node(&self) -> Cow<'_, Self> {
        if self.hidden.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut whole = self.clone();
        let HiddenGpus { gpus, links, routes } = std::mem::take(&mut whole.hidden);
        whole.gpus.extend(gpus);
        whole.links.extend(links);
        whole.routes.extend(routes);
        Cow::Owned(whole)
    }

    /// The identity of a GPU by its number here; `None` without a PCI address.
    pub fn gpu_identity(&self, index: u32) -> Option<GpuIdentity> {
        let all = || self.gpus.iter().chain(&self.hidden.gpus);
        let pci = &all().find(|gpu| gpu.index == index)?.pci;
        if pci.is_empty() {
            return None;
        }
        let before = all().filter(|gpu| !gpu.pci.is_empty() && gpu.pci < *pci).count();
        Some(GpuIdentity { pci: pci.clone(), host_index: u32::try_from(before).ok()? })
    }

    /// What its host calls the listed GPUs, where variables or options renumber them: `gpu0 = GPU 2 of its host,
    /// gpu1 = GPU 3`. `None` where both number them alike or addresses are unknown.
    pub fn renumbered_gpus(&self) -> Option<String> {
        let known = self
            .gpus
            .iter()
            .filter_map(|gpu| Some((gpu.index, self.gpu_identity(gpu.index)?.host_index)));
        let mut changed = known.filter(|(here, host)| here != host);
        let (here, host) = changed.next()?;
        let others = changed.map(|(here, host)| format!(", gpu{here} = GPU {host}"));
        Some(format!("gpu{here} = GPU {host} of its host") + &others.collect::<String>())
    }

    /// The number here of the GPU with a PCI address, hidden or not.
    pub fn gpu_at(&self, pci: &str) -> Option<u32> {
        let all = self.gpus.iter().chain(&self.hidden.gpus);
        let mut all = all.filter(|gpu| !gpu.pci.is_empty());
        all.find(|gpu| gpu.pci == *pci).map(|gpu| gpu.index)
    }

    /// The number here of a GPU of a rank on this node. The rank may call it otherwise; `gpu` is its
    /// number, which also holds here where identities are unknown.
    pub fn gpu_of_rank(&self, member: &RankMember, gpu: u32) -> u32 {
        member.identity(gpu).and_then(|identity| self.gpu_at(&identity.pci)).unwrap_or(gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, pci: &str) -> Gpu {
        Gpu { index, pci: pci.parse().unwrap(), ..Gpu::default() }
    }

    /// A process that sees the GPU at c1 alone, of three.
    fn masked() -> Topology {
        let hidden = HiddenGpus {
            gpus: vec![gpu(1, "0000:05:00.0"), gpu(2, "0000:d6:00.0")],
            ..HiddenGpus::default()
        };
        Topology { gpus: vec![gpu(0, "0000:c1:00.0")], hidden, ..Topology::default() }
    }

    #[test]
    fn a_hidden_gpu_counts_on_the_bus() {
        let topology = masked();
        // 05 < c1 < d6.
        for (index, host_index) in [(0, 1), (1, 0), (2, 2)] {
            assert_eq!(topology.gpu_identity(index).unwrap().host_index, host_index);
        }
        assert_eq!(topology.gpu_identity(3), None);
        assert_eq!(topology.renumbered_gpus().unwrap(), "gpu0 = GPU 1 of its host");
        assert_eq!(
            topology.whole_node().into_owned().renumbered_gpus().unwrap().matches('=').count(),
            2
        );
        assert_eq!(Topology::default().renumbered_gpus(), None);
        assert_eq!(topology.gpu_at("0000:d6:00.0"), Some(2));
        assert_eq!((topology.gpu_at("0000:00:00.0"), topology.gpu_at("")), (None, None));
    }

    #[test]
    fn ranks_that_call_their_gpus_alike_have_different_ones() {
        let topology = masked();
        let member = |pci: &str| RankMember {
            gpus: vec![0],
            gpu_identities: vec![GpuIdentity { pci: pci.parse().unwrap(), host_index: 0 }],
            ..RankMember::default()
        };
        assert_eq!(topology.gpu_of_rank(&member("0000:c1:00.0"), 0), 0);
        assert_eq!(topology.gpu_of_rank(&member("0000:d6:00.0"), 0), 2);
        let unknown = RankMember { gpus: vec![1], ..RankMember::default() };
        assert_eq!(topology.gpu_of_rank(&unknown, 1), 1);
    }

    #[test]
    fn the_whole_node_lists_every_gpu() {
        let topology = masked();
        let whole = topology.whole_node();
        assert_eq!((whole.gpus.len(), whole.hidden.is_empty()), (3, true));
        let unmasked = Topology { hidden: HiddenGpus::default(), ..masked() };
        assert!(matches!(unmasked.whole_node(), Cow::Borrowed(_)));
    }

    #[test]
    fn a_gpu_without_an_address_has_no_identity() {
        let topology = Topology { gpus: vec![gpu(0, "")], ..Topology::default() };
        assert_eq!(topology.gpu_identity(0), None);
    }
}
