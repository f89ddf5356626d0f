//! Managed memory: in place, during migration, and after it.

use pathline_schema::{Bytes, Flow, MigrateHow, Mover, SuiteId};

use super::pivot::GBS;
use super::{FigureCell, SuiteFindings, end_name, frame, lines};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Managed;

fn path(flow: &Flow) -> Option<String> {
    let (from, to) = (end_name(flow.src.unit), end_name(flow.dst.unit));
    Some(match flow.by {
        Mover::Migrate { how: MigrateHow::Fault, .. } => format!("{from} to {to}, page faults"),
        Mover::Migrate { how: MigrateHow::Prefetch, .. } => format!("{from} to {to}, prefetch"),
        Mover::Kernel { at, .. } if at == flow.src.unit => format!("{at} reads resident pages"),
        Mover::Kernel { at, .. } => format!("{at} reads the host's in place"),
        _ => return None,
    })
}

/// Name of the path, size, rate.
type SizedCell = (String, Bytes, FigureCell);

fn points(run: &RunView) -> Vec<SizedCell> {
    run.suite(SUITE)
        .filter_map(|e| {
            let flow = e.lone()?;
            // Ceilings differ by path, so only the cells have them.
            Some((path(flow)?, flow.bytes, run.cell(e, CaseQuantity::Payload)))
        })
        .collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let points = points(run);
    let sentence = sentence(&points);
    let named = points.into_iter().map(|(name, bytes, cell)| (name, bytes.as_f64(), cell));
    let finding = |_: &_| sentence.clone().unwrap_or_default();
    let framed = frame(run, (SUITE, ""), SUITE.word(), "Managed memory, by size");
    SuiteFindings::new(framed.draw_lines("B", GBS, lines(named), finding), [sentence.clone()])
}

/// Rates of the largest size, by path.
fn sentence(points: &[SizedCell]) -> Option<String> {
    let largest = points.iter().map(|p| p.1).max()?;
    let part = |what: &str, want: &dyn Fn(&str) -> bool| {
        let found = points.iter().find(|p| p.1 == largest && want(&p.0))?;
        Some(format!("{} {what}", fmt::gbs(found.2.value?)))
    };
    let parts = [
        part("read where it is", &|w| w.ends_with("in place")),
        part("moved in by faults", &|w| w.starts_with("host to") && w.ends_with("faults")),
        part("by prefetch", &|w| w.starts_with("host to") && w.ends_with("prefetch")),
        part("back by prefetch", &|w| w.contains("to host")),
        part("read after migration", &|w| w.ends_with("resident pages")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let size = largest.rounded();
    (parts.len() > 1).then(|| format!("Managed memory, {size}: {}.", fmt::list(&parts)))
}
