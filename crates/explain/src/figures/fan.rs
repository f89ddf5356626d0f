//! Several GPUs at once against host memory.

use std::collections::BTreeSet;

use pathline_schema::{Topology, Unit};

use super::{Bar, Bars, Better, Body, Cell, Figure, published_words, shares};
use crate::figure::{Published, Way};
use crate::published::Metric;
use crate::run::{Entry, Quantity, Run};
use crate::way::losses;
use crate::words;

const SUITE: &str = "fan";

/// GPUs that stream at once.
#[derive(Debug, Clone)]
pub(crate) struct Fan<'a> {
    pub(crate) gpus: Vec<u32>,
    /// Whether some of them share a package, and are not all GPUs of the node.
    pub(crate) same_package: bool,
    /// Whether it is known which package each of them is in.
    packaged: bool,
    /// Over how many NUMA domains their memory is spread.
    domains: usize,
    pub(crate) all: bool,
    pub(crate) entry: Entry<'a>,
    /// Read + written, GB/s.
    pub(crate) value: Option<f64>,
    /// Times the rate of the one GPU.
    pub(crate) ratio: Option<f64>,
}

impl Fan<'_> {
    pub(crate) fn label(&self) -> String {
        match self.gpus.len() {
            1 => "1 GPU".into(),
            n if self.all => format!("all {n} GPUs"),
            n if self.same_package => format!("{n} GPUs, same package"),
            n if self.packaged && self.domains == n => format!("{n} GPUs, spread"),
            n => {
                let domains = words::count(self.domains, "NUMA domain");
                format!("{n} GPUs, {domains}")
            }
        }
    }
}

/// What the suite measured, fewest GPUs first.
pub(crate) fn fans<'a>(run: &Run<'a>) -> Vec<Fan<'a>> {
    let mut fans: Vec<Fan> = run.suite(SUITE).filter_map(|e| fan(run, *e)).collect();
    fans.sort_by_key(|f| (f.gpus.len(), !f.same_package));
    let one = fans.iter().find(|f| f.gpus.len() == 1).and_then(|f| f.value);
    for fan in &mut fans {
        fan.ratio = fan.value.zip(one).map(|(v, one)| v / one);
    }
    fans
}

fn fan<'a>(run: &Run<'a>, entry: Entry<'a>) -> Option<Fan<'a>> {
    let flows = &entry.case.timed;
    let gpus: BTreeSet<u32> = flows.iter().filter_map(|f| f.by.at().gpu()).collect();
    let host = |u: Unit| u.numa().is_some();
    let on_host = flows.iter().all(|f| host(f.src.unit) && host(f.dst.unit));
    if !on_host || gpus.len() != flows.len() || !entry.case.background.is_empty() {
        return None;
    }
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let all = gpus.len() > 1 && gpus.len() == run.topology().gpus.len();
    let packages = packages(run.topology(), &gpus);
    Some(Fan {
        same_package: packages.iter().collect::<BTreeSet<_>>().len() < packages.len(),
        packaged: packages.len() == gpus.len(),
        domains: flows.iter().map(|f| f.src.unit).collect::<BTreeSet<_>>().len(),
        all,
        value: run.value(&entry, Quantity::Traffic),
        ratio: None,
        gpus,
        entry,
    })
}

/// Packages of GPUs, as far as they are known.
fn packages(topology: &Topology, gpus: &[u32]) -> Vec<u32> {
    let package = |g: &u32| topology.gpus.iter().find(|gpu| gpu.index == *g)?.package;
    gpus.iter().filter_map(package).collect()
}

pub(super) fn figures(run: &Run) -> Vec<Figure> {
    let fans = fans(run);
    if fans.is_empty() {
        return Vec::new();
    }
    let bar = |f: &Fan, cell: Cell| Bar { label: f.label(), cell };
    let rates: Vec<Bar> =
        fans.iter().map(|f| bar(f, run.cell(&f.entry, Quantity::Traffic))).collect();
    let ratios: Vec<Bar> = fans
        .iter()
        .filter(|f| f.gpus.len() > 1 && f.ratio.is_some())
        .map(|f| bar(f, ratio_cell(run, f)))
        .collect();
    let mut figures = vec![Figure {
        id: "fan".into(),
        suite: SUITE.into(),
        title: "GPUs that stream over host memory at once: read + written".into(),
        finding: words::sentence(&format!(
            "{}{}.{}",
            sentence(&fans),
            shares(rates.iter().map(|b| &b.cell)),
            losses(rates.iter().map(|b| &b.cell))
        )),
        command: run.command(SUITE, ""),
        body: Body::Bars(Bars { unit: "GB/s".into(), bars: rates, better: Better::Higher }),
    }];
    if !ratios.is_empty() {
        figures.push(Figure {
            id: "fan-ratio".into(),
            suite: SUITE.into(),
            title: "GPUs that stream over host memory at once, as multiples of one".into(),
            finding: words::sentence(&format!(
                "{}.{}",
                sentence(&fans),
                published_words(ratios.iter().map(|b| &b.cell))
            )),
            command: run.command(SUITE, ""),
            body: Body::Bars(Bars { unit: "x".into(), bars: ratios, better: Better::Higher }),
        });
    }
    figures
}

fn ratio_cell(run: &Run, fan: &Fan) -> Cell {
    let cell = run.cell(&fan.entry, Quantity::Traffic);
    let scale = fan.ratio.zip(fan.value).map_or(0.0, |(r, v)| r / v);
    let published: Option<Published> = run.published(&fan.entry, Some(Metric::Ratio));
    Cell {
        value: fan.ratio,
        half_width: cell.half_width * scale,
        ceiling: Some(fan.gpus.len() as f64),
        bound: None,
        way: cell.way.map(|way| Way { losses: Vec::new(), ..way }),
        published,
        ..cell
    }
}

/// `one GPU moves 44.0 GB/s; 2 GPUs, same package 1.0 x, 2 GPUs, spread 2.0 x`.
pub(crate) fn sentence(fans: &[Fan]) -> String {
    let one = fans.iter().find(|f| f.gpus.len() == 1).and_then(|f| f.value);
    let more: Vec<String> = fans
        .iter()
        .filter(|f| f.gpus.len() > 1)
        .filter_map(|f| Some(format!("{} {} x", f.label(), words::number(f.ratio?))))
        .collect();
    match one {
        Some(rate) if more.is_empty() => format!("one GPU reads and writes {}", words::gbs(rate)),
        Some(rate) => {
            format!("one GPU reads and writes {}; {}", words::gbs(rate), more.join("; "))
        }
        None => "no figure of one GPU alone".into(),
    }
}
