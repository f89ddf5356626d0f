//! MPI between GPUs next to direct copies of the same pairs and sizes, by the agent that copies.

use pathline_schema::{Bytes, CopyAgent, Flow, MemKind, Mover, SuiteId, Transport, WireOp};

use super::pivot::CellPivot;
use super::{
    BetterWhen, Figure, FigureCell, SuiteFindings, extremes, frame, peer_bars, published_clause,
    sorted,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::MpiPeers;

/// What moves the bytes of a pair: a row of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerMover {
    /// MPI over the runtime as it was started.
    Mpi,
    /// MPI over copy engines.
    MpiEngine,
    /// The runtime's copy by a copy engine, issued at the source.
    DirectEngine,
    /// MPI over copy kernels.
    MpiBlit,
    /// The runtime's copy kernel at the source, whether asked for or set by the user.
    DirectBlit,
    /// A kernel at the destination that reads.
    DirectKernel,
}

impl PeerMover {
    fn from_entry(entry: &RunEntry, flow: &Flow) -> Option<Self> {
        match (flow.by, flow.by.wire().map(|wire| (wire.via, wire.agent))) {
            (_, Some((Transport::Mpi, agent))) => Some(match agent {
                None => Self::Mpi,
                Some(CopyAgent::Engine) => Self::MpiEngine,
                Some(CopyAgent::Kernel) => Self::MpiBlit,
            }),
            (Mover::Dma { .. }, _) => entry.copy_agent().map(|agent| match agent {
                CopyAgent::Engine => Self::DirectEngine,
                CopyAgent::Kernel => Self::DirectBlit,
            }),
            (Mover::Blit { .. }, _) => Some(Self::DirectBlit),
            (Mover::Kernel { .. }, _) => Some(Self::DirectKernel),
            _ => None,
        }
    }
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Mpi => "MPI",
            Self::MpiEngine => "MPI, copy engine",
            Self::DirectEngine => "copy, copy engine",
            Self::MpiBlit => "MPI, blit kernel",
            Self::DirectBlit => "copy, blit kernel",
            Self::DirectKernel => "copy, kernel reads",
        }
    }
    fn id(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::MpiEngine => "mpi-engine",
            Self::DirectEngine => "engine",
            Self::MpiBlit => "mpi-blit",
            Self::DirectBlit => "blit",
            Self::DirectKernel => "kernel",
        }
    }
    fn is_mpi(self) -> bool {
        matches!(self, Self::Mpi | Self::MpiEngine | Self::MpiBlit)
    }
}

/// A measured pair of GPUs.
pub(super) struct PeerValue<'b, 'a> {
    pub(super) by: PeerMover,
    from: u32,
    pub(super) to: u32,
    size: Bytes,
    pub(super) is_ping: bool,
    entry: &'b RunEntry<'a>,
}

impl PeerValue<'_, '_> {
    pub(super) fn is_mpi(&self) -> bool {
        self.by.is_mpi()
    }
    pub(super) fn cell(&self, run: &RunView) -> FigureCell {
        let quantity = if self.is_ping { CaseQuantity::StepUs } else { CaseQuantity::Payload };
        run.cell(self.entry, quantity)
    }
}

fn values<'b, 'a>(run: &'b RunView<'a>) -> Vec<PeerValue<'b, 'a>> {
    let value = |entry: &'b RunEntry<'a>| {
        let flow = entry.lone()?;
        let device = flow.src.mem == MemKind::Vram && flow.dst.mem == MemKind::Vram;
        Some(PeerValue {
            by: PeerMover::from_entry(entry, flow).filter(|_| device)?,
            from: run.node_gpu(flow.src)?,
            to: run.node_gpu(flow.dst)?,
            size: flow.bytes,
            is_ping: flow.by.wire().is_some_and(|wire| wire.op == WireOp::Ping),
            entry,
        })
    };
    run.suite(SUITE).filter_map(value).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all = values(run);
    let sources = sorted(all.iter().map(|v| v.from));
    let sizes = sorted(all.iter().map(|v| (v.size, v.is_ping)));
    let mut figures = Vec::new();
    for (size, is_ping) in sizes {
        let of_size: Vec<&PeerValue> =
            all.iter().filter(|v| (v.size, v.is_ping) == (size, is_ping)).collect();
        match sources.as_slice() {
            [source] => {
                let table = from_one(run, *source, size, &of_size);
                let bars =
                    table.as_ref().and_then(|t| peer_bars::figure(run, t, *source, &of_size));
                figures.extend(table.into_iter().chain(bars));
            }
            _ => {
                let movers = sorted(of_size.iter().map(|v| v.by));
                figures.extend(movers.into_iter().filter_map(|by| matrix(run, by, size, &of_size)));
            }
        }
    }
    SuiteFindings::new(figures, [sentence(run, &all)])
}

fn what(run: &RunView, size: Bytes, is_ping: bool) -> String {
    let library = run.library(Transport::Mpi);
    match is_ping {
        true => format!("{size} by {library} (osu_latency)"),
        false => format!("{size} by {library} (osu_bw) and by direct copies"),
    }
}

/// Rows are movers, columns the peers of the only source.
fn from_one(run: &RunView, source: u32, size: Bytes, all: &[&PeerValue<'_, '_>]) -> Option<Figure> {
    let is_ping = all.first()?.is_ping;
    let pivot = CellPivot::new(all.iter().map(|v| (v.by, v.to, v.cell(run)))).sorted();
    let body = pivot.matrix(
        ("by", |by| by.label().to_owned()),
        ("to", |to| format!("gpu{to}")),
        unit(is_ping),
    );
    let cells = || body.cells.iter().flatten();
    let finding = match is_ping {
        true => times(run, all),
        false => rates(run, all),
    };
    Some(
        frame(
            run,
            (SUITE, ""),
            format!("{SUITE}-{size}"),
            format!("From gpu{source}, {}", what(run, size, is_ping)),
        )
        .finding(format!("{finding}{}", published_clause(cells())))
        .draw(body),
    )
}

/// Every ordered pair, by one mover.
fn matrix(run: &RunView, by: PeerMover, size: Bytes, all: &[&PeerValue<'_, '_>]) -> Option<Figure> {
    let chosen: Vec<&&PeerValue> = all.iter().filter(|v| v.by == by).collect();
    let is_ping = chosen.first()?.is_ping;
    let gpus = sorted(chosen.iter().flat_map(|v| [v.from, v.to]));
    let pivot = CellPivot::over(&gpus, chosen.iter().map(|v| (v.from, v.to, v.cell(run))));
    let (unit, better) = unit(is_ping);
    let body = pivot.matrix(("from", u32::to_string), ("to", u32::to_string), (unit, better));
    let measured = super::values(body.cells.iter().flatten());
    let (low, high) = extremes(&measured);
    let pairs = fmt::count(measured.len(), "pair");
    let clause = published_clause(body.cells.iter().flatten());
    Some(
        frame(
            run,
            (SUITE, ""),
            format!("{SUITE}-{size}-{}", by.id()),
            format!("{}, every pair: {}", by.label(), what(run, size, is_ping)),
        )
        .finding(format!("{} {unit} over {pairs}.{clause}", fmt::range(low, high)))
        .draw(body),
    )
}

fn unit(is_ping: bool) -> (&'static str, BetterWhen) {
    if is_ping { ("us", BetterWhen::Lower) } else { ("GB/s", BetterWhen::Higher) }
}

/// Values of one mover, and their range.
fn range_of(run: &RunView, all: &[&PeerValue<'_, '_>], by: PeerMover) -> Option<String> {
    let of_mover = all.iter().filter(|v| v.by == by);
    let values: Vec<f64> = of_mover.filter_map(|v| v.cell(run).value).collect();
    let (low, high) = extremes(&values);
    (!values.is_empty()).then(|| fmt::range(low, high))
}

fn times(run: &RunView, all: &[&PeerValue<'_, '_>]) -> String {
    let movers = sorted(all.iter().map(|v| v.by));
    let one = |by: PeerMover| Some(format!("{} {} us", by.label(), range_of(run, all, by)?));
    let texts: Vec<String> = movers.into_iter().filter_map(one).collect();
    if texts.is_empty() { String::new() } else { format!("{}.", fmt::list(&texts)) }
}

/// Ratios of one mover to another over the pairs that both have, ascending.
fn ratios(
    run: &RunView,
    all: &[&PeerValue<'_, '_>],
    of: PeerMover,
    to: PeerMover,
) -> Option<(f64, f64)> {
    let ratio = |value: &&PeerValue| {
        let same = |v: &&&PeerValue| v.by == to && (v.from, v.to) == (value.from, value.to);
        let base = all.iter().find(same)?.cell(run).value?;
        Some(value.cell(run).value? / base)
    };
    let all: Vec<f64> = all.iter().filter(|v| v.by == of).filter_map(ratio).collect();
    (!all.is_empty()).then(|| extremes(&all))
}

/// `90 %`, `90 to 98 %`.
pub(super) fn shares((low, high): (f64, f64)) -> String {
    let (least, most) = (fmt::percent(low), fmt::percent(high));
    match least == most {
        true => most,
        false => format!("{} to {most}", least.trim_end_matches(" %")),
    }
}

/// Each MPI compared with the direct copy by the same agent, and with a kernel that reads.
fn rates(run: &RunView, all: &[&PeerValue<'_, '_>]) -> String {
    let mut texts = Vec::new();
    for by in sorted(all.iter().map(|v| v.by)).into_iter().filter(|by| by.is_mpi()) {
        let Some(range) = range_of(run, all, by) else { continue };
        let direct = match by {
            PeerMover::MpiBlit => PeerMover::DirectBlit,
            _ => PeerMover::DirectEngine,
        };
        let compared: Vec<String> = [direct, PeerMover::DirectKernel]
            .into_iter()
            .filter_map(|direct| {
                let share = shares(ratios(run, all, by, direct)?);
                Some(format!("{share} of a {}", direct.label().replacen("copy, ", "copy by ", 1)))
            })
            .collect();
        let compared = match compared.is_empty() {
            true => String::new(),
            false => format!(", {}", fmt::list(&compared)),
        };
        texts.push(format!("{} reaches {range} GB/s{compared}.", by.label()));
    }
    texts.join(" ")
}

/// The largest size in one sentence, and the setting that decides.
fn sentence(run: &RunView, all: &[PeerValue<'_, '_>]) -> Option<String> {
    let size = all.iter().filter(|v| !v.is_ping).map(|v| v.size).max()?;
    let of_size: Vec<&PeerValue> = all.iter().filter(|v| !v.is_ping && v.size == size).collect();
    let engine = range_of(run, &of_size, PeerMover::MpiEngine)?;
    let blit = range_of(run, &of_size, PeerMover::MpiBlit)?;
    let (low, high) = ratios(run, &of_size, PeerMover::MpiBlit, PeerMover::MpiEngine)?;
    let below = ratios(run, &of_size, PeerMover::MpiBlit, PeerMover::DirectKernel);
    let below = below.map_or(String::new(), |(low, high)| {
        let less = shares((1.0 - high, 1.0 - low));
        format!(", {less} below direct kernel reads")
    });
    let blits = of_size.iter().filter(|v| v.by == PeerMover::MpiBlit);
    let peaks: Vec<f64> = blits.filter_map(|v| v.cell(run).share_of_ceiling()).collect();
    let of_peak = match peaks.is_empty() {
        true => String::new(),
        false => format!(
            ", {} of the links' peak: expect that share of any link",
            shares(extremes(&peaks))
        ),
    };
    Some(format!(
        "{} between GPUs at {size}: {engine} GB/s by copy engine; {blit} by blit kernels ({} times), \
         which is{below}{of_peak}.",
        run.library(Transport::Mpi),
        fmt::range(low, high)
    )
    .replace("which is,", "which is"))
}
