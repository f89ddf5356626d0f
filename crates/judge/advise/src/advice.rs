//! What trials came to, for people and for files.

use std::fmt;

use pathline_schema::Bytes;
use pathline_tuner::TunerRow;
use serde::{Deserialize, Serialize, Serializer};

use crate::arm::{AdviceChoice, AdviceScope, ArmEnv, TrialArm};
use crate::emit::{AdviceFile, AdviceOrigin};
use crate::guard_figure::GuardOutcome;
use crate::proof::GainInterval;
use crate::tuner_choice::tuner_row;

/// Whether to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceVerdict {
    /// The change gains at least what was asked for, on trials that did not choose it.
    #[serde(alias = "do")]
    Proven,
    /// The same on a simulated machine, whose gains are what its model assumes.
    Predicted,
    /// A setting gains at some sizes and loses at others: no global setting.
    BySize,
    /// No choice gains that much: keep the default. Of a variable that is set: it gains.
    Keep,
    /// A variable that is set gains nothing: unset it.
    #[serde(alias = "drop")]
    Remove,
    /// A gain was expected or proven, and the change must not be made.
    Withdrawn,
    /// The setting cannot act here.
    Ignored,
    /// The trials decide nothing.
    #[serde(alias = "undecided")]
    Unclear,
}

impl AdviceVerdict {
    /// The words that reports print, in their order.
    pub(crate) const WORDS: [&'static str; 5] = ["DO", "PREDICTED", "DROP", "KEEP", "UNDECIDED"];

    /// As reports print it: what to do with the setting.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proven => "DO",
            Self::Predicted => "PREDICTED",
            Self::BySize | Self::Keep => "KEEP",
            Self::Remove | Self::Withdrawn | Self::Ignored => "DROP",
            Self::Unclear => "UNDECIDED",
        }
    }
}

/// Files have the word that reports print, in small letters. Those of earlier versions name the reason.
impl Serialize for AdviceVerdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word().to_lowercase())
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
    /// What the change does at a size that it harms: the gain there, which is negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harmed: Option<(Bytes, f64)>,
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
        use AdviceVerdict::{Predicted, Proven, Remove};
        matches!(self.verdict, Proven | Predicted | Remove)
    }

    /// Makes of what trials on a simulated machine prove what it is.
    pub fn predict(&mut self) {
        if self.verdict == AdviceVerdict::Proven {
            self.verdict = AdviceVerdict::Predicted;
            "the model assumes so; nothing was measured".clone_into(&mut self.reason);
        }
    }

    /// An answer about choices that no trial was made for: `why` is a sentence without a full stop.
    pub fn withheld(scope: &AdviceScope, why: String) -> Self {
        Self {
            subject: scope.subject.clone(),
            verdict: AdviceVerdict::Unclear,
            reason: why,
            baseline: scope.baseline.clone(),
            choice: None,
            gain: None,
            chosen: None,
            bound: None,
            by_row_only: false,
            harmed: None,
            guarded: Vec::new(),
            screened: Vec::new(),
        }
    }

    /// The size of what is moved; none of a command.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        self.baseline.bytes()
    }
}

/// `+12 % [+9, +15]` or `7.8x [7.6, 8.1]`; without the interval where it is narrower than the digits.
impl fmt::Display for GainInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, unit): (fn(f64) -> String, _) = match self.gain > 1.0 {
            true => (factor_digits, "x"),
            false => (percent, " %"),
        };
        let [gain, low, high] = [self.gain, self.low, self.high].map(digits);
        if low == gain && high == gain {
            write!(f, "{gain}{unit}")
        } else {
            write!(f, "{gain}{unit} [{low}, {high}]")
        }
    }
}

/// A gain: `+12 %`, and above twice the rate `7.8x`.
pub(crate) fn gain_text(gain: f64) -> String {
    if gain > 1.0 { format!("{}x", factor_digits(gain)) } else { format!("{} %", percent(gain)) }
}

/// The factor of a gain with two digits that count.
pub(crate) fn factor_digits(gain: f64) -> String {
    let factor = 1.0 + gain;
    let digits = usize::from(factor < 9.95);
    format!("{factor:.digits$}")
}

/// A share in percent with its sign: two digits that count, none below 0.1 %.
pub(crate) fn percent(share: f64) -> String {
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
    fn above_twice_the_rate_a_gain_is_a_factor() {
        let shown = [-0.22, 0.46, 1.0, 1.04, 6.8, 130.99].map(gain_text);
        assert_eq!(shown, ["-22 %", "+46 %", "+100 %", "2.0x", "7.8x", "132x"]);
        let gain = |gain, low, high| GainInterval { gain, low, high, blocks: 9 }.to_string();
        assert_eq!(gain(6.8, 6.6, 7.1), "7.8x [7.6, 8.1]");
        assert_eq!(gain(0.12, 0.09, 0.15), "+12 % [+9.0, +15]");
    }

    #[test]
    fn percentages_have_a_sign_and_two_digits() {
        let shown = [0.25, 0.0123, -0.0456, 0.0, -0.0001, 3.4].map(percent);
        assert_eq!(shown, ["+25", "+1.2", "-4.6", "0.0", "0.0", "+340"]);
    }
}
