//! Rates that only a GPU's memory carries.

use pathline_paste::{PasteContext, StreamTable};

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::outlier::slow_named;
use crate::processor_facts::processor_memory;

/// Times the peak of its memory from which on a cache must answer: more than clocks and variants of a product differ.
const CACHED: f64 = 1.5;

/// A copy within a GPU's memory, which moves `factor` times the bytes that are counted.
pub(crate) fn explain_memory(gbs: f64, factor: f64, node: Option<&NodeLimits>) -> DraftAnswer {
    let counted = match factor > 1.0 {
        true => "each byte is read and written: twice that",
        false => "reads and writes",
    };
    let rate = figure(gbs);
    let meaning = format!("copies within a GPU's memory: {rate} GB/s (1e9 B/s); {counted}");
    let mut draft = DraftAnswer::new(CheckPath::Memory, meaning, gbs * factor);
    judge(&mut draft, gbs * factor, node);
    draft
}

/// STREAM counts bytes read and written; of a GPU's memory if the paste names one.
pub(crate) fn explain_streams(table: &StreamTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits: node, context, .. } = basis;
    let best = table.rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let each: Vec<String> =
        table.rows.iter().map(|(name, gbs)| format!("{name} {}", figure(*gbs))).collect();
    let on_gpu = [StreamTable::STATED, "BabelStream"].contains(&table.tool)
        && node.is_some_and(|node| node.product.is_some());
    let (memory, each) = (if on_gpu { "GPU" } else { "host" }, each.join(", "));
    let meaning = format!("{memory} memory, GB/s (1e9 B/s, read and written): {each}");
    let mut draft = DraftAnswer::new(CheckPath::Memory, meaning, best);
    let check = "more blocks or threads of that kernel; a profiler; another compiler";
    let slow = slow_named(&table.rows, 0.25, "the other kernels").into_iter();
    draft.outliers = slow.map(|one| one.of_row().checked_by(check)).collect();
    if on_gpu {
        judge(&mut draft, best, node);
        return draft;
    }
    if let Some((peak, source)) = host_peak(context, best) {
        let text = format!("{} GB/s, theoretical peak of the memory ({source})", figure(peak));
        draft.set_limit(peak, "memory.host", text);
        return draft;
    }
    draft.limit = "unknown: the paste names neither GPU nor memory channels".to_owned();
    draft.ask =
        "how many memory channels and of what rate (dmidecode -t 17), or which GPU?".to_owned();
    draft
}

/// The peak of a host's memory, GB/s: modules that dmidecode lists, channels and rate that the text states, else the
/// processor's data sheet. It covers the stated number of sockets, and at least as many as the figure needs.
fn host_peak(context: &PasteContext, value: f64) -> Option<(f64, &'static str)> {
    let text = context.prose.as_str();
    // `Maximum Main Memory Bandwidth: 41.8 GB/s` of a data sheet.
    let rated = text.lines().find_map(|line| {
        let (before, rest) = line.split_once("memory bandwidth")?;
        let rest = rest.trim_start_matches([' ', ':', '=']).trim_start_matches("is ");
        let (rate, unit) = rest.trim_start().split_once(' ')?;
        let gbs = rate.parse::<f64>().ok().filter(|gbs| (1.0..10_000.0).contains(gbs))?;
        (before.contains("max") && unit.starts_with("gb/s")).then_some(gbs)
    });
    if let Some(gbs) = rated {
        return Some((gbs * (value / gbs / 1.03).ceil().max(1.0), "in the paste"));
    }
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let whole = |word: &str| word.trim_end_matches("mt").parse::<f64>().ok();
    let pairs = || words.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)));
    let mt = pairs().find_map(|(a, b)| match (a, b) {
        ("ddr3" | "ddr4" | "ddr5" | "lpddr5" | "lpddr5x", rate) => whole(rate),
        (rate, "mt" | "mts") => whole(rate),
        (rate, "s") if rate.ends_with("mt") => whole(rate),
        _ => None,
    });
    let mt = mt.filter(|mt| (800.0..20_000.0).contains(mt));
    let channels = pairs().find_map(|(count, noun)| {
        let count = count.parse::<f64>().ok().filter(|count| (1.0..=24.0).contains(count));
        count.filter(|_| noun.starts_with("channel"))
    });
    let is_module = |line: &&str| line.contains("configured") && line.contains("mt/s");
    let modules = text.lines().filter(is_module).count() as f64;
    let total = |count: f64, mt: f64| count * mt * 8e-3;
    if let Some(mt) = mt.filter(|_| modules > 1.0) {
        return Some((total(modules, mt), "a channel for each module in the paste"));
    }
    let stated = channels.zip(mt).map(|(channels, mt)| (total(channels, mt), "in the paste"));
    let of_model = || Some((processor_memory(&context.processor)?, "assumed of the processor"));
    let (socket, source) = stated.or_else(of_model)?;
    let sockets = pairs().find_map(|(a, b)| match (a, b) {
        ("s", count) if text.contains("socket(s)") => count.parse::<f64>().ok(),
        (count, "sockets" | "socket") => count.parse::<f64>().ok(),
        ("dual", _) => Some(2.0),
        _ => None,
    });
    let sockets = sockets.filter(|sockets| (1.0..=16.0).contains(sockets)).unwrap_or(1.0);
    Some((socket * sockets.max((value / socket / 1.03).ceil()), source))
}

fn judge(draft: &mut DraftAnswer, value: f64, node: Option<&NodeLimits>) {
    let stated = node.and_then(|node| node.memory_gbs).map(|peak| (peak, "in the paste"));
    let of_product = || Some((node?.product?.memory_gbs, "assumed of the product"));
    let Some((peak, source)) = stated.or_else(of_product) else {
        return draft.ask_product();
    };
    let text = format!("{} GB/s, theoretical peak of the memory ({source})", figure(peak));
    draft.set_limit(peak, "memory.peak", text);
    if value > peak * CACHED {
        let facts = CauseFacts::new(&[("times", value / peak)]);
        draft.edits.push(facts.cause("memory.gpu-cache"));
    }
}
