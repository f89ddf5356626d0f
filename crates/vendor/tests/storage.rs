//! Real files on this machine's disk, by every engine.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{File, FileTimes};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use pathline_hal::{IoDone, IoJob, Machine, Span, Storage};
use pathline_schema::{
    Bytes, Flow, Io, IoEngine, IoFiles, IoOp, Mem, Severity, StoreFacts, Topology, Verdict,
};
use pathline_vendor::live_with;
use pathline_vendor::storage::Asked;

const SEED: u64 = 77;

/// A folder on the disk that this is built on: `/tmp` is page cache on many machines.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn machine(path: &Path, overwrite: bool) -> Machine {
    live_with(Topology::default(), &[Asked { path: path.to_owned(), span: None, overwrite }])
}

fn storage(machine: &Machine) -> &dyn Storage {
    machine.storage.as_deref().unwrap()
}

fn io(engine: &str, args: &str) -> Io {
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
    io: Io,
}

impl<'m> Bench<'m> {
    fn open(machine: &'m Machine, io: Io, block: u64) -> pathline_hal::Result<Self> {
        let bytes = io.slots() * block;
        let address = machine.host.alloc(0, Mem::Paged, Bytes(bytes)).unwrap();
        let mut bench = Self { machine, id: pathline_hal::IoId(0), address, bytes, io };
        bench.fill(SEED);
        let host = Span { address, bytes };
        let job = IoJob { io, store: 0, block: Bytes(block), numa: 0, host, gpu: None };
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

    fn sample(&self, ops: u64) -> pathline_hal::Result<IoDone> {
        let gate = self.machine.host.gate_create()?;
        storage(self.machine).submit(self.id, gate, ops)?;
        self.machine.host.gate_release(gate)?;
        let done = storage(self.machine).reap(self.id);
        self.machine.host.gate_destroy(gate)?;
        done
    }

    /// Whether what lands is what was sent.
    fn verified(&self) -> pathline_hal::Result<Verdict> {
        let storage = storage(self.machine);
        if self.io.op == IoOp::Read {
            self.fill(SEED + 1_000_000);
            storage.land(self.id)?;
            let verdict = storage.check(self.id, SEED)?;
            for (address, bytes, file) in self.parts() {
                if verdict == Verdict::Verified {
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

    fn close(self) -> std::collections::BTreeMap<String, pathline_schema::Tally> {
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
fn every_engine_reads_and_writes_what_it_says() {
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
                    println!("skipped {engine}[{io}]: {why}");
                    continue;
                }
                let bench = Bench::open(&machine, io, 4096).unwrap();
                let told = bench.sample(100).unwrap();
                let reading = &told.reading;
                // 34, 33 and 33: when the first was done it had done at least its own.
                assert_eq!((told.ops, reading.latency.count()), (100, 100), "{engine}[{io}]");
                assert!((33..=100).contains(&reading.first_done_ops), "{reading:?}");
                assert!(reading.first_done_ns <= told.elapsed.0 && told.elapsed.0 > 0.0);
                // One wait at a time of each of three workers.
                assert!(reading.latency.max_ns as f64 <= told.elapsed.0, "{engine}[{io}]");
                let calls: u64 = reading.calls.values().map(|c| c.count).sum();
                assert!(calls > 0 && reading.device.is_empty());
                assert_eq!(bench.verified().unwrap(), Verdict::Verified, "{engine}[{io}]");
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
fn what_was_named_is_read_and_not_touched() {
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
    assert!(matches!(verdict, Verdict::Unverified(why) if why.contains("not pathline's")));
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
    assert!(own.err().unwrap().reason.contains("in a folder only"));
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
        assert_eq!(bench.verified().unwrap(), Verdict::Verified, "{args}");
        bench.close();
    }
    drop(machine);
    let after = std::fs::read(&path).unwrap();
    // What lies behind the span is as it was.
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
fn what_cannot_be_is_said_before_anything_is_opened() {
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
        &[Asked { path: dir.path().join("nothing"), span: None, overwrite: false }],
    );
    assert!(facts(&gone).without.unwrap().contains("No such file"));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn files_of_this_machine_do_what_every_machines_must() {
    let dir = folder();
    let machine = machine(dir.path(), false);
    let of_files = |check: &&pathline_hal::conformance::Check| check.0.starts_with("storage");
    let failures: Vec<String> = pathline_hal::conformance::checks(&machine)
        .filter(of_files)
        .filter_map(|(name, check)| Some(format!("{name}: {}", check(&machine).err()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    drop(machine);
    assert!(names(dir.path()).is_empty());
}

/// Names the folder of the process that is killed.
const KILLED: &str = "PATHLINE_TEST_KILLED";

#[test]
fn what_a_killed_process_left_goes_at_the_next_start() {
    if let Some(path) = std::env::var_os(KILLED) {
        let machine = machine(Path::new(&path), false);
        let read = io("aio", "seq-read,direct,shared,1MiB,q4,n1,t1");
        let _bench = Bench::open(&machine, read, 4096).unwrap();
        println!("ready");
        // Nothing comes: it is killed here.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let dir = folder();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["what_a_killed_process_left_goes_at_the_next_start", "--exact", "--nocapture"])
        .env(KILLED, dir.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "it ended before it had files");
    let left = names(dir.path());
    assert_eq!(left.len(), 1);
    // While it lives, another process lets its files be.
    drop(machine(dir.path(), false));
    assert_eq!(names(dir.path()), left);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(&left[0]).len() == 2, "a marker and a file");
    drop(machine(dir.path(), false));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_small_and_a_read_only_place_are_named() {
    let dir = folder();
    let at = dir.path().join("small");
    std::fs::create_dir(&at).unwrap();
    let mount = |args: &[&str]| {
        std::process::Command::new("mount").args(args).arg(&at).status().is_ok_and(|s| s.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=64m", "none"]) {
        println!("skipped: this user may not mount");
        return;
    }
    let machine = machine(&at, false);
    let refused = |args: &str| Bench::open(&machine, io("aio", args), 4096).err().unwrap();
    // 60 of 64 MiB leave less than a quarter free.
    let full = refused("seq-read,cached,shared,60MiB,q4,n1,t1");
    assert_eq!(full.severity, Severity::Exhausted);
    assert!(full.reason.contains("stay free"), "{full}");
    // Its files are pages of memory whatever they are opened with.
    let direct = refused("seq-read,direct,shared,1MiB,q4,n1,t1");
    assert!(direct.reason.contains("page cache and nothing else"), "{direct}");
    assert!(mount(&["-o", "remount,ro", "none"]));
    let kept = refused("seq-read,cached,shared,1MiB,q4,n1,t1");
    assert!(kept.way_out.contains("mounted read-only"), "{kept}");
    drop(machine);
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
}
