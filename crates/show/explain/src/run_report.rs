//! Builds a report from a journal.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::Network;
use pathline_schema::{Case, CaseOutcome, Conditions, Journal, Ns, RankMember, RunNote, Transport};

use crate::figure::{FigureCell, MissingCase, RunReport, RunWarning};
use crate::measured_cases::measured;
use crate::run::RunView;
use crate::{figures, fmt, headlines, plain_report, run_identity};

/// Slow paths that a figure names.
const MAX_SLOW: usize = 6;

/// Builds the report of a run. `network` is the machine in the model, for ceilings; if `None`, only
/// ceilings that were measured or are in the topology are shown. Pure: equal journals give equal
/// reports.
pub fn build(journal: &Journal, network: Option<&Network>) -> RunReport {
    build_with(journal, network, None)
}

/// The same, with these arguments of `pathline run` in commands that repeat parts of the run. If
/// `None`, they contain only the machine and the number of ranks.
pub fn build_with(
    journal: &Journal,
    network: Option<&Network>,
    arguments: Option<&[String]>,
) -> RunReport {
    let run = RunView::new(journal, network).with_arguments(arguments);
    let found = figures::find(&run);
    // No sentence rests on an impossible or disturbed result.
    let sound = run.sound();
    let all_sound = sound.entries.len() == run.entries.len();
    let sentences = if all_sound { found.sentences } else { figures::find(&sound).sentences };
    let mut report = RunReport {
        title: title(&run),
        identity: run_identity::identify(journal),
        simulated: run.simulated().map(str::to_owned),
        busy: run.busy.report.clone(),
        headlines: headlines::all(&sound, &found.figures, sentences),
        figures: found.figures,
        absences: absences(journal),
        warnings: warnings(&run),
        conditions: conditions(&run),
        gpus: crate::gpus::rows(journal),
        state: state(journal),
        complete: crate::run::complete(journal),
    };
    if let Some(gpu) = journal.topology.gpus.first() {
        plain_report::use_vendor_terms(&mut report, gpu.caps());
    }
    plain_report::make_plain(&mut report);
    report
}

/// Takes cases that a slow part slows out of what figures say of their values, and names them there.
pub fn leave_out_slow(
    report: &mut RunReport,
    journal: &Journal,
    network: Option<&Network>,
    slow: &[Case],
) {
    if slow.is_empty() {
        return;
    }
    let mut run = RunView::new(journal, network);
    run.entries.retain(|entry| !slow.contains(entry.case));
    let sound = figures::find(&run).figures;
    let caps = journal.topology.gpus.first().map(|gpu| gpu.caps());
    for figure in &mut report.figures {
        let path = |cell: &FigureCell| {
            let (case, value) = (cell.case.as_ref()?, cell.value?);
            let flow = case.timed.first().filter(|_| slow.contains(case))?;
            Some(format!("{}→{} {}", flow.src.unit, flow.dst.unit, fmt::number(value)))
        };
        let names: BTreeSet<String> = figure.cells().filter_map(path).collect();
        let Some(again) = sound.iter().find(|again| again.id == figure.id && !names.is_empty())
        else {
            continue;
        };
        let more = names.len().saturating_sub(MAX_SLOW);
        let mut shown: Vec<String> = names.into_iter().take(MAX_SLOW).collect();
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        let mut text = format!("{} Slow, and left out: {}.", again.finding, fmt::list(&shown));
        if let Some(caps) = caps {
            plain_report::use_vendor_terms(&mut text, caps);
        }
        plain_report::make_plain(&mut text);
        text.trim_start().clone_into(&mut figure.finding);
    }
}

fn title(run: &RunView) -> String {
    let host = &run.journal.begin.host;
    match run.simulated() {
        Some(machine) => format!("machine {machine}"),
        None if host.is_empty() => "this host".into(),
        None => host.clone(),
    }
}

fn absences(journal: &Journal) -> Vec<MissingCase> {
    let absence = |outcome: &CaseOutcome| match outcome {
        CaseOutcome::Measured(_) => None,
        CaseOutcome::Skipped(s) => {
            let (case, suites) = (s.case.clone(), s.suites.clone());
            Some(MissingCase { case, suites, faulted: false, why: s.why.clone() })
        }
        CaseOutcome::Faulted(f) => {
            let why = format!("{} ({})", f.error, f.severity);
            Some(MissingCase { case: f.case.clone(), suites: f.suites.clone(), faulted: true, why })
        }
    };
    let mut absences: Vec<MissingCase> = journal.outcomes.iter().filter_map(absence).collect();
    absences.sort_by_key(|a| !a.faulted);
    absences
}

/// Warnings about the run, then those about the topology and its storage.
fn warnings(run: &RunView) -> Vec<RunWarning> {
    let journal = run.journal;
    let warning = |code: &str, subject: &str, text: &str| RunWarning {
        code: code.into(),
        subject: subject.into(),
        text: text.into(),
    };
    let notes = journal.notes.iter().filter(|note| note.code != RunNote::CHOSEN);
    let noted = notes.map(|n| warning(&n.code, &n.subject, &n.text));
    let warnings = journal.topology.warnings.iter();
    let topology = warnings.map(|w| warning("topology", &w.subject, &w.text));
    let torn = journal
        .torn
        .then(|| warning("torn", "journal", "The last line was cut off and is left out."));
    let broken = journal.broken.iter().map(|b| {
        let text = format!("Broken and left out: {}. Its contents are missing here.", b.reason);
        warning("broken-line", &format!("line {} of the journal", b.line), &text)
    });
    let beyond =
        run.beyond.iter().map(|b| warning("beyond-ceiling", &b.case.to_string(), &b.text()));
    let rejected = journal
        .rejected
        .iter()
        .map(|r| warning("impossible-record", &r.case, &format!("line {}: {}", r.line, r.why)));
    broken
        .chain(noted)
        .chain(beyond)
        .chain(rejected)
        .chain(topology)
        .chain(torn)
        .chain(figures::storage_warnings(run))
        .collect()
}

/// The first and the last reading.
fn state(journal: &Journal) -> Option<(Conditions, Conditions)> {
    let first = measured(journal).find(|m| !m.before.0.is_empty())?;
    let last = measured(journal).filter(|m| !m.after.0.is_empty()).last()?;
    Some((first.before.clone(), last.after.clone()))
}

fn conditions(run: &RunView) -> Vec<(String, String)> {
    let (journal, topology) = (run.journal, run.topology());
    let (begin, host) = (&journal.begin, &topology.host);
    let settings = journal.settings();
    let mut rows: Vec<(&str, String)> = Vec::new();
    if let Some(machine) = run.simulated() {
        rows.push(("World", format!("simulated, machine description {machine}; no hardware")));
        rows.push(("Simulated on", begin.host.clone()));
    } else {
        rows.push(("World", "hardware".into()));
        rows.push(("Host", begin.host.clone()));
    }
    rows.push(("Processor", processor(run)));
    rows.push(("CPU clock", host.cpu_clock.clone()));
    rows.push(("Caches", caches(run)));
    rows.push(("Memory", memory(run)));
    rows.push(("GPUs", run_identity::count_gpus(topology)));
    rows.extend(processes(&begin.ranks));
    rows.push(("Kernel", host.kernel.clone()));
    rows.push(("Virtualization", host.virtualization.clone().unwrap_or_default()));
    rows.push(("Started", begin.started.clone()));
    rows.push(("Duration", journal.end.as_ref().map_or(String::new(), |e| e.elapsed.to_string())));
    rows.push(("Ended", ended(journal)));
    rows.push(("Command", run_identity::shorten_command(&begin.command)));
    let env: Vec<String> = begin.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    rows.push(("Environment", env.join(" ")));
    rows.push((
        "Precision",
        format!(
            "95 % interval of the median within {} or {} a case; {} to {} samples of at least {}",
            fmt::percent(settings.precision),
            settings.case_budget,
            settings.min_samples,
            settings.max_samples,
            settings.min_sample
        ),
    ));
    let overhead: Vec<String> =
        begin.overhead_ns.iter().map(|(t, ns)| format!("{t} {}", Ns(*ns))).collect();
    rows.push(("Harness overhead", overhead.join(", ")));
    rows.push(("Seed", settings.seed.to_string()));
    let noise =
        settings.noise.map(|n| format!("{} of each operation's time, put in", fmt::percent(n)));
    rows.push(("Noise", noise.unwrap_or_default()));
    rows.push(("Version", format!("pathline {}, journal format {}", begin.version, begin.schema)));
    rows.retain(|(_, value)| !value.trim().is_empty());
    let mut rows: Vec<(String, String)> =
        rows.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    rows.extend(figures::storage_conditions(run));
    rows
}

/// The processes that measured together: number and places, GPUs of each, and their libraries.
fn processes(ranks: &[RankMember]) -> Vec<(&'static str, String)> {
    if ranks.is_empty() {
        return Vec::new();
    }
    let hosts: BTreeSet<&str> = ranks.iter().map(|m| m.host.as_str()).collect();
    let hosts = hosts.into_iter().collect::<Vec<_>>().join(", ");
    let several = ranks.iter().any(|m| m.node > 0);
    let one = |m: &RankMember| {
        let gpus: Vec<String> = m.gpus.iter().map(|g| format!("gpu{g}")).collect();
        let gpus = if gpus.is_empty() { "no GPU".to_owned() } else { gpus.join(" ") };
        let host = if several { format!(" on {}", m.host) } else { String::new() };
        format!("r{}{host}: {gpus}, numa{}, CPUs {}", m.rank.0, m.numa, m.cpus)
    };
    // Entries common to all ranks appear once.
    let join_ranks = |of: fn(&RankMember) -> &BTreeMap<Transport, String>| {
        let mut counts: BTreeMap<(Transport, &str), usize> = BTreeMap::new();
        for (via, text) in ranks.iter().flat_map(of) {
            *counts.entry((*via, text.as_str())).or_default() += 1;
        }
        let describe = |((via, text), n): ((Transport, &str), usize)| match n == ranks.len() {
            true => format!("{via}: {text}"),
            false => format!("{via} ({n} of {}): {text}", ranks.len()),
        };
        counts.into_iter().map(describe).collect::<Vec<_>>().join("; ")
    };
    vec![
        ("Processes", format!("{} on {hosts}", ranks.len())),
        ("Ranks", ranks.iter().map(one).collect::<Vec<_>>().join("; ")),
        ("Libraries", join_ranks(|m| &m.ways)),
        ("Takes device memory", join_ranks(|m| &m.device_memory)),
        ("Host memory only", join_ranks(|m| &m.host_only)),
        ("Without", join_ranks(|m| &m.without)),
    ]
}

fn ended(journal: &Journal) -> String {
    let resumed = match journal.resumed.len() {
        0 => String::new(),
        1 => "resumed once; ".into(),
        n => format!("resumed {n} times; "),
    };
    let unfinished = journal.partial.len();
    let end = match &journal.end {
        None => format!("cut off, {} unfinished", fmt::count(unfinished, "case")),
        Some(end) if end.complete => "as planned".into(),
        Some(end) => {
            let why = end.why.clone().unwrap_or_else(|| "not every case has an outcome".into());
            format!("early: {why}")
        }
    };
    format!("{resumed}{end}")
}

fn processor(run: &RunView) -> String {
    let host = &run.topology().host;
    let cpus = host.allowed_cpus.len();
    let parts = [
        host.cpu_model.clone(),
        host.arch.clone(),
        if cpus > 0 { fmt::count(cpus, "usable CPU") } else { String::new() },
    ];
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ")
}

fn caches(run: &RunView) -> String {
    let levels = run.cache_levels();
    let texts: Vec<String> =
        levels.iter().map(|(n, size)| format!("L{n} {}", size.rounded())).collect();
    texts.join(", ")
}

fn memory(run: &RunView) -> String {
    let (host, numa) = (&run.topology().host, &run.topology().numa);
    let mut parts = Vec::new();
    if host.memory.0 > 0 {
        parts.push(host.memory.rounded());
    }
    if !numa.is_empty() {
        parts.push(fmt::count(numa.len(), "NUMA domain"));
    }
    if let Some(limit) = host.cgroup_limit {
        parts.push(format!("cgroup limit {}", limit.rounded()));
    }
    if !host.transparent_huge_pages.is_empty() {
        parts.push(format!("transparent huge pages: {}", host.transparent_huge_pages));
    }
    parts.join(", ")
}
