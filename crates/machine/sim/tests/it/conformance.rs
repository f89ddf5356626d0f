//! Simulated machines do what every machine must do.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{Machine, conformance};
use pathline_sim::{FaultOrder, SimOptions, machine_with};

fn preset(name: &str, switches: RuntimeEnv, options: &SimOptions) -> Machine {
    let desc = MachineDesc::preset(name).expect("a preset of this name");
    machine_with(&desc, switches, options).expect("it makes a machine")
}

fn passes(machine: &Machine) {
    let failures = conformance::failures(machine);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn mi250x() {
    passes(&preset("mi250x", RuntimeEnv::default(), &SimOptions::default()));
}

#[test]
fn hgx_h200() {
    passes(&preset("hgx-h200", RuntimeEnv::default(), &SimOptions::default()));
}

#[test]
fn under_every_switch() {
    for bits in 0..27 {
        let switch = |n: u32| [None, Some(false), Some(true)][(bits / 3_usize.pow(n)) % 3];
        let switches =
            RuntimeEnv { sdma: switch(0), peer_sdma: switch(1), xnack: switch(2), nvls: None };
        let machine =
            preset("mi250x", switches, &SimOptions { jitter: 0.0, ..SimOptions::default() });
        let failures = conformance::failures(&machine);
        assert!(failures.is_empty(), "{switches:?}:\n{}", failures.join("\n"));
    }
}

#[test]
fn without_gpus() {
    let mut machine = preset("mi250x", RuntimeEnv::default(), &SimOptions::default());
    machine.driver = None;
    passes(&machine);
    assert!(machine.gpu(0).is_err());
}

/// The suite has teeth: a machine that damages one copy, one kernel, one migration or one team's
/// work fails exactly one check.
#[test]
fn damage_is_found() {
    // The first four submissions are refused ones.
    let calls =
        [("copy", 3), ("launch", 3), ("migrate", 3), ("host.submit", 5), ("storage.land", 9)];
    for (call, nth) in calls {
        let faults = vec![FaultOrder::corrupts(call, nth)];
        let options = SimOptions { faults, ..SimOptions::default() };
        let machine = preset("mi250x", RuntimeEnv::default(), &options);
        assert_eq!(conformance::failures(&machine).len(), 1, "{call}");
    }
}
