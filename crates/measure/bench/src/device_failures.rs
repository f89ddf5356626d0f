//! Counts failures that may leave a GPU, or the path between two, unusable, and retires it.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::Network;
use pathline_schema::{Case, LinkEnd, Rank, RankMember, Topology, Unit};

use crate::rank::group;

/// Failures that retire a GPU: a single one may be the case's fault, and the runtime is restarted
/// after it.
const RETIRED_AFTER: usize = 2;

/// A GPU, or a NUMA domain that it copies from or to, of one of the hosts in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device {
    /// The host, as [`Member::node`] numbers it; 0 in a run of one process.
    node: u32,
    unit: Unit,
}

impl Device {
    fn is_gpu(&self) -> bool {
        self.unit.gpu().is_some()
    }
}

/// Errors after which no call worked, with the units involved.
#[derive(Debug, Default)]
pub(crate) struct DeviceFailures {
    members: Vec<RankMember>,
    /// What copies between GPUs pass.
    network: Option<Network>,
    errors: Vec<(BTreeSet<Device>, String)>,
    /// GPUs that moved bytes after an error with them.
    working: BTreeSet<Device>,
    /// A GPU that fails, or a set of GPUs that fail together, with the first error.
    retired: BTreeMap<BTreeSet<Device>, String>,
}

impl DeviceFailures {
    /// For the processes of the run; empty in a run of one process.
    pub(crate) fn new(members: &[RankMember], topology: &Topology) -> Self {
        let network = Some(Network::from_topology(topology));
        Self { members: members.to_vec(), network, ..Self::default() }
    }

    /// Counts an error for the GPUs that move, hold or forward the bytes of a case; an error of some ranks
    /// only for their GPUs. If a retired GPU explains the error, no other GPU is charged, nor one that has
    /// worked since an error while another of the case has not. Where two errors have a GPU and other units
    /// in common, these are retired together: other cases of the GPU go on. Returns the name of what is
    /// newly retired, with its first error.
    pub(crate) fn count(
        &mut self,
        case: &Case,
        error: &str,
        failed: &[Rank],
    ) -> Vec<(String, String)> {
        let gpus: BTreeSet<Device> = self.charged(case, failed).map(|(_, gpu)| gpu).collect();
        self.errors.push((gpus.clone(), error.to_owned()));
        let against = |gpu: &Device| -> Option<(BTreeSet<Device>, String)> {
            let explains =
                |retired: &BTreeSet<Device>| retired.len() == 1 || !retired.contains(gpu);
            let is_explained = |gpus: &BTreeSet<Device>| {
                self.retired.keys().any(|retired| explains(retired) && retired.is_subset(gpus))
            };
            let unexplained = self.errors.iter().filter(|(gpus, _)| !is_explained(gpus));
            let blamed = unexplained.map(|(gpus, error)| (self.blamed(gpus), error));
            let all: Vec<_> = blamed.filter(|(gpus, _)| gpus.contains(gpu)).collect();
            let first = all.first().filter(|_| all.len() >= RETIRED_AFTER)?.1.clone();
            Some((all.into_iter().map(|(gpus, _)| gpus).reduce(|a, b| &a & &b)?, first))
        };
        let gpus = gpus.iter().filter(|gpu| gpu.is_gpu());
        let mut retired: BTreeMap<BTreeSet<Device>, String> = gpus.filter_map(against).collect();
        retired.retain(|gpus, _| !self.retired.contains_key(gpus));
        self.retired.extend(retired.clone());
        retired.into_iter().map(|(gpus, first)| (self.names(&gpus), first)).collect()
    }

    /// Whether a case is of several GPUs, and none of them is retired for an error: then copies of each alone tell which
    /// one to blame, or that it is the path between them.
    pub(crate) fn is_between(&self, case: &Case) -> bool {
        let gpus = self.devices(case).into_iter().map(|(_, gpu)| gpu).filter(Device::is_gpu);
        let gpus: BTreeSet<Device> = gpus.collect();
        let is_explained = self.retired.keys().any(|retired| retired.is_subset(&gpus));
        gpus.len() > 1 && !is_explained && case.flows().all(|flow| flow.by.wire().is_none())
    }

    /// Notes the GPUs that copied with the host in both directions.
    pub(crate) fn note_copies(&mut self, copies: &[Case]) {
        let all = copies.iter().flat_map(|case| self.devices(case)).map(|(_, device)| device);
        let all: Vec<Device> = all.filter(Device::is_gpu).collect();
        let is_both = |gpu: &Device| all.iter().filter(|other| *other == gpu).count() > 1;
        self.working.extend(all.iter().copied().filter(is_both));
    }

    /// Notes that a case moved bytes.
    pub(crate) fn note_work(&mut self, case: &Case) {
        let has_failed =
            |gpu: &Device| gpu.is_gpu() && self.errors.iter().any(|(gpus, _)| gpus.contains(gpu));
        let gpus = self.devices(case).into_iter().map(|(_, gpu)| gpu);
        let working: Vec<Device> = gpus.filter(has_failed).collect();
        self.working.extend(working);
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// GPUs of an error that may be its cause.
    fn blamed(&self, gpus: &BTreeSet<Device>) -> BTreeSet<Device> {
        let idle = gpus - &self.working;
        if idle.is_empty() { gpus.clone() } else { idle }
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
        let charged = self.charged(case, failed).filter(|(_, device)| device.is_gpu());
        for (rank, Device { node, unit }) in charged {
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

    /// The retired GPU, or set of GPUs, that the case needs: its name and first error.
    pub(crate) fn retired(&self, case: &Case) -> Option<(String, &str)> {
        let gpus: BTreeSet<Device> = self.devices(case).into_iter().map(|(_, gpu)| gpu).collect();
        let (retired, why) = self.retired.iter().find(|(retired, _)| retired.is_subset(&gpus))?;
        Some((self.names(retired), why))
    }

    /// All GPUs of a case, each with the rank that uses it.
    fn devices(&self, case: &Case) -> BTreeSet<(Rank, Device)> {
        let units = case.flows().flat_map(|flow| {
            let ends = [(flow.src.rank, flow.by.at()), (flow.src.rank, flow.src.unit)];
            let ends = ends.into_iter().chain([(flow.dst.rank, flow.dst.unit)]);
            let is_message = flow.by.wire().is_some();
            let network = self.network.as_ref().filter(|_| !is_message);
            let route = network.and_then(|network| network.operation(flow).ok()).map(|o| o.route);
            let passed = route.into_iter().flatten().filter_map(|end| match end {
                LinkEnd::Gpu(gpu) => Some((flow.src.rank, Unit::Gpu(gpu))),
                _ => None,
            });
            let ends = ends.chain(passed);
            // A collective names its first and last rank only; the ranks between take part too.
            ends.chain(group(flow, &self.members).unwrap_or_default())
        });
        let node = |rank: Rank| self.member(rank).map_or(0, |member| member.node);
        units.map(|(rank, unit)| (rank, Device { node: node(rank), unit })).collect()
    }

    fn member(&self, rank: Rank) -> Option<&RankMember> {
        self.members.iter().find(|member| member.rank == rank)
    }

    fn names(&self, gpus: &BTreeSet<Device>) -> String {
        gpus.iter().map(|gpu| self.name(*gpu)).collect::<Vec<_>>().join(" with ")
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
pub(crate) mod tests {
    use super::*;
    use pathline_schema::GpuIdentity;

    fn case(text: &str) -> Case {
        text.parse().unwrap()
    }

    fn made(members: &[RankMember]) -> DeviceFailures {
        DeviceFailures::new(members, &Topology::default())
    }

    fn named(gpu: &str, first: &str) -> Vec<(String, String)> {
        vec![(gpu.to_owned(), first.to_owned())]
    }

    /// A process with one GPU.
    pub(crate) fn member(rank: u32, node: u32, gpu: u32) -> RankMember {
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

    /// Two errors of one pair retire the pair, and a third of another tells which GPU it is. One that copies in
    /// between is not charged with what it shares with others.
    #[test]
    fn a_pair_is_retired_before_either_of_its_gpus() {
        let to = |a: u32, b: u32| case(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB"));
        let mut failures = made(&[]);
        assert_eq!(failures.count(&to(2, 3), "first", &[]), []);
        assert_eq!(failures.count(&to(3, 2), "second", &[]), named("gpu2 with gpu3", "first"));
        assert!(failures.retired(&to(2, 3)).is_some() && failures.retired(&to(2, 1)).is_none());
        // Another case of the pair was running.
        assert_eq!(failures.count(&to(2, 3), "at once", &[]), []);
        assert_eq!(failures.count(&to(0, 3), "third", &[]), named("gpu3", "first"));
        // GPUs 3 and 5 hang, and GPU 0 copies to GPU 4 between its two errors.
        let mut failures = made(&[]);
        assert_eq!(failures.count(&to(0, 3), "first", &[]), []);
        failures.note_work(&to(0, 4));
        assert_eq!(failures.count(&to(0, 5), "second", &[]), []);
        assert_eq!(failures.count(&to(1, 3), "third", &[]), named("gpu3", "first"));
        assert_eq!(failures.count(&to(1, 5), "fourth", &[]), named("gpu5", "second"));
        assert!(failures.retired(&to(0, 1)).is_none());
    }

    /// gpu1 copies to gpu2 through gpu0, which has failed with its host memory: the third error is its own.
    #[test]
    fn a_gpu_that_forwards_is_charged() {
        let desc = pathline_flow::MachineDesc::preset("mi250x").expect("a preset");
        let mut failures = DeviceFailures::new(&[], &desc.topology());
        let copy = case("gpu1.vram > gpu2.vram by dma@gpu1 x 1MiB");
        let routed = failures.devices(&copy);
        assert_eq!(routed.len(), 3, "{routed:?}");
        let host = case("gpu0.vram > numa3.pinned by dma@gpu0 x 1MiB");
        assert_eq!(failures.count(&host, "first", &[]), []);
        assert_eq!(failures.count(&host, "second", &[]), named("gpu0 with numa3", "first"));
        assert_eq!(failures.count(&copy, "third", &[]), named("gpu0", "first"));
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
        let mut failures = made(&[0, 1, 2].map(|rank| member(rank, 0, rank)));
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
        let failures = made(&[0, 1].map(|rank| member(rank, 0, rank)));
        let ping = case("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[ping] x 8B");
        let copies = |failures: &DeviceFailures, failed: &[Rank]| -> Option<Vec<String>> {
            Some(failures.copies(&ping, failed)?.iter().map(Case::to_string).collect())
        };
        let of_gpu1 = copies(&failures, &[Rank(1)]).unwrap();
        assert_eq!(of_gpu1.len(), 2, "{of_gpu1:?}");
        assert!(of_gpu1.iter().all(|copy| copy.contains("gpu1.vram")), "{of_gpu1:?}");
        assert_eq!(copies(&failures, &[]).unwrap().len(), 4);
        // On another host, and of ranks that all call their GPU by one number.
        let far = made(&[member(0, 0, 0), member(1, 1, 1)]);
        assert_eq!(copies(&far, &[Rank(1)]), None);
        let at = |rank, pci: &str| RankMember {
            gpu_identities: vec![GpuIdentity { pci: pci.parse().unwrap(), host_index: 0 }],
            ..member(rank, 0, 1)
        };
        let masked = made(&[at(0, "0000:c1:00.0"), at(1, "0000:c6:00.0")]);
        assert_eq!(copies(&masked, &[Rank(1)]), None);
        // Both ranks use one GPU.
        let shared = made(&[at(0, "0000:c1:00.0"), at(1, "0000:c1:00.0")]);
        assert_eq!(copies(&shared, &[Rank(1)]).unwrap().len(), 2);
    }

    #[test]
    fn gpus_of_two_hosts_are_two() {
        let mut failures = made(&[member(0, 0, 0), member(1, 1, 0)]);
        let ping = case("r0.gpu0.vram > r1.gpu0.vram by ccl@gpu0[ping] x 8B");
        let local = |rank| case(&format!("r{rank}.gpu0.vram > r{rank}.gpu0.vram by dma@gpu0 x 8B"));
        assert_eq!(failures.count(&ping, "first", &[Rank(1)]), []);
        assert_eq!(failures.count(&ping, "second", &[Rank(1)]), named("gpu0 of host1", "first"));
        assert!(failures.retired(&local(0)).is_none());
        assert_eq!(failures.retired(&local(1)), Some(("gpu0 of host1".to_owned(), "first")));
    }

    /// Each GPU of a case once, out and in, in order; no host. A GPU that worked since its error is not blamed.
    #[test]
    fn the_copies_that_show_whether_gpus_work_are_listed_once() {
        let mut failures = made(&[]);
        let both = case(
            "gpu1.vram > gpu0.vram by dma@gpu1 x 1GiB & numa0.pinned > gpu1.vram by dma@gpu1 x 1GiB",
        );
        let copies = failures.copies(&both, &[]).map(|all| {
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ").replace("r0.", "")
        });
        let of = |gpu: &str| {
            let copy = |from: String, to: String| format!("{from} > {to} by dma@{gpu} x 1MiB");
            let (own, host) = (format!("{gpu}.vram"), "numa0.pinned".to_owned());
            [copy(own.clone(), host.clone()), copy(host, own)]
        };
        let mut expected: Vec<Case> =
            ["gpu0", "gpu1"].iter().flat_map(|gpu| of(gpu)).map(|c| case(&c)).collect();
        expected.sort();
        let expected: Vec<String> =
            expected.iter().map(|c| c.to_string().replace("r0.", "")).collect();
        assert_eq!(copies, Some(expected.join("; ")));
        assert!(!failures.has_errors());
        failures.count(&case("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"), "first", &[]);
        failures.count(&case("gpu2.vram > gpu3.vram by dma@gpu2 x 1MiB"), "second", &[]);
        assert!(failures.has_errors());
        // GPU 1 works after its error, which is one of two: only GPU 0 is blamed for both of its errors.
        failures.note_work(&case("gpu1.vram > gpu1.vram by blit@gpu1 x 1MiB"));
        let retired =
            failures.count(&case("gpu0.vram > gpu1.vram by dma@gpu0 x 2MiB"), "third", &[]);
        assert_eq!(retired, named("gpu0", "first"));
    }
}
