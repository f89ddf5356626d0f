//! perftest: the rate of an adapter against its line, its slot and its packets.

use pathline_paste::NetworkTable;

use crate::cause_table::{CauseFacts, cause};
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::fitting_links::{fitting_text, standard_links};
use crate::node_facts::{FactSource, NodeLimits};
use crate::outlier::{Outlier, STEADY, long_tails, unsteady};
use crate::score::{ObservedFeature, WorldEdit};
use crate::usual_share::{least_share, usual_share};

/// Payload of slots, GB/s: 256 B of 280 B and a few percent of acknowledgements.
const SLOTS: [(&str, f64, f64); 4] = [
    ("PCIe 3 x8", 6.9, 7.88),
    ("PCIe 3 x16 or 4 x8", 13.6, 15.75),
    ("PCIe 4 x16 or 5 x8", 27.0, 31.5),
    ("PCIe 5 x16", 54.0, 63.0),
];

/// Bytes from which on a message fills a line.
const SMALL: u64 = 65_536;

/// A table of perftest.
pub(crate) fn explain(table: &NetworkTable, node: Option<&NodeLimits>) -> DraftAnswer {
    if table.is_latency {
        return explain_latency(table);
    }
    let best = table.rows.iter().map(|r| r.1).fold(0.0, f64::max);
    let ways = if table.both_ways { 2.0 } else { 1.0 };
    let rate = best / ways;
    // Nothing is faster than its line, the fastest messages neither. Without a named one the limit depends on the port.
    let most = rate.max(table.peak.unwrap_or(0.0) / ways);
    let named = node.map(|node| node.nic_gbs).filter(|line| *line > 0.0 && most <= line * 1.01);
    let mut ports = standard_links("port");
    ports.retain(|port| port.carries(most));
    let line = named.or(ports.first().map(|port| port.gbs)).unwrap_or(most);
    let largest = table.rows.iter().map(|r| r.0).max().unwrap_or(0);
    let test = if table.test.is_empty() { "RDMA bandwidth" } else { &table.test };
    let memory = if table.on_gpu { "GPU" } else { "host" };
    let counted = if table.both_ways { "both directions, summed" } else { "one direction" };
    let [gbs, gbits] = [best, best * 8.0].map(figure);
    let meaning = format!(
        "{test}, {memory} memory: {gbs} GB/s = {gbits} Gbit/s (perftest's MB is 2^20 B, its Gb 1e9 bit); {counted}"
    );
    let mut draft = DraftAnswer::new(CheckPath::Adapter, meaning, rate);
    // Rows of one size are intervals of a run.
    if table.rows.iter().all(|row| row.0 == largest) {
        let rates: Vec<f64> = table.rows.iter().map(|row| row.1).collect();
        draft.outliers.extend(unsteady(&rates));
    }
    if largest >= SMALL {
        draft.usual = usual_share("adapter.line");
        let last = table.rows.last().map_or(0.0, |row| row.1 / ways);
        draft.outliers.extend(below_peak(table, last, most));
    }
    let is_full = rate >= line * least_share("adapter.line");
    if named.is_some() {
        let source = node.map_or("", |node| node.nic_source.label());
        draft.limit =
            format!("{} Gbit/s = {} GB/s each way ({source})", figure(line * 8.0), figure(line));
        draft.limit_gbs = Some(line);
        let is_low = |node: &NodeLimits| node.nic_source == FactSource::Slot && node.is_downgraded;
        if node.is_some_and(is_low) && rate >= line * 0.75 {
            let facts = CauseFacts::new(&[("line", line), ("share", rate / line)]);
            draft.edits.push(facts.cause("adapter.adapter-slot#downgraded"));
        }
    } else {
        draft.limit = match largest >= SMALL {
            true => fitting_text(rate, &ports),
            false => "unknown: messages this small say nothing of the line".to_owned(),
        };
        draft.ask = "what is the rate of the adapter's port (ibstat, ethtool)?".to_owned();
        let (gbits, share) = (figure(line * 8.0), rate / line * 100.0);
        let expected = format!(
            "as expected if the port has {gbits} Gbit/s, of which it is {share:.0} %; slow if it has more"
        );
        let unknown = || "the paste does not say the adapter's rate".to_owned();
        draft.note = if is_full { expected } else { unknown() };
    }
    let is_usual = named.is_some() && is_full;
    if ["rxe", "siw"].iter().any(|name| table.device.starts_with(name)) && !is_usual {
        // A full line shows that the processor keeps up with it.
        let facts = CauseFacts::default().word("device", &*table.device);
        let edit = facts.cause("adapter.software-rdma");
        match is_full {
            true => draft.note = format!("{}; {}", draft.note, edit.text),
            false => draft.edits.push(edit),
        }
        return draft;
    }
    if table.is_short() && !is_usual {
        draft.note = "the run lasts less than 2 ms: its start counts".to_owned();
        draft.ask = "what does it give with -D 10?".to_owned();
    }
    draft.features.push(ObservedFeature::new("rate", rate.max(1e-4)));
    draft.edits.extend(candidates(table, node, rate, (line, named.is_some()), largest));
    if largest <= 8192 {
        // Small messages reach neither a slot's rate nor a port's.
        let of_size = |edit: &&mut WorldEdit| !["small-size", "line-full"].contains(&edit.id);
        draft.edits.iter_mut().filter(of_size).for_each(|edit| {
            edit.evidence -= 2.0;
            edit.exact = None;
        });
    }
    draft
}

/// A mean far below the fastest messages of the same run: the test stopped at times, or slowed.
fn below_peak(table: &NetworkTable, mean: f64, most: f64) -> Option<Outlier> {
    let one = Outlier::new("the mean".to_owned(), mean, most, "GB/s", "its own peak").of_row();
    let check = "the same with -D 10 and on an idle network; ethtool -S or the port's counters at both ends: pauses, retransmits";
    Some(one.checked_by(check)).filter(|one| one.share < STEADY && !table.is_short())
}

fn candidates(
    table: &NetworkTable,
    node: Option<&NodeLimits>,
    rate: f64,
    (line, is_named): (f64, bool),
    largest: u64,
) -> Vec<WorldEdit> {
    let is_slot = node.is_some_and(|node| node.nic_source == FactSource::Slot);
    let facts = CauseFacts::new(&[
        ("line", line),
        ("prior", if is_named { 0.4 } else { 0.5 }),
        ("share", if is_slot { 0.885 } else { 0.965 }),
        ("sigma", if is_slot { 0.05 } else { 0.03 }),
        ("largest", largest as f64),
    ])
    .word("direct", if table.on_gpu { "; GPUDirect RDMA works" } else { "" });
    let mut edits = vec![facts.cause("adapter.line-full")];
    if table.on_gpu {
        let edit = facts.cause("adapter.gpu-far-from-adapter");
        let is_far = node.is_some_and(|node| node.adapters_are_far);
        edits.push(if is_far { edit.seen(1.5) } else { edit });
    }
    // A slot that the paste shows is no other.
    let is_open = node.is_none_or(|node| !node.adapter_slot_known);
    for (lanes, payload, raw) in SLOTS.into_iter().filter(|slot| is_open && slot.1 < line * 0.9) {
        // Some adapters reach what the lanes carry before headers.
        let slot = if (rate / raw - 1.0).abs() < 0.02 { raw } else { payload };
        edits.push(facts.with("slot", slot).word("lanes", lanes).cause("adapter.adapter-slot"));
    }
    // A port that trained at another generation's rate, or with half of its lanes; from GPU memory a detour is more
    // usual than a cable.
    let prior = if table.on_gpu { 0.012 } else { 0.05 };
    let lower = standard_links("port").into_iter().map(|port| port.gbs);
    for lower in lower.filter(|lower| is_named && *lower < line * 0.9) {
        let facts = facts.with("prior", prior).with("lower", lower);
        edits.push(facts.cause("adapter.link-rate-low"));
    }
    if largest < SMALL {
        // An adapter starts 5 to 20 million messages a second on one queue pair or few: 1e7 x B / 1e9.
        let facts = facts
            .with("prior", if largest <= 8192 { 0.8 } else { 0.2 })
            .with("started", (line * 0.5).min(largest as f64 * 1e-2));
        edits.push(facts.cause("adapter.small-size"));
    }
    edits
}

/// A mean above the typical time by this factor is made by few operations that take long.
const RAISED_MEAN: f64 = 1.4;
/// One of a thousand operations takes this many times the typical time.
const LONG_TAIL: f64 = 20.0;

/// Few operations that take so long that the mean is theirs.
fn long_operations(table: &NetworkTable) -> Option<Outlier> {
    let (mean, late, longest) = table.tail?;
    let &(bytes, typical) = table.rows.first()?;
    let is_tail = mean > typical * RAISED_MEAN && late > typical * LONG_TAIL;
    let [late_us, longest, typical_us, mean] = [late, longest, typical, mean].map(figure);
    let text = format!(
        "{bytes} B: 1 of 1000 operations takes {late_us} us or more, the longest {longest} us, where {typical_us} us are \
         typical; the mean is {mean} us"
    );
    let one = Outlier::of_text(format!("{bytes} B"), typical / late, text);
    let check = "the same on isolated cores (taskset, performance governor); ethtool -S: pauses, retransmits";
    is_tail.then(|| one.checked_by(check))
}

fn explain_latency(table: &NetworkTable) -> DraftAnswer {
    let (bytes, typical) = table.rows.first().copied().unwrap_or_default();
    let test = if table.test.is_empty() { "RDMA latency" } else { &table.test };
    let meaning = format!("{test}: typical {} us at {bytes} B", figure(typical));
    let mut draft = DraftAnswer::new(CheckPath::Adapter, meaning, None);
    draft.limit = "1 to 2 us through one switch".to_owned();
    draft.features.push(ObservedFeature::new("start", typical.max(1e-3)));
    draft.outliers = long_tails(&table.rows, &table.longest);
    draft.outliers.extend(long_operations(table));
    draft.edits.extend([cause("adapter.rdma-message"), cause("adapter.slow-host")]);
    draft
}
