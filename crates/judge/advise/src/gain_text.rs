//! Gains and shares as text.

use std::fmt;

use crate::proof::GainInterval;

/// `+12 % [+9, +15]` or `7.8x [7.6, 8.1]`; without the interval where it is narrower than the digits.
impl fmt::Display for GainInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, unit): (fn(f64) -> String, _) = match self.gain > 1.0 {
            true => (factor_digits, "x"),
            false => (percent, " %"),
        };
        let [gain, low, high] = [self.gain, self.low, self.high].map(digits);
        if low == gain && high == gain {
            write!(f, "{gain}{unit}")
        } else {
            write!(f, "{gain}{unit} [{low}, {high}]")
        }
    }
}

/// A gain: `+12 %`, and above twice the rate `7.8x`.
pub(crate) fn gain_text(gain: f64) -> String {
    if gain > 1.0 { format!("{}x", factor_digits(gain)) } else { format!("{} %", percent(gain)) }
}

/// The factor of a gain with two digits that count.
pub(crate) fn factor_digits(gain: f64) -> String {
    let factor = 1.0 + gain;
    let digits = usize::from(factor < 9.95);
    format!("{factor:.digits$}")
}

/// A share in percent with its sign: two digits that count, none below 0.1 %.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = usize::from(value.abs() < 9.95);
    let text = format!("{value:+.digits$}");
    // A zero has no sign.
    if text.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
        text.trim_start_matches(['+', '-']).to_owned()
    } else {
        text
    }
}

/// A share in percent without a sign: `1`, `0.5`.
pub(crate) fn share_text(share: f64) -> String {
    // Seven digits hide what a binary fraction adds to 0.01 * 100.
    let text = format!("{:.7}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_twice_the_rate_a_gain_is_a_factor() {
        let shown = [-0.22, 0.46, 1.0, 1.04, 6.8, 130.99].map(gain_text);
        assert_eq!(shown, ["-22 %", "+46 %", "+100 %", "2.0x", "7.8x", "132x"]);
        let gain = |gain, low, high| GainInterval { gain, low, high, blocks: 9 }.to_string();
        assert_eq!(gain(6.8, 6.6, 7.1), "7.8x [7.6, 8.1]");
        assert_eq!(gain(0.12, 0.09, 0.15), "+12 % [+9.0, +15]");
    }

    #[test]
    fn percentages_have_a_sign_and_two_digits() {
        let shown = [0.25, 0.0123, -0.0456, 0.0, -0.0001, 3.4].map(percent);
        assert_eq!(shown, ["+25", "+1.2", "-4.6", "0.0", "0.0", "+340"]);
    }
}
