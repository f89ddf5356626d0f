//! Vendors of GPUs, one row each.

use pathline_schema::{Gpu, PciDevice};

use crate::nvidia;
use crate::pci::{AMD, NVIDIA};
use crate::peaks::{amd_product, nvidia_product};
use crate::snapshot::HostSnapshot;

/// Name and compiler target of a product.
pub(crate) type GpuProduct = (&'static str, &'static str);

/// How a vendor's GPUs are recognised.
pub(crate) struct GpuVendor {
    /// As [`Gpu::vendor`] has it.
    pub(crate) name: &'static str,
    /// The vendor's number on the PCI bus (pci.ids).
    pub(crate) pci: u32,
    /// The product of a PCI device number, where it is known.
    pub(crate) product: fn(u32) -> Option<GpuProduct>,
    /// The GPUs that a snapshot shows, numbered from the last argument on; none if they are read with their
    /// links, as those of the KFD are.
    pub(crate) gpus: Option<GpuReader>,
    /// Files of the driver that a snapshot takes besides those of `/sys`.
    pub(crate) driver_files: &'static [DriverFile],
}

/// Reads the GPUs of a snapshot from its PCI devices; the first has the number of the last argument.
type GpuReader = fn(&HostSnapshot, &[PciDevice], u32) -> Vec<Gpu>;

/// A file that a driver has for each GPU, below `/proc` or `/sys`.
pub(crate) struct DriverFile {
    /// The folder with a folder for each GPU.
    pub(crate) folder: &'static str,
    /// Its name in the folder of a GPU.
    pub(crate) name: &'static str,
    /// Words of the lines that are taken: the rest may name this one device, such as its UUID.
    pub(crate) lines: &'static [&'static str],
}

/// Every vendor that is recognised. GPUs are numbered in this order.
pub(crate) const VENDORS: &[GpuVendor] = &[
    GpuVendor { name: "amd", pci: AMD, product: amd_product, gpus: None, driver_files: &[] },
    GpuVendor {
        name: "nvidia",
        pci: NVIDIA,
        product: nvidia_product,
        gpus: Some(nvidia::gpus),
        driver_files: &[DriverFile {
            folder: nvidia::GPUS,
            name: "information",
            lines: &["Model:", "Bus Location:"],
        }],
    },
];

/// The vendor of a GPU by its PCI numbers, with the product if it is known.
pub(crate) fn gpu_product(vendor: u32, device: u32) -> (&'static str, Option<GpuProduct>) {
    let known = VENDORS.iter().find(|known| known.pci == vendor);
    known.map_or(("", None), |known| (known.name, (known.product)(device)))
}

/// Appends the GPUs of vendors whose GPUs are not read together with their links.
pub(crate) fn add_gpus(snapshot: &HostSnapshot, pci: &[PciDevice], gpus: &mut Vec<Gpu>) {
    for read in VENDORS.iter().filter_map(|vendor| vendor.gpus) {
        let first = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        gpus.extend(read(snapshot, pci, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_has_one_row_and_a_row_of_capabilities() {
        for vendor in VENDORS {
            let same = |other: &&GpuVendor| other.name == vendor.name || other.pci == vendor.pci;
            assert_eq!(VENDORS.iter().filter(same).count(), 1, "{}", vendor.name);
            assert_eq!(pathline_schema::GpuCaps::of_vendor(vendor.name).vendor, vendor.name);
        }
        assert_eq!(gpu_product(NVIDIA, 0x2335), ("nvidia", Some(("NVIDIA H200", "sm_90"))));
        assert_eq!(gpu_product(0x8086, 0x0bd5), ("", None));
    }
}
