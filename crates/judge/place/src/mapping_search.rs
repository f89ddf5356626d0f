//! The mapping of ranks to the places of a node that makes a phase shortest.

use std::collections::HashMap;

use crate::phase_model::{PhaseClock, PhaseLoads, PhaseModel};
use crate::rank_traffic::RankTraffic;

/// Up to this number of places all mappings are bounded, and none is missed.
const ALL_PLACES: usize = 9;
/// A mapping whose lower bound is this close to the best time is not looked at: the result is within 0.1 %
/// of the best.
const TOLERANCE: f64 = 1e-3;
/// The most phases that are computed for one search.
const MAX_PHASES: usize = 20_000;
/// Rounds of swaps from random orders, where mappings are too many to be listed.
const RESTARTS: u64 = 8;

/// A mapping: the place of each rank, and the time of the phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedPhase {
    /// The place of each rank.
    pub at: Vec<usize>,
    /// From the common start to the last end, ns.
    pub time: f64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct MappingSearch {
    /// Each rank at the place of its number: what launchers do.
    pub identity: PlacedPhase,
    /// The least sum of bytes times links passed: what tools without rates take.
    pub by_distance: PlacedPhase,
    /// The shortest phase that was found.
    pub best: PlacedPhase,
    /// Whether no mapping is more than 0.1 % shorter: all were bounded.
    pub is_proven: bool,
    /// Phases that were computed.
    pub phases: usize,
}

/// Searches the mapping of the shortest phase. Up to 9 places all mappings get a lower bound, by branch and
/// bound, and their phases are computed from the lowest bound on until no bound is below the best time. With
/// more places random orders are improved by swaps.
///
/// `None` if there are fewer places than ranks.
pub fn find_mapping(model: &PhaseModel, traffic: &RankTraffic) -> Option<MappingSearch> {
    let (ranks, places) = (traffic.ranks(), model.places());
    if ranks > places {
        return None;
    }
    let mut clock = PhaseClock::new(model);
    let mut placed = |at: Vec<usize>| PlacedPhase { time: clock.time(traffic, &at), at };
    let identity = placed((0..ranks).collect());
    let distance = |at: &[usize]| -> f64 {
        let messages = traffic.messages().iter();
        let cost = messages.map(|m| match (at.get(m.from), at.get(m.to)) {
            (Some(from), Some(to)) => m.bytes as f64 * model.hops(*from, *to) as f64,
            _ => f64::INFINITY,
        });
        cost.sum()
    };
    let by_distance = placed(swapped(identity.at.clone(), places, &distance));
    let load = |at: &[usize]| load_norm(model, traffic, at);
    let mut starts = vec![swapped(identity.at.clone(), places, &load)];
    for seed in 1..=RESTARTS {
        starts.push(swapped(shuffled(ranks, places, seed), places, &load));
    }
    let mut phases = 2 + starts.len();
    let mut best = if by_distance.time < identity.time { &by_distance } else { &identity }.clone();
    for at in starts {
        let phase = placed(at);
        if phase.time < best.time {
            best = phase;
        }
    }
    let mut is_proven = false;
    if places <= ALL_PLACES {
        let (found, tried, all) = bounded(model, traffic, best);
        (best, is_proven, phases) = (found, all, phases + tried);
    } else {
        let mut clock = PhaseClock::new(model);
        let mut tried = 0;
        let at = swapped_within(best.at.clone(), places, MAX_PHASES / 4, &mut |at| {
            tried += 1;
            clock.time(traffic, at)
        });
        best = PlacedPhase { time: clock.time(traffic, &at), at };
        phases += tried;
    }
    Some(MappingSearch { identity, by_distance, best, is_proven, phases })
}

/// The norm of the loads of all resources.
fn load_norm(model: &PhaseModel, traffic: &RankTraffic, at: &[usize]) -> f64 {
    let mut loads = PhaseLoads::new(model);
    let mut bound = 0.0_f64;
    for message in traffic.messages() {
        let (Some(from), Some(to)) = (at.get(message.from), at.get(message.to)) else {
            return f64::INFINITY;
        };
        bound = bound.max(loads.add(*from, *to, message.bytes as f64, 1.0));
    }
    // The longest message alone counts as a resource does.
    loads.norm().max(bound)
}

/// Ranks at places in a random order that the seed alone decides.
fn shuffled(ranks: usize, places: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places).collect();
    let mut state = seed;
    for at in (1..places).rev() {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(at, ((z ^ (z >> 31)) % (at as u64 + 1)) as usize);
    }
    order.truncate(ranks);
    order
}

/// A mapping that no swap of two ranks, and no move to a free place, makes cheaper.
fn swapped(at: Vec<usize>, places: usize, cost: &dyn Fn(&[usize]) -> f64) -> Vec<usize> {
    swapped_within(at, places, usize::MAX, &mut |at| cost(at))
}

/// The same with a limit on the costs that are computed.
fn swapped_within(
    mut at: Vec<usize>,
    places: usize,
    limit: usize,
    cost: &mut dyn FnMut(&[usize]) -> f64,
) -> Vec<usize> {
    let mut best = cost(&at);
    let mut tried = 1;
    loop {
        let before = best;
        for rank in 0..at.len() {
            for other in rank + 1..at.len() {
                at.swap(rank, other);
                tried += 1;
                let now = cost(&at);
                if now < best * (1.0 - 1e-9) {
                    best = now;
                } else {
                    at.swap(rank, other);
                }
                if tried >= limit {
                    return at;
                }
            }
            for place in 0..places {
                let Some(old) = at.get(rank).copied().filter(|_| !at.contains(&place)) else {
                    continue;
                };
                at[rank] = place;
                tried += 1;
                let now = cost(&at);
                if now < best * (1.0 - 1e-9) {
                    best = now;
                } else {
                    at[rank] = old;
                }
            }
        }
        if best >= before {
            return at;
        }
    }
}

/// Branch and bound over all mappings: the best phase, the phases computed, and whether all mappings were
/// bounded.
fn bounded(
    model: &PhaseModel,
    traffic: &RankTraffic,
    best: PlacedPhase,
) -> (PlacedPhase, usize, bool) {
    let order = connected_order(traffic);
    let mut search = BoundedSearch {
        twins: earlier_twins(traffic, &order),
        order,
        used: vec![false; model.places()],
        alike: model.alike_places(),
        at: vec![usize::MAX; traffic.ranks()],
        loads: PhaseLoads::new(model),
        below: best.time * (1.0 - TOLERANCE),
        leaves: HashMap::new(),
        traffic,
    };
    search.descend(0, 0.0);
    let mut leaves: Vec<(f64, Vec<usize>)> = search.leaves.into_values().collect();
    leaves.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let mut clock = PhaseClock::new(model);
    let mut best = best;
    let mut tried = 0;
    for (bound, at) in leaves {
        if bound >= best.time * (1.0 - TOLERANCE) {
            return (best, tried, true);
        }
        if tried == MAX_PHASES {
            return (best, tried, false);
        }
        tried += 1;
        let time = clock.time(traffic, &at);
        if time < best.time {
            best = PlacedPhase { at, time };
        }
    }
    (best, tried, true)
}

/// Ranks in an order in which each has as many bytes as possible with those before it.
fn connected_order(traffic: &RankTraffic) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..traffic.ranks()).collect();
    let mut order: Vec<usize> = Vec::new();
    while !rest.is_empty() {
        let bytes = |rank: usize, with: &dyn Fn(usize) -> bool| -> u64 {
            let messages = traffic.messages().iter();
            let own = messages
                .filter(|m| (m.from == rank && with(m.to)) || (m.to == rank && with(m.from)));
            own.map(|m| m.bytes).sum()
        };
        let next = (0..rest.len()).max_by_key(|&nth| {
            let placed = |other: usize| order.contains(&other);
            (bytes(rest[nth], &placed), bytes(rest[nth], &|_| true), usize::MAX - rest[nth])
        });
        let Some(next) = next else { break };
        order.push(rest.remove(next));
    }
    order
}

/// For each rank of the order the last one before it that may change places with it: both send the same to,
/// and get the same from, all others and each other.
fn earlier_twins(traffic: &RankTraffic, order: &[usize]) -> Vec<Option<usize>> {
    let bytes: HashMap<(usize, usize), u64> =
        traffic.messages().iter().map(|m| ((m.from, m.to), m.bytes)).collect();
    let sent = |from: usize, to: usize| bytes.get(&(from, to)).copied().unwrap_or(0);
    let are_twins = |a: usize, b: usize| {
        let others = (0..traffic.ranks()).filter(|other| *other != a && *other != b);
        let mut same = others
            .map(|other| sent(a, other) == sent(b, other) && sent(other, a) == sent(other, b));
        sent(a, b) == sent(b, a) && same.all(|same| same)
    };
    let before = |nth: usize| order.iter().take(nth).rev().copied();
    let twin = |(nth, rank): (usize, &usize)| before(nth).find(|other| are_twins(*other, *rank));
    order.iter().enumerate().map(twin).collect()
}

/// Bytes between places: sending, receiving, bytes; ascending.
type PlacedBytes = Vec<(usize, usize, u64)>;

struct BoundedSearch<'m, 't> {
    order: Vec<usize>,
    /// By place in the order.
    twins: Vec<Option<usize>>,
    used: Vec<bool>,
    /// For each place the first one that may change places with it.
    alike: Vec<usize>,
    at: Vec<usize>,
    loads: PhaseLoads<'m>,
    /// Mappings with a lower bound from here on are left out, ns.
    below: f64,
    /// Mappings by the bytes that they put between places: mappings that differ by ranks in the same role
    /// are one.
    leaves: HashMap<PlacedBytes, (f64, Vec<usize>)>,
    traffic: &'t RankTraffic,
}

impl BoundedSearch<'_, '_> {
    fn descend(&mut self, depth: usize, bound: f64) {
        let Some(&rank) = self.order.get(depth) else {
            let mut image: PlacedBytes = self
                .traffic
                .messages()
                .iter()
                .map(|m| (self.at[m.from], self.at[m.to], m.bytes))
                .collect();
            image.sort_unstable();
            self.leaves.entry(image).or_insert_with(|| (bound, self.at.clone()));
            return;
        };
        // Twins are placed in ascending order: any other order is the same mapping.
        let twin = self.twins.get(depth).copied().flatten();
        let first = twin.map_or(0, |twin| self.at[twin] + 1);
        for place in first..self.used.len() {
            // Of places that are alike the lowest free one stands for all. The least of all mappings that are
            // the same, rank by rank in this order, keeps both this and the order of twins.
            let is_alike = |other: usize| self.alike[other] == self.alike[place];
            if self.used[place] || (0..place).any(|other| !self.used[other] && is_alike(other)) {
                continue;
            }
            self.used[place] = true;
            self.at[rank] = place;
            let now = bound.max(self.place_messages(rank, 1.0));
            if now < self.below {
                self.descend(depth + 1, now);
            }
            self.place_messages(rank, -1.0);
            self.at[rank] = usize::MAX;
            self.used[place] = false;
        }
    }

    /// Adds the messages of a rank with the ranks that have a place, or takes them away.
    fn place_messages(&mut self, rank: usize, sign: f64) -> f64 {
        let mut bound = 0.0_f64;
        for message in self.traffic.messages() {
            if message.from != rank && message.to != rank {
                continue;
            }
            let (from, to) = (self.at[message.from], self.at[message.to]);
            if from != usize::MAX && to != usize::MAX {
                bound = bound.max(self.loads.add(from, to, message.bytes as f64, sign));
            }
        }
        bound
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, Network, RuntimeEnv};
    use pathline_schema::{Bytes, Gpu, Link, LinkEnd, LinkKind, Rate, Topology};

    use super::*;
    use crate::phase_model::PhaseMover;
    use crate::rank_traffic::{PhasePattern, RankMessage};

    fn mi250x(mover: PhaseMover) -> PhaseModel {
        let text = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap().1;
        let desc = MachineDesc::parse("mi250x", text).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        PhaseModel::new(&network, &[0, 1, 2, 3, 4, 5, 6, 7], mover, Bytes::mib(64)).unwrap()
    }

    /// Time of the identity over that of the best mapping.
    fn gain(model: &PhaseModel, pattern: &str) -> f64 {
        let pattern: PhasePattern = pattern.parse().unwrap();
        let traffic = pattern.traffic(8, Bytes::mib(64)).unwrap();
        let found = find_mapping(model, &traffic).unwrap();
        assert!(found.is_proven, "{pattern}");
        assert!(found.best.time <= found.by_distance.time, "{pattern}");
        found.identity.time / found.best.time
    }

    /// The copy kernel uses every link of a bundle, an SDMA engine one at a time. In the exchange with the
    /// GPU four numbers on, each of the four bundles between the halves of the node that the routes pass
    /// carries several messages; the best mapping pairs the GPUs of a package, joined by four links.
    #[test]
    fn gains_on_mi250x_follow_the_pattern() {
        let near =
            |gain: f64, wanted: f64| assert!((gain - wanted).abs() < 0.01, "{gain} {wanted}");
        let blit = mi250x(PhaseMover::CopyKernel);
        near(gain(&blit, "ring"), 1.04);
        near(gain(&blit, "ring both ways"), 1.16);
        near(gain(&blit, "grid 2x4"), 1.96);
        near(gain(&blit, "exchange"), 4.53);
        near(gain(&blit, "all-to-all"), 1.0);
        let sdma = mi250x(PhaseMover::CopyEngine);
        near(gain(&sdma, "ring"), 1.015);
        near(gain(&sdma, "grid 2x4"), 1.91);
        near(gain(&sdma, "exchange"), 1.43);
    }

    /// A generator of random worlds that the seed alone decides.
    struct WorldSource(u64);

    impl WorldSource {
        fn below(&mut self, limit: u64) -> u64 {
            // Numerical Recipes' constants; the low bits are the bad ones.
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % limit
        }

        /// GPUs in a ring of links, and some more links, of one to four lanes of 50 GB/s. Rates are off by
        /// up to `error`, as those of a fitted twin.
        fn links(&mut self, gpus: u32) -> Vec<(u32, u32, u32)> {
            let ring = (0..gpus).map(|gpu| (gpu, (gpu + 1) % gpus)).collect::<Vec<_>>();
            let more = (0..gpus).map(|gpu| (gpu, (gpu + 2) % gpus));
            let more: Vec<_> = more.filter(|_| self.below(2) == 0).collect();
            let all = ring.into_iter().chain(more);
            all.map(|(a, b)| (a, b, 1 + self.below(4) as u32)).collect()
        }

        fn model(&mut self, links: &[(u32, u32, u32)], gpus: u32, error: f64) -> PhaseModel {
            let mut topology = Topology {
                gpus: (0..gpus).map(|index| Gpu { index, ..Gpu::default() }).collect(),
                ..Topology::default()
            };
            for &(a, b, width) in links {
                let off = 1.0 + error * (self.below(2001) as f64 / 1000.0 - 1.0);
                topology.links.push(Link {
                    a: LinkEnd::Gpu(a),
                    b: LinkEnd::Gpu(b),
                    kind: LinkKind::Xgmi,
                    width,
                    peak: Some(Rate(50.0 * f64::from(width) * off)),
                });
            }
            let network = Network::from_topology(&topology);
            let all: Vec<u32> = (0..gpus).collect();
            PhaseModel::new(&network, &all, PhaseMover::CopyEngine, Bytes::mib(1)).unwrap()
        }

        fn traffic(&mut self, ranks: usize) -> RankTraffic {
            let mut messages = Vec::new();
            for from in 0..ranks {
                for to in 0..ranks {
                    let bytes = if self.below(3) == 0 { (1 + self.below(64)) << 20 } else { 0 };
                    messages.push(RankMessage { from, to, bytes });
                }
            }
            messages.push(RankMessage { from: 0, to: 1, bytes: 1 << 20 });
            RankTraffic::new(ranks, messages).unwrap()
        }
    }

    /// The shortest phase of all mappings, each computed.
    fn true_best(clock: &mut PhaseClock<'_>, traffic: &RankTraffic, places: usize) -> f64 {
        fn visit(
            at: &mut Vec<usize>,
            places: usize,
            traffic: &RankTraffic,
            clock: &mut PhaseClock<'_>,
        ) -> f64 {
            if at.len() == traffic.ranks() {
                return clock.time(traffic, at);
            }
            let mut best = f64::INFINITY;
            for place in 0..places {
                if !at.contains(&place) {
                    at.push(place);
                    best = best.min(visit(at, places, traffic, clock));
                    at.pop();
                }
            }
            best
        }
        visit(&mut Vec::new(), places, traffic, clock)
    }

    /// Random nodes and matrices: the mapping that is found on a node whose rates are known to 0.5 % is
    /// compared on the true node with the best of all mappings. `PATHLINE_TEST_WORLDS` sets their number.
    #[test]
    fn mappings_of_random_worlds_are_the_best() {
        let worlds = std::env::var("PATHLINE_TEST_WORLDS").ok().and_then(|n| n.parse().ok());
        let worlds: u64 = worlds.unwrap_or(60);
        let (mut exact, mut fitted) = (0, 0);
        for seed in 0..worlds {
            let mut source = WorldSource(seed * 7919 + 17);
            let gpus = 4 + source.below(3) as u32;
            let links = source.links(gpus);
            let ranks = gpus as usize - source.below(2) as usize;
            let traffic = source.traffic(ranks);
            let model = source.model(&links, gpus, 0.0);
            let mut clock = PhaseClock::new(&model);
            let best = true_best(&mut clock, &traffic, gpus as usize);
            let found = find_mapping(&model, &traffic).unwrap();
            assert!(found.is_proven, "world {seed}");
            exact += u64::from(found.best.time <= best * 1.001);
            let noisy = source.model(&links, gpus, 0.005);
            let found = find_mapping(&noisy, &traffic).unwrap();
            fitted += u64::from(clock.time(&traffic, &found.best.at) <= best * 1.01);
        }
        println!("{exact} and {fitted} of {worlds}");
        assert_eq!(exact, worlds, "within 0.1 % on known rates");
        assert!(fitted * 100 >= worlds * 95, "{fitted} of {worlds} within 1 % on fitted rates");
    }

    /// Nodes of 8 GPUs: the search bounds all 40,320 mappings. This computes every 97th mapping and a swap of
    /// each pair of the result: none is faster. Alike GPUs stand for each other.
    #[test]
    fn mappings_of_eight_gpus_are_the_best() {
        for seed in 0..6 {
            let mut source = WorldSource(seed * 104_729 + 5);
            let links = match seed {
                // A full mesh of equal links, with GPU 7 behind wider ones in every other world.
                0 | 1 => (0..8)
                    .flat_map(|a| (a + 1..8).map(move |b| (a, b)))
                    .map(|(a, b)| (a, b, if b == 7 { 1 + seed as u32 } else { 1 }))
                    .collect(),
                _ => source.links(8),
            };
            let traffic = source.traffic(8);
            let model = source.model(&links, 8, 0.0);
            let found = find_mapping(&model, &traffic).unwrap();
            assert!(found.is_proven, "world {seed}");
            let alike = model.alike_places();
            match seed {
                0 => assert_eq!(alike, [0; 8]),
                1 => assert_eq!(alike, [0, 0, 0, 0, 0, 0, 0, 7]),
                _ => {}
            }
            if seed == 0 {
                // All mappings take the same time: one leaf, next to the starts of the search.
                assert!(found.phases < 20, "{}", found.phases);
            }
            let mut clock = PhaseClock::new(&model);
            let mut others = Vec::new();
            for nth in (0..40_320_usize).step_by(97) {
                // The nth order in the factorial number system.
                let (mut rest, mut number, mut at) = ((0..8).collect::<Vec<usize>>(), nth, vec![]);
                for left in (1..=8).rev() {
                    at.push(rest.remove(number % left));
                    number /= left;
                }
                others.push(at);
            }
            for (a, b) in (0..8).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let mut at = found.best.at.clone();
                at.swap(a, b);
                others.push(at);
            }
            for at in others {
                let time = clock.time(&traffic, &at);
                assert!(found.best.time <= time * 1.001, "world {seed}: {at:?} {time}");
            }
        }
    }

    /// The predictor of ordinary cases gives the same time for the phase.
    #[test]
    fn the_time_of_a_phase_is_that_of_its_case() {
        let text = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap().1;
        let desc = MachineDesc::parse("mi250x", text).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        for mover in [PhaseMover::CopyKernel, PhaseMover::CopyEngine] {
            let model = mi250x(mover);
            for (seed, pattern) in ["ring", "grid 2x4", "exchange", "all-to-all"].iter().enumerate()
            {
                let pattern: PhasePattern = pattern.parse().unwrap();
                let traffic = pattern.traffic(8, Bytes::mib(64)).unwrap();
                let at = shuffled(8, 8, seed as u64);
                let case = model.case(&traffic, &at, mover).unwrap();
                let wanted = network.durations(&case).unwrap().set.typical.0;
                let time = PhaseClock::new(&model).time(&traffic, &at);
                assert!((time / wanted - 1.0).abs() < 1e-3, "{mover:?} {pattern}: {time} {wanted}");
            }
        }
    }

    /// The lower bound of a mapping never exceeds its time.
    #[test]
    fn no_phase_is_shorter_than_its_bound() {
        for seed in 0..40 {
            let mut source = WorldSource(seed);
            let links = source.links(6);
            let model = source.model(&links, 6, 0.0);
            let traffic = source.traffic(6);
            let at = shuffled(6, 6, seed);
            let mut loads = PhaseLoads::new(&model);
            let mut bound = 0.0_f64;
            for m in traffic.messages() {
                bound = bound.max(loads.add(at[m.from], at[m.to], m.bytes as f64, 1.0));
            }
            let time = PhaseClock::new(&model).time(&traffic, &at);
            assert!(bound <= time * (1.0 + 1e-9) && bound > 0.0, "{seed}: {bound} {time}");
        }
    }

    #[test]
    fn more_ranks_than_places_have_no_mapping() {
        let mut source = WorldSource(1);
        let links = source.links(4);
        let (model, traffic) = (source.model(&links, 4, 0.0), source.traffic(5));
        assert_eq!(find_mapping(&model, &traffic), None);
    }
}
