//! NVIDIA's nvbandwidth (`output.cpp`, `json_output.cpp`) and busGrind, and the CUDA samples
//! p2pBandwidthLatencyTest and bandwidthTest.

use serde_json::Value;

use crate::clean::{PasteLine, rows_of};
use crate::document::{CopyMeans, MatrixEnd, MatrixTool, RateCount, RateMatrix};
use crate::matrix::{index, read_rows};
use crate::number::{number, rate_unit};

/// A matrix of nvbandwidth that begins here: `memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)`; without cells
/// where each is the sum over all peers of a GPU.
pub(crate) fn nvbandwidth(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let text = lines.get(at)?.text.trim();
    let is_title = text.contains("(GB/s)") && (text.contains("(row)") || text.contains("(column)"));
    let is_latency = text.to_lowercase().contains("latency") && text.contains("(ns)");
    let is_local = text.contains("local copy") || text.contains("GPU(column) bandwidth");
    if !(is_title || is_latency || (is_local && text.contains("(GB/s)"))) {
        return None;
    }
    // `Running device_to_host_memcpy_ce.` is a few lines above, `SUM name value` below.
    let before = lines.get(at.saturating_sub(4)..at).unwrap_or_default();
    let running = before.iter().rev().find_map(|line| line.text.trim().strip_prefix("Running "));
    let found = read_rows(lines, at + 1)?;
    let after = lines.get(found.next..).unwrap_or_default().iter().take(3);
    let sum = after.enumerate().find_map(|(more, line)| {
        let name = line.text.trim().strip_prefix("SUM ")?.split_whitespace().next()?;
        Some((more, name))
    });
    let name = running.map(|name| name.trim_end_matches('.')).or(sum.map(|(_, name)| name));
    let mut matrix = test_of(name.unwrap_or(text), text);
    matrix.is_latency |= is_latency;
    for (row, column, value) in found.cells(index) {
        matrix.cells.extend(cell(&matrix, text, row, column, value));
    }
    Some((matrix, found.next + sum.map_or(0, |(more, _)| more + 1)))
}

/// A line `SUM host_to_device_memcpy_ce 845.90` whose matrix was not pasted: the sum over all cells.
pub(crate) fn sums(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let mut words = lines.get(at)?.text.trim().strip_prefix("SUM ")?.split_whitespace();
    let (name, value) = (words.next()?, number(words.next()?)?);
    let mut matrix = test_of(name, "");
    let ends = cell(&matrix, "", 0, 1, value)?;
    matrix.is_sum = true;
    matrix.cells.push(ends);
    (value > 0.0 && words.next().is_none()).then_some((matrix, at + 1))
}

/// Shares a sum among the GPUs, or their pairs, where the paste counts them.
pub(crate) fn share_sum(matrix: &mut RateMatrix, gpus: Option<u32>) {
    let (Some(gpus), [(from, to, sum)]) = (gpus.filter(|n| *n <= 64), matrix.cells.as_slice())
    else {
        return;
    };
    let (from, to, sum) = (*from, *to, *sum);
    if !matrix.is_sum {
        return;
    }
    let ends = |at: u32, other: u32| match (from, to) {
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a != b => {
            (at != other).then_some((MatrixEnd::Gpu(at), MatrixEnd::Gpu(other)))
        }
        _ if at != other => None,
        (MatrixEnd::Gpu(_), host @ MatrixEnd::Host(_)) => Some((MatrixEnd::Gpu(at), host)),
        (host @ MatrixEnd::Host(_), _) => Some((host, MatrixEnd::Gpu(at))),
        _ => Some((MatrixEnd::Gpu(at), MatrixEnd::Gpu(at))),
    };
    let all = (0..gpus).flat_map(|at| (0..gpus).filter_map(move |other| ends(at, other)));
    let all: Vec<(MatrixEnd, MatrixEnd)> = all.collect();
    let each = sum / all.len().max(1) as f64;
    matrix.cells = all.into_iter().map(|(from, to)| (from, to, each)).collect();
    matrix.is_sum = false;
}

/// What a test's name says.
fn test_of(name: &str, title: &str) -> RateMatrix {
    let both = name.contains("bidirectional") || title.contains("<->");
    let lower = title.to_lowercase();
    let means = match () {
        () if name.ends_with("_ce") || lower.contains(" ce ") => CopyMeans::Engine,
        () if name.ends_with("_sm") || lower.contains(" sm ") => CopyMeans::Kernel,
        () => CopyMeans::Unstated,
    };
    // Between GPUs the newer versions print `_total`, the sum of both.
    let count = match both {
        false => RateCount::OneWay,
        true if name.contains("_total") || title.contains("Total") => RateCount::Sum,
        true => RateCount::OneOfBoth,
    };
    RateMatrix {
        is_latency: name.contains("latency") || lower.contains("latency"),
        count,
        means,
        concurrent: name.contains("all_to") || name.contains("to_all"),
        ..RateMatrix::new(MatrixTool::Nvbandwidth, name)
    }
}

fn cell(
    matrix: &RateMatrix,
    title: &str,
    row: u32,
    column: u32,
    value: f64,
) -> Option<(MatrixEnd, MatrixEnd, f64)> {
    let name = &matrix.test;
    if name.contains("all_to_one") || name.contains("one_to_all") {
        return None;
    }
    // Latencies are ns; those of other tools us.
    let value = if matrix.is_latency { value / 1e3 } else { value };
    // Older versions say CPU(row) of GPU pairs that copy both ways, too.
    let parts = ["Read1", "Read2", "Write1", "Write2", "Total"];
    let is_pair =
        name.contains("device_to_device") || parts.iter().any(|part| title.contains(part));
    let is_host = title.contains("CPU(row)") || name.starts_with("host_") || name.contains("_host");
    if is_host && !is_pair {
        let (host, gpu) = (MatrixEnd::Host(None), MatrixEnd::Gpu(column));
        let named_out = name.starts_with("device_to_host") || name.starts_with("all_to_host");
        let drawn_out = title.contains("<-") && !title.contains("<->");
        let outward = named_out || (drawn_out && !name.starts_with("host_to"));
        return Some(if outward { (gpu, host, value) } else { (host, gpu, value) });
    }
    if name.contains("local") {
        return Some((MatrixEnd::Gpu(column), MatrixEnd::Gpu(column), value));
    }
    // `GPU(row) <- GPU(column)` reads, `->` writes.
    let (a, b) = (MatrixEnd::Gpu(row), MatrixEnd::Gpu(column));
    let is_read = title.contains("<-") && !title.contains("<->");
    Some(if is_read { (b, a, value) } else { (a, b, value) })
}

/// From `--json`.
pub(crate) fn nvbandwidth_json(root: &Value) -> Vec<RateMatrix> {
    let tests = root.get("nvbandwidth").and_then(|inner| inner.get("testcases")?.as_array());
    let mut found = Vec::new();
    for test in tests.into_iter().flatten() {
        let text = |key: &str| test.get(key).and_then(Value::as_str).unwrap_or_default();
        let title = text("bandwidth_description");
        let mut matrix = test_of(text("name"), title);
        let rows = test.get("bandwidth_matrix").and_then(Value::as_array);
        let rows: &[Value] = rows.map_or(&[], Vec::as_slice);
        // Pairs that copy both ways have three matrices in one list: each direction, then the sums.
        let columns = rows.first().and_then(Value::as_array).map_or(0, Vec::len);
        let is_three = columns > 1 && rows.len() == 3 * columns && title.contains("Total");
        let skipped = if is_three { 2 * columns } else { 0 };
        for (row, cells) in (0..).zip(rows.iter().skip(skipped)) {
            for (column, value) in (0..).zip(cells.as_array().into_iter().flatten()) {
                let value = value.as_f64().or_else(|| number(value.as_str()?));
                if let Some(value) = value {
                    matrix.cells.extend(cell(&matrix, title, row, column, value));
                }
            }
        }
        if !matrix.cells.is_empty() {
            found.push(matrix);
        }
    }
    found
}

/// A matrix of p2pBandwidthLatencyTest: `Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix
/// (GB/s)`, `P2P=Disabled Latency Matrix (us)`.
pub(crate) fn p2p_test(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let text = lines.get(at)?.text.trim();
    if !text.contains("Matrix") || !text.contains("P2P=") {
        return None;
    }
    let mut found = read_rows(lines, at + 1)?;
    let is_latency = text.contains("Latency");
    let cells = found.cells(|label| index(label).map(MatrixEnd::Gpu));
    // The latencies as the CPU sees them follow under a second header.
    let mut after = lines.get(found.next..).unwrap_or_default().iter().map(|line| line.text.trim());
    let is_cpu = after.find(|text| !text.is_empty()).is_some_and(|text| text.starts_with("CPU"));
    if is_latency
        && is_cpu
        && let Some(cpu) = read_rows(lines, found.next)
    {
        found.next = cpu.next;
    }
    let count = if text.contains("Bidirectional") { RateCount::Sum } else { RateCount::OneWay };
    let matrix = RateMatrix {
        is_latency,
        count,
        peer_access: Some(text.contains("Enabled")),
        means: if text.contains("SM") { CopyMeans::Kernel } else { CopyMeans::Engine },
        cells,
        ..RateMatrix::new(MatrixTool::P2pTest, text)
    };
    Some((matrix, found.next))
}

/// Lines of RVS's modules pebb and pbqt, one a pair: `[action_1] p2p-bandwidth  [1/2] 453 15450  bidirectional:
/// false  7.056 GBps`, `pcie-bandwidth  [1/4] 0 7707  h2d: true  d2h: false  12.562 GBps`. GPUs are numbered in order
/// of their first appearance.
pub(crate) fn validation_suite(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let mut first = None;
    let row = |text: &str| {
        let kinds = ["p2p-bandwidth", "pcie-bandwidth"].iter();
        let (kind, rest) =
            kinds.copied().find_map(|kind| Some((kind, text.split_once(kind)?.1)))?;
        let words: Vec<&str> = rest.split_whitespace().take(24).collect();
        let is = |name: &str| words.windows(2).any(|two| two == [name, "true"]);
        let rate = words.windows(2).find(|two| two.ends_with(&["GBps"]))?.first()?;
        let mut ids = words.iter().filter(|word| !word.starts_with('['));
        let mut id = || ids.next()?.parse::<u32>().ok();
        let (rate, from, to) = (number(rate)?, id()?, id()?);
        let both = is("bidirectional:") || is("h2d:") && is("d2h:");
        let test = format!("{kind}{}", if both { ", bidirectional" } else { "" });
        let is_same = *first.get_or_insert_with(|| test.clone()) == test;
        is_same.then_some(Some((test, both, is("h2d:"), from, to, rate)))
    };
    let (rows, next) = rows_of(lines, at, 4096, row);
    let (test, both, ..) = rows.first()?;
    let count = if *both { RateCount::Sum } else { RateCount::OneWay };
    let mut found = RateMatrix { count, ..RateMatrix::new(MatrixTool::Rvs, test) };
    let mut gpus: Vec<u32> = Vec::new();
    for &(ref test, _, is_inward, from, to, rate) in &rows {
        let mut number_of = |id: u32| {
            let known = gpus.iter().position(|gpu| *gpu == id);
            let at = known.unwrap_or(gpus.len());
            gpus.extend(known.is_none().then_some(id));
            MatrixEnd::Gpu(u32::try_from(at).unwrap_or(u32::MAX))
        };
        // Of a copy with the host the first number is its NUMA domain.
        let (from, to) = match (test.starts_with("p2p"), is_inward) {
            (true, _) => (number_of(from), number_of(to)),
            (false, true) => (MatrixEnd::Host(Some(from)), number_of(to)),
            (false, false) => (number_of(to), MatrixEnd::Host(Some(from))),
        };
        found.cells.push((from, to, rate));
    }
    Some((found, next))
}

/// ` Host to Device Bandwidth, 1 Device(s)` of bandwidthTest: a size and a rate below.
pub(crate) fn bandwidth_sample(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let text = lines.get(at)?.text.trim();
    // `--csv`: `bandwidthTest-H2D-Pinned, Bandwidth = 25.3 GB/s, Time = ...`, of several sizes a line each.
    let csv =
        text.strip_prefix("bandwidthTest-").and_then(|rest| rest.split_once(", Bandwidth = "));
    let (name, rate) = csv.or(text.split_once(" Bandwidth, "))?;
    let (host, gpu) = (MatrixEnd::Host(None), MatrixEnd::Gpu(0));
    let (name, from, to) = match name.trim_end_matches("-Pinned").trim_end_matches("-Paged") {
        "Host to Device" | "H2D" => ("Host to Device", host, gpu),
        "Device to Host" | "D2H" => ("Device to Host", gpu, host),
        "Device to Device" | "D2D" => ("Device to Device", gpu, gpu),
        _ => return None,
    };
    let mut test = format!("{name} Bandwidth");
    if csv.is_some() {
        let mut words = rate.split([' ', ',']);
        let gbs = number(words.next()?)? * rate_unit(words.next()?)?;
        test.push_str(if text.contains("-Paged,") { ", pageable" } else { "" });
        let begin = text.split_once(',')?.0;
        let is_last = lines.get(at + 1).is_none_or(|next| !next.text.trim().starts_with(begin));
        let cells = if is_last { vec![(from, to, gbs)] } else { Vec::new() };
        let found = RateMatrix { cells, ..RateMatrix::new(MatrixTool::BandwidthSample, test) };
        return Some((found, at + 1));
    }
    let mut last = None;
    let mut unit = 1.0;
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(24) {
        let text = line.text.trim();
        if text.contains("PAGEABLE") {
            test.push_str(", pageable");
        }
        if text.contains("Bandwidth(MB/s)") {
            unit = 1e-3;
        }
        let words: Vec<f64> = text.split_whitespace().map_while(number).collect();
        match (words.as_slice(), last) {
            ([_, rate], _) => last = Some((index, rate * unit)),
            (_, Some(_)) => break,
            _ => {}
        }
    }
    let (index, rate) = last?;
    let matrix = RateMatrix {
        cells: vec![(from, to, rate)],
        ..RateMatrix::new(MatrixTool::BandwidthSample, test)
    };
    Some((matrix, index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;
    use MatrixEnd::{Gpu, Host};

    #[test]
    fn directions_of_nvbandwidth_are_read() {
        let text = "Running device_to_host_memcpy_ce.\n\
                    memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n           0         1\n 0     26,77     26.47\n\n\
                    SUM device_to_host_memcpy_ce 53.24\n";
        let (matrix, next) = nvbandwidth(&clean_lines(text.as_bytes()).0, 1).unwrap();
        assert_eq!(next, 6);
        assert_eq!(matrix.cells, [(Gpu(0), Host(None), 26.77), (Gpu(1), Host(None), 26.47)]);
        let both = "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n 0 1\n0 11.24 14.42\nSUM host_to_device_bidirectional_memcpy_ce 25";
        let (matrix, _) = nvbandwidth(&clean_lines(both.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (matrix.count, matrix.cells[1]),
            (RateCount::OneOfBoth, (Host(None), Gpu(1), 14.42))
        );
        let pairs = "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n   0   1\n0  N/A 26.34\n1 26.35  N/A\n";
        let (matrix, _) = nvbandwidth(&clean_lines(pairs.as_bytes()).0, 0).unwrap();
        assert_eq!(matrix.cells, [(Gpu(1), Gpu(0), 26.34), (Gpu(0), Gpu(1), 26.35)]);
    }

    #[test]
    fn json_of_nvbandwidth_is_read() {
        let text = r#"{"nvbandwidth":{"testcases":[{"name":"host_to_device_memcpy_ce","status":"Passed",
            "bandwidth_description":"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
            "bandwidth_matrix":[["55.2","N/A"]],"sum":55.2}]}}"#;
        let found = nvbandwidth_json(&serde_json::from_str(text).unwrap());
        assert_eq!(found[0].cells, [(Host(None), Gpu(0), 55.2)]);
        let text = r#"{"nvbandwidth":{"testcases":[{"name":"device_to_device_bidirectional_memcpy_write_ce",
            "bandwidth_description":"memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
            "bandwidth_matrix":[["N/A","20.5"],["21","N/A"],["N/A","19"],["20","N/A"],["N/A","39.5"],["41","N/A"]]},
            {"name":"device_to_device_latency_sm","status":"Waived"}]}}"#;
        let found = nvbandwidth_json(&serde_json::from_str(text).unwrap());
        assert_eq!((found.len(), found[0].count), (1, RateCount::Sum));
        assert_eq!(found[0].cells, [(Gpu(0), Gpu(1), 39.5), (Gpu(1), Gpu(0), 41.0)]);
    }

    #[test]
    fn blocks_of_one_output_are_read() {
        let text = "Running device_to_device_bidirectional_memcpy_read_ce.\n\
                    memcpy CE CPU(row) <-> GPU(column) Read1 bandwidth (GB/s)\n 0 1\n0 N/A 21.5\n1 22.5 N/A\n\n\
                    SUM device_to_device_bidirectional_memcpy_read_ce_read1 44.00\n\n\
                    memcpy CE CPU(row) <-> GPU(column) Total bandwidth (GB/s)\n 0 1\n0 N/A 43.0\n1 45.0 N/A\n\n\
                    SUM device_to_device_bidirectional_memcpy_read_ce_total 88.00\n\n\
                    Running one_to_all_write_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 9.5 9.4\n\n\
                    Running device_to_device_latency_sm.\nDevice to Device Latency SM GPU(row) <-> GPU(column) (ns)\n 0 1\n0 N/A 1500\n1 1600 N/A\n";
        let lines = clean_lines(text.as_bytes()).0;
        let found: Vec<_> = (0..lines.len())
            .filter_map(|at| nvbandwidth(&lines, at))
            .map(|found| found.0)
            .collect();
        let counts: Vec<_> =
            found.iter().map(|matrix| (matrix.count, matrix.cells.len())).collect();
        let both = RateCount::OneOfBoth;
        assert_eq!(counts, [(both, 2), (RateCount::Sum, 2), (RateCount::OneWay, 0), (both, 2)]);
        assert_eq!(found[1].cells[0], (Gpu(0), Gpu(1), 43.0));
        assert!(found[3].is_latency && found[3].cells[0] == (Gpu(0), Gpu(1), 1.5));
    }

    #[test]
    fn matrices_of_the_samples_are_read() {
        let text = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1 \n     0 912.68   9.90 \n     1   9.90 922.37 \n";
        let (matrix, next) = p2p_test(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (matrix.peer_access, matrix.cells[1], next),
            (Some(true), (Gpu(0), Gpu(1), 9.9), 4)
        );
        let text = " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n   Transfer Size (Bytes)  Bandwidth(MB/s)\n   33554432      12168.9\n";
        let (matrix, _) = bandwidth_sample(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert!((matrix.cells[0].2 - 12.1689).abs() < 1e-9);
    }
}
