//! Messages between nodes: matrices of nodes, of the slowest rail of each two.

use std::collections::BTreeMap;

use pathline_schema::{Case, Flow, Rank, SuiteId, WireOp};

use super::pivot::CellPivot;
use super::sent_flows::{SendKind, memory};
use super::{Figure, FigureCell, SuiteFindings, frame, range_of, sorted, values};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Net;

/// What a round measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RoundKind {
    Latency,
    OneWay,
    BothWays,
}

impl RoundKind {
    fn of(case: &Case) -> Option<Self> {
        let first = case.timed.first()?;
        let back = |flow: &&Flow| (flow.src, flow.dst) == (first.dst, first.src);
        Some(match (first.by.wire()?.op, case.timed.iter().find(back)) {
            (WireOp::Ping, _) => Self::Latency,
            (_, None) => Self::OneWay,
            (_, Some(_)) => Self::BothWays,
        })
    }

    const fn quantity(self) -> CaseQuantity {
        match self {
            Self::Latency => CaseQuantity::StepUs,
            Self::OneWay | Self::BothWays => CaseQuantity::Payload,
        }
    }

    /// Its part of a figure's anchor, and of its title.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Latency => ("latency", "one way for"),
            Self::OneWay => ("rate", "one way, windows of"),
            Self::BothWays => ("both", "both ways at once, each; windows of"),
        }
    }
}

/// Cells of a figure by the two nodes.
type NodeCells = BTreeMap<(u32, u32), FigureCell>;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let mut all: BTreeMap<(SendKind, RoundKind), Vec<&RunEntry<'_>>> = BTreeMap::new();
    for entry in run.suite(SUITE) {
        let kind = RoundKind::of(entry.case).zip(SendKind::of(entry.case));
        if let Some((round, send)) = kind {
            all.entry((send, round)).or_default().push(entry);
        }
    }
    let drawn: Vec<(Figure, Option<String>)> =
        all.iter().filter_map(|(kind, entries)| matrix(run, *kind, entries)).collect();
    let sentence = drawn.iter().find_map(|(_, sentence)| sentence.clone());
    SuiteFindings::new(drawn.into_iter().map(|(figure, _)| figure), [sentence])
}

fn matrix(
    run: &RunView,
    (send, round): (SendKind, RoundKind),
    entries: &[&RunEntry<'_>],
) -> Option<(Figure, Option<String>)> {
    let quantity = round.quantity();
    let unit = quantity.rating();
    let members = &run.journal.begin.ranks;
    let node = |rank: Rank| members.iter().find(|m| m.rank == rank).map(|m| m.node);
    let mut cells = NodeCells::new();
    let mut rails = 1;
    for entry in entries {
        let mut of_pair: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for series in entry.series() {
            let Some(ends) = node(series.flow.src.rank).zip(node(series.flow.dst.rank)) else {
                continue;
            };
            *of_pair.entry(ends).or_default() += 1;
            let cell = run.flow_cell(entry, series, quantity);
            let ends = [ends, (ends.1, ends.0)].into_iter();
            for ends in ends.take(1 + usize::from(round == RoundKind::Latency)) {
                let known = cells.entry(ends).or_insert_with(|| cell.clone());
                let (value, least) = (cell.value, known.value);
                let is_worse =
                    if round == RoundKind::Latency { value > least } else { value < least };
                if is_worse {
                    *known = cell.clone();
                }
            }
        }
        rails = of_pair.into_values().fold(rails, usize::max);
    }
    let nodes = sorted(cells.keys().flat_map(|(a, b)| [*a, *b]));
    let host = |node: u32| {
        let member = members.iter().find(|member| member.node == node);
        member.map_or_else(|| node.to_string(), |member| member.host.clone())
    };
    let label = |n: &u32| if nodes_differ(members) { host(*n) } else { format!("node {n}") };
    let flow = entries.first()?.case.timed.first()?;
    let points = cells.into_iter().map(|((from, to), cell)| (from, to, cell));
    let matrix = CellPivot::over(&nodes, points).matrix(("from", label), ("to", label), unit);
    let (range, measured) = (range_of(matrix.all())?, values(matrix.all()).len());
    let pairs = fmt::count(measured, "ordered pair");
    let slowest = if rails > 1 { ", the slowest rail of each" } else { "" };
    let finding = format!("{range} {} over {pairs} of nodes{slowest}.", unit.0);
    let library = run.library(flow.by.wire()?.via);
    let what = format!("{} {}, {}", round.names().1, flow.bytes, memory(send));
    let title = format!("{library}, every two nodes, all at once: {what}");
    let id = format!("{SUITE}-{}-{}", round.names().0, send.id());
    let sentence = (round == RoundKind::OneWay).then(|| {
        format!("Between nodes that all exchange at once, {} moves {finding}", memory(send))
    });
    Some((frame(run, (SUITE, ""), id, title).finding(finding).draw(matrix), sentence))
}

fn nodes_differ(members: &[pathline_schema::RankMember]) -> bool {
    let first = members.first().map(|member| &member.host);
    members.iter().any(|member| Some(&member.host) != first)
}
