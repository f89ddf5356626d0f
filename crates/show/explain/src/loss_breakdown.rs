//! Losses of bandwidth: the steps from the peak of the narrowest hop on a case's route down to the
//! rate in the model of the machine, taken from the network's stages.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{FlowCeiling, Network, PathStage};
use pathline_schema::{Case, LinkEnd};

use crate::figure::{FigureCell, LossBreakdown, LossClassRow, LossKind, LossStep, extremes};
use crate::fmt;

/// Steps smaller than this share of the peak are rounding errors.
pub(crate) const SMALLEST_STEP: f64 = 1e-3;

/// A step that costs less than this share of the previous rate does not determine the rate.
const MIN_CAUSE: f64 = 0.02;

/// Losses of `case`; `factor` converts payload to the figure's unit. `None` if the network knows no
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
        let label = || stage_label(stage, &first.narrowest);
        steps.down_to(sum(&all, tightest)? * factor, LossKind::Protocol, label);
    }
    let bound_by = || first.bound.as_ref().map_or(String::new(), |(_, by)| by.clone());
    steps.down_to(sum(&all, alone)? * factor, LossKind::Limit, bound_by);
    if case.flows().count() > 1
        && let Ok(together) = network.predict(case)
    {
        let by = || together.first().map_or(String::new(), |p| format!("shared: {}", p.bound_by));
        let rate = together.iter().map(|p| p.rate.gbs()).sum::<f64>() * factor;
        steps.down_to(rate, LossKind::Contention, by);
    }
    let narrowest = match case.timed.len() {
        0..=2 => first.narrowest.clone(),
        _ => general(&first.narrowest),
    };
    Some(LossBreakdown { route: route_text(&first.route), narrowest, losses: steps.losses })
}

fn sum(all: &[FlowCeiling], of: impl Fn(&FlowCeiling) -> f64) -> Option<f64> {
    let sum: f64 = all.iter().map(of).sum();
    (sum.is_finite() && sum > 0.0).then_some(sum)
}

/// The segment with the lowest rate.
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
pub(crate) fn route_text(nodes: &[LinkEnd]) -> String {
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
    fn down_to(&mut self, level: f64, kind: LossKind, why: impl FnOnce() -> String) {
        if level.is_finite() && level > 0.0 && level < self.level * (1.0 - SMALLEST_STEP) {
            self.losses.push(LossStep { from: self.level, to: level, kind, why: why() });
            self.level = level;
        }
    }
}

/// A name without the numbers of its units, so that equal causes have equal names: `copy engine`,
/// `both directions of xGMI x1`, `xGMI, 1 link`.
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
        // A share that rounds to 100 % is not a cause.
        .replace(", 100 % of that through another GPU", "")
        .replace("shared: ", "")
        .replace(" of gpu", "")
        .replace(" gpu-gpu", "")
        .replace("gpu HBM", "HBM")
        .replace("numa DDR", "DDR")
}

/// A cell of a class: value, peak, rate after protocol, limit.
type ClassCell = (f64, f64, f64, Option<f64>);

#[derive(Default)]
struct LossClass {
    cells: Vec<ClassCell>,
    routes: BTreeSet<String>,
    slow: usize,
}

/// Classes of a figure's paths by narrowest hop, forwarding and limit, in ascending order of peak.
/// Ignores cells without peak or route, and counts those of `slow` cases. Several ways to move data over one route
/// are one path.
pub fn loss_classes<'a>(
    cells: impl Iterator<Item = &'a FigureCell>,
    slow: &[Case],
) -> Vec<LossClassRow> {
    let mut classes: BTreeMap<(String, bool, String), LossClass> = BTreeMap::new();
    for cell in cells {
        let (Some(value), Some(peak), Some(path)) = (cell.value, cell.ceiling, &cell.path) else {
            continue;
        };
        let level = |kind: LossKind| path.losses.iter().rev().find(|l| l.kind <= kind);
        let after = level(LossKind::Protocol).map_or(peak, |l| l.to);
        let is_limit = |l: &&LossStep| matches!(l.kind, LossKind::Limit | LossKind::Contention);
        let limit = path.losses.iter().rev().find(is_limit).map(|l| l.to);
        // Switches forward every path of their GPUs equally.
        let forwarded = path.route.matches('-').count() > 1 && !path.route.contains("switch");
        let key = (general(&path.narrowest), forwarded, held_by(&path.losses));
        let class = classes.entry(key).or_default();
        if cell.case.as_ref().is_some_and(|case| slow.contains(case)) {
            class.slow += 1;
            continue;
        }
        class.cells.push((value, peak, after, limit));
        class.routes.insert(path.route.clone());
    }
    let mut rows: Vec<LossClassRow> = classes
        .into_iter()
        .filter(|(_, class)| !class.cells.is_empty())
        .map(|((hop, forwarded, held_by), LossClass { cells, routes, slow })| {
            let range =
                |of: fn(&ClassCell) -> f64| extremes(&cells.iter().map(of).collect::<Vec<_>>());
            let limits: Vec<f64> = cells.iter().filter_map(|c| c.3).collect();
            LossClassRow {
                hop,
                forwarded,
                paths: routes.len(),
                slow,
                peak: range(|c| c.1),
                after_protocol: range(|c| c.2),
                limit: (!limits.is_empty()).then(|| extremes(&limits)),
                measured: range(|c| c.0),
                share: range(|c| c.0 / c.1),
                held_by,
            }
        })
        .collect();
    rows.sort_by(|a, b| a.peak.1.total_cmp(&b.peak.1).then(a.forwarded.cmp(&b.forwarded)));
    rows
}

/// The main cause: the last step that costs [`MIN_CAUSE`] or more.
fn held_by(losses: &[LossStep]) -> String {
    match losses.iter().rev().find(|l| l.share() >= MIN_CAUSE) {
        None => String::new(),
        Some(step) if step.kind == LossKind::Protocol => "packet overhead".to_owned(),
        Some(step) if step.kind == LossKind::Message => "message protocol".to_owned(),
        Some(step) => general(&step.why),
    }
}

/// The classes as a sentence, those with the most paths first: ` 12 over xGMI, 1 link reach 75 % of
/// peak (packet overhead); 1 more class.`
pub fn losses<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    const SHOWN: usize = 3;
    let mut rows = loss_classes(cells, &[]);
    rows.sort_by_key(|row| std::cmp::Reverse(row.paths));
    let mut texts: Vec<String> = rows.iter().take(SHOWN).map(describe_class).collect();
    match rows.len().saturating_sub(SHOWN) {
        0 => {}
        1 => texts.push("1 more class".to_owned()),
        more => texts.push(format!("{more} more classes")),
    }
    if texts.is_empty() { String::new() } else { format!(" {}.", texts.join("; ")) }
}

fn describe_class(row: &LossClassRow) -> String {
    let LossClassRow { hop, forwarded, paths, share, held_by, .. } = row;
    let reach = if *paths == 1 { "reaches" } else { "reach" };
    let forwarded = if *forwarded { ", forwarded," } else { "" };
    let why = match held_by.as_str() {
        "" => String::new(),
        why => format!(" (limited by {why})"),
    };
    format!("{paths} over {hop}{forwarded} {reach} {} of peak{why}", fmt::percent_range(*share))
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
        // One link of 50 GB/s: the rate after packet overhead is below the engine's limit.
        let single = path("gpu0.vram > gpu2.vram by dma@gpu0 x 256MiB");
        assert_eq!((single.route.as_str(), single.losses.len()), ("0-2", 1));
        assert_eq!(single.losses[0].from, 50.0);
        assert!(single.losses[0].why.contains("is payload"), "{single:?}");
        // Four links of 50 GB/s: the engine's limit is far below both peak and payload.
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

    /// MI250X pairs by SDMA: one link of 50 GB/s keeps 64 of 85 B (37.6); for two and four links
    /// the engine's limit is about 50 GB/s.
    #[test]
    fn pairs_of_a_node_fall_into_classes_by_links_and_cause() {
        let cell = |case: &str, value: f64| {
            let path = path(case);
            let ceiling = path.losses.first().map(|l| l.from);
            FigureCell { value: Some(value), ceiling, path: Some(path), ..FigureCell::default() }
        };
        let pair = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
        let cells = [
            cell(&pair(0, 2), 37.6),
            cell(&pair(1, 3), 37.5),
            cell(&pair(0, 3), 37.1),
            cell(&pair(0, 6), 50.3),
            cell(&pair(0, 1), 50.4),
        ];
        let rows = loss_classes(cells.iter(), &[]);
        let brief: Vec<(&str, bool, usize, &str)> = rows
            .iter()
            .map(|r| (r.hop.as_str(), r.forwarded, r.paths, r.held_by.as_str()))
            .collect();
        assert_eq!(
            brief,
            [
                ("xGMI, 1 link", false, 2, "packet overhead"),
                ("xGMI, 1 link", true, 1, "packet overhead"),
                ("xGMI, 2 links", false, 1, "copy engine"),
                ("xGMI, 4 links", false, 1, "copy engine"),
            ]
        );
        assert_eq!((rows[0].peak, rows[0].measured), ((50.0, 50.0), (37.5, 37.6)));
        // 50 x 64 / 85 = 37.647.
        assert!((rows[0].after_protocol.0 - 37.647).abs() < 0.01, "{rows:?}");
        assert!((rows[3].share.1 - 50.4 / 200.0).abs() < 1e-9);
        assert_eq!(
            losses(cells[..1].iter()),
            " 1 over xGMI, 1 link reaches 75 % of peak (limited by packet overhead)."
        );
    }
}
