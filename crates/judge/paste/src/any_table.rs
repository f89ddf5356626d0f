//! Tables of rates or counts, by the readers of single tools and then by the one of all others.

use crate::clean::PasteLine;
use crate::plain_rows::PlainTable;
use crate::{iperf, mdtest, nvlink_state, plain_table};

/// A table that begins here, and the line after it.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    iperf::read(lines, at)
        .or_else(|| nvlink_state::nvlink_state(lines, at))
        .or_else(|| nvlink_state::dcgm_state(lines, at))
        .or_else(|| mdtest::read(lines, at))
        .or_else(|| plain_table::read(lines, at))
}
