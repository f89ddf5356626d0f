//! Bytes, nanoseconds and rates, each a type so that they cannot be confused.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// A number with `decimals` decimals: `?` for one that is infinite or NaN, and a zero without a sign.
pub fn decimal_text(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|b| matches!(b, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

/// Decimals for three figures.
fn figure_decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    }
}

/// A number of bytes. Its text is binary and exact: `4KiB`, `256MiB`, `1000B`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Bytes {
    /// `n` binary kilobytes (2^10 B).
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` binary megabytes (2^20 B).
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` binary gigabytes (2^30 B).
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The value as a float, for arithmetic with rates.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// For people: at most one decimal, `9.8GiB`. Not a canonical text.
    pub fn rounded(self) -> String {
        let (word, unit) =
            UNITS.iter().copied().find(|&(_, unit)| self.0 >= unit).unwrap_or(("B", 1));
        let value = self.0 as f64 / unit as f64;
        if value.fract() < 0.05 { format!("{value:.0}{word}") } else { format!("{value:.1}{word}") }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, unit) = UNITS
            .iter()
            .copied()
            .find(|&(_, unit)| self.0 >= unit && self.0.is_multiple_of(unit))
            .unwrap_or(("B", 1));
        f.pad(&format!("{}{word}", self.0 / unit))
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new("size", s, "a whole number and B, KiB, MiB, GiB, TiB, or kB, MB, GB")
        };
        let digits = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let number: u64 = s[..digits].parse().map_err(|_| bad())?;
        let unit: u64 = match &s[digits..] {
            "" | "B" => 1,
            "KiB" | "Ki" | "K" | "k" => 1 << 10,
            "MiB" | "Mi" | "M" => 1 << 20,
            "GiB" | "Gi" | "G" => 1 << 30,
            "TiB" | "Ti" | "T" => 1 << 40,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(bad()),
        };
        number.checked_mul(unit).map(Self).ok_or_else(bad)
    }
}

/// A duration or an instant in nanoseconds. Finite; a float so that device clocks with
/// sub-nanosecond averages fit.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ns(pub f64);

impl Ns {
    /// No time.
    pub const ZERO: Self = Self(0.0);
    /// From microseconds.
    pub const fn us(us: f64) -> Self {
        Self(us * 1e3)
    }
    /// From milliseconds.
    pub const fn ms(ms: f64) -> Self {
        Self(ms * 1e6)
    }
    /// From seconds.
    pub const fn secs(s: f64) -> Self {
        Self(s * 1e9)
    }
    /// In seconds.
    pub fn as_secs(self) -> f64 {
        self.0 / 1e9
    }
    /// The later, or longer, of two.
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl Add for Ns {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0 + o.0)
    }
}
impl Sub for Ns {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self(self.0 - o.0)
    }
}
impl Mul<f64> for Ns {
    type Output = Self;
    fn mul(self, k: f64) -> Self {
        Self(self.0 * k)
    }
}
impl Sum for Ns {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}
impl fmt::Display for Ns {
    /// Three figures and a fitting unit: `8.72 us`. For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            v if v >= 1e9 => (self.0 / 1e9, "s"),
            v if v >= 1e6 => (self.0 / 1e6, "ms"),
            v if v >= 1e3 => (self.0 / 1e3, "us"),
            _ => (self.0, "ns"),
        };
        f.pad(&format!("{} {unit}", decimal_text(value, figure_decimals(value))))
    }
}

/// A data rate in GB/s, where 1 GB = 1e9 B; the same number is bytes per nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

impl Rate {
    /// Bytes over a duration.
    pub fn of(bytes: Bytes, time: Ns) -> Self {
        Self(bytes.as_f64() / time.0)
    }
    /// In GB/s (1e9 B/s).
    pub fn gbs(self) -> f64 {
        self.0
    }
    /// How long `bytes` take at this rate.
    pub fn time(self, bytes: Bytes) -> Ns {
        Ns(bytes.as_f64() / self.0)
    }
    /// The smaller of two.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}
impl Mul<f64> for Rate {
    type Output = Self;
    fn mul(self, k: f64) -> Self {
        Self(self.0 * k)
    }
}
impl Div for Rate {
    type Output = f64;
    fn div(self, o: Self) -> f64 {
        self.0 / o.0
    }
}
impl Add for Rate {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0 + o.0)
    }
}
impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0.0), Add::add)
    }
}
impl fmt::Display for Rate {
    /// Three figures: `28.3 GB/s`. For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} GB/s", decimal_text(self.0, figure_decimals(self.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_shown_as_infinite_or_as_a_negative_zero() {
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(decimal_text(value, 2), "?");
            assert_eq!(Rate(value).to_string(), "? GB/s");
            assert!(Ns(value).to_string().starts_with("? "));
        }
        let shown = [-0.0, -0.004, -0.006, 0.0].map(|value| decimal_text(value, 2));
        assert_eq!(shown, ["0.00", "0.00", "-0.01", "0.00"]);
        assert_eq!([Ns(-0.0).to_string(), Rate(-0.0).to_string()], ["0.00 ns", "0.00 GB/s"]);
        // No bytes in no time.
        assert_eq!(Rate::of(Bytes(0), Ns(0.0)).to_string(), "? GB/s");
    }
}
