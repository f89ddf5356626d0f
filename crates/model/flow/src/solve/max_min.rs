//! Weighted max-min fair rates of flows that share resources.

use crate::{FlowOperation, ResourceUse};

/// The smallest weight that a flow may have where rates are shared out; the largest is its inverse.
pub(crate) const MIN_SHARE: f64 = 1e-3;

/// Resource use of a flow while its bytes move, and its maximum rate.
#[derive(Debug, Clone, Copy)]
pub struct RateDemand<'a> {
    /// Its use of each resource. Uses whose weight is not above 0, and uses of resources
    /// that do not exist, are free.
    pub uses: &'a [ResourceUse],
    /// The highest rate that it can use, in GB/s.
    pub cap: f64,
    /// Its weight where rates are shared out, 1 by default; not above 0 or no number counts as 1.
    pub share: f64,
}

impl<'a> RateDemand<'a> {
    /// Of weight 1.
    pub const fn new(uses: &'a [ResourceUse], cap: f64) -> Self {
        Self { uses, cap, share: 1.0 }
    }

    /// The rate that it gets while it is alone: its cap, or what the narrowest resource carries.
    pub fn alone(&self, capacities: &[f64]) -> f64 {
        let limit = |u: &ResourceUse| {
            let same = self.uses.iter().filter(|v| v.resource == u.resource);
            let weight: f64 = same.map(|v| v.weight).sum();
            let capacity = capacities.get(u.resource as usize);
            if weight > 0.0 {
                capacity.map_or(f64::INFINITY, |c| c / weight)
            } else {
                f64::INFINITY
            }
        };
        self.uses.iter().map(limit).fold(self.cap, f64::min).max(0.0)
    }

    fn weight(&self) -> f64 {
        if self.share > 0.0 && self.share.is_finite() { self.share } else { 1.0 }
    }

    /// Its uses that count.
    fn counted(&self) -> impl Iterator<Item = &'a ResourceUse> + use<'a> {
        self.uses.iter().filter(|u| u.weight > 0.0)
    }
}

impl<'a> From<&'a FlowOperation> for RateDemand<'a> {
    fn from(operation: &'a FlowOperation) -> Self {
        Self { uses: &operation.uses, cap: operation.cap.0, share: operation.share }
    }
}

/// Computes weighted max-min fair rates by progressive filling; keeps its buffers between calls.
///
/// All rates rise together, each in proportion to its flow's share. Where a resource is full, the
/// flows that use it stay at the rate they have; a flow stays at its cap; the others rise on. A flow
/// that takes 2 bytes of a resource for a byte takes twice its rate of it. (Bertsekas and Gallager,
/// Data Networks, 6.5.2, with weighted uses.)
#[derive(Debug, Default)]
pub struct MaxMinSolver {
    pools: Vec<ResourcePool>,
    /// Pools that any flow uses.
    used: Vec<usize>,
    /// Flows that still rise.
    rising: Vec<Rising>,
}

/// The free capacity of a resource.
#[derive(Debug, Clone, Copy)]
struct ResourcePool {
    /// Capacity that settled flows leave.
    left: f64,
    /// Sum over the uses by rising flows: bytes taken for a byte, times the flow's share.
    weight: f64,
    /// Number of those uses: exact, where the sum is rounded.
    uses: u32,
    /// The common level at which it is full in this round; infinite if nothing rises in it.
    full_at: f64,
}

impl ResourcePool {
    fn level(&mut self) -> f64 {
        let rises = self.uses > 0;
        self.full_at = if rises { (self.left / self.weight).max(0.0) } else { f64::INFINITY };
        self.full_at
    }
}

/// A flow whose rate still rises.
#[derive(Debug, Clone, Copy)]
struct Rising {
    flow: usize,
    weight: f64,
    cap: f64,
    /// The level at which it is at its cap.
    capped_at: f64,
}

/// Levels that differ by less than this share are one: a sum of 1e4 doubles errs by 1e-12.
const SAME: f64 = 1e-11;

impl MaxMinSolver {
    /// Rates of flows that each use some resources up to an own cap. `capacities` and caps in
    /// GB/s. A flow with neither cap nor uses gets an infinite rate; a capacity or cap that is
    /// negative or no number counts as 0.
    pub fn rates(&mut self, capacities: &[f64], flows: &[RateDemand<'_>], rates: &mut Vec<f64>) {
        self.rates_of(capacities, flows.len(), |i| flows[i], rates);
    }

    /// The same of `count` flows that `demand` knows by their place.
    pub(super) fn rates_of<'a>(
        &mut self,
        capacities: &[f64],
        count: usize,
        demand: impl Fn(usize) -> RateDemand<'a>,
        rates: &mut Vec<f64>,
    ) {
        self.start(capacities, count, &demand);
        rates.clear();
        rates.resize(count, 0.0);
        let Self { pools, used, rising } = self;
        while !rising.is_empty() {
            // Of all pools before any flow settles: one that is full is full for all its users.
            let level = used.iter().map(|&k| pools[k].level()).fold(f64::INFINITY, f64::min);
            let level = rising.iter().map(|r| r.capped_at).fold(level, f64::min);
            let reached = level * (1.0 + SAME);
            let before = rising.len();
            rising.retain(|&Rising { flow, weight, cap, capped_at }| {
                let uses = demand(flow);
                let full = |u: &ResourceUse| {
                    pools.get(u.resource as usize).is_some_and(|pool| pool.full_at <= reached)
                };
                let capped = capped_at <= reached;
                if !capped && !level.is_infinite() && !uses.counted().any(full) {
                    return true;
                }
                let rate = if capped { cap } else { level * weight };
                rates[flow] = rate;
                for u in uses.counted() {
                    if let Some(pool) = pools.get_mut(u.resource as usize) {
                        pool.left = (pool.left - rate * u.weight).max(0.0);
                        pool.weight -= u.weight * weight;
                        pool.uses -= 1;
                    }
                }
                false
            });
            if rising.len() == before {
                break;
            }
        }
    }

    fn start<'a>(
        &mut self,
        capacities: &[f64],
        count: usize,
        demand: &impl Fn(usize) -> RateDemand<'a>,
    ) {
        let empty =
            |&c: &f64| ResourcePool { left: sane(c), weight: 0.0, uses: 0, full_at: f64::INFINITY };
        self.used.clear();
        self.pools.clear();
        self.pools.extend(capacities.iter().map(empty));
        self.rising.clear();
        for flow in 0..count {
            let demand = demand(flow);
            let (weight, cap) = (demand.weight(), sane(demand.cap));
            self.rising.push(Rising { flow, weight, cap, capped_at: cap / weight });
            for u in demand.counted() {
                let at = u.resource as usize;
                if let Some(pool) = self.pools.get_mut(at) {
                    if pool.uses == 0 {
                        self.used.push(at);
                    }
                    pool.weight += u.weight * weight;
                    pool.uses += 1;
                }
            }
        }
    }
}

/// Negative and not-a-number become 0.
fn sane(rate: f64) -> f64 {
    rate.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn solve(capacities: &[f64], flows: &[(&[(u32, f64)], f64)]) -> Vec<f64> {
        let uses: Vec<(Vec<ResourceUse>, f64)> = flows
            .iter()
            .map(|(uses, cap)| {
                (
                    uses.iter()
                        .map(|&(resource, weight)| ResourceUse { resource, weight })
                        .collect(),
                    *cap,
                )
            })
            .collect();
        let flows: Vec<RateDemand<'_>> = uses.iter().map(|(u, c)| RateDemand::new(u, *c)).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(capacities, &flows, &mut rates);
        rates
    }

    const FREE: f64 = f64::INFINITY;

    /// Two links in a row and three flows, the textbook case.
    /// Link 0 (10): a, b. Link 1 (4): a, c.
    /// Level 2: link 1 is full (4 / 2), a = c = 2. Then b = 10 - 2 = 8.
    #[test]
    fn a_narrow_link_leaves_the_rest_to_the_others() {
        let rates = solve(
            &[10.0, 4.0],
            &[(&[(0, 1.0), (1, 1.0)], FREE), (&[(0, 1.0)], FREE), (&[(1, 1.0)], FREE)],
        );
        assert_eq!(rates, [2.0, 8.0, 2.0]);
    }

    /// 12 GB/s; a takes 2 of it for a byte, b and c one; c has a cap of 1.
    /// Level 1: c stays at 1, 11 left for weights 2 + 1: a = b = 11 / 3; 2 x 11/3 + 11/3 + 1 = 12.
    #[test]
    fn weights_and_caps() {
        let rates = solve(&[12.0], &[(&[(0, 2.0)], FREE), (&[(0, 1.0)], FREE), (&[(0, 1.0)], 1.0)]);
        assert_eq!(rates, [11.0 / 3.0, 11.0 / 3.0, 1.0]);
    }

    /// A copy inside one memory of 1600 uses it twice, once to read and once to write: 800.
    #[test]
    fn the_same_resource_twice_adds_up() {
        assert_eq!(solve(&[1600.0], &[(&[(0, 1.0), (0, 1.0)], FREE)]), [800.0]);
    }

    /// A flow whose share is no positive number has a share of 1: next to one of 3 it gets 3 of 12.
    #[test]
    fn a_share_that_is_none_is_one() {
        let uses = [ResourceUse { resource: 0, weight: 1.0 }];
        for share in [1.0, 0.0, -1.0, f64::NAN, f64::INFINITY] {
            let of = |share| RateDemand { uses: &uses, cap: FREE, share };
            let mut rates = Vec::new();
            MaxMinSolver::default().rates(&[12.0], &[of(share), of(3.0)], &mut rates);
            assert_eq!(rates, [3.0, 9.0], "{share}");
        }
    }

    /// A copy inside one memory of 10 uses it twice: 5. A cap of 2 binds before that.
    #[test]
    fn alone_the_narrowest_resource_or_the_cap_binds() {
        let alone = |uses: &[(u32, f64)], cap| {
            let uses: Vec<ResourceUse> =
                uses.iter().map(|&(resource, weight)| ResourceUse { resource, weight }).collect();
            RateDemand::new(&uses, cap).alone(&[10.0])
        };
        assert_eq!(alone(&[(0, 1.0), (0, 1.0)], 99.0), 5.0);
        assert_eq!(alone(&[(0, 2.0)], 2.0), 2.0);
        assert_eq!(alone(&[], 3.0), 3.0);
    }

    #[test]
    fn edges_of_the_domain() {
        assert_eq!(solve(&[], &[]), [] as [f64; 0]);
        assert_eq!(solve(&[], &[(&[], FREE)]), [FREE]);
        assert_eq!(solve(&[], &[(&[(7, 1.0)], 3.0)]), [3.0]);
        assert_eq!(solve(&[0.0, 5.0], &[(&[(0, 1.0)], FREE), (&[(1, 1.0)], FREE)]), [0.0, 5.0]);
        assert_eq!(solve(&[f64::NAN], &[(&[(0, 1.0)], FREE)]), [0.0]);
        assert_eq!(RateDemand::new(&[], -1.0).alone(&[]), 0.0);
        assert_eq!(solve(&[4.0], &[(&[(0, f64::NAN)], 2.0), (&[(0, -1.0)], f64::NAN)]), [2.0, 0.0]);
    }

    type Flows = Vec<(Vec<(u32, f64)>, f64)>;

    fn network() -> impl Strategy<Value = (Vec<f64>, Flows)> {
        (1usize..12).prop_flat_map(|n| {
            let uses = prop::collection::vec((0..n as u32, 0.25f64..4.0), 0..5);
            let flows = prop::collection::vec((uses, 0.1f64..300.0), 1..30);
            (prop::collection::vec(0.1f64..200.0, n), flows)
        })
    }

    proptest! {
        /// The definition of max-min fairness: nothing above its cap, no resource over capacity,
        /// and each flow is at its cap or crosses a full resource where none is faster.
        #[test]
        fn rates_are_feasible_and_fair((capacities, flows) in network()) {
            let borrowed: Vec<(&[(u32, f64)], f64)> =
                flows.iter().map(|(u, c)| (u.as_slice(), *c)).collect();
            let rates = solve(&capacities, &borrowed);
            let used = |r: usize| -> f64 {
                flows.iter().zip(&rates)
                    .flat_map(|((uses, _), rate)| uses.iter().map(move |u| (u, rate)))
                    .filter(|(u, _)| u.0 as usize == r)
                    .map(|(u, rate)| u.1 * rate)
                    .sum()
            };
            for (r, capacity) in capacities.iter().enumerate() {
                prop_assert!(used(r) <= capacity * (1.0 + 1e-9));
            }
            for ((uses, cap), rate) in flows.iter().zip(&rates) {
                prop_assert!(*rate <= *cap && *rate >= 0.0);
                let bottleneck = uses.iter().any(|u| {
                    let r = u.0 as usize;
                    let fastest = flows.iter().zip(&rates)
                        .filter(|((uses, _), _)| uses.iter().any(|v| v.0 == u.0))
                        .map(|(_, rate)| *rate)
                        .fold(0.0, f64::max);
                    used(r) >= capacities[r] * (1.0 - 1e-9) && *rate >= fastest * (1.0 - 1e-9)
                });
                prop_assert!(*rate >= *cap * (1.0 - 1e-9) || bottleneck);
            }
        }
    }
}
