//! Max-min fair rates.

use crate::Use;

/// Computes max-min fair rates by progressive filling; keeps its buffers between calls.
#[derive(Debug, Default)]
pub struct Solver {}

impl Solver {
    /// Rates of flows that each use some resources up to an own cap. `capacities` and caps in
    /// GB/s; `uses` of flow `i` are `flows[i].0`.
    pub fn rates(&mut self, _capacities: &[f64], _flows: &[(&[Use], f64)], _rates: &mut Vec<f64>) {
        todo!()
    }
}
