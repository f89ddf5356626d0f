//! `pathline advise --collectives`: a run of a simulated faulty node, judged by the sound model.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(args: &[&str]) -> Output {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    Command::new(binary).args(args).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Collectives of a simulated machine, with noise.
fn measure(machine: &str, out: &Path) {
    measure_with(machine, out, None);
}

/// The same with a setting, which the model does not have.
fn measure_with(machine: &str, out: &Path, setting: Option<(&str, &str)>) {
    let out = out.to_str().expect("a printable path");
    let cases = ["1MiB", "16MiB", "256MiB"]
        .map(|size| format!("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x {size}"));
    let mut args = vec!["run", "--quiet", "--machine", machine, "--ranks", "8", "--out", out];
    for case in &cases {
        args.extend(["--case", case]);
    }
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    let output = command.args(args).envs(setting).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
}

/// One run of each is one pair: two processes that differ say nothing of a setting.
#[test]
fn one_run_of_a_setting_decides_nothing() {
    let dir = TempDir::new().expect("a folder");
    let [plain, set] = ["plain", "set"].map(|name| dir.path().join(name));
    measure("mi250x", &plain);
    measure_with("mi250x", &set, Some(("NCCL_PROTO", "Simple")));
    let [plain, set] = [&plain, &set].map(|path| path.to_str().expect("a printable path"));
    let output =
        pathline(&["advise", "--collectives", "--machine", "mi250x", "--collectives", plain, set]);
    let found = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(found.contains("UNDECIDED all_reduce x 16MiB: NCCL_PROTO=Simple"), "{found}");
    assert!(found.contains("over 1 pair of runs; the order of runs was not drawn"), "{found}");
    assert!(!found.contains("KEEP"), "{found}");
}

/// Trials in blocks: NVLS is faster than rings on the sound node, and slower where its switches reach 0.2 of the
/// links. A setting that changes no choice of the library is not compared.
#[test]
fn trials_keep_a_good_default_and_change_a_bad_one() {
    let dir = TempDir::new().expect("a folder");
    let node = text(&pathline(&["model", "show", "hgx-h200"]));
    let slow = node.replace("link_share = 0.698", "link_share = 0.2");
    assert_ne!(node, slow);
    let file = dir.path().join("slow.toml");
    fs::write(&file, slow).expect("a machine");
    let audit = |machine: &str, folder: &str, budget: &str| {
        let folder = dir.path().join(folder);
        let folder = folder.to_str().expect("a printable path");
        let sizes = ["--bytes", "64MiB", "--measure", folder, "--budget", budget];
        let sets = ["--set", "NCCL_NVLS_ENABLE=0", "--set", "NCCL_PROTO=Simple"];
        let output = pathline(
            &[
                &["advise", "--collectives", "--machine", machine, "--op", "all_reduce"],
                &sizes[..],
                &sets[..],
            ]
            .concat(),
        );
        text(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let found = audit("hgx-h200", "good", "600s");
    assert!(found.contains("KEEP Keep the default;") && found.contains("(none gains "), "{found}");
    let machine = file.to_str().expect("a printable path");
    let found = audit(machine, "bad", "600s");
    // The word of a model.
    assert!(found.contains("PREDICTED Set NCCL_NVLS_ENABLE=0."), "{found}");
    let found = audit(machine, "short", "1ms");
    assert!(found.contains("UNDECIDED") && found.contains("of --budget are over"), "{found}");
}

/// ROCm/rocm-systems#7792: after an upgrade RCCL used 2 channels instead of 4, since a preset was lost.
#[test]
fn a4_half_the_channels_are_named() {
    let dir = TempDir::new().expect("a folder");
    let sound = text(&pathline(&["model", "show", "mi250x"]));
    assert!(sound.contains("max_channels = "), "{sound}");
    let faulty: String = sound
        .lines()
        .map(|line| if line.starts_with("max_channels = ") { "max_channels = 2" } else { line })
        .map(|line| format!("{line}\n"))
        .collect();
    let file = dir.path().join("faulty.toml");
    fs::write(&file, faulty).expect("a machine");
    let (good, bad) = (dir.path().join("good"), dir.path().join("bad"));
    measure("mi250x", &good);
    measure(file.to_str().expect("a printable path"), &bad);
    let audit = |run: &Path| {
        let run = run.to_str().expect("a printable path");
        pathline(&["advise", "--collectives", "--machine", "mi250x", "--collectives", run])
    };
    let output = audit(&bad);
    let found = text(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(found.contains("! all_reduce: half the channels"), "{found}");
    let action = "NCCL_MIN_NCHANNELS restores them if a preset was lost";
    assert!(found.split_whitespace().collect::<Vec<_>>().join(" ").contains(action), "{found}");
    let output = audit(&good);
    let found = text(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert!(found.contains("all_reduce: as modelled"), "{found}");
}

/// What failed, was asked for and is absent, or was cut off is named and not fine.
#[test]
fn collectives_without_a_time_are_named() {
    let dir = TempDir::new().expect("a folder");
    measure("mi250x", dir.path());
    let file = dir.path().join("run.jsonl");
    let path = file.to_str().expect("a printable path");
    let whole = fs::read_to_string(&file).expect("a journal");
    let audit = |journal: &str, more: &[&str]| {
        fs::write(&file, journal).expect("a file");
        let args =
            [&["advise", "--collectives", "--machine", "mi250x"], more, &["--collectives", path]]
                .concat();
        let output = pathline(&args);
        let found = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), found + &unwrapped(&output.stderr))
    };
    assert_eq!(audit(&whole, &[]).0, Some(0));
    let (code, found) = audit(&whole, &["--op", "all_reduce,broadcast"]);
    assert!(code == Some(3) && found.contains("broadcast: no run has it"), "{found}");
    let (cut, end) = whole.trim_end().rsplit_once('\n').expect("lines");
    let (code, found) = audit(&format!("{cut}\n"), &[]);
    assert!(code == Some(3) && found.contains("the run did not end"), "{found}");
    let case = "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 256MiB";
    for (severity, expected) in [("transient", 3), ("corrupt", 1)] {
        let fault = format!(
            "{{\"type\":\"faulted\",\"data\":{{\"case\":\"{case}\",\"suites\":[],\"error\":\"no\",\"severity\":\"{severity}\"}}}}"
        );
        let (code, found) = audit(&format!("{cut}\n{fault}\n{end}\n"), &[]);
        assert!(
            code == Some(expected) && found.contains("Not measured: all_reduce of 256MiB: no"),
            "{found}"
        );
    }
}

/// The machine of a preset with a line of its description changed.
fn edited(dir: &TempDir, preset: &str, edit: impl Fn(&str) -> String) -> String {
    let sound = text(&pathline(&["model", "show", preset]));
    let faulty = edit(&sound);
    assert_ne!(sound, faulty, "{preset}");
    let count = fs::read_dir(dir.path()).expect("a folder").count();
    let file = dir.path().join(format!("{preset}-{count}.toml"));
    fs::write(&file, faulty).expect("a machine");
    file.to_str().expect("a printable path").to_owned()
}

/// Half of the rings of each preset that has several, and NVLS that is gone, measured on the simulated node: all
/// operations that rings carry name it, of all its GPUs and of five.
#[test]
fn faults_of_every_preset_are_named_by_what_it_measures() {
    let dir = TempDir::new().expect("a folder");
    let channels = |count: u32| {
        move |node: &str| -> String {
            let lines = node.lines().map(|line| match line.starts_with("max_channels = ") {
                true => format!("max_channels = {count}\n"),
                false => format!("{line}\n"),
            });
            lines.collect()
        }
    };
    // More GPUs than there are.
    let without_nvls = |node: &str| node.replace("\nleast_gpus = 4", "\nleast_gpus = 9");
    let rings = "all_reduce,all_gather,reduce_scatter,broadcast,reduce";
    let halved = "half the channels";
    // mi250x has 4 rings over 8 GPUs and 2 over 5; mi300x 7 and 4; mi300a and v100 6 over 4.
    let faults = [
        ("mi250x", "0-7", edited(&dir, "mi250x", channels(2)), rings, halved),
        ("mi250x", "0-4", edited(&dir, "mi250x", channels(1)), "all_gather", halved),
        ("mi300x", "0-7", edited(&dir, "mi300x", channels(3)), "all_gather,reduce", halved),
        ("mi300x", "0-7", edited(&dir, "mi300x", channels(6)), "all_reduce", "a ring is missing"),
        ("mi300x", "0-4", edited(&dir, "mi300x", channels(2)), "all_gather", halved),
        ("mi300a", "0-3", edited(&dir, "mi300a", channels(3)), "reduce_scatter", halved),
        ("v100", "0-3", edited(&dir, "v100", channels(3)), "broadcast", halved),
        (
            "hgx-h200",
            "0-7",
            edited(&dir, "hgx-h200", without_nvls),
            "all_reduce",
            "rings instead of NVLS",
        ),
        (
            "hgx-h100",
            "0-4",
            edited(&dir, "hgx-h100", without_nvls),
            "all_reduce",
            "rings instead of NVLS",
        ),
    ];
    for (nth, (preset, gpus, machine, ops, cause)) in faults.iter().enumerate() {
        let folder = dir.path().join(format!("run{nth}"));
        let folder = folder.to_str().expect("a printable path");
        let ops: Vec<&str> = ops.split(',').collect();
        let last =
            ["--bytes", "1MiB,64MiB,1GiB", "--gpus", gpus, "--on", machine, "--measure", folder];
        let output = pathline(
            &[&["advise", "--collectives", "--machine", preset, "--op", &ops.join(",")], &last[..]]
                .concat(),
        );
        let found = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{preset}: {found}");
        for op in ops {
            let line = found.split("! ").find(|part| part.starts_with(&format!("{op}:")));
            assert!(line.is_some_and(|line| line.contains(cause)), "{preset} {op}: {found}");
        }
    }
}

#[test]
fn fewer_than_two_gpus_are_refused_by_name() {
    let refused = |args: &[&str]| {
        let output = pathline(&[&["advise", "--collectives", "--machine"], args].concat());
        assert_eq!(output.status.code(), Some(2));
        unwrapped(&output.stderr)
    };
    assert!(refused(&["mi100:0"]).contains("has one GPU: a collective needs two GPUs at least"));
    assert!(refused(&["mi300x", "--gpus", "3"]).contains("gpu3 alone: a collective needs two"));
}

#[test]
fn without_runs_it_has_model_bound_and_the_case_of_the_cut() {
    let output = pathline(&[
        "advise",
        "--collectives",
        "--machine",
        "mi250x",
        "--op",
        "all_gather",
        "--bytes",
        "1GiB",
    ]);
    let found = text(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    // 7/8 GiB enters a GPU; GPU 1 has 6 links of 50 GB/s and one of 36 to the host:
    // 0.9395 GB / 336 GB/s = 2.80 ms.
    assert!(found.contains("2.80 ms") && found.contains("6.35 ms"), "{found}");
    assert!(found.contains("pathline run 'r0.gpu1"), "{found}");
    let output = pathline(&["advise", "--collectives", "--machine", "mi250x", "--gpus", "0,9"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn it_measures_and_certifies_the_bound_itself() {
    let dir = TempDir::new().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("a printable path").to_owned();
    let (good, bad, sick) = (path("good"), path("bad"), path("sick.toml"));
    let node = text(&pathline(&["model", "show", "mi250x"]));
    // The cut around gpu1 has six links of 50 GB/s; at a quarter of its rate the bundle of four leaves less.
    let fault =
        "\n[[fault]]\nelement = \"gpu0-gpu1\"\nkind = \"speed\"\nshare = 0.25\nsilent = true\n";
    fs::write(&sick, node + fault).expect("a machine");
    let audit = |folder: &str, on: &[&str]| {
        let args = [
            "advise",
            "--collectives",
            "--machine",
            "mi250x",
            "--op",
            "all_gather",
            "--bytes",
            "16MiB,256MiB",
            "--measure",
        ];
        let output = pathline(&[&args[..], &[folder], on].concat());
        (output.status.code(), text(&output) + &unwrapped(&output.stderr))
    };
    let (code, found) = audit(&good, &[]);
    assert_eq!(code, Some(0), "{found}");
    assert!(
        found.contains("all_gather: as modelled") && found.contains("The bound is certified"),
        "{found}"
    );
    let (code, found) = audit(&bad, &["--on", &sick]);
    assert_eq!(code, Some(1), "{found}");
    assert!(found.contains("! The cut around") && found.contains("pathline health"), "{found}");
}

/// A twin of two H200s knows their links and no library; every run has the site's NCCL_NVLS_ENABLE=0.
#[test]
fn a_twin_compares_runs_with_the_bound() {
    let dir = TempDir::new().expect("a folder");
    let twin = dir.path().join("twin.toml");
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let [contention, nccl] =
        ["contention", "nccl"].map(|name| format!("{fixtures}/h200-x2-{name}.jsonl.gz"));
    let (twin, contention, nccl) =
        (twin.to_str().expect("a printable path"), contention.as_str(), nccl.as_str());
    let made = pathline(&["model", "fit", contention, "-o", twin]);
    assert_eq!(made.status.code(), Some(0), "{}", unwrapped(&made.stderr));
    let output =
        pathline(&["advise", "--op", "all_reduce", "--machine", twin, "--collectives", nccl]);
    let found = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(3), "{found}");
    assert!(found.contains("All runs have NCCL_NVLS_ENABLE=0: measured with that."), "{found}");
    // Each of two GPUs sends all bytes: 1 GiB / 478 GB/s = 2.25 ms; 3.26 / 2.25 = 1.45.
    assert!(found.contains("all_reduce 1GiB 3.26 ms 2.25 ms 1.45 links of one GPU"), "{found}");
    assert!(found.contains("does not describe nccl, so no cause is sought"), "{found}");
}

/// A run with both: what an MPI took is no time of RCCL, whose row it would be.
#[test]
fn collectives_of_an_mpi_are_not_those_of_rccl() {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("run");
    let out = out.to_str().expect("a printable path");
    let case = |by: &str| format!("r0.gpu0.vram > r7.gpu7.vram by {by}@gpu0[all_reduce] x 16MiB");
    let (ccl, mpi) = (case("ccl"), case("mpi"));
    let host = "r0.numa3.paged > r7.numa2.paged by mpi@numa3[all_reduce] x 16MiB";
    let mut args = vec!["run", "-q", "-m", "mi250x", "--ranks", "8", "--out", out];
    [ccl.as_str(), &mpi, host].into_iter().for_each(|case| args.extend(["--case", case]));
    let output = pathline(&args);
    assert!(output.status.success(), "{}", unwrapped(&output.stderr));
    let output = pathline(&["advise", "--collectives", out, "--machine", "mi250x"]);
    let found = text(&output);
    let rows = found.lines().filter(|line| line.starts_with("all_reduce  16MiB ")).count();
    assert_eq!(rows, 1, "{found}{}", unwrapped(&output.stderr));
    let output =
        pathline(&["advise", "--collectives", out, "--machine", "mi250x", "--gpus", "0-1"]);
    let error = unwrapped(&output.stderr);
    assert!(error.contains("the run used 0-7: add --gpus 0-7"), "{error}");
}
