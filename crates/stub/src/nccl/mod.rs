//! NCCL and RCCL: the functions of either, which both have the same names.
//!
//! An operation is a function of the host in the stream of each GPU, as `cuLaunchHostFunc` puts it
//! there: it waits for the others of its communicator, and the last that comes does the work.
#![allow(non_snake_case)]

mod world;

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::beside;
use crate::node::Handle;
use crate::spec::Blow;
use world::{Act, Task, state};

/// Statuses: `ncclResult_t`.
pub(crate) const SYSTEM: i32 = 2;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const INVALID_USAGE: i32 = 5;
/// 2.28.3.
const VERSION: i32 = 22803;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

/// What this thread has said since `ncclGroupStart`.
#[derive(Default)]
struct Said {
    depth: u32,
    /// By communicator and stream.
    tasks: Vec<((Handle, Handle), Task)>,
}

thread_local! {
    static SAID: RefCell<Said> = RefCell::default();
}

type Launch = unsafe extern "C" fn(Handle, unsafe extern "C" fn(*mut c_void), *mut c_void) -> i32;

/// The runtime's call that puts a function into a stream, from the library beside this one, which
/// the process has opened before.
fn launcher() -> Option<Launch> {
    static AT: OnceLock<Option<usize>> = OnceLock::new();
    let find = || {
        let (prefix, name) = match beside::is_called("rccl") {
            true => ("libamdhip64.so.", c"hipLaunchHostFunc"),
            false => ("libcuda.so.1", c"cuLaunchHostFunc"),
        };
        beside::symbol(prefix, name)
    };
    // SAFETY: both functions have this signature.
    (*AT.get_or_init(find)).map(|at| unsafe { std::mem::transmute::<usize, Launch>(at) })
}

/// Puts what was said into its streams.
fn flush(tasks: Vec<((Handle, Handle), Task)>) -> i32 {
    let Some(launch) = launcher() else { return SYSTEM };
    for ((_, stream), task) in tasks {
        task.log();
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
/// `task` is a [`Task`] that was given to a stream.
unsafe extern "C" fn perform(task: *mut c_void) {
    // SAFETY: the caller's promise.
    let task = unsafe { &*task.cast::<Task>() };
    // SAFETY: as the program that enqueued it promised: its ranges hold what it said.
    unsafe { task.perform() };
}

/// Says one operation.
fn say(name: &'static str, comm: Handle, stream: Handle, act: Act) -> i32 {
    let blow = state().strike(name);
    let (mut hangs, mut corrupts) = (false, false);
    match blow {
        Some(Blow::Fails(code)) => return code,
        Some(Blow::Crashes) => crate::entry::crash(),
        Some(Blow::Hangs) => hangs = true,
        Some(Blow::Corrupts) => corrupts = true,
        Some(Blow::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
        }
        Some(Blow::Short | Blow::Overruns) | None => {}
    }
    if !state().knows(comm) {
        return INVALID_ARGUMENT;
    }
    let alone = SAID.with_borrow_mut(|said| {
        let key = (comm, stream);
        let at = said.tasks.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
            said.tasks.push((key, Task::new(comm)));
            said.tasks.len() - 1
        });
        let task = &mut said.tasks[at].1;
        task.acts.push(act);
        task.hangs |= hangs;
        task.corrupts |= corrupts;
        (said.depth == 0).then(|| std::mem::take(&mut said.tasks))
    });
    alone.map_or(0, flush)
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

/// Stores a result, or says that there is no place for it.
///
/// # Safety
/// `out` is null or points to a place for it.
unsafe fn put<T>(out: *mut T, value: T) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { crate::calls::put(out, value) }.map_or(INVALID_ARGUMENT, |()| 0)
}

/// What strikes a call that enqueues nothing.
fn struck(name: &'static str) -> Option<i32> {
    // Not in the scrutinee: the lock would be held as long.
    let blow = state().strike(name);
    match blow {
        Some(Blow::Fails(code)) => Some(code),
        Some(Blow::Hangs) => loop {
            std::thread::park();
        },
        Some(Blow::Crashes) => crate::entry::crash(),
        Some(Blow::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
            None
        }
        Some(Blow::Corrupts | Blow::Short | Blow::Overruns) | None => None,
    }
}

export! {
    ncclGetVersion(out: *mut i32) {
        // SAFETY: the caller's promise, here and below: arguments are what `nccl.h` says.
        unsafe { put(out, VERSION) }
    }
    ncclGetUniqueId(out: *mut UniqueId) {
        if let Some(code) = struck("ncclGetUniqueId") {
            return code;
        }
        let mut id = [0; 128];
        id[..8].copy_from_slice(&state().number().to_le_bytes());
        // SAFETY: as above.
        unsafe { put(out, UniqueId(id)) }
    }
    ncclCommInitRank(out: *mut Handle, size: i32, id: UniqueId, rank: i32) {
        if let Some(code) = struck("ncclCommInitRank") {
            return code;
        }
        let mut number = [0; 8];
        number.copy_from_slice(&id.0[..8]);
        match world::join(u64::from_le_bytes(number), size, rank) {
            // SAFETY: as above.
            Ok(comm) => unsafe { put(out, comm) },
            Err(code) => code,
        }
    }
    ncclCommDestroy(comm: Handle) {
        struck("ncclCommDestroy").unwrap_or_else(|| world::leave(comm, false))
    }
    ncclCommAbort(comm: Handle) {
        struck("ncclCommAbort").unwrap_or_else(|| world::leave(comm, true))
    }
    ncclCommGetAsyncError(comm: Handle, out: *mut i32) {
        let met = struck("ncclCommGetAsyncError").unwrap_or_else(|| state().met(comm));
        // SAFETY: as above.
        unsafe { put(out, met) }
    }
    ncclCommRegister(comm: Handle, address: u64, bytes: usize, out: *mut Handle) {
        if let Some(code) = struck("ncclCommRegister") {
            return code;
        }
        if !state().knows(comm) || address == 0 || bytes == 0 {
            return INVALID_ARGUMENT;
        }
        // SAFETY: as above.
        unsafe { put(out, state().register(comm)) }
    }
    ncclCommDeregister(comm: Handle, handle: Handle) {
        struck("ncclCommDeregister").unwrap_or_else(|| state().deregister(comm, handle))
    }
    ncclGroupStart() {
        SAID.with_borrow_mut(|said| said.depth += 1);
        0
    }
    ncclGroupEnd() {
        let tasks = SAID.with_borrow_mut(|said| {
            said.depth = said.depth.saturating_sub(1);
            (said.depth == 0).then(|| std::mem::take(&mut said.tasks))
        });
        tasks.map_or(0, flush)
    }
    ncclSend(at: u64, count: usize, kind: i32, peer: i32, comm: Handle, stream: Handle) {
        let bytes = count * world::size_of(kind);
        say("ncclSend", comm, stream, Act::Send { at, bytes, peer })
    }
    ncclRecv(at: u64, count: usize, kind: i32, peer: i32, comm: Handle, stream: Handle) {
        let bytes = count * world::size_of(kind);
        say("ncclRecv", comm, stream, Act::Recv { at, bytes, peer })
    }
    ncclAllReduce(send: u64, recv: u64, count: usize, kind: i32, op: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "AllReduce", send, recv, count, kind, op, root: 0 };
        say("ncclAllReduce", comm, stream, Act::All(all))
    }
    ncclReduce(send: u64, recv: u64, count: usize, kind: i32, op: i32, root: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "Reduce", send, recv, count, kind, op, root };
        say("ncclReduce", comm, stream, Act::All(all))
    }
    ncclBroadcast(send: u64, recv: u64, count: usize, kind: i32, root: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "Broadcast", send, recv, count, kind, op: 0, root };
        say("ncclBroadcast", comm, stream, Act::All(all))
    }
    ncclReduceScatter(send: u64, recv: u64, count: usize, kind: i32, op: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "ReduceScatter", send, recv, count, kind, op, root: 0 };
        say("ncclReduceScatter", comm, stream, Act::All(all))
    }
    ncclAllGather(send: u64, recv: u64, count: usize, kind: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "AllGather", send, recv, count, kind, op: 0, root: 0 };
        say("ncclAllGather", comm, stream, Act::All(all))
    }
    ncclAlltoAll(send: u64, recv: u64, count: usize, kind: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "AlltoAll", send, recv, count, kind, op: 0, root: 0 };
        say("ncclAlltoAll", comm, stream, Act::All(all))
    }
    ncclAllToAll(send: u64, recv: u64, count: usize, kind: i32, comm: Handle, stream: Handle) {
        let all = world::All { what: "AlltoAll", send, recv, count, kind, op: 0, root: 0 };
        say("ncclAllToAll", comm, stream, Act::All(all))
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
extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    c"".as_ptr()
}

/// Reads the environment for the log again.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn ncclResetDebugInit() {
    let on = std::env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("info"));
    let file = std::env::var_os("NCCL_DEBUG_FILE").map(PathBuf::from).filter(|_| on);
    state().log = file.and_then(|file| std::fs::File::create(file).ok());
}
