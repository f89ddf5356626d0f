//! Results above the limits of the hardware.

use pathline_flow::Network;
use pathline_schema::{Case, FlowSeries, Journal, Rank, Rate};
use pathline_stats::SeriesSummary;

use crate::fmt;
use crate::measured_cases::measured;

/// Share of a hard peak above which a result is refuted; errors of timers and clocks may reach it.
const TOLERANCE: f64 = 1.05;

/// An impossible result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BeyondCeiling {
    pub(crate) case: Case,
    /// Rate of the flow with the largest excess, GB/s.
    rate: f64,
    /// Maximum of the hardware there, GB/s.
    peak: f64,
    /// Place of the limit.
    stretch: String,
}

impl BeyondCeiling {
    /// `5030 GB/s is 2515 % of the 200 GB/s that xGMI gpu0-gpu1, 4 links can carry`.
    pub(crate) fn claim(&self) -> String {
        let Self { rate, peak, stretch, .. } = self;
        let (rate_text, peak_text) = (fmt::gbs(*rate), fmt::gbs(*peak));
        let share = fmt::percent(rate / peak);
        format!("{rate_text} is {share} of the {peak_text} that {stretch} can carry")
    }

    /// The text with its consequence.
    pub(crate) fn text(&self) -> String {
        let claim = self.claim();
        format!("{claim}: a clock, a count of bytes or the description of this stretch is wrong")
    }
}

/// Results above a hard peak of the hardware in the journal, in descending order of excess.
pub(crate) fn beyond_ceiling(journal: &Journal) -> Vec<BeyondCeiling> {
    let network = Network::from_topology(&journal.topology);
    let measured = measured(journal).map(|m| (&m.case, m.series.as_slice()));
    let partial = journal.partial.iter().map(|p| (&p.case, p.series.as_slice()));
    let mut all: Vec<BeyondCeiling> = measured
        .chain(partial)
        .filter_map(|(case, series)| of_case(&network, case, series))
        .collect();
    all.sort_by(|a, b| (b.rate / b.peak).total_cmp(&(a.rate / a.peak)));
    all
}

fn of_case(network: &Network, case: &Case, series: &[FlowSeries]) -> Option<BeyondCeiling> {
    let of_flow = |series: &FlowSeries| {
        // The units of another rank may belong to another host.
        if [series.flow.src.rank, series.flow.dst.rank].iter().any(|rank| *rank != Rank(0)) {
            return None;
        }
        let rates: Vec<f64> = series.rates().map(Rate::gbs).collect();
        let rate = SeriesSummary::of(&rates)?.median;
        let (peak, stretch) = network.hard_peak(&series.flow)?;
        let (case, peak) = (case.clone(), peak.gbs());
        (rate > TOLERANCE * peak).then_some(BeyondCeiling { case, rate, peak, stretch })
    };
    let farthest =
        |a: &BeyondCeiling, b: &BeyondCeiling| (a.rate / a.peak).total_cmp(&(b.rate / b.peak));
    series.iter().filter_map(of_flow).max_by(farthest)
}
