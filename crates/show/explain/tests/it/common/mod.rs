//! Journals made by hand: every figure of them is stated, not measured.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod messages;
pub(crate) mod shown;
pub(crate) mod storage;

use std::collections::BTreeMap;

use pathline_schema::{
    Bytes, CacheGroup, Case, CaseOutcome, Conditions, CpuSet, FaultedCase, FlowSeries, Gpu,
    GpuFacts, GpuReadings, GpuRoute, GpuState, HostInfo, Journal, Link, LinkEnd, LinkKind,
    MeasuredCase, Ns, NumaDomain, Rank, RankMember, Rate, RunBegin, RunEnd, RunNote, RunSettings,
    Severity, SkippedCase, StopInfo, StopReason, TimerKind, Topology, Transport, Unit,
    VerifyResult, WorldKind,
};

pub(crate) fn begin(world: WorldKind) -> RunBegin {
    RunBegin {
        version: "0.1.0".into(),
        host: "testhost".into(),
        started: "2026-01-02T03:04:05Z".into(),
        command: vec!["pathline".into(), "run".into()],
        settings: RunSettings {
            min_samples: 6,
            max_samples: 200,
            case_budget: Ns::secs(1.0),
            min_sample: Ns::us(100.0),
            memory: Bytes::gib(4),
            ..RunSettings::default()
        },
        overhead_ns: BTreeMap::from([("host".to_owned(), 42.0)]),
        ..RunBegin::new(world)
    }
}

pub(crate) fn journal(world: WorldKind, topology: Topology, outcomes: Vec<CaseOutcome>) -> Journal {
    let end = Some(RunEnd {
        ended: "2026-01-02T03:05:05Z".into(),
        elapsed: Ns::secs(60.0),
        complete: true,
        why: None,
        missing: std::collections::BTreeMap::new(),
    });
    Journal { end, ..Journal::of_outcomes(begin(world), topology, outcomes) }
}

/// Nine samples about `centre`, 0.2 % apart: the median is `centre`.
pub(crate) fn ripple(centre: f64) -> Vec<f64> {
    (0..9).map(|i| centre * (1.0 + 0.002 * ((i * 7 % 9) as f64 - 4.0))).collect()
}

fn outcome(case: Case, suites: &[&str], series: Vec<FlowSeries>) -> CaseOutcome {
    CaseOutcome::Measured(Box::new(MeasuredCase {
        case,
        suites: suites.iter().map(|s| (*s).to_owned()).collect(),
        series,
        stop: StopInfo {
            reason: StopReason::Precise,
            warmup: 2,
            half_width: 0.006,
            elapsed: Ns::ms(300.0),
            load: Ns::ZERO,
        },
        verdict: VerifyResult::Verified,
        compared: None,
        before: Conditions(BTreeMap::from([("cpu_mhz".to_owned(), 3000.0)])),
        after: Conditions(BTreeMap::from([("cpu_mhz".to_owned(), 2900.0)])),
        env: BTreeMap::new(),
        gpus: BTreeMap::new(),
        origin: None,
    }))
}

fn engine(flow: &pathline_schema::Flow) -> &'static str {
    match flow.by {
        pathline_schema::Mover::Dma { .. } => "copy engine",
        pathline_schema::Mover::Blit { .. } => "blit kernel",
        _ => "",
    }
}

/// A case whose flows each run at `rate` GB/s of payload.
pub(crate) fn at_rate(suite: &str, case: &str, rate: f64) -> CaseOutcome {
    let case: Case = case.parse().expect("a case text");
    let series = case
        .timed
        .iter()
        .map(|flow| FlowSeries {
            engine: engine(flow).into(),
            moved_bytes: flow.bytes,
            samples_ns: ripple(flow.bytes.as_f64() / rate),
            visits: vec![1; 9],
            ..FlowSeries::new(*flow, TimerKind::Host)
        })
        .collect();
    outcome(case, &[suite], series)
}

/// A case whose steps each take `ns`.
pub(crate) fn at_latency(suite: &str, case: &str, ns: f64) -> CaseOutcome {
    let case: Case = case.parse().expect("a case text");
    let flow = case.timed[0];
    let series = FlowSeries {
        engine: engine(&flow).into(),
        steps: 100,
        moved_bytes: flow.bytes,
        samples_ns: ripple(100.0 * ns),
        visits: vec![1; 9],
        ..FlowSeries::new(flow, TimerKind::Host)
    };
    outcome(case, &[suite], vec![series])
}

pub(crate) fn skipped(suite: &str, case: &str, why: &str) -> CaseOutcome {
    CaseOutcome::Skipped(SkippedCase {
        case: case.parse().expect("a case text"),
        suites: vec![suite.into()],
        why: why.into(),
    })
}

pub(crate) fn faulted(suite: &str, case: &str, error: &str) -> CaseOutcome {
    CaseOutcome::Faulted(FaultedCase {
        case: case.parse().expect("a case text"),
        suites: vec![suite.into()],
        error: error.into(),
        severity: Severity::Transient,
        ranks: vec![],
    })
}

pub(crate) fn note(code: &str, subject: &str, text: &str) -> RunNote {
    RunNote { code: code.into(), subject: subject.into(), text: text.into() }
}

/// Two cores, 32 KiB of L1, 1 MiB of L2 and 32 MiB of L3.
pub(crate) fn small_host() -> Topology {
    let cpus = CpuSet::new([0, 1]);
    let cache = |level, size| CacheGroup {
        level,
        kind: if level == 1 { "Data".into() } else { "Unified".into() },
        size,
        line: 64,
        cpus: cpus.clone(),
    };
    Topology {
        source: "live".into(),
        host: HostInfo {
            hostname: "testhost".parse().unwrap(),
            arch: "x86_64".into(),
            cpu_model: "Test Processor 9000".into(),
            cpus: cpus.clone(),
            allowed_cpus: cpus.clone(),
            memory: Bytes::gib(24),
            page: Bytes::kib(4),
            huge_pages: vec![Bytes::mib(2)],
            transparent_huge_pages: "madvise".into(),
            ..HostInfo::default()
        },
        numa: vec![NumaDomain { id: 0, cpus: cpus.clone(), ..NumaDomain::default() }],
        caches: vec![cache(1, Bytes::kib(32)), cache(2, Bytes::mib(1)), cache(3, Bytes::mib(32))],
        ..Topology::default()
    }
}

/// Sizes of the small host's sweep.
pub(crate) const SIZES: [&str; 6] = ["4KiB", "64KiB", "1MiB", "16MiB", "256MiB", "1GiB"];

/// A run over the small host: temporal copies fall from 60 to 8 GB/s, streaming ones rise to 12.
pub(crate) fn host_run() -> Journal {
    let temporal = [60.0, 50.0, 30.0, 16.0, 8.0, 8.0];
    let streaming = [6.0, 8.0, 9.0, 11.0, 12.0, 12.0];
    let read = [90.0, 80.0, 50.0, 28.0, 18.0, 18.0];
    let chase = [1.2, 3.9, 5.1, 14.0, 92.0, 104.0];
    let mut outcomes = Vec::new();
    for (i, size) in SIZES.iter().enumerate() {
        for (threads, scale) in [(1, 1.0), (2, 1.6)] {
            let mut copy = |how: &str, rate: f64| {
                let by = format!("cpu@numa0[copy-{how}-t{threads}]");
                let case = format!("numa0.huge > numa0.huge by {by} x {size}");
                outcomes.push(at_rate("host", &case, rate * scale));
            };
            copy("memcpy", temporal[i] * 0.97);
            copy("movsb", temporal[i]);
            copy("avx2", temporal[i] * 0.9);
            copy("avx2-nt", streaming[i]);
            copy("avx2-nta", streaming[i] * 0.98);
            let by = format!("cpu@numa0[read-avx2-t{threads}]");
            let case = format!("numa0.huge > numa0.reg by {by} x {size}");
            outcomes.push(at_rate("host", &case, read[i] * scale));
        }
        let case = format!("numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x {size}");
        outcomes.push(at_latency("host", &case, chase[i]));
        for threads in [1, 2] {
            let by = format!("cpu@numa0[copy-avx512-nt-t{threads}]");
            let case = format!("numa0.huge > numa0.huge by {by} x {size}");
            outcomes.push(skipped("host", &case, "this processor has no avx512f"));
        }
    }
    // 64 MiB at 16.384 GB/s: 250 ns for 4 KiB. At 65.536 GB/s: 32 us for 2 MiB.
    for (mem, rate) in [("paged", 16.384), ("huge", 65.536)] {
        let case = format!("numa0.reg > numa0.{mem} by cpu@numa0[touch-plain-t1] x 64MiB");
        outcomes.push(at_rate("host", &case, rate));
    }
    let mut journal = journal(WorldKind::Real, small_host(), outcomes);
    journal.notes.push(note("bimodal", "numa0.huge > numa0.reg", "two states: 51 and 204 ns"));
    journal
}

const LINKS: [(u32, u32, u32); 12] = [
    (0, 1, 4),
    (0, 2, 1),
    (0, 6, 2),
    (1, 3, 1),
    (1, 5, 1),
    (2, 3, 4),
    (2, 4, 2),
    (3, 7, 1),
    (4, 5, 4),
    (4, 6, 1),
    (5, 7, 1),
    (6, 7, 4),
];

/// NUMA domain of each GCD.
pub(crate) const HOMES: [u32; 8] = [3, 3, 1, 1, 0, 0, 2, 2];

/// The node of LUMI and Frontier, with the two routes that take a detour.
pub(crate) fn mi250x() -> Topology {
    let gpu = |index: u32| Gpu {
        index,
        vendor: "amd".into(),
        name: "MI250X GCD".into(),
        arch: "gfx90a".into(),
        numa: Some(HOMES[index as usize]),
        package: Some(index / 2),
        memory_peak: Some(Rate(1600.0)),
        ..Gpu::default()
    };
    let link = |(a, b, width): (u32, u32, u32)| Link {
        a: LinkEnd::Gpu(a),
        b: LinkEnd::Gpu(b),
        kind: LinkKind::Xgmi,
        width,
        peak: Some(Rate(50.0 * f64::from(width))),
    };
    let route = |path: [u32; 4]| GpuRoute {
        src: LinkEnd::Gpu(path[0]),
        dst: LinkEnd::Gpu(path[3]),
        hops: 3,
        via: vec![vec![LinkEnd::Gpu(path[1]), LinkEnd::Gpu(path[2])]],
    };
    Topology {
        source: "machine mi250x".into(),
        gpus: (0..8).map(gpu).collect(),
        numa: (0..4).map(|id| NumaDomain { id, ..NumaDomain::default() }).collect(),
        links: LINKS.into_iter().map(link).collect(),
        routes: vec![route([1, 0, 6, 7]), route([3, 2, 4, 5])],
        ..Topology::default()
    }
}

/// Links of the widest route between two GCDs, of at most two links, or of the two detours.
fn width(a: u32, b: u32) -> u32 {
    let link = |x: u32, y: u32| {
        let found = LINKS.iter().find(|l| (l.0, l.1) == (x.min(y), x.max(y)));
        found.map_or(0, |l| l.2)
    };
    if matches!((a.min(b), a.max(b)), (1, 7) | (3, 5)) {
        return 2;
    }
    let routed = (0..8).map(|m| link(a, m).min(link(m, b))).max().unwrap_or(0);
    if link(a, b) > 0 { link(a, b) } else { routed }
}

/// A run over the node: SDMA at 50 or 37.5 GB/s, kernels at 87 % of the width.
pub(crate) fn mi250x_run() -> Journal {
    let copy = "copy-w16-u4-b256-g2sm";
    let mut outcomes = Vec::new();
    for g in 0..8u32 {
        let h = HOMES[g as usize];
        let mut add = |suite: &str, case: String, rate: f64| {
            outcomes.push(at_rate(suite, &case, rate));
        };
        add("local", format!("gpu{g}.vram > gpu{g}.vram by dma@gpu{g} x 256MiB"), 630.0);
        add("local", format!("gpu{g}.vram > gpu{g}.vram by kernel@gpu{g}[{copy}] x 256MiB"), 700.0);
        let paged = format!("numa{h}.paged > gpu{g}.vram by dma@gpu{g} x 256MiB");
        add("host-link", paged, 14.0);
        let pinned = format!("numa{h}.pinned > gpu{g}.vram by dma@gpu{g} x 256MiB");
        let back = format!("gpu{g}.vram > numa{h}.pinned by dma@gpu{g} x 256MiB");
        add("host-link", pinned.clone(), 28.3);
        add("host-link", back.clone(), 26.0);
        add("host-link", format!("{pinned} & {back}"), 23.85);
        let read = "read-w16-u4-b256-g2sm";
        let managed = format!("numa{h}.managed > gpu{g}.reg by kernel@gpu{g}[{read}] x 256MiB");
        add("host-link", managed, 25.5);
        let migrate = format!("numa{h}.managed > gpu{g}.managed by migrate@gpu{g}[fault] x 256MiB");
        add("host-link", migrate, 2.8);
    }
    for a in 0..8u32 {
        for b in (0..8u32).filter(|b| *b != a) {
            let wide = f64::from(width(a, b));
            let dma = if wide > 1.0 { 50.0 } else { 37.5 };
            let flow = |by: &str| format!("gpu{a}.vram > gpu{b}.vram by {by} x 256MiB");
            outcomes.push(at_rate("pairs", &flow(&format!("dma@gpu{a}")), dma));
            let pull = flow(&format!("kernel@gpu{b}[{copy}]"));
            outcomes.push(at_rate("pairs", &pull, 43.5 * wide));
            let push = flow(&format!("kernel@gpu{a}[{copy}]"));
            outcomes.push(at_rate("pairs", &push, 38.0 * wide));
            let tiny = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 16B isolated");
            outcomes.push(at_latency("latency", &tiny, 8700.0 + 2000.0 * wide));
            if a < b {
                let back = format!("gpu{b}.vram > gpu{a}.vram by dma@gpu{b} x 256MiB");
                let both = format!("{} & {back}", flow(&format!("dma@gpu{a}")));
                outcomes.push(at_rate("pairs", &both, dma.min(50.5) * 0.95));
            }
        }
    }
    for size in ["256B", "64KiB", "16MiB", "1GiB"] {
        let bytes: Bytes = size.parse().expect("a size");
        for b in [1, 2, 6] {
            // T = 10 us + n / 50 GB/s.
            let rate = bytes.as_f64() / (10_000.0 + bytes.as_f64() / 50.0);
            let case = format!("gpu0.vram > gpu{b}.vram by dma@gpu0 x {size}");
            outcomes.push(at_rate("sweep", &case, rate));
        }
    }
    for (gpus, each) in [
        (vec![0], 22.0),
        (vec![0, 1], 11.0),
        (vec![0, 2], 22.0),
        (vec![0, 2, 4, 6], 22.0),
        ((0..8).collect(), 11.0),
    ] {
        let one = |g: &u32| {
            let h = HOMES[*g as usize];
            format!("numa{h}.managed > numa{h}.managed by kernel@gpu{g}[{copy}] x 1GiB")
        };
        let case = gpus.iter().map(one).collect::<Vec<_>>().join(" & ");
        outcomes.push(at_rate("fan", &case, each));
    }
    let timed = format!("gpu1.vram > gpu7.vram by kernel@gpu7[{copy}] x 256MiB");
    for (load, rate) in [((0, 6), 43.5), ((1, 3), 87.0)] {
        let (c, d) = load;
        let during = format!("gpu{c}.vram > gpu{d}.vram by kernel@gpu{d}[{copy}] x 256MiB");
        outcomes.push(at_rate("routes", &format!("{timed} while {during}"), rate));
    }
    let wc = "numa3.pinned-wc > gpu0.vram by dma@gpu0 x 256MiB";
    outcomes.push(faulted("host-link", wc, "hipHostMalloc of 256MiB: out of memory (2)"));
    journal(WorldKind::Simulated("mi250x".into()), mi250x(), outcomes)
}

/// Two H200 on one fabric of 18 links each, one of which is down on gpu1; a copy by the engine at
/// 393 GB/s, while which the GPUs were read.
pub(crate) fn h200_run() -> Journal {
    let gpu = |index| Gpu {
        index,
        vendor: "nvidia".into(),
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        memory_peak: Some(Rate(4917.0)),
        ..Gpu::default()
    };
    let link = |gpu, width: u32| Link {
        a: LinkEnd::Gpu(gpu),
        b: LinkEnd::Switch(0),
        kind: LinkKind::Nvlink,
        width,
        peak: Some(Rate(26.562 * f64::from(width))),
    };
    let topology = Topology {
        source: "live".into(),
        gpus: (0..3).map(gpu).collect(),
        links: vec![link(0, 18), link(1, 17), link(2, 18)],
        ..Topology::default()
    };
    let state = |sm_clock_mhz| GpuState {
        sm_clock_mhz: Some(sm_clock_mhz),
        memory_clock_mhz: Some(3201),
        power_w: Some(214.5),
        temperature_c: Some(41.0),
        throttle: Some(Vec::new()),
        ..GpuState::default()
    };
    let mut outcomes = Vec::new();
    for (a, b, rate) in [(0, 2, 393.0), (2, 0, 392.0), (0, 1, 371.0)] {
        let case = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
        let mut outcome = at_rate("pairs", &case, rate);
        if let CaseOutcome::Measured(m) = &mut outcome {
            let readings = |clock| GpuReadings { during: Some(state(clock)), ..Default::default() };
            m.gpus = [(Unit::Gpu(a), readings(1980)), (Unit::Gpu(b), readings(345))].into();
        }
        outcomes.push(outcome);
    }
    let mut journal = journal(WorldKind::Real, topology, outcomes);
    let facts = |active| GpuFacts {
        source: "NVML 550.54".into(),
        max_sm_clock_mhz: Some(1980),
        max_memory_clock_mhz: Some(3201),
        power_limit_w: Some(700.0),
        ecc: Some(true),
        mig: Some(false),
        persistence: Some(true),
        compute_mode: Some("default".into()),
        nvlinks: Some((active, 18)),
        fabric: Some("completed".into()),
        busy_percent: Some(0),
        ..GpuFacts::default()
    };
    journal.begin.gpus = [(0, 18), (1, 17), (2, 18)].map(|(g, n)| (Unit::Gpu(g), facts(n))).into();
    journal
}

/// A rank with a GPU, and libraries between processes.
pub(crate) fn member(rank: u32) -> RankMember {
    RankMember {
        gpu_identities: Vec::new(),
        rank: Rank(rank),
        host: "nid001".into(),
        node: 0,
        pid: 100 + rank,
        gpus: vec![rank],
        numa: 0,
        cpus: "0-7".into(),
        ways: BTreeMap::from([
            (Transport::Mpi, "Open MPI 5.0.11 (libmpi.so.40)".to_owned()),
            (Transport::Ccl, "RCCL 2.22, librccl.so".to_owned()),
        ]),
        without: BTreeMap::from([(Transport::Xpmem, "no /dev/xpmem".to_owned())]),
        gpu: None,
        host_only: BTreeMap::new(),
        device_memory: BTreeMap::new(),
    }
}
