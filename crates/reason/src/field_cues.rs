//! Words that speak for causes of `field_causes`, and for causes of figures where a question names the
//! circumstance. A cue that goes with a figure belongs in `cue_table`, a message of a library in
//! `message_table` or `library_messages`.

use crate::cue_table::cue;
use crate::text_cues::CauseCue;

/// Words of questions that name the circumstance.
pub(crate) const FIELD_CUES: &[CauseCue] = &[
    cue(
        "uncached-read",
        3.5,
        " bar |bar is|map_read|write-combin|readback|download buffer & read & slow|100x|slower than write|prefetch & !resizable",
    ),
    cue(
        "mtu-mismatch",
        4.0,
        "ping & works|is fine|does work|can ping & iperf|ssh|large & vxlan|overlay|flannel|tunnel|jumbo| mtu",
    ),
    cue("clock-throttle", -3.0, "hangs-here"),
    cue(
        "network-full",
        2.5,
        "multiple machines|two machines|several machines|another machine|identical machine|second machine|more machines|more nodes|multiple nodes|two nodes|two servers & img/sec|images/s|samples/s|tokens/s|training|scal & slower|decrease|drops|worse|longer & !infiniband|rdma|roce|efa|busbw| hang",
    ),
    cue(
        "few-in-flight",
        3.0,
        "transfer_engine|nixl|mooncake|rdma bench|kv cache transfer & gb/s|gbps|throughput & !batch_size|block_size|threads=",
    ),
    cue(
        "few-in-flight",
        2.0,
        "default parameters|default options|default settings|with defaults|transfer_engine & throughput|bandwidth|gb/s|iops",
    ),
    cue("tcp", 3.5, "fi_provider=tcp|fi_provider=sockets|ucx_tls=tcp|btl tcp self|btl self tcp"),
    cue(
        "through-host-memory",
        3.5,
        "canaccesspeer returns 0|canaccesspeer 0|canaccesspeer = 0|canaccesspeer is 0",
    ),
    cue(
        "fabric-routing",
        2.5,
        "leaf switch|more than one leaf|several leaf|top of rack|tor switch & nodes|more|different",
    ),
    cue(
        "fewer-adapters",
        3.0,
        "mlx5_0 only|only on mlx5|only through mlx5|only over mlx5|on one adapter only|on one nic only",
    ),
    cue("packet-loss", 3.0, "incast|many to one|many-to-one|servers send to one"),
    cue(
        "cores-oversubscribed",
        3.0,
        "share each core|share a core|share one core|threads on one core|without binding",
    ),
    cue(
        "adapter-slot",
        2.5,
        "x4 slot|x8 slot|3.0 x8|3 x8|gen3 x8|gen 3 x8|2.0 x8|in a x8|in a x4|8gt/s width x16",
    ),
    cue(
        "sharing-with-others",
        2.5,
        "shared infiniband|shared cluster|shared fabric|shared network|varies between|run to run|from run to run",
    ),
    cue("cpu-bound", 3.0, "one core 100|core 100 %|core is 100|100 % busy|100% busy"),
    cue(
        "page-cache",
        2.5,
        "cache mode|writeback|host cache|cache=writeback|10x the|times the bandwidth of",
    ),
    cue(
        "few-threads",
        2.5,
        "with 1 thread|with 2 threads|with 4 threads|with 8 threads|one thread & stream|triad|memory",
    ),
    cue(
        "first-use",
        3.0,
        "first all_reduce takes|first call takes|first iteration takes|first one takes|later fine|then fine|later ones are",
    ),
    cue("one-gpu-slow", 2.5, "one node gives|one node gets|a single node gives|one server gives"),
    cue(
        "mpi-without-gpu",
        3.0,
        "enable_gpu=0|segfaults on gpu|gpu buffers & segfault|crash|enable_gpu",
    ),
    cue("link-widths-differ", 2.5, "for some & others & gcd|nvlink|xgmi"),
    // The adapter is reached through the processor there, and GPUDirect is off by default.
    cue("no-gpu-direct", 2.5, "gh200|grace hopper & nodes|adapter| nic|ports| ib"),
    cue("few-channels", -2.5, "nccl_ib_disable=1|net/socket|btl tcp|over tcp"),
    cue("tcp", 1.5, "nccl_ib_disable=1 & socket|nsocks|btl tcp"),
    cue("peer-through-root", 4.5, "acsctl srcvalid+|acsctl & reqredir+|cmpltredir+|srcvalid+"),
    cue(
        "through-host-memory",
        4.0,
        "finegrain|fine-grain|fine grain|force_fine_grain|p2p transport is skipped|host memory used",
    ),
    cue(
        "small-size",
        2.5,
        "avg bus bandwidth|average bus bandwidth|average busbw|avg busbw & -b 8 |-b 1 |-b 8b|minbytes 8 |-b 1k",
    ),
    cue("small-mtu", 3.5, "default mtu|mtu 1500|mtu of 1500|mtu=1500|mtu is 1500"),
    cue(
        "wrong-bytes",
        3.0,
        "validation fail|verification fail|verification error|reports failures|data mismatch",
    ),
    cue("peer-through-root", 1.6, "hangs-here & !nodes|bootstrap|sockets|refused"),
    cue("tcp", -4.0, "socket creation failed|address family not supported"),
    cue("behind-chipset", -2.0, "hangs-here"),
    cue("staged", -1.5, "hangs-here"),
    cue("through-host-memory", -1.5, "hangs-here & !p2p is disabled|p2p is not supported|wsl"),
    cue("narrow-pcie", -2.0, "hangs-here"),
    cue(
        "no-gpu-direct",
        3.0,
        "peer_mem|peermem|gdrdrv|nv_peer_memory & fails to|failed to|not loaded|not installed|not running",
    ),
    cue(
        "link-rate-low",
        2.5,
        "negotiated at|negotiates|negotiated to|trained at|came up at & ndr|hdr|edr|100g|200g|400g|gb",
    ),
    cue(
        "busbw-formula",
        3.0,
        "algbw half|half of busbw|busbw half|busbw twice|twice the algbw|twice algbw|busbw double|higher than algbw|higher than the algbw|same as algbw|equal to algbw",
    ),
    cue(
        "idle-link-speed",
        2.0,
        "2.5gt/s|2.5 gt/s|gen 1|gen1 & nothing runs|idle|not running|no load|width x16",
    ),
    cue(
        "idle-link-speed",
        -3.0,
        "width x8|width x4|width x1 |under load|dmesg|8gt/s downgraded|8gt/s downgraded",
    ),
    cue("links-lost", 4.0, "nvlink|nvlinks|links & inactive"),
    cue("slow-host", 3.0, "latency|_lat| us & vms| vm |virtual machine|bare metal|c-state & !gpu"),
    cue("peer-through-root", -2.0, "_lat | latency & !p2p|peer|acs|iommu"),
    cue(
        "fabric-routing",
        3.0,
        "oversubscribed|oversubscription|blocking factor|spine uplink|across racks",
    ),
    cue("few-in-flight", -2.0, "fsync=1|sync=1|o_sync|o_dsync"),
    cue(
        "network-full",
        -2.5,
        "2x hdr|1x hdr|2x ndr|1x ndr|2x edr|1x edr & expected| should| 200| 400",
    ),
    cue("protocol-switch", -1.5, "memory hooks|rcache|registration cache"),
    cue("adapter-slot", -1.5, "maxreadreq 128|maxreadreq 256|maxpayload 128"),
    cue(
        "tcp",
        -3.0,
        "connection refused|no route to host|unreachable|connection timed out|software caused connection abort",
    ),
    cue("sync-writes", 2.0, "fsync=1|sync=1|o_sync|o_dsync"),
    cue("unwritten-blocks", 1.5, "blkdiscard|never written|trimmed & more than|faster|higher"),
    cue(
        "link-rate-low",
        3.5,
        "2x hdr|1x hdr|2x ndr|1x ndr|2x edr|1x edr & expected| should| 200| 400",
    ),
    cue("registration-cost", 1.5, "memory hooks|rcache|registration cache"),
    cue("topology-seen-wrong", 3.5, "nccl topology|topo1 & topo2|topology 2"),
    // Hangs and timeouts.
    cue(
        "peer-through-root",
        3.0,
        "hangs-here|100% & p2p|iommu| acs |epyc|threadripper|ryzen|4090|5090|3090|a6000|l40|7900 & !nodes|bootstrap|socket|watchdog",
    ),
    cue(
        "wrong-interface",
        3.0,
        "hangs-here|timeout|timed out|refused|no route|unreachable & docker0|virbr|ifname|interface|bridge|eth0|eno1| ens|bond0|ipv6|firewall",
    ),
    cue(
        "wrong-interface",
        2.0,
        "bootstrap using docker0|using lo 127|127.0.0.1|169.254.|172.17.0|fe80",
    ),
    cue("wrong-interface", -1.5, "single node|one node|gpus on one|-np 1 "),
    cue(
        "rank-missing",
        3.0,
        "hangs-here|timeout|timed out & one rank|some ranks|other ranks|uneven|different number|last batch|only rank|rank 0|barrier|seqnum|sequence number|dataloader|checkpoint",
    ),
    cue("rank-missing", 1.5, "watchdog|heartbeat|monitoredbarrier|desync"),
    // Network.
    cue(
        "packet-loss",
        3.0,
        "pfc| ecn|dcqcn|out_of_sequence|out of sequence|packet_seq_err|retransmi|discard|pause frame|tx_pause|rx_pause|np_cnp| cnp|rnr_nak|local_ack_timeout_err|dropped packets|packet drops|packet loss|lossless|lossy|congestion|symbol error| fec",
    ),
    cue("packet-loss", 1.5, "roce & fluctuat|unstable|varies|drops|periodic|sometimes"),
    cue("relaxed-ordering", 3.0, "relaxed ordering|relaxed_ordering|pci_wr_ordering|rlxdord"),
    cue("relaxed-ordering", 1.0, "epyc|amd & writes|write bw|ib_write|200g|hdr|ndr"),
    cue(
        "small-read-request",
        3.0,
        "maxreadreq 128|maxreadreq 256|maxreadreq 512|mrrs|max read request|maxpayload 128|max_read_req",
    ),
    cue(
        "fabric-routing",
        2.5,
        "oversubscri|blocking factor|blocking ratio|2 1 |rail-optimized|rail optimized|different rail|across racks|different rack|across switches & slower|drops|less|only|lower|half",
    ),
    cue(
        "cloud-limit",
        3.0,
        "baseline bandwidth|burst|per-flow limit|single-flow limit|instance limit|rate limit|rate-limit|quota|throughput limit|provisioned|gp2|gp3| ebs|premium ssd|cap of",
    ),
    cue("cloud-limit", 1.0, " aws| azure| gcp|google cloud|ec2|oracle cloud"),
    cue(
        "network-full",
        2.5,
        " nfs|lustre|ceph|beegfs|s3 |object stor|client & 10gbe|10 gbe|25gbe|100gbe|10gbit|10 gbit|25 gbit|100 gbit|10g |25g |100g ",
    ),
    cue("single-flow", 2.0, "iperf & -p |parallel|single|one thread|one stream"),
    cue(
        "plugin-missing",
        3.0,
        "aws-ofi|ofi plugin|ofi-nccl|libnccl-net|net plugin| efa|gib plugin|fastrak|tcpx|sharp plugin & not loaded|missing|not found|without|failed|no plugin|internal",
    ),
    cue("small-mtu", 2.5, " mtu & 1024|1500|mismatch|4096|9000|jumbo|active_mtu"),
    cue(
        "one-queue-pair",
        2.5,
        " qps| qp |queue pair|qps_per_connection|split_data_on_qps & more|single| one |only|bond| lag ",
    ),
    cue(
        "link-rate-low",
        3.0,
        "rate 100 |rate 56 |rate 40 |rate 25 |rate 10 |rate 50 |rate 200 |active_speed|1x |2x |degraded & expected| should| 400 | 200 |200g|400g| hdr| ndr|half",
    ),
    cue(
        "gpu-far-from-adapter",
        2.5,
        "link-sys| sys | node |different numa|different socket|other socket|not under the same|different pcie|across the cpu|across numa & ib_| nic|hca|mlx5|adapter|gdr|rdma",
    ),
    cue(
        "no-gpu-direct",
        2.5,
        "use_cuda|gpudirect|gdr|cuda memory|device memory & slower|half|only|drops|lower|much less & !pix|pxb",
    ),
    cue(
        "peer-through-root",
        2.5,
        "gpudirect|gdr|rdma|use_cuda & acs|iommu|virtual machine| vm | ats |kvm",
    ),
    // Processor and power.
    cue(
        "power-saving",
        3.0,
        "c-state|cstate|c1e|c6 |powersave|governor|cpufreq|intel_idle|idle=poll|power saving|power-saving|schedutil|ondemand|tuned-adm|tuned profile|latency-performance|aspm",
    ),
    cue(
        "clock-throttle",
        3.0,
        "power cap|power limit|power_cap|throttl|thermal|hw slowdown|sw power|clocks are low|low clock|clock speed|memory clock|sclk|mclk|fclk|application clocks|lock-gpu-clocks|persistence mode|overheat|temperature",
    ),
    cue(
        "cores-oversubscribed",
        3.0,
        "more ranks than cores|bound to core 0|bound to the same core|same core|all ranks on|all processes on|cpuset|cgroup|cpus-per-task|cpu quota|cpu limit|omp_num_threads|hyperthread",
    ),
    cue(
        "cpu-bound",
        3.0,
        "100% cpu|100 % cpu|cpu usage|cpu at 100|one core at|single core at|cpu bound|cpu-bound|cpu is the bottleneck|softirq|ksoftirqd|irq affinity|irqbalance|interrupts|system time|sys time|perf top|spinlock|lock contention",
    ),
    cue(
        "sharing-with-others",
        2.5,
        "shared cluster|other jobs|noisy|other users|another job|other vms|multi-tenant|at night|same time on other|neighbour|neighbor",
    ),
    cue(
        "far-core",
        2.5,
        "numa & bind|bound|pinned|taskset|numactl|cores &  nic|adapter|hca|mlx5|ib_",
    ),
    // Copies.
    cue(
        "managed-memory",
        3.0,
        "cudamallocmanaged|hipmallocmanaged|managed memory|unified memory|xnack|page fault|uvm |prefetchasync|memadvise",
    ),
    cue(
        "one-copy-engine",
        3.0,
        "one copy engine|1 copy engine|single copy engine|asyncenginecount|copy engines & bidir|both|concurrent|overlap|simultaneous|dual|geforce",
    ),
    cue(
        "sync-in-loop",
        2.5,
        "in a loop|synchronize after|synchronise after|streamsynchronize|devicesynchronize|one by one|small copies|many copies|each copy & slow|low|overhead|us |only",
    ),
    cue("confidential-mode", 3.5, "confidential|cc mode|cc-mode| sev |sev-snp| tdx|bounce buffer"),
    cue("through-host-memory", 2.5, "topo -p2p & cns|gns|tns| ns |not supported|disabled"),
    cue("through-host-memory", 3.0, "hsa_force_fine_grain_pcie|fine grain & pcie|p2p|peer"),
    cue(
        "through-host-memory",
        2.5,
        "custom allreduce is disabled|custom_all_reduce|custom all reduce & p2p|pcie-only|not supported|disabled",
    ),
    cue(
        "shared-uplink",
        2.0,
        "all gpus|every gpu|8 gpus|4 gpus|concurrent & drops|each gpu gets|per gpu|divided|shared",
    ),
    cue(
        "pageable",
        2.5,
        "memory mode pageable|pageable transfers|--memory=pageable|mallochost|hosta|torch.empty|.to cuda|.cuda |non_blocking|pin_memory=false|mmap",
    ),
    cue("reads-slow", 2.5, "h2d|host to device|htod & slower than & d2h|device to host|dtoh"),
    cue(
        "writes-slow",
        2.5,
        "d2h|device to host|dtoh & slower than|half of|lower than & h2d|host to device|htod",
    ),
    cue(
        "idle-link-speed",
        2.5,
        "nvidia-smi & gen 1|gen1|current 1|2.5 gt|pcie generation & !under load|while running",
    ),
    cue("narrow-pcie", 2.5, "x16 & x8| x4| x1 |width x4|width x1 "),
    cue(
        "across-sockets",
        2.5,
        "numa 0|numa node 0|socket 0|cpu0|cpu 0 & numa 1|numa node 1|socket 1|cpu1|cpu 1",
    ),
    cue(
        "links-lost",
        3.0,
        "nv17|nv16 & nv18|one link less|fewer nvlinks|link is inactive|links inactive|lane error|nvlink & replay|recovery|crc",
    ),
    // Collectives.
    cue(
        "busbw-formula",
        3.0,
        "difference between algbw|difference between busbw|what is busbw|what does busbw|meaning of busbw|how is busbw|busbw is calculated|busbw calculat|busbw computed|calculate busbw|compute busbw|algbw vs|algbw or busbw|algbw and busbw|bus bandwidth is computed|factor of 2 n-1",
    ),
    cue("small-size", -1.0, "-b 1g|-b 4g|-b 8g|-b 512m"),
    cue(
        "launch-bound",
        3.0,
        "cuda graph|kernel launch|launch overhead|launch latency|launch-bound|small tensors|8 bytes|latency floor|minimum latency",
    ),
    cue(
        "one-gpu-slow",
        2.5,
        "one node is|one of the nodes|a single node slows|slow node|straggler|bad node|except one|some nodes are|specific node|this node|gpu 0 is slow|only on gpu",
    ),
    cue("nvls", 2.5, "nvls|nvlink sharp|nccl_algo=nvls"),
    cue(
        "few-channels",
        2.5,
        "nccl_max_nchannels|nccl_min_nchannels|nccl_nchannels|nccl_max_ctas|1 channel|2 channels|4 channels|nchannels_per_net_peer",
    ),
    cue(
        "protocol-switch",
        2.5,
        "ll128|simple protocol|nccl_proto|nccl_algo|tuning model|tuner & slower|drop|dip|worse|regress|better|faster",
    ),
    cue(
        "topology-seen-wrong",
        2.5,
        "nccl_topo_dump|topo dump|virtual topology|detects|detected & wrong|incorrect|instead|as pci|missing nvlink|no nvlink|1 gpu|phb",
    ),
    // Messages.
    cue(
        "registration-cost",
        3.0,
        "registration cache|rcache|mr cache|memory registration|reg_mr|hugepage|huge page|thp|odp |memory hooks|memory_monitor",
    ),
    cue("peer-mapping-cost", 3.0, "ipc cache|cuda_ipc_cache|ipc handle|cudaipcopen|opening handle"),
    cue("first-use", 2.0, "first message|first call|first transfer| cold & slow|latency"),
    // Storage.
    cue(
        "sync-writes",
        3.0,
        "--fsync|fsync=|-fsync|fdatasync|o_sync|o_dsync|sync=1|--sync=|write barrier|power loss protect|power-loss protect|plp|write cache",
    ),
    cue("sync-writes", -2.0, "rw=read|randread & !write"),
    cue(
        "unwritten-blocks",
        3.0,
        "trimmed|discarded|blkdiscard|sparse|never written|unwritten|fallocate|thin provision|zeroes|all zeros|zero-filled|compress|dedup|empty drive|new drive|fresh drive|secure erase",
    ),
    cue(
        "file-system",
        2.5,
        " zfs|btrfs| xfs| ext4|overlayfs| fuse|ntfs|wsl| 9p|virtiofs|drvfs & slower|slow|than raw|raw device|block device|only|half",
    ),
    cue("file-system", 1.0, " zfs|btrfs| fuse|virtiofs| 9p"),
    cue(
        "raid-overhead",
        3.0,
        "mdadm|/dev/md|raid 5|raid5|raid 6|raid6|raid 0|raid0|raid 10|raid10|zpool|raidz|parity|stripe_cache|stripe cache|group_thread_cnt|vroc|megaraid",
    ),
    cue("far-memory", 2.0, "epyc|xeon|dual socket|2 socket|two socket & nvme|ssd|drive & numa"),
    cue(
        "gds-compat-mode",
        3.0,
        "compat mode|compat_mode|allow_compat|compatible mode|nvidia-fs|nvidia_fs & not|unsupported|disabled|compat|missing|slower|same",
    ),
    cue(
        "behind-chipset",
        2.5,
        "second slot|bottom slot|pcie x4 slot|m2_2|m2_3|pch|consumer board|desktop board|pcie slot 2|pciex16_2 & gb/s|mb/s",
    ),
];
