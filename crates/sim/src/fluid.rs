//! Flows that share resources: who has how much left and when the next one ends.

use std::rc::Rc;

use pathline_flow::{Demand, Operation, Solver};

/// A flow that moves bytes now.
#[derive(Debug)]
struct Active {
    lane: u64,
    operation: Rc<Operation>,
    /// Payload that had not moved at `since`.
    left: f64,
    since: f64,
    rate: f64,
    /// Grows whenever the rate changes, so that an end computed before is known to be void.
    version: u64,
}

/// When a flow ends if no rate changes before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct End {
    pub(crate) at: f64,
    pub(crate) flow: usize,
    pub(crate) version: u64,
}

/// The flows that move bytes now and the resources that they share.
#[derive(Debug, Default)]
pub(crate) struct Fluid {
    capacities: Vec<f64>,
    /// Flows that use each resource.
    users: Vec<Vec<usize>>,
    flows: Vec<Option<Active>>,
    vacant: Vec<usize>,
    versions: u64,
    solver: Solver,
    connected: Vec<usize>,
    rates: Vec<f64>,
}

impl Fluid {
    /// Resources by their capacities in GB/s.
    pub(crate) fn new(capacities: Vec<f64>) -> Self {
        let users = capacities.iter().map(|_| Vec::new()).collect();
        Self { capacities, users, ..Self::default() }
    }

    /// The rate that an operation gets while it is alone.
    pub(crate) fn alone(&self, operation: &Operation) -> f64 {
        let share = |u: &pathline_flow::Use| {
            let all: f64 =
                operation.uses.iter().filter(|v| v.resource == u.resource).map(|v| v.weight).sum();
            let capacity = self.capacities.get(u.resource as usize);
            if all > 0.0 { capacity.map_or(f64::INFINITY, |c| c / all) } else { f64::INFINITY }
        };
        operation.uses.iter().map(share).fold(operation.cap.0, f64::min).max(0.0)
    }

    /// Starts a flow of `amount` bytes for `lane`. The ends of all flows whose rate changes are
    /// added to `ends`.
    pub(crate) fn start(
        &mut self,
        now: f64,
        lane: u64,
        operation: Rc<Operation>,
        amount: f64,
        ends: &mut Vec<End>,
    ) {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        for u in &operation.uses {
            if let Some(users) = self.users.get_mut(u.resource as usize)
                && !users.contains(&id)
            {
                users.push(id);
            }
        }
        self.versions += 1;
        let version = self.versions;
        let flow = Active { lane, operation, left: amount, since: now, rate: -1.0, version };
        if let Some(slot) = self.flows.get_mut(id) {
            *slot = Some(flow);
        }
        self.connect(&[id]);
        self.share(now, ends);
    }

    /// Ends a flow if `end` still holds: its lane. The others get what it leaves.
    pub(crate) fn end(&mut self, end: End, ends: &mut Vec<End>) -> Option<u64> {
        let slot = self.flows.get_mut(end.flow)?;
        let flow = slot.take_if(|flow| flow.version == end.version)?;
        self.vacant.push(end.flow);
        let mut seeds = Vec::new();
        for u in &flow.operation.uses {
            if let Some(users) = self.users.get_mut(u.resource as usize) {
                users.retain(|&user| user != end.flow);
                seeds.extend_from_slice(users);
            }
        }
        if !seeds.is_empty() {
            self.connect(&seeds);
            self.share(end.at, ends);
        }
        Some(flow.lane)
    }

    /// Drops the flow of a lane, if it has one.
    pub(crate) fn abandon(&mut self, now: f64, lane: u64, ends: &mut Vec<End>) {
        let of_lane = |f: &Option<Active>| f.as_ref().is_some_and(|f| f.lane == lane);
        if let Some(flow) = self.flows.iter().position(of_lane)
            && let Some(Some(active)) = self.flows.get(flow)
        {
            let version = active.version;
            self.end(End { at: now, flow, version }, ends);
        }
    }

    /// Gathers the flows that share a resource with `seeds`, directly or through others.
    fn connect(&mut self, seeds: &[usize]) {
        self.connected.clear();
        for &seed in seeds {
            if !self.connected.contains(&seed) {
                self.connected.push(seed);
            }
        }
        let mut next = 0;
        while let Some(&id) = self.connected.get(next) {
            next += 1;
            let Some(Some(flow)) = self.flows.get(id) else { continue };
            for u in &flow.operation.uses {
                for &user in self.users.get(u.resource as usize).into_iter().flatten() {
                    if !self.connected.contains(&user) {
                        self.connected.push(user);
                    }
                }
            }
        }
        // In order of their slots, so that sums of rates are the same whoever came last.
        self.connected.sort_unstable();
    }

    /// Computes the rates of the connected flows from `now` on.
    fn share(&mut self, now: f64, ends: &mut Vec<End>) {
        let active = |&id: &usize| self.flows.get(id)?.as_ref();
        if let &[only] = self.connected.as_slice() {
            let rate = active(&only).map_or(0.0, |flow| self.alone(&flow.operation));
            self.rates.clear();
            self.rates.push(rate);
        } else {
            let flows: Vec<_> = self
                .connected
                .iter()
                .filter_map(active)
                .map(|flow| Demand::of(&flow.operation))
                .collect();
            self.solver.rates(&self.capacities, &flows, &mut self.rates);
        }
        for (&id, &rate) in self.connected.iter().zip(&self.rates) {
            let Some(Some(flow)) = self.flows.get_mut(id) else { continue };
            if rate == flow.rate {
                continue;
            }
            if flow.rate > 0.0 {
                flow.left = (flow.left - flow.rate * (now - flow.since)).max(0.0);
            }
            self.versions += 1;
            (flow.since, flow.rate, flow.version) = (now, rate, self.versions);
            let time = if flow.left > 0.0 { flow.left / rate } else { 0.0 };
            if time.is_finite() {
                ends.push(End { at: now + time, flow: id, version: flow.version });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::Use;
    use pathline_schema::{Ns, Rate};

    use super::*;

    fn operation(uses: &[(u32, f64)], cap: f64) -> Rc<Operation> {
        Rc::new(Operation {
            uses: uses.iter().map(|&(resource, weight)| Use { resource, weight }).collect(),
            cap: Rate(cap),
            share: 1.0,
            queue: None,
            alpha: Ns::ZERO,
            call: Ns(1.0),
            blocking: false,
            step: Ns::ZERO,
            route: Vec::new(),
            engine: String::new(),
            stages: Vec::new(),
        })
    }

    /// Runs to the end: lane and instant of each end, by lane.
    fn run(fluid: &mut Fluid, mut ends: Vec<End>) -> Vec<(u64, f64)> {
        let mut done = Vec::new();
        while let Some(next) = (0..ends.len()).min_by(|&a, &b| ends[a].at.total_cmp(&ends[b].at)) {
            let end = ends.swap_remove(next);
            if let Some(lane) = fluid.end(end, &mut ends) {
                done.push((lane, end.at));
            }
        }
        done.sort_by_key(|&(lane, _)| lane);
        done
    }

    /// 10 bytes a nanosecond for four flows of 1, 2, 3, 4 MB. All run at 2.5 until the first ends
    /// at 1e6 / 2.5 = 400 us; the rest at 10/3 for 1e6 / (10/3) = 300 us; at 5 for 200 us; the last
    /// alone at 10 for 100 us.
    #[test]
    fn four_flows_on_one_link() {
        let mut fluid = Fluid::new(vec![10.0]);
        let mut ends = Vec::new();
        for lane in 1..=4 {
            let link = operation(&[(0, 1.0)], f64::INFINITY);
            fluid.start(0.0, lane, link, lane as f64 * 1e6, &mut ends);
        }
        let done = run(&mut fluid, ends);
        for ((lane, at), expected) in done.iter().zip([400e3, 700e3, 900e3, 1000e3]) {
            assert!((at - expected).abs() < 1e-6, "lane {lane} ended at {at}, not {expected}");
        }
        assert_eq!(done.iter().map(|d| d.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    /// Two flows of 1 MB on separate links of 10 end at 100 us each; a third of 1 MB that starts
    /// with them on the second link halves that one: both its users end at 200 us.
    #[test]
    fn strangers_do_not_slow_each_other() {
        let mut fluid = Fluid::new(vec![10.0, 10.0]);
        let mut ends = Vec::new();
        for (lane, link) in [(1, 0), (2, 1), (3, 1)] {
            fluid.start(0.0, lane, operation(&[(link, 1.0)], 99.0), 1e6, &mut ends);
        }
        assert_eq!(run(&mut fluid, ends), [(1, 100e3), (2, 200e3), (3, 200e3)]);
    }

    /// A copy inside one memory of 10 uses it twice: 5. A cap of 2 binds before that.
    #[test]
    fn alone() {
        let fluid = Fluid::new(vec![10.0]);
        assert_eq!(fluid.alone(&operation(&[(0, 1.0), (0, 1.0)], 99.0)), 5.0);
        assert_eq!(fluid.alone(&operation(&[(0, 2.0)], 2.0)), 2.0);
        assert_eq!(fluid.alone(&operation(&[], 3.0)), 3.0);
    }

    /// A flow that comes at 50 us while 1 MB runs at 10: the first has 0.5 MB left and shares from
    /// there, 5 each: it ends at 50 + 100 = 150 us. The second then has 0.5 MB left alone: 200 us.
    #[test]
    fn a_late_flow() {
        let mut fluid = Fluid::new(vec![10.0]);
        let mut ends = Vec::new();
        fluid.start(0.0, 1, operation(&[(0, 1.0)], 99.0), 1e6, &mut ends);
        fluid.start(50e3, 2, operation(&[(0, 1.0)], 99.0), 1e6, &mut ends);
        assert_eq!(run(&mut fluid, ends), [(1, 150e3), (2, 200e3)]);
    }

    #[test]
    fn a_flow_that_cannot_move_has_no_end() {
        let mut fluid = Fluid::new(vec![0.0]);
        let mut ends = Vec::new();
        fluid.start(0.0, 1, operation(&[(0, 1.0)], 99.0), 1e6, &mut ends);
        assert_eq!(ends, []);
        fluid.abandon(5.0, 1, &mut ends);
        assert!(fluid.users.iter().all(Vec::is_empty));
    }
}
