//! AMD's TransferBench (`src/TransferBench.cpp`) and rocm-bandwidth-test 2.6.

use crate::clean::{PasteLine, rows_of};
use crate::document::{CopyMeans, MatrixEnd, MatrixTool, RateCount, RateMatrix, TimedTransfer};
use crate::matrix::{index, read_rows};
use crate::number::{number, whole};
use crate::products::find_product;

/// Transfers that are kept.
const MAX_TRANSFERS: usize = 65_536;
/// Sockets of a node.
const MAX_PROCESSORS: u32 = 16;

/// `Unidirectional copy peak bandwidth GB/s` of either tool. `processors` says how many of
/// rocm-bandwidth-test's devices are CPUs.
pub(crate) fn matrix(
    lines: &[PasteLine],
    at: usize,
    processors: u32,
) -> Option<(RateMatrix, usize)> {
    let text = lines.get(at)?.text.trim();
    if text.starts_with("SRC\\DST") || text.starts_with("SRC+EXE\\DST") {
        return all_to_all(lines, at);
    }
    if text.starts_with("NumCUs") {
        return scaling(lines, at);
    }
    if text.starts_with('=') && text.contains("directional Benchmark Result") {
        return two_devices(lines, at, processors);
    }
    let is_rate = text.contains("copy peak bandwidth") || text.contains("copy average bandwidth");
    // Versions before 2.1 print `Bdirectional`.
    let direction = ["Unidirectional", "Bidirectional", "Bdirectional"];
    let direction = direction.iter().find(|d| text.starts_with(**d))?;
    if !is_rate {
        return None;
    }
    let both = direction.starts_with('B');
    let executor = text.split_once("Executor: ").map(|(_, name)| name.trim_end_matches([')', ']']));
    let by_engine = executor.is_none_or(|name| name.starts_with("DMA"));
    // rocm-bandwidth-test copies by SDMA by default, and sums both directions.
    let (tool, count_of_both) = match executor {
        Some(_) => (MatrixTool::TransferBench, RateCount::OneOfBoth),
        None => (MatrixTool::RocmBandwidth, RateCount::Sum),
    };
    let count = if both { count_of_both } else { RateCount::OneWay };
    let mut found = RateMatrix {
        count,
        means: if by_engine { CopyMeans::Engine } else { CopyMeans::Kernel },
        ..RateMatrix::new(tool, text)
    };
    let next = if executor.is_some() {
        transfer_bench_rows(&mut found, lines, at)?
    } else {
        let rows = read_rows(lines, at + 1)?;
        // Without the list of devices: CPUs come first, and nothing is copied between them.
        let is_closed = |count: &u32| {
            let mut first = rows.rows.iter().take(*count as usize).map(|row| &row.1);
            first.all(|cells| cells.iter().take(*count as usize).all(Option::is_none))
        };
        let unlisted = (1..=MAX_PROCESSORS).take_while(is_closed).last().unwrap_or(0);
        let processors = if processors > 0 { processors } else { unlisted };
        found.cells = rows.cells(|label| Some(device_end(label, index(label)?, processors)));
        rows.next
    };
    (!found.cells.is_empty()).then_some((found, next))
}

/// A device of rocm-bandwidth-test by its label, which is a number as a rule.
fn device_end(label: &str, number: u32, processors: u32) -> MatrixEnd {
    match label.starts_with(|c: char| c.is_ascii_digit()) {
        true if number < processors => MatrixEnd::Host(Some(number)),
        true => MatrixEnd::Gpu(number - processors),
        false => named_end(label, number),
    }
}

/// `GPU 00`; any other end is a processor.
fn named_end(label: &str, number: u32) -> MatrixEnd {
    match label.starts_with("GPU") {
        true => MatrixEnd::Gpu(number),
        false => MatrixEnd::Host(Some(number)),
    }
}

/// rocm-bandwidth-test of two devices: `Unidirectional Benchmark Result`, its ends, then sizes with mean and best rate.
/// The best mean counts.
fn two_devices(lines: &[PasteLine], at: usize, processors: u32) -> Option<(RateMatrix, usize)> {
    let test = lines.get(at)?.text.trim().trim_matches(['=', ' ']);
    let end = |line: usize, side: &str| {
        let (_, rest) = lines.get(line)?.text.split_once(side)?;
        let (number, kind) = rest.split_once(side.split(' ').next()?)?;
        let number: u32 = number.trim().parse().ok()?;
        Some(match kind.contains("Cpu") {
            true => MatrixEnd::Host(Some(number)),
            false => MatrixEnd::Gpu(number.saturating_sub(processors)),
        })
    };
    let (from, to) = (end(at + 1, "Src Device Id:")?, end(at + 2, "Dst Device Id:")?);
    let (mut best, mut next) = (0.0_f64, at + 3);
    for (line, index) in lines.get(next..)?.iter().zip(next..).take(64) {
        let words: Vec<&str> = line.text.split_whitespace().take(7).collect();
        match words[..] {
            [size, _, _, mean, ..] if number(size).is_some() => {
                (best, next) = (best.max(number(mean).unwrap_or(0.0)), index + 1);
            }
            _ if best > 0.0 => break,
            _ => {}
        }
    }
    let count = if test.starts_with('B') { RateCount::Sum } else { RateCount::OneWay };
    let cells = vec![(from, to, best)];
    let found = RateMatrix { count, cells, ..RateMatrix::new(MatrixTool::RocmBandwidth, test) };
    (best > 0.0).then_some((found, next))
}

/// TransferBench's preset `scaling`: `NumCUs  CPU00  GPU00  GPU01`, then rates of copies from one GPU by the number
/// of compute units, of which the best counts.
fn scaling(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let titles = lines.get(at.saturating_sub(8)..at).unwrap_or_default();
    let from = titles.iter().find_map(|line| {
        let rest = line.text.split_once("from GPU ")?.1;
        rest.split_whitespace().next()?.parse::<u32>().ok()
    });
    let columns = crate::matrix::labels(&lines.get(at)?.text);
    let end = |label: &String| Some(named_end(label, index(label)?));
    let ends: Vec<MatrixEnd> = columns.iter().skip(1).filter_map(end).collect();
    let row = |text: &str| {
        let values: Vec<f64> = text.split_whitespace().map_while(number).collect();
        (values.len() == ends.len() + 1).then_some(Some(values))
    };
    let (rows, next) = rows_of(lines, at + 1, 512, row);
    let best = |column: usize| {
        rows.iter().filter_map(|row| row.get(column + 1).copied()).fold(0.0, f64::max)
    };
    let from = MatrixEnd::Gpu(from.unwrap_or(0));
    let cells = ends.iter().enumerate().map(|(column, to)| (from, *to, best(column))).collect();
    let title = "GPU-GFX scaling, best number of compute units";
    let found = RateMatrix {
        means: CopyMeans::Kernel,
        cells,
        ..RateMatrix::new(MatrixTool::TransferBench, title)
    };
    (!rows.is_empty() && !ends.is_empty()).then_some((found, next))
}

/// The table of TransferBench's presets in which all pairs copy at once; the titles above it name what moves the
/// bytes.
fn all_to_all(lines: &[PasteLine], at: usize) -> Option<(RateMatrix, usize)> {
    let titles = lines.get(at.saturating_sub(16)..at).unwrap_or_default();
    let title =
        titles.iter().rev().map(|line| line.text.trim()).find(|text| text.contains("benchmark"));
    let title = title.unwrap_or("SRC\\DST").trim_end_matches(':');
    let mut found = RateMatrix {
        means: if title.contains("DMA") { CopyMeans::Engine } else { CopyMeans::Kernel },
        concurrent: true,
        ..RateMatrix::new(MatrixTool::TransferBench, title)
    };
    let next = transfer_bench_rows(&mut found, lines, at)?;
    (!found.cells.is_empty()).then_some((found, next))
}

/// `SRC+EXE\DST    CPU 00    GPU 00`, then `GPU 00  ->  27.9  35.1`; both ways `<-` and `<->` rows
/// follow each `->` row.
fn transfer_bench_rows(found: &mut RateMatrix, lines: &[PasteLine], at: usize) -> Option<usize> {
    let header = (at..at + 4).find(|&at| {
        lines.get(at).is_some_and(|line| line.text.contains("SRC") && line.text.contains("DST"))
    })?;
    let columns = crate::matrix::labels(&lines.get(header)?.text);
    let end = |label: &String| Some(named_end(label, index(label)?));
    let columns: Vec<MatrixEnd> = columns.iter().skip(1).filter_map(end).collect();
    let mut last = header;
    for (index, line) in lines.iter().enumerate().skip(header + 1).take(1024) {
        let words = crate::matrix::labels(&line.text);
        let Some((label, rest)) = words.split_first() else { continue };
        if label.starts_with("---") {
            continue;
        }
        if !(label.starts_with("GPU") || label.starts_with("CPU")) {
            break;
        }
        let Some(row) = end(label) else { break };
        last = index;
        let arrow = rest.first().map(String::as_str);
        let values = match arrow {
            Some("->" | "<-" | "<->") => rest.get(1..).unwrap_or_default(),
            _ => rest,
        };
        // Statistics of the row above: `CPU 00 min`, `CPU 00  sd`.
        if !matches!(arrow, Some("<-" | "<->" | "min" | "max" | "sd")) {
            for (&column, word) in columns.iter().zip(values) {
                let value = number(word).filter(|value| *value > 0.0);
                found.cells.extend(value.map(|value| (row, column, value)));
            }
        }
    }
    Some(last + 1)
}

/// `Test 1:` with its executors and transfers.
pub(crate) fn transfers(lines: &[PasteLine], at: usize) -> Option<(Vec<TimedTransfer>, usize)> {
    let first = &lines.get(at)?.text;
    let is_executor = first.contains("Executor:") || first.trim_start().starts_with("Executor ");
    if !first.trim_start().starts_with("Test ") && !is_executor {
        return None;
    }
    let (mut found, mut test, mut last) = (Vec::new(), 0, None);
    for (index, line) in lines.iter().enumerate().skip(at) {
        let text = line.text.trim();
        if found.is_empty() && index > at + 16 {
            return None;
        }
        if let Some(number) = text.strip_prefix("Test ") {
            let stated = number.split([':', ' ']).next().and_then(|n| n.parse().ok());
            test = stated.unwrap_or(u32::saturating_add(test, 1));
            continue;
        }
        let is_part = ["Executor", "Transfer", "Aggregate", "Iter ", "StandardDev"];
        if text.is_empty() {
            continue;
        }
        if !is_part.iter().any(|part| text.starts_with(part)) || found.len() >= MAX_TRANSFERS {
            break;
        }
        if text.starts_with("Transfer") {
            found.extend(transfer(text, test));
        }
        last = Some(index);
    }
    (!found.is_empty()).then_some((found, last? + 1))
}

/// `Transfer 00  |  49.2 GB/s |  1.3 ms |  67108864 bytes | G0 -> DMA00.*:001 -> G1`.
fn transfer(text: &str, test: u32) -> Option<TimedTransfer> {
    let words: Vec<&str> = text.split([' ', '|', ',']).filter(|word| !word.is_empty()).collect();
    let before = |unit: &str| {
        let at = words.iter().position(|word| *word == unit)?;
        words.get(at.checked_sub(1)?).copied()
    };
    let (gbs, bytes) = (number(before("GB/s")?)?, whole(before("bytes")?)?);
    let (_, ends) = text.split_once("bytes")?;
    let mut ends = ends.split("->").map(|end| end.trim_matches(['|', ',', ' ']).to_owned());
    let (source, executor, destination) = (ends.next()?, ends.next()?, ends.next()?);
    Some(TimedTransfer { test, source, executor, destination, gbs, bytes })
}

/// CPUs in rocm-bandwidth-test's list of devices: `Device: 0,  AMD EPYC 7A53 64-Core Processor`. GPUs
/// have a `GPU-...` number and an address; device 0 is a CPU even if nothing else says so.
pub(crate) fn device(text: &str) -> Option<(u32, bool, &str)> {
    let (number, rest) = text.trim().strip_prefix("Device: ")?.split_once(',')?;
    let rest = rest.trim();
    let number: u32 = number.trim().parse().ok()?;
    let is_processor = ["EPYC", "Xeon", "Ryzen", "Processor", "CPU", "Core(TM)"]
        .iter()
        .any(|part| rest.contains(part));
    let name = rest.split(",").next().unwrap_or(rest).trim();
    let is_bare = number == 0 && !rest.contains(',') && find_product(name).is_none();
    Some((number, is_processor || is_bare, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;
    use MatrixEnd::{Gpu, Host};

    #[test]
    fn processors_come_first_in_rocm_bandwidth_test() {
        let text = "Unidirectional copy peak bandwidth GB/s\n\n D/D   0   1   2\n\n 0   N/A  28.4  28.3\n\n 1  29.0  649.5  N/A\n\n 2  29.1  35.0  636.4\n\n";
        let (found, _) = matrix(&clean_lines(text.as_bytes()).0, 0, 1).unwrap();
        assert_eq!(found.cells.len(), 7);
        assert_eq!(found.cells[0], (Host(Some(0)), Gpu(0), 28.4));
        assert_eq!(found.cells[5], (Gpu(1), Gpu(0), 35.0));
        // Two processors without the list of devices: no copy between them.
        let text = "Bidirectional copy peak bandwidth GB/s\n\n D/D  0  1  2  3\n\n 0  N/A  N/A  47.7  38.1\n\n 1  N/A  N/A  38.2  47.6\n\n 2  47.7  38.2  N/A  99.8\n\n 3  38.1  47.6  99.8  N/A\n";
        let (found, _) = matrix(&clean_lines(text.as_bytes()).0, 0, 0).unwrap();
        assert_eq!(found.cells.len(), 10);
        assert_eq!(found.cells[6], (Gpu(0), Gpu(1), 99.8));
        assert_eq!(
            device("  Device: 0,  AMD EPYC 7542 32-Core Processor"),
            Some((0, true, "AMD EPYC 7542 32-Core Processor"))
        );
        assert_eq!(
            device("Device: 1,  Radeon RX 7900 XTX,  GPU-XX,  83:0.0"),
            Some((1, false, "Radeon RX 7900 XTX"))
        );
    }

    #[test]
    fn matrices_of_transfer_bench_are_read() {
        let text = "Bidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: DMA)\n     SRC\\DST  CPU 00     GPU 00    GPU 01\n  CPU 00  ->    N/A   24.1  24.2\n  CPU 00 min    N/A   20.1  20.2\n  CPU 00 <-     N/A   24.1  24.2\n  CPU 00 <->    N/A   48.1  48.2\n\n  GPU 00  ->   24.1   N/A  37.5\n";
        let (found, _) = matrix(&clean_lines(text.as_bytes()).0, 0, 0).unwrap();
        assert_eq!(
            found.cells,
            [
                (Host(Some(0)), Gpu(0), 24.1),
                (Host(Some(0)), Gpu(1), 24.2),
                (Gpu(0), Host(Some(0)), 24.1),
                (Gpu(0), Gpu(1), 37.5)
            ]
        );
        assert_eq!((found.count, found.means), (RateCount::OneOfBoth, CopyMeans::Engine));
    }

    #[test]
    fn single_transfers_are_read() {
        let text = "Test 1:\n Executor: GPU 00 |  49.2 GB/s |  1.364 ms |  67108864 bytes | 49.200 GB/s (sum)\n     Transfer 00  |  49.200 GB/s |  1.364 ms |  67108864 bytes | G0 -> GPU00:004 -> G1\n Aggregate (CPU)  |  48.0 GB/s |  1.4 ms |  67108864 bytes | Overhead: 0.04 ms\n";
        let (found, next) = transfers(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (found.len(), found[0].gbs, found[0].destination.as_str(), next),
            (1, 49.2, "G1", 4)
        );
    }
}
