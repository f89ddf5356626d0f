//! Parsers for short texts of Linux and of topology files: numbers, masks, addresses, tables.

use pathline_schema::{CpuSet, PciAddress};

/// Maximum CPU number, exclusive; Linux supports at most 8192 CPUs.
pub(crate) const MAX_CPUS: u32 = 8192;

/// A decimal number, or a hexadecimal one with `0x`.
pub(crate) fn int(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A CPU list such as `0-7,16`. `None` if a number is not below [`MAX_CPUS`].
pub(crate) fn cpu_list(text: &str) -> Option<CpuSet> {
    let highest = text
        .split([',', '-'])
        .filter_map(|part| part.trim().parse::<u32>().ok())
        .max()
        .unwrap_or(0);
    // Bounds are checked first, since parsing expands ranges; the text bounds the number of parts.
    if highest >= MAX_CPUS || text.matches(',').count() > MAX_CPUS as usize {
        return None;
    }
    text.parse().ok()
}

/// A CPU mask: 32-bit hexadecimal words joined by commas, the most significant first, with or
/// without `0x` (Linux `cpumap`, NCCL `affinity`, hwloc `cpuset`).
pub(crate) fn cpu_mask(text: &str) -> Option<CpuSet> {
    let words: Vec<&str> = text.trim().split(',').collect();
    if words.len() > (MAX_CPUS / 32) as usize {
        return None;
    }
    let mut cpus = Vec::new();
    for (base, word) in (0..).step_by(32).zip(words.iter().rev()) {
        let word = word.trim();
        let digits = word.strip_prefix("0x").unwrap_or(word);
        // hwloc leaves out words that are zero: `0x000000ff,,0x000000ff`.
        let bits = if digits.is_empty() && words.len() > 1 {
            0
        } else {
            u32::from_str_radix(digits, 16).ok()?
        };
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
    }
    Some(CpuSet::new(cpus))
}

/// The mask of a set in NCCL's format: 32-bit words of eight digits, at least one.
pub(crate) fn mask_text(cpus: &CpuSet) -> String {
    let words = cpus.as_slice().last().map_or(1, |last| last / 32 + 1);
    let word = |w: u32| {
        (0..32).filter(|bit| cpus.contains(w * 32 + bit)).fold(0u32, |all, bit| all | 1 << bit)
    };
    (0..words).rev().map(|w| format!("{:08x}", word(w))).collect::<Vec<_>>().join(",")
}

/// A size such as `32K`, `1024 kB`, `36M`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "K" | "k" | "kB" | "KB" | "KiB" => 1 << 10,
        "M" | "MB" | "MiB" => 1 << 20,
        "G" | "GB" | "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The number at the start of a text such as `16.0 GT/s PCIe` or `200 Gb/sec (4X HDR)`; finite and
/// not negative.
pub(crate) fn leading_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.get(..end)?.parse::<f64>().ok().filter(|v| v.is_finite())
}

/// A PCI address; `None` for any other text, also for none.
pub(crate) fn pci_address(text: &str) -> Option<PciAddress> {
    text.parse().ok().filter(|address: &PciAddress| !address.is_empty())
}

/// The value of a key in lines `key value` or `key: value`, the format of the KFD and the kernel.
pub(crate) fn field<'a>(table: &'a str, key: &str) -> Option<&'a str> {
    table.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(key)?;
        let value = rest.trim_start_matches([' ', '\t']);
        let value = value.strip_prefix(':').unwrap_or(value);
        (rest.len() != value.len() || rest.is_empty()).then(|| value.trim())
    })
}

/// The value of a key as a number.
pub(crate) fn field_int(table: &str, key: &str) -> Option<u64> {
    int(field(table, key)?.split_whitespace().next()?)
}

/// Without escape sequences and control characters; kinds of blanks become blanks.
pub fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next_if_eq(&'[').is_some() {
                    // CSI: parameters, then a final byte from @ to ~.
                    while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
                    chars.next();
                }
            }
            '\t' => plain.push_str("    "),
            '\u{a0}' | '\u{2007}' | '\u{2009}' | '\u{202f}' | '\u{3000}' => plain.push(' '),
            '\u{200b}' | '\u{feff}' => {}
            '\u{2212}' => plain.push('-'),
            // Lines between columns, and rules.
            '\u{2502}' | '\u{2503}' | '\u{2551}' => plain.push(' '),
            '\u{2500}'..='\u{256c}' => plain.push('-'),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_count_from_the_right() {
        // word 2 = ffffff00 holds CPUs 64+8 .. 64+31
        assert_eq!(cpu_mask("ffffff00,00000000,00000000").unwrap().to_string(), "72-95");
        // hwloc: 0x3 in word 1, nothing in word 0
        assert_eq!(cpu_mask("0x00000003,").unwrap().to_string(), "32-33");
        assert_eq!(cpu_mask("0x0").unwrap().to_string(), "");
        assert_eq!(cpu_mask("0xf...f"), None);
        assert_eq!(cpu_mask(""), None);
    }

    #[test]
    fn huge_ranges_are_refused_before_they_are_expanded() {
        assert_eq!(cpu_list("0-8192"), None);
        assert_eq!(cpu_list("0-8191").unwrap().len(), 8192);
        assert_eq!(cpu_mask(&vec!["ffffffff"; 257].join(",")), None);
    }

    #[test]
    fn fields_are_whole_words() {
        let table = "simd_per_cu 4\nsimd_count 440\nMemTotal:  12 kB\n";
        assert_eq!(field_int(table, "simd_count"), Some(440));
        assert_eq!(field(table, "simd"), None);
        assert_eq!(field(table, "MemTotal"), Some("12 kB"));
    }

    proptest! {
        #[test]
        fn mask_and_text_are_inverse(cpus in proptest::collection::vec(0..MAX_CPUS, 0..80)) {
            let set = CpuSet::new(cpus);
            prop_assert_eq!(cpu_mask(&mask_text(&set)), Some(set.clone()));
            prop_assert_eq!(cpu_list(&set.to_string()), Some(set));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = (cpu_mask(&text), cpu_list(&text), size(&text), leading_float(&text));
            let _ = (int(&text), pci_address(&text), field(&text, "a"), field_int(&text, "a"));
        }

        #[test]
        fn no_list_panics(text in "[0-9,x-]{0,40}") {
            let _ = (cpu_mask(&text), cpu_list(&text), size(&text));
        }
    }
}
