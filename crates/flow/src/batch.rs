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
/// for about `K` additions.
///
/// The list of a resource names, for each of its flows, not the flow but the other resources that
/// it passes: whether it is settled shows in whether one of those is. So settling reads its list
/// from end to end and touches nothing else but the resources, which fit in a cache, while the
/// flows of one receiver lie a cache line and a page apart each. What is kept for a flow is its `K`
/// resources, its bottleneck, and one entry of `K - 1` resources in the list of each:
/// `(K * K + 1) * 4` bytes.
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
    /// Its flows that have no rate yet.
    rising: u32,
    /// When it was settled: 0 is the first; [`NONE`] if it is not.
    turn: u32,
    /// Its entries in the list.
    first: usize,
    end: usize,
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
    /// Number of flows; at most 2^32 - 1 may pass one resource.
    pub fn len(&self) -> usize {
        self.flows.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
    /// Bytes of memory that a solve keeps for each flow, flows and result included.
    pub const fn bytes_per_flow() -> usize {
        (K * K + 1) * size_of::<u32>()
    }

    /// Max-min fair rates. Capacities in GB/s, those not above 0 count as 0.
    pub fn solve(&self, capacities: &[f64]) -> Shares {
        let mut pools = self.pools(capacities);
        let listed = self.list(&mut pools);
        let mut level = vec![f64::INFINITY; pools.len()];
        let full_at = |pool: &Pool| (pool.left / f64::from(pool.rising)).max(0.0);
        let mut queue: BinaryHeap<Next> = pools
            .iter()
            .zip(0..)
            .filter(|(pool, _)| pool.rising > 0)
            .map(|(pool, resource)| Next { level: full_at(pool), resource })
            .collect();
        let mut turn = 0;
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
            settle::<K>(listed.get(pool.first..pool.end).unwrap_or(&[]), now, &mut pools);
            // Last, so that a flow that passes it twice does not look settled.
            if let Some(pool) = pools.get_mut(r) {
                (pool.rising, pool.turn) = (0, turn);
            }
            turn += 1;
        }
        Shares { bottleneck: self.bottlenecks(&pools), level }
    }

    /// The first settled resource of each flow.
    fn bottlenecks(&self, pools: &[Pool]) -> Vec<u32> {
        let turns: Vec<u32> = pools.iter().map(|pool| pool.turn).collect();
        let turn = |r: u32| turns.get(r as usize).copied().unwrap_or(NONE);
        let first = |flow: &[u32; K]| flow.iter().map(|&r| (turn(r), r)).min();
        let settled = |(turn, r)| if turn == NONE { NONE } else { r };
        self.flows.iter().map(|flow| first(flow).map_or(NONE, settled)).collect()
    }

    fn pools(&self, capacities: &[f64]) -> Vec<Pool> {
        let mut rising = vec![0u32; capacities.len()];
        for &r in self.flows.iter().flatten() {
            if let Some(rising) = rising.get_mut(r as usize) {
                *rising += 1;
            }
        }
        let mut first = 0;
        let pool = |(&capacity, rising): (&f64, u32)| {
            let pool = Pool { left: capacity.max(0.0), rising, turn: NONE, first, end: first };
            first += rising as usize * K.saturating_sub(1);
            pool
        };
        capacities.iter().zip(rising).map(pool).collect()
    }

    /// For each resource, one after the other, the other resources of each of its flows. A flow
    /// that passes a resource twice is listed there once.
    fn list(&self, pools: &mut [Pool]) -> Vec<u32> {
        let others = K.saturating_sub(1);
        let total = pools.last().map_or(0, |last| last.first + last.rising as usize * others);
        let mut listed = vec![0; total];
        for flow in &self.flows {
            for (at, &r) in flow.iter().enumerate() {
                let (before, rest) = flow.split_at(at);
                let Some(pool) = pools.get_mut(r as usize) else { continue };
                if before.contains(&r) {
                    continue;
                }
                let end = pool.end + others;
                if let Some(slots) = listed.get_mut(pool.end..end) {
                    let other = before.iter().chain(rest.iter().skip(1));
                    slots.iter_mut().zip(other).for_each(|(slot, &other)| *slot = other);
                }
                pool.end = end;
            }
        }
        listed
    }
}

/// Gives the flows of a list that still rise their `level`: each other resource that they pass
/// loses it.
fn settle<const K: usize>(listed: &[u32], level: f64, pools: &mut [Pool]) {
    for others in listed.chunks_exact(K.saturating_sub(1).max(1)) {
        let settled = |&r: &u32| pools.get(r as usize).is_some_and(|pool| pool.turn != NONE);
        if others.iter().any(settled) {
            continue;
        }
        for &r in others {
            if let Some(pool) = pools.get_mut(r as usize) {
                pool.left -= level;
                pool.rising = pool.rising.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, Solver, Use};
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
        // 2 resources, 2 lists of 1, 1 bottleneck; 4 B each.
        assert_eq!(Batch::<2>::bytes_per_flow(), 20);
    }

    /// A flow that passes resource 0 (of 4) twice counts twice there: 4 / 4 = 1 for it and for the
    /// two others; resource 1 (of 6) then has 6 - 1 - 1 = 4 for the flow that has it alone.
    #[test]
    fn a_flow_twice_over_a_resource() {
        let mut batch = Batch::<3>::default();
        for flow in [[0, 0, 1], [0, 1, NONE], [0, NONE, NONE], [NONE, 1, NONE], [9, NONE, NONE]] {
            batch.push(flow);
        }
        let shares = batch.solve(&[4.0, 6.0]);
        assert_eq!(shares.bottleneck, [0, 0, 0, 1, NONE]);
        assert_eq!(shares.level, [1.0, 4.0]);
        let mut single = Batch::<1>::default();
        single.push([0]);
        single.push([0]);
        assert_eq!(single.solve(&[3.0]).rate(1), 1.5);
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
            let small: Vec<Demand<'_>> =
                uses.iter().map(|u| Demand::new(u, f64::INFINITY)).collect();
            let mut rates = Vec::new();
            Solver::default().rates(&capacities, &small, &mut rates);
            for (i, rate) in rates.iter().enumerate() {
                let other = shares.rate(i);
                prop_assert!(*rate == other || (rate - other).abs() <= 1e-9 * rate.max(1.0));
            }
        }
    }
}
