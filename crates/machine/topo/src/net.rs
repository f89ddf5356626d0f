//! Network adapters with a hardware device.

use std::collections::BTreeMap;

use pathline_schema::{Nic, PciAddress, PciDevice, part_text};

use crate::parse::leading_float;
use crate::pci::owner_in;
use crate::snapshot::HostSnapshot;

const NET: &str = "sys/class/net";
const INFINIBAND: &str = "sys/class/infiniband";

/// One adapter for each PCI function: by its RDMA name if it has one (the name in NCCL, MPI and
/// UCX), otherwise by its interface name. Virtual interfaces are omitted.
pub(crate) fn read(snapshot: &HostSnapshot, pci: &[PciDevice]) -> Vec<Nic> {
    let mut nics: BTreeMap<PciAddress, Nic> = BTreeMap::new();
    let nic = |name: &str, address: &PciAddress, speed: Option<u64>| Nic {
        name: name.to_owned(),
        pci: address.clone(),
        numa: pci.iter().find(|d| d.address == *address).and_then(|d| d.numa),
        speed_mbits: speed,
        ..Nic::default()
    };
    for name in snapshot.children(INFINIBAND) {
        let Some(address) = snapshot.target(&format!("{INFINIBAND}/{name}")).and_then(owner_in)
        else {
            continue;
        };
        // `200 Gb/sec (4X HDR)`
        let rate = snapshot.line(&format!("{INFINIBAND}/{name}/ports/1/rate"));
        let speed = rate.and_then(leading_float).map(|gbits| (gbits * 1e3) as u64);
        let text = |file| snapshot.line(&format!("{INFINIBAND}/{name}/{file}")).map(part_text);
        let board = [text("hca_type"), text("board_id")].into_iter().flatten();
        let adapter = Nic {
            guid: text("node_guid").unwrap_or_default(),
            firmware: text("fw_ver").unwrap_or_default(),
            board: board.collect::<Vec<_>>().join(" ").trim().to_owned(),
            ..nic(name, &address, speed)
        };
        nics.insert(address, adapter);
    }
    for name in snapshot.children(NET) {
        let Some(address) = snapshot.target(&format!("{NET}/{name}")).and_then(owner_in) else {
            continue;
        };
        // An interface that is down reports -1 or nothing.
        let speed = snapshot.line(&format!("{NET}/{name}/speed"));
        let speed = speed.and_then(|s| s.parse::<u64>().ok()).filter(|&mbits| mbits > 0);
        let known = nics.entry(address.clone()).or_insert_with(|| nic(name, &address, None));
        known.speed_mbits = known.speed_mbits.filter(|&mbits| mbits > 0).or(speed);
    }
    let mut nics: Vec<Nic> = nics.into_values().collect();
    nics.sort_by(|a, b| (a.numa, &a.pci).cmp(&(b.numa, &b.pci)));
    nics
}
