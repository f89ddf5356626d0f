//! A stand-in NVML: two H200 of an HGX board, and libraries that lack functions.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;

use pathline_host::clock::ClockOrigin;
use pathline_schema::{Gpu, GpuState, PcieLink, TrafficCounter, UncountedPath};

use super::nvml::{Api, CallLog, FieldValue, NOT_SUPPORTED, NvmlHandle, NvmlLibrary, PciInfo};
use super::nvml_structs::GpmQuery;
use super::{LibraryReport, ManagementLibrary};

type Number = *mut u32;
const LINKS: u32 = 18;
const INVALID: i32 = 2;

fn put<T>(to: *mut T, value: T) -> i32 {
    // SAFETY: every test hands over a pointer to one writable value.
    unsafe { to.write(value) };
    0
}

extern "C" fn init() -> i32 {
    0
}
extern "C" fn init_without_driver() -> i32 {
    9
}
extern "C" fn version(text: *mut c_char, length: u32) -> i32 {
    assert!(length >= 10);
    for (at, byte) in b"550.54.15\0".iter().enumerate() {
        // SAFETY: the text has room for at least 10 bytes.
        unsafe { text.add(at).write(*byte as c_char) };
    }
    0
}
extern "C" fn count(number: Number) -> i32 {
    put(number, 3)
}
/// The third GPU is lost.
extern "C" fn by_index(nth: u32, handle: *mut NvmlHandle) -> i32 {
    if nth == 2 { 15 } else { put(handle, 100 + nth as usize) }
}
extern "C" fn pci(handle: NvmlHandle, info: *mut PciInfo) -> i32 {
    put(info, PciInfo::new(0, if handle == 100 { 0x19 } else { 0x3b }, 0))
}
thread_local! {
    /// The highest link that was queried.
    static HIGHEST_LINK: Cell<u32> = const { Cell::new(0) };
    /// Number of field calls.
    static FIELD_CALLS: Cell<u32> = const { Cell::new(0) };
}
/// Link 7 of the second GPU is down.
extern "C" fn link_state(handle: NvmlHandle, link: u32, active: Number) -> i32 {
    HIGHEST_LINK.set(HIGHEST_LINK.get().max(link));
    if link >= LINKS { INVALID } else { put(active, u32::from((handle, link) != (101, 7))) }
}
extern "C" fn link_pci(_: NvmlHandle, link: u32, info: *mut PciInfo) -> i32 {
    put(info, PciInfo::new(0, 5 + link % 4, 0))
}
extern "C" fn link_remote(_: NvmlHandle, _: u32, kind: Number) -> i32 {
    put(kind, 2)
}
extern "C" fn link_version(_: NvmlHandle, _: u32, version: Number) -> i32 {
    put(version, 4)
}
/// Speeds, and one CRC error on each link; Blackwell's counters are not supported. Fields with a
/// code are left unchanged, as 580.159 did on an H200.
extern "C" fn fields(_: NvmlHandle, count: i32, values: *mut FieldValue) -> i32 {
    // SAFETY: the caller passes as many elements as `count`.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
    for value in values.iter_mut().filter(|value| value.code == 0) {
        value.kind = 3;
        value.value = match value.field {
            90 | 164 => 26_562u64,
            161 | 162 => 0,
            163 => 1,
            _ => {
                value.code = NOT_SUPPORTED;
                continue;
            }
        }
        .to_ne_bytes();
    }
    0
}
/// The same, and it also fills the element behind the array.
extern "C" fn fields_and_one_more(handle: NvmlHandle, count: i32, values: *mut FieldValue) -> i32 {
    FIELD_CALLS.set(FIELD_CALLS.get() + 1);
    // SAFETY: there is room, or this test shows that there is none.
    unsafe { values.add(count as usize).write(FieldValue::ask(161, 0)) };
    fields(handle, count, values)
}
/// The same, with more links than any header allows.
extern "C" fn fields_of_many_links(handle: NvmlHandle, count: i32, values: *mut FieldValue) -> i32 {
    let code = fields(handle, count, values);
    // SAFETY: at least one element.
    let first = unsafe { &mut *values };
    if first.field == 91 {
        (first.kind, first.code, first.value) = (1, 0, 4096u64.to_ne_bytes());
    }
    code
}
/// Stores two numbers where one is expected.
extern "C" fn power_and_more(_: NvmlHandle, number: Number) -> i32 {
    put(number.cast(), [214_500u32, 0])
}
extern "C" fn clock(_: NvmlHandle, which: i32, number: Number) -> i32 {
    put(number, if which == 1 { 1755 } else { 3201 })
}
extern "C" fn max_clock(_: NvmlHandle, which: i32, number: Number) -> i32 {
    put(number, if which == 1 { 1980 } else { 3201 })
}
/// Idle multiprocessors, and held by the power cap.
extern "C" fn throttle(_: NvmlHandle, reasons: *mut u64) -> i32 {
    put(reasons, 0x1 | 0x4)
}
extern "C" fn power(_: NvmlHandle, number: Number) -> i32 {
    put(number, 214_500)
}
extern "C" fn temperature(_: NvmlHandle, sensor: i32, number: Number) -> i32 {
    assert_eq!(sensor, 0);
    put(number, 41)
}
extern "C" fn ecc_errors(_: NvmlHandle, kind: i32, _: i32, number: *mut u64) -> i32 {
    put(number, if kind == 0 { 3 } else { 0 })
}
extern "C" fn on(_: NvmlHandle, now: Number, next: Number) -> i32 {
    put(now, 1);
    put(next, 0)
}
extern "C" fn not_supported(_: NvmlHandle, _: Number) -> i32 {
    NOT_SUPPORTED
}
extern "C" fn five(_: NvmlHandle, number: Number) -> i32 {
    put(number, 5)
}
extern "C" fn sixteen(_: NvmlHandle, number: Number) -> i32 {
    put(number, 16)
}
extern "C" fn eight(_: NvmlHandle, number: Number) -> i32 {
    put(number, 8)
}
extern "C" fn default_mode(_: NvmlHandle, number: Number) -> i32 {
    put(number, 0)
}

extern "C" fn uuid(_: NvmlHandle, text: *mut c_char, room: u32) -> i32 {
    assert!(room >= 96);
    // SAFETY: NVML's UUIDs have at most 96 bytes.
    unsafe { text.copy_from_nonoverlapping(c"GPU-1b2c".as_ptr(), 9) };
    0
}
extern "C" fn no_text(_: NvmlHandle, _: *mut c_char, _: u32) -> i32 {
    NOT_SUPPORTED
}

fn whole(name: &str) -> Option<NonNull<c_void>> {
    let at = match name {
        "nvmlInit_v2" => init as *const c_void,
        "nvmlSystemGetDriverVersion" => version as *const c_void,
        "nvmlDeviceGetCount_v2" => count as *const c_void,
        "nvmlDeviceGetHandleByIndex_v2" => by_index as *const c_void,
        "nvmlDeviceGetPciInfo_v3" => pci as *const c_void,
        "nvmlDeviceGetNvLinkState" => link_state as *const c_void,
        "nvmlDeviceGetNvLinkRemotePciInfo_v2" => link_pci as *const c_void,
        "nvmlDeviceGetNvLinkRemoteDeviceType" => link_remote as *const c_void,
        "nvmlDeviceGetNvLinkVersion" => link_version as *const c_void,
        "nvmlDeviceGetFieldValues" => fields as *const c_void,
        "nvmlDeviceGetClockInfo" => clock as *const c_void,
        "nvmlDeviceGetMaxClockInfo" => max_clock as *const c_void,
        // The name before driver 535.
        "nvmlDeviceGetCurrentClocksThrottleReasons" => throttle as *const c_void,
        "nvmlDeviceGetPowerUsage" => power as *const c_void,
        "nvmlDeviceGetTemperature" => temperature as *const c_void,
        "nvmlDeviceGetTotalEccErrors" => ecc_errors as *const c_void,
        "nvmlDeviceGetEccMode" => on as *const c_void,
        "nvmlDeviceGetPcieReplayCounter" => five as *const c_void,
        "nvmlDeviceGetCurrPcieLinkGeneration" => five as *const c_void,
        "nvmlDeviceGetCurrPcieLinkWidth" => eight as *const c_void,
        "nvmlDeviceGetMaxPcieLinkGeneration" => five as *const c_void,
        "nvmlDeviceGetMaxPcieLinkWidth" => sixteen as *const c_void,
        "nvmlDeviceGetComputeMode" => default_mode as *const c_void,
        "nvmlDeviceGetPersistenceMode" => not_supported as *const c_void,
        "nvmlDeviceGetUUID" => uuid as *const c_void,
        "nvmlDeviceGetSerial" => no_text as *const c_void,
        _ => return None,
    };
    NonNull::new(at.cast_mut())
}

/// Only the functions that start, count and name GPUs, as in a restricted virtual machine.
fn bare(name: &str) -> Option<NonNull<c_void>> {
    const LEFT: [&str; 4] = [
        "nvmlInit_v2",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetPciInfo_v3",
    ];
    LEFT.contains(&name).then(|| whole(name)).flatten()
}

fn start(find: &dyn Fn(&str) -> Option<NonNull<c_void>>) -> Result<NvmlLibrary, String> {
    // SAFETY: the functions of this file have the signatures of the table.
    NvmlLibrary::start(unsafe { Api::bind(find) }?, CallLog::default())
}

fn management(find: &dyn Fn(&str) -> Option<NonNull<c_void>>) -> ManagementLibrary {
    ManagementLibrary::of(start(find).ok(), LibraryReport::default())
}

fn gpu(index: u32, pci: &str) -> Gpu {
    Gpu { index, pci: pci.parse().unwrap(), vendor: "nvidia".into(), ..Gpu::default() }
}

#[test]
fn links_become_files_of_a_snapshot() {
    let files = management(&whole).files();
    let paths: Vec<&str> = files.iter().map(|f| f.0.as_str()).collect();
    assert_eq!(
        paths,
        [
            "nvml/0000:19:00.0/nvlink",
            "nvml/0000:3b:00.0/nvlink",
            "nvml/0000:19:00.0/facts",
            "nvml/0000:3b:00.0/facts"
        ]
    );
    // What the library lacks is omitted.
    assert!(files[2].1.starts_with("ecc=1\n") && !files[2].1.contains("bar1"), "{}", files[2].1);
    let lines: Vec<&str> = files[1].1.lines().collect();
    assert_eq!(lines.len(), 18);
    assert_eq!(lines[6], "link=6 active=1 version=4 mbps=26562 remote=switch pci=0000:07:00.0");
    assert!(lines[7].starts_with("link=7 active=0 "), "{}", lines[7]);
}

#[test]
fn the_state_of_a_gpu_is_read_by_its_number() {
    let gpus = [gpu(4, "0000:3b:00.0"), gpu(5, "0000:ff:00.0")];
    let monitor = management(&whole).watch_in(&gpus, Path::new("/none")).unwrap();
    assert!(monitor.state(0).is_none() && monitor.state(5).is_none());
    let facts = monitor.facts(4).unwrap();
    assert_eq!(facts.source, "NVML 550.54.15");
    assert_eq!((facts.max_sm_clock_mhz, facts.nvlinks), (Some(1980), Some((17, 18))));
    assert_eq!((facts.ecc, facts.persistence, facts.mig), (Some(true), None, None));
    assert_eq!(facts.compute_mode.as_deref(), Some("default"));
    assert_eq!((facts.identity.text(false), facts.identity.serial), ("GPU-1b2c".into(), "".into()));
    let link = PcieLink { speed_gts: 32.0, width: 8, max_speed_gts: 32.0, max_width: 16 };
    let state = GpuState {
        sm_clock_mhz: Some(1755),
        memory_clock_mhz: Some(3201),
        power_w: Some(214.5),
        temperature_c: Some(41.0),
        throttle: Some(vec!["power cap".into()]),
        pcie: Some(link),
        ..GpuState::default()
    };
    assert_eq!(monitor.state(4), Some(state));
    // One error on each of 18 links; replays and recoveries are 0.
    let counters = GpuState {
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(0),
        link_errors: Some(18),
        pcie_replays: Some(5),
        ..GpuState::default()
    };
    assert_eq!(monitor.counters(4), Some(counters));
}

#[test]
fn a_library_with_only_required_functions_gives_no_state() {
    assert!(management(&bare).files().is_empty());
    let monitor = management(&bare).watch_in(&[gpu(0, "0000:19:00.0")], Path::new("/none"));
    let monitor = monitor.unwrap();
    assert_eq!(monitor.state(0), Some(GpuState::default()));
    assert_eq!(monitor.counters(0), Some(GpuState::default()));
    let facts = monitor.facts(0).unwrap();
    assert_eq!((facts.source.as_str(), facts.nvlinks, facts.ecc), ("NVML", None, None));
}

#[test]
fn an_unloaded_driver_and_a_lost_gpu_give_no_gpus() {
    let unloaded = |name: &str| match name {
        "nvmlInit_v2" => NonNull::new((init_without_driver as *const c_void).cast_mut()),
        _ => whole(name),
    };
    let why = start(&unloaded).unwrap_err();
    assert_eq!(why, "nvmlInit returns 9 (the driver is not loaded)");
    assert_eq!(management(&whole).addresses().len(), 2);
    let without = |name: &str| if name.contains("Count") { None } else { whole(name) };
    assert!(start(&without).unwrap_err().contains("lacks nvmlDeviceGetCount_v2"));
}

#[test]
fn a_function_that_overruns_its_array_is_named_and_not_called_again() {
    let find = |name: &str| match name {
        "nvmlDeviceGetFieldValues" => {
            NonNull::new((fields_and_one_more as *const c_void).cast_mut())
        }
        _ => whole(name),
    };
    FIELD_CALLS.set(0);
    let management = management(&find);
    assert_eq!(management.addresses().len(), 2);
    // The third GPU of this host is lost, which is said, too.
    let warnings = management.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[1].ends_with("fails with 15 (a GPU is lost)"), "{warnings:?}");
    let line = &warnings[0];
    assert!(
        line.starts_with("nvmlDeviceGetFieldValues of NVML 550.54.15 wrote past its buffer"),
        "{line}"
    );
    // Links are still found, without the data of fields.
    let (_, links) = &management.files()[0];
    assert!(links.starts_with("link=0 active=1 version=4 remote=switch"), "{links}");
    let monitor = management.watch_in(&[gpu(0, "0000:19:00.0")], Path::new("/none")).unwrap();
    let counters = monitor.counters(0).unwrap();
    assert_eq!((counters.link_errors, counters.pcie_replays), (None, Some(5)));
    assert_eq!((FIELD_CALLS.get(), monitor.warnings()), (1, warnings));
}

#[test]
fn a_function_that_overruns_its_value_is_named_and_not_called_again() {
    let find = |name: &str| match name {
        "nvmlDeviceGetPowerUsage" => NonNull::new((power_and_more as *const c_void).cast_mut()),
        _ => whole(name),
    };
    let monitor = management(&find).watch_in(&[gpu(0, "0000:19:00.0")], Path::new("/none"));
    let monitor = monitor.unwrap();
    let before = monitor.warnings().len();
    for _ in 0..2 {
        let state = monitor.state(0).unwrap();
        assert_eq!((state.power_w, state.temperature_c), (None, Some(41.0)));
        assert_eq!(monitor.warnings().len(), before + 1);
    }
}

#[test]
fn links_are_queried_up_to_the_headers_limit() {
    HIGHEST_LINK.set(0);
    assert_eq!(management(&whole).files()[0].1.lines().count(), 18);
    // Links 0 to 17: NVML_NVLINK_MAX_LINKS is 18 up to driver 580.
    assert_eq!(HIGHEST_LINK.get(), 17);
    let many = |name: &str| match name {
        "nvmlDeviceGetFieldValues" => {
            NonNull::new((fields_of_many_links as *const c_void).cast_mut())
        }
        _ => whole(name),
    };
    management(&many);
    // A larger number from the driver counts up to the largest header's 36.
    assert_eq!(HIGHEST_LINK.get(), 35);
}

extern "C" fn fields_with_throughput(
    handle: NvmlHandle,
    count: i32,
    values: *mut FieldValue,
) -> i32 {
    // SAFETY: the caller passes as many elements as `count`.
    let asked = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
    if !matches!(asked[0].field, 138 | 139) {
        return fields(handle, count, values);
    }
    FIELD_CALLS.set(FIELD_CALLS.get() + 1);
    for value in asked {
        // The first GPU answers for all links together, the second for each.
        if (value.scope == u32::MAX) != (handle == 100) {
            value.code = NOT_SUPPORTED;
            continue;
        }
        let kib = u64::from(FIELD_CALLS.get()) * if value.field == 138 { 1000 } else { 10 };
        (value.kind, value.value) = (3, kib.to_ne_bytes());
    }
    0
}
extern "C" fn gpm_support(_: NvmlHandle, support: *mut [u32; 2]) -> i32 {
    put(support, [1, 1])
}
extern "C" fn gpm_alloc(sample: *mut usize) -> i32 {
    put(sample, 7)
}
extern "C" fn gpm_free(sample: usize) -> i32 {
    i32::from(sample != 7)
}
extern "C" fn gpm_sample(_: NvmlHandle, sample: usize) -> i32 {
    i32::from(sample != 7)
}
/// 1000 MiB/s out, 500 in.
extern "C" fn gpm_metrics(query: *mut GpmQuery) -> i32 {
    // SAFETY: a whole query.
    let query = unsafe { &mut *query };
    assert_eq!((query.count, query.samples), (2, [7, 7]));
    assert_eq!([query.metrics[0].id, query.metrics[1].id], [20, 21]);
    (query.metrics[0].value, query.metrics[1].value) = (1000.0, 500.0);
    0
}
extern "C" fn pcie_throughput(_: NvmlHandle, direction: i32, number: Number) -> i32 {
    put(number, if direction == 0 { 2_000_000 } else { 0 })
}

fn counting(name: &str) -> Option<NonNull<c_void>> {
    let at = match name {
        "nvmlDeviceGetFieldValues" => fields_with_throughput as *const c_void,
        "nvmlGpmQueryDeviceSupport" => gpm_support as *const c_void,
        "nvmlGpmSampleAlloc" => gpm_alloc as *const c_void,
        "nvmlGpmSampleFree" => gpm_free as *const c_void,
        "nvmlGpmSampleGet" => gpm_sample as *const c_void,
        "nvmlGpmMetricsGet" => gpm_metrics as *const c_void,
        "nvmlDeviceGetPcieThroughput" => pcie_throughput as *const c_void,
        _ => return whole(name),
    };
    NonNull::new(at.cast_mut())
}

/// Name, source and rate of each counter over 20 ms, MB/s.
fn rates(find: &dyn Fn(&str) -> Option<NonNull<c_void>>, pci: &str) -> Vec<(String, String, f64)> {
    let origin = ClockOrigin::now();
    let meters = management(find).traffic(&[gpu(0, pci)], origin);
    let before = meters[0].read();
    let begun = origin.ns();
    while origin.ns() < begun + 20_000_000 {}
    let after = meters[0].read();
    let row = |((counter, before), after): ((&TrafficCounter, &_), &_)| {
        let moved = counter.moved(before, after).unwrap();
        let name = format!("{} {}", counter.path, counter.way.word());
        // The time of a field is the reader's; of the rest only the time that was counted matters.
        let mbs = if counter.grain == 1024 { moved.bytes.as_f64() } else { moved.rate().0 * 1e3 };
        (name, counter.source.clone(), mbs.round())
    };
    meters[0].counters().iter().zip(&before).zip(&after).map(row).collect()
}

#[test]
fn bytes_are_counted_by_fields_and_by_monitors_or_windows() {
    let row = |name: &str, source: &str, mbs| (name.to_owned(), source.to_owned(), mbs);
    FIELD_CALLS.set(0);
    let gpm = "NVML GPM";
    let expected = [
        row("gpu0 NVLink out", "NVML", 1_024_000.0),
        row("gpu0 NVLink in", "NVML", 10_240.0),
        row("gpu0 PCIe out", gpm, 1049.0),
        row("gpu0 PCIe in", gpm, 524.0),
    ];
    assert_eq!(rates(&counting, "0000:19:00.0"), expected);
    // The second GPU is asked for all links, refuses, and is asked for each: 17 are active.
    let rows = rates(&counting, "0000:3b:00.0");
    assert_eq!(rows[0], row("gpu0 NVLink out", "NVML", 17.0 * 2.0 * 1_024_000.0));
    let without = |name: &str| if name.starts_with("nvmlGpm") { None } else { counting(name) };
    let rows = rates(&without, "0000:19:00.0");
    assert_eq!(
        rows[2..],
        [
            row("gpu0 PCIe out", "NVML, windows of 20 ms", 2000.0),
            row("gpu0 PCIe in", "NVML, windows of 20 ms", 0.0),
        ]
    );
}

#[test]
fn a_gpu_without_counters_says_why() {
    let whys = |find: &dyn Fn(&str) -> Option<NonNull<c_void>>, pci: &str| {
        let meters = management(find).traffic(&[gpu(0, pci)], ClockOrigin::now());
        assert!(meters[0].counters().is_empty() && meters[0].read().is_empty());
        let why = |u: &UncountedPath| format!("{}: {}", u.path, u.why);
        meters[0].uncounted().iter().map(why).collect::<Vec<_>>()
    };
    let memory = "gpu0 memory: no driver counts the bytes of a GPU's memory";
    let links = "gpu0 NVLink: NVML reads no bytes of its NVLinks";
    let pcie = "gpu0 PCIe: NVML reads no PCIe throughput of this GPU";
    assert_eq!(whys(&whole, "0000:19:00.0"), [links, pcie, memory]);
    // Where no link is known, none is missing.
    assert_eq!(whys(&bare, "0000:19:00.0"), [pcie, memory]);
    assert_eq!(whys(&whole, "0000:ff:00.0")[0], "gpu0 PCIe: NVML does not open it");
}
