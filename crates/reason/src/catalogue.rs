//! Messages of libraries, runtimes, launchers, file systems and the kernel by their few salient words, as data.
//! A row shows the text of its cause. Rows about NCCL, aws-ofi-nccl and perftest follow the texts
//! in their sources, of which about a third were read; the others (CUDA and HIP, Xids, Open MPI, MPICH, UCX,
//! libfabric, cuFile, PyTorch, Slurm, Ray, containers, the kernel, Lustre, NFS) are from experience with them.

use crate::cue_table::cue;
use crate::message_table::message;
use crate::score::AnswerClass::{HardwareSuspect, SetUpSo, Software};
use crate::text_cues::{CauseCue, MessageCause};

/// Causes that only messages and circumstances name.
pub(crate) const CATALOGUE_CAUSES: &[MessageCause] = &[
    message(
        "host-memory-full",
        SetUpSo,
        4.5,
        "oom-kill|oom kill|oomkilled|oom killer|killed process|exit code 137|exitcode -9|exited with code 137|signal=9|sigkill|smalloc oom|cannot allocate host|std bad_alloc|dataloader worker & !cuda out of memory|ibv_|shm|bus error",
        "the memory of the host, or of the job's or container's share of it, is used up, and the kernel ends a process",
        "dmesg | grep -i oom; memory limit of the job or container",
    ),
    message(
        "launcher-mismatch",
        SetUpSo,
        4.5,
        "pmi server not found|pmi2_init|pmi_init|pmix_init|no pmi|pmix & unsupported|not built with|was not built|rank 0 of 1|each is rank 0|every process is rank 0|all are rank 0|size 1 each|world size is 1|singleton|launched directly|direct-launched",
        "the launcher and the MPI library do not share a process manager (PMI): each process starts as a job of one rank",
        "srun --mpi=list; the mpirun of the library that the program is linked with",
    ),
    message(
        "server-not-responding",
        SetUpSo,
        4.5,
        "not responding still trying|not responding timed out|ptlrpc_expire|lnet_|lneterror|lustreerror|was evicted|in progress operations using this service|stale file handle|request sent has timed out",
        "the file server, or the network to it, does not answer in time",
        "lfs check servers; nfsstat -rc; lnetctl net show -v; logs of the server",
    ),
    message(
        "adapter-fault",
        HardwareSuspect,
        4.5,
        "mlx5_core|mlx4_core|bnxt_en|bnxt_re|irdma|hfi1|netdev watchdog & health|fatal|syndrome|firmware|cmd timeout|timed out|internal error|insufficient power|temperature|transmit queue|will cause a leak|dev not responding",
        "the adapter or its firmware reports a fault",
        "dmesg; mlxfwmanager; mstdump; the adapter in another slot or node",
    ),
    message(
        "host-fault",
        HardwareSuspect,
        4.5,
        "machine check|mce hardware|hardware error|edac |mcelog|memory read error|correctable memory",
        "the host reports errors of memory or processor",
        "ras-mc-ctl --errors; dmesg | grep -i -e mce -e edac",
    ),
    message(
        "trim-not-queued",
        SetUpSo,
        3.5,
        "trim|discard & iodepth|queue depth|in-flight|qd|queued & fio|libaio|io_uring|iops",
        "a trim is one call that waits: the depth of the queue does not apply to it",
        "more jobs (--numjobs) instead of more depth",
    ),
    message(
        "compiler-or-build",
        Software,
        4.0,
        "undefined reference to|nvcc fatal|configure error|make error|make 1 |make 2 |unsupported gpu architecture|collect2 error|cmake error|ld returned",
        "the build fails: a header, library, compiler or target architecture does not fit",
        "paths CUDA_HOME, MPI_HOME, NCCL_HOME; nvcc --version; NVCC_GENCODE",
    ),
];

/// Messages of causes whose text stands elsewhere.
pub(crate) const CATALOGUE: &[CauseCue] = &[
    cue(
        "rank-missing",
        4.5,
        "lost communication with a remote daemon|ssh connect to host|host key verification",
    ),
    cue("rank-missing", 4.5, "mismatched collective"),
    cue("adapter-not-found", 4.5, "fi_getinfo & no data available"),
    cue("library-mismatch", 4.0, "exceeds device/fn maxsharedmem"),
    // NCCL, RCCL.
    cue(
        "topology-seen-wrong",
        4.0,
        "nccl|rccl|topo & could not find rev link|could not find node of|could not find intermediate|failed to find reverse path|can t find busid|does not contain rank|xml parse|xml mismatch|xml import|graph has wrong version|add nvlink error|could not find gpu|localhosthash|tried to merge too many|could not find a path|find cpu affinity|could not get speed from|gettopo",
    ),
    cue(
        "rank-missing",
        4.0,
        "proxy service|proxy call|proxyconnect|proxy append|service thread & failed|error|closing|mismatch|out of bounds",
    ),
    cue(
        "rank-missing",
        4.0,
        "communicator was aborted|global timeout from another|timed out initializing process group|received a dump signal|distnetworkerror|store based barrier|rank behind|failed to recv got 0 bytes|tcpstore & broken|recvvalue|actor died|raylet & died|worker died|workers died|node is dead|actor is unavailable|expected to have finished reduction|find_unused_parameters|unused parameters|mismatched sizes",
    ),
    cue(
        "application-fault",
        4.0,
        "improper usage of ncclcomminit|invalid rank requested|invalid config|invalid argument comm|blocking and nonblocking|graph captured|already been destroyed|datatype|reduction operation & unknown to this communicator|must be initialized via|invalid communicator|same group|destroyed|initialized",
    ),
    cue(
        "application-fault",
        4.0,
        "cudaerrorinitializationerror|initialization error|cannot re-initialize cuda|forked subprocess|cuda error 3 |cuda failure 3 |cudart unloading|cudaerrorcudartunloading|driver shutting down|cuda failure 4 ",
    ),
    cue(
        "application-fault",
        4.0,
        "no backend type associated|tensors must be cuda and dense|must be contiguous|tensor must be on|expected all tensors to be on|invalid argument to exec|stream capture|streamcapture|peeraccessalreadyenabled|peer access is already|hostmemoryalreadyregistered|already mapped|illegal instruction|launch timed out|cuda_error_launch|cudaerrorlaunch|device kernel image is invalid|unspecified launch|segmentation fault & !ucx|mpi|gpu buffer|gpu_support",
    ),
    cue(
        "application-fault",
        5.0,
        " xid & 13|31|43|69 & graphics|mmu fault|reset channel|sm exception|esr|fault_pde|fault_pte|stopped",
    ),
    cue(
        "gpu-fault",
        4.5,
        "unable to determine the device handle|gpu requires reset|requires reset|gpu is lost|nverr|cudaerrorecc|cudaerrornvlink|cudaerrorhardware|hardwarestackerror|gsp & timeout|rpc|gsp task|pending page|retired page|row remapping|contained ecc|uncontained|xid 48|xid 63|xid 64|xid 74|xid 79|xid 94|xid 95|xid 119|xid 120|xid 149|poison consumed|hwerr|ring timeout|smu & not respond",
    ),
    cue(
        "duplicate-gpu",
        4.5,
        "multiple ranks are using the same gpu|multi_rank_gpu|same gpu & rank|process",
    ),
    cue(
        "library-missing",
        4.0,
        "gdr_open|gdr_pin|gdr_map|libcudart|libcuda.so|libamdhip|librocm|libnvidia|libmpi|libnccl.so|libucp|libfabric.so & failed|error|cannot open|not found|no such",
    ),
    cue(
        "library-missing",
        4.0,
        "mca_base_component_repository_open|dlopen|modulenotfounderror|no module named|importerror & unable|cannot open|not found|named|fail",
    ),
    cue(
        "library-mismatch",
        4.0,
        "fi_opt|fi_setopt|fi_getopt & couldn t set|could not set|failed|error|not supported",
    ),
    cue(
        "library-mismatch",
        4.0,
        "symbol not found|cannot find symbol|unsupported version|requires version|version 1.|api version & mismatch|older than|not found|lookup|plugin|differs",
    ),
    cue(
        "library-mismatch",
        3.5,
        "opal_init failed|orte_init failed|ompi_mpi_init|opal_shmem|mpi_init & failed|fail|error & !pmi|ptrace|cma|no space|slots",
    ),
    cue(
        "settings-differ",
        4.0,
        "does not match the parent|mismatch in|differs between|differ between|not the same on all|inconsistent & nccl|rank|ranks|node|comm",
    ),
    cue(
        "port-down",
        4.5,
        "marked as failed|could not find a functional device|port number & state is|down|init|failed initiating",
    ),
    cue(
        "rdma-path-fails",
        4.0,
        "got cqe with error|wc_error|completion with error|rdma_cm|handle_cq_error|fi_cq_readerr|completion error|cq error|poll cq failed|poll_cq|unreachable destination|destination unreachable|ibv_wc_|wr_flush & !local protection|permission|addr_error_limit|use_cuda",
    ),
    cue(
        "rdma-path-fails",
        4.0,
        "gid index|gid table|gid_index|couldn t query gid|gid is & invalid|not found|zero|not set|null|fail|error|out of range|cannot|0000 0000",
    ),
    cue(
        "plugin-missing",
        4.0,
        "find provider|rma-capable|unsupported platform|no suitable provider|no such provider|no provider",
    ),
    cue(
        "adapter-not-found",
        4.5,
        "unable to open device|failed to open device|couldn t get context|unable to query port|no rdma-capable|no such device & ib|mlx|rdma|ibv|nic|hca|nvshmem|ucx",
    ),
    cue(
        "adapter-not-found",
        4.0,
        "unable to find any relevant network|find any hcas|no ib hca|no hca|no infiniband devices|no usable ib|could not find any ib",
    ),
    cue(
        "open-file-limit",
        4.0,
        "pthread_create|thread creation|io_setup|aio-max-nr|fork & failed|eagain|resource|retry|limit",
    ),
    cue(
        "missing-rights",
        5.5,
        "shm_open|/dev/shm|shared memory|cache|io_uring|mlock|perf_event|ipc|socket & permission denied|operation not permitted|eperm|eacces|read-only file system",
    ),
    cue(
        "missing-rights",
        4.0,
        "running as root|requires root|need root|must be root|not owner|io_uring_disabled|read-only file system",
    ),
    cue(
        "driver-too-old",
        4.5,
        "nobinaryforgpu|no binary for gpu|insufficientdriver|compatnotsupported|nokernelimage|sm_ & is not compatible|dynamic smem|maxsharedmem|requires a newer|requires driver|provided ptx|unsupported ptx|ptx was compiled|cuda error 804|cuda failure 804|cuda failure 35|cuda error 35",
    ),
    cue(
        "gpu-memory-full",
        4.5,
        "cudaerrormemoryallocation|no available memory for the cache|gpu memory utilization|outofmemoryerror|hiperroroutofmemory|failed to allocate device memory|not enough gpu memory|cublas_status_alloc",
    ),
    cue(
        "gpu-busy",
        4.0,
        "mps connection|mpsconnection|mpsmaxclients|mps client|mps server|mps daemon|mpsrpc|gpu is already in use|mps control",
    ),
    cue(
        "gpu-not-visible",
        4.5,
        "could not select device driver|nvidia-container-cli|failed to initialize nvml|unknown runtime|insufficient nvidia.com/gpu|cuda unknown error|nvidia_uvm|nvidia-uvm|no gpu agent|failed to get device count|is_available false|cuda is not available|cuda_error_unknown|cuda error 999|cuda failure 999|couldn t communicate with the nvidia driver|torch not compiled with cuda",
    ),
    cue(
        "too-few-slots",
        4.5,
        "unable to create step|node configuration is not available|can t be scheduled|placement group & resources|pending|insufficient|more processors requested|not enough resources|insufficient rdma|failedscheduling",
    ),
    cue("port-in-use", 4.5, "failed to listen|bind & already|in use|failed to bind|errno 98"),
    cue(
        "wrong-interface",
        4.5,
        "at least one pair of mpi processes|unable to complete a tcp connection|connect timed out|connection attempt|could not connect to|cannot connect to|failed to connect|econnrefused|errno 111|errno 113|gai error|getaddrinfo & !uverbs|mps|daemon socket|docker daemon",
    ),
    cue(
        "transport-missing",
        4.0,
        "pml add procs|no auxiliary transport|am transport|address not found|ucx error no|not supported by device|feature & not available|not supported & ucx|pml|perftest|ib_|nvshmem|transport",
    ),
    cue(
        "mpi-without-gpu",
        4.0,
        "memtype|cuda_copy|address not mapped|invalid permissions|segfault|segmentation fault & gpu buffer|device buffer|device memory|cuda buffer|device pointer|cuda pointer|hip buffer|d d",
    ),
    cue(
        "memory-lock-limit",
        4.5,
        "memlock|locked memory|ulimit -l|max locked|mlock failed|cannot lock memory|rlimit_memlock|8192 kb|failed to pin|could not pin",
    ),
    cue(
        "no-gpu-direct",
        4.0,
        "cxil_map|cuda memory pinning|gpu memory pinning|failed to register & gpu memory|device memory|hmem|vram|cuda|rocm|dmabuf & !compat|host memory already",
    ),
    cue(
        "small-mtu",
        4.0,
        "requested mtu|mtu is higher|active mtu|mtu mismatch|different mtu & !latency",
    ),
    cue(
        "fabric-manager",
        4.5,
        "fabric state|nvswitch|fabric status|fabricmanager|nvlink inband & in progress|not started|failed to start|not running|request to query|aborted|version mismatch|n/a|initialization",
    ),
    cue(
        "imex",
        4.0,
        "cuda_error_not_permitted|fabric handle|mnnvl|nvl72|gb200|multi-node nvlink & fail|error|denied|not permitted|invalid|refused",
    ),
    // Files, drives, kernel.
    cue(
        "direct-refused",
        4.5,
        "invalid argument|einval|err=22|error 22|errno 22 & io_u error|write offset|read offset|buflen|pread|pwrite|o_direct|direct=1|bs=",
    ),
    cue(
        "page-cache",
        4.5,
        "cache invalidation|drop_caches|drop caches|posix_fadvise & fail|denied|not permitted|error|impact|not",
    ),
    cue("wrong-bytes", 4.5, "out of bounds values & failed"),
    cue(
        "wrong-bytes",
        4.0,
        "nan|nans|garbage|wrong values|wrong output|silent corruption|bad data|bit flip|bitflip|zeros instead|all zeros & all_reduce|allreduce|nccl|p2p|peer|copy|rdma|gather|memcpy",
    ),
    cue(
        "device-fault",
        4.5,
        "blk_update_request|buffer i/o error|ext4-fs error|xfs metadata|critical medium|failed command|blocked for more than|media errors|percentage used|reallocated|remounting filesystem read-only|unc error",
    ),
    cue("disk-full", 4.5, "disk quota exceeded|edquot|quota exceeded|no space left & !shm|nccl"),
    cue("open-file-limit", 4.0, "emfile|nofile|nr_open|file-max & limit|fail|too many"),
    cue(
        "gds-compat-mode",
        4.0,
        "cufile|gds|nvfs & data=ordered|mount option|udev|path not supported|not supported|5010|5011|5012|5013|5014|5015|5016|5020|5022|5028",
    ),
    cue(
        "small-bar",
        4.0,
        "bar1 & exhaust|full|too small|256 mib|256mib|insufficient|not enough|size",
    ),
    cue(
        "packet-loss",
        3.5,
        "symbolerror|symbol_error|linkerrorrecovery|portrcverrors|port_rcv_errors|portxmitdiscard|portxmitwait|crc errors & !nvlink",
    ),
    cue("through-host-memory", 4.0, "waiving|waived & device_to_device|p2p|peer"),
    cue(
        "harmless-message",
        2.5,
        "what does & mean|meaning|impact|harmless|safe to ignore|can i ignore|ignore this|be ignored",
    ),
    cue(
        "harmless-message",
        3.5,
        "native_fallocate call failed|errno 97|socket cannot be initialized & !hangs-here|refused|abort",
    ),
    cue(
        "cores-oversubscribed",
        4.0,
        "not enough processing units|no available cpus|more processes than|bind & overload|oversubscrib",
    ),
];
