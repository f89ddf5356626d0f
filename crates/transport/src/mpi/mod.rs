//! MPI, of any implementation, bound at run time.
//!
//! Libraries differ in what handles are, in the values of constants and in how they are launched.
//! One list of functions serves all, over the type of handles; which constants a library has is
//! found out before it is initialised, and proven afterwards by operations with known results.

mod abi;
mod exchange;
mod launcher;
mod port;
mod rank_parts;
mod search;
mod steps;
mod table;
mod transport;
mod world;

pub use launcher::{LaunchedRank, launched};
pub use port::{MpiFacts, MpiPort, open_mpi};
pub use search::{mpi_launchers, mpi_library};
