//! NCCL's side of the interface: layouts of `tuner_v2.h` to `tuner_v5.h`.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use pathline_dylib::SharedLibrary;

/// The variadic function that NCCL passes.
type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);
/// Levels and lines that were logged, by thread: tests run at once.
type LoggedLines = Vec<(std::thread::ThreadId, c_int, String)>;
static LOGGED: Mutex<LoggedLines> = Mutex::new(Vec::new());

unsafe extern "C" fn log(
    level: c_int,
    flags: c_ulong,
    _file: *const c_char,
    _line: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the plugin passes C strings.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!((format, flags & 64), (c"%s", 64), "a format, and subsystem NCCL_TUNING");
    let text = text.to_string_lossy().into_owned();
    LOGGED.lock().expect("no test panics in it").push((std::thread::current().id(), level, text));
}

fn logger() -> Logger {
    // SAFETY: on x86-64 and aarch64 Linux the caller of a variadic function passes pointers and integers in
    // the registers in which this one takes them.
    unsafe { std::mem::transmute::<*const (), Logger>(log as *const ()) }
}

/// What this thread logged since it last asked.
pub(crate) fn logged() -> Vec<(c_int, String)> {
    let here = std::thread::current().id();
    let mut all = LOGGED.lock().expect("no test panics in it");
    let mine = all.extract_if(.., |(thread, ..)| *thread == here);
    mine.map(|(_, level, text)| (level, text)).collect()
}

#[repr(C)]
struct Interface<Init, CollInfo> {
    name: *const c_char,
    init: Init,
    coll_info: CollInfo,
    end: unsafe extern "C" fn(*mut c_void) -> c_int,
}

type Init = unsafe extern "C" fn(usize, usize, Option<Logger>, *mut *mut c_void) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    usize,
    usize,
    Option<Logger>,
    *mut c_void,
    *mut c_void,
) -> c_int;
type CollInfoV2 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    c_int,
    c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
) -> c_int;
type CollInfoV3 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;
type CollInfoV4 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// Costs by algorithm and protocol.
pub(crate) type CostTable = [[f32; 3]; 7];

/// What a call of a collective gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    /// Version 2 only; -1 is the library's choice.
    pub(crate) algorithm: c_int,
    pub(crate) protocol: c_int,
    /// 0 is the library's choice.
    pub(crate) channels: c_int,
    pub(crate) costs: CostTable,
}

/// A communicator of a version of the plugin.
pub(crate) struct Communicator {
    /// The table of functions of the version.
    interface: NonNull<c_void>,
    version: u32,
    pub(crate) context: *mut c_void,
}

/// The object that cargo built for this test.
pub(crate) fn plugin_file() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folders = test.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libpathline_tuner.so"));
    files.find(|file| file.is_file()).expect("cargo builds it for tests of this crate")
}

impl Communicator {
    pub(crate) fn open(file: &Path, version: u32, ranks: usize, nodes: usize) -> Self {
        let library = SharedLibrary::open(file).expect("the plugin opens");
        let interface = library.symbol(&format!("ncclTunerPlugin_v{version}")).expect("the symbol");
        let mut all = Self { interface, version, context: null_mut() };
        let place = &raw mut all.context;
        // SAFETY: a place for the context; the other pointers may be null.
        let code = unsafe {
            match version {
                5 => (all.at::<InitV5, CollInfoV4>().init)(
                    place,
                    7,
                    ranks,
                    nodes,
                    Some(logger()),
                    null_mut(),
                    null_mut(),
                ),
                4 => (all.at::<Init, CollInfoV4>().init)(ranks, nodes, Some(logger()), place),
                3 => (all.at::<Init, CollInfoV3>().init)(ranks, nodes, Some(logger()), place),
                _ => (all.at::<Init, CollInfoV2>().init)(ranks, nodes, Some(logger()), place),
            }
        };
        assert_eq!(code, 0);
        all
    }

    fn at<I, C>(&self) -> &'static Interface<I, C> {
        // SAFETY: the symbol of this version has this layout, and the object is never unloaded.
        unsafe { self.interface.cast::<Interface<I, C>>().as_ref() }
    }

    pub(crate) fn name(&self) -> String {
        // SAFETY: a C string of the object; the name comes first in every version.
        unsafe { CStr::from_ptr(self.at::<Init, CollInfoV4>().name) }.to_string_lossy().into_owned()
    }

    /// Asks as the library does: channels 0, algorithm and protocol -1 before the call.
    pub(crate) fn ask(&self, collective: c_int, bytes: usize, costs: CostTable) -> Choice {
        let mut choice = Choice { algorithm: -1, protocol: -1, channels: 0, costs };
        let Choice { algorithm, protocol, channels, costs } = &mut choice;
        let table: *mut *mut f32 = costs.as_mut_ptr().cast();
        let (context, has_nvls) = (self.context, i32::from(costs[4][2] >= 0.0));
        // SAFETY: the context of `init`, a table of 7 by 3 and places for numbers.
        let code = unsafe {
            match self.version {
                2 => (self.at::<Init, CollInfoV2>().coll_info)(
                    context, collective, bytes, 0, has_nvls, 1, algorithm, protocol, channels,
                ),
                3 => (self.at::<Init, CollInfoV3>().coll_info)(
                    context, collective, bytes, 1, table, 7, 3, channels,
                ),
                _ => (self.at::<Init, CollInfoV4>().coll_info)(
                    context, collective, bytes, 1, table, 7, 3, 0, channels,
                ),
            }
        };
        assert_eq!(code, 0);
        choice
    }

    /// The same with null for every pointer; a table of no sides after it.
    pub(crate) fn ask_with_nulls(&self, context: *mut c_void) {
        let mut costs: CostTable = [[9.0; 3]; 7];
        let table: *mut *mut f32 = costs.as_mut_ptr().cast();
        // SAFETY: null pointers, which the interface allows a careless library, and tables that are as large
        // as the sides say or larger.
        unsafe {
            match self.version {
                2 => {
                    let ask = self.at::<Init, CollInfoV2>().coll_info;
                    assert_eq!(ask(context, 4, 8, 1, 1, 1, null_mut(), null_mut(), null_mut()), 0);
                }
                3 => {
                    let ask = self.at::<Init, CollInfoV3>().coll_info;
                    assert_eq!(ask(context, 4, 8, 1, null_mut(), 7, 3, null_mut()), 0);
                    assert_eq!(ask(context, 4, 8, 1, table, 0, -3, null_mut()), 0);
                }
                _ => {
                    let ask = self.at::<Init, CollInfoV4>().coll_info;
                    assert_eq!(ask(context, 4, 8, 1, null_mut(), 7, 3, 0, null_mut()), 0);
                    assert_eq!(ask(context, 4, 8, 1, table, 0, -3, 0, null_mut()), 0);
                }
            }
        }
        assert_eq!(costs, [[9.0; 3]; 7]);
    }

    pub(crate) fn end(self) {
        self.end_of(self.context);
    }

    pub(crate) fn end_of(&self, context: *mut c_void) {
        // SAFETY: null, or the context of `init`, which is not used again.
        assert_eq!(unsafe { (self.at::<Init, CollInfoV4>().end)(context) }, 0);
    }
}
