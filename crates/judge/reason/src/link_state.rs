//! PCIe links that run at less than they can, as lspci or the kernel prints them.

use pathline_paste::PasteContext;

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::outlier::Outlier;
use crate::product_facts::link_peak_gbs;

/// Share of a link from which on the fastest copy shows the link under load.
const LOADED: f64 = 0.6;

/// Devices of a list that have fewer lanes than they can, or than the others have.
pub(crate) fn explain_widths(context: &PasteContext) -> Option<DraftAnswer> {
    let kind = |part: &str| part.split(' ').next().unwrap_or_default().to_owned();
    let most = |part: &str| {
        let peers = context.widths.iter().filter(|other| kind(&other.0) == kind(part));
        peers.map(|other| other.1).max().unwrap_or(0)
    };
    let narrow = context.widths.iter().filter_map(|(part, now, own)| {
        let most = if *own > 0 { *own } else { most(part) };
        let one = Outlier::new(part.clone(), f64::from(*now), f64::from(most), "lanes", "PCIe");
        let check = "lspci -vv: LnkCap and LnkSta of that device and each bridge above it: slot, riser, firmware";
        (*now < most).then(|| one.checked_by(check))
    });
    let outliers: Vec<Outlier> = narrow.take(16).collect();
    let meaning = match context.widths.len() {
        1 => "the PCIe link of a device".to_owned(),
        count => format!("PCIe links of {count} devices"),
    };
    let limit = "the lanes of each device (in the paste)".to_owned();
    let draft =
        DraftAnswer { limit, outliers, ..DraftAnswer::new(CheckPath::HostCopies, meaning, None) };
    let is_all = context.widths.len() > 1 || context.pcie.is_none();
    (is_all && !draft.outliers.is_empty()).then_some(draft)
}

/// A PCIe link that runs at less than it can, as lspci or the kernel says. `busiest` are the figures of the paste, of
/// which one may be the load of that link, GB/s.
pub(crate) fn explain_link_state(context: &PasteContext, figures: &[f64]) -> Option<DraftAnswer> {
    let now = context.pcie?;
    let most = context.pcie_most.filter(|most| now.0 < most.0 || now.1 < most.1);
    if most.is_none() && !context.pcie_downgraded {
        return None;
    }
    let rate = link_peak_gbs(now);
    let at =
        |of: (f64, u32)| format!("{} GT/s x{}, {} GB/s", of.0, of.1, figure(link_peak_gbs(of)));
    let all = most.map_or("more, by the mark `downgraded`".to_owned(), at);
    // Idle links keep their width and lower their speed.
    let is_narrow = context.width_downgraded || most.is_some_and(|most| now.1 < most.1);
    let loaded = figures.iter().find(|gbs| **gbs > rate * LOADED && **gbs <= rate * 1.02);
    let mut draft =
        DraftAnswer::new(CheckPath::HostCopies, format!("a PCIe link at {}", at(now)), rate);
    draft.limit = format!("{all} of the device (in the paste)");
    draft.limit_gbs = most.map(link_peak_gbs);
    if !is_narrow && loaded.is_none() {
        draft.note =
            "full width at a lower speed: an idle GPU does that, and raises it under load; of \
                      another device its slot or the port above it may have no more"
                .to_owned();
        return Some(draft);
    }
    let load = loaded.map(|gbs| {
        let (gbs, share) = (figure(*gbs), gbs / rate * 100.0);
        format!("; {gbs} GB/s of the paste are {share:.0} % of it, so it is so under load")
    });
    let load = load.unwrap_or_default();
    let facts = CauseFacts::default().word("now", at(now)).word("most", all).word("load", load);
    draft.edits.push(facts.cause("state.narrow-pcie"));
    Some(draft)
}
