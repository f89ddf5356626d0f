//! The page that compares runs.

use pathline_explain::diff::{CaseChange, ClassNoise, DiffRow, RunDiff, SideIdentity};
use pathline_explain::fmt;

use super::build::HtmlBuilder;
use super::data::PageData;
use super::page::{document, write_line};

/// Renders a comparison: runs, changes, noise allowance, and a row for each case that changed.
pub fn page(diff: &RunDiff) -> String {
    let [before, after] = &diff.sides;
    let title = format!("{} compared with {}", after.host, before.host);
    document(&title, &PageData::default(), |h| {
        h.el("main", &[("id", &"content"), ("class", &"top")], |h| {
            h.leaf("h1", &[], &title);
            write_answer(h, diff);
            h.leaf("h2", &[], "Runs");
            write_sides(h, diff, [before, after]);
            h.leaf("h2", &[], "Cases");
            write_rows(h, diff);
            h.leaf("h2", &[], "Noise between runs");
            write_noise(h, diff);
        });
    })
}

fn write_answer(h: &mut HtmlBuilder, diff: &RunDiff) {
    h.leaf("p", &[("class", &"lead")], diff.verdict());
    h.el("ul", &[("class", &"headlines")], |h| {
        for change in &diff.topology {
            write_line(h, if change.is_loss { "warn" } else { "plain" }, &change.text());
        }
        if !diff.action.is_empty() {
            write_line(h, "plain", &diff.action);
        }
        for group in &diff.groups {
            let tone = if group.change == CaseChange::Slower { "warn" } else { "good" };
            write_line(h, tone, &format!("{}: {}", group.change.word(), group.text()));
        }
        diff.rejected.iter().for_each(|records| write_line(h, "warn", records));
        write_line(h, "plain", &diff.false_changes());
        if let Some(cases) = diff.one_sided() {
            write_line(h, "plain", &cases);
        }
    });
}

fn write_sides(h: &mut HtmlBuilder, diff: &RunDiff, sides: [&SideIdentity; 2]) {
    let runs = vec!["runs".to_owned(), sides[0].text(), sides[1].text()];
    let differs = |(name, a, b): &(String, String, String)| {
        vec![format!("{name} differs"), a.clone(), b.clone()]
    };
    let rows = std::iter::once(runs).chain(diff.conditions.iter().map(differs));
    h.table("rows", &[("", ""), ("before", "words"), ("after", "words")], rows);
}

/// Cases of a common place below one another, then the others by their change.
fn write_rows(h: &mut HtmlBuilder, diff: &RunDiff) {
    if diff.rows.iter().all(|row| row.change == CaseChange::Same) {
        h.leaf("p", &[("class", &"nothing")], "All cases are the same within the tolerance.");
        return;
    }
    let mut left: Vec<bool> = diff.rows.iter().map(|row| row.change != CaseChange::Same).collect();
    for group in &diff.groups {
        let is_new = |at: &&usize| left.get(**at).copied().unwrap_or(false);
        let rows: Vec<usize> = group.rows.iter().filter(is_new).copied().collect();
        rows.iter().for_each(|at| left[*at] = false);
        let rows: Vec<&DiffRow> = rows.iter().filter_map(|at| diff.rows.get(*at)).collect();
        write_group(h, &format!("{}: {}", group.change.word(), group.text()), &rows);
    }
    let rest = diff.rows.iter().zip(&left).filter(|(_, left)| **left).map(|(row, _)| row);
    let rest: Vec<&DiffRow> = rest.collect();
    for rows in rest.chunk_by(|a, b| a.change == b.change) {
        let Some(first) = rows.first() else { continue };
        let cases =
            fmt::count(rows.len(), if diff.groups.is_empty() { "case" } else { "other case" });
        write_group(h, &format!("{}: {cases}", first.change.word()), rows);
    }
}

/// Rows under a line that folds them.
fn write_group(h: &mut HtmlBuilder, title: &str, rows: &[&DiffRow]) {
    let columns = [
        ("", ""),
        ("speed [95 %]", "n"),
        ("before", "n"),
        ("after", "n"),
        ("", ""),
        ("runs", "n"),
        ("visible", "n"),
        ("case", "words"),
        ("why", "words"),
    ];
    if rows.is_empty() {
        return;
    }
    h.el("details", &[("class", &"group")], |h| {
        h.leaf("summary", &[], title);
        h.table("rows compared", &columns, rows.iter().map(|row| row_texts(row)));
    });
}

fn row_texts(row: &DiffRow) -> Vec<String> {
    let value = |v: Option<f64>| v.map_or(String::new(), fmt::number);
    vec![
        row.change.word().to_owned(),
        row.effect_text(),
        value(row.a),
        value(row.b),
        row.unit.to_owned(),
        format!("{}, {}", row.runs.0, row.runs.1),
        if row.effect.is_some() { fmt::percent(row.visible) } else { String::new() },
        row.case.to_string(),
        row.why.clone(),
    ]
}

fn write_noise(h: &mut HtmlBuilder, diff: &RunDiff) {
    let row = |noise: &ClassNoise| {
        vec![
            noise.class.clone(),
            noise.cases.to_string(),
            format!("{:.2} %", noise.deviation * 100.0),
            noise.visible_text(),
            noise.origin.clone(),
        ]
    };
    let columns =
        [("class", ""), ("cases", "n"), ("deviation", "n"), ("visible", "n"), ("origin", "words")];
    h.table("rows", &columns, diff.noise.iter().map(row));
    let note = "Visible is the smallest slowdown that is found 19 times in 20. More runs a side make it \
                smaller: pathline run --repeat.";
    h.leaf("p", &[], note);
    if let Some(repeats) = &diff.repeats {
        h.leaf("p", &[], repeats.text());
    }
}
