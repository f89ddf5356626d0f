//! What a setting does at each size, as one sentence for all commands.

use crate::units::Bytes;

/// A change of the rate by less than this share is none.
const LEAST_CHANGE: f64 = 0.01;

/// Gains of a setting by size: 0.5 is 50 % more in the same time, negative is slower.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SizeEffects(Vec<(Bytes, f64)>);

impl SizeEffects {
    /// Sizes at which settings are compared: one whose start is most of its time, a usual one, and one whose rate
    /// hardly depends on the size.
    pub const USUAL: [Bytes; 3] = [Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)];

    /// Of sizes in any order.
    pub fn new(effects: impl IntoIterator<Item = (Bytes, f64)>) -> Self {
        let mut all: Vec<(Bytes, f64)> = effects.into_iter().collect();
        all.sort_by_key(|(bytes, _)| *bytes);
        all.dedup_by_key(|(bytes, _)| *bytes);
        Self(all)
    }

    /// The greatest gain; 0 without one.
    pub fn best(&self) -> f64 {
        self.0.iter().map(|(_, gain)| *gain).fold(0.0, f64::max)
    }

    /// The same as a sentence with a full stop.
    pub fn sentence(&self) -> Option<String> {
        Some(format!("N{}.", self.text()?.strip_prefix('n')?))
    }

    /// `not as a global setting: faster from 1MiB on (1.5 to 3.1x), 22 % slower at 64KiB`. None unless it gains at some size and loses at
    /// another.
    pub fn text(&self) -> Option<String> {
        let of = |is: fn(f64) -> bool| -> Vec<(Bytes, f64)> {
            self.0.iter().copied().filter(|(_, gain)| is(*gain)).collect()
        };
        let faster = of(|gain| gain > LEAST_CHANGE);
        let slower = of(|gain| gain < -LEAST_CHANGE);
        let (first, last) = (faster.first()?.0, slower.last()?.0);
        let sizes = |of: &[(Bytes, f64)]| {
            let all: Vec<String> = of.iter().map(|(bytes, _)| bytes.rounded()).collect();
            format!("at {}", all.join(", "))
        };
        let is_above =
            last < first && (self.0.iter().all(|(b, g)| *b < first || *g > LEAST_CHANGE));
        let at = if is_above { format!("from {} on", first.rounded()) } else { sizes(&faster) };
        let losses: Vec<f64> = slower.iter().map(|(_, gain)| -gain * 100.0).collect();
        Some(format!(
            "not as a global setting: faster {at} ({}), {} % slower {}",
            factors(&faster),
            range(&losses, 0),
            sizes(&slower)
        ))
    }
}

/// `1.5 to 3.1x`; of gains below twice the rate `5 to 56 %`.
fn factors(of: &[(Bytes, f64)]) -> String {
    let gains: Vec<f64> = of.iter().map(|(_, gain)| *gain).collect();
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
        let text = SizeEffects::new(effects.iter().copied()).text()?;
        text.strip_prefix("not as a global setting: ").map(str::to_owned)
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
    }
}
