//! Transfers that nothing distinguishes are solved as one.
//!
//! Colour refinement splits transfers and resources into classes until every transfer of a class uses
//! each class of resources with the same weights and waits for the same classes of transfers, and every
//! resource of a class is used alike. Max-min fair rates rise together and depend on sums alone, so by
//! induction over the events all transfers of a class have the same rate and end at the same time. A
//! class of transfers then is one flow that uses a class of resources with the mean weight over its
//! resources. Tests compare this with all transfers one by one.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use pathline_flow::{ConcurrentRun, FlowDemand, FlowSet, RateDemand, ResourceUse};

use crate::transfer::ScheduledTransfer;

/// The colour of a class: equal for equal members, different for others but for chance (2^-64 a pair).
pub(crate) type Colour = u64;

/// A colour that depends on all bits of its two inputs.
pub(crate) const fn mix(a: u64, b: u64) -> Colour {
    let mut z = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A factor for sums over members: odd, so that no member vanishes.
pub(crate) const fn factor(weight: f64) -> u64 {
    mix(weight.to_bits(), 0x51_7c_c1) | 1
}

/// The colours of what a transfer uses, in any order.
pub(crate) fn of_uses(uses: &[ResourceUse], colours: &[Colour]) -> Colour {
    uses.iter()
        .filter_map(|u| Some(mix(*colours.get(u.resource as usize)?, u.weight.to_bits())))
        .fold(0, u64::wrapping_add)
}

/// A colour is a hash already: another one of a million of them takes a tenth of an exchange's time.
#[derive(Default)]
pub(crate) struct ColourHasher(u64);

impl Hasher for ColourHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0, u64::from(byte));
        }
    }

    fn write_u64(&mut self, colour: u64) {
        self.0 = colour;
    }
}

/// How sets of colours hash.
type ColourHash = BuildHasherDefault<ColourHasher>;

/// Number of different colours.
pub(crate) fn count_colours(colours: &[Colour]) -> usize {
    colours.iter().collect::<HashSet<_, ColourHash>>().len()
}

/// Classes by their members: number of each member, and the first member of each class.
pub(crate) fn classes(colours: &[Colour]) -> (Vec<u32>, Vec<usize>) {
    let mut known: HashMap<Colour, u32, ColourHash> = HashMap::default();
    let mut firsts = Vec::new();
    let of = colours.iter().enumerate().map(|(member, colour)| {
        *known.entry(*colour).or_insert_with(|| {
            firsts.push(member);
            (firsts.len() - 1) as u32
        })
    });
    (of.collect(), firsts)
}

/// Fewer transfers are solved one by one.
const LEAST_TRANSFERS: usize = 512;

/// When each transfer ends, in ns from the start; infinite for one that cannot move.
pub(crate) fn ends(capacities: &[f64], transfers: &[ScheduledTransfer]) -> Vec<f64> {
    if transfers.len() < LEAST_TRANSFERS {
        return enumerated_ends(capacities, transfers);
    }
    class_ends(capacities, transfers)
}

fn run(capacities: &[f64], flows: &[FlowDemand<'_>]) -> Vec<f64> {
    let mut ends = Vec::new();
    ConcurrentRun::default().ends(&FlowSet { capacities, flows, queues: &[] }, &mut ends);
    ends
}

/// Each transfer is a flow.
fn enumerated_ends(capacities: &[f64], transfers: &[ScheduledTransfer]) -> Vec<f64> {
    let flows: Vec<FlowDemand<'_>> = transfers.iter().map(ScheduledTransfer::demand).collect();
    run(capacities, &flows)
}

/// Colours of transfers and of resources that no further round splits.
fn refine(capacities: &[f64], transfers: &[ScheduledTransfer]) -> (Vec<Colour>, Vec<Colour>) {
    let mut resources: Vec<Colour> = capacities.iter().map(|c| mix(c.to_bits(), 1)).collect();
    let mut colours: Vec<Colour> = transfers
        .iter()
        .map(|t| {
            let own = [t.bytes, t.start, t.tail, t.path.cap, t.path.share];
            own.iter().fold(2, |colour, value| mix(colour, value.to_bits()))
        })
        .collect();
    let mut known = (0, 0);
    loop {
        for (at, transfer) in transfers.iter().enumerate() {
            // Those before it have their new colour already: a long chain needs one round.
            let before = transfer.after.iter().filter_map(|&b| colours.get(b));
            let before = before.map(|c| mix(*c, 3)).fold(0, u64::wrapping_add);
            let uses = of_uses(&transfer.path.uses, &resources);
            if let Some(colour) = colours.get_mut(at) {
                *colour = mix(*colour, mix(before, uses));
            }
        }
        let mut used: Vec<Colour> = vec![0; resources.len()];
        for (transfer, colour) in transfers.iter().zip(&colours) {
            for u in &transfer.path.uses {
                if let Some(sum) = used.get_mut(u.resource as usize) {
                    *sum = sum.wrapping_add(mix(*colour, 4).wrapping_mul(factor(u.weight)));
                }
            }
        }
        resources.iter_mut().zip(&used).for_each(|(colour, used)| *colour = mix(*colour, *used));
        let now = (count_colours(&colours), count_colours(&resources));
        if now == known {
            return (colours, resources);
        }
        known = now;
    }
}

/// Each class of transfers is a flow.
fn class_ends(capacities: &[f64], transfers: &[ScheduledTransfer]) -> Vec<f64> {
    let (colours, resources) = refine(capacities, transfers);
    let (of_transfer, firsts) = classes(&colours);
    let (of_resource, of_class) = classes(&resources);
    let mut sizes = vec![0.0; of_class.len()];
    for class in &of_resource {
        if let Some(size) = sizes.get_mut(*class as usize) {
            *size += 1.0;
        }
    }
    let mut members = vec![0.0; firsts.len()];
    for class in &of_transfer {
        if let Some(count) = members.get_mut(*class as usize) {
            *count += 1.0;
        }
    }
    let class_capacities: Vec<f64> =
        of_class.iter().map(|&r| capacities.get(r).copied().unwrap_or(0.0)).collect();
    let one = |(first, count): (&usize, &f64)| -> (Vec<ResourceUse>, Vec<usize>) {
        let Some(transfer) = transfers.get(*first) else { return Default::default() };
        let uses = transfer.path.uses.iter().filter_map(|u| {
            let class = *of_resource.get(u.resource as usize)?;
            let size = sizes.get(class as usize)?;
            Some(ResourceUse { resource: class, weight: u.weight * count / size })
        });
        let before = transfer.after.iter().filter_map(|&b| of_transfer.get(b));
        let mut after: Vec<usize> = before.map(|class| *class as usize).collect();
        after.sort_unstable();
        after.dedup();
        (uses.collect(), after)
    };
    let reduced: Vec<_> = firsts.iter().zip(&members).map(one).collect();
    let flows: Vec<FlowDemand<'_>> = firsts
        .iter()
        .zip(&reduced)
        .filter_map(|(&first, (uses, after))| {
            let demand = transfers.get(first)?.demand();
            Some(FlowDemand { rate: RateDemand { uses, ..demand.rate }, after, ..demand })
        })
        .collect();
    let ends = run(&class_capacities, &flows);
    of_transfer.iter().map(|c| ends.get(*c as usize).copied().unwrap_or(f64::INFINITY)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::transfer::TransferRoute;

    fn transfer(uses: &[(u32, f64)], cap: f64, bytes: f64, after: Vec<usize>) -> ScheduledTransfer {
        let uses: Vec<ResourceUse> =
            uses.iter().map(|&(resource, weight)| ResourceUse { resource, weight }).collect();
        let path = Arc::new(TransferRoute { uses, cap, alpha: 0.0, share: 1.0 });
        ScheduledTransfer { path, bytes, start: 5.0, tail: 1.0, after }
    }

    fn same(capacities: &[f64], transfers: &[ScheduledTransfer]) {
        let (one, all) =
            (class_ends(capacities, transfers), enumerated_ends(capacities, transfers));
        for (at, (a, b)) in one.iter().zip(&all).enumerate() {
            assert!((a - b).abs() <= 1e-9 * b.abs(), "transfer {at}: {a}, one by one {b}");
        }
        assert_eq!(one.len(), all.len());
    }

    /// 6 ends with a port out and in of 10 each, all to all: 30 transfers are one class, and 12 ports
    /// two. Each port has 5 transfers: 1000 B at 2 take 500 ns, and 5 and 1 ns of start and tail.
    #[test]
    fn an_all_to_all_is_one_flow() {
        let pairs = (0..6u32).flat_map(|a| (0..6).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let transfers: Vec<ScheduledTransfer> = pairs
            .map(|(a, b)| transfer(&[(a, 1.0), (6 + b, 1.0)], 99.0, 1000.0, Vec::new()))
            .collect();
        let (colours, resources) = refine(&[10.0; 12], &transfers);
        // The sum over a port does not say whether it is one out or in, and nothing depends on it.
        assert_eq!((count_colours(&colours), count_colours(&resources)), (1, 1));
        assert!(class_ends(&[10.0; 12], &transfers).iter().all(|end| (end - 506.0).abs() < 1e-9));
        same(&[10.0; 12], &transfers);
        // One port is narrower: 5 of its transfers, those to the same ports, and the rest.
        let mut capacities = [10.0; 12];
        capacities[0] = 4.0;
        assert!(count_colours(&refine(&capacities, &transfers).0) > 1);
        same(&capacities, &transfers);
    }

    /// Rounds of a ring: in each every end sends to the next, after what it did before.
    #[test]
    fn a_long_chain_needs_few_rounds() {
        let ends = 8;
        let mut transfers = Vec::new();
        for round in 0..50usize {
            for a in 0..ends {
                let from = (round > 0).then(|| (round - 1) * ends);
                let after =
                    from.map_or_else(Vec::new, |at| vec![at + a, at + (a + ends - 1) % ends]);
                let to = ((a + 1) % ends) as u32;
                transfers.push(transfer(&[(a as u32, 1.0), (8 + to, 1.0)], 99.0, 64.0, after));
            }
        }
        let (colours, _) = refine(&[10.0; 16], &transfers);
        assert_eq!(count_colours(&colours), 50);
        same(&[10.0; 16], &transfers);
    }

    proptest! {
        /// Random sets, and each repeated on copies of its resources: whatever is alike, times are those
        /// of all transfers one by one.
        #[test]
        fn classes_end_as_their_members(
            capacities in prop::collection::vec(prop::sample::select(vec![4.0, 8.0, 10.0]), 6),
            flows in prop::collection::vec(
                (
                    prop::collection::vec((0u32..6, prop::sample::select(vec![0.5, 1.0, 2.0])), 1..4),
                    prop::sample::select(vec![3.0, 99.0]),
                    prop::sample::select(vec![100.0, 500.0]),
                    prop::option::of(0usize..40),
                ),
                1..40,
            ),
            copies in 1u32..4,
        ) {
            let count = flows.len();
            let mut transfers = Vec::new();
            for copy in 0..copies {
                for (at, (uses, cap, bytes, after)) in flows.iter().enumerate() {
                    let uses: Vec<(u32, f64)> =
                        uses.iter().map(|(r, w)| (r + 6 * copy, *w)).collect();
                    let after = after.filter(|b| *b < at);
                    let after = after.map(|b| b + copy as usize * count).into_iter().collect();
                    transfers.push(transfer(&uses, *cap, *bytes, after));
                }
            }
            same(&capacities.repeat(copies as usize), &transfers);
        }
    }
}
