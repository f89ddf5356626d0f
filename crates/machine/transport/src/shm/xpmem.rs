//! xpmem: attaches memory of another process to this one's address space.

use std::ffi::{c_int, c_void};
use std::path::Path;

use pathline_dylib::{BoundLibrary, LibraryNames, LibrarySpec, SearchPlace, find};
use pathline_hal::{CallError, CallResult, LocalMemory};
use pathline_schema::Severity;

use crate::c_functions::c_functions;
use pathline_host::memory;

/// Device of the kernel module.
const DEVICE: &str = "/dev/xpmem";

/// `XPMEM_PERMIT_MODE` with a file mode: who may attach. Source: xpmem.h.
const BY_MODE: c_int = 1;
const OWNER: usize = 0o600;
const READ_WRITE: c_int = 2;

/// `struct xpmem_addr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct XpmemAddr {
    pub(super) apid: i64,
    pub(super) offset: libc::off_t,
}

c_functions! {
    /// The functions of `xpmem.h`. Functions that return a number or an address return -1 on failure.
    pub(super) XpmemApi;
    make = "xpmem_make" (*mut c_void, usize, c_int, *mut c_void) -> i64;
    remove = "xpmem_remove" (i64) -> c_int;
    get = "xpmem_get" (i64, c_int, c_int, *mut c_void) -> i64;
    release = "xpmem_release" (i64) -> c_int;
    attach = "xpmem_attach" (XpmemAddr, usize, *mut c_void) -> *mut c_void;
    detach = "xpmem_detach" (*mut c_void) -> c_int;
}

/// Opens the library; the error is why it cannot be used.
pub(super) fn open() -> std::result::Result<(XpmemApi, String), String> {
    if !Path::new(DEVICE).exists() {
        return Err(format!("no {DEVICE}: the kernel module xpmem is not loaded (modprobe xpmem)"));
    }
    let spec = LibrarySpec {
        what: "xpmem (libxpmem)",
        costs: "copies out of attached memory of another process are not measured",
        way_out: "install libxpmem",
        names: LibraryNames::Exact(&["libxpmem.so.0", "libxpmem.so"]),
        places: vec![SearchPlace::LinkerPath, SearchPlace::Linker],
        ..LibrarySpec::default()
    };
    let (found, report) = find(&spec, |library| {
        let value = XpmemApi::bind(library)?;
        Ok(BoundLibrary { value, version: String::new(), number: None })
    });
    found.zip(report.path).map(|(calls, path)| (calls, path.display().to_string())).ok_or_else(
        || {
            let why = report.tried.last().map_or("it was not found", |tried| tried.why.as_str());
            format!("{DEVICE} exists, but its library does not open: {why}; {}", report.way_out)
        },
    )
}

fn failed(call: &str, span: LocalMemory) -> CallError {
    let error = std::io::Error::last_os_error();
    let thing = format!("{} B at {:#x}", span.bytes, span.address);
    CallError::new(Severity::Unsupported, call, thing, error.to_string())
        .with_code(error.raw_os_error().unwrap_or(0).into())
        .or_try("see the kernel's log; use cma or shm instead")
}

/// Memory of this process, in whole pages, that others may attach.
pub(super) struct XpmemExport {
    calls: XpmemApi,
    pub(super) segment: i64,
}

impl XpmemExport {
    pub(super) fn new(calls: XpmemApi, span: LocalMemory) -> CallResult<Self> {
        let (start, len) = pages(span);
        // SAFETY: the call reads none of the memory; the range is the caller's while the exchange
        // is bound, and this goes before it.
        let segment =
            unsafe { (calls.make)(start as *mut c_void, len, BY_MODE, OWNER as *mut c_void) };
        if segment == -1 { Err(failed("xpmem_make", span)) } else { Ok(Self { calls, segment }) }
    }
}

impl Drop for XpmemExport {
    fn drop(&mut self) {
        // SAFETY: made by `new`, removed once.
        unsafe { (self.calls.remove)(self.segment) };
    }
}

/// Memory of another process, attached to this one.
pub(super) struct XpmemAttachment {
    calls: XpmemApi,
    access: i64,
    mapped: *mut c_void,
    skip: usize,
}

impl XpmemAttachment {
    /// Attaches memory of the process that exposed it as `segment`.
    pub(super) fn new(calls: XpmemApi, segment: i64, span: LocalMemory) -> CallResult<Self> {
        // SAFETY: the call takes numbers alone.
        let access = unsafe { (calls.get)(segment, READ_WRITE, BY_MODE, OWNER as *mut c_void) };
        if access == -1 {
            return Err(failed("xpmem_get", span));
        }
        let (start, len) = pages(span);
        let from = XpmemAddr { apid: access, offset: 0 };
        // SAFETY: at an address of the kernel's choice it takes nobody's memory.
        let mapped = unsafe { (calls.attach)(from, len, std::ptr::null_mut()) };
        if mapped as isize == -1 {
            // SAFETY: got above, released once.
            unsafe { (calls.release)(access) };
            return Err(failed("xpmem_attach", span));
        }
        Ok(Self { calls, access, mapped, skip: span.address as usize - start })
    }

    /// The address of the memory in this process.
    pub(super) fn at(&self) -> *const u8 {
        self.mapped.cast::<u8>().wrapping_add(self.skip)
    }
}

impl Drop for XpmemAttachment {
    fn drop(&mut self) {
        // SAFETY: attached and got by `new`; nothing uses the address after this.
        unsafe {
            (self.calls.detach)(self.mapped);
            (self.calls.release)(self.access);
        }
    }
}

/// The whole pages around a span: start and number of bytes.
fn pages(span: LocalMemory) -> (usize, usize) {
    let page = memory::page_size();
    let start = span.address as usize / page * page;
    let end = (span.address as usize + span.bytes as usize).next_multiple_of(page);
    (start, end - start)
}
