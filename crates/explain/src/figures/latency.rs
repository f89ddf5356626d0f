//! Loads over links, and small copies between host and GPUs.

use std::collections::BTreeSet;

use pathline_schema::{Cadence, Unit};

use super::{
    BetterWhen, Figure, FigureBar, FigureBody, FigureCell, bars_figure, extremes, grid,
    published_words, values,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: &str = "latency";

pub(super) fn figures(run: &RunView) -> Vec<Figure> {
    loads(run).into_iter().chain(host_copies(run)).collect()
}

/// Dependent loads of each GPU from each memory that is not its own.
fn loads(run: &RunView) -> Option<Figure> {
    let chases: Vec<(&RunEntry, u32, Unit)> = run
        .suite(SUITE)
        .filter_map(|e| {
            let flow = e.lone().filter(|f| f.by.is_chase())?;
            Some((e, flow.by.at().gpu()?, flow.src.unit))
        })
        .collect();
    let gpus: BTreeSet<u32> = chases.iter().map(|(_, g, _)| *g).collect();
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let peers: BTreeSet<Unit> =
        chases.iter().map(|c| c.2).filter(|unit| unit.gpu().is_some()).collect();
    let mut memories: Vec<Option<Unit>> = peers.into_iter().map(Some).collect();
    if chases.iter().any(|c| c.2.numa().is_some()) {
        memories.push(None);
    }
    if chases.is_empty() {
        return None;
    }
    let cell = |g: u32, memory: Option<Unit>| {
        let of = |unit: Unit| memory.map_or(unit.numa().is_some(), |memory| unit == memory);
        let found = chases.iter().find(|c| c.1 == g && of(c.2));
        found.map_or_else(FigureCell::default, |(e, ..)| run.cell(e, CaseQuantity::StepNs))
    };
    let name = |memory: Option<Unit>| match memory {
        Some(Unit::Gpu(n)) => n.to_string(),
        Some(unit) => unit.to_string(),
        None => "host".to_owned(),
    };
    let matrix = grid(
        ("GPU", &gpus),
        ("memory of", &memories),
        ("ns", BetterWhen::Lower),
        (|g: u32| g.to_string(), name),
        cell,
    );
    let of = |host: bool| {
        let cells = matrix.cells.iter().flat_map(|row| row.iter().zip(&memories));
        values(cells.filter(|(_, m)| m.is_none() == host).map(|(cell, _)| cell))
    };
    let part = |values: &[f64], whose: &str| {
        let (low, high) = extremes(values);
        (!values.is_empty()).then(|| format!("{} ns from {whose}", fmt::range(low, high)))
    };
    let parts: Vec<String> = [part(&of(false), "other GPUs"), part(&of(true), "the host")]
        .into_iter()
        .flatten()
        .collect();
    Some(Figure {
        id: "latency-load".into(),
        suite: SUITE.into(),
        title: "Latency of a dependent load by a kernel".into(),
        finding: format!(
            "{}.{}",
            fmt::sentence(&fmt::list(&parts)),
            published_words(matrix.cells.iter().flatten())
        ),
        command: run.command(SUITE, "* > gpu*.reg by kernel@*[chase-*]"),
        body: FigureBody::Matrix(matrix),
    })
}

fn host_copies(run: &RunView) -> Option<Figure> {
    let bars: Vec<FigureBar> = run
        .suite(SUITE)
        .filter(|e| e.case.cadence == Cadence::Isolated)
        .filter_map(|e| {
            let flow = e.lone()?;
            let label = match (flow.src.unit, flow.dst.unit) {
                (Unit::Numa(_), Unit::Gpu(g)) => format!("to gpu{g}"),
                (Unit::Gpu(g), Unit::Numa(_)) => format!("from gpu{g}"),
                _ => return None,
            };
            Some(FigureBar { label, cell: run.cell(e, CaseQuantity::StepUs) })
        })
        .collect();
    let (low, high) = extremes(&values(bars.iter().map(|b| &b.cell)));
    let finding = if low <= high {
        format!("{} us a copy of pinned memory.", fmt::range(low, high))
    } else {
        String::new()
    };
    let title = "Time of a 16 B copy between host and GPU, one at a time".to_owned();
    let command = run.command(SUITE, "*.pinned > *.vram by dma");
    bars_figure(("latency-host", SUITE, title), finding, command, ("us", BetterWhen::Lower), bars)
}
