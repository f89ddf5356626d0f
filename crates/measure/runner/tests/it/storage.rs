//! Real files on this machine's disk, by every engine.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{File, FileTimes};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use pathline_hal::{FileStorage, IoDone, IoJob, LocalMemory, Machine, OpenIo};
use pathline_runner::live::live_with;
use pathline_schema::{
    Bytes, Flow, IoEngine, IoFiles, IoOp, IoSpec, MemKind, Severity, StoreFacts, Topology,
    VerifyResult,
};
use pathline_storage::{StoreRequest, WaitLimit};
use pathline_stub::need::missing;

const SEED: u64 = 77;

/// A folder on the disk that this is built on: `/tmp` is page cache on many machines.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn machine(path: &Path, overwrite: bool) -> Machine {
    live_with(
        Topology::default(),
        &[StoreRequest { path: path.to_owned(), span: None, overwrite, endpoint: None }],
    )
}

fn storage(machine: &Machine) -> &dyn FileStorage {
    machine.storage.as_deref().unwrap()
}

fn io(engine: &str, args: &str) -> IoSpec {
    let text = format!("r0.store0.file > r0.numa0.paged by {engine}@numa0[{args}] x 4KiB");
    let write = format!("r0.numa0.paged > r0.store0.file by {engine}@numa0[{args}] x 4KiB");
    let flow: Flow = text.parse().or_else(|_| write.parse()).unwrap();
    *flow.by.io().unwrap()
}

/// Open I/O with its memory.
struct Bench<'m> {
    machine: &'m Machine,
    id: pathline_hal::IoId,
    address: u64,
    bytes: u64,
    io: IoSpec,
}

impl<'m> Bench<'m> {
    fn open(machine: &'m Machine, io: IoSpec, block: u64) -> pathline_hal::CallResult<Self> {
        let bytes = io.slots() * block;
        let address = machine.host.alloc(0, MemKind::Paged, Bytes(bytes)).unwrap();
        let mut bench = Self { machine, id: pathline_hal::IoId(0), address, bytes, io };
        bench.fill(SEED);
        let host = LocalMemory { address, bytes };
        let workers = pathline_hal::WorkerRange::alone(&io);
        let job = IoJob { io, workers, store: 0, block: Bytes(block), numa: 0, host, gpu: None };
        bench.id = storage(machine).open(job, SEED)?;
        Ok(bench)
    }

    fn parts(&self) -> Vec<(u64, u64, u64)> {
        let files = if self.io.files == IoFiles::Own { u64::from(self.io.threads) } else { 1 };
        let each = self.bytes / files;
        (0..files).map(|file| (self.address + file * each, each, file)).collect()
    }

    fn fill(&self, seed: u64) {
        for (address, bytes, file) in self.parts() {
            self.machine.host.fill(address, Bytes(bytes), seed + file, false).unwrap();
        }
    }

    fn sample(&self, ops: u64) -> pathline_hal::CallResult<IoDone> {
        let gate = self.machine.host.gate_create()?;
        storage(self.machine).submit(self.id, gate, ops)?;
        self.machine.host.gate_release(gate)?;
        let done = storage(self.machine).reap(self.id);
        self.machine.host.gate_destroy(gate)?;
        done
    }

    /// Whether what lands is what was sent.
    fn verified(&self) -> pathline_hal::CallResult<VerifyResult> {
        let storage = storage(self.machine);
        if self.io.op == IoOp::Read {
            self.fill(SEED + 1_000_000);
            storage.land(self.id)?;
            let verdict = storage.check(self.id, SEED)?;
            for (address, bytes, file) in self.parts() {
                if verdict == VerifyResult::Verified {
                    let wrong = self.machine.host.check(address, Bytes(bytes), SEED + file)?;
                    assert_eq!(wrong, None, "file {file}");
                }
            }
            return Ok(verdict);
        }
        self.fill(SEED);
        storage.spoil(self.id)?;
        let spoilt = storage.check(self.id, SEED).unwrap_err();
        assert_eq!(spoilt.severity, Severity::Corrupt, "{spoilt}");
        storage.land(self.id)?;
        storage.check(self.id, SEED)
    }

    fn close(self) -> std::collections::BTreeMap<String, pathline_schema::CallTally> {
        let calls = storage(self.machine).close(self.id).unwrap();
        self.machine.host.free(self.address).unwrap();
        calls
    }
}

fn facts(machine: &Machine) -> StoreFacts {
    storage(machine).stores().remove(0)
}

fn names(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect()
}

#[test]
fn every_engine_reads_and_writes_its_blocks() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let mut done = 0;
    for engine in ["uring", "uring-plain", "aio", "sync"] {
        for op in ["seq-read", "rand-read", "seq-write", "rand-write", "rand-mix70"] {
            for (cache, files) in
                [("direct", "shared"), ("direct", "own"), ("cached", "shared"), ("cold", "own")]
            {
                let queue = if engine == "sync" { "q1,n1" } else { "q8,n3" };
                let io = io(engine, &format!("{op},{cache},{files},1MiB,{queue},t3"));
                if let Some(why) = storage(&machine).cannot(0, &io, Bytes(4096)) {
                    missing(engine.trim_end_matches("-plain"), &format!("{engine}[{io}]: {why}"));
                    continue;
                }
                let bench = Bench::open(&machine, io, 4096).unwrap();
                let sample = bench.sample(100).unwrap();
                let reading = &sample.reading;
                // 34, 33 and 33: when the first was done it had done at least its own.
                assert_eq!((sample.ops, reading.latency.count()), (100, 100), "{engine}[{io}]");
                assert!((33..=100).contains(&reading.first_done_ops), "{reading:?}");
                assert!(reading.first_done_ns <= sample.elapsed.0 && sample.elapsed.0 > 0.0);
                // One wait at a time of each of three workers.
                assert!(reading.latency.max_ns as f64 <= sample.elapsed.0, "{engine}[{io}]");
                let calls: u64 = reading.calls.values().map(|c| c.count).sum();
                assert!(calls > 0 && reading.device.is_empty());
                assert_eq!(bench.verified().unwrap(), VerifyResult::Verified, "{engine}[{io}]");
                bench.close();
                done += 1;
            }
        }
    }
    assert!(done >= 40, "{done}");
    assert_eq!(names(dir.path()).len(), 1);
    drop(machine);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn batches_are_handed_over_and_waited_for_together() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let calls = |engine: &str, queue: &str| {
        let io = io(engine, &format!("rand-read,cached,shared,1MiB,{queue},t1"));
        if storage(&machine).cannot(0, &io, Bytes(4096)).is_some() {
            return None;
        }
        let bench = Bench::open(&machine, io, 4096).unwrap();
        let done = bench.sample(800).unwrap();
        let count = done.reading.calls.values().map(|c| c.count).sum::<u64>();
        bench.close();
        Some(count)
    };
    // 800 by 8 are 100 calls; from a full page cache all end at once, so that none is spared.
    assert_eq!(calls("aio", "q8,n8"), Some(100));
    assert_eq!(calls("sync", "q1,n1"), Some(800));
    assert!(calls("uring", "q8,n8").is_none_or(|n| n == 100));
    // Two fill the queue of 16 before anything is waited for.
    assert!(calls("aio", "q16,n8").is_some_and(|n| (99..=101).contains(&n)));
}

#[test]
fn a_named_file_is_read_and_not_changed() {
    let dir = folder();
    let path = dir.path().join("precious");
    let mine: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 7 % 251) as u8).collect();
    std::fs::write(&path, &mine).unwrap();
    // Read last before it was written: the next read is noted, even under `relatime`.
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = FileTimes::new().set_accessed(long_ago);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let machine = machine(&path, false);
    let read = io("aio", "rand-read,direct,shared,1MiB,q4,n1,t2");
    let bench = Bench::open(&machine, read, 4096).unwrap();
    assert_eq!(bench.sample(50).unwrap().ops, 50);
    let verdict = bench.verified().unwrap();
    assert!(matches!(verdict, VerifyResult::Unverified(why) if why.contains("not pathline's")));
    bench.close();
    for args in ["rand-write,direct,shared,1MiB,q4,n1,t2", "rand-mix50,direct,shared,1MiB,q4,n1,t2"]
    {
        let refused = Bench::open(&machine, io("aio", args), 4096).err().unwrap();
        assert!(refused.to_string().contains("--overwrite"), "{refused}");
    }
    // Longer than it, and a file for each worker.
    let long = Bench::open(&machine, io("aio", "rand-read,direct,shared,2MiB,q4,n1,t2"), 4096);
    assert!(long.err().unwrap().reason.contains("it has 1MiB"));
    let own = Bench::open(&machine, io("aio", "rand-read,direct,own,1MiB,q4,n1,t2"), 4096);
    assert!(own.err().unwrap().reason.contains("need a folder"));
    drop(machine);
    assert_eq!(std::fs::metadata(&path).unwrap().accessed().unwrap(), long_ago);
    assert!(std::fs::read(&path).unwrap() == mine);
    assert_eq!(names(dir.path()), [path]);
}

#[test]
fn with_leave_a_named_file_is_written_and_keeps_its_length() {
    let dir = folder();
    let path = dir.path().join("scratch");
    std::fs::write(&path, vec![9; 3 << 20]).unwrap();
    let machine = machine(&path, true);
    for args in ["seq-write,direct,shared,2MiB,q4,n1,t1", "seq-read,direct,shared,2MiB,q4,n1,t1"] {
        let bench = Bench::open(&machine, io("aio", args), 64 << 10).unwrap();
        bench.sample(40).unwrap();
        assert_eq!(bench.verified().unwrap(), VerifyResult::Verified, "{args}");
        bench.close();
    }
    drop(machine);
    let after = std::fs::read(&path).unwrap();
    // The bytes after the span are unchanged.
    assert!(after.len() == 3 << 20 && after[2 << 20..].iter().all(|&b| b == 9));
}

#[test]
fn a_file_that_shrinks_and_a_full_place_are_named() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    for engine in ["uring", "aio", "sync"] {
        let queue = if engine == "sync" { "q1,n1" } else { "q8,n4" };
        let read = io(engine, &format!("seq-read,direct,shared,4MiB,{queue},t2"));
        if storage(&machine).cannot(0, &read, Bytes(4096)).is_some() {
            continue;
        }
        let bench = Bench::open(&machine, read, 4096).unwrap();
        let own = names(dir.path()).remove(0);
        let file = names(&own).into_iter().find(|p| p.to_string_lossy().contains("read-")).unwrap();
        let held = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        held.set_len(1 << 20).unwrap();
        let error = bench.sample(2000).unwrap_err();
        assert!(error.reason.contains("the file ends before it"), "{error}");
        assert!(error.thing.contains("read-"), "{error}");
        held.set_len(4 << 20).unwrap();
        // The next sample is not harmed by the failed one.
        assert_eq!(bench.sample(100).unwrap().ops, 100);
        held.write_all_at(&[1], 100).unwrap();
        bench.close();
    }
    let free = facts(&machine).free.0;
    let span = Bytes((free + (64 << 20)).next_multiple_of(1 << 30));
    let big = io("aio", &format!("seq-read,direct,shared,{span},q8,n4,t2"));
    let error = Bench::open(&machine, big, 4096).err().unwrap();
    assert_eq!(error.severity, Severity::Exhausted);
    assert!(error.reason.contains("stay free"), "{error}");
}

#[test]
fn impossible_jobs_are_refused_before_opening() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let why = |engine: &str, args: &str, block: u64| {
        storage(&machine).cannot(0, &io(engine, args), Bytes(block)).unwrap_or_default()
    };
    assert!(why("aio", "rand-read,direct,shared,1MiB,q4,n1,t2", 1000).contains("multiples of"));
    assert_eq!(why("aio", "rand-read,cached,shared,1MiB,q4,n1,t2", 1000), "");
    // 2 x 256 blocks of 4 KiB are 2 MiB.
    let deep = why("aio", "rand-read,direct,shared,1MiB,q256,n1,t2", 4096);
    assert!(deep.contains("2MiB are in flight"), "{deep}");
    assert_eq!(why("aio", "rand-read,direct,own,1MiB,q256,n1,t2", 4096), "");
    if !facts(&machine).polls {
        let polled = why("uring-poll", "rand-read,direct,shared,1MiB,q4,n1,t2", 4096);
        assert!(polled.contains("poll_queues") || polled.contains("io_uring"), "{polled}");
    }
    assert!(
        storage(&machine)
            .cannot(1, &io("aio", "rand-read,direct,own,1MiB,q2,n1,t2"), Bytes(4096))
            .is_some()
    );
    assert!(IoEngine::Aio.is_asynchronous());
    let gone = live_with(
        Topology::default(),
        &[StoreRequest {
            path: dir.path().join("nothing"),
            span: None,
            overwrite: false,
            endpoint: None,
        }],
    );
    assert!(facts(&gone).without.unwrap().contains("No such file"));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn files_of_this_machine_pass_the_conformance_checks() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let of_files = |check: &&pathline_hal::conformance::NamedCheck| check.0.starts_with("storage");
    let failures: Vec<String> = pathline_hal::conformance::checks(&machine)
        .filter(of_files)
        .filter_map(|(name, check)| Some(format!("{name}: {}", check(&machine).err()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    drop(machine);
    assert!(names(dir.path()).is_empty());
}

fn meta(args: &str, bytes: u64) -> pathline_hal::MetaJob {
    let mover: pathline_schema::Mover = format!("meta@numa0[{args}]").parse().unwrap();
    let meta = *mover.meta().unwrap();
    pathline_hal::MetaJob { meta, store: 0, bytes: Bytes(bytes), numa: 0 }
}

fn sample_tree(machine: &Machine, open: &OpenIo<'_>, ops: u64) -> pathline_hal::CallResult<IoDone> {
    let gate = machine.gate()?;
    open.submit(&gate, ops)?;
    gate.release()?;
    open.reap()
}

/// Every file and folder of a tree, by its path within the store's folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in names(folder) {
        if path.is_dir() {
            all.extend(tree(&path));
        }
        all.push(path);
    }
    all
}

#[test]
fn metadata_operations_leave_the_files_that_they_should_and_then_none() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let sample = |open: &OpenIo<'_>, ops| sample_tree(&machine, open, ops).unwrap();
    let files = |named: char| {
        let is = |path: &PathBuf| {
            path.file_name().unwrap().to_string_lossy().starts_with(named) && path.is_file()
        };
        tree(dir.path()).iter().filter(|path| is(path)).count()
    };
    // 2 workers, 3 folders of each, 5 files in each: 30. The second sample creates 7 after their removal.
    let open = machine.open_meta(meta("create,own,d3,f5,t2", 100), SEED).unwrap();
    assert_eq!(files('f'), 0);
    let done = sample(&open, 30);
    assert_eq!((done.ops, files('f')), (30, 30));
    let written =
        tree(dir.path()).into_iter().filter(|p| p.is_file()).map(|p| p.metadata().unwrap().len());
    assert_eq!(written.filter(|&len| len == 100).count(), 30);
    assert_eq!(done.reading.calls.keys().collect::<Vec<_>>(), ["close", "openat", "write"]);
    sample(&open, 7);
    assert_eq!(files('f'), 7);
    open.land().unwrap();
    assert_eq!(open.check(SEED).unwrap(), VerifyResult::Verified);
    // One byte of one file is another one: the check names it.
    let changed = tree(dir.path()).into_iter().find(|p| p.ends_with("d1-0/f1-2")).unwrap();
    let file = File::options().write(true).open(&changed).unwrap();
    file.write_all_at(b"\0\0", 50).unwrap();
    let wrong = open.check(SEED).unwrap_err();
    assert_eq!(wrong.severity, Severity::Corrupt);
    assert!(wrong.thing.ends_with("d1-0/f1-2") && wrong.reason.contains("offset 50"), "{wrong}");
    open.close().unwrap();
    assert_eq!(files('f'), 0);
    // Removal: the files exist before the sample and not after it.
    let open = machine.open_meta(meta("delete,shared,d1,f9,t2", 1), SEED).unwrap();
    sample(&open, 18);
    assert_eq!(files('f'), 0);
    // 4 of the 18 are removed; as many as the sample needs existed.
    sample(&open, 4);
    assert_eq!(files('f'), 0);
    open.close().unwrap();
    // A file that another process removes meanwhile fails the case.
    let open = machine.open_meta(meta("stat,own,d1,f4,t1", 1), SEED).unwrap();
    assert_eq!(files('f'), 4);
    let gone = tree(dir.path()).into_iter().find(|p| p.ends_with("f0-2")).unwrap();
    std::fs::remove_file(gone).unwrap();
    let error = sample_tree(&machine, &open, 4).unwrap_err();
    assert!(error.call == "fstatat" && error.thing.ends_with("d0-0/f0-2"), "{error}");
    drop(open);
    drop(machine);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn metadata_of_a_small_file_system_is_refused_or_named() {
    let dir = folder();
    let at = dir.path().join("small");
    std::fs::create_dir(&at).unwrap();
    // 200 inodes and 8 MiB.
    if !mount(&["-t", "tmpfs", "-o", "size=8m,nr_inodes=200", "none"], &at) {
        missing("mount", "this user may not mount");
        return;
    }
    let machine = machine(&at, false);
    // 5 % of 200 stay free: 10. 180 files and 1 folder fit into the other 190, 190 files do not.
    let refused = |job| machine.open_meta(job, SEED).err();
    let error = refused(meta("create,own,d1,f195,t1", 1)).unwrap();
    assert_eq!(error.severity, Severity::Exhausted);
    assert!(error.reason.contains("196 files and folders are needed"), "{error}");
    // 100 files of 64 KiB take 6.8 MiB of 8, of which a quarter stays free.
    let error = refused(meta("create,own,d1,f100,t1", 65536)).unwrap();
    assert!(error.severity == Severity::Exhausted && error.reason.contains("may take"), "{error}");
    let open = machine.open_meta(meta("create,own,d1,f180,t1", 1), SEED).unwrap();
    // Another process takes the inodes in the meantime.
    for nth in 0..100 {
        File::create(at.join(format!("other-{nth}"))).unwrap();
    }
    let error = sample_tree(&machine, &open, 180).unwrap_err();
    assert_eq!((error.severity, error.code), (Severity::Exhausted, 28));
    assert!(error.way_out.contains("inodes"), "{error}");
    // The next sample of fewer files is fine.
    assert_eq!(sample_tree(&machine, &open, 20).unwrap().ops, 20);
    drop(open);
    drop(machine);
    let left = names(&at);
    assert!(left.len() == 100 && left.iter().all(|p| p.to_string_lossy().contains("other-")));
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
}

/// Names the folder of the process that is killed.
const KILLED: &str = "PATHLINE_TEST_KILLED";

#[test]
fn leftovers_of_a_killed_process_go_at_the_next_start() {
    if let Some(path) = std::env::var_os(KILLED) {
        let machine = machine(Path::new(&path), false);
        let read = io("aio", "seq-read,cached,shared,1MiB,q4,n1,t1");
        let _bench = Bench::open(&machine, read, 4096).unwrap();
        let _tree = machine.open_meta(meta("stat,own,d2,f8,t1", 64), SEED).unwrap();
        println!("ready");
        // Nothing comes: it is killed here.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let dir = folder();
    let mut child = with_files(dir.path());
    let left = names(dir.path());
    assert_eq!(left.len(), 1);
    // While it lives, another process lets its files be.
    drop(machine(dir.path(), false));
    assert_eq!(names(dir.path()), left);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(&left[0]).len() == 3, "a marker, a file and a tree");
    assert_eq!(tree(&left[0]).len(), 3 + 2 + 16, "2 folders of 8 files");
    drop(machine(dir.path(), false));
    assert!(names(dir.path()).is_empty());
}

/// A process that has files in a folder until it is killed.
fn with_files(folder: &Path) -> std::process::Child {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "storage::leftovers_of_a_killed_process_go_at_the_next_start",
            "--exact",
            "--nocapture",
        ])
        .env(KILLED, folder)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "it ended before it had files");
    child
}

fn mount(args: &[&str], at: &Path) -> bool {
    std::process::Command::new("mount").args(args).arg(at).status().is_ok_and(|s| s.success())
}

fn sweep(at: &Path) -> pathline_storage::SweepResult {
    pathline_storage::sweep(at, None, WaitLimit::total(Duration::from_secs(60)))
}

#[test]
fn a_small_and_a_read_only_place_are_named() {
    let dir = folder();
    let at = dir.path().join("small");
    std::fs::create_dir(&at).unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=64m", "none"], &at) {
        missing("mount", "this user may not mount");
        return;
    }
    let mut child = with_files(&at);
    let left = names(&at);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(mount(&["-o", "remount,ro", "none"], &at));
    // A folder that cannot be removed is reported with the reason until it is gone.
    let swept = sweep(&at);
    assert_eq!(swept.left, [(left[0].clone(), "Read-only file system".to_owned())]);
    assert!(mount(&["-o", "remount,rw", "none"], &at));
    assert_eq!(sweep(&at).removed, left);
    assert!(names(&at).is_empty());

    let machine = machine(&at, false);
    let refused = |args: &str| Bench::open(&machine, io("aio", args), 4096).err().unwrap();
    // 60 of 64 MiB leave less than a quarter free.
    let full = refused("seq-read,cached,shared,60MiB,q4,n1,t1");
    assert_eq!(full.severity, Severity::Exhausted);
    assert!(full.reason.contains("stay free"), "{full}");
    // Its files are pages of memory whatever they are opened with.
    let direct = refused("seq-read,direct,shared,1MiB,q4,n1,t1");
    assert!(direct.reason.contains("page cache and nothing else"), "{direct}");
    assert!(mount(&["-o", "remount,ro", "none"], &at));
    let kept = refused("seq-read,cached,shared,1MiB,q4,n1,t1");
    assert!(kept.way_out.contains("mounted read-only"), "{kept}");
    drop(machine);
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
}

/// The error of a failing sample of writes; afterwards the same workers succeed.
fn fails_once(bench: &Bench<'_>, ops: u64, repair: impl FnOnce()) -> pathline_hal::CallError {
    let error = bench.sample(ops).unwrap_err();
    repair();
    assert_eq!(bench.sample(ops).unwrap().ops, ops, "after {error}");
    error
}

#[test]
fn a_file_system_that_fills_up_under_a_sample_is_named() {
    let dir = folder();
    let at = dir.path().join("full");
    std::fs::create_dir(&at).unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=16m", "none"], &at) {
        missing("mount", "this user may not mount");
        return;
    }
    // A file with a hole is not on any page yet: 12 MiB of it find 4 free.
    let (path, other) = (at.join("hole"), at.join("other"));
    std::fs::File::create(&path).unwrap().set_len(12 << 20).unwrap();
    std::fs::write(&other, vec![1; 12 << 20]).unwrap();
    let machine = machine(&path, true);
    let write = io("sync", "seq-write,cached,shared,12MiB,q1,n1,t1");
    let bench = Bench::open(&machine, write, 4096).unwrap();
    let full = fails_once(&bench, 3072, || std::fs::remove_file(&other).unwrap());
    assert_eq!((full.severity, full.call.as_str()), (Severity::Exhausted, "pwrite"));
    assert!(full.thing.starts_with("4KiB at 4") && full.thing.contains("hole"), "{full}");
    assert!(full.way_out.contains("is full"), "{full}");
    bench.close();
    drop(machine);
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
}

/// Names the file of the process whose files may not be longer than 1 MiB.
const LIMITED: &str = "PATHLINE_TEST_LIMITED";

#[test]
fn a_write_past_the_limit_of_files_is_an_error_and_no_end() {
    if let Some(path) = std::env::var_os(LIMITED) {
        let machine = machine(Path::new(&path), true);
        for engine in ["uring", "aio", "sync"] {
            let queue = if engine == "sync" { "q1,n1" } else { "q4,n1" };
            let write = io(engine, &format!("seq-write,direct,shared,4MiB,{queue},t1"));
            if let Some(why) = storage(&machine).cannot(0, &write, Bytes(4096)) {
                missing(engine, &why);
                continue;
            }
            let bench = Bench::open(&machine, write, 4096).unwrap();
            // The first 256 blocks are below the limit, the others not; then it starts over.
            let error = bench.sample(1024).unwrap_err();
            println!("limited: {error}");
            assert!(error.thing.contains("scratch"), "{error}");
            bench.close();
        }
        return;
    }
    let dir = folder();
    let path = dir.path().join("scratch");
    std::fs::write(&path, vec![9; 4 << 20]).unwrap();
    // POSIX counts blocks of 512 B, bash as sh those of 1 KiB: 1 or 2 MiB.
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 2048; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "storage::a_write_past_the_limit_of_files_is_an_error_and_no_end",
            "--exact",
            "--nocapture",
        ])
        .env(LIMITED, &path)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {stdout}", output.status);
    let errors: Vec<&str> = stdout.lines().filter(|line| line.contains("limited: ")).collect();
    assert!(errors.len() >= 2, "aio and sync at least: {stdout}");
    for error in errors {
        assert!(error.contains("File too large (27)") && error.contains("ulimit -f"), "{error}");
    }
}

#[test]
fn a_file_that_may_no_longer_be_written_to_is_named() {
    use std::os::fd::AsRawFd;
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("pathline", flags).unwrap();
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let machine = machine(&path, true);
    let write = io("sync", "rand-write,cached,shared,1MiB,q1,n1,t2");
    let bench = Bench::open(&machine, write, 4096).unwrap();
    assert_eq!(bench.sample(100).unwrap().ops, 100);
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::WRITE).unwrap();
    let error = bench.sample(100).unwrap_err();
    assert_eq!((error.call.as_str(), error.code), ("pwrite", 1), "{error}");
    assert!(error.way_out.contains("this user may not"), "{error}");
    bench.close();
}

#[test]
fn a_folder_that_is_renamed_meanwhile_is_cleaned_all_the_same() {
    let dir = folder();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    std::fs::create_dir(&before).unwrap();
    let machine = machine(&before, false);
    let bench = Bench::open(&machine, io("aio", "seq-read,cold,shared,1MiB,q4,n1,t1"), 4096);
    let bench = bench.unwrap();
    std::fs::rename(&before, &after).unwrap();
    // Cold reads open files again by their names.
    let error = bench.sample(100).unwrap_err();
    assert!(error.way_out.contains("renamed"), "{error}");
    bench.close();
    drop(machine);
    assert!(names(&after).is_empty());
}

/// A loop device over a file, until it is dropped; none if this user may not have one.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let made = std::process::Command::new("losetup").args(["-f", "--show"]).arg(file).output();
        let made = made.ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(made.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_device_is_written_to_with_leave_and_never_while_it_is_mounted() {
    let dir = folder();
    let (image, at) = (dir.path().join("image"), dir.path().join("at"));
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    let made = std::process::Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
    let device = made.ok().filter(|status| status.success()).and_then(|_| Loop::over(&image));
    let Some(device) = device else {
        missing("loop", "this user may not have loop devices, or there is no mkfs.ext4");
        return;
    };
    let path = Path::new(&device.0);
    let write = io("aio", "seq-write,direct,shared,1MiB,q4,n1,t1");
    let before = std::fs::read(&image).unwrap();
    {
        let reader = machine(path, false);
        let refused = Bench::open(&reader, write, 4096).err().unwrap();
        assert!(refused.to_string().contains("--overwrite"), "{refused}");
        let bench = Bench::open(&reader, io("aio", "rand-read,direct,shared,1MiB,q4,n1,t1"), 4096);
        bench.unwrap().sample(50).unwrap();
    }
    assert!(mount(&[&device.0], &at), "it holds a file system");
    let mounted = machine(path, true);
    let why = facts(&mounted).without.unwrap();
    assert!(why.contains(&format!("it is mounted at {}", at.display())), "{why}");
    assert!(Bench::open(&mounted, write, 4096).is_err());
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());

    let writer = machine(path, true);
    let bench = Bench::open(&writer, write, 4096).unwrap();
    bench.sample(300).unwrap();
    assert_eq!(bench.verified().unwrap(), VerifyResult::Verified);
    // As long as it is written to, nobody else gets it for himself, as a mount would.
    let alone = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    let busy = rustix::fs::open(path, alone, rustix::fs::Mode::empty());
    assert_eq!(busy.err(), Some(rustix::io::Errno::BUSY));
    bench.close();
    assert!(std::fs::read(&image).unwrap()[..1 << 20] != before[..1 << 20]);
}

/// A worker whose I/Os are due each 2 ms does 50 of them in no less than 100 ms, two workers twice as many.
#[test]
fn limited_rates_are_kept() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    for (threads, ops) in [("t1", 50), ("t2", 100)] {
        let io = io("sync", &format!("rand-read,cached,shared,1MiB,q1,n1,{threads},r2000KiB"));
        let bench = Bench::open(&machine, io, 4096).unwrap();
        let done = bench.sample(ops).unwrap();
        assert_eq!(done.reading.latency.count(), ops);
        assert!(done.elapsed.0 >= 100e6, "{threads}: {}", done.elapsed);
        assert_eq!(bench.verified().unwrap(), VerifyResult::Verified);
        bench.close();
    }
    // Due each 2 us, no block of 64 KiB is read in time: the last latency is about the whole sample's time.
    let io = io("sync", "seq-read,cached,shared,1MiB,q1,n1,t1,r31250MiB");
    let bench = Bench::open(&machine, io, 65536).unwrap();
    let done = bench.sample(2000).unwrap();
    let behind = done.elapsed.0 - 2000.0 * 2000.0;
    let longest = done.reading.latency.max_ns as f64;
    assert!(longest > 0.9 * behind, "{longest} of {behind}");
    bench.close();
}

/// Mapped files: what is read and written is what the file holds, and faults are counted.
#[test]
fn mapped_files_count_their_faults() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    for engine in ["mmap", "mmap-plain", "mmap-populate"] {
        for args in ["seq-read,cold,shared", "rand-read,cached,own", "seq-write,cached,shared"] {
            let io = io(engine, &format!("{args},1MiB,q1,n1,t1"));
            let bench = match Bench::open(&machine, io, 65536) {
                Ok(bench) => bench,
                Err(error) => panic!("{engine}[{args}]: {error}"),
            };
            let done = match bench.sample(16) {
                // MADV_POPULATE_READ came with Linux 5.14.
                Err(error)
                    if engine == "mmap-populate" && error.severity == Severity::Unsupported =>
                {
                    missing("madvise", &error.to_string());
                    continue;
                }
                done => done.unwrap(),
            };
            let faults = done.reading.faults.unwrap_or_else(|| panic!("{engine}[{args}]"));
            if args.contains("cold") && engine != "mmap-populate" {
                assert!(faults.minor + faults.major > 0, "{engine}[{args}]: {faults:?}");
            }
            assert_eq!(bench.verified().unwrap(), VerifyResult::Verified, "{engine}[{args}]");
            assert!(bench.close().contains_key("mmap"), "{engine}[{args}]");
        }
    }
    let direct = io("mmap", "seq-read,direct,shared,1MiB,q1,n1,t1");
    assert!(storage(&machine).cannot(0, &direct, Bytes(65536)).unwrap().contains("cached or cold"));
}
