//! Blocks of a header of labels and rows of numbers.

use crate::clean::PasteLine;
use crate::document::{CopyMeans, MatrixTool, RateCount, RateMatrix};
use crate::number::number;

impl RateMatrix {
    /// An empty matrix of rates, one way and one copy at a time, by copy engine.
    pub fn new(tool: MatrixTool, test: impl Into<String>) -> Self {
        Self {
            tool,
            test: test.into(),
            is_latency: false,
            count: RateCount::OneWay,
            peer_access: None,
            means: CopyMeans::Engine,
            concurrent: false,
            is_sum: false,
            cells: Vec::new(),
        }
    }
}

/// Widest matrix that is read.
const MAX_COLUMNS: usize = 512;

/// Columns' labels; each row's label with its cells.
pub(crate) struct LabelledRows {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
    /// The line after the last row.
    pub(crate) next: usize,
}

impl LabelledRows {
    /// The cells with a value, by the ends that labels stand for.
    pub(crate) fn cells<T: Copy>(&self, end: impl Fn(&str) -> Option<T>) -> Vec<(T, T, f64)> {
        let mut found = Vec::new();
        for (row, cells) in &self.rows {
            for (column, value) in self.columns.iter().zip(cells) {
                let cell = || Some((end(row)?, end(column)?, (*value)?));
                found.extend(cell());
            }
        }
        found
    }
}
/// Words of a line, with `GPU 00` and `CPU 00` as one.
pub(crate) fn labels(text: &str) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in text.split_whitespace().take(2 * MAX_COLUMNS) {
        let is_index = word.chars().all(|c| c.is_ascii_digit());
        match joined.last_mut() {
            Some(last) if is_index && (last == "GPU" || last == "CPU") => last.push_str(word),
            _ => joined.push(word.to_owned()),
        }
    }
    joined
}

fn is_label(word: &str) -> bool {
    let digits = word.trim_start_matches("GPU").trim_start_matches("CPU");
    !digits.is_empty() && digits.len() < 6 && digits.chars().all(|c| c.is_ascii_digit())
}

fn cell(word: &str) -> Option<Option<f64>> {
    match word {
        "N/A" | "n/a" | "-" | "X" | "nan" | "-nan" => Some(None),
        _ => number(word).map(Some),
    }
}

/// Reads a matrix whose header is at `at` or within the next lines. Rows may have blank lines between
/// them.
pub(crate) fn read_rows(lines: &[PasteLine], at: usize) -> Option<LabelledRows> {
    let mut columns = Vec::new();
    let mut start = at;
    for (index, line) in lines.iter().enumerate().skip(at).take(4) {
        let words = labels(&line.text);
        let labels = match words.split_first() {
            Some((tag, rest)) if !is_label(tag) && !rest.is_empty() => rest,
            _ => &words[..],
        };
        if !labels.is_empty() && labels.iter().all(|word| is_label(word)) {
            columns = labels.to_vec();
            start = index + 1;
            break;
        }
    }
    if columns.is_empty() {
        return None;
    }
    let mut found = LabelledRows { columns, rows: Vec::new(), next: start };
    let mut blank = 0;
    let kind = |label: &str| label.starts_with("CPU");
    for (index, line) in lines.iter().enumerate().skip(start) {
        let words = labels(&line.text);
        let Some((label, cells)) = words.split_first() else {
            blank += 1;
            if blank > 2 {
                break;
            }
            continue;
        };
        // A header of labels without a blank between begins the next matrix.
        let is_header = found.rows.first().is_some_and(|(first, _)| kind(first) != kind(label));
        if is_header && found.columns.iter().all(|column| !column.starts_with('C')) {
            break;
        }
        let cells: Option<Vec<Option<f64>>> = cells.iter().map(|word| cell(word)).collect();
        match cells {
            Some(cells)
                if is_label(label) && !cells.is_empty() && cells.len() <= found.columns.len() =>
            {
                found.rows.push((label.clone(), cells));
                found.next = index + 1;
                blank = 0;
            }
            _ => break,
        }
        if found.rows.len() >= MAX_COLUMNS {
            break;
        }
    }
    (!found.rows.is_empty()).then_some(found)
}

/// The number in a label.
pub(crate) fn index(label: &str) -> Option<u32> {
    label.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}
