//! Which relays, chunks and agent make a copy fastest, and whether that is worth more than the plain copy.

use pathline_schema::{
    Bytes, CopyAgent, Flow, GpuSet, Mover, MultipathSpec, Ns, PathShares, Place, Rate, Unit,
};

use super::end_gpu;
use super::paths::{CandidatePath, LegCost, PathFinder, with_issuer};
use super::rates;
use crate::network::Network;
use crate::operation::NoPath;

/// Chunks that are tried, once the paths are chosen.
const CHUNKS: [Bytes; 5] =
    [Bytes::mib(1), Bytes::mib(2), Bytes::mib(4), Bytes::mib(8), Bytes::mib(16)];

/// Each path is to take its chunks this many times, so that slow and fast ones end at about the same time.
const TURNS: f64 = 8.0;

/// The least gain over the plain copy for which a plan leaves it: what was not modelled must not make it slower.
pub(crate) const LEAST_GAIN: f64 = 1.15;

/// Times within this factor are alike: predictions are not closer.
const ALIKE: f64 = 1.01;

/// The least gain in rate for which one more GPU is asked to help.
const LEAST_STEP: f64 = 1.05;

/// Share of the bound below which a smaller gain is enough.
const NEAR_BOUND: f64 = 0.97;

/// The least gain in rate of one more GPU below that share, in copies that take long.
const LEAST_STEP_BELOW: f64 = 1.015;

/// Time from which on a copy takes long, ns: starts and ends of paths were mispredicted by up to 95 us
/// (`mi250x`, 256 MiB), which is 2 % of it.
const LONG_COPY: f64 = 5e6;

/// Fixed shares do not follow the speed of paths as a queue does, so they are chosen only for this gain.
const SHARES_GAIN: f64 = 1.05;

/// The same in long copies below that share of the bound. Shares were predicted up to 3 % too fast there.
const SHARES_GAIN_BELOW: f64 = 1.025;

/// A copy kernel takes compute units from other work, so it is chosen only for this gain.
const KERNEL_GAIN: f64 = 1.1;

/// The most times that the rates of a set of paths are computed for one plan: all pairs of step and relay of
/// seven relays.
const MAX_PREDICTIONS: u32 = 28;

/// Where the bytes of a request go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanTarget {
    /// To the destination of the request only.
    One,
    /// To the destination and to the memory of these GPUs.
    All(GpuSet),
}

/// A copy to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanRequest {
    /// Memory that the bytes come from.
    pub src: Place,
    /// Memory that they go to; of several destinations the first.
    pub dst: Place,
    /// Payload.
    pub bytes: Bytes,
    /// Whether other GPUs are to have the same bytes.
    pub target: PlanTarget,
    /// GPUs that may relay.
    pub helpers: GpuSet,
}

impl PlanRequest {
    /// Between two places, over any of `helpers`.
    pub const fn between(src: Place, dst: Place, bytes: Bytes, helpers: GpuSet) -> Self {
        Self { src, dst, bytes, target: PlanTarget::One, helpers }
    }
    /// From one place to a GPU's memory and to that of further GPUs.
    pub const fn to_all(src: Place, dst: Place, bytes: Bytes, others: GpuSet) -> Self {
        Self { src, dst, bytes, target: PlanTarget::All(others), helpers: GpuSet::EMPTY }
    }
}

/// The plan of a copy and what it is expected to gain.
#[derive(Debug, Clone, PartialEq)]
pub struct MultipathPlan {
    /// The copy: over several paths, by a copy kernel, or the plain copy of the runtime. Of several destinations
    /// the plain copy is the first of as many.
    pub flow: Flow,
    /// Its predicted time.
    pub predicted: Ns,
    /// Predicted time of the runtime's plain copy; to several GPUs, of all copies at once.
    pub plain: Ns,
    /// The most that any split over all helpers could reach.
    pub bound: Rate,
    /// Plain time over predicted time; 1 where the plain copy is the plan.
    pub gain: f64,
    /// Rates of sets of paths that were computed.
    pub predictions: u32,
}

impl MultipathPlan {
    /// The planned copy with another payload: plans hold for sizes near that of their request.
    pub fn flow_of(&self, bytes: Bytes) -> Flow {
        Flow { bytes, ..self.flow }
    }
}

/// What knows the paths of a node: a network, or rates that were measured.
pub(crate) trait PathSource {
    /// Capacities of the resources that paths name, the last that of the thread that issues copies.
    fn capacities(&self) -> Vec<f64>;
    /// Agents that this node's runtime can be made to use, the one of plain copies first.
    fn agents(&self) -> &[CopyAgent];
    /// Straight from the source to the destination.
    fn direct(&self, agent: CopyAgent) -> Result<CandidatePath, NoPath>;
    /// Over one relay.
    fn over(&self, relay: u32, agent: CopyAgent) -> Result<CandidatePath, NoPath>;
    /// From the source into one member, and from there into the others.
    fn through_member(
        &self,
        owner: u32,
        members: &[u32],
        agent: CopyAgent,
    ) -> Result<CandidatePath, NoPath>;
}

/// Paths of a network.
struct NetworkPaths<'n> {
    finder: PathFinder<'n>,
    capacities: Vec<f64>,
    agents: &'static [CopyAgent],
}

impl PathSource for NetworkPaths<'_> {
    fn capacities(&self) -> Vec<f64> {
        self.capacities.clone()
    }
    fn agents(&self) -> &[CopyAgent] {
        self.agents
    }
    fn direct(&self, agent: CopyAgent) -> Result<CandidatePath, NoPath> {
        self.finder.direct(agent)
    }
    fn over(&self, relay: u32, agent: CopyAgent) -> Result<CandidatePath, NoPath> {
        self.finder.over(relay, agent)
    }
    fn through_member(
        &self,
        owner: u32,
        members: &[u32],
        agent: CopyAgent,
    ) -> Result<CandidatePath, NoPath> {
        self.finder.through_member(owner, members, agent)
    }
}

/// Plans a copy on a network.
///
/// Relays are added one by one, each time the one that adds most to the rate, until one more adds less than 5 %,
/// or 1.5 % in copies of 5 ms and more that are predicted below 0.97 of the bound. The plan is the plain copy unless it
/// is predicted to be [1.15 times](MultipathPlan::gain) as fast.
///
/// # Errors
/// The runtime's plain copy does not exist on this network, or its time is not known.
pub fn plan_paths(network: &Network, request: &PlanRequest) -> Result<MultipathPlan, NoPath> {
    let graph = &network.graph;
    let at = end_gpu(request.src, request.dst).and_then(Unit::gpu);
    let has_kernel = at.and_then(|g| graph.gpus.get(&g)).is_some_and(|gpu| gpu.caps.copy_kernel);
    let agents: &[CopyAgent] =
        if has_kernel { &[CopyAgent::Engine, CopyAgent::Kernel] } else { &[CopyAgent::Engine] };
    let finder = PathFinder::new(graph, request.src, request.dst);
    plan(&NetworkPaths { finder, capacities: with_issuer(graph.capacities()), agents }, request)
}

/// A choice of paths, and the time that they take together.
#[derive(Clone)]
struct PlannedSet<'p> {
    /// The direct path first.
    paths: Vec<&'p CandidatePath>,
    agent: CopyAgent,
    chunk: Bytes,
    shares: Option<PathShares>,
    time: f64,
}

/// All paths by one agent, the direct one first.
struct AgentPaths {
    agent: CopyAgent,
    all: Vec<CandidatePath>,
    /// Time of the copy over all of them.
    time: f64,
    /// The most that any split over them could reach, bytes/ns.
    bound: f64,
}

/// A plan under construction.
struct Planner<'a> {
    source: &'a dyn PathSource,
    request: &'a PlanRequest,
    at: Unit,
    capacities: Vec<f64>,
    predictions: u32,
}

/// Factor on the time of an agent where agents are compared.
fn margin(agent: CopyAgent) -> f64 {
    match agent {
        CopyAgent::Engine => 1.0,
        CopyAgent::Kernel => KERNEL_GAIN,
    }
}

/// Plans a copy over the paths of a source.
pub(crate) fn plan(
    source: &dyn PathSource,
    request: &PlanRequest,
) -> Result<MultipathPlan, NoPath> {
    let at = end_gpu(request.src, request.dst);
    let at = at.ok_or_else(|| NoPath("neither end is a GPU".into()))?;
    let capacities = source.capacities();
    let mut planner = Planner { source, request, at, capacities, predictions: 0 };
    match request.target {
        PlanTarget::One => planner.plan_relays(),
        PlanTarget::All(others) => planner.plan_members(others),
    }
}

impl PlannedSet<'_> {
    fn spec(&self) -> MultipathSpec {
        let gpus = self.paths.iter().filter_map(|path| path.via).collect();
        let Self { chunk, agent, shares, .. } = *self;
        MultipathSpec { gpus, chunk, agent, shares }
    }
}

/// Whole percent in proportion to rates, and the paths that have any; none for fewer than two paths or more than
/// can have shares. The direct path, which is first, has at least 1 %.
fn divide<'p>(
    paths: &[&'p CandidatePath],
    rates: &[f64],
) -> Option<(Vec<&'p CandidatePath>, PathShares)> {
    let total: f64 = rates.iter().sum();
    let percent = |rate: f64| (100.0 * rate / total).round() as u8;
    let kept = paths.iter().zip(rates).map(|(&path, &rate)| (path, percent(rate)));
    let mut kept: Vec<(&CandidatePath, u8)> =
        kept.filter(|(path, percent)| path.via.is_none() || *percent > 0).collect();
    // What rounding has added or left out is the largest share's.
    let (direct, _) = kept.split_first_mut()?;
    direct.1 = direct.1.max(1);
    let sum: i32 = kept.iter().map(|(_, percent)| i32::from(*percent)).sum();
    let largest = kept.iter_mut().max_by_key(|(_, percent)| *percent)?;
    largest.1 = u8::try_from(i32::from(largest.1) + 100 - sum).ok()?;
    let shares: Vec<u8> = kept.iter().map(|(_, percent)| *percent).collect();
    // Shares stand in ascending order of relays, as the paths do.
    kept.get(1..)?.is_sorted_by_key(|(path, _)| path.via).then_some(())?;
    Some((kept.iter().map(|(path, _)| *path).collect(), PathShares::new(&shares)?))
}

impl Planner<'_> {
    /// Time of these paths with this chunk, by a queue or by the best shares. Of these, relays without a share are
    /// left out.
    fn evaluate<'p>(
        &mut self,
        paths: &[&'p CandidatePath],
        agent: CopyAgent,
        chunk: Bytes,
    ) -> PlannedSet<'p> {
        let (queued, divided) = self.evaluate_both(paths, agent, chunk);
        divided.filter(|set| set.time * SHARES_GAIN < queued.time).unwrap_or(queued)
    }

    /// These paths with a queue, and with the best shares.
    fn evaluate_both<'p>(
        &mut self,
        paths: &[&'p CandidatePath],
        agent: CopyAgent,
        chunk: Bytes,
    ) -> (PlannedSet<'p>, Option<PlannedSet<'p>>) {
        self.predictions += 1;
        let sizes = (chunk, self.request.bytes);
        let time = rates::share(&self.capacities, paths, sizes, None).time;
        let queued = PlannedSet { paths: paths.to_vec(), agent, chunk, shares: None, time };
        let best = rates::best_rates(&self.capacities, paths, sizes);
        let divided = best.and_then(|rates| divide(paths, &rates)).map(|(kept, shares)| {
            let time = rates::share(&self.capacities, &kept, sizes, Some(shares)).time;
            PlannedSet { paths: kept, shares: Some(shares), time, ..queued.clone() }
        });
        (queued, divided)
    }

    /// The chunk c for which starts cost as much as waiting for the first two chunks: of a share s at rate r with
    /// starts of t for two chunks, s / 2 c x t = 2 c / r. At most a part of the share, so that slow and fast paths end
    /// together.
    fn usual_chunk(&self, paths: &[&CandidatePath]) -> Bytes {
        let share = self.request.bytes.as_f64() / paths.len().max(1) as f64;
        let calls: f64 = paths.iter().flat_map(|path| &path.legs).map(|leg| leg.calls).sum();
        let legs = paths.iter().filter(|path| path.via.is_some()).flat_map(|path| &path.legs);
        let start = |leg: &LegCost| leg.start + calls / 2.0;
        let balanced = legs.map(|leg| (share * start(leg) * leg.cap).sqrt() / 2.0);
        let balanced = balanced.fold(0.0, f64::max);
        let most = balanced.min(share / TURNS);
        let fitting = CHUNKS.iter().rev().find(|chunk| chunk.as_f64() <= most);
        fitting.copied().unwrap_or(CHUNKS[0])
    }

    fn plan_relays(&mut self) -> Result<MultipathPlan, NoPath> {
        let request = self.request;
        let plain = self.whole(&self.source.direct(CopyAgent::Engine)?);
        let ends = [request.src.unit.gpu(), request.dst.unit.gpu()].into_iter().flatten();
        let helpers = ends.fold(request.helpers, GpuSet::without);
        // The best single copy, and the agent by which all paths together are fastest, with their time.
        let mut single = (CopyAgent::Engine, plain);
        let mut candidate: Option<AgentPaths> = None;
        let mut bound: f64 = 0.0;
        for &agent in self.source.agents() {
            let Ok(direct) = self.source.direct(agent) else { continue };
            let alone = self.whole(&direct);
            if alone * margin(agent) < single.1 {
                single = (agent, alone);
            }
            let relays = helpers.iter().filter_map(|relay| self.source.over(relay, agent).ok());
            let all: Vec<CandidatePath> = std::iter::once(direct).chain(relays).collect();
            let paths: Vec<&CandidatePath> = all.iter().collect();
            let of_agent = rates::bound(&self.capacities, &paths).unwrap_or(0.0);
            bound = bound.max(of_agent);
            if all.len() < 2 {
                continue;
            }
            let time = self.evaluate(&paths, agent, self.usual_chunk(&paths)).time;
            let compared = time * margin(agent);
            if candidate.as_ref().is_none_or(|known| compared < known.time * margin(known.agent)) {
                candidate = Some(AgentPaths { agent, all, time, bound: of_agent });
            }
        }
        let (by, alone) = single;
        let at = self.at;
        let mut plan = match by {
            CopyAgent::Engine => (Mover::Dma { at }, alone),
            CopyAgent::Kernel => (Mover::Blit { at }, alone),
        };
        if let Some(candidate) = &candidate {
            let set = self.grow(candidate);
            let is_relayed = set.paths.len() > 1;
            if is_relayed && set.time * LEAST_STEP * margin(set.agent) < alone * margin(by) {
                plan = (Mover::Relay { at, paths: set.spec() }, set.time);
            }
        }
        Ok(self.conclude(plan.0, plan.1, plain, bound))
    }

    /// Time of the whole payload as one copy.
    fn whole(&self, path: &CandidatePath) -> f64 {
        let bytes = self.request.bytes.as_f64();
        path.legs.iter().map(|leg| leg.time(&self.capacities, bytes)).sum()
    }

    /// Adds relays to the direct path, the first of all, while one more is worth it; then chooses the chunk.
    fn grow<'p>(&mut self, candidate: &'p AgentPaths) -> PlannedSet<'p> {
        let AgentPaths { agent, ref all, bound, .. } = *candidate;
        let near_bound = self.request.bytes.as_f64() / (NEAR_BOUND * bound);
        let together: Vec<&CandidatePath> = all.iter().collect();
        let (together, divided) = self.evaluate_both(&together, agent, self.usual_chunk(&together));
        let mut paths = all.iter();
        let direct: Vec<&CandidatePath> = paths.next().into_iter().collect();
        let time = direct.iter().map(|direct| self.whole(direct)).sum();
        let mut best = PlannedSet { paths: direct, agent, chunk: CHUNKS[0], shares: None, time };
        // What each relay added when it was last tried: about the most that it adds to a larger set.
        let mut open: Vec<(f64, &CandidatePath)> =
            paths.map(|relay| (f64::INFINITY, relay)).collect();
        while self.predictions + (CHUNKS.len() as u32) < MAX_PREDICTIONS {
            let most = open.iter().enumerate().max_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let Some((at, &(_, relay))) = most else { break };
            open.swap_remove(at);
            let mut tried: Vec<&CandidatePath> =
                best.paths.iter().copied().chain([relay]).collect();
            tried.sort_by_key(|path| path.via);
            let with = self.evaluate(&tried, agent, self.usual_chunk(&tried));
            let added = 1.0 / with.time - 1.0 / best.time;
            let next = open.iter().map(|(added, _)| *added).fold(0.0, f64::max);
            let small_gain_counts = best.time > near_bound.max(LONG_COPY);
            let least = if small_gain_counts { LEAST_STEP_BELOW } else { LEAST_STEP };
            // One that adds too little stays out for good.
            if best.time < with.time * least {
                continue;
            }
            if added >= next * (1.0 - 1e-9) {
                best = with;
            } else {
                open.push((added, relay));
            }
        }
        // Relays that help only together were not found one by one.
        if together.time * LEAST_STEP < best.time {
            best = together;
        }
        // The direct path of some pairs takes links that a relay would use better, and with a queue it takes as much of
        // them as others do.
        if let Some(divided) = divided {
            let small_gain_counts = best.time > near_bound.max(LONG_COPY);
            let least = if small_gain_counts { SHARES_GAIN_BELOW } else { SHARES_GAIN };
            if divided.time * least < best.time {
                best = divided;
            }
        }
        self.with_best_chunk(best)
    }

    /// The same paths with the chunk by which they take least time; of several chunks that take as long, the middle one. The
    /// smallest leaves the host no time for other work, and the largest no time for paths to end together.
    fn with_best_chunk<'p>(&mut self, set: PlannedSet<'p>) -> PlannedSet<'p> {
        let bytes = self.request.bytes;
        let count = set.paths.len() as u64;
        let fits = |chunk: &&Bytes| chunk.0 * count <= bytes.0.max(CHUNKS[0].0);
        let mut tried = Vec::new();
        for &chunk in CHUNKS.iter().filter(fits) {
            self.predictions += 1;
            let sizes = (chunk, bytes);
            tried.push((chunk, rates::share(&self.capacities, &set.paths, sizes, set.shares).time));
        }
        let least = tried.iter().map(|&(_, time)| time).fold(f64::INFINITY, f64::min);
        tried.retain(|&(_, time)| time <= least * ALIKE);
        match tried.get(tried.len() / 2) {
            Some(&(chunk, time)) => PlannedSet { chunk, time, ..set },
            None => set,
        }
    }

    fn plan_members(&mut self, others: GpuSet) -> Result<MultipathPlan, NoPath> {
        let request = self.request;
        let first = self.at.gpu().filter(|_| request.dst.unit == self.at);
        let first = first.ok_or_else(|| NoPath("the destination is no GPU".into()))?;
        let mut others = others.without(first);
        if let Some(source) = request.src.unit.gpu() {
            others = others.without(source);
        }
        let members: Vec<u32> = others.with(first).iter().collect();
        let plain = self.all_at_once(&members)?;
        let at = self.at;
        let mut plan = (Mover::Dma { at }, plain);
        let mut bound: f64 = 0.0;
        let agents = if others.is_empty() { &[] } else { self.source.agents() };
        for &agent in agents {
            let owned = |&owner: &u32| self.source.through_member(owner, &members, agent);
            let Ok(paths) = members.iter().map(owned).collect::<Result<Vec<_>, _>>() else {
                continue;
            };
            let paths: Vec<&CandidatePath> = paths.iter().collect();
            bound = bound.max(rates::bound(&self.capacities, &paths).unwrap_or(0.0));
            let set =
                PlannedSet { paths, agent, chunk: CHUNKS[0], shares: None, time: f64::INFINITY };
            let set = self.with_best_chunk(set);
            if set.time * margin(agent) < plan.1 {
                let paths = MultipathSpec { gpus: others, ..set.spec() };
                plan = (Mover::CopyToAll { at, paths }, set.time);
            }
        }
        Ok(self.conclude(plan.0, plan.1, plain, bound))
    }

    /// Time until every member has copied the whole payload from the source, all at once.
    fn all_at_once(&mut self, members: &[u32]) -> Result<f64, NoPath> {
        let mut alone = Vec::new();
        for &member in members {
            // A member that has no one to share with copies all.
            alone.push(self.source.through_member(member, &[member], CopyAgent::Engine)?);
        }
        let paths: Vec<&CandidatePath> = alone.iter().collect();
        self.predictions += 1;
        let bytes = self.request.bytes;
        let rates = rates::share(&self.capacities, &paths, (bytes, bytes), None).rates;
        let starts = alone.iter().flat_map(|path| &path.legs).map(|leg| leg.start);
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(starts.fold(0.0, f64::max) + self.request.bytes.as_f64() / slowest)
    }

    fn conclude(&self, mover: Mover, time: f64, plain: f64, bound: f64) -> MultipathPlan {
        let PlanRequest { src, dst, bytes, .. } = *self.request;
        let worth = plain / time >= LEAST_GAIN;
        let (by, time) = if worth { (mover, time) } else { (Mover::Dma { at: self.at }, plain) };
        MultipathPlan {
            flow: Flow { src, dst, by, bytes },
            predicted: Ns(time),
            plain: Ns(plain),
            bound: Rate(bound),
            gain: if worth { plain / time } else { 1.0 },
            predictions: self.predictions,
        }
    }
}
