//! The measurement that decides between the causes of an answer, and what it changes.

use pathline_schema::{Bytes, Case};

use crate::draft::{DraftAnswer, ProbeOutcome, ProbeSubject};
use crate::model_edits::{SOUND, level_and_least, summary};
use crate::paste_answer::PasteAnswer;
use crate::predicted_row::PredictedRow;
use crate::row_predictor::{QueriedRow, RowPredictor, RowQuery};
use crate::score::{AnswerClass, LikelyCause, ObservedFeature};

/// The median copy of the probe over its prediction.
const LEVEL: &str = "probe-level";
/// The slowest copy of the probe, over its prediction and the median.
const LEAST: &str = "probe-least";
/// Bytes of a copy of a probe: long enough that starts do not count, 56 of them take 0.1 to 0.3 s.
const PROBE_BYTES: Bytes = Bytes::mib(64);

/// Causes that slow plain copies too, by an amount that they do not say.
const PATHS: &str = "peer-through-root staged pcie-peer through-host-memory far-memory";

/// Cases that tell damaged hardware from settings and software: if plain copies are as the node's model
/// says, the hardware is not the cause.
#[derive(Debug, Clone)]
pub struct DecidingProbe {
    subject: ProbeSubject,
    cases: Vec<Case>,
}

impl DecidingProbe {
    /// The probe that an answer needs; none where no copy decides.
    pub fn new(of: &RowPredictor, answer: &PasteAnswer) -> Option<Self> {
        let with_host = match answer.subject {
            ProbeSubject::Nothing => return None,
            ProbeSubject::GpuPairs => false,
            ProbeSubject::HostLinks => true,
        };
        let flows = of.probe_flows(with_host).into_iter();
        let each = flows.map(|flow| pathline_schema::Flow { bytes: PROBE_BYTES, ..flow });
        let cases: Vec<Case> = each.map(|flow| Case::together(vec![flow])).collect();
        (!cases.is_empty()).then_some(Self { subject: answer.subject, cases })
    }

    /// What to measure, each alone.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }
}

/// What a probe measured on the node.
#[derive(Debug, Clone)]
pub struct ProbeEvidence {
    subject: ProbeSubject,
    rows: Vec<QueriedRow>,
    predicted: Vec<PredictedRow>,
    level: f64,
    least: f64,
    /// Copies that were not measured, with the reason of the first.
    failed: Option<(usize, String)>,
}

impl ProbeEvidence {
    /// From the rate of each case in GB/s, or the reason why it has none.
    ///
    /// # Errors
    /// No case was measured, or the node's model has none of them; the text says which.
    pub fn new(
        of: &RowPredictor,
        probe: &DecidingProbe,
        rates: &[Result<f64, String>],
    ) -> Result<Self, String> {
        let mut rows = Vec::new();
        let mut failed: Option<(usize, String)> = None;
        for (at, (case, rate)) in probe.cases.iter().zip(rates).enumerate() {
            match rate {
                Ok(rate) => {
                    let query = RowQuery::Copies { case: case.clone(), at: 0, count: 1 };
                    rows.push(QueriedRow { table: 0, at, measured: *rate, query });
                }
                Err(why) => match &mut failed {
                    Some((count, _)) => *count += 1,
                    None => failed = Some((1, format!("{case}: {why}"))),
                },
            }
        }
        let (rows, predicted) = of.predict_rows(rows);
        let Some((level, least)) = level_and_least(predicted.iter().map(PredictedRow::ratio))
        else {
            let why = failed.map_or_else(|| "the node has no such path".to_owned(), |f| f.1);
            return Err(format!("the probe gave no figure: {why}"));
        };
        Ok(Self { subject: probe.subject, rows, predicted, level, least, failed })
    }

    /// Whether it is about the paths of this answer.
    pub(crate) fn is_about(&self, draft: &DraftAnswer) -> bool {
        draft.subject == self.subject
    }

    /// Whether a copy of the node is slower than its model.
    pub(crate) fn is_slow(&self) -> bool {
        self.least < SOUND || self.level < SOUND
    }

    /// What was measured; `before` are the causes without it.
    pub(crate) fn outcome<'a>(
        &self,
        of: &RowPredictor,
        before: impl Iterator<Item = &'a LikelyCause>,
    ) -> ProbeOutcome {
        let mut text = summary(of, &self.predicted);
        if let Some((count, why)) = &self.failed {
            text.push_str(&format!("; {count} not measured ({why})"));
        }
        let before = before.map(|cause| (cause.id.to_owned(), cause.share)).collect();
        ProbeOutcome { text, before, rows: self.predicted.clone() }
    }

    /// Adds it to an answer: each cause says what plain copies do under it. Where it names no damage
    /// they are as the node's model has them.
    pub(crate) fn apply(&self, draft: &mut DraftAnswer, of: &RowPredictor) {
        let (level, sigma) = of.usual_level();
        let scatter = if of.desc().is_some() { 0.05 } else { 0.12 };
        for edit in &mut draft.edits {
            let mut least = edit.copies_at;
            if let Some(node) = edit.fault.as_ref().and_then(|fault| of.damaged(fault, false)) {
                let damaged =
                    self.rows.iter().zip(&self.predicted).filter_map(|(row, sound)| {
                        Some(node.predict(&row.query)? / sound.predicted)
                    });
                least = level_and_least(damaged).map_or(least, |found| found.1);
            }
            let is_suspect = edit.class == AnswerClass::HardwareSuspect;
            let is_path = PATHS.split(' ').any(|id| id == edit.id);
            if is_path && edit.fault.is_none() || is_suspect && least >= 1.0 {
                continue;
            }
            edit.expects.push((LEVEL, level, sigma));
            edit.expects.push((LEAST, least.min(0.98), scatter));
        }
        let level = ObservedFeature::of_sound(LEVEL, self.level, (level, sigma));
        draft
            .features
            .extend([level, ObservedFeature::of_sound(LEAST, self.least, (0.98, scatter))]);
    }
}
