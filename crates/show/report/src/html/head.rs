//! The first screen: identity of the node, verdict, headline values, and recommended actions.

use pathline_explain::figure::{Headline, HeadlineTone, RunReport};
use pathline_findings::{
    ExpectedGain, Finding, FindingArm, FindingSeverity, GainBasis, RunConclusions, SummaryTile,
};
use pathline_schema::{NodeVerdict, SizeEffects};

use super::build::{HtmlBuilder, anchor};
use super::machine::write_facts;
use super::number::num;
use super::page::write_line;
use pathline_explain::fmt;

/// Number of unfolded findings.
const OPEN: usize = 5;

/// The button after an action.
const COPY: &str = " <button type=\"button\" class=\"js\" data-copy=\"action\">Copy</button>";

/// Writes the first screen.
pub(super) fn write(h: &mut HtmlBuilder, report: &RunReport, conclusions: &RunConclusions) {
    h.el("header", &[("id", &"top")], |h| {
        write_identity(h, report);
        let verdict = &conclusions.verdict;
        let class = format!("verdict {}", state_class(verdict.state.unwrap_or_default()));
        h.el("p", &[("class", &class)], |h| {
            if let Some(word) = verdict.word() {
                h.leaf("strong", &[], word).text(" ");
            }
            h.leaf("span", &[], pathline_explain::fmt::sentence(&verdict.reason));
        });
        write_tiles(h, &conclusions.tiles, report);
    });
    h.el("section", &[("id", &"findings")], |h| {
        h.leaf("h2", &[], "Findings");
        write_findings(h, &conclusions.findings);
        write_observations(h, &report.headlines);
    });
}

/// Node, GPUs, driver, date, version, duration and command.
fn write_identity(h: &mut HtmlBuilder, report: &RunReport) {
    let id = &report.identity;
    let node = if id.node.is_empty() { &report.title } else { &id.node };
    h.leaf("h1", &[], node);
    let version = match id.version.as_str() {
        "" => String::new(),
        version => format!("pathline {version}"),
    };
    let ranks = if id.ranks > 0 { fmt::count(id.ranks, "rank") } else { String::new() };
    let parts = [&id.gpus, &id.processor, &id.driver, &ranks, &id.started, &id.duration, &version];
    let known: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    h.leaf("p", &[("class", &"identity")], known.join(" · "));
    for line in [&id.packages, &id.rank_gpus].into_iter().filter(|line| !line.is_empty()) {
        h.leaf("p", &[("class", &"packages")], line);
    }
    h.command(&id.command);
    if !id.parts.is_empty() {
        h.folded("Serial numbers, firmware, addresses", |h| write_facts(h, &id.parts));
    }
}

fn state_class(state: NodeVerdict) -> &'static str {
    match state {
        NodeVerdict::Ok => "good",
        NodeVerdict::Suspect => "warn",
        NodeVerdict::Fail => "bad",
        NodeVerdict::Undecided => "plain",
    }
}

fn write_tiles(h: &mut HtmlBuilder, tiles: &[SummaryTile], report: &RunReport) {
    if tiles.is_empty() {
        return;
    }
    h.el("ul", &[("class", &"tiles")], |h| {
        for tile in tiles {
            let is_on_page = report.figures.iter().any(|figure| figure.id == tile.figure);
            h.el("li", &[], |h| {
                let href = format!("#{}", anchor(&tile.figure));
                let link: super::build::HtmlAttrs<'_> = &[("class", &"tile"), ("href", &href)];
                let (tag, attrs) = if is_on_page { ("a", link) } else { ("div", &link[..1]) };
                h.el(tag, attrs, |h| write_tile(h, tile));
            });
        }
    });
}

fn write_tile(h: &mut HtmlBuilder, tile: &SummaryTile) {
    h.leaf("span", &[("class", &"tile-name")], &tile.name).text(" ");
    h.el("span", &[("class", &"tile-value")], |h| {
        h.leaf("b", &[], num(tile.value)).text(" ").leaf("small", &[], &tile.unit);
        if let Some(relative) = tile.half_width.map(|w| w / tile.value).filter(|r| r.is_finite()) {
            h.text(" ").leaf("small", &[], format!("± {}", fmt::percent(relative.max(0.001))));
        }
    });
    let shares = [("of peak", tile.share_of_peak), ("of model", tile.share_of_model)];
    let shares = shares.into_iter().filter_map(|(name, share)| Some((name, share?)));
    h.el("span", &[("class", &"tile-shares")], |h| {
        for (name, share) in shares {
            h.text(" ").leaf("span", &[], format!("{} {name}", fmt::percent(share)));
        }
        if let Some(slowest) = tile.slowest {
            h.text(" ").leaf("span", &[], format!("slowest {}", num(slowest)));
        }
    });
    // The script draws them as a line.
    let values: Vec<String> = tile.spark.iter().map(|v| format!("{v:.4}")).collect();
    h.el("span", &[("data-spark", &values.join(" "))], |_| {});
    h.text(" ").leaf("span", &[("class", &"tile-detail")], &tile.detail);
}

fn write_findings(h: &mut HtmlBuilder, findings: &[Finding]) {
    if findings.is_empty() {
        let text = "No finding: no rule of this report found anything to act on.";
        h.leaf("p", &[("class", &"nothing")], text);
        return;
    }
    let (open, folded) = findings.split_at(findings.len().min(OPEN));
    h.el("ol", &[("class", &"cards")], |h| open.iter().for_each(|f| write_card(h, f)));
    if !folded.is_empty() {
        h.el("details", &[("class", &"more")], |h| {
            h.leaf("summary", &[], fmt::count(folded.len(), "more finding"));
            h.el("ol", &[("class", &"cards")], |h| folded.iter().for_each(|f| write_card(h, f)));
        });
    }
}

fn write_card(h: &mut HtmlBuilder, finding: &Finding) {
    let (class, label) = match finding.severity {
        FindingSeverity::Fault => ("card bad", "fault"),
        FindingSeverity::Gain => ("card gain", "gain"),
        FindingSeverity::Note => ("card note", "note"),
    };
    h.el("li", &[("class", &class)], |h| {
        h.el("p", &[("class", &"observation")], |h| {
            h.leaf("span", &[("class", &"chip")], label).text(" ");
            write_code(h, &finding.observation);
        });
        let gain = finding.gain.as_ref().map(gain_text).unwrap_or_default();
        let rows = [
            ("Cause", &finding.cause),
            ("Action", &finding.action),
            ("Gain", &gain),
            ("Cost", &finding.cost),
        ];
        h.el("dl", &[], |h| {
            for (name, text) in rows.into_iter().filter(|(_, text)| !text.is_empty()) {
                h.el("div", &[("class", &name.to_lowercase())], |h| {
                    h.leaf("dt", &[], name).el("dd", &[], |h| {
                        h.el("span", &[], |h| write_code(h, text));
                        if name == "Action" {
                            h.trusted(COPY);
                        }
                    });
                });
            }
        });
        write_evidence(h, finding);
    });
}

/// `1.5 to 3.1 times as fast, measured`.
fn gain_text(gain: &ExpectedGain) -> String {
    let basis = match gain.basis {
        GainBasis::Measured => "both sides are in this run",
        GainBasis::Predicted => "predicted by the model",
        GainBasis::Simulated => "both sides are in this simulation",
    };
    let (low, high) = (format!("{:.2}", gain.factor.0), format!("{:.2}", gain.factor.1));
    let range = if low == high { low } else { format!("{low} to {high}") };
    format!("{range} times as fast; {basis}")
}

/// Text with settings and options as code: parts between backticks, or if there are none, settings
/// such as `HSA_XNACK=1` and `--gpus`.
fn write_code(h: &mut HtmlBuilder, text: &str) {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len() > 1 && !parts.len().is_multiple_of(2) {
        for (i, part) in parts.into_iter().enumerate() {
            match i % 2 {
                1 => h.leaf("code", &[], part),
                _ => h.text(part),
            };
        }
        return;
    }
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 {
            h.text(" ");
        }
        let core = word.trim_matches(|c| matches!(c, '(' | ')' | ',' | '.' | ';' | ':'));
        match word.split_once(core).filter(|_| is_setting(core)) {
            Some((before, after)) => h.text(before).leaf("code", &[], core).text(after),
            None => h.text(word),
        };
    }
}

/// Whether a text is an option, or an environment variable with its value.
fn is_setting(word: &str) -> bool {
    let is_variable = |name: &str| {
        name.len() > 2
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    word.starts_with("--") && word.len() > 2
        || word.split_once('=').is_some_and(|(name, _)| is_variable(name))
}

fn write_evidence(h: &mut HtmlBuilder, finding: &Finding) {
    if finding.arms.is_empty() && finding.places.is_empty() {
        return;
    }
    h.el("details", &[("class", &"evidence")], |h| {
        let places = fmt::count(finding.places.len(), "place");
        let values = fmt::count(finding.arms.len(), "value");
        let by_size = finding.by_size.as_ref().and_then(SizeEffects::answer);
        let sizes = if by_size.is_some() { ", by size" } else { "" };
        h.leaf("summary", &[], format!("Evidence: {values}, {places}{sizes}"));
        if let Some((verdict, table)) = by_size {
            h.leaf("p", &[], verdict).leaf("pre", &[], table.join("\n"));
        }
        if !finding.places.is_empty() {
            h.leaf("p", &[], finding.places.join(", "));
        }
        if finding.arms.is_empty() {
            return;
        }
        let row = |arm: &FindingArm| {
            let half_width = arm.half_width.map(num).unwrap_or_default();
            let value = format!("{} {}", num(arm.value), arm.unit);
            vec![arm.label.clone(), value, half_width, arm.case.to_string()]
        };
        let columns = [("what", ""), ("value", "n"), ("± 95 %", "n"), ("case", "case")];
        h.table("rows", &columns, finding.arms.iter().map(row));
    });
}

/// Sentences about all figures, folded.
fn write_observations(h: &mut HtmlBuilder, headlines: &[Headline]) {
    if headlines.is_empty() {
        return;
    }
    h.el("details", &[("class", &"more")], |h| {
        h.leaf("summary", &[], fmt::count(headlines.len(), "observation"));
        h.el("ul", &[("class", &"headlines")], |h| {
            for line in headlines {
                let tone = match line.tone {
                    HeadlineTone::Good => "good",
                    HeadlineTone::Plain => "plain",
                    HeadlineTone::Warn => "warn",
                };
                write_line(h, tone, &line.text);
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_text_between_backticks_are_code() {
        let html = |text: &str| {
            let mut h = HtmlBuilder::default();
            write_code(&mut h, text);
            h.finish()
        };
        assert_eq!(html("set `A=<0>` first"), "set <code>A=&lt;0&gt;</code> first");
        assert_eq!(html("5 ` wide"), "5 ` wide");
        assert_eq!(html("Set HSA_XNACK=1, or"), "Set <code>HSA_XNACK=1</code>, or");
        assert_eq!(html("(--gpus 4) x=1"), "(<code>--gpus</code> 4) x=1");
    }

    #[test]
    fn a_gain_states_its_range_and_how_it_is_known() {
        let gain = |low, high, basis| gain_text(&ExpectedGain { factor: (low, high), basis });
        assert_eq!(
            gain(1.5, 3.1, GainBasis::Measured),
            "1.50 to 3.10 times as fast; both sides are in this run"
        );
        assert_eq!(
            gain(2.0, 2.001, GainBasis::Predicted),
            "2.00 times as fast; predicted by the model"
        );
    }
}
