//! Latency and bandwidth of a path from its times over sizes.

use serde::{Deserialize, Serialize};

use crate::order::{MAD_TO_SD, median_of};

/// `T(n) = alpha + n / beta`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LineFit {
    /// Time of an empty transfer in ns; not negative.
    pub alpha_ns: f64,
    /// Asymptotic rate in bytes per ns, which is GB/s; positive.
    pub beta_gbs: f64,
    /// Median relative distance of the points from the line: 0.02 is 2 %. Large where one line
    /// does not describe the path, such as across a change of protocol.
    pub misfit: f64,
}

impl LineFit {
    /// Time of a transfer in ns.
    pub fn time_ns(&self, bytes: f64) -> f64 {
        self.alpha_ns + bytes / self.beta_gbs
    }
    /// The size at which half of the asymptotic rate is reached: `alpha * beta` (R. W. Hockney,
    /// "The communication challenge for MPP", Parallel Computing 20, 1994).
    pub fn half_size(&self) -> f64 {
        self.alpha_ns * self.beta_gbs
    }
}

/// Fits a line to `(bytes, ns)`. Errors count relative to the time, so that microseconds weigh
/// like seconds; points far off the line lose weight (Huber's weights, iterated). None with fewer
/// than two distinct sizes, with a time that is not positive and finite, or if time does not grow
/// with size.
pub fn fit_line(points: &[(f64, f64)]) -> Option<LineFit> {
    let usable = |&(n, t): &(f64, f64)| n.is_finite() && n >= 0.0 && t.is_finite() && t > 0.0;
    if !points.iter().all(usable) {
        return None;
    }
    let mut weights: Vec<f64> = points.iter().map(|&(_, t)| 1.0 / (t * t)).collect();
    let mut line = weighted(points, &weights)?;
    for _ in 0..20 {
        let off: Vec<f64> = points.iter().map(|&(n, t)| (line.time_ns(n) - t) / t).collect();
        // 1.345 deviations: 95 % as efficient as least squares on normal noise (P. J. Huber,
        // *Robust Statistics*, 1981, section 4.5).
        let reach = 1.345 * MAD_TO_SD * median_of(off.iter().map(|x| x.abs()));
        if reach <= f64::EPSILON {
            break;
        }
        for ((weight, &(_, t)), off) in weights.iter_mut().zip(points).zip(&off) {
            *weight = (reach / off.abs()).min(1.0) / (t * t);
        }
        line = weighted(points, &weights)?;
    }
    line.misfit = median_of(points.iter().map(|&(n, t)| ((line.time_ns(n) - t) / t).abs()));
    Some(line)
}

/// Weighted least squares; a negative latency is set to zero and the slope fitted alone.
fn weighted(points: &[(f64, f64)], weights: &[f64]) -> Option<LineFit> {
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().zip(weights).map(|(&(n, t), w)| w * f(n, t)).sum()
    };
    let w = sum(&|_, _| 1.0);
    let (n_mean, t_mean) = (sum(&|n, _| n) / w, sum(&|_, t| t) / w);
    let spread = sum(&|n, _| (n - n_mean).powi(2));
    let slope = sum(&|n, t| (n - n_mean) * (t - t_mean)) / spread;
    let alpha = t_mean - slope * n_mean;
    let (alpha, slope) =
        if alpha >= 0.0 { (alpha, slope) } else { (0.0, sum(&|n, t| n * t) / sum(&|n, _| n * n)) };
    let fits = spread > 0.0 && slope.is_finite() && slope > 0.0 && alpha.is_finite();
    fits.then(|| LineFit { alpha_ns: alpha, beta_gbs: 1.0 / slope, misfit: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 7] = [256.0, 4096.0, 65536.0, 1e6, 16e6, 256e6, 4e9];

    #[test]
    fn an_exact_line_comes_back() {
        // 8.7 us and 50 GB/s = 50 B/ns: half of it is reached at 8700 x 50 = 435 kB.
        let points = SIZES.map(|n| (n, 8700.0 + n / 50.0));
        let line = fit_line(&points).unwrap();
        assert!((line.alpha_ns - 8700.0).abs() < 1e-3 && (line.beta_gbs - 50.0).abs() < 1e-6);
        assert!((line.half_size() - 435_000.0).abs() < 1.0 && line.misfit < 1e-9);
    }

    #[test]
    fn one_wild_point_moves_it_little() {
        let mut points = SIZES.map(|n| (n, 8700.0 + n / 50.0));
        points[3].1 *= 3.0;
        let line = fit_line(&points).unwrap();
        assert!((line.alpha_ns / 8700.0 - 1.0).abs() < 0.02, "{line:?}");
        assert!((line.beta_gbs / 50.0 - 1.0).abs() < 0.02, "{line:?}");
    }

    /// One of five is 8 % late and beyond 1.345 deviations, which 1.99 median distances are.
    #[test]
    fn a_late_point_weighs_as_huber_says() {
        let points =
            [(100.0, 201.0), (200.0, 297.0), (300.0, 402.0), (400.0, 498.0), (500.0, 640.0)];
        let line = fit_line(&points).unwrap();
        assert!((line.alpha_ns - 95.978).abs() < 0.01, "{line:?}, without weights 94.298");
        assert!((line.beta_gbs - 0.97286).abs() < 1e-4, "{line:?}, without weights 0.96219");
    }

    #[test]
    fn nothing_to_fit_is_no_line() {
        assert_eq!(fit_line(&[]), None);
        assert_eq!(fit_line(&[(1024.0, 10.0)]), None);
        assert_eq!(fit_line(&[(1024.0, 10.0), (1024.0, 11.0)]), None);
        assert_eq!(fit_line(&[(1024.0, 10.0), (2048.0, 5.0)]), None, "time falls with size");
        assert_eq!(fit_line(&[(1024.0, 0.0), (2048.0, 5.0)]), None);
    }

    #[test]
    fn latency_is_never_negative() {
        // Rates that fall with size bend the line below zero at the origin: alpha is held at 0.
        let line = fit_line(&[(1e6, 1e4), (2e6, 2.2e4), (4e6, 4.8e4)]).unwrap();
        assert_eq!(line.alpha_ns, 0.0);
        assert!(line.beta_gbs > 80.0 && line.beta_gbs < 100.0);
    }
}
