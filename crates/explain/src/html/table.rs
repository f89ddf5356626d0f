//! The numbers of a figure as a table.

use super::build::Html;
use super::cell::{Entry, Judge, deviation, half_width, value};
use super::number::{count, num, percent, signed_percent};
use crate::figure::{Better, Cell, Suspicion};

type CellText = Box<dyn Fn(&Cell) -> Option<String>>;

/// An optional column: heading, and its text for a cell.
struct Column {
    heading: String,
    class: &'static str,
    text: CellText,
}

impl Column {
    fn new(
        heading: impl Into<String>,
        class: &'static str,
        text: impl Fn(&Cell) -> Option<String> + 'static,
    ) -> Self {
        Self { heading: heading.into(), class, text: Box::new(text) }
    }
}

fn columns(judge: Judge<'_>) -> Vec<Column> {
    let share_name = if judge.better == Better::Lower { "bound / value" } else { "of ceiling" };
    let plain = Judge { unit: "", better: judge.better };
    let share = move |c: &Cell| plain.share(c).map(percent);
    let median = match judge.unit {
        "" => "median".to_owned(),
        unit => format!("median, {unit}"),
    };
    vec![
        Column::new(median, "n", move |c| value(c).map(|v| plain.num(v))),
        Column::new("± 95 %", "n", |c| value(c).and(half_width(c)).map(num)),
        Column::new("ceiling", "n", |c| c.ceiling.map(num)),
        Column::new(share_name, "n", share),
        Column::new("tighter bound", "n", |c| c.bound.map(num)),
        Column::new("bound by", "words", |c| {
            c.way.as_ref().and_then(|w| w.losses.last()).map(|l| l.why.clone())
        }),
        Column::new("route", "", |c| c.way.as_ref().map(|w| w.route.clone())),
        Column::new("narrowest hop", "", |c| c.way.as_ref().map(|w| w.narrowest.clone())),
        Column::new("published", "n", |c| c.published.as_ref().map(|p| num(p.value))),
        Column::new("measured − published", "n", |c| deviation(c).map(signed_percent)),
        Column::new("source", "", |c| c.published.as_ref().map(|p| p.source.clone())),
        Column::new("not to be relied on", "words", |c| c.suspect.as_ref().map(Suspicion::text)),
        Column::new("no value because", "words", |c| c.absent.clone()),
        Column::new("case", "case", |c| c.case.as_ref().map(ToString::to_string)),
    ]
}

/// Writes the table, folded, without columns that would be empty.
pub(super) fn write(h: &mut Html, entries: &[Entry<'_>], keys: &[String], judge: Judge<'_>) {
    if entries.is_empty() {
        return;
    }
    let used: Vec<Column> = columns(judge)
        .into_iter()
        .filter(|column| entries.iter().any(|e| (column.text)(e.cell).is_some()))
        .collect();
    let measured = entries.iter().filter(|e| value(e.cell).is_some()).count();
    let mut summary = format!("Table and case texts: {}", count(measured, "value"));
    if measured < entries.len() {
        summary += &format!(", {} not measured", entries.len() - measured);
    }
    h.el("details", &[("class", &"data")], |h| {
        h.leaf("summary", &[], summary);
        h.el("p", &[("class", &"tools")], |h| {
            h.trusted(
                "<button type=\"button\" class=\"js\" data-copy=\"table\">Copy table</button> ",
            );
            h.trusted(
                "<button type=\"button\" class=\"js\" data-copy=\"cases\">Copy case texts</button>",
            );
        });
        h.el("div", &[("class", &"scroll tall")], |h| {
            h.el("table", &[("class", &"rows")], |h| {
                write_head(h, keys, &used);
                h.el("tbody", &[], |h| {
                    for entry in entries {
                        write_row(h, entry, &used);
                    }
                });
            });
        });
    });
}

fn write_head(h: &mut Html, keys: &[String], columns: &[Column]) {
    h.el("thead", &[], |h| {
        h.el("tr", &[], |h| {
            for key in keys {
                h.leaf("th", &[("scope", &"col")], key);
            }
            for column in columns {
                h.leaf("th", &[("scope", &"col"), ("class", &column.class)], &column.heading);
            }
        });
    });
}

fn write_row(h: &mut Html, entry: &Entry<'_>, columns: &[Column]) {
    h.el("tr", &[], |h| {
        for (i, key) in entry.keys.iter().enumerate() {
            match i {
                0 => h.leaf("th", &[("scope", &"row")], key),
                _ => h.leaf("td", &[], key),
            };
        }
        for column in columns {
            let text = (column.text)(entry.cell).unwrap_or_default();
            h.leaf("td", &[("class", &column.class)], text);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_are_left_out() {
        let measured = Cell { value: Some(2.0), ceiling: Some(4.0), ..Cell::default() };
        let absent = Cell { absent: Some("no GPU".into()), ..Cell::default() };
        let entries = [
            Entry { keys: vec!["a".into()], place: "a".into(), cell: &measured },
            Entry { keys: vec!["b".into()], place: "b".into(), cell: &absent },
        ];
        let judge = Judge { unit: "GB/s", better: Better::Higher };
        let mut h = Html::default();
        write(&mut h, &entries, &["what".into()], judge);
        let page = h.finish();
        assert!(page.contains("1 value, 1 not measured"), "{page}");
        assert!(page.contains(">median, GB/s<") && page.contains(">50 %<"));
        assert!(!page.contains("published") && !page.contains("tighter bound"));
    }
}
