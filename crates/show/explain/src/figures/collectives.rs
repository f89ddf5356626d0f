//! Collectives of an MPI and of NCCL or RCCL: time, busbw, partners, cadences.

use std::collections::BTreeSet;

use pathline_published::PublishedMetric;
use pathline_schema::{Bytes, Cadence, Collective, ElementReduction, MemKind, SuiteId, Transport};

use super::latency_bounds::LatencyBounds;
use super::sent_flows::{self, ChartSpec, SendKind, SentFlow, memory, other_tool_cell};
use super::{
    BetterWhen, Figure, FigureCell, SuiteFindings, is_apart, partner_panels, published_clause,
};
use crate::fmt;
use crate::message_records::{CountedTimes, is_by_threads};
use crate::run::{CaseQuantity, RunView};

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
    /// nccl-tests' busbw.
    fn bus(&self, run: &RunView) -> FigureCell {
        let cell = bus_cell(run, &self.sent, self.op);
        let published = run.published_exchange(self.sent.entry, PublishedMetric::BusBandwidth);
        FigureCell { published, ..cell }
    }
}

/// nccl-tests' busbw of a collective, in GB/s.
pub(super) fn bus_cell(run: &RunView, sent: &SentFlow<'_, '_>, op: Collective) -> FigureCell {
    let cell = run.cell(sent.entry, CaseQuantity::Payload);
    let factor = op.bus_factor(sent.participants());
    // The cut bounds the rate of the algorithm; times the factor it would be no peak of a link.
    FigureCell {
        value: cell.value.map(|value| value * factor),
        half_width: cell.half_width * factor,
        ceiling: None,
        path: None,
        ..cell
    }
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
        let kinds: BTreeSet<SendKind> =
            all.iter().filter(|d| d.op != Collective::Barrier).map(|d| d.sent.kind()).collect();
        for kind in kinds {
            let chosen: Vec<CollectiveEntry> =
                all.iter().filter(|d| d.sent.kind() == kind).copied().collect();
            let Some(n) = chosen.iter().map(|d| d.n).max() else { continue };
            let about = CollectiveSet { run, suite, kind, n, all: &chosen };
            figures.extend(about.time());
            figures.extend(about.bus());
            figures.extend(about.partners());
            figures.extend(about.osu());
            figures.extend(about.nccl_tests());
            figures.extend(about.cadences());
            figures.extend(about.registration());
        }
        figures.extend(barrier(run, suite, &all));
    }
    figures
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

    /// Those of the whole group, streaming, out of place.
    fn whole_group(&self) -> impl Iterator<Item = &'b CollectiveEntry<'b, 'a>> {
        let n = self.n;
        self.all.iter().filter(move |d| d.n == n && d.is_usual())
    }

    fn chart<'c>(
        &self,
        id: &'c str,
        title: String,
        quantity: CaseQuantity,
        x: &'c str,
    ) -> ChartSpec<'c> {
        ChartSpec::new((self.suite, id), title, quantity, x)
    }

    fn time(&self) -> Option<Figure> {
        let (run, n) = (self.run, self.n);
        let id = format!("{}-time-{}", self.suite, self.kind.id());
        let title = format!("{} over {n} ranks, {}: time", self.library(), memory(self.kind));
        let chart = self.chart(&id, title, CaseQuantity::StepUs, "B");
        let points = self.whole_group().map(|d| {
            let cell = run.cell(d.sent.entry, CaseQuantity::StepUs);
            (d.op.to_string(), d.sent.size().as_f64(), cell)
        });
        let bounds = LatencyBounds::new(run, self.whole_group().map(|d| (d.op, d.sent.entry.case)));
        let figure = chart.draw(run, points, |lines| {
            let small: Vec<String> = lines
                .iter()
                .filter_map(|l| {
                    let value = l.points.first()?.1.value?;
                    Some(format!("{} {}", l.name, fmt::number(value)))
                })
                .collect();
            let all = lines.iter().flat_map(|l| l.points.iter().map(|p| &p.1));
            format!(
                "Until the last rank is done, smallest sizes: {} us.{}{}",
                fmt::list(&small),
                bounds.text(),
                published_clause(all)
            )
        });
        figure.map(|figure| bounds.drawn_in(figure))
    }

    fn bus(&self) -> Option<Figure> {
        let (run, n) = (self.run, self.n);
        let id = format!("{}-bus-{}", self.suite, self.kind.id());
        let memory = memory(self.kind);
        let title = format!("{} over {n} ranks, {memory}: busbw", self.library());
        let chart = self.chart(&id, title, CaseQuantity::Payload, "B");
        let name = |op: Collective| format!("{op} x {}", format_factor(op.bus_factor(n)));
        let points = self.whole_group().map(|d| (name(d.op), d.sent.size().as_f64(), d.bus(run)));
        let figure = chart.draw(run, points, |_| String::new());
        figure.map(|figure| Figure { finding: self.bus_summary(), ..figure })
    }

    /// `1GiB: all_reduce in 13.5 ms is algbw 79.5 GB/s, times 1.75 busbw 139 GB/s.`
    fn bus_summary(&self) -> String {
        let largest = self.whole_group().map(|d| d.sent.size()).max();
        let one = |d: &CollectiveEntry| {
            let alg = self.run.cell(d.sent.entry, CaseQuantity::Payload).value?;
            let factor = d.op.bus_factor(d.n);
            Some(format!(
                "{} {} times {} is {} GB/s",
                d.op,
                fmt::number(alg),
                format_factor(factor),
                fmt::number(alg * factor)
            ))
        };
        let Some(largest) = largest else { return String::new() };
        let last = |d: &&CollectiveEntry| d.is_of(largest.0);
        let texts: Vec<String> = self.whole_group().filter(last).filter_map(one).collect();
        format!(
            "Bytes of the larger buffer over the time, times nccl-tests' factor; at {}: {}.",
            largest.rounded(),
            fmt::list(&texts)
        )
    }

    /// Time at 1 MiB over the number of ranks.
    fn partners(&self) -> Option<Figure> {
        const SIZE: u64 = 1 << 20;
        let run = self.run;
        let id = format!("{}-partners-{}", self.suite, self.kind.id());
        let title = format!("{}, {}: time of 1 MiB by partners", self.library(), memory(self.kind));
        let chart = self.chart(&id, title, CaseQuantity::StepUs, "ranks");
        let points = self.all.iter().filter(|d| d.is_of(SIZE) && d.is_usual()).map(|d| {
            let cell = run.cell(d.sent.entry, CaseQuantity::StepUs);
            (d.op.to_string(), d.n as f64, cell)
        });
        let of_size = || self.all.iter().filter(|d| d.is_of(SIZE) && d.is_usual());
        let bounds = LatencyBounds::new(run, of_size().map(|d| (d.op, d.sent.entry.case)));
        let figure = chart.draw(run, points, |lines| {
            let growth: Vec<String> = lines
                .iter()
                .filter_map(|l| {
                    let ((a, first), (b, last)) = (l.points.first()?, l.points.last()?);
                    let (x, y) = (first.value?, last.value?);
                    let times = fmt::number(y / x);
                    (b > a).then(|| format!("{} {times}", l.name))
                })
                .collect();
            let all = lines.iter().flat_map(|l| l.points.iter().map(|p| &p.1));
            format!(
                "From the fewest ranks to the most the time changes by the factors {}.{}{}",
                fmt::list(&growth),
                bounds.text(),
                published_clause(all)
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

    fn osu(&self) -> Option<Figure> {
        let mut rows = self.rows();
        // Sums of the types of OSU's programs have no lines in the charts.
        let typed = |d: &&CollectiveEntry| !d.reduced.is_usual() && d.n == self.n && !d.in_place;
        rows.extend(self.all.iter().filter(typed));
        if self.suite != SuiteId::MpiCollectives || rows.is_empty() {
            return None;
        }
        let names: Vec<String> = rows
            .iter()
            .map(|d| {
                let typed = !d.reduced.is_usual();
                let name = if typed { d.sent.wire.op.to_string() } else { d.op.to_string() };
                format!("{name} {}", d.op.osu_size(d.sent.size(), d.n))
            })
            .collect();
        let cols = ["median, latest rank", "OSU avg", "OSU min", "OSU max"].map(str::to_owned);
        let cell = |row: usize, col: usize| {
            let Some(done) = rows.get(row) else { return FigureCell::default() };
            let counted = done.sent.entry.series().first().and_then(CountedTimes::from_series);
            match col {
                0 => self.run.cell(done.sent.entry, CaseQuantity::StepUs),
                1 => FigureCell {
                    published: self
                        .run
                        .published_exchange(done.sent.entry, PublishedMetric::MeanLatency),
                    ..other_tool_cell(done.sent.entry, counted.map(|c| c.mean))
                },
                2 => other_tool_cell(done.sent.entry, counted.map(|c| c.min)),
                _ => other_tool_cell(done.sent.entry, counted.map(|c| c.max)),
            }
        };
        let id = format!("{}-osu-{}", self.suite, self.kind.id());
        let title = format!(
            "{}, {}: the same compared with OSU's columns",
            self.library(),
            memory(self.kind)
        );
        let finding = "OSU prints the mean over ranks of each rank's mean time, and with -f the least \
                       and the greatest of these; its sizes, here in the rows, are what one rank gives \
                       to one other.";
        let (unit, finding) = (("us", BetterWhen::Lower), finding.to_owned());
        Some(sent_flows::table(
            (&id, self.suite, title, finding),
            self.run,
            unit,
            (&names, &cols),
            cell,
        ))
    }

    fn nccl_tests(&self) -> Option<Figure> {
        let rows = self.rows();
        if self.suite != SuiteId::CclCollectives || rows.is_empty() {
            return None;
        }
        let names: Vec<String> =
            rows.iter().map(|d| format!("{} {}", d.op, d.sent.size())).collect();
        let cols = ["algbw", "busbw", "nccl-tests algbw", "nccl-tests busbw"].map(str::to_owned);
        let cell = |row: usize, col: usize| {
            let Some(done) = rows.get(row) else { return FigureCell::default() };
            let counted = done.sent.entry.series().first().and_then(CountedTimes::from_series);
            let rate = counted.map(|c| done.sent.size().as_f64() / (c.mean * 1e3));
            match col {
                0 => self.run.cell(done.sent.entry, CaseQuantity::Payload),
                1 => done.bus(self.run),
                2 => other_tool_cell(done.sent.entry, rate),
                _ => other_tool_cell(done.sent.entry, rate.map(|r| r * done.op.bus_factor(done.n))),
            }
        };
        let id = format!("{}-nccl-tests-{}", self.suite, self.kind.id());
        let title = format!("{}: the same compared with nccl-tests' columns", self.library());
        let finding = "Ours is the median over samples of the latest rank's time; nccl-tests divides by \
                       the mean time, over ranks where there are several processes.";
        let (unit, finding) = (("GB/s", BetterWhen::Higher), finding.to_owned());
        Some(sent_flows::table(
            (&id, self.suite, title, finding),
            self.run,
            unit,
            (&names, &cols),
            cell,
        ))
    }

    /// Busbw of all_reduce with buffers that are registered with the communicator, and with
    /// unregistered ones.
    fn registration(&self) -> Option<Figure> {
        let run = self.run;
        let id = format!("{}-registration-{}", self.suite, self.kind.id());
        let title = format!("{}: all_reduce by registration, busbw", self.library());
        let chart = self.chart(&id, title, CaseQuantity::Payload, "B");
        let of_op = |d: &&CollectiveEntry| {
            let streaming = d.cadence() == Cadence::Streaming && !d.in_place;
            let whole = d.op == Collective::AllReduce && d.n == self.n;
            d.reduced.is_usual() && whole && streaming
        };
        let chosen: Vec<&CollectiveEntry> = self.all.iter().filter(of_op).collect();
        let value = |unregistered: bool, size: Bytes| {
            let found =
                chosen.iter().find(|d| d.unregistered == unregistered && d.sent.size() == size)?;
            Some(found.bus(run)).filter(|cell| cell.value.is_some())
        };
        let sizes: BTreeSet<Bytes> =
            chosen.iter().filter(|d| d.unregistered).map(|d| d.sent.size()).collect();
        let both: Vec<(Bytes, FigureCell, FigureCell)> = sizes
            .into_iter()
            .filter_map(|size| Some((size, value(false, size)?, value(true, size)?)))
            .collect();
        let points = both.iter().flat_map(|(size, with, without)| {
            let x = size.as_f64();
            [("registered".to_owned(), x, with.clone()), ("not".to_owned(), x, without.clone())]
        });
        chart.draw(run, points, |_| {
            let one = |(size, with, without): &(Bytes, FigureCell, FigureCell)| {
                let same = if is_apart(with, without) { "" } else { " (not distinguishable)" };
                let (with, without) = (with.value?, without.value?);
                let times = fmt::number(with / without);
                Some(format!("{} {times} times{same}", size.rounded()))
            };
            let all: Vec<String> = both.iter().filter_map(one).collect();
            format!("Registered buffers have, of the rate of others: {}.", fmt::list(&all))
        })
    }

    /// Time of small all_reduces back to back, as a graph, one at a time, and in place.
    fn cadences(&self) -> Option<Figure> {
        let run = self.run;
        let id = format!("{}-cadence-{}", self.suite, self.kind.id());
        let title = format!("{}: all_reduce by cadence, time", self.library());
        let chart = self.chart(&id, title, CaseQuantity::StepUs, "B");
        let of_op = |d: &&CollectiveEntry| {
            let whole = d.op == Collective::AllReduce && d.n == self.n;
            d.reduced.is_usual() && whole && !d.unregistered
        };
        let chosen = || self.all.iter().filter(of_op);
        let kinds: BTreeSet<(Cadence, bool)> = chosen()
            .filter(|d| !d.sent.entry.series().is_empty())
            .map(|d| (d.cadence(), d.in_place))
            .collect();
        if kinds.len() < 2 {
            return None;
        }
        let name = |d: &CollectiveEntry| {
            format!("{}{}", d.cadence(), if d.in_place { ", in place" } else { "" })
        };
        let small = chosen().filter(|d| d.sent.size() <= Bytes::mib(1));
        let points = small.map(|d| {
            let cell = run.cell(d.sent.entry, CaseQuantity::StepUs);
            (name(d), d.sent.size().as_f64(), cell)
        });
        chart.draw(run, points, |lines| {
            let at = |name: &str| {
                lines.iter().find(|l| l.name == name).and_then(|l| Some(&l.points.first()?.1))
            };
            let Some(streaming) = at("streaming") else { return String::new() };
            let compare = |name: &str| {
                let (other, alone) = (at(name)?, streaming.value?);
                let value = fmt::number(other.value?);
                let same = if is_apart(other, streaming) { "" } else { ", not distinguishable" };
                let ratio = fmt::number(other.value? / alone);
                Some(format!("{name} {value} us ({ratio} times{same})"))
            };
            let others: Vec<String> =
                ["graph", "isolated"].into_iter().filter_map(compare).collect();
            let alone = streaming.value.map_or(String::new(), fmt::number);
            let rest =
                if others.is_empty() { String::new() } else { format!(", {}", fmt::list(&others)) };
            format!("Smallest size: streaming {alone} us{rest}.")
        })
    }
}

/// Time of a barrier over the number of ranks.
fn barrier(run: &RunView, suite: SuiteId, all: &[CollectiveEntry<'_, '_>]) -> Option<Figure> {
    let barriers = || all.iter().filter(|d| d.op == Collective::Barrier);
    let library = run.library(barriers().next()?.sent.wire.via);
    let id = format!("{suite}-barrier");
    let chart = ChartSpec::new(
        (suite, &id),
        format!("{library}: a barrier by partners"),
        CaseQuantity::StepUs,
        "ranks",
    );
    let points = barriers()
        .map(|d| ("barrier".to_owned(), d.n as f64, run.cell(d.sent.entry, CaseQuantity::StepUs)));
    chart.draw(run, points, |lines| {
        let ends = lines.first().and_then(|l| Some((l.points.first()?, l.points.last()?)));
        let Some(((a, few), (b, many))) = ends else { return String::new() };
        let number = |c: &FigureCell| c.value.map_or(String::new(), fmt::number);
        format!("{} us over {a} ranks, {} us over {b}.", number(few), number(many))
    })
}

/// Times of the largest and the smallest all_reduce, in one sentence.
fn sentence(run: &RunView, suite: SuiteId) -> Option<String> {
    let all = in_suite(run, suite);
    let n = all.iter().map(|d| d.n).max()?;
    // Device memory if available, since applications reduce it.
    let kind = all.iter().map(|d| d.sent.kind()).find(|k| *k == SendKind::from_kind(MemKind::Vram));
    let kind = kind.or(all.first().map(|d| d.sent.kind()))?;
    let reduces = || {
        all.iter().filter(|d| {
            let plain = d.is_usual();
            let here = d.n == n && d.sent.kind() == kind;
            here && plain && d.op == Collective::AllReduce && !d.sent.entry.series().is_empty()
        })
    };
    let large = reduces().max_by_key(|d| d.sent.size())?;
    let small = reduces().min_by_key(|d| d.sent.size())?;
    let alg = run.value(large.sent.entry, CaseQuantity::Payload)?;
    let least = run.value(small.sent.entry, CaseQuantity::StepUs)?;
    let factor = large.op.bus_factor(n);
    Some(format!(
        "all_reduce by {} over {n} ranks, {}: {} in {} us, {} at busbw {} (algbw {}).",
        run.library(large.sent.wire.via),
        memory(kind),
        small.sent.size(),
        fmt::number(least),
        large.sent.size(),
        fmt::gbs(alg * factor),
        fmt::number(alg)
    ))
}
