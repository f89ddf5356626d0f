//! The first screen: identity, verdict, actions, headline values and one matrix, in at most
//! [`MAX_LINES`] lines.

use pathline_explain::figure::{
    Figure, FigureBody, Headline, HeadlineTone, LossClassRow, MatrixBody, RunIdentity, RunReport,
    Suspicion,
};
use pathline_explain::fmt;
use pathline_explain::loss_breakdown::loss_classes;
use pathline_findings::{
    ExpectedGain, Finding, FindingSeverity, GainBasis, RunAnswer, RunConclusions, SummaryTile,
};
use pathline_schema::{Case, NodeVerdict};

use super::draw::{self, TermColumn, TermPage, TermPaint, TermTable};

/// Findings and sentences with one line each, behind the findings with all of theirs.
const MAX_LISTED: usize = 12;
/// Maximum lines of the screen up to its figure; the list and two lines with file names follow.
const MAX_LINES: usize = 38;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 5;

/// Maximum number of findings while details of headline values still need room.
const ENOUGH_FINDINGS: usize = 3;

/// Maximum number of sentences that replace missing findings.
const MAX_SENTENCES: usize = 8;

/// Lines with their visible width.
type TermLines = Vec<(String, usize)>;

/// Conclusions of a run, at most `width` columns wide (72 to 200) and 38 lines long, in ANSI 256
/// colours if `colour`. [`super::summary`] is the long form.
pub fn first_screen(
    report: &RunReport,
    conclusions: &RunConclusions,
    width: usize,
    colour: bool,
) -> String {
    let paint = TermPaint { colour };
    let mut page = TermPage::new(width, paint);
    head(&mut page, report);
    verdict(&mut page, &conclusions.verdict);
    // Other programs that left the GPUs alone are named behind what is said of these.
    let on_host = report.busy.as_ref().is_some_and(|busy| !busy.effect.contains("GPU results"));
    let busy_last = on_host && !report.identity.gpus.is_empty();
    if !busy_last {
        busy(&mut page, report);
    }
    let shown = main_figure(report, &conclusions.verdict.slow);
    let last = footer(report, shown.is_some());
    // Two lines for the last sentence, and a gap.
    let most = MAX_LINES.saturating_sub(page.lines() + 3);
    let trials: Vec<TermPage> = (conclusions.findings.iter().take(MAX_FINDINGS).enumerate())
        .map(|(at, finding)| {
            let mut trial = TermPage::new(page.width, paint);
            write_finding(&mut trial, at + 1, &brief(finding), true);
            trial
        })
        .collect();
    let layouts = ScreenLayout::candidates(conclusions, shown, page.width, paint);
    // The first layout with room for enough findings, else the one with the most room.
    let fit = |layout: &ScreenLayout| count_fitting(&trials, most.saturating_sub(layout.lines()));
    let enough = layouts.iter().map(fit).max().unwrap_or(0).min(ENOUGH_FINDINGS);
    let Some(layout) = layouts.into_iter().find(|layout| fit(layout) >= enough) else {
        return page.finish();
    };
    let best = fit(&layout);
    let room = page.lines() + most.saturating_sub(layout.lines());
    page.gap();
    trials.into_iter().take(best).for_each(|trial| page.append(trial));
    // Sentences partly repeat findings and tables: they only fill the remaining lines.
    sentences(&mut page, report, best, room);
    layout.write(&mut page);
    let listed = list_further(&mut page, &conclusions.findings, best, report);
    if busy_last {
        page.gap();
        busy(&mut page, report);
    }
    page.gap();
    let left = conclusions.findings.len().saturating_sub(best + listed);
    let more = (left > 0).then(|| fmt::count(left, "more finding"));
    let last: Vec<String> = more.into_iter().chain(last).collect();
    if !last.is_empty() {
        page.wrapped(&paint.dim("--full:"), 7, &last.join(", "));
    }
    if report.identity.gpus.is_empty() && report.simulated.is_none() {
        page.wrapped(
            "No GPU here:",
            12,
            "`pathline run -m mi250x` measures a simulated node of eight GCDs.",
        );
    }
    page.finish()
}

/// A line for each further finding, then for the sentences that no finding says; the number of findings.
fn list_further(
    page: &mut TermPage,
    findings: &[Finding],
    shown: usize,
    report: &RunReport,
) -> usize {
    let said = report.headlines.iter().filter(|headline| headline.is_listed);
    let room = MAX_LISTED - said.clone().count().min(MAX_LISTED / 2);
    let further = findings.iter().enumerate().skip(shown).take(room);
    let listed = further.len();
    page.gap();
    for (at, finding) in further {
        let number = format!("{}.", at + 1);
        page.wrapped(&number, number.len(), &finding.short);
    }
    said.take(MAX_LISTED - listed).for_each(|headline| super::headline(page, headline));
    listed
}

/// Number of findings that fit in `room` lines, including the gap before them. At least the first
/// one is shown.
fn count_fitting(trials: &[TermPage], room: usize) -> usize {
    let mut used = 1;
    let fits = |trial: &&TermPage| {
        used += trial.lines();
        used <= room
    };
    trials.iter().take_while(fits).count().max(trials.len().min(1))
}

/// Node, devices, driver, date, and reasons to distrust all figures.
pub(super) fn head(page: &mut TermPage, report: &RunReport) {
    let RunIdentity { node, gpus, packages, rank_gpus, processor, driver, .. } = &report.identity;
    let RunIdentity { ranks, nodes, started, duration, version, .. } = &report.identity;
    let processes = match (*ranks, *nodes) {
        (0, _) => String::new(),
        (ranks, 0 | 1) => fmt::count(ranks, "rank"),
        (ranks, nodes) => format!("{} on {nodes} nodes", fmt::count(ranks, "rank")),
    };
    let mut parts = vec![gpus, driver, &processes];
    if gpus.is_empty() || page.width >= 120 {
        parts.insert(1, processor);
    }
    let parts: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let what = parts.join(" · ");
    let name = draw::fit(&format!("pathline: {node}"), page.width);
    let room = page.width.saturating_sub(name.chars().count() + 3);
    let (name, narrow) = (page.paint.bold(&name), what.chars().count() > room);
    match (what.is_empty(), narrow) {
        (true, _) => page.line(&name),
        (false, false) => page.line(&format!("{name} · {what}")),
        (false, true) => {
            page.line(&name);
            page.wrapped(" ", 1, &what);
        }
    }
    let duration = if duration.is_empty() { String::new() } else { format!("took {duration}") };
    let version = if version.is_empty() { String::new() } else { format!("pathline {version}") };
    let facts: Vec<&str> = [started.as_str(), &duration, &version]
        .into_iter()
        .filter(|fact| !fact.is_empty())
        .collect();
    if !facts.is_empty() {
        page.line(&page.paint.dim(&page.cut(&facts.join(" · "))));
    }
    for line in [packages, rank_gpus].into_iter().filter(|line| !line.is_empty()) {
        page.line(&page.paint.dim(&page.cut(line)));
    }
    if let Some(machine) = &report.simulated {
        let text = format!("SIMULATED: a model of {machine}, not measured on hardware");
        page.line(&page.paint.banner(&draw::fit(&text, page.width - 2)));
    }
    if !report.complete {
        page.line(
            &page.paint.warn("The run did not end as planned: these are the figures so far."),
        );
    }
}

/// The verdict, in one sentence.
pub(super) fn verdict(page: &mut TermPage, verdict: &RunAnswer) {
    if verdict.reason.is_empty() {
        return;
    }
    let Some(state) = verdict.state else {
        // Nobody asked for one: what was measured stands without it.
        let lines = draw::wrap(&fmt::sentence(&verdict.reason), page.width);
        return lines.iter().for_each(|line| page.line(line));
    };
    let label = state.word();
    let mark = match state {
        NodeVerdict::Ok => page.paint.good(label),
        NodeVerdict::Suspect | NodeVerdict::Fail => page.paint.bad(label),
        NodeVerdict::Undecided => page.paint.warn(label),
    };
    page.wrapped(&format!("{mark}:"), label.chars().count() + 1, &verdict.reason);
}

/// What other programs disturbed.
pub(super) fn busy(page: &mut TermPage, report: &RunReport) {
    if let Some(busy) = &report.busy {
        page.wrapped(&page.paint.warn("BUSY:"), 5, &busy.text());
    }
}

/// Sentences about the run, in lines up to `end`: warnings first, then others if there are few
/// findings.
fn sentences(page: &mut TermPage, report: &RunReport, findings: usize, end: usize) {
    let is_warning = |h: &&Headline| h.tone == HeadlineTone::Warn;
    let warnings = report.headlines.iter().filter(is_warning);
    let others = report.headlines.iter().filter(|h| !is_warning(h) && !h.is_listed);
    let others = others.take(if findings < 2 { MAX_SENTENCES } else { 0 });
    for headline in warnings.chain(others).take(MAX_SENTENCES) {
        let mut trial = TermPage::new(page.width, page.paint);
        super::headline(&mut trial, headline);
        if page.lines() + trial.lines() <= end {
            page.append(trial);
        }
    }
    if findings == 0 && report.headlines.iter().all(|headline| is_warning(&headline)) {
        page.line(match report.figures.is_empty() {
            true => "No figures.",
            false => "Nothing to act on was found.",
        });
    }
}

/// A finding with the first clause of its cost; the long form and the page have all.
fn brief(finding: &Finding) -> Finding {
    let cost = finding.cost.split("; ").next().unwrap_or_default().to_owned();
    Finding { cost, ..finding.clone() }
}

/// A finding: observation and cause, then action and gain. Of a setting by size, a brief one has the table alone, which
/// has what the sentence says.
pub(super) fn write_finding(page: &mut TermPage, number: usize, finding: &Finding, is_brief: bool) {
    let mark = match finding.severity {
        FindingSeverity::Fault => page.paint.warn(&format!("{number}!")),
        FindingSeverity::Gain => page.paint.good(&format!("{number}.")),
        FindingSeverity::Note => page.paint.dim(&format!("{number}.")),
    };
    let indent = number.to_string().len() + 1;
    let sentence = |text: &str| text.trim_end_matches('.').to_owned();
    let mut first = sentence(&finding.observation);
    if !finding.cause.is_empty() {
        first += &format!(" → {}", sentence(&finding.cause));
    }
    page.wrapped(&mark, indent, &first);
    let gain = finding.gain.as_ref().map(describe_gain);
    let cost = (!finding.cost.is_empty()).then(|| format!("cost: {}", sentence(&finding.cost)));
    let gain: Vec<String> = gain.into_iter().chain(cost).collect();
    let action = sentence(&finding.action);
    let second = match (action.is_empty(), gain.is_empty()) {
        (true, true) => return,
        (true, false) => gain.join("; "),
        (false, true) => action,
        (false, false) => format!("{action} → {}", gain.join("; ")),
    };
    let arrow = format!("{:>indent$} {}", "", page.paint.bold("→"));
    page.wrapped(&arrow, indent + 2, &second);
    let by_size = finding.by_size.as_ref();
    if let Some((effects, (verdict, table))) = by_size.and_then(|e| Some((e, e.answer()?))) {
        let last = verdict.rsplit_once(". ").filter(|_| is_brief);
        let brief = last.map(|(_, last)| format!("{} by size. {last}", effects.setting()));
        page.wrapped(&arrow, indent + 2, brief.as_ref().unwrap_or(&verdict));
        table.iter().for_each(|line| page.line(&format!("{:indent$} {line}", "")));
    }
}

/// `1.5 to 3.1x (predicted)`.
pub(crate) fn describe_gain(gain: &ExpectedGain) -> String {
    let (low, high) = (fmt::number(gain.factor.0), fmt::number(gain.factor.1));
    let range = if low == high { format!("{low}x") } else { format!("{low} to {high}x") };
    match gain.basis {
        GainBasis::Measured => format!("{range} (measured)"),
        GainBasis::Predicted => format!("{range} (predicted)"),
        GainBasis::Simulated => format!("{range} (simulated)"),
    }
}

/// Name, value, interval, slowest peer, shares of peak and of the model, what was measured.
pub(crate) fn tile_cells(tile: &SummaryTile) -> [String; 7] {
    let percent = |share: Option<f64>| share.map_or_else(String::new, fmt::percent);
    let relative = tile.half_width.map(|half| half / tile.value);
    [
        tile.name.clone(),
        format!("{} {}", fmt::number(tile.value), tile.unit),
        relative.map_or_else(String::new, |relative| format!("±{}", fmt::percent(relative))),
        tile.slowest.map_or_else(String::new, fmt::number),
        percent(tile.share_of_peak),
        percent(tile.share_of_model),
        tile.detail.clone(),
    ]
}

/// The headline values as a table. If it is too wide, the details are dropped last; in a narrow
/// table first.
fn tile_table(
    conclusions: &RunConclusions,
    width: usize,
    paint: TermPaint,
    is_narrow: bool,
) -> TermLines {
    let tiles = &conclusions.tiles;
    if tiles.is_empty() {
        return Vec::new();
    }
    // The best value of a node with a slow path says least without the worst.
    let (worst, rank) =
        if conclusions.verdict.slow.is_empty() { ("slowest", 3) } else { ("worst", 0) };
    let rows: Vec<[String; 7]> = tiles.iter().map(tile_cells).collect();
    let column = |at: usize, head, rank, right| TermColumn {
        head,
        rank,
        right,
        cells: rows.iter().filter_map(|row| row.get(at).cloned()).collect(),
    };
    let table = TermTable::new([
        column(0, "", 0, false),
        column(1, "", 0, true),
        column(2, "±95 %", 2, true),
        column(3, worst, rank, true),
        column(4, "of peak", 1, true),
        column(5, "of model", 3, true),
        column(6, "", if is_narrow { 4 } else { 0 }, false),
    ]);
    table.lines(width, paint)
}

/// The classes of paths in a matrix of rates by their limits, unless all reach their peak.
pub(super) fn loss_table(
    matrix: &MatrixBody,
    slow: &[Case],
    width: usize,
    paint: TermPaint,
) -> TermLines {
    let rows = loss_classes(matrix.cells.iter().flatten(), slow);
    // Shares of a rate have no peak of a link.
    if rows.is_empty() || !matrix.unit.contains("GB/s") {
        return Vec::new();
    }
    let column = |head, rank, right, of: &dyn Fn(&LossClassRow) -> String| TermColumn {
        head,
        rank,
        right,
        cells: rows.iter().map(of).collect(),
    };
    let range = |(low, high): (f64, f64)| fmt::range(low, high);
    let hop = |row: &LossClassRow| {
        format!("{}{}", row.hop, if row.forwarded { ", forwarded" } else { "" })
    };
    let pairs = |row: &LossClassRow| match row.slow {
        0 => row.paths.to_string(),
        slow => format!("{}+{slow}!", row.paths),
    };
    let held_by = |row: &LossClassRow| match row.held_by.as_str() {
        "" => "links".to_owned(),
        by => by.to_owned(),
    };
    let table = TermTable::new([
        column("narrowest hop", 0, false, &hop),
        column("pairs", 1, true, &pairs),
        column("peak", 0, true, &|row| range(row.peak)),
        column("after protocol", 4, true, &|row| range(row.after_protocol)),
        column("limit", 3, true, &|row| row.limit.map_or_else(String::new, range)),
        column("measured", 0, true, &|row| range(row.measured)),
        column("of peak", 2, true, &|row| fmt::percent_range(row.share)),
        column("limited by", 0, false, &held_by),
    ]);
    table.lines(width, paint)
}

/// Arrangement of the parts below the findings.
struct ScreenLayout {
    /// Headline values above the figure.
    above: TermLines,
    figure: TermLines,
    /// Parts to the right of the figure.
    right: TermLines,
    /// Parts below the figure.
    below: TermLines,
}

/// Minimum columns for headline values to the right of a figure.
const LEAST_TILES: usize = 30;

/// Columns of the longest line.
fn columns(lines: &TermLines) -> usize {
    lines.iter().map(|line| line.1).max().unwrap_or(0)
}

impl ScreenLayout {
    /// Headline values above the figure, with the classes of its paths to the right or below; or
    /// headline values to the right of the figure, which takes fewer lines and columns.
    fn candidates(
        conclusions: &RunConclusions,
        shown: Option<MainFigure<'_>>,
        width: usize,
        paint: TermPaint,
    ) -> Vec<Self> {
        let above = tile_table(conclusions, width, paint, false);
        let RunAnswer { slow, covered, .. } = &conclusions.verdict;
        let figure = shown.map_or_else(Vec::new, |figure| draw_figure(figure, slow, width, paint));
        let losses = shown.and_then(MainFigure::matrix);
        let losses =
            losses.map_or_else(Vec::new, |matrix| loss_table(matrix, covered, width, paint));
        // One class repeats what the values say: a heading and a line.
        let losses = if losses.len() > 2 { losses } else { Vec::new() };
        let room = width.saturating_sub(columns(&figure) + 3);
        let is_abreast = !losses.is_empty() && columns(&losses) <= room;
        let (right, below) = match is_abreast {
            true => (losses.clone(), Vec::new()),
            false => (Vec::new(), losses.clone()),
        };
        let first = Self { above, figure: figure.clone(), right, below };
        if conclusions.tiles.is_empty() || figure.is_empty() || room < LEAST_TILES {
            return vec![first];
        }
        let right = tile_table(conclusions, room, paint, true);
        vec![first, Self { above: Vec::new(), figure, right, below: losses }]
    }
    /// Number of lines including gaps.
    fn lines(&self) -> usize {
        let block = |lines: usize| if lines == 0 { 0 } else { lines + 1 };
        block(self.above.len()) + block(self.figure.len().max(self.right.len())) + self.below.len()
    }
    fn write(self, page: &mut TermPage) {
        if !self.above.is_empty() {
            page.gap();
            self.above.iter().for_each(|line| page.line(&line.0));
        }
        if self.figure.is_empty() {
            return;
        }
        page.gap();
        if self.right.is_empty() {
            self.figure.iter().for_each(|line| page.line(&line.0));
        } else {
            page.side_by_side(&[self.figure, self.right]);
            page.end_gap();
        }
        self.below.iter().for_each(|line| page.line(&line.0));
    }
}

/// The figure of the first screen.
#[derive(Clone, Copy)]
enum MainFigure<'a> {
    Matrix(&'a Figure, &'a MatrixBody),
    Other(&'a Figure),
}

impl<'a> MainFigure<'a> {
    fn matrix(self) -> Option<&'a MatrixBody> {
        match self {
            Self::Matrix(_, matrix) => Some(matrix),
            Self::Other(_) => None,
        }
    }
}

/// The matrix with the slowest path if there is one, else any with slow paths, else copies between GPUs if
/// measured, else the first matrix, else the first figure.
fn main_figure<'a>(report: &'a RunReport, slow: &[Case]) -> Option<MainFigure<'a>> {
    let shown = super::shown_matrices(report);
    let has = |(figure, _): &(&Figure, &MatrixBody), slow: &[Case]| {
        let mut cases = figure.cells().filter_map(|cell| cell.case.as_ref());
        cases.any(|case| slow.contains(case))
    };
    let of_gpus = || shown.iter().find(|(figure, _)| figure.id.starts_with("pairs-"));
    let all = super::all_matrices(report);
    let worst = slow.get(..1).unwrap_or_default();
    let with_slow = [worst, slow].into_iter().find_map(|of| all.iter().find(|one| has(one, of)));
    let chosen = with_slow.or_else(of_gpus).or_else(|| shown.first());
    if let Some(&(figure, matrix)) = chosen {
        return Some(MainFigure::Matrix(figure, matrix));
    }
    let drawn = |figure: &&Figure| {
        let rows = match &figure.body {
            FigureBody::Curves(curves) => curves.lines.len(),
            FigureBody::Bars(bars) => bars.bars.len(),
            FigureBody::Sheet(sheet) => sheet.rows.len(),
            FigureBody::Panels(panels) => panels.panels.len(),
            _ => 0,
        };
        figure.has_value() && rows > 0 && super::is_drawn(figure)
    };
    let other = report.figures.iter().find(drawn).map(MainFigure::Other);
    let matrix = || super::all_matrices(report).first().map(|(f, m)| MainFigure::Matrix(f, m));
    other.or_else(matrix)
}

/// A figure and its legend.
fn draw_figure(figure: MainFigure<'_>, slow: &[Case], width: usize, paint: TermPaint) -> TermLines {
    let mut page = TermPage::new(width, paint);
    match figure {
        MainFigure::Matrix(figure, matrix) => {
            let Some(mut block) = draw::heat_map(&figure.title, matrix, slow, paint, width) else {
                page.heading(&figure.title, &matrix.unit);
                page.wrapped(" ", 1, &figure.finding);
                return page.into_lines();
            };
            block.extend(paint.legend(matrix, slow));
            if matrix.cells.iter().flatten().any(|c| c.suspect == Some(Suspicion::Assumed)) {
                let text = "*: rests on a constant of the model that nobody measured";
                block.extend(draw::wrap(text, width).into_iter().map(|line| {
                    let columns = line.chars().count();
                    (line, columns)
                }));
            }
            block
        }
        MainFigure::Other(figure) => {
            super::picture(&mut page, figure);
            page.into_lines()
        }
    }
}

/// The warnings in one text, by what they change: `12 warnings (9 unsteady, 3 lower bounds)`.
pub(crate) fn warnings_by_effect(report: &RunReport) -> Option<String> {
    const EFFECTS: [(&str, &[&str]); 3] = [
        ("unsteady", &["unsteady", "drift", "bimodal", "wandering", "slower-when-compared"]),
        ("lower bounds", &["overhead", "gpu-throttled", "pcie-below-max", "pages"]),
        ("disturbed", &["preempted", "remeasured"]),
    ];
    let groups = report.warnings_by_code();
    let count = |is: &dyn Fn(&str) -> bool| -> usize {
        groups.iter().filter(|(code, _)| is(code)).map(|(_, all)| all.len()).sum()
    };
    let mut parts: Vec<String> = EFFECTS
        .iter()
        .map(|(effect, codes)| (effect, count(&|code| codes.contains(&code))))
        .filter(|(_, n)| *n > 0)
        .map(|(effect, n)| format!("{n} {effect}"))
        .collect();
    let others = count(&|code| EFFECTS.iter().all(|(_, codes)| !codes.contains(&code)));
    if others > 0 && !parts.is_empty() {
        parts.push(format!("{others} other"));
    }
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let all = report.warnings.len();
    (all > 0).then(|| format!("{}{parts}", fmt::count(all, "warning")))
}

/// Further contents of the long form and the page.
fn footer(report: &RunReport, shown: bool) -> Vec<String> {
    // Some figures are on the page alone.
    let figures = report.figures.iter().filter(|figure| super::is_drawn(figure)).count();
    let figures = figures.saturating_sub(usize::from(shown));
    let mut parts = Vec::new();
    if figures > 0 {
        parts.push(fmt::count(figures, "more figure"));
    }
    parts.extend(warnings_by_effect(report));
    if !report.absences.is_empty() {
        parts.push(format!("{} without a result", fmt::count(report.absences.len(), "case")));
    }
    parts
}
