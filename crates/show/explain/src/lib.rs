//! Analysis of records: ceilings, figures as data, comparison. Neither renders nor accesses a
//! device.

pub mod case_end;
pub mod diff;
mod exchange_bounds;
pub mod figure;
pub mod figures;
pub mod fmt;
pub mod gpus;
pub mod judge;
pub mod loss_breakdown;
pub mod message_records;
pub mod model_agreement;
pub mod peer_class;
pub mod run;
pub mod run_report;
pub mod shown_value;

mod beyond_ceiling;
mod busy;
mod busy_report;
mod headlines;
mod measured_cases;
mod message_path;
mod message_published;
mod part_rows;
mod plain_report;
mod rank_gpus;
mod repeats;
pub mod run_identity;
