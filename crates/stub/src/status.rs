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

const ROWS: &[StatusRow] = &[
    (0, c"CUDA_SUCCESS", c"hipSuccess", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"hipErrorInvalidValue", c"stub: invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"hipErrorOutOfMemory", c"stub: out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"hipErrorNotInitialized", c"stub: not initialized"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"hipErrorDeinitialized", c"stub: shutting down"),
    (21, c"CUDA_ERROR_UNKNOWN", c"hipErrorInvalidMemcpyDirection", c"stub: invalid copy direction"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"hipErrorUnknown", c"stub: a toolkit's stub library"),
    (
        46,
        c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        c"hipErrorUnknown",
        c"stub: device is busy or unavailable",
    ),
    (100, c"CUDA_ERROR_NO_DEVICE", c"hipErrorNoDevice", c"stub: no capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"hipErrorInvalidDevice", c"stub: invalid device ordinal"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"hipErrorInvalidImage", c"stub: kernel image is invalid"),
    (
        201,
        c"CUDA_ERROR_INVALID_CONTEXT",
        c"hipErrorInvalidContext",
        c"stub: invalid device context",
    ),
    (
        209,
        c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        c"hipErrorNoBinaryForGpu",
        c"stub: no code for this device",
    ),
    (
        214,
        c"CUDA_ERROR_ECC_UNCORRECTABLE",
        c"hipErrorECCNotCorrectable",
        c"stub: uncorrectable ECC error",
    ),
    (
        217,
        c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        c"hipErrorPeerAccessUnsupported",
        c"stub: peer access is not supported",
    ),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"hipErrorOperatingSystem", c"stub: OS call failed"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"hipErrorInvalidHandle", c"stub: invalid resource handle"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"hipErrorNotFound", c"stub: named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"hipErrorNotReady", c"stub: device not ready"),
    (
        700,
        c"CUDA_ERROR_ILLEGAL_ADDRESS",
        c"hipErrorIllegalAddress",
        c"stub: an illegal memory access was encountered",
    ),
    (
        701,
        c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        c"hipErrorLaunchOutOfResources",
        c"stub: too many resources requested for launch",
    ),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"hipErrorLaunchTimeOut", c"stub: the launch timed out"),
    (
        704,
        c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        c"hipErrorPeerAccessAlreadyEnabled",
        c"stub: peer access is already enabled",
    ),
    (
        705,
        c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        c"hipErrorPeerAccessNotEnabled",
        c"stub: peer access is not enabled",
    ),
    (
        709,
        c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        c"hipErrorContextIsDestroyed",
        c"stub: context is destroyed",
    ),
    (
        712,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"hipErrorHostMemoryAlreadyRegistered",
        c"stub: memory is already page-locked",
    ),
    (
        713,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"hipErrorHostMemoryNotRegistered",
        c"stub: memory is not page-locked",
    ),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"hipErrorLaunchFailure", c"stub: launch failure"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"hipErrorNotSupported", c"stub: operation not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"hipErrorUnknown", c"stub: system not yet initialized"),
    (
        900,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"hipErrorStreamCaptureUnsupported",
        c"stub: a stream that is recorded takes functions of the host only",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"hipErrorUnknown", c"stub: unknown error"),
];

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
