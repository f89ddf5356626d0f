//! Linear programs of a few variables: which rates of several paths add up to the most.

/// Values below this share of the largest coefficient count as 0.
const EPSILON: f64 = 1e-12;

/// Pivots for each row and column before the search stops. Bland's rule visits no basis twice, and programs of
/// ten variables take about as many pivots as they have rows; the limit holds only against rounding.
const PIVOTS_PER_LINE: usize = 50;

/// One constraint: `coefficients . x <= limit`, for x >= 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinearLimit {
    /// Coefficient of each variable; missing ones are 0.
    pub coefficients: Vec<f64>,
    /// Upper bound, 0 or more.
    pub limit: f64,
}

/// Maximises the sum of `variables` variables x >= 0 under limits, by the dense simplex method with Bland's rule
/// (Bland, New Finite Pivoting Rules for the Simplex Method, 1977).
///
/// Returns the variables at the optimum; `None` if the sum has no bound, or a coefficient or limit is no finite
/// number, or a limit is below 0.
pub(crate) fn maximize_sum(variables: usize, limits: &[LinearLimit]) -> Option<Vec<f64>> {
    let numbers = limits.iter().flat_map(|row| row.coefficients.iter().chain([&row.limit]));
    if !numbers.into_iter().all(|value| value.is_finite())
        || limits.iter().any(|row| row.limit < 0.0)
    {
        return None;
    }
    let mut tableau = Tableau::new(variables, limits);
    for _ in 0..PIVOTS_PER_LINE * (variables + limits.len() + 1) {
        let Some(column) = tableau.entering() else { break };
        let row = tableau.leaving(column)?;
        tableau.pivot(row, column);
    }
    Some(tableau.solution(variables))
}

/// Rows of the constraints, scaled to coefficients of at most 1, and the row of the objective.
struct Tableau {
    /// Each row: coefficients of variables and slacks, then the right-hand side.
    rows: Vec<Vec<f64>>,
    objective: Vec<f64>,
    /// The variable that each row defines.
    basis: Vec<usize>,
}

impl Tableau {
    fn new(variables: usize, limits: &[LinearLimit]) -> Self {
        let width = variables + limits.len() + 1;
        let row = |(nth, limit): (usize, &LinearLimit)| {
            let used = || limit.coefficients.iter().take(variables);
            let scale = used().fold(0.0f64, |most, c| most.max(c.abs()));
            let scale = if scale > 0.0 { scale } else { 1.0 };
            let mut row = vec![0.0; width];
            row.iter_mut().zip(used()).for_each(|(cell, c)| *cell = c / scale);
            if let Some(slack) = row.get_mut(variables + nth) {
                *slack = 1.0;
            }
            if let Some(last) = row.last_mut() {
                *last = limit.limit / scale;
            }
            row
        };
        let mut objective = vec![0.0; width];
        objective.iter_mut().take(variables).for_each(|cell| *cell = 1.0);
        Self {
            rows: limits.iter().enumerate().map(row).collect(),
            objective,
            basis: (variables..variables + limits.len()).collect(),
        }
    }

    /// The first variable that raises the sum; none at the optimum.
    fn entering(&self) -> Option<usize> {
        let columns = self.objective.len().saturating_sub(1);
        self.objective.iter().take(columns).position(|&gain| gain > EPSILON)
    }

    /// The row that limits a variable first; none if nothing does.
    fn leaving(&self, column: usize) -> Option<usize> {
        let candidates = self.rows.iter().enumerate().filter_map(|(at, row)| {
            let (&by, &limit) = (row.get(column)?, row.last()?);
            (by > EPSILON).then_some((limit / by, self.basis.get(at).copied()?, at))
        });
        let least = candidates.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        least.map(|(.., at)| at)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let Some(mut pivot) = self.rows.get(row).cloned() else { return };
        let by = pivot.get(column).copied().unwrap_or(1.0);
        pivot.iter_mut().for_each(|cell| *cell /= by);
        let eliminate = |line: &mut Vec<f64>| {
            let by = line.get(column).copied().unwrap_or(0.0);
            if by != 0.0 {
                line.iter_mut().zip(&pivot).for_each(|(cell, p)| *cell -= by * p);
            }
        };
        let others = self.rows.iter_mut().enumerate().filter(|(at, _)| *at != row);
        others.for_each(|(_, line)| eliminate(line));
        eliminate(&mut self.objective);
        if let Some(of) = self.basis.get_mut(row) {
            *of = column;
        }
        if let Some(line) = self.rows.get_mut(row) {
            *line = pivot;
        }
    }

    fn solution(&self, variables: usize) -> Vec<f64> {
        let mut values = vec![0.0; variables];
        for (row, &variable) in self.rows.iter().zip(&self.basis) {
            if let (Some(value), Some(&limit)) = (values.get_mut(variable), row.last()) {
                *value = limit.max(0.0);
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(coefficients: &[f64], limit: f64) -> LinearLimit {
        LinearLimit { coefficients: coefficients.to_vec(), limit }
    }

    fn sum(variables: usize, limits: &[LinearLimit]) -> f64 {
        maximize_sum(variables, limits).unwrap().iter().sum()
    }

    /// Three paths into one port of 100: 40 and 50 and 30 alone make 120, the port leaves 100. Without the port
    /// the sum is 120.
    #[test]
    fn paths_add_up_to_the_port() {
        let alone = [limit(&[1.0], 40.0), limit(&[0.0, 1.0], 50.0), limit(&[0.0, 0.0, 1.0], 30.0)];
        assert!((sum(3, &alone) - 120.0).abs() < 1e-9);
        let with_port = [&alone[..], &[limit(&[1.0, 1.0, 1.0], 100.0)]].concat();
        assert!((sum(3, &with_port) - 100.0).abs() < 1e-9);
    }

    /// A path that takes both links of two others: 2 links of 10. Equal shares (5, 5, 5) make 15, the optimum
    /// leaves the long path at 0 and makes 20.
    #[test]
    fn a_long_path_gives_room_to_two_short_ones() {
        let limits = [limit(&[1.0, 0.0, 1.0], 10.0), limit(&[0.0, 1.0, 1.0], 10.0)];
        let rates = maximize_sum(3, &limits).unwrap();
        assert_eq!(rates.iter().map(|r| r.round()).collect::<Vec<_>>(), [10.0, 10.0, 0.0]);
    }

    #[test]
    fn programs_without_an_answer_have_none() {
        assert_eq!(maximize_sum(1, &[]), None);
        assert_eq!(maximize_sum(2, &[limit(&[1.0], 3.0)]), None);
        assert_eq!(maximize_sum(1, &[limit(&[f64::NAN], 3.0)]), None);
        assert_eq!(maximize_sum(1, &[limit(&[1.0], -1.0)]), None);
        assert_eq!(maximize_sum(0, &[]), Some(vec![]));
    }

    fn program() -> impl Strategy<Value = (usize, Vec<LinearLimit>)> {
        (1usize..8).prop_flat_map(|variables| {
            let weight = prop_oneof![Just(0.0), 0.5f64..4.0];
            let row = (prop::collection::vec(weight, variables), 1.0f64..500.0);
            let rows = prop::collection::vec(row, 0..12);
            let alone = prop::collection::vec(1.0f64..300.0, variables);
            (rows, alone).prop_map(move |(rows, alone)| {
                let alone = alone.into_iter().enumerate().map(|(nth, most)| {
                    let mut coefficients = vec![0.0; variables];
                    coefficients[nth] = 1.0;
                    LinearLimit { coefficients, limit: most }
                });
                let rows = rows
                    .into_iter()
                    .map(|(coefficients, limit)| LinearLimit { coefficients, limit });
                (variables, alone.chain(rows).collect())
            })
        })
    }

    proptest! {
        /// No limit is exceeded, and no variable alone makes more than all of them.
        #[test]
        fn optimum_is_feasible_and_not_below_one_path((variables, limits) in program()) {
            let rates = maximize_sum(variables, &limits).unwrap();
            let total: f64 = rates.iter().sum();
            for row in &limits {
                let used: f64 = row.coefficients.iter().zip(&rates).map(|(c, x)| c * x).sum();
                prop_assert!(used <= row.limit * (1.0 + 1e-7) + 1e-9, "{used} of {}", row.limit);
            }
            for nth in 0..variables {
                let most = limits.iter().filter(|row| row.coefficients[nth] > 0.0);
                let alone = most.map(|row| row.limit / row.coefficients[nth]).fold(f64::INFINITY, f64::min);
                prop_assert!(total >= alone * (1.0 - 1e-7), "{total} below {alone}");
            }
        }

        /// Weak duality: a sum of limits, each with a weight of at least 0, that covers every variable is an
        /// upper bound. Here the weights are those of each row alone.
        #[test]
        fn optimum_is_not_above_a_row_that_covers_all((variables, limits) in program()) {
            let total: f64 = maximize_sum(variables, &limits).unwrap().iter().sum();
            for row in &limits {
                let least = row.coefficients.iter().copied().fold(f64::INFINITY, f64::min);
                if least > 0.0 {
                    prop_assert!(total <= row.limit / least * (1.0 + 1e-7));
                }
            }
        }
    }
}
