//! Contents of a report as data: the terminal, the HTML page and the CSV render the same figures.

pub use pathline_published::{PublishedValue, SourceKind};
use pathline_schema::{Case, Conditions, ConstantOrigin};
use serde::Serialize;

pub use crate::busy_report::BusyReport;

/// A figure: its data, its finding and the command that measures it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Stable anchor: `pairs-dma`.
    pub id: String,
    /// Suite whose results it shows.
    pub suite: String,
    /// Title, one line.
    pub title: String,
    /// Result in numbers: two or three sentences.
    pub finding: String,
    /// Command that repeats only these measurements.
    pub command: String,
    /// The data.
    pub body: FigureBody,
}

impl Figure {
    /// All cells.
    pub fn cells(&self) -> Box<dyn Iterator<Item = &FigureCell> + '_> {
        match &self.body {
            FigureBody::Matrix(m) => Box::new(m.cells.iter().flatten()),
            FigureBody::Curves(c) => {
                Box::new(c.lines.iter().flat_map(|l| l.points.iter().map(|p| &p.1)))
            }
            FigureBody::Bars(b) => Box::new(b.bars.iter().map(|b| &b.cell)),
            FigureBody::Sheet(s) => Box::new(s.rows.iter().flat_map(|r| &r.1)),
            FigureBody::Stacks(s) => {
                Box::new(s.stacks.iter().flat_map(|s| s.parts.iter().map(|p| &p.cell)))
            }
            FigureBody::Panels(p) => Box::new(
                p.panels.iter().flat_map(|p| &p.lines).flat_map(|l| l.points.iter().map(|p| &p.1)),
            ),
            FigureBody::Gaps(g) => {
                Box::new(g.panels.iter().flat_map(|p| p.1.iter().flatten().map(|g| &g.cell)))
            }
        }
    }
    /// Whether at least one cell has a value.
    pub fn has_value(&self) -> bool {
        self.cells().any(|c| c.value.is_some())
    }
}

/// The form of a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum FigureBody {
    /// Values by row and column.
    Matrix(MatrixBody),
    /// Values over a logarithmic axis.
    Curves(CurvesBody),
    /// Values side by side.
    Bars(BarsBody),
    /// Values of several units by row.
    Sheet(SheetBody),
    /// Parts of a whole, one whole per row.
    Stacks(StacksBody),
    /// Differences by row and column, one panel per statistic.
    Gaps(GapsBody),
    /// Small charts with common axes.
    Panels(PanelsBody),
}

/// Each form of a figure from its data.
macro_rules! body_from {
    ($($form:ident($body:ident)),*) => {
        $(impl From<$body> for FigureBody {
            fn from(body: $body) -> Self {
                Self::$form(body)
            }
        })*
    };
}

body_from!(Matrix(MatrixBody), Curves(CurvesBody), Bars(BarsBody), Sheet(SheetBody));
body_from!(Stacks(StacksBody), Gaps(GapsBody), Panels(PanelsBody));

/// Whether higher or lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BetterWhen {
    /// Bandwidth.
    Higher,
    /// Latency.
    Lower,
    /// Neither, such as a number of hops.
    #[default]
    Neither,
}

/// A value with its bounds, its uncertainty and its warnings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FigureCell {
    /// The value, in the figure's unit: the median.
    pub value: Option<f64>,
    /// Half width of the 95 % interval, in the figure's unit. Equals the value if there is no
    /// interval: too few samples, or a simulated value that rests on an assumed constant.
    pub half_width: f64,
    /// Number of samples, if too few for an interval.
    pub few: Option<usize>,
    /// Interval between processes, in the figure's unit; only for a run with at least 3 repeats.
    pub node: Option<NodeInterval>,
    /// Upper bound (lower for latencies), in the figure's unit: the peak of the narrowest hop, or
    /// the best that was measured on this machine.
    pub ceiling: Option<f64>,
    /// A tighter bound, if known (engine, protocol).
    pub bound: Option<f64>,
    /// Route and losses along it; `None` if the machine description does not cover the case.
    pub path: Option<LossBreakdown>,
    /// Published value for the same case.
    pub published: Option<PublishedValue>,
    /// Reason if there is no value: a skip's reason or a fault's error.
    pub absent: Option<String>,
    /// The measured case.
    pub case: Option<Case>,
    /// Clocks, power and temperature during the measurement, one text per GPU.
    pub gpus: Vec<String>,
    /// Reason if the value is suspect.
    pub suspect: Option<Suspicion>,
    /// The weakest origin of the constants behind a simulated value.
    pub origin: Option<ConstantOrigin>,
}

/// A 95 % interval that includes the differences between processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeInterval {
    /// Number of processes that measured it, each with new buffers and clocks.
    pub repeats: usize,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl FigureCell {
    /// Whether the half width is that of an interval.
    pub fn has_interval(&self) -> bool {
        self.value.is_some() && self.few.is_none() && self.origin != Some(ConstantOrigin::Assumed)
    }
    /// This value over that of another cell, with an interval only if both have one: their relative half
    /// widths add up.
    pub(crate) fn ratio_to(&self, base: &Self) -> Option<Self> {
        let (value, base_value) = (self.value?, base.value.filter(|v| *v != 0.0)?);
        let sure = if self.has_interval() { base } else { self };
        let within = self.half_width + (value / base_value * base.half_width).abs();
        Some(Self {
            value: Some(value / base_value),
            half_width: within / base_value.abs(),
            few: sure.few,
            origin: sure.origin,
            ..Self::default()
        })
    }
    /// Value divided by ceiling: 0 to 1, and above if the ceiling is exceeded.
    pub fn share_of_ceiling(&self) -> Option<f64> {
        let ceiling = self.ceiling.filter(|c| *c > 0.0)?;
        Some(self.value? / ceiling)
    }
}

/// Why a value is suspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspicion {
    /// Above the peak of the hardware: excess and place.
    BeyondCeiling(String),
    /// Other programs used the machine during the measurement: their names.
    Busy(String),
    /// Its bytes were not verified after the transfer: the reason.
    Unverified(String),
    /// A simulated value that rests on an assumed constant of the model.
    Assumed,
}

impl Suspicion {
    /// Mark after the value on a terminal.
    pub fn mark(&self) -> char {
        match self {
            Self::BeyondCeiling(_) => '!',
            Self::Busy(_) => '~',
            Self::Unverified(_) => '?',
            Self::Assumed => '*',
        }
    }
    /// Clause without a full stop.
    pub fn text(&self) -> String {
        match self {
            Self::BeyondCeiling(text) => format!("beyond-ceiling: {text}"),
            Self::Busy(why) => format!("busy: {why}"),
            Self::Unverified(why) => format!("its bytes were not verified: {why}"),
            Self::Assumed => {
                "assumed: rests on a constant of the model that nobody measured".into()
            }
        }
    }
}

/// Route of a case, and the steps from its peak down to the model's prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossBreakdown {
    /// Units along the first flow's route, ends included: `0-1-5`, `numa3-gpu0`.
    pub route: String,
    /// The hop with the least theoretical peak.
    pub narrowest: String,
    /// Steps from the peak down to the model's rate; empty for a latency.
    pub losses: Vec<LossStep>,
}

/// One step from the peak down, in the figure's unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossStep {
    /// Rate before this step.
    pub from: f64,
    /// Rate after it.
    pub to: f64,
    /// Kind of cause.
    pub kind: LossKind,
    /// Cause of the loss.
    pub why: String,
}

/// Kinds of causes that lower a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// Packet headers, and forwarding by other units.
    #[default]
    Protocol,
    /// An engine or a resource that is slower than the links.
    Limit,
    /// Flows of the same case that share a resource.
    Contention,
    /// What a message library takes beyond the transfers themselves: start, handshake, pieces. Its
    /// level is the measured value.
    Message,
}

/// Paths of one class with their losses: a row of the table that explains a figure. Rates are in
/// the figure's unit, as minimum and maximum of the class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossClassRow {
    /// The narrowest hop: `xGMI, 1 link`.
    pub hop: String,
    /// Whether other GPUs forward.
    pub forwarded: bool,
    /// Number of paths.
    pub paths: usize,
    /// Number of others that are slower than their peers, whose values the row leaves out.
    pub slow: usize,
    /// Theoretical peak of the hop.
    pub peak: (f64, f64),
    /// Peak less packet overhead and forwarding.
    pub after_protocol: (f64, f64),
    /// Limit by an engine or shared resource, if lower.
    pub limit: Option<(f64, f64)>,
    /// Measured rates.
    pub measured: (f64, f64),
    /// Least and greatest measured rate divided by its peak: 0 to 1, and above if the peak is exceeded.
    pub share: (f64, f64),
    /// Main cause of the loss: `packet overhead`, `copy engine`; empty if the peak is reached.
    pub held_by: String,
}

impl LossStep {
    /// Share of the previous rate that is lost, 0 to 1.
    pub fn share(&self) -> f64 {
        1.0 - self.to / self.from
    }
}

/// Values by row and column.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixBody {
    /// `GB/s`, `us`, `hops`.
    pub unit: String,
    /// Heading of the rows: `from`.
    pub row_axis: String,
    /// Heading of the columns: `to`.
    pub col_axis: String,
    /// Row labels.
    pub rows: Vec<String>,
    /// Column labels.
    pub cols: Vec<String>,
    /// Cells, `cells[row][col]`.
    pub cells: Vec<Vec<FigureCell>>,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
}

/// Values over size or threads; both axes are logarithmic unless all values are in one decade.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvesBody {
    /// Unit of the horizontal axis: `B`, `threads`.
    pub x_unit: String,
    /// Unit of the vertical axis.
    pub y_unit: String,
    /// Lines, in legend order.
    pub lines: Vec<ChartLine>,
    /// Horizontal lines: name and value.
    pub ceilings: Vec<(String, f64)>,
    /// Vertical lines: position and label, such as a cache size or a crossover.
    pub marks: Vec<(f64, String)>,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartLine {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, FigureCell)>,
}

/// Small charts with common axes, one for each operation.
#[derive(Debug, Clone, PartialEq)]
pub struct PanelsBody {
    /// Unit of the horizontal axis: `ranks`.
    pub x_unit: String,
    /// Unit of the vertical axis.
    pub y_unit: String,
    /// Charts, in reading order.
    pub panels: Vec<FigurePanel>,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
}

impl PanelsBody {
    /// Names of all lines, each once, in the order of their first appearance.
    pub fn line_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        names
    }
}

/// One of several small charts.
#[derive(Debug, Clone, PartialEq)]
pub struct FigurePanel {
    /// Name of the operation.
    pub name: String,
    /// Lines; a name has the same colour in all panels.
    pub lines: Vec<ChartLine>,
    /// Horizontal lines: name and value.
    pub levels: Vec<(String, f64)>,
    /// A bound that depends on x: positions and values, by ascending x.
    pub floor: Vec<(f64, f64)>,
}

/// Values side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct BarsBody {
    /// Unit of the values.
    pub unit: String,
    /// Bars, top to bottom.
    pub bars: Vec<FigureBar>,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureBar {
    /// Label.
    pub label: String,
    /// Its value.
    pub cell: FigureCell,
}

/// Values with different units: one quantity per column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SheetBody {
    /// Heading of the rows.
    pub row_axis: String,
    /// Quantities, left to right.
    pub columns: Vec<SheetColumn>,
    /// Rows, top to bottom, each with one cell per column.
    pub rows: Vec<(String, Vec<FigureCell>)>,
}

/// One quantity of a sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct SheetColumn {
    /// Heading: `p99`.
    pub name: String,
    /// Unit; empty for a plain number.
    pub unit: String,
    /// Whether higher or lower is better.
    pub better: BetterWhen,
}

/// Parts of a whole, one whole per row.
#[derive(Debug, Clone, PartialEq)]
pub struct StacksBody {
    /// Name of the whole: `time in calls`.
    pub whole: String,
    /// Rows, top to bottom.
    pub stacks: Vec<FigureStack>,
}

/// One whole with its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureStack {
    /// Label.
    pub label: String,
    /// Parts in descending order.
    pub parts: Vec<StackPart>,
}

/// A part of a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StackPart {
    /// Name of the part, such as a function.
    pub name: String,
    /// Number and time of the calls: `1280 calls of 41.2 us`.
    pub detail: String,
    /// Share in percent.
    pub cell: FigureCell,
}

/// Differences between two kinds of cases by row and column, for several statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct GapsBody {
    /// What is compared: `latency`, `throughput`.
    pub quantity: String,
    /// `us`.
    pub unit: String,
    /// Name of the subtrahend: `host`.
    pub base: String,
    /// Name of the minuend: `gpu0`.
    pub other: String,
    /// Heading of the rows: `threads`.
    pub row_axis: String,
    /// Heading of the columns: `depth`.
    pub col_axis: String,
    /// Row labels.
    pub rows: Vec<String>,
    /// Column labels.
    pub cols: Vec<String>,
    /// Statistics: name, and its cells by row and column.
    pub panels: Vec<(String, Vec<Vec<PairedGap>>)>,
}

/// A difference between alternating samples of two cases.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairedGap {
    /// Median of the paired differences, with its interval.
    pub cell: FigureCell,
    /// The subtrahend, over all samples.
    pub base: Option<f64>,
    /// The minuend, over all samples.
    pub other: Option<f64>,
    /// Number of sample pairs.
    pub pairs: usize,
    /// Whether the interval contains zero.
    pub is_zero: bool,
    /// Reason if the difference is due to a queue and not the copy: one of the two cases is
    /// saturated.
    pub saturated: Option<String>,
}

impl PairedGap {
    /// The difference relative to the subtrahend.
    pub fn relative(&self) -> Option<f64> {
        let base = self.base.filter(|b| *b > 0.0)?;
        Some(self.cell.value? / base)
    }
}

/// Identity of a run: node, devices, versions, time. Unknown texts are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunIdentity {
    /// Name of the host, or of the machine description: `machine mi250x`.
    pub node: String,
    /// GPUs in their vendor's units: `4 x AMD Instinct MI250X, 8 GCDs`. Empty without GPUs.
    pub gpus: String,
    /// Part and package of each GPU: `gpu0+1 = GCD 0+1 of MI250X #0, gpu2+3 = #1`. Empty if each
    /// GPU is a package.
    pub packages: String,
    /// Which GPU of its host each rank's GPU is: `r0.gpu0 = GPU 4 of its host (0000:c1:00.0)`. Empty
    /// where each process numbers them as its host does.
    pub rank_gpus: String,
    /// Model of the processor.
    pub processor: String,
    /// Driver of the GPUs: `driver 580.159.04`. Empty for a model.
    pub driver: String,
    /// Number of processes that measured together; 0 for a run of one process.
    pub ranks: usize,
    /// Nodes that these processes ran on.
    pub nodes: usize,
    /// Start of the run: `2026-11-22 05:04 UTC`.
    pub started: String,
    /// Duration: `41.3 s`. Empty for an incomplete run.
    pub duration: String,
    /// Version of pathline during the measurement.
    pub version: String,
    /// The command line; if an option is repeated often, only some of its values.
    pub command: String,
    /// Serial numbers, firmware and addresses of host, GPUs and adapters: name and text. Empty for a model.
    pub parts: Vec<(String, String)>,
}

/// The contents of a run's report.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// `this host` or the machine description's title.
    pub title: String,
    /// Node, devices, date and command.
    pub identity: RunIdentity,
    /// Name of the simulated machine; `None` for hardware.
    pub simulated: Option<String>,
    /// Set if other programs disturbed the run; every form of the report begins with it.
    pub busy: Option<BusyReport>,
    /// Headline findings, best first: one sentence each.
    pub headlines: Vec<Headline>,
    /// Figures in suite order.
    pub figures: Vec<Figure>,
    /// Cases without figures: case text, `skipped` or `faulted`, reason.
    pub absences: Vec<MissingCase>,
    /// Warnings about this run, its node and its journal.
    pub warnings: Vec<RunWarning>,
    /// Conditions of the run: label and value, in display order.
    pub conditions: Vec<(String, String)>,
    /// GPUs, and their clocks, limits and links.
    pub gpus: Vec<(String, String)>,
    /// State of the machine during the run: first and last reading.
    pub state: Option<(Conditions, Conditions)>,
    /// Whether the run ended as planned.
    pub complete: bool,
}

impl RunReport {
    /// Warnings by code, the most frequent first; those of a code in descending order of the
    /// greatest percentage in their texts.
    pub fn warnings_by_code(&self) -> Vec<(&str, Vec<&RunWarning>)> {
        let mut groups: Vec<(&str, Vec<&RunWarning>)> = Vec::new();
        for warning in &self.warnings {
            match groups.iter_mut().find(|(code, _)| *code == warning.code) {
                Some((_, known)) => known.push(warning),
                None => groups.push((&warning.code, vec![warning])),
            }
        }
        for (_, group) in &mut groups {
            group.sort_by(|a, b| {
                greatest_percentage(&b.text).total_cmp(&greatest_percentage(&a.text))
            });
        }
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
        groups
    }
}

/// The greatest percentage in a text, ignoring signs; 0 if there is none.
fn greatest_percentage(text: &str) -> f64 {
    let parts = text.split('%').map(str::trim_end);
    let number = |part: &str| {
        let start = part.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
        part.get(start..)?.parse::<f64>().ok()
    };
    let all = text.matches('%').count();
    parts.take(all).filter_map(number).fold(0.0, f64::max)
}

/// One sentence of the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headline {
    /// One sentence.
    pub text: String,
    /// Its severity.
    pub tone: HeadlineTone,
    /// Whether the first screen lists it after the findings: no finding says the same.
    pub is_listed: bool,
}

/// Severity of a headline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadlineTone {
    /// As expected.
    Good,
    /// Informative.
    Plain,
    /// Needs attention.
    Warn,
}

/// A warning about a result or about the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWarning {
    /// Code of its kind: `bimodal`, `drift`, `topology`.
    pub code: String,
    /// The case, device or run concerned.
    pub subject: String,
    /// Observation and consequence.
    pub text: String,
}

/// A case without figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// Whether it failed; otherwise it was skipped.
    pub faulted: bool,
    /// Reason.
    pub why: String,
}

/// Minimum and maximum; `(inf, -inf)` for no values.
pub fn extremes(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 +-0.4 over 4 +-0.1 is 2 +-(5 % + 2.5 %).
    #[test]
    fn a_ratio_has_an_interval_only_where_both_sides_have_one() {
        let cell = |value, half_width, few| FigureCell {
            value: Some(value),
            half_width,
            few,
            ..FigureCell::default()
        };
        let (both, alone) = (cell(8.0, 0.4, None), cell(4.0, 0.1, None));
        assert_eq!(both.ratio_to(&alone).unwrap().number_text().unwrap(), "2.00 ±0.15");
        let few = cell(4.0, 4.0, Some(3));
        for (a, b) in [(&both, &few), (&few, &both), (&few, &few)] {
            let text = a.ratio_to(b).unwrap().number_text().unwrap();
            assert!(!text.contains('±'), "{text}");
        }
        assert_eq!(both.ratio_to(&FigureCell::default()), None);
    }
}
