//! Copies over several paths at once: what each path takes, the rates that a work queue of chunks gives them,
//! and the most that any split of the bytes could reach.

mod cache;
mod paths;
mod plan;
mod probe;
mod rates;

use pathline_schema::{CopyAgent, GpuSet, MemKind, Place, Rate, Unit};

use crate::network::Network;
use crate::operation::NoPath;
use paths::PathFinder;

pub use cache::{PlanCache, PlanKey};
pub use plan::{MultipathPlan, PlanRequest, PlanTarget, plan_paths};
pub use probe::{HostLimits, ProbedNode, plan_from_probe};

pub(crate) use paths::build;

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
    let bound = rates::bound(&paths::with_issuer(network.graph.capacities()), &paths);
    bound.map(Rate).ok_or_else(|| NoPath("nothing is known to limit these paths".into()))
}

/// Whether places are the ends of a copy over several paths: host memory and a GPU, or two GPUs.
fn end_gpu(src: Place, dst: Place) -> Option<Unit> {
    [dst, src].into_iter().map(|place| place.unit).find(|unit| unit.gpu().is_some())
}

/// Staging memory on a GPU.
fn staging(gpu: u32, like: Place) -> Place {
    Place { rank: like.rank, unit: Unit::Gpu(gpu), mem: MemKind::Vram }
}
