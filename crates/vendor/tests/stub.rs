//! The drivers of GPU vendors end to end, over libraries that stand in for theirs.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use pathline_hal::Machine;
use pathline_schema::{Topology, World};
use pathline_stub::{VARIABLE, Vendor, lay_out};
use pathline_vendor::{Asked, Compile, Opened, open, runtime};

/// Set in the process that a test runs its body in.
const INSIDE: &str = "PATHLINE_TEST_INSIDE";

/// Runs a test's body in a process of its own that finds those libraries: they are looked for by
/// its environment, and they keep their state for as long as it lives. `None` in that process.
fn outside(test: &str, vendors: &[Vendor], spec: &str) -> Option<Output> {
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), vendors, &[]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(INSIDE, "1").env(VARIABLE, spec);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", folder.path());
    Some(command.output().unwrap())
}

fn expect_success(output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

fn opened() -> Opened {
    let topology = Topology::default();
    let mut asked = Asked::new(Compile::InProcess);
    asked.hip = std::env::var_os("PATHLINE_HIP").map(Into::into);
    let runtime = runtime(&topology, &asked);
    open(topology, runtime)
}

fn machine() -> Machine {
    let Opened { machine, without } = opened();
    assert_eq!(without, None);
    machine
}

#[test]
fn cuda_does_what_every_machine_must_do() {
    if let Some(output) = outside("cuda_does_what_every_machine_must_do", &[Vendor::Cuda], "gpus=3")
    {
        return expect_success(&output);
    }
    let machine = machine();
    assert_eq!(machine.world, World::Simulated("stub".into()));
    assert_eq!(machine.topology.gpus.len(), 3);
    assert_eq!(machine.topology.gpus[0].name, "stub NVIDIA H200");
    let failures = pathline_hal::conformance::failures(&machine);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// HIP's libraries of one major version, asked for by their folder.
fn hip_of(test: &str, major: u32) {
    if std::env::var_os(INSIDE).is_none() {
        let folder = tempfile::tempdir().unwrap();
        lay_out(folder.path(), &[Vendor::Hip(major)], &[]).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .env(VARIABLE, "gpus=3")
            .env("PATHLINE_HIP", folder.path())
            .env("XDG_CACHE_HOME", folder.path())
            .output()
            .unwrap();
        return expect_success(&output);
    }
    let machine = machine();
    assert_eq!(machine.world, World::Simulated("stub".into()));
    assert_eq!(machine.driver().unwrap().name(), "hip");
    assert_eq!(machine.topology.gpus.len(), 3);
    assert!(machine.topology.gpus[0].arch.starts_with("gfx"), "{:?}", machine.topology.gpus[0]);
    let failures = pathline_hal::conformance::failures(&machine);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn hip_5_does_what_every_machine_must_do() {
    hip_of("hip_5_does_what_every_machine_must_do", 5);
}

#[test]
fn hip_6_does_what_every_machine_must_do() {
    hip_of("hip_6_does_what_every_machine_must_do", 6);
}

#[test]
fn hip_7_does_what_every_machine_must_do() {
    hip_of("hip_7_does_what_every_machine_must_do", 7);
}
