//! Where the bandwidth of a case is lost: from the peak of the narrowest hop on its route down
//! to what the model of the machine lets through. Every step is taken from the network's stages.

use std::collections::BTreeMap;

use pathline_flow::{FlowCeiling, Network, PathStage};
use pathline_schema::{Case, LinkEnd};

use crate::figure::{FigureCell, LossBreakdown, LossStep, extremes};
use crate::fmt;

/// Steps smaller than this share of the peak are rounding.
const STEP: f64 = 1e-3;

/// Losses below this share of the peak are not reported.
const SMALL: f64 = 0.02;

/// Losses of `case`; `factor` turns payload into the figure's unit. None if the network knows no
/// peak for one of the flows.
pub(crate) fn loss_breakdown(network: &Network, case: &Case, factor: f64) -> Option<LossBreakdown> {
    let all: Vec<FlowCeiling> =
        case.timed.iter().map(|flow| network.explain(flow).ok()).collect::<Option<_>>()?;
    let first = all.first()?;
    let peak = sum(&all, |e| e.peak.gbs())?;
    let tightest = |e: &FlowCeiling| stage(e).map_or(e.peak.gbs(), |s| s.cap.gbs());
    let alone = |e: &FlowCeiling| e.bound.as_ref().map_or(e.peak.gbs(), |(rate, _)| rate.gbs());
    let mut steps = LossSteps { level: peak * factor, losses: Vec::new() };
    if let Some(stage) = stage(first) {
        steps.down_to(sum(&all, tightest)? * factor, || stage_label(stage, &first.narrowest));
    }
    let bound_by = || first.bound.as_ref().map_or(String::new(), |(_, by)| by.clone());
    steps.down_to(sum(&all, alone)? * factor, bound_by);
    if case.flows().count() > 1
        && let Ok(together) = network.predict(case)
    {
        let by = || together.first().map_or(String::new(), |p| format!("shared: {}", p.bound_by));
        steps.down_to(together.iter().map(|p| p.rate.gbs()).sum::<f64>() * factor, by);
    }
    let narrowest = match case.timed.len() {
        0..=2 => first.narrowest.clone(),
        _ => general(&first.narrowest),
    };
    Some(LossBreakdown { route: route(&first.route), narrowest, losses: steps.losses })
}

fn sum(all: &[FlowCeiling], of: impl Fn(&FlowCeiling) -> f64) -> Option<f64> {
    let sum: f64 = all.iter().map(of).sum();
    (sum.is_finite() && sum > 0.0).then_some(sum)
}

/// The stretch that lets the least through.
fn stage(explanation: &FlowCeiling) -> Option<&PathStage> {
    explanation.stages.iter().min_by(|a, b| a.cap.gbs().total_cmp(&b.cap.gbs()))
}

fn stage_label(stage: &PathStage, narrowest: &str) -> String {
    match (stage.name == narrowest, stage.why.is_empty()) {
        (_, true) => stage.name.clone(),
        (true, false) => stage.why.clone(),
        (false, false) => format!("{} ({})", stage.name, stage.why),
    }
}

/// `0-1-5` between GPUs, `numa3-gpu0` otherwise.
fn route(nodes: &[LinkEnd]) -> String {
    let gpus = nodes.iter().all(|n| matches!(n, LinkEnd::Gpu(_)));
    let name = |node: &LinkEnd| match node {
        LinkEnd::Gpu(n) if gpus => n.to_string(),
        other => other.to_string(),
    };
    nodes.iter().map(name).collect::<Vec<_>>().join("-")
}

struct LossSteps {
    level: f64,
    losses: Vec<LossStep>,
}

impl LossSteps {
    fn down_to(&mut self, level: f64, why: impl FnOnce() -> String) {
        if level.is_finite() && level > 0.0 && level < self.level * (1.0 - STEP) {
            self.losses.push(LossStep { from: self.level, to: level, why: why() });
            self.level = level;
        }
    }
}

/// A name without the numbers of its units, so that equal causes read alike:
/// `copy engine`, `both directions of xGMI x1`, `xGMI, 1 link`.
pub(crate) fn general(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let unit = ["gpu", "numa", "switch"].iter().find(|u| {
            let digits = rest.strip_prefix(**u);
            digits.is_some_and(|d| d.starts_with(|c: char| c.is_ascii_digit()))
        });
        match unit {
            Some(unit) => {
                plain.push_str(unit);
                rest = rest[unit.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
            }
            None => {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    for (ends, sides) in [("<>", "both directions of "), (">", "one direction of ")] {
        for unit in ["gpu", "numa"] {
            plain = plain.replace(&format!("{unit}{ends}{unit} "), sides);
        }
    }
    plain
        // A share that rounds to all of it is no cause.
        .replace(", 100 % of that through another GPU", "")
        .replace("shared: ", "")
        .replace(" of gpu", "")
        .replace(" gpu-gpu", "")
        .replace("gpu HBM", "HBM")
        .replace("numa DDR", "DDR")
}

/// Cells of one kind of hop that lose to one cause.
#[derive(Debug, Default)]
struct LossClass {
    shares: Vec<f64>,
    levels: Vec<f64>,
    rests: Vec<f64>,
}

/// Where a figure's bandwidth goes, by kind of hop and cause, the most frequent first:
/// ` Of the peak, 24 over xGMI, 1 link lose 25 % (copy engine: 75 % is payload).`
pub fn losses<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    const SHOWN: usize = 3;
    let mut classes: BTreeMap<(String, Vec<String>), LossClass> = BTreeMap::new();
    for cell in cells {
        let (Some(value), Some(peak), Some(path)) = (cell.value, cell.ceiling, &cell.path) else {
            continue;
        };
        let why = causes(&path.losses);
        let level = path.losses.last().map_or(peak, |l| l.to);
        let class = classes.entry((general(&path.narrowest), why)).or_default();
        class.shares.push(1.0 - value / peak);
        class.levels.push(level);
        class.rests.push(1.0 - value / level);
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.shares.len()));
    let all = classes.len();
    let mut texts: Vec<String> =
        classes.iter().take(SHOWN).map(|((hop, why), class)| class.describe(hop, why)).collect();
    if all > SHOWN {
        texts.push(fmt::count(all - SHOWN, "more kind"));
    }
    if texts.is_empty() { String::new() } else { format!(" Of the peak, {}.", texts.join("; ")) }
}

/// What binds in the end, and before it what takes a comparable part.
fn causes(losses: &[LossStep]) -> Vec<String> {
    let last = losses.iter().rev().find(|l| l.share() >= SMALL);
    let least = last.map_or(SMALL, |l| (l.share() / 2.0).max(SMALL));
    let counts = |l: &&LossStep| l.share() >= least || Some(*l) == last;
    losses.iter().filter(counts).map(|l| general(&l.why)).collect()
}

impl LossClass {
    fn describe(&self, hop: &str, causes: &[String]) -> String {
        let number = self.shares.len();
        let median = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
        };
        let (share, rest) = (median(&self.shares), median(&self.rests));
        let (low, high) = extremes(&self.levels);
        // A stage names the share that it lets through; other causes name what limits the rate.
        let cause = |why: &String| match why.contains('%') {
            true => why.clone(),
            false => format!("held at {} GB/s by {why}", fmt::range(low, high)),
        };
        let causes: Vec<String> = causes.iter().map(cause).collect();
        let cause = match causes.as_slice() {
            [] => String::new(),
            causes => format!(" ({})", causes.join("; then ")),
        };
        let rest = if rest.abs() < SMALL || share < SMALL {
            String::new()
        } else if rest > 0.0 {
            format!(", {} of that bound not explained", fmt::percent(rest))
        } else {
            format!(", {} more than the bound", fmt::percent(-rest))
        };
        let lose = if number == 1 { "loses" } else { "lose" };
        let share = if share < SMALL / 2.0 { "nothing".into() } else { fmt::percent(share) };
        format!("{number} over {hop} {lose} {share}{cause}{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::{MachineDesc, RuntimeEnv};

    fn path(case: &str) -> LossBreakdown {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        loss_breakdown(&network, &case.parse().unwrap(), 1.0).unwrap()
    }

    #[test]
    fn equal_causes_read_alike() {
        assert_eq!(general("copy engine of gpu10"), "copy engine");
        assert_eq!(general("gpu0<>gpu2 xGMI x1"), "both directions of xGMI x1");
        assert_eq!(general("xGMI gpu0-gpu2, 1 link"), "xGMI, 1 link");
        assert_eq!(general("xGMI gpu0-numa3, both ways"), "xGMI gpu-numa, both ways");
    }

    #[test]
    fn a_single_link_loses_to_the_protocol_and_four_links_to_the_engine() {
        // One link of 50 GB/s: what the engine's packets leave is below what the engine moves.
        let single = path("gpu0.vram > gpu2.vram by dma@gpu0 x 256MiB");
        assert_eq!((single.route.as_str(), single.losses.len()), ("0-2", 1));
        assert_eq!(single.losses[0].from, 50.0);
        assert!(single.losses[0].why.contains("is payload"), "{single:?}");
        // Four links of 50 GB/s: the engine's cap is far below both peak and payload.
        let quad = path("gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB");
        assert_eq!(quad.losses[0].from, 200.0);
        assert_eq!(quad.losses[1].from, quad.losses[0].to);
        assert_eq!(quad.losses[1].why, "copy engine of gpu0");
        assert!(quad.losses[1].to < 51.0, "{quad:?}");
    }

    #[test]
    fn a_detour_and_a_host_route_are_written_apart() {
        assert_eq!(path("gpu1.vram > gpu7.vram by dma@gpu1 x 256MiB").route, "1-0-6-7");
        assert_eq!(path("numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB").route, "numa3-gpu0");
    }

    #[test]
    fn two_that_share_a_memory_name_it() {
        let by = |g: u32| {
            format!("numa3.managed > numa3.managed by kernel@gpu{g}[copy-w16-u4-b256-g2sm] x 1GiB")
        };
        let two = path(&format!("{} & {}", by(0), by(1)));
        let last = two.losses.last().unwrap();
        assert!(last.why.starts_with("shared: "), "{two:?}");
    }
}
