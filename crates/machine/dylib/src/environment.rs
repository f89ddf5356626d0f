//! Paths that environment variables hold. Relative ones are ignored: they would depend on the working
//! directory of the process.

use std::path::PathBuf;

/// Absolute folders of a list in the format of `LD_LIBRARY_PATH` and `PATH`, in order; empty if the
/// variable is not set.
pub fn path_list(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable)
        .map(|list| std::env::split_paths(&list).filter(|p| p.is_absolute()).collect())
        .unwrap_or_default()
}

/// An absolute path that a variable holds. `None` if it is not set or not absolute.
pub fn environment_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute())
}
