//! Managed memory: in place, during migration, and after it.

use pathline_schema::{Bytes, Flow, MigrateHow, Mover, SuiteId, Unit};

use super::{BetterWhen, CurvesBody, Figure, FigureCell, SuiteFindings, frame, lines};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Managed;

fn path(flow: &Flow) -> Option<String> {
    let end = |unit: Unit| if unit.numa().is_some() { "host".to_owned() } else { unit.to_string() };
    let (from, to) = (end(flow.src.unit), end(flow.dst.unit));
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
    SuiteFindings::new(figure(run, points, sentence.clone()), [sentence])
}

fn figure(run: &RunView, points: Vec<SizedCell>, finding: Option<String>) -> Option<Figure> {
    let named = points.into_iter().map(|(name, bytes, cell)| (name, bytes.as_f64(), cell));
    let lines = lines(named);
    (!lines.is_empty()).then(|| {
        frame(run, (SUITE, ""), SUITE.word(), "Managed memory, by size")
            .finding(finding.unwrap_or_default())
            .draw(CurvesBody::new("B", ("GB/s", BetterWhen::Higher), lines))
    })
}

/// Rates of the largest size, by path.
fn sentence(points: &[SizedCell]) -> Option<String> {
    let largest = points.iter().map(|p| p.1).max()?;
    let value = |want: &dyn Fn(&str) -> bool| {
        points.iter().find(|p| p.1 == largest && want(&p.0)).and_then(|p| p.2.value)
    };
    let parts: Vec<String> = [
        ("read where it is", value(&|w| w.ends_with("in place"))),
        ("moved in by faults", value(&|w| w.starts_with("host to") && w.ends_with("faults"))),
        ("by prefetch", value(&|w| w.starts_with("host to") && w.ends_with("prefetch"))),
        ("back by prefetch", value(&|w| w.contains("to host"))),
        ("read after migration", value(&|w| w.ends_with("resident pages"))),
    ]
    .into_iter()
    .filter_map(|(what, value)| Some(format!("{} {what}", fmt::gbs(value?))))
    .collect();
    let size = largest.rounded();
    (parts.len() > 1).then(|| format!("Managed memory, {size}: {}.", fmt::list(&parts)))
}
