//! Integration tests of this crate.

mod hip_over_cuda;
