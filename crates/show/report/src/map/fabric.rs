//! Links between GPUs, and from GPUs to switches, in the picture.

use std::collections::BTreeMap;

use pathline_schema::{Link, LinkEnd, LinkKind, Rate, Topology};

use super::draw::{SvgDocument, TextAnchor, text_width};
use super::parts::{count, kind_name};

/// The box of a GPU.
pub(super) const GPU_W: f64 = 112.0;
pub(super) const GPU_H: f64 = 48.0;

/// Position of a GPU: upper left corner, row in its column, side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GpuSpot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) row: usize,
    pub(super) is_left: bool,
}

impl GpuSpot {
    /// Middle of the edge that faces the other column.
    fn inner(&self) -> (f64, f64) {
        let x = if self.is_left { self.x + GPU_W } else { self.x };
        (x, self.y + GPU_H / 2.0)
    }
    fn middle(&self) -> (f64, f64) {
        (self.x + GPU_W / 2.0, self.y + GPU_H / 2.0)
    }
}

/// Shape of a link.
enum LinkShape {
    Straight((f64, f64), (f64, f64)),
    /// Between neighbours of one column; true for the left one.
    Vertical((f64, f64), (f64, f64), bool),
}

impl LinkShape {
    fn ends(&self) -> ((f64, f64), (f64, f64)) {
        match *self {
            Self::Straight(a, b) | Self::Vertical(a, b, _) => (a, b),
        }
    }
}

struct DrawnLink<'a> {
    link: &'a Link,
    shape: LinkShape,
    width: f64,
    class: String,
}

const SWITCH_W: f64 = 84.0;

/// Maximum number of labelled links; more labels would cover each other. Fully connected, 16 GPUs
/// have 120 links.
const MAX_LABELS: usize = 200;

/// Maximum number of drawn links. Fully connected, 256 GPUs have 32,640, which are not discernible.
const MAX_LINES: usize = 40_000;

/// Links from GPU to GPU.
fn direct(topology: &Topology) -> Vec<&Link> {
    let is_direct = |link: &&Link| matches!((link.a, link.b), (LinkEnd::Gpu(_), LinkEnd::Gpu(_)));
    topology.links.iter().filter(is_direct).collect()
}

/// Sum of the links of each GPU to switches: width, peak, number of switches.
fn to_switches(topology: &Topology) -> BTreeMap<u32, (u32, Option<Rate>)> {
    let mut totals: BTreeMap<u32, (u32, Option<Rate>)> = BTreeMap::new();
    for link in &topology.links {
        if let (LinkEnd::Gpu(gpu), LinkEnd::Switch(_)) = (link.a, link.b) {
            totals
                .entry(gpu)
                .and_modify(|(width, peak)| {
                    *width = width.saturating_add(link.width);
                    *peak = peak.zip(link.peak).map(|(a, b)| a + b);
                })
                .or_insert((link.width, link.peak));
        }
    }
    totals
}

fn switch_count(topology: &Topology) -> usize {
    let mut switches: Vec<u32> = topology
        .links
        .iter()
        .filter_map(|link| if let LinkEnd::Switch(n) = link.b { Some(n) } else { None })
        .collect();
    switches.sort_unstable();
    switches.dedup();
    switches.len()
}

/// One sentence instead of labels, if all pairs are equal and too many to label.
fn uniform<'a>(links: &[&'a Link]) -> Option<&'a Link> {
    let first = links.first()?;
    let alike = |link: &&&Link| {
        link.width == first.width && link.peak == first.peak && link.kind == first.kind
    };
    (links.len() > 5 && links.iter().all(|link| alike(&link))).then_some(*first)
}

/// The sentence for identical links.
pub(super) fn caption(topology: &Topology) -> Option<String> {
    let links = direct(topology);
    if links.len() > MAX_LINES {
        return Some(format!("{} between GPUs: too many to draw", link_count(links.len())));
    }
    let Some(link) = uniform(&links) else {
        let many = links.len() > MAX_LABELS;
        return many.then(|| format!("{}: too many to label", link_count(links.len())));
    };
    let untrusted = topology.warnings.iter().any(|warning| warning.code.starts_with("xgmi-"));
    let width = if untrusted {
        "of unknown width".to_owned()
    } else {
        match link.peak {
            Some(peak) => format!("{}, {peak}", width_label(link.width)),
            None => width_label(link.width),
        }
    };
    Some(format!("Each line: {} {width}", kind_name(link.kind)))
}

fn width_label(width: u32) -> String {
    link_count(width as usize)
}

fn link_count(links: usize) -> String {
    count(links, "link")
}

fn drawn<'a>(topology: &'a Topology, spots: &BTreeMap<u32, GpuSpot>) -> Vec<DrawnLink<'a>> {
    let links = direct(topology);
    if links.len() > MAX_LINES {
        return Vec::new();
    }
    let mut widths: Vec<u32> = links.iter().map(|link| link.width).collect();
    widths.sort_unstable();
    widths.dedup();
    widths.reverse();
    let most = widths.first().copied().unwrap_or(1).max(1);
    // The three widest kinds have a colour each; all others share one.
    let ranks = |width: u32| widths.iter().take(3).position(|&w| w == width).unwrap_or(3);
    let thickness = |width: u32| match most {
        1 => 2.4,
        _ => (10.0 * f64::from(width) / f64::from(most)).max(2.4),
    };
    links
        .into_iter()
        .filter_map(|link| {
            let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (link.a, link.b) else { return None };
            let (a, b) = (spots.get(&a)?, spots.get(&b)?);
            let rank = if most == 1 { 1 } else { ranks(link.width) };
            let class = match link.kind {
                LinkKind::Nvlink => "nv".to_owned(),
                _ => format!("w{rank}"),
            };
            Some(DrawnLink { link, shape: shape(a, b), width: thickness(link.width), class })
        })
        .collect()
}

fn shape(a: &GpuSpot, b: &GpuSpot) -> LinkShape {
    let (a, b) = if a.is_left == b.is_left && a.y > b.y { (b, a) } else { (a, b) };
    if a.is_left != b.is_left {
        // Ends are spread towards the far end, so that links do not all end in one point.
        let lean = |from: &GpuSpot, to: &GpuSpot| {
            let rows = to.row as f64 - from.row as f64;
            (rows * 5.0).clamp(-16.0, 16.0)
        };
        let ((ax, ay), (bx, by)) = (a.inner(), b.inner());
        return LinkShape::Straight((ax, ay + lean(a, b)), (bx, by + lean(b, a)));
    }
    if b.row == a.row + 1 && (a.x - b.x).abs() < 1.0 {
        let ((x, ay), (_, by)) = (a.middle(), b.middle());
        return LinkShape::Vertical((x, ay + GPU_H / 2.0), (x, by - GPU_H / 2.0), a.is_left);
    }
    // From edge to edge, slightly inside the corner, clear of neighbours on the arc.
    let corner = |spot: &GpuSpot, y: f64| {
        let x = spot.inner().0;
        (if spot.is_left { x - 18.0 } else { x + 18.0 }, y)
    };
    LinkShape::Straight(corner(a, a.y + GPU_H), corner(b, b.y))
}

/// Lines come before boxes and labels, thick ones before thin ones.
pub(super) fn draw_links(
    svg: &mut SvgDocument,
    topology: &Topology,
    spots: &BTreeMap<u32, GpuSpot>,
    suspect: &[u32],
) {
    let mut all = drawn(topology, spots);
    all.sort_by(|a, b| b.width.total_cmp(&a.width));
    // Two suspects that a link joins are suspect for it.
    let is_suspect = |end| matches!(end, LinkEnd::Gpu(gpu) if suspect.contains(&gpu));
    for DrawnLink { link, shape, width, class } in &all {
        let (a, b) = shape.ends();
        let is_ill = suspect.len() == 2 && is_suspect(link.a) && is_suspect(link.b);
        svg.line(if is_ill { "ill" } else { class }, a, b, *width);
    }
    let Some((x, top, height)) = switch_bar(topology, spots) else { return };
    let totals = to_switches(topology);
    let most = totals.values().map(|(width, _)| *width).max().unwrap_or(1).max(1);
    for (gpu, (width, _)) in &totals {
        let Some(spot) = spots.get(gpu) else { continue };
        let (from, y) = spot.inner();
        let to = if spot.is_left { x } else { x + SWITCH_W };
        svg.line("nv", (from, y), (to, y), 10.0 * f64::from(*width) / f64::from(most));
    }
    svg.rect("switch", (x, top, SWITCH_W, height), 10.0);
    let middle = (x + SWITCH_W / 2.0, top + height / 2.0);
    let switches = switch_count(topology);
    svg.text("name", (middle.0, middle.1 - 6.0), TextAnchor::Middle, "NVLink");
    let text = if switches == 1 { "switch".to_owned() } else { format!("{switches} switches") };
    svg.text("soft", (middle.0, middle.1 + 12.0), TextAnchor::Middle, &text);
}

/// Left edge, top and height of the bar that represents all switches.
fn switch_bar(topology: &Topology, spots: &BTreeMap<u32, GpuSpot>) -> Option<(f64, f64, f64)> {
    let totals = to_switches(topology);
    let joined: Vec<&GpuSpot> = totals.keys().filter_map(|gpu| spots.get(gpu)).collect();
    let edge = |left: bool| {
        let inner = joined.iter().filter(|spot| spot.is_left == left).map(|spot| spot.inner().0);
        if left { inner.reduce(f64::max) } else { inner.reduce(f64::min) }
    };
    let left = edge(true)?;
    let right = edge(false).unwrap_or(left + 180.0);
    let top = joined.iter().map(|spot| spot.y).reduce(f64::min)?;
    let bottom = joined.iter().map(|spot| spot.y + GPU_H).reduce(f64::max)?;
    Some(((left + right - SWITCH_W) / 2.0, top, bottom - top))
}

/// Labels, each at the position with the least overlap.
pub(super) fn draw_labels(
    svg: &mut SvgDocument,
    topology: &Topology,
    spots: &BTreeMap<u32, GpuSpot>,
    one_domain: bool,
) {
    switch_labels(svg, topology, spots);
    let links = direct(topology);
    if links.len() > MAX_LABELS || uniform(&links).is_some() {
        return;
    }
    let ground = if one_domain { "pill-panel" } else { "pill" };
    let all = drawn(topology, spots);
    let traces: Vec<Vec<(f64, f64)>> = all.iter().map(|link| trace(&link.shape)).collect();
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    for (at, link) in all.iter().enumerate() {
        let links = width_label(link.link.width);
        let peak = link.link.peak.map(|peak| peak.to_string());
        if let LinkShape::Vertical(a, b, is_left) = link.shape {
            // Two short lines on the outer side fit between the boxes.
            let side = link.width / 2.0 + 6.0;
            let (x, anchor) = if is_left {
                (a.0 - side, TextAnchor::End)
            } else {
                (a.0 + side, TextAnchor::Start)
            };
            let y = (a.1 + b.1) / 2.0;
            match peak {
                Some(peak) => {
                    svg.text("small", (x, y - 2.0), anchor, &links);
                    svg.text("small", (x, y + 11.0), anchor, &peak);
                }
                None => svg.text("small", (x, y + 4.0), anchor, &links),
            }
            continue;
        }
        let text = peak.map_or(links.clone(), |peak| format!("{links}, {peak}"));
        let width = text_width(&text, 11.0);
        let best = PLACES
            .iter()
            .map(|&t| (point(&link.shape, t), t))
            .map(|(p, t)| (crowding(p, width, at, &traces, &taken) + (t - 0.5).abs(), p))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, (x, y))) = best else { continue };
        taken.push((x, y, width));
        svg.pill(ground, (x, y), &text);
    }
}

/// Candidate positions of a link's label.
const PLACES: [f64; 11] = [0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8];

fn switch_labels(svg: &mut SvgDocument, topology: &Topology, spots: &BTreeMap<u32, GpuSpot>) {
    let Some((x, ..)) = switch_bar(topology, spots) else { return };
    for (gpu, (width, peak)) in to_switches(topology) {
        let Some(spot) = spots.get(&gpu) else { continue };
        let (from, y) = spot.inner();
        let to = if spot.is_left { x } else { x + SWITCH_W };
        let peak = peak.map(|peak| peak.to_string()).unwrap_or_default();
        let middle = (from + to) / 2.0;
        svg.text("small", (middle, y - 9.0), TextAnchor::Middle, &width_label(width));
        svg.text("small", (middle, y + 18.0), TextAnchor::Middle, &peak);
    }
}

/// A point of a link, `t` from 0 to 1.
fn point(shape: &LinkShape, t: f64) -> (f64, f64) {
    let (a, b) = shape.ends();
    (a.0 + (b.0 - a.0) * t, a.1 + (b.1 - a.1) * t)
}

fn trace(shape: &LinkShape) -> Vec<(f64, f64)> {
    (0..=48).map(|i| point(shape, f64::from(i) / 48.0)).collect()
}

/// Overlap of a label at a point with other labels and links.
fn crowding(
    (x, y): (f64, f64),
    width: f64,
    own: usize,
    traces: &[Vec<(f64, f64)>],
    taken: &[(f64, f64, f64)],
) -> f64 {
    let labels = taken
        .iter()
        .filter(|(tx, ty, tw)| (tx - x).abs() < (tw + width) / 2.0 + 6.0 && (ty - y).abs() < 17.0)
        .count();
    let lines = traces
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != own)
        .flat_map(|(_, trace)| trace)
        .filter(|(px, py)| (px - x).abs() < width / 2.0 + 4.0 && (py - y).abs() < 11.0)
        .count();
    labels as f64 * 100.0 + lines as f64 * 2.0
}
