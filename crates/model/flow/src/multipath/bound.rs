//! The most that several paths carry together.

use pathline_schema::{CopyAgent, GpuSet, Place, Rate};

use super::paths::{PathFinder, with_issuer};
use super::rates;
use crate::network::Network;
use crate::operation::NoPath;

/// The most payload that the direct path and one path over each of `relays` carry together: the sum of their
/// rates, split as a linear program splits them best. Starts of operations are not counted, so that no copy
/// exceeds it. Relays to or from which nothing is known do not count.
///
/// # Errors
/// The direct path does not exist, or nothing limits it.
pub fn multipath_bound(
    network: &Network,
    (src, dst): (Place, Place),
    relays: GpuSet,
    agent: CopyAgent,
) -> Result<Rate, NoPath> {
    let finder = PathFinder::new(&network.graph, src, dst);
    let mut paths = vec![finder.direct(agent)?];
    paths.extend(relays.iter().filter_map(|relay| finder.over(relay, agent).ok()));
    let paths: Vec<_> = paths.iter().collect();
    let bound = rates::bound(&with_issuer(network.graph.capacities()), &paths);
    bound.map(Rate).ok_or_else(|| NoPath("nothing is known to limit these paths".into()))
}
