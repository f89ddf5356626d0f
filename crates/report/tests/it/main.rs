//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

// Journals made by hand, and how to find what a report shows: explain's own.
#[path = "../../../explain/tests/it/common/mod.rs"]
mod common;

mod between;
mod busy;
mod exports;
mod refuted;
mod scores;
mod storage;
mod summary;
