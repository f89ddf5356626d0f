//! Journals made by hand: every value of them is stated, not measured.

use std::collections::BTreeMap;

use pathline_schema::{
    Bytes, CacheGroup, Case, CaseOutcome, Conditions, CpuSet, FlowSeries, Journal, MeasuredCase,
    Ns, NumaDomain, RunBegin, RunEnd, StopInfo, StopReason, TimerKind, Topology, VerifyResult,
    WorldKind,
};

/// Nine samples within 0.3 % of a time.
fn ripple(ns: f64) -> Vec<f64> {
    [1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.003, 0.997, 1.0].map(|share| share * ns).to_vec()
}

fn outcome(suite: &str, case: Case, series: Vec<FlowSeries>) -> CaseOutcome {
    CaseOutcome::Measured(Box::new(MeasuredCase {
        case,
        suites: vec![suite.to_owned()],
        series,
        stop: StopInfo {
            reason: StopReason::Precise,
            warmup: 2,
            half_width: 0.002,
            elapsed: Ns::ms(300.0),
            load: Ns::ZERO,
        },
        verdict: VerifyResult::Verified,
        compared: None,
        before: Conditions(BTreeMap::new()),
        after: Conditions(BTreeMap::new()),
        env: BTreeMap::new(),
        gpus: BTreeMap::new(),
        origin: None,
    }))
}

/// A case whose flows each have this rate, GB/s.
pub(crate) fn at_rate(suite: &str, case: &str, rate: f64) -> CaseOutcome {
    let case: Case = case.parse().unwrap();
    let series = case.timed.iter().map(|flow| FlowSeries {
        moved_bytes: flow.bytes,
        samples_ns: ripple(flow.bytes.as_f64() / rate),
        visits: vec![1; 9],
        ..FlowSeries::new(*flow, TimerKind::Host)
    });
    let series = series.collect();
    outcome(suite, case, series)
}

/// A case of one step of `us`.
pub(crate) fn at_time(suite: &str, case: &str, us: f64) -> CaseOutcome {
    let case: Case = case.parse().unwrap();
    let rate = case.timed[0].bytes.as_f64() / (us * 1e3);
    at_rate(suite, &case.to_string(), rate)
}

/// A finished run of a real machine.
pub(crate) fn journal(topology: Topology, outcomes: Vec<CaseOutcome>) -> Journal {
    let begin = RunBegin {
        version: "0.1.0".into(),
        host: "testhost".into(),
        started: "2026-01-02T03:04:05Z".into(),
        command: vec!["pathline".into(), "run".into()],
        ..RunBegin::new(WorldKind::Real)
    };
    let end = Some(RunEnd {
        ended: "2026-01-02T03:05:05Z".into(),
        elapsed: Ns::secs(60.0),
        complete: true,
        why: None,
        missing: std::collections::BTreeMap::new(),
    });
    Journal { end, ..Journal::of_outcomes(begin, topology, outcomes) }
}

/// A host of one domain with 2 CPUs behind 32 MiB of cache, without GPUs.
pub(crate) fn host_topology() -> Topology {
    let cpus = CpuSet::new(0..2);
    let mut topology = Topology {
        numa: vec![NumaDomain { id: 0, cpus: cpus.clone(), ..NumaDomain::default() }],
        caches: vec![CacheGroup {
            level: 3,
            kind: "Unified".into(),
            size: Bytes::mib(32),
            line: 64,
            cpus,
        }],
        ..Topology::default()
    };
    topology.host.arch = "x86_64".into();
    topology.host.cpu_model = "Test CPU".into();
    topology
}

/// Copies by 2 threads: stores through the caches at 40 and 20 GB/s, streaming ones at 30 throughout,
/// `memcpy` at the given rate past the caches.
pub(crate) fn host_run(memcpy: f64) -> Journal {
    let copy = |how: &str, size: &str, rate: f64| {
        let case = format!("numa0.huge > numa0.huge by cpu@numa0[copy-{how}-t2] x {size}");
        at_rate("host", &case, rate)
    };
    let chase = |size: &str, ns: f64| {
        let case = format!("numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x {size}");
        let mut outcome = at_rate("host", &case, 1.0);
        if let CaseOutcome::Measured(measured) = &mut outcome {
            for series in &mut measured.series {
                series.steps = 100;
                series.samples_ns = ripple(100.0 * ns);
            }
        }
        outcome
    };
    journal(
        host_topology(),
        vec![
            copy("avx2", "4MiB", 40.0),
            copy("avx2", "64MiB", 20.0),
            copy("avx2", "256MiB", 20.0),
            copy("avx2-nt", "4MiB", 30.0),
            copy("avx2-nt", "64MiB", 30.0),
            copy("avx2-nt", "256MiB", 30.0),
            copy("memcpy", "4MiB", 40.0),
            copy("memcpy", "64MiB", memcpy),
            copy("memcpy", "256MiB", memcpy),
            chase("1MiB", 10.0),
            chase("256MiB", 100.0),
        ],
    )
}
