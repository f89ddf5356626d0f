//! Rows and figures of tables without a dedicated type, and what these stand for by the words that name them.

use std::collections::BTreeSet;

use crate::clean::PasteLine;
use crate::number::{rate_of_name, size};
use crate::products::find_product;

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

/// Words of headers and labels that name sizes, times, counts and spreads.
const OTHER: &str = "size sizes byte bytes len length count counts iter iters iterations time times sec seconds usec \
                     msec us ms ns s lat latency overhead msg msgs messages num rep reps threads ranks procs errors \
                     wrong cpu util load mem memory b kb mb gb kib mib gib id pid retr depth std stddev dev";
/// Words of rows that stand for all others.
const AGGREGATES: &str = "total sum aggregate average avg mean overall combined";

/// Whether a word of a name is one of a list.
fn has_word(name: &str, list: &str) -> bool {
    let lower = name.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    words.any(|word| !word.is_empty() && list.split_whitespace().any(|other| other == word))
}

/// Whether a row stands for all others.
pub(crate) fn has_aggregate(name: &str) -> bool {
    has_word(name, AGGREGATES)
}

/// Whether a header or label says that its figures are no rates.
pub(crate) fn is_other_quantity(name: &str) -> bool {
    rate_of_name(name).is_none() && (name.contains('%') || has_word(name, OTHER))
}

/// Words that name sizes, loads and repetitions, parts of a system, and what monitors count, by their beginnings.
const SERIES: &str = "size byte block depth thread msg iter time sec interval job qp batch run test step epoch trial \
                      pass round window stream kib mib count length";
const PARTS: &str = "gpu node host server client worker rank port device dev nic hca mlx adapter disk drive nvme ssd \
                     link socket numa osd ost target";
const MONITORED: &str = "rx tx rkb wkb rmb wmb tps util iface await pcirx pcitx rxpci txpci eta";

/// Rows of equal parts have one name with other numbers: a known word, a column's header, or numbers that follow each
/// other say that they are parts. What monitors print is a load, and says nothing of what a part can.
pub(crate) fn kind_of_rows(labels: &[String], names: &[&str]) -> PlainRows {
    let has = |text: &str, list: &str| {
        let lower = text.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
        words.any(|word| list.split_whitespace().any(|name| word.starts_with(name)))
    };
    let is_series = |label: &String| size(&label.replace(' ', "")).is_some() || has(label, SERIES);
    if names.iter().any(|name| has(name, MONITORED)) {
        return PlainRows::Other;
    }
    if labels.iter().all(is_series) {
        return PlainRows::Series;
    }
    let form = |label: &String| label.replace(|c: char| c.is_ascii_digit(), "");
    let numbers = |label: &String| {
        let words = label.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        words.map_while(|word| word.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    let first = labels.first().map(form).unwrap_or_default();
    let all: BTreeSet<Vec<u64>> = labels.iter().map(numbers).collect();
    let is_alike = labels.iter().all(|label| form(label) == first && find_product(label).is_none());
    let is_numbered = all.len() == labels.len() && all.iter().all(|numbers| !numbers.is_empty());
    let ends = all.first().zip(all.last()).and_then(|(a, b)| Some((a.last()?, b.last()?)));
    let is_dense = ends.is_some_and(|(a, b)| b.saturating_sub(*a) < 2 * labels.len() as u64);
    let is_named = has(&first, PARTS) || names.iter().any(|name| has(name, PARTS));
    let is_version = has(&first, "gen pcie ddr v");
    match is_alike && is_numbered && !is_version && (is_named || is_dense && !first.is_empty()) {
        true => PlainRows::Parts,
        false => PlainRows::Other,
    }
}
