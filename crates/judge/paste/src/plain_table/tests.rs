use super::*;
use crate::clean::clean_lines;
use crate::plain_rows::PlainRows;

/// The first table of a text.
pub(crate) fn found(text: &str) -> PlainTable {
    let lines = clean_lines(text.as_bytes()).0;
    (0..lines.len()).find_map(|at| read(&lines, at)).unwrap().0
}

/// Units below names are those of their columns; above two groups of columns it is not known which are whose.
#[test]
fn units_may_have_a_line_below_the_names() {
    let rows = "1048576   12.1   22.7\n1073741824 101.2 189.8";
    let table = found(&format!("Size  Algbw  Busbw\n(B)   (GB/s)  (GB/s)\n{rows}"));
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Algbw (GB/s)", "Busbw (GB/s)"]);
    assert_eq!(table.columns[1].values, [Some(22.7), Some(189.8)]);
    let bars = "| GPU | H2D |\n| (id) | (GB/s) |\n|---|---|\n| 0 | 25.1 |\n| 1 | 25.0 |";
    assert_eq!(found(bars).columns[0].name, "H2D (GB/s)");
    let groups = "      bandwidth [GB/s]    latency [us]\nGPU   H2D   D2H   H2D   D2H\n0   25.1  26.2  8.1  7.9\n\
                  1   25.0  26.3  8.0  7.9";
    let lines = clean_lines(groups.as_bytes()).0;
    assert!((0..lines.len()).all(|at| read(&lines, at).is_none()));
}

/// The same four rows, in every layout that a tool may choose.
#[test]
fn one_table_in_all_layouts() {
    let rows = [("gpu0", 24.5), ("gpu1", 24.75), ("gpu2", 12.25), ("gpu3", 24.5)];
    let lines = |head: &str, row: &dyn Fn(&str, f64) -> String| {
        let rows = rows.iter().map(|(name, gbs)| row(name, *gbs));
        [head.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    };
    for text in [
        lines("name,rate_GBps", &|name, gbs| format!("{name},{gbs}")),
        lines("| name | rate (GB/s) |\n|---|---|", &|name, gbs| format!("| {name} | {gbs} |")),
        lines("name      rate [MB/s]   time (us)", &|name, gbs| {
            format!("{name}      {}      {}", gbs * 1e3, 1e3 / gbs)
        }),
        lines("name Gb/sec", &|name, gbs| format!("{name} {}", gbs * 8.0)),
        lines("", &|name, gbs| format!("{name}: {gbs} GB/s")),
        lines("| name | result |\n|---|---|", &|name, gbs| {
            format!("| {name} | **{gbs} GB/s** busbw (per rail 9 GB/s) |")
        }),
        lines("", &|name, gbs| format!("[12:00:00] INFO dev={name} rate_gbps={}", gbs * 8.0)),
        lines("copy rates (GB/s)\nname   rate", &|name, gbs| format!("{name}    {gbs}")),
    ] {
        let table = found(&text);
        assert_eq!((table.rows, table.labels.len()), (PlainRows::Parts, 4), "{text}");
        let values: Vec<f64> = table.columns[0].values.iter().flatten().copied().collect();
        let same = rows.iter().zip(&values).all(|(row, value)| (row.1 - value).abs() < 1e-6);
        assert!(same && values.len() == 4 && table.labels[2].contains("gpu2"), "{text}\n{table:?}");
    }
    let json = r#"{"t": [{"gpu": 0, "h2d_gb_s": 24.5}, {"gpu": 1, "h2d_gb_s": 12.0}]}"#;
    let table = from_json(&serde_json::from_str(json).unwrap()).unwrap();
    assert_eq!((table.labels[1].as_str(), table.columns[0].values[1]), ("gpu 1", Some(12.0)));
}

#[test]
fn only_columns_with_a_unit_of_rates_are_rates() {
    let names = |text: &str| -> Vec<String> {
        found(text).columns.into_iter().map(|column| column.name).collect()
    };
    let title = "transfer rates (GB/s)\n";
    let under = format!(
        "{title}link  size  iters  overhead us  rate\nab  64  10  240  5\ncd  64  10  230  6\n"
    );
    assert_eq!(names(&under), ["rate"]);
    assert_eq!(names("size (MB) s  rate MB/s\n64  100\n128  200\n"), ["rate MB/s"]);
    // The second column holds bytes whatever its header says.
    assert_eq!(names("part,MB/s,GB/s\na,10,4194304\nb,11,4194304\n"), ["MB/s"]);
    for text in [
        format!("{title}65536  1000  240\n131072  1000  250\n262144  1000  260\n"),
        format!("{title}size  type  time\n0  64  int  1.5\n1  64  int  1.6\n"),
        "a  12.5 GB/s  3\nb  12.6 GB/s  4\n".to_owned(),
    ] {
        let lines = clean_lines(text.as_bytes()).0;
        let all: Vec<_> = (0..lines.len()).filter_map(|at| read(&lines, at)).collect();
        let most = all.iter().flat_map(|(table, _)| &table.columns);
        let most = most.flat_map(|column| column.values.iter().flatten());
        assert!(most.fold(0.0, |a: f64, b| a.max(*b)) < 13.0, "{text}{all:?}");
    }
}

#[test]
fn a_total_is_no_peer() {
    let table = found("node1: 5.1 GB/s\nnode2: 5.0 GB/s\ntotal: 10.1 GB/s\n");
    assert!(table.labels.len() < 3, "{table:?}");
    let table = found("node  GB/s\nn1  5.1\nn2  5.0\nn3  5.0\nSUM  15.1\n");
    assert_eq!((table.labels.len(), table.rows), (3, PlainRows::Parts));
    let table = found("average 5.1 GB/s\naverage 5.0 GB/s\n");
    assert_eq!(table.labels.len(), 2);
}

#[test]
fn sizes_and_sentences_are_no_parts() {
    let sizes = found("size  MB/s\n64K  100\n128K  200\n");
    assert_eq!(sizes.rows, PlainRows::Series);
    let matrix = found("rates (MB/s)\n    a1    a2\na1  0.0  5.0\na2  6.0  0.0\n");
    assert!(matrix.is_matrix && matrix.columns[0].values[1] == Some(0.006));
    for text in ["I get 30 GB/s here\nand more there\n", "is 12 GB/s normal?", "GB/s\n1 2 3\n"] {
        let lines = clean_lines(text.as_bytes()).0;
        assert!((0..lines.len()).all(|at| read(&lines, at).is_none()), "{text}");
    }
}
