//! NVLinks of a node: what one of them carries where only a figure says it, and what joins a number of GPUs.

use pathline_flow::NVLINK_CODING;

use crate::node_facts::NodeLimits;
use crate::product_facts::{FabricKind, nvlinks};
use crate::usual_share::{ABOVE, least_share};

/// One NVLink per direction by the data sheet, GB/s, of GA102, Pascal, Volta to Hopper, and Blackwell (NVIDIA white papers).
const LINK_RATES: [f64; 4] = [14.0625, 20.0, 25.0, 50.0];

impl NodeLimits {
    /// The same with the one rate of a link of which a figure has the usual share, where the paste has the number of
    /// links of a pair and no product.
    pub(crate) fn fitted(&self, gbs: f64, path: &'static str) -> Option<Self> {
        let counts = |text: &String| nvlinks(text);
        let widest = self.pair_links.values().filter_map(counts).fold(0.0, f64::max);
        let is_open = self.product.is_none() && self.pair_gbs <= 0.0 && widest > 0.0;
        // Only later GPUs, whose line is coded, have more than 12.
        let coding = if widest > 12.0 { NVLINK_CODING } else { 1.0 };
        let shares = LINK_RATES.map(|each| (each * coding, gbs / (each * coding * widest)));
        let is_usual = |(_, share): &&(f64, f64)| (least_share(path)..=ABOVE).contains(share);
        let fits: Vec<&(f64, f64)> = shares.iter().filter(is_usual).collect();
        let [(each, _)] = fits[..] else { return None };
        let of_first = self.pair_links.iter().filter(|(pair, _)| pair.0 == 0);
        let first: f64 = of_first.filter_map(|(_, text)| nvlinks(text)).sum();
        let links = if self.fabric == FabricKind::Switched { widest } else { first };
        is_open.then(|| Self {
            link_gbs: *each,
            pair_gbs: widest * each,
            links_gbs: links * each,
            ..self.clone()
        })
    }

    /// What joins the first `ranks` GPUs where a matrix shows NVLinks between all of them and not all of the node's:
    /// the links of the one with the fewest, GB/s.
    pub(crate) fn joined_gbs(&self, ranks: u32) -> Option<f64> {
        let is_bridged = self.links_gbs <= 0.0 && (2..=16).contains(&ranks);
        let links = |a: u32, b: u32| nvlinks(self.pair_links.get(&(a.min(b), a.max(b)))?);
        let of_gpu = |a: u32| (0..ranks).filter(|b| *b != a).map(|b| links(a, b)).sum();
        let each: Option<Vec<f64>> = (0..ranks).filter(|_| is_bridged).map(of_gpu).collect();
        let links = each?.into_iter().reduce(f64::min)?;
        Some(links * self.link_gbs).filter(|gbs| *gbs > 0.0)
    }
}
