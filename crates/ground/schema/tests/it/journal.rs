//! Journals whole, torn, resumed, foreign and hostile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use crate::common::*;
use pathline_schema::*;
use proptest::prelude::*;

fn line(message: &JournalRecord) -> String {
    serde_json::to_string(message).unwrap() + "\n"
}

fn real_begin() -> String {
    line(&plain_begin(WorldKind::Real))
}

fn skip(n: u32) -> JournalRecord {
    let text = format!("gpu{n}.vram > gpu1.vram by dma@gpu0 x 1MiB");
    JournalRecord::Skipped(SkippedCase {
        case: text.parse().unwrap(),
        suites: vec!["pairs".to_owned()],
        why: "no such GPU here".to_owned(),
    })
}

fn sampled(reps: u64, samples_ns: &[f64]) -> JournalRecord {
    let case: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
    let series = FlowSeries {
        engine: "copy engine".to_owned(),
        reps,
        steps: reps,
        moved_bytes: Bytes::mib(reps),
        samples_ns: samples_ns.to_vec(),
        ..FlowSeries::new(case.timed[0], TimerKind::DeviceEvents)
    };
    JournalRecord::Sampled(SampledCase { case, suites: Vec::new(), series: vec![series] })
}

fn end() -> JournalRecord {
    JournalRecord::End(RunEnd {
        ended: "2026-11-21T00:01:00Z".to_owned(),
        elapsed: Ns::secs(60.0),
        complete: true,
        why: None,
        missing: std::collections::BTreeMap::new(),
    })
}

fn read(text: &str) -> Result<Journal, JournalError> {
    Journal::read(text.as_bytes())
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn every_message_is_read_back_to_the_last_bit(message in message()) {
        let text = serde_json::to_string(&message).unwrap();
        prop_assert!(!text.contains('\n'), "one line each");
        prop_assert_eq!(serde_json::from_str::<JournalRecord>(&text).unwrap(), message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        prop_assert!(Journal::read(bytes.as_slice()).is_err());
    }

    #[test]
    fn a_changed_byte_is_an_error_or_a_journal(at in 0..2000_usize, to in any::<u8>()) {
        let whole = [
            real_begin(), line(&skip(0)), line(&sampled(2, &[1.5e6, 2.5e6])), line(&end()),
        ].concat();
        let mut bytes = whole.into_bytes();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(journal) = Journal::read(bytes.as_slice()) {
            prop_assert!(journal.whole_bytes <= bytes.len() as u64);
        }
    }

    #[test]
    fn a_journal_cut_anywhere_keeps_every_whole_line(messages in prop::collection::vec(message()
        .prop_filter("worlds agree", |m| !matches!(m, JournalRecord::Begin(_))), 0..6), cut in 0.0..1.0)
    {
        let lines: Vec<String> =
            std::iter::once(real_begin()).chain(messages.iter().map(line)).collect();
        let whole = lines.concat();
        let cut = (cut * whole.len() as f64) as usize;
        // The lines that end at or before the cut, and how long they are together.
        let ends: Vec<usize> = lines
            .iter()
            .scan(0, |sum, line| { *sum += line.len(); Some(*sum) })
            .take_while(|&end| end <= cut)
            .collect();
        let read = Journal::read(&whole.as_bytes()[..cut]);
        match ends.last() {
            None => prop_assert!(matches!(read, Err(JournalError::NoBegin | JournalError::Empty | JournalError::CutHead))),
            Some(&end) => {
                let journal = read.unwrap();
                prop_assert_eq!(journal.whole_bytes, end as u64);
                prop_assert_eq!(journal.torn, end < cut);
                // Reading the whole lines alone gives the same journal, and it is not torn.
                let again = Journal::read(&whole.as_bytes()[..end]).unwrap();
                prop_assert_eq!(&again.outcomes, &journal.outcomes);
                prop_assert!(!again.torn);
            }
        }
    }
}

#[test]
fn a_torn_last_line_is_dropped_and_reported() {
    let whole = real_begin() + &line(&skip(0));
    let torn = whole.clone() + &line(&skip(2))[..40];
    let journal = read(&torn).unwrap();
    assert!(journal.torn && journal.end.is_none());
    assert_eq!((journal.outcomes.len(), journal.whole_bytes), (1, whole.len() as u64));
    // Cut inside a character of more than one byte, and with a line end after the damage.
    let mut inside = whole.clone().into_bytes();
    inside.extend_from_slice(b"{\"type\":\"note\",\"data\":{\"code\":\"\xe2\x82\n");
    assert!(Journal::read(inside.as_slice()).unwrap().torn);
}

#[test]
fn a_broken_line_costs_itself_and_is_named() {
    let text = real_begin() + &line(&skip(0)) + "?? not json\n" + &line(&skip(2)) + &line(&end());
    let journal = read(&text).unwrap();
    assert_eq!(journal.outcomes.len(), 2, "before it and after it");
    assert!(journal.end.is_some() && !journal.torn);
    // A resumed run appends after the last whole line, which is not their sum.
    assert_eq!(journal.whole_bytes, text.len() as u64);
    let [broken] = journal.broken.as_slice() else { panic!("{:?}", journal.broken) };
    assert_eq!(broken.line, 3);
    let text = broken.to_string();
    assert_eq!(text, "line 3 is broken and left out: expected value at column 1");
    // Two writers leave halves of lines behind each other, and what one was about to write is torn.
    let half = line(&skip(4));
    let text = real_begin()
        + &half[..half.len() / 2]
        + &line(&skip(6))
        + "{\"type\":\"note\"}\n"
        + &line(&skip(0))
        + &half[..30];
    let journal = read(&text).unwrap();
    assert_eq!((journal.outcomes.len(), journal.torn), (1, true));
    assert_eq!(journal.broken.iter().map(|b| b.line).collect::<Vec<_>>(), [2, 3]);
    // A message of a kind that does not exist is broken too.
    let text = real_begin() + "{\"type\":\"guess\",\"data\":{}}\n" + &line(&skip(0));
    assert_eq!(read(&text).unwrap().broken[0].line, 2);
}

#[test]
fn a_file_of_broken_lines_is_no_journal() {
    let with = |n: usize| real_begin() + &"?\n".repeat(n) + &line(&skip(0));
    assert_eq!(read(&with(100)).unwrap().broken.len(), 100);
    let error = read(&with(101)).unwrap_err();
    assert!(matches!(error, JournalError::Line { line: 2, .. }), "{error}");
    assert!(error.to_string().starts_with("line 2: "), "{error}");
}

#[test]
fn worlds_do_not_mix() {
    let simulated = || WorldKind::Simulated("mi250x".to_owned());
    let text = real_begin() + &line(&skip(0)) + &line(&plain_begin(simulated()));
    let error = read(&text).unwrap_err();
    assert!(matches!(error, JournalError::Mixed { line: 3, .. }), "{error}");
    let other = line(&plain_begin(simulated()))
        + &line(&plain_begin(WorldKind::Simulated("hgx-h200".to_owned())));
    assert!(matches!(read(&other), Err(JournalError::Mixed { line: 2, .. })));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let newer = real_begin()
        .replace(&format!("\"schema\":{SCHEMA_VERSION}"), "\"schema\":99")
        .replace("\"version\":\"0.1.0\"", "\"version\":\"7.3.0\"");
    let error = read(&newer).unwrap_err();
    assert!(matches!(error, JournalError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("7.3.0"), "{error}");
    // A newer format need not have the fields of this one: the version is looked at first.
    let stranger = "{\"type\":\"begin\",\"data\":{\"schema\":99,\"version\":\"7.3.0\",\"site\":3}}\n\
                    {\"type\":\"unheard-of\"}\n";
    let error = read(stranger).unwrap_err();
    assert!(matches!(error, JournalError::Newer { found: 99, .. }), "{error}");
    let resumed = real_begin() + stranger;
    assert!(matches!(read(&resumed), Err(JournalError::Newer { found: 99, .. })));
}

#[test]
fn other_files_are_no_journal() {
    assert!(matches!(read(""), Err(JournalError::Empty)));
    assert!(matches!(read(&line(&skip(0))), Err(JournalError::NoBegin)));
    assert!(matches!(read("hello\n"), Err(JournalError::Line { line: 1, .. })));
    assert!(matches!(read("hello\nworld\n"), Err(JournalError::Line { line: 1, .. })));
    assert!(matches!(read("hello"), Err(JournalError::NoBegin)));
}

#[test]
fn a_runaway_line_is_refused_within_bounds() {
    // 65 MiB without a line end, of a source that would go on for 1 TiB.
    let endless = BufReader::new(std::io::repeat(b'[').take(1 << 40));
    assert!(matches!(Journal::read(endless), Err(JournalError::TooLong { line: 1 })));
    // Deep nesting inside a short line must not exhaust the stack.
    let deep = format!("{}{}\n", real_begin(), "[".repeat(1 << 20));
    assert!(read(&deep).unwrap().torn);
    let deep =
        format!("{}{{\"type\":\"note\",\"data\":{}\n", real_begin(), "{\"a\":".repeat(1 << 18));
    assert!(read(&deep).unwrap().torn);
}

#[test]
fn a_resumed_run_counts_each_case_once() {
    // Two visits of one case, a cut, a begin, the case measured again to its outcome.
    let visits = real_begin() + &line(&sampled(4, &[1e6, 2e6])) + &line(&sampled(4, &[3e6]));
    let cut = read(&visits).unwrap();
    assert_eq!(cut.partial[0].series[0].samples_ns, [1e6, 2e6, 3e6]);
    // Other repetitions cannot be pooled: the later visit counts alone.
    let again = read(&(visits.clone() + &line(&sampled(8, &[9e6])))).unwrap();
    assert_eq!(again.partial[0].series[0].samples_ns, [9e6]);
    let resumed = visits + &real_begin() + &line(&skip(0)) + &line(&skip(0)) + &line(&end());
    let journal = read(&resumed).unwrap();
    assert_eq!((journal.resumed.len(), journal.outcomes.len()), (1, 1));
    assert!(journal.partial.is_empty() && journal.end.is_some() && !journal.torn);
}

/// A measured case with these samples.
fn measured(samples_ns: &[f64]) -> MeasuredCase {
    let JournalRecord::Sampled(SampledCase { case, suites, series }) = sampled(4, samples_ns)
    else {
        unreachable!("it was made as one")
    };
    let stop = StopInfo {
        reason: StopReason::Precise,
        warmup: 0,
        half_width: 0.01,
        elapsed: Ns::secs(1.0),
        load: Ns::ZERO,
    };
    MeasuredCase { suites, stop, ..MeasuredCase::of_series(case, series) }
}

/// Each kind of impossible sample makes the case a fault that names the line and is counted.
#[test]
fn records_that_cannot_be_are_no_figures() {
    let case = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB";
    let with = |change: fn(&mut MeasuredCase)| {
        let mut measured = measured(&[1e6, 2e6, 3e6]);
        change(&mut measured);
        let whole =
            real_begin() + &line(&skip(0)) + &line(&JournalRecord::Measured(measured.into()));
        read(&whole).unwrap()
    };
    let fine = with(|_| {});
    assert!(fine.rejected.is_empty());
    assert!(matches!(fine.outcomes.last(), Some(CaseOutcome::Measured(_))));
    type Change = (fn(&mut MeasuredCase), &'static str);
    let changes: [Change; 12] = [
        (|m| m.series.clear(), "it has no series of samples"),
        (|m| m.series[0].samples_ns.clear(), "has no sample"),
        (|m| m.series[0].reps = 0, "repeats its operation 0 times in a sample"),
        (|m| m.series[0].moved_bytes = Bytes(0), "moves 0 bytes in a sample"),
        (|m| m.series[0].steps = 0, "has 0 steps in a sample"),
        // 4 repetitions of 1 MiB.
        (|m| m.series[0].moved_bytes = Bytes(4000), "moves 4000 bytes in a sample, not 4194304"),
        (|m| m.series[0].samples_ns[0] = 1e300, "of 1e300 ns: no run takes so long"),
        (|m| m.series[0].samples_ns[1] = 0.0, "has a sample, number 2, of 0 ns"),
        (|m| m.series[0].samples_ns[2] = -5.0, "has a sample, number 3, of -5 ns"),
        // 4 MiB in 1e-300 ns are more GB/s than a float holds; in 1 ns, 4.2 million.
        (|m| m.series[0].samples_ns[0] = 1e-300, "no processor is so fast"),
        (|m| m.series[0].samples_ns[0] = 1.0, "which is 4e6 GB/s: no memory is so fast"),
        // 0.001 ns a step.
        (|m| m.series[0].steps = 1_000_000_000, "1e-3 ns a step: no processor is so fast"),
    ];
    for (change, why) in changes {
        let journal = with(change);
        let [rejected] = journal.rejected.as_slice() else { panic!("{why}: {journal:?}") };
        assert_eq!((rejected.line, rejected.case.as_str()), (3, case));
        assert!(rejected.why.ends_with(why), "{} and {why}", rejected.why);
        let Some(CaseOutcome::Faulted(fault)) = journal.outcomes.last() else { panic!("{why}") };
        assert_eq!(fault.error, format!("line 3 of the journal cannot be: {}", rejected.why));
        assert_eq!(fault.severity, Severity::Corrupt);
    }
    // Of a case that was cut off, too: there is no outcome, and nothing to go on from.
    let cut = read(&(real_begin() + &line(&sampled(4, &[1e6, 0.0])))).unwrap();
    assert_eq!((cut.rejected.len(), cut.partial.len(), cut.outcomes.len()), (1, 0, 0));
}

/// The bytes of a call are its argument: a GiB is allocated in a microsecond.
#[test]
fn a_call_may_be_about_more_than_it_could_move() {
    let case: Case = "gpu0.reg > gpu0.vram by call@gpu0[alloc] x 4GiB".parse().unwrap();
    let mut call = measured(&[1000.0]);
    call.series[0].flow = case.timed[0];
    (call.series[0].moved_bytes, call.series[0].reps, call.series[0].steps) = (Bytes::gib(4), 1, 1);
    call.case = case;
    let journal = read(&(real_begin() + &line(&JournalRecord::Measured(call.into())))).unwrap();
    // 4 GiB in 1 us would be 4.3 million GB/s.
    assert!(journal.rejected.is_empty(), "{:?}", journal.rejected);
}

#[test]
fn memory_of_a_journal_is_bounded() {
    let note = |text: &str| {
        let (code, subject, text) = ("x".to_owned(), "run".to_owned(), text.to_owned());
        line(&JournalRecord::Note(RunNote { code, subject, text }))
    };
    let error = |one: &str, times: usize| {
        read(&(real_begin() + &one.repeat(times))).unwrap_err().to_string()
    };
    // Line 1 is the begin.
    let all = "line 100002: too many notes, more than 100000: no run of pathline writes that many";
    assert_eq!(error(&note(""), 100_001), all);
    assert!(error(&real_begin(), 10_001).starts_with("line 10001: too many begins"));
    // 17 notes of 1 MiB.
    let long = note(&"n".repeat(1 << 20));
    assert!(error(&long, 17).starts_with("line 17: too many bytes of notes"));
    // As many as there may be are read: 99,999 notes and the begin.
    assert_eq!(read(&(real_begin() + &note("").repeat(100_000))).unwrap().notes.len(), 100_000);
    // 17 million samples in one line, and in several: 16 x 1,048,576 are read.
    let samples = |n: usize, each: &str| {
        line(&sampled(4, &[1e6])).replace("1000000.0", &vec![each; n].join(","))
    };
    assert!(error(&samples(17 << 20, "9"), 1).starts_with("line 2: too many samples"));
    assert!(error(&samples(1 << 20, "1e6"), 17).starts_with("line 17: too many samples"));
    // Data before its type must be held until it is known what it is.
    let turned = format!("{{\"data\":[{}],\"type\":\"end\"}}\n", vec!["1"; 3 << 20].join(","));
    assert!(error(&turned, 1).contains("does not begin with its type"));
}

/// Half a million samples, as a long run has them.
#[test]
fn a_large_journal_is_read() {
    let visit: Vec<f64> = (0..100).map(|n| 1e6 + f64::from(n)).collect();
    let mut text = real_begin();
    for n in 0..5000 {
        let mut measured = measured(&visit);
        measured.case =
            format!("gpu0.vram > gpu1.vram by dma@gpu0 x {}KiB", n + 1).parse().unwrap();
        text += &line(&JournalRecord::Sampled(SampledCase {
            case: measured.case.clone(),
            suites: Vec::new(),
            series: measured.series.clone(),
        }));
        text += &line(&JournalRecord::Measured(measured.into()));
    }
    let journal = read(&text).unwrap();
    assert_eq!(journal.outcomes.len(), 5000);
    assert!(journal.rejected.is_empty() && journal.partial.is_empty());
}

/// A run of three repeats: 10, 30 and 20 ms of one case; another fails in the second.
#[test]
fn repeats_are_kept_apart_and_give_one_outcome_a_case() {
    let begin = |repeat: u32| {
        let JournalRecord::Begin(mut begin) = plain_begin(WorldKind::Real) else { unreachable!() };
        begin.repeat = repeat;
        begin.settings.repeats = 3;
        line(&JournalRecord::Begin(begin))
    };
    let measured = |ms: f64| {
        let JournalRecord::Sampled(SampledCase { case, suites, series }) =
            sampled(1, &[ms * 1e6, ms * 1e6])
        else {
            unreachable!()
        };
        let stop = StopInfo {
            reason: StopReason::Precise,
            warmup: 0,
            half_width: 0.0,
            elapsed: Ns::ms(1.0),
            load: Ns::ZERO,
        };
        let (verdict, before, after) =
            (VerifyResult::Verified, Conditions::default(), Conditions::default());
        line(&JournalRecord::Measured(Box::new(MeasuredCase {
            case,
            suites,
            series,
            stop,
            verdict,
            compared: None,
            before,
            after,
            env: BTreeMap::new(),
            gpus: BTreeMap::new(),
            origin: None,
        })))
    };
    let failed = line(&JournalRecord::Faulted(FaultedCase {
        case: "gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB".parse().unwrap(),
        suites: Vec::new(),
        error: "wrong byte".to_owned(),
        severity: Severity::Corrupt,
        ranks: Vec::new(),
    }));
    let parts = [
        begin(0) + &measured(10.0) + &line(&end()),
        begin(1) + &measured(30.0) + &failed + &line(&end()),
        begin(2) + &measured(20.0) + &line(&end()),
    ];
    let journal = read(&parts.concat()).unwrap();
    let first_sample = |outcome: &CaseOutcome| match outcome {
        CaseOutcome::Measured(m) => m.series[0].samples_ns[0] / 1e6,
        _ => 0.0,
    };
    let each: Vec<f64> = journal.repeats.iter().map(|r| first_sample(&r.outcomes[0])).collect();
    assert_eq!(each, [10.0, 30.0, 20.0]);
    // The median of 10, 20, 30.
    assert_eq!(first_sample(&journal.outcomes[0]), 20.0);
    let CaseOutcome::Faulted(fault) = &journal.outcomes[1] else { panic!("one fault is a fault") };
    assert_eq!(fault.error, "repeat 2 of the run: wrong byte");
    assert!(journal.resumed.is_empty() && journal.end.as_ref().unwrap().complete);
    assert_eq!(journal.repeat(1).0.len(), 2);
    // Without the last repeat the run is not complete, though its last line says so.
    let cut = read(&parts[..2].concat()).unwrap();
    assert!(!cut.end.as_ref().unwrap().complete && cut.repeats.len() == 2);
    // A begin of a known repeat resumes it.
    let resumed = read(&[parts.concat(), begin(1)].concat()).unwrap();
    assert_eq!((resumed.resumed.len(), resumed.repeats.len(), resumed.end), (1, 3, None));
}
