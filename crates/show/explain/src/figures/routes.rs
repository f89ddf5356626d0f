//! Distances between GPUs, and the links of routed copies: a load on one of these links slows the
//! copy.

use std::collections::BTreeSet;

use pathline_flow::routes::RouteTable;
use pathline_schema::{Flow, GpuRoute, Link, LinkEnd, SuiteId, Topology};

use super::pivot::{CellPivot, GBS};
use super::{ALIKE, BetterWhen, Figure, FigureCell, SuiteFindings, extremes, frame};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Routes;

/// Minimum loss of a copy that counts as affected by a load: well above the noise of a copy, well
/// below the half that an equal flow on the same link takes.
const MIN_LOSS: f64 = 0.1;

/// A copy during another one that loads a link.
#[derive(Debug, Clone)]
pub struct RouteSlowdown<'a> {
    /// The copy that is timed.
    pub timed: &'a Flow,
    /// The copy that loads a link.
    pub load: &'a Flow,
    /// The case of both.
    pub entry: RunEntry<'a>,
    /// Rate of the timed copy alone, GB/s.
    pub alone: f64,
    /// Its rate under the load, GB/s.
    pub loaded: f64,
}

impl RouteSlowdown<'_> {
    /// Whether the load slows the copy, because they share a link.
    pub fn shared(&self) -> bool {
        self.loaded < (1.0 - MIN_LOSS) * self.alone
    }
}

/// The suite's results, in the order of the run.
pub fn slowdowns<'a>(run: &RunView<'a>) -> Vec<RouteSlowdown<'a>> {
    let slowdown = |entry: &RunEntry<'a>| {
        let (timed, load) = entry.one_during_one()?;
        let is_alone =
            |e: &&RunEntry| e.lone() == Some(timed) && e.case.cadence == entry.case.cadence;
        let alone = run.entries.iter().find(is_alone)?;
        let (alone, loaded) = (run.value(alone, Payload)?, run.value(entry, Payload)?);
        Some(RouteSlowdown { timed, load, entry: *entry, alone, loaded })
    };
    run.suite(SUITE).filter_map(slowdown).collect()
}

/// Maximum bars of the figure; loads with an effect come first.
const MAX_BARS: usize = 48;

/// Hops of the routes in use, then the measurements about them.
pub(super) fn find(run: &RunView) -> SuiteFindings {
    let slowdowns = slowdowns(run);
    let asked = run.suite(SUITE).next().is_some();
    let hops = asked.then(|| hops(run)).flatten();
    let sentences = [detours(run), loaded_routes(&slowdowns)];
    SuiteFindings::new(hops.into_iter().chain(loads(run, slowdowns)), sentences)
}

/// Hops between all pairs from the topology, compared with published ones.
fn hops(run: &RunView) -> Option<Figure> {
    let routes = RouteTable::of(run.topology());
    let gpus: Vec<u32> = run.topology().gpus.iter().map(|g| g.index).collect();
    // Routes through the host replace an unknown fabric: their hops are not those of a route.
    let hops = |a: u32, b: u32| {
        let used = routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b))?;
        (a != b && !used.through_host).then_some(used.hops)
    };
    let pivot = CellPivot::filled(&gpus, &gpus, |&a, &b| FigureCell {
        value: hops(a, b).map(f64::from),
        published: run.published_hops(a, b),
        ..FigureCell::default()
    });
    let unit = ("hops", BetterWhen::Neither);
    let matrix = pivot.matrix(("from", u32::to_string), ("to", u32::to_string), unit);
    let most = matrix.all().filter_map(|c| c.value).reduce(f64::max)?;
    let far = pivot.cells().filter(|(a, b, cell)| a < b && cell.value == Some(most));
    let far: Vec<String> = far.map(|(a, b, _)| format!("{a}-{b}")).collect();
    let far = match far.len() > MAX_NAMED {
        true => fmt::count(far.len(), "pair"),
        false => far.join(", "),
    };
    let compared = || matrix.all().filter_map(|c| Some((c.value, c.published.as_ref()?.value)));
    let same = compared().filter(|(value, published)| *value == Some(*published)).count();
    let published = match compared().count() {
        0 => String::new(),
        all => format!(" {same} of {all} agree with published ones."),
    };
    let finding = format!("At most {most:.0}, between {far}.{published}");
    let title = "Hops of the route in use";
    let figure = frame(run, (SUITE, ""), "hops", title).finding(finding).draw(matrix);
    Some(Figure { command: "pathline topo".into(), ..figure })
}

/// Maximum number of pairs in a sentence.
const MAX_NAMED: usize = 6;

fn loads(run: &RunView, mut found: Vec<RouteSlowdown>) -> Option<Figure> {
    let slowed = found.iter().filter(|s| s.shared()).count();
    let all = found.len();
    found.sort_by_key(|s| (s.timed.src, s.timed.dst, !s.shared()));
    found.retain(|s| all <= MAX_BARS || s.shared());
    let bars = found.iter().take(MAX_BARS).map(|s| {
        let cell = run.cell(&s.entry, Payload);
        let ends = |flow: &Flow| format!("{} to {}", flow.src.unit, flow.dst.unit);
        let label = format!("{} during {}", ends(s.timed), ends(s.load));
        (label, FigureCell { ceiling: Some(s.alone), bound: None, ..cell })
    });
    let (loads, loss) = (fmt::count(all, "load"), fmt::percent(MIN_LOSS));
    let finding = format!(
        "{slowed} of {loads} slow the copy by more than {loss}: those links are on its route."
    );
    let title = "Copies during a load on one link; the ceiling is the copy alone";
    frame(run, (SUITE, ""), "routes", title).finding(finding).draw_bars(GBS, bars)
}

/// Routes with more hops than necessary, chosen for their width.
fn detours(run: &RunView) -> Option<String> {
    let topology = run.topology();
    let between = |f: &Flow| match (f.src.unit.gpu(), f.dst.unit.gpu()) {
        (Some(from), Some(to)) => from != to || f.src.rank != f.dst.rank,
        _ => false,
    };
    let of_pair = |e: &RunEntry| e.case.flows().any(between);
    if !run.entries.iter().chain(&run.assumed).any(of_pair) {
        return None;
    }
    let detour = |route: &GpuRoute| {
        let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (route.src, route.dst) else { return None };
        let shortest = fewest_hops(topology, a, b)?;
        let via = route.via.first()?.iter().copied();
        let path: Vec<LinkEnd> = [route.src].into_iter().chain(via).chain([route.dst]).collect();
        let text = path.iter().map(node_number).collect::<Vec<_>>().join("-");
        (a < b && route.hops > shortest).then(|| (a, b, shortest, text, width(topology, &path)))
    };
    let mut detours = topology.routes.iter().filter_map(detour);
    let (a, b, shortest, path, width) = detours.next()?;
    let others = fmt::list_any(detours.map(|d| format!("{}-{} by {}", d.0, d.1, d.3)));
    let more = others.map_or(String::new(), |others| format!("; likewise {others}"));
    let wide = match width {
        0 => String::new(),
        width => format!(", the narrowest with {}", fmt::count(width as usize, "link")),
    };
    let hops = fmt::count(path.matches('-').count(), "hop");
    Some(format!(
        "gpu{a} and gpu{b} use {hops} ({path}){wide}, though {} would do{more}.",
        fmt::count(shortest as usize, "hop")
    ))
}

/// Confirmed routes: a load on one link slows a copy of another pair.
fn loaded_routes(slowdowns: &[RouteSlowdown]) -> Option<String> {
    let slowed: Vec<&RouteSlowdown> = slowdowns.iter().filter(|s| s.shared()).collect();
    let pairs: BTreeSet<_> = slowed.iter().map(|s| (s.timed.src, s.timed.dst)).collect();
    let (_, most) = extremes(&slowed.iter().map(|s| s.alone).collect::<Vec<_>>());
    let widest = slowed.iter().find(|s| s.alone >= ALIKE * most)?;
    let ends = |flow: &Flow| format!("{}→{}", flow.src.unit, flow.dst.unit);
    let (load, timed) = (ends(widest.load), ends(widest.timed));
    let left = fmt::percent(widest.loaded / widest.alone);
    let pairs = fmt::count(pairs.len(), "such pair");
    Some(format!(
        "Loading {load} cuts {timed} to {left}, so that copy is routed over it ({pairs} confirmed)."
    ))
}

fn node_number(node: &LinkEnd) -> String {
    match node {
        LinkEnd::Gpu(n) => n.to_string(),
        other => other.to_string(),
    }
}

/// Links of the narrowest hop; 0 if a hop is not listed.
fn width(topology: &Topology, path: &[LinkEnd]) -> u32 {
    let link = |a: LinkEnd, b: LinkEnd| {
        topology.links.iter().find(|l| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b))
    };
    let stretches = path.windows(2).map(|w| link(w[0], w[1]).map_or(0, |l| l.width));
    stretches.min().unwrap_or(0)
}

/// Fewest links between two GPUs over direct GPU links.
fn fewest_hops(topology: &Topology, from: u32, to: u32) -> Option<u32> {
    let (mut reached, mut edge) = (vec![from], vec![from]);
    let ends = |l: &Link| match (l.a, l.b) {
        (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some([(a, b), (b, a)]),
        _ => None,
    };
    for hops in 1..=topology.gpus.len() as u32 {
        let steps = topology.links.iter().filter_map(ends).flatten();
        let steps = steps.filter(|(a, b)| edge.contains(a) && !reached.contains(b));
        let next: Vec<u32> = steps.map(|(_, b)| b).collect();
        if next.contains(&to) {
            return Some(hops);
        }
        reached.extend(&next);
        edge = next;
    }
    None
}
