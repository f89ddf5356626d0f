//! fio's `--output-format=json`.

use serde_json::Value;

use crate::document::{DeviceUse, FileIoResult};
use crate::number::size;

/// The results of all jobs.
pub(crate) fn read(root: &Value) -> Vec<FileIoResult> {
    let mut found = Vec::new();
    let jobs = root.get("jobs").and_then(Value::as_array);
    let devices = fio_devices(root);
    let mut names = Vec::new();
    for job in jobs.into_iter().flatten().take(4096) {
        let option = |name: &str| {
            let own = job.pointer(&format!("/job options/{name}"));
            let all = || root.pointer(&format!("/global options/{name}"));
            own.or_else(all).and_then(Value::as_str)
        };
        let count = |name: &str| option(name).and_then(|n| n.parse().ok());
        let job_name = job.get("jobname").and_then(Value::as_str);
        let cpu = ["usr_cpu", "sys_cpu"].map(|name| job.get(name)?.as_f64());
        for operation in ["read", "write"] {
            let Some(side) = job.get(operation) else { continue };
            let value = |path: &str| side.pointer(path).and_then(Value::as_f64);
            let micros = |path: &str| value(path).map(|ns| ns / 1e3);
            // `bw` counts KiB/s; older versions lack `bw_bytes`.
            let rate = value("/bw_bytes").or_else(|| value("/bw").map(|kib| kib * 1024.0));
            let Some(rate) = rate.filter(|rate| *rate > 0.0) else { continue };
            let path = option("filename").or(option("directory"));
            let path = path.or(job_name.filter(|name| name.starts_with('/')));
            let engine = option("ioengine").unwrap_or_default().to_owned();
            found.push(FileIoResult {
                iops: value("/iops"),
                latency_us: micros("/lat_ns/mean"),
                submission_us: micros("/slat_ns/mean"),
                cpu_share: cpu.into_iter().sum::<Option<f64>>().map(|percent| percent / 100.0),
                workers: count("numjobs"),
                depth: count("iodepth"),
                block: option("bs").and_then(size),
                files: count("nrfiles"),
                direct: option("direct").map(|on| on == "1"),
                gpu_direct: engine == "libcufile",
                engine,
                path: path.unwrap_or_default().to_owned(),
                percentiles: ["50", "99", "99.9"].map(|share| {
                    let share =
                        format!("{share}{}", if share.contains('.') { "00000" } else { ".000000" });
                    micros(&format!("/clat_ns/percentile/{share}"))
                }),
                devices: devices.clone(),
                ..FileIoResult::new("fio", option("rw").unwrap_or(operation), rate / 1e9)
            });
            names.push((job_name, operation));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_jobs_count() {
        let text = r#"{"fio version":"fio-3.36","global options":{"bs":"1M","iodepth":"1","ioengine":"sync"},"jobs":[{"jobname":"a","job options":{"rw":"read"},"read":{"bw_bytes":2000000000,"iops":1907.3,"lat_ns":{"mean":520000.0}},"write":{"bw_bytes":0}}]}"#;
        let found = read(&serde_json::from_str(text).unwrap());
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
        let found = read(&serde_json::from_str(&text).unwrap());
        // 3 + 1 GB/s at once, each of two jobs with one name is one of them.
        assert_eq!((found[1].together, found[1].together_gbs, found[1].workers), (2, 4.0, Some(1)));
        assert_eq!(found[1].path, "/dev/nvme1n1");
        // 400 ms / 200 requests; of the array its members count.
        let devices: Vec<_> =
            found[0].devices.iter().map(|d| (&*d.name, d.mean_ms, d.busy)).collect();
        assert_eq!(devices, [("nvme0n1", 2.0, 0.5)]);
    }
}
