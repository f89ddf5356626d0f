//! An answer before its causes are ranked.

use serde::Serialize;

use crate::checks::CheckPath;
use crate::figures::figure;
use crate::outlier::Outlier;
use crate::predicted_row::PredictedRow;
use crate::score::{ObservedFeature, WorldEdit};
use crate::usual_share::{ABOVE, UsualShare, usual_share};

/// The paths that the causes of an answer are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbeSubject {
    /// None that a node can measure: files, networks, logs.
    #[default]
    Nothing,
    /// Copies between all GPUs.
    GpuPairs,
    /// Copies between each GPU and the host.
    HostLinks,
}

/// What is asked where the paste names no product.
pub(crate) const ASK_PRODUCT: &str = "which GPU product is it?";
/// A text that names a cause has no limit.
pub(crate) const NO_RATE: &str = "none: it is not about a rate";
/// An answer before its causes are ranked.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftAnswer {
    pub(crate) meaning: String,
    pub(crate) limit: String,
    /// What the limit needs, as a question.
    pub(crate) ask: String,
    /// The headline figure and what it is compared with, GB/s.
    pub(crate) value: Option<f64>,
    /// Directions that the printed figures sum, where these are two.
    pub(crate) ways: f64,
    pub(crate) limit_gbs: Option<f64>,
    /// What the limit holds for, where the paste does not say that the path is that one.
    pub(crate) condition: String,
    /// The share of the limit that is usual for this kind of path.
    pub(crate) usual: Option<UsualShare>,
    /// Further figures of the output.
    pub(crate) also: Vec<String>,
    /// What the rows show that no cause says.
    pub(crate) note: String,
    /// Parts that are slower than their peers.
    pub(crate) outliers: Vec<Outlier>,
    pub(crate) features: Vec<ObservedFeature>,
    pub(crate) edits: Vec<WorldEdit>,
    /// The paths that its causes are about.
    pub(crate) subject: ProbeSubject,
    /// Whether it only describes: no figure and no difference is there to be judged.
    pub(crate) is_description: bool,
    /// What to check where nothing decides.
    pub(crate) path: CheckPath,
    /// Rows that the node's model predicts, and what it makes of them.
    pub(crate) rows: Vec<PredictedRow>,
    pub(crate) model: String,
}

impl DraftAnswer {
    /// Of an exact text, which names a cause and is not about a rate.
    pub(crate) fn of_text(meaning: String, edit: WorldEdit) -> Self {
        let (limit, edits) = (NO_RATE.to_owned(), vec![edit.certain()]);
        Self { limit, edits, ..Self::new(CheckPath::Unknown, meaning, None) }
    }

    /// Without a limit, since the paste names no product.
    pub(crate) fn ask_product(&mut self) {
        self.limit = "unknown: the paste names no GPU product".to_owned();
        self.ask = ASK_PRODUCT.to_owned();
    }

    /// Of a figure, GB/s, that is compared with a limit; none where nothing is.
    pub(crate) fn new(path: CheckPath, meaning: String, value: impl Into<Option<f64>>) -> Self {
        Self { path, meaning, value: value.into(), ..Self::default() }
    }

    /// The limit in GB/s, as text, and the row of the usual shares of it.
    pub(crate) fn set_limit(&mut self, gbs: f64, path: &'static str, text: String) {
        (self.limit, self.limit_gbs, self.usual) = (text, Some(gbs), usual_share(path));
    }

    /// Whether a rate has the usual share of the limit.
    pub(crate) fn is_usual(&self, gbs: f64) -> bool {
        self.usual.zip(self.limit_gbs).is_some_and(|(usual, limit)| gbs >= usual.least * limit)
    }

    /// The headline figure over its limit.
    pub(crate) fn share(&self) -> Option<f64> {
        let limit = self.limit_gbs.filter(|limit| *limit > 0.0);
        Some(self.value? / limit?)
    }

    /// The share above which the limit is not that of its path.
    pub(crate) fn most_share(&self) -> f64 {
        self.usual.map_or(ABOVE, |usual| usual.most)
    }

    /// Whether the headline figure has less than the usual share of its limit.
    pub(crate) fn is_less(&self) -> bool {
        self.usual.zip(self.share()).is_some_and(|(usual, share)| share < usual.least)
    }

    /// Notes the slowest of several parts where it is slow for its path by itself: the middle one clears nothing then.
    pub(crate) fn note_slowest(&mut self, what: &str, least: f64) {
        let slow = self.usual.zip(self.limit_gbs).map_or(0.0, |(usual, limit)| usual.slow * limit);
        let is_apart = self.outliers.is_empty() && self.value.is_some_and(|gbs| gbs > least * 1.2);
        if is_apart && self.note.is_empty() && least < slow {
            let (least, slow) = (figure(least), figure(slow));
            self.note =
                format!("the slowest {what} has {least} GB/s; below {slow} such a path is slow");
        }
    }
}

/// What a probe changed of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeOutcome {
    /// What was measured.
    pub text: String,
    /// Causes before it, with their posterior probability, the most likely first.
    pub before: Vec<(String, f64)>,
    /// The copies.
    pub rows: Vec<PredictedRow>,
}
