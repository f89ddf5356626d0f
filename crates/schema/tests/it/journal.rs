//! Journals whole, torn, resumed, foreign and hostile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use crate::common::*;
use pathline_schema::*;
use proptest::prelude::*;

fn line(message: &Message) -> String {
    serde_json::to_string(message).unwrap() + "\n"
}

fn real_begin() -> String {
    line(&plain_begin(World::Real))
}

fn skip(n: u32) -> Message {
    let text = format!("gpu{n}.vram > gpu1.vram by dma@gpu0 x 1MiB");
    Message::Skipped(Skip {
        case: text.parse().unwrap(),
        suites: vec!["pairs".to_owned()],
        why: "no such GPU here".to_owned(),
    })
}

fn sampled(reps: u64, samples_ns: &[f64]) -> Message {
    let case: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
    let series = Series {
        flow: case.timed[0],
        rank: Rank(0),
        timer: Timer::DeviceEvents,
        engine: "copy engine".to_owned(),
        reps,
        steps: reps,
        moved_bytes: Bytes::mib(reps),
        samples_ns: samples_ns.to_vec(),
        by_rank: BTreeMap::new(),
        io: Vec::new(),
        setup: BTreeMap::new(),
    };
    Message::Sampled(Sampled { case, suites: Vec::new(), series: vec![series] })
}

fn end() -> Message {
    Message::End(End {
        ended: "2026-11-21T00:01:00Z".to_owned(),
        elapsed: Ns::secs(60.0),
        complete: true,
        why: None,
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
        prop_assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
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
            real_begin(), line(&skip(0)), line(&sampled(2, &[1.5, 2.5])), line(&end()),
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
        .prop_filter("worlds agree", |m| !matches!(m, Message::Begin(_))), 0..6), cut in 0.0..1.0)
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
            None => prop_assert!(matches!(read, Err(JournalError::NoBegin))),
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
fn a_torn_last_line_is_dropped_and_said() {
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
    // What goes on with it appends after the last whole line, which is not their sum.
    assert_eq!(journal.whole_bytes, text.len() as u64);
    let [broken] = journal.broken.as_slice() else { panic!("{:?}", journal.broken) };
    assert_eq!(broken.line, 3);
    let said = broken.to_string();
    assert_eq!(said, "line 3 is broken and left out: expected value at column 1");
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
    let simulated = || World::Simulated("mi250x".to_owned());
    let text = real_begin() + &line(&skip(0)) + &line(&plain_begin(simulated()));
    let error = read(&text).unwrap_err();
    assert!(matches!(error, JournalError::Mixed { line: 3, .. }), "{error}");
    let other = line(&plain_begin(simulated()))
        + &line(&plain_begin(World::Simulated("hgx-h200".to_owned())));
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
fn what_is_no_journal_says_so() {
    assert!(matches!(read(""), Err(JournalError::NoBegin)));
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
    // Two visits of one case, a cut, a begin, the case measured anew to its outcome.
    let visits = real_begin() + &line(&sampled(4, &[1.0, 2.0])) + &line(&sampled(4, &[3.0]));
    let cut = read(&visits).unwrap();
    assert_eq!(cut.partial[0].series[0].samples_ns, [1.0, 2.0, 3.0]);
    // Other repetitions cannot be pooled: the later visit counts alone.
    let anew = read(&(visits.clone() + &line(&sampled(8, &[9.0])))).unwrap();
    assert_eq!(anew.partial[0].series[0].samples_ns, [9.0]);
    let resumed = visits + &real_begin() + &line(&skip(0)) + &line(&skip(0)) + &line(&end());
    let journal = read(&resumed).unwrap();
    assert_eq!((journal.resumed.len(), journal.outcomes.len()), (1, 1));
    assert!(journal.partial.is_empty() && journal.end.is_some() && !journal.torn);
}
