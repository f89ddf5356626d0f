//! A cell: share of the ceiling, deviation from the published value, tooltip.

use std::collections::BTreeMap;

use super::number::{median, num, percent, signed_percent};
use pathline_explain::figure::{
    BarsBody, BetterWhen, CurvesBody, FigureBar, FigureBody, FigureCell, GapsBody, LossBreakdown,
    LossStep, MatrixBody, PanelsBody, SheetBody, StacksBody,
};

use super::number::tick;

/// Data shared by all figures of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageContext<'a> {
    /// Whether values come from a model.
    pub(super) simulated: bool,
    /// Warnings by case text.
    pub(super) warnings: Option<&'a BTreeMap<String, String>>,
}

impl PageContext<'_> {
    /// The participle for values: `measured` or `simulated`.
    pub(super) fn origin(self) -> &'static str {
        if self.simulated { "simulated" } else { "measured" }
    }
}

/// Rating and format of a figure's cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellJudge<'a> {
    /// Unit of the values.
    pub(super) unit: &'a str,
    /// Whether higher or lower is better.
    pub(super) better: BetterWhen,
    /// Data shared by all figures of the page.
    pub(super) page: PageContext<'a>,
}

impl<'a> CellJudge<'a> {
    /// A judge for measured values without warnings.
    pub(super) fn new(unit: &'a str, better: BetterWhen) -> Self {
        Self { unit, better, page: PageContext::default() }
    }

    /// The same judge with a page's data.
    pub(super) fn on(self, page: PageContext<'a>) -> Self {
        Self { page, ..self }
    }
}

impl CellJudge<'_> {
    /// Reason if a value is suspect: a mark and a text.
    pub(super) fn suspicion(&self, cell: &FigureCell) -> Option<(char, String)> {
        if let Some(suspect) = &cell.suspect {
            return Some((suspect.mark(), suspect.text()));
        }
        let (warnings, case) = (self.page.warnings?, cell.case.as_ref()?);
        value(cell)?;
        Some(('?', warnings.get(&case.to_string())?.clone()))
    }

    /// A value's share of its ceiling. For latencies the ceiling is a lower bound, and the share is
    /// its inverse.
    pub(super) fn share(&self, cell: &FigureCell) -> Option<f64> {
        self.share_of(value(cell)?, cell.ceiling?)
    }

    /// A value's share of any other value.
    pub(super) fn share_of(&self, value: f64, limit: f64) -> Option<f64> {
        let share = match self.better {
            BetterWhen::Higher => value / limit,
            BetterWhen::Lower => limit / value,
            BetterWhen::Neither => return None,
        };
        (share.is_finite() && share >= 0.0).then_some(share)
    }

    /// A formatted value; counts, such as hops, have no decimals.
    pub(super) fn num(&self, v: f64) -> String {
        let counted = self.better == BetterWhen::Neither && v.fract() == 0.0 && v.abs() < 1e6;
        if counted { format!("{v:.0}") } else { num(v) }
    }

    /// Value and unit: `37.8 GB/s`.
    pub(super) fn with_unit(&self, v: f64) -> String {
        format!("{} {}", self.num(v), self.unit)
    }

    /// The tooltip of a cell: one `label: text` per line below its heading. A script shows it next
    /// to the cell; without scripts the browser does.
    pub(super) fn detail(&self, heading: &str, cell: &FigureCell) -> String {
        let mut lines = vec![heading.to_owned()];
        if let Some(v) = value(cell) {
            let name = if self.page.simulated { "simulated median" } else { "median" };
            lines.push(format!("{name}: {}", self.with_unit(v)));
            if let Some(interval) = interval(cell) {
                let whose = if cell.node.is_some() { " of this run" } else { "" };
                lines.push(format!("95 % interval{whose}: {interval}"));
            }
            if let Some(node) = &cell.node {
                lines.push(format!(
                    "95 % interval of this node: {} to {} ({} processes)",
                    num(node.low),
                    num(node.high),
                    node.repeats
                ));
            }
        }
        if let Some(ceiling) = cell.ceiling {
            let share = self.share(cell).map(|s| format!(" ({} reached)", percent(s)));
            let share = share.unwrap_or_default();
            lines.push(format!("ceiling: {}{share}", self.with_unit(ceiling)));
        }
        match &cell.path {
            Some(path) => self.path(&mut lines, cell, path),
            None => lines.extend(
                cell.bound.map(|bound| format!("tighter bound: {}", self.with_unit(bound))),
            ),
        }
        if let Some(p) = &cell.published {
            let off =
                deviation(cell).map(|d| format!(" ({} {})", self.page.origin(), signed_percent(d)));
            let off = off.unwrap_or_default();
            lines.push(format!("published: {}{off}, {}", self.with_unit(p.value), p.source));
        }
        if let Some((_, why)) = self.suspicion(cell) {
            lines.push(format!("suspect: {why}"));
        }
        if let Some(why) = &cell.absent {
            lines.push(format!("no value: {why}"));
        }
        if !cell.gpus.is_empty() {
            lines.push(format!("while it ran: {}", cell.gpus.join("; ")));
        }
        if let Some(case) = &cell.case {
            lines.push(format!("case: {case}"));
        }
        // A line break in a text would look like the start of another line.
        let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
        lines.join("\n")
    }
}

impl CellJudge<'_> {
    /// The route, its narrowest hop, and the steps of loss down to the measured rate.
    fn path(&self, lines: &mut Vec<String>, cell: &FigureCell, path: &LossBreakdown) {
        lines.push(format!("route: {}", path.route));
        lines.push(format!("narrowest hop: {}", path.narrowest));
        for LossStep { from, to, why, .. } in &path.losses {
            lines.push(format!("{} → {}: {why}", self.num(*from), self.num(*to)));
        }
        let last = path.losses.last().map(|l| l.to).or(cell.ceiling);
        if let (Some(last), Some(v)) = (last, value(cell)) {
            let rest = signed_percent(v / last - 1.0);
            let origin = self.page.origin();
            lines.push(format!("{} → {}: {origin}, {rest}", self.num(last), self.num(v)));
        }
    }
}

/// The value of a cell, if it is finite.
pub(super) fn value(cell: &FigureCell) -> Option<f64> {
    cell.value.filter(|v| v.is_finite())
}

/// The 95 % interval: `37.6 to 38.0 (± 0.5 %)`.
pub(super) fn interval(cell: &FigureCell) -> Option<String> {
    let v = value(cell)?;
    if let Some(samples) = cell.few {
        return Some(format!("none: {samples} samples are too few"));
    }
    if !cell.has_interval() {
        return Some("none: the model assumes a constant of it".to_owned());
    }
    let half = half_width(cell)?;
    let relative =
        if v == 0.0 { String::new() } else { format!(" (± {})", percent(half / v.abs())) };
    Some(format!("{} to {}{relative}", num(v - half), num(v + half)))
}

/// Half width of the interval, if known.
pub(super) fn half_width(cell: &FigureCell) -> Option<f64> {
    Some(cell.half_width).filter(|w| cell.has_interval() && w.is_finite() && *w > 0.0)
}

/// Relative deviation from the published value.
pub(super) fn deviation(cell: &FigureCell) -> Option<f64> {
    let published = cell.published.as_ref()?.value;
    let off = (value(cell)? - published) / published.abs();
    off.is_finite().then_some(off)
}

/// A cell and its position in its figure.
pub(super) struct CellEntry<'a> {
    /// Row and column, line and size, or the bar's label.
    pub(super) keys: Vec<String>,
    /// The position as one text.
    pub(super) place: String,
    /// The cell.
    pub(super) cell: &'a FigureCell,
}

/// Headings of the columns with a cell's position.
pub(super) fn key_names(body: &FigureBody) -> Vec<String> {
    match body {
        FigureBody::Matrix(m) => vec![m.row_axis.clone(), m.col_axis.clone()],
        FigureBody::Curves(c) => vec!["line".to_owned(), axis_name(&c.x_unit).to_owned()],
        FigureBody::Bars(_) => vec!["what".to_owned()],
        FigureBody::Sheet(s) => vec![s.row_axis.clone(), "quantity".to_owned()],
        FigureBody::Stacks(_) => vec!["what".to_owned(), "call".to_owned(), "how often".to_owned()],
        FigureBody::Panels(p) => {
            vec!["operation".to_owned(), "line".to_owned(), axis_name(&p.x_unit).to_owned()]
        }
        FigureBody::Gaps(g) => vec!["statistic".to_owned(), g.row_axis.clone(), g.col_axis.clone()],
    }
}

/// Heading of an axis with this unit.
pub(super) fn axis_name(unit: &str) -> &str {
    match unit {
        "B" => "size",
        "GB/s" => "bandwidth",
        "ns" | "us" | "ms" | "s" => "time",
        other => other,
    }
}

/// All non-empty cells of a figure, in reading order.
pub(super) fn entries(body: &FigureBody) -> Vec<CellEntry<'_>> {
    let all = match body {
        FigureBody::Matrix(m) => matrix_entries(m),
        FigureBody::Curves(c) => curve_entries(c),
        FigureBody::Bars(b) => bar_entries(b),
        FigureBody::Sheet(s) => sheet_entries(s),
        FigureBody::Stacks(s) => stack_entries(s),
        FigureBody::Panels(p) => panel_entries(p),
        FigureBody::Gaps(g) => gap_entries(g),
    };
    all.into_iter().filter(|e| !is_blank(e.cell)).collect()
}

fn matrix_entries(m: &MatrixBody) -> Vec<CellEntry<'_>> {
    let label = |labels: &[String], i: usize| labels.get(i).cloned().unwrap_or_default();
    let mut entries = Vec::new();
    for (r, row) in m.cells.iter().enumerate() {
        for (c, cell) in row.iter().enumerate() {
            let keys = vec![label(&m.rows, r), label(&m.cols, c)];
            entries.push(CellEntry { keys, place: place(m, r, c), cell });
        }
    }
    entries
}

/// Name of a matrix cell: `gpu0 to gpu1`, `from 0 to 1`, `copy, GPU 3`.
pub(super) fn place(m: &MatrixBody, row: usize, col: usize) -> String {
    let row = m.rows.get(row).map_or("", String::as_str);
    let col = m.cols.get(col).map_or("", String::as_str);
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let named = |axis: &str, label: &str| match is_number(label) {
        true => format!("{axis} {label}"),
        false => label.to_owned(),
    };
    match (m.row_axis.as_str(), m.col_axis.as_str()) {
        ("from", "to") => format!("{} to {col}", named("from", row)),
        (rows, cols) => format!("{}, {}", named(rows, row), named(cols, col)),
    }
}

fn curve_entries(c: &CurvesBody) -> Vec<CellEntry<'_>> {
    let mut entries = Vec::new();
    for line in &c.lines {
        for (x, cell) in &line.points {
            let keys = vec![line.name.clone(), tick(*x, &c.x_unit)];
            entries.push(CellEntry { place: keys.join(", "), keys, cell });
        }
    }
    entries
}

fn panel_entries(p: &PanelsBody) -> Vec<CellEntry<'_>> {
    let mut entries = Vec::new();
    for panel in &p.panels {
        for line in &panel.lines {
            for (x, cell) in &line.points {
                let keys = vec![panel.name.clone(), line.name.clone(), tick(*x, &p.x_unit)];
                entries.push(CellEntry { place: keys.join(", "), keys, cell });
            }
        }
    }
    entries
}

fn bar_entries(b: &BarsBody) -> Vec<CellEntry<'_>> {
    let mut entries = Vec::new();
    for FigureBar { label, cell } in &b.bars {
        entries.push(CellEntry { keys: vec![label.clone()], place: label.clone(), cell });
    }
    entries
}

fn sheet_entries(s: &SheetBody) -> Vec<CellEntry<'_>> {
    let mut entries = Vec::new();
    for (label, cells) in &s.rows {
        for (column, cell) in s.columns.iter().zip(cells) {
            let unit = match column.unit.as_str() {
                "" => String::new(),
                unit => format!(", {unit}"),
            };
            let keys = vec![label.clone(), format!("{}{unit}", column.name)];
            entries.push(CellEntry { place: keys.join(", "), keys, cell });
        }
    }
    entries
}

fn stack_entries(s: &StacksBody) -> Vec<CellEntry<'_>> {
    let mut entries = Vec::new();
    for stack in &s.stacks {
        for part in &stack.parts {
            let keys = vec![stack.label.clone(), part.name.clone(), part.detail.clone()];
            let place = format!("{}, {}", stack.label, part.name);
            entries.push(CellEntry { keys, place, cell: &part.cell });
        }
    }
    entries
}

fn gap_entries(g: &GapsBody) -> Vec<CellEntry<'_>> {
    let label = |labels: &[String], i: usize| labels.get(i).cloned().unwrap_or_default();
    let mut entries = Vec::new();
    for (name, rows) in &g.panels {
        for (r, row) in rows.iter().enumerate() {
            for (c, gap) in row.iter().enumerate() {
                let keys = vec![name.clone(), label(&g.rows, r), label(&g.cols, c)];
                entries.push(CellEntry { place: keys.join(", "), keys, cell: &gap.cell });
            }
        }
    }
    entries
}

/// Whether a cell is structurally empty, such as the diagonal of a pair matrix.
pub(super) fn is_blank(cell: &FigureCell) -> bool {
    cell.value.is_none() && cell.absent.is_none() && cell.case.is_none() && cell.published.is_none()
}

/// Unit of a figure, and whether higher is better.
pub(super) fn judge<'a>(body: &'a FigureBody, page: PageContext<'a>) -> CellJudge<'a> {
    let judge = match body {
        FigureBody::Matrix(m) => CellJudge::new(&m.unit, m.better),
        FigureBody::Curves(c) => CellJudge::new(&c.y_unit, c.better),
        FigureBody::Bars(b) => CellJudge::new(&b.unit, b.better),
        FigureBody::Sheet(_) => CellJudge::new("", BetterWhen::Neither),
        FigureBody::Stacks(_) => CellJudge::new("%", BetterWhen::Neither),
        FigureBody::Panels(p) => CellJudge::new(&p.y_unit, p.better),
        FigureBody::Gaps(g) => CellJudge::new(&g.unit, BetterWhen::Neither),
    };
    judge.on(page)
}

/// Comparison of a figure with published values.
#[derive(Debug, PartialEq)]
pub(super) struct PublishedAgreement {
    /// Number of values with a published one.
    pub(super) count: usize,
    /// Median of the absolute deviations.
    pub(super) median: f64,
    /// The greatest deviation, with sign.
    pub(super) worst: f64,
    /// Cell with the greatest deviation.
    pub(super) at: String,
    /// Sources without repetitions.
    pub(super) sources: Vec<String>,
}

/// Compares all cells of a figure with their published values.
pub(super) fn agreement(entries: &[CellEntry<'_>]) -> Option<PublishedAgreement> {
    let compared: Vec<(&CellEntry<'_>, f64)> =
        entries.iter().filter_map(|e| Some((e, deviation(e.cell)?))).collect();
    let (at, worst) = compared.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    let mut sources: Vec<String> = Vec::new();
    for source in compared.iter().filter_map(|(e, _)| Some(&e.cell.published.as_ref()?.source)) {
        if !sources.contains(source) {
            sources.push(source.clone());
        }
    }
    Some(PublishedAgreement {
        count: compared.len(),
        median: median(compared.iter().map(|(_, d)| d.abs()).collect())?,
        worst: *worst,
        at: at.place.clone(),
        sources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::PublishedValue;

    fn cell(v: f64) -> FigureCell {
        FigureCell { value: Some(v), ..FigureCell::default() }
    }

    #[test]
    fn a_share_turns_round_where_less_is_better() {
        let bounded = |v, ceiling| FigureCell { ceiling: Some(ceiling), ..cell(v) };
        let rate = CellJudge::new("GB/s", BetterWhen::Higher);
        let time = CellJudge::new("us", BetterWhen::Lower);
        let hops = CellJudge::new("hops", BetterWhen::Neither);
        assert_eq!(rate.share(&bounded(37.5, 50.0)), Some(0.75));
        assert_eq!(time.share(&bounded(10.0, 8.0)), Some(0.8));
        assert_eq!(hops.share(&bounded(2.0, 4.0)), None);
        assert_eq!(rate.share(&bounded(37.5, 0.0)), None); // nothing to be measured against
        assert_eq!(rate.share(&bounded(f64::NAN, 50.0)), None);
    }

    #[test]
    fn a_place_is_named_by_its_axes_where_its_labels_are_bare_numbers() {
        let matrix = |axes: [&str; 2], row: &str, col: &str| MatrixBody {
            unit: "GB/s".into(),
            row_axis: axes[0].into(),
            col_axis: axes[1].into(),
            rows: vec![row.into()],
            cols: vec![col.into()],
            cells: vec![],
            better: BetterWhen::Higher,
        };
        let of = |axes, row, col| place(&matrix(axes, row, col), 0, 0);
        assert_eq!(of(["from", "to"], "gpu0", "gpu1"), "gpu0 to gpu1");
        assert_eq!(of(["from", "to"], "0", "1"), "from 0 to 1");
        assert_eq!(of(["operation", "GPU"], "copy", "3"), "copy, GPU 3");
        assert_eq!(of(["GPU", "GPU"], "0", "3"), "GPU 0, GPU 3");
    }

    #[test]
    fn a_detail_names_everything_that_judges_the_value() {
        let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB".parse().unwrap();
        let cell = FigureCell {
            half_width: 0.378,
            ceiling: Some(50.0),
            bound: Some(38.0),
            published: Some(PublishedValue {
                value: 37.0,
                kind: pathline_explain::figure::SourceKind::Paper,
                source: "paper, figure 6c".into(),
            }),
            case: Some(case),
            ..cell(37.8)
        };
        let judge = CellJudge::new("GB/s", BetterWhen::Higher);
        // 37.8 / 50 = 75.6 %; 0.378 / 37.8 = 1 %; 37.8 / 37 = + 2.16 %.
        assert_eq!(
            judge.detail("gpu0 to gpu1", &cell),
            "gpu0 to gpu1\nmedian: 37.8 GB/s\n95 % interval: 37.4 to 38.2 (± 1.0 %)\n\
             ceiling: 50.0 GB/s (76 % reached)\ntighter bound: 38.0 GB/s\n\
             published: 37.0 GB/s (measured +2.2 %), paper, figure 6c\n\
             case: r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB"
        );
    }

    #[test]
    fn the_loss_is_listed_step_by_step() {
        let loss =
            |from, to, why: &str| LossStep { from, to, kind: Default::default(), why: why.into() };
        let path = LossBreakdown {
            route: "0-1".into(),
            narrowest: "xGMI gpu0-gpu1, 4 links".into(),
            losses: vec![loss(200.0, 150.0, "75 % is payload"), loss(150.0, 50.4, "engine")],
        };
        let cell = FigureCell { ceiling: Some(200.0), path: Some(path), ..cell(50.0) };
        let judge = CellJudge::new("GB/s", BetterWhen::Higher);
        // 50 / 50.4 = 0.992.
        assert_eq!(
            judge.detail("0 to 1", &cell),
            "0 to 1\nmedian: 50.0 GB/s\nceiling: 200 GB/s (25 % reached)\nroute: 0-1\n\
             narrowest hop: xGMI gpu0-gpu1, 4 links\n200 → 150: 75 % is payload\n\
             150 → 50.4: engine\n50.4 → 50.0: measured, -0.8 %"
        );
    }

    #[test]
    fn agreement_names_the_worst_and_where() {
        let with_published = |v, published| FigureCell {
            published: Some(PublishedValue {
                value: published,
                kind: pathline_explain::figure::SourceKind::Paper,
                source: "paper".into(),
            }),
            ..cell(v)
        };
        let cells = [
            with_published(101.0, 100.0),
            with_published(95.0, 100.0),
            with_published(102.0, 100.0),
            cell(7.0),
        ];
        let entry = |(i, cell)| CellEntry { keys: vec![], place: format!("c{i}"), cell };
        let entries: Vec<CellEntry<'_>> = cells.iter().enumerate().map(entry).collect();
        let found = agreement(&entries).unwrap();
        assert_eq!((found.count, found.at.as_str()), (3, "c1"));
        assert!((found.worst + 0.05).abs() < 1e-12 && (found.median - 0.02).abs() < 1e-12);
        assert_eq!(found.sources, ["paper"]);
        assert_eq!(agreement(&entries[3..]), None);
    }
}
