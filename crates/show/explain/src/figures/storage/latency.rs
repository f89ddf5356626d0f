//! Complete latency distributions of selected cases.

use pathline_schema::IoOrder;

use super::{IoEntry, IoQuantity, LabelPart, SUITE, gaps, labels};
use crate::figure::{BetterWhen, ChartLine, Figure, FigureCell};
use crate::figures::frame;
use crate::fmt;
use crate::run::RunView;

/// Maximum number of lines that can be distinguished in a chart.
const MAX_LINES: usize = 8;

/// Points of the curve: share of I/Os that take longer, in percent.
const SLOWER: [f64; 20] = [
    99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01,
    0.005, 0.002, 0.001,
];

/// Share of I/Os that take longer than a time, which shows the tail as well as the middle.
pub(super) fn figure(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let chosen = chosen(jobs);
    let names = labels(&chosen, &[LabelPart::Batch]);
    let line = |(job, name)| ChartLine { name, points: points(job) };
    let lines: Vec<ChartLine> = chosen.iter().zip(names).map(line).collect();
    let title = format!("Latency of {}: how many take longer", chosen.first()?.work());
    let unit = ("% take longer", BetterWhen::Lower);
    let framed = frame(run, (SUITE, ""), "storage-latency", title);
    framed.draw_lines("us", unit, lines, |lines| finding(&chosen, lines))
}

/// With GPUs: host and GPU with the same I/O, with the fewest in flight, and with the most before
/// saturation. Without GPUs: the engines.
fn chosen<'b, 'a>(jobs: &[IoEntry<'b, 'a>]) -> Vec<IoEntry<'b, 'a>> {
    let measured = || jobs.iter().filter(|j| !j.latencies().is_empty());
    let random = |j: &&IoEntry| j.io.order == IoOrder::Rand;
    // Random I/O, for which latency matters; otherwise all.
    let any = measured().any(|j| random(&j));
    let pool: Vec<IoEntry> = measured().filter(|j| !any || random(j)).copied().collect();
    let gpu = pool.iter().filter(|j| gaps::host_of(j, &pool).is_some()).min_by_key(|j| j.gpu());
    let Some(first) = gpu else { return of_engines(&pool) };
    let alike: Vec<IoEntry> = pool
        .iter()
        .filter(|j| j.gpu() == first.gpu() && j.work() == first.work())
        .filter(|j| j.io.cache == first.io.cache && gaps::host_of(j, &pool).is_some())
        .copied()
        .collect();
    let at = |slots: u64| {
        let here: Vec<IoEntry> = alike.iter().filter(|j| j.io.slots() == slots).copied().collect();
        let host = here.first().and_then(|j| gaps::host_of(j, &pool));
        host.into_iter().chain(here)
    };
    ends(&alike).into_iter().flat_map(at).take(MAX_LINES).collect()
}

fn of_engines<'b, 'a>(pool: &[IoEntry<'b, 'a>]) -> Vec<IoEntry<'b, 'a>> {
    let Some(first) = pool.first() else { return Vec::new() };
    let alike: Vec<IoEntry> = pool
        .iter()
        .filter(|j| j.work() == first.work() && j.io.cache == first.io.cache)
        .filter(|j| j.store() == first.store() && j.memory() == first.memory())
        .copied()
        .collect();
    let at = |slots: u64| alike.iter().filter(move |j| j.io.slots() == slots).copied();
    ends(&alike).into_iter().flat_map(at).take(MAX_LINES).collect()
}

/// The fewest in flight, and the most at which throughput still increased.
fn ends(jobs: &[IoEntry<'_, '_>]) -> Vec<u64> {
    let slots = || jobs.iter().map(|j| j.io.slots());
    let queue = |slots: u64| {
        jobs.iter().any(|j| j.io.slots() == slots && gaps::saturated(j, jobs).is_some())
    };
    let most = slots().filter(|n| !queue(*n)).max();
    let mut ends: Vec<u64> = slots().min().into_iter().chain(most).collect();
    ends.dedup();
    ends
}

fn points(job: &IoEntry<'_, '_>) -> Vec<(f64, FigureCell)> {
    let all = job.latencies();
    let count = all.count() as f64;
    let point = |ns: f64, percent: f64| (ns / 1e3, FigureCell::stated(job.entry, Some(percent)));
    let mut points = vec![point(all.min_ns as f64, 100.0)];
    let several = SLOWER.into_iter().filter(|p| p / 100.0 * count >= 1.0);
    points.extend(
        several.filter_map(|percent| Some(point(all.quantile(1.0 - percent / 100.0)?.0, percent))),
    );
    // All but the longest are shorter.
    points.push(point(all.max_ns as f64, 100.0 / count));
    points
}

fn finding(chosen: &[IoEntry<'_, '_>], lines: &[ChartLine]) -> String {
    let asked = [IoQuantity::Quantile(0.5), IoQuantity::Quantile(0.99), IoQuantity::Max];
    let one = |(job, line): (&IoEntry, &ChartLine)| {
        let [half, most, max] = asked.map(|asked| job.value(asked).map(fmt::number));
        Some(format!("{}: {} us, {}, {}", line.name, half?, most?, max?))
    };
    let texts = fmt::join_any(chosen.iter().zip(lines).filter_map(one), "; ").unwrap_or_default();
    format!("Median, 99th percentile and longest. {}.", fmt::sentence(&texts))
}
