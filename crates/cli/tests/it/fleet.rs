//! Many nodes judged by each other: `pathline health --gather` and `--fleet`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn command() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.stdin(Stdio::null()).env_remove("COLUMNS");
    command
}

fn pathline(args: &[&str]) -> Output {
    command().args(args).output().expect("it runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Starts the check of one rank of a job; a machine that does not answer is a rank that is not started.
fn start(folder: &Path, rank: u32, size: u32, machine: &str) -> Child {
    command()
        .args([
            "health",
            "-m",
            machine,
            "--gather",
            "g",
            "--budget",
            "5s",
            "--seed",
            &rank.to_string(),
        ])
        .current_dir(folder)
        .envs(
            [("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", size), ("SLURM_JOB_ID", 71)]
                .map(|(name, value)| (name, value.to_string())),
        )
        .stdout(fs::File::create(folder.join(format!("out{rank}"))).expect("a file"))
        .spawn()
        .expect("a process")
}

/// All 16 SDMA engines of node 3 are 10.7 % slow, which no comparison within the node shows; rank 6 does not answer.
#[test]
fn a_node_that_is_slow_as_a_whole_is_named_by_the_others_and_silence_is() {
    let folder = TempDir::new().expect("a folder");
    let mut slow = stdout(&pathline(&["model", "show", "mi250x"]));
    for gpu in 0..8 {
        let _ =
            write!(slow, "\n[[fault]]\nelement = \"gpu{gpu}\"\nkind = \"engine\"\nshare = 0.893\n");
    }
    fs::write(folder.path().join("slow.toml"), slow).expect("a file");
    let machine = |rank| if rank == 3 { "slow.toml" } else { "mi250x" };
    let ranks = (0..8).filter(|rank| *rank != 6);
    let started: Vec<Child> =
        ranks.map(|rank| start(folder.path(), rank, 8, machine(rank))).collect();
    let codes: Vec<Option<i32>> =
        started.into_iter().map(|mut child| child.wait().expect("an end").code()).collect();
    // Rank 0 alone has the exit code of the job.
    assert_eq!(codes, [Some(1), Some(0), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    let text = fs::read_to_string(folder.path().join("out0")).expect("the answer");
    assert!(
        text.contains("-3: all copies between GPUs of 50 GB/s: 11 % slower than other nodes"),
        "{text}"
    );
    assert!(text.contains("1 rank did not answer in time") && text.contains("ranks 6"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");

    // The same files later, as JSON, page and table.
    let judge = |args: &[&str]| {
        command().current_dir(folder.path()).args(["health", "--fleet", "g"]).args(args).output()
    };
    let json = judge(&["--json"]).expect("an end");
    let report: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((report["verdict"].as_str(), json.status.code()), (Some("suspect"), Some(1)));
    assert_eq!(report["nodes"].as_array().map(Vec::len), Some(7));
    let worst = &report["nodes"][0];
    // All engines at 0.893 of their rate: 10.7 %.
    let loss = worst["slow"][0]["loss"].as_f64().expect("a loss");
    assert!((loss - 0.107).abs() < 0.01, "{worst}");
    judge(&["-o", "fleet.html"]).expect("an end");
    let page = fs::read_to_string(folder.path().join("fleet.html")).expect("a page");
    assert!(page.contains("7 nodes compared with each other"), "{page}");
    judge(&["-o", "fleet.csv"]).expect("an end");
    let table = fs::read_to_string(folder.path().join("fleet.csv")).expect("a table");
    assert_eq!(table.lines().count(), 8, "{table}");
    assert!(table.starts_with("host,started,results,kind,verdict,why,\"all copies"), "{table}");
}

#[test]
fn files_that_are_no_results_cost_themselves() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let fleet = || pathline(&["health", "--fleet", &folder.path().display().to_string()]);
    let nothing = fleet();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no result of a node in"));
    fs::write(path("cut.json"), "{\"digest\": ").expect("a file");
    fs::write(path("other.json"), "[1, 2]").expect("a file");
    assert_eq!(fleet().status.code(), Some(2));
    let file = path("node.json").display().to_string();
    let checked = pathline(&["health", "-m", "mi250x", "--json", "-o", &file]);
    assert_eq!(checked.status.code(), Some(0));
    let output = fleet();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("cut.json: no JSON") && errors.contains("other.json"), "{errors}");
    // One node is judged by its own check, and said not to be compared.
    let text = stdout(&output);
    assert!(text.starts_with("OK: 1 node by the check of each; fewer than 5"), "{text}");
    assert_eq!(output.status.code(), Some(0));
    let alone = pathline(&["health", "-m", "mi250x", "--gather", &file]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&alone.stderr).contains("start it by srun, flux run or mpirun")
    );
}
