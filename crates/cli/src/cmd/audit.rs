//! `pathline advise --collectives`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use pathline_diagnose::{
    CollectiveCause, CollectiveRun, LedgerRow, NodeCut, PairedChoice, audit_rows, common_settings,
    describes, judge_causes, likely_causes, measured_exchanges,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_message::{ExchangeOp, ExchangeSpec, MessageLayer, MessageLibrary};
use pathline_place::phase_time;
use pathline_runner::MachineModel;
use pathline_schema::{
    Bytes, Case, CaseOutcome, Collective, CpuSet, Ns, Rate, plain_line, shell_word,
};

use super::audit_choices::{ChoiceTrials, collective_case};
use super::{ExitKind, judge_source};
use crate::args::AuditArgs;
use crate::files;
use crate::say::{outln, paragraph, width};

/// Operations of an audit without any named.
const USUAL: [Collective; 4] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
];

pub(super) fn run(args: &AuditArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.machine)?;
    let desc = model.desc();
    let by = library(desc);
    let mut exit = ExitKind::Fine;
    let mut runs = Vec::new();
    for path in &args.runs {
        let (run, source) = read_run(path, by)?;
        runs.push(run);
        exit = exit.worse(source);
    }
    if let Some(dir) = args.measure.as_deref().filter(|_| runs.is_empty()) {
        let wanted = exchanges(args, desc, by, &[])?;
        let (run, source) = measure_collectives(args, &wanted, &dir.join("collectives"), by)?;
        runs.push(run);
        exit = exit.worse(source);
    }
    let exchanges = exchanges(args, desc, by, &runs)?;
    let rows = audit_rows(desc, &exchanges, &runs).map_err(|e| anyhow!("{e}"))?;
    let trials = match args.set.is_empty() {
        true => None,
        false => Some(ChoiceTrials::new(args, &exchanges)?),
    };
    outln!("{} by {by}, model {} (simulated)\n", gpus_text(&exchanges), desc.name);
    let gains = trials.as_ref().map(ChoiceTrials::best_gains);
    table(&rows, gains.as_deref());
    match &trials {
        Some(trials) => trials.show(),
        None => show_pairs(&rows),
    }
    let common = common_settings(&runs).join(" ");
    if !common.is_empty() {
        paragraph(&format!("All runs have {common}: measured with that."), 0);
    }
    exit = exit.worse(name_untimed(args, &runs, &exchanges));
    let certified = certify(args, desc, &rows)?;
    let found = if describes(desc, by) {
        causes(desc, &rows)?
    } else {
        let text = format!(
            "{} does not describe {by}, so no cause is sought: times are compared with the bound alone. \
             A preset of the node has a model, such as --machine hgx-h100:0,1.",
            desc.name
        );
        paragraph(&text, 0);
        let is_measured = rows.iter().any(|row| row.measured.is_some());
        if is_measured { ExitKind::CouldNotJudge } else { ExitKind::Fine }
    };
    // Links that are slower than the model are a finding, whatever the library does.
    let cut_decides = found == ExitKind::Fine || certified == ExitKind::Wrong;
    Ok(exit.worse(if cut_decides { certified } else { found }))
}

/// Prints the operations over these GPUs that a run failed to time, and requested ones that no run has.
fn name_untimed(args: &AuditArgs, runs: &[CollectiveRun], exchanges: &[ExchangeSpec]) -> ExitKind {
    let members = exchanges.first().map(ExchangeSpec::members);
    let op = |exchange: &ExchangeSpec| match exchange.what {
        ExchangeOp::Collective { op, .. } => Some(op),
        _ => None,
    };
    let is_asked = |exchange: &ExchangeSpec| {
        op(exchange).is_some_and(|op| args.ops.is_empty() || args.ops.contains(&op))
    };
    let mut untimed: Vec<String> = Vec::new();
    for (exchange, why) in runs.iter().flat_map(|run| &run.untimed) {
        if Some(exchange.members()) == members && is_asked(exchange) {
            let op = op(exchange).map(|op| op.to_string()).unwrap_or_default();
            untimed.push(format!("{op} of {}: {}", exchange.bytes, plain_line(why)));
        }
    }
    let is_found = |asked: &&Collective| exchanges.iter().any(|e| op(e) == Some(**asked));
    let absent = args.ops.iter().filter(|op| !runs.is_empty() && !is_found(op));
    untimed.extend(absent.map(|op| format!("{op}: no run has it over these GPUs")));
    let Some(first) = untimed.first() else { return ExitKind::Fine };
    let more = untimed.len() - 1;
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    paragraph(&format!("! Not measured: {first}{more}."), 2);
    ExitKind::CouldNotJudge
}

/// The library of collectives that the machine describes, else that of its GPUs' vendor.
fn library(desc: &MachineDesc) -> MessageLibrary {
    let is_amd = || desc.topology().gpus.iter().any(|gpu| gpu.vendor == "amd");
    let nccl = desc.software.nccl.is_some();
    if desc.software.rccl.is_some() || (!nccl && is_amd()) {
        return MessageLibrary::Rccl;
    }
    MessageLibrary::Nccl { nvls: true }
}

fn read_run(path: &Path, by: MessageLibrary) -> Result<(CollectiveRun, ExitKind)> {
    let name = || path.display().to_string();
    let journal = files::read(path)?;
    let found = measured_exchanges(&journal, by);
    if found.times.is_empty() {
        let why = journal.outcomes.iter().find_map(|outcome| match outcome {
            CaseOutcome::Skipped(skip) => Some((skip.case.to_string(), skip.why.clone())),
            CaseOutcome::Faulted(fault) => Some((fault.case.to_string(), fault.error.clone())),
            _ => None,
        });
        match why {
            Some((case, why)) => bail!("{}: no collective was measured. {case}: {why}", name()),
            None => bail!(
                "{}: it has no collective; `pathline run ccl-collectives` measures some",
                name()
            ),
        }
    }
    Ok((found, judge_source(path, &journal)))
}

/// The named operations and sizes; without names, with runs, what these measured.
fn exchanges(
    args: &AuditArgs,
    desc: &MachineDesc,
    by: MessageLibrary,
    runs: &[CollectiveRun],
) -> Result<Vec<ExchangeSpec>> {
    let all: Vec<u32> = desc.topology().gpus.iter().map(|gpu| gpu.index).collect();
    let gpus = match &args.gpus {
        Some(chosen) => chosen.as_slice().to_vec(),
        None => all.clone(),
    };
    if let Some(missing) = gpus.iter().find(|gpu| !all.contains(gpu)) {
        bail!("gpu{missing}: this machine has {} GPUs", all.len());
    }
    if gpus.len() < 2 {
        let named = match gpus.first() {
            Some(gpu) if all.len() > 1 => format!("gpu{gpu} alone"),
            Some(_) => format!("{} has one GPU", desc.name),
            None => format!("{} has no GPU", desc.name),
        };
        bail!("{named}: a collective needs two GPUs at least");
    }
    let mut found: Vec<ExchangeSpec> = Vec::new();
    for (exchange, _) in runs.iter().flat_map(|run| &run.times) {
        let ExchangeOp::Collective { op, over } = &exchange.what else { continue };
        let own: Vec<u32> = over.iter().map(|member| member.gpu).collect();
        let named = args.ops.is_empty() || args.ops.contains(op);
        if named && own == gpus && !op.is_uneven() && !found.contains(exchange) {
            found.push(exchange.clone());
        }
    }
    found.sort_by_key(|exchange| (exchange.what.clone(), exchange.bytes));
    if !found.is_empty() {
        return Ok(found);
    }
    if !runs.is_empty() {
        let mut others = runs.iter().flat_map(|run| &run.times).filter_map(|(exchange, _)| {
            let ExchangeOp::Collective { over, .. } = &exchange.what else { return None };
            Some(CpuSet::new(over.iter().map(|member| member.gpu)))
        });
        let used = others.next().filter(|used| used.as_slice() != gpus);
        let used = used.map(|used| format!("; the run used {used}: add --gpus {used}"));
        let asked = CpuSet::new(gpus);
        bail!("no run has such an operation over GPUs {asked}{}", used.unwrap_or_default());
    }
    let ops = if args.ops.is_empty() { USUAL.to_vec() } else { args.ops.clone() };
    let each = |op: Collective| {
        let gpus = gpus.clone();
        args.bytes.iter().map(move |b| ExchangeSpec::collective(op, gpus.clone(), by, *b))
    };
    Ok(ops.into_iter().flat_map(each).collect())
}

fn gpus_text(exchanges: &[ExchangeSpec]) -> String {
    let members = exchanges.first().map(ExchangeSpec::members).unwrap_or_default();
    let gpus = CpuSet::new(members.iter().map(|member| member.gpu));
    format!("Collectives over GPUs {gpus}")
}

fn op_name(row: &LedgerRow) -> String {
    match &row.exchange.what {
        ExchangeOp::Collective { op, .. } => op.to_string(),
        _ => String::new(),
    }
}

/// A column of the ledger: its title and its cells; right-aligned but for names.
struct LedgerColumn {
    title: &'static str,
    cells: Vec<String>,
    is_name: bool,
}

impl LedgerColumn {
    fn new(
        title: &'static str,
        is_name: bool,
        rows: &[LedgerRow],
        cell: impl Fn(&LedgerRow) -> Option<String>,
    ) -> Self {
        let cells = rows.iter().map(|row| cell(row).unwrap_or_else(|| "-".to_owned())).collect();
        Self { title, cells, is_name }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(self.title.len())
    }

    fn pad(&self, text: &str) -> String {
        let width = self.width();
        if self.is_name { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Prints the ledger; `gains` are those of trials, row by row.
fn table(rows: &[LedgerRow], gains: Option<&[Option<f64>]>) {
    let model = |row: &LedgerRow| row.model.as_ref().map(|(time, _)| *time);
    let bound = |row: &LedgerRow| row.bound.as_ref().map(|(time, _)| *time);
    let ratio = |row: &LedgerRow| {
        let reached = row.measured.or(model(row)).zip(bound(row));
        reached.map(|(reached, bound)| format!("{:.2}", reached.0 / bound.0))
    };
    let text = |time: Option<Ns>| time.map(|time| time.to_string());
    let mut columns = vec![
        LedgerColumn::new("operation", true, rows, |row| Some(op_name(row))),
        LedgerColumn::new("size", false, rows, |row| Some(row.exchange.bytes.to_string())),
        LedgerColumn::new("measured", false, rows, |row| text(row.measured)),
        LedgerColumn::new("best gain", false, rows, |row| {
            let of_trials = || {
                let at = rows.iter().position(|other| std::ptr::eq(other, row))?;
                *gains?.get(at)?
            };
            let of_runs = row.choices.iter().filter_map(PairedChoice::gain);
            let gain = of_trials().or_else(|| of_runs.reduce(f64::max))?;
            Some(format!("{:+.1} %", gain * 100.0))
        }),
        LedgerColumn::new("model", false, rows, |row| text(model(row))),
        LedgerColumn::new("bound", false, rows, |row| text(bound(row))),
        LedgerColumn::new("ratio", false, rows, ratio),
        LedgerColumn::new("algorithm", true, rows, |row| {
            row.model.as_ref().map(|(_, algorithm)| algorithm.clone())
        }),
        LedgerColumn::new("bound by", true, rows, |row| {
            row.bound.as_ref().map(|(_, by)| by.clone())
        }),
    ];
    // What no row has is no column, and of the others those go first that a narrow page can do without.
    columns.retain(|column| column.cells.iter().any(|cell| cell != "-"));
    let total = |columns: &[LedgerColumn]| columns.iter().map(|c| c.width() + 2).sum::<usize>();
    for title in ["bound by", "algorithm"] {
        if total(&columns) > width() + 2 {
            columns.retain(|column| column.title != title);
        }
    }
    let line = |cells: Vec<String>| outln!("{}", cells.join("  ").trim_end());
    line(columns.iter().map(|column| column.pad(column.title)).collect());
    for nth in 0..rows.len() {
        let cell = |column: &LedgerColumn| column.pad(column.cells.get(nth).map_or("", |c| c));
        line(columns.iter().map(cell).collect());
    }
    outln!("\nratio: measured over bound, or model over bound where nothing was measured.");
}

/// What the flows over the binding cut of the largest operation reach, and the case that measures it.
fn certify(args: &AuditArgs, desc: &MachineDesc, rows: &[LedgerRow]) -> Result<ExitKind> {
    let largest = rows.iter().max_by_key(|row| row.exchange.bytes);
    let Some(cut) = largest.and_then(|row| row.cut.as_ref()) else { return Ok(ExitKind::Fine) };
    let topology = desc.topology();
    let network = Network::new(desc, RuntimeEnv::default())?;
    let Some(case) = cut.case(&topology) else { return Ok(ExitKind::Fine) };
    match cut.reached(&topology, &network) {
        Ok(rate) if args.measure.is_some() => return certify_cut(args, cut, &case, rate),
        Ok(rate) => {
            let text = format!(
                "The cut around {} has a peak of {}, links to the host included; all flows over it at once \
                 reach {rate} by the model. Measure it: pathline run '{case}'",
                cut.text(),
                cut.peak
            );
            paragraph(&text, 0);
        }
        Err(why) => paragraph(&format!("The cut around {} cannot be loaded: {why}", cut.text()), 0),
    }
    Ok(ExitKind::Fine)
}

/// Measured copies over a cut that are further below their model than this make the bound uncertain.
const CERTIFIED: f64 = 0.97;

/// Measures the copies over the binding cut, all at once, and compares them with the model.
fn certify_cut(args: &AuditArgs, cut: &NodeCut, case: &Case, model: Rate) -> Result<ExitKind> {
    let dir = args.measure.as_deref().context("--measure names no folder")?.join("cut");
    measure(args, &dir, &[case.to_string()], None)?;
    let bytes: u64 = case.timed.iter().map(|flow| flow.bytes.0).sum();
    let time = files::read(&dir)?.outcomes.iter().find_map(|outcome| match outcome {
        CaseOutcome::Measured(m) => phase_time(&m.series),
        _ => None,
    });
    let Some(time) = time else {
        let text = format!(
            "! the cut around {} was not measured; see `pathline report {}`",
            cut.text(),
            shell_word(&dir.to_string_lossy())
        );
        paragraph(&text, 2);
        return Ok(ExitKind::CouldNotJudge);
    };
    let rate = Rate::of(Bytes(bytes), time);
    let share = rate.0 / model.0;
    let is_sound = share >= CERTIFIED;
    let text = format!(
        "{}The cut around {}: all flows over it at once reach {rate}, {:.1} % of the {model} of the model; \
         its peak is {}.",
        if is_sound { "" } else { "! " },
        cut.text(),
        share * 100.0,
        cut.peak
    );
    paragraph(&text, 2);
    if is_sound {
        outln!("The bound is certified: what a collective loses above it is not the links.");
        return Ok(ExitKind::Fine);
    }
    outln!("  The links of the cut are slower than the model: pathline health names them.");
    Ok(ExitKind::Wrong)
}

/// Runs cases in a new folder, on what --on names.
fn measure(args: &AuditArgs, dir: &Path, cases: &[String], ranks: Option<usize>) -> Result<()> {
    let folder = dir.to_string_lossy().into_owned();
    let ranks = ranks.map(|ranks| ranks.to_string());
    let mut command = vec!["run", "--out", &folder];
    command.extend(ranks.iter().flat_map(|ranks| ["--ranks", ranks.as_str()]));
    let machine = args.on.as_deref().unwrap_or(&args.machine);
    if machine != "here" {
        command.extend(["--machine", machine]);
    }
    command.extend(cases.iter().flat_map(|case| ["--case", case.as_str()]));
    super::run::run_silently(&command)?;
    Ok(())
}

/// Measures collectives of all sizes, each GPU by a process.
fn measure_collectives(
    args: &AuditArgs,
    exchanges: &[ExchangeSpec],
    dir: &Path,
    by: MessageLibrary,
) -> Result<(CollectiveRun, ExitKind)> {
    let mut cases = Vec::new();
    let mut ranks = 0;
    for exchange in exchanges {
        ranks = ranks.max(exchange.members().len());
        cases.push(collective_case(exchange)?.to_string());
    }
    measure(args, dir, &cases, Some(ranks))?;
    read_run(dir, by)
}

/// Names the cause of what measured operations lose, by operation.
fn causes(desc: &MachineDesc, rows: &[LedgerRow]) -> Result<ExitKind> {
    let mut curves: BTreeMap<String, Vec<(ExchangeSpec, Ns)>> = BTreeMap::new();
    for row in rows {
        if let Some(time) = row.measured {
            curves.entry(op_name(row)).or_default().push((row.exchange.clone(), time));
        }
    }
    let mut exit = ExitKind::Fine;
    if curves.is_empty() {
        return Ok(exit);
    }
    let layer = MessageLayer::new(desc)?;
    for (op, curve) in curves {
        let scores = judge_causes(desc, &layer, &curve).map_err(|e| anyhow!("{op}: {e}"))?;
        let Some(best) = scores.first() else {
            exit = ExitKind::Wrong;
            outln!("! {op}: no cause that is known explains the times.");
            continue;
        };
        let likely = likely_causes(&scores);
        let odds =
            scores.get(likely.len()).map_or(f64::INFINITY, |next| (best.score - next.score).exp());
        let off = best.off_by * 100.0;
        if best.cause == CollectiveCause::AsModelled {
            outln!("{op}: as modelled, within {off:.1} % in the median.");
            continue;
        }
        exit = ExitKind::Wrong;
        let odds = if odds < 1e6 {
            format!("odds {odds:.0} to 1")
        } else {
            "odds above 1e6 to 1".to_owned()
        };
        let names: Vec<String> = likely.iter().map(|score| score.cause.to_string()).collect();
        let alike = if names.len() > 1 { ", which the times do not tell apart" } else { "" };
        let text =
            format!("! {op}: {} (times within {off:.1} %, {odds}){alike}.", names.join(", or "));
        paragraph(&text, 2);
        for score in likely {
            paragraph(&format!("- {}", score.cause.action()), 2);
        }
    }
    Ok(exit)
}

/// Says that a difference between recorded runs proves nothing, and what does.
fn show_pairs(rows: &[LedgerRow]) {
    for row in rows {
        let gain = |choice: &PairedChoice| choice.gain().unwrap_or(0.0);
        let best = row.choices.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let Some(best) = best else { continue };
        let (pairs, setting) = (best.pairs(), &best.setting);
        let text = format!(
            "UNDECIDED {} x {}: {setting} {:+.1} % over {pairs} pair{} of runs; the order of runs was not drawn, \
             so they prove nothing: --on here --set {setting} decides.",
            op_name(row),
            row.exchange.bytes,
            gain(best) * 100.0,
            if pairs == 1 { "" } else { "s" }
        );
        paragraph(&text, 2);
    }
}
