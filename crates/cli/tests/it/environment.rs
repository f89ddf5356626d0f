//! Hosts that give less than usual: one core, no threads, little memory, no room, nobody who reads.
//! Whatever is refused, a run ends with a code and a reason: no panic, no hang.
//!
//! A test whose surroundings cannot be made here fails if the machine promises them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pathline_stub::need::missing;
use tempfile::TempDir;

use crate::common::unwrapped;

/// A quick real case that needs no feature of the processor.
const QUICK: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";
/// Far more than any run here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn binary() -> &'static Path {
    Path::new(assert_cmd::cargo::cargo_bin!("pathline"))
}

/// Runs a line of the shell in `dir`, in which `pathline` and `QUICK` stand for themselves; kills
/// it if it hangs.
fn shell(dir: &Path, line: &str) -> Output {
    let (out, err) = (dir.join("shell-out"), dir.join("shell-err"));
    let mut child = Command::new("sh")
        .args(["-c", &format!("pathline() {{ \"$PATHLINE\" \"$@\"; }}; {line}")])
        .env("PATHLINE", binary())
        .env("QUICK", QUICK)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).expect("a file"))
        .stderr(fs::File::create(&err).expect("a file"))
        .spawn()
        .expect("a shell");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("`{line}` hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    Output { status, stdout: read(&out), stderr: read(&err) }
}

/// The exit code and standard error, after looking for a panic.
fn ended(output: &Output) -> (i32, String) {
    let err = unwrapped(&output.stderr);
    let code = output.status.code().unwrap_or(-1);
    assert!(!err.contains("panicked"), "{err}");
    (code, err)
}

/// Whether a line of the shell works here. If not, and the machine promises `what`, the test fails.
fn possible(dir: &Path, what: &str, line: &str) -> bool {
    let works = shell(dir, line).status.success();
    if !works {
        missing(what, &format!("`{line}` does not work here"));
    }
    works
}

/// Runs a line of the shell as a user whom limits bind: as `nobody`, if this is the superuser.
fn shell_as_user(dir: &Path, line: &str) -> Output {
    if !rustix::process::getuid().is_root() {
        return shell(dir, line);
    }
    // Folders above the program may be closed to others.
    let program = dir.join("pathline");
    fs::copy(binary(), &program).expect("a copy of the program");
    fs::write(dir.join("line"), format!("pathline() {{ \"$PATHLINE\" \"$@\"; }}; {line}"))
        .expect("a script");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("a folder for all");
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups sh ./line";
    shell(dir, &format!("export PATHLINE='{}'; {nobody}", program.display()))
}

#[test]
fn one_core_is_enough() {
    let dir = TempDir::new().unwrap();
    // The first CPU that this process may use is not 0 everywhere.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.and_then(|l| l.trim().split([',', '-']).next()).unwrap_or("0");
    if !possible(dir.path(), "taskset", &format!("taskset -c {first} true")) {
        return;
    }
    let line =
        format!("taskset -c {first} \"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -o run -q");
    let (code, err) = ended(&shell(dir.path(), &line));
    assert_eq!(code, 0, "{err}");
    // A plan for one core has no case of two threads.
    let plan = shell(dir.path(), &format!("taskset -c {first} \"$PATHLINE\" run --dry-run"));
    assert!(!String::from_utf8_lossy(&plan.stdout).contains("-t2]"));
}

#[test]
fn a_variable_without_a_value_is_not_set() {
    let dir = TempDir::new().unwrap();
    let line = "export PATHLINE_CUDA= PATHLINE_NVRTC= PATHLINE_LIBRARY_TIMEOUT= PATHLINE_RENDEZVOUS=; \
                export PATHLINE_DEVICE_MEMORY=; pathline run --case-budget 20ms -c \"$QUICK\" -o run -q";
    let (code, err) = ended(&shell(dir.path(), line));
    assert_eq!(code, 0, "{err}");
    let (code, err) = ended(&shell(dir.path(), &line.replace("MEMORY=", "MEMORY=x")));
    assert!(code == 2 && err.contains("invalid value 'x' for '--device-memory"), "{code}: {err}");
}

#[test]
fn a_host_without_sys_or_proc_names_what_is_missing() {
    let dir = TempDir::new().unwrap();
    let hidden = |what: &str, then: &str| {
        format!("unshare -rm sh -c 'mount -t tmpfs none {what} && {then}'")
    };
    for what in ["/sys", "/proc"] {
        if !possible(dir.path(), "unshare", &hidden(what, "true")) {
            continue;
        }
        let run = format!(
            "\"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -q -o run{}",
            what.replace('/', "-")
        );
        let (code, err) = ended(&shell(dir.path(), &hidden(what, &run)));
        assert_eq!(code, 0, "{what}: {err}");
    }
    if possible(dir.path(), "unshare", &hidden("/sys", "true")) {
        let topo = shell(dir.path(), &hidden("/sys", "\"$PATHLINE\" topo"));
        assert!(String::from_utf8_lossy(&topo.stdout).contains("/sys"));
        let both = hidden("/sys", "mount -t tmpfs none /proc && \"$PATHLINE\" run -q -o none");
        assert_eq!(ended(&shell(dir.path(), &both)).0, 3, "nothing can be measured");
    }
}

#[test]
fn small_limits_cost_cases_not_the_run() {
    let dir = TempDir::new().unwrap();
    // Of address space, in KiB: the last leaves 8 MiB in addition to the program.
    let program = fs::metadata(env!("CARGO_BIN_EXE_pathline")).unwrap().len() / 1024;
    let spaces = [1_000_000, 400_000, program + 32_768, program + 8_192];
    let spaces = spaces.map(|kib| format!("-v {kib}"));
    let others = ["-l 0", "-n 16", "-n 6"].map(str::to_owned);
    for (nth, limit) in spaces.iter().chain(&others).enumerate() {
        let line = format!(
            "ulimit {limit} || exit 99; pathline run --case-budget 20ms -c \"$QUICK\" \
             -c 'numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 8MiB' -q -o run{nth}"
        );
        let (code, err) = ended(&shell(dir.path(), &line));
        match code {
            99 => missing("ulimit", &format!("ulimit {limit} does not work here")),
            // Measured, or nothing could be, or no file could be opened.
            0 | 2 | 3 => assert!(code != 2 || !err.is_empty()),
            // An allocator that gets nothing can only abort.
            134 | -1 if err.contains("memory allocation") => {}
            _ => {
                let journal = fs::read_to_string(dir.path().join(format!("run{nth}/run.jsonl")));
                let journal = journal.unwrap_or_default();
                let faults: Vec<_> = journal.lines().filter(|l| l.contains("faulted")).collect();
                panic!("ulimit {limit}: code {code}, {err} {faults:?}")
            }
        }
    }
}

#[test]
fn a_small_stack_and_little_memory_end_no_command_by_a_signal() {
    let dir = TempDir::new().unwrap();
    let commands = [
        "topo",
        "run --dry-run -m mi250x",
        "doctor",
        "run -m mi250x --suite pairs --case-budget 0.02 -q -o run",
    ];
    for command in commands {
        let (code, err) = ended(&shell(dir.path(), &format!("ulimit -s 256; pathline {command}")));
        assert_eq!(code, 0, "{command}: {err}");
        // In MiB, around the size of the program.
        let mut seen = Vec::new();
        for memory in (30..140).step_by(5) {
            let line = format!("rm -rf run; ulimit -v {}; pathline {command}", memory << 10);
            let (code, err) = ended(&shell(dir.path(), &line));
            seen.push(code);
            match code {
                0 | 3 => break,
                2 => assert!(err.contains("`ulimit -v` leaves"), "{memory} MiB: {err}"),
                // The kernel cannot map the program, or the linker its libraries; or nothing is left behind it.
                127 | 139 => {}
                134 if err.contains("memory allocation") && !seen.contains(&2) => {}
                _ => panic!("{command}, {memory} MiB: code {code}, {err}"),
            }
        }
        assert!(matches!(seen.last(), Some(0 | 3)) && seen.contains(&2), "{command}: {seen:?}");
    }
}

#[test]
fn threads_that_cannot_be_started_are_a_reason_not_a_panic() {
    let dir = TempDir::new().unwrap();
    // The limit does not bind the superuser, and counts what else the user runs: with 1 no thread can
    // be started, but the program itself is there already through exec.
    // Not every shell's ulimit knows this limit.
    let line = "command -v prlimit >&2 || exit 99; \
                exec prlimit --nproc=1:1 \"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -o run";
    match ended(&shell_as_user(dir.path(), line)) {
        (99, _) => missing("ulimit", "there is no prlimit here"),
        (3, err) => {
            let journal = fs::read_to_string(dir.path().join("run/run.jsonl")).unwrap();
            assert!(journal.contains("pthread_create") && journal.contains("ulimit -u"), "{err}");
        }
        (code, err) => panic!("code {code}: {err}"),
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = TempDir::new().unwrap();
    let quick = "pathline run --case-budget 20ms -c \"$QUICK\"";
    for line in [
        "{ pathline run --dry-run; echo $? >code; } | head -n 1",
        "{ pathline topo --json; echo $? >code; } | true",
        "{ pathline completions bash; echo $? >code; } | true",
        "{ pathline man; echo $? >code; } | true",
        &format!("{{ {quick} -o a 2>&1; echo $? >code; }} | true"),
        &format!("{quick} -o b >&-; echo $? >code"),
        &format!("{quick} -o c <&- >&- 2>&-; echo $? >code"),
    ] {
        let _ = ended(&shell(dir.path(), line));
        let code = fs::read_to_string(dir.path().join("code")).unwrap_or_default();
        assert_eq!(code.trim(), "0", "{line}");
    }
    for run in ["a", "b", "c"] {
        assert!(dir.path().join(run).join("report.html").exists(), "{run}");
    }
}

#[test]
fn a_full_disk_is_named() {
    let dir = TempDir::new().unwrap();
    if possible(dir.path(), "dev-full", "test -w /dev/full") {
        let (code, err) = ended(&shell(dir.path(), "pathline run --dry-run >/dev/full"));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("standard output"), "{err}");
        // Nobody hears of it, and the run goes on.
        let line = "pathline run --case-budget 20ms -c \"$QUICK\" -o run 2>/dev/full";
        assert_eq!(ended(&shell(dir.path(), line)).0, 0);
    }
    // 4 KiB hold the beginning of a journal only.
    let small = |then: &str| {
        let mount = "mkdir -p full && mount -t tmpfs -o size=4k none full";
        format!("unshare -rm sh -c '{mount} && {then}'")
    };
    if possible(dir.path(), "unshare", &small("true")) {
        let line = small("\"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -q -o full/run");
        let (code, err) = ended(&shell(dir.path(), &line));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("full/run") && err.contains("--out"), "{err}");
    }
}

#[test]
fn a_folder_that_takes_no_files_is_named() {
    let dir = TempDir::new().unwrap();
    let line = "mkdir ro && chmod 555 ro && cd ro && { touch probe 2>/dev/null && exit 99; } ; \
                pathline run --case-budget 20ms -c \"$QUICK\" -q";
    match ended(&shell_as_user(dir.path(), line)) {
        (99, _) => missing("user", "this user may write anywhere"),
        (code, err) => {
            assert_eq!(code, 2, "{err}");
            assert!(err.contains("runs/") && err.contains("--out"), "{err}");
        }
    }
    // A file in place of a folder stops the superuser, too.
    let (code, err) = ended(&shell(
        dir.path(),
        "touch file; pathline run --case-budget 20ms -c \"$QUICK\" -q -o file/run",
    ));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("file/run"), "{err}");
}

#[test]
fn a_bare_environment_and_odd_names_do_not_matter() {
    let dir = TempDir::new().unwrap();
    let line =
        "env -i LC_ALL=xx_YY TERM= \"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -o 'a b/ü%n'";
    let (code, err) = ended(&shell(dir.path(), line));
    assert_eq!(code, 0, "{err}");
    assert!(dir.path().join("a b/ü%n/report.html").exists());
    if possible(dir.path(), "unshare", "unshare -ru hostname 'x' 2>/dev/null") {
        // Not a name that DNS would take, but the kernel does.
        let odd = "echo '-o ..:$x' >/proc/sys/kernel/hostname";
        let line = format!(
            "unshare -ru sh -c \"{odd}\"'; \"$PATHLINE\" run --case-budget 20ms -c \"$QUICK\" -q'"
        );
        let (code, err) = ended(&shell(dir.path(), &line));
        assert_eq!(code, 0, "{err}");
        assert_eq!(fs::read_dir(dir.path().join("runs")).unwrap().count(), 1);
    }
}

#[test]
fn any_amount_of_memory_may_be_asked_for() {
    let dir = TempDir::new().unwrap();
    // An exabyte for one case: it is skipped, and nothing else was asked for.
    let line = "pathline run --memory 2000000TiB -q -o much \
                -c 'numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1000000TiB'";
    let (code, err) = ended(&shell(dir.path(), line));
    assert_eq!(code, 3, "{err}");
    let (code, err) = ended(&shell(
        dir.path(),
        "pathline run --memory 1KiB --case-budget 20ms -c \"$QUICK\" -q -o little",
    ));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let dir = TempDir::new().unwrap();
    for (variables, base) in [
        ("-u XDG_CACHE_HOME HOME=\"$PWD/home\"", "home"),
        ("HOME=\"$PWD\" XDG_CACHE_HOME=\"$PWD/cache\"", "cache"),
    ] {
        let output = shell(dir.path(), &format!("env {variables} \"$PATHLINE\" doctor"));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let why = format!("compiled kernels are not kept: {}", dir.path().join(base).display());
        assert!(stdout.contains(&why) && stdout.contains("is not there"), "{stdout}");
        assert!(!dir.path().join(base).exists(), "{base}");
    }
    // Of a home that is there nothing is made either, until there is a kernel.
    let output = shell(
        dir.path(),
        "mkdir home; env -u XDG_CACHE_HOME HOME=\"$PWD/home\" \"$PATHLINE\" doctor",
    );
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let kept = dir.path().join("home/.cache/pathline/kernels");
    assert!(
        stdout.contains(&format!("compiled kernels will be kept in {}", kept.display())),
        "{stdout}"
    );
    assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 0);
}
