//! `libpathline`: copies over several paths, for programs in C and Python.
//!
//! `include/pathline.h` is the interface, [`abi`] its functions. [`CopyNode`] is the same without pointers
//! to C structures. A copy that several paths do not help is the runtime's own, made on the thread of the
//! caller. All others go to one worker thread, which owns the machine and the engine.
//!
//! No panic crosses the boundary, and no environment variable but those of the runtimes is read.
#![allow(unsafe_code)]

#[cfg(test)]
extern crate self as pathline;

pub mod abi;
mod abi_options;
mod adopted_memory;
mod batch;
mod batch_room;
mod block_copies;
mod block_lists;
mod block_places;
mod block_probe;
mod copy_choice;
mod copy_error;
mod ends;
mod explanation;
mod fork;
mod helper_use;
mod host_memory;
mod load;
mod node;
mod opened_machine;
mod orders;
mod plans;
mod probes;
mod ranges;
mod read_gate;
mod shared_node;
mod size_classes;
mod staged_copy;
mod staged_file;
mod staging_buffers;
mod staging_job;
mod staging_plan;
mod staging_pool;
mod staging_probe;
mod stream_order;
#[cfg(test)]
#[path = "../tests/it/runtime.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the tests in tests/it use all of it")]
mod test_runtime;
mod twin;
mod worker;

pub use block_probe::BlockMethod;
pub use copy_error::{CopyError, CopyStatus};
pub use helper_use::SharedHelpers;
pub use node::CopyNode;
pub use shared_node::{CopyCounters, NodeOptions};
