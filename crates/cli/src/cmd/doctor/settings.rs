//! Prints the settings of a node.

use anyhow::Result;
use pathline_diagnose::SettingCheck;
use pathline_schema::{NodeVerdict, plain_line, plain_text};

use super::ExitKind;
use crate::say::{outln, paragraph};

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
    for check in all.iter().filter(|check| check.state != NodeVerdict::Ok) {
        let SettingCheck { group, what, value, state, slows, remedy, source } = check;
        outln!("[{}] {group}, {}: {}", state.word(), plain_line(what), plain_line(value));
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
    let sound = count(NodeVerdict::Ok);
    outln!(
        "settings: {sound} as they should be, {wrong} slow this node{undecided} (--json lists all)"
    );
    Ok(exit)
}
