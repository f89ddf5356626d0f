//! Finds the built library and installs it under the names of the vendors' libraries.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A set of libraries as a driver and toolkit of one version install them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubLibraries {
    /// `libcuda.so.1`, and `libnvrtc.so.13` with empty builtins.
    Cuda,
    /// The HIP runtime of a major version: in 5 and 6 the runtime's library has the compiler's
    /// functions, from 6 on there is a separate one.
    Hip(u32),
    /// `libnccl.so.2`, with NCCL's spelling of functions.
    Nccl,
    /// `librccl.so.1`, with RCCL's spelling of functions.
    Rccl,
    /// `libnvidia-ml.so.1`.
    Nvml,
    /// libibverbs.
    Verbs,
    /// cuFile, on the CUDA library in the same folder.
    CuFile,
    /// hipFile, on the HIP library in the same folder.
    HipFile,
    /// HIP by calls of CUDA (an example of `crates/machine/gpu`, which cargo builds before the tests of
    /// that crate) under the name of HIP 6, on the CUDA that the process finds.
    HipOverCuda,
}

impl StubLibraries {
    /// File names, each with the prefixes of its functions.
    fn files(self) -> Vec<(String, &'static [&'static str])> {
        match self {
            Self::Cuda => vec![
                ("libcuda.so.1".to_owned(), &["cu"]),
                ("libnvrtc.so.13".to_owned(), &["nvrtc"]),
                ("libnvrtc-builtins.so.13.0".to_owned(), &[]),
            ],
            Self::Nccl => vec![("libnccl.so.2".to_owned(), &["nccl"])],
            Self::Rccl => vec![("librccl.so.1".to_owned(), &["nccl"])],
            Self::Nvml => vec![("libnvidia-ml.so.1".to_owned(), &["nvml"])],
            Self::Verbs => vec![("libibverbs.so.1".to_owned(), &["ibv_"])],
            Self::CuFile => vec![("libcufile.so.0".to_owned(), &[CUFILE])],
            Self::HipFile => vec![("libhipfile.so.0".to_owned(), &[HIPFILE])],
            Self::HipOverCuda => vec![("libamdhip64.so.6".to_owned(), &["hip"])],
            Self::Hip(5) => vec![("libamdhip64.so.5".to_owned(), &["hip"])],
            Self::Hip(6) => vec![
                ("libamdhip64.so.6".to_owned(), &["hip"]),
                ("libhiprtc.so.6".to_owned(), &["hiprtc"]),
            ],
            Self::Hip(major) => vec![
                (format!("libamdhip64.so.{major}"), &["hip"]),
                (format!("libhiprtc.so.{major}"), &["hiprtc"]),
            ],
        }
    }

    /// Whether a library of this set exports a function.
    fn has(self, prefixes: &[&str], name: &str) -> bool {
        if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            return false;
        }
        // Functions of the runtimes begin with the same letters.
        let of_files = [CUFILE, HIPFILE].iter().any(|file| name.starts_with(file));
        if of_files != matches!(self, Self::CuFile | Self::HipFile) {
            return false;
        }
        let newer = [
            "hipMemcpyBatchAsync",
            "hipMemAdvise_v2",
            "hipMemPrefetchAsync_v2",
            "hipMemGetHandleForAddressRange",
        ];
        match self {
            Self::Cuda
            | Self::Nvml
            | Self::HipOverCuda
            | Self::Verbs
            | Self::CuFile
            | Self::HipFile => true,
            Self::Nccl => name != "ncclAllToAll",
            Self::Rccl => name != "ncclAlltoAll",
            Self::Hip(5) => !newer.contains(&name) && !name.contains("PropertiesR0"),
            Self::Hip(6) => !newer.contains(&name),
            // The compiler's functions moved out of the runtime's library.
            Self::Hip(_) => prefixes == ["hiprtc"] || !name.starts_with("hiprtc"),
        }
    }
}

/// Prefix of the functions of cuFile.
const CUFILE: &str = "cuFile";
const HIPFILE: &str = "hipFile";

/// Prefix of symbols that every library keeps.
const KEPT: &str = "pathline_stub";

/// Installs the libraries of some vendors in a folder, without the functions in `missing`. If
/// programs search libraries by `LD_LIBRARY_PATH`, it must name this folder.
///
/// # Errors
/// The built library is not found, or the folder cannot be written.
pub fn lay_out(folder: &Path, vendors: &[StubLibraries], missing: &[&str]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for vendor in vendors {
        let library = match vendor {
            StubLibraries::HipOverCuda => "hip_over_cuda",
            _ => "pathline_stub",
        };
        let image = fs::read(built(library)?)?;
        for (file, prefixes) in vendor.files() {
            let mut image = image.clone();
            hide(&mut image, |name| {
                !name.starts_with(KEPT) && (!vendor.has(prefixes, name) || missing.contains(&name))
            });
            fs::write(folder.join(file), image)?;
        }
    }
    Ok(())
}

/// A `cdylib` of this workspace that cargo built for the running test: a dev-dependency, or an
/// example.
///
/// # Errors
/// It is not in the test's folder.
pub fn built(name: &str) -> io::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let file = format!("lib{name}.so");
    let folders = test.ancestors().skip(1).take(2);
    // Of a program that is no test, cargo leaves the libraries of its dependencies in `deps`.
    let mut places =
        folders.flat_map(|f| ["", "examples", "deps"].map(|inner| f.join(inner).join(&file)));
    places.find(|f| f.is_file()).ok_or_else(|| {
        let way_out = "`cargo test` of the whole crate builds it, `cargo build --examples` as well";
        io::Error::new(io::ErrorKind::NotFound, format!("{file} is not built; {way_out}"))
    })
}

/// Renames exported functions of a shared object, so that lookups fail. Layout: System V ABI,
/// chapter 4 (sections) and 5 (the dynamic symbol table); little-endian ELF64.
fn hide(image: &mut [u8], hidden: impl Fn(&str) -> bool) {
    let number = |image: &[u8], at: usize, length: usize| {
        let bytes = image.get(at..at + length).unwrap_or_default();
        bytes.iter().rev().fold(0usize, |n, &byte| n << 8 | usize::from(byte))
    };
    let section = |image: &[u8], nth: usize| number(image, 40, 8) + nth * number(image, 58, 2);
    const DYNAMIC_SYMBOLS: usize = 11;
    let all = 0..number(image, 60, 2);
    let Some(table) =
        all.map(|nth| section(image, nth)).find(|&at| number(image, at + 4, 4) == DYNAMIC_SYMBOLS)
    else {
        return;
    };
    let names = number(image, section(image, number(image, table + 40, 4)) + 24, 8);
    let (start, size) = (number(image, table + 24, 8), number(image, table + 32, 8));
    for symbol in (start..start + size).step_by(24) {
        let defined = number(image, symbol + 6, 2) != 0;
        let at = names + number(image, symbol, 4);
        let text = image.get(at..).and_then(|rest| rest.split(|&byte| byte == 0).next());
        let name = text.and_then(|text| std::str::from_utf8(text).ok());
        if defined && name.is_some_and(|name| !name.is_empty() && hidden(name)) {
            image[at] = b'!';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions that a file exports.
    fn exported(file: &Path) -> Vec<String> {
        let mut image = fs::read(file).unwrap();
        let names = std::cell::RefCell::new(Vec::new());
        hide(&mut image, |name| {
            names.borrow_mut().push(name.to_owned());
            false
        });
        names.into_inner()
    }

    #[test]
    fn each_library_exports_what_its_version_does() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            StubLibraries::Cuda,
            StubLibraries::Hip(5),
            StubLibraries::Hip(6),
            StubLibraries::Hip(7),
            StubLibraries::Nccl,
            StubLibraries::Rccl,
            StubLibraries::CuFile,
            StubLibraries::HipFile,
            StubLibraries::Nvml,
        ];
        lay_out(folder.path(), &all, &["cuFuncLoad"]).unwrap();
        let of = |name: &str| exported(&folder.path().join(name));
        let has = |file: &str, name: &str| of(file).iter().any(|n| n == name);
        for file in ["libcuda.so.1", "libnvrtc.so.13", "libamdhip64.so.5", "libhiprtc.so.7"] {
            assert!(has(file, KEPT), "{file}");
        }
        assert!(has("libcuda.so.1", "cuGetProcAddress_v2") && !has("libcuda.so.1", "hipMalloc"));
        assert!(!has("libcuda.so.1", "nvrtcVersion") && !has("libcuda.so.1", "cuFuncLoad"));
        // Each library has a different spelling.
        assert!(has("libnccl.so.2", "ncclAlltoAll") && !has("libnccl.so.2", "ncclAllToAll"));
        assert!(has("librccl.so.1", "ncclAllToAll") && !has("librccl.so.1", "ncclAlltoAll"));
        assert!(has("librccl.so.1", "ncclSend") && !has("librccl.so.1", "hipMalloc"));
        assert!(has("libcufile.so.0", "cuFileRead") && !has("libcufile.so.0", "cuInit"));
        assert!(has("libhipfile.so.0", "hipFileRead") && !has("libhipfile.so.0", "hipInit"));
        let fields = "nvmlDeviceGetFieldValues";
        assert!(has("libnvidia-ml.so.1", fields) && !has("libnvidia-ml.so.1", "cuInit"));
        assert!(!has("libcuda.so.1", fields));
        assert!(!has("libcuda.so.1", "cuFileRead") && !has("libamdhip64.so.6", "hipFileRead"));
        for (file, compiles, newer) in [
            ("libamdhip64.so.5", true, false),
            ("libamdhip64.so.6", true, true),
            ("libamdhip64.so.7", false, true),
        ] {
            assert!(has(file, "hipGetDeviceProperties"), "{file}");
            assert_eq!(has(file, "hiprtcCompileProgram"), compiles, "{file}");
            assert_eq!(has(file, "hipGetDevicePropertiesR0600"), newer, "{file}");
        }
    }
}
