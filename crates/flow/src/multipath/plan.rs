//! Which relays, chunks and agent make a copy fastest, and whether that is worth more than the plain copy.

use pathline_schema::{
    Bytes, CopyAgent, Flow, GpuSet, Mover, MultipathSpec, Ns, Place, Rate, Unit,
};

use super::end_gpu;
use super::paths::{CandidatePath, PathFinder};
use super::rates::{self, PathRates};
use crate::network::Network;
use crate::operation::NoPath;

/// Chunks that are tried, once the paths are chosen.
const CHUNKS: [Bytes; 5] =
    [Bytes::mib(1), Bytes::mib(2), Bytes::mib(4), Bytes::mib(8), Bytes::mib(16)];

/// Each path is to take its chunks this many times, so that slow and fast ones end at about the same time.
const TURNS: f64 = 8.0;

/// The least gain over the plain copy for which a plan leaves it: what was not modelled must not make it slower.
pub(crate) const LEAST_GAIN: f64 = 1.15;

/// The least gain in rate for which one more GPU is asked to help.
const LEAST_STEP: f64 = 1.05;

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
    /// Capacities of the resources that paths name.
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
/// Relays are added one by one, each time the one that adds most to the rate, until one more adds less than 5 %.
/// The plan is the plain copy unless it is predicted to be [1.15 times](MultipathPlan::gain) as fast.
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
    plan(&NetworkPaths { finder, capacities: graph.capacities(), agents }, request)
}

/// Paths with the time that they take together.
#[derive(Clone)]
struct PlannedSet {
    gpus: GpuSet,
    agent: CopyAgent,
    chunk: Bytes,
    time: f64,
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

impl Planner<'_> {
    fn rates(&mut self, paths: &[&CandidatePath], chunk: Bytes) -> PathRates {
        self.predictions += 1;
        rates::share(&self.capacities, paths, chunk, self.request.bytes)
    }

    /// The chunk c for which starts cost as much as waiting for the first chunk: of a share s at rate r with starts
    /// of t, s / c x t = c / r. At most a part of the share, so that slow and fast paths end together.
    fn usual_chunk(&self, paths: &[&CandidatePath]) -> Bytes {
        let share = self.request.bytes.as_f64() / paths.len().max(1) as f64;
        let legs = paths.iter().filter(|path| path.via.is_some()).flat_map(|path| &path.legs);
        let balanced = legs.map(|leg| (share * leg.start * leg.cap).sqrt()).fold(0.0, f64::max);
        let most = balanced.min(share / TURNS);
        let fitting = CHUNKS.iter().rev().find(|chunk| chunk.as_f64() <= most);
        fitting.copied().unwrap_or(CHUNKS[0])
    }

    fn plan_relays(&mut self) -> Result<MultipathPlan, NoPath> {
        let request = self.request;
        let plain = self.whole(&self.source.direct(CopyAgent::Engine)?);
        let single = |agent, time| PlannedSet { gpus: GpuSet::EMPTY, agent, chunk: Bytes(0), time };
        let ends = [request.src.unit.gpu(), request.dst.unit.gpu()].into_iter().flatten();
        let helpers = ends.fold(request.helpers, GpuSet::without);
        let mut best = single(CopyAgent::Engine, plain);
        // The agent that all paths together are fastest by, with its paths and their time.
        let mut candidate: Option<(CopyAgent, Vec<CandidatePath>, f64)> = None;
        let mut bound: f64 = 0.0;
        for &agent in self.source.agents() {
            let Ok(direct) = self.source.direct(agent) else { continue };
            let alone = self.whole(&direct);
            if alone * margin(agent) < best.time {
                best = single(agent, alone);
            }
            let relays = helpers.iter().filter_map(|relay| self.source.over(relay, agent).ok());
            let all: Vec<CandidatePath> = std::iter::once(direct).chain(relays).collect();
            let paths: Vec<&CandidatePath> = all.iter().collect();
            bound = bound.max(rates::bound(&self.capacities, &paths).unwrap_or(0.0));
            if all.len() < 2 {
                continue;
            }
            let time = self.rates(&paths, self.usual_chunk(&paths)).time;
            let known = candidate.as_ref();
            if known.is_none_or(|(other, _, least)| time * margin(agent) < least * margin(*other)) {
                candidate = Some((agent, all, time));
            }
        }
        if let Some((agent, all, time)) = candidate {
            let set = self.grow(&all, agent, time);
            if set.time * LEAST_STEP * margin(agent) < best.time * margin(best.agent) {
                best = set;
            }
        }
        let mover = if best.gpus.is_empty() {
            match best.agent {
                CopyAgent::Engine => Mover::Dma { at: self.at },
                CopyAgent::Kernel => Mover::Blit { at: self.at },
            }
        } else {
            let paths = MultipathSpec {
                gpus: best.gpus,
                chunk: best.chunk,
                agent: best.agent,
                shares: None,
            };
            Mover::Relay { at: self.at, paths }
        };
        Ok(self.conclude(mover, best.time, plain, bound))
    }

    /// Time of the whole payload as one copy.
    fn whole(&self, path: &CandidatePath) -> f64 {
        let bytes = self.request.bytes.as_f64();
        path.legs.iter().map(|leg| leg.time(&self.capacities, bytes)).sum()
    }

    /// Adds relays to the direct path, the first of `all`, while one more is worth it; then chooses the chunk.
    /// `time` is that of all paths together.
    fn grow(&mut self, all: &[CandidatePath], agent: CopyAgent, time: f64) -> PlannedSet {
        let bytes = self.request.bytes.as_f64();
        let mut paths = all.iter();
        let mut chosen: Vec<&CandidatePath> = paths.next().into_iter().collect();
        let mut rate = chosen.iter().map(|direct| bytes / self.whole(direct)).sum::<f64>();
        // What each relay added when it was last tried: about the most that it adds to a larger set.
        let mut open: Vec<(f64, &CandidatePath)> =
            paths.map(|relay| (f64::INFINITY, relay)).collect();
        while self.predictions + (CHUNKS.len() as u32) < MAX_PREDICTIONS {
            let most = open.iter().enumerate().max_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let Some((at, &(_, relay))) = most else { break };
            open.swap_remove(at);
            chosen.push(relay);
            let with = bytes / self.rates(&chosen, self.usual_chunk(&chosen)).time;
            let added = with - rate;
            let next = open.iter().map(|(added, _)| *added).fold(0.0, f64::max);
            if added >= rate * (LEAST_STEP - 1.0) && added >= next * (1.0 - 1e-9) {
                rate = with;
                continue;
            }
            chosen.pop();
            // One that adds too little stays out for good.
            if added >= rate * (LEAST_STEP - 1.0) {
                open.push((added, relay));
            }
        }
        // Relays that help only together were not found one by one.
        if time * LEAST_STEP < bytes / rate {
            chosen = all.iter().collect();
        }
        let (chunk, time) = self.best_chunk(&chosen);
        PlannedSet { gpus: chosen.iter().filter_map(|path| path.via).collect(), agent, chunk, time }
    }

    /// The chunk with which these paths take least time.
    fn best_chunk(&mut self, paths: &[&CandidatePath]) -> (Bytes, f64) {
        let bytes = self.request.bytes;
        let fits = |chunk: &&Bytes| chunk.0 * paths.len() as u64 <= bytes.0.max(CHUNKS[0].0);
        let mut best = (CHUNKS[0], f64::INFINITY);
        for &chunk in CHUNKS.iter().filter(fits) {
            let time = self.rates(paths, chunk).time;
            if time < best.1 {
                best = (chunk, time);
            }
        }
        best
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
        let (mut best, mut bound): (Option<PlannedSet>, f64) = (None, 0.0);
        let agents = if others.is_empty() { &[] } else { self.source.agents() };
        for &agent in agents {
            let owned = |&owner: &u32| self.source.through_member(owner, &members, agent);
            let Ok(paths) = members.iter().map(owned).collect::<Result<Vec<_>, _>>() else {
                continue;
            };
            let paths: Vec<&CandidatePath> = paths.iter().collect();
            bound = bound.max(rates::bound(&self.capacities, &paths).unwrap_or(0.0));
            let (chunk, time) = self.best_chunk(&paths);
            let least = best.as_ref().map(|best| best.time * margin(best.agent));
            if least.is_none_or(|least| time * margin(agent) < least) {
                best = Some(PlannedSet { gpus: others, agent, chunk, time });
            }
        }
        let plan = best.filter(|set| set.time * LEAST_GAIN <= plain);
        let (mover, time) = match plan {
            Some(PlannedSet { gpus, agent, chunk, time }) => {
                let paths = MultipathSpec { gpus, chunk, agent, shares: None };
                (Mover::CopyToAll { at: self.at, paths }, time)
            }
            None => (Mover::Dma { at: self.at }, plain),
        };
        Ok(self.conclude(mover, time, plain, bound))
    }

    /// Time until every member has copied the whole payload by itself, all at once.
    fn all_at_once(&mut self, members: &[u32]) -> Result<f64, NoPath> {
        let mut alone = Vec::new();
        for &member in members {
            // A member that has no one to share with copies all.
            alone.push(self.source.through_member(member, &[member], CopyAgent::Engine)?);
        }
        let paths: Vec<&CandidatePath> = alone.iter().collect();
        let rates = self.rates(&paths, self.request.bytes).rates;
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
