//! Small copies between GPUs and with the host, and loads over links.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Cadence, Flow, FlowSeries, SuiteId, TimerKind, Unit};
use pathline_stats::SeriesSummary;

use super::pivot::{CellPivot, NS, US};
use super::{
    Figure, FigureCell, MatrixBody, SuiteFindings, extremes, frame, published_clause, range_of,
};
use crate::fmt;
use crate::peer_class::PeerView;
use crate::run::CaseQuantity::{StepNs, StepUs};
use crate::run::{RunEntry, RunView, start_cost};

const SUITE: SuiteId = SuiteId::Latency;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let (copies, sentence) = copies(run).unzip();
    let figures = copies.into_iter().chain(loads(run)).chain(host_copies(run));
    SuiteFindings::new(figures, [sentence.flatten()])
}

/// The matrix of small single copies, and its sentence for the summary.
fn copies(run: &RunView) -> Option<(Figure, Option<String>)> {
    let copies: Vec<(&RunEntry, &Flow)> = run
        .suite(SUITE)
        .filter(|e| e.case.cadence == Cadence::Isolated)
        .filter_map(|e| Some((e, e.lone()?)))
        .filter(|(_, f)| f.src.unit.gpu().is_some() && f.dst.unit.gpu().is_some())
        .collect();
    let bytes = copies.iter().map(|(_, f)| f.bytes).min()?;
    let gpus = run.gpus(copies.iter().map(|(e, _)| *e));
    let points = copies
        .iter()
        .filter(|(_, f)| f.bytes == bytes)
        .filter_map(|(e, f)| Some((f.src.unit.gpu()?, f.dst.unit.gpu()?, run.cell(e, StepUs))));
    let pivot = CellPivot::over(&gpus, points);
    let matrix = pivot.matrix(("from", u32::to_string), ("to", u32::to_string), US);
    let others = pivot.cells().filter(|(a, b, _)| a != b);
    let mut peers: Vec<(f64, u32, u32)> =
        others.filter_map(|(a, b, cell)| Some((cell.value?, *a, *b))).collect();
    peers.sort_by(|x, y| x.0.total_cmp(&y.0));
    let classes = path_classes(&matrix);
    let pair =
        |(us, a, b): &(f64, u32, u32)| format!("{} us between gpu{a} and gpu{b}", fmt::number(*us));
    let finding = peers.first().zip(peers.last()).map(|(low, high)| {
        let by_path = classes.as_ref().map_or(String::new(), |text| format!(" By path: {text}."));
        let published = published_clause(matrix.all());
        format!("{}, {}.{by_path}{published}", pair(low), pair(high))
    });
    let sentence = fmt::range_any(peers.iter().map(|p| p.0)).map(|range| {
        let time = classes.unwrap_or_else(|| format!("{range} us"));
        let start = start_clause(run, copies.iter().map(|(entry, _)| *entry));
        format!("Latency of {bytes} copies: {time}{start}.")
    });
    let title = format!("Time of a {bytes} copy between two events");
    let framed = frame(run, (SUITE, ""), "latency", title);
    Some((framed.finding(finding.unwrap_or_default()).draw(matrix), sentence))
}

/// A class of at most this many pairs is named by them.
const MAX_NAMED: usize = 2;

/// `8.70-9.20 us over 1 link, 18.2 over 3 hops (gpu1-gpu7)`: times by the links of a direct path and by the
/// hops of a forwarded one; none if all paths are alike.
fn path_classes(matrix: &MatrixBody) -> Option<String> {
    let links = PeerView::from_matrix(matrix).links;
    let mut classes: BTreeMap<(usize, u32), (Vec<f64>, BTreeSet<String>)> = BTreeMap::new();
    for (row, (cells, links)) in matrix.cells.iter().zip(&links).enumerate() {
        for (col, (cell, links)) in cells.iter().zip(links).enumerate() {
            let (Some(path), Some(value)) = (&cell.path, cell.value) else { continue };
            let hops = path.route.matches('-').count();
            let links = if hops == 1 { *links } else { Some(0) };
            if let (1.., Some(links)) = (hops, links) {
                let class = classes.entry((hops, links)).or_default();
                class.0.push(value);
                let [mut from, mut to] = [matrix.rows.get(row)?, matrix.cols.get(col)?];
                if row > col {
                    (from, to) = (to, from);
                }
                class.1.insert(format!("gpu{from}-gpu{to}"));
            }
        }
    }
    let classes = classes.iter().enumerate();
    let all: Vec<String> = classes
        .map(|(at, (&(hops, links), (times, pairs)))| {
            let (low, high) = extremes(times);
            // The noun once for all links, and once for all hops.
            let over = match (hops, links) {
                (1, links) if at == 0 => fmt::count(links as usize, "link"),
                (1, links) => links.to_string(),
                (hops, _) => fmt::count(hops, "hop"),
            };
            let named: Vec<&str> = pairs.iter().map(String::as_str).collect();
            let named = match named.len() <= MAX_NAMED && hops > 1 {
                true => format!(" ({})", named.join(", ")),
                false => String::new(),
            };
            let unit = if at == 0 { " us" } else { "" };
            format!("{}{unit} over {over}{named}", fmt::range(low, high))
        })
        .collect();
    (all.len() > 1).then(|| all.join(", "))
}

/// What of the times is an empty pair of events, which copies that are queued behind others lack.
fn start_clause<'a>(run: &RunView, entries: impl Iterator<Item = &'a RunEntry<'a>>) -> String {
    let series: Vec<&FlowSeries> = entries.flat_map(RunEntry::series).collect();
    let starts: Vec<f64> = series
        .iter()
        .filter(|s| !s.start_ns.is_empty())
        .map(|s| start_cost(std::slice::from_ref(*s)))
        .collect();
    let on_device = series.iter().any(|s| s.timer == TimerKind::DeviceEvents);
    // A copy timed alone, as in runs before differences were used, includes the pair, too.
    let pair = run.journal.begin.overhead_ns.get(TimerKind::DeviceEvents.word()).copied();
    let start = SeriesSummary::of(&starts).map(|starts| starts.median);
    match start.or(pair.filter(|_| on_device)) {
        Some(ns) if ns > 0.0 => {
            format!("; {} of it is an empty pair of events", fmt::number(ns / 1e3))
        }
        _ => String::new(),
    }
}

/// Dependent loads by each GPU from all other memories; `None` of a memory stands for the host.
fn loads(run: &RunView) -> Option<Figure> {
    let chases = run.suite(SUITE).filter_map(|e| {
        let flow = e.lone().filter(|f| f.by.is_chase())?;
        let memory = Some(flow.src.unit).filter(|unit| unit.numa().is_none());
        Some((flow.by.at().gpu()?, memory, run.cell(e, StepNs)))
    });
    let mut pivot = CellPivot::new(chases).sorted();
    // The host last, other memories only of GPUs.
    pivot.cols.retain(|memory| memory.is_none_or(|unit| unit.gpu().is_some()));
    pivot.cols.sort_by_key(Option::is_none);
    let name = |memory: &Option<Unit>| match memory {
        Some(Unit::Gpu(n)) => n.to_string(),
        Some(unit) => unit.to_string(),
        None => "host".to_owned(),
    };
    let matrix = pivot.matrix(("GPU", u32::to_string), ("memory of", name), NS);
    let part = |host: bool, whose: &str| {
        let cells = pivot.cells().filter(|(_, memory, _)| memory.is_none() == host);
        let range = fmt::range_any(cells.filter_map(|(.., cell)| cell.value))?;
        Some(format!("{range} ns from {whose}"))
    };
    let parts = [part(false, "other GPUs"), part(true, "the host")];
    let parts = fmt::list_any(parts.into_iter().flatten()).unwrap_or_default();
    let finding = format!("{}.{}", fmt::sentence(&parts), published_clause(matrix.all()));
    let cases = (SUITE, "* > gpu*.reg by kernel@*[chase-*]");
    let title = "Latency of a dependent load by a kernel";
    let framed = frame(run, cases, "latency-load", title);
    (!pivot.rows.is_empty()).then(|| framed.finding(finding).draw(matrix))
}

fn host_copies(run: &RunView) -> Option<Figure> {
    let isolated = run.suite(SUITE).filter(|e| e.case.cadence == Cadence::Isolated);
    let bar = |e: &RunEntry| {
        let flow = e.lone()?;
        let label = match (flow.src.unit, flow.dst.unit) {
            (Unit::Numa(_), Unit::Gpu(g)) => format!("to gpu{g}"),
            (Unit::Gpu(g), Unit::Numa(_)) => format!("from gpu{g}"),
            _ => return None,
        };
        Some((label, run.cell(e, StepUs)))
    };
    let bars: Vec<(String, FigureCell)> = isolated.filter_map(bar).collect();
    let range = range_of(bars.iter().map(|b| &b.1));
    let finding = range.map(|range| format!("{range} us a copy of pinned memory."));
    let title = "Time of a 16 B copy between host and GPU, between two events";
    frame(run, (SUITE, "*.pinned > *.vram by dma"), "latency-host", title)
        .finding(finding.unwrap_or_default())
        .draw_bars(US, bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{BetterWhen, LossBreakdown};

    /// Two pairs over one link, one over four, one forwarded over two hops; copies within a GPU have no
    /// hop and belong to no class.
    #[test]
    fn times_are_grouped_by_links_and_hops() {
        let cell = |value: f64, route: &str, links: &str| FigureCell {
            value: Some(value),
            path: Some(LossBreakdown {
                route: route.into(),
                narrowest: format!("xGMI gpu0-gpu1, {links}"),
                losses: Vec::new(),
            }),
            ..FigureCell::default()
        };
        let matrix = |cells: Vec<FigureCell>| MatrixBody {
            unit: "us".into(),
            row_axis: "from".into(),
            col_axis: "to".into(),
            rows: vec!["0".into()],
            cols: (0..cells.len()).map(|n| n.to_string()).collect(),
            cells: vec![cells],
            better: BetterWhen::Lower,
        };
        let one = || cell(8.7, "0-1", "1 link");
        let all = vec![
            cell(1.7, "0", "1 link"),
            one(),
            cell(9.1, "0-2", "1 link"),
            cell(10.5, "0-3", "4 links"),
            cell(14.6, "0-1-4", "1 link"),
        ];
        assert_eq!(
            path_classes(&matrix(all)).as_deref(),
            Some("8.70-9.10 us over 1 link, 10.5 over 4, 14.6 over 2 hops (gpu0-gpu4)")
        );
        assert_eq!(path_classes(&matrix(vec![one(), one()])), None);
    }
}
