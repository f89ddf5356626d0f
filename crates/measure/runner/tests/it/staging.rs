//! Blocks between files and GPUs through host memory, over libraries that stand in for the vendors'.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use pathline_gpu::{CompileMode, LibraryRequest, runtime};
use pathline_hal::{GpuEnd, IoJob, LocalMemory, Machine, WorkerRange};
use pathline_runner::live::{LiveMachine, open_with};
use pathline_schema::{
    Bytes, Flow, IoOp, IoSpec, MemKind, Place, Severity, Topology, Unit, VerifyResult,
};
use pathline_storage::StoreRequest as Store;
use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, VARIABLE, lay_out};

const INSIDE: &str = "PATHLINE_TEST_INSIDE";
const SEED: u64 = 5;

/// Runs the body of the test of that name in a process that finds those libraries.
fn inside(test: &str, vendor: StubLibraries, spec: &str, body: impl FnOnce(&Machine)) {
    if std::env::var_os(INSIDE).is_some() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut asked = LibraryRequest::new(CompileMode::InProcess);
        asked
            .named
            .extend(std::env::var_os("PATHLINE_HIP").map(|path| ("hip".into(), path.into())));
        let topology = Topology::default();
        let store =
            Store { path: dir.path().to_owned(), span: None, overwrite: false, endpoint: None };
        let LiveMachine { machine, without } =
            open_with(topology.clone(), runtime(&topology, &asked), &[store]);
        assert_eq!(without, None);
        body(&machine);
        drop(machine);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), &[vendor], &[]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([&format!("staging::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env(VARIABLE, spec);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", folder.path());
    if vendor != StubLibraries::Cuda {
        command.env("PATHLINE_HIP", folder.path());
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{status}\n{}\n{}", text(&stdout), text(&stderr));
}

fn io(engine: &str, args: &str, writes: bool) -> IoSpec {
    let (file, vram) = ("r0.store0.file", "r0.gpu0.vram");
    let (from, to) = if writes { (vram, file) } else { (file, vram) };
    let flow: Flow = format!("{from} > {to} by {engine}@numa0[{args}] x 64KiB").parse().unwrap();
    *flow.by.io().unwrap()
}

/// One case, sampled and verified: what its calls were named.
fn case(machine: &Machine, engine: &str, args: &str) -> Vec<String> {
    let io = io(engine, args, args.contains("write"));
    let block = 64 << 10;
    let bytes = Bytes(io.slots() * block);
    let driver = machine.driver().unwrap();
    let storage = machine.storage.as_deref().unwrap();
    let stage = io.stage.unwrap();
    let at = Place::new(Unit::Gpu(0), MemKind::Vram);
    let gpu = driver.alloc(at, bytes).unwrap();
    let on_host = Place::new(Unit::Numa(0), stage.through);
    let pinned = stage.through == MemKind::Pinned;
    let host = if pinned {
        driver.alloc(on_host, bytes).unwrap()
    } else {
        machine.host.alloc(0, MemKind::Paged, bytes).unwrap()
    };
    let copiers = (0..io.threads).map(|_| driver.copier(0, io.depth as usize).unwrap()).collect();
    let memory = LocalMemory { address: gpu, bytes: bytes.0 };
    let job = IoJob {
        io,
        workers: WorkerRange::alone(&io),
        store: 0,
        block: Bytes(block),
        numa: 0,
        host: LocalMemory { address: host, bytes: bytes.0 },
        gpu: Some(GpuEnd { gpu: 0, memory, copiers }),
    };
    driver.fill(gpu, bytes, SEED, false).unwrap();
    let id = storage.open(job, SEED).unwrap();
    let gate = machine.host.gate_create().unwrap();
    storage.submit(id, gate, 60).unwrap();
    machine.host.gate_destroy(gate).unwrap();
    let done = storage.reap(id).unwrap();
    let reading = done.reading;
    for times in [&reading.latency, &reading.device, &reading.copy] {
        assert_eq!(times.count(), 60, "{args}");
    }
    // A block's latency covers its I/O, its copy and the time between them.
    let parts = reading.device.sum_ns + reading.copy.sum_ns;
    assert!(reading.latency.sum_ns >= parts, "{args}: {} < {parts}", reading.latency.sum_ns);
    if io.op == IoOp::Read {
        driver.fill(gpu, bytes, SEED + 1, false).unwrap();
        storage.land(id).unwrap();
        assert_eq!(storage.check(id, SEED).unwrap(), VerifyResult::Verified);
        assert_eq!(driver.check(gpu, bytes, SEED).unwrap(), None, "{args}");
    } else {
        driver.fill(gpu, bytes, SEED, false).unwrap();
        storage.spoil(id).unwrap();
        assert_eq!(storage.check(id, SEED).unwrap_err().severity, Severity::Corrupt);
        storage.land(id).unwrap();
        assert_eq!(storage.check(id, SEED).unwrap(), VerifyResult::Verified, "{args}");
    }
    storage.close(id).unwrap();
    driver.free(gpu).unwrap();
    if pinned {
        driver.free(host).unwrap()
    } else {
        machine.host.free(host).unwrap()
    }
    reading.calls.into_keys().collect()
}

fn cases(machine: &Machine, copy: &str, into: &str, out_of: &str) {
    let of = |engine: &str, args: &str| case(machine, engine, args);
    let has = |calls: &[String], name: &str| assert!(calls.iter().any(|c| c == name), "{calls:?}");
    for (engine, queue) in [("aio", "q8,n2,t2"), ("uring", "q8,n2,t2"), ("sync", "q1,n1,t2")] {
        let probe = io(engine, &format!("seq-read,direct,shared,4MiB,{queue}"), false);
        if let Some(why) = machine.storage.as_deref().unwrap().cannot(0, &probe, Bytes(65536)) {
            missing(engine, &why);
            continue;
        }
        for memory in ["pinned", "paged"] {
            let text =
                |op: &str, how: &str| format!("{op},direct,shared,4MiB,{queue},{how}-{memory}");
            has(&of(engine, &text("seq-read", "pipelined")), copy);
            has(&of(engine, &text("rand-read", "blocking")), into);
            has(&of(engine, &text("seq-write", "pipelined")), copy);
            has(&of(engine, &text("rand-write", "blocking")), out_of);
        }
    }
}

#[test]
fn blocks_reach_gpus_of_cuda_and_come_back() {
    inside("blocks_reach_gpus_of_cuda_and_come_back", StubLibraries::Cuda, "gpus=1", |machine| {
        cases(machine, "cuMemcpyAsync", "cuMemcpyHtoD", "cuMemcpyDtoH");
    });
}

#[test]
fn blocks_reach_gpus_of_hip_and_come_back() {
    inside("blocks_reach_gpus_of_hip_and_come_back", StubLibraries::Hip(6), "gpus=1", |machine| {
        cases(machine, "hipMemcpyAsync", "hipMemcpyHtoD", "hipMemcpyDtoH");
    });
}
