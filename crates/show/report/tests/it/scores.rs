//! Predictions compared with published values: terminal, page, table.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_published::score::{ComparedRow, ErrorTarget, by_class, judge};
use pathline_published::{LeftOutRow, RowContradiction, RowValue, ValidationReport};
use pathline_report::csv::export_scores;
use pathline_report::html::scores::page;
use pathline_report::terminal::scores::summary;

fn compared(
    label: &str,
    class: &str,
    unit: &str,
    predicted: f64,
    measured: RowValue,
) -> ComparedRow {
    ComparedRow {
        label: label.to_owned(),
        class: class.to_owned(),
        predicted,
        measured,
        unit: unit.to_owned(),
        source: "paper, Fig. 6".to_owned(),
        how: "rate(r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1GiB)".to_owned(),
        targets: vec!["bandwidth"],
        data: false,
        held_out: false,
    }
}

fn report() -> ValidationReport {
    let exactly = RowValue::exactly;
    let range = RowValue { low: 43.0, high: 44.0 };
    let below = RowValue { low: f64::NEG_INFINITY, high: 50.0 };
    let mut compared = vec![
        // +2 %, +1 % over the upper end, below the bound, and half.
        compared("p2p GCD0 > GCD1", "GPU-GPU bandwidth", "GB/s", 51.0, exactly(50.0)),
        compared("STREAM GCD0 > GCD2", "GPU-GPU bandwidth", "GB/s", 44.44, range),
        compared("OSU_bw <i>below</i>", "MPI point to point", "GB/s", 49.4, below),
        compared("STREAM 2 GCDs", "ratio", "x", 0.5, exactly(1.0)),
        compared("p2p 16 B", "latency matrix", "us", 8.83, exactly(8.83)),
        compared("p2p back 16 B", "latency matrix", "us", 8.91, exactly(8.91)),
        compared("p2p far 16 B", "latency matrix", "us", 18.23, exactly(18.23)),
    ];
    compared.iter_mut().filter(|c| c.unit == "us").for_each(|c| c.data = true);
    let targets = [
        ErrorTarget { name: "bandwidth", median: 0.02, p95: Some(0.06) },
        ErrorTarget { name: "sweeps", median: 0.05, p95: None },
    ];
    let out = |line, reason: &str, unreadable| LeftOutRow {
        line,
        label: format!("row of line {line}"),
        reason: reason.to_owned(),
        unreadable,
    };
    let value = |v: f64, who: &str| (v, 1u64 << 24, who.to_owned());
    ValidationReport {
        machine: "mi250x".to_owned(),
        classes: by_class(&compared),
        judged: judge(&compared, &targets),
        compared,
        left_out: vec![
            out(7, "system 'V100' is not the machine 'mi250x'", false),
            out(8, "unit 'furlongs' is not in the vocabulary", true),
            out(9, "system 'V100' is not the machine 'mi250x'", false),
        ],
        contradictions: vec![RowContradiction {
            what: "copy engine gpu0 > gpu2".to_owned(),
            values: vec![value(36.0, "Cray"), value(37.6, "KTH"), value(42.0, "UCX")],
            low: 36.0,
            high: 42.0,
            least_error: 6.0 / 78.0,
        }],
    }
}

#[test]
fn a_summary_says_what_is_far_and_what_was_left_out() {
    insta::assert_snapshot!(summary(&report(), "rows.csv", false, 100, false));
}

#[test]
fn all_rows_are_shown_if_that_is_asked() {
    let all = summary(&report(), "rows.csv", true, 100, false);
    assert!(all.contains("p2p 16 B") && all.contains("36.0 at 16MiB by Cray"), "{all}");
    let few = summary(&report(), "rows.csv", false, 100, false);
    assert!(!few.lines().any(|l| l.contains("p2p 16 B")), "{few}");
}

#[test]
fn a_page_has_a_point_a_value_and_escapes_what_rows_say() {
    let page = page(&report(), "<rows>");
    for part in [
        "&lt;rows&gt;",
        "OSU_bw &lt;i&gt;below",
        r#"["error","+2.0 %"]"#,
        r#"["published","43.0-44.0 GB/s"]"#,
        r#"["published","\u003c=50.0 GB/s"]"#,
        r#"["model","carries it as data"]"#,
        "median 1.5 % (at most 2.0 %), p95 50.0 % (at most 6.0 %)",
        "line 8: row of line 8",
        "7.7 %",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<i>below") && !page.contains("<rows>"));
    // Three values in GB/s and three in us: a single one gets no picture.
    assert_eq!(page.matches("\"kind\":\"scatter\"").count(), 2);
}

#[test]
fn a_table_has_a_row_a_value_and_a_row_what_was_left_out() {
    let text = export_scores(&report());
    let mut rows = ::csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 7 + 3);
    assert_eq!(&rows[0][6], "0.02");
    assert_eq!(&rows[8][10], "left out: unit 'furlongs' is not in the vocabulary");
}
