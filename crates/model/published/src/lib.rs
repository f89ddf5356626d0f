//! Published values: one table format, the values that ship, their lookup for reports, and scores of
//! predictions.
//!
//! Pure: a table becomes rows, a row becomes queries to a machine and an expression over their answers,
//! and the results become scores. Nothing here runs a case, prints, or knows a file name.

mod class;
mod lookup;
mod mapper;
mod metric;
mod number;
mod physics;
mod report;
mod row;
pub mod score;
mod sensitivity;
mod shipped;
mod start_fit;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod wiring;

pub use class::{BANDWIDTH, FACTS, MESSAGES, RowClass, SWEEPS, TARGETS};
pub use lookup::{PublishedTable, PublishedValue, SourceKind};
pub use mapper::{HardwareOp, RowMapper, WantedRow};
pub use metric::PublishedMetric;
pub use number::{MachineAnswer, MachineQuery, RowNumber};
pub use physics::AnswerMap;
pub use report::{LatencyPoint, LeftOutRow, RowContradiction, ValidationPlan, ValidationReport};
pub use row::UnmappedRow;
pub use sensitivity::{
    ClassIntervals, ConstantSensitivity, PlanAnswers, SensitivityReport, StackAnswers,
    find_carried, find_sensitivity,
};
pub use shipped::{SHIPPED, ShippedTable};
pub use start_fit::{FittedClass, StartFit};
pub use table::{PublishedRow, TableError, read};
pub use value::{RowUnit, RowValue, UNITS, UnitKind};

/// From this size on a bandwidth is that of a large transfer: 16 MiB.
pub const BULK: u64 = 16 << 20;
