//! The values of a figure as a table.

use super::build::HtmlBuilder;
use super::cell::{CellEntry, CellJudge, deviation, half_width, value};
use super::number::{count, num, percent, signed_percent};
use pathline_explain::figure::{BetterWhen, FigureCell, Suspicion};

/// Number of rows from which a text common to all of them is not repeated.
const MANY: usize = 4;

type CellText = Box<dyn Fn(&FigureCell) -> Option<String>>;

/// An optional column: heading, and its text for a cell.
struct TableColumn {
    heading: String,
    class: &'static str,
    text: CellText,
}

impl TableColumn {
    fn new(
        heading: impl Into<String>,
        class: &'static str,
        text: impl Fn(&FigureCell) -> Option<String> + 'static,
    ) -> Self {
        Self { heading: heading.into(), class, text: Box::new(text) }
    }
}

fn columns(judge: CellJudge<'_>) -> Vec<TableColumn> {
    let share_name = if judge.better == BetterWhen::Lower { "bound / value" } else { "of ceiling" };
    let plain = CellJudge::new("", judge.better);
    let share = move |c: &FigureCell| plain.share(c).map(percent);
    let median = match judge.unit {
        "" => "median".to_owned(),
        unit => format!("median, {unit}"),
    };
    vec![
        TableColumn::new(median, "n", move |c| value(c).map(|v| plain.num(v))),
        TableColumn::new("± 95 %", "n", |c| value(c).and(half_width(c)).map(num)),
        TableColumn::new("ceiling", "n", |c| c.ceiling.map(num)),
        TableColumn::new(share_name, "n", share),
        TableColumn::new("tighter bound", "n", |c| c.bound.map(num)),
        TableColumn::new("bound by", "words", |c| {
            c.path.as_ref().and_then(|w| w.losses.last()).map(|l| l.why.clone())
        }),
        TableColumn::new("route", "", |c| c.path.as_ref().map(|w| w.route.clone())),
        TableColumn::new("narrowest hop", "", |c| c.path.as_ref().map(|w| w.narrowest.clone())),
        TableColumn::new("published", "n", |c| c.published.as_ref().map(|p| num(p.value))),
        TableColumn::new("measured − published", "n", |c| deviation(c).map(signed_percent)),
        TableColumn::new("source", "", |c| c.published.as_ref().map(|p| p.source.clone())),
        TableColumn::new("suspect", "words", |c| c.suspect.as_ref().map(Suspicion::text)),
        TableColumn::new("no value because", "words", |c| c.absent.clone()),
        TableColumn::new("case", "case", |c| c.case.as_ref().map(ToString::to_string)),
    ]
}

/// Writes the table, folded, without empty columns.
pub(super) fn write(
    h: &mut HtmlBuilder,
    entries: &[CellEntry<'_>],
    keys: &[String],
    judge: CellJudge<'_>,
) {
    if entries.is_empty() {
        return;
    }
    let used: Vec<TableColumn> = columns(judge)
        .into_iter()
        .filter(|column| entries.iter().any(|e| (column.text)(e.cell).is_some()))
        .collect();
    // A text common to all rows appears once, above them.
    let shared = |column: &TableColumn| {
        let first = (column.text)(entries.first()?.cell)?;
        let is_text = column.class != "n" && column.class != "case" && entries.len() >= MANY;
        let same = entries.iter().all(|e| (column.text)(e.cell).as_ref() == Some(&first));
        (is_text && same).then_some(first)
    };
    let (common, used): (Vec<_>, Vec<_>) = used
        .into_iter()
        .map(|column| (shared(&column), column))
        .partition(|(text, _)| text.is_some());
    let used: Vec<TableColumn> = used.into_iter().map(|(_, column)| column).collect();
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
        for (text, column) in &common {
            let text = text.as_deref().unwrap_or_default();
            h.leaf("p", &[("class", &"common")], format!("All rows: {}: {text}", column.heading));
        }
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

fn write_head(h: &mut HtmlBuilder, keys: &[String], columns: &[TableColumn]) {
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

fn write_row(h: &mut HtmlBuilder, entry: &CellEntry<'_>, columns: &[TableColumn]) {
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
        let measured = FigureCell { value: Some(2.0), ceiling: Some(4.0), ..FigureCell::default() };
        let absent = FigureCell { absent: Some("no GPU".into()), ..FigureCell::default() };
        let entries = [
            CellEntry { keys: vec!["a".into()], place: "a".into(), cell: &measured },
            CellEntry { keys: vec!["b".into()], place: "b".into(), cell: &absent },
        ];
        let judge = CellJudge::new("GB/s", BetterWhen::Higher);
        let mut h = HtmlBuilder::default();
        write(&mut h, &entries, &["what".into()], judge);
        let page = h.finish();
        assert!(page.contains("1 value, 1 not measured"), "{page}");
        assert!(page.contains(">median, GB/s<") && page.contains(">50 %<"));
        assert!(!page.contains("published") && !page.contains("tighter bound"));
    }

    #[test]
    fn a_source_of_all_rows_stands_once() {
        use pathline_explain::figure::{PublishedValue, SourceKind};
        let published =
            PublishedValue { value: 2.0, kind: SourceKind::Paper, source: "paper".into() };
        let cell =
            FigureCell { value: Some(2.0), published: Some(published), ..FigureCell::default() };
        let entry =
            |n: usize| CellEntry { keys: vec![n.to_string()], place: n.to_string(), cell: &cell };
        let page = |rows: usize| {
            let entries: Vec<CellEntry<'_>> = (0..rows).map(entry).collect();
            let mut h = HtmlBuilder::default();
            write(&mut h, &entries, &["what".into()], CellJudge::new("GB/s", BetterWhen::Higher));
            h.finish()
        };
        assert_eq!(page(MANY).matches("paper").count(), 1, "{}", page(MANY));
        assert!(page(MANY).contains("All rows: source: paper"));
        assert_eq!(page(MANY - 1).matches("paper").count(), MANY - 1);
    }
}
