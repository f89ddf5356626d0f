//! What to write instead of arguments that cannot stand.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use pathline_flow::MachineDesc;
use pathline_schema::did_you_mean;

use super::advise::split_count;
use crate::say::errln;

/// The error of a command that there is not.
pub(super) fn unknown_command(command: &mut clap::Command, name: &str) -> Option<clap::Error> {
    if command.find_subcommand(name).is_some() {
        return None;
    }
    if MachineDesc::presets().iter().any(|(preset, _)| *preset == name) {
        let text = format!("'{name}' is a simulated machine: `pathline run -m {name}`");
        return Some(command.error(ErrorKind::InvalidSubcommand, text));
    }
    let known = shown_commands(command).map(clap::Command::get_name);
    let near = did_you_mean(name, known);
    let end = if near.is_empty() { ";" } else { "" };
    let text =
        format!("there is no command '{name}'{near}{end} `pathline help` lists the commands");
    Some(command.error(ErrorKind::InvalidSubcommand, text))
}

/// The commands that help lists.
fn shown_commands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|known| !known.is_hide_set())
}

/// What to write instead of an option that a command does not have: the commands that have it, and where the options
/// of this one are listed.
fn option_way_out(word: &str, command: &clap::Command) -> String {
    let has = |other: &&clap::Command| {
        other.get_arguments().any(|arg| {
            let long = arg.get_long().is_some_and(|long| word == format!("--{long}"));
            long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
        })
    };
    let of: Vec<&str> = shown_commands(command).filter(has).map(clap::Command::get_name).collect();
    let asked = std::env::args().nth(1).filter(|name| command.find_subcommand(name).is_some());
    let help = format!("`pathline help {}` lists what it takes", asked.unwrap_or_default());
    match of.as_slice() {
        [] => help.replace("help `", "help`"),
        of => {
            format!("{word} is an option of {}; {}", of.join(", "), help.replace("help `", "help`"))
        }
    }
}

/// Arguments that cannot stand as they do, by words of the parser's error, and what to write instead.
const WAYS_OUT: &[([&str; 2], &str)] = &[
    (
        ["'[SUITE|CASE]...'", "'--quick'"],
        "--quick chooses its cases itself: leave it out, or the suites",
    ),
    (["--machine", "--store"], "a simulated machine has its own stores: leave out --store"),
    (["--machine", "--resume"], "--resume goes on with the run's machine: leave out --machine"),
    (["--ranks <NUMBER>", "--nodes"], "such as --machine mi250x --ranks 16 --nodes 2"),
    (["--history <DIR>", "health"], "`pathline report RUN` shows the verdict of one run"),
    (["'json'", "'--format"], "`--json` prints JSON, `-o FILE.json` writes it"),
    (["<RUN>", "report"], "a run is a folder such as runs/HOST-DATE, or its run.jsonl"),
    (["<NAME|FILE>", "model show"], "`pathline model list` names the machines"),
];

/// Options of earlier versions, and what they are now.
const OLD_OPTIONS: [(&str, &str); 9] = [
    ("--all", "--full"),
    ("--csv", "-o FILE.csv; of a run also `pathline report RUN --format csv`"),
    ("--csv-raw", "-o FILE.raw.csv, or --format raw-csv"),
    ("--force", "-o machine.toml"),
    ("--html", "-o FILE.html"),
    ("--links", "-o FILE.csv or -o FILE.json"),
    ("--plan", "--check SCRIPT"),
    ("--svg", "-o FILE.svg"),
    ("--xml", "-o FILE.xml"),
];

/// Says of a small size without a unit that it is in bytes.
pub(super) fn note_bare_sizes() {
    for text in std::env::args() {
        let size = text.rsplit_once(" x ").map_or("", |(_, size)| size);
        let is_size = split_count(&text).is_none();
        if is_size && size.parse::<u32>().is_ok_and(|bytes| (1..1024).contains(&bytes)) {
            errln!("note: a size of {size} is {size} B; {size}KiB and {size}MiB have units");
        }
    }
}

/// An error of the parser with what to write instead, where that is known.
pub(super) fn with_way_out(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let text = error.to_string();
    let known = WAYS_OUT.iter().find(|(words, _)| words.iter().all(|word| text.contains(word)));
    let negative = match error.get(ContextKind::InvalidArg) {
        // The parser takes the digits of a negative value for an option.
        Some(ContextValue::String(word)) if word.starts_with("-") => {
            word[1..].parse::<u8>().is_ok()
        }
        _ => false,
    };
    let negative = negative.then_some("a value cannot be negative");
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if is_unknown => Some(word.as_str()),
        _ => None,
    };
    let old = OLD_OPTIONS.iter().find(|(old, _)| Some(*old) == word);
    let old = old.map(|(old, new)| format!("{old} is now {new}"));
    let known = old.or_else(|| known.map(|(_, way)| *way).or(negative).map(str::to_owned));
    // The parser names an option that is spelt alike.
    let is_named = error.get(ContextKind::SuggestedArg).is_some();
    let word = word.filter(|_| !is_named);
    if let Some(way) = known.or_else(|| word.map(|word| option_way_out(word, command))) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![way.into()]));
    }
    error
}
