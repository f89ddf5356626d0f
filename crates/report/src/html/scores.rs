//! The page that compares predictions with published values.

use std::collections::BTreeMap;

use pathline_published::score::{ClassErrors, ComparedRow};
use pathline_published::{RowClass, RowContradiction, ValidationReport};

use super::build::{HtmlAttrs, HtmlBuilder, PixelPos};
use super::number::{count, num, tick};
use super::page::comparison;
use super::scale::{AxisScale, ScaleKind, decimal_ticks, log_bounds};
use crate::scores::{
    contradiction, farthest, reasons, share, signed, targets_lines, untargeted, value as value_text,
};

/// Drawing units of a scatter plot: it is square, so that the line of agreement is at 45 degrees.
const SIDE: f64 = 430.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
const RIGHT: f64 = 16.0;
/// Bars of the error histogram: one per percent, up to this many on each side.
const REACH: i32 = 10;
const BAR_WIDTH: f64 = 26.0;
const BAR_HEIGHT: f64 = 180.0;
/// Relative errors drawn as lines next to the line of agreement.
const BAND: f64 = 0.1;

/// The page: targets, pictures, tables. `against` names the table.
pub fn page(report: &ValidationReport, against: &str) -> String {
    let note =
        format!("Predictions of the model of {}, compared with published values.", report.machine);
    comparison((&report.machine, against), ("Simulated", &note), |h| write_main(h, report))
}

fn write_main(h: &mut HtmlBuilder, report: &ValidationReport) {
    let data = report.compared.iter().filter(|c| c.data).count();
    let lead = format!(
        "{} compared, {} left out; {} the model carries as data, which count for no target",
        count(report.compared.len(), "row"),
        report.left_out.len(),
        count(data, "value")
    );
    h.leaf("p", &[("class", &"lead")], lead);
    h.el("ul", &[("class", &"headlines")], |h| {
        let untargeted = untargeted(report).map(|text| (None, text));
        for (met, text) in targets_lines(&report.judged).into_iter().chain(untargeted) {
            let (class, sign) = match met {
                Some(true) => ("good", "✓"),
                Some(false) => ("warn", "!"),
                None => ("plain", "·"),
            };
            h.el("li", &[("class", &class)], |h| {
                h.leaf("span", &[("class", &"sign"), ("aria-hidden", &"true")], sign);
                h.leaf("span", &[], text);
            });
        }
    });
    h.leaf("h2", &[], "Predicted against published");
    // Facts about the wiring are on the line by construction.
    let facts = RowClass::Fact.name();
    let drawn: Vec<ComparedRow> =
        report.compared.iter().filter(|c| c.class != facts).cloned().collect();
    h.trusted(&picture(&drawn, "published"));
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

/// Pictures of predicted values over `measured` ones (`published`, `measured`): one for each unit,
/// then the histogram of errors. Markup for a page with this crate's style.
pub fn picture(compared: &[ComparedRow], measured: &str) -> String {
    let mut classes: Vec<&str> = Vec::new();
    let mut units: BTreeMap<&str, Vec<&ComparedRow>> = BTreeMap::new();
    for c in compared {
        if !classes.contains(&c.class.as_str()) {
            classes.push(&c.class);
        }
        units.entry(&c.unit).or_default().push(c);
    }
    let ink = |class: &str| classes.iter().position(|c| *c == class).unwrap_or(0);
    let mut units: Vec<(&str, Vec<&ComparedRow>)> = units.into_iter().collect();
    units.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let mut h = HtmlBuilder::default();
    h.el("div", &[("class", &"scatters")], |h| {
        // Links and hops are whole numbers, for which a scatter plot is useless.
        for (unit, rows) in units.iter().filter(|(unit, rows)| !unit.is_empty() && rows.len() > 2) {
            h.el("article", &[("class", &"figure")], |h| {
                h.leaf("h3", &[], format!("{unit}, {}", count(rows.len(), "value")));
                write_scatter(h, rows, unit, measured, &ink);
            });
        }
        h.el("article", &[("class", &"figure errors")], |h| {
            h.leaf("h3", &[], "Errors");
            write_histogram(h, compared, measured, &ink);
        });
    });
    write_legend(&mut h, &classes);
    h.finish()
}

fn ink_class(at: usize) -> String {
    format!("s{}", at % 8)
}

/// Alternates filled and hollow shapes, so that classes differ by more than colour.
fn shape(at: usize) -> (&'static str, &'static str) {
    let class = if (at / 4).is_multiple_of(2) { "dot" } else { "dot hollow" };
    let d = match at % 4 {
        0 => "M-3.6 0a3.6 3.6 0 1 1 7.2 0a3.6 3.6 0 1 1-7.2 0Z",
        1 => "M-3.2-3.2h6.4v6.4h-6.4Z",
        2 => "M0-4.2L4 3h-8Z",
        _ => "M0 4.2L4-3h-8Z",
    };
    (class, d)
}

fn line(h: &mut HtmlBuilder, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let d = format!("M{} {}L{} {}", PixelPos(x1), PixelPos(y1), PixelPos(x2), PixelPos(y2));
    h.el("path", &[("class", &class), ("d", &d)], |_| {});
}

fn text_at(h: &mut HtmlBuilder, class: &str, (x, y): (f64, f64), text: &str) {
    h.leaf("text", &[("class", &class), ("x", &PixelPos(x)), ("y", &PixelPos(y))], text);
}

fn write_scatter(
    h: &mut HtmlBuilder,
    rows: &[&ComparedRow],
    unit: &str,
    measured: &str,
    ink: &dyn Fn(&str) -> usize,
) {
    let all: Vec<f64> = rows.iter().flat_map(|c| [c.predicted, c.measured.middle()]).collect();
    let Some(domain) = log_bounds(&all) else {
        h.leaf("p", &[("class", &"nothing")], "There is no value to draw.");
        return;
    };
    let (right, foot) = (LEFT + SIDE, TOP + SIDE);
    let x = AxisScale { kind: ScaleKind::Log, domain, range: (LEFT, right) };
    let y = AxisScale { kind: ScaleKind::Log, domain, range: (foot, TOP) };
    let view = format!("0 0 {} {}", PixelPos(right + RIGHT), PixelPos(foot + BOTTOM));
    let title = format!("Predicted over {measured}, {unit}");
    let attrs: HtmlAttrs<'_> = &[
        ("class", &"chart"),
        ("viewBox", &view),
        ("role", &"img"),
        ("aria-label", &title),
        ("data-tips", &1),
    ];
    h.el("svg", attrs, |h| {
        for t in decimal_ticks(domain, 9) {
            let (Some(px), Some(py)) = (x.at(t), y.at(t)) else { continue };
            line(h, "grid", (px, TOP), (px, foot));
            line(h, "grid", (LEFT, py), (right, py));
            text_at(h, "mid", (px, foot + 18.0), &tick(t, unit));
            text_at(h, "end", (LEFT - 7.0, py + 4.0), &tick(t, unit));
        }
        line(h, "axis", (LEFT, foot), (right, foot));
        text_at(h, "mid name", (LEFT + SIDE / 2.0, foot + 38.0), &format!("{measured} ({unit})"));
        let turn = format!("translate(13 {}) rotate(-90)", PixelPos(TOP + SIDE / 2.0));
        h.leaf(
            "text",
            &[("class", &"mid name"), ("transform", &turn)],
            format!("predicted ({unit})"),
        );
        // On logarithmic axes a constant relative error is a parallel line.
        for (class, by) in [("axis", 1.0), ("mark", 1.0 + BAND), ("mark", 1.0 - BAND)] {
            let (from, to) = (domain.0.max(domain.0 / by), domain.1.min(domain.1 / by));
            if let (Some(x1), Some(y1), Some(x2), Some(y2)) =
                (x.at(from), y.at(from * by), x.at(to), y.at(to * by))
            {
                line(h, class, (x1, y1), (x2, y2));
            }
        }
        for c in rows {
            write_point(h, c, (x, y), ink(&c.class));
        }
    });
    let note = format!("Dotted lines are {} off.", share(BAND));
    h.leaf("p", &[("class", &"agreement")], note);
}

fn write_point(h: &mut HtmlBuilder, c: &ComparedRow, (x, y): (AxisScale, AxisScale), ink: usize) {
    let (Some(px), Some(py)) = (x.at(c.measured.middle()), y.at(c.predicted)) else { return };
    let (class, d) = shape(ink);
    let at = format!("translate({} {})", PixelPos(px), PixelPos(py));
    h.el("g", &[("class", &format!("tip {}", ink_class(ink))), ("transform", &at)], |h| {
        let unit = &c.unit;
        let data = if c.data { "\nmodel: carries it as data" } else { "" };
        h.leaf(
            "title",
            &[],
            format!(
                "{}\nclass: {}\npredicted: {} {unit}\npublished: {} {unit}\nerror: {}{data}\n\
                 source: {}\ncase: {}",
                c.label,
                c.class,
                num(c.predicted),
                value_text(&c.measured),
                signed(c.error()),
                c.source,
                c.how
            ),
        );
        h.trusted("<circle class=\"hit\" r=\"7\"/>");
        h.el("path", &[("class", &class), ("d", &d)], |_| {});
    });
}

/// Histogram of errors in steps of a percent, stacked by class; larger errors are in the outermost
/// bars.
fn write_histogram(
    h: &mut HtmlBuilder,
    compared: &[ComparedRow],
    measured: &str,
    ink: &dyn Fn(&str) -> usize,
) {
    let mut bins: BTreeMap<i32, BTreeMap<usize, usize>> = BTreeMap::new();
    for c in compared.iter().filter(|c| !c.data) {
        // The bar of 0 contains errors from -0.5 to 0.5 %.
        let bin = (c.error() * 100.0).round().clamp(f64::from(-REACH), f64::from(REACH)) as i32;
        *bins.entry(bin).or_default().entry(ink(&c.class)).or_default() += 1;
    }
    let most = bins.values().map(|b| b.values().sum::<usize>()).max().unwrap_or(0).max(1);
    let right = LEFT + BAR_WIDTH * f64::from(2 * REACH + 1);
    let foot = TOP + 14.0 + BAR_HEIGHT;
    let view = format!("0 0 {} {}", PixelPos(right + RIGHT), PixelPos(foot + BOTTOM));
    let attrs: HtmlAttrs<'_> = &[
        ("class", &"chart histogram"),
        ("viewBox", &view),
        ("role", &"img"),
        ("aria-label", &"How many values have which error"),
    ];
    h.el("svg", attrs, |h| {
        for bin in -REACH..=REACH {
            let left = LEFT + BAR_WIDTH * f64::from(bin + REACH);
            let mut top = foot;
            for (class, n) in bins.get(&bin).into_iter().flatten() {
                let height = *n as f64 / most as f64 * BAR_HEIGHT;
                top -= height;
                let attrs: HtmlAttrs<'_> = &[
                    ("class", &format!("stack {}", ink_class(*class))),
                    ("x", &PixelPos(left + 2.0)),
                    ("y", &PixelPos(top)),
                    ("width", &PixelPos(BAR_WIDTH - 4.0)),
                    ("height", &PixelPos(height)),
                ];
                h.el("rect", attrs, |_| {});
            }
            let n: usize = bins.get(&bin).into_iter().flatten().map(|(_, n)| n).sum();
            if n > 0 {
                text_at(h, "mid", (left + BAR_WIDTH / 2.0, top - 4.0), &n.to_string());
            }
            if bin % 2 == 0 {
                let text = match bin {
                    b if b == REACH => format!("≥{b}"),
                    b if b == -REACH => format!("≤{b}"),
                    b => format!("{b}"),
                };
                text_at(h, "mid", (left + BAR_WIDTH / 2.0, foot + 18.0), &text);
            }
        }
        line(h, "axis", (LEFT, foot), (right, foot));
        let name = format!("predicted above or below what was {measured}, in percent");
        text_at(h, "mid name", (f64::midpoint(LEFT, right), foot + 38.0), &name);
    });
}

fn write_legend(h: &mut HtmlBuilder, classes: &[&str]) {
    h.el("ul", &[("class", &"legend lines")], |h| {
        for (at, class) in classes.iter().enumerate() {
            let (dot, d) = shape(at);
            h.el("li", &[], |h| {
                let attrs: HtmlAttrs<'_> = &[
                    ("class", &ink_class(at)),
                    ("viewBox", &"-13 -6 26 12"),
                    ("aria-hidden", &"true"),
                ];
                h.el("svg", attrs, |h| {
                    h.el("path", &[("class", &dot), ("d", &d)], |_| {});
                });
                h.text(class);
            });
        }
    });
}

pub(super) fn head(h: &mut HtmlBuilder, columns: &[&str]) {
    h.el("thead", &[], |h| {
        h.el("tr", &[], |h| {
            for column in columns {
                h.leaf("th", &[("scope", &"col")], column);
            }
        });
    });
}

fn write_classes(h: &mut HtmlBuilder, classes: &[ClassErrors]) {
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"rows")], |h| {
            head(h, &["class", "rows", "median", "p95", "worst", "which"]);
            h.el("tbody", &[], |h| {
                for c in classes {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], &c.name);
                        h.leaf("td", &[("class", &"n")], c.n);
                        for error in [c.median, c.p95, c.worst] {
                            h.leaf("td", &[("class", &"n")], share(error));
                        }
                        h.leaf("td", &[("class", &"words")], &c.worst_label);
                    });
                }
            });
        });
    });
}

fn write_rows(h: &mut HtmlBuilder, compared: &[ComparedRow]) {
    let columns = ["row", "error", "predicted", "published", "", "class", "source", "formed as"];
    h.el("div", &[("class", &"scroll tall")], |h| {
        h.el("table", &[("class", &"rows compared")], |h| {
            head(h, &columns);
            h.el("tbody", &[], |h| {
                for c in farthest(compared) {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], &c.label);
                        h.leaf("td", &[("class", &"n")], signed(c.error()));
                        h.leaf("td", &[("class", &"n")], num(c.predicted));
                        h.leaf("td", &[("class", &"n")], value_text(&c.measured));
                        h.leaf("td", &[], &c.unit);
                        h.leaf("td", &[], &c.class);
                        h.leaf("td", &[("class", &"words")], &c.source);
                        h.leaf("td", &[("class", &"words case")], &c.how);
                    });
                }
            });
        });
    });
}

fn write_contradictions(h: &mut HtmlBuilder, all: &[RowContradiction]) {
    h.leaf(
        "p",
        &[("class", &"finding")],
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
