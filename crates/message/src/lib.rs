//! Messages: MPI and the collectives of GPUs over the modelled fabric.
//!
//! Rates come from links, engines and memories of [`pathline_flow::Network`], shared by max-min
//! fairness; a library adds start times, thresholds and chunk sizes from the machine file's
//! `[software.*]`, and its algorithms, which are code here. Pure: no clock, no device, no file.

mod bounds;
mod ccl;
mod exchange;
mod layer;
mod mpi;
mod rings;
mod scene;
mod schedule;
mod told;
mod transfer;

pub use bounds::Bounds;
pub use exchange::{Buffers, Exchange, Library, Member, WINDOW, What};
pub use layer::Layer;
pub use rings::{Ring, rings};
pub use told::Told;
