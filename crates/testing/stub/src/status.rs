//! Statuses, which CUDA and HIP share where their names match, and their texts.

use std::ffi::CStr;

use pathline_hal::CallError;
use pathline_schema::Severity;

pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NOT_INITIALIZED: i32 = 3;
pub(crate) const UNAVAILABLE: i32 = 46;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_IMAGE: i32 = 200;
pub(crate) const INVALID_CONTEXT: i32 = 201;
pub(crate) const NO_BINARY: i32 = 209;
pub(crate) const PEER_UNSUPPORTED: i32 = 217;
pub(crate) const OPERATING_SYSTEM: i32 = 304;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
pub(crate) const OUT_OF_RESOURCES: i32 = 701;
pub(crate) const PEER_ALREADY_ENABLED: i32 = 704;
pub(crate) const PEER_NOT_ENABLED: i32 = 705;
pub(crate) const CONTEXT_DESTROYED: i32 = 709;
pub(crate) const ALREADY_REGISTERED: i32 = 712;
pub(crate) const NOT_REGISTERED: i32 = 713;
pub(crate) const NOT_SUPPORTED: i32 = 801;
pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
pub(crate) const UNKNOWN: i32 = 999;

/// Number, name in CUDA, name in HIP, text.
type StatusRow = (i32, &'static CStr, &'static CStr, &'static CStr);

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one zero, at its end"),
    }
}

macro_rules! rows {
    ($($code:literal $cuda:literal $hip:literal $text:literal;)*) => {
        &[
            (0, c"CUDA_SUCCESS", c"hipSuccess", c"no error"),
            $((
                $code,
                c_text(concat!("CUDA_ERROR_", $cuda, "\0")),
                c_text(concat!("hipError", $hip, "\0")),
                c_text(concat!("stub: ", $text, "\0")),
            )),*
        ]
    };
}

const ROWS: &[StatusRow] = rows! {
    1 "INVALID_VALUE" "InvalidValue" "invalid argument";
    2 "OUT_OF_MEMORY" "OutOfMemory" "out of memory";
    3 "NOT_INITIALIZED" "NotInitialized" "not initialized";
    4 "DEINITIALIZED" "Deinitialized" "shutting down";
    21 "UNKNOWN" "InvalidMemcpyDirection" "invalid copy direction";
    34 "STUB_LIBRARY" "Unknown" "a toolkit's stub library";
    46 "DEVICE_UNAVAILABLE" "Unknown" "device is busy or unavailable";
    100 "NO_DEVICE" "NoDevice" "no capable device is detected";
    101 "INVALID_DEVICE" "InvalidDevice" "invalid device ordinal";
    200 "INVALID_IMAGE" "InvalidImage" "kernel image is invalid";
    201 "INVALID_CONTEXT" "InvalidContext" "invalid device context";
    209 "NO_BINARY_FOR_GPU" "NoBinaryForGpu" "no code for this device";
    214 "ECC_UNCORRECTABLE" "ECCNotCorrectable" "uncorrectable ECC error";
    217 "PEER_ACCESS_UNSUPPORTED" "PeerAccessUnsupported" "peer access is not supported";
    304 "OPERATING_SYSTEM" "OperatingSystem" "OS call failed";
    400 "INVALID_HANDLE" "InvalidHandle" "invalid resource handle";
    500 "NOT_FOUND" "NotFound" "named symbol not found";
    600 "NOT_READY" "NotReady" "device not ready";
    700 "ILLEGAL_ADDRESS" "IllegalAddress" "an illegal memory access was encountered";
    701 "LAUNCH_OUT_OF_RESOURCES" "LaunchOutOfResources" "too many resources requested for launch";
    702 "LAUNCH_TIMEOUT" "LaunchTimeOut" "the launch timed out";
    704 "PEER_ACCESS_ALREADY_ENABLED" "PeerAccessAlreadyEnabled" "peer access is already enabled";
    705 "PEER_ACCESS_NOT_ENABLED" "PeerAccessNotEnabled" "peer access is not enabled";
    709 "CONTEXT_IS_DESTROYED" "ContextIsDestroyed" "context is destroyed";
    712 "HOST_MEMORY_ALREADY_REGISTERED" "HostMemoryAlreadyRegistered" "memory is already page-locked";
    713 "HOST_MEMORY_NOT_REGISTERED" "HostMemoryNotRegistered" "memory is not page-locked";
    719 "LAUNCH_FAILED" "LaunchFailure" "launch failure";
    801 "NOT_SUPPORTED" "NotSupported" "operation not supported";
    802 "SYSTEM_NOT_READY" "Unknown" "system not yet initialized";
    900 "STREAM_CAPTURE_UNSUPPORTED" "StreamCaptureUnsupported" "a recorded stream takes host functions only";
    999 "UNKNOWN" "Unknown" "unknown error";
};

/// The names of a status in CUDA and HIP, and its text.
pub(crate) fn status_texts(code: i32) -> Option<(&'static CStr, &'static CStr, &'static CStr)> {
    ROWS.iter().find(|row| row.0 == code).map(|&(_, cuda, hip, text)| (cuda, hip, text))
}

/// Whether a status makes the context unusable for good.
pub(crate) fn is_sticky(code: i32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721)
}

/// The status for an error of the simulator.
pub(crate) fn of(error: &CallError) -> i32 {
    match error.severity {
        Severity::Exhausted => OUT_OF_MEMORY,
        Severity::Unsupported => NOT_SUPPORTED,
        Severity::Sticky => 719,
        _ => INVALID_VALUE,
    }
}
