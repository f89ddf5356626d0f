//! Integration tests of this crate, in one binary: a link each costs more than they take to run.

mod beside;
mod crew;
mod durations;
mod engine;
mod rank_side;
mod tune;
mod watch;
