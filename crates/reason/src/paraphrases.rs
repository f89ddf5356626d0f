//! How people describe a circumstance who do not know its name, as data: weak evidence, for texts in which no
//! message and no cue fits. A term counts by the causes that share it, so that a term of many causes says little.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Most that paraphrases say for a cause: a likelihood ratio of 7.
const MOST: f64 = 2.0;

/// Cause, and terms in the normal form of `PasteWords`.
const PARAPHRASES: &[(&str, &str)] = &[
    (
        "cpu-bound",
        "cpu core|all cores|cpu cores|one cpu|single cpu|cpu bottleneck|cpu load|cpu utilization|single-threaded|multi-threaded|multithread|top shows|busy loop|context switch|encrypt|tls|compression|python loop|serializ|memcpy thread|same thread|event loop",
    ),
    (
        "single-flow",
        "iperf3|one socket|streams|parallel connections|number of connections|single client|scp|rsync|one stream|per connection|window size|tcp window",
    ),
    (
        "network-full",
        "multiple machines|several machines|two machines|scaling|scale out|scale to|ethernet|1gbe|gigabit|1 gbit|10gbe|distributed training|multi-node training|img/sec|images/sec|tokens/s|samples/s|does not scale|scalability|scaling efficiency",
    ),
    (
        "tcp",
        "multiple machines|socket|ethernet|without rdma|no rdma|10x slower|gloo|slow on two nodes|two nodes slower|ipoib|lan|wifi|over network",
    ),
    (
        "few-in-flight",
        "default parameters|default settings|default options|with defaults|below cmd|transfer_engine|bench|block size|batch size|queue|threads|outstanding|concurrency|pipelin|concurrent requests|async|in flight|inflight|prefetch|low iops|increase the|how to improve|how to increase|num_threads",
    ),
    (
        "small-size",
        "block size|small blocks|small packets|message sizes|tiny|4k|small tensor|batch size 1|latency bound|small transfers|many small|chunk size",
    ),
    (
        "page-cache",
        "too fast|cache|caching|cached|memory bandwidth|impossible speed|faster than disk|second time|repeated|warm|memory usage|dirty|writeback|flush|free memory|buffer cache|higher than expected",
    ),
    (
        "unaligned",
        "4k rand|random write|spdk|align|multiple of|sector|offset|iops lower|physical block|bs=|partition",
    ),
    (
        "file-system",
        "zfs|recordsize|record size|ext4|xfs|btrfs|fuse|overlay|zvol|sshfs|ntfs|copy on write|metadata|inode|journal|dataset|snapshots|many files|small files|directory|mount|bind mount|volume",
    ),
    (
        "direct-refused",
        "direct=1|o_direct|invalid argument|directio|direct io|direct i/o|einval|direct mode",
    ),
    (
        "sync-writes",
        "fsync|sync|journal|barrier|commit|durab|write latency|flush|database|slog|wal|etcd",
    ),
    (
        "one-file",
        "single file|shared file|one large|big file|stripe|striping|nfs|parallel file|lustre",
    ),
    (
        "no-steady-state",
        "over time|gradually|first minute|at the beginning|after minutes|slows down|degrade|degradation|decreases over|ramp|thermal|garbage|endurance|fills up|burst",
    ),
    (
        "raid-overhead",
        "raid|mdraid|mdadm|array|stripe|parity|members|drives together|all drives|zpool|hardware raid",
    ),
    (
        "unwritten-blocks",
        "fresh|newly created|new volume|empty|sparse|preallocated|fallocate|zero|thin|unwritten|random data|compress|dedup",
    ),
    (
        "peer-through-root",
        "p2p|iommu|vt-d|acs|hang|hangs|100% utilization|gpu util 100|stuck|all_reduce hangs|bridge|plx|epyc|threadripper|supermicro|asus|bios|p2p_disable|simplep2p|p2pbandwidth|corrupt|nan|multi-gpu|multiple gpus|two gpus|dual gpu|freezes",
    ),
    (
        "through-host-memory",
        "consumer|geforce|rtx|titan|pcie only|without nvlink|no p2p|shm|host memory|staging|shared memory|through cpu|p2p not|peer access|waive|nvlink not|p2p_level",
    ),
    ("pcie-peer", "pcie|p2p|phb|pix|pxb|without nvlink|peer over|peer bandwidth"),
    (
        "rank-missing",
        "hang|hangs|timeout|timed out|deadlock|watchdog|barrier|rank 0|some ranks|waits|stuck|never returns|after some steps|after hours|after epoch|random|randomly|validation|evaluation|checkpoint|save|dataloader|uneven|last batch|crash|killed|one process|exit|different shapes|order of collectives|nccl timeout",
    ),
    (
        "wrong-interface",
        "hang|init|initializ|ifname|interface|multi-node|two nodes|cannot connect|connect|bootstrap|docker|container|bridge|ip address|firewall|hostname|master_addr|rendezvous|stuck at|rdzv|subnet|ping|vpn|nic name|localhost|gloo|kubernetes|pods",
    ),
    (
        "rdma-path-fails",
        "roce|gid|rocev2|ib|infiniband|multi-node|vlan|different subnet|subnets|error 12|transport|retry|rnr|switch|qp|cross rail|rail|routable|route|ibv",
    ),
    (
        "wrong-bytes",
        "wrong|incorrect|corrupt|nan|mismatch|garbage|out of bounds|failed validation|accuracy|validate|check failed|zeros|bad values|not match|inconsistent|different result|loss is nan",
    ),
    (
        "protocol-set",
        "ll128|nccl_proto|protocol|forcing|forced|force|simple|nccl_algo|low latency protocol",
    ),
    (
        "software-regression",
        "bug|regression|version|upgrade|upgraded|latest|newer|older|master|commit|release|fixed in|since|downgrade|previously|no longer|used to work|worked before|bisect|crash|segfault|master branch",
    ),
    (
        "library-mismatch",
        "version|versions|mismatch|compiled|built|build from source|pip|conda|container image|installed|incompatib|compatib|symbol|abi|linked|libfabric|cuda 11|cuda 12|wheel|dockerfile|ubuntu|installer|different cuda",
    ),
    (
        "library-missing",
        "not found|no such file|install|missing|cannot find|ld_library_path|shared object|import|dlopen|package",
    ),
    (
        "missing-rights",
        "permission|denied|root|sudo|capab|privileged|cap_|user|chmod|rights|not permitted|rootless|cgroup|selinux|apparmor|container",
    ),
    (
        "memory-lock-limit",
        "ulimit|memlock|locked memory|limits.conf|mpirun|memory registration|pinned limit|cannot allocate memory|slurm|daemon|ibv_reg|8192|64 kb",
    ),
    (
        "shm-too-small",
        "shm|docker|container|/dev/shm|shm-size|bus error|ipc|kubernetes|emptydir|pod|dataloader|shared memory",
    ),
    (
        "gpu-memory-full",
        "oom|out of memory|memory usage|allocat|gpu memory|extra memory|memory leak|memory increases|batch size",
    ),
    (
        "no-gpu-direct",
        "gpudirect|gdr|peermem|peer memory|gpu memory|rdma|use_cuda|dmabuf|dma-buf|nvidia-peermem|nv_peer|bounce|ibv_reg|host staging|device memory",
    ),
    (
        "fewer-adapters",
        "one nic|nics|multiple nics|both ports|dual port|bond|nccl_ib_hca|multi-rail|rails|all hcas|second nic|8 nics|4 nics|only uses|only one|aggregate|two ports|unused|not using all",
    ),
    (
        "gpu-far-from-adapter",
        "numa|affinity|closest|topology|socket|nic|far|sys|phb|pix|placement|nearest",
    ),
    (
        "topology-seen-wrong",
        "topology|topo|xml|vm|virtual|virtualized|cloud|detect|numa|graph|sysfs|passthrough|search|ring order|rings|trees|hypervisor",
    ),
    ("few-channels", "channels|nchannels|ctas|ring|rings|sm usage|sms|blocks|nthreads|channel"),
    (
        "link-rate-low",
        "negotiat|speed|autoneg|ethtool|cable|transceiver|port speed|splitter|link speed|hdr|ndr|ibstat|breakout",
    ),
    (
        "packet-loss",
        "roce|pfc|ecn|loss|drop|retrans|congestion|lossless|switch|dcqcn|pause|fluctuat|jitter|sporadic|unstable|incast|out of order|buffer",
    ),
    ("small-mtu", "mtu|jumbo|1500|9000|4096|path mtu"),
    (
        "cloud-limit",
        "aws|azure|gcp|ec2|instance|cloud|vm|alibaba|ebs|gce|provision|throttl|limit|p4d|p5|quota|burst|network bandwidth of instance",
    ),
    (
        "sharing-with-others",
        "shared|other jobs|other users|noisy|concurrent|at the same time|varies|variance|inconsistent|multi-tenant|neighbor|random slow|slurm",
    ),
    (
        "power-saving",
        "idle|c-state|governor|latency spikes|power|frequency|turbo|sleep|cpupower|tuned|first packet|jitter",
    ),
    (
        "clock-throttle",
        "clock|clocks|power limit|throttl|temperature|boost|mhz|fan|hot|power cap|watt|thermal",
    ),
    (
        "narrow-pcie",
        "x8|x4|x1|lanes|riser|slot|gen3|gen 3|gen4|lnksta|downgraded|pcie width|link width|half bandwidth|half the bandwidth|reseat|degraded|half the speed|oculink",
    ),
    ("adapter-slot", "slot|x8|gen3|pcie|lanes|connectx|nic|lnksta|bus limit"),
    (
        "behind-chipset",
        "chipset|motherboard|m.2|second slot|desktop|lanes|b550|x570|z690|mainboard|sata|nvme slot",
    ),
    (
        "shared-uplink",
        "switch|simultaneous|at the same time|concurrent|all gpus|in parallel|plx|shared|sum|aggregate|multiple gpus together|scale with gpus|each additional",
    ),
    (
        "across-sockets",
        "socket|numa|qpi|upi|cross|sys|two cpus|dual socket|dual cpu|second cpu|different cpu|inter-socket",
    ),
    (
        "far-memory",
        "numa|numactl|membind|interleave|first touch|affinity|socket|remote memory|node 1|bind|pin|nps",
    ),
    ("far-core", "numa|taskset|pin|affinity|core|cpu list|isolcpus|binding"),
    (
        "pageable",
        "pinned|malloc|pageable|numpy|cudamemcpy|host memory|pin_memory|memcpy|tensor.to|.cuda|unpinned|h2d|copy to gpu|host to device|async copy",
    ),
    ("managed-memory", "managed|unified|uvm|page fault|migrat|hmm|prefetch|xnack|oversubscri"),
    (
        "sync-in-loop",
        "loop|synchroni|stream|async|each copy|per call|overhead|many copies|latency per|event|timing|small copies",
    ),
    (
        "launch-bound",
        "launch|kernel|overhead|graph|latency|microsecond|small kernels|cuda graph|many kernels|us per|cpu overhead",
    ),
    (
        "first-use",
        "first|warmup|warm up|initial|startup|cold|lazy|first iteration|first call|init time|slow start|takes seconds|jit",
    ),
    (
        "wrong-clock",
        "clock|timing|measure|time|timer|elapsed|gettimeofday|event|accurate|precision|rdtsc",
    ),
    (
        "test-bug",
        "wrong result|unrealistic|too high|bandwidth higher|exceeds|exceed|impossible|negative|inf|more than theoretical|how is it calculated|calculation|formula|bug|reported|reports|zero bandwidth|nan",
    ),
    (
        "busbw-formula",
        "busbw|algbw|formula|how is|calculated|meaning|definition|bus bandwidth|algorithm bandwidth|factor|interpret|understand|what is the difference",
    ),
    (
        "one-direction",
        "bidirectional|unidirectional|theoretical|half|specs|spec|advertised|total|aggregate|full duplex|data sheet|datasheet|official|claims|900|600|both directions|each direction",
    ),
    ("bits-and-bytes", "gbps|gbit|gb/s|unit|units|bits|bytes|gib|conversion|megabits"),
    (
        "protocol-overhead",
        "theoretical|peak|overhead|efficiency|maximum|line rate|expected|theory|achievable|percent|header|tlp|payload|encoding|can t reach|cannot reach|not reach|below peak|wc|write combining|store",
    ),
    (
        "ring",
        "theoretical|busbw|nvlink|peak|expected|normal|reasonable|allreduce|max bandwidth|efficiency",
    ),
    (
        "nvls",
        "nvls|sharp|in-network|multicast|h100|h200|nvswitch|480|exceeds nvlink|higher than nvlink",
    ),
    (
        "tree-of-two-nodes",
        "exceed|higher than|tree|two nodes|2 nodes|algorithm|faster than network|above line rate",
    ),
    (
        "local-copy-counts-once",
        "hbm|memory bandwidth|device to device|local copy|read and write|d2d|half of hbm|device memory",
    ),
    ("sdma-cap", "sdma|mi250|mi200|mi300|blit|copy engine|rocm|hipmemcpy|xgmi|infinity fabric|gcd"),
    (
        "one-copy-engine",
        "copy engine|concurrent copies|bidirectional|overlap|dual copy|geforce|simultaneous copies",
    ),
    (
        "one-gpu-slow",
        "one gpu|one node|slower than the other|slowest|outlier|straggler|this node|only gpu|except|particular node|specific gpu|bad node|slow rank",
    ),
    (
        "links-lost",
        "nvlink|inactive|link down|links|nv12|nv18|lanes|missing|nvlink error|fewer links|bridge",
    ),
    (
        "gpu-fault",
        "xid|ecc|fallen off|reboot|hardware|rma|broken|faulty|crash|dmesg|reset|lost|driver crash|kernel log",
    ),
    (
        "fabric-manager",
        "nvswitch|fabric|hgx|dgx|fabricmanager|a100 sxm|h100 sxm|h800|h20|nvlink not working|802|system not",
    ),
    ("gds-compat-mode", "gds|cufile|gpudirect storage|nvidia-fs|compat|gdsio|kvikio"),
    (
        "mpi-without-gpu",
        "cuda-aware|gpu-aware|gpu aware|cuda aware|device buffer|segfault|segmentation|gpu buffer|mpi|openmpi|mpich|rocm-aware|device pointer|crash|gtl",
    ),
    (
        "staged-message",
        "gpu buffers|device buffers|latency|cuda-aware|gdrcopy|d d|gpu to gpu latency|small messages|ucx",
    ),
    (
        "transport-missing",
        "ucx|transport|tls|provider|not available|not supported|no transport|unsupported|fabric|fi_|libfabric|backend",
    ),
    (
        "plugin-missing",
        "plugin|ofi|efa|aws|libnccl-net|net plugin|tuner|sharp|fastsocket|gib|tcpx|internal",
    ),
    (
        "registration-cost",
        "registration|register|mr|cache|pin|hugepage|first message|memory region|rcache|odp|new buffer",
    ),
    (
        "protocol-switch",
        "drop|dip|rendezvous|eager|threshold|size|switch|message size|64k|8k|1mb|zigzag|non-monotonic",
    ),
    (
        "falls-with-size",
        "larger|decreases|drops|bigger|large messages|falls|cliff|size increases|beyond|tlb",
    ),
    (
        "cores-oversubscribed",
        "oversubscri|binding|bind-to|threads|omp|hyperthread|cores|slurm|cpuset|cpu limit|cpu request|same core|progress thread",
    ),
    (
        "gpu-not-visible",
        "no gpu|not detected|not found|nvidia-smi|visible|rocminfo|container|driver not|device count|not recognized|missing gpu|device node|gpus all|no devices",
    ),
    (
        "driver-too-old",
        "driver|cuda version|insufficient|unsupported|sm_|compute capability|architecture|upgrade driver|too old|new gpu|blackwell|arch|toolkit",
    ),
    (
        "duplicate-gpu",
        "same gpu|local_rank|set_device|invalid usage|device 0|all ranks|duplicate|more processes than gpus",
    ),
    (
        "application-fault",
        "illegal|memory access|segfault|my code|script|kernel|invalid argument|wrong device|tensor|fork|multiprocessing|thread safe|threads|api misuse|called|stream|misuse|two communicators|multiple communicators|graph capture",
    ),
    (
        "slow-host",
        "vm|virtual machine|hypervisor|kvm|esxi|arm|slow cpu|old cpu|xeon|cpu model|latency|bare metal|low frequency|virtio",
    ),
    ("confidential-mode", "confidential|tdx|sev|encrypted|cc mode|bounce"),
    ("relaxed-ordering", "relaxed ordering|amd|epyc|write|ordering|pci_wr|rome|milan"),
    ("small-read-request", "maxreadreq|read request|mrrs|payload|setpci|maxpayload"),
    (
        "host-memory-full",
        "killed|oom|ram|host memory|swap|memory limit|exit 137|ram usage|system memory full",
    ),
    ("server-not-responding", "nfs|lustre|server|mount hangs|not responding|stale|reconnect|evict"),
    (
        "harmless-message",
        "warning|warn|what does|mean|impact|ignore|message|safe|question|is it a problem|still works|works fine|keeps going|performance seems",
    ),
    (
        "launcher-mismatch",
        "srun|pmi|pmix|slurm|mpirun|rank 0|each process|launch|independent|all processes|aprun|flux",
    ),
    (
        "compiler-or-build",
        "make|compile|compil|build|nvcc|cmake|linker|gcc|header|undefined reference|configure",
    ),
];

type TermIndex = Vec<(String, Vec<(&'static str, f64)>)>;

/// Terms with the causes that they speak for and the weight: 1 for a term of one cause, less for shared ones.
fn index() -> &'static TermIndex {
    static INDEX: OnceLock<TermIndex> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut causes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, terms) in PARAPHRASES {
            for term in terms.split('|') {
                causes.entry(term).or_default().push(id);
            }
        }
        let weigh = |(term, ids): (&'static str, Vec<&'static str>)| {
            let weight = 1.0 / (ids.len() as f64).sqrt();
            // A term begins at the beginning of a word.
            (format!(" {term}"), ids.into_iter().map(|id| (id, weight)).collect())
        };
        causes.into_iter().map(weigh).collect()
    })
}

/// Weak evidence for causes: the strongest term whole, others by a third, at most a factor of 7.
pub(crate) fn weights(has: impl Fn(&str) -> bool) -> BTreeMap<&'static str, f64> {
    let mut sums: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
    for (term, causes) in index() {
        if !has(term) {
            continue;
        }
        for (id, weight) in causes {
            let (best, sum) = sums.entry(id).or_default();
            *best = best.max(*weight);
            *sum += weight;
        }
    }
    let cap = |(best, sum): (f64, f64)| (best + (sum - best) / 3.0).min(MOST);
    sums.into_iter().map(|(id, sums)| (id, cap(sums))).collect()
}
