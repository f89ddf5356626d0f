//! fio's output as text, of versions 2 and 3.

use crate::clean::PasteLine;
use crate::document::FileIoResult;
use crate::number::{number, rate_unit, size};

/// Lines of a run, and of one whose result does not come.
const MAX_LINES: usize = 4096;
const MAX_HEADER: usize = 120;
/// A device that did fewer than this share of the I/Os did not serve them.
const FEW_REQUESTS: f64 = 0.01;
/// Jobs of one name differ by less than this where none of them is slow.
const ALIKE: f64 = 0.8;

/// A run that begins here: `job: (g=0): rw=read, bs=(R) 128KiB-128KiB, ..., ioengine=libaio, iodepth=128`, then
/// `read: IOPS=397, BW=49.7MiB/s (52.1MB/s)(4096MiB/82485msec)`; or only its `Run status group`.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let first = lines.get(at)?.text.trim();
    let is_group = first.contains("(groupid=") && first.contains("err=");
    let begins = is_job(first) || is_group || first.starts_with("Run status group");
    if !begins && result(first).is_none() {
        return None;
    }
    let mut run = FioRun::default();
    let mut last = at;
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_LINES) {
        let text = line.text.trim();
        let is_open = run.results.is_empty() && run.totals.is_empty();
        let is_group = text.contains("(groupid=") || text.starts_with("Run status");
        let is_next = index > at && (is_job(text) || text.starts_with("Run status"));
        if is_open && index > at + MAX_HEADER && run.intervals.is_empty()
            || is_next && is_job(text) && (!is_open || !run.intervals.is_empty())
            || is_next && !run.totals.is_empty() && run.results.is_empty()
            || index > at && is_open && is_group && !is_job(first)
            || run.is_over && !text.is_empty() && !is_detail(text)
        {
            break;
        }
        if run.take(text) || !is_open && is_detail(text) {
            last = index;
        }
    }
    let found = run.finish();
    (!found.is_empty()).then_some((found, last + 1))
}

fn is_job(text: &str) -> bool {
    text.contains("rw=") && text.contains("ioengine=") && text.contains("bs=")
}

#[derive(Default)]
struct FioRun {
    /// Jobs by name.
    jobs: Vec<(String, FileIoResult)>,
    /// The job whose results follow.
    job: (String, FileIoResult),
    results: Vec<(String, FileIoResult)>,
    /// Operations with their rates of all jobs.
    totals: Vec<(String, f64)>,
    intervals: Vec<(u64, f64)>,
    percentile_unit: f64,
    /// I/Os of all jobs, and requests of the devices below, reads and writes.
    issued: [f64; 2],
    device: Option<[f64; 2]>,
    is_over: bool,
}

impl FioRun {
    /// Takes a line; whether it says something.
    fn take(&mut self, text: &str) -> bool {
        if text.contains("ioengine=") {
            self.take_job(text);
        } else if let Some((_, jobs)) = text.split_once("jobs=")
            && text.contains("groupid=")
        {
            let name = text.split(':').next().unwrap_or_default();
            let known = self.jobs.iter().find(|(known, _)| known == name).or(self.jobs.last());
            self.job = (name.to_owned(), known.map(|job| job.1.clone()).unwrap_or_default());
            self.job.1.workers = jobs.split(')').next().and_then(|n| n.parse().ok());
        } else if let Some((operation, gbs, iops)) = result(text) {
            let (name, job) = self.job.clone();
            let tool = "fio";
            let intervals = std::mem::take(&mut self.intervals);
            let path = if job.path.is_empty() { format!("job {name}") } else { job.path.clone() };
            let one = FileIoResult { tool, operation, gbs, iops, intervals, path, ..job };
            self.results.push((name, one));
        } else if let Some(rate) = live_rate(text) {
            // A second of a run, above or below its result.
            self.intervals.push((self.intervals.len() as u64 * 1000 + 1000, rate));
        } else if text.starts_with("Run status") {
            self.is_over = true;
        } else if let Some(total) = total(text) {
            self.totals.push(total);
        } else if let Some((_, requests)) =
            text.split_once(": ios=").filter(|_| text.contains("util="))
        {
            add_pair(self.device.get_or_insert_default(), requests, '/');
        } else {
            return self.take_detail(text);
        }
        true
    }

    /// Takes what describes a job.
    fn take_job(&mut self, text: &str) {
        let value = |name: &str| {
            let rest = text.split_once(name)?.1;
            rest.split([',', ' ', ';']).next().filter(|v| !v.is_empty())
        };
        let name = text.split(':').next().unwrap_or_default().to_owned();
        // The command has what the line of the job lacks.
        let of_command = self
            .jobs
            .last()
            .filter(|(known, _)| known.starts_with("fio ") || known.contains(" fio "));
        let mut job = of_command.map(|job| job.1.clone()).unwrap_or_default();
        job.engine = value("ioengine=").unwrap_or_default().to_owned();
        job.depth = value("iodepth=").and_then(|v| v.parse().ok()).or(job.depth);
        let block = text.split("(R) ").nth(1).and_then(|b| b.split(['-', ',']).next());
        job.block = block.or(value("bs=")).and_then(size).or(job.block);
        job.gpu_direct = job.engine == "libcufile";
        job.is_random = value("rw=").map(|rw| rw.starts_with("rand"));
        if let Some(path) = value("filename=").or(value("directory=")) {
            path.clone_into(&mut job.path);
        }
        job.direct = value("direct=").map(|on| on == "1").or(job.direct);
        self.job = (name.clone(), job.clone());
        self.jobs.push((name, job));
    }

    /// Takes what stands below a result.
    fn take_detail(&mut self, text: &str) -> bool {
        if let Some((_, unit)) = text.split_once("percentiles (") {
            self.percentile_unit = unit_of(unit);
            return true;
        }
        if let Some((_, depth)) = text.split_once(", depth=") {
            let depth = depth.parse().ok();
            self.results.iter_mut().for_each(|(_, one)| one.depth = one.depth.or(depth));
            return true;
        }
        let Some((_, result)) = self.results.last_mut() else { return false };
        let after = |key: &str| number(text.split_once(key)?.1.split(['%', ',']).next()?.trim());
        let unit = text.split_once('(').map_or(1.0, |(_, unit)| unit_of(unit));
        let mean = after("avg=").map(|mean| mean * unit);
        if let Some((_, issued)) = text.split_once("rwts: total=") {
            add_pair(&mut self.issued, issued, ',');
        } else if let (true, Some((user, system))) =
            (text.starts_with("cpu"), after("usr=").zip(after("sys=")))
        {
            result.cpu_share = Some((user + system) / 100.0);
        } else if text.starts_with("slat (") {
            result.submission_us = mean;
        } else if text.contains("th=[") {
            take_percentiles(result, text, self.percentile_unit);
        } else if text.starts_with("lat (") || text.starts_with("clat (") {
            // The line of the whole time follows that of the time after the submission.
            result.latency_us = mean.or(result.latency_us);
        } else {
            return false;
        }
        true
    }

    /// The results; jobs of one name that did the same together.
    fn finish(mut self) -> Vec<FileIoResult> {
        if self.results.is_empty() {
            let job = self.job.1;
            let one = |(operation, gbs): (String, f64)| FileIoResult {
                operation,
                gbs,
                tool: "fio",
                ..job.clone()
            };
            return self.totals.into_iter().map(one).collect();
        }
        for (_, result) in &mut self.results {
            let way = usize::from(result.operation != "read");
            let few = self.issued[way] * FEW_REQUESTS;
            result.is_cached = self.device.is_some_and(|served| served[way] < few);
        }
        let mut found: Vec<(String, Vec<FileIoResult>)> = Vec::new();
        for (name, result) in self.results {
            let key = format!("{name} {}", result.operation);
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, all)) => all.push(result),
                None => found.push((key, vec![result])),
            }
        }
        found.into_iter().flat_map(|(_, all)| joined(all)).collect()
    }
}

/// Jobs that ran at once as one result, unless one of them differs.
fn joined(mut all: Vec<FileIoResult>) -> Vec<FileIoResult> {
    let total = all.iter().map(|one| one.gbs).sum::<f64>();
    let (least, most) = all.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), one| {
        (least.min(one.gbs), most.max(one.gbs))
    });
    let count = all.len() as u32;
    let are_jobs = count > 1 && all.iter().all(|one| one.workers == Some(1));
    if !are_jobs {
        return all;
    }
    if least < most * ALIKE {
        all.iter_mut().for_each(|one| (one.together, one.together_gbs) = (count, total));
        return all;
    }
    let iops = all.iter().map(|one| one.iops).sum::<Option<f64>>();
    let mean = all.iter().map(|one| one.latency_us).sum::<Option<f64>>();
    let one = all.into_iter().next().unwrap_or_default();
    let latency_us = mean.map(|sum| sum / f64::from(count));
    vec![FileIoResult { gbs: total, iops, latency_us, workers: Some(count), ..one }]
}

/// Adds `16384,0,0,0` or `0/14, merge=...`: reads and writes.
fn add_pair(to: &mut [f64; 2], text: &str, parts: char) {
    let values = text.split([parts, ',', ' ']).map_while(number);
    to.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// `READ: bw=12.1GiB/s (13.0GB/s), ...` of a group; `READ: io=4096MB, aggrb=102400KB/s` of version 2.
fn total(text: &str) -> Option<(String, f64)> {
    let (name, rest) =
        text.split_once(": ").filter(|(name, _)| ["READ", "WRITE"].contains(name))?;
    Some((name.to_lowercase(), rate_of(rest)?)).filter(|(_, gbs)| *gbs > 0.0)
}

/// GB/s behind `BW=`, `bw=` or `aggrb=`. Version 2 writes `KB` for 1024 B.
fn rate_of(text: &str) -> Option<f64> {
    let (_, rate) = ["BW=", "aggrb=", "bw="].iter().find_map(|key| text.split_once(key))?;
    let rate = rate.trim_start().split(['(', ' ', ',']).next()?;
    let end = rate.find(|c: char| c.is_ascii_alphabetic())?;
    let (value, unit) = rate.split_at(end);
    let is_old = text.starts_with("io=");
    let unit = if is_old { unit.replace("B/s", "iB/s") } else { unit.to_owned() };
    Some(number(value)? * rate_unit(&unit).or((unit == "B/s" || unit == "iB/s").then_some(1e-9))?)
}

/// `read: IOPS=81.7k, BW=319MiB/s (335MB/s)`; `read : io=10240MB, bw=1023.2MB/s, iops=1023, runt= 10008msec`.
fn result(text: &str) -> Option<(String, f64, Option<f64>)> {
    let (operation, rest) = text.split_once(':')?;
    let (operation, rest) = (operation.trim(), rest.trim_start());
    let is_result = rest.starts_with("IOPS=") || rest.starts_with("io=") && rest.contains("iops=");
    if !is_result || !["read", "write", "trim"].contains(&operation) {
        return None;
    }
    let (_, iops) = rest.split_once("IOPS=").or(rest.split_once("iops="))?;
    let iops = iops.trim_start().split([',', ' ']).next().and_then(|value| {
        let scale = match value.chars().last() {
            Some('k') => 1e3,
            Some('M') => 1e6,
            _ => 1.0,
        };
        number(value.trim_end_matches(['k', 'M'])).map(|value| value * scale)
    });
    Some((operation.to_owned(), rate_of(rest)?, iops))
}

/// Whether a line of fio below a result has nothing that is used.
fn is_detail(text: &str) -> bool {
    const DETAILS: &str = concat!(
        "Disk stats\nslat (\nclat (\nclat percentiles\nlat percentiles\n|",
        "\nbw (\niops  \nlat (usec)   :\ncpu  \nIO depths  \nsubmit  \ncomplete  \nissued rwts\nlatency  ",
        "\nRun status\nREAD: \nWRITE: \nlat (msec)",
    );
    DETAILS.lines().any(|start| text.starts_with(start))
        || text.contains(": ios=") && text.contains("util=")
}

/// us of `usec`, `nsec`, `msec`.
fn unit_of(text: &str) -> f64 {
    match text.get(..4) {
        Some("nsec") => 1e-3,
        Some("msec") => 1e3,
        _ => 1.0,
    }
}

/// GB/s of a live line: `Jobs: 1 (f=1): [R(1)][5.0%][r=6575MiB/s][r=52.6k IOPS][eta 00m:19s]`.
fn live_rate(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("Jobs: ")?;
    let rate = |part: &str| {
        let value = part.strip_prefix("r=").or(part.strip_prefix("w="))?;
        let end = value.find(|c: char| c.is_ascii_alphabetic())?;
        Some(number(value.get(..end)?)? * rate_unit(value.get(end..)?)?)
    };
    let parts = rest.split(['[', ']', ',']).take(16);
    parts.filter_map(rate).reduce(|read, write| read + write)
}

/// `| 50.00th=[   73], 99.00th=[  108]` of percentiles.
fn take_percentiles(result: &mut FileIoResult, text: &str, unit: f64) {
    for part in text.split("],") {
        let Some((name, value)) = part.trim_matches(['|', ' ', ']', ',']).split_once("th=[") else {
            continue;
        };
        let Some(value) = number(value.trim()).map(|value| value * unit) else { continue };
        let at = ["50.00", "99.00", "99.90"].iter().position(|known| *known == name.trim());
        if let Some(kept) = at.and_then(|at| result.percentiles.get_mut(at)) {
            *kept = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    fn found(text: &str) -> Vec<FileIoResult> {
        read(&clean_lines(text.as_bytes()).0, 0).expect("a run").0
    }

    #[test]
    fn jobs_of_one_name_are_one_result() {
        let job = |mib: u32| {
            format!(
                "a: (groupid=0, jobs=1): err= 0: pid=1\n  read: IOPS={mib}, BW={mib}MiB/s (1MB/s)\n     lat (usec): min=1, avg=1000.0\n"
            )
        };
        let start = "a: (g=0): rw=randread, bs=(R) 1024KiB-1024KiB, ioengine=libaio, iodepth=4\n";
        let one = found(&format!("{start}{}{}", job(100), job(104)));
        // 204 x 2^20 B = 213.9 MB.
        assert_eq!((one.len(), one[0].workers, one[0].iops), (1, Some(2), Some(204.0)));
        assert!((one[0].gbs - 0.2139).abs() < 1e-4 && one[0].is_random == Some(true));
        let two = found(&format!("{start}{}{}", job(100), job(50)));
        assert_eq!((two.len(), two[0].together), (2, 2));
    }

    #[test]
    fn a_device_without_requests_served_nothing() {
        let run = |ios: &str| {
            let text = format!(
                "a: (groupid=0, jobs=2): err= 0: pid=1\n  read: IOPS=12.4k, BW=12.1GiB/s (13.0GB/s)\n     issued rwts: total=16384,0,0,0 short=0,0,0,0\nRun status group 0 (all jobs):\n   READ: bw=12.1GiB/s (13.0GB/s)\n\nDisk stats (read/write):\n  sda: ios={ios}, merge=0/3, ticks=0/6, in_queue=7, util=0.91%\n"
            );
            found(&text)[0].is_cached
        };
        assert!(run("0/14") && !run("16000/14"));
    }

    #[test]
    fn other_versions_and_cut_outputs_are_read() {
        let group = found(
            "Run status group 0 (all jobs):\n   READ: bw=100MiB/s (105MB/s), io=1GiB\n  WRITE: bw=50.0MiB/s (52MB/s)\n",
        );
        assert_eq!((group.len(), group[1].operation.as_str()), (2, "write"));
        // 1000 x 1024 B x 1024 = 1.049 GB.
        let old = found(
            "a: (groupid=0, jobs=1): err= 0: pid=1\n  write: io=10240MB, bw=1000.0MB/s, iops=1000, runt= 10008msec\n",
        );
        assert!((old[0].gbs - 1.0486).abs() < 1e-3 && old[0].iops == Some(1000.0));
    }

    #[test]
    fn fio_is_read() {
        let text = "t: (g=0): rw=randread, bs=(R) 128KiB-128KiB, (W) 128KiB-128KiB, (T) 128KiB-128KiB, ioengine=libaio, iodepth=32\nt: (groupid=0, jobs=4): err= 0: pid=6020\n  read: IOPS=81.7k, BW=9.5GiB/s (10.2GB/s)(18.7GiB/60056msec)\n     lat (usec): min=26, max=403197, avg=1564.75, stdev=36108.68\n    clat percentiles (usec):\n     |  1.00th=[   27]\n  cpu          : usr=1.00%\nRun status group 0 (all jobs):\n   READ: bw=9.5GiB/s\nthanks\n";
        let (found, next) = read(&clean_lines(text.as_bytes()).0, 0).unwrap();
        let io = &found[0];
        assert_eq!(
            (io.workers, io.depth, io.block, io.iops, io.latency_us, next),
            (Some(4), Some(32), Some(131072), Some(81700.0), Some(1564.75), 9)
        );
        assert!((io.gbs - 10.2005).abs() < 1e-3);
    }
}
