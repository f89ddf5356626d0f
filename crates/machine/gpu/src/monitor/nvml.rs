//! NVML, the management library of NVIDIA's driver, bound at run time by function name.
//!
//! Names, signatures, structures and numbers: `nvml.h`, API version 13. Only starting, counting and
//! finding GPUs is required; any other missing function leaves its own field empty.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, announce, announce_in, find,
};

use super::guarded::{GuardedArray, GuardedValue};
use super::nvml_structs::{GpmQuery, GpmSupport, Utilization};
use crate::function_table::BoundCall;

/// `nvmlDevice_t`.
pub(super) type NvmlHandle = usize;

/// `nvmlPciInfo_t` since NVML 9; its text fields are 16 and 32 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PciInfo {
    legacy: [u8; 16],
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
    pub(super) ids: u32,
    subsystem: u32,
    text: [u8; 32],
}

impl PciInfo {
    #[cfg(test)]
    pub(super) fn new(domain: u32, bus: u32, device: u32) -> Self {
        Self { domain, bus, device, ids: 0x2335_10de, ..Self::default() }
    }

    /// As /sys spells it; NVML's functions are all number 0. `None` for an invalid address: zeros,
    /// or ones where a virtual machine hides the remote end.
    pub(super) fn address(&self) -> Option<String> {
        let Self { domain, bus, device, ids, .. } = *self;
        let known = (domain, bus, device, ids) != (0, 0, 0, 0) && bus < 256 && device < 32;
        let known = known && domain < 0x1000_0000;
        known.then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FieldValue {
    pub(super) field: u32,
    /// Number of the link, for link fields.
    pub(super) scope: u32,
    timestamp: i64,
    latency: i64,
    pub(super) kind: i32,
    pub(super) code: i32,
    pub(super) value: [u8; 8],
}

impl FieldValue {
    pub(super) fn ask(field: u32, scope: u32) -> Self {
        // An invalid kind, in case the library leaves a field unset. The code must stay 0: with
        // another one, driver 580 treats the field as done.
        Self { field, scope, kind: -1, ..Self::default() }
    }

    /// The number, if the field was read and is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        let bits = u64::from_ne_bytes(self.value);
        let [a, b, c, d, ..] = self.value;
        let half = u32::from_ne_bytes([a, b, c, d]);
        let number = match self.kind {
            1 => Some(u64::from(half)),
            2 | 3 => Some(bits),
            4 => u64::try_from(i64::from_ne_bytes(self.value)).ok(),
            5 => u64::try_from(half as i32).ok(),
            6 => Some(u64::from(u16::from_ne_bytes([a, b]))),
            // A rate or count as floating point.
            0 => Some(f64::from_ne_bytes(self.value)).filter(|v| *v >= 0.0).map(|v| v as u64),
            _ => None,
        };
        number.filter(|_| self.code == 0)
    }
}

/// `nvmlGpuFabricInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FabricInfo {
    cluster: [u8; 16],
    status: i32,
    clique: u32,
    pub(super) state: u8,
}

/// `nvmlProcessInfo_t` since its second version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessInfo {
    pub(super) pid: u32,
    pub(super) memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// Space for the processes of a GPU. With more of them the call fails, and nothing is known.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessList {
    pub(super) count: u32,
    pub(super) processes: [ProcessInfo; Self::ROOM as usize],
}

impl ProcessList {
    const ROOM: u32 = 64;
}

impl Default for ProcessList {
    fn default() -> Self {
        Self { count: Self::ROOM, processes: [ProcessInfo::default(); Self::ROOM as usize] }
    }
}

/// A text of the library. Its longest are UUIDs: `NVML_DEVICE_UUID_V2_BUFFER_SIZE` is 96.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct LibraryText([u8; 97]);

impl Default for LibraryText {
    fn default() -> Self {
        Self([0; 97])
    }
}

impl LibraryText {
    /// Bytes that a call may store, which leaves one for the terminator.
    pub(super) const ROOM: u32 = 96;

    pub(super) fn text(&self) -> String {
        let text = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Above the number of GPUs of any host: a library that reports more is not believed.
const MOST_GPUS: u32 = 1024;
#[cfg(test)]
pub(super) const NOT_SUPPORTED: i32 = 3;
/// `NVML_NVLINK_MAX_LINKS` of the headers up to driver 580. Later drivers report the number of
/// links as a field.
const LINKS: u32 = 18;
/// The value in the header of driver 610, the largest so far.
const MOST_LINKS: u32 = 36;
// Numbers of `nvmlClockType_t`.
pub(super) const SM: i32 = 1;
pub(super) const MEMORY: i32 = 2;
// Field numbers; all but the first two have a link as scope.
pub(super) const SPEED_COMMON: u32 = 90;
const LINK_COUNT: u32 = 91;
pub(super) const SPEED: u32 = 164;
/// Replays, recoveries, CRC (up to Hopper); received errors and recoveries (from Blackwell on).
pub(super) const LINK_ERRORS: [u32; 5] = [161, 162, 163, 208, 215];

/// The table: field, symbol, parameters. All return `nvmlReturn_t`.
macro_rules! table {
    (required { $($field:ident = $symbol:literal ($($arg:ty),*);)* }
     optional { $($ofield:ident = $osymbol:literal $(or $older:literal)? ($($oarg:ty),*);)* }) => {
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Api {
            $(pub(super) $field: BoundCall<unsafe extern "C" fn($($arg),*) -> i32>,)*
            $(pub(super) $ofield: Option<BoundCall<unsafe extern "C" fn($($oarg),*) -> i32>>,)*
        }
        impl Api {
            /// Binds all functions that `find` finds.
            ///
            /// # Safety
            /// A function that `find` returns for a name must have the signature in the table.
            pub(super) unsafe fn bind(
                find: &dyn Fn(&str) -> Option<NonNull<c_void>>,
            ) -> Result<Self, String> {
                let look = |name| find(name).map(|at| BoundCall { name, at });
                let need = |name| look(name).ok_or_else(|| format!("it lacks {name}"));
                Ok(Self {
                    // SAFETY: the caller's.
                    $($field: need($symbol)?.map(|at| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> i32>(at.as_ptr()) }),)*
                    // SAFETY: the caller's.
                    $($ofield: look($osymbol)$(.or_else(|| look($older)))?.map(|call| call.map(|at| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($oarg),*) -> i32>(at.as_ptr()) })),)*
                })
            }
        }
    };
}

type NvmlNumberFn = *mut u32;

table! {
    required {
        init = "nvmlInit_v2" ();
        count = "nvmlDeviceGetCount_v2" (NvmlNumberFn);
        by_index = "nvmlDeviceGetHandleByIndex_v2" (u32, *mut NvmlHandle);
        pci = "nvmlDeviceGetPciInfo_v3" (NvmlHandle, *mut PciInfo);
    }
    optional {
        driver_version = "nvmlSystemGetDriverVersion" (*mut c_char, u32);
        link_state = "nvmlDeviceGetNvLinkState" (NvmlHandle, u32, NvmlNumberFn);
        link_pci = "nvmlDeviceGetNvLinkRemotePciInfo_v2" (NvmlHandle, u32, *mut PciInfo);
        link_remote = "nvmlDeviceGetNvLinkRemoteDeviceType" (NvmlHandle, u32, NvmlNumberFn);
        link_version = "nvmlDeviceGetNvLinkVersion" (NvmlHandle, u32, NvmlNumberFn);
        fields = "nvmlDeviceGetFieldValues" (NvmlHandle, i32, *mut FieldValue);
        clock = "nvmlDeviceGetClockInfo" (NvmlHandle, i32, NvmlNumberFn);
        max_clock = "nvmlDeviceGetMaxClockInfo" (NvmlHandle, i32, NvmlNumberFn);
        // The newer name came with driver 535.
        throttle = "nvmlDeviceGetCurrentClocksEventReasons"
            or "nvmlDeviceGetCurrentClocksThrottleReasons" (NvmlHandle, *mut u64);
        power = "nvmlDeviceGetPowerUsage" (NvmlHandle, NvmlNumberFn);
        power_limit = "nvmlDeviceGetEnforcedPowerLimit" (NvmlHandle, NvmlNumberFn);
        temperature = "nvmlDeviceGetTemperature" (NvmlHandle, i32, NvmlNumberFn);
        ecc_errors = "nvmlDeviceGetTotalEccErrors" (NvmlHandle, i32, i32, *mut u64);
        ecc_mode = "nvmlDeviceGetEccMode" (NvmlHandle, NvmlNumberFn, NvmlNumberFn);
        pcie_replays = "nvmlDeviceGetPcieReplayCounter" (NvmlHandle, NvmlNumberFn);
        pcie_generation = "nvmlDeviceGetCurrPcieLinkGeneration" (NvmlHandle, NvmlNumberFn);
        pcie_width = "nvmlDeviceGetCurrPcieLinkWidth" (NvmlHandle, NvmlNumberFn);
        pcie_max_generation = "nvmlDeviceGetMaxPcieLinkGeneration" (NvmlHandle, NvmlNumberFn);
        pcie_max_width = "nvmlDeviceGetMaxPcieLinkWidth" (NvmlHandle, NvmlNumberFn);
        mig = "nvmlDeviceGetMigMode" (NvmlHandle, NvmlNumberFn, NvmlNumberFn);
        compute_mode = "nvmlDeviceGetComputeMode" (NvmlHandle, NvmlNumberFn);
        processes = "nvmlDeviceGetComputeRunningProcesses_v3"
            (NvmlHandle, NvmlNumberFn, *mut ProcessInfo);
        utilization = "nvmlDeviceGetUtilizationRates" (NvmlHandle, *mut Utilization);
        persistence = "nvmlDeviceGetPersistenceMode" (NvmlHandle, NvmlNumberFn);
        fabric = "nvmlDeviceGetGpuFabricInfo" (NvmlHandle, *mut FabricInfo);
        power_default = "nvmlDeviceGetPowerManagementDefaultLimit" (NvmlHandle, NvmlNumberFn);
        retired_pending = "nvmlDeviceGetRetiredPagesPendingStatus" (NvmlHandle, NvmlNumberFn);
        // Corrected, uncorrected, pending, failed.
        remapped_rows = "nvmlDeviceGetRemappedRows"
            (NvmlHandle, NvmlNumberFn, NvmlNumberFn, NvmlNumberFn, NvmlNumberFn);
        // Total, free and used bytes: `nvmlMemory_t` and `nvmlBAR1Memory_t`.
        memory = "nvmlDeviceGetMemoryInfo" (NvmlHandle, *mut [u64; 3]);
        bar1 = "nvmlDeviceGetBAR1MemoryInfo" (NvmlHandle, *mut [u64; 3]);
        peer_status = "nvmlDeviceGetP2PStatus" (NvmlHandle, NvmlHandle, i32, NvmlNumberFn);
        // Environment, feature and tools: `nvmlConfComputeSystemState_t`.
        confidential = "nvmlSystemGetConfComputeState" (*mut [u32; 3]);
        gpm_support = "nvmlGpmQueryDeviceSupport" (NvmlHandle, *mut GpmSupport);
        gpm_alloc = "nvmlGpmSampleAlloc" (*mut usize);
        gpm_free = "nvmlGpmSampleFree" (usize);
        gpm_sample = "nvmlGpmSampleGet" (NvmlHandle, usize);
        gpm_metrics = "nvmlGpmMetricsGet" (*mut GpmQuery);
        pcie_throughput = "nvmlDeviceGetPcieThroughput" (NvmlHandle, i32, NvmlNumberFn);
        uuid = "nvmlDeviceGetUUID" (NvmlHandle, *mut c_char, u32);
        serial = "nvmlDeviceGetSerial" (NvmlHandle, *mut c_char, u32);
        vbios = "nvmlDeviceGetVbiosVersion" (NvmlHandle, *mut c_char, u32);
        board_part = "nvmlDeviceGetBoardPartNumber" (NvmlHandle, *mut c_char, u32);
    }
}

/// Functions that failed, with the code, or that wrote past their buffers. The latter have no code and are
/// not called again.
#[derive(Debug, Clone, Default)]
pub(super) struct CallLog(Arc<Mutex<BTreeMap<&'static str, Option<i32>>>>);

/// The functions of this process's library, shared by all bindings: for discovery and for the
/// monitor.
static CALLS: LazyLock<CallLog> = LazyLock::new(CallLog::default);

impl CallLog {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Option<i32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn overran(&self, function: &str) -> bool {
        self.lock().get(function) == Some(&None)
    }
    /// Records a code by which no healthy driver answers a right question.
    fn note(&self, function: &'static str, code: i32) {
        if code != 0 && !USUAL_REFUSALS.contains(&code) {
            self.lock().entry(function).or_insert(Some(code));
        }
    }
}

/// Codes that say what a GPU, a user or a version does not have: invalid argument (a link beyond the last),
/// not supported, no permission, not found, insufficient size, function not found, no data, other version.
const USUAL_REFUSALS: [i32; 8] = [2, 3, 4, 6, 7, 13, 21, 25];

/// A started library.
#[derive(Debug, Clone)]
pub(super) struct NvmlLibrary {
    pub(super) api: Api,
    /// Version of the driver; empty if it is not reported.
    pub(super) version: String,
    calls: CallLog,
}

impl NvmlLibrary {
    /// Starts the bound library. NVML counts its starts: a second one costs nothing.
    pub(super) fn start(api: Api, calls: CallLog) -> Result<Self, String> {
        // SAFETY: takes nothing and may be called at any time.
        let code = unsafe { (api.init.at)() };
        if code != 0 {
            return Err(format!("{REFUSAL} {code} ({})", status_text(code)));
        }
        let mut nvml = Self { api, version: String::new(), calls };
        let version = nvml.stored(api.driver_version, |call, text: *mut LibraryText| {
            // SAFETY: the call stores a C string of at most the given number of bytes.
            unsafe { call(text.cast(), LibraryText::ROOM) }
        });
        nvml.version = version.map_or_else(String::new, |text| text.text());
        Ok(nvml)
    }

    /// The value that a function stores. `None` if the library lacks it, if it fails, or if it
    /// wrote past the value, now or earlier.
    pub(super) fn stored<F: Copy, T: Default>(
        &self,
        function: Option<BoundCall<F>>,
        call: impl FnOnce(F, *mut T) -> i32,
    ) -> Option<T> {
        let function = function.filter(|f| !self.calls.overran(f.name))?;
        let mut value = GuardedValue::new();
        announce(function.name);
        let code = call(function.at, value.as_mut_ptr());
        let value = self.unless_overrun(function.name, value.take())?;
        self.calls.note(function.name, code);
        (code == 0).then_some(value)
    }

    /// Fields of a GPU, in the order of the requests: number and scope.
    pub(super) fn fields(&self, handle: NvmlHandle, asked: &[(u32, u32)]) -> Vec<Option<u64>> {
        let answers = self.field_values(handle, asked).unwrap_or_default();
        let answers = answers.iter().map(FieldValue::number).chain(std::iter::repeat(None));
        answers.take(asked.len()).collect()
    }

    fn field_values(&self, handle: NvmlHandle, asked: &[(u32, u32)]) -> Option<Vec<FieldValue>> {
        let function = self.api.fields.filter(|f| !self.calls.overran(f.name))?;
        let count = i32::try_from(asked.len()).ok().filter(|&count| count > 0)?;
        let request = |&(field, scope): &(u32, u32)| FieldValue::ask(field, scope);
        let mut values = GuardedArray::new(asked.iter().map(request));
        announce(function.name);
        // SAFETY: the handle is NVML's own; the array has that many structures, and more that the
        // library may write to.
        let code = unsafe { (function.at)(handle, count, values.as_mut_ptr()) };
        let values = self.unless_overrun(function.name, values.take())?;
        self.calls.note(function.name, code);
        (code == 0).then_some(values)
    }

    /// Records the function if its guard was overwritten.
    fn unless_overrun<T>(&self, function: &'static str, taken: Option<T>) -> Option<T> {
        if taken.is_none() {
            self.calls.lock().insert(function, None);
        }
        taken
    }

    /// One line for each function that failed or wrote past its buffer.
    pub(super) fn warnings(&self) -> Vec<String> {
        let line = |(function, code): (&&str, &Option<i32>)| match code {
            Some(code) => {
                let text = status_text(*code);
                format!("{function} of NVML {} fails with {code} ({text})", self.version)
            }
            None => format!(
                "{function} of NVML {} wrote past its buffer. The guard there took \
                 the write, so nothing else is damaged; the function is not called again, and what it \
                 reads is missing. Another version of the NVIDIA driver may be free of this",
                self.version
            ),
        };
        self.calls.lock().iter().map(line).collect()
    }

    /// Number of links to query: the limit of all drivers' headers, or the larger number that the
    /// driver reports. A GPU with fewer links rejects the rest.
    pub(super) fn links(&self, handle: NvmlHandle) -> u32 {
        let count = self.fields(handle, &[(LINK_COUNT, 0)]).into_iter().flatten().next();
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0).clamp(LINKS, MOST_LINKS)
    }

    /// GPUs with their PCI addresses. A GPU that cannot be opened is omitted: it may be another
    /// user's, or lost.
    pub(super) fn devices(&self) -> Vec<(NvmlHandle, String)> {
        // SAFETY: stores one number.
        let count = self.stored(Some(self.api.count), |call, out| unsafe { call(out) });
        let one = |nth| {
            // SAFETY: stores one handle.
            let open = |call: unsafe extern "C" fn(_, _) -> _, out| unsafe { call(nth, out) };
            let handle = self.stored(Some(self.api.by_index), open)?;
            // SAFETY: the handle is open; fills one structure of this layout.
            let name = |call: unsafe extern "C" fn(_, _) -> _, out| unsafe { call(handle, out) };
            let pci: PciInfo = self.stored(Some(self.api.pci), name)?;
            Some((handle, pci.address()?))
        };
        (0..count.filter(|&count| count <= MOST_GPUS).unwrap_or(0)).filter_map(one).collect()
    }
}

/// How the reason of a library begins that is there and does not start.
pub(super) const REFUSAL: &str = "nvmlInit returns";

/// The text of an error code.
fn status_text(code: i32) -> &'static str {
    match code {
        4 => "no permission",
        9 => "the driver is not loaded",
        12 => "a library of the driver is missing",
        15 => "a GPU is lost",
        16 => "a GPU must be reset",
        17 => "the system blocks the control device",
        18 => "driver and library are of different versions",
        _ => "see nvmlReturn_t",
    }
}

/// The library, and the report of the search.
pub(super) fn search() -> (Option<NvmlLibrary>, LibraryReport) {
    search_at(None)
}

fn search_at(asked: Option<&Path>) -> (Option<NvmlLibrary>, LibraryReport) {
    let spec = LibrarySpec {
        what: "GPU management (NVML)",
        costs: "NVLinks of NVIDIA GPUs are not seen, so pairs have no ceiling; clocks, throttling \
                and error counters are not recorded",
        way_out: "it comes with the NVIDIA driver; in a container, start it with \
                  NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        names: LibraryNames::Exact(&["libnvidia-ml.so.1"]),
        asked,
        places: crate::runtimes::driver_places(),
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        // SAFETY: a library of this name has NVML's symbols, whose signatures nvml.h fixes.
        let api = unsafe { Api::bind(&|name| library.symbol(name)) }?;
        announce_in(&library.path, api.init.name);
        let nvml = NvmlLibrary::start(api, CALLS.clone())?;
        let version = format!("driver {}", nvml.version);
        Ok(BoundLibrary { value: nvml, version, number: None })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_layout_of_the_header() {
        assert_eq!(size_of::<PciInfo>(), 16 + 5 * 4 + 32);
        assert_eq!(size_of::<FieldValue>(), 40);
        // 16 + 4 + 4 + 1, rounded up to 4.
        assert_eq!(size_of::<FabricInfo>(), 28);
    }

    #[test]
    fn addresses_are_spelled_as_in_sys() {
        let address = |d, b, n| PciInfo::new(d, b, n).address();
        assert_eq!(address(0, 0x19, 0).as_deref(), Some("0000:19:00.0"));
        assert_eq!(address(0x10000, 1, 31).as_deref(), Some("10000:01:1f.0"));
        assert_eq!(address(u32::MAX, 0, 0), None);
        assert_eq!(PciInfo::default().address(), None);
    }

    #[test]
    fn a_field_counts_only_if_it_was_read() {
        let value = |kind, code, value: u64| {
            FieldValue { kind, code, value: value.to_ne_bytes(), ..FieldValue::ask(90, 0) }.number()
        };
        assert_eq!(value(3, 0, 26_562), Some(26_562));
        assert_eq!(value(1, 0, 26_562), Some(26_562));
        assert_eq!(value(4, 0, u64::MAX), None);
        assert_eq!(value(0, 0, 1.5f64.to_bits()), Some(1));
        assert_eq!(value(3, NOT_SUPPORTED, 26_562), None);
        assert_eq!(FieldValue::ask(90, 0).number(), None);
        assert_eq!(value(99, 0, 1), None);
    }

    #[test]
    fn an_unusable_nvml_is_reported_with_its_reason() {
        let why = |asked: &str| {
            let (nvml, report) = search_at(Some(Path::new(asked)));
            assert!(nvml.is_none() && report.path.is_none() && report.version.is_empty());
            report.tried[0].why.clone()
        };
        assert!(why("libc.so.6").contains("lacks nvmlInit_v2"));
        assert!(why("/none/libnvidia-ml.so.1").contains("No such file"));
    }
}
