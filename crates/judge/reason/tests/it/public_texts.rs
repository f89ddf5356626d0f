//! Kinds of texts of public threads: cut tables, hanging programs, sentences with rates, logs of one host.

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, PasteExplanation, explain_paste};
use pathline_schema::NodeVerdict::{Ok, Suspect, Undecided};

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
    // 1 - 306 / 1600.
    assert!(
        found.split_whitespace().collect::<Vec<_>>().join(" ").contains("are 80.9 % of the time")
    );
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
fn a_card_behind_another_port_is_no_fault_where_its_link_is_full() {
    // 49.8 / 63 = 79 %, the others 89 %; 31 would be 49 %.
    let rows = |slow: f64| {
        let cell = |a, b| {
            if a == b {
                1490.0
            } else if a == 3 || b == 3 {
                slow
            } else {
                56.2
            }
        };
        let row = |a| (0..4).map(|b| format!(" {}", cell(a, b))).collect::<String>();
        let rows: String = (0..4).map(|a| format!("{a}{}\n", row(a))).collect();
        format!(
            "4 x H100 PCIe\nUnidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2 3\n{rows}"
        )
    };
    let near = first(&rows(49.8));
    assert!(near.verdict == Ok && text(&near).contains("all 6 pairs of gpu3"), "{near:?}");
    let far = first(&rows(31.0));
    assert!(far.verdict == Suspect && !far.action.contains("xgmi"), "{far:?}");
}

#[test]
fn a_gpu_behind_another_root_port_is_slower_and_sound() {
    // 51.0 of 63 GB/s are 81 %, usual for a PCIe link.
    let row = |gpu: usize| {
        let cell = |peer: usize| match (gpu == peer, gpu == 3 || peer == 3) {
            (true, _) => "1400.00",
            (false, true) => "50.97",
            (false, false) => "55.60",
        };
        format!("  {gpu} {}\n", (0..6).map(cell).collect::<Vec<_>>().join(" "))
    };
    let rows: String = (0..6).map(row).collect();
    let found = first(&format!(
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D  0 1 2 3 4 5\n{rows}"
    ));
    assert_eq!((found.verdict, found.limit_gbs), (Ok, Some(63.0)), "{}", text(&found));
    assert!(text(&found).contains("all 10 pairs of gpu3"), "{}", text(&found));
}

#[test]
fn one_gpu_of_a_node_is_bounded_by_its_link() {
    // 23.8 / 31.5; the adapters together would have 50.
    let found = first(
        "2 nodes, A100-PCIE-40GB, two HDR200 cards each\nmpirun -np 2 -H a:1,b:1 ./all_reduce_perf -g 1\n\
         1073741824 268435456 float sum -1 45300 23.70 23.70 0 45290 23.71 23.71 0\n\
         2147483648 536870912 float sum -1 90300 23.78 23.78 0 90310 23.78 23.78 0\n",
    );
    assert_eq!((found.verdict, found.limit_gbs), (Ok, Some(31.5)));
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
    // What no link of these parts has is no limit.
    let hoped =
        first("Our MI300x box: TransferBench has 36 GB/s between GPUs, it should be 90GB/s. Why?");
    assert!(text(&hoped).contains("compared with 90.0 GB/s") && hoped.limit_gbs != Some(90.0));
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

#[test]
fn tables_of_documents_are_read() {
    // 181 of 4 x 50 GB/s.
    let table = "4 nodes, 8 H100 and 4x ConnectX-7 400 Gb/s each\n\n| run | what |\n|---|---|\n\
                 | `all_reduce_perf`, 4 GiB | **181.0 GB/s** busbw |\n| `alltoall_perf`, 1 GiB | ~22 GB/s |\n";
    assert_eq!((first(table).verdict, first(table).limit_gbs), (Ok, Some(200.0)));
    // 196.4 of 200 Gbit/s.
    let sent = "ConnectX-6, HDR, ib_write_bw:\n\n| size | rate (Gb/s) |\n|--|--|\n| 4096 | 92.1 |\n| 65536 | 196.4 |\n";
    assert_eq!((first(sent).verdict, first(sent).limit_gbs), (Ok, Some(25.0)));
}
