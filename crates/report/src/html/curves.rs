//! Charts of values over size or threads.

use super::build::{HtmlBuilder, PixelPos};
use super::cell::{CellJudge, axis_name, half_width, value};
use super::number::tick;
use super::scale::{
    AxisScale, ScaleKind, binary_ticks, decimal_ticks, kind_for, linear_bounds, linear_ticks,
    log_bounds, spread, stack, tight_bounds,
};
use pathline_explain::figure::{ChartLine, CurvesBody, FigureCell};

/// Width in drawing units; the page scales the picture.
const WIDTH: f64 = 920.0;
/// Height of the plot area.
const PLOT: f64 = 340.0;
const LEFT: f64 = 58.0;
/// Right margin of a chart without names at the ends of its lines.
const MARGIN: f64 = 16.0;
/// Right margin for names at the ends of the lines.
const INDENT: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// Height of one row of labels above the plot.
const ROW: f64 = 15.0;
/// Width of a label's character.
const CHAR: f64 = 6.2;
/// Width of a character of a line's name, which is bold.
const BOLD: f64 = 7.1;
/// Maximum characters per row of a line's name.
const NAME: usize = 28;
/// Height per row of a line's name.
const NAME_ROW: f64 = 13.0;
/// Number of colours and point shapes; further lines repeat them with another dash.
const INKS: usize = 8;

/// Layout of a chart.
struct CurvePlot<'a> {
    curves: &'a CurvesBody,
    judge: CellJudge<'a>,
    x: AxisScale,
    y: AxisScale,
    /// Marks inside the axis: pixel, label, row of the label.
    marks: Vec<(f64, &'a str, usize)>,
    top: f64,
    /// Ceilings: label and pixel.
    ceilings: Vec<(String, f64)>,
    /// Names at the ends of the lines, in one or two rows; empty if they do not fit.
    names: Vec<(usize, Vec<String>)>,
    /// Right end of the plot area.
    right: f64,
}

impl<'a> CurvePlot<'a> {
    /// The layout; `None` if no point can be drawn.
    fn new(curves: &'a CurvesBody, judge: CellJudge<'a>) -> Option<Self> {
        let (xs, ys) = (drawn_xs(curves), drawn_ys(curves));
        let x_kind = if curves.x_unit == "B" { ScaleKind::Log } else { kind_for(&xs) };
        let x_domain = tight_bounds(&xs, x_kind)?;
        let y_kind = kind_for(&ys);
        let y_domain = match y_kind {
            ScaleKind::Log => log_bounds(&ys)?,
            ScaleKind::Linear => linear_bounds(&ys, 6),
        };
        let names = end_names(curves);
        let widest = names.iter().flat_map(|(_, rows)| rows).map(|row| row.chars().count()).max();
        let room = widest.map_or(MARGIN, |chars| chars as f64 * BOLD + INDENT + 6.0);
        let right = WIDTH - room;
        let range = (LEFT + 10.0, right - 10.0);
        let x = AxisScale { kind: x_kind, domain: x_domain, range };
        let marks = place_marks(curves, x);
        let rows = marks.iter().map(|m| m.2 + 1).max().unwrap_or(0);
        let top = 14.0 + ROW * rows as f64;
        let y = AxisScale { kind: y_kind, domain: y_domain, range: (top + PLOT, top) };
        let named = |(name, v): &(String, f64)| {
            let value = judge.with_unit(*v);
            let known = name.contains(&value);
            Some((if known { name.clone() } else { format!("{name}: {value}") }, y.at(*v)?))
        };
        let ceilings = curves.ceilings.iter().filter_map(named).collect();
        Some(Self { curves, judge, x, y, marks, top, ceilings, names, right })
    }

    fn foot(&self) -> f64 {
        self.top + PLOT
    }

    /// Pixels along all lines, with a few between each two points.
    fn ink(&self) -> Vec<(f64, f64)> {
        const STEPS: usize = 8;
        let mut ink = Vec::new();
        for line in &self.curves.lines {
            let mut from = None;
            for to in line.points.iter().filter_map(|(x, cell)| self.place(*x, cell)) {
                let (x0, y0) = from.replace(to).unwrap_or(to);
                let shares = (1..=STEPS).map(|i| i as f64 / STEPS as f64);
                ink.extend(shares.map(|t| (x0 + t * (to.0 - x0), y0 + t * (to.1 - y0))));
            }
        }
        ink
    }

    /// The pixel of a point, if it can be drawn.
    fn place(&self, x: f64, cell: &FigureCell) -> Option<(f64, f64)> {
        Some((self.x.at(x)?, self.y.at(value(cell)?)?))
    }
}

/// Values of x with a drawable point.
fn drawn_xs(curves: &CurvesBody) -> Vec<f64> {
    let points = curves.lines.iter().flat_map(|l| &l.points);
    points.filter(|(_, cell)| value(cell).is_some()).map(|(x, _)| *x).collect()
}

/// All values that the vertical axis must include.
fn drawn_ys(curves: &CurvesBody) -> Vec<f64> {
    let cells = || curves.lines.iter().flat_map(|l| &l.points).map(|(_, cell)| cell);
    let published = cells().filter_map(|c| Some(c.published.as_ref()?.value));
    let ceilings = curves.ceilings.iter().map(|(_, y)| *y);
    cells().filter_map(value).chain(published).chain(ceilings).collect()
}

fn place_marks(curves: &CurvesBody, x: AxisScale) -> Vec<(f64, &str, usize)> {
    let (lo, hi) = x.domain;
    let inside = curves.marks.iter().filter(|(at, _)| *at >= lo && *at <= hi);
    let at: Vec<(f64, &str)> =
        inside.filter_map(|(at, label)| Some((x.at(*at)?, label.as_str()))).collect();
    let spans: Vec<(f64, f64)> = at
        .iter()
        .map(|(px, label)| {
            let half = label.chars().count() as f64 * CHAR / 2.0 + 4.0;
            (px - half, px + half)
        })
        .collect();
    let rows = stack(&spans);
    at.into_iter().zip(rows).map(|((px, label), row)| (px, label, row)).collect()
}

/// Writes the chart and its legend.
pub(super) fn write(h: &mut HtmlBuilder, curves: &CurvesBody, judge: CellJudge<'_>, title: &str) {
    let Some(plot) = CurvePlot::new(curves, judge) else {
        h.leaf("p", &[("class", &"nothing")], "There is no value to draw.");
        return;
    };
    let view = format!("0 0 {} {}", PixelPos(WIDTH), PixelPos(plot.foot() + BOTTOM));
    let attrs: [(&'static str, &dyn std::fmt::Display); 5] = [
        ("class", &"chart"),
        ("viewBox", &view),
        ("role", &"img"),
        ("aria-label", &title),
        ("data-tips", &1),
    ];
    h.el("svg", &attrs, |h| {
        write_axes(h, &plot);
        write_marks(h, &plot);
        for (_, y) in &plot.ceilings {
            segment(h, "ceiling", (LEFT, *y), (plot.right, *y));
        }
        for (i, line) in curves.lines.iter().enumerate() {
            write_line(h, &plot, i, line);
        }
        write_ceiling_names(h, &plot);
        write_names(h, &plot);
    });
    write_legend(h, curves);
    let lost = curves.lines.iter().flat_map(|l| &l.points);
    let lost = lost.filter(|(x, c)| c.value.is_some() && plot.place(*x, c).is_none()).count();
    if lost > 0 {
        let note = format!("{lost} values of zero or less have no place on a logarithmic axis.");
        h.leaf("p", &[("class", &"nothing")], note);
    }
}

pub(super) fn text(h: &mut HtmlBuilder, class: &str, x: f64, y: f64, label: &str) {
    h.leaf("text", &[("class", &class), ("x", &PixelPos(x)), ("y", &PixelPos(y))], label);
}

pub(super) fn segment(
    h: &mut HtmlBuilder,
    class: &str,
    (x1, y1): (f64, f64),
    (x2, y2): (f64, f64),
) {
    let d = format!("M{} {}L{} {}", PixelPos(x1), PixelPos(y1), PixelPos(x2), PixelPos(y2));
    h.el("path", &[("class", &class), ("d", &d)], |_| {});
}

fn write_axes(h: &mut HtmlBuilder, plot: &CurvePlot<'_>) {
    let (left, right, foot) = (LEFT, plot.right, plot.foot());
    let curves = plot.curves;
    for t in y_ticks(plot.y) {
        let Some(y) = plot.y.at(t) else { continue };
        segment(h, "grid", (left, y), (right, y));
        text(h, "end", left - 7.0, y + 4.0, &tick(t, &curves.y_unit));
    }
    // There is nothing between counts, such as threads.
    let counted = drawn_xs(curves).iter().all(|x| x.fract() == 0.0);
    let x_ticks = x_ticks(plot.x, &curves.x_unit);
    for t in x_ticks.into_iter().filter(|t| !counted || t.fract() == 0.0) {
        let Some(x) = plot.x.at(t) else { continue };
        segment(h, "grid", (x, plot.top), (x, foot + 4.0));
        text(h, "mid", x, foot + 18.0, &tick(t, &curves.x_unit));
    }
    segment(h, "axis", (left, foot), (right, foot));
    let x_name = match (axis_name(&curves.x_unit), curves.x_unit.as_str()) {
        (name, unit) if name == unit => name.to_owned(),
        ("size", _) => "size (binary units)".to_owned(),
        (name, unit) => format!("{name} ({unit})"),
    };
    text(h, "mid name", f64::midpoint(left, right), foot + 38.0, &x_name);
    let log = if plot.y.kind == ScaleKind::Log { ", logarithmic" } else { "" };
    let y_name = match axis_name(&curves.y_unit) {
        name if name == curves.y_unit => format!("{name}{log}"),
        name => format!("{name} ({}{log})", curves.y_unit),
    };
    let turn = format!("translate(13 {}) rotate(-90)", PixelPos(plot.top + PLOT / 2.0));
    h.leaf("text", &[("class", &"mid name"), ("transform", &turn)], y_name);
}

fn y_ticks(y: AxisScale) -> Vec<f64> {
    match y.kind {
        ScaleKind::Linear => linear_ticks(y.domain, 6),
        ScaleKind::Log => decimal_ticks(y.domain, 11),
    }
}

/// Whether a unit is a count, for which x is in powers of two.
fn is_count(unit: &str) -> bool {
    ["threads", "ranks", "pairs", "depth"].contains(&unit)
}

fn x_ticks(x: AxisScale, unit: &str) -> Vec<f64> {
    match x.kind {
        ScaleKind::Log if unit == "B" || is_count(unit) => binary_ticks(x.domain, 12),
        ScaleKind::Log => decimal_ticks(x.domain, 12),
        ScaleKind::Linear => linear_ticks(x.domain, 10),
    }
}

fn write_marks(h: &mut HtmlBuilder, plot: &CurvePlot<'_>) {
    let height = |row: usize| plot.top - 6.0 - ROW * row as f64;
    for &(x, _, row) in &plot.marks {
        segment(h, "mark", (x, height(row) + 3.0), (x, plot.foot()));
    }
    for &(x, label, row) in &plot.marks {
        text(h, "mid halo mark-name", x, height(row), label);
    }
}

/// Names of the ceilings, above the lines for legibility.
fn write_ceiling_names(h: &mut HtmlBuilder, plot: &CurvePlot<'_>) {
    // Above its line, or below it at the upper edge of the plot.
    let label_y = |y: f64| if y - 5.0 < plot.top + 10.0 { y + 14.0 } else { y - 5.0 };
    let wanted: Vec<f64> = plot.ceilings.iter().map(|(_, y)| label_y(*y)).collect();
    let places = spread(&wanted, 13.0, (plot.top + 10.0, plot.foot() - 4.0));
    let ink = plot.ink();
    let (left, right) = (LEFT + 8.0, plot.right - 8.0);
    let middle = f64::midpoint(left, right);
    for ((label, _), y) in plot.ceilings.iter().zip(places) {
        let width = label.chars().count() as f64 * CHAR;
        let crowd = |from: f64| crowd(&ink, (from, from + width), (y - 12.0, y + 4.0));
        let choices = [
            ("halo ceiling-name", left, crowd(left)),
            ("end halo ceiling-name", right, crowd(right - width)),
            ("mid halo ceiling-name", middle, crowd(middle - width / 2.0)),
        ];
        // The first of equal ones.
        if let Some((class, x, _)) = choices.iter().min_by_key(|choice| choice.2) {
            text(h, class, *x, y, label);
        }
    }
}

/// Number of line pixels in a box.
fn crowd(ink: &[(f64, f64)], across: (f64, f64), down: (f64, f64)) -> usize {
    let within = |v: f64, (lo, hi): (f64, f64)| v >= lo && v <= hi;
    ink.iter().filter(|(x, y)| within(*x, across) && within(*y, down)).count()
}

/// Classes of a line: its legend switch, its colour, and its dash.
pub(super) fn classes(i: usize) -> String {
    format!("l{i} s{} d{}", i % INKS, (i / INKS) % 3)
}

fn write_line(h: &mut HtmlBuilder, plot: &CurvePlot<'_>, i: usize, line: &ChartLine) {
    h.el("g", &[("class", &classes(i))], |h| {
        let whiskers = whiskers(plot, line);
        if !whiskers.is_empty() {
            h.el("path", &[("class", &"whiskers"), ("d", &whiskers)], |_| {});
        }
        h.el("path", &[("class", &"line"), ("d", &stroke(plot, line))], |_| {});
        for (x, cell) in &line.points {
            write_point(h, plot, i, line, (*x, cell));
        }
    });
}

/// The line, broken where a value is missing.
fn stroke(plot: &CurvePlot<'_>, line: &ChartLine) -> String {
    let mut d = String::new();
    let mut pen = 'M';
    for (x, cell) in &line.points {
        match plot.place(*x, cell) {
            Some((x, y)) => {
                d += &format!("{pen}{} {}", PixelPos(x), PixelPos(y));
                pen = 'L';
            }
            None => pen = 'M',
        }
    }
    d
}

/// Intervals wide enough to be visible behind their point.
fn whiskers(plot: &CurvePlot<'_>, line: &ChartLine) -> String {
    let mut d = String::new();
    for (x, cell) in &line.points {
        let (Some((px, _)), Some(half), Some(v)) =
            (plot.place(*x, cell), half_width(cell), value(cell))
        else {
            continue;
        };
        let above = plot.y.at(v + half).unwrap_or(plot.top);
        let below = plot.y.at(v - half).unwrap_or(plot.foot());
        if below - above >= 3.0 {
            let (l, r) = (PixelPos(px - 3.0), PixelPos(px + 3.0));
            let (x, a, b) = (PixelPos(px), PixelPos(above), PixelPos(below));
            d += &format!("M{l} {a}H{r}M{x} {a}V{b}M{l} {b}H{r}");
        }
    }
    d
}

fn write_point(
    h: &mut HtmlBuilder,
    plot: &CurvePlot<'_>,
    i: usize,
    line: &ChartLine,
    (x, cell): (f64, &FigureCell),
) {
    let Some((px, py)) = plot.place(x, cell) else { return };
    let heading = format!("{}, {}", line.name, tick(x, &plot.curves.x_unit));
    let at = format!("translate({} {})", PixelPos(px), PixelPos(py));
    h.el("g", &[("class", &"tip"), ("transform", &at)], |h| {
        h.leaf("title", &[], plot.judge.detail(&heading, cell));
        h.trusted("<circle class=\"hit\" r=\"8\"/>");
        h.el("path", &[("class", &shape_class(i)), ("d", &shape(i))], |_| {});
    });
    if let Some(y) = cell.published.as_ref().and_then(|p| plot.y.at(p.value)) {
        let d = format!("M{} {}l6 6l-6 6l-6-6Z", PixelPos(px), PixelPos(y - 6.0));
        h.el("path", &[("class", &"published"), ("d", &d)], |_| {});
    }
}

/// Alternates filled and hollow shapes, so that lines differ by more than colour.
pub(super) fn shape_class(i: usize) -> &'static str {
    if (i / 4).is_multiple_of(2) { "dot" } else { "dot hollow" }
}

pub(super) fn shape(i: usize) -> &'static str {
    match i % 4 {
        0 => "M-3.2 0a3.2 3.2 0 1 1 6.4 0a3.2 3.2 0 1 1-6.4 0Z",
        1 => "M-2.9-2.9h5.8v5.8h-5.8Z",
        2 => "M0-3.8L3.7 2.8h-7.4Z",
        _ => "M0 3.8L3.7-2.8h-7.4Z",
    }
}

/// Names for the ends of the lines, in rows of at most [`NAME`] characters; empty if the chart is
/// too low for all of them.
fn end_names(curves: &CurvesBody) -> Vec<(usize, Vec<String>)> {
    let drawn = curves.lines.iter().enumerate();
    let drawn = drawn.filter(|(_, l)| l.points.iter().any(|(_, cell)| value(cell).is_some()));
    let names: Vec<(usize, Vec<String>)> = drawn.map(|(i, l)| (i, rows_of(&l.name))).collect();
    if names.len() as f64 * name_gap(&names) > PLOT { Vec::new() } else { names }
}

/// Distance between names that avoids overlaps.
fn name_gap(names: &[(usize, Vec<String>)]) -> f64 {
    let rows = names.iter().map(|(_, rows)| rows.len()).max().unwrap_or(1);
    rows as f64 * NAME_ROW + 2.0
}

/// A name in one row, or split between words into two. The legend has names that need more rows.
fn rows_of(name: &str) -> Vec<String> {
    let mut rows: Vec<String> = vec![String::new()];
    for word in name.split_whitespace() {
        let Some(row) = rows.last_mut() else { break };
        match row.chars().count() + 1 + word.chars().count() <= NAME {
            _ if row.is_empty() => row.push_str(word),
            true => {
                row.push(' ');
                row.push_str(word);
            }
            false => rows.push(word.to_owned()),
        }
    }
    let more = rows.len() > 2;
    rows.truncate(2);
    for row in &mut rows {
        if row.chars().count() > NAME {
            *row = row.chars().take(NAME - 1).chain(['…']).collect();
        }
    }
    if let (true, Some(last)) = (more, rows.last_mut()) {
        last.push_str(" …");
    }
    rows
}

/// Draws names at the ends of the lines, connected to the last points by dotted leaders.
fn write_names(h: &mut HtmlBuilder, plot: &CurvePlot<'_>) {
    let ends: Vec<(usize, &[String], (f64, f64))> = plot
        .names
        .iter()
        .filter_map(|(i, rows)| {
            let line = plot.curves.lines.get(*i)?;
            let mut points = line.points.iter().rev();
            Some((*i, rows.as_slice(), points.find_map(|(x, cell)| plot.place(*x, cell))?))
        })
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, _, (_, y))| *y).collect();
    let half = name_gap(&plot.names) / 2.0;
    let places = spread(&wanted, 2.0 * half, (plot.top + half, plot.foot() - half));
    let at = plot.right + INDENT;
    for ((i, rows, end), y) in ends.iter().zip(places) {
        h.el("g", &[("class", &classes(*i))], |h| {
            segment(h, "leader", (end.0 + 9.0, end.1), (at - 4.0, y));
            for (row, name) in rows.iter().enumerate() {
                let middle = (rows.len() - 1) as f64 / 2.0;
                text(h, "line-name", at, y + 4.0 + (row as f64 - middle) * NAME_ROW, name);
            }
        });
    }
}

/// One switch per line; they need no script.
pub(super) fn write_legend(h: &mut HtmlBuilder, curves: &CurvesBody) {
    h.el("ul", &[("class", &"legend lines")], |h| {
        for (i, line) in curves.lines.iter().enumerate() {
            h.el("li", &[], |h| {
                h.el("label", &[], |h| {
                    let class = format!("t{i}");
                    h.void("input", &[("type", &"checkbox"), ("checked", &""), ("class", &class)]);
                    let swatch: super::build::HtmlAttrs<'_> = &[
                        ("class", &classes(i)),
                        ("viewBox", &"-13 -6 26 12"),
                        ("aria-hidden", &"true"),
                    ];
                    h.el("svg", swatch, |h| {
                        h.trusted("<path class=\"line\" d=\"M-12 0H12\"/>");
                        h.el("path", &[("class", &shape_class(i)), ("d", &shape(i))], |_| {});
                    });
                    h.text(" ").text(&line.name);
                    if !line.points.iter().any(|(_, cell)| value(cell).is_some()) {
                        h.text(" ").leaf("i", &[], "(not measured)");
                    }
                });
            });
        }
        if curves.lines.iter().flat_map(|l| &l.points).any(|(_, c)| c.published.is_some()) {
            h.el("li", &[], |h| {
                h.trusted("<span class=\"key pub\"></span> published");
            });
        }
    });
}

/// Style rules by which the legend's switches hide their lines.
pub(super) fn switch_rules(lines: usize) -> String {
    (0..lines)
        .map(|i| format!(".figure:has(.t{i}:not(:checked)) .chart .l{i}{{display:none}}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::BetterWhen;

    fn cell(v: f64) -> FigureCell {
        FigureCell { value: Some(v), ..FigureCell::default() }
    }

    fn curves(points: Vec<(f64, FigureCell)>) -> CurvesBody {
        CurvesBody {
            x_unit: "B".into(),
            y_unit: "GB/s".into(),
            lines: vec![ChartLine { name: "memcpy".into(), points }],
            ceilings: vec![("peak".into(), 40.0)],
            marks: vec![(32768.0, "L1d 32KiB".into()), (1e15, "beyond".into())],
            better: BetterWhen::Higher,
        }
    }

    fn html(c: &CurvesBody) -> String {
        let mut h = HtmlBuilder::default();
        write(&mut h, c, CellJudge::new(&c.y_unit, c.better), "t");
        h.finish()
    }

    #[test]
    fn a_missing_value_breaks_the_line() {
        let c = curves(vec![
            (4096.0, cell(1.0)),
            (8192.0, cell(2.0)),
            (16384.0, FigureCell::default()),
            (32768.0, cell(20.0)),
        ]);
        let judge = CellJudge::new("GB/s", BetterWhen::Higher);
        let d = stroke(&CurvePlot::new(&c, judge).unwrap(), &c.lines[0]);
        assert_eq!(d.matches('M').count(), 2, "{d}");
        assert_eq!(d.matches('L').count(), 1, "{d}");
    }

    #[test]
    fn sizes_have_binary_ticks_and_marks_stay_inside() {
        let page = html(&curves(vec![(4096.0, cell(1.0)), (65536.0, cell(20.0))]));
        for label in [">4KiB<", ">64KiB<", ">L1d 32KiB<", ">peak: 40.0 GB/s<", "logarithmic"] {
            assert!(page.contains(label), "{label}: {page}");
        }
        assert!(!page.contains("beyond"));
    }

    #[test]
    fn a_lone_point_and_equal_values_are_drawn() {
        assert!(html(&curves(vec![(4096.0, cell(10.0))])).contains("class=\"dot\""));
        let equal = curves(vec![(4096.0, cell(10.0)), (8192.0, cell(10.0))]);
        assert_eq!(html(&equal).matches("<circle").count(), 2);
    }

    #[test]
    fn what_has_no_logarithm_is_counted_and_not_drawn() {
        let page = html(&curves(vec![(4096.0, cell(0.0)), (8192.0, cell(1.0))]));
        assert!(page.contains("1 values of zero or less"), "{page}");
        assert_eq!(page.matches("<circle").count(), 1);
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(html(&curves(vec![])).contains("no value to draw"));
        assert!(html(&curves(vec![(4096.0, cell(f64::NAN))])).contains("no value to draw"));
    }

    #[test]
    fn a_ceiling_is_named_where_the_lines_leave_room() {
        let falling = vec![(4096.0, cell(41.0)), (8192.0, cell(39.0)), (1073741824.0, cell(2.0))];
        assert!(html(&curves(falling)).contains("end halo ceiling-name"));
        let rising =
            vec![(4096.0, cell(2.0)), (536870912.0, cell(39.0)), (1073741824.0, cell(41.0))];
        assert!(html(&curves(rising)).contains("\"halo ceiling-name"));
    }

    #[test]
    fn names_at_the_ends_break_between_words_and_have_room() {
        assert_eq!(rows_of("memcpy"), ["memcpy"]);
        // 28 characters per row: `numa0 pinned to gpu0, copy` has 26, with `engine` 33.
        assert_eq!(
            rows_of("numa0 pinned to gpu0, copy engine"),
            ["numa0 pinned to gpu0, copy", "engine"]
        );
        let long = "w".repeat(40);
        assert_eq!(rows_of(&long)[0].chars().count(), NAME);
        let c = curves(vec![(4096.0, cell(1.0)), (65536.0, cell(20.0))]);
        let plot = CurvePlot::new(&c, CellJudge::new("GB/s", BetterWhen::Higher)).unwrap();
        // `memcpy` has 6 characters of 7.1, plus 20 units of margin.
        assert!((WIDTH - plot.right - 62.6).abs() < 1e-9, "{}", plot.right);
    }

    #[test]
    fn a_leader_begins_behind_the_last_point() {
        let page = html(&curves(vec![(4096.0, cell(1.0)), (65536.0, cell(20.0))]));
        let leader = page.split("class=\"leader\" d=\"M").nth(1).unwrap();
        let x: f64 = leader.split(' ').next().unwrap().parse().unwrap();
        // The last point is 10 left of the plot's end at 920 - 62.6 = 857.4.
        assert!((x - (857.4 - 10.0 + 9.0)).abs() < 0.1, "{x}");
    }

    #[test]
    fn a_ceiling_that_names_its_value_does_not_repeat_it() {
        let mut c = curves(vec![(4096.0, cell(1.0)), (65536.0, cell(20.0))]);
        c.ceilings = vec![("peak 36.0 GB/s".into(), 36.0)];
        assert!(html(&c).contains(">peak 36.0 GB/s<"));
    }

    #[test]
    fn only_wide_intervals_have_whiskers() {
        let judge = CellJudge::new("GB/s", BetterWhen::Higher);
        let wide = FigureCell { half_width: 5.0, ..cell(20.0) };
        let narrow = FigureCell { half_width: 0.01, ..cell(20.0) };
        let c = curves(vec![(4096.0, wide), (8192.0, narrow)]);
        let d = whiskers(&CurvePlot::new(&c, judge).unwrap(), &c.lines[0]);
        assert_eq!(d.matches('V').count(), 1, "{d}");
    }
}
