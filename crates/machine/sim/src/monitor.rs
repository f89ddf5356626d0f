//! Readings of the GPUs of a simulated machine: the values of the description, and never an
//! error.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_hal::Monitor;
use pathline_schema::{Gpu, GpuFacts, GpuState, LinkEnd, LinkKind, Ns, Rank, Topology};

use crate::world::SimWorld;

/// Host time of a reading of one GPU: about ten calls into a driver.
const READING: Ns = Ns(20_000.0);

pub(crate) struct SimMonitor {
    pub(crate) world: Rc<RefCell<SimWorld>>,
    pub(crate) rank: Rank,
    /// Clocks of compute units and memory, MHz, as described.
    pub(crate) clocks_mhz: (Option<u32>, Option<u32>),
    /// The links that the product has.
    pub(crate) healthy: Topology,
}

/// Number of NVLinks of a GPU, as NVML counts them: without NVLink-C2C, which joins it to a domain.
fn nvlinks(topology: &Topology, gpu: u32) -> u32 {
    let links = topology.links.iter().filter(|link| {
        let ends = [link.a, link.b];
        link.kind == LinkKind::Nvlink
            && ends.contains(&LinkEnd::Gpu(gpu))
            && !ends.iter().any(|end| matches!(end, LinkEnd::Numa(_)))
    });
    links.map(|link| link.width).sum()
}

impl SimMonitor {
    fn read<T>(&self, gpu: u32, of: impl FnOnce(&SimWorld, &Gpu) -> T) -> Option<T> {
        let mut world = self.world.borrow_mut();
        world.charge(self.rank, READING.0);
        let found = world.topology.gpus.iter().find(|g| g.index == gpu)?;
        Some(of(&world, found))
    }
}

impl Monitor for SimMonitor {
    fn facts(&self, gpu: u32) -> Option<GpuFacts> {
        self.read(gpu, |world, _| {
            let (now, all) = (nvlinks(&world.topology, gpu), nvlinks(&self.healthy, gpu));
            GpuFacts {
                source: "model".to_owned(),
                max_sm_clock_mhz: self.clocks_mhz.0,
                max_memory_clock_mhz: self.clocks_mhz.1,
                nvlinks: (all > 0).then_some((now, all)),
                ..GpuFacts::default()
            }
        })
    }

    fn state(&self, gpu: u32) -> Option<GpuState> {
        self.read(gpu, |_, found| GpuState {
            sm_clock_mhz: self.clocks_mhz.0,
            memory_clock_mhz: self.clocks_mhz.1,
            throttle: Some(Vec::new()),
            pcie: found.host_link,
            ..GpuState::default()
        })
    }

    fn counters(&self, gpu: u32) -> Option<GpuState> {
        self.read(gpu, |world, found| {
            let counted = world.faults.counters(gpu, world.clock(self.rank), found.numa);
            GpuState {
                ecc_corrected: Some(counted.ecc),
                ecc_uncorrected: Some(0),
                link_errors: (counted.links > 0).then_some(counted.links),
                pcie_replays: Some(counted.pcie),
                ..GpuState::default()
            }
        })
    }
}
