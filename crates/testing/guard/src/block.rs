//! Blocks of memory, each followed by an inaccessible page, or by filler bytes only.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use crate::message::StderrLine;
use crate::table::{self, PAGE};

/// Smaller blocks have filler only: a process has too many of them.
const SMALLEST_PAGED: usize = 64;
/// Filler bytes behind a block without a page.
const FILLING: usize = 32;
const FILL_BYTE: u8 = 0xa5;
const MAGIC: usize = 0x7061_7468_6c69_6e65;

/// The header before each block.
#[repr(C)]
struct BlockHeader {
    /// Identifies a block: [`MAGIC`] combined with its address.
    magic: usize,
    /// Requested bytes.
    bytes: usize,
    /// Start of the mapping, or of the C library's block.
    base: usize,
    /// Bytes of the mapping with its page; 0 for a block of the C library.
    mapped: usize,
    /// Its number in the table, if it has a page.
    slot: usize,
    /// Filler bytes behind the block.
    filling: usize,
}

const HEADER: usize = size_of::<BlockHeader>();

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_free(at: *mut c_void);
}

/// A block of that size; `None` without memory. `align` is a power of two of at least 16.
pub(crate) fn allocate(bytes: usize, align: usize) -> Option<NonNull<c_void>> {
    let paged = bytes >= SMALLEST_PAGED && align <= PAGE;
    let found = if paged { with_page(bytes, align) } else { None };
    found.or_else(|| with_filling(bytes, align))
}

/// A block that ends, except for its alignment, where an inaccessible page begins.
fn with_page(bytes: usize, align: usize) -> Option<NonNull<c_void>> {
    let slot = table::take()?;
    let made = map(bytes, align, slot);
    if made.is_none() {
        table::give_back(slot);
    }
    made
}

fn map(bytes: usize, align: usize, slot: usize) -> Option<NonNull<c_void>> {
    let room = bytes.checked_add(HEADER + align)?.checked_next_multiple_of(PAGE)?;
    let mapped = room.checked_add(PAGE)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address that the kernel chooses, whose last page is then closed.
    let base = unsafe {
        let base = libc::mmap(ptr::null_mut(), mapped, access, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return None;
        }
        if libc::mprotect(base.wrapping_byte_add(room), PAGE, libc::PROT_NONE) != 0 {
            libc::munmap(base, mapped);
            return None;
        }
        base
    };
    let end = base.addr() + room;
    let at = (end - bytes) & !(align - 1);
    let filling = end - at - bytes;
    let block = base.with_addr(at);
    let header = BlockHeader { magic: MAGIC ^ at, bytes, base: base.addr(), mapped, slot, filling };
    // SAFETY: header, block and filling lie in the open part of the mapping: `room` has space for
    // all three. The address of the header is a multiple of 16, as that of the block is.
    unsafe {
        block.wrapping_byte_sub(HEADER).cast::<BlockHeader>().write(header);
        block.cast::<u8>().add(bytes).write_bytes(FILL_BYTE, filling);
    }
    table::enter(slot, at, bytes);
    NonNull::new(block)
}

/// A block of the C library, followed by filler.
fn with_filling(bytes: usize, align: usize) -> Option<NonNull<c_void>> {
    let room = bytes.checked_add(HEADER + align + FILLING)?;
    // SAFETY: it takes any size.
    let base = NonNull::new(unsafe { __libc_malloc(room) })?.as_ptr();
    let at = (base.addr() + HEADER).next_multiple_of(align);
    let block = base.with_addr(at);
    let base = base.addr();
    let header =
        BlockHeader { magic: MAGIC ^ at, bytes, base, mapped: 0, slot: 0, filling: FILLING };
    // SAFETY: header, block and filling lie in what was allocated.
    unsafe {
        block.wrapping_byte_sub(HEADER).cast::<BlockHeader>().write(header);
        block.cast::<u8>().add(bytes).write_bytes(FILL_BYTE, FILLING);
    }
    NonNull::new(block)
}

/// The header of a block. An invalid one ends the process.
///
/// # Safety
/// `at` is a block, or at least an address with a header's size of memory before it.
unsafe fn header(at: NonNull<c_void>) -> NonNull<BlockHeader> {
    let address = at.as_ptr().addr();
    let header = at.as_ptr().wrapping_byte_sub(HEADER).cast::<BlockHeader>();
    // SAFETY: the caller's promise.
    let magic = if address.is_multiple_of(16) { unsafe { (*header).magic } } else { 0 };
    match NonNull::new(header) {
        Some(header) if magic == MAGIC ^ address => header,
        _ => {
            let mut line = StderrLine::new();
            line.text(
                "no block of memory, one that was freed, or one that was written before, at ",
            );
            line.hex(address);
            line.end_process()
        }
    }
}

/// Requested bytes.
///
/// # Safety
/// `at` is a block.
pub(crate) unsafe fn requested(at: NonNull<c_void>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { header(at).as_ref().bytes }
}

/// Checks a block's filler and frees the block.
///
/// # Safety
/// `at` is a block that is no longer used.
pub(crate) unsafe fn release(at: NonNull<c_void>) {
    // SAFETY: the caller's promise.
    let header = unsafe { header(at).as_ptr() };
    // SAFETY: the header was just checked; `filling` bytes of filler follow the block.
    let (BlockHeader { bytes, base, mapped, slot, filling, .. }, damage) = unsafe {
        let known = header.read();
        let behind = at.as_ptr().cast::<u8>().add(known.bytes);
        let wrong = (0..known.filling).find(|&nth| behind.add(nth).read() != FILL_BYTE);
        (known, wrong)
    };
    if let Some(nth) = damage {
        let mut line = StderrLine::new();
        line.text("byte ").number(nth + 1).text(" behind a block of ").number(bytes);
        line.text(" bytes was written, of ")
            .number(filling)
            .text(" that are compared; it is freed now");
        line.end_process();
    }
    let base = at.as_ptr().with_addr(base);
    // SAFETY: a mapping, or a block of the C library's, that this header was made for. A mapping's
    // number is free once the memory is gone.
    unsafe {
        if mapped > 0 {
            table::leave(slot);
            libc::munmap(base, mapped);
            table::give_back(slot);
        } else {
            (*header).magic = 0;
            __libc_free(base);
        }
    }
}
