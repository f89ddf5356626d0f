//! Rates that only a GPU's memory carries.

use pathline_paste::PasteContext;

use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Share of a data sheet's rate that streams reach: 73 to 93 % in published results of these products.
const USUAL: f64 = 0.8;
/// Lines of a text that may be a question.
const MAX_LINES: u32 = 40;
/// A rate this near to the data sheet's is the data sheet's.
const IS_PEAK: f64 = 0.985;

/// A copy within a GPU's memory, which moves `factor` times the bytes that are counted.
pub(crate) fn explain_memory(gbs: f64, factor: f64, node: Option<&NodeLimits>) -> DraftAnswer {
    let mut draft = DraftAnswer {
        meaning: format!(
            "copies within a GPU's memory: {} GB/s (1e9 B/s); {}",
            figure(gbs),
            if factor > 1.0 {
                "each byte is read and written: twice that"
            } else {
                "reads and writes"
            }
        ),
        value: Some(gbs * factor),
        path: CheckPath::Memory,
        ..DraftAnswer::default()
    };
    judge(&mut draft, gbs * factor, node);
    draft
}

/// Rates in a text without tables that exceed every path of the product except its own memory.
pub(crate) fn explain_rates(
    context: &PasteContext,
    lines: u32,
    node: Option<&NodeLimits>,
) -> Option<DraftAnswer> {
    let rates = &context.rates;
    let list: Vec<String> = rates.iter().take(8).map(|gbs| figure(*gbs)).collect();
    let most = *rates.iter().max_by(|a, b| a.total_cmp(b))?;
    let mut draft = DraftAnswer {
        meaning: format!("rates outside of tables: {} GB/s", list.join(", ")),
        limit: node.map_or_else(
            || "unknown: the paste names no GPU product".to_owned(),
            NodeLimits::link_text,
        ),
        ask: "what printed them? Paste its whole output, with the command".to_owned(),
        path: CheckPath::Text,
        ..DraftAnswer::default()
    };
    let peak = node.and_then(|node| Some(node.product?.memory_gbs));
    let links = node.map_or(0.0, |node| node.links_gbs.max(node.c2c_gbs).max(node.pcie_gbs) * 2.0);
    let own = peak.and_then(|peak| {
        let below = rates.iter().copied().filter(|gbs| *gbs > links && *gbs < peak * IS_PEAK);
        below.max_by(f64::total_cmp)
    });
    // A document that names rates asks nothing of them.
    if own.is_none() && lines > MAX_LINES {
        return None;
    }
    if let Some(value) = own.filter(|_| peak.is_some_and(|peak| most <= peak * 1.02)) {
        draft.value = Some(value);
        draft.ask = String::new();
        draft.path = CheckPath::Memory;
        judge(&mut draft, value, node);
    }
    Some(draft)
}

fn judge(draft: &mut DraftAnswer, value: f64, node: Option<&NodeLimits>) {
    draft.features.push(ObservedFeature::new("memory", value));
    let Some(peak) = node.and_then(|node| Some(node.product?.memory_gbs)) else {
        draft.limit = "unknown: the paste names no GPU product".to_owned();
        draft.ask = "which GPU product is it?".to_owned();
        return;
    };
    draft.limit_gbs = Some(peak);
    draft.limit =
        format!("{} GB/s, theoretical peak of the memory (assumed of the product)", figure(peak));
    draft.edits.push(
        WorldEdit::new("memory-full", AnswerClass::AsExpected, 0.5)
            .expects("memory", peak * USUAL, 0.1)
            .within(0.25)
            .says("streams reach 65 to 95 % of a memory's theoretical peak: refresh and turns between reads and writes take the rest")
            .decided_by("pathline run --suite memory, on the node"),
    );
}
