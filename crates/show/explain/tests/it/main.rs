//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod between;
mod busy;
mod diff;
mod drawn_diffs;
mod every_suite;
mod message_paths;
mod model_agreement;
mod report;
mod storage;
mod suites;
mod unchanged;
