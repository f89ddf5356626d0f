//! Distances between GPUs, and the links of routed copies: a load on one of these links slows the
//! copy.

use std::collections::BTreeSet;

use pathline_flow::routes::RouteTable;
use pathline_schema::{Flow, LinkEnd, SuiteId, Topology};

use super::{
    ALIKE, BarsBody, BetterWhen, Figure, FigureBar, FigureBody, FigureCell, MatrixBody,
    SuiteFindings, extremes, frame,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

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
    run.suite(SUITE)
        .filter_map(|entry| {
            let ([timed], [load]) = (entry.case.timed.as_slice(), entry.case.background.as_slice())
            else {
                return None;
            };
            let alone = run
                .entries
                .iter()
                .find(|e| e.lone() == Some(timed) && e.case.cadence == entry.case.cadence)?;
            Some(RouteSlowdown {
                timed,
                load,
                entry: *entry,
                alone: run.value(alone, CaseQuantity::Payload)?,
                loaded: run.value(entry, CaseQuantity::Payload)?,
            })
        })
        .collect()
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
    let cell = |a: u32, b: u32| FigureCell {
        value: hops(a, b).map(f64::from),
        published: run.published_hops(a, b),
        ..FigureCell::default()
    };
    let cells: Vec<Vec<FigureCell>> =
        gpus.iter().map(|&a| gpus.iter().map(|&b| cell(a, b)).collect()).collect();
    let most = cells.iter().flatten().filter_map(|c| c.value).reduce(f64::max)?;
    let far: Vec<String> = gpus
        .iter()
        .flat_map(|&a| gpus.iter().map(move |&b| (a, b)))
        .filter(|&(a, b)| a < b && hops(a, b).is_some_and(|h| f64::from(h) == most))
        .map(|(a, b)| format!("{a}-{b}"))
        .collect();
    let compared: Vec<&FigureCell> =
        cells.iter().flatten().filter(|c| c.published.is_some()).collect();
    let same = |c: &&&FigureCell| c.published.as_ref().is_some_and(|p| Some(p.value) == c.value);
    let published = match compared.len() {
        0 => String::new(),
        all => {
            format!(" {} of {all} agree with published ones.", compared.iter().filter(same).count())
        }
    };
    let labels: Vec<String> = gpus.iter().map(u32::to_string).collect();
    Some(Figure {
        id: "hops".into(),
        suite: SUITE.into(),
        title: "Hops of the route in use".into(),
        finding: format!(
            "At most {most:.0}, between {}.{published}",
            if far.len() > MAX_NAMED { fmt::count(far.len(), "pair") } else { far.join(", ") }
        ),
        command: "pathline topo".into(),
        body: FigureBody::Matrix(MatrixBody {
            unit: "hops".into(),
            row_axis: "from".into(),
            col_axis: "to".into(),
            rows: labels.clone(),
            cols: labels,
            cells,
            better: BetterWhen::Neither,
        }),
    })
}

/// Maximum number of pairs in a sentence.
const MAX_NAMED: usize = 6;

fn loads(run: &RunView, mut found: Vec<RouteSlowdown>) -> Option<Figure> {
    if found.is_empty() {
        return None;
    }
    let slowed = found.iter().filter(|s| s.shared()).count();
    let all = found.len();
    found.sort_by_key(|s| (s.timed.src, s.timed.dst, !s.shared()));
    found.retain(|s| all <= MAX_BARS || s.shared());
    let bars: Vec<FigureBar> = found
        .iter()
        .take(MAX_BARS)
        .map(|s| FigureBar {
            label: format!(
                "{} to {} during {} to {}",
                s.timed.src.unit, s.timed.dst.unit, s.load.src.unit, s.load.dst.unit
            ),
            cell: FigureCell {
                ceiling: Some(s.alone),
                bound: None,
                ..run.cell(&s.entry, CaseQuantity::Payload)
            },
        })
        .collect();
    Some(
        frame(
            run,
            (SUITE, ""),
            "routes",
            "Copies during a load on one link; the ceiling is the copy alone",
        )
        .finding(format!(
            "{} of {} slow the copy by more than {}: those links are on its route.",
            slowed,
            fmt::count(all, "load"),
            fmt::percent(MIN_LOSS)
        ))
        .draw(BarsBody::new(("GB/s", BetterWhen::Higher), bars)),
    )
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
    let detours: Vec<(u32, u32, u32, String, u32)> = topology
        .routes
        .iter()
        .filter_map(|route| {
            let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (route.src, route.dst) else { return None };
            let shortest = fewest_hops(topology, a, b)?;
            let via = route.via.first()?;
            let path: Vec<LinkEnd> =
                [route.src].into_iter().chain(via.iter().copied()).chain([route.dst]).collect();
            let text = path.iter().map(node_number).collect::<Vec<_>>().join("-");
            (a < b && route.hops > shortest).then(|| (a, b, shortest, text, width(topology, &path)))
        })
        .collect();
    let (a, b, shortest, path, width) = detours.first()?;
    let more = match detours.len() - 1 {
        0 => String::new(),
        _ => {
            let others: Vec<String> =
                detours.iter().skip(1).map(|d| format!("{}-{} by {}", d.0, d.1, d.3)).collect();
            format!("; likewise {}", fmt::list(&others))
        }
    };
    let wide = if *width > 0 {
        format!(", {} wide on every hop", fmt::count(*width as usize, "link"))
    } else {
        String::new()
    };
    Some(format!(
        "gpu{a} and gpu{b} use {} ({path}){wide}, though {shortest} would do{more}.",
        fmt::count(path.matches('-').count(), "hop")
    ))
}

/// Confirmed routes: a load on one link slows a copy of another pair.
fn loaded_routes(slowdowns: &[RouteSlowdown]) -> Option<String> {
    let slowed: Vec<&RouteSlowdown> = slowdowns.iter().filter(|s| s.shared()).collect();
    let pairs: BTreeSet<_> = slowed.iter().map(|s| (s.timed.src, s.timed.dst)).collect();
    let (_, most) = extremes(&slowed.iter().map(|s| s.alone).collect::<Vec<_>>());
    let widest = slowed.iter().find(|s| s.alone >= ALIKE * most)?;
    Some(format!(
        "Loading {}→{} cuts {}→{} to {}, so that copy is routed over it ({} confirmed).",
        widest.load.src.unit,
        widest.load.dst.unit,
        widest.timed.src.unit,
        widest.timed.dst.unit,
        fmt::percent(widest.loaded / widest.alone),
        fmt::count(pairs.len(), "such pair")
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
    let mut reached = vec![from];
    let mut edge = vec![from];
    for hops in 1..=topology.gpus.len() as u32 {
        let next: Vec<u32> = topology
            .links
            .iter()
            .filter_map(|l| match (l.a, l.b) {
                (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some([(a, b), (b, a)]),
                _ => None,
            })
            .flatten()
            .filter(|(a, b)| edge.contains(a) && !reached.contains(b))
            .map(|(_, b)| b)
            .collect();
        if next.contains(&to) {
            return Some(hops);
        }
        reached.extend(&next);
        edge = next;
    }
    None
}
