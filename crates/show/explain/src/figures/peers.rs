//! MPI between GPUs next to direct copies of the same pairs and sizes, by the agent that copies.

use pathline_schema::{Bytes, CopyAgent, Flow, MemKind, Mover, SuiteId, Transport, WireOp};

use super::pivot::{CellPivot, CellUnit, GBS, US};
use super::{
    Figure, FigureCell, SuiteFindings, extremes, frame, peer_bars, published_clause, sorted,
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
    /// Its part of a figure's anchor, and its label.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Mpi => ("mpi", "MPI"),
            Self::MpiEngine => ("mpi-engine", "MPI, copy engine"),
            Self::DirectEngine => ("engine", "copy, copy engine"),
            Self::MpiBlit => ("mpi-blit", "MPI, blit kernel"),
            Self::DirectBlit => ("blit", "copy, blit kernel"),
            Self::DirectKernel => ("kernel", "copy, kernel reads"),
        }
    }
    pub(super) fn label(self) -> &'static str {
        self.names().1
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
    let mut figures = Vec::new();
    for kind in sorted(all.iter().map(|v| (v.size, v.is_ping))) {
        let of_size: Vec<&PeerValue> = all.iter().filter(|v| (v.size, v.is_ping) == kind).collect();
        match sources.as_slice() {
            [source] => {
                let table = from_one(run, *source, kind, &of_size);
                let bars = peer_bars::figure(run, &table, *source, &of_size);
                figures.extend([table].into_iter().chain(bars));
            }
            _ => {
                let movers = sorted(of_size.iter().map(|v| v.by));
                figures.extend(movers.into_iter().map(|by| matrix(run, by, kind, &of_size)));
            }
        }
    }
    SuiteFindings::new(figures, [sentence(run, &all)])
}

/// Size of the messages, and whether they are round trips.
type PeerSize = (Bytes, bool);

fn what(run: &RunView, (size, is_ping): PeerSize) -> String {
    let library = run.library(Transport::Mpi);
    match is_ping {
        true => format!("{size} by {library} (osu_latency)"),
        false => format!("{size} by {library} (osu_bw) and by direct copies"),
    }
}

/// Rows are movers, columns the peers of the only source.
fn from_one(run: &RunView, source: u32, of: PeerSize, all: &[&PeerValue<'_, '_>]) -> Figure {
    let pivot = CellPivot::new(all.iter().map(|v| (v.by, v.to, v.cell(run)))).sorted();
    let to = |to: &u32| format!("gpu{to}");
    let body = pivot.matrix(("by", |by| by.label().to_owned()), ("to", to), unit(of.1));
    let finding = if of.1 { times(run, all) } else { rates(run, all) };
    let finding = finding + &published_clause(body.all());
    let title = format!("From gpu{source}, {}", what(run, of));
    frame(run, (SUITE, ""), format!("{SUITE}-{}", of.0), title).finding(finding).draw(body)
}

/// Every ordered pair, by one mover.
fn matrix(run: &RunView, by: PeerMover, of: PeerSize, all: &[&PeerValue<'_, '_>]) -> Figure {
    let chosen = || all.iter().filter(|v| v.by == by);
    let gpus = sorted(chosen().flat_map(|v| [v.from, v.to]));
    let pivot = CellPivot::over(&gpus, chosen().map(|v| (v.from, v.to, v.cell(run))));
    let unit = unit(of.1);
    let body = pivot.matrix(("from", u32::to_string), ("to", u32::to_string), unit);
    let measured = super::values(body.all());
    let (low, high) = extremes(&measured);
    let (range, pairs) = (fmt::range(low, high), fmt::count(measured.len(), "pair"));
    let finding = format!("{range} {} over {pairs}.{}", unit.0, published_clause(body.all()));
    let (id, label) = by.names();
    let (id, title) =
        (format!("{SUITE}-{}-{id}", of.0), format!("{label}, every pair: {}", what(run, of)));
    frame(run, (SUITE, ""), id, title).finding(finding).draw(body)
}

fn unit(is_ping: bool) -> CellUnit {
    if is_ping { US } else { GBS }
}

/// Values of one mover, and their range.
fn range_of(run: &RunView, all: &[&PeerValue<'_, '_>], by: PeerMover) -> Option<String> {
    let of_mover = all.iter().filter(|v| v.by == by);
    fmt::range_any(of_mover.filter_map(|v| v.cell(run).value))
}

fn times(run: &RunView, all: &[&PeerValue<'_, '_>]) -> String {
    let movers = sorted(all.iter().map(|v| v.by)).into_iter();
    let one = |by: PeerMover| Some(format!("{} {} us", by.label(), range_of(run, all, by)?));
    fmt::list_any(movers.filter_map(one)).map_or(String::new(), |texts| format!("{texts}."))
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
    let one = |by: PeerMover| {
        let range = range_of(run, all, by)?;
        let direct = match by {
            PeerMover::MpiBlit => PeerMover::DirectBlit,
            _ => PeerMover::DirectEngine,
        };
        let compared =
            fmt::list_any([direct, PeerMover::DirectKernel].into_iter().filter_map(|direct| {
                let share = shares(ratios(run, all, by, direct)?);
                Some(format!("{share} of a {}", direct.label().replacen("copy, ", "copy by ", 1)))
            }));
        let compared = compared.map_or(String::new(), |compared| format!(", {compared}"));
        Some(format!("{} reaches {range} GB/s{compared}.", by.label()))
    };
    let movers = sorted(all.iter().map(|v| v.by)).into_iter().filter(|by| by.is_mpi());
    fmt::join_any(movers.filter_map(one), " ").unwrap_or_default()
}

/// The largest size in one sentence, and the setting that decides.
fn sentence(run: &RunView, all: &[PeerValue<'_, '_>]) -> Option<String> {
    let size = all.iter().filter(|v| !v.is_ping).map(|v| v.size).max()?;
    let of_size: Vec<&PeerValue> = all.iter().filter(|v| !v.is_ping && v.size == size).collect();
    let engine = range_of(run, &of_size, PeerMover::MpiEngine)?;
    let blit = range_of(run, &of_size, PeerMover::MpiBlit)?;
    let (low, high) = ratios(run, &of_size, PeerMover::MpiBlit, PeerMover::MpiEngine)?;
    let below = ratios(run, &of_size, PeerMover::MpiBlit, PeerMover::DirectKernel);
    let below = below.map(|(low, high)| {
        format!("{} below direct kernel reads", shares((1.0 - high, 1.0 - low)))
    });
    let blits = of_size.iter().filter(|v| v.by == PeerMover::MpiBlit);
    let peaks: Vec<f64> = blits.filter_map(|v| v.cell(run).share_of_ceiling()).collect();
    let of_peak = (!peaks.is_empty()).then(|| {
        let share = shares(extremes(&peaks));
        format!("{share} of the links' peak: expect that share of any link")
    });
    let is = fmt::join_any(below.into_iter().chain(of_peak), ", ");
    let is = is.map_or(String::new(), |is| format!(" {is}"));
    let (library, times) = (run.library(Transport::Mpi), fmt::range(low, high));
    Some(format!(
        "{library} between GPUs at {size}: {engine} GB/s by copy engine; {blit} by blit kernels ({times} \
         times), which is{is}."
    ))
}
