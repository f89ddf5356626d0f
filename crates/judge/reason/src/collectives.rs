//! Tables of nccl-tests and rccl-tests: what busbw counts, its limit, and what gives such a figure.

use pathline_paste::{CollectiveRow, CollectiveTable};
use pathline_schema::Collective;

use crate::checks::CheckPath;
use crate::collective_causes::{CollectiveCase, certain_edit};
use crate::collective_limits::{ALL_TO_ALL, set_limit};
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::figures::figure;
use crate::node_facts::AnswerBasis;
use crate::outlier::{ASYMMETRY, DIP, Outlier, falls_off, moving_rows, slow_rows};
use crate::score::ObservedFeature;
use crate::table_summary::TableSummary;

/// Sizes that are named where both places differ.
const MAX_PLACES: usize = 4;
/// A row this much faster than the one of half its size shows no plateau.
const STILL_GROWS: f64 = 1.15;

/// The largest size is slower than the best from here on, as a share.
const STILL_LEVEL: f64 = 0.85;

/// The draft of an answer.
pub(crate) fn explain(table: &CollectiveTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits: node, log, context } = basis;
    let shape = TableSummary::new(table, basis);
    let fitted = node.and_then(|node| node.fitted(shape.best, "ring.links"));
    let node = fitted.as_ref().or(node);
    // Without a name the rows say what the factor is: only a reduction to all has 1 or more.
    let of_rows = table.rows.iter().rev().find(|row| row.algbw >= 1.0 && table.op.is_none());
    let of_rows = of_rows.map(|row| row.busbw / row.algbw);
    let unnamed = match of_rows {
        Some(factor) if factor < 0.99 => Collective::AllGather,
        _ => Collective::AllReduce,
    };
    let op = table.op.unwrap_or(unnamed);
    let factor = if table.is_sendrecv { 1.0 } else { op.bus_factor(shape.ranks as usize) };
    let factor = of_rows.unwrap_or(factor);
    let name = match (table.op, table.is_sendrecv) {
        (_, true) => "sendrecv".to_owned(),
        (Some(op), _) => op.to_string(),
        _ => "collective".to_owned(),
    };
    let best = if shape.best > 0.0 { shape.best } else { table.average_busbw.unwrap_or(0.0) };
    let incomplete = match table.is_incomplete {
        true => "; the profiler's file does not say that every record was written",
        false => "",
    };
    let formula = format!(" = size / time x {}", figure(factor));
    let formula = if shape.is_guess && of_rows.is_none() { "" } else { &*formula };
    let by = match table.ranks {
        Some(1) => "no link carries it",
        _ => "one direction of a GPU's links, if a ring carries it",
    };
    let (ranks, gbs) = (shape.ranks_text(), figure(best));
    let meaning = format!(
        "{name} over {ranks}, GPU memory: busbw {gbs} GB/s (1e9 B/s){formula}; {by}{incomplete}"
    );
    let path = match shape.is_one_node() {
        true => CheckPath::NodeCollective,
        false => CheckPath::NetCollective,
    };
    let mut draft = DraftAnswer::new(path, meaning, best);
    if shape.nodes <= 1 {
        draft.subject = ProbeSubject::GpuPairs;
    }
    if let Some(edit) = certain_edit(table, best) {
        match edit.id {
            "one-rank" | "separate-runs" => draft.limit = "none: no rate counts here".to_owned(),
            _ => set_limit(&mut draft, table, &shape, node),
        }
        // Of wrong bytes and of starts no share counts.
        draft.limit_gbs = None;
        draft.edits.push(edit);
        return draft;
    }
    set_limit(&mut draft, table, &shape, node);
    draft.outliers = slow_sizes(table);
    draft.features.push(ObservedFeature::new("busbw", best.max(1e-3)));
    shape.observe(&mut draft, table);
    let is_usual = draft.is_usual(best);
    if let Some(growth) = shape.growth.filter(|growth| *growth > STILL_GROWS && !is_usual) {
        draft.note = format!(
            "the largest size still grows ({growth:.1} times the rate of half of it): no plateau is shown"
        );
    } else if shape.last < shape.best * STILL_LEVEL {
        let (last, best) = (figure(shape.last), figure(shape.best));
        draft.note = format!(
            "the largest size is slower ({last} GB/s) than the best ({best} GB/s): another algorithm or protocol \
             begins there, or the network drops packets"
        );
    }
    let is_other = draft.condition == ALL_TO_ALL;
    let op = (!table.is_sendrecv).then_some(if is_other { Collective::AllToAll } else { op });
    let case = CollectiveCase { table, shape: &shape, op, factor, log, context };
    match node {
        Some(node) if shape.is_one_node() => {
            case.in_node(&mut draft, node);
            case.through_host(&mut draft, node);
        }
        Some(node) if node.nic_gbs > 0.0 && (is_other || draft.condition.is_empty()) => {
            let total = draft.limit_gbs.unwrap_or(node.nic_gbs);
            let total = node.nics.map_or(total, |nics| f64::from(nics) * node.nic_gbs);
            case.over_network(&mut draft, node, total);
        }
        _ => case.by_transport(&mut draft),
    }
    draft
}

/// Sizes below their neighbours, in either place.
fn slow_sizes(table: &CollectiveTable) -> Vec<Outlier> {
    let best = table.rows.iter().max_by(|a, b| a.algbw.total_cmp(&b.algbw));
    let factor = best.map_or(1.0, |row| row.busbw / row.algbw.max(1e-9));
    // Small rates have two digits: times say more.
    let of_time = |row: &CollectiveRow| row.bytes as f64 / row.time_us.max(1e-3) / 1e3 * factor;
    let out: Vec<(u64, f64)> = table.rows.iter().map(|row| (row.bytes, of_time(row))).collect();
    let out = moving_rows(&out);
    let inner = table.rows.iter().filter_map(|row| Some((row.bytes, row.in_place_busbw?)));
    let inner = moving_rows(&inner.filter(|row| row.1 >= 1.0).collect::<Vec<_>>());
    let mut found = slow_rows(&out, DIP);
    found.extend(falls_off(&out));
    for one in slow_rows(&inner, DIP) {
        if found.iter().all(|known| known.part != one.part) {
            found.push(Outlier { text: format!("in place, {}", one.text), ..one });
        }
    }
    // Of one size the same bytes move in either place.
    let both = inner.iter().filter_map(|&(bytes, inside)| {
        let (_, outside) = *out.iter().find(|row| row.0 == bytes)?;
        Some((bytes, inside, outside))
            .filter(|_| inside.max(outside) > ASYMMETRY * inside.min(outside))
    });
    for (bytes, inside, outside) in both.take(MAX_PLACES) {
        let ((slow, least), (other, most)) = match inside < outside {
            true => (("in place", inside), ("out of place", outside)),
            false => (("out of place", outside), ("in place", inside)),
        };
        let part = format!("{bytes} B");
        if found.iter().all(|known| known.part != part) {
            let one = Outlier::new(format!("{part} {slow}"), least, most, "GB/s", other);
            found.push(Outlier { part, ..one.of_row() });
        }
    }
    found
}
