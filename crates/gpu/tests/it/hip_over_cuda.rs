//! The tests of what HIP over CUDA knows without a GPU. It is a library that other tests load, and
//! cargo runs no tests inside of one.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../examples/hip_over_cuda/names.rs"]
mod names;
