//! The live host through the traits of `hal`, on whatever machine the tests run on.
#![allow(clippy::print_stderr)]

use pathline_hal::{CallResult, Machine, TeamResult, TeamWork};
use pathline_runner::live::live;
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, MemKind, Ns, NumaDomain, Place, Severity, Topology, Unit,
};

const PAGED: Place = Place::new(Unit::Numa(0), MemKind::Paged);
const HUGE: Place = Place::new(Unit::Numa(0), MemKind::Huge);

/// Without a topology the host is one domain of all CPUs that may be used.
fn machine() -> Machine {
    live(Topology::default())
}

fn work(op: CpuOp, how: CpuHow) -> TeamWork {
    TeamWork {
        work: CpuWork { op, how },
        src: 0,
        dst: 0,
        bytes: Bytes(0),
        reps: 1,
        isolated: false,
        chase_steps: None,
    }
}

/// Gates, submits, releases and reaps.
fn run(machine: &Machine, threads: u32, work: &TeamWork) -> CallResult<TeamResult> {
    let team = machine.team(0, threads)?;
    let gate = machine.gate()?;
    team.submit(&gate, work)?;
    gate.release()?;
    team.reap()
}

fn usable_cpus() -> Vec<usize> {
    let all = rustix::thread::sched_getaffinity(None).expect("a mask");
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&c| all.is_set(c)).collect()
}

fn cores(machine: &Machine) -> u32 {
    machine.host.domains()[0].threads
}

#[test]
fn the_live_host_is_a_machine() {
    let failures = pathline_hal::conformance::failures(&machine());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_team_copies_every_byte_of_any_size_with_any_number_of_threads() {
    let machine = machine();
    for bytes in [1, 63, 64, 65, 4095, 4096, (1 << 20) + 17].map(Bytes) {
        let src = machine.buffer(HUGE, bytes).unwrap();
        let dst = machine.buffer(PAGED, bytes).unwrap();
        for (seed, how) in (1..).zip(machine.host.instructions()) {
            for threads in 1..=cores(&machine).min(3) {
                src.fill(seed, false).unwrap();
                dst.fill(!seed, false).unwrap();
                assert!(dst.check(seed, bytes).is_err());
                let copy = TeamWork {
                    src: src.address(),
                    dst: dst.address(),
                    bytes,
                    reps: 2,
                    isolated: true,
                    ..work(CpuOp::Copy, how)
                };
                let reaped = run(&machine, threads, &copy).unwrap();
                assert_eq!(reaped.steps, 2);
                dst.check(seed, bytes).unwrap();
                src.check(seed, bytes).unwrap();
            }
        }
    }
}

#[test]
fn large_buffers_are_filled_and_checked_by_several_threads_and_one_wrong_byte_is_found() {
    let machine = machine();
    let bytes = Bytes((24 << 20) + 5);
    let a = machine.buffer(PAGED, bytes).unwrap();
    a.fill(9, false).unwrap();
    a.check(9, bytes).unwrap();
    // A write over bytes 20 Mi to 20 Mi + 8 only: the first difference is there.
    let write = TeamWork {
        dst: a.address() + (20 << 20),
        bytes: Bytes(8),
        ..work(CpuOp::Write, CpuHow::Plain)
    };
    run(&machine, 1, &write).unwrap();
    let error = a.check(9, bytes).unwrap_err();
    assert_eq!(error.severity, Severity::Corrupt);
    assert!(error.reason.contains("20971520"), "{error}");
}

#[test]
fn a_chase_counts_its_loads_and_follows_only_a_chain() {
    let machine = machine();
    let bytes = Bytes::kib(64);
    let buffer = machine.buffer(HUGE, bytes).unwrap();
    let chase =
        TeamWork { src: buffer.address(), bytes, reps: 100, ..work(CpuOp::Chase, CpuHow::Plain) };
    buffer.fill(1, false).unwrap();
    assert!(run(&machine, 1, &chase).unwrap_err().way_out.contains("chain"));
    buffer.fill(1, true).unwrap();
    let reaped = run(&machine, 1, &chase).unwrap();
    // 64 KiB / 128 B = 512 elements, 100 times round; no load takes less than a fifth of a ns.
    assert_eq!(reaped.steps, 51_200);
    assert!(reaped.elapsed.0 > 0.2 * 51_200.0, "{}", reaped.elapsed);
    // Another span has another chain; written over, there is none.
    assert!(run(&machine, 1, &TeamWork { bytes: Bytes::kib(32), ..chase }).is_err());
    let write =
        TeamWork { dst: buffer.address(), bytes: Bytes(64), ..work(CpuOp::Write, CpuHow::Plain) };
    run(&machine, 1, &write).unwrap();
    assert!(run(&machine, 1, &chase).is_err());
}

#[test]
fn a_chase_is_slower_in_memory_than_in_the_first_cache() {
    let machine = machine();
    let step = |bytes: Bytes, reps: u64| {
        let buffer = machine.buffer(HUGE, bytes).unwrap();
        buffer.fill(3, true).unwrap();
        let chase =
            TeamWork { src: buffer.address(), bytes, reps, ..work(CpuOp::Chase, CpuHow::Plain) };
        let reaped = run(&machine, 1, &chase).unwrap();
        reaped.elapsed.0 / reaped.steps as f64
    };
    let (near, far) = (step(Bytes::kib(16), 1000), step(Bytes::mib(256), 1));
    assert!(far > 4.0 * near, "{near} ns in 16 KiB, {far} ns in 256 MiB");
}

#[test]
fn a_first_touch_is_a_page_fault_each_time() {
    let machine = machine();
    let bytes = Bytes::mib(8);
    let per_page = |place| {
        let buffer = machine.buffer(place, bytes).unwrap();
        let touch =
            TeamWork { dst: buffer.address(), bytes, reps: 3, ..work(CpuOp::Touch, CpuHow::Plain) };
        // The best of ten: a virtual machine may have to get the page from its host first.
        let times = (0..10).map(|_| {
            let reaped = run(&machine, 1, &touch).unwrap();
            // 8 MiB / 4 KiB = 2048 base pages, three times.
            assert_eq!(reaped.steps, 3 * 2048);
            reaped.elapsed.0 / reaped.steps as f64
        });
        (times.fold(f64::INFINITY, f64::min), machine.host.huge_bytes(buffer.address()))
    };
    let (paged, none) = per_page(PAGED);
    assert_eq!(none, Some(Bytes(0)));
    // Clearing 4 KiB at 100 GB/s alone is 40 ns; a fault costs more.
    assert!(paged > 40.0, "{paged} ns a page");
    let (huge, granted) = per_page(HUGE);
    assert!(granted.unwrap() <= bytes);
    if granted == Some(bytes) {
        assert!(huge < paged, "{huge} ns a page in huge pages, {paged} ns without");
    }
}

#[test]
fn discarded_memory_is_not_read_as_if_it_were_there() {
    let machine = machine();
    let bytes = Bytes::mib(2);
    let buffer = machine.buffer(HUGE, bytes).unwrap();
    let read = TeamWork { src: buffer.address(), bytes, ..work(CpuOp::Read, CpuHow::Plain) };
    assert!(run(&machine, 1, &read).unwrap_err().reason.contains("zero page"));
    buffer.fill(1, false).unwrap();
    run(&machine, 1, &read).unwrap();
    buffer.discard().unwrap();
    assert_eq!(machine.host.huge_bytes(buffer.address()), Some(Bytes(0)));
    assert!(run(&machine, 1, &read).is_err());
}

#[test]
fn work_that_makes_no_sense_is_refused_and_hurts_nobody() {
    let machine = machine();
    let bytes = Bytes::kib(64);
    let buffer = machine.buffer(PAGED, bytes).unwrap();
    buffer.fill(1, false).unwrap();
    let at = buffer.address();
    let copy = work(CpuOp::Copy, CpuHow::Plain);
    let wrong = [
        (
            "beyond the end",
            TeamWork { src: at, bytes: Bytes::mib(64), ..work(CpuOp::Read, CpuHow::Plain) },
        ),
        ("no address", TeamWork { bytes, ..work(CpuOp::Write, CpuHow::Plain) }),
        ("wraps", TeamWork { src: at, dst: u64::MAX - 4, bytes, ..copy }),
        ("overlap", TeamWork { src: at, dst: at + 1, bytes: Bytes(64), ..copy }),
        ("no such loop", TeamWork { src: at, bytes, ..work(CpuOp::Read, CpuHow::Memcpy) }),
        ("other processor", TeamWork { src: at, bytes, ..work(CpuOp::Chase, CpuHow::Neon) }),
        (
            "within a page",
            TeamWork { dst: at + 64, bytes: Bytes(64), ..work(CpuOp::Touch, CpuHow::Plain) },
        ),
    ];
    for (what, work) in wrong {
        assert_eq!(run(&machine, 1, &work).unwrap_err().severity, Severity::Unsupported, "{what}");
    }
    buffer.check(1, bytes).unwrap();
}

#[test]
fn a_closed_gate_holds_and_a_dropped_one_lets_go() {
    let machine = machine();
    let bytes = Bytes::mib(1);
    let buffer = machine.buffer(PAGED, bytes).unwrap();
    buffer.fill(1, false).unwrap();
    let write = TeamWork { dst: buffer.address(), bytes, ..work(CpuOp::Write, CpuHow::Plain) };
    let team = machine.team(0, 1).unwrap();
    let gate = machine.gate().unwrap();
    team.submit(&gate, &write).unwrap();
    assert!(team.submit(&gate, &write).is_err(), "busy");
    assert!(team.reap().unwrap_err().way_out.contains("release"));
    // Memory under work that was not reaped is left alone.
    assert_eq!(buffer.fill(2, false).unwrap_err().severity, Severity::Transient);
    drop(gate);
    team.reap().unwrap();
    assert!(team.reap().is_err());
    assert!(buffer.check(1, bytes).is_err());
    // A buffer and a team may be dropped while work is in progress or never began.
    let gate = machine.gate().unwrap();
    team.submit(&gate, &write).unwrap();
    drop(buffer);
    drop(team);
    drop(gate);
}

#[test]
fn teams_behind_one_gate_overlap() {
    let machine = machine();
    let bytes = Bytes::mib(64);
    let a = machine.buffer(HUGE, bytes).unwrap();
    let b = machine.buffer(HUGE, bytes).unwrap();
    let first = machine.team(0, 1).unwrap();
    let second = machine.team_near(0, 1, &[first.id()]).unwrap();
    let teams = [first, second];
    let gate = machine.gate().unwrap();
    for (team, buffer) in teams.iter().zip([&a, &b]) {
        let write =
            TeamWork { dst: buffer.address(), bytes, reps: 4, ..work(CpuOp::Write, CpuHow::Plain) };
        team.submit(&gate, &write).unwrap();
    }
    let start = machine.clock.now();
    gate.release().unwrap();
    let sum: f64 = teams.iter().map(|t| t.reap().unwrap().elapsed.0).sum();
    let wall = (machine.clock.now() - start).0;
    // With a core each, two teams take less wall time together than one after the other; the
    // margin is for a busy machine.
    if cores(&machine) >= 2 {
        assert!(wall < 0.95 * sum, "wall {wall}, sum {sum}");
    }
}

#[test]
fn teams_of_as_many_threads_have_the_same_cpus() {
    let machine = machine();
    for threads in 1..=cores(&machine).min(3) {
        // Cases of a group, all of whose teams wait while one of them works.
        let teams: Vec<_> = (0..3).map(|_| machine.team(0, threads).unwrap()).collect();
        assert!(teams.iter().all(|team| team.cpus() == teams[0].cpus()), "{threads} threads");
        assert_eq!(teams[0].cpus().len(), threads as usize);
    }
}

#[test]
fn teams_of_one_case_have_different_cpus() {
    let machine = machine();
    if cores(&machine) < 2 {
        return;
    }
    let mut teams = vec![machine.team(0, 1).unwrap()];
    for _ in 1..cores(&machine).min(8) {
        let others: Vec<_> = teams.iter().map(pathline_hal::ThreadTeam::id).collect();
        let next = machine.team_near(0, 1, &others).unwrap();
        let taken = teams.iter().any(|team| !team.cpus().intersect(&next.cpus()).is_empty());
        assert!(!taken, "{} is taken", next.cpus());
        teams.push(next);
    }
    // Where every CPU is wanted, some are shared.
    let all = machine.team_near(0, cores(&machine), &[teams[0].id()]).unwrap();
    assert_eq!(all.cpus().len(), cores(&machine) as usize);
}

#[test]
fn too_many_threads_and_unknown_domains_are_errors_with_a_remedy() {
    let machine = machine();
    let usable = cores(&machine);
    let error = machine.team(0, usable + 1).map(drop).unwrap_err();
    assert!(error.way_out.contains(&format!("1 to {usable} threads")), "{error}");
    assert!(machine.team(0, 0).is_err());
    let error = machine.team(77, 1).map(drop).unwrap_err();
    assert!(error.way_out.contains("numa0"), "{error}");
    assert!(machine.host.alloc(77, MemKind::Paged, Bytes(1)).is_err());
}

#[test]
fn one_usable_cpu_is_enough_and_two_threads_there_are_refused() {
    // The mask of the thread that makes the machine is what its teams may use.
    let outcome = std::thread::spawn(|| {
        let cpu = *usable_cpus().last().unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        let machine = machine();
        assert_eq!(cores(&machine), 1);
        let error = machine.team(0, 2).map(drop).unwrap_err();
        assert!(error.way_out.contains("1 to 1 threads"), "{error}");
        let bytes = Bytes::mib(8);
        let (src, dst) =
            (machine.buffer(PAGED, bytes).unwrap(), machine.buffer(PAGED, bytes).unwrap());
        src.fill(4, false).unwrap();
        // Two teams of one thread share the core: slower, not stuck.
        let teams = [machine.team(0, 1).unwrap(), machine.team(0, 1).unwrap()];
        let start = machine.clock.now();
        for _ in 0..20 {
            let gate = machine.gate().unwrap();
            let copy = TeamWork {
                src: src.address(),
                dst: dst.address(),
                bytes,
                ..work(CpuOp::Copy, CpuHow::Plain)
            };
            let read = TeamWork { src: src.address(), bytes, ..work(CpuOp::Read, CpuHow::Plain) };
            teams[0].submit(&gate, &copy).unwrap();
            teams[1].submit(&gate, &read).unwrap();
            gate.release().unwrap();
            teams[0].reap().unwrap();
            teams[1].reap().unwrap();
        }
        dst.check(4, bytes).unwrap();
        let conditions = machine.host.conditions();
        assert!(!conditions.0.contains_key("core_to_core_ns"), "cpu{cpu} alone");
        machine.clock.now() - start
    });
    // 20 rounds of some ms of work: seconds would mean that threads wait for time slices.
    let took = outcome.join().unwrap();
    assert!(took < Ns::secs(5.0), "{took}");
}

#[test]
fn conditions_are_plausible_and_quick() {
    let machine = machine();
    machine.host.conditions();
    let start = machine.clock.now();
    let read = machine.host.conditions();
    let took = machine.clock.now() - start;
    eprintln!("{read:?} in {took}");
    // 5 ms on an idle machine; the bound is for one with many more threads than cores.
    assert!(took < Ns::secs(2.0), "{took}");
    // Other tests may hold the second core during a reading: one plausible reading of many is enough.
    let readings: Vec<_> = (0..20).map(|_| machine.host.conditions()).collect();
    let within = |name: &str, low: f64, high: f64| {
        let values: Vec<f64> = readings.iter().filter_map(|r| r.0.get(name).copied()).collect();
        let plausible = values.iter().any(|value| (low..high).contains(value));
        assert!(values.is_empty() || plausible, "{name} is {values:?}");
    };
    within("core_to_core_ns", 5.0, 50_000.0);
    within("cpu_mhz", 100.0, 8000.0);
    within("dram_stream_gbs", 0.1, 5000.0);
    within("steal_percent", 0.0, 100.1);
}

#[test]
fn empty_work_shows_the_overhead_of_the_harness() {
    let machine = machine();
    let start = machine.clock.now();
    // Without memory there is no pass: what is left is submitting, meeting and reaping.
    let empty = run(&machine, cores(&machine).min(2), &work(CpuOp::Read, CpuHow::Plain)).unwrap();
    let round_trip = machine.clock.now() - start;
    eprintln!("{} of {round_trip}", empty.elapsed);
    assert!(empty.elapsed.0 >= 0.0 && empty.elapsed <= round_trip);
    assert!(round_trip < Ns::secs(2.0), "{round_trip}");
}

#[test]
fn domains_that_the_topology_names_are_kept_even_without_cpus() {
    let numa =
        |id, cpus: &str| NumaDomain { id, cpus: cpus.parse().unwrap(), ..Default::default() };
    let cpu = usable_cpus()[0];
    let topology =
        Topology { numa: vec![numa(1, ""), numa(0, &cpu.to_string())], ..Default::default() };
    let machine = live(topology);
    let threads: Vec<(u32, u32)> =
        machine.host.domains().iter().map(|d| (d.id, d.threads)).collect();
    assert_eq!(threads, [(0, 1), (1, 0)]);
    let error = machine.team(1, 1).map(drop).unwrap_err();
    assert!(error.way_out.contains("another domain"), "{error}");
}
