//! Drawn comparisons of runs, and all that each comes to: verdict, counts, groups, rows with their figures, noise.

use std::fmt::Write as _;

use crate::common::*;
use pathline_explain::diff::{CaseChange, DiffOptions, RunDiff, diff_runs};
use pathline_schema::{
    CaseOutcome, Conditions, Gpu, GpuFacts, Journal, Link, LinkEnd, LinkKind, PcieLink, Rate,
    RejectedRecord, RunRepeat, Topology, Unit, VerifyResult, WorldKind,
};

/// Cases of a run: 16 copies of the host link of which classes learn their noise, and one of each other kind.
fn cases() -> Vec<String> {
    let mut cases: Vec<String> = (0..16)
        .map(|n| {
            format!("numa0.pinned > gpu{}.vram by dma@gpu{} x {}MiB", n % 4, n % 4, 16 << (n / 4))
        })
        .collect();
    cases.extend((0..12).map(|n| {
        let (a, b) = (n % 4, (n + 1 + n / 4) % 4);
        format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB")
    }));
    let others = [
        "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB",
        "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 16MiB",
        "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 64MiB",
        "gpu0.vram > gpu0.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 1GiB",
        "numa0.paged > gpu0.vram by dma@gpu0 x 64MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB & gpu1.vram > gpu0.vram by dma@gpu1 x 64MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 4KiB",
        "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 1MiB",
    ];
    cases.extend(others.map(str::to_owned));
    cases
}

/// Uniform in 0..below: SplitMix64 of a seed.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % below
}

fn topology(seed: &mut u64) -> Topology {
    let odd = draw(seed, 9);
    let gpus = (0..if odd == 1 { 3 } else { 4 }).map(|index| Gpu {
        index,
        pci: format!("0000:0{}:00.0", if odd == 4 { 0 } else { index }).parse().unwrap(),
        name: "GPU".into(),
        host_link: (index != 3).then_some(PcieLink {
            speed_gts: if odd == 2 && index == 1 { 2.5 } else { 32.0 },
            width: if odd == 3 && index == 0 { 8 } else { 16 },
            max_speed_gts: 32.0,
            max_width: 16,
        }),
        ..Gpu::default()
    });
    let gpus: Vec<Gpu> = gpus.collect();
    let width = 4 - u32::from(draw(seed, 4) == 0);
    let each = [25.0, 25.1, 12.5][draw(seed, 3) as usize];
    let link = |(a, b, kind, width): (u32, u32, LinkKind, u32)| {
        let (a, b) = (LinkEnd::Gpu(a), if b == 9 { LinkEnd::Numa(0) } else { LinkEnd::Gpu(b) });
        Link { a, b, kind, width, peak: Some(Rate(each * f64::from(width))) }
    };
    let mut links = vec![(0, 1, LinkKind::Nvlink, width), (3, 2, LinkKind::Nvlink, 4)];
    links.extend([(0, 9, LinkKind::Pcie, width), (3, 9, LinkKind::Pcie, width)]);
    Topology { links: links.into_iter().map(link).collect(), gpus, ..small_host() }
}

/// One outcome of a case that takes `slow` times as long, and one in `usual` of each odd kind.
fn outcome(
    seed: &mut u64,
    case: &str,
    slow: f64,
    (spread, usual): (u64, u64),
) -> Option<CaseOutcome> {
    let noise = 1.0 + (draw(seed, 2001) as f64 / 1e6 - 1e-3) * spread as f64;
    let rate = 24.0 / (slow * noise);
    let mut outcome = match draw(seed, usual) {
        0 => return None,
        1 => return Some(skipped("drawn", case, "too little memory")),
        2 => return Some(faulted("drawn", case, "process 7 was ended by signal 9")),
        _ if case.contains("chase") => at_latency("drawn", case, 5000.0 / rate),
        3 => at_rate("drawn", case, rate * 40.0),
        _ => at_rate("drawn", case, rate),
    };
    let kind = draw(seed, usual / 2);
    if let CaseOutcome::Measured(m) = &mut outcome {
        match kind {
            0 => m.verdict = VerifyResult::Unverified("nothing reads it".into()),
            1 => m.series[0].start_ns = vec![1.0; 9],
            2 => {
                m.series[0].samples_ns.truncate(1);
                m.series[0].visits = vec![1];
            }
            3 => {
                let readings = [("own_cpus", 1.0), ("foreign_cpus", 1.3), ("stolen_cpus", 0.0)];
                m.after = Conditions(readings.map(|(name, value)| (name.to_owned(), value)).into());
            }
            4 => m.series[0].samples_ns.iter_mut().step_by(3).for_each(|ns| *ns *= 1.2),
            _ => {}
        }
    }
    Some(outcome)
}

/// A run: `slow` is the factor of the times of what touches gpu1, or of all.
fn run(seed: &mut u64, slow: f64, noise: (u64, u64), all_slow: bool) -> Journal {
    let outcomes = |seed: &mut u64| -> Vec<CaseOutcome> {
        let of = |case: &String| {
            let slow = if all_slow || case.contains("gpu1") { slow } else { 1.0 };
            outcome(seed, case, slow, noise)
        };
        cases().iter().filter_map(of).collect()
    };
    let mut run = journal(WorldKind::Real, topology(seed), outcomes(seed));
    run.begin.started = format!("2026-01-0{}T03:04:05Z", 1 + draw(seed, 9));
    match draw(seed, 12) {
        0 => run.end = None,
        1 => run.end.as_mut().unwrap().complete = false,
        2 => run.begin.command.push("--quick".into()),
        3 => run.begin.command.extend(["--out".into(), format!("run{}", draw(seed, 9))]),
        4 => run.begin.command.push(format!("--out=run{}", draw(seed, 9))),
        5 => run.begin.env.extend([("NCCL_ALGO".to_owned(), "Ring".to_owned())]),
        6 => run.topology.host.kernel = "6.9".into(),
        7 => run.begin.host = "n2".into(),
        8 => {
            let facts = GpuFacts { source: "driver 580".into(), ..GpuFacts::default() };
            run.begin.gpus.extend([(Unit::Gpu(0), facts)]);
        }
        9 => {
            let case = cases()[0].clone();
            let why = "its time is negative".to_owned();
            run.rejected.push(RejectedRecord { line: 7, case, why });
        }
        10 => {
            let mut repeat = |repeat: u32| RunRepeat {
                repeat,
                started: format!("2026-01-1{repeat}T00:00:00Z"),
                outcomes: outcomes(seed),
                partial: Vec::new(),
                complete: true,
            };
            run.repeats = vec![repeat(0), repeat(1)];
        }
        _ => {}
    }
    run
}

fn digits(value: f64) -> String {
    format!("{value:.4}")
}

fn found_text(found: &RunDiff) -> String {
    let mut text = format!("{}\n  {}; {}", found.verdict(), found.counts(), found.false_changes());
    let (undecided, one_sided) = (found.undecided(), found.one_sided());
    let repeats = found.repeats.as_ref().map(|advice| &advice.classes);
    let _ = write!(text, "; {undecided:?} {one_sided:?} {repeats:?}");
    let sizes = [(false, 80), (false, 30), (true, 100), (true, 300)].map(|(all, columns)| {
        let text = found.text(all, columns);
        let sum = text.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte) % 97);
        format!("{} lines of {} ({sum:08x})", text.lines().count(), text.len())
    });
    let _ = write!(text, "\n  texts {}\n  noise", sizes.join(", "));
    for noise in &found.noise {
        let (class, cases, runs) = (&noise.class, noise.cases, noise.runs_for_ten);
        let figures = [noise.deviation, noise.visible].map(digits).join(" ");
        let _ = write!(text, "; {class} {cases} {figures} {runs:?} {:.30}", noise.origin);
    }
    text.push_str("\n  rows");
    for row in found.rows.iter().filter(|row| row.change != CaseChange::Same) {
        let number = cases().iter().position(|case| case.parse() == Ok(row.case.clone()));
        let effect = row.effect.map(|(a, b, c)| [a, b, c, row.p_value].map(digits).join(" "));
        let _ = write!(
            text,
            "; {} {:?} {} {:?} {:?} {}{}",
            number.map_or("-".to_owned(), |n| n.to_string()),
            row.change,
            effect.unwrap_or_default(),
            row.samples,
            row.runs,
            row.why.len(),
            if row.disturbed { " busy" } else { "" },
        );
    }
    text
}

/// 32 comparisons of one to three runs on each side; every second one is given runs to learn noise from.
#[test]
fn drawn_comparisons_match_their_snapshot() {
    let mut text = String::new();
    for nth in 0..32_u64 {
        let mut seed = nth;
        let slow = [1.0, 1.3, 1.04, 0.8][(nth % 4) as usize];
        // In most of them nothing else is odd.
        let noise = (1 + draw(&mut seed, 30), if nth % 3 == 0 { 60 } else { 3000 });
        let all_slow = draw(&mut seed, 3) == 0;
        let mut side = |slow: f64| -> Vec<Journal> {
            let runs = [1, 1, 2, 3][draw(&mut seed, 4) as usize];
            (0..runs).map(|_| run(&mut seed, slow, noise, all_slow)).collect()
        };
        let mut sides = [side(1.0), side(slow)];
        if nth % 8 == 5 {
            let model = WorldKind::Simulated("gpus".into());
            sides.iter_mut().flatten().for_each(|run| run.begin.world = model.clone());
        }
        let [before, after] = sides;
        let learnt: Vec<Journal> =
            if nth % 2 == 0 { Vec::new() } else { [side(1.0), side(1.0)].concat() };
        let options = DiffOptions { tolerance: 0.02, noise: learnt.iter().collect() };
        let (before, after): (Vec<_>, Vec<_>) = (before.iter().collect(), after.iter().collect());
        match diff_runs(&before, &after, &options) {
            Ok(mut found) => {
                if nth % 5 == 1 {
                    found.part = Some("NVLink gpu0-gpu1".into());
                    found.unseen = "1 of 4 links is not seen".into();
                }
                if nth % 5 == 2 {
                    found.failure = Some("gpu1 fails".into());
                    found.action = "reset gpu1".into();
                }
                let _ = writeln!(text, "{nth}: {}", found_text(&found));
            }
            Err(error) => {
                let _ = writeln!(text, "{nth}: {error}");
            }
        }
    }
    insta::assert_snapshot!(text);
}
