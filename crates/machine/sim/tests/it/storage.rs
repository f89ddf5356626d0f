//! Files of a model: times that can be worked out by hand, and bytes that arrive or do not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_hal::{
    CallResult, GpuEnd, IoDone, IoJob, LocalMemory, Machine, MachineBuffer, OpenIo, WorkerRange,
};
use pathline_schema::{Bytes, Case, Flow, IoFiles, IoSpec, MemKind, Place, Severity, Unit};
use pathline_sim::{FaultOrder, SimOptions, machine_with};

const SEED: u64 = 77;

/// mi250x with a drive that is easy to reckon with: 64 channels of 80 us to read and 20 us to write,
/// 4 and 2 GB/s, 2 us a request at the front (500 thousand a second), no stripes.
const STORE: &str = "
[[store]]
kind = 'nvme'
path = '/mnt/plain'
file_system = 'ext4'
near = 'numa0'
capacity_gib = 4
channels = 64
read_us = 80
write_us = 20
spread = 0.2
read_gbs = 4
write_gbs = 2
read_iops = 500000
write_iops = 500000
max_request_bytes = 1048576
max_segments = 64
";

fn desc() -> MachineDesc {
    let (_, text) = MachineDesc::presets()[0];
    let stores = text.find("[[store]]").unwrap();
    let io = text.find("[io]").unwrap();
    let text = format!("{}{STORE}{}", &text[..stores], &text[io..]);
    MachineDesc::parse("plain.toml", &text).unwrap_or_else(|e| panic!("{e}"))
}

fn still() -> SimOptions {
    SimOptions { jitter: 0.0, ..SimOptions::default() }
}

fn node(options: &SimOptions) -> Machine {
    machine_with(&desc(), RuntimeEnv::default(), options).unwrap()
}

/// Memory of a job, and what is opened over it. In this order, so that it closes first.
struct Bench<'m> {
    open: OpenIo<'m>,
    end: MachineBuffer<'m>,
    _host: Option<MachineBuffer<'m>>,
    machine: &'m Machine,
    flow: Flow,
}

fn flow(text: &str) -> Flow {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn open<'m>(machine: &'m Machine, text: &str) -> CallResult<Bench<'m>> {
    let flow = flow(text);
    let io: IoSpec = *flow.by.io().unwrap();
    let (file, memory) = flow.io_ends();
    let at = flow.by.at();
    let bytes = Bytes(flow.bytes.0 * io.slots());
    let span = |b: &MachineBuffer<'_>| LocalMemory { address: b.address(), bytes: b.bytes().0 };
    let end = machine.buffer(memory, bytes)?;
    let through = io.stage.map(|stage| Place { unit: at, mem: stage.through, ..memory });
    let host = through.map(|place| machine.buffer(place, bytes)).transpose()?;
    let gpu = memory.unit.gpu().map(|gpu| {
        let driver = machine.driver().unwrap();
        let copier = || driver.copier(gpu, io.depth as usize).unwrap();
        GpuEnd { gpu, memory: span(&end), copiers: (0..io.threads).map(|_| copier()).collect() }
    });
    let host_span = span(host.as_ref().unwrap_or(&end));
    if io.writes() {
        end.fill(SEED, false)?;
    }
    let (store, numa) = (file.unit.store().unwrap(), at.numa().unwrap());
    let workers = WorkerRange::alone(&io);
    let job = IoJob { io, workers, store, block: flow.bytes, numa, host: host_span, gpu };
    Ok(Bench { open: machine.open_io(job, SEED)?, end, _host: host, machine, flow })
}

impl Bench<'_> {
    fn run(&self, ops: u64) -> IoDone {
        let gate = self.machine.gate().unwrap();
        self.open.submit(&gate, ops).unwrap();
        gate.release().unwrap();
        let done = self.open.reap().unwrap();
        assert_eq!(done.ops, ops);
        assert_eq!(done.reading.latency.count(), ops);
        assert!(done.reading.first_done_ns <= done.elapsed.0 * (1.0 + 1e-9), "{done:?}");
        assert!(done.reading.first_done_ops <= ops);
        done
    }
    fn rate(&self, ops: u64) -> f64 {
        self.flow.bytes.as_f64() * ops as f64 / self.run(ops).elapsed.0
    }
    /// What the slots of each file hold: offset, bytes, seed.
    fn parts(&self) -> impl Iterator<Item = (u64, Bytes, u64)> + use<> {
        let io = *self.flow.by.io().unwrap();
        let files = if io.files == IoFiles::Own { u64::from(io.threads) } else { 1 };
        let each = self.end.bytes().0 / files;
        (0..files).map(move |file| (file * each, Bytes(each), SEED + file))
    }
    /// What the engine does with a case: spoils, lands, compares.
    fn verify(&self) -> CallResult<()> {
        if self.flow.by.io().unwrap().writes() {
            self.parts().try_for_each(|(at, bytes, seed)| self.end.fill_part(at, bytes, seed))?;
            self.open.spoil()?;
            assert!(self.open.check(SEED).is_err(), "spoilt files pass");
            self.open.land()?;
            self.open.check(SEED).map(|_| ())
        } else {
            self.end.fill(1, false)?;
            self.open.land()?;
            self.parts().try_for_each(|(at, bytes, seed)| self.end.check_part(at, bytes, seed))
        }
    }
}

#[track_caller]
fn close_to(got: f64, expected: f64, share: f64) {
    assert!((got / expected - 1.0).abs() < share, "{got}, not {expected}");
}

/// A random read of 4 KiB by io_uring, one at a time: a call of 0.2 us, 0.08 in user mode, 0.45 and a
/// request of 0.75 in the kernel; 2 us at the front, 80 on the channel, 4096 B / 4 GB/s = 1.024 us on
/// the bus; 1.8 us until the thread runs.
#[test]
fn one_read_at_a_time() {
    let machine = node(&still());
    let case = "r0.store0.file > r0.numa0.paged by uring@numa0[rand-read,direct,shared,1GiB,q1,n1,t1] x 4KiB";
    let done = open(&machine, case).unwrap().run(1000);
    let each = 200.0 + 80.0 + 450.0 + 750.0 + 2000.0 + 80_000.0 + 1024.0 + 1800.0;
    close_to(done.elapsed.0, 1000.0 * each, 1e-9);
    close_to(done.reading.latency.mean().unwrap().0, each, 1e-5);
    // The thread works 0.08 us in user mode, and in the kernel the call, the I/O and waking up.
    close_to(done.reading.cpu_user_ns, 80.0 * 1000.0, 1e-9);
    close_to(done.reading.cpu_system_ns, (200.0 + 450.0 + 750.0 + 1800.0) * 1000.0, 1e-9);
    assert_eq!(done.reading.requests, Some(1000));
    assert_eq!(done.reading.calls["io_uring_enter"].count, 1000);
}

/// What depth does: with n in flight n times the I/Os, until the front takes 500 thousand a second.
/// There Little's law holds: those in flight are rate times latency.
#[test]
fn depth_until_the_front_is_full() {
    let machine = node(&SimOptions::default());
    let at = |depth: u32, threads: u32| {
        let case = format!(
            "r0.store0.file > r0.numa0.paged by uring@numa0[rand-read,direct,shared,1GiB,q{depth},n1,t{threads}] x 4KiB"
        );
        let done = open(&machine, &case).unwrap().run(40_000);
        (40_000.0 / done.elapsed.0 * 1e9, done.reading.latency.mean().unwrap().0)
    };
    let (one, _) = at(1, 1);
    let (four, _) = at(4, 1);
    close_to(four, 4.0 * one, 0.05);
    for (depth, threads) in [(64, 2), (128, 2), (128, 4)] {
        let (rate, latency) = at(depth, threads);
        close_to(rate, 5e5, 0.01);
        close_to(rate * latency / 1e9, f64::from(depth * threads), 0.02);
    }
}

/// 64 segments of 4 KiB are 256 KiB: a block of 1 MiB is four requests, in huge pages one.
#[test]
fn huge_pages_make_fewer_requests() {
    let machine = node(&still());
    for (mem, requests) in [("paged", 4), ("huge", 1)] {
        let case = format!(
            "r0.store0.file > r0.numa0.{mem} by uring@numa0[seq-read,direct,shared,1GiB,q4,n1,t1] x 1MiB"
        );
        let bench = open(&machine, &case).unwrap();
        assert_eq!(bench.run(100).reading.requests, Some(100 * requests));
        // Four in flight keep the bus of 4 GB/s full, but for the first request's 80 us.
        close_to(bench.rate(400), 4.0, 0.01);
    }
}

/// Staging to a GPU. Pipelined it takes what the slower stage takes: the drive's 4 GB/s. With one
/// block at a time each waits for the drive and then for the copy: their times add up.
#[test]
fn staging_overlaps_or_not() {
    let machine = node(&still());
    let case = |stage: &str, depth: u32| {
        format!(
            "r0.store0.file > r0.gpu4.vram by uring@numa0[seq-read,direct,shared,1GiB,q{depth},n1,t1,{stage}] x 1MiB"
        )
    };
    let piped = open(&machine, &case("pipelined-pinned", 8)).unwrap();
    close_to(piped.rate(800), 4.0, 0.01);

    let blocking = open(&machine, &case("blocking-pinned", 1)).unwrap();
    let done = blocking.run(100);
    let (io, copy) = (done.reading.device.mean().unwrap(), done.reading.copy.mean().unwrap());
    close_to(done.reading.latency.mean().unwrap().0, io.0 + copy.0, 1e-3);
    close_to(done.elapsed.0, 100.0 * (io.0 + copy.0), 1e-3);
    // The copy alone: a call of 1.5 us, a start of 13.3 us, 1 MiB at 25.5 GB/s = 41.12 us.
    close_to(copy.0, 1500.0 + 13300.0 + 1048576.0 / 25.5, 0.01);
    assert_eq!(done.reading.calls["hipMemcpyHtoD"].count, 100);
    // Even with 8 in flight, copies that the only thread waits for leave it 1 MiB each
    // 1.48 + 55.9 us and more, where the drive needs 262: the drive stays the limit.
    close_to(open(&machine, &case("blocking-pinned", 8)).unwrap().rate(800), 4.0, 0.03);
}

/// Where copies are the slower stage, they are the limit: eight blocks of 4 KiB at once to a GPU.
/// Blocking, a thread takes for each 0.2 + 1.28 us of I/O, and for the copy 1.5 + 13.3 us and 0.161 us of
/// bytes: 16.4 us. Pipelined its time is 1.48 + 1.5, and the drive's 2 us are less: 2.98 us.
#[test]
fn small_blocks_are_bound_by_their_copies() {
    let machine = node(&still());
    let rate = |stage: &str| {
        let case = format!(
            "r0.store0.file > r0.gpu4.vram by uring@numa0[rand-read,direct,shared,1GiB,q64,n1,t1,{stage}] x 4KiB"
        );
        20_000.0 / open(&machine, &case).unwrap().run(20_000).elapsed.0 * 1e3
    };
    close_to(rate("blocking-pinned"), 1.0 / 16.44, 0.02);
    close_to(rate("pipelined-pinned"), 1.0 / 2.98, 0.05);
}

/// For all paths, engines and orders: bytes that were read are in memory, bytes written in the
/// files.
#[test]
fn bytes_arrive() {
    let machine = node(&SimOptions::default());
    let ends =
        [("numa0.paged", ""), ("gpu4.vram", ",pipelined-pinned"), ("gpu2.vram", ",blocking-paged")];
    for engine in ["uring", "uring-plain", "aio", "sync"] {
        for (memory, stage) in ends {
            for op in ["rand-read", "seq-read", "seq-write", "rand-mix50"] {
                for (cache, files) in [("direct", "shared"), ("cached", "own"), ("cold", "own")] {
                    let depth = if engine == "sync" { "q1,n1" } else { "q4,n2" };
                    let args = format!("[{op},{cache},{files},8MiB,{depth},t3{stage}]");
                    let (file, memory) = ("r0.store0.file", format!("r0.{memory}"));
                    let (src, dst) = if op == "seq-write" {
                        (memory.as_str(), file)
                    } else {
                        (file, memory.as_str())
                    };
                    let case = format!("{src} > {dst} by {engine}@numa0{args} x 64KiB");
                    let bench = open(&machine, &case).unwrap_or_else(|e| panic!("{case}: {e}"));
                    bench.run(50);
                    bench.verify().unwrap_or_else(|e| panic!("{case}: {e}"));
                    assert!(!bench.open.engine().is_empty());
                    assert!(bench.open.close().unwrap().contains_key("openat"));
                }
            }
        }
    }
}

/// A run with the same seed gives the same times; with another seed others. Spread 0.2 of 80 us: no
/// read is below 64 us on its channel, one in a hundred above 64 + 16 x ln(100) = 137.7 us.
#[test]
fn times_spread_as_stated() {
    let case = "r0.store0.file > r0.numa0.paged by uring@numa0[rand-read,direct,shared,1GiB,q1,n1,t1] x 4KiB";
    let run = |seed| {
        let machine = node(&SimOptions { seed, jitter: 1e-6, ..SimOptions::default() });
        open(&machine, case).unwrap().run(20_000)
    };
    let (a, b, c) = (run(1), run(1), run(2));
    assert_eq!(a, b);
    assert_ne!(a.elapsed, c.elapsed);
    let rest = 200.0 + 80.0 + 450.0 + 750.0 + 2000.0 + 1024.0 + 1800.0;
    let of = |share| a.reading.latency.quantile(share).unwrap().0 - rest;
    assert!(of(0.0) >= 63_990.0, "{}", of(0.0));
    close_to(of(0.99), 64_000.0 + 16_000.0 * 100f64.ln(), 0.03);
    close_to(of(0.5), 64_000.0 + 16_000.0 * 2f64.ln(), 0.02);
}

/// Two jobs on one drive share its 4 GB/s; each takes twice as long as alone, also each I/O.
#[test]
fn two_jobs_share_a_drive() {
    let machine = node(&still());
    let case = |numa: u32| {
        format!(
            "r0.store0.file > r0.numa{numa}.huge by uring@numa{numa}[seq-read,direct,shared,1GiB,q8,n1,t1] x 1MiB"
        )
    };
    let (a, b) = (open(&machine, &case(0)).unwrap(), open(&machine, &case(1)).unwrap());
    let alone = a.run(200);
    let gate = machine.gate().unwrap();
    a.open.submit(&gate, 200).unwrap();
    b.open.submit(&gate, 200).unwrap();
    gate.release().unwrap();
    let (first, second) = (a.open.reap().unwrap(), b.open.reap().unwrap());
    close_to(first.elapsed.0, 2.0 * alone.elapsed.0, 0.01);
    close_to(second.elapsed.0, 2.0 * alone.elapsed.0, 0.01);
    let mean = |done: &IoDone| done.reading.latency.mean().unwrap().0;
    close_to(mean(&first), 2.0 * mean(&alone), 0.01);
}

/// 8 workers with 8 slots, in parts of one file that all begin on the first of 8 servers. Servers of
/// 2.4 GB/s could give 19.2, the node's link lets 11 through: workers that wait for a server queue
/// there once, and then follow each other. Of 28 I/Os each worker has 3 or 4, on 4 servers only:
/// 9.6 GB/s at most, and a good part of the time goes by until the first is there.
#[test]
fn workers_that_begin_on_one_server_spread_out() {
    let machine =
        machine_with(&MachineDesc::preset("mi250x").unwrap(), RuntimeEnv::default(), &still());
    let machine = machine.unwrap();
    let case = "r0.store1.file > r0.numa0.huge by uring@numa0[seq-read,direct,shared,16GiB,q8,n1,t8] x 1MiB";
    let bench = open(&machine, case).unwrap();
    close_to(bench.rate(16 * 64), 11.0, 0.05);
    assert!(bench.rate(28) < 9.6);
}

/// The page cache: reads of what is in it do not reach the drive; writes end when they do.
#[test]
fn the_page_cache() {
    let machine = node(&still());
    let read = open(&machine, "r0.store0.file > r0.numa0.paged by sync@numa0[seq-read,cached,shared,1GiB,q1,n1,t1] x 1MiB").unwrap();
    let done = read.run(100);
    assert_eq!(done.reading.requests, Some(0));
    assert!(1048576.0 * 100.0 / done.elapsed.0 > 4.5, "{done:?}");
    let write = open(&machine, "r0.numa0.paged > r0.store0.file by sync@numa0[seq-write,cached,shared,1GiB,q1,n1,t1] x 1MiB").unwrap();
    let done = write.run(400);
    close_to(400.0 * 1048576.0 / done.elapsed.0, 2.0, 0.02);
    assert_eq!(done.reading.calls["fdatasync"].count, 1);
}

/// 4 GiB of room: a file of 3 GiB fits, two do not; the error states the free space.
#[test]
fn no_space_left() {
    let machine = node(&still());
    let case = |files: &str| {
        format!(
            "r0.store0.file > r0.numa0.paged by uring@numa0[rand-read,direct,{files},3GiB,q1,n1,t2] x 4KiB"
        )
    };
    drop(open(&machine, &case("shared")).unwrap());
    let Err(error) = open(&machine, &case("own")).map(|_| ()) else { panic!("6 of 4 GiB") };
    assert_eq!((error.severity, error.code), (Severity::Exhausted, 28));
    assert!(error.to_string().contains("store0") && error.way_out.contains("--span"), "{error}");
    // The machine can still be used.
    open(&machine, &case("shared")).unwrap().run(10);
}

/// Refusals carry a reason, and the use of a closed handle is an error.
#[test]
fn refusals() {
    let machine = node(&still());
    let storage = machine.storage.as_deref().unwrap();
    let cannot = |args: &str, block: u64| {
        let case = format!("r0.store0.file > r0.numa0.paged by {args} x 4KiB");
        let flow: Flow = case.parse().unwrap();
        storage.cannot(0, flow.by.io().unwrap(), Bytes(block))
    };
    let usual = "uring@numa0[rand-read,direct,shared,1GiB,q4,n1,t2]";
    assert_eq!(cannot(usual, 4096), None);
    assert!(cannot(usual, 1000).unwrap().contains("multiples of 512B"));
    assert!(cannot(usual, 512 << 20).unwrap().contains("in flight"));
    let polled = "uring-poll@numa0[rand-read,direct,shared,1GiB,q4,n1,t2]";
    assert!(cannot(polled, 4096).unwrap().contains("poll queues"));
    let many = "uring@numa0[rand-read,direct,shared,1GiB,q4,n1,t17]";
    assert!(cannot(many, 4096).unwrap().contains("16 CPUs"));
    assert!(
        storage
            .cannot(
                1,
                flow(&format!("r0.store0.file > r0.numa0.paged by {usual} x 4KiB"))
                    .by
                    .io()
                    .unwrap(),
                Bytes(4096)
            )
            .unwrap()
            .contains("store1")
    );
    assert_eq!(machine.storage.as_deref().unwrap().stores()[0].free, Bytes::gib(4));
    // GPU direct has no memory on the host, which is not what is wrong with it.
    let memory = machine.buffer(Place::new(Unit::Gpu(0), MemKind::Vram), Bytes::mib(1)).unwrap();
    let direct =
        "r0.store0.file > r0.gpu0.vram by gds@numa0[seq-read,direct,shared,1GiB,q1,n1,t1] x 1MiB";
    let memory = LocalMemory { address: memory.address(), bytes: 1 << 20 };
    let end = GpuEnd { gpu: 0, memory, copiers: Vec::new() };
    let io = *flow(direct).by.io().unwrap();
    let (block, host) = (Bytes::mib(1), LocalMemory::default());
    let workers = WorkerRange::alone(&io);
    let job = IoJob { io, workers, store: 0, block, numa: 0, host, gpu: Some(end) };
    let error = machine.open_io(job, SEED).map(|_| ()).unwrap_err();
    assert_eq!(error.severity, Severity::Unsupported);
    assert!(error.reason.contains("GPU direct"), "{error}");
}

/// A case that writes and one that reads take turns on the same store: the one that reads finds what
/// it should.
#[test]
fn writes_leave_read_files_alone() {
    let machine = node(&SimOptions::default());
    let args = "uring@numa0[rand-OP,direct,shared,64MiB,q4,n2,t2]";
    let of = |src: &str, dst: &str, op: &str| {
        format!("r0.{src} > r0.{dst} by {} x 4KiB", args.replace("OP", op))
    };
    let read = open(&machine, &of("store0.file", "numa0.paged", "read")).unwrap();
    let write = open(&machine, &of("numa0.paged", "store0.file", "write")).unwrap();
    let mix = open(&machine, &of("store0.file", "numa0.paged", "mix50")).unwrap();
    for bench in [&read, &write, &mix, &read] {
        bench.run(100);
        bench.verify().unwrap();
        assert!(read.open.check(SEED).is_ok(), "the pattern is gone");
    }
}

/// Faults on order strike the calls of files; what they damage is found.
#[test]
fn faults_on_order() {
    let write = "r0.numa0.paged > r0.store0.file by uring@numa0[seq-write,direct,own,8MiB,q4,n1,t2] x 64KiB";
    let with = |fault| node(&SimOptions { faults: vec![fault], ..still() });
    let machine = with(FaultOrder::with_reason(
        "storage.reap",
        1,
        Severity::Transient,
        "input/output error (EIO)",
    ));
    let bench = open(&machine, write).unwrap();
    let gate = machine.gate().unwrap();
    bench.open.submit(&gate, 10).unwrap();
    gate.release().unwrap();
    let error = bench.open.reap().unwrap_err();
    assert_eq!(error.reason, "input/output error (EIO)");
    assert_eq!(bench.open.reap().unwrap().ops, 10);
    let full =
        FaultOrder::with_reason("storage.open", 1, Severity::Exhausted, "no space left on device");
    let machine = with(full);
    let error = open(&machine, write).map(|_| ()).unwrap_err();
    assert!(error.reason.contains("no space left"), "{error}");
    open(&machine, write).unwrap().verify().unwrap();
    let machine = with(FaultOrder::corrupts("storage.land", 1));
    let bench = open(&machine, write).unwrap();
    assert_eq!(bench.verify().unwrap_err().severity, Severity::Corrupt);
    bench.verify().unwrap();
}

/// The predicted rate bounds the simulated rate of each case, and is met where one part is clearly
/// the bottleneck.
#[test]
fn bounds_hold() {
    let desc = desc();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let machine = node(&still());
    for (args, block, met) in [
        ("uring@numa0[rand-read,direct,shared,1GiB,q1,n1,t1]", "4KiB", true),
        ("uring@numa0[rand-read,direct,shared,1GiB,q256,n8,t4]", "4KiB", true),
        ("uring@numa0[seq-read,direct,shared,1GiB,q16,n1,t1]", "1MiB", true),
        ("aio@numa0[rand-read,direct,shared,1GiB,q32,n4,t1]", "16KiB", false),
        ("sync@numa0[seq-read,cached,shared,1GiB,q1,n1,t4]", "1MiB", true),
        ("uring@numa0[rand-mix70,direct,own,64MiB,q16,n4,t4]", "4KiB", false),
    ] {
        let text = format!("r0.store0.file > r0.numa0.huge by {args} x {block}");
        let case: Case = text.parse().unwrap();
        let predicted = network.predict(&case).unwrap()[0].clone();
        let got = open(&machine, &text).unwrap().rate(4000);
        assert!(got <= predicted.rate.0 * 1.005, "{text}: {got} above {predicted:?}");
        assert!(!met || got >= predicted.rate.0 * 0.97, "{text}: {got} below {predicted:?}");
        assert!(!predicted.bound_by.is_empty());
    }
    let gone = "r0.store7.file > r0.numa0.huge by uring@numa0[rand-read,direct,shared,1GiB,q1,n1,t1] x 4KiB";
    assert!(network.operation(&flow(gone)).unwrap_err().0.contains("store7"));
    assert_eq!(Place::new(Unit::Store(0), MemKind::File).to_string(), "r0.store0.file");
}

/// Every preset has files, and without them there are none.
#[test]
fn presets_have_files() {
    for (name, _) in MachineDesc::presets() {
        let desc = MachineDesc::preset(name).unwrap();
        let machine = machine_with(&desc, RuntimeEnv::default(), &still()).unwrap();
        assert!(!machine.storage.unwrap().stores().is_empty(), "{name}");
        let without = SimOptions { files: false, ..still() };
        let machine = machine_with(&desc, RuntimeEnv::default(), &without).unwrap();
        assert!(machine.storage.is_none());
    }
}

/// A read of 4 KiB is due each ms: 100 of them take 100 ms, and each as long as it does alone. Where one is
/// due each 10 us and takes 86.3, the delay counts: the last one was due 99 x 10 us after the start.
#[test]
fn limited_rates_have_the_latency_of_the_schedule() {
    let machine = node(&still());
    let each = 200.0 + 80.0 + 450.0 + 750.0 + 2000.0 + 80_000.0 + 1024.0 + 1800.0;
    let run = |words: &str| {
        let by = format!("uring@numa0[rand-read,direct,shared,1GiB,{words}]");
        let case = format!("r0.store0.file > r0.numa0.paged by {by} x 4KiB");
        open(&machine, &case).unwrap().run(100)
    };
    let slow = run("q4,n1,t1,r4000KiB");
    close_to(slow.elapsed.0, 100.0 * 1e6, 1e-9);
    close_to(slow.reading.latency.mean().unwrap().0, each, 1e-5);
    let late = run("q1,n1,t1,r400000KiB");
    close_to(late.elapsed.0, 100.0 * each, 1e-9);
    close_to(late.reading.latency.max_ns as f64, 100.0 * each - 99.0 * 1e4, 1e-5);
}

/// An object store has requests by engine `s3` and no others, and no stripes.
#[test]
fn an_object_store_takes_requests() {
    let (_, text) = MachineDesc::presets()[0];
    let (stores, io) = (text.find("[[store]]").unwrap(), text.find("[io]").unwrap());
    let store = STORE.replace("'nvme'", "'object'").replace("near = 'numa0'\n", "");
    let engine = "[[io.engine]]\nname = 's3'\nuser_us = 9\nkernel_us = 12\n";
    let text = format!("{}{store}{}\n{engine}", &text[..stores], &text[io..]);
    let desc = MachineDesc::parse("objects.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let machine = machine_with(&desc, RuntimeEnv::default(), &still()).unwrap();
    let facts = machine.storage.as_deref().unwrap().stores().remove(0);
    assert!(facts.has_objects() && facts.stripes.is_empty(), "{facts:?}");
    for case in [
        "r0.store0.file > r0.numa0.paged by s3@numa0[rand-read,direct,shared,1GiB,q4,n1,t2] x 64KiB",
        "r0.store0.file > r0.numa0.paged by s3@numa0[seq-read,direct,each,1GiB,q1,n1,t1] x 1MiB",
        "r0.numa0.paged > r0.store0.file by s3@numa0[seq-write,direct,each,1GiB,q4,n1,t1] x 1MiB",
    ] {
        let open = open(&machine, case).unwrap();
        assert!(open.run(64).elapsed.0 > 0.0, "{case}");
        open.verify().unwrap_or_else(|e| panic!("{case}: {e}"));
    }
    let files = "r0.store0.file > r0.numa0.paged by uring@numa0[seq-read,direct,shared,1GiB,q1,n1,t1] x 1MiB";
    assert!(open(&machine, files).is_err_and(|e| e.to_string().contains("use engine s3")));
}
