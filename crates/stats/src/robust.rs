//! Estimates that a few wrong values do not move.

use crate::order::{ascending, interpolated, median, median_of};

/// The most values whose pairs are all formed.
const MAX_PAIRS_OF: usize = 2048;

/// The Hodges-Lehmann estimate of the centre: the median of the means of all pairs of values, each
/// value with itself included (J. L. Hodges and E. L. Lehmann, 1963). It resists 29 % of wrong values
/// and has 95 % of the efficiency of the mean for normal noise. None of none, or if a value is not
/// finite. Of more than 2048 values, of 2048 quantiles of them.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut sorted = ascending(values.iter().copied());
    if sorted.len() > MAX_PAIRS_OF {
        let at = |i: usize| (i as f64 + 0.5) / MAX_PAIRS_OF as f64;
        sorted = (0..MAX_PAIRS_OF).filter_map(|i| interpolated(&sorted, at(i))).collect();
    }
    let pairs = sorted.iter().enumerate();
    let means = pairs.flat_map(|(i, a)| sorted.iter().skip(i).map(move |b| a / 2.0 + b / 2.0));
    Some(median(&ascending(means)))
}

/// Rows, columns and the rest of a table, by median polish.
#[derive(Debug, Clone, PartialEq)]
pub struct MedianPolish {
    /// The common value.
    pub overall: f64,
    /// Effect of each row; their median is about 0.
    pub rows: Vec<f64>,
    /// Effect of each column.
    pub columns: Vec<f64>,
    /// What is left of each cell, by row; none where there was no value.
    pub residuals: Vec<Vec<Option<f64>>>,
}

/// Splits a table into an overall value, effects of rows and columns, and residuals, by removing medians
/// of rows and columns in turn (J. W. Tukey, *Exploratory Data Analysis*, 1977). Empty cells, such as a
/// diagonal, count nowhere. A row shorter than `columns` has empty cells at its end.
pub fn median_polish(table: &[Vec<Option<f64>>], columns: usize) -> MedianPolish {
    const SWEEPS: usize = 12;
    let cell =
        |row: &Vec<Option<f64>>, c: usize| row.get(c).copied().flatten().filter(|x| x.is_finite());
    let mut rest: Vec<Vec<Option<f64>>> =
        table.iter().map(|row| (0..columns).map(|c| cell(row, c)).collect()).collect();
    let (mut overall, mut of_rows, mut of_columns) =
        (0.0, vec![0.0; table.len()], vec![0.0; columns]);
    for _ in 0..SWEEPS {
        let mut moved = 0.0f64;
        for (row, effect) in rest.iter_mut().zip(&mut of_rows) {
            let shift = median_of(row.iter().flatten().copied());
            row.iter_mut().flatten().for_each(|x| *x -= shift);
            *effect += shift;
            moved = moved.max(shift.abs());
        }
        let centre = median_of(of_rows.iter().copied());
        of_rows.iter_mut().for_each(|effect| *effect -= centre);
        overall += centre;
        for (c, effect) in of_columns.iter_mut().enumerate() {
            let shift = median_of(rest.iter().filter_map(|row| row.get(c).copied().flatten()));
            rest.iter_mut().filter_map(|row| row.get_mut(c)?.as_mut()).for_each(|x| *x -= shift);
            *effect += shift;
            moved = moved.max(shift.abs());
        }
        let centre = median_of(of_columns.iter().copied());
        of_columns.iter_mut().for_each(|effect| *effect -= centre);
        overall += centre;
        if moved < 1e-12 {
            break;
        }
    }
    MedianPolish { overall, rows: of_rows, columns: of_columns, residuals: rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_pair_means_resists_one_wild_value() {
        // Means of pairs of 1, 2, 3: 1, 1.5, 2, 2, 2.5, 3; their median is 2.
        assert_eq!(hodges_lehmann(&[3.0, 1.0, 2.0]), Some(2.0));
        // 1, 2, 3, 4 and 1e9: 10 of the 15 means are 1 to 4; the 8th of them is 3.
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(3.0));
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[1.0, f64::NAN]), None);
        let many: Vec<f64> = (0..10_001).map(f64::from).collect();
        assert!((hodges_lehmann(&many).unwrap() - 5000.0).abs() < 5.0);
    }

    #[test]
    fn a_slow_row_a_slow_column_and_a_slow_cell_are_distinguished() {
        let table = |slow: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<Option<f64>>> {
            let row = |a: usize| (0..8).map(move |b| (a != b).then(|| 10.0 + slow(a, b))).collect();
            (0..8).map(row).collect()
        };
        let row = median_polish(&table(&|a, _| if a == 2 { 1.0 } else { 0.0 }), 8);
        assert_eq!((row.overall, row.rows[2], row.columns[2]), (10.0, 1.0, 0.0));
        let column = median_polish(&table(&|_, b| if b == 5 { 1.0 } else { 0.0 }), 8);
        assert_eq!((column.rows[5], column.columns[5]), (0.0, 1.0));
        let cell = median_polish(&table(&|a, b| if (a, b) == (2, 5) { 1.0 } else { 0.0 }), 8);
        assert_eq!((cell.rows[2], cell.columns[5]), (0.0, 0.0));
        assert_eq!(cell.residuals[2][5], Some(1.0));
        assert_eq!(cell.residuals[2][2], None);
    }

    #[test]
    fn ragged_and_empty_tables_have_no_effects() {
        let none = median_polish(&[], 0);
        assert_eq!((none.overall, none.rows.len()), (0.0, 0));
        let ragged = median_polish(&[vec![Some(1.0)], vec![Some(1.0), Some(f64::NAN)]], 2);
        assert_eq!((ragged.overall, ragged.residuals[1][1]), (1.0, None));
    }
}
