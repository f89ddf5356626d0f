use super::*;

const MIXED: &str = "I ran this on 8 x H100 and get 250GB/s:\n```\n\
    mpirun -np 2 ./build/all_gather_perf -b 8 -e 1G\n\
    # nThread 1 nGpus 1 minBytes 8 maxBytes 1024\n\
    h1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n\
    1048576  262144  float  none  -1  30.5  34.38  17.19  0  30.1  34.84  17.42  0\n\
    # Avg bus bandwidth    : 17.3\n```\nand the links\n\
    \u{20}       GPU0    GPU1    CPU Affinity    NUMA Affinity\n\
    GPU0     X      NV18    0-47     0\nGPU1    NV18     X      0-47     0\n\n\
    {\"nvbandwidth\":{\"testcases\":[{\"name\":\"host_to_device_memcpy_ce\",\n\
    \"bandwidth_description\":\"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\",\n\
    \"bandwidth_matrix\":[[\"55.2\"]]}]}}\nThanks.";

#[test]
fn a_mixed_paste_is_split() {
    let reading = read_paste(MIXED.as_bytes());
    let tools: Vec<_> =
        reading.documents.iter().map(|d| (d.content.tool(), d.span.first, d.span.last)).collect();
    assert_eq!(
        tools,
        [
            ("nccl-tests", 4, 7),
            ("NCCL log", 5, 5),
            ("nvidia-smi topo", 10, 12),
            ("nvbandwidth", 14, 16)
        ]
    );
    let PasteContent::Collective(table) = &reading.documents[0].content else { panic!() };
    assert_eq!(table.op, Some(pathline_schema::Collective::AllGather));
    assert_eq!(reading.context.gpus, ["H100"]);
    assert_eq!(
        reading.unread,
        [
            LineSpan { first: 1, last: 1 },
            LineSpan { first: 9, last: 9 },
            LineSpan { first: 17, last: 17 }
        ]
    );
}

#[test]
fn names_before_each_line_go() {
    let table = "# nThread 1 nGpus 4 minBytes 8 maxBytes 16\n#\n# Using devices\n\
                 #  Rank  0 Group  0 Pid    7 on   n1 device  0 [0x18] NVIDIA A100\n\
                 #  Rank  3 Group  0 Pid    7 on   n1 device  3 [0x19] NVIDIA A100\n\
                 268435456 67108864 float sum -1 1790 149.97 224.95 0 1788 150.13 225.20 0\n\
                 536870912 134217728 float sum -1 3510 152.95 229.43 0 3500 153.39 230.09 0\n\
                 # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 227.44\n";
    let plain = read_paste(table.as_bytes());
    assert_eq!(plain.documents.len(), 1);
    for before in [
        "[pod/train-7/main] ",
        "worker ",
        "train-worker-0 trainer ",
        "bench-1  | ",
        "3: ",
        "Nov  3 01:02:03 gpu7 slurmd[41]: ",
        "2026-01-02T03:04:05-0500 gpu7 run.sh[9]: ",
        "[default0]:",
        "[gpu7] ",
        "INFO 12:00:01 ",
    ] {
        let lines: String = table.lines().map(|line| format!("{before}{line}\n")).collect();
        let text = format!("It is slow on our nodes:\n{lines}\nThanks a lot.\n");
        let found = read_paste(text.as_bytes());
        assert_eq!(found.documents.len(), 1, "{before:?}");
        assert_eq!(found.documents[0].content, plain.documents[0].content, "{before:?}");
    }
    // Words that begin three lines are no prefix where nothing more is read.
    let text = "srun -N 2 ./a -x\nsrun -N 2 ./b -x\nsrun -N 2 ./osu_bw -d rocm\nor so\n";
    assert_eq!(read_paste(text.as_bytes()).context.commands.len(), 3);
}

#[test]
fn repeated_headers_are_read_to_their_end() {
    // Headers without rows, braces without ends, rows without headers.
    for part in [
        "# nThread 1 nGpus 1\nx\n",
        "{\n",
        "# OSU MPI Latency Test v1\n",
        "Test 1:\n",
        "GPU0 GPU1\n",
        "OPERATION   RESULT TYPE\n",
        "<system>\n",
        "RDMA_Write BW Test\n",
        "Unidirectional copy peak bandwidth GB/s\n",
        "8 8 float 1 1 1 1\n",
        "Weight between two GPUs\n",
        "Run status group 0 (all jobs):\n",
        "a: (groupid=0, jobs=1): err= 0\n",
    ] {
        let text = part.repeat((1 << 14) / part.len());
        // Up to 8,192 lines: a reader that looked ahead without a bound would take minutes for them.
        let reading = read_paste(text.as_bytes());
        assert_eq!(reading.lines as usize, text.lines().count(), "{part:?}");
        let inside = |last: u32| last <= reading.lines;
        assert!(reading.documents.iter().all(|d| inside(d.span.last)), "{part:?}");
    }
}
