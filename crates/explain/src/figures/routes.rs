//! Which links a routed copy uses: loading one of them slows it down.

use pathline_schema::Flow;

use super::{Bar, Bars, Better, Body, Cell, Figure};
use crate::run::{Entry, Quantity, Run};
use crate::words;

const SUITE: &str = "routes";

/// A load counts as felt from this loss on: well above the noise of a copy, well below the half
/// that an equal flow on the same link takes.
const FELT: f64 = 0.1;

/// A copy beside a load on one link.
#[derive(Debug, Clone)]
pub(crate) struct Slowdown<'a> {
    pub(crate) timed: &'a Flow,
    pub(crate) load: &'a Flow,
    pub(crate) entry: Entry<'a>,
    pub(crate) alone: f64,
    pub(crate) loaded: f64,
}

impl Slowdown<'_> {
    /// Whether the load slows the copy: they share a link.
    pub(crate) fn shared(&self) -> bool {
        self.loaded < (1.0 - FELT) * self.alone
    }
}

/// What the suite measured, in the order of the run.
pub(crate) fn slowdowns<'a>(run: &Run<'a>) -> Vec<Slowdown<'a>> {
    run.suite(SUITE)
        .filter_map(|entry| {
            let ([timed], [load]) = (entry.case.timed.as_slice(), entry.case.background.as_slice())
            else {
                return None;
            };
            let alone = run
                .entries
                .iter()
                .find(|e| e.lone() == Some(timed) && e.case.cadence == entry.case.cadence)?;
            Some(Slowdown {
                timed,
                load,
                entry: *entry,
                alone: run.value(alone, Quantity::Payload)?,
                loaded: run.value(entry, Quantity::Payload)?,
            })
        })
        .collect()
}

/// The most bars of the figure: the loads that are felt come first.
const MOST_BARS: usize = 48;

pub(super) fn figures(run: &Run) -> Option<Figure> {
    let mut found = slowdowns(run);
    if found.is_empty() {
        return None;
    }
    let felt = found.iter().filter(|s| s.shared()).count();
    let all = found.len();
    found.sort_by_key(|s| (s.timed.src, s.timed.dst, !s.shared()));
    found.retain(|s| all <= MOST_BARS || s.shared());
    let bars: Vec<Bar> = found
        .iter()
        .take(MOST_BARS)
        .map(|s| Bar {
            label: format!(
                "{} to {} beside {} to {}",
                s.timed.src.unit, s.timed.dst.unit, s.load.src.unit, s.load.dst.unit
            ),
            cell: Cell {
                ceiling: Some(s.alone),
                bound: None,
                ..run.cell(&s.entry, Quantity::Payload)
            },
        })
        .collect();
    Some(Figure {
        id: "routes".into(),
        suite: SUITE.into(),
        title: "Copies beside a load on one link; the ceiling is the copy alone".into(),
        finding: format!(
            "{} of {} are felt (more than {} lost): those links lie on the copy's route.",
            felt,
            words::count(all, "load"),
            words::percent(FELT)
        ),
        command: run.command(SUITE, ""),
        body: Body::Bars(Bars { unit: "GB/s".into(), bars, better: Better::Higher }),
    })
}
