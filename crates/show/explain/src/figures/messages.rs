//! Messages between two processes, between every two, and between several pairs at once.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, MemKind, Rank, SuiteId, Transport, WireOp};

use super::pivot::{CellPivot, chart, most};
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{
    BetterWhen, ChartLine, Figure, FigureCell, SuiteFindings, frame, is_apart, line_cells,
    published_clause, range_of, sorted, values,
};
use crate::fmt;
use crate::run::CaseQuantity::{self, Payload, StepUs};
use crate::run::RunView;

/// Preferred size for quoted rates.
const LARGE: u64 = 1 << 20;

pub(super) const SUITES: &[SuiteId] = &[
    SuiteId::MpiLatency,
    SuiteId::MpiBandwidth,
    SuiteId::MpiBothWays,
    SuiteId::MpiMixed,
    SuiteId::MpiOneSided,
    SuiteId::MpiPairs,
    SuiteId::MpiConcurrent,
    SuiteId::CclPairs,
    SuiteId::Ucx,
    SuiteId::UcxMixed,
];

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let libraries = [Transport::Mpi, Transport::Ccl, Transport::Ucx];
    let [mpi, ccl, ucx] = libraries.map(|via| sentence(run, via));
    SuiteFindings::new(figures(run), [mpi, ccl, ucx, between_nodes(run)])
}

/// Messages between every two ranks, those of one node and of two apart.
fn between_nodes(run: &RunView) -> Option<String> {
    let ranks = &run.journal.begin.ranks;
    let node = |rank: Rank| ranks.iter().find(|m| m.rank == rank).map(|m| m.node);
    let mut all = of_op(run, SuiteId::MpiPairs, is_send);
    let library = run.library(via(&all));
    all.retain(|s| s.kind() == SendKind::from_kind(MemKind::Vram));
    let size = all.iter().map(SentFlow::size).max()?;
    let cells = |apart: bool, flows: usize| -> Vec<FigureCell> {
        let of = all.iter().filter(|s| s.size() == size && s.at_once == flows);
        let of = of.filter(|s| (node(s.flow.src.rank) != node(s.flow.dst.rank)) == apart);
        of.map(|s| run.cell(s.entry, Payload)).collect()
    };
    let apart = cells(true, 1);
    let limit = apart.first().and_then(|cell| {
        let (share, path) = (cell.share_of_ceiling()?, cell.path.as_ref()?);
        let (share, peak) = (fmt::percent(share), fmt::gbs(cell.ceiling?));
        Some(format!(" ({share} of {peak}, {})", path.narrowest))
    });
    let limit = limit.unwrap_or_default();
    let both = range_of(&cells(true, 2));
    let both = both.map_or(String::new(), |both| format!(", {both} both ways at once"));
    let (size, apart, within) = (size.rounded(), range_of(&apart)?, range_of(&cells(false, 1))?);
    Some(format!(
        "Messages of {size} by {library} reach {apart} GB/s between nodes{limit}{both}, and {within} within \
         one (device memory)."
    ))
}

fn figures(run: &RunView) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(over_size(run, SuiteId::MpiLatency, "mpi-latency", &LATENCY));
    figures.extend(osu(run, SuiteId::MpiLatency, "osu_latency"));
    figures.extend(over_size(run, SuiteId::MpiBandwidth, "mpi-bandwidth", &BANDWIDTH));
    figures.extend(osu(run, SuiteId::MpiBandwidth, "osu_bw"));
    figures.extend(over_size(run, SuiteId::MpiBothWays, "mpi-both-ways", &BOTH_WAYS));
    figures.extend(osu(run, SuiteId::MpiBothWays, "osu_bibw"));
    figures.extend(over_size(run, SuiteId::MpiMixed, "mpi-mixed-latency", &LATENCY));
    figures.extend(over_size(run, SuiteId::MpiMixed, "mpi-mixed-bandwidth", &BANDWIDTH));
    figures.extend(over_size(run, SuiteId::MpiOneSided, "mpi-one-sided", &ONE_SIDED));
    figures.extend(matrices(run, SuiteId::MpiPairs));
    figures.extend(concurrent(run));
    figures.extend(matrices(run, SuiteId::CclPairs));
    figures.extend(over_size(run, SuiteId::Ucx, "ucx-latency", &LATENCY));
    figures.extend(over_size(run, SuiteId::Ucx, "ucx-bandwidth", &BANDWIDTH));
    figures.extend(over_size(run, SuiteId::Ucx, "ucx-one-sided", &ONE_SIDED));
    figures.extend(over_size(run, SuiteId::UcxMixed, "ucx-mixed-latency", &LATENCY));
    figures.extend(over_size(run, SuiteId::UcxMixed, "ucx-mixed-bandwidth", &BANDWIDTH));
    figures
}

/// What a chart over size shows.
struct SizeChart {
    of: fn(&WireOp) -> bool,
    title: &'static str,
    quantity: CaseQuantity,
    name: fn(&SentFlow) -> String,
    finding: fn(&RunView, &[ChartLine]) -> String,
}

const LATENCY: SizeChart = SizeChart {
    of: |op| *op == WireOp::Ping,
    title: "time of a message one way, by size",
    quantity: StepUs,
    name: |s| s.memories(),
    finding: |_, lines| {
        let published = published_clause(line_cells(lines));
        format!("Half of a round trip: {}.{published}", smallest(lines))
    },
};

const BANDWIDTH: SizeChart = SizeChart {
    of: is_send,
    title: "bandwidth of message windows (osu_bw), by size",
    quantity: Payload,
    name: |s| s.memories(),
    finding: |_, lines| tops(lines) + &published_clause(line_cells(lines)),
};

const BOTH_WAYS: SizeChart = SizeChart {
    title: "bandwidth both ways at once (osu_bibw), sum, by size",
    finding: |run, lines| tops(lines) + &against_one_way(run, lines),
    ..BANDWIDTH
};

const ONE_SIDED: SizeChart = SizeChart {
    of: |op| matches!(op, WireOp::Put { .. } | WireOp::Get { .. }),
    title: "put and get, by size",
    quantity: Payload,
    name: |s| {
        let pace = if s.wire.op.window() == 1 { "one at a time" } else { "in windows" };
        format!("{}, {}, {pace}", s.wire.op.kind(), memory(s.kind()))
    },
    finding: |_, lines| tops(lines),
};

fn over_size(run: &RunView, suite: SuiteId, id: &str, shown: &SizeChart) -> Option<Figure> {
    let all = of_op(run, suite, shown.of);
    let title = format!("{}: {}", run.library(via(&all)), shown.title);
    let points = all.iter().map(|s| s.at_size(run, (shown.name)(s), shown.quantity));
    let finding = |lines: &[ChartLine]| (shown.finding)(run, lines);
    chart((suite, id), title, (shown.quantity, "B"), run, points, finding)
}

fn is_send(op: &WireOp) -> bool {
    matches!(op, WireOp::Send { .. })
}

fn of_op<'b, 'a>(
    run: &'b RunView<'a>,
    suite: SuiteId,
    wanted: impl Fn(&WireOp) -> bool,
) -> Vec<SentFlow<'b, 'a>> {
    sent_flows::in_suite(run, suite).into_iter().filter(|s| wanted(&s.wire.op)).collect()
}

fn via(sent: &[SentFlow<'_, '_>]) -> Transport {
    sent.first().map_or(Transport::Mpi, |s| s.wire.via)
}

/// `8B take 0.42 us from host memory and 1.31 us from device memory`.
fn smallest(lines: &[ChartLine]) -> String {
    let of = |line: &ChartLine| {
        let (x, cell) = line.points.iter().find(|(x, _)| *x == 8.0).or(line.points.first())?;
        Some((*x, format!("{} us from {}", fmt::number(cell.value?), line.name)))
    };
    let times: Vec<(f64, String)> = lines.iter().filter_map(of).collect();
    let Some(&(size, _)) = times.first() else { return String::new() };
    let same = times.into_iter().filter(|(x, _)| *x == size).map(|(_, text)| text);
    format!("{} take {}", Bytes(size as u64), fmt::list(&same.collect::<Vec<_>>()))
}

/// The best rate of each line, and the size at half of it, as a sentence.
fn tops(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let best = most(line.points.iter().filter_map(|(x, c)| Some((c.value?, *x))))?;
        let half = line.points.iter().find(|(_, c)| c.value.is_some_and(|v| 2.0 * v >= best.0))?;
        let [at, from] = [best.1, half.0].map(|x| Bytes(x as u64).rounded());
        let (name, rate) = (&line.name, fmt::gbs(best.0));
        Some(format!("{name} reaches {rate} at {at} and half of that from {from}"))
    };
    let texts = fmt::list_any(lines.iter().filter_map(one));
    texts.map_or(String::new(), |texts| fmt::sentence(&format!("{texts}.")))
}

/// ` Against one way that is 1.90 times in host memory.`
fn against_one_way(run: &RunView, lines: &[ChartLine]) -> String {
    let one_way = of_op(run, SuiteId::MpiBandwidth, is_send);
    let gain = |line: &ChartLine| {
        let (x, both) = line.points.last()?;
        let same = |s: &&SentFlow| memory(s.kind()) == line.name && s.size().as_f64() == *x;
        let alone = run.cell(one_way.iter().find(same)?.entry, Payload);
        Some(format!("{} times in {}", both.ratio_to(&alone)?.number_text()?, line.name))
    };
    let gains = fmt::list_any(lines.iter().filter_map(gain));
    gains.map_or(String::new(), |gains| format!(" Against one way that is {gains}."))
}

/// The result of OSU's program next to ours: the mean of rank 0's own times.
fn osu(run: &RunView, suite: SuiteId, program: &str) -> Option<Figure> {
    let all = sent_flows::in_suite(run, suite);
    let sizes = sorted(all.iter().map(SentFlow::size));
    let measured = all.iter().filter(|s| !s.entry.series().is_empty());
    let mems = sorted(measured.map(SentFlow::kind));
    let (quantity, in_mb) = match program {
        "osu_latency" => (StepUs, ""),
        _ => (Payload, ", in MB/s of 1e6 B"),
    };
    let points = all.iter().flat_map(|s| {
        let theirs = FigureCell::stated(s.entry, sent_flows::osu_of_two(s.entry));
        let ours = run.cell(s.entry, quantity);
        [(s.size(), (s.kind(), false), ours), (s.size(), (s.kind(), true), theirs)]
    });
    let cols: Vec<(SendKind, bool)> = mems.iter().flat_map(|m| [(*m, false), (*m, true)]).collect();
    let name = |(kind, theirs): &(SendKind, bool)| match theirs {
        true => format!("{}, {program}", memory(*kind)),
        false => memory(*kind).to_owned(),
    };
    let matrix = CellPivot::new(points).with(&sizes, &cols).matrix(
        ("size", Bytes::to_string),
        ("counted by", name),
        quantity.rating(),
    );
    let finding = format!(
        "Ours is the median over samples of the latest rank's time; {program} prints the mean of rank \
         0's own times{in_mb}."
    );
    let title = format!("The same compared with {program}'s column");
    let framed = frame(run, (suite, ""), format!("{suite}-osu"), title).finding(finding);
    (!mems.is_empty()).then(|| framed.draw(matrix))
}

/// All ordered pairs: round trips of small messages, and large messages.
fn matrices(run: &RunView, suite: SuiteId) -> Vec<Figure> {
    let all = sent_flows::in_suite(run, suite);
    let kinds: BTreeSet<(bool, SendKind)> =
        all.iter().map(|s| (s.wire.op != WireOp::Ping, s.kind())).collect();
    kinds.into_iter().filter_map(|(large, kind)| matrix(run, suite, &all, large, kind)).collect()
}

fn matrix(
    run: &RunView,
    suite: SuiteId,
    all: &[SentFlow<'_, '_>],
    large: bool,
    kind: SendKind,
) -> Option<Figure> {
    let chosen: Vec<&SentFlow> = all
        .iter()
        .filter(|s| (s.wire.op != WireOp::Ping) == large && s.kind() == kind && s.at_once == 1)
        .collect();
    let first = chosen.first()?;
    // With one process the GPUs are the partners.
    let single = chosen.iter().all(|s| s.flow.src.rank == s.flow.dst.rank);
    let ends = |s: &SentFlow| match (single, s.flow.src.unit.gpu(), s.flow.dst.unit.gpu()) {
        (true, Some(a), Some(b)) => (a, b),
        _ => (s.flow.src.rank.0, s.flow.dst.rank.0),
    };
    let (quantity, form) = if large { (Payload, "rate") } else { (StepUs, "latency") };
    let partners = sorted(chosen.iter().flat_map(|s| [ends(s).0, ends(s).1]));
    let points = chosen.iter().map(|s| (ends(s).0, ends(s).1, run.cell(s.entry, quantity)));
    let label = |n: &u32| if single { format!("gpu{n}") } else { name_of(run, *n) };
    let pivot = CellPivot::over(&partners, points);
    let matrix = pivot.matrix(("from", label), ("to", label), quantity.rating());
    let measured = values(matrix.all());
    let (what, finding) = match large {
        true => ("windows of", fmt::sentence(&super::pairs::describe_levels(&measured))),
        false => {
            let pairs = fmt::count(measured.len(), "pair");
            ("one way for", format!("{} us over {pairs}", range_of(matrix.all())?))
        }
    };
    let finding = format!("{finding}.{}", published_clause(matrix.all()));
    let (library, size) = (run.library(first.wire.via), first.size());
    let title = format!("{library}, every pair: {what} {size}, {}", memory(kind));
    let id = format!("{suite}-{form}-{}", kind.id());
    frame(run, (suite, ""), id, title).finding(finding).draw_any(matrix)
}

/// A rank, with its host if there are several.
fn name_of(run: &RunView, rank: u32) -> String {
    let members = &run.journal.begin.ranks;
    let several = members.iter().any(|m| m.node > 0);
    match members.iter().find(|m| m.rank == Rank(rank)).filter(|_| several) {
        Some(member) => format!("{rank} {}", member.host),
        None => rank.to_string(),
    }
}

fn concurrent(run: &RunView) -> Option<Figure> {
    let suite = SuiteId::MpiConcurrent;
    let all = sent_flows::in_suite(run, suite);
    let title = format!("{}: several pairs at once, sum", run.library(via(&all)));
    let points = all.iter().map(|s| {
        let name = format!("{}, {}", memory(s.kind()), s.size());
        (name, s.at_once as f64, run.cell(s.entry, Payload))
    });
    chart((suite, suite.word()), title, (Payload, "pairs"), run, points, scaling)
}

/// Rate of all pairs compared with the same number of single pairs.
fn scaling(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let ((first, one), (pairs, all)) = (line.points.first()?, line.points.last()?);
        let ratio = (pairs > first).then_some(all.value? / one.value?)?;
        let (times, name) = (all.ratio_to(one)?.number_text()?, &line.name);
        let text = format!("{pairs} pairs get {times} times what one gets ({name})");
        Some((ratio / (pairs / first), text))
    };
    let mut gains: Vec<(f64, String)> = lines.iter().filter_map(one).collect();
    gains.sort_by(|a, b| a.0.total_cmp(&b.0));
    match gains.as_slice() {
        [] => String::new(),
        [one] => format!("{}.", fmt::sentence(&one.1)),
        [least, .., most] => format!("{}; {}.", fmt::sentence(&least.1), most.1),
    }
}

/// Small and large messages of a library, in one sentence.
fn sentence(run: &RunView, library: Transport) -> Option<String> {
    let (small, large) = match library {
        Transport::Mpi => (SuiteId::MpiLatency, SuiteId::MpiBandwidth),
        Transport::Ucx => (SuiteId::Ucx, SuiteId::Ucx),
        _ => (SuiteId::CclPairs, SuiteId::CclPairs),
    };
    let part = |kind: SendKind| {
        let values = |suite, op: fn(&WireOp) -> bool, fits: fn(Bytes) -> bool, quantity| {
            let all = of_op(run, suite, op).into_iter();
            let of = all.filter(|s| s.wire.via.carrier() == library && s.kind() == kind);
            let values = of.filter(|s| fits(s.size())).map(|s| run.value(s.entry, quantity));
            values.flatten().collect::<Vec<f64>>().into_iter()
        };
        let times = values(small, |op| *op == WireOp::Ping, |size| size == Bytes(8), StepUs);
        let rates = values(large, is_send, |size| size.0 >= LARGE, Payload);
        let least = times.min_by(f64::total_cmp);
        let least = least.map(|us| format!("8 B in {} us", fmt::number(us)));
        let most = rates.max_by(f64::total_cmp).map(fmt::gbs);
        let texts = fmt::list_any(least.into_iter().chain(most))?;
        Some(format!("{texts} between {}", memory(kind)))
    };
    let staged = SendKind { mem: MemKind::Vram, staged: true };
    let kinds = [SendKind::from_kind(MemKind::Paged), SendKind::from_kind(MemKind::Vram), staged];
    let parts = fmt::join_any(kinds.into_iter().filter_map(part), "; ")?;
    Some(format!("Messages by {}: {parts}.", run.library(library)))
}

/// Whether a cell is better than another with disjoint intervals.
pub(super) fn beats(a: &FigureCell, b: &FigureCell, better: BetterWhen) -> bool {
    let more = a.value > b.value;
    is_apart(a, b) && (more == (better == BetterWhen::Higher))
}
