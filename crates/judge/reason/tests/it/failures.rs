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
