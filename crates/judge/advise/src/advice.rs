//! What trials came to, for people and for files.

use pathline_schema::{Bytes, SizeEffects, SizedTransfer};
use pathline_tuner::TunerRow;
use serde::{Deserialize, Serialize, Serializer};

use crate::arm::{AdviceChoice, AdviceScope, ArmEnv, ArmTask, TrialArm};
use crate::guard_figure::GuardOutcome;
use crate::proof::GainInterval;
use crate::tuner_choice::tuner_row;

/// Of choices whose gains differ by less than this share the one that asks for least is taken.
pub(crate) const ALIKE: f64 = 0.03;

/// Why a gain by a model is no prediction.
pub(crate) const WITHIN_MODEL: &str = "the gain by the model is within what its constants and its form leave open: a \
     measurement on the node decides";

/// Why a gain on assumed constants is a prediction.
const GAINS_ANYWAY: &str = "it gains whatever the assumed constants of the model are within their \
     ranges; nothing was measured";

/// Whether to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceVerdict {
    /// The change gains at least what was asked for, on trials that did not choose it.
    #[serde(alias = "do")]
    Proven,
    /// The same on a simulated machine, whose gains are what its model assumes.
    Predicted,
    /// No choice gains that much: keep the default. Of a variable that is set: it gains.
    Keep,
    /// A variable that is set gains nothing: unset it.
    #[serde(alias = "drop")]
    Remove,
    /// A gain was expected or proven, and the change must not be made.
    Withdrawn,
    /// The setting cannot act here.
    Ignored,
    /// It slows or harms as a document says, if the job does what that is about.
    Suspect,
    /// The trials decide nothing.
    #[serde(alias = "undecided")]
    Unclear,
}

impl AdviceVerdict {
    /// The words that reports print, in their order.
    pub(crate) const WORDS: [&'static str; 6] =
        ["DO", "PREDICTED", "DROP", "SUSPECT", "KEEP", "UNDECIDED"];

    /// As reports print it: what to do with the setting.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proven => "DO",
            Self::Predicted => "PREDICTED",
            Self::Keep => "KEEP",
            Self::Remove | Self::Withdrawn | Self::Ignored => "DROP",
            Self::Suspect => "SUSPECT",
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
    /// Where alone a variable gains that loses elsewhere, `in processes that move 1MiB or more`: no job sets it for
    /// all that it runs. The reason says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// What such a setting does by size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_size: Option<SizeEffects>,
    /// Rates of the default and of the choice by a model, GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<[f64; 2]>,
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
    /// Without a choice.
    pub(crate) fn new(
        subject: String,
        baseline: TrialArm,
        verdict: AdviceVerdict,
        reason: String,
    ) -> Self {
        Self {
            subject,
            verdict,
            reason,
            baseline,
            choice: None,
            gain: None,
            chosen: None,
            bound: None,
            by_row_only: false,
            only: None,
            by_size: None,
            rates: None,
            harmed: None,
            guarded: Vec::new(),
            screened: Vec::new(),
        }
    }

    /// The variables by which a job follows this answer; none where a program or a tuner has to.
    pub fn variables(&self) -> ArmEnv {
        let choice = self.choice.as_ref().filter(|_| !self.by_row_only && self.only.is_none());
        choice.map(|choice| choice.settings.clone()).unwrap_or_default()
    }

    /// The row by which a tuner of NCCL or RCCL follows a proven answer about a collective.
    pub fn tuner_row(&self) -> Option<TunerRow> {
        let choice = self.choice.as_ref().filter(|_| self.verdict == AdviceVerdict::Proven)?;
        tuner_row(choice, self.chosen.as_deref()?)
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
            if self.only.is_none() {
                "the model assumes so; nothing was measured".clone_into(&mut self.reason);
            }
        }
    }

    /// What a user does, and where.
    pub(crate) fn action(&self) -> Option<String> {
        let action = &self.choice.as_ref()?.action;
        Some(match &self.only {
            Some(only) => format!("{action}, {only}"),
            None => action.clone(),
        })
    }

    /// States where alone its setting gains, if these effects have a size at which it loses; whether they have.
    pub fn limit_to_sizes(&mut self, effects: &SizeEffects) -> bool {
        let all = [SizedTransfer::Peers, SizedTransfer::Mpi, SizedTransfer::Ucx];
        let sizes = match self.baseline.transfer() {
            Some(own) => effects.sizes_of_gain(own),
            None => all.into_iter().find_map(|transfer| effects.sizes_of_gain(transfer)),
        };
        let (Some(text), Some(sizes)) = (effects.verdict(), sizes) else { return false };
        (self.reason, self.only) = (text, Some(format!("in processes that move {sizes}")));
        self.by_size = Some(effects.clone());
        true
    }

    /// The answer for a variable that gains at some sizes and loses at others, if these effects have such: whether it is
    /// set or not, to set it in processes that move the sizes of its gain. `verdict` is by how the gains are known.
    pub fn of_sizes(
        (name, value): (&str, &str),
        effects: &SizeEffects,
        verdict: AdviceVerdict,
    ) -> Option<Self> {
        let mut answer = untried_setting(name, value, verdict, String::new());
        answer.choice = Some(AdviceChoice::of_setting(format!("Set {name}={value}"), name, value));
        answer.limit_to_sizes(effects).then_some(answer)
    }

    /// An answer about choices that no trial was made for: `why` is a sentence without a full stop.
    pub fn withheld(scope: &AdviceScope, why: String) -> Self {
        let (subject, baseline) = (scope.subject.clone(), scope.baseline.clone());
        Self::new(subject, baseline, AdviceVerdict::Unclear, why)
    }

    /// An answer on assumed constants of a model: `gain_of` has the gain of a choice with the range that they leave open.
    /// One that gains more than `min_gain` in all of it is predicted, the default is kept where none can gain as much;
    /// else nothing is decided, whichever choice is the default.
    pub fn by_assumed(
        scope: &AdviceScope,
        gain_of: &dyn Fn(&TrialArm) -> Option<GainInterval>,
        min_gain: f64,
        why: &str,
    ) -> Option<Self> {
        let gains = || scope.choices.iter().filter_map(|c| Some((c, gain_of(&c.arm)?)));
        let most = gains().map(|(_, gain)| 1.0 + gain.gain).fold(0.0, f64::max);
        // Of choices that are alike, the first asks for the least.
        let (choice, gain) = gains().find(|(_, of)| (1.0 + of.gain) * (1.0 + ALIKE) > most)?;
        let is_kept =
            gains().count() == scope.choices.len() && gains().all(|(_, gain)| gain.high < min_gain);
        let (verdict, why) = match gain.low > min_gain {
            true => (AdviceVerdict::Predicted, GAINS_ANYWAY),
            false if is_kept => (AdviceVerdict::Keep, why),
            false => (AdviceVerdict::Unclear, why),
        };
        let (choice, gain) = (Some(choice.clone()), Some(gain));
        Some(Self { verdict, choice, gain, ..Self::withheld(scope, why.to_owned()) })
    }

    /// Takes the range that the constants and the form of a model leave open for the interval of a gain, which `times`
    /// are that much less and more of, and takes a prediction back that is not above `min_gain` in all of it.
    pub fn widen(&mut self, [less, more]: [f64; 2], min_gain: f64) {
        let Some(gain) = self.gain.as_mut() else { return };
        let of = |factor: f64| (1.0 + gain.gain) * factor - 1.0;
        (gain.low, gain.high) = (of(less), of(more));
        if self.verdict == AdviceVerdict::Predicted && gain.low <= min_gain {
            (self.verdict, self.only) = (AdviceVerdict::Unclear, None);
            WITHIN_MODEL.clone_into(&mut self.reason);
        }
    }

    /// An answer about an option of a job script, without trials: `why` is a sentence without a full stop.
    pub(crate) fn of_option(option: String, verdict: AdviceVerdict, why: String) -> Self {
        let untried = untried_setting(&option, "", verdict, why);
        Self { subject: option, choice: None, ..untried }
    }

    /// Whether it rests on what a model assumes, without a trial.
    pub fn is_assumed(&self) -> bool {
        self.gain.is_some_and(|gain| gain.blocks == 0) && self.bytes().is_some()
    }

    /// The size of what is moved; none of a command.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        self.baseline.bytes()
    }
}

/// An answer about a variable that is set, without trials.
pub(crate) fn untried_setting(
    name: &str,
    value: &str,
    verdict: AdviceVerdict,
    reason: String,
) -> Advice {
    let arm = |label: String| TrialArm { label, task: ArmTask::Command, env: ArmEnv::new() };
    let subject = format!("{name}={value}");
    let choice = Some(removal_choice(name, arm(String::new())));
    Advice { choice, ..Advice::new(subject.clone(), arm(subject), verdict, reason) }
}

/// To leave a variable out.
pub(crate) fn removal_choice(name: &str, of: TrialArm) -> AdviceChoice {
    let removal = ArmEnv::from([(name.to_owned(), String::new())]);
    AdviceChoice {
        arm: of.with_env(format!("without {name}"), removal),
        ..AdviceChoice::of_setting(format!("Unset {name}"), name, "")
    }
}
