//! Posterior odds of causes: what each predicts for the observed features, under log-normal noise.

use pathline_diagnose::posterior::ln_likelihood;
use pathline_flow::MachineFault;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// What an answer says of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerClass {
    /// Hardware and protocol allow no more.
    AsExpected,
    /// The figure counts something else than is read into it.
    MeansSomethingElse,
    /// A setting, an option or the wiring makes it so.
    SetUpSo,
    /// A library or driver.
    Software,
    /// A part may be broken.
    HardwareSuspect,
    /// Nothing that is known gives these figures.
    Unknown,
}

impl AnswerClass {
    /// The class of a table's word, such as `set-up-so`.
    pub(crate) fn of_label(word: &str) -> Self {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        Self::deserialize(word).unwrap_or(Self::Unknown)
    }
}

/// An observed quantity: a rate in GB/s or a ratio, positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ObservedFeature {
    pub(crate) id: &'static str,
    pub(crate) value: f64,
    /// Median and standard deviation of the logarithm on sound hardware, where that is known: half of
    /// what a cause that says nothing of the feature expects.
    pub(crate) if_sound: Option<(f64, f64)>,
}

impl ObservedFeature {
    pub(crate) const fn new(id: &'static str, value: f64) -> Self {
        Self { id, value, if_sound: None }
    }

    /// With what sound hardware shows of it.
    pub(crate) const fn of_sound(id: &'static str, value: f64, sound: (f64, f64)) -> Self {
        Self { id, value, if_sound: Some(sound) }
    }

    /// Density where a cause says nothing of it.
    fn unexpected(&self) -> f64 {
        match self.if_sound {
            Some((median, sigma)) => 0.5 * density(self.value, median, sigma) + 0.5 * BROAD,
            None => BROAD,
        }
    }
}

/// A cause with what it predicts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorldEdit {
    pub(crate) id: &'static str,
    pub(crate) class: AnswerClass,
    /// Relative frequency before the figures are seen.
    pub(crate) prior: f64,
    pub(crate) text: String,
    /// The command that would decide.
    pub(crate) check: String,
    /// Feature, median, standard deviation of the logarithm.
    pub(crate) expects: Vec<(&'static str, f64, f64)>,
    /// Logarithm of the likelihood ratio of what is written, such as a log's transports.
    pub(crate) evidence: f64,
    /// Whether it follows by arithmetic: then alone, whatever the figures of the rest.
    pub(crate) is_certain: bool,
    /// Whether a log, a setting or another row states it: then a figure that it seldom gives does not exclude it.
    pub(crate) is_stated: bool,
    /// Whether a model of the node gave what it predicts.
    pub(crate) is_modelled: bool,
    /// The figure is exactly what it gives, where it deviates by no more than this.
    pub(crate) exact: Option<f64>,
    /// Logarithm by which the figure may differ from what it gives.
    pub(crate) tolerance: f64,
    /// Rate of the slowest plain copy of the node under it, over that of a sound node.
    pub(crate) copies_at: f64,
    /// The damage of the described node, where it is one.
    pub(crate) fault: Option<MachineFault>,
}

impl WorldEdit {
    pub(crate) fn new(id: &'static str, class: AnswerClass, prior: f64) -> Self {
        Self {
            id,
            class,
            prior,
            text: String::new(),
            check: String::new(),
            expects: Vec::new(),
            evidence: 0.0,
            is_certain: false,
            is_stated: false,
            is_modelled: false,
            exact: None,
            tolerance: TOLERANCE,
            copies_at: 1.0,
            fault: None,
        }
    }
    pub(crate) fn says(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }
    pub(crate) fn decided_by(mut self, check: impl Into<String>) -> Self {
        self.check = check.into();
        self
    }
    pub(crate) fn expects(mut self, id: &'static str, median: f64, sigma: f64) -> Self {
        self.expects.push((id, median, sigma));
        self
    }
    /// A log, a setting or another row of the paste states it.
    pub(crate) fn stated(mut self) -> Self {
        self.is_stated = true;
        self
    }
    /// Predicted by a model of the node.
    pub(crate) fn modelled(mut self) -> Self {
        self.is_modelled = true;
        self
    }
    pub(crate) fn seen(mut self, evidence: f64) -> Self {
        self.evidence += evidence;
        self
    }
    pub(crate) fn of_fault(mut self, fault: MachineFault) -> Self {
        self.fault = Some(fault);
        self.modelled()
    }

    /// Logarithm by which the observed figures differ from what it gives; none where it gives none of them.
    /// Shapes and residuals of a model are no figures.
    fn misfit(&self, features: &[ObservedFeature]) -> Option<f64> {
        let off =
            features.iter().filter(|feature| !SHAPES.contains(&feature.id)).filter_map(|feature| {
                let (_, median, _) = self.expects.iter().find(|(id, ..)| *id == feature.id)?;
                Some((feature.value.max(1e-9) / median.max(1e-9)).ln().abs())
            });
        off.max_by(f64::total_cmp)
    }

    fn basis(&self) -> CauseBasis {
        match () {
            () if self.is_certain => CauseBasis::Arithmetic,
            () if self.is_modelled => CauseBasis::Model,
            () if self.exact.is_some() => CauseBasis::Exact,
            () if self.is_stated => CauseBasis::Stated,
            () => CauseBasis::Rule,
        }
    }
    pub(crate) fn certain(mut self) -> Self {
        self.is_certain = true;
        self
    }
}

/// What a cause rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseBasis {
    /// It follows from the rows whatever the hardware.
    Arithmetic,
    /// The figure is exactly what it gives.
    Exact,
    /// A log, a setting or another row states it.
    Stated,
    /// A model of the node gives the figures with it.
    Model,
    /// It may give such a figure: possible, no more.
    Rule,
}

/// A cause with its share of the posterior.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LikelyCause {
    /// Stable name.
    pub id: &'static str,
    /// What kind of answer it is.
    pub class: AnswerClass,
    /// Posterior probability, 0 to 1.
    pub share: f64,
    /// The cause, with its arithmetic.
    pub text: String,
    /// What it predicts for the headline figure, GB/s or a ratio.
    pub predicted: Option<f64>,
    /// The command that would decide.
    pub check: String,
    /// What it rests on.
    pub basis: CauseBasis,
    /// Whether it gives the figure, within what is known of it.
    pub fits: bool,
}

/// What a feature that a cause says nothing of has as its density: a factor of 300 up or down is as
/// likely as any.
const BROAD: f64 = 1.0 / 11.4;
/// Features that are ratios of rows to each other, or to a model.
const SHAPES: [&str; 8] =
    ["growth", "cliff", "least", "on-off", "fall", "of-peers", "model-level", "model-least"];
/// Logarithm by which a figure may differ from what a cause gives, unless it says otherwise.
const TOLERANCE: f64 = 0.15;
/// The same for a cause that is stated: what it gives is known to a factor.
const STATED_TOLERANCE: f64 = 0.9;
/// Prior of "nothing that is known".
const UNKNOWN_PRIOR: f64 = 0.1;
/// No cause that rests on likelihoods alone is surer than 19 to 1: priors and noise are themselves
/// uncertain by factors of two.
const SUREST: f64 = 0.95;

/// Sorts causes by posterior.
pub(crate) fn rank(features: &[ObservedFeature], edits: Vec<WorldEdit>) -> Vec<LikelyCause> {
    let only_certain = edits.iter().any(|edit| edit.is_certain);
    let mut scored: Vec<(f64, LikelyCause)> = Vec::new();
    let unknown = WorldEdit::new("unknown", AnswerClass::Unknown, UNKNOWN_PRIOR)
        .says("none of the known causes gives these figures")
        .decided_by("pathline run --quick, on the node");
    let all = edits.into_iter().chain([unknown]);
    for edit in all.filter(|edit| edit.is_certain || !only_certain) {
        let mut score = edit.prior.ln() + edit.evidence.clamp(-5.0, 5.0);
        for feature in features {
            let expected = edit.expects.iter().find(|(id, ..)| *id == feature.id);
            score += expected
                .map_or_else(|| feature.unexpected(), |&(_, m, s)| density(feature.value, m, s))
                .max(if edit.is_stated { BROAD / 2.0 } else { 0.0 })
                .ln();
        }
        // A figure like 1e308 MiB/s predicts more than a number can hold.
        let predicted = edit.expects.first().map(|&(_, median, _)| median);
        let predicted = predicted.filter(|median| median.is_finite());
        let tolerance = match (edit.exact, edit.is_stated) {
            (Some(deviation), _) => deviation,
            (None, true) => edit.tolerance.max(STATED_TOLERANCE),
            (None, false) => edit.tolerance,
        };
        let fits = match edit.misfit(features) {
            Some(off) => off <= tolerance,
            None => edit.is_certain || edit.is_stated,
        };
        let basis = edit.basis();
        let WorldEdit { id, class, text, check, .. } = edit;
        scored.push((
            score,
            LikelyCause { id, class, share: 0.0, text, predicted, check, basis, fits },
        ));
    }
    let best = scored.iter().map(|(score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scored.iter().map(|(score, _)| (score - best).exp()).sum();
    let ceiling = if only_certain { 0.995 } else { SUREST };
    let mut causes: Vec<LikelyCause> = scored
        .into_iter()
        .map(|(score, cause)| LikelyCause {
            share: ((score - best).exp() / total).min(ceiling),
            ..cause
        })
        .collect();
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    merge_ids(causes, ceiling)
}

/// Variants of a cause, such as one link down and two, as one: the shares add up, the likeliest speaks.
fn merge_ids(causes: Vec<LikelyCause>, ceiling: f64) -> Vec<LikelyCause> {
    let mut merged: Vec<LikelyCause> = Vec::new();
    for cause in causes {
        match merged.iter_mut().find(|known| known.id == cause.id) {
            Some(known) => {
                known.share = (known.share + cause.share).min(ceiling);
                if cause.fits && !known.fits {
                    *known = LikelyCause { share: known.share, ..cause };
                }
            }
            None => merged.push(cause),
        }
    }
    merged.sort_by(|a, b| b.share.total_cmp(&a.share));
    merged
}

/// Density of ln(value): a normal, with a fifteenth of it as broad as all.
fn density(value: f64, median: f64, sigma: f64) -> f64 {
    let z = (value.max(1e-9) / median.max(1e-9)).ln() / sigma;
    let normal = (-0.5 * z * z).exp() / (sigma * (2.0 * std::f64::consts::PI).sqrt());
    normal * (14.0 / 15.0) + BROAD / 15.0
}

/// Scale of the errors of rows by a model that is right, as a share.
pub(crate) const CURVE_SCALE: f64 = 0.05;
/// Standard deviation of what all rows of a curve are off by together, as a share.
const CURVE_COMMON: f64 = 0.05;
/// How well a world explains the rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurveFit {
    /// Log likelihood under Cauchy errors around a common one.
    pub(crate) score: f64,
    /// Median of the absolute deviation, as a share.
    pub(crate) off_by: f64,
}

/// The likelihood of a curve. All rows may be off together by a few percent: a model of a node is rarely
/// better, so a constant of 5 % decides nothing.
pub(crate) fn fit_curve(measured: &[f64], values: &[f64]) -> CurveFit {
    fit_with_scale(measured, values, CURVE_SCALE)
}

/// The likelihood of a curve with this scale of errors.
pub(crate) fn fit_with_scale(measured: &[f64], values: &[f64], scale: f64) -> CurveFit {
    let deviations: Vec<f64> =
        measured.iter().zip(values).map(|(m, v)| (m.max(1e-9) / v.max(1e-9)).ln()).collect();
    let score_at = |common: f64| {
        let rows = deviations.iter().map(|d| ln_likelihood(d - common, scale));
        rows.sum::<f64>() - 0.5 * (common / CURVE_COMMON).powi(2)
    };
    let steps = (-8..=8).map(|step| f64::from(step) * 0.02);
    let (score, common) = steps
        .map(|common| (score_at(common), common))
        .fold((f64::NEG_INFINITY, 0.0), |best, next| if next.0 > best.0 { next } else { best });
    let mut off: Vec<f64> = deviations.iter().map(|d| (d - common).abs()).collect();
    off.sort_by(f64::total_cmp);
    CurveFit { score, off_by: off.get(off.len() / 2).copied().unwrap_or(f64::INFINITY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits() -> Vec<WorldEdit> {
        vec![
            WorldEdit::new("full", AnswerClass::AsExpected, 0.5).expects("rate", 100.0, 0.05),
            WorldEdit::new("half", AnswerClass::HardwareSuspect, 0.05).expects("rate", 50.0, 0.05),
        ]
    }

    #[test]
    fn figures_choose_the_cause() {
        let first = |value| {
            let causes = rank(&[ObservedFeature::new("rate", value)], edits());
            assert!((causes.iter().map(|c| c.share).sum::<f64>() - 1.0).abs() < 0.06);
            (causes[0].id, causes[0].share)
        };
        assert_eq!(first(101.0).0, "full");
        assert_eq!(first(49.0).0, "half");
        // Midway between both, neither.
        assert_eq!(first(9.0).0, "unknown");
        assert!(first(101.0).1 <= SUREST);
    }

    #[test]
    fn arithmetic_stands_alone() {
        let mut all = edits();
        all.push(WorldEdit::new("sum", AnswerClass::MeansSomethingElse, 0.01).certain());
        let causes = rank(&[ObservedFeature::new("rate", 100.0)], all);
        assert_eq!((causes.len(), causes[0].id), (1, "sum"));
    }
}
