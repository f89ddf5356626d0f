//! Libraries of vendors that are cut off, hang, crash, end their process or make no sense: each is named,
//! and costs nothing but itself.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pathline_schema::Outcome;
use tempfile::TempDir;

use crate::common::journal;

/// A quick real case that needs no feature of the processor.
const QUICK: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";
/// Far more than any command here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every function of HIP that a runtime must have, but those that say what it is and has.
const HIP: &str = "hipInit hipDeviceGet hipDeviceGetName hipDeviceTotalMem hipDeviceGetAttribute \
    hipDeviceGetPCIBusId hipMemGetInfo hipMalloc hipFree hipHostMalloc hipHostFree hipHostRegister \
    hipHostUnregister hipMallocManaged hipMemAdvise hipMemPrefetchAsync hipDeviceCanAccessPeer \
    hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamQuery \
    hipStreamWaitEvent hipEventCreateWithFlags hipEventDestroy hipEventRecord \
    hipEventElapsedTime hipMemcpyHtoD hipMemcpyDtoH hipModuleLoadData hipModuleUnload \
    hipModuleGetFunction hipModuleLaunchKernel hipSetDevice hipDeviceEnablePeerAccess \
    hipMemcpyAsync";

/// A folder of libraries that were compiled for a test, and of what the program writes.
struct Node {
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a library; functions of `more` return 0.
    fn library(&self, name: &str, source: &str, more: &str) -> PathBuf {
        let c = self.path("source.c");
        let more: String =
            more.split_whitespace().map(|f| format!("int {f}(void) {{ return 0; }}\n")).collect();
        fs::write(&c, format!("{source}\n{more}")).unwrap();
        let library = self.path("lib").join(name);
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .args([&library, &c])
            .output()
            .expect("a C compiler (cc), which these tests need");
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        library
    }

    /// Runs the program with these libraries before all others; ends it if it hangs.
    fn pathline(&self, args: &[&str], env: &[(&str, &Path)]) -> Output {
        let (out, err) = (self.path("out"), self.path("err"));
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
        command.args(args).stdin(Stdio::null()).envs(env.iter().copied());
        command.env("LD_LIBRARY_PATH", self.path("lib")).env("XDG_CACHE_HOME", self.folder.path());
        for name in ["PATHLINE_MPI", "PATHLINE_UCX", "PATHLINE_NVRTC", "ROCM_PATH", "CUDA_HOME"] {
            command.env_remove(name);
        }
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("{args:?} hangs; so far: {}", text(&fs::read(&out).unwrap()));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Output { status, stdout: fs::read(out).unwrap(), stderr: fs::read(err).unwrap() }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first half of a library that is whole: the linker maps it, and touching the rest is SIGBUS.
fn half_of_a_library() -> Vec<u8> {
    let libc =
        ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    let whole = libc.iter().find_map(|path| fs::read(path).ok()).expect("libc where Linux has it");
    whole[..whole.len() / 2].to_vec()
}

#[test]
fn a_hip_runtime_that_lists_no_gpu_leaves_the_host() {
    let node = Node::new();
    let hip = node.library(
        "libamdhip64.so.6",
        "int hipGetDeviceCount(int *count) { *count = 0; return 0; }\n\
         int hipRuntimeGetVersion(int *version) { *version = 60443484; return 0; }",
        HIP,
    );
    let out = node.path("run");
    let args = ["run", "--quiet", "--case", QUICK, "--out", out.to_str().unwrap()];
    let output = node.pathline(&args, &[("PATHLINE_HIP", &hip)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let outcomes = journal(&out).outcomes;
    assert!(matches!(&outcomes[..], [Outcome::Measured(_)]), "{outcomes:?}");
    let doctor = text(&node.pathline(&["doctor"], &[("PATHLINE_HIP", &hip)]).stdout);
    assert!(doctor.contains("hipGetDeviceCount succeeds and lists no GPU"), "{doctor}");
}

#[test]
fn a_library_that_is_cut_off_or_no_plain_file_is_not_opened_by_its_name() {
    for (what, why) in [("half", "cut off: "), ("fifo", "no plain file but a FIFO")] {
        let node = Node::new();
        // All of these are found by the linker, under their bare names.
        let names =
            ["libmpi.so.12", "libmpi_abi.so.1", "libibverbs.so.1", "libucp.so.0", "libcufile.so.0"];
        for name in names {
            let path = node.path("lib").join(name);
            match what {
                "half" => fs::write(path, half_of_a_library()).unwrap(),
                _ => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
            }
        }
        let output = node.pathline(&["doctor"], &[]);
        let doctor = text(&output.stdout);
        assert!(
            output.status.code().is_some_and(|code| code < 2),
            "{doctor}{}",
            text(&output.stderr)
        );
        for name in names {
            let refused = format!("not {}: {why}", node.path("lib").join(name).display());
            assert!(doctor.contains(&refused), "{refused}\n{doctor}");
        }
        // A rank of a launcher opens MPI, whose library ends no process.
        let out = node.path("run");
        let case = "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy] x 8B";
        let args =
            ["run", "--quiet", "--ranks", "2", "--case", case, "--out", out.to_str().unwrap()];
        let output = node.pathline(&args, &[]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output.stderr));
    }
}
