//! Rates that only a GPU's memory carries.

use pathline_paste::StreamTable;

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::outlier::{Outlier, slow_values};
use crate::usual_share::usual_share;

/// Times the peak of its memory from which on a cache must answer: more than clocks and variants of a product differ.
const CACHED: f64 = 1.5;

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
pub(crate) fn explain_streams(table: &StreamTable, node: Option<&NodeLimits>) -> DraftAnswer {
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
    draft.limit = "unknown: the paste names neither GPU nor memory channels".to_owned();
    draft.ask =
        "how many memory channels and of what rate (dmidecode -t 17), or which GPU?".to_owned();
    draft
}

fn judge(draft: &mut DraftAnswer, value: f64, node: Option<&NodeLimits>) {
    let Some(peak) = node.and_then(|node| Some(node.product?.memory_gbs)) else {
        draft.limit = "unknown: the paste names no GPU product".to_owned();
        draft.ask = "which GPU product is it?".to_owned();
        return;
    };
    draft.limit_gbs = Some(peak);
    draft.usual = usual_share("memory.peak");
    draft.limit =
        format!("{} GB/s, theoretical peak of the memory (assumed of the product)", figure(peak));
    if value > peak * CACHED {
        let facts = CauseFacts::new(&[("times", value / peak)]);
        draft.edits.push(facts.cause("memory.gpu-cache"));
    }
}
