//! Measures cases without a journal, for callers that need only the figures.

use std::collections::BTreeMap;

use pathline_hal::Machine;
use pathline_schema::{Bytes, Case, JournalRecord, MeasuredCase, Ns, Rate, RunSettings, Topology};
use pathline_stats::SeriesSummary;

use crate::engine::default_settings;
use crate::executor::{Executor, LocalExecutor, MachineInfo};
use crate::overhead::TimerScope;
use crate::plan::{PlannedCase, RunPlan};
use crate::task::{CaseTask, TaskEvent};

/// The figures of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CaseFigures {
    /// Payload rate of all timed flows: the sum of their rates.
    pub rate: Rate,
    /// Time of one operation of the slowest flow; of a chase, of one load.
    pub time: Ns,
}

/// Figures by case; the error is why a case has none.
pub type FigureMap = BTreeMap<Case, Result<CaseFigures, String>>;

/// Measures cases on machines without a spread. `open` returns a machine whose process has the
/// given environment variables; it is called once for each environment of the cases.
///
/// # Errors
/// The errors of `open`.
pub fn measure_cases<E>(
    cases: Vec<Case>,
    topology: &Topology,
    open: impl Fn(&BTreeMap<String, String>) -> Result<Machine, E>,
) -> Result<FigureMap, E> {
    let plan = RunPlan { entries: cases.into_iter().map(PlannedCase::new).collect() };
    let plan = plan.with_environments(topology, &BTreeMap::new());
    let (skipped, to_do): (Vec<PlannedCase>, Vec<PlannedCase>) =
        plan.entries.into_iter().partition(|entry| entry.skip.is_some());
    let reason = |entry: PlannedCase| (entry.case, Err(entry.skip.unwrap_or_default()));
    let mut figures: FigureMap = skipped.into_iter().map(reason).collect();
    for entries in to_do.chunk_by(|a, b| a.env == b.env) {
        if let Some(first) = entries.first() {
            measure_all(&open(&first.env)?, entries, &mut figures);
        }
    }
    Ok(figures)
}

fn measure_all(machine: &Machine, entries: &[PlannedCase], figures: &mut FigureMap) {
    let about = MachineInfo::of(machine, None, TimerScope::Known);
    let memory = Bytes(machine.topology.numa.iter().map(|n| n.memory.0).sum());
    // Without a spread the samples are alike, and one visit is enough.
    let settings = RunSettings { min_samples: 1, max_samples: 2, ..default_settings(memory) };
    let mut executor = LocalExecutor::new(machine, about, settings);
    for group in entries.chunk_by(|a, b| a.group == b.group) {
        let task = CaseTask { entries: group.to_vec(), carried: Vec::new() };
        // The only possible errors are those of the closure, which has none.
        let _ = executor.measure(&task, &|| None, &mut |event| {
            let TaskEvent::Record(record) = event else { return Ok(()) };
            match record {
                JournalRecord::Measured(measured) => {
                    let got = figures_of(&measured);
                    figures.insert(measured.case, got);
                }
                JournalRecord::Skipped(skip) => {
                    figures.insert(skip.case, Err(skip.why));
                }
                JournalRecord::Faulted(fault) => {
                    figures.insert(fault.case, Err(fault.error));
                }
                _ => {}
            }
            Ok(())
        });
    }
}

fn figures_of(measured: &MeasuredCase) -> Result<CaseFigures, String> {
    let mut all = CaseFigures { rate: Rate(0.0), time: Ns::ZERO };
    for series in &measured.series {
        // A few samples without a spread: a median needs no interval.
        let Some(summary) = SeriesSummary::of(&series.samples_ns) else {
            return Err("it has no sample".to_owned());
        };
        all.rate = all.rate + Rate::of(series.moved_bytes, Ns(summary.median));
        all.time = all.time.max(Ns(summary.median / series.steps.max(1) as f64));
    }
    Ok(all)
}
