//! Rates in sentences, and whether a sentence states what was measured or what was expected.

use crate::document::{PasteContext, ProseRate, RateRole};
use crate::number::{number, rate_unit};

/// Rates that are kept.
const MAX_KEPT: usize = 256;
/// Characters before a rate, and after it, that say what it is.
const REACH: usize = 120;

/// Before a rate: what follows is a claim, a specification or a wish.
const EXPECTED_BEFORE: [&str; 40] = [
    "links of",
    "link of",
    "should",
    "must be",
    "claim",
    "capable of",
    "expect",
    "theoretic",
    "official",
    "spec",
    "advertis",
    "datasheet",
    "data sheet",
    "peak",
    "supposed",
    "up to",
    "maximum",
    "max ",
    "of nominal",
    "instead of",
    "rather than",
    "ideal",
    "rated",
    "limit",
    "line rate",
    "line-rate",
    "linerate",
    "far below",
    "close to",
    "far from",
    "can deliver",
    "able to deliver",
    "compared to",
    "compared with",
    "out of",
    "full ",
    "nominal",
    "according to",
    "white paper",
    "hoping for",
];

/// Before a rate: what follows was measured.
const MEASURED_BEFORE: [&str; 33] = [
    "maxed out",
    "maxes out",
    "levels off",
    "tops out",
    "plateau",
    "get ",
    "gets",
    "got",
    "getting",
    "measure",
    "show",
    "only",
    "reach",
    "gives",
    "giving",
    "gave",
    "report",
    "i see",
    "we see",
    "seeing",
    "saw",
    "observ",
    "achiev",
    "result",
    "actual",
    "busbw is",
    "busbw of",
    "algbw is",
    "bandwidth is",
    "speed is",
    "running at",
    "around",
    "obtain",
];

/// After a rate, in its clause.
const EXPECTED_AFTER: [&str; 16] = [
    "expected",
    "theoretic",
    "line rate",
    "is the spec",
    "limit",
    "nic",
    "network",
    "hdr",
    "ndr",
    "edr",
    "infiniband",
    "roce",
    "ethernet",
    "adapter",
    "peak",
    "maximum",
];

/// No memory, link or network has a PB/s, GB/s.
fn is_rate(gbs: f64) -> bool {
    gbs > 0.0 && gbs <= 1e6
}

/// A result line whose unit stands in a header above it: STREAM and BabelStream (MB/s, 1e6), ucx_perftest
/// (MB/s, 2^20).
fn benchmark_line(line: u32, text: &str) -> Option<ProseRate> {
    let (label, rest) = text.trim_start_matches(['|', ' ']).split_once([':', ' '])?;
    let values: Vec<f64> = rest.split_whitespace().map_while(number).take(16).collect();
    let (gbs, written, about) = match label {
        "Copy" | "Scale" | "Add" | "Triad" | "Mul" | "Dot" if values.len() >= 3 => {
            (values.first()? / 1e3, values.first()?, "memory bandwidth, stream triad")
        }
        "Final" if values.len() >= 7 => {
            (values.get(4)? * 1048576.0 / 1e9, values.get(4)?, "ucx_perftest, message bandwidth")
        }
        _ => return None,
    };
    is_rate(gbs).then(|| ProseRate {
        line,
        gbs,
        text: format!("{written} MB/s"),
        around: about.to_owned(),
        role: RateRole::Measured,
    })
}

/// Takes the rates of a line.
pub(crate) fn take(context: &mut PasteContext, line: u32, text: &str) {
    if context.rates.len() < MAX_KEPT
        && let Some(rate) = benchmark_line(line, text)
    {
        context.rates.push(rate);
        return;
    }
    // `nvidia-smi nvlink -s` lists rates of links, which nobody measured.
    let is_link = text
        .trim_start()
        .strip_prefix("Link ")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if is_link || !text.contains(['/', 's', 'S']) {
        return;
    }
    for (at, c) in text.char_indices() {
        let joins = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == ',';
        if !c.is_ascii_digit() || text.get(..at).is_some_and(|before| before.ends_with(joins)) {
            continue;
        }
        if context.rates.len() >= MAX_KEPT {
            return;
        }
        context.rates.extend(rate(line, text, at));
    }
    if let Some(rate) = shared_unit(context, line, text) {
        context.rates.push(rate);
    }
    if let Some(rate) = share_of_expected(context, line, text) {
        context.rates.push(rate);
    }
}

/// `250 instead of 390 GB/s`: a number that shares the unit of the next one.
fn shared_unit(context: &PasteContext, line: u32, text: &str) -> Option<ProseRate> {
    const JOINS: [&str; 5] = [" instead of ", " vs ", " vs. ", " rather than ", " out of "];
    let (at, join) = JOINS.iter().find_map(|join| Some((text.find(join)?, *join)))?;
    let before = text.get(..at)?;
    let from = before.rfind(|c: char| !(c.is_ascii_digit() || c == '.')).map_or(0, |at| at + 1);
    let is_alone = before.get(..from)?.ends_with([' ', '(', '~']) || from == 0;
    let value = number(before.get(from..)?).filter(|_| is_alone)?;
    let after = text.get(at + join.len()..)?.trim_start_matches(['~', ' ']).to_lowercase();
    let digits = after.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let other = number(after.get(..digits)?).filter(|other| *other > 0.0)?;
    let of_line = context.rates.iter().filter(|rate| rate.line == line);
    let next = of_line.into_iter().find(|rate| {
        let written = rate.text.split(' ').next().and_then(number);
        written.is_some_and(|written| (written - other).abs() < 1e-9)
    })?;
    let gbs = next.gbs / other * value;
    let unit = next.text.split(' ').nth(1).unwrap_or_default();
    let role =
        if join == " vs " || join == " vs. " { RateRole::Unstated } else { RateRole::Measured };
    is_rate(gbs).then(|| ProseRate {
        line,
        gbs,
        text: format!("{value} {unit}"),
        around: next.around.clone(),
        role,
    })
}

/// `about 25 % lower than 15.75 GB/s`, `60% of the 400 GB/s`: a measured rate as a share of the one that is
/// expected, where the line has no other.
fn share_of_expected(context: &PasteContext, line: u32, text: &str) -> Option<ProseRate> {
    let of_line = || context.rates.iter().filter(|rate| rate.line == line);
    if of_line().any(|rate| rate.role == RateRole::Measured) {
        return None;
    }
    let (at, _) =
        text.match_indices('%').next().or_else(|| text.match_indices(" percent").next())?;
    let before = text.get(..at)?.trim_end();
    let from = before.rfind(|c: char| !(c.is_ascii_digit() || c == '.')).map_or(0, |at| at + 1);
    // The character before may have several bytes.
    let percent = number(before.get(from..)?).filter(|percent| (1.0..100.0).contains(percent))?;
    let after = text.get(at..)?.trim_start_matches('%').trim_start();
    let after = after.strip_prefix("percent").unwrap_or(after).trim_start().to_lowercase();
    let lower = ["lower", "less", "below", "slower", "under", "short of", "smaller"];
    let share = if lower.iter().any(|word| after.starts_with(word)) {
        1.0 - percent / 100.0
    } else if after.starts_with("of ") {
        percent / 100.0
    } else {
        return None;
    };
    let expected = of_line().rfind(|rate| rate.role == RateRole::Expected)?;
    Some(ProseRate {
        line,
        gbs: expected.gbs * share,
        text: format!("{:.0} % of {}", share * 100.0, expected.text),
        around: expected.around.clone(),
        role: RateRole::Measured,
    })
}

/// A rate whose number begins at `at`.
fn rate(line: u32, text: &str, at: usize) -> Option<ProseRate> {
    let rest = text.get(at..)?;
    let end =
        rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(rest.len());
    let written = rest.get(..end)?.trim_end_matches(['.', ',']);
    let value = number(written)?;
    let blank = rest.get(end..)?.trim_start_matches([' ', '~']);
    let stop = blank.find(|c: char| !(c.is_ascii_alphabetic() || c == '/')).unwrap_or(blank.len());
    let unit = blank.get(..stop)?;
    let from = floor_char(text, at.saturating_sub(REACH));
    let to = floor_char(text, (at + REACH).min(text.len()));
    let around = text.get(from..to)?.to_lowercase();
    let scale = prose_unit(unit, &around)?;
    let gbs = value * scale;
    if !is_rate(gbs) {
        return None;
    }
    let before = text.get(from..at)?.to_lowercase();
    let after_at = text.len() - blank.len() + stop;
    let after = text.get(after_at..to.max(after_at)).unwrap_or_default().to_lowercase();
    let role = role(&before, &after, unit);
    Some(ProseRate { line, gbs, text: format!("{written} {unit}"), around, role })
}

/// GB/s of one of a unit in prose, which writes `GB/S`, `gb/s`, `GBS`.
fn prose_unit(unit: &str, around: &str) -> Option<f64> {
    // In lower case `gb/s` are bytes of memories and links, and bits of networks.
    let is_network = ["nic", "network", "ethernet", "infiniband", "roce", "ib_"];
    match unit {
        "GB/S" | "GBS" | "GBs" | "GBPS" | "Gb/S" | "Gbyte/s" | "GBytes/sec" => Some(1.0),
        "TB/S" => Some(1e3),
        "MBps" | "MBPS" | "MB/S" => Some(1e-3),
        "gb/s" | "gb/sec" if !is_network.iter().any(|word| around.contains(word)) => Some(1.0),
        "mb/s" | "mb/sec" => Some(1e-3),
        "gbps" | "Gbits/sec" | "Gbits/s" | "gbits/sec" | "GBit/s" | "Gbits" => Some(0.125),
        _ => rate_unit(unit),
    }
}

/// The marker nearest to a rate decides; a line rate is one in bits next to a word for networks.
fn role(before: &str, after: &str, unit: &str) -> RateRole {
    let clause = before.rsplit(". ").next().unwrap_or(before);
    let clause = clause.rsplit([';', '?', '!']).next().unwrap_or(clause);
    let last = |markers: &[&str]| markers.iter().filter_map(|word| clause.rfind(word)).max();
    let (expected, measured) = (last(&EXPECTED_BEFORE), last(&MEASURED_BEFORE));
    let follows = after.split([',', ';', '.', '(', '?', '!']).next().unwrap_or_default();
    let follows = follows.get(..floor_char(follows, 36)).unwrap_or(follows);
    // `13 GB/s instead of 26`: words that turn to the next rate say nothing of this one.
    let turns = ["instead", "but", "while", "compared", "out of", "with", "on", "from", "when"];
    let turn = turns.iter().filter_map(|word| follows.find(&format!(" {word} "))).min();
    let follows = follows.get(..turn.unwrap_or(follows.len())).unwrap_or(follows);
    let is_line = unit.ends_with("bps") || unit.contains("b/s") || unit.contains("bit");
    let says_after = |words: &[&str]| words.iter().any(|word| follows.contains(word));
    // `the theoretical bandwidth is 15.75 GB/s`: what follows a plain `is` is what stands before it.
    let is_plain = |at: usize| {
        let rest = clause.get(at..).unwrap_or_default();
        rest.starts_with("bandwidth is") || rest.starts_with("speed is")
    };
    let names = |expected: usize, measured: usize| {
        is_plain(measured) && clause.get(expected..measured).is_some_and(|text| !text.contains(','))
    };
    match (expected, measured) {
        (Some(expected), Some(measured)) if names(expected, measured) => RateRole::Expected,
        (Some(expected), Some(measured)) if expected < measured => RateRole::Measured,
        (Some(_), _) => RateRole::Expected,
        // The words for networks name a line only where it is in bits.
        (None, _) if is_line && says_after(&EXPECTED_AFTER) => RateRole::Expected,
        (None, Some(_)) => RateRole::Measured,
        (None, None) if says_after(&["busbw", "algbw", "measured", "achieved", "observed"]) => {
            RateRole::Measured
        }
        (None, None) if says_after(&["expected", "theoretic", "line rate", "peak", "limit"]) => {
            RateRole::Expected
        }
        (None, None) => RateRole::Unstated,
    }
}

fn floor_char(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while at > 0 && !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(text: &str) -> Vec<(f64, RateRole)> {
        let mut context = PasteContext::default();
        take(&mut context, 1, text);
        context.rates.iter().map(|rate| (rate.gbs, rate.role)).collect()
    }

    #[test]
    fn the_nearest_marker_decides() {
        use RateRole::{Expected, Measured, Unstated};
        for (text, want) in [
            ("spec says 112 GB/s but I measure 52 GB/s", [(112.0, Expected), (52.0, Measured)]),
            ("only gets 13 GB/s H2D instead of 26 GB/s", [(13.0, Measured), (26.0, Expected)]),
            // 100 / 8 = 12.5.
            ("a 100 Gb/s NIC, busbw of 11.5 GB/s", [(12.5, Expected), (11.5, Measured)]),
            (
                "theoretical bandwidth is 16 GB/s, we get 12 GB/s",
                [(16.0, Expected), (12.0, Measured)],
            ),
            ("70GB/s, but must be about 92 GB/s.", [(70.0, Unstated), (92.0, Expected)]),
            ("I got 45 MB/s on a drive rated 7000 MB/s", [(0.045, Measured), (7.0, Expected)]),
        ] {
            assert_eq!(roles(text), want, "{text}");
        }
    }

    #[test]
    fn a_number_shares_the_unit_of_the_next_one() {
        let found = roles("one node gives 250 instead of 390 GB/s");
        assert_eq!(found.iter().map(|rate| rate.0).collect::<Vec<_>>(), [390.0, 250.0]);
        assert!(roles("2 nodes instead of one, 390 GB/s").len() == 1);
    }

    #[test]
    fn shares_of_an_expected_rate_are_rates() {
        use RateRole::{Expected, Measured};
        // 15.754 x (1 - 0.25) = 11.8155; 0.6 x 400 = 240.
        let found = roles("the theoretical rate is 15.754GB/s, the result is about 25% lower");
        assert_eq!(found[0], (15.754, Expected));
        assert!((found[1].0 - 11.8155).abs() < 1e-9 && found[1].1 == Measured);
        assert_eq!(roles("60 percent of the expected 400 GB/s")[1], (240.0, Measured));
        assert_eq!(roles("a load of 60 %, and 400 GB/s expected").len(), 1);
    }

    #[test]
    fn result_lines_without_units_are_read() {
        // 69800 MB/s of 1e6 B; 6183 MB/s of 2^20 B are 6.48 GB/s.
        assert_eq!(roles("Triad:          69800.0     0.0312     0.0310     0.0315")[0].0, 69.8);
        let final_line =
            "Final:    1000000   0.000   1.234   1.234   6183.02   6183.02   810413   810413";
        assert!((roles(final_line)[0].0 - 6.483).abs() < 1e-2);
        assert!(roles("Copy the file 3 times").is_empty());
    }

    #[test]
    fn small_letters_are_bytes_of_links_and_bits_of_networks() {
        assert_eq!(roles("nvlink gives 25 gb/s")[0].0, 25.0);
        assert_eq!(roles("the nic has 100 gb/s")[0].0, 12.5);
        assert!(roles("25 µs and 7 GHz ü").is_empty());
    }
}
