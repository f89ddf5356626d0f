//! Messages: MPI and the collectives of GPUs over the modelled fabric.
//!
//! Rates come from links, engines and memories of [`pathline_flow::Network`], shared by max-min
//! fairness; a library adds start times, thresholds and chunk sizes from the machine file's
//! `[software.*]`, and its algorithms, which are code here. Pure: no clock, no device, no file.

mod exchange;
mod rings;

pub use exchange::{Buffers, Exchange, Library, Member, Op, WINDOW, What};
pub use rings::{Ring, rings};
