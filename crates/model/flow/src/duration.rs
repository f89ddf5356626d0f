//! How long a set of flows takes that start together, and how well that is known.

use std::collections::HashMap;
use std::rc::Rc;

use pathline_schema::{Case, Flow, Ns, Rate};
use pathline_stats::{ascending, nearest_rank};

use crate::flow_path::build_path;
use crate::measured::RateInterval;
use crate::network::Network;
use crate::operation::{KernelTurn, NoPath, ResourceUse};
use crate::solve::{ConcurrentRun, FlowDemand, FlowSet, Limiter, RateDemand, Stretch};

/// The most orders of queues that are tried.
const MAX_ORDERS: u64 = 64;
/// Stands for "not numbered".
const NOWHERE: u32 = u32::MAX;
/// Operations that are kept between predictions.
const KEPT: usize = 1 << 14;

/// A time and the interval that it is expected within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeRange {
    /// The prediction; the median over the orders, if engines may serve in any; of an even number
    /// the lower.
    pub typical: Ns,
    /// The shortest that is expected.
    pub low: Ns,
    /// The longest.
    pub high: Ns,
}

/// Orders in which engines may serve the flows of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOrders {
    /// Number of possible orders; saturates.
    pub possible: u64,
    /// Number of orders tried: only that of the case, unless engines may serve in any.
    pub tried: u64,
}

/// Sources of intervals. Without any, a time has no interval and its accuracy is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeUncertainty {
    /// Orders of queues.
    pub orders: EngineOrders,
    /// Whether capacities have intervals.
    pub capacities: bool,
    /// 95th percentile of the description's error on the sets that it was made from, as a share.
    pub error: Option<f64>,
    /// Factors by which the time may be shorter and longer, since constants of a description are known so
    /// well by their origins; `None` if that was not asked for, or the description states no origins.
    pub constants: Option<(f64, f64)>,
}

impl TimeUncertainty {
    /// Whether anything widens an interval.
    pub fn any(&self) -> bool {
        self.orders.tried > 1 || self.capacities || self.error.is_some() || self.constants.is_some()
    }
}

/// The predicted time of one timed flow of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowDuration {
    /// Its rate alone.
    pub alone: Rate,
    /// From the common start to its end.
    pub time: TimeRange,
    /// Its bytes over that time.
    pub rate: Rate,
    /// Its bottleneck for most of its time, with engines serving in the order of the case.
    pub bound_by: String,
}

/// The predicted time of a set of flows that start together.
#[derive(Debug, Clone, PartialEq)]
pub struct SetDurations {
    /// The timed flows, in the order of the case.
    pub flows: Vec<FlowDuration>,
    /// From the start to the last end of a timed flow.
    pub set: TimeRange,
    /// The sources of the intervals.
    pub uncertainty: TimeUncertainty,
}

/// An end of the intervals of capacities.
#[derive(Debug, Clone, Copy)]
enum CapacityEnd {
    Low,
    Taken,
    High,
}

impl CapacityEnd {
    fn pick(self, known: &RateInterval) -> f64 {
        match self {
            Self::Low => known.low.0,
            Self::Taken => known.rate.0,
            Self::High => known.high.0,
        }
    }
}

/// The part of an operation that a prediction needs.
#[derive(Debug)]
struct FlowNeeds {
    uses: Vec<ResourceUse>,
    cap: RateInterval,
    share: f64,
    start: f64,
    queue: Option<u32>,
    turn: Option<KernelTurn>,
    limit: String,
}

/// A flow of the set that is at hand.
#[derive(Debug)]
struct TimedFlow {
    leg: Rc<FlowNeeds>,
    /// Its part of `SetPredictor::uses`.
    uses: std::ops::Range<usize>,
    bytes: f64,
    /// The flow whose kernel fills the GPU that this one's kernel needs, and was started before.
    after: Option<usize>,
    /// Factor on its time where its blocks start as those of that kernel end.
    slower: f64,
}

/// Predicts sets of flows; keeps what it worked out for later ones.
#[derive(Debug)]
pub struct SetPredictor<'n> {
    network: &'n Network,
    any_order: bool,
    kept: HashMap<Flow, Rc<FlowNeeds>>,
    run: ConcurrentRun,
    /// Timed flows first.
    entrants: Vec<TimedFlow>,
    timed: usize,
    /// Uses by numbers of `resources`.
    uses: Vec<ResourceUse>,
    /// Numbers in the network of the resources that can saturate.
    resources: Vec<u32>,
    /// The inverse of `resources` while a case is taken up; [`NOWHERE`] for others.
    numbered: Vec<u32>,
    /// Use of each resource by the flows of the set, each alone.
    wanted: Vec<f64>,
    capacities: Vec<f64>,
    /// Flows of each queue in which the set has any.
    queues: Vec<(u32, Vec<usize>)>,
    lines: Vec<Vec<usize>>,
    ends: Vec<f64>,
}

impl Network {
    /// How long the flows of `case` take that start together, and how well that is known.
    ///
    /// Flows that are timed do each of their bytes once; of a sample of several repetitions this is
    /// the time for one. Background flows run throughout, and where they share a queue with timed
    /// flows they are served last. The cadence does not matter: what the host adds between isolated
    /// operations is not the flow's. A GPU that starts kernels in order starts them in that of the case, those
    /// of background flows last. Engines that serve one stream at a time serve in the order of
    /// the case, as the engine of this program lets flows go; for others see
    /// [`SetPredictor::any_order`].
    ///
    /// # Errors
    /// As [`Self::operation`] for any flow of the case, and for flows that move no bytes.
    pub fn durations(&self, case: &Case) -> Result<SetDurations, NoPath> {
        SetPredictor::new(self).durations(case)
    }
}

impl<'n> SetPredictor<'n> {
    /// On a network.
    pub fn new(network: &'n Network) -> Self {
        Self {
            network,
            any_order: false,
            kept: HashMap::new(),
            run: ConcurrentRun::default(),
            entrants: Vec::new(),
            timed: 0,
            uses: Vec::new(),
            resources: Vec::new(),
            numbered: vec![NOWHERE; network.resources().len()],
            wanted: Vec::new(),
            capacities: Vec::new(),
            queues: Vec::new(),
            lines: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The same, where engines may serve flows in any order: those of a program that has them all
    /// ready at one instant, and does not let them go one after the other.
    pub fn any_order(self) -> Self {
        Self { any_order: true, ..self }
    }

    /// When each timed flow of `case` ends, in ns, if engines serve in the order of the case.
    ///
    /// # Errors
    /// As [`Network::durations`].
    pub fn ends(&mut self, case: &Case) -> Result<&[f64], NoPath> {
        self.enter(case)?;
        self.line_up(0, 1);
        self.run_at(CapacityEnd::Taken);
        Ok(self.ends.get(..self.timed).unwrap_or(&[]))
    }

    /// When each timed flow of `case` ends, in ns, for each order in which engines may serve, up to
    /// 64 of them.
    ///
    /// # Errors
    /// As [`Network::durations`].
    pub fn each_order(
        &mut self,
        case: &Case,
        mut visit: impl FnMut(&[f64]),
    ) -> Result<EngineOrders, NoPath> {
        self.enter(case)?;
        let orders = self.orders(true);
        for nth in 0..orders.tried {
            self.line_up(nth, orders.possible);
            self.run_at(CapacityEnd::Taken);
            visit(self.ends.get(..self.timed).unwrap_or(&[]));
        }
        Ok(orders)
    }

    /// As [`Network::durations`].
    ///
    /// # Errors
    /// As [`Network::durations`].
    pub fn durations(&mut self, case: &Case) -> Result<SetDurations, NoPath> {
        self.enter(case)?;
        let measured = self.network.measured();
        let uncertainty = TimeUncertainty {
            orders: self.orders(self.any_order),
            capacities: self.has_intervals(),
            error: measured.error.map(|(_, most)| most).filter(|&e| e > 0.0),
            constants: None,
        };
        // Of each flow, and last of the set: its times over the orders, and the ends of them all.
        let mut times = vec![Vec::new(); self.timed + 1];
        let mut range = vec![(f64::INFINITY, 0.0f64); self.timed + 1];
        let levels: &[CapacityEnd] = if uncertainty.capacities {
            &[CapacityEnd::Taken, CapacityEnd::Low, CapacityEnd::High]
        } else {
            &[CapacityEnd::Taken]
        };
        for nth in 0..uncertainty.orders.tried {
            self.line_up(nth, uncertainty.orders.possible);
            for &level in levels {
                self.run_at(level);
                let flows = self.ends.get(..self.timed).unwrap_or(&[]);
                let last = flows.iter().copied().fold(0.0, f64::max);
                let ends = flows.iter().copied().chain([last]);
                for ((end, times), (low, high)) in ends.zip(&mut times).zip(&mut range) {
                    if matches!(level, CapacityEnd::Taken) {
                        times.push(end);
                    }
                    (*low, *high) = (low.min(end), high.max(end));
                }
            }
        }
        let wider = 1.0 + uncertainty.error.unwrap_or(0.0);
        // The time of some order: the mean of two orders' times is the time of none.
        let typical = |times| nearest_rank(&ascending(times), 0.5).unwrap_or(0.0);
        let mut spans = times.into_iter().zip(&range).map(|(times, &(low, high))| TimeRange {
            typical: Ns(typical(times)),
            low: Ns(low / wider),
            high: Ns(high * wider),
        });
        let bounds = self.bounds();
        let spans: Vec<TimeRange> = spans.by_ref().collect();
        let flow =
            |((entrant, &time), bound_by): ((&TimedFlow, &TimeRange), String)| FlowDuration {
                alone: self.alone(entrant),
                time,
                rate: Rate(entrant.bytes / time.typical.0),
                bound_by,
            };
        let flows = self.entrants.iter().take(self.timed).zip(&spans).zip(bounds).map(flow);
        let flows: Vec<FlowDuration> = flows.collect();
        let set = spans.last().copied().unwrap_or(TimeRange {
            typical: Ns(0.0),
            low: Ns(0.0),
            high: Ns(0.0),
        });
        Ok(SetDurations { flows, set, uncertainty })
    }

    /// Takes up the flows of a case.
    fn enter(&mut self, case: &Case) -> Result<(), NoPath> {
        self.entrants.clear();
        self.queues.clear();
        self.timed = case.timed.len();
        for (i, flow) in case.flows().enumerate() {
            let leg = self.leg(flow)?;
            let bytes = if i < self.timed { flow.bytes.as_f64() } else { f64::INFINITY };
            if let Some(queue) = leg.queue {
                match self.queues.iter_mut().find(|(q, _)| *q == queue) {
                    Some((_, flows)) => flows.push(i),
                    None => self.queues.push((queue, vec![i])),
                }
            }
            let (after, slower) = self.kernel_before(leg.turn);
            self.entrants.push(TimedFlow { leg, uses: 0..0, bytes, after, slower });
        }
        self.number();
        Ok(())
    }

    /// The last timed flow whose kernel leaves no room for one with this turn, and the factor on its time
    /// behind it.
    fn kernel_before(&self, turn: Option<KernelTurn>) -> (Option<usize>, f64) {
        let Some(turn) = turn else { return (None, 1.0) };
        let earlier = self.entrants.iter().take(self.timed).enumerate().rev();
        let mut filled = earlier.filter_map(|(i, e)| e.leg.turn.map(|before| (i, before)));
        match filled.find(|(_, before)| before.fills && before.gpu == turn.gpu) {
            Some((i, before)) if before.takes_all_slots() => (Some(i), turn.packed),
            Some((i, _)) => (Some(i), 1.0),
            None => (None, 1.0),
        }
    }

    /// Numbers the resources that can be full while the flows run. A resource that could carry all
    /// of them, each as fast as it is alone, holds nobody: of the resources of a described node that
    /// is most, and what is left is what costs time.
    fn number(&mut self) {
        let Self { network, entrants, uses, resources, numbered, wanted, .. } = self;
        resources.clear();
        wanted.clear();
        for entrant in entrants.iter() {
            for u in &entrant.leg.uses {
                let Some(number) = numbered.get_mut(u.resource as usize) else { continue };
                if *number == NOWHERE {
                    *number = resources.len() as u32;
                    resources.push(u.resource);
                    wanted.push(0.0);
                }
                if let Some(wanted) = wanted.get_mut(*number as usize) {
                    *wanted += u.weight * entrant.leg.cap.high.0;
                }
            }
        }
        let mut wanted = wanted.iter();
        let mut kept = 0;
        resources.retain(|&r| {
            let capacity = match network.graph.known(r) {
                Some(known) => Some(known.low.0),
                None => network.resources().get(r as usize).map(|r| r.capacity.0),
            };
            let full = wanted.next().zip(capacity).is_some_and(|(wanted, c)| *wanted > c);
            if let Some(number) = numbered.get_mut(r as usize) {
                *number = if full { kept } else { NOWHERE };
            }
            kept += u32::from(full);
            full
        });
        uses.clear();
        for entrant in entrants.iter_mut() {
            let first = uses.len();
            let number = |u: &ResourceUse| {
                let resource = *numbered.get(u.resource as usize)?;
                (resource != NOWHERE).then_some(ResourceUse { resource, weight: u.weight })
            };
            uses.extend(entrant.leg.uses.iter().filter_map(number));
            entrant.uses = first..uses.len();
        }
        for &r in resources.iter() {
            if let Some(number) = numbered.get_mut(r as usize) {
                *number = NOWHERE;
            }
        }
    }

    fn leg(&mut self, flow: &Flow) -> Result<Rc<FlowNeeds>, NoPath> {
        if let Some(leg) = self.kept.get(flow) {
            return Ok(Rc::clone(leg));
        }
        if !flow.by.has_rate() {
            return Err(NoPath(format!(
                "{} has a fixed time and no rate, so it shares nothing; expected flows with a rate",
                flow.by
            )));
        }
        let built = build_path(&self.network.graph, flow)?;
        let op = built.operation;
        let path = self.network.graph.book.find(flow).map(|(path, ..)| path.known);
        // The next copy of pageable memory is called only when the one before has ended.
        let call = if op.blocking { op.call.0 } else { 0.0 };
        let leg = Rc::new(FlowNeeds {
            cap: path.unwrap_or(RateInterval { rate: op.cap, low: op.cap, high: op.cap }),
            share: op.share,
            start: op.alpha.0 + call,
            queue: op.queue,
            turn: op.turn,
            uses: op.uses,
            limit: built.limit,
        });
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(*flow, Rc::clone(&leg));
        Ok(leg)
    }

    /// The number of orders of the queues. Background flows are last in their queues.
    fn orders(&self, any: bool) -> EngineOrders {
        let permutations = |(_, flows): &(u32, Vec<usize>)| {
            let timed = flows.iter().filter(|&&i| i < self.timed).count() as u64;
            (1..=timed).fold(1u64, u64::saturating_mul)
        };
        let possible = self.queues.iter().map(permutations).fold(1, u64::saturating_mul);
        EngineOrders { possible, tried: if any { possible.min(MAX_ORDERS) } else { 1 } }
    }

    /// Puts the flows of the queues in the `nth` order; the first is that of the case. All orders
    /// follow each other if there are few, else they are drawn, the same ones each time.
    fn line_up(&mut self, nth: u64, possible: u64) {
        let drawn = possible > MAX_ORDERS && nth > 0;
        let mut random = SplitMix(nth);
        let mut rest = nth;
        self.lines.resize(self.queues.len(), Vec::new());
        for (line, (_, flows)) in self.lines.iter_mut().zip(&self.queues) {
            line.clear();
            line.extend(flows);
            let timed = flows.iter().filter(|&&i| i < self.timed).count();
            // Digits of base 1, 2, 3, ...: each order once, 0 keeps the given order.
            for at in 1..timed {
                let choices = at as u64 + 1;
                let back = if drawn { random.below(choices) } else { rest % choices };
                rest /= choices;
                line.swap(at, at - back as usize);
            }
        }
    }

    fn run_at(&mut self, level: CapacityEnd) {
        self.observe(level, |_| ());
    }

    /// Runs the set that is at hand, its queues as they are lined up.
    fn observe(&mut self, level: CapacityEnd, show: impl FnMut(&Stretch<'_>)) {
        let Self { network, entrants, uses, resources, capacities, lines, run, ends, .. } = self;
        capacities.clear();
        let capacity = |&r: &u32| match network.graph.known(r) {
            Some(known) => level.pick(known),
            None => network.resources().get(r as usize).map_or(f64::INFINITY, |r| r.capacity.0),
        };
        capacities.extend(resources.iter().map(capacity));
        let mut flows = Vec::with_capacity(entrants.len());
        for entrant in entrants.iter() {
            let rate = RateDemand {
                uses: uses.get(entrant.uses.clone()).unwrap_or(&[]),
                cap: level.pick(&entrant.leg.cap) / entrant.slower,
                share: entrant.leg.share,
            };
            let alone = FlowDemand::new(rate, entrant.bytes);
            let after = entrant.after.as_slice();
            flows.push(FlowDemand { start: entrant.leg.start, after, ..alone });
        }
        run.observe(&FlowSet { capacities, flows: &flows, queues: lines }, ends, show);
    }

    fn has_intervals(&self) -> bool {
        let wide = |known: &RateInterval| known.low < known.high;
        self.entrants.iter().any(|e| wide(&e.leg.cap))
            || self.resources.iter().filter_map(|&r| self.network.graph.known(r)).any(wide)
    }

    /// The bottleneck of each timed flow for most of its time, in the order of the case.
    fn bounds(&mut self) -> Vec<String> {
        let mut held: Vec<Vec<(Limiter, f64)>> = vec![Vec::new(); self.entrants.len()];
        self.line_up(0, 1);
        self.observe(CapacityEnd::Taken, |stretch| {
            stretch.limiters(|i, limiter| {
                let Some(held) = held.get_mut(i) else { return };
                match held.iter_mut().find(|(l, _)| *l == limiter) {
                    Some((_, sum)) => *sum += stretch.duration,
                    None => held.push((limiter, stretch.duration)),
                }
            });
        });
        let longest =
            |held: &Vec<(Limiter, f64)>| held.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let named = |(entrant, held): (&TimedFlow, &Vec<(Limiter, f64)>)| match longest(held) {
            None | Some((Limiter::Cap, _)) => entrant.leg.limit.clone(),
            Some((Limiter::Dependency, _)) => "waiting for the kernel before it".into(),
            Some((Limiter::Start, _)) => "its start".into(),
            Some((Limiter::Queue, _)) => {
                let queue = entrant.leg.queue.and_then(|q| self.network.queues().get(q as usize));
                format!("waiting for {}", queue.map_or("its queue", String::as_str))
            }
            Some((Limiter::Resource(r), _)) => {
                let resource = self.resources.get(r as usize);
                let resource = resource.and_then(|&r| self.network.resources().get(r as usize));
                resource.map_or_else(String::new, |r| r.name.clone())
            }
        };
        self.entrants.iter().zip(&held).take(self.timed).map(named).collect()
    }

    fn alone(&self, entrant: &TimedFlow) -> Rate {
        let leg = &entrant.leg;
        let limit = |u: &ResourceUse| {
            let same = leg.uses.iter().filter(|v| v.resource == u.resource);
            let weight: f64 = same.map(|v| v.weight).sum();
            let resource = self.network.resources().get(u.resource as usize);
            resource.map_or(f64::INFINITY, |r| r.capacity.0 / weight)
        };
        Rate(leg.uses.iter().map(limit).fold(leg.cap.rate.0, f64::min))
    }
}

/// SplitMix64 (Steele, Lea, Flood, 2014): enough for drawing orders, and the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}
