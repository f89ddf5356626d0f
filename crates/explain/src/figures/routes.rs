//! How far GPUs are from each other, and which links a routed copy uses: loading one of them slows
//! it down.

use pathline_flow::routes::RouteTable;
use pathline_schema::{Flow, LinkEnd};

use super::{BarsBody, BetterWhen, Figure, FigureBar, FigureBody, FigureCell, MatrixBody};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: &str = "routes";

/// A load counts as felt from this loss on: well above the noise of a copy, well below the half
/// that an equal flow on the same link takes.
const FELT: f64 = 0.1;

/// A copy beside a load on one link.
#[derive(Debug, Clone)]
pub(crate) struct RouteSlowdown<'a> {
    pub(crate) timed: &'a Flow,
    pub(crate) load: &'a Flow,
    pub(crate) entry: RunEntry<'a>,
    pub(crate) alone: f64,
    pub(crate) loaded: f64,
}

impl RouteSlowdown<'_> {
    /// Whether the load slows the copy: they share a link.
    pub(crate) fn shared(&self) -> bool {
        self.loaded < (1.0 - FELT) * self.alone
    }
}

/// What the suite measured, in the order of the run.
pub(crate) fn slowdowns<'a>(run: &RunView<'a>) -> Vec<RouteSlowdown<'a>> {
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

/// The most bars of the figure: the loads that are felt come first.
const MOST_BARS: usize = 48;

/// Hops of the routes in use, then what was measured about them.
pub(super) fn figures(run: &RunView) -> Vec<Figure> {
    let asked = run.suite(SUITE).next().is_some();
    let hops = asked.then(|| hops(run)).flatten();
    hops.into_iter().chain(loads(run)).collect()
}

/// Hops between all pairs, from the topology, beside published ones.
fn hops(run: &RunView) -> Option<Figure> {
    let routes = RouteTable::of(run.topology());
    let gpus: Vec<u32> = run.topology().gpus.iter().map(|g| g.index).collect();
    // A way through the host is what is left where no fabric is known; its hops say nothing.
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
    let beside: Vec<&FigureCell> =
        cells.iter().flatten().filter(|c| c.published.is_some()).collect();
    let same = |c: &&&FigureCell| c.published.as_ref().is_some_and(|p| Some(p.value) == c.value);
    let published = match beside.len() {
        0 => String::new(),
        all => {
            format!(" {} of {all} agree with published ones.", beside.iter().filter(same).count())
        }
    };
    let labels: Vec<String> = gpus.iter().map(u32::to_string).collect();
    Some(Figure {
        id: "hops".into(),
        suite: SUITE.into(),
        title: "Hops of the route in use".into(),
        finding: format!(
            "At most {most:.0}, between {}.{published}",
            if far.len() > MOST_NAMED { fmt::count(far.len(), "pair") } else { far.join(", ") }
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

/// The most pairs that a sentence names.
const MOST_NAMED: usize = 6;

fn loads(run: &RunView) -> Option<Figure> {
    let mut found = slowdowns(run);
    if found.is_empty() {
        return None;
    }
    let felt = found.iter().filter(|s| s.shared()).count();
    let all = found.len();
    found.sort_by_key(|s| (s.timed.src, s.timed.dst, !s.shared()));
    found.retain(|s| all <= MOST_BARS || s.shared());
    let bars: Vec<FigureBar> = found
        .iter()
        .take(MOST_BARS)
        .map(|s| FigureBar {
            label: format!(
                "{} to {} beside {} to {}",
                s.timed.src.unit, s.timed.dst.unit, s.load.src.unit, s.load.dst.unit
            ),
            cell: FigureCell {
                ceiling: Some(s.alone),
                bound: None,
                ..run.cell(&s.entry, CaseQuantity::Payload)
            },
        })
        .collect();
    Some(Figure {
        id: "routes".into(),
        suite: SUITE.into(),
        title: "Copies beside a load on one link; the ceiling is the copy alone".into(),
        finding: format!(
            "{} of {} are felt (more than {} lost): those links lie on the copy's route.",
            felt,
            fmt::count(all, "load"),
            fmt::percent(FELT)
        ),
        command: run.command(SUITE, ""),
        body: FigureBody::Bars(BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher }),
    })
}
