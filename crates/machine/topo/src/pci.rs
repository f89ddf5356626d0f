//! PCI functions, their links, and the tree of bridges.

use pathline_schema::{Gpu, Nic, PciAddress, PciDevice, PcieLink};

use crate::parse::{int, leading_float, pci_address};
use crate::snapshot::HostSnapshot;

const DEVICES: &str = "sys/bus/pci/devices";
/// Maximum nesting of bridges, above that of any real machine and below the XML limit.
pub(crate) const MAX_DEPTH: usize = 48;

pub(crate) const AMD: u32 = 0x1002;
pub(crate) const NVIDIA: u32 = 0x10de;

/// All functions, by address.
pub(crate) fn read(snapshot: &HostSnapshot) -> Vec<PciDevice> {
    snapshot.children(DEVICES).into_iter().filter_map(|name| device(snapshot, name)).collect()
}

fn device(snapshot: &HostSnapshot, name: &str) -> Option<PciDevice> {
    let line = |file: &str| snapshot.line(&format!("{DEVICES}/{name}/{file}"));
    let number = |file: &str| line(file).and_then(int).and_then(|n| u32::try_from(n).ok());
    let speed = |file: &str| line(file).and_then(leading_float).unwrap_or(0.0);
    // The kernel reports 255 for an unreadable width.
    let width = |file: &str| number(file).filter(|&lanes| lanes <= 32).unwrap_or(0);
    let link = PcieLink {
        speed_gts: speed("current_link_speed"),
        width: width("current_link_width"),
        max_speed_gts: speed("max_link_speed"),
        max_width: width("max_link_width"),
    };
    Some(PciDevice {
        address: pci_address(name)?,
        class: number("class").unwrap_or(0),
        vendor: number("vendor").unwrap_or(0),
        device: number("device").unwrap_or(0),
        numa: number("numa_node"),
        link: (link.speed_gts > 0.0 && link.width > 0).then_some(link),
        parent: snapshot.target(&format!("{DEVICES}/{name}")).and_then(parent_in),
    })
}

/// The last but one PCI address in `../../../devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0`: the
/// parent. Never the function itself.
fn parent_in(target: &str) -> Option<PciAddress> {
    let mut addresses = target.split('/').rev().filter_map(pci_address);
    let own = addresses.next()?;
    addresses.next().filter(|parent| *parent != own)
}

/// The last PCI address in a link's target: the device that owns it.
pub(crate) fn owner_in(target: &str) -> Option<PciAddress> {
    target.split('/').rev().find_map(pci_address)
}

/// A function and the bridges above it, nearest first.
pub(crate) fn chain<'a>(pci: &'a [PciDevice], address: &str) -> Vec<&'a PciDevice> {
    let find = |address: &str| pci.iter().find(|d| d.address == *address);
    let mut chain: Vec<&PciDevice> = Vec::new();
    let mut at = find(address);
    while let Some(device) = at {
        if chain.len() >= MAX_DEPTH || chain.iter().any(|d| d.address == device.address) {
            break;
        }
        chain.push(device);
        at = device.parent.as_deref().and_then(find);
    }
    chain
}

/// The slowest link between a function and the root of its tree.
pub(crate) fn narrowest(pci: &[PciDevice], address: &str) -> Option<PcieLink> {
    chain(pci, address)
        .iter()
        .filter_map(|device| device.link)
        .min_by(|a, b| a.peak().gbs().total_cmp(&b.peak().gbs()))
}

/// Whether a class is that of a GPU: VGA, 3D, other display, or accelerator.
pub(crate) fn is_gpu_class(class: u32) -> bool {
    matches!(class >> 8, 0x0300 | 0x0302 | 0x0380 | 0x1200)
}

/// Whether a class is that of an NVSwitch: other bridge.
pub(crate) fn is_switch_class(class: u32) -> bool {
    class >> 8 == 0x0680
}

/// Sets the nearest GPU of each adapter: the only GPU below the lowest bridge above both.
pub(crate) fn near_gpus(pci: &[PciDevice], gpus: &[Gpu], nics: &mut [Nic]) {
    let above = |address: &str| -> Vec<PciAddress> {
        chain(pci, address).iter().skip(1).map(|d| d.address.clone()).collect()
    };
    let chains: Vec<(u32, Vec<PciAddress>)> =
        gpus.iter().map(|gpu| (gpu.index, above(&gpu.pci))).collect();
    for nic in nics {
        let nearest = above(&nic.pci).iter().find_map(|bridge| {
            let mut below = chains.iter().filter(|(_, chain)| chain.contains(bridge));
            let first = below.next()?;
            // Several GPUs share the bridge: none is nearest.
            Some(below.next().is_none().then_some(first.0))
        });
        nic.near_gpu = nearest.flatten();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "0000:00:00.0";
    const S1: &str = "0000:01:00.0";
    const G0: &str = "0000:10:00.0";
    const G1: &str = "0000:11:00.0";
    const N0: &str = "0000:20:00.0";
    const N1: &str = "0000:21:00.0";

    fn device(address: &str, parent: Option<&str>, width: u32) -> PciDevice {
        let link = PcieLink { speed_gts: 16.0, width, ..PcieLink::default() };
        PciDevice {
            address: address.parse().unwrap(),
            parent: parent.map(|parent| parent.parse().unwrap()),
            link: Some(link),
            ..PciDevice::default()
        }
    }

    #[test]
    fn the_lowest_shared_bridge_decides() {
        let pci = [
            device(ROOT, None, 16),
            device(S1, Some(ROOT), 8),
            device(G0, Some(S1), 16),
            device(N0, Some(S1), 16),
            device(G1, Some(ROOT), 16),
            device(N1, Some(ROOT), 16),
        ];
        let gpu = |index, pci: &str| Gpu { index, pci: pci.parse().unwrap(), ..Gpu::default() };
        let nic = |pci: &str| Nic { pci: pci.parse().unwrap(), ..Nic::default() };
        let mut nics = [nic(N0), nic(N1), nic("0000:ff:00.0")];
        near_gpus(&pci, &[gpu(0, G0), gpu(1, G1)], &mut nics);
        assert_eq!(nics.map(|n| n.near_gpu), [Some(0), None, None]);
        assert_eq!(narrowest(&pci, G0).unwrap().width, 8);
    }

    #[test]
    fn a_circle_of_bridges_ends() {
        let pci = [device(G0, Some(G1), 1), device(G1, Some(G0), 1)];
        assert_eq!(chain(&pci, G0).len(), 2);
    }

    #[test]
    fn parents_from_link_texts() {
        let target = "../../../devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0";
        assert_eq!(parent_in(target).as_deref(), Some("0000:c0:01.1"));
        assert_eq!(parent_in("../../../devices/pci0000:00/0000:00:02.0"), None);
        assert_eq!(parent_in("../devices/pci0000:00/0000:00:02.0/0000:00:02.0"), None);
        let owner = owner_in("../devices/pci0000:00/0000:00:02.0/virtio1/block/vda");
        assert_eq!(owner.as_deref(), Some("0000:00:02.0"));
    }
}
