//! Rates in sentences, measured and expected, for pastes without output of a tool. Words give no cause.

use crate::clean::PasteLine;
use crate::document::{
    CollectiveRow, CollectiveTable, LineSpan, PasteContent, PasteDocument, PasteReading,
    StreamTable,
};
use crate::nccl_tests::operation;
use crate::number::size;
use crate::plain_rows::{PlainColumn, PlainTable};
use crate::plain_table::rates_of_line;
use crate::stated_rates::line_rate;

/// Lines that are read, and figures that a question has.
const MAX_LINES: usize = 1024;
const MAX_KEPT: usize = 8;
/// A rate within this share of the one before it is the same in another unit: `9.84 GB/s (about 80 Gbps)`.
const SAME: f64 = 0.03;
/// Words before a rate that say what a part can carry or what is expected, by their beginnings, and how many words
/// before it are looked at.
const CEILING: &str = "theoretic spec sheet rated advertis nominal";
const EXPECTED: &str = "should must expect suppose promise instead";
const NEAR: usize = 6;
/// Those of them that stand right behind a rate, too, where no other rate follows.
const BEHIND: &str = "theoretic expect nominal rated advertis";
/// Words of a clause that count both directions of a link, which one direction never reaches.
const BOTH_WAYS: [&str; 6] = [
    "bidirectional",
    "bi-directional",
    "both directions",
    "both ways",
    "duplex",
    "\u{53cc}\u{5411}",
];
/// Words right before a rate that compare it with the one before.
const COMPARED: [&str; 6] = ["of", "vs", "vs.", "versus", "than", "against"];

/// Beginnings of names of what is measured, by programs of the field, and lines of a text that is about one of them.
const MEASURED: &str = "busbw algbw all_reduce allreduce all_gather allgather reduce_scatter alltoall sendrecv osu_ \
                        ib_write_bw ib_read_bw ib_send_bw nvbandwidth h2d d2h d2d p2p";
const FEW_LINES: usize = 2;

/// What a sentence says of a rate; its column in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RateKind {
    Stated = 0,
    /// A part carries no more.
    Ceiling = 1,
    /// Somebody counts on it, which makes it no limit.
    Expected = 2,
}

/// A rate of a clause.
#[derive(Clone, Copy, PartialEq)]
struct SentenceRate {
    gbs: f64,
    kind: RateKind,
    /// Whether the words say that something is missing.
    is_less: bool,
}

/// A stated rate and the one that it is compared with, by kind.
type RateRow = [Option<f64>; 3];

/// Adds the rates of sentences where a paste has no output of a tool, and asks or says what should be.
pub(crate) fn add_sentences(reading: &mut PasteReading, lines: &[PasteLine]) {
    let is_output = |one: &PasteDocument| !matches!(one.content, PasteContent::Links(_));
    if reading.documents.iter().any(is_output) || !reading.context.failures.is_empty() {
        return;
    }
    if let Some((number, table)) = lines.iter().take(MAX_LINES).find_map(stated_collective) {
        let span = LineSpan { first: number, last: number };
        reading.unread.retain(|lines| (lines.first, lines.last) != (number, number));
        reading.documents.push(PasteDocument { span, content: PasteContent::Collective(table) });
        return;
    }
    let mut rows: Vec<(u32, RateRow)> = Vec::new();
    // Who pastes one measured figure asks about it.
    let mut is_asked = lines.iter().filter(|line| !line.text.trim().is_empty()).count()
        <= FEW_LINES
        && lines.iter().any(|line| names_measure(&line.text));
    for line in lines.iter().take(MAX_LINES) {
        let is_question = |word: &str| word.ends_with('?') && !word.contains("://");
        is_asked |= line.text.split_whitespace().any(is_question);
        for clause in line.text.split_inclusive(['.', ';', '?', '!']).fold(Vec::new(), join_numbers)
        {
            let rates = rates(&clause);
            is_asked |= rates.iter().any(|rate| rate.is_less);
            let found = rows_of(&rates).into_iter();
            let is_known = |row: &RateRow| rows.iter().any(|one| one.1 == *row);
            let found: Vec<_> = found.filter(|row| !is_known(row)).collect();
            rows.extend(found.into_iter().map(|row| (line.number, row)));
        }
        // So many figures are a document's.
        if rows.len() > MAX_KEPT {
            return;
        }
    }
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    if !is_asked {
        return;
    }
    let span = LineSpan { first: first.0, last: last.0 };
    let column = |kind: RateKind| rows.iter().map(|(_, row)| row[kind as usize]).collect();
    let columns = vec![
        PlainColumn::new("stated", true, column(RateKind::Stated)),
        PlainColumn::new("ceiling", true, column(RateKind::Ceiling)),
        PlainColumn::new("expected", true, column(RateKind::Expected)),
    ];
    let labels = rows.iter().map(|(line, _)| format!("line {line}")).collect();
    let table = PlainTable::new(StreamTable::STATED, "", labels, columns);
    reading.documents.push(PasteDocument { span, content: PasteContent::Plain(table) });
}

/// `all_reduce busbw 120 GB/s at 1 GiB, 8 ranks`: the row that nccl-tests would have printed.
fn stated_collective(line: &PasteLine) -> Option<(u32, CollectiveTable)> {
    const RANKS: [&str; 4] = ["rank", "gpu", "gcd", "process"];
    let lower = line.text.to_lowercase();
    let op = operation(&lower).filter(|_| lower.contains("busbw") || lower.contains("bus band"))?;
    let [only] = rates(&line.text)[..] else { return None };
    let words: Vec<&str> = lower.split([' ', ',', '(', ')']).filter(|w| !w.is_empty()).collect();
    let mut pairs = words.windows(2).filter_map(|two| Some((*two.first()?, *two.last()?)));
    let is_ranks = |word: &str| RANKS.iter().any(|name| word.starts_with(name));
    let ranks = pairs.clone().find_map(|(count, of)| count.parse().ok().filter(|_| is_ranks(of)));
    let ranks: u32 = ranks.filter(|ranks| (2..=1 << 20).contains(ranks))?;
    let bytes = pairs.find_map(|(count, unit)| {
        size(count).filter(|b| *b > 1 << 10).or_else(|| {
            size(&format!("{count}{unit}")).filter(|_| !unit.contains('/') && unit.contains('b'))
        })
    })?;
    let algbw = only.gbs / op.bus_factor(ranks as usize);
    let time_us = bytes as f64 / algbw / 1e3;
    let row = CollectiveRow { bytes, time_us, algbw, busbw: only.gbs, ..Default::default() };
    let table = CollectiveTable {
        op: Some(op),
        ranks: Some(ranks),
        rows: vec![row],
        profiler: Some(StreamTable::STATED),
        ..Default::default()
    };
    Some((line.number, table))
}

fn names_measure(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| MEASURED.split(' ').any(|name| word.starts_with(name)))
}

/// Joins what a point of a number or a short word parted: a clause ends before a blank.
fn join_numbers(mut clauses: Vec<String>, part: &str) -> Vec<String> {
    match clauses.last_mut() {
        Some(last) if !part.starts_with(' ') || last.ends_with("vs.") => last.push_str(part),
        _ => clauses.push(part.to_owned()),
    }
    clauses
}

/// The rates of a clause, those of ports and cards aside.
fn rates(clause: &str) -> Vec<SentenceRate> {
    const MARKS: [char; 9] = ['~', '(', '*', '`', '"', '<', '>', '=', '≈'];
    let words: Vec<&str> =
        clause.split_whitespace().map(|word| word.trim_start_matches(MARKS)).collect();
    let lower = |at: usize| words.get(at).map_or(String::new(), |word| word.to_lowercase());
    let starts = |at: usize, list: &str| list.split(' ').any(|name| lower(at).starts_with(name));
    let (mut found, mut after): (Vec<SentenceRate>, usize) = (Vec::new(), 0);
    let mut says_what_should_be = false;
    let line = words.join(" ");
    let is_both_ways = BOTH_WAYS.iter().any(|word| line.to_lowercase().contains(word));
    let all: Vec<_> = rates_of_line(&line).into_iter().filter(|rate| rate.is_rate).collect();
    for (nth, rate) in all.iter().enumerate() {
        let digits = words.get(rate.at).copied().unwrap_or_default();
        let is_glued = digits.contains(|c: char| c.is_alphabetic());
        let unit = if is_glued { "" } else { words.get(rate.at + 1).copied().unwrap_or_default() };
        let is_port = line_rate(&format!("{digits}{unit}").replace('/', "p")).is_some();
        let is_same = found.last().is_some_and(|last| (rate.value / last.gbs - 1.0).abs() < SAME);
        let end = rate.at + 1 + usize::from(!is_glued);
        let before = after.max(rate.at.saturating_sub(NEAR))..rate.at;
        // A comma ends what is said of a rate.
        let is_last = all.get(nth + 1).is_none_or(|next| next.at > end + 3)
            && !words.get(end - 1).is_some_and(|word| word.ends_with(','));
        let is_before = |list: &str| before.clone().any(|at| starts(at, list));
        let is_behind = is_last && starts(end, BEHIND);
        let is_expected = is_before(CEILING) || is_before(EXPECTED) || is_behind;
        let compared = COMPARED.iter().find(|word| rate.at > 0 && **word == lower(rate.at - 1));
        let compared = compared.filter(|_| !found.is_empty());
        let is_ceiling = is_before(CEILING)
            || is_behind && !starts(end, EXPECTED)
            || compared == Some(&"of") && !is_expected;
        let kind = match is_expected || compared.is_some() {
            true if is_ceiling && !is_both_ways => RateKind::Ceiling,
            true => RateKind::Expected,
            false => RateKind::Stated,
        };
        let is_less = before.clone().any(|at| lower(at) == "only");
        says_what_should_be |= is_expected;
        after = end;
        if !is_port && !is_same && rate.value > 0.0 {
            found.push(SentenceRate { gbs: rate.value, kind, is_less });
        }
    }
    if let [_, .., last] = &mut found[..] {
        last.is_less |= says_what_should_be;
    }
    found
}

/// Each stated rate with the one behind it that it is compared with, as far as there is one; also in the other order,
/// `expected 92, measured 70`.
fn rows_of(rates: &[SentenceRate]) -> Vec<RateRow> {
    let mut found: Vec<RateRow> = Vec::new();
    for rate in rates {
        let is_open = |row: &&mut RateRow| match rate.kind {
            RateKind::Stated => row[0].is_none(),
            _ => row[1].is_none() && row[2].is_none(),
        };
        match found.last_mut().filter(is_open) {
            Some(last) => last[rate.kind as usize] = Some(rate.gbs),
            None => {
                let mut row = RateRow::default();
                row[rate.kind as usize] = Some(rate.gbs);
                found.push(row);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use pathline_schema::Collective;

    use super::*;
    use crate::read::read_paste;

    fn found(text: &str) -> Vec<RateRow> {
        let reading = read_paste(text.as_bytes());
        let rows = reading.documents.into_iter().find_map(|one| match one.content {
            PasteContent::Plain(table) => Some(table.columns),
            _ => None,
        });
        let rows: Vec<PlainColumn> = rows.unwrap_or_default();
        let count = rows.first().map_or(0, |column| column.values.len());
        (0..count).map(|at| std::array::from_fn(|kind| rows[kind].values[at])).collect()
    }

    /// 120 / (2 x 7 / 8) = 68.57 GB/s; 1 GiB in 15.66 ms.
    #[test]
    fn a_collective_with_size_and_ranks_is_a_row() {
        let table = |text: &str| {
            let reading = read_paste(text.as_bytes());
            reading.documents.into_iter().find_map(|one| match one.content {
                PasteContent::Collective(table) => Some(table),
                _ => None,
            })
        };
        let texts = [
            "all_reduce busbw 120 GB/s at 1 GiB, 8 ranks",
            "8 GPUs: allreduce 1GiB, 120GB/s busbw",
        ];
        for text in texts {
            let table = table(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((table.op, table.ranks), (Some(Collective::AllReduce), Some(8)), "{text}");
            let row = table.rows[0];
            assert_eq!((row.bytes, row.busbw), (1 << 30, 120.0), "{text}");
            assert!((row.algbw - 68.57).abs() < 0.01 && (row.time_us - 15_659.0).abs() < 1.0);
        }
        for none in ["all_reduce 120 GB/s at 1 GiB, 8 ranks", "all_reduce busbw 120 GB/s, 8 ranks"]
        {
            assert!(table(none).is_none(), "{none}");
        }
    }

    #[test]
    fn rates_are_paired_with_what_should_be() {
        let row = |stated: f64, ceiling: f64, expected: f64| {
            let some = |gbs: f64| Some(gbs).filter(|gbs| *gbs > 0.0);
            vec![[some(stated), some(ceiling), some(expected)]]
        };
        // What somebody counts on is no limit.
        assert_eq!(found("Copies run at 31 GB/s instead of 52 GB/s."), row(31.0, 0.0, 52.0));
        assert_eq!(found("We expected 52 GB/s, and measured ~31GB/s."), row(31.0, 0.0, 52.0));
        assert_eq!(found("P2P gives 31.5 GB/s (vs 52 GB/s theoretical)"), row(31.5, 52.0, 0.0));
        assert_eq!(found("Why do I get 8 Gb/s of 2 GB/s?"), row(1.0, 2.0, 0.0));
        assert_eq!(found("Nominal is 52 GB/s, I get 31 GB/s. Why?"), row(31.0, 52.0, 0.0));
        // Both directions bound neither.
        let both = "Why 160 GB/s vs 400 GB/s theoretical bidirectional?";
        assert_eq!(found(both), row(160.0, 0.0, 400.0));
        // A comma ends what is said of a rate.
        assert_eq!(
            found("One drive gives 5 GB/s and 3 drives 15 GB/s, theoretically more?"),
            [row(5.0, 0.0, 0.0), row(15.0, 0.0, 0.0)].concat()
        );
        // The same in another unit, and a port.
        assert_eq!(
            found("Is 9.84 GB/s (about 79 Gbps) low for a 200 Gb/s card?"),
            row(9.84, 0.0, 0.0)
        );
        assert_eq!(found("I see 23000 MB/s here and 11 GB/s there. Why?").len(), 2);
        assert_eq!(found("It reads 5 GB/s; with two it is only 8 GB/s.").len(), 2);
        let measured = "all_reduce busbw 120 GB/s on 8 GPUs";
        assert_eq!(found(measured), row(120.0, 0.0, 0.0));
        // In a longer text it is one of many figures.
        assert!(found(&format!("{measured}\nfirst\nsecond")).is_empty());
        for none in ["It now does 31 GB/s vs. 20 GB/s before.", "A 200 Gb/s NIC?", "31 GB of RAM?"]
        {
            assert!(found(none).is_empty(), "{none}");
        }
    }
}
