//! Selection of kernels by a run, and memory of searches.

use std::fs;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::unwrapped;

/// Runs the program with a separate cache folder.
fn pathline(cache: &TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).env("XDG_CACHE_HOME", cache.path()).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    unwrapped(&output.stderr)
}

#[test]
fn suites_take_tuned_kernels_unless_standard_ones_are_requested() {
    let cache = TempDir::new().unwrap();
    let plan = |more: &[&str]| {
        let args = [&["run", "--dry-run", "--machine", "hgx-h200", "--suite", "local,pairs"], more]
            .concat();
        let output = pathline(&cache, &args);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    let (known, plain) = (plan(&[]), plan(&["--standard-kernels"]));
    assert!(known.contains("by kernel@gpu0[copy-w16-u1-b256-gt]"), "{known}");
    assert!(!plain.contains("-gt]") && plain.contains("[copy-w16-u4-b256-g2sm]"), "{plain}");
    assert_eq!(known.lines().count(), plain.lines().count());
}

/// 12 searches; a model's winners stay with its run, and its resumption takes the same kernels.
#[test]
fn a_search_on_a_model_is_printed_and_not_remembered() {
    let (cache, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let run = dir.path().join("run").to_string_lossy().into_owned();
    let args = ["run", "--machine", "mi250x", "--suite", "local", "--tune", "--out", &run];
    let output = pathline(&cache, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let tuned = out(&output).lines().filter(|l| l.starts_with("tuned: ")).count();
    assert_eq!(tuned, 12, "{}", out(&output));
    assert!(!cache.path().join("pathline").join("tuned.json").exists());
    let winners = dir.path().join("run").join("kernels.json");
    let text = fs::read_to_string(&winners).unwrap();
    // A resumed run takes the winners of its folder: here, one that was put there meanwhile.
    let other = text.replace("triad-w16-u4-b256-g2sm", "triad-w8-u4-b256-g2sm");
    assert_ne!(text, other);
    fs::write(&winners, other).unwrap();
    let journal = dir.path().join("run").join("run.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let (cut, end) = whole.trim_end().rsplit_once('\n').unwrap();
    assert!(end.starts_with(r#"{"type":"end""#), "{end}");
    fs::write(&journal, format!("{cut}\n")).unwrap();
    let resumed = pathline(&cache, &["run", "--resume", &run]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    let journal = fs::read_to_string(journal).unwrap();
    assert!(journal.contains("triad-w8-u4-b256-g2sm"));
}

#[test]
fn a_file_of_winners_that_cannot_be_read_is_named_and_passed_over() {
    let cache = TempDir::new().unwrap();
    fs::create_dir(cache.path().join("pathline")).unwrap();
    let file = cache.path().join("pathline").join("tuned.json");
    for broken in ["not json", "{\"format\":99,\"kernels\":[]}", ""] {
        fs::write(&file, broken).unwrap();
        let output = pathline(&cache, &["run", "--dry-run", "--suite", "host"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(err(&output).contains("tuned.json"), "{broken}: {}", err(&output));
    }
    fs::write(&file, "{\"format\":1,\"kernels\":[]}").unwrap();
    assert_eq!(err(&pathline(&cache, &["run", "--dry-run", "--suite", "host"])), "");
}

/// A search on a machine whose GPUs cannot be opened finds nothing, reports it, and leaves the
/// host's cases alone.
#[test]
fn a_search_without_gpus_names_what_it_needs() {
    let (cache, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let run = dir.path().join("run").to_string_lossy().into_owned();
    let host = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
    let lost = ["--worker", "--inject", "crash open"];
    let args = ["run", "--machine", "mi250x", "--case", host, "--tune", "--out", &run];
    let output = pathline(&cache, &[&args[..], &lost[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("--tune found no kernel: it needs a GPU"), "{}", out(&output));
}
