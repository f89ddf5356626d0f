//! MPI, of any implementation, bound at run time.
//!
//! Libraries differ in the form of handles, in the values of constants and in their launchers. One
//! list of functions, generic over the handle type, serves all. The constants of a library are
//! detected before it is initialised, and checked afterwards by operations with known results.

mod abi;
mod collective_components;
mod exchange;
mod launcher;
mod one_sided;
mod port;
mod rank_parts;
mod search;
mod started;
mod steps;
mod table;
mod tool_variables;
mod transport;
mod world;

pub use launcher::{LaunchedRank, launched};
pub use port::{MpiFacts, MpiPort, open_mpi};
pub use search::{mpi_launchers, mpi_library};
pub use tool_variables::mpi_controls;
