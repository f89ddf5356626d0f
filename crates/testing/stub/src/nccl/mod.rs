//! NCCL and RCCL, which share their function names.
//!
//! An operation is a host function in the stream of each GPU, enqueued by `cuLaunchHostFunc`. It
//! sends its rank's data to the hub of the communicator and waits for the rank's result; ranks may
//! belong to one or more processes.
#![allow(non_snake_case)]

mod collective;
mod communicator;
mod elements;
mod frame;
mod hub;
mod state;

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::sibling;
use crate::spec::StubFault;
use crate::streams::StubHandle;
use collective::{Operation, StubCollective, size_of};
use communicator::{CommAct, CommTask, Communicator};
use state::{communicator, with};

/// Statuses: `ncclResult_t`.
pub(crate) const SYSTEM: i32 = 2;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const INVALID_USAGE: i32 = 5;
/// A remote process is gone.
pub(crate) const REMOTE: i32 = 6;
/// 2.28.3.
const VERSION: i32 = 22803;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct StubUniqueId([u8; hub::ID_BYTES]);

/// Calls of this thread since `ncclGroupStart`.
#[derive(Default)]
struct OpenGroup {
    depth: u32,
    /// By communicator and stream.
    tasks: Vec<((StubHandle, StubHandle), CommTask)>,
}

thread_local! {
    static GROUP: RefCell<OpenGroup> = RefCell::default();
}

type LaunchHost =
    unsafe extern "C" fn(StubHandle, unsafe extern "C" fn(*mut c_void), *mut c_void) -> i32;

/// The runtime's call that enqueues a host function, from the library in the same folder, which the
/// process has opened before.
fn launcher() -> Option<LaunchHost> {
    static AT: OnceLock<Option<usize>> = OnceLock::new();
    let find = || {
        let (prefix, name) = match sibling::is_called("rccl") {
            true => ("libamdhip64.so.", c"hipLaunchHostFunc"),
            false => ("libcuda.so.1", c"cuLaunchHostFunc"),
        };
        sibling::symbol(prefix, name)
    };
    // SAFETY: both functions have this signature.
    (*AT.get_or_init(find)).map(|at| unsafe { std::mem::transmute::<usize, LaunchHost>(at) })
}

/// Enqueues tasks to their streams.
fn flush(tasks: Vec<((StubHandle, StubHandle), CommTask)>) -> i32 {
    let Some(launch) = launcher() else { return SYSTEM };
    for ((_, stream), task) in tasks {
        with(|state| state.log(&task));
        // A graph may run it any number of times, so it is never freed.
        let data = Box::into_raw(Box::new(task)).cast();
        // SAFETY: the function takes such a task.
        let code = unsafe { launch(stream, perform, data) };
        if code != 0 {
            return 1;
        }
    }
    0
}

/// # Safety
/// `task` is a [`CommTask`] that was enqueued to a stream.
unsafe extern "C" fn perform(task: *mut c_void) {
    // SAFETY: the caller's promise.
    let task = unsafe { &*task.cast::<CommTask>() };
    if let Some(communicator) = communicator(task.communicator) {
        // SAFETY: as the program that enqueued it promised: its ranges are memory that only this
        // operation uses until its stream is past it.
        unsafe { communicator.perform(task) };
    }
}

/// Enqueues one operation, or adds it to the open group.
fn enqueue(name: &'static str, comm: StubHandle, stream: StubHandle, act: CommAct) -> i32 {
    let rank = communicator(comm).map(|c| c.rank);
    let blow = with(|state| state.strike_operation(name, rank, act.bytes()));
    let (mut hangs, mut corrupts) = (false, false);
    match blow {
        Some(StubFault::Fails(code)) => return code,
        Some(StubFault::Crashes) => crate::entry::crash(),
        Some(StubFault::Hangs) => hangs = true,
        Some(StubFault::Corrupts) => corrupts = true,
        Some(StubFault::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
        }
        Some(StubFault::Short | StubFault::Overruns) | None => {}
    }
    if rank.is_none() {
        return INVALID_ARGUMENT;
    }
    let alone = GROUP.with_borrow_mut(|group| {
        let key = (comm, stream);
        let at = group.tasks.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
            let task = CommTask { communicator: comm, acts: vec![], hangs: false, corrupts: false };
            group.tasks.push((key, task));
            group.tasks.len() - 1
        });
        let task = &mut group.tasks[at].1;
        task.acts.push(act);
        task.hangs |= hangs;
        task.corrupts |= corrupts;
        (group.depth == 0).then(|| std::mem::take(&mut group.tasks))
    });
    alone.map_or(0, flush)
}

/// Enqueues a collective.
fn collective(
    name: &'static str,
    (comm, stream): (StubHandle, StubHandle),
    (send, receive): (u64, u64),
    call: StubCollective,
) -> i32 {
    enqueue(name, comm, stream, CommAct::Collective { send, receive, call })
}

/// Exports functions under the vendors' names.
macro_rules! export {
    ($($name:ident($($arg:ident: $kind:ty),*) $body:block)*) => {
        $(
            // SAFETY: the name is the vendors', for whose library this one stands in.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $kind),*) -> i32 $body
        )*
    };
}

/// Stores a result; the status of a null pointer is an error.
///
/// # Safety
/// `out` is null or points to a place for it.
unsafe fn put<T>(out: *mut T, value: T) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { crate::calls::put(out, value) }.map_or(INVALID_ARGUMENT, |()| 0)
}

/// The injected fault of a rank's call that enqueues nothing.
fn struck(name: &'static str, rank: Option<i32>) -> Option<i32> {
    match with(|state| state.strike(name, rank)) {
        Some(StubFault::Fails(code)) => Some(code),
        Some(StubFault::Hangs) => loop {
            std::thread::park();
        },
        Some(StubFault::Crashes) => crate::entry::crash(),
        Some(StubFault::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
            None
        }
        Some(StubFault::Corrupts | StubFault::Short | StubFault::Overruns) | None => None,
    }
}

/// Ends a rank.
fn leave(name: &'static str, comm: StubHandle, abort: bool) -> i32 {
    let Some(leaving) = communicator(comm) else { return INVALID_ARGUMENT };
    if let Some(code) = struck(name, Some(leaving.rank)) {
        return code;
    }
    with(|state| drop(state.remove(comm)));
    leaving.leave(abort);
    0
}

export! {
    ncclGetVersion(out: *mut i32) {
        // SAFETY: here and below, the caller passes arguments as `nccl.h` requires.
        unsafe { put(out, VERSION) }
    }
    ncclGetUniqueId(out: *mut StubUniqueId) {
        if let Some(code) = struck("ncclGetUniqueId", None) {
            return code;
        }
        match hub::open() {
            // SAFETY: as above.
            Ok(id) => unsafe { put(out, StubUniqueId(id)) },
            Err(_) => SYSTEM,
        }
    }
    ncclCommInitRank(out: *mut StubHandle, size: i32, id: StubUniqueId, rank: i32) {
        if let Some(code) = struck("ncclCommInitRank", Some(rank)) {
            return code;
        }
        match Communicator::join(&id.0, size, rank) {
            // SAFETY: as above.
            Ok(joined) => unsafe { put(out, with(|state| state.add(joined))) },
            Err(code) => code,
        }
    }
    ncclCommDestroy(comm: StubHandle) {
        leave("ncclCommDestroy", comm, false)
    }
    ncclCommAbort(comm: StubHandle) {
        leave("ncclCommAbort", comm, true)
    }
    ncclCommGetAsyncError(comm: StubHandle, out: *mut i32) {
        let Some(looked_at) = communicator(comm) else { return INVALID_ARGUMENT };
        let struck = struck("ncclCommGetAsyncError", Some(looked_at.rank));
        // SAFETY: as above.
        unsafe { put(out, struck.unwrap_or_else(|| looked_at.error())) }
    }
    ncclCommRegister(comm: StubHandle, address: u64, bytes: usize, out: *mut StubHandle) {
        let Some(with_it) = communicator(comm) else { return INVALID_ARGUMENT };
        if let Some(code) = struck("ncclCommRegister", Some(with_it.rank)) {
            return code;
        }
        if address == 0 || bytes == 0 {
            return INVALID_ARGUMENT;
        }
        let handle = with(|state| state.handle());
        with_it.register(handle);
        // SAFETY: as above.
        unsafe { put(out, handle) }
    }
    ncclCommDeregister(comm: StubHandle, handle: StubHandle) {
        let Some(with_it) = communicator(comm) else { return INVALID_ARGUMENT };
        let struck = struck("ncclCommDeregister", Some(with_it.rank));
        struck.unwrap_or_else(|| with_it.deregister(handle))
    }
    ncclGroupStart() {
        GROUP.with_borrow_mut(|group| group.depth += 1);
        0
    }
    ncclGroupEnd() {
        let tasks = GROUP.with_borrow_mut(|group| {
            group.depth = group.depth.saturating_sub(1);
            (group.depth == 0).then(|| std::mem::take(&mut group.tasks))
        });
        tasks.map_or(0, flush)
    }
    ncclSend(at: u64, count: usize, kind: i32, peer: i32, comm: StubHandle, stream: StubHandle) {
        let bytes = count * size_of(kind);
        enqueue("ncclSend", comm, stream, CommAct::Send { at, bytes, peer })
    }
    ncclRecv(at: u64, count: usize, kind: i32, peer: i32, comm: StubHandle, stream: StubHandle) {
        let bytes = count * size_of(kind);
        enqueue("ncclRecv", comm, stream, CommAct::Receive { at, bytes, peer })
    }
    ncclAllReduce(send: u64, recv: u64, count: usize, kind: i32, op: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::AllReduce, count, kind, reduction: op, root: 0 };
        collective("ncclAllReduce", (comm, stream), (send, recv), call)
    }
    ncclReduce(send: u64, recv: u64, count: usize, kind: i32, op: i32, root: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::Reduce, count, kind, reduction: op, root };
        collective("ncclReduce", (comm, stream), (send, recv), call)
    }
    ncclBroadcast(send: u64, recv: u64, count: usize, kind: i32, root: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::Broadcast, count, kind, reduction: 0, root };
        collective("ncclBroadcast", (comm, stream), (send, recv), call)
    }
    ncclReduceScatter(send: u64, recv: u64, count: usize, kind: i32, op: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::ReduceScatter, count, kind, reduction: op, root: 0 };
        collective("ncclReduceScatter", (comm, stream), (send, recv), call)
    }
    ncclAllGather(send: u64, recv: u64, count: usize, kind: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::AllGather, count, kind, reduction: 0, root: 0 };
        collective("ncclAllGather", (comm, stream), (send, recv), call)
    }
    ncclAlltoAll(send: u64, recv: u64, count: usize, kind: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::AllToAll, count, kind, reduction: 0, root: 0 };
        collective("ncclAlltoAll", (comm, stream), (send, recv), call)
    }
    ncclGather(send: u64, recv: u64, count: usize, kind: i32, root: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::Gather, count, kind, reduction: 0, root };
        collective("ncclGather", (comm, stream), (send, recv), call)
    }
    ncclScatter(send: u64, recv: u64, count: usize, kind: i32, root: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::Scatter, count, kind, reduction: 0, root };
        collective("ncclScatter", (comm, stream), (send, recv), call)
    }
    ncclAllToAll(send: u64, recv: u64, count: usize, kind: i32, comm: StubHandle, stream: StubHandle) {
        let call = StubCollective { operation: Operation::AllToAll, count, kind, reduction: 0, root: 0 };
        collective("ncclAllToAll", (comm, stream), (send, recv), call)
    }
}

// SAFETY: the name is the vendors', for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: i32) -> *const c_char {
    let text = match code {
        0 => c"no error",
        1 => c"unhandled cuda error (stub)",
        2 => c"unhandled system error (stub)",
        3 => c"internal error (stub)",
        4 => c"invalid argument (stub)",
        5 => c"invalid usage (stub)",
        6 => c"remote process exited or there was a network error (stub)",
        7 => c"operation in progress (stub)",
        _ => c"unknown result code (stub)",
    };
    text.as_ptr()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: StubHandle) -> *const c_char {
    c"".as_ptr()
}

/// Reads the environment for the log again.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn ncclResetDebugInit() {
    let on = std::env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("info"));
    let file = std::env::var_os("NCCL_DEBUG_FILE").map(PathBuf::from).filter(|_| on);
    with(|state| state.log = file.and_then(|file| std::fs::File::create(file).ok()));
}
