//! iperf and iperf3: streams of TCP or UDP between two hosts.

use serde_json::Value;

use crate::clean::PasteLine;
use crate::number::{number, rate_of_name};
use crate::plain_rows::{PlainColumn, PlainTable};

/// Lines of an output, and one line that may stand between others.
const MAX_LINES: usize = 100_000;
const MAX_GAP: usize = 8;

/// Rows such as `[  5]   0.00-10.00  sec  33.0 GBytes  28.3 Gbits/sec    0   sender`: stream, interval, what was moved,
/// rate. The longest interval of each stream counts, at its receiver where that is printed.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    row(&lines.get(at)?.text)?;
    let (mut rows, mut next) = (Vec::new(), at + 1);
    let (mut repeated, mut longest_sender) = (Vec::new(), 0.0_f64);
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_LINES) {
        match row(&line.text) {
            Some(row) => {
                if let Some(count) = retransmits(&line.text) {
                    longest_sender = longest_sender.max(row.1);
                    repeated.push((row.0.clone(), row.1, row.1 * row.2 * 1e9, count));
                }
                rows.push(row);
                next = index + 1;
            }
            None if index > next + MAX_GAP || line.text.contains("iperf") => break,
            None => {}
        }
    }
    let longest = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    rows.retain(|row| row.1 > longest * 0.98);
    if rows.iter().any(|row| row.3) {
        rows.retain(|row| row.3);
    }
    // Intervals of one stream follow each other: their mean counts.
    let mut streams: Vec<(String, Vec<f64>)> = Vec::new();
    for (stream, _, gbs, _) in rows {
        match streams.iter_mut().find(|known| known.0 == stream) {
            Some(known) => known.1.push(gbs),
            None => streams.push((stream, vec![gbs])),
        }
    }
    let mean = |(name, all): (String, Vec<f64>)| {
        let sum: f64 = all.iter().sum();
        (name, sum / all.len() as f64)
    };
    let (sums, streams): (Vec<_>, Vec<_>) =
        streams.into_iter().map(mean).partition(|(name, _)| name == "SUM");
    let mut table = table(streams, sums.first().map(|sum| sum.1));
    repeated.retain(|row| row.1 > longest_sender * 0.98);
    if repeated.iter().any(|row| row.0 == "SUM") {
        repeated.retain(|row| row.0 == "SUM");
    }
    let (bytes, count): (f64, f64) =
        repeated.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.2, sum.1 + row.3));
    if count > 0.0 && bytes > 0.0 {
        let share = count * SEGMENT / bytes * 100.0;
        table.title += &format!(", {count} retransmits ({share:.2} % of segments of {SEGMENT} B)");
    }
    Some((table, next))
}

/// Bytes of data in a TCP segment at an MTU of 1,500: 20 B are of IP, 32 of TCP with time stamps (RFC 7323).
const SEGMENT: f64 = 1448.0;

/// The column `Retr` of a sender: of TCP alone, between rate and role.
fn retransmits(text: &str) -> Option<f64> {
    let mut words = text.trim().strip_suffix("sender")?.split_whitespace().rev();
    let count = number(words.next()?)?;
    words.next()?.ends_with("/sec").then_some(count)
}

/// Stream, seconds, GB/s, whether it is the receiver's.
fn row(text: &str) -> Option<(String, f64, f64, bool)> {
    let (stream, rest) = text.trim().strip_prefix('[')?.split_once(']')?;
    // Both directions at once: `[  5][TX-C]`.
    let rest = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(rest, |r| r.1);
    let words: Vec<&str> = rest.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "sec")?;
    // `0.00-10.00`, or `0.0- 9.9` of iperf 2.
    let span = words.get(..at)?.concat();
    let (from, to) = span.split_once('-')?;
    let seconds = number(to)? - number(from)?;
    let (value, unit) = (number(words.get(at + 3)?)?, words.get(at + 4)?);
    let (scale, _) = rate_of_name(unit)?;
    Some((stream.trim().to_owned(), seconds, value * scale, rest.ends_with("receiver")))
}

/// The object of `iperf3 -J`.
pub(crate) fn from_json(root: &Value) -> Option<PlainTable> {
    let end = root.get("end")?;
    let gbs = |one: &Value| Some(one.get("bits_per_second")?.as_f64()? / 8e9);
    let total = gbs(end.get("sum_received").or(end.get("sum"))?)?;
    let streams = end.get("streams").and_then(Value::as_array).into_iter().flatten();
    let stream = |(at, one): (usize, &Value)| {
        Some((format!("{at}"), gbs(one.get("receiver").or(one.get("udp"))?)?))
    };
    Some(table(streams.enumerate().filter_map(stream).collect(), Some(total)))
}

fn table(streams: Vec<(String, f64)>, total: Option<f64>) -> PlainTable {
    let (labels, values): (Vec<String>, Vec<Option<f64>>) =
        streams.into_iter().map(|(name, gbs)| (format!("stream {name}"), Some(gbs))).unzip();
    let sum = values.iter().flatten().sum();
    let title = match labels.len() {
        0 => "streams between two hosts".to_owned(),
        count => format!("{count} streams between two hosts"),
    };
    let columns = vec![PlainColumn::new("rate", true, values)];
    let table = PlainTable::new("iperf", title, labels, columns);
    PlainTable { total: total.or(Some(sum)), ..table }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn streams_are_summed_at_their_receiver() {
        let text = "[ ID] Interval Transfer Bitrate\n[  5]   0.00-1.00   sec  3 GBytes  26.0 Gbits/sec\n\
            [  5]   0.00-10.00  sec  33 GBytes  28.0 Gbits/sec  0  sender\n\
            [  5]   0.00-10.04  sec  33 GBytes  24.0 Gbits/sec     receiver\n\
            [  7]   0.00-10.04  sec  33 GBytes  8.0 Gbits/sec     receiver\n";
        let lines = clean_lines(text.as_bytes()).0;
        assert!(read(&lines, 0).is_none());
        let (table, next) = read(&lines, 1).unwrap();
        assert_eq!((table.labels.len(), table.total, next), (2, Some(4.0), 5));
        // 19,545,340 x 1448 B of 66.4 Gbit/s x 360 s: 28.30 of 2988 GB.
        let lossy = clean_lines(
            b"[SUM]  0.00-360.00 sec  2.72 TBytes  66.4 Gbits/sec  19545340  sender\n\
              [SUM]  0.00-360.00 sec  2.72 TBytes  66.4 Gbits/sec  receiver\n",
        );
        let title = read(&lossy.0, 0).unwrap().0.title;
        assert!(title.ends_with("19545340 retransmits (0.95 % of segments of 1448 B)"), "{title}");
        let old = clean_lines(b"[SUM]  0.0-30.0 sec    337 GBytes  96.0 Gbits/sec").0;
        assert_eq!(read(&old, 0).unwrap().0.total, Some(12.0));
        let seconds = "[  5]   0.00-1.00   sec  3 GBytes  16.0 Gbits/sec\n\
            [  5]   1.00-2.00   sec  3 GBytes  32.0 Gbits/sec\n";
        let (one, _) = read(&clean_lines(seconds.as_bytes()).0, 0).unwrap();
        assert_eq!((one.labels.len(), one.total), (1, Some(3.0)));
        let json = r#"{"end": {"streams": [{"receiver": {"bits_per_second": 8e9}}],
            "sum_received": {"bits_per_second": 8e9}}}"#;
        let table = from_json(&serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!((table.labels.len(), table.total), (1, Some(1.0)));
    }
}
