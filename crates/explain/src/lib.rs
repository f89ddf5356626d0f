//! From records to understanding: ceilings, comparison, pictures. Reaches no device.

pub mod agreement;
pub mod csv;
pub mod diff;
pub mod figure;
pub mod format;
pub mod gpus;
pub mod held;
pub mod html;
pub mod judge;
pub mod map;
pub mod predicted;
pub mod report;
pub mod shell;
pub mod terminal;

mod beyond_ceiling;
mod figures;
mod headlines;
mod plain_report;
mod run;
mod way;
mod words;
