//! I/O as tables, on a terminal and as a page.

use crate::common::shown::*;
use crate::common::storage::*;
use crate::common::*;
use pathline_findings::RunConclusions;
use pathline_report::{csv, format, html, map, terminal};

#[test]
fn elbencho_prints_its_own_table() {
    let args = |op: &str, threads: u32| format!("{op},direct,shared,2GiB,q32,n8,t{threads}");
    let cases = [
        (read("numa0.huge", "uring", &args("rand-read", 2), "4KiB"), Does::new(80_000.0, 800.0)),
        (read("numa0.huge", "uring", &args("rand-mix70", 1), "4KiB"), Does::new(70_000.0, 450.0)),
        (
            format!("numa0.huge > store0.file by uring@numa0[{}] x 1MiB", args("seq-write", 1)),
            Does::new(3_000.0, 10_666.0),
        ),
    ];
    let journal = run_of(cases.iter().map(|(case, does)| io(case, does)).collect());
    insta::assert_snapshot!(format::elbencho(&journal).expect("I/O"));
    let none = run_of(vec![at_rate("local", "gpu0.vram > gpu0.vram by dma@gpu0 x 1MiB", 600.0)]);
    assert!(format::elbencho(&none).expect_err("no I/O").contains("pathline run storage"));
}

#[test]
fn the_table_for_programs_has_latencies() {
    let case = read("numa0.huge", "uring", "rand-read,direct,shared,2GiB,q4,n1,t1", "4KiB");
    let skip = read("numa0.huge", "uring-poll", "rand-read,direct,shared,2GiB,q4,n1,t1", "4KiB");
    let mut outcomes =
        vec![io(&case, &Does::new(50_000.0, 80.0)), skipped("storage", &skip, "no queues")];
    if let pathline_schema::CaseOutcome::Measured(measured) = &mut outcomes[0] {
        measured.series[0].cpus = "4-7".parse().expect("a list");
    }
    let text = csv::export(&run_of(outcomes), None);
    let mut table = ::csv::Reader::from_reader(text.as_bytes());
    let column = table.headers().unwrap().iter().position(|name| name == "cpus").unwrap();
    let first = table.records().next().unwrap().unwrap();
    assert_eq!(&first[column], "4-7");
    let mut lines = text.lines().map(|l| l.rsplit(',').skip(4).take(10).collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    assert_eq!(head[..2], ["requests_per_io", "cpu_us_per_io"]);
    let row = lines.next().expect("a row");
    assert_eq!(head[8], "iops");
    close(row[8].parse().ok(), 50_000.0);
    assert_eq!(head[5], "lat_p50_us");
    near_bucket(row[5].parse().ok(), 80.0);
    let skipped = lines.next().expect("a row");
    assert_eq!((head[9], skipped[9]), ("why", "no queues"));
}

#[test]
fn a_summary_and_a_page_show_all_of_it() {
    let journal = storage_run();
    let report = built(&journal);
    insta::assert_snapshot!(terminal::summary(&report, &RunConclusions::default(), 100, false));
    let page = html::render(&report, &RunConclusions::default(), &map::svg(&journal.topology, &[]));
    for part in
        ["\"kind\":\"gaps\"", "\"kind\":\"sheet\"", "\"kind\":\"stacks\"", "\"is_zero\":true"]
    {
        assert!(page.contains(part), "{part}");
    }
    // For manual inspection.
    if let Ok(path) = std::env::var("PATHLINE_PAGE") {
        std::fs::write(path, &page).expect("a page");
    }
}
