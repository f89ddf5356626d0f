//! Messages: MPI and the collectives of GPUs over the modelled fabric.
//!
//! Rates come from links, engines and memories of [`pathline_flow::Network`], shared by max-min
//! fairness; a library adds start times, thresholds and chunk sizes from the machine file's
//! `[software.*]`, and its algorithms, which are code here. Pure: no clock, no device, no file.

mod all_to_all;
mod all_to_all_loads;
mod bounds;
mod ccl;
mod ccl_library;
mod ccl_messages;
mod cut;
mod exchange;
mod exchange_case;
mod exchange_time;
mod fabric;
mod layer;
mod link_load;
mod mpi;
mod ring_packing;
mod rings;
mod scene;
mod schedule;
mod shared_memory;
mod staged;
mod symmetric;
mod transfer;

pub use bounds::{LEAST_COPIED, MachinePeaks, TimeBounds, passes};
pub use cut::{NodeCut, fastest_copy};
pub use exchange::{
    BufferPair, BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec, ExchangeStart,
    MessageLibrary, WINDOW,
};
pub use exchange_case::exchange_of;
pub use exchange_time::ExchangeTime;
pub use layer::MessageLayer;
pub use link_load::LinkLoad;
pub use rings::{GpuRing, rings};
pub use shared_memory::SharedMemoryTime;
