//! Each GPU's own memory.

use pathline_schema::{KernelOp, Mover, SuiteId};

use super::{
    BarsBody, BetterWhen, Figure, FigureBar, FigureBody, FigureCell, SuiteFindings, grid,
    published_clause, shares, values,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Local;

/// Operations on a GPU's own memory, in display order.
const OPERATIONS: [(&str, Option<KernelOp>); 5] = [
    ("copy, runtime", None),
    ("copy, kernel", Some(KernelOp::Copy)),
    ("read", Some(KernelOp::Read)),
    ("write", Some(KernelOp::Write)),
    ("triad", Some(KernelOp::Triad)),
];

/// The GPU and the operation of a flow inside one GPU; `None` for the runtime's copy.
fn path(entry: &RunEntry) -> Option<(u32, Option<KernelOp>)> {
    let flow = entry.lone()?;
    let at = flow.by.at();
    let op = match flow.by {
        Mover::Dma { .. } => None,
        Mover::Kernel { variant, .. } => Some(variant.op),
        _ => return None,
    };
    (flow.src.unit == at && flow.dst.unit == at).then_some((at.gpu()?, op))
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let entries: Vec<(&RunEntry, (u32, Option<KernelOp>))> =
        run.suite(SUITE).filter_map(|e| Some((e, path(e)?))).collect();
    let gpus = run.gpus(entries.iter().map(|(e, _)| *e));
    let find = |g: u32, op: Option<KernelOp>, quantity| {
        let found = entries.iter().find(|(_, w)| *w == (g, op));
        found.map(|(e, _)| run.cell(e, quantity)).unwrap_or_default()
    };
    let mut figures = Vec::new();
    if let Some(&first) = gpus.first() {
        figures.extend(bars(run, first, gpus.len(), |op| find(first, op, CaseQuantity::Traffic)));
        if gpus.len() > 1 {
            figures.push(matrix(run, &gpus, |g, op| find(g, op, CaseQuantity::Traffic)));
        }
        figures
            .extend(latency(run, &gpus, |g| find(g, Some(KernelOp::Chase), CaseQuantity::StepNs)));
    }
    figures
}

fn bars(
    run: &RunView,
    gpu: u32,
    gpus: usize,
    cell: impl Fn(Option<KernelOp>) -> FigureCell,
) -> Option<Figure> {
    let bars: Vec<FigureBar> = OPERATIONS
        .iter()
        .map(|&(label, op)| FigureBar { label: label.into(), cell: cell(op) })
        .filter(|b| b.cell.case.is_some())
        .collect();
    let best =
        bars.iter().filter_map(|b| Some((b, b.cell.value?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = if gpus > 1 { format!(", as one of {gpus}") } else { String::new() };
    Some(Figure {
        id: "local-bars".into(),
        suite: SUITE.into(),
        title: format!("The memory of gpu{gpu}{others}: read + written"),
        finding: format!(
            "{} is the fastest with {}{}. Read and written bytes both count here, so a copy shows twice its payload.{}",
            fmt::sentence(&best.0.label),
            fmt::gbs(best.1),
            shares(std::iter::once(&best.0.cell)),
            published_clause(bars.iter().map(|b| &b.cell)),
        ),
        command: run.command(SUITE, &format!("gpu{gpu}.* > gpu{gpu}.* by *@gpu{gpu}*")),
        body: FigureBody::Bars(BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher }),
    })
}

fn matrix(
    run: &RunView,
    gpus: &[u32],
    cell: impl Fn(u32, Option<KernelOp>) -> FigureCell,
) -> Figure {
    let matrix = grid(
        ("operation", &OPERATIONS),
        ("GPU", gpus),
        ("GB/s", BetterWhen::Higher),
        (|w: (&str, _)| w.0.to_owned(), |g: u32| g.to_string()),
        |(_, op), g| cell(g, op),
    );
    // The GPUs are expected to be equal: names the operation in which they differ most.
    let spread = matrix.cells.iter().zip(OPERATIONS).filter_map(|(row, (name, _))| {
        let (low, high) = super::extremes(&values(row.iter()));
        (low > 0.0 && high.is_finite()).then(|| (name, high / low - 1.0))
    });
    let finding =
        spread.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(String::new(), |(name, apart)| {
            format!("The GPUs differ by {} at most ({name}).", fmt::percent(apart))
        });
    let published = published_clause(matrix.cells.iter().flatten());
    Figure {
        id: "local".into(),
        suite: SUITE.into(),
        title: "Local memory of every GPU: read + written".into(),
        finding: format!("{finding}{published}"),
        command: run.command(SUITE, ""),
        body: FigureBody::Matrix(matrix),
    }
}

fn latency(run: &RunView, gpus: &[u32], cell: impl Fn(u32) -> FigureCell) -> Option<Figure> {
    let bars: Vec<FigureBar> = gpus
        .iter()
        .map(|&g| FigureBar { label: format!("gpu{g}"), cell: cell(g) })
        .filter(|b| b.cell.case.is_some())
        .collect();
    let values = values(bars.iter().map(|b| &b.cell));
    let (low, high) = super::extremes(&values);
    (!bars.is_empty()).then(|| Figure {
        id: "local-latency".into(),
        suite: SUITE.into(),
        title: "Latency of a dependent load from local memory".into(),
        finding: if values.is_empty() {
            String::new()
        } else {
            format!("{} ns a load.", fmt::range(low, high))
        },
        command: run.command(SUITE, "gpu*.vram > gpu*.reg by kernel@*[chase-*]"),
        body: FigureBody::Bars(BarsBody { unit: "ns".into(), bars, better: BetterWhen::Lower }),
    })
}
