//! One question asked of several commands: expected value, limit and verdict are the same.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

fn pathline(args: &[&str], input: &str) -> String {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    let mut child = Command::new(binary)
        .args(args)
        .env("COLUMNS", "200")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Operation, program of nccl-tests, and bus bandwidth over algorithm bandwidth for 8 ranks.
const OPERATIONS: [(&str, &str, f64); 5] = [
    ("all_reduce", "all_reduce_perf", 1.75),
    ("all_gather", "all_gather_perf", 0.875),
    ("reduce_scatter", "reduce_scatter_perf", 0.875),
    ("broadcast", "broadcast_perf", 1.0),
    ("all_to_all", "alltoall_perf", 0.875),
];

/// What nccl-tests prints of 1 GiB at a bus bandwidth in GB/s.
fn table(program: &str, factor: f64, busbw: f64) -> String {
    let bytes = 1u64 << 30;
    let algbw = busbw / factor;
    let us = bytes as f64 / algbw / 1e3;
    let row = format!("{us:.1} {algbw:.3} {busbw:.3} 0");
    format!(
        "./build/{program} -b 1G -e 1G -g 8\n# nThread 1 nGpus 8 minBytes {bytes} maxBytes {bytes}\n{bytes} {} float sum -1 {row} {row}\n",
        bytes / 4
    )
}

/// Forty facts: five operations on four machines, each at a value that the model leaves open and at one that it
/// does not. `predict`, `explain` and `audit` have one expected value, one limit and one verdict.
#[test]
fn predict_explain_and_audit_agree_on_forty_facts() {
    let mut facts = 0;
    for (machine, library) in
        [("mi250x", "rccl"), ("mi300x", "rccl"), ("hgx-h100", "nccl"), ("hgx-h200", "nccl")]
    {
        let exchange = |op: &str| format!("{op} over gpu0-gpu7 by {library} x 1GiB");
        let exchanges: Vec<String> = OPERATIONS.iter().map(|(op, ..)| exchange(op)).collect();
        let mut args = vec!["predict", "--machine", machine, "--json"];
        args.extend(exchanges.iter().flat_map(|text| ["--exchange", text.as_str()]));
        let predicted: Value = serde_json::from_str(&pathline(&args, "")).unwrap();
        let audited = pathline(&["audit", "-m", machine, "--bytes", "1GiB", "all_reduce"], "");
        let (mut paste, mut asked) = (String::new(), Vec::new());
        for ((op, program, factor), predicted) in
            OPERATIONS.iter().zip(predicted.as_array().unwrap())
        {
            let number = |key: &str| predicted[key].as_f64().unwrap();
            let (busbw, us) = (number("busbw_gbs"), number("us"));
            // busbw at the bound of the time, and at the longest time that constants leave open.
            let limit = busbw * us / number("bound_us");
            let low = busbw / predicted["known_within"][1].as_f64().unwrap();
            for (value, verdict) in [(low * 1.02, "as-expected"), (low * 0.8, "slow")] {
                paste.push_str(&table(program, *factor, value));
                asked.push((exchange(op), value, busbw, limit, verdict));
            }
            if *op == "all_reduce" {
                // `all_reduce  1GiB  12.7 ms  6.26 ms  2.03  ring, Simple`: the bound is the fifth word.
                let row = audited.lines().find(|line| line.starts_with(op)).unwrap();
                let words: Vec<&str> = row.split_whitespace().collect();
                let unit = if words[5] == "ms" { 1e3 } else { 1.0 };
                let bound = words[4].parse::<f64>().unwrap() * unit;
                assert!((bound / number("bound_us") - 1.0).abs() < 6e-3, "{bound} {row}");
            }
        }
        let text = pathline(&["explain", "--machine", machine, "--json", "-"], &paste);
        let found: Value = serde_json::from_str(&text).unwrap();
        for (subject, value, busbw, limit, verdict) in asked {
            facts += 1;
            let is_it = |answer: &&Value| {
                let row = &answer["rows"][0];
                row["subject"] == subject
                    && (row["measured"].as_f64().unwrap() / value - 1.0).abs() < 1e-3
            };
            let answer = found["answers"].as_array().unwrap().iter().find(is_it);
            let answer = answer.unwrap_or_else(|| panic!("{machine}, {subject}, {value}: {text}"));
            let close = |key: &str, to: f64| {
                (answer["rows"][0][key].as_f64().unwrap() / to - 1.0).abs() < 2e-3
            };
            assert!(close("predicted", busbw) && close("limit", limit), "{limit} {answer:#}");
            assert_eq!(answer["verdict"], verdict, "{machine} {answer:#}");
        }
    }
    assert_eq!(facts, 40);
}
