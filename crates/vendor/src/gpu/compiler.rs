//! Kernel text to machine code, with what was compiled once kept on disk.
//!
//! NVRTC runs in this process: a bad option, an unknown target and bad source are clean statuses
//! with a log in every version from 12.0 to 13.5.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use pathline_hal::{CallError, Result};
use pathline_schema::Severity;

use super::table::{Call, Handle, Rtc};

/// What `hal::kernel` expects of a dialect.
const DIALECT: &str = r#"
#define PL_KERNEL(block) __global__ void __launch_bounds__(block)
typedef unsigned int pl_w4;
typedef unsigned long long pl_w8;
typedef uint4 pl_w16;
typedef float pl_f4;
typedef double pl_f8;
typedef double2 pl_f16;
template <class T> static __device__ T pl_load_nt(const T *p) { return __ldcs(p); }
template <class T> static __device__ void pl_store_nt(T *p, T v) { __stcs(p, v); }
#define PL_MIN(address, value) atomicMin(address, value)
"#;

/// First line of a cached file.
const MAGIC: &str = "pathline kernel 1";

/// The compiler, and where its results are kept.
#[derive(Debug)]
pub(crate) struct Compiler {
    api: Rtc,
    version: (i32, i32),
    cache: Option<PathBuf>,
}

impl Compiler {
    pub(crate) fn new(api: Rtc, version: (i32, i32), cache: Option<PathBuf>) -> Self {
        Self { api, version, cache }
    }

    /// Code for `arch` (`sm_90`): machine code, or PTX where this compiler does not know the
    /// target. From the cache if it was compiled before.
    pub(crate) fn code(&self, source: &str, arch: &str) -> Result<Vec<u8>> {
        let text = format!("{DIALECT}{source}");
        let key = format!("NVRTC {}.{} {arch}\n{text}", self.version.0, self.version.1);
        let file = self.cache.as_deref().map(|folder| folder.join(file_name(&key)));
        if let Some(code) = file.as_deref().and_then(|file| read(file, &key)) {
            return Ok(code);
        }
        let code = self.compile(&text, arch)?;
        if let Some(file) = file {
            // A cache that cannot be written costs time at the next start, and nothing else.
            let _ = write(&file, &key, &code);
        }
        Ok(code)
    }

    /// The target to compile for, and whether it is a real one: the highest virtual one that this
    /// compiler knows stands in for a newer GPU.
    fn target(&self, arch: &str) -> Result<(String, bool)> {
        let wanted: i32 = arch.trim_start_matches("sm_").parse().unwrap_or(0);
        let known = self.known();
        if known.is_empty() || known.contains(&wanted) {
            return Ok((format!("sm_{wanted}"), true));
        }
        match known.iter().filter(|&&a| a < wanted).max() {
            Some(older) => Ok((format!("compute_{older}"), false)),
            None => Err(CallError::unsupported(
                "nvrtcCompileProgram",
                arch,
                format!(
                    "NVRTC {}.{} does not know this GPU any more",
                    self.version.0, self.version.1
                ),
            )
            .or_try("use an older NVRTC: pip install nvidia-cuda-nvrtc-cu12, and --nvrtc")),
        }
    }

    fn known(&self) -> Vec<i32> {
        let (Some(count), Some(list)) = (self.api.arch_count, self.api.archs) else {
            return Vec::new();
        };
        let mut number = 0;
        // SAFETY: stores one number.
        let code = unsafe { (count.at)(&raw mut number) };
        let mut archs = vec![0; usize::try_from(number).unwrap_or(0)];
        // SAFETY: stores as many numbers as it has just said.
        if code != 0 || archs.is_empty() || unsafe { (list.at)(archs.as_mut_ptr()) } != 0 {
            return Vec::new();
        }
        archs
    }

    fn compile(&self, text: &str, arch: &str) -> Result<Vec<u8>> {
        let (target, real) = self.target(arch)?;
        let fails = |code: i32, log: &str| {
            let reason = if log.is_empty() { "the compiler gives no reason" } else { log };
            CallError::new(Severity::Unsupported, "nvrtcCompileProgram", target.as_str(), reason)
                .with_code(code.into())
        };
        let no_nul = |s: &str| CString::new(s).map_err(|e| fails(0, &e.to_string()));
        let source = no_nul(text)?;
        let options = [
            format!("--gpu-architecture={target}"),
            "--std=c++17".into(),
            "-default-device".into(),
        ];
        let options = options.iter().map(|o| no_nul(o)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program: Handle = 0;
        let none = std::ptr::null();
        // SAFETY: source and name are C strings that live through the call; no headers are given.
        let code = unsafe {
            (self.api.create.at)(
                &raw mut program,
                source.as_ptr(),
                c"pathline.cu".as_ptr(),
                0,
                none,
                none,
            )
        };
        if code != 0 {
            return Err(fails(code, ""));
        }
        let program = Program { api: &self.api, handle: program };
        // SAFETY: the program exists; the options are C strings that live through the call.
        let code = unsafe {
            (self.api.compile.at)(program.handle, pointers.len() as i32, pointers.as_ptr())
        };
        if code != 0 {
            let log = program.fetch(self.api.log_size, self.api.log).unwrap_or_default();
            return Err(fails(code, String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n'])));
        }
        let code = match (real, self.api.ptx_size, self.api.ptx) {
            (true, ..) => program.fetch(self.api.code_size, self.api.code),
            (false, Some(size), Some(get)) => program.fetch(size, get),
            (false, ..) => None,
        };
        code.filter(|c| !c.is_empty()).ok_or_else(|| fails(0, ""))
    }
}

/// A program that is given back.
struct Program<'a> {
    api: &'a Rtc,
    handle: Handle,
}

impl Program<'_> {
    fn fetch(
        &self,
        size: Call<unsafe extern "C" fn(Handle, *mut usize) -> i32>,
        get: Call<unsafe extern "C" fn(Handle, *mut std::ffi::c_char) -> i32>,
    ) -> Option<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the program exists; one number is stored.
        if unsafe { (size.at)(self.handle, &raw mut length) } != 0 {
            return None;
        }
        let mut bytes = vec![0u8; length];
        // SAFETY: the program exists, and as many bytes are stored as it has just said.
        (unsafe { (get.at)(self.handle, bytes.as_mut_ptr().cast()) } == 0).then_some(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program exists and is not used after this.
        unsafe { (self.api.destroy.at)(&raw mut self.handle) };
    }
}

/// The folder for compiled kernels: below XDG_CACHE_HOME or ~/.cache.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("pathline").join("kernels"))
}

/// A name by content (64-bit FNV-1a). Two keys of one name do no harm: a file holds its whole key.
fn file_name(key: &str) -> String {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}.cubin")
}

fn head(key: &str, length: usize) -> String {
    format!("{MAGIC}\n{} {length}\n{key}\n", key.len())
}

/// The code of a file that was written for this key, if it is whole.
fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let lengths = std::str::from_utf8(bytes.splitn(3, |&b| b == b'\n').nth(1)?).ok()?;
    let length = lengths.split_once(' ')?.1.parse().ok()?;
    let code = bytes.strip_prefix(head(key, length).as_bytes())?;
    (code.len() == length).then(|| code.to_owned())
}

fn write(file: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Other processes see the old file, the new one or none.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, [head(key, code.len()).as_bytes(), code].concat())?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use pathline_hal::kernel;
    use pathline_schema::{Hint, KernelOp, Variant};

    use super::*;

    /// The compiler of this machine, whatever its driver; none if there is none.
    fn compiler(cache: Option<PathBuf>) -> Option<Compiler> {
        let asked = std::env::var_os("PATHLINE_NVRTC").map(PathBuf::from);
        let (api, found) = super::super::search::compiler(asked.as_deref(), i32::MAX);
        if api.is_none() {
            eprintln!("skipped: no NVRTC here; {}", found.way_out);
        }
        api.map(|(api, version)| Compiler::new(api, version, cache))
    }

    #[test]
    fn every_kind_of_kernel_compiles_for_every_target() {
        let Some(compiler) = compiler(None) else { return };
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
        for arch in ["sm_80", "sm_90", "sm_100"] {
            let mine = variants.iter().filter(|v| kernel::unsupported(v, arch).is_none());
            let sources: Vec<_> =
                [kernel::PATTERN.to_owned()].into_iter().chain(mine.map(kernel::source)).collect();
            for source in &sources {
                let code =
                    compiler.code(source, arch).unwrap_or_else(|e| panic!("{arch}: {e}\n{source}"));
                let real = compiler.target(arch).unwrap().1;
                assert_eq!(code.starts_with(b"\x7fELF"), real, "{arch}");
            }
        }
        let error = compiler.code("not a kernel", "sm_90").unwrap_err();
        assert_eq!(error.code, 6, "{error}");
        assert!(error.reason.contains("error"), "{error}");
    }

    #[test]
    fn wide_words_and_hints_reach_the_code() {
        let Some(compiler) = compiler(None) else { return };
        let variant = Variant { hint: Hint::Nt, ..Variant::standard(KernelOp::Copy) };
        for (hint, load, store) in [
            (Hint::Plain, "ld.global.v4.u32", "st.global.v4.u32"),
            (Hint::Nt, "ld.global.cs.v4.u32", "st.global.cs.v4.u32"),
        ] {
            let text = format!("{DIALECT}{}", kernel::source(&Variant { hint, ..variant }));
            let target = Compiler { version: (0, 0), cache: None, ..compiler.copy() };
            let ptx = String::from_utf8(target.ptx(&text)).unwrap();
            // Four words in flight: four loads before the first store, in the tile.
            let count = |what: &str| ptx.matches(what).count();
            assert!(count(load) >= 4 && count(store) >= 4, "{hint:?}: {ptx}");
        }
    }

    impl Compiler {
        fn copy(&self) -> Self {
            Self { api: self.api, version: self.version, cache: None }
        }
        /// PTX of a text for compute_90.
        fn ptx(&self, text: &str) -> Vec<u8> {
            // A target that no compiler knows is served in PTX of the newest that it knows.
            self.compile(text, "sm_9999").unwrap()
        }
    }

    #[test]
    fn the_cache_gives_back_what_was_stored_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep").join(file_name("key"));
        assert_eq!(read(&file, "key"), None);
        write(&file, "key", b"code\nof bytes").unwrap();
        assert_eq!(read(&file, "key").as_deref(), Some(&b"code\nof bytes"[..]));
        assert_eq!(read(&file, "another key"), None);
        let whole = std::fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(read(&file, "key"), None, "cut at {cut}");
        }
        assert_ne!(file_name("a"), file_name("b"));
    }
}
