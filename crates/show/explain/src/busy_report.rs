//! What a report says of a machine that other programs used.

/// Reasons why a machine counts as busy: the first line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyReport {
    /// Observations in numbers: `other processes used 1.9 of 2 CPUs (load 7.0)`.
    pub reasons: Vec<String>,
    /// Consequence for the results, a clause: `40 of 50 host results are lower bounds`.
    pub effect: String,
    /// Action, a sentence.
    pub action: String,
}

impl BusyReport {
    /// The text after the word BUSY.
    pub fn text(&self) -> String {
        let Self { reasons, effect, action } = self;
        format!("{}: {effect}. {action}", reasons.join(", "))
    }
}
