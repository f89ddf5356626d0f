//! Measuring in a separate process, so that a crash, a hang or an error after which nothing works
//! costs one case.
//!
//! The run is the supervisor: it plans, writes, shows and watches, and opens no GPU runtime. The
//! worker has the machine. They take turns: the supervisor answers each event of the worker before the
//! worker goes on, so that every line is on disk before the next case begins, and the supervisor
//! computes nothing while something is timed.

mod child;
mod inject;
mod supervisor;

pub use child::serve_worker;
pub use supervisor::{NoWorker, WorkerExecutor};
