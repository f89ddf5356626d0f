//! Layouts of NCCL's tuner interface, versions 2 to 5, which RCCL shares. Source: `tuner_v2.h` to `tuner_v5.h`
//! in `src/include/plugin/tuner` of NCCL 2.30, `err.h` and `common.h` in `plugins/tuner/example/nccl`.
//! NCCL 2.21.5 asks for version 2, 2.22.3 for 3, 2.24.3 for 4, 2.28.3 for 5; later ones load all of them.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// `ncclResult_t`: success.
pub(crate) const SUCCESS: c_int = 0;
/// `ncclDebugLogLevel`: a warning, and information.
pub(crate) const LOG_WARN: c_int = 2;
pub(crate) const LOG_INFO: c_int = 3;
/// `ncclDebugLogSubSys`: NCCL_INIT and NCCL_TUNING.
pub(crate) const LOG_SUBSYSTEMS: c_ulong = 1 | 64;

/// `ncclDebugLogger_t`: level, subsystems, file, line, and a format of `printf` with its values.
pub(crate) type LogFn =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// `init` of versions 2 to 4: ranks, nodes, log; the context comes back.
pub(crate) type InitFn =
    unsafe extern "C" fn(usize, usize, Option<LogFn>, *mut *mut c_void) -> c_int;
/// `init` of version 5: the context comes back; identity of the communicator, ranks, nodes, log, domains of
/// NVLink and constants of the model, of which this plugin changes none.
pub(crate) type InitV5Fn = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    usize,
    usize,
    Option<LogFn>,
    *mut c_void,
    *mut c_void,
) -> c_int;
/// `getCollInfo` of version 2: context, collective, bytes, whether switches of the network and NVSwitches can
/// reduce, operations of the group; algorithm, protocol and channels come back.
pub(crate) type CollInfoV2Fn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    c_int,
    c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
) -> c_int;
/// Of version 3: context, collective, bytes, operations of the group, table of costs with its numbers of
/// algorithms and protocols; channels come back. The table is one block of floats by algorithm and protocol,
/// although its type is a pointer to pointers.
pub(crate) type CollInfoV3Fn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;
/// Of versions 4 and 5: with whether buffers are registered.
pub(crate) type CollInfoV4Fn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;
/// `destroy`, `finalize` from version 5 on.
pub(crate) type EndFn = unsafe extern "C" fn(*mut c_void) -> c_int;

/// One version of the interface: what the library finds under the version's symbol.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TunerInterface<Init, CollInfo> {
    pub(crate) name: *const c_char,
    pub(crate) init: Init,
    pub(crate) coll_info: CollInfo,
    pub(crate) end: EndFn,
}

// SAFETY: its name is a constant of the program, and functions can be called from any thread.
unsafe impl<Init: Sync, CollInfo: Sync> Sync for TunerInterface<Init, CollInfo> {}
