//! Flows that come and go by the caller's clock.

use super::max_min::RateDemand;
use super::shared::SharedFlows;

/// Something whose bytes can move.
pub trait LiveFlow {
    /// Its resource use while its bytes move.
    fn demand(&self) -> RateDemand<'_>;
}

/// When a flow ends if no rate changes before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowEnd {
    /// In ns.
    pub at: f64,
    flow: usize,
    version: u64,
}

/// The flows that move bytes now and the resources that they share.
///
/// When a flow comes or goes, rates change only for the flows that share a resource with it,
/// directly or through others; ends of all others stay as they were reported.
#[derive(Debug)]
pub struct LiveFlows<F> {
    capacities: Vec<f64>,
    /// Flows that use each resource.
    users: Vec<Vec<usize>>,
    flows: Vec<Option<F>>,
    shared: SharedFlows,
    /// Of each flow; changes with its rate, so that an end computed before is known to be void.
    versions: Vec<u64>,
    last_version: u64,
    vacant: Vec<usize>,
    connected: Vec<usize>,
}

impl<F: LiveFlow> LiveFlows<F> {
    /// None yet, over resources of these capacities in GB/s.
    pub fn new(capacities: Vec<f64>) -> Self {
        Self {
            users: capacities.iter().map(|_| Vec::new()).collect(),
            capacities,
            flows: Vec::new(),
            shared: SharedFlows::default(),
            versions: Vec::new(),
            last_version: 0,
            vacant: Vec::new(),
            connected: Vec::new(),
        }
    }

    /// Capacities of the resources, in GB/s.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Starts a flow of `bytes`. The ends of all flows whose rate changes are added to `ends`.
    pub fn start(&mut self, now: f64, what: F, bytes: f64, ends: &mut Vec<FlowEnd>) {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.versions.push(0);
            self.shared.grow(self.flows.len());
            self.flows.len() - 1
        });
        for u in what.demand().uses {
            if let Some(users) = self.users.get_mut(u.resource as usize)
                && !users.contains(&id)
            {
                users.push(id);
            }
        }
        self.shared.begin(id, now, bytes);
        self.flows[id] = Some(what);
        self.connect(&[id]);
        self.share(now, ends);
    }

    /// Ends a flow if `end` still holds, and gives it back. The others get what it leaves.
    pub fn end(&mut self, end: FlowEnd, ends: &mut Vec<FlowEnd>) -> Option<F> {
        self.versions.get(end.flow).filter(|&&version| version == end.version)?;
        let flow = self.flows.get_mut(end.flow)?.take()?;
        self.leave(end.at, end.flow, &flow, ends);
        Some(flow)
    }

    /// Drops the first flow that `is` knows, if any.
    pub fn abandon(&mut self, now: f64, is: impl Fn(&F) -> bool, ends: &mut Vec<FlowEnd>) {
        let known = |flow: &Option<F>| flow.as_ref().is_some_and(&is);
        if let Some(id) = self.flows.iter().position(known)
            && let Some(flow) = self.flows[id].take()
        {
            self.leave(now, id, &flow, ends);
        }
    }

    /// Each flow with the bytes that it has left at `now`, if no end lies before that.
    pub fn left_at(&self, now: f64) -> impl Iterator<Item = (&F, f64)> {
        let flows = self.flows.iter().enumerate();
        flows.filter_map(move |(id, flow)| Some((flow.as_ref()?, self.shared.left_at(id, now))))
    }

    fn leave(&mut self, now: f64, id: usize, flow: &F, ends: &mut Vec<FlowEnd>) {
        self.vacant.push(id);
        let mut seeds = Vec::new();
        for u in flow.demand().uses {
            if let Some(users) = self.users.get_mut(u.resource as usize) {
                users.retain(|&user| user != id);
                seeds.extend_from_slice(users);
            }
        }
        if !seeds.is_empty() {
            self.connect(&seeds);
            self.share(now, ends);
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
            for u in flow.demand().uses {
                for &user in self.users.get(u.resource as usize).into_iter().flatten() {
                    if !self.connected.contains(&user) {
                        self.connected.push(user);
                    }
                }
            }
        }
        // In order of their slots, so that sums of rates do not depend on the order of arrival.
        self.connected.sort_unstable();
    }

    /// New rates for the connected flows from `now` on.
    fn share(&mut self, now: f64, ends: &mut Vec<FlowEnd>) {
        let Self { capacities, flows, shared, versions, last_version, connected, .. } = self;
        let none = RateDemand::new(&[], 0.0);
        let demand = |id: usize| flows[id].as_ref().map_or(none, LiveFlow::demand);
        shared.share(now, capacities, connected, demand, |flow, at| {
            *last_version += 1;
            versions[flow] = *last_version;
            if at.is_finite() {
                ends.push(FlowEnd { at, flow, version: *last_version });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceUse;

    /// A flow of a lane.
    #[derive(Debug)]
    struct Lane {
        number: u64,
        uses: Vec<ResourceUse>,
        cap: f64,
    }

    impl LiveFlow for Lane {
        fn demand(&self) -> RateDemand<'_> {
            RateDemand::new(&self.uses, self.cap)
        }
    }

    fn lane(number: u64, resource: u32, cap: f64) -> Lane {
        Lane { number, uses: vec![ResourceUse { resource, weight: 1.0 }], cap }
    }

    /// Runs to the end: lane and instant of each end, by lane.
    fn run(flows: &mut LiveFlows<Lane>, mut ends: Vec<FlowEnd>) -> Vec<(u64, f64)> {
        let mut done = Vec::new();
        while let Some(next) = (0..ends.len()).min_by(|&a, &b| ends[a].at.total_cmp(&ends[b].at)) {
            let end = ends.swap_remove(next);
            if let Some(lane) = flows.end(end, &mut ends) {
                done.push((lane.number, end.at));
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
        let mut flows = LiveFlows::new(vec![10.0]);
        let mut ends = Vec::new();
        for number in 1..=4 {
            flows.start(0.0, lane(number, 0, f64::INFINITY), number as f64 * 1e6, &mut ends);
        }
        let done = run(&mut flows, ends);
        for ((lane, at), expected) in done.iter().zip([400e3, 700e3, 900e3, 1000e3]) {
            assert!((at - expected).abs() < 1e-6, "lane {lane} ended at {at}, not {expected}");
        }
        assert_eq!(done.iter().map(|d| d.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    /// Two flows of 1 MB on separate links of 10 end at 100 us each; a third of 1 MB that starts
    /// with them on the second link halves that one: both its users end at 200 us.
    #[test]
    fn flows_on_other_links_do_not_slow_each_other() {
        let mut flows = LiveFlows::new(vec![10.0, 10.0]);
        let mut ends = Vec::new();
        for (number, link) in [(1, 0), (2, 1), (3, 1)] {
            flows.start(0.0, lane(number, link, 99.0), 1e6, &mut ends);
        }
        assert_eq!(run(&mut flows, ends), [(1, 100e3), (2, 200e3), (3, 200e3)]);
    }

    /// A flow that comes at 50 us while 1 MB runs at 10: the first has 0.5 MB left and shares from
    /// there, 5 each: it ends at 50 + 100 = 150 us. The second then has 0.5 MB left alone: 200 us.
    #[test]
    fn a_late_flow_takes_its_share_from_then_on() {
        let mut flows = LiveFlows::new(vec![10.0]);
        let mut ends = Vec::new();
        flows.start(0.0, lane(1, 0, 99.0), 1e6, &mut ends);
        flows.start(50e3, lane(2, 0, 99.0), 1e6, &mut ends);
        assert_eq!(run(&mut flows, ends), [(1, 150e3), (2, 200e3)]);
    }

    #[test]
    fn a_flow_that_cannot_move_has_no_end() {
        let mut flows = LiveFlows::new(vec![0.0]);
        let mut ends = Vec::new();
        flows.start(0.0, lane(1, 0, 99.0), 1e6, &mut ends);
        assert_eq!(ends, []);
        flows.abandon(5.0, |lane| lane.number == 1, &mut ends);
        assert!(flows.users.iter().all(Vec::is_empty));
    }
}
