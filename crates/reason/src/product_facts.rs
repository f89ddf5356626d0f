//! Link rates of products, from data sheets. They are used where a paste names a product and nothing
//! better is known, and are then marked as assumed.

use FabricKind::{Meshed, Pcie, Switched, Xgmi};

/// How the GPUs of a node are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricKind {
    /// NVLink through NVSwitch: every pair has all links of a GPU.
    Switched,
    /// NVLink between single GPUs, or bridges of pairs.
    Meshed,
    /// xGMI between single GPUs.
    Xgmi,
    /// PCIe alone.
    Pcie,
}

/// What a product's data sheet says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProductFacts {
    /// Part of its name.
    pub name: &'static str,
    /// How its usual node joins GPUs.
    pub fabric: FabricKind,
    /// All links of a GPU per direction, GB/s; 0 without.
    pub links_gbs: f64,
    /// Links of a neighbouring pair per direction, GB/s.
    pub pair_gbs: f64,
    /// Links between the two GPUs of a package per direction, GB/s; 0 where a package has one.
    pub package_gbs: f64,
    /// PCIe generation, 16 lanes.
    pub pcie_gen: u32,
    /// NVLink-C2C of a GPU to its processor per direction, GB/s; 0 without.
    pub c2c_gbs: f64,
    /// Theoretical peak of its memory, GB/s.
    pub memory_gbs: f64,
    /// Whether NVLink SHARP reduces in the switches.
    pub nvls: bool,
    /// Whether the driver allows P2P over PCIe.
    pub pcie_p2p: bool,
}

#[allow(clippy::too_many_arguments, reason = "the columns of a table")]
const fn row(
    name: &'static str,
    fabric: FabricKind,
    (links_gbs, pair_gbs, package_gbs): (f64, f64, f64),
    pcie_gen: u32,
    c2c_gbs: f64,
    memory_gbs: f64,
    nvls: bool,
    pcie_p2p: bool,
) -> ProductFacts {
    ProductFacts {
        name,
        fabric,
        links_gbs,
        pair_gbs,
        package_gbs,
        pcie_gen,
        c2c_gbs,
        memory_gbs,
        nvls,
        pcie_p2p,
    }
}

/// NVLink per direction: P100 4 x 20, V100 6, A100 12, A800 and H800 8, H100 to H20 18 links of 25, B200 18
/// of 50 GB/s; bridges: A40, A6000, 3090 4 x 14.06, A30 4 x 25, A100 and H100 PCIe 12 x 25 (NVIDIA data
/// sheets). xGMI: MI100 3 x 46, MI210 3 x 50, MI250X pairs of 1 to 4 links of 50, 6 of the GCD with the fewest, MI300X 7 x 64, MI300A
/// pairs of 2 x 64, MI350X 7 x 76.8 (AMD data sheets and CDNA white papers). GeForce: NVIDIA's driver offers
/// no P2P over PCIe since the 30 series. MI100 and MI210 are cards whose bridges are an option. NVLink-C2C: 900 GB/s of both directions for a Grace processor, which
/// one GPU of GH200 has alone and two of GB200 share (NVIDIA data sheets).
/// Memory: theoretical peaks of the largest variant; of MI250X a GCD's. The links of two GCDs of one package are
/// four.
const PRODUCTS: [ProductFacts; 56] = [
    row("GB300", Switched, (900.0, 900.0, 0.0), 5, 225.0, 8000.0, true, true),
    row("GB200", Switched, (900.0, 900.0, 0.0), 5, 225.0, 8000.0, true, true),
    row("GH200", Switched, (450.0, 450.0, 0.0), 5, 450.0, 4000.0, false, true),
    row("B300", Switched, (900.0, 900.0, 0.0), 5, 0.0, 8000.0, true, true),
    row("B200", Switched, (900.0, 900.0, 0.0), 5, 0.0, 8000.0, true, true),
    row("B100", Switched, (900.0, 900.0, 0.0), 5, 0.0, 8000.0, true, true),
    row("H200 NVL", Pcie, (450.0, 450.0, 0.0), 5, 0.0, 4800.0, false, true),
    row("H200", Switched, (450.0, 450.0, 0.0), 5, 0.0, 4800.0, true, true),
    row("H100 NVL", Pcie, (300.0, 300.0, 0.0), 5, 0.0, 3938.0, false, true),
    row("H100 PCIe", Pcie, (300.0, 300.0, 0.0), 5, 0.0, 2039.0, false, true),
    row("H100", Switched, (450.0, 450.0, 0.0), 5, 0.0, 3352.0, true, true),
    row("H800", Switched, (200.0, 200.0, 0.0), 5, 0.0, 3352.0, true, true),
    row("H20", Switched, (450.0, 450.0, 0.0), 5, 0.0, 4000.0, true, true),
    row("A100 PCIe", Pcie, (300.0, 300.0, 0.0), 4, 0.0, 1935.0, false, true),
    row("A100", Switched, (300.0, 300.0, 0.0), 4, 0.0, 2039.0, false, true),
    row("A800", Switched, (200.0, 200.0, 0.0), 4, 0.0, 2039.0, false, true),
    row("A40", Pcie, (56.25, 56.25, 0.0), 4, 0.0, 696.0, false, true),
    row("A30", Pcie, (100.0, 100.0, 0.0), 4, 0.0, 933.0, false, true),
    row("A10G", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 600.0, false, true),
    row("A10", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 600.0, false, true),
    row("A6000", Pcie, (56.25, 56.25, 0.0), 4, 0.0, 768.0, false, true),
    row("A5000", Pcie, (56.25, 56.25, 0.0), 4, 0.0, 768.0, false, true),
    row("A4000", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 448.0, false, true),
    row("L40S", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 864.0, false, true),
    row("L40", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 864.0, false, true),
    row("L4", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 300.0, false, true),
    row("V100 PCIe", Pcie, (0.0, 0.0, 0.0), 3, 0.0, 900.0, false, true),
    row("V100", Meshed, (150.0, 50.0, 0.0), 3, 0.0, 900.0, false, true),
    row("P100", Meshed, (80.0, 20.0, 0.0), 3, 0.0, 732.0, false, true),
    row("T4", Pcie, (0.0, 0.0, 0.0), 3, 0.0, 320.0, false, true),
    row("RTX 6000 Ada", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 960.0, false, true),
    row("RTX PRO 6000", Pcie, (0.0, 0.0, 0.0), 5, 0.0, 1792.0, false, true),
    row("5090", Pcie, (0.0, 0.0, 0.0), 5, 0.0, 1792.0, false, false),
    row("4090", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 1008.0, false, false),
    row("3090", Pcie, (56.25, 56.25, 0.0), 4, 0.0, 936.0, false, false),
    row("2080", Pcie, (50.0, 50.0, 0.0), 3, 0.0, 616.0, false, true),
    row("MI355X", Xgmi, (537.6, 76.8, 0.0), 5, 0.0, 8000.0, false, true),
    row("MI350X", Xgmi, (537.6, 76.8, 0.0), 5, 0.0, 8000.0, false, true),
    row("MI325X", Xgmi, (448.0, 64.0, 0.0), 5, 0.0, 6000.0, false, true),
    row("MI300X", Xgmi, (448.0, 64.0, 0.0), 5, 0.0, 5300.0, false, true),
    row("MI308X", Xgmi, (448.0, 64.0, 0.0), 5, 0.0, 5300.0, false, true),
    row("MI300A", Xgmi, (384.0, 128.0, 0.0), 5, 0.0, 5300.0, false, true),
    row("MI250X", Xgmi, (300.0, 50.0, 200.0), 4, 0.0, 1638.4, false, true),
    row("MI250", Xgmi, (300.0, 50.0, 200.0), 4, 0.0, 1638.4, false, true),
    row("MI210", Pcie, (150.0, 50.0, 0.0), 4, 0.0, 1638.4, false, true),
    row("MI100", Pcie, (138.0, 46.0, 0.0), 4, 0.0, 1228.8, false, true),
    row("7900 XTX", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 960.0, false, true),
    row("P40", Pcie, (0.0, 0.0, 0.0), 3, 0.0, 346.0, false, true),
    row("K80", Pcie, (0.0, 0.0, 0.0), 3, 0.0, 240.0, false, true),
    row("5080", Pcie, (0.0, 0.0, 0.0), 5, 0.0, 960.0, false, false),
    row("4080", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 716.8, false, false),
    row("3080", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 760.3, false, false),
    row("W7900", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 864.0, false, true),
    row("MI60", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 1024.0, false, true),
    row("MI50", Pcie, (0.0, 0.0, 0.0), 4, 0.0, 1024.0, false, true),
    row("MI25", Pcie, (0.0, 0.0, 0.0), 3, 0.0, 484.0, false, true),
];

/// Facts of a product that `find_product` of crate `paste` names.
pub fn product_facts(name: &str) -> Option<&'static ProductFacts> {
    PRODUCTS.iter().find(|facts| facts.name == name)
}

/// One direction of 16 lanes, GB/s: GT/s x 16 x coding / 8 (PCI Express Base Specification).
pub fn pcie_gbs(generation: u32) -> f64 {
    match generation {
        0..=3 => 15.75,
        4 => 31.5,
        5 => 63.0,
        _ => 121.0,
    }
}
