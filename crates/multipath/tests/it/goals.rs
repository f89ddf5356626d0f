//! What the planner promises, compared with copies in virtual time.

use pathline_flow::{MachineDesc, Network, PlanRequest, RuntimeEnv, plan_paths};
use pathline_schema::{Bytes, GpuSet, MemKind, Place, Unit};
use pathline_stats::{ascending, nearest_rank};

use crate::common::{machine, rate};

fn network(preset: &str) -> Network {
    Network::new(&MachineDesc::preset(preset).unwrap(), RuntimeEnv::default()).unwrap()
}

fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

/// Simulated rate over the bound, and over the planned rate, of each ordered pair of GPUs.
fn pairs(preset: &str, bytes: Bytes) -> Vec<(f64, f64, String)> {
    let (machine, net) = (machine(preset, Vec::new()), network(preset));
    let mut found = Vec::new();
    let pairs = (0..8u32).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
    for (a, b) in pairs {
        let helpers: GpuSet = (0..8).collect();
        let plan =
            plan_paths(&net, &PlanRequest::between(vram(a), vram(b), bytes, helpers)).unwrap();
        if plan.flow.by.paths().is_none() {
            found.push((
                bytes.as_f64() / plan.predicted.0 / plan.bound.0,
                1.0,
                plan.flow.to_string(),
            ));
            continue;
        }
        let (rate, _) = rate(&machine, &plan.flow.to_string());
        let planned = bytes.as_f64() / plan.predicted.0;
        found.push((
            rate / plan.bound.0,
            rate / planned,
            format!("{} {rate:.1} bound {:.1}", plan.flow, plan.bound.0),
        ));
    }
    found
}

#[test]
fn look() {
    for preset in ["mi300x", "mi250x"] {
        for bytes in [Bytes::mib(64), Bytes::gib(1)] {
            let found = pairs(preset, bytes);
            let shares = ascending(found.iter().map(|f| f.0).collect::<Vec<_>>());
            println!(
                "{preset} {bytes}: of bound least {:.3} median {:.3} most {:.3}",
                shares[0], shares[28], shares[55]
            );
            let errors = ascending(found.iter().map(|f| (f.1 - 1.0).abs()).collect::<Vec<_>>());
            println!(
                "  error median {:.3} p95 {:.3} worst {:.3}",
                nearest_rank(&errors, 0.5).unwrap(),
                nearest_rank(&errors, 0.95).unwrap(),
                errors[55]
            );
            for f in found.iter().take(if preset == "mi300x" { 2 } else { 14 }) {
                println!("    {:.3} {:.3} {}", f.0, f.1, f.2);
            }
        }
    }
}
