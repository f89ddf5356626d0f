//! elbencho's results as text and JSON, the rows of IOR, the lines of gdsio and hdparm, and the last one of dd.

use serde_json::Value;

use crate::clean::PasteLine;
use crate::counts::option_value;
use crate::document::FileIoResult;
use crate::number::{MIB_GBS, micros, number, rate_unit};

/// A phase of elbencho: `OPERATION  RESULT TYPE  FIRST DONE  LAST DONE` and its rows.
pub(crate) fn elbencho(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let first = lines.get(at)?.text.trim();
    if !(first.starts_with("OPERATION") && first.contains("RESULT TYPE")) {
        return None;
    }
    let is_rule = |at: usize| lines.get(at).is_some_and(|line| line.text.trim().starts_with("---"));
    let (mut found, mut last) = (Vec::<FileIoResult>::new(), at);
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(400) {
        let text = line.text.trim();
        if text.is_empty() || text.starts_with('=') {
            continue;
        }
        // Phases follow each other under one header: MKDIRS, WRITE, READ, RMFILES.
        if is_rule(index) {
            last = index;
            continue;
        }
        let Some((label, values)) = text.split_once(':') else { break };
        let value = values.split_whitespace().next_back().and_then(number);
        // Each phase begins with its name and `Elapsed time` or, in older versions, `Elapsed ms`.
        let what = label.trim();
        let operation = what.split_once("Elapsed").map(|(name, _)| name.trim());
        let operation = operation.filter(|name| !name.is_empty() && !name.contains(' '));
        if let Some(operation) = operation {
            found.push(FileIoResult::new("elbencho", operation, 0.0));
        } else if is_rule(index.saturating_sub(1)) {
            break;
        }
        let Some(result) = found.last_mut() else { break };
        let unit = if what.contains("MiB") { MIB_GBS } else { 1e-3 };
        match (what, value) {
            ("Throughput MiB/s" | "MiB/s total" | "Throughput MB/s" | "MB/s total", Some(rate)) => {
                result.gbs = rate * unit;
                let both: Vec<f64> = values.split_whitespace().filter_map(number).collect();
                let first = both.first().filter(|_| both.len() == 2);
                result.first_done_gbs = first.map(|first| first * unit);
            }
            ("MiB/s write" | "MB/s write", Some(rate)) => {
                result.mixed.get_or_insert_default().0 = rate * unit;
            }
            ("MiB/s read" | "MB/s read", Some(rate)) => {
                result.mixed.get_or_insert_default().1 = rate * unit;
            }
            ("IOPS" | "IOPS total", value) => result.iops = value,
            ("Files total", Some(value)) if (1.0..4e9).contains(&value) => {
                result.files = Some(value as u32)
            }
            ("Time ms each", _) => {
                let words = values.split_whitespace().take(4096);
                result.worker_ms = words.filter_map(number).filter(|ms| *ms > 0.0).collect();
            }
            // Newer versions print units: `avg=1.2ms`.
            _ if what.starts_with("IO lat us") || what == "IO latency" => {
                let mean = values.split("avg=").nth(1).and_then(|v| v.split_whitespace().next());
                let micros = mean.and_then(|word| number(word).or_else(|| micros(word)));
                result.latency_us = micros.or(result.latency_us);
            }
            _ => {}
        }
        last = index;
    }
    found.retain(|result| result.gbs > 0.0);
    (!found.is_empty()).then_some((found, last + 1))
}

/// elbencho's `--jsonfile`: an object for each phase, whose keys are the columns of its CSV file, or a list
/// of them. Values are numbers or texts.
pub(crate) fn elbencho_json(root: &Value) -> Vec<FileIoResult> {
    let all = match root {
        Value::Array(all) => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    let phase = |phase: &Value| {
        let text = |key: &str| phase.get(key).and_then(Value::as_str).unwrap_or_default();
        let value = |key: &str| {
            let value = phase.get(key)?;
            value.as_f64().or_else(|| number(value.as_str()?)).filter(|v| *v >= 0.0)
        };
        let count = |key: &str| value(key).filter(|v| *v >= 1.0 && *v < 4e9).map(|v| v as u32);
        let mib = value("MiB/s [last]").or(value("MiB/s [first]")).filter(|v| *v > 0.0)?;
        let words = text("command").split_whitespace();
        let path = words.rev().find(|word| word.contains('/'));
        let first = value("MiB/s [first]").filter(|first| *first > 0.0);
        Some(FileIoResult {
            iops: value("IOPS [last]"),
            latency_us: value("IO lat us [avg]").filter(|us| *us > 0.0),
            workers: count("threads"),
            depth: count("IO depth"),
            block: value("block size").filter(|b| *b >= 1.0).map(|b| b as u64),
            files: count("files"),
            direct: value("direct IO").map(|on| on > 0.0),
            path: path.unwrap_or_default().to_owned(),
            first_done_gbs: first.map(|first| first * (1u64 << 20) as f64 / 1e9),
            ..FileIoResult::new("elbencho", text("operation"), mib * (1u64 << 20) as f64 / 1e9)
        })
    };
    all.iter().take(4096).filter_map(phase).collect()
}

/// `IoType: READ XferType: GPUD Threads: 4 DataSetSize: .. IOSize: 1024(KiB) Throughput: 6.6 GiB/sec,
/// Avg_Latency: 589.4 usecs`, on one line or two; all such lines that follow each other.
pub(crate) fn gdsio(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let mut line = lines.get(at)?.text.trim().to_owned();
    if line.contains("Throughput:") && line.contains("Avg_Latency:") && !line.contains("IoType:") {
        line.insert_str(0, &options_of_gdsio(lines, at)?);
    }
    if !line.contains("IoType:") || !line.contains("XferType:") {
        return None;
    }
    let mut next = at + 1;
    if !line.contains("Throughput:") {
        line.push(' ');
        line.push_str(lines.get(next)?.text.trim());
        next += 1;
    }
    let word = |name: &str| line.split_once(name)?.1.split_whitespace().next();
    let value = |name: &str| word(name).map(|w| w.trim_end_matches(',')).and_then(number);
    let (_, rest) = line.split_once("Throughput:")?;
    let mut words = rest.split_whitespace();
    let rate = number(words.next()?)? * rate_unit(words.next()?.trim_end_matches(','))?;
    let engine = word("XferType:")?.to_owned();
    let size = word("IOSize:").and_then(|w| w.split(['(', '-']).next()?.parse::<u64>().ok());
    let result = FileIoResult {
        latency_us: value("Avg_Latency:").filter(|us| *us > 0.0),
        workers: value("Threads:").filter(|n| *n >= 1.0 && *n < 4e9).map(|n| n as u32),
        depth: Some(1),
        block: size.and_then(|kib| kib.checked_mul(1024)),
        direct: Some(true),
        gpu_direct: engine.starts_with("GPU"),
        staged: engine.starts_with("CPU_"),
        engine,
        ..FileIoResult::new("gdsio", word("IoType:")?, rate)
    };
    (result.gbs > 0.0).then_some((vec![result], next))
}

/// `IoType: READ XferType: GPUD ` by the command above a result that was pasted without its beginning: `-I 0` reads,
/// `-x 2` goes through host memory.
fn options_of_gdsio(lines: &[PasteLine], at: usize) -> Option<String> {
    let above = lines.get(at.saturating_sub(3)..at)?.iter().rev();
    let text =
        above.map(|line| line.text.as_str()).take_while(|text| !text.contains("Throughput:"));
    let text = text.collect::<Vec<_>>().join(" ");
    let words: Vec<&str> = text.split([' ', '`', '=']).filter(|word| !word.is_empty()).collect();
    let option = |name: &str| option_value(&words, &[name]);
    let kind = match option("-x") {
        _ if text.contains("CPU_GPU") => "CPU_GPU",
        Some("0") => "GPUD",
        Some("2") => "CPU_GPU",
        _ => return None,
    };
    let reads =
        option("-I").map_or(!text.to_lowercase().contains("write"), |way| way == "0" || way == "2");
    let way = if reads { "READ" } else { "WRITE" };
    Some(format!("IoType: {way} XferType: {kind} "))
}

/// dd's last line: `10737418240 bytes (11 GB, 10 GiB) copied, 5.5149 s, 1.9 GB/s`.
pub(crate) fn dd(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let text = lines.get(at)?.text.trim();
    let (bytes, rest) = text.split_once(" copied, ")?;
    let bytes = number(bytes.split_once(" bytes")?.0)?;
    let mut parts = rest.split(", ");
    let seconds = number(parts.next()?.split(' ').next()?)?;
    let gbs = bytes / seconds.max(1e-9) / 1e9;
    let result = FileIoResult::new("dd", "copy", gbs);
    let is_last = lines.iter().skip(at + 1).take(4).all(|line| !line.text.contains(" copied, "));
    (gbs > 0.0 && is_last && parts.next().is_some()).then_some((vec![result], at + 1))
}

/// hdparm: `Timing buffered disk reads: 1612 MB in  3.00 seconds = 536.90 MB/sec`; its MB is 2^20 B.
pub(crate) fn hdparm(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let (what, rest) = lines.get(at)?.text.trim().strip_prefix("Timing ")?.split_once(" reads:")?;
    let (value, unit) = rest.rsplit_once("= ")?.1.split_once(' ')?;
    let gbs = number(value)? * rate_unit(unit)? * 1.048_576;
    let result = FileIoResult::new("hdparm", format!("{what} read"), gbs);
    let is_cached = what.contains("cached") && !what.contains("disk");
    let result = FileIoResult { is_cached, ..result };
    Some((vec![result], at + 1))
}

/// IOR: `access    bw(MiB/s)  IOPS  Latency(s)  block(KiB) xfer(KiB)  open(s) ...` and its rows, of which the best of
/// each operation counts; tasks and sizes stand above.
pub(crate) fn ior(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let names: Vec<&str> = lines.get(at)?.text.split_whitespace().collect();
    let column = |name: &str| names.iter().position(|known| *known == name);
    let rate = column("bw(MiB/s)").filter(|_| names.first() == Some(&"access"))?;
    let option = |name: &str| {
        let above = lines.get(at.saturating_sub(64)..at)?.iter().rev();
        let mut found = above.filter_map(|line| line.text.split_once(':'));
        found.find_map(|(key, value)| (key.trim() == name).then(|| value.trim()))
    };
    let first = |text: &str| text.split([' ', '(']).next().and_then(|word| word.parse().ok());
    let (mut found, mut next) = (Vec::<FileIoResult>::new(), at + 1);
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(400) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let value = |at: Option<usize>| at.and_then(|at| number(words.get(at)?));
        let Some(mib) = value(Some(rate)).filter(|mib| *mib > 0.0) else {
            if words.first().is_none_or(|word| word.starts_with('-')) {
                continue;
            }
            break;
        };
        next = index + 1;
        let result = FileIoResult {
            iops: value(column("IOPS")),
            workers: option("tasks").or(option("clients")).and_then(first),
            depth: Some(1),
            block: value(column("xfer(KiB)")).map(|kib| (kib * 1024.0) as u64),
            path: option("test filename").unwrap_or_default().to_owned(),
            ..FileIoResult::new("IOR", *words.first()?, mib * MIB_GBS)
        };
        match found.iter_mut().find(|known| known.operation == result.operation) {
            Some(known) if known.gbs < result.gbs => *known = result,
            Some(_) => {}
            None => found.push(result),
        }
    }
    (!found.is_empty()).then_some((found, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    /// A phase without bytes stands first; 252 files of 1 MiB blocks: 32366 MiB/s x 2^20 = 33.94e9 B/s.
    #[test]
    fn phases_of_elbencho_follow_each_other() {
        let text = "OPERATION RESULT TYPE FIRST DONE LAST DONE\n=== === === ===\n\
                    MKDIRS  Elapsed time : 11ms 13ms\n        Dirs/s : 2909 2461\n---\n\
                    WRITE   Elapsed time : 10.4s 12.6s\n        Throughput MiB/s : 39277 32366\n---\n\
                    READ    Elapsed time : 8.0s 8.1s\n        Throughput MiB/s : 51123 50449\n---\nthanks: all\n";
        let (found, next) = elbencho(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let phases: Vec<&str> = found.iter().map(|phase| phase.operation.as_str()).collect();
        assert_eq!((phases, next), (vec!["WRITE", "READ"], 11));
        assert!((found[0].gbs - 33.938).abs() < 1e-3 && found[0].depth.is_none());
    }

    /// 900 + 2100 = 3000 MB/s of 1e6 B; a phase of deletions has no bytes.
    #[test]
    fn mixed_phases_and_units_of_elbencho_are_read() {
        let text = "OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n=== === === ===\n\
                    RWMIX70     Elapsed time     :      2.1s       2.2s\n            IOPS total       :  31000  30000\n\
                    \u{20}           MB/s write       :    950   900\n            MB/s read        :   2200  2100\n\
                    \u{20}           MB/s total       :   3150  3000\n            IO latency       : [ min=80us avg=1.5ms max=9ms ]\n---\n\
                    MIX-T4      Elapsed ms       :     2100       2200\n            Throughput MiB/s :   100   100\n---\n\
                    RMFILES     Elapsed time     :     10ms       11ms\n            Files/s          :   2000  1900\n---\n";
        let (found, _) = elbencho(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let of = |at: usize| (found[at].operation.as_str(), found[at].gbs);
        assert_eq!((found.len(), of(0), of(1).0), (2, ("RWMIX70", 3.0), "MIX-T4"));
        assert_eq!((found[0].latency_us, found[0].iops), (Some(1500.0), Some(30000.0)));
    }

    /// 536.9 x 2^20 = 563e6; 10240 MiB/s x 2^20 = 10.74e9.
    #[test]
    fn ior_and_hdparm_are_read() {
        let text = "tasks : 64\nOptions:\naccess bw(MiB/s) IOPS block(KiB) xfer(KiB) iter\n------ ---- ----\n\
                    write 5120 5120 4194304 1024.00 0\nread 9000 9000 4194304 1024.00 0\n\
                    read 10240 10240 4194304 1024.00 1\n\nMax Write: 5120 MiB/sec\n";
        let (found, next) = ior(&clean_lines(text.as_bytes()).0, 2).unwrap();
        let read = &found[1];
        assert_eq!((found.len(), read.workers, read.block, next), (2, Some(64), Some(1 << 20), 7));
        assert!((read.gbs - 10.737).abs() < 1e-3 && read.operation == "read");
        let text = " Timing buffered disk reads: 1612 MB in  3.00 seconds = 536.90 MB/sec";
        let found = hdparm(&clean_lines(text.as_bytes()).0, 0).unwrap().0;
        assert!((found[0].gbs - 0.563).abs() < 1e-3 && !found[0].is_cached);
    }

    #[test]
    fn elbencho_is_read() {
        let text = "OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n=========== ================    ==========   =========\nREAD        Elapsed time      :      1.0s       1.2s\n            IOPS              :     16000      17000\n            Throughput MiB/s  :     16384      17408\n            IO lat us avg     : [ min=10 avg=60 max=90 ]\n---\n";
        let (found, next) = elbencho(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (found[0].operation.as_str(), found[0].iops, found[0].latency_us, next),
            ("READ", Some(17000.0), Some(60.0), 7)
        );
        assert!((found[0].gbs - 18.2536).abs() < 1e-3);
    }

    #[test]
    fn gdsio_and_elbencho_json_are_read() {
        let text = "IoType: READ XferType: GPUD Threads: 4 DataSetSize: 104837120/104857600(KiB) IOSize: \
            1024(KiB) Throughput: 6.622534 GiB/sec, Avg_Latency: 589.436984 usecs ops: 102380 total_time \
            15.097011 secs\n";
        let (found, next) = gdsio(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let io = &found[0];
        assert_eq!((io.workers, io.block, io.gpu_direct, next), (Some(4), Some(1 << 20), true, 1));
        // 6.622534 x 2^30 / 1e9.
        assert!((io.gbs - 7.1109).abs() < 1e-3 && io.latency_us == Some(589.436984));
        let staged = text.replace("GPUD", "CPU_GPU").replace(" IOSize", "\nIOSize");
        let (found, next) = gdsio(&clean_lines(staged.as_bytes()).0, 0).unwrap();
        assert_eq!((found[0].staged, found[0].gpu_direct, next), (true, false, 2));
        let short =
            "gdsio -w 8 -x 0 -I 0\n`Throughput: 6.885191 GiB/sec, Avg_Latency: 27231.0 usecs`\n";
        let (found, _) = gdsio(&clean_lines(short.as_bytes()).0, 1).unwrap();
        assert_eq!((found[0].gpu_direct, found[0].operation.as_str()), (true, "READ"));
        let text = r#"[{"label":"","operation":"READ","threads":"8","block size":"1048576",
            "direct IO":"1","IO depth":"4","IOPS [last]":"9048","MiB/s [last]":"9048",
            "IO lat us [avg]":"3223"},{"operation":"MKDIRS","MiB/s [last]":""}]"#;
        let found = elbencho_json(&serde_json::from_str(text).unwrap());
        assert_eq!((found.len(), found[0].depth, found[0].direct), (1, Some(4), Some(true)));
        // 9048 x 2^20 / 1e9.
        assert!((found[0].gbs - 9.4875).abs() < 1e-3);
    }
}
