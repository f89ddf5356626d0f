//! The way from cells to a figure that all suites share: rows, columns, cell, and the frame around them.

use pathline_schema::{CaseTimes, SuiteId};

use super::{distinct, lines, sorted, values};
use crate::figure::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    LossBreakdown, MatrixBody, SheetBody, SheetColumn, extremes,
};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunEntry, RunView};
use crate::shown_value::ShownValue;

/// A unit, and which values are better.
pub(super) type CellUnit = (&'static str, BetterWhen);
pub(super) const GBS: CellUnit = ("GB/s", BetterWhen::Higher);
pub(super) const US: CellUnit = ("us", BetterWhen::Lower);
pub(super) const NS: CellUnit = ("ns", BetterWhen::Lower);
pub(super) const OF_ALONE: CellUnit = ("% of alone", BetterWhen::Higher);

/// A figure that still lacks its data.
pub(super) struct FigureFrame(Figure);

/// The frame of a figure. The command repeats all cases of `suite` that match `pattern`; an empty one
/// matches all.
pub(super) fn frame(
    run: &RunView,
    (suite, pattern): (SuiteId, &str),
    id: impl Into<String>,
    title: impl Into<String>,
) -> FigureFrame {
    let body = FigureBody::Sheet(SheetBody::default());
    let (suite, command) = (suite.into(), run.command(suite, pattern));
    let (id, title, finding) = (id.into(), title.into(), String::new());
    FigureFrame(Figure { id, suite, title, finding, command, body })
}

impl FigureFrame {
    /// States the result.
    pub(super) fn finding(self, text: impl Into<String>) -> Self {
        Self(Figure { finding: text.into(), ..self.0 })
    }
    /// Fills in the data.
    pub(super) fn draw(self, body: impl Into<FigureBody>) -> Figure {
        Figure { body: body.into(), ..self.0 }
    }
    /// Fills in the data; `None` if no cell has a value.
    pub(super) fn draw_any(self, body: impl Into<FigureBody>) -> Option<Figure> {
        Some(self.draw(body)).filter(Figure::has_value)
    }
    /// Bars of the cells that belong to a case; `None` if there are none.
    pub(super) fn draw_bars(
        self,
        (unit, better): CellUnit,
        bars: impl IntoIterator<Item = (String, FigureCell)>,
    ) -> Option<Figure> {
        let bars = bars.into_iter().filter(|(_, cell)| cell.case.is_some());
        let bars: Vec<FigureBar> = bars.map(|(label, cell)| FigureBar { label, cell }).collect();
        let unit = unit.into();
        (!bars.is_empty()).then(|| self.draw(BarsBody { unit, bars, better }))
    }
    /// Lines over an axis, and what they show; `None` without lines.
    pub(super) fn draw_lines(
        self,
        x_unit: &str,
        unit: CellUnit,
        lines: Vec<ChartLine>,
        finding: impl FnOnce(&[ChartLine]) -> String,
    ) -> Option<Figure> {
        let framed = (!lines.is_empty()).then(|| self.finding(finding(&lines)));
        framed.map(|frame| frame.draw(CurvesBody::new(x_unit, unit, lines)))
    }
    /// A table with named rows; `None` without rows.
    pub(super) fn draw_rows(
        self,
        row_axis: &str,
        columns: impl IntoIterator<Item = SheetColumn>,
        rows: impl IntoIterator<Item = (String, Vec<FigureCell>)>,
    ) -> Option<Figure> {
        let (columns, rows): (Vec<SheetColumn>, Vec<(String, Vec<FigureCell>)>) =
            (columns.into_iter().collect(), rows.into_iter().collect());
        let row_axis = row_axis.into();
        (!rows.is_empty()).then(|| self.draw(SheetBody { row_axis, columns, rows }))
    }
}

/// Lines of a quantity of named cases over an axis, without the points that lack a value.
pub(super) fn chart(
    (suite, id): (SuiteId, &str),
    title: impl Into<String>,
    (quantity, x_unit): (CaseQuantity, &str),
    run: &RunView,
    points: impl IntoIterator<Item = (String, f64, FigureCell)>,
    finding: impl FnOnce(&[ChartLine]) -> String,
) -> Option<Figure> {
    let lines = lines(points.into_iter().filter(|(_, _, cell)| cell.value.is_some()));
    frame(run, (suite, ""), id, title).draw_lines(x_unit, quantity.rating(), lines, finding)
}

impl CurvesBody {
    /// Lines without ceilings and marks.
    pub(super) fn new(x_unit: &str, (y_unit, better): CellUnit, lines: Vec<ChartLine>) -> Self {
        let (x_unit, y_unit) = (x_unit.into(), y_unit.into());
        Self { x_unit, y_unit, lines, ceilings: Vec::new(), marks: Vec::new(), better }
    }
}

impl SheetColumn {
    pub(super) fn new(name: &str, (unit, better): CellUnit) -> Self {
        Self { name: name.into(), unit: unit.into(), better }
    }
    /// A quantity of which neither more nor less is better.
    pub(super) fn neutral(name: &str, unit: &'static str) -> Self {
        Self::new(name, (unit, BetterWhen::Neither))
    }
}

/// Cells by the keys of their rows and columns. Of several cells at one place the first counts.
pub(super) struct CellPivot<R, C> {
    /// Unique keys, in the order of the run.
    pub(super) rows: Vec<R>,
    pub(super) cols: Vec<C>,
    points: Vec<(R, C, FigureCell)>,
}

impl<R: Clone + PartialEq, C: Clone + PartialEq> CellPivot<R, C> {
    pub(super) fn new(points: impl IntoIterator<Item = (R, C, FigureCell)>) -> Self {
        let points: Vec<(R, C, FigureCell)> = points.into_iter().collect();
        let rows = distinct(points.iter().map(|point| point.0.clone()));
        Self { rows, cols: distinct(points.iter().map(|point| point.1.clone())), points }
    }
    /// A cell for each row and column.
    pub(super) fn filled(rows: &[R], cols: &[C], cell: impl Fn(&R, &C) -> FigureCell) -> Self {
        let places = rows.iter().flat_map(|row| cols.iter().map(move |col| (row, col)));
        let points = places.map(|(row, col)| (row.clone(), col.clone(), cell(row, col)));
        Self { points: points.collect(), rows: rows.to_vec(), cols: cols.to_vec() }
    }
    /// With these rows and columns.
    pub(super) fn with(self, rows: &[R], cols: &[C]) -> Self {
        Self { rows: rows.to_vec(), cols: cols.to_vec(), ..self }
    }
    /// The cell at a place; an empty one if there is none.
    pub(super) fn cell(&self, row: &R, col: &C) -> FigureCell {
        let found = self.points.iter().find(|point| (&point.0, &point.1) == (row, col));
        found.map(|point| point.2.clone()).unwrap_or_default()
    }
    /// All cells, row by row.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&R, &C, FigureCell)> {
        self.rows
            .iter()
            .flat_map(move |row| self.cols.iter().map(move |col| (row, col, self.cell(row, col))))
    }
    /// The matrix with headings, and labels of the keys.
    pub(super) fn matrix(
        &self,
        (row_axis, row): (&str, impl Fn(&R) -> String),
        (col_axis, col): (&str, impl Fn(&C) -> String),
        (unit, better): CellUnit,
    ) -> MatrixBody {
        let cells = |row: &R| self.cols.iter().map(|col| self.cell(row, col)).collect();
        MatrixBody {
            unit: unit.into(),
            row_axis: row_axis.into(),
            col_axis: col_axis.into(),
            rows: self.rows.iter().map(row).collect(),
            cols: self.cols.iter().map(col).collect(),
            cells: self.rows.iter().map(cells).collect(),
            better,
        }
    }
}

impl<K: Clone + PartialEq> CellPivot<K, K> {
    /// From each of `keys` to each.
    pub(super) fn over(keys: &[K], points: impl IntoIterator<Item = (K, K, FigureCell)>) -> Self {
        Self::new(points).with(keys, keys)
    }
}

impl<R, C: Ord> CellPivot<R, C> {
    /// With columns in ascending order.
    pub(super) fn sorted_cols(self) -> Self {
        Self { cols: sorted(self.cols), ..self }
    }
}

impl<R: Ord, C: Ord> CellPivot<R, C> {
    /// With rows and columns in ascending order.
    pub(super) fn sorted(self) -> Self {
        Self { rows: sorted(self.rows), cols: sorted(self.cols), points: self.points }
    }
}

impl MatrixBody {
    /// All cells, row by row.
    pub(super) fn all(&self) -> impl Iterator<Item = &FigureCell> + Clone {
        self.cells.iter().flatten()
    }
}

impl FigureCell {
    /// A value that was derived from a case, without an interval.
    pub(super) fn stated(entry: &RunEntry, value: Option<f64>) -> Self {
        Self { value, case: Some(entry.case.clone()), ..Self::default() }
    }
    /// A value derived from each sample of a case; `all` instead of the median if given.
    pub(super) fn sampled(entry: &RunEntry, values: &[f64], all: Option<f64>) -> Self {
        let shown = ShownValue::new(&CaseTimes::from_values(values, entry.visits()));
        Self {
            half_width: shown.map_or(0.0, |s| s.half_width()),
            few: shown.and_then(|s| s.few_samples()),
            absent: match entry.state {
                EntryState::Absent(why) => Some(why.to_owned()),
                EntryState::Sampled(_) => None,
            },
            ..Self::stated(entry, all.or(shown.map(|s| s.value)))
        }
    }
    /// Without an interval.
    pub(super) fn exact(self) -> Self {
        Self { half_width: 0.0, few: None, ..self }
    }
    /// Value and interval times a factor.
    pub(super) fn scaled(self, factor: f64) -> Self {
        let value = self.value.map(|value| value * factor);
        Self { value, half_width: self.half_width * factor, ..self }
    }
    /// A value in proportion to this one or to its inverse, with its relative interval and without limits.
    pub(super) fn in_proportion(self, value: Option<f64>) -> Self {
        let relative = self.value.map_or(0.0, |v| self.half_width / v);
        let half_width = value.unwrap_or(0.0) * relative;
        Self { value, half_width, ceiling: None, bound: None, ..self }
    }
    /// With its route, but without losses along it.
    pub(super) fn without_losses(self) -> Self {
        let path = self.path.map(|path| LossBreakdown { losses: Vec::new(), ..path });
        Self { path, ..self }
    }
}

/// The greatest by a value; of equal ones the last.
pub(super) fn most<T>(all: impl IntoIterator<Item = (f64, T)>) -> Option<(f64, T)> {
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The least by a value; of equal ones the first.
pub(super) fn least<T>(all: impl IntoIterator<Item = (f64, T)>) -> Option<(f64, T)> {
    all.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
}

/// The GPUs are expected to be equal: names the row in which the columns differ most.
pub(super) fn spread(matrix: &MatrixBody) -> String {
    let rows = matrix.cells.iter().zip(&matrix.rows).filter_map(|(row, name)| {
        let (low, high) = extremes(&values(row.iter()));
        (low > 0.0 && high.is_finite()).then(|| (high / low - 1.0, name))
    });
    most(rows).map_or(String::new(), |(apart, name)| {
        format!("The GPUs differ by {} at most ({name}).", fmt::percent(apart))
    })
}
