//! What is derived from a run, for tools: `pathline report --json`.

use std::collections::BTreeMap;

use pathline_explain::figure::{RunReport, RunWarning};
use pathline_schema::{Journal, Unit, WorldKind};
use serde::Serialize;

use crate::RunConclusions;
use crate::derived_figure::DerivedFigure;

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

impl<'a> DerivedWarning<'a> {
    /// A warning of a report.
    pub fn new(warning: &'a RunWarning) -> Self {
        Self { code: &warning.code, subject: &warning.subject, text: &warning.text }
    }
}

impl<'a> DerivedRun<'a> {
    /// Puts together what is derived from a run.
    pub fn new(
        journal: &'a Journal,
        report: &'a RunReport,
        conclusions: &'a RunConclusions,
    ) -> Self {
        let warnings = report.warnings.iter();
        let slow = &conclusions.verdict.covered;
        Self {
            format: DERIVED_FORMAT,
            identity: DerivedIdentity::new(journal, report),
            conclusions,
            figures: report.figures.iter().map(|figure| DerivedFigure::new(figure, slow)).collect(),
            warnings: warnings.map(DerivedWarning::new).collect(),
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
