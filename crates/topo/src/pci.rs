//! PCI functions, their links, and the tree of bridges.

use pathline_schema::{Gpu, Nic, PciDevice, PcieLink};

use crate::parse::{int, is_pci_address, leading_float};
use crate::snapshot::HostSnapshot;

const DEVICES: &str = "sys/bus/pci/devices";
/// Maximum nesting of bridges, above that of any real machine and below the XML limit.
pub(crate) const MAX_DEPTH: usize = 48;

pub(crate) const AMD: u32 = 0x1002;
pub(crate) const NVIDIA: u32 = 0x10de;

/// All functions, by address.
pub(crate) fn read(snapshot: &HostSnapshot) -> Vec<PciDevice> {
    let addresses = snapshot.children(DEVICES);
    addresses.into_iter().filter(|a| is_pci_address(a)).map(|a| device(snapshot, a)).collect()
}

fn device(snapshot: &HostSnapshot, address: &str) -> PciDevice {
    let line = |file: &str| snapshot.line(&format!("{DEVICES}/{address}/{file}"));
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
    PciDevice {
        address: address.to_owned(),
        class: number("class").unwrap_or(0),
        vendor: number("vendor").unwrap_or(0),
        device: number("device").unwrap_or(0),
        numa: number("numa_node"),
        link: (link.speed_gts > 0.0 && link.width > 0).then_some(link),
        parent: snapshot.target(&format!("{DEVICES}/{address}")).and_then(parent_in),
    }
}

/// The last but one PCI address in `../../../devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0`: the
/// parent. Never the function itself.
fn parent_in(target: &str) -> Option<String> {
    let mut addresses = target.split('/').rev().filter(|part| is_pci_address(part));
    let own = addresses.next()?;
    addresses.next().filter(|parent| *parent != own).map(str::to_owned)
}

/// The last PCI address in a link's target: the device that owns it.
pub(crate) fn owner_in(target: &str) -> Option<String> {
    target.split('/').rev().find(|part| is_pci_address(part)).map(str::to_owned)
}

/// A function and the bridges above it, nearest first.
pub(crate) fn chain<'a>(pci: &'a [PciDevice], address: &str) -> Vec<&'a PciDevice> {
    let find = |address: &str| pci.iter().find(|d| d.address == address);
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
    let above = |address: &str| -> Vec<String> {
        chain(pci, address).iter().skip(1).map(|d| d.address.clone()).collect()
    };
    let chains: Vec<(u32, Vec<String>)> =
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

    fn device(address: &str, parent: Option<&str>, width: u32) -> PciDevice {
        let link = PcieLink { speed_gts: 16.0, width, ..PcieLink::default() };
        PciDevice {
            address: address.into(),
            parent: parent.map(str::to_owned),
            link: Some(link),
            ..PciDevice::default()
        }
    }

    #[test]
    fn the_lowest_shared_bridge_decides() {
        let pci = [
            device("root", None, 16),
            device("s1", Some("root"), 8),
            device("g0", Some("s1"), 16),
            device("n0", Some("s1"), 16),
            device("g1", Some("root"), 16),
            device("n1", Some("root"), 16),
        ];
        let gpu = |index, pci: &str| Gpu { index, pci: pci.into(), ..Gpu::default() };
        let nic = |pci: &str| Nic { name: pci.into(), pci: pci.into(), ..Nic::default() };
        let mut nics = [nic("n0"), nic("n1"), nic("elsewhere")];
        near_gpus(&pci, &[gpu(0, "g0"), gpu(1, "g1")], &mut nics);
        assert_eq!(nics.map(|n| n.near_gpu), [Some(0), None, None]);
        assert_eq!(narrowest(&pci, "g0").unwrap().width, 8);
    }

    #[test]
    fn a_circle_of_bridges_ends() {
        let pci = [device("a", Some("b"), 1), device("b", Some("a"), 1)];
        assert_eq!(chain(&pci, "a").len(), 2);
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
