//! Edge-disjoint rings over direct links: as many directed Hamiltonian cycles as a graph's links
//! carry side by side.
//!
//! A ring leaves and enters every GPU once, so `k` rings are `k` permutations of the GPUs that
//! share no link. A flow says up to which `k` these exist, matchings give them, and exchanges of
//! links between two of them join their cycles. Tillson (1980): n fully connected GPUs have n - 1
//! such rings, except 4 and 6.

/// Beginnings tried for one number of rings, and exchanges from each.
const MAX_BEGINNINGS: usize = 24;
const MAX_EXCHANGES: usize = 250;
/// Most vertices of a graph: a word has a bit for each.
const MAX_VERTICES: usize = 64;
/// One exchange of this many may add cycles, so that the search leaves a dead end.
const UPHILL_EVERY: usize = 24;

/// The rings of at most `most` that the search finds, each as the vertices in the order of the
/// stream. `slots[a][b]` is the number of rings that the link from `a` to `b` carries.
pub(crate) fn disjoint_rings(slots: &[Vec<u32>], most: usize) -> Vec<Vec<usize>> {
    let n = slots.len();
    if !(2..=MAX_VERTICES).contains(&n) {
        return Vec::new();
    }
    let mut best: Vec<Vec<usize>> = Vec::new();
    let mut random = RandomWalk(0x9e37_79b9_7f4a_7c15);
    for count in (1..=degree_bound(slots).min(most)).rev() {
        if count <= best.len() {
            break;
        }
        for _ in 0..MAX_BEGINNINGS {
            let Some(used) = regular_part(slots, count, &mut random) else { break };
            let mut packing = RingPacking::new(slots, used, count, &mut random);
            if packing.parity_excludes_rings() {
                continue;
            }
            packing.join_cycles(&mut random);
            let found = packing.rings();
            if found.len() > best.len() {
                best = found;
            }
            if best.len() == count {
                return best;
            }
        }
    }
    best
}

/// A sequence of numbers, the same in every run (xorshift).
struct RandomWalk(u64);

impl RandomWalk {
    /// A number below `limit`.
    const fn draw(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let limit = if limit == 0 { 1 } else { limit };
        (self.0 % limit as u64) as usize
    }

    /// The numbers below `n` in a random order.
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            let other = self.draw(i + 1);
            order.swap(i, other);
        }
        order
    }
}

/// No more rings than links leave or enter a vertex.
pub(crate) fn degree_bound(slots: &[Vec<u32>]) -> usize {
    let out = slots.iter().map(|row| row.iter().sum::<u32>());
    let into = (0..slots.len()).map(|b| slots.iter().filter_map(|row| row.get(b)).sum::<u32>());
    out.chain(into).min().unwrap_or(0) as usize
}

fn at<T: Copy + Default>(table: &[Vec<T>], a: usize, b: usize) -> T {
    table.get(a).and_then(|row| row.get(b)).copied().unwrap_or_default()
}

fn set<T>(table: &mut [Vec<T>], a: usize, b: usize, value: T) {
    if let Some(slot) = table.get_mut(a).and_then(|row| row.get_mut(b)) {
        *slot = value;
    }
}

/// Links of which `count` leave and enter each vertex, if there are such: paths that alternate
/// between free and used links, from a vertex that sends too little to one that receives too
/// little.
fn regular_part(
    slots: &[Vec<u32>],
    count: usize,
    random: &mut RandomWalk,
) -> Option<Vec<Vec<u32>>> {
    let n = slots.len();
    let mut used = vec![vec![0u32; n]; n];
    for sender in 0..n {
        for _ in 0..count {
            let receivers = random.order(n);
            augment(slots, &mut used, sender, &receivers, count as u32)?;
        }
    }
    Some(used)
}

/// One more link out of `sender`; others are exchanged where its receivers have enough.
fn augment(
    slots: &[Vec<u32>],
    used: &mut [Vec<u32>],
    sender: usize,
    receivers: &[usize],
    count: u32,
) -> Option<()> {
    let n = slots.len();
    // The sender from which each receiver was reached, and the receiver whose link to a sender was
    // given up.
    let mut reached_from: Vec<Option<usize>> = vec![None; n];
    let mut gave_up: Vec<Option<usize>> = vec![None; n];
    let mut queue = std::collections::VecDeque::from([sender]);
    while let Some(a) = queue.pop_front() {
        for &b in receivers {
            let known = reached_from.get(b).copied().flatten().is_some();
            if known || at(used, a, b) >= at(slots, a, b) {
                continue;
            }
            set_one(&mut reached_from, b, a);
            let received: u32 = used.iter().filter_map(|row| row.get(b)).sum();
            if received < count {
                let (mut from, mut to) = (a, b);
                loop {
                    let more = at(used, from, to) + 1;
                    set(used, from, to, more);
                    if from == sender {
                        return Some(());
                    }
                    let other = gave_up.get(from).copied().flatten()?;
                    let less = at(used, from, other).saturating_sub(1);
                    set(used, from, other, less);
                    to = other;
                    from = reached_from.get(to).copied().flatten()?;
                }
            }
            for other in 0..n {
                let fresh = other != sender && gave_up.get(other).copied().flatten().is_none();
                if fresh && at(used, other, b) > 0 {
                    set_one(&mut gave_up, other, b);
                    queue.push_back(other);
                }
            }
        }
    }
    None
}

fn set_one(list: &mut [Option<usize>], at: usize, value: usize) {
    if let Some(slot) = list.get_mut(at) {
        *slot = Some(value);
    }
}

/// A permutation of the vertices out of links that are used, and their removal: in a graph with as
/// many links out of as into each vertex there is one.
fn take_matching(used: &mut [Vec<u32>], random: &mut RandomWalk) -> Option<Vec<usize>> {
    let n = used.len();
    let mut sender_of: Vec<Option<usize>> = vec![None; n];
    let receivers = random.order(n);
    for a in random.order(n) {
        if !matched(used, a, &receivers, &mut vec![false; n], &mut sender_of) {
            return None;
        }
    }
    let mut next = vec![0; n];
    for (b, a) in sender_of.into_iter().enumerate() {
        let a = a?;
        *next.get_mut(a)? = b;
        let less = at(used, a, b).saturating_sub(1);
        set(used, a, b, less);
    }
    Some(next)
}

fn matched(
    used: &[Vec<u32>],
    a: usize,
    receivers: &[usize],
    seen: &mut [bool],
    sender_of: &mut [Option<usize>],
) -> bool {
    for &b in receivers {
        if at(used, a, b) == 0 || seen.get(b).copied().unwrap_or(true) {
            continue;
        }
        if let Some(seen) = seen.get_mut(b) {
            *seen = true;
        }
        let current = sender_of.get(b).copied().flatten();
        if current.is_none_or(|other| matched(used, other, receivers, seen, sender_of)) {
            set_one(sender_of, b, a);
            return true;
        }
    }
    false
}

/// Permutations that share no link, and the links that none uses.
struct RingPacking {
    next: Vec<Vec<usize>>,
    /// Cycles of each permutation.
    cycles: Vec<usize>,
    free: Vec<Vec<u32>>,
}

impl RingPacking {
    fn new(
        slots: &[Vec<u32>],
        mut used: Vec<Vec<u32>>,
        count: usize,
        random: &mut RandomWalk,
    ) -> Self {
        let free = slots
            .iter()
            .zip(&used)
            .map(|(all, used)| all.iter().zip(used).map(|(a, u)| a.saturating_sub(*u)).collect())
            .collect();
        let next: Vec<Vec<usize>> =
            (0..count).map_while(|_| take_matching(&mut used, random)).collect();
        let cycles = next.iter().map(|next| cycles(next)).collect();
        Self { next, cycles, free }
    }

    /// An exchange between two permutations multiplies both by the same cycle, so it keeps the sign
    /// of their product. A permutation of n vertices with c cycles has the sign (-1)^(n - c); where
    /// no link is free, rings need the sign (-1)^(n - 1) for each.
    fn parity_excludes_rings(&self) -> bool {
        let extra: usize = self.cycles.iter().map(|cycles| cycles - 1).sum();
        extra % 2 == 1 && self.free.iter().flatten().all(|&free| free == 0)
    }

    /// Exchanges links until every permutation is one cycle, or the attempts are spent.
    fn join_cycles(&mut self, random: &mut RandomWalk) {
        let n = self.free.len();
        for _ in 0..MAX_EXCHANGES * self.next.len() {
            let open = self.cycles.iter().filter(|&&cycles| cycles > 1).count();
            if open == 0 {
                return;
            }
            let pick = random.draw(open);
            let split = self.cycles.iter().enumerate().filter(|(_, cycles)| **cycles > 1).nth(pick);
            let Some((p, _)) = split else { return };
            let (q, v) = (random.draw(self.next.len() + 1), random.draw(n));
            let uphill = random.draw(UPHILL_EVERY) == 0;
            if q == self.next.len() {
                self.exchange_with_free(p, v, random.draw(n), uphill);
            } else if q != p {
                self.exchange_between(p, q, v, uphill);
            }
        }
    }

    fn cycles_of(&self, p: usize) -> usize {
        self.cycles.get(p).copied().unwrap_or(0)
    }

    fn replace(&mut self, p: usize, next: Vec<usize>, cycles: usize) {
        if let (Some(slot), Some(count)) = (self.next.get_mut(p), self.cycles.get_mut(p)) {
            (*slot, *count) = (next, cycles);
        }
    }

    /// Swaps links of `p` and `q` from `v` on, until both are permutations again.
    fn exchange_between(&mut self, p: usize, q: usize, v: usize, uphill: bool) {
        let (Some(mut a), Some(mut b)) = (self.next.get(p).cloned(), self.next.get(q).cloned())
        else {
            return;
        };
        let mut at = v;
        loop {
            let (Some(x), Some(y)) = (a.get_mut(at), b.get_mut(at)) else { return };
            std::mem::swap(x, y);
            // `a` now has this target twice; its other sender swaps too.
            let twice = *x;
            let other = a.iter().enumerate().position(|(i, &to)| i != at && to == twice);
            match other {
                Some(other) => at = other,
                None => break,
            }
        }
        let (of_a, of_b) = (cycles(&a), cycles(&b));
        if uphill || of_a + of_b <= self.cycles_of(p) + self.cycles_of(q) {
            self.replace(p, a, of_a);
            self.replace(q, b, of_b);
        }
    }

    /// Crosses the links of `p` out of `v` and `u` where links are free for that.
    fn exchange_with_free(&mut self, p: usize, v: usize, u: usize, uphill: bool) {
        let Some(mut next) = self.next.get(p).cloned() else { return };
        let (Some(&x), Some(&y)) = (next.get(v), next.get(u)) else { return };
        if v == u || at(&self.free, v, y) == 0 || at(&self.free, u, x) == 0 {
            return;
        }
        next.swap(v, u);
        let count = cycles(&next);
        if uphill || count <= self.cycles_of(p) {
            for (a, b, gained) in [(v, x, true), (u, y, true), (v, y, false), (u, x, false)] {
                let free = at(&self.free, a, b);
                set(&mut self.free, a, b, if gained { free + 1 } else { free.saturating_sub(1) });
            }
            self.replace(p, next, count);
        }
    }

    /// The permutations that are one cycle, from vertex 0 on.
    fn rings(&self) -> Vec<Vec<usize>> {
        self.next.iter().filter(|next| cycles(next) == 1).map(|next| cycle_from(next, 0)).collect()
    }
}

fn cycle_from(next: &[usize], first: usize) -> Vec<usize> {
    let mut ring = vec![first];
    let mut at = first;
    while let Some(&to) = next.get(at) {
        if to == first || ring.len() >= next.len() {
            break;
        }
        ring.push(to);
        at = to;
    }
    ring
}

fn cycles(next: &[usize]) -> usize {
    let (mut seen, mut count) = (0u64, 0);
    for first in 0..next.len() {
        let mut at = first;
        if seen & (1 << at) == 0 {
            count += 1;
        }
        while seen & (1 << at) == 0 {
            seen |= 1 << at;
            at = next.get(at).copied().unwrap_or(first);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complete(n: usize, copies: u32) -> Vec<Vec<u32>> {
        let row = |a: usize| (0..n).map(|b| if a == b { 0 } else { copies }).collect();
        (0..n).map(row).collect()
    }

    /// Every ring passes each vertex once, and no link carries more rings than it has slots for.
    fn check(slots: &[Vec<u32>], rings: &[Vec<usize>]) {
        let mut left = slots.to_vec();
        for ring in rings {
            let mut sorted = ring.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..slots.len()).collect::<Vec<_>>());
            for (&a, &b) in ring.iter().zip(ring.iter().cycle().skip(1)) {
                assert!(left[a][b] > 0, "{a}>{b} is used too often: {rings:?}");
                left[a][b] -= 1;
            }
        }
    }

    /// Of n vertices each sends over n - 1 links, so n - 1 rings use all of them. Of 4 and 6
    /// vertices none of these sets exists, and one ring less is the most; of twice the links it
    /// exists: 4 vertices have (4 - 1)! = 6 rings, and each link is in 6 x 4 / 12 = 2 of them.
    #[test]
    fn complete_graphs_have_a_ring_for_each_link_of_a_vertex() {
        for n in 2..=13 {
            let missing = usize::from(n == 4 || n == 6);
            let found = disjoint_rings(&complete(n, 1), 32);
            check(&complete(n, 1), &found);
            assert_eq!(found.len(), n - 1 - missing, "{n}");
        }
        for n in [4, 6, 8] {
            let found = disjoint_rings(&complete(n, 2), 32);
            check(&complete(n, 2), &found);
            assert_eq!(found.len(), 2 * (n - 1), "{n}");
        }
        assert_eq!(disjoint_rings(&complete(8, 1), 3).len(), 3);
    }

    #[test]
    fn a_graph_without_rings_has_none() {
        // A chain; two pairs that nothing joins; one vertex.
        let chain = vec![vec![0, 1, 0], vec![1, 0, 1], vec![0, 1, 0]];
        let pairs = vec![vec![0, 1, 0, 0], vec![1, 0, 0, 0], vec![0, 0, 0, 1], vec![0, 0, 1, 0]];
        for graph in [chain, pairs, vec![vec![0]], Vec::new()] {
            assert!(disjoint_rings(&graph, 8).is_empty(), "{graph:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Graphs made of random rings, which may share links, and random further links: the
        /// search finds at least half of the hidden rings, and never one that does not fit.
        #[test]
        fn hidden_rings_are_found(
            orders in (2usize..=9).prop_flat_map(|n| prop::collection::vec(
                Just((0..n).collect::<Vec<_>>()).prop_shuffle(), 1..=5)),
            extra in prop::collection::vec((0usize..9, 0usize..9), 0..10),
        ) {
            let n = orders[0].len();
            let mut slots = vec![vec![0u32; n]; n];
            for ring in &orders {
                for (&a, &b) in ring.iter().zip(ring.iter().cycle().skip(1)) {
                    slots[a][b] += 1;
                }
            }
            for (a, b) in extra.into_iter().filter(|&(a, b)| a != b && a < n && b < n) {
                slots[a][b] += 1;
            }
            let found = disjoint_rings(&slots, 32);
            check(&slots, &found);
            prop_assert!(found.len() <= degree_bound(&slots));
            prop_assert!(2 * found.len() >= orders.len(), "{} of {}", found.len(), orders.len());
        }
    }
}
