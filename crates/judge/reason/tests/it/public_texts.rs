//! Kinds of texts of public threads: sentences with rates.

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, PasteExplanation, explain_paste};
use pathline_schema::NodeVerdict::Undecided;

fn explain(paste: &str) -> PasteExplanation {
    explain_paste(&read_paste(paste.as_bytes()), None)
}

fn first(paste: &str) -> PasteAnswer {
    explain(paste).answers.into_iter().next().expect("an answer")
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
