//! Prints the settings of a node.

use std::collections::BTreeMap;

use anyhow::Result;
use pathline_diagnose::SettingCheck;
use pathline_schema::{NodeVerdict, plain_line, plain_text};

use super::ExitKind;
use crate::say::{outln, paragraph};

/// The most parts that one cause names.
const SHOWN: usize = 3;

/// What is not as it should be, a paragraph each, then how many are. Wrong if one slows the node.
pub(super) fn print(all: &[SettingCheck], json: bool) -> Result<ExitKind> {
    let count = |state: NodeVerdict| all.iter().filter(|check| check.state == state).count();
    let wrong = count(NodeVerdict::Suspect) + count(NodeVerdict::Fail);
    let exit = match (wrong, all.is_empty()) {
        (0, true) => ExitKind::CouldNotJudge,
        (0, false) => ExitKind::Fine,
        _ => ExitKind::Wrong,
    };
    if json {
        outln!("{}", plain_text(&serde_json::to_string_pretty(all)?));
        return Ok(exit);
    }
    let is_alike = |one: &&SettingCheck, other: &&SettingCheck| {
        let key = |check: &SettingCheck| (check.group, check.state, check.source);
        let texts = |check: &SettingCheck| (check.value.clone(), check.slows.clone());
        key(one) == key(other) && texts(one) == texts(other)
    };
    let unsound: Vec<&SettingCheck> =
        all.iter().filter(|check| check.state != NodeVerdict::Ok).collect();
    // One cause may show in each of many parts.
    for alike in unsound.chunk_by(is_alike) {
        let [first, ..] = alike else { continue };
        let SettingCheck { group, value, state, slows, remedy, source, .. } = first;
        let mut what: Vec<&str> =
            alike.iter().take(SHOWN).map(|check| check.what.as_str()).collect();
        let more = format!("{} more", alike.len().saturating_sub(SHOWN));
        what.extend((alike.len() > SHOWN).then_some(more.as_str()));
        let what = what.join(", ");
        outln!("[{}] {group}, {}: {}", state.word(), plain_line(&what), plain_line(value));
        let lines = [("slows:   ", slows.as_str()), ("do this: ", remedy), ("see:     ", source)];
        for (lead, text) in lines.into_iter().filter(|(_, text)| !text.is_empty()) {
            crate::say::out!("    {lead}");
            paragraph(text, 13);
        }
    }
    let undecided = match count(NodeVerdict::Undecided) {
        0 => String::new(),
        n => format!(", {n} could not be read"),
    };
    if all.is_empty() {
        outln!("settings: UNDECIDED, none could be read");
        return Ok(exit);
    }
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    let sound = all.iter().filter(|check| check.state == NodeVerdict::Ok);
    sound.for_each(|check| *groups.entry(check.group).or_default() += 1);
    let groups: Vec<String> =
        groups.into_iter().map(|(group, count)| format!("{group} {count}")).collect();
    let (sound, groups) = (count(NodeVerdict::Ok), groups.join(", "));
    outln!(
        "settings: {sound} as they should be ({groups}), {wrong} slow this node{undecided} (--json lists all)"
    );
    Ok(exit)
}
