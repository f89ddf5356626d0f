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
