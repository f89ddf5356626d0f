//! Copies over several paths: rates by hand, bounds, plans.

use std::fmt::Write;

use pathline_flow::{
    HostLimits, MachineDesc, MultipathPlan, Network, PlanCache, PlanRequest, ProbedNode,
    RuntimeEnv, multipath_bound, plan_from_probe, plan_paths,
};
use pathline_schema::{Bytes, Case, CopyAgent, Flow, GpuSet, MemKind, Mover, Place, Unit};
use proptest::prelude::*;

fn network(preset: &str) -> Network {
    let presets = MachineDesc::presets();
    let (name, text) = presets.iter().find(|(name, _)| *name == preset).unwrap();
    Network::new(&MachineDesc::parse(name, text).unwrap(), RuntimeEnv::default()).unwrap()
}

fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

fn host() -> Place {
    Place::new(Unit::Numa(0), MemKind::Pinned)
}

fn set(gpus: impl IntoIterator<Item = u32>) -> GpuSet {
    gpus.into_iter().collect()
}

/// GB/s of a planned copy.
fn rate(plan: &MultipathPlan) -> f64 {
    plan.flow.bytes.as_f64() / plan.predicted.0
}

/// A twin of four GPUs: 50 from the host into each, 120 for all together, 400 from GPU to GPU, one peer copy of a
/// destination at a time. No starts.
fn twin() -> Network {
    let mut text = "name = \"four\"\n\
         [host]\ncpu_model = \"CPU\"\narch = \"x86_64\"\nsockets = 1\npage_bytes = 4096\n\
         huge_page_bytes = 2097152\n\
         [[numa]]\nid = 0\ncpus = \"0-7\"\nmemory_gib = 64\nmemory_gbs = 100\n\
         [gpus]\nvendor = \"nvidia\"\nname = \"GPU\"\narch = \"sm_90\"\ncompute_units = 132\n\
         memory_gib = 139\nmemory_gbs = 4800\n"
        .to_string();
    let mut from_host = Vec::new();
    for a in 0..4 {
        from_host.push(format!("numa0.pinned > gpu{a}.vram by dma@gpu{a}"));
        write!(text, "[[gpu]]\nid = {a}\nnuma = 0\n").unwrap();
        write!(text, "[[path]]\nflow = {:?}\ngbs = 50\n", from_host[a]).unwrap();
        let peer = |b: usize| format!("gpu{b}.vram > gpu{a}.vram by dma@gpu{a}");
        let into: Vec<String> = (0..4).filter(|&b| b != a).map(peer).collect();
        for path in &into {
            write!(text, "[[path]]\nflow = {path:?}\ngbs = 400\n").unwrap();
        }
        writeln!(text, "[[queue]]\nname = \"copy engine of gpu{a}\"\nflows = {into:?}").unwrap();
    }
    writeln!(text, "[[shared]]\nname = \"host\"\ngbs = 120\nflows = {from_host:?}").unwrap();
    let desc = MachineDesc::parse("four.toml", &text).unwrap();
    Network::new(&desc, RuntimeEnv::default()).unwrap()
}

fn flow(text: &str) -> Flow {
    text.parse().unwrap()
}

/// 50 each, but 120 from the host: two paths carry 100, three and four 120. The peers of gpu0 take 80 / 400 of its
/// engine's time.
#[test]
fn a_relayed_copy_adds_the_host_links() {
    let net = twin();
    for (relays, gbs) in [("gpu1", 100.0), ("gpu1+gpu2", 120.0), ("gpu1+gpu2+gpu3", 120.0)] {
        let text = format!("numa0.pinned > gpu0.vram by relay@gpu0[{relays},4MiB] x 1GiB");
        let operation = net.operation(&flow(&text)).unwrap();
        // Between two turns of a leg the host takes a microsecond to see that it ended: 1 of 168.
        let reached = operation.cap.0 / gbs;
        assert!((0.99..1.0 + 1e-9).contains(&reached), "{text}: {}", operation.cap);
        let relays = relays.parse().unwrap();
        let bound = multipath_bound(&net, (host(), vram(0)), relays, CopyAgent::Engine).unwrap();
        assert!((bound.0 - gbs).abs() < 1e-6, "{bound}");
        assert_eq!(operation.engine, "copies over several paths");
    }
    // Drains are faster than fills, so that a relay lags by the drain of its last piece, 256 KiB at 400, and by two
    // looks of a microsecond; of three equal paths two lose that time. At the end half of 256 KiB at 50 and at 400
    // passes.
    let text = "numa0.pinned > gpu0.vram by relay@gpu0[gpu1+gpu2,4MiB] x 1GiB";
    let late = ((256u64 << 10) as f64 / 400.0 + 2.0 * 1e3) * 2.0 / 3.0;
    let end = (128u64 << 10) as f64 * (1.0 / 50.0 + 1.0 / 400.0);
    let alpha = net.operation(&flow(text)).unwrap().alpha.0;
    assert!((alpha / (late + end) - 1.0).abs() < 0.01, "{alpha}: {late} + {end}");
    let ceiling = net.explain(&flow(text)).unwrap();
    assert_eq!(ceiling.narrowest, "3 paths, host");
}

/// Each of four loads a quarter at 30 (120 for all), and pulls three quarters at 400 one by one: 90 / 400 of the
/// time. So 120 arrive in each, where all loading the whole get 30.
#[test]
fn a_copy_to_all_is_limited_by_host_memory_or_by_pulls() {
    let net = twin();
    let text = "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu1+gpu2+gpu3,4MiB] x 1GiB";
    assert!((net.operation(&flow(text)).unwrap().cap.0 - 120.0).abs() < 1e-6);
    let request = PlanRequest::to_all(host(), vram(0), Bytes::gib(1), set(1..4));
    let plan = plan_paths(&net, &request).unwrap();
    assert!(matches!(plan.flow.by, Mover::CopyToAll { .. }), "{}", plan.flow);
    // 4 less what the first piece costs.
    assert!((3.9..4.0).contains(&plan.gain), "{}", plan.gain);
    // Alone there is nobody to share with.
    let alone = PlanRequest::to_all(host(), vram(0), Bytes::gib(1), GpuSet::EMPTY);
    let plan = plan_paths(&net, &alone).unwrap();
    assert_eq!((plan.flow.by, plan.gain), (Mover::Dma { at: Unit::Gpu(0) }, 1.0));
}

#[test]
fn plans_name_a_gain_only_where_there_is_one() {
    let gain = |preset: &str, src, dst, mib| {
        let helpers = set(0..8);
        let request = PlanRequest::between(src, dst, Bytes::mib(mib), helpers);
        plan_paths(&network(preset), &request).unwrap()
    };
    // Behind NVLink switches one copy fills the port.
    let pair = gain("hgx-h200", vram(0), vram(1), 1024);
    assert_eq!((pair.flow.by, pair.gain), (Mover::Dma { at: Unit::Gpu(1) }, 1.0));
    // One GPU of host memory of 190 GB/s: 3.4 times 55.5.
    let load = gain("hgx-h200", host(), vram(0), 1024);
    assert!(matches!(load.flow.by, Mover::Relay { .. }), "{}", load.flow);
    assert!((3.2..3.5).contains(&load.gain), "{}", load.gain);
    // A full mesh: seven links in place of one.
    let mesh = gain("mi300x", vram(0), vram(1), 1024);
    assert_eq!(mesh.flow.by.paths().unwrap().gpus.len(), 6, "{}", mesh.flow);
    assert!((6.0..8.2).contains(&mesh.gain), "{}", mesh.gain);
    // One domain of DDR holds the host traffic of MI250X: 47.9 of 28.3.
    let held = gain("mi250x", host(), vram(0), 1024);
    assert!((1.6..1.7).contains(&held.gain), "{}", held.gain);
    // Small copies end before a relay begins.
    for mib in [1, 2] {
        let small = gain("mi250x", vram(0), vram(2), mib);
        assert!(small.flow.by.paths().is_none(), "{}", small.flow);
    }
}

/// A prediction of seven relays takes some 10 us: 28 of them stay below 1 ms (`cargo bench -p pathline-flow`).
#[test]
fn a_plan_takes_few_predictions() {
    for preset in ["mi250x", "mi300x", "hgx-h200"] {
        let net = network(preset);
        let pairs = [(host(), vram(0)), (vram(0), host()), (vram(0), vram(2)), (vram(1), vram(6))];
        for (src, dst) in pairs {
            for bytes in [Bytes::mib(8), Bytes::mib(64), Bytes::gib(1)] {
                let request = PlanRequest::between(src, dst, bytes, set(0..8));
                let plan = plan_paths(&net, &request).unwrap();
                assert!(plan.predictions <= 28, "{}: {}", plan.flow, plan.predictions);
                assert!(rate(&plan) <= plan.bound.0 * (1.0 + 1e-9), "{}", plan.flow);
                assert!(plan.predicted.0 <= plan.plain.0, "{}", plan.flow);
            }
        }
    }
}

#[test]
fn a_plan_is_a_case() {
    let request = PlanRequest::between(vram(0), vram(3), Bytes::mib(512), set(0..8));
    let net = network("mi250x");
    let plan = plan_paths(&net, &request).unwrap();
    let case: Case = plan.flow.to_string().parse().unwrap();
    let predicted = net.predict(&case).unwrap();
    assert!((predicted[0].time.0 / plan.predicted.0 - 1.0).abs() < 1e-9);
    let durations = net.durations(&case).unwrap();
    assert!((durations.set.typical.0 / plan.predicted.0 - 1.0).abs() < 1e-6);
}

#[test]
fn a_cache_plans_each_size_class_once() {
    let net = twin();
    let mut cache = PlanCache::new();
    let request = |mib| PlanRequest::between(host(), vram(0), Bytes::mib(mib), set(1..4));
    assert_eq!(cache.get(&request(100)), None);
    let plan = cache.get_or_plan(&net, &request(100)).unwrap().clone();
    // Classes are powers of two; the plan is that of the least size.
    assert_eq!(plan.flow.bytes, Bytes::mib(64));
    assert_eq!(plan.flow_of(Bytes::mib(100)).bytes, Bytes::mib(100));
    assert_eq!(cache.get(&request(127)), Some(&plan));
    assert_eq!(cache.get(&request(128)), None);
    let fewer = PlanRequest { helpers: set([1]), ..request(100) };
    assert_eq!(cache.get(&fewer), None);
    assert!(cache.get_or_plan(&net, &PlanRequest { dst: vram(9), ..request(1) }).is_err());
    assert_eq!(cache.len(), 1);
    cache.clear();
    assert!(cache.is_empty());
}

/// Host A of eight H200s: 55 alone, 87.6 / 92.7 / 141.5 for the first 2 / 4 / 8, one port of 395 for peers.
fn probed() -> ProbedNode {
    let limits = || HostLimits {
        alone: vec![55.0; 8],
        sets: vec![((0..2).collect(), 87.6), ((0..4).collect(), 92.7), ((0..8).collect(), 141.5)],
    };
    let row = |a: usize| (0..8).map(|b| if a == b { 0.0 } else { 395.0 }).collect();
    ProbedNode {
        into: limits(),
        out_of: limits(),
        peers: (0..8).map(row).collect(),
        one_port: true,
        start_us: 2.2,
        call_us: 2.0,
    }
}

/// The relays share no domain with gpu0 where they can: 92.7 among the first four, 141.5 in all.
#[test]
fn a_probe_replaces_a_description() {
    let node = probed();
    let plan = |helpers: GpuSet| {
        let request = PlanRequest::between(host(), vram(0), Bytes::gib(1), helpers);
        plan_from_probe(&node, &request).unwrap()
    };
    assert!((rate(&plan(set([1]))) - 87.6).abs() < 1.0);
    assert!((rate(&plan(set(1..4))) - 92.7).abs() < 1.0);
    let all = plan(set(1..8));
    assert!((all.bound.0 - 141.5).abs() < 1e-9);
    assert!((rate(&all) - 141.5).abs() < 2.0, "{}", rate(&all));
    // Three links carry 141.5; a fourth helper adds nothing.
    assert_eq!(all.flow.by.paths().unwrap().gpus.len(), 2, "{}", all.flow);
    // Each GPU loading all gets 141.5 / 8.
    let request = PlanRequest::to_all(host(), vram(0), Bytes::gib(1), set(1..8));
    let to_all = plan_from_probe(&node, &request).unwrap();
    assert!((7.4..8.0).contains(&to_all.gain), "{}", to_all.gain);
    let out = PlanRequest::between(vram(0), host(), Bytes::gib(1), set(1..8));
    assert!((rate(&plan_from_probe(&node, &out).unwrap()) - 141.5).abs() < 2.0);
}

#[test]
fn what_was_not_probed_has_no_plan() {
    let request = PlanRequest::between(host(), vram(0), Bytes::gib(1), set(1..8));
    let why = plan_from_probe(&ProbedNode::default(), &request).unwrap_err();
    assert_eq!(why.0, "the probe did not measure the host link of gpu0; probe again");
    // A relay that was not measured takes no part.
    let mut node = probed();
    node.peers = vec![vec![f64::NAN; 3]; 200];
    let plan = plan_from_probe(&node, &request).unwrap();
    assert_eq!((plan.flow.by, plan.gain), (Mover::Dma { at: Unit::Gpu(0) }, 1.0));
    let numa = PlanRequest::between(host(), host(), Bytes::gib(1), set(1..8));
    assert!(plan_from_probe(&node, &numa).is_err());
}

proptest! {
    /// A work queue never exceeds the linear program, nor the program the sum of its paths.
    #[test]
    fn no_copy_exceeds_the_bound(
        preset in prop::sample::select(vec!["mi250x", "mi300x", "hgx-h200", "v100", "mi100"]),
        (src, dst) in (0u32..8, 0u32..8),
        from_host in any::<bool>(),
        relays in 1u64..256,
        kib in 64u64..32768,
        mib in 1u64..2048,
        kernel in any::<bool>(),
    ) {
        let net = network(preset);
        let gpus = net.routes().gpus().len() as u32;
        let agent = if kernel { CopyAgent::Kernel } else { CopyAgent::Engine };
        let from = if from_host { host() } else { vram(src % gpus) };
        let to = vram(dst % gpus);
        let relays: GpuSet = (0..gpus).filter(|&g| relays >> g & 1 == 1).collect();
        let relays = relays.without(dst % gpus).without(src % gpus);
        prop_assume!(from != to && !relays.is_empty());
        let Ok(bound) = multipath_bound(&net, (from, to), relays, agent) else { return Ok(()) };
        let none = multipath_bound(&net, (from, to), GpuSet::EMPTY, agent).unwrap();
        prop_assert!(bound.0 >= none.0 * (1.0 - 1e-9));
        let blit = if kernel { ",blit" } else { "" };
        let text = format!(
            "{}.{} > {}.vram by relay@{}[{relays},{kib}KiB{blit}] x {mib}MiB",
            from.unit, from.mem, to.unit, to.unit
        );
        let flow = flow(&text);
        let operation = net.operation(&flow).unwrap();
        let time = operation.alpha.0 + flow.bytes.as_f64() / operation.cap.0;
        prop_assert!(operation.alpha.0 >= 0.0);
        prop_assert!(flow.bytes.as_f64() / time <= bound.0 * (1.0 + 1e-9), "{text}: {bound}");
        // Each resource holds what its part of the bytes takes.
        for used in &operation.uses {
            let capacity = net.resources()[used.resource as usize].capacity.0;
            prop_assert!(used.weight * flow.bytes.as_f64() / time <= capacity * (1.0 + 1e-9));
        }
    }
}
