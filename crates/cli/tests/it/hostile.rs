//! Journals and files that somebody else made: what they say must not steer the terminal that shows it,
//! nor take the memory of the reader.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use pathline_schema::{Journal, is_steering};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

/// Title, clear, hidden text, the one-character CSI, and letters turned round.
const ATTACK: &str = "\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{1b}[8mseen\u{9b}31m\u{7f}\u{202e}";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pathline(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).stdin(std::process::Stdio::null()).output().expect("it runs")
}

/// One message of each kind, as docs/understand/records.md shows them, and what moves bytes between processes and
/// files of real runs, which the formats of other tools are made of.
fn messages() -> Vec<Value> {
    let document = fs::read_to_string(root().join("docs/understand/records.md")).unwrap();
    let example = document.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    // The document breaks a message into lines after commas.
    let example = example.replace(",\n  ", ",");
    let mut messages: Vec<Value> =
        example.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    messages[0]["data"]["world"] = "real".into();
    // In the document one case has every outcome, of which the last counts.
    for (n, message) in messages.iter_mut().enumerate() {
        if ["measured", "skipped", "faulted"].iter().any(|kind| message["type"] == *kind) {
            let case = message["data"]["case"].as_str().unwrap().to_owned();
            let (path, _) = case.rsplit_once(" x ").unwrap();
            message["data"]["case"] = format!("{path} x {}KiB", 4 * n).into();
        }
    }
    for fixture in ["h200-x2-nccl", "h200-x2-mpi-ucx", "h200-x2-storage"] {
        let file = fs::File::open(root().join(format!("fixtures/{fixture}.jsonl.gz"))).unwrap();
        let mut text = String::new();
        MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        let measured = text.lines().filter(|line| line.starts_with(r#"{"type":"measured""#));
        messages.extend(measured.take(3).map(|line| serde_json::from_str(line).unwrap()));
    }
    messages
}

fn text(messages: &[Value]) -> String {
    let line = |m: &Value| format!("{{\"type\":{},\"data\":{}}}\n", m["type"], m["data"]);
    messages.iter().map(line).collect()
}

/// Pointers to the texts of a value, including the keys of objects.
pub(crate) fn leaves(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::String(_) => all.push(at.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, v)| leaves(v, &format!("{at}/{n}"), all));
        }
        Value::Object(fields) => {
            for (key, v) in fields {
                leaves(v, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        _ => {}
    }
}

fn attack(value: &mut Value) {
    if let Value::String(text) = value {
        *text = format!("{ATTACK}{text}{ATTACK}");
    }
}

/// The part of an attack that an output retains, if any. Colours of the program are codes that end
/// in `m`; the code of the attack hides text, which none of them does.
fn left(output: &[u8]) -> Option<String> {
    let shown = String::from_utf8(output.to_vec()).expect("text");
    if shown.contains("\u{1b}[8m") {
        return Some("a code that hides text".to_owned());
    }
    let mut rest = shown.as_str();
    while let Some(at) = rest.find(|c| is_steering(c) && c != '\n' && c != '\t') {
        let code = rest[at..].strip_prefix("\u{1b}[");
        let after =
            code.map(|code| code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        match after.and_then(|after| after.strip_prefix('m')) {
            Some(after) => rest = after,
            None => return Some(rest[at..].chars().take(60).collect()),
        }
    }
    None
}

fn check(output: &Output, what: &str) {
    for stream in [&output.stdout, &output.stderr] {
        assert_eq!(left(stream), None, "{what}");
    }
    assert!(output.status.code().is_some_and(|code| code <= 3), "{what}: {:?}", output.status);
}

/// Every text of every message in turn: a reader that takes it shows it plainly, together with all
/// others that it takes; one that refuses it quotes it plainly.
#[test]
fn no_text_of_a_journal_steers_a_terminal() {
    let whole = messages();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("run.jsonl");
    let (run, page) = (file.to_str().unwrap(), dir.path().join("page.html"));
    let page = page.to_str().unwrap();
    let mut all = Vec::new();
    whole.iter().enumerate().for_each(|(n, message)| leaves(message, &format!("/{n}"), &mut all));
    let (mut taken, mut refused) = (whole.clone(), BTreeSet::new());
    for at in &all {
        let mut changed = whole.clone();
        let (message, inner) = at[1..].split_once('/').unwrap();
        let message: usize = message.parse().unwrap();
        attack(changed[message].pointer_mut(&format!("/{inner}")).unwrap());
        let read = Journal::read(text(&changed).as_bytes());
        if read.as_ref().is_ok_and(|journal| journal.broken.is_empty() && !journal.torn) {
            attack(taken[message].pointer_mut(&format!("/{inner}")).unwrap());
            continue;
        }
        // Texts of one kind are refused in one place: case texts, units, words of a list.
        let kind: String = inner.chars().filter(|c| !c.is_ascii_digit()).collect();
        if refused.insert(kind) {
            fs::write(&file, text(&changed)).unwrap();
            let output = pathline(&["report", run, "-o", page]);
            // A broken line is left out with a note; without a first line there is no journal.
            assert_eq!(output.status.code() == Some(2), read.is_err(), "{at}");
            check(&output, at);
        }
    }
    assert!(all.len() > 150 && refused.len() > 10, "{} and {refused:?}", all.len());
    fs::write(&file, text(&taken)).unwrap();
    for colour in ["always", "never"] {
        let output = pathline(&["report", run, "-o", page, "--color", colour]);
        check(&output, colour);
        let shown = String::from_utf8(output.stdout.clone()).unwrap();
        // It is shown, not left out: the name of a host and the text of a note, for two.
        assert!(shown.contains("\u{fffd}]0;PWNED\u{fffd}"), "{output:?}");
        assert_eq!(shown.contains("\u{1b}["), colour == "always");
    }
    assert_eq!(left(&fs::read(page).unwrap()), None, "page");
    for ending in ["csv", "raw.csv", "json"] {
        let table = dir.path().join("table").with_extension(ending);
        let path = table.to_str().unwrap();
        check(&pathline(&["report", run, "-o", page, "-o", path]), ending);
        assert_eq!(left(&fs::read(&table).unwrap()), None, "{ending}");
    }
    check(&pathline(&["report", run, "-o", page, "--json"]), "JSON");
    for format in ["osu", "nccl-tests", "elbencho", "csv", "raw-csv"] {
        let output = pathline(&["report", run, "--format", format]);
        check(&output, format);
        assert_ne!(output.status.code(), Some(2), "{format}: {output:?}");
    }
    // Against a run without these texts, and against one of another world.
    let (plain, other) = (dir.path().join("plain.jsonl"), dir.path().join("other.jsonl"));
    fs::write(&plain, text(&whole)).unwrap();
    let mut simulated = taken.clone();
    simulated[0]["data"]["world"] = serde_json::json!({ "simulated": ATTACK });
    fs::write(&other, text(&simulated)).unwrap();
    for second in [&plain, &other] {
        let output = pathline(&["diff", run, second.to_str().unwrap()]);
        check(&output, "diff");
    }
    let output = pathline(&["diff", run, plain.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("host differs: '\u{fffd}]0;"));
    check(
        &pathline(&[
            "model",
            "predict",
            "--machine",
            "mi250x",
            "--against",
            run,
            "--color",
            "always",
        ]),
        "model predict",
    );
    check(&pathline(&["model", "fit", run, "-o", "-"]), "calibrate");
    check(&pathline(&["run", "--resume", run]), "resume");
    let name = dir.path().join(ATTACK);
    check(&pathline(&["report", name.to_str().unwrap()]), "the name of a file");
}

/// Every text of every message that may be any: what the page has for a shell stays words, and a machine file that
/// is fitted to the run stays TOML.
#[test]
fn no_text_of_a_journal_becomes_a_command() {
    let whole = Value::Array(messages());
    let lines = |value: &Value| text(value.as_array().expect("messages"));
    let read = |value: &Value| Journal::read(lines(value).as_bytes());
    let takes = |value: &Value| read(value).is_ok_and(|run| run.broken.is_empty() && !run.torn);
    let free = crate::written_scripts::free_texts(&whole, &takes);
    assert!(free.iter().any(|at| at.contains("/command/")), "{free:?}");
    let dir = TempDir::new().unwrap();
    let (run, page) = (dir.path().join("run.jsonl"), dir.path().join("page.html"));
    for hostile in crate::written_scripts::hostile_texts() {
        fs::write(&run, lines(&crate::written_scripts::poisoned(&whole, &free, &hostile))).unwrap();
        let (run, file) = (run.to_str().unwrap(), page.to_str().unwrap());
        let output = pathline(&["report", run, "-o", file]);
        check(&output, &hostile);
        let html = fs::read_to_string(&page).unwrap();
        let codes = html.split("<p class=\"command\"><code>").skip(1);
        let codes = codes.filter_map(|rest| rest.split("</code>").next());
        let codes = codes.map(|code| quick_xml::escape::unescape(code).unwrap());
        let script: String = codes.map(|code| format!("set -- {code}\n")).collect();
        assert!(script.len() > 20, "{output:?}");
        let empty = TempDir::new().unwrap();
        fs::write(dir.path().join("script"), &script).unwrap();
        let mut shell = Command::new("/bin/sh");
        let shell = shell.arg(dir.path().join("script")).current_dir(empty.path());
        let shell = shell.output().unwrap();
        assert!(shell.status.success() && shell.stderr.is_empty(), "{shell:?}: {script:.2000}");
        assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "{script:.2000}");
        let fitted = pathline(&["model", "fit", run, "-o", "-"]).stdout;
        if let Ok(fitted) = String::from_utf8(fitted) {
            toml::from_str::<Value>(&fitted).unwrap_or_else(|error| panic!("{error}: {fitted}"));
        }
    }
}

/// A line that a text begins is not a line of the report.
#[test]
fn no_text_of_a_journal_passes_for_a_line_of_the_report() {
    let mut messages = messages();
    for message in &mut messages {
        for field in ["why", "error", "text", "subject"] {
            if let Some(Value::String(text)) = message["data"].get_mut(field) {
                *text = format!("{text}\n+ All GPUs are healthy.");
            }
        }
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("run.jsonl");
    fs::write(&file, text(&messages)).unwrap();
    let output = pathline(&["report", file.to_str().unwrap()]);
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(shown.contains("+ All GPUs are healthy."), "{output:?}");
    assert!(!shown.lines().any(|line| line.starts_with("+ All GPUs")), "{shown}");
}

/// Cells that a spreadsheet would compute. Numbers stay unchanged.
#[test]
fn no_cell_of_a_table_is_a_formula() {
    let mut messages = messages();
    for message in &mut messages {
        if message["type"] == "skipped" {
            message["data"]["why"] = "=HYPERLINK(\"http://example.org\")".into();
        }
        if message["type"] == "measured" {
            message["data"]["series"][0]["engine"] = "@SUM(1+1)".into();
        }
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("run.jsonl");
    fs::write(&file, text(&messages)).unwrap();
    let output = pathline(&["report", file.to_str().unwrap(), "--format", "csv"]);
    let mut cells = csv::Reader::from_reader(output.stdout.as_slice());
    let cells: Vec<String> = cells
        .records()
        .flat_map(|r| r.unwrap().iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let begins = |with: &str| cells.iter().filter(|cell| cell.starts_with(with)).count();
    assert_eq!((begins("="), begins("@")), (0, 0));
    assert_eq!((begins("'=HYPERLINK("), begins("'@SUM(1+1)") > 0), (1, true));
}

/// 64 members of gzip of 16 MiB each, all notes: a megabyte that unpacks to a gigabyte.
#[test]
fn a_packed_flood_is_refused_early() {
    let begin = messages().remove(0);
    let note = r#"{"type":"note","data":{"code":"x","subject":"run","text":""}}"#.to_owned() + "\n";
    let packed = |text: &str| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    // The end of a run is kept once, however often it is written: only time would pass.
    let end =
        r#"{"type":"end","data":{"ended":"","elapsed":1.0,"complete":true}}"#.to_owned() + "\n";
    for (line, error) in [(note, "too many notes"), (end, "unpacks to more than 50 times its size")]
    {
        let member = packed(&line.repeat((16 << 20) / line.len()));
        let file = [packed(&text(std::slice::from_ref(&begin))), member.repeat(64)].concat();
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("run.jsonl.gz");
        fs::write(&path, file).unwrap();
        // 300 MB of address space: with the text of a gigabyte it ended by SIGABRT.
        let program = assert_cmd::cargo::cargo_bin!("pathline");
        let script =
            format!("ulimit -v 300000; exec '{}' report '{}'", program.display(), path.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let message = unwrapped(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(error), "{message}");
    }
}

/// Endless, empty by their own account, or without anybody who writes.
#[test]
fn files_that_are_none_are_refused() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cache = dir.path().join("cache/pathline");
    fs::create_dir_all(&cache).unwrap();
    let out = dir.path().join("out");
    for none in ["/dev/zero", pipe.to_str().unwrap()] {
        let refused = |args: &[&str]| {
            let output = pathline(args);
            let message = unwrapped(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
            assert!(
                message.contains("a device or a pipe; expected a plain file"),
                "{args:?}: {message}"
            );
        };
        refused(&["run", "--dry-run", "--machine", none]);
        refused(&["run", "--machine", none, "--out", out.to_str().unwrap()]);
        refused(&[
            "model",
            "predict",
            "--machine",
            none,
            "--case",
            "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
        ]);
        refused(&["model", "check", "--machine", "mi250x", "--against", none]);
        // Remembered kernels are a help, not a condition: a plan goes on without them, with a
        // warning.
        let tuned = cache.join("tuned.json");
        let _ = fs::remove_file(&tuned);
        std::os::unix::fs::symlink(none, &tuned).unwrap();
        let mut plan = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
        plan.args(["run", "--dry-run", "--suite", "host"])
            .env("XDG_CACHE_HOME", dir.path().join("cache"));
        let output = plan.output().unwrap();
        let message = unwrapped(&output.stderr);
        assert!(output.status.success() && message.contains("a device or a pipe"), "{message}");
    }
}

/// A kept run with every record of samples changed.
fn changed(dir: &Path, name: &str, change: fn(&mut Value)) -> String {
    let file = fs::File::open(root().join("fixtures/h200-x2-contention.jsonl.gz")).unwrap();
    let mut whole = String::new();
    MultiGzDecoder::new(file).read_to_string(&mut whole).unwrap();
    let mut messages: Vec<Value> =
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for message in messages.iter_mut().filter(|m| m["type"] == "measured") {
        change(&mut message["data"]);
    }
    let path = dir.join(name);
    fs::write(&path, text(&messages)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn each_sample(data: &mut Value, of: impl Fn(f64) -> f64) {
    for series in data["series"].as_array_mut().unwrap() {
        for ns in series["samples_ns"].as_array_mut().unwrap() {
            *ns = of(ns.as_f64().unwrap()).into();
        }
    }
}

/// 32 measured cases of two H200s, as recorded and with impossible figures.
#[test]
fn figures_that_cannot_be_right_have_no_exit_code_0() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let as_it_was = changed(dir, "as-it-was.jsonl", |_| {});
    type Change = (&'static str, fn(&mut Value), &'static str, &'static str);
    let changes: [Change; 6] = [
        (
            "hundredth",
            |m| each_sample(m, |ns| ns / 100.0),
            "results cannot be right",
            "beyond ceiling",
        ),
        (
            "tiny",
            |m| each_sample(m, |_| 1e-300),
            "32 records of the journal",
            "32 records of the second",
        ),
        ("one-ns", |m| each_sample(m, |_| 1.0), "records of the journal", "records of the second"),
        (
            "negative",
            |m| each_sample(m, |ns| -ns),
            "32 records of the journal",
            "32 records of the second",
        ),
        (
            "none",
            |m| m["series"] = Value::Array(Vec::new()),
            "32 records of the journal",
            "32 records",
        ),
        (
            "no-bytes",
            |m| m["series"][0]["moved_bytes"] = 0.into(),
            "32 records of the journal",
            "32 records",
        ),
    ];
    for (name, change, reported, compared) in changes {
        let run = changed(dir, &format!("{name}.jsonl"), change);
        let output = pathline(&["report", &run, "-o", &format!("{run}.csv")]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {shown}");
        assert!(shown.contains(reported), "{name}: {shown}");
        let table = fs::read_to_string(format!("{run}.csv")).unwrap();
        let cells = table.lines().skip(1).flat_map(|line| line.split(','));
        let numbers = cells.filter_map(|cell| cell.parse::<f64>().ok());
        assert!(numbers.clone().all(|n| n.is_finite() && n >= 0.0), "{name}");
        for pair in [[&as_it_was, &run], [&run, &as_it_was]] {
            let output = pathline(&["diff", pair[0], pair[1]]);
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(1), "{name}: {shown}");
            assert!(!shown.contains("inf"), "{name}: {shown}");
            // Of the time of a small copy no ceiling is known.
            let mut faster = shown.lines().filter(|line| line.starts_with("faster"));
            assert!(faster.all(|line| line.ends_with("16B isolated")), "{name}: {shown}");
            if pair[0] == &as_it_was {
                assert!(shown.contains(compared), "{name}: {shown}");
            }
        }
    }
    let unverified = changed(dir, "unverified.jsonl", |m| {
        m["verdict"] = serde_json::json!({ "unverified": "nobody looked" });
    });
    let output = pathline(&["diff", &as_it_was, &unverified]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("32 cases in both, tolerance 2 %: 32 unverified"), "{shown}");
    let same = changed(dir, "same.jsonl", |_| {});
    let output = pathline(&["diff", &as_it_was, &same]);
    // Contention is too noisy for 2 %.
    assert_eq!(output.status.code(), Some(3));
    // Paths of two GPUs have no peers.
    assert_eq!(pathline(&["report", &as_it_was]).status.code(), Some(0));
}
