//! Time of 1 MiB collectives over the number of ranks by every library of a run: MPI, NCCL or RCCL by
//! processes and by threads, a panel for each operation.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Bytes, Cadence, Collective, CopyAgent, MemKind, SuiteId, Transport, WireOp};

use super::latency_bounds::LatencyBounds;
use super::pivot::{least, most};
use super::sent_flows::{self, SentFlow};
use super::{
    BetterWhen, ChartLine, Figure, FigureCell, FigurePanel, PanelsBody, frame, line_cells, lines,
    published_clause, sorted,
};
use crate::fmt;
use crate::message_records::{CountedTimes, is_by_threads};
use crate::run::{CaseQuantity, RunView};

/// The size of the published figures.
const SIZE: u64 = 1 << 20;
/// A lead of less is a tie where no interval says more.
const TIE: f64 = 0.03;

/// What carries a collective: a line of each panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PanelLine {
    via: Transport,
    agent: Option<CopyAgent>,
    threads: bool,
}

impl PanelLine {
    fn name(self, run: &RunView, has_both: bool) -> String {
        let library = run.library(self.via);
        let agent = match self.agent {
            None => "",
            Some(CopyAgent::Engine) => ", copy engine",
            Some(CopyAgent::Kernel) => ", blit kernel",
        };
        let by = match (self.threads, has_both) {
            (true, _) => ", threads",
            (false, true) => ", processes",
            (false, false) => "",
        };
        format!("{library}{agent}{by}")
    }
}

/// More ranks are called faster if they take less by at least this share.
const DROP: f64 = 0.05;

/// A measured collective of device memory of the usual kind.
struct PanelPoint<'b, 'a> {
    sent: SentFlow<'b, 'a>,
    op: Collective,
    line: PanelLine,
    ranks: usize,
    cell: FigureCell,
}

fn points<'b, 'a>(run: &'b RunView<'a>) -> Vec<PanelPoint<'b, 'a>> {
    let suites = [SuiteId::MpiCollectives, SuiteId::CclCollectives];
    let sent = suites.into_iter().flat_map(|suite| sent_flows::in_suite(run, suite));
    let point = |sent: SentFlow<'b, 'a>| {
        let WireOp::Group { op, reduced, in_place: false, unregistered: false } = sent.wire.op
        else {
            return None;
        };
        let ranks = sent.participants();
        let (size, parts) = (sent.size().0, 8 * ranks as u64);
        let usual = sent.entry.case.cadence == Cadence::Streaming
            && sent.flow.src.mem == MemKind::Vram
            && reduced.is_usual()
            && sent.wire.via != Transport::MpiStaged
            && (size <= SIZE && SIZE < size + parts);
        let alone = run.journal.begin.ranks.len() == 1;
        let line = PanelLine {
            via: sent.wire.via,
            agent: sent.wire.agent,
            threads: alone || is_by_threads(run.journal, sent.flow),
        };
        let cell = mean_of_ranks(run, &sent);
        (usual && cell.value.is_some()).then_some(PanelPoint { sent, op, line, ranks, cell })
    };
    sent.filter_map(point).collect()
}

/// The mean over ranks, as OSU and nccl-tests count; the median is of the latest rank.
fn mean_of_ranks(run: &RunView, sent: &SentFlow) -> FigureCell {
    let counted = sent.entry.series().first().and_then(CountedTimes::from_series);
    let share = counted.filter(|c| c.max > 0.0).map_or(1.0, |c| c.mean / c.max);
    run.cell(sent.entry, CaseQuantity::StepUs).scaled(share)
}

/// The figure of a run in which at least two libraries, or threads and processes, did the same
/// collectives. Its sentences say where more ranks are faster, and what copies take at least.
pub(super) fn figure(run: &RunView) -> Option<(Figure, [Option<String>; 2])> {
    let all = points(run);
    let kinds: BTreeSet<PanelLine> = all.iter().map(|p| p.line).collect();
    if kinds.len() < 2 || sorted(all.iter().map(|p| p.ranks)).len() < 2 {
        return None;
    }
    let has_both = |line: PanelLine| {
        kinds.contains(&PanelLine { threads: !line.threads, ..line }) && line.via == Transport::Ccl
    };
    let names: BTreeMap<PanelLine, String> =
        kinds.iter().map(|line| (*line, line.name(run, has_both(*line)))).collect();
    let panels: Vec<FigurePanel> = Collective::ALL
        .iter()
        .filter_map(|&op| panel(run, op, &names, all.iter().filter(|p| p.op == op)))
        .collect();
    let bounds = LatencyBounds::new(run, all.iter().map(|p| (p.op, p.sent.entry.case))).text();
    let sentences = [greatest_drop(&panels), bounds.trim_start().to_owned()];
    let texts = [winners(&panels), threads(&panels), drops(&panels), distances(&panels)];
    let texts = fmt::join_any(texts.into_iter().filter(|text| !text.is_empty()), " ");
    let cells = panels.iter().flat_map(|panel| line_cells(&panel.lines));
    let finding = texts.unwrap_or_default() + &published_clause(cells);
    let (size, suite) = (Bytes(SIZE).rounded(), SuiteId::CclCollectives);
    let title = format!("Collectives of {size} by ranks, every library, mean over the ranks");
    let (x_unit, y_unit) = ("ranks".to_owned(), "us".to_owned());
    let framed = frame(run, (suite, ""), "collectives-libraries", title).finding(finding);
    let figure = framed.draw(PanelsBody { x_unit, y_unit, panels, better: BetterWhen::Lower });
    let command = figure.command.replace("ccl-collectives", "mpi-collectives,ccl-collectives");
    let figure = Figure { command, ..figure };
    Some((figure, sentences.map(|text| Some(text).filter(|text| !text.is_empty()))))
}

fn panel<'p>(
    run: &RunView,
    op: Collective,
    names: &BTreeMap<PanelLine, String>,
    points: impl Iterator<Item = &'p PanelPoint<'p, 'p>> + Clone,
) -> Option<FigurePanel> {
    let mut sorted: Vec<&PanelPoint> = points.clone().collect();
    sorted.sort_by_key(|p| (p.line, p.ranks));
    let name = |line: PanelLine| names.get(&line).cloned().unwrap_or_default();
    let drawn = lines(sorted.iter().map(|p| (name(p.line), p.ranks as f64, p.cell.clone())));
    let bounds = LatencyBounds::new(run, points.map(|p| (op, p.sent.entry.case)));
    // The cut is that of the links, the same for every library.
    let cut: BTreeMap<usize, f64> =
        sorted.iter().filter_map(|p| Some((p.ranks, p.cell.bound?))).collect();
    (!drawn.is_empty()).then(|| FigurePanel {
        name: op.to_string(),
        lines: drawn,
        levels: bounds.levels(),
        floor: cut.into_iter().map(|(n, us)| (n as f64, us)).collect(),
    })
}

fn value_at(line: &ChartLine, x: f64) -> Option<&FigureCell> {
    line.points.iter().find(|p| (p.0 - x).abs() < 1e-9).map(|p| &p.1)
}

fn numbers(panel: &FigurePanel) -> Vec<f64> {
    let points = panel.lines.iter().flat_map(|l| &l.points);
    let mut all: Vec<f64> = points.map(|point| point.0).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The library of a line.
fn library(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// Appends to the items of a key; a new key comes last.
fn add_to<K: PartialEq, T>(all: &mut Vec<(K, Vec<T>)>, key: K, item: T) {
    match all.iter_mut().find(|known| known.0 == key) {
        Some(known) => known.1.push(item),
        None => all.push((key, vec![item])),
    }
}

/// The fastest line at a number of ranks; none where another one is as fast.
fn fastest(panel: &FigurePanel, ranks: f64) -> Option<&str> {
    let mut all: Vec<(&str, &FigureCell)> =
        panel.lines.iter().filter_map(|l| Some((l.name.as_str(), value_at(l, ranks)?))).collect();
    all.sort_by(|a, b| a.1.value.unwrap_or(f64::MAX).total_cmp(&b.1.value.unwrap_or(f64::MAX)));
    // Threads and processes of one library are compared with the others, not with each other.
    let (name, best) = *all.first()?;
    let rest = all.iter().find(|(other, _)| library(other) != library(name))?.1;
    let (a, b) = (best.value?, rest.value?);
    let has_intervals = best.has_interval() && rest.has_interval();
    let tied = has_intervals && b - a <= best.half_width + rest.half_width || b < a * (1.0 + TIE);
    (!tied).then(|| library(name))
}

/// `2`, `3-5 and 7`.
fn spans(numbers: &[f64]) -> String {
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    for &n in numbers {
        match stretches.last_mut().filter(|last| (n - last.1 - 1.0).abs() < 1e-9) {
            Some(last) => last.1 = n,
            None => stretches.push((n, n)),
        }
    }
    let one = |(from, to): &(f64, f64)| match to > from {
        true => format!("{from}-{to}"),
        false => from.to_string(),
    };
    fmt::list_any(stretches.iter().map(one)).unwrap_or_default()
}

/// `Fastest: RCCL at 2 ranks, Cray MPICH at 3-5 and 7 for broadcast; RCCL at 2-8 for reduce.`
fn winners(panels: &[FigurePanel]) -> String {
    let mut by_text: Vec<(String, Vec<String>)> = Vec::new();
    for panel in panels {
        let mut at: Vec<(&str, Vec<f64>)> = Vec::new();
        for n in numbers(panel) {
            if let Some(name) = fastest(panel, n) {
                add_to(&mut at, name, n);
            }
        }
        let texts = at.iter().map(|(name, at)| format!("{name} at {}", spans(at)));
        let text = fmt::join_any(texts, ", ").unwrap_or_else(|| "none".to_owned());
        add_to(&mut by_text, text, panel.name.clone());
    }
    let texts = by_text.iter().map(|(text, ops)| format!("{} {text}", fmt::list(ops)));
    let texts = fmt::join_any(texts, "; ").unwrap_or_default();
    format!("The fastest library by number of ranks: {texts}.")
}

/// How far threads and processes of one library are apart.
fn threads(panels: &[FigurePanel]) -> String {
    let mut ratios: Vec<f64> = Vec::new();
    for panel in panels {
        for line in &panel.lines {
            let Some(library) = line.name.strip_suffix(", threads") else { continue };
            let name = format!("{library}, processes");
            let Some(other) = panel.lines.iter().find(|l| l.name == name) else { continue };
            let ratio =
                |(x, cell): &(f64, FigureCell)| Some(cell.value? / value_at(other, *x)?.value?);
            ratios.extend(line.points.iter().filter_map(ratio));
        }
    }
    fmt::range_any(ratios)
        .map_or(String::new(), |range| format!("Threads take {range} times the time of processes."))
}

/// Operations that take less time over more ranks, with both times in us, by library and numbers of ranks.
type RankDrops<'p> = BTreeMap<(String, u64, u64), Vec<(&'p str, f64, f64)>>;

fn find_drops(panels: &[FigurePanel]) -> RankDrops<'_> {
    let mut found = RankDrops::new();
    for panel in panels {
        for line in panel.lines.iter().filter(|l| !l.name.ends_with("threads")) {
            for pair in line.points.windows(2) {
                let [(a, few), (b, many)] = pair else { continue };
                let (Some(x), Some(y)) = (few.value, many.value) else { continue };
                let apart = few.half_width + many.half_width;
                if few.has_interval() && many.has_interval() && x - y > apart.max(DROP * x) {
                    let library = library(&line.name).to_owned();
                    let drops = found.entry((library, *a as u64, *b as u64)).or_default();
                    drops.push((&panel.name, x, y));
                }
            }
        }
    }
    found
}

fn drop_text((op, x, y): &(&str, f64, f64)) -> String {
    format!("{op} {} to {} us", fmt::number(*x), fmt::number(*y))
}

/// `RCCL is faster over 8 ranks than over 7: reduce 117 to 85 us.`
fn drops_text((library, a, b): &(String, u64, u64), drops: &[String]) -> String {
    format!("{library} is faster over {b} ranks than over {a}: {}.", fmt::list(drops))
}

/// The numbers of ranks with the greatest drop, and its operations with the greatest.
fn greatest_drop(panels: &[FigurePanel]) -> String {
    let mut found = find_drops(panels);
    for drops in found.values_mut() {
        drops.sort_by(|a, b| (b.1 / b.2).total_cmp(&(a.1 / a.2)));
    }
    let of = |drops: &[(&str, f64, f64)]| drops.first().map_or(0.0, |drop| drop.1 / drop.2);
    let greatest = most(found.iter().map(|(at, drops)| (of(drops), (at, drops))));
    greatest.map_or(String::new(), |(_, (at, drops))| {
        let mut texts: Vec<String> = drops.iter().take(2).map(drop_text).collect();
        let more = drops.len() - texts.len();
        texts.extend((more > 0).then(|| fmt::count(more, "more operation")));
        drops_text(at, &texts)
    })
}

/// Where more ranks take less time.
fn drops(panels: &[FigurePanel]) -> String {
    let found = find_drops(panels);
    let texts = found
        .iter()
        .map(|(at, ops)| drops_text(at, &ops.iter().map(drop_text).collect::<Vec<_>>()));
    fmt::join_any(texts, " ").unwrap_or_default()
}

/// The least and the greatest multiple of its bound that the fastest line takes over the fewest and
/// the most ranks.
fn distances(panels: &[FigurePanel]) -> String {
    let at = |first: bool| {
        let (mut all, mut ranks) = (Vec::new(), 0.0);
        for panel in panels {
            let numbers = numbers(panel);
            let Some(&n) = (if first { numbers.first() } else { numbers.last() }) else { continue };
            ranks = n;
            let cells = panel.lines.iter().filter_map(|l| value_at(l, n)?.value);
            let Some(best) = cells.min_by(f64::total_cmp) else { continue };
            let level = panel.levels.iter().map(|l| l.1).fold(0.0, f64::max);
            let cut = panel.floor.iter().find(|f| (f.0 - n).abs() < 1e-9).map_or(0.0, |f| f.1);
            let bound = f64::max(level, cut);
            if bound > 0.0 {
                all.push((best / bound, panel.name.as_str()));
            }
        }
        let (low, high) = (least(all.iter().copied())?, most(all)?);
        let [a, b] = [low.0, high.0].map(fmt::number);
        Some(format!("{a} ({}) to {b} times ({}) over {ranks} ranks", low.1, high.1))
    };
    let texts = fmt::join_any([at(true), at(false)].into_iter().flatten(), " and ");
    texts.map_or(String::new(), |texts| {
        format!("The fastest takes its bound, of passes or cut, {texts}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panel of lines over 2, 3 and 4 ranks, with bounds of 10 us and a cut of 5 us.
    fn panel(lines: &[(&str, [f64; 3])]) -> FigurePanel {
        let cell = |us| FigureCell { value: Some(us), half_width: 0.1, ..FigureCell::default() };
        let line = |(name, us): &(&str, [f64; 3])| ChartLine {
            name: (*name).to_owned(),
            points: [2.0, 3.0, 4.0].into_iter().zip(us.map(cell)).collect(),
        };
        FigurePanel {
            name: "broadcast".to_owned(),
            lines: lines.iter().map(line).collect(),
            levels: vec![("1 pass".to_owned(), 10.0)],
            floor: vec![(2.0, 5.0), (4.0, 20.0)],
        }
    }

    #[test]
    fn the_faster_library_is_named_by_number_of_ranks() {
        let panels = [panel(&[
            ("MPI", [30.0, 40.0, 50.0]),
            ("NCCL, processes", [20.0, 60.0, 49.5]),
            ("NCCL, threads", [20.0, 60.0, 49.5]),
        ])];
        // 50.0 and 49.5 us are less than 3 % apart: a tie.
        let text = winners(&panels);
        assert_eq!(text, "The fastest library by number of ranks: broadcast NCCL at 2, MPI at 3.");
        assert_eq!(threads(&panels), "Threads take 1.00 times the time of processes.");
        // 60 to 49.5 us is 17 % less.
        assert_eq!(
            drops(&panels),
            "NCCL is faster over 4 ranks than over 3: broadcast 60.0 to 49.5 us."
        );
        assert_eq!(greatest_drop(&panels), drops(&panels), "there is one");
        // 20 us of a bound of 10 us over 2 ranks, 49.5 us of a cut of 20 us over 4.
        let text = distances(&panels);
        assert!(text.contains("2.00 (broadcast) to 2.00 times (broadcast) over 2 ranks"), "{text}");
        assert!(text.contains("2.48 (broadcast) to 2.48 times"), "{text}");
    }

    #[test]
    fn numbers_are_listed_in_stretches() {
        assert_eq!(spans(&[2.0]), "2");
        assert_eq!(spans(&[2.0, 3.0, 4.0, 7.0]), "2-4 and 7");
        assert_eq!(spans(&[2.0, 3.0, 5.0, 7.0, 8.0]), "2-3, 5 and 7-8");
    }
}
