//! Counters of one GPU's NVLinks and of its PCIe link, by NVML.

use std::cell::RefCell;

use pathline_hal::TrafficMeter;
use pathline_host::clock::ClockOrigin;
use pathline_schema::{
    Gpu, LinkEnd, LinkKind, Ns, TrafficCounter, TrafficPath, TrafficReading, TrafficWay,
    UncountedPath, Unit,
};

use super::gpm::GpmSample;
use super::nvidia::NvidiaDevice;
use crate::sensors::NO_MEMORY_COUNTER;

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `RX`: data of one link or of all.
const THROUGHPUT: [u32; 2] = [138, 139];
/// The scope of a link field that asks for all links together.
const ALL_LINKS: u32 = u32::MAX;
/// NVLink throughput is in KiB, GPM rates in MiB/s, PCIe throughput in KB/s.
const KIB: u64 = 1024;
const MIB: f64 = 1_048_576.0;
/// The window of `nvmlDeviceGetPcieThroughput`.
const WINDOW: Ns = Ns(20e6);

/// How PCIe is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PcieSource {
    /// Rates between two samples of the GPU's performance monitors, of Hopper and later: added up to a count.
    Monitors,
    /// The rate in windows of 20 ms: what passed in them, in their time.
    Windows,
}

/// What was added up so far.
#[derive(Debug, Default)]
struct PcieTotals {
    last: Option<(GpmSample, Ns)>,
    /// Bytes out and in.
    bytes: [f64; 2],
    /// The time that they passed in.
    time: Ns,
}

#[derive(Debug)]
pub(super) struct NvidiaTraffic {
    device: NvidiaDevice,
    origin: ClockOrigin,
    /// Whether its links are counted, before PCIe.
    links: bool,
    pcie: Option<PcieSource>,
    totals: RefCell<PcieTotals>,
    counters: Vec<TrafficCounter>,
    uncounted: Vec<UncountedPath>,
}

impl NvidiaTraffic {
    pub(super) fn new(device: NvidiaDevice, gpu: &Gpu, origin: ClockOrigin) -> Self {
        let from = LinkEnd::Gpu(gpu.index);
        let links = TrafficPath::Links { from, to: None, kind: LinkKind::Nvlink };
        let to = gpu.numa.map(LinkEnd::Numa);
        let host = TrafficPath::Links { from, to, kind: LinkKind::Pcie };
        let totals = RefCell::default();
        let (counters, uncounted) = (Vec::new(), Vec::new());
        let (links_counted, pcie) = (device.link_bytes().is_some(), None);
        let mut meter =
            Self { device, origin, links: links_counted, pcie, totals, counters, uncounted };
        meter.pcie = meter.pcie_source();
        let pcie = meter.pcie.map(|source| match source {
            PcieSource::Monitors => TrafficCounter::GPM,
            PcieSource::Windows => "NVML, windows of 20 ms",
        });
        meter.add(links, meter.links.then_some("NVML"), KIB, "NVML reads no bytes of its NVLinks");
        meter.add(host, pcie, 1, "NVML reads no PCIe throughput of this GPU");
        let memory = TrafficPath::Memory(Unit::Gpu(gpu.index));
        meter.add(memory, None, 1, NO_MEMORY_COUNTER);
        if meter.device.links().is_empty() {
            meter.uncounted.retain(|uncounted| {
                !matches!(uncounted.path, TrafficPath::Links { kind: LinkKind::Nvlink, .. })
            });
        }
        meter
    }

    fn add(&mut self, path: TrafficPath, source: Option<&str>, grain: u64, why: &str) {
        let Some(source) = source else {
            return self.uncounted.push(UncountedPath { path, why: why.to_owned() });
        };
        for way in [TrafficWay::Out, TrafficWay::In] {
            let (path, source) = (path.clone(), source.to_owned());
            self.counters.push(TrafficCounter { path, way, grain, bits: u64::BITS, source });
        }
    }

    fn pcie_source(&self) -> Option<PcieSource> {
        if self.device.gpm_sample().is_some() {
            return Some(PcieSource::Monitors);
        }
        self.device.pcie_window().map(|_| PcieSource::Windows)
    }

    /// Bytes out and in, and the time that they hold at.
    fn pcie(&self, source: PcieSource) -> Option<([u64; 2], Ns)> {
        let mut totals = self.totals.borrow_mut();
        let (rates, over) = match source {
            PcieSource::Monitors => {
                let sample = self.device.gpm_sample()?;
                let now = Ns(self.origin.ns() as f64);
                let rates = match &totals.last {
                    Some((last, _)) => self.device.gpm_pcie(last, &sample)?,
                    None => [0.0; 2],
                };
                let before = totals.last.replace((sample, now)).map_or(now, |(_, at)| at);
                (rates.map(|mib| mib * MIB), now - before)
            }
            PcieSource::Windows => {
                (self.device.pcie_window()?.map(|kb| f64::from(kb) * 1e3), WINDOW)
            }
        };
        for (bytes, rate) in totals.bytes.iter_mut().zip(rates) {
            *bytes += rate * over.as_secs();
        }
        totals.time = totals.time + over;
        Some((totals.bytes.map(|bytes| bytes as u64), totals.time))
    }
}

impl TrafficMeter for NvidiaTraffic {
    fn counters(&self) -> &[TrafficCounter] {
        &self.counters
    }

    fn read(&self) -> Vec<TrafficReading> {
        let both = |counts: Option<([u64; 2], Ns)>, name: &str| {
            let at = counts.map_or(Ns(self.origin.ns() as f64), |(_, at)| at);
            let count = |nth: usize| {
                let counts = counts.and_then(|(counts, _)| counts.get(nth).copied());
                counts.ok_or_else(|| format!("NVML did not read {name}"))
            };
            [0, 1].map(|nth| TrafficReading { at, count: count(nth) })
        };
        let links = self.links.then(|| {
            let counts = self.device.link_bytes();
            both(counts.map(|counts| (counts, Ns(self.origin.ns() as f64))), "its NVLinks")
        });
        let pcie = self.pcie.map(|source| both(self.pcie(source), "PCIe"));
        links.into_iter().chain(pcie).flatten().collect()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.uncounted
    }
}

impl NvidiaDevice {
    /// KiB sent and received over all links since the driver was loaded.
    fn link_bytes(&self) -> Option<[u64; 2]> {
        let sum = |links: &[u32]| {
            let asked = THROUGHPUT.map(|field| links.iter().map(move |&link| (field, link)));
            let fields = self.fields(&asked.into_iter().flatten().collect::<Vec<_>>());
            let counts: Vec<u64> = fields.into_iter().collect::<Option<_>>()?;
            let (sent, received) = counts.split_at(links.len());
            (!links.is_empty()).then(|| [sent, received].map(|counts| counts.iter().sum()))
        };
        // One question for all links takes 2 ms, one for each of 18 links 34 ms on an H200.
        sum(&[ALL_LINKS]).or_else(|| {
            let active = self.links().into_iter().filter(|(_, active)| *active);
            sum(&active.map(|(link, _)| link).collect::<Vec<_>>())
        })
    }
}
