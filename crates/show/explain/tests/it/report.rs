//! Reports of runs with known results.

use crate::common::shown::{bar, figure, near};
use crate::common::*;
use pathline_explain::figure::{FigureBody, HeadlineTone, RunReport};
use pathline_explain::judge::{RunVerdict, judge};
use pathline_explain::run_report;
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{BrokenLine, Bytes, CaseOutcome, Journal, StopReason, WorldKind};

fn headline(report: &RunReport, part: &str) -> String {
    let found = report.headlines.iter().find(|h| h.text.contains(part));
    found.unwrap_or_else(|| panic!("no '{part}' in {:#?}", report.headlines)).text.clone()
}

#[test]
fn the_crossover_names_its_size_and_its_gain() {
    // Streaming copies first lead at 256 MiB (16 MiB: 11 against 16), where they are 12 against 8.
    let report = run_report::build(&host_run(), None);
    let text = figure(&report, "host-copy-t2").finding.clone();
    assert!(text.contains("overtake the best temporal one at 256MiB, by 50 % there"), "{text}");
    // 12 / 8 = 1.5, both scaled by 1.6 for two threads: 19.2 and 12.8 GB/s.
    assert!(text.contains("at 1GiB avx2-nt is ahead of movsb by 50 %"), "{text}");
    assert!(text.contains("19.2 GB/s against 12.8 GB/s"), "{text}");
    // 8 x 0.97 x 1.6 = 12.4.
    assert!(
        text.contains("memcpy reaches 12.4 GB/s at 1GiB, where it streams by itself"),
        "{text}"
    );
    assert_eq!(headline(&report, "overtake"), text);
    let FigureBody::Curves(curves) = &figure(&report, "host-copy-t2").body else { panic!() };
    let mark = curves.marks.iter().find(|m| m.1.contains("non-temporal")).expect("a mark");
    assert_eq!(mark.0, Bytes::mib(256).as_f64());
    assert!(curves.marks.iter().any(|m| m.1 == "L3 32MiB"));
}

#[test]
fn memcpy_streams_if_the_share_of_a_thread_is_past_the_cache() {
    let mut journal = host_run();
    // 1 GiB by two threads is two calls of 512 MiB, and 768 MiB of cache hold each of them.
    for cache in journal.topology.caches.iter_mut().filter(|c| c.level == 3) {
        cache.size = Bytes::mib(768);
    }
    let report = run_report::build(&journal, None);
    let text = figure(&report, "host-copy-t2").finding.clone();
    assert!(text.contains("memcpy reaches"), "{text}");
    assert!(!text.contains("where it streams by itself"), "{text}");
}

/// Makes the samples of cases whose text contains `part` by a factor.
fn stretched(journal: &mut pathline_schema::Journal, parts: &[&str], factor: f64) {
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        let text = m.case.to_string();
        if parts.iter().all(|part| text.contains(part)) {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= factor);
        }
    }
}

#[test]
fn memcpy_is_neither_streaming_nor_temporal() {
    let mut journal = host_run();
    // Twice as fast at 1 GiB: 2 x 8 x 0.97 x 1.6 = 24.8 GB/s, 29 % above the 19.2 of avx2-nt.
    stretched(&mut journal, &["copy-memcpy-t2]", "1GiB"], 0.5);
    let text = headline(&run_report::build(&journal, None), "overtake");
    assert!(text.contains("at 1GiB avx2-nt is ahead of movsb by 50 %"), "{text}");
    assert!(text.contains("memcpy is ahead of both at 1GiB by 29 % (24.8 GB/s)"), "{text}");
}

#[test]
fn copies_that_never_overtake_are_said_not_to() {
    let mut journal = host_run();
    // Streaming copies ten times slower than they were.
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        if m.case.to_string().contains("-nt") {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= 10.0);
        }
    }
    let report = run_report::build(&journal, None);
    // 12 / 10 against 8: 85 % behind.
    let text = headline(&report, "overtake");
    assert!(text.contains("do not overtake up to 1GiB: avx2-nt is behind movsb by 85 %"), "{text}");
}

#[test]
fn the_ceiling_of_host_memory_is_the_best_that_was_measured() {
    // Past twice the 32 MiB of L3 the best is streaming copies of two threads: 2 x 12 x 1.6 = 38.4
    // GB/s read + written; reads give 18 x 1.6 = 28.8. A copy's ceiling is half of it.
    let report = run_report::build(&host_run(), None);
    let FigureBody::Curves(curves) = &figure(&report, "host-copy-t1").body else { panic!() };
    let (name, height) = &curves.ceilings[0];
    near(Some(*height), 19.2);
    assert!(name.contains("measured: copy-avx2-nt, 2 threads, 256MiB"), "{name}");
    let movsb = curves.lines.iter().find(|l| l.name == "movsb").expect("a line");
    let large = &movsb.points.last().expect("points").1;
    near(large.value, 8.0);
    near(large.ceiling, 19.2);
    // A block in the cache has no ceiling in memory.
    assert_eq!(movsb.points[0].1.ceiling, None);
}

#[test]
fn a_page_costs_its_bytes_over_the_rate() {
    let report = run_report::build(&host_run(), None);
    let touch = figure(&report, "host-touch");
    near(bar(touch, "4KiB page").value, 0.25);
    near(bar(touch, "2MiB in 4KiB pages").value, 128.0);
    near(bar(touch, "2MiB huge page").value, 32.0);
    assert!(touch.finding.contains("4.00 times cheaper"), "{}", touch.finding);
}

#[test]
fn load_latency_is_stated_by_cache() {
    let text = headline(&run_report::build(&host_run(), None), "dependent load");
    // 4 KiB lies in L1, 64 KiB in L2, 16 MiB in L3 (half of 32 MiB).
    assert_eq!(
        text,
        "A dependent load takes 1.20 ns in L1, 3.90 ns in L2, 14.0 ns in L3 and 104 ns over 1GiB."
    );
}

#[test]
fn a_cache_that_is_no_faster_than_memory_is_not_named() {
    let mut journal = host_run();
    // 16 MiB, half of the stated L3, takes 100 ns where memory takes 104.
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        let text = m.case.to_string();
        if text.contains("chase") && text.ends_with("16MiB") {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= 100.0 / 14.0);
        }
    }
    let text = headline(&run_report::build(&journal, None), "dependent load");
    assert!(text.starts_with("A dependent load takes 1.20 ns in L1, 3.90 ns in L2 and 104 ns"));
    assert!(
        text.contains("16MiB takes 100 ns, though the system reports an L3 of 32MiB"),
        "{text}"
    );
}

#[test]
fn an_uncertain_rate_of_memory_is_called_so() {
    let mut journal = host_run();
    // Every other sample takes 1.5 times as long: the interval reaches from one state to the other.
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        m.series[0].samples_ns.iter_mut().step_by(2).for_each(|ns| *ns *= 1.5);
    }
    let text = headline(&run_report::build(&journal, None), "host memory");
    assert!(text.starts_with("The rate of host memory is uncertain"), "{text}");
}

#[test]
fn pairs_make_a_matrix_with_levels_and_published_values() {
    let report = run_report::build(&mi250x_run(), None);
    let dma = figure(&report, "pairs-dma");
    let FigureBody::Matrix(m) = &dma.body else { panic!() };
    assert_eq!((m.rows.len(), m.cols.len()), (8, 8));
    near(m.cells[0][1].value, 50.0);
    near(m.cells[0][2].value, 37.5);
    assert!(m.cells[3][3].value.is_none());
    // Both ways: the sum of two times 47.5.
    let FigureBody::Matrix(both) = &figure(&report, "pairs-dma-both").body else { panic!() };
    near(both.cells[0][1].value, 95.0);
    assert!(both.cells[1][0].case.is_none(), "a pair stands once");
    let published = m.cells[0][1].published.as_ref().expect("a published value");
    assert_eq!(published.value, 50.3);
    assert!(published.source.ends_with("Fig 6c"), "{}", published.source);
    // 50 for the 16 + 8 ordered pairs that are wide, 37.5 for the others.
    let text = headline(&report, "Runtime copies");
    assert!(text.contains("2 levels: 37.5 GB/s (32 pairs) and 50.0 GB/s (24 pairs)"), "{text}");
    let kernels = headline(&report, "Kernel reads");
    assert!(
        kernels.contains(
            "3 levels: 43.5 GB/s (32 pairs), 87.0 GB/s (16 pairs) and 174 GB/s (8 pairs)"
        ),
        "{kernels}"
    );
    // 38.0 / 43.5.
    assert!(kernels.contains("writes reach 87 % of reads"), "{kernels}");
}

#[test]
fn fans_are_multiples_of_one() {
    let report = run_report::build(&mi250x_run(), None);
    // One GPU: 22 GB/s of payload, 44 read + written. Two of a package: 11 each.
    near(bar(figure(&report, "fan"), "1 GPU").value, 44.0);
    let ratio = figure(&report, "fan-ratio");
    for (label, times) in [
        ("2 GPUs, same package", 1.0),
        ("2 GPUs, spread", 2.0),
        ("4 GPUs, spread", 4.0),
        ("all 8 GPUs", 4.0),
    ] {
        near(bar(ratio, label).value, times);
        assert_eq!(bar(ratio, label).published.as_ref().map(|p| p.value), Some(times));
    }
}

#[test]
fn local_memory_counts_read_and_written_bytes() {
    let report = run_report::build(&mi250x_run(), None);
    // 700 GB/s of payload are 1400 read + written, of a peak of 1600.
    let cell = bar(figure(&report, "local-bars"), "copy, kernel");
    near(cell.value, 1400.0);
    assert_eq!(cell.ceiling, Some(1600.0));
    assert_eq!(cell.published.as_ref().map(|p| p.value), Some(1400.0));
}

#[test]
fn the_detour_is_named_from_the_topology() {
    let text = headline(&run_report::build(&mi250x_run(), None), "hops");
    assert_eq!(
        text,
        "gpu1 and gpu7 use 3 hops (1-0-6-7), the narrowest with 2 links, though 2 hops would do; likewise 3-5 by 3-2-4-5."
    );
}

#[test]
fn an_overtaking_within_the_noise_is_uncertain() {
    let mut journal = host_run();
    // Streaming copies at 8.02 to 8.06 GB/s against 8.00 +-0.6 %: ahead, but not surely.
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        let text = m.case.to_string();
        if text.contains("copy-avx2-nt-t1]") && text.ends_with("1GiB") {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= 12.0 / 8.04);
        }
        if text.contains("copy-avx2-nta-t1]") && text.ends_with("1GiB") {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= 2.0);
        }
    }
    let text = figure(&run_report::build(&journal, None), "host-copy-t1").finding.clone();
    assert!(
        text.contains("it is not certain that non-temporal copies overtake up to 1GiB"),
        "{text}"
    );
    assert!(text.contains("their intervals overlap"), "{text}");
    assert!(
        !figure(&run_report::build(&host_run(), None), "host-copy-t1").finding.contains("overlap")
    );
}

/// The node as the model knows it.
fn network() -> Network {
    let desc = MachineDesc::preset("mi250x").expect("the preset");
    Network::new(&desc, RuntimeEnv::default()).expect("a network")
}

#[test]
fn ceilings_come_from_the_network() {
    let report = run_report::build(&mi250x_run(), Some(&network()));
    let FigureBody::Matrix(m) = &figure(&report, "pairs-dma").body else { panic!() };
    // Four links of 50 GB/s; the copy engine's cap is a tighter bound. One link has 50.
    near(m.cells[0][1].ceiling, 200.0);
    assert!(m.cells[0][1].bound.is_some_and(|b| b < 55.0), "{:?}", m.cells[0][1].bound);
    near(m.cells[0][2].ceiling, 50.0);
    // The detour is as wide as its two-link stretches.
    near(m.cells[1][7].ceiling, 100.0);
    let FigureBody::Matrix(both) = &figure(&report, "pairs-dma-both").body else { panic!() };
    near(both.cells[0][1].ceiling, 400.0);
    near(bar(figure(&report, "host-link"), "pinned to GPU, SDMA engine").ceiling, 36.0);
    // 28.3 / 36 = 79 %.
    assert!(headline(&report, "Host to gpu0").contains("21 % below the peak of 36.0 GB/s"));
    assert!(
        headline(&report, "Runtime copies").contains("from gpu0 to gpu1 that is 25 % of 200 GB/s")
    );
}

#[test]
fn two_of_a_package_are_bound_by_their_memory() {
    let report = run_report::build(&mi250x_run(), Some(&network()));
    let fan = figure(&report, "fan");
    let (one, two) = (bar(fan, "1 GPU"), bar(fan, "2 GPUs, same package"));
    // Each GPU alone has the same ceiling, so two have twice; what they get together is one's.
    near(two.ceiling, 2.0 * one.ceiling.expect("a ceiling"));
    assert!(two.bound.is_some_and(|b| b < 0.6 * two.ceiling.unwrap()), "{two:?}");
}

#[test]
fn a_load_on_the_route_slows_the_copy() {
    let report = run_report::build(&mi250x_run(), None);
    let routes = figure(&report, "routes");
    assert!(routes.finding.starts_with("1 of 2 loads slow the copy"), "{}", routes.finding);
    let cell = bar(routes, "gpu1 to gpu7 during gpu0 to gpu6");
    near(cell.value, 43.5);
    near(cell.ceiling, 87.0);
}

#[test]
fn latency_and_bandwidth_of_a_sweep_are_fitted() {
    let report = run_report::build(&mi250x_run(), None);
    // T = 10 us + n / 50 GB/s: half of the rate at 10 us x 50 GB/s = 500 kB.
    let text = &figure(&report, "sweep-dma").finding;
    assert!(text.contains("10.0 us + size / 50.0 GB/s"), "{text}");
    assert!(text.contains("half of its rate comes at 488.3KiB"), "{text}");
}

#[test]
fn suspect_results_are_listed() {
    let mut journal = mi250x_run();
    journal.end = None;
    if let Some(CaseOutcome::Measured(m)) = journal.outcomes.first_mut() {
        m.stop.reason = StopReason::Budget;
        m.stop.half_width = 0.07;
    }
    let report = run_report::build(&journal, None);
    assert!(!report.complete);
    assert_eq!(report.simulated.as_deref(), Some("mi250x"));
    assert!(headline(&report, "cut off").contains("--resume"));
    assert!(headline(&report, "failed").contains("out of memory"));
    assert!(report.absences[0].faulted);
    let warns = report.headlines.iter().filter(|h| h.tone == HeadlineTone::Warn).count();
    assert!(warns >= 2);
    // The spread of a model's times is drawn: a wide interval is a warning on hardware alone.
    assert!(report.headlines.iter().all(|h| !h.text.contains("time budget")));
    journal.begin.world = WorldKind::Real;
    let real = run_report::build(&journal, None);
    assert!(headline(&real, "more time").contains("less well than ±1 %"));
}

/// A narrow interval of few samples is not imprecise: ±0.5 % is within the 1 % that were asked for.
#[test]
fn few_samples_are_not_called_imprecise() {
    let mut journal = mi250x_run();
    // The spread of a model is drawn: only on hardware it shows something.
    let model = run_report::build(&journal, None);
    assert!(model.headlines.iter().all(|h| !h.text.contains("samples than wanted")));
    journal.begin.world = WorldKind::Real;
    let mut stop = |half_widths: &[f64]| {
        let measured = journal.outcomes.iter_mut().filter_map(|o| match o {
            CaseOutcome::Measured(m) => Some(m),
            _ => None,
        });
        for (m, half_width) in measured.zip(half_widths) {
            (m.stop.reason, m.stop.half_width) = (StopReason::Budget, *half_width);
        }
        run_report::build(&journal, None)
    };
    let few = headline(&stop(&[0.005, 0.005]), "samples than wanted");
    assert!(few.starts_with("2 of ") && few.ends_with(" have fewer samples than wanted."), "{few}");
    let wide = headline(&stop(&[0.07, 0.005]), "less well than");
    assert!(wide.starts_with("1 of ") && wide.contains("(worst ±7 %, r0."), "{wide}");
    assert!(wide.contains("; 1 more with fewer samples than wanted; --case-budget 1s"), "{wide}");
}

#[test]
fn an_unfinished_case_shows_what_it_has() {
    let mut journal = host_run();
    journal.end = None;
    let Some(CaseOutcome::Measured(last)) = journal.outcomes.pop() else { panic!() };
    journal.partial.push(pathline_schema::SampledCase {
        case: last.case.clone(),
        suites: last.suites.clone(),
        series: last.series.clone(),
    });
    let report = run_report::build(&journal, None);
    assert!(headline(&report, "cut off").contains("1 case"));
    near(bar(figure(&report, "host-touch"), "2MiB huge page").value, 32.0);
}

#[test]
fn a_case_of_no_suite_is_shown() {
    let case = "gpu0.vram > gpu3.vram by blit@gpu0 x 1MiB";
    let journal = journal(WorldKind::Real, mi250x(), vec![at_rate("", case, 20.0)]);
    let report = run_report::build(&journal, None);
    near(bar(figure(&report, "cases"), &format!("r0.{}", case.replace("> ", "> r0."))).value, 20.0);
}

#[test]
fn nothing_measured_is_a_report_too() {
    let empty = journal(WorldKind::Real, Default::default(), Vec::new());
    let report = run_report::build(&empty, None);
    assert!(report.figures.is_empty());
    assert!(report.headlines.is_empty());
}

#[test]
fn a_run_of_one_case_is_summarised_in_a_sentence() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let journal = journal(WorldKind::Real, mi250x(), vec![at_rate("pairs", case, 50.0)]);
    let report = run_report::build(&journal, Some(&network()));
    assert_eq!(report.headlines.len(), 1);
    // Nine samples 0.2 % apart: the interval of the median is the 2nd to the 8th, 0.6 %. That of t is
    // narrower: 2.306 x 10/9 x 0.55 % / 3 = 0.47 %.
    assert_eq!(
        report.headlines[0].text,
        "50.0 GB/s ±0.6 %, 25 % of 200 GB/s, paper 50.3 (KTH-ScaLab/multi-gpu-comm@3ef8b25 \
         figures/p2p-mat.py (= Fig 6), Fig 6c): r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB."
    );
}

#[test]
fn reasons_that_name_their_case_count_as_one() {
    let mut outcomes = vec![at_rate("pairs", "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB", 9.0)];
    for b in 1..4 {
        let case = format!("gpu0.vram > gpu{b}.vram by blit@gpu0 x 1MiB");
        let text = case.replace("gpu0.vram >", "r0.gpu0.vram >").replace("> gpu", "> r0.gpu");
        outcomes.push(skipped("pairs", &case, &format!("copy on {text}: no copy kernel here")));
    }
    let report = run_report::build(&journal(WorldKind::Real, mi250x(), outcomes), None);
    assert_eq!(headline(&report, "skipped"), "3 cases skipped; no copy kernel here");
}

#[test]
fn the_command_of_a_figure_carries_what_the_run_was_given() {
    let mut journal = mi250x_run();
    let local = |journal: &Journal, arguments: Option<&[String]>| {
        let report = run_report::build_with(journal, None, arguments);
        figure(&report, "pairs-dma").command.clone()
    };
    journal.begin.world = WorldKind::Real;
    let command = local(&journal, None);
    assert!(command.starts_with("pathline run pairs '"), "{command}");
    journal.begin.world = WorldKind::Simulated("a node".to_owned());
    assert!(local(&journal, None).starts_with("pathline run --machine 'a node' pairs "));
    let given = ["--machine", "x y.toml", "--noise", "0.5"].map(str::to_owned);
    let command = local(&journal, Some(&given));
    let expected = "pathline run --machine 'x y.toml' --noise 0.5 pairs '";
    assert!(command.starts_with(expected), "{command}");
    // Ranks came from a launcher, or from pathline itself.
    journal.begin.ranks = (0..4).map(member).collect();
    assert!(local(&journal, Some(&given)).starts_with("mpirun -n 4 pathline run --machine "));
    let own = ["--ranks", "4"].map(str::to_owned);
    assert!(local(&journal, Some(&own)).starts_with("pathline run --ranks 4 "));
}

#[test]
fn broken_lines_come_first_and_leave_the_run_undecided() {
    let mut journal = host_run();
    assert_eq!(judge(&journal), RunVerdict::Fine);
    journal.broken = vec![BrokenLine { line: 94, reason: "expected `,` or `}`".to_owned() }];
    let report = run_report::build(&journal, None);
    let first = &report.headlines[0];
    assert!(
        first.tone == HeadlineTone::Warn
            && first.text.contains("the first is line 94: expected `,`")
    );
    assert_eq!(report.warnings[0].code, "broken-line");
    assert_eq!(judge(&journal), RunVerdict::Incomplete);
}
