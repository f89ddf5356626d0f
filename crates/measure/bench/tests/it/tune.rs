//! A search for kernels on models, where all kernels are equal until one is made faster.

use std::cell::Cell;
use std::io;

use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, LocalExecutor, LossCause, MachineInfo,
    PathClass, PlanScope, SearchStamp, TaskEnd, TaskEvent, TimerScope, TunedKernels, WorkerLoss,
    default_settings, searches, tune,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::Machine;
use pathline_schema::{Bytes, Case, JournalRecord, KernelOp, KernelVariant, Mover, Ns};

/// An executor that makes one kernel twice as fast, and is lost at another.
struct Meddler<'m> {
    here: LocalExecutor<'m>,
    fast: KernelVariant,
    deadly: Option<KernelVariant>,
    /// Cases of each task.
    tasks: Vec<usize>,
}

fn variant(case: &Case) -> Option<KernelVariant> {
    match case.timed.first()?.by {
        Mover::Kernel { variant, .. } => Some(variant),
        _ => None,
    }
}

impl Executor for Meddler<'_> {
    fn about(&self) -> &MachineInfo {
        self.here.about()
    }
    fn now(&self) -> Ns {
        self.here.now()
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        self.tasks.push(task.entries.len());
        let deadly = task.entries.iter().position(|e| variant(&e.case) == self.deadly);
        let mut task = task.clone();
        let lost = deadly.filter(|_| self.deadly.is_some()).map(|at| task.entries.remove(at).case);
        let fast = self.fast;
        let ended = self.here.measure(&task, interrupt, &mut |event| match event {
            TaskEvent::Record(JournalRecord::Measured(mut measured))
                if variant(&measured.case) == Some(fast) =>
            {
                let series = measured.series.iter_mut();
                series.flat_map(|s| &mut s.samples_ns).for_each(|ns| *ns /= 2.0);
                sink(TaskEvent::Record(JournalRecord::Measured(measured)))
            }
            other => sink(other),
        })?;
        let (error, cause) = ("it ended".to_owned(), LossCause::Machine);
        let loss = |case| WorkerLoss { case: Some(case), error, cause };
        Ok(lost.map_or(ended, |case| TaskEnd::Lost(loss(case))))
    }
}

fn machine(name: &str) -> Machine {
    let desc = MachineDesc::preset(name).expect("it parses");
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("it makes a machine")
}

/// Searches with a meddler; its tasks, the winners, and the expected number of searches.
fn search(
    machine: &Machine,
    fast: &str,
    deadly: Option<&str>,
    interrupt: InterruptCheck<'_>,
) -> (Vec<usize>, TunedKernels, usize) {
    let about = MachineInfo::of(machine, None, TimerScope::Known);
    let memory = Bytes::gib(8);
    let topology = about.topology.clone();
    let here = LocalExecutor::new(machine, about, default_settings(memory));
    let deadly = deadly.map(|key| key.parse().expect("a key"));
    let mut executor =
        Meddler { here, fast: fast.parse().expect("a key"), deadly, tasks: Vec::new() };
    let scope = PlanScope { simulated: true, ..PlanScope::new(&topology, memory) };
    let stamp = SearchStamp { date: "2026-11-21T03:00:00Z".to_owned(), version: "0".to_owned() };
    let mut tuned = TunedKernels::plain();
    tune(&mut executor, &scope, &mut tuned, &stamp, interrupt, &mut |_| ())
        .expect("the executor answers");
    (executor.tasks, tuned, searches(&scope))
}

/// 12 paths: 4 operations within a GPU, 2 from and 2 to a peer and the host each. A GPU of AMD has
/// 24 candidates; the best 8, then the best 3 go on, and the plain kernel with them.
#[test]
fn the_fastest_kernel_wins_and_the_others_stay_plain() {
    let machine = machine("mi250x");
    let fast = "copy-w16-u8-b512-g1sm";
    let (tasks, tuned, searches) = search(&machine, fast, None, &|| None);
    assert_eq!((searches, tuned.best().len(), tasks.len()), (12, 12, 36));
    for rounds in tasks.chunks(3) {
        assert_eq!(rounds[0], 24);
        assert!((8..=9).contains(&rounds[1]) && (3..=4).contains(&rounds[2]), "{rounds:?}");
    }
    let fast: KernelVariant = fast.parse().unwrap();
    for best in tuned.best() {
        if best.variant.op == KernelOp::Copy {
            assert_eq!(best.variant, fast, "{best:?}");
            let gain = best.gbs / best.plain_gbs;
            assert!((1.8..2.2).contains(&gain), "{best:?}");
        } else {
            // A model's kernels differ only by too few loads in flight.
            assert!(best.gbs < best.plain_gbs * 1.05, "{best:?}");
        }
    }
    let gpu = &machine.topology.gpus[5];
    assert_eq!(tuned.variant_for(gpu, PathClass::PeerWrite, KernelOp::Copy), fast);
}

/// A kernel that ends the measuring process is excluded, and the search continues.
#[test]
fn a_kernel_that_kills_its_process_costs_only_itself() {
    let machine = machine("hgx-h200");
    let fast = "copy-bulk16k-s8-b32-g1sm";
    let (tasks, tuned, _) = search(&machine, fast, Some("copy-bulk2k-s1-b32-gt"), &|| None);
    // 5 searches are of copies: the lost kernel fails in the first round and is excluded then.
    assert_eq!(tasks.len(), 36);
    let copies = tuned.best().iter().filter(|b| b.variant.op == KernelOp::Copy);
    let winners: Vec<String> = copies.map(|b| b.variant.to_string()).collect();
    assert_eq!(winners, [fast; 5]);
}

/// An interrupt ends it within a search, and no half a search counts.
#[test]
fn an_interrupted_search_keeps_complete_results() {
    let machine = machine("mi250x");
    let asked = Cell::new(0);
    let interrupt = || {
        asked.set(asked.get() + 1);
        (asked.get() > 600).then(|| "enough".to_owned())
    };
    let (_, tuned, searches) = search(&machine, "copy-w16-u8-b512-g1sm", None, &interrupt);
    assert!(!tuned.best().is_empty() && tuned.best().len() < searches, "{}", tuned.best().len());
}
