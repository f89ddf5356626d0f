//! The parts of the environment that change what libraries do.

use std::collections::BTreeMap;

/// First parts of the names of variables that GPU runtimes, MPI, UCX, collective libraries and the
/// C library read.
const PREFIXES: &[&str] = &[
    "HSA_",
    "HIP_",
    "ROCR_",
    "GPU_",
    "AMD_",
    "CUDA_",
    "NCCL_",
    "RCCL_",
    "UCX_",
    "MPICH_",
    "OMPI_",
    "FI_",
    "OMP_",
    "GOMP_",
    "GLIBC_TUNABLES",
    "SLURM_CPU",
    "SLURM_GPU",
    "SLURM_MEM",
    "PATHLINE_CUDA",
    "PATHLINE_HIP",
    "PATHLINE_NVRTC",
];

/// Variables that name libraries, and the options that say the same.
pub const LIBRARY_VARIABLES: &[(&str, &str)] =
    &[("PATHLINE_CUDA", "cuda"), ("PATHLINE_HIP", "hip"), ("PATHLINE_NVRTC", "nvrtc")];

/// Variables that are set and change what libraries do, by name.
pub fn switches() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}

/// The name of this host; `unknown` if it has none.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
