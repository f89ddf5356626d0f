//! Published rows as cases, and predictions against what was published or measured.
//!
//! Pure: a table becomes rows, a row becomes what must be asked of a machine and how its number is
//! formed, and answers become scores. Nothing here runs a case, prints, or knows a file name.

mod class;
mod map;
mod number;
mod report;
mod row;
pub mod score;
mod system;
mod value;
mod words;

pub use class::{BANDWIDTH, FACTS, MESSAGES, RowClass, SWEEPS, TARGETS};
pub use map::{HardwareOp, RowMapper, WantedRow};
pub use number::{MachineAnswer, MachineQuery, RowNumber};
pub use report::{LatencyPoint, LeftOut, RowContradiction, ValidationPlan, ValidationReport};
pub use row::{PublishedRow, TableError, read};
pub use value::{RowUnit, RowValue, SizeRule, UNITS, UnitKind};
pub use words::UnmappedRow;

/// From this size on a bandwidth is that of a large transfer: 16 MiB.
pub const BULK: u64 = 16 << 20;

/// The published values of the MI250X node that come with the program, each with its source.
pub const MI250X: &str = include_str!("../data/mi250x.csv");
