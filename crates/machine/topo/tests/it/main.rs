//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod files;
mod fuzz;
mod golden;
mod hostile_trees;
mod hwloc;
mod matrices;
mod snapshots_of_hosts;
mod written;
