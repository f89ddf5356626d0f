//! Audit of collectives: measured time, the time that the model gives the library's algorithm, the lower
//! bound that the node's links set, and the cause of what is lost.
//!
//! Pure: no clock, no device, no file.

mod cause;
mod cut;
mod ledger;
mod paired_choice;

pub use cause::{CauseScore, CollectiveCause, judge_causes, likely_causes};
pub use cut::{NodeCut, find_cut};
pub use ledger::{
    CollectiveRun, LedgerRow, audit_rows, common_settings, describes, measured_exchanges,
};
pub use paired_choice::PairedChoice;
