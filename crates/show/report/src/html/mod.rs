//! The report as one HTML file that works without network.
//!
//! The page draws data: figures are the JSON of `pathline report --json`, and a script in the page draws
//! them. What a reader needs first (identity, verdict, findings, node) is markup, and without scripts
//! every figure is a table. `build::HtmlBuilder` escapes everything from records, the script adds it as
//! text only, and the page's policy forbids all requests, so that a hostile host name or error text can
//! neither load nor send anything.

pub mod diff;
pub mod fleet;
pub mod model_agreement;
pub mod scores;

mod absences;
mod build;
mod data;
mod head;
mod machine;
mod noscript;
mod number;
mod page;
mod scatter;
mod several;

#[cfg(test)]
mod tests;

pub use page::is_page;
pub use several::{MAX_RUNS, PageRun, render_several};

use pathline_explain::figure::RunReport;
use pathline_explain::fmt;
use pathline_findings::RunConclusions;

use build::HtmlBuilder;
use data::{PageData, RunData};

const METHOD: &str = include_str!("method.html");

/// Renders a report. `map_svg` is the drawing of the node, an `<svg>` element that is inserted
/// unchanged; `None` omits the map. Equal reports give identical bytes.
pub fn render(report: &RunReport, conclusions: &RunConclusions, map_svg: &str) -> String {
    let data = PageData { runs: vec![RunData::new(String::new(), report, conclusions)] };
    let kind = if report.simulated.is_some() { "SIMULATED, " } else { "" };
    page::document(&format!("{kind}{}", report.title), &data, |h| {
        write_banners(h, report);
        h.el("div", &[("class", &"page")], |h| {
            let first = [("top", "Overview"), ("findings", "Findings"), SECTIONS[0]];
            let [_, absences, warnings, conditions, method] = SECTIONS;
            let last = [
                (absences.0, absences.1, report.absences.len()),
                (warnings.0, warnings.1, report.warnings.len()),
                (conditions.0, conditions.1, 0),
                (method.0, method.1, 0),
            ];
            page::write_nav(h, &first, &last);
            h.el("main", &[("id", &"content"), ("class", &"body")], |h| {
                head::write(h, report, conclusions);
                h.section(SECTIONS[0], |h| machine::write(h, &report.gpus, map_svg));
                h.leaf("p", &[("class", &"lead")], lead(report, &data));
                page::write_figures(h, &data);
                h.section(SECTIONS[1], |h| absences::write(h, &report.absences));
                h.section(SECTIONS[2], |h| write_warnings(h, report));
                h.section(SECTIONS[3], |h| {
                    h.folded("Settings, environment, state of the machine", |h| {
                        machine::write_conditions(h, &report.conditions, report.state.as_ref());
                    });
                });
                h.section(SECTIONS[4], |h| {
                    h.folded("Rates, units, intervals, ceilings, verification", |h| {
                        h.trusted(METHOD);
                    });
                });
            });
        });
    })
}

/// Anchors of the sections on every page.
const SECTIONS: [(&str, &str); 5] = [
    ("node", "The node"),
    ("absences", "Skips and faults"),
    ("warnings", "Warnings"),
    ("conditions", "Conditions"),
    ("method", "How a number is made"),
];

fn write_banners(h: &mut HtmlBuilder, report: &RunReport) {
    if let Some(busy) = &report.busy {
        page::write_banner(h, "busy", "Busy", &fmt::sentence(&busy.text()));
    }
    if let Some(machine) = &report.simulated {
        let text = format!(
            "Every figure on this page comes from the model of {machine}. Nothing here was measured on \
             hardware."
        );
        page::write_banner(h, "simulated", "Simulated", &text);
    }
    if !report.complete {
        let text = "The run ended before its plan did. Cases that are missing were not reached.";
        page::write_banner(h, "cut", "Incomplete", text);
    }
}

/// Contents of the page, in one line.
fn lead(report: &RunReport, data: &PageData<'_>) -> String {
    let cells = data.runs.iter().flat_map(|run| &run.figures).flat_map(|figure| &figure.cells);
    let values = cells.filter(|cell| cell.value.is_some()).count();
    let faults = report.absences.iter().filter(|a| a.faulted).count();
    [
        format!(
            "{} in {}",
            fmt::count(values, "value"),
            fmt::count(report.figures.len(), "figure")
        ),
        format!("{} failed", fmt::count(faults, "case")),
        format!("{} skipped", report.absences.len() - faults),
        fmt::count(report.warnings.len(), "warning"),
    ]
    .join(" · ")
}

/// Warnings by kind.
fn write_warnings(h: &mut HtmlBuilder, report: &RunReport) {
    if report.warnings.is_empty() {
        h.leaf("p", &[], "No warning about this run or this node.");
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
            let rows = warnings.iter().map(|w| vec![w.subject.clone(), w.text.clone()]);
            h.table("rows warnings", &[("about", ""), ("warning", "words")], rows);
        });
    }
}
