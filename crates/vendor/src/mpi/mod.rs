//! MPI, of any implementation, bound at run time.

mod launcher;

pub use launcher::{Launched, launched};
