//! The sizes at which a setting must do no harm, in addition to the size that was asked about.

use pathline_schema::{Bytes, Case, Flow, Transport};

use crate::arm::{ArmTask, TrialArm};
use crate::collective_settings::{COLLECTIVE_SIZES, member_count};
use crate::mpi_settings::MESSAGE_SIZES;

/// The arm of a collective, or of a message by MPI, at the usual sizes, less what its ranks do not divide. None of
/// another task.
pub(crate) fn other_sizes(arm: &TrialArm) -> Vec<TrialArm> {
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
