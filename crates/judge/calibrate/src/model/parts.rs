//! Ends of the flows of a set, part by part: flows that share neither a resource nor a queue do not
//! change each other's ends.

use pathline_flow::{ConcurrentRun, FlowDemand, FlowSet, ResourceUse};

use super::{FittedModel, ModelFlow, SAME, demand};

/// Most flows of a set that is divided.
const MAX_FLOWS: usize = 64;
/// Parts, and whole sets, that are remembered for each set.
const MAX_KNOWN: usize = 8;
/// A resource whose highest load is this much below its capacity limits no flow: 100 times what the
/// solver takes for equal.
pub(crate) const SLACK: f64 = 1.0 + 1e-9;

/// A resource of a set or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LoadedResource {
    /// Its number in the model.
    number: usize,
    /// Changes with its use by any path.
    version: u64,
    capacity: f64,
    /// The highest load, or a bound of it.
    load: f64,
}

impl LoadedResource {
    /// Whether results with `self` hold with `now`, too: the capacity of a resource that was never full
    /// does not matter, as long as it stays above the load.
    fn holds(&self, now: &Self) -> bool {
        let same = self.number == now.number && self.version == now.version;
        same && (self.capacity == now.capacity
            || self.capacity.min(now.capacity) > self.load * SLACK)
    }
}

fn all_hold(known: &[LoadedResource], now: &[LoadedResource]) -> bool {
    known.len() == now.len() && known.iter().zip(now).all(|(known, now)| known.holds(now))
}

/// When the flows of a set or of a part of it end.
#[derive(Debug)]
struct KnownEnds {
    /// The flows, as bits; all for a set.
    flows: u64,
    /// Version of the weights of paths.
    shares: u64,
    resources: Vec<LoadedResource>,
    /// In the order of the flows.
    ends: Vec<f64>,
}

/// The results of a set, of which new ones replace the oldest.
#[derive(Debug, Default)]
struct KnownList {
    known: Vec<KnownEnds>,
    oldest: usize,
}

impl KnownList {
    fn find(&self, flows: u64, shares: u64, now: &[LoadedResource]) -> Option<&KnownEnds> {
        self.known.iter().rev().find(|known| {
            known.flows == flows && known.shares == shares && all_hold(&known.resources, now)
        })
    }
    fn keep(&mut self, flows: u64, shares: u64, resources: &[LoadedResource], ends: &[f64]) {
        if self.known.len() < MAX_KNOWN {
            let (resources, ends) = (resources.to_vec(), ends.to_vec());
            self.known.push(KnownEnds { flows, shares, resources, ends });
        } else if let Some(place) = self.known.get_mut(self.oldest) {
            (place.flows, place.shares) = (flows, shares);
            place.resources.clear();
            place.resources.extend_from_slice(resources);
            place.ends.clear();
            place.ends.extend_from_slice(ends);
            self.oldest = (self.oldest + 1) % MAX_KNOWN;
        }
    }
}

/// What is known of a set.
#[derive(Debug, Default)]
struct SetMemory {
    sets: KnownList,
    parts: KnownList,
    /// Flows that wait for each other, in turn order.
    queues: Vec<Vec<usize>>,
}

/// A set of which only the capacity of one resource changes: the part that uses it, and the ends of all
/// other flows.
#[derive(Debug)]
pub(crate) struct PreparedSet {
    /// The load that the flows of the set could make on the resource together, GB/s.
    bound: f64,
    /// Flows of the part.
    mine: Vec<usize>,
    /// Place of the resource among those of the part.
    at: usize,
    capacities: Vec<f64>,
    uses: Vec<ResourceUse>,
    first_use: Vec<usize>,
    queues: Vec<Vec<usize>>,
    /// In the order of the set; those of the part are of no meaning.
    ends: Vec<f64>,
}

impl PreparedSet {
    /// Whether the flows of the set can fill the resource. Only then are the parts the ones that were
    /// prepared.
    pub(crate) fn can_fill(&self, capacity: f64) -> bool {
        self.bound > capacity * (1.0 + SAME)
    }
}

/// Ends of the flows of numbered sets; remembers results of each. Rates, starts and queues of the model,
/// and the sets, must be the same in every call: weights and shared resources may change.
#[derive(Debug, Default)]
pub(crate) struct PartRunner {
    run: ConcurrentRun,
    memory: Vec<Option<SetMemory>>,
    /// Use by each path, version and capacity of each resource that was loaded last.
    takes: Vec<(Vec<f64>, u64)>,
    capacities: Vec<f64>,
    shares: (Vec<f64>, u64),
    versions: u64,
    /// Resources that each path uses: those of path `p` are `of_path[p]`.
    of_path: Vec<Vec<(usize, f64)>>,
    /// Place of each resource of the model in `resources`; `usize::MAX` if it is in none.
    place: Vec<usize>,
    /// Resources of the set, with the load that its flows could make together.
    resources: Vec<LoadedResource>,
    /// The first flow of the part of each flow.
    first: Vec<usize>,
    /// A flow that uses each resource; `usize::MAX` if none was seen yet.
    users: Vec<usize>,
    /// Of a part: its resources, their use by its flows, and its queues.
    of_part: Vec<LoadedResource>,
    uses: Vec<ResourceUse>,
    first_use: Vec<usize>,
    queues: Vec<Vec<usize>>,
    part_capacities: Vec<f64>,
    loads: Vec<f64>,
    found: Vec<f64>,
}

impl PartRunner {
    /// Takes the resources and weights of a model, for calls of [`ends`](Self::ends).
    pub(crate) fn load(&mut self, model: &FittedModel) {
        let mut changed = self.of_path.len() != model.caps.len();
        for (k, shared) in model.shared.iter().enumerate() {
            match self.takes.get_mut(k) {
                Some((takes, _)) if *takes == shared.takes => {}
                Some(known) => {
                    self.versions += 1;
                    *known = (shared.takes.clone(), self.versions);
                    changed = true;
                }
                None => {
                    self.versions += 1;
                    self.takes.push((shared.takes.clone(), self.versions));
                    changed = true;
                }
            }
        }
        changed |= self.capacities.len() != model.shared.len();
        self.capacities.clear();
        self.capacities.extend(model.shared.iter().map(|shared| shared.capacity));
        if self.shares.0 != model.shares {
            self.versions += 1;
            self.shares = (model.shares.clone(), self.versions);
        }
        if changed {
            self.place.clear();
            self.place.resize(model.shared.len(), usize::MAX);
            self.of_path.iter_mut().for_each(Vec::clear);
            self.of_path.resize_with(model.caps.len(), Vec::new);
            for (k, shared) in model.shared.iter().enumerate() {
                for path in shared.members() {
                    self.of_path[path].push((k, shared.takes[path]));
                }
            }
        }
    }

    /// The end of each flow of set `nth` on the loaded model in ns, in its order; infinite for background
    /// flows.
    pub(crate) fn ends(
        &mut self,
        model: &FittedModel,
        nth: usize,
        set: &[ModelFlow],
        ends: &mut Vec<f64>,
    ) {
        let mut memory = self.take_memory(model, nth, set);
        self.gather(model, set);
        ends.clear();
        if let Some(known) = memory.sets.find(u64::MAX, self.shares.1, &self.resources) {
            ends.extend_from_slice(&known.ends);
            self.resources.clone_from(&known.resources);
        } else {
            ends.resize(set.len(), f64::INFINITY);
            self.divide(set, &memory.queues);
            for part in 0..set.len() {
                if self.first[part] == part {
                    self.part(model, &mut memory, set, part, ends);
                }
            }
            memory.sets.keep(u64::MAX, self.shares.1, &self.resources, ends);
        }
        self.memory[nth] = Some(memory);
    }

    /// Prepares set `nth` on the loaded model for calls of [`ends_at`](Self::ends_at), which change the
    /// capacity of resource `at` only. `None` if no flow of the set uses it.
    pub(crate) fn prepare(
        &mut self,
        model: &FittedModel,
        nth: usize,
        set: &[ModelFlow],
        at: usize,
    ) -> Option<PreparedSet> {
        let mut memory = self.take_memory(model, nth, set);
        self.gather(model, set);
        let users = |flow: &ModelFlow| self.of_path[flow.path].iter().any(|&(k, _)| k == at);
        let prepared = set.iter().position(users).map(|user| {
            let place = self.place[at];
            // Any load fills it, so that it joins its flows.
            self.resources[place].capacity = 0.0;
            self.divide(set, &memory.queues);
            let mut ends = vec![f64::INFINITY; set.len()];
            let mine = self.first[user];
            for part in 0..set.len() {
                if self.first[part] == part && part != mine {
                    self.part(model, &mut memory, set, part, &mut ends);
                }
            }
            self.collect(set, mine, &memory.queues);
            let flows = self.first.iter().enumerate().filter(|(_, first)| **first == mine);
            PreparedSet {
                bound: self.resources[place].load,
                mine: flows.map(|(i, _)| i).collect(),
                at: self.of_part.iter().position(|of| of.number == at).unwrap_or(usize::MAX),
                capacities: self.of_part.iter().map(|of| of.capacity).collect(),
                uses: self.uses.clone(),
                first_use: self.first_use.clone(),
                queues: self.queues.clone(),
                ends,
            }
        });
        self.memory[nth] = Some(memory);
        prepared
    }

    /// The end of each flow of a prepared set, as of [`ends`](Self::ends), with the resource at `capacity`,
    /// which the set [can fill](PreparedSet::can_fill). Gives the highest load on it, GB/s.
    pub(crate) fn ends_at(
        &mut self,
        model: &FittedModel,
        set: &[ModelFlow],
        prepared: &mut PreparedSet,
        capacity: f64,
        ends: &mut Vec<f64>,
    ) -> f64 {
        let PreparedSet { mine, at, capacities, uses, first_use, queues, ends: others, .. } =
            prepared;
        if let Some(place) = capacities.get_mut(*at) {
            *place = capacity;
        }
        let of_flow = first_use.windows(2).map(|range| &uses[range[0]..range[1]]);
        let demands: Vec<FlowDemand<'_>> =
            mine.iter().zip(of_flow).map(|(&i, uses)| demand(model, &set[i], uses)).collect();
        let resource = *at as u32;
        let mut highest: f64 = 0.0;
        let part_set = FlowSet { capacities, flows: &demands, queues };
        self.run.observe(&part_set, &mut self.found, |stretch| {
            let used = stretch.moving().flat_map(|(i, rate)| {
                let uses = demands[i].rate.uses.iter().filter(|u| u.resource == resource);
                uses.map(move |u| rate * u.weight)
            });
            highest = highest.max(used.sum());
        });
        ends.clear();
        ends.extend_from_slice(others);
        mine.iter().zip(&self.found).for_each(|(&i, end)| ends[i] = *end);
        highest
    }

    fn take_memory(&mut self, model: &FittedModel, nth: usize, set: &[ModelFlow]) -> SetMemory {
        if self.memory.len() <= nth {
            self.memory.resize_with(nth + 1, || None);
        }
        self.memory[nth].take().unwrap_or_else(|| SetMemory::of(model, set))
    }

    /// Whether some part of set `nth` has paths of `class` and others.
    pub(crate) fn mixes(
        &mut self,
        model: &FittedModel,
        nth: usize,
        set: &[ModelFlow],
        class: &[bool],
    ) -> bool {
        let memory = self.take_memory(model, nth, set);
        self.gather(model, set);
        self.divide(set, &memory.queues);
        self.memory[nth] = Some(memory);
        // A part's first flow has its number.
        let of = |i: usize| set.get(i).and_then(|flow| class.get(flow.path));
        self.first.iter().enumerate().any(|(i, &first)| of(i) != of(first))
    }

    /// The highest load that the set of the last call of [`ends`](Self::ends) made on a resource, or a bound of it; 0 if none of its
    /// flows uses it. GB/s.
    pub(crate) fn load_on(&self, resource: usize) -> f64 {
        let place = self.place.get(resource).and_then(|&place| self.resources.get(place));
        place.map_or(0.0, |loaded| loaded.load)
    }

    /// Collects the resources that flows of a set use, and the load that these could make together.
    fn gather(&mut self, model: &FittedModel, set: &[ModelFlow]) {
        let Self { place, resources, of_path, takes, capacities, .. } = self;
        // Those of the set before.
        for resource in resources.drain(..) {
            if let Some(place) = place.get_mut(resource.number) {
                *place = usize::MAX;
            }
        }
        for flow in set {
            for &(number, weight) in &of_path[flow.path] {
                if place[number] == usize::MAX {
                    place[number] = resources.len();
                    let (version, capacity) = (takes[number].1, capacities[number]);
                    resources.push(LoadedResource { number, version, capacity, load: 0.0 });
                }
                resources[place[number]].load += weight * model.caps[flow.path];
            }
        }
    }

    /// Whether the flows of the set can fill a resource.
    fn is_fillable(resource: &LoadedResource) -> bool {
        resource.load > resource.capacity * (1.0 + SAME)
    }

    /// Finds the parts of a set.
    fn divide(&mut self, set: &[ModelFlow], queues: &[Vec<usize>]) {
        let Self { first, users, place, resources, of_path, .. } = self;
        first.clear();
        if set.len() > MAX_FLOWS {
            first.resize(set.len(), 0);
            return;
        }
        first.extend(0..set.len());
        let mut join = |a: usize, b: usize| {
            let (low, high) = (first[a].min(first[b]), first[a].max(first[b]));
            if low != high {
                first.iter_mut().filter(|part| **part == high).for_each(|part| *part = low);
            }
        };
        users.clear();
        users.resize(resources.len(), usize::MAX);
        for (i, flow) in set.iter().enumerate() {
            for &(number, _) in &of_path[flow.path] {
                let at = place[number];
                if !Self::is_fillable(&resources[at]) {
                    continue;
                }
                if users[at] == usize::MAX {
                    users[at] = i;
                } else {
                    join(users[at], i);
                }
            }
        }
        for queue in queues {
            queue.windows(2).for_each(|pair| join(pair[0], pair[1]));
        }
    }

    /// Finds the ends of one part, and the highest loads of its resources.
    fn part(
        &mut self,
        model: &FittedModel,
        memory: &mut SetMemory,
        set: &[ModelFlow],
        part: usize,
        ends: &mut [f64],
    ) {
        self.collect(set, part, &memory.queues);
        let Self { run, first, shares, of_part, uses, first_use, queues, place, .. } = self;
        let Self { part_capacities, loads, found, .. } = self;
        let mine = first.iter().enumerate().filter(|(_, first)| **first == part).map(|(i, _)| i);
        let flows = mine.clone().take_while(|&i| i < MAX_FLOWS).fold(0, |bits, i| bits | 1 << i);
        part_capacities.clear();
        part_capacities.extend(of_part.iter().map(|resource| resource.capacity));
        if mine.clone().count() == 1 {
            // Its load is the bound.
            ends[part] = end_alone(&demand(model, &set[part], uses), part_capacities);
            return;
        }
        if let Some(known) = memory.parts.find(flows, shares.1, of_part) {
            mine.zip(&known.ends).for_each(|(i, end)| ends[i] = *end);
            for resource in &known.resources {
                self.resources[place[resource.number]].load = resource.load;
            }
            return;
        }
        let of_flow = first_use.windows(2).map(|at| &uses[at[0]..at[1]]);
        let demands: Vec<FlowDemand<'_>> =
            mine.clone().zip(of_flow).map(|(i, uses)| demand(model, &set[i], uses)).collect();
        of_part.iter_mut().for_each(|resource| resource.load = 0.0);
        loads.resize(of_part.len(), 0.0);
        let part_set = FlowSet { capacities: part_capacities, flows: &demands, queues };
        run.observe(&part_set, found, |stretch| {
            loads.fill(0.0);
            for (i, rate) in stretch.moving() {
                for u in demands[i].rate.uses {
                    loads[u.resource as usize] += rate * u.weight;
                }
            }
            for (resource, load) in of_part.iter_mut().zip(loads.iter()) {
                resource.load = resource.load.max(*load);
            }
        });
        mine.zip(found.iter()).for_each(|(i, end)| ends[i] = *end);
        for resource in of_part.iter() {
            self.resources[place[resource.number]].load = resource.load;
        }
        memory.parts.keep(flows, shares.1, of_part, found);
    }

    /// Collects the resources that the set can fill and a part uses, their use by its flows, and its
    /// queues.
    fn collect(&mut self, set: &[ModelFlow], part: usize, all: &[Vec<usize>]) {
        let Self { first, users, place, resources, of_path, of_part, uses, first_use, .. } = self;
        of_part.clear();
        uses.clear();
        first_use.clear();
        first_use.push(0);
        // From here on the place of each resource in the part.
        users.clear();
        users.resize(resources.len(), usize::MAX);
        for (_, flow) in set.iter().enumerate().filter(|(i, _)| first[*i] == part) {
            for &(number, weight) in &of_path[flow.path] {
                let resource = resources[place[number]];
                if !Self::is_fillable(&resource) {
                    continue;
                }
                let local = &mut users[place[number]];
                if *local == usize::MAX {
                    *local = of_part.len();
                    of_part.push(resource);
                }
                uses.push(ResourceUse { resource: *local as u32, weight });
            }
            first_use.push(uses.len());
        }
        let place = |i: usize| first[..i].iter().filter(|&&first| first == part).count();
        let queues = &mut self.queues;
        queues.iter_mut().for_each(Vec::clear);
        let mine = all.iter().filter(|q| q.first().is_some_and(|&i| first[i] == part));
        for (nth, queue) in mine.enumerate() {
            if queues.len() <= nth {
                queues.push(Vec::new());
            }
            queues[nth].extend(queue.iter().map(|&i| place(i)));
        }
    }
}

impl SetMemory {
    /// Nothing but the queues of a set.
    fn of(model: &FittedModel, set: &[ModelFlow]) -> Self {
        let mut queues: Vec<Vec<usize>> = Vec::new();
        for (i, flow) in set.iter().enumerate() {
            let Some(queue) = model.queues[flow.path] else { continue };
            if queues.len() <= queue {
                queues.resize(queue + 1, Vec::new());
            }
            queues[queue].push(i);
        }
        queues.retain(|queue| queue.len() > 1);
        queues.iter_mut().for_each(|queue| queue.sort_by_key(|&i| (set[i].turn, i)));
        Self { queues, ..Self::default() }
    }
}

/// When a flow ends that shares nothing.
fn end_alone(flow: &FlowDemand<'_>, capacities: &[f64]) -> f64 {
    if flow.bytes.is_infinite() {
        return f64::INFINITY;
    }
    let rate = flow.rate.alone(capacities);
    let one = |now: f64| {
        let begun = now + flow.start;
        if flow.bytes > 0.0 { begun + flow.bytes / rate } else { begun }
    };
    (0..flow.reps.max(1)).fold(0.0, |now, _| one(now)) + flow.tail
}

#[cfg(test)]
mod tests {
    use super::super::{FittedResource, SetRunner, SetTimeline};
    use super::*;

    /// Numbers from 0 to 1 (splitmix64).
    struct Draws(u64);

    impl Draws {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) as f64 / u64::MAX as f64
        }
        fn between(&mut self, low: f64, high: f64) -> f64 {
            low + self.next() * (high - low)
        }
        fn below(&mut self, n: usize) -> usize {
            ((self.next() * n as f64) as usize).min(n - 1)
        }
    }

    #[track_caller]
    fn same_ends(found: &[f64], expected: &[f64], at: (usize, usize)) {
        for (part, whole) in found.iter().zip(expected) {
            let same = part == whole || (part / whole - 1.0).abs() < 1e-9;
            assert!(same, "node and step {at:?}: {found:?} is not {expected:?}");
        }
    }

    /// 2000 nodes with up to 4 resources, 2 queues and 8 flows, and for each a sweep over a capacity and
    /// a weight, as a fit makes it. The ends are those of the whole set, but for the rounding at events of
    /// other parts.
    #[test]
    fn parts_end_as_in_the_whole() {
        const PATHS: usize = 6;
        let mut draws = Draws(0);
        for node in 0..2000 {
            let each = |draws: &mut Draws, low, high| -> Vec<f64> {
                (0..PATHS).map(|_| draws.between(low, high)).collect()
            };
            let mut model = FittedModel {
                caps: each(&mut draws, 10.0, 60.0),
                starts: each(&mut draws, -9e3, 9e3).iter().map(|s| s.max(0.0)).collect(),
                shares: each(&mut draws, 0.5, 1.5),
                queues: (0..PATHS).map(|_| Some(draws.below(4)).filter(|q| *q < 2)).collect(),
                shared: Vec::new(),
            };
            for _ in 0..draws.below(5) {
                let takes = (0..PATHS).map(|_| [0.0, 0.0, 1.0, 1.3][draws.below(4)]).collect();
                let capacity = draws.between(20.0, 120.0);
                model.shared.push(FittedResource { capacity, takes });
            }
            let set: Vec<ModelFlow> = (0..1 + draws.below(8))
                .map(|_| ModelFlow {
                    path: draws.below(PATHS),
                    bytes: draws.between(1e6, 9e6),
                    reps: 1 + draws.below(3) as u64,
                    background: draws.below(10) == 0,
                    turn: draws.below(9) as u32,
                })
                .collect();
            let mut parts = PartRunner::default();
            let (mut timeline, mut ends) = (SetTimeline::default(), Vec::new());
            for step in 0..8 {
                let value = draws.between(20.0, 150.0);
                match model.shared.first_mut() {
                    Some(shared) if step % 3 < 2 => shared.capacity = value,
                    _ => model.shares[0] = value / 100.0,
                }
                parts.load(&model);
                parts.ends(&model, 3, &set, &mut ends);
                SetRunner::default().run(&model, &set, &mut timeline);
                same_ends(&ends, &timeline.ends, (node, step));
                // The same with the capacity of one resource changed after the preparation.
                let Some(at) = model.shared.len().checked_sub(1) else { continue };
                let Some(mut prepared) = parts.prepare(&model, 3, &set, at) else { continue };
                for capacity in [20.0, 45.0, 90.0] {
                    model.shared[at].capacity = capacity;
                    if prepared.can_fill(capacity) {
                        parts.ends_at(&model, &set, &mut prepared, capacity, &mut ends);
                        SetRunner::default().run(&model, &set, &mut timeline);
                        same_ends(&ends, &timeline.ends, (node, step));
                    }
                }
            }
        }
    }
}
