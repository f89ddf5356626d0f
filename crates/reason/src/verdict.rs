//! The verdict on a pasted output: what its figures show by themselves.

use serde::Serialize;

use crate::deciding_probe::ProbeOutcome;
use crate::draft::ProbeSubject;
use crate::node_facts::figure;
use crate::row_predictor::PredictedRow;
use crate::score::{AnswerClass, LikelyCause};

/// Above this share the limit is not that of the path: tools round, and clocks differ by a percent.
const ABOVE_LIMIT: f64 = 1.02;
/// A cause whose figure is farther from the pasted one than this factor cannot give it.
const GIVES_WITHIN: f64 = 1.35;
/// Posterior from which on "as expected" is the verdict.
const EXPECTED_SHARE: f64 = 0.5;
/// Below this share of a limit that is in the paste or of the named node, a rate is slow whatever the cause.
const SLOW_SHARE: f64 = 0.6;
/// Possible causes and checks that are shown.
const MAX_SHOWN: usize = 3;

/// What an answer says of its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PasteVerdict {
    /// Hardware and protocol allow no more.
    AsExpected,
    /// A part differs from its peers.
    Outlier,
    /// A cause that follows by arithmetic, or that a library states.
    Explained,
    /// Below the limit, and no single cause gives the figures.
    Slow,
    /// Neither is shown.
    Undecided,
}

impl PasteVerdict {
    /// For people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::AsExpected => "as expected",
            Self::Outlier => "OUTLIER",
            Self::Explained => "explained",
            Self::Slow => "SLOW, cause UNDECIDED",
            Self::Undecided => "UNDECIDED",
        }
    }
}

/// What a pasted output means, and why it is what it is.
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
    /// The limit of the node with its source.
    pub limit: String,
    /// The headline figure, GB/s.
    pub value_gbs: Option<f64>,
    /// The limit, GB/s.
    pub limit_gbs: Option<f64>,
    /// The figure over the limit.
    pub share: Option<f64>,
    /// The rows with the prediction of the node's model, where a node is given.
    pub rows: Vec<PredictedRow>,
    /// What the model makes of them; empty without.
    pub model: String,
    /// What a probe of the node changed, if one was run.
    pub checked: Option<ProbeOutcome>,
    /// What the figures show.
    pub verdict: PasteVerdict,
    /// Why, in words.
    pub verdict_text: String,
    /// Causes, the most likely first. They are possible, not shown, unless the verdict is that one explains it.
    pub causes: Vec<LikelyCause>,
    /// The paths that its causes are about.
    #[serde(skip)]
    pub(crate) subject: ProbeSubject,
}

impl PasteAnswer {
    /// Whether the figure is more than its limit.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.share.is_some_and(|share| share > ABOVE_LIMIT)
    }

    /// The verdict with its reason. `outlier`: what differs from its peers, in words; `is_certain`: the first
    /// cause follows by arithmetic.
    pub(crate) fn judge(
        &self,
        outlier: Option<String>,
        is_certain: bool,
    ) -> (PasteVerdict, String) {
        let first = self.causes.first();
        if self.exceeds_limit() {
            let text = "the figure is above the limit, so the limit is not that of this path: name the \
                        product, its links or adapters";
            return (PasteVerdict::Undecided, text.to_owned());
        }
        if let Some(text) = outlier {
            return (PasteVerdict::Outlier, text);
        }
        match first {
            Some(cause) if is_certain && cause.class == AnswerClass::AsExpected => {
                (PasteVerdict::AsExpected, cause.text.clone())
            }
            Some(cause) if is_certain => (PasteVerdict::Explained, cause.text.clone()),
            Some(cause)
                if cause.class == AnswerClass::AsExpected
                    && cause.share >= EXPECTED_SHARE
                    && self.gives_figure(cause) =>
            {
                (PasteVerdict::AsExpected, cause.text.clone())
            }
            _ if self.share.is_some_and(|share| share < SLOW_SHARE) => {
                let percent = self.share.unwrap_or(0.0) * 100.0;
                (
                    PasteVerdict::Slow,
                    format!("{percent:.0} % of the limit; several causes give that"),
                )
            }
            _ => (PasteVerdict::Undecided, self.missing_fact().to_owned()),
        }
    }

    /// What the paste lacks to be judged.
    fn missing_fact(&self) -> &'static str {
        match (self.value_gbs, self.limit_gbs) {
            (None, _) => "the paste has no figure to judge",
            (_, None) => "the limit is not known: name the GPU, its links or its adapters",
            _ => "the figure lies between what is expected and what a fault gives",
        }
    }

    /// Whether a cause can give the figure of the answer.
    fn gives_figure(&self, cause: &LikelyCause) -> bool {
        match (self.value_gbs, cause.predicted) {
            (Some(value), Some(predicted)) if predicted > 1.0 && value > 1.0 => {
                (value / predicted).max(predicted / value) <= GIVES_WITHIN
            }
            _ => true,
        }
    }

    /// Causes that can give the figures, none of which is shown.
    pub fn possible_causes(&self) -> impl Iterator<Item = &LikelyCause> {
        let is_open = matches!(
            self.verdict,
            PasteVerdict::Outlier | PasteVerdict::Slow | PasteVerdict::Undecided
        );
        let is_cause = |cause: &&LikelyCause| {
            let is_class = !matches!(cause.class, AnswerClass::Unknown | AnswerClass::AsExpected);
            is_class && cause.share > 0.05 && self.gives_figure(cause)
        };
        self.causes.iter().filter(is_cause).take(if is_open { MAX_SHOWN } else { 0 })
    }

    /// The answer in lines: what it is, limit, share, the model's figure, verdict, possible causes, checks.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("figure", self.meaning.clone()), ("limit", self.limit.clone())];
        if let (Some(value), Some(limit), Some(share)) =
            (self.value_gbs, self.limit_gbs, self.share)
            && !self.exceeds_limit()
        {
            let (value, limit) = (figure(value), figure(limit));
            let text = format!("{value} / {limit} GB/s = {:.0} % of the limit", share * 100.0);
            lines.push(("share", text));
        }
        if !self.model.is_empty() {
            lines.push(("model", self.model.clone()));
        }
        if let Some(checked) = &self.checked {
            lines.push(("check", self.check_text(checked)));
        }
        lines.push(("verdict", format!("{}: {}", self.verdict.label(), self.verdict_text)));
        for cause in self.possible_causes() {
            lines.push(("maybe", format!("{}; to see: {}", cause.text, cause.check)));
        }
        if self.possible_causes().next().is_none()
            && let Some(cause) = self.causes.first().filter(|cause| !cause.check.is_empty())
        {
            lines.push(("check", cause.check.clone()));
        }
        lines
    }
}

impl PasteAnswer {
    /// What the probe measured, and the odds of the first cause now and of the one before.
    fn check_text(&self, checked: &ProbeOutcome) -> String {
        let share = |id: &str| {
            let before = checked.before.iter().filter(|(cause, _)| cause == id);
            let now = self.causes.iter().filter(|cause| cause.id == id);
            (before.map(|(_, s)| s).sum::<f64>(), now.map(|cause| cause.share).sum::<f64>())
        };
        let old = checked.before.first().map(|(id, _)| id.as_str());
        let new = self.causes.first().map(|cause| cause.id);
        let shift = |id: &str| {
            let (before, now) = share(id);
            format!("{id} from {} to {}", odds(before.min(0.95)), odds(now.min(0.95)))
        };
        match (old, new) {
            (Some(old), Some(new)) if old != new => {
                format!("{}. {}; {}", checked.text, shift(old), shift(new))
            }
            (_, Some(new)) => format!("{}. {}", checked.text, shift(new)),
            _ => checked.text.clone(),
        }
    }
}

/// `5:1`, `1:2`.
fn odds(share: f64) -> String {
    let odds = share / (1.0 - share).max(1e-3);
    match odds {
        o if o > 100.0 => "follows by arithmetic".to_owned(),
        o if o >= 1.0 => format!("odds {o:.0}:1"),
        o => format!("odds 1:{:.0}", 1.0 / o.max(1e-3)),
    }
}
