//! The program under real launchers of MPI: `PATHLINE_TEST_MPICH` and `PATHLINE_TEST_OPENMPI` each
//! name an `mpirun`. Memory of GPUs is that of libraries that stand in for CUDA's, which any MPI can
//! read, since it is the host's.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pathline_schema::{CaseOutcome, Journal, Transport, VerifyResult};
use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use tempfile::TempDir;

use crate::common::{is_whole, journal, unwrapped};

/// Seconds that a run may take: some twenty times what it takes on two idle cores.
const RUN_TIMEOUT: &str = "150";
/// Device memory, and what is left where an MPI takes none.
const DEVICE: &str = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[ping] x 8B";
const STAGED: &str = "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[send-w1] x 64KiB";

/// Processes that wait by spinning: one launch at a time has the cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The `mpirun` of that name; none if none is named, which fails where it is promised.
fn mpirun(name: &str) -> Option<(PathBuf, MutexGuard<'static, ()>)> {
    let variable = format!("PATHLINE_TEST_{}", name.to_uppercase());
    let Some(launcher) = std::env::var_os(&variable).map(PathBuf::from) else {
        missing(name, &format!("{variable} names no mpirun"));
        return None;
    };
    Some((launcher, ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Two processes of the program, with a library that stands in for CUDA's.
struct Launch {
    folder: TempDir,
    command: Command,
}

impl Launch {
    /// `wrapper` stands between the launcher and the program.
    fn new(launcher: &Path, wrapper: &[&Path]) -> Self {
        let folder = TempDir::new().unwrap();
        let stub = folder.path().join("stub");
        lay_out(&stub, &[StubLibraries::Cuda], &[]).unwrap();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", RUN_TIMEOUT]).arg(launcher).args(["-n", "2"]);
        command.args(wrapper).arg(assert_cmd::cargo::cargo_bin!("pathline"));
        command
            .args(["run", "--quiet", "--case-budget", "20", "--out"])
            .arg(folder.path().join("run"))
            .stdin(Stdio::null())
            .env("LD_LIBRARY_PATH", &stub)
            .env("PATHLINE_CUDA", &stub)
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env(VARIABLE, "gpus=2")
            .env_remove("PATHLINE_MPI")
            .env_remove("PATHLINE_DEVICE_MEMORY")
            // Open MPI runs neither for the superuser nor with more processes than cores unasked.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            // Other tests use the same cores.
            .env("OMPI_MCA_mpi_yield_when_idle", "1");
        Self { folder, command }
    }

    fn run(&mut self, args: &[&str]) -> Journal {
        let Output { status, stdout, stderr } = self.command.args(args).output().unwrap();
        let [stdout, stderr] = [stdout, stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
        assert!(status.success() || status.code() == Some(3), "{status}: {stdout}{stderr}");
        journal(&self.folder.path().join("run"))
    }

    /// Runs [`DEVICE`] and [`STAGED`]: how it was found out that MPI takes device memory, or that it
    /// takes none.
    fn finding(&mut self, args: &[&str]) -> Result<String, String> {
        let journal = self.run(&[&["--case", DEVICE, "--case", STAGED], args].concat());
        is_whole(&journal, 2);
        let of =
            |case: &str| journal.outcomes.iter().find(|o| o.case().to_string() == case).unwrap();
        // Staging needs no such memory in MPI.
        assert!(verified(of(STAGED)), "{:?}", of(STAGED));
        let [first, other] = &journal.begin.ranks[..] else { panic!("two ranks") };
        assert_eq!(
            (&first.device_memory, &first.host_only),
            (&other.device_memory, &other.host_only)
        );
        match (first.device_memory.get(&Transport::Mpi), first.host_only.get(&Transport::Mpi)) {
            (Some(how), None) => {
                assert!(verified(of(DEVICE)), "{:?}", of(DEVICE));
                Ok(how.clone())
            }
            (None, Some(how)) => {
                let CaseOutcome::Skipped(skip) = of(DEVICE) else { panic!("{:?}", of(DEVICE)) };
                assert_eq!(skip.why, format!("this mpi takes host memory only: {how}"));
                Err(how.clone())
            }
            both => panic!("{both:?}"),
        }
    }
}

fn verified(outcome: &CaseOutcome) -> bool {
    matches!(outcome, CaseOutcome::Measured(m) if m.verdict == VerifyResult::Verified)
}

/// A suite between processes of this MPI, which it names.
fn measures_a_suite(name: &str, library: &str) {
    let Some((launcher, _alone)) = mpirun(name) else { return };
    let mut launch = Launch::new(&launcher, &[]);
    let journal = launch.run(&["--suite", "mpi-latency"]);
    assert!(journal.outcomes.len() >= 13, "{}", journal.outcomes.len());
    is_whole(&journal, journal.outcomes.len());
    let unmeasured: Vec<_> = journal.outcomes.iter().filter(|o| !verified(o)).collect();
    assert!(unmeasured.is_empty(), "{unmeasured:?}");
    for rank in &journal.begin.ranks {
        assert!(rank.ways[&Transport::Mpi].starts_with(library), "{:?}", rank.ways);
    }
}

#[test]
fn mpich_measures_between_two_processes() {
    measures_a_suite("mpich", "MPICH ");
}

#[test]
fn open_mpi_measures_between_two_processes() {
    measures_a_suite("openmpi", "Open MPI v");
}

/// Types, uneven parts and operations in place, of host memory and through the host.
#[test]
fn collectives_of_types_and_parts_are_verified() {
    let ops = [
        ("all_reduce-float", "4B"),
        ("reduce-int8-max", "3B"),
        ("all_reduce-double-prod-inplace", "64KiB"),
        ("reduce_scatter-inplace", "64KiB"),
        ("all_gather-inplace", "64KiB"),
        ("all_gatherv-inplace", "64KiB"),
        ("all_to_all-inplace", "64KiB"),
        ("all_to_allv", "64KiB"),
        ("gatherv-inplace", "64KiB"),
        ("scatter-inplace", "64KiB"),
        ("scatterv", "5B"),
    ];
    let cases: Vec<String> = ops
        .iter()
        .flat_map(|(op, size)| {
            [
                format!("r0.numa0.paged > r1.numa0.paged by mpi@numa0[{op}] x {size}"),
                format!("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[{op}] x {size}"),
            ]
        })
        .collect();
    for name in ["mpich", "openmpi"] {
        let Some((launcher, _alone)) = mpirun(name) else { continue };
        let args: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
        let journal = Launch::new(&launcher, &[]).run(&args);
        is_whole(&journal, cases.len());
        let wrong: Vec<_> = journal.outcomes.iter().filter(|o| !verified(o)).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

#[test]
fn device_memory_is_tried_outside_the_run() {
    for name in ["mpich", "openmpi"] {
        let Some((launcher, _alone)) = mpirun(name) else { continue };
        let how = Launch::new(&launcher, &[]).finding(&[]).unwrap();
        assert!(how.starts_with("tried with ") && how.contains("mpirun"), "{how}");
        assert!(how.ends_with(" -n 2: every byte arrived"), "{how}");
    }
}

#[test]
fn the_option_for_device_memory_holds() {
    let Some((launcher, _alone)) = mpirun("mpich") else { return };
    let taken = Launch::new(&launcher, &[]).finding(&["--device-memory", "yes"]);
    assert_eq!(taken.unwrap(), "--device-memory yes was given");
    let mut launch = Launch::new(&launcher, &[]);
    launch.command.env("PATHLINE_DEVICE_MEMORY", "no");
    assert_eq!(launch.finding(&[]).unwrap_err(), "--device-memory no was given");
    // The command line comes before the environment.
    let mut launch = Launch::new(&launcher, &[]);
    launch.command.env("PATHLINE_DEVICE_MEMORY", "no");
    assert!(launch.finding(&["--device-memory", "try"]).unwrap().starts_with("tried with "));
}

/// The library of MPICH's ABI of a launcher's installation.
fn library_of(launcher: &Path) -> PathBuf {
    let prefix = launcher.parent().and_then(Path::parent).unwrap();
    let places = [
        "lib/libmpi.so.12".to_owned(),
        format!("lib/{}-linux-gnu/libmpich.so.12", std::env::consts::ARCH),
    ];
    places.iter().map(|p| prefix.join(p)).find(|p| p.exists()).unwrap()
}

/// A library in a separate folder that has these functions, and passes everything else on to `real`.
fn wrap_library(folder: &Path, source: &str, real: &Path) {
    fs::create_dir(folder.join("mpi")).unwrap();
    fs::write(folder.join("mpi.c"), source).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([folder.join("mpi/libmpi.so.12"), folder.join("mpi.c")])
        .arg(format!("-Wl,--no-as-needed,-rpath,{}", real.parent().unwrap().display()))
        .arg(real)
        .status()
        .unwrap();
    assert!(status.success());
}

/// A library that dies in one operation, as Open MPI of a wheel does in all_gather of device memory (which
/// pathline tries when it opens a library, so this one dies in gather):
/// pathline launches its processes again for the rest, and each case has the environment that it needs.
#[test]
fn a_launched_rank_that_dies_costs_its_case() {
    let Some((launcher, _alone)) = mpirun("mpich") else { return };
    let folder = TempDir::new().unwrap();
    let dies = "#include <signal.h>\nint MPI_Gather(void) { return raise(SIGSEGV); }\n";
    wrap_library(folder.path(), dies, &library_of(&launcher));
    let of = |op: &str| format!("r0.numa0.paged > r1.numa0.paged by mpi@numa0[{op}] x 1KiB");
    let ops = ["ping", "gather", "all_reduce", "all_reduce,proto-v1"];
    let out = folder.path().join("run");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", RUN_TIMEOUT]).arg(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(["run", "--quiet", "--case-budget", "20", "--ranks", "2", "--mpirun"]);
    command.arg(&launcher).arg("--out").arg(&out);
    command.args(ops.iter().flat_map(|op| ["--case".to_owned(), of(op)]));
    command.env("PATHLINE_MPI", folder.path().join("mpi")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = unwrapped(&output.stderr);
    let journal = journal(&out);
    is_whole(&journal, ops.len());
    let outcome = |op: &str| {
        journal.outcomes.iter().find(|o| o.case().to_string() == of(op)).unwrap_or_else(|| {
            panic!("{op}: {text}");
        })
    };
    for op in ["ping", "all_reduce"] {
        assert!(verified(outcome(op)), "{:?}", outcome(op));
    }
    let CaseOutcome::Faulted(fault) = outcome("gather") else { panic!("{text}") };
    assert!(fault.error.contains("mpirun"), "{}", fault.error);
    // The processes have the variable; whether it has an effect depends on what this MPI sends by.
    match outcome("all_reduce,proto-v1") {
        CaseOutcome::Measured(m) => {
            assert!(m.series[0].engine.contains("UCX_PROTO_ENABLE=n"), "{:?}", m.series[0].engine);
        }
        CaseOutcome::Skipped(skip) => {
            assert!(skip.why.contains("so UCX's settings do nothing"), "{}", skip.why);
        }
        other => panic!("{other:?}"),
    }
}

fn script(at: &Path, text: &str) {
    fs::write(at, text).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A machine with Slurm alone: `srun` starts processes, and no `mpirun` is installed.
struct Slurm {
    folder: TempDir,
    launcher: PathBuf,
}

impl Slurm {
    /// The MPI reports that it takes device memory if `takes`; `srun` in a step runs the script
    /// `srun`, where `launch` stands for the launcher with the program and its arguments.
    fn new(launcher: &Path, takes: bool, srun: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let takes = u8::from(takes);
        let source = format!(
            "int MPIX_Query_cuda_support(void) {{ return {takes}; }}\n\
             int MPIX_GPU_query_support(int kind, int *is) {{ *is = {takes}; return 0; }}\n"
        );
        // With no launcher near it.
        wrap_library(folder.path(), &source, &library_of(launcher));
        // Of the launcher that stands in for Slurm's, Slurm's variables alone are left.
        script(
            &at("task"),
            "#!/bin/sh\nunset MPI_LOCALNRANKS MPI_LOCALRANKID\n\
             export SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$PMI_SIZE \
             SLURM_STEP_NUM_NODES=1 SLURM_PROCID=$PMI_RANK SLURM_LOCALID=$PMI_RANK\n\
             export SLURMD_NODENAME=nid001\nexec \"$@\"\n",
        );
        fs::create_dir(at("bin")).unwrap();
        script(
            &at("bin/srun"),
            &format!(
                "#!/bin/sh\nPATH=/usr/bin:/bin\necho \"$@\" >>{}\n\
                 while case \"$1\" in --*) true;; *) false;; esac; do shift; done\n\
                 launch() {{ exec {} -n 2 \"$@\"; }}\n{srun}\n",
                at("arguments").display(),
                launcher.display()
            ),
        );
        Self { folder, launcher: launcher.to_owned() }
    }

    fn finding(&self, args: &[&str]) -> Result<String, String> {
        let at = |name: &str| self.folder.path().join(name);
        // The launcher needs its own path, the processes must not find it.
        let path = format!("#!/bin/sh\nPATH={} exec \"$@\"\n", at("bin").display());
        script(&at("env"), &path);
        let mut launch = Launch::new(&self.launcher, &[&at("env"), &at("task")]);
        launch.command.env("PATHLINE_MPI", at("mpi"));
        launch.finding(args)
    }

    /// Arguments that `srun` was called with, a line each time.
    fn arguments(&self) -> String {
        fs::read_to_string(self.folder.path().join("arguments")).unwrap_or_default()
    }
}

#[test]
fn a_job_of_slurm_tries_device_memory_by_srun() {
    let Some((launcher, _alone)) = mpirun("mpich") else { return };
    let slurm = Slurm::new(&launcher, false, "launch \"$@\"");
    let how = slurm.finding(&[]).unwrap();
    assert!(how.contains("/bin/srun --overlap -n 2: every byte arrived"), "{how}");
    let arguments = slurm.arguments();
    assert_eq!(arguments.lines().count(), 1, "{arguments}");
    for word in ["--overlap", "--jobid=77", "--nodelist=nid001", "--ntasks=2", "rank --probe"] {
        assert!(arguments.contains(word), "{word}: {arguments}");
    }
    // A process that does not measure dies of it. srun ends as its task does; MPICH's launcher in its place
    // sometimes says that its process manager failed.
    let dies = "sh -c 'echo \"pathline: device memory goes out\" >&2; kill -SEGV $$'; exit 139";
    let how = Slurm::new(&launcher, true, dies).finding(&[]).unwrap_err();
    assert!(how.contains("srun --overlap -n 2: the processes ended with"), "{how}");
    assert!(how.ends_with("--device-memory yes overrides this"), "{how}");
}

#[test]
fn without_a_launcher_the_library_is_believed() {
    let Some((launcher, _alone)) = mpirun("mpich") else { return };
    let refuses = "echo 'srun: error: Unable to create step for job 77' >&2; exit 1";
    let how = Slurm::new(&launcher, true, refuses).finding(&[]).unwrap();
    assert!(
        how.starts_with("MPIX_Query_cuda_support reports support; it could not be tried: "),
        "{how}"
    );
    assert!(how.contains("Unable to create step for job 77"), "{how}");
    let how = Slurm::new(&launcher, false, refuses).finding(&[]).unwrap_err();
    assert!(how.starts_with("MPIX_Query_cuda_support reports no support;"), "{how}");
    assert!(how.ends_with("--device-memory yes overrides this"), "{how}");
    // With --device-memory yes nothing is tried.
    let slurm = Slurm::new(&launcher, false, refuses);
    let how = slurm.finding(&["--device-memory", "yes"]).unwrap();
    assert_eq!((how.as_str(), slurm.arguments().as_str()), ("--device-memory yes was given", ""));
}
