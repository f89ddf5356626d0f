//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod facts;
mod faults;
mod nccl_fixture;
mod shared_memory;
