//! A described fault acts in virtual time as it is described.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallResult, CopyChoice, Machine};
use pathline_schema::{Bytes, CpuSet, MemKind, Place, Unit};
use pathline_sim::{SimOptions, machine_with};

const BYTES: Bytes = Bytes::mib(64);

fn machine(fault: &str, seed: u64) -> Machine {
    let (_, text) =
        MachineDesc::presets().iter().find(|(name, _)| *name == "hgx-h200").expect("a preset");
    let desc = MachineDesc::parse("test.toml", &format!("{text}\n{fault}")).expect("it parses");
    let options = SimOptions { seed, jitter: 0.0, ranks: 1, ..SimOptions::default() };
    machine_with(&desc, RuntimeEnv::default(), &options).expect("it makes a machine")
}

/// Time of a copy from one GPU to another, ns.
fn copy(machine: &Machine, from: u32, to: u32) -> CallResult<f64> {
    let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
    let (a, b) = (machine.buffer(place(from), BYTES)?, machine.buffer(place(to), BYTES)?);
    machine.driver()?.enable_peer(from, to)?;
    let gpu = machine.gpu(from)?;
    let (stream, start, end) = (gpu.stream()?, gpu.event()?, gpu.event()?);
    stream.record(&start)?;
    stream.copy(b.address(), a.address(), BYTES, CopyChoice::Auto)?;
    stream.record(&end)?;
    stream.wait()?;
    Ok(end.since(&start)?.0)
}

#[test]
fn a_flapping_link_is_slow_for_a_part_of_each_period() {
    // Slow for the first half of each 20 ms.
    let machine = machine(
        "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"flapping\"\nshare = 0.5\nperiod_ms = 20",
        1,
    );
    let mut times = Vec::new();
    while machine.clock.now().0 < 100e6 {
        let at = machine.clock.now().0 % 20e6;
        times.push((at < 9e6, at > 10e6 && at < 19e6, copy(&machine, 2, 3).expect("a copy")));
    }
    let least = times.iter().map(|t| t.2).fold(f64::INFINITY, f64::min);
    let slow = |t: &&(bool, bool, f64)| t.2 > 1.5 * least;
    let (on, off): (Vec<_>, Vec<_>) =
        (times.iter().filter(|t| t.0).collect(), times.iter().filter(|t| t.1).collect());
    assert!(on.len() > 20 && off.len() > 20, "{} {}", on.len(), off.len());
    assert!(on.iter().filter(|t| slow(t)).count() * 10 > on.len() * 9);
    assert_eq!(off.iter().filter(|t| slow(t)).count(), 0);
    assert!(copy(&machine, 0, 1).expect("a copy") < 1.01 * least);
}

#[test]
fn a_process_has_a_fault_with_its_probability() {
    let fault =
        "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"speed\"\nshare = 0.5\nprobability = 0.25";
    let times: Vec<f64> =
        (0..200).map(|seed| copy(&machine(fault, seed), 2, 3).expect("a copy")).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let slow = times.iter().filter(|&&t| t > 1.2 * least).count();
    // 200 draws of 1/4: 50, standard deviation 6.1.
    assert!((30..=70).contains(&slow), "{slow}");
    let again = copy(&machine(fault, 7), 2, 3).expect("a copy");
    assert_eq!(again, times[7], "a seed draws the same");
}

#[test]
fn a_hang_ends_no_operation_of_its_gpu_and_a_crash_fails_its_calls() {
    let hangs = machine("[[fault]]\nelement = \"gpu2\"\nkind = \"hang\"", 1);
    for (from, to) in [(3, 2), (2, 3)] {
        let error = copy(&hangs, from, to).expect_err("it hangs").to_string();
        assert!(error.contains(" on gpu2: no answer in 1 s (timeout)"), "{error}");
    }
    assert!(copy(&hangs, 0, 1).is_ok());
    let link = machine("[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"hang\"", 1);
    assert!(copy(&link, 2, 3).is_err() && copy(&link, 3, 2).is_err());
    let link = machine("[[fault]]\nelement = \"gpu2>switch0\"\nkind = \"hang\"", 1);
    assert!(copy(&link, 2, 3).is_err() && copy(&link, 3, 2).is_ok());
    let crash = machine("[[fault]]\nelement = \"gpu2\"\nkind = \"crash\"\nafter_ms = 50", 1);
    assert!(copy(&crash, 2, 3).is_ok());
    while crash.clock.now().0 < 50e6 {
        copy(&crash, 0, 1).expect("a copy");
    }
    let error = copy(&crash, 2, 3).expect_err("it has crashed");
    assert_eq!(error.severity, pathline_schema::Severity::Sticky);
    assert!(copy(&crash, 0, 1).is_ok());
}

#[test]
fn pages_on_the_other_socket_cross_the_link_between_them() {
    let host = |machine: &Machine| -> f64 {
        let pinned = Place::new(Unit::Numa(0), MemKind::Pinned);
        let vram = Place::new(Unit::Gpu(0), MemKind::Vram);
        let (a, b) = (machine.buffer(pinned, BYTES).unwrap(), machine.buffer(vram, BYTES).unwrap());
        let gpu = machine.gpu(0).unwrap();
        let (stream, start, end) =
            (gpu.stream().unwrap(), gpu.event().unwrap(), gpu.event().unwrap());
        stream.record(&start).unwrap();
        stream.copy(b.address(), a.address(), BYTES, CopyChoice::Auto).unwrap();
        stream.record(&end).unwrap();
        stream.wait().unwrap();
        end.since(&start).unwrap().0
    };
    // The link between the sockets at a tenth of 96 GB/s holds a PCIe link of 63 GB/s.
    let slow = "[[fault]]\nelement = \"numa0-numa1\"\nkind = \"speed\"\nshare = 0.1\n";
    let remote =
        format!("{slow}[[fault]]\nelement = \"numa0\"\nkind = \"numa\"\npages_on = \"numa1\"");
    let (near, far) = (host(&machine(slow, 1)), host(&machine(&remote, 1)));
    let rate = BYTES.as_f64() / far;
    assert!(far > 4.0 * near, "{near} {far}");
    assert!((9.0..=9.6).contains(&rate), "{rate} GB/s of 9.6");
    // Memory that the runtime places lies where the model puts it, and its pages say so.
    let found = |faults: &str| {
        let machine = machine(faults, 1);
        let placed = Place::new(Unit::Numa(0), MemKind::PinnedDefault);
        let buffer = machine.buffer(placed, BYTES).unwrap();
        machine.host.page_domains(buffer.address(), BYTES).unwrap()
    };
    assert_eq!(found(slow), [(0, 256)].into());
    assert_eq!(found(&remote), [(1, 256)].into());
}

#[test]
fn errors_are_counted_where_they_happen() {
    let fault = "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"errors\"\nper_second = 1000\n\
                 [[fault]]\nelement = \"gpu3-numa0\"\nkind = \"errors\"\nper_second = 2000";
    let machine = machine(fault, 1);
    while machine.clock.now().0 < 50e6 {
        copy(&machine, 0, 1).expect("a copy");
    }
    let monitor = machine.monitor.as_ref().expect("a monitor");
    let read = |gpu| monitor.counters(gpu).map(|s| (s.link_errors.unwrap_or(0), s.pcie_replays));
    // 50 ms of 1000 and 2000 a second.
    let (links, pcie) = read(2).expect("a GPU");
    assert!((50..=52).contains(&links) && pcie == Some(0), "{links} {pcie:?}");
    let (links, pcie) = read(3).expect("a GPU");
    assert!(links == 0 && pcie.is_some_and(|n| (100..=104).contains(&n)), "{pcie:?}");
}

/// A collective is as slow as its slowest member: half of the rate of gpu2's links is half of the busbw.
#[test]
fn a_collective_is_slowed_by_a_fault_of_one_member() {
    let fault = "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"speed\"\nshare = 0.5";
    let time = |fault: &str, case: &str| {
        let machine = machine(fault, 1);
        let ranks = machine.ranks.as_deref().expect("ranks");
        let case = case.parse().expect("a case");
        let id = ranks.bind(&case, &CpuSet::default()).expect("bound");
        ranks.run(id, 1).expect("a time")[0].elapsed.0
    };
    let all = "r0.gpu0.vram > r0.gpu7.vram by ccl@gpu0[all_gather] x 4GiB";
    let ratio = time(fault, all) / time("", all);
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    let others = "r0.gpu4.vram > r0.gpu7.vram by ccl@gpu0[all_gather] x 4GiB";
    assert!((time(fault, others) / time("", others) - 1.0).abs() < 1e-9);
}
