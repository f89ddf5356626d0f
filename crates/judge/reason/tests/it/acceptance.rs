//! Cases E2 to E20 of the design: figures whose answer follows from them.

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, PasteExplanation, explain_paste};
use pathline_schema::NodeVerdict;

fn explain(paste: &str) -> PasteExplanation {
    explain_paste(&read_paste(paste.as_bytes()), None)
}

fn first(paste: &str) -> PasteAnswer {
    explain(paste).answers.into_iter().next().expect("an answer")
}

/// all_reduce over `n` GPUs at a busbw: algbw = busbw n / (2 (n - 1)).
fn reduced(gpu: &str, n: u32, busbw: f64) -> String {
    let alg = busbw * f64::from(n) / (2.0 * f64::from(n - 1));
    let row = |bytes: u64| {
        let time = bytes as f64 / alg / 1e3;
        let values = format!("{time:.0} {alg:.2} {busbw:.2} 0");
        format!("{bytes} {} float sum -1 {values} {values}\n", bytes / 4)
    };
    format!("{gpu}\n# nThread 1 nGpus {n} minBytes 1 maxBytes 1\n{}{}", row(1 << 33), row(1 << 34))
}

#[test]
fn e2_nvlink_sharp_by_number_of_gpus() {
    // busbw = B 2(n-1)/(n+1), B = 0.686 x 450 = 308.7: 412, 441, 463, 480. Seen: 420, 440, 460, 480.
    for (n, seen) in [(5, 420.0), (6, 440.0), (7, 460.0), (8, 480.0)] {
        let found = first(&reduced("H100 SXM", n, seen));
        let law = 0.686 * 450.0 * 2.0 * f64::from(n - 1) / f64::from(n + 1);
        assert_eq!((found.verdict, found.causes[0].id), (NodeVerdict::Ok, "nvls"), "{n}");
        let predicted = found.causes[0].predicted.unwrap();
        assert!((predicted - law).abs() < 0.1 && (law / seen - 1.0).abs() < 0.02);
    }
}

#[test]
fn e2_nvlink_sharp_of_the_h800_and_more_than_the_links() {
    // 0.686 x 200 x 2 x 7 / 9 = 213.4; seen: 215 of 8 x 26.56 = 212.5. On H200 480; seen: 480 of links of 478.
    for (gpu, seen) in [("8 x H800", 215.0), ("8 x H200", 480.0)] {
        let found = first(&reduced(gpu, 8, seen));
        assert_eq!((found.verdict, found.causes[0].id), (NodeVerdict::Ok, "nvls"), "{gpu}");
        // More than the links is no share of them.
        assert!(found.share.is_none() && !found.lines().iter().any(|line| line.0 == "share"));
    }
}

#[test]
fn e4_a_rank_alone() {
    let found = first(
        "# nThread 1 nGpus 1 minBytes 134217728 maxBytes 2147483648\n# Using devices\n\
         #  Rank  0 Group  0 Pid 895544 on h100-2 device  0 [0002:00:01] NVIDIA H100 80GB HBM3\n\
         134217728 33554432 float sum -1 95.1 1411.1 0.00 0 0.4 3.3e+05 0.00 0\n\
         # Avg bus bandwidth    : 0\n",
    );
    assert_eq!((found.verdict, found.causes[0].id), (NodeVerdict::Suspect, "one-rank"));
    assert!(!found.is_fault);
}

#[test]
fn e7_one_of_two_streams() {
    let found = first(
        "8x NVIDIA A100-SXM4-80GB\nmemcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n 0 1 2 3\n \
         0 11.4 12.4 12.1 13.0\nSUM host_to_device_bidirectional_memcpy_ce 49\n\
         memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n 0 1 2 3\n 0 25.4 25.4 25.1 25.0\n\
         SUM device_to_host_bidirectional_memcpy_ce 101\n",
    );
    let cause = found.causes[0].id;
    // 12.25 of 25.25.
    assert_eq!((found.verdict, cause), (NodeVerdict::Suspect, "one-of-two-streams"));
    assert!(found.reason.contains("49 %") && !found.is_fault, "{}", found.reason);
}

#[test]
fn e9_a_shared_uplink_and_suspects_both_ways() {
    let found = first(
        "8 x H100\nHost/Device Bandwidth Matrix (GB/s), memory=Pinned\n\
         \u{20}  Dir\\D       0      1      2      3      4      5      6      7\n\
         \u{20}  D2H     56.83  57.12  57.14  57.15  55.37  55.47  55.49  53.53\n\
         \u{20}  H2D     56.17  56.21  56.21  56.20  56.17  56.17  56.12  56.14\n\
         \u{20}  BiDir  101.26 101.38 101.40 101.37  89.20  43.62   7.25   9.71\n\
         Concurrent Host/Device Bandwidth Matrix (GB/s), memory=Pinned\n\
         \u{20}  Dir\\D       0      1      2      3      4      5      6      7  Total\n\
         \u{20}  H2D     44.61  44.80  43.68  43.69  25.32  25.49  25.45  25.47 278.5\n",
    );
    assert!(found.verdict == NodeVerdict::Suspect && found.is_fault, "{}", found.reason);
    // 43.6, 7.25 and 9.71 of 101: gpu5 to gpu7, and not gpu4 at 89.2.
    assert!(found.reason.contains("gpu5 43.6, gpu6 7.25, gpu7 9.71"), "{}", found.reason);
    let shared = found.causes.iter().find(|cause| cause.id == "shared-uplink").expect("a cause");
    assert!(shared.text.contains("gpu4 25.3") && !shared.text.contains("gpu3"), "{}", shared.text);
}

#[test]
fn e11_p2p_through_the_root() {
    let found = first(
        "A10G\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2 3\n\
         0 911.08 20.10 22.16 22.14\n1 20.39 920.20 22.26 22.24\n2 22.18 22.37 920.74 22.09\n\
         3 22.24 22.42 22.25 922.37\n\
         Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D 0 1 2 3\n\
         0 912.68 9.90 9.90 9.90\n1 9.90 922.37 9.90 9.90\n2 10.01 10.01 922.24 10.01\n\
         3 10.23 10.23 10.23 921.83\n",
    );
    assert_eq!((found.verdict, found.causes[0].id), (NodeVerdict::Suspect, "peer-through-root"));
    // 9.9 / 22.2 = 45 %.
    assert!(found.reason.contains("45 % of those with P2P off"), "{}", found.reason);
}

#[test]
fn e17_a_protocol_switch() {
    let found = first(
        "# OSU MPI-CUDA Bandwidth Test v7.2\n# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n\
         4096 3500\n8192 6400\n16384 1500\n32768 1900\n1048576 3600\n4194304 3800\n",
    );
    assert_eq!((found.verdict, found.causes[0].id), (NodeVerdict::Suspect, "protocol-switch"));
    assert!(found.reason.contains("6.40 GB/s at 8192 B, 1.50 at 16384 B"), "{}", found.reason);
}

#[test]
fn e20_direct_storage_across_sockets() {
    // 6.9 direct, 20.6 GiB/s staged: a third.
    let line = |kind: &str, gib: &str| {
        format!(
            "IoType: READ XferType: {kind} Threads: 32 DataSetSize: 1/1(KiB) IOSize: 1024(KiB) Throughput: \
             {gib} GiB/sec, Avg_Latency: 1500.0 usecs ops: 1 total_time 60.0 secs\n"
        )
    };
    let found = first(&format!("{}{}", line("GPUD", "6.9"), line("CPU_GPU", "20.6")));
    assert!(found.verdict == NodeVerdict::Suspect && !found.is_fault);
    assert!(found.reason.contains("33 %"), "{}", found.reason);
}

#[test]
fn records_of_profilers_are_explained() {
    // 17179869184 B / 61974 us x 1.75 = 485 GB/s.
    let record = |rank: u32, us: u32| {
        format!(
            "{{\"header\":{{\"rank\":{rank},\"n_ranks\":8,\"nnodes\":1}},\"coll_perf\":{{\"coll\":\"AllReduce\",\
             \"coll_msg_size_bytes\":17179869184,\"coll_exec_time_us\":{us},\"coll_algobw_gbs\":277.2}}}}\n"
        )
    };
    let records: String = (0..8).map(|rank| record(rank, 61_974 + rank)).collect();
    let found = explain(&format!("H100 SXM\n{records}"));
    let answer = &found.answers[0];
    assert_eq!((answer.tool.as_str(), answer.causes[0].id), ("NCCL Inspector", "nvls"));
    assert_eq!((answer.first_line, answer.last_line, found.answers.len()), (2, 9, 1));
    // Two channels of 22 GB/s on links of 300.
    let few = "{\"header\":{\"rank\":0,\"n_ranks\":8},\"coll_perf\":{\"coll\":\"AllGather\",\
               \"coll_msg_size_bytes\":134217728,\"coll_n_channels\":2,\"coll_exec_time_us\":21350.0}}\n";
    let answer = first(&format!("A100-SXM4\n{few}{{\"summary\":{{\"complete\":true}}}}\n"));
    // 128 MiB x 8 / 21350 us x 7/8 = 44.0 GB/s.
    assert_eq!((answer.tool.as_str(), answer.causes[0].id), ("RCCL ACCL profiler", "few-channels"));
    assert_eq!(answer.verdict, NodeVerdict::Suspect);
    assert!(
        (answer.value_gbs.unwrap() - 44.0).abs() < 0.1 && !answer.meaning.contains("does not say")
    );
}
