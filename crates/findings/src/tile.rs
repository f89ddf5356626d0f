//! Headline values of a run.

use pathline_explain::figure::RunReport;
use crate::evidence::Evidence;
use serde::Serialize;

/// A headline value with its context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryTile {
    /// `H2D`, `D2H`, `D2D`, `local`, `latency`, `all_reduce`, `file read`.
    pub name: String,
    /// What was measured: kind of memory, mover, units, size.
    pub detail: String,
    /// The value.
    pub value: f64,
    /// Half width of its 95 % interval, in the same unit; none where it has no interval.
    pub half_width: Option<f64>,
    /// `GB/s`, `us`.
    pub unit: String,
    /// Share of the peak of its narrowest hop, 0 to 1.
    pub share_of_peak: Option<f64>,
    /// Share of what the model predicts, 0 to 1 and above.
    pub share_of_model: Option<f64>,
    /// Values over size or over units, for a small picture.
    pub spark: Vec<f64>,
    /// Id of the figure that has more.
    pub figure: String,
}

/// The headline values of a run, in display order.
pub(crate) fn tiles(_: &Evidence, _: &RunReport) -> Vec<SummaryTile> {
    Vec::new()
}
