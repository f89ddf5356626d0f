//! Lines, heights and shades.

use pathline_schema::plain_line;

use pathline_explain::figure::{BetterWhen, FigureCell, MatrixBody};
use pathline_explain::fmt;

/// Eight heights of a block.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a cell: three digits, a point and a space or a block.
const CELL: usize = 5;

/// Columns of a bar.
const BAR: usize = 24;

/// The block for a share, 0 to 1.
pub(super) fn height(share: f64) -> char {
    let at = (share.clamp(0.0, 1.0) * 8.0).ceil() as usize;
    HEIGHTS[at.saturating_sub(1).min(7)]
}

/// Where a value lies between two, by its logarithm.
pub(super) fn log_share(value: f64, (low, high): (f64, f64)) -> f64 {
    let span = (high / low).ln();
    if span.is_finite() && span > 0.0 { (value / low).ln() / span } else { 1.0 }
}

/// A bar of a share of the width, and dots up to its ceiling.
pub(super) fn bar(share: f64, ceiling: Option<f64>) -> String {
    let cells = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let full = cells(share).max(1);
    let up_to = cells(ceiling.unwrap_or(0.0)).max(full);
    // Not the full block, so that bars below each other stay apart.
    format!("{}{}{}", "▆".repeat(full), "·".repeat(up_to - full), " ".repeat(BAR - up_to))
}

/// Colour or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct TermPaint {
    pub(super) colour: bool,
}

/// Background and text of the five shades, from far below the ceiling to near it: dark violet to
/// yellow, which also reads for the colour-blind (after the viridis map).
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
    /// A cell of a heat map.
    fn heat(self, text: &str, share: Option<f64>) -> String {
        match (share, self.colour) {
            (Some(share), true) => {
                let (back, front) = Self::shade(share);
                format!("\x1b[48;5;{back};38;5;{front}m{text:>4} \x1b[0m")
            }
            (Some(share), false) => format!("{text:>4}{}", height(share)),
            (None, _) => format!("{text:>4} "),
        }
    }
    /// A difference in the colour of its share of what it is to: blue below, red above.
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
    /// What the shades mean, in 59 columns.
    pub(super) fn legend(self) -> String {
        let shades = if self.colour {
            let names = ["<30", "<50", "<70", "<85", "85+"];
            let shade = |(name, (back, front)): (&str, (u8, u8))| {
                format!("\x1b[48;5;{back};38;5;{front}m {name} \x1b[0m")
            };
            names.into_iter().zip(SHADES).map(shade).collect::<String>() + " % of ceiling"
        } else {
            "Blocks: eighths of the ceiling".to_owned()
        };
        format!("{shades}; latency: best/value")
    }
}

/// How good a cell is, 0 to 1: of its ceiling, or the best of the matrix over it.
fn goodness(cell: &FigureCell, best: f64, better: BetterWhen) -> Option<f64> {
    match better {
        BetterWhen::Lower => Some(best / cell.value?),
        BetterWhen::Higher => cell.share_of_ceiling(),
        BetterWhen::Neither => None,
    }
}

/// A text in lines of at most `width` columns, broken between words.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.chars().take(width).collect()),
        }
    }
    lines
}

/// A number in four columns.
fn short(value: f64) -> String {
    if value < 9999.5 { fmt::number(value) } else { ">1e4".to_owned() }
}

/// A matrix as lines with their visible width; none if it is wider than `width`.
pub(super) fn heat_map(
    title: &str,
    matrix: &MatrixBody,
    paint: TermPaint,
    width: usize,
) -> Option<Vec<(String, usize)>> {
    let corner = format!("{}\\{}", matrix.row_axis, matrix.col_axis);
    let labels = matrix.rows.iter().map(|r| r.chars().count()).max().unwrap_or(0);
    let label = labels.max(corner.chars().count());
    // Names of columns are cut to their number where they are longer than a cell.
    let col = |name: &String| {
        if name.chars().count() < CELL {
            return name.clone();
        }
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        if digits.is_empty() { name.chars().take(CELL - 1).collect() } else { digits }
    };
    let full = label + CELL * matrix.cols.len();
    if full > width {
        return None;
    }
    let heading = format!("{title}, {}", matrix.unit);
    let room = full.max(width.saturating_sub(3) / 2);
    let heading: String = heading.chars().take(room).collect();
    let mut lines = vec![(paint.bold(&heading), heading.chars().count())];
    let head: String = matrix.cols.iter().map(|c| format!("{:>4} ", col(c))).collect();
    lines.push((paint.dim(&format!("{corner:<label$}{head}")), full));
    // A path from a unit to itself is not compared with the others.
    let others = matrix.rows.iter().zip(&matrix.cells).flat_map(|(row, cells)| {
        cells.iter().zip(&matrix.cols).filter(move |(_, col)| *col != row).map(|(cell, _)| cell)
    });
    let best = others.filter_map(|c| c.value).fold(f64::INFINITY, f64::min);
    for (name, row) in matrix.rows.iter().zip(&matrix.cells) {
        let cells: String = row
            .iter()
            .map(|cell| match (cell.value, &cell.absent) {
                (Some(value), _) => match &cell.suspect {
                    Some(suspect) => paint.warn(&format!("{:>4}{}", short(value), suspect.mark())),
                    None => paint.heat(&short(value), goodness(cell, best, matrix.better)),
                },
                (None, Some(_)) => paint.heat("x", None),
                (None, None) => paint.heat("·", None),
            })
            .collect();
        lines.push((format!("{name:<label$}{cells}"), full));
    }
    Some(lines)
}

/// Text that is being put together.
pub(super) struct TermPage {
    pub(super) width: usize,
    pub(super) paint: TermPaint,
    text: String,
}

impl TermPage {
    pub(super) fn new(width: usize, paint: TermPaint) -> Self {
        Self { width, paint, text: String::new() }
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
    /// Text without colour, made plain and cut to the width.
    pub(super) fn cut(&self, text: &str) -> String {
        let text = &*plain_line(text);
        if text.chars().count() <= self.width {
            return text.to_owned();
        }
        let mut cut: String = text.chars().take(self.width - 1).collect();
        cut.push('…');
        cut
    }
    /// A title, and its unit.
    pub(super) fn heading(&mut self, title: &str, unit: &str) {
        let room = self.width.saturating_sub(unit.chars().count() + 2);
        let title: String = plain_line(title).chars().take(room).collect();
        let unit =
            if unit.is_empty() { String::new() } else { self.paint.dim(&format!(", {unit}")) };
        self.line(&format!("{}{unit}", self.paint.bold(&title)));
    }
    /// A sentence behind a mark, wrapped at words.
    pub(super) fn wrapped(&mut self, mark: &str, mark_width: usize, text: &str) {
        let indent = mark_width + 1;
        let mut line = format!("{mark} ");
        let mut used = indent;
        for word in plain_line(text).split_whitespace() {
            let word: String = word.chars().take(self.width - indent).collect();
            let length = word.chars().count();
            if used > indent && used + length > self.width {
                self.line(&line);
                line = " ".repeat(indent);
                used = indent;
            }
            line += &word;
            line.push(' ');
            used += length + 1;
        }
        self.line(&line);
    }
    /// Blocks of lines, two abreast where both fit.
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
    pub(super) fn finish(self) -> String {
        self.text
    }
}
