//! The map as a picture for a slide: domains as panels, GPUs in two facing columns, links with
//! thickness proportional to width.

use std::collections::BTreeMap;

use pathline_schema::{Gpu, Topology, is_steering};

use super::draw::{SvgDocument, TextAnchor, columns as columns_of, fit, text_width};
use super::fabric::{self, GPU_H, GPU_W, GpuSpot};
use super::layout::{DomainGroup, GroupColumns};
use super::pairs::{GpuPairs, route_text};
use super::panel::{DomainPanel, PANEL};
use super::parts::{
    clean, count, gpu_name, host_facts, host_link_label, shares_package, title, wrap,
};

const MARGIN: f64 = 24.0;
/// Width for the label of a host link.
const HOST_GAP: f64 = 112.0;
const CHANNEL: f64 = 270.0;
/// Gap inside a package: room for a link and its label.
const PACKAGE_GAP: f64 = 36.0;
const GPU_GAP: f64 = 30.0;
const GROUP_GAP: f64 = 40.0;
const HEAD: f64 = 90.0;
/// Indentation of the first and last GPU of a column if links skip neighbours.
const BULGE: f64 = 84.0;
/// Padding of a frame above and below a stack of GPUs.
const PAD: f64 = 18.0;

/// A picture of the node as one SVG document without scripts, external fonts or images. Equal
/// topologies give identical texts. Dark on light, or light on dark if the viewer prefers it.
pub fn svg(topology: &Topology, suspect: &[u32]) -> String {
    if topology.gpus.is_empty() { host_only(topology) } else { with_gpus(topology, suspect) }
}

/// Panels in rows.
fn host_only(topology: &Topology) -> String {
    let per_row = match topology.numa.len() {
        0 | 1 => 1,
        2..=4 => 2,
        _ => 4,
    };
    let panel_width = if per_row == 1 { 640.0 } else { 330.0 };
    let panels: Vec<DomainPanel> = topology
        .numa
        .iter()
        .map(|domain| DomainPanel::new(topology, Some(domain.id), panel_width))
        .collect();
    let width = 2.0 * MARGIN + per_row as f64 * (panel_width + 20.0) - 20.0;
    let mut svg = SvgDocument::default();
    let mut y = HEAD;
    for row in panels.chunks(per_row) {
        let height = row.iter().map(DomainPanel::height).fold(0.0, f64::max);
        for (at, panel) in row.iter().enumerate() {
            let x = MARGIN + at as f64 * (panel_width + 20.0);
            svg.rect("panel", (x, y, panel_width, height), 10.0);
            panel.draw(&mut svg, (x, y));
        }
        y += height + 20.0;
    }
    head(&mut svg, topology, width);
    let height = foot(&mut svg, topology, None, y, width);
    svg.finish(width, height, &label(topology))
}

/// The layout of one group.
struct DrawnGroup<'a> {
    group: &'a DomainGroup,
    panel: DomainPanel,
    top: f64,
    height: f64,
}

fn with_gpus(topology: &Topology, suspect: &[u32]) -> String {
    let columns = GroupColumns::new(topology);
    let mut svg = SvgDocument::default();
    let skips = columns.skips(topology);
    let has_right = columns.right.iter().any(|group| !group.gpus.is_empty());
    let side = if columns.one_domain { 16.0 } else { PANEL } + HOST_GAP;
    let width = if has_right || !columns.right.is_empty() {
        2.0 * (MARGIN + side + GPU_W) + CHANNEL + if skips { 2.0 * BULGE } else { 0.0 }
    } else {
        2.0 * MARGIN + side + GPU_W + 220.0
    };
    let mut top = HEAD;
    let mut frame = None;
    if columns.one_domain {
        let domain = topology.numa.first().map(|domain| domain.id);
        let panel = DomainPanel::new(topology, domain, width - 2.0 * MARGIN);
        frame = Some((panel, top));
        top += frame.as_ref().map_or(0.0, |(panel, _)| panel.height()) + 8.0;
    }
    let (left, right) = stands(topology, &columns, top);
    let bottom = left.iter().chain(&right).map(|s| s.top + s.height).fold(top, f64::max);
    if let Some((panel, y)) = &frame {
        svg.rect("panel", (MARGIN, *y, width - 2.0 * MARGIN, bottom + 14.0 - y), 12.0);
        panel.draw(&mut svg, (MARGIN, *y));
    }
    let mut spots = BTreeMap::new();
    for (stands, is_left) in [(&left, true), (&right, false)] {
        let gpu_x = if is_left { MARGIN + side } else { width - MARGIN - side - GPU_W };
        let bulge = if skips { BULGE } else { 0.0 };
        place(&mut spots, topology, stands, gpu_x, is_left, bulge);
    }
    fabric::draw_links(&mut svg, topology, &spots, suspect);
    for (stands, is_left) in [(&left, true), (&right, false)] {
        for stand in stands {
            if !columns.one_domain {
                let x = if is_left { MARGIN } else { width - MARGIN - PANEL };
                svg.rect("panel", (x, stand.top, PANEL, stand.height), 10.0);
                stand.panel.draw(&mut svg, (x, stand.top));
            }
        }
    }
    packages(&mut svg, topology, &spots);
    let inset = MARGIN + if columns.one_domain { 0.0 } else { PANEL };
    let outer = (inset, width - inset);
    for gpu in &topology.gpus {
        if let Some(spot) = spots.get(&gpu.index) {
            host_link(&mut svg, topology, gpu, spot, outer);
            gpu_box(&mut svg, gpu, spot, suspect.contains(&gpu.index));
        }
    }
    fabric::draw_labels(&mut svg, topology, &spots, columns.one_domain);
    head(&mut svg, topology, width);
    let pairs = GpuPairs::new(topology);
    let bottom = if frame.is_some() { bottom + 14.0 } else { bottom };
    let height = foot(&mut svg, topology, Some(&pairs), bottom + 8.0, width);
    svg.finish(width, height, &label(topology))
}

/// Heights and tops of both columns; rows with equal number are at equal heights.
fn stands<'a>(
    topology: &Topology,
    columns: &'a GroupColumns,
    top: f64,
) -> (Vec<DrawnGroup<'a>>, Vec<DrawnGroup<'a>>) {
    let height = |group: &DomainGroup, panel: &DomainPanel| {
        let stack = stack_height(topology, &group.gpus) + 2.0 * PAD;
        if columns.one_domain { stack } else { stack.max(panel.height()) }
    };
    let make = |groups: &'a [DomainGroup]| -> Vec<DrawnGroup<'a>> {
        let stand = |group: &'a DomainGroup| {
            let panel = DomainPanel::new(topology, group.domain, PANEL);
            DrawnGroup { group, height: height(group, &panel), panel, top: 0.0 }
        };
        groups.iter().map(stand).collect()
    };
    let (mut left, mut right) = (make(&columns.left), make(&columns.right));
    for (a, b) in left.iter_mut().zip(&mut right) {
        a.height = a.height.max(b.height);
        b.height = a.height;
    }
    for column in [&mut left, &mut right] {
        let mut y = top;
        for stand in column {
            stand.top = y;
            y += stand.height + GROUP_GAP;
        }
    }
    (left, right)
}

/// The gap between a GPU and the next one of its group.
fn gap(topology: &Topology, a: u32, b: u32) -> f64 {
    let package = |index: u32| {
        topology.gpus.iter().find(|gpu| gpu.index == index).and_then(|gpu| gpu.package)
    };
    let (a_shares, b_shares) = (shares_package(topology, a), shares_package(topology, b));
    if a_shares && package(a) == package(b) {
        PACKAGE_GAP
    } else if a_shares || b_shares {
        GROUP_GAP + 16.0
    } else {
        GPU_GAP
    }
}

fn stack_height(topology: &Topology, gpus: &[u32]) -> f64 {
    let gaps: f64 = gpus
        .windows(2)
        .map(|pair| match pair {
            &[a, b] => gap(topology, a, b),
            _ => 0.0,
        })
        .sum();
    gpus.len() as f64 * GPU_H + gaps
}

fn place(
    spots: &mut BTreeMap<u32, GpuSpot>,
    topology: &Topology,
    stands: &[DrawnGroup<'_>],
    x: f64,
    is_left: bool,
    bulge: f64,
) {
    let rows: usize = stands.iter().map(|stand| stand.group.gpus.len()).sum();
    let mut row = 0;
    for stand in stands {
        let stack = stack_height(topology, &stand.group.gpus);
        let mut y = stand.top + (stand.height - stack) / 2.0;
        let mut last: Option<u32> = None;
        for &gpu in &stand.group.gpus {
            y += last.map_or(0.0, |last| GPU_H + gap(topology, last, gpu));
            // On an arc no straight link passes behind a third GPU.
            let middle = (rows.max(2) - 1) as f64 / 2.0;
            let inward = bulge * ((row as f64 - middle) / middle).powi(2);
            let x = if is_left { x + inward } else { x - inward };
            spots.insert(gpu, GpuSpot { x, y, row, is_left });
            last = Some(gpu);
            row += 1;
        }
    }
}

/// Dashed frames around GPUs that share a package.
fn packages(svg: &mut SvgDocument, topology: &Topology, spots: &BTreeMap<u32, GpuSpot>) {
    let mut boxes: BTreeMap<u32, (GpuSpot, f64, f64, usize)> = BTreeMap::new();
    for gpu in &topology.gpus {
        let package = gpu.package.filter(|_| shares_package(topology, gpu.index));
        if let (Some(package), Some(spot)) = (package, spots.get(&gpu.index)) {
            let known = boxes.entry(package).or_insert((*spot, spot.y, spot.y, 0));
            known.1 = known.1.min(spot.y);
            known.2 = known.2.max(spot.y);
            known.3 += 1;
        }
    }
    for (package, (GpuSpot { x, is_left, .. }, first, last, gpus)) in boxes {
        if gpus < 2 || last - first > 2.0 * (GPU_H + PACKAGE_GAP) {
            continue;
        }
        let height = last + GPU_H - first + 20.0;
        svg.rect("package", (x - 10.0, first - 10.0, GPU_W + 20.0, height), 12.0);
        let text = format!("package {package}");
        // On the half without a link label.
        if is_left {
            svg.text("soft small", (x + GPU_W + 8.0, first - 14.0), TextAnchor::End, &text);
        } else {
            svg.text("soft small", (x - 8.0, first - 14.0), TextAnchor::Start, &text);
        }
    }
}

fn gpu_box(svg: &mut SvgDocument, gpu: &Gpu, spot: &GpuSpot, is_suspect: bool) {
    svg.rect(if is_suspect { "gpu suspect" } else { "gpu" }, (spot.x, spot.y, GPU_W, GPU_H), 8.0);
    let describe = |memory: String| {
        let short = clean(&gpu.arch);
        let units = match gpu.compute_units {
            0 => String::new(),
            n => count(n as usize, gpu.caps().unit_name),
        };
        let first = if memory.is_empty() { short } else { memory };
        let parts = [first, units].into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(" · ")
    };
    let room = GPU_W - 8.0;
    let exact = describe(if gpu.memory.0 > 0 { gpu.memory.rounded() } else { String::new() });
    let gib = gpu.memory.as_f64() / 2f64.powi(30);
    // Whole GiB if the exact size does not fit: `140GiB · 132 SMs`.
    let text = match text_width(&exact, 11.0) > room && gib >= 10.0 {
        true => describe(format!("{gib:.0}GiB")),
        false => exact,
    };
    let name = format!("gpu{}", gpu.index);
    let middle = spot.x + GPU_W / 2.0;
    if text.is_empty() {
        svg.text("name", (middle, spot.y + GPU_H / 2.0 + 5.0), TextAnchor::Middle, &name);
        return;
    }
    svg.text("name", (middle, spot.y + 21.0), TextAnchor::Middle, &name);
    let text = fit(&text, 11.0, room);
    svg.text("soft small", (middle, spot.y + 38.0), TextAnchor::Middle, &text);
}

/// The line from a GPU outward to its domain, with its type above and its peak below.
fn host_link(
    svg: &mut SvgDocument,
    topology: &Topology,
    gpu: &Gpu,
    spot: &GpuSpot,
    outer: (f64, f64),
) {
    let Some(label) = host_link_label(topology, gpu) else { return };
    let y = spot.y + GPU_H / 2.0;
    let (from, to) = if spot.is_left { (spot.x, outer.0) } else { (spot.x + GPU_W, outer.1) };
    svg.line("host", (from, y), (to, y), 3.0);
    let middle = if spot.is_left { to + HOST_GAP / 2.0 } else { to - HOST_GAP / 2.0 };
    let (above, below) =
        label.split_once(", ").or_else(|| label.split_once(' ')).unwrap_or((label.as_str(), ""));
    let above = fit(above, 11.0, HOST_GAP - 8.0);
    svg.text("soft small", (middle, y - 7.0), TextAnchor::Middle, &above);
    svg.text(
        "soft small",
        (middle, y + 16.0),
        TextAnchor::Middle,
        &fit(below, 11.0, HOST_GAP - 8.0),
    );
}

fn head(svg: &mut SvgDocument, topology: &Topology, width: f64) {
    let room = width - 2.0 * MARGIN;
    svg.text("title", (MARGIN, 40.0), TextAnchor::Start, &fit(&title(topology), 22.0, room));
    let mut facts = topology.gpus_in_words(|gpu| (gpu_name(gpu), String::new()));
    facts.extend(host_facts(topology));
    let lines = wrap(&facts.join(" · "), columns_of(13.0, room));
    for (line, y) in lines.iter().take(2).zip([62.0, 79.0]) {
        svg.text("", (MARGIN, y), TextAnchor::Start, line);
    }
}

/// Draws legend, routes and warnings. Returns the height of the picture.
fn foot(
    svg: &mut SvgDocument,
    topology: &Topology,
    pairs: Option<&GpuPairs>,
    top: f64,
    width: f64,
) -> f64 {
    let room = width - 2.0 * MARGIN;
    let mut y = top + 22.0;
    let mut line = |class: &str, text: &str| {
        let text: String = text.chars().map(|c| if is_steering(c) { ' ' } else { c }).collect();
        for (at, part) in wrap(&text, columns_of(12.0, room)).iter().take(4).enumerate() {
            let indent = if at > 0 { 12.0 } else { 0.0 };
            svg.text(class, (MARGIN + indent, y), TextAnchor::Start, &fit(part, 12.0, room + 20.0));
            y += 17.0;
        }
    };
    if let Some(pairs) = pairs {
        if let Some(caption) = fabric::caption(topology) {
            line("soft", &caption);
        }
        line("soft", "Rates are theoretical peaks, each direction. Thicker lines are more links.");
        let wide: Vec<String> = pairs
            .detours
            .iter()
            .filter(|_| !pairs.widths_untrusted)
            .map(|d| {
                format!("{}{}", route_text(&d.widest), if d.in_use { " (in use)" } else { "" })
            })
            .collect();
        if !wide.is_empty() {
            line("soft", &format!("Wider than the shortest route: {}", wide.join(", ")));
        }
    }
    const SHOWN: usize = 4;
    for warning in topology.warnings.iter().take(SHOWN) {
        line("warn", &format!("! {}: {}", clean(&warning.subject), warning.text));
    }
    if topology.warnings.len() > SHOWN {
        line("warn", &format!("! and {} more", topology.warnings.len() - SHOWN));
    }
    y
}

fn label(topology: &Topology) -> String {
    let kinds = topology.gpus_in_words(|gpu| (gpu_name(gpu), String::new()));
    let gpus = if kinds.is_empty() { "no GPU".to_owned() } else { kinds.join(", ") };
    format!("Map of {}: {}, {gpus}", title(topology), count(topology.numa.len(), "NUMA domain"))
}
