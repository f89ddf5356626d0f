//! NVML data of one GPU. A failed call leaves only its own field empty.

use std::ffi::c_char;
use std::fmt::Write as _;
use std::rc::Rc;

use pathline_hal::{GpuProcess, GpuUsers};
use pathline_schema::{BoardIdentity, Bytes, GpuFacts, GpuState, PcieLink, part_text};

use super::nvml::{
    FabricInfo, LINK_ERRORS, LibraryText, MEMORY, NvmlHandle, NvmlLibrary, PciInfo, ProcessInfo,
    ProcessList, SM, SPEED, SPEED_COMMON,
};
use super::nvml_structs::Utilization;
use crate::function_table::BoundCall;
use crate::sensors::GpuSensors;

/// A GPU with its constant properties.
#[derive(Debug)]
pub(super) struct NvidiaDevice {
    pub(super) nvml: Rc<NvmlLibrary>,
    pub(super) handle: NvmlHandle,
    pub(super) pci: String,
    /// Number of links to query.
    links: u32,
    /// Highest generation and width of its PCIe link.
    pcie_max: Option<(u32, u32)>,
    /// Error counters that its links have: field and link.
    errors: Vec<(u32, u32)>,
}

/// One NVLink in the GPU's view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NvlinkState {
    pub(super) link: u32,
    pub(super) active: bool,
    pub(super) version: Option<u32>,
    /// Line rate per direction, MB/s.
    pub(super) mbps: Option<u64>,
    /// `gpu`, `cpu` or `switch`.
    pub(super) remote: Option<&'static str>,
    /// PCI address of the remote end.
    pub(super) pci: Option<String>,
}

/// GT/s of a PCIe generation (PCI Express Base Specification 6.0).
fn speed(generation: u32) -> Option<f64> {
    Some(match generation {
        1 => 2.5,
        2 => 5.0,
        3 => 8.0,
        4 => 16.0,
        5 => 32.0,
        6 => 64.0,
        _ => return None,
    })
}

type NumberCall = Option<BoundCall<unsafe extern "C" fn(NvmlHandle, *mut u32) -> i32>>;
type ModeCall = Option<BoundCall<unsafe extern "C" fn(NvmlHandle, *mut u32, *mut u32) -> i32>>;
type NumberOfCall<T> = Option<BoundCall<unsafe extern "C" fn(NvmlHandle, T, *mut u32) -> i32>>;

impl NvidiaDevice {
    /// All GPUs that NVML opens, by PCI address.
    pub(super) fn all(nvml: &Rc<NvmlLibrary>) -> Vec<Self> {
        let new = |(handle, pci)| Self::new(Rc::clone(nvml), handle, pci);
        nvml.devices().into_iter().map(new).collect()
    }

    fn new(nvml: Rc<NvmlLibrary>, handle: NvmlHandle, pci: String) -> Self {
        let links = nvml.links(handle);
        let mut device = Self { nvml, handle, pci, links, pcie_max: None, errors: Vec::new() };
        let api = device.nvml.api;
        device.pcie_max =
            device.number(api.pcie_max_generation).zip(device.number(api.pcie_max_width));
        let links = device.links();
        let asked: Vec<(u32, u32)> =
            LINK_ERRORS.iter().flat_map(|&f| links.iter().map(move |&(l, _)| (f, l))).collect();
        let answers = device.fields(&asked);
        let good = asked.into_iter().zip(answers).filter(|(_, answer)| answer.is_some());
        device.errors = good.map(|(asked, _)| asked).collect();
        device
    }

    fn number(&self, function: NumberCall) -> Option<u32> {
        // SAFETY: the handle is NVML's own; stores one number.
        self.nvml.stored(function, |call, out| unsafe { call(self.handle, out) })
    }

    /// A number for a link, a clock or a sensor.
    pub(super) fn number_of<T: Copy>(&self, function: NumberOfCall<T>, of: T) -> Option<u32> {
        // SAFETY: the handle is NVML's own; stores one number.
        self.nvml.stored(function, |call, out| unsafe { call(self.handle, of, out) })
    }

    /// Link numbers and whether each carries traffic.
    pub(super) fn links(&self) -> Vec<(u32, bool)> {
        let state = |link| Some((link, self.number_of(self.nvml.api.link_state, link)? != 0));
        (0..self.links).filter_map(state).collect()
    }

    /// The requested fields, in order.
    pub(super) fn fields(&self, asked: &[(u32, u32)]) -> Vec<Option<u64>> {
        self.nvml.fields(self.handle, asked)
    }

    /// Its NVLinks, in order.
    pub(super) fn ports(&self) -> Vec<NvlinkState> {
        // An H200 has no field for the common speed.
        let one = |field, link| self.fields(&[(field, link)]).into_iter().flatten().next();
        let speed = |link| one(SPEED, link).or_else(|| one(SPEED_COMMON, 0));
        self.links().into_iter().map(|link| self.port(link, speed(link.0))).collect()
    }

    fn port(&self, (link, active): (u32, bool), mbps: Option<u64>) -> NvlinkState {
        let api = &self.nvml.api;
        let pci: Option<PciInfo> = self.nvml.stored(api.link_pci, |call, out| {
            // SAFETY: the handle is NVML's own; fills one structure of this layout.
            unsafe { call(self.handle, link, out) }
        });
        let pci = pci.and_then(|pci| pci.address());
        // `nvmlIntNvLinkDeviceType_t`.
        let remote = match self.number_of(api.link_remote, link) {
            Some(0) => Some("gpu"),
            Some(1) => Some("cpu"),
            Some(2) => Some("switch"),
            _ => None,
        };
        let version = self.number_of(api.link_version, link).filter(|&v| v > 0);
        let mbps = mbps.filter(|&mbps| mbps > 0);
        NvlinkState { link, active, version, mbps, remote, pci }
    }

    fn utilization(&self) -> Option<Utilization> {
        self.nvml.stored(self.nvml.api.utilization, |call, out| {
            // SAFETY: the handle is NVML's own; fills one structure of this layout.
            unsafe { call(self.handle, out) }
        })
    }

    /// Compute processes, and how many of them do not belong to this run.
    fn processes(&self) -> Option<GpuUsers> {
        let list = self.nvml.stored(self.nvml.api.processes, |call, out: *mut ProcessList| {
            // SAFETY: `out` is a whole list.
            let (count, first) = unsafe { (&raw mut (*out).count, &raw mut (*out).processes) };
            // SAFETY: the handle is NVML's own; the call stores at most `count` structures, for
            // which the list has room, and their number.
            unsafe { call(self.handle, count, first.cast()) }
        })?;
        let listed = list.processes.iter().take(list.count as usize);
        let pids = listed.clone().map(|process| process.pid);
        // The usual case: checking every process of a host takes milliseconds.
        let others = match pids.clone().all(|pid| pid == std::process::id()) {
            true => Some(0),
            false => count_others(pids, &pathline_host::own_processes()),
        };
        let known = |bytes: u64| (bytes != NOT_AVAILABLE).then_some(Bytes(bytes));
        let process = |of: &ProcessInfo| GpuProcess { number: of.pid, memory: known(of.memory) };
        Some(GpuUsers { others, listed: listed.map(process).collect() })
    }

    /// A mode: its current and its pending value.
    fn modes(&self, function: ModeCall) -> Option<[u32; 2]> {
        self.nvml.stored(function, |call, out: *mut [u32; 2]| {
            let (now, next) = (out.cast::<u32>(), out.cast::<u32>().wrapping_add(1));
            // SAFETY: the handle is NVML's own; stores two numbers.
            unsafe { call(self.handle, now, next) }
        })
    }

    fn mode(&self, function: ModeCall) -> Option<bool> {
        self.modes(function).map(|[now, _]| now != 0)
    }

    /// Rows remapped for corrected and for uncorrected errors; whether a reset is pending, and whether one
    /// could not be remapped.
    fn remapped_rows(&self) -> Option<[u32; 4]> {
        self.nvml.stored(self.nvml.api.remapped_rows, |call, out: *mut [u32; 4]| {
            let nth = |nth| out.cast::<u32>().wrapping_add(nth);
            // SAFETY: the handle is NVML's own; stores four numbers.
            unsafe { call(self.handle, nth(0), nth(1), nth(2), nth(3)) }
        })
    }

    /// Bytes in all of a kind of memory.
    fn total(
        &self,
        function: Option<BoundCall<unsafe extern "C" fn(NvmlHandle, *mut [u64; 3]) -> i32>>,
    ) -> Option<u64> {
        // SAFETY: the handle is NVML's own; stores three numbers.
        let read = self.nvml.stored(function, |call, out| unsafe { call(self.handle, out) });
        read.map(|[total, ..]: [u64; 3]| total)
    }

    /// What says how it is set up and how it fares, for a snapshot: `key=value`, a line each; what the driver
    /// does not report is omitted. `peers` are all GPUs: `peer=PCI-ADDRESS READ WRITE` has the codes of
    /// `nvmlGpuP2PStatus_t`, 0 if the access is allowed.
    pub(super) fn setting_lines(&self, peers: &[Self]) -> String {
        let api = &self.nvml.api;
        let (facts, state, counters) = (self.facts(), self.state(), self.counters());
        let confidential: Option<[u32; 3]> =
            // SAFETY: fills one structure of three numbers.
            self.nvml.stored(api.confidential, |call, out| unsafe { call(out) });
        let (modes, rows) = (self.modes(api.ecc_mode), self.remapped_rows());
        let count = |number: Option<u64>| number.map(|number| number.to_string());
        let number = |number: Option<u32>| count(number.map(u64::from));
        let flag = |flag: Option<bool>| number(flag.map(u32::from));
        let row = |nth: usize| number(rows.and_then(|rows| rows.get(nth).copied()));
        let lines = [
            ("ecc", number(modes.map(|[now, _]| now))),
            ("ecc_pending", number(modes.map(|[_, next]| next))),
            ("ecc_corrected", count(counters.ecc_corrected)),
            ("ecc_uncorrected", count(counters.ecc_uncorrected)),
            ("remapped_corrected", row(0)),
            ("remapped_uncorrected", row(1)),
            ("remap_pending", row(2)),
            ("remap_failed", row(3)),
            ("retired_pending", number(self.number(api.retired_pending))),
            ("link_errors", count(counters.link_errors)),
            ("power_limit_w", facts.power_limit_w.map(|watts| watts.to_string())),
            ("power_default_w", self.number(api.power_default).map(|mw| watts(mw).to_string())),
            ("throttle", state.throttle.map(|reasons| reasons.join(","))),
            ("persistence", flag(facts.persistence)),
            ("compute_mode", facts.compute_mode),
            ("mig", flag(facts.mig)),
            ("fabric", facts.fabric),
            ("memory_bytes", count(self.total(api.memory))),
            ("bar1_bytes", count(self.total(api.bar1))),
            ("confidential", number(confidential.map(|[_, feature, _]| feature))),
        ];
        let mut text = String::new();
        for (key, value) in lines {
            // Writing to a string does not fail.
            let _ = value.map(|value| writeln!(text, "{key}={value}"));
        }
        for peer in peers.iter().filter(|peer| peer.handle != self.handle) {
            const READ: i32 = 0;
            const WRITE: i32 = 1;
            let status = |kind| {
                self.nvml.stored(api.peer_status, |call, out| {
                    // SAFETY: both handles are NVML's own; stores one number.
                    unsafe { call(self.handle, peer.handle, kind, out) }
                })
            };
            if let (Some(read), Some(write)) = (status(READ), status(WRITE)) {
                let (read, write): (u32, u32) = (read, write);
                let _ = writeln!(text, "peer={} {read} {write}", peer.pci);
            }
        }
        text
    }

    fn pcie(&self) -> Option<PcieLink> {
        let generation = self.number(self.nvml.api.pcie_generation)?;
        let width = self.number(self.nvml.api.pcie_width).filter(|&w| (1..=32).contains(&w))?;
        let (max_generation, max_width) = self.pcie_max.unwrap_or_default();
        Some(PcieLink {
            speed_gts: speed(generation)?,
            width,
            max_speed_gts: speed(max_generation).unwrap_or(0.0),
            max_width,
        })
    }

    fn text(
        &self,
        function: Option<BoundCall<unsafe extern "C" fn(NvmlHandle, *mut c_char, u32) -> i32>>,
    ) -> String {
        let text = self.nvml.stored(function, |call, text: *mut LibraryText| {
            // SAFETY: the handle is NVML's own; stores a C string of at most that many bytes.
            unsafe { call(self.handle, text.cast(), LibraryText::ROOM) }
        });
        text.map(|text| part_text(&text.text())).unwrap_or_default()
    }

    fn fabric(&self) -> Option<String> {
        let info: FabricInfo = self.nvml.stored(self.nvml.api.fabric, |call, out| {
            // SAFETY: the handle is NVML's own; fills one structure of this layout.
            unsafe { call(self.handle, out) }
        })?;
        let state = match info.state {
            1 => "not started",
            2 => "in progress",
            3 => "completed",
            _ => return None,
        };
        Some(state.to_owned())
    }
}

/// Number of a GPU's processes that do not belong to this run. In some containers NVML reports
/// process numbers of another namespace or none: unless the list contains a process of this run,
/// the count is unknown. A GPU without processes has none of others.
fn count_others(
    pids: impl Iterator<Item = u32>,
    own: &std::collections::BTreeSet<u32>,
) -> Option<u32> {
    let (ours, others): (Vec<u32>, Vec<u32>) = pids.partition(|pid| own.contains(pid));
    (!ours.is_empty() || others.is_empty()).then_some(others.len() as u32)
}

impl GpuSensors for NvidiaDevice {
    fn facts(&self) -> GpuFacts {
        let api = &self.nvml.api;
        let links = self.links();
        let active = links.iter().filter(|l| l.1).count() as u32;
        GpuFacts {
            source: format!("NVML {}", self.nvml.version).trim_end().to_owned(),
            max_sm_clock_mhz: self.number_of(api.max_clock, SM),
            max_memory_clock_mhz: self.number_of(api.max_clock, MEMORY),
            power_limit_w: self.number(api.power_limit).map(watts),
            ecc: self.mode(api.ecc_mode),
            mig: self.mode(api.mig),
            persistence: self.number(api.persistence).map(|mode| mode != 0),
            compute_mode: self.number(api.compute_mode).and_then(compute_mode),
            nvlinks: (!links.is_empty()).then_some((active, links.len() as u32)),
            busy_percent: self.utilization().map(|used| used.gpu.min(100)),
            fabric: self.fabric(),
            identity: BoardIdentity {
                uuid: self.text(api.uuid),
                serial: self.text(api.serial),
                vbios: self.text(api.vbios),
                board_part: self.text(api.board_part),
            },
        }
    }

    fn users(&self) -> Option<GpuUsers> {
        self.processes()
    }

    fn state(&self) -> GpuState {
        let api = &self.nvml.api;
        const DIE: i32 = 0;
        let reasons = self.nvml.stored(api.throttle, |call, out| {
            // SAFETY: the handle is NVML's own; stores one number.
            unsafe { call(self.handle, out) }
        });
        GpuState {
            sm_clock_mhz: self.number_of(api.clock, SM),
            memory_clock_mhz: self.number_of(api.clock, MEMORY),
            power_w: self.number(api.power).map(watts),
            temperature_c: self.number_of(api.temperature, DIE).map(f64::from),
            throttle: reasons.map(why_slow),
            pcie: self.pcie(),
            ..GpuState::default()
        }
    }

    fn counters(&self) -> GpuState {
        let api = &self.nvml.api;
        const SINCE_LOADED: i32 = 0;
        let ecc = |kind: i32| {
            self.nvml.stored(api.ecc_errors, |call, out| {
                // SAFETY: the handle is NVML's own; stores one number.
                unsafe { call(self.handle, kind, SINCE_LOADED, out) }
            })
        };
        let links = self.fields(&self.errors);
        let known = links.iter().any(Option::is_some);
        let links = links.into_iter().flatten().fold(0, u64::saturating_add);
        GpuState {
            ecc_corrected: ecc(0),
            ecc_uncorrected: ecc(1),
            link_errors: known.then_some(links),
            pcie_replays: self.number(api.pcie_replays).map(u64::from),
            other_processes: self.processes().and_then(|users| users.others),
            ..GpuState::default()
        }
    }
}

/// `NVML_VALUE_NOT_AVAILABLE`, as a number of 64 bits.
const NOT_AVAILABLE: u64 = u64::MAX;

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// `nvmlComputeMode_t`.
fn compute_mode(mode: u32) -> Option<String> {
    let name = match mode {
        0 => "default",
        2 => "prohibited",
        3 => "exclusive process",
        _ => return None,
    };
    Some(name.to_owned())
}

/// Names of the set bits of `nvmlClocksEventReasons`. Bit 0, an idle GPU, is omitted: copy engines
/// work while the multiprocessors are idle.
fn why_slow(reasons: u64) -> Vec<String> {
    const NAMES: [(u64, &str); 8] = [
        (0x2, "clock setting"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "power brake"),
        (0x100, "display clock setting"),
    ];
    let known = NAMES.iter().filter(|(bit, _)| reasons & bit != 0);
    let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let others = reasons & !0x1ff;
    if others != 0 {
        names.push(format!("reason {others:#x}"));
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn other_processes_are_counted_only_in_the_same_pid_namespace() {
        let own = BTreeSet::from([10, 11]);
        let others = |pids: &[u32]| count_others(pids.iter().copied(), &own);
        assert_eq!(others(&[]), Some(0));
        assert_eq!(others(&[10]), Some(0));
        assert_eq!(others(&[10, 4711, 11, 4712]), Some(2));
        assert_eq!(others(&[4711]), None, "it may be this process by another number");
    }
}
