//! Reads a matrix of the bytes that ranks send each other: CSV or Matrix Market.

use crate::matrix_fields::{line_error, parse_bytes};
use crate::message_list::read_list;
use crate::nccl_sends::read_nccl;
use crate::nccl_trace::read_trace;
use crate::rank_traffic::{MAX_RANKS, RankMessage, RankTraffic, TrafficError};

/// Reads a matrix whose row is the sender and whose column is the receiver, in bytes.
///
/// Matrix Market files begin with `%%MatrixMarket matrix` (coordinate or array; real, integer or pattern;
/// general or symmetric). Source: NIST, Matrix Market exchange formats. Anything else is read as rows of
/// numbers, separated by commas, semicolons, tabs or blanks; a line that begins with `#` is left out, and so
/// are a first line and a first column of names. A table whose first line names columns `from`, `to` and
/// `bytes`, and files of Open MPI's monitoring, one after the other, have their messages added up. So have
/// the calls of `ncclSend` in logs and traces of NCCL.
///
/// # Errors
/// The first line that cannot be read, or a matrix that is not square.
pub fn read_matrix(text: &str) -> Result<RankTraffic, TrafficError> {
    if text.trim_start().starts_with("%%MatrixMarket") {
        return market(text);
    }
    let of_tool = read_list(text).or_else(|| read_nccl(text)).or_else(|| read_trace(text));
    of_tool.unwrap_or_else(|| rows(text))
}

fn rows(text: &str) -> Result<RankTraffic, TrafficError> {
    let mut messages = Vec::new();
    let mut width = None;
    let mut named_rows = false;
    let mut from = 0;
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let cut = |c: char| c == ',' || c == ';' || c.is_whitespace();
        let marked = line.contains([',', ';', '\t']);
        let mut cells: Vec<&str> = if marked {
            line.split([',', ';', '\t']).map(|cell| cell.trim().trim_matches('"')).collect()
        } else {
            line.split(cut).filter(|cell| !cell.is_empty()).collect()
        };
        // A trailing separator ends a row, it does not begin a cell.
        if marked && cells.last() == Some(&"") {
            cells.pop();
        }
        if width.is_none() && cells.iter().any(|cell| cell.parse::<f64>().is_err()) {
            let names = cells.iter().all(|cell| cell.parse::<f64>().is_err());
            if names && from == 0 && cells.len() > 1 {
                // A line of names; the cell above the names of rows is empty or a name.
                named_rows = cells.first().is_some_and(|cell| cell.is_empty());
                width = Some(cells.len() - usize::from(named_rows));
                continue;
            }
        }
        let first_is_name = cells.first().is_some_and(|cell| cell.parse::<f64>().is_err());
        if first_is_name || (named_rows && width.is_some_and(|width| cells.len() == width + 1)) {
            named_rows = true;
            cells.remove(0);
        }
        let expected = *width.get_or_insert(cells.len());
        // The line of names may have one for the column of names, too.
        if named_rows && from == 0 && cells.len() + 1 == expected {
            width = Some(cells.len());
        } else if cells.len() != expected {
            let why = format!("{} numbers; the rows before have {expected}", cells.len());
            return Err(line_error(nth + 1, &why));
        }
        if cells.len() > MAX_RANKS || from >= MAX_RANKS {
            return Err(line_error(nth + 1, &format!("more than {MAX_RANKS} ranks")));
        }
        for (to, cell) in cells.iter().enumerate() {
            messages.push(RankMessage { from, to, bytes: parse_bytes(cell, nth + 1)? });
        }
        from += 1;
    }
    let columns = width.unwrap_or(0);
    if from != columns || from == 0 {
        return Err(TrafficError(format!(
            "{from} rows and {columns} columns; expected a square matrix of bytes, row = sender"
        )));
    }
    RankTraffic::new(from, messages.into_iter().filter(|message| message.bytes > 0))
}

fn market(text: &str) -> Result<RankTraffic, TrafficError> {
    let mut lines = text.lines().enumerate().map(|(nth, line)| (nth + 1, line.trim()));
    let (_, head) = lines
        .find(|(_, line)| line.starts_with("%%MatrixMarket"))
        .ok_or_else(|| line_error(1, "no header"))?;
    let words: Vec<String> = head.split_whitespace().skip(1).map(str::to_lowercase).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (by_coordinate, field, symmetric) = match words.as_slice() {
        ["matrix", form @ ("coordinate" | "array"), field, symmetry] => {
            let symmetric = match *symmetry {
                "general" => false,
                "symmetric" => true,
                _ => return Err(line_error(1, "expected general or symmetric")),
            };
            (*form == "coordinate", *field, symmetric)
        }
        _ => {
            let expected = "expected `%%MatrixMarket matrix coordinate real general`";
            return Err(line_error(1, expected));
        }
    };
    if !["real", "integer", "double", "pattern"].contains(&field) {
        return Err(line_error(1, "expected real, integer or pattern"));
    }
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('%'));
    let (at, size) = lines.next().ok_or_else(|| line_error(1, "no line of sizes"))?;
    let sizes: Option<Vec<usize>> = size.split_whitespace().map(|n| n.parse().ok()).collect();
    let (ranks, entries) = match sizes.as_deref() {
        Some([rows, columns, entries]) if by_coordinate && rows == columns => (*rows, *entries),
        Some([rows, columns]) if !by_coordinate && rows == columns => (*rows, 0),
        _ => return Err(line_error(at, "expected the sizes of a square matrix")),
    };
    if ranks == 0 || ranks > MAX_RANKS {
        return Err(line_error(at, &format!("{ranks} ranks; expected 1 to {MAX_RANKS}")));
    }
    let mut messages: Vec<RankMessage> = Vec::new();
    let mut add = |from: usize, to: usize, bytes: u64| {
        messages.push(RankMessage { from, to, bytes });
        if symmetric && from != to {
            messages.push(RankMessage { from: to, to: from, bytes });
        }
        messages.len() <= 2 * MAX_RANKS * MAX_RANKS
    };
    // An array has its numbers column by column; of a symmetric one the lower triangle.
    let (mut row, mut column) = (0, 0);
    let mut found = 0;
    for (line, text) in lines {
        let words: Vec<&str> = text.split_whitespace().collect();
        let index = |word: &str| {
            let number: Option<usize> = word.parse().ok();
            let number = number.filter(|n| (1..=ranks).contains(n));
            let why = format!("'{word}' is no number from 1 to {ranks}");
            number.map(|n| n - 1).ok_or_else(|| line_error(line, &why))
        };
        let fits = match words.as_slice() {
            [from, to] if by_coordinate && field == "pattern" => add(index(from)?, index(to)?, 1),
            [from, to, bytes] if by_coordinate && field != "pattern" => {
                add(index(from)?, index(to)?, parse_bytes(bytes, line)?)
            }
            [bytes] if !by_coordinate && column < ranks => {
                let fits = add(row, column, parse_bytes(bytes, line)?);
                row += 1;
                if row == ranks {
                    column += 1;
                    row = if symmetric { column } else { 0 };
                }
                fits
            }
            _ => return Err(line_error(line, "not a line of this matrix")),
        };
        if !fits {
            return Err(line_error(line, "too many numbers"));
        }
        found += 1;
    }
    if by_coordinate && found != entries {
        return Err(line_error(
            at,
            &format!("{entries} entries are announced, and the file has {found}"),
        ));
    }
    if !by_coordinate && column < ranks {
        return Err(TrafficError(format!("the array ends in column {} of {ranks}", column + 1)));
    }
    RankTraffic::new(ranks, messages)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Messages of a text that must be readable: from, to, bytes.
    pub(crate) fn list(text: &str) -> Vec<(usize, usize, u64)> {
        let traffic = read_matrix(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        traffic.messages().iter().map(|m| (m.from, m.to, m.bytes)).collect()
    }

    #[test]
    fn one_matrix_in_many_forms() {
        let wanted = [(0, 1, 5), (1, 0, 7), (2, 0, 1)];
        for text in [
            "0,5,0\n7,0,0\n1,0,0\n",
            "# bytes\n0;5;0\n\n7;0;0\n1;0;0",
            "0 5 0\n7 0 0\n1 0 0\n",
            "0,5,0,\n7,0,0,\n1,0,0,\n",
            ",r0,r1,r2\nr0,0,5,0\nr1,7,0,0\nr2,1,0,0\n",
            "r0,r1,r2\n0,5,0\n7,0,0\n1,0,0\n",
            "rank,r0,r1,r2\nr0,0,5,0\nr1,7,0,0\nr2,1,0,0\n",
            "%%MatrixMarket matrix coordinate real general\n% c\n3 3 3\n1 2 5.0\n2 1 7\n3 1 1\n",
            "%%MatrixMarket matrix array integer general\n3 3\n0\n7\n1\n5\n0\n0\n0\n0\n0\n",
        ] {
            assert_eq!(list(text), wanted, "{text}");
        }
        let symmetric = "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n";
        assert_eq!(list(symmetric), [(0, 1, 1), (1, 0, 1)]);
    }

    #[test]
    fn what_is_no_matrix_is_refused_with_its_line() {
        for (text, reason) in [
            ("", "square"),
            ("0,1\n", "1 rows and 2 columns"),
            ("0,1\n1,0,3\n", "line 2: 3 numbers"),
            ("0,x\n1,0\n", "'x' is no number"),
            ("0,-1\n1,0\n", "out of range"),
            ("0,nan\n1,0\n", "out of range"),
            ("0,0\n0,0\n", "no rank sends"),
            ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n", "line 1"),
            ("%%MatrixMarket matrix coordinate real general\n2 3 1\n", "square"),
            ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n", "line 3"),
            ("%%MatrixMarket matrix array real general\n2 2\n1\n", "ends in column 1"),
            (
                "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 1\n",
                "2 entries are announced",
            ),
        ] {
            let error = read_matrix(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
