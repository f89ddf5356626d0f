//! Integration tests of this crate, in one binary: a link each costs more than they take to run.

mod duration;
mod measured;
mod peaks;
mod published;
mod robust;
