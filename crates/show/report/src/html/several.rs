//! Several runs on one page: their identities, headline values side by side, and each figure by
//! run.

use pathline_explain::figure::RunReport;
use pathline_findings::{RunConclusions, SummaryTile};

use super::build::HtmlBuilder;
use super::data::{PageData, RunData};
use super::number::num;
use super::page;
use crate::scores::signed;
use pathline_explain::fmt;

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
    let named = runs.iter().enumerate();
    let data = PageData {
        runs: named
            .map(|(i, run)| RunData::new(letter(i).to_string(), run.report, run.conclusions))
            .collect(),
    };
    let title = format!("{} side by side", fmt::count(runs.len(), "run"));
    page::document(&title, &data, |h| {
        write_banners(h, runs);
        h.el("div", &[("class", &"page")], |h| {
            let first = [("top", "Runs"), ("values", "Headline values"), ("findings", "Findings")];
            page::write_nav(h, &first, &[]);
            h.el("main", &[("id", &"content"), ("class", &"body")], |h| {
                h.el("header", &[("id", &"top")], |h| {
                    h.leaf("h1", &[], &title);
                    write_identities(h, runs);
                });
                h.section(("values", "Headline values"), |h| write_tiles(h, runs));
                h.section(("findings", "Findings"), |h| write_findings(h, runs));
                page::write_figures(h, &data);
            });
        });
    })
}

/// Letter of a run, such as `A`.
fn letter(run: usize) -> char {
    u8::try_from(run).ok().and_then(|n| b'A'.checked_add(n)).map_or('?', char::from)
}

fn write_banners(h: &mut HtmlBuilder, runs: &[PageRun<'_>]) {
    let letters = |chosen: &dyn Fn(&RunReport) -> bool| {
        let all = runs.iter().enumerate().filter(|(_, run)| chosen(run.report));
        all.map(|(i, _)| letter(i).to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut banner = |class: &str, label: &str, letters: String, text: &str| {
        if letters.is_empty() {
            return;
        }
        page::write_banner(h, class, label, &format!("{letters}: {text}"));
    };
    let busy = "other programs disturbed the run; its figures are lower bounds.";
    banner("busy", "Busy", letters(&|r| r.busy.is_some()), busy);
    let simulated = "every figure comes from a model. Nothing there was measured on hardware.";
    banner("simulated", "Simulated", letters(&|r| r.simulated.is_some()), simulated);
    banner("cut", "Incomplete", letters(&|r| !r.complete), "the run ended before its plan did.");
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
            match verdict.word() {
                Some(word) => format!("{word}: {}", verdict.reason),
                None => verdict.reason.clone(),
            }
        }),
    ];
    let row = |(name, of): &Property<'_>| {
        std::iter::once((*name).to_owned()).chain(runs.iter().map(of)).collect::<Vec<String>>()
    };
    let rows = rows.iter().map(row);
    write_table(h, runs, rows.filter(|row| row.iter().skip(1).any(|text| !text.is_empty())));
}

/// A table with a column for each run.
fn write_table(h: &mut HtmlBuilder, runs: &[PageRun<'_>], rows: impl Iterator<Item = Vec<String>>) {
    let letters: Vec<String> = (0..runs.len()).map(|i| letter(i).to_string()).collect();
    let columns = letters.iter().map(|letter| (letter.as_str(), "words"));
    let columns: Vec<_> = std::iter::once(("", "")).chain(columns).collect();
    h.table("rows compare", &columns, rows);
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

/// A value of a run with its difference from that of the first: `28.1 ± 0.5 %  -0.7 % ▼`.
fn value_text(range: Option<MeasuredRange>, first: Option<MeasuredRange>) -> String {
    let Some(range) = range else { return "–".to_owned() };
    let half = range.1.filter(|_| range.0 != 0.0);
    let half = half
        .map(|half| format!(" ± {}", fmt::percent((half / range.0.abs()).max(0.001))))
        .unwrap_or_default();
    let change = first.and_then(|first| difference(first, range));
    let change = change.map(|(relative, beyond)| {
        let mark = match (beyond, relative > 0.0) {
            (true, true) => " ▲",
            (true, false) => " ▼",
            _ => "",
        };
        format!("  {}{mark}", signed(relative))
    });
    format!("{}{half}{}", num(range.0), change.unwrap_or_default())
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
    let row = |(name, unit): (&str, &str)| {
        let of = |run: &PageRun<'_>| -> Option<MeasuredRange> {
            let is_it = |t: &&SummaryTile| (t.name.as_str(), t.unit.as_str()) == (name, unit);
            let tile = run.conclusions.tiles.iter().find(is_it)?;
            Some((tile.value, tile.half_width))
        };
        let first = runs.first().and_then(of);
        let text = |(i, run)| value_text(of(run), first.filter(|_| i > 0));
        let texts = runs.iter().enumerate().map(text);
        std::iter::once(format!("{name}, {unit}")).chain(texts).collect()
    };
    write_table(h, runs, names.into_iter().map(row));
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
    let row = |id: &str| {
        let text = |run: &PageRun<'_>| {
            let found = run.conclusions.findings.iter().filter(|f| f.id == id);
            let texts: Vec<&str> = found.map(|f| f.observation.as_str()).collect();
            if texts.is_empty() { "–".to_owned() } else { texts.join(" ") }
        };
        std::iter::once(id.to_owned()).chain(runs.iter().map(text)).collect()
    };
    write_table(h, runs, ids.into_iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::super::tests::example::{self, assert_balanced};
    use super::*;

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
    fn runs_stand_side_by_side() {
        let a = example::node();
        let b = example::host();
        let b = RunReport { title: "<other>".into(), ..b };
        let conclusions = RunConclusions::default();
        let run = |source, report| PageRun { source, report, conclusions: &conclusions };
        let page = render_several(&[run("a.jsonl", &a), run("b.jsonl", &b)]);
        assert_balanced(&page);
        assert!(page.contains("&lt;other&gt;") && !page.contains("<other>"));
        assert!(page.contains("\"name\":\"A\"") && page.contains("\"name\":\"B\""));
        assert_balanced(&render_several(&[]));
    }
}
