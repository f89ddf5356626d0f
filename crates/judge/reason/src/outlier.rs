//! Which of several equal parts is slower than the others: needs no limit.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::figures::figure;

/// A part is slow from this far below its peers on, as a share of them.
const LEAST_GAP: f64 = 0.07;
/// And at least this many times the spread of its peers.
const SPREADS: f64 = 3.0;

/// Most pairs whose two directions are compared, and most that are named.
const MAX_PAIRS: usize = 4096;
const MAX_DIRECTIONS: usize = 4;

/// A run is slow below this share of the fastest one of the same test.
pub(crate) const RUN_SHARE: f64 = 0.85;

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
    /// Whether it is a row, a size or an interval, and no part of a node.
    pub(crate) is_row: bool,
}

impl Outlier {
    /// A row, a size or an interval with its own sentence.
    pub(crate) fn of_text(part: impl Into<String>, share: f64, text: String) -> Self {
        Self { part: part.into(), share, text, check: String::new(), is_row: true }
    }
    pub(crate) fn new(part: String, value: f64, usual: f64, unit: &str, peers: &str) -> Self {
        let share = value / usual;
        let text = format!(
            "{part}: {} of {} {unit} of {peers} ({}{:.0} %)",
            figure(value),
            figure(usual),
            fraction(share),
            share * 100.0
        );
        Self { part, share, text, check: String::new(), is_row: false }
    }

    pub(crate) fn of_row(self) -> Self {
        Self { is_row: true, ..self }
    }

    /// Sizes of the table that it is about: `4096 B`, or `from 4096 B on`.
    pub(crate) fn sizes(&self) -> Option<RangeInclusive<u64>> {
        let (size, is_open) = match self.part.strip_prefix("from ") {
            Some(rest) => (rest.strip_suffix(" B on")?, true),
            None => (self.part.strip_suffix(" B")?, false),
        };
        let first =
            size.parse().ok().filter(|_| self.is_row && !self.text.starts_with("in place"))?;
        Some(first..=if is_open { u64::MAX } else { first })
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

/// The few slow ones of named rates, GB/s.
pub(crate) fn slow_named(named: &[(String, f64)], most_share: f64, peers: &str) -> Vec<Outlier> {
    let values: Vec<f64> = named.iter().map(|one| one.1).collect();
    let (slow, usual) = slow_values(&values, most_share).unwrap_or_default();
    let of =
        |(name, value): &(String, f64)| Outlier::new(name.clone(), *value, usual, "GB/s", peers);
    slow.iter().filter_map(|at| named.get(*at).map(of)).collect()
}
/// A row is slow below this share of its neighbours: protocols that begin at a size cost less.
pub(crate) const DIP: f64 = 0.75;

/// Times of a start that no start takes.
const LATE: f64 = 16.0;

/// The sizes whose bytes take as long as a start at the best rate: below them a time is that of a start, and varies as
/// starts do, unless it is far longer.
pub(crate) fn moving_rows(rows: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let best = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let times = rows.iter().filter(|row| row.1 > 0.0).map(|row| row.0 as f64 / row.1);
    let start = times.fold(f64::INFINITY, f64::min);
    let is_late = |row: &(u64, f64)| row.0 as f64 / row.1 > start * LATE;
    rows.iter().copied().filter(|row| row.0 as f64 >= start * best || is_late(row)).collect()
}

/// Sizes that are slower than both neighbours, or take longer than a larger one: rates grow with the size, up to a
/// plateau. `rows` are sizes with rates; `dip` is the share of both neighbours from which on a row is slow.
pub(crate) fn slow_rows(rows: &[(u64, f64)], dip: f64) -> Vec<Outlier> {
    let mut rows: Vec<(u64, f64)> =
        rows.iter().copied().filter(|row| row.0 > 0 && row.1 > 0.0).collect();
    rows.sort_by_key(|row| row.0);
    let is_series =
        rows.len() >= 3 && rows.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
    if !is_series {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, &(bytes, rate)) in rows.iter().enumerate() {
        let neighbour = |at: Option<usize>| at.and_then(|at| rows.get(at)).copied();
        let (before, Some(after)) = (neighbour(at.checked_sub(1)), neighbour(Some(at + 1))) else {
            continue;
        };
        let usual = before.map_or(0.0, |before| before.1.min(after.1));
        // Of two sizes that are nearly equal either may take longer.
        let is_larger = after.0 as f64 > bytes as f64 * 1.4;
        // Of messages a faster protocol may begin there. The first size has what starts with a run.
        let takes_longer = dip >= DIP
            && at > 0
            && is_larger
            && bytes as f64 / rate > after.0 as f64 / after.1 / dip;
        if rate < usual * dip || takes_longer {
            let (usual, peers) = match rate < usual * dip {
                true => (usual, "the sizes next to it".to_owned()),
                false => (after.1, format!("{} B, which take less time", after.0)),
            };
            let row = Outlier::new(format!("{bytes} B"), rate, usual, "GB/s", &peers);
            found.push(row.of_row());
        }
    }
    // Many of them are the noise of this series.
    if found.len() * 5 > rows.len().max(10) { Vec::new() } else { found }
}

/// Below this share of the best rate all larger sizes have fallen off.
const FALLEN: f64 = 0.5;

/// A last size alone has fallen off below this share of the size before it: another protocol costs a factor of 2 to 3.
const BROKEN: f64 = 0.25;

/// The size from which on all rates are below half of the best one, of two sizes or more, or of one that is far below.
pub(crate) fn falls_off(rows: &[(u64, f64)]) -> Option<Outlier> {
    let (at, &(_, best)) = rows.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let after = rows.get(at + 1..)?;
    let low = after.iter().rev().take_while(|row| row.1 < best * FALLEN).count();
    let is_broken = match rows.get(rows.len().saturating_sub(2)..) {
        Some([before, last]) => last.1 < before.1 * BROKEN,
        _ => false,
    };
    let (bytes, rate) =
        *after.get(after.len() - low..)?.first().filter(|_| low >= 2 || is_broken)?;
    let one = Outlier::new(format!("from {bytes} B on"), rate, best, "GB/s", "smaller sizes");
    Some(one.of_row())
}

/// Sizes whose longest time is farther above the mean than that of the others.
pub(crate) fn long_tails(rows: &[(u64, f64)], longest: &[(u64, f64)]) -> Vec<Outlier> {
    let pair = |&(bytes, longest): &(u64, f64)| {
        let mean = rows.iter().find(|row| row.0 == bytes)?.1;
        Some((bytes, mean, longest)).filter(|_| longest > 0.0)
    };
    let pairs: Vec<(u64, f64, f64)> = longest.iter().filter_map(pair).collect();
    let ratios: Vec<f64> = pairs.iter().map(|(_, mean, longest)| mean / longest).collect();
    let Some((slow, usual)) = slow_values(&ratios, 0.2) else { return Vec::new() };
    let each = slow.iter().filter_map(|at| {
        let (bytes, mean, longest) = *pairs.get(*at)?;
        let [most, times, usual_us] = [longest, longest / mean, mean].map(figure);
        let text = format!(
            "{bytes} B: the longest {most} us are {times} times the mean of {usual_us} us, at the other sizes {} times",
            figure(1.0 / usual)
        );
        let one = Outlier::of_text(format!("{bytes} B"), mean / longest / usual, text);
        Some(one).filter(|one| one.share < DIP)
    });
    each.collect()
}

/// A run whose intervals of one size differ this much is not steady: the least over the best of them.
pub(crate) const STEADY: f64 = 0.5;

/// A run of messages of one size whose rate goes up and down. The first interval has the start.
pub(crate) fn unsteady(rates: &[f64]) -> Option<Outlier> {
    let after = rates.get(1..).filter(|after| after.len() >= 3).unwrap_or_default();
    let least = after.iter().copied().reduce(f64::min)?;
    let most = rates.iter().copied().fold(0.0, f64::max);
    let low = after.iter().filter(|rate| **rate < most * STEADY).count();
    let [worst, best] = [least, most].map(figure);
    let all = after.len();
    let text = format!(
        "intervals of one run: {worst} to {best} GB/s, {low} of {all} below half of the best"
    );
    let check = "ethtool -S or the counters of the port at both ends: pauses, discards, retransmits; the same on an idle network";
    (low > 0).then(|| Outlier::of_text("the run", least / most, text).checked_by(check))
}

/// Intervals of a run that are slower than the others.
pub(crate) fn slow_intervals(intervals: &[(u64, f64)]) -> Vec<Outlier> {
    // The last interval is often a part of one.
    let (_, whole) = intervals.split_last().unwrap_or((&(0, 0.0), &[]));
    let name = |(ms, rate): &(u64, f64)| (format!("the interval up to {ms} ms"), *rate);
    let named: Vec<(String, f64)> = whole.iter().map(name).collect();
    slow_named(&named, 0.2, "the others").into_iter().map(Outlier::of_row).collect()
}

/// Both directions of a pair, or both places of a size, are peers up to this factor.
pub(crate) const ASYMMETRY: f64 = 1.5;

/// Pairs one direction of which is slower than the other.
fn slow_directions(list: &[(u32, u32, f64)]) -> Vec<Outlier> {
    let back = |&(a, b, value): &(u32, u32, f64)| {
        let (.., back) = *list.iter().find(|other| (other.0, other.1) == (b, a))?;
        (a != b && value > 0.0 && back > ASYMMETRY * value).then_some((a, b, value, back))
    };
    let each = list.iter().take(MAX_PAIRS).filter_map(back).take(MAX_DIRECTIONS);
    let one = |(a, b, value, back)| {
        let other = format!("gpu{b}->gpu{a}");
        Outlier::new(format!("gpu{a}->gpu{b}"), value, back, "GB/s", &other)
    };
    each.map(one).collect()
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
        let best = own.iter().copied().fold(0.0, f64::max);
        let worst = rest.iter().copied().fold(f64::INFINITY, f64::min);
        let gap = LEAST_GAP.max(SPREADS * spread(&rest)).min(0.3);
        let is_slow = best < worst && mean < usual * (1.0 - gap);
        if is_slow && found.as_ref().is_none_or(|known| mean / usual < known.share) {
            let text = format!("all {} pairs of gpu{gpu}", own.len());
            let one = Outlier::new(text, mean, usual, "GB/s", "the pairs without it");
            found = Some(Outlier { part: format!("gpu{gpu}"), ..one });
        }
    }
    if let Some(found) = found {
        return vec![found];
    }
    let values: Vec<f64> = list.iter().map(|pair| pair.2).collect();
    // A pair has two directions.
    let few = 0.1_f64.max(2.0 / values.len() as f64);
    let slow = slow_values(&values, few).filter(|_| list.len() >= 6);
    let Some((slow, usual)) = slow else { return slow_directions(list) };
    let mut named: Vec<Outlier> = Vec::new();
    for &(a, b, value) in slow.iter().filter_map(|at| list.get(*at)) {
        let slow =
            |part: String, rate: f64| Outlier::new(part, rate, usual, "GB/s", "the other pairs");
        match named.iter_mut().find(|one| one.part == format!("gpu{b}->gpu{a}")) {
            // Both directions are one pair.
            Some(back) => {
                let part = format!("gpu{}-gpu{}", a.min(b), a.max(b));
                *back = slow(part, value.min(back.share * usual));
            }
            None => named.push(slow(format!("gpu{a}->gpu{b}"), value)),
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
        assert!(names(&pairs(2, |a, _| if a == 0 { 15.0 } else { 20.0 })).is_empty());
        assert_eq!(names(&pairs(2, |a, _| if a == 0 { 10.0 } else { 20.0 })), ["gpu0->gpu1"]);
    }

    #[test]
    fn rows_and_intervals_are_named() {
        let rows = |values: &[f64]| -> Vec<(u64, f64)> {
            (20..).zip(values).map(|(power, rate)| (1 << power, *rate)).collect()
        };
        let parts = |found: Vec<Outlier>| found.into_iter().map(|one| one.part).collect::<Vec<_>>();
        assert_eq!(
            parts(slow_rows(&rows(&[12.0, 17.0, 32.0, 19.0, 30.0, 42.0]), DIP)),
            ["8388608 B"]
        );
        // 389 us for 2 MiB, 143 us for 4 MiB.
        assert_eq!(parts(slow_rows(&rows(&[5.4, 5.8, 5.4, 29.3]), DIP)), ["4194304 B"]);
        assert!(slow_rows(&rows(&[100.0, 150.0, 140.0, 220.0, 300.0, 290.0]), DIP).is_empty());
        // 1 B at 0.0025 GB/s takes 0.4 us: at 12 GB/s 4.8 kB do.
        let sizes = [(1, 0.0025), (512, 0.4), (1024, 0.9), (8192, 7.0), (1 << 20, 12.0)];
        assert_eq!(moving_rows(&sizes), sizes[3..]);
        let second = |at: u64, rate: f64| (at * 1000, rate);
        let mut run: Vec<(u64, f64)> =
            (1..=10).map(|at| second(at, 5.2 + at as f64 / 1e3)).collect();
        assert!(slow_intervals(&run).is_empty());
        run[6].1 = 0.6;
        assert_eq!(parts(slow_intervals(&run)), ["the interval up to 7000 ms"]);
        let means = rows(&[40.0, 40.0, 41.0, 54.0, 68.0]);
        let mut longest = rows(&[43.0, 43.0, 44.0, 58.0, 73.0]);
        assert!(long_tails(&means, &longest).is_empty());
        longest[4].1 = 640.0;
        assert_eq!(parts(long_tails(&means, &longest)), ["16777216 B"]);
    }

    #[test]
    fn one_of_a_list_is_named() {
        assert_eq!(slow_values(&[55.2, 55.1, 27.4, 55.3], 0.25), Some((vec![2], 55.2)));
        assert_eq!(slow_values(&[55.2, 55.1, 27.4, 27.3], 0.25), None);
        assert_eq!(slow_values(&[55.2, 27.4], 0.25), None);
    }
}
