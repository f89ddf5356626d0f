//! How a call enters: one at a time, counted, struck if that is on order, with its context.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::node::{Api, Handle, Node, Outcome};
use crate::spec::Blow;
use crate::status;

/// What a call needs before it can do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it works before the library is initialised.
    Nothing,
    /// An initialised library.
    Init,
    /// A context of the calling thread that no error has made useless.
    Context,
}

/// A node that threads share.
struct Shared(Mutex<Option<Node>>);

// SAFETY: the parts of a node that are not Send are shared only among themselves: its machine's
// clock, host and driver hold one world, none of them leaves the node, and the lock lets one thread
// at a time reach it.
unsafe impl Sync for Shared {}

static CUDA: Shared = Shared(Mutex::new(None));
static HIP: Shared = Shared(Mutex::new(None));

thread_local! {
    /// The thread's context: its GPU and one more; 0 is none.
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
    /// The thread's GPU under HIP.
    static DEVICE: Cell<u32> = const { Cell::new(0) };
}

/// The handle of a GPU's primary context.
pub(crate) fn context(gpu: u32) -> Handle {
    0xc0_0000 + gpu as Handle * 16
}
/// The GPU of a context.
pub(crate) fn gpu_of(context: Handle) -> Option<u32> {
    let offset = context.checked_sub(0xc0_0000)?;
    if offset.is_multiple_of(16) { u32::try_from(offset / 16).ok() } else { None }
}
pub(crate) fn set_current(context: Handle) {
    CURRENT.set(context);
}
pub(crate) fn set_device(gpu: u32) {
    DEVICE.set(gpu);
}
pub(crate) fn current() -> Handle {
    CURRENT.get()
}

/// Runs the body of a call and gives its status.
pub(crate) fn enter(
    api: Api,
    name: &'static str,
    needs: Needs,
    body: impl FnOnce(&mut Node) -> Outcome,
) -> i32 {
    let shared = match api {
        Api::Cuda => &CUDA,
        Api::Hip => &HIP,
    };
    let mut guard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let node = guard.get_or_insert_with(|| Node::new(api));
    let blow = node.strike(name);
    match blow {
        Some(Blow::Hangs) => {
            drop(guard);
            loop {
                std::thread::park();
            }
        }
        Some(Blow::Crashes) => crash(),
        Some(Blow::Slow(ms)) => std::thread::park_timeout(Duration::from_millis(ms)),
        Some(Blow::Fails(code)) => {
            if status::is_sticky(code) {
                let gpu = here(node).unwrap_or(0);
                node.ruin(gpu, code);
            }
            return code;
        }
        Some(Blow::Corrupts) => node.corrupt = true,
        Some(Blow::Short | Blow::Overruns) | None => {}
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        admit(node, name, needs)?;
        node.queues.epoch += 1;
        if needs == Needs::Context {
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

fn here(node: &Node) -> Option<u32> {
    match node.api {
        Api::Cuda => gpu_of(CURRENT.get()),
        Api::Hip => Some(DEVICE.get()),
    }
}

fn admit(node: &mut Node, name: &str, needs: Needs) -> Outcome {
    if needs == Needs::Nothing {
        return Ok(());
    }
    if node.api == Api::Hip && !node.initialised {
        node.initialise()?;
    }
    if !node.initialised {
        return Err(status::NOT_INITIALIZED);
    }
    if node.spec.missing.iter().any(|missing| missing == name) {
        return Err(status::NOT_SUPPORTED);
    }
    if needs == Needs::Init {
        return Ok(());
    }
    let gpu = here(node).ok_or(status::INVALID_CONTEXT)?;
    match node.sticky.get(&gpu) {
        Some(&code) => Err(code),
        None => {
            node.gpu = gpu;
            Ok(())
        }
    }
}

/// Dies as a fault in a driver makes a process die.
pub(crate) fn crash() -> ! {
    loop {
        // SAFETY: the default action is set, and a signal to oneself needs no memory.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::raise(libc::SIGSEGV);
        }
    }
}

impl Node {
    /// As the first call of a library does it.
    pub(crate) fn initialise(&mut self) -> Outcome {
        if self.wrong.is_some() {
            return Err(status::UNKNOWN);
        }
        if self.spec.no_permission && self.api == Api::Cuda {
            return Err(status::OPERATING_SYSTEM);
        }
        if self.gpus.is_empty() || self.spec.no_permission {
            return Err(status::NO_DEVICE);
        }
        self.initialised = true;
        Ok(())
    }
}
