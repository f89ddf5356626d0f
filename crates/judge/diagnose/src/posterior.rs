//! How probable explanations are: the only likelihood, and what follows from weights.

/// Odds from which on an explanation is named without the next one.
pub const SURE: f64 = 20.0;
/// The most that odds are stated as.
const MOST_ODDS: f64 = 1e9;

/// Log likelihood of what the logarithm of a rate or a time is off by. The errors are Cauchy, whose tails let
/// no single row decide. `scale` is the scale of the errors of a prediction that is right.
pub fn ln_likelihood(off: f64, scale: f64) -> f64 {
    -(off / scale).powi(2).ln_1p()
}

/// Odds of one log weight to another, at most 1e9.
pub fn odds(ln_weight: f64, ln_other: f64) -> f64 {
    (ln_weight - ln_other).exp().min(MOST_ODDS)
}

/// Log weights as shares of their sum.
pub fn shares(ln_weights: &[f64]) -> Vec<f64> {
    let best = ln_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights = ln_weights.iter().map(|ln| (ln - best).exp());
    let total: f64 = weights.clone().sum();
    weights.map(|weight| weight / total).collect()
}

/// How many of the log weights, best first, are less likely than the best by at most these odds.
pub fn ties(ln_weights: impl IntoIterator<Item = f64>, most_odds: f64) -> usize {
    let mut weights = ln_weights.into_iter().peekable();
    let best = weights.peek().copied().unwrap_or(0.0);
    weights.take_while(|ln| odds(best, *ln) <= most_odds).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_far_off_costs_little_more_than_one_that_is_off() {
        // At one scale ln 2; ten and a hundred scales are ln 101 = 4.6 and ln 10001 = 9.2, not 50 and 5000.
        assert!((ln_likelihood(-0.05, 0.05) + 2f64.ln()).abs() < 1e-12);
        assert!((ln_likelihood(0.5, 0.05) + 101f64.ln()).abs() < 1e-9);
        assert!((ln_likelihood(5.0, 0.05) + 10001f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn weights_have_shares_odds_and_ties() {
        // 6 : 3 : 1, however small all are.
        let weights = [6.0f64, 3.0, 1.0].map(|weight| weight.ln() - 900.0);
        let found = shares(&weights);
        assert!((found[0] - 0.6).abs() < 1e-9 && (found[2] - 0.1).abs() < 1e-9, "{found:?}");
        assert!((odds(weights[0], weights[1]) - 2.0).abs() < 1e-9);
        assert_eq!(odds(0.0, -900.0), 1e9);
        assert_eq!([1.5, 2.5, 6.5].map(|most| ties(weights, most)), [1, 2, 3]);
        assert_eq!((ties([], 20.0), shares(&[]).len()), (0, 0));
    }
}
