//! Rows and figures of tables without a dedicated type.

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
