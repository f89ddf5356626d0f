//! What trials came to, for people and for files.

use std::fmt;

use pathline_tuner::TunerRow;
use serde::{Deserialize, Serialize};

use crate::arm::{AdviceChoice, ArmEnv, TrialArm};
use crate::emit::{AdviceFile, AdviceOrigin};
use crate::guard_figure::GuardOutcome;
use crate::proof::GainInterval;
use crate::tuner_choice::tuner_row;

/// Whether to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceVerdict {
    /// The change gains at least what was asked for, on trials that did not choose it.
    Proven,
    /// No choice gains that much: keep the default. Of a variable that is set: it gains.
    Keep,
    /// A variable that is set gains nothing: unset it.
    Remove,
    /// A gain was expected or proven, and the change must not be made.
    Withdrawn,
    /// The setting cannot act here.
    Ignored,
    /// The trials decide nothing.
    Unclear,
}

impl AdviceVerdict {
    /// As reports print it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proven => "PROVEN",
            Self::Keep => "KEEP",
            Self::Remove => "REMOVE",
            Self::Withdrawn => "WITHDRAWN",
            Self::Ignored => "IGNORED",
            Self::Unclear => "UNCLEAR",
        }
    }
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is moved.
    pub subject: String,
    /// Whether to change something.
    pub verdict: AdviceVerdict,
    /// Why; a sentence without a full stop.
    pub reason: String,
    /// What a program does that chooses nothing.
    pub baseline: TrialArm,
    /// The change that the verdict is about.
    pub choice: Option<AdviceChoice>,
    /// The gain of that change, from the blocks of its proof.
    pub gain: Option<GainInterval>,
    /// What the library chose under that change: `ring ll on 16 channels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// With [`AdviceVerdict::Keep`]: what no choice gains, shown with an error rate of 1 % a question: 0.005 is
    /// 0.5 %. None where only short trials showed no gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Whether the change must not be a variable, which harms other cases, but a row of a tuner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_row_only: bool,
    /// Figures that the change must not make worse, over the blocks of its proof.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<GuardOutcome>,
    /// Choices by their gain in the first, short trials, the best first. They chose; they prove nothing.
    pub screened: Vec<ScreenedChoice>,
}

/// A choice in the short trials that select what is proven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScreenedChoice {
    /// Name of the choice.
    pub label: String,
    /// Median gain over the blocks: 0.25 is 25 %. None if it could not be measured.
    pub gain: Option<f64>,
    /// Why it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Advice {
    /// The variables by which a job follows this answer; none where a program or a tuner has to.
    pub fn variables(&self) -> ArmEnv {
        let choice = self.choice.as_ref().filter(|_| !self.by_row_only);
        choice.map(|choice| choice.settings.clone()).unwrap_or_default()
    }

    /// The row by which a tuner of NCCL or RCCL follows a proven answer about a collective.
    pub fn tuner_row(&self) -> Option<TunerRow> {
        let choice = self.choice.as_ref().filter(|_| self.verdict == AdviceVerdict::Proven)?;
        tuner_row(choice, self.chosen.as_deref()?)
    }

    /// Makes of the answer that a choice gains nothing, if it was proven earlier, the answer that it must not be
    /// made here.
    pub fn withdraw(&mut self, earlier: &AdviceFile, min_gain: f64) {
        let is_same = |known: &&Self| known.subject == self.subject && known.is_change();
        let Some(choice) = earlier.answers.iter().find(is_same).and_then(|a| a.choice.as_ref())
        else {
            return;
        };
        let (label, AdviceOrigin { node, date, .. }) = (&choice.arm.label, &earlier.origin);
        let margin = share_text(min_gain);
        self.reason =
            format!("{label} was proven on {node} ({date}), and gains less than {margin} % here");
        self.choice = Some(choice.clone());
        self.verdict = AdviceVerdict::Withdrawn;
    }

    /// Whether a user should change something.
    pub fn is_change(&self) -> bool {
        matches!(self.verdict, AdviceVerdict::Proven | AdviceVerdict::Remove)
    }
}

/// `+12 % [+9, +15]`; without the interval where it is narrower than the digits.
impl fmt::Display for GainInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [gain, low, high] = [self.gain, self.low, self.high].map(percent);
        if low == gain && high == gain {
            write!(f, "{gain} %")
        } else {
            write!(f, "{gain} % [{low}, {high}]")
        }
    }
}

/// A share in percent with its sign: two digits that count, none below 0.1 %.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = usize::from(value.abs() < 9.95);
    let text = format!("{value:+.digits$}");
    // A zero has no sign.
    if text.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
        text.trim_start_matches(['+', '-']).to_owned()
    } else {
        text
    }
}

/// A share in percent without a sign: `1`, `0.5`.
pub(crate) fn share_text(share: f64) -> String {
    // Seven digits hide what a binary fraction adds to 0.01 * 100.
    let text = format!("{:.7}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_a_sign_and_two_digits() {
        let shown = [0.25, 0.0123, -0.0456, 0.0, -0.0001, 3.4].map(percent);
        assert_eq!(shown, ["+25", "+1.2", "-4.6", "0.0", "0.0", "+340"]);
    }
}
