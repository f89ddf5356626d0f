//! hipRTC by NVRTC: replaces HIP's target by that of the thread's device.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cuda;
use crate::driver::{self, open, symbol};
use crate::names::is_common;
use crate::{Handle, started, store};

/// `HIPRTC_ERROR_INTERNAL_ERROR`
const INTERNAL: i32 = 11;

/// The compiler's library; 0 if there is none.
fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        let newest = driver::version() / 1000;
        let named = std::env::var_os("PATHLINE_NVRTC").map(PathBuf::from);
        let files = named.map(|path| in_place(&path, newest)).unwrap_or_default();
        let bare = (11..=newest.max(11)).rev().map(|major| format!("libnvrtc.so.{major}").into());
        files
            .into_iter()
            .chain(bare)
            .map(|file| with_builtins(&file))
            .find(|l| *l != 0)
            .unwrap_or(0)
    })
}

/// The file, or the files of a folder with a major version that the driver accepts, newest first.
fn in_place(path: &Path, newest: i32) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let files = (11..=newest).rev().map(|major| path.join(format!("libnvrtc.so.{major}")));
    files.filter(|file| file.exists()).collect()
}

/// Opens the compiler after its second library, which some versions do not find themselves.
fn with_builtins(file: &Path) -> usize {
    let siblings = file.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in siblings.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            open(&entry.path().to_string_lossy());
        }
    }
    open(&file.to_string_lossy())
}

/// Calls a function of NVRTC. Its statuses are hipRTC's.
macro_rules! nvrtc {
    ($name:literal ($($arg:expr => $kind:ty),*)) => {{
        static AT: OnceLock<usize> = OnceLock::new();
        let at = *AT.get_or_init(|| symbol(library(), $name));
        if at == 0 {
            INTERNAL
        } else {
            // SAFETY: the library has this name with this signature in every version, and the caller
            // of the HIP function promises arguments of the same meaning.
            unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> i32>(at)($($arg),*)
            }
        }
    }};
}

type Texts = *const *const c_char;

/// Exports functions that differ only in their names.
macro_rules! export {
    ($($name:ident = $nvrtc:literal ($($arg:ident: $kind:ty),*);)*) => {$(
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> i32 {
            nvrtc!($nvrtc ($($arg => $kind),*))
        }
    )*};
}

export! {
    hiprtcCreateProgram = "nvrtcCreateProgram" (
        out: *mut Handle, source: *const c_char, name: *const c_char, count: i32, headers: Texts, names: Texts);
    hiprtcDestroyProgram = "nvrtcDestroyProgram" (program: *mut Handle);
    hiprtcGetProgramLogSize = "nvrtcGetProgramLogSize" (program: Handle, size: *mut usize);
    hiprtcGetProgramLog = "nvrtcGetProgramLog" (program: Handle, log: *mut c_char);
    hiprtcGetCodeSize = "nvrtcGetCUBINSize" (program: Handle, size: *mut usize);
    hiprtcGetCode = "nvrtcGetCUBIN" (program: Handle, code: *mut c_char);
}

/// Every version of hipRTC reports 9.0; without a compiler below it is an error.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcVersion(major: *mut i32, minor: *mut i32) -> i32 {
    let code = nvrtc!("nvrtcVersion" (major => *mut i32, minor => *mut i32));
    if code == 0 {
        store(major, 9);
        store(minor, 0);
    }
    code
}

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: i32) -> *const c_char {
    let text = match code {
        0 => c"HIPRTC_SUCCESS",
        5 => c"HIPRTC_ERROR_INVALID_OPTION",
        6 => c"HIPRTC_ERROR_COMPILATION",
        _ => c"HIPRTC_ERROR_INTERNAL_ERROR",
    };
    text.as_ptr()
}

/// Compiles for the thread's device, ignoring the target.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCompileProgram(program: Handle, count: i32, options: Texts) -> i32 {
    let count = if options.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    let given = (0..count).map(|nth| {
        // SAFETY: the caller promises as many C strings.
        unsafe { CStr::from_ptr(options.add(nth).read()) }.to_string_lossy().into_owned()
    });
    let Some(target) = target() else { return INTERNAL };
    let kept = given.filter(|option| is_common(option)).chain([target]);
    let kept: Vec<CString> = kept.filter_map(|option| CString::new(option).ok()).collect();
    let pointers: Vec<_> = kept.iter().map(|option| option.as_ptr()).collect();
    nvrtc!("nvrtcCompileProgram" (
        program => Handle, pointers.len() as i32 => i32, pointers.as_ptr() => Texts))
}

/// `--gpu-architecture=sm_90` for the thread's device.
fn target() -> Option<String> {
    let number = |which: i32| {
        let mut value = 0;
        let gpu = driver::device();
        let code = started(
            || cuda!("cuDeviceGetAttribute" @ 2000 (&raw mut value => *mut i32, which => i32, gpu => i32)),
        );
        (code == 0).then_some(value)
    };
    Some(format!("--gpu-architecture=sm_{}{}", number(75)?, number(76)?))
}
