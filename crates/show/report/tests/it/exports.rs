//! Tables and comparisons of runs with known results.

use crate::common::*;
use pathline_explain::diff::{DiffError, diff};
use pathline_explain::run_report;
use pathline_findings::RunConclusions;
use pathline_report::{csv, terminal};
use pathline_schema::{CaseOutcome, FlowSeries, Journal, Topology, WorldKind};
use proptest::prelude::*;

const CASE: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB";
const CHASE: &str = "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 64MiB";

fn run_of(outcomes: Vec<CaseOutcome>) -> Journal {
    journal(WorldKind::Real, Topology::default(), outcomes)
}

fn column(table: &str, row: usize, name: &str) -> String {
    let mut reader = ::csv::Reader::from_reader(table.as_bytes());
    let at = reader.headers().expect("a head").iter().position(|h| h == name).expect(name);
    reader.records().nth(row).expect("a row").expect("a table")[at].to_owned()
}

#[test]
fn a_row_holds_the_series() {
    let outcomes = vec![
        at_rate("host", CASE, 8.0),
        at_latency("host", CHASE, 92.0),
        skipped("host", &CASE.replace("t1", "t99"), "this machine has 2 cores, not 99"),
    ];
    let table = csv::export(&run_of(outcomes), None);
    assert_eq!(column(&table, 0, "case"), format!("r0.{}", CASE.replace("> ", "> r0.")));
    let median: f64 = column(&table, 0, "median").parse().unwrap();
    assert!((median - 8.0).abs() < 1e-9, "{median}");
    assert_eq!(column(&table, 0, "samples"), "9");
    assert_eq!(column(&table, 0, "moved_bytes"), (64 << 20).to_string());
    assert_eq!(column(&table, 0, "world"), "real");
    assert_eq!(
        (column(&table, 1, "quantity"), column(&table, 1, "unit")),
        ("latency".into(), "ns".into())
    );
    let latency: f64 = column(&table, 1, "median").parse().unwrap();
    assert!((latency - 92.0).abs() < 1e-9, "{latency}");
    assert_eq!(column(&table, 2, "outcome"), "skipped");
    assert_eq!(column(&table, 2, "why"), "this machine has 2 cores, not 99");
}

#[test]
fn raw_rows_are_the_samples() {
    let table = csv::export_raw(&run_of(vec![at_rate("host", CASE, 8.0)]));
    assert_eq!(table.lines().count(), 1 + 9);
    // 64 MiB at 8 GB/s: 8388608 ns; the first sample is 0.8 % below: i = 0 gives 0 - 4 steps of 0.2 %.
    let first: f64 = column(&table, 0, "ns").parse().unwrap();
    assert!((first - 8_388_608.0 * 0.992).abs() < 1e-3, "{first}");
}

#[test]
fn every_series_of_a_case_has_its_row() {
    let both = format!("{CASE} & {}", CASE.replace("memcpy", "movsb"));
    let table = csv::export(&run_of(vec![at_rate("host", &both, 4.0)]), None);
    assert_eq!(table.lines().count(), 3);
    assert_ne!(column(&table, 0, "flow"), column(&table, 1, "flow"));
}

fn samples() -> impl Strategy<Value = Vec<f64>> {
    let odd =
        prop_oneof![Just(0.0), Just(f64::MAX), Just(f64::MIN_POSITIVE), Just(-1.0), 1e-3..1e12f64,];
    prop::collection::vec(odd, 0..8)
}

fn any_case() -> impl Strategy<Value = String> {
    let place = || {
        let unit = prop_oneof![
            (0..9u32).prop_map(|n| format!("gpu{n}")),
            (0..5u32).prop_map(|n| format!("numa{n}"))
        ];
        let mem = prop::sample::select(vec!["vram", "pinned", "paged", "huge", "managed", "reg"]);
        (unit, mem).prop_map(|(unit, mem)| format!("{unit}.{mem}"))
    };
    let mover = prop_oneof![
        (0..9u32).prop_map(|n| format!("dma@gpu{n}")),
        (0..9u32).prop_map(|n| format!("blit@gpu{n}")),
        (0..9u32).prop_map(|n| format!("migrate@gpu{n}[fault]")),
        (0..9u32, prop::sample::select(vec!["copy", "read", "write", "triad", "chase"]))
            .prop_map(|(n, op)| format!("kernel@gpu{n}[{op}-w16-u4-b256-g2sm]")),
        (
            0..5u32,
            prop::sample::select(vec![
                "copy-memcpy",
                "copy-avx2-nt",
                "read-avx2",
                "chase-plain",
                "touch-plain"
            ]),
            1..4u32
        )
            .prop_map(|(n, work, t)| format!("cpu@numa{n}[{work}-t{t}]")),
    ];
    let size = prop::sample::select(vec!["1B", "16B", "4KiB", "256MiB", "1GiB", "16777215TiB"]);
    let flow = (place(), place(), mover, size)
        .prop_map(|(a, b, by, n)| format!("{a} > {b} by {by} x {n}"));
    (prop::collection::vec(flow, 1..4), 0..3u8, any::<bool>()).prop_map(
        |(flows, shape, isolated)| {
            let mut text = match (shape, flows.as_slice()) {
                (0, [first, rest @ ..]) if !rest.is_empty() => {
                    format!("{first} while {}", rest.join(" & "))
                }
                _ => flows.join(" & "),
            };
            if isolated {
                text += " isolated";
            }
            text
        },
    )
}

fn any_outcome() -> impl Strategy<Value = CaseOutcome> {
    let suites = ["host", "local", "host-link", "pairs", "latency", "sweep", "fan", "routes", "?"];
    let suite = prop::sample::select(suites.to_vec());
    (any_case(), suite, 0..4u8, samples(), any::<bool>(), any::<u64>()).prop_map(
        |(case, suite, kind, samples, drop_series, steps)| match kind {
            0 => skipped(suite, &case, "cannot be had here"),
            1 => faulted(suite, &case, "it failed"),
            _ => {
                let mut outcome = at_rate(suite, &case, 10.0);
                if let CaseOutcome::Measured(m) = &mut outcome {
                    if drop_series {
                        m.series.pop();
                    }
                    let put = |s: &mut FlowSeries| {
                        s.samples_ns = samples.clone();
                        s.steps = steps;
                    };
                    m.series.iter_mut().for_each(put);
                }
                outcome
            }
        },
    )
}

proptest! {
    #[test]
    fn any_outcomes_make_a_report(
        outcomes in prop::collection::vec(any_outcome(), 0..30),
        topology in prop::sample::select(vec![Topology::default(), small_host(), mi250x()]),
        width in 0..300usize,
    ) {
        let journal = journal(WorldKind::Real, topology, outcomes);
        let report = run_report::build(&journal, None);
        for (x, cell) in report.figures.iter().flat_map(|f| match &f.body {
            pathline_explain::figure::FigureBody::Curves(c) => {
                c.lines.iter().flat_map(|l| l.points.iter().map(|p| (p.0, &p.1))).collect::<Vec<_>>()
            }
            pathline_explain::figure::FigureBody::Bars(b) => b.bars.iter().map(|b| (0.0, &b.cell)).collect(),
            pathline_explain::figure::FigureBody::Matrix(m) => m.cells.iter().flatten().map(|c| (0.0, c)).collect(),
            pathline_explain::figure::FigureBody::Sheet(_)
            | pathline_explain::figure::FigureBody::Stacks(_)
            | pathline_explain::figure::FigureBody::Panels(_)
            | pathline_explain::figure::FigureBody::Gaps(_) => Vec::new(),
        }) {
            prop_assert!(x.is_finite());
            prop_assert!(cell.value.is_none_or(|v| v.is_finite() && v >= 0.0), "{cell:?}");
            prop_assert!(cell.half_width.is_finite(), "{cell:?}");
        }
        let text = terminal::summary(&report, &RunConclusions::default(), width, false);
        // A case text in a command to copy stays whole.
        let is_word = |line: &str| line.trim_start().starts_with('\'');
        let fits = |line: &str| is_word(line) || line.chars().count() <= width.clamp(72, 200);
        prop_assert!(text.lines().all(fits), "{text}");
        terminal::summary(&report, &RunConclusions::default(), width, true);
        csv::export(&journal, None);
        csv::export_raw(&journal);
        match diff(&journal, &journal, 0.02) {
            Ok(same) => drop(same.to_string()),
            Err(why) => prop_assert!(matches!(why, DiffError::NoCommonCase { .. }), "{why}"),
        }
    }
}
