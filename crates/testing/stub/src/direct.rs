//! cuFile and hipFile: real files to and from GPU memory, as both libraries do it without a direct
//! path: `pread` into host memory, then a copy by the runtime in the same folder.
//!
//! Refusals follow the observed behaviour of cuFile 1.15.1 (of CUDA 13) and the sources of hipFile
//! 0.2.0.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::sibling;
use crate::spec::{ReportedPath, StubFault, StubSpec};
use crate::streams::StubHandle;

/// `CUfileOpError` and `hipFileOpError_t`, which share their numbers.
const NO_DRIVER: i32 = 5001;
const NOT_SUPPORTED: i32 = 5008;
const RUNTIME_ERROR: i32 = 5011;
const POINTER_INVALID: i32 = 5012;
const POINTER_RANGE: i32 = 5014;
const MAPPING_RANGE: i32 = 5017;
const FILE_TYPE: i32 = 5018;
const OPEN_FLAG: i32 = 5019;
const INVALID_VALUE: i32 = 5022;
const MEMORY_REGISTERED: i32 = 5023;
const MEMORY_NOT_REGISTERED: i32 = 5024;
const HANDLE_NOT_REGISTERED: i32 = 5027;
const HANDLE_REGISTERED: i32 = 5028;
const INTERNAL: i32 = 5030;
/// First number of the libraries' own statuses.
const BASE: i32 = 5000;

/// `CUfileError_t` and `hipFileError_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StubFileError {
    own: i32,
    runtime: i32,
}

const FINE: StubFileError = StubFileError { own: 0, runtime: 0 };

/// The result of a call.
type DirectResult<T = ()> = Result<T, StubFileError>;

fn refuse<T>(own: i32) -> DirectResult<T> {
    Err(StubFileError { own, runtime: 0 })
}

/// The vendor of this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectLibrary {
    CuFile,
    HipFile,
}

/// `CUfileDescr_t` and `hipFileDescr_t` with a descriptor of Linux.
#[repr(C)]
struct StubFileDescr {
    kind: i32,
    // A union of a number and a pointer.
    _gap: i32,
    fd: i32,
    _rest: i32,
    _operations: *const c_void,
}

/// Counters of one GPU, reads and writes by path, in 64-bit fields of `CUfilePerGpuStats_t`.
const GPU_WORDS: usize = 31;
const FIRST_GPU: usize = 129;
const NUMBER_OF_GPUS: usize = 128;
const ALL_WORDS: usize = 625;

/// The state of the library.
struct DirectWorld {
    spec: StubSpec,
    calls: BTreeMap<&'static str, u64>,
    made: StubHandle,
    /// By handle, the given descriptor and the one used for I/O.
    files: BTreeMap<StubHandle, (c_int, c_int)>,
    memory: BTreeMap<u64, usize>,
    level: i32,
    counting: bool,
    counted: [u64; GPU_WORDS],
}

static WORLD: Mutex<Option<DirectWorld>> = Mutex::new(None);

fn with<T>(body: impl FnOnce(&mut DirectWorld) -> T) -> T {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    body(guard.get_or_insert_with(|| DirectWorld {
        spec: StubSpec::from_env().unwrap_or_default(),
        calls: BTreeMap::new(),
        made: 0,
        files: BTreeMap::new(),
        memory: BTreeMap::new(),
        level: 0,
        counting: false,
        counted: [0; GPU_WORDS],
    }))
}

/// The injected fault of a call. Delays and hangs happen here, without the lock.
fn struck(name: &'static str) -> Option<StubFault> {
    let blow = with(|world| world.spec.strike(&mut world.calls, name));
    match blow {
        Some(StubFault::Crashes) => crate::entry::crash(),
        Some(StubFault::Hangs) => loop {
            std::thread::park();
        },
        Some(StubFault::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
            None
        }
        other => other,
    }
}

fn call(name: &'static str, body: impl FnOnce(&mut DirectWorld) -> DirectResult) -> StubFileError {
    if let Some(StubFault::Fails(own)) = struck(name) {
        return StubFileError { own, runtime: 0 };
    }
    with(body).err().unwrap_or(FINE)
}

type DirectCopy = unsafe extern "C" fn(u64, u64, usize) -> i32;
type DirectRange = unsafe extern "C" fn(*mut u64, *mut usize, u64) -> i32;

/// A function of the runtime in the same folder.
fn runtime(family: DirectLibrary, cuda: &CStr, hip: &CStr) -> DirectResult<usize> {
    let found = match family {
        DirectLibrary::CuFile => sibling::symbol("libcuda.so.1", cuda),
        DirectLibrary::HipFile => sibling::symbol("libamdhip64.so.", hip),
    };
    found.ok_or(StubFileError { own: INTERNAL, runtime: 0 })
}

/// Copies between host memory and a GPU's. The error is the runtime's status.
fn copy(family: DirectLibrary, to_gpu: bool, dst: u64, src: u64, bytes: usize) -> DirectResult {
    let at = match to_gpu {
        true => runtime(family, c"cuMemcpyHtoD_v2", c"hipMemcpyHtoD"),
        false => runtime(family, c"cuMemcpyDtoH_v2", c"hipMemcpyDtoH"),
    }?;
    // SAFETY: the function has this signature; it checks the GPU's end, and the caller holds the host's.
    let code = unsafe { std::mem::transmute::<usize, DirectCopy>(at)(dst, src, bytes) };
    if code == 0 { Ok(()) } else { Err(StubFileError { own: RUNTIME_ERROR, runtime: code }) }
}

/// Bytes of GPU memory from an address on.
fn room(family: DirectLibrary, address: u64) -> DirectResult<u64> {
    let at = runtime(family, c"cuMemGetAddressRange_v2", c"hipMemGetAddressRange")?;
    let (mut start, mut bytes) = (0u64, 0usize);
    // SAFETY: the function has this signature, and both results live through the call.
    let code = unsafe {
        std::mem::transmute::<usize, DirectRange>(at)(&raw mut start, &raw mut bytes, address)
    };
    match (code, family) {
        (0, _) => Ok(start + bytes as u64 - address),
        (crate::status::INVALID_VALUE, DirectLibrary::CuFile) => refuse(POINTER_INVALID),
        (crate::status::INVALID_VALUE, DirectLibrary::HipFile) => refuse(INVALID_VALUE),
        (runtime, _) => Err(StubFileError { own: RUNTIME_ERROR, runtime }),
    }
}

fn open_driver(family: DirectLibrary, world: &DirectWorld) -> DirectResult {
    let forbidden = std::env::var("CUFILE_ALLOW_COMPAT_MODE").is_ok_and(|v| v == "false");
    if family == DirectLibrary::CuFile && forbidden && world.spec.path == ReportedPath::Posix {
        return refuse(NO_DRIVER);
    }
    Ok(())
}

/// # Safety
/// Both are null or valid for the libraries' function.
unsafe fn register_file(
    family: DirectLibrary,
    world: &mut DirectWorld,
    out: *mut StubHandle,
    descriptor: *const StubFileDescr,
) -> DirectResult {
    // SAFETY: the caller's promise.
    let (Some(out), Some(file)) = (unsafe { out.as_mut() }, unsafe { descriptor.as_ref() }) else {
        return refuse(INVALID_VALUE);
    };
    open_driver(family, world)?;
    if file.kind != 1 {
        return refuse(if family == DirectLibrary::CuFile { INVALID_VALUE } else { NOT_SUPPORTED });
    }
    // SAFETY: all zeros is such a structure, which the call fills; a bad descriptor is an error.
    let (flags, about) = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        let flags = libc::fcntl(file.fd, libc::F_GETFL);
        if flags < 0 || libc::fstat(file.fd, &raw mut about) != 0 {
            return refuse(if family == DirectLibrary::CuFile { INVALID_VALUE } else { INTERNAL });
        }
        (flags, about)
    };
    if world.files.values().any(|(given, _)| *given == file.fd) {
        return refuse(HANDLE_REGISTERED);
    }
    let used = match family {
        DirectLibrary::CuFile => {
            if !matches!(about.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK) {
                return refuse(FILE_TYPE);
            }
            if flags & libc::O_NOFOLLOW != 0 {
                return refuse(OPEN_FLAG);
            }
            file.fd
        }
        // Through the page cache, independent of the program's flags.
        DirectLibrary::HipFile => {
            let path = format!("/proc/self/fd/{}\0", file.fd);
            // SAFETY: the path is a C string.
            let used = unsafe {
                libc::open(path.as_ptr().cast(), flags & !libc::O_DIRECT | libc::O_CLOEXEC)
            };
            if used < 0 {
                return refuse(INTERNAL);
            }
            used
        }
    };
    world.made += 64;
    world.files.insert(world.made, (file.fd, used));
    *out = world.made;
    Ok(())
}

fn forget_file(family: DirectLibrary, world: &mut DirectWorld, handle: StubHandle) {
    if let (Some((_, used)), DirectLibrary::HipFile) = (world.files.remove(&handle), family) {
        // SAFETY: it was opened by `register_file`, and is closed once.
        unsafe { libc::close(used) };
    }
}

fn register_memory(
    family: DirectLibrary,
    world: &mut DirectWorld,
    address: u64,
    bytes: usize,
) -> DirectResult {
    if address == 0 || bytes == 0 {
        return refuse(INVALID_VALUE);
    }
    if world.memory.contains_key(&address) {
        return refuse(MEMORY_REGISTERED);
    }
    if room(family, address)? < bytes as u64 {
        return refuse(POINTER_RANGE);
    }
    world.memory.insert(address, bytes);
    Ok(())
}

/// One requested read or write.
#[derive(Debug, Clone, Copy)]
struct DirectIo {
    family: DirectLibrary,
    name: &'static str,
    write: bool,
    handle: StubHandle,
    base: u64,
    bytes: usize,
    offset: i64,
    at: i64,
}

/// The failure of an I/O: an error number of the kernel, or a status of the library.
enum DirectFailure {
    Number(i32),
    Status(i32),
}

impl DirectIo {
    fn run(self) -> isize {
        let failure = match self.transfer() {
            Ok(done) => return done as isize,
            Err(failure) => failure,
        };
        let number = match (failure, self.family) {
            // cuFile stores its own statuses in errno.
            (DirectFailure::Number(number), _)
            | (DirectFailure::Status(number), DirectLibrary::CuFile) => number,
            (DirectFailure::Status(status), DirectLibrary::HipFile) => return -(status as isize),
        };
        // SAFETY: it is this thread's own.
        unsafe { *libc::__errno_location() = number };
        -1
    }

    fn transfer(self) -> Result<usize, DirectFailure> {
        let blow = struck(self.name);
        match blow {
            Some(StubFault::Fails(code)) if code < BASE => return Err(DirectFailure::Number(code)),
            Some(StubFault::Fails(code)) => return Err(DirectFailure::Status(code)),
            _ => {}
        }
        let Some((_, fd)) = with(|world| world.files.get(&self.handle).copied()) else {
            return Err(match self.family {
                DirectLibrary::CuFile => DirectFailure::Number(libc::EINVAL),
                DirectLibrary::HipFile => DirectFailure::Status(HANDLE_NOT_REGISTERED),
            });
        };
        if self.offset < 0 || self.at < 0 {
            return Err(DirectFailure::Status(INVALID_VALUE));
        }
        let known = with(|world| world.memory.get(&self.base).map(|bytes| *bytes as u64));
        let runtime = |status: StubFileError| match status.runtime {
            0 => DirectFailure::Status(status.own),
            code => DirectFailure::Number(code),
        };
        let room = known.map_or_else(|| room(self.family, self.base).map_err(runtime), Ok)?;
        if self.at as u64 + self.bytes as u64 > room {
            return Err(DirectFailure::Status(match self.family {
                DirectLibrary::CuFile => MAPPING_RANGE,
                DirectLibrary::HipFile => INVALID_VALUE,
            }));
        }
        let short = matches!(blow, Some(StubFault::Short));
        let bytes = if short { self.bytes / 2 } else { self.bytes };
        let mut stage = BouncePages::new(bytes);
        let gpu = self.base + self.at as u64;
        if self.write {
            copy(self.family, false, stage.address(), gpu, bytes).map_err(runtime)?;
        }
        if self.write && matches!(blow, Some(StubFault::Corrupts)) {
            stage.spoil(bytes / 2);
        }
        let done = self.exchange(fd, &mut stage, bytes)?;
        if !self.write {
            if matches!(blow, Some(StubFault::Corrupts)) {
                stage.spoil(done / 2);
            }
            copy(self.family, true, gpu, stage.address(), done).map_err(runtime)?;
        }
        with(|world| world.count(self.family, self.write));
        Ok(done)
    }

    fn exchange(
        self,
        fd: c_int,
        stage: &mut BouncePages,
        bytes: usize,
    ) -> Result<usize, DirectFailure> {
        let at = stage.address() as *mut c_void;
        // SAFETY: the staging buffer holds the given number of bytes.
        let done = unsafe {
            match self.write {
                true => libc::pwrite(fd, at, bytes, self.offset),
                false => libc::pread(fd, at, bytes, self.offset),
            }
        };
        if done < 0 {
            let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(DirectFailure::Number(number));
        }
        if self.write && self.family == DirectLibrary::HipFile {
            // SAFETY: a descriptor of this library.
            unsafe { libc::fdatasync(fd) };
        }
        Ok(done as usize)
    }
}

/// Pages of host memory.
struct BouncePages {
    pages: Vec<HostPage>,
}

#[repr(align(4096))]
#[derive(Clone)]
struct HostPage([u8; 4096]);

impl BouncePages {
    fn new(bytes: usize) -> Self {
        Self { pages: vec![HostPage([0; 4096]); bytes.div_ceil(4096).max(1)] }
    }
    fn address(&mut self) -> u64 {
        self.pages.as_mut_ptr() as u64
    }
    fn spoil(&mut self, at: usize) {
        if let Some(page) = self.pages.get_mut(at / 4096) {
            page.0[at % 4096] ^= 0xff;
        }
    }
}

impl DirectWorld {
    fn count(&mut self, family: DirectLibrary, write: bool) {
        if family == DirectLibrary::CuFile && !(self.counting && self.level == 3) {
            return;
        }
        let first = if write { 19 } else { 6 };
        let offset = match self.spec.path {
            ReportedPath::PeerToPeer => 1,
            ReportedPath::Driver => 2,
            ReportedPath::Posix => 3,
        };
        for field in [first, first + offset] {
            self.counted[field] += 1;
        }
    }
}

/// # Safety
/// `out` is null or can store `CUfileStatsLevel3_t`.
unsafe fn statistics(
    family: DirectLibrary,
    world: &mut DirectWorld,
    out: *mut u64,
) -> DirectResult {
    if out.is_null() || (family == DirectLibrary::CuFile && world.level < 3) {
        return refuse(INVALID_VALUE);
    }
    let mut words = [0u64; ALL_WORDS];
    words[NUMBER_OF_GPUS] = 1;
    words[FIRST_GPU..FIRST_GPU + GPU_WORDS].copy_from_slice(&world.counted);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), out, ALL_WORDS) };
    Ok(())
}

/// # Safety
/// `out` is null or can store `CUfileDrvProps_t`.
unsafe fn properties(world: &mut DirectWorld, out: *mut u32) -> DirectResult {
    if out.is_null() {
        return refuse(INVALID_VALUE);
    }
    let driver = if world.spec.path == ReportedPath::Driver { [2, 25] } else { [0, 0] };
    let peer_to_peer = if world.spec.path == ReportedPath::PeerToPeer { 1 << 11 } else { 0 };
    // Versions, limits of 8 bytes each, supported features, compatibility mode allowed, features.
    let words = [driver[0], driver[1], 4, 0, 1024, 0, peer_to_peer, 2, 7, 0, 0, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), out, words.len()) };
    Ok(())
}

/// Stores a result.
///
/// # Safety
/// `out` is null or points to a place for it.
unsafe fn put<T>(out: *mut T, value: T) -> DirectResult {
    // SAFETY: the caller's promise.
    unsafe { crate::calls::put(out, value) }.or(refuse(INVALID_VALUE))
}

/// Exports the functions of both libraries, under the names of one.
macro_rules! export {
    ($family:ident $open:ident $register:ident $deregister:ident $buffer:ident $no_buffer:ident
     $read:ident $write:ident $statistics:ident) => {
        // SAFETY of all: the name is the vendor's, for whose library this one stands in, and callers
        // promise what its function takes.
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $open() -> StubFileError {
            call(stringify!($open), |world| open_driver(DirectLibrary::$family, world))
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $register(
            out: *mut StubHandle,
            file: *const StubFileDescr,
        ) -> StubFileError {
            call(stringify!($register), |world| {
                // SAFETY: as above.
                unsafe { register_file(DirectLibrary::$family, world, out, file) }
            })
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $deregister(handle: StubHandle) {
            call(stringify!($deregister), |world| {
                forget_file(DirectLibrary::$family, world, handle);
                Ok(())
            });
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $buffer(address: u64, bytes: usize, _flags: c_int) -> StubFileError {
            call(stringify!($buffer), |world| {
                register_memory(DirectLibrary::$family, world, address, bytes)
            })
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $no_buffer(address: u64) -> StubFileError {
            call(stringify!($no_buffer), |world| match world.memory.remove(&address) {
                Some(_) => Ok(()),
                None => refuse(MEMORY_NOT_REGISTERED),
            })
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $read(
            handle: StubHandle,
            base: u64,
            bytes: usize,
            offset: i64,
            at: i64,
        ) -> isize {
            let (family, name) = (DirectLibrary::$family, stringify!($read));
            DirectIo { family, name, write: false, handle, base, bytes, offset, at }.run()
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        extern "C" fn $write(
            handle: StubHandle,
            base: u64,
            bytes: usize,
            offset: i64,
            at: i64,
        ) -> isize {
            let (family, name) = (DirectLibrary::$family, stringify!($write));
            DirectIo { family, name, write: true, handle, base, bytes, offset, at }.run()
        }
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $statistics(out: *mut u64) -> StubFileError {
            call(stringify!($statistics), |world| {
                // SAFETY: as above.
                unsafe { statistics(DirectLibrary::$family, world, out) }
            })
        }
    };
}

export!(CuFile cuFileDriverOpen cuFileHandleRegister cuFileHandleDeregister cuFileBufRegister
    cuFileBufDeregister cuFileRead cuFileWrite cuFileGetStatsL3);
export!(HipFile hipFileDriverOpen hipFileHandleRegister hipFileHandleDeregister hipFileBufRegister
    hipFileBufDeregister hipFileRead hipFileWrite hipFileGetStatsL3);

// SAFETY: as above, for all that follow.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuFileDriverGetProperties(out: *mut u32) -> StubFileError {
    // SAFETY: as above.
    call("cuFileDriverGetProperties", |world| unsafe { properties(world, out) })
}

/// 1.15: 1000 and 10 times the minor version.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuFileGetVersion(out: *mut c_int) -> StubFileError {
    // SAFETY: as above.
    call("cuFileGetVersion", |_| unsafe { put(out, 1150) })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn cuFileSetStatsLevel(level: c_int) -> StubFileError {
    call("cuFileSetStatsLevel", |world| match level {
        0..=3 => {
            world.level = level;
            Ok(())
        }
        _ => refuse(INVALID_VALUE),
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuFileGetStatsLevel(out: *mut c_int) -> StubFileError {
    // SAFETY: as above.
    call("cuFileGetStatsLevel", |world| unsafe { put(out, world.level) })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn cuFileStatsStart() -> StubFileError {
    call("cuFileStatsStart", |world| {
        world.counting = true;
        Ok(())
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn cuFileStatsStop() -> StubFileError {
    call("cuFileStatsStop", |world| {
        world.counting = false;
        Ok(())
    })
}

/// 0.5.0.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipFileGetVersion(
    major: *mut u32,
    minor: *mut u32,
    patch: *mut u32,
) -> StubFileError {
    // SAFETY: as above.
    call("hipFileGetVersion", |_| unsafe {
        put(major, 0)?;
        put(minor, 5)?;
        put(patch, 0)
    })
}
