//! Each GPU's own memory.

use pathline_schema::{Bytes, CHASE_STEPS, GpuCache, KernelOp, KernelVariant, Mover, SuiteId};

use super::pivot::{CellPivot, GBS, NS, most, spread};
use super::{
    CurvesBody, Figure, FigureCell, SuiteFindings, frame, lines, published_clause, range_of, shares,
};
use crate::fmt;
use crate::run::CaseQuantity::{StepNs, Traffic};
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Local;

/// A name and a kernel; `None` for the runtime's copy.
type Operation = (&'static str, Option<KernelOp>);
/// A GPU and the operation.
type LocalPath = (u32, Option<KernelOp>);

/// Operations on a GPU's own memory, in display order.
const OPERATIONS: [Operation; 5] = [
    ("copy, runtime", None),
    ("copy, kernel", Some(KernelOp::Copy)),
    ("read", Some(KernelOp::Read)),
    ("write", Some(KernelOp::Write)),
    ("triad", Some(KernelOp::Triad)),
];

/// The GPU and the operation of a flow inside one GPU; `None` for the runtime's copy.
fn path(entry: &RunEntry) -> Option<LocalPath> {
    let flow = entry.lone()?;
    let at = flow.by.at();
    let op = match flow.by {
        Mover::Dma { .. } => None,
        Mover::Kernel { variant, .. } => Some(variant.op),
        _ => return None,
    };
    (flow.src.unit == at && flow.dst.unit == at).then_some((at.gpu()?, op))
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let entries: Vec<(&RunEntry, LocalPath)> =
        run.suite(SUITE).filter_map(|e| Some((e, path(e)?))).collect();
    let gpus = run.gpus(entries.iter().map(|(e, _)| *e));
    let Some(&first) = gpus.first() else { return Vec::new() };
    let cell = |op: Option<KernelOp>, g: u32, quantity| {
        let of = entries.iter().filter(|(_, path)| *path == (g, op)).map(|(e, _)| *e);
        let largest = of.max_by_key(|e| e.lone().map(|flow| flow.bytes));
        largest.map(|e| run.cell(e, quantity)).unwrap_or_default()
    };
    let rates = CellPivot::filled(&OPERATIONS, &gpus, |(_, op), g| cell(*op, *g, Traffic));
    let mut figures: Vec<Figure> = bars(run, first, &rates).into_iter().collect();
    if gpus.len() > 1 {
        let matrix =
            rates.matrix(("operation", |op| op.0.to_owned()), ("GPU", u32::to_string), GBS);
        let finding = spread(&matrix) + &published_clause(matrix.all());
        let title = "Local memory of every GPU: read + written";
        figures.push(frame(run, (SUITE, ""), "local", title).finding(finding).draw(matrix));
    }
    let latency = |g: &u32| (format!("gpu{g}"), cell(Some(KernelOp::Chase), *g, StepNs));
    let latencies: Vec<(String, FigureCell)> = gpus.iter().map(latency).collect();
    let range = range_of(latencies.iter().map(|bar| &bar.1));
    let title = "Latency of a dependent load from local memory";
    let cases = (SUITE, "gpu*.vram > gpu*.reg by kernel@*[chase-*]");
    let latency = frame(run, cases, "local-latency", title)
        .finding(range.map_or(String::new(), |range| format!("{range} ns a load.")));
    figures.extend(latency.draw_bars(NS, latencies));
    let chases = entries.iter().filter(|(_, path)| *path == (first, Some(KernelOp::Chase)));
    figures.extend(caches(run, first, chases.map(|(e, _)| *e)));
    figures
}

fn bars(run: &RunView, gpu: u32, rates: &CellPivot<Operation, u32>) -> Option<Figure> {
    let bars = rates.rows.iter().map(|op| (op.0.to_owned(), rates.cell(op, &gpu)));
    let bars: Vec<(String, FigureCell)> = bars.collect();
    let (rate, (name, cell)) = most(bars.iter().filter_map(|b| Some((b.1.value?, b))))?;
    let (name, rate, share) = (fmt::sentence(name), fmt::gbs(rate), shares(std::iter::once(cell)));
    let published = published_clause(bars.iter().map(|b| &b.1));
    let finding = format!(
        "{name} is the fastest with {rate}{share}. Read and written bytes both count here, so a copy shows \
         twice its payload.{published}"
    );
    let gpus = rates.cols.len();
    let others = if gpus > 1 { format!(", as one of {gpus}") } else { String::new() };
    let title = format!("The memory of gpu{gpu}{others}: read + written");
    let cases = format!("gpu{gpu}.* > gpu{gpu}.* by *@gpu{gpu}*");
    frame(run, (SUITE, &cases), "local-bars", title).finding(finding).draw_bars(GBS, bars)
}

/// A load takes longer by at least this factor beyond a cache: random replacement lets a chain of the
/// cache's size miss a little.
const LEVEL_STEP: f64 = 1.15;

/// Load latency of one GPU by span of the chain, and the caches that it shows.
fn caches<'e, 'a: 'e>(
    run: &RunView<'a>,
    gpu: u32,
    chases: impl Iterator<Item = &'e RunEntry<'a>>,
) -> Option<Figure> {
    let point = |entry: &RunEntry| {
        let cell = run.cell(entry, StepNs);
        let span = entry.lone()?.bytes.as_f64();
        cell.value.is_some().then(|| (format!("gpu{gpu}"), span, cell))
    };
    let lines = lines(chases.filter_map(point));
    let points = &lines.first().filter(|line| line.points.len() > 2)?.points;
    let times: Vec<(f64, f64)> = points.iter().filter_map(|(x, c)| Some((*x, c.value?))).collect();
    let times = without_first_loads(&times);
    let stated = run.topology().gpus.iter().find(|g| g.index == gpu);
    let stated = stated.map_or(&[][..], |gpu| gpu.caches.as_slice());
    let mark = |c: &GpuCache| (c.size.as_f64(), format!("L{} {}", c.level, c.size.rounded()));
    let marks = stated.iter().map(mark).collect();
    let cases = format!("gpu{gpu}.vram > gpu{gpu}.reg by kernel@*[chase-*]");
    let title = format!("Latency of a dependent load by gpu{gpu}, by span of the chain");
    let curves = CurvesBody { marks, ..CurvesBody::new("B", NS, lines) };
    let framed = frame(run, (SUITE, &cases), "local-caches", title);
    Some(framed.finding(cache_text(&times, stated)).draw(curves))
}

/// Times without the loads that a compute unit makes for the first time. An operation follows
/// [`CHASE_STEPS`] loads on another unit than the one before, so of a chain with fewer elements each is
/// loaded once from behind the first-level cache, at the time of the shortest chain with more.
fn without_first_loads(times: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let first = |span: f64| span / KernelVariant::chase_bytes(CHASE_STEPS).as_f64();
    let behind = times.iter().find(|(span, _)| first(*span) >= 1.0).map(|(_, ns)| *ns);
    let repeated = |&(span, ns): &(f64, f64)| match (behind, first(span)) {
        (Some(behind), share) if share < 1.0 => (span, (ns - share * behind) / (1.0 - share)),
        _ => (span, ns),
    };
    times.iter().map(repeated).collect()
}

/// Spans that caches hold with the time of a load, and last the time beyond all of them, by spans and
/// times of loads in ascending order of the span.
fn cache_levels(times: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut levels = Vec::new();
    let mut rising = false;
    for pair in times.windows(2) {
        let [(span, ns), (_, next)] = *pair else { continue };
        let rises = next > LEVEL_STEP * ns;
        if rises && !rising {
            levels.push((span, ns));
        }
        rising = rises;
    }
    levels.extend(times.last());
    levels
}

/// `A load takes 120 ns over spans of up to 16KiB, 300 ns of up to 8MiB and 600 ns beyond.`
fn cache_text(times: &[(f64, f64)], stated: &[GpuCache]) -> String {
    let mut levels = cache_levels(times);
    let Some((_, memory)) = levels.pop() else { return String::new() };
    let memory = fmt::number(memory);
    if levels.is_empty() {
        return format!("A load takes {memory} ns for any span: no cache shows.");
    }
    let parts = levels.iter().enumerate().map(|(at, (span, ns))| {
        let (ns, of) = (fmt::number(*ns), if at == 0 { "over spans of" } else { "of" });
        format!("{ns} ns {of} up to {}", Bytes(*span as u64).rounded())
    });
    let parts: Vec<String> = parts.chain([format!("{memory} ns beyond")]).collect();
    let known = stated.iter().map(|c| format!("{} of L{}", c.size.rounded(), c.level));
    let known = fmt::list_any(known)
        .map_or(String::new(), |known| format!(" The topology states {known}."));
    format!("A load takes {}.{known}", fmt::list(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: f64 = 1024.0;

    /// 4 KiB to 128 MiB in powers of two; 16 KiB at 130 ns, 8 MiB at 300, 600 beyond. A chain of twice a
    /// cache that hits half of the time is no level.
    #[test]
    fn caches_are_found_where_loads_become_slower() {
        let times: Vec<(f64, f64)> = (0..16)
            .map(|n| 4.0 * KIB * f64::from(1 << n))
            .map(|span| match span {
                s if s <= 16.0 * KIB => (s, 130.0 * (1.0 + s / KIB / 1000.0)),
                s if s <= 32.0 * KIB => (s, 215.0),
                s if s <= 8192.0 * KIB => (s, 300.0),
                s => (s, 600.0),
            })
            .collect();
        let spans: Vec<f64> = cache_levels(&times).iter().map(|l| l.0 / KIB).collect();
        assert_eq!(spans, [16.0, 8192.0, 131_072.0]);
        let l2 = GpuCache { level: 2, size: Bytes::mib(8) };
        let expected = "A load takes 132 ns over spans of up to 16KiB, 300 ns of up to 8MiB and 600 ns \
                        beyond. The topology states 8MiB of L2.";
        assert_eq!(cache_text(&times, &[l2]), expected);
        // 128 of 2048 loads over 16 KiB take 300 ns: (132 - 300 / 16) / (15 / 16) = 120.9.
        let repeated = without_first_loads(&times);
        assert!((repeated[2].1 - 120.9).abs() < 0.1, "{repeated:?}");
        assert_eq!(repeated[6..], times[6..]);
        let flat = [(4.0 * KIB, 600.0), (8.0 * KIB, 610.0), (16.0 * KIB, 600.0)];
        assert!(cache_text(&flat, &[]).contains("no cache shows"));
    }

    /// Measured on an H100, whose first level has up to 256 KiB: 17 ns whatever the span.
    #[test]
    fn first_loads_do_not_look_like_a_smaller_cache() {
        let measured =
            [19.1, 21.1, 25.0, 32.9, 48.6, 80.2, 143.9, 144.9, 147.0, 148.6, 144.2, 156.4, 287.3];
        let mut times: Vec<(f64, f64)> =
            measured.iter().zip(0..).map(|(ns, n)| (4.0 * KIB * f64::from(1 << n), *ns)).collect();
        times.extend([(32768.0 * KIB, 347.4), (65536.0 * KIB, 347.0)]);
        let levels = cache_levels(&without_first_loads(&times));
        let spans: Vec<f64> = levels.iter().map(|level| level.0 / KIB).collect();
        assert_eq!(spans, [128.0, 8192.0, 65_536.0]);
        assert!((levels[0].1 - 16.5).abs() < 0.1, "{levels:?}");
    }
}
