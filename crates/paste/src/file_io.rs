//! elbencho's results and fio's, as text and JSON, and the lines of gdsio.

use serde_json::Value;

use crate::clean::PasteLine;
use crate::document::{DeviceUse, FileIoResult};
use crate::fio_lines::{live_rate, take_percentiles, unit_of};
use crate::number::{micros, number, rate_unit, size};

/// A phase of elbencho: `OPERATION  RESULT TYPE  FIRST DONE  LAST DONE` and its rows.
pub(crate) fn elbencho(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let first = lines.get(at)?.text.trim();
    if !(first.starts_with("OPERATION") && first.contains("RESULT TYPE")) {
        return None;
    }
    let (mut found, mut last) = (Vec::<FileIoResult>::new(), at);
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(400) {
        let text = line.text.trim();
        if text.is_empty() || text.starts_with('=') {
            continue;
        }
        // Phases follow each other under one header: MKDIRS, WRITE, READ, RMFILES.
        if text.starts_with("---") {
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
            let operation = operation.to_owned();
            found.push(FileIoResult { tool: "elbencho", operation, ..FileIoResult::default() });
        } else if lines
            .get(index.saturating_sub(1))
            .is_some_and(|l| l.text.trim().starts_with("---"))
        {
            break;
        }
        let Some(result) = found.last_mut() else { break };
        match (what, value) {
            (
                "Throughput MiB/s" | "MiB/s total" | "Throughput MB/s" | "MB/s total",
                Some(value),
            ) => {
                let unit = if what.contains("MiB") { (1u64 << 20) as f64 / 1e9 } else { 1e-3 };
                result.gbs = value * unit;
                let both: Vec<f64> = values.split_whitespace().filter_map(number).collect();
                result.first_done_gbs =
                    both.first().filter(|_| both.len() == 2).map(|first| first * unit);
            }
            ("MiB/s write" | "MB/s write" | "MiB/s read" | "MB/s read", Some(value)) => {
                let unit = if what.starts_with("MiB") { (1u64 << 20) as f64 / 1e9 } else { 1e-3 };
                let (write, read) = result.mixed.unwrap_or_default();
                result.mixed = Some(match what.ends_with("write") {
                    true => (value * unit, read),
                    false => (write, value * unit),
                });
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

/// A job of fio: `job: (g=0): rw=read, bs=(R) 128KiB-128KiB, ..., ioengine=libaio, iodepth=128`, then
/// `read: IOPS=397, BW=49.7MiB/s (52.1MB/s)(4096MiB/82485msec)`.
pub(crate) fn fio(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let first = lines.get(at)?.text.trim();
    let is_job = first.contains("rw=") && first.contains("ioengine=") && first.contains("bs=")
        || first.contains("(groupid=") && first.contains("err=");
    if !is_job && result(first).is_none() {
        return None;
    }
    let mut job = FileIoResult { tool: "fio", ..FileIoResult::default() };
    let mut percentile_unit = 1.0;
    let (mut found, mut last) = (Vec::<FileIoResult>::new(), at);
    let mut is_over = false;
    for (index, line) in lines.iter().enumerate().skip(at).take(120) {
        let text = line.text.trim();
        if index > at && text.contains("ioengine=") && text.contains("rw=") {
            // Another job; its results follow those of this one.
            if !found.is_empty() {
                break;
            }
        }
        if text.contains("ioengine=") {
            let value = |name: &str| {
                let rest = text.split_once(name)?.1;
                rest.split([',', ' ', ';']).next().filter(|v| !v.is_empty())
            };
            job.engine = value("ioengine=").unwrap_or_default().to_owned();
            job.depth = value("iodepth=").and_then(|v| v.parse().ok());
            let block = text.split("(R) ").nth(1).and_then(|b| b.split(['-', ',']).next());
            job.block = block.or(value("bs=")).and_then(size);
            job.gpu_direct = job.engine == "libcufile";
            // The command has what the line of the job lacks.
            if let Some(path) = value("filename=").or(value("directory=")) {
                path.clone_into(&mut job.path);
            }
            job.direct = value("direct=").map(|on| on == "1").or(job.direct);
            last = index;
        } else if let Some((_, jobs)) = text.split_once("jobs=")
            && text.contains("groupid=")
        {
            job.workers = jobs.split(')').next().and_then(|n| n.parse().ok());
            last = index;
        } else if let Some((operation, gbs, iops)) = result(text) {
            let intervals = std::mem::take(&mut job.intervals);
            found.push(FileIoResult { operation, gbs, iops, intervals, ..job.clone() });
            last = index;
        } else if let Some(rate) = live_rate(text) {
            // A second of a run, above or below its result.
            let second = (job.intervals.len() as u64 + 1) * 1000;
            job.intervals.push((second, rate));
            last = index;
        } else if text.contains("percentiles (") {
            percentile_unit = unit_of(text.split_once('(').map_or("", |(_, unit)| unit));
            last = index;
        } else if text.contains("th=[")
            && let Some(result) = found.last_mut()
        {
            take_percentiles(result, text, percentile_unit);
            last = index;
        } else if let Some((_, depth)) = text.split_once(", depth=") {
            let depth = depth.parse().ok();
            found.iter_mut().for_each(|result| result.depth = result.depth.or(depth));
            last = index;
        } else if text.starts_with("lat (") {
            let unit = unit_of(text.get(5..).unwrap_or_default());
            let mean = text.split("avg=").nth(1).and_then(|v| v.split(',').next());
            let mean = mean.and_then(|v| number(v.trim())).map(|v| v * unit);
            if let Some(result) = found.last_mut() {
                result.latency_us = result.latency_us.or(mean);
            }
            last = index;
        } else if !found.is_empty() && is_detail(text) {
            last = index;
        }
        is_over |= text.starts_with("Run status");
        if is_over && !text.is_empty() && !is_detail(text) {
            break;
        }
    }
    (!found.is_empty()).then_some((found, last + 1))
}

/// Whether a line of fio below a result has nothing that is used.
fn is_detail(text: &str) -> bool {
    FIO_DETAILS.lines().any(|start| text.starts_with(start))
        || text.contains(": ios=") && text.contains("util=")
}

/// What lines of fio begin with that stand below a result and are not used (`stat.c`).
const FIO_DETAILS: &str = concat!(
    "Disk stats\nslat (\nclat (\nclat percentiles\nlat percentiles\n|",
    "\nbw (\niops  \nlat (usec)   :\ncpu  \nIO depths  \nsubmit  \ncomplete  \nissued rwts\nlatency  \nRun status\nREAD: bw=\nWRITE: bw=",
);

/// `read: IOPS=81.7k, BW=319MiB/s (335MB/s)`.
fn result(text: &str) -> Option<(String, f64, Option<f64>)> {
    let (operation, rest) = text.split_once(": IOPS=")?;
    if !["read", "write", "trim"].contains(&operation.trim()) {
        return None;
    }
    let iops = rest.split(',').next().and_then(|value| {
        let scale = if value.ends_with('k') {
            1e3
        } else if value.ends_with('M') {
            1e6
        } else {
            1.0
        };
        number(value.trim_end_matches(['k', 'M'])).map(|value| value * scale)
    });
    let rate = rest.split_once("BW=")?.1.split(['(', ' ', ',']).next()?;
    let end = rate.find(|c: char| c.is_ascii_alphabetic())?;
    let gbs = number(rate.get(..end)?)? * rate_unit(rate.get(end..)?)?;
    Some((operation.trim().to_owned(), gbs, iops))
}

/// fio's `--output-format=json`.
pub(crate) fn fio_json(root: &Value) -> Vec<FileIoResult> {
    let mut found = Vec::new();
    let jobs = root.get("jobs").and_then(Value::as_array);
    let devices = fio_devices(root);
    let mut names = Vec::new();
    for job in jobs.into_iter().flatten().take(4096) {
        let option = |name: &str| {
            let own = job.get("job options").and_then(|options| options.get(name));
            let all = || root.get("global options").and_then(|options| options.get(name));
            own.or_else(all).and_then(Value::as_str)
        };
        for operation in ["read", "write"] {
            let Some(side) = job.get(operation) else { continue };
            let value = |name: &str| side.get(name).and_then(Value::as_f64);
            // `bw` counts KiB/s; older versions lack `bw_bytes`.
            let rate = value("bw_bytes").or_else(|| value("bw").map(|kib| kib * 1024.0));
            let Some(rate) = rate.filter(|rate| *rate > 0.0) else { continue };
            let engine = option("ioengine").unwrap_or_default().to_owned();
            let mean = side.get("lat_ns").and_then(|lat| lat.get("mean")?.as_f64());
            let percentiles = side.get("clat_ns").and_then(|clat| {
                let of = |name: &str| Some(clat.get("percentile")?.get(name)?.as_f64()? / 1e3);
                Some((of("50.000000")?, of("99.000000")?, of("99.900000")?))
            });
            let name =
                job.get("jobname").and_then(Value::as_str).filter(|name| name.starts_with('/'));
            found.push(FileIoResult {
                tool: "fio",
                operation: option("rw").unwrap_or(operation).to_owned(),
                gbs: rate / 1e9,
                iops: value("iops"),
                latency_us: mean.map(|ns| ns / 1e3),
                workers: option("numjobs").and_then(|n| n.parse().ok()),
                depth: option("iodepth").and_then(|n| n.parse().ok()),
                block: option("bs").and_then(size),
                files: option("nrfiles").and_then(|n| n.parse().ok()),
                direct: option("direct").map(|on| on == "1"),
                gpu_direct: engine == "libcufile",
                engine,
                path: option("filename")
                    .or(option("directory"))
                    .or(name)
                    .unwrap_or_default()
                    .to_owned(),
                percentiles,
                devices: devices.clone(),
                ..FileIoResult::default()
            });
            names.push((job.get("jobname").and_then(Value::as_str), operation));
        }
    }
    join_jobs(root, &names, &mut found);
    found
}

/// Jobs without `stonewall` run at once. Of several with one name each is one of `numjobs`.
fn join_jobs(root: &Value, names: &[(Option<&str>, &str)], found: &mut [FileIoResult]) {
    let waits = |options: Option<&Value>| {
        options.and_then(|options| options.get("stonewall").or(options.get("wait_for"))).is_some()
    };
    let jobs = root.get("jobs").and_then(Value::as_array);
    if waits(root.get("global options"))
        || jobs.into_iter().flatten().any(|job| waits(job.get("job options")))
    {
        return;
    }
    for operation in ["read", "write"] {
        let mine = || names.iter().enumerate().filter(|(_, (_, side))| *side == operation);
        let count = mine().count() as u32;
        if count < 2 {
            continue;
        }
        let total = mine().filter_map(|(at, _)| found.get(at)).map(|result| result.gbs).sum();
        let several: Vec<usize> = mine()
            .filter(|(_, (name, _))| mine().filter(|(_, (other, _))| other == name).count() > 1)
            .map(|(at, _)| at)
            .collect();
        for (at, _) in mine() {
            let Some(result) = found.get_mut(at) else { continue };
            (result.together, result.together_gbs) = (count, total);
            if several.contains(&at) {
                result.workers = Some(1);
            }
        }
    }
}

/// The devices of fio's `disk_util`; of an array and its members the members.
fn fio_devices(root: &Value) -> Vec<DeviceUse> {
    let device = |entry: &Value| {
        let value = |name: &str| entry.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        let requests = value("read_ios") + value("write_ios");
        let ticks = value("read_ticks") + value("write_ticks");
        let name = entry.get("name")?.as_str()?.to_owned();
        let is_array = ["md", "dm-"].iter().any(|array| name.starts_with(array));
        (requests > 0.0 && !is_array).then_some(DeviceUse {
            name,
            requests,
            mean_ms: ticks / requests,
            busy: value("util") / 100.0,
        })
    };
    let all = root.get("disk_util").and_then(Value::as_array);
    all.into_iter().flatten().take(256).filter_map(device).collect()
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
        Some(FileIoResult {
            tool: "elbencho",
            operation: text("operation").to_owned(),
            gbs: mib * (1u64 << 20) as f64 / 1e9,
            iops: value("IOPS [last]"),
            latency_us: value("IO lat us [avg]").filter(|us| *us > 0.0),
            workers: count("threads"),
            depth: count("IO depth"),
            block: value("block size").filter(|b| *b >= 1.0).map(|b| b as u64),
            files: count("files"),
            direct: value("direct IO").map(|on| on > 0.0),
            path: text("command")
                .split_whitespace()
                .rfind(|word| word.contains('/'))
                .unwrap_or_default()
                .to_owned(),
            first_done_gbs: value("MiB/s [first]")
                .filter(|first| *first > 0.0)
                .map(|first| first * (1u64 << 20) as f64 / 1e9),
            ..FileIoResult::default()
        })
    };
    all.iter().take(4096).filter_map(phase).collect()
}

/// `IoType: READ XferType: GPUD Threads: 4 DataSetSize: .. IOSize: 1024(KiB) Throughput: 6.6 GiB/sec,
/// Avg_Latency: 589.4 usecs`, on one line or two; all such lines that follow each other.
pub(crate) fn gdsio(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let mut line = lines.get(at)?.text.trim().to_owned();
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
        tool: "gdsio",
        operation: word("IoType:")?.to_owned(),
        gbs: rate,
        latency_us: value("Avg_Latency:").filter(|us| *us > 0.0),
        workers: value("Threads:").filter(|n| *n >= 1.0 && *n < 4e9).map(|n| n as u32),
        depth: Some(1),
        block: size.and_then(|kib| kib.checked_mul(1024)),
        direct: Some(true),
        gpu_direct: engine.starts_with("GPU"),
        staged: engine.starts_with("CPU_"),
        engine,
        ..FileIoResult::default()
    };
    (result.gbs > 0.0).then_some((vec![result], next))
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
        let text = r#"[{"label":"","operation":"READ","threads":"8","block size":"1048576",
            "direct IO":"1","IO depth":"4","IOPS [last]":"9048","MiB/s [last]":"9048",
            "IO lat us [avg]":"3223"},{"operation":"MKDIRS","MiB/s [last]":""}]"#;
        let found = elbencho_json(&serde_json::from_str(text).unwrap());
        assert_eq!((found.len(), found[0].depth, found[0].direct), (1, Some(4), Some(true)));
        // 9048 x 2^20 / 1e9.
        assert!((found[0].gbs - 9.4875).abs() < 1e-3);
    }

    #[test]
    fn fio_is_read() {
        let text = "t: (g=0): rw=randread, bs=(R) 128KiB-128KiB, (W) 128KiB-128KiB, (T) 128KiB-128KiB, ioengine=libaio, iodepth=32\nt: (groupid=0, jobs=4): err= 0: pid=6020\n  read: IOPS=81.7k, BW=9.5GiB/s (10.2GB/s)(18.7GiB/60056msec)\n     lat (usec): min=26, max=403197, avg=1564.75, stdev=36108.68\n    clat percentiles (usec):\n     |  1.00th=[   27]\n  cpu          : usr=1.00%\nRun status group 0 (all jobs):\n   READ: bw=9.5GiB/s\nthanks\n";
        let (found, next) = fio(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let io = &found[0];
        assert_eq!(
            (io.workers, io.depth, io.block, io.iops, io.latency_us, next),
            (Some(4), Some(32), Some(131072), Some(81700.0), Some(1564.75), 9)
        );
        assert!((io.gbs - 10.2005).abs() < 1e-3);
        let text = r#"{"fio version":"fio-3.36","global options":{"bs":"1M","iodepth":"1","ioengine":"sync"},"jobs":[{"jobname":"a","job options":{"rw":"read"},"read":{"bw_bytes":2000000000,"iops":1907.3,"lat_ns":{"mean":520000.0}},"write":{"bw_bytes":0}}]}"#;
        let found = fio_json(&serde_json::from_str(text).unwrap());
        assert_eq!(
            (found.len(), found[0].gbs, found[0].block, found[0].latency_us),
            (1, 2.0, Some(1 << 20), Some(520.0))
        );
    }

    #[test]
    fn jobs_and_devices_of_fio_are_read() {
        let job = |nth: u32, rate: u64| {
            format!(
                r#"{{"jobname":"t","job options":{{"filename":"/dev/nvme{nth}n1","rw":"read","numjobs":"2"}},"read":{{"bw_bytes":{rate}}}}}"#
            )
        };
        let disk = |name: &str, ticks: u32| {
            format!(
                r#"{{"name":"{name}","read_ios":100,"write_ios":100,"read_ticks":{ticks},"write_ticks":0,"util":50.0}}"#
            )
        };
        let text = format!(
            r#"{{"jobs":[{},{}],"disk_util":[{},{}]}}"#,
            job(0, 3_000_000_000),
            job(1, 1_000_000_000),
            disk("md0", 1),
            disk("nvme0n1", 400)
        );
        let found = fio_json(&serde_json::from_str(&text).unwrap());
        // 3 + 1 GB/s at once, each of two jobs with one name is one of them.
        assert_eq!((found[1].together, found[1].together_gbs, found[1].workers), (2, 4.0, Some(1)));
        assert_eq!(found[1].path, "/dev/nvme1n1");
        // 400 ms / 200 requests; of the array its members count.
        let devices: Vec<_> =
            found[0].devices.iter().map(|d| (&*d.name, d.mean_ms, d.busy)).collect();
        assert_eq!(devices, [("nvme0n1", 2.0, 0.5)]);
    }
}
