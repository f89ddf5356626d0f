//! A figure as a JSON value: what `pathline report --json` writes and the HTML page draws.
//! docs/use/figures.md describes it.

use pathline_explain::figure::{
    BetterWhen, ChartLine, Figure, FigureBody, FigureCell, GapsBody, LossBreakdown, LossClassRow,
    MatrixBody, PairedGap, PanelsBody, Suspicion,
};
use pathline_explain::loss_breakdown::loss_classes;
use pathline_explain::peer_class::PeerView;
use pathline_schema::Case;
use serde::Serialize;

/// One figure with its cells.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DerivedFigure<'a> {
    /// Stable name: `pairs-dma`.
    pub id: &'a str,
    /// Suite that it shows.
    pub suite: &'a str,
    /// One line.
    pub title: &'a str,
    /// Result in numbers: two or three sentences.
    pub finding: &'a str,
    /// The command that measures just this.
    pub command: &'a str,
    /// Form: `matrix`, `curves`, `bars`, `sheet`, `stacks`, `panels`, `gaps`.
    pub kind: &'static str,
    /// Unit of the values; empty of a sheet, whose cells have their own.
    pub unit: &'a str,
    /// Whether higher or lower is better; of a sheet, its cells say it.
    pub better: BetterWhen,
    /// What a row is: `from`. Empty of curves and bars.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub row_axis: &'a str,
    /// What a column is (`to`), or the unit of the horizontal axis (`B`).
    #[serde(skip_serializing_if = "str::is_empty")]
    pub column_axis: &'a str,
    /// Labels of rows, lines or bars, in display order.
    pub rows: Vec<String>,
    /// Labels of columns; empty of curves, panels and bars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<&'a str>,
    /// Horizontal lines: name and value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<&'a (String, f64)>,
    /// Vertical lines: position and label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<&'a (f64, String)>,
    /// Small charts, or tables of gaps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<DerivedPanel<'a>>,
    /// What gaps compare: quantity, subtrahend, minuend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<[&'a str; 3]>,
    /// Routes and their losses, which cells refer to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<&'a LossBreakdown>,
    /// Losses by class of paths, of a matrix of rates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<LossClassRow>,
    /// Cells that were planned, in display order.
    pub cells: Vec<DerivedCell<'a>>,
}

/// A part of a figure with the rows from `first` on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedPanel<'a> {
    /// Operation or statistic; rows begin with it.
    pub name: &'a str,
    /// Number of its first row.
    pub first: usize,
    /// Horizontal lines: name and value.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub levels: &'a [(String, f64)],
    /// A bound that depends on x: positions and values.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub floor: &'a [(f64, f64)],
}

/// One value of a figure.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DerivedCell<'a> {
    /// Numbers of its row and its column or point, from 0.
    pub at: (usize, usize),
    /// Row, line or bar.
    pub row: String,
    /// Column, place on the horizontal axis, or part; empty of a bar.
    pub column: String,
    /// Place on the horizontal axis as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Unit of the numbers.
    pub unit: &'a str,
    /// `higher`, `lower`, or `neither`.
    pub better: BetterWhen,
    /// The median; none of a skip or a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Half width of its 95 % interval; none of too few samples, and of values that rest on an assumed
    /// constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Number of samples, if too few for an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few: Option<usize>,
    /// Ends of the 95 % interval between repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_repeats: Option<(f64, f64)>,
    /// Number of those repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<usize>,
    /// Peak of the narrowest hop, or the best that was measured there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// A tighter bound, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Number of its route in the figure's `paths`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<usize>,
    /// Speed divided by the median speed of its peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Parallel links of its narrowest hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
    /// A published value and its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<(f64, &'a str)>,
    /// Why the value is suspect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// Its mark: `!` beyond the ceiling, `~` busy, `?` unverified, `*` assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<char>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<&'a str>,
    /// Number and time of calls, of a part of a whole.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: &'a str,
    /// Clocks, power and temperature meanwhile, a text for each GPU.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub gpus: &'a [String],
    /// The two values of a gap.
    #[serde(flatten)]
    pub gap: Option<DerivedGap<'a>>,
    /// The case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
}

/// What a difference was formed of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedGap<'a> {
    /// The subtrahend, over all samples.
    pub base: Option<f64>,
    /// The minuend, over all samples.
    pub other: Option<f64>,
    /// Number of sample pairs.
    pub pairs: usize,
    /// Whether the interval contains zero.
    pub is_zero: bool,
    /// Why the difference is that of a queue and not of the copy.
    pub saturated: Option<&'a str>,
}

/// Place of a cell: numbers of row and column, and their labels.
type CellPlace<'p> = ((usize, usize), &'p str, &'p str);

impl<'a> DerivedFigure<'a> {
    /// The JSON value of a figure; classes leave out the values of `slow` cases.
    pub fn new(figure: &'a Figure, slow: &[Case]) -> Self {
        let mut derived = Self {
            id: &figure.id,
            suite: &figure.suite,
            title: &figure.title,
            finding: &figure.finding,
            command: &figure.command,
            ..Self::default()
        };
        match &figure.body {
            FigureBody::Matrix(m) => derived.add_matrix(m, slow),
            FigureBody::Curves(c) => {
                (derived.kind, derived.unit, derived.better) = ("curves", &c.y_unit, c.better);
                derived.column_axis = &c.x_unit;
                derived.ceilings = c.ceilings.iter().filter(|c| c.1.is_finite()).collect();
                derived.marks = c.marks.iter().filter(|m| m.0.is_finite()).collect();
                c.lines.iter().for_each(|line| derived.add_line("", line));
            }
            FigureBody::Bars(b) => {
                (derived.kind, derived.unit, derived.better) = ("bars", &b.unit, b.better);
                for (r, bar) in b.bars.iter().enumerate() {
                    derived.rows.push(bar.label.clone());
                    derived.add_cell(((r, 0), &bar.label, ""), &bar.cell);
                }
            }
            FigureBody::Sheet(s) => {
                (derived.kind, derived.row_axis) = ("sheet", &s.row_axis);
                derived.columns = s.columns.iter().map(|column| column.name.as_str()).collect();
                for (r, (row, cells)) in s.rows.iter().enumerate() {
                    derived.rows.push(row.clone());
                    for (c, (column, cell)) in s.columns.iter().zip(cells).enumerate() {
                        if let Some(cell) = derived.add_cell(((r, c), row, &column.name), cell) {
                            (cell.unit, cell.better) = (&column.unit, column.better);
                        }
                    }
                }
            }
            FigureBody::Stacks(s) => {
                (derived.kind, derived.unit, derived.row_axis) = ("stacks", "%", &s.whole);
                for (r, stack) in s.stacks.iter().enumerate() {
                    derived.rows.push(stack.label.clone());
                    for (c, part) in stack.parts.iter().enumerate() {
                        let place = ((r, c), stack.label.as_str(), part.name.as_str());
                        if let Some(cell) = derived.add_cell(place, &part.cell) {
                            cell.detail = &part.detail;
                        }
                    }
                }
            }
            FigureBody::Panels(p) => derived.add_panels(p),
            FigureBody::Gaps(g) => derived.add_gaps(g),
        }
        derived
    }

    fn add_matrix(&mut self, m: &'a MatrixBody, slow: &[Case]) {
        (self.kind, self.unit, self.better) = ("matrix", &m.unit, m.better);
        (self.row_axis, self.column_axis) = (&m.row_axis, &m.col_axis);
        self.rows.clone_from(&m.rows);
        self.columns = m.cols.iter().map(String::as_str).collect();
        if m.better == BetterWhen::Higher {
            self.losses = loss_classes(m.cells.iter().flatten(), slow);
            self.losses.retain(|class| class.peak.1.is_finite() && class.peak.1 > 0.0);
        }
        let peers = PeerView::from_matrix(m);
        for (r, (row, cells)) in m.rows.iter().zip(&m.cells).enumerate() {
            for (c, (column, cell)) in m.cols.iter().zip(cells).enumerate() {
                if let Some(cell) = self.add_cell(((r, c), row, column), cell) {
                    cell.speed = peers.speeds.get(r).and_then(|row| *row.get(c)?);
                    cell.links = peers.links.get(r).and_then(|row| *row.get(c)?);
                }
            }
        }
    }

    fn add_line(&mut self, panel: &str, line: &'a ChartLine) {
        let row = match panel {
            "" => line.name.clone(),
            panel => format!("{panel}, {}", line.name),
        };
        let r = self.rows.len();
        for (c, (x, cell)) in line.points.iter().enumerate() {
            let column = format!("{x} {}", self.column_axis);
            if let Some(cell) = self.add_cell(((r, c), &row, &column), cell) {
                cell.x = finite(Some(*x));
            }
        }
        self.rows.push(row);
    }

    fn add_panels(&mut self, p: &'a PanelsBody) {
        (self.kind, self.unit, self.better) = ("panels", &p.y_unit, p.better);
        self.column_axis = &p.x_unit;
        for panel in &p.panels {
            let first = self.rows.len();
            let (levels, floor) = (panel.levels.as_slice(), panel.floor.as_slice());
            self.panels.push(DerivedPanel { name: &panel.name, first, levels, floor });
            panel.lines.iter().for_each(|line| self.add_line(&panel.name, line));
        }
    }

    fn add_gaps(&mut self, g: &'a GapsBody) {
        (self.kind, self.unit, self.better) = ("gaps", &g.unit, BetterWhen::Lower);
        (self.row_axis, self.column_axis) = (&g.row_axis, &g.col_axis);
        self.compared = Some([&g.quantity, &g.base, &g.other]);
        self.columns = g.cols.iter().map(String::as_str).collect();
        for (name, rows) in &g.panels {
            let first = self.rows.len();
            self.panels.push(DerivedPanel { name, first, levels: &[], floor: &[] });
            for (row, gaps) in g.rows.iter().zip(rows) {
                let (r, row) = (self.rows.len(), format!("{name}, {row}"));
                for (c, (column, gap)) in g.cols.iter().zip(gaps).enumerate() {
                    if let Some(cell) = self.add_cell(((r, c), &row, column), &gap.cell) {
                        cell.gap = Some(derived_gap(gap));
                    }
                }
                self.rows.push(row);
            }
        }
    }

    /// Adds a cell that a case stands for, or that says something; returns it.
    fn add_cell(
        &mut self,
        (at, row, column): CellPlace<'_>,
        cell: &'a FigureCell,
    ) -> Option<&mut DerivedCell<'a>> {
        let value = finite(cell.value);
        if value.is_none()
            && cell.case.is_none()
            && cell.absent.is_none()
            && cell.published.is_none()
        {
            return None;
        }
        let path = cell.path.as_ref().map(|path| {
            let known = self.paths.iter().position(|other| *other == path);
            known.unwrap_or_else(|| {
                self.paths.push(path);
                self.paths.len() - 1
            })
        });
        let half_width = Some(cell.half_width).filter(|_| value.is_some() && cell.has_interval());
        self.cells.push(DerivedCell {
            at,
            row: row.to_owned(),
            column: column.to_owned(),
            unit: self.unit,
            better: self.better,
            value,
            half_width: finite(half_width),
            few: cell.few,
            between_repeats: cell.node.map(|node| (node.low, node.high)),
            repeats: cell.node.map(|node| node.repeats),
            ceiling: finite(cell.ceiling),
            bound: finite(cell.bound),
            path,
            published: cell.published.as_ref().map(|p| (p.value, p.source.as_str())),
            suspect: cell.suspect.as_ref().map(Suspicion::text),
            mark: cell.suspect.as_ref().map(Suspicion::mark),
            absent: cell.absent.as_deref(),
            gpus: &cell.gpus,
            case: cell.case.as_ref().map(ToString::to_string),
            ..DerivedCell::default()
        });
        self.cells.last_mut()
    }
}

/// A number that JSON can hold.
fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

fn derived_gap(gap: &PairedGap) -> DerivedGap<'_> {
    DerivedGap {
        base: finite(gap.base),
        other: finite(gap.other),
        pairs: gap.pairs,
        is_zero: gap.is_zero,
        saturated: gap.saturated.as_deref(),
    }
}
