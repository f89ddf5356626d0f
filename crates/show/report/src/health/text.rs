//! The result of a health check for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pathline_diagnose::posterior::SURE;
use pathline_diagnose::{Culprit, HealthReport, SuspectPath, gpus_in};
use pathline_explain::fmt;
use pathline_schema::{NodeVerdict, line_words};

use super::document::HealthDocument;

/// Maximum entries of suspects and other lists.
const SHOWN: usize = 5;
/// Odds from which on the next most probable part is not named.
const CERTAIN: f64 = 1000.0;
/// Columns of paragraph headings.
const HEADING: usize = 10;

/// A summary within `width` columns: identity, verdict, reason, evidence, limits, time.
pub fn text(document: &HealthDocument, width: usize) -> String {
    let mut page = TextPage::new(width);
    let identity = match (&document.simulated, document.node.is_empty()) {
        (_, true) => document.host.clone(),
        (Some(name), false) => format!("{name} (SIMULATED): {}", document.node),
        (None, false) => format!("{}: {}", document.host, document.node),
    };
    page.lines("", &identity);
    page.lines("", &format!("{}: {}", document.state.word(), document.reason));
    if let Some(report) = &document.report {
        evidence(&mut page, document, report);
    }
    if let Some(against) = &document.against {
        page.paragraph("compared", &against.result);
        for (path, loss) in against.slower.iter().take(SHOWN) {
            page.paragraph("", &format!("{path}: {:.1} % slower", loss * 100.0));
        }
        page.more(against.slower.len());
    }
    if !document.action.is_empty() {
        page.paragraph("do", &document.action);
    }
    let seconds = &document.seconds;
    if seconds.budget > 0.0 {
        let clock = if document.seconds.is_virtual { " of virtual time" } else { "" };
        let rounds = document.report.as_ref().map_or(0, |report| report.power.rounds);
        page.paragraph(
            "time",
            &format!(
                "{:.1} of {} s{clock}, {} in {}",
                seconds.total,
                seconds.budget,
                plural(rounds, "round"),
                plural(document.processes as usize, "process"),
            ),
        );
    }
    if document.paths.is_empty() && document.simulated.is_none() {
        page.paragraph("next", "`pathline health -m mi250x` checks a simulated node of eight GCDs");
    }
    page.text
}

fn evidence(page: &mut TextPage, document: &HealthDocument, report: &HealthReport) {
    page.list("faults", &report.faults);
    let suspects: Vec<String> = report.suspects.iter().map(|one| suspect(document, one)).collect();
    page.list("suspects", &suspects);
    let best = report.culprits.first().map_or(0.0, |culprit| culprit.probability);
    let likely = |culprit: &&Culprit| culprit.probability * SURE > best;
    for (nth, culprit) in report.culprits.iter().take(2).filter(likely).enumerate() {
        let certain = probability(culprit.probability);
        let mut line = format!("{}: {} ({certain})", culprit.name(), culprit.damage);
        if let (0, Some(next)) = (nth, culprit.next.as_ref().filter(|_| culprit.odds < CERTAIN)) {
            let _ = write!(line, "; else {next}");
        }
        if let Some(probe) = &culprit.decided_by {
            let _ = write!(line, "; {probe} would distinguish them");
        }
        page.paragraph(if nth == 0 { "culprit" } else { "" }, &line);
    }
    let named = report.culprits.iter().take(2).flat_map(|culprit| gpus_in(&culprit.element));
    for gpu in named.collect::<BTreeSet<u32>>() {
        let name = format!("gpu{gpu}");
        if let Some(part) = document.parts.get(&name) {
            page.paragraph("", &format!("{name}: {part}"));
        }
    }
    page.list("notes", &report.notes);
    page.list("limits", &document.facts.limits);
    let power = &report.power;
    if power.cleared > 0 && power.text != document.reason {
        page.paragraph("cleared", &power.text);
    }
    let open = power.paths.saturating_sub(report.suspects.len() + power.cleared);
    if open > 0 && document.state == NodeVerdict::Fail {
        let stopped = format!("{open} paths: the check ended with the fault");
        page.paragraph("undecided", &stopped);
    }
    let is_new = |text: &&String| !document.facts.limits.contains(text);
    let uncovered: Vec<String> = report.unseen.iter().filter(is_new).cloned().collect();
    // A fault that was found needs no limits of the search.
    if document.state != NodeVerdict::Fail {
        page.list("uncovered", &uncovered);
    }
}

/// The slowest path of a check, as its text shows it.
pub fn worst_path(document: &HealthDocument) -> Option<String> {
    let report = document.report.as_ref()?;
    report.suspects.first().map(|one| suspect(document, one))
}

/// `gpu3→gpu2, SDMA copy: 30.1 of 50.3 GB/s (40 % slower than 3 peers), in 3 of 3 processes`; small copies by time.
fn suspect(document: &HealthDocument, suspect: &SuspectPath) -> String {
    let class = document.classes.iter().find(|class| class.label == suspect.class);
    let bytes = class.and_then(|class| Some(class.bytes_per_second? * class.median_seconds?));
    let values = match bytes {
        // Bytes a nanosecond are GB/s.
        Some(bytes) => {
            let rate = |ns: f64| fmt::number(bytes / ns);
            format!("{} of {} GB/s", rate(suspect.measured_ns), rate(suspect.reference_ns))
        }
        None => {
            let us = |ns: f64| fmt::number(ns / 1e3);
            format!("{} us, peers {}", us(suspect.measured_ns), us(suspect.reference_ns))
        }
    };
    let processes = match (suspect.confirmed, suspect.evidence.len()) {
        (true, n) => format!("in {n} of {n} processes"),
        (false, 1) => "in one process, not confirmed".to_owned(),
        (false, n) => format!("not in each of {n} processes"),
    };
    format!(
        "{}: {values} ({} slower than {}), {processes}",
        suspect.path,
        fmt::percent(suspect.loss),
        plural(suspect.peers, "peer"),
    )
}

/// `88 %`; never 100 %.
fn probability(share: f64) -> String {
    if share > 0.99 { "over 99 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}

pub(super) fn plural(n: usize, what: &str) -> String {
    match (n, what) {
        (1, what) => format!("1 {what}"),
        (n, "process") => format!("{n} processes"),
        (n, what) => format!("{n} {what}s"),
    }
}

pub(crate) struct TextPage {
    width: usize,
    pub(crate) text: String,
}

impl TextPage {
    /// An empty page of this width.
    pub(crate) fn new(width: usize) -> Self {
        Self { width: width.clamp(40, 200), text: String::new() }
    }

    /// Appends a text whose further lines are indented by `indent`.
    pub(crate) fn lines(&mut self, first: &str, text: &str) {
        let indent = if first.is_empty() { 2 } else { HEADING };
        let mut line = match first.is_empty() {
            true => String::new(),
            false => format!("{first:HEADING$}"),
        };
        let mut used = line.chars().count();
        let mut is_empty = true;
        for word in line_words(text, self.width - indent) {
            let length = word.chars().count();
            if !is_empty && used + 1 + length > self.width {
                self.text += line.trim_end();
                self.text.push('\n');
                line = " ".repeat(indent);
                used = indent;
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
                used += 1;
            }
            line += &word;
            used += length;
            is_empty = false;
        }
        self.text += line.trim_end();
        self.text.push('\n');
    }

    pub(crate) fn paragraph(&mut self, heading: &str, text: &str) {
        // A line without a heading belongs to the previous heading.
        let heading = if heading.is_empty() { " " } else { heading };
        self.lines(heading, text);
    }

    fn list(&mut self, heading: &str, entries: &[String]) {
        for (nth, entry) in entries.iter().take(SHOWN).enumerate() {
            self.paragraph(if nth == 0 { heading } else { "" }, entry);
        }
        self.more(entries.len());
    }

    fn more(&mut self, entries: usize) {
        if entries > SHOWN {
            self.paragraph("", &format!("and {} more", entries - SHOWN));
        }
    }
}
