//! What the results of a simulated machine rest on: each case is also measured on copies of the machine
//! whose constants of one origin are slightly different.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::Result;
use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, LocalExecutor, MachineInfo, RunPlan, TaskEnd,
    TaskEvent, TimerScope,
};
use pathline_flow::MachineDesc;
use pathline_hal::Machine;
use pathline_schema::{
    Case, ConstantOrigin, FlowSeries, IoReading, JournalRecord, Ns, RunSettings,
};
use pathline_sim::SimOptions;

use crate::machine::MachineModel;
use crate::protocol::RunRequest;

/// Constants of a copy are this share of the described ones: so little that another hop becomes the
/// narrowest only where the two are almost equal.
const FACTOR: f64 = 0.98;
/// A result rests on constants that change it by more than this share: a twentieth of their own change.
const LEAST_CHANGE: f64 = 0.001;

/// Copies of a simulated machine, each with changed constants of one origin, and one without a change.
/// None of them has a spread of times.
pub struct ModelVariants {
    described: Machine,
    /// The weakest origin first.
    changed: Vec<(ConstantOrigin, Machine)>,
}

impl ModelVariants {
    /// Opens the copies. None of a description that states no origins.
    ///
    /// # Errors
    /// The description makes no network.
    pub fn open(request: &RunRequest, env: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let Some(model) = request.machine.model() else { return Ok(None) };
        let Some(variants) = model.variants()? else { return Ok(None) };
        let options = SimOptions { jitter: 0.0, ..request.sim_options() };
        let open = |desc: &MachineDesc| {
            let env = pathline_flow::RuntimeEnv::from_env(env);
            pathline_sim::machine_with(desc, env, &options)
        };
        let mut changed = Vec::new();
        for (origin, desc) in &variants {
            changed.push((*origin, open(desc)?));
        }
        Ok(Some(Self { described: open(model.desc())?, changed }))
    }

    /// An executor that measures on `main`, and on the copies with a sample a case.
    pub fn executor<'m>(
        &'m self,
        main: LocalExecutor<'m>,
        about: &MachineInfo,
        settings: RunSettings,
    ) -> OriginExecutor<'m> {
        let settings = RunSettings { min_samples: 1, max_samples: 1, ..settings };
        let on = |machine| LocalExecutor::new(machine, about.clone(), settings);
        OriginExecutor {
            main,
            described: on(&self.described),
            changed: self.changed.iter().map(|(origin, machine)| (*origin, on(machine))).collect(),
        }
    }
}

/// Cases of a plan whose simulated times rest on constants that nobody measured.
///
/// # Errors
/// The machine cannot be opened, or measured.
pub fn assumed_cases(
    request: &RunRequest,
    env: &BTreeMap<String, String>,
    plan: RunPlan,
) -> Result<BTreeSet<Case>> {
    let Some(variants) = ModelVariants::open(request, env)? else { return Ok(BTreeSet::new()) };
    // The weakest origin is the first: cases of others need no measurement.
    let Some((ConstantOrigin::Assumed, changed)) = variants.changed.first() else {
        return Ok(BTreeSet::new());
    };
    let about = MachineInfo::of(&variants.described, None, TimerScope::Known);
    let settings =
        RunSettings { min_samples: 1, max_samples: 1, ..request.settings_on(&about.topology) };
    let entries = plan.entries.into_iter().filter(|entry| entry.skip.is_none()).collect();
    let task = CaseTask { entries, carried: Vec::new() };
    let on =
        |machine| times(&mut LocalExecutor::new(machine, about.clone(), settings), &task, &|| None);
    let (described, changed) = (on(&variants.described)?, on(changed)?);
    let rests = |case: &Case, was: &[f64]| changed.get(case).is_none_or(|now| differ(was, now));
    Ok(described.into_iter().filter(|(case, was)| rests(case, was)).map(|(case, _)| case).collect())
}

impl MachineModel {
    /// The description with slightly different constants of one origin, for each origin that it states
    /// but data sheets; the weakest first. None if it states no origins.
    fn variants(&self) -> Result<Option<Vec<(ConstantOrigin, MachineDesc)>>> {
        let known: Vec<ConstantOrigin> =
            self.desc().constants().iter().filter_map(|constant| constant.origin).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let mut variants = Vec::new();
        for origin in ConstantOrigin::ALL.into_iter().rev() {
            if origin != ConstantOrigin::Datasheet && known.contains(&origin) {
                let name = &self.desc().name;
                let desc = MachineDesc::parse_scaled(name, self.text(), origin, FACTOR)?;
                variants.push((origin, desc));
            }
        }
        Ok(Some(variants))
    }
}

/// Measures on a simulated machine, and adds to each result the weakest origin that it rests on.
pub struct OriginExecutor<'m> {
    main: LocalExecutor<'m>,
    described: LocalExecutor<'m>,
    changed: Vec<(ConstantOrigin, LocalExecutor<'m>)>,
}

impl Executor for OriginExecutor<'_> {
    fn about(&self) -> &MachineInfo {
        self.main.about()
    }
    fn now(&self) -> Ns {
        self.main.now()
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        tell: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        let once = CaseTask { carried: Vec::new(), ..task.clone() };
        let described = times(&mut self.described, &once, interrupt)?;
        let mut changed = Vec::new();
        for (origin, machine) in &mut self.changed {
            changed.push((*origin, times(machine, &once, interrupt)?));
        }
        let origin = |case: &Case| {
            let was = described.get(case)?;
            let rests = |times: &CaseMedians| times.get(case).is_none_or(|now| differ(was, now));
            let weakest = changed.iter().find(|(_, times)| rests(times));
            Some(weakest.map_or(ConstantOrigin::Datasheet, |(origin, _)| *origin))
        };
        self.main.measure(task, interrupt, &mut |event| {
            tell(match event {
                TaskEvent::Record(JournalRecord::Measured(mut measured)) => {
                    measured.origin = origin(&measured.case);
                    TaskEvent::Record(JournalRecord::Measured(measured))
                }
                event => event,
            })
        })
    }
}

/// Times of each flow of a case: the median in ns an operation, then those of its I/O.
type CaseMedians = BTreeMap<Case, Vec<f64>>;

fn times(
    executor: &mut LocalExecutor<'_>,
    task: &CaseTask,
    interrupt: InterruptCheck<'_>,
) -> io::Result<CaseMedians> {
    let mut found = CaseMedians::new();
    executor.measure(task, interrupt, &mut |event| {
        if let TaskEvent::Record(JournalRecord::Measured(measured)) = event {
            found.insert(measured.case, measured.series.iter().flat_map(flow_times).collect());
        }
        Ok(())
    })?;
    Ok(found)
}

/// The duration of I/O also depends on the order in which requests meet at the device, which other
/// constants change: by chance one duration in a hundred stays within [`LEAST_CHANGE`] although all
/// rates differ. The times that workers and requests take are sums, which do not cancel.
fn flow_times(series: &FlowSeries) -> Vec<f64> {
    let of_io = |io: &IoReading| {
        let requests = [&io.latency, &io.device].map(|times| times.sum_ns as f64);
        [io.cpu_user_ns, io.cpu_system_ns].into_iter().chain(requests).collect::<Vec<_>>()
    };
    let duration = std::iter::once(median(series));
    duration.chain(series.io.first().map(of_io).into_iter().flatten()).collect()
}

fn median(series: &FlowSeries) -> f64 {
    let mut times = series.samples_ns.clone();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
    median / series.reps.max(1) as f64
}

fn differ(was: &[f64], now: &[f64]) -> bool {
    was.len() != now.len()
        || was.iter().zip(now).any(|(was, now)| (now - was).abs() > LEAST_CHANGE * was)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::TimerKind;

    /// Two reads of 4 KiB that end at the same time by chance, while all rates differ by 2 %.
    #[test]
    fn io_of_the_same_duration_rests_on_what_changes_its_parts() {
        let flow = "r0.store0.file > r0.numa0.paged by \
                    uring@numa0[rand-read,direct,shared,16GiB,q1,n1,t1] x 4KiB";
        let case: Case = flow.parse().unwrap();
        let reading = |cpu: f64| IoReading { cpu_user_ns: cpu, ..IoReading::default() };
        let series = |cpu: f64| FlowSeries {
            samples_ns: vec![9_500_000.0],
            io: vec![reading(cpu)],
            ..FlowSeries::new(case.timed[0], TimerKind::Threads)
        };
        let times = |cpu: f64| flow_times(&series(cpu));
        assert!(differ(&times(1000.0), &times(980.0)));
        assert!(!differ(&times(1000.0), &times(1000.0)));
    }
}
