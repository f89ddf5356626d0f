//! Integration tests of this crate, in one binary: a link each costs more than they take to run.

mod common;

mod agreement;
mod between;
mod exports;
mod report;
mod storage;
mod suites;
