//! Settings and hooks that a build of UCX lacks, from the library's own table and files.

use std::ffi::c_int;
use std::path::Path;

use pathline_dylib::{SharedLibrary, announce_in};

use super::engine_label;
use super::search::UCS;

/// A variable that this build of UCX does not have, or accepts without code that reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InertSetting {
    /// The variable.
    pub(super) name: &'static str,
    /// Why it has no effect.
    pub(super) why: &'static str,
}

/// Copies past the caches between processes of a host.
const NT_TRANSFER: &str = "UCX_NT_BUFFER_TRANSFER_MIN";
/// The function that makes those copies. Its source is compiled only where the compiler may use AVX
/// (`#ifdef __AVX__`, src/ucs/arch/x86_64/cpu.c of UCX 1.18 to 1.22).
const NT_FUNCTION: &str = "ucs_x86_nt_buffer_transfer";

/// `UCS_CONFIG_PRINT_CONFIG`: names and values.
const VALUES: c_int = 1;

/// `ucs_global_opts_print`, the same from 1.13 to 1.22.
type PrintFn = unsafe extern "C" fn(*mut libc::FILE, c_int);

/// The global variables of libucs, as it prints them: `UCX_NAME=value` a line. None if it cannot.
fn global_variables(ucs: &SharedLibrary) -> Option<String> {
    let at = ucs.symbol("ucs_global_opts_print")?;
    // SAFETY: the symbol is this function in every release since 1.13.
    let print = unsafe { std::mem::transmute::<*mut std::ffi::c_void, PrintFn>(at.as_ptr()) };
    announce_in(&ucs.path, "ucs_global_opts_print");
    // SAFETY: the stream is open; the library's options were read when it was loaded.
    engine_label::printed(|stream| unsafe { print(stream, VALUES) })
}

/// Variables without effect in the libucs of this process; none if it is not loaded or prints no
/// table.
pub(super) fn inert_settings() -> Vec<InertSetting> {
    let Some(ucs) = SharedLibrary::loaded(UCS) else { return Vec::new() };
    let Some(table) = global_variables(&ucs) else { return Vec::new() };
    inert_of(&table, ucs.symbol(NT_FUNCTION).is_some())
}

/// The same from its table and from whether it exports the function.
fn inert_of(table: &str, has_function: bool) -> Vec<InertSetting> {
    let assigned = format!("{NT_TRANSFER}=");
    let known = table.lines().any(|line| line.trim_start().starts_with(&assigned));
    let why = match (known, has_function) {
        (true, true) => return Vec::new(),
        (true, false) => {
            "this build accepts it and has no code for it: it was compiled without AVX \
             (configure with --enable-optimizations)"
        }
        (false, _) => "this build does not have it: UCX 1.18 and later do",
    };
    vec![InertSetting { name: NT_TRANSFER, why }]
}

/// A module that watches allocations of one GPU runtime.
struct HookModule {
    stem: &'static str,
    runtime: &'static str,
}

const HOOK_MODULES: [HookModule; 2] = [
    HookModule { stem: "libucm_rocm.so", runtime: "ROCm" },
    HookModule { stem: "libucm_cuda.so", runtime: "CUDA" },
];

/// Which allocations of GPU runtimes a build watches, by the modules in its folder `ucx`.
fn hooks(modules: &[String]) -> String {
    let has = |hook: &HookModule| modules.iter().any(|name| name.starts_with(hook.stem));
    let (with, without): (Vec<&HookModule>, Vec<&HookModule>) =
        HOOK_MODULES.iter().partition(|hook| has(hook));
    let names = |hooks: &[&HookModule]| {
        hooks.iter().map(|hook| hook.runtime).collect::<Vec<_>>().join(" and ")
    };
    let mut text = "memory hooks: mmap, malloc".to_owned();
    if !with.is_empty() {
        text += &format!(", allocations of {}", names(&with));
    }
    if !without.is_empty() {
        text += &format!(
            "; none for {}: UCX does not see such memory being freed, so a cached memory type may \
             be wrong where an address is used again (UCX_MEMTYPE_CACHE=n looks each time)",
            names(&without)
        );
    }
    text
}

/// What `pathline doctor` prints about the UCX of this process, a line each.
pub(super) fn notes() -> Vec<String> {
    let inert = inert_settings().into_iter().map(|s| format!("{}: {}", s.name, s.why));
    let mut notes: Vec<String> = inert.collect();
    let folder = SharedLibrary::loaded(UCS).and_then(|ucs| Some(ucs.path.parent()?.join("ucx")));
    notes.extend(folder.map(|folder| hooks(&files(&folder))));
    notes
}

/// Names of the files of a folder; none if it cannot be read.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_inert_without_its_name_or_its_code() {
        let table = "UCX_LOG_LEVEL=warn\nUCX_NT_BUFFER_TRANSFER_MIN=auto\n";
        assert_eq!(inert_of(table, true), []);
        let why = |table, code| inert_of(table, code).pop().map(|s| s.why).unwrap_or_default();
        assert!(why(table, false).contains("without AVX"));
        assert!(why("UCX_LOG_LEVEL=warn\n", false).contains("does not have it"));
        // A longer name is another variable.
        assert!(why("UCX_NT_BUFFER_TRANSFER_MINIMUM=1\n", true).contains("does not have it"));
    }

    #[test]
    fn hooks_follow_from_the_modules() {
        let of = |names: &[&str]| hooks(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        let both = of(&["libucm_rocm.so.0", "libucm_cuda.so.0.0.0", "libuct_ib.so"]);
        assert_eq!(both, "memory hooks: mmap, malloc, allocations of ROCm and CUDA");
        let one = of(&["libucm_cuda.so"]);
        assert!(one.contains("allocations of CUDA; none for ROCm"), "{one}");
        assert!(of(&["libuct_cma.so.0"]).contains("none for ROCm and CUDA"));
    }

    /// The library that tests name is 1.13.1 or 1.20.1, both compiled without AVX.
    #[test]
    fn a_packaged_build_has_no_copies_past_the_caches() {
        let Some(folder) = std::env::var_os("PATHLINE_TEST_UCX") else { return };
        let report = super::super::library(Some(Path::new(&folder)));
        assert!(report.path.is_some(), "{report:?}");
        let inert = inert_settings();
        assert_eq!(inert.iter().map(|s| s.name).collect::<Vec<_>>(), [NT_TRANSFER]);
        assert!(report.notes.iter().any(|note| note.starts_with("memory hooks: ")), "{report:?}");
    }
}
