//! Answers as text: changes first, alike ones together.

use std::fmt::Write as _;

use pathline_schema::{Flow, Rate, SizeEffects, line_words, plain_line};

use crate::advice::{Advice, AdviceVerdict};
use crate::arm::ArmTask;
use crate::gain_text::{factor_digits, gain_text, share_text};
use crate::guard_figure::GuardOutcome;
use crate::questions::MORE_PATHS;
use crate::script_review::stated_effect;
use crate::session::AdviceLimits;

/// The most defaults that are kept of which each is listed: who names cases asks about each.
const FEW_KEPT: usize = 8;

/// Columns before the text of an answer.
const INDENT: usize = 11;

/// Answers that differ only in what is moved.
struct AnswerGroup<'a> {
    first: &'a Advice,
    members: Vec<&'a Advice>,
}

/// The answers of a session for a terminal of `width` columns.
pub fn answers_text(answers: &[Advice], limits: &AdviceLimits, width: usize) -> String {
    let mut text = String::new();
    let count = |word: &str| answers.iter().filter(|a| a.verdict.word() == word).count();
    let all = answers.len();
    let by_size = |advice: &Advice| advice.by_size.is_some() && advice.bytes().is_none();
    let is_setting = |advice: &Advice| is_review(advice) || by_size(advice);
    let what = if answers.iter().all(is_setting) { "setting" } else { "question" };
    let asked = format!("{all} {what}{}", if all == 1 { "" } else { "s" });
    let counts = AdviceVerdict::WORDS.map(|word| (count(word), word.to_lowercase()));
    let counts = counts.into_iter().filter(|(n, _)| *n > 0);
    let mut parts: Vec<String> = counts.map(|(n, word)| format!("{n} {word}")).collect();
    let is_kept = count("KEEP") > 0 && count("KEEP") == all;
    if is_kept {
        parts.insert(0, "nothing to change".to_owned());
    }
    let _ = writeln!(text, "{asked}: {}.", parts.join(", "));
    if count("DO") > 0 {
        let sure = format!(
            "DO: gains more than {} %. If the choices changed nothing, a session would print any of these \
             with probability at most {} %.",
            share_text(limits.min_gain),
            share_text(limits.level)
        );
        text.push_str(&wrapped("", &sure, 0, width));
    }
    if count("PREDICTED") > 0 {
        let sure =
            "PREDICTED: gains of the model, not measured. Run this on the node to prove them.";
        text.push_str(&wrapped("", sure, 0, width));
    }
    let mut shown: Vec<&SizeEffects> = Vec::new();
    for group in groups(answers) {
        text.push('\n');
        // A table of a setting stands once.
        let effects = group.members.iter().find_map(|advice| advice.by_size.as_ref());
        let effects = effects.filter(|effects| !shown.contains(effects));
        shown.extend(effects);
        text.push_str(&group.text(effects.and_then(SizeEffects::answer), width));
    }
    text
}

fn groups(answers: &[Advice]) -> Vec<AnswerGroup<'_>> {
    let mut groups: Vec<AnswerGroup<'_>> = Vec::new();
    let mut sorted: Vec<&Advice> = answers.iter().collect();
    // What gains most comes first, and what adds to a choice or to a kept default after it; else the order is that of
    // the questions.
    sorted.sort_by(|a, b| {
        let is_kept = |advice: &Advice| advice.verdict == AdviceVerdict::Keep && !is_review(advice);
        // The sum of a job decides, whatever its sizes gain.
        let key = |advice: &Advice| {
            let (is_kept, adds) = (is_kept(advice), adds_to_default(advice, answers));
            (!advice.is_job_sum(), adds, !advice.is_change(), advice.verdict.word(), is_kept)
        };
        let most = |advice: &Advice| gain_of(plain(advice, answers), answers);
        let by_gain = || most(b).total_cmp(&most(a));
        let rank = key(a).cmp(&key(b));
        match a.is_change() {
            true => rank.then_with(by_gain).then(is_addition(a).cmp(&is_addition(b))),
            false => rank,
        }
    });
    for advice in sorted {
        let known = groups.iter_mut().find(|group| {
            let first = group.first;
            let action = Advice::action;
            let same = advice.verdict == AdviceVerdict::Keep
                && !is_review(advice)
                && advice.is_assumed() == first.is_assumed()
                || action(first).is_some() && action(first) == action(advice);
            let same = same || !first.is_change() && first.reason == advice.reason;
            let same = same && first.is_job_sum() == advice.is_job_sum();
            first.verdict == advice.verdict && same
        });
        match known {
            Some(group) => group.members.push(advice),
            None => groups.push(AnswerGroup { first: advice, members: vec![advice] }),
        }
    }
    groups
}

/// Whether an answer is about what adds to another choice than the default.
fn is_addition(advice: &Advice) -> bool {
    advice.subject.contains(MORE_PATHS)
}

/// Whether an answer adds to a default that another one keeps.
fn adds_to_default(advice: &Advice, all: &[Advice]) -> bool {
    let Some((ends, _)) = advice.subject.split_once(MORE_PATHS) else { return false };
    let is_kept = |other: &Advice| {
        let same = other.subject.starts_with(ends) && other.bytes() == advice.bytes();
        same && other.verdict == AdviceVerdict::Keep && !is_addition(other)
    };
    all.iter().any(is_kept)
}

/// The answer that one about an addition adds to; itself if there is none.
fn plain<'a>(advice: &'a Advice, all: &'a [Advice]) -> &'a Advice {
    let Some((ends, _)) = advice.subject.split_once(MORE_PATHS) else { return advice };
    let is_plain = |other: &&Advice| {
        let same = other.subject.starts_with(ends) && other.bytes() == advice.bytes();
        same && other.is_change() && !is_addition(other)
    };
    all.iter().find(is_plain).unwrap_or(advice)
}

/// The greatest gain of the answers that give the same advice.
fn gain_of(advice: &Advice, all: &[Advice]) -> f64 {
    let action = Advice::action;
    let same = all
        .iter()
        .filter(|other| other.verdict == advice.verdict && action(other) == action(advice));
    let gains = same.filter_map(|other| Some(other.gain?.gain));
    gains.fold(f64::NEG_INFINITY, f64::max)
}

/// Whether an answer is about a variable that is set, which its choice removes, or an option of a script.
fn is_review(advice: &Advice) -> bool {
    let choice = advice.choice.as_ref();
    advice.verdict == AdviceVerdict::Suspect
        || choice.is_some_and(|choice| choice.settings.values().any(String::is_empty))
}

/// `: what it does; helps: when` of a variable on which nothing decides.
fn known_effect(advice: &Advice) -> String {
    let names = advice.choice.iter().flat_map(|choice| choice.settings.keys());
    let mut effects =
        names.filter(|_| advice.verdict == AdviceVerdict::Unclear && is_review(advice));
    let effect = effects.find_map(|name| stated_effect(name));
    effect.map(|effect| format!(": {effect}")).unwrap_or_default()
}

/// What is moved, and its size: what stands after the last comma, if that is a size.
fn split(subject: &str) -> (&str, &str) {
    match subject.rsplit_once(", ") {
        Some((ends, size)) if size.starts_with(|c: char| c.is_ascii_digit()) => (ends, size),
        _ => (subject, ""),
    }
}

impl AnswerGroup<'_> {
    /// With the answer of a setting by size, where it was not shown before.
    fn text(&self, by_size: Option<(String, Vec<String>)>, width: usize) -> String {
        let Advice { verdict, choice, reason, .. } = self.first;
        let label = format!("{:<INDENT$}", verdict.word());
        if *verdict == AdviceVerdict::Keep
            && !is_review(self.first)
            && self.members.len() > FEW_KEPT
        {
            return wrapped(&label, &self.kept_text(), INDENT, width);
        }
        let change = choice.as_ref().filter(|_| self.first.is_change());
        let head = match (change, verdict) {
            (Some(_), _) => self.first.action().unwrap_or_default(),
            (None, AdviceVerdict::Keep) if self.first.is_job_sum() => {
                let names = choice.iter().flat_map(|choice| choice.settings.keys());
                let names = names.map(|name| format!(" of {name}")).collect::<String>();
                format!("Keep the default{names} for this job")
            }
            (None, AdviceVerdict::Keep) if !is_review(self.first) => {
                let assumed = if self.first.is_assumed() {
                    ", on constants of the model that nobody measured"
                } else {
                    ""
                };
                format!(
                    "Keep the default{}; behind each size what the next best choice does{assumed}",
                    self.default_name()
                )
            }
            _ => capital(reason),
        };
        let mut text = wrapped(&label, &format!("{head}."), INDENT, width);
        let (sizes, table) = by_size.unzip();
        // The reason of an answer for some sizes says them.
        let limited = self.first.only.as_ref().map(|_| reason);
        if let Some(sizes) = limited.or(sizes.as_ref()) {
            text.push_str(&wrapped("", &format!("{}.", capital(sizes)), INDENT, width));
        }
        for line in table.unwrap_or_default() {
            let indent = INDENT.min(width.saturating_sub(line.chars().count()));
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
        for (ends, members) in self.by_ends() {
            let of: Vec<String> = members.iter().map(|(size, a)| member_text(size, a)).collect();
            let of = match of.iter().all(String::is_empty) {
                true => format!("{ends}{}", known_effect(members[0].1)),
                false => format!("{ends}: {}", of.join("; ")),
            };
            text.push_str(&wrapped("", &of, INDENT, width));
        }
        for broken in self.members.iter().flat_map(|advice| broken_settings(advice)) {
            text.push_str(&wrapped("", &format!("Not proven: {broken}."), INDENT, width));
        }
        if let Some(guarded) = guarded_text(self.first).filter(|_| change.is_some()) {
            text.push_str(&wrapped("", &guarded, INDENT, width));
        }
        let cost = change.map(|choice| choice.cost.as_str()).filter(|cost| !cost.is_empty());
        if let Some(cost) = cost {
            text.push_str(&wrapped("", &format!("It costs {cost}."), INDENT, width));
        }
        if *verdict == AdviceVerdict::Remove {
            let why = format!("{}.", capital(reason));
            text.push_str(&wrapped("", &why, INDENT, width));
        }
        text
    }

    /// ` (numa3.pinned > gpu0.vram by dma@gpu0)`, if this copy is the default of all of its answers.
    fn default_name(&self) -> String {
        let name = |advice: &Advice| match &advice.baseline.task {
            ArmTask::Case(case) => match case.timed.as_slice() {
                [Flow { src, dst, by, .. }] if by.wire().is_none() => {
                    Some(format!(" ({src} > {dst} by {by})").replace("r0.", ""))
                }
                _ => None,
            },
            ArmTask::Command => None,
        };
        let first = name(self.first);
        let is_same = self.members.iter().all(|advice| name(advice) == first);
        first.filter(|_| is_same).unwrap_or_default()
    }

    /// Of many defaults that are kept: their number, and what no choice gains.
    fn kept_text(&self) -> String {
        let bounds: Option<Vec<f64>> = self.members.iter().map(|advice| advice.bound).collect();
        let gain = match bounds.and_then(|all| all.into_iter().reduce(f64::max)) {
            Some(bound) => format!("no choice gains {} %", share_text(bound)),
            None => "no choice gains enough".to_owned(),
        };
        format!("Keep the default in {} more: {gain}.", self.members.len())
    }

    /// Members by what is moved, in order, with their sizes.
    fn by_ends(&self) -> Vec<(&str, Vec<(&str, &Advice)>)> {
        let mut all: Vec<(&str, Vec<(&str, &Advice)>)> = Vec::new();
        for &advice in &self.members {
            let (ends, size) = split(&advice.subject);
            match all.iter_mut().find(|(known, _)| *known == ends) {
                Some((_, members)) => members.push((size, advice)),
                None => all.push((ends, vec![(size, advice)])),
            }
        }
        all
    }
}

/// Settings of a command that had no figure, with the reason; nobody asked for the other choices by name.
fn broken_settings(advice: &Advice) -> impl Iterator<Item = String> {
    let is_command = advice.baseline.task == ArmTask::Command;
    let all = advice.screened.iter().filter(move |_| is_command);
    all.filter_map(|screened| Some(format!("{}: {}", screened.label, screened.error.as_ref()?)))
        .filter(|text| !advice.reason.contains(text.as_str()))
}

/// What a change was guarded against, with the bound that is shown and what was seen.
fn guarded_text(advice: &Advice) -> Option<String> {
    let of = |outcome: &GuardOutcome| {
        let seen = outcome.gain.map(|gain| format!(" (seen {gain})")).unwrap_or_default();
        format!("{}{seen}", outcome.figure)
    };
    let all: Vec<String> = advice.guarded.iter().map(of).collect();
    let shown = format!("Guarded: {}; each run ended well.", all.join("; "));
    (!all.is_empty()).then_some(shown)
}

/// `64MiB +16 %`; of a default that is kept, the best that was tried.
fn member_text(size: &str, advice: &Advice) -> String {
    let gain = match advice.verdict {
        AdviceVerdict::Keep if is_review(advice) => advice.gain.map(|gain| gain.to_string()),
        AdviceVerdict::Proven | AdviceVerdict::Predicted if is_addition(advice) => {
            let more =
                |gain: f64| format!("{}x more than {}", factor_digits(gain), advice.baseline.label);
            advice.gain.map(|gain| more(gain.gain))
        }
        AdviceVerdict::Proven
        | AdviceVerdict::Predicted
        | AdviceVerdict::Remove
        | AdviceVerdict::Withdrawn => advice.gain.map(|gain| gain.to_string()),
        // Answers of different choices may share the reason for which nothing is decided.
        AdviceVerdict::Unclear => {
            let label = advice.choice.as_ref().map_or("", |choice| choice.arm.label.as_str());
            advice.gain.map(|gain| format!("{label} {gain}, not proven"))
        }
        AdviceVerdict::Keep => {
            let proven = advice.gain.map(|gain| gain.gain);
            let best = proven.or_else(|| advice.screened.first().and_then(|best| best.gain));
            let bound = advice.bound.map(|bound| format!(" (none gains {} %)", share_text(bound)));
            best.map(|gain| format!("{}{}", gain_text(gain), bound.unwrap_or_default()))
        }
        AdviceVerdict::Ignored | AdviceVerdict::Suspect => None,
    };
    let choice = advice.choice.as_ref().map_or("", |choice| choice.arm.label.as_str());
    let rates = advice.rates.map(|rates| (rates.map(|gbs| Rate(gbs).to_string()), advice.gain));
    let rates = rates.map(|([default, rate], of)| match (&gain, of) {
        (Some(gain), _) if advice.is_change() => format!("{gain}, {rate} instead of {default}"),
        (_, Some(of)) => format!("{default} by default ({choice} {rate}, {of})"),
        (_, None) => format!("{default} ({choice} {rate})"),
    });
    format!("{size} {}", rates.or(gain).unwrap_or_default()).trim().to_owned()
}

/// The text with its first letter in upper case.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A paragraph after `label`, broken at blanks, its lines indented.
fn wrapped(label: &str, text: &str, indent: usize, width: usize) -> String {
    let text = plain_line(text);
    let mut out = String::new();
    let mut row = format!("{label:<indent$}");
    let mut is_empty = true;
    for word in line_words(&text, width.saturating_sub(indent)) {
        let used = row.chars().count();
        if !is_empty && used + 1 + word.chars().count() > width {
            out.push_str(row.trim_end());
            out.push('\n');
            row = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            row.push(' ');
        }
        row.push_str(&word);
        is_empty = false;
    }
    out.push_str(row.trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdviceChoice, ArmEnv, ArmTask, GainInterval, ScreenedChoice, TrialArm};

    fn advice(subject: &str, verdict: AdviceVerdict, gain: f64) -> Advice {
        let arm = TrialArm { label: "x".to_owned(), task: ArmTask::Command, env: ArmEnv::new() };
        let reason = "no choice gains 1 % in short trials".to_owned();
        let choice = AdviceChoice::of_setting("Set A=1".to_owned(), "A", "1");
        Advice {
            choice: Some(AdviceChoice { cost: "CUs".to_owned(), ..choice }),
            gain: Some(GainInterval { gain, low: gain, high: gain, blocks: 9 }),
            ..Advice::new(subject.to_owned(), arm, verdict, reason)
        }
    }

    #[test]
    fn alike_answers_are_one_and_changes_come_first() {
        let all = [
            advice("copies from a to b, 64KiB", AdviceVerdict::Keep, 0.0),
            advice("copies from a to b, 1MiB", AdviceVerdict::Proven, 0.5),
            advice("copies from a to b, 64MiB", AdviceVerdict::Proven, 0.25),
        ];
        let text = answers_text(&all, &AdviceLimits::default(), 60);
        assert_eq!(
            text,
            "3 questions: 2 do, 1 keep.\n\
             DO: gains more than 1 %. If the choices changed nothing, a\n\
             session would print any of these with probability at most 1\n\
             %.\n\
             \n\
             DO         Set A=1.\n           \
             copies from a to b: 1MiB +50 %; 64MiB +25 %\n           \
             It costs CUs.\n\
             \n\
             KEEP       Keep the default; behind each size what the next\n           \
             best choice does.\n           \
             copies from a to b: 64KiB 0.0 %\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 60));
    }

    /// Behind a size stands what was proven, else the best of the short trials, which comes first. A part after a
    /// comma that is no size belongs to what is moved. Of nine defaults only their number is left, and the most that a
    /// choice may gain.
    #[test]
    fn defaults_that_are_kept_show_the_best_that_was_tried() {
        let screened =
            |label: &str, gain| ScreenedChoice { label: label.to_owned(), gain, error: None };
        let mut kept = advice("sums, all ranks", AdviceVerdict::Keep, 0.004);
        kept.bound = Some(0.01);
        kept.screened = vec![screened("a", Some(0.003)), screened("b", Some(-0.5))];
        let body = |all: &[Advice]| {
            let text = answers_text(all, &AdviceLimits::default(), 200);
            text.lines().skip(2).map(str::trim).collect::<Vec<_>>().join("|")
        };
        let head = "KEEP       Keep the default; behind each size what the next best choice does.|";
        assert_eq!(
            body(&[kept.clone()]),
            format!("{head}sums, all ranks: +0.4 % (none gains 1 %)")
        );
        kept.gain = None;
        assert_eq!(
            body(&[kept.clone()]),
            format!("{head}sums, all ranks: +0.3 % (none gains 1 %)")
        );
        let mut all = vec![kept.clone(); 8];
        assert!(body(&all).starts_with(head));
        all.push(Advice { bound: Some(0.02), ..kept });
        assert_eq!(body(&all), "KEEP       Keep the default in 9 more: no choice gains 2 %.");
        all[0].bound = None;
        assert_eq!(body(&all), "KEEP       Keep the default in 9 more: no choice gains enough.");
    }

    #[test]
    fn nothing_to_change_says_so() {
        let all = [advice("copies", AdviceVerdict::Keep, 0.0)];
        let text = answers_text(&all, &AdviceLimits::default(), 80);
        assert!(text.starts_with("1 question: nothing to change, 1 keep.\n"), "{text}");
    }
}
