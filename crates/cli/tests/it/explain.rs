//! `pathline explain`: five lines, JSON, exit codes.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn explain(args: &[&str], input: &str) -> Output {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    let mut child = Command::new(binary)
        .arg("explain")
        .args(args)
        .env("COLUMNS", "80")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    stdin.write_all(input.as_bytes()).expect("the input is taken");
    drop(stdin);
    child.wait_with_output().expect("the binary ends")
}

/// Six H100s: 450 x 0.686 x 2 x 5 / 7 = 441 GB/s.
const SIX: &str = "H100\n# nThread 1 nGpus 6 minBytes 1 maxBytes 1\n\
    8589934592 2147483648 float sum -1 32800 261.9 436.5 0 32800 261.9 436.5 0\n\
    17179869184 4294967296 float sum -1 65075 264.0 440.0 0 65075 264.0 440.0 0\n";

#[test]
fn an_answer_fits_eighty_columns() {
    let output = explain(&["-"], SIX);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for label in ["figure", "limit", "share", "cause", "decide"] {
        assert!(text.contains(&format!("\n  {label} ")), "{label}: {text}");
    }
    assert!(text.contains("440 / 450 GB/s = 98 %"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 5 lines"));
}

#[test]
fn json_has_all_causes() {
    let output = explain(&["--json", "--machine", "hgx-h200"], SIX);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\"id\": \"nvls\""), "{text}");
    assert!(text.contains("of the machine"), "{text}");
}

#[test]
fn exit_codes_say_whether_there_is_an_answer() {
    let code = |args: &[&str], input: &str| explain(args, input).status.code();
    assert_eq!(code(&[], "hello\n"), Some(3));
    assert_eq!(code(&[], " \n"), Some(2));
    assert_eq!(code(&["no-such-file"], ""), Some(2));
    let wrong = "A100\n1048576 262144 float sum -1 61.1 17.19 25.78 262144 61.0 17.19 25.78 12\n";
    assert_eq!(code(&[], wrong), Some(1));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("paste.txt");
    fs::write(&file, SIX).expect("the file is written");
    assert_eq!(code(&[file.to_str().expect("UTF-8")], ""), Some(0));
}
