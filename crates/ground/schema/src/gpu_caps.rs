//! Capabilities of a vendor's GPUs and their runtime, in one table.
//!
//! Nothing above discovery and the runtime's bindings compares vendor names: it asks a row here. A new
//! vendor is a new row.

use std::collections::BTreeSet;

use crate::{Bytes, Gpu, Topology};

/// Capabilities of a GPU's runtime, and the names of its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuCaps {
    /// The value of [`Gpu::vendor`] that this row describes; empty for any other.
    pub vendor: &'static str,
    /// Name of a GPU without a product name: `AMD GPU`.
    pub label: &'static str,
    /// Short name of a compute unit: `CU`, `SM`.
    pub unit_name: &'static str,
    /// What one of several devices of a package is called: `GCD`.
    pub part_name: &'static str,
    /// What its copies by copy engine are called: `SDMA copy`.
    pub engine_copy: &'static str,
    /// Terms of journals and models, and what the vendor calls the same in documents and tools.
    pub terms: &'static [(&'static str, &'static str)],
    /// The call that copies between GPUs in programs: `hipMemcpyPeer`.
    pub peer_copy_call: &'static str,
    /// The runtime has a copy kernel (blit) that can be asked for in place of a copy engine (SDMA).
    pub copy_kernel: bool,
    /// Whether UCX and MPIs take managed memory for host memory, since the runtime names no GPU as
    /// its owner.
    pub managed_is_host: bool,
    /// The runtime offers fine-grained device memory and non-coherent pinned host memory.
    pub memory_grains: bool,
    /// The runtime maps device memory for CPU threads, where the GPU has a large BAR.
    pub cpu_mapping: bool,
    /// A copy engine's rate does not follow the width of the link: an SDMA engine of AMD moves about
    /// 50 GB/s however many xGMI links join two GPUs (arXiv:2302.14827, figure 6).
    pub fixed_engine_rate: bool,
    /// Rates still rise beyond 256 MiB a copy, measured on H200s: suites take larger payloads.
    pub large_payloads: bool,
    /// The variable that chooses between copy engine (`1`, the default) and copy kernel (`0`), read
    /// when the runtime starts. HSA runtime, environment variables:
    /// <https://rocm.docs.amd.com/projects/ROCR-Runtime/en/latest/environment_variables.html>
    pub copy_engine_env: Option<&'static str>,
    /// The variable that does the same for copies between GPUs alone. Same source.
    pub peer_engine_env: Option<&'static str>,
    /// The variable that lists the GPUs that a process may use, by number. HIP: "GPU isolation
    /// techniques" of the ROCm documentation; CUDA: "Environment variables" of its programming guide.
    pub visible_env: Option<&'static str>,
    /// The variable, and its value, that makes [`Self::visible_env`] number GPUs by PCI address. Without one
    /// the runtime does so already, or has no such setting.
    pub visible_order_env: Option<(&'static str, &'static str)>,
    /// Variables that count within the GPUs which [`Self::visible_env`] leaves; the first that is not empty is
    /// read. ROCclr, `rocdevice.cpp`.
    pub visible_within_env: &'static [&'static str],
    /// The variable that lets a GPU's touch of a page that it does not hold be a fault that can be
    /// served (`1`), read when the runtime starts. With `0` managed memory of the host is read in
    /// place. The default depends on the GPU and the kernel. Same source.
    pub page_fault_env: Option<&'static str>,
    /// The command that prints state and error counters of links between GPUs.
    pub link_errors: Option<&'static str>,
    /// The commands that print clocks, power and memory errors of a GPU, and that reset it; `{}` is its address on the bus.
    pub care_commands: [Option<&'static str>; 2],
    /// Mark of its driver in the kernel's log.
    pub kernel_log: &'static str,
    /// Fused multiply-adds of one compute unit a cycle in single precision, then in double.
    /// CDNA 2 white paper (AMD), H100 white paper (NVIDIA).
    pub fma_per_cycle: [f64; 2],
    /// Clock at which those run, GHz. Same sources.
    pub clock_ghz: f64,
    /// Suffix of the title of OSU's benchmarks for device memory.
    pub osu_suffix: &'static str,
    /// Name of a copy engine: `SDMA`.
    pub engine_name: &'static str,
    /// The call that moves managed memory ahead of its use.
    pub prefetch_call: &'static str,
    /// Calls that copy: the asynchronous one, then the synchronous ones, H2D and D2H.
    pub copy_calls: [&'static str; 3],
    /// Calls that pin host memory and release it.
    pub pin_calls: [&'static str; 2],
    /// The call that allocates pinned host memory in programs.
    pub host_alloc_call: &'static str,
    /// The library that moves bytes between files and its memory.
    pub direct_library: &'static str,
    /// The library that reads clocks, power and links, where files of the driver do not.
    pub management_library: Option<&'static str>,
}

const AMD: GpuCaps = GpuCaps {
    vendor: "amd",
    label: "AMD GPU",
    unit_name: "CU",
    part_name: "GCD",
    engine_copy: "SDMA copy",
    terms: &[
        ("copy engine", "SDMA engine"),
        ("page migration by faults", "managed, page faults (XNACK=1)"),
        ("page migration by prefetch", "managed, prefetch (hipMemPrefetchAsync)"),
    ],
    peer_copy_call: "hipMemcpyPeer",
    copy_kernel: true,
    managed_is_host: true,
    memory_grains: true,
    cpu_mapping: true,
    fixed_engine_rate: true,
    large_payloads: false,
    copy_engine_env: Some("HSA_ENABLE_SDMA"),
    peer_engine_env: Some("HSA_ENABLE_PEER_SDMA"),
    visible_env: Some("ROCR_VISIBLE_DEVICES"),
    visible_order_env: None,
    visible_within_env: &["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"],
    page_fault_env: Some("HSA_XNACK"),
    link_errors: Some("rocm-smi --showxgmierr"),
    care_commands: [Some("amd-smi metric -g {} -c -p -e"), Some("amd-smi reset -g {} --gpureset")],
    kernel_log: "amdgpu",
    fma_per_cycle: [64.0, 64.0],
    clock_ghz: 1.7,
    osu_suffix: "-ROCM",
    engine_name: "SDMA",
    prefetch_call: "hipMemPrefetchAsync",
    copy_calls: ["hipMemcpyAsync", "hipMemcpyHtoD", "hipMemcpyDtoH"],
    pin_calls: ["hipHostRegister", "hipHostUnregister"],
    host_alloc_call: "hipHostMalloc",
    direct_library: "hipFile",
    management_library: None,
};

const NVIDIA: GpuCaps = GpuCaps {
    vendor: "nvidia",
    label: "NVIDIA GPU",
    unit_name: "SM",
    part_name: "GPU",
    engine_copy: "copy engine",
    terms: &[
        ("page migration by faults", "managed, page faults"),
        ("page migration by prefetch", "managed, prefetch (cudaMemPrefetchAsync)"),
    ],
    peer_copy_call: "cudaMemcpyPeer",
    copy_kernel: false,
    managed_is_host: false,
    memory_grains: false,
    cpu_mapping: false,
    fixed_engine_rate: false,
    large_payloads: true,
    copy_engine_env: None,
    peer_engine_env: None,
    visible_env: Some("CUDA_VISIBLE_DEVICES"),
    visible_order_env: Some(("CUDA_DEVICE_ORDER", "PCI_BUS_ID")),
    visible_within_env: &[],
    page_fault_env: None,
    link_errors: Some("nvidia-smi nvlink -s; nvidia-smi nvlink -e"),
    care_commands: [
        Some("nvidia-smi -i {} -q -d CLOCK,PERFORMANCE,POWER,ECC"),
        Some("nvidia-smi -i {} --gpu-reset"),
    ],
    kernel_log: "Xid",
    fma_per_cycle: [128.0, 64.0],
    clock_ghz: 1.98,
    osu_suffix: "-CUDA",
    engine_name: "copy engine",
    prefetch_call: "cuMemPrefetchAsync",
    copy_calls: ["cuMemcpyAsync", "cuMemcpyHtoD", "cuMemcpyDtoH"],
    pin_calls: ["cuMemHostRegister", "cuMemHostUnregister"],
    host_alloc_call: "cudaHostAlloc",
    direct_library: "cuFile",
    management_library: Some("NVML"),
};

/// A GPU of unknown make: everything may be asked for, and the runtime refuses what it lacks.
const UNKNOWN: GpuCaps = GpuCaps {
    vendor: "",
    label: "GPU",
    unit_name: "CU",
    copy_kernel: true,
    managed_is_host: false,
    memory_grains: true,
    cpu_mapping: true,
    fixed_engine_rate: false,
    large_payloads: false,
    visible_env: None,
    visible_order_env: None,
    visible_within_env: &[],
    link_errors: None,
    care_commands: [None; 2],
    kernel_log: "driver",
    management_library: None,
    ..NVIDIA
};

impl GpuCaps {
    /// `Set HSA_ENABLE_SDMA=0, or HSA_ENABLE_PEER_SDMA=0 to keep SDMA for host copies`: how the runtime copies by its
    /// own kernel; `jobs` says in which processes.
    pub fn set_copy_kernel(&self, jobs: &str) -> Option<String> {
        let set = format!("Set {}=0{jobs}", self.copy_engine_env?);
        Some(match self.peer_engine_env {
            Some(peers) => {
                format!("{set}, or {peers}=0 to keep {} for host copies", self.engine_name)
            }
            None => set,
        })
    }

    /// What stands for the cost of a copy by a kernel that nothing measured.
    pub const UNKNOWN_KERNEL_COST: &'static str =
        "how much they slow is UNDECIDED until suite overlap measures it";

    /// What a copy by a kernel costs, which runs on `gpu`, such as `the sender`: it shares compute units with other
    /// kernels there. `measured` is what those keep of their rate, if a run has that; no constant of a vendor says it.
    pub fn copy_kernel_cost(&self, gpu: &str, measured: Option<&str>) -> String {
        format!(
            "{}s of {gpu}, which kernels there share with the copy: {}",
            self.unit_name,
            measured.unwrap_or(Self::UNKNOWN_KERNEL_COST)
        )
    }

    /// Every vendor that is known by name.
    pub const ALL: [&'static Self; 2] = [&AMD, &NVIDIA];

    /// The row of a vendor; the most general one for a vendor that has none.
    pub fn of_vendor(vendor: &str) -> &'static Self {
        Self::ALL.into_iter().find(|caps| caps.vendor == vendor).unwrap_or(&UNKNOWN)
    }
}

/// Last cache of a target, MiB. NVIDIA: white papers of V100, A100, GA102, AD102, H100, Blackwell and
/// GB202 (full chips). AMD: white papers of CDNA to CDNA 4, and product pages of Radeon RX (Infinity
/// Cache).
const LAST_CACHES: &[(&str, u64)] = &[
    ("sm_70", 6),
    ("sm_75", 6),
    ("sm_80", 40),
    ("sm_86", 6),
    ("sm_89", 96),
    ("sm_90", 60),
    ("sm_100", 126),
    ("sm_103", 126),
    ("sm_120", 128),
    ("gfx906", 4),
    ("gfx908", 8),
    ("gfx90a", 8),
    ("gfx942", 256),
    ("gfx950", 256),
    ("gfx1030", 128),
    ("gfx1100", 96),
    ("gfx1201", 64),
];

impl Gpu {
    /// Capabilities of its runtime.
    pub fn caps(&self) -> &'static GpuCaps {
        GpuCaps::of_vendor(&self.vendor)
    }

    /// The largest cache in front of its memory, of the largest product of its target; 0 if the target is
    /// not in the table. Runtimes state the second level only, and AMD's not the Infinity Cache behind it.
    pub fn last_cache(&self) -> Bytes {
        let known = LAST_CACHES.iter().find(|(arch, _)| *arch == self.arch);
        known.map_or(Bytes(0), |&(_, mib)| Bytes::mib(mib))
    }
}

impl Topology {
    /// Whether some GPU's runtime can do something: `topology.any_gpu(|caps| caps.copy_kernel)`.
    pub fn any_gpu(&self, can: impl Fn(&GpuCaps) -> bool) -> bool {
        self.gpus.iter().any(|gpu| can(gpu.caps()))
    }

    /// The variable of some GPU's runtime, where it has one.
    pub fn gpu_env(&self, pick: impl Fn(&GpuCaps) -> Option<&'static str>) -> Option<&'static str> {
        self.gpus.iter().find_map(|gpu| pick(gpu.caps()))
    }
}

impl Topology {
    /// GPUs by what `kind` calls them, in order of first occurrence: `8 x NVIDIA H200`. GPUs that share
    /// packages are counted by package first: `4 x AMD Instinct MI250X, 8 GCDs`. The second text that it
    /// gives goes to the end.
    pub fn gpus_in_words(&self, kind: impl Fn(&Gpu) -> (String, String)) -> Vec<String> {
        let mut kinds: Vec<((String, String), Vec<&Gpu>)> = Vec::new();
        for gpu in &self.gpus {
            let words = kind(gpu);
            match kinds.iter_mut().find(|(known, _)| *known == words) {
                Some((_, gpus)) => gpus.push(gpu),
                None => kinds.push((words, vec![gpu])),
            }
        }
        let text = |((name, rest), gpus): ((String, String), Vec<&Gpu>)| {
            let packages: Option<BTreeSet<u32>> = gpus.iter().map(|gpu| gpu.package).collect();
            let part = gpus.first().map_or("GPU", |gpu| gpu.caps().part_name);
            match (packages.map(|all| all.len()), gpus.len()) {
                (Some(packages), all) if packages < all => {
                    format!("{packages} x {name}, {all} {part}s{rest}")
                }
                (_, all) => format!("{all} x {name}{rest}"),
            }
        };
        kinds.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_without_a_row_may_be_asked_for_everything() {
        let unknown = GpuCaps::of_vendor("intel");
        assert!(unknown.copy_kernel && unknown.memory_grains);
        assert_eq!((unknown.label, unknown.copy_engine_env), ("GPU", None));
        for caps in GpuCaps::ALL {
            assert_eq!(GpuCaps::of_vendor(caps.vendor), caps);
        }
    }

    #[test]
    fn the_last_cache_follows_from_the_target() {
        let of = |arch: &str| Gpu { arch: arch.to_owned(), ..Gpu::default() }.last_cache();
        assert_eq!((of("gfx942"), of("sm_90")), (Bytes::mib(256), Bytes::mib(60)));
        assert_eq!((of("gfx90a:sramecc+"), of("")), (Bytes(0), Bytes(0)));
        let names: std::collections::BTreeSet<_> = LAST_CACHES.iter().map(|c| c.0).collect();
        assert_eq!(names.len(), LAST_CACHES.len());
    }

    #[test]
    fn a_node_without_gpus_has_no_runtime() {
        let none = Topology::default();
        assert!(!none.any_gpu(|_| true));
        assert_eq!(none.gpu_env(|caps| caps.copy_engine_env), None);
    }
}
