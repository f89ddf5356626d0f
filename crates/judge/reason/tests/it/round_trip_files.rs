//! Round trip of elbencho and fio: blocks pass a queue of network, front, channels and bus of each target of a
//! described store, and `explain`, which knows only the asymptotes of that queue, must name what was changed.

use std::fmt::Write as _;

use pathline_flow::{MachineDesc, StoreModel};
use pathline_paste::read_paste;
use pathline_reason::{LikelyCause, RowPredictor, explain_on_node};

use crate::round_trip::is_sampled;
use crate::worlds::Jitter;

/// A run with one thing changed.
#[derive(Clone)]
struct FileRun {
    name: &'static str,
    ids: &'static [&'static str],
    workers: u32,
    depth: u32,
    /// As the engine has it: `psync` submits one at a time whatever depth is set.
    engine: &'static str,
    block: u64,
    writes: bool,
    direct: bool,
    /// Targets that the files are on; `None` is all.
    targets: Option<u32>,
    /// Share of its rate that each target has.
    slower: f64,
    /// The same of one target.
    slow_one: f64,
}

impl FileRun {
    fn sound() -> Self {
        Self {
            name: "sound",
            ids: &["device-full"],
            workers: 8,
            depth: 32,
            engine: "libaio",
            block: 1 << 20,
            writes: false,
            direct: true,
            targets: None,
            slower: 1.0,
            slow_one: 1.0,
        }
    }
}

fn runs() -> Vec<FileRun> {
    let sound = FileRun::sound();
    let few = &["few-in-flight"][..];
    vec![
        sound.clone(),
        FileRun { name: "sound writes", writes: true, ..sound.clone() },
        FileRun { name: "sound 4 KiB", block: 4096, depth: 128, ..sound.clone() },
        FileRun { name: "depth 1", ids: few, workers: 1, depth: 1, ..sound.clone() },
        FileRun {
            name: "4 KiB, depth 1",
            ids: few,
            workers: 1,
            depth: 1,
            block: 4096,
            ..sound.clone()
        },
        FileRun {
            name: "4 KiB, depth 4",
            ids: few,
            workers: 1,
            depth: 4,
            block: 4096,
            ..sound.clone()
        },
        FileRun {
            name: "psync",
            ids: few,
            workers: 1,
            engine: "psync",
            block: 65536,
            ..sound.clone()
        },
        FileRun { name: "cached", ids: &["page-cache"], direct: false, ..sound.clone() },
        FileRun { name: "one target", ids: &["one-file"], targets: Some(1), ..sound.clone() },
        FileRun { name: "half the lanes", ids: &["narrow-pcie"], slower: 0.5, ..sound.clone() },
        FileRun { name: "slow device", ids: &["slow-device"], slow_one: 0.4, ..sound.clone() },
        FileRun {
            name: "slow device, writes",
            ids: &["slow-device"],
            slow_one: 0.5,
            writes: true,
            ..sound
        },
    ]
}

/// What a run reached.
struct FileFigures {
    gbs: f64,
    latency_us: f64,
    /// Of each worker, GB/s.
    workers: Vec<f64>,
    /// Of each target: requests, mean ms.
    targets: Vec<(f64, f64)>,
    /// GB/s of all until the first worker was done.
    first_gbs: f64,
}

/// Blocks of a closed queue, one after the other: each worker has `depth` of them in flight.
fn queue(store: &StoreModel, run: &FileRun, own_targets: bool) -> FileFigures {
    const BLOCKS: usize = 96;
    let targets = run.targets.unwrap_or(store.targets) as usize;
    let one = StoreModel { targets: targets as u32, ..store.clone() };
    let depth = if run.engine == "psync" { 1 } else { run.depth };
    let mut front = vec![0.0f64; targets];
    let mut bus = vec![0.0f64; targets];
    let mut channels = vec![vec![0.0f64; store.channels as usize]; targets];
    let mut served = vec![(0.0f64, 0.0f64); targets];
    let per_worker = BLOCKS.max(4 * depth as usize);
    // Time at which each slot is free, with its worker.
    let mut slots: Vec<(f64, u32)> =
        (0..run.workers).flat_map(|worker| (0..depth).map(move |_| (0.0, worker))).collect();
    let mut left = vec![per_worker; run.workers as usize];
    let mut next = vec![0u64; run.workers as usize];
    let mut done = vec![0.0f64; run.workers as usize];
    let (mut latency, mut count, mut client) = (0.0, 0.0, 0.0f64);
    while let Some(at) = (0..slots.len())
        .filter(|at| left[slots[*at].1 as usize] > 0)
        .min_by(|a, b| slots[*a].0.total_cmp(&slots[*b].0))
    {
        let (time, worker) = slots[at];
        let nth = worker as usize;
        left[nth] -= 1;
        // Files begin on different targets.
        let begin = u64::from(worker) * ((1 << 30) + store.stripe_bytes.min(1 << 30));
        let offset = next[nth] * run.block + begin;
        next[nth] += 1;
        let mut end = time;
        for request in one.requests(offset, run.block, 4096) {
            let target = if own_targets { nth % targets } else { request.target as usize };
            let slow = if target == 0 { run.slow_one } else { 1.0 };
            let asked = (time + store.network_us * 500.0).max(front[target]);
            front[target] = asked + one.turn(run.writes).0;
            let free = &mut channels[target];
            let channel =
                (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b])).expect("a channel");
            let ready = asked.max(free[channel]) + one.latency(run.writes).0 / slow;
            let moved = request.bytes as f64 / (one.rate(run.writes).0 * run.slower * slow);
            let sent = ready.max(bus[target]) + moved;
            (free[channel], bus[target]) = (ready, sent);
            let mut arrived = sent;
            if let Some(gbs) = store.client_gbs {
                // Requests come in the order of their ends, not of their starts: no one waits behind a late one.
                client += request.bytes as f64 / gbs;
                arrived = sent.max(client);
            }
            served[target].0 += 1.0;
            served[target].1 += (sent - asked) / 1e6;
            end = end.max(arrived + store.network_us * 500.0);
        }
        (slots[at].0, latency, count) = (end, latency + end - time, count + 1.0);
        done[nth] = done[nth].max(end);
    }
    let bytes = per_worker as f64 * run.block as f64;
    let last = done.iter().copied().fold(0.0, f64::max);
    let first = done.iter().copied().fold(f64::INFINITY, f64::min);
    let until_first: f64 = done.iter().map(|end| bytes * (first / end)).sum();
    FileFigures {
        gbs: bytes * f64::from(run.workers) / last,
        latency_us: latency / count / 1e3,
        workers: done.iter().map(|end| bytes / end).collect(),
        targets: served.into_iter().map(|(n, ms)| (n, ms / n.max(1.0))).collect(),
        first_gbs: until_first / first,
    }
}

/// What the page cache serves.
fn cached(run: &FileRun, store: &StoreModel) -> FileFigures {
    // Cores that copy out of memory: 2 to 3 GB/s each, more than the store has.
    let gbs = (2.5 * f64::from(run.workers)).max(1.6 * store.ceiling(run.writes).0.0);
    let each = gbs / f64::from(run.workers);
    let in_flight = f64::from(run.workers) * f64::from(run.depth);
    FileFigures {
        gbs,
        latency_us: in_flight * run.block as f64 / gbs / 1e3,
        workers: vec![each; run.workers as usize],
        targets: Vec::new(),
        first_gbs: gbs * 1.02,
    }
}

/// Jobs of fio, each with a file, as `--output-format=json` of fio 3.
fn fio_json(
    run: &FileRun,
    found: &FileFigures,
    path: &str,
    noise: &mut Jitter,
    jobs: bool,
) -> String {
    let side = if run.writes { "write" } else { "read" };
    let job = |name: &str, file: &str, numjobs: u32, gbs: f64, noise: &mut Jitter| {
        let bytes = noise.near(gbs) * 1e9;
        let empty =
            "{\"io_bytes\":0,\"bw_bytes\":0,\"bw\":0,\"iops\":0.0,\"lat_ns\":{\"mean\":0.0}}";
        let io = format!(
            "{{\"io_bytes\":{:.0},\"bw_bytes\":{bytes:.0},\"bw\":{:.0},\"iops\":{:.6},\"runtime\":30001,\"lat_ns\":{{\"min\":9000,\"max\":9000000,\"mean\":{:.6},\"stddev\":10.0}}}}",
            bytes * 30.0,
            bytes / 1024.0,
            bytes / run.block as f64,
            noise.near(found.latency_us) * 1e3
        );
        let (read, write) = if run.writes { (empty, io.as_str()) } else { (io.as_str(), empty) };
        format!(
            "{{\"jobname\":\"{name}\",\"groupid\":0,\"error\":0,\"job options\":{{\"name\":\"{name}\",\"filename\":\"{file}\",\"rw\":\"{side}\",\"bs\":\"{}\",\"iodepth\":\"{}\",\"numjobs\":\"{numjobs}\"}},\"read\":{read},\"write\":{write}}}",
            run.block, run.depth
        )
    };
    let list = if jobs {
        let each = found.workers.iter().enumerate();
        each.map(|(nth, gbs)| job(&format!("job{nth}"), &format!("{path}/f{nth}"), 1, *gbs, noise))
            .collect::<Vec<_>>()
            .join(",")
    } else {
        job("all", &format!("{path}/f"), run.workers, found.gbs, noise)
    };
    let mut disks = String::new();
    if found.targets.len() > 1 {
        let requests: f64 = found.targets.iter().map(|target| target.0).sum();
        write!(disks, "{{\"name\":\"md0\",\"read_ios\":{requests:.0},\"write_ios\":0,\"read_ticks\":9,\"write_ticks\":0,\"in_queue\":9,\"util\":99.9}}").expect("text");
    }
    for (nth, (requests, ms)) in found.targets.iter().enumerate() {
        let comma = if disks.is_empty() { "" } else { "," };
        let ticks = requests * noise.near(*ms);
        let (read, write) = if run.writes {
            ((0.0, 0.0), (*requests, ticks))
        } else {
            ((*requests, ticks), (0.0, 0.0))
        };
        write!(
            disks,
            "{comma}{{\"name\":\"nvme{nth}n1\",\"read_ios\":{:.0},\"write_ios\":{:.0},\"read_merges\":0,\"write_merges\":0,\"read_ticks\":{:.0},\"write_ticks\":{:.0},\"in_queue\":{:.0},\"util\":99.1}}",
            read.0, write.0, read.1, write.1, ticks
        )
        .expect("text");
    }
    format!(
        "{{\"fio version\":\"fio-3.36\",\"global options\":{{\"ioengine\":\"{}\",\"direct\":\"{}\",\"runtime\":\"30\",\"time_based\":\"1\"}},\"jobs\":[{list}],\"disk_util\":[{disks}]}}\n",
        run.engine,
        u32::from(run.direct)
    )
}

/// fio's text of one group.
fn fio_text(run: &FileRun, found: &FileFigures, path: &str, noise: &mut Jitter) -> String {
    let side = if run.writes { "write" } else { "read" };
    let (gbs, us, block) = (noise.near(found.gbs), noise.near(found.latency_us), run.block);
    format!(
        "$ fio --name=t --filename={path}/f --rw={side} --bs={block} --ioengine={} --direct={} --iodepth={} --numjobs={} --group_reporting\n\
         t: (g=0): rw={side}, bs=(R) {block}B-{block}B, (W) {block}B-{block}B, (T) {block}B-{block}B, ioengine={}, iodepth={}\n\
         ...\nfio-3.36\n\
         t: (groupid=0, jobs={}): err= 0: pid=6020: Fri Oct  6 05:21:27 2023\n  \
         {side}: IOPS={:.0}, BW={:.1}MiB/s ({:.1}MB/s)({:.1}GiB/30001msec)\n     \
         lat (usec): min=26, max=403197, avg={us:.2}, stdev=36.68\n\
         Run status group 0 (all jobs):\n",
        run.engine,
        u32::from(run.direct),
        run.depth,
        run.workers,
        run.engine,
        run.depth,
        run.workers,
        gbs * 1e9 / block as f64,
        gbs * 1e9 / 1_048_576.0,
        gbs * 1e3,
        gbs * 30.0 / 1.074
    )
}

/// elbencho's table, in whole MiB/s.
fn elbencho_text(run: &FileRun, found: &FileFigures, path: &str, noise: &mut Jitter) -> String {
    let flag = if run.writes { "-w" } else { "-r" };
    let name = if run.writes { "WRITE" } else { "READ" };
    let mib = |gbs: f64| gbs * 1e9 / 1_048_576.0;
    let (first, last) = (noise.near(found.first_gbs), noise.near(found.gbs));
    let direct = if run.direct { " --direct" } else { "" };
    let iops = |gbs: f64| gbs * 1e9 / run.block as f64;
    let mut text = format!(
        "$ elbencho {flag} -t {} --iodepth {} -b {} -s 10g{direct} {path}/f[0-7]\n",
        run.workers, run.depth, run.block
    );
    text.push_str("OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n=========== ================    ==========   =========\n");
    writeln!(text, "{name:<11} Elapsed time     :     3.112s     3.208s").expect("text");
    for (what, one, two) in
        [("IOPS", iops(first), iops(last)), ("Throughput MiB/s", mib(first), mib(last))]
    {
        writeln!(text, "            {what:<17}: {one:>11.0} {two:>11.0}").expect("text");
    }
    let us = noise.near(found.latency_us);
    writeln!(text, "            IO lat us        : [ min=20 avg={us:.0} max=9000 ]\n---")
        .expect("text");
    text
}

/// elbencho's `--csvfile`.
fn elbencho_csv(run: &FileRun, found: &FileFigures, path: &str, noise: &mut Jitter) -> String {
    let mib = |gbs: f64| gbs * 1e9 / 1_048_576.0;
    let (first, last) = (noise.near(found.first_gbs), noise.near(found.gbs));
    let iops = |gbs: f64| gbs * 1e9 / run.block as f64;
    let name = if run.writes { "WRITE" } else { "READ" };
    format!(
        "ISO date,label,path type,paths,hosts,threads,dirs,files,file size,block size,direct IO,random,random aligned,IO depth,shared paths,truncate,operation,time ms [first],time ms [last],CPU% [first],CPU% [last],entries/s [first],entries/s [last],entries [last],IOPS [first],IOPS [last],IOs [last],MiB/s [first],MiB/s [last],MiB [last],IO lat us [min],IO lat us [avg],IO lat us [max],version,command\n\
         2026-01-01T00:00:00,,file,8,,{},,,10737418240,{},{},0,,{},1,0,{name},3112,3208,4,4,,,,{:.0},{:.0},80,{:.0},{:.0},80,20,{:.0},9000,3.0-1,\"elbencho -t {} {path}/f[0-7]\"\n",
        run.workers,
        run.block,
        u32::from(run.direct),
        run.depth,
        iops(first),
        iops(last),
        mib(first),
        mib(last),
        noise.near(found.latency_us),
        run.workers
    )
}

type FileWriter = fn(&FileRun, &FileFigures, &str, &mut Jitter) -> String;

/// The tool, whether each worker has a target to itself, whether it shows one slow device.
const FORMATS: [(&str, FileWriter, bool, bool); 5] = [
    (
        "fio JSON, a job for each file",
        |run, found, path, noise| fio_json(run, found, path, noise, true),
        true,
        true,
    ),
    (
        "fio JSON, devices of an array",
        |run, found, path, noise| fio_json(run, found, path, noise, false),
        false,
        true,
    ),
    ("fio text", fio_text, false, false),
    ("elbencho text", elbencho_text, true, true),
    ("elbencho CSV", elbencho_csv, true, true),
];

#[test]
fn causes_of_slow_files_are_found() {
    let (mut tried, mut wrong, mut hidden, mut sure_wrong, mut tied) = (0, Vec::new(), 0, 0, 0);
    let mut noise = Jitter(11);
    for (at, (format, write, own_targets, shows_device)) in FORMATS.into_iter().enumerate() {
        let (mut of_format, mut right) = (0, 0);
        for preset in ["mi250x", "hgx-h100", "v100"] {
            let desc = MachineDesc::preset(preset).expect("a preset");
            let node = RowPredictor::from_desc(&desc).expect("a network");
            for store in &desc.stores {
                let sampled = |(nth, run): (usize, FileRun)| {
                    (nth == 0 || is_sampled(at, nth * 5)).then_some(run)
                };
                for run in runs().into_iter().enumerate().filter_map(sampled) {
                    // One worker has one file, which an array or a file system spreads.
                    let own_targets = own_targets && run.workers > 1;
                    let is_fio = format.starts_with("fio");
                    let one_target =
                        store.targets < 2 && (run.targets.is_some() || run.slow_one < 1.0);
                    if one_target
                        || run.slow_one < 1.0 && !shows_device
                        || run.engine == "psync" && !is_fio
                    {
                        hidden += 1;
                        continue;
                    }
                    let found = match run.direct {
                        true => queue(store, &run, own_targets),
                        false => cached(&run, store),
                    };
                    // Behind the node's link a target may be slow and nothing shows it.
                    let clean = queue(
                        store,
                        &FileRun { slower: 1.0, slow_one: 1.0, targets: None, ..run.clone() },
                        own_targets,
                    );
                    let deep = FileRun { workers: 8, depth: 128, engine: "libaio", ..run.clone() };
                    let is_few = run.ids == ["few-in-flight"];
                    let is_hidden = match run.ids {
                        _ if is_few => found.gbs > 0.7 * queue(store, &deep, own_targets).gbs,
                        ["device-full"] => false,
                        _ => run.direct && found.gbs > 0.8 * clean.gbs,
                    };
                    if is_hidden {
                        hidden += 1;
                        continue;
                    }
                    let text = write(&run, &found, &store.path, &mut noise);
                    let answer = explain_on_node(&read_paste(text.as_bytes()), &node, None);
                    let first = answer.answers.first();
                    let causes = first.map(|a| a.causes.as_slice()).unwrap_or_default();
                    of_format += 1;
                    let is_first = causes.first().is_some_and(|cause| run.ids.contains(&cause.id));
                    // Two targets at half their rate, and one of two, are one rate: both have to be named.
                    let planted = causes.iter().find(|cause| run.ids.contains(&cause.id));
                    let is_tied = store.targets == 2
                        && ["one-file", "narrow-pcie"]
                            .iter()
                            .all(|id| causes.iter().any(|c| c.id == *id))
                        && planted
                            .zip(causes.first())
                            .is_some_and(|(c, f)| c.share > 0.25 * f.share);
                    let is_right = is_first || is_tied;
                    tied += usize::from(is_tied && !is_first);
                    right += usize::from(is_right);
                    if !is_right {
                        sure_wrong +=
                            usize::from(causes.first().is_some_and(|c| c.share > 20.0 / 21.0));
                        wrong.push(format!(
                            "{preset} {} {format}, {}: {:.2} GB/s of {:.2} ({:.2}), {:.0} us: {:?}",
                            store.path,
                            run.name,
                            found.gbs,
                            clean.gbs,
                            found.first_gbs,
                            found.latency_us,
                            shares(causes)
                        ));
                    }
                }
            }
        }
        println!("{format}: {right} of {of_format}");
        tried += of_format;
    }
    println!(
        "{} of {tried} attributed, {tied} as the second of two, {hidden} show in no figure",
        tried - wrong.len()
    );
    let text = wrong.join("\n");
    assert_eq!(sure_wrong, 0, "{text}");
    assert!(tried > 40 && wrong.len() * 100 <= tried * 3, "{} wrong:\n{text}", wrong.len());
}

fn shares(causes: &[LikelyCause]) -> Vec<(&'static str, String)> {
    causes.iter().take(4).map(|cause| (cause.id, format!("{:.2}", cause.share))).collect()
}
