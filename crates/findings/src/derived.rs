//! What is derived from a run, for tools: `pathline report --json`.

use std::collections::BTreeMap;

use pathline_explain::figure::{BetterWhen, Figure, FigureBody, FigureCell, RunReport, Suspicion};
use pathline_schema::{Journal, Unit, WorldKind};
use serde::Serialize;

use crate::RunConclusions;

/// Version of the format of [`DerivedRun`]. It grows when a reader of an older one would misread a newer
/// one; new fields alone do not change it.
pub const DERIVED_FORMAT: u32 = 1;

/// Everything that is derived from a run. docs/understand/findings.md describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedRun<'a> {
    /// [`DERIVED_FORMAT`].
    pub format: u32,
    /// The run and the node.
    pub identity: DerivedIdentity<'a>,
    /// Verdict, findings and tiles.
    #[serde(flatten)]
    pub conclusions: &'a RunConclusions,
    /// Figures, in suite order.
    pub figures: Vec<DerivedFigure<'a>>,
    /// Warnings about results, the node and the journal.
    pub warnings: Vec<DerivedWarning<'a>>,
}

/// What was measured, where, when and with what. Absent fields are not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedIdentity<'a> {
    /// Name of the host.
    pub host: &'a str,
    /// Name of the simulated machine, if figures are the model's.
    pub simulated: Option<&'a str>,
    /// Model of the processor.
    pub processor: &'a str,
    /// Kernel release.
    pub kernel: &'a str,
    /// GPUs in the order of their numbers.
    pub gpus: Vec<DerivedGpu<'a>>,
    /// Libraries between processes, with their versions, of the first rank that has them.
    pub libraries: BTreeMap<String, &'a str>,
    /// Number of processes that measured together; 0 for a run of one process.
    pub ranks: usize,
    /// Set environment variables that change the behaviour of libraries.
    pub environment: &'a BTreeMap<String, String>,
    /// When the run began, RFC 3339 in UTC.
    pub started: &'a str,
    /// Wall time of the (last part of the) run, s; none of a cut run.
    pub duration_s: Option<f64>,
    /// Whether every planned case has its outcome.
    pub complete: bool,
    /// Version of pathline that measured.
    pub version: &'a str,
    /// The command line.
    pub command: &'a [String],
    /// How many times everything was measured.
    pub repeats: u32,
    /// That other programs disturbed the run.
    pub busy: Option<String>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedGpu<'a> {
    /// `gpu0`.
    pub unit: String,
    /// Product name as its driver reports it.
    pub name: &'a str,
    /// Instruction set: `gfx90a`, `sm_90`.
    pub arch: &'a str,
    /// PCI address.
    pub pci: &'a str,
    /// Its NUMA domain.
    pub numa: Option<u32>,
    /// Its package, where several GPUs share one.
    pub package: Option<u32>,
    /// Driver and version that reported its facts.
    pub driver: Option<&'a str>,
}

/// One figure with its cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedFigure<'a> {
    /// Stable name: `pairs-dma`.
    pub id: &'a str,
    /// Suite that it shows.
    pub suite: &'a str,
    /// One line.
    pub title: &'a str,
    /// The command that measures just this.
    pub command: &'a str,
    /// Cells that were planned, in display order.
    pub cells: Vec<DerivedCell<'a>>,
}

/// One value of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedCell<'a> {
    /// Row, line or bar.
    pub row: String,
    /// Column, place on the horizontal axis, or part; empty of a bar.
    pub column: String,
    /// Unit of the numbers.
    pub unit: &'a str,
    /// `higher`, `lower`, or `neither`.
    pub better: &'static str,
    /// The median; none of a skip or a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Half width of its 95 % interval; none of too few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Ends of the 95 % interval between repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_repeats: Option<(f64, f64)>,
    /// Peak of the narrowest hop, or the best that was measured there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// A tighter bound, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// A published value and its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<(f64, &'a str)>,
    /// Why the value is suspect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<&'a str>,
    /// The case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedWarning<'a> {
    /// Short name of its kind: `bimodal`.
    pub code: &'a str,
    /// A case, a device, the run.
    pub subject: &'a str,
    /// What was seen and what follows.
    pub text: &'a str,
}

impl<'a> DerivedRun<'a> {
    /// Puts together what is derived from a run.
    pub fn new(
        journal: &'a Journal,
        report: &'a RunReport,
        conclusions: &'a RunConclusions,
    ) -> Self {
        let warnings = report.warnings.iter();
        Self {
            format: DERIVED_FORMAT,
            identity: DerivedIdentity::new(journal, report),
            conclusions,
            figures: report.figures.iter().map(derived_figure).collect(),
            warnings: warnings
                .map(|w| DerivedWarning { code: &w.code, subject: &w.subject, text: &w.text })
                .collect(),
        }
    }
}

impl<'a> DerivedIdentity<'a> {
    fn new(journal: &'a Journal, report: &'a RunReport) -> Self {
        let (begin, topology) = (&journal.begin, &journal.topology);
        let mut libraries = BTreeMap::new();
        for (transport, text) in begin.ranks.iter().flat_map(|member| &member.ways) {
            libraries.entry(transport.to_string()).or_insert(text.as_str());
        }
        let gpu = |gpu: &'a pathline_schema::Gpu| DerivedGpu {
            unit: Unit::Gpu(gpu.index).to_string(),
            name: &gpu.name,
            arch: &gpu.arch,
            pci: &gpu.pci,
            numa: gpu.numa,
            package: gpu.package,
            driver: begin.gpus.get(&Unit::Gpu(gpu.index)).map(|facts| facts.source.as_str()),
        };
        Self {
            host: &begin.host,
            simulated: match &begin.world {
                WorldKind::Real => None,
                WorldKind::Simulated(machine) => Some(machine),
            },
            processor: &topology.host.cpu_model,
            kernel: &topology.host.kernel,
            gpus: topology.gpus.iter().map(gpu).collect(),
            libraries,
            ranks: begin.ranks.len(),
            environment: &begin.env,
            started: &begin.started,
            duration_s: journal.end.as_ref().map(|end| end.elapsed.0 / 1e9),
            complete: report.complete,
            version: &begin.version,
            command: &begin.command,
            repeats: begin.settings.repeats,
            busy: report.busy.as_ref().map(|busy| busy.reasons.join(", ")),
        }
    }
}

fn derived_figure(figure: &Figure) -> DerivedFigure<'_> {
    DerivedFigure {
        id: &figure.id,
        suite: &figure.suite,
        title: &figure.title,
        command: &figure.command,
        cells: cells(&figure.body),
    }
}

const fn better_word(better: BetterWhen) -> &'static str {
    match better {
        BetterWhen::Higher => "higher",
        BetterWhen::Lower => "lower",
        BetterWhen::Neither => "neither",
    }
}

/// The cells of a figure that a case stands for, or that have a value.
fn cells(body: &FigureBody) -> Vec<DerivedCell<'_>> {
    let mut all = Vec::new();
    let mut add = |row: &str, column: &str, unit, better, cell| {
        all.extend(derived_cell((row, column), (unit, better), cell));
    };
    match body {
        FigureBody::Matrix(m) => {
            for (row, cells) in m.rows.iter().zip(&m.cells) {
                for (column, cell) in m.cols.iter().zip(cells) {
                    add(row, column, &m.unit, m.better, cell);
                }
            }
        }
        FigureBody::Curves(c) => {
            for line in &c.lines {
                for (x, cell) in &line.points {
                    add(&line.name, &format!("{x} {}", c.x_unit), &c.y_unit, c.better, cell);
                }
            }
        }
        FigureBody::Bars(b) => {
            for bar in &b.bars {
                add(&bar.label, "", &b.unit, b.better, &bar.cell);
            }
        }
        FigureBody::Sheet(s) => {
            for (row, cells) in &s.rows {
                for (column, cell) in s.columns.iter().zip(cells) {
                    add(row, &column.name, &column.unit, column.better, cell);
                }
            }
        }
        FigureBody::Stacks(s) => {
            for stack in &s.stacks {
                for part in &stack.parts {
                    add(&stack.label, &part.name, "%", BetterWhen::Neither, &part.cell);
                }
            }
        }
        FigureBody::Panels(p) => {
            for panel in &p.panels {
                for line in &panel.lines {
                    for (x, cell) in &line.points {
                        let row = format!("{}, {}", panel.name, line.name);
                        add(&row, &format!("{x} {}", p.x_unit), &p.y_unit, p.better, cell);
                    }
                }
            }
        }
        FigureBody::Gaps(g) => {
            for (panel, rows) in &g.panels {
                for (row, gaps) in g.rows.iter().zip(rows) {
                    for (column, gap) in g.cols.iter().zip(gaps) {
                        let row = format!("{panel}, {row}");
                        add(&row, column, &g.unit, BetterWhen::Lower, &gap.cell);
                    }
                }
            }
        }
    }
    all
}

fn derived_cell<'a>(
    (row, column): (&str, &str),
    (unit, better): (&'a str, BetterWhen),
    cell: &'a FigureCell,
) -> Option<DerivedCell<'a>> {
    // A number that JSON cannot hold is none.
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let value = finite(cell.value);
    let half_width = Some(cell.half_width).filter(|_| value.is_some() && cell.few.is_none());
    (value.is_some() || cell.case.is_some()).then(|| DerivedCell {
        row: row.to_owned(),
        column: column.to_owned(),
        unit,
        better: better_word(better),
        value,
        half_width: finite(half_width),
        between_repeats: cell.node.map(|node| (node.low, node.high)),
        ceiling: finite(cell.ceiling),
        bound: finite(cell.bound),
        published: cell.published.as_ref().map(|p| (p.value, p.source.as_str())),
        suspect: cell.suspect.as_ref().map(Suspicion::text),
        absent: cell.absent.as_deref(),
        case: cell.case.as_ref().map(ToString::to_string),
    })
}
