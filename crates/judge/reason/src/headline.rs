//! What the model of a node says of the rows together: the limit of the headline, the range of what is slow, a plateau.

use pathline_schema::{LinkEnd, LinkKind};

use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::predicted_row::{PredictedRow, is_within, moved_rows};
use crate::row_predictor::RowPredictor;

/// A limit of busbw above this share of a GPU's links is one of sums in the switches.
const SUMMED: f64 = 1.02;
/// Share of its prediction from which on a row is as predicted.
const SOUND: f64 = 0.95;
/// Share of what is measured that a model predicts at least, where it is right.
const AS_MODELLED: f64 = 0.8;

/// One limit a screen: that of the model for the row of the headline.
pub(crate) fn take_model_limit(draft: &mut DraftAnswer, node: &RowPredictor) {
    let ways = draft.ways.max(1.0);
    let Some(printed) = draft.value.map(|value| value * ways) else { return };
    let far = |row: &PredictedRow| (row.measured / printed).ln().abs();
    let rates = draft.rows.iter().filter(|row| row.unit == "GB/s");
    let headline = rates.min_by(|a, b| far(a).total_cmp(&far(b)));
    let Some(row) = headline else { return };
    draft.condition.clear();
    draft.ask.clear();
    let Some(limit) = row.limit else {
        draft.limit = format!("none known of this path ({})", node.basis());
        draft.limit_gbs = None;
        return;
    };
    let links = links_of_a_gpu(node);
    let what = node.narrowest(row).unwrap_or_else(|| match limit > links * SUMMED && links > 0.0 {
        // NVLink SHARP: what a ring would send twice the switches add up.
        true => format!("by {} GB/s of links and sums in the switches (NVLS)", figure(links)),
        false => "by its links".to_owned(),
    });
    let each = if ways > 1.0 { " each way" } else { "" };
    let (gbs, because) = (figure(limit / ways), &node.because);
    draft.limit = format!("{gbs} GB/s{each}, {what} ({}{because})", node.basis());
    draft.limit_gbs = Some(limit / ways);
    // They say the share of the data sheet's rate, the model that of this one.
    let is_described = node.desc().is_some();
    draft.edits.retain(|edit| !is_described || !["link-full", "pcie-full"].contains(&edit.id));
}

/// Links of the first GPU to other GPUs and switches, GB/s each way.
fn links_of_a_gpu(node: &RowPredictor) -> f64 {
    let topology = node.topology();
    let gpu = topology.gpus.first().map(|gpu| LinkEnd::Gpu(gpu.index));
    let of_gpu = topology.links.iter().filter(|link| {
        let ends = [link.a, link.b];
        gpu.is_some_and(|gpu| ends.contains(&gpu))
            && matches!(link.kind, LinkKind::Xgmi | LinkKind::Nvlink)
            && !ends.iter().any(|end| matches!(end, LinkEnd::Numa(_)))
    });
    of_gpu.filter_map(|link| link.peak).map(|peak| peak.0).sum()
}

/// The row of the headline and the slowest one, where they are below their predictions: of these the one that is
/// outside of what the model leaves open, else the first. What is open for a row is costly to know.
pub(crate) fn open_range(
    node: &RowPredictor,
    rows: &[PredictedRow],
) -> Option<(PredictedRow, (f64, f64))> {
    let moved = moved_rows(rows).into_iter();
    let slowest = moved.min_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let headline = rows.iter().max_by(|a, b| a.measured.total_cmp(&b.measured));
    let low = headline.into_iter().chain(slowest).filter(|row| row.ratio() < SOUND);
    let open: Vec<(PredictedRow, (f64, f64))> =
        low.filter_map(|row| Some((row.clone(), node.range_of(row)?))).collect();
    let outside = open.iter().find(|(row, range)| !is_within(row, *range));
    outside.or(open.first()).cloned()
}

/// The row of the greatest rate of messages, where all that the bytes decide are as fast as predicted, and it is no
/// faster than a model may be off.
pub(crate) fn plateau(rows: &[PredictedRow]) -> Option<PredictedRow> {
    let moved = moved_rows(rows);
    let best = moved.iter().filter(|row| row.sent.is_some());
    let best = best.max_by(|a, b| a.measured.total_cmp(&b.measured))?;
    let is_fast = moved.iter().all(|row| row.ratio() >= SOUND) && best.ratio() < 1.0 / AS_MODELLED;
    is_fast.then(|| (*best).clone())
}

/// The slowest of the messages whose time is that of a start, where it is slower than the model leaves open.
pub(crate) fn slow_start(node: &RowPredictor, rows: &[PredictedRow]) -> Option<String> {
    let moved = moved_rows(rows);
    let small = rows.iter().filter(|row| !moved.contains(row) && row.ratio() < SOUND);
    let row = small.min_by(|a, b| a.ratio().total_cmp(&b.ratio()))?;
    let (low, high) = node.range_of(row).filter(|range| !is_within(row, *range))?;
    let bytes = row.sent? as f64;
    let us = |gbs: f64| figure(bytes / gbs / 1e3);
    let (measured, least, most) = (us(row.measured), us(high), us(low));
    Some(format!(
        "small messages: {measured} us each at {bytes} B, where the model leaves open {least} to {most} us: a start, no link"
    ))
}
