//! The engine on a simulated node: outcomes, injected faults, interrupted and resumed runs.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::Path;

use pathline_bench::{
    CaseBatch, CaseChooser, JournalFile, JournalSession, LocalExecutor, MachineInfo, PlanScope,
    RunEvent, RunHeader, RunPlan, RunSoFar, SessionError, TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_hal::Machine;
use pathline_schema::{
    Bytes, Case, CaseOutcome, Journal, JournalRecord, MeasuredCase, Ns, Severity, StopInfo,
    StopReason, VerifyResult, WorldKind,
};
use pathline_sim::{FaultOrder, SimOptions};
use tempfile::TempDir;

fn machine(options: &SimOptions) -> Machine {
    let desc = MachineDesc::preset("mi250x").unwrap();
    pathline_sim::machine_with(&desc, RuntimeEnv::default(), options).unwrap()
}

fn plan(machine: &Machine, patterns: &[&str]) -> RunPlan {
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, Bytes::gib(64)) };
    let patterns: Vec<_> = patterns.iter().map(|p| p.parse().unwrap()).collect();
    // Suites of single flows: a pattern would also choose cases of many.
    let suites = ["local", "host-link", "pairs", "latency"].map(str::to_owned);
    RunPlan::new(&scope, &suites, &patterns).unwrap()
}

fn header() -> RunHeader {
    RunHeader {
        host: "test".to_owned(),
        settings: default_settings(Bytes::gib(64)),
        ..RunHeader::default()
    }
}

fn resume(path: &Path, about: &MachineInfo) -> Result<JournalSession, SessionError> {
    let (file, journal) = JournalFile::open(path)?;
    JournalSession::resume(file, journal, about, "test", 0)
}

fn about(machine: &Machine) -> MachineInfo {
    MachineInfo::of(machine, None, TimerScope::All)
}

fn run(
    session: JournalSession,
    machine: &Machine,
    plan: &RunPlan,
    interrupt: &dyn Fn() -> Option<String>,
) {
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let mut executor = LocalExecutor::new(machine, about(machine), header().settings);
    session.run(&mut executor, plan, header(), &now, interrupt, &mut |_: RunEvent<'_>| {}).unwrap();
}

fn read(path: &Path) -> Journal {
    Journal::read(BufReader::new(fs::File::open(path).unwrap())).unwrap()
}

fn journal_of(options: &SimOptions, patterns: &[&str]) -> (RunPlan, Journal) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let machine = machine(options);
    let plan = plan(&machine, patterns);
    run(JournalSession::create(&path).unwrap(), &machine, &plan, &|| None);
    (plan, read(&path))
}

fn measured(journal: &Journal) -> impl Iterator<Item = &MeasuredCase> {
    journal.outcomes.iter().filter_map(|o| match o {
        CaseOutcome::Measured(m) => Some(&**m),
        _ => None,
    })
}

const COPIES: &str = "gpu0.vram > gpu*.vram by dma x 256MiB";

#[test]
fn a_case_is_measured_to_its_precision_and_verified() {
    let (plan, journal) = journal_of(&SimOptions::default(), &[COPIES]);
    assert_eq!(journal.begin.world, WorldKind::Simulated("mi250x".to_owned()));
    assert_eq!(journal.outcomes.len(), plan.entries.len());
    for m in measured(&journal) {
        assert_eq!(m.verdict, VerifyResult::Verified, "{}", m.case);
        let StopInfo { reason, half_width, .. } = m.stop;
        assert_eq!(reason, StopReason::Precise, "{}", m.case);
        assert!(half_width <= 0.01);
        let series = &m.series[0];
        assert!(series.visits.len() >= 6 && series.samples_ns.len() >= 6);
        // 256 MiB a repetition, whatever the repetitions.
        assert_eq!(series.moved_bytes.0, series.reps << 28);
    }
}

/// Chooses the last of the cases, twice.
struct LastTwo(usize);

impl CaseChooser for LastTwo {
    fn choose(&mut self, so_far: &RunSoFar<'_>, left: &[Case]) -> CaseBatch {
        assert_eq!(so_far.outcomes.len(), self.0);
        self.0 += 1;
        let cases = vec![(left.len() - 1, "the last".to_owned())];
        CaseBatch { cases, because: String::new(), is_last: self.0 == 2 }
    }
}

#[test]
fn a_chooser_decides_what_is_measured_and_a_run_that_was_cut_says_why() {
    let (dir, machine) = (TempDir::new().unwrap(), machine(&SimOptions::default()));
    let (path, plan) = (dir.path().join("run.jsonl"), plan(&machine, &[COPIES]));
    let session = JournalSession::create(&path).unwrap().with_chooser(Some(Box::new(LastTwo(0))));
    run(session, &machine, &plan, &|| None);
    let journal = read(&path);
    let measured: Vec<_> = measured(&journal).map(|m| &m.case).collect();
    let expected: Vec<_> = plan.entries.iter().rev().take(2).map(|entry| &entry.case).collect();
    assert_eq!(measured, expected);
    let end = journal.end.unwrap();
    assert_eq!((end.complete, end.why), (true, None));
    let path = dir.path().join("cut.jsonl");
    run(JournalSession::create(&path).unwrap(), &machine, &plan, &|| Some("a person".into()));
    let end = read(&path).end.unwrap();
    assert_eq!((end.complete, end.why.as_deref()), (false, Some("a person")));
    // Whenever a person ends it, a run whose chooser would go on is not complete.
    for looks in 0..40 {
        let path = dir.path().join(format!("cut{looks}.jsonl"));
        let session = JournalSession::create(&path).unwrap();
        let session = session.with_chooser(Some(Box::new(LastTwo(0))));
        let seen = Cell::new(0);
        run(session, &machine, &plan, &|| {
            seen.set(seen.get() + 1);
            (seen.get() > looks).then(|| "a person".to_owned())
        });
        let journal = read(&path);
        assert_eq!(journal.end.unwrap().complete, journal.outcomes.len() == 2, "{looks}");
    }
}

/// Copies of GPU 0's engine to all GPUs: the first loads the engine until 50 ms after it was bound, and
/// settles in at least 4 samples; the others take its repetitions, confirm them by one sample, and settle
/// with the next.
#[test]
fn an_engine_is_warmed_once_and_a_class_calibrated_once() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let (_, journal) = journal_of(&exact, &["gpu0.vram > gpu*.vram by dma@gpu0 x 256MiB"]);
    let peers: Vec<&MeasuredCase> = measured(&journal)
        .filter(|m| m.case.timed.len() == 1)
        .filter(|m| m.case.timed[0].dst.unit != m.case.timed[0].src.unit)
        .collect();
    assert_eq!(peers.len(), 7);
    let first = measured(&journal).find(|m| m.stop.load.0 > 0.0).unwrap();
    assert!((40e6..60e6).contains(&first.stop.load.0), "{:?}", first.stop);
    assert!(first.stop.elapsed.0 < 250e6 && first.stop.warmup >= 4, "{:?}", first.stop);
    // One peer sets the repetitions of its class.
    let of_class = peers.iter().filter(|m| (m.stop.load.0, m.stop.warmup) == (0.0, 1)).count();
    assert_eq!(of_class, 6);
}

/// Two copies at once, each of which was verified whole before: 2 to 6 blocks of 64 KiB of each stand for
/// its 256 MiB. Where they were not, every byte is compared.
#[test]
fn a_set_of_verified_paths_is_compared_by_blocks() {
    let alone = [
        "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB",
        "gpu1.vram > gpu0.vram by dma@gpu1 x 256MiB",
    ];
    let set = alone.join(" & ");
    let (_, journal) = journal_of(&SimOptions::default(), &[alone[0], alone[1], &set]);
    assert!(measured(&journal).all(|m| m.verdict == VerifyResult::Verified));
    let compared = |journal: &Journal, flows: usize| {
        measured(journal).find(|m| m.case.timed.len() == flows).unwrap().compared
    };
    assert_eq!(compared(&journal, 1), None);
    let blocks = compared(&journal, 2).unwrap();
    assert!((4..=12).contains(&(blocks.bytes.0 >> 16)), "{blocks:?}");
    let (_, alone) = journal_of(&SimOptions::default(), &[&set]);
    assert_eq!(compared(&alone, 2), None);
}

/// Six stretches of eight budgets of 250 ms, and a visit at a random moment of each: from the first to the
/// last lie more than four stretches of 333 ms.
#[test]
fn the_visits_of_a_case_alone_are_spread_over_eight_budgets() {
    let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
    let (_, journal) = journal_of(&SimOptions::default(), &[copy]);
    let m = measured(&journal).next().unwrap();
    assert_eq!(m.stop.reason, StopReason::Precise);
    assert_eq!(m.series[0].visits, [3; 6]);
    let elapsed = journal.end.as_ref().unwrap().elapsed;
    assert!((Ns::ms(1333.0)..Ns::ms(2400.0)).contains(&elapsed), "{elapsed}");
}

#[test]
fn a_sample_that_lasts_is_a_visit() {
    // 1 GiB takes 21 ms, more than a twentieth of the budget.
    let (_, journal) =
        journal_of(&SimOptions::default(), &["gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB"]);
    let m = measured(&journal).next().unwrap();
    assert_eq!((m.stop.reason, m.series[0].visits.clone()), (StopReason::Precise, vec![1; 6]));
}

#[test]
fn without_noise_the_figure_is_the_models() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let (_, journal) = journal_of(&exact, &[case]);
    let m = measured(&journal).next().unwrap();
    let rate = m.series[0].rates().next().unwrap().gbs();
    // The copy engine's cap is about 50.4 GB/s; 256 MiB take 5.3 ms after 10 us of start-up.
    assert!((50.0..50.5).contains(&rate), "{rate}");
    let spread = m.series[0].samples_ns.iter().map(|&s| s / m.series[0].samples_ns[0] - 1.0);
    assert!(spread.map(f64::abs).fold(0.0, f64::max) < 1e-6);
}

/// An isolated copy of 16 B has the time that each of k more copies adds: it excludes the cost of
/// starting and timing, and the journal has both durations.
#[test]
fn a_small_copy_alone_is_a_difference() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let tiny = "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated";
    let (_, journal) = journal_of(&exact, &[tiny]);
    let series = &measured(&journal).next().unwrap().series[0];
    // 100 us or more of copies of about 10 us, so that 2 to 50 are compared with twice as many.
    assert!((2..=50).contains(&series.reps) && series.steps == series.reps, "{}", series.reps);
    assert_eq!(series.start_ns.len(), series.samples_ns.len());
    // The preset: 8.7 us from gpu0 to gpu1 and what 16 B take at 50 GB/s, 0.3 ns.
    let desc = MachineDesc::preset("mi250x").unwrap();
    let network = pathline_flow::Network::new(&desc, RuntimeEnv::default()).unwrap();
    let model = network.predict(&tiny.parse().unwrap()).unwrap()[0].time.0;
    let latency = series.latencies().next().unwrap().0;
    assert!((latency / model - 1.0).abs() < 0.01, "{latency} ns, not {model}");
    // No started operation takes less than an additional one.
    assert!(series.start_costs().all(|cost| cost.0 > -1.0));
    // A large one is timed alone: the start-up is negligible.
    let large = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB isolated";
    let (_, journal) = journal_of(&exact, &[large]);
    let series = &measured(&journal).next().unwrap().series[0];
    assert_eq!((series.reps, series.start_ns.len()), (1, 0));
}

/// An operation follows 2,048 loads of a chain, whatever its span, and a sample lasts 10 ms.
#[test]
fn a_chase_of_a_gpu_goes_on_where_it_ended() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let chase = |span: &str| {
        let case = format!("gpu0.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x {span}");
        let (_, journal) = journal_of(&exact, &[&case]);
        measured(&journal).next().unwrap().clone()
    };
    // Both are past the second-level cache of 8 MiB.
    let (large, small) = (chase("128MiB"), chase("64MiB"));
    for m in [&large, &small] {
        let series = &m.series[0];
        assert_eq!(series.steps, series.reps * 2048);
        assert_eq!(series.moved_bytes, Bytes(series.steps * 128));
        assert!(series.samples_ns.iter().all(|&ns| ns >= 10e6 * 0.9), "{:?}", series.samples_ns);
        // Whole passes of 2^20 loads, 0.7 us each, would be 0.7 s a sample.
        assert!(m.stop.elapsed < pathline_schema::Ns::ms(700.0), "{}", m.stop.elapsed);
    }
    let each = |m: &MeasuredCase| m.series[0].latencies().next().unwrap().0;
    assert!((each(&large) / each(&small) - 1.0).abs() < 0.02);
}

/// A CPU's chase past every cache follows 65,536 loads an operation: 7 ms at 0.1 us, so that it becomes
/// precise where three passes of 8,388,608 loads take 2.5 s. In a cache it follows the whole chain.
#[test]
fn a_chase_of_a_cpu_past_its_caches_is_sampled_in_parts() {
    let chase = |span: &str| {
        let case = format!("numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x {span}");
        let (_, journal) = journal_of(&SimOptions::default(), &[&case]);
        measured(&journal).next().unwrap().clone()
    };
    let large = chase("1GiB");
    let series = &large.series[0];
    assert_eq!((series.reps, series.steps), (1, 65_536));
    assert_eq!(series.moved_bytes, Bytes(65_536 * 128));
    assert_eq!(large.stop.reason, StopReason::Precise);
    assert!(large.stop.elapsed < Ns::ms(250.0), "{}", large.stop.elapsed);
    // A cache of 32 MiB holds a quarter of 128 MiB: an eighth of 1,048,576 loads.
    assert_eq!(chase("128MiB").series[0].steps, 131_072);
    let series = chase("1MiB").series[0].clone();
    assert_eq!(series.steps, series.reps * (1 << 20) / 128);
}

/// The sum of the data that a kernel reads is compared with the expected one.
#[test]
fn reads_of_a_kernel_are_verified() {
    let case = "gpu1.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 16MiB";
    let (_, journal) = journal_of(&SimOptions::default(), &[case]);
    let verdict = &measured(&journal).next().unwrap().verdict;
    assert_eq!(*verdict, VerifyResult::Verified);
}

#[test]
fn a_background_flow_slows_what_shares_its_link() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let kernel = |a: u32, b: u32| {
        format!("gpu{a}.vram > gpu{b}.vram by kernel@gpu{b}[copy-w16-u4-b256-g2sm] x 256MiB")
    };
    let rate = |case: &str| {
        let (_, journal) = journal_of(&exact, &[case]);
        let m = measured(&journal).next().unwrap();
        m.series[0].rates().next().unwrap().gbs()
    };
    // 1 to 7 goes over 1-0-6-7: a flow 0 to 6 shares its dual link, a flow 1 to 3 shares nothing.
    let alone = rate(&kernel(1, 7));
    let shared = rate(&format!("{} while {}", kernel(1, 7), kernel(0, 6)));
    let apart = rate(&format!("{} while {}", kernel(1, 7), kernel(1, 3)));
    assert!(shared < 0.7 * alone, "{shared} of {alone}");
    assert!(apart > 0.95 * alone, "{apart} of {alone}");
}

/// I/O lands a block for each slot where other lanes run an operation; in one case each lane does
/// so separately, in any order.
#[test]
fn io_next_to_another_flow_is_verified() {
    let file = "store0.file > gpu0.vram by \
                uring@numa0[seq-read,direct,shared,1GiB,q4,n1,t1,pipelined-pinned] x 1MiB";
    let written = "numa0.huge > store0.file by \
                   uring@numa0[rand-write,direct,shared,1GiB,q4,n2,t1] x 4KiB";
    let copy = "gpu2.vram > gpu3.vram by dma@gpu2 x 16MiB";
    let cases = [format!("{file} & {copy}"), format!("{copy} & {written}")];
    let machine = machine(&SimOptions::default());
    let stores = machine.storage.as_deref().unwrap().stores();
    let scope = PlanScope {
        simulated: true,
        stores: &stores,
        ..PlanScope::new(&machine.topology, Bytes::gib(64))
    };
    let patterns: Vec<_> = cases.iter().map(|p| p.parse().unwrap()).collect();
    let plan = RunPlan::new(&scope, &[], &patterns).unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    run(JournalSession::create(&path).unwrap(), &machine, &plan, &|| None);
    let journal = read(&path);
    let verdicts: Vec<_> = measured(&journal).map(|m| (m.series.len(), &m.verdict)).collect();
    assert_eq!(verdicts, [(2, &VerifyResult::Verified); 2], "{:?}", journal.outcomes);
    // Each sample of I/O has its reading, and copies have none.
    for m in measured(&journal) {
        for (flow, series) in m.case.timed.iter().zip(&m.series) {
            let readings = if flow.by.is_on_files() { series.samples_ns.len() } else { 0 };
            assert_eq!(series.io.len(), readings, "{flow}");
        }
    }
}

/// For any failing call and kind of failure, each planned case has exactly one outcome, the run
/// ends as planned, and only cases that met the fault are lost.
#[test]
fn every_fault_costs_its_own_case_only() {
    let calls = [
        "alloc",
        "fill",
        "check",
        "copy",
        "launch",
        "kernel",
        "stream_create",
        "event_create",
        "event_record",
        "event_elapsed",
        "stream_wait",
        "gate_create",
        "gate_hold",
        "gate_release",
        "enable_peer",
        "host.gate_create",
        "host.gate_release",
    ];
    let severities =
        [Severity::Unsupported, Severity::Exhausted, Severity::Transient, Severity::Corrupt];
    for call in calls {
        for (nth, severity) in [1, 2, 7].into_iter().zip(severities.into_iter().cycle()) {
            let faults = vec![FaultOrder::fails(call, nth, severity)];
            let (plan, journal) =
                journal_of(&SimOptions { faults, ..SimOptions::default() }, &[COPIES, KERNELS]);
            let outcomes: BTreeSet<String> =
                journal.outcomes.iter().map(|o| o.case().to_string()).collect();
            assert_eq!(outcomes.len(), plan.entries.len(), "{call} {nth}");
            assert!(journal.end.as_ref().unwrap().complete, "{call} {nth}");
            let lost = journal.outcomes.len() - measured(&journal).count();
            assert!(lost <= 1, "{call} {nth}: {lost} cases lost");
            for outcome in &journal.outcomes {
                match outcome {
                    CaseOutcome::Measured(_) => {}
                    CaseOutcome::Skipped(s) => {
                        assert!(s.why.contains("fault on order"), "{}", s.why)
                    }
                    CaseOutcome::Faulted(f) => assert_eq!(f.severity, severity, "{}", f.error),
                }
            }
        }
    }
}

/// Another program may hold the memory for a moment, or the other cases of the group do.
#[test]
fn memory_that_runs_out_once_costs_nothing() {
    for nth in [1, 2, 5] {
        let faults = vec![FaultOrder::fails("alloc", nth, Severity::Exhausted)];
        let (plan, journal) =
            journal_of(&SimOptions { faults, ..SimOptions::default() }, &[COPIES]);
        assert_eq!(measured(&journal).count(), plan.entries.len(), "allocation {nth}");
    }
    // Twice for one case: the first time, and when nothing else is allocated.
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let faults = [1, 2].map(|nth| FaultOrder::fails("alloc", nth, Severity::Exhausted)).to_vec();
    let (_, journal) = journal_of(&SimOptions { faults, ..SimOptions::default() }, &[case]);
    assert!(
        matches!(&journal.outcomes[0], CaseOutcome::Skipped(skip) if skip.why.contains("alloc"))
    );
}

const KERNELS: &str = "gpu1.vram > gpu0.vram by kernel x 256MiB";

/// Managed pages stay at the destination of a migration; a later zero-copy case has separate pages.
/// No suite has this size, so the cases run in the given order.
#[test]
fn zero_copy_after_a_migration_still_crosses_the_link() {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let migrate = "numa3.managed > gpu0.managed by migrate@gpu0[fault] x 96MiB";
    let zero_copy = "numa3.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 96MiB";
    let rate = |patterns: &[&str]| {
        let (_, journal) = journal_of(&exact, patterns);
        let last = measured(&journal).find(|m| m.case.to_string().contains("kernel")).unwrap();
        last.series[0].rates().next().unwrap().gbs()
    };
    // The host link allows 25.5 GB/s to a kernel; the GPU's own memory gives 1400.
    assert!(rate(&[zero_copy]) < 26.0);
    assert!(rate(&[migrate, zero_copy]) < 26.0);
}

#[test]
fn wrong_bytes_are_a_fault_and_never_a_figure() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let (_, clean) = journal_of(&SimOptions::default(), &[case]);
    let m = measured(&clean).next().unwrap();
    // Calibration and warm-up take some copies, samples the rest; the verifying copy is the last.
    let most = m.series[0].samples_ns.len() as u64 * m.series[0].reps + 64;
    let faults = (1..=most).map(|nth| FaultOrder::corrupts("copy", nth)).collect();
    let (_, journal) = journal_of(&SimOptions { faults, ..SimOptions::default() }, &[case]);
    let CaseOutcome::Faulted(fault) = &journal.outcomes[0] else {
        panic!("a corrupted copy has a figure: {:?}", journal.outcomes[0]);
    };
    assert_eq!(fault.severity, Severity::Corrupt);
    assert!(fault.error.contains("offset"), "{}", fault.error);
}

/// Reads by CPU threads store nothing: what all samples loaded is summed, so one wrong sample of many is
/// found, whichever it is.
#[test]
fn a_read_that_loads_wrong_bytes_once_is_a_fault() {
    let case = "numa0.huge > numa0.reg by cpu@numa0[read-avx2-t1] x 1MiB";
    let outcome = |faults: Vec<FaultOrder>| {
        let (_, journal) = journal_of(&SimOptions { faults, ..SimOptions::default() }, &[case]);
        journal.outcomes.into_iter().next().unwrap()
    };
    let CaseOutcome::Measured(m) = outcome(Vec::new()) else { panic!("{case}") };
    assert_eq!(m.verdict, VerifyResult::Verified);
    assert!(m.series[0].samples_ns.len() >= 6);
    // Overheads, calibration and warm-up come first: the 15 submissions before are of no bytes.
    let CaseOutcome::Faulted(fault) = outcome(vec![FaultOrder::corrupts("host.submit", 40)]) else {
        panic!("a wrong read has a figure");
    };
    assert_eq!(fault.severity, Severity::Corrupt);
    assert!(fault.error.contains("the sum of what threads read"), "{}", fault.error);
}

#[test]
fn a_device_that_fails_for_good_is_retired_and_the_rest_goes_on() {
    let faults = vec![FaultOrder::fails("copy", 3, Severity::Sticky)];
    let patterns =
        ["gpu0.vram > gpu1.vram by dma x 256MiB", "gpu2.vram > gpu3.vram by dma x 256MiB"];
    let (plan, journal) = journal_of(&SimOptions { faults, ..SimOptions::default() }, &patterns);
    assert_eq!(journal.outcomes.len(), plan.entries.len());
    for outcome in &journal.outcomes {
        let of_gpu0 = outcome.case().flows().any(|f| f.by.at() == pathline_schema::Unit::Gpu(0));
        assert_eq!(matches!(outcome, CaseOutcome::Faulted(_)), of_gpu0, "{}", outcome.case());
    }
}

/// Two errors after which other calls work cost their cases, and a third case of that GPU is measured.
#[test]
fn a_device_that_fails_twice_and_works_is_not_retired() {
    let faults = [3, 4].map(|nth| FaultOrder::fails("copy", nth, Severity::Transient)).to_vec();
    let cases = [
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 2MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB & gpu2.vram > gpu3.vram by dma@gpu2 x 1MiB",
    ];
    let (_, journal) = journal_of(&SimOptions { faults, ..SimOptions::default() }, &cases);
    let measured = journal.outcomes.iter().map(|o| matches!(o, CaseOutcome::Measured(_)));
    assert_eq!(measured.collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn interrupted_anywhere_and_resumed_each_case_is_measured_once() {
    let dir = TempDir::new().unwrap();
    let all = {
        let (plan, _) = journal_of(&SimOptions::default(), &[COPIES]);
        plan.entries.len()
    };
    for asked in [1, 2, 5, 11, 17, 23, 40] {
        let path = dir.path().join(format!("{asked}.jsonl"));
        let first = machine(&SimOptions::default());
        let chosen = plan(&first, &[COPIES]);
        let calls = Cell::new(0);
        let interrupt = || {
            calls.set(calls.get() + 1);
            (calls.get() >= asked).then(|| "enough".to_owned())
        };
        run(JournalSession::create(&path).unwrap(), &first, &chosen, &interrupt);
        let cut = read(&path);
        assert!(!cut.end.unwrap().complete, "asked {asked} times");

        let second = machine(&SimOptions::default());
        let session = resume(&path, &about(&second)).unwrap();
        run(session, &second, &chosen, &|| None);
        let text = fs::read_to_string(&path).unwrap();
        let finished = text
            .lines()
            .map(|l| serde_json::from_str::<JournalRecord>(l).unwrap())
            .filter(|m| matches!(m, JournalRecord::Measured(_)))
            .count();
        assert_eq!(finished, all, "asked {asked} times");
        let whole = read(&path);
        for visit in &cut.partial {
            let m = measured(&whole).find(|m| m.case == visit.case).unwrap();
            let (kept, all) = (&visit.series[0].samples_ns, &m.series[0].samples_ns);
            assert_eq!(kept[..], all[..kept.len()], "samples of the first part are kept");
        }
        assert!(whole.end.unwrap().complete);
    }
}

#[test]
fn a_journal_of_another_machine_is_not_resumed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let mi250x = machine(&SimOptions::default());
    let chosen = plan(&mi250x, &[COPIES]);
    run(JournalSession::create(&path).unwrap(), &mi250x, &chosen, &|| None);
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let other = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let error = resume(&path, &about(&other)).err().unwrap().to_string();
    assert!(error.contains("mi250x") && error.contains("hgx-h200"), "{error}");
}

#[test]
fn a_journal_of_other_gpus_of_the_host_is_not_resumed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let mi250x = machine(&SimOptions::default());
    let chosen = plan(&mi250x, &[COPIES]);
    run(JournalSession::create(&path).unwrap(), &mi250x, &chosen, &|| None);
    let mut fewer = about(&mi250x);
    fewer.topology.gpus.pop();
    let error = resume(&path, &fewer).err().unwrap().to_string();
    assert!(error.contains("gpu7") && error.contains("variables that choose GPUs"), "{error}");
    // Without a runtime nothing of GPUs is measured, so nothing can be mixed up.
    fewer.without = Some("no driver".to_owned());
    assert!(resume(&path, &fewer).is_ok());
}

/// The first line of a run is on disk before the second: a resumed run adds the missing lines.
#[test]
fn a_journal_without_a_topology_gets_it_on_resume() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let first = machine(&SimOptions::default());
    let chosen = plan(&first, &[COPIES]);
    run(JournalSession::create(&path).unwrap(), &first, &chosen, &|| None);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.lines().next().unwrap().to_owned() + "\n").unwrap();
    let second = machine(&SimOptions::default());
    let session = resume(&path, &about(&second)).unwrap();
    run(session, &second, &chosen, &|| None);
    assert_eq!(read(&path).topology, second.topology);
}

/// Every mover that takes more than one call, and calls themselves: measured, and verified where
/// bytes arrive.
#[test]
fn staged_copies_batches_and_calls_are_cases_like_others() {
    let staged = "gpu0.vram > gpu2.vram by staged@gpu0[numa3] x 256MiB";
    let register = "numa3.paged > numa3.registered by call@gpu0[register] x 16MiB isolated";
    let launch = "gpu0.reg > gpu0.reg by call@gpu0[launch-sync] x 1B isolated";
    let batch = "numa3.pinned > gpu0.vram by batch@gpu0[64] x 16MiB";
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let (_, journal) = journal_of(&exact, &[staged, register, launch, batch]);
    let of = |case: &str| {
        let case = case.parse().unwrap();
        let found = journal.outcomes.iter().find(|o| *o.case() == case);
        found.unwrap_or_else(|| panic!("no outcome of {case}"))
    };
    let step = |case: &str| match of(case) {
        CaseOutcome::Measured(m) => {
            (m.series[0].samples_ns[0] / m.series[0].steps as f64, m.verdict.clone())
        }
        other => panic!("{other:?}"),
    };
    let (time, verdict) = step(staged);
    // 64 pieces of 4 MiB, each with a start of 13.3 us. The first goes out alone, over 36 x 64 / 89 = 25.89
    // GB/s: 162.0 us. 63 go out while one goes in, and each byte crosses numa3's memory twice: 51.2 x 0.935
    // / 2 = 23.94 GB/s, 175.2 us. The last goes in alone, from a core's cache, at 25.5 GB/s: 164.5 us.
    // 65 x 13.3 us + 162.0 us + 63 x 175.2 us + 164.5 us.
    assert!((time / 12_230e3 - 1.0).abs() < 0.001, "{time} ns");
    assert_eq!(verdict, VerifyResult::Verified);
    // 25 us + 16 x 64 us, and a nanosecond for the call and for reading the clock.
    assert!((step(register).0 - 1_049_000.0).abs() <= 2.0, "{}", step(register).0);
    // 2 us for the call and 12.27 us for the start, in which the store of one thread is done; then 1.2 us
    // for the wait at most.
    let launched = step(launch).0;
    assert!((14_270.0..15_500.0).contains(&launched), "{launched} ns");
    assert!(matches!(of(batch), CaseOutcome::Skipped(s) if s.why.contains("no call for a batch")));
}

/// An operation of these cases makes a call and its inverse, 31 and 41 us, 1049 and 990 us: each case has its own.
#[test]
fn a_call_and_its_inverse_have_their_own_times() {
    let cases = [
        "gpu0.reg > gpu0.vram by call@gpu0[alloc] x 64MiB isolated",
        "gpu0.vram > gpu0.reg by call@gpu0[free] x 64MiB isolated",
        "numa3.paged > numa3.registered by call@gpu0[register] x 16MiB isolated",
        "numa3.registered > numa3.paged by call@gpu0[unregister] x 16MiB isolated",
    ];
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let (_, journal) = journal_of(&exact, &cases);
    let desc = MachineDesc::preset("mi250x").unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    for m in measured(&journal) {
        let step = m.series[0].samples_ns[0] / m.series[0].steps as f64;
        let predicted = network.predict(&m.case).unwrap()[0].time.0;
        // The call and a reading of the clock take 1 ns each.
        assert!((step - predicted).abs() <= 2.1, "{}: {step} of {predicted} ns", m.case);
    }
    assert_eq!(measured(&journal).count(), cases.len());
}

/// Copies by threads and blocks by one kernel, in both directions: as the model predicts, every byte compared, and
/// wrong bytes found.
#[test]
fn copies_by_threads_and_of_blocks_are_verified() {
    let cases = [
        "numa3.paged > gpu0.vram by threads@gpu0[4] x 256MiB",
        "gpu0.vram > numa3.paged by threads@gpu0[4] x 256MiB",
        "numa3.pinned > gpu0.vram by blocks@gpu0[256-g8] x 8MiB",
        "gpu0.vram > numa3.pinned by blocks@gpu0[256-g8] x 8MiB",
        "numa3.pinned > gpu0.vram by blocks@gpu0[256-each] x 8MiB",
    ];
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let (_, journal) = journal_of(&exact, &cases);
    assert_eq!(measured(&journal).count(), cases.len());
    let desc = MachineDesc::preset("mi250x").unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    for m in measured(&journal) {
        assert_eq!(m.verdict, VerifyResult::Verified, "{}", m.case);
        let step = m.series[0].samples_ns[0] / m.series[0].steps as f64;
        let predicted = network.predict(&m.case).unwrap()[0].time.0;
        assert!((step / predicted - 1.0).abs() < 0.01, "{}: {step} of {predicted} ns", m.case);
    }
    for (case, call) in [(cases[0], "copy"), (cases[2], "copy_blocks")] {
        let faults = (1..2000).map(|nth| FaultOrder::corrupts(call, nth)).collect();
        let (_, journal) = journal_of(&SimOptions { faults, ..exact.clone() }, &[case]);
        let wrong = |o: &CaseOutcome| matches!(o, CaseOutcome::Faulted(f) if f.severity == Severity::Corrupt);
        assert!(wrong(&journal.outcomes[0]), "{case}: {:?}", journal.outcomes[0]);
    }
}
