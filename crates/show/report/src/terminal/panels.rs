//! Panels on a terminal: a row for each line of each panel, a column for each position.

use super::draw::TermPage;
use pathline_explain::figure::{ChartLine, Figure, PanelsBody};
use pathline_explain::fmt;

/// Width of a value with its mark.
const COLUMN: usize = 8;

/// Values of all panels; published ones in a row below their line, the bounds last in each panel.
pub(super) fn write(page: &mut TermPage, figure: &Figure, body: &PanelsBody) {
    page.heading(&figure.title, &body.y_unit);
    let mut xs: Vec<f64> =
        body.panels.iter().flat_map(|p| &p.lines).flat_map(|l| &l.points).map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let names = body.line_names();
    let names = names.iter().map(|n| n.chars().count()).chain(["least by copies".len()]);
    let (label, name) = (
        body.panels.iter().map(|p| p.name.chars().count()).max().unwrap_or(0),
        names.max().unwrap_or(0),
    );
    let room = page.width.saturating_sub(label + name + 6) / COLUMN;
    let shown: Vec<f64> = xs.iter().copied().take(room.max(1)).collect();
    let head: String = shown.iter().map(|x| format!("{x:>7} ")).collect();
    let head = format!("  {:<label$}  {:<name$}{head}{}", "", "", body.x_unit);
    let head = page.cut(&head);
    page.line(&page.paint.dim(&head));
    for panel in &body.panels {
        for (at, line) in panel.lines.iter().enumerate() {
            let cells: String = shown
                .iter()
                .map(|x| {
                    let found = line.points.iter().find(|p| (p.0 - x).abs() < 1e-9);
                    let Some((_, cell)) = found else { return " ".repeat(COLUMN) };
                    let value = cell.value.map_or("-".to_owned(), fmt::number);
                    let mark = cell.suspect.as_ref().map_or(' ', |s| s.mark());
                    format!("{value:>7}{mark}")
                })
                .collect();
            let title = if at == 0 { panel.name.as_str() } else { "" };
            let text = page.cut(&format!("  {title:<label$}  {:<name$}{cells}", line.name));
            page.line(&text);
            write_published(page, line, &shown, (label, name));
        }
        let level = panel.levels.iter().map(|l| l.1).fold(0.0, f64::max);
        let floors: Vec<Option<f64>> = shown
            .iter()
            .map(|x| panel.floor.iter().find(|f| (f.0 - x).abs() < 1e-9).map(|f| f.1))
            .collect();
        let bounds = [
            ("least by copies", vec![Some(level).filter(|l| *l > 0.0); shown.len()]),
            ("least by links", floors),
        ];
        for (what, values) in bounds.into_iter().filter(|b| b.1.iter().any(Option::is_some)) {
            let cells: String = values
                .iter()
                .map(|v| format!("{:>7} ", v.map_or(String::new(), fmt::number)))
                .collect();
            let text = page.cut(&format!("  {:<label$}  {what:<name$}{cells}", ""));
            page.line(&page.paint.dim(&text));
        }
    }
    page.wrapped(" ", 1, &figure.finding);
}

fn write_published(
    page: &mut TermPage,
    line: &ChartLine,
    shown: &[f64],
    (label, name): (usize, usize),
) {
    let at = |x: f64| {
        let cell = line.points.iter().find(|p| (p.0 - x).abs() < 1e-9).map(|p| &p.1)?;
        cell.published.as_ref()
    };
    let Some(kind) = shown.iter().find_map(|x| at(*x)).map(|p| p.kind.label()) else { return };
    let cell = |x: &f64| format!("{:>7} ", at(*x).map_or(String::new(), |p| fmt::number(p.value)));
    let cells: String = shown.iter().map(cell).collect();
    let text = page.cut(&format!("  {:<label$}  {kind:<name$}{cells}", ""));
    page.line(&text);
}
