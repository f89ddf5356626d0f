//! elbencho's `--csvfile`, a line of values for each phase, and `--livecsv`, one for each interval.

use serde_json::{Map, Value};

use crate::clean::PasteLine;
use crate::document::FileIoResult;
use crate::file_io::elbencho_json;
use crate::number::number;

/// Columns that a header has in every version; the file has about fifty.
const NEEDED: [&str; 2] = ["operation", "MiB/s [last]"];
/// Rows that are read of a file, which grows by each run.
const MAX_ROWS: usize = 4096;

/// Times in ms with rates.
type Intervals = Vec<(u64, f64)>;

/// The phases of the rows after a header. A row with another number of values ends the table: a paste may be
/// cut in it, and its values could belong to other columns.
pub(crate) fn elbencho_csv(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let header = fields(lines.get(at)?.text.trim());
    let is_header =
        |values: &[String]| NEEDED.iter().all(|name| values.iter().any(|column| column == name));
    if !is_header(&header) {
        return None;
    }
    let (mut rows, mut next) = (Vec::new(), at + 1);
    for line in lines.iter().skip(at + 1).take(MAX_ROWS) {
        let values = fields(line.text.trim());
        if values.len() != header.len() {
            break;
        }
        if is_header(&values) {
            // Files of several runs may have the names again, after rows. Other names begin a table of their
            // own, so that of many headers each is read once.
            if values == header && !rows.is_empty() {
                next += 1;
                continue;
            }
            break;
        }
        next += 1;
        let pairs = header.iter().cloned().zip(values.into_iter().map(Value::String));
        rows.push(Value::Object(pairs.collect::<Map<_, _>>()));
    }
    let found = elbencho_json(&Value::Array(rows));
    (!found.is_empty()).then_some((found, next))
}

/// `--livecsv`: a line each interval while a phase runs. Of each phase the median of the intervals with bytes;
/// of several ranks the lines of all together.
pub(crate) fn live_csv(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let header = fields(lines.get(at)?.text.trim());
    let column = |name: &str| header.iter().position(|column| column == name);
    let (phase, rate, rank) = (column("Phase")?, column("MiB/s")?, column("Rank")?);
    let time = column("RuntimeMS")?;
    let mut phases: Vec<(String, Intervals, Intervals)> = Vec::new();
    let mut next = at + 1;
    for line in lines.iter().skip(at + 1).take(MAX_ROWS) {
        let values = fields(line.text.trim());
        // Each header starts a new table, so every table is read once.
        if values == header || values.len() + 1 < header.len() || values.len() > header.len() + 1 {
            break;
        }
        next += 1;
        let value = |at: usize| values.get(at).map(String::as_str).unwrap_or_default();
        let Some(mib) = number(value(rate)).filter(|mib| *mib > 0.0) else { continue };
        if phases.last().is_none_or(|last| last.0 != value(phase)) {
            phases.push((value(phase).to_owned(), Vec::new(), Vec::new()));
        }
        let Some((_, all, each)) = phases.last_mut() else { continue };
        let kept = if value(rank).eq_ignore_ascii_case("total") { all } else { each };
        kept.push((value(time).parse().unwrap_or(0), mib * (1u64 << 20) as f64 / 1e9));
    }
    let result = |(operation, all, each): (String, Intervals, Intervals)| {
        let intervals = if all.is_empty() { each } else { all };
        let mut rates: Vec<f64> = intervals.iter().map(|interval| interval.1).collect();
        rates.sort_by(f64::total_cmp);
        let gbs = *rates.get(rates.len() / 2)?;
        Some(FileIoResult { intervals, ..FileIoResult::new("elbencho", operation, gbs) })
    };
    let found: Vec<FileIoResult> = phases.into_iter().filter_map(result).collect();
    (!found.is_empty()).then_some((found, next))
}

/// The values of a line; one in double quotes, as the command, may have commas.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut is_quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            letter => {
                if let Some(value) = all.last_mut() {
                    value.push(letter);
                }
            }
        }
    }
    all.iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    const HEADER: &str = "label,hosts,threads,files,file size,block size,direct IO,IO depth,operation,IOPS [first],\
         IOPS [last],MiB/s [first],MiB/s [last],IO lat us [avg],command";

    fn read(text: &str) -> Option<(Vec<FileIoResult>, usize)> {
        elbencho_csv(&clean_lines(text.as_bytes()).0, 0)
    }

    /// A header behind a header begins a table: of 2,000 in a row each was read to the end, 5 s in all.
    #[test]
    fn a_header_without_rows_is_no_table() {
        let row = "a,,8,1,1,1048576,1,4,READ,1,9048,1,9048,3223,x\n";
        let text = format!("{HEADER}\n{HEADER}\n{row}");
        assert!(read(&text).is_none());
        let lines = clean_lines(text.as_bytes()).0;
        let (found, next) = elbencho_csv(&lines, 1).expect("a table");
        assert_eq!((found.len(), next), (1, 3));
    }

    /// 9048 MiB/s are 9048 * 1048576 / 1e9 = 9.487 GB/s.
    #[test]
    fn phases_are_read_to_the_first_row_that_is_cut() {
        let row = |operation: &str, mib: u32| {
            format!(
                "a,,8,1,1073741824,1048576,1,4,{operation},1,{mib},1,{mib},3223,\"-t 8,-b 1m\"\n"
            )
        };
        let text = format!("{HEADER}\n{}{HEADER}\n{}", row("WRITE", 4000), row("READ", 9048));
        let (found, next) = read(&(text.clone() + "a,,8,1,107\n")).unwrap();
        assert_eq!((found.len(), next), (2, 4));
        let last = &found[1];
        assert_eq!((last.tool, last.operation.as_str()), ("elbencho", "READ"));
        assert!((last.gbs - 9.487).abs() < 0.001, "{}", last.gbs);
        assert_eq!((last.workers, last.depth, last.files), (Some(8), Some(4), Some(1)));
        assert_eq!((last.block, last.direct), (Some(1 << 20), Some(true)));
        assert_eq!((last.iops, last.latency_us), (Some(9048.0), Some(3223.0)));
    }

    /// Of 1000, 4000 and 4100 MiB/s the median is 4000: 4.194e9 B/s.
    #[test]
    fn intervals_give_the_median_of_a_phase() {
        let header = "ISO Date,Label,Phase,RuntimeMS,Rank,MixType,Done%,DoneBytes,MiB/s,IOPS,Entries,Entries/s,Active,CPU,Service,";
        let row =
            |mib: u32| format!("2026-01-01T00:00:00,,READ,500,Total,,5,1,{mib},1,0,0,8,5,,\n");
        let text = format!("{header}\n{}{}{}\nx", row(1000), row(4100), row(4000));
        let (found, next) = live_csv(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((found.len(), found[0].operation.as_str(), next), (1, "READ", 4));
        assert!((found[0].gbs - 4.1943).abs() < 1e-4);
    }

    #[test]
    fn a_header_alone_and_other_tables_are_no_results() {
        assert_eq!(read(&format!("{HEADER}\n")), None);
        assert_eq!(read(&format!("{HEADER}\nREAD,9048\n")), None);
        assert_eq!(read("operation,MiB/s\nREAD,9048\n"), None);
    }
}
