//! Tests over journals of real runs, and over simulated nodes with their noise.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod causes;
mod fixture;
mod intermittent;
mod rules;
mod unlike;
mod verdicts;
mod world;
