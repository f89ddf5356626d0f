//! Integration tests of this crate, in one binary: linking one for each would take longer than
//! running them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

// Helpers of explain's tests: handmade journals, and searches in reports.
#[path = "../../../explain/tests/it/common/mod.rs"]
mod common;

mod between;
mod busy;
mod exports;
mod refuted;
mod scores;
mod storage;
mod summary;
