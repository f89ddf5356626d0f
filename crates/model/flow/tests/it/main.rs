//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compute_units;
mod cpu_gpu;
mod duration;
mod faults;
mod load;
mod measured;
mod multipath;
mod peaks;
mod published;
mod robust;
mod slices;
