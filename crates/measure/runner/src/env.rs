//! The parts of the environment that change what libraries do.

use std::collections::BTreeMap;

use pathline_gpu::{RuntimeFamily, library_options};
use pathline_schema::mask_urls;

/// First parts of the names of variables that MPI, UCX, launchers and the C library read. Those of a GPU
/// runtime are in its description.
const PREFIXES: &[&str] = &[
    "UCX_",
    "MPICH_",
    "MPIR_CVAR_",
    "MPIR_PARAM_",
    "I_MPI_",
    "OMPI_",
    "FI_",
    "OMP_",
    "GOMP_",
    "GLIBC_TUNABLES",
    "SLURM_CPU",
    "SLURM_GPU",
    "SLURM_MEM",
];

/// Whether a library reads a variable, by its name.
fn is_read(name: &str) -> bool {
    let of_runtimes = RuntimeFamily::ALL.into_iter().flat_map(|f| f.description().variables);
    let of_options = library_options().map(|option| &option.variable);
    PREFIXES.iter().chain(of_runtimes).chain(of_options).any(|prefix| name.starts_with(prefix))
}

/// Variables that are set and change what libraries do, by name, without secrets of URLs.
pub fn switches() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| is_read(name))
        .map(|(name, value)| (name, mask_urls(&value.to_string_lossy()).into_owned()))
        .collect()
}

/// The name of this host; `unknown` if it has none.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_runtimes_and_of_options_are_recorded() {
        let read = ["HSA_XNACK", "CUDA_VISIBLE_DEVICES", "RCCL_X", "MPIR_CVAR_X", "PATHLINE_NVRTC"];
        assert!(read.into_iter().all(is_read));
        assert!(!is_read("HOME") && !is_read("PATHLINE_STUB"));
    }
}
