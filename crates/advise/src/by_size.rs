//! Settings that gain at some sizes and lose at others.

use pathline_schema::SizeEffects;

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
        let settings = other.choice.as_ref().map(|choice| &choice.settings);
        settings == Some(&choice.settings) && ends(&other.subject) == ends(&answer.subject)
    };
    let same: Vec<&Advice> = all.iter().filter(is_same).collect();
    let seen = same.iter().filter_map(|other| Some((other.bytes()?, other.gain?.gain)));
    let harmed = same.iter().filter_map(|other| other.harmed);
    SizeEffects::new(seen.chain(harmed)).text()
}

/// What is moved, without its size.
fn ends(subject: &str) -> &str {
    subject.rsplit_once(", ").map_or(subject, |(ends, _)| ends)
}
