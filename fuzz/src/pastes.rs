//! Outputs of other tools as people paste them: a target for each reader, all through the same door,
//! because what one reader leaves is what the next one sees.

use pathline_paste::{clean_text, read_paste};
use pathline_reason::explain_paste;

/// Words of all outputs.
pub(crate) const WORDS: &[&str] = &[
    "\n",
    "\r",
    "\t",
    "```\n",
    "> ",
    "[1,0]<stdout>:",
    "\u{1b}[0m",
    "N/A",
    "nan",
    "1e308",
    "-1",
    "0",
    "18446744073709551615",
    "12,5",
    "float  sum  -1",
    "GB/s",
    "[8589934592]",
    "NCCL INFO ",
    " via P2P/CUMEM",
    " device 0 [0x18] NVIDIA H100",
    "# Rank 4294967295",
    "GPU4294967295",
    "SUM ",
    "->",
    "<-",
    "X",
    "NV18",
    "SYS",
    "{",
    "}",
    "\"",
    "AMD Instinct MI250X",
    "RTX 4090",
    "NCCL_MAX_NCHANNELS=1",
    "400 Gb/s NIC",
    "should be",
    "LnkSta: Speed 8GT/s, Width x8",
];

/// Reads and explains; spans lie in the paste, shares are probabilities, figures are finite.
pub(crate) fn paste(input: &[u8]) -> String {
    let reading = read_paste(input);
    for document in &reading.documents {
        let span = document.span;
        assert!(
            span.first >= 1 && span.first <= span.last && span.last <= reading.lines,
            "{span:?}"
        );
    }
    assert!(reading.unread.iter().all(|s| s.first <= s.last && s.last <= reading.lines));
    let found = explain_paste(&reading, None);
    // Names and warnings are quoted: those of the paste itself may have it.
    let is_quoted = clean_text(input).contains("NaN");
    for answer in &found.answers {
        for cause in &answer.causes {
            assert!((0.0..=1.0).contains(&cause.share), "{cause:?}");
            assert!(cause.predicted.is_none_or(f64::is_finite), "{cause:?}");
        }
        let all_numbers = answer.lines().iter().all(|(_, text)| !text.contains("NaN"));
        assert!(is_quoted || all_numbers, "{answer:?}");
    }
    let text = serde_json::to_string(&found).expect("an explanation is JSON");
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON is read again");
    let tools: Vec<_> = reading.documents.iter().map(|d| d.content.tool()).collect();
    let causes: Vec<_> = found.answers.iter().filter_map(|a| Some(a.causes.first()?.id)).collect();
    match tools.is_empty() && causes.is_empty() {
        true => format!("nothing known {}", causes.join(" ")),
        false => format!("read {} {}", tools.join(" "), causes.join(" ")),
    }
}

fn own(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(crate) fn collectives() -> Vec<Vec<u8>> {
    own(&[
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 1\n# Using devices\n\
         #  Rank  0 Group  0 Pid 1 on n1 device  0 [0x18] NVIDIA H100 80GB HBM3\n\
         134217728 33554432 float sum -1 489.1 274.4 480.2 0 489.1 274.4 480.2 0\n\
         268435456 67108864 float sum -1 978.1 274.4 480.2 0 978.1 274.4 480.2 0\n\
         # Avg bus bandwidth : 480.2\n",
        "{\"args\":[\"all_gather_perf\"],\"config\":{\"ngpus\":2},\"devices\":[{\"rank\":0,\
         \"hostname\":\"a\",\"device_info\":\"NVIDIA A100\"}],\"results\":[{\"size\":1024,\
         \"out_of_place\":{\"time\":1.0,\"alg_bw\":2.0,\"bus_bw\":1.0,\"nwrong\":0}}]}",
        "{\"header\":{\"rank\":2,\"n_ranks\":8,\"nnodes\":1},\"coll_perf\":{\"coll\":\"AllReduce\",\
         \"coll_msg_size_bytes\":17179869184,\"coll_exec_time_us\":61974,\"coll_algobw_gbs\":277.2}}\n\
         {\"header\":{\"n_ranks\":8},\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_n_channels\":4,\
         \"coll_msg_size_bytes\":4194304,\"coll_exec_time_us\":150.3}}\n\
         {\"summary\":{\"complete\":true}}\nH100\n",
        "we get 250 GB/s busbw on 8 x H100, but should be 450 GB/s\n",
    ])
}

pub(crate) fn logs() -> Vec<Vec<u8>> {
    own(&["n1:1:2 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to LOC\n\
           n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n\
           n1:1:2 [0] NCCL INFO 16 coll channels, 16 p2p channels\n\
           n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 2\n\
           n1:1:2 [0] NCCL INFO + XGMI[48.0] - GPU/1\n\
           n1:1:2 [0] NCCL WARN Cuda failure\nRCCL version 2.20.5+hip6.2\n"])
}

pub(crate) fn messages() -> Vec<Vec<u8>> {
    own(&[
        "A100\n# OSU MPI-CUDA Bandwidth Test v7.2\n\
         # Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n\
         8192 6400.0\n16384 1500.0\n4194304 3800.0\n",
        "# OSU MPI Allreduce Latency Test v7.2\n# Size Avg Latency(us)\n4 1.5\n8 1.6\n",
        "initializing CUDA\n RDMA_Write BW Test\n Dual-port : OFF  Device : mlx5_0\n Mtu : 4096[B]\n\
         #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n\
         65536 1000 387.1 385.2 0.73\n",
        "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n2 1000 1.0 9.9 1.5 1.6\n",
        "| Test: tag match bandwidth |\n| Send memory: cuda |\n| Recv memory: host |\n\
         | Message size: 8388608 |\nFinal: 100 0.4 322.9 322.9 24775.6 24775.6 3097 3097\nA30\n",
        "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n\"f<int, 2>()\",9,900,100,75.0\n\
         Type Time(%) Time Calls Avg Min Max Name\nGPU activities: 60.0% 1.5s 3 5ms 4ms 6ms [CUDA memcpy HtoD]\n",
        "# Benchmarking PingPong\n# #processes = 2\n#bytes #repetitions t[usec] Mbytes/sec\n\
         0 1000 1.2 0.00\n1048576 40 48.0 21845.3\n",
    ])
}

pub(crate) fn copies() -> Vec<Vec<u8>> {
    own(&[
        "A10G\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2\n0 911 20 22\n1 20 920 22\n\
         2 22 22 920\nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D 0 1 2\n\
         0 911 9.9 9.9\n1 9.9 920 9.9\n2 10 10 922\n",
        "H100\nRunning host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n\
         0 1\n0 55.1 55.2\nSUM host_to_device_memcpy_ce 110\n",
        "{\"nvbandwidth\":{\"testcases\":[{\"name\":\"device_to_device_memcpy_read_ce\",\
         \"bandwidth_description\":\"memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\",\
         \"bandwidth_matrix\":[[\"N/A\",\"395.2\"],[\"395.1\",\"N/A\"]]}]}}",
        "H100\nHost/Device Bandwidth Matrix (GB/s), memory=Pinned\n Dir\\D 0 1 2\n D2H 56.8 57.1 55.4\n \
         H2D 56.1 56.2 56.1\n BiDir 101.2 101.3 7.2\nConcurrent Host/Device Bandwidth Matrix (GB/s), \
         memory=Pinned\n Dir\\D 0 1 2 Total\n H2D 44.6 25.3 25.4 95.3\n",
        " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n Transfer Size (Bytes) \
         Bandwidth(MB/s)\n 33554432 12168.9\n",
        "Device: 0, AMD EPYC 7A53\nDevice: 1, AMD Instinct MI250X, GPU-XX, c1:0.0\n\
         Unidirectional copy peak bandwidth GB/s\n\n D/D 0 1\n\n0 N/A 24.1\n\n1 24.2 900.1\n",
        "Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)\n\
         SRC+EXE\\DST CPU 00 GPU 00 GPU 01\nCPU 00 -> 30 24.1 24.2\nGPU 00 -> 24.1 900 37.5\n",
        "Test 1:\n Executor: GPU 00 | 49.2 GB/s | 1.3 ms | 67108864 bytes | 49.2 GB/s (sum)\n\
         Transfer 00 | 49.2 GB/s | 1.3 ms | 67108864 bytes | G0 -> GPU00:004 -> G1\n",
    ])
}

pub(crate) fn files() -> Vec<Vec<u8>> {
    own(&[
        "ISO Date,Label,Phase,RuntimeMS,Rank,MixType,Done%,DoneBytes,MiB/s,IOPS,Entries,Entries/s,Active,CPU,Service,\n\
         2026-02-03T04:05:06,,READ,500,Total,,5,1,3100,3100,0,0,16,20,,\n\
         2026-02-03T04:05:07,,READ,900,Total,,9,1,6150,6150,0,0,16,22,,\n",
        "IoType: READ XferType: GPUD Threads: 4 DataSetSize: 1/2(KiB) IOSize: 1024(KiB) Throughput: 6.9 \
         GiB/sec, Avg_Latency: 589.4 usecs ops: 1 total_time 15.0 secs\nIoType: READ XferType: CPU_GPU \
         Threads: 4 IOSize: 1024(KiB)\nThroughput: 20.6 GiB/sec, Avg_Latency: 19.4 usecs\n",
        "[{\"operation\":\"READ\",\"threads\":\"8\",\"block size\":\"1048576\",\"direct IO\":\"1\",\
         \"IO depth\":\"4\",\"IOPS [last]\":\"9048\",\"MiB/s [last]\":\"9048\",\"IO lat us [avg]\":\"3223\"}]",
        "label,threads,block size,direct IO,IO depth,operation,IOPS [last],MiB/s [last],command\n\
         a,8,1048576,1,4,READ,9048,9048,\"-t 8,-b 1m\"\na,8,1048576,1,4,WRITE,4000,4000,\"-w\"\n",
        "OPERATION   RESULT TYPE FIRST DONE LAST DONE\n=== ===\nREAD Elapsed time : 1.0s 1.2s\n\
         IOPS : 16000 17000\nThroughput MiB/s : 16384 17408\nIO lat us avg : [ min=1 avg=6 max=9 ]\n---\n",
        "t: (g=0): rw=read, bs=(R) 128KiB-128KiB, ioengine=libaio, iodepth=32\n\
         t: (groupid=0, jobs=4): err= 0\n read: IOPS=81.7k, BW=9.5GiB/s (10.2GB/s)(18GiB/60056msec)\n\
         lat (usec): min=26, max=403, avg=64.75, stdev=36\n",
        "{\"fio version\":\"fio-3.36\",\"global options\":{\"bs\":\"1M\",\"iodepth\":\"1\"},\"jobs\":\
         [{\"job options\":{\"rw\":\"read\"},\"read\":{\"bw_bytes\":2000000000,\"iops\":1907.3}}]}",
    ])
}

pub(crate) fn sentences() -> Vec<Vec<u8>> {
    own(&[
        "8 x A100: spec says 600 GB/s but I measure 270 GB/s between two GPUs. In a VM (KVM), IOMMU on.\n",
        "2 nodes with 4x HDR 200Gb/s: all_reduce busbw 22 GB/s. nv_peer_mem is not loaded.\n",
        "GPU is slow\nLnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 2.5GT/s, Width x16\n",
        "pci 0004:41:00.0: 2.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x1 link at \
         0004:40:00.0 (capable of 15.752 Gb/s with 8.0 GT/s PCIe x2 link)\nNVMe reads 204 MB/s\n",
        "Function Best Rate MB/s\nTriad: 69800.0 0.0312 0.0310 0.0315\nDDR4, 7 of 8 channels, was 100 GB/s\n",
        "ucx_perftest over EDR\nFinal: 100000 0.000 81.2 81.2 11735.6 11735.6 12300 12300\n",
        "allreduce of 10000000 bytes takes 1.6 usec, which gives 6 GB/sec\n",
        "NCCL WARN Call to posix_fallocate failed: No space left on device\n",
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3d000, NCCL hangs\n",
    ])
}

pub(crate) fn links() -> Vec<Vec<u8>> {
    own(&[
        "        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity\nGPU0     X      NV18    PIX     0-47    0\n\
         GPU1    NV18     X      SYS     48-95   1\nmlx5_0  PIX     SYS      X\n",
        "=== Weight between two GPUs ===\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n\n\
         === Link Type between two GPUs ===\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n\n=== Numa Nodes ===\n\
         GPU[0] : (Topology) Numa Node: 3\n",
    ])
}
