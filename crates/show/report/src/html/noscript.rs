//! Figures as plain tables, for readers without scripts.

use std::collections::BTreeMap;

use pathline_findings::{DerivedCell, DerivedFigure};

use super::build::{HtmlBuilder, TableColumn, anchor};
use super::number::num;

/// Writes a table for each figure: a row for each of its rows, a column for each place on the other axis.
pub(super) fn write(h: &mut HtmlBuilder, name: &str, figures: &[DerivedFigure<'_>]) {
    for figure in figures {
        h.el("section", &[("id", &anchor(&format!("{name} {}", figure.id)))], |h| {
            let run = if name.is_empty() { String::new() } else { format!("{name}: ") };
            h.leaf("h3", &[], format!("{run}{}", figure.title));
            h.leaf("p", &[], figure.finding);
            write_table(h, figure);
            h.command(figure.command);
        });
    }
}

fn write_table(h: &mut HtmlBuilder, figure: &DerivedFigure<'_>) {
    let mut columns: Vec<&str> = Vec::new();
    for cell in &figure.cells {
        if !columns.contains(&cell.column.as_str()) {
            columns.push(&cell.column);
        }
    }
    let mut rows: BTreeMap<usize, (&str, Vec<String>)> = BTreeMap::new();
    for cell in &figure.cells {
        let Some(column) = columns.iter().position(|column| *column == cell.column) else {
            continue;
        };
        let blank = || (cell.row.as_str(), vec![String::new(); columns.len()]);
        let (_, texts) = rows.entry(cell.at.0).or_insert_with(blank);
        if let Some(text) = texts.get_mut(column) {
            *text = cell_text(cell, figure.unit);
        }
    }
    let heads: Vec<TableColumn<'_>> = std::iter::once((figure.unit, ""))
        .chain(columns.iter().map(|column| (*column, "n")))
        .collect();
    let rows = rows.into_values().map(|(row, texts)| [vec![row.to_owned()], texts].concat());
    h.table("rows", &heads, rows);
}

/// `37.8`, with the mark of a suspect value, and the unit if it is not that of the figure.
fn cell_text(cell: &DerivedCell<'_>, unit: &str) -> String {
    let Some(value) = cell.value else { return "–".to_owned() };
    let mark = cell.mark.map(String::from).unwrap_or_default();
    let unit = if cell.unit == unit { String::new() } else { format!(" {}", cell.unit) };
    format!("{}{mark}{unit}", num(value))
}
