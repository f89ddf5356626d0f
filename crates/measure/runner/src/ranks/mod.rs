//! Processes that measure together.
//!
//! One process coordinates: it sends every rank each step over a socket and goes on when all have
//! answered, so no rank ever decides alone, and one that dies or hangs is named. The ranks are
//! children of the coordinator (`--ranks N`), children of a launcher of MPI that it starts
//! (`--mpirun`), or were started by a launcher and join it.

mod component;
mod door;
mod handshake;
mod job;
mod keeper;
mod launcher_process;
mod processes;
mod protocol;
mod secret;
mod side;
mod sites;

pub use job::{MeetingPlace, RankJob, joined};
pub use keeper::{RankKeeper, keep};
pub use launcher_process::keep_launched;
pub(crate) use processes::{RankLimits, RankProcesses};
pub use side::serve_rank;
pub use sites::{JobSites, job_sites};
