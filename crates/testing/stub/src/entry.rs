//! Entry of every call: one at a time, counted, with injected faults, with its context.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::node::{CallOutcome, StubNode};
use crate::spec::{StubApi, StubFault, StubSpec};
use crate::status;
use crate::streams::StubHandle;

/// The state that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallNeeds {
    /// Nothing: it works before initialisation.
    Nothing,
    /// An initialised library.
    Init,
    /// A context of the calling thread without a sticky error.
    Context,
}

/// A node shared by threads.
struct SharedNode(Mutex<Option<StubNode>>);

// SAFETY: the parts of a node that are not Send are shared only among themselves: its machine's
// clock, host and driver hold one world, none of them leaves the node, and the lock lets one thread
// at a time reach it.
unsafe impl Sync for SharedNode {}

static CUDA: SharedNode = SharedNode(Mutex::new(None));
static HIP: SharedNode = SharedNode(Mutex::new(None));

thread_local! {
    /// The thread's context: its GPU plus one; 0 is none.
    static CURRENT: Cell<StubHandle> = const { Cell::new(0) };
    /// Contexts below the current one.
    static BELOW: RefCell<Vec<StubHandle>> = const { RefCell::new(Vec::new()) };
    /// The thread's GPU under HIP.
    static DEVICE: Cell<u32> = const { Cell::new(0) };
}

/// The handle of a GPU's primary context.
pub(crate) fn context(gpu: u32) -> StubHandle {
    0xc0_0000 + gpu as StubHandle * 16
}
/// The GPU of a context.
pub(crate) fn gpu_of(context: StubHandle) -> Option<u32> {
    let offset = context.checked_sub(0xc0_0000)?;
    if offset.is_multiple_of(16) { u32::try_from(offset / 16).ok() } else { None }
}
pub(crate) fn set_current(context: StubHandle) {
    CURRENT.set(context);
}
/// Makes a context current above the earlier one.
pub(crate) fn push_current(context: StubHandle) {
    BELOW.with_borrow_mut(|below| below.push(CURRENT.replace(context)));
}
/// Makes the context below current; returns the one above.
pub(crate) fn pop_current() -> Option<StubHandle> {
    let below = BELOW.with_borrow_mut(Vec::pop)?;
    Some(CURRENT.replace(below))
}
pub(crate) fn set_device(gpu: u32) {
    DEVICE.set(gpu);
}

/// Runs the body of a call; returns its status.
pub(crate) fn enter(
    api: StubApi,
    name: &'static str,
    needs: CallNeeds,
    body: impl FnOnce(&mut StubNode) -> CallOutcome,
) -> i32 {
    let shared = match api {
        StubApi::Cuda => &CUDA,
        StubApi::Hip => &HIP,
    };
    let mut guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let node = guard.get_or_insert_with(|| StubNode::new(api));
    let blow = node.strike(name);
    match blow {
        Some(StubFault::Hangs) => {
            drop(guard);
            loop {
                std::thread::park();
            }
        }
        Some(StubFault::Crashes) => crash(),
        Some(StubFault::Slow(ms)) => std::thread::park_timeout(Duration::from_millis(ms)),
        Some(StubFault::Fails(code)) => {
            if status::is_sticky(code) {
                let gpu = here(node).unwrap_or(0);
                node.ruin(gpu, code);
            }
            return code;
        }
        Some(StubFault::Corrupts) => node.corrupt = true,
        Some(StubFault::Short | StubFault::Overruns) | None => {}
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        admit(node, name, needs)?;
        node.queues.epoch += 1;
        if needs == CallNeeds::Context {
            node.poll()?;
        }
        body(node)
    }));
    node.corrupt = false;
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => status::UNKNOWN,
    }
}

fn here(node: &StubNode) -> Option<u32> {
    match node.api {
        StubApi::Cuda => gpu_of(CURRENT.get()),
        StubApi::Hip => Some(DEVICE.get()),
    }
}

fn admit(node: &mut StubNode, name: &str, needs: CallNeeds) -> CallOutcome {
    if needs == CallNeeds::Nothing {
        return Ok(());
    }
    if node.api == StubApi::Hip && !node.initialised {
        node.initialise()?;
    }
    if !node.initialised {
        return Err(status::NOT_INITIALIZED);
    }
    if node.spec.missing.iter().any(|missing| missing == name) {
        return Err(status::NOT_SUPPORTED);
    }
    if needs == CallNeeds::Init {
        return Ok(());
    }
    let gpu = here(node).ok_or(status::INVALID_CONTEXT)?;
    if node.api == StubApi::Cuda && !node.is_retained(gpu) {
        return Err(status::CONTEXT_DESTROYED);
    }
    match node.sticky.get(&gpu) {
        Some(&code) => Err(code),
        None => {
            node.gpu = gpu;
            Ok(())
        }
    }
}

/// Replaces a node by that of a specification (see [`crate::VARIABLE`]), as another process would have it: no
/// context, no memory, no fault so far. 0, or -1 if the text cannot be read. `hip` is 0 for CUDA.
///
/// # Safety
/// `text` is a C string, and nothing of the old node is in use.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
unsafe extern "C" fn pathline_stub_restart(hip: i32, text: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let spec = unsafe { CStr::from_ptr(text) }.to_string_lossy().parse::<StubSpec>();
    let Ok(spec) = spec else { return -1 };
    let (api, shared) = if hip == 0 { (StubApi::Cuda, &CUDA) } else { (StubApi::Hip, &HIP) };
    let mut guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut old) = guard.replace(StubNode::with_spec(api, Ok(spec))) {
        old.unmap_all();
    }
    CURRENT.set(0);
    BELOW.with_borrow_mut(Vec::clear);
    DEVICE.set(0);
    0
}

/// Replaces the faults of a node, and counts calls from here. 0, or -1 if the text cannot be read or there is no
/// node.
///
/// # Safety
/// `text` is a C string.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
unsafe extern "C" fn pathline_stub_inject(hip: i32, text: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let spec = unsafe { CStr::from_ptr(text) }.to_string_lossy().parse::<StubSpec>();
    let shared = if hip == 0 { &CUDA } else { &HIP };
    let mut guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    match (spec, guard.as_mut()) {
        (Ok(spec), Some(node)) => {
            node.inject(spec.faults);
            0
        }
        _ => -1,
    }
}

/// Number of calls of a function since the start or the last [`pathline_stub_inject`].
///
/// # Safety
/// `name` is a C string.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
unsafe extern "C" fn pathline_stub_calls(hip: i32, name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let shared = if hip == 0 { &CUDA } else { &HIP };
    let guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().map_or(0, |node| node.calls_of(&name))
}

/// Virtual time of a node, ns; 0 before its first call.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
extern "C" fn pathline_stub_now(hip: i32) -> f64 {
    let shared = if hip == 0 { &CUDA } else { &HIP };
    let guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().map_or(0.0, |node| node.machine().clock.now().0)
}

/// Ends the process as a fault in a driver would.
pub(crate) fn crash() -> ! {
    loop {
        // SAFETY: the default action is set, and a signal to oneself needs no memory.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::raise(libc::SIGSEGV);
        }
    }
}

impl StubNode {
    /// Initialises, as the first call of a library does.
    pub(crate) fn initialise(&mut self) -> CallOutcome {
        if self.wrong.is_some() {
            return Err(status::UNKNOWN);
        }
        if self.spec.no_permission && self.api == StubApi::Cuda {
            return Err(status::OPERATING_SYSTEM);
        }
        if self.gpus.is_empty() || self.spec.no_permission {
            return Err(status::NO_DEVICE);
        }
        self.initialised = true;
        Ok(())
    }
}
