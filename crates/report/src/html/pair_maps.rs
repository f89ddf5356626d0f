//! Maps of GPU pairs as one figure: a tab for each mover, unidirectional or bidirectional.

use super::build::HtmlBuilder;
use super::cell::{self, PageContext};
use super::matrix::{self, MatrixViews, switch};
use super::{write_losses, write_rest};
use pathline_explain::figure::{Figure, FigureBody, MatrixBody};

/// Movers in display order: the id of their figure after `pairs-`, and the tab's label.
const MOVERS: [(&str, &str); 6] = [
    ("dma", "engine"),
    ("dma-pull", "engine, pulled"),
    ("blit", "blit"),
    ("blit-pull", "blit, pulled"),
    ("read", "read"),
    ("write", "write"),
];

/// Mover and direction of a pair map: its index in [`MOVERS`], and whether it is bidirectional.
/// `None` for other figures.
fn tab(figure: &Figure) -> Option<(usize, bool)> {
    if !matches!(figure.body, FigureBody::Matrix(_)) {
        return None;
    }
    let name = figure.id.strip_prefix("pairs-")?;
    let (mover, both) = match name.strip_suffix("-both") {
        Some(mover) => (mover, true),
        None => (name, false),
    };
    Some((MOVERS.iter().position(|(key, _)| *key == mover)?, both))
}

/// Whether a figure is one of the pair maps.
pub(super) fn is_pair_map(figure: &Figure) -> bool {
    tab(figure).is_some()
}

/// Writes tabs, colour buttons and all maps. `figures` have their anchors; `id` must be unique on
/// the page.
pub(super) fn write(
    h: &mut HtmlBuilder,
    figures: &[(String, &Figure)],
    id: &str,
    page: PageContext<'_>,
) {
    let maps: Vec<PairMap<'_>> = figures
        .iter()
        .filter_map(|(anchor, figure)| {
            let FigureBody::Matrix(matrix) = &figure.body else { return None };
            let (mover, both) = tab(figure)?;
            Some(PairMap { anchor, figure, matrix, mover, both })
        })
        .collect();
    let has = |mover: usize, both: bool| maps.iter().any(|m| (m.mover, m.both) == (mover, both));
    let movers: Vec<usize> = (0..MOVERS.len()).filter(|&m| has(m, false) || has(m, true)).collect();
    let both: Vec<bool> =
        [false, true].into_iter().filter(|&b| maps.iter().any(|m| m.both == b)).collect();
    h.el("div", &[("class", &"views tabs")], |h| {
        h.el("div", &[("class", &"bar")], |h| {
            h.el("fieldset", &[("class", &"switches")], |h| {
                h.leaf("legend", &[], "Mover");
                for (i, &mover) in movers.iter().enumerate() {
                    let label = MOVERS.get(mover).map_or("", |m| m.1);
                    switch(h, &format!("{id}-mover"), &format!("m{mover}"), label, i == 0);
                }
            });
            h.el("fieldset", &[("class", &"switches")], |h| {
                h.leaf("legend", &[], "Direction");
                for (i, &both) in both.iter().enumerate() {
                    let label = if both { "both ways, sum" } else { "one way" };
                    let class = format!("d{}", u8::from(both));
                    switch(h, &format!("{id}-direction"), &class, label, i == 0);
                }
            });
            let views = |m: &PairMap<'_>| {
                MatrixViews::from_matrix(m.matrix, cell::judge(&m.figure.body, page))
            };
            let all = maps.iter().map(views).fold(MatrixViews::default(), MatrixViews::or);
            all.write_switches(h, id);
        });
        for &mover in &movers {
            for &both in &both {
                let class = format!("pane pm{mover} pd{}", u8::from(both));
                match maps.iter().find(|m| (m.mover, m.both) == (mover, both)) {
                    Some(map) => {
                        let attrs: super::build::HtmlAttrs<'_> =
                            &[("class", &class), ("id", &map.anchor)];
                        h.el("div", attrs, |h| map.write(h, page));
                    }
                    None => {
                        let class = format!("{class} nothing");
                        h.leaf("p", &[("class", &class)], "Not in the plan of this run.");
                    }
                }
            }
        }
    });
}

struct PairMap<'a> {
    anchor: &'a str,
    figure: &'a Figure,
    matrix: &'a MatrixBody,
    mover: usize,
    both: bool,
}

impl PairMap<'_> {
    fn write(&self, h: &mut HtmlBuilder, page: PageContext<'_>) {
        let judge = cell::judge(&self.figure.body, page);
        h.leaf("h4", &[], &self.figure.title);
        h.leaf("p", &[("class", &"finding")], &self.figure.finding);
        h.el("div", &[("class", &"with-losses")], |h| {
            h.el("div", &[], |h| matrix::write_map(h, self.matrix, judge, &self.figure.title));
            write_losses(h, self.figure, judge);
        });
        write_rest(h, self.figure, judge);
    }
}

/// Style rules of the tabs.
pub(super) fn rules() -> String {
    let mover = |i: usize| format!(".tabs:has(.m{i}:checked) .pane:not(.pm{i}){{display:none}}\n");
    let direction =
        |i: usize| format!(".tabs:has(.d{i}:checked) .pane:not(.pd{i}){{display:none}}\n");
    (0..MOVERS.len()).map(mover).chain((0..2).map(direction)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::{BetterWhen, FigureCell};

    fn figure(id: &str) -> Figure {
        let cell = FigureCell { value: Some(50.0), ..FigureCell::default() };
        Figure {
            id: id.into(),
            suite: "pairs".into(),
            title: id.into(),
            finding: String::new(),
            command: String::new(),
            body: FigureBody::Matrix(MatrixBody {
                unit: "GB/s".into(),
                row_axis: "from".into(),
                col_axis: "to".into(),
                rows: vec!["0".into()],
                cols: vec!["1".into()],
                cells: vec![vec![cell]],
                better: BetterWhen::Higher,
            }),
        }
    }

    #[test]
    fn maps_are_known_by_mover_and_direction() {
        assert_eq!(tab(&figure("pairs-dma")), Some((0, false)));
        assert_eq!(tab(&figure("pairs-blit-pull-both")), Some((3, true)));
        assert_eq!(tab(&figure("pairs-staged")), None);
        assert_eq!(tab(&figure("latency")), None);
    }

    #[test]
    fn every_measured_mover_has_a_tab_and_a_hole_is_named() {
        let (a, b) = (figure("pairs-dma"), figure("pairs-read-both"));
        let mut h = HtmlBuilder::default();
        let figures = [("x".to_owned(), &a), ("y".to_owned(), &b)];
        write(&mut h, &figures, "maps", PageContext::default());
        let page = h.finish();
        // Two movers and two directions: two maps, and two missing ones.
        assert_eq!(page.matches("name=\"maps-mover\"").count(), 2, "{page}");
        assert_eq!(page.matches("class=\"pane pm").count(), 4);
        assert_eq!(page.matches("Not in the plan").count(), 2);
        assert!(page.contains("class=\"pane pm4 pd1\" id=\"y\""));
    }
}
