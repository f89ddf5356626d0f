//! Numbers and sizes as tools and locales print them.

/// A finite number: `12.5`, `12,5`, `1,234.5`, `1.2e+03`, `**12.5**`. A single comma is a decimal point: tools that
/// measure rates print no thousands separators, locales do print commas.
pub(crate) fn number(token: &str) -> Option<f64> {
    let token = token.trim_end_matches(['%', ';']).trim_matches('*');
    if !token.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.' || c == '+') {
        return None;
    }
    let commas = token.matches(',').count();
    let value: f64 = match commas {
        0 => token.parse().ok()?,
        1 if !token.contains('.') => token.replace(',', ".").parse().ok()?,
        _ => token.replace(',', "").parse().ok()?,
    };
    value.is_finite().then_some(value)
}

/// A whole number without sign.
pub(crate) fn whole(token: &str) -> Option<u64> {
    token.parse().ok()
}

/// Bytes of `8`, `64K`, `1M`, `4GiB`, `512 MiB`; units count by 1024, as benchmarks' options do.
pub fn size(token: &str) -> Option<u64> {
    let digits = token.find(|c: char| !c.is_ascii_digit()).unwrap_or(token.len());
    let (count, unit) = token.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// GB/s (1e9 B/s) of one of a unit: `GB/s`, `GiB/s`, `MB/sec`, `Gb/sec`. Case decides between bits and
/// bytes.
pub(crate) fn rate_unit(unit: &str) -> Option<f64> {
    let unit = unit.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let base = ["/sec", "/s", "/S", "ps", "PS"].iter().find_map(|end| unit.strip_suffix(end))?;
    Some(match base {
        "TB" | "TByte" => 1e3,
        "TiB" => (1u64 << 40) as f64 / 1e9,
        "GB" | "GByte" | "GBytes" | "gB" => 1.0,
        "GiB" | "gib" => (1u64 << 30) as f64 / 1e9,
        "MB" | "MByte" | "mB" => 1e-3,
        "MiB" | "mib" => (1u64 << 20) as f64 / 1e9,
        "KiB" | "kib" => 1024.0 / 1e9,
        "KB" | "kB" => 1e-6,
        "Tb" | "Tbit" => 125.0,
        "Gb" | "Gbit" | "gbit" | "gb" => 0.125,
        "Mb" | "Mbit" => 0.125e-3,
        _ => return None,
    })
}

/// us of `1.2345s`, `12.3ms`, `961ns`.
pub(crate) fn micros(word: &str) -> Option<f64> {
    let end = word.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match word.get(end..)? {
        "s" => 1e6,
        "ms" => 1e3,
        "us" => 1.0,
        "ns" => 1e-3,
        _ => return None,
    };
    Some(number(word.get(..end)?)? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_and_exponents_are_read() {
        let read: Vec<_> = ["12.5", "12,5", "1,234.5", "1.2e+03", "N/A", "nan", "inf", "-1", "99%"]
            .map(number)
            .into();
        let want = [
            Some(12.5),
            Some(12.5),
            Some(1234.5),
            Some(1200.0),
            None,
            None,
            None,
            Some(-1.0),
            Some(99.0),
        ];
        assert_eq!(read, want);
    }

    #[test]
    fn units_differ_by_case_and_base() {
        assert_eq!(rate_unit("GB/s"), Some(1.0));
        assert_eq!(rate_unit("GBps"), Some(1.0));
        assert_eq!(rate_unit("Gb/sec"), Some(0.125));
        assert_eq!(rate_unit("MiB/s,"), Some(1.048576e-3));
        assert_eq!(rate_unit("GHz"), None);
        assert_eq!(
            (size("64K"), size("1GiB"), size("x"), size("99999999999999T")),
            (Some(65536), Some(1 << 30), None, None)
        );
    }
}
