//! Figures of public threads with the resolution that they reached. Only figures and a few words of each
//! are kept.

use pathline_paste::read_paste;
use pathline_reason::explain_paste;

struct ThreadCase {
    thread: &'static str,
    paste: &'static str,
    /// Causes that the thread's resolution allows.
    causes: &'static [&'static str],
}

const CASES: &[ThreadCase] = &[
    ThreadCase {
        thread: "NVIDIA/nccl-tests#212",
        paste: "`all_reduce_perf` in H100, the algbw is about 250GB/S. But officials claim that all reduce \
                can reach 450GB/S.",
        causes: &["nvls"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl#1455, 6 GPUs",
        paste: "H100 SXM\n# nThread 1 nGpus 6 minBytes 8589934592 maxBytes 17179869184\n\
                8589934592 2147483648 float sum -1 32800 261.9 436.5 0 32800 261.9 436.5 0\n\
                17179869184 4294967296 float sum -1 65075 264.0 440.0 0 65075 264.0 440.0 0\n",
        causes: &["nvls"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl-tests#272",
        paste: "8 x H200\n# nThread 1 nGpus 8 minBytes 1 maxBytes 17179869184\n\
                8589934592 2147483648 float sum -1 31800 270.1 472.7 0 31800 270.1 472.7 0\n\
                17179869184 4294967296 float sum -1 63300 271.4 475.0 0 63300 271.4 475.0 0\n",
        causes: &["nvls"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl-tests#294",
        paste: "# nThread 1 nGpus 1 minBytes 134217728 maxBytes 2147483648\n# Using devices\n\
                #  Rank  0 Group  0 Pid 895544 on h100-2 device  0 [0002:00:01] NVIDIA H100 80GB HBM3\n\
                134217728 33554432 float sum -1 95.1 1411.1 0.00 0 0.4 3.3e+05 0.00 0\n\
                # Avg bus bandwidth    : 0\n",
        causes: &["one-rank"],
    },
    ThreadCase {
        thread: "NVIDIA/nvbandwidth#53",
        paste: "8x NVIDIA A100-SXM4-80GB\n\
                memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n 0 1 2 3\n 0 11.4 12.4 12.1 13.0\n\
                SUM host_to_device_bidirectional_memcpy_ce 49\n\
                memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n 0 1 2 3\n 0 25.4 25.4 25.1 25.0\n\
                SUM device_to_host_bidirectional_memcpy_ce 101\n",
        causes: &["one-of-two-streams"],
    },
    ThreadCase {
        thread: "NVIDIA/nvbandwidth#24",
        paste: "H100 cluster\n> Running host_to_device_memcpy_sm.\n\
                memcpy SM CPU(row) -> GPU(column) bandwidth (GB/s)\n0 1 2 3\n0 35.19 35.25 35.30 35.03\n\n\
                > Running device_to_host_memcpy_sm.\n\
                memcpy SM CPU(row) <- GPU(column) bandwidth (GB/s)\n0 1 2 3\n0 52.77 52.77 52.77 52.78\n",
        causes: &["kernel-reads"],
    },
    ThreadCase {
        thread: "NVIDIA/nvbandwidth#50",
        paste: "6 A6000 devices\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1 2 3 4 5\n\
                0 N/A 26.34 26.35 21.95 22.64 21.80\n 1 26.34 N/A 26.34 21.86 22.62 22.63\n\
                2 26.34 26.35 N/A 22.36 21.87 22.17\n 3 21.82 21.82 22.26 N/A 26.34 26.35\n\
                4 22.64 22.64 21.81 26.35 N/A 26.34\n 5 21.86 22.67 22.01 26.34 26.35 N/A\n\n\
                SUM device_to_device_memcpy_read_ce 715.53\n",
        causes: &["pcie-peer", "across-sockets"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl#814",
        paste: "A10G\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2 3\n\
                0 911.08 20.10 22.16 22.14\n1 20.39 920.20 22.26 22.24\n2 22.18 22.37 920.74 22.09\n\
                3 22.24 22.42 22.25 922.37\n\
                Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D 0 1 2 3\n\
                0 912.68 9.90 9.90 9.90\n1 9.90 922.37 9.90 9.90\n2 10.01 10.01 922.24 10.01\n\
                3 10.23 10.23 10.23 921.83\n",
        causes: &["peer-through-root"],
    },
    ThreadCase {
        thread: "ROCm/rccl#1210",
        paste: "a single node with 4 MI300X GPUs.\nRCCL determines the BW of a XGMI link as 48GB/s.\n\
                The data sheet shows 64GB/s connectivity.",
        causes: &["protocol-overhead"],
    },
    ThreadCase {
        thread: "ROCm/legacy-rocm-build#2499",
        paste: "8xMI100\nBidirectional speed between two GPU's in same hive is about 70GB/s, but according \
                to official documentation must be about 92GB/s.",
        causes: &["protocol-overhead"],
    },
    ThreadCase {
        thread: "openucx/ucx#9287",
        paste: "# OSU MPI-CUDA Bandwidth Test v7.2\n\
                # Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n\
                4096 3500\n8192 6400\n16384 1500\n32768 1900\n1048576 3600\n4194304 3800\n",
        causes: &["protocol-switch"],
    },
    ThreadCase {
        thread: "breuner/elbencho#11",
        paste: "Reading a single file with GDS gives about 17GB/s, the storage system should be able to \
                deliver 40GB/s.\nelbencho -r --direct -b2m --cufile --gdsbufreg --rand -t 256 /mnt/file\n",
        causes: &["one-file"],
    },
    ThreadCase {
        thread: "EESSI/software-layer#716",
        paste: "        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity\n\
                GPU0     X      NV4     SYS   0-31  0\nGPU1    NV4      X      SYS  0-31 0\n\
                NIC0    SYS     SYS      X\nA100\n# OSU MPI-CUDA Bandwidth Test v7.2\n\
                # Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n\
                262144 44371.70\n524288 61133.24\n1048576 73675.19\n2097152 82905.64\n4194304 87543.13\n\
                8388608 90981.81\n16777216 92202.43\n33554432 93130.52\n",
        causes: &["link-full"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl-tests#251",
        paste: "2x InfiniBand EDR (Connect-X4), 4x NVIDIA V100 GPU\n\
                \u{20}       GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity\n\
                GPU0     X      NV2     NV2     NV2     PIX     SYS     0-19  0\n\
                GPU1    NV2      X      NV2     NV2     PIX     SYS     0-19  0\n\
                GPU2    NV2     NV2      X      NV2     SYS     PIX     20-39  1\n\
                GPU3    NV2     NV2     NV2      X      SYS     PIX     20-39  1\n\
                NIC0    PIX     PIX     SYS     SYS      X      SYS\nNIC1    SYS     SYS     PIX     PIX     SYS      X\n\n\
                # nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592\n# Using devices\n\
                #  Rank  0 Group  0 Pid 1 on n1 device 0 [0x81] Tesla V100\n\
                #  Rank  7 Group  0 Pid 2 on n2 device 3 [0x81] Tesla V100\n\
                4294967296 1073741824 float sum -1 182000 23.60 41.30 0 182000 23.60 41.30 0\n\
                8589934592 2147483648 float sum -1 362000 23.74 41.55 0 362000 23.74 41.55 0\n",
        causes: &["tree-of-two-nodes"],
    },
    ThreadCase {
        thread: "linux-rdma/perftest#241",
        paste: "NVIDIA A30, GPU and NIC are SYS; host memory reaches 23000 MB/s\ninitializing CUDA\n\
                \u{20}                   RDMA_Write BW Test\n Dual-port : OFF    Device : mlx5_0\n\
                Number of qps   : 1    Transport type : IB\n Mtu : 4096[B]\n\
                #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n\
                33554432 5000 11020.0 11000.0 0.000344\n",
        causes: &["gpu-far-from-adapter"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl#1453",
        paste: "2 nodes of 8 A100\n\
                #  Rank  0 Group  0 Pid 1 on n1 device 0 [0x81] NVIDIA A100\n\
                #  Rank 15 Group  0 Pid 2 on n2 device 7 [0x81] NVIDIA A100\n\
                8388608 2097152 float sum -1 992.6 8.45 15.85 0 986.0 8.51 15.95 0\n\
                16777216 4194304 float sum -1 1334.9 12.57 23.57 0 1336.5 12.55 23.53 0\n\
                33554432 8388608 float sum -1 2180.1 15.39 28.86 0 2285.2 14.68 27.53 0\n\
                67108864 16777216 float sum -1 24410 2.75 5.16 0 24425 2.75 5.16 0\n\
                134217728 33554432 float sum -1 49264 2.72 5.10 0 48558 2.76 5.18 0\n",
        causes: &["falls-with-size"],
    },
    ThreadCase {
        thread: "ROCm/legacy-rocm-build#2253",
        paste: "          Device: 0,  AMD EPYC 7542 32-Core Processor\n\
                Device: 1,  Radeon RX 7900 XTX,  GPU-XX,  83:0.0\n\
                Device: 2,  Radeon RX 7900 XTX,  GPU-XX,  03:0.0\n\n\
                Unidirectional copy peak bandwidth GB/s\n\n D/D 0 1 2\n\n 0 N/A 28.411 28.410\n\n\
                1 29.013 649.528 N/A\n\n 2 29.016 N/A 636.462\n\n",
        causes: &["pcie-full"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl#1530",
        paste: "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n# Using devices\n\
                #  Rank  0 Group  0 Pid  28307 on gpu59 device  0 [0x16] NVIDIA GeForce RTX 4090\n\
                #  Rank  7 Group  0 Pid  28307 on gpu59 device  7 [0xd8] NVIDIA GeForce RTX 4090\n\
                67108864 16777216 float sum -1 17950 3.74 6.54 0 17950 3.74 6.54 0\n\
                134217728 33554432 float sum -1 35600 3.77 6.60 0 35600 3.77 6.60 0\n",
        causes: &["through-host-memory"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl-tests#267",
        paste: "H100 nodes, each with 8*400Gb cx7 nics\n# Collective test starting: alltoall_perf\n\
                # nThread 1 nGpus 1 minBytes 1 maxBytes 1\n\
                #  Rank  0 Group  0 Pid 1 on n0 device 0 [0x18] NVIDIA H100\n\
                #  Rank 16 Group  0 Pid 1 on n2 device 0 [0x18] NVIDIA H100\n\
                #  Rank 24 Group  0 Pid 1 on n3 device 0 [0x18] NVIDIA H100\n\
                #  Rank 32 Group  0 Pid 1 on n4 device 0 [0x18] NVIDIA H100\n\
                #  Rank 40 Group  0 Pid 1 on n5 device 0 [0x18] NVIDIA H100\n\
                #  Rank 47 Group  0 Pid 1 on n6 device 7 [0x18] NVIDIA H100\n\
                8589934592 44739242 float none -1 154000 55.8 54.6 0 154000 55.8 54.6 N/A\n\
                17179869184 89478485 float none -1 306000 56.1 54.9 0 306000 56.1 54.9 N/A\n",
        causes: &["network-full"],
    },
    ThreadCase {
        thread: "NVIDIA/nccl#1264",
        paste: "HGX H100 SXM\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2\n\
                0 2474.76 37.19 37.20\n1 36.36 2512.44 37.35\n2 36.34 36.27 2498.88\n\
                Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D 0 1 2\n\
                0 2494.76 371.02 376.65\n1 375.10 2510.00 376.50\n2 376.20 375.90 2500.00\n",
        causes: &["link-full"],
    },
    ThreadCase {
        thread: "NVIDIA/cuda-samples#392",
        paste: "p2pBandwidthLatencyTest on a 4xH100-80GB system\nbidirectional\n\
                GPU0-GPU1 = 260.89 GB/s\nThe spec says GPU0-GPU1 NVlink bandwidth is 300 GB/s.",
        causes: &["protocol-overhead"],
    },
];

#[test]
fn the_first_cause_is_that_of_the_thread() {
    let mut wrong = Vec::new();
    for case in CASES {
        let found = explain_paste(&read_paste(case.paste.as_bytes()), None);
        let first = found.answers.first().and_then(|answer| answer.causes.first());
        if !first.is_some_and(|cause| case.causes.contains(&cause.id)) {
            let shares: Vec<_> = found
                .answers
                .iter()
                .map(|a| a.causes.iter().take(4).map(|c| (c.id, c.share)).collect::<Vec<_>>())
                .collect();
            wrong.push(format!("{}: {shares:.2?}", case.thread));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_answer_has_five_lines_and_its_arithmetic() {
    let case = CASES.iter().find(|case| case.thread.ends_with("6 GPUs")).unwrap();
    let found = explain_paste(&read_paste(case.paste.as_bytes()), None);
    let lines = found.answers[0].lines();
    assert_eq!(
        lines.iter().map(|l| l.0).collect::<Vec<_>>(),
        ["figure", "limit", "share", "cause", "decide"]
    );
    // 450 x 0.686 x 2 x 5 / 7 = 441.
    assert!(lines[3].1.contains("450 x 0.686 x 2(6-1)/(6+1) = 441 GB/s"), "{}", lines[3].1);
}

#[test]
fn without_a_known_output_there_is_no_answer() {
    for text in ["", "hello", "{\"a\": 1}", "1 2 3\n4 5 6\n"] {
        assert!(explain_paste(&read_paste(text.as_bytes()), None).answers.is_empty(), "{text:?}");
    }
}
