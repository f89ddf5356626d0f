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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_where_their_intervals_do_not_overlap() {
        let time = |median: f64, half: f64| MedianInterval {
            median,
            low: median - half,
            high: median + half,
        };
        // Of 100 and 110 the distance is 10 / 100, of 110 and 100 too; of touching intervals none.
        for (a, b, expected) in [
            (time(100.0, 2.0), time(110.0, 3.0), 0.1),
            (time(100.0, 5.0), time(110.0, 5.0), 0.0),
            (time(100.0, 5.0), time(110.0, 4.9), 0.1),
            (time(0.0, 1.0), time(110.0, 3.0), 0.0),
        ] {
            assert!((distance(&a, &b) - expected).abs() < 1e-12, "{a:?} {b:?}");
            assert!((distance(&b, &a) - expected).abs() < 1e-12, "{a:?} {b:?}");
            assert_eq!(excess(&a, &b), 0.0);
            assert!((excess(&b, &a) - expected).abs() < 1e-12, "{a:?} {b:?}");
        }
        let codes =
            [OutlierKind::UnlikePeers, OutlierKind::UnlikeNeighbours, OutlierKind::Disturbed]
                .map(OutlierKind::code);
        assert_eq!(
            codes,
            [RunNote::UNLIKE_EQUALS, RunNote::UNLIKE_NEIGHBOURS, RunNote::REMEASURED]
        );
    }
}
