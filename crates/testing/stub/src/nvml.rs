//! NVML: links, clocks and counters of the simulated node, for the functions that a monitor calls.
//!
//! `nvmlDeviceGetFieldValues` can be made to behave as driver 580.159.04 on two H100s. With 18 or
//! 54 requests for the error counters of links (fields 161 to 163), it reads the element behind the
//! array. If that is a request for such a counter with code 0, it is filled as well, and the return
//! code is 0. Zeros, ones and random bytes there stay unchanged; the same after a single request,
//! and after 90 whose last ones are for counters that the GPU lacks (208, 215).
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use pathline_schema::{LinkEnd as End, LinkKind, PcieLink};

use crate::node::{PCI_DOMAIN, StubNode};
use crate::spec::{StubApi, StubFault, StubSpec};

type Handle = usize;

// Numbers of `nvmlReturn_t`.
const UNINITIALIZED: i32 = 1;
const INVALID_ARGUMENT: i32 = 2;
const NOT_SUPPORTED: i32 = 3;
const NO_PERMISSION: i32 = 4;
const INSUFFICIENT_SIZE: i32 = 7;
const UNKNOWN: i32 = 999;

/// The result of a call; the error is its status.
type Outcome<T> = Result<T, i32>;

/// First handle of the GPUs.
const FIRST_HANDLE: Handle = 0x6e_0000;
/// The driver's version.
const VERSION: &[u8] = b"580.159.04\0";
/// Link fields whose elements the look-ahead fills.
const LINK_ERRORS: [u32; 5] = [161, 162, 163, 208, 215];

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    ids: u32,
    subsystem: u32,
    text: [u8; 32],
}

impl PciInfo {
    fn new((bus, device): (u32, u32), ids: u32) -> Self {
        let domain = PCI_DOMAIN.cast_unsigned();
        let (mut legacy, mut text) = ([0; 16], [0; 32]);
        let line = format!("{domain:08X}:{bus:02X}:{device:02X}.0");
        text.iter_mut().zip(line.bytes()).for_each(|(to, byte)| *to = byte);
        legacy.iter_mut().zip(line.bytes().skip(4)).for_each(|(to, byte)| *to = byte);
        Self { legacy, domain, bus, device, ids, subsystem: 0, text }
    }
}

/// `nvmlFieldValue_t`.
#[repr(C)]
struct FieldValue {
    field: u32,
    scope: u32,
    timestamp: i64,
    latency: i64,
    kind: i32,
    code: i32,
    value: [u8; 8],
}

/// `nvmlGpuFabricInfo_t`.
#[repr(C)]
struct FabricInfo {
    cluster: [u8; 16],
    status: i32,
    clique: u32,
    state: u8,
}

/// One NVLink: its remote end and its line rate.
struct NvLink {
    /// Number of the switch; `None` for a GPU.
    switch: Option<u32>,
    mbps: u32,
}

/// A GPU of the node.
struct ManagedGpu {
    /// Bus and device.
    pci: (u32, u32),
    links: Vec<NvLink>,
    host_link: Option<PcieLink>,
}

/// The state of the library.
struct ManagedNode {
    spec: StubSpec,
    gpus: Vec<ManagedGpu>,
    /// Clocks of multiprocessors and of memory, MHz.
    clocks: (u32, u32),
    initialised: bool,
    calls: BTreeMap<&'static str, u64>,
}

static WORLD: Mutex<Option<ManagedNode>> = Mutex::new(None);

impl ManagedNode {
    /// The node that the environment describes; without GPUs if that cannot be read.
    fn new() -> Outcome<Self> {
        let node = StubNode::new(StubApi::Cuda);
        if node.wrong.is_some() {
            return Err(UNKNOWN);
        }
        let topology = &node.machine().topology;
        let links_of = |gpu: u32| {
            let bundles = topology.links.iter().filter(move |l| l.kind == LinkKind::Nvlink);
            bundles.flat_map(move |l| {
                let far = match (l.a, l.b) {
                    (near, far) | (far, near) if near == End::Gpu(gpu) => Some(far),
                    _ => None,
                };
                let mbps = l.peak.map_or(0.0, |peak| peak.0 * 1e3 / f64::from(l.width.max(1)));
                let switch = far.and_then(|far| match far {
                    End::Switch(nth) => Some(nth),
                    _ => None,
                });
                let links = far.map_or(0, |_| l.width);
                (0..links).map(move |_| NvLink { switch, mbps: mbps as u32 })
            })
        };
        let gpus = node.gpus.iter().map(|gpu| ManagedGpu {
            pci: pci(&gpu.pci),
            links: links_of(gpu.index).collect(),
            host_link: gpu.host_link,
        });
        let facts = node.machine().monitor.as_ref().and_then(|monitor| monitor.facts(0));
        let facts = facts.unwrap_or_default();
        let clock = |known: Option<u32>| known.unwrap_or(1980);
        Ok(Self {
            gpus: gpus.collect(),
            clocks: (clock(facts.max_sm_clock_mhz), clock(facts.max_memory_clock_mhz)),
            initialised: false,
            calls: BTreeMap::new(),
            spec: node.spec.clone(),
        })
    }

    fn gpu(&self, handle: Handle) -> Outcome<&ManagedGpu> {
        let gpu = handle.checked_sub(FIRST_HANDLE).and_then(|nth| self.gpus.get(nth));
        gpu.ok_or(INVALID_ARGUMENT)
    }

    fn link(&self, handle: Handle, link: u32) -> Outcome<&NvLink> {
        self.gpu(handle)?.links.get(link as usize).ok_or(INVALID_ARGUMENT)
    }

    /// A clock by its number in `nvmlClockType_t`.
    fn clock(&self, handle: Handle, which: i32) -> Outcome<u32> {
        self.gpu(handle)?;
        match which {
            0..=1 => Ok(self.clocks.0),
            2 => Ok(self.clocks.1),
            _ => Err(INVALID_ARGUMENT),
        }
    }

    fn pcie(&self, handle: Handle) -> Outcome<PcieLink> {
        self.gpu(handle)?.host_link.ok_or(NOT_SUPPORTED)
    }

    /// A field's value, and its kind.
    fn field(&self, handle: Handle, field: u32, scope: u32) -> Outcome<(i32, u64)> {
        const UNSIGNED: i32 = 1;
        const LONG: i32 = 3;
        let gpu = self.gpu(handle)?;
        match field {
            90 => gpu.links.first().map(|l| (UNSIGNED, l.mbps.into())).ok_or(NOT_SUPPORTED),
            91 => Ok((UNSIGNED, gpu.links.len() as u64)),
            164 => self.link(handle, scope).map(|l| (UNSIGNED, l.mbps.into())),
            161..=163 => self.link(handle, scope).map(|_| (LONG, 0)),
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// Answers one request as the driver does: a request with a code is left unchanged.
    fn fill(&self, handle: Handle, value: &mut FieldValue) {
        if value.code != 0 {
            return;
        }
        value.timestamp = 1_770_000_000_000_001;
        match self.field(handle, value.field, value.scope) {
            Ok((kind, number)) => (value.kind, value.value) = (kind, number.to_ne_bytes()),
            Err(code) => value.code = code,
        }
    }
}

/// Bus and device of a PCI address.
fn pci(address: &str) -> (u32, u32) {
    let part = |nth| address.split([':', '.']).nth(nth);
    let number = |nth| part(nth).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0);
    (number(1), number(2))
}

/// Generation of a PCIe link.
fn generation(gts: f64) -> u32 {
    (gts / 2.5).log2().round().max(0.0) as u32 + 1
}

/// Counts a call; returns its injected fault. Delays and hangs happen here, without the lock.
fn struck(name: &'static str) -> Outcome<Option<StubFault>> {
    let blow = with(|world| Ok(world.spec.strike(&mut world.calls, name)));
    match blow? {
        Some(StubFault::Fails(code)) => Err(code),
        Some(StubFault::Crashes) => crate::entry::crash(),
        Some(StubFault::Hangs) => loop {
            std::thread::park();
        },
        Some(StubFault::Slow(ms)) => {
            std::thread::park_timeout(std::time::Duration::from_millis(ms));
            Ok(None)
        }
        other => Ok(other),
    }
}

fn with<T>(body: impl FnOnce(&mut ManagedNode) -> Outcome<T>) -> Outcome<T> {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        *guard = Some(ManagedNode::new()?);
    }
    guard.as_mut().map_or(Err(UNKNOWN), body)
}

/// The same, once the library is initialised.
fn inside<T>(body: impl FnOnce(&ManagedNode) -> Outcome<T>) -> Outcome<T> {
    with(|world| if world.initialised { body(world) } else { Err(UNINITIALIZED) })
}

/// Stores the result of a call; with an injected overrun, past the end as well.
///
/// # Safety
/// `out` is null or can store a value.
unsafe fn store<T>(
    name: &'static str,
    out: *mut T,
    body: impl FnOnce(&ManagedNode) -> Outcome<T>,
) -> i32 {
    let stored = struck(name).and_then(|blow| {
        if out.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        let value = inside(body)?;
        // SAFETY: the caller's promise. An overrun is undefined behaviour on order: that of a library
        // that takes the room for larger than it is.
        unsafe {
            out.write(value);
            if blow == Some(StubFault::Overruns) {
                out.cast::<u8>().add(size_of::<T>()).write_bytes(0, size_of::<T>());
            }
        }
        Ok(())
    });
    stored.err().unwrap_or(0)
}

/// Functions that store one value through their last parameter.
macro_rules! export {
    ($($name:ident($($arg:ident: $kind:ty),*; $out:ty) = |$world:ident| $body:expr;)*) => {$(
        // SAFETY: the name is NVML's, for which this library stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind,)* out: *mut $out) -> i32 {
            // SAFETY: callers promise what NVML's functions take.
            unsafe { store(stringify!($name), out, |$world| $body) }
        }
    )*};
}

export! {
    nvmlDeviceGetCount_v2(; u32) = |world| Ok(world.gpus.len() as u32);
    nvmlDeviceGetHandleByIndex_v2(nth: u32; Handle) = |world| {
        let handle = FIRST_HANDLE + nth as usize;
        world.gpu(handle).map(|_| handle)
    };
    nvmlDeviceGetPciInfo_v3(gpu: Handle; PciInfo) =
        |world| Ok(PciInfo::new(world.gpu(gpu)?.pci, 0x2335_10de));
    nvmlDeviceGetNvLinkState(gpu: Handle, link: u32; u32) = |world| world.link(gpu, link).map(|_| 1);
    nvmlDeviceGetNvLinkVersion(gpu: Handle, link: u32; u32) =
        |world| world.link(gpu, link).map(|_| 4);
    // `nvmlIntNvLinkDeviceType_t`: 0 is a GPU, 2 a switch.
    nvmlDeviceGetNvLinkRemoteDeviceType(gpu: Handle, link: u32; u32) =
        |world| world.link(gpu, link).map(|link| if link.switch.is_some() { 2 } else { 0 });
    nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu: Handle, link: u32; PciInfo) = |world| {
        let switch = world.link(gpu, link)?.switch.ok_or(NOT_SUPPORTED)?;
        Ok(PciInfo::new((0xd0 + switch, 0), 0x22a3_10de))
    };
    nvmlDeviceGetClockInfo(gpu: Handle, which: i32; u32) = |world| world.clock(gpu, which);
    nvmlDeviceGetMaxClockInfo(gpu: Handle, which: i32; u32) = |world| world.clock(gpu, which);
    nvmlDeviceGetCurrentClocksEventReasons(gpu: Handle; u64) = |world| world.gpu(gpu).map(|_| 0);
    nvmlDeviceGetPowerUsage(gpu: Handle; u32) = |world| world.gpu(gpu).map(|_| 214_500);
    nvmlDeviceGetEnforcedPowerLimit(gpu: Handle; u32) = |world| world.gpu(gpu).map(|_| 700_000);
    nvmlDeviceGetTemperature(gpu: Handle, sensor: i32; u32) = |world| match sensor {
        0 => world.gpu(gpu).map(|_| 41),
        _ => Err(INVALID_ARGUMENT),
    };
    nvmlDeviceGetTotalEccErrors(gpu: Handle, _kind: i32, _since: i32; u64) =
        |world| world.gpu(gpu).map(|_| 0);
    nvmlDeviceGetPcieReplayCounter(gpu: Handle; u32) = |world| world.gpu(gpu).map(|_| 0);
    nvmlDeviceGetCurrPcieLinkGeneration(gpu: Handle; u32) =
        |world| world.pcie(gpu).map(|link| generation(link.speed_gts));
    nvmlDeviceGetMaxPcieLinkGeneration(gpu: Handle; u32) =
        |world| world.pcie(gpu).map(|link| generation(link.max_speed_gts));
    nvmlDeviceGetCurrPcieLinkWidth(gpu: Handle; u32) = |world| world.pcie(gpu).map(|link| link.width);
    nvmlDeviceGetMaxPcieLinkWidth(gpu: Handle; u32) =
        |world| world.pcie(gpu).map(|link| link.max_width);
    // `NVML_COMPUTEMODE_DEFAULT`.
    nvmlDeviceGetComputeMode(gpu: Handle; u32) = |world| world.gpu(gpu).map(|_| 0);
    nvmlDeviceGetPersistenceMode(gpu: Handle; u32) = |world| world.gpu(gpu).map(|_| 1);
    nvmlDeviceGetPowerManagementDefaultLimit(gpu: Handle; u32) =
        |world| world.gpu(gpu).map(|_| 700_000);
    // Total, free, used.
    nvmlDeviceGetMemoryInfo(gpu: Handle; [u64; 3]) =
        |world| world.gpu(gpu).map(|_| [141 << 30, 140 << 30, 1 << 30]);
    nvmlDeviceGetBAR1MemoryInfo(gpu: Handle; [u64; 3]) =
        |world| world.gpu(gpu).map(|_| [256 << 30, 255 << 30, 1 << 30]);
    nvmlDeviceGetP2PStatus(gpu: Handle, peer: Handle, _kind: i32; u32) =
        |world| world.gpu(gpu).and(world.gpu(peer)).map(|_| 0);
    // `NVML_GPU_FABRIC_STATE_COMPLETED`.
    nvmlDeviceGetGpuFabricInfo(gpu: Handle; FabricInfo) = |world| {
        world.gpu(gpu).map(|_| FabricInfo { cluster: [0; 16], status: 0, clique: 0, state: 3 })
    };
}

// SAFETY of all that follow: the names are NVML's, for which this library stands in, and callers
// promise what its functions take.

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInit_v2() -> i32 {
    let init = |world: &mut ManagedNode| {
        if world.spec.no_permission {
            return Err(NO_PERMISSION);
        }
        world.initialised = true;
        Ok(())
    };
    struck("nvmlInit_v2").and_then(|_| with(init)).err().unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, room: u32) -> i32 {
    let stored = struck("nvmlSystemGetDriverVersion").and_then(|_| {
        inside(|_| Ok(()))?;
        if text.is_null() || (room as usize) < VERSION.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: there is room for it.
        unsafe { text.cast::<u8>().copy_from_nonoverlapping(VERSION.as_ptr(), VERSION.len()) };
        Ok(())
    });
    stored.err().unwrap_or(0)
}

/// Stores a text about a GPU, which ends in its number.
///
/// # Safety
/// `text` is null or has room for that many bytes.
unsafe fn put_text(
    name: &'static str,
    gpu: Handle,
    what: &str,
    text: *mut c_char,
    room: u32,
) -> i32 {
    let stored = struck(name).and_then(|_| {
        inside(|world| world.gpu(gpu).map(|_| ()))?;
        let known = format!("{what}{gpu:04x}\0");
        if text.is_null() || (room as usize) < known.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: there is room for it.
        unsafe { text.cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
        Ok(())
    });
    stored.err().unwrap_or(0)
}

macro_rules! texts {
    ($($name:ident = $what:literal;)*) => { $(
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(gpu: Handle, text: *mut c_char, room: u32) -> i32 {
            // SAFETY: as above.
            unsafe { put_text(stringify!($name), gpu, $what, text, room) }
        }
    )* };
}

texts! {
    nvmlDeviceGetUUID = "GPU-00000000-0000-4000-8000-00000000";
    nvmlDeviceGetSerial = "16504230";
    nvmlDeviceGetVbiosVersion = "96.00.74.00.";
    nvmlDeviceGetBoardPartNumber = "900-21010-0000-";
}

/// A mode that has a current and a pending value.
///
/// # Safety
/// Both are null or can store a number.
unsafe fn mode(name: &'static str, gpu: Handle, on: u32, now: *mut u32, next: *mut u32) -> i32 {
    // SAFETY: the caller's promise.
    let code = unsafe { store(name, now, |world| world.gpu(gpu).map(|_| on)) };
    // SAFETY: as above.
    if let (0, Some(next)) = (code, unsafe { next.as_mut() }) {
        *next = on;
    }
    code
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEccMode(gpu: Handle, now: *mut u32, next: *mut u32) -> i32 {
    // SAFETY: as above.
    unsafe { mode("nvmlDeviceGetEccMode", gpu, 1, now, next) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(gpu: Handle, now: *mut u32, next: *mut u32) -> i32 {
    // SAFETY: as above.
    unsafe { mode("nvmlDeviceGetMigMode", gpu, 0, now, next) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    gpu: Handle,
    corrected: *mut u32,
    uncorrected: *mut u32,
    pending: *mut u32,
    failed: *mut u32,
) -> i32 {
    let name = "nvmlDeviceGetRemappedRows";
    // SAFETY: as above.
    let code = unsafe { mode(name, gpu, 0, corrected, uncorrected) };
    // SAFETY: as above.
    if code == 0 { unsafe { mode(name, gpu, 0, pending, failed) } } else { code }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    gpu: Handle,
    count: i32,
    values: *mut FieldValue,
) -> i32 {
    let filled = struck("nvmlDeviceGetFieldValues").and_then(|blow| {
        let count = usize::try_from(count).ok().filter(|&n| n > 0 && !values.is_null());
        let count = count.ok_or(INVALID_ARGUMENT)?;
        inside(|world| {
            world.gpu(gpu)?;
            // SAFETY: the caller passes `count` elements.
            let asked = unsafe { std::slice::from_raw_parts_mut(values, count) };
            asked.iter_mut().for_each(|value| world.fill(gpu, value));
            let last = asked.last().map_or(0, |value| value.field);
            let looks_ahead = world.spec.look_ahead && count > 1 && (161..=163).contains(&last);
            let behind = values.wrapping_add(count);
            // SAFETY: none: undefined behaviour on order, that of the real library.
            unsafe {
                if looks_ahead
                    && LINK_ERRORS.contains(&(*behind).field)
                    && ((*behind).scope as usize) < world.gpu(gpu)?.links.len()
                    && (*behind).code == 0
                {
                    world.fill(gpu, &mut *behind);
                }
                if blow == Some(StubFault::Overruns) {
                    behind.cast::<u8>().write_bytes(0xee, size_of::<FieldValue>());
                }
            }
            Ok(())
        })
    });
    filled.err().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(field: u32, scope: u32) -> FieldValue {
        FieldValue { field, scope, timestamp: 0, latency: 0, kind: -1, code: 0, value: [0; 8] }
    }

    /// How often the element behind 18 x `fields` requests is overwritten.
    fn overruns(fields: &[u32], links: u32, behind: (u32, u32)) -> bool {
        let asked = fields.iter().flat_map(|&f| (0..links).map(move |link| request(f, link)));
        let mut values: Vec<FieldValue> = asked.collect();
        let count = values.len() as i32;
        values.push(request(behind.0, behind.1));
        // SAFETY: the handle is checked; there is one element more than is asked for.
        let code = unsafe { nvmlDeviceGetFieldValues(FIRST_HANDLE, count, values.as_mut_ptr()) };
        assert_eq!(code, 0);
        values.last().is_some_and(|value| value.timestamp != 0)
    }

    /// One process has one library, so this is one test.
    #[test]
    fn it_looks_ahead_only_under_the_observed_conditions() {
        // SAFETY: takes nothing.
        assert_eq!(unsafe { nvmlInit_v2() }, 0);
        let all = [(161, 0), (162, 3), (163, 5), (208, 1), (215, 2)];
        let look_ahead = |on| {
            let set = |world: &mut ManagedNode| {
                world.spec.look_ahead = on;
                Ok(())
            };
            with(set).unwrap();
        };
        assert!(all.iter().all(|&behind| !overruns(&[161, 162, 163], 18, behind)));
        look_ahead(true);
        for behind in all {
            assert!(overruns(&[161, 162, 163], 18, behind), "{behind:?}");
            assert!(overruns(&[161], 18, behind), "{behind:?}");
            // A single request, and 90.
            assert!(!overruns(&[161], 1, behind), "{behind:?}");
            assert!(!overruns(&[161, 162, 163, 208, 215], 18, behind), "{behind:?}");
        }
        // Zeros, ones, and invalid requests.
        for behind in [(0, 0), (u32::MAX, u32::MAX), (0x1234_5678, 3), (161, 77)] {
            assert!(!overruns(&[161, 162, 163], 18, behind), "{behind:?}");
        }
        look_ahead(false);
    }
}
