//! Limits on the rate of a flow.

use super::max_min::RateDemand;

/// The limit of a flow during a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limiter {
    /// Another flow of its queue is served.
    Queue,
    /// A flow that it comes after has not ended.
    Dependency,
    /// The time before its first byte.
    Start,
    /// The most that it can do.
    Cap,
    /// The full resource of this number.
    Resource(u32),
}

/// Rates nearer than this share are the same.
const NEARLY: f64 = 1.0 - 1e-9;

/// The limit of a flow at `rate` among others: its cap, or the full resource where no other flow
/// has more for its share; of several the one that it uses the most. Its cap if there is none.
pub(crate) fn limiter<'a, I: Iterator<Item = (RateDemand<'a>, f64)>>(
    of: &RateDemand<'_>,
    rate: f64,
    capacity: impl Fn(u32) -> Option<f64>,
    all: impl Fn() -> I,
) -> Limiter {
    if rate >= of.cap * NEARLY {
        return Limiter::Cap;
    }
    let is_full = |resource: u32| {
        let (mut used, mut highest) = (0.0, 0.0f64);
        for (demand, rate) in all() {
            let takes = demand.uses.iter().filter(|u| u.resource == resource);
            let weight: f64 = takes.map(|u| u.weight).sum();
            used += weight * rate;
            if weight > 0.0 {
                highest = highest.max(rate / demand.share);
            }
        }
        capacity(resource).is_some_and(|c| used >= c * NEARLY)
            && rate / of.share >= highest * NEARLY
    };
    let full = of.uses.iter().filter(|u| is_full(u.resource));
    let most = full.max_by(|a, b| a.weight.total_cmp(&b.weight));
    most.map_or(Limiter::Cap, |u| Limiter::Resource(u.resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceUse;

    /// At 5: 5 of 5, 10 of 10 and 5 of 9.
    #[test]
    fn the_full_resource_that_a_flow_uses_most_limits_it() {
        let uses = [(0, 1.0), (1, 2.0), (2, 1.0)];
        let uses = uses.map(|(resource, weight)| ResourceUse { resource, weight });
        let of = RateDemand::new(&uses, 6.0);
        let capacity = |nth: u32| [5.0, 10.0, 9.0].get(nth as usize).copied();
        let at = |rate: f64| limiter(&of, rate, capacity, || [(of, rate)].into_iter());
        assert_eq!([at(5.0), at(6.0), at(4.0)], [Limiter::Resource(1), Limiter::Cap, Limiter::Cap]);
        // Where another has more of one full resource, the other limits it.
        let faster = (RateDemand::new(&uses[1..2], 9.0), 6.0);
        let found = limiter(&of, 5.0, capacity, || [(of, 5.0), faster].into_iter());
        assert_eq!(found, Limiter::Resource(0));
    }
}
