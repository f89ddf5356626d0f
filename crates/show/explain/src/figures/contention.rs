//! Resources shared by copy engine paths: single paths, pairs of host paths, groups, random sets.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, Flow, Mover, SuiteId, Unit};
use pathline_stats::SeriesSummary;

use super::pivot::{CellPivot, GBS, OF_ALONE};
use super::{Figure, FigureCell, SuiteFindings, frame, sorted};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Contention;
const RANDOM: SuiteId = SuiteId::Concurrent;

/// Two paths share a resource if one keeps less than this while the other runs. On four H200s both
/// directions of one GPU kept 88 to 92 %; paths of different GPUs, which share host memory, 94 % or
/// more.
const MIN_INDEPENDENT: f64 = 0.93;

/// Maximum difference between the rates of groups of one size that count as equal.
const ALIKE: f64 = 0.97;

/// Direction of a copy between host and GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HostDirection {
    In,
    Out,
}

impl HostDirection {
    /// Its short name, and its label.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::In => ("H2D", "in"),
            Self::Out => ("D2H", "out"),
        }
    }
}

/// A path between a GPU and the memory of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ContendedPath {
    direction: HostDirection,
    gpu: u32,
    domain: u32,
}

impl ContendedPath {
    fn from_flow(flow: &Flow) -> Option<Self> {
        let Mover::Dma { at: Unit::Gpu(gpu) } = flow.by else { return None };
        let (direction, domain) = match (flow.src.unit, flow.dst.unit) {
            (Unit::Numa(domain), Unit::Gpu(_)) => (HostDirection::In, domain),
            (Unit::Gpu(_), Unit::Numa(domain)) => (HostDirection::Out, domain),
            _ => return None,
        };
        Some(Self { direction, gpu, domain })
    }
}

/// The suite's results.
struct ContentionData<'b, 'a> {
    alone: Vec<(&'a Flow, &'b RunEntry<'a>)>,
    /// Several copies at once.
    sets: Vec<&'b RunEntry<'a>>,
}

fn found<'b, 'a>(run: &'b RunView<'a>, suite: SuiteId) -> ContentionData<'b, 'a> {
    let payload = run.suite(SUITE).filter_map(RunEntry::lone).map(|f| f.bytes).max();
    let tiny = Bytes::kib(64).min(payload.unwrap_or_default());
    let alone = run.suite(SUITE).filter_map(|e| Some((e.lone()?, e)));
    ContentionData {
        alone: alone.filter(|(f, _)| f.bytes >= tiny).collect(),
        sets: run.suite(suite).filter(|e| e.case.timed.len() > 1).collect(),
    }
}

/// Rate of the `nth` flow of a case, GB/s.
fn rate(entry: &RunEntry<'_>, nth: usize) -> Option<f64> {
    let series = entry.series().get(nth)?;
    let ns = SeriesSummary::of(&series.samples_ns)?.median;
    Some(series.moved_bytes.as_f64() / ns).filter(|r| r.is_finite())
}

/// Remaining share of each of two host paths' rate while both run.
struct HostPair<'b, 'a> {
    paths: [ContendedPath; 2],
    keeps: [f64; 2],
    /// Sum of both, GB/s.
    sum: f64,
    entry: &'b RunEntry<'a>,
}

fn host_pairs<'b, 'a>(found: &ContentionData<'b, 'a>) -> Vec<HostPair<'b, 'a>> {
    let alone: BTreeMap<ContendedPath, f64> = found
        .alone
        .iter()
        .filter_map(|(f, e)| Some((ContendedPath::from_flow(f)?, rate(e, 0)?)))
        .collect();
    let pair = |&entry: &&'b RunEntry<'a>| {
        let [a, b] = entry.case.timed.as_slice() else { return None };
        let paths = [ContendedPath::from_flow(a)?, ContendedPath::from_flow(b)?];
        let rates = [rate(entry, 0)?, rate(entry, 1)?];
        let keeps = [rates[0] / alone.get(&paths[0])?, rates[1] / alone.get(&paths[1])?];
        Some(HostPair { paths, keeps, sum: rates[0] + rates[1], entry })
    };
    found.sets.iter().filter_map(pair).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let of = found(run, SUITE);
    let (pairs, groups) = (host_pairs(&of), host_groups(run, &of));
    let (together, shared) = (groups_sentence(&of, &groups), shared_sentence(&pairs));
    let figures = [
        alone(run, &of),
        interference(run, &pairs, shared.as_deref()),
        groups_figure(run, &groups, together.as_deref()),
        random(run),
    ];
    SuiteFindings::new(figures.into_iter().flatten(), [together, shared])
}

/// Rates of single paths, by their ends.
fn alone(run: &RunView, found: &ContentionData) -> Option<Figure> {
    let units = sorted(found.alone.iter().flat_map(|(f, _)| [f.src.unit, f.dst.unit]));
    let point = |(f, e): &(&Flow, &RunEntry)| (f.src.unit, f.dst.unit, run.cell(e, Payload));
    let pivot = CellPivot::over(&units, found.alone.iter().map(point));
    let matrix = pivot.matrix(("from", Unit::to_string), ("to", Unit::to_string), GBS);
    let paths = fmt::sentence(&fmt::count(found.alone.len(), "path"));
    let finding =
        format!("{paths} of the copy engines, each alone; between GPUs the source pushes.");
    let title = "Every path of the copy engines alone";
    let framed = frame(run, (SUITE, ""), "contention-alone", title).finding(finding);
    (!units.is_empty()).then(|| framed.draw(matrix))
}

/// Remaining share of each host path's rate while another one runs.
fn interference(run: &RunView, pairs: &[HostPair], shared: Option<&str>) -> Option<Figure> {
    let paths = sorted(pairs.iter().flat_map(|p| p.paths));
    let several = run.topology().numa.len() > 1;
    let label = |p: &ContendedPath| {
        let domain = if several { format!(" numa{}", p.domain) } else { String::new() };
        format!("gpu{} {}{domain}", p.gpu, p.direction.names().1)
    };
    let points = pairs.iter().flat_map(|pair| {
        let [of_a, of_b] =
            pair.keeps.map(|keeps| FigureCell::stated(pair.entry, Some(100.0 * keeps)));
        let [a, b] = pair.paths;
        [(a, b, of_a), (b, a, of_b)]
    });
    let pivot = CellPivot::over(&paths, points);
    let matrix = pivot.matrix(("path", label), ("during", label), OF_ALONE);
    let sharing = pairs.iter().filter(|p| p.keeps.iter().any(|&k| k < MIN_INDEPENDENT)).count();
    let (all, loss) = (fmt::count(pairs.len(), "pair"), fmt::percent(1.0 - MIN_INDEPENDENT));
    let finding = format!(
        "In {sharing} of {all} one path loses more than {loss} by the other. {}",
        shared.unwrap_or_default()
    );
    let title = "What a path of the host keeps of its rate during another one";
    let framed = frame(run, (SUITE, ""), "contention-pairs", title).finding(finding.trim());
    (!paths.is_empty()).then(|| framed.draw(matrix))
}

/// GPUs that slow each other pairwise in one direction, and the sum of two.
fn shared_sentence(pairs: &[HostPair]) -> Option<String> {
    let mut texts = Vec::new();
    for direction in [HostDirection::In, HostDirection::Out] {
        let gpus_of = |p: &HostPair| p.paths.map(|path| path.gpu);
        let same: Vec<&HostPair> = pairs
            .iter()
            .filter(|p| p.paths.iter().all(|path| path.direction == direction))
            .filter(|p| p.paths[0].gpu != p.paths[1].gpu)
            .collect();
        let slow = |a: u32, b: u32| {
            let of = |p: &&&HostPair| gpus_of(p).contains(&a) && gpus_of(p).contains(&b);
            let found = same.iter().find(of).copied();
            found.filter(|p| p.keeps.iter().sum::<f64>() < 2.0 * MIN_INDEPENDENT)
        };
        let mut groups: Vec<(Vec<u32>, Vec<f64>)> = Vec::new();
        for g in sorted(same.iter().flat_map(|p| gpus_of(p))) {
            let joins = |(group, _): &&mut (Vec<u32>, Vec<f64>)| {
                group.iter().all(|&other| slow(g, other).is_some())
            };
            match groups.iter_mut().find(joins) {
                Some((group, sums)) => {
                    sums.extend(group.iter().filter_map(|&other| Some(slow(g, other)?.sum)));
                    group.push(g);
                }
                None => groups.push((vec![g], Vec::new())),
            }
        }
        texts.extend(groups.into_iter().filter(|(group, _)| group.len() > 1).filter_map(
            |(group, sums)| {
                let names = fmt::list_any(group.iter().map(|g| format!("gpu{g}")))?;
                let any = if group.len() > 2 { ": any two" } else { "" };
                let (rates, way) = (fmt::range_any(sums)?, direction.names().0);
                Some(format!("{names}{any} together get {rates} GB/s {way}"))
            },
        ));
    }
    const MAX_NAMED: usize = 8;
    let more = texts.len().saturating_sub(MAX_NAMED);
    texts.truncate(MAX_NAMED);
    let rest = if more > 0 { format!("; and {more} more groups") } else { String::new() };
    fmt::join_any(texts, "; ").map(|all| format!("{all}{rest}."))
}

/// GPUs that copy at once with the host, in one direction or both.
struct GpuGroup<'b, 'a> {
    direction: &'static str,
    gpus: Vec<u32>,
    sum: f64,
    entry: &'b RunEntry<'a>,
}

fn host_groups<'b, 'a>(run: &RunView, found: &ContentionData<'b, 'a>) -> Vec<GpuGroup<'b, 'a>> {
    let group = |&entry: &&'b RunEntry<'a>| {
        let paths: Vec<ContendedPath> =
            entry.case.timed.iter().map(ContendedPath::from_flow).collect::<Option<_>>()?;
        let of = |direction: HostDirection| -> Vec<u32> {
            paths.iter().filter(|p| p.direction == direction).map(|p| p.gpu).collect()
        };
        let (direction, gpus) = match (of(HostDirection::In), of(HostDirection::Out)) {
            (inward, out) if out.is_empty() => ("in", inward),
            (inward, out) if inward.is_empty() => ("out", out),
            (inward, out) if inward == out => ("both ways", inward),
            _ => return None,
        };
        Some(GpuGroup { direction, gpus, sum: run.value(entry, Payload)?, entry })
    };
    found
        .sets
        .iter()
        .filter_map(group)
        .filter(|g| g.gpus.len() > 1 || g.direction == "both ways")
        .collect()
}

fn groups_figure(run: &RunView, groups: &[GpuGroup], sentence: Option<&str>) -> Option<Figure> {
    let mut bars = Vec::new();
    for direction in ["in", "out", "both ways"] {
        let same = || groups.iter().filter(|g| g.direction == direction);
        for size in sorted(same().map(|g| g.gpus.len())) {
            let mut of: Vec<&GpuGroup> = same().filter(|g| g.gpus.len() == size).collect();
            of.sort_by(|a, b| a.sum.total_cmp(&b.sum));
            let (Some(low), Some(high)) = (of.first(), of.last()) else { continue };
            let mut bar = |which: &str, g: &GpuGroup| {
                let gpus = g.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
                let which = match which {
                    "" => String::new(),
                    which => format!(", {which}: {gpus}"),
                };
                let label = format!("{} {direction}{which}", fmt::count(size, "GPU"));
                bars.push((label, whole(run, g.entry)));
            };
            if low.sum > ALIKE * high.sum {
                bar("", high);
            } else {
                bar("fastest", high);
                bar("slowest", low);
            }
        }
    }
    let finding = format!(
        "{} All flows of a group move equally much; its rate is their sum over the slowest's time. Where \
         groups of one size differ, what they share differs.",
        sentence.unwrap_or_default()
    );
    let title = "GPUs at once with the host, sum of all copies";
    frame(run, (SUITE, ""), "contention-groups", title).finding(finding.trim()).draw_bars(GBS, bars)
}

/// The rate of all copies of a set, which have no route in common.
fn whole(run: &RunView, entry: &RunEntry) -> FigureCell {
    FigureCell { path: None, ..run.cell(entry, Payload) }
}

/// All GPUs at once with the host: total rate, and its share of the sum of single rates.
fn groups_sentence(found: &ContentionData, groups: &[GpuGroup]) -> Option<String> {
    let all = groups.iter().map(|g| g.gpus.len()).max().filter(|&n| n > 1)?;
    let alone = |direction: HostDirection| -> f64 {
        let mut best: BTreeMap<u32, f64> = BTreeMap::new();
        for (flow, entry) in &found.alone {
            let path = ContendedPath::from_flow(flow).filter(|p| p.direction == direction);
            if let Some((path, rate)) = path.zip(rate(entry, 0)) {
                let known = best.entry(path.gpu).or_default();
                *known = known.max(rate);
            }
        }
        best.into_values().sum()
    };
    let part = |direction: &str| {
        let group = groups.iter().find(|g| g.gpus.len() == all && g.direction == direction)?;
        let most = match direction {
            "in" => alone(HostDirection::In),
            "out" => alone(HostDirection::Out),
            _ => alone(HostDirection::In) + alone(HostDirection::Out),
        };
        Some(format!("{} {direction}, {}", fmt::gbs(group.sum), fmt::percent(group.sum / most)))
    };
    let parts = fmt::join_any(["in", "out", "both ways"].into_iter().filter_map(part), "; ")?;
    Some(format!("Copying with the host at once, {all} GPUs move {parts} of what they have alone."))
}

/// Random sets by kind and size: the median of each.
fn random(run: &RunView) -> Option<Figure> {
    let sets = found(run, RANDOM).sets;
    let kind = |e: &RunEntry| {
        let host = e.case.timed.iter().filter(|f| ContendedPath::from_flow(f).is_some()).count();
        match host {
            0 => "between GPUs",
            n if n == e.case.timed.len() => "with the host",
            _ => "of both",
        }
    };
    const SIZES: [(usize, usize); 3] = [(2, 4), (5, 8), (9, 16)];
    let mut bars = Vec::new();
    for wanted in ["with the host", "between GPUs", "of both"] {
        for (low, high) in SIZES {
            let mut of: Vec<(f64, &RunEntry)> = sets
                .iter()
                .filter(|e| kind(e) == wanted && (low..=high).contains(&e.case.timed.len()))
                .filter_map(|e| Some((run.value(e, Payload)?, *e)))
                .collect();
            of.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, entry)) = of.get(of.len() / 2) else { continue };
            let label = format!("{low} to {high} copies {wanted}, the median of {}", of.len());
            bars.push((label, whole(run, entry)));
        }
    }
    let finding = format!(
        "{}. A set's rate is the sum of its bytes over the time of the slowest copy; sizes differ, so that \
         it is no bound. `pathline model predict --against` holds them against a description.",
        fmt::sentence(&fmt::count(sets.len(), "random set"))
    );
    frame(run, (RANDOM, ""), RANDOM.word(), "Random sets of copies at once")
        .finding(finding)
        .draw_bars(GBS, bars)
}
