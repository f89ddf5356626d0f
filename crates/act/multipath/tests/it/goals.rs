//! What the planner promises, compared with copies in virtual time.

use pathline_flow::{MachineDesc, Network, PlanRequest, RuntimeEnv, multipath_bound, plan_paths};
use pathline_schema::{Bytes, CopyAgent, Flow, GpuSet, MemKind, Mover, Place, Unit};
use pathline_stats::{ascending, nearest_rank};

use crate::common::{count, machine, plain, rate};

fn network(preset: &str) -> Network {
    Network::new(&MachineDesc::preset(preset).unwrap(), RuntimeEnv::default()).unwrap()
}

fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

/// Least share of the bound of its agent that planned copies reach, over ordered pairs of GPUs.
fn least_of_bound(preset: &str, bytes: Bytes, pairs: &[(u32, u32)]) -> f64 {
    let (machine, net) = (machine(preset, Vec::new()), network(preset));
    let of_bound = |&(a, b): &(u32, u32)| {
        let helpers: GpuSet = (0..8).collect();
        let request = PlanRequest::between(vram(a), vram(b), bytes, helpers);
        let plan = plan_paths(&net, &request).unwrap();
        let planned = bytes.as_f64() / plan.predicted.0;
        let reached = match plan.flow.by.paths() {
            Some(_) => rate(&machine, &plan.flow.to_string()).0,
            None => planned,
        };
        let agent = match plan.flow.by {
            Mover::Blit { .. } => CopyAgent::Kernel,
            by => by.paths().map_or(CopyAgent::Engine, |paths| paths.agent),
        };
        let bound = multipath_bound(&net, (vram(a), vram(b)), helpers, agent).unwrap();
        let share = reached / bound.0;
        let text = plan.flow.to_string();
        let gain = plan.flow.by.paths().map_or(plan.gain, |_| reached / plain(&machine, &text));
        let of_plan = reached / planned;
        println!(
            "{share:.3} of the bound, {of_plan:.3} of the plan, {gain:.2} times plain: {text}"
        );
        share
    };
    pairs.iter().map(of_bound).fold(f64::INFINITY, f64::min)
}

/// The goal is 0.95. Of `mi250x` one pair of each kind, among them two that need a relay of small gain or shares for it
/// (1 to 6, 0 to 7): docs/use/multipath.md has the figures of all pairs.
#[test]
fn planned_pairs_of_meshes_come_near_the_bound() {
    let of_each_kind: Vec<(u32, u32)> = (1..8).map(|to| (0, to)).chain([(1, 6)]).collect();
    let least = least_of_bound("mi250x", Bytes::gib(1), &of_each_kind);
    assert!(least > 0.95, "{least}");
    let least = least_of_bound("mi300x", Bytes::gib(1), &[(0, 1), (6, 3)]);
    assert!(least > 0.95, "{least}");
}

/// Figures for docs/use/multipath.md: `cargo test -p pathline-multipath --test it every_pair -- --nocapture`, with
/// `PATHLINE_TEST_ALL_SIZES=1` those of 1 and 4 GiB too.
#[test]
fn every_pair_gains() {
    let all: Vec<(u32, u32)> =
        (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    let mut sizes = vec![Bytes::mib(64), Bytes::mib(256)];
    if std::env::var_os("PATHLINE_TEST_ALL_SIZES").is_some() {
        sizes.extend([Bytes::gib(1), Bytes::gib(4)]);
    }
    for preset in ["mi250x", "mi300x"] {
        for &bytes in &sizes {
            let least = least_of_bound(preset, bytes, &all);
            println!("{preset}, {bytes}: least {least:.3} of the bound");
            assert!(least > 0.5, "{least}");
        }
    }
}

/// SplitMix64: the same plans on every machine.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

/// A flow that no planner chose: random ends, relays, chunk, agent and size.
fn random_flow(state: &mut u64, preset: &str) -> Flow {
    loop {
        let (a, b) = (draw(state, 8), draw(state, 8));
        let set = 1 + draw(state, 255);
        let gpus: GpuSet = (0..8u32).filter(|g| set >> g & 1 == 1).collect();
        let chunk = 1 << draw(state, 4);
        let mib = 64 << draw(state, 5);
        let blit = if preset != "hgx-h200" && draw(state, 2) == 1 { ",blit" } else { "" };
        let kind = draw(state, if preset == "hgx-h200" { 2 } else { 4 });
        let (from, at) = match kind {
            0 => ("numa0.pinned".to_owned(), b),
            1 => (format!("gpu{b}.vram"), b),
            _ => (format!("gpu{a}.vram"), b),
        };
        let to = if kind == 1 { "numa0.pinned".to_owned() } else { format!("gpu{b}.vram") };
        let by = if kind == 0 && draw(state, 2) == 0 { "copy-to-all" } else { "relay" };
        let gpus = gpus.without(a as u32).without(b as u32);
        let text = format!("{from} > {to} by {by}@gpu{at}[{gpus},{chunk}MiB{blit}] x {mib}MiB");
        let flow: Option<Flow> = text.parse().ok().filter(|_| !gpus.is_empty());
        if let Some(flow) = flow.filter(|flow| flow.misfit().is_none()) {
            return flow;
        }
    }
}

/// The goal is a median of 3 % and a 95th percentile of 10 %: docs/understand/evidence.md has figures of other seeds
/// (`PATHLINE_TEST_SEED`), of which one in six misses it.
#[test]
fn copies_that_no_planner_chose_take_the_predicted_time() {
    let mut all = Vec::new();
    for preset in ["mi250x", "mi300x", "hgx-h200"] {
        let (machine, net) = (machine(preset, Vec::new()), network(preset));
        let mut state = count("PATHLINE_TEST_SEED", 2026);
        let mut errors = Vec::new();
        for _ in 0..40 {
            let flow = random_flow(&mut state, preset);
            let operation = net.operation(&flow).unwrap();
            let time = operation.alpha.0 + flow.bytes.as_f64() / operation.cap.0;
            let (reached, _) = rate(&machine, &flow.to_string());
            let error = flow.bytes.as_f64() / time / reached - 1.0;
            println!("{error:+.3} {reached:.1} GB/s: {flow}");
            errors.push(error.abs());
        }
        all.extend(errors.iter().copied());
        let errors = ascending(errors);
        let at = |share| nearest_rank(&errors, share).unwrap();
        println!("{preset}: median {:.3}, 95th percentile {:.3}", at(0.5), at(0.95));
    }
    let all = ascending(all);
    let (median, most) = (nearest_rank(&all, 0.5).unwrap(), nearest_rank(&all, 0.95).unwrap());
    println!("all: median {median:.3}, 95th percentile {most:.3}");
    assert!(median < 0.02 && most < 0.10, "{median}, {most}");
}
