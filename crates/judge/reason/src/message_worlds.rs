//! Causes of MPI's rates and times as worlds of the described node: the library with another setting, the
//! buffers elsewhere, a broken part. Each predicts the whole curve, and the likelihood of the curve chooses.

use pathline_flow::MachineFault;
use pathline_message::{BufferPair, BufferPlace, ExchangeOp, ExchangeSpec, MessageLibrary};

use crate::cause_table::{CauseFacts, cause};
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::model_edits::{fault_edit, is_in_model};
use crate::predicted_row::PredictedRow;
use crate::row_predictor::{QueriedRow, RowPredictor, RowQuery};
use crate::score::{CURVE_SCALE, CurveFit, WorldEdit, fit_curve, fit_with_scale};

/// A world whose rows are off by more than this in the median explains nothing.
const EXPLAINS: f64 = 0.15;
/// How much broader a cause spreads its rows that predicts none of them.
const BROADER: f64 = 10.0;
/// Another setting is worth to be named from this gain on.
const GAIN: f64 = 1.25;
/// An edit that changes no row by more shows nowhere.
const SHOWN: f64 = 0.03;

/// The node with one edit.
pub(crate) struct MessageWorld {
    edit: WorldEdit,
    /// What each row shows then.
    values: Vec<f64>,
}

/// Adds the worlds that explain the rows, and weighs what was drafted without a model against them.
/// `broken` are faults with what each row shows under them.
pub(crate) fn add_message_worlds(
    draft: &mut DraftAnswer,
    of: &RowPredictor,
    rows: &[QueriedRow],
    predicted: &[PredictedRow],
    broken: Vec<(MachineFault, String, Vec<f64>)>,
) {
    let measured: Vec<f64> = rows.iter().map(|row| row.measured).collect();
    let sound: Vec<f64> = predicted.iter().map(|row| row.predicted).collect();
    let plain = fit_curve(&measured, &sound);
    let mut worlds = variants(of, rows, &sound);
    note_copy_kernel(draft, &worlds, rows.last().zip(sound.last().copied()));
    worlds.extend(broken.into_iter().map(|(fault, others, values)| MessageWorld {
        edit: fault_edit(&fault, &others).of_fault(fault),
        values,
    }));
    // What shows in no row is no edit of them.
    let shows = |world: &MessageWorld| {
        world.values.iter().zip(&sound).any(|(a, b)| (a / b).ln().abs() > SHOWN)
    };
    worlds.retain(shows);
    let edits_cost = (measured.len().max(2) as f64).ln();
    let fit = |world: MessageWorld| {
        let fit = fit_curve(&measured, &world.values);
        (world, CurveFit { score: fit.score - edits_cost, ..fit })
    };
    let fitted = worlds.into_iter().map(fit).filter(|(_, fit)| fit.off_by <= EXPLAINS);
    let fitted: Vec<(MessageWorld, CurveFit)> = fitted.collect();
    let found = fitted.iter().map(|(_, fit)| fit);
    let best = found.fold(plain, |best, fit| if fit.score > best.score { *fit } else { best });
    if best.off_by > EXPLAINS {
        return;
    }
    // A cause that predicts no row spreads them ten times as far.
    let n = measured.len() as f64;
    let wide = fit_with_scale(&measured, &sound, CURVE_SCALE * BROADER).score.max(-n);
    let broad = wide - n * BROADER.ln();
    for edit in &mut draft.edits {
        if is_in_model(edit) || edit.id == "as-modelled" {
            edit.evidence += plain.score - best.score;
        } else if edit.fault.is_none() {
            edit.evidence += (broad - best.score).min(0.0);
        }
    }
    // The model says of these causes what the rules only guess.
    let modelled: Vec<&str> = fitted.iter().map(|(world, _)| world.edit.id).collect();
    draft.edits.retain(|edit| edit.fault.is_some() || !modelled.contains(&edit.id));
    for (world, fit) in fitted {
        let mut edit = world.edit.modelled().seen(fit.score - best.score);
        let off = fit.off_by * 100.0;
        edit.text +=
            &format!(": the model with that gives these rows within {off:.0} % in the median");
        for feature in &draft.features {
            edit.expects.retain(|(id, ..)| *id != feature.id);
            edit = edit.expects(feature.id, feature.value, 0.08 + fit.off_by);
        }
        draft.edits.push(edit);
    }
}

/// What the copy kernel gives at the largest size, for a reader whose messages a copy engine caps.
fn note_copy_kernel(
    draft: &mut DraftAnswer,
    worlds: &[MessageWorld],
    last: Option<(&QueriedRow, f64)>,
) {
    let kernel = worlds.iter().find(|world| world.edit.id == "copy-kernel");
    let faster = kernel.and_then(|world| world.values.last());
    let Some((faster, (row, now))) = faster.zip(last) else { return };
    let RowQuery::Rate(exchange) = &row.query else { return };
    if *faster <= now * GAIN {
        return;
    }
    for edit in draft.edits.iter_mut().filter(|edit| edit.id == "sdma-cap") {
        let (gbs, bytes) = (figure(*faster), exchange.bytes);
        edit.text += &format!("; with HSA_ENABLE_SDMA=0 the model has {gbs} GB/s at {bytes}");
    }
}

/// What may be other than the model has it, without a broken part.
fn variants(of: &RowPredictor, rows: &[QueriedRow], sound: &[f64]) -> Vec<MessageWorld> {
    let first = rows.iter().find_map(|row| row.query.exchange());
    let Some(first) = first else { return Vec::new() };
    let moved = other_copier(of, rows, first).into_iter().chain(other_memory(of, rows, first));
    moved.chain(other_count(first, sound)).collect()
}

/// The rows with another exchange in each.
fn predict_changed(
    of: &RowPredictor,
    rows: &[QueriedRow],
    change: &dyn Fn(&mut ExchangeSpec),
) -> Option<Vec<f64>> {
    let each = rows.iter().map(|row| {
        let mut query = row.query.clone();
        match &mut query {
            RowQuery::Rate(exchange) | RowQuery::Time(exchange) => change(exchange),
            RowQuery::Copies { .. } => {}
        }
        of.predict(&query)
    });
    each.collect()
}

/// A copy kernel for copy engines, or the other way about.
fn other_copier(
    of: &RowPredictor,
    rows: &[QueriedRow],
    first: &ExchangeSpec,
) -> Option<MessageWorld> {
    let (sdma, by) = match first.by {
        MessageLibrary::CrayMpich { sdma } => (sdma, MessageLibrary::CrayMpich { sdma: !sdma }),
        MessageLibrary::Ucx { sdma } => (sdma, MessageLibrary::Ucx { sdma: !sdma }),
        MessageLibrary::Rccl | MessageLibrary::Nccl { .. } => return None,
    };
    let key = if sdma { "world.copy-kernel" } else { "world.sdma-cap" };
    let values = predict_changed(of, rows, &|exchange| exchange.by = by)?;
    Some(MessageWorld { edit: cause(key), values })
}

/// Buffers elsewhere than stated, or moved through host memory, or copied twice there.
fn other_memory(of: &RowPredictor, rows: &[QueriedRow], first: &ExchangeSpec) -> Vec<MessageWorld> {
    let mut worlds = Vec::new();
    let mut add = |values: Option<Vec<f64>>, edit: WorldEdit| {
        worlds.extend(values.map(|values| MessageWorld { edit, values }));
    };
    let with = |place| {
        predict_changed(of, rows, &move |exchange| exchange.buffers = BufferPair::both(place))
    };
    if first.buffers == BufferPair::both(BufferPlace::Vram) {
        let is_time = rows.iter().all(|row| row.query.is_time());
        let key = if is_time { "world.staged-message" } else { "world.through-host-memory" };
        add(with(BufferPlace::Staged), cause(key));
        add(with(BufferPlace::Host), cause("world.host-memory-only"));
    }
    if first.buffers == BufferPair::both(BufferPlace::Host) {
        let edited = of.desc().and_then(|desc| {
            let mut desc = desc.clone();
            let software = &mut desc.software;
            for mpi in [&mut software.cray_mpich, &mut software.ucx].into_iter().flatten() {
                mpi.single_copy_from_bytes = u64::MAX;
            }
            RowPredictor::from_desc(&desc).ok()
        });
        let changed = edited.and_then(|node| predict_changed(&node, rows, &|_| {}));
        add(changed, cause("world.no-single-copy"));
    }
    worlds
}

/// Directions counted otherwise than the title says, and units that are off by 1000.
fn other_count(first: &ExchangeSpec, sound: &[f64]) -> Vec<MessageWorld> {
    let scaled = |factor: f64, edit: WorldEdit| {
        let values = sound.iter().map(|value| value * factor).collect();
        MessageWorld { edit, values }
    };
    let unit = |factor: f64| {
        scaled(factor, CauseFacts::new(&[("factor", factor)]).cause("world.wrong-unit"))
    };
    let mut worlds = vec![unit(1e3), unit(1e-3)];
    if let ExchangeOp::Send { pairs, .. } = &first.what {
        worlds.push(match pairs.len() {
            1 => scaled(2.0, cause("world.two-ways-counted")),
            _ => scaled(0.5, cause("world.one-way-counted")),
        });
    }
    worlds
}
