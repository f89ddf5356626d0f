//! Bars: measured values compared with peaks, one row each.

use super::build::{HtmlBuilder, PixelPos};
use super::cell::{CellJudge, half_width, value};
use super::number::{num, percent, tick};
use super::scale::{linear_bounds, linear_ticks};
use pathline_explain::figure::{BarsBody, FigureBar, FigureCell};

/// Maximum number of axis divisions.
const PARTS: usize = 5;

/// Writes bars, axis and legend.
pub(super) fn write(h: &mut HtmlBuilder, bars: &BarsBody, judge: CellJudge<'_>, title: &str) {
    let values: Vec<f64> = bars.bars.iter().flat_map(|b| lengths(&b.cell)).collect();
    if values.is_empty() {
        h.leaf("p", &[("class", &"nothing")], "There is no value to draw.");
        return;
    }
    let axis = BarAxis { domain: linear_bounds(&values, PARTS) };
    let ticks = linear_ticks(axis.domain, PARTS);
    h.el("table", &[("class", &"bars"), ("data-tips", &1)], |h| {
        h.leaf("caption", &[], format!("{title}, {}", bars.unit));
        h.el("thead", &[], |h| write_axis(h, axis, &ticks, &bars.unit));
        h.el("tbody", &[], |h| {
            for bar in &bars.bars {
                write_bar(h, bar, axis, &ticks, judge);
            }
        });
    });
    write_legend(h, bars, judge);
}

/// All lengths in a row.
fn lengths(cell: &FigureCell) -> impl Iterator<Item = f64> {
    let end = value(cell).map(|v| v + half_width(cell).unwrap_or(0.0));
    let published = cell.published.as_ref().map(|p| p.value);
    [end, cell.ceiling, cell.bound, published].into_iter().flatten().filter(|v| v.is_finite())
}

/// A horizontal axis in percent of the row's width.
#[derive(Debug, Clone, Copy)]
struct BarAxis {
    domain: (f64, f64),
}

impl BarAxis {
    /// Position of a value, 0 to 100.
    fn at(self, v: f64) -> f64 {
        let (lo, hi) = self.domain;
        ((v - lo) / (hi - lo)).clamp(0.0, 1.0) * 100.0
    }
    /// Style of a span from `a` to `b`.
    fn span(self, a: f64, b: f64) -> String {
        let (left, right) = (self.at(a.min(b)), self.at(a.max(b)));
        format!("left:{}%;width:{}%", PixelPos(left), PixelPos(right - left))
    }
    fn left(self, v: f64) -> String {
        format!("left:{}%", PixelPos(self.at(v)))
    }
}

fn write_axis(h: &mut HtmlBuilder, axis: BarAxis, ticks: &[f64], unit: &str) {
    h.el("tr", &[], |h| {
        h.el("th", &[("scope", &"col")], |h| {
            h.leaf("span", &[("class", &"sr")], "what");
        });
        h.el("th", &[("scope", &"col"), ("class", &"track")], |h| {
            for t in ticks {
                h.leaf("span", &[("style", &axis.left(*t))], tick(*t, ""));
            }
        });
        h.leaf("th", &[("scope", &"col")], unit);
    });
}

fn write_bar(
    h: &mut HtmlBuilder,
    bar: &FigureBar,
    axis: BarAxis,
    ticks: &[f64],
    judge: CellJudge<'_>,
) {
    let cell = &bar.cell;
    let detail = judge.detail(&bar.label, cell);
    let class = if judge.suspicion(cell).is_some() { "tip suspect" } else { "tip" };
    h.el("tr", &[("class", &class), ("title", &detail)], |h| {
        h.leaf("th", &[("scope", &"row")], &bar.label);
        h.el("td", &[("class", &"track")], |h| {
            for t in ticks {
                part(h, "i", "grid", axis.left(*t));
            }
            write_parts(h, cell, axis);
        });
        h.el("td", &[("class", &"figure-of")], |h| match (value(cell), &cell.absent) {
            (Some(v), _) => {
                h.leaf("b", &[], num(v));
                if let Some((mark, _)) = judge.suspicion(cell) {
                    h.leaf("sup", &[], mark);
                }
                // A value in percent is already a share.
                if let Some(share) = judge.share(cell).filter(|_| judge.unit != "%") {
                    h.text(" ").leaf("small", &[], percent(share));
                }
            }
            (None, Some(_)) => {
                h.leaf("span", &[("class", &"why")], "not measured");
            }
            (None, None) => {}
        });
    });
}

fn write_parts(h: &mut HtmlBuilder, cell: &FigureCell, axis: BarAxis) {
    if let Some(ceiling) = cell.ceiling.filter(|c| c.is_finite()) {
        part(h, "span", "ceil", axis.span(0.0, ceiling));
    }
    if let Some(v) = value(cell) {
        part(h, "span", "fill", axis.span(0.0, v));
        if let Some(half) = half_width(cell) {
            part(h, "span", "whisker", axis.span(v - half, v + half));
        }
    }
    if let Some(bound) = cell.bound.filter(|b| b.is_finite()) {
        part(h, "span", "bound", axis.left(bound));
    }
    if let Some(p) = cell.published.as_ref().filter(|p| p.value.is_finite()) {
        part(h, "span", "pub", axis.left(p.value));
    }
}

fn part(h: &mut HtmlBuilder, tag: &'static str, class: &'static str, style: String) {
    h.el(tag, &[("class", &class), ("style", &style)], |_| {});
}

fn write_legend(h: &mut HtmlBuilder, bars: &BarsBody, judge: CellJudge<'_>) {
    let any = |has: fn(&FigureCell) -> bool| bars.bars.iter().any(|b| has(&b.cell));
    let median = format!("{} median", judge.page.origin());
    let keys = [
        ("key fill", median.as_str(), any(|c| value(c).is_some())),
        ("key whisker-key", "95 % interval", any(|c| half_width(c).is_some())),
        ("key ceil", "ceiling", any(|c| c.ceiling.is_some())),
        ("key bound", "tighter bound", any(|c| c.bound.is_some())),
        ("key pub", "published", any(|c| c.published.is_some())),
    ];
    h.el("p", &[("class", &"legend")], |h| {
        for (class, label, _) in keys.iter().filter(|k| k.2) {
            h.el("span", &[("class", &"pair")], |h| {
                h.el("span", &[("class", class)], |_| {}).text(" ").text(label);
            });
            h.text(" ");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::{BetterWhen, PublishedValue};

    fn html(cells: Vec<FigureCell>) -> String {
        let bars = cells.into_iter().map(|cell| FigureBar { label: "host to gpu0".into(), cell });
        let bars =
            BarsBody { unit: "GB/s".into(), bars: bars.collect(), better: BetterWhen::Higher };
        let mut h = HtmlBuilder::default();
        write(&mut h, &bars, CellJudge::new("GB/s", BetterWhen::Higher), "t");
        h.finish()
    }

    #[test]
    fn a_bar_is_as_long_as_its_value_on_the_axis_of_its_ceiling() {
        let page = html(vec![FigureCell {
            value: Some(30.0),
            half_width: 2.0,
            ceiling: Some(40.0),
            bound: Some(36.0),
            published: Some(PublishedValue {
                value: 28.0,
                kind: pathline_explain::figure::SourceKind::Paper,
                source: "paper".into(),
            }),
            ..FigureCell::default()
        }]);
        // The axis ends at 40: 30 is at 75 %, 36 at 90 %, 28 at 70 %; the interval is 28 to 32.
        assert!(page.contains("class=\"fill\" style=\"left:0%;width:75%\""), "{page}");
        assert!(page.contains("class=\"ceil\" style=\"left:0%;width:100%\""));
        assert!(page.contains("class=\"bound\" style=\"left:90%\""));
        assert!(page.contains("class=\"pub\" style=\"left:70%\""));
        assert!(page.contains("class=\"whisker\" style=\"left:70%;width:10%\""));
        assert!(page.contains("<small>75 %</small>"));
    }

    #[test]
    fn nothing_to_draw_is_said() {
        assert!(html(vec![]).contains("no value to draw"));
        let nan = FigureCell { value: Some(f64::NAN), ..FigureCell::default() };
        assert!(html(vec![nan]).contains("no value to draw"));
    }

    #[test]
    fn zero_and_negative_values_have_a_place() {
        let of = |v| FigureCell { value: Some(v), ..FigureCell::default() };
        // -5..10 in steps of 5: zero is at one third.
        let page = html(vec![of(-5.0), of(10.0), of(0.0)]);
        assert!(page.contains("left:33.3%;width:66.7%"), "{page}");
        assert!(page.contains("left:0%;width:33.3%"));
        assert!(page.contains("left:33.3%;width:0%"));
    }
}
