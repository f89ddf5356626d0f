//! Kernel text to machine code.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathline_hal::{CallError, Result};

use super::cache;
use super::child::{DEADLINE, Request, Worker};
use super::dialect::Family;
use super::rtc::Bound;

/// What `hal::kernel` expects of a dialect, for both languages: a text of HIP's may be compiled by
/// NVRTC, where a library carries HIP over CUDA.
const DIALECT: &str = r#"
#define PL_KERNEL(block) __global__ void __launch_bounds__(block)
typedef unsigned int pl_w4;
typedef unsigned long long pl_w8;
typedef float pl_f4;
typedef double pl_f8;
#if defined(__HIP__) || defined(__HIPCC_RTC__)
typedef unsigned int pl_w16 __attribute__((ext_vector_type(4)));
typedef double pl_f16 __attribute__((ext_vector_type(2)));
template <class T> static __device__ T pl_load_nt(const T *p) { return __builtin_nontemporal_load(p); }
template <class T> static __device__ void pl_store_nt(T *p, T v) { __builtin_nontemporal_store(v, p); }
#else
typedef uint4 pl_w16;
typedef double2 pl_f16;
template <class T> static __device__ T pl_load_nt(const T *p) { return __ldcs(p); }
template <class T> static __device__ void pl_store_nt(T *p, T v) { __stcs(p, v); }
#endif
#define PL_MIN(address, value) atomicMin(address, value)
"#;

/// Where kernels are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compile {
    /// In this process: an abort of the compiler is its end.
    InProcess,
    /// In a process of this program, which serves [`super::serve_compilations`] when its argument is
    /// [`super::COMPILE_COMMAND`].
    Child(PathBuf),
}

/// The compiler, and where its results are kept.
#[derive(Debug)]
pub(crate) struct Compiler {
    bound: Bound,
    family: Family,
    /// Its name and version, which cached code is told apart by.
    label: String,
    cache: Option<PathBuf>,
    compile: Compile,
    worker: RefCell<Option<Worker>>,
    /// By target and text: a node's GPUs are alike, and the folder may not be there.
    compiled: RefCell<BTreeMap<(String, String), Vec<u8>>>,
    deadline: Duration,
}

impl Compiler {
    pub(crate) fn new(
        family: Family,
        bound: Bound,
        label: String,
        cache: Option<PathBuf>,
        compile: Compile,
    ) -> Self {
        let (worker, compiled) = (RefCell::default(), RefCell::default());
        Self { bound, family, label, cache, compile, worker, compiled, deadline: DEADLINE }
    }

    /// Code for a target: machine code, or PTX where this compiler does not know the target. Of one
    /// text it is made once, by this process or by one before it.
    pub(crate) fn code(&self, source: &str, target: &str) -> Result<Vec<u8>> {
        let known = (target.to_owned(), source.to_owned());
        if let Some(code) = self.compiled.borrow().get(&known) {
            return Ok(code.clone());
        }
        let code = self.kept_or_made(source, target)?;
        self.compiled.borrow_mut().insert(known, code.clone());
        Ok(code)
    }

    fn kept_or_made(&self, source: &str, target: &str) -> Result<Vec<u8>> {
        let text = format!("{DIALECT}{source}");
        let key = format!("{} {target}\n{text}", self.label);
        let file = self.cache.as_deref().map(|folder| folder.join(cache::file_name(&key)));
        if let Some(code) = file.as_deref().and_then(|file| cache::read(file, &key)) {
            return Ok(code);
        }
        let code = self.compile(&text, target)?;
        if let Some(file) = file {
            // A cache that cannot be written costs time at the next start, and nothing else.
            let _ = cache::write(&file, &key, &code);
        }
        Ok(code)
    }

    fn compile(&self, text: &str, target: &str) -> Result<Vec<u8>> {
        if self.family == Family::Hip {
            // Its failure would be a failed compilation with an empty log.
            writable(&std::env::temp_dir()).map_err(|why| {
                CallError::unsupported("hiprtcCompileProgram", target, why)
                    .or_try("set TMPDIR to a folder that can be written")
            })?;
        }
        match &self.compile {
            Compile::InProcess => self.bound.compile(text, target),
            Compile::Child(program) => self.in_child(program, text, target),
        }
    }

    fn in_child(&self, program: &Path, text: &str, target: &str) -> Result<Vec<u8>> {
        let lost = |reason: String| {
            let thing = format!("a kernel for {target}");
            CallError::unsupported("the compiling process", thing, reason).or_try(
                "`pathline doctor` shows the compiler and the targets that it knows; another version of it may do",
            )
        };
        let mut worker = self.worker.borrow_mut();
        let mut alive = match worker.take() {
            Some(alive) => alive,
            None => Worker::start(program).map_err(|e| lost(format!("it does not start: {e}")))?,
        };
        let request = Request { family: self.family, library: &self.bound.path, target, text };
        let outcome = alive.compile(request, self.deadline).map_err(lost)?;
        // Only one that has answered is asked again.
        *worker = Some(alive);
        outcome
    }
}

/// Why a folder cannot be written.
pub(crate) fn writable(folder: &Path) -> std::result::Result<(), String> {
    let file = folder.join(format!(".pathline-{}", std::process::id()));
    let written = std::fs::write(&file, "").and_then(|()| std::fs::remove_file(&file));
    written.map_err(|error| format!("{} cannot be written: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use pathline_hal::kernel;
    use pathline_schema::{Hint, KernelOp, Variant};

    use super::*;
    use crate::gpu::search;

    /// A compiler of this machine, whatever its driver; none if there is none. `PATHLINE_NVRTC` and
    /// `PATHLINE_HIP` say where to look, and `PATHLINE_PROGRAM` which program compiles in a process of
    /// its own.
    fn compiler(family: Family) -> Option<Compiler> {
        let asked = |name| std::env::var_os(name).map(PathBuf::from);
        let (bound, found) = match family {
            Family::Cuda => {
                let nvrtc = asked("PATHLINE_NVRTC");
                search::compiler(family, nvrtc.as_deref(), None, 0)
            }
            Family::Hip => {
                let (driver, found) = search::driver(family, asked("PATHLINE_HIP").as_deref());
                let release = driver.map_or(0, |d| d.major);
                search::compiler(family, None, found.path.as_deref(), release)
            }
        };
        if bound.is_none() {
            eprintln!("skipped: no {}; {}", found.what, found.way_out);
        }
        let compile = asked("PATHLINE_PROGRAM").map_or(Compile::InProcess, Compile::Child);
        Some(Compiler::new(family, bound?, found.version, None, compile))
    }

    fn variants() -> Vec<Variant> {
        let mut variants = vec![Variant::chase(), Variant::compute()];
        for op in [KernelOp::Read, KernelOp::Write, KernelOp::Copy, KernelOp::Triad] {
            for shape in
                ["w16-u4", "w16-u8-nt", "w8-u1-nt", "w4-u2-na-seg", "w8-u8-na", "w16-u8-na"]
            {
                variants.push(format!("{op}-{shape}-b256-g2sm").parse().unwrap());
            }
        }
        for op in [KernelOp::Read, KernelOp::Write, KernelOp::Copy] {
            for shape in ["bulk16k-s8", "bulk4k-s1-nt-seg", "bulk1k-s64"] {
                variants.push(format!("{op}-{shape}-b64-g1sm").parse().unwrap());
            }
        }
        variants
    }

    /// All texts that a target can have.
    fn sources(target: &str) -> Vec<String> {
        let mine = variants().into_iter().filter(|v| kernel::unsupported(v, target).is_none());
        [kernel::PATTERN.to_owned()].into_iter().chain(mine.map(|v| kernel::source(&v))).collect()
    }

    #[test]
    fn every_kind_of_kernel_compiles_for_nvidia() {
        let Some(compiler) = compiler(Family::Cuda) else { return };
        for arch in ["sm_80", "sm_90", "sm_100"] {
            for source in &sources(arch) {
                let code =
                    compiler.code(source, arch).unwrap_or_else(|e| panic!("{arch}: {e}\n{source}"));
                let real = compiler.bound.stand_in(arch).unwrap().1;
                assert_eq!(code.starts_with(b"\x7fELF"), real, "{arch}");
            }
        }
        let error = compiler.code("not a kernel", "sm_90").unwrap_err();
        assert_eq!(error.code, 6, "{error}");
        assert!(error.reason.contains("error"), "{error}");
    }

    #[test]
    fn every_kind_of_kernel_compiles_for_amd() {
        let Some(compiler) = compiler(Family::Hip) else { return };
        for source in &sources("gfx90a") {
            let code = compiler
                .code(source, "gfx90a:sramecc+:xnack-")
                .unwrap_or_else(|e| panic!("{e}\n{source}"));
            // A bundle of code objects, or one of them alone.
            assert!(
                code.starts_with(b"\x7fELF") || code.starts_with(b"__CLANG_OFFLOAD_BUNDLE__"),
                "{:?}",
                code.get(..24)
            );
        }
        let error = compiler.code("not a kernel", "gfx90a").unwrap_err();
        assert_eq!(error.code, 6, "{error}");
        // An architecture that there never was ends the process where nobody asks first.
        let error = compiler.code("", "gfx1").unwrap_err();
        assert!(error.reason.contains("does not know gfx1"), "{error}");
        assert!(compiler.code("", "").unwrap_err().reason.contains("does not say"));
    }

    #[test]
    fn wide_words_and_hints_reach_the_code() {
        let Some(compiler) = compiler(Family::Cuda) else { return };
        let variant = Variant { hint: Hint::Nt, ..Variant::standard(KernelOp::Copy) };
        for (hint, load, store) in [
            (Hint::Plain, "ld.global.v4.", "st.global.v4."),
            (Hint::Nt, "ld.global.cs.v4.", "st.global.cs.v4."),
        ] {
            let source = kernel::source(&Variant { hint, ..variant });
            // A target that no compiler knows is served in PTX of the newest that it knows.
            let ptx = String::from_utf8(compiler.code(&source, "sm_9999").unwrap()).unwrap();
            // Words of 32 bits are u32 or b32 by version. Four in flight: four loads before the first store, in the tile.
            let count = |what: &str| ptx.matches(what).count();
            assert!(count(load) >= 4 && count(store) >= 4, "{hint:?}: {ptx}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        writable(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let why = writable(&folder.path().join("none")).unwrap_err();
        assert!(why.contains("none cannot be written: No such file"), "{why}");
    }
}
