//! The run-time compilers in this process.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;

use super::family::RuntimeFamily;
use super::function_table::{BoundCall, Rtc, RuntimeHandle};
use super::search;
use pathline_dylib::{SharedLibrary, announce_in};

/// A compiler that is bound.
#[derive(Debug, Clone)]
pub(crate) struct BoundCompiler {
    family: RuntimeFamily,
    api: Rtc,
    /// What it says of itself. hipRTC says 9.0 in every version from 5.2 to 7.2.
    pub(crate) version: (i32, i32),
    /// The file of its library.
    pub(crate) path: PathBuf,
    /// Whether it only stands in for the real one, and has no code generator.
    stands_in: bool,
}

impl BoundCompiler {
    /// Binds the functions of an open library.
    pub(crate) fn new(
        family: RuntimeFamily,
        library: SharedLibrary,
    ) -> std::result::Result<Self, String> {
        let api = Rtc::bind(&|symbol| {
            let name = match family {
                RuntimeFamily::Cuda => symbol.nvidia.0,
                RuntimeFamily::Hip => symbol.amd,
            };
            (name, library.named(name))
        })?;
        let (mut major, mut minor) = (0, 0);
        announce_in(&library.path, api.version.name);
        // SAFETY: stores two numbers.
        let code = unsafe { (api.version.at)(&raw mut major, &raw mut minor) };
        if code != 0 {
            return Err(format!("{} returns {code}", api.version.name));
        }
        if family == RuntimeFamily::Cuda {
            search::keep_builtins(&library.path);
        }
        let stands_in = library.symbol(search::STAND_IN).is_some();
        Ok(Self { family, api, version: (major, minor), path: library.path, stands_in })
    }

    /// Opens a library and binds its functions.
    pub(crate) fn open(family: RuntimeFamily, path: &Path) -> std::result::Result<Self, String> {
        Self::new(family, SharedLibrary::open(path)?)
    }

    /// Code of a text for a target: machine code, or PTX where NVRTC does not know the target yet.
    pub(crate) fn compile(&self, text: &str, target: &str) -> CallResult<Vec<u8>> {
        match self.family {
            RuntimeFamily::Cuda => {
                let (arch, real) = self.stand_in(target)?;
                let options = [
                    format!("--gpu-architecture={arch}"),
                    "--std=c++17".into(),
                    "-default-device".into(),
                ];
                self.build(text, &arch, &options, real)
            }
            RuntimeFamily::Hip => {
                self.known_to_comgr(target)?;
                let options =
                    [format!("--offload-arch={target}"), "--std=c++17".into(), "-O3".into()];
                self.build(text, target, &options, true)
            }
        }
    }

    /// The target to compile for, and whether it is a real one: the highest virtual one that this
    /// NVRTC knows stands in for a newer GPU.
    pub(crate) fn stand_in(&self, target: &str) -> CallResult<(String, bool)> {
        let wanted: i32 = target.trim_start_matches("sm_").parse().unwrap_or(0);
        let known = self.architectures();
        if known.is_empty() || known.contains(&wanted) {
            return Ok((format!("sm_{wanted}"), true));
        }
        match known.iter().filter(|&&a| a < wanted).max() {
            Some(older) => Ok((format!("compute_{older}"), false)),
            None => {
                let (major, minor) = self.version;
                let reason = format!("NVRTC {major}.{minor} does not know this GPU any more");
                Err(CallError::unsupported(self.api.compile.name, target, reason)
                    .or_try("use an older NVRTC: pip install nvidia-cuda-nvrtc-cu12, and --nvrtc"))
            }
        }
    }

    fn architectures(&self) -> Vec<i32> {
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

    /// Refuses a target that the code generator does not know: before ROCm 7 it ends the process.
    fn known_to_comgr(&self, target: &str) -> CallResult<()> {
        let refuse = |reason: String, way_out: &str| {
            Err(CallError::unsupported(self.api.compile.name, target, reason).or_try(way_out))
        };
        if target.is_empty() {
            return refuse("the runtime does not say what to compile for".into(), "update ROCm");
        }
        if self.stands_in {
            return Ok(());
        }
        let known = search::comgr(self.path.parent()).0;
        let wanted = target.split(':').next().unwrap_or_default();
        if known.is_empty() || known.iter().any(|isa| isa == wanted) {
            return Ok(());
        }
        refuse(
            format!("libamd_comgr of this ROCm does not know {wanted}"),
            "use a ROCm that supports this GPU; `pathline doctor` shows what is known",
        )
    }

    fn build(
        &self,
        text: &str,
        target: &str,
        options: &[String],
        real: bool,
    ) -> CallResult<Vec<u8>> {
        let fails = |code: i32, log: &str| {
            let reason = if log.is_empty() { "the compiler gives no reason" } else { log };
            CallError::new(Severity::Unsupported, self.api.compile.name, target, reason)
                .with_code(code.into())
        };
        let no_nul = |s: &str| CString::new(s).map_err(|e| fails(0, &e.to_string()));
        let source = no_nul(text)?;
        let options = options.iter().map(|o| no_nul(o)).collect::<CallResult<Vec<_>>>()?;
        let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program: RuntimeHandle = 0;
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
        let program = RtcProgram { api: &self.api, handle: program };
        let count = i32::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: the program exists; the options are C strings that live through the call.
        let code = unsafe { (self.api.compile.at)(program.handle, count, pointers.as_ptr()) };
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
struct RtcProgram<'a> {
    api: &'a Rtc,
    handle: RuntimeHandle,
}

impl RtcProgram<'_> {
    fn fetch(
        &self,
        size: BoundCall<unsafe extern "C" fn(RuntimeHandle, *mut usize) -> i32>,
        get: BoundCall<unsafe extern "C" fn(RuntimeHandle, *mut c_char) -> i32>,
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

impl Drop for RtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the program exists and is not used after this.
        unsafe { (self.api.destroy.at)(&raw mut self.handle) };
    }
}

/// More than any code generator knows.
const MOST_TARGETS: usize = 4096;

/// The targets that AMD's code generator knows, as `gfx90a`; none if it does not say.
pub(crate) fn instruction_sets(comgr: &SharedLibrary) -> Vec<String> {
    type CountFn = unsafe extern "C" fn(*mut usize) -> i32;
    type NameFn = unsafe extern "C" fn(usize, *mut *const c_char) -> i32;
    let (Some(count), Some(name)) =
        (comgr.symbol("amd_comgr_get_isa_count"), comgr.symbol("amd_comgr_get_isa_name"))
    else {
        return Vec::new();
    };
    // SAFETY: both have these signatures in every version of the library (`amd_comgr.h`).
    let (count, name) = unsafe {
        (
            std::mem::transmute::<*mut c_void, CountFn>(count.as_ptr()),
            std::mem::transmute::<*mut c_void, NameFn>(name.as_ptr()),
        )
    };
    let mut number = 0;
    announce_in(&comgr.path, "amd_comgr_get_isa_count");
    // SAFETY: stores one number.
    if unsafe { count(&raw mut number) } != 0 || number > MOST_TARGETS {
        return Vec::new();
    }
    announce_in(&comgr.path, "amd_comgr_get_isa_name");
    let isa = |nth| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: stores a pointer to a C string that is the library's own and static.
        let text = unsafe {
            if name(nth, &raw mut text) != 0 || text.is_null() {
                return None;
            }
            CStr::from_ptr(text)
        };
        // `amdgcn-amd-amdhsa--gfx90a`
        Some(text.to_str().ok()?.rsplit('-').next()?.to_owned())
    };
    (0..number).filter_map(isa).collect()
}
