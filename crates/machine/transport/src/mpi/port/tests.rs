//! Operations that an error leaves in flight, with stand-ins for MPI's functions.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

use pathline_hal::{LocalMemory, NoBarrier};
use pathline_schema::{MessageOp, Rank, Unit, WireOp};

use super::super::table::MpiAddress;
use super::*;

/// `MPI_ERR_OTHER` of MPICH.
const FAILS: c_int = 15;

/// The stand-in library: requests in flight, by number.
#[derive(Debug, Default)]
struct Library {
    made: c_int,
    open: BTreeMap<c_int, Request>,
    /// The send that fails, counted from 1.
    failing_send: u32,
    sends: u32,
    /// Whether a tested send ends.
    sends_end: bool,
    receives_end: bool,
    /// Whether a collective fails.
    collective_fails: bool,
    finalised: u32,
}

#[derive(Debug, Default)]
struct Request {
    receives: bool,
    cancelled: bool,
}

thread_local! {
    static LIBRARY: RefCell<Library> = RefCell::default();
}

fn library<T>(does: impl FnOnce(&mut Library) -> T) -> T {
    LIBRARY.with_borrow_mut(does)
}

fn post(request: *mut c_int, receives: bool) {
    let number = library(|l| {
        l.made += 1;
        l.open.insert(l.made, Request { receives, cancelled: false });
        l.made
    });
    // SAFETY: the caller's request, as MPI has it.
    unsafe { *request = number };
}

unsafe extern "C" fn succeeds() -> c_int {
    0
}
unsafe extern "C" fn receive(
    _: MpiAddress,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    request: *mut c_int,
) -> c_int {
    post(request, true);
    0
}
unsafe extern "C" fn send(
    _: MpiAddress,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    request: *mut c_int,
) -> c_int {
    let fails = library(|l| {
        l.sends += 1;
        l.sends == l.failing_send
    });
    if fails {
        return FAILS;
    }
    post(request, false);
    0
}
unsafe extern "C" fn cancel(request: *mut c_int) -> c_int {
    // SAFETY: as above.
    let number = unsafe { *request };
    library(|l| l.open.get_mut(&number).unwrap().cancelled = true);
    0
}
unsafe extern "C" fn test(request: *mut c_int, done: *mut c_int, _: MpiAddress) -> c_int {
    // SAFETY: as above.
    let number = unsafe { *request };
    let ended = library(|l| {
        let known = l.open.get(&number).unwrap();
        let ends = if known.receives { known.cancelled && l.receives_end } else { l.sends_end };
        if ends {
            l.open.remove(&number);
        }
        ends
    });
    // SAFETY: as above.
    unsafe { *done = ended.into() };
    if ended {
        // SAFETY: as above.
        unsafe { *request = abi::mpich().no_request };
    }
    0
}
unsafe extern "C" fn barrier(_: c_int) -> c_int {
    if library(|l| l.collective_fails) { FAILS } else { 0 }
}
unsafe extern "C" fn finalize() -> c_int {
    library(|l| l.finalised += 1);
    0
}

fn world(of: Library) -> MpiWorld<c_int> {
    LIBRARY.replace(of);
    let fns =
        Fns { irecv: receive, isend: send, cancel, test, barrier, finalize, ..Fns::all(succeeds) };
    MpiWorld::stand_in(fns, abi::mpich())
}

fn port(of: Library) -> LivePort<c_int> {
    let (exchanges, clock) = (ExchangeTable::default(), ClockOrigin::now());
    let (carried, collectives, broken, settings) = (None, None, None, Vec::new());
    LivePort { world: world(of), exchanges, clock, carried, collectives, settings, broken }
}

/// Four messages in each direction between rank 0, this process, and rank 1.
fn both_directions(memory: &mut [u8; 16]) -> Vec<FlowPart> {
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    let part = |from: u32, at: u64| {
        let (mine, span) =
            (usize::from(from == 1), LocalMemory { address: address + at, bytes: 8 });
        let of = |here: bool| vec![if here { span } else { LocalMemory::default() }];
        FlowPart {
            wire: MessageOp::new(Transport::Mpi, WireOp::Send { window: 4 }),
            bytes: 8,
            group: vec![(Rank(from), Unit::Numa(0)), (Rank(1 - from), Unit::Numa(0))],
            positions: vec![mine],
            send: of(mine == 0),
            recv: of(mine == 1),
            device: Vec::new(),
        }
    };
    vec![part(0, 0), part(1, 8)]
}

/// Binds and runs once; the error of the run, and the result of the release.
fn run(port: &mut LivePort<c_int>, parts: &[FlowPart]) -> (CallError, CallResult<()>) {
    let (id, offer) = port.bind(parts, RepeatMode::Streaming).unwrap();
    port.join(id, &[offer.clone(), offer]).unwrap();
    let error = port.run(id, 1, &NoBarrier).unwrap_err();
    (error, port.release(id))
}

#[test]
fn an_error_leaves_nothing_in_flight() {
    // Four receives of messages, one of the reply, and one send are in flight when the second send
    // fails: six requests on memory that is freed next.
    let of = Library { failing_send: 2, sends_end: true, receives_end: true, ..Library::default() };
    let mut port = port(of);
    let mut memory = [0; 16];
    let parts = both_directions(&mut memory);
    let (error, released) = run(&mut port, &parts);
    assert_eq!((error.call.as_str(), error.code), ("MPI_Isend", FAILS.into()));
    assert_eq!(library(|l| (l.made, l.open.len())), (6, 0));
    released.unwrap();
    // Later cases work, and `drop` finalises MPI.
    assert!(port.bind(&parts, RepeatMode::Streaming).is_ok());
    drop(port);
    assert_eq!(library(|l| l.finalised), 1);
}

#[test]
fn requests_that_do_not_end_keep_their_memory() {
    for (sends_end, receives_end, left) in [(false, true, 1), (true, false, 5)] {
        let of = Library { failing_send: 2, sends_end, receives_end, ..Library::default() };
        let mut port = port(of);
        let mut memory = [0; 16];
        let parts = both_directions(&mut memory);
        let (error, released) = run(&mut port, &parts);
        assert_eq!(error.call, "MPI_Isend");
        assert_eq!(library(|l| l.open.len()), left);
        // Sticky: the owner keeps the memory.
        let kept = released.unwrap_err();
        assert_eq!(kept.severity, Severity::Sticky, "{kept}");
        assert!(kept.reason.contains("still in flight"), "{kept}");
        // Later cases are skipped with the reason and the remedy.
        let refused = port.bind(&parts, RepeatMode::Streaming).unwrap_err();
        assert_eq!(refused.severity, Severity::Unsupported, "{refused}");
        assert!(refused.reason.contains("MPI_Isend") && refused.way_out.contains("--resume"));
        // Finalising MPI would wait for these requests.
        drop(port);
        assert_eq!(library(|l| l.finalised), 0);
    }
}

#[test]
fn a_failed_collective_keeps_its_memory() {
    let mut port = port(Library { collective_fails: true, ..Library::default() });
    let mut memory = [0; 16];
    let wire = MessageOp::new(Transport::Mpi, WireOp::group(pathline_schema::Collective::Barrier));
    let [part, _] = both_directions(&mut memory).try_into().unwrap();
    let (error, released) = run(&mut port, &[FlowPart { wire, ..part }]);
    assert_eq!(error.call, "MPI_Barrier");
    assert_eq!(released.unwrap_err().severity, Severity::Sticky);
}

#[test]
fn a_failed_check_keeps_its_buffers() {
    // The first send fails, and both receives are in flight.
    let of = |receives_end| Library { failing_send: 1, receives_end, ..Library::default() };
    let mut proven = world(of(true));
    assert_eq!(proven.check_ring(), Err(("MPI_Isend", FAILS)));
    assert!(library(|l| l.made == 2 && l.open.is_empty()));
    drop(proven);
    assert_eq!(library(|l| l.finalised), 1);
    // MPI may write into the buffers until the process ends.
    let mut open = world(of(false));
    assert_eq!(open.check_ring(), Err(("MPI_Isend", FAILS)));
    assert!(open.abandoned && library(|l| l.open.len()) == 2);
    drop(open);
    assert_eq!(library(|l| l.finalised), 0);
}

#[test]
fn crays_setting_decides_its_gpu_support() {
    let cray = "CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)";
    let claim =
        |is_supported, source: &str| Some(DeviceClaim { is_supported, source: source.to_owned() });
    let set = |value: &'static str| {
        move |name: &str| (name == "MPICH_GPU_SUPPORT_ENABLED").then(|| value.to_owned())
    };
    let none = |_: &str| None;
    // A release without the query: only the setting counts.
    assert_eq!(cray_gpu_claim(None, cray, &set("1")), claim(true, "MPICH_GPU_SUPPORT_ENABLED=1"));
    assert_eq!(cray_gpu_claim(None, cray, &set("0")), claim(false, "MPICH_GPU_SUPPORT_ENABLED=0"));
    let unset = claim(false, "MPICH_GPU_SUPPORT_ENABLED, which is not set,");
    assert_eq!(cray_gpu_claim(None, cray, &none), unset);
    // The query counts, and the setting names what to change.
    let reported = claim(false, "MPIX_GPU_query_support");
    let both = claim(false, "MPIX_GPU_query_support (MPICH_GPU_SUPPORT_ENABLED=0)");
    assert_eq!(cray_gpu_claim(reported.clone(), cray, &set("0")), both);
    // Other libraries do not read it.
    assert_eq!(cray_gpu_claim(None, "MPICH 5.0.2", &set("1")), None);
    assert_eq!(cray_gpu_claim(reported.clone(), "MPICH 5.0.2", &set("1")), reported);
}

#[test]
fn settings_are_read_back_as_text() {
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(read_back_text(&[]), "");
    let all = [of("MPIR_CVAR_A", "3"), of("MPIR_CVAR_B", "a b;c")];
    assert_eq!(read_back_text(&all), "; MPI_T reads MPIR_CVAR_A=3 MPIR_CVAR_B=a_b_c");
}
