//! What a report shows, by name.

use pathline_explain::figure::{Figure, FigureBody, FigureCell, RunReport};
use pathline_explain::run_report;
use pathline_flow::Network;
use pathline_schema::Journal;

/// The report of a journal, with the ceilings of its topology.
pub(crate) fn built(journal: &Journal) -> RunReport {
    run_report::build(journal, Some(&Network::from_topology(&journal.topology)))
}

pub(crate) fn figure<'a>(report: &'a RunReport, id: &str) -> &'a Figure {
    let ids: Vec<&str> = report.figures.iter().map(|f| f.id.as_str()).collect();
    report.figures.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no {id} in {ids:?}"))
}

pub(crate) fn point<'a>(figure: &'a Figure, line: &str, x: f64) -> &'a FigureCell {
    let FigureBody::Curves(curves) = &figure.body else { panic!("{} has no curves", figure.id) };
    let names: Vec<&str> = curves.lines.iter().map(|l| l.name.as_str()).collect();
    let found = curves.lines.iter().find(|l| l.name == line);
    let found = found.unwrap_or_else(|| panic!("no {line} in {names:?}"));
    &found.points.iter().find(|p| p.0 == x).unwrap_or_else(|| panic!("{found:?}")).1
}

pub(crate) fn bar<'a>(figure: &'a Figure, label: &str) -> &'a FigureCell {
    let FigureBody::Bars(bars) = &figure.body else { panic!("{} has no bars", figure.id) };
    let names: Vec<&str> = bars.bars.iter().map(|b| b.label.as_str()).collect();
    &bars.bars.iter().find(|b| b.label == label).unwrap_or_else(|| panic!("{names:#?}")).cell
}

pub(crate) fn in_sheet<'a>(
    figure: &'a Figure,
    row: &str,
    column: &str,
    unit: &str,
) -> &'a FigureCell {
    let FigureBody::Sheet(sheet) = &figure.body else { panic!("{} has no sheet", figure.id) };
    let names: Vec<&str> = sheet.rows.iter().map(|r| r.0.as_str()).collect();
    let row = sheet.rows.iter().find(|r| r.0 == row).unwrap_or_else(|| panic!("{names:?}"));
    let at = sheet.columns.iter().position(|c| c.name == column && c.unit == unit);
    &row.1[at.unwrap_or_else(|| panic!("{:?}", sheet.columns))]
}

/// To the last digits that sums of floats leave.
#[track_caller]
pub(crate) fn close(value: Option<f64>, expected: f64) {
    let value = value.expect("a value");
    assert!((value / expected - 1.0).abs() < 1e-6, "{value}, not {expected}");
}

/// By half a percent.
#[track_caller]
pub(crate) fn near(value: Option<f64>, expected: f64) {
    let value = value.expect("a value");
    assert!((value / expected - 1.0).abs() < 0.005, "{value} is not {expected}");
}

/// Buckets of latencies are 1/64 of an octave wide.
#[track_caller]
pub(crate) fn near_bucket(value: Option<f64>, expected: f64) {
    let value = value.expect("a value");
    assert!((value / expected - 1.0).abs() < 0.016, "{value}, not {expected}");
}
