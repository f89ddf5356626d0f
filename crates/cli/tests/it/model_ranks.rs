//! Processes of a model, from the command line to the columns of other tools.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

fn pathline(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn run(folder: &Path, cases: &[&str]) -> String {
    let mut args = vec!["run", "--machine", "mi250x", "--ranks", "8"];
    args.extend(["--out", folder.to_str().unwrap()]);
    args.extend(cases.iter().flat_map(|case| ["--case", case]));
    stdout(&pathline(&args))
}

/// The number in a column of the line that starts with `size`.
fn column(text: &str, size: &str, at: usize) -> f64 {
    let line = text.lines().find(|l| l.split_whitespace().next() == Some(size));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect();
    words[at].parse().unwrap()
}

#[test]
fn a_model_with_ranks_prints_as_osu_and_nccl_tests() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let summary = run(
        &run_folder,
        &[
            "r0.gpu0.vram > r7.gpu7.vram by mpi@gpu0[all_reduce] x 8B",
            "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 16MiB",
            "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[put-w1] x 8B",
            "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB",
        ],
    );
    assert!(summary.contains("one-sided operations are not modelled"), "{summary}");
    let report = |format: &str| {
        stdout(&pathline(&["report", run_folder.to_str().unwrap(), "--format", format]))
    };
    let osu = report("osu");
    assert!(osu.contains("# OSU MPI-ROCM Allreduce Latency Test"), "{osu}");
    assert!(osu.contains("SIMULATED (mi250x)"), "{osu}");
    // Published: 1.24 to 1.27 us for 8 ranks, and 49 to 49.4 GB/s by copy engine at 16 MiB.
    let us = column(&osu, "8", 1);
    assert!((1.23..=1.28).contains(&us), "{us}");
    let mbs = column(&osu, "16777216", 1);
    assert!((48_500.0..=49_900.0).contains(&mbs), "{mbs}");
    let nccl = report("nccl-tests");
    // size count type redop root time algbw busbw #wrong: bus is 2 x 7/8 of the rate.
    let (alg, bus) = (column(&nccl, "1048576", 6), column(&nccl, "1048576", 7));
    assert!((bus / alg - 1.75).abs() < 0.01, "{nccl}");
    assert!(nccl.contains("#wrong") && nccl.contains("N/A"), "{nccl}");
}
