//! An answer to a pasted output, and its lines.

use pathline_schema::NodeVerdict;
use serde::Serialize;

use crate::checks::PathCheck;
use crate::draft::{ProbeOutcome, ProbeSubject};
use crate::node_facts::{figure, rate};
use crate::row_predictor::PredictedRow;
use crate::score::LikelyCause;

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
            let text = format!("{rates} = {:.0} % of the limit", share * 100.0);
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
        if self.verdict == NodeVerdict::Suspect && !self.action.is_empty() {
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

    /// What the probe measured, and the shares of the first cause now and of the one before.
    fn check_text(&self, checked: &ProbeOutcome) -> String {
        let share = |id: &str| {
            let before = checked.before.iter().filter(|(cause, _)| cause == id);
            let now = self.causes.iter().filter(|cause| cause.id == id);
            (before.map(|(_, s)| s).sum::<f64>(), now.map(|cause| cause.share).sum::<f64>())
        };
        let shift = |id: &str| {
            let (before, now) = share(id);
            format!("; {id} from {:.0} to {:.0} %", before * 100.0, now * 100.0)
        };
        let old = checked.before.first().map(|(id, _)| id.as_str());
        let new = self.causes.first().map(|cause| cause.id);
        let mut text = checked.text.clone();
        text.push_str(&old.filter(|old| Some(*old) != new).map(shift).unwrap_or_default());
        text.push_str(&new.map(shift).unwrap_or_default());
        text
    }
}
