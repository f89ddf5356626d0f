//! Several GPUs at once with host memory.

use std::collections::BTreeSet;

use pathline_published::PublishedMetric;
use pathline_schema::{Flow, Mover, SuiteId};

use super::pivot::GBS;
use super::{
    BetterWhen, Figure, FigureCell, SuiteFindings, frame, is_host, published_clause, shares,
};
use crate::fmt;
use crate::loss_breakdown::losses;
use crate::run::CaseQuantity::{Payload, Traffic};
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Fan;

/// Direction of the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanDirection {
    /// To the GPUs.
    In,
    /// From the GPUs.
    Out,
    /// Both at once.
    Both,
}

impl FanDirection {
    fn label(self) -> &'static str {
        match self {
            Self::In => "into",
            Self::Out => "out of",
            Self::Both => "both ways of",
        }
    }
}

/// A set of concurrently copying GPUs.
#[derive(Debug, Clone)]
pub struct GpuFan<'a> {
    /// The GPUs, ascending.
    pub gpus: Vec<u32>,
    /// Whether some of them share a package, and are not all GPUs of the node.
    pub same_package: bool,
    /// Whether the packages of all of them are known.
    packaged: bool,
    /// Number of NUMA domains with their memory.
    pub domains: usize,
    all: bool,
    /// The case.
    pub entry: RunEntry<'a>,
    /// Bytes read and written, GB/s.
    value: Option<f64>,
    /// Direction of copies by copy engines; `None` for kernels that read and write host memory.
    pub direction: Option<FanDirection>,
    /// Multiple of a single GPU's rate.
    ratio: Option<f64>,
}

impl GpuFan<'_> {
    fn label(&self) -> String {
        match self.gpus.len() {
            1 => "1 GPU".into(),
            n if self.all => format!("all {n} GPUs"),
            n if self.same_package => format!("{n} GPUs, same package"),
            n if self.packaged && self.domains == n => format!("{n} GPUs, spread"),
            n => format!("{n} GPUs, {}", fmt::count(self.domains, "NUMA domain")),
        }
    }
}

/// All sets of GPUs, fewest GPUs first.
fn all_fans<'a>(run: &RunView<'a>) -> Vec<GpuFan<'a>> {
    let mut fans: Vec<GpuFan> = run.suite(SUITE).filter_map(|e| fan(run, *e)).collect();
    fans.sort_by_key(|f| (f.gpus.len(), !f.same_package));
    fans
}

/// Kernels that stream over host memory, fewest GPUs first.
fn fans<'a>(run: &RunView<'a>) -> Vec<GpuFan<'a>> {
    let mut fans = all_fans(run);
    fans.retain(|f| f.direction.is_none());
    let one = fans.iter().find(|f| f.gpus.len() == 1).and_then(|f| f.value);
    for fan in &mut fans {
        fan.ratio = fan.value.zip(one).map(|(v, one)| v / one);
    }
    fans
}

/// A case of several GPUs at once; `None` for other cases.
pub fn fan<'a>(run: &RunView<'a>, entry: RunEntry<'a>) -> Option<GpuFan<'a>> {
    let flows = &entry.case.timed;
    let gpus: BTreeSet<u32> = flows.iter().filter_map(|f| f.by.at().gpu()).collect();
    let ends = |f: &Flow| (is_host(f.src.unit), is_host(f.dst.unit));
    let count = |src: bool, dst: bool| flows.iter().filter(|f| ends(f) == (src, dst)).count();
    let copies = flows.iter().all(|f| matches!(f.by, Mover::Dma { .. }));
    let n = gpus.len();
    let direction = match (count(true, true), count(true, false), count(false, true)) {
        (on_host, 0, 0) if on_host == n => None,
        (0, into, 0) if into == n && copies => Some(FanDirection::In),
        (0, 0, out) if out == n && copies => Some(FanDirection::Out),
        (0, into, out) if into == n && out == n && copies => Some(FanDirection::Both),
        _ => return None,
    };
    if !entry.case.background.is_empty() || n == 0 {
        return None;
    }
    let home = |f: &Flow| if is_host(f.src.unit) { f.src.unit } else { f.dst.unit };
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let all = gpus.len() > 1 && gpus.len() == run.topology().gpus.len();
    let package = |g: &u32| run.topology().gpus.iter().find(|gpu| gpu.index == *g)?.package;
    let packages: Vec<u32> = gpus.iter().filter_map(package).collect();
    Some(GpuFan {
        same_package: packages.iter().collect::<BTreeSet<_>>().len() < packages.len(),
        packaged: packages.len() == gpus.len(),
        domains: flows.iter().map(home).collect::<BTreeSet<_>>().len(),
        all,
        value: run.value(&entry, Traffic),
        direction,
        ratio: None,
        gpus,
        entry,
    })
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let fans = fans(run);
    let sentence = (fans.iter().filter(|f| f.ratio.is_some()).count() > 1)
        .then(|| fmt::sentence(&format!("against host memory, {}.", sentence(&fans))));
    SuiteFindings::new(streams(run, &fans).into_iter().flatten().chain(engines(run)), [sentence])
}

/// Rates, and multiples of a single GPU's.
fn streams(run: &RunView, fans: &[GpuFan]) -> [Option<Figure>; 2] {
    let rate = |f: &GpuFan| (f.label(), run.cell(&f.entry, Traffic));
    let rates: Vec<(String, FigureCell)> = fans.iter().map(rate).collect();
    let ratios = fans.iter().filter(|f| f.gpus.len() > 1 && f.ratio.is_some());
    let ratios: Vec<(String, FigureCell)> =
        ratios.map(|f| (f.label(), ratio_cell(run, f))).collect();
    let (text, cells) = (sentence(fans), || rates.iter().map(|b| &b.1));
    let limits = format!("{}.{}", shares(cells()), losses(cells()));
    let published = published_clause(ratios.iter().map(|b| &b.1));
    let title = "GPUs that stream over host memory at once";
    let framed = |id, shown: &str, finding: String| {
        frame(run, (SUITE, ""), id, format!("{title}{shown}")).finding(fmt::sentence(&finding))
    };
    [
        framed("fan", ": read + written", format!("{text}{limits}")).draw_bars(GBS, rates),
        framed("fan-ratio", ", as multiples of one", format!("{text}.{published}"))
            .draw_bars(("x", BetterWhen::Higher), ratios),
    ]
}

/// Copies in, out and in both directions of several GPUs at once.
fn engines(run: &RunView) -> Option<Figure> {
    let fans = all_fans(run);
    let (mut bars, mut most) = (Vec::new(), Vec::new());
    for direction in [FanDirection::In, FanDirection::Out, FanDirection::Both] {
        let of = fans.iter().filter(|f| f.direction == Some(direction));
        let of: Vec<(String, FigureCell)> = of
            .map(|f| {
                let label = format!("{} {}", direction.label(), f.label());
                let cell = run.cell(&f.entry, Payload);
                let bound = run.slowest_limits(f.entry.case).1.or(cell.bound);
                (label, FigureCell { bound, ..cell })
            })
            .collect();
        let last = of.iter().rev().find_map(|b| Some((b, b.1.value?)));
        most.extend(last.map(|((label, cell), value)| {
            let of = cell
                .share_of_ceiling()
                .map_or(String::new(), |s| format!(" ({} of their links)", fmt::percent(s)));
            format!("{} {label}{of}", fmt::gbs(value))
        }));
        bars.extend(of);
    }
    let published = published_clause(bars.iter().map(|bar| &bar.1));
    let finding = format!("Pinned memory: {}.{published}", fmt::list(&most));
    let title = "Copies between host memory and several GPUs at once, sum";
    frame(run, (SUITE, "* > * by dma"), "fan-engine", title).finding(finding).draw_bars(GBS, bars)
}

fn ratio_cell(run: &RunView, fan: &GpuFan) -> FigureCell {
    let cell = run.cell(&fan.entry, Traffic).without_losses();
    let scale = fan.ratio.zip(fan.value).map_or(0.0, |(r, v)| r / v);
    FigureCell {
        value: fan.ratio,
        half_width: cell.half_width * scale,
        ceiling: Some(fan.gpus.len() as f64),
        bound: None,
        published: run.published(&fan.entry, Some(PublishedMetric::Ratio)),
        ..cell
    }
}

/// `one GPU moves 44.0 GB/s; 2 GPUs, same package 1.0 x, 2 GPUs, spread 2.0 x`.
fn sentence(fans: &[GpuFan]) -> String {
    let one = fans.iter().find(|f| f.gpus.len() == 1).and_then(|f| f.value);
    let Some(one) = one else { return "no figure of one GPU alone".into() };
    let more = fans
        .iter()
        .filter(|f| f.gpus.len() > 1)
        .filter_map(|f| Some(format!("{} {} x", f.label(), fmt::number(f.ratio?))));
    let all = [format!("one GPU reads and writes {}", fmt::gbs(one))].into_iter().chain(more);
    all.collect::<Vec<_>>().join("; ")
}
