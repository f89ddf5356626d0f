//! Which of several equal parts is slower than the others: needs no limit.

use std::collections::BTreeMap;

use crate::node_facts::figure;

/// A part is slow from this far below its peers on, as a share of them.
const LEAST_GAP: f64 = 0.07;
/// And at least this many times the spread of its peers.
const SPREADS: f64 = 3.0;

/// A part that is slower than its peers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outlier {
    /// `gpu3`, `gpu1-gpu2`, `nvme2n1`.
    pub(crate) part: String,
    /// Its figure over that of its peers.
    pub(crate) share: f64,
    /// The sentence.
    pub(crate) text: String,
    /// What to run.
    pub(crate) check: String,
}

impl Outlier {
    pub(crate) fn new(part: String, value: f64, usual: f64, unit: &str, peers: &str) -> Self {
        let share = value / usual;
        let text = format!(
            "{part}: {} of {} {unit} of {peers} ({}{:.0} %)",
            figure(value),
            figure(usual),
            fraction(share),
            share * 100.0
        );
        Self { part, share, text, check: String::new() }
    }

    pub(crate) fn checked_by(mut self, check: impl Into<String>) -> Self {
        self.check = check.into();
        self
    }
}

/// `half, `, `a quarter, `, where it is one.
fn fraction(share: f64) -> &'static str {
    let is = |of: f64| (share / of - 1.0).abs() < 0.06;
    match () {
        () if is(0.5) => "half, ",
        () if is(0.25) => "a quarter, ",
        () if is(0.125) => "an eighth, ",
        () => "",
    }
}

/// Median of values; none of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    pathline_stats::interpolated(&pathline_stats::ascending(values.iter().copied()), 0.5)
}

/// Least over greatest of the middle 80 % of values, from 1.
fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 10;
    match (sorted.get(cut), sorted.get(sorted.len().saturating_sub(cut + 1))) {
        (Some(least), Some(most)) if *most > 0.0 => 1.0 - least / most,
        _ => 1.0,
    }
}

/// Indices of the few values below all others, with what the others have; `most_share` of them at most.
pub(crate) fn slow_values(values: &[f64], most_share: f64) -> Option<(Vec<usize>, f64)> {
    if values.len() < 3 || values.iter().any(|value| !value.is_finite() || *value <= 0.0) {
        return None;
    }
    let usual = median(values)?;
    let most = ((values.len() as f64 * most_share) as usize).max(1);
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |at: &usize| values.get(*at).copied().unwrap_or(usual);
    order.sort_by(|a, b| value(a).total_cmp(&value(b)));
    // The widest gap below the middle parts the slow ones from the rest.
    let cut = (1..=most.min(values.len().saturating_sub(2))).max_by(|a, b| {
        let gap = |cut: &usize| {
            let (below, above) = (order.get(cut - 1), order.get(*cut));
            below.zip(above).map_or(0.0, |(b, a)| value(a) / value(b))
        };
        gap(a).total_cmp(&gap(b))
    })?;
    let (slow, rest) = order.split_at_checked(cut)?;
    let rest: Vec<f64> = rest.iter().map(value).collect();
    let usual = median(&rest)?;
    let limit = usual * (1.0 - LEAST_GAP.max(SPREADS * spread(&rest)));
    let fastest = slow.iter().map(value).fold(0.0, f64::max);
    (fastest < limit).then(|| (slow.to_vec(), usual))
}

/// The GPU whose pairs are all slower than the rest, or the few pairs that are, of pairs that are equal by what
/// is known of them.
pub(crate) fn slow_pairs(list: &[(u32, u32, f64)]) -> Vec<Outlier> {
    let mut gpus: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for &(a, b, value) in list {
        gpus.entry(a).or_default().push(value);
        gpus.entry(b).or_default().push(value);
    }
    let mut found: Option<Outlier> = None;
    for (gpu, own) in gpus.iter().filter(|_| (3..=128).contains(&gpus.len())) {
        let is_own = |a: u32, b: u32| a == *gpu || b == *gpu;
        let rest: Vec<f64> =
            list.iter().filter(|&&(a, b, _)| !is_own(a, b)).map(|pair| pair.2).collect();
        let (Some(mean), Some(usual)) = (median(own), median(&rest)) else { continue };
        let (best, worst) = (
            own.iter().copied().fold(0.0, f64::max),
            rest.iter().copied().fold(f64::INFINITY, f64::min),
        );
        let gap = LEAST_GAP.max(SPREADS * spread(&rest)).min(0.3);
        let is_slow = best < worst && mean < usual * (1.0 - gap);
        if is_slow && found.as_ref().is_none_or(|known| mean / usual < known.share) {
            let part = format!("gpu{gpu}");
            let text = format!("all {} pairs of gpu{gpu}", own.len());
            let mut one = Outlier::new(text, mean, usual, "GB/s", "the pairs without it");
            one.part = part;
            found = Some(one);
        }
    }
    if found.is_some() || list.len() < 6 {
        return found.into_iter().collect();
    }
    let values: Vec<f64> = list.iter().map(|pair| pair.2).collect();
    // A pair has two directions.
    let few = 0.1_f64.max(2.0 / values.len() as f64);
    let Some((slow, usual)) = slow_values(&values, few) else { return Vec::new() };
    let mut named: Vec<Outlier> = Vec::new();
    for at in slow {
        let Some(&(a, b, value)) = list.get(at) else { continue };
        let back = named.iter_mut().find(|one| one.part == format!("gpu{b}->gpu{a}"));
        match back {
            // Both directions are one pair.
            Some(back) => {
                let part = format!("gpu{}-gpu{}", a.min(b), a.max(b));
                *back = Outlier::new(
                    part,
                    value.min(back.share * usual),
                    usual,
                    "GB/s",
                    "the other pairs",
                );
            }
            None => {
                let part = format!("gpu{a}->gpu{b}");
                named.push(Outlier::new(part, value, usual, "GB/s", "the other pairs"));
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ordered pairs of `gpus` GPUs.
    fn pairs(gpus: u32, value: impl Fn(u32, u32) -> f64) -> Vec<(u32, u32, f64)> {
        let all = (0..gpus).flat_map(|a| (0..gpus).map(move |b| (a, b)));
        all.filter(|(a, b)| a != b).map(|(a, b)| (a, b, value(a, b))).collect()
    }

    fn names(list: &[(u32, u32, f64)]) -> Vec<String> {
        slow_pairs(list).into_iter().map(|one| one.part).collect()
    }

    #[test]
    fn a_gpu_and_a_pair_are_named() {
        // 16 of 18 links: 89 %.
        assert_eq!(names(&pairs(4, |a, b| if a == 1 || b == 1 { 350.0 } else { 394.0 })), ["gpu1"]);
        assert_eq!(
            names(&pairs(4, |a, b| if a + b == 3 && a * b == 2 { 24.0 } else { 48.0 })),
            ["gpu1-gpu2"]
        );
        assert_eq!(
            names(&pairs(4, |a, b| if (a, b) == (0, 2) { 24.0 } else { 48.0 })),
            ["gpu0->gpu2"]
        );
    }

    #[test]
    fn classes_and_noise_are_no_outliers() {
        // Two sockets: 8 of 12 pairs cross.
        assert!(names(&pairs(4, |a, b| if a / 2 == b / 2 { 26.0 } else { 13.0 })).is_empty());
        assert!(names(&pairs(8, |a, b| if a / 2 == b / 2 { 50.4 } else { 37.6 })).is_empty());
        assert!(names(&pairs(8, |a, b| 390.0 + f64::from((a * 7 + b * 3) % 5) * 3.0)).is_empty());
        assert!(names(&pairs(2, |a, _| if a == 0 { 10.0 } else { 20.0 })).is_empty());
    }

    #[test]
    fn one_of_a_list_is_named() {
        assert_eq!(slow_values(&[55.2, 55.1, 27.4, 55.3], 0.25), Some((vec![2], 55.2)));
        assert_eq!(slow_values(&[55.2, 55.1, 27.4, 27.3], 0.25), None);
        assert_eq!(slow_values(&[55.2, 27.4], 0.25), None);
    }
}
