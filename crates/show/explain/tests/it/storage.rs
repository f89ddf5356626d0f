//! Figures of storage, from a journal made by hand.

use crate::common::shown::*;
use crate::common::storage::*;
use crate::common::*;
use pathline_explain::figure::{Figure, FigureBody, PairedGap, RunWarning};

fn gap<'a>(figure: &'a Figure, panel: &str, threads: &str, depth: &str) -> &'a PairedGap {
    let FigureBody::Gaps(gaps) = &figure.body else { panic!("{} has no differences", figure.id) };
    let panel = gaps.panels.iter().find(|p| p.0 == panel).expect("the statistic");
    let find = |names: &[String], name: &str| names.iter().position(|n| n == name);
    let row = find(&gaps.rows, threads).unwrap_or_else(|| panic!("{:?}", gaps.rows));
    &panel.1[row][find(&gaps.cols, depth).unwrap_or_else(|| panic!("{:?}", gaps.cols))]
}

const GAP: &str = "storage-gap-gpu0-store0-numa0-uring-rand-read-4KiB-direct";

#[test]
fn rates_and_latencies_are_shown_side_by_side() {
    let report = built(&storage_run());
    // 40 us + 10.7 us x 4 = 82.8 us: 4 / 82.8 us = 48,309 a second.
    let depth = figure(&report, "storage-depth-rand-read-4KiB-direct");
    close(point(depth, "io_uring, 1 thread", 4.0).value, 4.0 / 82.8e-6);
    assert!(point(depth, "io_uring polled, 1 thread", 4.0).absent.is_some());
    // With 4 workers 16 in flight give 75.8 thousand, 64 give 88.3 and 512 at last 92.8: 17 % more by
    // four times as many, and 95 % of all.
    assert!(
        depth.finding.contains("Throughput saturates near depth 16: 95 %"),
        "{}",
        depth.finding
    );
    let all = figure(&report, "storage-all-rand-read-4KiB-direct");
    let row = "io_uring, 2 threads, depth 1";
    // Two in flight take 61.4 us. The first worker ends at 95 % of the time, with 97 % done.
    let iops = 2.0 / 61.4e-6;
    close(in_sheet(all, row, "last done", "IOPS").value, iops);
    close(in_sheet(all, row, "first done", "IOPS").value, iops * 0.97 / 0.95);
    near_bucket(in_sheet(all, row, "p50", "us").value, 61.4);
    near_bucket(in_sheet(all, row, "min", "us").value, 61.4 * 0.8 * 0.992);
    // 0.8 + 0.2 x ln(100) / ln(2) = 2.129 medians.
    near_bucket(in_sheet(all, row, "p99", "us").value, 61.4 * 2.129);
    close(in_sheet(all, row, "CPU an I/O", "us").value, 1.7 + 9.0);
}

#[test]
fn a_gpu_is_held_against_the_host_pair_by_pair() {
    let report = built(&storage_run());
    let pipelined = figure(&report, &format!("{GAP}-pipelined-pinned"));
    // Each pair differs by 14 us in the median and 0.8 of that in the minimum, next to 50.7 us.
    let alone = gap(pipelined, "p50", "1", "1");
    near_bucket(alone.cell.value, 14.0);
    near_bucket(alone.base, 50.7);
    near_bucket(alone.other, 64.7);
    assert!(!alone.is_zero && alone.saturated.is_none() && alone.pairs == SAMPLES);
    near_bucket(gap(pipelined, "min", "1", "1").cell.value, 0.8 * 14.0);
    // At depth 32 samples swing by 10 % of 382 us, out of step with the host's: 14 us are lost in it.
    assert!(gap(pipelined, "p50", "1", "32").is_zero);
    // 48.3 to 75.8 thousand by four times as many is a power of 0.33; 75.8 to 83.7 by twice 0.14.
    assert!(gap(pipelined, "p50", "1", "16").saturated.is_none());
    let queue = gap(pipelined, "p50", "1", "32").saturated.as_deref().expect("a queue");
    assert!(queue.contains("2 times the depth raise the IOPS by"), "{queue}");
    // One worker that waits 22 us for each copy ends at 45,455 a second, whatever the depth.
    let blocking = figure(&report, &format!("{GAP}-blocking-paged"));
    let waits = gap(blocking, "p50", "1", "128").saturated.as_deref().expect("the copy");
    assert!(waits.starts_with("gpu0: 4 times the depth"), "{waits}");
    assert!(pipelined.finding.contains("gpu0 adds +11.2"), "{}", pipelined.finding);
}

#[test]
fn a_gpu_without_its_host_has_no_difference() {
    let mut journal = storage_run();
    journal.outcomes.retain(|o| {
        !o.case()
            .to_string()
            .contains("> r0.numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q4,")
    });
    let report = built(&journal);
    let map = figure(&report, &format!("{GAP}-pipelined-pinned"));
    let why = gap(map, "p50", "1", "4").cell.absent.clone().expect("a reason");
    assert!(why.contains("with host memory is not in this run"), "{why}");
}

#[test]
fn stages_alone_give_the_whole() {
    let report = built(&storage_run());
    let stages = figure(&report, "storage-stages");
    let mib = 1_048_576.0 / 1e9;
    let of = |name: &str, column: &str| in_sheet(stages, name, column, "GB/s").value;
    // 2800 blocks a second from files, with 8 in flight; no case shows that a single one takes less than
    // 8 / 2800 s, to which its copy of 1 / 50,000 s adds.
    let name = "gpu0, pipelined, pinned";
    close(of(name, "files alone"), 2800.0 * mib);
    close(of(name, "copies alone"), 52.4);
    close(of(name, "follows"), 8.0 / (8.0 / (2800.0 * mib) + 1.0 / 52.4));
    close(of(name, "measured"), 2750.0 * mib);
    // 37 us of I/O and 3 of the call.
    close(of(name, "CPU alone"), 1e6 / 40.0 * mib);
    // The same with 1300 and a copy of 1 MiB / 9.04 GB/s = 116 us.
    let name = "gpu0, blocking, pageable";
    let follows = 8.0 / (8.0 / (1300.0 * mib) + 1.0 / 9.04);
    close(of(name, "follows"), follows);
    let share = in_sheet(stages, name, "measured / follows", "%");
    close(share.value, 100.0 * 1240.0 * mib / follows);
    close(in_sheet(stages, name, "copy", "us a block").value, 1048.576 / 9.04);
    assert!(
        stages.finding.contains("99 % of what follows: the device and its file system"),
        "{}",
        stages.finding
    );
    let pages = figure(&report, "storage-pages");
    let row = "reads, 1 thread";
    close(in_sheet(pages, row, "huge / small", "").value, 2800.0 / 1300.0);
    close(in_sheet(pages, row, "requests an I/O, small", "").value, 2.02);
}

/// The limit in the report of a pipeline of 8 over a file with 2800 blocks per second alone, next to other cases.
fn limit_next_to(others: &[(String, Does)], pipeline: f64) -> String {
    let args = "seq-read,direct,shared,2GiB,q8,n1,t1";
    let does = |iops: f64| Does { requests: 1.0, ..Does::new(iops, 8.0 / iops * 1e6) };
    let gpu = read("gpu0.vram", "uring", &format!("{args},pipelined-pinned"), "1MiB");
    let mut outcomes = vec![
        io(&read("numa0.huge", "uring", args, "1MiB"), &does(2800.0)),
        io(&gpu, &Does { copy_us: 25.0, ..does(pipeline) }),
        at_rate("storage", "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB", 52.4),
    ];
    outcomes.extend(others.iter().map(|(case, does)| io(case, does)));
    figure(&built(&run_of(outcomes)), "storage-stages").finding.clone()
}

/// The page cache gives 9 % less than the device: I/O past it is not held by it.
#[test]
fn what_is_not_passed_is_no_limit() {
    let sync = |args: &str| read("numa0.huge", "sync", args, "1MiB");
    let cached = (sync("seq-read,cached,shared,2GiB,q1,n1,t1"), Does::new(2550.0, 392.0));
    let text = limit_next_to(std::slice::from_ref(&cached), 2750.0);
    assert!(!text.contains("cache"), "{text}");
    assert!(text.contains("what follows: the device and its file system, 2.94 GB/s."), "{text}");
    // One in flight gives 2600 of 2800 with 8: a power of 0.04, so the device is full.
    let one = (sync("seq-read,direct,shared,2GiB,q1,n1,t1"), Does::new(2600.0, 385.0));
    let text = limit_next_to(&[cached, one], 2750.0);
    assert!(text.contains("8 in flight give 2.94 GB/s, 1 gave 2.73 GB/s"), "{text}");
    // 32 give 3300 of 2800 with 8.
    let args = "seq-read,direct,shared,2GiB,q32,n8,t1";
    let more = (read("numa0.huge", "uring", args, "1MiB"), Does::new(3300.0, 9700.0));
    let text = limit_next_to(&[more], 2750.0);
    assert!(text.contains("8 in flight are too few: 32 give 3.46 GB/s"), "{text}");
}

#[test]
fn what_nothing_explains_is_said() {
    // 2000 of 2800, where the copy alone would leave 2780.
    let text = limit_next_to(&[], 2000.0);
    assert!(text.contains("72 % of what follows from the device and its file"), "{text}");
    assert!(text.contains("; nothing here explains the rest"), "{text}");
    // 3200 of 2800.
    let text = limit_next_to(&[], 3200.0);
    assert!(text.contains("the stages gave less when they ran alone"), "{text}");
}

#[test]
fn the_greatest_calls_are_named() {
    let report = built(&storage_run());
    let FigureBody::Stacks(stacks) = &figure(&report, "storage-calls").body else {
        panic!("no stacks")
    };
    let registered =
        stacks.stacks.iter().find(|s| s.label.contains("blocking, registered")).expect("a bar");
    // 9 x 1000 calls of 47 us are 423 ms, next to 352 ms and 5 ms once: of 780 ms 54.2, 45.1, 0.6 %.
    let [first, second, ..] = registered.parts.as_slice() else { panic!("{registered:?}") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("cudaMemcpy", "cudaHostUnregister"));
    close(first.cell.value, 100.0 * 423.0 / 780.0);
    close(second.cell.value, 100.0 * 352.0 / 780.0);
    assert_eq!(first.detail, "9000 calls of 47.0 us");
    let found = report.headlines.iter().find(|h| h.text.starts_with("Of the time in calls"));
    let text = &found.expect("a headline").text;
    assert!(text.ends_with("cudaMemcpy takes 54 % and cudaHostUnregister takes 45 %."), "{text}");
}

#[test]
fn suspect_results_are_listed() {
    let report = built(&storage_run());
    let of = |code: &str| -> Vec<&RunWarning> {
        report.warnings.iter().filter(|n| n.code == code).collect()
    };
    // 1.51 s with a median of 12 ms.
    let [outlier] = of("outliers")[..] else { panic!("{:?}", report.warnings) };
    assert!(outlier.text.starts_with("1 of 9001 I/Os took more than 100 times"), "{outlier:?}");
    assert!(!outlier.text.contains("mq-deadline"), "1.51 s is no 500 ms: {outlier:?}");
    let [split] = of("split")[..] else { panic!("{:?}", report.warnings) };
    assert!(split.text.starts_with("4 cases are split, at most into 2.02 requests"), "{split:?}");
    assert!(split.text.contains("1280KiB in 254 segments"), "{split:?}");
    let [polling] = of("no-polling")[..] else { panic!("{:?}", report.warnings) };
    assert!(
        polling.text.contains("10 cases") && polling.text.contains("poll_queues"),
        "{polling:?}"
    );
    assert_eq!(of("not-direct").len(), 2, "a case for each GPU");
    let condition = report.conditions.iter().find(|c| c.0 == "store0").expect("the store");
    assert!(condition.1.starts_with("/data, ext4, options rw,relatime, on vda"), "{condition:?}");
    // 510 ms are: the scheduler's patience.
    let case = read("numa0.huge", "uring", "rand-read,direct,shared,2GiB,q8,n1,t2", "4KiB");
    let late = Does { outlier_us: 510_000.0, ..Does::new(80_000.0, 200.0) };
    let report = built(&run_of(vec![io(&case, &late)]));
    let text = &report.warnings.iter().find(|n| n.code == "outliers").expect("a warning").text;
    assert!(text.contains("its scheduler, mq-deadline"), "{text}");
}

#[test]
fn several_at_once_are_held_against_each_alone() {
    let report = built(&storage_run());
    let at_once = figure(&report, "storage-at-once");
    let both = "store0 > gpu0, store0 > gpu1, sequential reads of 1MiB, pipelined-pinned, 1 thread each, depth 8";
    // 1500 blocks a second each of 2750 alone.
    close(bar(at_once, both).value, 3000.0 * 1_048_576.0 / 1e9);
    close(bar(at_once, both).ceiling, 5500.0 * 1_048_576.0 / 1e9);
    assert!(at_once.finding.contains("55 %"), "{}", at_once.finding);
}

/// Cells of the grid are differences to the host with as many workers and the same depth.
#[test]
fn the_grid_compares_gpus_with_the_host() {
    let report = built(&grid_run());
    let latency = figure(&report, "storage-grid-latency-store0-seq-read-1MiB-shared");
    let FigureBody::Gaps(gaps) = &latency.body else { panic!("{:?}", latency.body) };
    assert_eq!(
        gaps.rows,
        [
            "gpu0, blocking-pinned, 1",
            "gpu0, blocking-pinned, 2",
            "gpu0, pipelined-registered-huge, 1",
            "gpu0, pipelined-registered-huge, 2",
            "2 GPUs, pipelined-registered-huge, 2",
        ]
    );
    assert_eq!((gaps.cols.join(" "), gaps.panels.len()), ("1 8".to_owned(), 4));
    let cell = |figure: &Figure, panel: usize, row: usize, col: usize| {
        let FigureBody::Gaps(gaps) = &figure.body else { panic!("{:?}", figure.body) };
        gaps.panels[panel].1[row][col].clone()
    };
    // With 1 in flight the host takes 1 / 2000 s = 500 us and a worker that waits 1 / 1000 s.
    let p50 = cell(latency, 1, 0, 0);
    near_bucket(p50.base, 500.0);
    near_bucket(p50.cell.value, 500.0);
    // 2 workers, 8 each: 16 / (0.95 x 2909) s less 16 / 2909 s is 5.26 % of 5500 us.
    near_bucket(cell(latency, 1, 3, 1).cell.value, 16.0 / 2909.1 * 1e6 * (1.0 / 0.95 - 1.0));
    // 8 times the depth for a worker that waits: still 1000 a second.
    let queue = cell(latency, 1, 0, 1).saturated.expect("a queue");
    assert!(queue.starts_with("GPUs: 8 times the depth"), "{queue}");
    let rate = figure(&report, "storage-grid-throughput-store0-seq-read-1MiB-shared");
    // Both GPUs get 90 % of 2909 blocks a second: 0.1 x 2909 x 1.048576 MB are missing.
    let missing = cell(rate, 0, 4, 1);
    close(missing.cell.value, -0.1 * grid_rate(16.0) * 1_048_576.0 / 1e9);
    assert_eq!(missing.saturated, None);
}

/// Of 1 and 2 workers at depth 1 and 8 the fewest that reach 95 % of the best.
#[test]
fn the_grid_states_how_many_workers_a_gpu_needs() {
    let report = built(&grid_run());
    let workers = figure(&report, "storage-grid-workers-store0-seq-read-1MiB");
    let of = |end: &str, name: &str, unit: &str| in_sheet(workers, end, name, unit).value;
    // 2824 of 2909 are 97 %.
    let piped = "gpu0, pipelined-registered-huge";
    assert_eq!((of(piped, "workers", ""), of(piped, "depth", "")), (Some(1.0), Some(8.0)));
    close(of(piped, "of the best", "%"), 100.0 * grid_rate(8.0) / grid_rate(16.0));
    // A worker that waits gives 1000 a second; two give 2000, with 1 in flight each.
    let waits = "gpu0, blocking-pinned";
    assert_eq!((of(waits, "workers", ""), of(waits, "depth", "")), (Some(2.0), Some(1.0)));
    assert!(
        workers.finding.contains("gpu0, blocking-pinned: 2 workers at depth 1; gpu0, pipelined"),
        "{}",
        workers.finding
    );
    // Both GPUs were measured by 2 workers only.
    assert!(!workers.finding.contains("2 GPUs"), "{}", workers.finding);
    let sentence = "gpu0 gets 95 % of its best rate with 1 worker at depth 8 for sequential reads";
    assert!(
        report.headlines.iter().any(|h| h.text.starts_with(sentence)),
        "{:?}",
        report.headlines
    );
    let far = figure(&report, "storage-grid-far");
    let row = "store0 seq-read 1MiB t1: host";
    close(in_sheet(far, row, "far / near", "%").value, 80.0);
    let gpus = figure(&report, "storage-grid-gpus-store0-seq-1MiB");
    let line = "reads, shared, pipelined-registered-huge";
    close(point(gpus, line, 1.0).value, 0.95 * grid_rate(16.0) * 1_048_576.0 / 1e9);
    close(point(gpus, line, 2.0).value, 0.9 * grid_rate(16.0) * 1_048_576.0 / 1e9);
    let cached = figure(&report, "storage-grid-cached");
    let line = "reads, page cache: gpu0, blocking-pinned (store0)";
    close(point(cached, line, 8.0).value, 1000.0 * 1_048_576.0 / 1e9);
    // 30 us in the call, of which the engine needs 1 MiB / 52.4 GB/s = 20 us.
    let copies = figure(&report, "storage-grid-copies");
    let row = "reads of 1MiB: gpu0, blocking-pinned";
    close(in_sheet(copies, row, "in the call", "us").value, 30.0);
    close(in_sheet(copies, row, "engine", "us").value, 1_048_576.0 / 52.4e3);
}
