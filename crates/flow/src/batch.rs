//! Max-min fair rates of very many flows at once: a whole cluster's all-to-all.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Marks an unused slot of a flow's resources.
pub const NONE: u32 = u32::MAX;

/// Flows over at most `K` shared resources each, one byte of each resource for a byte of payload.
///
/// Bottlenecks are settled from the slowest up. When flows settle at the level of the slowest
/// resource, each other resource that they pass loses no more than that level a flow, so its own
/// level can only rise: a heap with late updates finds the next one. Every flow is settled once,
/// for about `K` additions. What is kept for a flow is its `K` resources, its bottleneck, and one
/// entry in the list of each resource: `(2 K + 1) * 4` bytes.
#[derive(Debug, Clone)]
pub struct Batch<const K: usize> {
    flows: Vec<[u32; K]>,
}

/// Rates of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// The resource that holds each flow back; [`NONE`] if nothing does.
    pub bottleneck: Vec<u32>,
    /// What each flow gets that is held back by resource `r`, in GB/s.
    pub level: Vec<f64>,
}

impl Shares {
    /// Rate of a flow in GB/s; infinite if nothing holds it back.
    pub fn rate(&self, flow: usize) -> f64 {
        let at = self.bottleneck.get(flow).and_then(|&r| self.level.get(r as usize));
        at.copied().unwrap_or(f64::INFINITY)
    }
}

/// A resource that waits for its turn, by the level it had when it was queued.
#[derive(Debug, Clone, Copy)]
struct Next {
    level: f64,
    resource: u32,
}

impl Ord for Next {
    /// The lowest level is the greatest: `BinaryHeap` gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.level.total_cmp(&self.level).then(other.resource.cmp(&self.resource))
    }
}
impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Next {}

/// What is left of a resource, and where its flows are listed.
#[derive(Debug, Clone, Copy)]
struct Pool {
    left: f64,
    rising: u32,
    first: u64,
}

impl<const K: usize> Default for Batch<K> {
    fn default() -> Self {
        Self { flows: Vec::new() }
    }
}

impl<const K: usize> Batch<K> {
    /// Room for so many flows.
    pub fn with_capacity(flows: usize) -> Self {
        Self { flows: Vec::with_capacity(flows) }
    }
    /// Adds a flow over these resources, unused slots [`NONE`]. A resource that does not exist is
    /// free.
    pub fn push(&mut self, resources: [u32; K]) {
        self.flows.push(resources);
    }
    /// Number of flows; the solver takes at most 2^32 - 1.
    pub fn len(&self) -> usize {
        self.flows.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
    /// Bytes of memory that a solve keeps for each flow, flows and result included.
    pub const fn bytes_per_flow() -> usize {
        (2 * K + 1) * size_of::<u32>()
    }

    /// Max-min fair rates. Capacities in GB/s, those not above 0 count as 0.
    pub fn solve(&self, capacities: &[f64]) -> Shares {
        let mut pools = self.pools(capacities);
        let listed = self.list(&pools);
        let mut level = vec![f64::INFINITY; pools.len()];
        let mut bottleneck = vec![NONE; self.flows.len()];
        let full_at = |pool: &Pool| (pool.left / f64::from(pool.rising)).max(0.0);
        let mut queue: BinaryHeap<Next> = pools
            .iter()
            .zip(0..)
            .filter(|(pool, _)| pool.rising > 0)
            .map(|(pool, resource)| Next { level: full_at(pool), resource })
            .collect();
        while let Some(Next { level: queued, resource }) = queue.pop() {
            let r = resource as usize;
            let Some(&pool) = pools.get(r).filter(|pool| pool.rising > 0) else { continue };
            let now = full_at(&pool);
            // Late update: flows that settled elsewhere left it more than when it was queued.
            if now > queued && queue.peek().is_some_and(|next| next.level < now) {
                queue.push(Next { level: now, resource });
                continue;
            }
            if let Some(level) = level.get_mut(r) {
                *level = now;
            }
            let end = pools.get(r + 1).map_or(listed.len() as u64, |next| next.first);
            let flows = listed.get(pool.first as usize..end as usize).unwrap_or(&[]);
            self.settle(flows, resource, now, &mut pools, &mut bottleneck);
        }
        Shares { bottleneck, level }
    }

    /// Settles the flows of `resource` that still rise, at `level`.
    fn settle(
        &self,
        flows: &[u32],
        resource: u32,
        level: f64,
        pools: &mut [Pool],
        bottleneck: &mut [u32],
    ) {
        for &i in flows {
            let Some(held) = bottleneck.get_mut(i as usize).filter(|held| **held == NONE) else {
                continue;
            };
            *held = resource;
            for &r in self.flows.get(i as usize).into_iter().flatten() {
                if let Some(pool) = pools.get_mut(r as usize) {
                    pool.left -= level;
                    pool.rising -= 1;
                }
            }
        }
    }

    fn pools(&self, capacities: &[f64]) -> Vec<Pool> {
        let mut pools: Vec<Pool> =
            capacities.iter().map(|c| Pool { left: c.max(0.0), rising: 0, first: 0 }).collect();
        for &r in self.flows.iter().flatten() {
            if let Some(pool) = pools.get_mut(r as usize) {
                pool.rising += 1;
            }
        }
        let mut first = 0;
        for pool in &mut pools {
            pool.first = first;
            first += u64::from(pool.rising);
        }
        pools
    }

    /// The flows of each resource, one resource after the other.
    fn list(&self, pools: &[Pool]) -> Vec<u32> {
        let mut next: Vec<u64> = pools.iter().map(|pool| pool.first).collect();
        let total = pools.last().map_or(0, |last| last.first + u64::from(last.rising));
        let mut listed = vec![0; total as usize];
        for (flow, i) in self.flows.iter().zip(0u32..) {
            for &r in flow {
                let Some(at) = next.get_mut(r as usize) else { continue };
                if let Some(slot) = listed.get_mut(*at as usize) {
                    *slot = i;
                }
                *at += 1;
            }
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Solver, Use};
    use proptest::prelude::*;

    /// Four senders of 4 to one receiver of 10; sender 0 also sends to another receiver of 10.
    /// Sender 0: 4 / 2 = 2 for both its flows, below the receiver's 10 / 4 = 2.5. The receiver
    /// then gives (10 - 2) / 3 = 2.67 to the other three.
    #[test]
    fn incast_leaves_the_senders_rest() {
        let mut batch = Batch::<2>::default();
        for sender in 0..4 {
            batch.push([sender, 4]);
        }
        batch.push([0, 5]);
        batch.push([NONE, NONE]);
        let shares = batch.solve(&[4.0, 4.0, 4.0, 4.0, 10.0, 10.0]);
        let rates: Vec<f64> = (0..6).map(|i| shares.rate(i)).collect();
        assert_eq!(rates[..5], [2.0, 8.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0, 2.0]);
        assert_eq!(rates[5], f64::INFINITY);
        assert_eq!(shares.bottleneck, [0, 4, 4, 4, 0, NONE]);
        assert_eq!(Batch::<2>::bytes_per_flow(), 20);
    }

    proptest! {
        /// The same rates as the small solver, which is checked against the definition.
        #[test]
        fn agrees_with_the_small_solver(
            capacities in prop::collection::vec(0.0f64..100.0, 8),
            flows in prop::collection::vec(prop::array::uniform3(0u32..10), 0..200),
        ) {
            let mut batch = Batch::<3>::with_capacity(flows.len());
            flows.iter().for_each(|&flow| batch.push(flow));
            let shares = batch.solve(&capacities);
            let uses: Vec<Vec<Use>> = flows
                .iter()
                .map(|f| f.iter().map(|&resource| Use { resource, weight: 1.0 }).collect())
                .collect();
            let small: Vec<(&[Use], f64)> =
                uses.iter().map(|u| (u.as_slice(), f64::INFINITY)).collect();
            let mut rates = Vec::new();
            Solver::default().rates(&capacities, &small, &mut rates);
            for (i, rate) in rates.iter().enumerate() {
                let other = shares.rate(i);
                prop_assert!(*rate == other || (rate - other).abs() <= 1e-9 * rate.max(1.0));
            }
        }
    }
}
