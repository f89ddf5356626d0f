//! GPUs that exist but cannot be used: the notes of the journal, and when they are written.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;

use pathline_bench::{
    GpuRequirement, JournalSession, LocalExecutor, MachineInfo, PlanScope, RunHeader, RunPlan,
    TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::Machine;
use pathline_schema::{Bytes, RunNote, WorldKind};
use tempfile::TempDir;

const HOST: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";
const GPU: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
const WHY: &str = "no device file /dev/kfd";

fn machine() -> Machine {
    let desc = MachineDesc::preset("mi250x").unwrap();
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
}

fn plan(machine: &Machine, cases: &[&str]) -> RunPlan {
    let scope = PlanScope {
        without_runtime: Some(WHY),
        ..PlanScope::new(&machine.topology, Bytes::gib(64))
    };
    let patterns: Vec<_> = cases.iter().map(|case| case.parse().unwrap()).collect();
    RunPlan::new(&scope, &[], &patterns).unwrap()
}

/// A simulated machine that is presented as a real one.
fn about(machine: &Machine, without: Option<&str>) -> MachineInfo {
    let about = MachineInfo::of(machine, without.map(str::to_owned), TimerScope::Known);
    MachineInfo { world: WorldKind::Real, ..about }
}

#[test]
fn unusable_gpus_give_a_note_where_the_run_needs_them() {
    let machine = machine();
    let without = about(&machine, Some(WHY));
    let (all, host) = (plan(&machine, &[HOST, GPU]), plan(&machine, &[HOST]));
    let unmet = |require: GpuRequirement, about: &MachineInfo, plan: &RunPlan, named| {
        require.unmet(about, plan, named)
    };
    let discovered = GpuRequirement::Discovered;
    let note = unmet(discovered, &without, &all, false).unwrap();
    assert!(note.lacks_gpus() && note.code == RunNote::GPUS_UNUSABLE);
    // Eight dies of the preset, the reason, and both remedies.
    for part in ["None of the 8 GPUs on the bus", WHY, "pathline doctor", "--require host"] {
        assert!(note.text.contains(part), "{}", note.text);
    }
    // Named suites and cases without GPUs need none; without names everything is required.
    assert!(unmet(discovered, &without, &all, true).is_some());
    assert!(unmet(discovered, &without, &host, true).is_none());
    assert!(unmet(discovered, &without, &host, false).is_some());
    assert!(unmet(GpuRequirement::Always, &without, &host, true).is_some());
    assert!(unmet(GpuRequirement::Never, &without, &all, false).is_none());
    // GPUs that can be used, and a host without any.
    assert!(unmet(discovered, &about(&machine, None), &all, false).is_none());
    assert!(unmet(GpuRequirement::Always, &about(&machine, None), &all, false).is_none());
    let mut none = without.clone();
    none.topology.gpus.clear();
    assert!(unmet(discovered, &none, &all, false).is_none());
    let note = unmet(GpuRequirement::Always, &none, &all, false).unwrap();
    assert!(note.text.starts_with("--require gpus, and no GPU is on the bus"), "{}", note.text);
    // A model never lacks GPUs.
    let model = MachineInfo { world: WorldKind::Simulated("mi250x".to_owned()), ..without };
    assert!(unmet(discovered, &model, &all, false).is_none());
}

#[test]
fn skipped_cases_are_written_before_the_first_measured_case() {
    let machine = machine();
    let others = [GPU, "gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB"];
    let plan = plan(&machine, &[HOST, others[0], others[1]]);
    let about = about(&machine, Some(WHY));
    let settings = default_settings(Bytes::gib(64));
    let dir = TempDir::new().unwrap();
    // The time limit is over before the first case, or comes after all of them.
    for (name, stop) in [("cut", true), ("whole", false)] {
        let path = dir.path().join(name);
        let mut here = LocalExecutor::new(&machine, about.clone(), settings);
        let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
        let unmet = GpuRequirement::Discovered.unmet(&about, &plan, false);
        let interrupt = || stop.then(|| "the time limit".to_owned());
        let now = || "2026-01-01T00:00:00Z".to_owned();
        let session = JournalSession::create(&path).unwrap().with_note(unmet);
        session.run(&mut here, &plan, header, &now, &interrupt, &mut |_| {}).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let kinds: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(3)).collect();
        let first = ["begin", "topology", "note", "skipped", "skipped"];
        assert_eq!(kinds[..5], first, "{name}");
        let measured = kinds.iter().filter(|kind| **kind == "measured").count();
        assert_eq!(measured, usize::from(!stop), "{name}");
    }
}
