//! The host clock of a rank.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_hal::Clock;
use pathline_schema::{Ns, Rank};

use crate::world::SimWorld;

/// Virtual time as one rank's host sees it.
pub(crate) struct SimClock {
    pub(crate) world: Rc<RefCell<SimWorld>>,
    pub(crate) rank: Rank,
}

impl Clock for SimClock {
    fn now(&self) -> Ns {
        let mut world = self.world.borrow_mut();
        world.charge(self.rank, 1.0);
        Ns(world.clock(self.rank))
    }
    fn sleep(&self, time: Ns) {
        self.world.borrow_mut().charge(self.rank, time.0.max(1.0));
    }
    fn name(&self) -> &str {
        "virtual"
    }
}
