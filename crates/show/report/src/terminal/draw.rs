//! Lines, block characters and shades.

use std::borrow::Cow;

use pathline_schema::{Case, line_words, plain_line, shell_word, shell_words};

use pathline_explain::figure::{BetterWhen, FigureCell, MatrixBody};
use pathline_explain::fmt;

/// Minimum and maximum width of a summary, in columns.
const WIDTHS: (usize, usize) = (40, 200);

/// Block characters of eight heights.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a bar.
const BAR: usize = 24;

/// The block character for a share, 0 to 1.
pub(super) fn height(share: f64) -> char {
    let at = (share.clamp(0.0, 1.0) * 8.0).ceil() as usize;
    HEIGHTS[at.saturating_sub(1).min(7)]
}

/// The height of a value, 0 to 1: between two others on a logarithmic scale, and from zero where these are less
/// than a factor of two apart, so that noise looks like noise.
pub(super) fn share_on(value: f64, (low, high): (f64, f64)) -> f64 {
    if high < 2.0 * low {
        return value / high;
    }
    let span = (high / low).ln();
    if span.is_finite() && span > 0.0 { (value / low).ln() / span } else { 1.0 }
}

/// A bar of a share of the width, and dots up to its ceiling.
pub(super) fn bar(share: f64, ceiling: Option<f64>) -> String {
    let cells = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let full = cells(share).max(1);
    let up_to = cells(ceiling.unwrap_or(0.0)).max(full);
    // Not the full block, so that bars in adjacent lines stay separate.
    format!("{}{}{}", "▆".repeat(full), "·".repeat(up_to - full), " ".repeat(BAR - up_to))
}

/// Colour or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct TermPaint {
    pub(super) colour: bool,
}

/// Background and text colours of the five shades, from far below the ceiling to near it: dark
/// violet to yellow, also legible for the colour-blind (after the viridis map).
const SHADES: [(u8, u8); 5] = [(54, 255), (61, 255), (30, 255), (71, 16), (227, 16)];

/// Upper ends of the shades, in shares of the ceiling.
const ENDS: [f64; 4] = [0.3, 0.5, 0.7, 0.85];

impl TermPaint {
    fn code(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    pub(super) fn bold(self, text: &str) -> String {
        self.code("1", text)
    }
    pub(super) fn dim(self, text: &str) -> String {
        self.code("2", text)
    }
    pub(super) fn good(self, text: &str) -> String {
        self.code("32", text)
    }
    pub(super) fn bad(self, text: &str) -> String {
        self.code("1;31", text)
    }
    pub(super) fn warn(self, text: &str) -> String {
        self.code("33", text)
    }
    pub(super) fn banner(self, text: &str) -> String {
        self.code("1;30;43", &format!(" {text} "))
    }
    fn shade(share: f64) -> (u8, u8) {
        let at = ENDS.iter().position(|end| share < *end).unwrap_or(ENDS.len());
        SHADES[at.min(SHADES.len() - 1)]
    }
    /// Text in the colour of its share.
    pub(super) fn shaded(self, text: &str, share: Option<f64>) -> String {
        match share {
            Some(share) if self.colour => {
                let (colour, _) = Self::shade(share);
                format!("\x1b[38;5;{colour}m{text}\x1b[0m")
            }
            _ => text.to_owned(),
        }
    }
    /// A heat map cell of `width` columns: with colour the shade shows its rating, without colour a
    /// block character after the value if `blocks`.
    fn heat(self, text: &str, share: Option<f64>, width: usize, blocks: bool) -> String {
        match (share, self.colour) {
            (Some(share), true) => {
                let (back, front) = Self::shade(share);
                format!("\x1b[48;5;{back};38;5;{front}m{text:>width$} \x1b[0m")
            }
            (Some(share), false) if blocks => format!("{text:>width$} {} ", height(share)),
            (None, false) if blocks => format!("{text:>width$}   "),
            _ => format!("{text:>width$} "),
        }
    }
    /// A difference in the colour of its relative size: blue below zero, red above.
    pub(super) fn signed(self, text: &str, share: Option<f64>) -> String {
        let Some(share) = share.filter(|_| self.colour) else { return text.to_owned() };
        let (back, front) = match share {
            s if s >= 0.5 => (124, 255),
            s if s >= 0.1 => (173, 16),
            s if s >= 0.0 => (223, 16),
            s if s > -0.1 => (153, 16),
            _ => (25, 255),
        };
        format!("\x1b[48;5;{back};38;5;{front}m{text}\x1b[0m")
    }
    /// Legend of shades, blocks and marks, with its visible width.
    pub(super) fn legend(self, matrix: &MatrixBody, slow: &[Case]) -> Vec<(String, usize)> {
        let marked = matrix.cells.iter().flatten().filter(|cell| is_slow(cell, slow)).count();
        let is_rated = |cell: &FigureCell| cell.value.is_some() && cell.suspect.is_none();
        let mut lines = Vec::new();
        lines.extend(matrix.cells.iter().flatten().any(is_rated).then(|| self.shades()));
        if marked > 0 {
            let text = format!("!: slower than its peers ({})", fmt::count(marked, "pair"));
            lines.push((self.bad(&text), text.chars().count()));
        }
        lines
    }
    fn shades(self) -> (String, usize) {
        if !self.colour {
            let text = "Block height: share of the figure's best value.";
            return (text.to_owned(), text.chars().count());
        }
        let names = [" <30 ", " <50 ", " <70 ", " <85 ", " 85+ "];
        let shade = |(name, (back, front)): (&str, (u8, u8))| {
            format!("\x1b[48;5;{back};38;5;{front}m{name}\x1b[0m")
        };
        let text = " % of the figure's best value";
        let shades: String = names.into_iter().zip(SHADES).map(shade).collect();
        (format!("{shades}{text}"), names.concat().len() + text.len())
    }
}

/// Whether a cell is of a path that is slower than its peers.
fn is_slow(cell: &FigureCell, slow: &[Case]) -> bool {
    cell.case.as_ref().is_some_and(|case| slow.contains(case))
}

/// Rating of a cell, 0 to 1: compared with the best value of its figure.
fn goodness(cell: &FigureCell, best: f64, better: BetterWhen) -> Option<f64> {
    match better {
        BetterWhen::Lower => Some(best / cell.value?),
        BetterWhen::Higher => Some(cell.value? / best),
        BetterWhen::Neither => None,
    }
}

/// A text in at most `width` columns, cut after a word.
pub(super) fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let head: String = text.chars().take(width.saturating_sub(1)).collect();
    let end = head.rfind(' ').filter(|at| *at >= width / 2).unwrap_or(head.len());
    format!("{}…", head[..end].trim_end_matches([' ', ',']))
}

/// Columns at which sentences end, however wide the terminal is.
const PROSE: usize = 100;

/// A text in lines of at most `width` columns, broken between words; longer words continue on the
/// next lines.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line_words(&plain_line(text), width) {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ if length <= width => lines.push(word),
            _ => {
                let letters: Vec<char> = word.chars().collect();
                lines.extend(
                    letters.chunks(width.max(1)).map(|part| part.iter().collect::<String>()),
                );
            }
        }
    }
    lines
}

/// A matrix as lines with their visible width; `None` if it is wider than `width` even without
/// blocks.
pub(super) fn heat_map(
    title: &str,
    matrix: &MatrixBody,
    slow: &[Case],
    paint: TermPaint,
    width: usize,
) -> Option<Vec<(String, usize)>> {
    let corner = format!("{}\\{}", matrix.row_axis, matrix.col_axis);
    let labels = matrix.rows.iter().map(|r| r.chars().count()).max().unwrap_or(0);
    let label = labels.max(corner.chars().count()) + 1;
    // Each word of a heading has its own line; the last is directly above the values.
    let heads: Vec<Vec<&str>> =
        matrix.cols.iter().map(|name| name.split_whitespace().collect()).collect();
    let text = |cell: &FigureCell| match (cell.value, &cell.absent) {
        (Some(value), _) if is_slow(cell, slow) => format!("!{}", fmt::number(value)),
        // A number of hops.
        (Some(value), _) if matrix.better == BetterWhen::Neither && value.fract() == 0.0 => {
            format!("{value}")
        }
        (Some(value), _) => fmt::number(value),
        (None, Some(_)) => "x".to_owned(),
        (None, None) => "·".to_owned(),
    };
    let widths: Vec<usize> = (0..matrix.cols.len())
        .map(|col| {
            let cells = matrix.cells.iter().filter_map(|row| row.get(col));
            let cells = cells.map(|cell| text(cell).chars().count());
            let names = heads.get(col).into_iter().flatten().map(|word| word.chars().count());
            cells.chain(names).max().unwrap_or(0).max(3)
        })
        .collect();
    let full = |mark: usize| label + widths.iter().map(|w| w + 1 + mark).sum::<usize>();
    // With colour the shade needs no block.
    let blocks = !paint.colour && full(2) <= width;
    let mark = if blocks { 2 } else { 0 };
    let full = full(mark);
    if full > width {
        return None;
    }
    let heading = format!("{title}, {}", matrix.unit);
    let heading = wrap(&heading, full.max(width.saturating_sub(3) / 2));
    let mut lines: Vec<(String, usize)> =
        heading.iter().map(|line| (paint.bold(line), line.chars().count())).collect();
    let height = heads.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let cells = heads.iter().zip(&widths).map(|(words, width)| {
            let word = (line + words.len()).checked_sub(height).and_then(|at| words.get(at));
            format!("{:>width$} {:mark$}", word.unwrap_or(&""), "")
        });
        let corner = if line + 1 == height { corner.as_str() } else { "" };
        lines.push((paint.dim(&format!("{corner:<label$}{}", cells.collect::<String>())), full));
    }
    // A path from a unit to itself is not compared with the others.
    let others = matrix.rows.iter().zip(&matrix.cells).flat_map(|(row, cells)| {
        cells.iter().zip(&matrix.cols).filter(move |(_, col)| *col != row).map(|(cell, _)| cell)
    });
    let best = others.filter_map(|c| c.value);
    let best = match matrix.better {
        BetterWhen::Lower => best.fold(f64::INFINITY, f64::min),
        _ => best.fold(0.0, f64::max),
    };
    for (name, row) in matrix.rows.iter().zip(&matrix.cells) {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| match &cell.suspect {
            Some(suspect) if cell.value.is_some() => {
                let value = format!("{:>width$}{}{:mark$}", text(cell), suspect.mark(), "");
                paint.warn(&value)
            }
            _ if is_slow(cell, slow) => {
                let share = goodness(cell, best, matrix.better).filter(|_| blocks);
                let block =
                    share.map_or(String::new(), |share| format!(" {}", self::height(share)));
                paint.bad(&format!("{:>width$}{block} ", text(cell)))
            }
            _ => paint.heat(&text(cell), goodness(cell, best, matrix.better), width, blocks),
        });
        lines.push((format!("{name:<label$}{}", cells.collect::<String>()), full));
    }
    Some(lines)
}

/// A table whose columns are as wide as their widest cells. If it is too wide, columns with the
/// highest `rank` are dropped first.
pub(super) struct TermTable {
    columns: Vec<TermColumn>,
}

/// A column of a table.
pub(super) struct TermColumn {
    /// Heading; may have several words, which go on one line.
    pub(super) head: &'static str,
    /// Order of dropping; 0 is never dropped.
    pub(super) rank: u8,
    /// Whether cells are aligned right, as numbers are.
    pub(super) right: bool,
    /// Cells, one per row.
    pub(super) cells: Vec<String>,
}

impl TermTable {
    /// Removes columns without text.
    pub(super) fn new(columns: impl IntoIterator<Item = TermColumn>) -> Self {
        let has_text = |c: &TermColumn| c.cells.iter().any(|cell| !cell.is_empty());
        Self { columns: columns.into_iter().filter(has_text).collect() }
    }
    /// Lines with their visible width, the heading first. If the last column is still too wide, it
    /// is cut after a word.
    pub(super) fn lines(mut self, width: usize, paint: TermPaint) -> Vec<(String, usize)> {
        let wide = |c: &TermColumn| {
            let cells = c.cells.iter().map(|cell| cell.chars().count());
            cells.chain([c.head.chars().count()]).max().unwrap_or(0)
        };
        let total = |columns: &[TermColumn]| {
            columns.iter().map(|c| wide(c) + 2).sum::<usize>().saturating_sub(2)
        };
        while total(&self.columns) > width {
            let rank = |(_, c): &(usize, &TermColumn)| c.rank;
            let most = self.columns.iter().enumerate().max_by_key(rank);
            match most {
                Some((at, column)) if column.rank > 0 => drop(self.columns.remove(at)),
                _ => break,
            }
        }
        let rows = self.columns.first().map_or(0, |c| c.cells.len());
        let last = self.columns.len().saturating_sub(1);
        let row = |of: &dyn Fn(&TermColumn) -> String| {
            let mut line = String::new();
            for (at, column) in self.columns.iter().enumerate() {
                let text = of(column);
                if at > 0 {
                    line += "  ";
                }
                let space = wide(column).saturating_sub(text.chars().count());
                if column.right {
                    line.extend(std::iter::repeat_n(' ', space));
                }
                line += &text;
                if !column.right && at < last {
                    line.extend(std::iter::repeat_n(' ', space));
                }
            }
            fit(&line, width)
        };
        let head = row(&|c| c.head.to_owned());
        let mut lines = vec![(paint.dim(&head), head.chars().count())];
        for at in 0..rows {
            let line = row(&|c| c.cells.get(at).cloned().unwrap_or_default());
            let columns = line.chars().count();
            lines.push((line, columns));
        }
        lines
    }
}

/// A text under construction.
pub(super) struct TermPage {
    pub(super) width: usize,
    pub(super) paint: TermPaint,
    text: String,
}

impl TermPage {
    /// A page as wide as the terminal, within the supported range.
    pub(super) fn new(width: usize, paint: TermPaint) -> Self {
        let (least, most) = WIDTHS;
        Self { width: width.clamp(least, most), paint, text: String::new() }
    }
    pub(super) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end_matches(' '));
        self.text.push('\n');
    }
    pub(super) fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
    /// Removes an empty line at the end.
    pub(super) fn end_gap(&mut self) {
        if self.text.ends_with("\n\n") {
            self.text.pop();
        }
    }
    /// Appends text without colour, without control characters, cut after a word to the width.
    pub(super) fn cut(&self, text: &str) -> String {
        fit(&plain_line(text), self.width)
    }
    /// Appends a title with its unit.
    pub(super) fn heading(&mut self, title: &str, unit: &str) {
        let room = self.width.saturating_sub(unit.chars().count() + 2);
        let unit =
            if unit.is_empty() { String::new() } else { self.paint.dim(&format!(", {unit}")) };
        let lines = wrap(title, room);
        for (at, line) in lines.iter().enumerate() {
            let unit = if at + 1 == lines.len() { unit.as_str() } else { "" };
            self.line(&format!("{}{unit}", self.paint.bold(line)));
        }
    }
    /// Appends a sentence after a mark, wrapped between words.
    pub(super) fn wrapped(&mut self, mark: &str, mark_width: usize, text: &str) {
        let indent = mark_width + 1;
        let mut line = format!("{mark} ");
        for (at, part) in wrap(text, self.width.min(PROSE) - indent).iter().enumerate() {
            if at > 0 {
                self.line(&line);
                line = " ".repeat(indent);
            }
            line += part;
        }
        self.line(&line);
    }
    /// Appends a command that a shell still reads once it is pasted: lines end between its words, by a
    /// backslash, and a word that is wider than the page stays whole.
    pub(super) fn command(&mut self, title: &str, command: &str) {
        let mut line = format!("  {title}");
        let words = shell_words(command);
        let note = command.find(" # ").map(|at| Cow::Borrowed(command[at..].trim_start()));
        for (nth, word) in words.iter().map(|word| shell_word(word)).chain(note).enumerate() {
            // With the blank before it, and the blank and the backslash behind it.
            if nth > 0 && line.chars().count() + word.chars().count() + 3 > self.width {
                self.line(&format!("{line} \\"));
                line = " ".repeat(3);
            }
            line = format!("{line} {word}");
        }
        self.line(&line);
    }
    /// Appends blocks of lines, two side by side if both fit.
    pub(super) fn side_by_side(&mut self, blocks: &[Vec<(String, usize)>]) {
        let width = |b: &[(String, usize)]| b.iter().map(|l| l.1).max().unwrap_or(0);
        let mut at = 0;
        while let Some(left) = blocks.get(at) {
            at += 1;
            let column = width(left);
            let right = blocks.get(at).filter(|r| column + 3 + width(r) <= self.width);
            at += usize::from(right.is_some());
            let rows = left.len().max(right.map_or(0, Vec::len));
            for row in 0..rows {
                let (text, used) = left.get(row).cloned().unwrap_or_default();
                let other = right.and_then(|r| r.get(row)).map_or("", |l| l.0.as_str());
                let space = if other.is_empty() { 0 } else { column + 3 - used };
                self.line(&format!("{text}{}{other}", " ".repeat(space)));
            }
            self.gap();
        }
    }
    /// Number of lines so far.
    pub(super) fn lines(&self) -> usize {
        self.text.lines().count()
    }
    /// Appends the lines of another page.
    pub(super) fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
    }
    pub(super) fn finish(self) -> String {
        self.text
    }
    /// The lines with their visible width.
    pub(super) fn into_lines(self) -> Vec<(String, usize)> {
        let width = |line: &str| {
            let mut escaped = false;
            let shown = |c: &char| {
                let hidden = escaped || *c == '\x1b';
                escaped = (escaped || *c == '\x1b') && *c != 'm';
                !hidden
            };
            line.chars().filter(shown).count()
        };
        self.text.lines().map(|line| (line.to_owned(), width(line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 is half way from 1 to 100 by factors; 55.1 of 55.2 are 99.8 %, though the least of both.
    #[test]
    fn a_scale_starts_at_zero_where_values_hardly_differ() {
        assert!((share_on(10.0, (1.0, 100.0)) - 0.5).abs() < 1e-9);
        assert_eq!(height(share_on(55.1, (55.1, 55.2))), '█');
        assert_eq!(height(share_on(1.0, (1.0, 100.0))), '▁');
    }
}
