//! Counters of one GPU's xGMI links, from amdgpu's file `gpu_metrics`: `kgd_pp_interface.h` of Linux 6.4 to 6.17.

use std::path::{Path, PathBuf};

use pathline_hal::TrafficMeter;
use pathline_host::clock::ClockOrigin;
use pathline_host::files;
use pathline_schema::{
    Gpu, LinkEnd, LinkKind, Ns, TrafficCounter, TrafficPath, TrafficReading, TrafficWay,
    UncountedPath, Unit,
};

use crate::sensors::NO_MEMORY_COUNTER;

/// More than the longest layout has.
const MAX_BYTES: u64 = 1 << 14;
/// Links that every layout has room for.
const LINKS: usize = 8;
/// The header calls the unit `KiloBytes`; AMD's tools divide by 1024 to get MB. If it is 1000, rates are 2.4 % lower.
const GRAIN: u64 = 1024;
/// Time of a count of the firmware's clock, ns.
const FIRMWARE_TICK: f64 = 10.0;

/// Where a layout keeps what is read of it: version, least size, and offsets of what was read over each link and of
/// what was written, of the firmware's clock.
struct MetricsLayout {
    version: (u8, u8),
    size: usize,
    read: usize,
    written: usize,
    clock: usize,
}

const fn layout(minor: u8, size: usize, read: usize, clock: usize) -> MetricsLayout {
    MetricsLayout { version: (1, minor), size, read, written: read + 8 * LINKS, clock }
}

/// Layouts 1.6 of 384 bytes were in development kernels alone and have other offsets: the size tells them apart.
const LAYOUTS: [MetricsLayout; 5] = [
    layout(4, 288, 104, 232),
    layout(5, 328, 144, 272),
    layout(6, 1664, 128, 256),
    layout(7, 2208, 136, 288),
    layout(8, 3360, 136, 288),
];

/// What the links of a GPU have moved, in counts of 1,024 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XgmiCounts {
    /// Read over all links.
    pub read: u64,
    /// Written over all links.
    pub written: u64,
    /// The firmware's clock, if it states one.
    pub clock: Option<u64>,
    /// Minor version of the layout.
    pub version: u8,
}

/// Reads a `gpu_metrics` file.
///
/// # Errors
/// The layout has no such counters, is not known, or is cut; the GPU has no links.
pub fn xgmi_counts(metrics: &[u8]) -> Result<XgmiCounts, String> {
    let [low, high, format, content] =
        *metrics.first_chunk().ok_or_else(|| "gpu_metrics is cut".to_owned())?;
    let size = usize::from(u16::from_le_bytes([low, high]));
    let name = format!("gpu_metrics {format}.{content}");
    if format == 1 && content <= 3 {
        return Err(format!("{name} of this GPU counts no bytes of its links"));
    }
    let known = LAYOUTS.iter().find(|layout| layout.version == (format, content));
    let layout = known.ok_or_else(|| format!("{name} is not known"))?;
    if size != layout.size {
        return Err(format!("{name} of {size} bytes is not known; expected {}", layout.size));
    }
    if metrics.len() < size {
        return Err(format!("{name} is cut: {} of {size} bytes", metrics.len()));
    }
    let number = |at: usize| {
        let bytes = metrics.get(at..)?.first_chunk()?;
        // The driver fills with ones what the firmware does not report.
        Some(u64::from_le_bytes(*bytes)).filter(|&number| number != u64::MAX)
    };
    let sum = |from: usize| {
        let links = (0..LINKS).filter_map(|link| number(from + 8 * link));
        links.reduce(u64::wrapping_add).ok_or_else(|| format!("{name} has no link"))
    };
    Ok(XgmiCounts {
        read: sum(layout.read)?,
        written: sum(layout.written)?,
        clock: number(layout.clock).filter(|&clock| clock > 0),
        version: content,
    })
}

/// The counters of the GPU at its address below `devices`.
pub(super) fn find(devices: &Path, gpu: &Gpu, origin: ClockOrigin) -> Box<dyn TrafficMeter> {
    let file = devices.join(gpu.pci.as_str()).join("gpu_metrics");
    let mut meter = XgmiTraffic { file, origin, counters: Vec::new(), uncounted: Vec::new() };
    let from = LinkEnd::Gpu(gpu.index);
    let links = TrafficPath::Links { from, to: None, kind: LinkKind::Xgmi };
    match meter.counts() {
        Ok(counts) => {
            let source = format!("gpu_metrics 1.{}", counts.version);
            meter.counters = [TrafficWay::Out, TrafficWay::In]
                .map(|way| {
                    let (path, source) = (links.clone(), source.clone());
                    TrafficCounter { path, way, grain: GRAIN, bits: u64::BITS, source }
                })
                .into();
        }
        Err(why) => meter.uncounted.push(UncountedPath { path: links, why }),
    }
    let host = TrafficPath::Links { from, to: gpu.numa.map(LinkEnd::Numa), kind: LinkKind::Pcie };
    let why = "amdgpu states a bandwidth of both directions in no settled unit".to_owned();
    meter.uncounted.push(UncountedPath { path: host, why });
    let (path, why) = (TrafficPath::Memory(Unit::Gpu(gpu.index)), NO_MEMORY_COUNTER.into());
    meter.uncounted.push(UncountedPath { path, why });
    Box::new(meter)
}

#[derive(Debug)]
struct XgmiTraffic {
    file: PathBuf,
    origin: ClockOrigin,
    counters: Vec<TrafficCounter>,
    uncounted: Vec<UncountedPath>,
}

impl XgmiTraffic {
    fn counts(&self) -> Result<XgmiCounts, String> {
        let metrics = files::bytes(&self.file, MAX_BYTES);
        xgmi_counts(&metrics.ok_or_else(|| "gpu_metrics cannot be read".to_owned())?)
    }
}

impl TrafficMeter for XgmiTraffic {
    fn counters(&self) -> &[TrafficCounter] {
        &self.counters
    }

    fn read(&self) -> Vec<TrafficReading> {
        if self.counters.is_empty() {
            return Vec::new();
        }
        let counts = self.counts();
        let now = Ns(self.origin.ns() as f64);
        let clock = counts.as_ref().ok().and_then(|counts| counts.clock);
        let at = clock.map_or(now, |clock| Ns(clock as f64 * FIRMWARE_TICK));
        let reading = |counter: &TrafficCounter| {
            let count = counts.clone().map(|counts| match counter.way {
                TrafficWay::In => counts.read,
                TrafficWay::Out => counts.written,
            });
            TrafficReading { at, count }
        };
        self.counters.iter().map(reading).collect()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.uncounted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of a layout, filled with ones as the driver does, then header, links and clock.
    fn metrics(minor: u8) -> Vec<u8> {
        // Written down from the header once more, not taken from the table above.
        let (size, read, clock) = match minor {
            4 => (288, 104, 232),
            5 => (328, 144, 272),
            6 => (1664, 128, 256),
            7 => (2208, 136, 288),
            8 => (3360, 136, 288),
            _ => (120, 0, 0),
        };
        let mut bytes = vec![0xff; size];
        bytes[..4].copy_from_slice(&[size as u8, (size >> 8) as u8, 1, minor]);
        let mut put = |at: usize, number: u64| {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        };
        if minor >= 4 {
            (0..7).for_each(|link| put(read + 8 * link, 10 + link as u64));
            (0..7).for_each(|link| put(read + 64 + 8 * link, 100 + link as u64));
            put(clock, 123_456);
        }
        bytes
    }

    #[test]
    fn each_layout_is_read_and_others_are_named() {
        for version in 4..=8 {
            let (read, written, clock) = (91, 721, Some(123_456));
            let expected = XgmiCounts { read, written, clock, version };
            assert_eq!(xgmi_counts(&metrics(version)), Ok(expected), "1.{version}");
        }
        let why = |bytes: &[u8]| xgmi_counts(bytes).unwrap_err();
        assert_eq!(why(&metrics(3)), "gpu_metrics 1.3 of this GPU counts no bytes of its links");
        assert_eq!(why(&[8, 0, 1, 9]), "gpu_metrics 1.9 is not known");
        assert_eq!(why(&[8, 0, 2, 4]), "gpu_metrics 2.4 is not known");
        assert_eq!(why(&metrics(4)[..287]), "gpu_metrics 1.4 is cut: 287 of 288 bytes");
        let development = [&[128, 1, 1, 6][..], &[0; 380]].concat();
        let expected = "gpu_metrics 1.6 of 384 bytes is not known; expected 1664";
        assert_eq!(why(&development), expected);
        let mut unlinked = metrics(5);
        unlinked[144..272].fill(0xff);
        assert_eq!(why(&unlinked), "gpu_metrics 1.5 has no link");
        assert_eq!(why(&[1, 2]), "gpu_metrics is cut");
    }

    #[test]
    fn a_gpu_counts_its_links_by_the_firmwares_clock() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("0000:c1:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("gpu_metrics"), metrics(7)).unwrap();
        let gpu = Gpu { pci: "0000:c1:00.0".parse().unwrap(), numa: Some(3), ..Gpu::default() };
        let meter = find(folder.path(), &gpu, ClockOrigin::now());
        let readings = meter.read();
        let counts: Vec<_> = readings.iter().map(|reading| reading.count.clone()).collect();
        assert_eq!(counts, [Ok(721), Ok(91)]);
        assert_eq!(readings[0].at, Ns(1_234_560.0));
        let names: Vec<_> = meter.uncounted().iter().map(|u| u.path.to_string()).collect();
        assert_eq!(names, ["gpu0-numa3 PCIe", "gpu0 memory"]);
        std::fs::remove_file(device.join("gpu_metrics")).unwrap();
        assert_eq!(meter.read()[0].count, Err("gpu_metrics cannot be read".to_owned()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            head in any::<[u8; 4]>(), tail in proptest::collection::vec(any::<u8>(), 0..4000),
        ) {
            let _ = xgmi_counts(&[&head[..], &tail].concat());
            let _ = xgmi_counts(&[&[head[0], head[1], 1, 4 + head[3] % 5][..], &tail].concat());
        }
    }
}
