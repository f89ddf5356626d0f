//! Options of the C interface, and lists that callers pass.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::copy_error::CopyError;
use crate::helper_use::SharedHelpers;
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
    /// Most multiprocessors of a kernel that copies ranges of a batch; 0 is 8, -1 makes none.
    pub max_multiprocessors: c_int,
    /// Not used.
    pub reserved: c_int,
}

/// Bytes of earlier versions of [`pl_options`].
const EARLIER_OPTIONS: [usize; 2] =
    [offset_of!(pl_options, twin), offset_of!(pl_options, max_multiprocessors)];

/// Most threads that options may ask for.
const MOST_THREADS: usize = 64;

/// Most copies of one batch: beyond it the arguments are taken for garbage.
const MAX_COUNT: usize = 1 << 24;

/// The elements behind a pointer of the caller.
pub(crate) unsafe fn list<'a, T>(
    name: &str,
    at: *const T,
    count: usize,
) -> Result<&'a [T], CopyError> {
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

/// The options behind a pointer of the caller; null is all defaults.
pub(crate) unsafe fn read_options(options: *const pl_options) -> Result<NodeOptions, CopyError> {
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
