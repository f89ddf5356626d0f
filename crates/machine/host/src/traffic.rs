//! Counters of network adapters and block devices, from files of /sys. Needs no privilege and no library.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use pathline_hal::TrafficMeter;
use pathline_schema::{
    Nic, Ns, Topology, TrafficCounter, TrafficPath, TrafficReading, TrafficWay, UncountedPath, Unit,
};

use crate::clock::ClockOrigin;

/// Longest file of a counter that is read.
const MAX_BYTES: u64 = 4096;
/// Bytes of a sector in `stat` of a block device, whatever the device's own size of blocks.
const SECTOR: u64 = 512;
/// Bytes of a count of `port_xmit_data` (InfiniBand Architecture, PortCounters).
const IB_GRAIN: u64 = 4;

/// How the text of a counter's file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CounterForm {
    /// A number.
    Number,
    /// A number; the highest of 32 bits is where counters of the first InfiniBand adapters stop.
    Sticky,
    /// `COUNT@SECONDS.NANOSECONDS`, as the driver of Slingshot adapters writes it.
    Stamped,
    /// One of several numbers.
    Column(usize),
}

/// The adapters and block devices of a host.
#[derive(Debug)]
pub struct SysfsTraffic {
    origin: ClockOrigin,
    counters: Vec<TrafficCounter>,
    files: Vec<(PathBuf, CounterForm)>,
    uncounted: Vec<UncountedPath>,
}

impl SysfsTraffic {
    /// Finds the counters of what `topology` lists. `sys` is `/sys`.
    pub fn new(topology: &Topology, sys: &Path, origin: ClockOrigin) -> Self {
        let (counters, files, uncounted) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = Self { origin, counters, files, uncounted };
        topology.nics.iter().for_each(|nic| found.add_adapter(nic, sys));
        for block in &topology.blocks {
            let stat = sys.join("block").join(&block.name).join("stat");
            let path = TrafficPath::Disk(block.name.clone());
            // Sectors read are the third number, sectors written the seventh.
            let columns = [(TrafficWay::Out, 6), (TrafficWay::In, 2)];
            let files = columns.map(|(way, at)| (way, stat.clone(), CounterForm::Column(at)));
            found.add(path, files, (SECTOR, u64::BITS));
        }
        let why = "memory bandwidth needs resctrl or uncore counters, which are not read yet";
        let memory =
            |id| UncountedPath { path: TrafficPath::Memory(Unit::Numa(id)), why: why.to_owned() };
        found.uncounted.extend(topology.numa.iter().map(|domain| memory(domain.id)));
        found
    }

    fn add_adapter(&mut self, nic: &Nic, sys: &Path) {
        let ways = |folder: &Path, out: &str, back: &str, form| {
            [(TrafficWay::Out, folder.join(out), form), (TrafficWay::In, folder.join(back), form)]
        };
        let path = || TrafficPath::Adapter(nic.name.clone());
        let device = sys.join("bus/pci/devices").join(nic.pci.as_str());
        let telemetry = device.join("telemetry");
        if !nic.pci.is_empty() && telemetry.join("hni_sts_tx_ok_octets").exists() {
            let (out, back) = ("hni_sts_tx_ok_octets", "hni_sts_rx_ok_octets");
            // The adapter's own counters are narrower than the driver's text tells.
            let size = (1, 56);
            return self.add(path(), ways(&telemetry, out, back, CounterForm::Stamped), size);
        }
        let ports = sys.join("class/infiniband").join(&nic.name).join("ports");
        if ports.exists() {
            for port in (1..=u8::MAX).take_while(|port| ports.join(port.to_string()).exists()) {
                let folder = ports.join(port.to_string()).join("counters");
                let path = match port {
                    1 => path(),
                    port => TrafficPath::Adapter(format!("{}:{port}", nic.name)),
                };
                let (out, back) = ("port_xmit_data", "port_rcv_data");
                let files = ways(&folder, out, back, CounterForm::Sticky);
                self.add(path, files, (IB_GRAIN, u64::BITS));
            }
            return;
        }
        let statistics = sys.join("class/net").join(&nic.name).join("statistics");
        let files = ways(&statistics, "tx_bytes", "rx_bytes", CounterForm::Number);
        self.add(path(), files, (1, u64::BITS));
    }

    /// Adds both directions of a path, or why it has no counter.
    fn add(
        &mut self,
        path: TrafficPath,
        files: [(TrafficWay, PathBuf, CounterForm); 2],
        (grain, bits): (u64, u32),
    ) {
        let unread = files.iter().find_map(|(_, file, form)| read(file, *form).err());
        if let Some(why) = unread {
            return self.uncounted.push(UncountedPath { path, why });
        }
        for (way, file, form) in files {
            let (path, source) = (path.clone(), "sysfs".to_owned());
            self.counters.push(TrafficCounter { path, way, grain, bits, source });
            self.files.push((file, form));
        }
    }
}

/// The count of a file, with the time that it states.
fn read(path: &Path, form: CounterForm) -> Result<(u64, Option<Ns>), String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(MAX_BYTES).read_to_string(&mut text));
    let name = || path.file_name().unwrap_or_default().to_string_lossy();
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("the driver has no {}", name()),
        ErrorKind::PermissionDenied => format!("no permission to read {}", name()),
        _ => format!("{}: {error}", name()),
    })?;
    let unknown = || format!("{} has no count", name());
    let count = |text: Option<&str>| text?.trim().parse::<u64>().ok();
    match form {
        CounterForm::Number | CounterForm::Sticky => {
            let count = count(Some(&text)).ok_or_else(unknown)?;
            match form == CounterForm::Sticky && count == u64::from(u32::MAX) {
                true => Err(format!("{} stands at its highest value", name())),
                false => Ok((count, None)),
            }
        }
        CounterForm::Column(nth) => {
            Ok((count(text.split_whitespace().nth(nth)).ok_or_else(unknown)?, None))
        }
        CounterForm::Stamped => {
            let (value, stamp) = text.trim().split_once('@').ok_or_else(unknown)?;
            let (seconds, nanos) = stamp.split_once('.').ok_or_else(unknown)?;
            let (seconds, nanos) = (
                count(Some(seconds)).ok_or_else(unknown)?,
                count(Some(nanos)).ok_or_else(unknown)?,
            );
            let at = Ns(seconds as f64 * 1e9 + nanos as f64);
            Ok((count(Some(value)).ok_or_else(unknown)?, Some(at)))
        }
    }
}

impl TrafficMeter for SysfsTraffic {
    fn counters(&self) -> &[TrafficCounter] {
        &self.counters
    }

    fn read(&self) -> Vec<TrafficReading> {
        let reading = |(file, form): &(PathBuf, CounterForm)| {
            let read = read(file, *form);
            let now = Ns(self.origin.ns() as f64);
            let at = read.as_ref().ok().and_then(|(_, at)| *at).unwrap_or(now);
            TrafficReading { at, count: read.map(|(count, _)| count) }
        };
        self.files.iter().map(reading).collect()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.uncounted
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::BlockDevice;

    use super::*;

    /// A host with an InfiniBand adapter of two ports, a Slingshot adapter, an Ethernet adapter, a virtual one
    /// without counters, and a disk.
    fn host(sys: &Path) -> Topology {
        let put = |file: &str, text: &str| {
            let path = sys.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (port, sent) in [(1, "1000\n"), (2, "4294967295\n")] {
            put(&format!("class/infiniband/mlx5_0/ports/{port}/counters/port_xmit_data"), sent);
            put(&format!("class/infiniband/mlx5_0/ports/{port}/counters/port_rcv_data"), "7\n");
        }
        let slingshot = "bus/pci/devices/0000:21:00.0/telemetry";
        put(&format!("{slingshot}/hni_sts_tx_ok_octets"), "5000@12.000000500\n");
        put(&format!("{slingshot}/hni_sts_rx_ok_octets"), "6000@12.000000900\n");
        put("class/net/eth0/statistics/tx_bytes", "11\n");
        put("class/net/eth0/statistics/rx_bytes", "12\n");
        put("block/nvme0n1/stat", "10 0 20 5 30 0 40 6 0 7 8\n");
        let nic = |name: &str, pci: &str| Nic {
            name: name.into(),
            pci: pci.parse().unwrap(),
            ..Nic::default()
        };
        Topology {
            nics: vec![
                nic("mlx5_0", "0000:11:00.0"),
                nic("hsn0", "0000:21:00.0"),
                nic("eth0", "0000:31:00.0"),
                nic("gone0", "0000:41:00.0"),
            ],
            blocks: vec![BlockDevice { name: "nvme0n1".into(), ..BlockDevice::default() }],
            ..Topology::default()
        }
    }

    #[test]
    fn each_kind_of_adapter_is_read_in_its_unit_and_what_has_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let topology = host(folder.path());
        let meter = SysfsTraffic::new(&topology, folder.path(), ClockOrigin::now());
        let row = |(counter, reading): (&TrafficCounter, TrafficReading)| {
            let name = format!("{} {}", counter.path, counter.way.word());
            (name, reading.count.unwrap() * counter.grain)
        };
        let rows: Vec<_> = meter.counters().iter().zip(meter.read()).map(row).collect();
        let rows: Vec<_> = rows.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let expected = [
            ("mlx5_0 out", 4000),
            ("mlx5_0 in", 28),
            ("hsn0 out", 5000),
            ("hsn0 in", 6000),
            ("eth0 out", 11),
            ("eth0 in", 12),
            ("nvme0n1 out", 40 * 512),
            ("nvme0n1 in", 20 * 512),
        ];
        assert_eq!(rows, expected);
        let whys: Vec<_> =
            meter.uncounted().iter().map(|u| format!("{}: {}", u.path, u.why)).collect();
        let expected = [
            "mlx5_0:2: port_xmit_data stands at its highest value",
            "gone0: the driver has no tx_bytes",
        ];
        assert_eq!(whys, expected);
        // The time is the adapter's where it states one.
        assert_eq!(meter.read()[3].at, Ns(12_000_000_900.0));
    }

    #[test]
    fn a_counter_that_is_lost_or_is_none_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let topology = host(folder.path());
        let meter = SysfsTraffic::new(&topology, folder.path(), ClockOrigin::now());
        std::fs::remove_file(folder.path().join("class/net/eth0/statistics/tx_bytes")).unwrap();
        std::fs::write(folder.path().join("block/nvme0n1/stat"), "10 0\n").unwrap();
        let readings = meter.read();
        assert_eq!(readings[4].count, Err("the driver has no tx_bytes".to_owned()));
        assert_eq!(readings[6].count, Err("stat has no count".to_owned()));
        assert!(readings[5].count.is_ok());
    }
}
