//! Warnings about the figures of a case.

use std::collections::BTreeMap;

use pathline_schema::{
    Bytes, Cadence, CleanSamples, CpuOp, Flow, FlowSeries, GpuFacts, GpuReadings, GpuState,
    MeasuredCase, MemKind, MigrateHow, Mover, Ns, PcieLink, Place, Rate, RunNote, Unit,
    VerifyResult,
};

use pathline_stats::Unsteady;

use crate::pool::other_domain;
use crate::{memory_type_check, overhead};

/// Maximum factor of the compared samples over the others.
const COMPARED_SLOWER: f64 = 1.1;
/// Minimum samples before the compared visit.
const BEFORE_COMPARED: usize = 4;
/// Minimum factor of a sample over the cost of its harness.
const OVERHEAD_FACTOR: f64 = 50.0;
/// From this share of disturbed samples on, the clean ones may be a biased selection.
const PREEMPTED: f64 = 1.0 / 3.0;

/// Maximum bytes of a page fault, the largest page of a GPU, ...
const FAULTED: Bytes = Bytes::mib(2);
/// ... and its minimum time: faults of an H200 on the host's pages take 270 us for as much.
const FAULT: Ns = Ns::us(10.0);

/// Warnings about a measured case.
pub(crate) fn about(
    measured: &MeasuredCase,
    overhead_ns: &BTreeMap<String, f64>,
    facts: &BTreeMap<Unit, GpuFacts>,
) -> Vec<RunNote> {
    let subject = measured.case.to_string();
    let note = |code: &str, text: String| RunNote {
        code: code.to_owned(),
        subject: subject.clone(),
        text,
    };
    let mut notes = Vec::new();
    let clean = CleanSamples::of(&measured.series);
    notes.extend(preempted(&clean).map(|text| note("preempted", text)));
    let verified = measured.verdict == VerifyResult::Verified;
    for series in &measured.series {
        notes.extend(unsteady(series, &clean).map(|text| note("unsteady", text)));
        if let Some(text) = slower_when_compared(series).filter(|_| verified) {
            notes.push(note("slower-when-compared", text));
        }
        let short = short(series, overhead_ns);
        let repeats = || short_repetition(series, measured.case.cadence, overhead_ns);
        if let Some(text) = short.or_else(repeats) {
            notes.push(note("overhead", text));
        }
        if let Some(text) = small_pages(series) {
            notes.push(note("pages", text));
        }
        if let Some(text) = misplaced(series) {
            notes.push(note(RunNote::OTHER_DOMAIN, text));
        }
        if let Some(text) = stayed(series) {
            notes.push(note("not-migrated", text));
        }
        notes.extend(
            memory_type_check::wrong_types(series)
                .into_iter()
                .map(|text| note("memory-type", text)),
        );
    }
    for (unit, readings) in &measured.gpus {
        let findings = [
            ("gpu-errors", errors(readings)),
            ("gpu-throttled", throttled(readings, facts.get(unit))),
            ("pcie-below-max", narrow(readings).filter(|_| uses_host_link(measured, *unit))),
        ];
        for (code, text) in findings {
            notes.extend(text.map(|text| note(code, format!("{unit}: {text}"))));
        }
    }
    notes
}

/// Counters that grew. Cases of a group are sampled in turn, so another of them may be the cause.
fn errors(readings: &GpuReadings) -> Option<String> {
    type WarningCount = fn(&GpuState) -> Option<u64>;
    const COUNTERS: [(&str, WarningCount); 4] = [
        ("memory errors that ECC corrected", |s| s.ecc_corrected),
        ("memory errors that ECC could not correct", |s| s.ecc_uncorrected),
        ("errors of links to other GPUs", |s| s.link_errors),
        ("PCIe replays", |s| s.pcie_replays),
    ];
    let grown = |(name, of): &(&str, WarningCount)| {
        let more = of(&readings.after)?.checked_sub(of(&readings.before)?)?;
        (more > 0).then(|| format!("{more} {name}"))
    };
    let grown: Vec<String> = COUNTERS.iter().filter_map(grown).collect();
    (!grown.is_empty()).then(|| {
        format!("{} during this case, or others that ran in turn with it", grown.join(", "))
    })
}

fn throttled(readings: &GpuReadings, facts: Option<&GpuFacts>) -> Option<String> {
    let state = readings.during.as_ref()?;
    let reasons = state.throttle.as_ref().filter(|reasons| !reasons.is_empty())?;
    let clock = |now: Option<u32>, most: Option<u32>, name: &str| match (now, most) {
        (Some(now), Some(most)) if now < most => format!("; {name} at {now} of {most} MHz"),
        _ => String::new(),
    };
    let most = facts.cloned().unwrap_or_default();
    Some(format!(
        "clocks are held down while it runs by {}{}{}",
        reasons.join(", "),
        clock(state.sm_clock_mhz, most.max_sm_clock_mhz, "multiprocessors"),
        clock(state.memory_clock_mhz, most.max_memory_clock_mhz, "memory"),
    ))
}

/// A PCIe link below its maximum under load, without a power saving reason.
fn narrow(readings: &GpuReadings) -> Option<String> {
    let link = readings.during.as_ref()?.pcie?;
    let (now, most) = (link.peak(), link.max_peak());
    let PcieLink { speed_gts, width, max_speed_gts, max_width } = link;
    (now.gbs() < most.gbs() * 0.99).then(|| {
        format!(
            "its PCIe link is at {speed_gts} GT/s x{width} under load, {:.1} GB/s per direction, and \
             could be at {max_speed_gts} GT/s x{max_width}, {:.1} GB/s: see that it is seated well \
             and what its slot can do",
            now.gbs(),
            most.gbs(),
        )
    })
}

/// Whether bytes of a case go between this GPU and the host.
fn uses_host_link(measured: &MeasuredCase, gpu: Unit) -> bool {
    let crosses = |flow: &Flow| {
        let units = [flow.src.unit, flow.dst.unit, flow.by.at()];
        units.contains(&gpu) && units.iter().any(|unit| unit.numa().is_some())
    };
    measured.case.flows().any(crosses)
}

/// The number of samples whose threads lost their CPU.
fn preempted(clean: &CleanSamples) -> Option<String> {
    let CleanSamples { chosen, all, disturbed, enough, .. } = clean;
    let share = clean.disturbed_share();
    let percent = share * 100.0;
    let lost = || {
        format!(
            "threads lost their CPU for 1 % or more of {disturbed} of {all} samples ({percent:.0} %)"
        )
    };
    if *enough {
        let others = chosen.len();
        (share >= PREEMPTED).then(|| format!("{}; the other {others} count", lost()))
    } else {
        Some(format!(
            "{}; too few are clean, so all count and the figure is a lower bound: end other programs, \
             or pin this run to CPUs that nothing else uses",
            lost()
        ))
    }
}

/// A median that hides two states, or a change while the case was sampled.
fn unsteady(series: &FlowSeries, clean: &CleanSamples) -> Option<String> {
    let rate = |ns: f64| series.moved_bytes.as_f64() / ns;
    Some(match pathline_stats::unsteady(&clean.samples_ns(series), &clean.visits)? {
        Unsteady::TwoStates(modes) => format!(
            "two states: {:.3} GB/s in {:.0} % of samples and {:.3} GB/s in the rest; the median hides one of them",
            rate(modes.low.median),
            modes.low.share * 100.0,
            rate(modes.high.median),
        ),
        Unsteady::Halves(change) => format!(
            "samples of the second half of the visits took {:+.1} % of the time of the first half; the machine \
             was not steady",
            change * 100.0
        ),
    })
}

/// `huge` memory that the kernel backed with small pages.
fn small_pages(series: &FlowSeries) -> Option<String> {
    let share = series.small_pages()?;
    Some(format!(
        "{:.0} % of its huge memory is in huge pages, the rest in small ones: the figure is not one of \
         huge pages. Allow transparent ones (madvise or always in \
         /sys/kernel/mm/transparent_hugepage/enabled, no PR_SET_THP_DISABLE), or reserve some \
         (vm.nr_hugepages)",
        (share * 100.0).floor(),
    ))
}

/// Memory of a NUMA domain whose pages lie on another one: `pages of numa1 lie on numa3`. Pages of two domains are counted
/// together.
fn misplaced(series: &FlowSeries) -> Option<String> {
    let ends = [series.flow.src, series.flow.dst];
    let is_asked =
        |place: &&Place| place.unit.numa().is_some() && place.mem != MemKind::PinnedDefault;
    let mut asked = ends.iter().filter(is_asked);
    let (Some(place), None) = (asked.next(), asked.next()) else { return None };
    let other = other_domain(&series.pages, place.unit.numa()?)?;
    Some(format!("pages of {} lie on numa{other}", place.unit))
}

/// Pages that arrived faster than faults can move them. Two H200s gave 372 GB/s between them, the
/// rate of a kernel that reads over their links.
fn stayed(series: &FlowSeries) -> Option<String> {
    let by_faults = matches!(series.flow.by, Mover::Migrate { how: MigrateHow::Fault, .. });
    let middle = pathline_stats::SeriesSummary::of(&series.samples_ns)?.median;
    let rate = Rate::of(series.moved_bytes, Ns(middle));
    (by_faults && rate > Rate::of(FAULTED, FAULT)).then(|| {
        format!(
            "{:.0} GB/s is more than page faults can move: the pages were read where they were",
            rate.gbs()
        )
    })
}

/// The bytes of the last visit were compared. If each of its samples took longer than every earlier
/// one, earlier ones may have moved fewer bytes.
fn slower_when_compared(series: &FlowSeries) -> Option<String> {
    let compared = *series.visits.last()? as usize;
    let before = series.samples_ns.len().checked_sub(compared).filter(|&n| n >= BEFORE_COMPARED)?;
    let (others, compared) = series.samples_ns.split_at(before);
    let fastest = compared.iter().copied().reduce(f64::min)?;
    let slowest = others.iter().copied().fold(0.0, f64::max);
    let usual = pathline_stats::SeriesSummary::of(others)?.median;
    (fastest > slowest && fastest > usual * COMPARED_SLOWER).then(|| {
        format!(
            "the samples whose bytes were compared took at least {:.0} % longer than the median of \
             those before: the others may have moved fewer bytes; run this case alone",
            (fastest / usual - 1.0) * 100.0
        )
    })
}

fn short(series: &FlowSeries, overhead_ns: &BTreeMap<String, f64>) -> Option<String> {
    let overhead = *overhead_ns.get(series.timer.word())?;
    let shortest = series.samples_ns.iter().copied().fold(f64::INFINITY, f64::min);
    // A device's events bracket one short copy on purpose; its cost is the figure.
    let single = series.reps == 1;
    (!single && shortest < overhead * OVERHEAD_FACTOR)
        .then(|| format!("a sample lasts {shortest:.0} ns and its harness costs {overhead:.0} ns"))
}

/// The cost per repetition of threads: a turn of the loop of passes, or a barrier between isolated
/// ones of several threads.
fn short_repetition(
    series: &FlowSeries,
    cadence: Cadence,
    overhead_ns: &BTreeMap<String, f64>,
) -> Option<String> {
    let Mover::Cpu { work, threads, .. } = series.flow.by else { return None };
    let passes = !matches!(work.op, CpuOp::Chase | CpuOp::Touch);
    let meets = cadence == Cadence::Isolated && threads > 1;
    let kind = if meets { overhead::BARRIER } else { overhead::REPETITION };
    let cost = *overhead_ns.get(kind).filter(|_| passes && series.reps > 1)?;
    let shortest = series.samples_ns.iter().copied().fold(f64::INFINITY, f64::min);
    let each = shortest / series.reps as f64;
    (each < cost * OVERHEAD_FACTOR)
        .then(|| format!("a repetition lasts {each:.1} ns and to repeat it costs {cost:.1} ns"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::TimerKind;

    /// 8 samples of about 100 us, then 4 whose fastest takes 115 us: 15 % longer than the median.
    #[test]
    fn samples_that_are_slower_when_their_bytes_are_compared_are_named() {
        let flow = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
        let series = |last: [f64; 4]| FlowSeries {
            samples_ns: [99.0, 100.0, 101.0, 100.0, 99.0, 100.0, 101.0, 100.0]
                .into_iter()
                .chain(last)
                .collect(),
            visits: vec![4, 4, 4],
            ..FlowSeries::new(flow, TimerKind::DeviceEvents)
        };
        let text = slower_when_compared(&series([115.0, 116.0, 118.0, 120.0]));
        assert!(text.is_some_and(|t| t.contains("at least 15 % longer")));
        // The first sample is cold, which proves nothing; and 9 % may be noise.
        assert_eq!(slower_when_compared(&series([130.0, 100.5, 101.0, 100.0])), None);
        assert_eq!(slower_when_compared(&series([109.0; 4])), None);
        // An earlier sample took as long.
        let mut noisy = series([115.0, 116.0, 118.0, 120.0]);
        noisy.samples_ns[3] = 115.0;
        assert_eq!(slower_when_compared(&noisy), None);
        let old = FlowSeries { visits: Vec::new(), ..series([115.0; 4]) };
        assert_eq!(slower_when_compared(&old), None);
    }

    #[test]
    fn lost_cpus_are_named_with_their_share_and_what_counts() {
        let text = |off_cpu_ns: Vec<u64>| {
            let flow = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
            let series = FlowSeries {
                samples_ns: vec![100_000.0; off_cpu_ns.len()],
                off_cpu_ns,
                ..FlowSeries::new(flow.parse().unwrap(), TimerKind::Threads)
            };
            preempted(&CleanSamples::of(&[series]))
        };
        // 2 % of 100 us are 2000 ns.
        assert_eq!(text(vec![0; 8]), None);
        assert_eq!(text(vec![0, 0, 0, 0, 0, 0, 2000, 2000]), None, "25 % are few");
        let some = text(vec![0, 2000, 2000, 0, 2000, 0, 0, 2000]).unwrap();
        assert!(some.contains("4 of 8 samples (50 %); the other 4 count"), "{some}");
        let most = text(vec![2000, 2000, 2000, 0, 2000, 0, 2000, 2000]).unwrap();
        assert!(most.contains("6 of 8 samples (75 %); too few are clean"), "{most}");
    }

    #[test]
    fn pages_that_come_too_fast_for_faults_were_not_moved() {
        let flow = |by: &str| {
            let text = format!("gpu1.managed > gpu0.managed by migrate@gpu0[{by}] x 256MiB");
            text.parse().unwrap()
        };
        let series = |by: &str, us: f64| FlowSeries {
            moved_bytes: Bytes::mib(256),
            samples_ns: vec![us * 1e3; 7],
            ..FlowSeries::new(flow(by), TimerKind::DeviceEvents)
        };
        // 128 faults of 10 us are 1280 us; 268 MB in 720 us are 373 GB/s.
        assert!(stayed(&series("fault", 720.0)).is_some_and(|t| t.contains("373 GB/s")));
        assert_eq!(stayed(&series("fault", 1290.0)), None);
        assert_eq!(stayed(&series("prefetch", 720.0)), None);
    }

    fn copies(threads: u32, reps: u64) -> FlowSeries {
        let flow = format!("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t{threads}] x 4KiB");
        FlowSeries {
            reps,
            samples_ns: vec![500_000.0; 7],
            ..FlowSeries::new(flow.parse().unwrap(), TimerKind::Threads)
        }
    }

    #[test]
    fn a_repetition_is_long_against_what_repeating_it_costs() {
        let cost = BTreeMap::from([
            (TimerKind::Threads.word().to_owned(), 50.0),
            (overhead::REPETITION.to_owned(), 1.0),
            (overhead::BARRIER.to_owned(), 200.0),
        ]);
        // 500 us are 10,000 times 50 ns: as samples, all of these are long enough. With 12,500
        // repetitions each lasts 40 ns, less than 50 times 1 ns; with 8,000 it lasts 62.5 ns.
        let (short_one, long_one) = (copies(1, 12_500), copies(1, 8_000));
        assert_eq!(short(&short_one, &cost), None);
        let text = short_repetition(&short_one, Cadence::Streaming, &cost).unwrap();
        assert!(text.contains("lasts 40.0 ns") && text.contains("costs 1.0 ns"), "{text}");
        assert_eq!(short_repetition(&long_one, Cadence::Streaming, &cost), None);
        // Two threads pay 200 ns for each barrier, and 62.5 ns are not 50 times that.
        assert!(short_repetition(&copies(2, 8_000), Cadence::Isolated, &cost).is_some());
        assert_eq!(short_repetition(&copies(2, 8_000), Cadence::Streaming, &cost), None);
        // A sample of one operation repeats nothing, and older runs did not measure the cost.
        assert_eq!(short_repetition(&copies(1, 1), Cadence::Streaming, &cost), None);
        assert_eq!(short_repetition(&short_one, Cadence::Streaming, &BTreeMap::new()), None);
    }

    /// Pages of pinned memory of numa1 are on numa3, or most of them at home. What the runtime places has no home.
    #[test]
    fn pages_on_another_domain_are_named() {
        let text = |place: &str, pages: &[(u32, u64)]| {
            let flow = format!("numa1.{place} > gpu2.vram by dma@gpu2 x 1MiB").parse().unwrap();
            let pages = pages.iter().copied().collect();
            misplaced(&FlowSeries { flow, pages, ..copies(1, 8_000) })
        };
        let lie = "pages of numa1 lie on numa3";
        assert_eq!(text("pinned", &[(3, 200), (1, 56)]).as_deref(), Some(lie));
        assert_eq!(text("pinned", &[(3, 100), (1, 156)]), None);
        assert_eq!((text("pinned", &[]), text("pinned-default", &[(3, 256)])), (None, None));
    }

    #[test]
    fn small_pages_under_a_case_of_huge_ones_are_named_with_their_share() {
        let series = |huge_share| FlowSeries { huge_share, ..copies(1, 8_000) };
        assert_eq!(small_pages(&series(None)), None);
        assert_eq!(small_pages(&series(Some(0.96))), None);
        assert!(small_pages(&series(Some(0.949))).is_some_and(|t| t.starts_with("94 % of")));
        assert!(small_pages(&series(Some(0.0))).is_some_and(|t| t.starts_with("0 % of")));
    }
}
