//! Helpers that other processes use.

use pathline_hal::{Machine, Monitor};
use pathline_schema::{GpuSet, Ns};

/// Time between two looks: one takes about a millisecond a GPU.
const LOOK_AGAIN: Ns = Ns(1e9);

/// Whether other processes copy to or from helpers. Relays then leave gaps for their copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharedHelpers {
    /// The library looks: a helper is shared if the driver lists another process on it, or cannot tell.
    #[default]
    Look,
    /// All are.
    Always,
    /// None is.
    Never,
}

/// What is known of the helpers' users.
pub(crate) struct HelperUse {
    choice: SharedHelpers,
    /// Opened by the first look.
    monitor: Option<Option<Box<dyn Monitor>>>,
    looked: Option<Ns>,
}

impl HelperUse {
    pub(crate) fn new(choice: SharedHelpers) -> Self {
        Self { choice, monitor: None, looked: None }
    }

    /// Lets the next look happen at once.
    pub(crate) fn forget(&mut self) {
        self.looked = None;
    }

    /// The helpers that are shared; none if the last look is recent.
    pub(crate) fn look(&mut self, machine: &Machine, helpers: &[u32], now: Ns) -> Option<GpuSet> {
        if self.looked.is_some_and(|then| now - then < LOOK_AGAIN) {
            return None;
        }
        self.looked = Some(now);
        if self.choice == SharedHelpers::Look && self.monitor.is_none() {
            self.monitor = Some(pathline_gpu::management().watch(&machine.topology.gpus));
        }
        let state = |gpu| self.monitor.as_ref()?.as_ref()?.state(gpu);
        Some(shared_of(self.choice, helpers, |gpu| state(gpu)?.other_processes))
    }
}

/// The helpers that are shared, by the number of other processes on each. A number that is not known counts
/// as one.
fn shared_of(
    choice: SharedHelpers,
    helpers: &[u32],
    others: impl Fn(u32) -> Option<u32>,
) -> GpuSet {
    let is_shared = |gpu: &u32| match choice {
        SharedHelpers::Always => true,
        SharedHelpers::Never => false,
        SharedHelpers::Look => others(*gpu) != Some(0),
    };
    helpers.iter().copied().filter(is_shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_with_other_processes_are_shared() {
        // GPU 1 has none, GPU 2 has two, GPU 3 does not say.
        let others = |gpu| [None, Some(0), Some(2), None][gpu as usize];
        let shared = |choice| shared_of(choice, &[1, 2, 3], others);
        assert_eq!(shared(SharedHelpers::Look), GpuSet::EMPTY.with(2).with(3));
        assert_eq!(shared(SharedHelpers::Always), GpuSet::EMPTY.with(1).with(2).with(3));
        assert_eq!(shared(SharedHelpers::Never), GpuSet::EMPTY);
    }
}
