//! Quantities with different units side by side; each column has its own scale.

use super::build::{HtmlBuilder, PixelPos};
use super::cell::{CellJudge, PageContext, is_blank, value};
use pathline_explain::figure::{BetterWhen, FigureCell, SheetBody, SheetColumn};

/// Writes the table: each cell has its value, and a bar of its share of the column's maximum.
pub(super) fn write(h: &mut HtmlBuilder, sheet: &SheetBody, page: PageContext<'_>, title: &str) {
    if !sheet.rows.iter().flat_map(|r| &r.1).any(|c| value(c).is_some()) {
        h.leaf("p", &[("class", &"nothing")], "There is no value to show.");
        return;
    }
    let tops: Vec<(f64, f64)> = (0..sheet.columns.len()).map(|c| extremes(sheet, c)).collect();
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"heat sheet"), ("data-tips", &sheet.columns.len())], |h| {
            h.leaf("caption", &[], title);
            h.el("thead", &[], |h| write_head(h, sheet));
            h.el("tbody", &[], |h| {
                for (label, cells) in &sheet.rows {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], label);
                        for ((cell, column), top) in cells.iter().zip(&sheet.columns).zip(&tops) {
                            write_cell(h, label, cell, (column, *top), page);
                        }
                    });
                }
            });
        });
    });
    h.el("p", &[("class", &"legend")], |h| {
        h.el("span", &[("class", &"pair")], |h| {
            if sheet.columns.iter().any(|c| c.better != BetterWhen::Neither) {
                h.trusted("<span class=\"key best\"></span> ");
                h.text("best of its column; ");
            }
            h.text("bars are shares of the column's greatest");
        });
    });
}

fn extremes(sheet: &SheetBody, column: usize) -> (f64, f64) {
    let cells = sheet.rows.iter().filter_map(|(_, cells)| cells.get(column));
    pathline_explain::figure::extremes(&cells.filter_map(value).collect::<Vec<_>>())
}

fn write_head(h: &mut HtmlBuilder, sheet: &SheetBody) {
    h.el("tr", &[], |h| {
        h.leaf("th", &[("class", &"corner"), ("scope", &"col")], &sheet.row_axis);
        for column in &sheet.columns {
            h.el("th", &[("scope", &"col")], |h| {
                h.text(&column.name);
                if !column.unit.is_empty() {
                    h.text(" ").leaf("small", &[], &column.unit);
                }
            });
        }
    });
}

fn write_cell(
    h: &mut HtmlBuilder,
    label: &str,
    cell: &FigureCell,
    (column, (lo, hi)): (&SheetColumn, (f64, f64)),
    page: PageContext<'_>,
) {
    if is_blank(cell) {
        h.el("td", &[("class", &"blank")], |h| {
            h.leaf("span", &[("class", &"sr")], "does not apply");
        });
        return;
    }
    let judge = CellJudge::new(&column.unit, column.better).on(page);
    let detail = judge.detail(&format!("{label}, {}", column.name), cell);
    let Some(v) = value(cell) else {
        let class = if cell.absent.is_some() { "tip absent" } else { "blank" };
        h.leaf("td", &[("class", &class), ("title", &detail)], "–");
        return;
    };
    let best = match column.better {
        BetterWhen::Higher => v >= hi,
        BetterWhen::Lower => v <= lo,
        BetterWhen::Neither => false,
    };
    let class = if best && lo < hi { "tip top" } else { "tip" };
    let share = if hi > 0.0 { (v / hi).clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    let style = format!("--w:{}%", PixelPos(share));
    h.el("td", &[("class", &class), ("style", &style), ("title", &detail)], |h| {
        h.text(judge.num(v));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_its_own_best_and_bars() {
        let cell = |v| FigureCell { value: Some(v), ..FigureCell::default() };
        let column =
            |name: &str, better| SheetColumn { name: name.into(), unit: "us".into(), better };
        let sheet = SheetBody {
            row_axis: "case".into(),
            columns: vec![column("rate", BetterWhen::Higher), column("time", BetterWhen::Lower)],
            rows: vec![
                ("a".into(), vec![cell(40.0), cell(8.0)]),
                ("b".into(), vec![cell(10.0), cell(2.0)]),
            ],
        };
        let mut h = HtmlBuilder::default();
        write(&mut h, &sheet, PageContext::default(), "t");
        let page = h.finish();
        // 10 of 40 is 25 %, and so is 2 of 8; 40 and 2 are the best.
        assert_eq!(page.matches("--w:25%").count(), 2, "{page}");
        assert_eq!(page.matches("class=\"tip top\"").count(), 2);
        assert!(page.contains("class=\"tip top\" style=\"--w:100%\" title=\"a, rate"));
        assert!(page.contains("class=\"tip top\" style=\"--w:25%\" title=\"b, time"));
    }
}
