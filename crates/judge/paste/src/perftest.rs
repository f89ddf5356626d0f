//! perftest: ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat and their like (`src/perftest_parameters.c`).

use crate::clean::PasteLine;
use crate::document::NetworkTable;
use crate::number::{number, whole};

/// Lines of a header before its rows.
const MAX_HEADER: usize = 60;

/// A run that begins here: at the title of its box, or at the header of the columns.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(NetworkTable, usize)> {
    let first = lines.get(at)?.text.trim();
    let is_title = first.starts_with("RDMA_") || first.starts_with("Send ");
    let is_title = is_title && (first.contains("BW Test") || first.contains("Latency Test"))
        || first.contains("Bidirectional BW Test");
    if !is_title && !is_columns(first) {
        return bare_rows(lines, at);
    }
    let mut table = NetworkTable::default();
    if is_title {
        table.test = first.trim_end_matches(" Test").to_owned();
    }
    // Buffers on a GPU are announced before the box.
    let before = lines.get(at.saturating_sub(24)..at).unwrap_or_default();
    let words = ["initializing CUDA", "GPU buffer", "ROCm", "use_cuda", "use_rocm"];
    let is_of_gpu = |line: &PasteLine| words.iter().any(|word| line.text.contains(word));
    table.on_gpu = before.iter().any(is_of_gpu);
    table.both_ways = first.contains("Bidirectional");
    let columns = (at..at + MAX_HEADER).find(|&index| {
        let text = lines.get(index).map(|line| line.text.trim()).unwrap_or_default();
        for (name, value) in fields(text) {
            match name {
                "Device" => table.device = value.to_owned(),
                "Outstand reads" => table.outstanding_reads = value.parse().ok(),
                _ => {}
            }
        }
        is_columns(text)
    })?;
    let header = lines.get(columns)?.text.as_str();
    table.is_latency =
        header.contains("t_min") || header.contains("t_avg") || header.contains("t_typical");
    // `MB` is 2^20 B here (perftest_parameters.h), `Gb` 1e9 bit.
    let unit = if header.contains("Gb/sec") { 0.125 } else { (1u64 << 20) as f64 / 1e9 };
    let mut last = columns;
    for (index, line) in lines.iter().enumerate().skip(columns + 1).take(256) {
        let text = line.text.trim();
        let words: Vec<f64> = text.split_whitespace().map_while(number).take(16).collect();
        let is_row = text.split_whitespace().next().and_then(whole).is_some() && words.len() >= 4;
        if !is_row {
            // perftest warns of changed clocks between rows, and boxes end in dashes.
            let is_note =
                text.contains("CPU Frequency") || text.contains("WARNING") || text.is_empty();
            if is_note && !table.rows.is_empty() || table.rows.is_empty() && index < columns + 4 {
                continue;
            }
            break;
        }
        // Bytes, iterations, then peak and average, or least, greatest and typical time.
        let value = if table.is_latency { words.get(4) } else { words.get(3) };
        if let (Some(&bytes), Some(&value)) = (words.first(), value) {
            table.rows.push((bytes as u64, if table.is_latency { value } else { value * unit }));
            let longest = words.get(7).filter(|_| header.contains("99% percentile"));
            table.longest.extend(longest.map(|us| (bytes as u64, *us)));
            let tail = || Some((*words.get(5)?, *words.get(8)?, *words.get(3)?));
            let has_tail = header.contains("99.9% percentile");
            table.tail = table.tail.or_else(|| tail().filter(|_| has_tail));
            let peak = words.get(2).filter(|peak| !table.is_latency && **peak > 0.0);
            table.peak = peak.map(|peak| peak * unit);
            table.iterations = words.get(1).copied().filter(|_| !table.is_latency);
            table.messages = words.get(4).filter(|_| header.contains("MsgRate")).map(|n| n * 1e6);
            last = index;
        }
    }
    (!table.rows.is_empty()).then_some((table, last + 1))
}

impl NetworkTable {
    /// Whether a run of one size was over within 2 ms: its first messages count.
    pub fn is_short(&self) -> bool {
        let [(bytes, gbs)] = self.rows.as_slice() else { return false };
        let seconds = |count: f64| count * *bytes as f64 / gbs.max(1e-9) / 1e9;
        !self.is_latency && self.iterations.is_some_and(|count| seconds(count) < 2e-3)
    }
}

/// Rows of bandwidth whose header was not pasted: bytes, iterations, peak, average, messages. Bytes times messages are
/// the average in one of the tool's units.
fn bare_rows(lines: &[PasteLine], at: usize) -> Option<(NetworkTable, usize)> {
    let row = |line: &PasteLine| {
        let words: Vec<&str> = line.text.split_whitespace().take(6).collect();
        let values: Vec<f64> = words.iter().filter_map(|word| number(word)).collect();
        let &[bytes, _, _, average, messages] = values.as_slice() else { return None };
        let gbs = whole(words.first()?).map(|bytes| bytes as f64 * messages * 1e-3)?;
        let is_it = |unit: f64| (average * unit / gbs - 1.0).abs() < 0.02;
        let unit = [(1u64 << 20) as f64 / 1e9, 0.125].into_iter().find(|unit| is_it(*unit));
        (words.len() == 5 && gbs > 0.0).then_some((bytes as u64, average * unit?))
    };
    let rows: Vec<(u64, f64)> = lines.iter().skip(at).take(256).map_while(row).collect();
    let next = at + rows.len();
    let table = NetworkTable { test: "RDMA bandwidth".to_owned(), rows, ..NetworkTable::default() };
    (next > at).then_some((table, next))
}

fn is_columns(text: &str) -> bool {
    text.trim_start_matches(['#', ' ']).starts_with("bytes") && text.contains("#iterations")
}

/// `Dual-port       : OFF    Device         : mlx5_0`: two fields in a line.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, more)) = rest.split_once(':') {
        let name = name.trim();
        let more = more.trim_start();
        let end = more.find("  ").unwrap_or(more.len());
        let (value, next) = more.split_at(end);
        found.push((name, value.trim()));
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn boxes_and_units_are_read() {
        let text = "initializing CUDA\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n Number of qps   : 4\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : Ethernet\n---\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      1000             387.1              385.2              0.73\n---\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 1).unwrap();
        assert_eq!((table.device.as_str(), table.on_gpu), ("mlx5_0", true));
        assert_eq!((table.rows.as_slice(), next), (&[(65536, 385.2 * 0.125)][..], 9));
        let text = "#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n8388608 5000 11000,0 10000,0 0.001\n";
        let (table, _) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert!((table.rows[0].1 - 10.48576).abs() < 1e-9);
        // 4194304 B x 0.000241e6 a second = 1.011 GB/s = 964 x 2^20 B/s.
        let text = "Node B:\n 4194304 4826 0.00 965.20 0.000241\n 4194304 7695 0.00 1539.00 0.000385\nend\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 1).unwrap();
        assert!(next == 3 && (table.rows[0].1 - 1.012).abs() < 1e-3);
        let text = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n2 1000 1.0 9.9 1.5 1.6\n";
        let (table, _) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((table.is_latency, table.rows[0]), (true, (2, 1.5)));
    }
}
