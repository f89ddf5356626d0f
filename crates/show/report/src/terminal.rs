//! The summary on a terminal: sentences first, then small pictures.

pub mod model_agreement;
pub mod scores;
pub mod sensitivity;

mod draw;
pub(crate) mod first_screen;
mod panels;
mod sheets;

pub use first_screen::first_screen;

use std::collections::{BTreeMap, BTreeSet};

use draw::{TermPage, TermPaint};
use pathline_explain::figure::{
    BarsBody, BetterWhen, CurvesBody, Figure, FigureBody, Headline, HeadlineTone, MatrixBody,
    RunReport, Suspicion,
};
use pathline_explain::figures::{TerminalUse, terminal_use};
use pathline_explain::fmt;
use pathline_findings::{RunAnswer, RunConclusions};
use pathline_schema::{RunNote, shell_word};

/// Maximum number of GPU kinds to list; the page has all.
const MAX_GPUS: usize = 4;

/// Maximum number of warning kinds to show; the page has all.
const MAX_NOTES: usize = 4;

/// Longer case texts are shortened to their first flow.
const LONGEST_CASE: usize = 160;

/// Maximum number of figures named in a warning.
const MAX_AFFECTED: usize = 3;

/// Maximum number of reasons for skips and faults.
const MAX_REASONS: usize = 8;

/// The long form: every figure that a terminal can show, at most `width` columns wide (72 to 200),
/// in ANSI 256 colours if `colour`. Without colour, block characters of eight heights carry the
/// same information.
pub fn summary(
    report: &RunReport,
    conclusions: &RunConclusions,
    width: usize,
    colour: bool,
) -> String {
    let mut page = TermPage::new(width, TermPaint { colour });
    first_screen::head(&mut page, report);
    gpus(&mut page, report);
    first_screen::verdict(&mut page, &conclusions.verdict);
    first_screen::busy(&mut page, report);
    page.gap();
    for (at, finding) in conclusions.findings.iter().enumerate() {
        first_screen::write_finding(&mut page, at + 1, finding, false);
    }
    page.gap();
    headlines(&mut page, report);
    pictures(&mut page, report);
    matrices(&mut page, report, &conclusions.verdict);
    sheets::gaps(&mut page, report);
    marks(&mut page, report);
    absences(&mut page, report);
    notes(&mut page, report);
    page.finish()
}

/// Clocks, limits and links of GPUs.
fn gpus(page: &mut TermPage, report: &RunReport) {
    for (gpus, facts) in report.gpus.iter().take(MAX_GPUS) {
        let indent = gpus.chars().count();
        page.wrapped(&page.paint.dim(gpus), indent, facts);
    }
    more(page, report.gpus.len(), MAX_GPUS, "kind of GPU");
}

fn headlines(page: &mut TermPage, report: &RunReport) {
    report.headlines.iter().for_each(|text| headline(page, text));
    if report.headlines.is_empty() {
        page.line("No figures.");
    }
    page.gap();
}

/// A sentence with the mark of its severity.
fn headline(page: &mut TermPage, Headline { text, tone, .. }: &Headline) {
    let mark = match tone {
        HeadlineTone::Good => page.paint.good("+"),
        HeadlineTone::Plain => page.paint.dim("-"),
        HeadlineTone::Warn => page.paint.warn("!"),
    };
    page.wrapped(&mark, 1, text);
}

/// Whether a figure other than a matrix is drawn.
fn is_drawn(figure: &Figure) -> bool {
    figure.has_value() && terminal_use(figure) != TerminalUse::PageOnly
}

fn pictures(page: &mut TermPage, report: &RunReport) {
    report.figures.iter().filter(|f| is_drawn(f)).for_each(|figure| picture(page, figure));
}

/// Curves, bars, sheets and stacks.
fn picture(page: &mut TermPage, figure: &Figure) {
    match &figure.body {
        FigureBody::Curves(curves) if !curves.lines.is_empty() => sparks(page, figure, curves),
        FigureBody::Bars(all) if !all.bars.is_empty() => bars(page, figure, all),
        FigureBody::Sheet(all) if !all.rows.is_empty() => {
            sheets::sheet(page, figure, all);
            if terminal_use(figure) == TerminalUse::WithFinding {
                page.wrapped(" ", 1, &figure.finding);
            }
        }
        FigureBody::Panels(all) if !all.panels.is_empty() => panels::write(page, figure, all),
        FigureBody::Stacks(all) if !all.stacks.is_empty() => sheets::stacks(page, figure, all),
        _ => {}
    }
}

/// Curves as rows of block characters, with one logarithmic scale per figure.
fn sparks(page: &mut TermPage, figure: &Figure, curves: &CurvesBody) {
    let x = |v: f64| match curves.x_unit.as_str() {
        "B" => pathline_schema::Bytes(v as u64).rounded(),
        "depth" => format!("depth {v}"),
        unit if v == 1.0 => format!("1 {}", unit.strip_suffix('s').unwrap_or(unit)),
        unit if v.fract() == 0.0 => format!("{v} {unit}"),
        unit => format!("{} {unit}", fmt::number(v)),
    };
    let xs = || curves.lines.iter().flat_map(|l| l.points.iter().map(|p| p.0));
    let (from, to) = pathline_explain::figure::extremes(&xs().collect::<Vec<_>>());
    let span = if from < to { format!("{} to {}", x(from), x(to)) } else { x(to) };
    page.heading(&figure.title, &format!("{}, {span}", curves.y_unit));
    let values: Vec<f64> =
        curves.lines.iter().flat_map(|l| l.points.iter().filter_map(|p| p.1.value)).collect();
    let scale = pathline_explain::figure::extremes(&values);
    let cells = || curves.lines.iter().flat_map(|line| &line.points).map(|point| &point.1);
    let has_share = cells().any(|cell| cell.value.is_some() && cell.share_of_ceiling().is_some());
    // What stands behind the blocks of a row.
    let tail = |last: &str, share: &str| match has_share {
        true => format!(" {last:>5} {share:>7}"),
        false => format!(" {last:>5}"),
    };
    let rows: Vec<(String, String, String)> = curves
        .lines
        .iter()
        .filter_map(|line| {
            let points: Vec<(f64, f64)> =
                line.points.iter().filter_map(|(x, c)| Some((*x, c.value?))).collect();
            let (_, last) = *points.last()?;
            let share = line.points.iter().rev().find(|p| p.1.value.is_some());
            let share = share.and_then(|p| p.1.share_of_ceiling()).map(fmt::percent);
            let height = |point: &(f64, f64)| draw::height(draw::share_on(point.1, scale));
            let points_drawn = if points.len() > 1 { points.as_slice() } else { &[] };
            let spark: String = points_drawn.iter().map(height).collect();
            let best = points.iter().copied().max_by(|a, b| match curves.better {
                BetterWhen::Lower => b.1.total_cmp(&a.1),
                _ => a.1.total_cmp(&b.1),
            })?;
            let best = format!("best {} at {}", fmt::number(best.1), x(best.0));
            let mark = line.points.iter().find_map(|p| Some(p.1.suspect.as_ref()?.mark()));
            let name = mark.map_or(line.name.clone(), |mark| format!("{} {mark}", line.name));
            Some((name, spark + &tail(&fmt::number(last), &share.unwrap_or_default()), best))
        })
        .collect();
    let longest = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0);
    let spark = rows.iter().map(|r| r.1.chars().count()).max().unwrap_or(0);
    let column = 4 + longest + spark;
    lower_bounds(page, curves);
    let head = format!("  {:longest$}  {:>spark$}", "", tail("last", "of peak"));
    if rows.len() > 6 && 2 * column + 2 <= page.width {
        let half = rows.len().div_ceil(2);
        page.line(&page.paint.dim(&format!("{head}  {head}")));
        for i in 0..half {
            let cell = |r: &(String, String, String)| format!("{:<longest$}  {:>spark$}", r.0, r.1);
            let right = rows.get(half + i).map(cell).unwrap_or_default();
            page.line(format!("  {}    {right}", cell(&rows[i])).trim_end());
        }
        return;
    }
    page.line(&page.paint.dim(&page.cut(&head)));
    for (name, spark_text, best) in rows {
        let text = format!("  {name:<longest$}  {spark_text:>spark$}");
        let room = page.width.saturating_sub(text.chars().count() + 2);
        let best = if best.chars().count() <= room {
            format!("  {}", page.paint.dim(&best))
        } else {
            String::new()
        };
        page.line(&format!("{}{best}", page.cut(&text)));
    }
}

/// The lines below which a figure of times has no value of a known kind; rates show their share of a
/// ceiling instead.
fn lower_bounds(page: &mut TermPage, curves: &CurvesBody) {
    if curves.better != BetterWhen::Lower || curves.ceilings.is_empty() {
        return;
    }
    let bound = |(name, value): &(String, f64)| format!("{name} {}", fmt::number(*value));
    let bounds: Vec<String> = curves.ceilings.iter().map(bound).collect();
    page.wrapped(" ", 1, &format!("lines: {}", fmt::list(&bounds)));
}

/// Bars compared with their ceiling, with the published value if known.
fn bars(page: &mut TermPage, figure: &Figure, all: &BarsBody) {
    page.heading(&figure.title, &all.unit);
    let longest = all.bars.iter().map(|b| b.label.chars().count()).max().unwrap_or(0);
    let longest = longest.min(page.width.saturating_sub(44));
    let (_, most) = pathline_explain::figure::extremes(
        &all.bars.iter().filter_map(|b| b.cell.ceiling.or(b.cell.value)).collect::<Vec<_>>(),
    );
    for bar in &all.bars {
        let label = draw::fit(&bar.label, longest);
        let Some(value) = bar.cell.value else {
            let why = bar.cell.absent.as_deref().unwrap_or("not measured");
            let text = page.cut(&format!("  {label:<longest$}  {why}"));
            page.line(&page.paint.dim(&text));
            continue;
        };
        let share = bar.cell.share_of_ceiling();
        let drawn = draw::bar(value / most, bar.cell.ceiling.map(|c| c / most));
        let percent = share.map_or(String::new(), fmt::percent);
        let published = bar
            .cell
            .published
            .as_ref()
            .map_or(String::new(), |p| format!("{} {}", p.kind.label(), fmt::number(p.value)));
        let drawn = page.paint.shaded(&drawn, share);
        let tail = format!("{:>6} {percent:>5}", fmt::number(value));
        // 44 columns for bar, value, mark and space; the published value follows if there is room.
        let room = page.width.saturating_sub(44 + longest + 2);
        let mark = bar.cell.suspect.as_ref().map(Suspicion::mark);
        let tail = mark
            .map_or(tail.clone(), |mark| format!("{tail} {}", page.paint.warn(&mark.to_string())));
        let published = if published.chars().count() <= room { published } else { String::new() };
        page.line(&format!("  {label:<longest$}  {drawn} {tail}  {published}"));
    }
}

/// Matrices that a terminal shows, in this order.
fn shown_matrices(report: &RunReport) -> Vec<(&Figure, &MatrixBody)> {
    let matrix = |figure| match (terminal_use(figure), &figure.body) {
        (TerminalUse::Matrix(place), FigureBody::Matrix(matrix)) => Some((place, figure, matrix)),
        _ => None,
    };
    let measured = report.figures.iter().filter(|f| f.has_value());
    let mut shown: Vec<(u8, &Figure, &MatrixBody)> = measured.filter_map(matrix).collect();
    shown.sort_by_key(|(place, ..)| *place);
    shown.into_iter().map(|(_, figure, matrix)| (figure, matrix)).collect()
}

/// Matrices of the long form: those of the first screen, then those without a place, in the order of the
/// page.
fn all_matrices(report: &RunReport) -> Vec<(&Figure, &MatrixBody)> {
    let mut all = shown_matrices(report);
    let rest = report.figures.iter().filter(|f| f.has_value());
    all.extend(rest.filter_map(|figure| match (terminal_use(figure), &figure.body) {
        (TerminalUse::ByForm, FigureBody::Matrix(matrix)) => Some((figure, matrix)),
        _ => None,
    }));
    all
}

/// Heat maps, two side by side if they fit, each with the classes of its paths.
fn matrices(page: &mut TermPage, report: &RunReport, verdict: &RunAnswer) {
    let RunAnswer { slow, covered, .. } = verdict;
    let mut blocks: Vec<Vec<(String, usize)>> = Vec::new();
    let shown = all_matrices(report);
    for &(figure, matrix) in &shown {
        match draw::heat_map(&figure.title, matrix, slow, page.paint, page.width) {
            Some(mut block) => {
                if blocks.is_empty() {
                    block.extend(page.paint.legend(matrix, slow));
                }
                let width = block.iter().map(|line| line.1).max().unwrap_or(0);
                let half = page.width.saturating_sub(3) / 2;
                // A table wider than its matrix would leave no room for a second matrix.
                let room = if width <= half { half } else { page.width };
                block.extend(first_screen::loss_table(matrix, covered, room, page.paint));
                blocks.push(block);
            }
            None => {
                page.heading(&figure.title, &matrix.unit);
                page.wrapped(" ", 1, &figure.finding);
            }
        }
    }
    if blocks.is_empty() {
        return;
    }
    page.gap();
    page.side_by_side(&blocks);
    if shown.iter().any(|(_, m)| m.cells.iter().flatten().any(|c| c.absent.is_some())) {
        page.line("x: not measured");
    }
}

/// Legend of the marks after values, if there are any.
fn marks(page: &mut TermPage, report: &RunReport) {
    let cells = || report.figures.iter().flat_map(Figure::cells);
    let suspects = || cells().filter_map(|c| c.suspect.as_ref());
    if suspects().any(|s| matches!(s, Suspicion::BeyondCeiling(_))) {
        page.line(&page.paint.warn("!: more than hardware can carry there"));
    }
    if suspects().any(|s| matches!(s, Suspicion::Busy(_))) {
        page.line(&page.paint.warn("~: other programs disturbed it"));
    }
    if suspects().any(|s| matches!(s, Suspicion::Unverified(_))) {
        page.line(&page.paint.warn("?: its bytes were not verified"));
    }
    if suspects().any(|s| matches!(s, Suspicion::Assumed)) {
        page.line(&page.paint.warn("*: rests on an assumed constant of the model"));
    }
}

/// Reasons by frequency, failures first: number of cases, suites, and the first text.
fn absences(page: &mut TermPage, report: &RunReport) {
    #[derive(Default)]
    struct CauseGroup<'a> {
        cases: usize,
        suites: BTreeSet<&'a str>,
        why: &'a str,
    }
    let mut causes: BTreeMap<(bool, String), CauseGroup<'_>> = BTreeMap::new();
    for absence in &report.absences {
        let why = fmt::reason(&absence.case, &absence.why);
        let group = causes.entry((!absence.faulted, fmt::cause(why))).or_default();
        group.cases += 1;
        group.why = why;
        group.suites.extend(absence.suites.first().map(String::as_str));
    }
    if causes.len() < 2 {
        return;
    }
    page.heading("Not measured", &fmt::count(report.absences.len(), "case"));
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|((skipped, _), group)| (*skipped, std::cmp::Reverse(group.cases)));
    for ((skipped, _), group) in causes.iter().take(MAX_REASONS) {
        let (mark, ended) = if *skipped { (" ", "skipped") } else { ("!", "failed") };
        let suites: Vec<&str> = group.suites.iter().copied().collect();
        let of =
            if suites.is_empty() { String::new() } else { format!(" of {}", suites.join(", ")) };
        page.wrapped(mark, 1, &format!("{} {ended}: {}{of}", group.cases, group.why));
    }
    more(page, causes.len(), MAX_REASONS, "cause");
}

/// The consequence of a kind of warning for the affected figures.
fn consequence(code: &str) -> &'static str {
    match code {
        "unsteady" => "two states or a change meanwhile; the median describes neither",
        "bimodal" => "two states; the median shows one of them",
        "drift" => "the machine changed meanwhile; the median lies between",
        "wandering" => "slow changes; the interval may be too narrow",
        "overhead" => "hardly longer than an empty operation; the rate is a lower bound",
        "busy" | "preempted" => "other programs took time; the figure is a lower bound",
        "not-migrated" => "pages were read in place: a rate of the link, not of migration",
        RunNote::OTHER_DOMAIN => "the memory of another NUMA domain was measured",
        "gpu-throttled" => "clocks were held down; the figure is a lower bound",
        "pcie-below-max" => "the link ran below its best; the figure is a lower bound",
        "beyond-ceiling" => "faster than hardware allows; the figure is wrong",
        "outliers" => "the mean and the tail are affected, the median is not",
        _ => "",
    }
}

/// Warnings by kind: consequence, affected figures, worst example, and the command that repeats the
/// measurement.
fn notes(page: &mut TermPage, report: &RunReport) {
    let groups = report.warnings_by_code();
    if groups.is_empty() {
        return;
    }
    page.heading("Warnings", &report.warnings.len().to_string());
    let mut figure_of: BTreeMap<String, &Figure> = BTreeMap::new();
    for figure in &report.figures {
        for case in figure.cells().filter_map(|cell| cell.case.as_ref()) {
            figure_of.entry(case.to_string()).or_insert(figure);
        }
    }
    for (code, warnings) in groups.iter().take(MAX_NOTES) {
        let Some(worst) = warnings.first() else { continue };
        let mut figures: BTreeMap<&str, usize> = BTreeMap::new();
        for warning in warnings {
            if let Some(figure) = figure_of.get(&warning.subject) {
                *figures.entry(figure.title.as_str()).or_default() += 1;
            }
        }
        let mut figures: Vec<(&str, usize)> = figures.into_iter().collect();
        figures.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let shown: Vec<String> = figures
            .iter()
            .take(MAX_AFFECTED)
            .map(|(title, n)| if *n == 1 { (*title).to_owned() } else { format!("{title} ({n})") })
            .collect();
        let rest = figures.len().saturating_sub(MAX_AFFECTED);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let affected =
            if shown.is_empty() { String::new() } else { format!(" in {}", shown.join("; ")) };
        let number =
            if warnings.len() > 1 { format!("{} x ", warnings.len()) } else { String::new() };
        let follows = match consequence(code) {
            "" => String::new(),
            text => format!(": {text}"),
        };
        page.wrapped(&page.paint.warn("!"), 1, &format!("{number}{code}{affected}{rest}{follows}"));
        let is_long = worst.subject.chars().count() > LONGEST_CASE;
        let subject = match worst.subject.split_once(" & ").filter(|_| is_long) {
            Some((first, rest)) => format!("{first} and {} more", 1 + rest.matches(" & ").count()),
            None => worst.subject.clone(),
        };
        page.wrapped(" ", 1, &format!("{} ({subject})", worst.text));
        if let Some(figure) = figure_of.get(&worst.subject) {
            let again = match is_long {
                true => figure.command.clone(),
                false => format!("pathline run {}", shell_word(&worst.subject)),
            };
            page.command("again:", &again);
        }
    }
    more(page, groups.len(), MAX_NOTES, "kind");
}

fn more(page: &mut TermPage, all: usize, shown: usize, noun: &str) {
    if all > shown {
        let text =
            format!("  and {} in the report", fmt::count(all - shown, &format!("more {noun}")));
        page.line(&page.paint.dim(&text));
    }
}

/// The files of a run: one line of names and paths.
pub fn files(files: &[(&str, &str)]) -> String {
    files.iter().map(|(name, path)| format!("{name} {path}")).collect::<Vec<_>>().join("   ")
}
