//! Plans by ends and size, so that a copy that was planned before is looked up.

use std::collections::HashMap;

use pathline_schema::{Bytes, GpuSet, Place};

use super::plan::{MultipathPlan, PlanRequest, PlanTarget, plan_paths};
use crate::network::Network;
use crate::operation::NoPath;

/// Plans that are kept; more than all pairs of 16 places for all sizes. Beyond it the cache starts over.
const KEPT: usize = 1 << 14;

/// What a plan depends on. Sizes count by powers of two: from 2^k bytes to below 2^(k+1) a plan is that for 2^k
/// bytes, the size for which it gains least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanKey {
    src: Place,
    dst: Place,
    target: PlanTarget,
    helpers: GpuSet,
    power: u32,
}

impl PlanKey {
    /// The key of a request.
    pub const fn of(request: &PlanRequest) -> Self {
        let PlanRequest { src, dst, bytes, target, helpers } = *request;
        let power = match bytes.0.checked_ilog2() {
            Some(power) => power,
            None => 0,
        };
        Self { src, dst, target, helpers, power }
    }

    /// The request that the plan of this key is made for.
    const fn request(&self) -> PlanRequest {
        let Self { src, dst, target, helpers, power } = *self;
        PlanRequest { src, dst, bytes: Bytes(1 << power), target, helpers }
    }
}

/// Plans that were made before.
#[derive(Debug, Clone, Default)]
pub struct PlanCache {
    plans: HashMap<PlanKey, MultipathPlan>,
}

impl PlanCache {
    /// A cache without plans.
    pub fn new() -> Self {
        Self::default()
    }

    /// The plan for the size class of a request, if one was made.
    pub fn get(&self, request: &PlanRequest) -> Option<&MultipathPlan> {
        self.plans.get(&PlanKey::of(request))
    }

    /// The plan for the size class of a request, made on `network` if there is none. Its payload and times are
    /// those of the least size of the class; [`MultipathPlan::flow_of`] gives the copy of another.
    ///
    /// # Errors
    /// As [`plan_paths`]; failures are not kept.
    pub fn get_or_plan(
        &mut self,
        network: &Network,
        request: &PlanRequest,
    ) -> Result<&MultipathPlan, NoPath> {
        self.get_or_make(request, |request| plan_paths(network, request))
    }

    /// The same with another planner.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make(
        &mut self,
        request: &PlanRequest,
        make: impl FnOnce(&PlanRequest) -> Result<MultipathPlan, NoPath>,
    ) -> Result<&MultipathPlan, NoPath> {
        let key = PlanKey::of(request);
        if self.plans.len() >= KEPT && !self.plans.contains_key(&key) {
            self.plans.clear();
        }
        match self.plans.entry(key) {
            std::collections::hash_map::Entry::Occupied(kept) => Ok(kept.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => {
                Ok(free.insert(make(&key.request())?))
            }
        }
    }

    /// Number of plans.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Whether it has no plan.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Forgets all plans, as after a change of the node.
    pub fn clear(&mut self) {
        self.plans.clear();
    }
}
