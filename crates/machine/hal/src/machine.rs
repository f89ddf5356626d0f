//! The machine: everything that has time or state.

use pathline_schema::{Ns, Topology, WorldKind};

use crate::{Driver, FileStorage, Host, Monitor, RankGroup, TrafficMeter};

/// A clock of the host: real or virtual.
pub trait Clock {
    /// Time since the machine was created. Monotonic. Each reading takes at least 1 ns of virtual
    /// time, so that a polling loop ends.
    fn now(&self) -> Ns;
    /// Waits, or advances virtual time.
    fn sleep(&self, time: Ns);
    /// Name of the clock, for records.
    fn name(&self) -> &str;
}

/// A node with its clock, host and GPUs, real or simulated.
pub struct Machine {
    /// Whether figures come from hardware or from a model.
    pub world: WorldKind,
    /// Topology of the node.
    pub topology: Topology,
    /// Its clock.
    pub clock: Box<dyn Clock>,
    /// Its memory and CPU threads.
    pub host: Box<dyn Host>,
    /// Its GPU runtime, if it has one.
    pub driver: Option<Box<dyn Driver>>,
    /// Reader of the GPUs' state, if there is one.
    pub monitor: Option<Box<dyn Monitor>>,
    /// Reader of what passes over its paths, where the machine counts that itself.
    pub traffic: Option<Box<dyn TrafficMeter>>,
    /// The processes that measure together: several ranks, or one that opens libraries for
    /// communication between GPUs.
    pub ranks: Option<Box<dyn RankGroup>>,
    /// Access to files, if the user named stores.
    pub storage: Option<Box<dyn FileStorage>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("world", &self.world)
            .field("driver", &self.driver.as_ref().map(|d| d.name()))
            .finish_non_exhaustive()
    }
}
