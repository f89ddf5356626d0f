//! The way from cells to a figure that all suites share: rows, columns, cell, and the frame around them.

use pathline_schema::{CaseTimes, SuiteId};

use super::{distinct, extremes, sorted, values};
use crate::figure::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    MatrixBody, SheetBody, SheetColumn,
};
use crate::fmt;
use crate::run::{EntryState, RunEntry, RunView};
use crate::shown_value::ShownValue;

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
        unit: (&str, BetterWhen),
        bars: impl IntoIterator<Item = (String, FigureCell)>,
    ) -> Option<Figure> {
        let bars = bars.into_iter().filter(|(_, cell)| cell.case.is_some());
        let bars: Vec<FigureBar> = bars.map(|(label, cell)| FigureBar { label, cell }).collect();
        (!bars.is_empty()).then(|| self.draw(BarsBody::new(unit, bars)))
    }
}

impl BarsBody {
    pub(super) fn new((unit, better): (&str, BetterWhen), bars: Vec<FigureBar>) -> Self {
        Self { unit: unit.into(), bars, better }
    }
}

impl CurvesBody {
    /// Lines without ceilings and marks.
    pub(super) fn new(
        x_unit: &str,
        (y_unit, better): (&str, BetterWhen),
        lines: Vec<ChartLine>,
    ) -> Self {
        let (x_unit, y_unit) = (x_unit.into(), y_unit.into());
        Self { x_unit, y_unit, lines, ceilings: Vec::new(), marks: Vec::new(), better }
    }
}

impl SheetColumn {
    /// A quantity of which neither more nor less is better.
    pub(super) fn neutral(name: &str, unit: &str) -> Self {
        Self { name: name.into(), unit: unit.into(), better: BetterWhen::Neither }
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
    /// The cell at a place; an empty one if there is none.
    pub(super) fn cell(&self, row: &R, col: &C) -> FigureCell {
        let found = self.points.iter().find(|point| (&point.0, &point.1) == (row, col));
        found.map(|point| point.2.clone()).unwrap_or_default()
    }
    /// All cells, row by row.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&R, FigureCell)> {
        self.rows
            .iter()
            .flat_map(move |row| self.cols.iter().map(move |col| (row, self.cell(row, col))))
    }
    /// The matrix with headings, and labels of the keys.
    pub(super) fn matrix(
        &self,
        (row_axis, row): (&str, impl Fn(&R) -> String),
        (col_axis, col): (&str, impl Fn(&C) -> String),
        (unit, better): (&str, BetterWhen),
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
        Self { rows: keys.to_vec(), cols: keys.to_vec(), ..Self::new(points) }
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
        Self { rows: sorted(self.rows), cols: sorted(self.cols), ..self }
    }
}

impl FigureCell {
    /// A value derived from each sample of a case; `all` instead of the median if given.
    pub(super) fn derived(entry: &RunEntry, times: &CaseTimes, all: Option<f64>) -> Self {
        let shown = ShownValue::new(times);
        Self {
            value: all.or(shown.map(|s| s.value)),
            half_width: shown.map_or(0.0, |s| s.half_width()),
            few: shown.and_then(|s| s.few_samples()),
            absent: match entry.state {
                EntryState::Absent(why) => Some(why.to_owned()),
                EntryState::Sampled(_) => None,
            },
            case: Some(entry.case.clone()),
            ..Self::default()
        }
    }
    /// Without an interval.
    pub(super) fn exact(self) -> Self {
        Self { half_width: 0.0, few: None, ..self }
    }
}

/// The greatest by a value.
pub(super) fn most<T>(all: impl IntoIterator<Item = (f64, T)>) -> Option<(f64, T)> {
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The least by a value.
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
