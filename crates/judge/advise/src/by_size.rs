//! Settings that gain at some sizes and lose at others.

use pathline_schema::{SizeEffect, SizeEffects};

use crate::advice::{Advice, AdviceVerdict};

/// Says of each setting that gains at one size and harms another what it does at each.
pub(crate) fn say_by_size(answers: &mut [Advice]) {
    let reasons: Vec<Option<String>> = answers.iter().map(|a| reason(a, answers)).collect();
    for (answer, reason) in answers.iter_mut().zip(reasons) {
        if let Some(reason) = reason {
            (answer.verdict, answer.reason) = (AdviceVerdict::BySize, reason);
        }
    }
}

fn reason(answer: &Advice, all: &[Advice]) -> Option<String> {
    let choice = answer.choice.as_ref().filter(|_| answer.harmed.is_some())?;
    let is_same = |other: &&Advice| {
        other.choice.as_ref().is_some_and(|known| known.settings == choice.settings)
    };
    let effects = all.iter().filter(is_same).flat_map(|other| {
        let seen = other.bytes().zip(other.gain).map(|(bytes, gain)| gain.at(bytes));
        let harmed = other.harmed.map(|(bytes, gain)| SizeEffect::exact(bytes, gain));
        seen.into_iter().chain(harmed).map(|effect| (ends(&other.subject), effect))
    });
    SizeEffects::new(effects).text()
}

/// What is moved, without its size.
fn ends(subject: &str) -> &str {
    subject.rsplit_once(", ").map_or(subject, |(ends, _)| ends)
}
