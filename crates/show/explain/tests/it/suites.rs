//! Figures of the suites of calls, patterns, overlap and memory, from journals made by hand.

use crate::common::shown::*;
use crate::common::*;
use pathline_explain::figure::{FigureBody, RunReport};
use pathline_explain::run_report;
use pathline_flow::MachineDesc;
use pathline_schema::{CaseOutcome, Journal, WorldKind};

fn run(outcomes: Vec<CaseOutcome>) -> Journal {
    let topology = MachineDesc::preset("mi250x").expect("the preset").topology();
    journal(WorldKind::Simulated("mi250x".into()), topology, outcomes)
}

fn has_sentence(report: &RunReport, part: &str) -> bool {
    report.headlines.iter().any(|h| h.text.contains(part))
}

/// Cases of nothing much, so that a run is more than a few cases listed one by one.
fn filler() -> Vec<CaseOutcome> {
    (0..5)
        .map(|g| {
            let text = format!("gpu{g}.vram > gpu{g}.vram by dma@gpu{g} x 256MiB");
            at_rate("local", &text, 600.0)
        })
        .collect()
}

#[test]
fn calls_have_the_time_of_the_largest_size_that_was_measured() {
    let call = |what: &str, us: f64| at_latency("overhead", &format!("{what} isolated"), us * 1e3);
    let mut outcomes = vec![
        call("numa3.paged > numa3.registered by call@gpu0[register] x 256MiB", 20_000.0),
        call("numa3.registered > numa3.paged by call@gpu0[unregister] x 256MiB", 10_000.0),
        call("gpu0.reg > numa3.pinned by call@gpu0[alloc] x 4KiB", 50.0),
        call("gpu0.reg > numa3.pinned by call@gpu0[alloc] x 256MiB", 30_000.0),
        call("gpu0.reg > gpu0.reg by call@gpu0[launch] x 1B", 2.0),
        call("gpu0.reg > gpu0.reg by call@gpu0[launch-sync] x 1B", 7.0),
    ];
    outcomes.extend(filler());
    let report = run_report::build(&run(outcomes), None);
    let text = "256MiB: register (pin) 20.0 ms, unregister 10.0 ms, allocate pinned 30.0 ms. Kernel \
                launch: 2.00 us to issue, 7.00 us round trip.";
    assert!(has_sentence(&report, text), "{:#?}", report.headlines);
    close(bar(figure(&report, "overhead-calls"), "launch a kernel").value, 2.0);
    let FigureBody::Matrix(m) = &figure(&report, "overhead-memory").body else { panic!() };
    assert_eq!(m.cols, ["4KiB", "256MiB"]);
    assert_eq!(m.rows[2], "allocate pinned memory");
    close(m.cells[2][0].value, 50.0);
    // Calls moved nothing, so that nothing was left unverified.
    assert!(!has_sentence(&report, "not verified"));
}

/// 2.2 us of each of k more copies; k alone took 2.8 us more than k more did.
#[test]
fn a_small_copy_says_what_timing_it_adds() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated";
    let mut outcome = at_latency("latency", case, 2_200.0);
    if let CaseOutcome::Measured(m) = &mut outcome {
        let series = &mut m.series[0];
        series.start_ns = series.samples_ns.iter().map(|ns| ns + 2_800.0).collect();
    }
    let mut outcomes = filler();
    outcomes.push(outcome);
    let report = run_report::build(&run(outcomes), None);
    let text = "Latency of 16B copies: 5.00 us; 2.80 of it is an empty pair of events.";
    assert!(has_sentence(&report, text), "{:#?}", report.headlines);
}

#[test]
fn a_batch_is_shown_per_copy() {
    let outcomes = vec![
        at_latency("overhead", "numa3.pinned > gpu0.vram by dma@gpu0 x 4KiB", 3_000.0),
        at_latency("overhead", "numa3.pinned > gpu0.vram by batch@gpu0[256] x 1MiB", 256_000.0),
    ];
    let report = run_report::build(&run(outcomes), None);
    let batch = figure(&report, "overhead-batch");
    // 256 us for 256 copies.
    close(bar(batch, "4KiB, 256 in one call").value, 1.0);
    assert!(batch.finding.contains("256 of 4KiB is 3.00 times as fast"), "{}", batch.finding);
}

#[test]
fn all_to_all_is_as_fast_as_its_slowest_flow() {
    let flow = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
    let pairs = (0..8).flat_map(|a| (0..8).filter(move |b| *b != a).map(move |b| (a, b)));
    let case = pairs.map(|(a, b)| flow(a, b)).collect::<Vec<_>>().join(" & ");
    let mut outcomes = vec![at_rate("patterns", &case, 10.0)];
    outcomes.extend(filler());
    let report = run_report::build(&run(outcomes), None);
    let cell = bar(figure(&report, "patterns"), "all 8 to all, SDMA engine");
    // 56 flows of 10 GB/s.
    close(cell.value, 560.0);
    // Of equal routes the two directions take one each, and the busiest link of the node, of 50 GB/s,
    // then carries 3 flows: 56 x 50 / 3.
    close(cell.ceiling, 56.0 * 50.0 / 3.0);
    assert!(has_sentence(&report, "8 GPUs move 560 GB/s by runtime copies, 70.0 GB/s each, 60 %"));
}

#[test]
fn copies_next_to_kernels_keep_a_share() {
    let copy = "numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB";
    let triad = "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u4-b256-g2sm] x 256MiB";
    let at = |case: String, us: f64| at_latency("overlap", &case, us * 1e3);
    let mut outcomes = vec![
        at(copy.to_owned(), 980.0),
        at(triad.to_owned(), 500.0),
        at(format!("{copy} while {triad}"), 1000.0),
        at(format!("{triad} while {copy}"), 625.0),
    ];
    outcomes.extend(filler());
    let report = run_report::build(&run(outcomes), None);
    let FigureBody::Matrix(m) = &figure(&report, "overlap").body else { panic!() };
    assert_eq!(m.cols, ["copy during triad", "triad during copy"]);
    close(m.cells[0][0].value, 98.0);
    close(m.cells[0][1].value, 80.0);
    assert!(has_sentence(&report, "runtime copies keep 98 % of their rate, triad keeps 80 %"));
}

#[test]
fn staged_copies_are_shown_next_to_direct_ones() {
    let outcomes = vec![
        at_rate("pairs", "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB", 50.0),
        at_rate("pairs", "gpu0.vram > gpu1.vram by staged@gpu0[numa3] x 256MiB", 20.0),
    ];
    let report = run_report::build(&run(outcomes), None);
    let staged = figure(&report, "pairs-staged");
    close(bar(staged, "gpu0 to gpu1, through numa3").value, 20.0);
    close(bar(staged, "gpu0 to gpu1, direct").value, 50.0);
    assert!(staged.finding.contains("has 2.50 times as much"), "{}", staged.finding);
}

#[test]
fn a_far_domain_is_named_where_it_is_slower() {
    let into = |d: u32, rate| {
        let text = format!("numa{d}.pinned > gpu0.vram by dma@gpu0 x 256MiB");
        at_rate("numa-gpu", &text, rate)
    };
    let mut outcomes = vec![into(0, 14.0), into(1, 28.0), into(2, 28.0), into(3, 28.0)];
    outcomes.extend(filler());
    let report = run_report::build(&run(outcomes.clone()), None);
    // gpu0 is at home in domain 3.
    assert!(has_sentence(
        &report,
        "at least 50 % of the rate: into gpu0 28.0 GB/s at home, 14.0 GB/s with numa0"
    ));
    outcomes[0] = into(0, 28.0);
    let even = run_report::build(&run(outcomes.clone()), None);
    assert!(has_sentence(&even, "every NUMA domain is as fast for every GPU: 28.0 GB/s"));
    let FigureBody::Matrix(m) = &figure(&even, "numa-gpu-in").body else { panic!() };
    assert_eq!((m.rows.len(), m.cols.len()), (4, 1));
    // 192 of 256 pages that the runtime placed are at home.
    let mut placed =
        at_rate("numa-gpu", "numa3.pinned-default > gpu0.vram by dma@gpu0 x 256MiB", 25.0);
    if let CaseOutcome::Measured(m) = &mut placed {
        m.series[0].pages = [(1, 64), (3, 192)].into();
    }
    outcomes.push(placed);
    let report = run_report::build(&run(outcomes), None);
    let shown = figure(&report, "numa-gpu-in");
    let FigureBody::Matrix(m) = &shown.body else { panic!() };
    assert_eq!(m.rows.last().map(String::as_str), Some("by runtime"));
    close(m.cells[4][0].value, 25.0);
    let text = "the runtime puts pinned memory of gpu0 in numa1 (25 %) and numa3 (75 %).";
    assert!(shown.finding.contains(text), "{}", shown.finding);
}

#[test]
fn managed_memory_is_shown_at_its_largest_size() {
    let fault = "numa3.managed > gpu0.managed by migrate@gpu0[fault]";
    let read = "gpu0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm]";
    let mut outcomes = vec![
        at_rate("managed", &format!("{fault} x 4KiB"), 1.0),
        at_rate("managed", &format!("{fault} x 256MiB"), 2.8),
        at_rate("managed", &format!("{read} x 256MiB"), 1300.0),
    ];
    outcomes.extend(filler());
    let report = run_report::build(&run(outcomes), None);
    let text =
        "Managed memory, 256MiB: 2.80 GB/s moved in by faults and 1300 GB/s read after migration";
    assert!(has_sentence(&report, text), "{:#?}", report.headlines);
}

#[test]
fn loads_over_links_are_a_matrix_with_the_host_last() {
    let load = |src: &str| format!("{src} > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 2MiB");
    let outcomes = vec![
        at_latency("latency", &load("gpu1.vram"), 830.0),
        at_latency("latency", &load("numa3.pinned"), 1200.0),
    ];
    let report = run_report::build(&run(outcomes), None);
    let FigureBody::Matrix(m) = &figure(&report, "latency-load").body else { panic!() };
    assert_eq!(m.cols, ["1", "host"]);
    close(m.cells[0][0].value, 830.0);
    close(m.cells[0][1].value, 1200.0);
}

/// 64 MiB copies; GPUs 0 and 1 share 30 in, 0 and 2 nothing. Alone 25 each.
#[test]
fn sharing_host_paths_are_named() {
    let into = |g: u32| format!("numa0.pinned > gpu{g}.vram by dma@gpu{g} x 64MiB");
    let out = |g: u32| format!("gpu{g}.vram > numa0.pinned by dma@gpu{g} x 64MiB");
    let set = |flows: &[String], rate: f64| at_rate("contention", &flows.join(" & "), rate);
    let mut outcomes: Vec<CaseOutcome> =
        (0..3).flat_map(|g| [set(&[into(g)], 25.0), set(&[out(g)], 20.0)]).collect();
    outcomes.push(set(&[into(0), into(1)], 15.0));
    outcomes.push(set(&[into(0), into(2)], 25.0));
    outcomes.push(set(&[into(1), into(2)], 25.0));
    outcomes.push(set(&[out(0), out(1)], 20.0));
    outcomes.push(set(&[into(0), into(1), into(2)], 15.0));
    outcomes.push(set(&[into(0), out(0), into(1), out(1), into(2), out(2)], 13.5));
    outcomes.push(at_rate("concurrent", &[into(0), into(1)].join(" & "), 16.0));
    let report = run_report::build(&run(outcomes), None);
    let FigureBody::Matrix(m) = &figure(&report, "contention-pairs").body else { panic!() };
    assert_eq!(m.rows[..3], ["gpu0 in numa0", "gpu1 in numa0", "gpu2 in numa0"]);
    // 15 of 25, concurrently; 25 of 25; itself.
    close(m.cells[0][1].value, 60.0);
    close(m.cells[1][0].value, 60.0);
    close(m.cells[2][0].value, 100.0);
    assert_eq!(m.cells[0][0].value, None);
    let finding = &figure(&report, "contention-pairs").finding;
    assert!(finding.starts_with("In 1 of 4 pairs one path loses more than 7.0 %"), "{finding}");
    assert!(finding.ends_with("gpu0 and gpu1 together get 30.0 GB/s H2D."), "{finding}");
    let groups = figure(&report, "contention-groups");
    close(bar(groups, "2 GPUs in, fastest: 1 2").value, 50.0);
    close(bar(groups, "2 GPUs in, slowest: 0 1").value, 30.0);
    close(bar(groups, "3 GPUs both ways").value, 6.0 * 13.5);
    // 45 of 75; 81 of 75 + 60.
    let text = "Copying with the host at once, 3 GPUs move 45.0 GB/s in, 60 %; 81.0 GB/s both ways, 60 % of \
                what they have alone.";
    assert!(
        has_sentence(&report, "gpu0 and gpu1 together get 30.0 GB/s H2D."),
        "{:#?}",
        report.headlines
    );
    assert!(has_sentence(&report, text), "{:#?}", report.headlines);
    let FigureBody::Matrix(m) = &figure(&report, "contention-alone").body else { panic!() };
    assert_eq!(m.rows, ["gpu0", "gpu1", "gpu2", "numa0"]);
    close(m.cells[3][0].value, 25.0);
    close(
        bar(figure(&report, "concurrent"), "2 to 4 copies with the host, the median of 1").value,
        32.0,
    );
}

/// Next to compute a copy kernel keeps 60 % and leaves compute 80 %: 40 % is what a kernel's copy costs.
/// The runtime's copy costs 1 %, a quarter of that at most: an engine's; or 40 %: a kernel's.
#[test]
fn a_kernel_on_all_units_shows_what_carried_a_copy() {
    let compute = "gpu0.reg > gpu0.reg by kernel@gpu0[fma-w4-u8-b256-g4sm] x 256MiB";
    let kernel = "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 256MiB";
    let dma = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let finding = |dma_next_to_it: f64, kernel_next_to_it: f64| {
        let rate = |case: &str, rate: f64| at_rate("overlap", case, rate);
        let during = |case: &str, other: &str| format!("{case} while {other}");
        let outcomes = vec![
            rate(compute, 10.0),
            rate(kernel, 100.0),
            rate(dma, 50.0),
            rate(&during(kernel, compute), kernel_next_to_it),
            rate(&during(compute, kernel), 8.0),
            rate(&during(dma, compute), dma_next_to_it),
            rate(&during(compute, dma), 9.9),
        ];
        let report = run_report::build(&run([outcomes, filler()].concat()), None);
        figure(&report, "overlap").finding.clone()
    };
    let engine = finding(50.0, 60.0);
    assert!(
        engine.contains("Next to compute on all units, an engine carried gpu0 to gpu1"),
        "{engine}"
    );
    assert!(!engine.contains("say otherwise"), "{engine}");
    // The record says engine.
    let by_kernel = finding(30.0, 60.0);
    assert!(by_kernel.contains("Next to compute on all units, a kernel carried"), "{by_kernel}");
    assert!(by_kernel.contains("say otherwise of gpu0 to gpu1"), "{by_kernel}");
    // 14 of 40 % are neither.
    let neither = finding(43.0, 60.0);
    assert!(!neither.contains("Next to compute on all units"), "{neither}");
    // Of a copy kernel that keeps its rate compute loses 20 %: 1 of those are an engine's.
    assert!(finding(49.5, 100.0).contains("an engine carried"), "{}", finding(49.5, 100.0));
}
