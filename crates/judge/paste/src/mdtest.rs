//! The summary of mdtest: operations on files and folders, a second.

use crate::clean::PasteLine;
use crate::number::number;
use crate::plain_rows::{PlainColumn, PlainTable};

/// Lines of a summary.
const MAX_LINES: usize = 32;

/// `SUMMARY rate: (of 3 iterations)`, then `File creation : MAX MIN MEAN STDDEV` for each operation; one that was not
/// run has 0.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    let title = lines.get(at)?.text.trim();
    if !title.starts_with("SUMMARY rate") {
        return None;
    }
    let (mut labels, mut values, mut next) = (Vec::new(), [Vec::new(), Vec::new()], at);
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(MAX_LINES) {
        let Some((name, rest)) = line.text.split_once(" :").or(line.text.split_once(": ")) else {
            if labels.is_empty() { continue } else { break }
        };
        let rates: Vec<f64> = rest.split_whitespace().map_while(number).collect();
        let &[_, least, mean, _] = rates.as_slice() else { break };
        next = index + 1;
        if mean > 0.0 {
            labels.push(name.trim().to_owned());
            values[0].push(Some(mean));
            values[1].push(Some(least));
        }
    }
    let [mean, least] = values;
    let columns =
        vec![PlainColumn::new("mean", false, mean), PlainColumn::new("least", false, least)];
    let table = PlainTable::new("mdtest", "operations of files and folders", labels, columns);
    (!table.labels.is_empty()).then_some((table, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn operations_that_were_run_are_read() {
        let text = "SUMMARY rate: (of 3 iterations)\n   Operation     Max   Min   Mean   Std Dev\n\
                    ---------   ---   ---  ----  -------\n   File creation     :   440.0   400.0   420.5   14.0\n\
                    File read :  0.000  0.000 0.000 0.000\nTree removal  :  97.0  84.9  91.0  4.9\n\n-- finished\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(table.labels, ["File creation", "Tree removal"]);
        assert_eq!((table.columns[0].values[0], next), (Some(420.5), 6));
        assert!(read(&clean_lines(b"SUMMARY rate:\nnothing\n").0, 0).is_none());
    }
}
