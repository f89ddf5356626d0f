//! Numbers and sizes as tools and locales print them.

/// GB/s of a MiB/s.
pub(crate) const MIB_GBS: f64 = (1u64 << 20) as f64 / 1e9;
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

/// Prefixes of units in lower case, as GB.
const PREFIXES: [(&str, f64); 7] = [
    ("gi", 1.073_741_824),
    ("mi", 1.048_576e-3),
    ("ki", 1.024e-6),
    ("t", 1e3),
    ("g", 1.0),
    ("m", 1e-3),
    ("k", 1e-6),
];

/// The unit that a header, key or word names: GB/s of one and `true`, or 1 and `false` of counts a second. Where case
/// does not tell, `gbps` are bits and `gb_s` bytes.
pub(crate) fn rate_of_name(name: &str) -> Option<(f64, bool)> {
    let parts = |c: char| !c.is_alphanumeric() && c != '/';
    if let Some(scale) = name.split(parts).find_map(rate_unit) {
        return Some((scale, true));
    }
    let lower = name.to_lowercase().replace("per_second", "/s").replace("sec", "s");
    // Of two words of a sentence the second is no time of the first.
    lower.split_whitespace().find_map(|word| counted_or_lower(word, parts))
}

/// The unit of a word in lower case.
fn counted_or_lower(word: &str, parts: impl Fn(char) -> bool) -> Option<(f64, bool)> {
    let mut last = "";
    word.split(parts).filter(|word| !word.is_empty()).find_map(|word| {
        let before = std::mem::replace(&mut last, word);
        let joined = if matches!(word, "s" | "/s") { format!("{before}/s") } else { word.into() };
        let counted = joined.strip_suffix("/s").unwrap_or_default();
        if joined == "iops" || ["op", "ops", "msg", "messages", "files"].contains(&counted) {
            return Some((1.0, false));
        }
        let prefix =
            PREFIXES.iter().find_map(|(p, scale)| Some((joined.strip_prefix(*p)?, *scale)));
        let (base, scale) = prefix.unwrap_or((joined.as_str(), 1e-9));
        match base {
            "b/s" | "byte/s" | "bytes/s" => Some((scale, true)),
            "bps" | "bit/s" | "bits/s" => Some((scale / 8.0, true)),
            _ => None,
        }
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
    fn names_have_units() {
        for (name, unit) in [
            ("write_MBps", Some((1e-3, true))),
            ("busbw_gbps", Some((0.125, true))),
            ("bits_per_second", Some((0.125e-9, true))),
            ("BW average[Gb/sec]", Some((0.125, true))),
            ("Throughput (MiB/s)", Some((1.048_576e-3, true))),
            ("h2d_gb_s", Some((1.0, true))),
            ("SUMMARY rate (in ops/sec)", Some((1.0, false))),
            ("28.4 Gbits/sec", Some((0.125, true))),
            ("MBytes/sec", Some((1e-3, true))),
            ("IOPS", Some((1.0, false))),
            ("size (MB) s", None),
            ("size_mb", None),
            ("memory (MB)", None),
            ("steps", None),
            ("clocks", None),
            ("files", None),
        ] {
            assert_eq!(rate_of_name(name), unit, "{name}");
        }
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
