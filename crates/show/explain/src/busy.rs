//! Disturbance of a run by other programs: affected results, and whether the whole machine was
//! busy. Uses only readings and samples in the journal, so that journals of older runs, which have
//! load averages and steal only, can be judged too.

use std::collections::BTreeMap;

use pathline_schema::{
    Case, CleanSamples, Conditions, FlowSeries, Journal, MeasuredCase, Mover, RunNote, TimerKind,
    Unit, WorldKind,
};

use crate::busy_report::BusyReport;
use crate::fmt;
use crate::measured_cases::measured;

/// Maximum number of programs that a line names.
const MAX_PROGRAMS: usize = 3;

/// Share of a class of results that must be affected for the machine to count as busy: a job that
/// runs once a minute for a second affects a few results, not the run.
const BUSY_RESULTS: f64 = 0.05;
/// Share of busy CPUs outside the affinity mask of a run from which they disturb the shared memory.
const ELSEWHERE: f64 = 0.25;
/// Share of a case's samples that must be disturbed for its median to be affected.
const MIN_DISTURBED: f64 = 0.5;
/// Share of the median sample that a thread must lose for the error to exceed the interval. Of 32
/// threads on a quiet node of 32 CPUs one loses 0.3 % (90th percentile over cases: 1.2 %).
const LOST: f64 = 0.03;
/// Minimum number of probe readings to judge their spread.
const PROBES: usize = 8;
/// Maximum ratio of the 90th to the 10th percentile of a memory probe; above it the readings are
/// contradictory. The runs in fixtures, on quiet nodes, have 1.06 to 1.34.
const MEMORY_SPREAD: f64 = 2.0;
/// The same for the core-to-core time: 1.05 to 1.54 in these runs.
const CORE_SPREAD: f64 = 10.0;
/// Load of a GPU in the last second before a run from which another program is assumed. A run that
/// has just ended leaves less.
const GPU_BUSY_PERCENT: u32 = 25;

/// Disturbances of one case; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct CaseDisturbance {
    /// CPUs that other processes used, of the CPUs that the run may use.
    foreign: f64,
    /// Busy CPUs that the run may not use.
    elsewhere: f64,
    /// Share of CPU time that the hypervisor stole.
    stolen: f64,
    /// Load average in excess of the run's own maximum.
    load: f64,
    /// Share of samples whose threads were without a CPU for some time.
    preempted: f64,
    /// Other processes on its GPUs.
    gpu_processes: u32,
    /// Percent of time that its GPUs were busy before the run.
    gpu_busy: u32,
}

/// Number of CPUs of a host, and of those in the affinity mask of the run.
#[derive(Debug, Clone, Copy)]
struct HostCpus {
    all: usize,
    allowed: usize,
}

/// The results of a run that other programs disturbed.
#[derive(Debug, Clone, Default)]
pub(crate) struct BusyCases {
    /// Reasons, by case text.
    by_case: BTreeMap<String, String>,
    /// Set if the whole machine was busy.
    pub(crate) report: Option<BusyReport>,
}

impl BusyCases {
    /// Reason if a result is affected, a clause.
    pub(crate) fn reason(&self, case: &Case) -> Option<&str> {
        if self.by_case.is_empty() {
            return None;
        }
        self.by_case.get(&case.to_string()).map(String::as_str)
    }
}

/// Judges a run. A simulated machine has no other programs.
pub(crate) fn busy_cases(journal: &Journal) -> BusyCases {
    if journal.begin.world != WorldKind::Real {
        return BusyCases::default();
    }
    let host = &journal.topology.host;
    let allowed = host.allowed_cpus.len().max(1);
    let cpus = HostCpus { all: host.cpus.len().max(allowed), allowed };
    let measured: Vec<&MeasuredCase> = measured(journal).collect();
    let mut found = BusyCases::default();
    let precision = journal.settings().precision;
    let on_host: Vec<_> =
        measured.iter().filter(|m| depends_on_host(m, precision)).copied().collect();
    let probes = probe_reasons(&measured);
    let mut affected = Vec::new();
    for m in &on_host {
        let disturbance = CaseDisturbance::of_host(m, cpus);
        let mut reasons = disturbance.reasons(cpus);
        reasons.extend(probes.iter().cloned());
        if !reasons.is_empty() {
            found.by_case.insert(m.case.to_string(), reasons.join(", "));
            affected.push(disturbance);
        }
    }
    let mut reasons = Vec::new();
    let mut effects = Vec::new();
    if is_busy(affected.len(), on_host.len()) {
        let mut seen = typical(&affected).reasons(cpus);
        if let (Some(first), Some(load)) = (seen.first_mut(), median_load(&on_host)) {
            first.push_str(&format!(" (load {})", fmt::number(load)));
        }
        reasons.extend(seen);
        reasons.extend(probes);
        // Nothing was read during these: the disturbances of the others may apply to them too.
        let unread = on_host.iter().filter(|m| !has_load(&m.before) && !has_load(&m.after));
        let partial = journal.partial.iter().filter(|p| is_of_host(&p.case, &p.series));
        let unknown = unread.map(|m| &m.case).chain(partial.map(|p| &p.case));
        for case in unknown {
            let why = "the machine was busy, and no load was read while it ran";
            found.by_case.entry(case.to_string()).or_insert_with(|| why.to_owned());
        }
        // Those are marked, too, so that the number of marks is stated.
        let unread = match found.by_case.len() - affected.len() {
            0 => String::new(),
            n => format!(", and {n} more during which no load was read may be"),
        };
        effects.push(effect("host", affected.len(), on_host.len()) + &unread);
    }
    let on_gpus: Vec<_> = measured.iter().filter(|m| !m.gpus.is_empty()).copied().collect();
    let mut gpus = Vec::new();
    for m in &on_gpus {
        let disturbance = CaseDisturbance::of_gpus(m, journal);
        let seen = disturbance.reasons(cpus);
        if !seen.is_empty() {
            found.by_case.insert(m.case.to_string(), seen.join(", "));
            gpus.push(disturbance);
        }
    }
    if is_busy(gpus.len(), on_gpus.len()) {
        reasons.extend(typical(&gpus).reasons(cpus));
        effects.push(effect("GPU", gpus.len(), on_gpus.len()));
    }
    if !effects.is_empty() {
        let names = match busy_programs(journal) {
            names if names.is_empty() => "the other programs".to_owned(),
            names => names.join(", "),
        };
        found.report = Some(BusyReport {
            reasons,
            effect: format!("{}, marked ~, and no sentence rests on them", effects.join(" and ")),
            action: format!("End {names} or take the whole node, and run again."),
        });
    }
    found
}

/// The programs that the run saw at work, the busiest first: `rustc`.
fn busy_programs(journal: &Journal) -> Vec<&str> {
    let notes = journal.notes.iter().filter(|note| note.code == "busy");
    let mut names = Vec::new();
    for RunNote { text, .. } in notes {
        for (end, _) in text.match_indices(" (pid ") {
            let name = text[..end].rsplit([' ', ',']).next().unwrap_or_default();
            if !names.contains(&name) && names.len() < MAX_PROGRAMS {
                names.push(name);
            }
        }
    }
    names
}

fn is_busy(affected: usize, all: usize) -> bool {
    affected > 0 && affected as f64 >= BUSY_RESULTS * all as f64
}

fn effect(class: &str, affected: usize, all: usize) -> String {
    let of = if affected == all { format!("all {all}") } else { format!("{affected} of {all}") };
    format!("{of} {class} results are lower bounds")
}

/// Whether host threads move the bytes, or time the case.
fn is_of_host(case: &Case, series: &[FlowSeries]) -> bool {
    series.iter().any(|s| s.timer != TimerKind::DeviceEvents)
        || case.flows().any(|flow| matches!(flow.by, Mover::Cpu { .. }))
}

/// Whether other programs on the host can explain a result: its threads move or time the bytes, or a copy
/// engine moves them through host memory and the samples did not agree. Those of a quiet moment do, to 0.2 %.
fn depends_on_host(m: &MeasuredCase, precision: f64) -> bool {
    let is_wide = m.stop.half_width > precision;
    is_of_host(&m.case, &m.series) || (is_wide && m.case.is_through_host())
}

/// Whether the load was read in some form.
fn has_load(conditions: &Conditions) -> bool {
    conditions.reading("foreign_cpus").is_some()
}

impl CaseDisturbance {
    fn of_host(m: &MeasuredCase, cpus: HostCpus) -> Self {
        let mut all = Self::default();
        for conditions in [&m.before, &m.after] {
            let read = |name| conditions.reading(name);
            let found = conditions.foreign_load(cpus.allowed);
            let over = |value: Option<f64>, from: f64| value.filter(|v| *v >= from).unwrap_or(0.0);
            all.foreign = all.foreign.max(found.foreign);
            all.stolen = all.stolen.max(found.stolen);
            let others = cpus.all.saturating_sub(cpus.allowed) as f64;
            let elsewhere = over(read("elsewhere_cpus"), (ELSEWHERE * others).max(1.0));
            all.elsewhere = all.elsewhere.max(elsewhere);
            if read("foreign_cpus").is_none() {
                // All its threads, and the one that waits for them, belong to the run.
                let own = cpus.all as f64 + 1.0;
                all.load = all.load.max(over(read("load_1min").filter(|l| *l > own), own));
            }
        }
        let clean = CleanSamples::of(&m.series);
        if !clean.enough && clean.disturbed_share() >= MIN_DISTURBED && clean.lost_share >= LOST {
            all.preempted = clean.disturbed_share();
        }
        all
    }

    fn of_gpus(m: &MeasuredCase, journal: &Journal) -> Self {
        let mut all = Self::default();
        for (unit, readings) in &m.gpus {
            let processes = [&readings.before, &readings.after].map(|s| s.other_processes);
            let most = processes.into_iter().flatten().max().unwrap_or(0);
            all.gpu_processes = all.gpu_processes.max(most);
            let before = gpu_busy(journal, *unit).filter(|busy| *busy >= GPU_BUSY_PERCENT);
            all.gpu_busy = all.gpu_busy.max(before.unwrap_or(0));
        }
        all
    }

    fn reasons(self, cpus: HostCpus) -> Vec<String> {
        let Self { foreign, elsewhere, stolen, load, preempted, gpu_processes, gpu_busy } = self;
        let HostCpus { all, allowed } = cpus;
        let others = all.saturating_sub(allowed);
        let [used, busy, load_text] = [foreign, elsewhere, load].map(fmt::number);
        let [taken, lost] = [stolen, preempted].map(fmt::percent);
        let programs = fmt::count(gpu_processes as usize, "other program");
        let notes = [
            (foreign > 0.0, format!("other processes used {used} of {allowed} CPUs")),
            (
                elsewhere > 0.0,
                format!("{busy} of the {others} CPUs that this run may not use were busy"),
            ),
            (stolen > 0.0, format!("the hypervisor stole {taken} of the CPU time")),
            (load > 0.0, format!("the load was {load_text} on {all} CPUs")),
            (preempted > 0.0, format!("threads lost their CPU in {lost} of samples")),
            (gpu_processes > 0, format!("{programs} on a GPU that was measured")),
            (gpu_busy > 0, format!("a GPU was {gpu_busy} % busy before the run")),
        ];
        notes.into_iter().filter_map(|(is, text)| is.then_some(text)).collect()
    }
}

fn gpu_busy(journal: &Journal, unit: Unit) -> Option<u32> {
    journal.begin.gpus.get(&unit)?.busy_percent
}

/// The median of each kind of disturbance over the cases that have it. Kinds with few cases are
/// ignored.
fn typical(all: &[CaseDisturbance]) -> CaseDisturbance {
    let typical = |of: fn(&CaseDisturbance) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).filter(|v| *v > 0.0).collect();
        values.sort_by(f64::total_cmp);
        let few = (values.len() as f64) < 0.1 * all.len() as f64;
        values.get(values.len() / 2).copied().filter(|_| !few).unwrap_or(0.0)
    };
    CaseDisturbance {
        foreign: typical(|d| d.foreign),
        elsewhere: typical(|d| d.elsewhere),
        stolen: typical(|d| d.stolen),
        load: typical(|d| d.load),
        preempted: typical(|d| d.preempted),
        gpu_processes: typical(|d| f64::from(d.gpu_processes)) as u32,
        gpu_busy: typical(|d| f64::from(d.gpu_busy)) as u32,
    }
}

fn median_load(measured: &[&MeasuredCase]) -> Option<f64> {
    let newer = measured.iter().filter(|m| has_load(&m.after));
    let mut loads: Vec<f64> = newer.filter_map(|m| m.after.reading("load_1min")).collect();
    loads.sort_by(f64::total_cmp);
    loads.get(loads.len() / 2).copied()
}

/// Contradictory probes of a run.
fn probe_reasons(measured: &[&MeasuredCase]) -> Vec<String> {
    let spread = |name: &str| {
        let mut values: Vec<f64> = measured
            .iter()
            .flat_map(|m| [&m.before, &m.after])
            .filter_map(|conditions| conditions.reading(name))
            .collect();
        // A reading covers several cases.
        values.dedup();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get(((values.len() - 1) as f64 * share).round() as usize);
        if values.len() < PROBES {
            return None;
        }
        Some((*at(0.1)?, *at(0.9)?))
    };
    let memory = spread("dram_stream_gbs").filter(|(low, high)| *high > MEMORY_SPREAD * low);
    let memory = memory.map(|(low, high)| {
        let (low, high) = (fmt::number(low), fmt::gbs(high));
        format!("one probe of memory gave {low} to {high} within the run")
    });
    let cores = spread("core_to_core_ns").filter(|(low, high)| *high > CORE_SPREAD * low);
    let cores = cores.map(|(low, high)| {
        let (low, high) = (fmt::number(low), fmt::number(high));
        format!("a line went from core to core in {low} to {high} ns")
    });
    memory.into_iter().chain(cores).collect()
}
