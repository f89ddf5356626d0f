//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod case_figures;
mod crew;
mod durations;
mod engine;
mod outliers;
mod rank_side;
mod tune;
mod watch;
mod without_gpus;
