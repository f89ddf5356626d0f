//! Quantities of an output besides its headline: the other direction, latencies, largest and smallest
//! sizes, both places.

use pathline_paste::{
    CollectiveTable, CopyMeans, FileIoResult, MatrixEnd, MessageTable, NetworkTable, PasteContent,
    RateCount, RateMatrix, TimedTransfer,
};

use crate::draft::ProbeSubject;
use crate::node_facts::figure;
use crate::outlier::median;

/// Lines of an answer.
const MAX_LINES: usize = 12;
/// Figures of a line.
const MAX_LISTED: usize = 8;

/// What of an output the headline leaves out.
pub(crate) fn further_figures(content: &PasteContent) -> Vec<String> {
    match content {
        PasteContent::Collective(table) => of_collective(table),
        PasteContent::Messages(table) => of_messages(table),
        PasteContent::Network(table) => of_network(table),
        PasteContent::FileIo(result) => of_files(result),
        PasteContent::Transfers(list) => of_transfers(list),
        _ => Vec::new(),
    }
}

fn of_collective(table: &CollectiveTable) -> Vec<String> {
    let mut lines = Vec::new();
    let by_size = || table.rows.iter();
    if let (Some(small), Some(large)) =
        (by_size().min_by_key(|row| row.bytes), by_size().max_by_key(|row| row.bytes))
    {
        let place = large
            .in_place_busbw
            .map_or_else(String::new, |busbw| format!(", in place {}", figure(busbw)));
        lines.push(format!(
            "largest size, {} B: busbw {}{place}, algbw {} GB/s; smallest, {} B: {} us",
            large.bytes,
            figure(large.busbw),
            figure(large.algbw),
            small.bytes,
            figure(small.time_us)
        ));
    }
    let wrong = by_size().filter(|row| row.wrong > 0.0).take(MAX_LISTED);
    lines.extend(wrong.map(|row| format!("{} wrong elements at {} B", row.wrong, row.bytes)));
    let average = table.average_busbw.filter(|_| table.rows.len() > 1);
    lines.extend(average.map(|busbw| {
        format!("average over all sizes: busbw {} GB/s, which counts small ones", figure(busbw))
    }));
    lines
}

fn of_messages(table: &MessageTable) -> Vec<String> {
    let longest = table.longest.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let longest = longest
        .map(|(bytes, us)| format!("longest time of a rank: {} us at {bytes} B", figure(*us)));
    let last = table.rows.last().filter(|_| table.rows.len() > 1);
    let (Some((bytes, value)), false) = (last, table.is_time()) else {
        return longest.into_iter().collect();
    };
    vec![format!("largest size, {bytes} B: {} GB/s", figure(*value))]
}

fn of_network(table: &NetworkTable) -> Vec<String> {
    let list = |rows: &[(u64, f64)], unit: &str| -> Vec<String> {
        let each = rows.iter().take(MAX_LISTED);
        each.map(|(bytes, value)| format!("{} {unit} at {bytes} B", figure(*value))).collect()
    };
    let tails = list(&table.longest, "us");
    let rows = match (table.is_latency, table.rows.len()) {
        (_, 0 | 1) => Vec::new(),
        (true, _) => list(&table.rows, "us"),
        (false, _) => list(table.rows.split_at(table.rows.len() - 1).1, "GB/s"),
    };
    let tails =
        (!tails.is_empty()).then(|| format!("99 % of the operations below {}", tails.join(", ")));
    let tail = table.tail.map(|(mean, late, longest)| {
        format!(
            "mean {} us, 99.9 % below {} us, longest {} us",
            figure(mean),
            figure(late),
            figure(longest)
        )
    });
    let messages =
        table.messages.map(|rate| format!("{} million messages a second", figure(rate / 1e6)));
    let rows = (!rows.is_empty()).then(|| rows.join(", "));
    let peak = table.peak.map(|gbs| format!("peak {} Gbit/s", figure(gbs * 8.0)));
    peak.into_iter().chain(rows).chain(tails).chain(tail).chain(messages).collect()
}

fn of_files(result: &FileIoResult) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(result.mixed.map(|(write, read)| {
        format!("of it {} GB/s written and {} GB/s read at once", figure(write), figure(read))
    }));
    let time = result.latency_us.map(|us| format!("mean {} us each", figure(us)));
    let iops = result.iops.map(|iops| format!("{iops:.0} I/Os a second"));
    let each: Vec<String> = iops.into_iter().chain(time).collect();
    if !each.is_empty() {
        lines.push(each.join(", "));
    }
    lines.extend(result.percentiles.map(|(middle, most, late)| {
        format!(
            "median {} us, 99 % below {} us, 99.9 % below {} us",
            figure(middle),
            figure(most),
            figure(late)
        )
    }));
    let rates = || result.intervals.iter().map(|interval| interval.1);
    if result.intervals.len() > 1 {
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let count = result.intervals.len();
        lines.push(format!(
            "{count} intervals: worst {}, best {} GB/s",
            figure(least),
            figure(most)
        ));
    }
    lines
}

fn of_transfers(list: &[TimedTransfer]) -> Vec<String> {
    let each = list.iter().filter(|_| list.len() > 1).take(MAX_LISTED);
    each.map(|one| {
        let TimedTransfer { test, source, executor, destination, gbs, .. } = one;
        format!("test {test}: {source} -> {destination} by {executor}: {} GB/s", figure(*gbs))
    })
    .collect()
}

/// The kinds of cells of a matrix, with what is said of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CellKind {
    Inward,
    Outward,
    Pair,
    Local,
}

impl CellKind {
    const fn of((from, to): (MatrixEnd, MatrixEnd)) -> Option<Self> {
        Some(match (from, to) {
            (MatrixEnd::Host(_), MatrixEnd::Gpu(_)) => Self::Inward,
            (MatrixEnd::Gpu(_), MatrixEnd::Host(_)) => Self::Outward,
            (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a == b => Self::Local,
            (MatrixEnd::Gpu(_), MatrixEnd::Gpu(_)) => Self::Pair,
            (MatrixEnd::Host(_), MatrixEnd::Host(_)) => return None,
        })
    }

    const fn subject(self) -> ProbeSubject {
        match self {
            Self::Inward | Self::Outward => ProbeSubject::HostLinks,
            Self::Pair => ProbeSubject::GpuPairs,
            Self::Local => ProbeSubject::Nothing,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Inward => "H2D",
            Self::Outward => "D2H",
            Self::Pair => "pairs",
            Self::Local => "within a GPU",
        }
    }
}

/// Each kind of cells of each matrix in a line, by what it is about; kinds that one matrix alone has and the
/// headline shows are left out.
pub(crate) fn figures_of_matrices(all: &[&RateMatrix]) -> Vec<(ProbeSubject, String)> {
    const KINDS: [CellKind; 4] =
        [CellKind::Inward, CellKind::Outward, CellKind::Pair, CellKind::Local];
    let key = |matrix: &RateMatrix, kind: CellKind| {
        (
            matrix.is_latency,
            matrix.count != RateCount::OneWay,
            matrix.peer_access,
            matrix.means == CopyMeans::Kernel,
            matrix.concurrent,
            kind,
        )
    };
    let values = |matrix: &RateMatrix, kind: CellKind| -> Vec<f64> {
        let mine =
            matrix.cells.iter().filter(|(from, to, _)| CellKind::of((*from, *to)) == Some(kind));
        mine.map(|cell| cell.2).collect()
    };
    let mut found = Vec::new();
    for (at, matrix) in all.iter().enumerate() {
        for kind in KINDS {
            let mine = values(matrix, kind);
            let Some(middle) = median(&mine) else { continue };
            let others = all
                .iter()
                .enumerate()
                .filter(|(other, matrix)| *other != at && !values(matrix, kind).is_empty());
            let has_same = others.clone().any(|(_, other)| key(other, kind) == key(matrix, kind));
            let is_headline = match kind {
                CellKind::Inward | CellKind::Outward => {
                    matrix.count != RateCount::Sum
                        && !matrix.concurrent
                        && !matrix.is_latency
                        && matrix.means != CopyMeans::Kernel
                }
                CellKind::Pair => {
                    matrix.count == RateCount::OneWay
                        && matrix.peer_access != Some(false)
                        && !matrix.is_latency
                }
                CellKind::Local => matrix.cells.iter().all(|cell| cell.0 == cell.1),
            };
            // What a copy within a GPU gets does not depend on peer access.
            let is_again = kind == CellKind::Local
                && found.iter().any(|(subject, _)| *subject == ProbeSubject::Nothing);
            if is_again || is_headline && !has_same || found.len() >= MAX_LINES {
                continue;
            }
            let unit = if matrix.is_latency { "us" } else { "GB/s" };
            let (least, most) = (
                mine.iter().copied().fold(f64::INFINITY, f64::min),
                mine.iter().copied().fold(0.0, f64::max),
            );
            let spread = match mine.len() > 1 {
                true => format!(" (least {}, greatest {})", figure(least), figure(most)),
                false => String::new(),
            };
            let text = format!(
                "{}, {}: {} {unit}{spread}",
                matrix.test.trim(),
                kind.label(),
                figure(middle)
            );
            found.push((kind.subject(), text));
        }
    }
    found
}
