//! The map as text: location of every component, then relations between each two GPUs.

use std::collections::BTreeMap;

use pathline_schema::{Gpu, LinkEnd, LinkKind, Topology, is_steering};

use super::pairs::{GpuPairs, MAX_GPUS, rate_cell, route_text};
use super::parts::{
    NearParts, block_label, cache_labels, clean, count, cpu_ranges, function, gpu_name, host_facts,
    host_link_label, memory_label, nic_label, pcie_label, shares_package, title, wrap,
};
use super::style::{TextPaint, TextTone};

/// Maximum line width of running text, wherever it goes.
const COLUMNS: usize = 100;
/// The cell for a unit and itself, or without a link.
const NONE: &str = "·";

/// A readable map of the node: the host, each NUMA domain with its components, matrices over the
/// GPUs (hops, direct links, width and theoretical peak of the route in use), routes that are wider
/// than the shortest, and warnings. Terminal colours only if `colour`; running text keeps within `width`
/// columns and 100.
pub fn text(topology: &Topology, colour: bool, width: usize) -> String {
    let (paint, width) = (TextPaint(colour), width.clamp(40, COLUMNS));
    let mut out = Vec::new();
    head(&mut out, paint, topology, width);
    for domain in &topology.numa {
        let mut parts = vec![cpu_ranges(&domain.cpus)];
        parts.extend(memory_label(domain));
        if topology.numa.len() > 1 && !domain.distances.is_empty() && topology.numa.len() <= 16 {
            let distances: Vec<String> = domain.distances.iter().map(u32::to_string).collect();
            parts.push(format!("distances {}", distances.join(" ")));
        }
        if let Some(peak) = domain.peak {
            parts.push(format!("memory {peak}"));
        }
        parts.retain(|part| !part.is_empty());
        let name = format!("numa{}", domain.id);
        let line = format!("{}  {}", paint.paint(TextTone::Unit, &name), parts.join("   "));
        out.push(line.trim_end().to_owned());
        // Domains that are memory alone have none.
        let has_caches = !domain.cpus.is_empty() || topology.numa.len() == 1;
        let mut caches = cache_labels(topology, &domain.cpus);
        caches.retain(|_| has_caches);
        if !caches.is_empty() {
            out.push(format!("  cache   {}", caches.join(", ")));
        }
        near(&mut out, paint, topology, &NearParts::new(topology, Some(domain.id)), width);
        out.push(String::new());
    }
    let elsewhere = NearParts::new(topology, None);
    if !elsewhere.is_empty() {
        out.push(paint.paint(TextTone::Warn, "near no known domain"));
        near(&mut out, paint, topology, &elsewhere, width);
        out.push(String::new());
    }
    if topology.gpus.len() > 1 {
        matrices(&mut out, paint, topology, width);
    }
    warnings(&mut out, paint, topology, width);
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out.join("\n") + "\n"
}

fn head(out: &mut Vec<String>, paint: TextPaint, topology: &Topology, width: usize) {
    let mut parts = host_facts(topology);
    let common = common_label(topology);
    if common.is_none() {
        parts.extend(topology.gpus_in_words(|gpu| (gpu_name(gpu), String::new())));
    }
    out.push(paint.paint(TextTone::Head, &title(topology)));
    out.extend(wrap(&parts.join(" · "), width).into_iter().filter(|line| !line.is_empty()));
    let common = common.map(|label| {
        let rest = |gpu: &Gpu| label.strip_prefix(&gpu_name(gpu)).unwrap_or_default().to_owned();
        topology.gpus_in_words(|gpu| (gpu_name(gpu), rest(gpu))).concat()
    });
    out.extend(common.into_iter().flat_map(|text| wrap(&text, width)));
    let host = &topology.host;
    let mut limits = Vec::new();
    if !host.allowed_cpus.is_empty() && host.allowed_cpus != host.cpus {
        limits.push(format!("may use CPUs {}", cpu_ranges(&host.allowed_cpus)));
    }
    if host.available.0 > 0 {
        limits.push(format!("{} available", host.available.rounded()));
    }
    if let Some(limit) = host.cgroup_limit {
        limits.push(format!("cgroup limit {}", limit.rounded()));
    }
    if !host.huge_pages.is_empty() {
        let sizes: Vec<String> = host.huge_pages.iter().map(|size| size.rounded()).collect();
        limits.push(format!("huge pages {}", sizes.join(" ")));
    } else if host.page.0 > 0 {
        limits.push("no huge pages".into());
    }
    if !host.features.is_empty() {
        let shown = ["avx2", "avx512f", "erms", "fsrm", "asimd", "sve"];
        let has = shown.iter().filter(|name| host.features.iter().any(|f| f == *name));
        limits.push(has.copied().collect::<Vec<_>>().join(" "));
    }
    limits.retain(|part| !part.is_empty());
    if !limits.is_empty() {
        out.push(paint.paint(TextTone::Dim, &limits.join(" · ")));
    }
    out.push(String::new());
}

fn near(
    out: &mut Vec<String>,
    paint: TextPaint,
    topology: &Topology,
    near: &NearParts<'_>,
    width: usize,
) {
    let common = common_label(topology);
    for gpu in &near.gpus {
        let name = paint.paint(TextTone::Unit, &format!("gpu{:<4}", gpu.index));
        let mut parts = common.is_none().then(|| gpu_label(topology, gpu)).into_iter().collect();
        own_facts(topology, gpu, &mut parts);
        let mut lines = wrap(&parts.join(", "), width - 10).into_iter();
        let first = format!("  {name} {}", lines.next().unwrap_or_default());
        out.push(first.trim_end().to_owned());
        out.extend(lines.map(|line| format!("          {line}")));
    }
    for nic in &near.nics {
        let mut parts = vec![nic_label(nic)];
        parts.extend(nic.near_gpu.map(|gpu| format!("nearest gpu{gpu}")));
        let link = function(topology, &nic.pci).and_then(|device| device.link);
        parts.extend(link.map(|link| pcie_label(&link)));
        parts.push(clean(&nic.pci));
        parts.retain(|part| !part.is_empty());
        out.push(format!("  net     {}", parts.join(", ")));
    }
    for block in &near.blocks {
        let mut parts = vec![block_label(block), clean(&block.model)];
        let link = function(topology, &block.pci).and_then(|device| device.link);
        parts.extend(link.map(|link| pcie_label(&link)));
        parts.extend(block.rotational.then(|| "rotating".into()));
        parts.push(clean(&block.pci));
        parts.retain(|part| !part.is_empty());
        out.push(format!("  disk    {}", parts.join(", ")));
    }
}

fn gpu_label(topology: &Topology, gpu: &Gpu) -> String {
    let mut parts = vec![gpu_name(gpu)];
    if gpu.memory.0 > 0 {
        let peak = gpu.memory_peak.map(|peak| format!(" at {peak}")).unwrap_or_default();
        parts.push(format!("{}{peak}", gpu.memory.rounded()));
    }
    if gpu.compute_units > 0 {
        parts.push(count(gpu.compute_units as usize, gpu.caps().unit_name));
    }
    parts.extend(host_link_label(topology, gpu).map(|link| format!("host {link}")));
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// What tells a GPU from others of its kind.
fn own_facts(topology: &Topology, gpu: &Gpu, parts: &mut Vec<String>) {
    let package = gpu.package.filter(|_| shares_package(topology, gpu.index));
    parts.extend(package.map(|package| format!("package {package}")));
    parts.push(clean(&gpu.pci));
    parts.retain(|part| !part.is_empty());
}

/// What all GPUs have in common, if there are several of one kind.
fn common_label(topology: &Topology) -> Option<String> {
    let (first, others) = topology.gpus.split_first().filter(|(_, others)| !others.is_empty())?;
    let label = gpu_label(topology, first);
    others.iter().all(|gpu| gpu_label(topology, gpu) == label).then_some(label)
}

/// The text of a table cell, and its colour.
type TextCell = (String, Option<TextTone>);

/// A table of short cells.
struct TextMatrix {
    title: String,
    rows: Vec<(String, Vec<TextCell>)>,
    columns: Vec<String>,
}

impl TextMatrix {
    fn over(title: &str, gpus: &[u32], cell: impl Fn(u32, u32) -> TextCell) -> Self {
        let none = || (NONE.to_owned(), Some(TextTone::Dim));
        let row = |&a: &u32| {
            let cells = gpus.iter().map(|&b| if a == b { none() } else { cell(a, b) }).collect();
            (format!("gpu{a}"), cells)
        };
        Self {
            title: title.to_owned(),
            rows: gpus.iter().map(row).collect(),
            columns: gpus.iter().map(u32::to_string).collect(),
        }
    }

    /// The cell of all pairs, if they are alike and the table has nothing else.
    fn common_cell(&self) -> Option<&str> {
        let all = self.rows.iter().enumerate().flat_map(|(row, (_, cells))| {
            cells
                .iter()
                .enumerate()
                .filter(move |(column, _)| *column != row)
                .map(|(_, cell)| &*cell.0)
        });
        let mut all = all.peekable();
        let first = *all.peek()?;
        (self.rows.len() == self.columns.len() && all.all(|cell| cell == first)).then_some(first)
    }

    /// Whether a rate is known.
    fn has_rate(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|(_, cells)| cells);
        cells.any(|(text, _)| text.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Lines of equal visible width.
    fn lines(&self, paint: TextPaint) -> Vec<(String, usize)> {
        let chars = |text: &str| text.chars().count();
        let label = self.rows.iter().map(|(name, _)| chars(name)).max().unwrap_or(0);
        let cells = self.rows.iter().flat_map(|(_, cells)| cells.iter().map(|(c, _)| chars(c)));
        let cell = cells.chain(self.columns.iter().map(|c| chars(c))).max().unwrap_or(1);
        let width = (label + self.columns.len() * (cell + 1)).max(chars(&self.title));
        let mut lines = Vec::new();
        let mut push = |plain: &str, painted: String| {
            lines.push((painted + &" ".repeat(width.saturating_sub(chars(plain))), width));
        };
        push(&self.title, paint.paint(TextTone::Head, &self.title));
        let mut header = " ".repeat(label);
        for column in &self.columns {
            header += &format!(" {column:>cell$}");
        }
        push(&header, paint.paint(TextTone::Dim, &header));
        for (name, cells) in &self.rows {
            let mut plain = format!("{name:<label$}");
            let mut painted = paint.paint(TextTone::Unit, &plain);
            for (text, tone) in cells {
                let padded = format!(" {text:>cell$}");
                painted += &tone.map_or(padded.clone(), |tone| paint.paint(tone, &padded));
                plain += &padded;
            }
            push(&plain, painted);
        }
        lines
    }
}

fn matrices(out: &mut Vec<String>, paint: TextPaint, topology: &Topology, columns: usize) {
    let pairs = GpuPairs::new(topology);
    if !pairs.has_fabric() {
        out.push(if topology.has_unread_links() {
            "How the GPUs are joined is not known: see the warnings.".into()
        } else {
            "No link between GPUs is known: what goes from one to another takes PCIe.".into()
        });
        out.push(String::new());
        host_peaks(out, paint, topology, &pairs, columns);
        return;
    }
    if topology.has_warning("xgmi-hops-unknown") {
        out.push("xGMI joins the GPUs; how directly is not known: see the warnings.".into());
        out.push(String::new());
        return;
    }
    let unknown = || ("?".to_owned(), Some(TextTone::Warn));
    let untrusted = pairs.widths_untrusted;
    let used = |a, b| pairs.get(a, b).and_then(|pair| pair.used.as_ref());
    let hops = TextMatrix::over("Hops of the route in use", &pairs.gpus, |a, b| match used(a, b) {
        Some(route) if route.through_host => ("host".into(), Some(TextTone::Dim)),
        Some(route) => (route.hops.to_string(), Some(TextTone::Step(route.hops.min(9) as u8 - 1))),
        None => unknown(),
    });
    let title = if untrusted { "Direct links (as claimed)" } else { "Direct links" };
    let most = |of: &dyn Fn(u32, u32) -> f64| {
        let all = pairs.gpus.iter().flat_map(|&a| pairs.gpus.iter().map(move |&b| (a, b)));
        all.filter(|(a, b)| a != b).map(|(a, b)| of(a, b)).fold(0.0, f64::max)
    };
    let links_of = |a, b| pairs.get(a, b).map_or(0, |pair| pair.links);
    let widest = most(&|a, b| f64::from(links_of(a, b)));
    let links = TextMatrix::over(title, &pairs.gpus, |a, b| match links_of(a, b) {
        0 => (NONE.into(), Some(TextTone::Dim)),
        links => (links.to_string(), Some(step(f64::from(links), widest))),
    });
    let width_of = |a, b| used(a, b).filter(|route| !route.through_host).map(|route| route.width);
    let broadest = most(&|a, b| f64::from(width_of(a, b).unwrap_or(0)));
    let title = "Width of the route in use, links";
    let width = TextMatrix::over(title, &pairs.gpus, |a, b| match width_of(a, b) {
        _ if untrusted => unknown(),
        Some(width) => (width.to_string(), Some(step(f64::from(width), broadest))),
        None => (NONE.into(), Some(TextTone::Dim)),
    });
    let peak_of = |a, b| used(a, b).and_then(|route| route.peak);
    let highest = most(&|a, b| peak_of(a, b).map_or(0.0, |peak| peak.gbs()));
    let title = "Theoretical peak from row to column, GB/s";
    let mut peak = TextMatrix::over(title, &pairs.gpus, |a, b| match peak_of(a, b) {
        Some(peak) => (rate_cell(peak), Some(step(peak.gbs(), highest))),
        None => unknown(),
    });
    add_host_rows(&mut peak, topology, &pairs);
    let has_rate = peak.has_rate();
    let all = [hops, links, width].into_iter().chain(has_rate.then_some(peak));
    let (alike, differing): (Vec<TextMatrix>, Vec<TextMatrix>) =
        all.partition(|matrix| matrix.common_cell().is_some());
    for matrix in alike {
        let cell = match matrix.common_cell() {
            Some(NONE) | None => "none",
            Some(cell) => cell,
        };
        out.push(format!("{}: {cell} for each pair", matrix.title));
    }
    if !has_rate {
        out.push("Theoretical peaks: unknown".into());
    }
    if out.last().is_some_and(|line| !line.is_empty()) {
        out.push(String::new());
    }
    let mut differing = differing.into_iter();
    while let Some(first) = differing.next() {
        side_by_side(out, paint, [first].into_iter().chain(differing.next()).collect(), columns);
    }
    if topology.gpus.len() > MAX_GPUS {
        out.push(format!("(the first {MAX_GPUS} of {} GPUs)\n", topology.gpus.len()));
    }
    switches(out, topology);
    detours(out, paint, &pairs);
}

/// Peaks of the host links, if there is no matrix.
fn host_peaks(
    out: &mut Vec<String>,
    paint: TextPaint,
    topology: &Topology,
    pairs: &GpuPairs,
    width: usize,
) {
    let title = "Theoretical peak to and from the host, GB/s";
    let columns = pairs.gpus.iter().map(u32::to_string).collect();
    let mut matrix = TextMatrix { title: title.into(), rows: Vec::new(), columns };
    add_host_rows(&mut matrix, topology, pairs);
    if matrix.has_rate() {
        side_by_side(out, paint, vec![matrix], width);
    }
}

/// A row for each domain: peak of its direct links per direction.
fn add_host_rows(matrix: &mut TextMatrix, topology: &Topology, pairs: &GpuPairs) {
    for domain in &topology.numa {
        let cells: Vec<_> = pairs
            .gpus
            .iter()
            .map(|&gpu| match pairs.host_peak(domain.id, gpu) {
                Some(Some(peak)) => (rate_cell(peak), None),
                Some(None) => ("?".to_owned(), Some(TextTone::Warn)),
                None => (NONE.to_owned(), Some(TextTone::Dim)),
            })
            .collect();
        if cells.iter().any(|(text, _)| text != NONE) {
            matrix.rows.push((format!("numa{}", domain.id), cells));
        }
    }
}

/// Colour step of a value: number of halvings below the best.
fn step(value: f64, best: f64) -> TextTone {
    let halvings = (best / value.max(1e-9)).log2().round().clamp(0.0, 9.0);
    TextTone::Step(halvings as u8)
}

fn side_by_side(
    out: &mut Vec<String>,
    paint: TextPaint,
    matrices: Vec<TextMatrix>,
    columns: usize,
) {
    let all: Vec<Vec<(String, usize)>> = matrices.iter().map(|m| m.lines(paint)).collect();
    let width: usize = all.iter().map(|m| m.first().map_or(0, |line| line.1) + 4).sum();
    if width > columns + 4 {
        for lines in all {
            out.extend(lines.into_iter().map(|(line, _)| line.trim_end().to_owned()));
            out.push(String::new());
        }
        return;
    }
    let height = all.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..height {
        let cells = all.iter().map(|lines| match lines.get(row) {
            Some((line, _)) => line.clone(),
            None => " ".repeat(lines.first().map_or(0, |line| line.1)),
        });
        out.push(cells.collect::<Vec<_>>().join("    ").trim_end().to_owned());
    }
    out.push(String::new());
}

/// GPUs below each PCIe switch that is known as such.
fn pcie_switches(out: &mut Vec<String>, topology: &Topology) {
    let mut below: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for link in topology.links.iter().filter(|link| link.kind == LinkKind::Pcie) {
        if let (LinkEnd::Gpu(gpu), LinkEnd::Switch(switch)) = (link.a, link.b) {
            below.entry(switch).or_default().push(format!("gpu{gpu}"));
        }
    }
    for gpus in below.values() {
        out.push(format!("Below the same PCIe bridges: {}", gpus.join(", ")));
    }
    out.extend((!below.is_empty()).then(String::new));
}

fn switches(out: &mut Vec<String>, topology: &Topology) {
    pcie_switches(out, topology);
    let joined: Vec<_> = topology
        .links
        .iter()
        .filter(|link| link.kind == LinkKind::Nvlink)
        .filter_map(|link| match (link.a, link.b) {
            (LinkEnd::Gpu(gpu), LinkEnd::Switch(switch)) => Some((gpu, switch, link)),
            _ => None,
        })
        .collect();
    let Some(&(first, ..)) = joined.first() else { return };
    let of_first: Vec<_> = joined.iter().filter(|(gpu, ..)| *gpu == first).collect();
    let widths: Vec<String> = of_first.iter().map(|(.., link)| link.width.to_string()).collect();
    let widths = match widths.as_slice() {
        [one, others @ ..] if others.len() > 1 && others.iter().all(|other| other == one) => {
            format!("{} x {one}", widths.len())
        }
        _ => widths.join(" + "),
    };
    let total: u32 = of_first.iter().map(|(.., link)| link.width).sum();
    let mut switches: Vec<u32> = joined.iter().map(|&(_, switch, _)| switch).collect();
    switches.sort_unstable();
    switches.dedup();
    // One that no PCI function shows stands for all that there are.
    let seen = topology.pci.iter().filter(|device| device.class >> 8 == 0x0680).count();
    if switches.len() == 1 && seen != 1 {
        out.push(format!("Switches join the GPUs: gpu{first} has {total} NVLinks to them"));
        out.push(String::new());
        return;
    }
    out.push(format!(
        "{}: gpu{first} has {} = {total} NVLinks to them",
        count(switches.len(), "NVLink switch").replace("switchs", "switches"),
        widths
    ));
    out.push(String::new());
}

fn detours(out: &mut Vec<String>, paint: TextPaint, pairs: &GpuPairs) {
    if pairs.detours.is_empty() || pairs.widths_untrusted {
        return;
    }
    out.push(paint.paint(TextTone::Head, "Wider than the shortest route"));
    for detour in &pairs.detours {
        let short: Vec<String> = detour.shortest.iter().map(route_text).collect();
        let peak = |peak: Option<pathline_schema::Rate>| {
            peak.map(|peak| format!(", {peak}")).unwrap_or_default()
        };
        let first = detour.shortest.first();
        out.push(format!(
            "  {} to {}   widest {}: {}, {} wide{}{}",
            detour.a,
            detour.b,
            route_text(&detour.widest),
            count(detour.widest.hops() as usize, "hop"),
            detour.widest.width,
            peak(detour.widest.peak),
            if detour.in_use { " (in use)" } else { " (not in use)" },
        ));
        out.push(format!(
            "                 shortest {}: {}, {} wide{}",
            short.join(" or "),
            count(first.map_or(0, |path| path.hops()) as usize, "hop"),
            first.map_or(0, |path| path.width),
            peak(first.and_then(|path| path.peak)),
        ));
    }
    if pairs.more_detours > 0 {
        out.push(format!("  and {} more pairs", pairs.more_detours));
    }
    out.push(String::new());
}

fn warnings(out: &mut Vec<String>, paint: TextPaint, topology: &Topology, width: usize) {
    if topology.warnings.is_empty() {
        return;
    }
    out.push(paint.paint(TextTone::Head, &count(topology.warnings.len(), "warning")));
    for warning in &topology.warnings {
        let name = format!("{} [{}]", clean(&warning.subject), clean(&warning.code));
        out.push(format!("  {}", paint.paint(TextTone::Warn, &name)));
        for line in wrap(&warning.text.replace(is_steering, " "), width - 4) {
            out.push(format!("    {line}"));
        }
    }
}
