//! Heat maps: a table whose cells carry their value and the colour of its share.

use super::build::HtmlBuilder;
use super::cell::{CellJudge, deviation, is_blank, place, value};
use super::colour;
use super::number::percent;
use pathline_explain::figure::{BetterWhen, FigureCell, MatrixBody, Suspicion};

/// Beyond this distance from a published value a cell is marked.
pub(super) const FAR: f64 = 0.10;

/// Beyond this share of its ceiling a value is marked: one of the two must be wrong.
const OVER: f64 = 1.02;

/// From this many columns on, cells are set smaller.
const DENSE: usize = 12;

/// What the colour of a cell stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CellHue {
    /// The share of its own ceiling.
    Ceiling,
    /// The share of the best value of this matrix.
    Best(f64),
    /// The place between the least and the greatest value.
    Between(f64, f64),
}

impl CellHue {
    /// Ceilings where there are any; else values are compared with each other.
    fn of(m: &MatrixBody, judge: CellJudge<'_>) -> Self {
        let cells = || m.cells.iter().flatten();
        if cells().any(|c| judge.share(c).is_some()) {
            return Self::Ceiling;
        }
        let values = || cells().filter_map(value);
        let lo = values().fold(f64::INFINITY, f64::min);
        let hi = values().fold(f64::NEG_INFINITY, f64::max);
        match m.better {
            BetterWhen::Higher => Self::Best(hi),
            BetterWhen::Lower => Self::Best(lo),
            BetterWhen::Neither => Self::Between(lo, hi),
        }
    }

    fn share(self, cell: &FigureCell, judge: CellJudge<'_>) -> Option<f64> {
        match self {
            Self::Ceiling => judge.share(cell),
            Self::Best(best) => judge.share_of(value(cell)?, best),
            Self::Between(lo, hi) if lo < hi => Some((value(cell)? - lo) / (hi - lo)),
            Self::Between(..) => value(cell).map(|_| 0.5),
        }
    }
}

/// Writes the heat map and its legend.
pub(super) fn write(h: &mut HtmlBuilder, m: &MatrixBody, judge: CellJudge<'_>, title: &str) {
    let hue = CellHue::of(m, judge);
    let class = if m.cols.len() >= DENSE { "heat dense" } else { "heat" };
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &class), ("data-tips", &m.cols.len())], |h| {
            h.leaf("caption", &[], format!("{title}, {}", m.unit));
            h.el("thead", &[], |h| write_head(h, m));
            h.el("tbody", &[], |h| {
                for (r, cells) in m.cells.iter().enumerate() {
                    let row = m.rows.get(r).map_or("", String::as_str);
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], row);
                        for (c, cell) in cells.iter().enumerate() {
                            write_cell(h, cell, hue, judge, &place(m, r, c));
                        }
                    });
                }
            });
        });
    });
    write_legend(h, m, hue, judge);
}

fn write_head(h: &mut HtmlBuilder, m: &MatrixBody) {
    h.el("tr", &[], |h| {
        h.el("th", &[("class", &"corner"), ("scope", &"col")], |h| {
            h.leaf("span", &[], format!("{} ↓", m.row_axis)).text(" ");
            h.leaf("span", &[], format!("{} →", m.col_axis));
        });
        for col in &m.cols {
            h.leaf("th", &[("scope", &"col")], col);
        }
    });
}

fn write_cell(
    h: &mut HtmlBuilder,
    cell: &FigureCell,
    hue: CellHue,
    judge: CellJudge<'_>,
    heading: &str,
) {
    if is_blank(cell) {
        h.el("td", &[("class", &"blank")], |h| {
            h.leaf("span", &[("class", &"sr")], "does not apply");
        });
        return;
    }
    let detail = judge.detail(heading, cell);
    let Some(v) = value(cell) else {
        h.leaf("td", &[("class", &"tip absent"), ("title", &detail)], "–");
        return;
    };
    let share = hue.share(cell, judge);
    let mut class = String::from("tip");
    if let Some(share) = share {
        class += &format!(" q{}", colour::step(share));
    }
    if deviation(cell).is_some_and(|d| d.abs() > FAR) {
        class += " far";
    }
    if is_over(cell, judge) {
        class += " over";
    }
    h.el("td", &[("class", &class), ("title", &detail)], |h| {
        h.text(judge.num(v));
        if let (CellHue::Ceiling, Some(share)) = (hue, share) {
            h.leaf("small", &[], percent(share));
        }
    });
}

fn is_over(cell: &FigureCell, judge: CellJudge<'_>) -> bool {
    judge.share(cell).is_some_and(|share| share > OVER)
        || matches!(cell.suspect, Some(Suspicion::BeyondCeiling(_)))
}

fn write_legend(h: &mut HtmlBuilder, m: &MatrixBody, hue: CellHue, judge: CellJudge<'_>) {
    let (from, to, meaning) = match hue {
        CellHue::Ceiling => {
            ("0 %".to_owned(), "100 %".to_owned(), "of the ceiling reached".to_owned())
        }
        CellHue::Best(best) if best.is_finite() => {
            let best = judge.with_unit(best);
            let meaning = format!("of the best here, {best}; no ceiling is known");
            ("0 %".to_owned(), "100 %".to_owned(), meaning)
        }
        CellHue::Between(lo, hi) if lo <= hi => (judge.num(lo), judge.num(hi), m.unit.clone()),
        _ => return,
    };
    let cells = || m.cells.iter().flatten();
    h.el("p", &[("class", &"legend")], |h| {
        h.leaf("span", &[], from).text(" ");
        h.el("span", &[("class", &"ramp")], |_| {}).text(" ");
        h.leaf("span", &[], to).text(" ").leaf("span", &[], meaning);
        if cells().any(|c| !is_blank(c) && value(c).is_none()) {
            key(h, "key absent", "not measured");
        }
        if cells().any(|c| deviation(c).is_some_and(|d| d.abs() > FAR)) {
            key(h, "key far", "more than 10 % from the published value");
        }
        if cells().any(|c| is_over(c, judge)) {
            key(h, "key over", "beyond its ceiling: one of the two is wrong");
        }
    });
}

fn key(h: &mut HtmlBuilder, class: &'static str, words: &str) {
    h.text(" ").el("span", &[("class", &"pair")], |h| {
        h.el("span", &[("class", &class)], |_| {}).text(" ").text(words);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::PublishedValue;

    fn matrix(better: BetterWhen, cells: Vec<Vec<FigureCell>>) -> MatrixBody {
        let labels: Vec<String> = (0..cells.len()).map(|i| format!("gpu{i}")).collect();
        MatrixBody {
            unit: "GB/s".into(),
            row_axis: "from".into(),
            col_axis: "to".into(),
            rows: labels.clone(),
            cols: labels,
            cells,
            better,
        }
    }

    fn html(m: &MatrixBody) -> String {
        let mut h = HtmlBuilder::default();
        write(&mut h, m, CellJudge { unit: &m.unit, better: m.better }, "t");
        h.finish()
    }

    fn cell(v: f64, ceiling: Option<f64>) -> FigureCell {
        FigureCell { value: Some(v), ceiling, ..FigureCell::default() }
    }

    #[test]
    fn colour_is_the_share_of_the_ceiling() {
        let absent = FigureCell { absent: Some("no peer access".into()), ..FigureCell::default() };
        let m = matrix(
            BetterWhen::Higher,
            vec![
                vec![FigureCell::default(), cell(37.5, Some(50.0))],
                vec![absent, FigureCell::default()],
            ],
        );
        let page = html(&m);
        assert!(page.contains("class=\"tip q15\""), "75 % is step 15 of 20: {page}");
        assert!(page.contains("37.5<small>75 %</small>"));
        assert!(page.contains("no value: no peer access"));
        assert_eq!(page.matches("class=\"blank\"").count(), 2);
    }

    #[test]
    fn a_value_beyond_its_ceiling_or_far_from_the_published_one_is_marked() {
        let published = |value| {
            Some(PublishedValue {
                value,
                kind: pathline_explain::figure::SourceKind::Paper,
                source: "paper".into(),
            })
        };
        // 52 / 50 = 104 %; 45 is 10.0 % below 50 and not beyond that, 44 is 12 % below.
        let over = cell(52.0, Some(50.0));
        let near = FigureCell { published: published(50.0), ..cell(45.0, Some(50.0)) };
        let far = FigureCell { published: published(50.0), ..cell(44.0, Some(50.0)) };
        let page = html(&matrix(BetterWhen::Higher, vec![vec![over, near, far]]));
        assert!(page.contains("tip q20 over\"") && page.contains("tip q18\""), "{page}");
        assert!(page.contains("tip q18 far\""), "88 % is nearest to step 18: {page}");
        assert!(page.contains("beyond its ceiling") && page.contains("more than 10 %"));
    }

    #[test]
    fn without_ceilings_latencies_are_held_against_the_best() {
        let m = matrix(BetterWhen::Lower, vec![vec![cell(8.0, None), cell(16.0, None)]]);
        let page = html(&m);
        assert!(page.contains("tip q20") && page.contains("tip q10"), "8/8 and 8/16: {page}");
        assert!(page.contains("of the best here, 8.00 GB/s"));
    }

    #[test]
    fn hops_are_coloured_between_least_and_most() {
        let m = matrix(BetterWhen::Neither, vec![vec![cell(1.0, None), cell(3.0, None)]]);
        assert!(html(&m).contains("tip q0") && html(&m).contains("tip q20"));
        let equal = matrix(BetterWhen::Neither, vec![vec![cell(1.0, None)]]);
        assert!(html(&equal).contains("tip q10"));
    }

    #[test]
    fn an_empty_matrix_has_no_legend_and_does_not_fail() {
        assert!(!html(&matrix(BetterWhen::Higher, vec![])).contains("ramp"));
    }
}
