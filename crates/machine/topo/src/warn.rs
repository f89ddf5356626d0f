//! Warnings about impossible or contradictory facts. Codes are stable.

use pathline_schema::{Bytes, NumaDomain, PciDevice, Topology, TopologyWarning};

/// A warning.
pub(crate) fn warning(
    code: &str,
    subject: impl Into<String>,
    text: impl Into<String>,
) -> TopologyWarning {
    TopologyWarning { code: code.into(), subject: subject.into(), text: text.into() }
}

/// Warns of impossible distances. ACPI SLIT: 10 is local, all others are greater than 10.
pub(crate) fn numa_distances(numa: &[NumaDomain], warnings: &mut Vec<TopologyWarning>) {
    for (row, domain) in numa.iter().enumerate() {
        if domain.distances.is_empty() {
            continue;
        }
        let mut odd = |text: String| {
            warnings.push(warning("numa-distance", format!("numa{}", domain.id), text));
        };
        if domain.distances.len() != numa.len() {
            let (has, want) = (domain.distances.len(), numa.len());
            odd(format!("{has} distances for {want} domains: the table is of another machine"));
            continue;
        }
        for (col, (&distance, other)) in domain.distances.iter().zip(numa).enumerate() {
            let back = other.distances.get(row).copied().unwrap_or(distance);
            if row == col && distance != 10 {
                odd(format!(
                    "its distance to itself is {distance}, not 10: the firmware's table \
                             is not to be trusted"
                ));
            } else if row != col && distance <= 10 {
                odd(format!(
                    "numa{} is at distance {distance}, as near as itself or nearer: the \
                             firmware's table is not to be trusted",
                    other.id
                ));
            } else if row < col && distance != back {
                odd(format!("numa{} is at distance {distance}, but {back} in reverse", other.id));
            }
        }
    }
}

/// Warns if the domains' memory differs much from the host's. If there is only one domain, it gets
/// the host's value.
pub(crate) fn numa_memory(topology: &mut Topology) {
    let domains: u64 = topology.numa.iter().map(|d| d.memory.0).fold(0, u64::saturating_add);
    let host = topology.host.memory.0;
    if domains == 0 || host == 0 || domains.abs_diff(host) <= host / 8 {
        return;
    }
    let mut text = format!(
        "the NUMA domains hold {} in all, /proc/meminfo reports {}: memory was added or taken away \
         after boot (a virtual machine?)",
        Bytes(domains).rounded(),
        Bytes(host).rounded()
    );
    if let [only] = topology.numa.as_mut_slice() {
        (only.memory, only.free) = (topology.host.memory, topology.host.available);
        text += "; the second is used";
    } else {
        text += "; the memory sizes of domains are unreliable";
    }
    topology.warnings.push(warning("numa-memory", "host", text));
}

/// Warns of device links trained below their maximum.
pub(crate) fn pcie_degraded(topology: &mut Topology) {
    let mut warnings = Vec::new();
    let mut check = |name: String, address: &str, pci: &[PciDevice]| {
        let Some(device) = pci.iter().find(|d| d.address == *address) else { return };
        let Some(link) = device.link.filter(|l| l.speed_gts > 0.0 && l.width > 0) else { return };
        let slow = link.max_speed_gts > 0.0 && link.speed_gts < link.max_speed_gts;
        let narrow = link.max_width > 0 && link.width < link.max_width;
        if !slow && !narrow {
            return;
        }
        let mut text = format!(
            "{address} is trained to {} GT/s x{} though it could have {} GT/s x{}: at most {} \
             instead of {} each way.",
            link.speed_gts,
            link.width,
            link.max_speed_gts,
            link.max_width,
            link.peak(),
            link.max_peak()
        );
        text += if narrow {
            " Lanes are missing: a slot of fewer lanes, a riser or a bad contact."
        } else {
            " An idle device may lower its speed to save power: look again under load; else the \
             slot is slower than the device."
        };
        warnings.push(warning("pcie-degraded", name, text));
    };
    for gpu in &topology.gpus {
        check(format!("gpu{}", gpu.index), &gpu.pci, &topology.pci);
    }
    for nic in &topology.nics {
        check(nic.name.clone(), &nic.pci, &topology.pci);
    }
    for block in &topology.blocks {
        check(block.name.clone(), &block.pci, &topology.pci);
    }
    topology.warnings.append(&mut warnings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Gpu, PcieLink};

    fn domains(table: &[&[u32]]) -> Vec<NumaDomain> {
        let domain = |(id, row): (usize, &&[u32])| NumaDomain {
            id: id as u32,
            distances: row.to_vec(),
            ..NumaDomain::default()
        };
        table.iter().enumerate().map(domain).collect()
    }

    #[test]
    fn distances_of_real_machines_are_fine_and_nonsense_is_named() {
        let count = |table: &[&[u32]]| {
            let mut warnings = Vec::new();
            numa_distances(&domains(table), &mut warnings);
            warnings.len()
        };
        assert_eq!(count(&[&[10, 21], &[21, 10]]), 0);
        assert_eq!(count(&[&[10]]), 0);
        assert_eq!(count(&[&[], &[]]), 0);
        assert_eq!(count(&[&[10, 21], &[31, 10]]), 1);
        assert_eq!(count(&[&[0, 21], &[21, 10]]), 1);
        assert_eq!(count(&[&[10, 10], &[10, 10]]), 2);
        assert_eq!(count(&[&[10, 20, 20], &[20, 10]]), 1);
    }

    #[test]
    fn a_lost_lane_and_a_slow_link_differ() {
        const A: &str = "0000:0a:00.0";
        const B: &str = "0000:0b:00.0";
        const C: &str = "0000:0c:00.0";
        let link =
            |speed_gts, width| PcieLink { speed_gts, width, max_speed_gts: 32.0, max_width: 16 };
        let device = |address: &str, link| PciDevice {
            address: address.parse().unwrap(),
            link: Some(link),
            ..PciDevice::default()
        };
        let gpu = |index, pci: &str| Gpu { index, pci: pci.parse().unwrap(), ..Gpu::default() };
        let mut topology = Topology {
            gpus: vec![gpu(0, A), gpu(1, B), gpu(2, C)],
            pci: vec![
                device(A, link(32.0, 16)),
                device(B, link(16.0, 16)),
                device(C, link(32.0, 8)),
            ],
            ..Topology::default()
        };
        pcie_degraded(&mut topology);
        let found: Vec<_> = topology.warnings.iter().map(|w| w.subject.as_str()).collect();
        assert_eq!(found, ["gpu1", "gpu2"]);
        // 16 GT/s x 16 lanes / 8 bits x 128/130 = 31.5 GB/s
        assert!(topology.warnings[0].text.contains("31.5 GB/s instead of 63.0 GB/s"));
        assert!(topology.warnings[1].text.contains("Lanes are missing"));
    }
}
