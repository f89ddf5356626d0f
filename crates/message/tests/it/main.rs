//! Integration tests of this crate, in one binary: a link each costs more than they take to run.

mod facts;
