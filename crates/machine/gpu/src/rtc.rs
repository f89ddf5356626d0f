//! Run-time compilers in this process.

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;

use super::function_table::{BoundCall, Rtc, RtcNames, RuntimeHandle};
use super::runtime_api::STAND_IN;
use pathline_dylib::{SharedLibrary, announce_in};

/// A compiler that is bound.
#[derive(Debug, Clone)]
pub(crate) struct BoundCompiler {
    api: Rtc,
    /// Its reported version. hipRTC reports 9.0 in every version from 5.2 to 7.2.
    pub(crate) version: (i32, i32),
    /// The file of its library.
    pub(crate) path: PathBuf,
    /// Whether it is a stand-in without a code generator.
    pub(crate) stands_in: bool,
}

impl BoundCompiler {
    /// Binds the functions of an open library.
    pub(crate) fn new(names: &RtcNames, library: SharedLibrary) -> Result<Self, String> {
        let api = Rtc::bind(names, &|entry| library.named(entry.name))?;
        let (mut major, mut minor) = (0, 0);
        announce_in(&library.path, api.version.name);
        // SAFETY: stores two numbers.
        let code = unsafe { (api.version.at)(&raw mut major, &raw mut minor) };
        if code != 0 {
            return Err(format!("{} returns {code}", api.version.name));
        }
        let stands_in = library.symbol(STAND_IN).is_some();
        Ok(Self { api, version: (major, minor), path: library.path, stands_in })
    }

    /// The error for a target that it does not compile for.
    pub(crate) fn refuse(&self, target: &str, reason: String, way_out: &str) -> CallError {
        CallError::unsupported(self.api.compile.name, target, reason).or_try(way_out)
    }

    /// The numbers of the targets that it knows; empty if it does not report them.
    pub(crate) fn architectures(&self) -> Vec<i32> {
        let (Some(count), Some(list)) = (self.api.arch_count, self.api.archs) else {
            return Vec::new();
        };
        let mut number = 0;
        // SAFETY: stores one number.
        let code = unsafe { (count.at)(&raw mut number) };
        let mut archs = vec![0; usize::try_from(number).unwrap_or(0)];
        // SAFETY: the call stores the number of values that it has just returned.
        if code != 0 || archs.is_empty() || unsafe { (list.at)(archs.as_mut_ptr()) } != 0 {
            return Vec::new();
        }
        archs
    }

    /// Compiles a text. `machine_code` requests code of a real target, otherwise PTX.
    pub(crate) fn build(
        &self,
        text: &str,
        target: &str,
        options: &[String],
        machine_code: bool,
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
        let code = match (machine_code, self.api.ptx_size, self.api.ptx) {
            (true, ..) => program.fetch(self.api.code_size, self.api.code),
            (false, Some(size), Some(get)) => program.fetch(size, get),
            (false, ..) => None,
        };
        code.filter(|c| !c.is_empty()).ok_or_else(|| fails(0, ""))
    }
}

/// A program, destroyed on drop.
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
        // SAFETY: the program exists, and the call stores the number of bytes that it has just
        // returned.
        (unsafe { (get.at)(self.handle, bytes.as_mut_ptr().cast()) } == 0).then_some(bytes)
    }
}

impl Drop for RtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the program exists and is not used after this.
        unsafe { (self.api.destroy.at)(&raw mut self.handle) };
    }
}
