//! The machine: everything that has time or state.

use pathline_schema::{Ns, Topology, WorldKind};

use crate::{Driver, FileStorage, Host, Monitor, RankGroup};

/// A clock of the host: real or virtual.
pub trait Clock {
    /// Time since the machine was made. Monotonic. Reading it costs at least 1 ns of virtual time,
    /// so that a polling loop ends.
    fn now(&self) -> Ns;
    /// Lets time pass.
    fn sleep(&self, time: Ns);
    /// Name, for the record.
    fn name(&self) -> &str;
}

/// A node with its clock, host and GPUs, real or simulated.
pub struct Machine {
    /// Whether figures from it are hardware's or the model's.
    pub world: WorldKind,
    /// Its parts.
    pub topology: Topology,
    /// Its clock.
    pub clock: Box<dyn Clock>,
    /// Its memory and CPU threads.
    pub host: Box<dyn Host>,
    /// Its GPU runtime, if it has one.
    pub driver: Option<Box<dyn Driver>>,
    /// The reader of its GPUs' state, if there is one.
    pub monitor: Option<Box<dyn Monitor>>,
    /// The processes that measure together, if there are several or if one opens libraries between
    /// GPUs.
    pub ranks: Option<Box<dyn RankGroup>>,
    /// The files that it may read and write, if it was given places for them.
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
