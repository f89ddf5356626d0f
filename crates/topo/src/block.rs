//! Block devices that have hardware behind them.

use pathline_schema::{BlockDevice, Bytes, PciDevice};

use crate::pci::owner_in;
use crate::snapshot::Snapshot;

const BLOCK: &str = "sys/block";
/// `size` counts sectors of 512 bytes, whatever the device's own sector is.
const SECTOR: u64 = 512;

/// Disks, by NUMA domain and name. Loop, RAM and mapper devices are left out.
pub(crate) fn read(snapshot: &Snapshot, pci: &[PciDevice]) -> Vec<BlockDevice> {
    let mut disks: Vec<BlockDevice> =
        snapshot.children(BLOCK).into_iter().filter_map(|name| disk(snapshot, pci, name)).collect();
    disks.sort_by(|a, b| (a.numa, &a.name).cmp(&(b.numa, &b.name)));
    disks
}

fn disk(snapshot: &Snapshot, pci: &[PciDevice], name: &str) -> Option<BlockDevice> {
    let line = |file: &str| snapshot.line(&format!("{BLOCK}/{name}/{file}"));
    let address = snapshot
        .target(&format!("{BLOCK}/{name}"))
        .and_then(owner_in)
        .or_else(|| controller(snapshot, name))?;
    let size = line("size")?.parse::<u64>().ok()?.checked_mul(SECTOR).filter(|&size| size > 0)?;
    Some(BlockDevice {
        name: name.to_owned(),
        model: line("device/model").unwrap_or_default().to_owned(),
        numa: pci.iter().find(|d| d.address == address).and_then(|d| d.numa),
        pci: address,
        size: Bytes(size),
        rotational: line("queue/rotational") == Some("1"),
    })
}

/// With native multipath, `nvme3n1` lies below a virtual subsystem; its controller is `nvme3`.
fn controller(snapshot: &Snapshot, name: &str) -> Option<String> {
    let digits = name.strip_prefix("nvme")?;
    let end = digits.find('n')?;
    let controller = format!("sys/class/nvme/nvme{}", digits.get(..end)?);
    owner_in(snapshot.target(&controller)?)
}
