//! Processes that measure together.
//!
//! One process conducts: it tells every rank each step over a socket and goes on when all have
//! answered, so no rank ever decides alone, and one that dies or hangs is named. The ranks are
//! children of the conductor (`--ranks N`), or were started by a launcher such as mpirun and join
//! it.

mod component;
mod device_memory;
mod door;
mod handshake;
mod job;
mod keeper;
mod probe;
mod processes;
mod secret;
mod side;
mod words;

pub(crate) use device_memory::describe as device_memory;
pub(crate) use job::{RankJob, joined};
pub(crate) use keeper::{Keeper, keep};
pub(crate) use probe::run as probe;
pub(crate) use processes::RankProcesses;
pub(crate) use side::run;
