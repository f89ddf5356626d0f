//! What transfers have moved over the paths of a node.

use pathline_flow::{CountedResources, FlowOperation, ResourceUse};

/// Payload that has passed, by counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathCounts {
    /// The counter of each resource.
    counters: Vec<Option<usize>>,
    bytes: Vec<f64>,
}

impl PathCounts {
    pub(crate) fn new(counted: &[CountedResources], resources: usize) -> Self {
        let mut counters = vec![None; resources];
        for (nth, counted) in counted.iter().enumerate() {
            for &resource in &counted.resources {
                if let Some(counter) = counters.get_mut(resource as usize) {
                    *counter = Some(nth);
                }
            }
        }
        Self { counters, bytes: vec![0.0; counted.len()] }
    }

    /// Adds the payload of an operation to each counter that it passes: once, over however many links it is spread.
    pub(crate) fn add(&mut self, operation: &FlowOperation, payload: f64) {
        let counter =
            |used: &ResourceUse| self.counters.get(used.resource as usize).copied().flatten();
        for (nth, used) in operation.uses.iter().enumerate() {
            let Some(at) = counter(used) else { continue };
            if operation.uses.iter().take(nth).any(|earlier| counter(earlier) == Some(at)) {
                continue;
            }
            if let Some(bytes) = self.bytes.get_mut(at) {
                *bytes += payload;
            }
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<f64> {
        self.bytes
    }
}
