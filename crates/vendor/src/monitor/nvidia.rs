//! What NVML says of one GPU. Each call that fails costs its own field.

use std::rc::Rc;

use pathline_schema::{GpuFacts, GpuState, PcieLink};

use super::nvml::{
    FabricInfo, FieldValue, Handle, LINK_ERRORS, MAX_LINKS, MEMORY, Nvml, PciInfo, SM, SPEED,
    SPEED_COMMON,
};

/// A GPU, and what was found out of it once.
#[derive(Debug)]
pub(super) struct Device {
    nvml: Rc<Nvml>,
    handle: Handle,
    pub(super) pci: String,
    /// Highest generation and width of its PCIe link.
    pcie_max: Option<(u32, u32)>,
    /// Error counters of links that it has: field and link.
    errors: Vec<(u32, u32)>,
}

/// One NVLink as the GPU sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Port {
    pub(super) link: u32,
    pub(super) active: bool,
    pub(super) version: Option<u32>,
    /// Line rate per direction, MB/s.
    pub(super) mbps: Option<u64>,
    /// `gpu`, `cpu` or `switch`.
    pub(super) remote: Option<&'static str>,
    /// Address of the other end.
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

type Get = Option<unsafe extern "C" fn(Handle, *mut u32) -> i32>;

impl Device {
    /// All GPUs that NVML opens, by PCI address.
    pub(super) fn all(nvml: &Rc<Nvml>) -> Vec<Self> {
        let new = |(handle, pci)| Self::new(Rc::clone(nvml), handle, pci);
        nvml.devices().into_iter().map(new).collect()
    }

    fn new(nvml: Rc<Nvml>, handle: Handle, pci: String) -> Self {
        let mut device = Self { nvml, handle, pci, pcie_max: None, errors: Vec::new() };
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

    fn number(&self, call: Get) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the handle is NVML's own; stores one number.
        let code = unsafe { call?(self.handle, &raw mut value) };
        (code == 0).then_some(value)
    }

    /// Numbers of its links and whether each carries traffic.
    fn links(&self) -> Vec<(u32, bool)> {
        let Some(call) = self.nvml.api.link_state else { return Vec::new() };
        let state = |link| {
            let mut active = 0;
            // SAFETY: the handle is NVML's own; stores one number.
            let code = unsafe { call(self.handle, link, &raw mut active) };
            (code == 0).then_some((link, active != 0))
        };
        (0..MAX_LINKS).filter_map(state).collect()
    }

    /// The fields asked for, in order.
    fn fields(&self, asked: &[(u32, u32)]) -> Vec<Option<u64>> {
        let mut values: Vec<FieldValue> =
            asked.iter().map(|&(field, scope)| FieldValue::ask(field, scope)).collect();
        let code = match (self.nvml.api.fields, i32::try_from(values.len())) {
            (Some(call), Ok(count)) if count > 0 => {
                // SAFETY: the handle is NVML's own; it fills as many structures as it is told of.
                unsafe { call(self.handle, count, values.as_mut_ptr()) }
            }
            _ => return vec![None; asked.len()],
        };
        values.iter().map(|value| value.number().filter(|_| code == 0)).collect()
    }

    /// Its NVLinks, in order.
    pub(super) fn ports(&self) -> Vec<Port> {
        // The common speed is none of an H200's fields.
        let one = |field, link| self.fields(&[(field, link)]).into_iter().flatten().next();
        let speed = |link| one(SPEED, link).or_else(|| one(SPEED_COMMON, 0));
        self.links().into_iter().map(|link| self.port(link, speed(link.0))).collect()
    }

    fn port(&self, (link, active): (u32, bool), mbps: Option<u64>) -> Port {
        let number = |call: Option<unsafe extern "C" fn(Handle, u32, *mut u32) -> i32>| {
            let mut value = 0;
            // SAFETY: the handle is NVML's own; stores one number.
            let code = unsafe { call?(self.handle, link, &raw mut value) };
            (code == 0).then_some(value)
        };
        let pci = self.nvml.api.link_pci.and_then(|call| {
            let mut pci = PciInfo::default();
            // SAFETY: the handle is NVML's own; fills one structure of this layout.
            let code = unsafe { call(self.handle, link, &raw mut pci) };
            pci.address().filter(|_| code == 0)
        });
        // `nvmlIntNvLinkDeviceType_t`.
        let remote = match number(self.nvml.api.link_remote) {
            Some(0) => Some("gpu"),
            Some(1) => Some("cpu"),
            Some(2) => Some("switch"),
            _ => None,
        };
        let version = number(self.nvml.api.link_version).filter(|&v| v > 0);
        let mbps = mbps.filter(|&mbps| mbps > 0);
        Port { link, active, version, mbps, remote, pci }
    }

    pub(super) fn facts(&self) -> GpuFacts {
        let api = &self.nvml.api;
        let links = self.links();
        let active = links.iter().filter(|l| l.1).count() as u32;
        GpuFacts {
            source: format!("NVML {}", self.nvml.version).trim_end().to_owned(),
            max_sm_clock_mhz: self.clock(api.max_clock, SM),
            max_memory_clock_mhz: self.clock(api.max_clock, MEMORY),
            power_limit_w: self.number(api.power_limit).map(watts),
            ecc: self.mode(api.ecc_mode),
            mig: self.mode(api.mig),
            persistence: self.number(api.persistence).map(|mode| mode != 0),
            compute_mode: self.number(api.compute_mode).and_then(compute_mode),
            nvlinks: (!links.is_empty()).then_some((active, links.len() as u32)),
            fabric: self.fabric(),
        }
    }

    pub(super) fn state(&self) -> GpuState {
        let api = &self.nvml.api;
        let mut reasons = 0;
        let throttle = api.throttle.and_then(|call| {
            // SAFETY: the handle is NVML's own; stores one number.
            let code = unsafe { call(self.handle, &raw mut reasons) };
            (code == 0).then(|| why_slow(reasons))
        });
        let temperature = api.temperature.and_then(|call| {
            let mut value = 0;
            const DIE: i32 = 0;
            // SAFETY: the handle is NVML's own; stores one number.
            let code = unsafe { call(self.handle, DIE, &raw mut value) };
            (code == 0).then(|| f64::from(value))
        });
        GpuState {
            sm_clock_mhz: self.clock(api.clock, SM),
            memory_clock_mhz: self.clock(api.clock, MEMORY),
            power_w: self.number(api.power).map(watts),
            temperature_c: temperature,
            throttle,
            pcie: self.pcie(),
            ..GpuState::default()
        }
    }

    pub(super) fn counters(&self) -> GpuState {
        let api = &self.nvml.api;
        let ecc = |kind: i32| {
            let mut value = 0;
            const SINCE_LOADED: i32 = 0;
            // SAFETY: the handle is NVML's own; stores one number.
            let code = unsafe { api.ecc_errors?(self.handle, kind, SINCE_LOADED, &raw mut value) };
            (code == 0).then_some(value)
        };
        let links = self.fields(&self.errors);
        let known = links.iter().any(Option::is_some);
        let links = links.into_iter().flatten().fold(0, u64::saturating_add);
        GpuState {
            ecc_corrected: ecc(0),
            ecc_uncorrected: ecc(1),
            link_errors: known.then_some(links),
            pcie_replays: self.number(api.pcie_replays).map(u64::from),
            ..GpuState::default()
        }
    }

    fn clock(
        &self,
        call: Option<unsafe extern "C" fn(Handle, i32, *mut u32) -> i32>,
        which: i32,
    ) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the handle is NVML's own; stores one number.
        let code = unsafe { call?(self.handle, which, &raw mut value) };
        (code == 0).then_some(value)
    }

    /// A mode that has a current and a pending value.
    fn mode(
        &self,
        call: Option<unsafe extern "C" fn(Handle, *mut u32, *mut u32) -> i32>,
    ) -> Option<bool> {
        let (mut now, mut next) = (0, 0);
        // SAFETY: the handle is NVML's own; stores two numbers.
        let code = unsafe { call?(self.handle, &raw mut now, &raw mut next) };
        (code == 0).then_some(now != 0)
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

    fn fabric(&self) -> Option<String> {
        let mut info = FabricInfo::default();
        // SAFETY: the handle is NVML's own; fills one structure of this layout.
        let code = unsafe { self.nvml.api.fabric?(self.handle, &raw mut info) };
        let state = match info.state {
            1 => "not started",
            2 => "in progress",
            3 => "completed",
            _ => return None,
        };
        (code == 0).then(|| state.to_owned())
    }
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// `nvmlComputeMode_t`.
fn compute_mode(mode: u32) -> Option<String> {
    let word = match mode {
        0 => "default",
        2 => "prohibited",
        3 => "exclusive process",
        _ => return None,
    };
    Some(word.to_owned())
}

/// Bits of `nvmlClocksEventReasons` in words. Bit 0, an idle GPU, is left out: copy engines work
/// while the multiprocessors are idle.
fn why_slow(reasons: u64) -> Vec<String> {
    const WORDS: [(u64, &str); 8] = [
        (0x2, "clock setting"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "power brake"),
        (0x100, "display clock setting"),
    ];
    let known = WORDS.iter().filter(|(bit, _)| reasons & bit != 0);
    let mut words: Vec<String> = known.map(|(_, word)| (*word).to_owned()).collect();
    let others = reasons & !0x1ff;
    if others != 0 {
        words.push(format!("reason {others:#x}"));
    }
    words
}
