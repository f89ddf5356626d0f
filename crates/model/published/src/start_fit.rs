//! Starts refitted on a few rows of each tool and kind of path, and what they predict of the other rows.
//!
//! A published time of one operation is that of its bytes and a start. The start is of the interface, its
//! version and the timer; of a stack that nobody described, few rows show it.

use std::collections::BTreeMap;

use pathline_schema::{Flow, MemKind, Mover};
use pathline_stats::{interpolated, nearest_rank};

use crate::mapper::WantedRow;
use crate::number::{MachineAnswer, MachineQuery, RowNumber};
use crate::report::ValidationPlan;

/// Share of the rows that intervals are to cover.
const COVERED: f64 = 0.9;
/// Half an interval where a class has one fitted row, so that no residual is known.
const UNKNOWN: f64 = 0.1;
/// The least half interval: the resolution of published figures, and of the model's rates.
const LEAST: f64 = 0.02;

/// A row of a class, as times.
#[derive(Debug, Clone, PartialEq)]
struct TimedRow {
    bytes: u64,
    line: u64,
    label: String,
    /// As the model has it, us.
    predicted: f64,
    /// As published, us.
    published: f64,
}

impl TimedRow {
    /// Time that the published start has more than the model's, us.
    fn missing(&self) -> f64 {
        self.published - self.predicted
    }

    /// Time with a start that is `more` longer, us; at least a tenth of what the model has.
    fn shifted(&self, more: f64) -> f64 {
        (self.predicted + more).max(0.1 * self.predicted)
    }

    /// Relative error with a start that is `more` longer, without sign.
    fn error(&self, more: f64) -> f64 {
        (self.shifted(more) / self.published - 1.0).abs()
    }
}

/// A class whose start is fitted: a stack and a kind of path.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedClass {
    /// The stack; empty where the machine describes none.
    pub stack: String,
    /// Kind of path: `copy between GPUs`.
    pub path: String,
    /// Rows that the start is fitted to.
    pub fitted: usize,
    /// What the start has more than the model's, us.
    pub more_us: f64,
    /// Rows that are predicted.
    pub held_out: usize,
    /// Median of their errors with the model's starts, relative.
    pub median_before: f64,
    /// The same with the fitted start.
    pub median: f64,
    /// 95 of 100 errors are no greater.
    pub p95: f64,
    /// The greatest, and its row.
    pub worst: (f64, String),
    /// Half the interval of a prediction, relative.
    pub interval: f64,
    /// Held-out rows that lie within it.
    pub covered: usize,
}

/// Starts fitted to some rows of each class, and the errors of the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StartFit {
    /// Rows of each class that starts are fitted to, at most.
    pub rows: usize,
    /// Classes with held-out rows, by name.
    pub classes: Vec<FittedClass>,
    /// Errors of all held-out rows with the model's starts, ascending.
    pub before: Vec<f64>,
    /// With the fitted starts, ascending.
    pub after: Vec<f64>,
}

impl StartFit {
    /// Held-out rows in their intervals, of how many.
    pub fn coverage(&self) -> (usize, usize) {
        let sum = |of: fn(&FittedClass) -> usize| self.classes.iter().map(of).sum();
        (sum(|class| class.covered), sum(|class| class.held_out))
    }
}

impl ValidationPlan {
    /// Fits the start of each class to `rows` of its rows and predicts the others. Of n rows below 16 MiB in
    /// the order of their sizes, those at n i / `rows` are fitted: the smallest, and others evenly spread. A class is
    /// a stack and a kind of path; its rows are single operations, or opposite ones of the same kind.
    pub fn fit_starts(
        &self,
        rows: usize,
        of: &dyn Fn(&str, &MachineQuery) -> Result<MachineAnswer, String>,
    ) -> StartFit {
        let mut classes = ClassRows::new();
        for (row, wanted) in self.predicted() {
            let Some(kind) = path_kind(wanted) else { continue };
            let Some((bytes, predicted, published)) = times(wanted, of) else { continue };
            let timed =
                TimedRow { bytes, line: row.line, label: row.label(), predicted, published };
            classes.entry((wanted.stack.clone(), kind.to_owned())).or_default().push(timed);
        }
        fit(rows.max(1), classes)
    }
}

/// A stack and a kind of path.
type StartClass = (String, String);
/// Rows by stack and kind of path.
type ClassRows = BTreeMap<StartClass, Vec<TimedRow>>;

fn fit(rows: usize, classes: ClassRows) -> StartFit {
    let split = |mut all: Vec<TimedRow>| {
        all.sort_by_key(|row| (row.bytes, row.line));
        // A large transfer does not show its start.
        let n = all.iter().filter(|row| row.bytes < crate::BULK).count();
        let chosen: Vec<usize> = (0..rows.min(n)).map(|i| n * i / rows.min(n)).collect();
        let (fitted, held): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(at, _)| chosen.contains(at));
        let rows = |all: Vec<(usize, TimedRow)>| all.into_iter().map(|(_, row)| row).collect();
        (rows(fitted), rows(held))
    };
    let split: Vec<(StartClass, Vec<TimedRow>, Vec<TimedRow>)> = classes
        .into_iter()
        .map(|(class, all)| {
            let (fitted, held) = split(all);
            (class, fitted, held)
        })
        .collect();
    // What a start fitted to the other rows misses each fitted row by.
    let left_out = |fitted: &[TimedRow]| -> Vec<f64> {
        let one = |at: usize| {
            let others = fitted.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, row)| row);
            start(others).zip(fitted.get(at)).map(|(more, row)| row.error(more))
        };
        (0..fitted.len()).filter_map(one).collect()
    };
    let mut pooled: Vec<f64> = split.iter().flat_map(|(_, fitted, _)| left_out(fitted)).collect();
    pooled.sort_by(f64::total_cmp);
    let of_all = nearest_rank(&pooled, COVERED).unwrap_or(UNKNOWN);
    let mut result = StartFit { rows, ..StartFit::default() };
    for ((stack, path), fitted, held) in split {
        let Some(more) = start(&fitted).filter(|_| !held.is_empty()) else { continue };
        let own = left_out(&fitted).into_iter().fold(0.0, f64::max);
        let interval = own.max(of_all).max(LEAST);
        let mut after: Vec<(f64, &str)> =
            held.iter().map(|row| (row.error(more), row.label.as_str())).collect();
        after.sort_by(|a, b| a.0.total_cmp(&b.0));
        let errors: Vec<f64> = after.iter().map(|(error, _)| *error).collect();
        let mut before: Vec<f64> = held.iter().map(|row| row.error(0.0)).collect();
        before.sort_by(f64::total_cmp);
        let Some((worst, label)) = after.last() else { continue };
        result.classes.push(FittedClass {
            fitted: fitted.len(),
            more_us: more,
            held_out: held.len(),
            median_before: interpolated(&before, 0.5).unwrap_or(f64::NAN),
            median: interpolated(&errors, 0.5).unwrap_or(f64::NAN),
            p95: nearest_rank(&errors, 0.95).unwrap_or(f64::NAN),
            worst: (*worst, (*label).to_owned()),
            interval,
            covered: errors.iter().filter(|error| **error <= interval).count(),
            stack,
            path,
        });
        result.before.extend(before);
        result.after.extend(errors);
    }
    result.before.sort_by(f64::total_cmp);
    result.after.sort_by(f64::total_cmp);
    result
}

/// The start with the least sum of relative errors: the median of what is missing, weighted by 1 / time.
fn start<'a>(rows: impl IntoIterator<Item = &'a TimedRow>) -> Option<f64> {
    let mut all: Vec<(f64, f64)> =
        rows.into_iter().map(|row| (row.missing(), 1.0 / row.published)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = all.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    all.into_iter().find_map(|(missing, weight)| {
        sum += weight;
        (sum >= half).then_some(missing)
    })
}

/// Bytes of an operation, its time as the model has it and as published, in us.
fn times(
    wanted: &WantedRow,
    of: &dyn Fn(&str, &MachineQuery) -> Result<MachineAnswer, String>,
) -> Option<(u64, f64, f64)> {
    let (query, is_rate) = match &wanted.number {
        RowNumber::Rate(query) => (query, true),
        RowNumber::Scaled(_, inner) => match &**inner {
            RowNumber::Rate(query) => (query, true),
            _ => return None,
        },
        RowNumber::Time(query) => (query, false),
        _ => return None,
    };
    let MachineQuery::Case(case) = query else { return None };
    let bytes = case.timed.first()?.bytes.0;
    let answer = |query: &MachineQuery| of(&wanted.stack, query);
    let value = wanted.number.value(&answer).ok()?;
    let published = wanted.published.middle();
    let predicted = answer(query).ok()?.time_us;
    // A rate is inverse to its time, whatever it counts.
    let published = if is_rate { predicted * value / published } else { published };
    let usable = |time: f64| time.is_finite() && time > 0.0;
    (usable(predicted) && usable(published)).then_some((bytes, predicted, published))
}

/// The kind of path of a row's operations; none where they differ, or where no bytes move.
fn path_kind(wanted: &WantedRow) -> Option<&'static str> {
    let query = wanted.number.queries().into_iter().next()?;
    let MachineQuery::Case(case) = query else { return None };
    let mut kinds = case.timed.iter().map(flow_kind);
    let first = kinds.next()??;
    kinds.all(|kind| kind == Some(first)).then_some(first)
}

fn flow_kind(flow: &Flow) -> Option<&'static str> {
    let (src, dst) = (flow.src, flow.dst);
    let local = src.unit == dst.unit;
    let [from_host, to_host] = [src, dst].map(|place| place.unit.numa().is_some());
    let pageable = [src, dst].iter().any(|p| matches!(p.mem, MemKind::Paged | MemKind::Huge));
    let loads_far = src.mem != MemKind::Reg && src.unit != flow.by.at();
    Some(match flow.by {
        Mover::Dma { .. } if local => "copy within a GPU",
        Mover::Dma { .. } if pageable && from_host => "copy from pageable memory",
        Mover::Dma { .. } if pageable => "copy to pageable memory",
        Mover::Dma { .. } if from_host => "copy from the host",
        Mover::Dma { .. } if to_host => "copy to the host",
        Mover::Dma { .. } => "copy between GPUs",
        Mover::Blit { .. } if local => "blit within a GPU",
        Mover::Blit { .. } => "blit between GPUs",
        Mover::Kernel { .. } if from_host && loads_far => "kernel that loads from the host",
        Mover::Kernel { .. } if to_host => "kernel that stores to the host",
        Mover::Kernel { .. } if loads_far => "kernel that loads from a GPU",
        Mover::Kernel { .. } if dst.mem != MemKind::Reg && dst.unit != flow.by.at() => {
            "kernel that stores to a GPU"
        }
        Mover::Kernel { .. } => "kernel in its own memory",
        Mover::Migrate { .. } => "page migration",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, predicted: f64, published: f64) -> TimedRow {
        TimedRow { bytes, line: bytes, label: bytes.to_string(), predicted, published }
    }

    fn class_of(rows: Vec<TimedRow>) -> ClassRows {
        ClassRows::from([((String::new(), "copies".to_owned()), rows)])
    }

    /// Of large transfers no start is fitted, and they are predicted where small ones show one.
    #[test]
    fn large_rows_show_no_start() {
        let large = row(crate::BULK, 500.0, 600.0);
        assert_eq!(fit(2, class_of(vec![large.clone()])).classes, []);
        let found = fit(2, class_of(vec![large, row(4, 10.0, 12.0)]));
        assert_eq!((found.classes[0].fitted, found.classes[0].more_us), (1, 2.0));
        // 502 us of 600.
        assert!((found.after[0] - 98.0 / 600.0).abs() < 1e-12);
    }

    /// A start that is 5 us longer: 6 us of the model are 11 published, 15 are 20, 105 are 110. Fitted to
    /// the smallest of three, it predicts the others without error; the model's own are 5 / 20 and 5 / 110.
    #[test]
    fn a_start_is_fitted_to_the_smallest_row_first() {
        let rows = vec![row(64, 15.0, 20.0), row(4, 6.0, 11.0), row(1024, 105.0, 110.0)];
        let fit = fit(1, class_of(rows));
        let [class] = fit.classes.as_slice() else { panic!("{fit:?}") };
        assert_eq!((class.fitted, class.held_out, class.more_us), (1, 2, 5.0));
        assert!(class.worst.0 < 1e-12 && class.interval == UNKNOWN);
        let off = |(got, expected): (&f64, f64)| (got - expected).abs();
        assert!(fit.before.iter().zip([5.0 / 110.0, 0.25]).map(off).all(|off| off < 1e-12));
        assert_eq!(fit.coverage(), (2, 2));
    }

    /// Missing are 2, 3 and 9 us of 10, 12 and 300: weights 0.1, 0.083 and 0.0033, half of which is 0.093, so
    /// that 2 us are taken. A start fitted to the others misses the first by (3 - 2) / 10.
    #[test]
    fn intervals_come_from_rows_that_the_start_is_not_fitted_to() {
        let rows = [row(1, 8.0, 10.0), row(2, 9.0, 12.0), row(3, 291.0, 300.0)];
        assert_eq!(start(&rows), Some(2.0));
        let more = vec![row(9, 98.0, 103.0)];
        let all = [rows.to_vec(), more].concat();
        let fit = fit(3, class_of(all));
        let [class] = fit.classes.as_slice() else { panic!("{fit:?}") };
        // Rows 0, 4 / 3 = 1 and 8 / 3 = 2 are fitted; 98 + 2 = 100 of 103 are 2.9 % less.
        assert_eq!((class.fitted, class.held_out), (3, 1));
        assert!((class.median - 3.0 / 103.0).abs() < 1e-12);
        assert!((class.interval - 0.1).abs() < 1e-12, "{class:?}");
        assert_eq!(class.covered, 1);
    }
}
