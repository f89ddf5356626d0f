//! The functions of NCCL and of API-compatible libraries. RCCL spells one of them differently.

use std::ffi::{CStr, c_char, c_void};

use pathline_hal::{CallError, CallResult};
use pathline_schema::{ElementReduction, ElementType, ReduceOp, Severity};

use pathline_dylib::SharedLibrary;
use pathline_gpu::CollectivesDescription;
use pathline_gpu::function_table::{RuntimeHandle, entry};

/// `ncclUniqueId`, which is passed by value: a structure and not a pointer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CclUniqueId(pub(super) [u8; Self::BYTES]);

impl CclUniqueId {
    pub(super) const BYTES: usize = 128;
    /// A non-zero FNV-1a hash that distinguishes two identifiers.
    pub(super) fn mark(&self) -> u64 {
        let mix = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
    }
}

/// `ncclUint8`.
pub(super) const BYTE: i32 = 1;
/// The first version of NCCL with elements of 8 bits of floating point.
const FP8_SINCE: i32 = 22_400;

/// `ncclDataType_t`, the same in every version that has the type.
pub(super) const fn data_type(element: ElementType) -> i32 {
    match element {
        ElementType::Int8 => 0,
        ElementType::Uint8 => BYTE,
        ElementType::Int32 => 2,
        ElementType::Uint32 => 3,
        ElementType::Int64 => 4,
        ElementType::Uint64 => 5,
        ElementType::Half => 6,
        ElementType::Float => 7,
        ElementType::Double => 8,
        ElementType::Bf16 => 9,
        ElementType::Fp8E4m3 => 10,
        ElementType::Fp8E5m2 => 11,
    }
}

/// `ncclRedOp_t`, the same in every version.
pub(super) const fn reduce_op(op: ReduceOp) -> i32 {
    match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
    }
}

/// `ncclInProgress`.
const IN_PROGRESS: i32 = 7;

pathline_gpu::function_table!(
    /// Functions by `nccl.h` of NCCL 2.10 to 2.30 and of RCCL 2.11 to 2.27. Buffers are addresses,
    /// types and operations numbers.
    Ccl by CclNames {
        required {
            version => (*mut i32);
            unique_id => (*mut CclUniqueId);
            init_rank => (*mut RuntimeHandle, i32, CclUniqueId, i32);
            destroy => (RuntimeHandle);
            abort => (RuntimeHandle);
            async_error => (RuntimeHandle, *mut i32);
            group_start => ();
            group_end => ();
            send => (u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            recv => (u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            all_reduce => (u64, u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            reduce => (u64, u64, usize, i32, i32, i32, RuntimeHandle, RuntimeHandle);
            broadcast => (u64, u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            reduce_scatter => (u64, u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            all_gather => (u64, u64, usize, i32, RuntimeHandle, RuntimeHandle);
        }
        optional {
            // NCCL has the three since 2.28, RCCL since its first version.
            all_to_all => (u64, u64, usize, i32, RuntimeHandle, RuntimeHandle);
            gather => (u64, u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            scatter => (u64, u64, usize, i32, i32, RuntimeHandle, RuntimeHandle);
            register => (RuntimeHandle, u64, usize, *mut RuntimeHandle);
            deregister => (RuntimeHandle, RuntimeHandle);
        }
    }
);

/// The function names in the spelling of this library.
fn names(library: &CollectivesDescription) -> CclNames {
    let named = |name| entry((library.spelling)(name));
    CclNames {
        version: named("ncclGetVersion"),
        unique_id: named("ncclGetUniqueId"),
        init_rank: named("ncclCommInitRank"),
        destroy: named("ncclCommDestroy"),
        abort: named("ncclCommAbort"),
        async_error: named("ncclCommGetAsyncError"),
        group_start: named("ncclGroupStart"),
        group_end: named("ncclGroupEnd"),
        send: named("ncclSend"),
        recv: named("ncclRecv"),
        all_reduce: named("ncclAllReduce"),
        reduce: named("ncclReduce"),
        broadcast: named("ncclBroadcast"),
        reduce_scatter: named("ncclReduceScatter"),
        all_gather: named("ncclAllGather"),
        all_to_all: named("ncclAlltoAll"),
        gather: named("ncclGather"),
        scatter: named("ncclScatter"),
        register: named("ncclCommRegister"),
        deregister: named("ncclCommDeregister"),
    }
}

type ErrorTextFn = unsafe extern "C" fn(i32) -> *const c_char;
type LastErrorFn = unsafe extern "C" fn(RuntimeHandle) -> *const c_char;
type ResetFn = unsafe extern "C" fn();

/// The bound library. Every function may be called from any thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct CclApi {
    pub(super) ccl: Ccl,
    error_text: Option<ErrorTextFn>,
    last: Option<LastErrorFn>,
    /// Makes the library read its logging environment again: NCCL 2.24 and later.
    pub(super) reset_log: Option<ResetFn>,
    /// In the library's encoding.
    version: i32,
    /// Its name: `NCCL`, `RCCL`.
    name: &'static str,
}

/// Binds every function by its name.
pub(super) fn load(
    library: &SharedLibrary,
    description: &CollectivesDescription,
) -> std::result::Result<CclApi, String> {
    let ccl = Ccl::bind(&names(description), &|entry| library.named(entry.name))?;
    let at = |name: &'static str| {
        library.symbol((description.spelling)(name)).map(std::ptr::NonNull::as_ptr)
    };
    // SAFETY: the three have these signatures in every version that has them.
    let (error_text, last, reset_log) = unsafe {
        (
            at("ncclGetErrorString").map(|at| std::mem::transmute::<*mut c_void, ErrorTextFn>(at)),
            at("ncclGetLastError").map(|at| std::mem::transmute::<*mut c_void, LastErrorFn>(at)),
            at("ncclResetDebugInit").map(|at| std::mem::transmute::<*mut c_void, ResetFn>(at)),
        )
    };
    let mut version = 0;
    // SAFETY: stores one number, without any device.
    let code = unsafe { (ccl.version.at)(&raw mut version) };
    if code != 0 {
        return Err(format!("{} gives {code}", ccl.version.name));
    }
    let name = description.name;
    Ok(CclApi { ccl, error_text, last, reset_log, version, name })
}

/// `22803` as `2.28.3`. Up to 2.8 the major version counts thousands.
pub(super) fn dotted(version: i32) -> String {
    let (major, rest) = match version {
        ..10_000 => (version / 1000, version % 1000),
        _ => (version / 10_000, version % 10_000),
    };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: a C string of the library's, which stays at least until its next call.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().trim().to_owned()
}

/// The severity of a status for the case in which it occurred. Numbers: `ncclResult_t`.
fn severity(code: i32) -> Severity {
    match code {
        // Unhandled CUDA error, remote process gone: later results are not reliable.
        1 | 6 => Severity::Sticky,
        // Invalid argument, invalid usage.
        4 | 5 => Severity::Unsupported,
        _ => Severity::Transient,
    }
}

fn way_out(code: i32) -> &'static str {
    match code {
        1 => "see the driver's message, and whether the GPUs are healthy and have memory left",
        2 => {
            "see NCCL_DEBUG=WARN; /dev/shm must have room and the network interface must be usable (NCCL_SOCKET_IFNAME)"
        }
        5 => "a GPU may be in a communicator once; see NCCL_DEBUG=WARN",
        6 => "see which rank ended first",
        _ => "NCCL_DEBUG=WARN gives details",
    }
}

impl CclApi {
    /// `2.28.3`.
    pub(super) fn version(&self) -> String {
        dotted(self.version)
    }

    /// Why this version lacks a reduction; `None` if it may have it. RCCL has its own versions, and
    /// refuses what it lacks.
    pub(super) fn misfit(&self, reduced: ElementReduction) -> Option<String> {
        let of_8_bits = matches!(reduced.element, ElementType::Fp8E4m3 | ElementType::Fp8E5m2);
        let lacks = of_8_bits && self.name == "NCCL" && self.version < FP8_SINCE;
        lacks.then(|| {
            let since = dotted(FP8_SINCE);
            format!(
                "{} {} has no {}, which came with {since}",
                self.name,
                self.version(),
                reduced.element
            )
        })
    }

    /// The outcome of a call, with the library's own error text.
    pub(super) fn outcome(
        &self,
        (call, code): (&'static str, i32),
        comm: RuntimeHandle,
        thing: &dyn Fn() -> String,
    ) -> CallResult<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number.
        let error_text =
            self.error_text.map(|call| text(unsafe { call(code) })).unwrap_or_default();
        // SAFETY: takes a communicator or null, which both versions of it ignore.
        let last = self.last.map(|last| text(unsafe { last(comm) })).unwrap_or_default();
        let reason = match (error_text.is_empty(), last.is_empty()) {
            (true, true) => "no error text".to_owned(),
            (false, true) => error_text,
            (true, false) => last,
            (false, false) => format!("{error_text}: {last}"),
        };
        Err(CallError::new(severity(code), call, thing(), reason)
            .with_code(code.into())
            .or_try(way_out(code)))
    }

    /// The asynchronous error of a communicator.
    pub(super) fn met(&self, comm: RuntimeHandle, thing: &dyn Fn() -> String) -> CallResult<()> {
        let (call, mut met) = (self.ccl.async_error, 0);
        // SAFETY: a live communicator of this thread, and one number that is stored.
        let code = unsafe { (call.at)(comm, &raw mut met) };
        self.outcome((call.name, code), comm, thing)?;
        if met == IN_PROGRESS { Ok(()) } else { self.outcome((call.name, met), comm, thing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_both_encodings() {
        assert_eq!(dotted(23203), "2.32.3");
        assert_eq!(dotted(21104), "2.11.4");
        assert_eq!(dotted(2708), "2.7.8");
    }

    #[test]
    fn identifiers_have_different_marks() {
        let (a, mut b) = (CclUniqueId([7; 128]), CclUniqueId([7; 128]));
        assert_eq!(a.mark(), b.mark());
        b.0[127] = 8;
        assert_ne!(a.mark(), b.mark());
        assert_ne!(CclUniqueId([0; 128]).mark(), 0);
    }

    #[test]
    fn each_status_has_its_severity() {
        assert_eq!(severity(1), Severity::Sticky);
        assert_eq!(severity(5), Severity::Unsupported);
        assert_eq!(severity(3), Severity::Transient);
    }
}
