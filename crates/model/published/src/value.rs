//! Values, units and sizes in the cells of a table.

/// A published value: a figure, a range, or a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowValue {
    /// The least that agrees with it.
    pub low: f64,
    /// The most that agrees with it.
    pub high: f64,
}

impl RowValue {
    /// One figure.
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// The figure that is drawn: the middle, or the end that is known.
    pub fn middle(&self) -> f64 {
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => f64::midpoint(self.low, self.high),
            (true, false) => self.low,
            _ => self.high,
        }
    }

    /// The same in another unit.
    pub fn scaled(self, by: f64) -> Self {
        Self { low: self.low * by, high: self.high * by }
    }

    /// How far a prediction is from it, relative and signed: 0 inside, else to the nearer end.
    pub fn error(&self, predicted: f64) -> f64 {
        let end = if predicted < self.low {
            self.low
        } else if predicted > self.high {
            self.high
        } else {
            return if predicted.is_nan() { f64::INFINITY } else { 0.0 };
        };
        if end == 0.0 { f64::INFINITY } else { (predicted - end) / end.abs() }
    }

    /// Reads `37.6`, `0.43-0.44`, `10..15`, `2.85/1.9`, `<50`, `>=9`, `~17.4`. Of two figures the
    /// row holds for whatever lies between them.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        for (sign, below) in
            [("<=", true), (">=", false), ("<", true), (">", false), ("≤", true), ("≥", false)]
        {
            if let Some(rest) = text.strip_prefix(sign) {
                let end = number(rest)?;
                let (low, high) =
                    if below { (f64::NEG_INFINITY, end) } else { (end, f64::INFINITY) };
                return Some(Self { low, high });
            }
        }
        let text = text.trim_start_matches(['~', '≈']);
        if let Some(value) = number(text) {
            return Some(Self::exactly(value));
        }
        for between in ["..", "/", "–", "-"] {
            // A sign or an exponent has a minus, too: any place may be the one between two figures.
            let halves = text.match_indices(between).find_map(|(at, _)| {
                Some((number(&text[..at])?, number(&text[at + between.len()..])?))
            });
            if let Some((a, b)) = halves {
                return Some(Self { low: a.min(b), high: a.max(b) });
            }
        }
        None
    }
}

/// A finite figure.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let figures = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    text.parse::<f64>().ok().filter(|v| figures && v.is_finite())
}

/// The quantity of a unit. A row's metric must be of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitKind {
    /// Bytes over time; GB/s inside.
    Rate,
    /// Time; us inside.
    Time,
    /// A share or a ratio; 1 inside.
    Plain,
    /// Bytes of a memory; GiB inside. Capacities are binary by custom: 64 GB of HBM are 64 GiB.
    Capacity,
    /// Links, hops, a count.
    Count,
}

/// A unit: what it measures, and how many of the unit used inside it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowUnit {
    /// Its quantity.
    pub kind: UnitKind,
    /// Factor to the unit inside.
    pub factor: f64,
}

/// Every unit of the vocabulary.
pub const UNITS: &[(&str, RowUnit)] = &[
    ("GB/s", RowUnit { kind: UnitKind::Rate, factor: 1.0 }),
    ("GiB/s", RowUnit { kind: UnitKind::Rate, factor: 1.073_741_824 }),
    ("MB/s", RowUnit { kind: UnitKind::Rate, factor: 1e-3 }),
    ("MiB/s", RowUnit { kind: UnitKind::Rate, factor: 1.048_576e-3 }),
    ("TB/s", RowUnit { kind: UnitKind::Rate, factor: 1e3 }),
    ("Gb/s", RowUnit { kind: UnitKind::Rate, factor: 0.125 }),
    ("Gbit/s", RowUnit { kind: UnitKind::Rate, factor: 0.125 }),
    ("GBps", RowUnit { kind: UnitKind::Rate, factor: 1.0 }),
    ("Gbps", RowUnit { kind: UnitKind::Rate, factor: 0.125 }),
    ("Mb/s", RowUnit { kind: UnitKind::Rate, factor: 0.125e-3 }),
    ("ns", RowUnit { kind: UnitKind::Time, factor: 1e-3 }),
    ("us", RowUnit { kind: UnitKind::Time, factor: 1.0 }),
    ("usec", RowUnit { kind: UnitKind::Time, factor: 1.0 }),
    ("µs", RowUnit { kind: UnitKind::Time, factor: 1.0 }),
    ("ms", RowUnit { kind: UnitKind::Time, factor: 1e3 }),
    ("s", RowUnit { kind: UnitKind::Time, factor: 1e6 }),
    ("x", RowUnit { kind: UnitKind::Plain, factor: 1.0 }),
    ("ratio", RowUnit { kind: UnitKind::Plain, factor: 1.0 }),
    ("%", RowUnit { kind: UnitKind::Plain, factor: 0.01 }),
    ("GB", RowUnit { kind: UnitKind::Capacity, factor: 1.0 }),
    ("MB", RowUnit { kind: UnitKind::Capacity, factor: 1.0 / 1024.0 }),
    ("KB", RowUnit { kind: UnitKind::Capacity, factor: 1.0 / 1_048_576.0 }),
    ("links", RowUnit { kind: UnitKind::Count, factor: 1.0 }),
    ("hops", RowUnit { kind: UnitKind::Count, factor: 1.0 }),
    ("count", RowUnit { kind: UnitKind::Count, factor: 1.0 }),
];

/// A unit by its name.
pub(crate) fn unit(name: &str) -> Option<RowUnit> {
    UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit)
}

/// The sizes over which the best counts: the powers of two between `least` and `most`, and both.
pub(crate) fn sizes_between(least: u64, most: u64) -> Vec<u64> {
    let powers = (0..u64::BITS).map(|n| 1u64 << n).filter(|b| *b > least && *b < most);
    let mut sizes: Vec<u64> = [least].into_iter().chain(powers).collect();
    sizes.extend((most > least).then_some(most));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(f64, f64)> {
        RowValue::parse(text).map(|v| (v.low, v.high))
    }

    #[test]
    fn values_ranges_and_bounds() {
        let inf = f64::INFINITY;
        for (text, ends) in [
            ("37.6", (37.6, 37.6)),
            ("1e-3", (0.001, 0.001)),
            ("-2", (-2.0, -2.0)),
            ("0.43-0.44", (0.43, 0.44)),
            ("10-15", (10.0, 15.0)),
            ("14.0-14.1", (14.0, 14.1)),
            ("1e-3-2e-3", (0.001, 0.002)),
            ("10..15", (10.0, 15.0)),
            ("2.85/1.9", (1.9, 2.85)),
            ("<50", (-inf, 50.0)),
            (">=8.7", (8.7, inf)),
            ("~17.4", (17.4, 17.4)),
        ] {
            assert_eq!(read(text), Some(ends), "{text}");
        }
        for text in ["", "-", "fast", "inf", "nan", "1-2-3", "1/0/2", "<", "1e999"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_error_is_that_to_the_nearer_end() {
        let range = RowValue { low: 10.0, high: 15.0 };
        assert_eq!(
            [9.0, 10.0, 12.0, 15.0, 18.0].map(|p| range.error(p)),
            [-0.1, 0.0, 0.0, 0.0, 0.2]
        );
        let below = RowValue::parse("<50").unwrap();
        assert_eq!((below.error(49.0), below.error(55.0)), (0.0, 0.1));
        assert_eq!(RowValue::exactly(0.0).error(1.0), f64::INFINITY);
        assert_eq!(RowValue::exactly(1.0).error(f64::NAN), f64::INFINITY);
    }

    #[test]
    fn sizes_are_the_ends_and_the_powers_of_two_within() {
        assert_eq!(sizes_between(256, 1500), [256, 512, 1024, 1500]);
        assert_eq!(sizes_between(64, 64), [64]);
        assert_eq!(sizes_between(64, 8), [64]);
    }

    #[test]
    fn units_have_a_quantity() {
        // 1 GiB/s is 2^30 / 1e9 GB/s.
        assert_eq!(unit("GiB/s").map(|u| u.factor), Some((1u64 << 30) as f64 / 1e9));
        assert_eq!(unit("MiB/s").map(|u| u.factor), Some((1u64 << 20) as f64 / 1e9));
        assert_eq!(unit("furlongs"), None);
        assert_eq!(unit("gb/s"), None, "case distinguishes GB from Gb");
    }
}
