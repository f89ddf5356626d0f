//! Sheets, stacks and maps of differences on a terminal.

use super::draw::{self, TermPage, TermPaint};
use pathline_explain::figure::{
    Figure, FigureCell, GapsBody, PairedGap, RunReport, SheetBody, StacksBody,
};
use pathline_explain::fmt;

/// Maximum rows of a sheet; the page has all.
const MAX_ROWS: usize = 12;

/// Maximum number of maps: those of the first GPU, for both kinds of staging.
const MAX_MAPS: usize = 2;

/// A value in at most five columns.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 99_999.5 => format!("{:.0}k", value / 1e3),
        _ => fmt::number(value),
    }
}

/// A table as wide as it fits; only the page has the remaining columns.
pub(super) fn sheet(page: &mut TermPage, figure: &Figure, sheet: &SheetBody) {
    page.heading(&figure.title, "");
    let longest = sheet.rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0);
    let label = longest.min(page.width * 2 / 5);
    let text = |cell: &FigureCell| {
        let value = cell.value.map_or("-".to_owned(), short);
        cell.suspect.as_ref().map_or(value.clone(), |s| format!("{value}{}", s.mark()))
    };
    let head = |c: &pathline_explain::figure::SheetColumn| match c.unit.as_str() {
        "" => c.name.clone(),
        unit => format!("{} {unit}", c.name),
    };
    // Each word of a heading has its own line.
    let heads: Vec<Vec<String>> = sheet.columns.iter().map(|c| draw::wrap(&head(c), 10)).collect();
    let mut shown = 0;
    let mut used = label + 2;
    let widths: Vec<usize> = (0..sheet.columns.len())
        .map(|c| {
            let cells = sheet.rows.iter().filter_map(|r| r.1.get(c)).map(|cell| text(cell).len());
            let names = heads.get(c).into_iter().flatten().map(|w| w.chars().count());
            cells.chain(names).max().unwrap_or(0)
        })
        .collect();
    for width in &widths {
        if used + width + 1 > page.width {
            break;
        }
        used += width + 1;
        shown += 1;
    }
    let lines = heads.iter().take(shown).map(Vec::len).max().unwrap_or(0);
    for line in 0..lines {
        let cells = heads.iter().zip(&widths).take(shown).map(|(words, width)| {
            // The last line is directly above the values.
            let at = (line + words.len()).checked_sub(lines);
            format!(" {:>width$}", at.and_then(|at| words.get(at)).map_or("", String::as_str))
        });
        let text = format!("  {:<label$}{}", "", cells.collect::<String>());
        page.line(&page.paint.dim(&text));
    }
    for (name, cells) in sheet.rows.iter().take(MAX_ROWS) {
        let name = draw::fit(name, label);
        let cells = cells.iter().zip(&widths).take(shown);
        let cells: String = cells.map(|(c, width)| format!(" {:>width$}", text(c))).collect();
        page.line(&format!("  {name:<label$}{cells}"));
    }
    super::more(page, sheet.rows.len(), MAX_ROWS, "row");
}

/// Each whole as a bar of its parts and their names.
pub(super) fn stacks(page: &mut TermPage, figure: &Figure, stacks: &StacksBody) {
    const BAR: usize = 20;
    const INKS: [char; 4] = ['█', '▓', '▒', '░'];
    page.heading(&figure.title, "%");
    let longest = stacks.stacks.iter().map(|s| s.label.chars().count()).max().unwrap_or(0);
    let label = longest.min(page.width / 3);
    for stack in stacks.stacks.iter().take(MAX_ROWS) {
        let shares: Vec<f64> =
            stack.parts.iter().map(|p| p.cell.value.unwrap_or(0.0) / 100.0).collect();
        let mut drawn = String::new();
        let mut sum = 0.0;
        for (share, ink) in shares.iter().zip(INKS.iter().cycle()) {
            sum += share;
            let upto = (sum * BAR as f64).round() as usize;
            let have = drawn.chars().count();
            drawn.extend(std::iter::repeat_n(*ink, upto.min(BAR).saturating_sub(have)));
        }
        let named = stack.parts.iter().zip(&shares).filter(|(_, share)| **share >= 0.005);
        let texts: Vec<String> =
            named.map(|(p, share)| format!("{} {}", p.name, fmt::percent(*share))).collect();
        let name = draw::fit(&stack.label, label);
        let line = format!("  {name:<label$}  {drawn:<BAR$}  {}", texts.join(", "));
        page.line(&page.cut(&line));
    }
    super::more(page, stacks.stacks.len(), MAX_ROWS, "case");
}

/// Maps of the first paths to a GPU, one for each statistic.
pub(super) fn gaps(page: &mut TermPage, report: &RunReport) {
    let all = || {
        report.figures.iter().filter_map(|f| match &f.body {
            pathline_explain::figure::FigureBody::Gaps(g) => Some((f, g)),
            _ => None,
        })
    };
    for (figure, gaps) in all().take(MAX_MAPS) {
        page.gap();
        page.heading(&figure.title, &gaps.unit);
        let blocks: Vec<Vec<(String, usize)>> =
            gaps.panels.iter().map(|(name, rows)| map(page.paint, gaps, name, rows)).collect();
        page.side_by_side(&blocks);
        page.wrapped(" ", 1, &figure.finding);
    }
    let count = all().count();
    if count > 0 {
        page.line(&page.paint.dim(
            "  ~ not distinguishable from zero   q saturated: a queue's time, not the copy's",
        ));
    }
    super::more(page, count, MAX_MAPS, "map");
}

/// One statistic: values followed by marks, one line per row.
fn map(
    paint: TermPaint,
    gaps: &GapsBody,
    name: &str,
    rows: &[Vec<PairedGap>],
) -> Vec<(String, usize)> {
    const CELL: usize = 7;
    let corner = format!("{}\\{}", gaps.row_axis, gaps.col_axis);
    let label = gaps.rows.iter().map(|r| r.chars().count()).max().unwrap_or(0);
    let label = label.max(corner.chars().count());
    let full = label + CELL * gaps.cols.len();
    let mut lines = vec![(paint.bold(name), name.chars().count())];
    let head: String = gaps.cols.iter().map(|c| format!("{c:>6} ")).collect();
    lines.push((paint.dim(&format!("{corner:<label$}{head}")), full));
    for (row, cells) in gaps.rows.iter().zip(rows) {
        let cells: String = cells
            .iter()
            .map(|gap| {
                let mark = match (gap.is_zero, gap.saturated.is_some()) {
                    (true, _) => '~',
                    (false, true) => 'q',
                    (false, false) => ' ',
                };
                let text = match (gap.cell.value, &gap.cell.absent) {
                    (Some(v), _) => {
                        format!("{}{}{mark}", if v >= 0.0 { "+" } else { "-" }, short(v.abs()))
                    }
                    (None, Some(_)) => "x ".to_owned(),
                    (None, None) => "· ".to_owned(),
                };
                let relative = gap.relative().filter(|_| !gap.is_zero && gap.saturated.is_none());
                paint.signed(&format!("{text:>CELL$}"), relative)
            })
            .collect();
        lines.push((format!("{row:<label$}{cells}"), full));
    }
    lines
}
