//! What a probe predicts, compared with copies in virtual time on machines whose starts cost differently.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CopyChoice, Machine};
use pathline_multipath::{
    CopyEnd, CopyRequest, MultipathEngine, PathOption, ProbeRequest, probe_paths,
};
use pathline_schema::{Bytes, MemKind, Ns, Place, Unit};
use pathline_sim::{SimOptions, machine_with};
use pathline_stats::{ascending, nearest_rank};

/// A preset with other values of some keys, each of which it has.
fn machine(preset: &str, changed: &[(&str, f64)]) -> Machine {
    let presets = MachineDesc::presets();
    let (_, text) = presets.iter().find(|(name, _)| *name == preset).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in changed {
        let at = lines.iter().position(|line| line.starts_with(&format!("{key} = "))).unwrap();
        lines[at] = format!("{key} = {value}");
    }
    let desc = MachineDesc::parse(preset, &lines.join("\n")).unwrap();
    let options = SimOptions { jitter: 0.0, ..SimOptions::default() };
    machine_with(&desc, RuntimeEnv::default(), &options).unwrap()
}

/// Time of a copy as a caller sees it: plain, or behind an event and before a gate of a stream.
fn seen_by_caller(
    machine: &Machine,
    engine: &mut MultipathEngine<'_>,
    (src, dst, bytes): (Place, Place, Bytes),
    option: Option<&PathOption>,
) -> Ns {
    let (from, to) = (machine.buffer(src, bytes).unwrap(), machine.buffer(dst, bytes).unwrap());
    let gpu = machine.gpu(dst.unit.gpu().or(src.unit.gpu()).unwrap()).unwrap();
    let (stream, fork) = (gpu.stream().unwrap(), gpu.event().unwrap());
    let start = machine.clock.now();
    if let Some(option) = option {
        let end = |address, unit| CopyEnd { address, unit };
        let gate = machine.gate().unwrap();
        stream.record(&fork).unwrap();
        stream.hold(&gate).unwrap();
        while !fork.is_done().unwrap() {
            machine.driver().unwrap().pause(Ns(2e3));
        }
        let request = CopyRequest {
            src: end(from.address(), src.unit),
            dst: end(to.address(), dst.unit),
            others: Vec::new(),
            bytes,
            paths: option.paths,
            limit: Ns::secs(10.0),
        };
        engine.copy(request).unwrap();
        gate.release().unwrap();
    } else {
        stream.copy(to.address(), from.address(), bytes, CopyChoice::Auto).unwrap();
    }
    stream.wait().unwrap();
    machine.clock.now() - start
}

/// A machine, and the ends of a copy.
type ProbedCase = (&'static str, &'static [(&'static str, f64)], Unit, Unit);

/// Starts of nothing, of 2.2 us and of 40 us, calls of 0.3 to 6 us, and what presets say.
const CASES: [ProbedCase; 9] = [
    ("hgx-h200", &[], Unit::Numa(0), Unit::Gpu(0)),
    ("hgx-h200", &[], Unit::Gpu(0), Unit::Numa(0)),
    ("hgx-h200", &[("host_copy_us", 40.0)], Unit::Numa(0), Unit::Gpu(0)),
    ("hgx-h200", &[("host_copy_us", 0.0), ("peer_copy_us", 0.0)], Unit::Numa(0), Unit::Gpu(0)),
    ("hgx-h200", &[("peer_copy_us", 40.0)], Unit::Gpu(0), Unit::Numa(0)),
    ("hgx-h200", &[("copy_call_us", 6.0)], Unit::Numa(0), Unit::Gpu(0)),
    ("mi250x", &[], Unit::Gpu(0), Unit::Gpu(2)),
    ("mi300x", &[], Unit::Gpu(0), Unit::Gpu(1)),
    ("mi300x", &[("copy_call_us", 0.3)], Unit::Gpu(0), Unit::Gpu(1)),
];

/// The goal is a median of 3 % and a 95th percentile of 10 %.
#[test]
fn a_probe_predicts_sizes_that_it_did_not_measure() {
    let sizes = [6, 10, 16, 24, 48, 64, 96, 192, 256, 1024].map(Bytes::mib);
    let mut errors = Vec::new();
    for (preset, changed, src, dst) in CASES {
        let machine = machine(preset, changed);
        let mut engine = MultipathEngine::new(&machine);
        let request = ProbeRequest {
            src,
            dst: vec![dst],
            helpers: (0..8).collect(),
            chunk: Bytes::mib(4),
            sizes: [4, 12, 32, 128].map(Bytes::mib),
            budget: Ns::secs(10.0),
            holds: true,
        };
        let probe = probe_paths(&machine, &mut engine, &request).unwrap();
        let place = |unit: Unit| {
            Place::new(unit, if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned })
        };
        // One relay, three, all.
        for nth in [0, 2, probe.options.len() - 1] {
            let option = &probe.options[nth];
            print!("{preset} {changed:?} {src} > {dst} {}:", option.paths);
            for bytes in sizes {
                let copy = (place(src), place(dst), bytes);
                let seen = seen_by_caller(&machine, &mut engine, copy, Some(option));
                let error = option.time.time(bytes).0 / seen.0 - 1.0;
                print!(" {error:+.3}");
                errors.push(error.abs());
            }
            println!();
        }
        // Plain copies are a start and a rate.
        for bytes in sizes {
            let copy = (place(src), place(dst), bytes);
            let seen = seen_by_caller(&machine, &mut engine, copy, None);
            let error = probe.plain.time(bytes).0 / seen.0 - 1.0;
            assert!(error.abs() < 0.01, "{preset} {changed:?}, plain {bytes}: {error}");
        }
    }
    let errors = ascending(errors);
    let at = |share| nearest_rank(&errors, share).unwrap();
    println!("{} copies: median {:.3}, 95th percentile {:.3}", errors.len(), at(0.5), at(0.95));
    assert!(at(0.5) < 0.03 && at(0.95) < 0.10, "{} {}", at(0.5), at(0.95));
}

/// A start of 40 us takes half as long as a chunk of 4 MiB, 76 us at 55 GB/s, and a relay has two for each chunk. The
/// plain copy has one.
#[test]
fn slow_starts_raise_the_size_from_which_relays_are_chosen() {
    let least_chosen = |changed: &[(&str, f64)]| {
        let machine = machine("hgx-h200", changed);
        let mut engine = MultipathEngine::new(&machine);
        let request = ProbeRequest {
            src: Unit::Numa(0),
            dst: vec![Unit::Gpu(0)],
            helpers: (0..8).collect(),
            chunk: Bytes::mib(4),
            sizes: [4, 12, 32, 128].map(Bytes::mib),
            budget: Ns::secs(10.0),
            holds: true,
        };
        let probe = probe_paths(&machine, &mut engine, &request).unwrap();
        (1..128).find(|&mib| probe.choose(Bytes::mib(mib), 1.15, Ns::ZERO).is_some()).unwrap()
    };
    let usual = least_chosen(&[]);
    let slow = least_chosen(&[("host_copy_us", 40.0), ("peer_copy_us", 40.0)]);
    println!("from {usual} MiB on, with starts of 40 us from {slow} MiB on");
    assert!(usual < 8 && slow > 2 * usual, "{usual} {slow}");
}
