//! Threads of a folder: `NNN.txt` is a paste, `NNN.json` has the causes that its resolution allows.
//!
//! `PATHLINE_TEST_THREADS=FOLDER cargo test -p pathline-reason thread_folder -- --nocapture` prints each
//! verdict and the share that is right. Without the variable nothing runs.

use std::fs;
use std::path::Path;

use pathline_paste::read_paste;
use pathline_reason::{PasteExplanation, explain_paste};
use serde_json::Value;

/// Counts of verdicts.
#[derive(Default)]
struct VerdictCounts {
    right: u32,
    wrong: u32,
    silent: u32,
    /// Wrong with odds above 20:1.
    confident_wrong: Vec<String>,
}

/// Causes, thread, and whether a cause was not known when the thread was collected.
fn allowed(path: &Path) -> Option<(Vec<String>, String, bool)> {
    let root: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    let causes = root["causes"].as_array()?.iter();
    let causes = causes.filter_map(|cause| Some(cause.as_str()?.to_owned())).collect();
    let thread = root["thread"].as_str().unwrap_or_default().to_owned();
    Some((causes, thread, root["new"].as_bool().unwrap_or(false)))
}

/// First cause of each answer with its share, the first answer in full.
fn describe(found: &PasteExplanation) -> String {
    let of_answer = |answer: &pathline_reason::PasteAnswer| {
        let causes = answer.causes.iter().take(4).map(|c| format!("{} {:.2}", c.id, c.share));
        format!("    {}: {}\n", answer.tool, causes.collect::<Vec<_>>().join(", "))
    };
    let mut text: String = found.answers.iter().take(6).map(of_answer).collect();
    for (name, line) in found.answers.first().map(|answer| answer.lines()).unwrap_or_default() {
        text.push_str(&format!("    {name:7} {line}\n"));
    }
    text
}

#[test]
fn verdicts_of_a_thread_folder() {
    let Ok(folder) = std::env::var("PATHLINE_TEST_THREADS") else { return };
    let mut pastes: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    pastes.sort();
    let mut counts = VerdictCounts::default();
    for path in &pastes {
        let (causes, thread, is_new) = allowed(&path.with_extension("json")).unwrap();
        let found = explain_paste(&read_paste(&fs::read(path).unwrap()), None);
        let first = found.answers.first().and_then(|answer| answer.causes.first());
        // A warning of NCCL is the same cause by its meaning.
        let is_right = first.is_some_and(|first| {
            let is_warning = first.text.starts_with("NCCL warns");
            causes.iter().any(|id| id == first.id || id == "nccl-warning" && is_warning)
        });
        let verdict = match first {
            Some(_) if is_right => "right",
            Some(first) if first.id != "unknown" => "WRONG",
            _ => "silent",
        };
        match verdict {
            "right" => counts.right += 1,
            "WRONG" => counts.wrong += 1,
            _ => counts.silent += 1,
        }
        if verdict == "WRONG" && first.is_some_and(|first| first.share > 20.0 / 21.0) {
            counts.confident_wrong.push(thread.clone());
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let new = if is_new { " (a new cause)" } else { "" };
        println!("{name} {thread}: {verdict}, allowed {causes:?}{new}\n{}", describe(&found));
    }
    println!(
        "{} right, {} wrong, {} without an answer, of {}: {:.0} %; certain and wrong: {:?}",
        counts.right,
        counts.wrong,
        counts.silent,
        pastes.len(),
        100.0 * f64::from(counts.right) / pastes.len().max(1) as f64,
        counts.confident_wrong
    );
    assert!(!pastes.is_empty(), "no NNN.txt in the folder");
}
