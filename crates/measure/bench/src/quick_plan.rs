//! The main cases of a plan.

use pathline_schema::{MemKind, Mover, SuiteId};

use crate::plan::{PlannedCase, RunPlan, is_host_copy, number_groups};

impl RunPlan {
    /// The main paths alone: pinned memory to and from each GPU and copies between GPUs, by copy engine, in
    /// large and in 16 B copies; of the host the largest copies, reads and pointer chases.
    pub fn quick(self) -> Self {
        let largest = self.entries.iter().flat_map(|e| &e.case.timed);
        let largest = largest.filter(|f| is_host_copy(f)).map(|f| f.bytes).max();
        let is_main = |entry: &PlannedCase| {
            let [flow] = entry.case.timed.as_slice() else { return false };
            let is = |suite: SuiteId| entry.suites.iter().any(|s| s == suite.word());
            let copy = matches!(flow.by, Mover::Dma { .. }) && entry.case.background.is_empty();
            let pinned = [flow.src, flow.dst].iter().any(|place| place.mem == MemKind::Pinned);
            let push = flow.by.at() == flow.src.unit;
            (is(SuiteId::HostLink) && copy && pinned)
                || (is(SuiteId::Pairs) && copy && push)
                || (is(SuiteId::Latency) && copy)
                || (is(SuiteId::Host) && is_host_copy(flow) && Some(flow.bytes) == largest)
        };
        let mut entries: Vec<_> = self.entries.into_iter().filter(is_main).collect();
        number_groups(&mut entries);
        Self { entries }
    }
}
