//! From results to figures and sentences, suite by suite. `FIGURES` lists all of them.

mod bystander;
mod cache_ring;
mod collective_types;
mod collectives;
mod contention;
pub mod fan;
mod first_touch;
pub mod host;
mod host_link;
mod latency;
mod latency_bounds;
pub mod load;
mod local;
mod managed;
mod messages;
mod metadata;
mod mpi_switches;
pub mod multipath;
mod net;
pub mod numa_gpu;
mod observed_engine;
mod overhead;
pub mod overlap;
pub mod pairs;
mod partner_panels;
mod patterns;
mod peer_bars;
mod peers;
mod pivot;
mod rank_storage;
mod registration;
pub mod routes;
mod sent_flows;
mod shared_memory;
mod started;
mod storage;
mod sweep;
mod switches;

use std::collections::BTreeSet;

use pathline_schema::{Case, Flow, MemKind, SuiteId, Unit};

use TerminalUse::{Matrix, PageOnly, WithFinding};

use crate::figure::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    FigurePanel, Headline, HeadlineTone, MatrixBody, PanelsBody, extremes,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView, is_stream, stream_name};
use crate::run_identity::shorten_command;

use pivot::frame;
pub use storage::StorageSummary;
pub(crate) use storage::{conditions as storage_conditions, warnings as storage_warnings};

/// Treatment of a figure on a terminal. The page shows all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalUse {
    /// The default: curves, bars, sheets and stacks are drawn; matrices are not.
    ByForm,
    /// A matrix that is drawn, in ascending order of the number.
    Matrix(u8),
    /// Drawn, with its finding below.
    WithFinding,
    /// Not drawn: another figure shows it, or it is too large for a terminal.
    PageOnly,
}

/// A sentence of the summary: its position, and whether the first screen lists it.
struct SentenceSpec {
    place: u16,
    is_listed: bool,
}

const fn plain(place: u16) -> SentenceSpec {
    SentenceSpec { place, is_listed: false }
}

const fn listed(place: u16) -> SentenceSpec {
    SentenceSpec { place, is_listed: true }
}

/// Subject and presentation of a group of figures.
struct FigureSpec {
    /// Suites whose results they show.
    suites: &'static [SuiteId],
    find: fn(&RunView) -> SuiteFindings,
    /// For each sentence that `find` returns, in the same order.
    sentences: &'static [SentenceSpec],
    /// By id, for figures without the default treatment on a terminal.
    on_terminal: &'static [(&'static str, TerminalUse)],
}

impl FigureSpec {
    const fn new(suites: &'static [SuiteId], find: fn(&RunView) -> SuiteFindings) -> Self {
        Self { suites, find, sentences: &[], on_terminal: &[] }
    }
    const fn sentences(self, sentences: &'static [SentenceSpec]) -> Self {
        Self { sentences, ..self }
    }
    const fn on_terminal(self, on_terminal: &'static [(&'static str, TerminalUse)]) -> Self {
        Self { on_terminal, ..self }
    }
}

/// Result of one pass over a run: figures in the order of the page, and one entry for each sentence
/// of the row, `None` if the run has no data for it.
#[derive(Default)]
struct SuiteFindings {
    figures: Vec<Figure>,
    sentences: Vec<Option<String>>,
}

impl SuiteFindings {
    fn new(
        figures: impl IntoIterator<Item = Figure>,
        sentences: impl IntoIterator<Item = Option<String>>,
    ) -> Self {
        Self { figures: figures.into_iter().collect(), sentences: sentences.into_iter().collect() }
    }
}

/// All figures except that of other cases, in the order of the page. To add one, add a file and a
/// row.
const FIGURES: &[FigureSpec] = &[
    FigureSpec::new(&[SuiteId::Host], host::find)
        .sentences(&[plain(100), plain(110), plain(120), plain(130)])
        .on_terminal(&[
            ("host-numa-read", Matrix(10)),
            ("host-numa-write", Matrix(11)),
            ("host-numa-latency", Matrix(12)),
            ("host-threads", PageOnly),
        ]),
    FigureSpec::new(&[SuiteId::Local], local::find).on_terminal(&[("local-latency", PageOnly)]),
    FigureSpec::new(&[SuiteId::HostLink], host_link::find).sentences(&[plain(200), plain(210)]),
    FigureSpec::new(&[SuiteId::Pairs], pairs::find)
        .sentences(&[plain(300), plain(310), plain(320)])
        .on_terminal(&[
            ("pairs-dma", Matrix(20)),
            ("pairs-dma-pull", Matrix(21)),
            ("pairs-read", Matrix(22)),
            ("pairs-write", Matrix(23)),
            ("pairs-blit", Matrix(24)),
            // Last, as the least used: sums of both directions, and blit kernels that pull.
            ("pairs-dma-both", Matrix(90)),
            ("pairs-blit-pull", Matrix(91)),
        ]),
    FigureSpec::new(&[SuiteId::Latency], latency::find).sentences(&[listed(910)]).on_terminal(&[
        ("latency", Matrix(30)),
        ("latency-load", Matrix(31)),
        ("latency-host", PageOnly),
    ]),
    FigureSpec::new(&[SuiteId::Sweep], sweep::find),
    FigureSpec::new(&[SuiteId::Fan], fan::find)
        .sentences(&[plain(410)])
        .on_terminal(&[("fan", PageOnly)]),
    FigureSpec::new(&[SuiteId::Patterns], patterns::find).sentences(&[plain(400)]),
    FigureSpec::new(&[SuiteId::Managed], managed::find).sentences(&[plain(510)]),
    FigureSpec::new(&[SuiteId::Overhead], overhead::find)
        .sentences(&[plain(530)])
        .on_terminal(&[("overhead-memory", Matrix(40)), ("overhead-batch", PageOnly)]),
    FigureSpec::new(&[SuiteId::Overlap], overlap::find).sentences(&[plain(520)]),
    FigureSpec::new(&[SuiteId::NumaGpu], numa_gpu::find)
        .sentences(&[plain(500)])
        .on_terminal(&[("numa-gpu-in", Matrix(50))]),
    FigureSpec::new(&[SuiteId::Routes], routes::find)
        .sentences(&[listed(900), plain(901)])
        .on_terminal(&[("routes", PageOnly)]),
    FigureSpec::new(&[SuiteId::Multipath], multipath::find)
        .sentences(&[plain(440)])
        .on_terminal(&[("multipath", Matrix(80)), ("multipath-gain", PageOnly)]),
    FigureSpec::new(&[SuiteId::Load], load::find).on_terminal(&[("load", Matrix(81))]),
    FigureSpec::new(&[SuiteId::Blocks], load::find_blocks).on_terminal(&[("blocks", Matrix(82))]),
    FigureSpec::new(&[SuiteId::Contention, SuiteId::Concurrent], contention::find)
        .sentences(&[plain(420), plain(430)]),
    FigureSpec::new(started::SUITES, started::find),
    FigureSpec::new(messages::SUITES, messages::find)
        .sentences(&[plain(600), plain(620), plain(640), listed(606)])
        .on_terminal(&[
            ("mpi-pairs-rate-vram", Matrix(65)),
            ("mpi-pairs-latency-vram", Matrix(66)),
            ("mpi-pairs-rate-paged", Matrix(67)),
            ("mpi-pairs-latency-paged", Matrix(68)),
            ("ccl-pairs-rate-vram", Matrix(70)),
            ("ccl-pairs-latency-vram", Matrix(71)),
        ]),
    FigureSpec::new(&[SuiteId::Net], net::find).sentences(&[listed(607)]).on_terminal(&[
        ("net-rate-vram", Matrix(64)),
        ("net-rate-paged", Matrix(69)),
        ("net-latency-paged", Matrix(74)),
    ]),
    FigureSpec::new(&[SuiteId::MpiPeers], peers::find).sentences(&[listed(605)]).on_terminal(&[
        ("mpi-peers-1GiB", Matrix(60)),
        ("mpi-peers-16MiB", Matrix(61)),
        ("mpi-peers-8B", Matrix(62)),
        ("mpi-peers-1GiB-mpi-blit", Matrix(55)),
        ("mpi-peers-1GiB-mpi-engine", Matrix(56)),
        ("mpi-peers-1GiB-mpi", Matrix(57)),
        ("mpi-peers-16MiB-mpi-blit", Matrix(58)),
        ("mpi-peers-16MiB-mpi-engine", Matrix(59)),
        ("mpi-peers-16MiB-mpi", Matrix(63)),
    ]),
    FigureSpec::new(&[SuiteId::UcxSwitches], switches::find),
    FigureSpec::new(&[SuiteId::MpiSwitches], mpi_switches::find).on_terminal(&[
        ("mpi-switches-change-paged", Matrix(72)),
        ("mpi-switches-change-vram", Matrix(73)),
        ("mpi-switches-times-paged", PageOnly),
        ("mpi-switches-times-vram", PageOnly),
    ]),
    FigureSpec::new(&[SuiteId::Registration], registration::find),
    FigureSpec::new(&collectives::SUITES, collectives::find).sentences(&[
        listed(610),
        plain(630),
        listed(631),
        listed(632),
    ]),
    FigureSpec::new(&[SuiteId::CollectiveTypes], collective_types::find),
    FigureSpec::new(&[SuiteId::Shm], shared_memory::find).sentences(&[plain(650)]),
    FigureSpec::new(&[SuiteId::Shm], bystander::find),
    FigureSpec::new(&[SuiteId::Storage], storage::find)
        .sentences(&[plain(700), plain(710), plain(720)])
        .on_terminal(&[("storage-stages", WithFinding), ("storage-latency", PageOnly)]),
    FigureSpec::new(&[SuiteId::StorageGrid], storage::find_grid)
        .sentences(&[plain(730), plain(740)])
        .on_terminal(&[("storage-grid-copies", PageOnly)]),
    FigureSpec::new(&[SuiteId::Metadata], metadata::find),
    FigureSpec::new(&[SuiteId::StorageRanks], rank_storage::find),
];

/// Treatment of a figure on a terminal.
pub fn terminal_use(figure: &Figure) -> TerminalUse {
    let mut rows = FIGURES.iter().flat_map(|spec| spec.on_terminal);
    rows.find(|(id, _)| *id == figure.id).map_or(TerminalUse::ByForm, |row| row.1)
}

/// Figures and sentences of a run.
pub(crate) struct RunFindings {
    /// In the order of the table; last the cases that no suite's figure shows.
    pub(crate) figures: Vec<Figure>,
    /// In order of position.
    pub(crate) sentences: Vec<Headline>,
}

/// Derives all figures and sentences of a run.
pub(crate) fn find(run: &RunView) -> RunFindings {
    let mut figures = Vec::new();
    let mut sentences: Vec<(u16, Headline)> = Vec::new();
    for spec in FIGURES {
        let found = (spec.find)(run);
        debug_assert!(
            found.figures.iter().all(|f| spec.suites.iter().any(|s| s.word() == f.suite))
        );
        debug_assert!([0, spec.sentences.len()].contains(&found.sentences.len()));
        figures.extend(found.figures);
        for (&SentenceSpec { place, is_listed }, text) in spec.sentences.iter().zip(found.sentences)
        {
            let tone = HeadlineTone::Plain;
            sentences.extend(text.map(|text| (place, Headline { text, tone, is_listed })));
        }
    }
    figures.extend(others(run, &figures));
    sentences.sort_by_key(|(place, _)| *place);
    RunFindings {
        figures,
        sentences: sentences.into_iter().map(|(_, headline)| headline).collect(),
    }
}

/// Maximum relative half width of the 95 % interval of a value in a sentence.
const WIDEST_STATED: f64 = 0.1;

/// Whether a sentence may state the value of a cell.
fn is_precise(cell: &FigureCell) -> bool {
    cell.value.is_some_and(|value| cell.half_width <= WIDEST_STATED * value)
}

/// Whether the 95 % intervals of two cells are disjoint.
fn is_apart(a: &FigureCell, b: &FigureCell) -> bool {
    let distance = a.value.zip(b.value).map(|(a, b)| (a - b).abs());
    distance.is_some_and(|distance| distance > a.half_width + b.half_width)
}

/// Values within this factor count as equal: the first of them is named.
const ALIKE: f64 = 0.99;

/// Maximum number of cases in the figure of other cases; the CSV has all.
const MAX_OTHERS: usize = 40;

fn others(run: &RunView, figures: &[Figure]) -> Option<Figure> {
    let shown: BTreeSet<&Case> =
        figures.iter().flat_map(Figure::cells).filter_map(|c| c.case.as_ref()).collect();
    let suites: BTreeSet<&str> = figures.iter().map(|f| f.suite.as_str()).collect();
    let rest: Vec<&RunEntry> = run
        .entries
        .iter()
        .filter(|e| e.is_sampled() && !shown.contains(e.case))
        .filter(|e| !e.suites.iter().any(|s| suites.contains(s.as_str())))
        .filter(|e| !e.case.timed.iter().any(|f| f.by.is_chase()))
        .collect();
    if rest.is_empty() {
        return None;
    }
    // A loop over local memory needs only its name. A terminal cuts full case texts before the part
    // in which they differ.
    let local = |flow: &&Flow| {
        let at = flow.by.at();
        is_stream(flow) && flow.src.unit == at && flow.dst.unit == at
    };
    let bar = |e: &&RunEntry| FigureBar {
        label: match e.lone().filter(local) {
            Some(flow) => format!("{}: {}", flow.by.at(), stream_name(flow)),
            None => e.case.to_string(),
        },
        cell: run.cell(e, CaseQuantity::Payload),
    };
    let bars: Vec<FigureBar> = rest.iter().take(MAX_OTHERS).map(bar).collect();
    let more = match rest.len().saturating_sub(MAX_OTHERS) {
        0 => String::new(),
        more => format!(" {more} more are in the CSV."),
    };
    let count = fmt::sentence(&fmt::count(rest.len(), "case"));
    Some(Figure {
        id: "cases".into(),
        suite: String::new(),
        title: "Other cases".into(),
        finding: format!("{count} outside the suites' figures.{more}"),
        command: shorten_command(&run.journal.begin.command),
        body: BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher }.into(),
    })
}

/// Unique keys, ascending.
fn sorted<T: Ord>(keys: impl IntoIterator<Item = T>) -> Vec<T> {
    keys.into_iter().collect::<BTreeSet<T>>().into_iter().collect()
}

/// Unique keys, in the order of the run.
fn distinct<T: PartialEq>(keys: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for key in keys {
        if !seen.contains(&key) {
            seen.push(key);
        }
    }
    seen
}

/// Curves from named points, lines in the order of their first point.
fn lines(points: impl IntoIterator<Item = (String, f64, FigureCell)>) -> Vec<ChartLine> {
    let mut lines: Vec<ChartLine> = Vec::new();
    for (name, x, cell) in points {
        let at = lines.iter().position(|l| l.name == name).unwrap_or_else(|| {
            lines.push(ChartLine { name, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((x, cell));
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Remaining share of the timed flow's rate while the background flows run, in percent.
fn kept(run: &RunView, suite: SuiteId, entry: &RunEntry, timed: &Flow) -> FigureCell {
    let alone = run.suite(suite).find(|e| e.lone() == Some(timed));
    // Computed from times: a kernel that moves no bytes has no rate.
    let alone = alone.and_then(|e| run.value(e, CaseQuantity::StepNs));
    let cell = run.cell(entry, CaseQuantity::StepNs);
    let share = alone.zip(cell.value).map(|(alone, now)| 100.0 * alone / now);
    let cell = cell.in_proportion(share).without_losses();
    FigureCell { ceiling: Some(100.0), published: None, ..cell }
}

/// Range of the values of cells: `37.1-37.6`; `None` without a value.
fn range_of<'a>(cells: impl IntoIterator<Item = &'a FigureCell>) -> Option<String> {
    fmt::range_any(cells.into_iter().filter_map(|cell| cell.value))
}

/// Values of cells that have one.
fn values<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> Vec<f64> {
    cells.filter_map(|c| c.value).collect()
}

/// Smallest and largest share of the ceiling: ` (75-76 % of the ceiling)`.
fn shares<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    let shares: Vec<f64> = cells.filter_map(FigureCell::share_of_ceiling).collect();
    match shares.is_empty() {
        true => String::new(),
        false => format!(" ({} of the ceiling)", fmt::percent_range(extremes(&shares))),
    }
}

/// All cells of lines.
fn line_cells(lines: &[ChartLine]) -> impl Iterator<Item = &FigureCell> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| &point.1))
}

/// Deviation of measured values from published ones, for the finding of a figure.
fn published_clause<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    let ratios: Vec<f64> = cells
        .filter_map(|c| Some(c.value? / c.published.as_ref()?.value))
        .filter(|r| r.is_finite())
        .collect();
    if ratios.is_empty() {
        return String::new();
    }
    let worst = fmt::percent(ratios.iter().map(|r| (r - 1.0).abs()).fold(0.0, f64::max));
    format!(" Against {}: at most {worst} apart.", fmt::count(ratios.len(), "published value"))
}

/// Display name of a kind of memory.
pub fn mem_words(mem: MemKind) -> &'static str {
    match mem {
        MemKind::Vram => "device memory",
        MemKind::VramFine => "fine-grained device memory",
        MemKind::Pinned => "pinned",
        MemKind::PinnedNonCoherent => "pinned non-coherent",
        MemKind::PinnedWc => "pinned write-combined",
        MemKind::PinnedDefault => "pinned where the runtime places it",
        MemKind::Registered => "registered",
        MemKind::RegisteredHuge => "registered huge-page",
        MemKind::Paged => "pageable",
        MemKind::Huge => "huge-page",
        MemKind::Managed => "managed",
        MemKind::Reg => "registers",
        MemKind::File => "files",
    }
}

pub(crate) fn is_host(unit: Unit) -> bool {
    unit.numa().is_some()
}

/// `host` for memory of any domain, else the unit.
fn end_name(unit: Unit) -> String {
    if is_host(unit) { "host".to_owned() } else { unit.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With equal positions the order of sentences and matrices would depend on that of the rows.
    #[test]
    fn places_in_the_table_are_unique() {
        let sentences = FIGURES.iter().flat_map(|spec| spec.sentences);
        let mut places: Vec<u16> = sentences.map(|s| s.place).collect();
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all);
        let mut matrices = BTreeSet::new();
        for (id, shown) in FIGURES.iter().flat_map(|spec| spec.on_terminal) {
            if let Matrix(place) = shown {
                assert!(matrices.insert(place), "{id}: {place} stands twice");
            }
        }
    }
}
