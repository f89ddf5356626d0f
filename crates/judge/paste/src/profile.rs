//! Summaries of profilers: `rocprof --stats` (CSV) and nvprof (`src/` of neither prints rates; times and shares
//! are all they have).

use crate::clean::PasteLine;
use crate::document::{ProfileRow, ProfileTable};
use crate::number::{micros, number};

/// Rows that are kept.
const MAX_ROWS: usize = 4096;

/// `"Name","Calls","TotalDurationNs","AverageNs","Percentage"` and its rows. Names have commas.
pub(crate) fn rocprof(lines: &[PasteLine], at: usize) -> Option<(ProfileTable, usize)> {
    let header = lines.get(at)?.text.replace('"', "");
    if !header.trim().starts_with("Name,Calls,TotalDurationNs") {
        return None;
    }
    let mut table = ProfileTable { tool: "rocprof", ..ProfileTable::default() };
    for line in lines.iter().skip(at + 1).take(MAX_ROWS) {
        let text = line.text.trim();
        let mut parts = text.rsplitn(5, ',').map(|part| part.trim_matches(['"', ' ']));
        let (share, _, total, calls) = (parts.next(), parts.next(), parts.next(), parts.next());
        let value = |part: Option<&str>| part.and_then(number);
        let (Some(share), Some(total), Some(calls), Some(name)) =
            (value(share), value(total), value(calls), parts.next())
        else {
            break;
        };
        let name = name.to_owned();
        table.rows.push(ProfileRow {
            name,
            calls: calls as u64,
            total_us: total / 1e3,
            share: share / 100.0,
        });
    }
    let next = at + 1 + table.rows.len();
    (!table.rows.is_empty()).then_some((table, next))
}

/// `Type  Time(%)  Time  Calls  Avg  Min  Max  Name` and its rows: `GPU activities:  45.2%  1.2345s  100 ...`.
pub(crate) fn nvprof(lines: &[PasteLine], at: usize) -> Option<(ProfileTable, usize)> {
    let header = lines.get(at)?.text.trim().trim_start_matches("Type").trim_start();
    if !(header.starts_with("Time(%)") && header.contains("Calls") && header.ends_with("Name")) {
        return None;
    }
    let mut table = ProfileTable { tool: "nvprof", ..ProfileTable::default() };
    for line in lines.iter().skip(at + 1).take(MAX_ROWS) {
        let text = line.text.trim();
        let text = text
            .split_once("activities:")
            .or(text.split_once("API calls:"))
            .map_or(text, |(_, t)| t);
        let mut words = text.split_whitespace();
        let share = words.next().and_then(|word| number(word.strip_suffix('%')?));
        let (time, calls) =
            (words.next().and_then(micros), words.next().and_then(|word| word.parse().ok()));
        let name = words.skip(3).collect::<Vec<_>>().join(" ");
        let (Some(share), Some(total_us), Some(calls)) = (share, time, calls) else { break };
        table.rows.push(ProfileRow { name, calls, total_us, share: share / 100.0 });
    }
    let next = at + 1 + table.rows.len();
    (!table.rows.is_empty()).then_some((table, next))
}

/// Tables whose columns have names: PyTorch's profiler and `nsys stats`. Times carry their unit, or their column does.
pub(crate) fn columns(lines: &[PasteLine], at: usize) -> Option<(ProfileTable, usize)> {
    let cells = |text: &str| -> Vec<String> {
        let parts = text.split("  ").map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let names = cells(&lines.get(at)?.text);
    let column = |known: &[&str]| known.iter().find_map(|k| names.iter().position(|n| n == k));
    let name = column(&["Name", "Operation"])?;
    let calls = column(&["# of Calls", "Instances", "Num Calls", "Count"])?;
    let time = column(&["Self CUDA", "Total Time (ns)", "Total Time", "Self CPU"])?;
    let share = column(&["Self CUDA %", "Time (%)", "Time(%)", "Self CPU %"])?;
    let tool = if names.get(calls)?.starts_with('#') { "PyTorch profiler" } else { "nsys stats" };
    let mut table = ProfileTable { tool, ..ProfileTable::default() };
    let mut next = at + 1;
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(MAX_ROWS) {
        let text = line.text.trim();
        if text.starts_with("---") && table.rows.is_empty() {
            continue;
        }
        let row = cells(text);
        let value = |at: usize| number(row.get(at)?);
        let total = row.get(time).and_then(|cell| {
            micros(cell).or_else(|| number(&cell.replace(',', "")).map(|ns| ns / 1e3))
        });
        let (Some(total_us), Some(share), Some(calls), true) =
            (total, value(share), value(calls), row.len() == names.len())
        else {
            break;
        };
        let name = row.get(name).cloned().unwrap_or_default();
        table.rows.push(ProfileRow { name, calls: calls as u64, total_us, share: share / 100.0 });
        next = index + 1;
    }
    (!table.rows.is_empty()).then_some((table, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn summaries_are_read() {
        let text = "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n\
                    \"void copy<int, 4>(int*, int*)\",200,9000000,45000,75.0\nfill,10,3000000,300000,25\n\nx\n";
        let (table, next) = rocprof(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((table.rows.len(), table.rows[0].calls, next), (2, 200, 3));
        assert_eq!((table.rows[0].total_us, table.rows[0].share), (9000.0, 0.75));
        let text = " Type  Time(%)  Time  Calls  Avg  Min  Max  Name\n GPU activities:  60.00%  1.5s  3  500ms  \
                    400ms  600ms  [CUDA memcpy HtoD]\n  40.00%  1.0s  9  1ms  1ms  1ms  kernel(int)\n";
        let (table, _) = nvprof(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (table.rows[0].name.as_str(), table.rows[0].total_us),
            ("[CUDA memcpy HtoD]", 1.5e6)
        );
        assert_eq!(table.rows[1].calls, 9);
        let text = "  Name    Self CUDA   Self CUDA %    CUDA total  # of Calls\n-----  -----  ----\n\
                    Memcpy HtoD (Pageable -> Device)   812.1ms   24.70%   812.1ms   200\n-----  ----\n";
        let (table, next) = columns(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let row = &table.rows[0];
        assert_eq!((row.calls, row.total_us, row.share, next), (200, 812_100.0, 0.247, 3));
    }
}
