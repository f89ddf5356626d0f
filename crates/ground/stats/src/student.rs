//! Student's t distribution.

/// Natural logarithm of the gamma function for `x > 0`, to 1e-13 (C. Lanczos, "A Precision
/// Approximation of the Gamma Function", SIAM J. Numer. Anal. B 1, 1964; g = 7, 9 terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = TERMS
        .iter()
        .enumerate()
        .fold(0.999_999_999_999_809_9, |sum, (i, term)| sum + term / (x + i as f64 + 1.0));
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function by Lentz's continued fraction (W. H. Press et al.,
/// *Numerical Recipes*, section 6.4).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..400 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            step = c * d;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    (front.exp() * fraction / a).clamp(0.0, 1.0)
}

/// Probability that t with `freedom` degrees of freedom is above `t`. With infinite freedom it is
/// that of the normal distribution (of 1e7 degrees, which differ by less than 1e-7).
pub(crate) fn t_tail(t: f64, freedom: f64) -> f64 {
    if t.is_nan() || freedom.is_nan() || freedom <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return if t > 0.0 { 0.0 } else { 1.0 };
    }
    let freedom = freedom.min(1e7);
    let half = 0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    if t >= 0.0 { half } else { 1.0 - half }
}

/// The t that is exceeded with probability `tail`, from 1e-12 to 0.5, by bisection.
pub fn t_quantile(tail: f64, freedom: f64) -> f64 {
    let tail = tail.clamp(1e-12, 0.5);
    let (mut low, mut high) = (0.0, 1.0);
    while t_tail(high, freedom) > tail && high < 1e15 {
        low = high;
        high *= 4.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if t_tail(middle, freedom) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Two-sided 95 % points: 1, 2, 5, 30 and infinitely many degrees of freedom.
        let table = [(1.0, 12.7062), (2.0, 4.3027), (5.0, 2.5706), (30.0, 2.0423), (1e9, 1.95996)];
        for (freedom, expected) in table {
            let found = t_quantile(0.025, freedom);
            assert!((found - expected).abs() < 2e-4, "{freedom}: {found}");
            assert!((t_tail(found, freedom) - 0.025).abs() < 1e-9);
            assert!((t_tail(-found, freedom) - 0.975).abs() < 1e-9);
        }
        // One degree of freedom is Cauchy's distribution: P(t > 1) = 1/4.
        assert!((t_tail(1.0, 1.0) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn ends_stay_in_range() {
        assert_eq!(t_tail(f64::INFINITY, 3.0), 0.0);
        assert_eq!(t_tail(f64::NAN, 3.0), 1.0);
        assert!(t_tail(1e8, 2.0) > 0.0 && t_tail(40.0, f64::INFINITY) < 1e-12);
    }
}
