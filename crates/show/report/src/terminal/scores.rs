//! Predictions compared with published values, on a terminal.

use pathline_published::score::ComparedRow;
use pathline_published::{StartFit, ValidationReport};
use pathline_schema::plain_line;
use pathline_stats::{interpolated, nearest_rank};

use super::draw::{TermPage, TermPaint};
use crate::scores::{
    classes_table, contradiction, farthest, reasons, share, signed, targets_lines, untargeted,
    value,
};
use pathline_explain::fmt;

/// Default number of rows to show.
const FARTHEST: usize = 12;
/// Maximum number of line numbers listed for a reason.
const LINES: usize = 8;

/// A summary at most `width` columns wide (72 to 200), in ANSI colours if `colour`. `against` names
/// the table. With `all` every row is shown, else those with the largest errors.
pub fn summary(
    report: &ValidationReport,
    against: &str,
    all: bool,
    width: usize,
    colour: bool,
) -> String {
    let mut page = TermPage::new(width, TermPaint { colour });
    let rows = report.compared.len() + report.left_out.len();
    let title = format!(
        "pathline: {} against {against}, {} of {}",
        report.machine,
        report.compared.len(),
        fmt::count(rows, "row")
    );
    page.line(&page.paint.bold(&page.cut(&title)));
    let simulated = format!("SIMULATED: predictions are of the model of {}", report.machine);
    let room = page.width - 2;
    let simulated = plain_line(&simulated);
    page.line(&page.paint.banner(&simulated.chars().take(room).collect::<String>()));
    page.gap();
    for (met, text) in targets_lines(&report.judged) {
        let mark = match met {
            Some(true) => page.paint.good("+"),
            Some(false) => page.paint.warn("!"),
            None => page.paint.dim("-"),
        };
        page.wrapped(&mark, 1, &text);
    }
    if let Some(text) = untargeted(report) {
        page.wrapped(&page.paint.dim("-"), 1, &text);
    }
    let data = report.compared.iter().filter(|c| c.data).count();
    if data > 0 {
        let text = format!(
            "{} the model carries as data: they agree by construction and count for no target",
            fmt::count(data, "value")
        );
        page.wrapped(&page.paint.dim("-"), 1, &text);
    }
    page.gap();
    for line in classes_table(&report.classes).lines() {
        page.line(&plain_line(line));
    }
    page.gap();
    write_rows(&mut page, &report.compared, all);
    write_contradictions(&mut page, report, all);
    write_left_out(&mut page, report, all);
    page.finish()
}

/// Starts that were refitted, and the errors of the rows that they were not fitted to, at most `width`
/// columns wide (72 to 200), in ANSI colours if `colour`. `against` names the table.
pub fn start_fit(
    fit: &StartFit,
    machine: &str,
    against: &str,
    width: usize,
    colour: bool,
) -> String {
    let mut page = TermPage::new(width, TermPaint { colour });
    let (covered, held) = fit.coverage();
    let title = format!("pathline: starts of {machine} refitted to {against}");
    page.line(&page.paint.bold(&page.cut(&title)));
    let simulated = format!("SIMULATED: predictions are of the model of {machine}");
    page.line(&page.paint.banner(&page.cut(&plain_line(&simulated))));
    page.gap();
    if fit.classes.is_empty() {
        page.wrapped("-", 1, "no class has more rows than are fitted; nothing is held out");
        return page.finish();
    }
    let errors = |errors: &[f64]| {
        let [median, p95] = [interpolated(errors, 0.5), nearest_rank(errors, 0.95)]
            .map(|error| share(error.unwrap_or(f64::NAN)));
        format!("median {median}, p95 {p95}")
    };
    let rows = fmt::count(fit.rows, "row");
    let text = format!(
        "{} held out: {} (with the starts of the description: {}); each class is fitted to {rows}, the smallest size and others evenly spread",
        fmt::count(held, "row"),
        errors(&fit.after),
        errors(&fit.before)
    );
    page.wrapped("-", 1, &text);
    let inside = covered as f64 / held.max(1) as f64;
    page.wrapped("-", 1, &format!("{covered} of {held} lie in their interval, {}", share(inside)));
    page.gap();
    let wide = fit.classes.iter().map(|c| c.path.chars().count()).max().unwrap_or(0).max(5);
    let head = format!(
        "{:<wide$}  fit  start us  held   median      p95  interval  inside   before",
        "class"
    );
    page.line(&page.paint.dim(&page.cut(&head)));
    let mut stack = "";
    for class in &fit.classes {
        if class.stack != stack {
            stack = &class.stack;
            page.line(&page.paint.bold(&page.cut(&plain_line(stack))));
        }
        let text = format!(
            "{:<wide$} {:>4} {:>+9.2} {:>5} {:>8} {:>8} {:>9} {:>7} {:>8}",
            class.path,
            class.fitted,
            class.more_us,
            class.held_out,
            share(class.median),
            share(class.p95),
            format!("+-{}", share(class.interval)),
            class.covered,
            share(class.median_before)
        );
        page.line(&page.cut(&plain_line(&text)));
    }
    page.finish()
}

fn write_rows(page: &mut TermPage, compared: &[ComparedRow], all: bool) {
    let mut rows = farthest(compared);
    if !all {
        // Rows that agree are not shown.
        rows.retain(|c| c.error() != 0.0);
        rows.truncate(FARTHEST);
    }
    if rows.is_empty() {
        return;
    }
    page.heading(if all { "All rows, the farthest first" } else { "Farthest" }, "");
    page.line(&page.paint.dim("predicted    published unit     error  row"));
    for c in rows {
        let text = format!(
            "{:>9} {:>12} {:<5} {:>8}  {}",
            fmt::number(c.predicted),
            value(&c.measured),
            c.unit,
            signed(c.error()),
            c.label
        );
        page.line(&page.cut(&text));
    }
    page.gap();
}

fn write_contradictions(page: &mut TermPage, report: &ValidationReport, all: bool) {
    if report.contradictions.is_empty() {
        return;
    }
    let n = fmt::count(report.contradictions.len(), "path");
    page.heading(&format!("Published values that contradict each other, {n}"), "");
    for c in &report.contradictions {
        if all {
            page.wrapped(&page.paint.dim("-"), 1, &contradiction(c));
            continue;
        }
        let values: Vec<String> = c.values.iter().map(|v| fmt::number(v.0)).collect();
        let text = format!(
            "{}: {}; the least error of any one model is {}",
            c.what,
            fmt::list(&values),
            share(c.least_error)
        );
        page.wrapped(&page.paint.dim("-"), 1, &text);
    }
    page.gap();
}

fn write_left_out(page: &mut TermPage, report: &ValidationReport, all: bool) {
    if report.left_out.is_empty() {
        return;
    }
    page.heading(&format!("Left out, {}", fmt::count(report.left_out.len(), "row")), "");
    for (reason, rows) in reasons(report) {
        let most = if all { rows.len() } else { LINES };
        let mut lines: Vec<String> =
            rows.iter().take(most).map(|row| row.line.to_string()).collect();
        if rows.len() > most {
            lines.push("...".to_owned());
        }
        let noun = if rows.len() == 1 { "line" } else { "lines" };
        let kind = if rows.iter().any(|row| row.unreadable) { "cannot be read: " } else { "" };
        let text = format!("{} x {kind}{reason} ({noun} {})", rows.len(), lines.join(", "));
        page.wrapped(&page.paint.dim("-"), 1, &text);
    }
}
