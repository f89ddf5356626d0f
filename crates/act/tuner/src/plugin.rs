//! The functions that NCCL calls. None of them panics into the library, fails a communicator, or chooses
//! what the library excludes.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{
    CollInfoV2Fn, CollInfoV3Fn, CollInfoV4Fn, InitFn, InitV5Fn, LOG_INFO, LOG_SUBSYSTEMS, LOG_WARN,
    LogFn, SUCCESS, TunerInterface,
};
use crate::row_lookup::RowLookup;
use crate::rows::{MAX_ROWS_BYTES, TunedAlgorithm, TunedProtocol, TunerRow, TunerRows};

/// Variable that names the file of rows.
pub const ROWS_VARIABLE: &str = "PATHLINE_TUNER_ROWS";
/// Name of that file in the folder of the shared object, where the variable is not set.
pub const ROWS_FILE: &str = "libpathline_tuner.rows";

const NAME: &CStr = c"pathline";

// SAFETY of all names that follow: NCCL and RCCL look them up in a tuner plugin, and no other
// library of a process defines them under local scope.

/// Version 2.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static ncclTunerPlugin_v2: TunerInterface<InitFn, CollInfoV2Fn> =
    TunerInterface { name: NAME.as_ptr(), init, coll_info: coll_info_v2, end };

/// Version 3.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static ncclTunerPlugin_v3: TunerInterface<InitFn, CollInfoV3Fn> =
    TunerInterface { name: NAME.as_ptr(), init, coll_info: coll_info_v3, end };

/// Version 4.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static ncclTunerPlugin_v4: TunerInterface<InitFn, CollInfoV4Fn> =
    TunerInterface { name: NAME.as_ptr(), init, coll_info: coll_info_v4, end };

/// Version 5.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static ncclTunerPlugin_v5: TunerInterface<InitV5Fn, CollInfoV4Fn> =
    TunerInterface { name: NAME.as_ptr(), init: init_v5, coll_info: coll_info_v4, end };

/// The state of one communicator.
#[derive(Debug, Default)]
struct TunerContext {
    lookup: RowLookup,
    log: Option<LogFn>,
    /// Calls so far.
    calls: AtomicU64,
    /// Calls in which a row decided.
    followed: AtomicU64,
    /// Calls in which the library excluded what a row names.
    excluded: AtomicU64,
}

impl TunerContext {
    /// Reads the rows; without any, all choices are the library's.
    fn new(ranks: usize, nodes: usize, log: Option<LogFn>) -> Self {
        let mut context = Self { log, ..Self::default() };
        let path = match rows_path() {
            Ok(path) => path,
            Err(why) => {
                context.write(LOG_WARN, &format!("{why}; the library's defaults are used"));
                return context;
            }
        };
        let shown = path.display();
        match read_rows(&path) {
            Ok(rows) => {
                context.lookup = RowLookup::new(&rows.rows, nodes, ranks);
                let (all, here) = (rows.rows.len(), context.lookup.len());
                let hash = rows.content_hash;
                let text = format!(
                    "rows of {shown}, hash {hash:016x}: {all} rows, {here} ranges for {ranks} ranks on \
                     {nodes} nodes"
                );
                context.write(LOG_INFO, &text);
            }
            Err(why) => {
                let text = format!("{shown}: {why}; the library's defaults are used");
                context.write(LOG_WARN, &text);
            }
        }
        context
    }

    fn write(&self, level: c_int, text: &str) {
        let Some(log) = self.log else { return };
        let text = CString::new(format!("TUNER/pathline: {text}").replace('\0', " "));
        let Ok(text) = text else { return };
        let (file, format) = (c"pathline_tuner".as_ptr(), c"%s".as_ptr());
        // SAFETY: the library's logger, which takes a format of printf; all texts live through the call.
        unsafe { log(level, LOG_SUBSYSTEMS, file, 0, format, text.as_ptr()) };
    }

    /// The row that counts for a call.
    fn row(&self, collective: c_int, bytes: usize) -> Option<&TunerRow> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.lookup.find(usize::try_from(collective).ok()?, bytes as u64)
    }

    /// Counts a call in which a row had a say.
    fn count(&self, is_followed: bool) {
        let counter = if is_followed { &self.followed } else { &self.excluded };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn write_summary(&self) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [calls, followed, excluded] = [&self.calls, &self.followed, &self.excluded].map(count);
        let text = format!(
            "{calls} collectives: {followed} as a row says, {excluded} where the library excludes \
             what a row says"
        );
        self.write(LOG_INFO, &text);
    }
}

fn rows_path() -> Result<PathBuf, String> {
    match std::env::var_os(ROWS_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => own_folder().map(|folder| folder.join(ROWS_FILE)),
    }
}

/// The folder of this shared object.
fn own_folder() -> Result<PathBuf, String> {
    let mut about = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = (&raw const ncclTunerPlugin_v5).cast();
    // SAFETY: an address of this object, and a structure that the call fills.
    let found = unsafe { libc::dladdr(here, &raw mut about) };
    if found == 0 || about.dli_fname.is_null() {
        return Err(format!("the plugin's folder is unknown; set {ROWS_VARIABLE}"));
    }
    // SAFETY: on success a C string of the dynamic linker, which lives as long as this object.
    let name = unsafe { CStr::from_ptr(about.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    path.parent().map(Path::to_owned).ok_or_else(|| format!("{} has no folder", path.display()))
}

/// Reads a plain file of bounded size. Never waits: a FIFO opens at once and is refused.
fn read_rows(path: &Path) -> Result<TunerRows, String> {
    let mut options = File::options();
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no plain file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_ROWS_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    TunerRows::parse(&text).map_err(|error| error.to_string())
}

/// Runs code of a call; a panic ends at the library's edge, and the call changes nothing.
fn at_edge(run: impl FnOnce()) -> c_int {
    // What a panic leaves half done is counters and a context that was not stored.
    let _ = catch_unwind(AssertUnwindSafe(run));
    SUCCESS
}

/// # Safety
/// `context` is null or a place for a pointer.
unsafe fn begin(
    ranks: usize,
    nodes: usize,
    log: Option<LogFn>,
    context: *mut *mut c_void,
) -> c_int {
    at_edge(|| {
        if context.is_null() {
            return;
        }
        // SAFETY: the caller's promise. It is null from here on until there is a state.
        unsafe { context.write(std::ptr::null_mut()) };
        let state = Box::new(TunerContext::new(ranks, nodes, log));
        // SAFETY: as above.
        unsafe { context.write(Box::into_raw(state).cast()) };
    })
}

/// # Safety
/// As NCCL's header says of `init`.
unsafe extern "C" fn init(
    ranks: usize,
    nodes: usize,
    log: Option<LogFn>,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { begin(ranks, nodes, log, context) }
}

/// # Safety
/// As NCCL's header says of `init`.
unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    _communicator: u64,
    ranks: usize,
    nodes: usize,
    log: Option<LogFn>,
    _domains: *mut c_void,
    _constants: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { begin(ranks, nodes, log, context) }
}

/// # Safety
/// As NCCL's header says of `getCollInfo`: `context` is null or of `init`, and outputs are null or places
/// for a number.
unsafe extern "C" fn coll_info_v2(
    context: *mut c_void,
    collective: c_int,
    bytes: usize,
    collnet: c_int,
    nvls: c_int,
    _operations: c_int,
    algorithm: *mut c_int,
    protocol: *mut c_int,
    channels: *mut c_int,
) -> c_int {
    at_edge(|| {
        // SAFETY: the caller's promise; it ends the context only after its last call.
        let Some(context) = (unsafe { context.cast::<TunerContext>().as_ref() }) else { return };
        let Some(row) = context.row(collective, bytes) else { return };
        let is_allowed = is_allowed_unseen(row, collnet != 0, nvls != 0);
        let is_followed = is_allowed && !algorithm.is_null() && !protocol.is_null();
        context.count(is_followed);
        if is_followed {
            // SAFETY: neither is null, so the caller's promise.
            unsafe {
                algorithm.write(row.algorithm.number() as c_int);
                protocol.write(row.protocol.number() as c_int);
                set_channels(channels, row);
            }
        }
    })
}

/// Whether a row may be followed where the library shows no costs, and therefore not what it excludes.
fn is_allowed_unseen(row: &TunerRow, collnet: bool, nvls: bool) -> bool {
    // LL128 corrupts data on paths that reorder writes: only the library knows where it is safe.
    if row.protocol == TunedProtocol::Ll128 {
        return false;
    }
    match row.algorithm {
        TunedAlgorithm::Tree | TunedAlgorithm::Ring => true,
        TunedAlgorithm::CollnetDirect | TunedAlgorithm::CollnetChain => {
            collnet && row.protocol == TunedProtocol::Simple
        }
        TunedAlgorithm::Nvls => nvls && row.protocol == TunedProtocol::Simple,
        // Which node counts have the one is not shown; libraries of this version do not have the other.
        TunedAlgorithm::NvlsTree | TunedAlgorithm::Pat => false,
    }
}

/// # Safety
/// `channels` is null or a place for a number.
unsafe fn set_channels(channels: *mut c_int, row: &TunerRow) {
    if row.channels > 0 && !channels.is_null() {
        // SAFETY: the caller's promise.
        unsafe { channels.write(c_int::from(row.channels)) };
    }
}

/// # Safety
/// As [`coll_info_v4`].
unsafe extern "C" fn coll_info_v3(
    context: *mut c_void,
    collective: c_int,
    bytes: usize,
    operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    channels: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let (costs, registered) = (costs, 0);
        coll_info_v4(
            context, collective, bytes, operations, costs, algorithms, protocols, registered,
            channels,
        )
    }
}

/// # Safety
/// As NCCL's header says of `getCollInfo`: `context` is null or of `init`, `costs` is null or a block of
/// `algorithms` times `protocols` floats, and `channels` is null or a place for a number.
unsafe extern "C" fn coll_info_v4(
    context: *mut c_void,
    collective: c_int,
    bytes: usize,
    _operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> c_int {
    at_edge(|| {
        // SAFETY: the caller's promise; it ends the context only after its last call.
        let Some(context) = (unsafe { context.cast::<TunerContext>().as_ref() }) else { return };
        let Some(row) = context.row(collective, bytes) else { return };
        let table = (costs.cast::<f32>(), algorithms, protocols);
        // SAFETY: the caller's promise.
        let is_followed = unsafe { lower_cost(table, row) };
        context.count(is_followed);
        if is_followed {
            // SAFETY: the caller's promise.
            unsafe { set_channels(channels, row) };
        }
    })
}

/// Makes the algorithm and protocol of a row cost nothing, unless the library excludes them.
///
/// # Safety
/// The table is null or a block of that many algorithms times protocols.
unsafe fn lower_cost(table: (*mut f32, c_int, c_int), row: &TunerRow) -> bool {
    let (costs, algorithms, protocols) = table;
    let (algorithm, protocol) = (row.algorithm.number(), row.protocol.number());
    let has = |count: c_int, at: usize| usize::try_from(count).is_ok_and(|count| at < count);
    if costs.is_null() || !has(algorithms, algorithm) || !has(protocols, protocol) {
        return false;
    }
    // SAFETY: within the table by the caller's promise, since both numbers are below its sides.
    let cost = unsafe { &mut *costs.add(algorithm * protocols as usize + protocol) };
    // -1 marks what the library excludes (`NCCL_ALGO_PROTO_IGNORE`); nothing costs less than 0 otherwise.
    let is_offered = *cost >= 0.0;
    if is_offered {
        *cost = 0.0;
    }
    is_offered
}

/// # Safety
/// `context` is null or of `init`, and is not used again.
unsafe extern "C" fn end(context: *mut c_void) -> c_int {
    at_edge(|| {
        if context.is_null() {
            return;
        }
        // SAFETY: the caller's promise: made by `begin` from a box.
        let context = unsafe { Box::from_raw(context.cast::<TunerContext>()) };
        context.write_summary();
    })
}
