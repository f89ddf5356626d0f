//! GPU direct by cuFile, bound at run time. Signatures are those of `cufile.h` of CUDA 11.4 to 13.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use pathline_hal::{CallError, Result};

use super::engine::{Blocks, Ended, Engine};
use crate::library::{self, Library};

/// `CUfileError_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Status {
    file: i32,
    cuda: i32,
}

/// `CUfileDescr_t` with a Linux descriptor.
#[repr(C)]
struct Descriptor {
    kind: i32,
    // A union of a number and a pointer.
    fd: usize,
    operations: *const c_void,
}
/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`
const OPAQUE_FD: i32 = 1;

type Handle = *mut c_void;
type Open = unsafe extern "C" fn() -> Status;
type HandleRegister = unsafe extern "C" fn(*mut Handle, *mut Descriptor) -> Status;
type HandleDeregister = unsafe extern "C" fn(Handle);
type BufferRegister = unsafe extern "C" fn(u64, usize, i32) -> Status;
type BufferDeregister = unsafe extern "C" fn(u64) -> Status;
type Move = unsafe extern "C" fn(Handle, u64, usize, i64, i64) -> isize;

/// The functions.
#[derive(Debug, Clone, Copy)]
struct CuFile {
    open: Open,
    handle_register: HandleRegister,
    handle_deregister: HandleDeregister,
    buffer_register: BufferRegister,
    buffer_deregister: BufferDeregister,
    read: Move,
    write: Move,
}

/// Finds a symbol and takes it for a function of the field's type.
macro_rules! bind {
    ($library:expr, $name:literal, $signature:ty) => {{
        let at = $library.symbol($name).ok_or(concat!("it lacks ", $name))?;
        // SAFETY: the symbol has the signature of the field that it goes to, which the vendor's
        // header fixes.
        unsafe { std::mem::transmute::<*mut c_void, $signature>(at.as_ptr()) }
    }};
}

impl CuFile {
    fn bind(library: &Library) -> std::result::Result<Self, String> {
        Ok(Self {
            open: bind!(library, "cuFileDriverOpen", Open),
            handle_register: bind!(library, "cuFileHandleRegister", HandleRegister),
            handle_deregister: bind!(library, "cuFileHandleDeregister", HandleDeregister),
            buffer_register: bind!(library, "cuFileBufRegister", BufferRegister),
            buffer_deregister: bind!(library, "cuFileBufDeregister", BufferDeregister),
            read: bind!(library, "cuFileRead", Move),
            write: bind!(library, "cuFileWrite", Move),
        })
    }
}

/// The library, or why there is none; looked for once.
fn bound() -> std::result::Result<&'static CuFile, &'static str> {
    static BOUND: OnceLock<std::result::Result<CuFile, String>> = OnceLock::new();
    let bound = BOUND.get_or_init(|| {
        let (found, tried) = library::first(places(), |library| CuFile::bind(&library));
        found.ok_or_else(|| {
            let why = tried.last().map_or("", |t| t.why.as_str());
            format!("no libcufile.so.0 ({why}): it comes with the CUDA toolkit (libcufile), and LD_LIBRARY_PATH may name its folder")
        })
    });
    bound.as_ref().map_err(String::as_str)
}

fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("libcufile.so.0"), PathBuf::from("libcufile.so")];
    for toolkit in library::starting_with(Path::new("/usr/local"), "cuda").into_iter().rev() {
        for folder in ["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"] {
            let file = toolkit.join(folder).join("libcufile.so.0");
            if file.exists() {
                places.push(file);
            }
        }
    }
    places
}

/// Why GPU direct cannot be had; none if nothing is known against it.
pub(super) fn without() -> Option<String> {
    bound().err().map(str::to_owned)
}

/// Whether the kernel has the module by which the device and the GPU reach each other. Without it the
/// library reads into host memory and copies.
fn is_direct() -> bool {
    Path::new("/proc/driver/nvidia-fs").exists()
}

fn outcome(call: &str, status: Status) -> Result<()> {
    if status.file == 0 {
        return Ok(());
    }
    let reason = format!("status {} of cuFile, {} of CUDA", status.file, status.cuda);
    Err(CallError::unsupported(call, "GPU direct", reason)
        .with_code(status.file.into())
        .or_try("cufile.log in the working folder says more; without nvidia-fs, CUFILE_ALLOW_COMPAT_MODE=true"))
}

/// Makes a GPU's primary context current in this thread, which cuFile works in. It is held until the
/// process ends, as by the driver.
fn enter(gpu: u32) -> Result<()> {
    let refuse = |why: &str| CallError::unsupported("cuFile", format!("gpu{gpu}"), why);
    let library = Library::loaded("libcuda.so.1")
        .ok_or_else(|| refuse("CUDA's driver is not open: these GPUs are another vendor's"))?;
    type Get = unsafe extern "C" fn(*mut i32, i32) -> i32;
    type Retain = unsafe extern "C" fn(*mut usize, i32) -> i32;
    type Set = unsafe extern "C" fn(usize) -> i32;
    let calls = || -> std::result::Result<(Get, Retain, Set), String> {
        Ok((
            bind!(library, "cuDeviceGet", Get),
            bind!(library, "cuDevicePrimaryCtxRetain", Retain),
            bind!(library, "cuCtxSetCurrent", Set),
        ))
    };
    let (get, retain, set) = calls().map_err(|why| refuse(&why))?;
    let (mut device, mut context) = (0, 0);
    // SAFETY: each stores one number; the driver was initialised before any of its memory was taken.
    let code = unsafe {
        match get(&raw mut device, gpu.cast_signed()) {
            0 => match retain(&raw mut context, device) {
                0 => set(context),
                code => code,
            },
            code => code,
        }
    };
    if code == 0 {
        Ok(())
    } else {
        Err(refuse("its context cannot be entered").with_code(code.into()))
    }
}

/// The same file once more. cuFile refuses descriptors that were opened with `O_NOFOLLOW` (status
/// 5019, an invalid flag), as files that were made here are.
fn again(file: &File, write: bool) -> Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened =
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(&path);
    opened.map_err(|error| super::fault::on("open", Path::new(&path), &error))
}

/// cuFile in one worker: an I/O ends before the call returns.
#[derive(Debug)]
pub(super) struct Gds {
    calls: &'static CuFile,
    handle: Handle,
    blocks: Blocks,
    /// What is registered.
    _file: File,
    writes: bool,
    registered: bool,
    next: Option<(u32, bool, u64)>,
}

impl Gds {
    /// For the calling thread. `blocks` lie in the GPU's memory.
    pub(super) fn new(blocks: Blocks, gpu: u32, writes: bool) -> Result<Self> {
        let calls = bound().map_err(|why| CallError::unsupported("cuFile", "GPU direct", why))?;
        enter(gpu)?;
        static OPENED: OnceLock<Status> = OnceLock::new();
        // SAFETY: it takes nothing, and is called once.
        outcome("cuFileDriverOpen", *OPENED.get_or_init(|| unsafe { (calls.open)() }))?;
        let file = again(&blocks.file, writes)?;
        let fd = file.as_raw_fd().cast_unsigned() as usize;
        let mut descriptor = Descriptor { kind: OPAQUE_FD, fd, operations: ptr::null() };
        let mut handle = ptr::null_mut();
        // SAFETY: both live through the call; the descriptor stays open as long as this.
        let status = unsafe { (calls.handle_register)(&raw mut handle, &raw mut descriptor) };
        outcome("cuFileHandleRegister", status)?;
        Ok(Self { calls, handle, blocks, _file: file, writes, registered: false, next: None })
    }

    /// Maps the slots' memory for the device.
    pub(super) fn register_buffer(&mut self) -> Result<()> {
        let bytes = self.blocks.slots as usize * self.blocks.block as usize;
        // SAFETY: memory of the GPU that the caller holds until this is gone.
        let status = unsafe { (self.calls.buffer_register)(self.blocks.memory, bytes, 0) };
        outcome("cuFileBufRegister", status)?;
        self.registered = true;
        Ok(())
    }
}

impl Engine for Gds {
    fn call(&self) -> &'static str {
        if self.writes { "cuFileWrite" } else { "cuFileRead" }
    }
    fn words(&self) -> String {
        if is_direct() {
            "cuFile, nvidia-fs, registered buffers".to_owned()
        } else {
            "cuFile, compatibility mode (not direct)".to_owned()
        }
    }
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.next = Some((slot, write, offset));
    }
    fn enter(&mut self, _: u32, ended: &mut Vec<Ended>) -> io::Result<()> {
        let Some((slot, write, offset)) = self.next.take() else { return Ok(()) };
        let call = if write { self.calls.write } else { self.calls.read };
        let block = self.blocks.block;
        let at = i64::from(slot) * i64::from(block);
        // SAFETY: a registered handle, and a block inside the registered memory of the GPU.
        let done = unsafe {
            call(self.handle, self.blocks.memory, block as usize, offset.cast_signed(), at)
        };
        let result = match done {
            -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            other => i32::try_from(other).unwrap_or(-libc::EIO),
        };
        ended.push((slot, result));
        Ok(())
    }
    fn let_go(&mut self) -> Option<&'static str> {
        if !std::mem::take(&mut self.registered) {
            return None;
        }
        // SAFETY: registered once, let go once.
        unsafe { (self.calls.buffer_deregister)(self.blocks.memory) };
        Some("cuFileBufDeregister")
    }
}

impl Drop for Gds {
    fn drop(&mut self) {
        self.let_go();
        // SAFETY: registered by `new`, once.
        unsafe { (self.calls.handle_deregister)(self.handle) };
    }
}
