//! PCIe links that run at less than they can, as lspci or the kernel prints them.

use pathline_paste::PasteContext;

use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::node_facts::{figure, link_peak_gbs};
use crate::score::{AnswerClass, WorldEdit};

/// A PCIe link that runs at less than it can, as lspci or the kernel says.
pub(crate) fn explain_link_state(context: &PasteContext) -> Option<DraftAnswer> {
    let (now, most) = context.pcie.zip(context.pcie_most)?;
    if now.0 >= most.0 && now.1 >= most.1 {
        return None;
    }
    let rate = link_peak_gbs;
    let at = |of: (f64, u32)| format!("{} GT/s x{}, {} GB/s", of.0, of.1, figure(rate(of)));
    // Idle links keep their width and lower their speed.
    let may_idle = now.1 >= most.1;
    let mut draft = DraftAnswer {
        meaning: format!("a PCIe link at {}", at(now)),
        limit: format!("{} of the device (in the paste)", at(most)),
        value: Some(rate(now)),
        limit_gbs: Some(rate(most)),
        path: CheckPath::HostCopies,
        ..DraftAnswer::default()
    };
    if may_idle {
        draft.note =
            "full width at a lower speed: an idle link does that, and rises under load".to_owned();
    } else {
        draft.edits.push(
            WorldEdit::new("narrow-pcie", AnswerClass::HardwareSuspect, 1.0)
                .says(format!("the link runs at {} of {}: its slot, a riser or the port above has no more, or training failed", at(now), at(most)))
                .decided_by("lspci -vv: LnkCap and LnkSta of the device and each bridge above it, under load")
                .certain(),
        );
    }
    Some(draft)
}
