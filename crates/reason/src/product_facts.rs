//! Link rates of products, from data sheets. They are used where a paste names a product and nothing
//! better is known, and are then marked as assumed.

use std::sync::LazyLock;

use pathline_paste::PRODUCT_TABLE;

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
    /// PCIe per direction, GB/s.
    pub pcie_gbs: f64,
    /// NVLink-C2C of a GPU to its processor per direction, GB/s; 0 without.
    pub c2c_gbs: f64,
    /// Theoretical peak of its memory, GB/s.
    pub memory_gbs: f64,
    /// Whether NVLink SHARP reduces in the switches.
    pub nvls: bool,
    /// Whether the driver allows P2P over PCIe.
    pub pcie_p2p: bool,
}

/// Facts of the products that crate `paste` names; a name without facts has none.
static PRODUCTS: LazyLock<Vec<ProductFacts>> =
    LazyLock::new(|| PRODUCT_TABLE.lines().filter_map(parse_row).collect());

fn parse_row(line: &'static str) -> Option<ProductFacts> {
    let cells: Vec<&'static str> = line.split('\t').collect();
    let pcie = |text: &str| {
        let (generation, lanes) = text.split_once('x').unwrap_or((text, "16"));
        Some(pcie_gbs(generation.parse().ok()?) * lanes.parse::<f64>().ok()? / 16.0)
    };
    if let [name, generation, memory, pcie_p2p] = cells[..] {
        return Some(ProductFacts {
            name,
            fabric: FabricKind::Pcie,
            links_gbs: 0.0,
            pair_gbs: 0.0,
            package_gbs: 0.0,
            pcie_gbs: pcie(generation)?,
            c2c_gbs: 0.0,
            memory_gbs: memory.parse().ok()?,
            nvls: false,
            pcie_p2p: pcie_p2p == "yes",
        });
    }
    let [name, fabric, links, pair, package, generation, c2c, memory, nvls, pcie_p2p] = cells[..]
    else {
        return None;
    };
    let fabric = match fabric {
        "switched" => FabricKind::Switched,
        "meshed" => FabricKind::Meshed,
        "xgmi" => FabricKind::Xgmi,
        _ => FabricKind::Pcie,
    };
    Some(ProductFacts {
        name,
        fabric,
        links_gbs: links.parse().ok()?,
        pair_gbs: pair.parse().ok()?,
        package_gbs: package.parse().ok()?,
        pcie_gbs: pcie(generation)?,
        c2c_gbs: c2c.parse().ok()?,
        memory_gbs: memory.parse().ok()?,
        nvls: nvls == "yes",
        pcie_p2p: pcie_p2p == "yes",
    })
}

/// Facts of a product that `find_product` of crate `paste` names.
pub fn product_facts(name: &str) -> Option<&'static ProductFacts> {
    PRODUCTS.iter().find(|facts| facts.name == name)
}

/// One direction of 16 lanes, GB/s: GT/s x 16 x coding / 8 (PCI Express Base Specification).
pub fn pcie_gbs(generation: u32) -> f64 {
    match generation {
        0..=1 => 4.0,
        2 => 8.0,
        3 => 15.75,
        4 => 31.5,
        5 => 63.0,
        _ => 121.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_name_or_has_all_facts() {
        let rows = PRODUCT_TABLE.lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            let name = row.split('\t').next().unwrap_or_default();
            assert_eq!(product_facts(name).is_some(), row != name, "{row}");
        }
        assert_eq!(product_facts("H100").map(|facts| facts.links_gbs), Some(450.0));
    }
}
