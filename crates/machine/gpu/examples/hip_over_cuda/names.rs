//! Statuses of CUDA in HIP's numbers and names, and options that both compilers accept.

use std::ffi::CStr;

pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const INSUFFICIENT_DRIVER: i32 = 35;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const NOT_SUPPORTED: i32 = 801;
const LAUNCH_FAILURE: i32 = 719;
const UNKNOWN: i32 = 999;

/// Number, name and text of `hipError_t`.
const NAMES: &[(i32, &CStr, &CStr)] = &[
    (0, c"hipSuccess", c"no error"),
    (1, c"hipErrorInvalidValue", c"invalid argument"),
    (2, c"hipErrorOutOfMemory", c"out of memory"),
    (3, c"hipErrorNotInitialized", c"initialization error"),
    (4, c"hipErrorDeinitialized", c"driver shutting down"),
    (35, c"hipErrorInsufficientDriver", c"driver version is insufficient"),
    (98, c"hipErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"hipErrorNoDevice", c"no device is detected"),
    (101, c"hipErrorInvalidDevice", c"invalid device ordinal"),
    (200, c"hipErrorInvalidImage", c"device kernel image is invalid"),
    (201, c"hipErrorInvalidContext", c"invalid device context"),
    (205, c"hipErrorMapFailed", c"mapping of a buffer failed"),
    (206, c"hipErrorUnmapFailed", c"unmapping of a buffer failed"),
    (209, c"hipErrorNoBinaryForGpu", c"no kernel image for this device"),
    (214, c"hipErrorECCNotCorrectable", c"uncorrectable ECC error"),
    (215, c"hipErrorUnsupportedLimit", c"limit is not supported"),
    (217, c"hipErrorPeerAccessUnsupported", c"peer access is not supported"),
    (218, c"hipErrorInvalidKernelFile", c"invalid kernel file"),
    (301, c"hipErrorFileNotFound", c"file not found"),
    (302, c"hipErrorSharedObjectSymbolNotFound", c"shared object symbol not found"),
    (303, c"hipErrorSharedObjectInitFailed", c"shared object initialization failed"),
    (304, c"hipErrorOperatingSystem", c"OS call failed"),
    (400, c"hipErrorInvalidHandle", c"invalid resource handle"),
    (401, c"hipErrorIllegalState", c"resource is not in a state for this"),
    (500, c"hipErrorNotFound", c"named symbol not found"),
    (600, c"hipErrorNotReady", c"device not ready"),
    (700, c"hipErrorIllegalAddress", c"an illegal memory access was encountered"),
    (701, c"hipErrorLaunchOutOfResources", c"too many resources requested for launch"),
    (702, c"hipErrorLaunchTimeOut", c"the launch timed out and was terminated"),
    (704, c"hipErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, c"hipErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, c"hipErrorSetOnActiveProcess", c"the process has initialized the device already"),
    (709, c"hipErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"hipErrorAssert", c"device-side assert triggered"),
    (712, c"hipErrorHostMemoryAlreadyRegistered", c"memory is page-locked already"),
    (713, c"hipErrorHostMemoryNotRegistered", c"memory is not page-locked"),
    (719, c"hipErrorLaunchFailure", c"unspecified launch failure"),
    (801, c"hipErrorNotSupported", c"operation not supported"),
    (999, c"hipErrorUnknown", c"unknown error"),
];

/// A status of CUDA in HIP's numbers: the same where HIP has it, a failed launch for kernel faults
/// that HIP does not distinguish, and unknown for the rest.
pub(crate) fn from_cuda(code: i32) -> i32 {
    match code {
        714..=718 => LAUNCH_FAILURE,
        known if NAMES.iter().any(|row| row.0 == known) => known,
        _ => UNKNOWN,
    }
}

fn row(code: i32) -> (&'static CStr, &'static CStr) {
    let found = NAMES.iter().find(|row| row.0 == code);
    found.map_or((c"hipErrorUnknown", c"unknown error"), |row| (row.1, row.2))
}
pub(crate) fn name(code: i32) -> &'static CStr {
    row(code).0
}
pub(crate) fn status_text(code: i32) -> &'static CStr {
    row(code).1
}

/// Whether both compilers accept an option.
pub(crate) fn is_common(option: &str) -> bool {
    ["--std=", "-std=", "-D", "-I", "-default-device"].iter().any(|known| option.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_both_have_keep_their_number() {
        let cases = [(0, 0), (2, 2), (700, 700), (716, 719), (46, 999), (802, 999), (801, 801)];
        for (cuda, hip) in cases {
            assert_eq!(from_cuda(cuda), hip, "{cuda}");
        }
        assert_eq!(name(704), c"hipErrorPeerAccessAlreadyEnabled");
        assert_eq!(status_text(12345), c"unknown error");
    }

    #[test]
    fn options_of_one_compiler_are_kept_from_the_other() {
        let kept = ["--std=c++17", "-DA=1", "-default-device"];
        assert!(kept.iter().all(|o| is_common(o)));
        assert!(!is_common("--offload-arch=gfx90a") && !is_common("-O3"));
    }
}
