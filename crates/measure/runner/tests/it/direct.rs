//! GPU direct over libraries that stand in for cuFile and hipFile, and for the runtimes under them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use pathline_gpu::{CompileMode, LibraryRequest, runtime};
use pathline_hal::{CallResult, FileStorage, GpuEnd, IoDone, IoJob, LocalMemory, Machine};
use pathline_runner::live::{LiveMachine, open_with};
use pathline_schema::{
    Bytes, Flow, IoFiles, IoOp, IoSpec, Place, Severity, Topology, Unit, VerifyResult,
};
use pathline_storage::StoreRequest as Store;
use pathline_stub::{StubLibraries, VARIABLE, lay_out};

/// Set in the process that a test runs its body in, with what the body looks for.
const INSIDE: &str = "PATHLINE_TEST_INSIDE";
const SEED: u64 = 5;
const BLOCK: u64 = 64 << 10;

/// Libraries without some of their functions, and faults on order.
#[derive(Clone, Copy)]
struct Given<'a> {
    vendors: &'a [StubLibraries],
    missing: &'a [&'a str],
    spec: &'a str,
    /// The text that the body looks for.
    wanted: &'a str,
}

const CUDA: Given<'_> = Given {
    vendors: &[StubLibraries::Cuda, StubLibraries::CuFile],
    missing: &[],
    spec: "gpus=1",
    wanted: "-",
};
const HIP: Given<'_> = Given { vendors: &[StubLibraries::Hip(6), StubLibraries::HipFile], ..CUDA };

/// Runs the body of the test of that name in a process that finds those libraries, and no others: the
/// driver of a library is opened once in a process. Whether this is that process, which does no more.
fn inside(test: &str, given: Given<'_>, body: impl FnOnce(&Machine, &str)) -> bool {
    if let Ok(wanted) = std::env::var(INSIDE) {
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
        body(&machine, &wanted);
        drop(machine);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), given.vendors, given.missing).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("direct::{test}"), "--exact", "--nocapture"]).env(INSIDE, given.wanted);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", folder.path());
    command.env(VARIABLE, given.spec).env_remove("CUFILE_ALLOW_COMPAT_MODE");
    if !given.vendors.contains(&StubLibraries::Cuda) {
        command.env("PATHLINE_HIP", folder.path());
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let spec = given.spec;
    assert!(status.success(), "{spec}: {status}\n{}\n{}", text(&stdout), text(&stderr));
    false
}

fn io(args: &str) -> IoSpec {
    let (file, vram) = ("r0.store0.file", "r0.gpu0.vram");
    let (from, to) = if args.contains("write") { (vram, file) } else { (file, vram) };
    let flow: Flow = format!("{from} > {to} by gds@numa0[{args}] x 64KiB").parse().unwrap();
    *flow.by.io().unwrap()
}

fn storage(machine: &Machine) -> &dyn FileStorage {
    machine.storage.as_deref().unwrap()
}

/// Open I/O with its memory.
struct Bench<'m> {
    machine: &'m Machine,
    id: pathline_hal::IoId,
    gpu: u64,
    bytes: Bytes,
    io: IoSpec,
}

impl<'m> Bench<'m> {
    fn open(machine: &'m Machine, args: &str) -> CallResult<Self> {
        let io = io(args);
        let bytes = Bytes(io.slots() * BLOCK);
        let driver = machine.driver().unwrap();
        let at = Place::new(Unit::Gpu(0), pathline_schema::MemKind::Vram);
        let gpu = driver.alloc(at, bytes).unwrap();
        let memory = LocalMemory { address: gpu, bytes: bytes.0 };
        let end = GpuEnd { gpu: 0, memory, copiers: Vec::new() };
        let host = LocalMemory::default();
        let workers = pathline_hal::WorkerRange::alone(&io);
        let job =
            IoJob { io, workers, store: 0, block: Bytes(BLOCK), numa: 0, host, gpu: Some(end) };
        let bench = Self { machine, id: pathline_hal::IoId(0), gpu, bytes, io };
        bench.fill(SEED);
        let id = storage(machine).open(job, SEED).inspect_err(|_| driver.free(gpu).unwrap())?;
        Ok(Self { id, ..bench })
    }

    /// A part of the memory for each file, each with its pattern.
    fn parts(&self) -> impl Iterator<Item = (u64, Bytes, u64)> + use<> {
        let files = if self.io.files == IoFiles::Own { u64::from(self.io.threads) } else { 1 };
        let (gpu, each) = (self.gpu, self.bytes.0 / files);
        (0..files).map(move |file| (gpu + file * each, Bytes(each), file))
    }

    fn fill(&self, seed: u64) {
        let driver = self.machine.driver().unwrap();
        self.parts().for_each(|(at, bytes, n)| driver.fill(at, bytes, seed + n, false).unwrap());
    }

    /// Whether the memory holds that.
    fn holds(&self, seed: u64) -> bool {
        let driver = self.machine.driver().unwrap();
        self.parts().all(|(at, bytes, n)| driver.check(at, bytes, seed + n).unwrap().is_none())
    }

    fn sample(&self, ops: u64) -> CallResult<IoDone> {
        let gate = self.machine.host.gate_create().unwrap();
        storage(self.machine).submit(self.id, gate, ops)?;
        self.machine.host.gate_destroy(gate).unwrap();
        storage(self.machine).reap(self.id)
    }

    fn engine(&self) -> String {
        storage(self.machine).engine(self.id)
    }

    /// Whether what lands is what was sent.
    fn verify(&self) {
        let storage = storage(self.machine);
        if self.io.op == IoOp::Read {
            self.fill(SEED + 1_000);
            assert!(!self.holds(SEED));
            storage.land(self.id).unwrap();
            assert!(self.holds(SEED), "{}", self.io);
            assert_eq!(storage.check(self.id, SEED).unwrap(), VerifyResult::Verified);
            return;
        }
        self.fill(SEED);
        storage.spoil(self.id).unwrap();
        assert_eq!(storage.check(self.id, SEED).unwrap_err().severity, Severity::Corrupt);
        storage.land(self.id).unwrap();
        assert_eq!(storage.check(self.id, SEED).unwrap(), VerifyResult::Verified, "{}", self.io);
    }

    /// The calls that it took to open and to close.
    fn close(self) -> Vec<(String, u64)> {
        let calls = storage(self.machine).close(self.id).unwrap();
        self.machine.driver().unwrap().free(self.gpu).unwrap();
        calls.into_iter().map(|(name, tally)| (name, tally.count)).collect()
    }
}

/// All patterns, each sampled and verified, with the names of its calls.
fn moves(machine: &Machine, prefix: &str, wanted: &str) {
    let mut opened = 0;
    for op in ["seq-read", "rand-read", "seq-write", "rand-write", "rand-mix70"] {
        for (files, threads) in [("shared", 1), ("shared", 3), ("own", 2)] {
            let args = format!("{op},direct,{files},1MiB,q1,n1,t{threads}");
            assert_eq!(storage(machine).cannot(0, &io(&args), Bytes(BLOCK)), None);
            let bench = Bench::open(machine, &args).unwrap();
            assert_eq!(bench.engine(), wanted, "{args}");
            let done = bench.sample(40).unwrap();
            assert_eq!((done.ops, done.reading.latency.count()), (40, 40), "{args}");
            let call = format!("{prefix}{}", if op.contains("read") { "Read" } else { "Write" });
            let calls: Vec<&String> = done.reading.calls.keys().collect();
            assert_eq!(calls, [&call], "{args}");
            assert_eq!(done.reading.calls[&call].count, 40, "{args}");
            bench.verify();
            // The first opens the driver for all. Each worker registers, and does one block to find
            // its path.
            let setup = bench.close();
            for name in ["HandleRegister", "BufRegister", "BufDeregister"] {
                let registered = (format!("{prefix}{name}"), threads);
                assert!(setup.contains(&registered), "{registered:?} of {setup:?}");
            }
            assert!(setup.contains(&(call, threads)), "{setup:?}");
            let open = setup.iter().find(|(name, _)| *name == format!("{prefix}DriverOpen"));
            opened += open.map_or(0, |(_, count)| *count);
        }
    }
    assert_eq!(opened, 1);
}

#[test]
fn cufile_moves_the_bytes_of_the_job() {
    let wanted = "cuFile 1.15, compatibility mode (not direct)";
    inside("cufile_moves_the_bytes_of_the_job", Given { wanted, ..CUDA }, |machine, wanted| {
        moves(machine, "cuFile", wanted);
    });
}

#[test]
fn hipfile_moves_the_bytes_of_the_job() {
    let wanted = "hipFile 0.5.0, compatibility mode (not direct), through the page cache";
    inside("hipfile_moves_the_bytes_of_the_job", Given { wanted, ..HIP }, |machine, wanted| {
        moves(machine, "hipFile", wanted);
    });
}

#[test]
fn the_data_path_comes_from_the_counters() {
    let old: &[&str] = &["cuFileGetStatsL3"];
    let oldest: &[&str] = &["cuFileGetStatsL3", "cuFileGetVersion"];
    let silent: &[&str] = &["hipFileGetStatsL3"];
    for (given, spec, missing, wanted) in [
        (CUDA, "gds=nvfs", &[][..], "cuFile 1.15, nvidia-fs, registered buffers"),
        (CUDA, "gds=p2p", &[], "cuFile 1.15, peer-to-peer of PCI, registered buffers"),
        (HIP, "gds=nvfs", &[], "hipFile 0.5.0, fast path, registered buffers"),
        // Without counters, and without a driver in the kernel, it cannot be direct.
        (CUDA, "gpus=1", oldest, "cuFile, compatibility mode (not direct)"),
        (
            CUDA,
            "gds=nvfs",
            old,
            "cuFile 1.15, registered buffers; whether direct is not told (since 1.15 it counts)",
        ),
        (
            CUDA,
            "gds=p2p",
            old,
            "cuFile 1.15, registered buffers; whether direct is not told (since 1.15 it counts)",
        ),
        (
            HIP,
            "gpus=1",
            silent,
            "hipFile 0.5.0, registered buffers; whether direct is not told (since 0.5 it counts)",
        ),
    ] {
        // The host's own module would be named with its version.
        let given = Given { spec, missing, wanted, ..given };
        if inside("the_data_path_comes_from_the_counters", given, |machine, wanted| {
            for args in
                ["seq-read,direct,shared,1MiB,q1,n1,t2", "seq-write,direct,own,1MiB,q1,n1,t2"]
            {
                let bench = Bench::open(machine, args).unwrap();
                assert_eq!(bench.engine(), wanted);
                bench.close();
            }
        }) {
            return;
        }
    }
}

#[test]
fn refusals_of_the_libraries_are_named() {
    let read = "seq-read,direct,shared,1MiB,q1,n1,t1";
    for (given, spec, wanted) in [
        (
            CUDA,
            "fail=cuFileDriverOpen:5001",
            "cuFileDriverOpen on its driver: status 5001, CU_FILE_DRIVER_NOT_INITIALIZED",
        ),
        (
            CUDA,
            "fail=cuFileHandleRegister:5008",
            "CU_FILE_IO_NOT_SUPPORTED: it does not support this file (5008)",
        ),
        (
            CUDA,
            "fail=cuFileBufRegister:5036",
            "cuFileBufRegister on 64KiB of the GPU's memory: status 5036",
        ),
        (
            CUDA,
            "fail=cuFileRead@1:5017",
            "CU_FILE_INVALID_MAPPING_RANGE: beyond the memory that is registered",
        ),
        (CUDA, "fail=cuFileRead@1:5", "cuFileRead on 64KiB at 0B of"),
        (
            HIP,
            "fail=hipFileHandleRegister:5008",
            "hipFileIONotSupported: it does not support this file (5008)",
        ),
        (HIP, "fail=hipFileBufRegister:5013", "hipFileHipMemoryTypeInvalid"),
        (HIP, "fail=hipFileRead@1:5030", "hipFileInternalError"),
    ] {
        let given = Given { spec, wanted, ..given };
        if inside("refusals_of_the_libraries_are_named", given, |machine, wanted| {
            let error = Bench::open(machine, read).err().unwrap();
            let text = error.to_string();
            assert!(text.contains(wanted), "{text}");
            assert!(!error.way_out.is_empty(), "{text}");
            let exhausted = wanted.contains("5036");
            assert_eq!(error.severity == Severity::Exhausted, exhausted, "{text}");
        }) {
            return;
        }
    }
}

#[test]
fn an_unsupported_file_of_cufile_has_a_remedy() {
    let test = "an_unsupported_file_of_cufile_has_a_remedy";
    let spec = "fail=cuFileHandleRegister:5027";
    inside(test, Given { spec, ..CUDA }, |machine, _| {
        let error = Bench::open(machine, "seq-read,direct,shared,1MiB,q1,n1,t1").err().unwrap();
        let text = error.to_string();
        assert!(text.contains("/read-"), "the file is named: {text}");
        assert!(text.contains("CU_FILE_HANDLE_NOT_REGISTERED"), "{text}");
        // Where udevd runs, cuFile would have found the device: then another reason is left open.
        let cures = ["E:ID_FS_USAGE=filesystem", "ext4 or xfs", "CUFILE_LOGFILE_PATH"];
        assert!(cures.iter().any(|cure| text.contains(cure)), "{text}");
    });
}

#[test]
fn a_failing_io_costs_one_sample() {
    let test = "a_failing_io_costs_one_sample";
    for (given, spec, wanted) in [
        (CUDA, "fail=cuFileRead@10:5", "Input/output error (5)"),
        (CUDA, "short=cuFileRead@10", "only 32KiB of it were there"),
        (CUDA, "fail=cuFileRead@10:5022", "CU_FILE_INVALID_VALUE"),
        (HIP, "fail=hipFileRead@10:28", "the file system, or what it lies on, is full"),
        (HIP, "short=hipFileRead@10", "only 32KiB of it were there"),
        (HIP, "fail=hipFileRead@10:5022", "hipFileInvalidValue"),
    ] {
        if inside(test, Given { spec, wanted, ..given }, |machine, wanted| {
            let bench = Bench::open(machine, "rand-read,direct,shared,1MiB,q1,n1,t1").unwrap();
            let error = bench.sample(40).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(wanted) && text.contains("/read-"), "{text}");
            assert_eq!(bench.sample(40).unwrap().ops, 40);
            bench.verify();
            bench.close();
        }) {
            return;
        }
    }
}

#[test]
fn a_wrong_byte_is_found() {
    // The first read finds the data path; the second is that of the verification.
    let given = Given { spec: "corrupt=cuFileRead@2", ..CUDA };
    inside("a_wrong_byte_is_found", given, |machine, _| {
        let bench = Bench::open(machine, "seq-read,direct,shared,1MiB,q1,n1,t1").unwrap();
        bench.fill(SEED + 1_000);
        storage(machine).land(bench.id).unwrap();
        assert!(!bench.holds(SEED));
        storage(machine).land(bench.id).unwrap();
        assert!(bench.holds(SEED));
        bench.close();
    });
}

#[test]
fn without_the_library_the_error_names_how_to_get_it() {
    let test = "without_the_library_the_error_names_how_to_get_it";
    for (vendor, wanted) in
        [(StubLibraries::Cuda, "libcufile.so.0"), (StubLibraries::Hip(6), "libhipfile.so.0")]
    {
        let given = Given { vendors: &[vendor], wanted, ..CUDA };
        if inside(test, given, |machine, wanted| {
            let read = io("seq-read,direct,shared,1MiB,q1,n1,t1");
            match storage(machine).cannot(0, &read, Bytes(BLOCK)) {
                Some(why) => {
                    assert!(why.contains(wanted) && why.contains("it comes with"), "{why}");
                }
                None => println!("this machine has {wanted} in one of its usual places"),
            }
        }) {
            return;
        }
    }
    let host = pathline_runner::live::live_with(
        Topology::default(),
        &[Store {
            path: env!("CARGO_TARGET_TMPDIR").into(),
            span: None,
            overwrite: false,
            endpoint: None,
        }],
    );
    let read = io("seq-read,direct,shared,1MiB,q1,n1,t1");
    let why = storage(&host).cannot(0, &read, Bytes(BLOCK)).unwrap();
    assert!(why.contains("needs a GPU"), "{why}");
}
