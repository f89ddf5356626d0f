//! Numbers and rates as text.

/// Three significant digits, and no more zeros than a person would write.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The unit that a person would choose for a rate in GB/s, with its number in a GB/s.
pub(crate) fn rate_unit(gbs: f64) -> (f64, &'static str) {
    match gbs {
        v if v >= 0.0995 || v <= 0.0 => (1.0, "GB/s"),
        v if v >= 0.000_995 => (1e3, "MB/s"),
        _ => (1e6, "KB/s"),
    }
}

/// A rate in its unit: `6.91 GB/s`, `29.5 MB/s`, `583 KB/s`.
pub(crate) fn rate(gbs: f64) -> String {
    let (scale, unit) = rate_unit(gbs);
    format!("{} {unit}", figure(gbs * scale))
}
