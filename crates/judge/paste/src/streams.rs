//! STREAM and BabelStream: rates of memory by kernel.

use crate::clean::PasteLine;
use crate::document::{LineSpan, PasteContent, PasteDocument, PasteReading, StreamTable};
use crate::number::{number, rate_unit};

/// Kernels as both print them.
const KERNELS: [&str; 7] = ["Copy", "Scale", "Mul", "Add", "Triad", "Dot", "Nstream"];
/// Lines of a table.
const MAX_LINES: usize = 16;

/// A table that begins here: `Function    Best Rate MB/s  Avg time`, `Function    MBytes/sec  Min (sec)`.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(StreamTable, usize)> {
    let text = lines.get(at)?.text.trim();
    let header = text.strip_prefix("Function");
    // Rows of STREAM that were picked out: `Triad:  75210.2  0.021  0.021  0.022`, in MB/s.
    let is_row = || {
        let (name, rest) = text.split_once(':')?;
        let is_row =
            KERNELS.contains(&name) && rest.split_whitespace().map_while(number).count() == 4;
        is_row.then_some(1e-3)
    };
    let units = match header {
        Some(header) => {
            header.split_whitespace().find_map(|word| rate_unit(&word.replace("Bytes/", "B/")))?
        }
        None => is_row()?,
    };
    let is_babel = header.is_some_and(|header| !header.contains("Best Rate"));
    let tool = if is_babel { "BabelStream" } else { "STREAM" };
    let mut table = StreamTable { tool, rows: Vec::new() };
    let mut last = at;
    let first = at + usize::from(header.is_some());
    for (index, line) in lines.iter().enumerate().skip(first).take(MAX_LINES) {
        let mut words = line.text.split_whitespace();
        let (Some(name), Some(rate)) = (words.next(), words.next().and_then(number)) else {
            continue;
        };
        let name = name.trim_end_matches(':');
        if !KERNELS.contains(&name) || rate <= 0.0 {
            break;
        }
        table.rows.push((name.to_owned(), rate * units));
        last = index;
    }
    (!table.rows.is_empty()).then_some((table, last + 1))
}

/// Names the memory of a GPU in a sentence.
const MEMORY: [&str; 6] = ["hbm", "memory", "triad", "stream", "vram", "copy kernel"];
/// Says that a rate is one of a data sheet, within this many bytes before it.
const RATED: [&str; 6] = ["sheet", "spec", "peak", "theoretic", "maximum of", "rated"];
const NEAR: usize = 40;
/// Says that a rate is one that somebody saw, anywhere before it in its line.
const MEASURED: [&str; 7] = ["measure", " get ", " got ", "gives", " see ", " saw ", "observe"];

/// Adds rates that a sentence states, where a paste has nothing else and names a GPU.
pub(crate) fn add_stated(reading: &mut PasteReading, lines: &[PasteLine]) {
    if reading.documents.is_empty() && !reading.context.gpus.is_empty() {
        let content = |(table, span)| PasteDocument { span, content: PasteContent::Streams(table) };
        reading.documents.extend(stated(lines).map(content));
    }
}

/// Rates in TB/s that a sentence states of memory: no link of a GPU reaches one. Those of data sheets are none.
fn stated(lines: &[PasteLine]) -> Option<(StreamTable, LineSpan)> {
    let mut table = StreamTable { tool: StreamTable::STATED, rows: Vec::new() };
    let mut span = None::<LineSpan>;
    let lower = |line: &PasteLine| line.text.to_lowercase();
    if !lines.iter().map(lower).any(|text| MEMORY.iter().any(|word| text.contains(word))) {
        return None;
    }
    for line in lines.iter().take(MAX_LINES) {
        let text = lower(line);
        for (at, _) in text.match_indices("tb/s") {
            let before = text.get(..at).unwrap_or_default().trim_end();
            let start = before.rfind(' ').map_or(0, |space| space + 1);
            let Some(rate) = before.get(start..).and_then(number) else { continue };
            let words: String = before.get(..start)?.chars().rev().take(NEAR).collect();
            let words: String = words.chars().rev().collect();
            let is_seen = MEASURED.iter().any(|word| before.contains(word));
            if rate <= 0.0 || !is_seen || RATED.iter().any(|word| words.contains(word)) {
                continue;
            }
            table.rows.push(("stated".to_owned(), rate * 1e3));
            let first = span.map_or(line.number, |span| span.first);
            span = Some(LineSpan { first, last: line.number });
        }
    }
    span.map(|span| (table, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn rates_of_a_sentence_are_those_that_no_data_sheet_has() {
        let rates = |text: &str| -> Vec<f64> {
            let found = stated(&clean_lines(text.as_bytes()).0);
            found.map_or(Vec::new(), |(table, _)| table.rows.iter().map(|row| row.1).collect())
        };
        let asked = "We measure 3.9 TB/s of HBM where the spec has 5.3 TB/s. Normal?";
        assert_eq!(rates(asked), [3900.0]);
        assert_eq!(rates("Triad gives 3.9 TB/s and a copy kernel 3.7 TB/s.\n"), [3900.0, 3700.0]);
        for none in [
            "a switch of 51.2 TB/s",
            "its peak memory rate is 8 TB/s",
            "memory at x TB/s",
            "It has 192 GB of HBM3 and 5.3 TB/s.",
        ] {
            assert!(rates(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn both_forms_are_read() {
        let bare = clean_lines(b"Triad:  75210.2  0.021  0.021  0.022").0;
        assert!((read(&bare, 0).unwrap().0.rows[0].1 - 75.2102).abs() < 1e-9);
        for (text, rate) in [
            (
                "Function    Best Rate MB/s  Avg time\nCopy:   158211.3  0.04 0.04 0.04\nTriad:  170115.4 0.05 0.05 0.05\n-----\n",
                158.2113,
            ),
            (
                "Function    MBytes/sec  Min (sec)   Max\nCopy   297715.310  0.00180 0.00256\nDot    311901.594  0.1 0.2\n",
                297.71531,
            ),
        ] {
            let (table, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
            assert_eq!((table.rows.len(), next), (2, 3));
            assert!((table.rows[0].1 - rate).abs() < 1e-9);
        }
    }
}
