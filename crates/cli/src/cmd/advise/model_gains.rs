//! Gains by the model of a machine, with the range that its constants and its form leave open.

use std::collections::BTreeMap;

use anyhow::Result;
use pathline_advise::{Advice, ArmTask, GainInterval, TrialArm};
use pathline_diagnose::{MAX_TRUST_FIGURES, PredictedFigure, find_figure_trust, predict_times};
use pathline_flow::{FigureForm, PredictionTrust};
use pathline_message::ExchangeSpec;
use pathline_runner::MachineModel;
use pathline_schema::Case;

use crate::cmd::message_cases::exchange_of_messages;

/// What an arm is to a model.
enum ArmFigure {
    Case(Case),
    Exchange(ExchangeSpec),
}

impl ArmFigure {
    fn predicted(&self) -> PredictedFigure<'_> {
        match self {
            Self::Case(case) => PredictedFigure::Case(case),
            Self::Exchange(exchange) => PredictedFigure::Exchange(exchange),
        }
    }
}

/// The time of an arm.
struct ArmTime {
    ns: f64,
    /// None where the description states no origins.
    trust: Option<PredictionTrust>,
    form: FigureForm,
}

/// Times of arms by a model, by what each runs.
pub(super) struct ArmTimes(BTreeMap<String, ArmTime>);

impl ArmTimes {
    /// Without arms that the model cannot predict: of files, and with settings of their own.
    pub(super) fn new<'a>(
        model: &MachineModel,
        arms: impl Iterator<Item = &'a TrialArm>,
    ) -> Result<Self> {
        let desc = model.desc();
        let figure_of = |arm: &TrialArm| {
            let ArmTask::Case(case) = &arm.task else { return None };
            let figure = match exchange_of_messages(case, desc) {
                Some(exchange) => ArmFigure::Exchange(exchange.ok()?),
                None => ArmFigure::Case(case.clone()),
            };
            let smallest = case.flows().map(|flow| flow.bytes).min()?;
            arm.env.is_empty().then_some((arm.to_string(), (figure, FigureForm::Flows(smallest))))
        };
        let all: BTreeMap<String, (ArmFigure, FigureForm)> = arms.filter_map(figure_of).collect();
        let all: Vec<(String, (ArmFigure, FigureForm))> = all.into_iter().collect();
        let mut known = BTreeMap::new();
        for part in all.chunks(MAX_TRUST_FIGURES) {
            let figures: Vec<PredictedFigure<'_>> =
                part.iter().map(|(_, (figure, _))| figure.predicted()).collect();
            let times = predict_times(desc, &figures);
            let mut trust = find_figure_trust(desc, model.text(), &figures)?.into_iter();
            for ((name, (_, form)), ns) in part.iter().zip(times) {
                let trust = trust.next();
                let time = ns.map(|ns| ArmTime { ns, trust, form: *form });
                known.extend(time.map(|time| (name.clone(), time)));
            }
        }
        Ok(Self(known))
    }

    /// The time of an arm, ns.
    pub(super) fn ns(&self, arm: &TrialArm) -> Option<f64> {
        self.0.get(&arm.to_string()).map(|time| time.ns)
    }

    /// How well the gain of a choice is known as a multiple of what the model has: what both rest on alike cancels.
    fn trust(&self, default: &TrialArm, choice: &TrialArm) -> Option<PredictionTrust> {
        let [default, choice] = [default, choice].map(|arm| self.0.get(&arm.to_string()));
        let (default, choice) = (default?, choice?);
        Some(default.trust.as_ref()?.over(choice.trust.as_ref()?, choice.form))
    }

    /// The factors between which it is.
    fn range(&self, default: &TrialArm, choice: &TrialArm) -> Option<[f64; 2]> {
        self.trust(default, choice).map(|trust| [trust.faster, trust.slower])
    }

    /// The gain of a choice with its range.
    pub(super) fn gain(&self, default: &TrialArm, choice: &TrialArm) -> Option<GainInterval> {
        let ratio = self.ns(default)? / self.ns(choice)?;
        let [low, high] = self.range(default, choice).unwrap_or([1.0; 2]);
        let [gain, low, high] = [1.0, low, high].map(|factor| ratio * factor - 1.0);
        Some(GainInterval { gain, low, high, blocks: 0 })
    }
}

/// Gives the gains of simulated trials the range of the model. A gain that is within it is no prediction.
pub(super) fn widen_gains(
    answers: &mut [Advice],
    model: &MachineModel,
    min_gain: f64,
) -> Result<()> {
    let changes = || answers.iter().filter(|answer| answer.is_change() && answer.gain.is_some());
    let choices = changes().filter_map(|answer| Some(&answer.choice.as_ref()?.arm));
    let times = ArmTimes::new(model, changes().map(|answer| &answer.baseline).chain(choices))?;
    for answer in answers.iter_mut().filter(|answer| answer.is_change()) {
        let range = answer.choice.as_ref().and_then(|c| times.range(&answer.baseline, &c.arm));
        range.into_iter().for_each(|range| answer.widen(range, min_gain));
    }
    Ok(())
}
