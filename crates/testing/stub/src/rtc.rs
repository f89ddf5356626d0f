//! The run-time compilers. One implementation under two prefixes; the output is the source itself.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

use pathline_hal::kernel;

use crate::image;
use crate::spec::{StubFault, StubSpec};
use crate::streams::StubHandle;

const INVALID_INPUT: i32 = 3;
const INVALID_PROGRAM: i32 = 4;
const INVALID_OPTION: i32 = 5;
const COMPILATION: i32 = 6;

/// A version that no real compiler has, so that its output never matches a real compiler's in a
/// cache.
const VERSION: (i32, i32) = (13, 999);

/// Targets of CUDA 13.0.
const ARCHS: [i32; 11] = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120];
/// Targets of ROCm 7 with a matrix unit, and some without.
const GFX: [&str; 8] =
    ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

#[derive(Debug, Default)]
struct StubProgram {
    source: String,
    log: String,
    code: Vec<u8>,
    /// Whether the code is for a real target.
    real: bool,
}

static PROGRAMS: Mutex<BTreeMap<StubHandle, StubProgram>> = Mutex::new(BTreeMap::new());

fn with<T>(body: impl FnOnce(&mut BTreeMap<StubHandle, StubProgram>) -> T) -> T {
    body(&mut PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The option syntax of a compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionDialect {
    Cuda,
    Hip,
}

/// # Safety
/// `source` is null or a C string, `out` null or can store a handle.
unsafe fn create(out: *mut StubHandle, source: *const c_char) -> i32 {
    if out.is_null() || source.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
    let handle = with(|programs| {
        let handle = programs.last_key_value().map_or(1, |(last, _)| last + 1);
        programs.insert(handle, StubProgram { source, ..StubProgram::default() });
        handle
    });
    // SAFETY: the caller's promise.
    unsafe { out.write(handle) };
    0
}

/// # Safety
/// `program` is null or points to a handle.
unsafe fn destroy(program: *mut StubHandle) -> i32 {
    if program.is_null() {
        return INVALID_PROGRAM;
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { program.replace(0) };
    if with(|programs| programs.remove(&handle)).is_some() { 0 } else { INVALID_PROGRAM }
}

/// # Safety
/// `options` has `count` C strings.
unsafe fn compile(
    dialect: OptionDialect,
    program: StubHandle,
    count: i32,
    options: *const *const c_char,
) -> i32 {
    let count = if options.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    let options: Vec<String> = (0..count)
        .map(|nth| {
            // SAFETY: the caller's promise.
            unsafe { CStr::from_ptr(options.add(nth).read()) }.to_string_lossy().into_owned()
        })
        .collect();
    with(|programs| {
        let Some(program) = programs.get_mut(&program) else { return INVALID_PROGRAM };
        match program.compile(dialect, &options) {
            Ok(()) => 0,
            Err((code, log)) => {
                program.log = log;
                code
            }
        }
    })
}

impl StubProgram {
    fn compile(&mut self, dialect: OptionDialect, options: &[String]) -> Result<(), (i32, String)> {
        let target = target(dialect, options)?;
        let names = [kernel::FILL, kernel::WRITTEN, kernel::COPY_BLOCKS];
        let own = names.iter().any(|name| self.source.contains(name));
        let ours = own || image::variant(&self.source).is_some();
        if !ours || !self.source.contains("extern \"C\"") {
            let line = self.source.lines().next().unwrap_or_default();
            return Err((COMPILATION, format!("pathline.cu(1): error: '{line}' is no kernel")));
        }
        self.code = image::pack(&target, &self.source);
        self.real = !target.starts_with("compute_");
        Ok(())
    }
}

/// The target in the options, if all of them are known.
fn target(dialect: OptionDialect, options: &[String]) -> Result<String, (i32, String)> {
    let mut target = None;
    let harmless = ["--std=", "-std=", "-default-device", "-D", "-O", "-I", "--use_fast_math"];
    for option in options {
        let named = ["--gpu-architecture=", "-arch=", "--offload-arch="]
            .iter()
            .find_map(|prefix| option.strip_prefix(prefix));
        match named {
            Some(name) => target = Some(name.to_owned()),
            None if harmless.iter().any(|known| option.starts_with(known)) => {}
            None => return Err((INVALID_OPTION, format!("unrecognized option {option}"))),
        }
    }
    match dialect {
        OptionDialect::Cuda => {
            let target = target.unwrap_or_else(|| "compute_75".to_owned());
            let number = target.strip_prefix("sm_").or(target.strip_prefix("compute_"));
            let known = number.and_then(|n| n.parse().ok()).is_some_and(|n| ARCHS.contains(&n));
            let unknown = || (INVALID_OPTION, "invalid value for --gpu-architecture".to_owned());
            known.then_some(target).ok_or_else(unknown)
        }
        OptionDialect::Hip => {
            // Without a target the log is empty, in all of 5.2 to 7.2.
            let target = target.ok_or((COMPILATION, String::new()))?;
            let name = target.split(':').next().unwrap_or_default();
            if GFX.contains(&name) {
                return Ok(target);
            }
            // Versions before 7 end the process on an unknown target.
            if crate::hip::major(&StubSpec::from_env().unwrap_or_default()) < 7 {
                crate::entry::crash();
            }
            Err((COMPILATION, format!("error: unknown target '{name}'")))
        }
    }
}

/// # Safety
/// `size` is null or can store a number.
unsafe fn size_of(program: StubHandle, size: *mut usize, of: fn(&StubProgram) -> usize) -> i32 {
    let Some(found) = with(|programs| programs.get(&program).map(of)) else {
        return INVALID_PROGRAM;
    };
    if size.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    unsafe { size.write(found) };
    0
}

/// Whether an overrun is injected into a function.
fn overruns(name: &str) -> bool {
    let spec = StubSpec::from_env().unwrap_or_default();
    spec.faults.iter().any(|fault| fault.call == name && fault.blow == StubFault::Overruns)
}

/// # Safety
/// `out` is null or has the size that the matching size function returns.
unsafe fn fetch(
    name: &'static str,
    program: StubHandle,
    out: *mut c_char,
    of: fn(&StubProgram) -> Vec<u8>,
) -> i32 {
    let Some(mut found) = with(|programs| programs.get(&program).map(of)) else {
        return INVALID_PROGRAM;
    };
    if out.is_null() {
        return INVALID_INPUT;
    }
    if overruns(name) {
        found.push(0);
    }
    // SAFETY: the caller's promise, but for an overrun: undefined behaviour on order.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), out.cast(), found.len()) };
    0
}

fn log(program: &StubProgram) -> Vec<u8> {
    [program.log.as_bytes(), &[0]].concat()
}
fn code(program: &StubProgram) -> Vec<u8> {
    if program.real { program.code.clone() } else { Vec::new() }
}
/// PTX ends with a zero.
fn portable(program: &StubProgram) -> Vec<u8> {
    [&program.code, &[0][..]].concat()
}

fn result_text(code: i32) -> &'static CStr {
    match code {
        0 => c"stub: success",
        INVALID_INPUT => c"stub: invalid input",
        INVALID_PROGRAM => c"stub: invalid program",
        INVALID_OPTION => c"stub: invalid option",
        COMPILATION => c"stub: compilation error",
        _ => c"stub: unknown error",
    }
}

/// The functions of both compilers, under the names of one.
macro_rules! export {
    ($dialect:ident $version:expr, $($name:ident)*) => { export!(@ $dialect $version, $($name),*); };
    (@ $dialect:ident $version:expr, $create:ident, $destroy:ident, $compile:ident, $log_size:ident,
        $log:ident, $numbers:ident, $error_text:ident) => {
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $create(
            out: *mut StubHandle,
            source: *const c_char,
            _name: *const c_char,
            _headers: i32,
            _texts: *const *const c_char,
            _names: *const *const c_char,
        ) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { create(out, source) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $destroy(program: *mut StubHandle) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { destroy(program) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compile(
            program: StubHandle,
            count: i32,
            options: *const *const c_char,
        ) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { compile(OptionDialect::$dialect, program, count, options) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $log_size(program: StubHandle, size: *mut usize) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { size_of(program, size, |p| log(p).len()) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $log(program: StubHandle, out: *mut c_char) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { fetch(stringify!($log), program, out, log) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $numbers(major: *mut i32, minor: *mut i32) -> i32 {
            let (a, b): (i32, i32) = $version;
            // SAFETY: both take a number.
            unsafe {
                major.write(a);
                minor.write(b);
            }
            0
        }
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        extern "C" fn $error_text(code: i32) -> *const c_char {
            result_text(code).as_ptr()
        }
    };
}

export!(Cuda VERSION, nvrtcCreateProgram nvrtcDestroyProgram nvrtcCompileProgram
    nvrtcGetProgramLogSize nvrtcGetProgramLog nvrtcVersion nvrtcGetErrorString);
// Every version of hipRTC reports 9.0.
export!(Hip (9, 0), hiprtcCreateProgram hiprtcDestroyProgram hiprtcCompileProgram
    hiprtcGetProgramLogSize hiprtcGetProgramLog hiprtcVersion hiprtcGetErrorString);

/// Size and fetch functions of a compiler's outputs.
macro_rules! results {
    ($($size:ident $fetch:ident $what:ident;)*) => {$(
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $size(program: StubHandle, size: *mut usize) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { size_of(program, size, |p| $what(p).len()) }
        }
        /// # Safety
        /// As of the vendor's function.
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fetch(program: StubHandle, out: *mut c_char) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { fetch(stringify!($fetch), program, out, $what) }
        }
    )*};
}

results! {
    nvrtcGetCUBINSize nvrtcGetCUBIN code;
    nvrtcGetPTXSize nvrtcGetPTX portable;
    hiprtcGetCodeSize hiprtcGetCode code;
}

/// # Safety
/// `count` can store a number.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut i32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { count.write(ARCHS.len() as i32) };
    0
}

/// # Safety
/// `list` can store the number of values that the function above returns.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(list: *mut i32) -> i32 {
    for (nth, arch) in ARCHS.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { list.add(nth).write(arch) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{KernelOp, KernelVariant};

    fn compile(
        dialect: OptionDialect,
        source: &str,
        options: &[&str],
    ) -> Result<StubProgram, (i32, String)> {
        let mut program = StubProgram { source: source.to_owned(), ..StubProgram::default() };
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        program.compile(dialect, &options).map(|()| program)
    }

    #[test]
    fn a_refusal_has_its_code_and_a_log() {
        let source = kernel::source(&KernelVariant::standard(KernelOp::Read));
        let (cuda, hip) = (OptionDialect::Cuda, OptionDialect::Hip);
        for (dialect, text, options, code, log) in [
            (cuda, source.as_str(), &["--gpu-architecture=sm_70"][..], 5, "gpu-architecture"),
            (cuda, &source, &["--gpu-architecture=sm_90", "--no-such-option"], 5, "unrecognized"),
            (cuda, "not a kernel", &["--gpu-architecture=sm_90"], 6, "'not a kernel' is no kernel"),
            (hip, &source, &["--std=c++17", "-O3"], 6, ""),
            (hip, "int x;", &["--offload-arch=gfx90a:xnack-"], 6, "error"),
        ] {
            let (found, output) = compile(dialect, text, options).unwrap_err();
            assert!(found == code && output.contains(log), "{options:?}: {found} {output}");
            assert!(!log.is_empty() || output.is_empty(), "{output}");
        }
    }

    #[test]
    fn a_virtual_target_has_portable_code_only() {
        let program = |arch: &str| {
            compile(OptionDialect::Cuda, kernel::PATTERN, &[&format!("--gpu-architecture={arch}")])
                .unwrap()
        };
        let (real, virtual_one) = (program("sm_90"), program("compute_90"));
        assert!(!code(&real).is_empty() && code(&virtual_one).is_empty());
        assert_eq!(portable(&virtual_one).last(), Some(&0));
    }
}
