//! Tests of HIP over CUDA that need no GPU. It is a library that other tests load, and cargo runs
//! no tests inside such an example.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../examples/hip_over_cuda/names.rs"]
mod names;
