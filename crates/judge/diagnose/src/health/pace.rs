//! When the rounds of a check take place: spread over its time, so that what comes and goes is met.

/// Share of the budget over which the rounds of a node that passes are spread, and s at most: what is slow
/// less often than that is not seen.
const SPAN: (f64, f64) = (0.8, 8.0);
/// Rounds of a process that are spread; more than this do not wait for each other.
const SPREAD_ROUNDS: usize = 24;
/// Processes over which they are spread, as a node that passes needs at least.
const SPREAD_PROCESSES: usize = 3;

/// Places the rounds of a check in its time. All times are s since the check began.
#[derive(Debug, Clone)]
pub struct RoundPace {
    /// When the last round of a node that passes starts.
    span: f64,
    /// Time until the first process could measure; later ones take as long.
    setup: f64,
    /// Processes that measured most paths so far.
    processes: usize,
    /// Beginning and end of the time of the present process.
    slice: (f64, f64),
    rounds: usize,
}

impl RoundPace {
    /// The pace of a check with this budget.
    pub fn new(budget: f64) -> Self {
        let span = (SPAN.0 * budget).min(SPAN.1);
        Self { span, setup: 0.0, processes: 0, slice: (0.0, 0.0), rounds: 0 }
    }

    /// A process begins to measure. Only one that measures most paths gets a part of the time.
    pub fn begin_process(&mut self, now: f64, measures_most: bool) {
        if self.processes == 0 {
            self.setup = now;
        }
        let left = SPREAD_PROCESSES.saturating_sub(self.processes);
        self.processes += usize::from(measures_most);
        let setups = left.saturating_sub(1) as f64 * self.setup;
        let time = (self.span - now - setups).max(0.0) / left.max(1) as f64;
        self.slice = (now, if measures_most && left > 0 { now + time } else { f64::INFINITY });
        self.rounds = 0;
    }

    /// A round was measured.
    pub fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// When the next round that only helps should start, at a moment drawn by `random`, 0 to 1; none if the
    /// process has had its time.
    pub fn next_round(&self, now: f64, random: f64) -> Option<f64> {
        let (from, to) = self.slice;
        if now >= to {
            return None;
        }
        let nth = (self.rounds as f64 + random) / SPREAD_ROUNDS as f64;
        let at = if to.is_finite() { from + nth * (to - from) } else { now };
        Some(at.clamp(now, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fill_three_slices_of_the_span() {
        // 0.8 x 5 s = 4 s. The first process begins at 0.5 s, two others will need as long, and each gets
        // (4 - 3 x 0.5) / 3 = 0.833 s.
        let mut pace = RoundPace::new(5.0);
        pace.begin_process(0.5, true);
        assert_eq!(pace.next_round(0.6, 0.0), Some(0.6), "its moment is over");
        (0..12).for_each(|_| pace.end_round());
        // The 13th of 24 rounds starts just behind the middle.
        let at = pace.next_round(0.6, 0.5).expect("a moment");
        assert!((at - (0.5 + 2.5 / 3.0 * 12.5 / 24.0)).abs() < 1e-9, "{at}");
        assert_eq!(pace.next_round(1.34, 0.5), None);
        // Suspects alone get rounds at once and no part of the time; the second large process half of
        // 4 - 2 - 0.5 s.
        pace.begin_process(1.5, false);
        assert_eq!(pace.next_round(1.6, 0.9), Some(1.6));
        pace.begin_process(2.0, true);
        assert_eq!((pace.next_round(2.74, 0.0), pace.next_round(2.75, 0.0)), (Some(2.74), None));
        pace.begin_process(3.5, true);
        pace.begin_process(4.2, true);
        assert_eq!(pace.next_round(4.3, 0.1), Some(4.3), "later ones are not spread");
        assert_eq!(RoundPace::new(100.0).span, 8.0);
    }
}
