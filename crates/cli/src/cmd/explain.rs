//! `pathline explain`.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use pathline_reason::{AnswerClass, PasteExplanation, explain_paste};
use pathline_runner::{HostSurvey, MachineModel};
use pathline_schema::Topology;

use super::ExitKind;
use crate::args::ExplainArgs;
use crate::say::{errln, outln, width};

/// Answers without `--all`.
const SHOWN: usize = 3;
/// What is read of a paste at most; crate `paste` reads 8 MiB of it and says so.
const MAX_READ: u64 = (8 << 20) + 1;

pub(super) fn run(args: &ExplainArgs) -> Result<ExitKind> {
    let bytes = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let open = std::fs::File::open(file);
            let open = open.with_context(|| format!("{} cannot be opened", file.display()))?;
            read(open).with_context(|| format!("{} cannot be read", file.display()))?
        }
        None => read(std::io::stdin().lock()).context("standard input cannot be read")?,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        bail!("the input is empty: paste the output of a benchmark, a log or an issue's text");
    }
    let machine = machine(args)?;
    let reading = pathline_paste::read_paste(&bytes);
    let explained = explain_paste(&reading, machine.as_ref());
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&explained)?);
    } else {
        show(&explained, args.all);
    }
    Ok(exit(&explained))
}

fn read(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn machine(args: &ExplainArgs) -> Result<Option<Topology>> {
    if let Some(path) = &args.from {
        return Ok(Some(pathline_topo::from_path(path)?));
    }
    if let Some(name) = &args.machine {
        return Ok(Some(MachineModel::read(name)?.desc().topology()));
    }
    Ok(args.here.then(|| HostSurvey::new(args.timeout.call()).topology))
}

/// Broken hardware and wrong bytes are something wrong; a paste without an answer leaves nothing to judge.
fn exit(explained: &PasteExplanation) -> ExitKind {
    let first = |class| {
        explained.answers.iter().any(|a| a.causes.first().is_some_and(|c| c.class == class))
    };
    let is_known = |class| class != AnswerClass::Unknown;
    let any = explained.answers.iter().filter_map(|a| a.causes.first()).any(|c| is_known(c.class));
    match () {
        () if first(AnswerClass::HardwareSuspect) => ExitKind::Wrong,
        () if any => ExitKind::Fine,
        () => ExitKind::CouldNotJudge,
    }
}

fn show(explained: &PasteExplanation, all: bool) {
    let columns = width().clamp(60, 100);
    let shown = if all { explained.answers.len() } else { SHOWN };
    for answer in explained.answers.iter().take(shown) {
        outln!("{}, lines {} to {}", answer.tool, answer.first_line, answer.last_line);
        for (label, text) in answer.lines() {
            for (at, line) in wrap(&text, columns - 10).into_iter().enumerate() {
                outln!("  {:<7} {line}", if at == 0 { label } else { "" });
            }
        }
        outln!("");
    }
    if explained.answers.is_empty() {
        outln!(
            "No output of a known tool, log or topology, and no rate in a sentence, in {} lines.",
            explained.lines
        );
    }
    let more = explained.answers.len().saturating_sub(shown);
    if more > 0 {
        errln!("{more} more answers: --all");
    }
    if explained.is_cut {
        errln!("! only the first 8 MiB were read");
    }
    let unread: u32 = explained.unread.iter().map(|&(first, last)| last + 1 - first).sum();
    if unread > 0 {
        let ranges: Vec<String> = explained
            .unread
            .iter()
            .take(4)
            .map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
            .collect();
        let more = if explained.unread.len() > 4 { ", ..." } else { "" };
        errln!(
            "{unread} of {} lines are in no known output (lines {}{more}); words and settings in them were used",
            explained.lines,
            ranges.join(", ")
        );
    }
}

/// Lines of at most `columns` characters, broken between words.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
