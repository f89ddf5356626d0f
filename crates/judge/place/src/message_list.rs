//! Reads lists of messages between ranks: what Open MPI's monitoring writes, and tables with a row for each
//! pair.

use crate::matrix_fields::{line_error, parse_bytes, parse_rank, sum_messages};
use crate::rank_traffic::{RankMessage, RankTraffic, TrafficError};

/// Beginnings of the names of the three columns of a table, in small letters.
const FROM: [&str; 6] = ["from", "src", "source", "sender", "rank", "origin"];
const TO: [&str; 7] = ["to", "dst", "dest", "destination", "receiver", "peer", "target"];
const BYTES: [&str; 4] = ["bytes", "size", "volume", "total_bytes"];

/// The messages of a list, or `None` if the text is none: its first line decides.
pub(crate) fn read_list(text: &str) -> Option<Result<RankTraffic, TrafficError>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next()?;
    if first.starts_with("# POINT TO POINT") || monitored(first).is_some() {
        return Some(monitoring(text));
    }
    let head: Vec<String> = cells(first).map(str::to_lowercase).collect();
    let column = |names: &[&str]| head.iter().position(|name| names.contains(&name.as_str()));
    let columns = [column(&FROM)?, column(&TO)?, column(&BYTES)?];
    Some(table(text, columns))
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split([',', ';', '\t']).map(|cell| cell.trim().trim_matches('"'))
}

fn table(text: &str, columns: [usize; 3]) -> Result<RankTraffic, TrafficError> {
    let mut messages = Vec::new();
    let lines = (1..).zip(text.lines());
    let rows = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')).skip(1);
    for (nth, line) in rows {
        let row: Vec<&str> = cells(line).collect();
        let [Some(from), Some(to), Some(bytes)] = columns.map(|column| row.get(column)) else {
            return Err(line_error(nth, "fewer columns than the first line"));
        };
        messages.push(RankMessage {
            from: parse_rank(from, nth)?,
            to: parse_rank(to, nth)?,
            bytes: parse_bytes(bytes, nth)?,
        });
    }
    sum_messages(messages)
}

/// Messages of `pml_monitoring` and its siblings: what a rank sent, also within the library's collectives (E,
/// I), and what it wrote to or read from others (S, R). A line C counts once more what collectives ask for.
/// Source: `common_monitoring.c` of Open MPI 5.
fn monitoring(text: &str) -> Result<RankTraffic, TrafficError> {
    let mut messages = Vec::new();
    for (nth, line) in (1..).zip(text.lines()) {
        let Some((kind, [own, other, bytes])) = monitored(line) else { continue };
        let (own, other, bytes) =
            (parse_rank(own, nth)?, parse_rank(other, nth)?, parse_bytes(bytes, nth)?);
        let (from, to) = if kind == "R" { (other, own) } else { (own, other) };
        if kind != "C" {
            messages.push(RankMessage { from, to, bytes });
        }
    }
    sum_messages(messages)
}

/// The kind of a line of Open MPI's monitoring, its rank, the other rank and bytes.
fn monitored(line: &str) -> Option<(&str, [&str; 3])> {
    let mut cells = line.split('\t');
    let kind = cells.next().filter(|kind| ["E", "I", "S", "R", "C"].contains(kind))?;
    let (own, other, bytes) = (cells.next()?, cells.next()?, cells.next()?);
    Some((kind, [own, other, bytes.strip_suffix(" bytes")?]))
}

#[cfg(test)]
mod tests {
    use crate::matrix_file::tests::list;
    use crate::read_matrix;

    /// Files of two ranks in a row: sent 108 + 4, within collectives 16, written 32, read 64 from rank 1. The
    /// 999 bytes of C are asked for by calls whose messages are those of I.
    #[test]
    fn files_of_open_mpi_are_added_up() {
        let text = "# POINT TO POINT\nE\t0\t1\t108 bytes\t27 msgs sent\t0,27,0\n\
                    I\t0\t2\t16 bytes\t1 msgs sent\t0,1\n# OSC\nS\t0\t1\t32 bytes\t1 msgs sent\n\
                    R\t0\t1\t64 bytes\t1 msgs sent\n# COLLECTIVES\nC\t0\t2\t999 bytes\t1 msgs sent\n\
                    D\tMPI COMMUNICATOR 0 DUP FROM 0\tprocs: 0,1,2\nO2A\t0 bytes\t0 msgs sent\n\
                    # POINT TO POINT\nE\t2\t0\t4 bytes\t1 msgs sent\t1,0\n";
        assert_eq!(list(text), [(0, 1, 140), (0, 2, 16), (1, 0, 64), (2, 0, 4)]);
    }

    #[test]
    fn tables_name_their_columns() {
        for text in [
            "from,to,bytes\n0,1,5\n1,0,7\n0,1,1\n",
            "rank;peer;calls;bytes\n# of a tool\n0;1;2;6\n1;0;1;7\n",
            "\"src\"\t\"dst\"\t\"bytes\"\n0\t1\t6\n1\t0\t7\n",
        ] {
            assert_eq!(list(text), [(0, 1, 6), (1, 0, 7)], "{text}");
        }
        for (text, reason) in [
            ("from,to,bytes\n0,1\n", "line 2: fewer columns"),
            ("from,to,bytes\n0,x,1\n", "line 2: 'x' is no rank"),
            ("from,to,bytes\n", "0 ranks"),
            ("from,to,bytes\n3,3,8\n", "no rank sends"),
            ("E\t0\t1\t-4 bytes\t1 msgs sent\n", "out of range"),
        ] {
            let error = read_matrix(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
