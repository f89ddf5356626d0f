//! The largest all_reduce below what the model of the same node predicts of it.

use pathline_diagnose::{PredictedFigure, find_figure_trust};
use pathline_explain::fmt;
use pathline_flow::MachineDesc;
use pathline_message::{MessageLayer, MessageLibrary, exchange_of};
use pathline_schema::Transport;

use super::collectives::largest_all_reduce;
use crate::evidence::Evidence;
use crate::{Finding, FindingArm, FindingSeverity};

pub(super) const ID: &str = "collective-below-model";

/// A share of the predicted rate below which it is worth to ask how well the prediction is known, which takes a
/// quarter of a second.
const WORTH_ASKING: f64 = 0.95;

/// A fault if it is slower than everything that the constants of the model leave open. None if it is as fast as
/// predicted, or the model does not describe the library. `text` is that of the description.
pub(crate) fn find(evidence: &Evidence, desc: &MachineDesc, text: &str) -> Option<Finding> {
    // A part that is slow explains it.
    let one = largest_all_reduce(evidence).filter(|_| evidence.slow_groups.is_empty())?;
    let case = one.rate.case;
    let is_ccl = case.timed.first()?.by.wire()?.via == Transport::Ccl;
    desc.software.rccl.as_ref().filter(|_| is_ccl)?;
    let ranks = &evidence.run.journal.begin.ranks;
    let (exchange, _) = exchange_of(case, ranks, MessageLibrary::Rccl).ok()?;
    let predicted = MessageLayer::new(desc).ok()?.time(&exchange).ok()?;
    let share = one.rate.value / predicted.algbw.0;
    if share >= WORTH_ASKING {
        return None;
    }
    let figure = PredictedFigure::Exchange(&exchange);
    let trust = find_figure_trust(desc, text, &[figure]).ok()?.into_iter().next()?;
    let bus = predicted.busbw.0;
    let is_below = one.rate.high < predicted.algbw.0 / trust.slower;
    let (low, high) = (fmt::number(bus / trust.slower), fmt::number(bus / trust.faster));
    let (measured, expected) = (fmt::gbs(one.bus), fmt::number(bus));
    let relation = if is_below { "below" } else { "within" };
    let short = format!(
        "all_reduce has busbw {measured}, {share:.2} of the model, {relation} its {low} to {high}"
    );
    Some(Finding {
        short,
        cause: if is_below {
            "No constant of the model explains it: a link or a ring may be missing."
        } else {
            ""
        }
        .to_owned(),
        action: format!("`{}` looks for the part.", evidence.health()),
        arms: vec![
            one.rate.arm("measured, algbw"),
            FindingArm {
                value: predicted.algbw.0,
                half_width: None,
                ..one.rate.arm("predicted, algbw")
            },
        ],
        places: one.gpus.iter().map(|gpu| format!("gpu{gpu}")).collect(),
        weight: predicted.algbw.0 - one.rate.value,
        simulated: evidence.is_simulated(),
        ..Finding::new(
            ID,
            if is_below { FindingSeverity::Fault } else { FindingSeverity::Note },
            format!(
                "all_reduce ({}) reaches {measured}, {share:.2} of the {expected} that the model of this \
                 node without faults predicts; what is known of its constants leaves {low} to {high} open.",
                one.detail
            ),
        )
    })
}
