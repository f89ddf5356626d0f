//! Relations between each two GPUs: links, routes, peaks.

use std::collections::BTreeMap;

use pathline_flow::routes::{InUse, RoutePath, RouteTable};
use pathline_schema::{LinkEnd, Rate, Topology};

/// Maximum number of GPUs in a matrix; more would not fit on a screen.
pub(super) const MAX_GPUS: usize = 64;

/// Maximum number of listed detours; a node of eight GPUs has two.
const MAX_DETOURS: usize = 64;

/// An ordered pair of GPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuPair {
    /// Number of direct physical links.
    pub(super) links: u32,
    /// The route in use.
    pub(super) used: Option<InUse>,
}

/// A pair with a wider route than the shortest one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteDetour {
    pub(super) a: LinkEnd,
    pub(super) b: LinkEnd,
    pub(super) widest: RoutePath,
    pub(super) shortest: Vec<RoutePath>,
    /// Whether the fabric uses the wider route.
    pub(super) in_use: bool,
}

/// All pairs of a node's GPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuPairs {
    pub(super) gpus: Vec<u32>,
    pairs: BTreeMap<(u32, u32), GpuPair>,
    pub(super) detours: Vec<RouteDetour>,
    /// Number of unlisted detours.
    pub(super) more_detours: usize,
    /// Peak of the direct link between a domain and a GPU.
    host: BTreeMap<(u32, u32), Option<Rate>>,
    /// Whether the widths that a source reports are not trusted.
    pub(super) widths_untrusted: bool,
}

impl GpuPairs {
    pub(super) fn new(topology: &Topology) -> Self {
        let routes = RouteTable::of(topology);
        let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).take(MAX_GPUS).collect();
        let mut pairs = BTreeMap::new();
        let mut detours = Vec::new();
        let mut more_detours = 0;
        for &a in &gpus {
            let widest = routes.fabric_widths(LinkEnd::Gpu(a));
            for &b in gpus.iter().filter(|&&b| b != a) {
                let (from, to) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
                let used = routes.in_use(from, to);
                let most = widest.get(&to).copied().unwrap_or(0);
                if a < b
                    && let Some(used) = &used
                    && let Some(shortest) = outdone(&routes, used, (from, to), most)
                {
                    if detours.len() < MAX_DETOURS {
                        detours.extend(detour(&routes, used, (from, to), shortest));
                    } else {
                        more_detours += 1;
                    }
                }
                pairs.insert((a, b), GpuPair { links: routes.link_count(from, to), used });
            }
        }
        let mut host = BTreeMap::new();
        for domain in &topology.numa {
            for &gpu in &gpus {
                if let Some(link) = routes.direct(LinkEnd::Numa(domain.id), LinkEnd::Gpu(gpu)) {
                    host.insert((domain.id, gpu), link.peak);
                }
            }
        }
        let is_untrusted = |code: &str| ["xgmi-count-flat", "xgmi-width-unknown"].contains(&code);
        let widths_untrusted = topology.warnings.iter().any(|warning| is_untrusted(&warning.code));
        Self { gpus, pairs, detours, more_detours, host, widths_untrusted }
    }

    /// A pair of different GPUs.
    pub(super) fn get(&self, a: u32, b: u32) -> Option<&GpuPair> {
        self.pairs.get(&(a, b))
    }

    /// Peak of the direct link between a domain and a GPU; the inner value is `None` for a link of
    /// unknown peak.
    pub(super) fn host_peak(&self, domain: u32, gpu: u32) -> Option<Option<Rate>> {
        self.host.get(&(domain, gpu)).copied()
    }

    /// Whether any two GPUs are connected without the host.
    pub(super) fn has_fabric(&self) -> bool {
        self.pairs.values().any(|pair| pair.used.as_ref().is_some_and(|used| !used.through_host))
    }
}

/// The shortest routes of a pair, if a route of width `most` is wider.
fn outdone(
    routes: &RouteTable,
    used: &InUse,
    (a, b): (LinkEnd, LinkEnd),
    most: u32,
) -> Option<Vec<RoutePath>> {
    if used.through_host || used.striped {
        return None;
    }
    let shortest = routes.shortest(a, b);
    let short = shortest.iter().map(|path| path.width).max()?;
    (most > short).then_some(shortest)
}

fn detour(
    routes: &RouteTable,
    used: &InUse,
    (a, b): (LinkEnd, LinkEnd),
    shortest: Vec<RoutePath>,
) -> Option<RouteDetour> {
    let widest = routes.widest(a, b).into_iter().next()?;
    let in_use = used.paths.iter().any(|path| path.width == widest.width);
    // Routes over all switches of a tier count as one route, as wide as all of them.
    let wider = shortest.iter().all(|path| path.width < widest.width);
    wider.then_some(RouteDetour { a, b, widest, shortest, in_use })
}

/// `1-0-6-7`; units other than GPUs have their full names.
pub(super) fn route_text(path: &RoutePath) -> String {
    let name = |node: &LinkEnd| match node {
        LinkEnd::Gpu(n) => n.to_string(),
        other => other.to_string(),
    };
    path.nodes.iter().map(name).collect::<Vec<_>>().join("-")
}

/// A rate as a cell of a matrix: `200`, `31.5`.
pub(super) fn rate_cell(rate: Rate) -> String {
    let gbs = rate.gbs();
    if gbs.fract().abs() < 0.05 || gbs >= 99.95 { format!("{gbs:.0}") } else { format!("{gbs:.1}") }
}
