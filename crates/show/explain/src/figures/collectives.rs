//! Collectives of an MPI and of NCCL or RCCL: time, busbw, partners, cadences.

use pathline_published::PublishedMetric;
use pathline_schema::{Bytes, Cadence, Collective, ElementReduction, MemKind, SuiteId, Transport};

use super::latency_bounds::LatencyBounds;
use super::pivot::{CellPivot, CellUnit, GBS, US, chart};
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{
    ChartLine, Figure, FigureCell, SuiteFindings, frame, is_apart, line_cells, partner_panels,
    published_clause, sorted,
};
use crate::fmt;
use crate::message_records::{CountedTimes, is_by_threads};
use crate::run::CaseQuantity::{self, Payload, StepUs};
use crate::run::RunView;

/// Sizes in the tables that compare with other tools; `report --format` has all sizes.
const SHOWN: [u64; 7] = [8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30];

pub(super) const SUITES: [SuiteId; 2] = [SuiteId::MpiCollectives, SuiteId::CclCollectives];

/// An exact bus factor up to 8 ranks: `1.75`, `0.875`, `1`.
fn format_factor(factor: f64) -> String {
    format!("{factor:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A measured collective.
#[derive(Clone, Copy)]
struct CollectiveEntry<'b, 'a> {
    sent: SentFlow<'b, 'a>,
    op: Collective,
    reduced: ElementReduction,
    in_place: bool,
    unregistered: bool,
    /// Number of members.
    n: usize,
}

impl CollectiveEntry<'_, '_> {
    fn cadence(&self) -> Cadence {
        self.sent.entry.case.cadence
    }
    /// Whether it has the default mode: back to back, out of place, with registered buffers, and a
    /// reduction sums 64-bit integers.
    fn is_usual(&self) -> bool {
        self.reduced.is_usual()
            && !self.in_place
            && !self.unregistered
            && self.cadence() == Cadence::Streaming
    }
    /// Whether its size is `wanted`, rounded to equal parts for all members.
    fn is_of(&self, wanted: u64) -> bool {
        let (size, unit) = (self.sent.size().0, 8 * self.n as u64);
        size <= wanted.max(unit) && wanted < size + unit
    }
    /// Time of the latest rank.
    fn time(&self, run: &RunView) -> FigureCell {
        run.cell(self.sent.entry, StepUs)
    }
    /// nccl-tests' busbw.
    fn bus(&self, run: &RunView) -> FigureCell {
        let cell = bus_cell(run, &self.sent, self.op);
        let published = run.published_exchange(self.sent.entry, PublishedMetric::BusBandwidth);
        FigureCell { published, ..cell }
    }
    /// Times as other tools count them.
    fn counted(&self) -> Option<CountedTimes> {
        self.sent.entry.series().first().and_then(CountedTimes::from_series)
    }
    /// A cell with another tool's number for the same case.
    fn theirs(&self, number: Option<f64>) -> FigureCell {
        FigureCell::stated(self.sent.entry, number)
    }
}

/// nccl-tests' busbw of a collective, in GB/s.
pub(super) fn bus_cell(run: &RunView, sent: &SentFlow<'_, '_>, op: Collective) -> FigureCell {
    let cell = run.cell(sent.entry, Payload).scaled(op.bus_factor(sent.participants()));
    // The cut bounds the rate of the algorithm; times the factor it would be no peak of a link.
    FigureCell { ceiling: None, path: None, ..cell }
}

fn in_suite<'b, 'a>(run: &'b RunView<'a>, suite: SuiteId) -> Vec<CollectiveEntry<'b, 'a>> {
    let done = |sent: SentFlow<'b, 'a>| {
        let pathline_schema::WireOp::Group { op, reduced, in_place, unregistered } = sent.wire.op
        else {
            return None;
        };
        Some(CollectiveEntry { sent, op, reduced, in_place, unregistered, n: sent.participants() })
    };
    let sent = sent_flows::in_suite(run, suite).into_iter();
    sent.filter(|sent| !is_by_threads(run.journal, sent.flow)).filter_map(done).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let panels = partner_panels::figure(run);
    let (panels, [drops, bounds]) = panels.map_or((None, [None, None]), |(f, s)| (Some(f), s));
    let [mpi, ccl] = SUITES.map(|suite| sentence(run, suite));
    SuiteFindings::new(figures(run).into_iter().chain(panels), [mpi, ccl, drops, bounds])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let mut figures = Vec::new();
    for suite in SUITES {
        let all = in_suite(run, suite);
        let with_memory = all.iter().filter(|d| d.op != Collective::Barrier);
        for kind in sorted(with_memory.map(|d| d.sent.kind())) {
            let chosen: Vec<CollectiveEntry> =
                all.iter().filter(|d| d.sent.kind() == kind).copied().collect();
            let Some(n) = chosen.iter().map(|d| d.n).max() else { continue };
            let about = CollectiveSet { run, suite, kind, n, all: &chosen };
            figures.extend([about.time(), about.bus(), about.partners(), about.osu()]);
            figures.extend([about.nccl_tests(), about.cadences(), about.registration()]);
        }
        figures.push(barrier(run, suite, &all));
    }
    figures.into_iter().flatten().collect()
}

/// The collectives of a suite with one kind of memory, and the largest group.
struct CollectiveSet<'b, 'a> {
    run: &'b RunView<'a>,
    suite: SuiteId,
    kind: SendKind,
    n: usize,
    all: &'b [CollectiveEntry<'b, 'a>],
}

impl<'b, 'a> CollectiveSet<'b, 'a> {
    fn library(&self) -> String {
        let via = self.all.first().map_or(Transport::Mpi, |d| d.sent.wire.via);
        self.run.library(via)
    }

    fn id(&self, shown: &str) -> String {
        format!("{}-{shown}-{}", self.suite, self.kind.id())
    }

    /// Those of the whole group, streaming, out of place.
    fn whole_group(&self) -> impl Iterator<Item = &'b CollectiveEntry<'b, 'a>> {
        let n = self.n;
        self.all.iter().filter(move |d| d.n == n && d.is_usual())
    }

    /// A chart of this set; the title follows the name of the library.
    fn chart(
        &self,
        shown: &str,
        title: &str,
        axes: (CaseQuantity, &str),
        points: impl IntoIterator<Item = (String, f64, FigureCell)>,
        finding: impl FnOnce(&[ChartLine]) -> String,
    ) -> Option<Figure> {
        let title = self.library() + title;
        chart((self.suite, &self.id(shown)), title, axes, self.run, points, finding)
    }

    /// The largest group, and the memory, for a title.
    fn group(&self) -> String {
        format!(" over {} ranks, {}", self.n, memory(self.kind))
    }

    fn time(&self) -> Option<Figure> {
        let run = self.run;
        let points =
            self.whole_group().map(|d| (d.op.to_string(), d.sent.size().as_f64(), d.time(run)));
        let bounds = LatencyBounds::new(run, self.whole_group().map(|d| (d.op, d.sent.entry.case)));
        let title = self.group() + ": time";
        let figure = self.chart("time", &title, (StepUs, "B"), points, |lines| {
            let small = lines.iter().filter_map(|l| {
                Some(format!("{} {}", l.name, fmt::number(l.points.first()?.1.value?)))
            });
            let small = fmt::list_any(small).unwrap_or_default();
            let (bounds, published) = (bounds.text(), published_clause(line_cells(lines)));
            format!("Until the last rank is done, smallest sizes: {small} us.{bounds}{published}")
        });
        figure.map(|figure| bounds.drawn_in(figure))
    }

    fn bus(&self) -> Option<Figure> {
        let (run, n) = (self.run, self.n);
        let name = |op: Collective| format!("{op} x {}", format_factor(op.bus_factor(n)));
        let points = self.whole_group().map(|d| (name(d.op), d.sent.size().as_f64(), d.bus(run)));
        let title = self.group() + ": busbw";
        self.chart("bus", &title, (Payload, "B"), points, |_| self.bus_summary())
    }

    /// `1GiB: all_reduce in 13.5 ms is algbw 79.5 GB/s, times 1.75 busbw 139 GB/s.`
    fn bus_summary(&self) -> String {
        let largest = self.whole_group().map(|d| d.sent.size()).max();
        let one = |d: &CollectiveEntry| {
            let alg = self.run.cell(d.sent.entry, Payload).value?;
            let factor = d.op.bus_factor(d.n);
            let [alg, bus] = [alg, alg * factor].map(fmt::number);
            Some(format!("{} {alg} times {} is {bus} GB/s", d.op, format_factor(factor)))
        };
        let Some(largest) = largest else { return String::new() };
        let last = |d: &&CollectiveEntry| d.is_of(largest.0);
        let texts = fmt::list_any(self.whole_group().filter(last).filter_map(one));
        format!(
            "Bytes of the larger buffer over the time, times nccl-tests' factor; at {}: {}.",
            largest.rounded(),
            texts.unwrap_or_default()
        )
    }

    /// Time at 1 MiB over the number of ranks.
    fn partners(&self) -> Option<Figure> {
        const SIZE: u64 = 1 << 20;
        let run = self.run;
        let of_size = || self.all.iter().filter(|d| d.is_of(SIZE) && d.is_usual());
        let points = of_size().map(|d| (d.op.to_string(), d.n as f64, d.time(run)));
        let bounds = LatencyBounds::new(run, of_size().map(|d| (d.op, d.sent.entry.case)));
        let title = format!(", {}: time of 1 MiB by partners", memory(self.kind));
        let figure = self.chart("partners", &title, (StepUs, "ranks"), points, |lines| {
            let growth = lines.iter().filter_map(|l| {
                let ((a, first), (b, last)) = (l.points.first()?, l.points.last()?);
                let times = fmt::number(last.value? / first.value?);
                (b > a).then(|| format!("{} {times}", l.name))
            });
            let growth = fmt::list_any(growth).unwrap_or_default();
            let (bounds, published) = (bounds.text(), published_clause(line_cells(lines)));
            format!(
                "From the fewest ranks to the most the time changes by the factors {growth}.{bounds}{published}"
            )
        })?;
        let figure = bounds.drawn_in(figure);
        let super::FigureBody::Curves(curves) = &figure.body else { return None };
        curves.lines.iter().any(|l| l.points.len() > 1).then_some(figure)
    }

    /// Rows of a table: operation and one of the displayed sizes.
    fn rows(&self) -> Vec<&'b CollectiveEntry<'b, 'a>> {
        let ops = Collective::ALL.iter().filter(|&&op| op != Collective::Barrier);
        ops.flat_map(|&op| SHOWN.iter().map(move |&size| (op, size)))
            .filter_map(|(op, size)| self.whole_group().find(|d| d.op == op && d.is_of(size)))
            .filter(|d| !d.sent.entry.series().is_empty())
            .collect()
    }

    /// A table of rows next to the columns of another tool; `None` without rows.
    fn compared<const N: usize>(
        &self,
        shown: &str,
        (title, finding): (&str, &str),
        unit: CellUnit,
        rows: &[&CollectiveEntry],
        name: impl Fn(&CollectiveEntry) -> String,
        cells: impl Fn(&CollectiveEntry) -> [(&'static str, FigureCell); N],
    ) -> Option<Figure> {
        let points = rows.iter().enumerate().flat_map(|(at, row)| {
            let name = name(row);
            cells(row).map(|(column, cell)| ((at, name.clone()), column, cell))
        });
        let pivot = CellPivot::new(points);
        let matrix = pivot.matrix(
            ("size", |(_, name)| name.clone()),
            ("counted by", |column| (*column).to_owned()),
            unit,
        );
        let framed = frame(self.run, (self.suite, ""), self.id(shown), self.library() + title);
        (!rows.is_empty()).then(|| framed.finding(finding).draw(matrix))
    }

    fn osu(&self) -> Option<Figure> {
        if self.suite != SuiteId::MpiCollectives {
            return None;
        }
        let mut rows = self.rows();
        // Sums of the types of OSU's programs have no lines in the charts.
        let typed = |d: &&CollectiveEntry| !d.reduced.is_usual() && d.n == self.n && !d.in_place;
        rows.extend(self.all.iter().filter(typed));
        let name = |d: &CollectiveEntry| {
            let size = d.op.osu_size(d.sent.size(), d.n);
            match d.reduced.is_usual() {
                true => format!("{} {size}", d.op),
                false => format!("{} {size}", d.sent.wire.op),
            }
        };
        let run = self.run;
        let cells = |d: &CollectiveEntry| {
            let counted = d.counted();
            let of = |time: fn(&CountedTimes) -> f64| d.theirs(counted.as_ref().map(time));
            let published = run.published_exchange(d.sent.entry, PublishedMetric::MeanLatency);
            [
                ("median, latest rank", d.time(run)),
                ("OSU avg", FigureCell { published, ..of(|c| c.mean) }),
                ("OSU min", of(|c| c.min)),
                ("OSU max", of(|c| c.max)),
            ]
        };
        let title = format!(", {}: the same compared with OSU's columns", memory(self.kind));
        let finding = "OSU prints the mean over ranks of each rank's mean time, and with -f the least \
                       and the greatest of these; its sizes, here in the rows, are what one rank gives \
                       to one other.";
        self.compared("osu", (&title, finding), US, &rows, name, cells)
    }

    fn nccl_tests(&self) -> Option<Figure> {
        if self.suite != SuiteId::CclCollectives {
            return None;
        }
        let cells = |d: &CollectiveEntry| {
            let rate = d.counted().map(|c| d.sent.size().as_f64() / (c.mean * 1e3));
            [
                ("algbw", self.run.cell(d.sent.entry, Payload)),
                ("busbw", d.bus(self.run)),
                ("nccl-tests algbw", d.theirs(rate)),
                ("nccl-tests busbw", d.theirs(rate.map(|r| r * d.op.bus_factor(d.n)))),
            ]
        };
        let name = |d: &CollectiveEntry| format!("{} {}", d.op, d.sent.size());
        let title = ": the same compared with nccl-tests' columns";
        let finding = "Ours is the median over samples of the latest rank's time; nccl-tests divides by \
                       the mean time, over ranks where there are several processes.";
        self.compared("nccl-tests", (title, finding), GBS, &self.rows(), name, cells)
    }

    /// Busbw of all_reduce with buffers that are registered with the communicator, and with
    /// unregistered ones.
    fn registration(&self) -> Option<Figure> {
        let of_op = |d: &&CollectiveEntry| {
            let streaming = d.cadence() == Cadence::Streaming && !d.in_place;
            let whole = d.op == Collective::AllReduce && d.n == self.n;
            d.reduced.is_usual() && whole && streaming
        };
        let chosen: Vec<&CollectiveEntry> = self.all.iter().filter(of_op).collect();
        let value = |unregistered: bool, size: Bytes| {
            let of =
                |d: &&&CollectiveEntry| d.unregistered == unregistered && d.sent.size() == size;
            Some(chosen.iter().find(of)?.bus(self.run)).filter(|cell| cell.value.is_some())
        };
        let sizes = sorted(chosen.iter().filter(|d| d.unregistered).map(|d| d.sent.size()));
        let both = |size| Some((size, value(false, size)?, value(true, size)?));
        let both: Vec<(Bytes, FigureCell, FigureCell)> =
            sizes.into_iter().filter_map(both).collect();
        let points = both.iter().flat_map(|(size, with, without)| {
            let x = size.as_f64();
            [("registered".to_owned(), x, with.clone()), ("not".to_owned(), x, without.clone())]
        });
        let title = ": all_reduce by registration, busbw";
        self.chart("registration", title, (Payload, "B"), points, |_| {
            let one = |(size, with, without): &(Bytes, FigureCell, FigureCell)| {
                let same = if is_apart(with, without) { "" } else { " (not distinguishable)" };
                let times = fmt::number(with.value? / without.value?);
                Some(format!("{} {times} times{same}", size.rounded()))
            };
            let all = fmt::list_any(both.iter().filter_map(one)).unwrap_or_default();
            format!("Registered buffers have, of the rate of others: {all}.")
        })
    }

    /// Time of small all_reduces back to back, as a graph, one at a time, and in place.
    fn cadences(&self) -> Option<Figure> {
        let of_op = |d: &&CollectiveEntry| {
            let whole = d.op == Collective::AllReduce && d.n == self.n;
            d.reduced.is_usual() && whole && !d.unregistered
        };
        let chosen = || self.all.iter().filter(of_op);
        let measured = chosen().filter(|d| !d.sent.entry.series().is_empty());
        if sorted(measured.map(|d| (d.cadence(), d.in_place))).len() < 2 {
            return None;
        }
        let points = chosen().filter(|d| d.sent.size() <= Bytes::mib(1)).map(|d| {
            let name = format!("{}{}", d.cadence(), if d.in_place { ", in place" } else { "" });
            (name, d.sent.size().as_f64(), d.time(self.run))
        });
        let title = ": all_reduce by cadence, time";
        self.chart("cadence", title, (StepUs, "B"), points, |lines| {
            let at = |name: &str| {
                lines.iter().find(|l| l.name == name).and_then(|l| Some(&l.points.first()?.1))
            };
            let Some(streaming) = at("streaming") else { return String::new() };
            let compare = |name: &str| {
                let (other, alone) = (at(name)?, streaming.value?);
                let same = if is_apart(other, streaming) { "" } else { ", not distinguishable" };
                let [us, ratio] = [other.value?, other.value? / alone].map(fmt::number);
                Some(format!("{name} {us} us ({ratio} times{same})"))
            };
            let others = fmt::list_any(["graph", "isolated"].into_iter().filter_map(compare));
            let rest = others.map_or(String::new(), |others| format!(", {others}"));
            let alone = streaming.value.map_or(String::new(), fmt::number);
            format!("Smallest size: streaming {alone} us{rest}.")
        })
    }
}

/// Time of a barrier over the number of ranks.
fn barrier(run: &RunView, suite: SuiteId, all: &[CollectiveEntry<'_, '_>]) -> Option<Figure> {
    let barriers = || all.iter().filter(|d| d.op == Collective::Barrier);
    let title = format!("{}: a barrier by partners", run.library(barriers().next()?.sent.wire.via));
    let points = barriers().map(|d| ("barrier".to_owned(), d.n as f64, d.time(run)));
    let id = format!("{suite}-barrier");
    chart((suite, &id), title, (StepUs, "ranks"), run, points, |lines| {
        let ends = lines.first().and_then(|l| Some((l.points.first()?, l.points.last()?)));
        let Some(((a, few), (b, many))) = ends else { return String::new() };
        let [few, many] = [few, many].map(|c| c.value.map_or(String::new(), fmt::number));
        format!("{few} us over {a} ranks, {many} us over {b}.")
    })
}

/// Times of the largest and the smallest all_reduce, in one sentence.
fn sentence(run: &RunView, suite: SuiteId) -> Option<String> {
    let all = in_suite(run, suite);
    let n = all.iter().map(|d| d.n).max()?;
    // Device memory if available, since applications reduce it.
    let kind = all.iter().map(|d| d.sent.kind()).find(|k| *k == SendKind::from_kind(MemKind::Vram));
    let kind = kind.or(all.first().map(|d| d.sent.kind()))?;
    let of = |d: &&CollectiveEntry| d.n == n && d.sent.kind() == kind && d.is_usual();
    let reduces = all.iter().filter(of).filter(|d| d.op == Collective::AllReduce);
    let reduces = reduces.filter(|d| !d.sent.entry.series().is_empty()).map(|d| d.sent);
    let (large, small) =
        (reduces.clone().max_by_key(SentFlow::size)?, reduces.min_by_key(SentFlow::size)?);
    let alg = run.value(large.entry, Payload)?;
    let least = fmt::number(run.value(small.entry, StepUs)?);
    let (library, memory) = (run.library(large.wire.via), memory(kind));
    let (small, large) = (small.size(), large.size());
    let (bus, alg) = (fmt::gbs(alg * Collective::AllReduce.bus_factor(n)), fmt::number(alg));
    Some(format!(
        "all_reduce by {library} over {n} ranks, {memory}: {small} in {least} us; the largest measured, \
         {large}, at busbw {bus} (algbw {alg})."
    ))
}
