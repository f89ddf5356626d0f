//! Which published rows hold which constants of a description: the rows that move when a constant changes.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{
    ConstantEffect, DecidingConstant, DescError, DescVariants, FigureForm, MachineDesc,
    ModelConstant, PredictionTrust, find_effects,
};
use pathline_schema::Case;

use crate::class::{FACTS, RowClass};
use crate::number::{MachineAnswer, MachineQuery};
use crate::physics::AnswerMap;
use crate::report::ValidationPlan;
use crate::score::ComparedRow;
use crate::table::PublishedRow;

/// Constants change by this share, up and down.
const CHANGE: f64 = 0.3;
/// A row holds a constant if it moves by more than this share.
const MOVED: f64 = 0.01;
/// A prediction and a published value that differ by less are one number, rounded.
const SAME_DIGITS: f64 = 1e-3;
/// A prediction is a constant if its d ln row / d ln constant differs from 1 by less.
const IN_PROPORTION: f64 = 0.02;
/// All other constants change by this share to see whether one alone makes a row.
const LITTLE: f64 = 0.03;

/// The answers to the queries of a plan, by the stack of its rows.
pub type StackAnswers = BTreeMap<String, AnswerMap>;

/// Answers every query of a plan on a description.
pub type PlanAnswers<'a> =
    dyn Fn(&MachineDesc, &ValidationPlan) -> Result<StackAnswers, String> + Sync + 'a;

/// A constant and the rows that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantSensitivity {
    /// The constant.
    pub constant: ModelConstant,
    /// Number of rows that move by more than 1 %, by class.
    pub held_by: BTreeMap<String, usize>,
    /// The largest |d ln row / d ln constant|, by the difference over 30 %; 0 if no row moves. Infinite if
    /// a row has no prediction with the changed constant.
    pub largest: f64,
    /// Label of the row with the largest.
    pub row: String,
    /// Why the constant cannot be changed by 30 % in either direction.
    pub refused: Option<String>,
}

impl ConstantSensitivity {
    /// Number of rows that hold it.
    pub fn rows(&self) -> usize {
        self.held_by.values().sum()
    }
}

/// The rows that hold each constant of a description.
#[derive(Debug, Clone, PartialEq)]
pub struct SensitivityReport {
    /// Name of the machine.
    pub machine: String,
    /// Number of rows with a prediction.
    pub rows: usize,
    /// Constants in the order of the description.
    pub constants: Vec<ConstantSensitivity>,
    /// How many published values the intervals of predictions have, by class; empty if not all constants
    /// were changed.
    pub intervals: Vec<ClassIntervals>,
}

/// Intervals of the predictions of a class of rows, by the origins of the constants that decide each.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassIntervals {
    /// The class.
    pub class: String,
    /// Number of rows.
    pub n: usize,
    /// Rows whose published value is in the interval.
    pub covered: usize,
    /// Median of the factors by which times may be longer than predicted.
    pub slower: f64,
}

impl SensitivityReport {
    /// Constants that no row holds, and that can be changed.
    pub fn unheld(&self) -> impl Iterator<Item = &ConstantSensitivity> {
        self.constants.iter().filter(|c| c.rows() == 0 && c.refused.is_none())
    }
    /// Constants that rows hold, those of the most rows first.
    pub fn held(&self) -> Vec<&ConstantSensitivity> {
        let mut held: Vec<_> = self.constants.iter().filter(|c| c.rows() > 0).collect();
        held.sort_by_key(|c| std::cmp::Reverse(c.rows()));
        held
    }
    /// Constants that cannot be changed by 30 %.
    pub fn refused(&self) -> impl Iterator<Item = &ConstantSensitivity> {
        self.constants.iter().filter(|c| c.refused.is_some())
    }
}

/// Changes each constant by 30 % up and down, and finds the rows of `plan` that move. `keys` names the
/// constants by the beginning of their keys; without any, all are changed.
///
/// # Errors
/// The description makes no network, or its text is not its own.
pub fn find_sensitivity(
    desc: &MachineDesc,
    text: &str,
    plan: &ValidationPlan,
    keys: &[String],
    answers: &PlanAnswers<'_>,
) -> Result<SensitivityReport, DescError> {
    let variants = DescVariants::new(desc, text)?;
    let rows: Vec<&PublishedRow> = plan.rows().collect();
    let failed = |reason: String| DescError { file: desc.name.clone(), reason };
    let base = compared(plan, &answers(desc, plan).map_err(failed)?);
    let numbers = predictions(&base);
    let is_named =
        |key: &str| keys.is_empty() || keys.iter().any(|named| key.starts_with(named.as_str()));
    let chosen: Vec<usize> = (0..variants.constants().len())
        .filter(|&c| is_named(&variants.constants()[c].key))
        .collect();
    let search = |factor: f64| {
        find_effects(&variants, &chosen, factor, &numbers, &mut changed(plan, answers))
    };
    let (up, down) = std::thread::scope(|scope| {
        let up = scope.spawn(|| search(1.0 + CHANGE));
        let down = search(1.0 / (1.0 + CHANGE));
        (up.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), down)
    });
    let constants = up.iter().zip(&down).map(|(up, down)| {
        let mut largest = BTreeMap::<usize, f64>::new();
        for &(row, change) in up.moved.iter().chain(&down.moved) {
            let most = largest.entry(row).or_default();
            *most = most.max(change.abs());
        }
        largest.retain(|_, change| *change > MOVED.ln_1p());
        let mut held_by = BTreeMap::new();
        for &row in largest.keys() {
            if let Some(compared) = base.get(row).and_then(Option::as_ref) {
                *held_by.entry(compared.class.clone()).or_default() += 1;
            }
        }
        let most = largest.iter().max_by(|a, b| a.1.total_cmp(b.1));
        ConstantSensitivity {
            constant: variants.constants()[up.constant].clone(),
            held_by,
            largest: most.map_or(0.0, |(_, change)| change / CHANGE.ln_1p()),
            row: most.and_then(|(&row, _)| rows.get(row)).map_or_else(String::new, |r| r.label()),
            refused: up.refused.clone().filter(|_| down.refused.is_some()),
        }
    });
    let constants = constants.collect();
    let predicted = numbers.iter().flatten().count();
    let intervals = if keys.is_empty() {
        intervals(&base, &rows, variants.constants(), &up, &down)
    } else {
        Vec::new()
    };
    Ok(SensitivityReport { machine: desc.name.clone(), rows: predicted, constants, intervals })
}

/// The rows of `plan` whose figures the description carries as they are, by their place: a constant has the
/// published value, and the prediction, which is the same number, follows that constant alone and in proportion.
/// `answers_as_is` are those of the plan on the description as it is.
///
/// # Errors
/// The text is not the description's.
pub fn find_carried(
    desc: &MachineDesc,
    text: &str,
    plan: &ValidationPlan,
    answers_as_is: &StackAnswers,
    answers: &PlanAnswers<'_>,
) -> Result<BTreeSet<usize>, DescError> {
    let variants = DescVariants::new(desc, text)?;
    let is_value = |row: &ComparedRow, constant: &ModelConstant| {
        // Times of rows are in us.
        let unit = if constant.key.ends_with("_ns") { 1e-3 } else { 1.0 };
        let is_near = |value: &f64| (value * unit / row.predicted - 1.0).abs() < SAME_DIGITS;
        constant.is_quantity() && constant.values.iter().any(is_near)
    };
    let mut chosen = BTreeSet::new();
    let mut base = compared(plan, answers_as_is);
    for slot in &mut base {
        let is_met = |row: &ComparedRow| {
            let is_figure = row.measured.low == row.measured.high && !row.data;
            is_figure && row.error().abs() < SAME_DIGITS
        };
        let Some(row) = slot.take().filter(is_met) else { continue };
        let all = variants.constants().iter().enumerate();
        let with_value: Vec<usize> =
            all.filter(|(_, constant)| is_value(&row, constant)).map(|(at, _)| at).collect();
        *slot = (!with_value.is_empty()).then_some(row);
        chosen.extend(with_value);
    }
    let mut figures = changed(plan, answers);
    let numbers = predictions(&base);
    let places: Vec<usize> = (0..base.len()).filter(|&at| base[at].is_some()).collect();
    // What moves when everything else changes a little rests on more than its constant.
    let others = |key: &str| {
        let at = variants.constants().iter().position(|constant| constant.key == key);
        match at.filter(|at| !chosen.contains(at) && variants.constants()[*at].is_quantity()) {
            // Down, as shares have an upper end, and not alike, as ratios of two constants count.
            Some(at) => 1.0 - LITTLE * (1.0 + (at % 7) as f64 / 7.0),
            None => 1.0,
        }
    };
    let shifted = variants.scaled(&others).map(|desc| figures(&desc, &places)).unwrap_or_default();
    let moves = |(&at, value): (&usize, Option<f64>)| {
        let base = numbers.get(at).copied().flatten()?;
        value.is_some_and(|value| (value / base - 1.0).abs() > LITTLE / 10.0).then_some(at)
    };
    let by_others: BTreeSet<usize> = places.iter().zip(shifted).filter_map(moves).collect();
    let chosen: Vec<usize> = chosen.into_iter().collect();
    let effects = find_effects(&variants, &chosen, 1.0 + CHANGE, &numbers, &mut figures);
    let mut follows: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for effect in &effects {
        let felt = effect.moved.iter().filter(|(_, change)| change.abs() > MOVED.ln_1p());
        for &(row, change) in felt {
            let elasticity = change.abs() / CHANGE.ln_1p();
            follows.entry(row).or_default().push((effect.constant, elasticity));
        }
    }
    let is_carried = |at: usize, by: &[(usize, f64)]| {
        let row = base.get(at).and_then(Option::as_ref);
        matches!((row, by), (Some(row), &[(constant, elasticity)])
            if (elasticity - 1.0).abs() < IN_PROPORTION
                && is_value(row, &variants.constants()[constant])
                && !by_others.contains(&at))
    };
    Ok(follows.into_iter().filter(|(at, by)| is_carried(*at, by)).map(|(at, _)| at).collect())
}

fn predictions(rows: &[Option<ComparedRow>]) -> Vec<Option<f64>> {
    rows.iter().map(|row| row.as_ref().map(|row| row.predicted)).collect()
}

/// The predictions of rows of a plan on changed descriptions.
fn changed<'a>(
    plan: &'a ValidationPlan,
    answers: &'a PlanAnswers<'_>,
) -> impl FnMut(&MachineDesc, &[usize]) -> Vec<Option<f64>> + 'a {
    |desc, wanted| {
        let again = plan.again(desc, wanted).map_err(|e| e.to_string());
        let answered = again.and_then(|plan| Ok(compared(&plan, &answers(desc, &plan)?)));
        predictions(&answered.unwrap_or_default())
    }
}

/// Whether the intervals of predictions have the published values, by class. Facts of the wiring and
/// values that the model carries as data agree by construction and are left out.
fn intervals(
    base: &[Option<ComparedRow>],
    rows: &[&PublishedRow],
    constants: &[ModelConstant],
    up: &[ConstantEffect],
    down: &[ConstantEffect],
) -> Vec<ClassIntervals> {
    let mut classes: BTreeMap<&str, Vec<(bool, f64)>> = BTreeMap::new();
    for (at, (row, published)) in base.iter().zip(rows).enumerate() {
        let Some(row) = row.as_ref().filter(|r| !r.data && !r.targets.contains(&FACTS)) else {
            continue;
        };
        let change = |of: &ConstantEffect| {
            let moved = of.moved.iter().find(|(moved, _)| *moved == at);
            moved.map(|(_, change)| change.abs()).filter(|change| change.is_finite())
        };
        let deciding = up.iter().zip(down).filter_map(|(up, down)| {
            let constant = constants.get(up.constant).filter(|c| c.is_quantity())?;
            let most = change(up).unwrap_or_default().max(change(down).unwrap_or_default());
            let (key, origin) = (constant.key.clone(), constant.origin);
            Some(DecidingConstant { key, origin, elasticity: most / CHANGE.ln_1p() })
        });
        let trust = PredictionTrust::new(deciding.collect(), form(row, published));
        // A rate is the inverse of a time.
        let (low, high) = match row.unit.as_str() {
            "us" | "ns" => (trust.faster, trust.slower),
            _ => (1.0 / trust.slower, 1.0 / trust.faster),
        };
        let covers =
            row.predicted * low <= row.measured.high && row.measured.low <= row.predicted * high;
        classes.entry(&row.class).or_default().push((covers, trust.slower));
    }
    let of_class = |(class, rows): (&str, Vec<(bool, f64)>)| {
        let widths = pathline_stats::ascending(rows.iter().map(|(_, slower)| *slower));
        ClassIntervals {
            class: class.to_owned(),
            n: rows.len(),
            covered: rows.iter().filter(|(covers, _)| *covers).count(),
            slower: pathline_stats::interpolated(&widths, 0.5).unwrap_or(1.0),
        }
    };
    classes.into_iter().map(of_class).collect()
}

/// What a row is of, by its class and the sizes of its cases.
fn form(compared: &ComparedRow, row: &PublishedRow) -> FigureForm {
    if [RowClass::Message, RowClass::Collective].iter().any(|class| class.name() == compared.class)
    {
        return FigureForm::Exchange;
    }
    let cases = row.case.split(';').filter_map(|text| text.trim().parse::<Case>().ok());
    let sizes = cases.flat_map(|case| case.flows().map(|flow| flow.bytes).collect::<Vec<_>>());
    FigureForm::Flows(sizes.min().unwrap_or_default())
}

fn compared(plan: &ValidationPlan, answers: &StackAnswers) -> Vec<Option<ComparedRow>> {
    let of = |stack: &str, query: &MachineQuery| -> Result<MachineAnswer, String> {
        let answer = answers.get(stack).and_then(|answers| answers.get(query));
        answer.cloned().unwrap_or_else(|| Err(format!("{query} was not asked")))
    };
    plan.compare_each(&of)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::table::read;
    use pathline_flow::{Network, RuntimeEnv};

    const ROWS: &str = "system,case,metric,value,unit\n\
        mi250x,gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB,bandwidth,50,GB/s\n\
        mi250x,gpu0.vram > gpu2.vram by dma@gpu0 x 1GiB,bandwidth,37,GB/s\n\
        mi250x,gpu0.vram > gpu2.vram by dma@gpu0 x 16B isolated,latency,9,us\n";

    fn physics(desc: &MachineDesc, plan: &ValidationPlan) -> Result<StackAnswers, String> {
        let of_stack = |stack: &str| -> Result<AnswerMap, String> {
            let desc = desc.with_stack(stack).map_err(|e| e.to_string())?;
            let network = Network::new(&desc, RuntimeEnv::default()).map_err(|e| e.to_string())?;
            let answer = |query: &MachineQuery| {
                let MachineQuery::Case(case) = query else { return Err("no case".to_owned()) };
                let time = network.durations(case).map_err(|e| e.to_string())?.set.typical;
                Ok(MachineAnswer::of_case(case.timed[0].bytes.as_f64() / time.0, time.0 / 1e3))
            };
            Ok(plan.queries_of(stack).into_iter().map(|q| (q.clone(), answer(q))).collect())
        };
        plan.stacks().into_iter().map(|stack| Ok((stack.to_owned(), of_stack(stack)?))).collect()
    }

    /// Over four links the engine decides (50.4 GB/s: slower by 30 % is slower by 30 %; faster still leaves
    /// the links, 4 x 50 x 0.75 = 150), over one link its packets do (37.6 of 50). Small copies are all
    /// start, so that no rate moves them; the matrix of starts holds the third row and none of the others.
    #[test]
    fn rows_hold_the_constants_that_decide_them() {
        let (name, text) = MachineDesc::presets()[0];
        let desc = MachineDesc::parse(name, text).unwrap();
        let plan = ValidationPlan::new(read(ROWS).unwrap(), &desc, &[]).unwrap();
        let keys = [
            "copy_engine.gbs",
            "fabric.engine.header_bytes",
            "migration",
            "stack.lumi-hip.time.copy_us_matrix",
        ];
        let keys = keys.map(str::to_owned);
        let report = find_sensitivity(&desc, text, &plan, &keys, &physics).unwrap();
        assert_eq!(report.rows, 3);
        let rows = |key: &str| {
            let of = report.constants.iter().find(|c| c.constant.key == key).unwrap();
            (of.rows(), (10.0 * of.largest).round() / 10.0)
        };
        assert_eq!(rows("copy_engine.gbs"), (1, 1.0), "{report:?}");
        assert_eq!(rows("fabric.engine.header_bytes").0, 1, "{report:?}");
        assert_eq!(rows("stack.lumi-hip.time.copy_us_matrix"), (1, 1.0), "{report:?}");
        assert!(report.unheld().any(|c| c.constant.key == "migration.fault_us"), "{report:?}");
        assert_eq!(report.held().len(), 3, "{report:?}");
    }

    /// The first row is the engine's constant, 50.4, and the third the start of its pair in the matrix; the
    /// second follows from packets, and would be no constant if it were met to the last digit. A start that the
    /// source has otherwise is no carried one.
    #[test]
    fn a_row_that_is_one_constant_is_carried() {
        let (name, text) = MachineDesc::presets()[0];
        let desc = MachineDesc::parse(name, text).unwrap();
        let head = "system,case,metric,value,unit\n";
        let rows = [
            "gpu0.vram > gpu1.vram by dma@gpu0 x 64GiB,bandwidth,50.4,GB/s",
            "gpu0.vram > gpu2.vram by dma@gpu0 x 64GiB,bandwidth,37.647,GB/s",
            "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated,latency,10.74,us",
            "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated,latency,11.5,us",
        ];
        let rows: String = rows.iter().map(|row| format!("mi250x,{row}\n")).collect();
        let plan =
            ValidationPlan::new(read(&format!("{head}{rows}")).unwrap(), &desc, &[]).unwrap();
        let answers = physics(&desc, &plan).unwrap();
        let carried = find_carried(&desc, text, &plan, &answers, &physics).unwrap();
        assert_eq!(carried, BTreeSet::from([0, 2]));
        let compared = compared(&plan.with_carried(carried), &answers);
        let met = |row: &Option<ComparedRow>| row.as_ref().unwrap().error().abs() < SAME_DIGITS;
        assert_eq!(compared.iter().map(met).collect::<Vec<_>>(), [true, true, true, false]);
    }
}
