//! A set of flows that is known beforehand: when does each end?

use super::limiter::{Limiter, limiter};
use super::max_min::RateDemand;
use super::shared::SharedFlows;

/// One flow of a set.
#[derive(Debug, Clone, Copy)]
pub struct FlowDemand<'a> {
    /// Its resource use while its bytes move.
    pub rate: RateDemand<'a>,
    /// Time before the first byte of each repetition, in ns. The first begins when the flow has its
    /// turn in its queue and the flows that it comes after have ended.
    pub start: f64,
    /// Payload of one repetition. Infinite for a flow that runs throughout.
    pub bytes: f64,
    /// Repetitions, one after the other; 0 counts as 1.
    pub reps: u64,
    /// Time from the last byte of the last repetition to the flow's end, in ns. Its queue serves
    /// the next flow meanwhile.
    pub tail: f64,
    /// Flows that end before it starts.
    pub after: &'a [usize],
}

impl<'a> FlowDemand<'a> {
    /// `bytes` moved once and at once.
    pub const fn new(rate: RateDemand<'a>, bytes: f64) -> Self {
        Self { rate, start: 0.0, bytes, reps: 1, tail: 0.0, after: &[] }
    }
}

/// Flows and what they share.
#[derive(Debug, Clone, Copy)]
pub struct FlowSet<'a> {
    /// Of each resource, in GB/s.
    pub capacities: &'a [f64],
    /// The flows, by number.
    pub flows: &'a [FlowDemand<'a>],
    /// Each lists flows that an engine serves one at a time, in this order; a flow is in no more
    /// than one. Flows in none run at once.
    pub queues: &'a [Vec<usize>],
}

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits for its turn or for flows that it comes after.
    Waiting,
    Starting,
    Moving,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct FlowState {
    phase: Phase,
    /// Repetitions after this one.
    more: u64,
    /// Flows that it comes after and that have not ended.
    unmet: usize,
    /// The latest end among its ended predecessors, ns.
    ready: f64,
    queue: Option<usize>,
}

/// Moves the bytes of a set of flows by weighted max-min fair rates, from one event to the next, and
/// keeps its buffers between calls.
///
/// A flow first waits for its turn in its queue and for the flows that it comes after, then for its
/// start, then its bytes move. Whenever bytes begin or end to move, all rates are shared out again.
#[derive(Debug, Default)]
pub struct ConcurrentRun {
    shared: SharedFlows,
    states: Vec<FlowState>,
    /// Flows whose bytes move, in the order in which they began.
    moving: Vec<usize>,
    /// Flows whose start runs, and when it is over.
    starting: Vec<(f64, usize)>,
    ended: Vec<usize>,
    /// Number of finished flows of each queue.
    served: Vec<usize>,
    /// Flows that come after each flow: those of flow `i` are
    /// `dependents[first_dependent[i]..first_dependent[i + 1]]`. Empty if there are none at all.
    dependents: Vec<usize>,
    first_dependent: Vec<usize>,
}

/// Events that differ by less than this share of the time are one.
const SAME: f64 = 1e-12;

impl ConcurrentRun {
    /// When each flow ends, in ns from the common start; infinite for one that never does.
    pub fn ends(&mut self, set: &FlowSet<'_>, ends: &mut Vec<f64>) {
        self.observe(set, ends, |_| ());
    }

    /// The same, and shows each stretch of time in which no rate changes.
    pub fn observe(
        &mut self,
        set: &FlowSet<'_>,
        ends: &mut Vec<f64>,
        mut show: impl FnMut(&Stretch<'_>),
    ) {
        let mut open = self.prepare(set, ends);
        let mut now = 0.0;
        while open > 0 {
            self.begin(now, set);
            let demand = |i: usize| set.flows[i].rate;
            self.shared.share(now, set.capacities, &self.moving, demand, |_, _| ());
            let next = self.next_event().max(now);
            // The remaining flows cannot move.
            if !next.is_finite() {
                return;
            }
            show(&Stretch { run: self, set, duration: next - now });
            open -= self.advance(next, set, ends);
            now = next;
        }
    }

    /// All flows at their beginning: how many of them have an end.
    fn prepare(&mut self, set: &FlowSet<'_>, ends: &mut Vec<f64>) -> usize {
        let count = set.flows.len();
        ends.clear();
        ends.resize(count, f64::INFINITY);
        self.shared.reset(count);
        self.states.clear();
        self.states.extend(set.flows.iter().map(|flow| FlowState {
            phase: Phase::Waiting,
            more: flow.reps.saturating_sub(1),
            unmet: flow.after.iter().filter(|&&before| before < count).count(),
            ready: 0.0,
            queue: None,
        }));
        for (nth, queue) in set.queues.iter().enumerate() {
            for &i in queue {
                if let Some(state) = self.states.get_mut(i) {
                    state.queue = Some(nth);
                }
            }
        }
        self.served.clear();
        self.served.resize(set.queues.len(), 0);
        self.link(set);
        self.moving.clear();
        self.starting.clear();
        (0..count).for_each(|i| self.try_start(i, 0.0, set));
        set.flows.iter().filter(|flow| flow.bytes.is_finite()).count()
    }

    /// Lists the flows that come after each flow.
    fn link(&mut self, set: &FlowSet<'_>) {
        let Self { dependents, first_dependent, .. } = self;
        dependents.clear();
        first_dependent.clear();
        if set.flows.iter().all(|flow| flow.after.is_empty()) {
            return;
        }
        let count = set.flows.len();
        let edges = || {
            let flows = set.flows.iter().enumerate();
            let edges = flows.flat_map(|(i, flow)| flow.after.iter().map(move |&b| (b, i)));
            edges.filter(|&(before, _)| before < count)
        };
        // Counted one place too far, so that filling moves each first place to its own.
        first_dependent.resize(count + 2, 0);
        edges().for_each(|(before, _)| first_dependent[before + 2] += 1);
        (2..count + 2).for_each(|i| first_dependent[i] += first_dependent[i - 1]);
        dependents.resize(first_dependent[count + 1], 0);
        for (before, i) in edges() {
            dependents[first_dependent[before + 1]] = i;
            first_dependent[before + 1] += 1;
        }
    }

    /// Starts a flow that waits for nothing any more.
    fn try_start(&mut self, i: usize, now: f64, set: &FlowSet<'_>) {
        let Some(state) = self.states.get_mut(i) else { return };
        let turn = state.queue.is_none_or(|q| set.queues[q].get(self.served[q]) == Some(&i));
        if state.phase == Phase::Waiting && state.unmet == 0 && turn {
            state.phase = Phase::Starting;
            self.starting.push((state.ready.max(now) + set.flows[i].start, i));
        }
    }

    /// Flows whose start is over move.
    fn begin(&mut self, now: f64, set: &FlowSet<'_>) {
        let Self { starting, moving, states, shared, .. } = self;
        let near = now * (1.0 + SAME);
        starting.retain(|&(at, i)| {
            if at <= near {
                shared.begin(i, now, set.flows[i].bytes);
                states[i].phase = Phase::Moving;
                moving.push(i);
            }
            at > near
        });
    }

    /// The next end or beginning; infinite if there is none.
    fn next_event(&self) -> f64 {
        let ends = self.moving.iter().map(|&i| self.shared.end(i));
        let starts = self.starting.iter().map(|&(at, _)| at);
        ends.chain(starts).fold(f64::INFINITY, f64::min)
    }

    /// Moves all bytes up to `next`: how many flows ended.
    fn advance(&mut self, next: f64, set: &FlowSet<'_>, ends: &mut [f64]) -> usize {
        let Self { shared, moving, ended, .. } = self;
        let near = next * (1.0 + SAME);
        ended.clear();
        moving.retain(|&i| {
            let over = shared.end(i) <= near;
            if over {
                ended.push(i);
            } else {
                shared.settle(i, next);
            }
            !over
        });
        (0..self.ended.len()).filter(|&k| self.finish(self.ended[k], next, set, ends)).count()
    }

    /// A repetition has moved its last byte. Whether it was the flow's last.
    fn finish(&mut self, i: usize, now: f64, set: &FlowSet<'_>, ends: &mut [f64]) -> bool {
        let (state, flow) = (&mut self.states[i], &set.flows[i]);
        if state.more > 0 {
            state.more -= 1;
            state.phase = Phase::Starting;
            self.starting.push((now + flow.start, i));
            return false;
        }
        state.phase = Phase::Done;
        let end = now + flow.tail;
        ends[i] = end;
        if let Some(q) = state.queue {
            self.served[q] += 1;
            if let Some(&next) = set.queues[q].get(self.served[q]) {
                self.try_start(next, now, set);
            }
        }
        if !self.dependents.is_empty() {
            for at in self.first_dependent[i]..self.first_dependent[i + 1] {
                let then = self.dependents[at];
                let state = &mut self.states[then];
                state.unmet -= 1;
                state.ready = state.ready.max(end);
                self.try_start(then, now, set);
            }
        }
        true
    }
}

/// A stretch of time in which no rate changes.
#[derive(Debug)]
pub struct Stretch<'r> {
    run: &'r ConcurrentRun,
    set: &'r FlowSet<'r>,
    /// In ns.
    pub duration: f64,
}

impl Stretch<'_> {
    /// Flows whose bytes move, and their rates in GB/s.
    pub fn moving(&self) -> impl ExactSizeIterator<Item = (usize, f64)> {
        self.run.moving.iter().map(|&i| (i, self.run.shared.rate(i)))
    }

    /// Calls `visit` with each flow that has not ended and its limiter.
    pub fn limiters(&self, mut visit: impl FnMut(usize, Limiter)) {
        let Self { run, set, .. } = self;
        for (i, state) in run.states.iter().enumerate() {
            let held = match state.phase {
                Phase::Waiting if state.unmet > 0 => Limiter::Dependency,
                Phase::Waiting => Limiter::Queue,
                Phase::Starting => Limiter::Start,
                Phase::Moving => self.limiter(&set.flows[i].rate, run.shared.rate(i)),
                Phase::Done => continue,
            };
            visit(i, held);
        }
    }

    fn limiter(&self, of: &RateDemand<'_>, rate: f64) -> Limiter {
        let capacity = |resource: u32| self.set.capacities.get(resource as usize).copied();
        limiter(of, rate, capacity, || {
            self.moving().map(|(i, rate)| (self.set.flows[i].rate, rate))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowEnd, LiveFlow, LiveFlows, ResourceUse};
    use proptest::prelude::*;

    fn near(got: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
        assert!(
            got.len() == expected.len() && got.iter().zip(expected).all(same),
            "{got:?} is not {expected:?}"
        );
    }

    fn ends(capacities: &[f64], flows: &[FlowDemand<'_>], queues: &[Vec<usize>]) -> Vec<f64> {
        let mut ends = Vec::new();
        let set = FlowSet { capacities, flows, queues };
        ConcurrentRun::default().ends(&set, &mut ends);
        ends
    }

    const fn link(resource: u32) -> ResourceUse {
        ResourceUse { resource, weight: 1.0 }
    }

    /// 10 bytes a nanosecond for flows of 1, 2, 3, 4 MB: all at 2.5 until 1e6 / 2.5 = 400 us, the
    /// rest at 10/3 for 300 us, at 5 for 200 us, the last alone for 100 us.
    #[test]
    fn four_flows_on_one_link() {
        let uses = [link(0)];
        let flow = |mb: f64| FlowDemand::new(RateDemand::new(&uses, f64::INFINITY), mb * 1e6);
        near(
            &ends(&[10.0], &[flow(1.0), flow(2.0), flow(3.0), flow(4.0)], &[]),
            &[400e3, 700e3, 900e3, 1000e3],
        );
    }

    /// Shares of 1 and 0.5 of 9 GB/s: 6 and 3. 600 kB and 600 kB: the first ends at 100 us, when
    /// the second has 300 kB left; alone at its cap of 5 it takes 60 us more.
    #[test]
    fn shares_are_weights() {
        let uses = [link(0)];
        let one = RateDemand::new(&uses, 100.0);
        let half = RateDemand { share: 0.5, cap: 5.0, ..one };
        let flows = [one, half].map(|rate| FlowDemand::new(rate, 600e3));
        near(&ends(&[9.0], &flows, &[]), &[100e3, 160e3]);
    }

    /// A start of 50 ns each, and one queue: 1000 bytes at 10 take 50 + 100 each, one after the
    /// other. A third flow, 3000 bytes on the same link without a start: alone until 50
    /// (500 moved), 5 each until the first ends at 50 + 200 = 250 (1500), alone until 300
    /// (2000), 5 each until 500 (3000): both end.
    #[test]
    fn a_queue_is_served_in_order() {
        let uses = [link(0)];
        let long = FlowDemand::new(RateDemand::new(&uses, 99.0), 3000.0);
        let short = FlowDemand { start: 50.0, bytes: 1000.0, ..long };
        near(&ends(&[10.0], &[short, short], &[vec![0, 1]]), &[150.0, 300.0]);
        near(&ends(&[10.0], &[short, short, long], &[vec![0, 1]]), &[250.0, 500.0, 500.0]);
    }

    /// A flow without end takes its half throughout: 1000 bytes at 5.
    #[test]
    fn background_runs_throughout() {
        let uses = [link(0)];
        let timed = FlowDemand::new(RateDemand::new(&uses, 99.0), 1000.0);
        let background = FlowDemand { bytes: f64::INFINITY, ..timed };
        near(&ends(&[10.0], &[timed], &[]), &[100.0]);
        let got = ends(&[10.0], &[timed, background], &[]);
        assert_eq!(got, [200.0, f64::INFINITY]);
        // A flow that cannot move never ends, nor does a flow that waits behind it.
        assert_eq!(ends(&[0.0], &[timed, timed], &[vec![0, 1]]), [f64::INFINITY; 2]);
        assert_eq!(ends(&[], &[], &[]), [] as [f64; 0]);
        // What a run leaves is not taken for ends of the next.
        let (mut run, mut all) = (ConcurrentRun::default(), Vec::new());
        for (capacity, end) in [(10.0, 200.0), (0.0, f64::INFINITY)] {
            run.ends(
                &FlowSet { capacities: &[capacity], flows: &[timed, timed], queues: &[] },
                &mut all,
            );
            assert_eq!(all, [end; 2]);
        }
    }

    /// Two copies of one engine and a third that enters the same GPU, held by the port of 399 where
    /// two meet and by 395.3 alone. In MiB: 0>1 and 0>2 of 512, 3>2 of 512.
    ///
    /// 0>1 first: it and 3>2 run alone, 512 MiB at 395.3 = 1358.2 us; then 0>2 alone: 2716.4 us.
    /// 0>2 first: it shares the port with 3>2, 199.5 each: both end at 536870912 / 199.5 = 2691.1
    /// us; then 0>1 alone: 4049.2 us.
    #[test]
    fn the_order_of_a_queue_decides() {
        let (into_1, into_2) = ([link(1)], [link(2)]);
        let flow = |uses| FlowDemand::new(RateDemand::new(uses, 395.3), (512u64 << 20) as f64);
        let flows = [flow(&into_1), flow(&into_2), flow(&into_2)];
        let capacities = [399.0; 3];
        let alone = 536_870_912.0 / 395.3;
        near(&ends(&capacities, &flows, &[vec![0, 1]]), &[alone, 2.0 * alone, alone]);
        let both = 536_870_912.0 / 199.5;
        near(&ends(&capacities, &flows, &[vec![1, 0]]), &[both + alone, both, both]);
    }

    /// 100 B at 10 end at 10 ns; 100 B at 20, started at 3, end at 8. The third waits for both,
    /// starts 7 ns later and takes 5 ns: 22; with a tail of 4 ns, 26. A fourth comes after the third,
    /// tail included: 50 B at 10 take 5 ns more.
    #[test]
    fn a_flow_starts_after_the_last_that_it_comes_after() {
        let (a, b) = ([link(0)], [link(1)]);
        let first = FlowDemand::new(RateDemand::new(&a, 99.0), 100.0);
        let second = FlowDemand { start: 3.0, ..FlowDemand::new(RateDemand::new(&b, 99.0), 100.0) };
        let third = FlowDemand { start: 7.0, after: &[0, 1], ..second };
        let with_tail = FlowDemand { tail: 4.0, ..third };
        let fourth = FlowDemand { bytes: 50.0, after: &[2], ..first };
        near(&ends(&[10.0, 20.0], &[first, second, third], &[]), &[10.0, 8.0, 22.0]);
        near(
            &ends(&[10.0, 20.0], &[first, second, with_tail, fourth], &[]),
            &[10.0, 8.0, 26.0, 31.0],
        );
        // The second's last byte is earlier, and its tail ends at 8 + 6 = 14: 14 + 7 + 5.
        let late = FlowDemand { tail: 6.0, ..second };
        near(&ends(&[10.0, 20.0], &[first, late, third], &[]), &[10.0, 14.0, 26.0]);
    }

    /// A queue serves the next flow while the one before has its tail: 100 B at 10 from 0 to 10 and
    /// from 10 to 20, and 30 ns of tail each. The second comes after a flow of 25 ns, too: served
    /// from there on, 25 to 35. What has no bytes takes its start only.
    #[test]
    fn tails_leave_the_queue_to_the_next_flow() {
        let (a, b) = ([link(0)], [link(1)]);
        let flow = FlowDemand::new(RateDemand::new(&a, 99.0), 100.0);
        let tailed = FlowDemand { tail: 30.0, ..flow };
        near(&ends(&[10.0], &[tailed, tailed], &[vec![0, 1]]), &[40.0, 50.0]);
        let long = FlowDemand::new(RateDemand::new(&b, 4.0), 100.0);
        let waits = FlowDemand { after: &[2], ..tailed };
        near(&ends(&[10.0, 4.0], &[tailed, waits, long], &[vec![0, 1]]), &[40.0, 65.0, 25.0]);
        assert_eq!(ends(&[10.0], &[FlowDemand { start: 2.0, bytes: 0.0, ..flow }], &[]), [2.0]);
    }

    /// Two repetitions of 1000 B at 10 with a start of 50 ns each: 2 x (50 + 100) = 300. In a queue
    /// the next flow waits for both: 300 + 150. While the first starts again, another that shares
    /// its link is alone there: 2000 B move at 10 until 50 (500), at 5 until 250 (1500, the first's
    /// 1000 B are over), and alone again until 300 (2000).
    #[test]
    fn each_repetition_has_its_start() {
        let uses = [link(0)];
        let long = FlowDemand::new(RateDemand::new(&uses, 99.0), 2000.0);
        let once = FlowDemand { start: 50.0, bytes: 1000.0, ..long };
        let twice = FlowDemand { reps: 2, ..once };
        near(&ends(&[10.0], &[twice], &[]), &[300.0]);
        near(&ends(&[10.0], &[twice, once], &[vec![0, 1]]), &[300.0, 450.0]);
        // The second repetition starts at 250 and has the link alone from 300 on.
        near(&ends(&[10.0], &[twice, long], &[]), &[400.0, 300.0]);
    }

    /// A flow that never ends blocks its successors and its queue.
    #[test]
    fn what_comes_after_a_flow_without_end_never_starts() {
        let uses = [link(0)];
        let flow = FlowDemand::new(RateDemand::new(&uses, 99.0), 100.0);
        let endless = FlowDemand { bytes: f64::INFINITY, ..flow };
        let after = FlowDemand { after: &[0], ..flow };
        assert_eq!(ends(&[10.0], &[endless, after], &[]), [f64::INFINITY; 2]);
        assert_eq!(ends(&[10.0], &[endless, flow], &[vec![0, 1]]), [f64::INFINITY; 2]);
        // Nor does a flow that comes after itself; a missing flow blocks none.
        let circle = FlowDemand { after: &[1], ..flow };
        assert_eq!(ends(&[10.0], &[flow, circle], &[]), [10.0, f64::INFINITY]);
        assert_eq!(ends(&[10.0], &[FlowDemand { after: &[7], ..flow }], &[vec![0, 9]]), [10.0]);
    }

    /// The first of a queue starts for 50 ns and moves at its cap of 5 for 100; the second waits for
    /// it, then for its start, and shares a link of 8 with a third flow after that: 4 each.
    #[test]
    fn limiters_of_each_stretch() {
        let (own, link) = ([link(0)], [link(1)]);
        let first =
            FlowDemand { start: 50.0, ..FlowDemand::new(RateDemand::new(&own, 5.0), 500.0) };
        let second = FlowDemand { rate: RateDemand::new(&link, 9.0), ..first };
        let third = FlowDemand { start: 0.0, after: &[0], ..second };
        let set = FlowSet {
            capacities: &[99.0, 8.0],
            flows: &[first, second, third],
            queues: &[vec![0, 1]],
        };
        let mut seen: Vec<(f64, Vec<Limiter>)> = Vec::new();
        ConcurrentRun::default().observe(&set, &mut Vec::new(), |stretch| {
            let mut limiters = Vec::new();
            stretch.limiters(|_, limiter| limiters.push(limiter));
            seen.push((stretch.duration, limiters));
        });
        use Limiter::{Cap, Dependency, Queue, Resource, Start};
        assert_eq!(
            seen,
            [
                (50.0, vec![Start, Queue, Dependency]),
                (100.0, vec![Cap, Queue, Dependency]),
                // The third has 500 B at 8 and moves 400 of them while the second starts.
                (50.0, vec![Start, Resource(1)]),
                (25.0, vec![Resource(1), Resource(1)]),
                (50.0, vec![Resource(1)]),
            ]
        );
    }

    /// Uses, cap, share, start, bytes.
    type Flow = (Vec<ResourceUse>, f64, f64, f64, f64);

    fn demand((uses, cap, share, start, bytes): &Flow) -> FlowDemand<'_> {
        let rate = RateDemand { uses, cap: *cap, share: *share };
        FlowDemand { start: *start, ..FlowDemand::new(rate, *bytes) }
    }

    struct Live<'a>(usize, RateDemand<'a>);

    impl LiveFlow for Live<'_> {
        fn demand(&self) -> RateDemand<'_> {
            self.1
        }
    }

    /// The same flows without queues, each started when its start is over.
    fn live_ends(capacities: &[f64], flows: &[FlowDemand<'_>]) -> Vec<f64> {
        let mut live = LiveFlows::new(capacities.to_vec());
        let mut starts: Vec<usize> = (0..flows.len()).collect();
        starts.sort_by(|&a, &b| flows[b].start.total_cmp(&flows[a].start));
        let (mut next, mut ends) = (Vec::new(), vec![f64::INFINITY; flows.len()]);
        loop {
            next.sort_by(|a: &FlowEnd, b| b.at.total_cmp(&a.at));
            let start = starts.last().map(|&i| flows[i].start);
            match (next.last().map(|end| end.at), start) {
                (Some(end), start) if start.is_none_or(|start| end <= start) => {
                    let ended = next.pop().and_then(|end| live.end(end, &mut next));
                    if let Some(Live(i, _)) = ended {
                        ends[i] = end;
                    }
                }
                (_, Some(start)) => {
                    let i = starts.pop().unwrap();
                    live.start(start, Live(i, flows[i].rate), flows[i].bytes, &mut next);
                }
                _ => return ends,
            }
        }
    }

    /// Capacities, flows, and the queue of each; 3 is none.
    fn set() -> impl Strategy<Value = (Vec<f64>, Vec<Flow>, Vec<u8>)> {
        let uses = prop::collection::vec((0u32..6, 0.2f64..3.0), 0..4).prop_map(|uses| {
            uses.into_iter().map(|(resource, weight)| ResourceUse { resource, weight }).collect()
        });
        let flow = (uses, 1.0f64..100.0, 0.1f64..4.0, 0.0f64..50.0, 1.0f64..1e5);
        (
            prop::collection::vec(1.0f64..100.0, 6),
            prop::collection::vec(flow, 1..12),
            prop::collection::vec(0u8..4, 12),
        )
    }

    proptest! {
        /// Flows that come and go by external events end when they do in a set.
        #[test]
        fn live_flows_end_at_the_same_time((capacities, flows, _) in set()) {
            let demands: Vec<FlowDemand<'_>> = flows.iter().map(demand).collect();
            let (set, live) = (ends(&capacities, &demands, &[]), live_ends(&capacities, &demands));
            for (set, live) in set.iter().zip(&live) {
                prop_assert!((set / live - 1.0).abs() <= 1e-9, "{set} is not {live}");
            }
        }

        /// Every flow ends, no sooner than alone; until the last end no resource carried more than
        /// its capacity, and no queue served two at a time.
        #[test]
        fn nothing_is_faster_than_its_parts((capacities, flows, queued) in set()) {
            let demands: Vec<FlowDemand<'_>> = flows.iter().map(demand).collect();
            let mut queues = vec![Vec::new(); 3];
            for (i, &queue) in queued.iter().take(flows.len()).enumerate() {
                if let Some(queue) = queues.get_mut(usize::from(queue)) {
                    queue.push(i);
                }
            }
            let together = ends(&capacities, &demands, &queues);
            let last = together.iter().copied().fold(0.0, f64::max);
            prop_assert!(last.is_finite());
            let mut alone = Vec::new();
            for (flow, &end) in demands.iter().zip(&together) {
                let only = ends(&capacities, std::slice::from_ref(flow), &[])[0];
                prop_assert!(end >= only * (1.0 - 1e-9), "{end} is before {only}");
                alone.push(only);
            }
            for (r, capacity) in capacities.iter().enumerate() {
                let moved: f64 = flows
                    .iter()
                    .flat_map(|(uses, .., bytes)| uses.iter().map(move |u| (u, bytes)))
                    .filter(|(u, _)| u.resource as usize == r)
                    .map(|(u, bytes)| u.weight * bytes)
                    .sum();
                prop_assert!(moved <= capacity * last * (1.0 + 1e-9));
            }
            for queue in &queues {
                let (mut before, mut total) = (0.0, 0.0);
                for &i in queue {
                    total += alone[i];
                    prop_assert!(together[i] > before);
                    before = together[i];
                }
                prop_assert!(before >= total * (1.0 - 1e-9));
            }
        }
    }
}
