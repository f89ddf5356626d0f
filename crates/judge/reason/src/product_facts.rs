//! Link rates of products, from data sheets. They are used where a paste names a product and nothing
//! better is known, and are then marked as assumed.

use std::sync::LazyLock;

use pathline_flow::NVLINK_CODING;
use pathline_paste::PRODUCT_TABLE;

/// How the GPUs of a node are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FabricKind {
    /// NVLink through NVSwitch: every pair has all links of a GPU.
    Switched,
    /// NVLink between single GPUs, or bridges of pairs.
    Meshed,
    /// xGMI between single GPUs.
    Xgmi,
    /// PCIe alone.
    #[default]
    Pcie,
}

/// What a product's data sheet says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProductFacts {
    /// Part of its name.
    pub name: &'static str,
    /// How its usual node joins GPUs.
    pub fabric: FabricKind,
    /// All links of a GPU per direction at their line rate, GB/s; 0 without.
    pub links_gbs: f64,
    /// Links of a neighbouring pair per direction, GB/s.
    pub pair_gbs: f64,
    /// Links between the two GPUs of a package per direction, GB/s; 0 where a package has one.
    pub package_gbs: f64,
    /// PCIe per direction, GB/s; 0 where processor and GPU share their memory.
    pub pcie_gbs: f64,
    /// Lanes of it.
    pub pcie_lanes: f64,
    /// NVLink-C2C of a GPU to its processor per direction, GB/s; 0 without.
    pub c2c_gbs: f64,
    /// Theoretical peak of its memory, GB/s.
    pub memory_gbs: f64,
    /// Whether NVLink SHARP reduces in the switches.
    pub nvls: bool,
    /// Whether the driver allows P2P over PCIe.
    pub pcie_p2p: bool,
}

impl ProductFacts {
    /// Whether processor and GPU have one memory and no link between them.
    pub(crate) fn has_one_memory(&self) -> bool {
        self.pcie_gbs <= 0.0
    }
}

/// Lanes of a product, or those of a full slot.
pub(crate) fn lanes_of(product: Option<&ProductFacts>) -> f64 {
    product.map_or(16.0, |product| product.pcie_lanes)
}

/// Facts of the products that crate `paste` names; a name without facts has none.
static PRODUCTS: LazyLock<Vec<ProductFacts>> =
    LazyLock::new(|| PRODUCT_TABLE.lines().filter_map(parse_row).collect());

/// GPUs in a node of `count` modules: of these products a module has two, and a node up to four modules.
pub(crate) fn gpus_of_modules(product: Option<&ProductFacts>, count: u32) -> u32 {
    match product.map_or("", |product| product.name) {
        "MI250X" | "MI250" if count <= 4 => 2 * count,
        _ => count,
    }
}

fn parse_row(line: &'static str) -> Option<ProductFacts> {
    let lanes = |text: &str| text.split_once('x').map_or("16", |of| of.1).parse::<f64>().ok();
    let pcie = |text: &str| {
        if text == "-" {
            return Some(0.0);
        }
        let generation = text.split('x').next()?.parse().ok()?;
        Some(pcie_gbs(generation) * lanes(text)? / 16.0)
    };
    let cells: [&str; 10] = match *line.split('\t').collect::<Vec<_>>() {
        // A card without links between GPUs.
        [name, pcie, memory, p2p] => [name, "pcie", "0", "0", "0", pcie, "0", memory, "no", p2p],
        ref cells => cells.try_into().ok()?,
    };
    let [name, fabric, links, pair, package, generation, c2c, memory, nvls, pcie_p2p] = cells;
    let fabric = match fabric {
        "switched" => FabricKind::Switched,
        "meshed" => FabricKind::Meshed,
        "xgmi" => FabricKind::Xgmi,
        _ => FabricKind::Pcie,
    };
    let line = |sheet: &str| Some(sheet.parse::<f64>().ok()? * line_coding(name));
    Some(ProductFacts {
        name,
        fabric,
        links_gbs: line(links)?,
        pair_gbs: line(pair)?,
        package_gbs: package.parse().ok()?,
        pcie_gbs: pcie(generation)?,
        pcie_lanes: lanes(generation)?,
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

/// What a PCIe link of this speed in GT/s and width carries each way, GB/s.
pub(crate) fn link_peak_gbs((speed_gts, width): (f64, u32)) -> f64 {
    pathline_schema::PcieLink { speed_gts, width, ..Default::default() }.peak().gbs()
}

/// Line rate of a product's NVLinks over that of its data sheet: Hopper and Blackwell code the line.
fn line_coding(name: &str) -> f64 {
    let is_coded = ["H1", "H2", "H8", "GH", "GB", "B1", "B2", "B3"];
    if is_coded.iter().any(|start| name.starts_with(start)) { NVLINK_CODING } else { 1.0 }
}

/// The line rate of one NVLink of a product per direction, GB/s; 0 where the product is not known: `NV4` is 56 GB/s of an RTX 3090 and
/// 100 of an A100.
pub(crate) fn link_gbs(product: Option<&ProductFacts>) -> f64 {
    let name = product.map_or("", |product| product.name);
    let sheet = match name {
        "" => 0.0,
        "P100" | "Quadro GP100" => 20.0,
        "A40" | "A6000" | "A5500" | "A5000" | "A4500" | "3090" | "3090 Ti" => 14.0625,
        "B200" | "B100" | "B300" | "GB200" | "GB300" => 50.0,
        _ => 25.0,
    };
    sheet * line_coding(name)
}

/// NVLinks of a pair by a matrix of links, such as `NV4`.
pub(crate) fn nvlinks(text: &str) -> Option<f64> {
    text.strip_prefix("NV")?.parse().ok()
}

/// Share of PCIe that pinned copies reach: 256 B packets with 24 B of headers, acknowledgements and flow
/// control leave 25.5 to 26.5 of 31.5 and 52 to 57 of 63 GB/s.
pub(crate) const PCIE_SHARE: f64 = 0.84;
/// Share of a link that pinned copies reach, low and high.
const REACHED: (f64, f64) = (0.74, 0.93);

/// A narrower link that such a rate fits, of the product's with its lanes: `half of it, as Gen4 x8 or Gen3 x16 (15.8 GB/s, 80 %)`.
pub(crate) fn narrower_link(gbs: f64, link: f64, lanes: f64) -> Option<String> {
    let parts = [(0.5, "half"), (0.25, "a quarter"), (0.125, "an eighth")];
    let (part, name) = parts
        .into_iter()
        .find(|(part, _)| (REACHED.0..=REACHED.1).contains(&(gbs / (link * part))))?;
    let narrow = link * part;
    let is_it = |generation: u32, lanes: u32| {
        (pcie_gbs(generation) * f64::from(lanes) / 16.0 / narrow - 1.0).abs() < 0.06
    };
    let forms: Vec<String> = (1..=5)
        .rev()
        .flat_map(|generation| [16, 8, 4, 2, 1].map(|lanes| (generation, lanes)))
        .filter(|(generation, _)| pcie_gbs(*generation) <= link * 1.02)
        .filter(|(generation, of)| is_it(*generation, *of) && f64::from(*of) <= lanes)
        .map(|(generation, lanes)| format!("Gen{generation} x{lanes}"))
        .take(3)
        .collect();
    (!forms.is_empty()).then(|| {
        format!(
            "fits {name} of the link: {} ({} GB/s, of which it is {:.0} %)",
            forms.join(" or "),
            crate::figures::figure(narrow),
            gbs / narrow * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::LinkKind;

    #[test]
    fn every_row_is_a_name_or_has_all_facts() {
        let rows = PRODUCT_TABLE.lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            let name = row.split('\t').next().unwrap_or_default();
            assert_eq!(product_facts(name).is_some(), row != name, "{row}");
        }
        // 12.4 / 15.75 = 79 %.
        let half = narrower_link(12.4, 31.5, 16.0).unwrap_or_default();
        assert!(
            half.contains("half of the link: Gen4 x8 or Gen3 x16") && half.contains("79 %"),
            "{half}"
        );
        assert!(narrower_link(6.6, 31.5, 16.0).is_some_and(|text| text.contains("a quarter")));
        assert_eq!(narrower_link(18.0, 31.5, 16.0), None);
        // A card with 8 lanes has no 16.
        let half = narrower_link(6.6, 15.75, 8.0).unwrap_or_default();
        assert!(half.contains("half of the link: Gen3 x8 (7.88"), "{half}");
        // The line rate of the description that `run` reads.
        let node = pathline_flow::MachineDesc::preset("hgx-h100").unwrap();
        let own = node.healthy_topology().links.iter();
        let own = own.filter(|link| link.a == pathline_schema::LinkEnd::Gpu(0));
        let line: f64 =
            own.filter(|l| l.kind == LinkKind::Nvlink).map(|l| l.peak.unwrap().gbs()).sum();
        assert_eq!(product_facts("H100").map(|facts| facts.links_gbs), Some(line));
    }
}
