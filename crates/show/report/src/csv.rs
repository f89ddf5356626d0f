//! Records as tables for other programs.

use std::borrow::Cow;

use pathline_flow::Network;
use pathline_published::{SensitivityReport, ValidationReport};
use pathline_schema::{CaseOutcome, CaseTimes, FlowSeries, Journal, Ns, WorldKind, plain_text};
use pathline_stats::SeriesSummary;

use pathline_explain::figure::{LossBreakdown, NodeInterval};
use pathline_explain::figures::StorageSummary;
use pathline_explain::model_agreement::ModelAgreement;
use pathline_explain::run::{CaseQuantity, RunView};
use pathline_explain::shown_value::ShownValue;

const COLUMNS: &str = "case,suites,world,outcome,flow,rank,quantity,unit,median,low95,high95,p5,\
    p95,min,max,samples,moved_bytes,reps,steps,timer,engine,cpus,stop,warmup,\
    verdict,ceiling,bound,route,narrowest,bound_by,published,published_source,why,\
    iops,first_done_iops,lat_min_us,lat_p50_us,lat_p99_us,lat_p999_us,lat_max_us,\
    cpu_us_per_io,requests_per_io,repeats,node_low95,node_high95,origin";

/// Columns for I/O only.
const OF_IO: usize = 9;
/// Columns for runs with repeats only.
const OF_REPEATS: usize = 3;

const RAW_COLUMNS: [&str; 10] =
    ["case", "world", "flow", "rank", "timer", "reps", "steps", "moved_bytes", "sample", "ns"];

/// One row per series, and one for every case without figures. Rates are payload in GB/s (1e9 B/s),
/// latencies ns per step, according to `quantity`. The ceiling is that of the whole case. File I/O
/// adds nine columns. In a run with at least 3 repeats, cases of one flow add three: number of
/// repeats that measured it, and the interval between their processes. `origin` is the weakest
/// origin of the constants behind a simulated value. A text that a spreadsheet would take for a
/// formula gets an apostrophe in front.
pub fn export(journal: &Journal, network: Option<&Network>) -> String {
    let run = RunView::new(journal, network);
    let columns = COLUMNS.split(',').count();
    let mut table = CsvTable::new(&COLUMNS.split(',').collect::<Vec<&str>>());
    for outcome in &journal.outcomes {
        let text = outcome.case().to_string();
        let plain = |suites: &[String], state: &str, why: &str| {
            let mut row = vec![text.clone(), suites.join(" "), world(journal), state.to_owned()];
            row.resize(columns - OF_IO - OF_REPEATS - 2, String::new());
            row.push(why.to_owned());
            row.resize(columns, String::new());
            row
        };
        match outcome {
            CaseOutcome::Skipped(s) => table.row(&plain(&s.suites, "skipped", &s.why)),
            CaseOutcome::Faulted(f) => table.row(&plain(&f.suites, "faulted", &f.error)),
            CaseOutcome::Measured(m) => {
                let stop = (m.stop.reason.word(), m.stop.warmup.to_string());
                let verdict = match &m.verdict {
                    pathline_schema::VerifyResult::Verified => "verified".to_owned(),
                    pathline_schema::VerifyResult::Unverified(why) => format!("unverified: {why}"),
                };
                let head = [text.clone(), m.suites.join(" "), world(journal), "measured".into()];
                let tail = [stop.0.to_owned(), stop.1, verdict];
                series(&run, &mut table, &m.case, &m.series, head, tail);
            }
        }
    }
    for part in &journal.partial {
        let head =
            [part.case.to_string(), part.suites.join(" "), world(journal), "unfinished".into()];
        let tail = [String::new(), String::new(), String::new()];
        series(&run, &mut table, &part.case, &part.series, head, tail);
    }
    table.text()
}

fn series(
    run: &RunView,
    table: &mut CsvTable,
    case: &pathline_schema::Case,
    all: &[FlowSeries],
    head: [String; 4],
    tail: [String; 3],
) {
    let entry = run.entry(case);
    for series in all {
        let timed_alone = series.flow.by.wire().is_some_and(|w| w.op.is_timed_alone());
        let step = timed_alone
            || series.flow.by.is_chase()
            || case.cadence == pathline_schema::Cadence::Isolated;
        let (name, quantity) =
            if step { ("latency", CaseQuantity::StepNs) } else { ("rate", CaseQuantity::Payload) };
        let values: Vec<f64> = if step {
            series.latencies().map(|ns| ns.0).collect()
        } else {
            series.rates().map(pathline_schema::Rate::gbs).collect()
        };
        let cell = entry.map(|e| run.cell(e, quantity)).unwrap_or_default();
        let published = cell.published.filter(|_| all.len() == 1);
        let s = SeriesSummary::of(&values);
        let one = std::slice::from_ref(series);
        let shown = if step {
            ShownValue::new(&CaseTimes::slowest_step(one))
        } else {
            ShownValue::rate(&CaseTimes::slowest_flow(one), series.moved_bytes.as_f64())
        };
        let interval = shown.and_then(|s| s.interval);
        let stat =
            |f: fn(&SeriesSummary) -> f64| s.as_ref().map_or(String::new(), |s| f(s).to_string());
        let maybe = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let mut row = head.to_vec();
        row.extend([series.flow.to_string(), series.rank.0.to_string()]);
        row.extend([name.to_owned(), quantity.unit().to_owned()]);
        row.push(maybe(shown.map(|s| s.value)));
        row.extend([maybe(interval.map(|i| i.low)), maybe(interval.map(|i| i.high))]);
        row.extend([stat(|s| s.p5), stat(|s| s.p95), stat(|s| s.min), stat(|s| s.max)]);
        row.push(values.len().to_string());
        row.extend([series.moved_bytes.0.to_string(), series.reps.to_string()]);
        row.extend([series.steps.to_string(), series.timer.to_string(), series.engine.clone()]);
        row.push(series.cpus.to_string());
        row.extend(tail.clone());
        row.extend([maybe(cell.ceiling), maybe(cell.bound)]);
        row.extend(cell.path.map_or_else(Default::default, path));
        row.push(maybe(published.as_ref().map(|p| p.value)));
        row.push(published.map_or(String::new(), |p| format!("{}: {}", p.kind.label(), p.source)));
        // Marks what the number alone does not show in a spreadsheet.
        let suspicion = entry.and_then(|e| run.suspicion(e));
        row.push(suspicion.map_or(String::new(), |s| s.text()));
        row.extend(of_io(series).map(maybe));
        row.extend(cell.node.filter(|_| all.len() == 1).map_or_else(Default::default, of_node));
        row.push(cell.origin.map_or(String::new(), |origin| origin.to_string()));
        table.row(&row);
    }
}

/// Number of processes that measured the case, and the interval between them.
fn of_node(node: NodeInterval) -> [String; OF_REPEATS] {
    [node.repeats.to_string(), node.low.to_string(), node.high.to_string()]
}

/// Medians over samples; latencies over all samples together.
fn of_io(series: &FlowSeries) -> [Option<f64>; OF_IO] {
    let Some(io) = StorageSummary::from_series(series) else { return [None; OF_IO] };
    let [min, half, p99, p999, max] = io.latency;
    [io.iops, io.first_iops, min, half, p99, p999, max, io.cpu_us, io.requests]
}

/// Route, narrowest hop, and final limit of the case.
fn path(path: LossBreakdown) -> [String; 3] {
    let bound_by = path.losses.into_iter().next_back().map_or(String::new(), |l| l.why);
    [path.route, path.narrowest, bound_by]
}

/// One row per sample: the raw durations in ns of each timed flow, in order of measurement.
pub fn export_raw(journal: &Journal) -> String {
    let mut table = CsvTable::new(&RAW_COLUMNS);
    let measured = journal.outcomes.iter().filter_map(|o| match o {
        CaseOutcome::Measured(m) => Some((&m.case, &m.series)),
        _ => None,
    });
    let partial = journal.partial.iter().map(|p| (&p.case, &p.series));
    for (case, all) in measured.chain(partial) {
        for series in all {
            let head = [
                case.to_string(),
                world(journal),
                series.flow.to_string(),
                series.rank.0.to_string(),
                series.timer.to_string(),
                series.reps.to_string(),
                series.steps.to_string(),
                series.moved_bytes.0.to_string(),
            ];
            for (n, ns) in series.samples_ns.iter().enumerate() {
                let mut row = head.to_vec();
                row.extend([n.to_string(), ns.to_string()]);
                table.row(&row);
            }
        }
    }
    table.text()
}

/// A table with a row per constant: the published rows that hold it, in all and by class.
pub fn export_sensitivity(report: &SensitivityReport) -> String {
    let mut table = CsvTable::new(&[
        "constant", "origin", "values", "rows", "largest", "row", "classes", "refused",
    ]);
    for c in &report.constants {
        let classes: Vec<String> =
            c.held_by.iter().map(|(class, n)| format!("{n} {class}")).collect();
        table.row(&[
            c.constant.key.clone(),
            c.constant.origin.map_or_else(String::new, |origin| origin.to_string()),
            c.constant.values.len().to_string(),
            c.rows().to_string(),
            c.largest.to_string(),
            c.row.clone(),
            classes.join("; "),
            c.refused.clone().unwrap_or_default(),
        ]);
    }
    table.text()
}

/// A table with a row per compared value, then a row per skipped value.
pub fn export_scores(report: &ValidationReport) -> String {
    let mut table = CsvTable::new(&[
        "class",
        "row",
        "predicted",
        "low",
        "high",
        "unit",
        "error",
        "data",
        "targets",
        "source",
        "how",
    ]);
    for c in &report.compared {
        table.row(&[
            c.class.clone(),
            c.label.clone(),
            c.predicted.to_string(),
            c.measured.low.to_string(),
            c.measured.high.to_string(),
            c.unit.clone(),
            c.error().to_string(),
            c.data.to_string(),
            c.targets.join(" "),
            c.source.clone(),
            c.how.clone(),
        ]);
    }
    for l in &report.left_out {
        let why = format!("left out: {}", l.reason);
        let empty = String::new;
        let record = [
            empty(),
            l.label.clone(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            why,
        ];
        table.row(&record);
    }
    table.text()
}

/// A table with a row per set, then a row per skipped case.
pub fn export_agreement(agreement: &ModelAgreement) -> String {
    let mut table = CsvTable::new(&[
        "class",
        "flows",
        "predicted_us",
        "low_us",
        "high_us",
        "nearest_order_us",
        "measured_us",
        "error",
        "inside",
        "orders",
        "bound_by",
        "case",
    ]);
    for s in &agreement.sets {
        let us = |ns: Ns| (ns.0 / 1e3).to_string();
        let set = s.predicted.set;
        table.row(&[
            s.kind.name().to_owned(),
            s.case.flows().count().to_string(),
            us(set.typical),
            us(set.low),
            us(set.high),
            us(s.nearest),
            us(s.measured),
            s.error().to_string(),
            s.inside().to_string(),
            s.predicted.uncertainty.orders.possible.to_string(),
            s.bounds(),
            s.case.to_string(),
        ]);
    }
    for (case, why) in &agreement.left_out {
        let mut record = vec![String::new(); 10];
        record.extend([format!("left out: {why}"), case.to_string()]);
        table.row(&record);
    }
    table.text()
}

fn world(journal: &Journal) -> String {
    match &journal.begin.world {
        WorldKind::Real => "real".into(),
        WorldKind::Simulated(name) => format!("simulated:{name}"),
    }
}

/// A table under construction. Its texts stay texts in every program.
pub(crate) struct CsvTable(::csv::Writer<Vec<u8>>);

impl CsvTable {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Self(::csv::WriterBuilder::new().flexible(true).from_writer(Vec::new()));
        table.row(&columns.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>());
        table
    }
    pub(crate) fn row(&mut self, fields: &[String]) {
        // Writing to memory does not fail, and rows may differ in length.
        let _infallible = self.0.write_record(fields.iter().map(|field| inert(field).into_owned()));
    }
    pub(crate) fn text(self) -> String {
        let bytes = self.0.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A cell that is neither a formula for a spreadsheet nor a control sequence for a terminal. Quotes
/// do not prevent a spreadsheet from evaluating texts that start with these characters; an
/// apostrophe in front does (OWASP, "CSV Injection"). Numbers are unchanged.
fn inert(cell: &str) -> Cow<'_, str> {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let is_number = cell.contains(|c: char| c.is_ascii_digit()) && cell.parse::<f64>().is_ok();
    let plain = plain_text(cell);
    if is_formula && !is_number { format!("'{plain}").into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts_and_numbers_numbers() {
        for text in ["=1+1", "+SUM(A1)", "-2+3", "@SUM(A1)", "\t=1", "\n=1", "-inf", "-"] {
            assert_eq!(inert(text), format!("'{text}"));
        }
        assert_eq!(inert("\r=1"), "'\u{fffd}=1");
        for number in ["-1", "+0.5", "-1e-9", "-53687091.2", "12"] {
            assert_eq!(inert(number), number);
        }
        assert_eq!(inert("r0.gpu0.vram > r0.gpu1.vram"), "r0.gpu0.vram > r0.gpu1.vram");
        assert_eq!(inert("a=1, line\nof two"), "a=1, line\nof two");
        assert_eq!(inert("\u{1b}]0;x\u{7}"), "\u{fffd}]0;x\u{fffd}");
    }
}
