//! The report as one HTML file that needs no network and, but for comfort, no scripts.
//!
//! Everything that comes from records is escaped by `build::HtmlBuilder`; the page also forbids
//! itself any request, so that a hostile host name or error text can load and send nothing.

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
mod machine;
mod matrix;
mod number;
mod page;
mod scale;
mod sheet;
mod stacks;
mod table;

#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;

pub use page::is_page;

use pathline_schema::Topology;

use build::{HtmlBuilder, anchor};
use number::{count, percent, signed_percent};
use pathline_explain::figure::{Figure, FigureBody, Headline, HeadlineTone, RunReport, RunWarning};
use pathline_explain::fmt;
use pathline_findings::RunConclusions;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const METHOD: &str = include_str!("method.html");

/// No request of any kind may leave the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Renders a report. `map_svg` is the drawing of the node, an `<svg>` element that is taken as it
/// is; without one the map is left out. The same report gives the same bytes.
pub fn render(
    report: &RunReport,
    conclusions: &RunConclusions,
    topology: &Topology,
    map_svg: &str,
) -> String {
    let plan = PagePlan::of(report);
    let world = if report.simulated.is_some() { "SIMULATED, " } else { "" };
    let most = report.figures.iter().map(|f| match &f.body {
        FigureBody::Curves(c) => c.lines.len(),
        _ => 0,
    });
    let rules = colour::rules() + &curves::switch_rules(most.max().unwrap_or(0));
    page::document(&format!("{world}{} - pathline", report.title), &rules, |h| {
        h.trusted("<a class=\"skip-link\" href=\"#content\">Skip to content</a>");
        write_banner(h, report);
        h.el("main", &[("id", &"content")], |h| {
            // Above the contents, so that the map has the whole width of the page.
            h.el("div", &[("class", &"top")], |h| {
                write_top(h, report, conclusions, topology, map_svg)
            });
            h.el("div", &[("class", &"page")], |h| {
                write_nav(h, report, &plan);
                h.el("div", &[("class", &"body")], |h| write_body(h, report, &plan));
            });
        });
    })
}

/// Figures with their anchors, by suite in the order of the report.
struct PagePlan<'a> {
    suites: Vec<SuiteSection<'a>>,
}

struct SuiteSection<'a> {
    name: &'a str,
    anchor: String,
    figures: Vec<(String, &'a Figure)>,
}

/// Anchors of the sections that every page has.
const SECTIONS: [(&str, &str); 5] = [
    ("node", "The node"),
    ("absences", "Skips and faults"),
    ("doubts", "Warnings"),
    ("conditions", "Conditions"),
    ("method", "How a number is made"),
];

impl<'a> PagePlan<'a> {
    fn of(report: &'a RunReport) -> Self {
        let mut taken: Vec<String> = SECTIONS.iter().map(|(id, _)| (*id).to_owned()).collect();
        taken.extend(["content".to_owned(), "tip".to_owned()]);
        let mut suites: Vec<SuiteSection<'a>> = Vec::new();
        for figure in &report.figures {
            let known = suites.iter().position(|s| s.name == figure.suite);
            let at = known.unwrap_or_else(|| {
                let anchor = anchor(&format!("suite {}", figure.suite), &mut taken);
                suites.push(SuiteSection { name: &figure.suite, anchor, figures: Vec::new() });
                suites.len() - 1
            });
            let id = anchor(&figure.id, &mut taken);
            if let Some(suite) = suites.get_mut(at) {
                suite.figures.push((id, figure));
            }
        }
        Self { suites }
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
            h.leaf(
                "span",
                &[],
                "The run ended before its plan did. What it had measured is here; cases that are \
                 missing were not reached.",
            );
        });
    }
}

fn write_nav(h: &mut HtmlBuilder, report: &RunReport, plan: &PagePlan<'_>) {
    h.el("nav", &[("aria-label", &"Contents")], |h| {
        h.leaf("p", &[("class", &"brand")], "pathline");
        h.el("ul", &[], |h| {
            nav_item(h, "node", "The node", "");
            for suite in &plan.suites {
                h.el("li", &[], |h| {
                    h.leaf("a", &[("href", &format!("#{}", suite.anchor))], suite.name);
                    h.el("ul", &[], |h| {
                        for (id, figure) in &suite.figures {
                            nav_item(h, id, &figure.title, "");
                        }
                    });
                });
            }
            let doubts = report.warnings.len();
            nav_item(h, "absences", "Skips and faults", &report.absences.len().to_string());
            nav_item(h, "doubts", "Warnings", &doubts.to_string());
            nav_item(h, "conditions", "Conditions", "");
            nav_item(h, "method", "How a number is made", "");
        });
    });
}

fn nav_item(h: &mut HtmlBuilder, id: &str, words: &str, number: &str) {
    h.el("li", &[], |h| {
        h.el("a", &[("href", &format!("#{id}"))], |h| {
            h.text(words);
            if !number.is_empty() {
                h.text(" ").leaf("span", &[("class", &"n")], number);
            }
        });
    });
}

fn write_top(
    h: &mut HtmlBuilder,
    report: &RunReport,
    conclusions: &RunConclusions,
    topology: &Topology,
    map: &str,
) {
    h.el("header", &[], |h| {
        h.leaf("h1", &[], &report.title);
        h.leaf("p", &[("class", &"lead")], lead(report));
        let verdict = &conclusions.verdict;
        h.leaf(
            "p",
            &[("class", &"verdict")],
            format!("{}: {}", verdict.state.label(), verdict.reason),
        );
        write_headlines(h, &report.headlines);
    });
    section(h, SECTIONS[0], |h| machine::write(h, topology, &report.gpus, map));
}

fn write_body(h: &mut HtmlBuilder, report: &RunReport, plan: &PagePlan<'_>) {
    for suite in &plan.suites {
        h.el("section", &[("id", &suite.anchor), ("class", &"suite")], |h| {
            h.leaf("h2", &[], suite.name);
            for (id, figure) in &suite.figures {
                write_figure(h, id, figure, report.simulated.is_some());
            }
        });
    }
    section(h, SECTIONS[1], |h| absences::write(h, &report.absences));
    section(h, SECTIONS[2], |h| write_doubts(h, report));
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

/// What the page holds, in one line.
fn lead(report: &RunReport) -> String {
    let cells = report.figures.iter().flat_map(|f| cell::entries(&f.body));
    let values = cells.filter(|e| cell::value(e.cell).is_some()).count();
    let faults = report.absences.iter().filter(|a| a.faulted).count();
    let doubts = report.warnings.len();
    [
        format!("{} in {}", count(values, "value"), count(report.figures.len(), "figure")),
        format!("{} failed", count(faults, "case")),
        format!("{} skipped", report.absences.len() - faults),
        count(doubts, "warning"),
    ]
    .join(" · ")
}

fn write_headlines(h: &mut HtmlBuilder, headlines: &[Headline]) {
    if headlines.is_empty() {
        return;
    }
    h.el("ul", &[("class", &"headlines")], |h| {
        for line in headlines {
            let (class, sign, word) = match line.tone {
                HeadlineTone::Good => ("good", "✓", "As it should be: "),
                HeadlineTone::Plain => ("plain", "•", ""),
                HeadlineTone::Warn => ("warn", "!", "Look closer: "),
            };
            h.el("li", &[("class", &class)], |h| {
                h.leaf("span", &[("class", &"sign"), ("aria-hidden", &"true")], sign);
                h.el("span", &[], |h| {
                    h.leaf("span", &[("class", &"sr")], word).text(&line.text);
                });
            });
        }
    });
}

fn write_figure(h: &mut HtmlBuilder, id: &str, figure: &Figure, simulated: bool) {
    let judge = cell::judge(&figure.body);
    let entries = cell::entries(&figure.body);
    h.el("article", &[("class", &"figure"), ("id", &id)], |h| {
        h.el("h3", &[], |h| {
            h.leaf("a", &[("href", &format!("#{id}"))], &figure.title);
            if simulated {
                h.text(" ").leaf("span", &[("class", &"chip sim")], "simulated");
            }
        });
        if !figure.has_value() && !entries.is_empty() {
            write_nothing(h, &entries);
            return;
        }
        h.leaf("p", &[("class", &"finding")], &figure.finding);
        match &figure.body {
            FigureBody::Matrix(m) => matrix::write(h, m, judge, &figure.title),
            FigureBody::Curves(c) => curves::write(h, c, judge, &figure.title),
            FigureBody::Bars(b) => bars::write(h, b, judge, &figure.title),
            FigureBody::Sheet(s) => sheet::write(h, s, &figure.title),
            FigureBody::Stacks(s) => stacks::write(h, s, &figure.title),
            FigureBody::Gaps(g) => gaps::write(h, g, &figure.title),
        }
        if let Some(agreement) = cell::agreement(&entries) {
            write_agreement(h, &agreement);
        }
        table::write(h, &entries, &cell::key_names(&figure.body), judge);
        write_command(h, &figure.command);
    });
}

/// In place of a figure of which nothing was measured: how much that is, and why.
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
        h.leaf("b", &[], "Beside published values: ");
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

/// Doubts by kind, folded where there are many of one.
fn write_doubts(h: &mut HtmlBuilder, report: &RunReport) {
    if report.warnings.is_empty() {
        h.leaf(
            "p",
            &[("class", &"finding")],
            "Nothing about this run or this node looks doubtful.",
        );
        return;
    }
    for (code, doubts) in report.warnings_by_code() {
        h.el("details", &[("class", &"group")], |h| {
            h.el("summary", &[], |h| {
                h.leaf("b", &[("class", &"n")], doubts.len()).text(" ");
                h.leaf("b", &[], code);
                if let Some(worst) = doubts.first() {
                    h.text(format!(" {}: {}", worst.subject, worst.text));
                }
            });
            h.el("div", &[("class", &"scroll tall")], |h| {
                h.el("table", &[("class", &"rows doubts")], |h| write_doubt_rows(h, &doubts));
            });
        });
    }
}

fn write_doubt_rows(h: &mut HtmlBuilder, doubts: &[&RunWarning]) {
    h.trusted("<thead><tr><th scope=\"col\">about</th><th scope=\"col\">warning</th></tr></thead>");
    h.el("tbody", &[], |h| {
        for doubt in doubts {
            h.el("tr", &[], |h| {
                h.leaf("th", &[("scope", &"row")], &doubt.subject).leaf("td", &[], &doubt.text);
            });
        }
    });
}
