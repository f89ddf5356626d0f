//! Invented reports with the structure of real ones: a host, and a node of eight GPUs.

use pathline_schema::{Case, Conditions};

use pathline_explain::figure::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    FigureStack, GapsBody, Headline, HeadlineTone, MatrixBody, MissingCase, PairedGap,
    PublishedValue, RunIdentity, RunReport, RunWarning, SheetBody, SheetColumn, StackPart,
    StacksBody,
};

fn case(text: &str) -> Case {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn figure(suite: &str, id: &str, title: &str, finding: &str, body: FigureBody) -> Figure {
    let [suite, id, title, finding] = [suite, id, title, finding].map(str::to_owned);
    let command = format!("pathline run {suite}");
    Figure { id, suite, title, finding, command, body }
}

fn published(value: f64, source: &str) -> Option<PublishedValue> {
    Some(PublishedValue {
        value,
        kind: pathline_explain::figure::SourceKind::Paper,
        source: source.to_owned(),
    })
}

fn gpu_labels() -> Vec<String> {
    (0..8).map(|i| format!("gpu{i}")).collect()
}

/// Number of links between two GCDs of an MI250X node, or on the widest route between them.
fn width(a: usize, b: usize) -> f64 {
    match (a.min(b), a.max(b)) {
        (0, 1) | (2, 3) | (4, 5) | (6, 7) => 4.0,
        (0, 6) | (2, 4) | (0, 7) | (1, 6) | (2, 5) | (3, 4) | (1, 7) | (3, 5) => 2.0,
        _ => 1.0,
    }
}

fn reads() -> Figure {
    let cell =
        |v: f64| FigureCell { value: Some(v), half_width: v / 50.0, ..FigureCell::default() };
    let column = |name: &str, better| SheetColumn { name: name.into(), unit: "us".into(), better };
    let body = FigureBody::Sheet(SheetBody {
        row_axis: "case".into(),
        columns: vec![column("last done", BetterWhen::Higher), column("p50", BetterWhen::Lower)],
        rows: vec![
            ("depth 1".into(), vec![cell(19_724.0), cell(50.7)]),
            ("depth 4".into(), vec![cell(48_309.0), FigureCell::default()]),
        ],
    });
    figure("storage", "storage-all", "Random reads", "Depth 4 gives 2.4 times as many.", body)
}

fn in_calls() -> Figure {
    let part = |name: &str, share| StackPart {
        name: name.into(),
        detail: "9000 calls of 47.0 us".into(),
        cell: FigureCell { value: Some(share), ..FigureCell::default() },
    };
    let parts = vec![part("hipMemcpy", 54.0), part("hipHostUnregister", 45.0), part("pread", 1.0)];
    let stacks = vec![FigureStack { label: "gpu0, blocking".into(), parts }];
    let body = FigureBody::Stacks(StacksBody { whole: "time in calls".into(), stacks });
    figure("storage", "storage-calls", "Time in calls", "hipMemcpy takes 54 %.", body)
}

fn added() -> Figure {
    let gap = |v: f64, is_zero| PairedGap {
        cell: FigureCell { value: Some(v), half_width: 1.0, ..FigureCell::default() },
        base: Some(50.7),
        other: Some(50.7 + v),
        pairs: 9,
        is_zero,
        saturated: (v > 50.0).then(|| "host: no more".to_owned()),
    };
    let body = FigureBody::Gaps(GapsBody {
        quantity: "latency".into(),
        unit: "us".into(),
        base: "host".into(),
        other: "gpu0".into(),
        row_axis: "threads".into(),
        col_axis: "depth".into(),
        rows: vec!["1".into()],
        cols: ["1", "4", "16", "32"].map(str::to_owned).into(),
        panels: vec![(
            "p50".into(),
            vec![vec![gap(14.0, false), gap(0.3, true), gap(88.0, false), PairedGap::default()]],
        )],
    });
    figure("storage", "storage-gap", "gpu0 minus host", "gpu0 adds 14 us.", body)
}

/// A repeatable sequence of small numbers.
fn jitter(a: usize, b: usize) -> f64 {
    ((a * 7 + b * 13) % 11) as f64 / 11.0 - 0.5
}

fn pairs(cell: impl Fn(usize, usize) -> FigureCell, unit: &str, better: BetterWhen) -> FigureBody {
    let row = |a| (0..8).map(|b| if a == b { FigureCell::default() } else { cell(a, b) }).collect();
    FigureBody::Matrix(MatrixBody {
        unit: unit.into(),
        row_axis: "from".into(),
        col_axis: "to".into(),
        rows: gpu_labels(),
        cols: gpu_labels(),
        cells: (0..8).map(row).collect(),
        better,
    })
}

fn dma_pairs() -> Figure {
    let cell = |a: usize, b: usize| {
        let peak = 50.0 * width(a, b);
        let base = if width(a, b) > 1.0 { 50.1 } else { 37.7 };
        let text = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
        if (a, b) == (5, 2) {
            let absent = Some(
                "hipMemcpyPeerAsync gpu5 to gpu2: error 719, unspecified launch failure".into(),
            );
            return FigureCell {
                absent,
                ceiling: Some(peak),
                case: Some(case(&text)),
                ..FigureCell::default()
            };
        }
        let far = if (a, b) == (1, 3) { 0.84 } else { 1.0 };
        FigureCell {
            path: None,
            value: Some((base + jitter(a, b)) * far),
            half_width: 0.05,
            few: None,
            node: None,
            ceiling: Some(peak),
            bound: Some(50.9),
            published: published(base, "paper, figure 6c"),
            absent: None,
            case: Some(case(&text)),
            gpus: vec![format!("gpu{a} 800 MHz, memory 1600 MHz, 312 W")],
            suspect: None,
            origin: None,
        }
    };
    let finding = "Two levels, 50 and 37 to 38 GB/s, whatever the width of the route: the copy engine \
                   is the limit on dual and quad links and reaches 75 % of a single one.";
    figure(
        "pairs",
        "pairs-dma",
        "Copies between GPUs by DMA",
        finding,
        pairs(cell, "GB/s", BetterWhen::Higher),
    )
}

fn kernel_pairs() -> Figure {
    let cell = |a: usize, b: usize| FigureCell {
        value: Some(50.0 * width(a, b) * 0.87 + jitter(a, b)),
        half_width: 0.4,
        ceiling: Some(50.0 * width(a, b)),
        case: Some(case(&format!(
            "gpu{a}.vram > gpu{b}.vram by kernel@gpu{b}[copy-w16-u4-b256-g2sm] x 256MiB"
        ))),
        ..FigureCell::default()
    };
    let finding =
        "Three tiers, 43.5, 87 and 174 GB/s: a kernel that reads uses 87 % of every link.";
    figure(
        "pairs",
        "pairs-pull",
        "Copies between GPUs by kernel, pulling",
        finding,
        pairs(cell, "GB/s", BetterWhen::Higher),
    )
}

fn latencies() -> Figure {
    let cell = |a: usize, b: usize| FigureCell {
        value: Some(8.7 + 3.1 * (4.0 / width(a, b) - 1.0) + jitter(a, b) * 0.3),
        half_width: 0.1,
        case: Some(case(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 16B isolated"))),
        ..FigureCell::default()
    };
    let finding = "From 8.7 us inside a package to 18.2 us over three hops.";
    figure(
        "latency",
        "latency-16b",
        "Time of a 16 B copy",
        finding,
        pairs(cell, "us", BetterWhen::Lower),
    )
}

fn hops() -> Figure {
    let cell = |a: usize, b: usize| FigureCell {
        value: Some(match width(a, b) as u32 {
            4 => 1.0,
            2 => 2.0,
            _ => 1.0 + ((a + b) % 3) as f64,
        }),
        ..FigureCell::default()
    };
    figure(
        "routes",
        "hops",
        "Hops between GPUs",
        "1-7 takes 1-0-6-7.",
        pairs(cell, "hops", BetterWhen::Neither),
    )
}

fn host_link() -> Figure {
    let bar = |label: &str, text: &str, v: f64, half: f64, pub_value: f64| FigureBar {
        label: label.into(),
        cell: FigureCell {
            path: None,
            value: Some(v),
            half_width: half,
            few: None,
            node: None,
            ceiling: Some(36.0),
            bound: Some(32.0),
            published: published(pub_value, "paper, figure 2"),
            absent: None,
            case: Some(case(text)),
            gpus: Vec::new(),
            suspect: None,
            origin: None,
        },
    };
    let absent = FigureCell {
        absent: Some("HSA_XNACK=0 forbids page migration; unset it".into()),
        published: published(2.8, "paper, figure 3"),
        ceiling: Some(36.0),
        ..FigureCell::default()
    };
    let bars = vec![
        bar(
            "pinned, host to gpu0, DMA",
            "numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB",
            28.3,
            0.2,
            28.3,
        ),
        bar(
            "pinned, gpu0 to host, DMA",
            "gpu0.vram > numa3.pinned by dma@gpu0 x 256MiB",
            25.9,
            0.3,
            25.2,
        ),
        bar(
            "managed, zero-copy kernel",
            "numa3.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 256MiB",
            25.5,
            0.1,
            25.5,
        ),
        bar(
            "pageable, host to gpu0, DMA",
            "numa3.paged > gpu0.vram by dma@gpu0 x 256MiB",
            12.4,
            2.6,
            11.0,
        ),
        FigureBar { label: "managed, page migration by faults".into(), cell: absent },
    ];
    let body = FigureBody::Bars(BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher });
    let finding = "Pinned memory comes to 79 % of the CPU link; pageable copies vary by a fifth.";
    figure("host-link", "host-link", "Between host memory and gpu0", finding, body)
}

/// Bandwidth of a copy whose working set fits one cache after another.
fn copy_curve(name: &str, peak: f64, floor: f64, streaming: bool) -> ChartLine {
    let points = (12..=30).map(|p| {
        let size = 2f64.powi(p);
        let start = size / (size + 3000.0);
        let cached = peak / (1.0 + (size / 3e5).powf(0.8)) + floor;
        let v = start * if streaming { floor * 1.45 } else { cached };
        let gap = name.contains("movsb") && p == 20;
        let why = gap.then(|| "time limit of the run".to_owned());
        let cell = FigureCell {
            value: (!gap).then_some(v * (1.0 + jitter(p as usize, name.len()) * 0.04)),
            half_width: v * if p < 15 { 0.09 } else { 0.006 },
            ceiling: Some(31.0),
            absent: why,
            case: Some(case(&format!(
                "numa0.huge > numa0.huge by cpu@numa0[copy-{name}-t1] x {}B",
                1u64 << p
            ))),
            ..FigureCell::default()
        };
        (size, cell)
    });
    ChartLine { name: format!("{name}, 1 thread"), points: points.collect() }
}

fn copies() -> Figure {
    let lines = vec![
        copy_curve("memcpy", 92.0, 10.5, false),
        copy_curve("movsb", 81.0, 11.9, false),
        copy_curve("plain", 33.0, 8.7, false),
        copy_curve("avx2", 101.0, 9.9, false),
        copy_curve("avx2-nt", 0.0, 11.3, true),
        copy_curve("avx2-nta", 0.0, 11.1, true),
        copy_curve("avx512", 143.0, 9.4, false),
        copy_curve("avx512-nt", 0.0, 12.6, true),
    ];
    let marks = vec![
        (32768.0, "L1d 32KiB".to_owned()),
        (1048576.0, "L2 1MiB".to_owned()),
        (2097152.0, "non-temporal overtakes".to_owned()),
        (37748736.0, "L3 36MiB".to_owned()),
    ];
    let body = FigureBody::Curves(CurvesBody {
        x_unit: "B".into(),
        y_unit: "GB/s".into(),
        lines,
        ceilings: vec![("best copy of this machine, measured".into(), 31.0)],
        marks,
        better: BetterWhen::Higher,
    });
    let finding = "Streaming stores overtake from 2 MiB on and end 38 % above memcpy at 1 GiB.";
    figure("host", "host-copy", "Copies on one core, by instruction", finding, body)
}

fn chase() -> Figure {
    let line = |name: &str, far: f64| {
        let points = (12..=30).map(|p| {
            let size = 2f64.powi(p);
            let levels = [(48e3, 1.3), (1.2e6, 4.4), (3.8e7, 22.0), (f64::INFINITY, far)];
            let v = levels.iter().find(|(top, _)| size < *top).map_or(far, |(_, v)| *v);
            let cell = FigureCell {
                value: Some(v * (1.0 + 0.03 * jitter(p as usize, 3))),
                half_width: v * 0.02,
                case: Some(case(&format!(
                    "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x {}B",
                    1u64 << p
                ))),
                ..FigureCell::default()
            };
            (size, cell)
        });
        ChartLine { name: name.into(), points: points.collect() }
    };
    let body = FigureBody::Curves(CurvesBody {
        x_unit: "B".into(),
        y_unit: "ns".into(),
        lines: vec![line("huge pages", 96.0), line("base pages", 128.0)],
        ceilings: vec![],
        marks: vec![
            (49152.0, "L1d 48KiB".to_owned()),
            (1310720.0, "L2 1.2MiB".to_owned()),
            (37748736.0, "L3 36MiB".to_owned()),
        ],
        better: BetterWhen::Lower,
    });
    figure(
        "host",
        "host-latency",
        "Load latency by working set",
        "1.3, 4.4, 22 and 96 ns: three caches and memory.",
        body,
    )
}

fn threads() -> Figure {
    let points = (1..=8).map(|n| {
        let v = 31.0 * (1.0 - 0.6f64.powi(n));
        (f64::from(n), FigureCell { value: Some(v), half_width: 0.4, ..FigureCell::default() })
    });
    let body = FigureBody::Curves(CurvesBody {
        x_unit: "threads".into(),
        y_unit: "GB/s".into(),
        lines: vec![ChartLine { name: "read, numa0".into(), points: points.collect() }],
        ceilings: vec![("DDR4, 2 channels".into(), 38.4)],
        marks: vec![],
        better: BetterWhen::Higher,
    });
    figure(
        "host",
        "host-threads",
        "Reading with more threads",
        "Four threads reach 87 % of what eight do.",
        body,
    )
}

fn headlines() -> Vec<Headline> {
    let line = |tone, text: &str| Headline { tone, text: text.to_owned(), is_listed: false };
    vec![
        line(
            HeadlineTone::Good,
            "Copies by DMA come in two levels, 50.1 and 37.7 GB/s, within 1 % of the published matrix.",
        ),
        line(
            HeadlineTone::Plain,
            "Kernels see three tiers, 43.5, 87 and 174 GB/s: 87 % of every link width.",
        ),
        line(HeadlineTone::Warn, "gpu1 to gpu3 is 16 % slower than published, 31.5 of 37.7 GB/s."),
    ]
}

/// A complete run on hardware: a host without GPUs.
pub(in crate::html) fn host() -> RunReport {
    let absences = (0..300).map(|i| MissingCase {
        suites: vec!["pairs".into()],
        case: case(&format!(
            "gpu{}.vram > gpu{}.vram by dma@gpu{} x 256MiB",
            i % 8,
            i / 8 % 8,
            i % 8
        )),
        faulted: false,
        why: format!("needs gpu{}; this host has 0 GPUs", i % 8),
    });
    RunReport {
        title: "this host".into(),
        identity: RunIdentity::default(),
        simulated: None,
        busy: None,
        headlines: vec![Headline {
            text: "Streaming stores overtake memcpy from 2 MiB on, by 38 % at 1 GiB.".into(),
            tone: HeadlineTone::Good,
            is_listed: false,
        }],
        figures: vec![copies(), chase(), threads(), reads(), in_calls(), added()],
        absences: absences.collect(),
        warnings: vec![RunWarning {
            code: "clock-step".into(),
            subject: "run".into(),
            text: "The clock stepped by 3.1 ms during two cases.".into(),
        }],
        conditions: vec![
            ("started".into(), "2026-01-02T03:04:05Z".into()),
            ("precision".into(), "1 %".into()),
        ],
        gpus: Vec::new(),
        state: Some((
            Conditions(
                [("cpu_mhz".to_owned(), 2900.0), ("core_to_core_ns".to_owned(), 52.0)].into(),
            ),
            Conditions(
                [("cpu_mhz".to_owned(), 2610.0), ("core_to_core_ns".to_owned(), 52.5)].into(),
            ),
        )),
        complete: true,
    }
}

/// A simulated run of eight GCDs, stopped before its end.
pub(in crate::html) fn node() -> RunReport {
    let fault = |i: usize| MissingCase {
        suites: vec!["pairs".into()],
        case: case(&format!("gpu5.vram > gpu2.vram by dma@gpu5 x {}MiB", 1 << i)),
        faulted: true,
        why: "hipMemcpyPeerAsync gpu5 to gpu2: error 719, unspecified launch failure".into(),
    };
    let skip = |i: usize| MissingCase {
        suites: vec!["host-link".into()],
        case: case(&format!(
            "numa{}.managed > gpu{i}.managed by migrate@gpu{i}[fault] x 256MiB",
            i / 2
        )),
        faulted: false,
        why: "HSA_XNACK=0 forbids page migration; unset it".into(),
    };
    RunReport {
        title: "MI250X node, eight GCDs".into(),
        identity: RunIdentity::default(),
        simulated: Some("mi250x".into()),
        busy: None,
        headlines: headlines(),
        figures: vec![host_link(), dma_pairs(), kernel_pairs(), latencies(), hops()],
        absences: (0..3).map(fault).chain((0..8).map(skip)).collect(),
        warnings: vec![RunWarning {
            code: "bimodal".into(),
            subject: "r0.numa3.paged > r0.gpu0.vram by dma@gpu0 x 256MiB".into(),
            text:
                "Two modes, 10.1 and 14.6 GB/s; the median is between them and describes neither."
                    .into(),
        }, RunWarning {
            code: "topology".into(),
            subject: "links".into(),
            text: "Every link claims a count of 1, which contradicts their peaks.".into(),
        }],
        conditions: vec![
            ("machine".into(), "mi250x (built in)".into()),
            ("HSA_XNACK".into(), "0".into()),
        ],
        gpus: vec![("gpu0-7".into(), "up to 1700 MHz, ECC on (amdgpu sysfs)".into())],
        state: None,
        complete: false,
    }
}

/// Checks that start and end tags outside scripts and styles match.
pub(in crate::html) fn assert_balanced(page: &str) {
    let mut rest = page;
    let mut open: Vec<&str> = Vec::new();
    while let Some(at) = rest.find('<') {
        let tag = &rest[at + 1..];
        let end = tag.find('>').expect("a tag ends");
        let (tag, after) = (&tag[..end], &tag[end + 1..]);
        rest = after;
        let name = tag.split([' ', '/']).find(|n| !n.is_empty()).expect("a tag has a name");
        match tag {
            t if t.starts_with('!') || t.ends_with('/') => {}
            t if t.starts_with('/') => assert_eq!(open.pop(), Some(name)),
            _ if matches!(name, "meta" | "input") => {}
            _ => open.push(name),
        }
        if matches!(tag, "script" | "style") {
            rest = &rest[rest.find("</").expect("it ends")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}
