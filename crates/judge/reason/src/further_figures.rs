//! Quantities of an output besides its headline: the other direction, latencies, largest and smallest
//! sizes, both places.

use pathline_paste::{
    CollectiveTable, CopyMeans, FileIoResult, MatrixEnd, MessageTable, NetworkTable, PasteContent,
    RateCount, RateMatrix, TimedTransfer,
};

use crate::draft::ProbeSubject;
use crate::figures::figure;
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
        let place = large.in_place_busbw.map(|busbw| format!(", in place {}", figure(busbw)));
        let rest = match small.bytes == large.bytes {
            true => format!(", {} us", figure(large.time_us)),
            false => format!("; smallest, {} B: {} us", small.bytes, figure(small.time_us)),
        };
        let (bytes, [busbw, algbw]) = (large.bytes, [large.busbw, large.algbw].map(figure));
        let place = place.unwrap_or_default();
        lines.push(format!(
            "largest size, {bytes} B: busbw {busbw}{place}, algbw {algbw} GB/s{rest}"
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

/// `24.5 GB/s at 65536 B`, each.
fn at_sizes(rows: &[(u64, f64)], unit: &str) -> String {
    let each = rows.iter().take(MAX_LISTED);
    let each = each.map(|(bytes, value)| format!("{} {unit} at {bytes} B", figure(*value)));
    each.collect::<Vec<_>>().join(", ")
}

fn of_messages(table: &MessageTable) -> Vec<String> {
    let longest = table.longest.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied();
    let longest = longest.filter(|_| table.is_time());
    let best = table.rows.iter().map(|row| row.1).fold(0.0, f64::max);
    // The headline has the best one.
    let last = table.rows.last().filter(|row| row.1 < best * 0.999 && !table.is_time());
    let longest = longest.map(|row| format!("longest time of a rank: {}", at_sizes(&[row], "us")));
    longest.into_iter().chain(last.map(|row| at_sizes(&[*row], "GB/s"))).collect()
}

fn of_network(table: &NetworkTable) -> Vec<String> {
    let unit = if table.is_latency { "us" } else { "GB/s" };
    // Of rates the headline is the best, and the largest size tells more.
    let from = if table.is_latency { 0 } else { table.rows.len().saturating_sub(1) };
    let rows = table.rows.get(from..).filter(|_| table.rows.len() > 1);
    let tails = (!table.longest.is_empty()).then(|| at_sizes(&table.longest, "us"));
    let tail = table.tail.map(|(mean, late, longest)| {
        let [mean, late, longest] = [mean, late, longest].map(figure);
        format!("mean {mean} us, 99.9 % below {late} us, longest {longest} us")
    });
    let parts = [
        table.peak.map(|gbs| format!("peak {} Gbit/s", figure(gbs * 8.0))),
        rows.map(|rows| at_sizes(rows, unit)),
        tails.map(|tails| format!("99 % of the operations below {tails}")),
        tail,
        table.messages.map(|rate| format!("{} million messages a second", figure(rate / 1e6))),
    ];
    parts.into_iter().flatten().collect()
}

fn of_files(result: &FileIoResult) -> Vec<String> {
    let time = result.latency_us.map(|us| format!("mean {} us each", figure(us)));
    let iops = result.iops.map(|iops| format!("{iops:.0} I/Os a second"));
    let each: Vec<String> = iops.into_iter().chain(time).collect();
    let rates = || result.intervals.iter().map(|interval| interval.1);
    let times = ["median", "99 % below", "99.9 % below"].iter().zip(result.percentiles);
    let times = times.filter_map(|(name, us)| Some(format!("{name} {} us", figure(us?))));
    let times: Vec<String> = times.collect();
    let parts = [
        result.mixed.map(|(write, read)| {
            let [write, read] = [write, read].map(figure);
            format!("of it {write} GB/s written and {read} GB/s read at once")
        }),
        (!each.is_empty()).then(|| each.join(", ")),
        (!times.is_empty()).then(|| times.join(", ")),
        (result.intervals.len() > 1).then(|| {
            let least = figure(rates().fold(f64::INFINITY, f64::min));
            let most = figure(rates().fold(0.0, f64::max));
            format!("{} intervals: worst {least}, best {most} GB/s", result.intervals.len())
        }),
    ];
    parts.into_iter().flatten().collect()
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
const KINDS: [(&str, ProbeSubject); 4] = [
    ("H2D", ProbeSubject::HostLinks),
    ("D2H", ProbeSubject::HostLinks),
    ("pairs", ProbeSubject::GpuPairs),
    ("within a GPU", ProbeSubject::Nothing),
];

fn kind_of((from, to, _): &(MatrixEnd, MatrixEnd, f64)) -> Option<usize> {
    match (from, to) {
        (MatrixEnd::Host(_), MatrixEnd::Gpu(_)) => Some(0),
        (MatrixEnd::Gpu(_), MatrixEnd::Host(_)) => Some(1),
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) => Some(if a == b { 3 } else { 2 }),
        (MatrixEnd::Host(_), MatrixEnd::Host(_)) => None,
    }
}

/// Each kind of cells of each matrix in a line, by what it is about; kinds that one matrix alone has and the
/// headline shows are left out.
pub(crate) fn figures_of_matrices(all: &[&RateMatrix]) -> Vec<(ProbeSubject, String)> {
    let is_plain = |m: &RateMatrix| !m.is_latency && !m.concurrent && m.means != CopyMeans::Kernel;
    let key = |m: &RateMatrix| {
        let is_kernel = m.means == CopyMeans::Kernel;
        (m.is_latency, m.count != RateCount::OneWay, m.peer_access, is_kernel, m.concurrent)
    };
    let values = |matrix: &RateMatrix, kind: usize| -> Vec<f64> {
        let mine = matrix.cells.iter().filter(|cell| kind_of(cell) == Some(kind));
        mine.map(|cell| cell.2).collect()
    };
    let mut found: Vec<(ProbeSubject, String)> = Vec::new();
    for (at, matrix) in all.iter().enumerate() {
        for (kind, (label, subject)) in KINDS.into_iter().enumerate() {
            let mine = values(matrix, kind);
            let Some(middle) = median(&mine) else { continue };
            let has_same = all.iter().enumerate().any(|(other, one)| {
                other != at && key(one) == key(matrix) && !values(one, kind).is_empty()
            });
            let is_headline = match kind {
                0 | 1 => matrix.count != RateCount::Sum && is_plain(matrix),
                2 => {
                    let is_open = matrix.peer_access != Some(false);
                    matrix.count == RateCount::OneWay && is_open && !matrix.is_latency
                }
                _ => matrix.cells.iter().all(|cell| cell.0 == cell.1),
            };
            // What a copy within a GPU gets does not depend on peer access.
            let is_again = kind == 3 && found.iter().any(|one| one.0 == subject);
            if is_again || is_headline && !has_same || found.len() >= MAX_LINES {
                continue;
            }
            let unit = if matrix.is_latency { "us" } else { "GB/s" };
            let least = figure(mine.iter().copied().fold(f64::INFINITY, f64::min));
            let most = figure(mine.iter().copied().fold(0.0, f64::max));
            let spread = match mine.len() > 1 {
                true => format!(" (least {least}, greatest {most})"),
                false => String::new(),
            };
            let test = matrix.test.trim();
            found.push((subject, format!("{test}, {label}: {} {unit}{spread}", figure(middle))));
        }
    }
    found
}
