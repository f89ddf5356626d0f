//! Rates that only a GPU's memory carries.

use pathline_paste::{PasteContext, StreamTable};

use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::outlier::{Outlier, slow_values};
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Share of a data sheet's rate that streams reach: 73 to 93 % in published results of these products.
const USUAL: f64 = 0.8;
/// Lines of a text that may be a question.
const MAX_LINES: u32 = 40;
/// Rates that are named.
const MAX_RATES: usize = 12;
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

/// STREAM counts bytes read and written; of a GPU's memory if the paste names one.
pub(crate) fn explain_streams(
    table: &StreamTable,
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> DraftAnswer {
    let best = table.rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let each = table.rows.iter().map(|(name, gbs)| format!("{name} {}", figure(*gbs)));
    let on_gpu = table.tool == "BabelStream" && node.is_some_and(|node| node.product.is_some());
    let mut draft = DraftAnswer {
        meaning: format!(
            "{} memory, GB/s (1e9 B/s, read and written): {}",
            if on_gpu { "GPU" } else { "host" },
            each.collect::<Vec<_>>().join(", ")
        ),
        value: Some(best),
        path: CheckPath::Memory,
        ..DraftAnswer::default()
    };
    let values: Vec<f64> = table.rows.iter().map(|row| row.1).collect();
    let slow = slow_values(&values, 0.25).into_iter();
    draft.outliers =
        slow.flat_map(|(slow, usual)| slow.into_iter().map(move |at| (at, usual)))
            .filter_map(|(at, usual)| {
                let (name, gbs) = table.rows.get(at)?;
                let one =
                    Outlier::new(name.clone(), *gbs, usual, "GB/s", "the other kernels").of_row();
                Some(one.checked_by(
                    "more blocks or threads of that kernel; a profiler; another compiler",
                ))
            })
            .collect();
    if on_gpu {
        judge(&mut draft, best, node);
        return draft;
    }
    let (filled, empty) = context.modules;
    let Some(mts) = context.module_mts.filter(|_| filled > 0) else {
        draft.limit = "unknown: the paste names neither GPU nor memory modules".to_owned();
        draft.ask =
            "how many memory channels and of what rate (dmidecode -t 17), or which GPU?".to_owned();
        return draft;
    };
    // A module carries 8 bytes a transfer.
    let peak = mts * 8e-3 * f64::from(filled);
    draft.limit = format!(
        "{} GB/s, {filled} modules of {} GB/s, if each has its channel (in the paste)",
        figure(peak),
        figure(mts * 8e-3)
    );
    draft.limit_gbs = Some(peak);
    if empty > filled {
        draft.edits.push(
            WorldEdit::new("few-modules", AnswerClass::SetUpSo, 1.0)
                .says(format!(
                    "{filled} of {} slots have a module: {filled} channels at most, {} of {} GB/s of all slots",
                    filled + empty,
                    figure(peak),
                    figure(mts * 8e-3 * f64::from(filled + empty))
                ))
                .decided_by("dmidecode -t 17: a module in a slot of each channel")
                .certain(),
        );
    }
    draft.features.push(ObservedFeature::new("memory", best));
    draft.edits.push(memory_full(peak));
    draft
}

/// Rates that stand outside of tables, each once.
pub(crate) fn rates_text(context: &PasteContext) -> Option<String> {
    let mut list: Vec<String> = Vec::new();
    for rate in context.rates.iter().map(|gbs| figure(*gbs)) {
        if !list.contains(&rate) && list.len() < MAX_RATES {
            list.push(rate);
        }
    }
    (!list.is_empty()).then(|| format!("rates outside of tables: {} GB/s", list.join(", ")))
}

/// Rates in a text without tables that exceed every path of the product except its own memory.
pub(crate) fn explain_rates(
    context: &PasteContext,
    lines: u32,
    node: Option<&NodeLimits>,
) -> Option<DraftAnswer> {
    let rates = &context.rates;
    let most = *rates.iter().max_by(|a, b| a.total_cmp(b))?;
    let mut draft = DraftAnswer {
        meaning: rates_text(context)?,
        limit: path_text(context, node),
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
    // A list of several products is a data sheet's.
    let own = own.filter(|_| context.gpus.len() == 1);
    if let Some(value) = own.filter(|_| peak.is_some_and(|peak| most <= peak * 1.02)) {
        draft.value = Some(value);
        draft.ask = String::new();
        draft.path = CheckPath::Memory;
        judge(&mut draft, value, node);
        draft.condition = "it is the rate of a GPU's memory".to_owned();
    }
    Some(draft)
}

/// The limits of the paths that a text is about; none of them is that of a rate without its tool.
fn path_text(context: &PasteContext, node: Option<&NodeLimits>) -> String {
    let Some(node) = node else { return "unknown: the paste names no GPU product".to_owned() };
    match (context.nodes.filter(|nodes| *nodes > 1), node.nic_gbs > 0.0) {
        (Some(_), true) => format!(
            "{} GB/s of network each way, {} x {} GB/s of a node, if it is of several ({})",
            figure(f64::from(node.nics.unwrap_or(1)) * node.nic_gbs),
            node.nics.unwrap_or(1),
            figure(node.nic_gbs),
            node.nic_source.label()
        ),
        (Some(_), false) => {
            "unknown: the paste does not count the adapters of a node, or their rate".to_owned()
        }
        (None, _) => format!("{}, if it is between GPUs of a node", node.link_text()),
    }
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
    draft.edits.push(memory_full(peak));
}

fn memory_full(peak: f64) -> WorldEdit {
    WorldEdit::new("memory-full", AnswerClass::AsExpected, 0.5)
        .expects("memory", peak * USUAL, 0.1)
        .within(0.25)
        .says("streams reach 65 to 95 % of a memory's theoretical peak: refresh and turns between reads and writes take the rest")
        .decided_by("pathline run --suite memory, on the node")
}
