//! Checks of the parts of a case that need no MPI.

use std::ffi::c_int;

use pathline_hal::{CallError, CallResult, FlowPart};
use pathline_schema::{AtomicOp, Transport, UcxSetting, Unit, WindowKind, WireOp};

use super::steps::has_started_form;

/// The error for a part that MPI cannot do.
pub(super) fn refused(part: &FlowPart, reason: impl Into<String>) -> CallError {
    let FlowPart { wire, bytes, .. } = part;
    CallError::unsupported("bind", format!("mpi[{wire}] x {bytes}B"), reason)
}

/// Checks the group and the memory of a part without MPI.
/// `missing` is a function of the part that the library lacks.
pub(super) fn sound(
    part: &FlowPart,
    rank: i32,
    size: i32,
    missing: Option<&'static str>,
) -> CallResult<()> {
    let no = |why: String| Err(refused(part, why));
    let mut ranks: Vec<u32> = part.group.iter().map(|(rank, _)| rank.0).collect();
    let n = ranks.len();
    if let Some(far) = ranks.iter().find(|&&r| i64::from(r) >= i64::from(size)) {
        return no(format!("rank {far} of {size} takes part"));
    }
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.len() < n {
        return no("a process of MPI takes part once, not for each of its GPUs".to_owned());
    }
    let position = part.group.iter().position(|(r, _)| i64::from(r.0) == i64::from(rank));
    if part.positions != Vec::from_iter(position) {
        let mine = &part.positions;
        return no(format!("rank {rank} was given position {mine:?} of {:?}", part.group));
    }
    if let Some(name) = missing {
        return no(format!("the library lacks {name}"));
    }
    let on_gpu = part.group.iter().any(|(_, unit)| unit.gpu().is_some());
    if part.wire.window == Some(WindowKind::Allocate) && on_gpu {
        return no("MPI_Win_allocate gives host memory, and not that of a GPU".to_owned());
    }
    match part.wire.op {
        WireOp::Atomic(AtomicOp::Add) => {
            return Err(refused(part, "MPI has no such operation").or_try("take accumulate"));
        }
        WireOp::Consume if part.group.iter().any(|(_, unit)| matches!(unit, Unit::Gpu(_))) => {
            return no("a CPU cannot load from GPU memory".to_owned());
        }
        WireOp::Group { .. } if n < 1 => return no("nobody takes part".to_owned()),
        WireOp::Overlapped { op, .. } | WireOp::PersistentGroup { op } if !has_started_form(op) => {
            return no(format!("{op} is measured by blocking calls only"));
        }
        WireOp::Group { op, .. }
        | WireOp::Overlapped { op, .. }
        | WireOp::PersistentGroup { op } => {
            let (reduced, in_place) = match part.wire.op {
                WireOp::Group { reduced, in_place, .. } => (reduced, in_place),
                _ => (part.wire.op.reduced(), false),
            };
            if let Some(why) = reduced.misfit(Transport::Mpi) {
                return no(why.to_owned());
            }
            if in_place && !op.has_in_place(Transport::Mpi) {
                return no("MPI has no such operation in place".to_owned());
            }
            if op.is_uneven() && c_int::try_from(part.bytes).is_err() {
                return no(format!("uneven parts are counted up to {} B", c_int::MAX));
            }
            let unit = op.unit_bytes(n, reduced);
            if !part.bytes.is_multiple_of(unit) {
                return no(format!("its bytes are no multiple of {unit} for {n} ranks"));
            }
        }
        _ if n != 2 => return no(format!("a message has two ends, not {n}")),
        _ => {}
    }
    part.short_buffer().map_or(Ok(()), no)
}

/// Why a setting of UCX has no effect on this MPI's messages: the library sends by something else, or
/// read another value when it started. `carried` is what it reports to send by, `env` looks up a
/// variable.
pub(super) fn unfit_setting(
    setting: UcxSetting,
    carried: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, &'static str)> {
    if !carried.is_some_and(|text| text.contains("ucx")) {
        let by = carried.unwrap_or("a transport that it does not report");
        let way_out =
            "have it send by UCX: OMPI_MCA_pml=ucx for Open MPI, a build for ch4:ucx of MPICH";
        return Some((format!("the library sends by {by}, so UCX's settings do nothing"), way_out));
    }
    let (name, value) = setting.variable();
    let has = env(&name);
    (has.as_deref() != Some(value)).then(|| {
        let has = has.map_or_else(|| "is not set".to_owned(), |has| format!("is {has}"));
        let why = format!("{name} {has} in the processes, and this case needs {value}");
        (why, "start them with it, or with --ranks N --mpirun mpirun")
    })
}

/// Whether the peer reads or writes this position's memory while it makes no call itself.
pub(super) fn is_passive(part: &FlowPart, me: usize) -> bool {
    match part.wire.op {
        WireOp::Put { .. } | WireOp::Atomic(_) => me == 1,
        WireOp::Get { .. } => me == 0,
        _ => false,
    }
}

pub(super) fn rank(rank: u32) -> Option<i32> {
    i32::try_from(rank).ok()
}

/// `bytes` as (blocks, block size), both within a C int, with the largest power of two as block
/// size.
pub(super) fn blocks(bytes: u64) -> Option<(c_int, c_int)> {
    let each = 1u64 << bytes.trailing_zeros().min(30);
    Some((c_int::try_from(bytes / each).ok()?, c_int::try_from(each).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_ucx_needs_an_mpi_over_ucx_that_was_started_with_it() {
        let v1 = |name: &str| (name == "UCX_PROTO_ENABLE").then(|| "n".to_owned());
        let unfit = |setting, carried, env: &dyn Fn(&str) -> Option<String>| {
            unfit_setting(setting, carried, env).map(|(why, _)| why)
        };
        let over = [Some("pml ucx"), Some("device ch4:ucx")];
        assert!(over.iter().all(|over| unfit(UcxSetting::ProtoV1, *over, &v1).is_none()));
        let why = unfit(UcxSetting::ProtoV2, Some("pml ucx"), &v1);
        let expected = "UCX_PROTO_ENABLE is n in the processes, and this case needs y";
        assert_eq!(why.as_deref(), Some(expected));
        let why = unfit(UcxSetting::ProtoV1, Some("pml ob1 over one of btl sm"), &v1);
        assert!(why.is_some_and(|why| why.starts_with("the library sends by pml ob1")));
        assert!(unfit(UcxSetting::ProtoV1, None, &v1).is_some());
    }

    #[test]
    fn long_messages_are_blocks_of_a_power_of_two() {
        // 3 GiB are 3 blocks of 1 GiB; 2 GiB + 1 MiB are 2049 of 1 MiB.
        assert_eq!(blocks(3 << 30), Some((3, 1 << 30)));
        assert_eq!(blocks((2 << 30) + (1 << 20)), Some((2049, 1 << 20)));
        assert_eq!(blocks((1 << 31) + 2), Some(((1 << 30) + 1, 2)));
        // An odd number has only blocks of one byte, and too many of them.
        assert_eq!(blocks((1 << 31) + 1), None);
    }
}
