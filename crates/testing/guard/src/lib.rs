//! An allocator that detects writes past blocks of memory, including those of closed-source
//! libraries. A program runs under it by `LD_PRELOAD=libpathline_guard.so`.
//!
//! A block ends where an inaccessible page begins, so an access past it ends the process by SIGSEGV
//! in that instruction. Before that, one line on standard error gives the distance past the block,
//! the block's size, and the file with the instruction. Blocks whose size is no multiple of their
//! alignment have up to 15 filler bytes, which are checked when the block is freed. A separate page
//! costs two of the 65,530 mappings that Linux allows a process, so blocks beyond `table::SLOTS`,
//! and very small ones, have filler only. The C library's allocator serves those.
//!
//! A freed block is unmapped, which also detects use after free.
//!
//! This code must not allocate through Rust: that would recurse.
#![allow(unsafe_code)]

mod block;
mod message;
mod signal;
mod table;

use std::ffi::{c_int, c_void};
use std::ptr;

use block::{allocate, release, requested};

/// The alignment that `malloc` guarantees.
const ALIGN: usize = 16;

fn out_of_memory() -> *mut c_void {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

fn block_or_error(bytes: usize, align: usize) -> *mut c_void {
    allocate(bytes, align).map_or_else(out_of_memory, ptr::NonNull::as_ptr)
}

// SAFETY of all that follow: the names and signatures are those of the C library, whose callers keep
// its rules.

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    block_or_error(bytes, ALIGN)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(each) else { return out_of_memory() };
    let at = block_or_error(bytes, ALIGN);
    if !at.is_null() {
        // SAFETY: a fresh block of that size.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
    }
    at
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = ptr::NonNull::new(at) else { return block_or_error(bytes, ALIGN) };
    if bytes == 0 {
        // SAFETY: the caller gives the block back.
        unsafe { release(old) };
        return ptr::null_mut();
    }
    let new = block_or_error(bytes, ALIGN);
    if !new.is_null() {
        // SAFETY: both blocks have as many bytes and are apart; the caller gives the old one back.
        unsafe {
            ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), requested(old).min(bytes));
            release(old);
        }
    }
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(at: *mut c_void, count: usize, each: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(each) else { return out_of_memory() };
    // SAFETY: the caller's promise.
    unsafe { realloc(at, bytes) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(at: *mut c_void) {
    if let Some(at) = ptr::NonNull::new(at) {
        // SAFETY: the caller gives the block back.
        unsafe { release(at) };
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    match allocate(bytes, align.max(ALIGN)) {
        Some(at) => {
            // SAFETY: the caller has a place for an address.
            unsafe { out.write(at.as_ptr()) };
            0
        }
        None => libc::ENOMEM,
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    memalign(align, bytes)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => block_or_error(bytes, align.max(ALIGN)),
        None => out_of_memory(),
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> *mut c_void {
    block_or_error(bytes, table::PAGE)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(table::PAGE) {
        Some(bytes) => block_or_error(bytes, table::PAGE),
        None => out_of_memory(),
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> usize {
    // SAFETY: null, or a block.
    ptr::NonNull::new(at).map_or(0, |at| unsafe { requested(at) })
}
