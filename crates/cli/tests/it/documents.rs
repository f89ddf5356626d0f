//! Marked regions of documents quote the program: they are compared with what it prints, and rewritten by
//! `cargo xtask bless`, which sets `INSTA_UPDATE=always`.
//!
//! - `<!-- prints: ARGUMENTS | START N | .. -->` before a fenced block: the block has the N lines of the output from
//!   the one that begins with START on, for each part; `[...]` stands between. A line `$ ..` of the block stays.
//!   Paths are relative to the root of the repository.
//! - `<!-- cells: EXCHANGE -->` before a table: each cell below a number n is the mean time in us of the exchange with
//!   `{1}` and `{2}` replaced by the first two cells of its row, and `{last}` by n - 1.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::unwrapped;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut all = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                all.push(path);
            }
        }
    }
    all.retain(|path| path.extension().is_some_and(|end| end == "md"));
    all.sort();
    all
}

fn output(args: &[&str]) -> String {
    let dir = TempDir::new().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).env("COLUMNS", "100").env("NO_COLOR", "1");
    command.current_dir(root());
    // Only a model and a kept run print the same everywhere.
    let is_kept =
        args.first() == Some(&"report") && args.iter().any(|arg| arg.starts_with("fixtures/"));
    assert!(is_kept || args.contains(&"--machine"), "{args:?}");
    if args.first() == Some(&"run") {
        command.arg("--out").arg(dir.path().join("run"));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{args:?}: {}", unwrapped(&output.stderr));
    text
}

/// The lines that the block after a `prints` marker has.
fn printed(marker: &str) -> Vec<String> {
    let mut parts = marker.split(" | ");
    let args: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
    let text = output(&args);
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = Vec::new();
    for part in parts {
        let (start, count) = part.trim().rsplit_once(' ').unwrap();
        let at = lines.iter().position(|line| line.trim_start().starts_with(start));
        let at = at.unwrap_or_else(|| panic!("no line of {args:?} begins with {start:?}:\n{text}"));
        if !shown.is_empty() {
            shown.push("[...]".to_owned());
        }
        let taken = lines.iter().skip(at).take(count.parse().unwrap());
        shown.extend(taken.map(|line| line.trim_end().to_owned()));
    }
    shown
}

/// The table after a `cells` marker.
fn filled(exchange: &str, table: &[&str]) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let head = cells(table[0]);
    let mut asked = Vec::new();
    for row in table[2..].iter().map(|line| cells(line)) {
        for ranks in head.iter().filter_map(|cell| cell.parse::<u32>().ok()) {
            let exchange = exchange.replace("{1}", &row[0]).replace("{2}", &row[1]);
            asked.push(exchange.replace("{last}", &(ranks - 1).to_string()));
        }
    }
    let flags = asked.iter().flat_map(|exchange| ["--exchange", exchange]);
    let args: Vec<&str> =
        ["model", "predict", "--machine", "mi250x", "--json"].into_iter().chain(flags).collect();
    let answers: Vec<serde_json::Value> = serde_json::from_str(&output(&args)).unwrap();
    let mut times = answers.iter().map(|answer| answer["mean_us"].as_f64().unwrap());
    let mut lines: Vec<String> = table[..2].iter().map(|line| (*line).to_owned()).collect();
    for row in table[2..].iter().map(|line| cells(line)) {
        let of = |(cell, head): (&String, &String)| match head.parse::<u32>() {
            Ok(_) => format!("{:.0}", times.next().unwrap()),
            Err(_) => cell.clone(),
        };
        let row: Vec<String> = row.iter().zip(&head).map(of).collect();
        lines.push(format!("| {} |", row.join(" | ")));
    }
    lines
}

/// A document with its marked regions as the program prints them.
fn renewed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at];
        out.push(line.to_owned());
        at += 1;
        let marker = |word: &str| line.strip_prefix(word)?.strip_suffix(" -->");
        if let Some(command) = marker("<!-- prints: ") {
            let end = at + 1 + lines[at + 1..].iter().position(|line| *line == "```").unwrap();
            out.push(lines[at].to_owned());
            out.extend(
                lines.get(at + 1).filter(|line| line.starts_with("$ ")).map(|l| (*l).to_owned()),
            );
            out.extend(printed(command));
            at = end;
        } else if let Some(exchange) = marker("<!-- cells: ") {
            let blank = lines[at..].iter().position(|line| line.starts_with('|')).unwrap();
            out.extend(lines[at..at + blank].iter().map(|line| (*line).to_owned()));
            at += blank;
            let end = at + lines[at..].iter().take_while(|line| line.starts_with('|')).count();
            out.extend(filled(exchange, &lines[at..end]));
            at = end;
        }
    }
    out.join("\n") + "\n"
}

#[test]
fn documents_quote_what_the_program_prints() {
    let is_update = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    let mut marked = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        marked += text.matches("\n<!-- prints: ").count() + text.matches("\n<!-- cells: ").count();
        let new = renewed(&text);
        if new != text && is_update {
            std::fs::write(&path, &new).unwrap();
        } else {
            let name = path.display();
            let old_line = text.lines().zip(new.lines()).find(|(old, new)| old != new);
            assert!(new == text, "{name}: {old_line:?} differs; `cargo xtask bless` writes it");
        }
    }
    assert!(marked >= 4, "{marked} regions are marked");
}
