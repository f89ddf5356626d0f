//! Sentences whose figures contradict each other: bytes over time is a thousand times the stated rate, or a
//! thousandth of it.

use pathline_paste::PasteContext;

use crate::answer::DraftAnswer;
use crate::node_facts::figure;
use crate::score::{AnswerClass, WorldEdit};

/// Lines that are looked at.
const MAX_LINES: usize = 256;

/// A quantity with its unit: bytes or seconds.
fn quantity(words: &[&str], units: &[(&str, f64)]) -> Option<f64> {
    words.iter().enumerate().find_map(|(at, word)| {
        let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
        let (digits, unit) = word.split_at(end);
        let value = digits.parse::<f64>().ok().filter(|value| *value > 0.0)?;
        let unit =
            if unit.is_empty() { words.get(at + 1).copied().unwrap_or_default() } else { unit };
        units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| value * scale)
    })
}

/// Bytes, time and rate of one line that differ by a factor of 1000.
pub(crate) fn contradiction(context: &PasteContext) -> Option<DraftAnswer> {
    const SIZES: [(&str, f64); 8] = [
        ("bytes", 1.0),
        ("byte", 1.0),
        ("b", 1.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("mib", 1048576.0),
        ("gb", 1e9),
        ("gib", 1073741824.0),
    ];
    const TIMES: [(&str, f64); 9] = [
        ("us", 1e-6),
        ("usec", 1e-6),
        ("usecs", 1e-6),
        ("µs", 1e-6),
        ("microseconds", 1e-6),
        ("ms", 1e-3),
        ("msec", 1e-3),
        ("milliseconds", 1e-3),
        ("ns", 1e-9),
    ];
    let is_split = |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | ';' | '~' | ':');
    for line in context.prose.lines().take(MAX_LINES) {
        let words: Vec<&str> = line
            .split(is_split)
            .map(|w| w.trim_end_matches('.'))
            .filter(|w| !w.is_empty())
            .collect();
        let (Some(bytes), Some(seconds)) = (quantity(&words, &SIZES), quantity(&words, &TIMES))
        else {
            continue;
        };
        let implied = bytes / seconds / 1e9;
        let stated = context.rates.iter().filter(|rate| {
            line.contains(&rate.text.replace(' ', "").to_lowercase())
                || line.contains(&rate.text.to_lowercase())
        });
        for rate in stated {
            let factor = implied / rate.gbs;
            if ![1e3, 1e-3].iter().any(|f| (0.8..1.25).contains(&(factor / f))) {
                continue;
            }
            let mut draft = DraftAnswer {
                meaning: format!("{} in a sentence with a size and a time", rate.text),
                limit: "none: the figures contradict each other".to_owned(),
                value: Some(rate.gbs),
                ..DraftAnswer::default()
            };
            draft.edits.push(
                WorldEdit::new("wrong-unit", AnswerClass::MeansSomethingElse, 1.0)
                    .says(format!(
                        "{bytes} B in {} us are {} GB/s, not {}: a unit is off by 1000 (ms for us, MB for GB)",
                        figure(seconds * 1e6), figure(implied), figure(rate.gbs)
                    ))
                    .decided_by("the unit of the time")
                    .certain(),
            );
            return Some(draft);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::read_paste;

    #[test]
    fn a_unit_that_is_off_is_found() {
        let draft = |text: &str| contradiction(&read_paste(text.as_bytes()).context);
        // 1e7 B / 1.6e-6 s = 6250 GB/s.
        let found =
            draft("allreduce of 10000000 bytes takes 1.6 usec, which gives 6 GB/sec").unwrap();
        assert_eq!(found.edits[0].id, "wrong-unit");
        assert!(draft("10000000 bytes take 1600 usec, which gives 6 GB/sec").is_none());
        assert!(draft("it takes 1.6 usec and gives 6 GB/sec").is_none());
    }
}
