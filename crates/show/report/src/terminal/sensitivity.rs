//! Which published rows hold which constants, on a terminal.

use std::collections::BTreeMap;

use pathline_published::{ClassIntervals, ConstantSensitivity, SensitivityReport};
use pathline_schema::ConstantOrigin;

use super::draw::{TermPage, TermPaint};
use pathline_explain::fmt;

/// The weakest origin first; constants without one last.
const ORIGINS: [(Option<ConstantOrigin>, &str); 5] = [
    (Some(ConstantOrigin::Assumed), "assumed"),
    (Some(ConstantOrigin::Data), "carried as data"),
    (Some(ConstantOrigin::Fitted), "fitted"),
    (Some(ConstantOrigin::Datasheet), "from data sheets"),
    (None, "without an origin"),
];

/// A summary at most `width` columns wide (72 to 200), in ANSI colours if `colour`: first the constants
/// that no row holds, then the rows that hold each of the others. `against` names the table.
pub fn summary(report: &SensitivityReport, against: &str, width: usize, colour: bool) -> String {
    let mut page = TermPage::new(width, TermPaint { colour });
    let all = report.constants.len();
    let unheld: Vec<&ConstantSensitivity> = report.unheld().collect();
    let title = format!(
        "pathline: no row of {against} holds {} of {} of {}",
        unheld.len(),
        fmt::count(all, "constant"),
        report.machine
    );
    page.wrapped(&page.paint.bold("!"), 1, &title);
    let rule = format!(
        "A row holds a constant if a change of the constant by 30 %, up or down, moves the row's \
         prediction by more than 1 % ({}).",
        fmt::count(report.rows, "row")
    );
    page.wrapped(&page.paint.dim("-"), 1, &rule);
    page.gap();
    for (origin, label) in ORIGINS {
        let keys: Vec<&str> = unheld
            .iter()
            .filter(|c| c.constant.origin == origin)
            .map(|c| c.constant.key.as_str())
            .collect();
        if !keys.is_empty() {
            page.heading(&format!("No row holds, {label}: {}", keys.len()), "");
            page.wrapped(" ", 1, &by_section(&keys));
            page.gap();
        }
    }
    write_held(&mut page, report);
    write_intervals(&mut page, report);
    let refused: Vec<String> = report.refused().map(|c| c.constant.key.clone()).collect();
    if !refused.is_empty() {
        let text =
            format!("Cannot change by 30 % and stay a valid machine: {}", fmt::list(&refused));
        page.wrapped(&page.paint.dim("-"), 1, &text);
    }
    page.finish()
}

/// Keys with the names of a section together: `time: blit_us, launch_us; cpu: copy_gbs`.
fn by_section(keys: &[&str]) -> String {
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for key in keys {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        sections.entry(section).or_default().push(name);
    }
    let parts: Vec<String> = sections
        .iter()
        .map(|(section, names)| format!("{section}: {}", names.join(", ")))
        .collect();
    parts.join("; ")
}

fn write_held(page: &mut TermPage, report: &SensitivityReport) {
    let held = report.held();
    if held.is_empty() {
        return;
    }
    page.heading("Rows that hold each constant", "");
    page.line(&page.paint.dim(" rows  d ln row / d ln  origin     constant: rows by class"));
    for c in held {
        let origin = c.constant.origin.map_or_else(String::new, |origin| origin.to_string());
        let classes: Vec<String> =
            c.held_by.iter().map(|(class, n)| format!("{n} {class}")).collect();
        let lead = format!(
            "{:>5}  {:>15}  {origin:<9}  {}: ",
            c.rows(),
            elasticity(c.largest),
            c.constant.key
        );
        page.line(&page.cut(&(lead + &classes.join(", "))));
    }
    page.gap();
}

/// How many published values the intervals have.
fn write_intervals(page: &mut TermPage, report: &SensitivityReport) {
    if report.intervals.is_empty() {
        return;
    }
    page.heading("Published values within the interval of their prediction", "");
    page.line(&page.paint.dim("rows  covered  slower by up to (median)  class"));
    let sum =
        |of: &dyn Fn(&ClassIntervals) -> usize| report.intervals.iter().map(of).sum::<usize>();
    for class in &report.intervals {
        let line = format!(
            "{:>4}  {:>7}  {:>23}  {}",
            class.n,
            class.covered,
            format!("a factor of {:.2}", class.slower),
            class.class
        );
        page.line(&page.cut(&line));
    }
    let (n, covered) = (sum(&|c| c.n), sum(&|c| c.covered));
    let share = fmt::percent(covered as f64 / n.max(1) as f64);
    page.line(&format!("{n:>4}  {covered:>7}  {:>23}  all: {share}", ""));
    page.gap();
}

fn elasticity(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "no value".to_owned() }
}
