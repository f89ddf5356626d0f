//! What a setting does at each size, as one sentence for all commands.

use std::collections::BTreeMap;

use crate::units::Bytes;

/// A change of the rate by less than this share is none.
const LEAST_CHANGE: f64 = 0.01;

/// What a setting does at one size: its gain with the 95 % interval. 0.5 is 50 % more in the same time, negative is
/// slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeEffect {
    /// Size of the transfer.
    pub bytes: Bytes,
    /// The gain.
    pub gain: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

impl SizeEffect {
    /// Without an interval.
    pub const fn exact(bytes: Bytes, gain: f64) -> Self {
        Self { bytes, gain, low: gain, high: gain }
    }

    fn is_faster(&self) -> bool {
        self.low > LEAST_CHANGE
    }
    fn is_slower(&self) -> bool {
        self.high < -LEAST_CHANGE
    }
}

/// Gains of a setting by size and direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SizeEffects {
    /// Between the ends where it gains most, by size.
    most: Vec<SizeEffect>,
    /// The largest loss between any ends.
    worst: Option<SizeEffect>,
    /// Of copies from pinned host memory, and to it, by size.
    host: [Vec<SizeEffect>; 2],
}

impl SizeEffects {
    /// Sizes at which settings are compared: one whose start is most of its time, a usual one, and one whose rate
    /// hardly depends on the size.
    pub const USUAL: [Bytes; 3] = [Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)];
    /// The same with a size whose time is its start: what a setting costs programs that copy little at once.
    pub const ALL: [Bytes; 4] = [Bytes::kib(4), Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)];

    /// Of transfers of any sizes between several ends: of those ends between which the setting gains at some size and
    /// loses at another, the ones that gain most. Empty without such ends.
    pub fn new<K: Ord>(effects: impl IntoIterator<Item = (K, SizeEffect)>) -> Self {
        let mut by_ends: BTreeMap<K, Vec<SizeEffect>> = BTreeMap::new();
        effects
            .into_iter()
            .for_each(|(ends, effect)| by_ends.entry(ends).or_default().push(effect));
        let has = |all: &[SizeEffect], is: fn(&SizeEffect) -> bool| all.iter().any(is);
        let is_mixed = |all: &Vec<SizeEffect>| {
            has(all, SizeEffect::is_faster) && has(all, SizeEffect::is_slower)
        };
        let best = |all: &[SizeEffect]| all.iter().map(|effect| effect.gain).fold(0.0, f64::max);
        let slower = by_ends.values().flatten().copied().filter(SizeEffect::is_slower);
        let worst = slower.min_by(|a, b| a.gain.total_cmp(&b.gain));
        let mixed = by_ends.into_values().filter(is_mixed);
        let mut most = mixed.max_by(|a, b| best(a).total_cmp(&best(b))).unwrap_or_default();
        most.sort_by_key(|effect| effect.bytes);
        most.dedup_by_key(|effect| effect.bytes);
        Self { most, worst, host: Default::default() }
    }

    /// With what the setting does to copies from pinned host memory to a GPU (true), and to it (false).
    #[must_use]
    pub fn with_host(mut self, effects: impl IntoIterator<Item = (bool, SizeEffect)>) -> Self {
        for (is_inward, effect) in effects {
            self.host[usize::from(!is_inward)].push(effect);
        }
        self.host.iter_mut().for_each(|all| all.sort_by_key(|effect| effect.bytes));
        self
    }

    /// The same as a sentence with a full stop.
    pub fn sentence(&self) -> Option<String> {
        Some(format!("N{}.", self.text()?.strip_prefix('n')?))
    }

    /// `not as a global setting: where it gains most, faster from 1MiB on (1.5 to 3.1x), 22 % slower at 64KiB`. None
    /// unless it gains at some size and loses at another between the same ends.
    pub fn text(&self) -> Option<String> {
        let (faster, first, slower) = self.split()?;
        let at =
            first.map_or_else(|| sizes(&faster), |first| format!("from {} on", first.rounded()));
        let gains = factors(&faster);
        Some(format!(
            "not as a global setting: where it gains most, faster {at} ({gains}), {slower}"
        ))
    }

    /// `that copy 1MiB or more` or `that copy 64KiB, 1MiB`, and `22 % slower at 64KiB`: where to use the setting, and
    /// why not elsewhere. None like [`Self::text`].
    pub fn advice(&self, verb: &str) -> Option<(String, String)> {
        let (faster, first, slower) = self.split()?;
        let sizes = first.map_or_else(
            || faster.iter().map(|effect| effect.bytes.rounded()).collect::<Vec<_>>().join(", "),
            |first| format!("{} or more", first.rounded()),
        );
        Some((format!("that {verb} {sizes}"), slower))
    }

    /// The sizes at which it gains, the least of them if all above gain and none below, and what it loses at others.
    fn split(&self) -> Option<(Vec<SizeEffect>, Option<Bytes>, String)> {
        let [faster, slower] = split(&self.most);
        let (first, last) = (faster.first()?.bytes, slower.last()?.bytes);
        let is_above = last < first && self.most.iter().all(|e| e.bytes < first || e.is_faster());
        let mut text = format!("{} {}", slower_by(&slower), sizes(&slower));
        let largest = slower.iter().map(|effect| effect.gain).fold(0.0, f64::min);
        if let Some(worst) = self.worst.filter(|worst| worst.gain < largest - LEAST_CHANGE) {
            let (loss, at) = (slower_by(&[worst]), worst.bytes.rounded());
            text += &format!(", up to {loss} between others ({at})");
        }
        for (name, all) in ["H2D", "D2H"].into_iter().zip(&self.host) {
            let [faster, slower] = split(all);
            let at = |of: &[SizeEffect]| match of.len() == Self::ALL.len() {
                true => String::new(),
                false => format!(" {}", sizes(of)),
            };
            let mut parts = Vec::new();
            if !slower.is_empty() {
                parts.push(slower_by(&slower) + &at(&slower));
            }
            if !faster.is_empty() {
                parts.push(format!("{} faster{}", factors(&faster), at(&faster)));
            }
            if !parts.is_empty() {
                text += &format!("; {name} {}", parts.join(", "));
            }
        }
        Some((faster, is_above.then_some(first), text))
    }
}

/// What gains, and what loses.
fn split(all: &[SizeEffect]) -> [Vec<SizeEffect>; 2] {
    [SizeEffect::is_faster, SizeEffect::is_slower]
        .map(|is| all.iter().filter(|effect| is(effect)).copied().collect())
}

/// `22 to 28 % slower`
fn slower_by(of: &[SizeEffect]) -> String {
    let losses: Vec<f64> = of.iter().map(|effect| -effect.gain * 100.0).collect();
    format!("{} % slower", range(&losses, 0))
}

/// `at 64KiB, 1MiB`
fn sizes(of: &[SizeEffect]) -> String {
    let all: Vec<String> = of.iter().map(|effect| effect.bytes.rounded()).collect();
    format!("at {}", all.join(", "))
}

/// `1.5 to 3.1x`; of gains below twice the rate `5 to 56 %`.
fn factors(of: &[SizeEffect]) -> String {
    let gains: Vec<f64> = of.iter().map(|effect| effect.gain).collect();
    match gains.iter().any(|gain| *gain > 1.0) {
        true => {
            let factors: Vec<f64> = gains.iter().map(|gain| 1.0 + gain).collect();
            format!("{}x", range(&factors, 1))
        }
        false => {
            let shares: Vec<f64> = gains.iter().map(|gain| gain * 100.0).collect();
            format!("{} %", range(&shares, 0))
        }
    }
}

fn range(values: &[f64], digits: usize) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let [low, high] = [low, high].map(|value| format!("{value:.digits$}"));
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(effects: &[(Bytes, f64)]) -> Option<String> {
        let of = |(bytes, gain): &(Bytes, f64)| ((), SizeEffect::exact(*bytes, *gain));
        let text = SizeEffects::new(effects.iter().map(of)).text()?;
        text.strip_prefix("not as a global setting: where it gains most, ").map(str::to_owned)
    }

    #[test]
    fn a_setting_is_said_by_size_where_it_gains_and_loses() {
        let (small, usual, large) = (Bytes::kib(64), Bytes::mib(1), Bytes::mib(64));
        assert_eq!(
            text(&[(large, 2.05), (small, -0.22), (usual, 0.46)]).as_deref(),
            Some("faster from 1MiB on (1.5 to 3.0x), 22 % slower at 64KiB")
        );
        assert_eq!(
            text(&[(small, -0.37), (usual, -0.12), (large, 0.046)]).as_deref(),
            Some("faster from 64MiB on (5 %), 12 to 37 % slower at 64KiB, 1MiB")
        );
        assert_eq!(
            text(&[(small, 0.2), (usual, 0.4), (large, -0.1)]).as_deref(),
            Some("faster at 64KiB, 1MiB (20 to 40 %), 10 % slower at 64MiB")
        );
        assert_eq!(text(&[(small, 0.005), (large, 2.0)]), None, "it loses nowhere");
        assert_eq!(text(&[(small, -0.2), (large, -0.1)]), None, "it gains nowhere");
        let wide = SizeEffect { low: -0.01, ..SizeEffect::exact(large, 0.5) };
        let all = [wide, SizeEffect::exact(small, -0.2)].map(|effect| ((), effect));
        assert_eq!(SizeEffects::new(all).text(), None, "its interval has no gain");
        // Between the second ends it loses nowhere, between the third it gains less.
        let of = |ends, bytes, gain| (ends, SizeEffect::exact(bytes, gain));
        let all = [
            of("a", small, -0.1),
            of("a", large, 1.5),
            of("b", large, 4.0),
            of("c", small, -0.3),
            of("c", large, 0.4),
        ];
        let advice = SizeEffects::new(all).advice("copy").unwrap();
        assert_eq!(
            advice,
            (
                "that copy 64MiB or more".to_owned(),
                "10 % slower at 64KiB, up to 30 % slower between others (64KiB)".to_owned()
            )
        );
        let host = |inward, bytes, gain| (inward, SizeEffect::exact(bytes, gain));
        let host = [
            host(true, large, -0.1),
            host(true, usual, -0.03),
            host(true, small, -0.09),
            host(true, Bytes::kib(4), -0.11),
            host(false, large, 0.03),
            host(false, small, -0.09),
        ];
        let sentence = SizeEffects::new(all).with_host(host).sentence().unwrap();
        assert_eq!(
            sentence,
            "Not as a global setting: where it gains most, faster from 64MiB on (2.5x), 10 % slower at 64KiB, \
             up to 30 % slower between others (64KiB); H2D 3 to 11 % slower; D2H 9 % slower at 64KiB, 3 % faster at 64MiB."
        );
    }
}
