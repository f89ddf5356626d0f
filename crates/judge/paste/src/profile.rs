//! Summaries of profilers: `rocprof --stats` (CSV) and nvprof (`src/` of neither prints rates; times and shares
//! are all they have).

use crate::clean::{PasteLine, rows_of};
use crate::document::{ProfileRow, ProfileTable};
use crate::number::{micros, number};

/// Rows that are kept.
const MAX_ROWS: usize = 4096;

/// A summary that begins here.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(ProfileTable, usize)> {
    let header = lines.get(at)?.text.trim();
    let plain = header.trim_start_matches("Type").trim_start();
    let is_nvprof =
        plain.starts_with("Time(%)") && plain.contains("Calls") && plain.ends_with("Name");
    let (tool, (rows, next)) = match () {
        () if header.replace('"', "").starts_with("Name,Calls,TotalDurationNs") => {
            ("rocprof", rows_of(lines, at + 1, MAX_ROWS, rocprof))
        }
        () if is_nvprof => ("nvprof", rows_of(lines, at + 1, MAX_ROWS, nvprof)),
        () => columns(lines, at, &cells(header))?,
    };
    (!rows.is_empty()).then_some((ProfileTable { tool, rows }, next))
}

/// A row below `"Name","Calls","TotalDurationNs","AverageNs","Percentage"`. Names have commas.
fn rocprof(text: &str) -> Option<Option<ProfileRow>> {
    let mut parts = text.rsplitn(5, ',').map(|part| part.trim_matches(['"', ' ']));
    let (share, _, total) = (number(parts.next()?)?, parts.next()?, number(parts.next()?)?);
    let (calls, name) = (number(parts.next()?)? as u64, parts.next()?.to_owned());
    Some(Some(ProfileRow { name, calls, total_us: total / 1e3, share: share / 100.0 }))
}

/// A row below `Type  Time(%)  Time  Calls  Avg  Min  Max  Name`: `GPU activities:  45.2%  1.2345s  100 ...`.
fn nvprof(text: &str) -> Option<Option<ProfileRow>> {
    let of_kind = text.split_once("activities:").or(text.split_once("API calls:"));
    let mut words = of_kind.map_or(text, |(_, text)| text).split_whitespace();
    let share = number(words.next()?.strip_suffix('%')?)?;
    let (total_us, calls) = (micros(words.next()?)?, words.next()?.parse().ok()?);
    let name = words.skip(3).collect::<Vec<_>>().join(" ");
    Some(Some(ProfileRow { name, calls, total_us, share: share / 100.0 }))
}

fn cells(text: &str) -> Vec<&str> {
    text.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Tables whose columns have names: PyTorch's profiler and `nsys stats`. Times carry their unit, or their column does.
fn columns(
    lines: &[PasteLine],
    at: usize,
    names: &[&str],
) -> Option<(&'static str, (Vec<ProfileRow>, usize))> {
    let column = |known: &[&str]| known.iter().find_map(|k| names.iter().position(|n| n == k));
    let name = column(&["Name", "Operation"])?;
    let calls = column(&["# of Calls", "Instances", "Num Calls", "Count"])?;
    let time = column(&["Self CUDA", "Total Time (ns)", "Total Time", "Self CPU"])?;
    let share = column(&["Self CUDA %", "Time (%)", "Time(%)", "Self CPU %"])?;
    let tool = if names.get(calls)?.starts_with('#') { "PyTorch profiler" } else { "nsys stats" };
    let row = |text: &str| {
        if text.starts_with("---") {
            return Some(None);
        }
        let row = Some(cells(text)).filter(|row| row.len() == names.len())?;
        let value = |at: usize| number(row.get(at)?);
        let total = row.get(time)?;
        let ns = || Some(number(&total.replace(',', ""))? / 1e3);
        let (total_us, share) = (micros(total).or_else(ns)?, value(share)? / 100.0);
        let name = (*row.get(name)?).to_owned();
        Some(Some(ProfileRow { name, calls: value(calls)? as u64, total_us, share }))
    };
    Some((tool, rows_of(lines, at + 1, MAX_ROWS, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn summaries_are_read() {
        let text = "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n\
                    \"void copy<int, 4>(int*, int*)\",200,9000000,45000,75.0\nfill,10,3000000,300000,25\n\nx\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((table.rows.len(), table.rows[0].calls, next), (2, 200, 3));
        assert_eq!((table.rows[0].total_us, table.rows[0].share), (9000.0, 0.75));
        let text = " Type  Time(%)  Time  Calls  Avg  Min  Max  Name\n GPU activities:  60.00%  1.5s  3  500ms  \
                    400ms  600ms  [CUDA memcpy HtoD]\n  40.00%  1.0s  9  1ms  1ms  1ms  kernel(int)\n";
        let (table, _) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (table.rows[0].name.as_str(), table.rows[0].total_us),
            ("[CUDA memcpy HtoD]", 1.5e6)
        );
        assert_eq!(table.rows[1].calls, 9);
        let text = "  Name    Self CUDA   Self CUDA %    CUDA total  # of Calls\n-----  -----  ----\n\
                    Memcpy HtoD (Pageable -> Device)   812.1ms   24.70%   812.1ms   200\n-----  ----\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let row = &table.rows[0];
        assert_eq!((row.calls, row.total_us, row.share, next), (200, 812_100.0, 0.247, 3));
    }
}
