//! The standard links that a figure fits, where the paste does not name the link: what carries it at least, and what
//! it would be of the next wider one.

use pathline_paste::table_rows;

use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::usual_share::{least_share, usual_share};

const TABLE: &str = include_str!("../data/links.tsv");

/// A standard link: rate each way in GB/s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StandardLink {
    name: &'static str,
    pub(crate) gbs: f64,
    /// Its row of the usual shares.
    path: &'static str,
    /// Whether no link of its kind is wider.
    is_widest: bool,
}

/// The links of a kind of the table, the narrowest first.
pub(crate) fn standard_links(kind: &str) -> Vec<StandardLink> {
    let row = |[of, name, gbs, path, widest]: [&'static str; 5]| {
        let gbs = gbs.parse().ok().filter(|_| of == kind)?;
        Some(StandardLink { name, gbs, path, is_widest: widest == "widest" })
    };
    table_rows(TABLE).filter_map(row).collect()
}

impl StandardLink {
    /// Whether it carries a figure. Packets of PCI Express have 24 B of headers and more to 512 B at most, those of NVLink
    /// and xGMI less; rates of adapters are before rounding and clocks.
    pub(crate) fn carries(&self, value: f64) -> bool {
        let most = match self.path {
            "adapter.line" => 1.015,
            path if path.ends_with("pcie") => 0.96,
            _ => 0.98,
        };
        value <= self.gbs * most
    }
}

/// Sets the limit where only one standard link explains the figure as usual and none of its kind is wider; else says
/// what carries it at least. The question of the draft stays.
pub(crate) fn assume_link(draft: &mut DraftAnswer, value: f64, links: &[StandardLink]) {
    let is_usual =
        |link: &&StandardLink| link.carries(value) && value >= link.gbs * least_share(link.path);
    let fits: Vec<&StandardLink> = links.iter().filter(is_usual).collect();
    if let [only] = fits[..]
        && only.is_widest
    {
        let (gbs, name) = (figure(only.gbs), only.name);
        draft.limit = format!(
            "{gbs} GB/s each way, {name}: no narrower link carries the figure, and it is usual for this one"
        );
        draft.limit_gbs = Some(only.gbs);
        draft.usual = draft.usual.or(usual_share(only.path));
        return;
    }
    draft.limit = fitting_text(value, links);
}

/// Links that are named where none is known.
const MAX_FITTING: usize = 3;

/// `unknown; 80 % of PCIe 4 x16 (31.5 GB/s), 40 % of PCIe 5 x16 (63.0)`: a figure that links carry does not say which of
/// them is there.
pub(crate) fn fitting_text(value: f64, links: &[StandardLink]) -> String {
    let wider = links.iter().filter(|link| link.carries(value)).take(MAX_FITTING);
    let share = |link: &StandardLink| {
        let kind = link.name.split_once(" of a").map_or(link.name, |(kind, _)| kind);
        format!("{:.0} % of {kind} ({} GB/s)", value / link.gbs * 100.0, figure(link.gbs))
    };
    match wider.map(share).collect::<Vec<_>>() {
        none if none.is_empty() => "unknown: more than any of the usual links carries".to_owned(),
        shares => format!("unknown; it would be {}", shares.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assumed(value: f64, links: &[StandardLink]) -> DraftAnswer {
        let mut draft = DraftAnswer::default();
        assume_link(&mut draft, value, links);
        draft
    }

    #[test]
    fn a_figure_that_one_link_explains_has_its_limit() {
        // 55.4 / 63 = 88 %; 31.5 carries no 55.
        assert_eq!(assumed(55.4, &standard_links("host")).limit_gbs, Some(63.0));
        // 774 / 956 = 81 %, and no NVLink is wider.
        assert_eq!(assumed(774.0, &standard_links("pair")).limit_gbs, Some(956.25));
        // 48.3 is 97 % of two NVLinks and 77 % of PCIe 5 x16; 374 is 78 % of an H100's and 39 % of a B200's.
        assert_eq!(assumed(48.3, &standard_links("pair")).limit_gbs, None);
        assert_eq!(assumed(374.0, &standard_links("pair")).limit_gbs, None);
    }

    #[test]
    fn other_figures_have_a_least_link() {
        let text = assumed(25.2, &standard_links("host")).limit;
        // 25.2 / 31.5 = 80 %, 25.2 / 63 = 40 %.
        assert!(
            text.contains("80 % of PCIe 4 x16") && text.contains("40 % of PCIe 5 x16"),
            "{text}"
        );
        // Headers leave no 31.4 of 31.5.
        assert_eq!(assumed(31.4, &standard_links("host")).limit_gbs, None);
        assert!(!assumed(31.4, &standard_links("host")).limit.contains("PCIe 4 x16"));
    }
}
