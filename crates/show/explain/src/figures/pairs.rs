//! Bandwidth between GPUs, unidirectional and bidirectional.

use std::collections::BTreeMap;

use pathline_schema::{Cadence, Flow, Gpu, GpuCaps, MemKind, Mover, SuiteId};

use super::pivot::{CellPivot, GBS};
use super::{
    ALIKE, Figure, FigureCell, SuiteFindings, extremes, frame, published_clause, shares, values,
};
use crate::fmt;
use crate::loss_breakdown::losses;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

/// Copy mechanism between two GPUs, and the GPU that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairMover {
    /// The runtime's copy, issued at the source.
    Dma,
    /// The runtime's copy, issued at the destination.
    DmaPull,
    /// The runtime's copy kernel at the source.
    Blit,
    /// The runtime's copy kernel at the destination.
    BlitPull,
    /// A kernel at the destination that pulls.
    Read,
    /// A kernel at the source that pushes.
    Write,
}

impl PairMover {
    const ALL: [Self; 6] =
        [Self::Dma, Self::DmaPull, Self::Blit, Self::BlitPull, Self::Read, Self::Write];

    fn from_flow(flow: &Flow) -> Option<Self> {
        let at = flow.by.at();
        match flow.by {
            Mover::Dma { .. } if at == flow.dst.unit => Some(Self::DmaPull),
            Mover::Dma { .. } => Some(Self::Dma),
            Mover::Blit { .. } if at == flow.src.unit => Some(Self::Blit),
            Mover::Blit { .. } if at == flow.dst.unit => Some(Self::BlitPull),
            Mover::Kernel { .. } if at == flow.dst.unit => Some(Self::Read),
            Mover::Kernel { .. } if at == flow.src.unit => Some(Self::Write),
            _ => None,
        }
    }
    /// Its part of a figure's anchor, and the mover in case texts.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Dma => ("dma", "dma"),
            Self::DmaPull => ("dma-pull", "dma"),
            Self::Blit => ("blit", "blit"),
            Self::BlitPull => ("blit-pull", "blit"),
            Self::Read => ("read", "kernel"),
            Self::Write => ("write", "kernel"),
        }
    }
    /// The vendor's term first. `engine` is the journal's name of the runtime's copies.
    fn title(self, engine: &str, caps: &GpuCaps) -> String {
        let copies = || match engine {
            "copy engine" => {
                format!("{} ({})", fmt::sentence(caps.engine_copy), caps.peer_copy_call)
            }
            "" => format!("Runtime copy ({})", caps.peer_copy_call),
            other => format!("Runtime copy ({}) by {other}", caps.peer_copy_call),
        };
        let setting = caps.copy_engine_env.map_or(String::new(), |env| format!(" ({env}=0)"));
        match self {
            Self::Dma => copies(),
            Self::DmaPull => format!("{}, issued at the destination", copies()),
            Self::Blit => format!("Blit kernel{setting} at the source"),
            Self::BlitPull => format!("Blit kernel{setting} at the destination"),
            Self::Read => "Kernel reads from the peer".into(),
            Self::Write => "Kernel writes to the peer".into(),
        }
    }
}

/// A measured pair.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredPair<'a> {
    /// Copy mechanism.
    pub verb: PairMover,
    /// Source GPU.
    pub src: u32,
    /// Destination GPU.
    pub dst: u32,
    /// Whether both directions run at once.
    pub both: bool,
    /// The case.
    pub entry: RunEntry<'a>,
}

/// The suite's results, the largest size of each pair.
pub fn pairs<'a>(run: &RunView<'a>) -> Vec<MeasuredPair<'a>> {
    let mut found: BTreeMap<(PairMover, bool, u32, u32), MeasuredPair> = BTreeMap::new();
    let size = |p: &MeasuredPair| p.entry.case.timed.first().map(|f| f.bytes);
    for pair in run.suite(SuiteId::Pairs).filter_map(|entry| pair(*entry)) {
        let key = (pair.verb, pair.both, pair.src, pair.dst);
        if found.get(&key).is_none_or(|old| size(old) < size(&pair)) {
            found.insert(key, pair);
        }
    }
    found.into_values().collect()
}

fn pair(entry: RunEntry<'_>) -> Option<MeasuredPair<'_>> {
    let both = entry.both_ways();
    let flow = entry.lone().or(both.map(|b| b.0))?;
    if flow.src.mem == MemKind::Reg || flow.dst.mem == MemKind::Reg {
        return None;
    }
    let (src, dst) = (flow.src.unit.gpu()?, flow.dst.unit.gpu()?);
    let streaming = entry.case.cadence == Cadence::Streaming;
    (src != dst && streaming).then_some(MeasuredPair {
        verb: PairMover::from_flow(flow)?,
        src,
        dst,
        both: both.is_some(),
        entry,
    })
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let (pairs, staged) = (pairs(run), staged_pairs(run));
    let gain = staged_sentence(&staged);
    let mut figures = figures(run, &pairs);
    figures.extend(staged_figure(run, staged, gain.clone()));
    SuiteFindings::new(figures, [copies(run, &pairs), kernels(run, &pairs), gain])
}

fn figures(run: &RunView, pairs: &[MeasuredPair]) -> Vec<Figure> {
    let kinds = PairMover::ALL.into_iter().flat_map(|verb| [(verb, false), (verb, true)]);
    let figure = |(verb, both)| {
        let chosen = pairs.iter().filter(|p| p.verb == verb && p.both == both);
        figure(run, verb, both, &chosen.collect::<Vec<_>>())
    };
    kinds.filter_map(figure).collect()
}

/// A copy staged through the host: flow, its rate, and the rate of the direct copy.
type StagedPair = (Flow, FigureCell, Option<FigureCell>);

/// Copies that pathline stages through the host, with the direct copies of the same pairs.
fn staged_pairs(run: &RunView) -> Vec<StagedPair> {
    let cell = |e: &RunEntry| run.cell(e, Payload);
    let staged = run.suite(SuiteId::Pairs).filter_map(|e| {
        let flow = *e.lone().filter(|f| matches!(f.by, Mover::Staged { .. }))?;
        let direct = run.suite(SuiteId::Pairs).find(|d| {
            let same = |f: &&Flow| (f.src, f.dst) == (flow.src, flow.dst) && f.bytes >= flow.bytes;
            d.lone().filter(same).is_some_and(|f| matches!(f.by, Mover::Dma { .. }))
        });
        Some((flow, cell(e), direct.map(cell)))
    });
    staged.collect()
}

fn staged_figure(run: &RunView, pairs: Vec<StagedPair>, finding: Option<String>) -> Option<Figure> {
    let mut bars = Vec::new();
    for (flow, staged, direct) in pairs {
        let Mover::Staged { via, .. } = flow.by else { continue };
        let (src, dst) = (flow.src.unit, flow.dst.unit);
        bars.extend(direct.map(|cell| (format!("{src} to {dst}, direct"), cell)));
        bars.push((format!("{src} to {dst}, through {via}"), staged));
    }
    let cases = (SuiteId::Pairs, "gpu*.vram > gpu*.vram by staged");
    let title = "Copies between GPUs, direct and staged through the host";
    frame(run, cases, "pairs-staged", title)
        .finding(finding.unwrap_or_default())
        .draw_bars(GBS, bars)
}

/// Gain of direct copies over staged ones: range over pairs.
fn staged_sentence(pairs: &[StagedPair]) -> Option<String> {
    let both = |(_, staged, direct): &StagedPair| Some((staged.value?, direct.as_ref()?.value?));
    let pairs = || pairs.iter().filter_map(both);
    let rates = fmt::range_any(pairs().map(|p| p.0))?;
    let gains = fmt::range_any(pairs().map(|p| p.1 / p.0))?;
    Some(format!(
        "Staged through the host, copies between GPUs reach {rates} GB/s; the direct copy has {gains} times \
         as much."
    ))
}

/// The matrix of one mover; `None` without pairs.
fn figure(run: &RunView, verb: PairMover, both: bool, pairs: &[&MeasuredPair]) -> Option<Figure> {
    let first = pairs.first()?;
    let gpus = run.gpus(pairs.iter().map(|p| &p.entry));
    let cells: Vec<FigureCell> = pairs.iter().map(|p| run.cell(&p.entry, Payload)).collect();
    let points = pairs.iter().zip(&cells).map(|(p, cell)| match both {
        // A bidirectional rate is one value per pair: only the upper half has it.
        true => (p.src.min(p.dst), p.src.max(p.dst), cell.clone()),
        false => (p.src, p.dst, cell.clone()),
    });
    let caps = run.topology().gpus.first().map_or(GpuCaps::of_vendor(""), Gpu::caps);
    let title = verb.title(engine(pairs.iter().copied()).unwrap_or_default(), caps);
    let size = |p: &MeasuredPair| p.entry.case.timed.first().map(|flow| flow.bytes);
    let common = size(first).filter(|_| pairs.iter().all(|p| size(p) == size(first)));
    let title = title + &common.map_or(String::new(), |bytes| format!(", {bytes}"));
    let (id, title, from, to) = match both {
        true => {
            (format!("pairs-{}-both", verb.names().0), title + ", both ways, sum", "GPU", "GPU")
        }
        false => (format!("pairs-{}", verb.names().0), title, "from", "to"),
    };
    let matrix =
        CellPivot::over(&gpus, points).matrix((from, u32::to_string), (to, u32::to_string), GBS);
    let cases = format!("gpu*.vram > gpu*.vram by {}", verb.names().1);
    let levels = fmt::sentence(&describe_levels(&values(cells.iter())));
    let (share, published) = (shares(cells.iter()), published_clause(cells.iter()));
    let finding = format!("{levels}{share}.{}{published}", losses(cells.iter()));
    Some(frame(run, (SuiteId::Pairs, &cases), id, title).finding(finding).draw(matrix))
}

/// What the records name as mover.
fn engine<'p, 'a: 'p>(pairs: impl Iterator<Item = &'p MeasuredPair<'a>>) -> Option<&'a str> {
    pairs.map(|p| p.entry.engine()).find(|engine| !engine.is_empty())
}

/// A range of values in which neighbours differ by less than `apart`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ValueLevel {
    low: f64,
    high: f64,
    count: usize,
}

/// Sorts values into levels; a step of more than `apart` (0.15 is 15 %) starts the next one.
fn levels(values: &[f64], apart: f64) -> Vec<ValueLevel> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let mut levels: Vec<ValueLevel> = Vec::new();
    for value in sorted {
        match levels.last_mut() {
            Some(level) if value <= level.high * (1.0 + apart) => {
                level.high = value;
                level.count += 1;
            }
            _ => levels.push(ValueLevel { low: value, high: value, count: 1 }),
        }
    }
    levels
}

/// `37.1-37.6 and 49.0-50.4`; one range of more than five levels.
pub fn level_text(values: &[f64]) -> String {
    let levels = levels(values, 0.15);
    let texts: Vec<String> = levels.iter().map(|l| fmt::range(l.low, l.high)).collect();
    let (low, high) = extremes(values);
    if texts.len() <= 5 { fmt::list(&texts) } else { fmt::range(low, high) }
}

/// `2 levels: 37.1-37.6 GB/s (32 pairs) and 49.0-50.4 GB/s (24 pairs)`.
pub(super) fn describe_levels(values: &[f64]) -> String {
    let levels = levels(values, 0.15);
    let one = |l: &ValueLevel| {
        format!("{} GB/s ({})", fmt::range(l.low, l.high), fmt::count(l.count, "pair"))
    };
    let texts: Vec<String> = levels.iter().map(one).collect();
    match levels.len() {
        0 => "no figures".into(),
        1 => format!("one level: {}", texts.concat()),
        n @ 2..=5 => format!("{n} levels: {}", fmt::list(&texts)),
        _ => {
            let (low, high) = extremes(values);
            format!("{} GB/s over {}", fmt::range(low, high), fmt::count(values.len(), "pair"))
        }
    }
}

/// The levels of the runtime's copies, and their share of the widest route.
fn copies(run: &RunView, pairs: &[MeasuredPair]) -> Option<String> {
    let pairs = || pairs.iter().filter(|p| p.verb == PairMover::Dma && !p.both);
    let cells: Vec<FigureCell> = pairs().map(|p| run.cell(&p.entry, Payload)).collect();
    let values = values(cells.iter());
    if values.is_empty() {
        return None;
    }
    let by = engine(pairs()).map_or(String::new(), |e| format!(" ({e})"));
    let shares = || cells.iter().map(FigureCell::share_of_ceiling);
    let (least, _) = extremes(&shares().flatten().collect::<Vec<_>>());
    let mut all = shares().zip(&cells).zip(pairs());
    let worst = all.find_map(|((share, cell), p)| {
        let share = share.filter(|share| ALIKE * share <= least)?;
        let (share, peak) = (fmt::percent(share), fmt::gbs(cell.ceiling?));
        Some(format!("; from gpu{} to gpu{} that is {share} of {peak}", p.src, p.dst))
    });
    let (levels, worst) = (describe_levels(&values), worst.unwrap_or_default());
    Some(format!("Runtime copies between GPUs{by} come in {levels}{worst}."))
}

/// The levels of kernels, and reads compared with writes.
fn kernels(run: &RunView, pairs: &[MeasuredPair]) -> Option<String> {
    let rates = |verb: PairMover| -> Vec<f64> {
        let pairs = pairs.iter().filter(|p| p.verb == verb && !p.both);
        pairs.filter_map(|p| run.value(&p.entry, Payload)).collect()
    };
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (reads, writes) = (rates(PairMover::Read), rates(PairMover::Write));
    let (verb, values, ratio) = match (reads.is_empty(), writes.is_empty()) {
        (true, true) => return None,
        (true, false) => ("writes", &writes, String::new()),
        (false, true) => ("reads", &reads, String::new()),
        (false, false) => {
            let ratio = fmt::percent(mean(&writes) / mean(&reads));
            ("reads", &reads, format!("; writes reach {ratio} of reads"))
        }
    };
    Some(format!("Kernel {verb} between GPUs come in {}{ratio}.", describe_levels(values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_of_thirty_per_cent_makes_two_levels() {
        // 37.1..37.6 are within 2 %, 49..50.4 within 3 %; from 37.6 to 49 it is 30 %.
        let found = levels(&[50.4, 37.1, 49.0, 37.6], 0.15);
        let level = |low, high| ValueLevel { low, high, count: 2 };
        assert_eq!(found, [level(37.1, 37.6), level(49.0, 50.4)]);
    }
}
