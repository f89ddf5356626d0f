//! Sizes and windows of messages between processes.

use clap::{Parser, ValueEnum};
use pathline_bench::{MessageGrid, SizeStep};

use super::CASES;
use super::units::count;

/// Ratio of neighbouring sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SizeRow {
    /// Powers of four.
    Pow4,
    /// Powers of two, as OSU uses.
    Pow2,
}

/// Sizes and windows of suites of messages and collectives.
#[derive(Debug, Clone, Copy, Parser)]
#[command(next_help_heading = CASES)]
pub(crate) struct MessageArgs {
    /// Sizes in suites of messages and collectives.
    #[arg(long, value_name = "STEP", default_value = "pow4")]
    sizes: SizeRow,
    /// Messages in flight at every size, as osu_bw's 64; by default 64 below 8 MiB and 4 from there on.
    #[arg(long, value_name = "NUMBER", value_parser = count::<1, 4096>, hide = true)]
    window: Option<u32>,
}

impl MessageArgs {
    /// The same for the plan.
    pub(crate) fn grid(self) -> MessageGrid {
        let step = match self.sizes {
            SizeRow::Pow4 => SizeStep::Four,
            SizeRow::Pow2 => SizeStep::Two,
        };
        MessageGrid { step, window: self.window }
    }
}
