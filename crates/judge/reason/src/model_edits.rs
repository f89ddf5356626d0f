//! Causes as edits of a described node, judged by all rows of a paste or of a probe.

use std::collections::BTreeSet;

use pathline_diagnose::posterior::ln_likelihood;
use pathline_diagnose::{CollectiveCause, judge_causes};
use pathline_flow::{FaultEffect, FaultElement, MachineFault};
use pathline_message::BufferPlace;
use pathline_schema::{LinkEnd, Ns, Unit};

use crate::cause_table::CauseFacts;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::message_worlds::add_message_worlds;
use crate::outlier::Outlier;
use crate::predicted_row::{PredictedRow, moved_rows};
use crate::row_predictor::{QueriedRow, RowPredictor, RowQuery};
use crate::score::{AnswerClass, CURVE_SCALE, ObservedFeature, WorldEdit};

/// The median row over its prediction.
pub(crate) const LEVEL: &str = "model-level";
/// The slowest row, over its prediction and the median row.
pub(crate) const LEAST: &str = "model-least";
/// A slowest row above this share of the others needs no broken part.
pub(crate) const SOUND: f64 = 0.94;
/// A median row below this share of the model is slow itself, and no measure of the others.
const LEAST_LEVEL: f64 = 0.85;
/// Edits that are tried at most.
const MAX_EDITS: usize = 96;
/// Causes of healthy hardware that are set up so, and that a model of the node has.
const MODELLED: [&str; 3] = ["sdma-cap", "link-widths-differ", "across-sockets"];

/// Median, and least over the median, of ratios to predictions.
pub(crate) fn level_and_least(ratios: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut ratios: Vec<f64> = ratios.filter(|r| r.is_finite() && *r > 0.0).collect();
    ratios.sort_by(f64::total_cmp);
    let median = *ratios.get(ratios.len() / 2)?;
    Some((median, (ratios.first()? / median).clamp(1e-3, 1.0)))
}

/// Whether a cause leaves the hardware as the model has it.
pub(crate) fn is_in_model(edit: &WorldEdit) -> bool {
    matches!(edit.class, AnswerClass::AsExpected | AnswerClass::MeansSomethingElse)
        || MODELLED.contains(&edit.id)
}

/// Log likelihood of rows under predictions: Cauchy, so that one row decides nothing.
fn likelihood(ratios: impl Iterator<Item = f64>) -> f64 {
    ratios.map(|ratio| ln_likelihood(ratio.max(1e-3).ln(), CURVE_SCALE)).sum()
}

/// Sets the level and the least ratio to the model that each cause predicts for all rows. A cause that the model
/// has predicts the `usual` level and sound rows; any other cause predicts what was `seen`.
fn expect_levels(
    draft: &mut DraftAnswer,
    usual: (f64, f64),
    seen: (f64, f64),
    are_exchanges: bool,
) {
    for edit in &mut draft.edits {
        if is_in_model(edit) {
            edit.expects.extend([(LEVEL, usual.0, usual.1), (LEAST, 0.97, 0.06)]);
        } else if are_exchanges && !edit.expects.is_empty() {
            // A cause that predicts the rates predicts their level over the model with them.
            edit.expects.extend([(LEVEL, seen.0, usual.1), (LEAST, seen.1, 0.06)]);
        }
    }
}

/// Adds the predictions of all rows to an answer, the residuals as features, and the causes that the
/// model of the node has: as modelled, and broken parts that the slow rows pass. `redraft` gives the
/// answer to a paste with other figures in these rows.
pub(crate) fn add_model(
    draft: &mut DraftAnswer,
    of: &RowPredictor,
    rows: Vec<QueriedRow>,
    redraft: &dyn Fn(&[QueriedRow]) -> Option<DraftAnswer>,
) {
    let (rows, predicted) = of.predict_rows(rows);
    let ratios = || predicted.iter().map(PredictedRow::ratio);
    let Some((level, least)) = level_and_least(ratios()) else { return };
    let usual = of.usual_level();
    let are_exchanges = rows.iter().any(|row| row.query.exchange().is_some());
    expect_levels(draft, usual, (level, least), are_exchanges);
    let with = |values: &[f64]| {
        let revalued = |(row, value): (&QueriedRow, &f64)| QueriedRow {
            measured: value * usual.0,
            ..row.clone()
        };
        redraft(&rows.iter().zip(values).map(revalued).collect::<Vec<_>>())
    };
    let sound: Vec<f64> = predicted.iter().map(|row| row.predicted).collect();
    let mut edits = Vec::new();
    let text = summary(of, &predicted);
    if let Some(expected) = with(&sound) {
        let edit = CauseFacts::default().word("rows", &*text).cause("model.as-modelled");
        edits.push(expecting(edit, draft, &expected, usual, 0.97));
    }
    let is_slow = least < SOUND || level < SOUND && are_exchanges;
    let mut broken = Vec::new();
    if is_slow {
        let before = likelihood(ratios());
        let mut alike: Vec<FaultClass> = Vec::new();
        let telling = telling_row(&rows, &predicted);
        let are_messages = rows.iter().any(|row| row.query.is_mpi());
        for fault in candidate_faults(of, &rows, &predicted, level) {
            let Some(node) = of.damaged(&fault, are_exchanges) else { break };
            if telling.is_some_and(|at| !slows(&node, &rows, &sound, at)) {
                continue;
            }
            let values: Option<Vec<f64>> =
                rows.iter().map(|row| node.predict(&row.query)).collect();
            let Some(values) = values else { continue };
            if !are_exchanges && is_refuted(&predicted, &values, level) {
                continue;
            }
            let faster = rows.iter().zip(&values).zip(&sound).map(|((row, &value), &sound)| {
                if row.query.is_time() { sound / value } else { value / sound }
            });
            let Some((level, least)) = level_and_least(faster) else { continue };
            if least >= 0.97 && level >= 0.97 {
                continue;
            }
            match alike.iter_mut().find(|class| class.is_like(&values)) {
                Some(class) => class.faults.push(fault),
                None => alike.push(FaultClass { faults: vec![fault], values, level, least }),
            }
        }
        if are_messages {
            let first = |class: FaultClass| {
                let others = class.others();
                Some((*class.faults.first()?, others, class.values))
            };
            broken = alike.drain(..).filter_map(first).collect();
        }
        for class in alike {
            let Some(expected) = with(&class.values) else { continue };
            let residuals = rows.iter().zip(&class.values).map(|(row, value)| {
                if row.query.is_time() { value / row.measured } else { row.measured / value }
            });
            let gained = likelihood(residuals) - before;
            let Some(&first) = class.faults.first() else { continue };
            // Of collectives, level and shape are all that rows tell.
            let gained = if are_exchanges { 0.0 } else { gained };
            let mut edit = fault_edit(&first, &class.others()).seen(gained).of_fault(first);
            if are_exchanges {
                // Rules of collectives consider the same damage, without saying where.
                edit.prior /= 4.0;
            }
            let level = (usual.0 * class.level, usual.1);
            edits.push(expecting(edit, draft, &expected, level, class.least));
        }
    }
    keep_unpredicted(draft, &rows, &predicted);
    draft.edits.append(&mut edits);
    draft.features.push(ObservedFeature::new(LEVEL, level));
    draft.features.push(ObservedFeature::of_sound(LEAST, least, (0.97, 0.06)));
    if rows.iter().any(|row| row.query.is_mpi()) {
        add_message_worlds(draft, of, &rows, &predicted, broken);
    }
    draft.model = text;
    draft.rows = predicted;
}

/// Sizes that are slower than others and that the model has so are no outliers.
fn keep_unpredicted(draft: &mut DraftAnswer, rows: &[QueriedRow], predicted: &[PredictedRow]) {
    let is_predicted = |one: &Outlier| {
        let sizes = one.sizes()?;
        let is_of = |row: &QueriedRow| Some(sizes.contains(&row.query.exchange()?.bytes.0));
        let own = rows.iter().zip(predicted).filter(|(row, _)| is_of(row) == Some(true));
        own.map(|(_, row)| row.ratio()).reduce(f64::min).map(|least| least >= SOUND)
    };
    let (same, kept): (Vec<Outlier>, Vec<Outlier>) =
        draft.outliers.drain(..).partition(|one| is_predicted(one).unwrap_or(false));
    draft.outliers = kept;
    draft.also.extend(same.into_iter().map(|one| format!("{}; the model has the same", one.text)));
}

/// The row that a broken part has to slow if it is the cause: the largest message, or the slowest copy.
fn telling_row(rows: &[QueriedRow], predicted: &[PredictedRow]) -> Option<usize> {
    let size = |row: &QueriedRow| row.query.exchange().map_or(0, |exchange| exchange.bytes.0);
    let slower = |a: &usize, b: &usize| {
        let ratio = |at: &usize| predicted.get(*at).map_or(1.0, PredictedRow::ratio);
        ratio(a).total_cmp(&ratio(b))
    };
    let largest = rows.iter().map(size).max()?;
    (0..rows.len()).filter(|at| rows.get(*at).is_some_and(|r| size(r) == largest)).min_by(slower)
}

/// Whether a row is slower by 3 % on a damaged node.
fn slows(node: &RowPredictor, rows: &[QueriedRow], sound: &[f64], at: usize) -> bool {
    let Some((row, &sound)) = rows.get(at).zip(sound.get(at)) else { return false };
    let Some(value) = node.predict(&row.query) else { return false };
    let ratio = if row.query.is_time() { sound / value } else { value / sound };
    ratio < 0.97
}

/// Whether a copy is nearer to a sound node than to the damaged one, which slows it: a slow pair shows no slow GPU.
fn is_refuted(predicted: &[PredictedRow], values: &[f64], level: f64) -> bool {
    predicted.iter().zip(values).any(|(row, value)| {
        let slowed = value / row.predicted;
        slowed < SOUND && row.ratio() / level.max(LEAST_LEVEL) > slowed.sqrt()
    })
}

/// Faults that the rows cannot tell apart, such as links of any one GPU in a collective of all.
struct FaultClass {
    faults: Vec<MachineFault>,
    /// What each row shows then.
    values: Vec<f64>,
    /// Level and least of these, over a sound node's.
    level: f64,
    least: f64,
}

impl FaultClass {
    fn is_like(&self, values: &[f64]) -> bool {
        self.values.iter().zip(values).all(|(a, b)| (a / b - 1.0).abs() < 0.01)
    }

    /// The other parts with the same effect: `gpu1, gpu2`.
    fn others(&self) -> String {
        let first = self.faults.first().map(|fault| element_name(fault.element));
        let mut names: Vec<String> =
            self.faults.iter().skip(1).map(|fault| element_name(fault.element)).collect();
        names.retain(|name| Some(name) != first.as_ref());
        names.dedup();
        names.join(", ")
    }
}

/// An edit that expects the features of another draft. What that one lacks is as likely as under most
/// causes.
fn expecting(
    mut edit: WorldEdit,
    draft: &DraftAnswer,
    expected: &DraftAnswer,
    level: (f64, f64),
    least: f64,
) -> WorldEdit {
    for feature in &draft.features {
        let found = expected.features.iter().find(|f| f.id == feature.id);
        let (median, sigma) = found.map_or((feature.value, 1.0), |f| (f.value, level.1.max(0.06)));
        edit = edit.expects(feature.id, median, sigma);
    }
    edit.expects(LEVEL, level.0, level.1).expects(LEAST, least, 0.06)
}

/// `30 rows at 0.97 of the model in the median; slowest CASE: measured 120, predicted 148 (83 to 265), limit 300 GB/s`.
pub(crate) fn summary(of: &RowPredictor, rows: &[PredictedRow]) -> String {
    let Some((level, _)) = level_and_least(rows.iter().map(PredictedRow::ratio)) else {
        return String::new();
    };
    let slowest = moved_rows(rows).into_iter().min_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let slowest = slowest.map_or_else(String::new, |row| {
        let (scale, unit) = row.shown_unit();
        let shown = |value: f64| figure(value * scale);
        let limit = row.limit.map_or_else(String::new, |l| format!(", limit {}", shown(l)));
        let (measured, predicted) = (shown(row.measured), shown(row.predicted));
        let open = of.range_of(row).map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", shown(low), shown(high))
        });
        format!(
            "; slowest {}: measured {measured}, predicted {predicted}{open}{limit} {unit}",
            row.subject
        )
    });
    let rows = rows.len();
    let plural = if rows == 1 { "" } else { "s" };
    format!("{rows} row{plural} at {level:.2} of {} in the median{slowest}", of.basis())
}

/// Broken parts that the slow rows pass: links of their GPUs, their links to the host, copy engines.
fn candidate_faults(
    of: &RowPredictor,
    rows: &[QueriedRow],
    predicted: &[PredictedRow],
    level: f64,
) -> Vec<MachineFault> {
    let mut gpus: BTreeSet<u32> = BTreeSet::new();
    let mut has_host = false;
    for (row, found) in rows.iter().zip(predicted) {
        let RowQuery::Copies { case, .. } = &row.query else {
            // A collective is as slow as its slowest member: any may be the one.
            if let Some(exchange) = row.query.exchange().filter(|_| found.ratio() <= SOUND) {
                let buffers = exchange.buffers;
                has_host |= [buffers.from, buffers.to].contains(&BufferPlace::Host);
                gpus.extend(exchange.members().iter().map(|member| member.gpu));
            }
            continue;
        };
        if found.ratio() > level * SOUND {
            continue;
        }
        for place in case.timed.iter().flat_map(|flow| [flow.src, flow.dst]) {
            match place.unit {
                Unit::Gpu(gpu) => drop(gpus.insert(gpu)),
                _ => has_host = true,
            }
        }
    }
    let mut found = Vec::new();
    let mut add = |element, effect| {
        found.push(MachineFault { element, effect, silent: true, probability: 1.0 });
    };
    // Bytes are striped over the links to all switches: rates tell the GPU, not the switch.
    let mut switched: BTreeSet<LinkEnd> = BTreeSet::new();
    for link in &of.topology().links {
        let (from, to) = (link.a, link.b);
        let ends = [(from, to), (to, from)];
        let to_switch = ends.iter().find(|(_, end)| matches!(end, LinkEnd::Switch(_)));
        if to_switch.is_some_and(|(gpu, _)| !switched.insert(*gpu)) {
            continue;
        }
        let is_slow = |end| matches!(end, LinkEnd::Gpu(gpu) if gpus.contains(&gpu));
        let is_host = matches!(from, LinkEnd::Numa(_)) || matches!(to, LinkEnd::Numa(_));
        let is_pair = matches!((from, to), (LinkEnd::Gpu(_), LinkEnd::Gpu(_)));
        let concerned =
            if is_pair { is_slow(from) && is_slow(to) } else { is_slow(from) || is_slow(to) };
        if !concerned || (is_host && !has_host && of.topology().links.iter().any(is_fabric)) {
            continue;
        }
        let element = FaultElement::Bundle { from, to, one_way: false };
        for lost in 1..link.width.min(5) {
            add(element, FaultEffect::Width { lost });
        }
        add(element, FaultEffect::Speed { share: 0.5 });
        if is_host {
            add(element, FaultEffect::Speed { share: 0.25 });
        }
    }
    for &gpu in &gpus {
        add(FaultElement::Gpu(gpu), FaultEffect::Engine { share: 0.5 });
    }
    found.truncate(MAX_EDITS);
    found
}

fn is_fabric(link: &pathline_schema::Link) -> bool {
    let is_gpu = |end| matches!(end, LinkEnd::Gpu(_));
    (is_gpu(link.a) || is_gpu(link.b))
        && ![link.a, link.b].iter().any(|end| matches!(end, LinkEnd::Numa(_)))
}

/// A part, as rates tell it: not which of the switches.
fn element_name(element: FaultElement) -> String {
    match element {
        FaultElement::Bundle { from, to: LinkEnd::Switch(_), .. } => format!("{from} to a switch"),
        FaultElement::Bundle { from: LinkEnd::Switch(_), to, .. } => format!("{to} to a switch"),
        element => element.to_string(),
    }
}

/// A broken part as a cause. `others` have the same effect on the rows.
pub(crate) fn fault_edit(fault: &MachineFault, others: &str) -> WorldEdit {
    let element = element_name(fault.element);
    let is_host = match fault.element {
        FaultElement::Bundle { from, to, .. } => {
            [from, to].iter().any(|end| matches!(end, LinkEnd::Numa(_)))
        }
        _ => false,
    };
    let (key, share) = match fault.effect {
        FaultEffect::Engine { share } => ("fault.engine-slow", share),
        FaultEffect::Speed { share } if is_host => ("fault.narrow-pcie", share),
        FaultEffect::Speed { share } => ("fault.links-lost#speed", share),
        FaultEffect::Width { lost } => ("fault.links-lost", f64::from(lost)),
        _ => ("fault.links-lost#other", 0.0),
    };
    let of = if is_host { "lspci -vv | grep LnkSta under load" } else { "pathline health" };
    let or = if others.is_empty() { String::new() } else { format!(" (or of {others})") };
    let facts = CauseFacts::default().word("element", element).word("or", or);
    let edit = facts.word("share", share.to_string()).cause(key);
    edit.decided_by(format!("pathline explain --here --check; {of}"))
}

/// Adds what the audit of collectives makes of the whole curve: fewer channels, a ring less, rings in the
/// order of the GPUs' numbers.
pub(crate) fn add_collective_causes(
    draft: &mut DraftAnswer,
    of: &RowPredictor,
    rows: &[QueriedRow],
) {
    let (Some(desc), Some(layer)) = (of.desc(), of.layer()) else { return };
    let mut measured = Vec::new();
    for row in rows {
        let RowQuery::Rate(exchange) = &row.query else { continue };
        let Some(predicted) = of.predict(&row.query) else { continue };
        let Some(time) = of.time_of(exchange) else { continue };
        measured.push((exchange.clone(), Ns(time.time.0 * predicted / row.measured)));
    }
    let scores = judge_causes(desc, layer, &measured).unwrap_or_default();
    let best = scores.iter().map(|score| score.score).fold(f64::NEG_INFINITY, f64::max);
    // What is as it should be shows the curve of the model without an edit.
    let plain = scores.iter().find(|score| score.cause == CollectiveCause::AsModelled);
    if let Some(plain) = plain {
        for edit in draft.edits.iter_mut().filter(|edit| is_in_model(edit)) {
            edit.evidence += plain.score - best;
        }
    }
    for score in scores {
        let key = match score.cause {
            // Switches that reduce or do not are weighed with the plateaus of the curve.
            CollectiveCause::AsModelled
            | CollectiveCause::SwitchesUnused
            | CollectiveCause::SlowPart => continue,
            CollectiveCause::HalfChannels => "curve.few-channels",
            CollectiveCause::MissingRing => "curve.ring-missing",
            CollectiveCause::NumericOrder => "curve.ring-order",
        };
        let facts = CauseFacts::new(&[("off", score.off_by)]);
        let edit = facts.word("cause", score.cause.to_string()).cause(key);
        let mut edit = edit.seen(score.score - best).decided_by(score.cause.action());
        // The whole curve is judged above, against the best; single features are what it implies.
        for feature in &draft.features {
            edit = edit.expects(feature.id, feature.value, 0.08 + score.off_by);
        }
        draft.edits.push(edit);
    }
}
