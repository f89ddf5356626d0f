//! OSU's benchmarks: `# OSU MPI-CUDA Bandwidth Test v7.2`, then sizes with MB/s (1e6) or us.

use pathline_schema::Collective;

use crate::clean::{PasteLine, rows_of};
use crate::counts::option_value;
use crate::document::{MessageTable, MessageTest};
use crate::nccl_tests::operation;
use crate::number::{number, whole};
use crate::paste_context::RunTitle;

/// Lines of other text that may stand between header and rows, or between rows.
const MAX_GAP: usize = 12;
/// Lines of ucx_perftest before its last row.
const MAX_BOX: usize = 200;

impl MessageTable {
    /// Whether its rows are times.
    pub const fn is_time(&self) -> bool {
        matches!(self.test, MessageTest::Latency | MessageTest::Group(_))
    }
}

/// A table that begins here.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(MessageTable, usize)> {
    let title = &lines.get(at)?.text;
    let title = title.trim().trim_start_matches(['#', '*', ' ']);
    if let Some(name) = title.strip_prefix("Benchmarking ") {
        return intel(lines, at, name);
    }
    let rest = title.strip_prefix("OSU ")?;
    let test = test(rest)?;
    // Builds for GPUs name their runtime; the line of buffers says more, where it stands.
    let for_gpu = ["MPI-CUDA", "MPI-ROCM", "MPI-HIP"].iter().any(|name| rest.contains(name));
    let on_gpu = for_gpu.then_some((true, true));
    let mut table =
        MessageTable { tool: "OSU Micro-Benchmarks", test, on_gpu, ..MessageTable::default() };
    let (mut last, mut gap) = (at, 0);
    let mut longest_at = None;
    let mut unit = 1e-3;
    for (index, line) in lines.iter().enumerate().skip(at + 1) {
        let text = line.text.trim();
        let is_other = text.trim_start_matches(['#', ' ']).starts_with("OSU ");
        if is_other || RunTitle::parse(text).is_some() {
            break;
        }
        if text.starts_with('#') {
            // `# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)`.
            if text.contains("Buffer on") {
                let mut ends = text.split("Buffer on").skip(1).map(|end| {
                    let end = end.trim_start();
                    end.starts_with("DEVICE") || end.starts_with("MANAGED")
                });
                table.on_gpu = ends.next().zip(ends.next());
            }
            // MB/s counts 1e6; `-u` and forks print GB/s.
            if text.contains("GB/s") {
                unit = 1.0;
            }
            // `# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)`: columns end in their unit.
            let mut columns = text.split("(us)");
            longest_at = columns.position(|column| column.contains("Max ")).or(longest_at);
            (last, gap) = (index, 0);
        } else if let Some(row) = row(text, &table, unit) {
            let longest = longest_at.and_then(|at| text.split_whitespace().nth(at + 1));
            table.longest.extend(longest.and_then(number).map(|us| (row.0, us)));
            table.rows.push(row);
            (last, gap) = (index, 0);
        } else if !text.is_empty() {
            gap += 1;
            if gap > MAX_GAP || (!table.rows.is_empty() && gap > 3) {
                break;
            }
        }
    }
    (!table.rows.is_empty()).then_some((table, last + 1))
}

/// Intel's MPI Benchmarks: `# Benchmarking PingPong`, then rows of bytes, repetitions, us and MB/s (1e6).
fn intel(lines: &[PasteLine], at: usize, name: &str) -> Option<(MessageTable, usize)> {
    let test = match name.split_whitespace().next()? {
        "PingPong" | "PingPongSpecificSource" | "PingPing" | "Uniband" | "Unidir_put" => {
            MessageTest::OneWay
        }
        "Sendrecv" | "Exchange" | "Biband" => MessageTest::BothWays,
        _ => return None,
    };
    let mut before: Option<f64> = None;
    let row = |text: &str| {
        let values: Vec<f64> = text.split_whitespace().map_while(number).take(8).collect();
        let is_row = values.len() >= 4 && text.split_whitespace().next().and_then(whole).is_some();
        match (values.first(), values.last()) {
            (Some(&bytes), Some(&rate))
                if is_row && bytes >= before.unwrap_or(0.0) && rate >= 0.0 =>
            {
                before = Some(bytes);
                Some(Some((bytes as u64, rate * 1e-3)))
            }
            _ if before.is_none() => Some(None),
            _ => None,
        }
    };
    let (rows, next) = rows_of(lines, at + 1, 80, row);
    let table =
        MessageTable { tool: "Intel MPI Benchmarks", test, rows, ..MessageTable::default() };
    (!table.rows.is_empty()).then_some((table, next))
}

/// ucx_perftest: a box that names the test, its memory and size, then rows of stages. The last one counts;
/// its MB is 2^20 B.
pub(crate) fn ucx_perftest(lines: &[PasteLine], at: usize) -> Option<(MessageTable, usize)> {
    let text = lines.get(at)?.text.trim();
    // A run that was cut ends in a line of a stage.
    let is_stage =
        |at: usize| lines.get(at).is_some_and(|line| line.text.trim().starts_with("[thread "));
    let is_last = |at: usize| {
        let next = lines.get(at + 1).map_or("", |line| line.text.trim());
        is_stage(at) && !is_stage(at + 1) && !next.starts_with("Final:")
    };
    // Before 1.12 the rows of its box have no word: iterations, three times, four rates.
    let is_bare = |at: usize| {
        let mut words = lines.get(at).into_iter().flat_map(|line| line.text.split_whitespace());
        words.clone().count() == 8 && words.all(|word| number(word).is_some())
    };
    let in_box = || {
        let above = lines.get(at.saturating_sub(MAX_BOX)..at).unwrap_or_default();
        above.iter().any(|line| line.text.contains("# iterations |"))
    };
    let last = text.strip_prefix("Final:");
    let last = last.or((is_bare(at) && !is_bare(at + 1) && in_box()).then_some(text));
    let last =
        last.or_else(|| text.split_once(']').filter(|_| is_last(at)).map(|(_, rest)| rest))?;
    let values: Vec<f64> = last.split_whitespace().map_while(number).take(12).collect();
    // Iterations, three times in us, two rates, two rates of messages; of both the overall one counts.
    let (Some(&time), Some(&rate)) =
        (values.get(3).or(values.get(2)), values.get(5).or(values.get(4)))
    else {
        return None;
    };
    let rate = rate + other_threads(lines, at);
    let (mut bytes, mut is_latency, mut memory) = (0, false, [None; 2]);
    for line in lines.get(at.saturating_sub(MAX_BOX)..at).unwrap_or_default() {
        // Of a command the size and the kind of test; the box says them again, where it is printed.
        if line.text.contains("ucx_perftest") {
            let words: Vec<&str> = line.text.split_whitespace().take(64).collect();
            bytes = option_value(&words, &["-s"]).and_then(product).unwrap_or(bytes);
            is_latency = option_value(&words, &["-t"]).map_or(is_latency, |t| t.ends_with("_lat"));
        }
        let text = line.text.trim_matches(['|', ' ', '+', '-']);
        let Some((name, value)) = text.split_once(':') else { continue };
        let value = value.trim();
        let is_gpu = || Some(!value.starts_with("host"));
        match name.trim() {
            "Test" => is_latency = value.contains("latency"),
            "Message size" => bytes = value.split_whitespace().next().and_then(whole).unwrap_or(0),
            "Send memory" => memory[0] = is_gpu(),
            "Recv memory" => memory[1] = is_gpu(),
            _ => {}
        }
    }
    let value = if is_latency { time } else { rate * (1u64 << 20) as f64 / 1e9 };
    let table = MessageTable {
        tool: "ucx_perftest",
        test: if is_latency { MessageTest::Latency } else { MessageTest::OneWay },
        on_gpu: memory[0].zip(memory[1]),
        rows: vec![(bytes, value)],
        intervals: if is_latency { Vec::new() } else { intervals(lines, at) },
        ..MessageTable::default()
    };
    (value > 0.0).then_some((table, at + 1))
}

/// `8388608`, `$((1024*1024*100))`.
fn product(size: &str) -> Option<u64> {
    let factors = size.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))"));
    let factors = factors.unwrap_or(size).split('*').map(whole);
    factors.take(8).try_fold(1_u64, |product, factor| product.checked_mul(factor?))
}

/// The rates of the intervals above the last line of one thread.
fn intervals(lines: &[PasteLine], at: usize) -> Vec<f64> {
    let before = lines.get(at.saturating_sub(MAX_BOX)..=at).unwrap_or_default().iter().rev();
    let rate = |line: &PasteLine| {
        let (_, rest) = line.text.trim().strip_prefix("[thread 0]")?.split_once(' ')?;
        let values: Vec<f64> = rest.split_whitespace().map_while(number).take(12).collect();
        Some(values.get(4)? * (1u64 << 20) as f64 / 1e9)
    };
    let last = before.skip_while(|line| line.text.trim().starts_with("Final:"));
    let mut rates: Vec<f64> = last.map_while(rate).collect();
    rates.reverse();
    rates
}

/// The overall rates of other threads that end above this line, as the tool prints them.
fn other_threads(lines: &[PasteLine], at: usize) -> f64 {
    let stage = |line: &PasteLine| {
        let (thread, rest) = line.text.trim().strip_prefix("[thread ")?.split_once(']')?;
        let values: Vec<f64> = rest.split_whitespace().map_while(number).take(12).collect();
        Some((whole(thread)?, *values.get(5)?))
    };
    let Some((own, _)) = lines.get(at).and_then(stage) else { return 0.0 };
    let before = lines.get(at.saturating_sub(MAX_BOX)..at).unwrap_or_default().iter().rev();
    let mut known = vec![own];
    let mut sum = 0.0;
    for (thread, rate) in before.map_while(stage) {
        // A thread that stands twice printed an interval.
        if known.contains(&thread) {
            return 0.0;
        }
        known.push(thread);
        sum += rate;
    }
    sum
}

fn test(title: &str) -> Option<MessageTest> {
    let has = |names: [&str; 2]| names.iter().any(|name| title.contains(name));
    match collective(title) {
        _ if has(["Bi-Directional Bandwidth", "Bidirectional Bandwidth"]) => {
            Some(MessageTest::BothWays)
        }
        _ if has(["Multiple Bandwidth", "Message Rate"]) => Some(MessageTest::MultiPair),
        Some(op) => Some(MessageTest::Group(op)),
        None if title.contains("Bandwidth") => Some(MessageTest::OneWay),
        None => title.contains("Latency").then_some(MessageTest::Latency),
    }
}

/// `MPI-CUDA Allreduce Latency Test`, `NCCL All-to-All Personalized Exchange`.
fn collective(title: &str) -> Option<Collective> {
    let plain = title.replace(['-', '_'], "").to_lowercase();
    let plain = plain.replace("alltoall personalized", "alltoall");
    operation(&plain).or(plain.contains("barrier").then_some(Collective::Barrier))
}

fn row(text: &str, table: &MessageTable, unit: f64) -> Option<(u64, f64)> {
    let mut words = text.split_whitespace();
    let bytes = whole(words.next()?)?;
    let value = number(words.next()?)?;
    // A row has few columns, all of them numbers: text that begins with a number is none.
    if words.any(|word| number(word).is_none() && word != "Pass" && word != "-") {
        return None;
    }
    if table.rows.last().is_some_and(|&(before, _)| bytes < before) || value < 0.0 {
        return None;
    }
    Some((bytes, if table.is_time() { value } else { value * unit }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn titles_name_the_tests() {
        let test = |title: &str| {
            let text = format!("# OSU {title} v7.2\n# Size  x\n8 10.0\n16 20.0\n");
            read(&clean_lines(text.as_bytes()).0, 0).map(|(table, _)| (table.test, table.rows[1].1))
        };
        assert_eq!(test("MPI-CUDA Bandwidth Test"), Some((MessageTest::OneWay, 0.02)));
        assert_eq!(test("MPI Bi-Directional Bandwidth Test"), Some((MessageTest::BothWays, 0.02)));
        assert_eq!(test("MPI Latency Test"), Some((MessageTest::Latency, 20.0)));
        assert_eq!(
            test("MPI Multiple Bandwidth / Message Rate Test"),
            Some((MessageTest::MultiPair, 0.02))
        );
        let group = MessageTest::Group(Collective::AllReduce);
        assert_eq!(test("MPI-ROCM Allreduce Latency Test"), Some((group, 20.0)));
    }

    #[test]
    fn the_last_row_of_ucx_perftest_counts() {
        let text = "| Test:         tag match bandwidth       |\n| Send memory:  cuda                  |\n\
                    | Recv memory:  cuda                       |\n| Message size: 8388608                |\n\
                    [thread 0]   64  301.1  322.9  322.9  24775.6 24775.6  3097  3097\n\
                    Final:       100 301.1  322.9  322.9  24775.6 24775.6  3097  3097\n";
        let (table, _) = ucx_perftest(&clean_lines(text.as_bytes()).0, 5).unwrap();
        // 24775.6 x 2^20 = 25.98e9 B/s.
        assert!((table.rows[0].1 - 25.979).abs() < 1e-3 && table.rows[0].0 == 8 << 20);
        assert_eq!((table.on_gpu, table.test), (Some((true, true)), MessageTest::OneWay));
        let text = "$ ucx_perftest -t tag_lat -s 8192 n7\nFinal: 1000 2.1 2.3 2.4 3400.1 3300.2 430000 420000\n";
        let (table, _) = ucx_perftest(&clean_lines(text.as_bytes()).0, 1).unwrap();
        assert_eq!((table.test, table.rows[0]), (MessageTest::Latency, (8192, 2.4)));
    }

    #[test]
    fn memory_comes_from_the_header() {
        let text = "# OSU MPI-CUDA Bandwidth Test v5.9\n\
                    # Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n\
                    # Size      Bandwidth (MB/s)\n1  1,01\n4194304  87543.13\nthe end\n";
        let (table, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((table.on_gpu, next), (Some((true, false)), 5));
        assert_eq!(table.rows, [(1, 0.00101), (4194304, 87.54313)]);
    }
}
