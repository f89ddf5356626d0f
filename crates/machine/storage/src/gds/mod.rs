//! GPU direct: I/O between a file and a GPU's memory by cuFile or hipFile, without pathline's host
//! memory in between. Whether the library uses a host bounce buffer is checked and recorded.

mod data_path;
mod library;
mod status;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pathline_hal::{CallError, CallResult};

use super::block_error::{BlockIo, partial_io_error};
use super::engine::{BlockEngine, FinishedIo, WorkerBlocks};
use super::io_error;
pub(super) use data_path::{DataPath, notes};
use library::{BoundGds, GdsDescr, GdsHandle, GdsStatus, OPAQUE_FD, bind, bound, optional};
pub(super) use library::{GdsLibrary, report, without};
use pathline_dylib::SharedLibrary;
pub(super) use status::of_io;

/// Makes a GPU current in this thread, as both libraries need it. A context of CUDA is held until the
/// process ends, as by the driver.
fn enter(kind: GdsLibrary, gpu: u32) -> CallResult<()> {
    let refuse = |why: &str| CallError::unsupported(kind.name(), format!("gpu{gpu}"), why);
    let code = match kind {
        GdsLibrary::CuFile => enter_cuda(gpu),
        GdsLibrary::HipFile => enter_hip(gpu),
    };
    match code {
        Ok(0) => Ok(()),
        Ok(code) => Err(refuse("it cannot be made current").with_code(code.into())),
        Err(why) => Err(refuse(&why)),
    }
}

fn enter_cuda(gpu: u32) -> std::result::Result<i32, String> {
    type GetContextFn = unsafe extern "C" fn(*mut i32, i32) -> i32;
    type RetainContextFn = unsafe extern "C" fn(*mut usize, i32) -> i32;
    type SetContextFn = unsafe extern "C" fn(usize) -> i32;
    let library = SharedLibrary::loaded("libcuda.so.1").ok_or("CUDA's driver is not open")?;
    let get = bind!(library, "cuDeviceGet", GetContextFn);
    let retain = bind!(library, "cuDevicePrimaryCtxRetain", RetainContextFn);
    let set = bind!(library, "cuCtxSetCurrent", SetContextFn);
    let (mut device, mut context) = (0, 0);
    // SAFETY: each stores one number; the driver was initialised before any of its memory was taken.
    Ok(unsafe {
        match get(&raw mut device, gpu.cast_signed()) {
            0 => match retain(&raw mut context, device) {
                0 => set(context),
                code => code,
            },
            code => code,
        }
    })
}

fn enter_hip(gpu: u32) -> std::result::Result<i32, String> {
    type SetDeviceFn = unsafe extern "C" fn(i32) -> i32;
    // The one that the driver has opened is in the process under one of these names.
    const RUNTIMES: [&str; 4] =
        ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
    let library = RUNTIMES.iter().find_map(|name| SharedLibrary::loaded(name));
    let library = library.ok_or("the HIP runtime is not open")?;
    let set = bind!(library, "hipSetDevice", SetDeviceFn);
    // SAFETY: it takes a number.
    Ok(unsafe { set(gpu.cast_signed()) })
}

/// Held by a worker from before it is [`ready`] until it knows its data path. cuFile 1.15.1 crashes
/// if one thread registers memory while another switches counting off: once in about ten cases of
/// three workers.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a GPU current in this thread and opens the library's driver, once in a process, which takes
/// more than a second. Whether it was now.
pub(super) fn ready(kind: GdsLibrary, gpu: u32) -> CallResult<bool> {
    let library =
        bound(kind).map_err(|why| CallError::unsupported(kind.name(), "GPU direct", why))?;
    enter(kind, gpu)?;
    open(library)
}

fn open(library: &'static BoundGds) -> CallResult<bool> {
    static CUFILE: OnceLock<GdsStatus> = OnceLock::new();
    static HIPFILE: OnceLock<GdsStatus> = OnceLock::new();
    let once = match library.kind {
        GdsLibrary::CuFile => &CUFILE,
        GdsLibrary::HipFile => &HIPFILE,
    };
    let mut now = false;
    let status = *once.get_or_init(|| {
        now = true;
        // SAFETY: it takes nothing, and is called once.
        unsafe { (library.open)() }
    });
    let done = status::outcome(library.kind, library.kind.names().open, "its driver", status);
    done.map(|()| now)
}

/// The same file once more. cuFile refuses descriptors that were opened with `O_NOFOLLOW` (status
/// 5019), as files that were made here are, and takes each descriptor once.
fn again(file: &File, write: bool) -> CallResult<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened =
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(&path);
    opened.map_err(|error| io_error::on("open", Path::new(&path), &error))
}

/// GPU direct in one worker: an I/O ends before the call returns.
#[derive(Debug)]
pub(super) struct GdsEngine {
    library: &'static BoundGds,
    handle: GdsHandle,
    blocks: WorkerBlocks,
    /// The registered file.
    _file: File,
    writes: bool,
    registered: bool,
    data_path: DataPath,
    next: Option<(u32, bool, u64)>,
}

impl GdsEngine {
    /// For the calling thread, which is [`ready`]. `blocks` lie in the GPU's memory.
    pub(super) fn new(kind: GdsLibrary, blocks: WorkerBlocks, writes: bool) -> CallResult<Self> {
        let library =
            bound(kind).map_err(|why| CallError::unsupported(kind.name(), "GPU direct", why))?;
        let file = again(&blocks.file, writes)?;
        let fd = file.as_raw_fd().cast_unsigned() as usize;
        let mut descriptor = GdsDescr { kind: OPAQUE_FD, fd, operations: ptr::null() };
        let mut handle = ptr::null_mut();
        // SAFETY: both live through the call; the descriptor stays open as long as this.
        let status = unsafe { (library.register_file)(&raw mut handle, &raw mut descriptor) };
        status::of_file(kind, kind.names().register_file, &file, status)?;
        let data_path = DataPath::Unknown;
        let (registered, next) = (false, None);
        Ok(Self { library, handle, blocks, _file: file, writes, registered, data_path, next })
    }

    /// Maps the slots' memory for the device.
    pub(super) fn register_memory(&mut self) -> CallResult<()> {
        let bytes = self.blocks.slots as usize * self.blocks.block as usize;
        // SAFETY: memory of the GPU that the caller holds until this is gone.
        let status = unsafe { (self.library.register_memory)(self.blocks.memory, bytes, 0) };
        let kind = self.library.kind;
        let thing = format!("{} of the GPU's memory", pathline_schema::Bytes(bytes as u64));
        status::outcome(kind, kind.names().register_memory, thing, status)?;
        self.registered = true;
        Ok(())
    }

    /// Does the first block and finds the data path that the library takes, unless `known` holds it
    /// from another worker of the job. No other thread may be in the library.
    pub(super) fn find_data_path(
        &mut self,
        path: &Path,
        offset: u64,
        known: &OnceLock<DataPath>,
    ) -> CallResult<()> {
        let (write, block) = (self.writes, self.blocks.block);
        let first = || self.transfer(0, write, offset);
        let (result, data_path) = match known.get() {
            Some(&data_path) => (first(), data_path),
            None => data_path::watch(self.library, write, first),
        };
        if result != block.cast_signed() {
            let block = BlockIo { write, offset, bytes: block };
            return Err(partial_io_error(
                self.call(),
                path,
                block,
                result,
                of_io(self.call(), -result),
            ));
        }
        self.data_path = *known.get_or_init(|| data_path);
        Ok(())
    }

    fn transfer(&self, slot: u32, write: bool, offset: u64) -> i32 {
        let call = if write { self.library.write } else { self.library.read };
        let block = self.blocks.block;
        let at = i64::from(slot) * i64::from(block);
        // SAFETY: a registered handle, and a block inside the registered memory of the GPU.
        let done = unsafe {
            call(self.handle, self.blocks.memory, block as usize, offset.cast_signed(), at)
        };
        let number = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        status::ended(done, number)
    }
}

impl BlockEngine for GdsEngine {
    fn call(&self) -> &'static str {
        let names = self.library.kind.names();
        if self.writes { names.write } else { names.read }
    }
    fn describe(&self) -> String {
        data_path::describe_path(self.library, self.data_path)
    }
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.next = Some((slot, write, offset));
    }
    fn enter(&mut self, _: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        let Some((slot, write, offset)) = self.next.take() else { return Ok(()) };
        ended.push((slot, self.transfer(slot, write, offset)));
        Ok(())
    }
    fn let_go(&mut self) -> Option<&'static str> {
        if !std::mem::take(&mut self.registered) {
            return None;
        }
        // SAFETY: registered once, let go once.
        unsafe { (self.library.deregister_memory)(self.blocks.memory) };
        Some(self.library.kind.names().deregister_memory)
    }
}

impl Drop for GdsEngine {
    fn drop(&mut self) {
        self.let_go();
        // SAFETY: registered by `new`, once.
        unsafe { (self.library.deregister_file)(self.handle) };
    }
}
