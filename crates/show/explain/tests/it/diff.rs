//! Two runs compared, whose figures are known by hand.

use crate::common::*;
use pathline_explain::diff::{CaseChange, DiffError, DiffOptions, RunDiff, diff, diff_runs};
use pathline_schema::{
    CaseOutcome, Gpu, Journal, Link, LinkEnd, LinkKind, Rate, Topology, VerifyResult, WorldKind,
};

const CASE: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB";
const CHASE: &str = "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 64MiB";

fn run_of(outcomes: Vec<CaseOutcome>) -> Journal {
    journal(WorldKind::Real, Topology::default(), outcomes)
}

/// Loops of the host, of which shipped noise between runs would hide 20 %, by runs that show their own.
fn learnt(first: &Journal, second: &Journal) -> RunDiff {
    let runs = [10.0, 10.01, 9.99].map(|rate| run_of(vec![at_rate("host", CASE, rate)]));
    let options = DiffOptions { tolerance: 0.02, noise: runs.iter().collect() };
    diff_runs(&[first], &[second], &options).unwrap()
}

#[test]
fn sizes_of_one_copy_are_one_row() {
    let sized = |size: &str| CASE.replace("64MiB", size);
    let run = |rates: [f64; 5]| {
        let cases = ["16MiB", "64MiB", "256MiB", "1GiB", "2GiB"].into_iter().zip(rates);
        run_of(cases.map(|(size, rate)| at_rate("host", &sized(size), rate)).collect())
    };
    // 10 to 8, 7 and 6: the worst stands for all, 8 / 10 and 7 / 10 are its other sizes. 3 of 5 are no group.
    let found = learnt(&run([10.0; 5]), &run([8.0, 7.0, 6.0, 10.0, 10.0]));
    let text = found.text(false, 80).replace("\n    ", " ");
    assert!(text.contains("x 256MiB; 2 other sizes of 16MiB to 64MiB: -30 to -20 %"), "{text}");
    assert_eq!(text.matches("cpu@numa0").count(), 1, "{text}");
    assert_eq!(found.text(true, 80).matches("cpu@numa0").count(), 3, "{text}");
}

/// Three cases that one signal ended, each in another process: the reason stands once.
#[test]
fn a_cause_of_lost_cases_is_said_once() {
    let sized = |size: &str| CASE.replace("64MiB", size);
    let sizes = ["64MiB", "256MiB", "1GiB"];
    let first = run_of(sizes.map(|size| at_rate("host", &sized(size), 10.0)).into());
    let ended = |(nth, size): (usize, &str)| {
        let error =
            format!("visit: process {nth} was ended by signal 9 (SIGKILL); the run went on");
        if nth == 0 {
            at_rate("host", &sized(size), 10.0)
        } else {
            faulted("host", &sized(size), &error)
        }
    };
    let found =
        diff(&first, &run_of(sizes.into_iter().enumerate().map(ended).collect()), 0.02).unwrap();
    let text = found.text(false, 100).replace("\n    ", " ");
    assert_eq!(
        (text.matches("SIGKILL").count(), text.matches(": likewise").count()),
        (1, 1),
        "{text}"
    );
}

#[test]
fn changes_have_their_interval() {
    let gone = CASE.replace("64MiB", "1GiB");
    let first = run_of(vec![
        at_rate("host", CASE, 10.0),
        at_latency("host", CHASE, 100.0),
        at_rate("host", &gone, 9.0),
    ]);
    let second = run_of(vec![
        at_rate("host", CASE, 8.0),
        at_latency("host", CHASE, 80.0),
        skipped("host", &gone, "too little memory"),
    ]);
    let found = learnt(&first, &second);
    let changes: Vec<CaseChange> = found.rows.iter().map(|r| r.change).collect();
    assert_eq!(changes, [CaseChange::Slower, CaseChange::Lost, CaseChange::Faster]);
    // 8 / 10 = 0.8; the ripple of 0.8 % on both sides is 0.3 % of an error of either median.
    let (effect, low, high) = found.rows[0].effect.unwrap();
    assert!((effect - 0.8).abs() < 1e-9);
    assert!(low > 0.8 * 0.98 && high < 0.8 * 1.02, "{low} {high}");
    // A latency that falls from 100 to 80 ns is 1.25 times the speed.
    assert!((found.rows[2].effect.unwrap().0 - 1.25).abs() < 1e-9);
    assert!((found.rows[2].a.unwrap() - 100.0).abs() < 1e-9 && found.rows[2].unit == "ns");
    assert!(found.is_worse());
    insta::assert_snapshot!(found.to_string());
}

/// A path whose kernel a search has changed is one path; where a run has two kernels on it, nobody
/// knows which belongs to which.
#[test]
fn another_kernel_on_the_same_path_is_compared_and_named() {
    let case =
        |to: &str, kernel: &str| format!("gpu0.vram > {to}.vram by kernel@gpu0[{kernel}] x 1GiB");
    let (plain, tuned) = ("copy-w16-u4-b256-g2sm", "copy-w16-u1-b256-gt");
    let first = run_of(vec![
        at_rate("local", &case("gpu0", plain), 1904.0),
        at_rate("pairs", &case("gpu1", plain), 374.0),
        at_rate("pairs", &case("gpu1", "copy-w8-u4-b256-g2sm"), 371.0),
    ]);
    let second = run_of(vec![
        at_rate("local", &case("gpu0", tuned), 2144.0),
        at_rate("pairs", &case("gpu1", tuned), 375.0),
    ]);
    let found = diff(&first, &second, 0.02).unwrap();
    let changed: Vec<_> = found.rows.iter().map(|r| (r.change, r.why.as_str())).collect();
    let named = format!("{plain} -> {tuned}");
    assert_eq!(changed[0], (CaseChange::Faster, named.as_str()), "{changed:?}");
    assert!((found.rows[0].effect.unwrap().0 - 2144.0 / 1904.0).abs() < 1e-9);
    assert_eq!(found.count(CaseChange::OnlyFirst), 2);
    assert_eq!(found.count(CaseChange::OnlySecond), 1);
    assert!(found.text(true, 80).contains(&named), "{found}");
    assert!(
        found.to_string().contains("2 cases only before, 1 case only after (--full"),
        "{found}"
    );
    // Other cases are no worse; GPUs that are gone are.
    assert!(!found.is_worse());
    let mut with_gpu = first.clone();
    with_gpu.topology.gpus.push(pathline_schema::Gpu::default());
    assert!(diff(&with_gpu, &second, 0.02).unwrap().is_worse());
}

/// 5 of 342 cases after: lost if the same command ended, and else not judged, never fine.
#[test]
fn cases_that_vanished_are_lost_or_not_judged() {
    let case = |nth: u32| CASE.replace("64MiB", &format!("{}KiB", 64 + nth));
    let run = |cases: u32| run_of((0..cases).map(|n| at_rate("host", &case(n), 10.0)).collect());
    let (before, mut after) = (run(342), run(5));
    let found = diff(&before, &after, 0.02).unwrap();
    assert_eq!((found.count(CaseChange::Lost), found.is_worse()), (337, true), "{found}");
    // Another selection, or a run that did not end.
    after.begin.command = vec!["pathline".to_owned(), "run".to_owned(), "--quick".to_owned()];
    let found = diff(&before, &after, 0.02).unwrap();
    assert_eq!((found.missing(), found.is_worse()), (337, false), "{found}");
    assert!(found.to_string().contains("not judged: 337 cases"), "{found}");
    after.begin.command.clone_from(&before.begin.command);
    after.end = None;
    assert_eq!(diff(&before, &after, 0.02).unwrap().missing(), 337);
}

/// What was not measured or has no noise is not the same.
#[test]
fn a_run_that_was_cut_and_lone_samples_decide_nothing() {
    let case = |nth: u32| CASE.replace("64MiB", &format!("{}KiB", 64 + nth));
    let run = |cases: u32| run_of((0..cases).map(|n| at_rate("host", &case(n), 10.0)).collect());
    let why = |before: &Journal, after: &Journal| diff(before, after, 0.02).unwrap().undecided();
    let (mut before, after) = (run(10), run(100));
    // Noise of the host hides 2 % in all 10.
    let noisy = "10 of 10 cases are too noisy for 2 %, 0 are within it";
    assert_eq!(why(&before, &before).unwrap(), noisy);
    assert_eq!(why(&before, &after).unwrap(), noisy);
    // A time limit ended it: what both have is compared, and 90 cases are not.
    before.end.as_mut().unwrap().complete = false;
    assert_eq!(why(&before, &before).unwrap(), noisy);
    assert_eq!(why(&before, &after).unwrap(), "a run was cut; 90 cases were not measured before");
    before.end = None;
    assert!(why(&before, &before).is_some());
    assert_eq!(why(&after, &before).unwrap(), "a run was cut; 90 cases were not measured after");
    let mut lone = run(10);
    for outcome in lone.outcomes.iter_mut().skip(4) {
        let CaseOutcome::Measured(measured) = outcome else { panic!() };
        measured.series[0].samples_ns.truncate(1);
        measured.series[0].visits = vec![1];
    }
    assert_eq!(why(&run(10), &lone).unwrap(), "6 cases have one sample on a side");
    assert_eq!(why(&run(14), &lone).unwrap(), "6 cases have one sample on a side");
}

/// Pinned copies that are 5 % slower on a node whose runs differ by 0.1 %: the shipped 1.3 % would hide them.
#[test]
fn a_class_that_stands_still_shows_its_own_noise() {
    let case = |n: u32| format!("numa0.pinned > gpu0.vram by dma@gpu0 x {}MiB", 16 + n);
    let run = |seed: u32, slow: f64| {
        let rate = |n: u32| 55.0 * (1.0 + 1e-4 * f64::from((n * 7 + seed) % 11));
        let outcomes = (0..40).map(|n| {
            let factor = if n % 4 == 0 { slow } else { 1.0 };
            at_rate("host-link", &case(n), rate(n) * factor)
        });
        run_of(outcomes.collect())
    };
    let found = diff(&run(1, 1.0), &run(5, 0.95), 0.02).unwrap();
    assert_eq!(
        (found.count(CaseChange::Slower), found.count(CaseChange::Faster)),
        (10, 0),
        "{found}"
    );
    let same = diff(&run(1, 1.0), &run(5, 1.0), 0.02).unwrap();
    assert!(!same.is_worse() && same.count(CaseChange::Faster) == 0, "{same}");
    assert!(same.text(true, 80).contains("no change is significant"), "{same}");
}

#[test]
fn a_run_of_gpus_is_the_same_as_itself() {
    let case = |gpu: u32| format!("gpu0.vram > gpu{gpu}.vram by dma@gpu0 x 1GiB");
    let run = run_of((1..5).map(|gpu| at_rate("pairs", &case(gpu), 400.0)).collect());
    let found = diff(&run, &run, 0.02).unwrap();
    assert!(found.rows.iter().all(|r| r.change == CaseChange::Same), "{found}");
    assert!(!found.is_worse());
    let text = found.to_string();
    assert!(
        text.starts_with("UNCHANGED: 4 of 4 cases within 2 %\n\nbefore: testhost, 1 run, "),
        "{text}"
    );
    assert!(text.contains("4 cases in both, tolerance 2 %: 4 same"), "{text}");
}

#[test]
fn a_slow_link_is_one_line() {
    // 12 ordered pairs by copy engine and kernel; what goes from gpu2 to gpu3 is half as fast.
    let run = |slow: f64| {
        let pairs = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b)));
        let cases = pairs.flat_map(|(a, b)| {
            let rate = if (a, b) == (2, 3) { 400.0 * slow } else { 400.0 };
            [
                format!("dma@gpu{a}"),
                format!("dma@gpu{b}"),
                format!("kernel@gpu{a}[copy-w16-u4-b256-g2sm]"),
            ]
            .map(|by| at_rate("pairs", &format!("gpu{a}.vram > gpu{b}.vram by {by} x 1GiB"), rate))
        });
        run_of(cases.collect())
    };
    let found = diff(&run(1.0), &run(0.5), 0.02).unwrap();
    assert_eq!(found.count(CaseChange::Slower), 3);
    let groups: Vec<String> = found.groups.iter().map(|g| g.text()).collect();
    assert_eq!(groups, ["all 3 cases gpu2→gpu3: -50.0 % (-50.0 to -50.0)"]);
    // One row stands for the group; --full has them all.
    let rows = |all: bool| found.shown(all).len();
    assert_eq!((rows(false), rows(true)), (1, 3));
    // The place where nothing else is slower, or the part that somebody found, stands in the first line.
    assert_eq!(found.verdict(), "SLOWER: 3 of 36 cases by 50 %, all gpu2→gpu3");
    let of_part = RunDiff { part: Some("NVLink gpu2>gpu3".into()), ..found.clone() };
    assert_eq!(of_part.verdict(), "SLOWER: 3 of 36 cases by 50 %, over NVLink gpu2>gpu3");
    assert!(found.text(true, 80).lines().all(|line| line.chars().count() <= 80), "{found}");
    assert!(found.text(true, 80).contains("noise between runs"), "{found}");
    assert!(!found.text(false, 80).contains("noise between runs"), "{found}");
    // Everything slower is one line, too.
    let all = diff(&run(1.0), &slower(&run(1.0), 1.25), 0.02).unwrap();
    assert_eq!(all.groups[0].text(), "all 36 cases: -20.0 % (-20.0 to -20.0)");
}

/// Three GPUs in a row, of which the link 0-1 is lost to a half: the copies over it, alone and as a part of a route.
#[test]
fn a_link_is_listed_before_routes_over_it_and_cases_count_once() {
    let link = |a: u32, b: u32, width: u32| Link {
        a: LinkEnd::Gpu(a),
        b: LinkEnd::Gpu(b),
        kind: LinkKind::Xgmi,
        width,
        peak: Some(Rate(50.0 * f64::from(width))),
    };
    let gpus = (0..3).map(|index| Gpu { index, ..Gpu::default() }).collect::<Vec<_>>();
    let run = |width: u32, direct: f64, over: f64| {
        let links = vec![link(0, 1, width), link(1, 2, 2)];
        let topology = Topology { gpus: gpus.clone(), links, ..Topology::default() };
        let copy = |a, b, size| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x {size}");
        let mut cases = Vec::new();
        for size in ["256MiB", "1GiB", "2GiB"] {
            cases.push(at_rate("pairs", &copy(0, 2, size), over));
            cases.push(at_rate("pairs", &copy(0, 1, size), direct));
            cases.push(at_rate("pairs", &copy(1, 2, size), 40.0));
            let both = format!("{} & {}", copy(0, 1, size), copy(1, 2, size));
            cases.push(at_rate("pairs", &both, direct));
        }
        journal(WorldKind::Real, topology, cases)
    };
    // The route loses 52 %, the link 50 %.
    let found = diff(&run(2, 40.0, 40.0), &run(1, 20.0, 19.2), 0.02).unwrap();
    let first = found.rows[0].case.to_string();
    assert!(first.starts_with("r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x "), "{first}");
    assert_eq!(found.topology[0].text(), "xGMI gpu0-gpu1: 2 links before, 1 after");
    assert_eq!(found.topology[0].part, ("xGMI gpu0-gpu1".to_owned(), vec![0, 1]));
    assert!(found.topology[0].is_loss);
    let counted: usize = found.groups.iter().map(|group| group.changed).sum();
    assert!(counted <= found.count(CaseChange::Slower), "{counted} {found}");
    let text = found.to_string();
    assert!(text.starts_with("SLOWER: xGMI gpu0-gpu1: 2 links before, 1 after; 9 of 12"), "{text}");
    // A part that is known stands for its paths.
    let of_part = RunDiff { part: Some("xGMI gpu0-gpu1".into()), ..found.clone() };
    assert!(text.contains("  slower: ") && !of_part.to_string().contains("  slower: "), "{text}");
    // What the verdict says of a link stands once, within the columns that a reader has.
    let (narrow, wide) = (of_part.text(false, 60), of_part.text(false, 100));
    assert_eq!(
        narrow.replace("\n    ", " ").matches("2 links before, 1 after").count(),
        1,
        "{narrow}"
    );
    assert!(wide.contains(", over xGMI gpu0-gpu1 (2 links before, 1 after)\n"), "{wide}");
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(longest(&narrow) <= Some(60) && longest(&wide) > Some(60), "{narrow}{wide}");
    // A node that states less is worse, whether or not a case shows it; one that states more is not.
    let silent = diff(&run(2, 40.0, 40.0), &run(1, 40.0, 40.0), 0.02).unwrap();
    let verdict =
        "WORSE: xGMI gpu0-gpu1: 2 links before, 1 after; none of 12 cases is slower for it";
    assert_eq!((silent.is_worse(), silent.verdict().as_str()), (true, verdict));
    assert!(!diff(&run(1, 40.0, 40.0), &run(2, 40.0, 40.0), 0.02).unwrap().is_worse());
}

fn slower(journal: &Journal, factor: f64) -> Journal {
    let mut journal = journal.clone();
    for outcome in &mut journal.outcomes {
        if let CaseOutcome::Measured(m) = outcome {
            m.series[0].samples_ns.iter_mut().for_each(|ns| *ns *= factor);
        }
    }
    journal
}

#[test]
fn a_case_that_fails_now_and_then_is_lost() {
    let good = || {
        run_of(vec![at_rate("host", CASE, 10.0), at_rate("host", &CASE.replace("64", "32"), 9.0)])
    };
    let bad = run_of(vec![
        faulted("host", CASE, "wrong byte"),
        at_rate("host", &CASE.replace("64", "32"), 9.0),
    ]);
    let options = DiffOptions { tolerance: 0.02, noise: Vec::new() };
    let found = diff_runs(&[&good(), &good()], &[&good(), &bad], &options).unwrap();
    assert_eq!(found.rows[0].change, CaseChange::Lost);
    assert_eq!(found.rows[0].why, "it failed in 1 of 2 later runs: wrong byte");
    assert!(found.is_worse());
    // A case that failed now and then before has lost nothing.
    let found = diff_runs(&[&good(), &bad], &[&good(), &bad], &options).unwrap();
    assert!(found.count(CaseChange::Lost) == 0 && !found.is_worse(), "{found}");
}

/// Bytes that nothing compares any more are the finding, whether the times stand still or noise hides what they do. A
/// slower case is slower all the same.
#[test]
fn a_case_that_is_no_longer_verified_is_named() {
    let verified = run_of(vec![at_rate("host", CASE, 10.0)]);
    let mut unverified = verified.clone();
    if let CaseOutcome::Measured(m) = &mut unverified.outcomes[0] {
        m.verdict = VerifyResult::Unverified("nothing reads it".to_owned());
    }
    let noisy = |after: &Journal| diff(&verified, after, 0.02).unwrap().rows[0].change;
    let quiet = |after: &Journal| learnt(&verified, after).rows[0].change;
    assert_eq!([noisy(&verified), quiet(&verified)], [CaseChange::Unclear, CaseChange::Same]);
    assert_eq!([noisy(&unverified), quiet(&unverified)], [CaseChange::Unverified; 2]);
    assert_eq!(quiet(&slower(&unverified, 2.0)), CaseChange::Slower);
    assert_eq!(learnt(&unverified, &verified).rows[0].change, CaseChange::Verified);
}

#[test]
fn runs_without_a_common_case_are_not_compared() {
    let (a, b) = (at_rate("host", CASE, 10.0), at_rate("host", &CASE.replace("64", "32"), 9.0));
    let (a, mut b) = (run_of(vec![a]), run_of(vec![b]));
    let error = diff(&a, &b, 0.02).unwrap_err();
    assert_eq!(error, DiffError::NoCommonCase { before: 1, after: 1, unlike: Vec::new() });
    // Another host and another version may be the reason, so they are named.
    b.begin.host = "n2".to_owned();
    b.begin.version = "9.0.0".to_owned();
    let error = diff(&a, &b, 0.02).unwrap_err().to_string();
    let host = format!("(1 before, 1 after); host differs: '{}' and 'n2'", a.begin.host);
    let version = format!("; version differs: '{}' and '9.0.0': give runs", a.begin.version);
    assert!(error.contains(&host) && error.contains(&version), "{error}");
}

/// Sets the CPUs that other processes used while a case was measured.
fn with_foreign(mut journal: Journal, foreign: f64) -> Journal {
    journal.topology.host.allowed_cpus = "0-1".parse().unwrap();
    for outcome in &mut journal.outcomes {
        if let CaseOutcome::Measured(m) = outcome {
            let readings = [("own_cpus", 1.0), ("foreign_cpus", foreign), ("stolen_cpus", 0.0)];
            m.after.0 = readings.map(|(name, value)| (name.to_owned(), value)).into();
        }
    }
    journal
}

/// A loop at half its rate next to a build is no slower loop; a quiet run on the same side decides.
#[test]
fn results_of_a_busy_machine_show_no_change() {
    let at = |rate: f64| run_of(vec![at_rate("host", CASE, rate)]);
    let (quiet, slow) = (with_foreign(at(10.0), 0.02), with_foreign(at(5.0), 0.02));
    let busy = with_foreign(at(5.0), 1.3);
    let first = |found: &RunDiff| (found.rows[0].change, found.rows[0].disturbed);
    assert_eq!(first(&learnt(&quiet, &slow)), (CaseChange::Slower, false));
    let found = learnt(&quiet, &busy);
    assert_eq!(first(&found), (CaseChange::Unclear, true));
    assert!(!found.is_worse() && found.judged.found == 0);
    let why = "busy after: other processes used 1.30 of 2 CPUs";
    assert_eq!(found.rows[0].why, why);
    assert!(found.to_string().contains("1 of the undecided cases: other programs used"), "{found}");
    // What a busy machine added is not learnt as noise between runs.
    let sizes = (16..28).map(|mib| at_rate("host", &CASE.replace("64", &mib.to_string()), 10.0));
    let sizes = run_of(sizes.collect());
    let origin = |after: &Journal| diff(&sizes, after, 0.02).unwrap().noise[0].origin.clone();
    assert!(origin(&sizes).ends_with("these runs' 12 cases"), "{}", origin(&sizes));
    let of_busy = origin(&with_foreign(sizes.clone(), 1.3));
    assert!(of_busy.starts_with("shipped") && !of_busy.contains("these runs"), "{of_busy}");
    // In any order, only the runs that were not disturbed count, with their verification.
    let options = DiffOptions { tolerance: 0.02, noise: Vec::new() };
    let alone = diff(&quiet, &quiet, 0.02).unwrap();
    for after in [[&busy, &quiet], [&quiet, &busy]] {
        let found = diff_runs(&[&quiet], &after, &options).unwrap();
        assert_eq!((found.rows[0].runs, found.rows[0].disturbed), ((1, 1), false));
        assert_eq!(found.rows[0].change, alone.rows[0].change);
        assert_ne!(found.rows[0].change, CaseChange::Unverified);
        assert!((found.rows[0].effect.unwrap().0 - 1.0).abs() < 0.01);
    }
}

#[test]
fn worlds_are_not_mixed() {
    let real = run_of(vec![at_rate("host", CASE, 10.0)]);
    let model = |name: &str| {
        let world = WorldKind::Simulated(name.into());
        journal(world, Topology::default(), vec![at_rate("host", CASE, 10.0)])
    };
    assert!(matches!(diff(&real, &model("mi250x"), 0.02), Err(DiffError::Worlds { .. })));
    assert!(diff(&model("hgx-h200"), &model("mi250x"), 0.02).is_err());
    assert!(diff(&model("mi250x"), &model("mi250x"), 0.02).is_ok());
}
