//! The functions of libucp, transcribed from its public headers.
//!
//! Structures that callers fill carry a mask of the fields that are set, and grow at their end
//! only: offsets are the same in the headers of 1.13 and 1.22. A library with more fields does not
//! read them, since their mask bits are not set.

use std::ffi::{c_char, c_void};

use crate::c_functions::c_functions;

/// A pointer that the library hands out.
pub(super) type UcxHandle = usize;
/// `ucs_status_t`: an enumeration packed into one byte.
pub(super) type UcxStatus = i8;
/// `ucs_status_ptr_t`: 0 if the operation is complete, a status in the last 100 values, or a
/// request.
pub(super) type PostedRequest = usize;

/// Complete.
pub(super) const OK: UcxStatus = 0;
/// Not yet complete.
pub(super) const IN_PROGRESS: UcxStatus = 1;
/// `UCS_ERR_UNSUPPORTED`.
pub(super) const UNSUPPORTED: UcxStatus = -22;
/// `UCS_ERR_LAST`: the lowest status.
const LAST_ERROR: isize = -100;

/// The result of a posted operation: `None` if it is complete.
#[inline(always)]
pub(super) fn posted(what: PostedRequest) -> Result<Option<UcxHandle>, UcxStatus> {
    let signed = what.cast_signed();
    match signed {
        0 => Ok(None),
        LAST_ERROR..0 => Err(UcxStatus::try_from(signed).unwrap_or(UcxStatus::MIN)),
        _ => Ok(Some(what)),
    }
}

/// The API whose fields are used. A library may be newer.
pub(super) const API: (u32, u32) = (1, 13);

/// `ucp_params_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct UcxParams {
    mask: u64,
    features: u64,
    request: [usize; 3],
    tag_sender_mask: u64,
    mt_workers_shared: i32,
    estimated_eps: usize,
    estimated_ppn: usize,
    rest: [usize; 4],
}
impl UcxParams {
    /// Features, endpoints, processes of the node.
    const MASK: u64 = 1 | 1 << 6 | 1 << 7;
    /// Features: tag matching and remote memory.
    const TAG_AND_RMA: u64 = 1 | 2;

    /// 64-bit atomic operations.
    const ATOMICS: u64 = 1 << 3;

    /// The same with atomic operations.
    pub(super) fn with_atomics(self) -> Self {
        Self { features: self.features | Self::ATOMICS, ..self }
    }

    /// For a process that communicates with `others` of its node.
    pub(super) fn new(others: usize) -> Self {
        Self {
            mask: Self::MASK,
            features: Self::TAG_AND_RMA,
            estimated_eps: others,
            estimated_ppn: others + 1,
            ..Self::default()
        }
    }
}

/// `ucp_worker_params_t`. The default thread mode is single-threaded.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct WorkerParams {
    mask: u64,
    rest: [u64; 28],
}

/// `ucp_ep_params_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct EpParams {
    mask: u64,
    address: usize,
    rest: [u64; 16],
}
impl EpParams {
    /// For a worker by its address, which must outlive this.
    pub(super) fn new(address: &[u8]) -> Self {
        Self { mask: 1, address: address.as_ptr() as usize, ..Self::default() }
    }
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct MapParams {
    mask: u64,
    address: usize,
    length: usize,
    rest: [u64; 8],
}
impl MapParams {
    /// For `length` bytes at an address.
    pub(super) fn new(address: usize, length: usize) -> Self {
        Self { mask: 1 | 2, address, length, ..Self::default() }
    }
}

/// `ucp_mem_attr_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct MapAttr {
    mask: u64,
    address: usize,
    length: usize,
    pub(super) memory_type: i32,
    rest: [u64; 8],
}
impl MapAttr {
    /// Requests the memory type.
    pub(super) fn of_type() -> Self {
        Self { mask: 1 << 2, ..Self::default() }
    }
}

/// `ucp_request_param_t`: how to post an operation. Without a datatype the unit is bytes.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct RequestParams {
    mask: u32,
    flags: u32,
    rest: [u64; 15],
}
impl RequestParams {
    /// Without options.
    pub(super) const fn plain() -> Self {
        Self { mask: 0, flags: 0, rest: [0; 15] }
    }
    /// One of several in flight: `UCP_OP_ATTR_FLAG_MULTI_SEND`.
    pub(super) const fn of_many() -> Self {
        Self { mask: 1 << 19, flags: 0, rest: [0; 15] }
    }
    /// Of one 64-bit integer, whose previous value goes to `reply` unless that is 0:
    /// `UCP_OP_ATTR_FIELD_DATATYPE`, `UCP_OP_ATTR_FIELD_REPLY_BUFFER`. A contiguous datatype is its
    /// size with three bits of a class, which are 0.
    pub(super) const fn of_word(reply: u64) -> Self {
        let mut rest = [0; 15];
        (rest[2], rest[4]) = (8 << 3, reply);
        Self { mask: 1 << 3 | ((reply != 0) as u32) << 5, flags: 0, rest }
    }
    /// Forces a request even if the operation completes at once, so that its protocol can be
    /// queried: `UCP_OP_ATTR_FLAG_NO_IMM_CMPL`.
    pub(super) const fn to_be_asked(many: bool) -> Self {
        Self { mask: 1 << 16 | (many as u32) << 19, flags: 0, rest: [0; 15] }
    }
}

/// `ucp_request_attr_t`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RequestAttr {
    mask: u64,
    text: *mut c_char,
    text_bytes: usize,
    status: UcxStatus,
    memory_type: i32,
    rest: [u64; 8],
}
impl RequestAttr {
    /// Requests the text, which is written to `room`.
    pub(super) fn of_text(room: &mut [u8]) -> Self {
        Self {
            mask: 1 | 2,
            text: room.as_mut_ptr().cast(),
            text_bytes: room.len(),
            status: OK,
            memory_type: 0,
            rest: [0; 8],
        }
    }
}

c_functions! {
    /// The functions of a library, the same in every release since 1.13.
    pub(super) Api;
    get_version = "ucp_get_version" (*mut u32, *mut u32, *mut u32);
    status_string = "ucs_status_string" (UcxStatus) -> *const c_char;
    config_read = "ucp_config_read" (*const c_char, *const c_char, *mut UcxHandle) -> UcxStatus;
    config_release = "ucp_config_release" (UcxHandle);
    config_modify = "ucp_config_modify" (UcxHandle, *const c_char, *const c_char) -> UcxStatus;
    config_print = "ucp_config_print" (UcxHandle, *mut libc::FILE, *const c_char, u32);
    init_version = "ucp_init_version" (u32, u32, *const UcxParams, UcxHandle, *mut UcxHandle) -> UcxStatus;
    cleanup = "ucp_cleanup" (UcxHandle);
    worker_create = "ucp_worker_create" (UcxHandle, *const WorkerParams, *mut UcxHandle) -> UcxStatus;
    worker_destroy = "ucp_worker_destroy" (UcxHandle);
    worker_get_address = "ucp_worker_get_address" (UcxHandle, *mut UcxHandle, *mut usize) -> UcxStatus;
    worker_release_address = "ucp_worker_release_address" (UcxHandle, UcxHandle);
    worker_progress = "ucp_worker_progress" (UcxHandle) -> u32;
    ep_create = "ucp_ep_create" (UcxHandle, *const EpParams, *mut UcxHandle) -> UcxStatus;
    ep_close = "ucp_ep_close_nbx" (UcxHandle, *const RequestParams) -> PostedRequest;
    ep_flush = "ucp_ep_flush_nbx" (UcxHandle, *const RequestParams) -> PostedRequest;
    ep_print_info = "ucp_ep_print_info" (UcxHandle, *mut libc::FILE);
    mem_map = "ucp_mem_map" (UcxHandle, *const MapParams, *mut UcxHandle) -> UcxStatus;
    mem_unmap = "ucp_mem_unmap" (UcxHandle, UcxHandle) -> UcxStatus;
    mem_query = "ucp_mem_query" (UcxHandle, *mut MapAttr) -> UcxStatus;
    rkey_pack = "ucp_rkey_pack" (UcxHandle, UcxHandle, *mut UcxHandle, *mut usize) -> UcxStatus;
    rkey_buffer_release = "ucp_rkey_buffer_release" (UcxHandle);
    rkey_unpack = "ucp_ep_rkey_unpack" (UcxHandle, *const u8, *mut UcxHandle) -> UcxStatus;
    rkey_destroy = "ucp_rkey_destroy" (UcxHandle);
    tag_send = "ucp_tag_send_nbx" (UcxHandle, *const c_void, usize, u64, *const RequestParams) -> PostedRequest;
    tag_receive = "ucp_tag_recv_nbx" (UcxHandle, *mut c_void, usize, u64, u64, *const RequestParams) -> PostedRequest;
    put = "ucp_put_nbx" (UcxHandle, *const c_void, usize, u64, UcxHandle, *const RequestParams) -> PostedRequest;
    get = "ucp_get_nbx" (UcxHandle, *mut c_void, usize, u64, UcxHandle, *const RequestParams) -> PostedRequest;
    atomic = "ucp_atomic_op_nbx" (UcxHandle, u32, *const c_void, usize, u64, UcxHandle, *const RequestParams) -> PostedRequest;
    request_status = "ucp_request_check_status" (UcxHandle) -> UcxStatus;
    request_query = "ucp_request_query" (UcxHandle, *mut RequestAttr) -> UcxStatus;
    request_free = "ucp_request_free" (UcxHandle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn offsets_are_those_of_the_headers() {
        // Printed by a C program with the headers of 1.13.1 and of 1.22.0: both the same.
        assert_eq!(offset_of!(UcxParams, features), 8);
        assert_eq!(offset_of!(UcxParams, estimated_eps), 56);
        assert_eq!(offset_of!(UcxParams, estimated_ppn), 64);
        assert_eq!(offset_of!(EpParams, address), 8);
        assert_eq!((offset_of!(MapParams, address), offset_of!(MapParams, length)), (8, 16));
        assert_eq!(offset_of!(MapAttr, memory_type), 24);
        assert_eq!(offset_of!(RequestParams, flags), 4);
        // The datatype is at 24 and the reply buffer at 40: fields 2 and 4 of the rest.
        assert_eq!(offset_of!(RequestParams, rest), 8);
        assert_eq!(offset_of!(RequestAttr, text), 8);
        assert_eq!(offset_of!(RequestAttr, text_bytes), 16);
        assert_eq!(
            (offset_of!(RequestAttr, status), offset_of!(RequestAttr, memory_type)),
            (24, 28)
        );
        // Sizes are at least those of 1.22, which reads only fields in the mask.
        assert!(size_of::<UcxParams>() >= 88 && size_of::<WorkerParams>() >= 200);
        assert!(size_of::<EpParams>() >= 104 && size_of::<MapParams>() >= 48);
        assert!(size_of::<MapAttr>() >= 32 && size_of::<RequestParams>() >= 96);
        assert!(size_of::<RequestAttr>() >= 32);
    }

    #[test]
    fn a_posted_operation_is_done_failed_or_a_request() {
        assert_eq!(posted(0), Ok(None));
        assert_eq!(posted((-6_isize).cast_unsigned()), Err(-6));
        assert_eq!(posted((-100_isize).cast_unsigned()), Err(-100));
        assert_eq!(posted(0x7f00_1234_5678), Ok(Some(0x7f00_1234_5678)));
    }
}
