//! Order statistics on sorted slices.

/// A sorted copy; none if empty or if a sample is not finite.
pub(crate) fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || samples.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The quantile `q` of sorted samples, interpolated between ranks (type 7 of Hyndman and Fan,
/// "Sample quantiles in statistical packages", 1996). Zero for none.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

/// The median of sorted samples.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

/// The median of samples in any order.
pub(crate) fn median_of(samples: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = samples.collect();
    all.sort_unstable_by(f64::total_cmp);
    median(&all)
}

/// The median distance from `centre`.
pub(crate) fn mad(samples: &[f64], centre: f64) -> f64 {
    median_of(samples.iter().map(|x| (x - centre).abs()))
}

/// Makes a median absolute deviation comparable to a standard deviation: `1 / 0.67449`, where
/// 0.67449 is the upper quartile of the standard normal distribution.
pub(crate) const MAD_TO_SD: f64 = 1.482_602_218_505_602;
