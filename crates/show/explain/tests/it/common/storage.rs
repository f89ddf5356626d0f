//! A run of the suite `storage` made by hand: a disk whose latency is 40 us and 10.7 us for each I/O
//! in flight, and two GPUs that add 14 us if copies are pipelined and 22 us if workers wait for them.

use pathline_schema::{
    Bytes, CallTally, Case, CaseOutcome, FlowSeries, Gpu, IoHistogram, IoReading, Journal, Link,
    LinkEnd, LinkKind, Rate, StoreFacts, TimerKind, Topology, VerifyResult, WorldKind,
};

use super::{at_rate, journal, outcome, skipped, small_host};

/// I/Os of a sample.
pub(crate) const OPS: u64 = 1000;
/// Samples of a case.
pub(crate) const SAMPLES: usize = 9;

/// What a case does.
#[derive(Clone)]
pub(crate) struct Does {
    /// I/Os a second.
    pub(crate) iops: f64,
    /// Median latency, us; the shortest is 0.8 of it, the tail exponential: p99 is 2.13 of it.
    pub(crate) median_us: f64,
    /// User and system time an I/O, us.
    pub(crate) cpu_us: (f64, f64),
    /// Requests an I/O.
    pub(crate) requests: f64,
    /// The copy of an I/O, us; 0 without.
    pub(crate) copy_us: f64,
    /// Calls of a sample: name, count, us each.
    pub(crate) calls: Vec<(&'static str, u64, f64)>,
    /// Calls around the samples.
    pub(crate) setup: Vec<(&'static str, u64, f64)>,
    /// Noise of samples: greatest deviation from the median.
    pub(crate) noise: f64,
    /// One I/O that takes so long, us; 0 without.
    pub(crate) outlier_us: f64,
    pub(crate) engine: &'static str,
    /// The noise of sample `i` is at `i * order % 9` of 0 to 8: 7, or 5 for another order.
    pub(crate) order: usize,
}

impl Does {
    pub(crate) fn new(iops: f64, median_us: f64) -> Self {
        Self {
            iops,
            median_us,
            cpu_us: (0.6, 2.2),
            requests: 1.0,
            copy_us: 0.0,
            calls: vec![("io_uring_enter", OPS / 4, 9.0)],
            setup: vec![("open", 1, 30.0), ("io_uring_register_buffers", 1, 400.0)],
            noise: 0.008,
            outlier_us: 0.0,
            engine: "io_uring, registered buffers and files",
            order: 7,
        }
    }
}

/// Latencies of which half are below the median, none below 0.8 of it.
fn latencies(median_us: f64, factor: f64, n: u64) -> IoHistogram {
    IoHistogram::of((0..n).map(|i| {
        let below = (i as f64 + 0.5) / n as f64;
        let shape = 0.8 + 0.2 * -(1.0 - below).ln() / std::f64::consts::LN_2;
        (median_us * factor * shape * 1e3) as u64
    }))
}

/// A case of I/O.
pub(crate) fn io(case: &str, does: &Does) -> CaseOutcome {
    let case: Case = case.parse().unwrap_or_else(|e| panic!("{case}: {e}"));
    let series = case
        .timed
        .iter()
        .map(|flow| {
            let io = flow.by.io().unwrap_or_else(|| panic!("{flow} is no I/O"));
            let factor =
                |i: usize| 1.0 + does.noise / 4.0 * ((i * does.order % SAMPLES) as f64 - 4.0);
            let ns = |i: usize| OPS as f64 / does.iops * 1e9 * factor(i);
            let reading = |i: usize| {
                let mut latency = latencies(does.median_us, factor(i), OPS);
                if does.outlier_us > 0.0 && i == 3 {
                    latency.add(&IoHistogram::of([(does.outlier_us * 1e3) as u64]));
                }
                let tally = |(name, count, us): &(&str, u64, f64)| {
                    ((*name).to_owned(), CallTally { count: *count, ns: *count as f64 * us * 1e3 })
                };
                let copied = does.copy_us > 0.0;
                IoReading {
                    faults: None,
                    // The first of several workers is done a little earlier.
                    first_done_ns: if io.threads > 1 { 0.95 * ns(i) } else { ns(i) },
                    first_done_ops: if io.threads > 1 { OPS * 97 / 100 } else { OPS },
                    worker_ns: match io.threads {
                        1 => Vec::new(),
                        n => (0..n)
                            .map(|w| (ns(i) * if w == 0 { 0.95 } else { 1.0 }) as u64)
                            .collect(),
                    },
                    cpu_user_ns: does.cpu_us.0 * 1e3 * OPS as f64,
                    cpu_system_ns: does.cpu_us.1 * 1e3 * OPS as f64,
                    device: if copied {
                        latencies(does.median_us - does.copy_us, factor(i), OPS)
                    } else {
                        IoHistogram::default()
                    },
                    copy: if copied {
                        latencies(does.copy_us, factor(i), OPS)
                    } else {
                        IoHistogram::default()
                    },
                    latency,
                    calls: does.calls.iter().map(tally).collect(),
                    requests: (does.requests > 0.0).then_some((does.requests * OPS as f64) as u64),
                }
            };
            let setup = does.setup.iter().map(|(name, count, us)| {
                ((*name).to_owned(), CallTally { count: *count, ns: *count as f64 * us * 1e3 })
            });
            FlowSeries {
                engine: does.engine.into(),
                reps: OPS,
                steps: OPS,
                moved_bytes: Bytes(flow.bytes.0 * OPS),
                samples_ns: (0..SAMPLES).map(ns).collect(),
                visits: vec![1; SAMPLES],
                io: (0..SAMPLES).map(reading).collect(),
                setup: setup.collect(),
                ..FlowSeries::new(*flow, TimerKind::Threads)
            }
        })
        .collect();
    let mut outcome = outcome(case, &["storage"], series);
    if let CaseOutcome::Measured(m) = &mut outcome {
        m.verdict = VerifyResult::Verified;
    }
    outcome
}

/// Latency, us, and I/Os per second with that many in flight.
fn disk(slots: f64) -> (f64, f64) {
    let us = 40.0 + 10.7 * slots;
    (us, slots / us * 1e6)
}

/// `store0.file > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q4,n1,t1] x 4KiB`.
pub(crate) fn read(to: &str, engine: &str, args: &str, block: &str) -> String {
    format!("store0.file > {to} by {engine}@numa0[{args}] x {block}")
}

const DEPTHS: [u32; 5] = [1, 4, 16, 32, 128];

fn random(outcomes: &mut Vec<CaseOutcome>) {
    for threads in [1u32, 2, 4] {
        for depth in DEPTHS {
            let slots = f64::from(threads * depth);
            let args = |depth: u32| {
                let batch = (depth / 4).max(1);
                format!("rand-read,direct,shared,2GiB,q{depth},n{batch},t{threads}")
            };
            // Deep queues are noisy.
            let noise = if slots >= 32.0 { 0.10 } else { 0.008 };
            let (us, iops) = disk(slots);
            let cpu = 1.7 + 9.0 / f64::from(depth);
            let host = |engine: &str, factor: f64, name| {
                let does = Does {
                    cpu_us: (0.3 * cpu * factor, 0.7 * cpu * factor),
                    noise,
                    engine: name,
                    ..Does::new(iops / (1.0 + 0.03 * (factor - 1.0)), us)
                };
                io(&read("numa0.huge", engine, &args(depth), "4KiB"), &does)
            };
            outcomes.push(host("uring", 1.0, "io_uring, registered buffers and files"));
            if threads < 4 {
                outcomes.push(host("aio", 1.5, "libaio"));
                let poll = read("numa0.huge", "uring-poll", &args(depth), "4KiB");
                outcomes.push(skipped(
                    "storage",
                    &poll,
                    "vda has no queues that can be polled (nvme: poll_queues)",
                ));
                if depth == 1 {
                    outcomes.push(host("sync", 1.2, "pread"));
                }
            }
            for gpu in [0, 1] {
                // A worker that waits does at most one copy of 22 us at a time.
                let most = f64::from(threads) * 1e6 / 22.0;
                for (stage, add) in [("pipelined-pinned", 14.0), ("blocking-paged", 22.0)] {
                    let alone = slots / (us + add) * 1e6;
                    let iops = if add > 20.0 { alone.min(most) } else { alone };
                    let does = Does {
                        copy_us: add,
                        noise,
                        order: if noise > 0.05 { 5 } else { 7 },
                        calls: vec![
                            ("cudaMemcpy", OPS, add - 4.0),
                            ("io_uring_enter", OPS / 4, 9.0),
                        ],
                        ..Does::new(iops, slots / iops * 1e6)
                    };
                    let args = format!("{},{stage}", args(depth));
                    outcomes
                        .push(io(&read(&format!("gpu{gpu}.vram"), "uring", &args, "4KiB"), &does));
                }
            }
        }
    }
}

fn sequential(outcomes: &mut Vec<CaseOutcome>) {
    // 1 MiB: 1300 a second are 1.36 GB/s.
    let big = |iops: f64, depth: f64, requests: f64| Does {
        requests,
        cpu_us: (4.0, 33.0),
        ..Does::new(iops, depth / iops * 1e6)
    };
    for threads in [1, 2] {
        for (mem, iops, requests) in [("paged", 1300.0, 2.02), ("huge", 2800.0, 1.0)] {
            let args = format!("seq-read,direct,shared,2GiB,q8,n1,t{threads}");
            let mut does = big(iops, 8.0 * f64::from(threads), requests);
            if threads == 2 && mem == "paged" {
                does.outlier_us = 1_510_000.0;
            }
            outcomes.push(io(&read(&format!("numa0.{mem}"), "uring", &args, "1MiB"), &does));
            let case = format!(
                "numa0.{mem} > store0.file by uring@numa0[seq-write,direct,shared,2GiB,q8,n1,t{threads}] \
                 x 1MiB"
            );
            outcomes.push(io(&case, &big(iops * 1.3, 8.0 * f64::from(threads), requests)));
        }
    }
    let cached = "seq-read,cached,shared,2GiB,q8,n1,t1";
    outcomes.push(io(&read("numa0.huge", "uring", cached, "1MiB"), &big(8000.0, 8.0, 0.0)));
    let mix = "rand-mix70,direct,shared,2GiB,q32,n8,t1";
    outcomes.push(io(&read("numa0.huge", "uring", mix, "4KiB"), &Does::new(70_000.0, 450.0)));
    for gpu in [0, 1] {
        for (stage, iops, copy_us, calls, setup) in [
            ("pipelined-pinned", 2750.0, 25.0, vec![("cudaMemcpyAsync", OPS, 3.0)], vec![]),
            ("blocking-paged", 1240.0, 120.0, vec![("cudaMemcpy", OPS, 119.0)], vec![]),
            (
                "blocking-registered",
                1270.0,
                48.0,
                vec![("cudaMemcpy", OPS, 47.0)],
                vec![("cudaHostRegister", 1, 5000.0), ("cudaHostUnregister", 1, 352_000.0)],
            ),
        ] {
            let args = format!("seq-read,direct,shared,2GiB,q8,n1,t1,{stage}");
            let does = Does { copy_us, calls, setup, ..big(iops, 8.0, 1.0) };
            outcomes.push(io(&read(&format!("gpu{gpu}.vram"), "uring", &args, "1MiB"), &does));
        }
        let gds = "seq-read,direct,shared,2GiB,q1,n1,t4";
        let does = Does {
            calls: vec![("cuFileRead", OPS, 900.0)],
            engine: "cuFile, compatibility mode (not direct)",
            ..big(1900.0, 4.0, 1.0)
        };
        outcomes.push(io(&read(&format!("gpu{gpu}.vram"), "gds", gds, "1MiB"), &does));
        // 1 MiB in 20 us are 52.4 GB/s, in 116 us 9.04.
        let pinned = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x 1MiB");
        outcomes.push(at_rate("storage", &pinned, 52.4));
        let paged = format!("numa0.paged > gpu{gpu}.vram by dma@gpu{gpu} x 1MiB isolated");
        outcomes.push(at_rate("storage", &paged, 9.04));
    }
    let flow = |store: u32, gpu: u32| {
        format!(
            "store{store}.file > gpu{gpu}.vram by uring@numa0[seq-read,direct,shared,2GiB,q8,n1,t1,\
             pipelined-pinned] x 1MiB"
        )
    };
    let each = Does { copy_us: 25.0, ..big(1500.0, 8.0, 1.0) };
    outcomes.push(io(&format!("{} & {}", flow(0, 0), flow(0, 1)), &each));
}

/// The small host with two GPUs.
fn topology() -> Topology {
    let gpu = |index| Gpu {
        index,
        vendor: "nvidia".into(),
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        memory_peak: Some(Rate(4917.0)),
        ..Gpu::default()
    };
    let link = |index| Link {
        a: LinkEnd::Numa(0),
        b: LinkEnd::Gpu(index),
        kind: LinkKind::Pcie,
        width: 16,
        peak: Some(Rate(63.0)),
    };
    Topology { gpus: (0..2).map(gpu).collect(), links: (0..2).map(link).collect(), ..small_host() }
}

pub(crate) fn store() -> StoreFacts {
    StoreFacts {
        path: "/data".into(),
        file_system: "ext4".into(),
        options: "rw,relatime".into(),
        device: "vda".into(),
        model: "virtio".into(),
        scheduler: "mq-deadline".into(),
        queues: 1,
        logical_block: Bytes(512),
        max_request: Bytes::kib(1280),
        max_segments: 254,
        free: Bytes::gib(30),
        ..StoreFacts::default()
    }
}

/// The run.
pub(crate) fn storage_run() -> Journal {
    let mut outcomes = Vec::new();
    random(&mut outcomes);
    sequential(&mut outcomes);
    let mut journal = journal(WorldKind::Real, topology(), outcomes);
    journal.begin.stores = vec![store()];
    journal
}

/// A run of given cases on the same machine.
pub(crate) fn run_of(outcomes: Vec<CaseOutcome>) -> Journal {
    let mut journal = journal(WorldKind::Real, topology(), outcomes);
    journal.begin.stores = vec![store()];
    journal
}

/// Blocks of 1 MiB per second that the grid's store reads with that many in flight: 2000 with 1, 2400 with
/// 2, 2824 with 8, 2909 with 16.
pub(crate) fn grid_rate(slots: f64) -> f64 {
    3000.0 * slots / (slots + 0.5)
}

/// A run of suite `storage-grid` by 1 and 2 workers at depth 1 and 8: gpu0 gets 95 % of the host's rate if
/// copies overlap; else at most 1000 blocks a second per worker. Both GPUs get 90 %, and the far domain
/// 80 %, of the host's rate.
pub(crate) fn grid_run() -> Journal {
    let mut outcomes = Vec::new();
    let does = |iops: f64, slots: f64| Does {
        copy_us: 25.0,
        calls: vec![("hipMemcpy", OPS, 30.0)],
        ..Does::new(iops, slots / iops * 1e6)
    };
    for cache in ["direct", "cached"] {
        for threads in [1u32, 2] {
            for depth in [1u32, 8] {
                let slots = f64::from(threads * depth);
                let host = grid_rate(slots);
                let io_to = |to: &str, numa: u32, each: u32, stage: &str| {
                    format!(
                        "store0.file > {to} by uring@numa{numa}[seq-read,{cache},shared,2GiB,q{depth},n1,\
                         t{each}{stage}] x 1MiB"
                    )
                };
                if cache == "cached" && threads == 2 {
                    continue;
                }
                let (piped, waits) = (",pipelined-registered-huge", ",blocking-pinned");
                outcomes.push(io(
                    &io_to("numa0.huge", 0, threads, ""),
                    &Does { copy_us: 0.0, ..does(host, slots) },
                ));
                outcomes
                    .push(io(&io_to("gpu0.vram", 0, threads, piped), &does(0.95 * host, slots)));
                let most = 1000.0 * f64::from(threads);
                outcomes.push(io(
                    &io_to("gpu0.vram", 0, threads, waits),
                    &does((0.95 * host).min(most), slots),
                ));
                if threads == 2 {
                    let both =
                        [0, 1].map(|gpu| io_to(&format!("gpu{gpu}.vram"), 0, 1, piped)).join(" & ");
                    outcomes.push(io(&both, &does(0.45 * host, slots)));
                }
                if cache == "direct" && depth == 8 {
                    outcomes.push(io(
                        &io_to("numa1.huge", 1, threads, ""),
                        &Does { copy_us: 0.0, ..does(0.8 * host, slots) },
                    ));
                }
            }
        }
    }
    outcomes.push(at_rate("storage", "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB", 52.4));
    for outcome in &mut outcomes {
        if let CaseOutcome::Measured(m) = outcome {
            m.suites = vec!["storage-grid".to_owned()];
        }
    }
    run_of(outcomes)
}
