//! An answer to a pasted output, and its lines.

use pathline_schema::NodeVerdict;
use serde::Serialize;

use crate::checks::PathCheck;
use crate::draft::{ProbeOutcome, ProbeSubject};
use crate::figures::{figure, rate};
use crate::predicted_row::PredictedRow;
use crate::score::LikelyCause;
use crate::verdict::percent;

/// A share of a cause that a probe changes by less is the same.
const MOVED: f64 = 0.1;
/// Characters of a line that is quoted.
const MAX_TEXT: usize = 160;

/// What a pasted output means, and what is said of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PasteAnswer {
    /// The tool.
    pub tool: String,
    /// First line of the paste that it rests on.
    pub first_line: u32,
    /// Last line.
    pub last_line: u32,
    /// What the number is, and how the tool counts.
    pub meaning: String,
    /// Further figures of the output.
    pub also: Vec<String>,
    /// The limit with its source, or why there is none.
    pub limit: String,
    /// What the limit needs, as a question; empty where there is one.
    pub ask: String,
    /// The headline figure, GB/s.
    pub value_gbs: Option<f64>,
    /// The limit, GB/s.
    pub limit_gbs: Option<f64>,
    /// The figure over the limit; none where it is above it, since then the limit is another.
    pub share: Option<f64>,
    /// The rows with the prediction of the node's model, where a node is given.
    pub rows: Vec<PredictedRow>,
    /// What the model makes of them; empty without.
    pub model: String,
    /// What a probe of the node changed, if one was run.
    pub checked: Option<ProbeOutcome>,
    /// Whether it only describes what was pasted: then no verdict is read.
    pub is_description: bool,
    /// What is said of the figure.
    pub verdict: NodeVerdict,
    /// Why.
    pub reason: String,
    /// Whether a part shows a fault.
    pub is_fault: bool,
    /// What to do, where something is slow.
    pub action: String,
    /// Causes that may give the figure, where the verdict is not `as expected`.
    pub possible: Vec<String>,
    /// What to run where nothing decides, the cheapest first.
    pub checks: Vec<PathCheck>,
    /// Causes that were considered, the most likely first.
    pub causes: Vec<LikelyCause>,
    /// The paths that its causes are about.
    #[serde(skip)]
    pub(crate) subject: ProbeSubject,
}

impl PasteAnswer {
    /// Labels with their texts: what it is, limit, share, verdict, what may be, what to run.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("figure", self.meaning.clone())];
        lines.extend(self.also.iter().map(|text| ("also", text.clone())));
        lines.push((if self.is_description { "links" } else { "limit" }, self.limit.clone()));
        if self.is_description {
            return lines;
        }
        if let (Some(value), Some(limit), Some(share)) =
            (self.value_gbs, self.limit_gbs, self.share)
        {
            let rates = match value < 0.0995 {
                true => format!("{} / {}", rate(value), rate(limit)),
                false => format!("{} / {} GB/s", figure(value), figure(limit)),
            };
            let text = format!("{rates} = {} of the limit", percent(share));
            lines.push(("share", text));
        }
        if !self.model.is_empty() {
            lines.push(("model", self.model.clone()));
        }
        if let Some(checked) = &self.checked {
            lines.push(("checked", self.check_text(checked)));
        }
        lines.push(("verdict", format!("{}: {}", self.verdict.word(), self.reason)));
        lines.extend(self.possible.iter().map(|text| ("possible", text.clone())));
        let is_bad = matches!(self.verdict, NodeVerdict::Suspect | NodeVerdict::Fail);
        if is_bad && !self.action.is_empty() {
            lines.push(("do", self.action.clone()));
        }
        if self.verdict != NodeVerdict::Ok && !self.ask.is_empty() {
            lines.push(("ask", self.ask.clone()));
        }
        let check = |check: &PathCheck| {
            format!("{}; if yes, {}; if no, {}", check.command, check.yes, check.no)
        };
        lines.extend(self.checks.iter().map(|one| ("check", check(one))));
        lines
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.verdict == NodeVerdict::Ok
    }

    /// With a line of the paste as what it is about.
    fn at_line(mut self, (number, text): &(u32, String), reason: String) -> Self {
        let text: String = text.chars().take(MAX_TEXT).collect();
        (self.reason, self.meaning) = (reason, format!("\"{text}\""));
        (self.first_line, self.last_line) = (*number, *number);
        self
    }

    /// With a line by which the tool states that it failed.
    pub(crate) fn failed(mut self, line: &(u32, String)) -> Self {
        let known = format!(": {}", self.reason);
        let cause = if self.action.is_empty() { "" } else { &*known };
        self.verdict = NodeVerdict::Fail;
        self.at_line(line, format!("line {} states that it failed{cause}", line.0))
    }

    /// With the line that has its text, below which the program went on.
    pub(crate) fn stated_at(self, line: &(u32, String)) -> Self {
        let reason = format!("line {}, after which results follow: {}", line.0, self.reason);
        self.at_line(line, reason)
    }

    /// An error without a known meaning, below which the program went on.
    pub(crate) fn of_error(mut self, number: u32) -> Self {
        self.reason = format!("line {number} states an error, after which results follow");
        self.verdict = NodeVerdict::Suspect;
        self
    }

    /// What the probe measured, and the share of the first cause now and of the one before, where it moved.
    fn check_text(&self, checked: &ProbeOutcome) -> String {
        let mut named: Vec<&str> =
            checked.before.iter().take(1).map(|(id, _)| id.as_str()).collect();
        named.extend(self.causes.first().map(|cause| cause.id));
        named.dedup();
        let mut text = checked.text.clone();
        for cause in named.iter().filter_map(|id| self.causes.iter().find(|one| one.id == *id)) {
            let before = checked.before.iter().find(|(id, _)| id == cause.id).map_or(0.0, |b| b.1);
            if (cause.share - before).abs() >= MOVED {
                let what = cause.text.split([':', ';']).next().unwrap_or_default();
                let (before, now) = (before * 100.0, cause.share * 100.0);
                text.push_str(&format!("; {what}: from {before:.0} to {now:.0} %"));
            }
        }
        text
    }
}
