//! The processor and its memory: copies, reads, load latency, first touch.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, Flow, Mover, SuiteId, Unit};

use super::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureCell, SuiteFindings,
    frame, grid, is_apart, is_precise, lines,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Host;

/// Size at which memory domains are compared: larger than the caches, and small enough to fit
/// everywhere.
const COMPARED_BYTES: Bytes = Bytes::mib(256);

/// A CPU loop: work, threads, flow.
fn loop_of<'a>(entry: &RunEntry<'a>) -> Option<(CpuWork, u32, &'a Flow)> {
    let flow = entry.lone()?;
    match flow.by {
        Mover::Cpu { work, threads, .. } => Some((work, threads, flow)),
        _ => None,
    }
}

/// Domains of the memory and the cores of a flow, if all data is in one domain.
fn domain(flow: &Flow) -> Option<(Unit, Unit)> {
    let cores = flow.by.at();
    match (flow.src.mem, flow.dst.mem) {
        (pathline_schema::MemKind::Reg, _) => Some((flow.dst.unit, cores)),
        (_, pathline_schema::MemKind::Reg) => Some((flow.src.unit, cores)),
        _ => (flow.src.unit == flow.dst.unit).then_some((flow.src.unit, cores)),
    }
}

/// The size at which thread counts and domains are compared: the one with the most thread counts,
/// then with the most loops over memory of other domains. The suite derives it from the caches.
fn compared(run: &RunView) -> Bytes {
    let mut sizes: BTreeMap<Bytes, (BTreeSet<u32>, usize)> = BTreeMap::new();
    let loops = run.entries.iter().filter_map(loop_of);
    for (_, threads, flow) in loops.filter(|l| !matches!(l.0.op, CpuOp::Chase | CpuOp::Touch)) {
        let (counts, far) = sizes.entry(flow.bytes).or_default();
        counts.insert(threads);
        *far += usize::from(domain(flow).is_some_and(|(memory, cores)| memory != cores));
    }
    let most = sizes.into_iter().max_by_key(|(bytes, (counts, far))| {
        (counts.len(), *far, *bytes == COMPARED_BYTES, *bytes)
    });
    most.map_or(COMPARED_BYTES, |(bytes, _)| bytes)
}

/// The domain whose own cores were measured at the most sizes.
fn main_domain(run: &RunView) -> Option<Unit> {
    let mut sizes: Vec<(Unit, BTreeSet<Bytes>)> = Vec::new();
    for entry in &run.entries {
        let Some((_, _, flow)) = loop_of(entry) else { continue };
        let Some((memory, cores)) = domain(flow).filter(|(m, c)| m == c) else { continue };
        match sizes.iter_mut().find(|(unit, _)| *unit == memory) {
            Some((_, seen)) => drop(seen.insert(flow.bytes)),
            None => sizes.push((cores, BTreeSet::from([flow.bytes]))),
        }
    }
    // The first of equal ones, so that a report does not depend on the order of cases.
    sizes.sort_by_key(|(unit, seen)| (std::cmp::Reverse(seen.len()), *unit));
    sizes.first().map(|(unit, _)| *unit)
}

/// Loops over the main domain's memory by its own cores.
fn near<'b, 'a>(run: &'b RunView<'a>) -> Vec<HostLoop<'b, 'a>> {
    let Some(home) = main_domain(run) else { return Vec::new() };
    let mut found: Vec<_> = run
        .entries
        .iter()
        .filter_map(|entry| {
            let (work, threads, flow) = loop_of(entry)?;
            (domain(flow)? == (home, home)).then_some((work, threads, flow.bytes, entry))
        })
        .collect();
    found.sort_by_key(|&(work, threads, bytes, _)| (work, threads, bytes));
    found
}

/// A loop of the main domain: work, threads, size, entry.
type HostLoop<'b, 'a> = (CpuWork, u32, Bytes, &'b RunEntry<'a>);

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let loops = near(run);
    let crossovers = crossovers(run, &loops);
    let points = chase_points(run, &loops);
    let touch = touch_cost(run, &loops);
    let mut figures = copies(run, &loops, &crossovers);
    figures.extend(streams(run, &loops));
    figures.extend(threads(run, &loops));
    figures.extend(chase(run, &points));
    figures.extend(numa(run));
    figures.extend(touch_figure(run, &touch));
    // With all cores busy, as in an application; the case with one thread is in its figure.
    let crossover = crossovers.last().map(|c| fmt::sentence(&format!("{}.", c.sentence())));
    let sentences = [rates(run), crossover, load_latency(run, &points), touch.sentence()];
    SuiteFindings::new(figures, sentences)
}

/// A rate of the host's memory: threads, cell, name.
type MemoryRate = (u32, FigureCell, String);

/// The fastest loop over host memory, its lead over the others, and the rate of one thread.
fn rates(run: &RunView) -> Option<String> {
    let mut rates: Vec<MemoryRate> = Vec::new();
    for entry in run.entries.iter().filter(|e| e.is_in(SuiteId::Host)) {
        let Some(flow) = entry.lone() else { continue };
        let Mover::Cpu { work, threads, .. } = flow.by else { continue };
        // A chase waits for each load and a touch for page faults: neither shows memory's rate.
        if matches!(work.op, CpuOp::Chase | CpuOp::Touch) {
            continue;
        }
        let (limit, _) = run.limits(entry.case, CaseQuantity::Traffic);
        let cell = run.cell(entry, CaseQuantity::Traffic);
        // Blocks that fit into caches do not have memory's rate.
        if limit.is_some() && run.past_caches(flow) && cell.value.is_some() {
            rates.push((threads, cell, format!("{work} over {}", flow.bytes.rounded())));
        }
    }
    let value = |rate: &MemoryRate| rate.1.value.unwrap_or(0.0);
    let faster = |a: &&MemoryRate, b: &&MemoryRate| value(a).total_cmp(&value(b));
    let best = rates.iter().max_by(faster)?;
    let by = format!("{}, {}", best.2, fmt::threads(best.0));
    if !is_precise(&best.1) {
        return Some(format!(
            "The rate of host memory is uncertain: the fastest loop past the caches gave {} read + \
             written ({by}).",
            fmt::gbs_within(&best.1)?
        ));
    }
    let meets = |rate: &&MemoryRate| rate.1.has_interval() && !is_apart(&rate.1, &best.1);
    let equal = rates.iter().filter(meets).count().saturating_sub(1);
    let lead = match equal {
        0 => format!("fastest of {} past the caches", fmt::count(rates.len(), "loop")),
        1 => "another loop past the caches lies within its interval".to_owned(),
        n => format!("{n} other loops past the caches lie within its interval"),
    };
    let one = rates.iter().filter(|rate| rate.0 == 1 && best.0 > 1).max_by(faster);
    let one = one.map_or(String::new(), |one| {
        format!("; one thread gets {} of that", fmt::percent(value(one) / value(best)))
    });
    Some(format!(
        "Host memory gives {} read + written ({by}; {lead}){one}.",
        fmt::gbs_within(&best.1)?
    ))
}

/// A cache is visible if a load from it takes less than this share of a load from memory.
const CACHE_IS_SEEN: f64 = 0.8;

/// Latency of each cache, and of memory.
fn load_latency(run: &RunView, points: &[(Bytes, FigureCell)]) -> Option<String> {
    let precise = |(bytes, cell): &(Bytes, FigureCell)| {
        cell.value.filter(|_| is_precise(cell)).map(|ns| (*bytes, ns))
    };
    let points: Vec<(Bytes, f64)> = points.iter().filter_map(precise).collect();
    let &(largest, memory) = points.last()?;
    let (mut parts, mut unseen) = (Vec::new(), String::new());
    let mut below = Bytes(0);
    for (level, size) in run.cache_levels() {
        // Half of a cache certainly fits: pages and other data share the rest.
        let inside = points.iter().filter(|(b, _)| *b > below && b.0 <= size.0 / 2);
        match inside.max_by_key(|(b, _)| *b) {
            Some((bytes, ns)) if *ns > CACHE_IS_SEEN * memory && *bytes < largest => {
                unseen = format!(
                    "; {} takes {} ns, though the system reports an L{level} of {}: this machine \
                     has a smaller share of it, or it was busy",
                    bytes.rounded(),
                    fmt::number(*ns),
                    size.rounded()
                );
            }
            Some((_, ns)) => parts.push(format!("{} ns in L{level}", fmt::number(*ns))),
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
    fn sentence(&self) -> String {
        let ((nt, nt_rate), (t, t_rate)) = (self.streaming, self.temporal);
        let (first, last) = (self.sizes.0.rounded(), self.sizes.1.rounded());
        let gain = fmt::percent(self.gain().abs());
        let rates = format!("{} against {}", fmt::gbs(nt_rate), fmt::gbs(t_rate));
        let verdict = match self.at {
            Some((at, _)) if at == self.sizes.0 => format!(
                "non-temporal copies lead from the smallest size on, {first}; at {last} {nt} is ahead of {t} by {gain} ({rates})"
            ),
            Some((at, _)) if at == self.sizes.1 => format!(
                "non-temporal copies overtake the best temporal one only at {last}, where {nt} is ahead of {t} by {gain} ({rates})"
            ),
            Some((at, there)) => format!(
                "non-temporal copies overtake the best temporal one at {}, by {} there; at {last} {nt} is ahead of {t} by {gain} ({rates})",
                at.rounded(),
                fmt::percent(there),
            ),
            None if self.sure => format!(
                "non-temporal copies do not overtake up to {last}: {nt} is behind {t} by {gain} ({rates})"
            ),
            None => format!(
                "it is not certain that non-temporal copies overtake up to {last}: {nt} and {t} lie {gain} apart, and their intervals overlap ({rates})"
            ),
        };
        format!("with {}, {verdict}{}", fmt::threads(self.threads), self.memcpy_clause())
    }

    /// The C library's copy compared with the better of the two.
    fn memcpy_clause(&self) -> String {
        let Some(memcpy) = self.memcpy else { return String::new() };
        let by = if memcpy.streams { ", where it streams by itself" } else { "" };
        let best = self.streaming.1.max(self.temporal.1);
        let at = self.sizes.1.rounded();
        match memcpy.rate / best - 1.0 {
            gain if gain > 0.0 && memcpy.sure => format!(
                "; memcpy is ahead of both at {at} by {} ({}){by}",
                fmt::percent(gain),
                fmt::gbs(memcpy.rate)
            ),
            _ => format!("; memcpy reaches {} at {at}{by}", fmt::gbs(memcpy.rate)),
        }
    }
}

/// Crossovers of streaming and ordinary stores, for every number of threads measured at several
/// sizes, in ascending order.
pub fn store_crossovers(run: &RunView) -> Vec<StoreCrossover> {
    crossovers(run, &near(run))
}

fn crossovers(run: &RunView, loops: &[HostLoop]) -> Vec<StoreCrossover> {
    let counts: BTreeSet<u32> = loops.iter().map(|l| l.1).collect();
    counts.into_iter().filter_map(|threads| crossover(run, loops, threads)).collect()
}

fn crossover(run: &RunView, loops: &[HostLoop], threads: u32) -> Option<StoreCrossover> {
    let copies: Vec<(CpuHow, Bytes, f64, f64)> = loops
        .iter()
        .filter(|(work, t, ..)| work.op == CpuOp::Copy && *t == threads)
        .filter_map(|(work, _, bytes, entry)| {
            let cell = run.cell(entry, CaseQuantity::Payload);
            Some((work.how, *bytes, cell.value?, cell.half_width))
        })
        .collect();
    let best = |bytes: Bytes, streaming: bool| {
        copies
            .iter()
            .filter(|(how, b, ..)| *b == bytes && how.is_streaming() == streaming)
            .filter(|(how, ..)| *how != CpuHow::Memcpy)
            .max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let sizes: BTreeSet<Bytes> = copies.iter().map(|c| c.1).collect();
    let both: Vec<_> = sizes
        .into_iter()
        .filter_map(|bytes| Some((bytes, best(bytes, true)?, best(bytes, false)?)))
        .collect();
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
    let counts: BTreeSet<u32> = loops.iter().map(|l| l.1).collect();
    let mut figures = Vec::new();
    for threads in counts {
        let chosen = loops.iter().filter(|l| l.0.op == CpuOp::Copy && l.1 == threads);
        let lines = lines(chosen.map(|(work, _, bytes, entry)| {
            (work.how.to_string(), bytes.as_f64(), run.cell(entry, CaseQuantity::Payload))
        }));
        if lines.iter().all(|l| l.points.len() < 2) {
            continue;
        }
        let crossover = crossovers.iter().find(|c| c.threads == threads);
        let mut marks = cache_marks(run);
        if let Some((at, _)) = crossover.and_then(|c| c.at) {
            marks.push((at.as_f64(), format!("non-temporal ahead from {}", at.rounded())));
        }
        figures.push(
            frame(
                run,
                (SUITE, &format!("numa*.huge > numa*.huge by cpu@*[copy-*-t{threads}]")),
                format!("host-copy-t{threads}"),
                format!("Copy by {}, by size of the block", fmt::threads(threads)),
            )
            .finding(crossover.map_or_else(
                || best_at_largest(&lines, "copy"),
                |c| fmt::sentence(&format!("{}.", c.sentence())),
            ))
            .draw(CurvesBody {
                x_unit: "B".into(),
                y_unit: "GB/s".into(),
                lines,
                ceilings: ceiling(run, 2.0),
                marks,
                better: BetterWhen::Higher,
            }),
        );
    }
    figures
}

/// `At 1GiB read, 2 threads is the fastest with 20.1 GB/s.`
fn best_at_largest(lines: &[ChartLine], what: &str) -> String {
    let last = |l: &ChartLine| l.points.last().and_then(|(x, c)| Some((*x, c.value?)));
    let best = lines
        .iter()
        .filter_map(|l| Some((&l.name, last(l)?)))
        .max_by(|a, b| a.1.1.total_cmp(&b.1.1));
    best.map_or(String::new(), |(name, (x, value))| {
        let at = Bytes(x as u64).rounded();
        format!("At {at} the fastest {what} is {name} with {}.", fmt::gbs(value))
    })
}

fn streams(run: &RunView, loops: &[HostLoop]) -> Option<Figure> {
    let wanted = |op| matches!(op, CpuOp::Read | CpuOp::Write | CpuOp::Triad);
    let lines = lines(loops.iter().filter(|l| wanted(l.0.op)).map(|(work, t, bytes, entry)| {
        let name = format!("{work}, {}", fmt::threads(*t));
        (name, bytes.as_f64(), run.cell(entry, CaseQuantity::Traffic))
    }));
    let lines: Vec<ChartLine> = lines.into_iter().filter(|l| l.points.len() > 1).collect();
    if lines.is_empty() {
        return None;
    }
    let best = main_domain(run).and_then(|home| run.best_of(home, home));
    let ceiling_clause = best.map_or(String::new(), |b| {
        format!(
            " The best of this memory, as measured and not from a datasheet, is {} ({}).",
            fmt::gbs(b.rate),
            b.by
        )
    });
    Some(
        frame(run, (SUITE, ""), "host-streams", "Read, write and triad, by size of the block")
            .finding(format!("{}{ceiling_clause}", best_at_largest(&lines, "loop")))
            .draw(CurvesBody {
                x_unit: "B".into(),
                y_unit: "GB/s read + written".into(),
                lines,
                ceilings: ceiling(run, 1.0),
                marks: cache_marks(run),
                better: BetterWhen::Higher,
            }),
    )
}

fn threads(run: &RunView, loops: &[HostLoop]) -> Option<Figure> {
    let size = compared(run);
    let at_size = loops.iter().filter(|l| l.2 == size && l.0.op != CpuOp::Chase);
    let lines = lines(at_size.map(|(work, t, _, entry)| {
        (work.to_string(), f64::from(*t), run.cell(entry, CaseQuantity::Traffic))
    }));
    let lines: Vec<ChartLine> = lines.into_iter().filter(|l| l.points.len() > 2).collect();
    let best = lines.iter().filter_map(|l| {
        let values = l.points.iter().filter_map(|(x, c)| Some((*x, c.value?)));
        let (x, top) = values.clone().max_by(|a, b| a.1.total_cmp(&b.1))?;
        // The fewest threads within 5 % of the best: more would only consume power.
        let enough = values.clone().find(|(_, v)| *v >= 0.95 * top).map_or(x, |v| v.0);
        Some((&l.name, top, enough))
    });
    let (name, top, enough) = best.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(
        frame(
            run,
            (SUITE, &format!("* > * by cpu x {size}")),
            "host-threads",
            format!("Rate by number of threads, blocks of {size}"),
        )
        .finding(format!(
            "{name} reaches {}; {} of it needs {}.",
            fmt::gbs(top),
            fmt::percent(0.95),
            fmt::threads(enough as u32)
        ))
        .draw(CurvesBody {
            x_unit: "threads".into(),
            y_unit: "GB/s read + written".into(),
            lines,
            ceilings: ceiling(run, 1.0),
            marks: Vec::new(),
            better: BetterWhen::Higher,
        }),
    )
}

/// Load latency in ns by working set, in the main domain.
fn chase_points(run: &RunView, loops: &[HostLoop]) -> Vec<(Bytes, FigureCell)> {
    let chases = loops.iter().filter(|l| l.0.op == CpuOp::Chase);
    let cells = chases.map(|(_, _, bytes, e)| (*bytes, run.cell(e, CaseQuantity::StepNs)));
    cells.filter(|(_, cell)| cell.value.is_some()).collect()
}

fn chase(run: &RunView, points: &[(Bytes, FigureCell)]) -> Option<Figure> {
    let chosen = run.entries.iter().filter_map(|entry| {
        let (work, _, flow) = loop_of(entry)?;
        let (memory, cores) = domain(flow)?;
        (work.op == CpuOp::Chase).then(|| {
            let name = if memory == cores {
                format!("{memory}, its own cores")
            } else {
                format!("{memory} from {cores}")
            };
            (name, flow.bytes.as_f64(), run.cell(entry, CaseQuantity::StepNs))
        })
    });
    let lines: Vec<ChartLine> = lines(chosen).into_iter().filter(|l| l.points.len() > 1).collect();
    let (first, last) = (points.first()?, points.last()?);
    let (least, most) = (first.1.value?, last.1.value?);
    if lines.is_empty() {
        return None;
    }
    Some(
        frame(
            run,
            (SUITE, "* > * by cpu@*[chase-*]"),
            "host-latency",
            "Latency of a dependent load, by working set",
        )
        .finding(format!(
            "{} ns in {}, {} ns in {}: a factor of {}.",
            fmt::number(least),
            first.0.rounded(),
            fmt::number(most),
            last.0.rounded(),
            fmt::number(most / least)
        ))
        .draw(CurvesBody {
            x_unit: "B".into(),
            y_unit: "ns".into(),
            lines,
            ceilings: Vec::new(),
            marks: cache_marks(run),
            better: BetterWhen::Lower,
        }),
    )
}

/// Cores by memory domain, if there are several.
fn numa(run: &RunView) -> Vec<Figure> {
    let named: BTreeSet<Unit> =
        run.entries.iter().filter_map(|e| loop_of(e)?.2.by.at().numa().map(Unit::Numa)).collect();
    let memories: BTreeSet<Unit> =
        run.entries.iter().filter_map(|e| Some(domain(loop_of(e)?.2)?.0)).collect();
    if named.len().max(memories.len()) < 2 {
        return Vec::new();
    }
    let (cores, memories): (Vec<Unit>, Vec<Unit>) =
        (named.into_iter().collect(), memories.into_iter().collect());
    let size = compared(run);
    let find = |op: CpuOp, at: Unit, memory: Unit| {
        run.entries
            .iter()
            .filter_map(|e| Some((e, loop_of(e)?)))
            .filter(|(_, (work, _, flow))| {
                work.op == op && domain(flow) == Some((memory, at)) && flow.bytes <= size
            })
            .max_by_key(|(_, (_, threads, flow))| (*threads, flow.bytes))
            .map(|(e, _)| e)
    };
    let mut figures = Vec::new();
    for (id, title, op, quantity, better) in [
        (
            "host-numa-read",
            "Reading every domain's memory, all threads",
            CpuOp::Read,
            CaseQuantity::Payload,
            BetterWhen::Higher,
        ),
        (
            "host-numa-write",
            "Writing every domain's memory, all threads",
            CpuOp::Write,
            CaseQuantity::Payload,
            BetterWhen::Higher,
        ),
        (
            "host-numa-latency",
            "Load latency of every domain's memory",
            CpuOp::Chase,
            CaseQuantity::StepNs,
            BetterWhen::Lower,
        ),
    ] {
        let matrix = grid(
            ("cores", &cores),
            ("memory", &memories),
            (quantity.unit(), better),
            (|c: Unit| c.to_string(), |m: Unit| m.to_string()),
            |c, m| find(op, c, m).map(|e| run.cell(e, quantity)).unwrap_or_default(),
        );
        let (mut own, mut far) = (Vec::new(), Vec::new());
        for (row, cells) in cores.iter().zip(&matrix.cells) {
            for (col, cell) in memories.iter().zip(cells) {
                if row == col { own.extend(cell.value) } else { far.extend(cell.value) }
            }
        }
        if own.is_empty() && far.is_empty() {
            continue;
        }
        let part = |name: &str, values: &[f64]| {
            let (low, high) = super::extremes(values);
            (!values.is_empty())
                .then(|| format!("{name} {} {}", fmt::range(low, high), quantity.unit()))
        };
        let parts: Vec<String> = [part("own memory", &own), part("another domain's", &far)]
            .into_iter()
            .flatten()
            .collect();
        figures.push(
            frame(run, (SUITE, &format!("* > * by cpu@*[{op}-*]")), id, title)
                .finding(fmt::sentence(&format!("{}.", parts.join(", "))))
                .draw(matrix),
        );
    }
    figures
}

/// First-touch cost: ns per base page, and per huge page.
struct FirstTouch {
    page: Bytes,
    huge: Bytes,
    per_page: Option<FigureCell>,
    per_huge: Option<FigureCell>,
}

fn touch_cost(run: &RunView, loops: &[HostLoop]) -> FirstTouch {
    let host = &run.topology().host;
    let page = if host.page.0 == 0 { Bytes::kib(4) } else { host.page };
    // Transparent huge pages have the smallest huge size: 2 MiB on x86-64.
    let huge = host.huge_pages.iter().copied().filter(|h| *h > page).min().unwrap_or(Bytes::mib(2));
    let cost = |mem: pathline_schema::MemKind, page: Bytes| {
        let (.., entry) = loops.iter().find(|(work, _, _, entry)| {
            work.op == CpuOp::Touch && entry.case.timed.iter().all(|f| f.dst.mem == mem)
        })?;
        let cell = run.cell(entry, CaseQuantity::Payload);
        let rate = cell.value;
        let relative = rate.map_or(0.0, |r| cell.half_width / r);
        // A rate near zero is not a sample of a page's cost, for any page size.
        let value = rate.map(|r| page.as_f64() / r).filter(|ns| *ns < f64::MAX / 1e9);
        let half_width = value.map_or(0.0, |v| v * relative).min(f64::MAX / 1e9);
        let small = entry.series().iter().any(|s| s.small_pages().is_some());
        let unusable = if small {
            Some("the kernel gave small pages for huge ones".to_owned())
        } else {
            value.is_none().then(|| "no usable sample".to_owned())
        };
        let value = value.filter(|_| !small);
        let absent = cell.absent.or(unusable);
        let (case, few, suspect) = (cell.case, cell.few, cell.suspect);
        Some(FigureCell { value, half_width, few, absent, case, suspect, ..FigureCell::default() })
    };
    let per_page = cost(pathline_schema::MemKind::Paged, page);
    let per_huge = cost(pathline_schema::MemKind::Huge, huge);
    FirstTouch { page, huge, per_page, per_huge }
}

fn touch_figure(run: &RunView, touch: &FirstTouch) -> Option<Figure> {
    let pages = touch.huge.as_f64() / touch.page.as_f64();
    let scaled = touch.per_page.clone().map(|c| FigureCell {
        value: c.value.map(|v| v * pages),
        half_width: c.half_width * pages,
        ..c
    });
    let us = |c: FigureCell| FigureCell {
        value: c.value.map(|v| v / 1e3),
        half_width: c.half_width / 1e3,
        ..c
    };
    let bars: Vec<FigureBar> = [
        (format!("{} page", touch.page), touch.per_page.clone()),
        (format!("{} in {} pages", touch.huge, touch.page), scaled),
        (format!("{} huge page", touch.huge), touch.per_huge.clone()),
    ]
    .into_iter()
    .filter_map(|(label, cell)| Some(FigureBar { label, cell: us(cell?) }))
    .collect();
    if bars.is_empty() {
        return None;
    }
    Some(
        frame(
            run,
            (SUITE, "* > * by cpu@*[touch-*]"),
            "host-touch",
            "Cost of touching a fresh page for the first time",
        )
        .finding(touch.sentence().unwrap_or_default())
        .draw(BarsBody::new(("us", BetterWhen::Lower), bars)),
    )
}

impl FirstTouch {
    /// Cost of a page, and savings by huge pages.
    fn sentence(&self) -> Option<String> {
        let page = self.per_page.as_ref().and_then(|c| c.value)?;
        let rate = |bytes: Bytes, ns: f64| fmt::gbs(bytes.as_f64() / ns);
        let first = format!(
            "First touch costs {} ns for a {} page ({})",
            fmt::number(page),
            self.page,
            rate(self.page, page)
        );
        let Some(huge) = self.per_huge.as_ref().and_then(|c| c.value) else {
            return Some(format!("{first}."));
        };
        let times = page * self.huge.as_f64() / self.page.as_f64() / huge;
        let second = format!(
            "{} us for a {} huge page ({})",
            fmt::number(huge / 1e3),
            self.huge,
            rate(self.huge, huge)
        );
        let verdict = if times < 1.1 {
            "huge pages save nothing here: were they granted?".to_owned()
        } else {
            format!("huge pages make it {} times cheaper", fmt::number(times))
        };
        Some(format!("{first}, {second}: {verdict}."))
    }
}
