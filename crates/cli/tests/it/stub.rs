//! Runs on GPUs that are not there: the real program over libraries that stand in for a driver's.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use pathline_schema::{CaseOutcome, Journal, MeasuredCase, Severity, VerifyResult, WorldKind};
use pathline_stub::{StubLibraries, VARIABLE, built, lay_out};
use tempfile::TempDir;

/// Libraries laid out, and a folder for what the program writes.
pub(crate) struct Node {
    folder: TempDir,
    vendor: StubLibraries,
    /// The settings of the libraries.
    pub(crate) spec: String,
    /// A library that the dynamic linker loads before them.
    preloaded: Option<PathBuf>,
}

impl Node {
    pub(crate) fn new(spec: &str) -> Self {
        Self::of(StubLibraries::Cuda, spec, &[])
    }
    pub(crate) fn of(vendor: StubLibraries, spec: &str, missing: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        lay_out(&folder.path().join("lib"), &[vendor], missing).unwrap();
        Self { folder, vendor, spec: spec.to_owned(), preloaded: None }
    }
    /// The same with libraries of others, every process of which runs under the allocator that finds
    /// writes behind blocks.
    pub(crate) fn guarded(vendor: StubLibraries, others: &[StubLibraries], spec: &str) -> Self {
        let preloaded = Some(built("pathline_guard").unwrap());
        let node = Self { preloaded, ..Self::of(vendor, spec, &[]) };
        lay_out(&node.path("lib"), others, &[]).unwrap();
        node
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    pub(crate) fn pathline(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
        command.args(args).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", self.path("lib")).env("XDG_CACHE_HOME", self.path("cache"));
        for name in ["HSA_XNACK", "HSA_ENABLE_SDMA", "HSA_ENABLE_PEER_SDMA", "PATHLINE_NVRTC"] {
            command.env_remove(name);
        }
        for name in ["PATHLINE_NCCL", "NCCL_DEBUG", "NCCL_DEBUG_FILE"] {
            command.env_remove(name);
        }
        let chosen =
            if self.vendor == StubLibraries::Cuda { "PATHLINE_CUDA" } else { "PATHLINE_HIP" };
        command.env(chosen, self.path("lib"));
        command.env(VARIABLE, &self.spec);
        command.envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)));
        command
    }
    /// Runs some cases; they end with that code.
    pub(crate) fn run(&self, args: &[&str], code: i32) -> Journal {
        let out = self.path("run");
        let out_text = out.to_str().unwrap();
        let output = self.pathline(&[&["run", "--quiet", "--out", out_text], args].concat());
        let file = out.join("run.jsonl");
        let kept = fs::read_to_string(&file).unwrap_or_default();
        let unmeasured = kept.lines().filter(|line| {
            ["faulted", "skipped", "note"].iter().any(|kind| line.contains(&format!("{kind:?}")))
        });
        let failures = || unmeasured.collect::<Vec<_>>().join("\n");
        assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stderr), failures());
        Journal::read(BufReader::new(fs::File::open(file).unwrap())).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
pub(crate) fn measured(journal: &Journal) -> impl Iterator<Item = &MeasuredCase> {
    journal
        .outcomes
        .iter()
        .filter_map(|o| if let CaseOutcome::Measured(m) = o { Some(&**m) } else { None })
}

/// GB/s of the first flow of a case: what one sample moves over the median of the samples.
fn rate(journal: &Journal, case: &str) -> f64 {
    let found = measured(journal).find(|m| m.case.to_string() == case);
    let series = &found.unwrap_or_else(|| panic!("{case}")).series[0];
    let mut samples = series.samples_ns.clone();
    samples.sort_by(f64::total_cmp);
    series.moved_bytes.as_f64() / samples[samples.len() / 2]
}

/// The reason of the one case of a run that was not measured.
pub(crate) fn trouble(journal: &Journal) -> String {
    let reason = |o: &CaseOutcome| match o {
        CaseOutcome::Measured(_) => None,
        CaseOutcome::Skipped(skip) => Some(format!("skipped: {}", skip.why)),
        CaseOutcome::Faulted(fault) => Some(format!("faulted: {fault:?}")),
    };
    journal.outcomes.iter().find_map(reason).unwrap_or_else(|| "all measured".to_owned())
}

#[test]
fn registration_costs_the_time_of_the_calls() {
    let node = Node::new("gpus=1,rdma=mlx5_0,fail=ibv_reg_dmabuf_mr@1+:95");
    lay_out(&node.path("lib"), &[StubLibraries::Verbs], &[]).unwrap();
    // Blocks of 256 MiB and of 1 GiB would take seconds each to page-lock.
    let small = ["--memory", "128MiB", "--case-budget", "0.02"];
    let journal = node.run(&[&["--suite", "registration"], &small[..]].concat(), 0);
    let engines: BTreeSet<&str> =
        measured(&journal).flat_map(|m| &m.series).map(|s| s.engine.as_str()).collect();
    let calls = ["cuMemGetHandleForAddressRange", "ibv_dereg_mr on mlx5_0", "ibv_reg_mr on mlx5_0"];
    assert_eq!(engines, BTreeSet::from(calls));
    // Host: 4 of 6 sizes of paged and of pinned memory, 2 of 4 of huge pages; 4 of the GPU: each
    // registered and taken back, and those of the GPU exported.
    assert_eq!(measured(&journal).count(), (4 + 4 + 2 + 4) * 2 + 4, "{}", trouble(&journal));
    let skips = |why: &str| {
        let skipped =
            |o: &&CaseOutcome| matches!(o, CaseOutcome::Skipped(s) if s.why.contains(why));
        journal.outcomes.iter().filter(skipped).count()
    };
    // 95 is EOPNOTSUPP: by file nothing is registered or taken back at those 4 sizes. 2 sizes of each
    // kind of host memory are too large.
    assert_eq!(skips("has no such call"), 4 * 2, "{}", trouble(&journal));
    assert_eq!(skips("this run may use 128MiB"), (2 + 2 + 2) * 2, "{}", trouble(&journal));
    let report = fs::read_to_string(node.path("run").join("report.html")).unwrap();
    assert!(report.contains("What it costs to have mlx5_0 reach memory"));
}

#[test]
fn a_host_without_rdma_devices_skips_registration() {
    let node = Node::new("gpus=1");
    lay_out(&node.path("lib"), &[StubLibraries::Verbs], &[]).unwrap();
    let case = "numa0.paged > numa0.reg by call@numa0[nic-register] x 1GiB isolated";
    let journal = node.run(&["--case", case], 3);
    let reason = trouble(&journal);
    assert!(reason.starts_with("skipped: ") && reason.contains("no RDMA device"), "{reason}");
    let doctor = text(&node.pathline(&["doctor"]).stdout);
    assert!(doctor.contains("libibverbs: no RDMA device ("), "{doctor}");
    assert!(doctor.contains(" io_uring: "), "{doctor}");
    for prerequisite in ["GPU runtime exports", "libibverbs registers"] {
        let line = format!(" dma-buf: {prerequisite}");
        assert!(doctor.lines().any(|text| text.contains(&line)), "{line}\n{doctor}");
    }
    assert!(
        doctor.lines().any(|line| line.contains("] ") && line.contains(" cuFile: ")),
        "{doctor}"
    );
}

#[test]
fn a_saved_node_is_judged_by_what_its_management_library_said() {
    let node = Node::new("gpus=2");
    lay_out(&node.path("lib"), &[StubLibraries::Nvml], &[]).unwrap();
    let saved = node.path("saved").to_str().unwrap().to_owned();
    assert!(node.pathline(&["topo", "--save", &saved]).status.success());
    let facts = node.path("saved/nvml/fade:19:00.0/facts");
    let stated = fs::read_to_string(&facts).unwrap();
    let sound = text(&node.pathline(&["doctor", "--from", &saved, "--json"]).stdout);
    assert!(sound.contains("NVLinks of fade:19:00.0") && sound.contains("18 of 18 are up"));
    fs::write(&facts, stated.replace("remap_failed=0", "remap_failed=1")).unwrap();
    let output = node.pathline(&["doctor", "--from", &saved]);
    let doctor = text(&output.stdout);
    assert!(
        doctor.contains("[FAIL] GPUs, remapped rows of fade:19:00.0: 0, and one had"),
        "{doctor}"
    );
    assert_eq!(output.status.code(), Some(1), "{doctor}");
    let live = text(&node.pathline(&["doctor"]).stdout);
    assert!(live.contains("direct access: 2 of 2 pairs of GPUs"), "{live}");
}

#[test]
fn doctor_names_the_library_of_gpu_direct() {
    let node = Node::new("gpus=1");
    lay_out(&node.path("lib"), &[StubLibraries::CuFile], &[]).unwrap();
    let doctor = text(&node.pathline(&["doctor"]).stdout);
    let line = doctor.lines().find(|line| line.contains(" cuFile: "));
    let line = line.unwrap_or_default();
    assert!(line.contains("cuFile: 1.15 (") && line.contains("libcufile.so.0"), "{doctor}");
    assert!(doctor.contains("nvidia-fs"), "{doctor}");
}

pub(crate) const PAIR: &str = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB";
pub(crate) const KERNEL: &str =
    "r0.gpu0.vram > r0.gpu1.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 1MiB";

#[test]
fn a_run_has_the_figures_of_the_model_and_does_not_pass_for_a_real_one() {
    let node = Node::new("gpus=2");
    let journal = node.run(&["--suite", "pairs", "--suite", "latency", "--case-budget", "60"], 0);
    assert_eq!(journal.begin.world, WorldKind::Simulated("stub".into()));
    assert!(journal.end.as_ref().unwrap().complete);
    assert!(journal.topology.gpus.iter().all(|g| g.name.starts_with("stub ")));
    // NVLink 4 by the engine: 450 GB/s x 0.878 = 395, less its start-up.
    let pair = rate(&journal, "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB");
    assert!((380.0..396.0).contains(&pair), "{pair} GB/s");
    for one in measured(&journal) {
        let copies = one.case.timed.iter().all(|f| f.src.mem == f.dst.mem);
        assert!(
            !copies
                || one.verdict == VerifyResult::Verified
                || one.case.to_string().contains("triad"),
            "{}: {:?}",
            one.case,
            one.verdict
        );
    }
    let faults = journal.outcomes.iter().filter(|o| matches!(o, CaseOutcome::Faulted(_))).count();
    assert_eq!(faults, 0, "{}", trouble(&journal));
}

#[test]
fn host_memory_of_every_kind_is_copied_and_verified() {
    let copy = "kernel@gpu0[copy-w16-u4-b256-g2sm]";
    let paths = [
        ("numa0.pinned", "gpu0.vram", "dma@gpu0"),
        ("gpu0.vram", "numa0.pinned", "dma@gpu0"),
        ("numa0.paged", "gpu0.vram", "dma@gpu0"),
        ("gpu0.vram", "numa0.paged", "dma@gpu0"),
        ("numa0.pinned", "gpu0.vram", copy),
        ("gpu0.vram", "numa0.pinned", copy),
        ("numa0.managed", "gpu0.vram", copy),
        ("numa0.managed", "gpu0.managed", "migrate@gpu0[fault]"),
        ("numa0.managed", "gpu0.managed", "migrate@gpu0[prefetch]"),
        ("gpu1.managed", "gpu0.managed", "migrate@gpu0[fault]"),
        // Four rounds of one chunk each; 64 blocks in 4,096 pieces.
        ("numa0.paged", "gpu0.vram", "threads@gpu0[1]"),
        ("gpu0.vram", "numa0.paged", "threads@gpu0[1]"),
        ("numa0.pinned", "gpu0.vram", "blocks@gpu0[64-g8]"),
        ("gpu0.vram", "numa0.pinned", "blocks@gpu0[64-g8]"),
        ("gpu0.vram", "numa0.pinned", "blocks@gpu0[64-each]"),
        ("numa0.pinned", "gpu0.vram", "blocks@gpu0[64-batch]"),
    ];
    let text = |(src, dst, by)| format!("r0.{src} > r0.{dst} by {by} x 16MiB");
    let both = [text(paths[0]), text(paths[1])].join(" & ");
    let cases: Vec<String> = paths.into_iter().map(text).chain([both]).collect();
    let args: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    let journal = Node::new("gpus=2").run(&args, 0);
    assert_eq!(trouble(&journal), "all measured");
    assert_eq!(journal.outcomes.len(), cases.len());
    assert!(measured(&journal).all(|m| m.verdict == VerifyResult::Verified));
    // PCIe 5 x16 as the preset has it: 55 GB/s and a start-up of a few us in 300.
    let pinned = rate(&journal, &cases[0]);
    assert!((50.0..56.0).contains(&pinned), "{pinned} GB/s");
}

#[test]
fn doctor_runs_every_check_on_it() {
    let node = Node::new("gpus=3");
    let output = node.pathline(&["doctor", "--conformance"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    assert!(stdout.contains("gpu2: stub NVIDIA H200") && !stdout.contains("FAILED"), "{stdout}");
}

#[test]
fn doctor_explains_why_there_is_no_gpu() {
    for (spec, why) in [
        ("nodevice", "CUDA_ERROR_NO_DEVICE"),
        ("perm", "CUDA_ERROR_OPERATING_SYSTEM"),
        ("fail=cuInit:802", "CUDA_ERROR_SYSTEM_NOT_READY"),
        ("gpus=many", "CUDA_ERROR_UNKNOWN"),
    ] {
        let output = Node::new(spec).pathline(&["doctor"]);
        let stdout = text(&output.stdout);
        assert!(
            stdout.contains("none can be measured") && stdout.contains(why),
            "{spec}: {stdout}"
        );
    }
}

#[test]
fn failures_are_named() {
    let cases = ["--case", PAIR];
    for (spec, code, words) in [
        ("exclusive", 1, &["faulted", "CUDA_ERROR_DEVICE_UNAVAILABLE", "46"][..]),
        ("fail=cuMemcpyAsync@5:700", 1, &["faulted", "CUDA_ERROR_ILLEGAL_ADDRESS", "700"]),
        ("corrupt=cuMemcpyAsync@7+", 1, &["faulted", "offset 524288", "Corrupt"]),
        ("oom=cuMemAlloc", 3, &["skipped", "CUDA_ERROR_OUT_OF_MEMORY"]),
        ("no=cuStreamWaitValue32", 0, &["all measured"]),
        ("fail=cuStreamWaitValue32:801", 0, &["all measured"]),
        ("no=cuFuncLoad,driver=13000,slow=cuInit:5", 0, &["all measured"]),
    ] {
        let journal = Node::new(spec).run(&cases, code);
        let reason = trouble(&journal);
        assert!(words.iter().all(|w| reason.contains(w)), "{spec}: {reason}");
    }
}

/// The byte that a launch damages is the one in the middle: 1 MiB / 2. A double begins there.
#[test]
fn what_kernels_write_and_compute_is_compared() {
    let runtimes =
        [(StubLibraries::Cuda, "cuLaunchKernel"), (StubLibraries::Hip(6), "hipModuleLaunchKernel")];
    let cases = [
        "gpu0.reg > gpu0.vram by kernel@gpu0[write-w16-u4-b256-g2sm] x 1MiB",
        "gpu0.reg > gpu1.vram by kernel@gpu0[write-w8-u4-b256-g2sm] x 1MiB",
        "gpu0.reg > numa0.pinned by kernel@gpu0[write-w16-u4-b256-g2sm] x 1MiB",
        "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u4-b256-g2sm] x 1MiB",
        "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w4-u4-b256-g2sm] x 1MiB",
    ];
    for (runtime, call) in runtimes {
        let mut wanted: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
        // The bytes are compared, and no time is.
        wanted.extend(["--case-budget", "0.02"]);
        let journal = Node::of(runtime, "", &[]).run(&wanted, 0);
        assert_eq!(measured(&journal).count(), cases.len(), "{}", trouble(&journal));
        let verified = |m: &MeasuredCase| m.verdict == VerifyResult::Verified;
        let unverified = measured(&journal).find(|m| !verified(m));
        assert_eq!(unverified.map(|m| (&m.case, &m.verdict)), None, "{call}");
        let journal = Node::of(runtime, &format!("corrupt={call}@12+"), &[]).run(&wanted, 1);
        assert_eq!(measured(&journal).count(), 0, "{call}");
        for outcome in &journal.outcomes {
            let CaseOutcome::Faulted(fault) = outcome else { continue };
            assert_eq!(fault.severity, Severity::Corrupt, "{}", fault.error);
            assert!(fault.error.contains("offset 524288 "), "{call}: {}", fault.error);
            assert!(fault.error.contains("stored"), "{call}: {}", fault.error);
        }
    }
}

#[test]
fn without_a_fitting_compiler_the_copy_engine_is_still_measured() {
    for (spec, missing) in [("driver=12040", &[][..]), ("gpus=2", &["nvrtcCompileProgram"])] {
        let journal = Node::of(StubLibraries::Cuda, spec, missing)
            .run(&["--case", PAIR, "--case", KERNEL], 0);
        assert_eq!(measured(&journal).count(), 1);
        let reason = trouble(&journal);
        assert!(reason.contains("skipped") && reason.contains("NVRTC"), "{spec}: {reason}");
    }
}

#[test]
fn a_run_reads_its_gpus_by_nvml_and_notes_a_write_behind_its_memory() {
    let with_nvml = |spec: &str| {
        let node = Node::new(spec);
        lay_out(&node.path("lib"), &[StubLibraries::Nvml], &[]).unwrap();
        node
    };
    // Tests that run next to this one can make the machine busy.
    let notes = |journal: &Journal| -> Vec<(String, String)> {
        let others = journal.notes.iter().filter(|note| note.code != "busy");
        others.map(|note| (note.code.clone(), note.text.clone())).collect()
    };
    let cases = ["--case", PAIR];
    let journal = with_nvml("gpus=2,lookahead").run(&cases, 0);
    assert_eq!((trouble(&journal), notes(&journal)), ("all measured".to_owned(), vec![]));
    let one = measured(&journal).next().unwrap();
    assert!(one.gpus.values().all(|readings| readings.after.link_errors == Some(0)), "{one:?}");
    // The worker's first calls are for the links of GPU 0 and for their errors.
    let node = with_nvml("gpus=2,overrun=nvmlDeviceGetFieldValues@2");
    let journal = node.run(&cases, 0);
    assert_eq!(trouble(&journal), "all measured");
    let notes = notes(&journal);
    let [(code, note)] = &notes[..] else { panic!("{notes:?}") };
    assert!(code == "library-overrun" && note.contains("nvmlDeviceGetFieldValues"), "{notes:?}");
    let doctor = text(&node.pathline(&["doctor"]).stdout);
    assert!(doctor.contains("warning: nvmlDeviceGetFieldValues of NVML"), "{doctor}");
}

const HOST_COPY: &str = "r0.numa0.paged > r0.numa0.paged by cpu@numa0[copy-plain-t1] x 1MiB";

#[test]
fn a_case_of_the_host_makes_no_context_on_a_gpu() {
    // Another process holds all GPUs, as in the compute mode EXCLUSIVE_PROCESS.
    let journal = Node::new("gpus=2,exclusive").run(&["--case", HOST_COPY, "--case", PAIR], 1);
    let text = trouble(&journal);
    assert!(text.contains("faulted") && text.contains("CUDA_ERROR_DEVICE_UNAVAILABLE"), "{text}");
    let cases: Vec<String> = measured(&journal).map(|m| m.case.to_string()).collect();
    assert_eq!(cases, [HOST_COPY]);
}

#[test]
fn host_ranks_and_their_coordinator_make_no_gpu_context() {
    let message = "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 1MiB";
    let cases = ["--case", message, "--case", HOST_COPY, "--ranks", "2"];
    let journal = Node::new("gpus=2,crash=cuDevicePrimaryCtxRetain").run(&cases, 0);
    assert_eq!((trouble(&journal).as_str(), journal.outcomes.len()), ("all measured", 2));
    // A process that had died of it would have been followed by one that leaves GPUs alone.
    assert_eq!(journal.begin.world, WorldKind::Simulated("stub".into()));
}

/// One case fails with `words` in its reason; the other, on other GPUs, is measured.
fn costs_its_case(spec: &str, words: &[&str]) {
    let other = "r0.gpu2.vram > r0.gpu3.vram by dma@gpu2 x 1MiB";
    let node = Node::new("");
    let spec = format!("gpus=4,once={},{spec}", node.path("struck").display());
    let node = Node { spec, ..node };
    let journal = node.run(&["--case", PAIR, "--case", other, "--case-deadline", "5"], 1);
    let reason = trouble(&journal);
    assert!(words.iter().all(|w| reason.contains(w)), "{reason}");
    assert!(measured(&journal).any(|m| m.case.to_string() == other));
    assert!(journal.end.unwrap().complete);
}

#[test]
fn a_crash_costs_its_case() {
    costs_its_case("crash=cuMemcpyAsync@6", &["faulted", "SIGSEGV"]);
}

#[test]
fn a_hang_costs_its_case() {
    costs_its_case("hang=cuStreamSynchronize@30", &["faulted", "hung"]);
}

#[test]
fn a_sticky_error_costs_its_case() {
    costs_its_case("fail=cuStreamSynchronize@6:719", &["faulted", "CUDA_ERROR_LAUNCH_FAILED"]);
}

#[test]
fn hip_has_the_figures_of_its_model() {
    let copy = "r0.gpu0.vram > r0.gpu1.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 64MiB";
    let dma = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 64MiB";
    let pinned = "r0.numa0.pinned-nc > r0.gpu0.vram by dma@gpu0 x 16MiB";
    let args = ["--case", copy, "--case", dma, "--case", pinned];
    let journal = Node::of(StubLibraries::Hip(6), "gpus=2", &[]).run(&args, 0);
    assert_eq!(journal.begin.world, WorldKind::Simulated("stub".into()));
    assert_eq!(trouble(&journal), "all measured");
    assert!(measured(&journal).all(|m| m.verdict == VerifyResult::Verified));
    // Two GCDs of a package: an SDMA engine reaches 50 GB/s, a kernel all four links of 50.
    let (by_engine, by_kernel) = (rate(&journal, dma), rate(&journal, copy));
    assert!((40.0..52.0).contains(&by_engine), "{by_engine} GB/s");
    assert!((130.0..200.0).contains(&by_kernel), "{by_kernel} GB/s");
}

/// Two processes of a launcher that see two GPUs, and one or none: `other` has the settings
/// of the second's libraries.
fn unlike(other: &str) -> Journal {
    let node = Node::new("gpus=2");
    let out = node.path("run");
    let case = "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy] x 8B";
    let args = ["run", "--quiet", "--out", out.to_str().unwrap(), "--case", case];
    let start = |rank: &str| {
        let mut command = node.command(&args);
        command.env("PMI_RANK", rank).env("PMI_SIZE", "2");
        if rank == "1" {
            command.env(VARIABLE, other);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start("1"), start("0")];
    for process in both {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let file = fs::File::open(out.join("run.jsonl")).unwrap();
    Journal::read(BufReader::new(file)).unwrap()
}

#[test]
fn ranks_whose_gpus_differ_are_named_before_anything_is_measured() {
    let note = |journal: &Journal| {
        let found = journal.notes.iter().find(|note| note.code == "unlike-ranks");
        found.map(|note| note.text.clone())
    };
    let fewer = note(&unlike("gpus=1")).unwrap();
    assert!(fewer.contains("rank 0 has stub ") && fewer.contains(", 2 on its host"), "{fewer}");
    assert!(fewer.contains("rank 1 has stub ") && fewer.contains(", 1 on its host"), "{fewer}");
    let none = note(&unlike("gpus=0")).unwrap();
    assert!(none.contains("rank 1 has no GPU: messages of device memory are left out"), "{none}");
    assert_eq!(note(&unlike("gpus=2")), None);
}
