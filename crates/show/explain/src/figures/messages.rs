//! Messages between two processes, between every two, and between several pairs at once.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, MemKind, Rank, SuiteId, Transport, WireOp};

use super::sent_flows::{self, ChartSpec, SendKind, SentFlow, memory, other_tool_cell};
use super::{
    BetterWhen, ChartLine, Figure, FigureCell, SuiteFindings, frame, grid, is_apart,
    published_clause, sorted, values,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

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
    let all = of_op(run, SuiteId::MpiPairs, |op| matches!(op, WireOp::Send { .. }));
    let of_device = |s: &&SentFlow| s.kind() == SendKind::from_kind(MemKind::Vram);
    let size = all.iter().filter(of_device).map(SentFlow::size).max()?;
    let cells = |apart: bool, flows: usize| -> Vec<FigureCell> {
        let of = all.iter().filter(of_device).filter(|s| s.size() == size);
        let of = of.filter(|s| (node(s.flow.src.rank) != node(s.flow.dst.rank)) == apart);
        let of = of.filter(|s| s.entry.case.timed.len() == flows);
        of.map(|s| run.cell(s.entry, CaseQuantity::Payload)).collect()
    };
    let rates = |cells: &[FigureCell]| {
        let (low, high) = super::extremes(&values(cells.iter()));
        cells.iter().any(|cell| cell.value.is_some()).then(|| fmt::range(low, high))
    };
    let apart = cells(true, 1);
    let limit = apart.first().and_then(|cell| {
        let (share, path) = (cell.share_of_ceiling()?, cell.path.as_ref()?);
        Some(format!(
            " ({} of {}, {})",
            fmt::percent(share),
            fmt::gbs(cell.ceiling?),
            path.narrowest
        ))
    });
    let both = rates(&cells(true, 2)).map(|both| format!(", {both} both ways at once"));
    Some(format!(
        "Messages of {} by {} reach {} GB/s between nodes{}{}, and {} within one (device memory).",
        size.rounded(),
        run.library(via(&all)),
        rates(&apart)?,
        limit.unwrap_or_default(),
        both.unwrap_or_default(),
        rates(&cells(false, 1))?,
    ))
}

fn figures(run: &RunView) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(latency(run, SuiteId::MpiLatency, "mpi-latency"));
    figures.extend(osu(run, SuiteId::MpiLatency, "osu_latency"));
    figures.extend(bandwidth(run, SuiteId::MpiBandwidth, "mpi-bandwidth"));
    figures.extend(osu(run, SuiteId::MpiBandwidth, "osu_bw"));
    figures.extend(both_ways(run));
    figures.extend(osu(run, SuiteId::MpiBothWays, "osu_bibw"));
    figures.extend(latency(run, SuiteId::MpiMixed, "mpi-mixed-latency"));
    figures.extend(bandwidth(run, SuiteId::MpiMixed, "mpi-mixed-bandwidth"));
    figures.extend(one_sided(run, SuiteId::MpiOneSided, "mpi-one-sided"));
    figures.extend(matrices(run, SuiteId::MpiPairs));
    figures.extend(concurrent(run));
    figures.extend(matrices(run, SuiteId::CclPairs));
    figures.extend(latency(run, SuiteId::Ucx, "ucx-latency"));
    figures.extend(bandwidth(run, SuiteId::Ucx, "ucx-bandwidth"));
    figures.extend(one_sided(run, SuiteId::Ucx, "ucx-one-sided"));
    figures.extend(latency(run, SuiteId::UcxMixed, "ucx-mixed-latency"));
    figures.extend(bandwidth(run, SuiteId::UcxMixed, "ucx-mixed-bandwidth"));
    figures
}

fn point(
    run: &RunView,
    sent: &SentFlow<'_, '_>,
    name: String,
    quantity: CaseQuantity,
) -> (String, f64, FigureCell) {
    (name, sent.size().as_f64(), run.cell(sent.entry, quantity))
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

fn latency(run: &RunView, suite: SuiteId, id: &str) -> Option<Figure> {
    let all = of_op(run, suite, |op| *op == WireOp::Ping);
    let library = run.library(via(&all));
    let chart = ChartSpec::new(
        (suite, id),
        format!("{library}: time of a message one way, by size"),
        CaseQuantity::StepUs,
        "B",
    );
    let points = all.iter().map(|s| point(run, s, s.memories(), chart.quantity));
    chart.draw(run, points, |lines| {
        let text = smallest(lines);
        let all = lines.iter().flat_map(|l| l.points.iter().map(|p| &p.1));
        format!("Half of a round trip: {text}.{}", published_clause(all))
    })
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

fn bandwidth(run: &RunView, suite: SuiteId, id: &str) -> Option<Figure> {
    let all: Vec<SentFlow> = of_op(run, suite, |op| matches!(op, WireOp::Send { .. }));
    let library = run.library(via(&all));
    let chart = ChartSpec::new(
        (suite, id),
        format!("{library}: bandwidth of message windows (osu_bw), by size"),
        CaseQuantity::Payload,
        "B",
    );
    let points = all.iter().map(|s| point(run, s, s.memories(), chart.quantity));
    chart.draw(run, points, |lines| {
        let all = lines.iter().flat_map(|l| l.points.iter().map(|p| &p.1));
        format!("{}{}", fmt::sentence(&tops(lines)), published_clause(all))
    })
}

/// The best rate of each line, and the size at half of it.
fn tops(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let best = line
            .points
            .iter()
            .filter_map(|(x, c)| Some((*x, c.value?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        let half = line.points.iter().find(|(_, c)| c.value.is_some_and(|v| 2.0 * v >= best.1))?;
        let size = |x: f64| Bytes(x as u64).rounded();
        Some(format!(
            "{} reaches {} at {} and half of that from {}",
            line.name,
            fmt::gbs(best.1),
            size(best.0),
            size(half.0)
        ))
    };
    let texts: Vec<String> = lines.iter().filter_map(one).collect();
    if texts.is_empty() { String::new() } else { format!("{}.", fmt::list(&texts)) }
}

fn both_ways(run: &RunView) -> Option<Figure> {
    let suite = SuiteId::MpiBothWays;
    let all = of_op(run, suite, |op| matches!(op, WireOp::Send { .. }));
    let library = run.library(via(&all));
    let chart = ChartSpec::new(
        (suite, suite.word()),
        format!("{library}: bandwidth both ways at once (osu_bibw), sum, by size"),
        CaseQuantity::Payload,
        "B",
    );
    let points = all.iter().map(|s| point(run, s, s.memories(), chart.quantity));
    let one_way = of_op(run, SuiteId::MpiBandwidth, |op| matches!(op, WireOp::Send { .. }));
    chart.draw(run, points, |lines| {
        let mut text = fmt::sentence(&tops(lines));
        let gains: Vec<String> = lines
            .iter()
            .filter_map(|line| {
                let (x, both) = line.points.last()?;
                let alone = one_way
                    .iter()
                    .find(|s| memory(s.kind()) == line.name && s.size().as_f64() == *x)?;
                let alone = run.cell(alone.entry, CaseQuantity::Payload);
                Some(format!("{} times in {}", both.ratio_to(&alone)?.number_text()?, line.name))
            })
            .collect();
        if !gains.is_empty() {
            text += &format!(" Against one way that is {}.", fmt::list(&gains));
        }
        text
    })
}

fn one_sided(run: &RunView, suite: SuiteId, id: &str) -> Option<Figure> {
    let all = of_op(run, suite, |op| matches!(op, WireOp::Put { .. } | WireOp::Get { .. }));
    let library = run.library(via(&all));
    let chart = ChartSpec::new(
        (suite, id),
        format!("{library}: put and get, by size"),
        CaseQuantity::Payload,
        "B",
    );
    let name = |s: &SentFlow| {
        let pace = if s.wire.op.window() == 1 { "one at a time" } else { "in windows" };
        format!("{}, {}, {pace}", s.wire.op.kind(), memory(s.kind()))
    };
    let points = all.iter().map(|s| point(run, s, name(s), chart.quantity));
    chart.draw(run, points, |lines| fmt::sentence(&tops(lines)))
}

/// The result of OSU's program next to ours: the mean of rank 0's own times.
fn osu(run: &RunView, suite: SuiteId, program: &str) -> Option<Figure> {
    let all = sent_flows::in_suite(run, suite);
    let sizes = sorted(all.iter().map(SentFlow::size));
    let measured = all.iter().filter(|s| !s.entry.series().is_empty());
    let mems = sorted(measured.map(SentFlow::kind));
    if mems.is_empty() {
        return None;
    }
    let cols: Vec<String> = mems
        .iter()
        .flat_map(|m| [memory(*m).to_owned(), format!("{}, {program}", memory(*m))])
        .collect();
    let ping = program == "osu_latency";
    let quantity = if ping { CaseQuantity::StepUs } else { CaseQuantity::Payload };
    let rows: Vec<String> = sizes.iter().map(|b| b.to_string()).collect();
    let cell = |row: usize, col: usize| {
        let found = all
            .iter()
            .find(|s| Some(&s.size()) == sizes.get(row) && Some(&s.kind()) == mems.get(col / 2));
        let Some(sent) = found else { return FigureCell::default() };
        match col % 2 {
            0 => run.cell(sent.entry, quantity),
            _ => other_tool_cell(sent.entry, sent_flows::osu_of_two(sent.entry)),
        }
    };
    let (unit, better) =
        if ping { ("us", BetterWhen::Lower) } else { ("GB/s", BetterWhen::Higher) };
    let finding = format!(
        "Ours is the median over samples of the latest rank's time; {program} prints the mean of rank \
         0's own times{}.",
        if ping { "" } else { ", in MB/s of 1e6 B" }
    );
    let id = format!("{suite}-osu");
    let title = format!("The same compared with {program}'s column");
    Some(sent_flows::table((&id, suite, title, finding), run, (unit, better), (&rows, &cols), cell))
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
    let partners = sorted(chosen.iter().flat_map(|s| [ends(s).0, ends(s).1]));
    let quantity = if large { CaseQuantity::Payload } else { CaseQuantity::StepUs };
    let cell = |a: u32, b: u32| {
        let found = chosen.iter().find(|s| ends(s) == (a, b));
        found.map(|s| run.cell(s.entry, quantity)).unwrap_or_default()
    };
    let label = |n: u32| if single { format!("gpu{n}") } else { name_of(run, n) };
    let better = if large { BetterWhen::Higher } else { BetterWhen::Lower };
    let matrix = grid(
        ("from", &partners),
        ("to", &partners),
        (quantity.unit(), better),
        (label, label),
        cell,
    );
    let library = run.library(first.wire.via);
    let (size, memory) = (first.size(), memory(kind));
    let cells = || matrix.cells.iter().flatten();
    let measured = values(cells());
    if measured.is_empty() {
        return None;
    }
    let (what, finding) = if large {
        ("windows of", fmt::sentence(&super::pairs::describe_levels(&measured)))
    } else {
        let (low, high) = super::extremes(&measured);
        let pairs = fmt::count(measured.len(), "pair");
        ("one way for", format!("{} us over {pairs}", fmt::range(low, high)))
    };
    let finding = format!("{finding}.{}", published_clause(cells()));
    Some(
        frame(
            run,
            (suite, ""),
            format!("{suite}-{}-{}", if large { "rate" } else { "latency" }, kind.id()),
            format!("{library}, every pair: {what} {size}, {memory}"),
        )
        .finding(finding)
        .draw(matrix),
    )
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
    let library = run.library(via(&all));
    let chart = ChartSpec::new(
        (suite, suite.word()),
        format!("{library}: several pairs at once, sum"),
        CaseQuantity::Payload,
        "pairs",
    );
    let points = all.iter().map(|s| {
        let name = format!("{}, {}", memory(s.kind()), s.size());
        (name, s.at_once as f64, run.cell(s.entry, CaseQuantity::Payload))
    });
    chart.draw(run, points, scaling)
}

/// Rate of all pairs compared with the same number of single pairs.
fn scaling(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let ((first, one), (last, all)) = (line.points.first()?, line.points.last()?);
        let ratio = (last > first).then_some(all.value? / one.value?)?;
        Some((ratio / (last / first), all.ratio_to(one)?.number_text()?, *last, line.name.clone()))
    };
    let mut gains: Vec<_> = lines.iter().filter_map(one).collect();
    gains.sort_by(|a, b| a.0.total_cmp(&b.0));
    let describe = |(_, ratio, pairs, name): &(f64, String, f64, String)| {
        format!("{pairs} pairs get {ratio} times what one gets ({name})")
    };
    match gains.as_slice() {
        [] => String::new(),
        [one] => format!("{}.", fmt::sentence(&describe(one))),
        [least, .., most] => format!("{}; {}.", fmt::sentence(&describe(least)), describe(most)),
    }
}

/// Small and large messages of a library, in one sentence.
fn sentence(run: &RunView, via_: Transport) -> Option<String> {
    let (small, large) = match via_ {
        Transport::Mpi => (SuiteId::MpiLatency, SuiteId::MpiBandwidth),
        Transport::Ucx => (SuiteId::Ucx, SuiteId::Ucx),
        _ => (SuiteId::CclPairs, SuiteId::CclPairs),
    };
    let mut parts = Vec::new();
    let staged = SendKind { mem: MemKind::Vram, staged: true };
    for kind in [SendKind::from_kind(MemKind::Paged), SendKind::from_kind(MemKind::Vram), staged] {
        let pings = of_op(run, small, |op| *op == WireOp::Ping);
        let pings = pings.iter().filter(|s| s.wire.via.carrier() == via_ && s.kind() == kind);
        let of_8 = pings.filter(|s| s.size() == Bytes(8));
        let least =
            of_8.map(|s| run.cell(s.entry, CaseQuantity::StepUs)).filter(|c| c.value.is_some());
        let sends = of_op(run, large, |op| matches!(op, WireOp::Send { .. }));
        let sends = sends.iter().filter(|s| s.wire.via.carrier() == via_ && s.kind() == kind);
        let big =
            sends.filter(|s| s.size().0 >= LARGE).map(|s| run.cell(s.entry, CaseQuantity::Payload));
        let most = big.filter(|c| c.value.is_some());
        let least = least.min_by(|a, b| a.value.unwrap_or(0.0).total_cmp(&b.value.unwrap_or(0.0)));
        let most = most.max_by(|a, b| a.value.unwrap_or(0.0).total_cmp(&b.value.unwrap_or(0.0)));
        let texts: Vec<String> = [
            least.and_then(|c| Some(format!("8 B in {} us", fmt::number(c.value?)))),
            most.and_then(|c| Some(fmt::gbs(c.value?))),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !texts.is_empty() {
            parts.push(format!("{} between {}", fmt::list(&texts), memory(kind)));
        }
    }
    let library = run.library(via_);
    (!parts.is_empty()).then(|| format!("Messages by {library}: {}.", parts.join("; ")))
}

/// Whether a cell is better than another with disjoint intervals.
pub(super) fn beats(a: &FigureCell, b: &FigureCell, better: BetterWhen) -> bool {
    let more = a.value > b.value;
    is_apart(a, b) && (more == (better == BetterWhen::Higher))
}
