//! Libraries of vendors that are cut off, hang, crash, end their process or make no sense: each is named,
//! and costs nothing but itself.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pathline_schema::CaseOutcome;
use tempfile::TempDir;

use crate::common::journal;

/// A quick real case that needs no feature of the processor.
const QUICK: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";
/// Far more than any command here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every function of HIP that a runtime must have, except the functions that describe it.
const HIP: &str = "hipInit hipDeviceGet hipDeviceGetName hipDeviceTotalMem hipDeviceGetAttribute \
    hipDeviceGetPCIBusId hipMemGetInfo hipMalloc hipFree hipHostMalloc hipHostFree hipHostRegister \
    hipHostUnregister hipMallocManaged hipMemAdvise hipMemPrefetchAsync hipDeviceCanAccessPeer \
    hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamQuery \
    hipStreamWaitEvent hipEventCreateWithFlags hipEventDestroy hipEventRecord \
    hipEventElapsedTime hipMemcpyHtoD hipMemcpyDtoH hipModuleLoadData hipModuleUnload \
    hipModuleGetFunction hipModuleLaunchKernel hipSetDevice hipDeviceEnablePeerAccess \
    hipMemcpyAsync";

/// Functions that the other libraries must have, by library.
const NVRTC: &str = "nvrtcCreateProgram nvrtcDestroyProgram nvrtcCompileProgram \
    nvrtcGetProgramLogSize nvrtcGetProgramLog nvrtcGetCUBINSize nvrtcGetCUBIN";
const NVML: &str = "nvmlDeviceGetCount_v2 nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetPciInfo_v3";
const CUFILE: &str = "cuFileDriverOpen cuFileHandleRegister cuFileHandleDeregister \
    cuFileBufRegister cuFileBufDeregister cuFileRead cuFileWrite";
const VERBS: &str = "ibv_free_device_list ibv_get_device_name ibv_open_device ibv_close_device \
    ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr";
const UCX: &str = "ucs_status_string ucp_config_read ucp_config_release ucp_config_modify \
    ucp_config_print ucp_init_version ucp_cleanup ucp_worker_create ucp_worker_destroy \
    ucp_worker_get_address ucp_worker_release_address ucp_worker_progress ucp_ep_create \
    ucp_ep_close_nbx ucp_ep_flush_nbx ucp_ep_print_info ucp_mem_map ucp_mem_unmap ucp_mem_query \
    ucp_rkey_pack ucp_rkey_buffer_release ucp_ep_rkey_unpack ucp_rkey_destroy ucp_tag_send_nbx \
    ucp_tag_recv_nbx ucp_put_nbx ucp_get_nbx ucp_request_check_status ucp_request_query \
    ucp_request_free ucp_atomic_op_nbx";

/// Replacement for the body of a function, in C: `out` is where its result would go.
const HANG: &str = "for (;;) pause();";
const CRASH: &str = "*(volatile int *)8 = 1;";
const EXIT: &str = "exit(0);";
const GARBAGE: &str = "if (out) memset(out, 0x7f, 4); return 0x7f7f7f7f;";

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

    /// The libraries of all vendors, each with one function that does not do its work, by the name of
    /// that function.
    fn all_misbehave(&self, what: &str) -> Vec<(PathBuf, &'static str)> {
        let act = format!(
            "#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
             static long act(void *out) {{ {what} return 0; }}\n"
        );
        let cuda = "static int version(int *v) { return act(v); }\n\
            static int fine(void) { return 0; }\n\
            int cuGetProcAddress_v2(const char *name, void **at, int v, long flags, int *status) {\n\
              *at = strcmp(name, \"cuDriverGetVersion\") ? (void *)fine : (void *)version;\n\
              return 0;\n\
            }";
        let simple = |function: &str| format!("long {function}(void *out) {{ return act(out); }}");
        let mpi = simple("MPI_Get_library_version");
        let hip = format!(
            "int hipGetDeviceCount(int *n) {{ *n = 0; return 0; }}\n{}",
            simple("hipRuntimeGetVersion")
        );
        let all: [(&str, &'static str, String, &str); 8] = [
            ("libcuda.so.1", "cuDriverGetVersion", cuda.to_owned(), ""),
            ("libamdhip64.so.6", "hipRuntimeGetVersion", hip, HIP),
            ("libnvrtc.so.12", "nvrtcVersion", simple("nvrtcVersion"), NVRTC),
            ("libnvidia-ml.so.1", "nvmlInit_v2", simple("nvmlInit_v2"), NVML),
            ("libcufile.so.0", "cuFileGetVersion", simple("cuFileGetVersion"), CUFILE),
            ("libibverbs.so.1", "ibv_get_device_list", simple("ibv_get_device_list"), VERBS),
            ("libmpi.so.12", "MPI_Get_library_version", mpi, "MPI_Init_thread"),
            ("libucp.so.0", "ucp_get_version", simple("ucp_get_version"), UCX),
        ];
        let compile = |(name, function, source, more): (&str, _, String, &str)| {
            (self.library(name, &format!("{act}{source}"), more), function)
        };
        all.map(compile).to_vec()
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
        // Far more than any call here takes, also on a busy machine.
        command.env("PATHLINE_LIBRARY_TIMEOUT", "8");
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
    let args = [
        "run",
        "--quiet",
        "--case-budget",
        "20ms",
        "--case",
        QUICK,
        "--out",
        out.to_str().unwrap(),
    ];
    let output = node.pathline(&args, &[("PATHLINE_HIP", &hip)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let outcomes = journal(&out).outcomes;
    assert!(matches!(&outcomes[..], [CaseOutcome::Measured(_)]), "{outcomes:?}");
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
        let args = [
            "run",
            "-q",
            "--ranks",
            "2",
            "--case-budget",
            "20ms",
            "--case",
            case,
            "--out",
            out.to_str().unwrap(),
        ];
        let output = node.pathline(&args, &[]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output.stderr));
    }
}

#[test]
fn doctor_names_each_library_that_ends_or_holds_a_process_and_the_call() {
    for (what, fate) in [
        (HANG, "CALL does not return (8 s)"),
        (CRASH, "in CALL the process was ended by signal 11 (SIGSEGV)"),
        (EXIT, "in CALL the process ended with code 0"),
    ] {
        let node = Node::new();
        let libraries = node.all_misbehave(what);
        let begun = Instant::now();
        let output = node.pathline(&["doctor"], &[]);
        let doctor = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{doctor}{}", text(&output.stderr));
        for (path, function) in libraries {
            let line = format!("not {}: {}", path.display(), fate.replace("CALL", function));
            assert!(doctor.contains(&line), "{line}\n{doctor}");
        }
        assert!(doctor.contains(" io_uring: ") && doctor.contains("unusable"), "{doctor}");
        // Three waits one after another (NVML, runtime, compiler), not eight.
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}

#[test]
fn doctor_survives_libraries_that_make_no_sense() {
    let node = Node::new();
    let libraries = node.all_misbehave(GARBAGE);
    let output = node.pathline(&["doctor"], &[]);
    let doctor = text(&output.stdout);
    assert!(output.status.code().is_some_and(|code| code < 2), "{doctor}{}", text(&output.stderr));
    for (path, _) in libraries {
        assert!(doctor.contains(&path.display().to_string()), "{}\n{doctor}", path.display());
    }
    // A list of two thousand million devices at an address that is none.
    let lost = "in ibv_get_device_name the process was ended by signal";
    assert!(doctor.contains(lost), "{doctor}");
    assert!(doctor.contains("nvmlInit returns 2139062143"), "{doctor}");
    assert!(doctor.contains("is newer than 1.x"), "{doctor}");
}

#[test]
fn read_only_commands_open_no_library() {
    let node = Node::new();
    let libraries = node.all_misbehave(CRASH);
    let path = |function: &str| {
        let of = |(path, name): &&(PathBuf, &str)| {
            (*name == function).then(|| path.display().to_string())
        };
        libraries.iter().find_map(|l| of(&l)).unwrap()
    };
    let stdout_of = |args: &[&str]| {
        let output = node.pathline(args, &[]);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stdout}{}", text(&output.stderr));
        stdout
    };
    let topo = stdout_of(&["topo"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let nvml = format!("NVML was not read: {}: in nvmlInit_v2 the process", path("nvmlInit_v2"));
    assert!(topo.contains(&nvml), "{topo}");
    let gpu = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
    stdout_of(&["run", "--dry-run", "--case", gpu]);
    assert!(stdout_of(&[]).contains("pathline run"));
    // A run goes on without them.
    let out = node.path("run");
    stdout_of(&[
        "run",
        "--quiet",
        "--case-budget",
        "20ms",
        "--case",
        QUICK,
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(matches!(&journal(&out).outcomes[..], [CaseOutcome::Measured(_)]));
}

#[test]
fn a_driver_that_does_not_start_is_named_with_its_first_call() {
    let node = Node::new();
    let hip = node.library(
        "libamdhip64.so.6",
        "#include <unistd.h>\nint hipInit(int flags) { for (;;) pause(); }\n\
         int hipGetDeviceCount(int *count) { *count = 2; return 0; }\n\
         int hipRuntimeGetVersion(int *version) { *version = 60443484; return 0; }",
        &HIP.replace("hipInit ", ""),
    );
    let output = node.pathline(&["doctor"], &[("PATHLINE_HIP", &hip)]);
    let doctor = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{doctor}");
    let found = format!("HIP runtime (libamdhip64): HIP 6.4.43484 ({})", hip.display());
    assert!(doctor.contains(&found), "{doctor}");
    // HIP 6.4 copies up to 1 MiB between GPUs by a kernel.
    let rule = "copies between GPUs by SDMA engine, up to 1MiB by blit kernel";
    assert!(doctor.contains(rule), "{doctor}");
    let why = format!("none can be measured: {}: hipInit does not return (8 s)", hip.display());
    assert!(doctor.lines().any(|line| line.ends_with(&why)), "{doctor}");
}
