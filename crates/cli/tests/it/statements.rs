//! What the program states about a run is true of that run: names of engines, origins, bounds, advice.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use pathline_schema::{CaseOutcome, ConstantOrigin};
use tempfile::TempDir;

use crate::common::{command, journal, unwrapped};

/// Variables that change what a simulated machine does.
const READ: [&str; 5] = [
    "HSA_ENABLE_SDMA",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_XNACK",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
];

fn pathline(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    for name in READ {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().copied()).stdin(Stdio::null());
    command.output().unwrap()
}

/// Standard output in one line, so that a wrapped sentence is found.
fn text(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A run on a simulated node, and its long summary.
fn run(out: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let head = ["run", "--machine", "mi250x", "--full", "--out", out.to_str().unwrap()];
    text(&pathline(&[head.as_slice(), args].concat(), env))
}

/// Why such a run measures nothing, in one line.
fn refusal(out: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let head = ["run", "--machine", "mi250x", "--out", out.to_str().unwrap()];
    let output = pathline(&[head.as_slice(), args].concat(), env);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn copies_by_blit_kernels_are_not_called_sdma() {
    let folder = TempDir::new().unwrap();
    let off = [("HSA_ENABLE_SDMA", "0")];
    let summary = run(&folder.path().join("pairs"), &["--suite", "pairs"], &off);
    assert!(summary.contains("(blit kernel copies of 256MiB, one at a time)"), "{summary}");
    assert!(!summary.contains("SDMA copies"), "{summary}");
}

/// With the variable set, the messages that need its other value are skipped, as on a node.
#[test]
fn messages_that_the_users_setting_rules_out_are_skipped() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let message =
        |agent: &str| format!("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64{agent}] x 16MiB");
    let direct = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16MiB";
    for (name, value, kept) in [
        ("HSA_ENABLE_SDMA", "0", ",blit"),
        ("HSA_ENABLE_PEER_SDMA", "0", ",blit"),
        ("HSA_ENABLE_SDMA", "1", ",engine"),
    ] {
        let _ = std::fs::remove_dir_all(&out);
        let (engine, blit) = (message(",engine"), message(",blit"));
        let args = ["--ranks", "2", "--case", &engine, "--case", &blit, "--case", direct];
        run(&out, &args, &[(name, value)]);
        for outcome in &journal(&out).outcomes {
            let case = outcome.case().to_string();
            match outcome {
                CaseOutcome::Skipped(skip) => {
                    assert!(!case.contains(kept), "{name}={value}: {case}");
                    assert!(skip.why.contains(&format!("{name} is set")), "{}", skip.why);
                }
                _ => assert!(case.contains(kept) || case == direct, "{name}={value}: {case}"),
            }
        }
    }
}

/// On a node a blit copy needs a process without copy engines, which the user's setting rules out.
#[test]
fn blit_copies_are_skipped_where_the_user_keeps_engines_on() {
    let folder = TempDir::new().unwrap();
    let case = ["--case", "gpu0.vram > gpu1.vram by blit@gpu0 x 16MiB"];
    let on = refusal(&folder.path().join("on"), &case, &[("HSA_ENABLE_SDMA", "1")]);
    assert!(on.contains("this case needs HSA_ENABLE_SDMA=0"), "{on}");
    let off = run(&folder.path().join("off"), &case, &[("HSA_ENABLE_SDMA", "0")]);
    assert!(!off.contains("this case needs"), "{off}");
}

/// The row of direct copies of `mpi-peers` has the name of what moved the bytes.
#[test]
fn direct_copies_next_to_messages_are_named_by_what_moved_them() {
    let folder = TempDir::new().unwrap();
    let args = ["--ranks", "2", "--suite", "mpi-peers"];
    let off = run(&folder.path().join("off"), &args, &[("HSA_ENABLE_SDMA", "0")]);
    assert!(off.contains("copy, blit kernel") && off.contains("MPI, blit kernel"), "{off}");
    assert!(!off.contains("copy, SDMA engine"), "{off}");
    let usual = run(&folder.path().join("usual"), &args, &[]);
    assert!(usual.contains("copy, SDMA engine") && usual.contains("MPI, blit kernel"), "{usual}");
}

/// A chase over 16 MiB is past the caches, and its loads wait for each other: 64 B in 96 ns are 0.7 GB/s.
#[test]
fn a_chase_is_no_rate_of_memory() {
    let folder = TempDir::new().unwrap();
    let summary = run(&folder.path().join("host"), &["--suite", "host"], &[]);
    assert!(!summary.contains("Host memory gives"), "{summary}");
}

#[test]
fn variables_that_choose_gpus_are_ignored_with_a_note() {
    let folder = TempDir::new().unwrap();
    let case = ["--case", "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"];
    let set = [("HIP_VISIBLE_DEVICES", "0,6")];
    let summary = run(&folder.path().join("set"), &case, &set);
    assert!(summary.contains("HIP_VISIBLE_DEVICES: a simulated machine has all GPUs"), "{summary}");
    let unset = run(&folder.path().join("unset"), &case, &[]);
    assert!(!unset.contains("ignored-setting"), "{unset}");
}

#[test]
fn more_ranks_than_gpus_of_a_model_are_refused() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let args = ["run", "--machine", "mi250x", "--ranks", "9", "--out", out.to_str().unwrap()];
    let output = pathline(&args, &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = unwrapped(&output.stderr);
    assert!(error.contains("mi250x has 8 GPUs") && error.contains("--ranks 8 or fewer"), "{error}");
}

#[test]
fn a_matrix_without_a_place_is_in_the_long_form() {
    let folder = TempDir::new().unwrap();
    let summary = run(&folder.path().join("overlap"), &["--suite", "overlap"], &[]);
    assert!(
        summary.contains("Copies during kernels of the same GPU: what each keeps"),
        "{summary}"
    );
    // Grids of 2 blocks a unit leave room for triad. Of the memory's 1400 GB/s a copy to gpu1 reads 158, and
    // triad has 1242: 89 %.
    assert!(
        summary.contains("copies by kernels keep 100 % of their rate, triad keeps 89 %"),
        "{summary}"
    );
}

#[test]
fn the_only_result_of_an_assumed_constant_was_not_disturbed() {
    let folder = TempDir::new().unwrap();
    let case = "r0.numa3.huge > r1.numa3.huge by mpi@numa3[send-w64] x 128KiB";
    let summary = run(&folder.path().join("run"), &["--ranks", "2", "--case", case], &[]);
    assert!(summary.contains("Simulated mi250x: the only result rests on"), "{summary}");
    assert!(!summary.contains("other programs"), "{summary}");
}

#[test]
fn times_of_collectives_have_their_bounds_on_a_terminal() {
    let folder = TempDir::new().unwrap();
    let args = ["--ranks", "8", "--suite", "ccl-collectives"];
    let summary = run(&folder.path().join("run"), &args, &[]);
    // The smallest copy of the node takes 8.7 us.
    assert!(summary.contains("lines: 1 pass of the smallest copy 8.7"), "{summary}");
}

/// The 64 latencies of 16 B copies are carried as data (`time.copy_us_matrix`).
#[test]
fn latencies_that_a_model_carries_have_the_origin_data() {
    let case = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16B isolated";
    let printed =
        text(&pathline(&["model", "predict", "--machine", "mi250x", "--case", case], &[]));
    assert!(printed.contains("rests on measurements that the model carries"), "{printed}");
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    assert!(command(&["--machine", "mi250x", "--case", case], &out).status().unwrap().success());
    let origins: Vec<_> = journal(&out)
        .outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            CaseOutcome::Measured(measured) => Some(measured.origin),
            _ => None,
        })
        .collect();
    assert_eq!(origins, [Some(ConstantOrigin::Data)]);
}

/// 4 B and 128 B go through host memory, below the bound of two passes of copies (17.4 us).
#[test]
fn no_library_exceeds_a_bound_that_holds() {
    for size in ["4B", "128B", "32KiB", "64KiB", "1MiB"] {
        let exchange = format!("all_reduce over gpu0-gpu7 by cray-mpich x {size}");
        let args = ["model", "predict", "--machine", "mi250x", "--exchange", &exchange];
        let printed = text(&pathline(&args, &[]));
        match printed.split_once(" % of the limit of any library") {
            Some((share, _)) => {
                let share: f64 = share.rsplit(' ').next().unwrap().parse().unwrap();
                assert!((1.0..=100.0).contains(&share), "{size}: {printed}");
            }
            // Below a hundredth.
            None => assert!(printed.contains("starts decide"), "{size}: {printed}"),
        }
        let small = ["4B", "128B", "32KiB"].contains(&size);
        assert_eq!(
            printed.contains("By the runtime's copies it would take at least 17.4 us"),
            small
        );
    }
    // Between nodes no copy of the runtime moves the bytes.
    let exchange = "all_reduce over gpu0-gpu3,n1.gpu0-gpu3 by cray-mpich x 128B";
    let printed =
        text(&pathline(&["model", "predict", "--machine", "mi250x", "--exchange", exchange], &[]));
    assert!(!printed.contains("runtime's copies") && !printed.contains("326 %"), "{printed}");
}

#[test]
fn kernels_that_fill_a_gpu_are_predicted_to_share_its_compute_units() {
    let triad = "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u1-b256-gt] x 4GiB";
    let bound = |machine: &str, copy: &str| {
        let case = format!("{triad} & gpu0.vram > gpu1.vram by {copy} x 256MiB");
        text(&pathline(&["model", "predict", "--machine", machine, "--case", &case], &[]))
    };
    let copy = "kernel@gpu0[copy-w16-u1-b256-gt]";
    assert!(bound("mi250x", copy).contains("gpu0 compute units"));
    // The runtime's copy kernel leaves room, a copy engine needs none.
    assert!(!bound("mi250x", "blit@gpu0").contains("gpu0 compute units"));
    assert!(!bound("mi250x", "dma@gpu0").contains("gpu0 compute units"));
    assert!(bound("hgx-h200", copy).contains("waiting for the kernel before it"));
}

#[test]
fn suites_that_no_model_has_do_not_ask_for_more_ranks() {
    let listed =
        String::from_utf8(pathline(&["run", "--list", "--machine", "mi250x"], &[]).stdout).unwrap();
    let absent = listed.split("Not here:").nth(1).unwrap();
    // A reason a paragraph, whose further lines are indented.
    let absent = absent.replace("\n    ", " ");
    for suite in ["ucx-switches", "mpi-switches", "mpi-one-sided"] {
        let line = absent.lines().find(|line| line.contains(suite)).unwrap();
        assert!(!line.contains("--ranks"), "{line}");
    }
}

/// The commands that `pathline case` prints, without the shell.
fn advice(case: &str) -> (String, String) {
    let printed = String::from_utf8(pathline(&["explain", case], &[]).stdout).unwrap();
    let line = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    (line("measure it"), line("predict it"))
}

#[test]
fn the_commands_that_a_case_prints_run() {
    let message = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64,blit] x 16MiB";
    let (measure, predict) = advice(message);
    assert!(measure.starts_with("mpirun -n 2 pathline run '"), "{measure}");
    assert_eq!(predict, format!("pathline model predict --machine mi250x '{message}'"));
    // A case of messages and the exchange that it stands for are one prediction.
    let predicted = |text: &str| {
        let output = pathline(&["model", "predict", "--machine", "mi250x", text], &[]);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let exchange = "send over gpu0>gpu1 by cray-mpich[blit] x 16MiB window 64";
    assert_eq!(predicted(message), predicted(exchange));

    let (measure, predict) = advice("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB");
    assert!(measure.starts_with("pathline run --ranks 8 '"), "{measure}");
    let sum = "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB";
    assert!(predict.ends_with(&format!("'{sum}'")), "{predict}");
    assert_eq!(predicted(sum), predicted("all_reduce over gpu0-gpu7 by rccl x 1MiB"));

    let (_, predict) = advice(
        "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,avx2-nt+memcpy,same-l3] x 16MiB",
    );
    assert!(predict.starts_with("not for mi250x: "), "{predict}");
    let (measure, predict) = advice(
        "store0.file > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q4,n1,t1] x 4KiB",
    );
    assert!(measure.starts_with("pathline run --store DIR '"), "{measure}");
    let (_, there) = advice("gpu0.vram > gpu9.vram by dma@gpu0 x 1MiB");
    // A prediction is offered only where it succeeds.
    for predict in [predict, there] {
        assert!(predict.starts_with("not for mi250x: ") || predict.contains(" '"), "{predict}");
    }
}

/// A rank that is not there is no reason to ask for as many as there are.
#[test]
fn a_skipped_message_names_the_number_of_ranks_that_it_needs() {
    let folder = TempDir::new().unwrap();
    for by in ["mpi", "ccl"] {
        let case = format!("r0.gpu0.vram > r2.gpu2.vram by {by}@gpu0[send-w1] x 1MiB");
        let refused = refusal(&folder.path().join(by), &["--case", &case], &[]);
        assert!(refused.contains("start it with --ranks 3"), "{refused}");
    }
}

#[test]
fn nccl_tests_states_whether_bytes_were_compared() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let case = "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB";
    run(&out, &["--ranks", "8", "--case", case], &[]);
    let table = text(&pathline(&["report", out.to_str().unwrap(), "--format", "nccl-tests"], &[]));
    assert!(
        table.contains("validation: 0 ") && table.contains("Out of bounds values : N/A"),
        "{table}"
    );
}

/// 3 samples have no interval, so 21 other settings could not lie within it.
#[test]
fn a_result_without_an_interval_equals_no_other() {
    for name in ["h200-storage", "h200-x2-storage"] {
        let folder = TempDir::new().unwrap();
        let page = folder.path().join("page.html");
        let path = format!("{}/../../fixtures/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
        let args = ["report", &path, "--full", "-o", page.to_str().unwrap()];
        let summary = text(&pathline(&args, &[]));
        let (_, files) = summary.split_once("Files: ").unwrap();
        let (first, _) = files.split_once(';').unwrap();
        assert!(first.contains('±') && !first.contains("(n="), "{name}: {first}");
    }
}
