//! Copies over several paths next to the plain copies that they replace.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, Case, CopyAgent, Flow, Mover, Place, SuiteId};

use super::pivot::{CellPivot, most};
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, distinct, end_name, frame, is_precise};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Multipath;

/// The payload of which a sentence states the time: the weights of a model of 32 billion parameters in 16 bits.
const MODEL_GB: f64 = 64.0;

/// What copies have in common that are compared with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTask {
    /// Where the bytes come from.
    pub src: Place,
    /// Where they go to; of several GPUs the first.
    pub dst: Place,
    /// Number of GPUs that get them; 0 if they go to the host.
    pub gpus: usize,
    /// Payload.
    pub bytes: Bytes,
}

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMethod {
    /// The runtime's copy; to several GPUs, as many at once.
    Plain(CopyAgent),
    /// Over this many relays, or to all.
    Several(u32, CopyAgent),
}

/// A result of the suite.
pub struct MultipathCell<'b, 'a> {
    /// What is compared.
    pub task: PathTask,
    /// How.
    pub method: PathMethod,
    /// The case.
    pub entry: &'b RunEntry<'a>,
    /// GB/s into each destination.
    pub cell: FigureCell,
}

impl PathTask {
    /// The task and the method of a case; none if the suite has no such case.
    pub fn of(case: &Case) -> Option<(Self, PathMethod)> {
        let flow = case.timed.first().filter(|_| case.background.is_empty())?;
        let Flow { src, dst, by, bytes } = *flow;
        let same =
            |other: &Flow| other.src == src && other.bytes == bytes && other.by.kind() == by.kind();
        let one = usize::from(dst.unit.gpu().is_some());
        let (gpus, method) = match by {
            Mover::Relay { paths, .. } => (one, PathMethod::Several(paths.gpus.len(), paths.agent)),
            Mover::CopyToAll { paths, .. } => {
                let others = paths.gpus.len();
                (1 + others as usize, PathMethod::Several(others, paths.agent))
            }
            Mover::Dma { .. } if case.timed.iter().all(same) => {
                let to: BTreeSet<Place> = case.timed.iter().map(|flow| flow.dst).collect();
                if to.len() < case.timed.len() {
                    return None;
                }
                (one * to.len(), PathMethod::Plain(CopyAgent::Engine))
            }
            Mover::Blit { .. } if case.timed.len() == 1 => {
                (one, PathMethod::Plain(CopyAgent::Kernel))
            }
            _ => return None,
        };
        Some((Self { src, dst, gpus, bytes }, method))
    }

    /// `host to gpu0, 1GiB`
    pub fn label(&self) -> String {
        format!("{}, {}", self.ends(), self.bytes)
    }

    /// `host to gpu0`
    pub fn ends(&self) -> String {
        let to = match self.gpus {
            0 | 1 => end_name(self.dst.unit),
            gpus => format!("{gpus} GPUs, the same bytes"),
        };
        format!("{} to {to}", end_name(self.src.unit))
    }
}

impl PathMethod {
    fn label(self) -> String {
        let by = |agent| if agent == CopyAgent::Kernel { ", blit" } else { "" };
        match self {
            Self::Plain(agent) => format!("plain{}", by(agent)),
            Self::Several(1, agent) => format!("1 more GPU{}", by(agent)),
            Self::Several(gpus, agent) => format!("{gpus} more GPUs{}", by(agent)),
        }
    }
}

/// The copies that suite `multipath` measured, in the order of the run.
pub fn copies<'b, 'a>(run: &'b RunView<'a>) -> Vec<MultipathCell<'b, 'a>> {
    let copy = |entry: &'b RunEntry<'a>| {
        let (task, method) = PathTask::of(entry.case)?;
        // The sum of plain copies to several GPUs is shared by them.
        let each = 1.0 / entry.case.timed.len().max(1) as f64;
        let cell = run.cell(entry, Payload).scaled(each);
        let [ceiling, bound] = [cell.ceiling, cell.bound].map(|limit| limit.map(|l| l * each));
        Some(MultipathCell { task, method, entry, cell: FigureCell { ceiling, bound, ..cell } })
    };
    run.suite(SUITE).filter_map(copy).collect()
}

/// Of the same task, the fastest plain copy and the fastest over several paths.
pub fn best<'c, 'b, 'a>(
    copies: &'c [MultipathCell<'b, 'a>],
    task: &PathTask,
) -> Option<(&'c MultipathCell<'b, 'a>, &'c MultipathCell<'b, 'a>)> {
    let fastest = |is_plain: bool| {
        let of_task = copies.iter().filter(|copy| copy.task == *task);
        let of_kind =
            of_task.filter(|copy| matches!(copy.method, PathMethod::Plain(_)) == is_plain);
        most(of_kind.filter_map(|copy| Some((copy.cell.value?, copy)))).map(|found| found.1)
    };
    Some((fastest(true)?, fastest(false)?))
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let copies = copies(run);
    let sentence = sentence(&copies);
    let figures = figures(run, &copies, sentence.as_deref().unwrap_or_default());
    SuiteFindings::new(figures.into_iter().flatten(), [sentence])
}

fn figures(run: &RunView, copies: &[MultipathCell], finding: &str) -> [Option<Figure>; 2] {
    let point = |copy: &MultipathCell| (copy.task.clone(), copy.method, copy.cell.clone());
    let rates = CellPivot::new(copies.iter().map(point)).sorted_cols();
    let gain = |copy: &MultipathCell| {
        let plain = rates.cell(&copy.task, &PathMethod::Plain(CopyAgent::Engine)).value;
        let gain = copy.cell.value.zip(plain).map(|(value, plain)| value / plain);
        let cell = copy.cell.clone().in_proportion(gain);
        (copy.task.clone(), copy.method, FigureCell { path: None, ..cell })
    };
    let gains = CellPivot::new(copies.iter().map(gain)).sorted_cols();
    let figure = |id, what, unit, pivot: &CellPivot<PathTask, PathMethod>| {
        let label = |method: &PathMethod| method.label();
        let matrix =
            pivot.matrix(("copy", PathTask::label), ("over", label), (unit, BetterWhen::Higher));
        let title = format!("Copies over several paths: {what}");
        frame(run, (SUITE, ""), id, title).finding(finding).draw_any(matrix)
    };
    [
        figure("multipath", "GB/s into each destination", "GB/s", &rates),
        figure("multipath-gain", "times the runtime's plain copy", "x plain", &gains),
    ]
}

/// Time of a model's weights at a rate, in seconds.
pub fn model_seconds(gbs: f64) -> String {
    format!("{} s", fmt::number(MODEL_GB / gbs))
}

/// `64 GB to all 8 GPUs: 0.38 s instead of 2.8 s.`, for the task with the greatest gain in each of: one GPU, and
/// several.
fn sentence(copies: &[MultipathCell]) -> Option<String> {
    let tasks = distinct(copies.iter().map(|copy| copy.task.clone()));
    let gain = |several: bool| {
        let of = tasks.iter().filter(|task| (task.gpus > 1) == several);
        let pairs = of.filter_map(|task| best(copies, task));
        let precise = pairs.filter(|(a, b)| is_precise(&a.cell) && is_precise(&b.cell));
        let rates = precise.filter_map(|(plain, over)| {
            let (slow, fast) = (plain.cell.value?, over.cell.value?);
            Some((fast / slow, (slow, fast, &over.task)))
        });
        let (_, (slow, fast, task)) = most(rates)?;
        let what = match task.gpus {
            0 | 1 => task.label(),
            gpus => format!("the same bytes to {gpus} GPUs, {}", task.bytes),
        };
        if fast < slow * 1.05 {
            return Some(format!("{what}: no gain ({} plain)", fmt::gbs(slow)));
        }
        let [short, long] = [fast, slow].map(model_seconds);
        let (fast, slow) = (fmt::gbs(fast), fmt::number(slow));
        Some(format!(
            "{what}: {fast} over several paths, {slow} plain, so {MODEL_GB:.0} GB take {short} instead of \
             {long}"
        ))
    };
    let parts = fmt::join_any([gain(true), gain(false)].into_iter().flatten(), "; ")?;
    Some(format!("{}.", fmt::sentence(&parts)))
}
