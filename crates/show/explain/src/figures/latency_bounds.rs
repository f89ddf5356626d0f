//! Latency bounds of collectives: what the runtime's copies would take for the passes of an operation.

use pathline_message::passes;
use pathline_schema::{Case, Collective, MemKind};

use super::{Figure, FigureBody};
use crate::fmt;
use crate::run::RunView;

/// The least time of collectives that are made of the runtime's copies, by number of passes. Host
/// memory and flags of kernels can be below it, so it is a line of the figure and bounds no result.
pub(super) struct LatencyBounds {
    /// Passes and us, ascending.
    levels: Vec<(u32, f64)>,
}

impl LatencyBounds {
    /// The bounds of the operations of some cases; none of host memory, and none where no latency of a
    /// copy is known.
    pub(super) fn new<'c>(
        run: &RunView,
        cases: impl Iterator<Item = (Collective, &'c Case)>,
    ) -> Self {
        let of_device =
            cases.filter(|(_, case)| case.timed.iter().all(|f| f.src.mem == MemKind::Vram));
        let mut levels: Vec<(u32, f64)> = of_device
            .filter_map(|(op, case)| {
                let latency = run.time_bounds(case)?.latency.0 / 1e3;
                (latency > 0.0).then_some((passes(op), latency))
            })
            .collect();
        levels.sort_by(|a, b| a.1.total_cmp(&b.1));
        levels.dedup_by_key(|level| level.0);
        Self { levels }
    }

    /// ` With a copy by the runtime in each pass it would take at least 8.70 us for 1 pass and 17.4 us for 2.`
    pub(super) fn text(&self) -> String {
        let level = |(passes, us): &(u32, f64)| {
            format!("{} us for {}", fmt::number(*us), pass_count(*passes))
        };
        let texts = fmt::list_any(self.levels.iter().map(level));
        texts.map_or(String::new(), |texts| {
            format!(" With a copy by the runtime in each pass it would take at least {texts}.")
        })
    }

    /// A name and a time in us for each bound: `2 passes of the smallest copy`.
    pub(super) fn levels(&self) -> Vec<(String, f64)> {
        let line = |(passes, us): &(u32, f64)| {
            (format!("{} of the smallest copy", pass_count(*passes)), *us)
        };
        self.levels.iter().map(line).collect()
    }

    /// A figure of times with a line for each bound.
    pub(super) fn drawn_in(&self, mut figure: Figure) -> Figure {
        if let FigureBody::Curves(curves) = &mut figure.body {
            curves.ceilings.extend(self.levels());
        }
        figure
    }
}

fn pass_count(passes: u32) -> String {
    if passes == 1 { "1 pass".to_owned() } else { format!("{passes} passes") }
}
