//! Counters of a simulated machine: it counts what it moves, exactly and at any instant.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_flow::CountedResources;
use pathline_hal::TrafficMeter;
use pathline_schema::{Ns, Rank, TrafficCounter, TrafficPath, TrafficReading, UncountedPath, Unit};

use crate::world::SimWorld;

/// Host time of a reading of all counters: files of /sys take about as long.
const READING: Ns = Ns(20_000.0);

pub(crate) struct SimTraffic {
    world: Rc<RefCell<SimWorld>>,
    rank: Rank,
    counters: Vec<TrafficCounter>,
    uncounted: Vec<UncountedPath>,
}

impl SimTraffic {
    pub(crate) fn new(world: Rc<RefCell<SimWorld>>, rank: Rank) -> Self {
        let (counters, uncounted) = {
            let world = world.borrow();
            let counter = |counted: &CountedResources| TrafficCounter {
                path: counted.path.clone(),
                way: counted.way,
                grain: 1,
                bits: u64::BITS,
                source: "model".to_owned(),
            };
            let counters = world.counted.iter().map(counter).collect();
            let topology = &world.topology;
            let gpus = topology.gpus.iter().map(|gpu| Unit::Gpu(gpu.index));
            let units = gpus.chain(topology.numa.iter().map(|domain| Unit::Numa(domain.id)));
            let path = |path, why: &str| UncountedPath { path, why: why.to_owned() };
            let memories =
                units.map(|unit| path(TrafficPath::Memory(unit), "the model counts links"));
            let adapters = topology.nics.iter().map(|nic| {
                let adapter = TrafficPath::Adapter(nic.name.clone());
                path(adapter, "one node sends nothing over it")
            });
            (counters, memories.chain(adapters).collect())
        };
        Self { world, rank, counters, uncounted }
    }
}

impl TrafficMeter for SimTraffic {
    fn counters(&self) -> &[TrafficCounter] {
        &self.counters
    }

    fn read(&self) -> Vec<TrafficReading> {
        let mut world = self.world.borrow_mut();
        world.charge(self.rank, READING.0);
        world.catch_up(self.rank);
        let now = world.clock(self.rank);
        let moved = world.timeline.moved_at(now);
        let reading = |bytes: f64| TrafficReading { at: Ns(now), count: Ok(bytes as u64) };
        moved.into_iter().map(reading).collect()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.uncounted
    }
}
