//! Link rates of products, from data sheets. They are used where a paste names a product and nothing
//! better is known, and are then marked as assumed.

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
    /// PCIe generation, 16 lanes.
    pub pcie_gen: u32,
    /// NVLink-C2C of a GPU to its processor per direction, GB/s; 0 without.
    pub c2c_gbs: f64,
    /// Whether NVLink SHARP reduces in the switches.
    pub nvls: bool,
    /// Whether the driver allows P2P over PCIe.
    pub pcie_p2p: bool,
    /// Line rate of a network adapter of its usual node, Gbit/s.
    pub network_gbits: f64,
}

const fn sxm(name: &'static str, links: f64, pcie_gen: u32, nvls: bool, net: f64) -> ProductFacts {
    let fabric = FabricKind::Switched;
    ProductFacts {
        name,
        fabric,
        links_gbs: links,
        pair_gbs: links,
        pcie_gen,
        c2c_gbs: 0.0,
        nvls,
        pcie_p2p: true,
        network_gbits: net,
    }
}

const fn card(name: &'static str, pcie_gen: u32, pcie_p2p: bool) -> ProductFacts {
    let fabric = FabricKind::Pcie;
    ProductFacts {
        name,
        fabric,
        links_gbs: 0.0,
        pair_gbs: 0.0,
        pcie_gen,
        c2c_gbs: 0.0,
        nvls: false,
        pcie_p2p,
        network_gbits: 100.0,
    }
}

const fn bridged(name: &'static str, pair: f64, pcie_gen: u32, pcie_p2p: bool) -> ProductFacts {
    let fabric = FabricKind::Pcie;
    ProductFacts {
        name,
        fabric,
        links_gbs: pair,
        pair_gbs: pair,
        pcie_gen,
        c2c_gbs: 0.0,
        nvls: false,
        pcie_p2p,
        network_gbits: 100.0,
    }
}

const fn xgmi(name: &'static str, links: f64, pair: f64, pcie_gen: u32, net: f64) -> ProductFacts {
    let fabric = FabricKind::Xgmi;
    ProductFacts {
        name,
        fabric,
        links_gbs: links,
        pair_gbs: pair,
        pcie_gen,
        c2c_gbs: 0.0,
        nvls: false,
        pcie_p2p: true,
        network_gbits: net,
    }
}

/// NVLink per direction: P100 4 x 20, V100 6, A100 12, A800 and H800 8, H100 to H20 18 links of 25, B200 18
/// of 50 GB/s; bridges: A40, A6000, 3090 4 x 14.06, A30 4 x 25, A100 and H100 PCIe 12 x 25 (NVIDIA data
/// sheets). xGMI: MI100 3 x 46, MI210 3 x 50, MI250X pairs of 1 to 4 links of 50, 6 of the GCD with the fewest, MI300X 7 x 64, MI300A
/// pairs of 2 x 64, MI350X 7 x 76.8 (AMD data sheets and CDNA white papers). GeForce: NVIDIA's driver offers
/// no P2P over PCIe since the 30 series. NVLink-C2C: 900 GB/s of both directions for a Grace processor, which
/// one GPU of GH200 has alone and two of GB200 share (NVIDIA data sheets).
const PRODUCTS: [ProductFacts; 49] = [
    ProductFacts { c2c_gbs: 225.0, ..sxm("GB300", 900.0, 5, true, 800.0) },
    ProductFacts { c2c_gbs: 225.0, ..sxm("GB200", 900.0, 5, true, 400.0) },
    ProductFacts { c2c_gbs: 450.0, ..sxm("GH200", 450.0, 5, false, 400.0) },
    sxm("B300", 900.0, 5, true, 800.0),
    sxm("B200", 900.0, 5, true, 400.0),
    sxm("B100", 900.0, 5, true, 400.0),
    bridged("H200 NVL", 450.0, 5, true),
    sxm("H200", 450.0, 5, true, 400.0),
    bridged("H100 NVL", 300.0, 5, true),
    bridged("H100 PCIe", 300.0, 5, true),
    bridged("H100-PCIE", 300.0, 5, true),
    sxm("H100", 450.0, 5, true, 400.0),
    sxm("H800", 200.0, 5, true, 400.0),
    sxm("H20", 450.0, 5, true, 400.0),
    bridged("A100-PCIE", 300.0, 4, true),
    bridged("A100 80GB PCIe", 300.0, 4, true),
    sxm("A100", 300.0, 4, false, 200.0),
    sxm("A800", 200.0, 4, false, 200.0),
    bridged("A40", 56.25, 4, true),
    bridged("A30", 100.0, 4, true),
    card("A10G", 4, true),
    card("A10", 4, true),
    bridged("A6000", 56.25, 4, true),
    bridged("A5000", 56.25, 4, true),
    card("A4000", 4, true),
    card("L40S", 4, true),
    card("L40", 4, true),
    card("L4", 4, true),
    card("V100-PCIE", 3, true),
    ProductFacts {
        fabric: FabricKind::Meshed,
        pair_gbs: 50.0,
        ..sxm("V100", 150.0, 3, false, 100.0)
    },
    ProductFacts {
        fabric: FabricKind::Meshed,
        pair_gbs: 20.0,
        ..sxm("P100", 80.0, 3, false, 100.0)
    },
    card("T4", 3, true),
    card("RTX 6000 Ada", 4, true),
    card("RTX PRO 6000", 5, true),
    card("5090", 5, false),
    card("4090", 4, false),
    bridged("3090", 56.25, 4, false),
    bridged("2080", 50.0, 3, true),
    xgmi("MI355X", 537.6, 76.8, 5, 400.0),
    xgmi("MI350X", 537.6, 76.8, 5, 400.0),
    xgmi("MI325X", 448.0, 64.0, 5, 400.0),
    xgmi("MI300X", 448.0, 64.0, 5, 400.0),
    xgmi("MI308X", 448.0, 64.0, 5, 400.0),
    xgmi("MI300A", 384.0, 128.0, 5, 200.0),
    xgmi("MI250X", 300.0, 50.0, 4, 200.0),
    xgmi("MI250", 300.0, 50.0, 4, 200.0),
    xgmi("MI210", 150.0, 50.0, 4, 200.0),
    xgmi("MI100", 138.0, 46.0, 4, 100.0),
    card("7900 XTX", 4, true),
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
