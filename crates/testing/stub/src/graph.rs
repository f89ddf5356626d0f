//! Recording of streams, and graphs made from the records.

use crate::calls::put;
use crate::node::{CallOutcome, StubNode};
use crate::status;
use crate::streams::StubHandle;

/// Starts recording a stream. Modes: global, of the thread, relaxed.
pub(crate) fn begin(node: &mut StubNode, stream: StubHandle, mode: i32) -> CallOutcome {
    let stream = node.stream(stream)?;
    if !(0..=2).contains(&mode) || node.queues.recording.contains_key(&stream) {
        return Err(status::INVALID_VALUE);
    }
    node.queues.recording.insert(stream, Vec::new());
    Ok(())
}

/// Ends recording.
///
/// # Safety
/// `out` is null or can store a handle.
pub(crate) unsafe fn end(
    node: &mut StubNode,
    stream: StubHandle,
    out: *mut StubHandle,
) -> CallOutcome {
    let stream = node.stream(stream)?;
    let graph = node.queues.recording.remove(&stream).ok_or(status::INVALID_VALUE)?;
    let handle = node.handle();
    node.queues.graphs.insert(handle, graph);
    // SAFETY: the caller's promise.
    unsafe { put(out, handle) }
}

/// Makes a launchable graph.
///
/// # Safety
/// `out` is null or can store a handle.
pub(crate) unsafe fn make(
    node: &mut StubNode,
    out: *mut StubHandle,
    graph: StubHandle,
) -> CallOutcome {
    let graph = node.queues.graphs.get(&graph).ok_or(status::INVALID_HANDLE)?.clone();
    let handle = node.handle();
    node.queues.graphs.insert(handle, graph);
    // SAFETY: the caller's promise.
    unsafe { put(out, handle) }
}

/// Enqueues the recorded operations.
pub(crate) fn launch(node: &mut StubNode, graph: StubHandle, stream: StubHandle) -> CallOutcome {
    let graph = node.queues.graphs.get(&graph).ok_or(status::INVALID_HANDLE)?.clone();
    graph.into_iter().try_for_each(|(function, data)| node.call(stream, function, data))
}

/// Frees a graph of either kind.
pub(crate) fn free(node: &mut StubNode, graph: StubHandle) -> CallOutcome {
    node.queues.graphs.remove(&graph).map(|_| ()).ok_or(status::INVALID_HANDLE)
}
