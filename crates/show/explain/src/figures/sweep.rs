//! Bandwidth of selected paths over the size of the transfer.

use pathline_schema::{Flow, KernelOp, MemKind, Mover, SuiteId};
use pathline_stats::fit_line;

use super::{
    BetterWhen, ChartLine, CurvesBody, Figure, SuiteFindings, frame, is_host, lines, mem_words,
    mover_words,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Sweep;

/// The chart of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepChart {
    Host,
    Copies,
    Kernels,
}

impl SweepChart {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Host, "sweep-host", "Host memory and GPU, by size of the transfer"),
        (Self::Copies, "sweep-dma", "Runtime copies between GPUs, by size of the transfer"),
        (Self::Kernels, "sweep-kernel", "Kernels between GPUs, by size of the transfer"),
    ];
    fn from_flow(flow: &Flow) -> Self {
        match flow.by {
            _ if is_host(flow.src.unit) || is_host(flow.dst.unit) => Self::Host,
            Mover::Kernel { .. } => Self::Kernels,
            _ => Self::Copies,
        }
    }
}

fn name(flow: &Flow, engine: &str) -> String {
    let end = |place: pathline_schema::Place| match place.mem {
        MemKind::Vram => place.unit.to_string(),
        mem => format!("{} {}", place.unit, mem_words(mem)),
    };
    match flow.by {
        Mover::Kernel { variant, .. } if variant.op == KernelOp::Read => {
            format!("{} reads {}", flow.by.at(), end(flow.src))
        }
        Mover::Kernel { variant, .. } if variant.op == KernelOp::Write => {
            format!("{} writes {}", flow.by.at(), end(flow.dst))
        }
        Mover::Migrate { .. } => format!("{} to {}, page migration", end(flow.src), flow.dst.unit),
        _ => {
            let by = mover_words(&flow.by, engine);
            format!("{} to {}, {by}", end(flow.src), end(flow.dst))
        }
    }
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let entries: Vec<(&RunEntry, &Flow)> =
        run.suite(SUITE).filter_map(|e| Some((e, e.lone()?))).collect();
    SweepChart::ALL
        .iter()
        .filter_map(|&(chart, id, title)| figure(run, &entries, chart, id, title))
        .collect()
}

fn figure(
    run: &RunView,
    entries: &[(&RunEntry, &Flow)],
    chart: SweepChart,
    id: &str,
    title: &str,
) -> Option<Figure> {
    let chosen = || entries.iter().filter(|(_, f)| SweepChart::from_flow(f) == chart);
    let points = chosen().map(|(entry, flow)| {
        let cell = run.cell(entry, CaseQuantity::Payload);
        (name(flow, entry.engine()), flow.bytes.as_f64(), cell)
    });
    let lines = lines(points.filter(|(_, _, cell)| cell.value.is_some()));
    if lines.is_empty() {
        return None;
    }
    let pattern = match chart {
        SweepChart::Host => "numa* > * by *",
        SweepChart::Copies => "gpu*.vram > gpu*.vram by dma",
        SweepChart::Kernels => "gpu*.vram > gpu*.vram by kernel",
    };
    Some(frame(run, (SUITE, pattern), id, title).finding(finding(&lines)).draw(CurvesBody {
        x_unit: "B".into(),
        y_unit: "GB/s".into(),
        ceilings: ceilings(&lines),
        lines,
        marks: Vec::new(),
        better: BetterWhen::Higher,
    }))
}

/// The peaks of the paths, without repetitions.
fn ceilings(lines: &[ChartLine]) -> Vec<(String, f64)> {
    let mut peaks: Vec<f64> = lines
        .iter()
        .filter_map(|l| l.points.iter().find_map(|(_, c)| c.ceiling))
        .filter(|p| p.is_finite())
        .collect();
    peaks.sort_by(f64::total_cmp);
    peaks.dedup_by(|a, b| (*a - *b).abs() < 0.005 * *b);
    peaks.into_iter().map(|p| (format!("peak {}", fmt::gbs(p)), p)).collect()
}

/// Fastest and slowest path at the largest size, and sizes at half of the rate.
fn finding(lines: &[ChartLine]) -> String {
    let mut last: Vec<(&ChartLine, f64, f64)> = lines
        .iter()
        .filter_map(|l| l.points.last().and_then(|(x, c)| Some((l, *x, c.value?))))
        .collect();
    last.sort_by(|a, b| b.2.total_cmp(&a.2));
    let (Some(best), Some(worst)) = (last.first(), last.last()) else { return String::new() };
    let size = |x: f64| pathline_schema::Bytes(x as u64).rounded();
    let mut text = format!("At {} {} reaches {}", size(best.1), best.0.name, fmt::gbs(best.2));
    if last.len() > 1 {
        text += &format!(", {} {}", worst.0.name, fmt::gbs(worst.2));
    }
    text.push('.');
    // T(n) = alpha + n / beta, if it describes the path to within 5 %.
    let times: Vec<(f64, f64)> =
        best.0.points.iter().filter_map(|(x, c)| Some((*x, x / c.value?))).collect();
    if let Some(fit) = fit_line(&times).filter(|f| f.misfit < 0.05 && times.len() > 3) {
        text += &format!(
            " The first fits {} us + size / {}: half of its rate comes at {}.",
            fmt::number(fit.alpha_ns / 1e3),
            fmt::gbs(fit.beta_gbs),
            size(fit.half_size())
        );
    }
    text
}
