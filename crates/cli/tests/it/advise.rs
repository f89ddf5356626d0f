//! `pathline advise`: on models, on commands, from files of earlier answers.

use std::fs;
use std::process::{Command, Output};

use pathline_flow::MachineDesc;
use pathline_place::{PlaceRequest, RankPlace, place_ranks};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

fn advise(args: &[&str], env: &[(&str, &str)]) -> Output {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    let mut command = Command::new(binary);
    command.arg("advise").args(args).envs(env.iter().copied()).env("COLUMNS", "80");
    command.output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// Gain in percent and verdict of each question of a session with `--json`.
fn answers(args: &[&str]) -> Vec<(String, String, Option<f64>)> {
    let output = advise(&[args, &["--json"]].concat(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let file: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answer = |answer: &Value| {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        (text("subject"), text("verdict"), answer["gain"]["gain"].as_f64().map(|gain| gain * 100.0))
    };
    file["answers"].as_array().expect("a list").iter().map(answer).collect()
}

/// osu_bw of 16 MiB on LUMI: 142 GB/s by blit and 49 by SDMA to GCD 1, 38 and 36 to GCD 2 (source 004).
#[test]
fn a_model_advises_blit_for_large_messages_and_sdma_next_to_compute() {
    let large = answers(&[
        "--machine",
        "mi250x",
        "--ranks",
        "8",
        "--for",
        "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 16MiB",
        "--for",
        "r0.gpu0.vram > r2.gpu2.vram by mpi@gpu0[send-w64] x 16MiB",
    ]);
    let gains: Vec<f64> = large.iter().filter_map(|(_, _, gain)| *gain).collect();
    // A model proves nothing, and over one link it does not tell the two apart.
    let verdicts: Vec<&str> = large.iter().map(|(_, verdict, _)| verdict.as_str()).collect();
    assert_eq!(verdicts, ["predicted", "undecided"], "{large:?}");
    // 142 / 49 - 1 = 190 %; 38 / 36 - 1 = 5.6 %.
    assert!((gains[0] - 190.0).abs() < 10.0 && (gains[1] - 5.0).abs() < 3.0, "{gains:?}");
    let usual = answers(&["--machine", "mi250x"]);
    let overlap = usual.iter().find(|(subject, ..)| subject.starts_with("a triad kernel"));
    assert_eq!(overlap.map(|(_, verdict, _)| verdict.as_str()), Some("predicted"));
    // A variable changes all sizes: what gains from 1 MiB on slows 64 KiB, so it is for jobs that move so much.
    let setting = usual.iter().find(|(s, ..)| s == "copies from gpu0 to gpu1 by a setting, 64MiB");
    assert_eq!(setting.map(|(_, verdict, _)| verdict.as_str()), Some("predicted"));
    assert!(usual.iter().all(|(_, verdict, _)| verdict != "do"), "{usual:?}");
    // Constants of its stores are assumed, so no gain of files is advice.
    let files = usual.iter().filter(|(subject, ..)| subject.contains(" of files, "));
    assert!(
        files.clone().count() > 0 && files.clone().all(|(_, verdict, _)| verdict == "undecided")
    );
    // Of 64 MiB into the GPU, to pin is 7.8x, and a second path 1.5x more: 11.7x in all.
    let gain = |of: &str| {
        let found = usual.iter().find(|(subject, ..)| subject == of).expect("a question");
        1.0 + found.2.expect("a gain") / 100.0
    };
    let pinned = gain("copies from numa3 to gpu0 (H2D), 64MiB");
    let more = gain("copies from numa3 to gpu0 (H2D) over more paths, 64MiB");
    assert!((pinned - 7.8).abs() < 0.3 && (more - 1.5).abs() < 0.1, "{pinned} {more}");
}

/// 4 KiB is best pageable and 100 MiB pinned, whichever kind is asked about: 0.67 to 0.30 GB/s, and 28.2 to 3.61.
#[test]
fn kinds_of_host_memory_are_a_table_by_size() {
    let table = |kind: &str| {
        let case = |size: &str| format!("numa3.{kind} > gpu0 x {size}");
        let args = ["--machine", "mi250x", "--for", &case("4KiB"), "--for", &case("100MiB")];
        let text = out(&advise(&args, &[]));
        let at = text.find("GB/s by the model").unwrap_or_else(|| panic!("{text}"));
        let rows = text[at..]
            .lines()
            .skip(2)
            .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.collect::<Vec<_>>()
    };
    let pinned = table("pinned");
    assert_eq!(pinned[0], "pageable, staged copy *0.67 3.61");
    assert!(pinned.contains(&"pinned, SDMA copy 0.30 *28.2".to_owned()), "{pinned:?}");
    let paged = table("paged");
    let time = |table: &[String]| table.last().cloned().unwrap_or_default();
    assert_eq!(paged[..paged.len() - 1], pinned[..pinned.len() - 1]);
    assert_eq!(time(&pinned[..pinned.len() - 1]), "time of the best 6.10 us 3.72 ms");
    // 4 KiB at 0.67 and 0.30 GB/s, 100 MiB at 3.61 and 28.2.
    assert_eq!(time(&paged), "time of the default 6.10 us 29.1 ms");
    assert_eq!(time(&pinned), "time of the default 13.5 us 3.72 ms");
}

/// On the model of an NVSwitch node all_reduce of 32 MiB is NVLS, which the switches make faster; of 64 KiB it is LL
/// with and without it. Other settings have no model.
#[test]
fn a_model_keeps_the_defaults_of_nccl() {
    let sum = |size: &str| format!("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x {size}");
    let (large, small) = (sum("32MiB"), sum("64KiB"));
    let on = ["--machine", "hgx-h200", "--ranks", "8", "--for", &large, "--for", &small];
    let found: Vec<String> = answers(&on).into_iter().map(|(_, verdict, _)| verdict).collect();
    assert_eq!(found, ["keep", "drop"]);
    let output = advise(&on, &[]);
    assert!(
        out(&output).contains("NCCL_NVLS_ENABLE=0 does not act: the library"),
        "{}",
        out(&output)
    );
    let set = advise(&on, &[("NCCL_NVLS_ENABLE", "0")]);
    assert!(out(&set).contains("NCCL_NVLS_ENABLE=0 is set already"), "{}", out(&set));
}

#[test]
fn the_answer_fits_eighty_columns() {
    let output = advise(&["--machine", "mi250x"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // Identity, then the answer: how many changes there are, and how sure they are.
    assert!(text.starts_with("mi250x (simulated"), "{text}");
    let answer: Vec<&str> = text.lines().skip_while(|line| !line.is_empty()).skip(1).collect();
    assert!(answer[0].contains(" questions: ") && answer[0].contains(" predicted"), "{text}");
    assert!(answer[1].starts_with("PREDICTED: gains of the model, not measured."), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("DO")), "{text}");
}

#[test]
fn settings_are_proven_on_a_command_and_proven_again() {
    let dir = TempDir::new().expect("a folder");
    let emitted = dir.path().join("advice");
    let folder = emitted.to_str().expect("a path");
    // The command reports a rate that a setting doubles, and depends on no clock.
    let command = "echo rate ${FAST:-1}.5 GB/s";
    let metric = "rate ([0-9.]+) GB/s";
    let words = [
        "--command",
        command,
        "--metric",
        metric,
        "--higher",
        "--set",
        "FAST=4 X='",
        "--emit",
        folder,
    ];
    let output = advise(&words, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    // 4.5 / 1.5 - 1.
    assert!(out(&output).contains("DO         Set FAST=4 X='.") && out(&output).contains("3.0x"));
    let script = fs::read_to_string(emitted.join("advice.env")).expect("a file");
    assert!(
        script.contains("\nexport FAST=4\n") && script.contains("\nexport X=''\\'''\n"),
        "{script}"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", ". \"$0\"; printf %s \"$FAST$X\""]).arg(emitted.join("advice.env"));
    let sourced = shell.output().expect("a shell");
    assert_eq!(out(&sourced), "4'");

    let again = advise(&["--check", folder], &[]);
    assert_eq!(again.status.code(), Some(0), "{}{}", out(&again), err(&again));
    // The same setting gains nothing any more.
    let file = emitted.join("advice.json");
    let text = fs::read_to_string(&file).expect("a file").replace("${FAST:-1}", "1");
    fs::write(&file, text).expect("a file");
    let lost = advise(&["--check", folder], &[]);
    assert_eq!(lost.status.code(), Some(1), "{}", out(&lost));
    assert!(out(&lost).contains("DROP       FAST=4 X=' was proven on "), "{}", out(&lost));
    let there = advise(&words, &[]);
    assert_eq!(there.status.code(), Some(2));
    assert!(err(&there).contains("it is there already"), "{}", err(&there));
}

/// The command prints 1 under the wrapper and 2 without it; the wrapper itself runs in each trial.
#[test]
fn a_placement_is_proven_and_emitted_for_launchers() {
    let dir = TempDir::new().expect("a folder");
    let emitted = dir.path().join("placed");
    let folder = emitted.to_str().expect("a path");
    let command = "SLURM_LOCALID=0 $PATHLINE_PLACE true && \
                   if [ -n \"$PATHLINE_PLACE\" ]; then echo cost 1; else echo cost 2; fi";
    let place = ["--place", "1", "--metric", "cost ([0-9])", "--emit", folder];
    let output = advise(&[&["--command", command][..], &place[..]].concat(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    // 2 / 1 - 1.
    let text = out(&output);
    assert!(
        text.contains("DO         Start each rank by the wrapper of") && text.contains("+100 %")
    );
    let files = "advice.json, advice.env, place.sh, place-slurm.sh, rankfile";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(files), "{text}");
    let read = |name: &str| fs::read_to_string(emitted.join(name)).expect("a file");
    assert!(read("place-slurm.sh").contains("srun --ntasks-per-node=1 --cpu-bind=mask_cpu:"));
    assert!(read("rankfile").contains("\nrank 0="), "{}", read("rankfile"));
    let wrapper =
        format!("/bin/sh {}", emitted.canonicalize().expect("a path").join("place.sh").display());
    assert!(read("advice.env").contains(&wrapper), "{}", read("advice.env"));
    // The script is a file now, and holds again.
    let again = advise(&["--check", folder], &[]);
    assert_eq!(again.status.code(), Some(0), "{}{}", out(&again), err(&again));
    let without = advise(&["--command", "true", "--place", "1"], &[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(err(&without).contains("put $PATHLINE_PLACE before the program"), "{}", err(&without));
}

#[test]
fn what_is_set_is_reviewed() {
    let command = "echo ${NCCL_BAD:+2}${NCCL_BAD:-1} s";
    let words = ["--command", command, "--metric", "([0-9]+) s", "--review"];
    // Printed is 1 without the variable, and 23 with it; NCCL_VOID does nothing.
    let set = [("NCCL_BAD", "3"), ("NCCL_VOID", "1")];
    let output = advise(&words, &set);
    let text = out(&output);
    assert!(
        text.contains("DROP       Unset NCCL_BAD.") && text.contains("makes things slower"),
        "{text}"
    );
    assert!(
        text.contains("DROP       Unset NCCL_VOID.") && text.contains("It does nothing"),
        "{text}"
    );
    let needed = advise(
        &["--command", "echo ${NCCL_GOOD:-9}", "--metric", "[0-9]+", "--review"],
        &[("NCCL_GOOD", "3")],
    );
    assert!(out(&needed).contains("KEEP       Without it"), "{}", out(&needed));
    let none = advise(&[&words[..], &["NCCL_ABSENT"]].concat(), &set);
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains("NCCL_ABSENT: it is not set, and no library"), "{}", err(&none));
}

/// A file with the names of variables behind what a linker reads of it.
#[test]
fn a_variable_that_the_library_does_not_hold_is_ignored() {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("libnccl.so.2");
    let mut bytes = fs::read(pathline_dylib::resolve("libm.so.6").expect("libm")).expect("a file");
    for name in [
        "ALGO",
        "PROTO",
        "P2P_DISABLE",
        "P2P_LEVEL",
        "IB_DISABLE",
        "IB_HCA",
        "NTHREADS",
        "BUFFSIZE",
    ] {
        bytes.extend(format!("\0NCCL_{name}\0").into_bytes());
    }
    fs::write(&file, bytes).expect("a file");
    let words = ["--command", "echo 1 s", "--metric", "([0-9]+) s", "--review"];
    let library = ("PATHLINE_NCCL", file.to_str().expect("a path"));
    let set =
        [library, ("NCCL_P2P_DISABEL", "1"), ("NCCL_ALGO", "Ring"), ("NCCL_IBEXT_DISABLE", "1")];
    let text = out(&advise(&words, &set));
    assert!(text.contains("3 settings: 3 drop."), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "DROP The library has no variable of this name; did you mean NCCL_P2P_DISABLE?";
    assert!(flat.contains(said), "{text}");
}

#[test]
fn questions_without_an_answer_say_why() {
    let failing = advise(&["--command", "echo no; exit 7", "--set", "A=1"], &[]);
    assert_eq!(failing.status.code(), Some(3), "{}", out(&failing));
    assert!(out(&failing).contains("exit code 7: no"), "{}", out(&failing));
    let unmatched = advise(&["--command", "true", "--metric", "x", "--set", "A=1"], &[]);
    assert!(out(&unmatched).contains("--metric matches nothing"), "{}", out(&unmatched));
    for (words, why) in [
        (&["--command", "true"][..], "nothing to try"),
        (&["--command", "true", "--metric", "(", "--set", "A=1"], "no regular expression"),
        (&["--command", "true", "--metric", "busbw (.*)", "--set", "A=1"], "add --higher"),
        (&["--command", "true", "--set", "A"], "expected NAME=VALUE"),
        (&["--check", "/nonexistent"], "/nonexistent"),
        (&["--machine", "mi250x", "--for", "numa0.paged > gpu0.vram by uring x 1MiB"], "--for"),
    ] {
        let output = advise(words, &[]);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(err(&output).contains(why), "{}", err(&output));
    }
}

/// ROCm/rocm-systems#11253: RCCL's guide asks for 112 channels on 4 GPUs, which RCCL refuses.
#[test]
fn a_script_is_reviewed_for_another_node() {
    let dir = TempDir::new().expect("a folder");
    let script = dir.path().join("job.sh");
    let text = "export NCCL_MIN_NCHANNELS=112\nexport NCCL_PROTO=LL,LL128,Simple\n\
                mpirun --mca pml ^ucx -x NCCL_IB_HCA=mlx5_0 ./app\n";
    let path = script.to_str().expect("a path");
    let review = |nodes: &str, more: &[&str]| {
        fs::write(&script, format!("#!/bin/sh\n{nodes}\n{text}")).expect("a file");
        let words = ["--review", "--script", path, "--machine", "mi300x:0-3"];
        advise(&[&words[..], more].concat(), &[])
    };
    let output = review("#SBATCH --nodes=1", &[]);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "a setting should go: {text}");
    assert!(text.contains("DROP       RCCL refuses more than 64 channels"), "{text}");
    assert!(text.contains("DROP       Unset NCCL_PROTO."), "{text}");
    // What nothing is known of needs trials, which a model cannot give.
    assert!(
        text.contains("UNDECIDED  No trial can decide here") && text.contains("OMPI_MCA_pml=^ucx")
    );
    assert!(text.contains("DROP       It acts on the network"), "{text}");
    for (script, more) in [("#SBATCH --nodes=4", &[][..]), ("", &["--nodes", "2"])] {
        let text = out(&review(script, more));
        assert!(!text.contains("It acts on the network"), "{script} {more:?}: {text}");
    }
    let text = out(&review("", &[]));
    assert!(text.contains("UNDECIDED  It acts on the network"), "{text}");
}

/// A command that logs as NCCL does: it reads NCCL_ALGO, which changes its choice and doubles its rate, and reads
/// neither NCCL_VOID nor, without a network, NCCL_IB_TC; each of them is as fast as NCCL_ALGO by chance.
#[test]
fn settings_that_a_command_does_not_read_are_ignored() {
    let dir = TempDir::new().expect("a folder");
    let log = dir.path().join("nccl.log");
    let script = dir.path().join("job.sh");
    let text = r#"info() { [ "$NCCL_DEBUG" = INFO ] && echo "n:1:2 [0] NCCL INFO $*" >> "${NCCL_DEBUG_FILE:-/dev/stdout}"; }
info NCCL_IGNORE_CPU_AFFINITY set by environment to $NCCL_IGNORE_CPU_AFFINITY.
[ -n "$NCCL_ALGO" ] && info NCCL_ALGO set by environment to $NCCL_ALGO
info "AllReduce: 1048576 Bytes -> Algo ${NCCL_ALGO:-TREE} proto LL channel{Lo..Hi}={0..3}"
if [ -n "$NCCL_ALGO$NCCL_VOID$NCCL_IB_TC" ]; then echo busbw 20; else echo busbw 10; fi
"#;
    fs::write(&script, text).expect("a file");
    let command = format!("sh {}", script.display());
    let answer = |set: &str| {
        let metric = ["--metric", "busbw ([0-9]+)", "--higher", "--set", set];
        let args = [&["--command", &command][..], &metric].concat();
        // The file that the user has named for logs stays as it is.
        let file = log.to_str().expect("a path");
        let output = advise(&args, &[("NCCL_DEBUG_FILE", file)]);
        out(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let ring = answer("NCCL_ALGO=RING");
    assert!(ring.contains("DO Set NCCL_ALGO=RING.") && ring.contains("+100 %"), "{ring}");
    let tree = answer("NCCL_ALGO=TREE");
    let same = "NCCL_ALGO=TREE does not act: the library chooses tree ll on 4 channels with and";
    assert!(tree.contains("DROP") && tree.contains(same), "{tree}");
    for set in ["NCCL_VOID=1", "NCCL_IB_TC=106"] {
        let void = answer(set);
        let name = set.split('=').next().unwrap_or_default();
        let why = format!("DROP {set} does not act: the library does not read {name}");
        assert!(void.contains(&why), "{void}");
    }
    assert!(!log.exists());
}

/// A program of 40 ms that counts its runs in a file.
const COUNTED: &str = "echo run >> runs; sleep 0.04; echo rate ${FAST:-1}.5";

struct KeptSession {
    dir: TempDir,
    args: Vec<String>,
}

impl KeptSession {
    fn new(more: &[&str]) -> Self {
        let args = ["--command", COUNTED, "--metric", "rate ([0-9.]+)", "--higher"];
        let all = args.iter().chain(&["--trials", "trials.jsonl"]).chain(more);
        let args = all.map(|word| (*word).to_owned()).collect();
        Self { dir: TempDir::new().expect("a folder"), args }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
        command.arg("advise").args(&self.args).current_dir(self.dir.path()).env("COLUMNS", "80");
        command
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts a session and ends it by this signal once this many runs are kept.
    fn end_after(&self, runs: usize, signal: &str) -> Output {
        let mut command = self.command();
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().expect("the binary runs");
        let begun = std::time::Instant::now();
        // The first line names the session.
        while self.lines("trials.jsonl").len() < runs + 1 {
            assert!(begun.elapsed().as_secs() < 60, "{:?}", self.lines("trials.jsonl"));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
        child.wait_with_output().expect("it ends")
    }
}

/// Of each run that ended before a kill nothing is lost and nothing is measured twice, but the run in flight.
#[test]
fn a_killed_session_on_a_command_goes_on() {
    let session = KeptSession::new(&["--set", "FAST=4"]);
    session.end_after(5, "-KILL");
    let kept = session.lines("trials.jsonl");
    assert!(kept.len() >= 6, "{kept:?}");
    // What the killed session started runs to its end; until then the next one is refused.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let interrupted = session.end_after(kept.len() + 3, "-INT");
    let text = out(&interrupted);
    assert!(text.contains("UNDECIDED"), "{text}");
    let said = err(&interrupted);
    assert!(
        said.contains("going on after them") && said.contains("the same call goes on"),
        "{said}"
    );
    let output = session.command().output().expect("the binary runs");
    let text = out(&output);
    assert!(text.contains("DO         Set FAST=4.") && text.contains("3.0x"), "{text}");
    let all = session.lines("trials.jsonl");
    assert_eq!(all[..kept.len()], kept, "what was kept stays");
    // 4.5 / 1.5 = 3 in 6 blocks of 3 runs, a line that names the session, and one that nothing shows whether the
    // command reads FAST.
    assert_eq!(all.len(), 6 * 3 + 2);
    // Two runs were in flight when their sessions ended.
    let runs = session.lines("runs").len();
    assert!((18..=20).contains(&runs), "{runs}");
    // Finished: the answer again, without a run.
    let again = session.command().output().expect("the binary runs");
    assert_eq!((out(&again), session.lines("runs").len()), (text, runs));
}

#[test]
fn trials_of_another_session_are_refused() {
    let session = KeptSession::new(&["--set", "FAST=4"]);
    assert_eq!(session.command().output().expect("it runs").status.code(), Some(0));
    let kept = session.lines("trials.jsonl");
    for (words, env, why) in [
        (&["--set", "FAST=5"][..], "", "what is tried was"),
        (&["--seed", "2"], "", "--seed was 1 and is 2"),
        (&["--min-gain", "2%"], "", "--min-gain was 0.01 and is 0.02"),
        (&[], "NCCL_ALGO", "what is set in the environment was nothing and is NCCL_ALGO=1"),
    ] {
        let mut command = session.command();
        command.args(words);
        if !env.is_empty() {
            command.env(env, "1");
        }
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let text = err(&output);
        assert!(text.contains(why) && text.contains("name another file after --trials"), "{text}");
    }
    // More time may be given.
    let more = session.command().args(["--budget", "300s"]).output().expect("it runs");
    assert!(out(&more).contains("DO"), "{}", out(&more));
    assert_eq!(session.lines("trials.jsonl"), kept);
}

/// A process that outlives the session that was killed would disturb the next.
#[test]
fn a_trial_that_outlives_its_session_is_named() {
    let mut session = KeptSession::new(&["--set", "FAST=4"]);
    session.args[1] = "echo rate 1; sleep 3".to_owned();
    let mut child = session.command().spawn().expect("it runs");
    std::thread::sleep(std::time::Duration::from_millis(800));
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let output = session.command().output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", out(&output));
    assert!(err(&output).contains("is left of a trial"), "{}", err(&output));
}

/// A setting doubles the rate, and takes memory, time or the exit status for it.
#[test]
fn a_gain_that_harms_another_figure_is_withdrawn() {
    let app = "echo rate ${FAST:-1} mem $((100 + ${MEM:-0})); sleep ${WAIT:-0}";
    let answer = |set: &str, guard: &[&str]| {
        let metric = ["--command", app, "--metric", "rate ([0-9]+)", "--higher", "--set", set];
        let output = advise(&[&metric[..], guard].concat(), &[]);
        out(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let guard = ["--guard", "mem ([0-9]+)"];
    let proven = answer("FAST=2", &guard);
    assert!(proven.contains("DO Set FAST=2.") && proven.contains("+100 %"), "{proven}");
    let shown = "Guarded: wall time loses less than 5 % or 0.1 s (seen ";
    assert!(
        proven.contains(shown)
            && proven.contains(
                "; 'mem ([0-9]+)' loses less than 1 % (seen 0.0 %); each run ended well."
            ),
        "{proven}"
    );
    let harmed = answer("FAST=2 MEM=25", &guard);
    // 100 / 125 - 1 = -20 %.
    assert!(
        harmed
            .contains("DROP FAST=2 MEM=25 makes 'mem ([0-9]+)' worse: -20 %, and 1 % may be lost"),
        "{harmed}"
    );
    // 125 MB are allowed if a user says so: 1 / 1.26 < 100 / 125.
    let allowed = answer("FAST=2 MEM=25", &["--guard", "mem ([0-9]+)", "--guard-margin", "26%"]);
    assert!(allowed.contains("DO Set FAST=2 MEM=25."), "{allowed}");
    // 0.3 s more of a program of a few ms.
    let slow = answer("FAST=2 WAIT=0.3", &[]);
    assert!(slow.contains("DROP FAST=2 WAIT=0.3 makes wall time worse: -"), "{slow}");
    let fails = answer("FAST=2 WAIT=x", &[]);
    assert!(fails.contains("DROP") && fails.contains("exit code 1"), "{fails}");
    let rate = advise(&["--command", app, "--guard", "busbw (.*)", "--set", "A=1"], &[]);
    assert!(err(&rate).contains("use --guard-rate"), "{}", err(&rate));
}

/// Names, values and defaults need no GPU; ranks get the CPUs that `place` gives them.
#[test]
fn a_script_is_judged_without_a_gpu() {
    let dir = TempDir::new().expect("a folder");
    let script = dir.path().join("job.sh");
    let path = script.to_str().expect("a path");
    let review = |text: &str, more: &[&str]| {
        fs::write(&script, text).expect("a file");
        let output = advise(&[&["--job", path], more].concat(), &[]);
        let text = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        (text, output.status.code())
    };
    let lines = "module load cray-mpich rocm/6.2\nexport NCCL_MIN_NCHANELS=8 NCCL_DEBUG=WARNING\n\
                 export OMPI_MCA_pml=ucx FI_CXI_RX_MATCH_MODE=hybrid\n";
    let (text, code) = review(lines, &[]);
    assert_eq!(code, Some(1), "{text}");
    for said in [
        "4 settings: 3 drop, 1 undecided.",
        "DROP No library reads NCCL_MIN_NCHANELS; did you mean NCCL_MIN_NCHANNELS.",
        "'WARNING' is none of its values: it takes VERSION, WARN, INFO, ABORT, TRACE",
        "DROP OMPI_MCA_pml is a variable of Open MPI, and the script uses Cray MPICH.",
        "FI_CXI_RX_MATCH_MODE=hybrid: where messages are matched; helps: hybrid or software",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let topology = MachineDesc::preset("mi250x").expect("a preset").topology();
    let request = PlaceRequest { ranks: 8, skip_first_core: true, hardware_threads: false };
    let plan = place_ranks(&topology, &request).expect("a plan");
    let first = |place: &RankPlace| place.cpus.as_slice()[0].to_string();
    let right: Vec<String> = plan.ranks.iter().map(first).collect();
    let map = |cpus: &str| {
        format!("export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun --cpu-bind=map_cpu:{cpus} ./a\n")
    };
    let (text, code) = review(&map("1,9,17,25,33,41,49,57"), &["--machine", "mi250x"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("map_cpu:{}.", right.join(","))), "{text}");
    let (text, code) = review(&map(&right.join(",")), &["--machine", "mi250x"]);
    assert!(code == Some(2) && !text.contains("SUSPECT"), "nothing to say: {text}");
}
