//! A machine in virtual time: a description becomes a [`Machine`] whose clock is computed.
//!
//! All calls enter one world and cost their host at least a nanosecond. Enqueued work keeps its
//! time of issue, and nothing happens until a rank waits or polls; then the world steps from one
//! event to the next, and never past the host clock of a rank that only polls. Rates are max-min
//! fair and are recomputed whenever a flow starts or ends. No thread, no real clock, no byte of
//! payload: the same description, switches and seed give the same figures.

mod calendar;
mod clock;
mod copies;
mod dispatch;
mod driver;
mod engines;
mod fault;
mod host;
mod machine_faults;
mod memory;
mod monitor;
mod path_counts;
mod ranges;
mod ranks;
mod storage;
mod timeline;
mod traffic;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use pathline_flow::{DescError, MachineDesc, RuntimeEnv};
use pathline_hal::{Driver, FileStorage, Machine, Monitor, RankGroup};
use pathline_schema::Rank;

pub use fault::{FaultOrder, InjectedFault};
pub use ranks::ranks_of_nodes;

/// How a simulated machine departs from the plain model.
#[derive(Debug, Clone, PartialEq)]
pub struct SimOptions {
    /// Seed of the spread of times and of the garbage in fresh memory.
    pub seed: u64,
    /// Standard deviation of each operation's time, relative; half a percent is 0.005. No time
    /// departs by more than three of them. 0 turns the spread off.
    pub jitter: f64,
    /// Faults to inject.
    pub faults: Vec<FaultOrder>,
    /// Number of processes that measure together; none has libraries between processes if 0. One
    /// has all GPUs, of several each has the GPU of its number, if there is one.
    pub ranks: u32,
    /// Equal nodes that the processes are spread over, in blocks whose sizes differ by at most one, as
    /// `srun --nodes` does. None: of a cluster as few as the GPUs allow, otherwise one.
    pub nodes: Option<u32>,
    /// Whether it has the files of the stores that its description names.
    pub files: bool,
}

impl Default for SimOptions {
    /// A spread of 0.2 %, as of an idle machine, no faults, no libraries between processes, and all files.
    fn default() -> Self {
        Self { seed: 0, jitter: 0.002, faults: Vec::new(), ranks: 0, nodes: None, files: true }
    }
}

/// Builds the machine that `desc` describes, as it behaves under `switches`.
///
/// # Errors
/// A description that makes no network.
pub fn machine(desc: &MachineDesc, switches: RuntimeEnv, seed: u64) -> Result<Machine, DescError> {
    machine_with(desc, switches, &SimOptions { seed, ..SimOptions::default() })
}

/// The same, with a spread of times and faults of one's own.
///
/// # Errors
/// A description that makes no network.
pub fn machine_with(
    desc: &MachineDesc,
    switches: RuntimeEnv,
    options: &SimOptions,
) -> Result<Machine, DescError> {
    let world = world::SimWorld::new(desc, switches, options)?;
    let topology = world.topology.clone();
    let (world, rank) = (Rc::new(RefCell::new(world)), Rank(0));
    let has_gpus = !topology.gpus.is_empty();
    let monitor = monitor::SimMonitor {
        world: Rc::clone(&world),
        rank,
        clocks_mhz: desc.clocks_mhz,
        healthy: desc.healthy_topology().clone(),
    };
    let traffic = traffic::SimTraffic::new(Rc::clone(&world), rank);
    let driver = driver::SimDriver { world: Rc::clone(&world), rank };
    let ranks = match options.ranks {
        0 => None,
        _ => Some(ranks::SimRanks::new(Rc::clone(&world), desc, switches, options)?),
    };
    let has_files = options.files && !desc.stores.is_empty();
    let storage = storage::SimStorage::new(Rc::clone(&world), rank);
    Ok(Machine {
        world: pathline_schema::WorldKind::Simulated(desc.name.clone()),
        topology,
        clock: Box::new(clock::SimClock { world: Rc::clone(&world), rank }),
        host: Box::new(host::SimHost { world, rank }),
        driver: has_gpus.then(|| Box::new(driver) as Box<dyn Driver>),
        monitor: has_gpus.then(|| Box::new(monitor) as Box<dyn Monitor>),
        traffic: Some(Box::new(traffic)),
        ranks: ranks.map(|ranks| Box::new(ranks) as Box<dyn RankGroup>),
        storage: has_files.then(|| Box::new(storage) as Box<dyn FileStorage>),
    })
}
