//! Integration tests of this crate, in one binary: a link each costs more than they take to run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod common;

mod acceptance;
mod advise;
mod broken_libraries;
mod browser;
mod clusters;
mod collectives;
mod command_line;
mod documents;
mod environment;
mod environments;
mod explain;
mod fixtures;
mod gpu_requirement;
mod guarded;
mod health;
mod hostile;
mod huge_pages;
mod kernels;
mod lost_libraries;
mod model_ranks;
mod mpi;
mod object_store;
mod one_answer;
mod origins;
mod place;
mod planted_faults;
mod predict;
mod rank_files;
mod rank_sites;
mod ranks;
mod repeats;
mod run_files;
mod several_hosts;
mod statements;
mod storage;
mod strangers;
mod stub;
mod topo;
mod twin;
mod validate;
mod worker;
mod written_scripts;
