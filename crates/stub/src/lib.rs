//! The libraries of GPU vendors over the simulator, for tests without a GPU. Never shipped.
//!
//! One shared object exports `cu*` and `nvrtc*` of CUDA and `hip*` and `hiprtc*` of ROCm;
//! [`lay_out`] puts it under the names by which programs find them. The code that drives real GPUs
//! then runs end to end against it.
//!
//! Memory is real and times are not: every allocation is pages of this process with a twin of the
//! same size and place in a simulated machine. Streams, events and copies are the simulator's, and
//! durations are virtual. What an operation does to bytes waits in its stream's queue until the
//! simulated stream is past it, so nothing happens before a gate opens. A sample that repeats one
//! copy does it once, as long as nothing in between could have changed either end.
//!
//! Kernels are not run but interpreted: the compiler hands their text through, and its first line
//! says which kernel it is. A kernel that touches what the hardware would not let it touch ruins
//! its context, as there.
//!
//! `nccl*` is a library of its own that moves and sums real bytes between the GPUs of one process or
//! of many. It knows nothing of the others but `cuLaunchHostFunc` or `hipLaunchHostFunc`, which put
//! what it does into streams.
//!
//! `cuFile*` and `hipFile*` are libraries that read and write real files, through host memory and a copy
//! of the runtime beside them.
//!
//! `nvml*` is a library that reads the simulated node: its links, clocks and counters.
//!
//! `ibv_*` is a library of its own as well: RDMA devices that register memory and send nothing.
//!
//! The environment variable [`VARIABLE`] says what the library pretends to be and what goes wrong.
#![allow(unsafe_code)]

mod acts;
mod beside;
mod calls;
mod cuda;
mod direct;
mod entry;
mod graph;
mod hip;
mod image;
mod layout;
mod memory;
mod nccl;
pub mod need;
mod node;
mod nvml;
mod queue;
mod rtc;
mod spec;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod verbs;
mod work;

pub use layout::{StubLibraries, built, lay_out};
pub use spec::VARIABLE;

/// Says that this library only stands in for a driver. Who measures on it measures a model.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
extern "C" fn pathline_stub() -> i32 {
    1
}
