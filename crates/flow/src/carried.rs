//! What a description carries as it was measured, rather than as mechanisms give it.

use crate::Network;

impl Network {
    /// Whether the times of the smallest copies between GPUs are a matrix that the description
    /// carries: beside what was published for them they agree by construction.
    pub fn carries_latencies(&self) -> bool {
        !self.model.time.copy_us_matrix.is_empty()
    }
}
