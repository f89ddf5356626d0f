//! What a report shows, as data: the terminal, the HTML page and the CSV render the same figures.

pub use pathline_published::{PublishedValue, SourceKind};
use pathline_schema::{Case, Conditions, ConstantOrigin};

pub use crate::busy::BusyReport;

/// Data for a picture with its table, its finding and the command that measures it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Stable anchor: `pairs-dma`.
    pub id: String,
    /// Suite that it shows.
    pub suite: String,
    /// One line.
    pub title: String,
    /// Result in numbers: two or three sentences.
    pub finding: String,
    /// The command that measures just this.
    pub command: String,
    /// The data.
    pub body: FigureBody,
}

impl Figure {
    /// Every cell.
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
            FigureBody::Gaps(g) => {
                Box::new(g.panels.iter().flat_map(|p| p.1.iter().flatten().map(|g| &g.cell)))
            }
        }
    }
    /// Whether at least one cell was measured.
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
    /// Parts of a whole, one whole a row.
    Stacks(StacksBody),
    /// Differences by row and column, one panel a statistic.
    Gaps(GapsBody),
}

/// Whether more or less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetterWhen {
    /// Bandwidth.
    Higher,
    /// Latency.
    Lower,
    /// Neither: a number of hops.
    Neither,
}

/// One value with everything that judges it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FigureCell {
    /// The value, in the figure's unit: the median.
    pub value: Option<f64>,
    /// Half width of its 95 % interval, in the figure's unit; the value itself where it has none, of too
    /// few samples or of a simulated value that rests on an assumed constant.
    pub half_width: f64,
    /// Number of samples, where they are too few for an interval.
    pub few: Option<usize>,
    /// The interval between processes, in the figure's unit; of a run with at least 3 repeats.
    pub node: Option<NodeInterval>,
    /// What bounds it, in the figure's unit: the peak of its narrowest hop, or a best of the
    /// machine that was measured.
    pub ceiling: Option<f64>,
    /// A tighter bound, where one is known (engine, protocol).
    pub bound: Option<f64>,
    /// Route and losses on it; none if the machine description does not cover the case.
    pub path: Option<LossBreakdown>,
    /// Published value for the same case.
    pub published: Option<PublishedValue>,
    /// Why there is no value: a skip's reason or a fault's error.
    pub absent: Option<String>,
    /// The case that was measured.
    pub case: Option<Case>,
    /// Clocks, power and temperature while it ran, one text a GPU.
    pub gpus: Vec<String>,
    /// Why the value is suspect.
    pub suspect: Option<Suspicion>,
    /// The weakest origin of the constants that a simulated value rests on.
    pub origin: Option<ConstantOrigin>,
}

/// The 95 % interval of a value of this node, whichever process measures it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeInterval {
    /// Processes that measured it, each with new buffers and clocks.
    pub repeats: usize,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl FigureCell {
    /// Whether its half width is that of an interval.
    pub fn has_interval(&self) -> bool {
        self.value.is_some() && self.few.is_none() && self.origin != Some(ConstantOrigin::Assumed)
    }
    /// Value over ceiling: 0 to 1, and above where the ceiling is exceeded.
    pub fn share_of_ceiling(&self) -> Option<f64> {
        let ceiling = self.ceiling.filter(|c| *c > 0.0)?;
        Some(self.value? / ceiling)
    }
}

/// Why a value is suspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspicion {
    /// Above the peak of the hardware: by how much, and where.
    BeyondCeiling(String),
    /// Other programs used the machine while it was measured: which.
    Busy(String),
    /// Its bytes were not compared after the transfer: why not.
    Unverified(String),
    /// A simulated value that rests on a constant of the model that nobody measured or stated.
    Assumed,
}

impl Suspicion {
    /// Mark behind the value on a terminal.
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

/// Route of a case, and the steps from its peak down to what the model predicts.
#[derive(Debug, Clone, PartialEq)]
pub struct LossBreakdown {
    /// Units passed by the first flow, ends included: `0-1-5`, `numa3-gpu0`.
    pub route: String,
    /// The hop with the least theoretical peak.
    pub narrowest: String,
    /// From the peak down to what the model lets through; empty for a latency.
    pub losses: Vec<LossStep>,
}

/// One step from the peak down, in the figure's unit.
#[derive(Debug, Clone, PartialEq)]
pub struct LossStep {
    /// Rate before this step.
    pub from: f64,
    /// Rate after it.
    pub to: f64,
    /// What kind of cause it is.
    pub kind: LossKind,
    /// Cause of the loss.
    pub why: String,
}

/// What kind of cause lowers a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LossKind {
    /// Headers of packets, and forwarding by other units.
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

/// Paths of one class with what they lose: a row of the table that explains a figure. Rates are in
/// the figure's unit, as the least and the greatest of the class.
#[derive(Debug, Clone, PartialEq)]
pub struct LossClassRow {
    /// The hop with the least peak: `xGMI, 1 link`.
    pub hop: String,
    /// Whether other GPUs forward.
    pub forwarded: bool,
    /// Number of paths.
    pub paths: usize,
    /// Theoretical peak of the hop.
    pub peak: (f64, f64),
    /// What packets and forwarding leave of it.
    pub after_protocol: (f64, f64),
    /// What an engine or shared resource allows, if that is less.
    pub limit: Option<(f64, f64)>,
    /// Measured rates.
    pub measured: (f64, f64),
    /// Median of measured rate over peak: 0 to 1, and above where the peak is exceeded.
    pub share: f64,
    /// What sets the rate: `packet overhead`, `copy engine`; empty if the peak is reached.
    pub held_by: String,
}

impl LossStep {
    /// Lost share of the rate before, 0 to 1.
    pub fn share(&self) -> f64 {
        1.0 - self.to / self.from
    }
}

/// Values by row and column.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixBody {
    /// `GB/s`, `us`, `hops`.
    pub unit: String,
    /// What the rows are: `from`.
    pub row_axis: String,
    /// What the columns are: `to`.
    pub col_axis: String,
    /// Row labels.
    pub rows: Vec<String>,
    /// Column labels.
    pub cols: Vec<String>,
    /// Cells, `cells[row][col]`.
    pub cells: Vec<Vec<FigureCell>>,
    /// Whether more or less is better.
    pub better: BetterWhen,
}

/// Values over size (or threads), both axes logarithmic unless all values are of one decade.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvesBody {
    /// Unit of the horizontal axis: `B`, `threads`.
    pub x_unit: String,
    /// Unit of the vertical axis.
    pub y_unit: String,
    /// Lines, in legend order.
    pub lines: Vec<ChartLine>,
    /// Horizontal lines: name and height.
    pub ceilings: Vec<(String, f64)>,
    /// Vertical lines: place and label, such as a cache size or a crossover.
    pub marks: Vec<(f64, String)>,
    /// Whether more or less is better.
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

/// Values side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct BarsBody {
    /// Unit.
    pub unit: String,
    /// Bars, top to bottom.
    pub bars: Vec<FigureBar>,
    /// Whether more or less is better.
    pub better: BetterWhen,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureBar {
    /// Its name.
    pub label: String,
    /// Its value.
    pub cell: FigureCell,
}

/// Values of several units: one quantity a column.
#[derive(Debug, Clone, PartialEq)]
pub struct SheetBody {
    /// What the rows are.
    pub row_axis: String,
    /// Quantities, left to right.
    pub columns: Vec<SheetColumn>,
    /// Rows, top to bottom, each with a cell a column.
    pub rows: Vec<(String, Vec<FigureCell>)>,
}

/// One quantity of a sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct SheetColumn {
    /// What it is: `p99`.
    pub name: String,
    /// Its unit; empty of a mere number.
    pub unit: String,
    /// Whether more or less is better.
    pub better: BetterWhen,
}

/// Parts of a whole, one whole a row.
#[derive(Debug, Clone, PartialEq)]
pub struct StacksBody {
    /// What the whole is: `time in calls`.
    pub whole: String,
    /// Rows, top to bottom.
    pub stacks: Vec<FigureStack>,
}

/// One whole.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureStack {
    /// Its name.
    pub label: String,
    /// Its parts, the greatest first.
    pub parts: Vec<StackPart>,
}

/// A part of a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StackPart {
    /// Its name: a function's.
    pub name: String,
    /// Number and time of the calls: `1280 calls of 41.2 us`.
    pub detail: String,
    /// Its share in percent.
    pub cell: FigureCell,
}

/// What one thing takes more than another, by row and column, of several statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct GapsBody {
    /// `us`.
    pub unit: String,
    /// What is subtracted: `host`.
    pub base: String,
    /// From what: `gpu0`.
    pub other: String,
    /// What the rows are: `threads`.
    pub row_axis: String,
    /// What the columns are: `depth`.
    pub col_axis: String,
    /// Row labels.
    pub rows: Vec<String>,
    /// Column labels.
    pub cols: Vec<String>,
    /// Statistics: name, and its cells by row and column.
    pub panels: Vec<(String, Vec<Vec<PairedGap>>)>,
}

/// One difference, from samples taken in turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairedGap {
    /// The median of the paired differences, and its interval.
    pub cell: FigureCell,
    /// What is subtracted, of all samples together.
    pub base: Option<f64>,
    /// From what.
    pub other: Option<f64>,
    /// Pairs of samples.
    pub pairs: usize,
    /// Whether the interval contains zero.
    pub is_zero: bool,
    /// Why the difference is a queue's and not the copy's: one of the two is saturated.
    pub saturated: Option<String>,
}

impl PairedGap {
    /// The difference over what is subtracted.
    pub fn relative(&self) -> Option<f64> {
        let base = self.base.filter(|b| *b > 0.0)?;
        Some(self.cell.value? / base)
    }
}

/// Which node a run measured, with what, and when. Empty texts are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunIdentity {
    /// Name of the host, or of the machine description: `machine mi250x`.
    pub node: String,
    /// GPUs as their vendor counts them: `4 x AMD Instinct MI250X, 8 GCDs`. Empty without GPUs.
    pub gpus: String,
    /// Which part of which package each GPU is: `gpu0+1 = GCD 0+1 of MI250X #0, gpu2+3 = #1`. Empty
    /// where each GPU is a package.
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
    /// When it began: `2026-11-22 05:04 UTC`.
    pub started: String,
    /// How long it took: `41.3 s`. Empty for a run that was cut off.
    pub duration: String,
    /// Version of pathline that measured.
    pub version: String,
    /// The command line, with few of the values of an option that is repeated often.
    pub command: String,
}

/// Everything that a report shows of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// `this host` or the machine description's title.
    pub title: String,
    /// Node, devices, date and command.
    pub identity: RunIdentity,
    /// Name of the simulated machine, if figures are the model's.
    pub simulated: Option<String>,
    /// That other programs disturbed the run; the first line of every form of the report.
    pub busy: Option<BusyReport>,
    /// Headline findings, best first: one sentence each, with its figures.
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
    /// State of the machine over the run: first and last reading.
    pub state: Option<(Conditions, Conditions)>,
    /// Whether the run ended as planned.
    pub complete: bool,
}

impl RunReport {
    /// Warnings by their code, the most frequent first; of each code the one that names the greatest
    /// percentage first.
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

/// The greatest percentage in a text, whatever its sign; 0 if there is none.
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
    /// How it is marked.
    pub tone: HeadlineTone,
}

/// How a headline is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadlineTone {
    /// As it should be.
    Good,
    /// Worth knowing.
    Plain,
    /// Worth a closer look.
    Warn,
}

/// A warning about a result or about the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWarning {
    /// Short name of its kind: `bimodal`, `drift`, `topology`.
    pub code: String,
    /// What it is about: a case, a device, the run.
    pub subject: String,
    /// What was seen and what follows.
    pub text: String,
}

/// A case without figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// Whether it failed, rather than could not be tried.
    pub faulted: bool,
    /// Why.
    pub why: String,
}

/// The least and the greatest value; of none, `(inf, -inf)`.
pub fn extremes(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}
