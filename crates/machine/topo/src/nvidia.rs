//! NVIDIA GPUs and NVSwitches, as far as PCI and the driver's files in `/proc` report them.

use pathline_schema::{Gpu, LinkEnd, LinkKind, PciDevice, Rate, Topology, TopologyWarning};

use crate::parse::field;
use crate::pci::{NVIDIA, is_gpu_class, is_switch_class};
use crate::peaks::{nvidia_product, nvlink_link, nvlinks_of};
use crate::snapshot::HostSnapshot;
use crate::warn::warning;

pub(crate) const GPUS: &str = "proc/driver/nvidia/gpus";

/// GPUs by PCI address, the order of NVML and of CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID. Numbers
/// start at `first`.
pub(crate) fn gpus(snapshot: &HostSnapshot, pci: &[PciDevice], first: u32) -> Vec<Gpu> {
    pci.iter()
        .filter(|device| device.vendor == NVIDIA && is_gpu_class(device.class))
        .zip(first..)
        .map(|(device, index)| {
            let table = snapshot.get(&format!("{GPUS}/{}/information", device.address));
            let model = table.and_then(|table| field(table, "Model"));
            let product = nvidia_product(device.device);
            Gpu {
                index,
                vendor: "nvidia".into(),
                name: model.or(product.map(|p| p.0)).unwrap_or_default().to_owned(),
                arch: product.map_or("", |p| p.1).to_owned(),
                pci: device.address.clone(),
                numa: device.numa,
                ..Gpu::default()
            }
        })
        .collect()
}

/// Joins SXM GPUs to the NVSwitches on the PCI bus. The number of links is the product's,
/// distributed evenly: only NVML reports the real ones, as the warning states.
pub(crate) fn add_switch_links(topology: &mut Topology) {
    let switches =
        topology.pci.iter().filter(|d| d.vendor == NVIDIA && is_switch_class(d.class)).count();
    let nvidia: Vec<&Gpu> = topology.gpus.iter().filter(|gpu| gpu.vendor == "nvidia").collect();
    let links: Vec<Option<u32>> = nvidia.iter().map(|gpu| nvlinks_of(&gpu.name)).collect();
    let modules = links.iter().flatten().count();
    if modules < 2 {
        return;
    }
    if switches == 0 {
        let text = format!(
            "{modules} GPUs are modules with NVLink, but neither PCI nor /proc shows how they are \
             joined: NVLink paths are missing here; NVML, or a topology file of NCCL \
             (NCCL_TOPO_DUMP_FILE), has them"
        );
        topology.warnings.push(warning(TopologyWarning::NVLINK_NOT_READ, "links", text));
        return;
    }
    let mut new = Vec::new();
    for (gpu, total) in nvidia.iter().zip(&links) {
        let Some(total) = total else { continue };
        let link_peak = nvlink_link(&gpu.arch).map(Rate::gbs);
        for (switch, width) in spread(*total, switches as u32) {
            new.push(pathline_schema::Link {
                a: LinkEnd::Gpu(gpu.index),
                b: LinkEnd::Switch(switch),
                kind: LinkKind::Nvlink,
                width,
                peak: link_peak.map(|gbs| Rate(gbs * f64::from(width))),
            });
        }
    }
    let text = format!(
        "PCI shows {switches} NVSwitches but no NVLink: the number of links is that of the product \
         ({} of a GPU), spread over the switches; a link that is down does not show. NVML reads \
         the real ones",
        links.iter().flatten().max().unwrap_or(&0)
    );
    topology.warnings.push(warning(TopologyWarning::NVLINK_NOT_READ, "links", text));
    topology.links.append(&mut new);
}

/// Distributes `total` links over `switches`, the remainder to the first ones: 18 over 4 is 5 5 4
/// 4.
fn spread(total: u32, switches: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..switches).filter_map(move |switch| {
        let width = total.checked_div(switches)? + u32::from(switch < total % switches);
        (width > 0).then_some((switch, width))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_spread_evenly() {
        let widths = |total, switches| spread(total, switches).map(|s| s.1).collect::<Vec<_>>();
        assert_eq!(widths(18, 4), [5, 5, 4, 4]);
        assert_eq!(widths(12, 6), [2; 6]);
        assert_eq!(widths(2, 4), [1, 1]);
        assert!(widths(4, 0).is_empty());
    }
}
