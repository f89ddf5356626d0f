//! Traffic over the paths of a node, as counters show it: what is counted, and the one way from two readings of a
//! counter to a rate.

use std::fmt;

use crate::{Bytes, LinkEnd, LinkKind, Ns, Rate, Unit};

/// What bytes pass, as a counter knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPath {
    /// Links of one kind from an end to another, or to all its peers where the counter does not tell them apart.
    Links {
        /// The near end, whose counter it is.
        from: LinkEnd,
        /// The far end.
        to: Option<LinkEnd>,
        /// Their kind.
        kind: LinkKind,
    },
    /// Memory of a GPU or of a NUMA domain.
    Memory(Unit),
    /// A port of a network adapter: `mlx5_0`, `eth0`; of further ports `mlx5_0:2`.
    Adapter(String),
    /// A block device: `nvme0n1`.
    Disk(String),
}

impl fmt::Display for TrafficPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Links { from, to: Some(to), kind } => {
                f.pad(&format!("{from}-{to} {}", kind.name()))
            }
            Self::Links { from, to: None, kind } => f.pad(&format!("{from} {}", kind.name())),
            Self::Memory(unit) => f.pad(&format!("{unit} memory")),
            Self::Adapter(name) | Self::Disk(name) => f.pad(name),
        }
    }
}

/// The direction that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficWay {
    /// Away from the near end: sent by an adapter, written to a disk.
    Out,
    /// Towards the near end: received, read.
    In,
}

impl TrafficWay {
    /// Its word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// A counter that only grows, apart from wraps and resets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficCounter {
    /// What it counts the bytes of.
    pub path: TrafficPath,
    /// In which direction.
    pub way: TrafficWay,
    /// Bytes of one count.
    pub grain: u64,
    /// Number of bits after which it begins again at 0.
    pub bits: u32,
    /// Where it is read: `NVML`, `gpu_metrics 1.4`, `sysfs`, `model`.
    pub source: String,
}

/// A reading of a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficReading {
    /// Time of the reading, by the source's clock if it has one, else by the reader's. Only differences matter.
    pub at: Ns,
    /// The count, or why there is none.
    pub count: Result<u64, String>,
}

/// Bytes that passed in a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficMoved {
    /// Bytes.
    pub bytes: Bytes,
    /// The time.
    pub over: Ns,
}

impl TrafficMoved {
    /// The mean rate.
    pub fn rate(self) -> Rate {
        Rate::of(self.bytes, self.over)
    }
}

/// Why two readings give no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRate {
    /// A reading has no count.
    #[error("{0}")]
    Unread(String),
    /// The source's time is that of the reading before.
    #[error("the source stands still")]
    StandsStill,
    /// The source's time is earlier than that of the reading before.
    #[error("the source's time went backwards")]
    TimeBack,
    /// The count fell, and the counter is narrow enough to have wrapped.
    #[error("the counter wrapped or was reset")]
    Wrapped,
    /// The count fell although the counter cannot have wrapped.
    #[error("the counter was reset")]
    Reset,
}

/// A counter of this many bits or more does not wrap in the life of a node.
const NEVER_WRAPS: u32 = 64;

impl TrafficCounter {
    /// Source of PCIe bytes that include packet headers. Two H200s: 58.4 to 59.1 GB/s for copies of 55.2 in, 59.3 to
    /// 60.2 for 55.3 out.
    pub const GPM: &str = "NVML GPM";

    /// What passed between two readings. A fall of the count is never guessed to be a wrap: a driver that starts
    /// again looks the same.
    ///
    /// # Errors
    /// The readings give no rate.
    pub fn moved(
        &self,
        before: &TrafficReading,
        after: &TrafficReading,
    ) -> Result<TrafficMoved, NoRate> {
        let count = |reading: &TrafficReading| reading.count.clone().map_err(NoRate::Unread);
        let (first, last) = (count(before)?, count(after)?);
        let over = Ns(after.at.0 - before.at.0);
        if over.0 == 0.0 {
            return Err(NoRate::StandsStill);
        }
        if over.0.is_nan() || over.0 < 0.0 {
            return Err(NoRate::TimeBack);
        }
        let fell = if self.bits < NEVER_WRAPS { NoRate::Wrapped } else { NoRate::Reset };
        let grown = last.checked_sub(first).ok_or(fell)?;
        let bytes = Bytes(grown.checked_mul(self.grain).ok_or(NoRate::Reset)?);
        Ok(TrafficMoved { bytes, over })
    }
}

/// A path that nothing counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncountedPath {
    /// The path.
    pub path: TrafficPath,
    /// The reason, the same text for all paths that share it.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counter(bits: u32, grain: u64) -> TrafficCounter {
        let (path, way) = (TrafficPath::Adapter("mlx5_0".into()), TrafficWay::Out);
        TrafficCounter { path, way, grain, bits, source: "sysfs".into() }
    }

    fn at(ns: f64, count: u64) -> TrafficReading {
        TrafficReading { at: Ns(ns), count: Ok(count) }
    }

    #[test]
    fn a_wrap_a_reset_and_a_refusal_are_named_and_give_no_rate() {
        let moved = counter(64, 4).moved(&at(1e9, 10), &at(3e9, 1_000_010)).unwrap();
        assert_eq!(moved.rate(), Rate(0.002));
        let narrow = counter(32, 4);
        let high = u64::from(u32::MAX) - 5;
        assert_eq!(narrow.moved(&at(0.0, high), &at(1e9, 7)), Err(NoRate::Wrapped));
        assert_eq!(counter(64, 4).moved(&at(0.0, 9), &at(1e9, 7)), Err(NoRate::Reset));
        assert_eq!(narrow.moved(&at(1e9, 9), &at(1e9, 9)), Err(NoRate::StandsStill));
        assert_eq!(narrow.moved(&at(2e9, 9), &at(1e9, 10)), Err(NoRate::TimeBack));
        let none = TrafficReading { at: Ns(1e9), count: Err("permission denied".into()) };
        let refused = Err(NoRate::Unread("permission denied".into()));
        assert_eq!(narrow.moved(&none, &at(2e9, 10)), refused);
        assert_eq!(narrow.moved(&at(0.0, 10), &none), refused);
    }

    proptest! {
        /// Whatever is read: a rate is finite, not negative, and that of the growth; all else has a reason.
        #[test]
        fn no_reading_makes_a_rate_of_what_did_not_pass(
            (first, last) in (any::<u64>(), any::<u64>()),
            (begun, ended) in (0.0..1e18_f64, 0.0..1e18_f64),
            (bits, grain) in (prop_oneof![Just(32), Just(64)], 1..4096_u64),
        ) {
            match counter(bits, grain).moved(&at(begun, first), &at(ended, last)) {
                Ok(moved) => {
                    prop_assert!(ended > begun && last >= first);
                    prop_assert_eq!(moved.bytes.0, (last - first) * grain);
                    prop_assert!(moved.rate().0.is_finite() && moved.rate().0 >= 0.0);
                }
                Err(NoRate::StandsStill) => prop_assert_eq!(begun, ended),
                Err(NoRate::TimeBack) => prop_assert!(ended < begun),
                Err(NoRate::Wrapped) => prop_assert!(bits == 32 && last < first),
                Err(NoRate::Reset) => {
                    prop_assert!(last < first || (last - first).checked_mul(grain).is_none());
                }
                Err(NoRate::Unread(_)) => prop_assert!(false, "both have a count"),
            }
        }
    }
}
