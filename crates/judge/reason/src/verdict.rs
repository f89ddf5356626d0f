//! What is said of a figure: OK, SUSPECT with its cause, or UNDECIDED.

use pathline_schema::NodeVerdict;

use crate::draft::DraftAnswer;
use crate::figures::{figure, rate};
use crate::predicted_row::{PredictedRow, is_within};
use crate::score::{AnswerClass, CauseBasis, LikelyCause};

/// Causes that say no more than that a figure is the usual share of its limit: where that share is known it decides.
const FULL: &str = "line-full link-full network-full pcie-full pcie-peer ring";
/// A figure is above what a cause gives from this factor on.
const EXCEEDED: f64 = 1.02;
/// Share of the posterior from which on a cause by a model of the node is said to be the cause.
const LIKELY: f64 = 0.5;
/// Share from which on another cause that gives the rows too is a rival.
const RIVAL: f64 = 0.05;
/// The same after a probe of the node.
const CHECKED: f64 = 0.85;
/// Share from which on a cause is worth to be read among possible ones.
const POSSIBLE: f64 = 0.08;
/// A range of a model is wide from this factor on.
const WEAK: f64 = 2.0;
/// What stands for a cause where a part differs from its peers.
const OUTLIER: &str = "outlier";
/// The cause of wrong results.
const WRONG: &str = "wrong-bytes";
/// Possible causes that are read.
const MAX_POSSIBLE: usize = 3;

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    pub(crate) verdict: NodeVerdict,
    /// The cause that decided, if one did.
    pub(crate) cause: Option<&'static str>,
    pub(crate) is_fault: bool,
    pub(crate) reason: String,
    /// What to do, or to run.
    pub(crate) action: String,
}

impl Decision {
    fn of_cause(verdict: NodeVerdict, cause: &LikelyCause) -> Self {
        let is_fault =
            verdict == NodeVerdict::Suspect && cause.class == AnswerClass::HardwareSuspect;
        // Wrong results are a failure, whatever the rate.
        let verdict = if cause.id == WRONG { NodeVerdict::Fail } else { verdict };
        let (reason, action) = (cause.text.clone(), cause.check.clone());
        Self { verdict, cause: Some(cause.id), is_fault, reason, action }
    }

    fn ok(reason: String) -> Self {
        Self { verdict: NodeVerdict::Ok, ..Self::undecided(reason) }
    }

    fn undecided(reason: impl Into<String>) -> Self {
        Self {
            verdict: NodeVerdict::Undecided,
            cause: None,
            is_fault: false,
            reason: reason.into(),
            action: String::new(),
        }
    }
}

const fn is_good(class: AnswerClass) -> bool {
    matches!(class, AnswerClass::AsExpected | AnswerClass::MeansSomethingElse)
}

/// What a verdict is made from, besides the causes.
#[derive(Debug)]
pub(crate) struct JudgedFigure<'a> {
    /// The answer before its causes were ranked.
    pub(crate) draft: &'a DraftAnswer,
    /// Whether a model of the node predicts the rows.
    pub(crate) is_modelled: bool,
    /// Whether a probe of the node took part.
    pub(crate) is_checked: bool,
    /// The slowest row with what the constants of the model leave open for it, low and high in its unit.
    pub(crate) range: Option<(PredictedRow, (f64, f64))>,
    /// The row of the headline, where it and all that the bytes decide are as fast as predicted.
    pub(crate) plateau: Option<PredictedRow>,
    /// The narrower link that the figure fits; empty if none.
    pub(crate) narrower: String,
}

/// Judges a figure.
pub(crate) fn decide(causes: &[LikelyCause], judged: &JudgedFigure<'_>) -> Decision {
    let draft = judged.draft;
    let (outliers, share) = (&draft.outliers, draft.share());
    let Some(first) = causes.first() else { return by_outliers(draft) };
    let by = |cause: &LikelyCause| {
        let verdict = if is_good(cause.class) { NodeVerdict::Ok } else { NodeVerdict::Suspect };
        Decision::of_cause(verdict, cause)
    };
    if first.basis == CauseBasis::Arithmetic {
        if first.class == AnswerClass::Unknown {
            return Decision { action: first.check.clone(), ..Decision::undecided(&*first.text) };
        }
        return by(first);
    }
    if let Some(within) = within_range(judged) {
        return within;
    }
    if judged.is_modelled {
        // Two causes that give the rows alike are no single one.
        let is_rival = |other: &LikelyCause| {
            other.fits && other.share >= RIVAL && !is_good(other.class) && !is_good(first.class)
        };
        let is_alone = !causes.iter().skip(1).any(is_rival);
        let is_said = first.share >= LIKELY && first.class != AnswerClass::Unknown && is_alone;
        // What a probe of the node left over is the cause.
        let is_left = judged.is_checked && first.share >= CHECKED;
        let is_shown = first.basis == CauseBasis::Model || is_good(first.class) || is_left;
        // Rows that are slower than their peers, or than the model leaves open, are not as expected.
        let is_open = is_good(first.class) && (!outliers.is_empty() || judged.range.is_some());
        return match is_said && is_shown && !is_open {
            true => by(first),
            false if !outliers.is_empty() => by_outliers(draft),
            false => match &judged.plateau {
                Some(row) => as_fast(causes, row),
                None => below_range(judged),
            },
        };
    }
    if !outliers.is_empty() {
        return by_outliers(draft);
    }
    // What is stated of these rows speaks before what a sound node would show.
    let shown = |cause: &&LikelyCause| match cause.basis {
        CauseBasis::Stated => cause.fits && !is_good(cause.class),
        CauseBasis::Exact => {
            cause.fits
                && causes.iter().all(|other| {
                    other.basis != CauseBasis::Exact || !other.fits || other.id == cause.id
                })
        }
        _ => false,
    };
    let is_less = draft.is_less();
    // A text that states less than the figure is no reason for it.
    let is_below = |cause: &LikelyCause| {
        cause.predicted.zip(draft.value).is_some_and(|(most, value)| {
            value > most * EXCEEDED && cause.text.contains(&figure(most))
        })
    };
    let is_full = |cause: &LikelyCause| FULL.split(' ').any(|id| id == cause.id);
    let good = causes.iter().find(|cause| {
        let is_refuted = is_full(cause) && (is_less || is_below(cause));
        is_good(cause.class) && cause.fits && !is_refuted
    });
    let cause = causes.iter().filter(shown).max_by(|a, b| a.share.total_cmp(&b.share));
    match (good, cause) {
        (Some(good), Some(cause)) if good.share >= cause.share => by(good),
        (_, Some(cause)) => by(cause),
        (Some(good), None) if draft.note.is_empty() => by(good),
        (None, None) if let Some(decision) = by_share(judged) => decision,
        _ if share.is_some_and(|share| share > draft.most_share()) => {
            Decision::undecided("more than the limit: the limit is not that of this path")
        }
        _ => by_outliers(draft),
    }
}

/// A figure by its share of the limit, where a usual one is known: as usual, less than that, or far below.
fn by_share(judged: &JudgedFigure<'_>) -> Option<Decision> {
    let draft = judged.draft;
    let (usual, share) =
        draft.usual.zip(draft.share()).filter(|(usual, share)| *share <= usual.most)?;
    if !draft.note.is_empty() || !draft.condition.is_empty() {
        return None;
    }
    let (verdict, reason, action) = match share {
        _ if share >= usual.least => (NodeVerdict::Ok, usual.text, ""),
        _ if share >= usual.slow => (NodeVerdict::Undecided, usual.text, ""),
        _ if judged.narrower.is_empty() => {
            (NodeVerdict::Suspect, "the paste does not show why", "")
        }
        _ => (
            NodeVerdict::Suspect,
            judged.narrower.as_str(),
            "lspci -vv | grep -e LnkCap -e LnkSta of the GPU and each bridge above it, under load",
        ),
    };
    let reason = format!("{} of the limit; {reason}", percent(share));
    Some(Decision { verdict, action: action.to_owned(), ..Decision::undecided(reason) })
}

/// `77 %`, `less than 1 %`.
pub(crate) fn percent(share: f64) -> String {
    if share < 0.005 { "less than 1 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}

/// A slowest row that the model leaves open is what the node does. A wide range says little, and that is said; below
/// what is usual it decides nothing.
fn within_range(judged: &JudgedFigure<'_>) -> Option<Decision> {
    let (row, range) = judged.range.as_ref().filter(|(row, range)| is_within(row, *range))?;
    let (width, reason) = (range.1 / range.0, range_text(row, *range));
    if width <= WEAK {
        return Some(Decision::ok(reason));
    }
    let draft = judged.draft;
    let below = draft.usual.zip(draft.share()).filter(|_| draft.is_less());
    let open = format!("the model leaves a factor of {width:.1} open: {reason}");
    // So wide a range does not outweigh what such nodes usually reach.
    Some(match below {
        Some((usual, share)) => {
            let share = percent(share);
            Decision::undecided(format!("{share} of the limit; {}; {open}", usual.text))
        }
        None => Decision::ok(format!("weakly, since {open}")),
    })
}

/// A table whose best rate is that of the model, and whose sizes that the bytes decide are no slower.
fn as_fast(causes: &[LikelyCause], row: &PredictedRow) -> Decision {
    let is_told = |cause: &&LikelyCause| {
        is_good(cause.class) && cause.fits && cause.basis != CauseBasis::Model
    };
    if let Some(cause) = causes.iter().find(is_told) {
        return Decision::of_cause(NodeVerdict::Ok, cause);
    }
    let (measured, predicted) = (rate(row.measured), rate(row.predicted));
    Decision::ok(format!("{}: {measured}, predicted {predicted}", row.subject))
}

/// Rows below what the model leaves open, for which it has no cause.
fn below_range(judged: &JudgedFigure<'_>) -> Decision {
    match &judged.range {
        Some((row, range)) => Decision {
            verdict: NodeVerdict::Suspect,
            ..Decision::undecided(format!("by no single cause: {}", range_text(row, *range)))
        },
        None => by_outliers(judged.draft),
    }
}

fn range_text(row: &PredictedRow, (low, high): (f64, f64)) -> String {
    let (scale, unit) = row.shown_unit();
    let shown = |value: f64| figure(value * scale);
    let (measured, low, high) = (shown(row.measured), shown(low), shown(high));
    let subject = &row.subject;
    format!("{subject}: {measured} {unit}, where the model leaves open {low} to {high} {unit}")
}

/// The part that is slower than its peers; else nothing decides.
fn by_outliers(draft: &DraftAnswer) -> Decision {
    let outliers = &draft.outliers;
    let Some(first) = outliers.first() else {
        return Decision::undecided(match (draft.note.is_empty(), draft.share()) {
            (false, _) => draft.note.as_str(),
            (true, None) => "the limit is not known",
            (true, Some(_)) => "neither arithmetic nor a message decides",
        });
    };
    let reason: Vec<&str> = outliers.iter().map(|one| one.text.as_str()).collect();
    Decision {
        verdict: NodeVerdict::Suspect,
        cause: Some(OUTLIER),
        is_fault: outliers.iter().any(|one| !one.is_row),
        reason: reason.join("; "),
        action: first.check.clone(),
    }
}

/// Causes that may give the figure: never the answer.
pub(crate) fn possible<'a>(causes: &'a [LikelyCause], decision: &Decision) -> Vec<&'a LikelyCause> {
    let is_other = |cause: &&LikelyCause| {
        cause.fits
            && cause.share >= POSSIBLE
            && cause.class != AnswerClass::Unknown
            && Some(cause.id) != decision.cause
            && !(decision.verdict == NodeVerdict::Suspect && is_good(cause.class))
    };
    match decision.verdict {
        NodeVerdict::Ok => Vec::new(),
        _ if decision.cause == Some(OUTLIER) => Vec::new(),
        _ => causes.iter().filter(is_other).take(MAX_POSSIBLE).collect(),
    }
}
