//! Headline values of a run.

use std::collections::BTreeMap;

use pathline_explain::figure::RunReport;
use pathline_explain::figures::pairs::{PairMover, pairs};
use pathline_explain::run::{CaseQuantity, RunEntry};
use pathline_schema::{
    Bytes, Cadence, CpuOp, Flow, IoCache, IoOp, IoOrder, KernelOp, Mover, SuiteId, TimerKind,
};
use serde::Serialize;

use crate::evidence::{Evidence, SoundValue};
use crate::host_copies::{HostPathKind, HostTransfer, direction, host_transfers};
use crate::rules::largest_all_reduce;

/// A headline value with its context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryTile {
    /// `H2D`, `D2H`, `D2D`, `local`, `host memory`, `latency`, `all_reduce`, `file read`.
    pub name: String,
    /// What was measured: kind of memory, mover, units, size.
    pub detail: String,
    /// The value.
    pub value: f64,
    /// Half width of its 95 % interval, in the same unit; none where it has no interval.
    pub half_width: Option<f64>,
    /// `GB/s`, `us`.
    pub unit: String,
    /// Share of the peak of its narrowest hop, 0 to 1.
    pub share_of_peak: Option<f64>,
    /// Share of what the model predicts, 0 to 1 and above; none of a simulated run.
    pub share_of_model: Option<f64>,
    /// The slowest path below its peers, in the same unit. Without such a path, the slowest of all if it is more
    /// than 5 % below `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest: Option<f64>,
    /// Values over size or over units, for a small picture.
    pub spark: Vec<f64>,
    /// Id of the figure that has more; empty if the report has none.
    pub figure: String,
}

/// Share of the best below which the slowest of equal paths is shown next to it.
const WORTH_SHOWING: f64 = 0.95;

/// The headline values of a run, in display order.
pub(crate) fn tiles(evidence: &Evidence, report: &RunReport) -> Vec<SummaryTile> {
    let shown = |ids: &[&str]| -> String {
        let has = |id: &&&str| report.figures.iter().any(|figure| figure.id == **id);
        ids.iter().find(has).map_or(String::new(), |id| (*id).to_owned())
    };
    let host = shown(&["sweep-host", "host-link", "fan-engine"]);
    [
        host_tile(evidence, true, &host),
        host_tile(evidence, false, &host),
        pair_tile(evidence, &shown(&["pairs-dma", "pairs-read", "pairs-write", "sweep-dma"])),
        local_tile(evidence, &shown(&["local", "local-bars"])),
        memory_tile(evidence, &shown(&["host-streams", "host-threads", "host-copy-t1"])),
        latency_tile(evidence, &shown(&["latency", "latency-host", "host-latency"])),
        collective_tile(evidence, report),
        file_tile(evidence, IoOp::Read, "file read", report),
        file_tile(evidence, IoOp::Write, "file write", report),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Tiles of sound results. A quantity without one gets a tile from assumed constants, marked as such.
pub(crate) fn with_assumed(sound: Vec<SummaryTile>, all: Vec<SummaryTile>) -> Vec<SummaryTile> {
    let or_sound = |mut tile: SummaryTile| {
        let known = sound.iter().find(|known| known.name == tile.name);
        known.cloned().unwrap_or_else(|| {
            tile.half_width = None;
            tile.detail += ", assumed";
            tile
        })
    };
    all.into_iter().map(or_sound).collect()
}

fn tile(
    evidence: &Evidence,
    (name, detail): (&str, String),
    value: &SoundValue,
    quantity: CaseQuantity,
    spark: Vec<f64>,
    figure: &str,
) -> SummaryTile {
    let entry = evidence.run.entry(value.case);
    let cell = entry.map(|entry| evidence.run.cell(entry, quantity)).unwrap_or_default();
    let bound = cell.bound.filter(|bound| *bound > 0.0 && !evidence.is_simulated());
    SummaryTile {
        name: name.to_owned(),
        detail,
        value: value.value,
        half_width: Some(value.half_width()),
        unit: value.unit.to_owned(),
        share_of_peak: cell.share_of_ceiling(),
        share_of_model: bound.map(|bound| value.value / bound),
        slowest: None,
        spark,
        figure: figure.to_owned(),
    }
}

/// The firmest of the points whose interval reaches that of the fastest: the one with the narrowest interval,
/// and of alike ones that with the most samples. A noisy point has more samples than a quiet one.
fn firmest<'t, T>(
    evidence: &Evidence,
    points: &'t [T],
    quantity: CaseQuantity,
    value: impl Fn(&T) -> &SoundValue,
) -> Option<&'t T> {
    let fastest = points.iter().max_by(|a, b| value(a).value.total_cmp(&value(b).value))?;
    let samples = |point: &T| {
        let shown = evidence.run.entry(value(point).case).and_then(|entry| entry.shown(quantity));
        shown.map_or(0, |shown| shown.samples)
    };
    // A point of few samples has no interval, and no width.
    let width = |point: &T| match value(point).half_width() / value(point).value {
        width if width > 0.0 => width,
        _ => f64::INFINITY,
    };
    let near = points.iter().filter(|point| value(point).high >= value(fastest).low);
    near.min_by(|a, b| width(a).total_cmp(&width(b)).then(samples(b).cmp(&samples(a))))
}

/// The firmest of the fastest copies between host memory and the first GPU.
fn host_tile(evidence: &Evidence, inward: bool, figure: &str) -> Option<SummaryTile> {
    let all = host_transfers(evidence);
    let gpu = all.iter().map(|t| t.gpu).min()?;
    let of = || {
        let here = all.iter().filter(move |t| t.gpu == gpu && t.inward == inward);
        here.filter(|t| matches!(t.kind, HostPathKind::Copy(_)))
    };
    // The kind that most sizes have, of those within the interval of the fastest.
    // A copy of less than 1 MiB is mostly its start, which is no rate of the link.
    let is_large = |t: &&HostTransfer| t.bytes >= Bytes::mib(1);
    let best = of().filter(is_large).max_by(|a, b| a.rate.value.total_cmp(&b.rate.value))?;
    let sizes = |kind: HostPathKind| of().filter(|t| t.kind == kind).count();
    let near = of().filter(is_large).filter(|t| t.rate.high >= best.rate.low);
    let kind = near.max_by_key(|t| sizes(t.kind))?.kind;
    let points: Vec<_> = of().filter(|t| t.kind == kind).collect();
    let large: Vec<_> = points.iter().copied().filter(is_large).collect();
    let chosen = firmest(evidence, &large, CaseQuantity::Payload, |t| &t.rate)?;
    let mut over_size: Vec<(Bytes, f64)> = points.iter().map(|t| (t.bytes, t.rate.value)).collect();
    over_size.sort_by_key(|point| point.0);
    over_size.dedup_by_key(|point| point.0);
    let detail = format!("{}, gpu{gpu}, {}", kind.label(), chosen.bytes.rounded());
    let spark = over_size.into_iter().map(|point| point.1).collect();
    let name = (direction(inward), detail);
    let tile = tile(evidence, name, &chosen.rate, CaseQuantity::Payload, spark, figure);
    // Where GPU and host share one memory no link is between them, and no engine comes near the memory's peak.
    let path = evidence.run.entry(chosen.rate.case);
    let path = path.and_then(|entry| evidence.run.cell(entry, CaseQuantity::Payload).path);
    let has_link = path.is_none_or(|path| !path.narrowest.ends_with("HBM"));
    Some(SummaryTile { share_of_peak: tile.share_of_peak.filter(|_| has_link), ..tile })
}

/// The fastest pair of GPUs by the runtime's copy, or by kernels.
fn pair_tile(evidence: &Evidence, figure: &str) -> Option<SummaryTile> {
    let measured = pairs(&evidence.run);
    let one_way = |verb: PairMover| {
        let of = measured.iter().filter(move |p| p.verb == verb && !p.both);
        let rates = of.filter_map(|p| Some((p.src, p.dst, p.entry, evidence.rate(&p.entry)?)));
        rates.collect::<Vec<_>>()
    };
    let verbs = [PairMover::Dma, PairMover::Read, PairMover::Write];
    let (verb, rates) =
        verbs.into_iter().map(|v| (v, one_way(v))).find(|(_, rates)| !rates.is_empty())?;
    let fastest = rates.iter().map(|r| r.3.value).fold(0.0, f64::max);
    // Which of nearly equal rates is the best is noise: the first pair over the widest path stands for them.
    let alike = rates.iter().filter(|r| r.3.value >= WORTH_SHOWING * fastest);
    let peak = |r: &&(u32, u32, RunEntry, SoundValue)| {
        evidence.run.cell(&r.2, CaseQuantity::Payload).ceiling.unwrap_or(0.0)
    };
    let (src, dst, entry, best) =
        alike.max_by(|a, b| peak(a).total_cmp(&peak(b)).then((b.0, b.1).cmp(&(a.0, a.1))))?;
    let by = match (evidence.copies_by(entry), verb) {
        (Some(copies), _) => copies,
        (None, PairMover::Read) => "kernel reads",
        (None, _) => "kernel writes",
    };
    let size = best.case.timed.first()?.bytes.rounded();
    let all: Vec<_> = measured.iter().filter(|p| p.verb == verb && !p.both).collect();
    let of = if all.len() > 1 { format!(" of {} pairs", all.len()) } else { String::new() };
    let detail = format!("{by}, gpu{src}→gpu{dst}{of}, {size}");
    let mut spark: Vec<f64> = rates.iter().map(|r| r.3.value).collect();
    spark.sort_by(f64::total_cmp);
    let slow = all.iter().filter(|p| evidence.slow.contains(p.entry.case));
    let slow = slow.filter_map(|p| Some(evidence.value_of_slow(p.entry.case)?.value));
    let slowest = spark.first().copied().filter(|slowest| *slowest < WORTH_SHOWING * best.value);
    // Next to a slow pair, one of narrower links is not what is wrong.
    let slowest = slow.reduce(f64::min).or(slowest.filter(|_| evidence.slow.is_empty()));
    let tile = tile(evidence, ("D2D", detail), best, CaseQuantity::Payload, spark, figure);
    Some(SummaryTile { slowest, ..tile })
}

/// The fastest copy or triad inside the first GPU, read and written.
fn local_tile(evidence: &Evidence, figure: &str) -> Option<SummaryTile> {
    let inside = |flow: &Flow| {
        let at = flow.by.at();
        let both = flow.src.unit == at && flow.dst.unit == at;
        at.gpu().filter(|_| both)
    };
    let label = |by: &Mover| match by {
        Mover::Kernel { variant, .. } if matches!(variant.op, KernelOp::Copy | KernelOp::Triad) => {
            Some(variant.op.word())
        }
        _ => None,
    };
    let entries = evidence.run.suite(SuiteId::Local);
    let mut values: BTreeMap<u32, (SoundValue, &str)> = BTreeMap::new();
    for entry in entries {
        let Some(flow) = entry.lone() else { continue };
        let (Some(gpu), Some(name)) = (inside(flow), label(&flow.by)) else { continue };
        let Some(value) = evidence.value(entry, CaseQuantity::Traffic) else { continue };
        let slot = values.entry(gpu).or_insert((value, name));
        if value.value > slot.0.value {
            *slot = (value, name);
        }
    }
    let (gpu, (value, name)) = values.first_key_value()?;
    let size = value.case.timed.first()?.bytes.rounded();
    let detail = format!("{name}, read + written, gpu{gpu}, {size}");
    let spark = values.values().map(|v| v.0.value).collect();
    Some(tile(evidence, ("local", detail), value, CaseQuantity::Traffic, spark, figure))
}

/// The firmest of the fastest loops over blocks of host memory past every cache.
fn memory_tile(evidence: &Evidence, figure: &str) -> Option<SummaryTile> {
    let loops: Vec<_> = evidence
        .run
        .suite(SuiteId::Host)
        .filter_map(|entry| {
            let flow = entry.lone()?;
            let Mover::Cpu { work, threads, .. } = flow.by else { return None };
            let streams =
                !matches!(work.op, CpuOp::Chase | CpuOp::Touch) && evidence.run.past_caches(flow);
            let value = evidence.value(entry, CaseQuantity::Traffic).filter(|_| streams)?;
            Some((flow.bytes, work, threads, value))
        })
        .collect();
    let (bytes, work, threads, value) = firmest(evidence, &loops, CaseQuantity::Traffic, |l| &l.3)?;
    let same = loops.iter().filter(|l| (l.1, l.2) == (*work, *threads));
    let mut over_size: Vec<(Bytes, f64)> = same.map(|l| (l.0, l.3.value)).collect();
    over_size.sort_by_key(|point| point.0);
    let threads = pathline_explain::fmt::threads(*threads);
    let detail = format!("{work}, {threads}, read + written, {}", bytes.rounded());
    let spark = over_size.into_iter().map(|point| point.1).collect();
    let name = ("host memory", detail);
    Some(tile(evidence, name, value, CaseQuantity::Traffic, spark, figure))
}

/// The shortest small copy between GPUs, else to a GPU, else a load of host memory.
fn latency_tile(evidence: &Evidence, figure: &str) -> Option<SummaryTile> {
    let on_gpu = |flow: &Flow| (flow.src.unit.gpu().is_some(), flow.dst.unit.gpu().is_some());
    let copies: Vec<(&Flow, SoundValue)> = evidence
        .run
        .suite(SuiteId::Latency)
        .filter(|entry| entry.case.cadence == Cadence::Isolated)
        .filter_map(|entry| {
            let flow = entry.lone().filter(|f| matches!(f.by, Mover::Dma { .. }))?;
            Some((flow, evidence.time(entry)?))
        })
        .collect();
    let between = |flow: &Flow| on_gpu(flow) == (true, true) && flow.src.unit != flow.dst.unit;
    let choose = |wanted: &dyn Fn(&Flow) -> bool| {
        let of: Vec<_> = copies.iter().filter(|c| wanted(c.0)).collect();
        let best = of.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value)).copied().copied();
        let mut spark: Vec<f64> = of.iter().map(|c| c.1.value).collect();
        spark.sort_by(f64::total_cmp);
        Some((best?, spark))
    };
    if let Some(((flow, time), spark)) =
        choose(&between).or_else(|| choose(&|flow| on_gpu(flow) == (false, true)))
    {
        let ends = format!("{}→{}", flow.src.unit, flow.dst.unit);
        let entry = evidence.run.entry(time.case);
        let timer = entry.and_then(|entry| Some(entry.series().first()?.timer));
        let how = match timer {
            Some(TimerKind::DeviceEvents) => "between two events",
            _ => "one at a time",
        };
        let detail = format!("copy of {}, {ends}, {how}", flow.bytes);
        let name = ("latency", detail);
        return Some(tile(evidence, name, &time, CaseQuantity::StepUs, spark, figure));
    }
    let mut loads: Vec<(Bytes, SoundValue)> = evidence
        .run
        .suite(SuiteId::Host)
        .filter_map(|entry| {
            let flow = entry.lone().filter(|f| f.by.is_chase() && f.src.unit == f.by.at())?;
            Some((flow.bytes, evidence.value(entry, CaseQuantity::StepNs)?))
        })
        .collect();
    loads.sort_by_key(|load| load.0);
    let (bytes, value) = *loads.last()?;
    let detail = format!("dependent load of host memory, {}", bytes.rounded());
    let spark = loads.iter().map(|load| load.1.value).collect();
    Some(tile(evidence, ("latency", detail), &value, CaseQuantity::StepNs, spark, figure))
}

/// Bus bandwidth of the largest all_reduce.
fn collective_tile(evidence: &Evidence, report: &RunReport) -> Option<SummaryTile> {
    let largest = largest_all_reduce(evidence)?;
    let bus = |figure: &&pathline_explain::figure::Figure| figure.id.contains("-bus-");
    let figure = report.figures.iter().find(bus).map_or("", |figure| figure.id.as_str());
    let scale = largest.bus / largest.rate.value;
    let spark = largest.by_size.iter().map(|rate| rate * scale).collect();
    let name = ("all_reduce", largest.detail);
    let payload = tile(evidence, name, &largest.rate, CaseQuantity::Payload, spark, figure);
    Some(SummaryTile {
        value: largest.bus,
        half_width: payload.half_width.map(|half| half * scale),
        share_of_peak: largest.limit.map(|(limit, _)| largest.bus / limit),
        share_of_model: None,
        slowest: None,
        ..payload
    })
}

/// The fastest sequential I/O past the page cache.
fn file_tile(evidence: &Evidence, op: IoOp, name: &str, report: &RunReport) -> Option<SummaryTile> {
    let best = evidence
        .lone()
        .filter_map(|(entry, flow)| {
            let io = flow.by.io()?;
            let host = flow.io_ends().1.unit.numa().is_some();
            let wanted = io.op == op && io.order == IoOrder::Seq && io.cache == IoCache::Direct;
            Some((flow, io, evidence.rate(entry).filter(|_| wanted && host)?))
        })
        .max_by(|a, b| a.2.value.total_cmp(&b.2.value))?;
    let (flow, io, rate) = best;
    let depth = format!("storage-depth-{}-{}", io.order, io.op);
    let of_kind = |figure: &&pathline_explain::figure::Figure| {
        figure.id.starts_with(&depth) || figure.id.starts_with("storage-all")
    };
    let figure = report.figures.iter().find(of_kind).map_or("", |figure| figure.id.as_str());
    let detail = format!(
        "{}, O_DIRECT, {}, depth {}, {}, {}",
        io.engine,
        pathline_explain::fmt::count(io.threads as usize, "worker"),
        io.depth,
        flow.io_ends().0.unit,
        flow.bytes.rounded()
    );
    Some(tile(evidence, (name, detail), &rate, CaseQuantity::Payload, Vec::new(), figure))
}
