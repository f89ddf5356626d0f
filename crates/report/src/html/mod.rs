//! The report as one HTML file that works without network and without scripts; scripts add comfort.
//!
//! `build::HtmlBuilder` escapes everything from records, and the page's policy forbids all
//! requests, so that a hostile host name or error text can neither load nor send anything.

pub mod diff;
pub mod model_agreement;
pub mod scores;

mod absences;
mod bars;
mod build;
mod cell;
mod colour;
mod curves;
mod gaps;
mod head;
mod loss_picture;
mod machine;
mod matrix;
mod number;
mod page;
mod pair_maps;
mod panels;
mod scale;
mod several;
mod sheet;
mod stacks;
mod table;

#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;

pub use page::is_page;
pub use several::{MAX_RUNS, PageRun, render_several};

use std::collections::BTreeMap;

use pathline_schema::Topology;

use build::{HtmlBuilder, anchor};
use cell::{CellJudge, PageContext};
use number::{count, percent, signed_percent};
use pathline_explain::figure::{BetterWhen, Figure, FigureBody, RunReport, RunWarning};
use pathline_explain::fmt;
use pathline_explain::loss_breakdown::loss_classes;
use pathline_findings::RunConclusions;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const METHOD: &str = include_str!("method.html");

/// Forbids all requests.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Renders a report. `map_svg` is the drawing of the node, an `<svg>` element that is inserted
/// unchanged; `None` omits the map. Equal reports give identical bytes.
pub fn render(
    report: &RunReport,
    conclusions: &RunConclusions,
    topology: &Topology,
    map_svg: &str,
) -> String {
    let plan = PagePlan::from_report(report);
    let warnings = warnings_by_case(report);
    let page = PageContext { simulated: report.simulated.is_some(), warnings: Some(&warnings) };
    let world = if page.simulated { "SIMULATED, " } else { "" };
    let title = format!("{world}{} - pathline", report.title);
    page::document(&title, &style_rules([report]), |h| {
        h.trusted("<a class=\"skip-link\" href=\"#content\">Skip to content</a>");
        write_banner(h, report);
        h.el("div", &[("class", &"page")], |h| {
            write_nav(h, report, &plan);
            h.el("main", &[("id", &"content"), ("class", &"body")], |h| {
                head::write(h, report, conclusions, &|figure| plan.anchor_of(figure));
                section(h, SECTIONS[0], |h| machine::write(h, topology, &report.gpus, map_svg));
                write_body(h, report, &plan, page);
            });
        });
    })
}

/// Style rules of one page, added to those of every page.
fn style_rules<'a>(reports: impl IntoIterator<Item = &'a RunReport>) -> String {
    let lines = reports.into_iter().flat_map(|r| &r.figures).map(|f| match &f.body {
        FigureBody::Curves(c) => c.lines.len(),
        FigureBody::Panels(p) => p.line_names().len(),
        _ => 0,
    });
    let most = lines.max().unwrap_or(0);
    colour::rules() + &pair_maps::rules() + &curves::switch_rules(most)
}

/// Warnings about single cases, by case text.
fn warnings_by_case(report: &RunReport) -> BTreeMap<String, String> {
    let about_case = |w: &&RunWarning| w.subject.contains(" by ");
    let warnings = report.warnings.iter().filter(about_case);
    warnings.map(|w| (w.subject.clone(), format!("{}: {}", w.code, w.text))).collect()
}

/// The figures to show, with anchors, by suite in the order of the report.
struct PagePlan<'a> {
    suites: Vec<SuiteSection<'a>>,
}

struct SuiteSection<'a> {
    name: &'a str,
    anchor: String,
    items: Vec<PageItem<'a>>,
}

/// An entry of the contents.
enum PageItem<'a> {
    /// A figure with its anchor.
    Single(String, &'a Figure),
    /// All maps of GPU pairs: the common anchor, and each map with its own.
    PairMaps(String, Vec<(String, &'a Figure)>),
}

impl PageItem<'_> {
    fn anchor(&self) -> &str {
        match self {
            Self::Single(anchor, _) | Self::PairMaps(anchor, _) => anchor,
        }
    }
    fn title(&self) -> &str {
        match self {
            Self::Single(_, figure) => &figure.title,
            Self::PairMaps(..) => "Between GPUs: all pairs",
        }
    }
    fn figures(&self) -> Vec<(&str, &Figure)> {
        match self {
            Self::Single(anchor, figure) => vec![(anchor, figure)],
            Self::PairMaps(_, all) => all.iter().map(|(anchor, f)| (anchor.as_str(), *f)).collect(),
        }
    }
}

/// Anchors of the sections on every page.
const SECTIONS: [(&str, &str); 5] = [
    ("node", "The node"),
    ("absences", "Skips and faults"),
    ("warnings", "Warnings"),
    ("conditions", "Conditions"),
    ("method", "How a number is made"),
];

/// Further anchors on every page.
const ANCHORS: [&str; 5] = ["content", "tip", "top", "findings", "contents"];

impl<'a> PagePlan<'a> {
    fn from_report(report: &'a RunReport) -> Self {
        let mut taken: Vec<String> = SECTIONS.iter().map(|(id, _)| (*id).to_owned()).collect();
        taken.extend(ANCHORS.map(str::to_owned));
        let mut suites: Vec<SuiteSection<'a>> = Vec::new();
        for figure in &report.figures {
            let known = suites.iter().position(|s| s.name == figure.suite);
            let at = known.unwrap_or_else(|| {
                let anchor = anchor(&format!("suite {}", figure.suite), &mut taken);
                suites.push(SuiteSection { name: &figure.suite, anchor, items: Vec::new() });
                suites.len() - 1
            });
            let id = anchor(&figure.id, &mut taken);
            let Some(suite) = suites.get_mut(at) else { continue };
            let maps = suite.items.iter_mut().find_map(|item| match item {
                PageItem::PairMaps(_, maps) => Some(maps),
                PageItem::Single(..) => None,
            });
            match maps {
                _ if !pair_maps::is_pair_map(figure) => {
                    suite.items.push(PageItem::Single(id, figure));
                }
                // A figure's name is unique, unless a report is damaged.
                Some(maps) if maps.iter().any(|(_, f)| f.id == figure.id) => {
                    suite.items.push(PageItem::Single(id, figure));
                }
                Some(maps) => maps.push((id, figure)),
                None => {
                    let whole = anchor("pair maps", &mut taken);
                    suite.items.push(PageItem::PairMaps(whole, vec![(id, figure)]));
                }
            }
        }
        Self { suites }
    }

    /// The anchor of a figure, if it is on the page.
    fn anchor_of(&self, figure: &str) -> Option<String> {
        let items = self.suites.iter().flat_map(|s| &s.items);
        let mut figures = items.flat_map(PageItem::figures);
        figures.find(|(_, f)| f.id == figure).map(|(anchor, _)| anchor.to_owned())
    }
}

fn write_banner(h: &mut HtmlBuilder, report: &RunReport) {
    if let Some(busy) = &report.busy {
        h.el("div", &[("class", &"banner busy"), ("role", &"alert")], |h| {
            h.leaf("strong", &[], "Busy").text(" ");
            h.leaf("span", &[], fmt::sentence(&busy.text()));
        });
    }
    if let Some(machine) = &report.simulated {
        h.el("div", &[("class", &"banner simulated"), ("role", &"note")], |h| {
            h.leaf("strong", &[], "Simulated").text(" ");
            h.el("span", &[], |h| {
                h.text("Every figure on this page comes from the model of ");
                h.leaf("b", &[], machine);
                h.text(". Nothing here was measured on hardware.");
            });
        });
    }
    if !report.complete {
        h.el("div", &[("class", &"banner cut"), ("role", &"note")], |h| {
            h.leaf("strong", &[], "Incomplete").text(" ");
            let text =
                "The run ended before its plan did. Cases that are missing were not reached.";
            h.leaf("span", &[], text);
        });
    }
}

fn write_nav(h: &mut HtmlBuilder, report: &RunReport, plan: &PagePlan<'_>) {
    h.el("nav", &[("id", &"contents"), ("aria-label", &"Contents")], |h| {
        write_nav_head(h);
        h.el("ul", &[], |h| {
            nav_item(h, "top", "Overview", "");
            nav_item(h, "findings", "Findings", "");
            nav_item(h, "node", "The node", "");
            for suite in &plan.suites {
                h.el("li", &[], |h| {
                    h.el("details", &[("open", &"")], |h| {
                        h.el("summary", &[], |h| {
                            let href = format!("#{}", suite.anchor);
                            h.leaf("a", &[("href", &href)], suite.name);
                        });
                        h.el("ul", &[], |h| {
                            for item in &suite.items {
                                nav_item(h, item.anchor(), item.title(), "");
                            }
                        });
                    });
                });
            }
            nav_item(h, "absences", "Skips and faults", &report.absences.len().to_string());
            nav_item(h, "warnings", "Warnings", &report.warnings.len().to_string());
            nav_item(h, "conditions", "Conditions", "");
            nav_item(h, "method", "How a number is made", "");
        });
        h.leaf(
            "p",
            &[("class", &"js keys")],
            "Keys: / filter, j k next and previous figure, o open or fold, t top",
        );
    });
}

/// The bar above the contents: program name and filter.
fn write_nav_head(h: &mut HtmlBuilder) {
    h.leaf("p", &[("class", &"brand")], "pathline");
    h.trusted(
        "<p class=\"js find\"><input type=\"search\" data-find \
         placeholder=\"Filter: gpu3, SDMA  ( / )\" aria-label=\"Filter figures, rows and cells\"> \
         <span data-found role=\"status\"></span></p>",
    );
}

fn nav_item(h: &mut HtmlBuilder, id: &str, title: &str, number: &str) {
    h.el("li", &[], |h| {
        h.el("a", &[("href", &format!("#{id}"))], |h| {
            h.text(title);
            if !number.is_empty() {
                h.text(" ").leaf("span", &[("class", &"n")], number);
            }
        });
    });
}

fn write_body(h: &mut HtmlBuilder, report: &RunReport, plan: &PagePlan<'_>, page: PageContext<'_>) {
    h.leaf("p", &[("class", &"lead")], lead(report));
    for suite in &plan.suites {
        h.el("section", &[("id", &suite.anchor), ("class", &"suite")], |h| {
            h.leaf("h2", &[], suite.name);
            for (i, item) in suite.items.iter().enumerate() {
                write_item(h, item, i == 0, page);
            }
        });
    }
    section(h, SECTIONS[1], |h| absences::write(h, &report.absences));
    section(h, SECTIONS[2], |h| write_warnings(h, report));
    section(h, SECTIONS[3], |h| {
        machine::write_conditions(h, &report.conditions, report.state.as_ref());
    });
    section(h, SECTIONS[4], |h| {
        h.trusted(METHOD);
    });
}

fn section(h: &mut HtmlBuilder, (id, title): (&str, &str), body: impl FnOnce(&mut HtmlBuilder)) {
    h.el("section", &[("id", &id)], |h| {
        h.leaf("h2", &[], title);
        body(h);
    });
}

/// Contents of the page, in one line.
fn lead(report: &RunReport) -> String {
    let cells = report.figures.iter().flat_map(|f| cell::entries(&f.body));
    let values = cells.filter(|e| cell::value(e.cell).is_some()).count();
    let faults = report.absences.iter().filter(|a| a.faulted).count();
    [
        format!("{} in {}", count(values, "value"), count(report.figures.len(), "figure")),
        format!("{} failed", count(faults, "case")),
        format!("{} skipped", report.absences.len() - faults),
        count(report.warnings.len(), "warning"),
    ]
    .join(" · ")
}

/// A figure below its title; only the first of each suite is open.
fn write_item(h: &mut HtmlBuilder, item: &PageItem<'_>, open: bool, page: PageContext<'_>) {
    let brief = item.figures().first().map_or("", |(_, f)| first_sentence(&f.finding));
    h.el("article", &[("class", &"figure"), ("id", &item.anchor())], |h| {
        let body = |h: &mut HtmlBuilder| {
            h.el("summary", &[], |h| {
                h.el("h3", &[], |h| {
                    h.text(item.title());
                    if page.simulated {
                        h.text(" ").leaf("span", &[("class", &"chip sim")], "simulated");
                    }
                });
                h.text(" ").leaf("span", &[("class", &"brief")], brief);
            });
            match item {
                PageItem::Single(id, figure) => write_figure(h, id, figure, page),
                PageItem::PairMaps(id, maps) => pair_maps::write(h, maps, id, page),
            }
        };
        match open {
            true => h.el("details", &[("open", &"")], body),
            false => h.el("details", &[], body),
        };
    });
}

/// The first sentence of a text.
fn first_sentence(text: &str) -> &str {
    text.find(". ").and_then(|end| text.get(..=end)).unwrap_or(text)
}

fn write_figure(h: &mut HtmlBuilder, id: &str, figure: &Figure, page: PageContext<'_>) {
    let judge = cell::judge(&figure.body, page);
    let entries = cell::entries(&figure.body);
    if !figure.has_value() && !entries.is_empty() {
        write_nothing(h, &entries);
        return;
    }
    write_figure_body(h, id, figure, page);
    write_rest(h, figure, judge);
}

/// The finding and the picture of a figure.
fn write_figure_body(h: &mut HtmlBuilder, id: &str, figure: &Figure, page: PageContext<'_>) {
    let judge = cell::judge(&figure.body, page);
    h.leaf("p", &[("class", &"finding")], &figure.finding);
    match &figure.body {
        FigureBody::Matrix(m) => matrix::write(h, m, judge, (id, &figure.title)),
        FigureBody::Curves(c) => curves::write(h, c, judge, &figure.title),
        FigureBody::Bars(b) => bars::write(h, b, judge, &figure.title),
        FigureBody::Sheet(s) => sheet::write(h, s, page, &figure.title),
        FigureBody::Stacks(s) => stacks::write(h, s, page, &figure.title),
        FigureBody::Gaps(g) => gaps::write(h, g, judge, &figure.title),
        FigureBody::Panels(p) => panels::write(h, p, judge),
    }
    write_losses(h, figure, judge);
}

/// Loss of bandwidth in a figure, one picture for each class of paths.
fn write_losses(h: &mut HtmlBuilder, figure: &Figure, judge: CellJudge<'_>) {
    if matches!(figure.body, FigureBody::Matrix(_)) && judge.better == BetterWhen::Higher {
        loss_picture::write(h, &loss_classes(figure.cells()), judge);
    }
}

/// The parts after the picture of a figure: published values, table, command.
fn write_rest(h: &mut HtmlBuilder, figure: &Figure, judge: CellJudge<'_>) {
    let entries = cell::entries(&figure.body);
    if let Some(agreement) = cell::agreement(&entries) {
        write_agreement(h, &agreement);
    }
    table::write(h, &entries, &cell::key_names(&figure.body), judge);
    write_command(h, &figure.command);
}

/// A replacement for a figure without measured values: number of cases and reasons.
fn write_nothing(h: &mut HtmlBuilder, entries: &[cell::CellEntry<'_>]) {
    let why = |e: &cell::CellEntry<'_>| {
        let why = e.cell.absent.as_deref()?;
        Some(
            e.cell
                .case
                .as_ref()
                .map_or(why, |case| pathline_explain::fmt::reason(case, why))
                .to_owned(),
        )
    };
    let mut reasons: Vec<String> = entries.iter().filter_map(why).collect();
    reasons.sort();
    reasons.dedup();
    let more = match reasons.len() {
        0 | 1 => String::new(),
        n => format!(" ({} more)", count(n - 1, "reason")),
    };
    let first = reasons.into_iter().next().unwrap_or_default();
    h.el("p", &[("class", &"nothing")], |h| {
        h.text(format!("Not measured, {}: {first}{more} ", count(entries.len(), "case")));
        h.leaf("a", &[("href", &"#absences")], "all skips and faults");
    });
}

fn write_agreement(h: &mut HtmlBuilder, a: &cell::PublishedAgreement) {
    const SHOWN: usize = 3;
    let mut sources = a.sources.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if a.sources.len() > SHOWN {
        sources += &format!("; and {} more", a.sources.len() - SHOWN);
    }
    h.el("p", &[("class", &"agreement")], |h| {
        h.leaf("b", &[], "Compared with published values: ");
        h.text(format!(
            "{} compared, median deviation {}, greatest {} ({}). ",
            a.count,
            percent(a.median),
            signed_percent(a.worst),
            a.at
        ));
        h.leaf("span", &[("class", &"source")], sources);
    });
}

fn write_command(h: &mut HtmlBuilder, command: &str) {
    if command.is_empty() {
        return;
    }
    h.el("p", &[("class", &"command")], |h| {
        h.leaf("code", &[], command);
        h.trusted("<button type=\"button\" class=\"js\" data-copy=\"command\">Copy</button>");
    });
}

/// Warnings by kind.
fn write_warnings(h: &mut HtmlBuilder, report: &RunReport) {
    if report.warnings.is_empty() {
        h.leaf("p", &[("class", &"finding")], "No warning about this run or this node.");
        return;
    }
    for (code, warnings) in report.warnings_by_code() {
        h.el("details", &[("class", &"group")], |h| {
            h.el("summary", &[], |h| {
                h.leaf("b", &[("class", &"n")], warnings.len()).text(" ");
                h.leaf("b", &[], code);
                if let Some(worst) = warnings.first() {
                    h.text(format!(" {}: {}", worst.subject, worst.text));
                }
            });
            h.el("div", &[("class", &"scroll tall")], |h| {
                h.el("table", &[("class", &"rows warnings")], |h| write_warning_rows(h, &warnings));
            });
        });
    }
}

fn write_warning_rows(h: &mut HtmlBuilder, warnings: &[&RunWarning]) {
    h.trusted("<thead><tr><th scope=\"col\">about</th><th scope=\"col\">warning</th></tr></thead>");
    h.el("tbody", &[], |h| {
        for warning in warnings {
            h.el("tr", &[], |h| {
                h.leaf("th", &[("scope", &"row")], &warning.subject).leaf("td", &[], &warning.text);
            });
        }
    });
}
