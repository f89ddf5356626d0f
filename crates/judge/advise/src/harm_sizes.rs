//! What a setting must not harm, in addition to the size that was asked about.

use pathline_schema::{Bytes, Case, Flow, SizeEffects, SizedTransfer, Transport};

use crate::arm::{AdviceChoice, AdviceScope, ArmTask, TrialArm};
use crate::collective_settings::{COLLECTIVE_SIZES, member_count};
use crate::mpi_settings::MESSAGE_SIZES;

/// The arm of a collective, or of a message by MPI, at the usual sizes, less what its ranks do not divide. None of
/// another task.
fn other_sizes(arm: &TrialArm) -> Vec<TrialArm> {
    let ArmTask::Case(case) = &arm.task else { return Vec::new() };
    let [flow] = case.timed.as_slice() else { return Vec::new() };
    let Some(wire) = flow.by.wire() else { return Vec::new() };
    let by_mpi = wire.via.carrier() == Transport::Mpi;
    let of = |bytes: Bytes| {
        let unit = match wire.op.collective() {
            Some(op) => op.unit_bytes(member_count(flow)? as usize, wire.op.reduced()),
            None if by_mpi => 1,
            None => return None,
        };
        let bytes = Bytes(bytes.0 - bytes.0 % unit.max(1));
        let case = Case { timed: vec![Flow { bytes, ..*flow }], ..case.clone() };
        Some(TrialArm { task: ArmTask::Case(case), ..arm.clone() })
    };
    let sizes = if by_mpi { MESSAGE_SIZES } else { COLLECTIVE_SIZES };
    sizes.into_iter().filter_map(of).collect()
}

/// The single copies and messages that a case stands for at the sizes by which settings are compared.
pub(crate) fn at_usual_sizes(case: &Case) -> Vec<Case> {
    let ([flow], []) = (case.timed.as_slice(), case.background.as_slice()) else {
        return Vec::new();
    };
    let is_sized = SizedTransfer::of_flow(flow).is_some();
    let sizes = SizeEffects::ALL.into_iter().filter(|_| is_sized);
    let of = |bytes| Case { timed: vec![Flow { bytes, ..*flow }], ..case.clone() };
    sizes.map(of).collect()
}

/// What a variable also changes: the same choice in the other questions about the same ends, of which `known` has those
/// at the usual sizes too. A choice that restarts a job has usual sizes of its own.
pub(crate) fn guards_of(
    (all, known): (&[AdviceScope], &[AdviceScope]),
    at: usize,
    scope: &AdviceScope,
    choice: &AdviceChoice,
) -> Vec<(TrialArm, TrialArm)> {
    if choice.settings.is_empty() {
        return Vec::new();
    }
    let restarts = !choice.arm.env.is_empty();
    let others = if restarts { all } else { known }.iter().enumerate();
    let others = others.filter(|&(other, s)| other != at && s.ends == scope.ends);
    let others = others.map(|(_, other)| other);
    if restarts {
        // Also where the variable is no choice, and at sizes that nobody asked about.
        let mut baselines: Vec<TrialArm> = others.map(|other| other.baseline.clone()).collect();
        let usual = other_sizes(&scope.baseline).into_iter();
        let usual = usual.filter(|arm| !all.iter().any(|other| other.baseline.task == arm.task));
        baselines.extend(usual.collect::<Vec<_>>());
        let (label, env) = (&choice.arm.label, &choice.arm.env);
        let with = |arm: TrialArm| (arm.clone(), arm.with_env(label.clone(), env.clone()));
        return baselines.into_iter().map(with).collect();
    }
    let same = |other: &AdviceScope| {
        let arm = other.choices.iter().find(|c| c.settings == choice.settings)?.arm.clone();
        Some((other.baseline.clone(), arm))
    };
    others.filter_map(same).collect()
}
