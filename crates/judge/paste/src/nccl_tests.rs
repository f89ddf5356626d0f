//! nccl-tests and rccl-tests: text (`src/common.cu`, `src/util.cu` of nccl-tests) and `-J` JSON.

use pathline_schema::Collective;
use serde_json::Value;

use crate::clean::PasteLine;
use crate::document::{CollectiveRow, CollectiveTable, TestDevice};
use crate::number::{number, whole};

/// Element types as the tools name them, with RCCL's and NCCL's names of 8 bits.
const TYPES: [&str; 18] = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
    "char", "int", "fp16", "fp32", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2",
];
const OPS: [&str; 8] = ["sum", "prod", "max", "min", "avg", "mulsum", "all", "none"];
/// Lines between two rows that end a table: logs of several ranks may stand between rows.
const MAX_GAP: usize = 40;
/// Lines of a header before its devices or rows.
const MAX_HEADER: usize = 60;

/// A table that begins here.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(CollectiveTable, usize)> {
    let first = &lines.get(at)?.text;
    if !is_header(first) && row(first).is_none() {
        return None;
    }
    let mut table = CollectiveTable::default();
    let (mut last, mut gap) = (at, 0);
    for (index, line) in lines.iter().enumerate().skip(at) {
        let text = line.text.trim();
        let begun = !table.rows.is_empty() || !table.devices.is_empty();
        if index > at && begun && begins_run(text) {
            break;
        }
        if !begun && index > at + MAX_HEADER {
            break;
        }
        if header(&mut table, text) {
            (last, gap) = (index, 0);
            if text.contains("Avg bus bandwidth") {
                break;
            }
        } else if let Some((next, wrong)) = row(text) {
            // Sizes grow: a smaller one is the next table, whose header was lost. Ranks without MPI
            // print their rows in turn, and each size several times.
            if table.rows.last().is_some_and(|row| next.bytes < row.bytes / 64) {
                break;
            }
            table.rows.push(next);
            table.wrong += wrong;
            (last, gap) = (index, 0);
        } else if !text.is_empty() {
            gap += 1;
            if gap > MAX_GAP {
                break;
            }
        }
    }
    if table.rows.is_empty() && table.average_busbw.is_none() && table.devices.is_empty() {
        return None;
    }
    finish(&mut table);
    Some((table, last + 1))
}

fn is_header(text: &str) -> bool {
    begins_run(text)
        || text.contains("rccl-tests: Version")
        || text.contains("Avg bus bandwidth")
        || device(text.trim_start_matches(['#', ' '])).is_some()
}

/// Whether a line starts a run of the tool.
fn begins_run(text: &str) -> bool {
    (text.contains("nThread") && text.contains("nGpus"))
        || text.contains("Collective test starting:")
        || text.contains("nccl-tests version")
}

/// Takes what a line of the header or the end says.
fn header(table: &mut CollectiveTable, text: &str) -> bool {
    let line = text.trim_start_matches(['#', ' ']);
    if let Some(name) = line.split("Collective test starting:").nth(1) {
        set_program(table, name);
        return true;
    }
    if line.contains("nccl-tests version") || line.contains("rccl-tests: Version") {
        table.is_rccl |= line.contains("rccl-tests");
        return true;
    }
    if line.starts_with("nThread") {
        let mut words = line.split_whitespace().skip_while(|word| *word != "nGpus");
        table.gpus_per_thread = words.nth(1).and_then(|word| word.parse().ok());
        table.runs = table.runs.saturating_add(1);
        return true;
    }
    if let Some(device) = device(line) {
        if table.devices.len() < 65_536 {
            table.is_rccl |= is_amd(&device.name);
            table.devices.push(device);
        }
        return true;
    }
    if let Some(rest) = line.split("Avg bus bandwidth").nth(1) {
        let word = rest.trim_start_matches([' ', ':', '=']).split(' ').next().unwrap_or_default();
        table.average_busbw = number(word.trim_end_matches('.'));
        return true;
    }
    let known = ["Using devices", "Out of bounds values", "out-of-place", "(elements)"];
    let is_columns = line.starts_with("size ") && line.contains("algbw");
    is_columns || known.iter().any(|part| line.contains(part))
}

/// Takes the operation from the name of a program.
pub(crate) fn set_program(table: &mut CollectiveTable, program: &str) {
    let name = program.rsplit('/').next().unwrap_or(program);
    table.is_sendrecv |= name.contains("sendrecv");
    table.op = table.op.or_else(|| operation(name));
}

/// The operation of `all_reduce_perf` and its like.
pub(crate) fn operation(name: &str) -> Option<Collective> {
    let names = [
        ("all_reduce", Collective::AllReduce),
        ("allreduce", Collective::AllReduce),
        ("reduce_scatter", Collective::ReduceScatter),
        ("reducescatter", Collective::ReduceScatter),
        ("all_gather", Collective::AllGather),
        ("allgather", Collective::AllGather),
        ("alltoallv", Collective::AllToAllV),
        ("alltoall", Collective::AllToAll),
        ("all_to_all", Collective::AllToAll),
        ("broadcast", Collective::Broadcast),
        ("bcast", Collective::Broadcast),
        ("gather", Collective::Gather),
        ("scatter", Collective::Scatter),
        ("reduce", Collective::Reduce),
    ];
    let name = name.to_ascii_lowercase();
    names.iter().find(|(part, _)| name.contains(part)).map(|&(_, op)| op)
}

/// `Rank  0 Group  0 Pid 12 on host device  0 [0x18] NVIDIA H100 80GB HBM3`.
fn device(line: &str) -> Option<TestDevice> {
    let rest = line.strip_prefix("Rank")?.trim_start();
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let rank = rest.get(..digits)?.parse().ok()?;
    let (before, after) = rest.split_once(" device")?;
    let host = before.rsplit_once(" on ").map(|(_, host)| host.trim()).unwrap_or_default();
    let after = after.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let name = after.split_once(']').map_or(after, |(_, name)| name).trim();
    Some(TestDevice { rank, host: host.to_owned(), name: name.to_owned() })
}

fn is_amd(name: &str) -> bool {
    ["AMD", "Instinct", "MI2", "MI3", "gfx", "Radeon"].iter().any(|part| name.contains(part))
}

/// A row, with its wrong elements. `[0]` of a launcher may stand between its columns.
fn row(text: &str) -> Option<(CollectiveRow, f64)> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == ' ') {
        return None;
    }
    let is_tag = |word: &&str| word.starts_with('[') && word.ends_with(']');
    // `-1[0]`: the tag glued to a column.
    let plain = |word: &'_ str| word.split('[').next().unwrap_or(word).to_owned();
    let words: Vec<String> =
        text.split_whitespace().filter(|word| !is_tag(word)).map(plain).take(32).collect();
    let mut words = words.iter().map(String::as_str).peekable();
    let bytes = whole(words.next()?)?;
    let count = whole(words.next()?)?;
    let kind = words.next()?;
    if !TYPES.contains(&kind) {
        return None;
    }
    words.next_if(|word| OPS.contains(word));
    let rest: Vec<&str> = words.collect();
    // The root is a whole number of at most three digits, -1 if there is none; old versions lack it. A
    // time has at least as many digits as a group of four columns needs: count decides.
    let groups = |of: &[&str]| of.len() == 4 || of.len() == 8;
    let values = match rest.split_first() {
        Some((root, more)) if root.parse::<i32>().is_ok() && !groups(&rest) => more,
        Some((root, more)) if *root == "-1" => more,
        _ => &rest[..],
    };
    let value = |at: usize| values.get(at).and_then(|word| number(word));
    // NVSHMEM's tests print mean, least and greatest time before the rates.
    let times = (value(0)?, value(1)?, value(2)?);
    let is_spread = values.len() == 5 && times.1 <= times.0 * 1.001 && times.0 <= times.2 * 1.001;
    let (time_us, algbw, busbw) = if is_spread { (times.0, value(3)?, value(4)?) } else { times };
    // Old versions print an error of the sums as `2e-06` or `0e+00`, not a count of wrong elements.
    let errors = |at: usize| {
        let is_error =
            values.get(at).is_some_and(|word| word.contains("e-0") || word.contains("e+0"));
        value(at).filter(|found| !is_error && found.fract() == 0.0).unwrap_or(0.0)
    };
    let wrong = errors(3).max(errors(7));
    let in_place_busbw = value(6).or(value(2));
    let parts = bytes / count.saturating_mul(bytes_of(kind)).max(1);
    let row = CollectiveRow { bytes, time_us, algbw, busbw, in_place_busbw, wrong, parts };
    (time_us >= 0.0 && algbw >= 0.0 && busbw >= 0.0).then_some((row, wrong))
}

/// Bytes of an element.
fn bytes_of(kind: &str) -> u64 {
    match kind {
        "int32" | "uint32" | "float" | "int" | "fp32" => 4,
        "int64" | "uint64" | "double" => 8,
        "half" | "bfloat16" | "fp16" => 2,
        _ => 1,
    }
}

/// What follows from the rows.
pub(crate) fn finish(table: &mut CollectiveTable) {
    // A header may be pasted twice; two processes of one rank each print the same ranks.
    let first = |device: &&TestDevice| device.rank == 0;
    let lists = table.devices.iter().filter(first).count();
    table.runs = table.runs.max(u32::try_from(lists).unwrap_or(u32::MAX));
    let listed = table.devices.iter().map(|device| device.rank.saturating_add(1)).max();
    // busbw / algbw is the factor of the operation: 2(n-1)/n or (n-1)/n. The row with the largest
    // rates has the most digits.
    let best = table.rows.iter().max_by(|a, b| a.algbw.total_cmp(&b.algbw)).copied();
    let factor = best.filter(|row| row.algbw >= 1.0).map(|row| row.busbw / row.algbw);
    let implied = match (table.op, factor) {
        (Some(Collective::AllReduce), Some(f)) => ranks_of(f / 2.0),
        (Some(op), Some(f)) if op.bus_factor(2) < 1.0 => ranks_of(f),
        (None, Some(f)) if f > 1.01 => {
            table.op = Some(Collective::AllReduce);
            ranks_of(f / 2.0)
        }
        (None, Some(f)) if f < 0.99 => ranks_of(f),
        _ => None,
    };
    // Small rates have few digits: the ranks that are listed count, if their factor is that of the rows.
    let share = |n: u32| f64::from(n.saturating_sub(1)) / f64::from(n.max(1));
    let is_listed = implied.zip(listed).is_some_and(|(implied, listed)| {
        (share(implied) / share(listed).max(0.1) - 1.0).abs() < 0.01
    });
    table.ranks = if is_listed { listed } else { implied.or(listed) };
    // Of operations in which each rank has a part, size over count is the number of ranks.
    let parts = best.map_or(0, |row| row.parts);
    if parts > 1 && table.rows.iter().all(|row| row.parts == parts) && !table.is_sendrecv {
        table.ranks = u32::try_from(parts).ok().or(table.ranks);
    }
    // The tool says the ranks that it knows of; a factor of the header's ranks is the rule, unless each
    // process is a communicator of one.
    if best.is_some_and(|row| row.busbw == 0.0 && row.algbw > 0.0) {
        table.ranks = Some(1);
    }
}

/// The n of `share` = (n - 1) / n, if it is a whole one that rounding of the rates leaves certain.
fn ranks_of(share: f64) -> Option<u32> {
    let n = 1.0 / (1.0 - share);
    let near = n.round();
    (n.is_finite() && (2.0..=64.0).contains(&near) && (n - near).abs() < 0.05 * near)
        .then_some(near as u32)
}

/// From `-J`.
pub(crate) fn from_json(root: &Value) -> Option<CollectiveTable> {
    let results = root.get("results")?.as_array()?;
    let mut table = CollectiveTable::default();
    if let Some(program) = root.get("args").and_then(|args| args.get(0)?.as_str()) {
        set_program(&mut table, program);
        table.is_rccl |= program.contains("rccl");
    }
    let devices = root.get("devices").or(root.pointer("/config/devices"));
    for device in devices.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| device.get(key).and_then(Value::as_str).unwrap_or_default();
        let rank = device.get("rank").and_then(Value::as_u64).unwrap_or(0);
        let (host, name) = (text("hostname").to_owned(), text("device_info").to_owned());
        table.is_rccl |= is_amd(&name);
        table.devices.push(TestDevice { rank: u32::try_from(rank).ok()?, host, name });
    }
    let gpus = root.pointer("/config/ngpus").and_then(Value::as_u64);
    table.gpus_per_thread = gpus.and_then(|gpus| u32::try_from(gpus).ok());
    for result in results {
        let busbw_of = |place: &str| result.pointer(&format!("/{place}/bus_bw"))?.as_f64();
        let place = if busbw_of("out_of_place").is_some() { "out_of_place" } else { "in_place" };
        let value = |key: &str| result.get(place)?.get(key)?.as_f64();
        let time = value("time").or(value("cpu_time"));
        let (Some(bytes), Some(time_us), Some(algbw), Some(busbw)) =
            (result.get("size").and_then(Value::as_u64), time, value("alg_bw"), value("bus_bw"))
        else {
            continue;
        };
        let (in_place_busbw, wrong) = (busbw_of("in_place"), value("nwrong").unwrap_or(0.0));
        table.wrong += wrong;
        let row = CollectiveRow { bytes, time_us, algbw, busbw, in_place_busbw, wrong, parts: 0 };
        table.rows.push(row);
    }
    let average = root.get("average_bus_bandwidth").or(root.get("average_bus_bw"));
    table.average_busbw = average.and_then(|a| a.get("bandwidth").unwrap_or(a).as_f64());
    finish(&mut table);
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    fn table(text: &str) -> CollectiveTable {
        let lines = clean_lines(text.as_bytes()).0;
        read(&lines, 0).unwrap().0
    }

    #[test]
    fn every_generation_of_columns_is_read() {
        // 2.17: redop and root; 2.10: redop alone and an error; 2.5: no redop; 2024: N/A.
        for line in [
            "  1048576  262144  float  sum  -1  30.5  34.38  60.16  0  30.1  34.84  60.96  0",
            "  1048576  262144  float  sum      30.5  34.38  60.16  2e-06  30.1  34.84  60.96  1e+00",
            "  1048576  262144  float           30.5  34.38  60.16  N/A  30.1  34.84  60.96  N/A",
            "[0]  1048576  262144  float  sum  -1[0]  30.5  34.38  60.16  0[0]  30.1  34.84  60.96  0",
            "  1048576  262144  float  sum  -1  30,5  34,38  60,16  0  30,1  34,84  60,96  0",
        ] {
            let table = table(line);
            let row = table.rows[0];
            assert_eq!(
                (row.bytes, row.time_us, row.algbw, row.busbw),
                (1 << 20, 30.5, 34.38, 60.16),
                "{line}"
            );
            assert_eq!((row.in_place_busbw, row.wrong), (Some(60.96), 0.0), "{line}");
            // 60.16 / 34.38 = 1.75 = 2 x 7/8.
            assert_eq!((table.op, table.ranks), (Some(Collective::AllReduce), Some(8)), "{line}");
        }
        let gather = table(
            "  1048576  262144  float  none  -1  30.5  34.38  30.08  0  30.1  34.84  30.49  0",
        );
        assert_eq!(gather.op, None, "gather, all_gather and all_to_all share a factor");
    }

    #[test]
    fn a_process_without_mpi_has_one_rank() {
        let text = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024\n# Using devices\n\
                    #   Rank  0 Pid  12 on n1 device  0 [0x18] NVIDIA H100 80GB HBM3\n\
                    1048576  262144  float  sum  -1  6.1  171.9  0.00  0  0.3  3000  0.00  0\n\
                    # Avg bus bandwidth    : 0\n";
        let table = table(text);
        assert_eq!((table.ranks, table.average_busbw), (Some(1), Some(0.0)));
        assert_eq!(table.devices[0].name, "NVIDIA H100 80GB HBM3");
        assert_eq!(table.devices[0].host, "n1");
    }

    #[test]
    fn json_is_read() {
        let text = r#"{"version":1,"args":["./build/all_gather_perf","-g","2"],"config":{"ngpus":2},
            "devices":[{"rank":0,"hostname":"a","device_info":"NVIDIA A100"},
            {"rank":1,"hostname":"a","device_info":"NVIDIA A100"}],
            "results":[{"size":1024,"count":1,"out_of_place":{"time":10.0,"alg_bw":20.0,"bus_bw":10.0,
            "nwrong":0},"in_place":{"time":9.0,"alg_bw":22.0,"bus_bw":11.0,"nwrong":null}}]}"#;
        let table = from_json(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((table.op, table.ranks), (Some(Collective::AllGather), Some(2)));
        assert_eq!(table.rows[0].in_place_busbw, Some(11.0));
    }
}
