//! Vendors of GPUs, one row each.

use pathline_schema::{Gpu, PciDevice};

use crate::nvidia;
use crate::pci::{AMD, NVIDIA};
use crate::peaks::{amd_product, nvidia_product};
use crate::snapshot::HostSnapshot;

/// Name and compiler target of a product.
pub(crate) type GpuProduct = (&'static str, &'static str);

/// How to recognise and read a vendor's GPUs.
pub(crate) struct GpuVendor {
    /// Name, as in [`Gpu::vendor`].
    pub(crate) name: &'static str,
    /// Vendor number on the PCI bus (pci.ids).
    pub(crate) pci: u32,
    /// Product by PCI device number, if known.
    pub(crate) product: fn(u32) -> Option<GpuProduct>,
    /// Reads the GPUs of a snapshot, numbered from the last argument. `None` if they are read
    /// together with their links, as from the KFD.
    pub(crate) gpus: Option<GpuReader>,
    /// Driver files that a snapshot contains in addition to `/sys`.
    pub(crate) driver_files: &'static [DriverFile],
}

/// Reads the GPUs of a snapshot from its PCI devices; the last argument is the first number.
type GpuReader = fn(&HostSnapshot, &[PciDevice], u32) -> Vec<Gpu>;

/// A file for each GPU that a driver creates below `/proc` or `/sys`.
pub(crate) struct DriverFile {
    /// The folder with a subfolder for each GPU.
    pub(crate) folder: &'static str,
    /// File name in a GPU's folder.
    pub(crate) name: &'static str,
    /// Substrings of the lines to keep: other lines may identify the device, for example by UUID.
    pub(crate) lines: &'static [&'static str],
}

/// All known vendors. GPUs are numbered in this order.
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

/// Vendor of a GPU by its PCI numbers, with the product if known.
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
