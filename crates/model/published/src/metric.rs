//! The metric of a published value.

use pathline_schema::{Bytes, Cadence, Case};

use crate::value::UnitKind;

/// Published bandwidths that reports show are of large transfers (160 MB and more), so smaller cases
/// have none.
const REPORT_BULK: Bytes = Bytes::mib(64);

/// Published latencies that reports show are of 16 B copies.
const TINY: Bytes = Bytes(16);

/// The metric of a published value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublishedMetric {
    /// Payload of all timed flows over time.
    Bandwidth,
    /// Bytes read and written at the memories over time.
    Traffic,
    /// Bus bandwidth of a collective.
    BusBandwidth,
    /// Time of one operation, of several at once of the slowest.
    Latency,
    /// Time of a collective, the mean over its ranks.
    MeanLatency,
    /// Time of one dependent load.
    Load,
    /// Bandwidth over a stated peak.
    Fraction,
    /// Bandwidth over that of another case.
    Ratio,
    /// One less such a ratio.
    Deficit,
    /// Links between two units.
    Links,
    /// Links passed on the route between two GPUs.
    Hops,
    /// Theoretical peak of the links between two units, per direction.
    LinkPeak,
    /// The same, bidirectional.
    LinkPeakBoth,
    /// Bytes of a memory: of a GPU, a NUMA domain, or all domains of the node.
    Capacity,
    /// Bytes of the first-level cache of one of a GPU's compute units.
    L1Capacity,
    /// Bytes of the second-level cache of a GPU.
    L2Capacity,
    /// Theoretical peak of a memory.
    MemoryPeak,
    /// A dependent load from a NUMA domain by one of its cores.
    MemoryLatency,
    /// NUMA domains of the node.
    NumaDomains,
    /// Limit on the bytes that each GPU sends in an all-to-all, by the smallest cut of the node.
    CutBound,
    /// The same, by the load of the fullest link under the routes in use.
    RouteBound,
}

/// Every metric with its word and what its units measure.
const METRICS: [(&str, PublishedMetric, UnitKind); 21] = [
    ("bandwidth", PublishedMetric::Bandwidth, UnitKind::Rate),
    ("traffic", PublishedMetric::Traffic, UnitKind::Rate),
    ("busbw", PublishedMetric::BusBandwidth, UnitKind::Rate),
    ("latency", PublishedMetric::Latency, UnitKind::Time),
    ("mean-latency", PublishedMetric::MeanLatency, UnitKind::Time),
    ("load", PublishedMetric::Load, UnitKind::Time),
    ("fraction", PublishedMetric::Fraction, UnitKind::Plain),
    ("ratio", PublishedMetric::Ratio, UnitKind::Plain),
    ("deficit", PublishedMetric::Deficit, UnitKind::Plain),
    ("links", PublishedMetric::Links, UnitKind::Count),
    ("hops", PublishedMetric::Hops, UnitKind::Count),
    ("link-peak", PublishedMetric::LinkPeak, UnitKind::Rate),
    ("link-peak-both", PublishedMetric::LinkPeakBoth, UnitKind::Rate),
    ("capacity", PublishedMetric::Capacity, UnitKind::Capacity),
    ("l1-capacity", PublishedMetric::L1Capacity, UnitKind::Capacity),
    ("l2-capacity", PublishedMetric::L2Capacity, UnitKind::Capacity),
    ("memory-peak", PublishedMetric::MemoryPeak, UnitKind::Rate),
    ("memory-latency", PublishedMetric::MemoryLatency, UnitKind::Time),
    ("numa-domains", PublishedMetric::NumaDomains, UnitKind::Count),
    ("cut-bound", PublishedMetric::CutBound, UnitKind::Rate),
    ("route-bound", PublishedMetric::RouteBound, UnitKind::Rate),
];

impl PublishedMetric {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        METRICS.iter().find(|(known, ..)| *known == word).map(|row| row.1)
    }

    /// The words of all metrics.
    pub(crate) fn known_names() -> impl Iterator<Item = &'static str> {
        METRICS.iter().map(|row| row.0)
    }

    pub(crate) fn unit_kind(self) -> UnitKind {
        METRICS.iter().find(|row| row.1 == self).map_or(UnitKind::Plain, |row| row.2)
    }

    /// Whether it is a fact of the node, for which no case runs.
    pub(crate) fn is_fact(self) -> bool {
        use PublishedMetric as M;
        matches!(
            self,
            M::Links
                | M::Hops
                | M::LinkPeak
                | M::LinkPeakBoth
                | M::Capacity
                | M::L1Capacity
                | M::L2Capacity
                | M::MemoryPeak
                | M::MemoryLatency
                | M::NumaDomains
                | M::CutBound
                | M::RouteBound
        )
    }

    /// Whether it is read off the description, with no routing or timing in between.
    pub(crate) fn is_stated(self) -> bool {
        use PublishedMetric as M;
        self.is_fact() && !matches!(self, M::Hops | M::MemoryLatency | M::CutBound | M::RouteBound)
    }

    /// The unit in which reports show it; none if they do not.
    pub(crate) fn report_unit(self) -> Option<&'static str> {
        Some(match self {
            Self::Bandwidth | Self::Traffic => "GB/s",
            Self::Latency => "us",
            Self::Load => "ns",
            Self::Ratio => "x",
            _ => return None,
        })
    }

    /// The unit in which reports show it of a message library; none if they do not.
    pub(crate) fn exchange_unit(self) -> Option<&'static str> {
        Some(match self {
            Self::Bandwidth | Self::BusBandwidth => "GB/s",
            Self::Latency | Self::MeanLatency => "us",
            _ => return None,
        })
    }

    /// Whether a case is of a kind that reports compare with published values.
    pub(crate) fn is_comparable(self, case: &Case) -> bool {
        let cadence = match self {
            Self::Latency => case.cadence == Cadence::Isolated,
            Self::Load => true,
            _ => case.cadence == Cadence::Streaming,
        };
        cadence && self.is_sized_for_reports(case)
    }

    /// Whether reports compare the sizes of a published row.
    pub(crate) fn is_sized_for_reports(self, case: &Case) -> bool {
        let mut flows = case.timed.iter();
        match self {
            Self::Latency => flows.all(|f| f.bytes == TINY),
            Self::Load => flows.all(|f| f.by.is_chase()),
            _ => flows.all(|f| f.bytes >= REPORT_BULK),
        }
    }
}
