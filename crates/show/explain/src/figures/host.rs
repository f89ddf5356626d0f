//! The processor and its memory: copies, reads, load latency, first touch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, Flow, Mover, SuiteId, Unit};

use super::first_touch::{touch_cost, touch_figure};
use super::pivot::{CellPivot, CellUnit, GBS, NS, most};
use super::{
    BetterWhen, ChartLine, CurvesBody, Figure, FigureCell, SuiteFindings, frame, is_apart,
    is_precise, lines, sorted,
};
use crate::fmt;
use crate::run::CaseQuantity::{self, Payload, StepNs, Traffic};
use crate::run::{RunEntry, RunView, is_stream, memories};

const SUITE: SuiteId = SuiteId::Host;
const BOTH_GBS: CellUnit = ("GB/s read + written", BetterWhen::Higher);

/// Size at which memory domains are compared: larger than the caches, and small enough to fit
/// everywhere.
const COMPARED_BYTES: Bytes = Bytes::mib(256);

/// A loop of the processor.
#[derive(Clone, Copy)]
struct HostLoop<'b, 'a> {
    work: CpuWork,
    threads: u32,
    flow: &'a Flow,
    entry: &'b RunEntry<'a>,
}

impl<'b, 'a> HostLoop<'b, 'a> {
    fn new(entry: &'b RunEntry<'a>) -> Option<Self> {
        let flow = entry.lone()?;
        let Mover::Cpu { work, threads, .. } = flow.by else { return None };
        Some(Self { work, threads, flow, entry })
    }
    /// Domains of the memory and the cores, if all data is in one domain.
    fn domain(&self) -> Option<(Unit, Unit)> {
        let (src, dst) = memories(self.flow);
        (src == dst).then_some((src, self.flow.by.at()))
    }
    fn size(&self) -> f64 {
        self.flow.bytes.as_f64()
    }
}

fn loops<'b, 'a>(run: &'b RunView<'a>) -> impl Iterator<Item = HostLoop<'b, 'a>> {
    run.entries.iter().filter_map(HostLoop::new)
}

/// The size at which thread counts and domains are compared: the one with the most thread counts,
/// then with the most loops over memory of other domains. The suite derives it from the caches.
fn compared(run: &RunView) -> Bytes {
    let mut sizes: BTreeMap<Bytes, (BTreeSet<u32>, usize)> = BTreeMap::new();
    for l in loops(run).filter(|l| is_stream(l.flow)) {
        let (counts, far) = sizes.entry(l.flow.bytes).or_default();
        counts.insert(l.threads);
        *far += usize::from(l.domain().is_some_and(|(memory, cores)| memory != cores));
    }
    let most = sizes.into_iter().max_by_key(|(bytes, (counts, far))| {
        (counts.len(), *far, *bytes == COMPARED_BYTES, *bytes)
    });
    most.map_or(COMPARED_BYTES, |(bytes, _)| bytes)
}

/// The domain whose own cores were measured at the most sizes; the first of equal ones, so that a
/// report does not depend on the order of cases.
fn main_domain(run: &RunView) -> Option<Unit> {
    let mut sizes: BTreeMap<Unit, BTreeSet<Bytes>> = BTreeMap::new();
    for l in loops(run) {
        if let Some((memory, _)) = l.domain().filter(|(memory, cores)| memory == cores) {
            sizes.entry(memory).or_default().insert(l.flow.bytes);
        }
    }
    sizes.into_iter().min_by_key(|(_, seen)| Reverse(seen.len())).map(|(unit, _)| unit)
}

/// Loops over the main domain's memory by its own cores.
fn near<'b, 'a>(run: &'b RunView<'a>) -> Vec<HostLoop<'b, 'a>> {
    let Some(home) = main_domain(run) else { return Vec::new() };
    let mut found: Vec<_> = loops(run).filter(|l| l.domain() == Some((home, home))).collect();
    found.sort_by_key(|l| (l.work, l.threads, l.flow.bytes));
    found
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let loops = near(run);
    let crossovers = crossovers(run, &loops);
    let points = chase_points(run, &loops);
    let touches = loops.iter().filter(|l| l.work.op == CpuOp::Touch).map(|l| l.entry);
    let touch = touch_cost(run, &touches.collect::<Vec<_>>());
    let mut figures = copies(run, &loops, &crossovers);
    figures.extend(streams(run, &loops));
    figures.extend(threads(run, &loops));
    figures.extend(chase(run, &points));
    figures.extend(numa(run));
    figures.extend(touch_figure(run, &touch));
    // With all cores busy, as in an application; the case with one thread is in its figure.
    let crossover = crossovers.last().map(StoreCrossover::text);
    let sentences = [rates(run), crossover, load_latency(run, &points), touch.sentence()];
    SuiteFindings::new(figures, sentences)
}

/// The fastest loop over host memory, its lead over the others, and the rate of one thread.
fn rates(run: &RunView) -> Option<String> {
    let rate = |entry| {
        let l = HostLoop::new(entry)?;
        let (limit, _) = run.limits(entry.case, Traffic);
        let cell = run.cell(entry, Traffic);
        // A chase waits for each load and a touch for page faults: neither shows memory's rate, nor do
        // blocks that fit into caches.
        let past = is_stream(l.flow) && limit.is_some() && run.past_caches(l.flow);
        Some((cell.value.filter(|_| past)?, (l, cell)))
    };
    let rates: Vec<(f64, (HostLoop, FigureCell))> = run.suite(SUITE).filter_map(rate).collect();
    let (value, (best, cell)) = most(rates.iter().map(|(value, rate)| (*value, rate)))?;
    let (size, threads) = (best.flow.bytes.rounded(), fmt::threads(best.threads));
    let by = format!("{} over {size}, {threads}", best.work);
    let within = fmt::gbs_within(cell)?;
    if !is_precise(cell) {
        return Some(format!(
            "The rate of host memory is uncertain: the fastest loop past the caches gave {within} read + \
             written ({by})."
        ));
    }
    let meets = |other: &FigureCell| other.has_interval() && !is_apart(other, cell);
    let equal = rates.iter().filter(|rate| meets(&rate.1.1)).count().saturating_sub(1);
    let lead = match equal {
        0 => format!("fastest of {} past the caches", fmt::count(rates.len(), "loop")),
        1 => "another loop past the caches lies within its interval".to_owned(),
        n => format!("{n} other loops past the caches lie within its interval"),
    };
    let one = rates.iter().filter(|rate| rate.1.0.threads == 1 && best.threads > 1);
    let one = one.map(|rate| rate.0).max_by(f64::total_cmp).map_or(String::new(), |one| {
        format!("; one thread gets {} of that", fmt::percent(one / value))
    });
    Some(format!("Host memory gives {within} read + written ({by}; {lead}){one}."))
}

/// A cache is visible if a load from it takes less than this share of a load from memory.
const CACHE_IS_SEEN: f64 = 0.8;

/// Latency of each cache, and of memory.
fn load_latency(run: &RunView, points: &[(Bytes, FigureCell)]) -> Option<String> {
    let precise = points.iter().filter(|(_, cell)| is_precise(cell));
    let points: Vec<(Bytes, f64)> =
        precise.filter_map(|(b, cell)| Some((*b, cell.value?))).collect();
    let &(largest, memory) = points.last()?;
    let (mut parts, mut unseen) = (Vec::new(), String::new());
    let mut below = Bytes(0);
    for (level, size) in run.cache_levels() {
        // Half of a cache certainly fits: pages and other data share the rest.
        let inside = points.iter().filter(|(b, _)| *b > below && b.0 <= size.0 / 2);
        match inside.max_by_key(|(b, _)| *b).map(|(b, ns)| (*b, *ns, fmt::number(*ns))) {
            Some((bytes, ns, text)) if ns > CACHE_IS_SEEN * memory && bytes < largest => {
                let (bytes, size) = (bytes.rounded(), size.rounded());
                unseen = format!(
                    "; {bytes} takes {text} ns, though the system reports an L{level} of {size}: this \
                     machine has a smaller share of it, or it was busy"
                );
            }
            Some((.., text)) => parts.push(format!("{text} ns in L{level}")),
            None => (),
        }
        below = Bytes(size.0 / 2);
    }
    parts.push(format!("{} ns over {}", fmt::number(memory), largest.rounded()));
    Some(format!("A dependent load takes {}{unseen}.", fmt::list(&parts)))
}

/// Crossover of streaming and ordinary stores, for one number of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreCrossover {
    /// Number of threads.
    pub threads: u32,
    /// Smallest size from which streaming stores stay ahead by more than both 95 % intervals, and
    /// their gain there; `None` if they are not ahead at the largest size.
    pub at: Option<(Bytes, f64)>,
    /// Smallest and largest size at which both were measured.
    pub sizes: (Bytes, Bytes),
    /// Best streaming copy at the largest size, and its rate.
    pub streaming: (CpuHow, f64),
    /// Best copy there whose stores go through the caches.
    pub temporal: (CpuHow, f64),
    /// The C library's copy there.
    memcpy: Option<MemcpyRate>,
    /// Whether the 95 % intervals of the two are disjoint there.
    pub sure: bool,
}

/// The C library's copy at the largest size. It selects its stores by size, so it is neither a
/// streaming nor a temporal copy.
#[derive(Debug, Clone, Copy, PartialEq)]
struct MemcpyRate {
    rate: f64,
    /// Whether its interval and that of the best other copy are disjoint.
    sure: bool,
    /// Whether glibc itself selects streaming stores at this size: on x86-64 from about 3/4 of the
    /// shared cache (sysdeps/x86/dl-cacheinfo.h, `non_temporal_threshold`).
    streams: bool,
}

impl StoreCrossover {
    /// Gain of the streaming copy at the largest size: 0.3 is 30 % more.
    fn gain(&self) -> f64 {
        self.streaming.1 / self.temporal.1 - 1.0
    }
    fn text(&self) -> String {
        let ((nt, nt_rate), (t, t_rate)) = (self.streaming, self.temporal);
        let (first, last) = (self.sizes.0.rounded(), self.sizes.1.rounded());
        let gain = fmt::percent(self.gain().abs());
        let rates = format!("{} against {}", fmt::gbs(nt_rate), fmt::gbs(t_rate));
        let overtake = "non-temporal copies overtake the best temporal one";
        let ahead = format!("{nt} is ahead of {t} by {gain} ({rates})");
        let verdict = match self.at {
            Some((at, _)) if at == self.sizes.0 => {
                format!(
                    "non-temporal copies lead from the smallest size on, {first}; at {last} {ahead}"
                )
            }
            Some((at, _)) if at == self.sizes.1 => {
                format!("{overtake} only at {last}, where {ahead}")
            }
            Some((at, there)) => {
                let (at, there) = (at.rounded(), fmt::percent(there));
                format!("{overtake} at {at}, by {there} there; at {last} {ahead}")
            }
            None if self.sure => format!(
                "non-temporal copies do not overtake up to {last}: {nt} is behind {t} by {gain} ({rates})"
            ),
            None => format!(
                "it is not certain that non-temporal copies overtake up to {last}: {nt} and {t} lie {gain} \
                 apart, and their intervals overlap ({rates})"
            ),
        };
        format!("With {}, {verdict}{}.", fmt::threads(self.threads), self.memcpy_clause())
    }

    /// The C library's copy compared with the better of the two.
    fn memcpy_clause(&self) -> String {
        let Some(memcpy) = self.memcpy else { return String::new() };
        let by = if memcpy.streams { ", where it streams by itself" } else { "" };
        let best = self.streaming.1.max(self.temporal.1);
        let (at, rate) = (self.sizes.1.rounded(), fmt::gbs(memcpy.rate));
        match memcpy.rate / best - 1.0 {
            gain if gain > 0.0 && memcpy.sure => {
                format!("; memcpy is ahead of both at {at} by {} ({rate}){by}", fmt::percent(gain))
            }
            _ => format!("; memcpy reaches {rate} at {at}{by}"),
        }
    }
}

/// Crossovers of streaming and ordinary stores, for every number of threads measured at several
/// sizes, in ascending order.
pub fn store_crossovers(run: &RunView) -> Vec<StoreCrossover> {
    crossovers(run, &near(run))
}

fn crossovers(run: &RunView, loops: &[HostLoop]) -> Vec<StoreCrossover> {
    let counts = sorted(loops.iter().map(|l| l.threads));
    counts.into_iter().filter_map(|threads| crossover(run, loops, threads)).collect()
}

fn crossover(run: &RunView, loops: &[HostLoop], threads: u32) -> Option<StoreCrossover> {
    let chosen = loops.iter().filter(|l| l.work.op == CpuOp::Copy && l.threads == threads);
    let copy = |l: &HostLoop| {
        let cell = run.cell(l.entry, Payload);
        Some((l.work.how, l.flow.bytes, cell.value?, cell.half_width))
    };
    let copies: Vec<(CpuHow, Bytes, f64, f64)> = chosen.filter_map(copy).collect();
    let best = |bytes: Bytes, streaming: bool| {
        let of = copies.iter().filter(|(how, b, ..)| {
            *b == bytes && how.is_streaming() == streaming && *how != CpuHow::Memcpy
        });
        of.max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let both = |bytes| Some((bytes, best(bytes, true)?, best(bytes, false)?));
    let both: Vec<_> = sorted(copies.iter().map(|c| c.1)).into_iter().filter_map(both).collect();
    let (&(smallest, ..), &(largest, nt, t)) = (both.first()?, both.last()?);
    if both.len() < 2 {
        return None;
    }
    let sure = (nt.2 - t.2).abs() > nt.3 + t.3;
    // Ahead by more than both intervals, at this size and at every larger one.
    let ahead = both.iter().rev().take_while(|(_, nt, t)| nt.2 - nt.3 > t.2 + t.3).last();
    let at = ahead.map(|(bytes, nt, t)| (*bytes, nt.2 / t.2 - 1.0));
    let memcpy = copies.iter().find(|c| c.0 == CpuHow::Memcpy && c.1 == largest);
    let better = if nt.2 > t.2 { nt } else { t };
    Some(StoreCrossover {
        threads,
        at,
        sizes: (smallest, largest),
        streaming: (nt.0, nt.2),
        temporal: (t.0, t.2),
        memcpy: memcpy.map(|c| MemcpyRate {
            rate: c.2,
            sure: (c.2 - better.2).abs() > c.3 + better.3,
            streams: memcpy_streams(run, largest, threads),
        }),
        sure,
    })
}

/// Whether glibc's memcpy certainly selects streaming stores: each thread calls it for its share of
/// the bytes.
fn memcpy_streams(run: &RunView, bytes: Bytes, threads: u32) -> bool {
    let cache = main_domain(run).map_or(0, |home| run.last_cache(home));
    run.topology().host.arch == "x86_64" && cache > 0 && bytes.0 / u64::from(threads.max(1)) > cache
}

/// Cache sizes as vertical marks.
fn cache_marks(run: &RunView) -> Vec<(f64, String)> {
    let levels = run.cache_levels();
    levels.iter().map(|(n, size)| (size.as_f64(), format!("L{n} {}", size.rounded()))).collect()
}

/// The measured ceiling of the main domain's memory, for `arrays` bytes of traffic per byte of
/// payload.
fn ceiling(run: &RunView, arrays: f64) -> Vec<(String, f64)> {
    let best = main_domain(run).and_then(|home| run.best_of(home, home));
    let name = |by: &str| format!("best of this memory, measured: {by}");
    best.map(|b| (name(&b.by), b.rate / arrays)).into_iter().collect()
}

fn copies(run: &RunView, loops: &[HostLoop], crossovers: &[StoreCrossover]) -> Vec<Figure> {
    let figure = |threads: u32| {
        let chosen = loops.iter().filter(|l| l.work.op == CpuOp::Copy && l.threads == threads);
        let point = |l: &HostLoop| (l.work.how.to_string(), l.size(), run.cell(l.entry, Payload));
        let lines = lines(chosen.map(point));
        if lines.iter().all(|l| l.points.len() < 2) {
            return None;
        }
        let crossover = crossovers.iter().find(|c| c.threads == threads);
        let finding =
            crossover.map_or_else(|| best_at_largest(&lines, "copy"), StoreCrossover::text);
        let ahead = crossover
            .and_then(|c| c.at)
            .map(|(at, _)| (at.as_f64(), format!("non-temporal ahead from {}", at.rounded())));
        let marks = cache_marks(run).into_iter().chain(ahead).collect();
        let (id, cases) = (
            format!("host-copy-t{threads}"),
            format!("numa*.huge > numa*.huge by cpu@*[copy-*-t{threads}]"),
        );
        let title = format!("Copy by {}, by size of the block", fmt::threads(threads));
        let curves = CurvesBody::new("B", GBS, lines);
        let curves = CurvesBody { ceilings: ceiling(run, 2.0), marks, ..curves };
        Some(frame(run, (SUITE, &cases), id, title).finding(finding).draw(curves))
    };
    sorted(loops.iter().map(|l| l.threads)).into_iter().filter_map(figure).collect()
}

/// `At 1GiB the fastest loop is read, 2 threads with 20.1 GB/s.`
fn best_at_largest(lines: &[ChartLine], what: &str) -> String {
    let last = |l: &ChartLine| l.points.last().and_then(|(x, c)| Some((c.value?, *x)));
    let best = most(lines.iter().filter_map(|l| last(l).map(|(value, x)| (value, (x, &l.name)))));
    best.map_or(String::new(), |(value, (x, name))| {
        let at = Bytes(x as u64).rounded();
        format!("At {at} the fastest {what} is {name} with {}.", fmt::gbs(value))
    })
}

fn streams(run: &RunView, loops: &[HostLoop]) -> Option<Figure> {
    let wanted = |l: &&HostLoop| matches!(l.work.op, CpuOp::Read | CpuOp::Write | CpuOp::Triad);
    let mut lines = lines(loops.iter().filter(wanted).map(|l| {
        let name = format!("{}, {}", l.work, fmt::threads(l.threads));
        (name, l.size(), run.cell(l.entry, Traffic))
    }));
    lines.retain(|l| l.points.len() > 1);
    if lines.is_empty() {
        return None;
    }
    let best = main_domain(run).and_then(|home| run.best_of(home, home));
    let best = best.map_or(String::new(), |b| {
        let (rate, by) = (fmt::gbs(b.rate), &b.by);
        format!(" The best of this memory, as measured and not from a datasheet, is {rate} ({by}).")
    });
    let finding = best_at_largest(&lines, "loop") + &best;
    let (ceilings, marks) = (ceiling(run, 1.0), cache_marks(run));
    let curves = CurvesBody { ceilings, marks, ..CurvesBody::new("B", BOTH_GBS, lines) };
    let title = "Read, write and triad, by size of the block";
    Some(frame(run, (SUITE, ""), "host-streams", title).finding(finding).draw(curves))
}

fn threads(run: &RunView, loops: &[HostLoop]) -> Option<Figure> {
    let size = compared(run);
    let at_size = loops.iter().filter(|l| l.flow.bytes == size && l.work.op != CpuOp::Chase);
    let mut lines = lines(
        at_size.map(|l| (l.work.to_string(), f64::from(l.threads), run.cell(l.entry, Traffic))),
    );
    lines.retain(|l| l.points.len() > 2);
    let best = lines.iter().filter_map(|l| {
        let values = || l.points.iter().filter_map(|(x, c)| Some((c.value?, *x)));
        let (top, x) = most(values())?;
        // The fewest threads within 5 % of the best: more would only consume power.
        Some((top, (&l.name, values().find(|v| v.0 >= 0.95 * top).map_or(x, |v| v.1))))
    });
    let (top, (name, enough)) = most(best)?;
    let (top, share, enough) = (fmt::gbs(top), fmt::percent(0.95), fmt::threads(enough as u32));
    let finding = format!("{name} reaches {top}; {share} of it needs {enough}.");
    let curves = CurvesBody::new("threads", BOTH_GBS, lines);
    let title = format!("Rate by number of threads, blocks of {size}");
    let framed = frame(run, (SUITE, &format!("* > * by cpu x {size}")), "host-threads", title);
    Some(framed.finding(finding).draw(CurvesBody { ceilings: ceiling(run, 1.0), ..curves }))
}

/// Load latency in ns by working set, in the main domain.
fn chase_points(run: &RunView, loops: &[HostLoop]) -> Vec<(Bytes, FigureCell)> {
    let chases = loops.iter().filter(|l| l.work.op == CpuOp::Chase);
    let cells = chases.map(|l| (l.flow.bytes, run.cell(l.entry, StepNs)));
    cells.filter(|(_, cell)| cell.value.is_some()).collect()
}

fn chase(run: &RunView, points: &[(Bytes, FigureCell)]) -> Option<Figure> {
    let mut lines = lines(loops(run).filter(|l| l.work.op == CpuOp::Chase).filter_map(|l| {
        let name = match l.domain()? {
            (memory, cores) if memory == cores => format!("{memory}, its own cores"),
            (memory, cores) => format!("{memory} from {cores}"),
        };
        Some((name, l.size(), run.cell(l.entry, StepNs)))
    }));
    lines.retain(|l| l.points.len() > 1);
    let (first, last) = (points.first()?, points.last()?);
    let (low, high) = (first.1.value?, last.1.value?);
    let (from, to) = (first.0.rounded(), last.0.rounded());
    let [least, most, factor] = [low, high, high / low].map(fmt::number);
    let finding = format!("{least} ns in {from}, {most} ns in {to}: a factor of {factor}.");
    let curves = CurvesBody { marks: cache_marks(run), ..CurvesBody::new("B", NS, lines) };
    let title = "Latency of a dependent load, by working set";
    let framed = frame(run, (SUITE, "* > * by cpu@*[chase-*]"), "host-latency", title);
    (!curves.lines.is_empty()).then(|| framed.finding(finding).draw(curves))
}

/// Cores by memory domain, if there are several.
fn numa(run: &RunView) -> Vec<Figure> {
    let cores = sorted(loops(run).filter_map(|l| l.flow.by.at().numa().map(Unit::Numa)));
    let memories = sorted(loops(run).filter_map(|l| Some(l.domain()?.0)));
    if cores.len().max(memories.len()) < 2 {
        return Vec::new();
    }
    let size = compared(run);
    let figure = |(id, title, op, quantity): (&str, &str, CpuOp, CaseQuantity)| {
        let unit = quantity.rating();
        let pivot = CellPivot::filled(&cores, &memories, |&at, &memory| {
            let of = |l: &HostLoop| l.work.op == op && l.domain() == Some((memory, at));
            let fits = loops(run).filter(|l| of(l) && l.flow.bytes <= size);
            let found = fits.max_by_key(|l| (l.threads, l.flow.bytes));
            found.map(|l| run.cell(l.entry, quantity)).unwrap_or_default()
        });
        let part = |name: &str, own: bool| {
            let cells = pivot.cells().filter(|(at, memory, _)| (at == memory) == own);
            let range = fmt::range_any(cells.filter_map(|(.., cell)| cell.value))?;
            Some(format!("{name} {range} {}", unit.0))
        };
        let parts = [part("own memory", true), part("another domain's", false)];
        let finding = fmt::join_any(parts.into_iter().flatten(), ", ")?;
        let matrix = pivot.matrix(("cores", Unit::to_string), ("memory", Unit::to_string), unit);
        let cases = format!("* > * by cpu@*[{op}-*]");
        let finding = fmt::sentence(&format!("{finding}."));
        Some(frame(run, (SUITE, &cases), id, title).finding(finding).draw(matrix))
    };
    let all = [
        ("host-numa-read", "Reading every domain's memory, all threads", CpuOp::Read, Payload),
        ("host-numa-write", "Writing every domain's memory, all threads", CpuOp::Write, Payload),
        ("host-numa-latency", "Load latency of every domain's memory", CpuOp::Chase, StepNs),
    ];
    all.into_iter().filter_map(figure).collect()
}
