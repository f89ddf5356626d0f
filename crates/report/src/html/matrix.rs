//! Heat maps: tables whose cells contain their value, in up to three colourings.

use super::build::HtmlBuilder;
use super::cell::{CellJudge, deviation, is_blank, place, value};
use super::colour;
use super::number::{percent, signed_percent};
use pathline_explain::figure::{BetterWhen, FigureCell, MatrixBody, Suspicion};
use pathline_explain::peer_class::PeerView;

/// Minimum relative deviation from a published value that is marked.
pub(super) const MAX_DEVIATION: f64 = 0.10;

/// Share of its ceiling above which a value is marked: value or ceiling must be wrong.
const OVER: f64 = 1.02;

/// Number of columns from which cells use a smaller font.
const DENSE: usize = 12;

/// Relative difference from the peers at the ends of the scale.
const REACH: f64 = 0.25;

/// Share of the best value below which the colour scale is logarithmic.
const DECADE: f64 = 0.1;

/// Available colourings of a matrix, besides the value itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MatrixViews {
    /// Whether ceilings are known.
    pub(super) peak: bool,
    /// Whether there are cells with equal expected values.
    pub(super) peers: bool,
}

impl MatrixViews {
    pub(super) fn from_matrix(m: &MatrixBody, judge: CellJudge<'_>) -> Self {
        let cells = || m.cells.iter().flatten();
        Self {
            // A value in percent is already a share.
            peak: m.unit != "%" && cells().any(|c| judge.share(c).is_some()),
            peers: PeerView::from_matrix(m).speeds.iter().flatten().any(Option::is_some),
        }
    }

    /// The union of two matrices' views.
    pub(super) fn or(self, other: Self) -> Self {
        Self { peak: self.peak || other.peak, peers: self.peers || other.peers }
    }

    /// Writes the buttons that switch views without scripts; `id` must be unique on the page.
    pub(super) fn write_switches(self, h: &mut HtmlBuilder, id: &str) {
        if !self.peak && !self.peers {
            return;
        }
        let views = [
            ("value", "value", true),
            ("peak", "of peak", self.peak),
            ("peers", "against peers", self.peers),
        ];
        let name = format!("{id}-view");
        h.el("fieldset", &[("class", &"switches")], |h| {
            h.leaf("legend", &[], "Colour");
            for (key, label, _) in views.into_iter().filter(|view| view.2) {
                switch(h, &name, &format!("to-{key}"), label, key == "value");
            }
        });
    }
}

/// One of several mutually exclusive buttons. Style rules refer to `class`.
pub(super) fn switch(h: &mut HtmlBuilder, name: &str, class: &str, label: &str, on: bool) {
    h.el("label", &[], |h| {
        let attrs: super::build::HtmlAttrs<'_> =
            &[("type", &"radio"), ("name", &name), ("class", &class)];
        match on {
            true => h.void("input", &[attrs, &[("checked", &"")]].concat()),
            false => h.void("input", attrs),
        };
        h.leaf("span", &[], label);
    });
}

/// The colour scale of a matrix: the best value is bright.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ValueScale {
    best: f64,
    /// The value with the darkest colour.
    dark: f64,
    log: bool,
    better: BetterWhen,
}

impl ValueScale {
    fn from_matrix(m: &MatrixBody) -> Option<Self> {
        // The diagonal of a pair matrix has transfers inside one unit and does not affect the
        // scale.
        let diagonal = |r: usize, c: usize| m.rows == m.cols && r == c && m.rows.len() > 1;
        let cells = m.cells.iter().enumerate().flat_map(|(r, row)| {
            let pairs = row.iter().enumerate().filter(move |(c, _)| !diagonal(r, *c));
            pairs.map(|(_, cell)| cell)
        });
        let values: Vec<f64> = cells.filter_map(value).filter(|v| *v > 0.0).collect();
        let values = || values.iter().copied();
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(0.0, f64::max);
        if !(low.is_finite() && high > 0.0) {
            return None;
        }
        // Fewer hops are better.
        let (best, worst) = match m.better {
            BetterWhen::Higher => (high, low),
            BetterWhen::Lower | BetterWhen::Neither => (low, high),
        };
        let share = low / high;
        // At most half of the best, so that noise among equal values keeps one colour.
        let dark = match m.better {
            _ if share < DECADE => worst,
            BetterWhen::Higher if share >= 0.5 => best / 2.0,
            BetterWhen::Higher => 0.0,
            BetterWhen::Lower | BetterWhen::Neither => best * (1.0 / share).max(2.0),
        };
        Some(Self { best, dark, log: share < DECADE, better: m.better })
    }

    /// Position on the scale, from 0 for the darkest to 1 for the brightest.
    fn at(self, v: f64) -> f64 {
        let share = match self.better {
            BetterWhen::Higher if self.log => (v / self.dark).ln() / (self.best / self.dark).ln(),
            BetterWhen::Higher => (v - self.dark) / (self.best - self.dark),
            _ if self.log => (self.dark / v).ln() / (self.dark / self.best).ln(),
            _ => (self.best / v - self.best / self.dark) / (1.0 - self.best / self.dark),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Writes a heat map with buttons and legend.
pub(super) fn write(
    h: &mut HtmlBuilder,
    m: &MatrixBody,
    judge: CellJudge<'_>,
    (id, title): (&str, &str),
) {
    h.el("div", &[("class", &"views")], |h| {
        MatrixViews::from_matrix(m, judge).write_switches(h, id);
        write_map(h, m, judge, title);
    });
}

/// Writes the map and its legends without buttons.
pub(super) fn write_map(h: &mut HtmlBuilder, m: &MatrixBody, judge: CellJudge<'_>, title: &str) {
    let look = MapLook::from_matrix(m, judge);
    let class = if m.cols.len() >= DENSE { "heat dense" } else { "heat" };
    let shown = shown_columns(m);
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &class), ("data-tips", &shown.len())], |h| {
            h.leaf("caption", &[], format!("{title}, {}", m.unit));
            h.el("thead", &[], |h| write_head(h, m, &shown));
            h.el("tbody", &[], |h| {
                for (r, cells) in m.cells.iter().enumerate() {
                    // Rows and columns without cells are omitted.
                    if m.cells.len() >= DENSE && cells.iter().all(is_blank) {
                        continue;
                    }
                    let row = m.rows.get(r).map_or("", String::as_str);
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], row);
                        for &c in &shown {
                            if let Some(cell) = cells.get(c) {
                                write_cell(h, cell, &look, judge, (r, c), &place(m, r, c));
                            }
                        }
                    });
                }
            });
        });
    });
    write_legend(h, m, &look, judge);
}

/// Columns to draw; a large matrix omits those without cells.
fn shown_columns(m: &MatrixBody) -> Vec<usize> {
    let longest = m.cells.iter().map(Vec::len).max().unwrap_or(0).max(m.cols.len());
    let blank = |c: usize| m.cells.iter().all(|row| row.get(c).is_none_or(is_blank));
    (0..longest).filter(|&c| m.cols.len() < DENSE || !blank(c)).collect()
}

/// The colours of a matrix.
struct MapLook {
    views: MatrixViews,
    scale: Option<ValueScale>,
    peers: PeerView,
    /// Numbers of parallel links in descending order; empty if all are equal.
    widths: Vec<u32>,
}

impl MapLook {
    fn from_matrix(m: &MatrixBody, judge: CellJudge<'_>) -> Self {
        let peers = PeerView::from_matrix(m);
        let mut widths = peers.widths();
        if widths.len() < 2 {
            widths.clear();
        }
        Self {
            views: MatrixViews::from_matrix(m, judge),
            scale: ValueScale::from_matrix(m),
            peers,
            widths,
        }
    }

    fn speed(&self, (row, col): (usize, usize)) -> Option<f64> {
        *self.peers.speeds.get(row)?.get(col)?
    }

    /// Rank of a cell's number of links: 0 for the most links.
    fn width_rank(&self, (row, col): (usize, usize)) -> Option<usize> {
        let links = (*self.peers.links.get(row)?.get(col)?)?;
        self.widths.iter().position(|w| *w == links)
    }
}

fn write_head(h: &mut HtmlBuilder, m: &MatrixBody, shown: &[usize]) {
    h.el("tr", &[], |h| {
        h.el("th", &[("class", &"corner"), ("scope", &"col")], |h| {
            h.leaf("span", &[], format!("{} ↓", m.row_axis)).text(" ");
            h.leaf("span", &[], format!("{} →", m.col_axis));
        });
        for col in shown.iter().filter_map(|&c| m.cols.get(c)) {
            h.leaf("th", &[("scope", &"col")], col);
        }
    });
}

fn write_cell(
    h: &mut HtmlBuilder,
    cell: &FigureCell,
    look: &MapLook,
    judge: CellJudge<'_>,
    at: (usize, usize),
    heading: &str,
) {
    if is_blank(cell) {
        h.trusted("<td class=\"blank\"></td>");
        return;
    }
    let speed = look.speed(at);
    let mut detail = judge.detail(heading, cell);
    if let Some(speed) = speed {
        // After the heading and the median.
        let line = format!("\nagainst peers: {}", signed_percent(speed - 1.0));
        let end = detail.match_indices('\n').nth(1).map_or(detail.len(), |(at, _)| at);
        detail.insert_str(end, &line);
    }
    let Some(v) = value(cell) else {
        h.leaf("td", &[("class", &"tip absent"), ("title", &detail)], "–");
        return;
    };
    let share = judge.share(cell);
    let suspicion = judge.suspicion(cell);
    let mut class = String::from("tip");
    if let Some(scale) = look.scale {
        class += &format!(" q{}", colour::step(scale.at(v)));
    }
    if let (true, Some(share)) = (look.views.peak, share) {
        class += &format!(" p{}", colour::step(share));
    }
    if let Some(speed) = speed {
        class += &format!(" v{}", colour::signed_step((1.0 - speed) / REACH));
    }
    if let Some(rank) = look.width_rank(at) {
        class += &format!(" w{}", rank.min(2));
    }
    if deviation(cell).is_some_and(|d| d.abs() > MAX_DEVIATION) {
        class += " far";
    }
    if is_over(cell, judge) {
        class += " over";
    }
    if suspicion.is_some() {
        class += " suspect";
    }
    h.el("td", &[("class", &class), ("title", &detail)], |h| {
        h.text(judge.num(v));
        if let Some((mark, _)) = suspicion {
            h.leaf("sup", &[], mark);
        }
        if let (true, Some(share)) = (look.views.peak, share) {
            h.leaf("small", &[], percent(share));
        }
        if let Some(speed) = speed {
            h.leaf("small", &[("class", &"vs")], signed_percent(speed - 1.0));
        }
    });
}

fn is_over(cell: &FigureCell, judge: CellJudge<'_>) -> bool {
    judge.share(cell).is_some_and(|share| share > OVER)
        || matches!(cell.suspect, Some(Suspicion::BeyondCeiling(_)))
}

fn write_legend(h: &mut HtmlBuilder, m: &MatrixBody, look: &MapLook, judge: CellJudge<'_>) {
    let Some(scale) = look.scale else { return };
    let cells = || m.cells.iter().flatten();
    h.el("p", &[("class", &"legend")], |h| {
        let best = format!("{} (best)", judge.with_unit(scale.best));
        let kind = if scale.log { "logarithmic" } else { "" };
        write_ramp(h, "of-value", "ramp", [&judge.num(scale.dark), &best, kind]);
        if look.views.peak {
            write_ramp(h, "of-peak", "ramp", ["0 %", "100 %", "of the peak of its narrowest hop"]);
        }
        if look.views.peers {
            let note = "slower or faster than the median of its peers (same links and hops)";
            let ends = [-REACH, REACH].map(signed_percent);
            write_ramp(h, "of-peers", "ramp signed", [&ends[0], &ends[1], note]);
        }
        for (rank, links) in look.widths.iter().enumerate().take(3) {
            let noun = if *links == 1 { "link" } else { "links" };
            let less = if rank == 2 && look.widths.len() > 3 { " or fewer" } else { "" };
            key(h, &format!("key edge w{rank}"), &format!("{links} {noun}{less}"));
        }
        if cells().any(|c| !is_blank(c) && value(c).is_none()) {
            key(h, "key absent", "not measured");
        }
        if cells().any(|c| judge.suspicion(c).is_some()) {
            key(h, "key suspect", "suspect: the reason is in the cell's details");
        }
        if cells().any(|c| deviation(c).is_some_and(|d| d.abs() > MAX_DEVIATION)) {
            key(h, "key far", "more than 10 % from the published value");
        }
        if cells().any(|c| is_over(c, judge)) {
            key(h, "key over", "beyond its ceiling: one of the two is wrong");
        }
    });
}

fn write_ramp(h: &mut HtmlBuilder, view: &str, class: &str, [from, to, note]: [&str; 3]) {
    h.el("span", &[("class", &format!("pair {view}"))], |h| {
        h.leaf("span", &[], from).text(" ");
        h.el("span", &[("class", &class)], |_| {}).text(" ");
        h.leaf("span", &[], to).text(" ").leaf("span", &[], note);
    });
}

fn key(h: &mut HtmlBuilder, class: &str, text: &str) {
    h.text(" ").el("span", &[("class", &"pair")], |h| {
        h.el("span", &[("class", &class)], |_| {}).text(" ").text(text);
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
        write(&mut h, m, CellJudge::new(&m.unit, m.better), ("f", "t"));
        h.finish()
    }

    fn cell(v: f64, ceiling: Option<f64>) -> FigureCell {
        FigureCell { value: Some(v), ceiling, ..FigureCell::default() }
    }

    #[test]
    fn the_brightest_cell_is_the_best_value_and_peaks_are_a_view() {
        let absent = FigureCell { absent: Some("no peer access".into()), ..FigureCell::default() };
        let m = matrix(
            BetterWhen::Higher,
            vec![
                vec![FigureCell::default(), cell(37.5, Some(50.0)), cell(50.0, Some(200.0))],
                vec![absent, FigureCell::default()],
            ],
        );
        let page = html(&m);
        // The darkest value is 25, half of 50: 37.5 is in the middle. The values reach 75 % and 25
        // % of their peaks.
        assert!(
            page.contains("class=\"tip q10 p15\"") && page.contains("class=\"tip q20 p5\""),
            "{page}"
        );
        assert!(page.contains("37.5<small>75 %</small>"));
        assert!(page.contains("no value: no peer access"));
        assert_eq!(page.matches("class=\"blank\"").count(), 2);
        assert!(page.contains("to-peak") && !page.contains("to-peers"));
    }

    #[test]
    fn a_pair_that_is_slower_than_its_peers_is_coloured_so() {
        let row = [40.0, 40.0, 40.0, 35.0].map(|v| cell(v, None)).to_vec();
        let page = html(&matrix(BetterWhen::Higher, vec![row]));
        // 35 / 40 is 12.5 % below the median, half of the range of 25 %: step 10 + 10 / 2.
        assert!(page.contains("v15\"") && page.contains("<small class=\"vs\">-12.5 %"), "{page}");
        assert!(page.contains("against peers: -12.5 %") && page.contains("to-peers"));
    }

    #[test]
    fn a_suspect_cell_is_marked_and_named() {
        let suspect = Some(Suspicion::Busy("others used 2 CPUs".into()));
        let page = html(&matrix(
            BetterWhen::Higher,
            vec![vec![FigureCell { suspect, ..cell(5.0, None) }]],
        ));
        assert!(page.contains(" suspect\"") && page.contains("<sup>~</sup>"), "{page}");
        assert!(page.contains("suspect: busy: others used 2 CPUs"));
    }

    #[test]
    fn a_large_matrix_leaves_out_rows_and_columns_without_a_cell() {
        let mut m = matrix(BetterWhen::Higher, vec![vec![FigureCell::default(); 12]; 12]);
        m.cells[3][7] = cell(5.0, None);
        let page = html(&m);
        assert!(
            page.contains("data-tips=\"1\"") && page.contains(">gpu7<") && page.contains(">gpu3<")
        );
        assert!(!page.contains(">gpu5<"), "{page}");
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
        // 52 / 50 = 104 %; 45 is exactly 10.0 % below 50 and not marked, 44 is 12 % below.
        let over = cell(52.0, Some(50.0));
        let near = FigureCell { published: published(50.0), ..cell(45.0, Some(50.0)) };
        let far = FigureCell { published: published(50.0), ..cell(44.0, Some(50.0)) };
        let page = html(&matrix(BetterWhen::Higher, vec![vec![over, near, far]]));
        assert!(page.contains("p20 v") && page.contains(" over\" title"), "{page}");
        // 88 % is nearest to step 18.
        assert!(page.contains("p18 v") && page.matches(" far\" title").count() == 1, "{page}");
        assert!(page.contains("beyond its ceiling") && page.contains("more than 10 %"));
    }

    #[test]
    fn the_shortest_latency_and_the_fewest_hops_are_bright() {
        for better in [BetterWhen::Lower, BetterWhen::Neither] {
            let page = html(&matrix(better, vec![vec![cell(8.0, None), cell(16.0, None)]]));
            // 8 is the best; 16, twice as much, has the darkest colour.
            assert!(page.contains("tip q20") && page.contains("tip q0"), "{page}");
            assert!(page.contains("(best)"));
        }
    }

    #[test]
    fn values_of_several_decades_have_a_logarithmic_scale() {
        let row = [1.0, 10.0, 100.0].map(|v| cell(v, None)).to_vec();
        let page = html(&matrix(BetterWhen::Higher, vec![row]));
        assert!(page.contains("tip q0") && page.contains("tip q10") && page.contains("tip q20"));
        assert!(page.contains("logarithmic"));
    }

    #[test]
    fn an_empty_matrix_has_no_legend_and_does_not_fail() {
        assert!(!html(&matrix(BetterWhen::Higher, vec![])).contains("ramp"));
    }
}
