//! Collectives: measured time, the time that the model gives the library's algorithm, the lower bound that the
//! node's links set, and the cause of what is lost.

pub(crate) mod cause;
pub(crate) mod ledger;
pub(crate) mod paired_choice;
