//! Paths of a finished run that are slower than the paths that should equal them.

use pathline_schema::{Case, Journal};

/// A path that is slower than the other paths of its class.
#[derive(Debug, Clone, PartialEq)]
pub struct UnlikePath {
    /// The case that shows it.
    pub case: Case,
    /// What the path is, for a reader: `gpu2→gpu3, SDMA copy`.
    pub path: String,
    /// Its speed divided by the median speed of the others, 0 to 1.
    pub ratio: f64,
    /// Number of the other paths in the class.
    pub peers: usize,
}

/// Paths of a run that are slower than their equals, the slowest first.
pub fn unlike_paths(_journal: &Journal) -> Vec<UnlikePath> {
    Vec::new()
}
