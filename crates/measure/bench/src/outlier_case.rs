//! Results that other results of the run make unlikely. The cause may be the state of the measuring
//! process, so such a case is measured again in a new one.

use pathline_schema::{Case, RunNote};
use pathline_stats::MedianInterval;

/// Relative excess of the longer of two times, if their intervals do not overlap.
pub(crate) fn distance(a: &MedianInterval, b: &MedianInterval) -> f64 {
    let apart = (a.median - b.median).abs();
    let least = a.median.min(b.median);
    if apart <= a.half_width() + b.half_width() || least <= 0.0 { 0.0 } else { apart / least }
}

/// Relative excess of a time over another one, if it is longer and the intervals do not overlap.
pub(crate) fn excess(time: &MedianInterval, over: &MedianInterval) -> f64 {
    if time.median > over.median { distance(time, over) } else { 0.0 }
}

/// The results that a case disagrees with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutlierKind {
    /// All of its peers.
    UnlikePeers,
    /// Those of the next sizes.
    UnlikeNeighbours,
    /// Its own, while others used the CPUs.
    Disturbed,
}

impl OutlierKind {
    /// Code of the note that a new process measured the same.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::UnlikePeers => RunNote::UNLIKE_EQUALS,
            Self::UnlikeNeighbours => RunNote::UNLIKE_NEIGHBOURS,
            Self::Disturbed => RunNote::REMEASURED,
        }
    }
}

/// A case that disagrees with others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutlierCase {
    /// The case.
    pub(crate) case: Case,
    /// `21 us an operation, where 7 cases that differ only in the units they name take 18 to 19 us`.
    pub(crate) claim: String,
    /// Relative excess over the nearest of the others.
    pub(crate) distance: f64,
    /// What it disagrees with.
    pub(crate) kind: OutlierKind,
}
