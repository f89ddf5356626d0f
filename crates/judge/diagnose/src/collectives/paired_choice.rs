//! What runs with a setting gain over runs without it.

use pathline_stats::{ascending, interpolated};

/// The gains of a setting over the default between runs. Their order was not drawn, so they prove nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedChoice {
    /// Its settings: `NCCL_ALGO=Tree`.
    pub setting: String,
    /// `ln(default / choice)` of each pair of runs.
    logs: Vec<f64>,
}

impl PairedChoice {
    /// Of pairs of times in any one unit. One that is no time is left out.
    pub fn new(setting: &str, pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let logs = pairs.map(|(default, choice)| (default / choice).ln());
        Self { setting: setting.to_owned(), logs: logs.filter(|log| log.is_finite()).collect() }
    }

    /// Number of pairs.
    pub fn pairs(&self) -> usize {
        self.logs.len()
    }

    /// The median gain: old time over new time, less 1. None without pairs.
    pub fn gain(&self) -> Option<f64> {
        interpolated(&ascending(self.logs.iter().copied()), 0.5).map(f64::exp_m1)
    }
}
