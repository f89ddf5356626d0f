//! Between GPUs: bandwidth one way and both ways, and the latency of a small copy.

use std::collections::BTreeMap;

use pathline_schema::{Cadence, Flow, MemKind, Mover};

use super::{
    BetterWhen, Figure, FigureBar, FigureBody, FigureCell, bars_figure, grid, published_words,
    shares, values,
};
use crate::fmt;
use crate::loss_breakdown::losses;
use crate::run::{CaseQuantity, RunEntry, RunView};

/// How data goes from one GPU to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PairMover {
    /// The runtime's copy, issued at the source.
    Dma,
    /// The runtime's copy, issued at the destination.
    DmaPull,
    /// The runtime's copy kernel at the source.
    Blit,
    /// The runtime's copy kernel at the destination.
    BlitPull,
    /// A kernel at the destination that reads.
    Read,
    /// A kernel at the source that writes.
    Write,
}

impl PairMover {
    const ALL: [Self; 6] =
        [Self::Dma, Self::DmaPull, Self::Blit, Self::BlitPull, Self::Read, Self::Write];

    fn of(flow: &Flow) -> Option<Self> {
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
    fn id(self) -> &'static str {
        match self {
            Self::Dma => "dma",
            Self::DmaPull => "dma-pull",
            Self::Blit => "blit",
            Self::BlitPull => "blit-pull",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
    fn words(self, engine: &str) -> String {
        match self {
            Self::Dma if engine.is_empty() => "Copies by the runtime".into(),
            Self::Dma => format!("Copies by {engine}"),
            Self::DmaPull if engine.is_empty() => "Copies by the runtime at the destination".into(),
            Self::DmaPull => format!("Copies by {engine} at the destination"),
            Self::Blit => "Blit kernel at the source".into(),
            Self::BlitPull => "Blit kernel at the destination".into(),
            Self::Read => "Kernel reads from the peer".into(),
            Self::Write => "Kernel writes to the peer".into(),
        }
    }
    fn pattern(self) -> &'static str {
        match self {
            Self::Dma | Self::DmaPull => "gpu*.vram > gpu*.vram by dma",
            Self::Blit | Self::BlitPull => "gpu*.vram > gpu*.vram by blit",
            Self::Read | Self::Write => "gpu*.vram > gpu*.vram by kernel",
        }
    }
}

/// A measured pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredPair<'a> {
    pub(crate) verb: PairMover,
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) both: bool,
    pub(crate) entry: RunEntry<'a>,
}

/// What the suite measured, the largest size of each pair.
pub(crate) fn pairs<'a>(run: &RunView<'a>) -> Vec<MeasuredPair<'a>> {
    let mut found: BTreeMap<(PairMover, bool, u32, u32), MeasuredPair> = BTreeMap::new();
    let size = |p: &MeasuredPair| p.entry.case.timed.first().map(|f| f.bytes);
    for pair in run.suite("pairs").filter_map(|entry| pair(*entry)) {
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
        verb: PairMover::of(flow)?,
        src,
        dst,
        both: both.is_some(),
        entry,
    })
}

pub(super) fn figures(run: &RunView) -> Vec<Figure> {
    let pairs = pairs(run);
    let mut figures = Vec::new();
    for verb in PairMover::ALL {
        for both in [false, true] {
            let chosen: Vec<&MeasuredPair> =
                pairs.iter().filter(|p| p.verb == verb && p.both == both).collect();
            if !chosen.is_empty() {
                figures.push(figure(run, verb, both, &chosen));
            }
        }
    }
    figures.extend(staged(run));
    figures
}

/// Copies that this program stages through the host, with the direct copy of the same pair.
fn staged_pairs(run: &RunView) -> Vec<(Flow, FigureCell, Option<FigureCell>)> {
    let cell = |e: &RunEntry| run.cell(e, CaseQuantity::Payload);
    let staged = run.suite("pairs").filter_map(|e| {
        let flow = *e.lone().filter(|f| matches!(f.by, Mover::Staged { .. }))?;
        let direct = run.suite("pairs").find(|d| {
            let same = |f: &&Flow| (f.src, f.dst) == (flow.src, flow.dst) && f.bytes >= flow.bytes;
            d.lone().filter(same).is_some_and(|f| matches!(f.by, Mover::Dma { .. }))
        });
        Some((flow, cell(e), direct.map(cell)))
    });
    staged.collect()
}

fn staged(run: &RunView) -> Option<Figure> {
    let mut bars = Vec::new();
    for (flow, staged, direct) in staged_pairs(run) {
        let Mover::Staged { via, .. } = flow.by else { continue };
        let (src, dst) = (flow.src.unit, flow.dst.unit);
        bars.extend(
            direct.map(|cell| FigureBar { label: format!("{src} to {dst}, direct"), cell }),
        );
        bars.push(FigureBar { label: format!("{src} to {dst}, through {via}"), cell: staged });
    }
    let title = "Copies between GPUs, direct and staged through the host".to_owned();
    let command = run.command("pairs", "gpu*.vram > gpu*.vram by staged");
    let finding = staged_sentence(run).unwrap_or_default();
    let unit = ("GB/s", BetterWhen::Higher);
    bars_figure(("pairs-staged", "pairs", title), finding, command, unit, bars)
}

/// How much the direct way gains over the host, at least and at most.
pub(crate) fn staged_sentence(run: &RunView) -> Option<String> {
    let both = |(_, staged, direct): (Flow, FigureCell, Option<FigureCell>)| {
        Some((staged.value?, direct?.value?))
    };
    let pairs: Vec<(f64, f64)> = staged_pairs(run).into_iter().filter_map(both).collect();
    let (low, high) = super::extremes(&pairs.iter().map(|p| p.1 / p.0).collect::<Vec<_>>());
    let (least, most) = super::extremes(&pairs.iter().map(|p| p.0).collect::<Vec<_>>());
    (!pairs.is_empty()).then(|| {
        format!(
            "Staged through the host, copies between GPUs reach {} GB/s; the direct copy has {} times as \
             much.",
            fmt::range(least, most),
            fmt::range(low, high)
        )
    })
}

fn figure(run: &RunView, verb: PairMover, both: bool, pairs: &[&MeasuredPair]) -> Figure {
    let gpus = run.gpus(pairs.iter().map(|p| &p.entry));
    let engine = pairs.iter().map(|p| p.entry.engine()).find(|e| !e.is_empty()).unwrap_or("");
    let find = |a: u32, b: u32| {
        pairs.iter().find(|p| (p.src, p.dst) == (a, b) || (both && (p.dst, p.src) == (a, b)))
    };
    let cell = |a: u32, b: u32| {
        find(a, b).map_or_else(FigureCell::default, |p| run.cell(&p.entry, CaseQuantity::Payload))
    };
    let (id, title) = if both {
        (format!("pairs-{}-both", verb.id()), format!("{}, both ways, sum", verb.words(engine)))
    } else {
        (format!("pairs-{}", verb.id()), verb.words(engine))
    };
    let axes = if both { ("GPU", "GPU") } else { ("from", "to") };
    let matrix = grid(
        (axes.0, &gpus),
        (axes.1, &gpus),
        ("GB/s", BetterWhen::Higher),
        (|g: u32| g.to_string(), |g: u32| g.to_string()),
        cell,
    );
    let cells: Vec<FigureCell> =
        pairs.iter().map(|p| run.cell(&p.entry, CaseQuantity::Payload)).collect();
    Figure {
        id,
        suite: "pairs".into(),
        title,
        finding: format!(
            "{}{}.{}{}",
            fmt::sentence(&levels_words(&values(cells.iter()))),
            shares(cells.iter()),
            losses(cells.iter()),
            published_words(cells.iter()),
        ),
        command: run.command("pairs", verb.pattern()),
        body: FigureBody::Matrix(matrix),
    }
}

/// `2 levels: 37.1-37.6 GB/s (32 pairs) and 49.0-50.4 GB/s (24 pairs)`.
pub(crate) fn levels_words(values: &[f64]) -> String {
    let levels = fmt::levels(values, 0.15);
    let one = |l: &fmt::ValueLevel| {
        format!("{} GB/s ({})", fmt::range(l.low, l.high), fmt::count(l.count, "pair"))
    };
    let texts: Vec<String> = levels.iter().map(one).collect();
    match levels.len() {
        0 => "no figures".into(),
        1 => format!("one level: {}", texts.concat()),
        n @ 2..=5 => format!("{n} levels: {}", fmt::list(&texts)),
        _ => {
            let (low, high) = super::extremes(values);
            format!("{} GB/s over {}", fmt::range(low, high), fmt::count(values.len(), "pair"))
        }
    }
}

/// The matrix of small copies, one at a time.
pub(super) fn latency(run: &RunView) -> Option<Figure> {
    let copies: Vec<(&RunEntry, &Flow)> = run
        .suite("latency")
        .filter(|e| e.case.cadence == Cadence::Isolated)
        .filter_map(|e| Some((e, e.lone()?)))
        .filter(|(_, f)| f.src.unit.gpu().is_some() && f.dst.unit.gpu().is_some())
        .collect();
    let bytes = copies.iter().map(|(_, f)| f.bytes).min()?;
    let gpus = run.gpus(copies.iter().map(|(e, _)| *e));
    let cell = |a: u32, b: u32| {
        let of = |f: &Flow| {
            f.bytes == bytes && f.src.unit.gpu() == Some(a) && f.dst.unit.gpu() == Some(b)
        };
        let found = copies.iter().find(|(_, f)| of(f));
        found.map_or_else(FigureCell::default, |(e, _)| run.cell(e, CaseQuantity::StepUs))
    };
    let matrix = grid(
        ("from", &gpus),
        ("to", &gpus),
        ("us", BetterWhen::Lower),
        (|g: u32| g.to_string(), |g: u32| g.to_string()),
        cell,
    );
    let mut peers: Vec<(f64, u32, u32)> = Vec::new();
    for (row, &a) in matrix.cells.iter().zip(&gpus) {
        let others = row.iter().zip(&gpus).filter(|&(_, &b)| b != a);
        peers.extend(others.filter_map(|(c, &b)| Some((c.value?, a, b))));
    }
    peers.sort_by(|x, y| x.0.total_cmp(&y.0));
    let finding = match (peers.first(), peers.last()) {
        (Some(low), Some(high)) => format!(
            "{} us between gpu{} and gpu{}, {} us between gpu{} and gpu{}.{}",
            fmt::number(low.0),
            low.1,
            low.2,
            fmt::number(high.0),
            high.1,
            high.2,
            published_words(matrix.cells.iter().flatten()),
        ),
        _ => String::new(),
    };
    Some(Figure {
        id: "latency".into(),
        suite: "latency".into(),
        title: format!("Time of a {bytes} copy, one at a time"),
        finding,
        command: run.command("latency", ""),
        body: FigureBody::Matrix(matrix),
    })
}
