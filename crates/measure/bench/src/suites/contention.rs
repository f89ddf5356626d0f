//! The input to fit and test a twin of a node: every copy-engine path alone, chosen sets of them at
//! once (`contention`), and random sets (`concurrent`).
//!
//! Alone a path shows only its bottleneck. A resource that paths share shows in pairs if it is
//! narrower than two of them, and otherwise only in groups: hence pairs, and groups of every size.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::routes::RouteTable;
use pathline_hal::pattern;
use pathline_schema::{Bytes, Case, Flow, LinkEnd, MemKind, Topology};

use super::{dma, gpu, home, numa, ordered_pairs};
use crate::scope::RandomDraw;

/// Payload of a copy between host and GPU: 1.2 ms over PCIe 5. Smaller host buffers contend less
/// (four H200s fed at once took 163 GB/s in all from buffers of 64 MiB, more from 4 to 16 MiB), so
/// size matters, and all probes have the same.
const HOST: Bytes = Bytes::mib(64);
/// Peak of a host link that the topology does not state, GB/s: 16 lanes of PCIe 5. It only affects
/// payloads.
const HOST_PEAK: f64 = 63.0;
/// Maximum ratio of a payload between GPUs to one over the host link, in powers of two.
const MOST_DOUBLINGS: f64 = 4.0;
/// Payload of an operation that is all start-up.
const TINY: Bytes = Bytes(16);

/// Maximum pairs of one kind: with more than 8 GPUs not all are taken, since their number grows
/// with the fourth power of the number of GPUs. With 8 there are 120 pairs of host paths.
const MOST_PAIRS: usize = 120;
/// Maximum pairs that share an end or a link; on 8 GPUs there are 48 of each kind of end.
const MOST_NEIGHBOURS: usize = 64;
/// Pairs between GPUs that share no known resource.
const STRANGERS: usize = 24;
/// Number of random groups of GPUs that copy in, and the same number each for out, both directions,
/// and mixed.
const GROUPS: usize = 10;
/// Number of sets that are measured twice.
const AGAIN: usize = 20;
/// Seed of this suite's random choices: the suite is the same in every run, so that runs can be
/// compared.
const SAMPLED: u64 = 0x7477_696e;

/// Pseudo-random numbers from the elements of a pattern.
struct PatternRandom {
    seed: u64,
    thrown: u64,
}

impl PatternRandom {
    fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    /// A number below `n`; 0 if there is none.
    fn below(&mut self, n: usize) -> usize {
        let bits = pattern::word(self.seed, self.thrown);
        self.thrown += 1;
        // The top bits of the product: even to 1 in 2^53 for the sizes here.
        ((u128::from(bits) * n as u128) >> 64) as usize
    }

    /// Up to `n` of `from` in a random order.
    fn some<T: Copy>(&mut self, from: &[T], n: usize) -> Vec<T> {
        let mut left = from.to_vec();
        let mut taken = Vec::new();
        while taken.len() < n && !left.is_empty() {
            taken.push(left.swap_remove(self.below(left.len())));
        }
        taken
    }
}

/// A set of copies, as ordered indices into the list of paths.
type CopySet = Vec<usize>;

/// The copy-engine paths of a node.
struct EnginePaths<'a> {
    topology: &'a Topology,
    routes: RouteTable,
    gpus: Vec<u32>,
    /// From and to each GPU's home domain, then its other domains, then between GPUs. All have the
    /// payload of their class.
    flows: Vec<Flow>,
}

impl<'a> EnginePaths<'a> {
    fn of(topology: &'a Topology) -> Self {
        let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
        let (routes, flows) = (RouteTable::of(topology), Vec::new());
        let mut paths = Self { topology, routes, gpus, flows };
        let home_of = |g: u32| home(topology, g);
        let mut flows: Vec<Flow> = Vec::new();
        flows.extend(paths.gpus.iter().map(|&g| into(g, home_of(g))));
        flows.extend(paths.gpus.iter().map(|&g| out(g, home_of(g))));
        let domains = || topology.numa.iter().map(|d| d.id);
        let far = |&g: &u32| domains().filter(move |&d| d != home_of(g)).map(move |d| (g, d));
        flows.extend(paths.gpus.iter().flat_map(far).map(|(g, d)| into(g, d)));
        flows.extend(paths.gpus.iter().flat_map(far).map(|(g, d)| out(g, d)));
        flows.extend(ordered_pairs(topology).map(|(a, b)| paths.peer(a, b)));
        paths.flows = flows;
        paths
    }

    /// A copy between two GPUs, pushed by the source, with the duration of one over the host link.
    fn peer(&self, a: u32, b: u32) -> Flow {
        let (src, dst) = (gpu(a, MemKind::Vram), gpu(b, MemKind::Vram));
        Flow { src, dst, by: dma(a), bytes: Bytes(HOST.0 << self.doublings(a, b)) }
    }

    /// How often [`HOST`] is doubled for a pair, so that it lasts as long over the faster links of
    /// its route. 0 where an engine has one rate for all link widths.
    fn doublings(&self, a: u32, b: u32) -> u32 {
        let gpu = self.topology.gpus.iter().find(|g| g.index == a);
        let fixed = gpu.is_some_and(|g| g.caps().fixed_engine_rate);
        let peak = |from, to| self.routes.in_use(from, to)?.peak.map(|p| p.0);
        let Some(links) = peak(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).filter(|_| !fixed) else {
            return 0;
        };
        let host =
            peak(LinkEnd::Numa(home(self.topology, a)), LinkEnd::Gpu(a)).unwrap_or(HOST_PEAK);
        let times = (links / host).log2().round().clamp(0.0, MOST_DOUBLINGS);
        // 0 / 0 gives no ratio.
        if times.is_nan() { 0 } else { times as u32 }
    }

    /// Indices of the paths that `wanted` accepts.
    fn which(&self, wanted: impl Fn(&Flow) -> bool) -> Vec<usize> {
        (0..self.flows.len()).filter(|&i| wanted(&self.flows[i])).collect()
    }
    fn number(&self, flow: &Flow) -> Option<usize> {
        self.flows.iter().position(|f| f == flow)
    }
    fn at_home(&self, flow: &Flow) -> bool {
        let host = flow.src.unit.numa().or(flow.dst.unit.numa());
        host.is_some_and(|d| self.of_gpu(flow).is_some_and(|g| home(self.topology, g) == d))
    }
    /// The GPU of a path between host and GPU.
    fn of_gpu(&self, flow: &Flow) -> Option<u32> {
        if is_peer(flow) { None } else { flow.by.at().gpu() }
    }
    fn case(&self, set: &[usize]) -> Case {
        Case::together(set.iter().map(|&i| self.flows[i]).collect())
    }
}

/// From host memory into a GPU.
fn into(g: u32, domain: u32) -> Flow {
    Flow { src: numa(domain, MemKind::Pinned), dst: gpu(g, MemKind::Vram), by: dma(g), bytes: HOST }
}
fn out(g: u32, domain: u32) -> Flow {
    let inward = into(g, domain);
    Flow { src: inward.dst, dst: inward.src, ..inward }
}
fn is_peer(flow: &Flow) -> bool {
    flow.src.unit.gpu().is_some() && flow.dst.unit.gpu().is_some()
}
fn is_in(flow: &Flow) -> bool {
    flow.src.unit.numa().is_some()
}
fn is_out(flow: &Flow) -> bool {
    flow.dst.unit.numa().is_some()
}

/// The engine queue of a copy: on H200s an engine has one for copies to other GPUs, one in and one
/// out, each of which serves a stream at a time.
pub(crate) fn queue(flow: &Flow) -> (Option<u32>, bool, bool) {
    (flow.by.at().gpu(), is_in(flow), is_out(flow))
}

/// Paths alone, their start-up, pairs, groups, some of these again.
pub(super) fn contention(topology: &Topology, _: RandomDraw) -> Vec<Case> {
    let paths = EnginePaths::of(topology);
    let mut sets: Vec<CopySet> = (0..paths.flows.len()).map(|i| vec![i]).collect();
    sets.extend(host_pairs(&paths));
    sets.extend(far_pairs(&paths));
    sets.extend(near_and_far(&paths));
    sets.extend(peer_pairs(&paths));
    sets.extend(mixed_pairs(&paths));
    sets.extend(host_groups(&paths));
    sets.extend(peer_groups(&paths));
    let mut seen = BTreeSet::new();
    sets.retain(|set| !set.is_empty() && seen.insert(set.clone()));
    let mut cases: Vec<Case> = sets.iter().map(|set| paths.case(set)).collect();
    cases.extend(start_ups(&paths));
    cases.extend(measured_again(&paths, &sets));
    cases
}

/// Some sets a second time, after all others: their differences are how well the node repeats itself. Their
/// flows have the opposite order, which makes another case of the same copies; sets with a choice of order
/// in a queue are left out.
fn measured_again(paths: &EnginePaths<'_>, sets: &[CopySet]) -> Vec<Case> {
    let in_turn = |set: &&CopySet| {
        let mut queues = BTreeSet::new();
        set.len() > 1 && set.iter().all(|&i| queues.insert(queue(&paths.flows[i])))
    };
    let all: Vec<&CopySet> = sets.iter().filter(in_turn).collect();
    let mut some = PatternRandom::new(SAMPLED).some(&all, AGAIN);
    some.sort_unstable();
    let reversed = |set: &CopySet| paths.case(&set.iter().rev().copied().collect::<CopySet>());
    some.into_iter().map(reversed).collect()
}

/// The same 16 B copies as in suite `latency`: a case in both suites is measured once.
fn start_ups(paths: &EnginePaths<'_>) -> Vec<Case> {
    let near = paths.which(|f| is_peer(f) || paths.at_home(f));
    // With more than 8 GPUs they are alike except for their class, which a part of them shows.
    let near = PatternRandom::new(SAMPLED).some(&near, 2 * MOST_PAIRS);
    let mut near: Vec<usize> = near;
    near.sort_unstable();
    let tiny = |&i: &usize| {
        let Flow { src, dst, by, .. } = paths.flows[i];
        Case::single(src, dst, by, TINY).isolated()
    };
    near.iter().map(tiny).collect()
}

/// All pairs of a list, `a` before `b`.
fn all_pairs(of: &[usize]) -> Vec<(usize, usize)> {
    let after = |at: usize| of.iter().skip(at + 1).copied();
    of.iter().enumerate().flat_map(|(at, &a)| after(at).map(move |b| (a, b))).collect()
}

/// At most this many pairs, as sets, in order.
fn at_most(pairs: &[(usize, usize)], most: usize) -> Vec<CopySet> {
    let mut some = PatternRandom::new(SAMPLED).some(pairs, most);
    some.sort_unstable();
    some.into_iter().map(|(a, b)| vec![a.min(b), a.max(b)]).collect()
}

/// Home paths of the host, each with each other; those of one GPU in any case.
fn host_pairs(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let near = paths.which(|f| paths.at_home(f));
    let gpu = |&i: &usize| paths.of_gpu(&paths.flows[i]);
    let (own, others): (Vec<_>, Vec<_>) =
        all_pairs(&near).into_iter().partition(|(a, b)| gpu(a) == gpu(b));
    let mut sets = at_most(&own, usize::MAX);
    sets.extend(at_most(&others, MOST_PAIRS));
    sets
}

/// Host memory of another domain: with a home path of that domain, with which it shares memory, and
/// with another far path between the same domains, with which it shares the link between them.
fn far_pairs(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let domains = |f: &Flow| {
        let host = f.src.unit.numa().or(f.dst.unit.numa())?;
        Some((host, home(paths.topology, paths.of_gpu(f)?)))
    };
    let mut pairs = Vec::new();
    for inward in [true, false] {
        let mut by_domains: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for i in paths.which(|f| is_in(f) == inward && !is_peer(f)) {
            if let Some(pair) = domains(&paths.flows[i]) {
                by_domains.entry(pair).or_default().push(i);
            }
        }
        for (&(host, near), copies) in by_domains.iter().filter(|((host, near), _)| host != near) {
            let homes = by_domains.get(&(host, host)).and_then(|homes| homes.first());
            pairs.extend(copies.first().zip(homes).map(|(&a, &b)| (a, b)));
            pairs.extend(copies.first().zip(copies.get(1)).map(|(&a, &b)| (a, b)));
            let back = by_domains.get(&(near, host)).and_then(|back| back.first());
            pairs.extend(copies.first().zip(back).map(|(&a, &b)| (a, b)));
        }
    }
    at_most(&pairs, MOST_NEIGHBOURS)
}

/// Memory of the home domain and of another one, in one direction: both share the GPU's own link
/// and engine. Without this pair a twin treats them as independent.
fn near_and_far(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let mut pairs = Vec::new();
    for &g in &paths.gpus {
        for is_direction in [is_in, is_out] {
            let of = |f: &Flow| is_direction(f) && paths.of_gpu(f) == Some(g);
            let near = paths.which(|f| of(f) && paths.at_home(f)).first().copied();
            let far = paths.which(|f| of(f) && !paths.at_home(f)).first().copied();
            pairs.extend(near.zip(far));
        }
    }
    at_most(&pairs, MOST_NEIGHBOURS)
}

/// Between GPUs: same source, same destination, opposite, over a common link, and some of the rest.
fn peer_pairs(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let peers = paths.which(is_peer);
    let flow = |i: usize| &paths.flows[i];
    // Adjacent pairs show which copies an engine queues: queueing is transitive.
    let mut from: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut to: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &i in &peers {
        from.entry(flow(i).src.unit.gpu().unwrap_or_default()).or_default().push(i);
        to.entry(flow(i).dst.unit.gpu().unwrap_or_default()).or_default().push(i);
    }
    let rows = |of: &BTreeMap<u32, Vec<usize>>| -> Vec<(usize, usize)> {
        of.values()
            .flat_map(|copies| copies.iter().copied().zip(copies.iter().copied().skip(1)))
            .collect()
    };
    let opposite =
        |&(a, b): &(usize, usize)| flow(a).src == flow(b).dst && flow(a).dst == flow(b).src;
    let ends = |i: usize| [flow(i).src.unit, flow(i).dst.unit];
    let strangers = |&(a, b): &(usize, usize)| !ends(a).iter().any(|end| ends(b).contains(end));
    let all = all_pairs(&peers);
    let of = |wanted: &dyn Fn(&(usize, usize)) -> bool| -> Vec<(usize, usize)> {
        all.iter().copied().filter(wanted).collect()
    };
    let mut sets = at_most(&rows(&from), MOST_NEIGHBOURS);
    sets.extend(at_most(&rows(&to), MOST_NEIGHBOURS));
    sets.extend(at_most(&of(&opposite), MOST_NEIGHBOURS));
    sets.extend(at_most(&over_one_link(paths, &peers), MOST_NEIGHBOURS));
    sets.extend(at_most(&of(&strangers), STRANGERS));
    sets
}

/// For each link that several routes use, in one direction, the first of its copies (the direct
/// one, if any) with each other one. Ports of GPUs at a switch are omitted: copies that share one
/// share an end.
fn over_one_link(paths: &EnginePaths<'_>, peers: &[usize]) -> Vec<(usize, usize)> {
    let mut over: BTreeMap<(LinkEnd, LinkEnd), Vec<(usize, usize)>> = BTreeMap::new();
    for &i in peers {
        let (src, dst) =
            (LinkEnd::from(paths.flows[i].src.unit), LinkEnd::from(paths.flows[i].dst.unit));
        let Some(used) = paths.routes.in_use(src, dst) else { continue };
        for path in &used.paths {
            for hop in path.nodes.windows(2) {
                let &[a, b] = hop else { continue };
                let port = |n: LinkEnd| matches!(n, LinkEnd::Gpu(_)) && used.paths.len() == 1;
                let switched = [a, b].iter().any(|n| !matches!(n, LinkEnd::Gpu(_)));
                if !(switched && (port(a) || port(b)) || used.striped) {
                    over.entry((a, b)).or_default().push((path.nodes.len(), i));
                }
            }
        }
    }
    let mut pairs = Vec::new();
    for copies in over.values_mut() {
        copies.sort_unstable();
        copies.dedup_by_key(|&mut (_, i)| i);
        if let Some((&(_, first), rest)) = copies.split_first() {
            pairs.extend(rest.iter().map(|&(_, i)| (first.min(i), first.max(i))));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// A host path with a copy from or to another GPU of the same GPU.
fn mixed_pairs(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let next = |g: u32| {
        let at = paths.gpus.iter().position(|&other| other == g)?;
        paths.gpus.get((at + 1) % paths.gpus.len()).copied().filter(|&other| other != g)
    };
    let mut sets = Vec::new();
    for i in paths.which(|f| paths.at_home(f)) {
        let Some(g) = paths.of_gpu(&paths.flows[i]) else { continue };
        let Some(other) = next(g) else { continue };
        for peer in [paths.peer(g, other), paths.peer(other, g)] {
            sets.extend(paths.number(&peer).map(|peer| vec![i, peer]));
        }
    }
    sets
}

/// Groups of GPUs that copy in, out and in both directions: all, halves, quarters, all but one,
/// random ones.
fn host_groups(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let gpus = &paths.gpus;
    let n = gpus.len();
    let mut groups: Vec<Vec<u32>> = vec![gpus.clone()];
    for parts in [2, 4] {
        groups.extend(gpus.chunks(n.div_ceil(parts).max(1)).map(<[u32]>::to_vec));
    }
    let but = |left_out: u32| gpus.iter().copied().filter(|&g| g != left_out).collect();
    groups.extend(gpus.iter().map(|&g| but(g)));
    let mut rng = PatternRandom::new(SAMPLED);
    for _ in 0..GROUPS {
        let size = 3 + rng.below(n.saturating_sub(3));
        let mut group = rng.some(gpus, size);
        group.sort_unstable();
        groups.push(group);
    }
    let near = |wanted: &dyn Fn(u32, &Flow) -> bool| -> CopySet {
        paths.which(|f| paths.at_home(f) && paths.of_gpu(f).is_some_and(|g| wanted(g, f)))
    };
    let mut sets: Vec<CopySet> = Vec::new();
    for is_direction in [is_in, is_out, |_: &Flow| true] {
        sets.extend(groups.iter().map(|group| near(&|g, f| group.contains(&g) && is_direction(f))));
    }
    // Each GPU in, out, both directions or neither, by two bits of a number.
    for _ in 0..GROUPS {
        let choices: Vec<usize> = gpus.iter().map(|_| rng.below(4)).collect();
        let bits =
            |g: u32| gpus.iter().position(|&other| other == g).and_then(|at| choices.get(at));
        let chosen =
            |g: u32, f: &Flow| bits(g).is_some_and(|b| b & (1 << usize::from(is_in(f))) != 0);
        sets.push(near(&chosen));
    }
    sets.retain(|set| set.len() > 2);
    sets
}

/// Many GPUs at once: all to one, one to all, permutations with one copy per engine (the ring is
/// the first), and all of them with all host paths.
fn peer_groups(paths: &EnginePaths<'_>) -> Vec<CopySet> {
    let n = paths.gpus.len();
    let peers = paths.which(is_peer);
    let flow = |i: usize| &paths.flows[i];
    let at = |i: usize, of: &dyn Fn(&Flow) -> Option<u32>| {
        of(flow(i)).and_then(|g| paths.gpus.iter().position(|&other| other == g)).unwrap_or(n)
    };
    let (src, dst) = (|f: &Flow| f.src.unit.gpu(), |f: &Flow| f.dst.unit.gpu());
    let of = |wanted: &dyn Fn(usize, usize) -> bool| -> CopySet {
        peers.iter().copied().filter(|&i| wanted(at(i, &src), at(i, &dst))).collect()
    };
    let mut sets: Vec<CopySet> = Vec::new();
    sets.extend((0..n).map(|one| of(&|_, to| to == one)));
    sets.extend((0..n).map(|one| of(&|from, _| from == one)));
    let shifts: Vec<CopySet> =
        (1..n).map(|shift| of(&|from, to| (from + shift) % n == to)).collect();
    sets.extend(shifts.iter().cloned());
    let host = paths.which(|f| paths.at_home(f));
    let (inward, outward): (CopySet, CopySet) = host.iter().partition(|&&i| is_in(flow(i)));
    for with in [inward, outward, host] {
        sets.extend(
            shifts.first().map(|ring| with.iter().chain(ring).copied().collect::<CopySet>()),
        );
    }
    // One half to the other: copies across the links between two halves, in one direction.
    sets.push(of(&|from, to| from < n / 2 && to == from + n / 2));
    sets.push(of(&|from, to| to < n / 2 && from == to + n / 2));
    sets.retain(|set| set.len() > 2);
    sets
}

/// Minimum and maximum copies of a random set.
const COPIES: (usize, usize) = (2, 16);
/// Retries of a set that exists already; small nodes run out of sets.
const TRIES: u32 = 32;
/// Number of a set that may have all kinds of copies, none of which waits.
const ANY_COPIES: u32 = 2;

/// Random sets: a third of them between host and GPUs, a third between GPUs, a third of both; in
/// three of four no engine queue has two copies, so none waits for another one to end; payloads of
/// three octaves.
pub(super) fn concurrent(topology: &Topology, draw: RandomDraw) -> Vec<Case> {
    let paths = EnginePaths::of(topology);
    let mut seen = BTreeSet::new();
    let mut cases = Vec::new();
    for nth in 0..draw.sets {
        let mut rng = PatternRandom::new(pattern::word(draw.seed, u64::from(nth)));
        let drawn = (0..2 * TRIES).find_map(|nth_try| {
            // Two GPUs have 9 sets of copies between them: after that, the set may have any copies.
            let kind = if nth_try < TRIES { nth } else { ANY_COPIES };
            let case = random_set(&paths, &mut rng, kind)?;
            // The same copies in another order are the same set.
            let mut set = case.timed.clone();
            set.sort_unstable();
            seen.insert(set).then_some(case)
        });
        cases.extend(drawn);
    }
    cases
}

/// The `nth` set: its number decides which kinds of copies it has and whether they may wait for
/// each other, so that any number of sets has all kinds in proportion.
fn random_set(paths: &EnginePaths<'_>, rng: &mut PatternRandom, nth: u32) -> Option<Case> {
    let kind = nth % 3;
    let (host, peers) = (kind != 1, kind != 0);
    let queued = (nth / 3) % 4 == 3;
    let all = paths.which(|f| if is_peer(f) { peers } else { host });
    let mut order = rng.some(&all, all.len());
    if paths.topology.numa.len() > 1 {
        // Programs mostly copy to and from the home domain: three of four host copies.
        let far: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&i| !is_peer(&paths.flows[i]) && !paths.at_home(&paths.flows[i]))
            .filter(|_| rng.below(4) != 0)
            .collect();
        order.retain(|i| !far.contains(i));
    }
    let mut queues = BTreeSet::new();
    order.retain(|&i| queues.insert(queue(&paths.flows[i])) || queued);
    let most = order.len().min(COPIES.1);
    let size = COPIES.0 + rng.below((most + 1).saturating_sub(COPIES.0));
    order.truncate(size);
    if order.len() < COPIES.0 {
        return None;
    }
    let mut flows: Vec<Flow> = order.iter().map(|&i| paths.flows[i]).collect();
    for flow in &mut flows {
        flow.bytes = Bytes((flow.bytes.0 / 2) << rng.below(3));
    }
    // Host copies first and by size, so that sets share page-locked buffers, which cost 353 ms a
    // GiB to make. The others are in drawn order, in which an engine takes them.
    flows.sort_by_key(|f| if is_peer(f) { (2, 0) } else { (u64::from(is_out(f)), f.bytes.0) });
    Some(Case::together(flows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::MachineDesc;
    use pathline_schema::{Gpu, Link, LinkKind, NumaDomain, Rate};

    /// GPUs behind one NVLink switch of 478 GB/s a port, spread over some domains; their host links
    /// are unknown.
    fn behind_a_switch(gpus: u32, domains: u32) -> Topology {
        let per_domain = gpus.div_ceil(domains);
        let gpu = |index| Gpu {
            index,
            vendor: "nvidia".to_owned(),
            numa: Some(index / per_domain),
            memory: Bytes::gib(141),
            ..Gpu::default()
        };
        let link = |g| Link {
            a: LinkEnd::Gpu(g),
            b: LinkEnd::Switch(0),
            kind: LinkKind::Nvlink,
            width: 18,
            peak: Some(Rate(478.1)),
        };
        Topology {
            numa: (0..domains).map(|id| NumaDomain { id, ..NumaDomain::default() }).collect(),
            gpus: (0..gpus).map(gpu).collect(),
            links: (0..gpus).map(link).collect(),
            ..Topology::default()
        }
    }

    fn preset(name: &str) -> Topology {
        MachineDesc::preset(name).unwrap().topology()
    }

    fn mixed(case: &Case) -> bool {
        case.timed.iter().any(is_peer) && !case.timed.iter().all(is_peer)
    }

    /// Sets of a suite by their number of copies: alone, start-up, pairs, groups.
    fn counts(topology: &Topology) -> [usize; 4] {
        let mut cases = contention(topology, RandomDraw::default());
        // A set that is measured again has the same copies in another order.
        let mut seen = BTreeSet::new();
        let all = cases.len();
        cases.retain(|case| {
            let mut flows = case.timed.clone();
            flows.sort_unstable();
            seen.insert(flows)
        });
        assert!(all - cases.len() <= AGAIN, "{all}");
        let count = |wanted: &dyn Fn(&Case) -> bool| cases.iter().filter(|c| wanted(c)).count();
        let tiny = |c: &Case| c.timed[0].bytes == TINY;
        [
            count(&|c| c.timed.len() == 1 && !tiny(c)),
            count(&|c| tiny(c)),
            count(&|c| c.timed.len() == 2),
            count(&|c| c.timed.len() > 2),
        ]
    }

    /// One domain, n GPUs: 2n paths of the host and n (n - 1) between GPUs, alone and as start-up;
    /// all pairs of host paths, n (n - 2) neighbours from one source and as many to one
    /// destination, n (n - 1) / 2 opposite ones, strangers, 4n of a host path and a peer.
    #[test]
    fn cases_on_nodes_of_every_size() {
        // Two GPUs: 6 pairs of 4 host paths, 1 opposite, 8 mixed. Groups: all 4 host paths, some of
        // the 4 sets of 3 of them; the ring with 2 in, with 2 out, with all 4.
        let [alone, tiny, pairs, groups] = counts(&behind_a_switch(2, 1));
        assert_eq!([alone, tiny, pairs], [6, 6, 6 + 1 + 8]);
        assert!((1 + 3..=1 + 4 + 3).contains(&groups), "{groups}");
        // Four: 28 host pairs; 8, 8 and 6 between GPUs; of strangers each 2 of 4 GPUs in 2 x 2
        // directions, 3 choices: 12; 16 mixed.
        let [alone, tiny, pairs, groups] = counts(&behind_a_switch(4, 1));
        assert_eq!([alone, tiny, pairs], [8 + 12, 8 + 12, 28 + 8 + 8 + 6 + 12 + 16]);
        // In, out and both each: all, 4 without one, whose 4 groups of 3 every random one repeats;
        // both directions also halves, which are 4 paths. Between GPUs: 4 to one, 4 from one, 3
        // shifts, 3 with the host. Of 10 mixtures some are empty or exist already.
        let sure = (1 + 4) * 3 + 2 + 4 + 4 + 3 + 3;
        assert!((sure + 3..=sure + GROUPS).contains(&groups), "{groups} of {sure}");
        // Eight: 120 host pairs; 48, 48, 28 and 24 between GPUs; 32 mixed.
        let [alone, tiny, pairs, groups] = counts(&behind_a_switch(8, 1));
        assert_eq!([alone, tiny, pairs], [72, 72, 120 + 48 + 48 + 28 + STRANGERS + 32]);
        // In and out: all, halves, 8 without one; both directions quarters as well. Between GPUs:
        // 8, 8, 7 shifts, 3 with the host, 2 halves.
        let sure = (1 + 2 + 8) * 3 + 4 + 8 + 8 + 7 + 3 + 2;
        assert!((sure + 3 * GROUPS..=sure + 4 * GROUPS).contains(&groups), "{groups} of {sure}");
        // Sixteen: every kind is at its limit.
        let [alone, tiny, pairs, _] = counts(&behind_a_switch(16, 1));
        assert_eq!([alone, tiny], [32 + 240, 2 * MOST_PAIRS]);
        assert_eq!(pairs, 16 + MOST_PAIRS + 3 * MOST_NEIGHBOURS + STRANGERS + 64);
    }

    /// Copies in one queue may end in another order, so none of these sets has two.
    #[test]
    fn twenty_sets_are_measured_again_at_the_end() {
        for gpus in [4, 8] {
            let cases = contention(&behind_a_switch(gpus, 1), RandomDraw::default());
            let (first, again) = cases.split_at(cases.len() - AGAIN);
            for case in again {
                let mut reversed = case.clone();
                reversed.timed.reverse();
                assert!(first.contains(&reversed), "{case}");
                let queues: BTreeSet<_> = case.timed.iter().map(queue).collect();
                assert_eq!(queues.len(), case.timed.len(), "{case}");
            }
        }
    }

    #[test]
    fn a_single_gpu_has_both_directions_and_no_gpu_has_no_case() {
        // In, out, their start-ups, both.
        assert_eq!(counts(&behind_a_switch(1, 1)), [2, 2, 1, 0]);
        assert!(contention(&Topology::default(), RandomDraw::default()).is_empty());
        assert!(concurrent(&Topology::default(), RandomDraw::default()).is_empty());
    }

    /// Two domains: each GPU's other one, in and out, alone and together with its own; and for each
    /// direction between the two domains, in and out: with a home path there, with a neighbour on
    /// the same path, and in both directions.
    #[test]
    fn memory_of_other_domains() {
        let [alone_near, _, pairs_near, _] = counts(&behind_a_switch(8, 1));
        let [alone, _, pairs, _] = counts(&behind_a_switch(8, 2));
        assert_eq!(alone, alone_near + 16);
        // 0 > 1 together with 1 > 0 is found from both sides.
        assert_eq!(pairs, pairs_near + 2 * (2 * 2 + 1) + 16);
    }

    #[test]
    fn every_case_parses_and_is_listed_once() {
        let topologies =
            [behind_a_switch(3, 1), behind_a_switch(16, 4), preset("mi250x"), preset("hgx-h200")];
        for topology in topologies {
            for cases in
                [contention, concurrent].map(|suite| suite(&topology, RandomDraw::default()))
            {
                let texts: BTreeSet<String> = cases.iter().map(Case::to_string).collect();
                assert_eq!(texts.len(), cases.len());
                for case in cases {
                    assert_eq!(case.to_string().parse::<Case>().unwrap(), case);
                    assert!(case.timed.iter().all(|f| f.misfit().is_none()), "{case}");
                }
            }
        }
    }

    /// 478 / 63 is 7.6, nearer to 8 than to 4; an engine of AMD is no faster than a host link.
    #[test]
    fn concurrent_copies_last_equally_long() {
        let bytes = |topology: &Topology| {
            let peers = EnginePaths::of(topology).flows.into_iter().filter(is_peer);
            peers.map(|f| f.bytes).collect::<BTreeSet<_>>()
        };
        assert_eq!(bytes(&behind_a_switch(4, 1)), BTreeSet::from([Bytes(HOST.0 * 8)]));
        assert_eq!(bytes(&preset("mi250x")), BTreeSet::from([HOST]));
    }

    /// On the MI250X node 0 > 2 goes over 0 > 6, 6 > 4 ... or others: for each link of a routed
    /// copy there is a pair with the direct copy over that link.
    #[test]
    fn routed_copies_are_paired_with_direct_ones_over_their_links() {
        let topology = preset("mi250x");
        let paths = EnginePaths::of(&topology);
        let pairs: BTreeSet<(usize, usize)> =
            over_one_link(&paths, &paths.which(is_peer)).into_iter().collect();
        let mut routed = 0;
        for (i, flow) in paths.flows.iter().enumerate().filter(|(_, f)| is_peer(f)) {
            let used = paths.routes.in_use(flow.src.unit.into(), flow.dst.unit.into()).unwrap();
            for hop in used.paths.iter().filter(|p| p.hops() > 1).flat_map(|p| p.nodes.windows(2)) {
                let &[LinkEnd::Gpu(a), LinkEnd::Gpu(b)] = hop else { panic!("{hop:?}") };
                let direct = paths.number(&paths.peer(a, b)).unwrap();
                assert!(pairs.contains(&(i.min(direct), i.max(direct))), "{flow} over {a}-{b}");
                routed += 1;
            }
        }
        // 56 ordered pairs, of which 24 are direct: the others pass two links or more.
        assert!(routed >= 2 * 32, "{routed}");
    }

    #[test]
    fn random_sets_come_from_their_seed() {
        let topology = behind_a_switch(8, 2);
        let of = |seed, sets| concurrent(&topology, RandomDraw { seed, sets });
        assert_eq!(of(7, 40), of(7, 40));
        assert_ne!(of(7, 40), of(8, 40));
        // A longer list starts with the same sets.
        assert_eq!(of(7, 40)[..], of(7, 60)[..40]);
        assert_eq!(of(7, 240).len(), 240);
    }

    #[test]
    fn random_sets_are_as_stated() {
        let cases = concurrent(&behind_a_switch(8, 1), RandomDraw::default());
        let waits = |case: &Case| {
            let mut queues = BTreeSet::new();
            !case.timed.iter().all(|f| queues.insert(queue(f)))
        };
        let host = |c: &Case| !c.timed.iter().any(is_peer);
        // Of 240: 80 of the host alone, 80 between GPUs, 80 that may have both, of which a few of
        // two or three copies are of one kind by chance.
        let with_both = cases.iter().filter(|c| mixed(c)).count();
        assert!((65..=80).contains(&with_both), "{with_both}");
        // One in four may have several in a queue. With one domain a GPU has one path in and one
        // out, so that sets of the host alone never do.
        let waiting: Vec<&Case> = cases.iter().filter(|c| waits(c)).collect();
        assert!((25..=40).contains(&waiting.len()), "{}", waiting.len());
        assert!(waiting.iter().all(|c| !host(c)));
        for case in &cases {
            assert!((COPIES.0..=COPIES.1).contains(&case.timed.len()), "{case}");
            let paths: BTreeSet<_> = case.timed.iter().map(|f| (f.src, f.dst)).collect();
            assert_eq!(paths.len(), case.timed.len(), "a path twice in {case}");
        }
        let sizes: BTreeSet<u64> = cases
            .iter()
            .filter(|c| host(c))
            .flat_map(|c| &c.timed)
            .map(|f| f.bytes.0 >> 20)
            .collect();
        assert_eq!(sizes, BTreeSet::from([32, 64, 128]));
    }

    /// Two GPUs have 6 paths: sets of 2 to 6 of them, of which 3 x 3 are between GPUs alone.
    #[test]
    fn small_nodes_have_small_sets() {
        let cases = concurrent(&behind_a_switch(2, 1), RandomDraw::default());
        assert!(cases.iter().all(|c| (2..=6).contains(&c.timed.len())));
        assert_eq!(cases.len(), 240);
        assert_eq!(cases.iter().filter(|c| c.timed.iter().all(is_peer)).count(), 9);
    }

    /// 8000 throws of ten faces: each 800 on average, with a standard deviation of 27.
    #[test]
    fn dice_are_fair() {
        let mut rng = PatternRandom::new(5);
        let mut faces = [0; 10];
        for _ in 0..8000 {
            faces[rng.below(10)] += 1;
        }
        assert!(faces.iter().all(|n| (680..=920).contains(n)), "{faces:?}");
        assert_eq!(rng.below(0), 0);
    }
}
