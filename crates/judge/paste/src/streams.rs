//! STREAM and BabelStream: rates of memory by kernel.

use crate::clean::{PasteLine, rows_of};
use crate::document::StreamTable;
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
    let row = |text: &str| {
        let mut words = text.split_whitespace();
        let (Some(name), Some(rate)) = (words.next(), words.next().and_then(number)) else {
            return Some(None);
        };
        let name = name.trim_end_matches(':');
        (KERNELS.contains(&name) && rate > 0.0).then(|| Some((name.to_owned(), rate * units)))
    };
    let (rows, next) = rows_of(lines, at + usize::from(header.is_some()), MAX_LINES, row);
    (!rows.is_empty()).then_some((StreamTable { tool, rows }, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

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
