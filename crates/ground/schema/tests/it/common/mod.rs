//! Strategies for every noun that has a text.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::BTreeMap;

use pathline_schema::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence};

/// Failing inputs are kept next to the tests and tried first from then on.
pub fn config() -> Config {
    let kept = FileFailurePersistence::WithSource("regressions");
    Config { failure_persistence: Some(Box::new(kept)), ..Config::default() }
}

pub fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        any::<u64>(),
        (0..20_u64, 0..50_u32).prop_map(|(n, shift)| n << shift),
        Just(u64::MAX),
        Just(0),
    ]
    .prop_map(Bytes)
}

pub fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![
        any::<u32>().prop_map(Unit::Gpu),
        any::<u32>().prop_map(Unit::Numa),
        any::<u32>().prop_map(Unit::Store),
    ]
}

fn gpu() -> impl Strategy<Value = Unit> {
    any::<u32>().prop_map(Unit::Gpu)
}

pub fn node() -> impl Strategy<Value = LinkEnd> {
    prop_oneof![unit().prop_map(LinkEnd::from), any::<u32>().prop_map(LinkEnd::Switch)]
}

pub fn place() -> impl Strategy<Value = Place> {
    (any::<u32>(), unit(), select(MemKind::ALL)).prop_map(|(rank, unit, mem)| Place {
        rank: Rank(rank),
        unit,
        mem,
    })
}

pub fn variant() -> impl Strategy<Value = KernelVariant> {
    let grid = prop_oneof![
        (1..=1_u32 << 20).prop_map(GridSize::Blocks),
        (1..=1_u32 << 20).prop_map(GridSize::PerSm),
        Just(GridSize::Tiles),
    ];
    let access = prop_oneof![
        (select(vec![4_u8, 8, 16]), 1..=64_u8)
            .prop_map(|(word, unroll)| AccessWidth::Words { word, unroll }),
        (1..=64_u8, 1..=64_u8).prop_map(|(chunk, stages)| AccessWidth::Bulk { chunk, stages }),
    ];
    let order = select(vec![TileOrder::Interleaved, TileOrder::Segments]);
    let passes = select(vec![1_u8, 1, 3, 99]);
    let rest = (select(CacheHint::ALL), order, 1..=1024_u16, grid, passes);
    (select(KernelOp::ALL), access, rest)
        .prop_map(|(op, access, (hint, order, block, grid, passes))| KernelVariant {
            op,
            access,
            hint,
            order,
            block,
            grid,
            passes,
        })
        // An impossible kernel has a text, but the text does not parse.
        .prop_filter("there is such a kernel", |v| v.to_string().parse::<KernelVariant>().is_ok())
}

pub fn mover() -> impl Strategy<Value = Mover> {
    let how = select(vec![MigrateHow::Fault, MigrateHow::Prefetch]);
    let work = (select(CpuOp::ALL), select(CpuHow::ALL)).prop_map(|(op, how)| CpuWork { op, how });
    prop_oneof![
        gpu().prop_map(|at| Mover::Dma { at }),
        gpu().prop_map(|at| Mover::Blit { at }),
        (gpu(), variant()).prop_map(|(at, variant)| Mover::Kernel { at, variant }),
        (any::<u32>(), work, 1..=u32::MAX).prop_map(|(n, work, threads)| Mover::Cpu {
            at: Unit::Numa(n),
            work,
            threads
        }),
        (unit(), how).prop_map(|(at, how)| Mover::Migrate { at, how }),
        (gpu(), any::<u32>()).prop_map(|(at, n)| Mover::Staged { at, via: Unit::Numa(n) }),
        (gpu(), 1..=u32::MAX).prop_map(|(at, threads)| Mover::Threads { at, threads }),
        (gpu(), 1..=u32::MAX).prop_map(|(at, copies)| Mover::Batch { at, copies }),
        (gpu(), 1..=MAX_BLOCKS, scattered()).prop_map(|(at, blocks, by)| Mover::Blocks {
            at,
            blocks,
            by
        }),
        (gpu(), paths()).prop_map(|(at, paths)| Mover::Relay { at, paths }),
        (gpu(), paths()).prop_map(|(at, paths)| Mover::CopyToAll { at, paths }),
        (gpu(), select(RuntimeCall::ALL)).prop_map(|(at, call)| Mover::Call { at, call }),
        (unit(), wire()).prop_map(|(at, wire)| Mover::Wire { at, wire }),
        (any::<u32>(), io()).prop_map(|(n, io)| Mover::Io { at: Unit::Numa(n), io }),
        (any::<u32>(), meta()).prop_map(|(n, meta)| Mover::Meta { at: Unit::Numa(n), meta }),
    ]
    .prop_map(has_strategy)
}

fn scattered() -> impl Strategy<Value = ScatterMethod> {
    prop_oneof![
        (1..=1024_u32).prop_map(|units| ScatterMethod::Kernel { units }),
        select(vec![ScatterMethod::Each, ScatterMethod::Batch]),
    ]
}

/// Does not compile until each mover is named; then it needs its strategy above.
const fn has_strategy(mover: Mover) -> Mover {
    match mover {
        Mover::Dma { .. }
        | Mover::Blit { .. }
        | Mover::Kernel { .. }
        | Mover::Cpu { .. }
        | Mover::Migrate { .. }
        | Mover::Staged { .. }
        | Mover::Threads { .. }
        | Mover::Batch { .. }
        | Mover::Blocks { .. }
        | Mover::Relay { .. }
        | Mover::CopyToAll { .. }
        | Mover::Call { .. }
        | Mover::Wire { .. }
        | Mover::Io { .. }
        | Mover::Meta { .. } => mover,
    }
}

/// Relays and chunks.
fn paths() -> impl Strategy<Value = MultipathSpec> {
    let gpus = proptest::collection::vec(0..GpuSet::CAPACITY, 1..8);
    let chunk = MultipathSpec::MIN_CHUNK.0..=MultipathSpec::MAX_CHUNK.0;
    (gpus, chunk, select(CopyAgent::ALL), any::<bool>()).prop_map(|(gpus, chunk, agent, shared)| {
        let gpus: GpuSet = gpus.into_iter().collect();
        let mut percent = vec![1; gpus.len() as usize + 1];
        percent[0] = 100 - gpus.len() as u8;
        let shares = PathShares::new(&percent).filter(|_| shared);
        MultipathSpec { gpus, chunk: Bytes(chunk), agent, shares }
    })
}

/// Metadata operations of every kind.
fn meta() -> impl Strategy<Value = MetaSpec> {
    let counts = (1..=u32::MAX, 1..=u32::MAX, 1..=u32::MAX);
    (select(MetaOp::ALL), select(&[IoFiles::Shared, IoFiles::Own][..]), counts).prop_map(
        |(op, folders, counts)| {
            let (dirs, files, threads) = counts;
            let files = if op.is_of_folders() { 0 } else { files };
            MetaSpec { op, folders, dirs, files, threads }
        },
    )
}

/// I/O of every kind.
fn io() -> impl Strategy<Value = IoSpec> {
    let op = prop_oneof![
        Just(IoOp::Read),
        Just(IoOp::Write),
        (1..=99_u8).prop_map(|reads| IoOp::Mix { reads }),
    ];
    let stage = (
        any::<bool>(),
        select(&[MemKind::Pinned, MemKind::Registered, MemKind::Paged, MemKind::Huge][..]),
    )
        .prop_map(|(pipelined, through)| IoStage { pipelined, through });
    let kind = (select(IoEngine::ALL), op, select(IoOrder::ALL), select(IoCache::ALL));
    let count = || 1..=u32::MAX;
    let rate = option::of(bytes()).prop_map(|rate| rate.filter(|rate| rate.0 > 0));
    let shape = (select(IoFiles::ALL), bytes(), count(), count(), count(), rate, option::of(stage));
    (kind, shape).prop_map(
        |((engine, op, order, cache), (files, span, depth, batch, threads, rate, stage))| IoSpec {
            engine,
            op,
            order,
            cache,
            files,
            span,
            depth,
            batch,
            threads,
            rate,
            stage,
        },
    )
}

const WORKS: &[OverlapWork] =
    &[OverlapWork::Nothing, OverlapWork::Compute, OverlapWork::ComputeTest];
fn reduced() -> impl Strategy<Value = ElementReduction> {
    (select(ElementType::ALL), select(ReduceOp::ALL))
        .prop_map(|(element, by)| ElementReduction { element, by })
}

fn wire_op() -> impl Strategy<Value = WireOp> {
    let window = 1..=u32::MAX;
    prop_oneof![
        Just(WireOp::Ping),
        Just(WireOp::Consume),
        window.clone().prop_map(|window| WireOp::Send { window }),
        window.clone().prop_map(|window| WireOp::Put { window }),
        window.clone().prop_map(|window| WireOp::Get { window }),
        window.clone().prop_map(|window| WireOp::PersistentSend { window }),
        Just(WireOp::PersistentPing),
        select(AtomicOp::ALL).prop_map(WireOp::Atomic),
        select(Collective::ALL).prop_map(|op| WireOp::PersistentGroup { op }),
        (select(Collective::ALL), select(WORKS))
            .prop_map(|(op, work)| WireOp::Overlapped { op, work }),
        (select(Collective::ALL), reduced(), any::<bool>(), any::<bool>()).prop_map(
            |(op, reduced, in_place, unregistered)| {
                let reduced = if op.reduces() { reduced } else { ElementReduction::USUAL };
                WireOp::Group { op, reduced, in_place, unregistered }
            }
        ),
    ]
}

/// Every transport, with the processes that copy where it has a choice.
fn wire() -> impl Strategy<Value = MessageOp> {
    let how = || select(CpuHow::ALL);
    let transport = prop_oneof![
        select(&[Transport::Mpi, Transport::Ccl, Transport::Ucx][..]).prop_map(|via| (via, None)),
        (how(), how()).prop_map(|(copy_in, copy_out)| {
            (Transport::Shm, Some(ShmCopies::InOut { copy_in, copy_out }))
        }),
        select(&[ShmCopies::Read, ShmCopies::Write][..])
            .prop_map(|copies| (Transport::Cma, Some(copies))),
        how().prop_map(|how| (Transport::Xpmem, Some(ShmCopies::Single(how)))),
    ];
    let switch = option::of(select(UcxSetting::ALL));
    let agent = option::of(select(CopyAgent::ALL));
    let rma = (option::of(select(WindowKind::ALL)), option::of(select(WindowSync::ALL)));
    (transport, wire_op(), option::of(select(CoreDistance::ALL)), (agent, switch), rma).prop_map(
        |((via, copies), op, near, (agent, switch), (window, sync))| {
            let by_window = via == Transport::Mpi && op.is_one_sided();
            let (window, sync) = (window.filter(|_| by_window), sync.filter(|_| by_window));
            let switch = switch.filter(|_| matches!(via, Transport::Mpi | Transport::Ucx));
            let agent = agent.filter(|_| matches!(via, Transport::Mpi | Transport::Ucx));
            MessageOp { via, op, copies, window, sync, near, agent, switch }
        },
    )
}

pub fn flow() -> impl Strategy<Value = Flow> {
    (place(), place(), mover(), bytes()).prop_map(|(src, dst, by, bytes)| Flow {
        src,
        dst,
        by,
        bytes: Bytes(bytes.0.max(1)),
    })
}

pub fn case() -> impl Strategy<Value = Case> {
    (vec(flow(), 1..4), vec(flow(), 0..3), select(Cadence::ALL))
        .prop_map(|(timed, background, cadence)| Case { timed, background, cadence })
}

pub fn cpu_set() -> impl Strategy<Value = CpuSet> {
    prop_oneof![vec(0..65_536_u32, 0..40), vec(0..64_u32, 0..80)].prop_map(CpuSet::new)
}

/// A wildcard pattern: at least one `*`, so that its text is no case.
pub fn pattern() -> impl Strategy<Value = CasePattern> {
    let word = || "[a-z0-9.?@\\[\\]-]{0,6}\\*[a-z0-9.?@-]{0,6}";
    let flow = (word(), word(), word(), word())
        .prop_map(|(src, dst, by, bytes)| CasePattern::Flow { src, dst, by, bytes });
    prop_oneof![flow, case().prop_map(CasePattern::Exact)]
}

/// Finite floats of every magnitude.
pub fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("finite", |x| x.is_finite()), 0.0..1e9]
}

fn words() -> impl Strategy<Value = Vec<String>> {
    vec(any::<String>(), 0..3)
}

fn conditions() -> impl Strategy<Value = Conditions> {
    btree_map("[a-z0-9_]{1,12}", float(), 0..3).prop_map(Conditions)
}

pub fn world() -> impl Strategy<Value = WorldKind> {
    prop_oneof![Just(WorldKind::Real), any::<String>().prop_map(WorldKind::Simulated)]
}

fn settings() -> impl Strategy<Value = RunSettings> {
    let numbers = (any::<u32>(), any::<u64>());
    let times = (float(), float(), float());
    (float(), numbers, times, bytes()).prop_map(|(precision, (min, seed), times, memory)| {
        RunSettings {
            precision,
            min_samples: min,
            case_budget: Ns(times.0),
            min_sample: Ns(times.1),
            time_limit: Ns(times.2),
            memory,
            seed,
            noise: (seed % 2 == 0).then_some(times.0),
            ..RunSettings::default()
        }
    })
}

pub fn begin() -> impl Strategy<Value = RunBegin> {
    let texts = (any::<String>(), any::<String>(), any::<String>());
    let env = btree_map(any::<String>(), any::<String>(), 0..3);
    let overhead = btree_map("[a-z-]{1,12}", float(), 0..3);
    (world(), texts, words(), env, settings(), overhead).prop_map(
        |(world, (version, host, started), command, env, settings, overhead_ns)| RunBegin {
            version,
            host,
            pid: Some(4242),
            started,
            command,
            machine_sha256: Some("5e1f".to_owned()),
            env,
            settings,
            overhead_ns,
            gpus: BTreeMap::from([(Unit::Gpu(3), facts())]),
            ranks: Vec::from([RankMember {
                gpu_identities: Vec::new(),
                rank: Rank(0),
                host: "node1".to_owned(),
                node: 0,
                pid: 4242,
                gpus: vec![0],
                numa: 0,
                cpus: "0-7".to_owned(),
                ways: BTreeMap::from([(Transport::Mpi, "MPICH 5.0.2".to_owned())]),
                without: BTreeMap::from([(Transport::Xpmem, "no /dev/xpmem".to_owned())]),
                gpu: Some("a GPU of 1GiB, 8 on its host".to_owned()),
                host_only: BTreeMap::from([(Transport::Mpi, "a child died of it".to_owned())]),
                device_memory: BTreeMap::from([(Transport::Ucx, "it reports so".to_owned())]),
            }]),
            stores: vec![store()],
            ..RunBegin::new(world)
        },
    )
}

pub fn topology() -> impl Strategy<Value = Topology> {
    let link = (node(), node(), select(LinkKind::ALL), any::<u32>(), option::of(float()))
        .prop_map(|(a, b, kind, width, peak)| Link { a, b, kind, width, peak: peak.map(Rate) });
    let route = (node(), node(), any::<u32>(), vec(vec(node(), 0..3), 0..3))
        .prop_map(|(src, dst, hops, via)| GpuRoute { src, dst, hops, via });
    let numa = (any::<u32>(), cpu_set(), bytes(), vec(any::<u32>(), 0..4)).prop_map(
        |(id, cpus, memory, distances)| NumaDomain {
            id,
            cpus,
            memory,
            distances,
            ..NumaDomain::default()
        },
    );
    let pcie = (float(), any::<u32>(), float(), any::<u32>()).prop_map(
        |(speed_gts, width, max_speed_gts, max_width)| PcieLink {
            speed_gts,
            width,
            max_speed_gts,
            max_width,
        },
    );
    let gpu = (any::<u32>(), any::<String>(), option::of(any::<u32>()), option::of(pcie)).prop_map(
        |(index, name, numa, host_link)| Gpu { index, name, numa, host_link, ..Gpu::default() },
    );
    let lists = (vec(numa, 0..3), vec(gpu, 0..3), vec(link, 0..3), vec(route, 0..3));
    (any::<String>(), lists).prop_map(|(source, (numa, gpus, links, routes))| Topology {
        source,
        numa,
        gpus,
        links,
        routes,
        ..Topology::default()
    })
}

fn series() -> impl Strategy<Value = FlowSeries> {
    let head = (flow(), any::<u32>(), select(TimerKind::ALL), any::<String>());
    (head, any::<u64>(), any::<u64>(), bytes(), vec(float(), 0..6)).prop_map(
        |((flow, rank, timer, engine), reps, steps, moved_bytes, samples_ns)| FlowSeries {
            rank: Rank(rank),
            engine,
            reps,
            steps,
            moved_bytes,
            by_rank: BTreeMap::from([(Rank(1), samples_ns.clone())]),
            off_cpu_ns: vec![u64::from(rank); samples_ns.len()],
            samples_ns,
            io: vec![io_reading()],
            setup: BTreeMap::from([("io_uring_setup".to_owned(), tally(1, 42_000.0))]),
            ..FlowSeries::new(flow, timer)
        },
    )
}

fn tally(count: u64, ns: f64) -> CallTally {
    CallTally { count, ns }
}

fn io_reading() -> IoReading {
    IoReading {
        first_done_ns: 1.5e6,
        first_done_ops: 96,
        worker_ns: vec![1_500_000, 1_620_000],
        cpu_user_ns: 2.0e5,
        cpu_system_ns: 4.0e5,
        latency: IoHistogram::of([82_000, 91_000, 383_000]),
        device: IoHistogram::of([80_000, 90_000, 370_000]),
        copy: IoHistogram::of([1700, 1800, 13_000]),
        calls: BTreeMap::from([("cuMemcpyAsync".to_owned(), tally(3, 14_000.0))]),
        faults: Some(PageFaults { minor: 3, major: 1 }),
        requests: Some(4),
    }
}

fn store() -> StoreFacts {
    StoreFacts {
        path: "/scratch".to_owned(),
        file_system: "ext4".to_owned(),
        device: "nvme0n1".to_owned(),
        scheduler: "none".to_owned(),
        numa: Some(0),
        queues: 16,
        queue_depth: 256,
        write_cache: "write back".to_owned(),
        fs_block: Bytes(4096),
        size: Bytes::gib(100),
        max_hardware_request: Bytes::mib(2),
        stripes: vec![StripeLayout {
            size: Bytes::mib(1),
            count: 2,
            pool: "flash".to_owned(),
            targets: vec![3, 11],
            ..StripeLayout::default()
        }],
        logical_block: Bytes(512),
        without: Some("read-only".to_owned()),
        ..StoreFacts::default()
    }
}

fn measured() -> impl Strategy<Value = MeasuredCase> {
    let stop = (select(StopReason::ALL), any::<u32>(), float(), float()).prop_map(
        |(reason, warmup, half_width, elapsed)| StopInfo {
            reason,
            warmup,
            half_width,
            elapsed: Ns(elapsed),
            load: Ns(f64::from(warmup)),
        },
    );
    let verdict = prop_oneof![
        Just(VerifyResult::Verified),
        any::<String>().prop_map(VerifyResult::Unverified)
    ];
    let env = btree_map(any::<String>(), any::<String>(), 0..2);
    (case(), words(), vec(series(), 0..3), stop, verdict, conditions(), conditions(), env).prop_map(
        |(case, suites, series, stop, verdict, before, after, env)| MeasuredCase {
            case,
            suites,
            series,
            stop,
            compared: (stop.warmup > 9)
                .then_some(ComparedBlocks { bytes: Bytes(u64::from(stop.warmup)), seed: 7 }),
            verdict,
            before,
            after,
            env,
            gpus: BTreeMap::from([(Unit::Gpu(3), readings(stop.warmup, stop.half_width))]),
            origin: (stop.warmup > 5).then_some(ConstantOrigin::Assumed),
        },
    )
}

/// One of everything that a GPU can say of itself.
pub fn facts() -> GpuFacts {
    GpuFacts {
        source: "NVML 550.54".to_owned(),
        max_sm_clock_mhz: Some(1980),
        max_memory_clock_mhz: Some(3201),
        power_limit_w: Some(700.0),
        ecc: Some(true),
        mig: Some(false),
        persistence: None,
        compute_mode: Some("default".to_owned()),
        nvlinks: Some((17, 18)),
        fabric: Some("completed".to_owned()),
        busy_percent: Some(3),
        identity: BoardIdentity {
            uuid: "GPU-1b2c".to_owned(),
            serial: "165".to_owned(),
            vbios: "96.00".to_owned(),
            board_part: "900-2".to_owned(),
        },
    }
}

pub fn readings(number: u32, value: f64) -> GpuReadings {
    let state = GpuState {
        sm_clock_mhz: Some(number),
        power_w: Some(value),
        throttle: Some(vec!["power cap".to_owned()]),
        pcie_replays: Some(u64::from(number)),
        other_processes: Some(number),
        pcie: Some(PcieLink { speed_gts: 32.0, width: 16, ..PcieLink::default() }),
        ..GpuState::default()
    };
    let during = (number.is_multiple_of(2)).then(|| state.clone());
    GpuReadings { before: state, during, after: GpuState::default() }
}

pub fn message() -> impl Strategy<Value = JournalRecord> {
    let sampled = (case(), words(), vec(series(), 0..3)).prop_map(|(case, suites, series)| {
        JournalRecord::Sampled(SampledCase { case, suites, series })
    });
    let skipped = (case(), words(), any::<String>())
        .prop_map(|(case, suites, why)| JournalRecord::Skipped(SkippedCase { case, suites, why }));
    let failed = vec((0_u32..9).prop_map(Rank), 0..3);
    let faulted = (case(), words(), any::<String>(), select(Severity::ALL), failed).prop_map(
        |(case, suites, error, severity, ranks)| {
            JournalRecord::Faulted(FaultedCase { case, suites, error, severity, ranks })
        },
    );
    let note = (any::<String>(), any::<String>(), any::<String>())
        .prop_map(|(code, subject, text)| JournalRecord::Note(RunNote { code, subject, text }));
    let end = (any::<String>(), float(), any::<bool>(), option::of(any::<String>())).prop_map(
        |(ended, elapsed, complete, why)| {
            JournalRecord::End(RunEnd {
                ended,
                elapsed: Ns(elapsed),
                complete,
                why,
                missing: BTreeMap::new(),
            })
        },
    );
    prop_oneof![
        begin().prop_map(|b| JournalRecord::Begin(Box::new(b))),
        topology().prop_map(|t| JournalRecord::Topology(Box::new(t))),
        sampled,
        measured().prop_map(|m| JournalRecord::Measured(Box::new(m))),
        skipped,
        faulted,
        note,
        end,
    ]
}

/// A begin of a real run with nothing remarkable.
pub fn plain_begin(world: WorldKind) -> JournalRecord {
    JournalRecord::Begin(Box::new(RunBegin {
        version: "0.1.0".to_owned(),
        host: "node1".to_owned(),
        started: "2026-11-21T00:00:00Z".to_owned(),
        command: vec!["pathline".to_owned(), "run".to_owned()],
        settings: RunSettings {
            min_samples: 8,
            max_samples: 1000,
            case_budget: Ns::secs(2.0),
            min_sample: Ns::us(100.0),
            memory: Bytes::gib(1),
            ..RunSettings::default()
        },
        overhead_ns: BTreeMap::from([("host".to_owned(), 42.5)]),
        ..RunBegin::new(world)
    }))
}
