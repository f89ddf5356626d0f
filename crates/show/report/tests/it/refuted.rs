//! Impossible values and unverified bytes: they are marked and counted, and no sentence rests on
//! them.

use crate::common::*;
use pathline_explain::diff::{CaseChange, diff};
use pathline_explain::figure::{HeadlineTone, Suspicion};
use pathline_explain::judge::{RunVerdict, judge};
use pathline_explain::run_report;
use pathline_findings::RunConclusions;
use pathline_flow::Network;
use pathline_report::{csv, html, terminal};
use pathline_schema::{CaseOutcome, Journal, RejectedRecord, VerifyResult, WorldKind};

/// Four links of 50 GB/s join gpu0 and gpu1.
const WIDE: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
const NARROW: &str = "gpu0.vram > gpu2.vram by dma@gpu0 x 256MiB";

fn run(outcomes: Vec<CaseOutcome>) -> Journal {
    journal(WorldKind::Real, mi250x(), outcomes)
}

/// Pairs of the node with the rates of `mi250x_run`, except for the first.
fn pairs(first: f64) -> Journal {
    let is_pair = |o: &CaseOutcome| matches!(o, CaseOutcome::Measured(m) if m.suites == ["pairs"]);
    let mut outcomes: Vec<CaseOutcome> =
        mi250x_run().outcomes.into_iter().filter(is_pair).collect();
    outcomes.retain(|o| o.case() != at_rate("pairs", WIDE, 1.0).case());
    outcomes.insert(0, at_rate("pairs", WIDE, first));
    run(outcomes)
}

fn unverified(outcome: CaseOutcome) -> CaseOutcome {
    let CaseOutcome::Measured(mut m) = outcome else { unreachable!("it was measured") };
    m.verdict = VerifyResult::Unverified("it could not be read back".into());
    CaseOutcome::Measured(m)
}

fn summary(journal: &Journal) -> String {
    let network = Network::from_topology(&journal.topology);
    let text = terminal::summary(
        &run_report::build(journal, Some(&network)),
        &RunConclusions::default(),
        120,
        false,
    );
    // Sentences wrap at the end of a line.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// 5030 of 200 GB/s is 2515 %. Values up to 5 % above the peak may result from the clock.
#[test]
fn more_than_links_carry_is_marked_and_counts_as_wrong() {
    let (fine, refuted) = (pairs(209.0), pairs(5030.0));
    assert_eq!(judge(&fine), RunVerdict::Fine);
    assert!(!summary(&fine).contains("cannot be right"), "209 is 104.5 %");
    assert_eq!(judge(&refuted), RunVerdict::Wrong);
    let network = Network::from_topology(&refuted.topology);
    let report = run_report::build(&refuted, Some(&network));
    let first = &report.headlines[0];
    let claim = "5030 GB/s is 2515 % of the 200 GB/s that xGMI gpu0-gpu1, 4 links can carry";
    assert_eq!(first.tone, HeadlineTone::Warn);
    assert!(
        first.text.starts_with(&format!("1 result cannot be right: {claim} (r0.")),
        "{first:?}"
    );
    // No other sentence rests on it.
    let others = report.headlines.iter().skip(1).filter(|h| h.text.contains("5030"));
    assert_eq!(others.count(), 0, "{:?}", report.headlines);
    let warning = report.warnings.iter().find(|n| n.code == "beyond-ceiling").expect("a warning");
    assert!(warning.subject.ends_with(WIDE.split_once("> ").unwrap().1), "{warning:?}");
    let text = terminal::summary(&report, &RunConclusions::default(), 120, false);
    assert!(text.contains(" 5030!") && text.contains("!: more than hardware can carry"), "{text}");
    let page = html::render(&report, &RunConclusions::default(), "");
    assert!(page.contains("\"suspect\":\"beyond-ceiling: 5030 GB/s is 2515 %"));
    assert!(page.contains("\"mark\":\"!\""), "its cell is marked");
    let table = csv::export(&refuted, Some(&network));
    let marked: Vec<&str> = table.lines().filter(|l| l.contains("beyond-ceiling")).collect();
    assert_eq!(marked.len(), 1);
    assert!(marked[0].starts_with("r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB,"));
}

/// Each flow of a case is compared with its own links: 26 of 50, and 120 of 50.
#[test]
fn each_flow_is_compared_with_its_own_links() {
    let both = format!("{NARROW} & gpu2.vram > gpu0.vram by dma@gpu2 x 256MiB");
    let outcome = |back: f64| {
        let CaseOutcome::Measured(mut m) = at_rate("pairs", &both, 26.0) else { unreachable!() };
        for ns in &mut m.series[1].samples_ns {
            *ns *= 26.0 / back;
        }
        run(vec![CaseOutcome::Measured(m)])
    };
    assert_eq!(judge(&outcome(50.0)), RunVerdict::Fine);
    let refuted = outcome(120.0);
    assert_eq!(judge(&refuted), RunVerdict::Wrong);
    assert!(
        summary(&refuted)
            .contains("120 GB/s is 240 % of the 50.0 GB/s that xGMI gpu2-gpu0, 1 link")
    );
}

/// A loop over host memory may hit caches, whose peak is unknown: it is not refuted.
#[test]
fn what_caches_may_hold_is_not_refuted() {
    let read = "gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 64MiB";
    // 1600 GB/s is the memory's peak; 64 MiB fit in a cache.
    assert_eq!(judge(&run(vec![at_rate("local", read, 4000.0)])), RunVerdict::Fine);
    let large = read.replace("64MiB", "4GiB");
    // Of 4 GiB a cache keeps a sixteenth: 1600 x 16 / 15 = 1707.
    assert_eq!(judge(&run(vec![at_rate("local", &large, 1700.0)])), RunVerdict::Fine);
    assert_eq!(judge(&run(vec![at_rate("local", &large, 4000.0)])), RunVerdict::Wrong);
    let host = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1GiB";
    assert_eq!(judge(&run(vec![at_rate("host", host, 4000.0)])), RunVerdict::Fine);
}

#[test]
fn bytes_that_nobody_compared_are_marked() {
    let chase = "gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1GiB";
    let mut journal = pairs(50.0);
    journal.outcomes[0] = unverified(journal.outcomes[0].clone());
    // A loop that only reads leaves no bytes to compare.
    journal.outcomes.push(unverified(at_rate("local", chase, 1300.0)));
    let report = run_report::build(&journal, None);
    let cells: Vec<_> = report
        .figures
        .iter()
        .filter_map(|f| match &f.body {
            pathline_explain::figure::FigureBody::Matrix(m) => Some(m.cells.iter().flatten()),
            _ => None,
        })
        .flatten()
        .filter(|c| c.suspect.is_some())
        .collect();
    assert!(!cells.is_empty());
    for cell in cells {
        assert_eq!(cell.suspect, Some(Suspicion::Unverified("it could not be read back".into())));
        assert!(cell.case.as_ref().unwrap().to_string().contains("gpu0.vram > r0.gpu1.vram"));
    }
    let text = terminal::summary(&report, &RunConclusions::default(), 120, false);
    assert!(text.contains("50.0?") && text.contains("?: its bytes were not verified"), "{text}");
    assert!(text.contains("1 case moved bytes that were not verified"), "{text}");
    // It is not a failure: the bytes are unknown.
    assert_eq!(judge(&journal), RunVerdict::Fine);
}

#[test]
fn a_comparison_looks_at_verification_too() {
    let cases = [WIDE, NARROW];
    let all = |rate: f64| cases.map(|case| at_rate("pairs", case, rate)).to_vec();
    let before = run(all(40.0));
    let without = |rate: f64| run(all(rate).into_iter().map(unverified).collect());
    let changes = |a: &Journal, b: &Journal| {
        let found = diff(a, b, 0.02).unwrap();
        (found.rows.iter().map(|r| r.change).collect::<Vec<_>>(), found.is_worse())
    };
    assert_eq!(changes(&before, &before), (vec![CaseChange::Same; 2], false));
    // As fast or faster, but the received bytes are unknown.
    assert_eq!(changes(&before, &without(40.0)), (vec![CaseChange::Unverified; 2], true));
    assert_eq!(changes(&before, &without(45.0)), (vec![CaseChange::Unverified; 2], true));
    assert_eq!(changes(&before, &without(30.0)), (vec![CaseChange::Slower; 2], true));
    assert_eq!(changes(&without(40.0), &before), (vec![CaseChange::Verified; 2], false));
    assert_eq!(changes(&without(40.0), &without(40.0)), (vec![CaseChange::Same; 2], false));
    let text = diff(&before, &without(40.0), 0.02).unwrap().to_string();
    assert!(text.contains("2 cases in both, tolerance 2 %: 2 unverified\n"), "{text}");
    let text = text.replace("\n    ", " ");
    assert!(text.contains("its bytes were verified in the first run only"), "{text}");
}

#[test]
fn a_comparison_with_what_cannot_be_right_is_worse() {
    let plain = run(vec![at_rate("pairs", WIDE, 40.0), at_rate("pairs", NARROW, 40.0)]);
    let beyond = run(vec![at_rate("pairs", WIDE, 40.0), at_rate("pairs", NARROW, 4000.0)]);
    for (first, second, which) in [(&plain, &beyond, "second"), (&beyond, &plain, "first")] {
        let found = diff(first, second, 0.02).unwrap();
        assert_eq!(found.rows[0].change, CaseChange::BeyondCeiling);
        assert_eq!((found.rows[0].effect, found.rows[1].change), (None, CaseChange::Same));
        assert!(found.is_worse());
        let why =
            format!("{which}: 4000 GB/s is 8000 % of the 50.0 GB/s that xGMI gpu0-gpu2, 1 link");
        assert!(found.rows[0].why.starts_with(&why), "{}", found.rows[0].why);
    }
    let mut rejected = plain.clone();
    rejected.rejected.push(RejectedRecord {
        line: 12,
        case: WIDE.into(),
        why: "it has no series of samples".into(),
    });
    let found = diff(&plain, &rejected, 0.02).unwrap();
    assert!(found.is_worse());
    assert!(found.to_string().contains("1 record of the second run cannot be right"), "{found}");
    assert_eq!(judge(&rejected), RunVerdict::Wrong);
    assert!(summary(&rejected).contains("! 1 record of the journal cannot be right"));
}
