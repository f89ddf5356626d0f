//! Kinds of texts of public threads: cut tables, hanging programs, sentences with rates, logs of one host.

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, PasteExplanation, explain_paste};
use pathline_schema::NodeVerdict::{Suspect, Undecided};

fn explain(paste: &str) -> PasteExplanation {
    explain_paste(&read_paste(paste.as_bytes()), None)
}

fn first(paste: &str) -> PasteAnswer {
    explain(paste).answers.into_iter().next().expect("an answer")
}

fn text(answer: &PasteAnswer) -> String {
    answer.lines().into_iter().map(|(label, text)| format!("{label} {text}\n")).collect()
}

#[test]
fn what_a_cut_table_lacks_is_no_figure() {
    let fio = "t: (g=0): rw=read, bs=(R) 64.0KiB-64.0KiB, (W) 64.0KiB-64.0KiB, (T) 64.0KiB-64.0KiB, ioengine=libaio, iodepth=16\n\
               t: (groupid=0, jobs=1): err= 0: pid=1\n  read: IOPS=10.0k, BW=625MiB/s (655MB/s)(9GiB/15000msec)\n\
               \x20    lat (usec): min=50, max=900, avg=1600.00, stdev=9.0\n    clat percentiles (usec):\n\
               \x20    | 50.00th=[  306], 95.00th=[  363],\n";
    let found = text(&first(fio));
    assert!(found.contains("median 306 us\n") && !found.contains("0.000"), "{found}");
    // 64 B of a table whose larger sizes are missing: 0.2 of 12.5 GB/s would say nothing of the link.
    let short = first(
        "EDR\n# OSU MPI Bandwidth Test v7\n# Size Bandwidth (MB/s)\n1 3.6\n2 7.2\n32 114.0\n64 225.0\n",
    );
    assert_eq!((short.verdict, short.share), (Undecided, None));
}

#[test]
fn a_setting_is_undone_where_a_figure_is_slow() {
    let hang = "Hangs without it:\nexport NCCL_P2P_DISABLE=1\nws1:7:7 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n\
                ws1:7:8 [0] NCCL INFO Failed to open libibverbs.so[.1]\nws1:7:8 [0] NCCL INFO Using network Socket\n";
    let found = explain(hang);
    assert_eq!((found.settings.len(), found.settings[0].action), (1, ""));
    // One host sends nothing to another one.
    assert!(found.answers.iter().all(|one| one.is_description && !text(one).contains("TCP")));
    let two = explain(&hang.replace("Hangs", "2 nodes"));
    assert!(two.answers.iter().any(|one| one.verdict == Suspect && text(one).contains("TCP")));
    // 20 of 450 GB/s.
    let slow = "8 x H100, NCCL_P2P_DISABLE=1\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n\
                8589934592 2147483648 float sum -1 751619 11.43 20.0 0 751619 11.43 20.0 0\n";
    assert_eq!(explain(slow).settings[0].action, "unset it");
}

#[test]
fn rates_of_sentences_are_shown_without_a_cause() {
    let asked =
        first("Our MI300x box: TransferBench has 36 GB/s between GPUs, it should be 64GB/s. Why?");
    assert_eq!(
        (asked.verdict, asked.value_gbs, asked.limit_gbs),
        (Undecided, Some(36.0), Some(64.0))
    );
    assert!(asked.action.is_empty() && asked.possible.is_empty());
    // One of four 200 Gb/s adapters is named.
    let nccl = "2 nodes, four 200Gb RoCEv2 NICs\nmpirun -H a:8,b:8 -x NCCL_IB_HCA=mlx5_0 ./all_reduce_perf -b 1G\n\
                The average bus bandwidth is only 9.84 GB/s (about 80Gbps).\n";
    assert_eq!((first(nccl).value_gbs, first(nccl).limit_gbs), (Some(9.84), Some(25.0)));
    // A card of the third generation in a slot of the fifth.
    let slot = first("A V100 in a PCIe5 x16 slot: bandwidthTest has 10 GB/s, is that low?");
    assert_eq!(slot.limit_gbs, Some(15.75));
    let notes =
        "It moves files at 12 GB/s where version 2.3 had 7 GB/s. Nodes have 200 Gb/s cards.";
    assert!(explain(notes).answers.is_empty());
}
