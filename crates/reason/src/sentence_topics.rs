//! What a sentence with a rate is about, by its words.

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
    (
        Messages,
        "osu_|osu bw|osu micro|osu lat| mpi |mpirun|imb-mpi|ucx|openmpi|mvapich|mpich|ucx_perftest",
    ),
    (
        Adapter,
        " spine| rack| adapter|ib_write|ib_read|ib_send|perftest|iperf|qperf|raw_ethernet|connectx|infiniband| roce|rdma|mlx5_| nic | hca",
    ),
    (
        Storage,
        "iozone|random read|sequential read|sequential write|random write|m.2|hdparm| fio|elbencho|gdsio|nvme| ssd|filesystem|file system| disk| hdd|lustre|gpfs| nfs|raid|storage|iodepth|weka| drive | files |/dev/sd|beegfs",
    ),
    (
        LocalMemory,
        "hipmalloc|cudamalloc|copy kernel|memory bandwidth|hbm|device_local|local copy|gddr|babelstream|device memory copy|global memory",
    ),
    (
        HostMemory,
        "stream triad| triad|intel mlc|dimm|memory channel|ddr4|ddr5|sysbench memory|ram bandwidth|likwid| mlc |memory speed",
    ),
    (
        PeerCopy,
        "hipmemcpypeer|memcpypeer|memcpy_peer|p2p|peer|gpu to gpu|gpu-to-gpu|between gpu|between two gpu|between the gpu|nvlink|xgmi|device to device|device_to_device|d2d|gcd|gpu-gpu|gpu0-gpu|gpu0->gpu|gpu0 and gpu|gpu 0 and|gpus to each other|infinity fabric",
    ),
    (
        HostCopy,
        "transfer bandwidth|thunderbolt|egpu|oculink|clpeak|h2d|d2h|host to device|device to host|host-to-device|device-to-host|hosttodevice|cudamemcpy|hipmemcpy|bandwidthtest|pinned|pageable|host_to_device|device_to_host|cpu to gpu|gpu to cpu|cpu-gpu|host memory|pcie|pci-e|pci express|system memory",
    ),
];

impl SentenceTopic {
    /// All of them.
    pub(crate) const ALL: [Self; 8] =
        [Collective, Messages, Adapter, Storage, LocalMemory, HostMemory, PeerCopy, HostCopy];

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
        if words.fits(" fio |elbencho|gdsio") && !words.fits("nccl|rccl|ib_write|ib_read") {
            return Some(Storage);
        }
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
