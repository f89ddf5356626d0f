//! Records of the profiler plugins of NCCL (Inspector, `ext-profiler/inspector` from 2.28.3 on) and RCCL
//! (ACCL profiler, `ext-profiler/accl`): a JSON object for each collective of each rank, one a line.

use std::collections::BTreeMap;

use pathline_schema::Collective;
use serde_json::Value;

use crate::document::{CollectiveRow, CollectiveTable};
use crate::nccl_tests::operation;

/// Most records that are kept of a paste; the rest of a size adds nothing to its median.
const MAX_RECORDS: usize = 65_536;

/// A table with the one record of this object.
pub(crate) fn record(root: &Value) -> Option<CollectiveTable> {
    let value = |path: &str| root.pointer(path)?.as_f64();
    let whole = |path: &str| u32::try_from(root.pointer(path)?.as_u64()?).ok();
    let ranks = whole("/header/n_ranks").filter(|n| *n >= 1)?;
    let op = operation(root.pointer("/coll_perf/coll")?.as_str()?)?;
    let bytes = root.pointer("/coll_perf/coll_msg_size_bytes")?.as_u64();
    let bytes = bytes.filter(|bytes| *bytes < 1 << 50)?;
    let time_us = value("/coll_perf/coll_exec_time_us");
    let time_us = time_us.filter(|us| *us > 0.0 && us.is_finite())?;
    // The plugins give the bytes of a rank; rates of gathers and scatters count those of all.
    let all = match op {
        Collective::AllGather | Collective::ReduceScatter => bytes.saturating_mul(ranks.into()),
        _ => bytes,
    };
    let printed = value("/coll_perf/coll_algobw_gbs");
    let rate = |bytes: u64| bytes as f64 / time_us / 1e3;
    let is_like = |rate: f64| printed.is_some_and(|p| (0.8..1.25).contains(&(p / rate)));
    let bytes = if is_like(rate(all)) || !is_like(rate(bytes)) { all } else { bytes };
    let algbw = rate(bytes);
    let busbw = algbw * op.bus_factor(ranks as usize);
    let channels = whole("/coll_perf/coll_n_channels");
    let is_rccl = channels.is_some() || root.pointer("/coll_perf/decomposition").is_some();
    Some(CollectiveTable {
        op: Some(op),
        is_rccl,
        ranks: Some(ranks),
        nodes: whole("/header/nnodes"),
        channels: channels.filter(|n| *n > 0),
        profiler: Some(if is_rccl { "RCCL ACCL profiler" } else { "NCCL Inspector" }),
        // Until the summary of the file says otherwise.
        is_incomplete: is_rccl,
        rows: vec![CollectiveRow { bytes, time_us, algbw, busbw, ..CollectiveRow::default() }],
        ..CollectiveTable::default()
    })
}

/// Whether the last line of an ACCL file says that every record was written.
pub(crate) fn summary(root: &Value) -> Option<bool> {
    root.get("summary")?.get("complete")?.as_bool()
}

/// Whether a record continues the table of another.
pub(crate) fn continues(table: &CollectiveTable, next: &CollectiveTable) -> bool {
    next.profiler.is_some()
        && (table.profiler, table.op, table.ranks) == (next.profiler, next.op, next.ranks)
}

/// Takes the record of another table.
pub(crate) fn append(table: &mut CollectiveTable, next: CollectiveTable) {
    if table.rows.len() < MAX_RECORDS {
        table.rows.extend(next.rows);
    }
    table.channels = table.channels.or(next.channels);
}

/// One row for each size: the median record, since each rank writes its own, and the first ones of a
/// communicator include its setup.
pub(crate) fn merge_sizes(table: &mut CollectiveTable) {
    let mut sizes: BTreeMap<u64, Vec<CollectiveRow>> = BTreeMap::new();
    for row in table.rows.drain(..) {
        sizes.entry(row.bytes).or_default().push(row);
    }
    table.rows = sizes
        .into_values()
        .filter_map(|mut rows| {
            rows.sort_by(|a, b| a.time_us.total_cmp(&b.time_us));
            rows.get(rows.len() / 2).copied()
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_inspector_is_read() {
        // The example of the plugin's README: 17179869184 B / 61974 us = 277.2 GB/s, x 1.75 = 485.1.
        let text = r#"{"header":{"id":"0x7f","rank":2,"n_ranks":8,"nnodes":1},"coll_perf":{"coll":
            "AllReduce","coll_sn":1407,"coll_msg_size_bytes":17179869184,"coll_exec_time_us":61974,
            "coll_algobw_gbs":277.210914,"coll_busbw_gbs":485.119099}}"#;
        let table = record(&serde_json::from_str(text).unwrap()).unwrap();
        let row = table.rows[0];
        assert_eq!((table.op, table.ranks), (Some(Collective::AllReduce), Some(8)));
        assert!((row.algbw - 277.211).abs() < 1e-3 && (row.busbw - 485.119).abs() < 1e-3);
        assert_eq!((table.profiler, table.is_incomplete), (Some("NCCL Inspector"), false));
    }

    #[test]
    fn a_record_of_accl_has_channels_and_counts_all_ranks() {
        // 1 MiB a rank x 8 ranks / 100 us = 83.9 GB/s, x 7/8 = 73.4.
        let text = r#"{"header":{"rank":0,"n_ranks":8},"coll_perf":{"coll":"AllGather",
            "coll_msg_size_bytes":1048576,"coll_n_channels":4,"coll_exec_time_us":100.0,
            "decomposition":{"gpu_kernel_avg_us":45.1}}}"#;
        let mut table = record(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((table.channels, table.rows[0].bytes), (Some(4), 8 << 20));
        assert!((table.rows[0].busbw - 73.4).abs() < 0.01 && table.is_incomplete);
        let slow = CollectiveRow { time_us: 900.0, ..table.rows[0] };
        table.rows.extend([slow, table.rows[0]]);
        merge_sizes(&mut table);
        assert_eq!((table.rows.len(), table.rows[0].time_us), (1, 100.0));
    }
}
