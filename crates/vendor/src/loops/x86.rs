//! AVX2, AVX-512 and string instructions.
//!
//! Eight vectors a turn. Loads come first, then stores: on every core since Haswell that keeps
//! both load ports busy and lets whole lines of stores drain together.

use std::arch::asm;

use pathline_schema::{CpuHow, CpuOp, CpuWork};

use super::{Body, Loop, SCALE, WRITTEN};

pub(super) fn available(how: CpuHow) -> bool {
    match how {
        CpuHow::Movsb => is_x86_feature_detected!("ermsb"),
        CpuHow::Avx2 | CpuHow::Avx2Nt | CpuHow::Avx2Nta => {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
        }
        CpuHow::Avx512 | CpuHow::Avx512Nt | CpuHow::Avx512Nta => {
            is_x86_feature_detected!("avx512f")
        }
        _ => false,
    }
}

pub(super) fn find(work: CpuWork) -> Option<Loop> {
    use CpuHow::{Avx2, Avx2Nt, Avx2Nta, Avx512, Avx512Nt, Avx512Nta, Movsb};
    let (body, block, align) = match (work.op, work.how) {
        (CpuOp::Copy, Movsb) => (Body::Copy(movsb), 1, 1),
        (CpuOp::Copy, Avx2) => (Body::Copy(avx2::copy), avx2::BLOCK, 1),
        (CpuOp::Copy, Avx2Nt) => (Body::Copy(avx2::copy_nt), avx2::BLOCK, 64),
        (CpuOp::Copy, Avx2Nta) => (Body::Copy(avx2::copy_nta), avx2::BLOCK, 64),
        (CpuOp::Copy, Avx512) => (Body::Copy(avx512::copy), avx512::BLOCK, 1),
        (CpuOp::Copy, Avx512Nt) => (Body::Copy(avx512::copy_nt), avx512::BLOCK, 64),
        (CpuOp::Copy, Avx512Nta) => (Body::Copy(avx512::copy_nta), avx512::BLOCK, 64),
        (CpuOp::Read, Avx2) => (Body::Read(avx2::read), avx2::BLOCK, 1),
        (CpuOp::Read, Avx512) => (Body::Read(avx512::read), avx512::BLOCK, 1),
        (CpuOp::Write, Avx2) => (Body::Write(avx2::write), avx2::BLOCK, 1),
        (CpuOp::Write, Avx2Nt) => (Body::Write(avx2::write_nt), avx2::BLOCK, 64),
        (CpuOp::Write, Avx512) => (Body::Write(avx512::write), avx512::BLOCK, 1),
        (CpuOp::Write, Avx512Nt) => (Body::Write(avx512::write_nt), avx512::BLOCK, 64),
        (CpuOp::Triad, Avx2) => (Body::Triad(avx2::triad), avx2::BLOCK, 1),
        (CpuOp::Triad, Avx2Nt) => (Body::Triad(avx2::triad_nt), avx2::BLOCK, 64),
        (CpuOp::Triad, Avx2Nta) => (Body::Triad(avx2::triad_nta), avx2::BLOCK, 64),
        (CpuOp::Triad, Avx512) => (Body::Triad(avx512::triad), avx512::BLOCK, 1),
        (CpuOp::Triad, Avx512Nt) => (Body::Triad(avx512::triad_nt), avx512::BLOCK, 64),
        (CpuOp::Triad, Avx512Nta) => (Body::Triad(avx512::triad_nta), avx512::BLOCK, 64),
        _ => return None,
    };
    Some(Loop::new(body, block, align))
}

unsafe fn movsb(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear, as the calling
    // convention demands.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Flush-to-zero and denormals-are-zero on top of the default control word, all exceptions masked.
/// One pattern word in 1024 is a denormal as a double, and each would cost a microcode assist.
const FLUSH: u32 = 0x1f80 | 0x8040;

/// One instruction for each of the eight vectors of a turn: `load8!("vmovdqu", "ymm", "32", "s")`.
macro_rules! load8 {
    ($op:literal, $v:literal, $w:literal, $at:literal) => {
        concat!(
            $op, " ", $v, "0, [{", $at, "} + 0*", $w, "]\n", $op, " ", $v, "1, [{", $at, "} + 1*",
            $w, "]\n", $op, " ", $v, "2, [{", $at, "} + 2*", $w, "]\n", $op, " ", $v, "3, [{", $at,
            "} + 3*", $w, "]\n", $op, " ", $v, "4, [{", $at, "} + 4*", $w, "]\n", $op, " ", $v,
            "5, [{", $at, "} + 5*", $w, "]\n", $op, " ", $v, "6, [{", $at, "} + 6*", $w, "]\n",
            $op, " ", $v, "7, [{", $at, "} + 7*", $w, "]\n",
        )
    };
}
/// Stores of the eight vectors.
macro_rules! store8 {
    ($op:literal, $v:literal, $w:literal) => {
        concat!(
            $op,
            " [{d} + 0*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 1*",
            $w,
            "], ",
            $v,
            "1\n",
            $op,
            " [{d} + 2*",
            $w,
            "], ",
            $v,
            "2\n",
            $op,
            " [{d} + 3*",
            $w,
            "], ",
            $v,
            "3\n",
            $op,
            " [{d} + 4*",
            $w,
            "], ",
            $v,
            "4\n",
            $op,
            " [{d} + 5*",
            $w,
            "], ",
            $v,
            "5\n",
            $op,
            " [{d} + 6*",
            $w,
            "], ",
            $v,
            "6\n",
            $op,
            " [{d} + 7*",
            $w,
            "], ",
            $v,
            "7\n",
        )
    };
}
/// Stores of the one vector 0 eight times.
macro_rules! splat8 {
    ($op:literal, $v:literal, $w:literal) => {
        concat!(
            $op,
            " [{d} + 0*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 1*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 2*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 3*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 4*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 5*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 6*",
            $w,
            "], ",
            $v,
            "0\n",
            $op,
            " [{d} + 7*",
            $w,
            "], ",
            $v,
            "0\n",
        )
    };
}
/// Exclusive or of memory into the eight vectors.
macro_rules! fold8 {
    ($op:literal, $v:literal, $w:literal) => {
        concat!(
            $op,
            " ",
            $v,
            "0, ",
            $v,
            "0, [{s} + 0*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "1, ",
            $v,
            "1, [{s} + 1*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "2, ",
            $v,
            "2, [{s} + 2*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "3, ",
            $v,
            "3, [{s} + 3*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "4, ",
            $v,
            "4, [{s} + 4*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "5, ",
            $v,
            "5, [{s} + 5*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "6, ",
            $v,
            "6, [{s} + 6*",
            $w,
            "]\n",
            $op,
            " ",
            $v,
            "7, ",
            $v,
            "7, [{s} + 7*",
            $w,
            "]\n",
        )
    };
}
/// `v = v + s * memory`, the scale being in vector 8.
macro_rules! fma8 {
    ($v:literal, $w:literal) => {
        concat!(
            "vfmadd231pd ",
            $v,
            "0, ",
            $v,
            "8, [{c} + 0*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "1, ",
            $v,
            "8, [{c} + 1*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "2, ",
            $v,
            "8, [{c} + 2*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "3, ",
            $v,
            "8, [{c} + 3*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "4, ",
            $v,
            "8, [{c} + 4*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "5, ",
            $v,
            "8, [{c} + 5*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "6, ",
            $v,
            "8, [{c} + 6*",
            $w,
            "]\n",
            "vfmadd231pd ",
            $v,
            "7, ",
            $v,
            "8, [{c} + 7*",
            $w,
            "]\n",
        )
    };
}
/// The registers that the loops use.
macro_rules! vector_asm {
    ($($part:tt)*) => {
        asm!(
            $($part)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _,
            options(nostack)
        )
    };
}

macro_rules! copy_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $load:literal, $ahead:literal, $store:literal, $end:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(dst: *mut u8, src: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            // SAFETY: len / BLOCK turns of BLOCK bytes lie inside the caller's ranges; prefetches do
            // not fault.
            unsafe {
                vector_asm!(
                    "2:",
                    $ahead,
                    load8!($load, $v, $w, "s"),
                    store8!($store, $v, $w),
                    concat!("add {s}, 8*", $w),
                    concat!("add {d}, 8*", $w),
                    "dec {n}",
                    "jnz 2b",
                    $end,
                    "vzeroupper",
                    s = inout(reg) src => _,
                    d = inout(reg) dst => _,
                    n = inout(reg) len / BLOCK => _,
                );
            }
        }
    };
}
macro_rules! triad_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $load:literal, $ahead:literal, $store:literal, $end:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(dst: *mut u8, src: *const u8, other: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            let (scale, flush, mut kept) = (SCALE, FLUSH, 0_u32);
            // SAFETY: as for a copy. The control word of floating point is put back before compiled
            // code runs again.
            unsafe {
                vector_asm!(
                    "stmxcsr [{kept}]",
                    "ldmxcsr [{flush}]",
                    concat!("vbroadcastsd ", $v, "8, qword ptr [{scale}]"),
                    "2:",
                    $ahead,
                    load8!($load, $v, $w, "s"),
                    fma8!($v, $w),
                    store8!($store, $v, $w),
                    concat!("add {s}, 8*", $w),
                    concat!("add {c}, 8*", $w),
                    concat!("add {d}, 8*", $w),
                    "dec {n}",
                    "jnz 2b",
                    $end,
                    "vzeroupper",
                    "ldmxcsr [{kept}]",
                    s = inout(reg) src => _,
                    c = inout(reg) other => _,
                    d = inout(reg) dst => _,
                    n = inout(reg) len / BLOCK => _,
                    kept = in(reg) &raw mut kept,
                    flush = in(reg) &raw const flush,
                    scale = in(reg) &raw const scale,
                );
            }
        }
    };
}
macro_rules! write_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $store:literal, $end:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(dst: *mut u8, len: usize) {
            if len == 0 {
                return;
            }
            let word = u64::from_ne_bytes([WRITTEN; 8]);
            // SAFETY: len / BLOCK turns of BLOCK bytes lie inside the caller's range.
            unsafe {
                vector_asm!(
                    concat!("vbroadcastsd ", $v, "0, qword ptr [{word}]"),
                    "2:",
                    splat8!($store, $v, $w),
                    concat!("add {d}, 8*", $w),
                    "dec {n}",
                    "jnz 2b",
                    $end,
                    "vzeroupper",
                    d = inout(reg) dst => _,
                    n = inout(reg) len / BLOCK => _,
                    word = in(reg) &raw const word,
                );
            }
        }
    };
}
macro_rules! read_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $load:literal, $xor:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(src: *const u8, len: usize) -> u64 {
            if len == 0 {
                return 0;
            }
            let mut sums = [0_u64; BLOCK / 8];
            // SAFETY: len / BLOCK turns of BLOCK bytes lie inside the caller's range, and the eight
            // vectors fill sums.
            unsafe {
                vector_asm!(
                    load8!($load, $v, $w, "d"),
                    "2:",
                    fold8!($xor, $v, $w),
                    concat!("add {s}, 8*", $w),
                    "dec {n}",
                    "jnz 2b",
                    store8!($load, $v, $w),
                    "vzeroupper",
                    s = inout(reg) src => _,
                    n = inout(reg) len / BLOCK => _,
                    d = in(reg) sums.as_mut_ptr(),
                );
            }
            sums.iter().fold(0, |a, b| a ^ b)
        }
    };
}
/// All loops of one register width.
macro_rules! family {
    (
        $name:ident, $feature:literal, $v:literal, $w:literal, $load:literal, $xor:literal,
        $ahead:literal, $ahead_both:literal
    ) => {
        mod $name {
            use super::*;

            /// Bytes of a turn.
            pub(super) const BLOCK: usize = 8 * $w;
            copy_loop!(copy, $feature, $v, $w, $load, "", $load, "");
            copy_loop!(copy_nt, $feature, $v, $w, $load, "", "vmovntdq", "sfence");
            copy_loop!(copy_nta, $feature, $v, $w, $load, $ahead, "vmovntdq", "sfence");
            triad_loop!(triad, $feature, $v, $w, $load, "", $load, "");
            triad_loop!(triad_nt, $feature, $v, $w, $load, "", "vmovntdq", "sfence");
            triad_loop!(triad_nta, $feature, $v, $w, $load, $ahead_both, "vmovntdq", "sfence");
            write_loop!(write, $feature, $v, $w, $load, "");
            write_loop!(write_nt, $feature, $v, $w, "vmovntdq", "sfence");
            read_loop!(read, $feature, $v, $w, $load, $xor);
        }
    };
}
family!(
    avx2,
    "avx2,fma",
    "ymm",
    32,
    "vmovdqu",
    "vpxor",
    "prefetchnta [{s} + 1024 + 0*64]\nprefetchnta [{s} + 1024 + 1*64]\n\
     prefetchnta [{s} + 1024 + 2*64]\nprefetchnta [{s} + 1024 + 3*64]",
    "prefetchnta [{s} + 1024 + 0*64]\nprefetchnta [{s} + 1024 + 1*64]\n\
     prefetchnta [{s} + 1024 + 2*64]\nprefetchnta [{s} + 1024 + 3*64]\n\
     prefetchnta [{c} + 1024 + 0*64]\nprefetchnta [{c} + 1024 + 1*64]\n\
     prefetchnta [{c} + 1024 + 2*64]\nprefetchnta [{c} + 1024 + 3*64]"
);
family!(
    avx512,
    "avx512f",
    "zmm",
    64,
    "vmovdqu64",
    "vpxorq",
    "prefetchnta [{s} + 1024 + 0*64]\nprefetchnta [{s} + 1024 + 1*64]\n\
     prefetchnta [{s} + 1024 + 2*64]\nprefetchnta [{s} + 1024 + 3*64]\n\
     prefetchnta [{s} + 1024 + 4*64]\nprefetchnta [{s} + 1024 + 5*64]\n\
     prefetchnta [{s} + 1024 + 6*64]\nprefetchnta [{s} + 1024 + 7*64]",
    "prefetchnta [{s} + 1024 + 0*64]\nprefetchnta [{s} + 1024 + 1*64]\n\
     prefetchnta [{s} + 1024 + 2*64]\nprefetchnta [{s} + 1024 + 3*64]\n\
     prefetchnta [{s} + 1024 + 4*64]\nprefetchnta [{s} + 1024 + 5*64]\n\
     prefetchnta [{s} + 1024 + 6*64]\nprefetchnta [{s} + 1024 + 7*64]\n\
     prefetchnta [{c} + 1024 + 0*64]\nprefetchnta [{c} + 1024 + 1*64]\n\
     prefetchnta [{c} + 1024 + 2*64]\nprefetchnta [{c} + 1024 + 3*64]\n\
     prefetchnta [{c} + 1024 + 4*64]\nprefetchnta [{c} + 1024 + 5*64]\n\
     prefetchnta [{c} + 1024 + 6*64]\nprefetchnta [{c} + 1024 + 7*64]"
);
