//! Measuring in a process of its own, so that a crash, a hang or an error after which nothing works
//! costs one case.
//!
//! The run is the supervisor: it plans, writes, shows and watches, and opens no GPU runtime. The
//! worker has the machine. They take turns: each word of the worker is answered before it goes on, so
//! that every line is on disk before the next case begins, and the supervisor computes nothing while
//! something is timed.

mod child;
mod inject;
mod link;
mod process;
mod supervisor;

pub(crate) use child::run;
pub(crate) use inject::WorkerFault;
pub(crate) use link::{LineLink, LinkRecv, LinkSocket, MachineOpening};
pub(crate) use process::{Output, WorkerProcess, program};
pub(crate) use supervisor::{NoWorker, WorkerExecutor};
