//! A table of published values: one row a value, all cells as they are written.

use std::collections::BTreeMap;

/// Columns that a table must have.
const REQUIRED: [&str; 5] = ["system", "case", "metric", "value", "unit"];
/// Columns that it may have.
const OPTIONAL: [&str; 12] = [
    "statistic",
    "base",
    "clock",
    "engine",
    "use",
    "left_out",
    "tool",
    "what",
    "kind",
    "source",
    "figure",
    "note",
];
/// The most rows of one table.
const MAX_ROWS: usize = 100_000;

/// Why a table cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// It has no head, or one that lacks columns.
    #[error("no column '{0}'; expected {all}", all = columns())]
    NoColumn(String),
    /// A column is there twice, so that it is not known which counts.
    #[error("column '{0}' is there twice")]
    Twice(String),
    /// It is no CSV.
    #[error("line {line}: {why}")]
    Csv {
        /// Line of the file.
        line: u64,
        /// The error.
        why: String,
    },
    /// It has too many rows.
    #[error("more than {MAX_ROWS} rows")]
    TooLong,
}

fn columns() -> String {
    format!("{}; optional: {}; docs/understand/validate.md", REQUIRED.join(","), OPTIONAL.join(","))
}

/// One published value, its cells as they are written. An empty cell is an empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedRow {
    /// Line of the file.
    pub line: u64,
    /// The machine that the case names the parts of.
    pub system: String,
    /// Texts of cases or exchanges, joined by `; `, or the part of a node that a fact is about.
    pub case: String,
    /// A word of [`crate::PublishedMetric`].
    pub metric: String,
    /// A figure, a range, or a bound.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// Of several cases or sizes: `median`, `most`, `least`, `best from 256B`.
    pub statistic: String,
    /// Base of a ratio: cases, or `50 GB/s`.
    pub base: String,
    /// `host` where launch and return count; empty where events on the device do the timing.
    pub clock: String,
    /// Engine that moved the bytes, as a record names it; empty for any.
    pub engine: String,
    /// `score`, `held-out`, `report`, or empty for scores and reports.
    pub usage: String,
    /// Why the row has no case; empty if it has one.
    pub left_out: String,
    /// The program and interface, in the source's words.
    pub tool: String,
    /// Its name in the source.
    pub what: String,
    /// A word of [`crate::SourceKind`]; empty if it is not known.
    pub kind: String,
    /// The publication.
    pub source: String,
    /// Place in the source.
    pub figure: String,
    /// Remarks.
    pub note: String,
}

impl PublishedRow {
    /// The row in its source's words, `p2pBandwidthLatencyTest SDMA GCD0 > GCD1 160000000 B`; without
    /// them its case.
    pub fn label(&self) -> String {
        let join = |parts: [&str; 2]| {
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        };
        match join([&self.tool, &self.what]) {
            label if label.is_empty() => join([&self.case, &self.metric]),
            label => label,
        }
    }

    /// Source and figure.
    pub fn origin(&self) -> String {
        match (self.source.as_str(), self.figure.as_str()) {
            (source, "") => source.to_owned(),
            ("", figure) => figure.to_owned(),
            (source, figure) => format!("{source}, {figure}"),
        }
    }
}

/// Reads a table. Rows that are shorter than the head are filled with empty cells.
///
/// # Errors
/// It is no CSV, or lacks columns.
pub fn read(text: &str) -> Result<Vec<PublishedRow>, TableError> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .comment(Some(b'#'))
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let head = reader.headers().map_err(|e| broken(&e))?.clone();
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, name) in head.iter().enumerate() {
        let name = name.trim();
        let known = [&REQUIRED[..], &OPTIONAL];
        if known.iter().any(|names| names.contains(&name)) && at.insert(name, n).is_some() {
            return Err(TableError::Twice(name.to_owned()));
        }
    }
    let missing = REQUIRED.iter().find(|name| !at.contains_key(*name));
    if let Some(missing) = missing {
        return Err(TableError::NoColumn((*missing).to_owned()));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| broken(&e))?;
        if rows.len() == MAX_ROWS {
            return Err(TableError::TooLong);
        }
        let cell = |name: &str| {
            let cell = at.get(name).and_then(|&n| record.get(n));
            cell.unwrap_or_default().trim().to_owned()
        };
        rows.push(PublishedRow {
            line: record.position().map_or(0, csv::Position::line),
            system: cell("system"),
            case: cell("case"),
            metric: cell("metric"),
            value: cell("value"),
            unit: cell("unit"),
            statistic: cell("statistic"),
            base: cell("base"),
            clock: cell("clock"),
            engine: cell("engine"),
            usage: cell("use"),
            left_out: cell("left_out"),
            tool: cell("tool"),
            what: cell("what"),
            kind: cell("kind"),
            source: cell("source"),
            figure: cell("figure"),
            note: cell("note"),
        });
    }
    Ok(rows)
}

fn broken(error: &csv::Error) -> TableError {
    TableError::Csv {
        line: error.position().map_or(1, csv::Position::line),
        why: match error.kind() {
            csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
            _ => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "system,case,metric,value,unit";

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let rows =
            read(&format!("note,{HEAD}\nhm,node,gpu0 > gpu1,links,4,links\n")).expect("a table");
        assert_eq!((rows[0].note.as_str(), rows[0].value.as_str(), rows[0].line), ("hm", "4", 2));
        assert_eq!(rows[0].label(), "gpu0 > gpu1 links");
        let rows = read(&format!("{HEAD},what,tool\nnode,,,,,GCD0 > GCD1,STREAM copy\n"));
        assert_eq!(rows.expect("a table")[0].label(), "STREAM copy GCD0 > GCD1");
    }

    #[test]
    fn a_head_without_a_column_is_named() {
        let missing = |text: &str| read(text).unwrap_err();
        assert_eq!(missing("system,tool\na,b\n"), TableError::NoColumn("case".into()));
        assert_eq!(missing(""), TableError::NoColumn("system".into()));
        assert_eq!(missing(&format!("{HEAD},unit\n")), TableError::Twice("unit".into()));
    }

    #[test]
    fn a_short_row_has_empty_cells() {
        let rows = read(&format!("{HEAD}\nnode,a case\n")).unwrap();
        assert_eq!((rows[0].case.as_str(), rows[0].value.as_str()), ("a case", ""));
    }
}
