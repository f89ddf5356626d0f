//! The functions of `include/pathline.h`.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use crate::abi_options::pl_options;
use crate::abi_options::{list, read_options};
use crate::batch_room::BatchRoom;
use crate::copy_error::{CopyError, CopyStatus};
use crate::fork::check_process;
use crate::node::CopyNode;

/// `pl_place`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct pl_place {
    /// NUMA domain; -1 spreads pages over all.
    pub numa: c_int,
}

/// `pl_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(non_camel_case_types)]
pub struct pl_counters {
    /// `sizeof(pl_counters)`.
    pub size: usize,
    /// See [`crate::CopyCounters`] for this one and the following ones.
    pub plain: u64,
    /// Copies over several paths.
    pub multipath: u64,
    /// Their bytes.
    pub multipath_bytes: u64,
    /// Bytes that relays carried.
    pub relayed_bytes: u64,
    /// Chunks copied again.
    pub repeated: u64,
    /// Relays given up.
    pub lost: u64,
    /// Copies repeated plainly.
    pub fallbacks: u64,
    /// Size classes switched off.
    pub switched_off: u64,
    /// Copies of pageable memory by several threads.
    pub staged: u64,
    /// Their bytes.
    pub staged_bytes: u64,
    /// Ranges that kernels copied.
    pub blocks: u64,
    /// Ranges that the driver's call for many copied.
    pub batched_blocks: u64,
    /// Times that neither could be used.
    pub refused_blocks: u64,
}

/// Bytes of the first version of [`pl_counters`].
const FIRST_COUNTERS: usize = 9 * size_of::<u64>();
thread_local! {
    /// The text of this thread's last error.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn keep_error(error: &CopyError) -> CopyStatus {
    let text = error.text.replace('\0', " ");
    // A thread that ends has no place for the text any more.
    let _ = LAST_ERROR.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = CString::new(text).unwrap_or_default();
        }
    });
    error.status
}

/// Runs the body of a call; no panic leaves it. A forked process has no use for any.
#[inline]
fn enter(body: impl FnOnce() -> Result<(), CopyError>) -> CopyStatus {
    match catch_unwind(AssertUnwindSafe(|| check_process().and_then(|()| body()))) {
        Ok(Ok(())) => CopyStatus::Ok,
        Ok(Err(error)) => keep_error(&error),
        Err(_) => keep_error(&CopyError::new(CopyStatus::Internal, "a fault of libpathline")),
    }
}

/// The node of a handle.
#[inline]
unsafe fn node<'a>(node: *mut CopyNode) -> Result<&'a CopyNode, CopyError> {
    // SAFETY: null, or a handle of `pl_open` that is not closed, as the header demands.
    unsafe { node.as_ref() }.ok_or_else(|| CopyError::invalid("the node is a null pointer"))
}

/// Stores a result of a call.
unsafe fn store<T>(name: &str, out: *mut T, value: T) -> Result<(), CopyError> {
    if out.is_null() || !out.is_aligned() {
        return Err(CopyError::invalid(format!("{name} is null or misaligned")));
    }
    // SAFETY: the header demands room for a value.
    unsafe { out.write(value) };
    Ok(())
}

/// Opens a node.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_open(
    options: *const pl_options,
    out: *mut *mut CopyNode,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        store("the place of the node", out, std::ptr::null_mut())?;
        let node = CopyNode::open(&read_options(options)?)?;
        store("the place of the node", out, Box::into_raw(Box::new(node)))
    })
}

/// Copies and waits.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_copy(
    at: *mut CopyNode,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.copy(dst as u64, src as u64, n) })
}

/// Copies in the order of a stream.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_copy_async(
    at: *mut CopyNode,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    stream: *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.copy_async(dst as u64, src as u64, n, stream as usize) })
}

/// Copies several ranges in the order of a stream.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_copy_batch_async(
    at: *mut CopyNode,
    dst: *const *mut c_void,
    src: *const *const c_void,
    n: *const usize,
    count: usize,
    stream: *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        let (dst, src, n) =
            (list("dst", dst, count)?, list("src", src, count)?, list("n", n, count)?);
        let ends = dst.iter().zip(src).zip(n);
        let mut room = BatchRoom::take();
        let mut copies = std::mem::take(&mut room.copies);
        room.give_back();
        copies.extend(ends.map(|((&dst, &src), &n)| (dst as u64, src as u64, n)));
        let copied = node(at).and_then(|node| node.copy_batch_async(&copies, stream as usize));
        let room = BatchRoom { copies, ..BatchRoom::take() };
        room.give_back();
        copied
    })
}

/// Copies the same bytes to several GPUs.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_copy_to_all(
    at: *mut CopyNode,
    gpus: usize,
    gpu: *const c_int,
    dst: *const *mut c_void,
    src: *const c_void,
    n: usize,
    streams: *const *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        let (gpu, dst) = (list("gpu", gpu, gpus)?, list("dst", dst, gpus)?);
        let dst: Vec<(i32, u64)> = gpu.iter().zip(dst).map(|(&g, &d)| (g, d as u64)).collect();
        let streams: Option<Vec<usize>> = match streams.is_null() {
            true => None,
            false => Some(list("streams", streams, gpus)?.iter().map(|&s| s as usize).collect()),
        };
        node(at)?.copy_to_all(&dst, src as u64, n, streams.as_deref())
    })
}

/// Reads a range of a file into GPU memory and waits.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_load(
    at: *mut CopyNode,
    file: c_int,
    offset: u64,
    n: usize,
    dst: *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.load((file, offset), dst as u64, n, None) })
}

/// The same in the order of a stream.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_load_async(
    at: *mut CopyNode,
    file: c_int,
    offset: u64,
    n: usize,
    dst: *mut c_void,
    stream: *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.load((file, offset), dst as u64, n, Some(stream as usize)) })
}

/// Allocates memory of a GPU.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_device_alloc(
    at: *mut CopyNode,
    gpu: c_int,
    n: usize,
    out: *mut *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        store("the place of the address", out, std::ptr::null_mut())?;
        let address = node(at)?.device_alloc(gpu, n)?;
        store("the place of the address", out, address as *mut c_void)
    })
}

/// Frees memory of [`pl_device_alloc`].
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_device_free(at: *mut CopyNode, address: *mut c_void) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.device_free(address as u64) })
}

/// Allocates host memory that all GPUs reach.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_host_alloc(
    at: *mut CopyNode,
    n: usize,
    place: pl_place,
    out: *mut *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        store("the place of the address", out, std::ptr::null_mut())?;
        let numa = match place.numa {
            -1 => None,
            numa => Some(u32::try_from(numa).map_err(|_| CopyError::invalid("no such domain"))?),
        };
        let address = node(at)?.host_alloc(n, numa)?;
        store("the place of the address", out, address as *mut c_void)
    })
}

/// Maps shared memory and lets all GPUs reach it.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_host_attach(
    at: *mut CopyNode,
    fd: c_int,
    n: usize,
    out: *mut *mut c_void,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        store("the place of the address", out, std::ptr::null_mut())?;
        let address = node(at)?.host_attach(fd, n)?;
        store("the place of the address", out, address as *mut c_void)
    })
}

/// Frees host memory of this node.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_host_free(at: *mut CopyNode, address: *mut c_void) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe { node(at)?.host_free(address as u64) })
}

/// Describes how a copy would be made.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_explain(
    at: *mut CopyNode,
    dst: *const c_void,
    src: *const c_void,
    n: usize,
    text: *mut c_char,
    room: usize,
) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        if text.is_null() || room == 0 {
            return Err(CopyError::invalid("there is no room for a text"));
        }
        text.write(0);
        let plan = node(at)?.explain(dst as u64, src as u64, n)?;
        let length = plan.len().min(room - 1);
        std::ptr::copy_nonoverlapping(plan.as_ptr(), text.cast(), length);
        text.add(length).write(0);
        Ok(())
    })
}

/// Stores what a node has done.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_stats(at: *mut CopyNode, out: *mut pl_counters) -> CopyStatus {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        if out.is_null() || !out.is_aligned() {
            return Err(CopyError::invalid("the place of the counters is null or misaligned"));
        }
        let (size, own) = ((&raw const (*out).size).read(), size_of::<pl_counters>());
        if !(FIRST_COUNTERS..=own).contains(&size) || size % size_of::<u64>() != 0 {
            let text = format!("set counters.size to sizeof(pl_counters), here {own}");
            return Err(CopyError::invalid(text));
        }
        let of = node(at)?.counters();
        let counters = pl_counters {
            size,
            plain: of.plain,
            multipath: of.multipath,
            multipath_bytes: of.multipath_bytes,
            relayed_bytes: of.relayed_bytes,
            repeated: of.repeated,
            lost: of.lost,
            fallbacks: of.fallbacks,
            switched_off: of.switched_off,
            staged: of.staged,
            staged_bytes: of.staged_bytes,
            blocks: of.blocks,
            batched_blocks: of.batched_blocks,
            refused_blocks: of.refused_blocks,
        };
        // The caller's structure may end before the last counters.
        std::ptr::copy_nonoverlapping((&raw const counters).cast::<u8>(), out.cast(), size);
        Ok(())
    })
}

/// Waits for copies in flight and frees a node.
///
/// # Safety
/// As the header says.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_close(at: *mut CopyNode) {
    enter(|| {
        if !at.is_null() {
            // SAFETY: made by `pl_open`, and closed once, as the header demands.
            drop(unsafe { Box::from_raw(at) });
        }
        Ok(())
    });
}

/// The text of the last error of this thread.
// SAFETY: the prefix is this library's.
#[unsafe(no_mangle)]
pub extern "C" fn pl_last_error() -> *const c_char {
    let text = catch_unwind(|| LAST_ERROR.try_with(|last| last.borrow().as_ptr()).ok());
    text.ok().flatten().unwrap_or(c"".as_ptr())
}
