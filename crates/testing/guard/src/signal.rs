//! The message when a process faults in the page behind a block.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use crate::message::StderrLine;
use crate::table;

/// Runs when the library is loaded. A program that later sets another handler dies without the
/// line.
// SAFETY: the section holds addresses of functions that take nothing, or what they do not look at.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // SAFETY: all zeros is such a structure, with an empty mask; the handler has this signature.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        action.sa_sigaction = handle as *const () as usize;
        libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
    }
}

/// Reports the fault. The default action is already restored, so the repeated instruction ends the
/// process.
extern "C" fn handle(_: c_int, info: *const libc::siginfo_t, context: *const c_void) {
    // SAFETY: the kernel fills it in for a fault.
    let address = unsafe { (*info).si_addr() }.addr();
    let mut line = StderrLine::new();
    match table::behind(address) {
        Some((offset, bytes)) => {
            line.text(access(context)).text(" byte ").number(offset + 1);
            line.text(" behind a block of ").number(bytes).text(" bytes");
        }
        None => {
            line.text(access(context)).text(" ").hex(address);
            line.text(", which is no memory, or a block that was freed");
        }
    }
    if let Some(file) = culprit(context) {
        line.text(" by code of ").bytes(file.to_bytes());
    }
    line.write();
}

#[cfg(target_arch = "x86_64")]
fn access(context: *const c_void) -> &'static str {
    /// Bit of the error code of a page fault (Intel SDM, volume 3, 4.7).
    const WRITE: i64 = 1 << 1;
    // SAFETY: the kernel hands over such a context.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let error = context.uc_mcontext.gregs[libc::REG_ERR as usize];
    if error & WRITE != 0 { "wrote" } else { "read" }
}

#[cfg(not(target_arch = "x86_64"))]
fn access(_: *const c_void) -> &'static str {
    "touched"
}

/// The file that contains the instruction.
#[cfg(target_arch = "x86_64")]
fn culprit(context: *const c_void) -> Option<&'static CStr> {
    // SAFETY: the kernel hands over such a context. The linker's text stays; a structure of zeros is
    // one, and is filled in.
    unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        let mut about: libc::Dl_info = MaybeUninit::zeroed().assume_init();
        let known = libc::dladdr(ptr::without_provenance(at), &raw mut about) != 0;
        (known && !about.dli_fname.is_null()).then(|| CStr::from_ptr(about.dli_fname))
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn culprit(_: *const c_void) -> Option<&'static CStr> {
    None
}
