//! Files of runs: two runs at one journal, files of users in the place of a run's, links, broken lines,
//! limits of the size of files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::{journal, unwrapped, wait_until};

/// A case of a model that takes no time.
const CASE: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB";

fn pathline(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

/// A quiet run of a model into the folder `out`, with more arguments.
fn model(dir: &Path, out: &str, more: &[&str]) -> Output {
    let args = ["run", "-q", "--machine", "mi250x", "--case", CASE, "--out", out];
    pathline(dir, &[&args[..], more].concat())
}

fn err(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// Checks the exit code, and that standard error contains all of `expected`.
fn ends(output: &Output, code: i32, expected: &[&str]) {
    let err = err(output);
    assert_eq!(output.status.code(), Some(code), "{err}");
    for words in expected {
        assert!(err.contains(words), "no '{words}' in: {err}");
    }
}

/// A run that goes on until it is killed.
struct Long(Child);

impl Long {
    fn start(dir: &Path, out: &str) -> Self {
        let args = ["run", "-q", "--suite", "host", "--case-budget", "3000", "--out", out];
        let child = command(dir, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let run = Self(child.unwrap());
        // Its begin, its topology and a visit to a case.
        let lines = || fs::read_to_string(dir.join(out).join("run.jsonl")).unwrap_or_default();
        wait_until("a run has begun", || lines().lines().count() >= 3);
        run
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_that_goes_on_is_not_resumed_but_shown() {
    let dir = TempDir::new().unwrap();
    let mut long = Long::start(dir.path(), "d");
    let holder = format!("process {} on ", long.0.id());
    let resumed = pathline(dir.path(), &["run", "--resume", "d", "--time-limit", "3"]);
    ends(&resumed, 2, &["another run writes to it", &holder, "`pathline report`"]);
    // The journal is whole, and nobody took its place.
    let shown = pathline(dir.path(), &["report", "d"]);
    assert!([0, 3].contains(&shown.status.code().unwrap()), "{}", err(&shown));
    assert!(journal(&dir.path().join("d")).resumed.is_empty());
    assert!(long.0.try_wait().unwrap().is_none(), "the first goes on");
    // The kernel lets go of what a killed process held.
    long.0.kill().unwrap();
    long.0.wait().unwrap();
    let before = fs::read(dir.path().join("d/run.jsonl")).unwrap();
    let resumed = pathline(dir.path(), &["run", "-q", "--resume", "d", "--time-limit", "8"]);
    assert!([0, 3].contains(&resumed.status.code().unwrap()), "{}", err(&resumed));
    let after = fs::read(dir.path().join("d/run.jsonl")).unwrap();
    let whole = before.iter().rposition(|b| *b == b'\n').unwrap();
    assert_eq!(after[..=whole], before[..=whole]);
    let journal = journal(&dir.path().join("d"));
    assert!(journal.broken.is_empty() && journal.resumed.len() == 1);
    assert!(journal.begin.pid.is_some());
}

/// In either order, one continues and the other reports why it does not.
#[test]
fn of_two_that_resume_at_once_one_does() {
    let dir = TempDir::new().unwrap();
    drop(Long::start(dir.path(), "d"));
    let args = ["run", "-q", "--resume", "d", "--time-limit", "8"];
    let start = || command(dir.path(), &args).stderr(Stdio::piped()).spawn().unwrap();
    let both = [start(), start()].map(|child| child.wait_with_output().unwrap());
    let refused: Vec<&Output> = both.iter().filter(|o| o.status.code() == Some(2)).collect();
    assert_eq!(refused.len(), 1, "{} {}", err(&both[0]), err(&both[1]));
    ends(refused[0], 2, &["another run writes to it"]);
    let journal = journal(&dir.path().join("d"));
    assert!(journal.broken.is_empty() && journal.resumed.len() == 1 && journal.end.is_some());
}

#[test]
fn a_broken_line_is_named_and_the_rest_is_shown() {
    let dir = TempDir::new().unwrap();
    let all = ["--suite", "pairs", "--case", "gpu* > gpu*.vram by dma"];
    ends(&model(dir.path(), "d", &all), 0, &[]);
    let path = dir.path().join("d/run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|l| l.starts_with("{\"type\":\"measured\"")).unwrap();
    let broken: Vec<&str> = lines
        .iter()
        .enumerate()
        .map(|(i, l)| if i == at { &l[..l.len() / 2] } else { l })
        .collect();
    fs::write(&path, broken.join("\n") + "\n").unwrap();
    let line = format!("line {} is broken and left out", at + 1);
    let shown = pathline(dir.path(), &["report", "d", "-o", "t.csv"]);
    ends(&shown, 3, &[&line, "run.jsonl"]);
    let summary = String::from_utf8_lossy(&shown.stdout).into_owned();
    let headline =
        format!("UNDECIDED: 1 line of the journal cannot be read, the first is line {}", at + 1);
    let flat = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&headline), "{summary}");
    assert!(fs::read_to_string(dir.path().join("d/report.html")).unwrap().contains("broken-line"));
    let rows = fs::read_to_string(dir.path().join("t.csv")).unwrap().lines().count();
    assert!(rows > 20, "{rows} rows of the other cases");
    ends(&pathline(dir.path(), &["diff", "d", "--", "d", "d"]), 0, &[&line]);
    // The record that is missing may be one of a fault.
    let args = ["model", "predict", "-m", "mi250x", "--against", "d"];
    ends(&pathline(dir.path(), &args), 3, &[&line]);
    // It cannot be resumed until the shown command has removed the line.
    let refused = pathline(dir.path(), &["run", "--resume", "d"]);
    ends(&refused, 2, &[&line]);
    let err = err(&refused);
    let sed = err.split('`').find(|part| part.starts_with("sed ")).unwrap();
    let status = Command::new("sh").args(["-c", sed]).current_dir(dir.path()).status().unwrap();
    assert!(status.success(), "{sed}");
    ends(&pathline(dir.path(), &["run", "-q", "--resume", "d"]), 0, &[]);
    let again = journal(&dir.path().join("d"));
    assert!(again.broken.is_empty() && again.end.unwrap().complete);
    assert_eq!(again.outcomes.len(), lines.iter().filter(|l| l.contains("\"measured\"")).count());
}

#[test]
fn files_of_users_stay_as_they_are() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, what) in [("machine.toml", "machine.toml"), ("report.html", "no page of pathline")] {
        fs::create_dir_all(at("d")).unwrap();
        fs::write(at("d").join(name), "mine").unwrap();
        ends(&model(dir.path(), "d", &[]), 2, &[what, "--out"]);
        assert_eq!(fs::read_to_string(at("d").join(name)).unwrap(), "mine");
        assert_eq!(fs::read_dir(at("d")).unwrap().count(), 1, "nothing was begun");
        fs::remove_dir_all(at("d")).unwrap();
    }
    // Other files do no harm, even where this machine's description would go.
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/slurm.log"), "mine").unwrap();
    let text = pathline(dir.path(), &["model", "show", "mi250x"]).stdout;
    fs::write(at("d/machine.toml"), text).unwrap();
    ends(&model(dir.path(), "d", &[]), 0, &[]);
    ends(&model(dir.path(), "d", &[]), 2, &["holds a run already", "--resume d"]);
}

#[test]
fn links_are_not_followed() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["run.jsonl", "machine.toml", "report.html"] {
        fs::create_dir(at("d")).unwrap();
        symlink(at("elsewhere"), at("d").join(name)).unwrap();
        ends(&model(dir.path(), "d", &[]), 2, &["--out"]);
        assert!(!at("elsewhere").exists(), "{name}");
        fs::remove_dir_all(at("d")).unwrap();
    }
    ends(&model(dir.path(), "d", &[]), 0, &[]);
    // A journal is gone on with where it lies.
    fs::create_dir(at("e")).unwrap();
    symlink(at("d/run.jsonl"), at("e/run.jsonl")).unwrap();
    fs::copy(at("d/machine.toml"), at("e/machine.toml")).unwrap();
    ends(&pathline(dir.path(), &["run", "--resume", "e"]), 2, &["a symbolic link"]);
    // A page that became a link is not written through.
    fs::remove_file(at("d/report.html")).unwrap();
    symlink(at("elsewhere"), at("d/report.html")).unwrap();
    ends(&pathline(dir.path(), &["report", "d"]), 2, &["a symbolic link", "-o"]);
    assert!(!at("elsewhere").exists());
}

#[test]
fn journals_of_a_users_folder_have_the_page_that_is_asked_for() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, case) in [("a", "gpu0.* > gpu1.* by dma"), ("b", "gpu2.* > gpu3.* by dma")] {
        ends(&model(dir.path(), name, &["--case", case]), 0, &[]);
        fs::copy(at(name).join("run.jsonl"), at(&format!("{name}.jsonl"))).unwrap();
        let packed =
            Command::new("gzip").arg(format!("{name}.jsonl")).current_dir(dir.path()).status();
        assert!(packed.unwrap().success());
    }
    fs::write(at("report.html"), "mine").unwrap();
    for name in ["a", "b", "a"] {
        let output = pathline(dir.path(), &["report", &format!("{name}.jsonl.gz")]);
        // One path has no peer.
        ends(&output, 0, &[]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("no page was written"));
        assert!(!at(&format!("{name}.html")).exists());
    }
    assert_eq!(fs::read_to_string(at("report.html")).unwrap(), "mine");
    for name in ["a", "b"] {
        let page = format!("{name}.html");
        let args = ["report", &format!("{name}.jsonl.gz"), "-o", &page];
        let output = pathline(dir.path(), &args);
        ends(&output, 0, &[]);
        assert!(String::from_utf8_lossy(&output.stdout).ends_with(&format!("\n{page}\n")));
    }
    let [a, b] = ["a.html", "b.html"].map(|name| fs::read_to_string(at(name)).unwrap());
    assert_ne!(a, b);
}

#[test]
fn a_twin_is_replaced_on_demand_only() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    ends(
        &model(dir.path(), "d", &["--suite", "contention", "--case", "gpu0.* > gpu*.* by dma"]),
        0,
        &[],
    );
    let calibrate =
        |more: &[&str]| pathline(dir.path(), &[&["model", "fit", "-q", "d"], more].concat());
    fs::write(at("machine.toml"), "mine").unwrap();
    ends(&calibrate(&[]), 2, &["there is one already", "`-o machine.toml` replaces it"]);
    assert_eq!(fs::read_to_string(at("machine.toml")).unwrap(), "mine");
    let code = |output: Output| {
        assert!([0, 3].contains(&output.status.code().unwrap()), "{}", err(&output));
    };
    code(calibrate(&["-o", "other.toml"]));
    code(calibrate(&["-o", "machine.toml"]));
    let [forced, other] =
        ["machine.toml", "other.toml"].map(|f| fs::read_to_string(at(f)).unwrap());
    assert!(forced.contains("name = ") && forced == other);
    fs::remove_file(at("machine.toml")).unwrap();
    symlink(at("elsewhere"), at("machine.toml")).unwrap();
    ends(&calibrate(&[]), 2, &["-o machine.toml"]);
    assert!(!at("elsewhere").exists());
}

#[test]
fn a_model_is_resumed_on_the_machine_that_it_was_begun_on() {
    let dir = TempDir::new().unwrap();
    let toml = dir.path().join("d/machine.toml");
    ends(&model(dir.path(), "d", &[]), 0, &[]);
    let resume = || pathline(dir.path(), &["run", "-q", "--resume", "d"]);
    let text = fs::read_to_string(&toml).unwrap();
    let sum = Command::new("sha256sum").arg(&toml).output().unwrap();
    let hash = String::from_utf8_lossy(&sum.stdout).split_whitespace().next().unwrap().to_owned();
    assert_eq!(journal(&dir.path().join("d")).begin.machine_sha256.as_deref(), Some(hash.as_str()));
    let before = fs::read(dir.path().join("d/run.jsonl")).unwrap();
    // One constant is another.
    let changed = text.replacen("each_gbs = 36", "each_gbs = 37", 1);
    assert_ne!(changed, text);
    fs::write(&toml, changed).unwrap();
    ends(&resume(), 2, &["machine.toml was changed since", &hash, "begin a new run"]);
    ends(&pathline(dir.path(), &["report", "d"]), 0, &["machine.toml is not what this run"]);
    fs::remove_file(&toml).unwrap();
    ends(&resume(), 2, &["there is no such file", "pathline model show mi250x > d/machine.toml"]);
    fs::create_dir(&toml).unwrap();
    ends(&resume(), 2, &["machine.toml is no plain file"]);
    fs::remove_dir(&toml).unwrap();
    let elsewhere = dir.path().join("elsewhere.toml");
    fs::write(&elsewhere, &text).unwrap();
    symlink(&elsewhere, &toml).unwrap();
    ends(&resume(), 2, &["machine.toml is no plain file"]);
    assert_eq!(fs::read(dir.path().join("d/run.jsonl")).unwrap(), before, "nothing was written");
    fs::remove_file(&toml).unwrap();
    fs::write(&toml, &text).unwrap();
    ends(&resume(), 0, &[]);
}

/// The commands of a page say everything that its figures depend on, and a shell takes them as they are.
#[test]
fn the_command_on_a_page_repeats_a_figure() {
    let dir = TempDir::new().unwrap();
    let text = pathline(dir.path(), &["model", "show", "mi250x"]).stdout;
    fs::write(dir.path().join("it's mine.toml"), text).unwrap();
    let args =
        ["run", "-qo", "d", "-m", "it's mine.toml", "--noise=3", "--seed", "7", "--ranks", "2"];
    let output =
        pathline(dir.path(), &[&args[..], &["--suite", "local", "--precision", "2"]].concat());
    ends(&output, 0, &[]);
    let page = fs::read_to_string(dir.path().join("d/report.html")).unwrap();
    let code = page.split("<code>").skip(1).map(|part| part.split("</code>").next().unwrap());
    let unescaped =
        |text: &str| text.replace("&#39;", "'").replace("&gt;", ">").replace("&amp;", "&");
    let commands: Vec<String> =
        code.map(unescaped).filter(|text| text.starts_with("pathline run ")).collect();
    let command = commands.iter().find(|c| c.contains(" > ")).expect("one of a pattern");
    let line = format!("pathline() {{ \"$PATHLINE\" \"$@\"; }}; {command} --quiet --out again");
    let program = assert_cmd::cargo::cargo_bin!("pathline");
    let mut shell = Command::new("sh");
    let output =
        shell.args(["-c", &line]).env("PATHLINE", program).current_dir(dir.path()).output();
    ends(&output.unwrap(), 0, &[]);
    let (first, again) = (journal(&dir.path().join("d")), journal(&dir.path().join("again")));
    let of = |journal: &pathline_schema::Journal| {
        let begin = &journal.begin;
        let pages = (begin.machine_sha256.clone(), begin.ranks.len(), begin.world.clone());
        (pages, begin.settings.noise, begin.settings.seed, begin.settings.precision)
    };
    assert_eq!(of(&again), of(&first), "{command}");
    assert_eq!((first.begin.settings.noise, first.begin.ranks.len()), (Some(0.03), 2));
    assert!(!again.outcomes.is_empty() && again.outcomes.len() < first.outcomes.len());
}

#[test]
fn the_limit_of_file_sizes_is_an_error_of_a_write() {
    let dir = TempDir::new().unwrap();
    ends(&model(dir.path(), "d", &["--suite", "pairs", "--case", "* > * by dma"]), 0, &[]);
    let program = assert_cmd::cargo::cargo_bin!("pathline");
    // Blocks of 512 or 1024 bytes, by shell: each of these writes more than 4 KiB.
    for line in
        ["run --dry-run --machine mi250x", "topo --machine mi250x --json", "model show mi250x"]
    {
        let line = format!("ulimit -f 4; \"$PATHLINE\" {line} > out.txt");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &line]).env("PATHLINE", program).current_dir(dir.path());
        ends(&output.output().unwrap(), 2, &["File too large"]);
    }
    for line in ["report d", "run -q --machine mi250x --suite latency --out e"] {
        let line = format!("ulimit -f 16; \"$PATHLINE\" {line}");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &line]).env("PATHLINE", program).current_dir(dir.path());
        ends(&output.output().unwrap(), 2, &["File too large"]);
    }
    // The page that was there is as whole as before.
    assert!(
        fs::read_to_string(dir.path().join("d/report.html"))
            .unwrap()
            .trim_end()
            .ends_with("</html>")
    );
    assert_eq!(fs::read_dir(dir.path().join("d")).unwrap().count(), 3, "no half of a page is left");
}

#[test]
fn a_report_has_the_code_of_its_verdict() {
    let dir = TempDir::new().unwrap();
    ends(&model(dir.path(), "d", &[]), 0, &[]);
    let text = fs::read_to_string(dir.path().join("d/run.jsonl")).unwrap();
    let kind = |wanted: &str| -> Vec<&str> {
        let start = format!("{{\"type\":\"{wanted}\"");
        text.lines().filter(|l| l.starts_with(&start)).collect()
    };
    let (begin, topology, end) = (kind("begin")[0], kind("topology")[0], kind("end")[0]);
    let case = format!("r0.{}", CASE.replace("> ", "> r0."));
    let failed = format!(
        "{{\"type\":\"faulted\",\"data\":{{\"case\":\"{case}\",\"suites\":[],\"error\":\"no\",\"severity\":\"transient\"}}}}"
    );
    let skipped = format!(
        "{{\"type\":\"skipped\",\"data\":{{\"case\":\"{case}\",\"suites\":[],\"why\":\"no\"}}}}"
    );
    // Paths of the whole node have peers.
    let args = ["run", "-q", "--quick", "--machine", "mi250x", "--out", "p"];
    ends(&pathline(dir.path(), &args), 0, &[]);
    let pairs = fs::read_to_string(dir.path().join("p/run.jsonl")).unwrap();
    let unread = pairs.replace("\"verdict\":\"verified\"", "\"verdict\":{\"unverified\":\"no\"}");
    let cut = pairs.lines().count() - 1;
    for (name, lines, code) in [
        ("failed", vec![begin, topology, &failed, end], 1),
        ("skipped", vec![begin, topology, &skipped, end], 3),
        ("begun", vec![begin], 3),
        // One path has no peer.
        ("measured", text.lines().collect(), 0),
        ("sound", pairs.lines().collect(), 0),
        ("cut", pairs.lines().take(cut).collect(), 3),
        ("unread", unread.lines().collect(), 3),
    ] {
        let file = format!("{name}.jsonl");
        fs::write(dir.path().join(&file), lines.join("\n") + "\n").unwrap();
        ends(&pathline(dir.path(), &["report", &file]), code, &[]);
    }
    // What failed outweighs what could not be judged, in any order.
    for runs in [["cut.jsonl", "failed.jsonl"], ["failed.jsonl", "cut.jsonl"]] {
        let args = ["report", runs[0], runs[1], "-o", "both.html"];
        ends(&pathline(dir.path(), &args), 1, &[]);
    }
}
