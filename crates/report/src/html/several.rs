//! Several runs on one page: their identities, headline values side by side, and each figure by
//! run.

use std::collections::BTreeMap;

use pathline_explain::figure::{Figure, FigureCell, RunReport};
use pathline_findings::{RunConclusions, SummaryTile};

use super::build::{HtmlBuilder, anchor};
use super::cell::{self, PageContext, half_width, value};
use super::matrix::switch;
use super::number::{count, num, percent, signed_percent};
use super::{page, warnings_by_case, write_figure_body};

/// Maximum number of runs with a tab.
pub const MAX_RUNS: usize = 8;

/// One run of the page.
#[derive(Debug, Clone, Copy)]
pub struct PageRun<'a> {
    /// File of the run.
    pub source: &'a str,
    /// Its report.
    pub report: &'a RunReport,
    /// Conclusions of the report.
    pub conclusions: &'a RunConclusions,
}

/// Renders runs side by side, with differences from the first. At most [`MAX_RUNS`] are shown.
pub fn render_several(runs: &[PageRun<'_>]) -> String {
    let runs = runs.get(..MAX_RUNS).unwrap_or(runs);
    let warnings: Vec<BTreeMap<String, String>> =
        runs.iter().map(|run| warnings_by_case(run.report)).collect();
    let contexts: Vec<PageContext<'_>> = runs
        .iter()
        .zip(&warnings)
        .map(|(run, warnings)| PageContext {
            simulated: run.report.simulated.is_some(),
            warnings: Some(warnings),
        })
        .collect();
    let groups = groups(runs);
    let rules = super::style_rules(runs.iter().map(|run| run.report)) + &tab_rules();
    let title = format!("{} side by side", count(runs.len(), "run"));
    page::document(&format!("{title} - pathline"), &rules, |h| {
        h.trusted("<a class=\"skip-link\" href=\"#content\">Skip to content</a>");
        write_banner(h, runs);
        h.el("div", &[("class", &"page")], |h| {
            write_nav(h, &groups);
            h.el("main", &[("id", &"content"), ("class", &"body")], |h| {
                h.el("header", &[("id", &"top")], |h| {
                    h.leaf("h1", &[], &title);
                    write_identities(h, runs);
                });
                h.el("section", &[("id", &"values")], |h| {
                    h.leaf("h2", &[], "Headline values");
                    write_tiles(h, runs);
                });
                h.el("section", &[("id", &"findings")], |h| {
                    h.leaf("h2", &[], "Findings");
                    write_findings(h, runs);
                });
                write_groups(h, &groups, &contexts);
            });
        });
    })
}

/// Letter of a run, such as `A`.
fn letter(run: usize) -> char {
    u8::try_from(run).ok().and_then(|n| b'A'.checked_add(n)).map_or('?', char::from)
}

/// Figures with the same name in all runs.
struct FigureGroup<'a> {
    anchor: String,
    suite: &'a str,
    title: &'a str,
    /// The figures, each with the number of its run.
    figures: Vec<(usize, &'a Figure)>,
}

/// Figures in the order of the runs, grouped by suite.
fn groups<'a>(runs: &[PageRun<'a>]) -> Vec<FigureGroup<'a>> {
    let mut taken: Vec<String> =
        ["content", "tip", "top", "values", "findings", "contents"].map(str::to_owned).to_vec();
    let mut groups: Vec<FigureGroup<'a>> = Vec::new();
    for (run, report) in runs.iter().enumerate().map(|(i, run)| (i, run.report)) {
        for figure in &report.figures {
            let known = groups.iter_mut().find(|group| {
                group.suite == figure.suite
                    && group.figures.iter().all(|(r, _)| *r != run)
                    && group.figures.iter().any(|(_, f)| f.id == figure.id)
            });
            match known {
                Some(group) => group.figures.push((run, figure)),
                None => {
                    let last = groups.iter().rposition(|g| g.suite == figure.suite);
                    let group = FigureGroup {
                        anchor: anchor(&figure.id, &mut taken),
                        suite: &figure.suite,
                        title: &figure.title,
                        figures: vec![(run, figure)],
                    };
                    groups.insert(last.map_or(groups.len(), |at| at + 1), group);
                }
            }
        }
    }
    groups
}

fn write_banner(h: &mut HtmlBuilder, runs: &[PageRun<'_>]) {
    let letters = |chosen: &dyn Fn(&RunReport) -> bool| {
        let all = runs.iter().enumerate().filter(|(_, run)| chosen(run.report));
        all.map(|(i, _)| letter(i).to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut banner = |class: &str, label: &str, letters: String, text: &str| {
        if letters.is_empty() {
            return;
        }
        h.el("div", &[("class", &format!("banner {class}")), ("role", &"note")], |h| {
            h.leaf("strong", &[], label).text(" ");
            h.leaf("span", &[], format!("{letters}: {text}"));
        });
    };
    let busy = "other programs disturbed the run; its figures are lower bounds.";
    banner("busy", "Busy", letters(&|r| r.busy.is_some()), busy);
    let simulated = "every figure comes from a model. Nothing there was measured on hardware.";
    banner("simulated", "Simulated", letters(&|r| r.simulated.is_some()), simulated);
    banner("cut", "Incomplete", letters(&|r| !r.complete), "the run ended before its plan did.");
}

fn write_nav(h: &mut HtmlBuilder, groups: &[FigureGroup<'_>]) {
    let mut suite = "";
    h.el("nav", &[("id", &"contents"), ("aria-label", &"Contents")], |h| {
        super::write_nav_head(h);
        h.el("ul", &[], |h| {
            super::nav_item(h, "top", "Runs", "");
            super::nav_item(h, "values", "Headline values", "");
            super::nav_item(h, "findings", "Findings", "");
            for group in groups {
                if group.suite != suite {
                    suite = group.suite;
                    h.el("li", &[("class", &"suite-name")], |h| {
                        h.text(suite);
                    });
                }
                super::nav_item(h, &group.anchor, group.title, "");
            }
        });
    });
}

fn write_identities(h: &mut HtmlBuilder, runs: &[PageRun<'_>]) {
    type Property<'p> = (&'p str, &'p dyn Fn(&PageRun<'_>) -> String);
    let rows: [Property<'_>; 9] = [
        ("from", &|run| run.source.to_owned()),
        ("node", &|run| match run.report.identity.node.as_str() {
            "" => run.report.title.clone(),
            node => node.to_owned(),
        }),
        ("GPUs", &|run| run.report.identity.gpus.clone()),
        ("processor", &|run| run.report.identity.processor.clone()),
        ("driver", &|run| run.report.identity.driver.clone()),
        ("started", &|run| run.report.identity.started.clone()),
        ("duration", &|run| run.report.identity.duration.clone()),
        ("version", &|run| run.report.identity.version.clone()),
        ("verdict", &|run| {
            let verdict = &run.conclusions.verdict;
            format!("{}: {}", verdict.state.word(), verdict.reason)
        }),
    ];
    write_table(h, runs, "", |h| {
        for (name, of) in &rows {
            let texts: Vec<String> = runs.iter().map(of).collect();
            if texts.iter().all(String::is_empty) {
                continue;
            }
            h.el("tr", &[], |h| {
                h.leaf("th", &[("scope", &"row")], name);
                for text in &texts {
                    let class = if Some(text) == texts.first() { "words" } else { "words changed" };
                    h.leaf("td", &[("class", &class)], text);
                }
            });
        }
    });
}

/// A table with a column for each run.
fn write_table(
    h: &mut HtmlBuilder,
    runs: &[PageRun<'_>],
    corner: &str,
    rows: impl FnOnce(&mut HtmlBuilder),
) {
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"rows compare")], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    h.leaf("th", &[("scope", &"col")], corner);
                    for i in 0..runs.len() {
                        h.leaf("th", &[("scope", &"col")], letter(i));
                    }
                });
            });
            h.el("tbody", &[], rows);
        });
    });
}

/// A value with the half width of its interval, if known.
type MeasuredRange = (f64, Option<f64>);

/// Compares a value with the first: relative difference, and whether the intervals are disjoint.
/// Without intervals the latter is unknown.
fn difference(first: MeasuredRange, other: MeasuredRange) -> Option<(f64, bool)> {
    let apart = (other.0 - first.0).abs();
    let beyond = first.1.zip(other.1).is_some_and(|(a, b)| apart > a + b);
    let relative = other.0 / first.0 - 1.0;
    relative.is_finite().then_some((relative, beyond))
}

/// Writes a value as a cell: its number, and its difference from the first.
fn write_value(
    h: &mut HtmlBuilder,
    at: usize,
    range: Option<MeasuredRange>,
    first: Option<MeasuredRange>,
) {
    let Some(range) = range else {
        h.leaf("td", &[("class", &"n")], "–");
        return;
    };
    let found = if at == 0 { None } else { first.and_then(|first| difference(first, range)) };
    let class = if found.is_some_and(|(_, beyond)| beyond) { "n changed" } else { "n" };
    h.el("td", &[("class", &class)], |h| {
        h.text(num(range.0));
        if let Some(half) = range.1.filter(|_| range.0 != 0.0) {
            h.text(" ").leaf("small", &[], format!("± {}", percent(half / range.0.abs())));
        }
        if let Some((relative, beyond)) = found {
            let mark = match (beyond, relative > 0.0) {
                (true, true) => " ▲",
                (true, false) => " ▼",
                _ => "",
            };
            h.text(" ").leaf("small", &[], format!("{}{mark}", signed_percent(relative)));
        }
    });
}

fn write_tiles(h: &mut HtmlBuilder, runs: &[PageRun<'_>]) {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for tile in runs.iter().flat_map(|run| &run.conclusions.tiles) {
        let name = (tile.name.as_str(), tile.unit.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        h.leaf("p", &[("class", &"nothing")], "These runs have no headline value.");
        return;
    }
    write_table(h, runs, "", |h| {
        for (name, unit) in names {
            let of = |run: &PageRun<'_>| -> Option<MeasuredRange> {
                let is_it = |t: &&SummaryTile| (t.name.as_str(), t.unit.as_str()) == (name, unit);
                let tile = run.conclusions.tiles.iter().find(is_it)?;
                Some((tile.value, tile.half_width))
            };
            let first = runs.first().and_then(of);
            h.el("tr", &[], |h| {
                h.leaf("th", &[("scope", &"row")], format!("{name}, {unit}"));
                for (i, run) in runs.iter().enumerate() {
                    write_value(h, i, of(run), first);
                }
            });
        }
    });
    let note = "▲ and ▼ mark differences to A beyond both 95 % intervals of the median. Processes differ \
                by more than that; pathline diff allows for the noise between runs.";
    h.leaf("p", &[("class", &"prose")], note);
}

fn write_findings(h: &mut HtmlBuilder, runs: &[PageRun<'_>]) {
    let mut ids: Vec<&str> = Vec::new();
    for finding in runs.iter().flat_map(|run| &run.conclusions.findings) {
        if !ids.contains(&finding.id) {
            ids.push(finding.id);
        }
    }
    if ids.is_empty() {
        h.leaf("p", &[("class", &"nothing")], "These runs have no finding.");
        return;
    }
    write_table(h, runs, "", |h| {
        for id in ids {
            h.el("tr", &[], |h| {
                h.leaf("th", &[("scope", &"row")], id);
                for run in runs {
                    let found = run.conclusions.findings.iter().filter(|f| f.id == id);
                    let texts: Vec<&str> = found.map(|f| f.observation.as_str()).collect();
                    let text = if texts.is_empty() { "–".to_owned() } else { texts.join(" ") };
                    h.leaf("td", &[("class", &"words")], text);
                }
            });
        }
    });
}

fn write_groups(h: &mut HtmlBuilder, groups: &[FigureGroup<'_>], contexts: &[PageContext<'_>]) {
    let mut rest = groups;
    while let Some(first) = rest.first() {
        let of_suite = rest.iter().take_while(|g| g.suite == first.suite).count();
        let (suite, after) = rest.split_at(of_suite);
        rest = after;
        h.el("section", &[("class", &"suite")], |h| {
            h.leaf("h2", &[], first.suite);
            for (i, group) in suite.iter().enumerate() {
                write_group(h, group, i == 0, contexts);
            }
        });
    }
}

fn write_group(
    h: &mut HtmlBuilder,
    group: &FigureGroup<'_>,
    open: bool,
    contexts: &[PageContext<'_>],
) {
    let pairs = PairedCells::from_group(group, contexts.len());
    h.el("article", &[("class", &"figure"), ("id", &group.anchor)], |h| {
        let body = |h: &mut HtmlBuilder| {
            h.el("summary", &[], |h| {
                h.leaf("h3", &[], group.title).text(" ");
                h.leaf("span", &[("class", &"brief")], pairs.describe(group));
            });
            h.el("div", &[("class", &"runs")], |h| {
                h.el("fieldset", &[("class", &"switches")], |h| {
                    h.leaf("legend", &[], "Run");
                    for (i, (run, _)) in group.figures.iter().enumerate() {
                        let (name, class) = (format!("{}-run", group.anchor), format!("r{run}"));
                        switch(h, &name, &class, &letter(*run).to_string(), i == 0);
                    }
                });
                for (run, figure) in &group.figures {
                    h.el("div", &[("class", &format!("run k{run}"))], |h| {
                        let id = format!("{}-{run}", group.anchor);
                        let page = contexts.get(*run).copied().unwrap_or_default();
                        write_figure_body(h, &id, figure, page);
                    });
                }
            });
            pairs.write(h, contexts.len());
        };
        match open {
            true => h.el("details", &[("open", &"")], body),
            false => h.el("details", &[], body),
        };
    });
}

/// The cells of a figure, each with its value in every run.
struct PairedCells {
    rows: Vec<(String, Vec<Option<MeasuredRange>>)>,
    changed: usize,
}

impl PairedCells {
    fn from_group(group: &FigureGroup<'_>, runs: usize) -> Self {
        let range = |cell: &FigureCell| Some((value(cell)?, half_width(cell)));
        let mut rows: Vec<(String, Vec<Option<MeasuredRange>>)> = Vec::new();
        let mut index: BTreeMap<(String, usize), usize> = BTreeMap::new();
        for (run, figure) in &group.figures {
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            for entry in cell::entries(&figure.body) {
                // Cells with the same name are distinguished by their order.
                let nth = seen.entry(entry.place.clone()).or_default();
                let key = (entry.place.clone(), *nth);
                *nth += 1;
                let at = *index.entry(key).or_insert_with(|| {
                    rows.push((entry.place.clone(), vec![None; runs]));
                    rows.len() - 1
                });
                if let Some(slot) = rows.get_mut(at).and_then(|row| row.1.get_mut(*run)) {
                    *slot = range(entry.cell);
                }
            }
        }
        rows.retain(|(_, values)| values.iter().flatten().count() > 1);
        let is_changed = |(_, values): &&(String, Vec<Option<MeasuredRange>>)| {
            let Some(first) = values.first().copied().flatten() else { return false };
            let others = values.iter().skip(1).flatten();
            others.filter_map(|other| difference(first, *other)).any(|(_, beyond)| beyond)
        };
        let changed = rows.iter().filter(is_changed).count();
        Self { rows, changed }
    }

    fn describe(&self, group: &FigureGroup<'_>) -> String {
        match (self.rows.len(), group.figures.first()) {
            (0, Some((run, _))) if group.figures.len() == 1 => format!("only in {}", letter(*run)),
            (0, _) => "no value in common".to_owned(),
            (all, _) => {
                format!("{} of {} differ beyond their intervals", self.changed, count(all, "value"))
            }
        }
    }

    fn write(&self, h: &mut HtmlBuilder, runs: usize) {
        if self.rows.is_empty() {
            return;
        }
        h.el("details", &[("class", &"data")], |h| {
            let all = count(self.rows.len(), "value");
            let text =
                format!("Side by side: {all}, {} differ beyond their intervals", self.changed);
            h.leaf("summary", &[], text);
            h.el("div", &[("class", &"scroll tall")], |h| {
                h.el("table", &[("class", &"rows compare")], |h| {
                    h.el("thead", &[], |h| {
                        h.el("tr", &[], |h| {
                            h.leaf("th", &[("scope", &"col")], "what");
                            for i in 0..runs {
                                h.leaf("th", &[("scope", &"col"), ("class", &"n")], letter(i));
                            }
                        });
                    });
                    h.el("tbody", &[], |h| {
                        for (place, values) in &self.rows {
                            h.el("tr", &[], |h| {
                                h.leaf("th", &[("scope", &"row")], place);
                                let first = values.first().copied().flatten();
                                for (i, value) in values.iter().enumerate() {
                                    write_value(h, i, *value, first);
                                }
                            });
                        }
                    });
                });
            });
        });
    }
}

fn tab_rules() -> String {
    let rule = |i: usize| format!(".runs:has(.r{i}:checked) .run:not(.k{i}){{display:none}}\n");
    (0..MAX_RUNS).map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{example, tests::assert_balanced};
    use super::*;
    use pathline_explain::figure::FigureBody;

    #[test]
    fn only_differences_beyond_both_intervals_are_marked() {
        // 100 ± 1 and 103 ± 1 are 3 apart, more than 2; 100 ± 1 and 101.5 ± 1 are closer.
        let mark = |a, b| difference(a, b).map(|(_, beyond)| beyond);
        assert_eq!(mark((100.0, Some(1.0)), (103.0, Some(1.0))), Some(true));
        assert_eq!(mark((100.0, Some(1.0)), (101.5, Some(1.0))), Some(false));
        assert_eq!(mark((100.0, None), (150.0, Some(1.0))), Some(false));
        assert_eq!(mark((0.0, None), (1.0, None)), None);
    }

    #[test]
    fn runs_stand_side_by_side_and_their_changes_are_counted() {
        let (a, _) = example::node();
        let mut b = a.clone();
        b.title = "<other>".into();
        let Some(FigureBody::Matrix(m)) = b.figures.get_mut(1).map(|f| &mut f.body) else {
            panic!("the second figure is a matrix")
        };
        let cell = m.cells.iter_mut().flatten().find(|c| c.value.is_some()).unwrap();
        cell.value = cell.value.map(|v| v * 0.5);
        let conclusions = RunConclusions::default();
        let run = |source, report| PageRun { source, report, conclusions: &conclusions };
        let page = render_several(&[run("a.jsonl", &a), run("b.jsonl", &b)]);
        assert_balanced(&page);
        assert!(page.contains("&lt;other&gt;") && !page.contains("<other>"));
        assert!(page.contains("1 of 55 values differ beyond their intervals"), "{}", page.len());
        assert!(page.contains("-50.0 % ▼") && page.contains("class=\"run k1\""));
    }

    #[test]
    fn figures_of_one_run_and_no_runs_are_shown() {
        let (a, _) = example::node();
        let (b, _) = example::host();
        let conclusions = RunConclusions::default();
        let run = |report| PageRun { source: "x", report, conclusions: &conclusions };
        let page = render_several(&[run(&a), run(&b)]);
        assert!(page.contains("only in B"));
        assert_balanced(&page);
        assert_balanced(&render_several(&[]));
    }
}
