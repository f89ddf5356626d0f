//! Sizes and windows of the suites of messages.

use pathline_schema::Bytes;

/// OSU's window: messages in flight of a pair.
pub(crate) const OSU_WINDOW: u32 = 64;
/// A window of large messages: its reply costs nothing in comparison.
const SMALL_WINDOW: u32 = 4;
/// From this size on messages are large.
const LARGE: Bytes = Bytes::mib(8);

/// Ratio of neighbouring sizes of a row of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SizeStep {
    /// 4: half as many cases as OSU's programs have.
    #[default]
    Four,
    /// 2, as OSU's programs.
    Two,
}

/// Sizes and windows of the suites of messages and collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageGrid {
    /// Ratio of neighbouring sizes.
    pub step: SizeStep,
    /// Messages in flight at every size; `None` is 64 below 8 MiB and 4 from there on, where 64 take
    /// up to 16 times as long and show the same rate.
    pub window: Option<u32>,
}

impl MessageGrid {
    /// From `from` on by the step, then `to`, in order.
    pub(crate) fn ascending(self, from: Bytes, to: Bytes) -> Vec<Bytes> {
        let factor = match self.step {
            SizeStep::Four => 4,
            SizeStep::Two => 2,
        };
        let next = |bytes: &Bytes| bytes.0.checked_mul(factor).map(Bytes);
        let row = std::iter::successors(Some(from), next).take_while(|&bytes| bytes < to);
        row.chain([to]).collect()
    }

    /// Messages in flight of a window of this size.
    pub(crate) fn window(self, bytes: Bytes) -> u32 {
        self.window.unwrap_or(if bytes < LARGE { OSU_WINDOW } else { SMALL_WINDOW })
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Rank, RankMember, Topology};

    use super::*;
    use crate::plan::RunPlan;
    use crate::scope::PlanScope;

    /// 1 B to 1 GiB are 2^0 to 2^30: 31 sizes by 2, 16 by 4.
    #[test]
    fn sizes_are_powers() {
        let rows = [(SizeStep::Two, 31), (SizeStep::Four, 16)];
        for (step, n) in rows {
            let sizes = MessageGrid { step, window: None }.ascending(Bytes(1), Bytes::gib(1));
            assert_eq!(sizes.len(), n);
            assert_eq!((sizes[0], sizes[n - 1]), (Bytes(1), Bytes::gib(1)));
        }
    }

    #[test]
    fn a_window_holds_for_every_size() {
        let usual = MessageGrid::default();
        assert_eq!((usual.window(Bytes::mib(4)), usual.window(Bytes::mib(8))), (64, 4));
        let osu = MessageGrid { window: Some(64), ..usual };
        assert_eq!((osu.window(Bytes(1)), osu.window(Bytes::gib(1))), (64, 64));
    }

    /// Of two processes without GPUs: one kind of memory, 31 sizes in both directions at once.
    #[test]
    fn suites_of_messages_follow_it() {
        let topology = Topology::default();
        let ranks = [0, 1].map(|rank| RankMember { rank: Rank(rank), ..RankMember::default() });
        let messages = MessageGrid { step: SizeStep::Two, window: Some(64) };
        let scope = PlanScope::new(&topology, Bytes::gib(1));
        let scope = PlanScope { ranks: &ranks, messages, ..scope };
        let plan = RunPlan::new(&scope, &["mpi-both-ways".to_owned()], &[]).unwrap();
        assert_eq!(plan.entries.len(), 31);
        let flows = plan.entries.iter().flat_map(|entry| &entry.case.timed);
        assert!(flows.clone().all(|flow| flow.by.to_string().ends_with("[send-w64]")));
        assert_eq!(flows.count(), 62);
    }
}
