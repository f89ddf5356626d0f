//! The page that compares predictions with published values.

use pathline_published::score::{ClassErrors, ComparedRow};
use pathline_published::{RowClass, RowContradiction, ValidationReport};

use super::build::{HtmlBuilder, TableColumn};
use super::number::num;
use super::page::{comparison, write_figures, write_line};
use super::scatter::pictures;
use crate::scores::{
    contradiction, farthest, reasons, share, signed, targets_lines, untargeted, value as value_text,
};
use pathline_explain::fmt;

/// The page: targets, pictures, tables. `against` names the table.
pub fn page(report: &ValidationReport, against: &str) -> String {
    let note =
        format!("Predictions of the model of {}, compared with published values.", report.machine);
    // Facts about the wiring are on the line by construction.
    let facts = RowClass::Fact.name();
    let drawn: Vec<ComparedRow> =
        report.compared.iter().filter(|c| c.class != facts).cloned().collect();
    let data = pictures(&drawn, "published");
    comparison((&report.machine, against), ("Simulated", &note), &data, |h| {
        write_targets(h, report);
        h.leaf("h2", &[], "Predicted against published");
        write_figures(h, &data);
        write_tables(h, report);
    })
}

fn write_targets(h: &mut HtmlBuilder, report: &ValidationReport) {
    let data = report.compared.iter().filter(|c| c.data).count();
    let lead = format!(
        "{} compared, {} left out; {} the model carries as data, which count for no target",
        fmt::count(report.compared.len(), "row"),
        report.left_out.len(),
        fmt::count(data, "value")
    );
    h.leaf("p", &[("class", &"lead")], lead);
    h.el("ul", &[("class", &"headlines")], |h| {
        let untargeted = untargeted(report).map(|text| (None, text));
        for (met, text) in targets_lines(&report.judged).into_iter().chain(untargeted) {
            let tone = match met {
                Some(true) => "good",
                Some(false) => "warn",
                None => "plain",
            };
            write_line(h, tone, &text);
        }
    });
}

fn write_tables(h: &mut HtmlBuilder, report: &ValidationReport) {
    h.leaf("h2", &[], "Errors by class");
    write_classes(h, &report.classes);
    h.leaf("h2", &[], "Every row, the farthest first");
    write_rows(h, &report.compared);
    if !report.contradictions.is_empty() {
        h.leaf("h2", &[], "Published values that contradict each other");
        write_contradictions(h, &report.contradictions);
    }
    if !report.left_out.is_empty() {
        h.leaf("h2", &[], "Left out");
        write_left_out(h, report);
    }
}

/// Columns of a table of errors, after the name of the class.
pub(super) const ERRORS: [TableColumn<'static>; 4] =
    [("rows", "n"), ("median", "n"), ("p95", "n"), ("worst", "n")];

/// The cells of a class in a table of errors.
pub(super) fn error_texts(c: &ClassErrors) -> Vec<String> {
    let errors = [c.median, c.p95, c.worst].map(share);
    [vec![c.name.clone(), c.n.to_string()], errors.to_vec()].concat()
}

fn write_classes(h: &mut HtmlBuilder, classes: &[ClassErrors]) {
    let columns = [&[("class", "")], &ERRORS[..], &[("which", "words")]].concat();
    let row = |c: &ClassErrors| [error_texts(c), vec![c.worst_label.clone()]].concat();
    h.table("rows", &columns, classes.iter().map(row));
}

fn write_rows(h: &mut HtmlBuilder, compared: &[ComparedRow]) {
    let columns = [
        ("row", ""),
        ("error", "n"),
        ("predicted", "n"),
        ("published", "n"),
        ("", ""),
        ("class", ""),
        ("source", "words"),
        ("formed as", "words case"),
    ];
    let row = |c: &ComparedRow| {
        let values = [signed(c.error()), num(c.predicted), value_text(&c.measured)];
        let texts = [&c.unit, &c.class, &c.source, &c.how].map(Clone::clone);
        [vec![c.label.clone()], values.to_vec(), texts.to_vec()].concat()
    };
    h.table("rows compared", &columns, farthest(compared).into_iter().map(row));
}

fn write_contradictions(h: &mut HtmlBuilder, all: &[RowContradiction]) {
    h.leaf(
        "p",
        &[],
        "Rows that ask the same of the hardware and cannot both be right for one machine: of one \
         size with two values, or a smaller transfer at the higher rate.",
    );
    h.el("ul", &[], |h| {
        for c in all {
            h.leaf("li", &[], contradiction(c));
        }
    });
}

fn write_left_out(h: &mut HtmlBuilder, report: &ValidationReport) {
    for (reason, rows) in reasons(report) {
        h.el("details", &[("class", &"group")], |h| {
            h.el("summary", &[], |h| {
                h.leaf("b", &[("class", &"n")], rows.len()).text(" ");
                h.text(reason);
            });
            h.el("ul", &[], |h| {
                for row in rows {
                    h.leaf("li", &[], format!("line {}: {}", row.line, row.label));
                }
            });
        });
    }
}
