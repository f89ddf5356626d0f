//! What a check of a node measures.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_schema::NumaDomain;

use super::*;

fn plan(machine: &str) -> HealthPlan {
    let desc = MachineDesc::preset(machine).unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    HealthPlan::new(&desc.topology(), Some(&network), 0.03)
}

#[test]
fn kernels_are_probes_where_engines_are_blind() {
    // An engine of 50 GB/s leaves three of four xGMI links unused: only kernels see one missing.
    let plan = plan("mi250x");
    let seen = |element: &str, kernels: bool| {
        let edit = plan.edits.iter().find(|edit| edit.element == element).unwrap();
        edit.exposures.iter().any(|exposure| {
            let probe = &plan.probes[exposure.probe];
            let is_kernel = !matches!(probe.case.timed[0].by, Mover::Dma { .. });
            is_kernel == kernels && exposure.slowdown(edit.least) > 0.03
        })
    };
    assert!(!seen("xGMI gpu0>gpu1", false) && seen("xGMI gpu0>gpu1", true));
    assert!(seen("xGMI gpu0>gpu2", false), "one link is narrower than the engine");
    let blind = |part: &String| part.contains("xGMI");
    assert!(!plan.unseen.iter().any(blind), "{:?}", plan.unseen);
}

#[test]
fn a_plan_measures_every_pair_and_host_link_and_fits_the_budget() {
    for machine in ["mi250x", "hgx-h200"] {
        let plan = plan(machine);
        let by_engine = |probe: &&HealthProbe| matches!(probe.case.timed[0].by, Mover::Dma { .. });
        let tails = |tail| {
            let of_tail = |p: &&HealthProbe| plan.classes[p.class].tail == tail;
            plan.probes.iter().filter(by_engine).filter(of_tail).count()
        };
        assert_eq!(tails(TailKind::GpuLink), 56, "{machine}");
        assert!(tails(TailKind::HostLink) >= 16, "{machine}");
        // 12 rounds clear a path, 25 fail it; of five seconds some go to the start of processes.
        let round = plan.round_ns().unwrap();
        assert!(round < 0.2e9, "{machine}: {round} ns");
        let members: usize = plan.classes.iter().map(|class| class.paths).sum();
        assert_eq!(members, plan.probes.len());
        let standing = plan.probes.iter().take(plan.standing).map(|probe| probe.class);
        let later = plan.probes.iter().skip(plan.standing).map(|probe| probe.class);
        let first = later.min().unwrap_or(plan.classes.len());
        assert!(standing.max() < Some(first), "{machine}: a class is whole");
    }
}

/// Pairs that a symmetry exchanges are peers if a description gives them rates within 0.25 % of each other: of 400,
/// 400.9 and 402 GB/s the first two. All of them have one size.
#[test]
fn pairs_with_different_rates_are_no_peers() {
    let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
    let pair = |(peer, rate): (u32, f64)| PlannedFlow {
        flows: vec![pair_flows(&topology, 0, peer)[0]],
        shape: Some(FlowShape { rate, start: 0.0, limits: BTreeMap::new() }),
        class: 0,
        described: true,
    };
    let mut pairs = [(1, 400.0), (2, 400.9), (3, 402.0)].map(pair);
    size_and_class(&topology, &topology, &mut pairs);
    let [a, b, c] = pairs.each_ref().map(|pair| pair.class);
    assert!(a == b && a != c, "{a} {b} {c}");
    assert!(pairs.iter().all(|pair| pair.bytes() == pairs[0].bytes()));
}

#[test]
fn nodes_without_gpus_or_with_one_have_nothing_to_compare() {
    let none = HealthPlan::new(&Topology::default(), None, 0.03);
    assert_eq!((none.probes.len(), none.classes.len()), (0, 0));
    let gpus = vec![Gpu { vendor: "nvidia".into(), ..Gpu::default() }];
    let one = HealthPlan::new(&Topology { gpus, ..Topology::default() }, None, 0.03);
    assert!(one.classes.iter().all(|class| class.paths == 1), "{:?}", one.classes);
    assert!(!one.unseen.is_empty());
}

/// A GPU whose domain is unknown is taken for one of the first domain. Far is the first of the farthest that
/// have CPUs: 20 away, as the domain 32 away is memory alone.
#[test]
fn a_gpu_copies_with_its_own_domain_and_the_farthest_that_has_cpus() {
    let numa = |id: u32, cpus: &str| NumaDomain {
        id,
        cpus: cpus.parse().unwrap(),
        distances: vec![10, 20, 20, 32],
        ..NumaDomain::default()
    };
    let numa = vec![numa(0, "0-1"), numa(1, "2-3"), numa(2, "4-5"), numa(3, "")];
    let topology = Topology { numa, ..Topology::default() };
    let domains = |numa| {
        let flows = own_flows(&topology, &Gpu { numa, ..Gpu::default() });
        let units = flows.iter().flat_map(|flow| [flow.src.unit, flow.dst.unit]);
        units.filter_map(|unit| unit.numa()).collect::<Vec<_>>()
    };
    // Engine and kernel in both directions with its own, the engine alone with the far one.
    assert_eq!(domains(None), [0, 0, 0, 0, 1, 1]);
    assert_eq!(domains(Some(2)), [2, 2, 2, 2, 1, 1]);
}

#[test]
fn parts_that_differ_in_their_unit_are_one_line() {
    let of = |parts: &[&str]| name_alike(parts.iter().map(|part| (*part).to_owned()));
    let engines = ["gpu0 copy engines to the host", "gpu1 copy engines to the host"];
    assert_eq!(of(&engines), ["copy engines to the host of gpu0-gpu1"]);
    assert_eq!(of(&engines[..1]), ["gpu0 copy engines to the host"]);
    let links = [0, 1, 3].map(|gpu| format!("xGMI gpu{gpu}-numa{gpu}, both directions"));
    let links =
        [&links.each_ref().map(String::as_str)[..], &["CPU link numa1-numa2, both directions"]];
    assert_eq!(of(&links.concat()), ["xGMI gpu0-numa0 and 2 like it", "CPU link numa1-numa2"]);
    let some = ["gpu0 x", "gpu2 x", "numa0-numa1 CPU link", "xGMI"];
    assert_eq!(of(&some), ["x of gpu0, gpu2", "numa0-numa1 CPU link", "xGMI"]);
}

/// Each domain of mi250x with its two GPUs, 2 x 28.3 and 2 x 25.8 GB/s of a memory of 51.2: they are peers, and a loss of
/// 5 % of the memory slows them. Of two domains no copies are added.
#[test]
fn domains_with_all_of_their_gpus_fill_their_memory() {
    let shared = |machine: &str| -> (HealthPlan, Vec<usize>) {
        let plan = plan(machine);
        let probes = plan.probes.iter().enumerate().filter(|(_, p)| p.case.timed.len() > 1);
        let probes = probes.map(|(nth, _)| nth).collect();
        (plan, probes)
    };
    let (plan, probes) = shared("mi250x");
    let labels: Vec<&str> = probes.iter().map(|&nth| plan.probes[nth].label.as_str()).collect();
    let label = |numa, gpus| format!("numa{numa} with {gpus}, SDMA copy both ways");
    let expected = [label(0, "gpu4+gpu5"), label(1, "gpu2+gpu3"), label(2, "gpu6+gpu7")];
    assert_eq!(labels, [&expected[..], &[label(3, "gpu0+gpu1")]].concat());
    assert!(
        probes.iter().all(|&nth| nth < plan.standing && plan.peers(plan.probes[nth].class) == 3)
    );
    let memory = plan.edits.iter().find(|edit| edit.element == "numa1 DDR").unwrap();
    let of_domain = memory.exposures.iter().find(|exposure| exposure.probe == probes[1]).unwrap();
    assert!(of_domain.slowdown(0.95) > 0.03, "{of_domain:?}");
    assert!(shared("hgx-h200").1.is_empty());
}

/// An operation lasts 1 ms or more: what an engine of 50.4 GB/s moves in it is 50.4 MB, 3.004 times 16 MiB, so that it
/// copies 64 MiB. Parts without a probe are stated, and of 40 GPUs the pairs whose numbers are farther apart than
/// 1024 / 40 = 25: 40 of each distance from 26 to 39.
#[test]
fn sizes_last_long_enough_and_what_is_unseen_is_stated() {
    let plan = plan("mi250x");
    let first = plan.probes.iter().find(|probe| probe.label == "gpu0→gpu1, SDMA copy").unwrap();
    assert_eq!(first.case.timed[0].bytes, Bytes::mib(64));
    let blind = [
        "copy engines to the host of gpu0-gpu7 may be up to 50 % slower unseen: no path here fills them",
    ];
    // Kernel copies fill both links of a pair, of which SDMA copies fill one: no line says that they are half seen.
    assert_eq!(plan.unseen, blind);
    // No copy fills a host link: of packets of 256 bytes and 34.1 of headers an engine moves 88 % of the wire's rate,
    // and answers of the other direction take some of the rest.
    let host = self::plan("mi300x").unseen;
    let unfilled = host.iter().find(|line| line.contains("fills them")).unwrap();
    let engines = "copy engines to the host of gpu0-gpu7 may be up to 16 % slower unseen";
    assert!(unfilled.contains(engines), "{unfilled}");
    let gpus = |n| (0..n).map(|index| Gpu { index, ..Gpu::default() }).collect();
    let of = |n| skipped_pairs(&Topology { gpus: gpus(n), ..Topology::default() });
    assert_eq!(of(40).as_deref(), Some("560 of 1560 pairs of GPUs"));
    // 32 x 31 = 992 are measured.
    assert_eq!((of(32), of(1), of(0)), (None, None, None));
}

/// Probes of each round and all; kernels among them, bytes and time; classes of host links and links of GPUs;
/// edits with their exposures and greatest losses; parts of which no loss is seen.
fn summary(plan: &HealthPlan) -> String {
    let tails = |kind| plan.classes.iter().filter(|class| class.tail == kind).count();
    let host_and_gpu = [TailKind::HostLink, TailKind::GpuLink].map(tails);
    let kernels = plan.probes.iter().filter(|p| !matches!(p.case.timed[0].by, Mover::Dma { .. }));
    let bytes: u64 = plan.probes.iter().map(|probe| probe.case.timed[0].bytes.0 >> 20).sum();
    let exposures: usize = plan.edits.iter().map(|edit| edit.exposures.len()).sum();
    let loss: f64 = plan.edits.iter().map(|edit| edit.greatest_loss()).sum();
    let (classes, edits, ceilings) = (plan.classes.len(), plan.edits.len(), plan.ceilings.len());
    format!(
        "{} of {} probes ({} kernels, {bytes} MiB, {:.2} ms) in {classes} classes {host_and_gpu:?}, \
         {edits} edits ({exposures}, {loss:.2}), {ceilings} ceilings, {} unseen",
        plan.standing,
        plan.probes.len(),
        kernels.count(),
        plan.round_ns().unwrap_or_default() / 1e6,
        plan.unseen.len()
    )
}

/// Of 8 GPUs 56 pairs and 16 host links by copy engine are 72 probes, of 4 APUs 12 and 8; the rest are kernels.
/// A plan from the topology alone lacks what only a description has: links behind switches, engines.
#[test]
fn plans_of_a_described_and_of_a_discovered_node() {
    for (machine, is_described, expected) in [
        (
            "mi250x",
            true,
            "96 of 96 probes (20 kernels, 9280 MiB, 80.25 ms) in 24 classes [5, 17], 196 edits (460, 86.55), 96 ceilings, 1 unseen",
        ),
        (
            "mi250x",
            false,
            "92 of 92 probes (16 kernels, 9728 MiB, 89.35 ms) in 23 classes [5, 16], 172 edits (344, 78.50), 92 ceilings, 0 unseen",
        ),
        (
            "hgx-h200",
            true,
            "88 of 112 probes (32 kernels, 35968 MiB, 74.52 ms) in 7 classes [3, 3], 157 edits (560, 61.77), 112 ceilings, 1 unseen",
        ),
        (
            "hgx-h200",
            false,
            "88 of 88 probes (8 kernels, 28928 MiB, 78.44 ms) in 6 classes [3, 2], 147 edits (384, 58.33), 88 ceilings, 1 unseen",
        ),
        (
            "mi300a",
            true,
            "40 of 40 probes (12 kernels, 9088 MiB, 19.61 ms) in 8 classes [6, 1], 103 edits (164, 41.76), 40 ceilings, 1 unseen",
        ),
        (
            "mi300a",
            false,
            "48 of 48 probes (16 kernels, 11264 MiB, 29.65 ms) in 8 classes [5, 2], 107 edits (192, 50.50), 48 ceilings, 1 unseen",
        ),
    ] {
        let desc = MachineDesc::preset(machine).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let network = Some(&network).filter(|_| is_described);
        let loss = if is_described { 0.03 } else { 0.10 };
        let plan = HealthPlan::new(&desc.topology(), network, loss);
        assert_eq!(summary(&plan), expected, "{machine}");
    }
}
