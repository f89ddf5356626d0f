//! Stand-ins for the libraries of GPU vendors, on top of the simulator, for tests without a GPU.
//! Never shipped.
//!
//! One shared object exports `cu*` and `nvrtc*` of CUDA and `hip*` and `hiprtc*` of ROCm;
//! [`lay_out`] installs it under the names that programs search. The code for real GPUs then runs
//! end to end on it.
//!
//! Memory is real and times are virtual: every allocation is pages of this process with a twin of
//! the same size and place in a simulated machine. Streams, events and copies are the simulator's.
//! The effect of an operation on bytes waits in its stream's queue until the simulated stream has
//! passed it, so nothing happens before a gate opens. A repeated copy runs once, as long as nothing
//! in between can have changed either end.
//!
//! Kernels are interpreted: the compiler passes on their text, whose first line names the kernel.
//! An invalid access by a kernel makes its context unusable, as on hardware.
//!
//! `nccl*` is a separate library that moves and sums real bytes between the GPUs of one or more
//! processes. It depends on the others only through `cuLaunchHostFunc` or `hipLaunchHostFunc`,
//! which enqueue its operations.
//!
//! `cuFile*` and `hipFile*` are libraries that read and write real files, through host memory and a
//! copy by the runtime in the same folder.
//!
//! `nvml*` is a library that reports the simulated node: its links, clocks and counters.
//!
//! `ibv_*` is another separate library: RDMA devices that register memory but send nothing.
//!
//! The environment variable [`VARIABLE`] sets the simulated node and injects faults.
#![allow(unsafe_code)]

mod acts;
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
mod sibling;
mod spec;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod verbs;
mod visible;
mod work;

pub use layout::{StubLibraries, built, lay_out};
pub use spec::VARIABLE;

/// Marks this library as a stand-in for a driver: measurements on it are a model's.
// SAFETY: no other library of a process has this name but a copy of this one.
#[unsafe(no_mangle)]
extern "C" fn pathline_stub() -> i32 {
    1
}
