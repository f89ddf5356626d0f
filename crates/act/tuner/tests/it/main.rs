//! The shared object, opened and called as NCCL does.
#![allow(unsafe_code)]

mod calls;
mod plugin;
