//! Figures of a trial that a change must not make worse while its cost gets better.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gain_text::share_text;
use crate::proof::{GainInterval, HarmCheck, TrialBlock};

/// What a trial costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialCost {
    /// Time, or anything of which less is better.
    pub cost: f64,
    /// The same of each [`GuardFigure`] of the runner, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<f64>,
}

impl TrialCost {
    /// Whether all of it is finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.cost.is_finite() && self.guarded.iter().all(|cost| cost.is_finite())
    }
}

impl From<f64> for TrialCost {
    fn from(cost: f64) -> Self {
        Self { cost, guarded: Vec::new() }
    }
}

/// A figure that each trial gives besides its cost, and the loss that counts as none: the larger of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardFigure {
    /// Its name in answers.
    pub label: String,
    /// As a share: 0.01 is 1 %.
    pub allowed: f64,
    /// In its own unit, as seconds of a time; 0 for none.
    #[serde(default)]
    pub floor: f64,
}

/// `wall time loses less than 5 % or 0.1 s`.
impl fmt::Display for GuardFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loses less than {} %", self.label, share_text(self.allowed))?;
        if self.floor > 0.0 { write!(f, " or {} s", self.floor) } else { Ok(()) }
    }
}

/// What the blocks of a proof show of a guarded figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardOutcome {
    /// The figure.
    pub figure: GuardFigure,
    /// Whether a loss of more than what is allowed is excluded (false), shown (true) or open.
    pub harms: Option<bool>,
    /// How the figure changed: negative if it got worse.
    pub gain: Option<GainInterval>,
}

/// The check of one figure over the blocks of a proof.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GuardCheck {
    figure: GuardFigure,
    check: HarmCheck,
}

impl GuardCheck {
    /// One for each figure. `level` is the probability with which a harm may be overlooked; each figure has
    /// it, since to recommend a harmful change the evidence of the harmed figure itself has to be wrong.
    pub(crate) fn of_all(figures: &[GuardFigure], level: f64) -> Vec<Self> {
        let of = |figure: &GuardFigure| Self {
            figure: figure.clone(),
            check: HarmCheck::new(figure.allowed, figure.floor, level),
        };
        figures.iter().map(of).collect()
    }

    pub(crate) fn outcome(&self) -> GuardOutcome {
        let (harms, gain) = (self.check.harms(), self.check.gain());
        GuardOutcome { figure: self.figure.clone(), harms, gain }
    }
}

/// Gives each check its figures of a block: both baselines and the choice.
pub(crate) fn add_block(checks: &mut [GuardCheck], block: [&TrialCost; 3]) {
    for (at, check) in checks.iter_mut().enumerate() {
        if let [Some(a), Some(b), Some(choice)] = block.map(|cost| cost.guarded.get(at).copied()) {
            check.check.add(TrialBlock { baselines: [a, b], choice });
        }
    }
}

/// The first figure that is harmed, as text: what happened to it and what is allowed.
pub(crate) fn harm_text(outcomes: &[GuardOutcome]) -> Option<String> {
    let harmed = outcomes.iter().find(|outcome| outcome.harms == Some(true))?;
    let gain = harmed.gain.map(|gain| format!(": {gain}")).unwrap_or_default();
    let GuardFigure { label, allowed, .. } = &harmed.figure;
    let allowed = share_text(*allowed);
    Some(format!("makes {label} worse{gain}, and {allowed} % may be lost"))
}

/// The first figure that is not decided.
pub(crate) fn open_text(outcomes: &[GuardOutcome]) -> Option<String> {
    let open = outcomes.iter().find(|outcome| outcome.harms.is_none())?;
    let so_far = open.gain.map(|gain| format!(" ({gain} so far)")).unwrap_or_default();
    Some(format!("whether it harms {}{so_far} is not decided", open.figure.label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(allowed: f64, floor: f64) -> Vec<GuardCheck> {
        GuardCheck::of_all(&[GuardFigure { label: "memory".to_owned(), allowed, floor }], 0.01)
    }

    fn after(mut checks: Vec<GuardCheck>, before: f64, choice: f64, blocks: usize) -> GuardOutcome {
        let of = |cost: f64| TrialCost { cost: 1.0, guarded: vec![cost] };
        for _ in 0..blocks {
            add_block(&mut checks, [&of(before), &of(before), &of(choice)]);
        }
        checks[0].outcome()
    }

    #[test]
    fn a_loss_within_the_margin_is_excluded_and_a_larger_one_shown() {
        // 6 blocks that agree: (2.8^6 + 1.8^6) / 2 = 258 > 1 / 0.01; 5 give 95.5.
        assert_eq!(after(checks(0.01, 0.0), 100.0, 100.5, 5).harms, None);
        assert_eq!(after(checks(0.01, 0.0), 100.0, 100.5, 6).harms, Some(false));
        let harmed = after(checks(0.01, 0.0), 100.0, 125.0, 9);
        assert_eq!(harmed.harms, Some(true));
        assert!((harmed.gain.unwrap().gain + 0.2).abs() < 1e-12, "100 / 125 - 1");
        let text = harm_text(&[harmed]).unwrap();
        assert_eq!(text, "makes memory worse: -20 %, and 1 % may be lost");
    }

    #[test]
    fn a_floor_allows_more_of_small_figures_only() {
        // 0.1 s of 0.05 s are allowed, and 5 % of 100 s.
        assert_eq!(after(checks(0.05, 0.1), 0.05, 0.14, 9).harms, Some(false));
        assert_eq!(after(checks(0.05, 0.1), 0.05, 0.16, 9).harms, Some(true));
        assert_eq!(after(checks(0.05, 0.1), 100.0, 104.0, 9).harms, Some(false));
        assert_eq!(after(checks(0.05, 0.1), 100.0, 106.0, 9).harms, Some(true));
    }

    #[test]
    fn the_first_harmed_and_the_first_open_figure_are_named() {
        let of = |label: &str, harms| GuardOutcome {
            figure: GuardFigure { label: label.to_owned(), allowed: 0.05, floor: 0.0 },
            harms,
            gain: None,
        };
        let all = [
            of("a", Some(false)),
            of("b", None),
            of("c", Some(true)),
            of("d", None),
            of("e", Some(true)),
        ];
        assert_eq!(harm_text(&all).unwrap(), "makes c worse, and 5 % may be lost");
        assert_eq!(open_text(&all).unwrap(), "whether it harms b is not decided");
        assert_eq!((harm_text(&all[..2]), open_text(&all[..1])), (None, None));
        for (cost, guarded, expected) in [
            (1.0, vec![], true),
            (1.0, vec![1.0, 2.0], true),
            (f64::NAN, vec![1.0], false),
            (1.0, vec![1.0, f64::INFINITY], false),
            (1.0, vec![f64::NAN, f64::NAN], false),
        ] {
            assert_eq!(TrialCost { cost, guarded }.is_finite(), expected);
        }
    }
}
