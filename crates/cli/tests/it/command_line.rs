//! The command line: commands, files, exit codes, and interrupted runs.

use std::fs;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pathline_schema::{CaseOutcome, Journal, JournalRecord};
use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HSA_")) {
        command.env_remove(name);
    }
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    unwrapped(&output.stderr)
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed")
}

fn journal(run: &Path) -> Journal {
    let file = fs::File::open(run.join("run.jsonl")).expect("a journal");
    Journal::read(BufReader::new(file)).expect("a readable journal")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a printable path")
}

/// A quick real case: one thread, 64 KiB, every instruction choice that needs no feature.
const QUICK: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";

#[test]
fn without_a_command_a_screen_of_commands() {
    let output = pathline(&[]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let screen = out(&output);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 15, "{screen}");
    // The line of the machine has the names of its parts.
    assert!(lines[2..].iter().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(out(&output).contains("pathline run"));
}

#[test]
fn a_packed_journal_is_read_like_a_plain_one() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let args = ["run", "--machine", "mi250x", "--suite", "latency", "-q", "--out", text(&run)];
    assert_eq!(code(&pathline(&args)), 0);
    let plain = pathline(&["report", text(&run), "--format", "csv"]);
    let journal = fs::read(run.join("run.jsonl")).unwrap();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(&journal).unwrap();
    let packed = packer.finish().unwrap();
    assert!(packed.len() * 2 < journal.len());
    fs::write(run.join("run.jsonl.gz"), &packed).unwrap();
    fs::remove_file(run.join("run.jsonl")).unwrap();
    let unpacked = pathline(&["report", text(&run), "--format", "csv"]);
    assert_eq!((code(&unpacked), out(&unpacked)), (0, out(&plain)));

    let refused = pathline(&["run", "--resume", text(&run)]);
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("gunzip"), "{}", err(&refused));
    // A packed file that ends too early is a cut run or an error, never a panic.
    fs::write(run.join("run.jsonl.gz"), &packed[..packed.len() / 2]).unwrap();
    let cut = pathline(&["report", text(&run)]);
    assert_eq!(code(&cut), 2, "{}", err(&cut));
}

#[test]
fn several_runs_have_one_page() {
    let dir = TempDir::new().unwrap();
    let (run, page) = (dir.path().join("run"), dir.path().join("both.html"));
    let args = ["run", "--machine", "mi250x", "--suite", "latency", "-q", "--out", text(&run)];
    assert_eq!(code(&pathline(&args)), 0);
    let runs = ["report", text(&run), text(&run)];
    let both = pathline(&[&runs[..], &["-o", text(&page)]].concat());
    assert_eq!((code(&both), out(&both).trim()), (0, text(&page)), "{}", err(&both));
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("2 runs side by side") && page.contains("Simulated</strong>"));
    assert!(page.contains("\"name\":\"A\"") && page.contains("\"name\":\"B\""));
    for (more, remedy) in [(vec![], "-o FILE.html"), (vec!["--format", "csv"], "one run")] {
        let refused = pathline(&[&runs[..], &more].concat());
        assert_eq!(code(&refused), 2);
        assert!(err(&refused).contains(remedy), "{}", err(&refused));
    }
}

#[test]
fn a_simulated_run_writes_journal_and_page() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let output =
        pathline(&["run", "--machine", "mi250x", "--suite", "latency", "--out", text(&run)]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let journal = journal(&run);
    // Of 8 GCDs, copies each to each and to itself, to and from the host; loads from 7 peers each,
    // and from the host.
    assert_eq!(journal.outcomes.len(), 64 + 2 * 8 + 56 + 8);
    assert!(journal.end.expect("an end").complete);
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("simulated") || page.contains("Simulated"));
    assert!(run.join("machine.toml").is_file());
}

#[test]
fn a_pasted_case_runs_exactly_that_case() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let output = pathline(&["run", "--case-budget", "20ms", "--case", QUICK, "--out", text(&run)]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let journal = journal(&run);
    assert_eq!(journal.outcomes.len(), 1);
    assert!(matches!(journal.outcomes[0], CaseOutcome::Measured(_)));
    assert_eq!(
        journal.outcomes[0].case().to_string(),
        format!("r0.{}", QUICK.replace("> ", "> r0."))
    );
}

#[test]
fn plan_lists_and_explains_without_a_device() {
    let output =
        pathline(&["run", "--dry-run", "--machine", "mi250x", "--suite", "pairs", "--json"]);
    assert_eq!(code(&output), 0);
    // 56 ordered pairs x 4 movers, 28 pairs x 4 movers bidirectional; staged one of each class: 1,
    // 2 and 4 links, 2 hops over 1 and 2, and 3 hops.
    assert_eq!(out(&output).lines().count(), 56 * 4 + 28 * 4 + 6);
    let forbidden = command(&["run", "--dry-run", "--machine", "mi250x", "--suite", "host-link"])
        .env("HSA_XNACK", "0")
        .output()
        .unwrap();
    assert!(out(&forbidden).contains("skipped: HSA_XNACK=0"), "{}", out(&forbidden));
}

#[test]
fn slips_end_with_code_2_and_a_remedy() {
    let dir = TempDir::new().unwrap();
    let broken = dir.path().join("broken.toml");
    fs::write(&broken, "name = \"x\"\nnonsense = 3\n").unwrap();
    for (args, expected) in [
        (vec!["run", "--machine", "mi300z"], "mi250x"),
        (vec!["run", "--machine", text(&broken)], "broken.toml:2"),
        (vec!["run", "-m", "/etc/passwd"], "is no machine file, which has [[numa]]"),
        (vec!["run", "-m", "mi250x", "--gpus", "3,3"], "named twice"),
        (vec!["run", "--suite", "pears"], "pairs"),
        (vec!["run", "pairs", "--quick"], "leave it out, or the suites"),
        (vec!["report", "--format", "json", "x"], "`--json` prints JSON"),
        (
            vec!["run", "allreduce", "-m", "mi250x"],
            "all_reduce is measured by suite ccl-collectives",
        ),
        (vec!["advise", "--job", "Cargo.toml"], "this is no job script"),
        (vec!["run", "quick"], "did you mean --quick"),
        (vec!["run", "hgx-h200"], "write -m hgx-h200"),
        (vec!["run", "-m", "mi250x", "--store", "/tmp"], "leave out --store"),
        (vec!["report"], "runs/HOST-DATE"),
        (vec!["model", "show"], "pathline model list"),
        (vec!["run", "--case", "gpu0 > gpu1 x 0"], "at least 1 byte"),
        (vec!["run", "--case", "all_reduce over gpu0-gpu7 by rccl x 1GiB"], "ccl-collectives"),
        (vec!["run", "--case", "gpu0 over gpu1"], "SRC"),
        (
            vec!["run", "-m", "mi250x", "--case", "gpu9 > gpu1"],
            "there is no gpu9; this machine has 8 GPUs",
        ),
        // Through switches no GPU lies between two others.
        (vec!["run", "--machine", "hgx-h200", "--suite", "routes"], "pathline topo"),
        // A resumed run is measured as it was begun.
        (vec!["run", "--resume", "run", "--precision", "2"], "--precision"),
        (vec!["run", "--time-limit", "0"], "--time-limit"),
        (vec!["run", "--precision", "0"], "from 0.01% to 100%"),
        (vec!["run", "--ranks", "0"], "from 1 to 1024"),
        (vec!["run", "--nodes", "2"], "--machine mi250x --ranks 16"),
        (vec!["topo", "-m", "mi250x:0-9"], "pathline: mi250x:0-9: there is no gpu8"),
        (vec!["report", text(&broken)], "`pathline explain "),
        (vec!["run", "--case-budget", "1e300"], "up to 1000000s"),
        (vec!["run", "--suite", "storage"], "--store DIR"),
        (vec!["run", "--suite", "host,storage", "--span", "1MiB"], "--store DIR"),
        (vec!["run", "--dry-run", "--suite", "storage"], "--store DIR"),
        (vec!["report", "/nonexistent"], "run.jsonl"),
        (vec!["topo", "--from", "/nonexistent"], "/nonexistent"),
    ] {
        let output = pathline(&args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(err(&output).contains(expected), "{args:?} printed: {}", err(&output));
    }
}

#[test]
fn nothing_to_measure_is_an_error_of_the_arguments() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let case = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t4000] x 64KiB";
    let output = pathline(&["run", "--case", case, "--out", text(&run)]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("may use") && !run.exists(), "{}", err(&output));
}

#[test]
fn real_and_simulated_are_not_compared() {
    let dir = TempDir::new().unwrap();
    let (real, model) = (dir.path().join("real"), dir.path().join("model"));
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB";
    assert_eq!(
        code(&pathline(&["run", "--case-budget", "20ms", "--case", QUICK, "--out", text(&real)])),
        0
    );
    let args = ["run", "--machine", "mi250x", "--case", case, "--out", text(&model)];
    assert_eq!(code(&pathline(&args)), 0);
    let output = pathline(&["diff", text(&real), text(&model)]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("simulated"), "{}", err(&output));
    let how = format!("pathline model predict --machine mi250x --against {}", text(&real));
    assert!(err(&output).contains(&how), "{}", err(&output));
    assert!(err(&output).contains(&format!("pathline model fit {}", text(&real))));
    let same = pathline(&["diff", text(&model), "--", text(&model), text(&model)]);
    assert_eq!(code(&same), 0, "{}", err(&same));
    let one = pathline(&["diff", text(&model), text(&model)]);
    assert_eq!(code(&one), 2);
    assert!(err(&one).contains("name two runs"), "{}", err(&one));
    let three = pathline(&["diff", text(&model), text(&model), text(&model)]);
    assert_eq!(code(&three), 2);
    assert!(err(&three).contains("put -- between"), "{}", err(&three));
}

#[test]
fn a_time_limit_holds() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let begun = Instant::now();
    let output = pathline(&["run", "--suite", "host", "--time-limit", "5", "--out", text(&run)]);
    let took = begun.elapsed();
    // The first cases are four times as large as the last cache: where that is 480 MiB, none has a figure yet.
    let measured = journal(&run);
    let has_figures = !measured.outcomes.is_empty() || !measured.partial.is_empty();
    assert_eq!(code(&output), if has_figures { 0 } else { 3 }, "{}", err(&output));
    // The whole suite takes a minute; the margin is for a debug build while eleven other tests run.
    assert!(took < Duration::from_secs(19), "took {took:?}");
    let end = journal(&run).end.expect("an end");
    assert!(!end.complete);
    assert!(end.why.expect("a reason").contains("time limit"));
    assert!(run.join("report.html").is_file());
}

#[test]
fn an_interrupted_run_keeps_its_results_and_reports() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    // Sizes that fit every cache, in more than one group: four times the last cache may be gigabytes.
    let patterns =
        ["16KiB", "64KiB"].map(|size| format!("numa0.huge > * by cpu@numa0[*-t1] x {size}"));
    let cases = ["--case", &patterns[0], "--case", &patterns[1]];
    let mut child = command(&[&["run"], &cases[..], &["--out", text(&run)]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_outcomes(&run, 3);
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let journal = journal(&run);
    let end = journal.end.expect("an end");
    assert_eq!(end.why.as_deref(), Some("interrupted"));
    assert!(end.missing.values().sum::<usize>() > 0, "{end:?}");
    let again =
        out(&pathline(&["report", text(&run)])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        again.contains("UNDECIDED: interrupted: ") && again.contains(" not measured ("),
        "{again}"
    );
    assert!(journal.outcomes.len() >= 3);
    assert!(run.join("report.html").is_file());
}

/// Whole lines of a journal, as messages.
fn messages(run: &Path) -> Vec<JournalRecord> {
    let text = fs::read_to_string(run.join("run.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn outcomes(messages: &[JournalRecord]) -> Vec<String> {
    let case = |m: &JournalRecord| match m {
        JournalRecord::Measured(m) => Some(m.case.to_string()),
        JournalRecord::Skipped(s) => Some(s.case.to_string()),
        JournalRecord::Faulted(f) => Some(f.case.to_string()),
        _ => None,
    };
    messages.iter().filter_map(case).collect()
}

fn wait_for_outcomes(run: &Path, wanted: usize) {
    let begun = Instant::now();
    let is_measured = |m: &&JournalRecord| matches!(m, JournalRecord::Measured(_));
    while messages(run).iter().filter(is_measured).count() < wanted {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "fewer than {wanted} results within a minute"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_and_resumed_nothing_is_lost_or_measured_twice() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    // More than 16 cases: those of one group end at nearly the same time.
    let patterns =
        ["16KiB", "64KiB"].map(|size| format!("numa0.huge > * by cpu@numa0[*-t1] x {size}"));
    let cases = ["--case", &patterns[0], "--case", &patterns[1]];
    let mut child = command(&[&["run"], &cases[..], &["--out", text(&run)]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_outcomes(&run, 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = outcomes(&messages(&run));
    assert!(journal(&run).end.is_none(), "the kill came too late to cut the run");

    let output = pathline(&["run", "--resume", text(&run)]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let after = outcomes(&messages(&run));
    assert_eq!(after[..before.len()], before[..], "what was measured stays as it was");
    let mut once = after.clone();
    once.sort();
    once.dedup();
    // What other programs disturbed is measured again at the end, and a note says so.
    let again = |m: &&JournalRecord| matches!(m, JournalRecord::Note(n) if n.text.contains("in a new process"));
    let again = messages(&run).iter().filter(again).count();
    assert_eq!(once.len() + again, after.len(), "a case was measured twice");
    let planned = pathline(&[&["run", "--dry-run"], &cases[..], &["--json"]].concat());
    assert_eq!(once.len(), out(&planned).lines().count());
    assert!(journal(&run).end.expect("an end").complete);
}

#[test]
fn a_journal_cut_at_any_byte_can_be_resumed_and_reported() {
    let dir = TempDir::new().unwrap();
    let whole = dir.path().join("whole");
    let case = "gpu0.vram > gpu*.vram by dma@gpu0 x 256MiB";
    let args = ["run", "--machine", "mi250x", "--suite", "pairs", "--case", case, "--out"];
    assert_eq!(code(&pathline(&[&args[..], &[text(&whole)]].concat())), 0);
    let bytes = fs::read(whole.join("run.jsonl")).unwrap();
    let all = outcomes(&messages(&whole)).len();
    let first_line = bytes.iter().position(|&b| b == b'\n').unwrap() + 1;
    let step = (bytes.len() - first_line) / 9;
    for cut in (first_line..bytes.len()).step_by(step) {
        let run = dir.path().join(format!("cut-{cut}"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("run.jsonl"), &bytes[..cut]).unwrap();
        fs::copy(whole.join("machine.toml"), run.join("machine.toml")).unwrap();
        let report = pathline(&["report", text(&run)]);
        assert_eq!(code(&report), 3, "cut at {cut}: {}", err(&report));
        let resumed = pathline(&["run", "--resume", text(&run), "--quiet"]);
        assert_eq!(code(&resumed), 0, "cut at {cut}: {}", err(&resumed));
        assert_eq!(outcomes(&messages(&run)).len(), all, "cut at {cut}");
    }
}

/// Processes of this program start each other by commands that are nobody else's.
#[test]
fn internal_commands_are_named_nowhere() {
    let shells = ["bash", "zsh", "fish", "elvish", "powershell"];
    let texts = shells.map(|shell| out(&pathline(&["completions", shell])));
    let help = ["--help", "-h", "man"].map(|word| out(&pathline(&[word])));
    // `worker` and `rank` are also parts of options and sentences; commands have subcommand texts.
    for text in texts.iter().chain(&help) {
        assert!(text.contains("topo"), "it lists commands: {text}");
        for (name, about) in [
            ("__compile", "Compile kernels for"),
            ("worker", "Measure for a run that started"),
            ("rank", "Be one of several processes"),
        ] {
            let listed =
                [format!("pathline,{name})"), format!("pathline-{name}("), format!("'{name}:")];
            assert!(!text.contains(about), "{name} in {text}");
            assert!(listed.iter().all(|entry| !text.contains(entry)), "{name} in {text}");
        }
        assert!(!text.contains("__compile") && !text.contains("--inject"), "{text}");
    }
    for typo in ["rnu", "ran", "runk", "rannk", "wroker", "_compile", "rnk"] {
        let output = pathline(&[typo]);
        assert_eq!(code(&output), 2, "{typo}");
        let stderr = err(&output);
        let hint = stderr.split("tip:").nth(1).unwrap_or_default();
        for name in ["'rank'", "'worker'", "'__compile'"] {
            assert!(!hint.contains(name), "{typo}: {stderr}");
        }
    }
    assert!(err(&pathline(&["runn"])).contains("'run'"), "typos of others are still answered");
}

#[test]
fn completions_and_manual_come_from_the_argument_table() {
    assert!(out(&pathline(&["completions", "bash"])).contains("--time-limit"));
    let page = out(&pathline(&["man"]));
    assert!(page.contains(".TH pathline") && !page.contains("inject"), "{page}");
    // Each page that the first one refers to is written.
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    assert_eq!(code(&pathline(&["man", "--dir", text(&pages)])), 0);
    let referred = page.split("pathline\\-").skip(1).filter_map(|rest| rest.split("(1)").next());
    let referred: Vec<&str> = referred.filter(|name| name.len() < 20).collect();
    assert!(referred.len() >= 10, "{referred:?}");
    for name in referred {
        let file = pages.join(format!("pathline-{name}.1"));
        assert!(file.is_file(), "{}", file.display());
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = pathline(&["man", "--dir", text(&file)]);
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("manual pages cannot be written to"), "{}", err(&refused));
}

/// A message to the process that compiles: fields with their lengths before them.
fn message(fields: &[&[u8]]) -> Vec<u8> {
    let word = |n: usize| (n as u32).to_le_bytes();
    let mut bytes = word(fields.len()).to_vec();
    for field in fields {
        bytes.extend(word(field.len()));
        bytes.extend(*field);
    }
    bytes
}

#[test]
fn the_process_that_compiles_answers_each_request_and_ends_with_its_input() {
    let request = message(&[b"cuda", b"/nowhere/libnvrtc.so.12", b"sm_90", b"a kernel"]);
    let output =
        assert_cmd::Command::from(command(&["__compile"])).write_stdin(request.repeat(2)).unwrap();
    let answer = output.stdout.split_at(output.stdout.len() / 2);
    assert_eq!(answer.0, answer.1, "the same twice");
    assert!(out(&output).contains("No such file"), "{}", out(&output));
    let output =
        assert_cmd::Command::from(command(&["__compile"])).write_stdin("a kernel").output();
    assert_eq!(code(&output.unwrap()), 2);
    assert!(!out(&pathline(&["--help"])).contains("__compile"));
}

#[test]
fn doctor_lists_libraries_and_why_they_are_unusable() {
    let dir = TempDir::new().unwrap();
    let broken = dir.path().join("libcuda.so.1");
    // The head of a library whose segments are missing: the dynamic linker alone would take it.
    let program = fs::read(assert_cmd::cargo::cargo_bin!("pathline")).unwrap();
    fs::write(&broken, &program[..8192]).unwrap();
    let output = command(&["doctor", "--nvrtc", text(&dir.path().join("none"))])
        .env("LD_LIBRARY_PATH", dir.path())
        .output()
        .unwrap();
    let stdout = out(&output);
    assert!(stdout.contains(&format!("not {}: cut off", text(&broken))), "{stdout}");
    assert!(stdout.contains("run-time compiler (NVRTC): not found"), "{stdout}");
    assert!(stdout.contains("pip install nvidia-cuda-nvrtc-cu12"), "{stdout}");
    let runtime = dir.path().join("libamdhip64.so.6");
    fs::write(&runtime, "no library").unwrap();
    let nowhere = dir.path().join("none");
    let hip = command(&["doctor", "--hip", text(dir.path())])
        .env("XDG_CACHE_HOME", text(&broken))
        .env("TMPDIR", &nowhere)
        .env("ROCR_VISIBLE_DEVICES", "1")
        .output()
        .unwrap();
    let stdout = out(&hip);
    assert!(
        stdout.contains(&format!("not {}: no 64-bit shared object", text(&runtime))),
        "{stdout}"
    );
    assert!(stdout.contains("so:      no GPU of AMD can be measured"), "{stdout}");
    // A file is in the place of the folder, and no folder is where temporary files would go.
    assert!(stdout.contains("compiled kernels are not kept:"), "{stdout}");
    assert!(stdout.contains(&format!("TMPDIR: {} cannot be written", text(&nowhere))), "{stdout}");
    assert!(stdout.contains("note: ROCR_VISIBLE_DEVICES set: a run numbers"), "{stdout}");
    assert!([0, 1].contains(&code(&output)), "{}", err(&output));
}

#[test]
fn names_that_do_not_exist_have_a_suggestion() {
    for (args, expected) in [
        (vec!["run", "--suite", "hots"], "did you mean 'host'"),
        (vec!["run", "--machine", "mi250"], "did you mean 'mi250x'"),
        (vec!["run", "--machine", "mi250.toml"], "did you mean 'mi250x'"),
        (vec!["run", "--machine", "twin-of.toml"], "twin-of.toml: there is no such file; machines"),
        (
            vec!["run", "--dry-run", "--machine", "mi250x", "--case", "gpu0.vrma"],
            "did you mean 'vram'",
        ),
        (
            vec!["run", "--dry-run", "--machine", "mi250x", "--case", "gpu9.vram"],
            "there is no gpu9",
        ),
        (
            vec![
                "run",
                "--dry-run",
                "--machine",
                "mi250x",
                "--case",
                "gpu0.vram > gpu1.vram by dam",
            ],
            "'dma'",
        ),
        (vec!["explain", "gpu0 > gpu1 by dam"], "did you mean 'dma'"),
        (vec!["explain", "allreduce over gpu0-gpu7 by rccl x 1MiB"], "did you mean 'all_reduce'"),
        (vec!["explain", "gpu0 > gpu9", "-m", "mi250x"], "this machine has no gpu9"),
        (vec!["run", "gpu0 > gpu9", "-m", "mi250x", "--dry-run"], "there is no gpu9"),
        (vec!["run", "allreduce", "-m", "mi250x"], "suite ccl-collectives"),
        (vec!["report", "x", "--html", "y"], "--html is now -o FILE.html"),
        (vec!["diff", "x", "y", "--all"], "--all is now --full"),
        (vec!["report", "x", "-o", "y"], ".html or .raw.csv or .csv or .json"),
        (vec!["model", "fit", "--json"], "--json is an option of run, "),
        (vec!["-m", "mi250x"], "-m is an option of run, "),
        (vec!["help", "rnu"], "did you mean 'run'"),
        (vec!["run", "--machine", "mi250x", "--suite", "mpi-latency"], "add --ranks 2"),
        (
            vec![
                "model",
                "predict",
                "--machine",
                "mi250x",
                "--exchange",
                "allreduce over gpu0-gpu7 by rccl x 1MiB",
            ],
            "did you mean 'all_reduce'",
        ),
    ] {
        let output = pathline(&args);
        assert_eq!(code(&output), 2, "{args:?} {}", out(&output));
        assert!(err(&output).contains(expected), "{args:?} printed: {}", err(&output));
    }
}

#[test]
fn a_case_text_is_explained_and_completed() {
    let output = pathline(&["explain", "numa3 > gpu1"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with("r0.numa3.pinned > r0.gpu1.vram by dma@gpu1 x 256MiB\n"), "{text}");
    assert!(text.contains("SDMA copy") && text.contains("pathline run 'r0.numa3"), "{text}");
}

#[test]
fn suites_are_listed_with_their_cases() {
    let output = pathline(&["run", "--list", "--machine", "mi250x"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    // 56 ordered pairs x 4 movers, 28 pairs x 4 movers both ways, 6 staged: 342.
    let pairs = text.lines().find(|line| line.starts_with("  pairs ")).unwrap();
    assert!(pairs.contains(" 342 "), "{pairs}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let absent = text.split("Not here:").nth(1).unwrap();
    assert!(absent.contains("mpi-latency, "), "{absent}");
    assert_eq!(absent.matches("two processes are needed: add --ranks 2").count(), 1, "{absent}");
}

/// 855 cases that the model has not were planned and skipped before.
#[test]
fn a_plan_for_ranks_of_a_model_has_what_the_model_has() {
    let output = pathline(&["run", "--dry-run", "--machine", "mi250x", "--ranks", "8", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(text.lines().count() > 1000, "{}", text.lines().count());
    let skipped: Vec<&str> = text.lines().filter(|l| !l.contains("\"skip\":null")).collect();
    assert!(skipped.is_empty(), "{}: {:?}", skipped.len(), skipped.first());
    let managed = |line: &str| line.contains(".managed > r") && line.contains(" by mpi@");
    assert!(text.lines().any(managed), "messages of managed memory");
}

#[test]
fn a_quick_run_has_the_main_paths() {
    let output = pathline(&["run", "--dry-run", "--machine", "mi250x", "--quick", "--json"]);
    let text = out(&output);
    // 56 pairs; to and from 8 GPUs each; 16 B copies between 8 x 8 GPUs, and with the host.
    let lines = text.lines().count();
    assert!((56 + 16..56 + 16 + 64 + 16 + 32).contains(&lines), "{lines}");
    assert!(text.contains("numa3.pinned > r0.gpu0.vram by dma"), "{text}");
    assert!(!text.contains("kernel@"), "{text}");
}

#[test]
fn only_the_folder_of_a_run_gets_a_page_by_itself() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("run");
    let args = ["run", "--machine", "mi250x", "--suite", "local", "-q", "--out", text(&run)];
    assert_eq!(code(&pathline(&args)), 0);
    let other = dir.path().join("mine.jsonl");
    fs::copy(run.join("run.jsonl"), &other).unwrap();
    let output = pathline(&["report", text(&other)]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("-o FILE.html"), "{}", out(&output));
    assert!(!dir.path().join("mine.html").exists() && !dir.path().join("report.html").exists());
    let short = out(&output).lines().count();
    let full = out(&pathline(&["report", text(&other), "--full"]));
    assert!(short <= 40, "{short}");
    // Four bars of one GPU's memory, which the first screen has no room for where there is more.
    assert!(full.contains("copy, kernel") && full.contains("triad"), "{full}");
}
