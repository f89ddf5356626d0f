//! Each GPU's own memory.

use pathline_schema::{Bytes, CHASE_STEPS, GpuCache, KernelOp, KernelVariant, Mover, SuiteId};

use super::pivot::spread;
use super::{
    BarsBody, BetterWhen, CurvesBody, Figure, FigureBar, FigureCell, SuiteFindings, frame, grid,
    lines, published_clause, shares, values,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Local;

/// Operations on a GPU's own memory, in display order.
const OPERATIONS: [(&str, Option<KernelOp>); 5] = [
    ("copy, runtime", None),
    ("copy, kernel", Some(KernelOp::Copy)),
    ("read", Some(KernelOp::Read)),
    ("write", Some(KernelOp::Write)),
    ("triad", Some(KernelOp::Triad)),
];

/// The GPU and the operation of a flow inside one GPU; `None` for the runtime's copy.
fn path(entry: &RunEntry) -> Option<(u32, Option<KernelOp>)> {
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
    let entries: Vec<(&RunEntry, (u32, Option<KernelOp>))> =
        run.suite(SUITE).filter_map(|e| Some((e, path(e)?))).collect();
    let gpus = run.gpus(entries.iter().map(|(e, _)| *e));
    let find = |g: u32, op: Option<KernelOp>, quantity| {
        let size = |e: &RunEntry| e.lone().map(|flow| flow.bytes);
        let found = entries.iter().filter(|(_, w)| *w == (g, op)).max_by_key(|(e, _)| size(e));
        found.map(|(e, _)| run.cell(e, quantity)).unwrap_or_default()
    };
    let mut figures = Vec::new();
    if let Some(&first) = gpus.first() {
        figures.extend(bars(run, first, gpus.len(), |op| find(first, op, CaseQuantity::Traffic)));
        if gpus.len() > 1 {
            figures.push(matrix(run, &gpus, |g, op| find(g, op, CaseQuantity::Traffic)));
        }
        figures
            .extend(latency(run, &gpus, |g| find(g, Some(KernelOp::Chase), CaseQuantity::StepNs)));
        let chases = entries.iter().filter(|(_, w)| *w == (first, Some(KernelOp::Chase)));
        figures.extend(caches(run, first, chases.map(|(e, _)| *e)));
    }
    figures
}

fn bars(
    run: &RunView,
    gpu: u32,
    gpus: usize,
    cell: impl Fn(Option<KernelOp>) -> FigureCell,
) -> Option<Figure> {
    let bars: Vec<FigureBar> = OPERATIONS
        .iter()
        .map(|&(label, op)| FigureBar { label: label.into(), cell: cell(op) })
        .filter(|b| b.cell.case.is_some())
        .collect();
    let best =
        bars.iter().filter_map(|b| Some((b, b.cell.value?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = if gpus > 1 { format!(", as one of {gpus}") } else { String::new() };
    let title = format!("The memory of gpu{gpu}{others}: read + written");
    let finding = format!(
        "{} is the fastest with {}{}. Read and written bytes both count here, so a copy shows twice its \
         payload.{}",
        fmt::sentence(&best.0.label),
        fmt::gbs(best.1),
        shares(std::iter::once(&best.0.cell)),
        published_clause(bars.iter().map(|b| &b.cell)),
    );
    let pattern = format!("gpu{gpu}.* > gpu{gpu}.* by *@gpu{gpu}*");
    let figure = frame(run, (SUITE, &pattern), "local-bars", title).finding(finding);
    Some(figure.draw(BarsBody::new(("GB/s", BetterWhen::Higher), bars)))
}

fn matrix(
    run: &RunView,
    gpus: &[u32],
    cell: impl Fn(u32, Option<KernelOp>) -> FigureCell,
) -> Figure {
    let matrix = grid(
        ("operation", &OPERATIONS),
        ("GPU", gpus),
        ("GB/s", BetterWhen::Higher),
        (|w: (&str, _)| w.0.to_owned(), |g: u32| g.to_string()),
        |(_, op), g| cell(g, op),
    );
    let finding = spread(&matrix);
    let published = published_clause(matrix.cells.iter().flatten());
    frame(run, (SUITE, ""), "local", "Local memory of every GPU: read + written")
        .finding(format!("{finding}{published}"))
        .draw(matrix)
}

fn latency(run: &RunView, gpus: &[u32], cell: impl Fn(u32) -> FigureCell) -> Option<Figure> {
    let bars: Vec<FigureBar> = gpus
        .iter()
        .map(|&g| FigureBar { label: format!("gpu{g}"), cell: cell(g) })
        .filter(|b| b.cell.case.is_some())
        .collect();
    let values = values(bars.iter().map(|b| &b.cell));
    let (low, high) = super::extremes(&values);
    (!bars.is_empty()).then(|| {
        frame(
            run,
            (SUITE, "gpu*.vram > gpu*.reg by kernel@*[chase-*]"),
            "local-latency",
            "Latency of a dependent load from local memory",
        )
        .finding(if values.is_empty() {
            String::new()
        } else {
            format!("{} ns a load.", fmt::range(low, high))
        })
        .draw(BarsBody::new(("ns", BetterWhen::Lower), bars))
    })
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
        let cell = run.cell(entry, CaseQuantity::StepNs);
        let span = entry.lone()?.bytes.as_f64();
        cell.value.is_some().then(|| (format!("gpu{gpu}"), span, cell))
    };
    let lines = lines(chases.filter_map(point));
    let points = &lines.first().filter(|line| line.points.len() > 2)?.points;
    let times: Vec<(f64, f64)> = points.iter().filter_map(|(x, c)| Some((*x, c.value?))).collect();
    let times = without_first_loads(&times);
    let stated = run.topology().gpus.iter().find(|g| g.index == gpu);
    let stated = stated.map_or(&[][..], |gpu| gpu.caches.as_slice());
    Some(
        frame(
            run,
            (SUITE, &format!("gpu{gpu}.vram > gpu{gpu}.reg by kernel@*[chase-*]")),
            "local-caches",
            format!("Latency of a dependent load by gpu{gpu}, by span of the chain"),
        )
        .finding(cache_text(&times, stated))
        .draw(CurvesBody {
            x_unit: "B".into(),
            y_unit: "ns".into(),
            lines,
            ceilings: Vec::new(),
            marks: stated
                .iter()
                .map(|c| (c.size.as_f64(), format!("L{} {}", c.level, c.size.rounded())))
                .collect(),
            better: BetterWhen::Lower,
        }),
    )
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
    if levels.is_empty() {
        return format!("A load takes {} ns for any span: no cache shows.", fmt::number(memory));
    }
    let size = |span: f64| Bytes(span as u64).rounded();
    let mut parts: Vec<String> = levels
        .iter()
        .map(|(span, ns)| format!("{} ns of up to {}", fmt::number(*ns), size(*span)))
        .collect();
    if let Some(first) = parts.first_mut() {
        *first = first.replacen(" ns of", " ns over spans of", 1);
    }
    parts.push(format!("{} ns beyond", fmt::number(memory)));
    let known: Vec<String> =
        stated.iter().map(|c| format!("{} of L{}", c.size.rounded(), c.level)).collect();
    let known = match known.is_empty() {
        true => String::new(),
        false => format!(" The topology states {}.", fmt::list(&known)),
    };
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
