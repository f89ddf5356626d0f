//! Times between nodes, each next to the others of its rail.

use std::collections::BTreeMap;

use pathline_stats::{ascending, interpolated};

use super::parts::{NetCell, NetPart};
use super::report::PairTimes;

/// All times of a check.
#[derive(Debug, Clone, Default)]
pub(super) struct NetCells {
    pub(super) all: Vec<NetCell>,
    /// Logarithm of each time relative to the median of its rail; NaN once a part explains it.
    pub(super) ln: Vec<f64>,
    pub(super) rounds: usize,
    /// Positions of the times of each node.
    of_node: BTreeMap<usize, Vec<usize>>,
}

impl NetCells {
    pub(super) fn add_round(&mut self, pairs: &[[usize; 2]], times: &[PairTimes]) {
        for (&[a, b], times) in pairs.iter().zip(times) {
            for (rail, [there, back]) in times.rails.iter().copied().enumerate() {
                for (from, to, ns) in [(a, b, there), (b, a, back)] {
                    if ns.is_finite() && ns > 0.0 {
                        for node in [from, to] {
                            self.of_node.entry(node).or_default().push(self.all.len());
                        }
                        self.all.push(NetCell { round: self.rounds, from, to, rail, ns });
                    }
                }
            }
        }
        self.rounds += 1;
        let mut by_rail: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for cell in &self.all {
            by_rail.entry(cell.rail).or_default().push(cell.ns.ln());
        }
        let medians: BTreeMap<usize, f64> = by_rail
            .into_iter()
            .filter_map(|(rail, values)| Some((rail, interpolated(&ascending(values), 0.5)?)))
            .collect();
        let relative = |cell: &NetCell| cell.ns.ln() - medians.get(&cell.rail).unwrap_or(&f64::NAN);
        self.ln = self.all.iter().map(relative).collect();
    }

    /// Positions of the times that a part slows and that are not explained yet.
    pub(super) fn of_part(&self, part: &NetPart) -> Vec<usize> {
        let of_nodes = part.nodes.iter().filter_map(|node| self.of_node.get(node)).flatten();
        let is_slowed = |at: &usize| {
            self.value(*at).is_finite() && self.all.get(*at).is_some_and(|cell| part.slows(cell))
        };
        let mut slowed: Vec<usize> = of_nodes.copied().filter(is_slowed).collect();
        slowed.sort_unstable();
        slowed.dedup();
        slowed
    }

    pub(super) fn value(&self, at: usize) -> f64 {
        self.ln.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The time from which on one is slow: the fast side shows the noise, since nothing is too fast, however many
    /// are slow.
    pub(super) fn slow_from(&self) -> f64 {
        let (quarter, scale) = self.fast_side();
        quarter + TIMES_SPREAD * scale
    }

    fn fast_side(&self) -> (f64, f64) {
        let sorted = ascending(self.ln.iter().copied().filter(|ln| ln.is_finite()));
        let at = |share: f64| interpolated(&sorted, share).unwrap_or_default();
        (at(0.25), at(0.25) - at(0.05))
    }

    /// Scale of the errors of times, by the fast side: about their standard deviation.
    pub(super) fn scale(&self) -> f64 {
        self.fast_side().1.max(LEAST_SCALE)
    }
}

/// Times between nodes are not known better.
const LEAST_SCALE: f64 = 2e-3;

/// As many times the distance from the fastest twentieth to the quarter: 3.2 standard deviations above the median of
/// normal noise, 1 in 1,500.
const TIMES_SPREAD: f64 = 4.0;
