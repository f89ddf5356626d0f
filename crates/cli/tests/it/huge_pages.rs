//! Huge pages that the kernel refuses.

use std::env;
use std::process::Command;

use pathline_schema::CaseOutcome;
use tempfile::TempDir;

use crate::common::{command, journal};

/// Set in the child that forbids itself huge pages: what it starts inherits that, and other tests of
/// this process must not.
const CHILD: &str = "PATHLINE_TEST_WITHOUT_HUGE_PAGES";

#[test]
fn small_pages_in_place_of_huge_ones_are_a_warning() {
    let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    if reserved.trim() != "0" {
        // Reserved pages are huge all the same.
        return;
    }
    if env::var_os(CHILD).is_none() {
        let name = "huge_pages::small_pages_in_place_of_huge_ones_are_a_warning";
        let mut child = Command::new(env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let case = ["--case", "numa0.huge > * by cpu@numa0[read-*-t1] x 64KiB"];
    let output = command(&case, &out).output().unwrap();
    let journal = journal(&out);
    let Some(CaseOutcome::Measured(measured)) = journal.outcomes.first() else {
        panic!("{output:?}");
    };
    let series = &measured.series[0];
    assert_eq!(series.huge_share, Some(0.0));
    assert_eq!(series.cpus.len(), 1);
    let subject = measured.case.to_string();
    let warning = journal.notes.iter().find(|n| n.code == "pages" && n.subject == subject);
    assert!(warning.unwrap().text.starts_with("0 % of its huge memory"), "{warning:?}");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    let shown = command.args(["report", "--full"]).arg(&out).output().unwrap().stdout;
    let report = String::from_utf8_lossy(&shown).into_owned();
    assert!(report.contains("0 % of its huge memory"), "{report}");
}
