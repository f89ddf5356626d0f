//! Predictions against what was published or measured: errors, their summary by class, targets.
//!
//! Nothing here knows what a row is, so that predictions of a fitted model are judged alike.

use pathline_stats::{interpolated, nearest_rank};

use crate::value::RowValue;

/// A prediction and the value that it is compared with, in one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRow {
    /// The row or case.
    pub label: String,
    /// Its class in the summary.
    pub class: String,
    /// The prediction.
    pub predicted: f64,
    /// The published or measured value: a figure, or an interval.
    pub measured: RowValue,
    /// `GB/s`, `us`.
    pub unit: String,
    /// Source of the figure.
    pub source: String,
    /// How the prediction was formed.
    pub how: String,
    /// Names of the targets that it counts for.
    pub targets: Vec<&'static str>,
    /// Whether the model carries the figure as data, so that it agrees by construction.
    pub data: bool,
    /// Whether its source set no constant of the model.
    pub held_out: bool,
}

impl ComparedRow {
    /// Relative and signed; 0 within the interval.
    pub fn error(&self) -> f64 {
        self.measured.error(self.predicted)
    }
}

/// Errors of one class, relative and without sign.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassErrors {
    /// The class or target.
    pub name: String,
    /// Number of rows.
    pub n: usize,
    /// The middle one.
    pub median: f64,
    /// 95 of 100 are no greater.
    pub p95: f64,
    /// The greatest.
    pub worst: f64,
    /// Label of the row with the greatest error.
    pub worst_label: String,
}

/// Summarises rows; none of no rows.
pub fn summary<'a>(
    name: &str,
    compared: impl IntoIterator<Item = &'a ComparedRow>,
) -> Option<ClassErrors> {
    let mut all: Vec<(f64, &ComparedRow)> =
        compared.into_iter().map(|c| (c.error().abs(), c)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let errors: Vec<f64> = all.iter().map(|(error, _)| *error).collect();
    let (worst, at) = *all.last()?;
    Some(ClassErrors {
        name: name.to_owned(),
        n: all.len(),
        median: interpolated(&errors, 0.5)?,
        p95: nearest_rank(&errors, 0.95)?,
        worst,
        worst_label: at.label.clone(),
    })
}

/// A summary of each class, in the order in which classes are met.
pub fn by_class(compared: &[ComparedRow]) -> Vec<ClassErrors> {
    let mut classes: Vec<&str> = Vec::new();
    for one in compared {
        if !classes.contains(&one.class.as_str()) {
            classes.push(&one.class);
        }
    }
    let of = |class: &&str| summary(class, compared.iter().filter(|c| c.class == **class));
    classes.iter().filter_map(of).collect()
}

/// The errors that are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorTarget {
    /// Its name; rows name it in [`ComparedRow::targets`].
    pub name: &'static str,
    /// Greatest median, relative.
    pub median: f64,
    /// Greatest 95th percentile, relative, if it is bounded.
    pub p95: Option<f64>,
}

/// A target and the errors of its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedTarget {
    /// The allowed errors.
    pub target: ErrorTarget,
    /// The errors; none if no row counts for it.
    pub got: Option<ClassErrors>,
    /// The errors of rows at hand when constants were set, and of sources that set none, where there are both.
    pub parts: Option<[ClassErrors; 2]>,
}

impl JudgedTarget {
    /// Whether it is met. Without a row nothing misses it.
    pub fn met(&self) -> bool {
        self.got.as_ref().is_none_or(|got| {
            got.median <= self.target.median && self.target.p95.is_none_or(|most| got.p95 <= most)
        })
    }
}

/// Compares errors with targets. Values that the model carries as data count for none.
pub fn judge(compared: &[ComparedRow], targets: &[ErrorTarget]) -> Vec<JudgedTarget> {
    let judged = |target: &ErrorTarget| {
        let counts = |c: &&ComparedRow| !c.data && c.targets.contains(&target.name);
        let of = |held_out: bool| {
            let part = compared.iter().filter(counts).filter(|c| c.held_out == held_out);
            summary(target.name, part)
        };
        let got = summary(target.name, compared.iter().filter(counts));
        let parts = of(false).zip(of(true)).map(|(seen, held_out)| [seen, held_out]);
        JudgedTarget { target: *target, got, parts }
    };
    targets.iter().map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(class: &str, predicted: f64, measured: f64) -> ComparedRow {
        ComparedRow {
            label: format!("{predicted} for {measured}"),
            class: class.to_owned(),
            predicted,
            measured: RowValue::exactly(measured),
            unit: "GB/s".to_owned(),
            source: String::new(),
            how: String::new(),
            targets: vec!["all"],
            data: false,
            held_out: false,
        }
    }

    #[test]
    fn a_summary_is_of_errors_without_sign() {
        // Errors: -10 %, +5 %, 0, +20 %: sorted 0, 5, 10, 20. Median (5 + 10) / 2, p95 is the
        // value of rank ceil(0.95 x 4) = 4.
        let all = [
            compared("a", 90.0, 100.0),
            compared("a", 105.0, 100.0),
            compared("a", 7.0, 7.0),
            compared("a", 120.0, 100.0),
        ];
        let s = summary("a", &all).unwrap();
        assert_eq!((s.n, s.worst_label.as_str()), (4, "120 for 100"));
        for (got, expected) in [(s.median, 0.075), (s.p95, 0.2), (s.worst, 0.2)] {
            assert!((got - expected).abs() < 1e-12, "{s:?}");
        }
        assert_eq!(summary("none", &[]), None);
    }

    #[test]
    fn classes_keep_their_order_and_targets_leave_out_data() {
        let mut all =
            vec![compared("b", 1.0, 1.0), compared("a", 2.0, 1.0), compared("b", 3.0, 2.0)];
        let names: Vec<String> = by_class(&all).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["b", "a"]);
        let target = ErrorTarget { name: "all", median: 0.5, p95: Some(0.9) };
        // Errors 0, 100 %, 50 %: the median is met, the greatest is not.
        assert!(!judge(&all, &[target])[0].met());
        all[1].data = true;
        let judged = &judge(&all, &[target])[0];
        assert!(judged.met() && judged.got.as_ref().unwrap().n == 2);
        // Of two rows one is of a source that set no constant: both parts are summarised.
        assert_eq!(judged.parts, None);
        all[2].held_out = true;
        let parts = judge(&all, &[target])[0].parts.clone().unwrap();
        assert_eq!(parts.map(|part| (part.n, part.median)), [(1, 0.0), (1, 0.5)]);
        let other = ErrorTarget { name: "other", ..target };
        assert_eq!(judge(&all, &[other])[0].got, None);
    }
}
