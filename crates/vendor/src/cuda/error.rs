//! What a status of the driver means for the case that met it.

use std::ffi::{CStr, c_char};

use pathline_hal::{CallError, Result};
use pathline_schema::Severity;

use super::api::Cuda;

/// How bad a status is. Numbers: `CUresult` in `cuda.h`.
fn severity(code: i32) -> Severity {
    match code {
        // CUDA_ERROR_OUT_OF_MEMORY
        2 => Severity::Exhausted,
        // Stub library, no or invalid device, no licence, unmappable, no binary for the GPU, bad PTX,
        // peer access, unsupported limit, PTX version, missing JIT, system or driver not ready, not
        // supported
        34 | 100..=102 | 205 | 209 | 215 | 217..=218 | 221..=224 | 801..=804 => {
            Severity::Unsupported
        }
        // Deinitialised, device unavailable, uncorrectable ECC and NVLink errors, contained errors,
        // illegal address, launch time-out, context destroyed, assertion, hardware stack error to
        // launch failure, unknown
        4 | 46 | 214 | 220 | 226 | 700 | 702 | 709..=710 | 714..=719 | 721 | 999 => {
            Severity::Sticky
        }
        _ => Severity::Transient,
    }
}

fn way_out(code: i32) -> &'static str {
    match code {
        2 => "take smaller sizes, or end other programs on this GPU",
        34 => {
            "a toolkit's stub was found in place of the driver's library: take it out of LD_LIBRARY_PATH"
        }
        46 | 101 => "another process holds it exclusively, or MIG hides it: see `nvidia-smi`",
        100 => "see `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        802 => {
            "the fabric manager is not running or still starts: see `systemctl status nvidia-fabricmanager`"
        }
        803 | 804 => {
            "library and kernel module are of different drivers: reboot, or rebuild the container"
        }
        _ => "",
    }
}

/// The outcome of a call, with the driver's own words.
pub(crate) fn outcome(api: &Cuda, code: i32, call: &str, thing: &dyn Fn() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let words = |get: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: stores one pointer; the text is the library's own and static.
        unsafe {
            if get(code, &raw mut text) != 0 || text.is_null() {
                return "unknown status".to_owned();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    let reason = format!("{}: {}", words(api.error_name), words(api.error_text));
    Err(CallError::new(severity(code), call, thing(), reason)
        .with_code(code.into())
        .or_try(way_out(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_costs_what_it_must() {
        let cases = [
            (1, Severity::Transient),
            (2, Severity::Exhausted),
            (100, Severity::Unsupported),
            (700, Severity::Sticky),
            (716, Severity::Sticky),
            (719, Severity::Sticky),
            (801, Severity::Unsupported),
        ];
        for (code, expected) in cases {
            assert_eq!(severity(code), expected, "{code}");
        }
    }
}
