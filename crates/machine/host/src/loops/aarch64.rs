//! Advanced SIMD: pairs of 16-byte registers, with and without the non-temporal hint. Passes repeat
//! inside the assembly.

use std::arch::asm;

use pathline_schema::{CpuHow, CpuOp, CpuWork};

use super::{CpuLoop, LoopBody, SCALE, WRITE_BYTE};

/// Bytes per block: four pairs.
const BLOCK: usize = 128;

pub(super) fn available(how: CpuHow) -> bool {
    matches!(how, CpuHow::Neon | CpuHow::NeonNt) && std::arch::is_aarch64_feature_detected!("neon")
}

pub(super) fn find(work: CpuWork) -> Option<CpuLoop> {
    let body = match (work.op, work.how) {
        (CpuOp::Copy, CpuHow::Neon) => LoopBody::Copy(copy),
        (CpuOp::Copy, CpuHow::NeonNt) => LoopBody::Copy(copy_nt),
        (CpuOp::Read, CpuHow::Neon) => LoopBody::Read(read),
        (CpuOp::Write, CpuHow::Neon) => LoopBody::Write(write),
        (CpuOp::Write, CpuHow::NeonNt) => LoopBody::Write(write_nt),
        (CpuOp::Triad, CpuHow::Neon) => LoopBody::Triad(triad),
        (CpuOp::Triad, CpuHow::NeonNt) => LoopBody::Triad(triad_nt),
        _ => return None,
    };
    Some(CpuLoop::new(body, BLOCK, 64))
}

/// Loads or stores four pairs.
macro_rules! pairs {
    ($op:literal, $at:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            $op,
            " ",
            $a,
            ", [{",
            $at,
            "}]\n",
            $op,
            " ",
            $b,
            ", [{",
            $at,
            "}, #32]\n",
            $op,
            " ",
            $c,
            ", [{",
            $at,
            "}, #64]\n",
            $op,
            " ",
            $d,
            ", [{",
            $at,
            "}, #96]"
        )
    };
}
macro_rules! low {
    ($op:literal, $at:literal) => {
        pairs!($op, $at, "q0, q1", "q2, q3", "q4, q5", "q6, q7")
    };
}
macro_rules! high {
    ($op:literal, $at:literal) => {
        pairs!($op, $at, "q16, q17", "q18, q19", "q20, q21", "q22, q23")
    };
}
macro_rules! vector_asm {
    ($($part:tt)*) => {
        asm!(
            $($part)*
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _,
            out("v6") _, out("v7") _, out("v16") _, out("v17") _, out("v18") _, out("v19") _,
            out("v20") _, out("v21") _, out("v22") _, out("v23") _, out("v24") _,
            options(nostack)
        )
    };
}

macro_rules! copy_loop {
    ($fn:ident, $load:literal, $store:literal) => {
        unsafe fn $fn(dst: *mut u8, src: *const u8, len: usize, reps: u64) {
            // SAFETY: len / BLOCK blocks, at least one, lie inside the caller's ranges, in each of
            // at least one pass.
            unsafe {
                vector_asm!(
                    "2:",
                    low!($load, "s"),
                    low!($store, "d"),
                    "add {s}, {s}, #128",
                    "add {d}, {d}, #128",
                    "cmp {s}, {end}",
                    "b.ne 2b",
                    "sub {s}, {s}, {len}",
                    "sub {d}, {d}, {len}",
                    "subs {reps}, {reps}, #1",
                    "b.ne 2b",
                    s = inout(reg) src => _,
                    d = inout(reg) dst => _,
                    end = in(reg) src.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                );
            }
        }
    };
}
copy_loop!(copy, "ldp", "stp");
copy_loop!(copy_nt, "ldnp", "stnp");

/// One pair of vectors of a triad. Pair by pair, since sequences of loads, then multiplications,
/// then stores keep only some of a core's units busy at a time.
macro_rules! triad {
    ($load:literal, $store:literal; $a:literal $b:literal $c:literal $d:literal at $at:literal) => {
        concat!(
            $load,
            " q",
            $a,
            ", q",
            $b,
            ", [{s}, #",
            $at,
            "]\n",
            $load,
            " q",
            $c,
            ", q",
            $d,
            ", [{c}, #",
            $at,
            "]\n",
            "fmla v",
            $a,
            ".2d, v",
            $c,
            ".2d, v24.2d\n",
            "fmla v",
            $b,
            ".2d, v",
            $d,
            ".2d, v24.2d\n",
            $store,
            " q",
            $a,
            ", q",
            $b,
            ", [{d}, #",
            $at,
            "]"
        )
    };
}
macro_rules! triad_loop {
    ($fn:ident, $load:literal, $store:literal) => {
        unsafe fn $fn(dst: *mut u8, src: *const u8, other: *const u8, len: usize, reps: u64) {
            // SAFETY: as for a copy.
            unsafe {
                vector_asm!(
                    "dup v24.2d, {scale}",
                    "2:",
                    triad!($load, $store; "0" "1" "16" "17" at "0"),
                    triad!($load, $store; "2" "3" "18" "19" at "32"),
                    triad!($load, $store; "4" "5" "20" "21" at "64"),
                    triad!($load, $store; "6" "7" "22" "23" at "96"),
                    "add {s}, {s}, #128",
                    "add {c}, {c}, #128",
                    "add {d}, {d}, #128",
                    "cmp {s}, {end}",
                    "b.ne 2b",
                    "sub {s}, {s}, {len}",
                    "sub {c}, {c}, {len}",
                    "sub {d}, {d}, {len}",
                    "subs {reps}, {reps}, #1",
                    "b.ne 2b",
                    s = inout(reg) src => _,
                    c = inout(reg) other => _,
                    d = inout(reg) dst => _,
                    end = in(reg) src.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                    scale = in(reg) SCALE.to_bits(),
                );
            }
        }
    };
}
triad_loop!(triad, "ldp", "stp");
triad_loop!(triad_nt, "ldnp", "stnp");

macro_rules! write_loop {
    ($fn:ident, $store:literal) => {
        unsafe fn $fn(dst: *mut u8, len: usize, reps: u64) {
            // SAFETY: as for a copy.
            unsafe {
                vector_asm!(
                    "dup v0.2d, {word}",
                    "2:",
                    pairs!($store, "d", "q0, q0", "q0, q0", "q0, q0", "q0, q0"),
                    "add {d}, {d}, #128",
                    "cmp {d}, {end}",
                    "b.ne 2b",
                    "sub {d}, {d}, {len}",
                    "subs {reps}, {reps}, #1",
                    "b.ne 2b",
                    d = inout(reg) dst => _,
                    end = in(reg) dst.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                    word = in(reg) u64::from_ne_bytes([WRITE_BYTE; 8]),
                );
            }
        }
    };
}
write_loop!(write, "stp");
write_loop!(write_nt, "stnp");

unsafe fn read(src: *const u8, len: usize, reps: u64) -> u64 {
    let mut sums = [0_u64; BLOCK / 8];
    // SAFETY: as for a copy, and the eight registers fill sums.
    unsafe {
        vector_asm!(
            low!("ldp", "d"),
            "2:",
            high!("ldp", "s"),
            "add v0.2d, v0.2d, v16.2d",
            "add v1.2d, v1.2d, v17.2d",
            "add v2.2d, v2.2d, v18.2d",
            "add v3.2d, v3.2d, v19.2d",
            "add v4.2d, v4.2d, v20.2d",
            "add v5.2d, v5.2d, v21.2d",
            "add v6.2d, v6.2d, v22.2d",
            "add v7.2d, v7.2d, v23.2d",
            "add {s}, {s}, #128",
            "cmp {s}, {end}",
            "b.ne 2b",
            "sub {s}, {s}, {len}",
            "subs {reps}, {reps}, #1",
            "b.ne 2b",
            low!("stp", "d"),
            s = inout(reg) src => _,
            end = in(reg) src.add(len),
            len = in(reg) len,
            reps = inout(reg) reps => _,
            d = in(reg) sums.as_mut_ptr(),
        );
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}
