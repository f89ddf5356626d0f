//! Every form of a report begins with the busy machine.

use crate::common::*;
use pathline_explain::run_report;
use pathline_findings::RunConclusions;
use pathline_report::{html, terminal};
use pathline_schema::{CaseOutcome, Journal};

fn loaded(foreign_cpus: f64) -> Journal {
    let mut journal = host_run();
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        m.after.0.insert("foreign_cpus".to_owned(), foreign_cpus);
    }
    journal
}

#[test]
fn a_busy_machine_is_named_before_its_figures() {
    let journal = loaded(1.9);
    let report = run_report::build(&journal, None);
    let text = terminal::summary(&report, &RunConclusions::default(), 100, false);
    let at = text.lines().position(|line| line.starts_with("BUSY: "));
    let busy = text.lines().nth(at.unwrap()).unwrap();
    assert!(at < text.lines().position(|line| line.contains("GB/s")), "{text}");
    assert!(busy.starts_with("BUSY: other processes used 1.90 of 2 CPUs: all 80 host"), "{text}");
    assert!(
        text.contains("~: other programs disturbed it") && !text.contains("Host memory gives"),
        "{text}"
    );
    let page = html::render(&report, &RunConclusions::default(), "");
    let banner = page.find("banner busy").expect("a banner");
    assert!(banner < page.find("<h1").unwrap() && banner < page.find("<main").unwrap());
    assert!(page[banner..].contains("Other processes used 1.90 of 2 CPUs"));
    assert!(page.contains("\"suspect\":\"busy: other processes used 1.90 of 2 CPUs"));
}

#[test]
fn a_quiet_machine_is_not_called_busy() {
    let journal = loaded(0.14);
    let report = run_report::build(&journal, None);
    let text = terminal::summary(&report, &RunConclusions::default(), 100, false);
    assert!(
        !text.contains("BUSY") && !text.contains("~:") && text.contains("Host memory gives"),
        "{text}"
    );
    assert!(!html::render(&report, &RunConclusions::default(), "").contains("banner busy"));
}
