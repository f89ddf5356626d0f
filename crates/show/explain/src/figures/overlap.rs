//! Copies concurrent with kernels of the same GPU: the remaining share of each rate.

use pathline_schema::{CopyAgent, Flow, KernelOp, Mover, SuiteId};

use super::pivot::{CellPivot, OF_ALONE, least};
use super::{Figure, FigureCell, SuiteFindings, distinct, end_name, frame, observed_engine};
use crate::fmt;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Overlap;

/// A concurrent copy and kernel, one of which is timed.
pub struct OverlapCell<'b, 'a> {
    /// The copy.
    pub copy: &'a Flow,
    /// The kernel.
    pub work: &'a Flow,
    /// Whether the copy is timed.
    pub of_copy: bool,
    /// The case.
    pub entry: &'b RunEntry<'a>,
    /// Remaining share of its rate alone, in percent.
    pub cell: FigureCell,
}

fn is_work(flow: &Flow) -> bool {
    let op = if let Mover::Kernel { variant, .. } = flow.by { Some(variant.op) } else { None };
    op.is_some_and(|op| op != KernelOp::Copy)
}

/// Whether a kernel computes and uses no memory.
pub(super) fn is_compute(flow: &Flow) -> bool {
    matches!(flow.by, Mover::Kernel { variant, .. } if variant.op == KernelOp::Fma)
}

/// Name of a kernel that computes and uses no memory.
pub const COMPUTE: &str = "compute";

/// Name of the kernel: `compute`, `triad`.
pub fn work_label(flow: &Flow) -> String {
    match flow.by {
        Mover::Kernel { .. } if is_compute(flow) => COMPUTE.into(),
        Mover::Kernel { variant, .. } => variant.op.word().into(),
        by => by.kind().into(),
    }
}

fn copy_label(flow: &Flow, engine: &str) -> String {
    let (from, to) = (end_name(flow.src.unit), end_name(flow.dst.unit));
    format!("{from} to {to}, {}", flow.by.label(engine))
}

/// The pairs of a copy and a kernel that suite `overlap` measured, in the order of the run.
pub fn kept<'b, 'a>(run: &'b RunView<'a>) -> Vec<OverlapCell<'b, 'a>> {
    run.suite(SUITE)
        .filter_map(|entry| {
            let (timed, background) = entry.one_during_one()?;
            let cell = super::kept(run, SUITE, entry, timed);
            let of_copy = is_work(background);
            let (copy, work) = if of_copy { (timed, background) } else { (background, timed) };
            Some(OverlapCell { copy, work, of_copy, entry, cell })
        })
        .collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let kept = kept(run);
    let sentence = sentence(&kept);
    let label = |copy: &Flow| copy_label(copy, copy.by.kind());
    let observed = observed_engine::sentence(&kept, &label);
    let finding: Vec<String> = sentence.iter().cloned().chain(observed).collect();
    SuiteFindings::new(figure(run, &kept, finding.join(" ")), [sentence])
}

fn figure(run: &RunView, kept: &[OverlapCell], finding: String) -> Option<Figure> {
    let timed = || kept.iter().filter(|b| b.of_copy);
    let label = |copy: &&Flow| {
        let first = timed().find(|b| b.copy == *copy);
        first.map_or(String::new(), |b| copy_label(b.copy, b.entry.engine()))
    };
    let name = |(work, of_copy): &(&Flow, bool)| match (work_label(work), *of_copy) {
        (work, true) => format!("copy during {work}"),
        (work, false) => format!("{work} during copy"),
    };
    let points = kept.iter().map(|b| (b.copy, (b.work, b.of_copy), b.cell.clone()));
    // Two columns per kernel: the remaining rate of the copy, and of the kernel.
    let works = distinct(timed().map(|b| b.work)).into_iter();
    let cols: Vec<(&Flow, bool)> = works.flat_map(|w| [(w, true), (w, false)]).collect();
    let pivot = CellPivot::new(points).with(&distinct(timed().map(|b| b.copy)), &cols);
    let matrix = pivot.matrix(("copy", label), ("what keeps its rate", name), OF_ALONE);
    let title = "Copies during kernels of the same GPU: what each keeps of its rate";
    frame(run, (SUITE, ""), SUITE.word(), title).finding(finding).draw_any(matrix)
}

/// The smallest remaining rate of a copy during a kernel, and of a kernel during a copy.
fn sentence(kept: &[OverlapCell]) -> Option<String> {
    // A setting of the user makes the runtime's copies blit kernels.
    let engine = |copy: &Flow| {
        let timed = kept.iter().find(|b| b.of_copy && b.copy == copy);
        let agent = timed.map_or(copy.by.facts().copy_agent, |b| b.entry.copy_agent());
        agent == Some(CopyAgent::Engine)
    };
    let worst = |by_engine: bool, of_copy: bool| {
        let fits = |b: &&OverlapCell| b.of_copy == of_copy && engine(b.copy) == by_engine;
        let found = kept.iter().filter(fits).filter_map(|b| Some((b.cell.value?, b.work)));
        least(found).map(|(value, work)| (work_label(work), fmt::percent(value / 100.0)))
    };
    let part = |name: &str, by_engine: bool| {
        let ((_, copy), (work, rest)) = (worst(by_engine, true)?, worst(by_engine, false)?);
        Some(format!("{name} keep {copy} of their rate, {work} keeps {rest}"))
    };
    let parts = [part("runtime copies", true), part("copies by kernels", false)];
    let parts = fmt::join_any(parts.into_iter().flatten(), "; ")?;
    Some(format!("Next to kernels of the same GPU, {parts} (worst case)."))
}
