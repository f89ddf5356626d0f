//! Small charts with common axes: one for each operation, a line for each library.

use super::build::{HtmlBuilder, PixelPos};
use super::cell::{CellJudge, axis_name, value};
use super::curves::{classes, segment, shape, shape_class, text, write_legend};
use super::number::{num, tick};
use super::scale::{
    AxisScale, ScaleKind, decimal_ticks, kind_for, linear_bounds, linear_ticks, log_bounds,
    tight_bounds,
};
use pathline_explain::figure::{ChartLine, CurvesBody, FigureCell, FigurePanel, PanelsBody};

/// Width of a panel in drawing units; the page scales it.
const WIDTH: f64 = 330.0;
const LEFT: f64 = 40.0;
const RIGHT: f64 = 320.0;
const TOP: f64 = 26.0;
const FOOT: f64 = 214.0;
const HEIGHT: f64 = 250.0;
/// Maximum number of axis divisions.
const PARTS: usize = 7;

/// The axes of all panels.
#[derive(Debug, Clone, Copy)]
struct PanelAxes {
    x: AxisScale,
    y: AxisScale,
}

impl PanelAxes {
    /// Axes that include every value, level and published value; `None` without a value.
    fn new(body: &PanelsBody) -> Option<Self> {
        let points = || {
            body.panels
                .iter()
                .flat_map(|p| &p.lines)
                .flat_map(|l| &l.points)
                .filter(|p| value(&p.1).is_some_and(|v| v > 0.0))
        };
        let xs: Vec<f64> = points().map(|p| p.0).collect();
        let published = points().filter_map(|p| Some(p.1.published.as_ref()?.value));
        let levels = body.panels.iter().flat_map(|p| &p.levels).map(|l| l.1);
        let floors = body.panels.iter().flat_map(|p| &p.floor).map(|f| f.1);
        let values = points().filter_map(|p| value(&p.1));
        let ys: Vec<f64> = values.chain(published).chain(levels).chain(floors).collect();
        let y_kind = kind_for(&ys);
        let y_domain = match y_kind {
            ScaleKind::Log => log_bounds(&ys)?,
            ScaleKind::Linear => linear_bounds(&ys, PARTS),
        };
        let x_domain = tight_bounds(&xs, ScaleKind::Linear)?;
        let range = (LEFT + 12.0, RIGHT - 12.0);
        Some(Self {
            x: AxisScale { kind: ScaleKind::Linear, domain: x_domain, range },
            y: AxisScale { kind: y_kind, domain: y_domain, range: (FOOT, TOP) },
        })
    }

    fn place(self, x: f64, y: f64) -> Option<(f64, f64)> {
        self.x.at(x).zip(self.y.at(y))
    }

    /// A path through points, broken where the axes cannot show one.
    fn path(self, points: impl Iterator<Item = (f64, Option<f64>)>) -> String {
        let mut d = String::new();
        let mut pen = 'M';
        for (x, y) in points {
            match y.and_then(|y| self.place(x, y)) {
                Some((x, y)) => {
                    d += &format!("{pen}{} {}", PixelPos(x), PixelPos(y));
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        d
    }
}

/// Writes the panels, and one legend for all.
pub(super) fn write(h: &mut HtmlBuilder, body: &PanelsBody, judge: CellJudge<'_>) {
    let Some(axes) = PanelAxes::new(body) else {
        h.leaf("p", &[("class", &"nothing")], "There is no value to draw.");
        return;
    };
    let names = body.line_names();
    let ink = |line: &ChartLine| names.iter().position(|n| *n == line.name).unwrap_or(0);
    h.el("div", &[("class", &"panels")], |h| {
        for panel in &body.panels {
            write_panel(h, body, panel, axes, judge, &ink);
        }
    });
    write_keys(h, body);
    let line = |name: &&str| {
        let same = body.panels.iter().flat_map(|p| &p.lines).filter(|l| l.name == **name);
        let points = same.flat_map(|l| l.points.iter().cloned()).collect();
        ChartLine { name: (*name).to_owned(), points }
    };
    let legend = CurvesBody {
        x_unit: body.x_unit.clone(),
        y_unit: body.y_unit.clone(),
        lines: names.iter().map(line).collect(),
        ceilings: Vec::new(),
        marks: Vec::new(),
        better: body.better,
    };
    write_legend(h, &legend);
}

fn write_panel(
    h: &mut HtmlBuilder,
    body: &PanelsBody,
    panel: &FigurePanel,
    axes: PanelAxes,
    judge: CellJudge<'_>,
    ink: &dyn Fn(&ChartLine) -> usize,
) {
    let view = format!("0 0 {} {}", PixelPos(WIDTH), PixelPos(HEIGHT));
    let attrs: super::build::HtmlAttrs<'_> = &[
        ("class", &"chart"),
        ("viewBox", &view),
        ("role", &"img"),
        ("aria-label", &panel.name),
        ("data-tips", &1),
    ];
    h.el("svg", attrs, |h| {
        write_axes(h, body, panel, axes);
        for (_, level) in &panel.levels {
            if let Some(y) = axes.y.at(*level) {
                segment(h, "ceiling", (LEFT, y), (RIGHT, y));
            }
        }
        let floor = axes.path(panel.floor.iter().map(|&(x, y)| (x, Some(y))));
        if !floor.is_empty() {
            h.el("path", &[("class", &"floor"), ("d", &floor)], |_| {});
        }
        for line in &panel.lines {
            write_line(h, body, (panel, line), ink(line), axes, judge);
        }
        for (_, level) in &panel.levels {
            if let Some(y) = axes.y.at(*level) {
                text(h, "end halo ceiling-name", RIGHT - 2.0, y + 13.0, &judge.with_unit(*level));
            }
        }
    });
}

fn write_axes(h: &mut HtmlBuilder, body: &PanelsBody, panel: &FigurePanel, axes: PanelAxes) {
    text(h, "name panel-name", LEFT, 14.0, &panel.name);
    let y_ticks = match axes.y.kind {
        ScaleKind::Linear => linear_ticks(axes.y.domain, PARTS),
        ScaleKind::Log => decimal_ticks(axes.y.domain, PARTS),
    };
    for t in y_ticks {
        let Some(y) = axes.y.at(t) else { continue };
        segment(h, "grid", (LEFT, y), (RIGHT, y));
        text(h, "end", LEFT - 5.0, y + 4.0, &tick(t, &body.y_unit));
    }
    for t in linear_ticks(axes.x.domain, 10).into_iter().filter(|t| t.fract() == 0.0) {
        let Some(x) = axes.x.at(t) else { continue };
        segment(h, "grid", (x, FOOT), (x, FOOT + 4.0));
        text(h, "mid", x, FOOT + 17.0, &tick(t, &body.x_unit));
    }
    segment(h, "axis", (LEFT, FOOT), (RIGHT, FOOT));
    let unit = match axes.y.kind {
        ScaleKind::Log => format!("{}, logarithmic", body.y_unit),
        ScaleKind::Linear => body.y_unit.clone(),
    };
    text(h, "end", RIGHT, 14.0, &unit);
    text(h, "mid", f64::midpoint(LEFT, RIGHT), FOOT + 33.0, axis_name(&body.x_unit));
}

fn write_line(
    h: &mut HtmlBuilder,
    body: &PanelsBody,
    (panel, line): (&FigurePanel, &ChartLine),
    i: usize,
    axes: PanelAxes,
    judge: CellJudge<'_>,
) {
    h.el("g", &[("class", &classes(i))], |h| {
        let d = axes.path(line.points.iter().map(|(x, cell)| (*x, value(cell))));
        h.el("path", &[("class", &"line"), ("d", &d)], |_| {});
        for (x, cell) in &line.points {
            let heading =
                format!("{}, {}, {} {}", panel.name, line.name, tick(*x, ""), body.x_unit);
            write_point(h, &heading, i, axes, (*x, cell), judge);
        }
    });
}

fn write_point(
    h: &mut HtmlBuilder,
    heading: &str,
    i: usize,
    axes: PanelAxes,
    (x, cell): (f64, &FigureCell),
    judge: CellJudge<'_>,
) {
    let Some((px, py)) = value(cell).and_then(|v| axes.place(x, v)) else { return };
    let at = format!("translate({} {})", PixelPos(px), PixelPos(py));
    h.el("g", &[("class", &"tip"), ("transform", &at)], |h| {
        h.leaf("title", &[], judge.detail(heading, cell));
        h.trusted("<circle class=\"hit\" r=\"8\"/>");
        h.el("path", &[("class", &shape_class(i)), ("d", &shape(i))], |_| {});
    });
    if let Some(y) = cell.published.as_ref().and_then(|p| axes.y.at(p.value)) {
        let d = format!("M{} {}l6 6l-6 6l-6-6Z", PixelPos(px), PixelPos(y - 6.0));
        h.el("path", &[("class", &"published"), ("d", &d)], |_| {});
    }
}

/// What the lines without points are.
fn write_keys(h: &mut HtmlBuilder, body: &PanelsBody) {
    let mut levels: Vec<String> = Vec::new();
    for (name, level) in body.panels.iter().flat_map(|p| &p.levels) {
        let text = format!("{name}, {} {}", num(*level), body.y_unit);
        if !levels.contains(&text) {
            levels.push(text);
        }
    }
    let swatch = |h: &mut HtmlBuilder, class: &'static str, label: &str| {
        h.el("li", &[], |h| {
            let attrs: super::build::HtmlAttrs<'_> =
                &[("class", &"chart swatch"), ("viewBox", &"0 0 26 12"), ("aria-hidden", &"true")];
            h.el("svg", attrs, |h| segment(h, class, (0.0, 6.0), (26.0, 6.0)));
            h.text(" ").text(label);
        });
    };
    let has_floor = body.panels.iter().any(|p| !p.floor.is_empty());
    if levels.is_empty() && !has_floor {
        return;
    }
    h.el("ul", &[("class", &"legend")], |h| {
        if !levels.is_empty() {
            swatch(h, "ceiling", &format!("least by copies: {}", levels.join("; ")));
        }
        if has_floor {
            swatch(h, "floor", "least for the links: bytes over the narrowest cut");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::{BetterWhen, PublishedValue, SourceKind};

    fn body(published: Option<PublishedValue>) -> PanelsBody {
        let cell = |v| FigureCell { value: Some(v), ..FigureCell::default() };
        let first = FigureCell { published, ..cell(20.0) };
        let points = vec![(2.0, first), (8.0, cell(200.0))];
        let line = |name: &str| ChartLine { name: name.into(), points: points.clone() };
        let panel = |name: &str, lines| FigurePanel {
            name: name.into(),
            lines,
            levels: vec![("2 passes".into(), 17.4)],
            floor: vec![(2.0, 5.0), (8.0, 7.0)],
        };
        PanelsBody {
            x_unit: "ranks".into(),
            y_unit: "us".into(),
            panels: vec![
                panel("broadcast", vec![line("MPI"), line("NCCL")]),
                panel("reduce", vec![line("NCCL")]),
            ],
            better: BetterWhen::Lower,
        }
    }

    fn html(body: &PanelsBody) -> String {
        let mut h = HtmlBuilder::default();
        write(&mut h, body, CellJudge::new(&body.y_unit, body.better));
        h.finish()
    }

    #[test]
    fn panels_share_axes_colours_and_a_legend() {
        let page = html(&body(None));
        // Two panels, and a swatch in the legend for both kinds of bounds.
        assert_eq!(page.matches("class=\"chart\"").count(), 2);
        assert_eq!(page.matches("class=\"chart swatch\"").count(), 2);
        // NCCL is the second line of the first panel and the only one of the second.
        assert_eq!(page.matches("class=\"l1 s1 d0\"").count(), 3, "{page}");
        // 5 to 200 us: a decade and more, so the axis is logarithmic, from 5 to 200.
        assert!(page.contains("us, logarithmic"));
        // 20 of 5 to 200: ln 4 / ln 40 = 37.6 % up from 214 to 26 is 143.3.
        assert!(page.contains("translate(52 143.3)"), "{page}");
        assert!(page.contains("2 passes, 17.4 us"));
        assert!(!page.contains("published"));
    }

    #[test]
    fn a_published_value_has_a_mark() {
        let kind = SourceKind::Paper;
        let value = PublishedValue { value: 17.4, kind, source: "paper".into() };
        let page = html(&body(Some(value)));
        assert_eq!(page.matches("class=\"published\"").count(), 3);
        assert!(page.contains("published</li>") || page.contains(" published"), "{page}");
    }

    #[test]
    fn panels_without_values_have_no_picture() {
        let mut empty = body(None);
        empty.panels.clear();
        assert!(html(&empty).contains("no value to draw"));
    }
}
