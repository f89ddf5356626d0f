//! elbencho, fio and gdsio: what a rate of files is, and what gives it.

use pathline_paste::{FileIoResult, PasteContext, option_value, size};

use crate::cause_table::{CauseFacts, cause};
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::{figure, rate};
use crate::io_limits::{
    IO_US, IoLoad, SMALL_BLOCK, add_store_worlds, set_limit, store_of, unfilled,
};
use crate::node_facts::AnswerBasis;
use crate::outlier::{DIP, Outlier, median, slow_intervals, slow_values};
use crate::row_predictor::RowPredictor;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Longest time and most bytes of a read of one page of flash, us and bytes.
const FLASH_US: f64 = 120.0;
const FLASH_BLOCK: f64 = 16384.0;
/// The 99th and 99.9th percentile are this many times the median where few I/Os take far longer.
const LONG_TAIL: (f64, f64) = (8.0, 30.0);
/// Requests in flight below which each waits for the one before.
const FEW: f64 = 16.0;
/// Median and standard deviation of the logarithm of the least of equal parts, over the others.
const EVEN: (f64, f64) = (0.96, 0.06);
/// And the mean is this many times the median.
const STALLED: f64 = 2.0;
/// Random I/Os a second of a rotating disk at least.
const LEAST_DISK_IOPS: f64 = 70.0;
/// Times the limit of the drives from which on memory answers.
const MEMORY: f64 = 1.5;
/// Share of a CPU's time from which a job has none left.
const FULL: f64 = 0.97;
/// Submissions that take this share of the time between two I/Os, and no less than this time, us, are what an I/O
/// waits for.
const BLOCKED: f64 = 0.9;
const LEAST_BLOCKED: f64 = 50.0;
/// Engines with one I/O in flight, whatever depth is set.
const SYNCHRONOUS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Value of an option such as `-t 16`, `--threads=16` in the commands.
fn option(context: &PasteContext, names: &[&str]) -> Option<String> {
    context.commands.iter().find_map(|command| {
        let words: Vec<&str> = command.split([' ', '=', '"']).filter(|w| !w.is_empty()).collect();
        option_value(&words, names).map(str::to_owned)
    })
}

/// Bytes of an I/O by rate and I/Os a second, where they are a power of two.
fn block_of_rates(result: &FileIoResult) -> Option<f64> {
    let bytes = result.gbs * 1e9 / result.iops.filter(|iops| *iops > 0.0)?;
    let power = bytes.log2().round().exp2();
    ((bytes / power - 1.0).abs() < 0.01 && (512.0..1e10).contains(&power)).then_some(power)
}

/// A result of file I/O. `all` are the results of the paste: peers of one run, or the same I/O staged in host
/// memory.
pub(crate) fn explain(
    result: &FileIoResult,
    all: &[&FileIoResult],
    basis: AnswerBasis<'_>,
) -> DraftAnswer {
    let (context, desc) = (basis.context, basis.node.and_then(RowPredictor::desc));
    let number = |names: &[&str]| option(context, names).and_then(|v| v.parse::<f64>().ok());
    let threads = || number(&["-t", "--threads", "--numjobs", "-numjobs"]);
    let workers = result.workers.map(f64::from).or_else(threads);
    let depth = match SYNCHRONOUS.contains(&&*result.engine) {
        true => Some(1.0),
        false => result.depth.map(f64::from).or(number(&["--iodepth", "-iodepth"])),
    };
    let of_command = || size(&option(context, &["-b", "--block", "--bs", "-bs"])?);
    let block = result.block.or_else(of_command).map(|bytes| bytes as f64);
    let block = block.or_else(|| block_of_rates(result));
    let command = context.commands.join(" ");
    let is_direct = || ["--direct", "-direct=1", "direct=1"].iter().any(|d| command.contains(d));
    let direct = result.direct.or_else(|| (!command.is_empty()).then(is_direct));
    let is_gpu = result.gpu_direct || ["--gds", "--cufile"].iter().any(|d| command.contains(d));
    // `iodepth = 1, numjobs = 1` of a script.
    let stated = |name: &str| {
        let rest = context.prose.split_once(name)?.1.trim_start_matches([' ', '=', ':', '"']);
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<f64>().ok()
    };
    let depth = depth.or_else(|| stated("iodepth"));
    let jobs = f64::from(result.together.max(1));
    let gbs = if result.together > 1 { result.together_gbs } else { result.gbs };
    // What neither output nor command says is not in flight by guess.
    let in_flight = workers.zip(depth).map(|(workers, depth)| workers * depth * jobs);
    let memory = match () {
        () if is_gpu => ", straight to GPU memory",
        () if result.staged => ", to GPU memory through host memory",
        () => "",
    };
    let load = load_text(in_flight, block);
    let together = match result.together {
        0 | 1 => String::new(),
        jobs => format!(", {jobs} jobs together"),
    };
    let (tool, operation) = (result.tool, result.operation.to_lowercase());
    let meaning = format!(
        "{tool} {operation}{memory}{together}: {} (1 GB = 1e9 B; {tool} prints 2^20 or 2^30){load}",
        rate(gbs)
    );
    let path = if is_gpu { CheckPath::DirectFiles } else { CheckPath::Files };
    let mut draft = DraftAnswer::new(path, meaning, gbs);
    draft.limit = "unknown: the paste does not say what the device or network can".to_owned();
    set_limit(&mut draft, result, block, context);
    let note = unfilled(&mut draft, in_flight, block, &command);
    draft.features.push(ObservedFeature::new("rate", gbs.max(1e-5)));
    // With many in flight the product of both is the rate whatever binds.
    let few = in_flight.or(desc.map(|_| 1.0)).filter(|n| *n < FEW || desc.is_some());
    if let Some((n, block)) = few.zip(block) {
        draft.edits.push(few_in_flight(result, n, block));
    }
    let facts = CauseFacts::new(&[("most", draft.limit_gbs.unwrap_or(gbs * 2.5))]);
    if result.files == Some(1) || desc.is_some() {
        draft.edits.push(facts.cause("file.one-file"));
    }
    draft.edits.extend(full_processor(result));
    draft.edits.extend(blocked_submission(result, workers, depth));
    page_cache(&mut draft, result, direct);
    draft.outliers = slow_intervals(&result.intervals);
    draft.outliers.extend(long_tail(result));
    draft.outliers.extend(slower_than_a_disk(result, in_flight, block));
    draft.outliers.extend(slow_worker(result));
    draft.outliers.extend(other_path(result, all, block, context));
    let store = desc.and_then(|desc| store_of(desc, result, context));
    let block = block.filter(|block| *block >= 1.0 && *block < 1e12);
    if let (Some(store), Some(block), Some(in_flight)) = (store, block, in_flight) {
        let writes = !result.operation.to_lowercase().contains("read");
        let load = IoLoad { in_flight, block: block as u64, writes };
        add_store_worlds(&mut draft, store, load, direct == Some(true));
    }
    slow_parts(&mut draft, result, all, store.is_some());
    let is_exact = draft.edits.iter().any(|edit| edit.exact.is_some());
    if store.is_none() && draft.note.is_empty() && !is_exact {
        draft.note = note;
    }
    draft
}

/// I/Os of which few take far longer than the others.
fn long_tail(result: &FileIoResult) -> Option<Outlier> {
    let check = "iostat -x 1: await and queue; the same with less in flight; smartctl -a";
    let [Some(middle), most, late] = result.percentiles else { return None };
    // Where the mean is that far above the middle, few take most of the time, whatever percentiles are printed.
    if let Some(mean) = result.latency_us.filter(|us| middle > 0.0 && *us > middle * STALLED) {
        let [half, mean_us, lost] = [middle, mean, (1.0 - middle / mean) * 100.0].map(figure);
        let text = format!(
            "half of the I/Os take up to {half} us and the mean is {mean_us} us: few that take far longer are \
             {lost} % of the time"
        );
        return Some(Outlier::of_text("the slowest I/Os", middle / mean, text).checked_by(check));
    }
    let (Some(most), Some(late)) = (most, late) else { return None };
    let is_tail = middle > 0.0 && most > middle * LONG_TAIL.0 && late > middle * LONG_TAIL.1;
    let [half, some, few] = [middle, most, late].map(figure);
    let text = format!(
        "half of the I/Os take up to {half} us, 1 of 100 {some} us or more, 1 of 1000 {few} us or more"
    );
    let one = Outlier::of_text("the slowest I/Os", middle / late, text).checked_by(check);
    is_tail.then_some(one)
}

/// A client or worker that needs longer than the others for its part.
fn slow_worker(result: &FileIoResult) -> Option<Outlier> {
    let speeds: Vec<f64> = result.worker_ms.iter().map(|ms| 1.0 / ms).collect();
    let (slow, _) = slow_values(&speeds, 0.25)?;
    let at = *slow.first()?;
    let others = (0..).zip(&result.worker_ms).filter(|(i, _)| !slow.contains(i)).map(|one| *one.1);
    let (ms, usual) = (*result.worker_ms.get(at)?, median(&others.collect::<Vec<_>>())?);
    let first = result.first_done_gbs.map(figure);
    let first = first.map(|gbs| format!("; {gbs} GB/s until the first was done"));
    let (part, all) = (format!("worker {}", at + 1), result.worker_ms.len());
    let text = format!(
        "{part} of {all} needs {} s, the others {} s{}",
        figure(ms / 1e3),
        figure(usual / 1e3),
        first.unwrap_or_default()
    );
    let one = Outlier { is_row: false, ..Outlier::of_text(part, usual / ms, text) };
    Some(one.checked_by("the same on that client alone; its adapter's rate and route"))
}

/// The same I/O by another tool, or through host memory, that is faster in the same paste.
fn other_path(
    result: &FileIoResult,
    all: &[&FileIoResult],
    block: Option<f64>,
    context: &PasteContext,
) -> Option<Outlier> {
    let is_same =
        |other: &FileIoResult| (&other.operation, other.block) == (&result.operation, result.block);
    let is_staged = |other: &FileIoResult| result.gpu_direct && other.staged && is_same(other);
    let writes = result.tool != "dd" && !result.operation.to_lowercase().contains("read");
    let is_dd = |other: &FileIoResult| writes && other.tool == "dd";
    let faster = all.iter().filter(|other| is_staged(other) || is_dd(other));
    let faster = faster.max_by(|a, b| a.gbs.total_cmp(&b.gbs))?;
    let name = |io: &FileIoResult| {
        if io.engine.is_empty() { io.tool.to_owned() } else { format!("{} {}", io.tool, io.engine) }
    };
    let one = Outlier::new(name(result), result.gbs, faster.gbs, "GB/s", &name(faster)).of_row();
    // dd prints no command: `bs=4M` of the text.
    let of_dd = || size(context.prose.split_once(" bs=")?.1.split_whitespace().next()?);
    let check = match result.gpu_direct {
        true => {
            "nvidia-smi topo -m: adapter or drive and GPU under one switch (PIX, PXB), not SYS; gdscheck -p"
        }
        false if block.is_some() && block == faster.block.or_else(of_dd).map(|b| b as f64) => {
            "more threads (-t 8) or I/Os in flight (--iodepth 8); both on the same new file"
        }
        false => "both with the same block size, threads and depth; more threads (-t 8)",
    };
    Some(one.checked_by(check)).filter(|one| one.share < DIP)
}

/// I/Os that take so long that one rotating disk would make more of them: no kind of drive is slower.
fn slower_than_a_disk(
    io: &FileIoResult,
    in_flight: Option<f64>,
    block: Option<f64>,
) -> Option<Outlier> {
    let iops = io.iops.filter(|iops| *iops > 0.0 && *iops < LEAST_DISK_IOPS)?;
    let in_flight = in_flight.filter(|n| *n >= 4.0)?;
    block.filter(|block| *block <= SMALL_BLOCK)?;
    let (made, ms) = (figure(iops), figure(in_flight / iops * 1e3));
    let text = format!(
        "{made} I/Os a second with {in_flight:.0} in flight, {ms} ms each: a single rotating disk makes 75 to 200"
    );
    let check =
        "iostat -x 1 on each layer: await; the same on the drive below; limits of the volume";
    Some(Outlier::of_text("I/Os", iops / LEAST_DISK_IOPS, text).checked_by(check))
}

/// What is known of the requests in flight.
fn load_text(in_flight: Option<f64>, block: Option<f64>) -> String {
    let block = block.map(|bytes| figure(bytes / 1024.0));
    match (in_flight, block) {
        (Some(n), Some(kib)) => format!("; {n:.0} in flight, of {kib} KiB"),
        (None, Some(kib)) => format!("; of {kib} KiB, how many in flight is not printed"),
        (Some(n), None) => format!("; {n:.0} in flight"),
        (None, None) => String::new(),
    }
}

/// A job that leaves its CPU no time: more I/Os cannot come from it.
fn full_processor(result: &FileIoResult) -> Option<WorldEdit> {
    let share = result.cpu_share.filter(|share| (FULL..1.1).contains(share))?;
    Some(CauseFacts::new(&[("share", share)]).cause("file.cpu-full"))
}

/// Submissions that take as long as an I/O comes: the depth is not in flight, whatever it is set to.
fn blocked_submission(
    io: &FileIoResult,
    workers: Option<f64>,
    depth: Option<f64>,
) -> Option<WorldEdit> {
    let depth = depth.filter(|depth| *depth > 1.0)?;
    let each = io.iops.filter(|iops| *iops > 0.0)? / workers.unwrap_or(1.0).max(1.0);
    let us = io.submission_us.filter(|us| *us > LEAST_BLOCKED && us * each > BLOCKED * 1e6)?;
    let facts = [("us", us), ("between", 1e6 / each), ("depth", depth)];
    Some(CauseFacts::new(&facts).cause("file.submission-blocks"))
}

/// Bytes in flight over the time of an I/O.
fn few_in_flight(result: &FileIoResult, in_flight: f64, block: f64) -> WorldEdit {
    let time = result.latency_us.unwrap_or(IO_US);
    let rate = in_flight * block / time / 1e3;
    let few = in_flight < FEW;
    let sigma = if result.latency_us.is_some() { 0.15 } else { 0.8 };
    // A page of flash is read within 60 to 120 us: one read of a few KiB that takes that long is what a drive does.
    // Any other time is the store's, and the product is the rate whatever makes it so.
    let is_flash = in_flight <= 1.0
        && block <= FLASH_BLOCK
        && result.latency_us.is_some_and(|us| us <= FLASH_US);
    let edit = CauseFacts::new(&[
        ("prior", if few { 0.45 } else { 0.15 }),
        ("rate", rate),
        ("sigma", sigma),
        ("in_flight", in_flight),
        ("kib", block / 1024.0),
        ("us", time),
    ])
    .word("printed", crate::figures::rate(rate))
    .cause("file.few-in-flight");
    match is_flash {
        true => WorldEdit { class: AnswerClass::AsExpected, exact: Some(0.2), ..edit },
        false => {
            let edit = edit.seen(if few { 0.0 } else { -3.0 });
            WorldEdit { class: AnswerClass::SetUpSo, ..edit }
        }
    }
}

/// One part of several equal ones that is slower: a job among jobs, a device of an array; on a store that is
/// known, the last worker.
fn slow_parts(
    draft: &mut DraftAnswer,
    result: &FileIoResult,
    all: &[&FileIoResult],
    is_known: bool,
) {
    let check =
        "the same on each device alone; smartctl -a, nvme smart-log, lspci -vv | grep LnkSta";
    let mut found: Vec<(&'static str, f64, String)> = Vec::new();
    // Only jobs of one run share what they ran on.
    let run =
        |io: &FileIoResult| (io.block, io.depth, io.workers, io.together, io.operation.clone());
    let is_peer = |other: &&&FileIoResult| {
        result.together > 2 && run(other) == run(result) && other.path != result.path
    };
    let peers: Vec<f64> = all.iter().filter(is_peer).map(|other| other.gbs).collect();
    if let Some(usual) = median(&peers).filter(|_| peers.len() >= 2) {
        let part = if result.path.is_empty() { "this one".to_owned() } else { result.path.clone() };
        let one = Outlier::new(part, result.gbs, usual, "GB/s", "its peers").checked_by(check);
        found.push(("of-peers", one.share.clamp(1e-3, 1.0), one.text.clone()));
        let values: Vec<f64> = peers.iter().copied().chain([result.gbs]).collect();
        if slow_values(&values, 0.34).is_some_and(|(slow, _)| slow.contains(&peers.len())) {
            draft.outliers.push(one);
        }
    }
    let speeds: Vec<f64> =
        result.devices.iter().map(|device| 1.0 / device.mean_ms.max(1e-9)).collect();
    let mut devices: Vec<_> = result.devices.iter().collect();
    devices.sort_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms));
    // The middle of two is the faster one.
    let middle = devices.get(devices.len().saturating_sub(1) / 2).map(|device| device.mean_ms);
    if let (Some(slowest), Some(middle)) = (devices.last(), middle)
        && devices.len() >= 2
        && slowest.mean_ms > 0.0
    {
        let (name, busy) = (&slowest.name, slowest.busy * 100.0);
        let text = format!(
            "{name}: {} ms a request, {} ms in the middle of {} devices, {busy:.0} % busy",
            figure(slowest.mean_ms),
            figure(middle),
            devices.len()
        );
        let share = (middle / slowest.mean_ms).clamp(1e-3, 1.0);
        found.push(("of-devices", share, text.clone()));
        if slow_values(&speeds, 0.34).is_some() && share < 0.67 {
            let one = Outlier { is_row: false, ..Outlier::of_text(name, share, text) };
            draft.outliers.push(one.checked_by(check));
        }
    }
    // That some workers end before others is no fault by itself.
    let first_done =
        result.first_done_gbs.filter(|_| is_known && result.workers.is_none_or(|n| n > 1));
    if let Some(first) = first_done.filter(|first| *first > 0.0) {
        let (first_gbs, gbs) = (figure(first), figure(result.gbs));
        let text = format!(
            "{first_gbs} GB/s until the first worker was done, {gbs} until the last: some had more to wait for"
        );
        found.push(("of-first-done", (result.gbs / first).clamp(1e-3, 1.0), text));
    }
    let Some(slowest) = found.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let mut edit = CauseFacts::default().word("slowest", &*slowest.2).cause("file.slow-device");
    for (id, value, _) in &found {
        draft.features.push(ObservedFeature::of_sound(id, *value, EVEN));
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
    // More than the links of the drives carry was never on them.
    let is_above = draft.value.zip(draft.limit_gbs).filter(|_| draft.condition.is_empty());
    let is_above = is_above.filter(|(value, limit)| *value > limit * MEMORY);
    if result.is_cached {
        draft.edits.push(cause("file.page-cache#requests"));
        return;
    }
    if direct == Some(true) || direct.is_none() && !in_memory && is_above.is_none() {
        return;
    }
    draft.edits.push(match is_above {
        Some((value, limit)) => {
            CauseFacts::new(&[("times", value / limit)]).cause("file.page-cache#above")
        }
        None if in_memory => cause("file.page-cache").seen(3.0).stated(),
        None => cause("file.page-cache"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(result: &FileIoResult) -> DraftAnswer {
        let context = &PasteContext::default();
        explain(result, &[result], AnswerBasis { limits: None, log: None, context, node: None })
    }

    fn gdsio(block: u64, threads: u32, us: f64, gbs: f64) -> DraftAnswer {
        let result = FileIoResult {
            latency_us: Some(us),
            workers: Some(threads),
            depth: Some(1),
            block: Some(block),
            ..FileIoResult::new("gdsio", "READ", gbs)
        };
        alone(&result)
    }

    #[test]
    fn a_rate_that_is_bytes_in_flight_over_time_follows() {
        let exact = |draft: DraftAnswer| {
            let found = draft.edits.iter().find(|edit| edit.id == "few-in-flight");
            found.is_some_and(|edit| edit.exact.is_some())
        };
        // 8192 B / 90 us = 0.091 GB/s is a page of flash; 16384 B / 210 us is not, nor are two of them.
        assert!(exact(gdsio(8192, 1, 90.0, 0.090)) && !exact(gdsio(16384, 1, 210.0, 0.077)));
        assert!(!exact(gdsio(8192, 2, 90.0, 0.18)));
        // Eight that take long may wait in a queue: 8 x 1 MiB / 6 ms = 1.4 GB/s.
        assert!(!exact(gdsio(1 << 20, 8, 6000.0, 1.4)));
    }

    #[test]
    fn what_a_job_waits_for_by_its_own_times_is_a_cause() {
        let found = |cpu: f64, us: f64, depth: u32| -> Vec<&str> {
            let result = FileIoResult {
                tool: "fio",
                operation: "read".into(),
                gbs: 0.2,
                iops: Some(200.0),
                cpu_share: Some(cpu),
                submission_us: Some(us),
                workers: Some(1),
                depth: Some(depth),
                block: Some(1 << 20),
                ..FileIoResult::default()
            };
            let draft = alone(&result);
            let known = ["cpu-full", "submission-blocks"];
            draft.edits.iter().map(|edit| edit.id).filter(|id| known.contains(id)).collect()
        };
        // 200 I/Os a second are 5000 us apart: a submission of 4600 us leaves one of eight in flight.
        assert_eq!(found(0.999, 20.0, 8), ["cpu-full"]);
        assert_eq!(found(0.2, 4600.0, 8), ["submission-blocks"]);
        assert!(found(0.9, 4600.0, 1).is_empty() && found(0.9, 4000.0, 8).is_empty());
    }

    #[test]
    fn what_is_not_printed_is_not_claimed() {
        let result = FileIoResult {
            tool: "elbencho",
            operation: "WRITE".into(),
            gbs: 12.0,
            first_done_gbs: Some(15.0),
            files: Some(800),
            ..FileIoResult::default()
        };
        let draft = alone(&result);
        assert!(!draft.meaning.contains("in flight"), "{}", draft.meaning);
        assert!(draft.edits.iter().all(|edit| edit.id != "slow-device"));
    }
}
