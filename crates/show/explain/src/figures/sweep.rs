//! Bandwidth of selected paths over the size of the transfer.

use pathline_schema::{Bytes, Flow, KernelOp, MemKind, Mover, Place, SuiteId};
use pathline_stats::fit_line;

use super::pivot::GBS;
use super::{ChartLine, CurvesBody, SuiteFindings, frame, is_host, lines, mem_words};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Sweep;

/// The chart of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepChart {
    Host,
    Copies,
    Kernels,
}

impl SweepChart {
    const ALL: [(Self, &'static str, &'static str, &'static str); 3] = [
        (Self::Host, "sweep-host", "numa* > * by *", "Host memory and GPU"),
        (Self::Copies, "sweep-dma", "gpu*.vram > gpu*.vram by dma", "Runtime copies between GPUs"),
        (Self::Kernels, "sweep-kernel", "gpu*.vram > gpu*.vram by kernel", "Kernels between GPUs"),
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
    let end = |place: Place| match place.mem {
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
            let by = flow.by.label(engine);
            format!("{} to {}, {by}", end(flow.src), end(flow.dst))
        }
    }
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let entries: Vec<(&RunEntry, &Flow)> =
        run.suite(SUITE).filter_map(|e| Some((e, e.lone()?))).collect();
    let figure = |(of, id, cases, paths)| {
        let chosen = entries.iter().filter(|(_, f)| SweepChart::from_flow(f) == of);
        let points = chosen.map(|(entry, flow)| {
            (name(flow, entry.engine()), flow.bytes.as_f64(), run.cell(entry, Payload))
        });
        let lines = lines(points.filter(|(_, _, cell)| cell.value.is_some()));
        let curves = CurvesBody { ceilings: ceilings(&lines), ..CurvesBody::new("B", GBS, lines) };
        let title = format!("{paths}, by size of the transfer");
        let finding = finding(&curves.lines);
        frame(run, (SUITE, cases), id, title).finding(finding).draw_any(curves)
    };
    SuiteFindings::new(SweepChart::ALL.into_iter().filter_map(figure), [])
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
    let last = |l: &ChartLine| l.points.last().and_then(|(x, c)| Some((c.value?, *x)));
    let mut last: Vec<(&ChartLine, (f64, f64))> =
        lines.iter().filter_map(|l| Some((l, last(l)?))).collect();
    last.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let (Some((best, (rate, at))), Some((worst, least))) = (last.first(), last.last()) else {
        return String::new();
    };
    let size = |x: f64| Bytes(x as u64).rounded();
    let mut text = format!("At {} {} reaches {}", size(*at), best.name, fmt::gbs(*rate));
    if last.len() > 1 {
        text += &format!(", {} {}", worst.name, fmt::gbs(least.0));
    }
    text.push('.');
    // T(n) = alpha + n / beta, if it describes the path to within 5 %.
    let times: Vec<(f64, f64)> =
        best.points.iter().filter_map(|(x, c)| Some((*x, x / c.value?))).collect();
    if let Some(fit) = fit_line(&times).filter(|f| f.misfit < 0.05 && times.len() > 3) {
        let (us, rate) = (fmt::number(fit.alpha_ns / 1e3), fmt::gbs(fit.beta_gbs));
        let half = size(fit.half_size());
        text +=
            &format!(" The first fits {us} us + size / {rate}: half of its rate comes at {half}.");
    }
    text
}
