//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test fails by panicking, and calls C")]

mod blocks;
mod copies;
mod hip;
mod languages;
mod lost_gpus;
mod pageable;
mod runtime;
mod sequences;
mod state_dict;
mod twin;
