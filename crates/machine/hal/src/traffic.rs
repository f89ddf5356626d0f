//! Counters of the bytes that pass over the paths of a node.

use pathline_schema::{TrafficCounter, TrafficReading, UncountedPath};

/// Reads counters that others move. Needs no context on a GPU. What a reading means is decided by
/// [`TrafficCounter::moved`] alone.
pub trait TrafficMeter {
    /// The counters, the same for its life.
    fn counters(&self) -> &[TrafficCounter];
    /// A reading of each, in their order.
    fn read(&self) -> Vec<TrafficReading>;
    /// Paths that are known and that nothing counts.
    fn uncounted(&self) -> &[UncountedPath];
}

/// Several meters as one.
pub struct JoinedMeters {
    meters: Vec<Box<dyn TrafficMeter>>,
    counters: Vec<TrafficCounter>,
    uncounted: Vec<UncountedPath>,
}

impl JoinedMeters {
    /// Of these meters, in order.
    pub fn new(meters: Vec<Box<dyn TrafficMeter>>) -> Self {
        let counters = meters.iter().flat_map(|meter| meter.counters()).cloned().collect();
        let uncounted = meters.iter().flat_map(|meter| meter.uncounted()).cloned().collect();
        Self { meters, counters, uncounted }
    }
}

impl TrafficMeter for JoinedMeters {
    fn counters(&self) -> &[TrafficCounter] {
        &self.counters
    }

    fn read(&self) -> Vec<TrafficReading> {
        self.meters.iter().flat_map(|meter| meter.read()).collect()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.uncounted
    }
}
