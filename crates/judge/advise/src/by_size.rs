//! Settings that gain at some sizes and lose at others.

use pathline_schema::{EffectBasis, SizeEffect, SizeEffects};

use crate::advice::{Advice, AdviceVerdict};

/// Limits each setting that gains at one size and slows another to the sizes at which it gains.
pub(crate) fn say_by_size(answers: &mut [Advice], basis: EffectBasis) {
    let effects: Vec<SizeEffects> = answers.iter().map(|a| effects_of(a, answers, basis)).collect();
    for (answer, effects) in answers.iter_mut().zip(effects) {
        if answer.limit_to_sizes(&effects) {
            answer.verdict = AdviceVerdict::Proven;
        }
    }
}

fn effects_of(answer: &Advice, all: &[Advice], basis: EffectBasis) -> SizeEffects {
    // A row of a tuner acts on one size.
    let is_mixed = answer.harmed.is_some() && !answer.by_row_only;
    let Some(choice) = answer.choice.as_ref().filter(|_| is_mixed) else {
        return SizeEffects::default();
    };
    let settings = choice.settings.iter().map(|(name, value)| format!("{name}={value}"));
    let settings = settings.collect::<Vec<_>>().join(" ");
    let mut found = SizeEffects::new(settings, basis);
    for other in all {
        let is_same = other.choice.as_ref().is_some_and(|known| known.settings == choice.settings);
        let Some(transfer) = other.baseline.transfer().filter(|_| is_same) else { continue };
        let seen = other.bytes().zip(other.gain).map(|(bytes, gain)| gain.at(bytes));
        let harmed = other.harmed.map(|(bytes, gain)| SizeEffect::exact(bytes, gain));
        for effect in seen.into_iter().chain(harmed) {
            found.add(transfer, ends(&other.subject), effect);
        }
    }
    found
}

/// What is moved, without its size.
fn ends(subject: &str) -> &str {
    subject.rsplit_once(", ").map_or(subject, |(ends, _)| ends)
}
