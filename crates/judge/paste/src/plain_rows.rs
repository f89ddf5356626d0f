//! Rows and figures of tables without a dedicated type.

use crate::clean::PasteLine;

/// Lines between a title with the unit and the header below it, and between lines of a list.
pub(crate) const MAX_GAP: usize = 3;
/// Words of a title: more are a sentence.
pub(crate) const MAX_TITLE: usize = 12;

/// What the rows of a table stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainRows {
    /// Equal parts: hosts, GPUs, ports.
    Parts,
    /// Sizes, threads, repetitions.
    Series,
    /// Neither.
    Other,
}

/// A table whose tool no reader knows.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainTable {
    /// Its name, or `table`.
    pub tool: &'static str,
    /// The line that names it; empty if none.
    pub title: String,
    /// What names each row.
    pub labels: Vec<String>,
    /// Its figures.
    pub columns: Vec<PlainColumn>,
    /// What the rows stand for.
    pub rows: PlainRows,
    /// Whether columns are the ends that rows are, too: from the row's to the column's.
    pub is_matrix: bool,
    /// All rows together, GB/s, where they ran at once.
    pub total: Option<f64>,
}

impl PlainTable {
    /// Of neither parts nor series.
    pub(crate) fn new(
        tool: &'static str,
        title: impl Into<String>,
        labels: Vec<String>,
        columns: Vec<PlainColumn>,
    ) -> Self {
        let (title, rows) = (title.into(), PlainRows::Other);
        Self { tool, title, labels, columns, rows, is_matrix: false, total: None }
    }
    /// With the line above it as title, where that is a heading which says that figures sum both directions.
    pub(crate) fn under_heading(self, lines: &[PasteLine], at: usize) -> Self {
        let above = lines.get(..at).unwrap_or_default().iter().rev().map(|line| line.text.trim());
        let heading = above.take(MAX_GAP).find(|text| !text.is_empty()).unwrap_or_default();
        let is_heading = heading.split_whitespace().count() <= MAX_TITLE
            && heading.to_lowercase().replace('-', "").contains("bidirectional");
        match is_heading && self.title.is_empty() {
            true => Self { title: heading.trim_end_matches(':').to_owned(), ..self },
            false => self,
        }
    }
}

/// A column of figures.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainColumn {
    /// Its header.
    pub name: String,
    /// Whether they are GB/s rather than counts a second.
    pub is_rate: bool,
    /// Of each row.
    pub values: Vec<Option<f64>>,
}

impl PlainColumn {
    pub(crate) fn new(name: impl Into<String>, is_rate: bool, values: Vec<Option<f64>>) -> Self {
        Self { name: name.into(), is_rate, values }
    }
}
