//! Predicted over measured values: one figure for each unit, then the histogram of errors.

use std::collections::BTreeMap;

use pathline_published::score::ComparedRow;
use serde_json::{Value, json};

use super::data::{PageData, RunData};
use super::number::num;
use crate::scores::{signed, value as value_text};

/// Pictures of predicted values over `measured` ones (`published`, `measured`).
pub(super) fn pictures(compared: &[ComparedRow], measured: &str) -> PageData<'static> {
    let mut units: BTreeMap<&str, Vec<&ComparedRow>> = BTreeMap::new();
    for row in compared {
        units.entry(&row.unit).or_default().push(row);
    }
    // Links and hops are whole numbers, for which a scatter plot is useless.
    let mut units: Vec<(&str, Vec<&ComparedRow>)> =
        units.into_iter().filter(|(unit, rows)| !unit.is_empty() && rows.len() > 2).collect();
    units.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let figure = |(unit, rows): &(&str, Vec<&ComparedRow>)| {
        picture(("scatter", unit), unit, rows, measured, |row| row.predicted)
    };
    let mut pictures: Vec<Value> = units.iter().map(figure).collect();
    let own: Vec<&ComparedRow> = compared.iter().filter(|row| !row.data).collect();
    pictures.push(picture(("errors", "Errors"), "%", &own, measured, |row| row.error() * 100.0));
    PageData { runs: vec![RunData { simulated: true, pictures, ..RunData::default() }] }
}

/// A figure of kind `scatter` or `errors`, in the form of other figures.
fn picture(
    (kind, title): (&str, &str),
    unit: &str,
    rows: &[&ComparedRow],
    measured: &str,
    value: impl Fn(&ComparedRow) -> f64,
) -> Value {
    let mut classes: Vec<&str> = Vec::new();
    for row in rows {
        if !classes.contains(&row.class.as_str()) {
            classes.push(&row.class);
        }
    }
    let cell = |(i, row): (usize, &&ComparedRow)| {
        let class = classes.iter().position(|class| *class == row.class).unwrap_or(0);
        let with_unit = |text: &str| format!("{text} {}", row.unit);
        let data = row.data.then(|| json!(["model", "carries it as data"]));
        let mut facts = vec![
            json!(["predicted", with_unit(&num(row.predicted))]),
            json!([measured, with_unit(&value_text(&row.measured))]),
            json!(["error", signed(row.error())]),
        ];
        facts.extend(data);
        facts.extend([json!(["source", row.source]), json!(["formed as", row.how])]);
        json!({
            "at": [class, i], "row": row.class, "column": row.label, "x": row.measured.middle(),
            "value": value(row), "unit": unit, "better": "neither", "facts": facts,
        })
    };
    let cells: Vec<Value> = rows.iter().enumerate().map(cell).collect();
    json!({
        "id": format!("{kind} {unit}"), "suite": "", "title": title, "finding": "", "command": "",
        "kind": kind, "unit": unit, "better": "neither", "row_axis": "class", "column_axis": measured,
        "rows": classes, "cells": cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_published::RowValue;

    #[test]
    fn each_unit_has_a_picture_and_all_share_the_errors() {
        let row = |unit: &str, predicted, data| ComparedRow {
            label: "row".into(),
            class: "bandwidth".into(),
            predicted,
            measured: RowValue { low: 50.0, high: 50.0 },
            unit: unit.into(),
            source: "paper".into(),
            how: "case".into(),
            targets: vec![],
            data,
            held_out: false,
        };
        let rows = [
            row("GB/s", 51.0, false),
            row("GB/s", 50.0, false),
            row("GB/s", 49.0, true),
            row("us", 1.0, false),
        ];
        let data = pictures(&rows, "published");
        let pictures = &data.runs[0].pictures;
        // Three values make a picture, one does not; what the model carries has no error.
        let briefs: Vec<(&str, usize)> = pictures
            .iter()
            .map(|p| (p["kind"].as_str().unwrap(), p["cells"].as_array().unwrap().len()))
            .collect();
        assert_eq!(briefs, [("scatter", 3), ("errors", 3)]);
        // 51 over 50.
        assert!((pictures[1]["cells"][0]["value"].as_f64().unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(pictures[0]["cells"][0]["facts"][2][1], "+2.0 %");
    }
}
