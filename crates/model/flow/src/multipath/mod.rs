//! Copies over several paths at once: what each path takes, the rates that a work queue of chunks gives them,
//! and the most that any split of the bytes could reach.

mod bound;
mod cache;
mod paths;
mod plan;
mod probe;
mod rates;
mod shared_copy;

use pathline_schema::{MemKind, Place, Unit};

pub use bound::multipath_bound;
pub use cache::{PlanCache, PlanKey};
pub use plan::{MultipathPlan, PlanRequest, PlanTarget, plan_paths};
pub use probe::{HostLimits, ProbedNode, plan_from_probe};

pub(crate) use shared_copy::build;

/// Whether places are the ends of a copy over several paths: host memory and a GPU, or two GPUs.
fn end_gpu(src: Place, dst: Place) -> Option<Unit> {
    [dst, src].into_iter().map(|place| place.unit).find(|unit| unit.gpu().is_some())
}

/// Staging memory on a GPU.
fn staging(gpu: u32, like: Place) -> Place {
    Place { rank: like.rank, unit: Unit::Gpu(gpu), mem: MemKind::Vram }
}
