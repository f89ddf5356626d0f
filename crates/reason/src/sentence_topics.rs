//! What a sentence with a rate is about, and the causes of that subject.

use crate::score::AnswerClass::{
    self, AsExpected, HardwareSuspect, MeansSomethingElse, SetUpSo, Software,
};
use crate::text_cues::PasteWords;

/// What a rate in a sentence measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentenceTopic {
    /// Collectives on one node or several.
    Collective,
    /// Messages of MPI or UCX.
    Messages,
    /// An adapter, by perftest and its like.
    Adapter,
    /// Files and drives.
    Storage,
    /// Memory of one GPU.
    LocalMemory,
    /// Memory of the host, by cores.
    HostMemory,
    /// Copies between GPUs.
    PeerCopy,
    /// Copies between host and GPU.
    HostCopy,
}

use SentenceTopic::{
    Adapter, Collective, HostCopy, HostMemory, LocalMemory, Messages, PeerCopy, Storage,
};

/// Words of each topic: the first that has most of them wins.
const TOPIC_WORDS: [(SentenceTopic, &str); 8] = [
    (
        Collective,
        "nccl|rccl|all_reduce|allreduce|all-reduce|all reduce|busbw|algbw|all_gather|allgather|alltoall|all-to-all|all to all|reduce_scatter|broadcast_perf|sendrecv|collective",
    ),
    (Messages, "osu_|osu bw|osu micro|osu lat| mpi |ucx|openmpi|mvapich|mpich|ucx_perftest"),
    (
        Adapter,
        "ib_write|ib_read|ib_send|perftest|iperf|qperf|raw_ethernet|connectx|infiniband| roce|rdma|mlx5_| nic | hca",
    ),
    (
        Storage,
        " fio|elbencho|gdsio|nvme| ssd|filesystem|file system| disk| hdd|lustre|gpfs| nfs|raid|storage|iodepth|weka| drive | files |/dev/sd|beegfs",
    ),
    (
        LocalMemory,
        "memory bandwidth|hbm|device_local|local copy|gddr|babelstream|device memory copy|global memory",
    ),
    (
        HostMemory,
        "stream triad| triad|intel mlc|dimm|memory channel|ddr4|ddr5|sysbench memory|ram bandwidth|likwid| mlc |memory speed",
    ),
    (
        PeerCopy,
        "p2p|peer|gpu to gpu|gpu-to-gpu|between gpu|between two gpu|between the gpu|nvlink|xgmi|device to device|device_to_device|d2d|gcd|gpu-gpu|gpu0-gpu|gpu0->gpu|gpu0 and gpu|gpu 0 and|gpus to each other|infinity fabric",
    ),
    (
        HostCopy,
        "h2d|d2h|host to device|device to host|host-to-device|device-to-host|hosttodevice|cudamemcpy|hipmemcpy|bandwidthtest|pinned|pageable|host_to_device|device_to_host|cpu to gpu|gpu to cpu|cpu-gpu|host memory|pcie|pci-e|pci express|system memory",
    ),
];

impl SentenceTopic {
    /// The topic of a text; what stands next to the rate counts three times.
    pub(crate) fn of(words: &PasteWords, around: &str) -> Option<Self> {
        let score = |patterns: &str| -> usize {
            patterns
                .split('|')
                .map(|word| {
                    usize::from(words.fits(word)) + 3 * usize::from(around.contains(word.trim()))
                })
                .sum()
        };
        // Of equals the first: a collective is also about links, a link also about PCIe.
        let mut best: Option<(usize, Self)> = None;
        for (topic, patterns) in TOPIC_WORDS {
            let score = score(patterns);
            if score > 0 && best.is_none_or(|(most, _)| score > most) {
                best = Some((score, topic));
            }
        }
        let found = best.map(|(_, topic)| topic);
        // Benchmarks of collectives name adapters and links too.
        let collective = words.fits("busbw|algbw|all_reduce|allreduce|all reduce|all-reduce|nccl-tests|nccl tests|rccl-tests|_perf ");
        let names_library = found == Some(HostMemory) && words.fits("nccl|rccl");
        if (collective && found != Some(Storage)) || names_library {
            Some(Collective)
        } else {
            found
        }
    }

    /// For people.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Collective => "about a collective",
            Messages => "about messages",
            Adapter => "about an adapter",
            Storage => "about files",
            LocalMemory => "about the memory of a GPU",
            HostMemory => "about host memory",
            PeerCopy => "about copies between GPUs",
            HostCopy => "about copies with the host",
        }
    }
}

/// A cause of a topic whose node is not known: what it makes of the rate that is expected.
pub(crate) struct TopicCause {
    pub(crate) topics: &'static [SentenceTopic],
    pub(crate) id: &'static str,
    pub(crate) class: AnswerClass,
    pub(crate) prior: f64,
    /// Median of measured over expected, and standard deviation of its logarithm.
    pub(crate) ratio: (f64, f64),
    pub(crate) text: &'static str,
    pub(crate) check: &'static str,
}

const fn cause(
    topics: &'static [SentenceTopic],
    id: &'static str,
    class: AnswerClass,
    prior: f64,
    ratio: (f64, f64),
    text: &'static str,
    check: &'static str,
) -> TopicCause {
    TopicCause { topics, id, class, prior, ratio, text, check }
}

/// Ratios are those of tables: `copies.rs`, `collectives.rs`, `messages.rs`, `io.rs` have the sources.
pub(crate) const TOPIC_CAUSES: &[TopicCause] = &[
    cause(
        &[Messages],
        "staged-message",
        SetUpSo,
        0.06,
        (0.15, 0.7),
        "each message of GPU memory waits for copies through host memory",
        "gdr_copy for UCX (ucx_info -d), MPICH_GPU_SUPPORT_ENABLED",
    ),
    cause(
        &[Messages],
        "host-message",
        AsExpected,
        0.02,
        (0.9, 0.3),
        "a message by shared memory or RDMA",
        "pathline run --suite mpi-latency",
    ),
    cause(
        &[Collective],
        "links-lost",
        HardwareSuspect,
        0.02,
        (0.6, 0.3),
        "links of a GPU are down",
        "nvidia-smi nvlink -s; pathline health",
    ),
    cause(
        &[Collective],
        "narrow-pcie",
        HardwareSuspect,
        0.02,
        (0.4, 0.3),
        "PCIe of a GPU or adapter runs at a part of its width or speed",
        "lspci -vv | grep LnkSta under load",
    ),
    cause(
        &[Collective],
        "link-rate-low",
        SetUpSo,
        0.02,
        (0.5, 0.2),
        "ports run at a lower rate than assumed",
        "ibstatus or ethtool on each port",
    ),
    cause(
        &[Storage, HostCopy, Adapter, PeerCopy],
        "behind-chipset",
        SetUpSo,
        0.03,
        (0.45, 0.35),
        "the slot hangs on the chipset, whose link to the processor is narrow and shared with other devices",
        "lspci -tv: the bridges above the device; a slot of the processor's lanes",
    ),
    cause(
        &[Messages, Adapter, HostCopy],
        "host-memory-only",
        MeansSomethingElse,
        0.02,
        (1.0, 0.8),
        "the test moves host memory: it says nothing of the way to a GPU",
        "--use_cuda, --use_rocm, or D D: the same with GPU buffers",
    ),
    cause(
        &[Adapter, Collective, Messages, Storage],
        "single-flow",
        SetUpSo,
        0.03,
        (0.3, 0.8),
        "one connection is one core, one queue and one path of the network",
        "iperf3 -P 8; NCCL_NSOCKS_PERTHREAD, NCCL_SOCKET_NTHREADS; nconnect",
    ),
    cause(
        &[Adapter, Collective, Messages, PeerCopy, HostCopy, LocalMemory, HostMemory, Storage],
        "test-bug",
        Software,
        0.012,
        (3.0, 1.0),
        "the test counts or times wrongly: no hardware gives this figure",
        "another tool for the same path, larger sizes, an independent clock",
    ),
    cause(
        &[Messages, Storage, HostCopy, Adapter],
        "unaligned",
        SetUpSo,
        0.015,
        (0.7, 0.4),
        "buffers or requests are not aligned to pages, sectors or packets",
        "the same with buffers aligned to 4 KiB",
    ),
    cause(
        &[Adapter, Collective, Messages, PeerCopy, HostCopy, LocalMemory, HostMemory, Storage],
        "wrong-clock",
        MeansSomethingElse,
        0.012,
        (1.5, 0.8),
        "the time is wrong: another clock rate than assumed, or work that had not ended",
        "an independent clock around the whole run; synchronise before the end is taken",
    ),
    cause(
        &[Collective],
        "protocol-switch",
        Software,
        0.02,
        (0.5, 0.6),
        "another algorithm or protocol begins at this size, and should begin elsewhere",
        "NCCL_DEBUG_SUBSYS=TUNING at both sizes; NCCL_ALGO and NCCL_PROTO one by one",
    ),
    cause(
        &[Adapter],
        "fewer-adapters",
        SetUpSo,
        0.04,
        (0.5, 0.15),
        "one of several ports carries it",
        "ethtool -S or counters of each port while it runs",
    ),
    cause(
        &[Adapter],
        "no-gpu-direct",
        SetUpSo,
        0.03,
        (0.4, 0.5),
        "RDMA goes through host memory: no GPUDirect RDMA",
        "lsmod | grep peermem; ib_write_bw with and without --use_cuda",
    ),
    cause(
        &[Adapter],
        "link-rate-low",
        SetUpSo,
        0.04,
        (0.5, 0.2),
        "the port runs at a lower rate than its name: a cable, a split port, or the switch",
        "ibstatus or ethtool on each port; mlxlink -d ADAPTER",
    ),
    cause(
        &[Messages],
        "no-gpu-direct",
        SetUpSo,
        0.06,
        (0.3, 0.6),
        "RDMA of GPU memory is not used",
        "UCX_IB_GPU_DIRECT_RDMA=yes; lsmod | grep peermem",
    ),
    cause(
        &[Messages],
        "shared-memory",
        AsExpected,
        0.06,
        (0.5, 0.5),
        "two processes of a node copy by cores: 5 to 20 GB/s",
        "pathline run --suite mpi-bandwidth",
    ),
    cause(
        &[Messages],
        "far-core",
        SetUpSo,
        0.04,
        (0.7, 0.25),
        "process or memory on the other socket than the adapter",
        "--bind-to core --map-by numa; numactl",
    ),
    cause(
        &[Messages],
        "fewer-adapters",
        SetUpSo,
        0.04,
        (0.5, 0.15),
        "one of several adapters carries it",
        "UCX_MAX_RNDV_RAILS, UCX_NET_DEVICES",
    ),
    cause(
        &[PeerCopy],
        "through-host-memory",
        SetUpSo,
        0.03,
        (0.4, 0.4),
        "copies are staged in host memory",
        "nvidia-smi topo -p2p r",
    ),
    cause(
        &[PeerCopy],
        "narrow-pcie",
        HardwareSuspect,
        0.04,
        (0.45, 0.2),
        "PCIe of a GPU runs at half its lanes or the generation below",
        "lspci -vv | grep LnkSta under load",
    ),
    cause(
        &[PeerCopy],
        "sdma-cap",
        SetUpSo,
        0.01,
        (0.3, 0.5),
        "one SDMA engine copies at most 50 GB/s whatever the links",
        "HSA_ENABLE_SDMA=0",
    ),
    cause(
        &[Storage],
        "narrow-pcie",
        HardwareSuspect,
        0.05,
        (0.45, 0.2),
        "the drive's link has half its lanes or the generation below",
        "lspci -vv | grep LnkSta of the drive",
    ),
    cause(
        &[Storage],
        "far-memory",
        SetUpSo,
        0.02,
        (0.7, 0.3),
        "process or memory on the other socket than the drive",
        "numactl --cpunodebind=N",
    ),
    cause(
        &[Storage],
        "no-steady-state",
        MeansSomethingElse,
        0.05,
        (0.3, 1.2),
        "the drive's fast cache is full, or it is too hot: the rate of a long run is lower than that of a short one",
        "the same for 10 minutes with --log_avg_msec; smartctl -a: temperature",
    ),
    cause(
        &[Storage],
        "direct-across-socket",
        SetUpSo,
        0.02,
        (0.35, 0.5),
        "storage to GPU passes the link between sockets or a root port",
        "nvidia-smi topo -m: adapter and GPU under one switch",
    ),
    cause(
        &[HostMemory],
        "memory-channels",
        HardwareSuspect,
        0.08,
        (0.6, 0.35),
        "memory channels are empty or lost a module: the rate is that of the channels that are left",
        "dmidecode -t memory; lshw -C memory; pathline health",
    ),
    cause(
        &[HostMemory],
        "far-memory",
        SetUpSo,
        0.1,
        (0.5, 0.4),
        "threads read memory of another NUMA domain",
        "numactl --cpunodebind=N --membind=N; OMP_PROC_BIND=spread",
    ),
    cause(
        &[HostMemory],
        "few-threads",
        SetUpSo,
        0.15,
        (0.3, 0.7),
        "few cores do not fill the channels: one core keeps 10 to 30 GB/s of reads in flight",
        "OMP_NUM_THREADS with a thread for each core",
    ),
    cause(
        &[HostMemory],
        "memory-full",
        AsExpected,
        0.3,
        (0.8, 0.1),
        "refresh, turns between reads and writes and row changes take 10 to 25 % of a memory's line rate",
        "pathline run --suite host-memory",
    ),
    cause(
        &[Collective, Messages],
        "gpu-far-from-adapter",
        SetUpSo,
        0.03,
        (0.35, 0.6),
        "an adapter on another socket than the GPU is used",
        "nvidia-smi topo -m: PIX or PXB; NCCL_IB_HCA, UCX_NET_DEVICES",
    ),
    cause(
        &[HostCopy],
        "narrow-pcie",
        HardwareSuspect,
        0.12,
        (0.45, 0.15),
        "PCIe runs at half the lanes or the generation below",
        "lspci -vv | grep LnkSta under load, on the GPU and each bridge above it",
    ),
    cause(
        &[HostCopy],
        "narrow-pcie",
        HardwareSuspect,
        0.04,
        (0.22, 0.15),
        "PCIe runs at a quarter of the lanes or two generations below",
        "lspci -vv | grep LnkSta under load, on the GPU and each bridge above it",
    ),
    cause(
        &[HostCopy],
        "idle-link-speed",
        AsExpected,
        0.03,
        (0.2, 0.8),
        "an idle GPU lowers the generation of its link to save power: the width stays, and under load the generation rises",
        "nvidia-smi -q -d PERFORMANCE and lspci | grep LnkSta while a copy runs",
    ),
    cause(
        &[HostCopy],
        "pageable",
        SetUpSo,
        0.1,
        (0.35, 0.5),
        "pageable memory: the runtime copies through its own pinned buffer",
        "the same with pinned memory",
    ),
    cause(
        &[HostCopy],
        "far-memory",
        SetUpSo,
        0.08,
        (0.6, 0.3),
        "the buffers lie in another NUMA domain than the GPU's",
        "numactl --cpunodebind=N --membind=N with the GPU's domain N",
    ),
    cause(
        &[HostCopy],
        "kernel-reads",
        AsExpected,
        0.03,
        (0.65, 0.2),
        "a kernel that reads host memory keeps fewer requests in flight than PCIe needs",
        "the same by copy engine",
    ),
    cause(
        &[HostCopy],
        "reads-slow",
        SetUpSo,
        0.04,
        (0.5, 0.4),
        "reads of host memory are slower than writes: few outstanding reads, IOMMU, or power states of the processor",
        "lspci -vv | grep MaxReadReq; iommu=pt",
    ),
    cause(
        &[HostCopy],
        "writes-slow",
        SetUpSo,
        0.03,
        (0.45, 0.4),
        "writes to host memory are slower than reads: relaxed ordering off, IOMMU, or a virtual machine",
        "lspci -vv | grep RlxdOrd; iommu=pt",
    ),
    cause(
        &[HostCopy],
        "one-of-two-streams",
        MeansSomethingElse,
        0.03,
        (0.6, 0.3),
        "both directions run and one is printed",
        "add both directions: their sum is the duplex rate",
    ),
    cause(
        &[HostCopy],
        "shared-uplink",
        SetUpSo,
        0.04,
        (0.5, 0.2),
        "GPUs that copy at once share an uplink or their socket's memory",
        "one GPU alone; nvidia-smi topo -m",
    ),
    cause(
        &[PeerCopy],
        "peer-through-root",
        SetUpSo,
        0.06,
        (0.2, 0.8),
        "packets between GPUs are sent up to the root port (ACS redirect, IOMMU)",
        "lspci -vvv | grep ACSCtl; NCCL_P2P_DISABLE=1 meanwhile",
    ),
    cause(
        &[PeerCopy],
        "staged",
        SetUpSo,
        0.08,
        (0.45, 0.4),
        "no P2P between these GPUs: copies are staged in host memory",
        "cudaDeviceCanAccessPeer; nvidia-smi topo -p2p r",
    ),
    cause(
        &[Collective],
        "across-sockets",
        SetUpSo,
        0.04,
        (0.4, 0.6),
        "a ring passes the link between the sockets, which carries less for GPUs than for cores",
        "nvidia-smi topo -m: SYS; NCCL_DEBUG_SUBSYS=GRAPH",
    ),
    cause(
        &[PeerCopy],
        "across-sockets",
        SetUpSo,
        0.06,
        (0.5, 0.35),
        "the pair is on two sockets: the link between the processors is slower",
        "nvidia-smi topo -m: SYS against PIX, PXB",
    ),
    cause(
        &[PeerCopy],
        "links-lost",
        HardwareSuspect,
        0.03,
        (0.7, 0.3),
        "links of a GPU are down",
        "nvidia-smi nvlink -s; pathline health",
    ),
    cause(
        &[PeerCopy],
        "link-widths-differ",
        AsExpected,
        0.04,
        (0.5, 0.3),
        "pairs have different numbers of links",
        "pathline topo; nvidia-smi topo -m or rocm-smi --showtopo",
    ),
    cause(
        &[Collective],
        "through-host-memory",
        SetUpSo,
        0.12,
        (0.15, 0.6),
        "the bytes go through host memory",
        "NCCL_DEBUG=INFO: transports; nvidia-smi topo -m",
    ),
    cause(
        &[Collective],
        "peer-through-root",
        SetUpSo,
        0.04,
        (0.1, 0.8),
        "P2P is on, but its packets are sent up to the root port (ACS, IOMMU)",
        "NCCL_P2P_DISABLE=1: faster if so; lspci -vvv | grep ACSCtl",
    ),
    cause(
        &[Collective],
        "tcp",
        SetUpSo,
        0.04,
        (0.08, 1.0),
        "TCP sockets instead of RDMA",
        "NCCL_DEBUG=INFO: `Using network`",
    ),
    cause(
        &[Collective],
        "no-gpu-direct",
        SetUpSo,
        0.04,
        (0.4, 0.35),
        "RDMA goes through host memory: no GPUDirect RDMA",
        "NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`",
    ),
    cause(
        &[Collective],
        "fewer-adapters",
        SetUpSo,
        0.04,
        (0.5, 0.15),
        "half of the adapters carry it",
        "NCCL_DEBUG=INFO: adapters in `NET/IB : Using` and channels; NCCL_IB_HCA",
    ),
    cause(
        &[Collective],
        "small-size",
        AsExpected,
        0.05,
        (0.3, 0.9),
        "the size is too small: starts take the time",
        "the same with -e 8G",
    ),
    cause(
        &[Collective, Adapter, Messages],
        "fabric-routing",
        SetUpSo,
        0.02,
        (0.6, 0.4),
        "some pairs of nodes share links of the fabric: routes of the switches collide",
        "ib_write_bw of all adapters at once, for each pair of nodes",
    ),
    cause(
        &[Collective],
        "few-channels",
        SetUpSo,
        0.03,
        (0.3, 0.7),
        "few channels carry it",
        "unset NCCL_*CHANNELS",
    ),
    cause(
        &[Messages],
        "protocol-switch",
        Software,
        0.15,
        (0.4, 0.6),
        "another protocol begins at this size, and is the slower one",
        "UCX_RNDV_THRESH=inf and =8k, UCX_PROTO_INFO=y",
    ),
    cause(
        &[Messages],
        "through-host-memory",
        SetUpSo,
        0.12,
        (0.2, 0.7),
        "messages of GPU memory are staged in host memory",
        "UCX_TLS with cuda_ipc or rocm_ipc, gdr_copy; ompi_info | grep -i cuda",
    ),
    cause(
        &[Messages],
        "tcp",
        SetUpSo,
        0.12,
        (0.1, 0.8),
        "TCP instead of RDMA or shared memory",
        "UCX_LOG_LEVEL=info; UCX_TLS",
    ),
    cause(
        &[Messages, Adapter],
        "network-full",
        AsExpected,
        0.1,
        (0.95, 0.05),
        "the adapter is at its line rate",
        "ib_write_bw",
    ),
    cause(
        &[Adapter],
        "line-full",
        AsExpected,
        0.35,
        (0.95, 0.04),
        "the adapter is at its line rate; headers take 2 to 5 %",
        "none needed",
    ),
    cause(
        &[Adapter],
        "adapter-slot",
        SetUpSo,
        0.15,
        (0.53, 0.15),
        "the slot of the adapter has half the lanes or the generation that the line needs",
        "lspci -vv -s ADAPTER | grep LnkSta",
    ),
    cause(
        &[Adapter],
        "one-queue-pair",
        SetUpSo,
        0.08,
        (0.6, 0.3),
        "one queue pair: one path of a bond, one engine of the adapter",
        "-q 4",
    ),
    cause(
        &[Adapter],
        "far-core",
        SetUpSo,
        0.08,
        (0.7, 0.2),
        "process or memory on the other socket than the adapter",
        "numactl --cpunodebind=N --membind=N, N of the adapter",
    ),
    cause(
        &[Adapter],
        "gpu-far-from-adapter",
        SetUpSo,
        0.06,
        (0.42, 0.4),
        "RDMA of GPU memory passes a root port or the link between sockets",
        "nvidia-smi topo -m: take the adapter with PIX or PXB",
    ),
    cause(
        &[Adapter],
        "small-mtu",
        SetUpSo,
        0.05,
        (0.88, 0.05),
        "path MTU 1024 B: 60 to 90 B of headers each",
        "MTU 9000 on interface and switch: path MTU 4096",
    ),
    cause(
        &[Adapter],
        "tcp",
        SetUpSo,
        0.08,
        (0.25, 0.6),
        "TCP: one core copies for one stream",
        "iperf3 -P 8; ib_write_bw",
    ),
    cause(
        &[Storage],
        "few-in-flight",
        SetUpSo,
        0.15,
        (0.1, 1.3),
        "few I/Os in flight: each waits for the one before",
        "more jobs or depth: --iodepth=32 --numjobs=8 with an asynchronous engine",
    ),
    cause(
        &[Storage],
        "one-file",
        SetUpSo,
        0.08,
        (0.3, 0.9),
        "one open file is one stream to the server, or one lock",
        "a file for each thread",
    ),
    cause(
        &[Storage],
        "page-cache",
        MeansSomethingElse,
        0.15,
        (2.5, 0.8),
        "the page cache answers, not the device",
        "--direct=1, and files larger than memory",
    ),
    cause(
        &[Storage],
        "device-full",
        AsExpected,
        0.15,
        (0.92, 0.08),
        "the device or the network is full",
        "iostat -x 1: %util and queue length",
    ),
    cause(
        &[LocalMemory],
        "local-copy-counts-once",
        MeansSomethingElse,
        0.4,
        (0.38, 0.35),
        "a copy reads and writes each byte: the memory moves twice what is printed",
        "twice the figure against the data sheet",
    ),
    cause(
        &[LocalMemory],
        "memory-full",
        AsExpected,
        0.3,
        (0.85, 0.1),
        "refresh, row changes and error correction take 7 to 15 % of a memory's rate",
        "pathline run --suite local",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::PasteContext;

    #[test]
    fn the_subject_of_a_sentence_is_found() {
        for (text, want) in [
            ("all_reduce busbw over nvlink is 230", Some(Collective)),
            ("ib_write_bw on a connectx-6", Some(Adapter)),
            ("my nvme drive with fio", Some(Storage)),
            ("the nvlink bridge between two gpus", Some(PeerCopy)),
            ("cudaMemcpy from pinned memory over pcie", Some(HostCopy)),
            ("nothing", None),
        ] {
            let context = PasteContext { prose: text.to_lowercase(), ..PasteContext::default() };
            assert_eq!(
                SentenceTopic::of(&PasteWords::new(&context, None, false), ""),
                want,
                "{text}"
            );
        }
    }
}
