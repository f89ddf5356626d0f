//! Causes for elbencho and fio.

use pathline_flow::MachineDesc;
use pathline_paste::{FileIoResult, PasteContext};

use crate::draft::DraftAnswer;
use crate::node_facts::figure;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};
use crate::store_worlds::{self, IoLoad};

/// Time of an I/O on flash and over a network, us, where none is printed.
const IO_US: f64 = 150.0;
/// Rate at which the bytes of one I/O move, GB/s: a drive on PCIe 3 x4.
const FLASH_GBS: f64 = 3.0;

/// Value of an option such as `-t 16`, `--threads=16` in the commands.
fn option(context: &PasteContext, names: &[&str]) -> Option<String> {
    for command in &context.commands {
        let words: Vec<&str> = command.split([' ', '=']).filter(|w| !w.is_empty()).collect();
        for pair in words.windows(2) {
            let [name, value] = *pair else { continue };
            if names.contains(&name) {
                return Some(value.to_owned());
            }
        }
    }
    None
}

fn size(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(end);
    let scale = match unit.to_ascii_lowercase().chars().next() {
        None => 1.0,
        Some('k') => 1024.0,
        Some('m') => 1048576.0,
        Some('g') => 1073741824.0,
        _ => return None,
    };
    count.parse::<f64>().ok().map(|n| n * scale)
}

/// A result of file I/O.
///
/// `all` are the other results of the paste: the same I/O staged in host memory tells a path that is slow
/// from a device that is.
pub(crate) fn explain(
    result: &FileIoResult,
    all: &[&FileIoResult],
    context: &PasteContext,
    desc: Option<&MachineDesc>,
) -> DraftAnswer {
    let number = |names: &[&str]| option(context, names).and_then(|v| v.parse::<f64>().ok());
    let workers =
        result.workers.map(f64::from).or(number(&["-t", "--threads", "--numjobs", "-numjobs"]));
    // Synchronous engines have one I/O in flight, whatever depth is set.
    let is_sync =
        ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"].contains(&&*result.engine);
    let depth = result.depth.map(f64::from).or(number(&["--iodepth", "-iodepth"]));
    let depth = if is_sync { Some(1.0) } else { depth };
    let block = result
        .block
        .map(|b| b as f64)
        .or_else(|| option(context, &["-b", "--block", "--bs", "-bs"]).and_then(|v| size(&v)));
    let command = context.commands.join(" ");
    let direct = result.direct.or_else(|| {
        (!command.is_empty())
            .then(|| ["--direct", "-direct=1", "direct=1"].iter().any(|d| command.contains(d)))
    });
    let gpu_direct = result.gpu_direct || command.contains("--gds") || command.contains("--cufile");
    let jobs = f64::from(result.together.max(1));
    let in_flight = workers.unwrap_or(1.0) * depth.unwrap_or(1.0) * jobs;
    let gbs = if result.together > 1 { result.together_gbs } else { result.gbs };
    let mut draft = DraftAnswer {
        meaning: format!(
            "{} {}: {} GB/s (1e9 B/s; {} prints 2^20 or 2^30), {} I/Os in flight{}",
            result.tool,
            result.operation.to_lowercase(),
            figure(gbs),
            result.tool,
            figure(in_flight),
            block.map_or_else(String::new, |b| format!(" of {} KiB", figure(b / 1024.0)))
        ),
        value: Some(gbs),
        limit: "unknown: the paste does not say what the device or network can".to_owned(),
        ..DraftAnswer::default()
    };
    set_limit(&mut draft, context);
    draft.features.push(ObservedFeature::new("rate", gbs.max(1e-5)));
    draft.edits.extend(few_in_flight(result, in_flight, block));
    let one_file = result.files == Some(1);
    draft.edits.push(WorldEdit::new("one-file", AnswerClass::SetUpSo, if one_file { 0.6 } else { 0.06 })
        .expects("rate", draft.limit_gbs.unwrap_or(gbs * 2.5) * 0.4, 0.4)
        .says("one open file is one stream to the server or one lock: several files, or one file opened several times, go further").decided_by("the same with a file for each thread, or the file opened several times"));
    if gpu_direct {
        direct_edits(&mut draft, result, all);
    }
    page_cache(&mut draft, result, direct);
    draft.edits.push(
        WorldEdit::new("device-full", AnswerClass::AsExpected, 0.25)
            .expects(
                "rate",
                draft.limit_gbs.map_or(5.0, |l| l * 0.9),
                if draft.limit_gbs.is_some() { 0.1 } else { 0.9 },
            )
            .says("the device or the network is full")
            .decided_by("iostat -x 1: %util and queue length while it runs"),
    );
    let store = desc.and_then(|desc| store_worlds::store_of(desc, result, context));
    if let Some((store, block)) = store.zip(block.filter(|block| *block >= 1.0 && *block < 1e12)) {
        let writes = !result.operation.to_lowercase().contains("read");
        let load = IoLoad { in_flight, block: block as u64, writes };
        store_worlds::add_store_worlds(&mut draft, store, load, direct == Some(true));
    }
    slow_device(&mut draft, result, all);
    draft
}

/// Bytes in flight over the time of an I/O.
fn few_in_flight(result: &FileIoResult, in_flight: f64, block: Option<f64>) -> Option<WorldEdit> {
    let block = block.filter(|_| in_flight <= 64.0)?;
    let time = result.latency_us.unwrap_or(IO_US);
    let rate = in_flight * block / time / 1e3;
    let few = in_flight < 16.0;
    // The same product is the rate whatever binds. Where I/Os take several times what flash and a network
    // need, they wait for each other, and more of them would wait longer.
    let alone = IO_US + block / FLASH_GBS / 1e3;
    let queued = !few && result.latency_us.is_some_and(|us| us > 3.0 * alone);
    let sigma = if result.latency_us.is_some() { 0.15 } else { 0.8 };
    let edit = WorldEdit::new("few-in-flight", AnswerClass::SetUpSo, if few { 0.45 } else { 0.15 })
        .expects("rate", rate, sigma)
        .seen(if queued { -3.0 } else { 0.0 })
        .says(format!(
            "{} I/Os in flight x {} KiB / {} us = {} GB/s: each waits for the one before",
            figure(in_flight),
            figure(block / 1024.0),
            figure(time),
            figure(rate)
        ))
        .decided_by("more threads or depth (-t 32 --iodepth 16): the rate grows with it, if so");
    Some(edit)
}

/// Median and standard deviation of the logarithm of the least of equal parts, over the others.
const EVEN: (f64, f64) = (0.96, 0.06);

/// One part of several equal ones that is slower: a job among jobs, a device of an array, the last worker.
fn slow_device(draft: &mut DraftAnswer, result: &FileIoResult, all: &[&FileIoResult]) {
    let mut found: Vec<(&'static str, f64, String)> = Vec::new();
    // Only jobs of one run share what they ran on.
    let is_peer = |other: &&&FileIoResult| {
        let run = |io: &FileIoResult| (io.block, io.depth, io.workers, io.together);
        result.together > 2
            && (run(other), &other.operation) == (run(result), &result.operation)
            && other.path != result.path
    };
    let mut peers: Vec<f64> = all.iter().filter(is_peer).map(|other| other.gbs).collect();
    peers.sort_by(f64::total_cmp);
    if let Some(median) = peers.get(peers.len() / 2).filter(|_| peers.len() >= 2) {
        let what = if result.path.is_empty() { "this one".to_owned() } else { result.path.clone() };
        let text =
            format!("{what}: {} of {} GB/s of its peers", figure(result.gbs), figure(*median));
        found.push(("of-peers", (result.gbs / median).clamp(1e-3, 1.0), text));
    }
    let mut means: Vec<f64> = result.devices.iter().map(|device| device.mean_ms).collect();
    means.sort_by(f64::total_cmp);
    let slowest = result.devices.iter().max_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms));
    // The middle of two is the faster one.
    let middle = means.get(means.len().saturating_sub(1) / 2);
    if let (Some(slowest), Some(&median), true) = (slowest, middle, means.len() >= 2)
        && slowest.mean_ms > 0.0
    {
        let text = format!(
            "{}: {} ms a request, {} ms in the middle of {} devices, {:.0} % busy",
            slowest.name,
            figure(slowest.mean_ms),
            figure(median),
            means.len(),
            slowest.busy * 100.0
        );
        found.push(("of-devices", (median / slowest.mean_ms).clamp(1e-3, 1.0), text));
    }
    let first_done = result.first_done_gbs.filter(|_| result.workers.is_none_or(|n| n > 1));
    if let Some(first) = first_done.filter(|first| *first > 0.0) {
        let text = format!(
            "{} GB/s until the first worker was done, {} until the last: some had more to wait for",
            figure(first),
            figure(result.gbs)
        );
        found.push(("of-first-done", (result.gbs / first).clamp(1e-3, 1.0), text));
    }
    if found.is_empty() {
        return;
    }
    let slowest = found.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let text = slowest.map(|(.., text)| text.clone()).unwrap_or_default();
    let mut edit = WorldEdit::new("slow-device", AnswerClass::HardwareSuspect, 0.05)
        .says(format!("one of several is slower than the others: {text}"))
        .decided_by(
            "the same on each device alone; smartctl -a, nvme smart-log, lspci -vv | grep LnkSta",
        );
    for (id, value, _) in &found {
        draft.features.push(ObservedFeature { id, value: *value, if_sound: Some(EVEN) });
        for other in &mut draft.edits {
            other.expects.push((id, EVEN.0, EVEN.1));
        }
        // Requests wait in front of a slow device as long as the others leave them.
        let (median, sigma) = if *id == "of-devices" { (0.3, 1.0) } else { (0.6, 0.5) };
        edit = edit.expects(id, median, sigma);
    }
    // Any rate follows: the slow part's share of the whole is not known.
    let edit = edit.expects("rate", draft.value.unwrap_or(1.0).max(1e-5), 0.5);
    draft.edits.push(edit);
}

/// Rates of memory instead of the device's.
fn page_cache(draft: &mut DraftAnswer, result: &FileIoResult, direct: Option<bool>) {
    // No device answers within 5 us.
    let in_memory = result.latency_us.is_some_and(|us| us < 5.0);
    if direct != Some(true) && (direct == Some(false) || in_memory) {
        let seen = if in_memory { 3.0 } else { 0.0 };
        draft.edits.push(WorldEdit::new("page-cache", AnswerClass::MeansSomethingElse, 0.25).seen(seen).expects("rate", 8.0, 0.7)
            .says("without O_DIRECT the page cache answers: the rate of memory or of write-back, not of the device").decided_by("--direct, and files larger than memory"));
    }
}

/// I/O straight to a GPU, compared with the same staged in host memory.
fn direct_edits(draft: &mut DraftAnswer, result: &FileIoResult, all: &[&FileIoResult]) {
    let staged = all.iter().filter(|other| other.staged && other.operation == result.operation);
    let staged = staged.map(|other| other.gbs).fold(0.0, f64::max);
    if staged > 0.0 {
        draft.features.push(ObservedFeature::new("direct-over-staged", result.gbs / staged));
        for edit in &mut draft.edits {
            edit.expects.push(("direct-over-staged", 1.05, 0.15));
        }
    }
    draft.edits.push(WorldEdit::new("direct-across-socket", AnswerClass::SetUpSo, 0.3).expects("rate", draft.limit_gbs.map_or(result.gbs, |l| l * 0.35), 0.5).expects("direct-over-staged", 0.4, 0.4)
            .says("storage to GPU passes the link between sockets or a root port: staging in host memory is faster there").decided_by("nvidia-smi topo -m: adapter and GPU under one switch (PIX, PXB); gdsio -x 2 for staged"));
}

/// The network of the paste.
fn set_limit(draft: &mut DraftAnswer, context: &PasteContext) {
    if let Some(gbits) = context.network_gbits {
        draft.limit = format!("{} GB/s of network (in the paste)", figure(gbits / 8.0));
        draft.limit_gbs = Some(gbits / 8.0);
    }
}
