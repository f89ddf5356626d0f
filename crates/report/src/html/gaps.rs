//! Differences over two axes: one map for each statistic, on a common scale.

use super::build::HtmlBuilder;
use super::cell::{CellJudge, is_blank, value};
use super::colour;
use super::number::{num, percent};
use pathline_explain::figure::{GapsBody, PairedGap};

/// Minimum relative difference at the ends of the scale; smaller ones stay pale.
const MIN_SCALE: f64 = 0.1;

/// Relative difference at the ends of the scale: the largest one whose interval excludes zero and
/// whose queue was not saturated, rounded up to 1, 2 or 5 of a decade; at most 2.
fn reach(gaps: &GapsBody) -> f64 {
    let all = gaps.panels.iter().flat_map(|(_, rows)| rows.iter().flatten());
    let clear = all.filter(|g| !g.is_zero && g.saturated.is_none());
    let most = clear.filter_map(PairedGap::relative).map(f64::abs).fold(MIN_SCALE, f64::max);
    [0.1, 0.2, 0.5, 1.0].into_iter().find(|end| most <= end * 1.0001).unwrap_or(2.0)
}

/// Writes the maps and their common legend.
pub(super) fn write(h: &mut HtmlBuilder, gaps: &GapsBody, judge: CellJudge<'_>, title: &str) {
    let reach = reach(gaps);
    h.el("div", &[("class", &"gaps")], |h| {
        for (name, rows) in &gaps.panels {
            h.el("div", &[("class", &"panel")], |h| {
                h.el("h4", &[], |h| {
                    h.text(name).text(" ").leaf(
                        "small",
                        &[],
                        format!("{} − {}, {}", gaps.other, gaps.base, gaps.unit),
                    );
                });
                h.el("div", &[("class", &"scroll")], |h| {
                    write_panel(h, gaps, (name, rows), (reach, judge), title)
                });
            });
        }
    });
    write_legend(h, gaps, reach);
}

fn write_panel(
    h: &mut HtmlBuilder,
    gaps: &GapsBody,
    (name, rows): (&str, &[Vec<PairedGap>]),
    look: (f64, CellJudge<'_>),
    title: &str,
) {
    h.el("table", &[("class", &"heat"), ("data-tips", &gaps.cols.len())], |h| {
        h.leaf("caption", &[], format!("{title}, {name}, {}", gaps.unit));
        h.el("thead", &[], |h| {
            h.el("tr", &[], |h| {
                h.el("th", &[("class", &"corner"), ("scope", &"col")], |h| {
                    h.leaf("span", &[], format!("{} ↓", gaps.row_axis)).text(" ");
                    h.leaf("span", &[], format!("{} →", gaps.col_axis));
                });
                for col in &gaps.cols {
                    h.leaf("th", &[("scope", &"col")], col);
                }
            });
        });
        h.el("tbody", &[], |h| {
            for (row, cells) in gaps.rows.iter().zip(rows) {
                h.el("tr", &[], |h| {
                    h.leaf("th", &[("scope", &"row")], row);
                    for (col, gap) in gaps.cols.iter().zip(cells) {
                        let (rows, cols) = (&gaps.row_axis, &gaps.col_axis);
                        let heading = format!("{name}, {rows} {row}, {cols} {col}");
                        write_cell(h, gaps, gap, &heading, look);
                    }
                });
            }
        });
    });
}

fn write_cell(
    h: &mut HtmlBuilder,
    gaps: &GapsBody,
    gap: &PairedGap,
    heading: &str,
    (reach, judge): (f64, CellJudge<'_>),
) {
    if is_blank(&gap.cell) {
        h.el("td", &[("class", &"blank")], |h| {
            h.leaf("span", &[("class", &"sr")], "does not apply");
        });
        return;
    }
    let detail = detail(gaps, gap, heading, judge);
    let Some(v) = value(&gap.cell) else {
        h.leaf("td", &[("class", &"tip absent"), ("title", &detail)], "–");
        return;
    };
    let relative = gap.relative();
    let mut class = String::from("tip");
    match relative {
        Some(relative) if !gap.is_zero => {
            class += &format!(" v{}", colour::signed_step(relative / reach));
        }
        _ => class += " zero",
    }
    if gap.saturated.is_some() {
        class += " queue";
    }
    h.el("td", &[("class", &class), ("title", &detail)], |h| {
        h.text(signed(v));
        let small = relative.map_or(String::new(), |r| {
            format!("{}{}", if r >= 0.0 { "+" } else { "−" }, percent(r.abs()))
        });
        h.leaf("small", &[], if gap.is_zero { "≈ 0".to_owned() } else { small });
    });
}

/// `+13.2`, `−4.10`.
fn signed(v: f64) -> String {
    format!("{}{}", if v >= 0.0 { "+" } else { "−" }, num(v.abs()))
}

fn detail(gaps: &GapsBody, gap: &PairedGap, heading: &str, judge: CellJudge<'_>) -> String {
    let detail = judge.detail(heading, &gap.cell);
    let mut lines: Vec<String> = Vec::new();
    if let (Some(base), Some(other)) = (gap.base, gap.other) {
        let (b, o) = (judge.with_unit(base), judge.with_unit(other));
        lines.push(format!("all samples: {} {b}, {} {o}", gaps.base, gaps.other));
        lines.push(format!("pairs: {} of samples taken in turn", gap.pairs));
    }
    if gap.is_zero {
        lines.push("warning: the interval of the differences contains zero".into());
    }
    if let Some(why) = &gap.saturated {
        lines.push(format!("saturated: {why}"));
    }
    let mut all: Vec<&str> = detail.lines().collect();
    let at = all.iter().position(|l| l.starts_with("case: ")).unwrap_or(all.len());
    let tail = all.split_off(at);
    all.extend(lines.iter().map(String::as_str));
    all.extend(tail);
    all.join("\n")
}

fn write_legend(h: &mut HtmlBuilder, gaps: &GapsBody, reach: f64) {
    let any = |has: fn(&PairedGap) -> bool| {
        gaps.panels.iter().any(|(_, rows)| rows.iter().flatten().any(has))
    };
    let key = |h: &mut HtmlBuilder, class: &'static str, label: &str| {
        h.text(" ").el("span", &[("class", &"pair")], |h| {
            h.el("span", &[("class", &class)], |_| {}).text(" ").text(label);
        });
    };
    h.el("p", &[("class", &"legend")], |h| {
        h.leaf("span", &[], format!("−{}", percent(reach))).text(" ");
        h.el("span", &[("class", &"ramp signed")], |_| {}).text(" ");
        h.leaf("span", &[], format!("+{}", percent(reach))).text(" ");
        h.leaf("span", &[], format!("of the {} of {}", gaps.quantity, gaps.base));
        if any(|g| g.is_zero && g.cell.value.is_some()) {
            key(h, "key zero", "not distinguishable from zero");
        }
        if any(|g| g.saturated.is_some()) {
            key(h, "key queue", "saturated: it measures throughput, not the copy");
        }
        if any(|g| !is_blank(&g.cell) && g.cell.value.is_none()) {
            key(h, "key absent", "not measured");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::BetterWhen;
    use pathline_explain::figure::FigureCell;

    fn gap(v: f64, half_width: f64, base: f64) -> PairedGap {
        PairedGap {
            cell: FigureCell { value: Some(v), half_width, ..FigureCell::default() },
            base: Some(base),
            other: Some(base + v),
            pairs: 9,
            is_zero: v.abs() <= half_width,
            saturated: None,
        }
    }

    fn html(cells: Vec<PairedGap>) -> String {
        let gaps = GapsBody {
            quantity: "latency".into(),
            unit: "us".into(),
            base: "host".into(),
            other: "gpu0".into(),
            row_axis: "threads".into(),
            col_axis: "depth".into(),
            rows: vec!["1".into()],
            cols: (0..cells.len()).map(|i| (1 << i).to_string()).collect(),
            panels: vec![("p50".into(), vec![cells])],
        };
        let mut h = HtmlBuilder::default();
        write(&mut h, &gaps, CellJudge::new("us", BetterWhen::Neither), "t");
        h.finish()
    }

    #[test]
    fn colour_is_the_difference_over_the_hosts_latency() {
        // +20 of 50 us are 40 %: the scale ends at 50 %, and 40 / 50 of the upper half is step 18.
        let page = html(vec![gap(20.0, 1.0, 50.0), gap(-5.0, 1.0, 50.0)]);
        assert!(
            page.contains("class=\"tip v18\"") && page.contains(">+20.0<small>+40 %<"),
            "{page}"
        );
        // -10 % is a fifth of the lower half: step 10 - 2.
        assert!(page.contains("class=\"tip v8\"") && page.contains(">−5.00<small>−10 %<"));
        assert!(page.contains("all samples: host 50 us, gpu0 70 us"));
    }

    #[test]
    fn indistinct_and_saturated_values_are_marked() {
        let queue = PairedGap { saturated: Some("host: no".into()), ..gap(500.0, 1.0, 400.0) };
        let page = html(vec![gap(2.0, 3.0, 50.0), queue]);
        assert!(page.contains("class=\"tip zero\"") && page.contains("≈ 0"), "{page}");
        // Neither affects the scale, which ends at its minimum of 10 %: the saturated queue gets
        // the last step.
        assert!(page.contains("class=\"tip v20 queue\"") && page.contains("+10 %</span>"));
        assert!(page.contains("saturated: host: no"));
        assert!(
            page.contains("not distinguishable from zero")
                && page.contains("it measures throughput")
        );
    }
}
