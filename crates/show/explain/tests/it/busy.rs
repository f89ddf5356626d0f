//! A machine that other programs used is named first, and no sentence rests on what they disturbed.

use crate::common::*;
use pathline_explain::figure::{Figure, Suspicion};
use pathline_explain::run_report;
use pathline_schema::{
    CaseOutcome, Conditions, GpuReadings, Journal, MeasuredCase, SampledCase, WorldKind,
};

fn measured(journal: &mut Journal) -> impl Iterator<Item = &mut MeasuredCase> {
    journal.outcomes.iter_mut().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(m) => Some(m.as_mut()),
        _ => None,
    })
}

/// Sets readings of these names before and after every case but `quiet` of them.
fn with_readings(readings: &[(&str, f64)], quiet: usize) -> Journal {
    let mut journal = host_run();
    for m in measured(&mut journal).skip(quiet) {
        let all: Conditions =
            Conditions(readings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect());
        (m.before, m.after) = (all.clone(), all);
    }
    journal
}

fn marked(journal: &Journal) -> usize {
    let report = run_report::build(journal, None);
    let cells = report.figures.iter().flat_map(Figure::cells);
    cells.filter(|cell| matches!(cell.suspect, Some(Suspicion::Busy(_)))).count()
}

/// The line behind BUSY, if there is one.
fn busy(journal: &Journal) -> Option<String> {
    run_report::build(journal, None).busy.map(|busy| busy.text())
}

fn has_sentence(journal: &Journal, part: &str) -> bool {
    run_report::build(journal, None).headlines.iter().any(|h| h.text.contains(part))
}

const QUIET: [(&str, f64); 5] = [
    ("own_cpus", 1.9),
    ("foreign_cpus", 0.04),
    ("elsewhere_cpus", 0.0),
    ("stolen_cpus", 0.01),
    ("load_1min", 9.0),
];

#[test]
fn other_processes_make_a_run_busy_and_take_its_sentences() {
    // A load of 9 on two CPUs may be that of a build which ended just before: 4 % of a CPU is not busy,
    // and 0.01 of 1.95 CPUs stolen are 0.5 %.
    let quiet = with_readings(&QUIET, 0);
    assert_eq!(busy(&quiet), None);
    assert!(has_sentence(&quiet, "Host memory gives"));
    assert_eq!(marked(&quiet), 0);

    let mut readings = QUIET;
    readings[1].1 = 1.9;
    let loaded = with_readings(&readings, 0);
    let text = busy(&loaded).unwrap();
    let begin =
        "other processes used 1.90 of 2 CPUs (load 9.00): all 80 host results are lower bounds";
    assert!(text.starts_with(begin), "{text}");
    for part in ["Host memory gives", "A dependent load", "overtake"] {
        assert!(!has_sentence(&loaded, part), "{part}");
    }
    let report = run_report::build(&loaded, None);
    let shown = report.figures.iter().flat_map(Figure::cells);
    let shown = shown.filter(|cell| cell.value.is_some() && cell.case.is_some()).count();
    assert_eq!(marked(&loaded), shown, "each is marked where it is shown");
}

#[test]
fn steal_counts_by_what_ran_or_should_have_run() {
    let mut readings = QUIET;
    // 0.4 of 0.4 + 1.4 + 0.04 CPUs are 22 %.
    (readings[0].1, readings[3].1) = (1.4, 0.4);
    let text = busy(&with_readings(&readings, 0)).unwrap();
    assert!(text.contains("the hypervisor stole 22 % of the CPU time"), "{text}");
}

/// Load averages and steal of all time are all that an older journal has.
#[test]
fn an_older_journal_is_judged_by_its_load_and_steal() {
    let of = |load: f64, steal: f64| {
        busy(&with_readings(&[("load_1min", load), ("steal_percent", steal)], 0))
    };
    // Its own two threads and the one that waits for them are a load of 3.
    assert_eq!(of(3.0, 2.5), None);
    assert!(of(7.5, 0.0).unwrap().starts_with("the load was 7.50 on 2 CPUs"));
    assert!(of(2.0, 22.0).unwrap().contains("stole 22 %"));
}

#[test]
fn a_blip_marks_its_results_and_does_not_make_a_run_busy() {
    let cases = measured(&mut host_run()).count();
    let mut readings = QUIET;
    readings[1].1 = 1.0;
    // 2 of 80 cases are 2.5 %.
    assert_eq!(cases, 80);
    let blip = with_readings(&readings, cases - 2);
    assert_eq!(busy(&blip), None);
    assert!(marked(&blip) > 0 && has_sentence(&blip, "Host memory gives"));
    // 5 are 6.3 %.
    let text = busy(&with_readings(&readings, cases - 5)).unwrap();
    assert!(text.contains("5 of 80 host results"), "{text}");
}

/// A case that a time limit cut is marked like the others of a busy run, and counted like them.
#[test]
fn a_cut_result_is_counted_where_it_is_marked() {
    let mut readings = QUIET;
    readings[1].1 = 1.9;
    let mut journal = with_readings(&readings, 0);
    let Some(CaseOutcome::Measured(last)) = journal.outcomes.pop() else { panic!("measured") };
    journal.partial.push(SampledCase {
        case: last.case.clone(),
        suites: last.suites.clone(),
        series: last.series.clone(),
    });
    // 79 finished ones, and this, which was cut before the load was read again.
    let text = busy(&journal).unwrap();
    let expected = "all 79 host results are lower bounds, and 1 more during which no load was read may be, marked ~";
    assert!(text.contains(expected), "{text}");
}

/// Where no other process can be seen, threads that lose their CPU show them.
#[test]
fn lost_cpus_make_a_run_busy_by_themselves() {
    let mut journal = with_readings(&QUIET, 0);
    for m in measured(&mut journal) {
        for series in &mut m.series {
            // Six of nine samples: the clean third counts.
            series.off_cpu_ns = series.samples_ns.iter().map(|ns| (ns / 4.0) as u64).collect();
            series.off_cpu_ns[..3].fill(0);
        }
    }
    assert_eq!(busy(&journal), None);
    for m in measured(&mut journal) {
        m.series.iter_mut().for_each(|series| series.off_cpu_ns[2] = series.off_cpu_ns[3]);
    }
    // Seven of nine: 78 %.
    let text = busy(&journal).unwrap();
    assert!(text.contains("threads lost their CPU in 78 % of samples"), "{text}");
}

/// On a quiet node one of 32 threads loses a percent of most samples; that moves no result by 10 %.
#[test]
fn a_thread_that_loses_a_percent_of_its_samples_makes_no_busy_run() {
    let losing = |share: f64| {
        let mut journal = with_readings(&QUIET, 0);
        for m in measured(&mut journal) {
            for series in &mut m.series {
                let lost = |ns: &f64| (ns * share) as u64;
                series.off_cpu_ns = series.samples_ns.iter().map(lost).collect();
            }
        }
        busy(&journal)
    };
    assert_eq!(losing(0.012), None);
    assert_eq!(losing(0.029), None);
    assert!(losing(0.031).unwrap().contains("in 100 % of samples"));
}

#[test]
fn figures_are_of_the_clean_samples() {
    let copy = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 256MiB";
    let mut run = journal(WorldKind::Real, small_host(), vec![at_rate("host", copy, 10.0)]);
    for m in measured(&mut run) {
        let series = &mut m.series[0];
        let clean = series.samples_ns[4];
        // Samples alternate: five of 10 GB/s, four of a fifth of that, without a CPU for 4/5 of the time.
        series.samples_ns = (0..9).map(|i| clean * [1.0, 5.0][i % 2]).collect();
        series.off_cpu_ns = (0..9).map(|i| (clean * [0.0, 4.0][i % 2]) as u64).collect();
    }
    let report = run_report::build(&run, None);
    let value = report.figures.iter().flat_map(Figure::cells).find_map(|cell| cell.value).unwrap();
    assert!((value - 10.0).abs() < 0.1, "{value}");
}

#[test]
fn probes_of_one_run_that_contradict_each_other_make_it_busy() {
    let probes = |low: f64| {
        let mut journal = with_readings(&QUIET, 0);
        for (nth, m) in measured(&mut journal).enumerate() {
            let gbs = if nth % 4 == 0 { low } else { 46.0 + nth as f64 / 100.0 };
            m.before.0.insert("dram_stream_gbs".to_owned(), gbs);
        }
        busy(&journal)
    };
    assert_eq!(probes(24.0), None, "46 is less than twice as much");
    let text = probes(7.0).unwrap();
    assert!(text.contains("one probe of memory gave 7.00 to 46.7 GB/s within the run"), "{text}");
}

#[test]
fn other_programs_on_a_gpu_affect_what_is_measured_there() {
    let case = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
    let outcomes = vec![at_rate("pairs", &case(0, 2), 25.0), at_rate("pairs", &case(4, 6), 25.0)];
    let mut run = journal(WorldKind::Real, mi250x(), outcomes);
    for m in measured(&mut run) {
        m.series[0].timer = pathline_schema::TimerKind::DeviceEvents;
        let gpu = m.case.timed[0].src.unit;
        let mut readings = GpuReadings::default();
        readings.before.other_processes = Some(u32::from(gpu.gpu() == Some(0)) * 2);
        m.gpus = [(gpu, readings)].into();
        // The load of the host is nothing to a copy that GPUs do and time.
        m.before.0.insert("foreign_cpus".to_owned(), 2.0);
    }
    let text = busy(&run).unwrap();
    assert!(text.starts_with("2 other programs on a GPU that was measured: 1 of 2 GPU"), "{text}");
}

#[test]
fn a_model_is_never_busy() {
    let mut journal = with_readings(&[("load_1min", 99.0), ("steal_percent", 50.0)], 0);
    assert!(busy(&journal).is_some());
    journal.begin.world = WorldKind::Simulated("mi250x".to_owned());
    assert_eq!(busy(&journal), None);
}
