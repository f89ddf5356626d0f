//! Estimates the duration of probes before any is measured.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::Network;
use pathline_schema::{Bytes, Case, Flow, MemKind, Ns, Rate, Topology};

use crate::plan::{PlannedCase, RunPlan};
use crate::pool;
use crate::suites::queue;

/// Operations of a case that soon becomes precise: calibration, warm-up, samples, verification.
/// Lone paths and pairs between GPUs took 14 to 16 on four H200s.
const OPERATIONS: f64 = 15.0;
/// Minimum of any case: two to calibrate, three samples, one to verify.
const MIN_OPERATIONS: f64 = 6.0;
/// Cost of a case apart from its operations: streams, spoiling and comparing its bytes, the states
/// of its GPUs; 451 cases on four H200s took 12 to 20 ms each, without page-locking.
const HANDLING: Ns = Ns::ms(20.0);
/// Page-locking, ns a byte: 353 ms a GiB on a node of H200s.
const LOCKING: f64 = 353e6 / (1u64 << 30) as f64;
/// Host links whose rates host memory gives at once: four H200s of 55 GB/s got 163 in all.
const HOST_LINKS: f64 = 3.0;
/// Rate of an unknown path, GB/s.
const UNKNOWN: Rate = Rate(50.0);

/// Estimated duration of the probes of a plan, from the peaks in the topology; zero without probes.
/// Page-locked buffers are kept, so each counts once.
pub fn probes(plan: &RunPlan, topology: &Topology) -> Ns {
    let network = Network::from_topology(topology);
    let mut rates: BTreeMap<String, Rate> = BTreeMap::new();
    let mut rate = |flow: &Flow| {
        let path = format!("{} > {} by {}", flow.src, flow.dst, flow.by);
        let ceiling = |flow| network.explain(flow).ok().map(|e| e.bound.map_or(e.peak, |b| b.0));
        *rates.entry(path).or_insert_with(|| ceiling(flow).unwrap_or(UNKNOWN))
    };
    let mut locked = BTreeSet::new();
    let mut total = Ns::ZERO;
    for PlannedCase { case, budget, .. } in plan.entries.iter().filter(|e| e.skip.is_none()) {
        let Some(budget) = budget else { continue };
        let once = once(case, &mut rate);
        let host = case.flows().filter(|f| is_host(f)).count();
        // Copies that share host memory rarely become precise within their budget.
        let wanted = if host > 1 { budget.0 } else { (once.0 * OPERATIONS).min(budget.0) };
        let new: u64 = pool::buffers(case)
            .filter(|(key, _)| key.place.mem == MemKind::Pinned && locked.insert(*key))
            .map(|(_, Bytes(bytes))| bytes)
            .sum();
        total =
            total + Ns((once.0 * MIN_OPERATIONS).max(wanted)) + HANDLING + Ns(new as f64 * LOCKING);
    }
    total
}

/// About how long a plan takes on hardware: probes as [`probes`] says, other cases by their kind. In runs
/// that are kept as fixtures a case of a GPU took 0.14 to 0.25 s (H200 x4, 401 cases in 71 s), of storage
/// 1.2 to 1.8 s, of messages 0.2 to 0.4 s, of collectives of GPUs 0.05 s with a fifth of the usual time; one
/// of CPU threads takes its 0.25 s, and more where pages are touched first.
pub fn plan_time(plan: &RunPlan, topology: &Topology) -> Ns {
    let others = plan.entries.iter().filter(|e| e.skip.is_none() && e.budget.is_none());
    let seconds: f64 = others.map(|entry| case_seconds(&entry.case)).sum();
    probes(plan, topology) + Ns::secs(seconds)
}

fn case_seconds(case: &Case) -> f64 {
    let any = |is: fn(&Flow) -> bool| case.flows().any(is);
    if any(|f| f.by.is_on_files()) {
        1.5
    } else if any(|f| f.by.wire().is_some()) {
        0.3
    } else if any(|f| f.by.workers().is_some()) {
        0.7
    } else {
        0.18
    }
}

fn is_host(flow: &Flow) -> bool {
    [flow.src, flow.dst].iter().any(|place| place.unit.numa().is_some())
}

/// Duration of one operation of all flows: flows in one queue, or that share host memory, add up.
fn once(case: &Case, rate: &mut impl FnMut(&Flow) -> Rate) -> Ns {
    let mut queues: BTreeMap<_, f64> = BTreeMap::new();
    let mut host = 0.0;
    for flow in case.flows() {
        let alone = rate(flow).time(flow.bytes).0;
        *queues.entry(queue(flow)).or_default() += alone;
        if is_host(flow) {
            host += alone / HOST_LINKS;
        }
    }
    Ns(queues.into_values().fold(host, f64::max))
}

#[cfg(test)]
mod tests {

    use pathline_flow::MachineDesc;

    use super::*;
    use crate::PlanScope;

    fn estimate(topology: &Topology, suites: &[&str], cases: &[&str]) -> f64 {
        let scope = PlanScope { simulated: true, ..PlanScope::new(topology, Bytes::gib(256)) };
        let suites: Vec<String> = suites.iter().map(|&s| s.to_owned()).collect();
        let cases: Vec<_> = cases.iter().map(|c| c.parse().unwrap()).collect();
        probes(&RunPlan::new(&scope, &suites, &cases).unwrap(), topology).as_secs()
    }

    fn hgx(gpus: usize) -> Topology {
        let mut topology = MachineDesc::preset("hgx-h200").unwrap().topology();
        topology.gpus.truncate(gpus);
        topology
    }

    #[test]
    fn a_twin_is_measured_within_a_minute() {
        let seconds = [2, 4, 8].map(|gpus| estimate(&hgx(gpus), &["contention"], &[]));
        // About 27, 100 and 575 cases of 20 to 80 ms.
        assert!((1.0..4.0).contains(&seconds[0]), "{seconds:?}");
        assert!((4.0..15.0).contains(&seconds[1]), "{seconds:?}");
        assert!((20.0..60.0).contains(&seconds[2]), "{seconds:?}");
        let mi250x = MachineDesc::preset("mi250x").unwrap().topology();
        assert!(estimate(&mi250x, &["contention"], &[]) < 60.0);
        assert_eq!(estimate(&hgx(8), &["pairs"], &[]), 0.0);
    }

    /// One copy of 64 MiB in over PCIe 5 at its peak of 63 GB/s, or somewhat less by its packet
    /// overhead: 1.06 to 1.3 ms, 15 times; 20 ms of handling; 64 MiB page-locked at 353 ms a GiB:
    /// 22.1 ms.
    #[test]
    fn of_one_case() {
        let case = "numa0.pinned > gpu0.vram by dma@gpu0 x 64MiB";
        let once = |cases| estimate(&hgx(1), &["contention"], cases);
        let seconds = once(&[case]);
        let least = 15.0 * 1.06e-3 + 0.020 + 0.022;
        assert!((least..least + 15.0 * 0.24e-3).contains(&seconds), "{seconds}");
    }

    /// Seconds of a plan: files, messages, CPU threads, GPUs; nothing for a case that cannot run.
    #[test]
    fn a_case_takes_what_its_kind_took() {
        let topology = hgx(2);
        for (cases, expected) in [
            (
                &[
                    "store0.file > numa0.huge by uring@numa0[seq-read,direct,own,1GiB,q8,n1,t2] x 1MiB",
                ][..],
                1.5,
            ),
            (&["r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping] x 8B"], 0.3),
            (&["numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB"], 0.7),
            (
                &[
                    "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
                    "gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB",
                ],
                0.36,
            ),
        ] {
            let entries: Vec<PlannedCase> =
                cases.iter().map(|text| PlannedCase::new(text.parse().unwrap())).collect();
            let mut plan = RunPlan { entries };
            let seconds = |plan: &RunPlan| plan_time(plan, &topology).as_secs();
            assert!((seconds(&plan) - expected).abs() < 1e-9, "{cases:?}: {}", seconds(&plan));
            plan.entries[0].skip = Some("no".to_owned());
            assert!(seconds(&plan) < expected - 0.1);
            // A probe counts by its bytes instead, unless it cannot run.
            plan.entries[0].budget = Some(Ns::secs(1.0));
            let without = seconds(&plan);
            plan.entries[0].skip = None;
            assert!(seconds(&plan) > without, "{cases:?}");
        }
    }
}
