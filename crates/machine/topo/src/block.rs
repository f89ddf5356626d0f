//! Block devices with hardware: disks, but not loop, RAM or mapper devices.

use pathline_schema::{BlockDevice, Bytes, PciAddress, PciDevice};

use crate::pci::owner_in;
use crate::snapshot::HostSnapshot;

const BLOCK: &str = "sys/block";
/// Vendor number of all virtio devices (Virtual I/O Device Specification 1.2, 4.1.2).
const VIRTIO: u32 = 0x1af4;
/// The unit of `size` in bytes, for any sector size of the device.
const SECTOR: u64 = 512;

/// Disks, by NUMA domain and name.
pub(crate) fn read(snapshot: &HostSnapshot, pci: &[PciDevice]) -> Vec<BlockDevice> {
    let mut disks: Vec<BlockDevice> =
        snapshot.children(BLOCK).into_iter().filter_map(|name| disk(snapshot, pci, name)).collect();
    disks.sort_by(|a, b| (a.numa, &a.name).cmp(&(b.numa, &b.name)));
    disks
}

fn disk(snapshot: &HostSnapshot, pci: &[PciDevice], name: &str) -> Option<BlockDevice> {
    let line = |file: &str| snapshot.line(&format!("{BLOCK}/{name}/{file}"));
    let address = snapshot
        .target(&format!("{BLOCK}/{name}"))
        .and_then(owner_in)
        .or_else(|| controller(snapshot, name))?;
    let size = line("size")?.parse::<u64>().ok()?.checked_mul(SECTOR).filter(|&size| size > 0)?;
    let is_virtual = is_virtio(snapshot, pci, name, &address);
    let unnamed = if is_virtual { "virtual (virtio)" } else { "" };
    Some(BlockDevice {
        name: name.to_owned(),
        model: line("device/model").unwrap_or(unnamed).to_owned(),
        numa: pci.iter().find(|d| d.address == address).and_then(|d| d.numa),
        pci: address,
        size: Bytes(size),
        // The driver of virtual disks reports 1 for every disk of the host.
        rotational: !is_virtual && line("queue/rotational") == Some("1"),
    })
}

/// Whether a disk is on the virtio bus, by its path or by its controller's vendor.
fn is_virtio(snapshot: &HostSnapshot, pci: &[PciDevice], name: &str, address: &PciAddress) -> bool {
    let on_bus = snapshot
        .target(&format!("{BLOCK}/{name}"))
        .is_some_and(|target| target.split('/').any(|part| part.starts_with("virtio")));
    on_bus || pci.iter().any(|d| d.address == *address && d.vendor == VIRTIO)
}

/// The PCI controller of a disk. With native multipath `nvme3n1` is below a virtual subsystem, and
/// its controller is `nvme3`.
fn controller(snapshot: &HostSnapshot, name: &str) -> Option<PciAddress> {
    let digits = name.strip_prefix("nvme")?;
    let end = digits.find('n')?;
    let controller = format!("sys/class/nvme/nvme{}", digits.get(..end)?);
    owner_in(snapshot.target(&controller)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_disk_has_no_rotation() {
        let mut snapshot = HostSnapshot::default();
        for (name, path) in [("vda", "0000:00:02.0/virtio1/block"), ("sda", "0000:00:03.0/ata1")] {
            let target = format!("../devices/pci0000:00/{path}/{name}\n");
            snapshot.insert(format!("sys/block/{name}.target"), target);
            snapshot.insert(format!("sys/block/{name}/size"), "2048\n");
            snapshot.insert(format!("sys/block/{name}/queue/rotational"), "1\n");
        }
        let disks = read(&snapshot, &[]);
        let seen: Vec<_> = disks.iter().map(|d| (d.name.as_str(), d.rotational)).collect();
        assert_eq!(seen, [("sda", true), ("vda", false)]);
        assert_eq!(disks[1].model, "virtual (virtio)");
        let controller = PciDevice {
            address: PciAddress::new(0, 0, 3, 0),
            vendor: VIRTIO,
            ..PciDevice::default()
        };
        assert!(!read(&snapshot, &[controller])[0].rotational);
    }
}
