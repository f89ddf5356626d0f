//! Checks of file I/O: bytes, counts and refusals. They use store 0 and files of 1 MiB.

use pathline_schema::{
    Bytes, IoCache, IoEngine, IoFiles, IoOp, IoOrder, IoSpec, IoStage, MemKind, MetaOp, MetaSpec,
    Ns, Place, Unit, VerifyResult,
};

use super::{CheckFailure, NamedCheck, ensure, or_unsupported};
use crate::{
    FileStorage, GpuEnd, IoDone, IoId, IoJob, LocalMemory, Machine, MachineBuffer, MetaJob, OpenIo,
    WorkerRange,
};

pub(super) const CHECKS: &[NamedCheck] = &[
    ("storage: stores report their facts", store_facts),
    ("storage: reads bring what the files hold, every engine", reads),
    ("storage: writes reach the files, every engine", writes),
    ("storage: every I/O is counted", io_counts),
    ("storage: the gate holds the workers", gate),
    ("storage: fewer I/Os than workers, and sample after sample", repeated_samples),
    ("storage: two sets of files at once", two_at_once),
    ("storage: files hold the pattern that is asked for, also after writes", patterns),
    ("storage: blocks go on to a GPU and come from it", staged_io),
    ("storage: invalid jobs are refused", invalid_jobs),
    ("storage: bad handles are errors", bad_handles),
    ("storage: every metadata operation is counted and checked", metadata),
];

type StorageCheckResult = Result<(), CheckFailure>;

/// Seed of the files.
const SEED: u64 = 1009;
/// Seed of memory that no I/O has written.
const STALE: u64 = 5;
const BLOCK: Bytes = Bytes::kib(4);
/// A pause longer than any I/O of a few cached pages.
const PAUSE: Ns = Ns(200_000_000.0);

const ENGINES: [IoEngine; 9] = [
    IoEngine::Uring,
    IoEngine::UringPlain,
    IoEngine::UringPoll,
    IoEngine::Aio,
    IoEngine::Mmap,
    IoEngine::MmapPlain,
    IoEngine::MmapPopulate,
    IoEngine::S3,
    IoEngine::Sync,
];

fn storage(machine: &Machine) -> Result<&dyn FileStorage, CheckFailure> {
    machine.storage.as_deref().ok_or_else(|| CheckFailure("there are no files".into()))
}

/// The domain with the most threads, and how many of them the checks use.
fn domain(machine: &Machine) -> Result<(u32, u32), CheckFailure> {
    let domains = machine.host.domains();
    let usable = domains.into_iter().filter(|d| d.threads > 0).max_by_key(|d| d.threads);
    let usable = usable.ok_or_else(|| CheckFailure("no domain can run threads".into()))?;
    Ok((usable.id, usable.threads.min(2)))
}

/// Reads into host memory by `engine`, a few at a time.
fn io(engine: IoEngine, op: IoOp, threads: u32) -> IoSpec {
    let (depth, batch) = if engine.is_asynchronous() { (4, 2) } else { (1, 1) };
    IoSpec {
        engine,
        op,
        order: IoOrder::Rand,
        cache: IoCache::Cached,
        files: IoFiles::Own,
        span: Bytes::mib(1),
        depth,
        batch,
        threads,
        rate: None,
        stage: None,
    }
}

/// An open I/O job and its memory. Field order matters: the job closes first.
struct IoUnderTest<'m> {
    open: OpenIo<'m>,
    host: MachineBuffer<'m>,
    gpu: Option<MachineBuffer<'m>>,
    machine: &'m Machine,
    io: IoSpec,
}

/// Opens a job. `None` if the machine does not support it.
fn open(machine: &Machine, io: IoSpec, seed: u64) -> Result<Option<IoUnderTest<'_>>, CheckFailure> {
    if let Some(why) = storage(machine)?.cannot(0, &io, BLOCK) {
        ensure!(!why.is_empty(), "[{io}] cannot be, without a reason");
        return Ok(None);
    }
    let (numa, _) = domain(machine)?;
    let bytes = Bytes(BLOCK.0 * io.slots());
    let span = |b: &MachineBuffer<'_>| LocalMemory { address: b.address(), bytes: b.bytes().0 };
    let mem = io.stage.map_or(MemKind::Paged, |stage| stage.through);
    let host = machine.buffer(Place::new(Unit::Numa(numa), mem), bytes)?;
    let gpu = match io.stage {
        Some(_) => Some(machine.buffer(Place::new(Unit::Gpu(0), MemKind::Vram), bytes)?),
        None => None,
    };
    let end = match &gpu {
        Some(buffer) => {
            let mut copiers = Vec::new();
            for _ in 0..io.threads {
                let copier = machine.driver()?.copier(0, io.depth as usize);
                let Some(copier) = or_unsupported(copier)? else { return Ok(None) };
                copiers.push(copier);
            }
            Some(GpuEnd { gpu: 0, memory: span(buffer), copiers })
        }
        None => None,
    };
    for (offset, part, file) in slot_blocks(&io) {
        let seed = if io.writes() { seed + file } else { STALE };
        gpu.as_ref().unwrap_or(&host).fill_part(offset, part, seed)?;
    }
    let workers = WorkerRange::alone(&io);
    let job = IoJob { io, workers, store: 0, block: BLOCK, numa, host: span(&host), gpu: end };
    let opened = or_unsupported(machine.open_io(job, seed))?;
    Ok(opened.map(|open| IoUnderTest { open, host, gpu, machine, io }))
}

/// The blocks of each slot: offset in memory, bytes, number of the file.
fn slot_blocks(io: &IoSpec) -> impl Iterator<Item = (u64, Bytes, u64)> + use<> {
    let files = if io.files == IoFiles::Own { u64::from(io.threads) } else { 1 };
    let each = BLOCK.0 * io.slots() / files;
    (0..files).map(move |file| (file * each, Bytes(each), file))
}

impl IoUnderTest<'_> {
    fn end(&self) -> &MachineBuffer<'_> {
        self.gpu.as_ref().unwrap_or(&self.host)
    }

    fn sample(&self, ops: u64) -> Result<IoDone, CheckFailure> {
        let gate = self.machine.gate()?;
        self.open.submit(&gate, ops)?;
        gate.release()?;
        let done = self.open.reap()?;
        let (io, reading) = (&self.io, &done.reading);
        ensure!(done.ops == ops, "[{io}] did {} I/Os, not {ops}", done.ops);
        let counted = reading.latency.count();
        ensure!(counted == ops, "[{io}]: {counted} of {ops} I/Os are in the distribution");
        ensure!(done.elapsed > Ns::ZERO, "[{io}] took {}", done.elapsed);
        let last = done.elapsed.0 * 1.000_001 + 1.0;
        let first = reading.first_done_ns;
        ensure!(0.0 < first && first <= last, "[{io}]: the first ended at {first}: {done:?}");
        let by_then = reading.first_done_ops;
        let share = ops / u64::from(io.threads);
        ensure!((share..=ops).contains(&by_then), "[{io}]: {by_then} of {ops} I/Os by the first");
        let longest = reading.latency.max_ns as f64;
        ensure!(longest <= last, "[{io}]: an I/O took {longest} ns of {}", done.elapsed);
        ensure!(reading.latency.min_ns > 0, "[{io}]: an I/O took no time");
        ensure!(!reading.calls.is_empty(), "[{io}]: no call is named");
        for (name, tally) in &reading.calls {
            ensure!(tally.count > 0 && tally.ns > 0.0, "[{io}]: {name} {tally:?}");
        }
        Ok(done)
    }

    /// Verifies through the engine, as after samples.
    fn verify(&self, seed: u64) -> StorageCheckResult {
        let (io, end) = (&self.io, self.end());
        if io.writes() {
            for (offset, part, file) in slot_blocks(io) {
                end.fill_part(offset, part, seed + file)?;
            }
            self.open.spoil()?;
            ensure!(self.open.check(seed).is_err(), "[{io}]: spoilt files pass");
            self.open.land()?;
            let verdict = self.open.check(seed)?;
            ensure!(verdict == VerifyResult::Verified, "[{io}]: {verdict:?}");
            let other = self.open.check(seed + 77);
            ensure!(other.is_err(), "[{io}]: files of seed {seed} pass for another");
            return Ok(());
        }
        for (offset, part, _) in slot_blocks(io) {
            end.fill_part(offset, part, STALE)?;
        }
        self.open.land()?;
        for (offset, part, file) in slot_blocks(io) {
            end.check_part(offset, part, seed + file)?;
        }
        Ok(())
    }

    fn close(self) -> StorageCheckResult {
        let calls = self.open.close()?;
        ensure!(!calls.is_empty(), "[{}]: no call opened or closed anything", self.io);
        Ok(())
    }
}

fn store_facts(machine: &Machine) -> StorageCheckResult {
    let stores = storage(machine)?.stores();
    ensure!(!stores.is_empty(), "there is no store");
    for store in stores {
        ensure!(!store.path.is_empty(), "a store has no path: {store:?}");
        let full = store.without.is_none() && store.free.0 == 0 && store.device.is_empty();
        ensure!(!full, "{}: no room, and no reason given", store.path);
    }
    Ok(())
}

/// Checks an operation with every engine, order and use of the page cache, and with one file and
/// several.
fn check_variants(machine: &Machine, op: IoOp) -> StorageCheckResult {
    let (_, threads) = domain(machine)?;
    let mut opened = 0;
    for engine in ENGINES {
        for order in [IoOrder::Seq, IoOrder::Rand] {
            for (cache, files) in [
                (IoCache::Direct, IoFiles::Shared),
                (IoCache::Direct, IoFiles::Own),
                (IoCache::Cached, IoFiles::Own),
                (IoCache::Cold, IoFiles::Shared),
                (IoCache::Direct, IoFiles::Each),
            ] {
                let io = IoSpec { order, cache, files, ..io(engine, op, threads) };
                let Some(case) = open(machine, io, SEED)? else { continue };
                opened += 1;
                ensure!(!case.open.engine().is_empty(), "[{io}]: the engine has no description");
                let named = |e: CheckFailure| CheckFailure(format!("{engine}[{io}]: {e}"));
                case.sample(23).map_err(named)?;
                case.verify(SEED).map_err(named)?;
                case.close()?;
            }
        }
    }
    ensure!(opened > 0, "no engine does {op}");
    Ok(())
}

fn reads(machine: &Machine) -> StorageCheckResult {
    check_variants(machine, IoOp::Read)
}

fn writes(machine: &Machine) -> StorageCheckResult {
    check_variants(machine, IoOp::Write)?;
    check_variants(machine, IoOp::Mix { reads: 40 })
}

/// Opens `io` with the first engine that supports it; the simplest engine comes last.
fn open_first(
    machine: &Machine,
    change: impl Fn(IoSpec) -> IoSpec,
    seed: u64,
) -> Result<IoUnderTest<'_>, CheckFailure> {
    let (_, threads) = domain(machine)?;
    for engine in ENGINES {
        let io = change(io(engine, IoOp::Read, threads));
        if let Some(case) = open(machine, io, seed)? {
            return Ok(case);
        }
    }
    Err(CheckFailure("no engine reads files".into()))
}

/// The number of I/Os divides neither by workers nor by batches: none may be lost or repeated.
fn io_counts(machine: &Machine) -> StorageCheckResult {
    let (_, threads) = domain(machine)?;
    for engine in ENGINES {
        for op in [IoOp::Read, IoOp::Write, IoOp::Mix { reads: 50 }] {
            let Some(case) = open(machine, io(engine, op, threads), SEED)? else { continue };
            for ops in [101, 7, 1003] {
                case.sample(ops)?;
            }
            case.close()?;
        }
    }
    Ok(())
}

fn gate(machine: &Machine) -> StorageCheckResult {
    let case = open_first(machine, |io| io, SEED)?;
    case.sample(8)?;
    let gate = machine.gate()?;
    let begun = machine.clock.now();
    case.open.submit(&gate, 8)?;
    let submit_time = machine.clock.now() - begun;
    ensure!(submit_time < PAUSE, "submit took {submit_time}: it waits for the gate");
    machine.clock.sleep(PAUSE);
    gate.release()?;
    let done = case.open.reap()?;
    ensure!(done.elapsed < PAUSE, "8 reads of pages in memory took {}", done.elapsed);
    ensure!(done.ops == 8, "{} I/Os, not 8", done.ops);
    case.close()
}

fn repeated_samples(machine: &Machine) -> StorageCheckResult {
    let case = open_first(machine, |io| io, SEED)?;
    for ops in [1, 2, 1, 40, 1] {
        let gate = machine.gate()?;
        case.open.submit(&gate, ops)?;
        gate.release()?;
        let done = case.open.reap()?;
        let counted = done.reading.latency.count();
        ensure!(done.ops == ops && counted == ops, "{} and {counted} I/Os, not {ops}", done.ops);
    }
    case.verify(SEED)?;
    case.close()
}

fn two_at_once(machine: &Machine) -> StorageCheckResult {
    let a = open_first(machine, |io| IoSpec { files: IoFiles::Own, ..io }, SEED)?;
    let b = open_first(
        machine,
        |io| IoSpec { files: IoFiles::Shared, order: IoOrder::Seq, ..io },
        SEED,
    )?;
    let gate = machine.gate()?;
    a.open.submit(&gate, 30)?;
    b.open.submit(&gate, 50)?;
    gate.release()?;
    let (first, second) = (a.open.reap()?, b.open.reap()?);
    ensure!((first.ops, second.ops) == (30, 50), "{} and {} I/Os", first.ops, second.ops);
    a.verify(SEED)?;
    b.verify(SEED)?;
    a.close()?;
    b.close()
}

fn patterns(machine: &Machine) -> StorageCheckResult {
    for seed in [SEED, 31, SEED] {
        let read = open_first(machine, |io| io, seed)?;
        read.verify(seed)?;
        read.close()?;
        let write = open_first(machine, |io| IoSpec { op: IoOp::Write, ..io }, seed)?;
        write.sample(60)?;
        write.close()?;
    }
    // First a larger file than before, then a smaller one.
    for span in [Bytes::mib(3), Bytes::kib(64)] {
        let read = open_first(machine, |io| IoSpec { span, files: IoFiles::Shared, ..io }, SEED)?;
        read.sample(20)?;
        read.verify(SEED)?;
        read.close()?;
    }
    Ok(())
}

fn staged_io(machine: &Machine) -> StorageCheckResult {
    if machine.driver.is_none() {
        return Ok(());
    }
    let (_, threads) = domain(machine)?;
    for (pipelined, through) in [
        (true, MemKind::Pinned),
        (false, MemKind::Pinned),
        (true, MemKind::Paged),
        (false, MemKind::Paged),
    ] {
        for op in [IoOp::Read, IoOp::Write, IoOp::Mix { reads: 50 }] {
            for engine in ENGINES {
                let stage = Some(IoStage { pipelined, through });
                let io = IoSpec { stage, ..io(engine, op, threads) };
                let Some(case) = open(machine, io, SEED)? else { continue };
                let done = case.sample(41)?;
                let copies = done.reading.copy.count();
                ensure!(copies == 41, "[{io}]: {copies} copies of 41 blocks");
                let own = done.reading.device.count();
                ensure!(own == 41, "[{io}]: {own} of 41 I/Os without their copies");
                case.verify(SEED)?;
                case.close()?;
            }
        }
    }
    Ok(())
}

fn invalid_jobs(machine: &Machine) -> StorageCheckResult {
    let files = storage(machine)?;
    let (numa, threads) = domain(machine)?;
    let host = machine.buffer(Place::new(Unit::Numa(numa), MemKind::Paged), Bytes::mib(1))?;
    let span = |bytes| LocalMemory { address: host.address(), bytes };
    let plain = io(IoEngine::Sync, IoOp::Read, threads);
    let beyond = u32::try_from(files.stores().len()).unwrap_or(u32::MAX);
    let job = |store, io: IoSpec, block: Bytes, bytes| IoJob {
        io,
        workers: WorkerRange::alone(&io),
        store,
        block,
        numa,
        host: span(bytes),
        gpu: None,
    };
    ensure!(files.cannot(beyond, &plain, BLOCK).is_some(), "store{beyond} is there");
    let direct = IoSpec { cache: IoCache::Direct, ..plain };
    for (what, job) in [
        ("a store that is not there", job(beyond, plain, BLOCK, 1 << 20)),
        ("7 B past the page cache", job(0, direct, Bytes(7), 1 << 20)),
        ("files smaller than a block", job(0, plain, Bytes::mib(2), 1 << 20)),
    ] {
        match machine.open_io(job, SEED) {
            Ok(_) => return Err(CheckFailure(format!("{what}: opened"))),
            Err(error) => ensure!(!error.reason.is_empty(), "{what}: refused without a reason"),
        }
    }
    Ok(())
}

fn bad_handles(machine: &Machine) -> StorageCheckResult {
    let files = storage(machine)?;
    let none = IoId(u64::MAX);
    let gate = machine.host.gate_create()?;
    ensure!(files.submit(none, gate, 1).is_err(), "I/O was given to nobody");
    ensure!(files.reap(none).is_err(), "reaped from nobody");
    ensure!(files.spoil(none).is_err() && files.land(none).is_err(), "files of nobody changed");
    ensure!(files.check(none, SEED).is_err(), "files of nobody were compared");
    ensure!(files.close(none).is_err(), "what was never open was closed");
    machine.host.gate_destroy(gate)?;

    let case = open_first(machine, |io| io, SEED)?;
    ensure!(case.open.reap().is_err(), "reaped what was not submitted");
    let gate = machine.gate()?;
    case.open.submit(&gate, 4)?;
    ensure!(case.open.submit(&gate, 4).is_err(), "submitted twice without reaping");
    gate.release()?;
    let done = case.open.reap()?;
    ensure!(done.ops == 4, "{} I/Os, not 4", done.ops);
    case.close()
}

/// Each operation, in folders of each worker and shared ones, of empty files and of small ones.
fn metadata(machine: &Machine) -> StorageCheckResult {
    let (numa, threads) = domain(machine)?;
    for &op in MetaOp::ALL {
        for folders in [IoFiles::Own, IoFiles::Shared] {
            for bytes in [Bytes(1), Bytes(5), BLOCK] {
                if op.is_of_folders() && bytes.0 > 1 {
                    continue;
                }
                let files = if op.is_of_folders() { 0 } else { 9 };
                let meta = MetaSpec { op, folders, dirs: 3, files, threads };
                let job = MetaJob { meta, store: 0, bytes, numa };
                let named = |e: CheckFailure| CheckFailure(format!("[{meta}] x {bytes}: {e}"));
                if storage(machine)?.cannot_meta(&job).is_some() {
                    continue;
                }
                metadata_job(machine, job).map_err(named)?;
            }
        }
    }
    Ok(())
}

fn metadata_job(machine: &Machine, job: MetaJob) -> StorageCheckResult {
    let open = machine.open_meta(job, SEED)?;
    let all = job.meta.items();
    ensure!(!open.engine().is_empty(), "the engine has no description");
    // All of them, one of them, all again, and fewer than workers.
    for ops in [all, 1, all, all - 1] {
        let gate = machine.gate()?;
        open.submit(&gate, ops)?;
        gate.release()?;
        let done = open.reap()?;
        let counted = done.reading.latency.count();
        ensure!(done.ops == ops && counted == ops, "{} and {counted} of {ops}", done.ops);
        ensure!(done.elapsed > Ns::ZERO, "it took {}", done.elapsed);
        let by_then = done.reading.first_done_ops;
        ensure!((1..=ops).contains(&by_then), "{by_then} of {ops} by the first");
    }
    open.land()?;
    let verdict = open.check(SEED)?;
    let known = machine.world.is_model() || verdict == VerifyResult::Verified;
    ensure!(known, "{verdict:?}");
    if job.meta.op.is_once() {
        let gate = machine.gate()?;
        let refused = open.submit(&gate, all + 1);
        ensure!(refused.is_err(), "{} operations on {all} names", all + 1);
        gate.release()?;
    }
    open.close()?;
    Ok(())
}
