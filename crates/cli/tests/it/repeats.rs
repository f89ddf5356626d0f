//! `pathline run --repeat`, and comparisons of such runs, on the simulated node.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pathline_schema::Journal;
use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.current_dir(dir).args(args).output().expect("it runs")
}

fn journal(dir: &Path, run: &str) -> Journal {
    Journal::read(fs::read(dir.join(run).join("run.jsonl")).unwrap().as_slice()).unwrap()
}

const MODEL: [&str; 6] =
    ["run", "-q", "--machine", "mi250x", "--case", "gpu0.vram > gpu*.vram by dma@gpu0"];

fn run(dir: &Path, out: &str, more: &[&str]) -> Output {
    let output = pathline(dir, &[&MODEL[..], &["--out", out], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
    output
}

#[test]
fn repeats_are_in_one_journal_and_give_an_interval_of_the_node() {
    let dir = TempDir::new().unwrap();
    run(dir.path(), "r", &["--repeat", "4"]);
    let whole = journal(dir.path(), "r");
    let cases = whole.outcomes.len();
    assert_eq!((whole.repeats.len(), whole.resumed.len()), (4, 0));
    assert!(whole.end.as_ref().unwrap().complete);
    assert!(whole.repeats.iter().all(|r| r.complete && r.outcomes.len() == cases));
    // Other times in each repeat, which is what seeds are for.
    let first = |n: usize| &whole.repeats[n].outcomes[0];
    assert!(first(0) != first(1) && first(1) != first(2));
    let shown = pathline(dir.path(), &["report", "r", "--full", "-o", "t.csv", "-o", "p.html"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("4 repeats in new processes"), "{text}");
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    assert!(page.contains("\"between_repeats\":["), "both intervals are named");
    let mut table = csv::Reader::from_path(dir.path().join("t.csv")).unwrap();
    for row in table.deserialize::<std::collections::BTreeMap<String, String>>() {
        let row = row.unwrap();
        if row["outcome"] != "measured" || row["case"].contains('&') {
            continue;
        }
        assert_eq!(row["repeats"], "4", "{}", row["case"]);
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        let (low, high) = (number("node_low95"), number("node_high95"));
        // 0.2 % of noise an operation: both ends are within 2 % of the median.
        assert!(low < high && low > 0.98 * number("median") && high < 1.02 * number("median"));
    }
}

#[test]
fn a_cut_repeat_is_resumed() {
    let dir = TempDir::new().unwrap();
    run(dir.path(), "r", &["--repeat", "3"]);
    let whole = journal(dir.path(), "r");
    let path = dir.path().join("r/run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Cut behind the first outcome of the second repeat.
    let second = lines.iter().position(|l| l.contains("\"repeat\":1")).unwrap();
    let measured = |l: &&str| {
        l.starts_with("{\"type\":\"measured\"") || l.starts_with("{\"type\":\"skipped\"")
    };
    let cut = second + 1 + lines[second..].iter().position(measured).unwrap();
    fs::write(&path, lines[..cut].join("\n") + "\n").unwrap();
    let torn = journal(dir.path(), "r");
    assert_eq!(
        torn.repeats.iter().map(|r| r.outcomes.len()).collect::<Vec<_>>(),
        [whole.outcomes.len(), 1]
    );
    assert!(torn.end.is_none());
    let resumed = pathline(dir.path(), &["run", "-q", "--resume", "r"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", unwrapped(&resumed.stderr));
    let again = journal(dir.path(), "r");
    assert!(again.end.as_ref().unwrap().complete && again.resumed.len() == 1);
    let counts: Vec<usize> = again.repeats.iter().map(|r| r.outcomes.len()).collect();
    assert_eq!(counts, [whole.outcomes.len(); 3]);
    assert_eq!(again.repeats[0].outcomes, whole.repeats[0].outcomes, "the first was left alone");
}

#[test]
fn simulated_runs_with_other_seeds_do_not_change() {
    let dir = TempDir::new().unwrap();
    let suites = ["run", "-q", "--machine", "mi250x", "-s", "pairs,local", "--case-budget", "40"];
    for seed in ["1", "2", "3"] {
        let output =
            pathline(dir.path(), &[&suites[..], &["--seed", seed, "--out", seed]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
    }
    println!("seeds   tolerance   verdict");
    for (before, after) in [("1", "2"), ("2", "3"), ("1", "3")] {
        for tolerance in ["2", "0.1"] {
            let args = ["diff", before, after, "--tolerance", tolerance, "-o", "page.html"];
            let output = pathline(dir.path(), &args);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let verdict = text.lines().find(|l| l.contains("in both")).unwrap();
            println!("{before}, {after}   {tolerance:>5} %   {verdict}");
            let number = |word: &str| {
                let parts = verdict.split([':', ',']).map(str::trim);
                let n = parts.filter_map(|p| p.strip_suffix(word)?.trim().parse::<usize>().ok());
                n.sum::<usize>()
            };
            let all: usize = verdict.split(' ').next().unwrap().parse().unwrap();
            assert!((number("slower") + number("faster")) * 100 <= all, "{text}");
            // The same for programs.
            let json = pathline(dir.path(), &[&args[..5], &["--json"]].concat());
            assert_eq!(json.status.code(), output.status.code());
            let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
            let changed = |word: &str| {
                let cases = json["cases"].as_array().unwrap().iter();
                cases.filter(|case| case["change"] == word).count()
            };
            assert_eq!(json["compared"], all);
            assert_eq!(changed("slower") + changed("faster"), number("slower") + number("faster"));
        }
    }
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>") && page.contains("Noise between runs"));
}

#[test]
fn repeats_of_a_model_are_compared_as_runs() {
    let dir = TempDir::new().unwrap();
    run(dir.path(), "a", &["--repeat", "3"]);
    run(dir.path(), "b", &["--repeat", "3", "--seed", "9"]);
    let same = pathline(dir.path(), &["diff", "a", "b", "--full"]);
    let text = String::from_utf8_lossy(&same.stdout).into_owned();
    assert_eq!(same.status.code(), Some(0), "{text}");
    assert!(text.starts_with("UNCHANGED: 95 of 95 cases within 2 %"), "{text}");
    assert!(text.contains("mi250x (SIMULATED), 3 runs, ") && text.contains("these runs"), "{text}");
    // No case of another path is in both.
    let other = ["run", "-q", "--machine", "mi250x", "--out", "c", "--case"];
    let case = "gpu1.vram > gpu2.vram by dma@gpu1 x 16MiB";
    assert_eq!(pathline(dir.path(), &[&other[..], &[case]].concat()).status.code(), Some(0));
    let none = pathline(dir.path(), &["diff", "a", "c"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(unwrapped(&none.stderr).contains("no case has a figure in the runs"));
}
