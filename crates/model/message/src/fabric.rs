//! The network between nodes as messages see it: routes from switch to switch, kept once found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::{SwitchGraph, SwitchRoute};

/// The most routes that are kept; more are computed again.
const MAX_KEPT: usize = 1 << 20;

/// A route between switches, or that there is none.
pub(crate) type FoundRoute = Option<Arc<SwitchRoute>>;

/// Switches with the routes between them.
#[derive(Debug)]
pub(crate) struct ClusterFabric {
    pub graph: SwitchGraph,
    /// Capacities of the directed bundles, GB/s.
    pub capacities: Vec<f64>,
    distances: Mutex<HashMap<u32, Arc<Vec<u16>>>>,
    routes: Mutex<HashMap<(u32, u32), FoundRoute>>,
}

impl ClusterFabric {
    /// `share` of a link's rate is payload.
    pub(crate) fn new(graph: SwitchGraph, share: f64) -> Self {
        let directed = 2 * graph.bundles().len() as u32;
        let capacities = (0..directed).map(|r| share * graph.capacity(r)).collect();
        Self { graph, capacities, distances: Mutex::default(), routes: Mutex::default() }
    }

    /// Links from each switch to `to`; [`u16::MAX`] without a path.
    pub(crate) fn distances(&self, to: u32) -> Arc<Vec<u16>> {
        let mut known = self.distances.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(to).or_insert_with(|| Arc::new(self.graph.distances_to(to))).clone()
    }

    /// From switch to switch; none without a path.
    pub(crate) fn route(&self, from: u32, to: u32) -> FoundRoute {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = routes.get(&(from, to)) {
            return found.clone();
        }
        let distances = self.distances(to);
        let found = self.graph.route(from, to, &distances).map(Arc::new);
        if routes.len() < MAX_KEPT {
            routes.insert((from, to), found.clone());
        }
        found
    }
}
