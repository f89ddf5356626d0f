//! Flows that start together: when does each end?

use crate::Solver;
use crate::solve::Demand;

/// One flow of a race.
#[derive(Debug, Clone, Copy)]
pub struct Runner<'a> {
    /// What it takes while its bytes move.
    pub demand: Demand<'a>,
    /// Time before its first byte, from when it has its turn, in ns.
    pub start: f64,
    /// Payload. Infinite for a flow that runs throughout.
    pub bytes: f64,
}

/// What holds a flow for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// It waits for its turn in its queue.
    Turn,
    /// Its start.
    Start,
    /// What it gets alone.
    Cap,
    /// The resource of this number.
    Full(u32),
}

/// Is told which flow was held by what for how many ns.
pub(crate) type Told<'t> = &'t mut dyn FnMut(usize, Hold, f64);

/// Moves bytes by weighted max-min fair rates, from one end to the next, and keeps its buffers
/// between calls.
///
/// A flow first waits for its turn in its queue, then for its start, then its bytes move. Whenever
/// bytes begin or end to move, all rates are shared out anew. Bytes in ns are GB/s.
#[derive(Debug, Default)]
pub struct Race {
    solver: Solver,
    rates: Vec<f64>,
    /// What each flow has left.
    left: Vec<f64>,
    /// Flows whose bytes move, in order of their numbers.
    moving: Vec<usize>,
    /// Flows whose start runs, and when it is over.
    starting: Vec<(f64, usize)>,
    /// How many of each queue are done.
    done: Vec<usize>,
    /// The queue of each flow.
    queue_of: Vec<Option<usize>>,
}

/// What is left of a flow that has ended, as a share of its bytes: differences of doubles err by
/// less.
const NOTHING: f64 = 1e-11;

impl Race {
    /// When each flow ends, in ns from the common start; infinite for one that never does.
    /// `capacities` in GB/s. Each of `queues` lists flows that have their turn one after the other;
    /// flows in none run at once.
    pub fn ends(
        &mut self,
        capacities: &[f64],
        runners: &[Runner<'_>],
        queues: &[Vec<usize>],
        ends: &mut Vec<f64>,
    ) {
        self.run(capacities, runners, queues, ends, None);
    }

    /// The same, and tells what held each flow for how long.
    pub(crate) fn run(
        &mut self,
        capacities: &[f64],
        runners: &[Runner<'_>],
        queues: &[Vec<usize>],
        ends: &mut Vec<f64>,
        mut told: Option<Told<'_>>,
    ) {
        self.line_up(runners, queues, ends);
        let mut now = 0.0;
        let mut demands: Vec<Demand<'_>> = Vec::with_capacity(runners.len());
        loop {
            self.begin(now);
            demands.clear();
            demands.extend(self.moving.iter().filter_map(|&i| runners.get(i)).map(|r| r.demand));
            self.solver.rates(capacities, &demands, &mut self.rates);
            let step = self.step(now);
            // Nothing is left but flows that have no end.
            if !step.is_finite() {
                return;
            }
            if let Some(told) = &mut told {
                self.tell(capacities, runners, queues, step, *told);
            }
            now += step;
            self.advance(now, step, runners, queues, ends);
        }
    }

    fn line_up(&mut self, runners: &[Runner<'_>], queues: &[Vec<usize>], ends: &mut Vec<f64>) {
        ends.clear();
        ends.resize(runners.len(), f64::INFINITY);
        self.left.clear();
        self.left.extend(runners.iter().map(|r| r.bytes));
        self.queue_of.clear();
        self.queue_of.resize(runners.len(), None);
        for (nth, queue) in queues.iter().enumerate() {
            for &i in queue {
                if let Some(of) = self.queue_of.get_mut(i) {
                    *of = Some(nth);
                }
            }
        }
        self.done.clear();
        self.done.resize(queues.len(), 0);
        self.moving.clear();
        self.starting.clear();
        let free = self.queue_of.iter().enumerate().filter(|(_, queue)| queue.is_none());
        let first = queues.iter().filter_map(|queue| queue.first().copied());
        let ready = free.map(|(i, _)| i).chain(first);
        self.starting.extend(ready.filter_map(|i| Some((runners.get(i)?.start, i))));
    }

    /// Flows whose start is over move.
    fn begin(&mut self, now: f64) {
        let Self { starting, moving, .. } = self;
        let before = moving.len();
        starting.retain(|&(at, i)| {
            if at <= now {
                moving.push(i);
            }
            at > now
        });
        if moving.len() > before {
            moving.sort_unstable();
        }
    }

    /// Time to the next end or beginning; infinite if there is none.
    fn step(&self, now: f64) -> f64 {
        let ends = self.moving.iter().zip(&self.rates).map(|(&i, &rate)| {
            let left = self.left.get(i).copied().unwrap_or(0.0);
            if left > 0.0 { left / rate } else { 0.0 }
        });
        let starts = self.starting.iter().map(|&(at, _)| at - now);
        ends.chain(starts).fold(f64::INFINITY, f64::min)
    }

    fn advance(
        &mut self,
        now: f64,
        step: f64,
        runners: &[Runner<'_>],
        queues: &[Vec<usize>],
        ends: &mut [f64],
    ) {
        let Self { moving, rates, left, starting, done, queue_of, .. } = self;
        let mut rates = rates.iter();
        moving.retain(|&i| {
            let (Some(rate), Some(left), Some(runner)) =
                (rates.next(), left.get_mut(i), runners.get(i))
            else {
                return false;
            };
            *left -= rate * step;
            if left.is_infinite() || *left > runner.bytes * NOTHING {
                return true;
            }
            if let Some(end) = ends.get_mut(i) {
                *end = now;
            }
            if let Some(&Some(nth)) = queue_of.get(i)
                && let (Some(done), Some(queue)) = (done.get_mut(nth), queues.get(nth))
            {
                *done += 1;
                let next = queue.get(*done).and_then(|&i| Some((now + runners.get(i)?.start, i)));
                starting.extend(next);
            }
            false
        });
    }

    fn tell(
        &self,
        capacities: &[f64],
        runners: &[Runner<'_>],
        queues: &[Vec<usize>],
        step: f64,
        told: Told<'_>,
    ) {
        for (&i, &rate) in self.moving.iter().zip(&self.rates) {
            if let Some(runner) = runners.get(i) {
                told(i, self.held_by(&runner.demand, rate, capacities, runners), step);
            }
        }
        self.starting.iter().for_each(|&(_, i)| told(i, Hold::Start, step));
        for (queue, &done) in queues.iter().zip(&self.done) {
            queue.iter().skip(done + 1).for_each(|&i| told(i, Hold::Turn, step));
        }
    }

    /// What keeps a flow that moves from moving faster: its cap, or the full resource where no
    /// other flow has more for its share.
    fn held_by(
        &self,
        of: &Demand<'_>,
        rate: f64,
        capacities: &[f64],
        runners: &[Runner<'_>],
    ) -> Hold {
        const NEARLY: f64 = 1.0 - 1e-9;
        if rate >= of.cap * NEARLY {
            return Hold::Cap;
        }
        let all = || {
            let demand = |&i: &usize| runners.get(i).map(|r| r.demand);
            self.moving.iter().filter_map(demand).zip(&self.rates)
        };
        let full = |resource: u32| {
            let (mut used, mut highest) = (0.0, 0.0f64);
            for (demand, rate) in all() {
                let takes = demand.uses.iter().filter(|u| u.resource == resource);
                let weight: f64 = takes.map(|u| u.weight).sum();
                used += weight * rate;
                if weight > 0.0 {
                    highest = highest.max(rate / demand.share);
                }
            }
            let capacity = capacities.get(resource as usize);
            capacity.is_some_and(|c| used >= c * NEARLY) && rate / of.share >= highest * NEARLY
        };
        let full = of.uses.iter().filter(|u| full(u.resource));
        let most = full.max_by(|a, b| a.weight.total_cmp(&b.weight));
        most.map_or(Hold::Cap, |u| Hold::Full(u.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Use;
    use proptest::prelude::*;

    fn near(got: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
        assert!(
            got.len() == expected.len() && got.iter().zip(expected).all(same),
            "{got:?} is not {expected:?}"
        );
    }

    fn ends(capacities: &[f64], runners: &[Runner<'_>], queues: &[Vec<usize>]) -> Vec<f64> {
        let mut ends = Vec::new();
        Race::default().ends(capacities, runners, queues, &mut ends);
        ends
    }

    const fn link(resource: u32) -> Use {
        Use { resource, weight: 1.0 }
    }

    /// 10 bytes a nanosecond for flows of 1, 2, 3, 4 MB: all at 2.5 until 1e6 / 2.5 = 400 us, the
    /// rest at 10/3 for 300 us, at 5 for 200 us, the last alone for 100 us.
    #[test]
    fn four_flows_on_one_link() {
        let uses = [link(0)];
        let runner = |mb: f64| Runner {
            demand: Demand::new(&uses, f64::INFINITY),
            start: 0.0,
            bytes: mb * 1e6,
        };
        near(
            &ends(&[10.0], &[runner(1.0), runner(2.0), runner(3.0), runner(4.0)], &[]),
            &[400e3, 700e3, 900e3, 1000e3],
        );
    }

    /// Shares of 1 and 0.5 of 9 GB/s: 6 and 3. 600 kB and 600 kB: the first ends at 100 us, when
    /// the second has 300 kB left; alone at its cap of 5 it takes 60 us more.
    #[test]
    fn shares_are_weights() {
        let uses = [link(0)];
        let one = Demand::new(&uses, 100.0);
        let half = Demand { share: 0.5, cap: 5.0, ..one };
        let runner = |demand| Runner { demand, start: 0.0, bytes: 600e3 };
        near(&ends(&[9.0], &[runner(one), runner(half)], &[]), &[100e3, 160e3]);
    }

    /// A start of 50 ns each, and one queue: 1000 bytes at 10 take 50 + 100 each, one after the
    /// other. A third flow beside them, 3000 bytes on the same link without a start: alone until
    /// 50 (500 moved), 5 each until the first ends at 50 + 200 = 250 (1500), alone until 300
    /// (2000), 5 each until 500 (3000): both end.
    #[test]
    fn a_queue_is_served_in_order() {
        let uses = [link(0)];
        let demand = Demand::new(&uses, 99.0);
        let short = Runner { demand, start: 50.0, bytes: 1000.0 };
        let long = Runner { demand, start: 0.0, bytes: 3000.0 };
        near(&ends(&[10.0], &[short, short], &[vec![0, 1]]), &[150.0, 300.0]);
        near(&ends(&[10.0], &[short, short, long], &[vec![0, 1]]), &[250.0, 500.0, 500.0]);
    }

    /// A flow without end takes its half throughout: 1000 bytes at 5.
    #[test]
    fn background_runs_throughout() {
        let uses = [link(0)];
        let demand = Demand::new(&uses, 99.0);
        let timed = Runner { demand, start: 0.0, bytes: 1000.0 };
        let background = Runner { bytes: f64::INFINITY, ..timed };
        near(&ends(&[10.0], &[timed], &[]), &[100.0]);
        let got = ends(&[10.0], &[timed, background], &[]);
        assert_eq!(got, [200.0, f64::INFINITY]);
        // What cannot move never ends, and what waits behind it neither.
        assert_eq!(ends(&[0.0], &[timed, timed], &[vec![0, 1]]), [f64::INFINITY; 2]);
        assert_eq!(ends(&[], &[], &[]), [] as [f64; 0]);
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
        let runner = |uses| Runner {
            demand: Demand::new(uses, 395.3),
            start: 0.0,
            bytes: (512u64 << 20) as f64,
        };
        let runners = [runner(&into_1), runner(&into_2), runner(&into_2)];
        let capacities = [399.0; 3];
        let alone = 536_870_912.0 / 395.3;
        near(&ends(&capacities, &runners, &[vec![0, 1]]), &[alone, 2.0 * alone, alone]);
        let both = 536_870_912.0 / 199.5;
        near(&ends(&capacities, &runners, &[vec![1, 0]]), &[both + alone, both, both]);
    }

    /// What it uses, cap, share, start, bytes.
    type Flow = (Vec<Use>, f64, f64, f64, f64);

    /// Capacities, flows, and the queue of each; 3 is none.
    fn race() -> impl Strategy<Value = (Vec<f64>, Vec<Flow>, Vec<u8>)> {
        let uses = prop::collection::vec((0u32..6, 0.2f64..3.0), 0..4).prop_map(|uses| {
            uses.into_iter().map(|(resource, weight)| Use { resource, weight }).collect()
        });
        let flow = (uses, 1.0f64..100.0, 0.1f64..4.0, 0.0f64..50.0, 1.0f64..1e5);
        (
            prop::collection::vec(1.0f64..100.0, 6),
            prop::collection::vec(flow, 1..12),
            prop::collection::vec(0u8..4, 12),
        )
    }

    proptest! {
        /// Every flow ends, no sooner than alone; until the last end no resource carried more than
        /// its capacity, and no queue served two at a time.
        #[test]
        fn nothing_is_faster_than_its_parts((capacities, flows, queued) in race()) {
            let runners: Vec<Runner<'_>> = flows
                .iter()
                .map(|(uses, cap, share, start, bytes)| Runner {
                    demand: Demand { uses, cap: *cap, share: *share },
                    start: *start,
                    bytes: *bytes,
                })
                .collect();
            let mut queues = vec![Vec::new(); 3];
            for (i, &queue) in queued.iter().take(flows.len()).enumerate() {
                if let Some(queue) = queues.get_mut(usize::from(queue)) {
                    queue.push(i);
                }
            }
            let together = ends(&capacities, &runners, &queues);
            let last = together.iter().copied().fold(0.0, f64::max);
            prop_assert!(last.is_finite());
            let mut alone = Vec::new();
            for (runner, &end) in runners.iter().zip(&together) {
                let only = ends(&capacities, std::slice::from_ref(runner), &[])[0];
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
