//! Copies over several paths at once.
//!
//! A relayed copy goes directly and over relays: GPUs that take a chunk from the source into their
//! staging memory, from where the destination takes it. A copy to all brings the same bytes to several
//! GPUs: each takes a part from the source, and the others take that part from it.
//!
//! [`MultipathEngine`] hands out chunks from a queue, so that shares follow from the speed of each path.
//! [`MultipathEngine::enqueue`] fixes the parts of the paths instead and enqueues the whole copy, ordered by events
//! among the work of a caller's streams, so that nothing waits for the host.
//! It only polls, on the thread that calls it, and uses nothing but [`pathline_hal::Machine`]: the same
//! code runs on GPUs and in virtual time.
//!
//! User memory is written by its owner alone: a relay fills its own slot, and the destination copies out
//! of it once the fill has ended. A chunk of a relay that stalls or fails is copied again directly, and
//! the slot is not used before its fill has ended. Only a copy to host memory has a last hop that a relay
//! writes; it completes when that write has ended, or fails.

mod engine;
mod enqueued;
mod enqueued_to_all;
mod path_parts;
mod probe;
mod queue;
mod relay;
mod request;
mod resources;
mod spread;
mod trial;

pub use engine::{MultipathEngine, TransferId};
pub use enqueued::{EnqueueFailure, StreamOrder};
pub use probe::{CopyMode, CopyTimeModel, PathOption, PathProbe, ProbeRequest, probe_paths};
pub use request::{CopyEnd, CopyReport, CopyRequest, LostRelay, PathBytes};
pub use trial::try_paths;
