//! The functions of `include/pathline.h`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::batch_room::BatchRoom;
use crate::copy_error::{CopyError, CopyStatus};
use crate::fork::check_process;
use crate::helper_use::SharedHelpers;
use crate::node::CopyNode;
use crate::shared_node::NodeOptions;

/// `pl_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct pl_options {
    /// `sizeof(pl_options)`.
    pub size: usize,
    /// GPUs that may relay; null is all.
    pub helpers: *const c_int,
    /// Their number.
    pub helper_count: usize,
    /// Copies below this are plain, bytes; 0 is 4 MiB.
    pub threshold: usize,
    /// Staging memory on each helper, bytes; 0 is 8 MiB.
    pub staging: usize,
    /// Least predicted gain; 0 is 1.15.
    pub min_gain: f64,
    /// `cuda=PATH` or `hip=PATH`; null searches.
    pub library: *const c_char,
    /// Path of a machine file of this node; null probes. Not in the first version of this structure.
    pub twin: *const c_char,
    /// Whether other processes use helpers: 0 looks, 1 says so, -1 that none does.
    pub shared_helpers: c_int,
    /// Most threads that copy pageable memory: 0 as many as help, -1 none.
    pub copy_threads: c_int,
    /// Most multiprocessors of a kernel that copies ranges of a batch; 0 is 16, -1 makes none.
    pub max_multiprocessors: c_int,
    /// Not used.
    pub reserved: c_int,
}

/// Bytes of earlier versions of [`pl_options`].
const EARLIER_OPTIONS: [usize; 2] =
    [offset_of!(pl_options, twin), offset_of!(pl_options, max_multiprocessors)];

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
/// Most threads that options may ask for.
const MOST_THREADS: usize = 64;

/// Most copies of one batch: beyond it the arguments are taken for garbage.
const MAX_COUNT: usize = 1 << 24;

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

/// The elements behind a pointer of the caller.
unsafe fn list<'a, T>(name: &str, at: *const T, count: usize) -> Result<&'a [T], CopyError> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() {
        return Err(CopyError::invalid(format!("{name} is null or misaligned")));
    }
    if count > MAX_COUNT {
        return Err(CopyError::invalid(format!(
            "{name} has {count} elements: at most {MAX_COUNT}"
        )));
    }
    // SAFETY: the header demands that many elements.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
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

unsafe fn read_options(options: *const pl_options) -> Result<NodeOptions, CopyError> {
    if options.is_null() {
        return Ok(NodeOptions::default());
    }
    if !options.is_aligned() {
        return Err(CopyError::invalid("options is misaligned"));
    }
    // SAFETY: the header demands at least its first member.
    let size = unsafe { (&raw const (*options).size).read() };
    let own = size_of::<pl_options>();
    if !EARLIER_OPTIONS.contains(&size) && size != own {
        let text = format!(
            "pl_options has {size} bytes and this library's {own}, once {EARLIER_OPTIONS:?}: set options.size"
        );
        return Err(CopyError::invalid(text));
    }
    let mut given = MaybeUninit::<pl_options>::zeroed();
    // SAFETY: the caller's structure has that many bytes; for all members, zero is a value.
    let given = unsafe {
        std::ptr::copy_nonoverlapping(options.cast::<u8>(), given.as_mut_ptr().cast(), size);
        given.assume_init()
    };
    let helpers = if given.helpers.is_null() {
        None
    } else {
        // SAFETY: the header demands that many numbers.
        Some(unsafe { list("helpers", given.helpers, given.helper_count)? }.to_vec())
    };
    let library = if given.library.is_null() {
        None
    } else {
        // SAFETY: the header demands a C string.
        let text = unsafe { CStr::from_ptr(given.library) }.to_string_lossy().into_owned();
        let (name, path) = text.split_once('=').unwrap_or(("", ""));
        if !["cuda", "hip"].contains(&name) || path.is_empty() {
            let text = format!("library is {text:?}: write cuda=PATH or hip=PATH");
            return Err(CopyError::invalid(text));
        }
        Some((name.to_owned(), PathBuf::from(path)))
    };
    let twin = match given.twin.is_null() {
        true => None,
        false => {
            // SAFETY: the header demands a C string.
            let path = unsafe { CStr::from_ptr(given.twin) };
            Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
        }
    };
    let (threshold, min_gain) = (given.threshold, given.min_gain);
    let staging = given.staging as u64;
    let shared_helpers = match given.shared_helpers {
        0 => SharedHelpers::Look,
        1 => SharedHelpers::Always,
        -1 => SharedHelpers::Never,
        other => {
            let text = format!("shared_helpers is {other}: 0 looks, 1 and -1 decide");
            return Err(CopyError::invalid(text));
        }
    };
    let copy_threads = match given.copy_threads {
        0 => None,
        -1 => Some(0),
        threads => match usize::try_from(threads).ok().filter(|threads| *threads <= MOST_THREADS) {
            Some(threads) => Some(threads),
            None => {
                let text = format!(
                    "copy_threads is {threads}: 1 to {MOST_THREADS}, 0 for as many as help, -1 for none"
                );
                return Err(CopyError::invalid(text));
            }
        },
    };
    Ok(NodeOptions {
        helpers,
        threshold,
        min_gain,
        staging,
        probe_bytes: 0,
        library,
        twin,
        shared_helpers,
        copy_threads,
        max_multiprocessors: given.max_multiprocessors,
        blocks: None,
    })
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
