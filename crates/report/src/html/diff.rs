//! The page that compares runs.

use pathline_explain::diff::{CaseChange, DiffRow, RunDiff, SideIdentity};
use pathline_explain::fmt;

use super::build::HtmlBuilder;
use super::page::document;
use super::scores::head;

/// Renders a comparison: runs, changes, noise allowance, and a row for each case that changed.
pub fn page(diff: &RunDiff) -> String {
    let [before, after] = &diff.sides;
    let title = format!("{} compared with {}", after.host, before.host);
    document(&format!("{title} - pathline"), "", |h| {
        h.el("main", &[("class", &"top")], |h| {
            h.leaf("h1", &[], &title);
            write_answer(h, diff);
            h.leaf("h2", &[], "Runs");
            write_sides(h, diff, [before, after]);
            h.leaf("h2", &[], "Cases");
            write_rows(h, diff);
            h.leaf("h2", &[], "Noise between runs");
            write_noise(h, diff);
        });
    })
}

fn write_answer(h: &mut HtmlBuilder, diff: &RunDiff) {
    h.leaf("p", &[("class", &"lead")], diff.verdict());
    h.el("ul", &[("class", &"headlines")], |h| {
        let mut line = |class: &str, sign: &str, text: &str| {
            h.el("li", &[("class", &class)], |h| {
                h.leaf("span", &[("class", &"sign"), ("aria-hidden", &"true")], sign);
                h.leaf("span", &[], text);
            });
        };
        for group in &diff.groups {
            let is_slower = group.change == CaseChange::Slower;
            let (class, sign) = if is_slower { ("warn", "!") } else { ("good", "✓") };
            line(class, sign, &format!("{}: {}", group.change.word(), group.text()));
        }
        for records in &diff.rejected {
            line("warn", "!", records);
        }
        line("plain", "·", &diff.false_changes());
        if let Some(cases) = diff.one_sided() {
            line("plain", "·", &cases);
        }
    });
}

fn write_sides(h: &mut HtmlBuilder, diff: &RunDiff, sides: [&SideIdentity; 2]) {
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"rows")], |h| {
            head(h, &["", "before", "after"]);
            h.el("tbody", &[], |h| {
                let mut row = |name: &str, a: &str, b: &str| {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], name);
                        h.leaf("td", &[("class", &"words")], a);
                        h.leaf("td", &[("class", &"words")], b);
                    });
                };
                row("runs", &sides[0].text(), &sides[1].text());
                for (name, a, b) in &diff.conditions {
                    row(&format!("{name} differs"), a, b);
                }
            });
        });
    });
}

fn write_rows(h: &mut HtmlBuilder, diff: &RunDiff) {
    let rows = diff.shown(true);
    if rows.is_empty() {
        h.leaf("p", &[("class", &"nothing")], "All cases are the same within the tolerance.");
        return;
    }
    let columns = ["", "speed [95 %]", "before", "after", "", "runs", "visible", "case", "why"];
    h.el("div", &[("class", &"scroll tall")], |h| {
        h.el("table", &[("class", &"rows compared")], |h| {
            head(h, &columns);
            h.el("tbody", &[], |h| rows.iter().for_each(|row| write_row(h, row)));
        });
    });
}

fn write_row(h: &mut HtmlBuilder, row: &DiffRow) {
    let value = |v: Option<f64>| v.map_or(String::new(), fmt::number);
    let visible = if row.effect.is_some() { fmt::percent(row.visible) } else { String::new() };
    h.el("tr", &[], |h| {
        h.leaf("th", &[("scope", &"row")], row.change.word());
        h.leaf("td", &[("class", &"n")], row.effect_text());
        h.leaf("td", &[("class", &"n")], value(row.a));
        h.leaf("td", &[("class", &"n")], value(row.b));
        h.leaf("td", &[], row.unit);
        h.leaf("td", &[("class", &"n")], format!("{}, {}", row.runs.0, row.runs.1));
        h.leaf("td", &[("class", &"n")], visible);
        h.leaf("td", &[("class", &"words")], row.case.to_string());
        h.leaf("td", &[("class", &"words")], &row.why);
    });
}

fn write_noise(h: &mut HtmlBuilder, diff: &RunDiff) {
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"rows")], |h| {
            head(h, &["class", "cases", "deviation", "visible", "origin"]);
            h.el("tbody", &[], |h| {
                for noise in &diff.noise {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], &noise.class);
                        h.leaf("td", &[("class", &"n")], noise.cases);
                        let deviation = format!("{:.2} %", noise.deviation * 100.0);
                        h.leaf("td", &[("class", &"n")], deviation);
                        h.leaf("td", &[("class", &"n")], noise.visible_text());
                        h.leaf("td", &[("class", &"words")], &noise.origin);
                    });
                }
            });
        });
    });
    let note = "Visible is the smallest slowdown that is found 19 times in 20. More runs a side make it \
                smaller: pathline run --repeat.";
    h.leaf("p", &[], note);
    if let Some(repeats) = &diff.repeats {
        h.leaf("p", &[], repeats.text());
    }
}
