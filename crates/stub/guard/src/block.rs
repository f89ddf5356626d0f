//! Blocks of memory: with a page behind them that nobody may touch, or with filling alone.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use crate::message::StderrLine;
use crate::table;

/// Of x86-64; where pages are larger, every block has filling alone.
pub(crate) const PAGE: usize = 4096;
/// Blocks below this have filling alone: a process has too many of them.
const SMALLEST_PAGED: usize = 64;
/// Filling behind a block without a page.
const FILLING: usize = 32;
const FILL_BYTE: u8 = 0xa5;
const MAGIC: usize = 0x7061_7468_6c69_6e65;

/// Right before each block.
#[repr(C)]
struct BlockHeader {
    /// Tells a block from anything else: [`MAGIC`] over its address.
    magic: usize,
    /// Bytes that were asked for.
    bytes: usize,
    /// Where the mapping, or the C library's block, begins.
    base: usize,
    /// Bytes of the mapping with its page; 0 for a block of the C library's.
    mapped: usize,
    /// Number in the table, if it has a page.
    slot: usize,
    /// Bytes of filling behind the block.
    filling: usize,
}

const HEADER: usize = size_of::<BlockHeader>();

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_free(at: *mut c_void);
}

/// A block of that size; none if there is no memory for it. `align` is a power of two of at least 16.
pub(crate) fn allocate(bytes: usize, align: usize) -> Option<NonNull<c_void>> {
    let paged = bytes >= SMALLEST_PAGED && align <= PAGE;
    let found = if paged { with_page(bytes, align) } else { None };
    found.or_else(|| with_filling(bytes, align))
}

/// A block that ends, but for its alignment, where a page begins that nobody may touch.
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

/// A block of the C library's with filling behind it.
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

/// The header of a block. Whatever is none ends the process.
///
/// # Safety
/// `at` is a block, or at least an address with as much memory before it as a header takes.
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

/// Bytes that were asked for.
///
/// # Safety
/// `at` is a block.
pub(crate) unsafe fn requested(at: NonNull<c_void>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { header(at).as_ref().bytes }
}

/// Frees a block, after a look at its filling.
///
/// # Safety
/// `at` is a block that nobody uses any more.
pub(crate) unsafe fn release(at: NonNull<c_void>) {
    // SAFETY: the caller's promise.
    let header = unsafe { header(at).as_ptr() };
    // SAFETY: the header was just checked; behind the block there is as much filling as it says.
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
