//! NCCL and RCCL end to end, over libraries that stand in for them and for the runtimes of GPUs.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../examples/ccl_check/checks.rs"]
mod checks;

use std::ffi::OsString;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use checks::{Alone, Check, Memory, lay, wrong};
use pathline_gpu::{CompileMode, LibraryRequest, runtime};
use pathline_hal::conformance::transport::{CheckedFlow, RankLink, TransportRank, check_transport};
use pathline_hal::{
    CallError, CallResult, FlowPart, Machine, RankBarrier, RepeatMode, TransportPort,
};
use pathline_runner::live::open;
use pathline_schema::{
    Bytes, Collective, ElementReduction, ElementType, MemKind, MessageOp, Place, Rank, ReduceOp,
    Severity, Topology, Transport, Unit, WireOp,
};
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use pathline_transport::{CclAsked, open_ccl};

/// Set in the process that a test runs its body in.
const INSIDE: &str = "PATHLINE_TEST_INSIDE";
const NVIDIA: [StubLibraries; 2] = [StubLibraries::Cuda, StubLibraries::Nccl];
const AMD: [StubLibraries; 2] = [StubLibraries::Hip(6), StubLibraries::Rccl];

/// Runs the body of the test of that name in a separate process that finds those libraries, which
/// lack the functions in `missing`.
fn inside(
    test: &str,
    vendors: &[StubLibraries],
    missing: &[&str],
    spec: &str,
    body: impl FnOnce(),
) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), vendors, missing).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([&format!("ccl::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env(VARIABLE, spec);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", folder.path());
    for name in ["PATHLINE_NVRTC", "PATHLINE_NCCL", "NCCL_DEBUG", "NCCL_DEBUG_FILE"] {
        command.env_remove(name);
    }
    if vendors.contains(&StubLibraries::Hip(6)) {
        command.env("PATHLINE_HIP", folder.path());
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{status}\n{}\n{}", text(&stdout), text(&stderr));
}

type Opened = (Machine, std::result::Result<Box<dyn TransportPort>, String>);

fn opened(timeout: Duration) -> Opened {
    let topology = Topology::default();
    let mut asked = LibraryRequest::new(CompileMode::InProcess);
    asked.named.extend(std::env::var_os("PATHLINE_HIP").map(|path| ("hip".into(), path.into())));
    let runtime = runtime(&topology, &asked);
    let port = open_ccl(&runtime, &CclAsked { timeout, ..CclAsked::default() });
    (open(topology, runtime).machine, port)
}

const MOST: u64 = 192 << 10;

fn memory(machine: &Machine) -> Memory<'_> {
    let driver = machine.driver().unwrap();
    let place = |gpu: u32| Place::new(Unit::Gpu(gpu), MemKind::Vram);
    let gpus = machine.topology.gpus.len() as u32;
    let all = || (0..gpus).map(|gpu| driver.alloc(place(gpu), Bytes(MOST)).unwrap()).collect();
    Memory { driver, gpus: (0..gpus).collect(), a: all(), b: all() }
}

/// Two of the GPUs.
fn pair<'m>(all: &Memory<'m>, which: [usize; 2]) -> Memory<'m> {
    let some = |all: &[u64]| which.iter().map(|&nth| all[nth]).collect();
    let gpus = which.iter().map(|&nth| all.gpus[nth]).collect();
    Memory { driver: all.driver, gpus, a: some(&all.a), b: some(&all.b) }
}

/// Runs a check repeatedly at a pace and compares the bytes; the times and what carried it.
fn once(
    port: &mut dyn TransportPort,
    memory: &Memory<'_>,
    check: &Check,
    (pace, reps): (RepeatMode, u64),
    barrier: &dyn RankBarrier,
) -> CallResult<(Vec<Vec<f64>>, String)> {
    let (id, offer) = port.bind(&check.parts, pace)?;
    let outcome = port.join(id, &[offer]).and_then(|()| {
        lay(memory, check)?;
        let times = port.run(id, reps, barrier)?;
        Ok((times, port.engine(id)))
    });
    port.release(id)?;
    let outcome = outcome?;
    let wrong = wrong(memory, check)?;
    assert_eq!(wrong, None, "{} {pace:?}", check.name);
    Ok(outcome)
}

/// One process with all GPUs.
struct OneProcess;

impl RankBarrier for OneProcess {
    fn wait(&self) -> CallResult<()> {
        Ok(())
    }
}

impl RankLink for OneProcess {
    fn share(&self, mine: &[u8]) -> CallResult<Vec<Vec<u8>>> {
        Ok(vec![mine.to_vec()])
    }
}

/// Every operation of three GPUs: at each pace every byte is there, and there are as many times as
/// there must be.
fn everything(library: &str) {
    let (machine, port) = opened(Duration::from_secs(30));
    let mut port = port.unwrap();
    assert!(port.library().starts_with(library), "{}", port.library());
    // A ring of three sends each byte of a sum four times over three links.
    let factor = Collective::AllReduce.bus_factor(3);
    assert!((factor - 4.0 / 3.0).abs() < 1e-12, "{factor}");
    let op = |op| MessageOp::new(Transport::Ccl, op);
    let reduced = ElementReduction::USUAL;
    let of = |op, in_place| WireOp::Group { op, reduced, in_place, unregistered: false };
    let all = Collective::ALL.iter().filter(|&&op| op != Collective::Barrier);
    let in_place = Collective::ALL.iter().filter(|op| op.has_in_place(Transport::Ccl));
    let collectives = all.map(|&op| of(op, false)).chain(in_place.map(|&op| of(op, true)));
    let mut rank = TransportRank {
        me: Rank(0),
        seats: (0..3).map(|gpu| (Rank(0), Unit::Gpu(gpu))).collect(),
        port: &mut *port,
        memory: &machine.driver().unwrap(),
        link: &OneProcess,
        messages: [WireOp::Ping, WireOp::Send { window: 1 }, WireOp::Send { window: 16 }]
            .map(op)
            .into(),
        atomics: Vec::new(),
        collectives: collectives.map(op).collect(),
        modes: vec![RepeatMode::Streaming, RepeatMode::Isolated, RepeatMode::Graph],
        sizes: vec![8, 120, 192 << 10],
    };
    check_transport(&mut rank).unwrap();
    let sum = CheckedFlow::collective(op(of(Collective::AllReduce, false)), 240, 3);
    let send = CheckedFlow::message(op(WireOp::Send { window: 16 }), 64, false);
    for (flow, through) in [(sum, ", ring simple on 4 channels"), (send, "")] {
        let engine = rank.exchange(&[flow], RepeatMode::Streaming, 2).unwrap().engine;
        assert_eq!(engine, format!("{library}{through}, via P2P/stub, buffers registered"));
    }
}

#[test]
fn nccl_moves_every_byte() {
    inside("nccl_moves_every_byte", &NVIDIA, &[], "gpus=3", || everything("NCCL 2.28.3"));
}

#[test]
fn rccl_moves_every_byte() {
    inside("rccl_moves_every_byte", &AMD, &[], "gpus=3", || everything("RCCL 2.28.3"));
}

/// Every operation on every type, over four GPUs: averages over three are not exact.
#[test]
fn every_type_is_reduced_by_every_operation() {
    inside("every_type_is_reduced_by_every_operation", &NVIDIA, &[], "gpus=4", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let ops = [Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter];
        for &element in ElementType::ALL {
            for &by in ReduceOp::ALL {
                for of in ops {
                    let op = WireOp::reduction(of, ElementReduction { element, by });
                    let check = checks::collective(&memory, op, 4 * 8 * 15);
                    once(&mut *port, &memory, &check, (RepeatMode::Streaming, 1), &Alone).unwrap();
                }
            }
        }
    });
}

/// A library that computes another operation, or on another type of the same size.
#[test]
fn a_wrong_reduction_is_seen() {
    inside("a_wrong_reduction_is_seen", &NVIDIA, &[], "gpus=2", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        for (wanted, computed) in [
            ("all_reduce-float-max", "all_reduce-float"),
            ("all_reduce-float", "all_reduce-float-max"),
            ("all_reduce-bf16-prod", "all_reduce-bf16"),
            ("all_reduce-float-avg", "all_reduce-float"),
            ("all_reduce-half", "all_reduce-bf16"),
            ("all_reduce-int8-max", "all_reduce-uint8-max"),
            ("all_reduce-fp8e4m3", "all_reduce-fp8e5m2"),
        ] {
            let mut check = checks::collective(&memory, wanted.parse().unwrap(), 480);
            check.parts[0].wire.op = computed.parse().unwrap();
            let (id, offer) = port.bind(&check.parts, RepeatMode::Streaming).unwrap();
            port.join(id, &[offer]).unwrap();
            lay(&memory, &check).unwrap();
            port.run(id, 1, &Alone).unwrap();
            assert!(wrong(&memory, &check).unwrap().is_some(), "{computed} for {wanted}");
            port.release(id).unwrap();
        }
    });
}

const STREAMING: (RepeatMode, u64) = (RepeatMode::Streaming, 2);

/// Threads of libraries read the environment without pathline's lock, so nothing may change in it
/// while the library logs, which takes 0.1 s here.
#[test]
fn the_environment_stays_as_it_is_while_the_library_logs() {
    let test = "the_environment_stays_as_it_is_while_the_library_logs";
    inside(test, &NVIDIA, &[], "gpus=2,slow=ncclAllReduce@1:100", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|threads| {
            let watch = threads.spawn(|| {
                let logs = |(name, _): &(OsString, OsString)| {
                    name.to_string_lossy().starts_with("NCCL_DEBUG")
                };
                while !over.load(Ordering::Acquire) {
                    if let Some(found) = std::env::vars_os().find(logs) {
                        return Some(found);
                    }
                }
                None
            });
            let check = all_reduce(&memory);
            let (_, engine) = once(&mut *port, &memory, &check, STREAMING, &Alone).unwrap();
            assert!(engine.contains("ring simple on 4 channels, via P2P/stub"), "{engine}");
            over.store(true, Ordering::Release);
            watch.join().unwrap()
        });
        assert_eq!(seen, None);
    });
}

/// A sum whose buffers are not registered.
fn unregistered(memory: &Memory<'_>) -> Check {
    let mut check = all_reduce(memory);
    for part in &mut check.parts {
        let reduced = ElementReduction::USUAL;
        let op = Collective::AllReduce;
        part.wire.op = WireOp::Group { op, reduced, in_place: false, unregistered: true };
    }
    check
}

#[test]
fn buffers_are_registered_or_not_in_one_run() {
    inside("buffers_are_registered_or_not_in_one_run", &NVIDIA, &[], "gpus=3", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        for (check, end) in [
            (all_reduce(&memory), "via P2P/stub, buffers registered"),
            (unregistered(&memory), "via P2P/stub, buffers not registered"),
            (all_reduce(&memory), "via P2P/stub, buffers registered"),
        ] {
            let (_, engine) = once(&mut *port, &memory, &check, STREAMING, &Alone).unwrap();
            assert!(engine.ends_with(end), "{engine}");
        }
    });
}

fn all_reduce(memory: &Memory<'_>) -> Check {
    checks::collective(memory, WireOp::group(Collective::AllReduce), 240)
}

#[test]
fn all_to_all_without_a_call_for_it_is_messages() {
    let test = "all_to_all_without_a_call_for_it_is_messages";
    inside(test, &NVIDIA, &["ncclAlltoAll", "ncclCommRegister"], "gpus=3", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let check = checks::collective(&memory, WireOp::group(Collective::AllToAll), 240);
        for pace in [RepeatMode::Streaming, RepeatMode::Graph] {
            let (_, engine) = once(&mut *port, &memory, &check, (pace, 2), &Alone).unwrap();
            assert_eq!(engine, "NCCL 2.28.3, via P2P/stub");
        }
        // There is no call that registers buffers, so that leaving it out is no other case.
        let error = once(&mut *port, &memory, &unregistered(&memory), STREAMING, &Alone);
        let error = error.unwrap_err();
        assert!(error.reason.contains("registers no buffers"), "{error}");
    });
}

#[test]
fn a_library_that_lacks_a_function_is_named_with_a_remedy() {
    let test = "a_library_that_lacks_a_function_is_named_with_a_remedy";
    inside(test, &NVIDIA, &["ncclCommAbort", "ncclSend"], "gpus=2", || {
        let why = opened(Duration::from_secs(1)).1.err().unwrap();
        assert!(why.contains("it lacks ncclCommAbort, ncclSend"), "{why}");
        assert!(why.contains("PATHLINE_NCCL"), "{why}");
    });
}

#[test]
fn without_the_library_or_the_runtime_there_is_a_reason() {
    let test = "without_the_library_or_the_runtime_there_is_a_reason";
    inside(test, &[StubLibraries::Cuda], &[], "gpus=2", || {
        let asked = LibraryRequest::new(CompileMode::InProcess);
        let runtime = runtime(&Topology::default(), &asked);
        let nowhere =
            CclAsked { library: Some("/nowhere/libnccl.so.2".into()), ..Default::default() };
        let why = open_ccl(&runtime, &nowhere).err().unwrap();
        assert!(why.contains("no NCCL (libnccl) (/nowhere/libnccl.so.2: No such file"), "{why}");
        let none = asked.with("cuda", "/nowhere/libcuda.so.1");
        let without = pathline_gpu::runtime(&Topology::default(), &none);
        let why = open_ccl(&without, &CclAsked::default()).err().unwrap();
        assert!(why.contains("no GPU runtime"), "{why}");
    });
}

/// The error of a case, and the next case after it, which must succeed.
fn fails_once(timeout: Duration) -> (CallError, String) {
    let (machine, port) = opened(timeout);
    let (mut port, memory) = (port.unwrap(), memory(&machine));
    let check = all_reduce(&memory);
    let run = (RepeatMode::Streaming, 2);
    let error = once(&mut *port, &memory, &check, run, &Alone).unwrap_err();
    let (_, engine) = once(&mut *port, &memory, &check, run, &Alone).unwrap();
    (error, engine)
}

#[test]
fn a_call_that_fails_on_one_gpu_costs_its_case_alone() {
    let test = "a_call_that_fails_on_one_gpu_costs_its_case_alone";
    // Three calls of the repetition that is not timed, then one of the first three that are.
    inside(test, &NVIDIA, &[], "gpus=3,fail=ncclAllReduce@5:3", || {
        let (error, engine) = fails_once(Duration::from_secs(30));
        assert_eq!((error.call.as_str(), error.code), ("ncclAllReduce", 3), "{error}");
        assert!(error.thing.contains("r0.gpu0, r0.gpu1, r0.gpu2"), "{error}");
        assert_eq!(error.reason, "internal error (stub)");
        assert_eq!(error.severity, Severity::Transient);
        assert!(engine.contains("ring simple"), "{engine}");
    });
}

#[test]
fn an_error_behind_the_calls_is_found() {
    let test = "an_error_behind_the_calls_is_found";
    inside(test, &NVIDIA, &[], "gpus=2,fail=ncclCommGetAsyncError@1:6", || {
        let (error, _) = fails_once(Duration::from_secs(30));
        assert_eq!((error.call.as_str(), error.code), ("ncclCommGetAsyncError", 6), "{error}");
        assert_eq!(error.severity, Severity::Sticky);
        assert!(error.way_out.contains("which rank ended first"), "{error}");
    });
}

#[test]
fn a_gpu_that_never_answers_ends_the_case_in_time() {
    let test = "a_gpu_that_never_answers_ends_the_case_in_time";
    inside(test, &NVIDIA, &[], "gpus=2,hang=ncclAllReduce@4", || {
        let (error, _) = fails_once(Duration::from_secs(5));
        assert_eq!(error.call, "cuStreamQuery", "{error}");
        assert!(error.reason.contains("did not end within 5 s"), "{error}");
        assert_eq!(error.severity, Severity::Sticky);
    });
}

#[test]
fn a_rank_that_never_joins_ends_the_port_and_not_the_process() {
    let test = "a_rank_that_never_joins_ends_the_port_and_not_the_process";
    inside(test, &NVIDIA, &[], "gpus=2,fail=ncclCommInitRank@2:2", || {
        let (machine, port) = opened(Duration::from_secs(5));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let check = all_reduce(&memory);
        let (id, offer) = port.bind(&check.parts, RepeatMode::Streaming).unwrap();
        let error = port.join(id, &[offer]).unwrap_err();
        // One of the two waits for the other for ever, as the real library does.
        assert_eq!(error.call, "ncclCommInitRank", "{error}");
        assert!(error.reason.contains("gave no answer in 5 s"), "{error}");
        let again = port.bind(&check.parts, RepeatMode::Streaming).unwrap_err();
        assert_eq!(again.severity, Severity::Sticky, "{again}");
        assert!(again.way_out.contains("new process"), "{again}");
    });
}

#[test]
fn a_wrong_byte_is_seen() {
    inside("a_wrong_byte_is_seen", &NVIDIA, &[], "gpus=2,corrupt=ncclAllReduce@3", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let check = all_reduce(&memory);
        let (id, offer) = port.bind(&check.parts, RepeatMode::Streaming).unwrap();
        port.join(id, &[offer]).unwrap();
        lay(&memory, &check).unwrap();
        port.run(id, 1, &Alone).unwrap();
        assert!(wrong(&memory, &check).unwrap().is_some());
        lay(&memory, &check).unwrap();
        port.run(id, 1, &Alone).unwrap();
        assert_eq!(wrong(&memory, &check).unwrap(), None);
        port.release(id).unwrap();
    });
}

struct Absent;
impl RankBarrier for Absent {
    fn wait(&self) -> CallResult<()> {
        Err(CallError::new(Severity::Transient, "meet", "rank 1", "it did not come"))
    }
}

#[test]
fn a_rank_that_misses_the_barrier_ends_the_case() {
    inside("a_rank_that_misses_the_barrier_ends_the_case", &NVIDIA, &[], "gpus=2", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        let check = all_reduce(&memory);
        for pace in [RepeatMode::Streaming, RepeatMode::Isolated, RepeatMode::Graph] {
            let error = once(&mut *port, &memory, &check, (pace, 2), &Absent).unwrap_err();
            assert_eq!(error.reason, "it did not come");
            once(&mut *port, &memory, &check, (pace, 2), &Alone).unwrap();
        }
    });
}

#[test]
fn ranks_that_differ_in_communicators_report_it_and_start_again() {
    let test = "ranks_that_differ_in_communicators_report_it_and_start_again";
    inside(test, &NVIDIA, &[], "gpus=1", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        // This is rank 0 of two; the other one reports that it still has a communicator.
        let op = WireOp::group(Collective::AllReduce);
        let span = pathline_hal::LocalMemory { address: memory.a[0], bytes: 8 };
        let part = FlowPart {
            wire: MessageOp::new(Transport::Ccl, op),
            bytes: 8,
            group: vec![(Rank(0), Unit::Gpu(0)), (Rank(1), Unit::Gpu(1))],
            positions: vec![0],
            send: vec![span],
            recv: vec![span],
            device: vec![true],
        };
        let (id, own) = port.bind(&[part], RepeatMode::Streaming).unwrap();
        let mut other = own.clone();
        other[..9].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 0]);
        let error = port.join(id, &[own.clone(), other]).unwrap_err();
        assert!(error.reason.contains("not all its ranks"), "{error}");
        let error = port.join(id, &[own, Vec::new()]).unwrap_err();
        assert!(error.reason.contains("rank 1 sent no offer"), "{error}");
        port.release(id).unwrap();
    });
}

#[test]
fn more_groups_than_are_kept_come_and_go() {
    inside("more_groups_than_are_kept_come_and_go", &NVIDIA, &[], "gpus=6", || {
        let (machine, port) = opened(Duration::from_secs(30));
        let (mut port, memory) = (port.unwrap(), memory(&machine));
        // 15 pairs of 6 GPUs, twice: 8 are kept.
        for _ in 0..2 {
            for a in 0..6 {
                for b in a + 1..6 {
                    let pair = pair(&memory, [a, b]);
                    let check = checks::collective(&pair, WireOp::group(Collective::AllGather), 64);
                    once(&mut *port, &pair, &check, (RepeatMode::Streaming, 1), &Alone).unwrap();
                }
            }
        }
    });
}
