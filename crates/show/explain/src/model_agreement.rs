//! Compares predicted durations of sets of flows with measured ones.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{EngineOrders, Network, PredictionTrust, SetDurations, SetPredictor};
use pathline_published::RowValue;
use pathline_published::score::{ClassErrors, ComparedRow, summary as sum_up};
use pathline_schema::{Bytes, Case, Flow, Gpu, Journal, MeasuredCase, Ns};

use crate::fmt;
use crate::measured_cases::measured;

/// Smaller flows are skipped: start-up cost dominates their time, which a rate does not describe.
const MIN_BYTES: Bytes = Bytes::mib(1);
/// Classes of sets by number of flows: minimum, maximum, name.
const BY_FLOWS: [(usize, usize, &str); 4] =
    [(1, 1, "1 flow"), (2, 2, "2 flows"), (3, 4, "3 or 4 flows"), (5, 8, "5 to 8 flows")];
/// Name of the class of larger sets.
const MANY: &str = "9 and more flows";

/// Composition of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgreementKind {
    /// One flow.
    Alone,
    /// Flows between host and GPUs only.
    Host,
    /// Flows between or inside GPUs only.
    Device,
    /// Flows of both kinds.
    Mixed,
    /// An engine has several flows, which it serves one after the other.
    Queued,
}

impl AgreementKind {
    /// Display text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Host => "host with GPUs",
            Self::Device => "GPUs",
            Self::Mixed => "mixed",
            Self::Queued => "several of an engine",
        }
    }

    fn classify(case: &Case, orders: EngineOrders) -> Self {
        let on_host = |flow: &Flow| [flow.src, flow.dst].iter().any(|p| p.unit.numa().is_some());
        let host = case.flows().filter(|flow| on_host(flow)).count();
        let all = case.flows().count();
        match host {
            _ if all == 1 => Self::Alone,
            _ if orders.possible > 1 => Self::Queued,
            0 => Self::Device,
            n if n == all => Self::Host,
            _ => Self::Mixed,
        }
    }
}

/// One set, predicted and measured.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreementSet {
    /// The measured case.
    pub case: Case,
    /// Composition.
    pub kind: AgreementKind,
    /// The prediction.
    pub predicted: SetDurations,
    /// Time from the start to the last end for one repetition, median over the samples.
    pub measured: Ns,
    /// Time to the end of each flow, median over the samples.
    pub flows: Vec<Ns>,
    /// Predicted duration, over all tried orders of the flows the nearest to the measured one.
    pub nearest: Ns,
}

impl AgreementSet {
    /// Whether the measured duration is in the predicted interval.
    pub fn inside(&self) -> bool {
        let set = self.predicted.set;
        set.low <= self.measured && self.measured <= set.high
    }
    /// Relative error of the prediction, with sign.
    pub fn error(&self) -> f64 {
        self.predicted.set.typical.0 / self.measured.0 - 1.0
    }

    /// Limits of its flows, without repetitions.
    pub fn bounds(&self) -> String {
        let flows = self.predicted.flows.iter();
        let all: BTreeSet<&str> = flows.map(|f| f.bound_by.as_str()).collect();
        all.into_iter().collect::<Vec<_>>().join("; ")
    }

    fn compared(&self, class: &str) -> ComparedRow {
        ComparedRow {
            label: self.case.to_string(),
            class: class.to_owned(),
            predicted: self.predicted.set.typical.0 / 1e3,
            measured: RowValue::exactly(self.measured.0 / 1e3),
            unit: "us".to_owned(),
            source: String::new(),
            how: self.bounds(),
            targets: Vec::new(),
            data: false,
            held_out: false,
        }
    }

    fn flow_errors(&self) -> impl Iterator<Item = ComparedRow> + '_ {
        let flows = self.predicted.flows.iter().zip(&self.flows).zip(&self.case.timed);
        flows.map(|((predicted, measured), flow)| ComparedRow {
            label: format!("{flow} in {}", self.case),
            predicted: predicted.time.typical.0 / 1e3,
            measured: RowValue::exactly(measured.0 / 1e3),
            ..self.compared("")
        })
    }
}

/// Accuracy of the predictions for a class of sets.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreementClass {
    /// Errors of the sets' durations.
    pub sets: ClassErrors,
    /// Errors of the flows' durations.
    pub flows: Option<ClassErrors>,
    /// Share of the sets whose duration is in the predicted interval; `None` if the machine states
    /// none.
    pub inside: Option<f64>,
}

/// A run compared with a machine description.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAgreement {
    /// Name of the machine.
    pub machine: String,
    /// Source of its figures, if it was measured.
    pub from: String,
    /// All predicted sets, in descending order of error.
    pub sets: Vec<AgreementSet>,
    /// Classes by composition.
    pub kinds: Vec<AgreementClass>,
    /// Classes by number of flows, for sets with at most one flow per engine.
    pub sizes: Vec<AgreementClass>,
    /// All sets of several flows with at most one per engine.
    pub known: Option<AgreementClass>,
    /// Cases without prediction, with reasons.
    pub left_out: Vec<(Case, String)>,
    /// Number of cases skipped because the description was made from them.
    pub seen: usize,
    /// The constants that decide each of the first sets; empty where a description states no origins.
    pub trust: Vec<PredictionTrust>,
}

/// Why a run cannot be compared with a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgreementError {
    /// The run is from another node. A run of fewer GPUs is of a part of a modelled node.
    #[error("the run is of a node of {run} and {machine} has {described}: another node")]
    OtherNode {
        /// GPUs of the run: `8 x AMD Instinct MI250X`.
        run: String,
        /// The machine's name.
        machine: String,
        /// GPUs of its description.
        described: String,
    },
    /// No case can be predicted.
    #[error("no case of the run can be predicted{}", why.as_ref().map_or_else(String::new, |w| format!("; the first: {w}")))]
    Nothing {
        /// Reason of the first case.
        why: Option<String>,
    },
}

/// Predicts every case of `journal` that moves bytes, except cases also in `seen`. With `any_order`
/// engines may have served flows in any order, as in runs before copies of one engine were
/// serialised. `described` are the GPUs of the description; a run may have fewer of the same kind, unless
/// the description is a twin.
///
/// # Errors
/// The run is from another node, or no case can be predicted.
pub fn compare_run(
    machine: &str,
    network: &Network,
    described: &[Gpu],
    journal: &Journal,
    seen: &[Journal],
    any_order: bool,
) -> Result<ModelAgreement, AgreementError> {
    let gpus = &journal.topology.gpus;
    let (run, count) = (gpus.len(), described.len());
    // A twin has the paths of one node; any GPUs of a modelled node are as good as its first ones.
    // An H100 and an H200 have one architecture, and other memory.
    let is_near = |a: f64, b: f64| a == 0.0 || b == 0.0 || (a / b - 1.0).abs() < 0.1;
    let is_alike = |a: &Gpu, b: &Gpu| {
        a.arch == b.arch
            && is_near(a.compute_units.into(), b.compute_units.into())
            && is_near(a.memory.as_f64(), b.memory.as_f64())
    };
    let same_kind = gpus.iter().zip(described).all(|(a, b)| is_alike(a, b));
    let is_slice = run < count && network.measured().paths.is_empty();
    if !same_kind || (run != count && !is_slice) {
        let name = |gpus: &[Gpu]| {
            let first = gpus.first().map_or("GPUs", |gpu| &gpu.name);
            format!("{} x {first}", gpus.len())
        };
        let (run, described) = (name(gpus), name(described));
        return Err(AgreementError::OtherNode { run, machine: machine.to_owned(), described });
    }
    let known: BTreeSet<Vec<Flow>> = seen.iter().flat_map(measured).map(|m| key(&m.case)).collect();
    let mut predictor = SetPredictor::new(network);
    if any_order {
        predictor = predictor.any_order();
    }
    let (mut sets, mut left_out, mut skipped) = (Vec::new(), Vec::new(), 0);
    for m in measured(journal).filter(|m| moves_bytes(&m.case)) {
        if known.contains(&key(&m.case)) {
            skipped += 1;
            continue;
        }
        match set(&mut predictor, m) {
            Ok(set) => sets.push(set),
            Err(why) => left_out.push((m.case.clone(), why)),
        }
    }
    if sets.is_empty() {
        return Err(AgreementError::Nothing {
            why: left_out.into_iter().next().map(|(_, why)| why),
        });
    }
    sets.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    let kinds = [
        AgreementKind::Alone,
        AgreementKind::Host,
        AgreementKind::Device,
        AgreementKind::Mixed,
        AgreementKind::Queued,
    ];
    let kinds = kinds.iter().filter_map(|k| class(k.name(), sets.iter().filter(|s| s.kind == *k)));
    let known = || sets.iter().filter(|s| s.kind != AgreementKind::Queued);
    let names = BY_FLOWS.iter().map(|&(.., name)| name).chain([MANY]);
    let sizes = names.filter_map(|name| class(name, known().filter(|s| by_flows(&s.case) == name)));
    Ok(ModelAgreement {
        machine: machine.to_owned(),
        from: network.measured().from.clone(),
        kinds: kinds.collect(),
        sizes: sizes.collect(),
        known: class(
            "sets, one flow an engine",
            known().filter(|s| s.kind != AgreementKind::Alone),
        ),
        sets,
        left_out,
        seen: skipped,
        trust: Vec::new(),
    })
}

fn by_flows(case: &Case) -> &'static str {
    let n = case.flows().count();
    BY_FLOWS.iter().find(|(low, high, _)| (*low..=*high).contains(&n)).map_or(MANY, |row| row.2)
}

fn class<'a>(
    name: &str,
    sets: impl Iterator<Item = &'a AgreementSet> + Clone,
) -> Option<AgreementClass> {
    let compared: Vec<ComparedRow> = sets.clone().map(|s| s.compared(name)).collect();
    let flows: Vec<ComparedRow> = sets.clone().flat_map(AgreementSet::flow_errors).collect();
    let judged = sets.clone().filter(|s| s.predicted.uncertainty.any());
    let (inside, all) =
        judged.fold((0, 0), |(inside, all), s| (inside + usize::from(s.inside()), all + 1));
    Some(AgreementClass {
        sets: sum_up(name, &compared)?,
        flows: sum_up(name, &flows),
        inside: (all > 0).then(|| inside as f64 / all as f64),
    })
}

/// Whether the case moves enough bytes.
fn moves_bytes(case: &Case) -> bool {
    case.flows().all(|flow| flow.by.has_rate() && flow.bytes >= MIN_BYTES)
}

/// The same set in a canonical order.
fn key(case: &Case) -> Vec<Flow> {
    let mut flows: Vec<Flow> = case.flows().copied().collect();
    flows.sort_unstable();
    flows
}

fn set(predictor: &mut SetPredictor<'_>, m: &MeasuredCase) -> Result<AgreementSet, String> {
    let case = &m.case;
    let predicted = predictor.durations(case).map_err(|why| why.to_string())?;
    let each = |s: &pathline_schema::FlowSeries| -> Vec<f64> {
        s.samples_ns.iter().map(|ns| ns / s.reps.max(1) as f64).collect()
    };
    let samples: Vec<Vec<f64>> = m.series.iter().map(each).collect();
    let n = samples.iter().map(Vec::len).min().unwrap_or(0);
    if n == 0 || samples.len() != case.timed.len() {
        return Err("it has no samples of every flow".to_owned());
    }
    let last = |k: usize| samples.iter().filter_map(|s| s.get(k).copied()).fold(0.0, f64::max);
    let ends: Vec<f64> = (0..n).map(last).collect();
    let middle = |samples: &[f64]| pathline_stats::SeriesSummary::of(samples).map(|s| s.median);
    let measured = middle(&ends).filter(|ns| *ns > 0.0);
    let measured = measured.ok_or_else(|| "its samples are no times".to_owned())?;
    let mut nearest = f64::INFINITY;
    let far = |end: f64| (end / measured).ln().abs();
    let orders = predictor
        .each_order(case, |ends| {
            let last = ends.iter().copied().fold(0.0, f64::max);
            if far(last) < far(nearest) {
                nearest = last;
            }
        })
        .map_err(|why| why.to_string())?;
    Ok(AgreementSet {
        case: case.clone(),
        kind: AgreementKind::classify(case, orders),
        predicted,
        measured: Ns(measured),
        flows: samples.iter().map(|s| Ns(middle(s).unwrap_or(f64::NAN))).collect(),
        nearest: Ns(nearest),
    })
}

impl ModelAgreement {
    /// The comparison in a sentence.
    pub fn lead(&self) -> String {
        let mut text = fmt::count(self.sets.len(), "set");
        if !self.left_out.is_empty() {
            text += &format!(", {} left out", self.left_out.len());
        }
        if self.seen > 0 {
            let seen = fmt::count(self.seen, "case");
            text += &format!("; {seen} not counted, which the description was made from");
        }
        if !self.from.is_empty() {
            text += &format!(". The description is from {}", self.from);
        }
        text + ". Durations in us, from the common start to the last end; medians."
    }

    /// Reasons for skipped cases: number of cases for each, the most frequent first.
    pub fn reasons(&self) -> Vec<(String, usize)> {
        let mut by: BTreeMap<&str, (String, usize)> = BTreeMap::new();
        for (_, why) in &self.left_out {
            // Only the names differ from case to case.
            let matter = why.split(':').next().unwrap_or(why);
            by.entry(matter).or_insert_with(|| (why.clone(), 0)).1 += 1;
        }
        let mut reasons: Vec<(String, usize)> = by.into_values().collect();
        reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        reasons
    }

    /// All sets as scores, for pictures.
    pub fn compared(&self) -> Vec<ComparedRow> {
        self.sets.iter().map(|s| s.compared(s.kind.name())).collect()
    }
}
