//! Processes that measure together.
//!
//! One process coordinates: it sends every rank each step over a socket and goes on when all have
//! answered, so no rank ever decides alone, and one that dies or hangs is named. The ranks are
//! children of the coordinator (`--ranks N`), or were started by a launcher such as mpirun and join
//! it.

mod component;
mod door;
mod handshake;
mod job;
mod keeper;
mod processes;
mod protocol;
mod secret;
mod side;

pub use job::{MeetingPlace, RankJob, joined};
pub use keeper::{RankKeeper, keep};
pub(crate) use processes::RankProcesses;
pub use side::serve_rank;
