//! A row of a paste that the model of a node predicts.

use serde::Serialize;

use crate::figures::rate_unit;
use crate::score::CURVE_SCALE;

/// A row of a paste that the node's model predicts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictedRow {
    /// The case or exchange that the row measured.
    pub subject: String,
    /// `GB/s` or `us`.
    pub unit: &'static str,
    /// As pasted.
    pub measured: f64,
    /// By the model of the node, or the theoretical peak of the path where only the topology is known.
    pub predicted: f64,
    /// What no software exceeds, where it is known.
    pub limit: Option<f64>,
    /// Bytes of a message, where the row is the rate of a window of them.
    #[serde(skip)]
    pub(crate) sent: Option<u64>,
}

/// The rows that the bytes decide: of windows of messages those whose bytes take as long as a start.
pub(crate) fn moved_rows(rows: &[PredictedRow]) -> Vec<&PredictedRow> {
    let best = rows.iter().map(|row| row.measured).fold(0.0, f64::max);
    let times = rows.iter().filter_map(|row| Some(row.sent? as f64 / row.measured));
    let start = times.fold(f64::INFINITY, f64::min);
    let is_moved = |row: &&PredictedRow| row.sent.is_none_or(|sent| sent as f64 >= start * best);
    rows.iter().filter(is_moved).collect()
}

impl PredictedRow {
    /// Measured over predicted, of times the inverse: below 1 is worse than predicted.
    pub fn ratio(&self) -> f64 {
        match self.unit {
            "us" => self.predicted / self.measured,
            _ => self.measured / self.predicted,
        }
    }

    /// The unit that a person would choose for it, with its number in the row's unit.
    pub(crate) fn shown_unit(&self) -> (f64, &'static str) {
        match self.unit {
            "us" => (1.0, "us"),
            _ => rate_unit(self.measured.min(self.predicted)),
        }
    }
}

/// Whether a row is as fast as the model leaves open, to within the errors of rows of a model that is right.
pub(crate) fn is_within(row: &PredictedRow, (low, high): (f64, f64)) -> bool {
    if row.unit == "us" {
        row.measured <= high / (1.0 - CURVE_SCALE)
    } else {
        row.measured >= low * (1.0 - CURVE_SCALE)
    }
}
