//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod at_once;
mod conformance;
mod faults;
mod machine_faults;
mod random_calls;
mod ranks;
mod storage;
mod traffic;
mod virtual_time;
