//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod case_figures;
mod clocks;
mod concurrent_flows;
mod durations;
mod engine;
mod lost_worker;
mod outliers;
mod rank_files;
mod rank_side;
mod tune;
mod watch;
mod without_gpus;
