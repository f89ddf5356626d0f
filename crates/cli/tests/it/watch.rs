//! `pathline watch` on the model, on this host, and around a command.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{unwrapped, wait_until};

fn watch(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .arg("watch")
        .args(args)
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn stdout(args: &[&str]) -> String {
    let output = watch(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn a_simulated_node_plays_its_steps_and_each_says_what_limits() {
    let text = stdout(&["-m", "mi250x"]);
    let limits: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("LIMITED by") || line.starts_with("Not"))
        .collect();
    assert_eq!(limits.len(), 3, "{text}");
    assert!(limits[0].starts_with("LIMITED by gpu0-gpu1 xGMI out at"), "{text}");
    assert!(limits[2].starts_with("Nothing counted is saturated: nothing moves."), "{text}");
    assert!(text.contains("uncounted gpu0 memory") && text.contains("(SIMULATED)"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_case_moves_what_it_says_and_the_share_is_of_the_model_or_of_what_was_measured() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let value = &lines(&stdout(&["-m", "mi250x", "--json", case]))[0];
    let out = |value: &Value| {
        let paths = value["paths"].as_array().unwrap();
        paths.iter().find(|path| path["path"] == "gpu0-gpu1 xGMI").unwrap()["out"].clone()
    };
    // The copy engine's 50 GB/s fill a third of the link.
    let of_model = out(value);
    let gbs = of_model["gbs"].as_f64().unwrap();
    assert!((47.0..51.0).contains(&gbs), "{of_model}");
    assert_eq!(
        (&of_model["capacity_from"], &value["limited_by"]),
        (&"model".into(), &Value::Array(vec![]))
    );
    assert!(value["summary"].as_str().unwrap().starts_with("Nothing counted is saturated; the"));
    // A run that measured this copy alone: it is all that is known to be possible.
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let measured = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["run", "-q", "-m", "mi250x", case, "--out"])
        .arg(&run)
        .output()
        .unwrap();
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let against = run.to_str().unwrap();
    let value = &lines(&stdout(&["-m", "mi250x", "--json", "--against", against, case]))[0];
    let of_run = out(value);
    assert_eq!(of_run["capacity_from"], "measured");
    assert!(of_run["share"].as_f64().unwrap() > 0.95, "{of_run}");
    assert_eq!(value["limited_by"][0]["path"], "gpu0-gpu1 xGMI");
    // Of another node.
    let other = watch(&["-m", "hgx-h200", "--against", against]);
    let error = unwrapped(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{error}");
    assert!(error.contains("is a run of mi250x (simulated), which is another node"), "{error}");
}

#[test]
fn a_command_keeps_its_output_and_its_exit_status() {
    let output = watch(&["--interval", "100ms", "--", "sh", "-c", "echo out; exit 7"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"out\n"[..]),
        "{error}"
    );
    assert!(error.contains(" s of the command\n"), "{error}");
    let killed = watch(&["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.code(), Some(143));
    let missing = watch(&["--", "/nonexistent/program"]);
    assert_eq!(missing.status.code(), Some(2));
    let objects = watch(&["--json", "--interval", "100ms", "--", "sleep", "0.4"]);
    let objects = lines(&String::from_utf8_lossy(&objects.stderr));
    assert!(objects.len() >= 3, "{objects:?}");
}

/// Without a terminal the signal is the watcher's alone: the command gets it, and its status and traffic are kept.
#[test]
fn a_signal_ends_the_command_and_not_the_watcher() {
    let mut watcher = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["watch", "--interval", "100ms", "--"])
        .args(["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut ready = String::new();
    BufReader::new(watcher.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    kill_process(Pid::from_child(&watcher), Signal::INT).unwrap();
    let output = watcher.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((ready.as_str(), output.status.code()), ("ready\n", Some(9)), "{error}");
    assert!(error.contains(" s of the command\n"), "{error}");
}

#[test]
fn it_ends_when_nobody_reads_any_more() {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["watch", "--json", "--interval", "100ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(lines(&line).len(), 1);
    wait_until("watch ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn this_host_is_watched_without_a_gpu_and_memory_is_not_called_idle() {
    let output = watch(&["--once", "--interval", "100ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    // A host without a counter at all cannot be judged.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
    assert!(text.contains("uncounted") && !text.contains("OK"), "{text}");
    assert_eq!(watch(&["--interval", "5ms"]).status.code(), Some(2));
}
