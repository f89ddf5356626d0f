//! Sensor readings of GPUs, through NVML or through files of their driver.
//!
//! Neither creates a context on a GPU. NVML opens the driver's control device.

mod gpm;
mod guarded;
mod nvidia;
mod nvidia_traffic;
mod nvml;
mod nvml_structs;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

use pathline_dylib::LibraryReport;
use pathline_hal::{GpuUsers, Monitor, TrafficMeter};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{Gpu, GpuFacts, GpuState};

use super::family::RuntimeFamily;
use super::sensors::{GpuSensors, UncountedGpu};

const PCI: &str = "/sys/bus/pci/devices";

/// NVML's view of this host, without a context on a GPU.
#[derive(Debug)]
pub struct ManagementLibrary {
    /// The report on the library.
    pub nvml: LibraryReport,
    library: Option<Rc<nvml::NvmlLibrary>>,
    devices: Vec<nvidia::NvidiaDevice>,
}

/// Searches for NVML and starts it.
pub fn management() -> ManagementLibrary {
    let (library, found) = nvml::search();
    ManagementLibrary::of(library, found)
}

impl ManagementLibrary {
    fn of(library: Option<nvml::NvmlLibrary>, nvml: LibraryReport) -> Self {
        let library = library.map(Rc::new);
        let devices = library.as_ref().map(nvidia::NvidiaDevice::all).unwrap_or_default();
        Self { nvml, library, devices }
    }

    /// Errors of the library so far, one per line.
    pub fn warnings(&self) -> Vec<String> {
        self.library.as_ref().map_or_else(Vec::new, |library| library.warnings())
    }

    /// Why NVML reads nothing, with the remedy, and whether it is there and refuses to start; none if it has
    /// started.
    pub fn absence(&self) -> Option<(String, bool)> {
        if self.library.is_some() {
            return None;
        }
        let LibraryReport { what, tried, way_out, .. } = &self.nvml;
        let refused = tried.iter().map(|tried| &tried.why).find(|why| why.contains(nvml::REFUSAL));
        Some(match refused {
            Some(why) => (format!("{what} does not start: {why}"), true),
            None => (format!("{what} is missing; {way_out}"), false),
        })
    }

    /// PCI addresses of the GPUs that NVML opens.
    pub fn addresses(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.pci.clone()).collect()
    }

    /// NVML data for discovery, as plain files that a snapshot stores next to the files of /sys:
    /// `nvml/PCI-ADDRESS/nvlink`, one line a link:
    /// `link=0 active=1 version=4 mbps=26562 remote=switch pci=0000:05:00.0`. Unknown fields are
    /// omitted. GPUs without NVLink have no file. Then `nvml/PCI-ADDRESS/facts`, one line a fact: `ecc=1`.
    pub fn files(&self) -> Vec<(String, String)> {
        let file = |device: &nvidia::NvidiaDevice| {
            let ports = device.ports();
            let path = format!("nvml/{}/nvlink", device.pci);
            (!ports.is_empty()).then(|| (path, ports.iter().map(line).collect()))
        };
        let facts = |device: &nvidia::NvidiaDevice| {
            let lines = device.setting_lines(&self.devices);
            (!lines.is_empty()).then(|| (format!("nvml/{}/facts", device.pci), lines))
        };
        let links = self.devices.iter().filter_map(file);
        links.chain(self.devices.iter().filter_map(facts)).collect()
    }

    /// A monitor of the GPUs of a topology; `None` if no GPU has sensors.
    pub fn watch(self, gpus: &[Gpu]) -> Option<Box<dyn Monitor>> {
        self.watch_in(gpus, Path::new(PCI))
    }

    /// The counters of each GPU of a topology. One that no library and no file of its driver counts has a meter
    /// that says so.
    pub fn traffic(mut self, gpus: &[Gpu], origin: ClockOrigin) -> Vec<Box<dyn TrafficMeter>> {
        let absence = self.absence().map(|(why, _)| why);
        let mut nvidia = self.by_address();
        let meter = |gpu: &Gpu| -> Box<dyn TrafficMeter> {
            if let Some(device) = nvidia.remove(gpu.pci.as_str()) {
                return Box::new(nvidia_traffic::NvidiaTraffic::new(device, gpu, origin));
            }
            let family = RuntimeFamily::of_vendor(&gpu.vendor);
            match family.and_then(|family| family.traffic) {
                Some(find) => find(Path::new(PCI), gpu, origin),
                None => {
                    let why = absence.clone().unwrap_or_else(|| "NVML does not open it".to_owned());
                    Box::new(UncountedGpu::new(gpu, why))
                }
            }
        };
        gpus.iter().map(meter).collect()
    }

    fn by_address(&mut self) -> BTreeMap<String, nvidia::NvidiaDevice> {
        std::mem::take(&mut self.devices).into_iter().map(|d| (d.pci.clone(), d)).collect()
    }

    fn watch_in(mut self, gpus: &[Gpu], pci: &Path) -> Option<Box<dyn Monitor>> {
        let mut nvidia = self.by_address();
        let read = |gpu: &Gpu| {
            let source: Box<dyn GpuSensors> = match nvidia.remove(gpu.pci.as_str()) {
                Some(device) => Box::new(device),
                None => RuntimeFamily::of_vendor(&gpu.vendor)?.sensors?(pci, &gpu.pci)?,
            };
            Some((gpu.index, source))
        };
        let sources: BTreeMap<u32, Box<dyn GpuSensors>> = gpus.iter().filter_map(read).collect();
        let library = self.library;
        (!sources.is_empty())
            .then(|| Box::new(LiveMonitor { sources, library }) as Box<dyn Monitor>)
    }
}

fn line(port: &nvidia::NvlinkState) -> String {
    let mut line = format!("link={} active={}", port.link, u32::from(port.active));
    // Writing to a string does not fail.
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(line, " {key}={value}");
        }
    };
    add("version", port.version.map(|v| v.to_string()));
    add("mbps", port.mbps.map(|v| v.to_string()));
    add("remote", port.remote.map(str::to_owned));
    add("pci", port.pci.clone());
    line + "\n"
}

/// The sensors of this host's GPUs by GPU number.
struct LiveMonitor {
    sources: BTreeMap<u32, Box<dyn GpuSensors>>,
    library: Option<Rc<nvml::NvmlLibrary>>,
}

impl Monitor for LiveMonitor {
    fn facts(&self, gpu: u32) -> Option<GpuFacts> {
        Some(self.sources.get(&gpu)?.facts())
    }

    fn state(&self, gpu: u32) -> Option<GpuState> {
        Some(self.sources.get(&gpu)?.state())
    }

    fn counters(&self, gpu: u32) -> Option<GpuState> {
        Some(self.sources.get(&gpu)?.counters())
    }

    fn users(&self, gpu: u32) -> Option<GpuUsers> {
        self.sources.get(&gpu)?.users()
    }

    fn warnings(&self) -> Vec<String> {
        self.library.as_ref().map_or_else(Vec::new, |library| library.warnings())
    }
}
