//! Processes that were forked from one with a node: they have neither its thread nor the runtime's, which uses no GPU
//! there either.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::copy_error::{CopyError, CopyStatus};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static WATCHES: Once = Once::new();

extern "C" fn note_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Notes forks from now on. The number of the process would say the same, for a system call in each copy.
pub(crate) fn watch_forks() {
    WATCHES.call_once(|| {
        // SAFETY: the handler only stores a flag. Without memory for it, forks go unnoticed.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(note_child)) };
    });
}

/// Refuses a call in a child of a process that had opened a node.
#[inline]
pub(crate) fn check_process() -> Result<(), CopyError> {
    if IS_CHILD.load(Ordering::Relaxed) {
        let text = "this process was forked from one that had opened a node, and GPUs cannot be used in it: start \
                    workers with exec (Python: spawn), or fork before the first pl_open";
        return Err(CopyError::new(CopyStatus::Forked, text));
    }
    Ok(())
}
