//! Tools that state that they failed, and texts that only speak of failures.

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, explain_paste};
use pathline_schema::NodeVerdict::{Fail, Suspect};

fn answers(paste: &str) -> Vec<PasteAnswer> {
    explain_paste(&read_paste(paste.as_bytes()), None).answers
}

#[test]
fn a_stated_failure_is_one_and_its_line_is_named() {
    let table = "Function    MBytes/sec  Min (sec)   Max\nCopy   297715.3  0.0018 0.0025\n";
    for (paste, line, says) in [
        (format!("{table}Validation failed on a[]. Average error 0.37\n"), 3, "Validation failed"),
        ("# OSU MPI Latency Test\n# Size  Latency (us)  Validation\n8  1.2  Pass\n16  1.3  Fail\n".to_owned(), 4, "Fail"),
        ("$ ./bench\nsetup done\nn1: Test NCCL failure a.cu:88 'unhandled system error / '\n".to_owned(), 3, "a.cu:88"),
        ("$ ./p2p\n[1.5] [n1:44:0] ib.c:17 UCX  ERROR Transport retry count exceeded on mlx5_0\n".to_owned(), 2, "mlx5_0"),
        ("$ fio j.fio\nj: (groupid=0, jobs=1): err=84 (file:io_u.c:9): pid=5\n".to_owned(), 2, "err=84"),
    ] {
        let first = answers(&paste).remove(0);
        assert_eq!((first.verdict, first.first_line), (Fail, line), "{paste}{}", first.reason);
        assert!(first.meaning.contains(says) && first.reason.contains(&format!("line {line}")));
        assert_eq!(answers(&paste).iter().filter(|answer| answer.verdict == Fail).count(), 1);
    }
    // A known text gives the way out, too.
    let known = "$ ./a\nRuntimeError: CUDA error: out of memory\nERROR: duplicate GPU detected\n";
    let known = answers(known).remove(0);
    assert!(known.verdict == Fail && !known.action.is_empty(), "{}", known.reason);
    let wrong = "# nThread 1 nGpus 4 minBytes 8 maxBytes 1\n1048576 262144 float sum -1 61 17.2 25.8 5 61 17.2 25.8 0\n";
    assert_eq!(answers(wrong).remove(0).verdict, Fail);
}

#[test]
fn warnings_and_manuals_are_no_failures() {
    for paste in [
        "# Bench\n## Troubleshooting\nIt prints\nERROR: cannot open the device\nwhere the driver is not loaded.\n",
        "[WARN] UCX ERROR on mlx5_0, attempt 2\nnode1: 5.1 GB/s\nnode2: 5.1 GB/s\n",
        "I saw a segmentation fault when I ran it with 2 GPUs\n",
        "rx_errors: 0\nsymbol_error: 12\n",
    ] {
        assert!(answers(paste).iter().all(|answer| answer.verdict != Fail), "{paste}");
    }
    // A library's warning that names a cause stays a suspicion.
    let warned = answers("n1:4:4 [0] misc/x.cc:12 NCCL WARN Duplicate GPU detected : rank 0\n");
    assert!(warned.iter().any(|answer| answer.verdict == Suspect));
}

/// Two GPUs with six links each; `state` gives the line of each.
fn links(state: impl Fn(u32, u32) -> Option<&'static str>) -> String {
    let mut text = String::new();
    for gpu in 0..2 {
        text.push_str(&format!("GPU {gpu}: NVIDIA X (UUID: GPU-{gpu})\n"));
        let lines =
            (0..6).filter_map(|link| Some(format!("\t Link {link}: {}\n", state(gpu, link)?)));
        text.extend(lines);
    }
    text
}

#[test]
fn inactive_links_are_named_and_cut_lists_are_none() {
    const UP: &str = "25.781 GB/s";
    let down = |gpu, link| Some(if (gpu, link) == (1, 4) { "<inactive>" } else { UP });
    let first = answers(&links(down)).remove(0);
    assert!(first.verdict == Suspect && first.reason.contains("GPU 1 (link 4"), "{}", first.reason);
    for paste in [
        links(|gpu, link| (gpu == 0 || link < 3).then_some(UP)),
        links(|gpu, link| (gpu == 0 || link < 3).then_some(UP)) + "...\n",
        links(|_, _| Some("<inactive>")),
    ] {
        assert!(answers(&paste).iter().all(|answer| answer.verdict != Suspect), "{paste}");
    }
}

#[test]
fn both_places_of_a_size_are_peers() {
    let table = |inside: f64| {
        let row = |bytes: u64| {
            let us = |gbs: f64| bytes as f64 / gbs / 1e3;
            let half = |gbs: f64| format!("{:.1} {gbs} {} 0", us(gbs), gbs * 1.5);
            format!("{bytes} {} float sum -1 {} {}\n", bytes / 4, half(150.0), half(inside))
        };
        format!(
            "4 x A100\n# nThread 1 nGpus 4 minBytes 8 maxBytes 1\n{}{}{}",
            row(1 << 30),
            row(1 << 31),
            row(1 << 32)
        )
    };
    let named = |inside: f64| answers(&table(inside)).remove(0).reason.contains("in place");
    assert!(named(80.0) && !named(140.0));
}

#[test]
fn an_error_before_results_did_not_end_them() {
    let table =
        "# OSU MPI Broadcast Latency Test v7.2\n# Size  Avg Latency(us)\n1  0.23\n2  0.24\n";
    let limit = "[n1:11:0] ib_log.c:246 UCX ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited'\n";
    let found = answers(&format!("{limit}{table}"));
    assert_eq!((found[0].verdict, found[0].first_line), (Suspect, 1), "{}", found[0].reason);
    assert!(found[0].reason.contains("results follow") && found[0].action.contains("ulimit"));
    assert!(found.iter().all(|answer| answer.verdict != Fail));
    let unknown = answers(&format!("[n1:11:0] x.c:1 UCX ERROR something else\n{table}"));
    assert_eq!((unknown[0].verdict, unknown[0].first_line), (Suspect, 1));
    // Below the last result it did.
    assert_eq!(answers(&format!("{table}{limit}"))[0].verdict, Fail);
}

#[test]
fn a_kernel_log_has_the_meaning_that_doctor_gives_it() {
    let log = "[  812.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.\n\
               [  812.2] NVRM: Xid (PCI:0000:86:00): 31, pid=12, Ch 8, MMU Fault: ENGINE GRAPHICS\n";
    let found = answers(log);
    let verdicts: Vec<_> = found.iter().map(|answer| answer.verdict).collect();
    assert_eq!(verdicts, [Fail, pathline_schema::NodeVerdict::Undecided], "{found:?}");
    assert!(found[0].reason.contains("Xid 79") && found[1].reason.contains("Xid 31"));
    assert!(found[1].meaning.contains("0000:86:00"), "{}", found[1].meaning);
}

#[test]
fn a_message_that_nobody_has_is_none() {
    for text in [
        "I read that others had an uncorrectable NVLink error, but dmesg here has none",
        "Our monitoring should alert when the driver reports an uncorrectable NVLink error.",
        "Does Xid 79 mean the GPU has fallen off the bus? We have not seen it.",
        "After the reseat, GPU has fallen off the bus no longer appears.",
    ] {
        assert!(answers(text).is_empty(), "{text}");
    }
    let line = "[ 5.2] pcieport 0000:00:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)\n";
    assert_eq!(answers(line)[0].verdict, Suspect);
}

#[test]
fn a_process_that_sees_no_gpu_and_a_job_over_two_networks_are_named() {
    let found = answers("$ srun --gpus-per-task=1 nvidia-smi -L\nNo devices found.\n");
    assert!(found[0].verdict == Suspect && found[0].reason.contains("does not see the GPU"));
    let line = |host: &str, device: u32, network: &str| {
        format!("{host}:1{device}:9 [{device}] NCCL INFO Using network {network}\n")
    };
    let mixed = [line("a", 0, "IB"), line("a", 1, "IB"), line("b", 0, "Socket")].concat();
    let found = answers(&mixed);
    assert!(found[0].reason.ends_with("IB of 2, Socket of 1"), "{}", found[0].reason);
    // Two runs, one after the other, are none.
    let twice = [line("a", 0, "IB"), line("a", 0, "Socket")].concat();
    assert!(answers(&twice).iter().all(|answer| !answer.reason.contains("different networks")));
}

#[test]
fn a_larger_message_that_is_faster_marks_those_before_it() {
    let rows = |times: &[(u64, f64)]| {
        let rows = times.iter().map(|(bytes, us)| format!("{bytes} {us:.2}\n"));
        format!(
            "# OSU MPI-ROCM Latency Test v7.0\n# Size  Latency (us)\n{}",
            rows.collect::<String>()
        )
    };
    let slow = rows(&[
        (1, 3.5),
        (64, 4.0),
        (256, 28.9),
        (512, 53.6),
        (1024, 103.0),
        (2048, 5.1),
        (4096, 5.9),
    ]);
    let first = answers(&slow).remove(0);
    // 103 / 5.1 = 20 times as long for half the bytes.
    assert_eq!(first.verdict, Suspect, "{}", first.reason);
    assert!(
        first.reason.contains("256 to 1024 B") && first.reason.contains("2048 B take 5.10 us"),
        "{}",
        first.reason
    );
    // A slow first size is the start of the connection.
    let warm = rows(&[(1, 45.0), (64, 4.0), (256, 4.1), (1024, 4.3), (4096, 5.9)]);
    assert_ne!(answers(&warm).remove(0).verdict, Suspect);
}

#[test]
fn counts_that_are_written_stand_before_what_is_usual() {
    let table = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n\
                 1048576 8192 float none -1 1456.6 0.72 0.70 0 1304.0 0.80 0.78 0\n\
                 2097152 16384 float none -1 1800.0 1.17 1.13 0 1790.0 1.17 1.13 0\n";
    let text = format!(
        "The run is on 4 nodes with 4 MI250X each.\nsrun --nodes=4 --ntasks-per-node=8 all_gather_perf -g 1\n{table}"
    );
    let first = answers(&text).remove(0);
    assert!(first.meaning.contains("32 ranks on 4 nodes"), "{}", first.meaning);
    // 93.1 of 4 x 25 GB/s.
    let pair = "$ osu_bw -d cuda D D\n# OSU MPI-CUDA Bandwidth Test v7.2\n# Size  Bandwidth (MB/s)\n\
                1048576  73675.19\n33554432  93130.52\n\nTwo A100 are joined by 4x NVLink (25GB/s each)\n";
    let first = answers(pair).remove(0);
    assert_eq!((first.limit_gbs, first.verdict), (Some(100.0), pathline_schema::NodeVerdict::Ok));
    // Both directions of a pair on a board of four: 261 / 2 = 130 GB/s each way.
    let board = "p2pBandwidthLatencyTest on a 4xH100-80GB system\n\nbidirectional\nGPU0-GPU0 = 2959.19 GB/s\nGPU0-GPU1 = 260.89 GB/s\n";
    let first = answers(board).remove(0);
    assert!(first.limit.starts_with("159 GB/s each way, 6 NVLinks a pair"), "{}", first.limit);
}
