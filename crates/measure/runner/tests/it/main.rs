//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ccl;
mod direct;
mod helpers;
mod live;
mod mpi;
mod shm;
mod staging;
mod storage;
mod stub;
