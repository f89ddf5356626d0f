//! Prediction of one set of flows: `cargo bench -p pathline-flow --bench predict`.
//!
//! 16 flows on 8 GPUs, one order of queues: `known` with flows that the predictor has seen, as in a
//! search; `new` from nothing but the network. Figures are in docs/understand/evidence.md, "Speed".

use std::fmt::Write;

use divan::{Bencher, black_box};
use pathline_flow::{
    MachineDesc, Network, PlanCache, PlanRequest, RuntimeEnv, SetPredictor, plan_paths,
};
use pathline_schema::{Bytes, Case, MemKind, Place, Unit};

fn main() {
    divan::main();
}

/// Every GPU gets from the host and sends to its neighbour: 16 flows of 16 sizes.
fn ring() -> Case {
    let mut flows = Vec::new();
    for gpu in 0..8u32 {
        let (next, mib) = ((gpu + 1) % 8, 64 + gpu);
        flows.push(format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {mib}MiB"));
        flows.push(format!("gpu{gpu}.vram > gpu{next}.vram by dma@gpu{gpu} x {}MiB", 8 * mib));
    }
    parse(&flows)
}

/// Half of the GPUs get from and give to the host, and every GPU sends to GPU 0: what meets most.
fn incast() -> Case {
    let mut flows = Vec::new();
    for gpu in 0..4u32 {
        let mib = 64 + gpu;
        flows.push(format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {mib}MiB"));
        flows.push(format!("gpu{gpu}.vram > numa0.pinned by dma@gpu{gpu} x {}MiB", mib + 9));
    }
    for gpu in 1..8u32 {
        flows.push(format!("gpu{gpu}.vram > gpu0.vram by dma@gpu{gpu} x {}MiB", 256 + gpu));
    }
    flows.push("gpu0.vram > gpu5.vram by dma@gpu0 x 512MiB".into());
    parse(&flows)
}

fn parse(flows: &[String]) -> Case {
    assert_eq!(flows.len(), 16);
    flows.join(" & ").parse().expect("a case")
}

/// A twin of 8 GPUs as calibration writes it: every path, a port and an engine of each GPU, groups
/// of two, four and all GPUs for host traffic.
fn twin() -> String {
    let (_, preset) = MachineDesc::presets()[1];
    // Without the model, and without the origins of its numbers.
    let (head, _) = preset.split_once("[gpu_memory]").expect("the sections");
    let (links, rest) = head.split_once("[origin]").expect("the origins");
    let (_, parts) = rest.split_once("[host]").expect("the parts");
    let mut text = format!("{links}[host]{parts}");
    let into = |g: u32| format!("numa0.pinned > gpu{g}.vram by dma@gpu{g}");
    let out = |g: u32| format!("gpu{g}.vram > numa0.pinned by dma@gpu{g}");
    let peer = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a}");
    let others = |g: u32| (0..8).filter(move |&o| o != g);
    for g in 0..8 {
        let mut path = |flow: String, gbs: f64| {
            let (low, high) = (gbs * 0.995, gbs * 1.005);
            writeln!(
                text,
                "[[path]]\nflow = {flow:?}\ngbs = {gbs}\nlow = {low}\nhigh = {high}\nstart_us = 9"
            )
            .expect("memory");
        };
        path(into(g), 55.2);
        path(out(g), 55.2);
        others(g).for_each(|o| path(peer(g, o), 395.3));
        let ports: Vec<String> = others(g).map(|o| peer(o, g)).collect();
        let sent: Vec<String> = others(g).map(|o| peer(g, o)).collect();
        writeln!(
            text,
            "[[shared]]\nname = \"into gpu{g}\"\ngbs = 399\nflows = {ports:?}\n\
             [[shared]]\nname = \"gpu{g}: host\"\ngbs = 105\nflows = {:?}\n\
             [[queue]]\nname = \"gpu{g}\"\nflows = {sent:?}",
            [into(g), out(g)]
        )
        .expect("memory");
    }
    for (size, gbs) in [(2, 90.0), (4, 163.0), (8, 300.0)] {
        for first in (0..8).step_by(size) {
            let flows: Vec<String> = (first..).take(size).flat_map(|g| [into(g), out(g)]).collect();
            writeln!(
                text,
                "[[shared]]\nname = \"{size} from {first}\"\ngbs = {gbs}\nflows = {flows:?}"
            )
            .expect("memory");
        }
    }
    text
}

fn network(name: &str) -> Network {
    let desc = match name {
        "twin" => MachineDesc::parse("twin.toml", &twin()).expect("a twin"),
        preset => MachineDesc::preset(preset).expect("a preset"),
    };
    Network::new(&desc, RuntimeEnv::default()).expect("a network")
}

const MACHINES: [&str; 3] = ["twin", "mi250x", "hgx-h200"];

#[divan::bench(args = MACHINES)]
fn known_ring(bencher: Bencher, machine: &str) {
    known(bencher, machine, &ring());
}

#[divan::bench(args = MACHINES)]
fn known_incast(bencher: Bencher, machine: &str) {
    known(bencher, machine, &incast());
}

fn known(bencher: Bencher, machine: &str, case: &Case) {
    let network = network(machine);
    let mut predictor = SetPredictor::new(&network);
    bencher.bench_local(|| predictor.ends(black_box(case)).map(<[f64]>::len));
}

#[divan::bench(args = MACHINES)]
fn new_ring(bencher: Bencher, machine: &str) {
    let (network, case) = (network(machine), ring());
    bencher.bench_local(|| SetPredictor::new(&network).ends(black_box(&case)).map(<[f64]>::len));
}

/// Median, intervals over orders and capacities, and what binds: all that the program shows.
#[divan::bench(args = MACHINES)]
fn durations_ring(bencher: Bencher, machine: &str) {
    let (network, case) = (network(machine), ring());
    bencher.bench_local(|| network.durations(black_box(&case)));
}

fn load(gpu: u32, bytes: Bytes) -> PlanRequest {
    let src = Place::new(Unit::Numa(0), MemKind::Pinned);
    let dst = Place::new(Unit::Gpu(gpu), MemKind::Vram);
    PlanRequest::between(src, dst, bytes, (0..8).collect())
}

/// A plan of a copy into a GPU over any of seven relays, from nothing but the network.
#[divan::bench(args = MACHINES)]
fn new_plan(bencher: Bencher, machine: &str) {
    let network = network(machine);
    bencher.bench_local(|| plan_paths(&network, black_box(&load(0, Bytes::gib(1)))));
}

/// A look-up among 64 plans.
#[divan::bench]
fn cached_plan(bencher: Bencher) {
    let network = network("hgx-h200");
    let mut cache = PlanCache::new();
    for nth in 0..64u32 {
        let request = load(nth % 8, Bytes::mib(1 << (nth / 8)));
        cache.get_or_plan(&network, &request).expect("a plan");
    }
    let request = load(5, Bytes::mib(20));
    bencher.bench_local(|| cache.get(black_box(&request)).is_some());
}
