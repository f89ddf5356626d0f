//! A table of published values: one row a value, all cells as they are written.

use std::collections::BTreeMap;

/// Columns that a table must have.
const REQUIRED: [&str; 10] = [
    "system",
    "tool",
    "interface",
    "src",
    "dst",
    "size_bytes",
    "direction",
    "metric",
    "value",
    "unit",
];
/// Columns that it may have.
const OPTIONAL: [&str; 5] = ["source", "figure", "peak", "peak_unit", "note"];
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
        /// What is wrong.
        why: String,
    },
    /// It has more rows than anybody publishes.
    #[error("more than {MAX_ROWS} rows")]
    TooLong,
}

fn columns() -> String {
    format!("{}; besides, if known: {}", REQUIRED.join(","), OPTIONAL.join(","))
}

/// One published value. An empty cell is an empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedRow {
    /// Line of the file.
    pub line: u64,
    /// The machine that it was measured on.
    pub system: String,
    /// Who published it.
    pub source: String,
    /// Where in the source.
    pub figure: String,
    /// The program that made it.
    pub tool: String,
    /// What moved the bytes.
    pub interface: String,
    /// From.
    pub src: String,
    /// To.
    pub dst: String,
    /// Bytes of one operation.
    pub size: String,
    /// How directions are counted.
    pub direction: String,
    /// What the value is a value of.
    pub metric: String,
    /// The value.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// The peak that the source names for it.
    pub peak: String,
    /// Unit of the peak.
    pub peak_unit: String,
    /// Remarks.
    pub note: String,
}

impl PublishedRow {
    /// What the row is about, for people: `p2pBandwidthLatencyTest SDMA GCD0 > GCD1 160000000 B`.
    pub fn label(&self) -> String {
        let mut parts = vec![self.tool.clone()];
        let word = |text: &str| !text.is_empty() && text != "-";
        parts.extend(Some(self.interface.clone()).filter(|t| word(t)));
        if word(&self.src) || word(&self.dst) {
            let end = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            parts.push(format!("{} > {}", end(&self.src), end(&self.dst)));
        }
        if word(&self.size) {
            parts.push(format!("{} B", self.size));
        }
        if !matches!(self.direction.as_str(), "" | "uni" | "coll") {
            parts.push(self.direction.clone());
        }
        if self.metric != "bandwidth" {
            parts.push(self.metric.clone());
        }
        parts.join(" ")
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
        if (REQUIRED.contains(&name) || OPTIONAL.contains(&name)) && at.insert(name, n).is_some() {
            return Err(TableError::Twice(name.to_owned()));
        }
    }
    if let Some(missing) = REQUIRED.iter().find(|name| !at.contains_key(*name)) {
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
            source: cell("source"),
            figure: cell("figure"),
            tool: cell("tool"),
            interface: cell("interface"),
            src: cell("src"),
            dst: cell("dst"),
            size: cell("size_bytes"),
            direction: cell("direction"),
            metric: cell("metric"),
            value: cell("value"),
            unit: cell("unit"),
            peak: cell("peak"),
            peak_unit: cell("peak_unit"),
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

    const HEAD: &str = "system,tool,interface,src,dst,size_bytes,direction,metric,value,unit";

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let text = format!(
            "note,{HEAD}\nhm,node,STREAM copy,kernel,GCD0,GCD1,8e9,uni,bandwidth,174,GB/s\n"
        );
        let rows = read(&text).unwrap();
        assert_eq!((rows[0].note.as_str(), rows[0].value.as_str(), rows[0].line), ("hm", "174", 2));
        assert_eq!(rows[0].label(), "STREAM copy kernel GCD0 > GCD1 8e9 B");
    }

    #[test]
    fn a_head_without_a_column_is_named() {
        let error = read("system,tool\na,b\n").unwrap_err();
        assert_eq!(error, TableError::NoColumn("interface".into()));
        assert_eq!(read("").unwrap_err(), TableError::NoColumn("system".into()));
        let twice = format!("{HEAD},unit\n");
        assert_eq!(read(&twice).unwrap_err(), TableError::Twice("unit".into()));
    }

    #[test]
    fn a_short_row_has_empty_cells() {
        let rows = read(&format!("{HEAD}\nnode,tool\n")).unwrap();
        assert_eq!((rows[0].tool.as_str(), rows[0].value.as_str()), ("tool", ""));
    }
}
