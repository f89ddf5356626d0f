//! Words that speak for causes, as data. Weights are logarithms of likelihood ratios by judgement: 1 for a
//! mention, 2 for a circumstance that usually goes with the cause, 3 for a statement of it.

use crate::text_cues::CauseCue;

pub(crate) const fn cue(id: &'static str, weight: f64, pattern: &'static str) -> CauseCue {
    CauseCue { id, weight, pattern }
}

/// What people write next to figures.
pub(crate) const CAUSE_CUES: &[CauseCue] = &[
    cue("page-cache", 1.0, "iozone"),
    cue("page-cache", 3.5, "cached reads|timing cached"),
    cue(
        "far-memory",
        3.0,
        "omp_proc_bind|omp_places|not bound|unbound|first-touch|first touch|numactl|interleave",
    ),
    cue(
        "idle-link-speed",
        4.5,
        "pcie generation & current 1 |current 2 & !current 8x|current 4x|current 1x",
    ),
    cue("narrow-pcie", 3.5, "link width & current 8x|current 4x|current 1x|current 2x"),
    cue("narrow-pcie", 2.5, "link.width.current|width.current"),
    cue(
        "link-rate-low",
        3.0,
        "rate 100 |rate 56 |rate 40 |rate 25 |rate 10 & hdr|ndr| 200 | 400 |200 gb|400 gb|200g|400g",
    ),
    cue("across-sockets", 1.5, "link-sys"),
    cue(
        "across-sockets",
        2.5,
        "within a socket|same socket|across the socket|inside a socket|other numa|between numa",
    ),
    cue(
        "fabric-routing",
        2.5,
        "spine| leaf|fat tree|fat-tree|dragonfly|adaptive routing & pairs|some|others|between",
    ),
    cue(
        "tcp",
        3.0,
        "initializing an openfabrics|no openfabrics|openfabrics component|btl_openib & warning|error|not|no",
    ),
    cue(
        "host-memory-only",
        4.0,
        "without --use_cuda|without use_cuda|did not use --use_cuda|no --use_cuda",
    ),
    cue("wrong-clock", 4.0, "conflicting cpu frequency & !gb/sec is"),
    cue("links-lost", 4.0, "<inactive>"),
    cue(
        "few-channels",
        4.0,
        "nchannels=|only 1 channel|only 2 channels|only 4 channels|1 coll channels|2 coll channels",
    ),
    cue(
        "sdma-cap",
        3.5,
        "gcd|mi250|mi200|mi210|mi300 & sdma|hipmemcpypeer|hipmemcpy|copy kernel|blit|copy engine",
    ),
    cue(
        "no-steady-state",
        3.5,
        " qlc| slc| tlc|after 60 s|starts at|falls to|goes down to|drops to|slows down after & write|drive|ssd|nvme|disk",
    ),
    cue(
        "behind-chipset",
        3.0,
        "chipset| pch | dmi |southbridge|south bridge|b550|x570|z690|z790|x670|b650|z390|z490|x470|cpu lanes|lanes from the cpu",
    ),
    cue("behind-chipset", 1.0, "m.2 slot|second m.2|second slot|lower slot|motherboard|mainboard"),
    cue(
        "host-memory-only",
        2.5,
        "without --use_cuda|without use_cuda|not using gpu|cpu buffers|host buffers|host memory only|host to host| h h |without gpu|no gpu buffer|not gpudirect",
    ),
    cue(
        "single-flow",
        3.0,
        "single stream|one stream|single flow|one flow|single connection|one connection|single tcp|one tcp|parallel streams|multiple streams| -p 8|-p 4|-p 16|nsocks_perthread|socket_nthreads|per flow|per-flow|one thread of iperf",
    ),
    cue("single-flow", 1.5, "iperf|placement group| ena |ecmp|cloud"),
    cue(
        "test-bug",
        2.5,
        "bug in|impossible|unrealistic|nonsense|negative|overflow|too high to be|makes no sense|can t be right|cannot be right|physically| inf | nan |wrong number|absurd",
    ),
    cue(
        "unaligned",
        3.0,
        "unaligned|alignment|misaligned|aligned|page boundary|odd address| offset of|zcopy",
    ),
    cue(
        "wrong-clock",
        3.0,
        "clocksource| tsc |cpu mhz|cpu frequency|get_cpu_mhz|wrong clock|without synchron|cudadevicesynchronize|cudaevent|asynchronous launch|timer|time drift|boost clock|core clock|cycles per|clock_gettime",
    ),
    cue(
        "no-steady-state",
        2.5,
        "slc cache|cache is full|after some time|after a few seconds|after a while|over time|throttl|temperature|sustained|steady state|preconditio|drops after|fluctuat|garbage collection|trim",
    ),
    cue("few-in-flight", 4.0, " dd if=| dd of="),
    cue(
        "protocol-switch",
        3.0,
        "drops again|then drops|rises & drops|non-monotonic|jumps at|spike at|switch over|jump between|worse than at|slower than smaller",
    ),
    cue(
        "topology-seen-wrong",
        3.0,
        "topo1|topo file|topology xml|topo.xml|injected topology|virtual topology|system version=",
    ),
    cue(
        "wrong-bytes",
        3.0,
        "checksum|corrupt|wrong result|incorrect result|verification error|wrong data|data mismatch|0xffffffff|validation fail|wrong value|incorrect data",
    ),
    cue(
        "links-lost",
        2.5,
        "inactive link|links inactive|shows inactive|link is down|links are down|missing nvlink|nvlink down|inactive on",
    ),
    cue("peer-through-root", 3.0, "io_page_fault|amd-vi|dmar drhd|dmar dma"),
    cue("one-queue-pair", 3.0, "single qp|with -q |one qp|multiple qps|more qps|-q 1 "),
    cue("no-gpu-direct", 3.0, "fi_efa_use_device_rdma & not set|is not set|without|=0|missing"),
    cue(
        "page-cache",
        2.5,
        "faster than the ssd|than the ssd|faster than my|than my ssd|faster than physically|faster than possible",
    ),
    cue("bits-and-bytes", 1.5, "8 times|factor of 8|eight times|8x slower|8x less|far below"),
    cue(
        "topology-seen-wrong",
        3.0,
        "topo_file is not|without nccl_topo_file|no topology file|topology file is missing|topo file is missing|topo_file not",
    ),
    cue("gds-compat-mode", 1.0, " gds |gdsio|cufile"),
    cue("adapter-slot", 1.5, "pcie-link-state"),
    cue("few-in-flight", 2.5, " dd if=|hdparm| dd of="),
    cue(
        "across-sockets",
        3.5,
        "between the two cpu|cpu interconnect|between sockets|between the socket|cross-socket|across socket|between two cpu",
    ),
    cue("narrow-pcie", 3.0, "available pcie bandwidth & limited by"),
    cue("idle-link-speed", -4.0, "available pcie bandwidth & limited by"),
    cue("gpu-far-from-adapter", 1.5, "package & mlx5 & gpu"),
    cue(
        "gpu-far-from-adapter",
        2.0,
        "gpu &  nic|mlx5|hca|adapter & other socket|different numa|other numa|far from|not the closest|nearest|numa node|wrong nic|closest",
    ),
    cue(
        "memory-channels",
        3.0,
        "memory channel|channels|dimm|single channel|dual channel|populated|single-channel|dual-channel",
    ),
    cue("far-core", 2.0, "taskset|numactl|bind-to|bound to core|binding & half|slower|drops|worse"),
    cue(
        "line-full",
        -3.0,
        "about half of|half of that|half of the|far below|much lower & taskset|numactl|use_cuda|gpu memory|mtu",
    ),
    cue("protocol-overhead", -3.0, "two-versions"),
    cue("ring", -2.0, "two-versions"),
    cue(
        "wrong-clock",
        2.5,
        "governor|wtime|clock rate & latency & two-versions|wtime|clock_gettime",
    ),
    cue(
        "host-memory-only",
        2.5,
        "more than is available|than the link|thunderbolt|egpu|oculink & more than|higher than|exceed",
    ),
    cue(
        "separate-runs",
        3.0,
        "same bandwidth as one node|same as one node|same as a single node|as single node|both nodes|run separately|runs separately|independent",
    ),
    cue(
        "peer-through-root",
        3.0,
        "nccl_p2p_level=sys|nccl_p2p_level=phb|nccl_p2p_level=pxb|nccl_p2p_level=5 & falls|drops|slower|hang|worse|decreas",
    ),
    cue(
        "peer-through-root",
        1.5,
        " vm | vms |virtual machine|virtual machines|passthrough|vfio|qemu| kvm ",
    ),
    cue(
        "test-bug",
        2.5,
        "beyond anything|beyond what|not possible|keeps growing|than possible|more than physical|faster than light",
    ),
    cue("fewer-adapters", 2.0, "dgx spark|gb10"),
    cue(
        "narrow-pcie",
        2.5,
        "twice as fast as the other|one is twice|other one is half|the other is half|half as fast as the other|same drive|same card|same base",
    ),
    cue(
        "narrow-pcie",
        2.0,
        "pciex1|one lane|single lane|x1 slot|gen 2 x1|raspberry|compute module|5 gt/s| 5gt/s|pcie 2.0|pcie gen2|pcie gen 2",
    ),
    cue("shared-uplink", 3.5, "holds the sum|total stays|sum stays|sum is limited"),
    cue("page-cache", -1.5, "what holds|what limits|too slow|so slow|why is it slow|only half"),
    cue(
        "shared-uplink",
        2.5,
        "holds the sum|sum of all|in total|total stays|all ports|all four|all eight &  each|alone|share",
    ),
    cue(
        "topology-seen-wrong",
        2.0,
        "process group|process groups|rank order|order of ranks|cuda_visible_devices order & slower|some|certain",
    ),
    cue("fewer-adapters", 1.5, "process group|process groups & adapters|nics|hca|mlx5"),
    // Network.
    cue(
        "tcp",
        3.0,
        "net/ib no device found|failed to open libibverbs|using network socket|via net/socket|nccl_ib_disable=1|no eligible providers| over tcp|tcp only|net/socket using|nccl_net=socket",
    ),
    cue("tcp", 1.5, " docker| container|kubernetes| k8s| pod & infiniband|rdma| ib | roce|mlx5"),
    cue(
        "tcp",
        1.5,
        "10gbe|10 gbe| 1gbe|10g ethernet|10 gbit|25gbe|eth0|no infiniband|without infiniband| ena ",
    ),
    cue(
        "tcp",
        4.0,
        "net/socket|/dev/infiniband|libibverbs|no ib device|socket transport|fell back to socket|falls back to socket|falling back to tcp & !via net/ib",
    ),
    cue("network-full", -2.0, "net/socket|fell back|falls back|falling back"),
    cue("tcp", -2.0, "via net/ib|gdrdma|using network ib"),
    cue(
        "no-gpu-direct",
        3.0,
        "peermem|peer_mem|gdrdma|gpudirect rdma|gpu direct rdma|gpudirect|dmabuf|dma-buf & not loaded|disabled|missing|without|not installed|not available|is off|not enabled|not used|no gpu|no gdr|not supported",
    ),
    cue("no-gpu-direct", 1.0, "peermem|peer_mem|gdr_level|gpudirect"),
    cue("no-gpu-direct", 2.0, "nccl_net_gdr_level=0|nccl_net_gdr_level=loc|gdr 0"),
    cue("no-gpu-direct", -2.0, "/gdrdma"),
    cue(
        "fewer-adapters",
        2.5,
        "only one nic|only one hca|only 1 nic|only 1 hca|one nic |one hca|single nic|uses one|use one|using one|only mlx5_|only use 1|only uses 1|use only one|only one of the|half of the nics|single hca|use only 1|one of two|one adapter is",
    ),
    cue(
        "fewer-adapters",
        2.5,
        "only 1 |only one |uses 1 |just one |a single & hca| nic|adapter|mlx5| rail",
    ),
    cue(
        "fabric-routing",
        2.5,
        "nodes 1 and|node 1 and|node pair|pairs of nodes|some nodes|certain nodes|specific nodes|some pairs|ecmp|hash collision",
    ),
    cue(
        "fewer-adapters",
        1.5,
        "nccl_cross_nic|dual-rail|dual rail|multi-rail|bond| both nics|all nics|all hcas",
    ),
    cue("fewer-adapters", 1.0, "numa|pcie switch|topology"),
    cue(
        "tree-of-two-nodes",
        2.0,
        "exceed|higher than|more than the|above the|greater than|faster than|over the theor|surpris|how is it possible|how is this possible|beyond",
    ),
    cue("tree-of-two-nodes", 1.0, " tree|nccl_algo=tree"),
    cue(
        "network-full",
        1.0,
        "reasonable|is this normal|is it normal|as expected|is this expected|is it expected|make sense|correct",
    ),
    cue(
        "small-mtu",
        2.0,
        " mtu 1024|mtu 1500|active_mtu 1024|active mtu 1024|mtu is 1024|mtu=1024",
    ),
    cue(
        "one-queue-pair",
        2.0,
        "qps_per_connection|single qp|one qp|more qps|-q 2|-q 4|-q 8|-q 16| lag |bond|dual-port|dual port",
    ),
    cue("far-core", 2.0, "numactl|taskset|numa node|other socket|remote numa|numa binding|pinning"),
    cue(
        "adapter-slot",
        2.0,
        "gen3 x16|gen3 x8|gen3|gen 3|pcie 3|pcie3|gen4 x8| x8 | x4 |width x8|width x4|8gt/s",
    ),
    cue(
        "gpu-far-from-adapter",
        2.0,
        "use_cuda|use_rocm|--use_hip|gpu memory|gpudirect|gpu buffer & link-sys| sys | numa| socket|phb|root port|root complex",
    ),
    // PCIe and P2P.
    cue(
        "peer-through-root",
        2.0,
        "iommu| acs |acsctl|vt-d|acs=|acs is|acs was|disable acs|pcie_acs",
    ),
    cue("peer-through-root", 1.5, " hang| hung|stuck|freez|deadlock & p2p|peer|nccl"),
    cue(
        "peer-through-root",
        2.5,
        "p2p_disable=1|p2p disabled|p2p=disabled|without p2p & p2p enabled|p2p=enabled|p2p on|with p2p|slower|hang|hung",
    ),
    cue(
        "peer-through-root",
        1.5,
        " p2p & faster|disabled & slower|p2p_disable=1|p2p enabled|p2p=enabled",
    ),
    cue("peer-through-root", 1.5, " epyc|threadripper|amd cpu| ryzen & p2p|peer"),
    cue(
        "through-host-memory",
        2.5,
        "!iommu| acs | hang & p2p_disable=1|via shm|shm/direct|p2p is disabled|p2p disabled|no p2p|not support p2p|doesn t support p2p|p2p is not supported|without p2p|can t access|cannot access peer|p2p not available|without nvlink|no nvlink",
    ),
    cue(
        "through-host-memory",
        1.5,
        " vm |virtual machine|passthrough|pass-through| kvm |vfio|qemu|esxi|vmware|hyper-v|openstack|proxmox|wsl",
    ),
    cue("through-host-memory", 1.5, "4090|3090|5090|2080|geforce"),
    cue(
        "staged",
        1.5,
        "without nvlink|no nvlink|p2p not supported|cannot access peer|no p2p|not support p2p|geforce|3090|4090|5090|p2p disabled",
    ),
    cue("staged", 1.0, " vm |virtual machine|passthrough| kvm |vfio|qemu|esxi|vmware|wsl"),
    cue(
        "link-rate-low",
        1.5,
        "4x edr|4x fdr|4x qdr|2x hdr|1x |ibstatus|ibstat|wrong speed|negotiat|active_speed",
    ),
    cue("across-sockets", 1.0, " sys | soc "),
    cue(
        "across-sockets",
        2.5,
        "between the two cpu|between the cpu|cpu interconnect|between cpus|between two socket|between the socket|other socket|across socket|cross-socket|cross socket|different socket|different numa|cross numa|cross-numa|second cpu|two cpus|other cpu|between sockets| qpi| upi |inter-socket|second socket",
    ),
    cue(
        "far-memory",
        2.0,
        "numactl|membind|cpunodebind|numa node|remote numa|far numa|other socket|numa affinity|taskset|cpu affinity|pinning|first touch|cpu socket",
    ),
    cue(
        "idle-link-speed",
        3.0,
        "gen1|gen 1|gen 1@|2.5gt/s|2.5 gt/s|idle|pstate|p8 |p-state|power state|power saving",
    ),
    cue(
        "narrow-pcie",
        2.5,
        "width x8|width x4|width x1 |width x2| x4 | x8 |riser|half of what|degraded|thunderbolt|oculink|egpu|reseat",
    ),
    cue(
        "pageable",
        2.5,
        "pageable|malloc|non-pinned|unpinned|not pinned|without pinned|std vector| new float|numpy|regular memory|cudamallochost|pin_memory|pinned memory",
    ),
    cue("reads-slow", 1.5, "iommu|relaxed ordering|maxreadreq|mrrs| nps|read request"),
    cue(
        "writes-slow",
        1.5,
        "iommu|relaxed ordering| nps|d2h is slower|device to host is slower|slower than h2d",
    ),
    cue(
        "kernel-reads",
        2.0,
        "zero-copy|zero copy|kernel read|sm copy|mapped memory|memcpy_sm|_sm ",
    ),
    cue("one-of-two-streams", 1.5, "bidirectional|bidir|both directions|simultaneous"),
    cue(
        "shared-uplink",
        2.0,
        "pcie switch|all gpus at|simultaneous|concurrent|in parallel|same time|share a |share the |share one| plx|at once",
    ),
    cue(
        "one-gpu-slow",
        1.5,
        "one gpu|only gpu|single gpu is|except gpu|compared to the other gpus|other gpus",
    ),
    cue(
        "links-lost",
        2.0,
        "inactive|links down|link down|nvlink -s|nvlink error|replay|crc error|missing link|fewer links",
    ),
    cue(
        "sdma-cap",
        2.0,
        "gcd| sdma|hsa_enable_sdma|hipmemcpypeer|rocm_bandwidth|rocm-bandwidth|same package|same mi250",
    ),
    cue("few-compute-units", 2.0, "num_gpu_se|compute units|sub-executors|num_cus| cus "),
    cue(
        "few-channels",
        2.0,
        "nchannels|num_channels|n_channels|max_ctas|nccl_max_nchannels|min_nchannels|rings",
    ),
    cue("protocol-set", 2.0, "nccl_proto="),
    cue("nvls", 1.5, "nvls|sharp"),
    cue("nvls", -2.0, "nccl_nvls_enable=0|nvls_enable 0|without nvls|nvls disabled"),
    cue(
        "small-size",
        1.5,
        "small message|small size|small data|message size|1mb|1 mb|small buffer|64kb|4kb|kb message|few mb|larger size|bigger size",
    ),
    cue(
        "first-use",
        2.0,
        "first iteration|warmup|warm-up|warm up|first run|first size|out-of-place|out of place",
    ),
    cue(
        "falls-with-size",
        2.0,
        "drops|drop at|sudden|decreas|dip |falls|collapse|plummet|cliff|slower with larger|degrad",
    ),
    // Meanings.
    cue(
        "one-direction",
        2.0,
        "bidirectional|bi-directional|bidir|unidirectional|uni-directional|duplex|both direction|each direction|per direction|one direction|one-way|one way|in total|total bandwidth|aggregate",
    ),
    cue(
        "one-direction",
        1.5,
        "600 gb/s|600gb/s|900 gb/s|900gb/s|1.8 tb/s|1.8tb/s|1800 gb/s|112 gb/s|112.5 gb/s|128 gb/s|128gb/s|800 gb/s|800gb/s|896 gb/s|100 gb/s nvlink|300 gb/s nvlink",
    ),
    cue("bits-and-bytes", 0.5, "gbps|gbit|gb/s vs|bits| gb/sec"),
    // Storage.
    cue(
        "few-in-flight",
        2.5,
        "iodepth=1 |iodepth 1 |qd1|queue depth of 1|queue depth 1|single thread|one thread|numjobs=1 |low queue|psync|engine=sync|ioengine=sync|iodepth has no|1 thread|thread 1 ",
    ),
    cue("few-in-flight", 1.0, "iodepth|queue depth|threads|numjobs"),
    cue(
        "page-cache",
        2.5,
        "page cache|pagecache|direct=0|without direct|buffered|no direct|not direct|from cache|cached|--direct=0|faster than the d|higher than the d|than the disk|than the drive|o_direct|invalidate",
    ),
    cue(
        "page-cache",
        1.5,
        " ram | ram.| of ram|of memory|memory size|drop_caches|first loop|second run|file smaller|more than the ssd|laptop",
    ),
    cue(
        "page-cache",
        2.5,
        "shows no i/o|no i/o any|no disk activity|iostat shows 0|nothing on the d|not hitting the d|no io on|zero i/o",
    ),
    cue(
        "page-cache",
        1.5,
        "--filename=|-filename=|--rw=|-rw=|--name= & !direct=1|--direct |-direct |o_direct",
    ),
    cue("page-cache", -2.0, "direct=1|--direct "),
    cue("one-file", 2.5, "single file|one file|same file|one large file|a file with|1 file"),
    cue("one-file", 1.0, "nfs|lustre|gpfs|nconnect|stripe|beegfs|weka|vast"),
    cue(
        "direct-across-socket",
        2.0,
        "gds|cufile|gdsio|gpudirect storage & link-sys| sys |numa| socket|root port|root complex|phb",
    ),
    cue("device-full", 1.0, "rated|spec|maximum|normal"),
    // MPI.
    cue("staged-message", 2.0, "gdrcopy|gdr_copy|cuda_copy|latency"),
    cue(
        "protocol-switch",
        2.0,
        "rndv|rendezvous|eager|drop|threshold|sudden|rndv_thresh|rndv_scheme",
    ),
    cue("shared-memory", 1.5, "intra-node|intranode|same node|shared memory|xpmem|knem| cma "),
];
