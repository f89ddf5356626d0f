//! Counts failures that may leave a GPU unusable, and retires it.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Case, Rank, RankMember, Unit};

use crate::rank::group;

/// Failures that retire a GPU: a single one may be the case's fault, and the runtime is restarted
/// after it.
const RETIRED_AFTER: usize = 2;

/// A GPU of one of the hosts in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device {
    /// The host, as [`Member::node`] numbers it; 0 in a run of one process.
    node: u32,
    unit: Unit,
}

/// Errors after which no call worked, with the GPUs involved.
#[derive(Debug, Default)]
pub(crate) struct DeviceFailures {
    members: Vec<RankMember>,
    errors: Vec<(BTreeSet<Device>, String)>,
    retired: BTreeMap<Device, String>,
}

impl DeviceFailures {
    /// For the processes of the run; empty in a run of one process.
    pub(crate) fn new(members: &[RankMember]) -> Self {
        Self { members: members.to_vec(), ..Self::default() }
    }

    /// Counts an error for the GPUs that move or hold the bytes of a case; an error of some ranks
    /// only for their GPUs. If a retired GPU explains the error, no other GPU is charged. Returns
    /// the names of newly retired GPUs, each with its first error.
    pub(crate) fn count(
        &mut self,
        case: &Case,
        error: &str,
        failed: &[Rank],
    ) -> Vec<(String, String)> {
        let gpus: BTreeSet<Device> = self.charged(case, failed).map(|(_, gpu)| gpu).collect();
        self.errors.push((gpus.clone(), error.to_owned()));
        let against = |gpu: &Device| {
            let unexplained = self
                .errors
                .iter()
                .filter(|(gpus, _)| gpus.contains(gpu))
                .filter(|(gpus, _)| gpus.iter().all(|gpu| !self.retired.contains_key(gpu)));
            let all: Vec<&String> = unexplained.map(|(_, error)| error).collect();
            all.first().filter(|_| all.len() >= RETIRED_AFTER).map(|&first| (*gpu, first.clone()))
        };
        let retired: Vec<(Device, String)> = gpus.iter().filter_map(against).collect();
        self.retired.extend(retired.iter().cloned());
        retired.into_iter().map(|(gpu, first)| (self.name(gpu), first)).collect()
    }

    /// The GPUs to which an error is charged, each with the rank that uses it.
    fn charged(&self, case: &Case, failed: &[Rank]) -> impl Iterator<Item = (Rank, Device)> {
        let involved = self.devices(case).into_iter();
        involved.filter(move |(rank, _)| failed.is_empty() || failed.contains(rank))
    }

    /// Copies out of and into each GPU to which an error is charged, by the process that measures:
    /// they show whether the GPU still works. `None` if that process may call other GPUs by their
    /// numbers: on another host, or where ranks see one GPU each.
    pub(crate) fn copies(&self, case: &Case, failed: &[Rank]) -> Option<Vec<Case>> {
        let mut copies = Vec::new();
        for (rank, Device { node, unit }) in self.charged(case, failed) {
            let gpu = unit.gpu()?;
            let address = |member: &RankMember| {
                let at = member.gpus.iter().position(|&number| number == gpu)?;
                member.gpu_identities.get(at).map(|identity| identity.pci.clone())
            };
            let own = self.member(rank).and_then(address);
            let others = self.members.iter().filter(|m| m.rank != rank && m.node == node);
            let mut named = others.filter(|m| m.gpus.contains(&gpu));
            if node != 0 || named.any(|other| own.is_none() || address(other) != own) {
                return None;
            }
            let numa = self.member(rank).map_or(0, |member| member.numa);
            let (gpu, host) = (format!("{unit}.vram"), format!("numa{numa}.pinned"));
            for (from, to) in [(&gpu, &host), (&host, &gpu)] {
                copies.push(format!("{from} > {to} by dma@{unit} x 1MiB").parse().ok()?);
            }
        }
        copies.sort();
        copies.dedup();
        (!copies.is_empty()).then_some(copies)
    }

    /// A retired GPU that the case needs, by name, with its first error.
    pub(crate) fn retired(&self, case: &Case) -> Option<(String, &str)> {
        let of =
            |(_, gpu): (Rank, Device)| Some((self.name(gpu), self.retired.get(&gpu)?.as_str()));
        self.devices(case).into_iter().find_map(of)
    }

    /// All GPUs of a case, each with the rank that uses it.
    fn devices(&self, case: &Case) -> BTreeSet<(Rank, Device)> {
        let units = case.flows().flat_map(|flow| {
            let ends = [(flow.src.rank, flow.by.at()), (flow.src.rank, flow.src.unit)];
            let ends = ends.into_iter().chain([(flow.dst.rank, flow.dst.unit)]);
            // A collective names its first and last rank only; the ranks between take part too.
            ends.chain(group(flow, &self.members).unwrap_or_default())
        });
        let node = |rank: Rank| self.member(rank).map_or(0, |member| member.node);
        units
            .filter(|(_, unit)| unit.gpu().is_some())
            .map(|(rank, unit)| (rank, Device { node: node(rank), unit }))
            .collect()
    }

    fn member(&self, rank: Rank) -> Option<&RankMember> {
        self.members.iter().find(|member| member.rank == rank)
    }

    fn name(&self, Device { node, unit }: Device) -> String {
        let host = self.members.iter().find(|m| m.node == node).map(|m| m.host.as_str());
        let several = self.members.iter().any(|m| m.node > 0);
        match host.filter(|_| several) {
            Some(host) => format!("{unit} of {host}"),
            None => unit.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::GpuIdentity;

    fn case(text: &str) -> Case {
        text.parse().unwrap()
    }

    fn named(gpu: &str, first: &str) -> Vec<(String, String)> {
        vec![(gpu.to_owned(), first.to_owned())]
    }

    /// A process with one GPU.
    fn member(rank: u32, node: u32, gpu: u32) -> RankMember {
        RankMember {
            gpu_identities: Vec::new(),
            rank: Rank(rank),
            host: format!("host{node}"),
            node,
            pid: rank,
            gpus: vec![gpu],
            numa: 0,
            cpus: String::new(),
            ways: BTreeMap::new(),
            without: BTreeMap::new(),
            gpu: None,
            host_only: BTreeMap::new(),
            device_memory: BTreeMap::new(),
        }
    }

    #[test]
    fn the_second_error_retires_every_gpu_of_both_cases_only() {
        let mut failures = DeviceFailures::default();
        let to = |a: u32, b: u32| case(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB"));
        assert_eq!(failures.count(&to(0, 7), "first", &[]), []);
        assert!(failures.retired(&to(0, 7)).is_none());
        // GPU 7 was in both, 0 and 1 in one each.
        assert_eq!(failures.count(&to(1, 7), "second", &[]), named("gpu7", "first"));
        assert_eq!(failures.retired(&to(7, 2)), Some(("gpu7".to_owned(), "first")));
        assert!(failures.retired(&to(0, 1)).is_none());
        // It is retired once.
        assert_eq!(failures.count(&to(7, 7), "third", &[]), []);
        // GPU 7 explains both errors: GPUs 0 and 1 have none.
        assert_eq!(failures.count(&to(0, 1), "fourth", &[]), []);
        assert_eq!(failures.count(&to(0, 2), "fifth", &[]), named("gpu0", "fourth"));
    }

    #[test]
    fn the_host_is_never_retired() {
        let mut failures = DeviceFailures::default();
        let host = case("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB");
        for _ in 0..5 {
            assert_eq!(failures.count(&host, "error", &[]), []);
        }
        assert!(failures.retired(&host).is_none());
    }

    /// A collective names only GPUs 0 and 2; rank 1, which died in both, has GPU 1.
    #[test]
    fn a_rank_that_dies_is_charged_to_its_own_gpu() {
        let mut failures = DeviceFailures::new(&[0, 1, 2].map(|rank| member(rank, 0, rank)));
        let sum = case("r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB");
        let ping = case("r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[ping] x 8B");
        assert_eq!(failures.count(&sum, "first", &[Rank(1)]), []);
        assert_eq!(failures.count(&sum, "second", &[Rank(1)]), named("gpu1", "first"));
        assert_eq!(failures.retired(&sum), Some(("gpu1".to_owned(), "first")));
        assert!(failures.retired(&ping).is_none(), "gpu0 and gpu2 did nothing wrong");
        // A rank without a part in a case does not exonerate the ranks that have one.
        assert_eq!(failures.count(&ping, "third", &[Rank(1)]), []);
        assert_eq!(failures.count(&ping, "fourth", &[Rank(1)]), []);
    }

    #[test]
    fn copies_test_the_gpus_that_this_process_calls_by_the_same_number() {
        let failures = DeviceFailures::new(&[0, 1].map(|rank| member(rank, 0, rank)));
        let ping = case("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[ping] x 8B");
        let copies = |failures: &DeviceFailures, failed: &[Rank]| -> Option<Vec<String>> {
            Some(failures.copies(&ping, failed)?.iter().map(Case::to_string).collect())
        };
        let of_gpu1 = copies(&failures, &[Rank(1)]).unwrap();
        assert_eq!(of_gpu1.len(), 2, "{of_gpu1:?}");
        assert!(of_gpu1.iter().all(|copy| copy.contains("gpu1.vram")), "{of_gpu1:?}");
        assert_eq!(copies(&failures, &[]).unwrap().len(), 4);
        // On another host, and of ranks that all call their GPU by one number.
        let far = DeviceFailures::new(&[member(0, 0, 0), member(1, 1, 1)]);
        assert_eq!(copies(&far, &[Rank(1)]), None);
        let at = |rank, pci: &str| RankMember {
            gpu_identities: vec![GpuIdentity { pci: pci.parse().unwrap(), host_index: 0 }],
            ..member(rank, 0, 1)
        };
        let masked = DeviceFailures::new(&[at(0, "0000:c1:00.0"), at(1, "0000:c6:00.0")]);
        assert_eq!(copies(&masked, &[Rank(1)]), None);
        // Both ranks use one GPU.
        let shared = DeviceFailures::new(&[at(0, "0000:c1:00.0"), at(1, "0000:c1:00.0")]);
        assert_eq!(copies(&shared, &[Rank(1)]).unwrap().len(), 2);
    }

    #[test]
    fn gpus_of_two_hosts_are_two() {
        let mut failures = DeviceFailures::new(&[member(0, 0, 0), member(1, 1, 0)]);
        let ping = case("r0.gpu0.vram > r1.gpu0.vram by ccl@gpu0[ping] x 8B");
        let local = |rank| case(&format!("r{rank}.gpu0.vram > r{rank}.gpu0.vram by dma@gpu0 x 8B"));
        assert_eq!(failures.count(&ping, "first", &[Rank(1)]), []);
        assert_eq!(failures.count(&ping, "second", &[Rank(1)]), named("gpu0 of host1", "first"));
        assert!(failures.retired(&local(0)).is_none());
        assert_eq!(failures.retired(&local(1)), Some(("gpu0 of host1".to_owned(), "first")));
    }
}
