//! AVX2, AVX-512 and string instructions.
//!
//! Eight vectors per block. A copy does all loads, then all stores: on every core since Haswell
//! that keeps both load ports busy and lets whole lines of stores drain together. A triad goes
//! vector by vector: eight loads, eight multiplications and eight stores in sequence reached only
//! 0.78 of gcc's loop in the first-level cache.
//!
//! In the first-level cache a triad depends on how soon loads meet stores that are still waiting: arrays of
//! 4 and 8 KiB have the same low address bits. Shares of gcc's better loop, medians of 301:
//!
//! | vectors a turn, pass | Zen 4 | Xeon (Emerald Rapids) |
//! |---|---|---|
//! | AVX2, 1 by index, 4 KiB | 0.76 | 0.63 to 0.67 |
//! | AVX2, 8 by pointers, 4 KiB | 0.97 to 0.99 | 1.03 to 1.05 |
//! | AVX-512, 1 by index, 4 and 8 KiB | 0.97 to 1.00 | 0.96 to 1.05 |
//! | AVX-512, 2 by index, 4 to 64 KiB | 0.96 to 1.01 | 1.00 to 1.07 |
//! | AVX-512, 8 by pointers, 16 KiB | 1.00 | 0.71 |
//!
//! On Zen 3 eight AVX2 vectors a turn took 59 ns a pass over 4 KiB and one took 45. So the AVX2 triad has
//! eight where the processor has AVX-512 (Zen 4 and Xeons do), else one.
//!
//! Passes repeat inside the assembly.

use std::arch::asm;

use pathline_schema::{CpuHow, CpuOp, CpuWork};

use super::{CpuLoop, LoopBody, SCALE, WRITE_BYTE};

pub(super) fn available(how: CpuHow) -> bool {
    match how {
        CpuHow::Movsb => is_x86_feature_detected!("ermsb"),
        CpuHow::Avx2 | CpuHow::Avx2Nt | CpuHow::Avx2Nta | CpuHow::Avx2Nt4 | CpuHow::Avx2Ntl => {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
        }
        CpuHow::Avx512
        | CpuHow::Avx512Nt
        | CpuHow::Avx512Nta
        | CpuHow::Avx512Nt4
        | CpuHow::Avx512Ntl => {
            is_x86_feature_detected!("avx512f")
        }
        _ => false,
    }
}

pub(super) fn find(work: CpuWork) -> Option<CpuLoop> {
    use CpuHow::{
        Avx2, Avx2Nt, Avx2Nt4, Avx2Nta, Avx2Ntl, Avx512, Avx512Nt, Avx512Nt4, Avx512Nta, Avx512Ntl,
        Movsb,
    };
    let (body, block, align) = match (work.op, work.how) {
        (CpuOp::Copy, Movsb) => (LoopBody::Copy(movsb), 1, 1),
        (CpuOp::Copy, Avx2) => (LoopBody::Copy(avx2::copy), avx2::BLOCK, 1),
        (CpuOp::Copy, Avx2Nt) => (LoopBody::Copy(avx2::copy_nt), avx2::BLOCK, 64),
        (CpuOp::Copy, Avx2Nta) => (LoopBody::Copy(avx2::copy_nta), avx2::BLOCK, 64),
        (CpuOp::Copy, Avx2Nt4) => (LoopBody::Copy(avx2::copy_nt4), avx2::BLOCK, 64),
        (CpuOp::Copy, Avx2Ntl) => (LoopBody::Copy(avx2::copy_ntl), avx2::BLOCK, 1),
        (CpuOp::Copy, Avx512) => (LoopBody::Copy(avx512::copy), avx512::BLOCK, 1),
        (CpuOp::Copy, Avx512Nt) => (LoopBody::Copy(avx512::copy_nt), avx512::BLOCK, 64),
        (CpuOp::Copy, Avx512Nta) => (LoopBody::Copy(avx512::copy_nta), avx512::BLOCK, 64),
        (CpuOp::Copy, Avx512Nt4) => (LoopBody::Copy(avx512::copy_nt4), avx512::BLOCK, 64),
        (CpuOp::Copy, Avx512Ntl) => (LoopBody::Copy(avx512::copy_ntl), avx512::BLOCK, 1),
        (CpuOp::Read, Avx2) => (LoopBody::Read(avx2::read), avx2::BLOCK, 1),
        (CpuOp::Read, Avx512) => (LoopBody::Read(avx512::read), avx512::BLOCK, 1),
        (CpuOp::Write, Avx2) => (LoopBody::Write(avx2::write), avx2::BLOCK, 1),
        (CpuOp::Write, Avx2Nt) => (LoopBody::Write(avx2::write_nt), avx2::BLOCK, 64),
        (CpuOp::Write, Avx512) => (LoopBody::Write(avx512::write), avx512::BLOCK, 1),
        (CpuOp::Write, Avx512Nt) => (LoopBody::Write(avx512::write_nt), avx512::BLOCK, 64),
        (CpuOp::Triad, Avx2) if is_x86_feature_detected!("avx512f") => {
            (LoopBody::Triad(avx2::triad_by_eight), avx2::BLOCK, 1)
        }
        (CpuOp::Triad, Avx2) => (LoopBody::Triad(avx2::triad_by_one), avx2::BLOCK, 1),
        (CpuOp::Triad, Avx2Nt) => (LoopBody::Triad(avx2::triad_nt), avx2::BLOCK, 64),
        (CpuOp::Triad, Avx2Nta) => (LoopBody::Triad(avx2::triad_nta), avx2::BLOCK, 64),
        (CpuOp::Triad, Avx512) => (LoopBody::Triad(avx512::triad_by_two), avx512::BLOCK, 1),
        (CpuOp::Triad, Avx512Nt) => (LoopBody::Triad(avx512::triad_nt), avx512::BLOCK, 64),
        (CpuOp::Triad, Avx512Nta) => (LoopBody::Triad(avx512::triad_nta), avx512::BLOCK, 64),
        _ => return None,
    };
    Some(CpuLoop::new(body, block, align))
}

unsafe fn movsb(dst: *mut u8, src: *const u8, len: usize, reps: u64) {
    for _ in 0..reps {
        // SAFETY: the caller guarantees both ranges; the direction flag is clear, as the calling
        // convention requires.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Flush-to-zero and denormals-are-zero on top of the default control word, all exceptions masked.
/// One pattern word in 1024 is a denormal double, each of which would cost a microcode assist.
const FLUSH: u32 = 0x1f80 | 0x8040;

/// Values that the assembly of a triad loads and stores in addition to its vectors.
#[repr(C)]
struct TriadState {
    scale: f64,
    /// At offset 8: floating-point control word during the loop.
    flush: u32,
    /// At offset 12: floating-point control word of the caller.
    kept: u32,
}

/// Instructions for words by number, which stands at the two gaps of each.
macro_rules! words {
    ($a:literal, $b:literal, $c:literal; $($i:literal)*) => {
        concat!($($a, $i, $b, $i, $c, "\n"),*)
    };
}
/// `d = s + scale * c` double by double, with the scale in vector 8.
macro_rules! fused_words {
    ($($i:literal)*) => {
        concat!($(
            "vmovsd xmm", $i, ", [{s} + 8*", $i, "]\n",
            "vmovsd xmm9, [{c} + 8*", $i, "]\n",
            "vfmadd132sd xmm9, xmm", $i, ", xmm8\n",
            "vmovsd [{d} + 8*", $i, "], xmm9\n"
        ),*)
    };
}
/// Prefetch distance of a `-nta` loop, in bytes. Of 256 to 16384, 512 was fastest on a Xeon with
/// AMX (by 10 % over 1024, 60 % over 4096 and beyond), in a busy virtual machine.
macro_rules! ahead {
    ($at:literal; $($line:literal)*) => {
        concat!($("prefetchnta [{", $at, "} + 512 + ", $line, "*64]\n"),*)
    };
}
/// Loads of vectors by number: `load!("vmovdqu", "ymm", 32, "s"; 0 1 2 3)`.
macro_rules! load {
    ($op:literal, $v:literal, $w:literal, $at:literal; $($i:literal)*) => {
        concat!($($op, " ", $v, $i, ", [{", $at, "} + ", $i, "*", $w, "]\n"),*)
    };
}
/// Stores of vectors by number.
macro_rules! store {
    ($op:literal, $v:literal, $w:literal; $($i:literal)*) => {
        concat!($($op, " [{d} + ", $i, "*", $w, "], ", $v, $i, "\n"),*)
    };
}
/// Stores of vector 0 at the offsets of vectors by number.
macro_rules! splat {
    ($op:literal, $v:literal, $w:literal; $($i:literal)*) => {
        concat!($($op, " [{d} + ", $i, "*", $w, "], ", $v, "0\n"),*)
    };
}
/// Sums of the 8-byte words of memory into vectors by number.
macro_rules! fold {
    ($op:literal, $v:literal, $w:literal; $($i:literal)*) => {
        concat!($($op, " ", $v, $i, ", ", $v, $i, ", [{s} + ", $i, "*", $w, "]\n"),*)
    };
}
/// `d = s + scale * c` vector by vector, with the scale in vector 8.
macro_rules! fma {
    ($load:literal, $store:literal, $v:literal, $w:literal; $($i:literal)*) => {
        concat!($(
            $load, " ", $v, $i, ", [{s} + ", $i, "*", $w, "]\n",
            "vfmadd231pd ", $v, $i, ", ", $v, "8, [{c} + ", $i, "*", $w, "]\n",
            $store, " [{d} + ", $i, "*", $w, "], ", $v, $i, "\n"
        ),*)
    };
}
/// As `fma!`, with an index in `at` for all three arrays.
macro_rules! indexed_fma {
    ($load:literal, $v:literal, $w:literal; $($i:literal)*) => {
        concat!($(
            $load, " ", $v, $i, ", [{s} + {at} + ", $i, "*", $w, "]\n",
            "vfmadd231pd ", $v, $i, ", ", $v, "8, [{c} + {at} + ", $i, "*", $w, "]\n",
            $load, " [{d} + {at} + ", $i, "*", $w, "], ", $v, $i, "\n"
        ),*)
    };
}
/// Assembly that uses some vector registers and ends with `vzeroupper`. That clears the upper
/// halves of registers 0 to 15, so all of them are declared as clobbered; a name stands for the
/// whole register.
macro_rules! vector_asm {
    ($($part:tt)*) => {
        asm!(
            $($part)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack)
        )
    };
}

/// Loops of 8-byte words. Compilers give all pointers one index: of a copy of eight loads and eight stores
/// over 64 KiB on a Zen 4 that leaves 0.90 of what stepped pointers reach (34.0 of 37.7 GB/s), and a body
/// that does not start on a cache line costs 3 % of a copy of 16 KiB.
pub(super) fn find_plain(work: CpuWork) -> Option<LoopBody> {
    match (work.how, work.op) {
        (CpuHow::Plain, CpuOp::Copy) => Some(LoopBody::Copy(copy_words)),
        (CpuHow::Plain, CpuOp::Triad) if is_x86_feature_detected!("fma") => {
            Some(LoopBody::Triad(triad_words))
        }
        _ => None,
    }
}

unsafe fn copy_words(dst: *mut u8, src: *const u8, len: usize, reps: u64) {
    // Size and number of passes are in vectors 0 and 1, since the words need the other registers: memory
    // that a pass uses in addition displaces a line of two arrays that fill the first-level cache.
    // SAFETY: len / 64 turns of 64 bytes, at least one, lie inside the caller's ranges, in each of at
    // least one pass.
    unsafe {
        asm!(
            "movq xmm0, {w0}",
            "movq xmm1, {w1}",
            ".p2align 6",
            "2:",
            words!("mov {w", "}, [{s} + 8*", "]"; 0 1 2 3 4 5 6 7),
            words!("mov [{d} + 8*", "], {w", "}"; 0 1 2 3 4 5 6 7),
            "add {s}, 64",
            "add {d}, 64",
            "cmp {s}, {end}",
            "jne 2b",
            "movq {w0}, xmm0",
            "sub {s}, {w0}",
            "sub {d}, {w0}",
            "movq {w1}, xmm1",
            "dec {w1}",
            "movq xmm1, {w1}",
            "jnz 2b",
            w0 = inout(reg) len => _,
            w1 = inout(reg) reps => _,
            w2 = out(reg) _,
            w3 = out(reg) _,
            w4 = out(reg) _,
            w5 = out(reg) _,
            w6 = out(reg) _,
            w7 = out(reg) _,
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            end = in(reg) src.add(len),
            out("xmm0") _,
            out("xmm1") _,
            options(nostack)
        );
    }
}

/// The triad of doubles one by one, with one instruction for product and sum.
#[target_feature(enable = "fma")]
unsafe fn triad_words(dst: *mut u8, src: *const u8, other: *const u8, len: usize, reps: u64) {
    // SAFETY: as for `copy_words`.
    unsafe {
        vector_asm!(
            "vmovq xmm8, {scale}",
            ".p2align 6",
            "2:",
            fused_words!(0 1 2 3 4 5 6 7),
            "add {s}, 64",
            "add {c}, 64",
            "add {d}, 64",
            "cmp {s}, {end}",
            "jne 2b",
            "sub {s}, {len}",
            "sub {c}, {len}",
            "sub {d}, {len}",
            "dec {reps}",
            "jnz 2b",
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

macro_rules! copy_loop {
    ($fn:ident, $feature:literal, $w:literal, $end:literal; $($turn:expr),+) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(dst: *mut u8, src: *const u8, len: usize, reps: u64) {
            // SAFETY: len / BLOCK blocks, at least one, lie inside the caller's ranges, in each of
            // at least one pass; prefetches do not fault.
            unsafe {
                vector_asm!(
                    ".p2align 6",
                    "2:",
                    $($turn,)+
                    concat!("add {s}, 8*", $w),
                    concat!("add {d}, 8*", $w),
                    "cmp {s}, {end}",
                    "jne 2b",
                    $end,
                    "sub {s}, {len}",
                    "sub {d}, {len}",
                    "dec {reps}",
                    "jnz 2b",
                    "vzeroupper",
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
/// Bytes per page of a `-nt4` loop.
const PAGE: usize = 4096;

/// Streaming copies of four pages at once, a line or two of each in turn. A row of DRAM is then
/// open for every page, and reads and writes collide in fewer of its banks; glibc's `large_memcpy`
/// does the same from 3/4 of the last-level cache. One thread, 8 MiB at a time out of 512 MiB, on a
/// Xeon with AMX, medians in GB/s: one page 10.1, two 12.6, four 13.1, eight 12.5, and with
/// `prefetchnta` 256 to 2048 bytes ahead 7.3 to 9.8. 64 bytes of a page in turn are best with
/// AVX-512 (128: 12.6), 128 with AVX2 (13.4; 64: 12.5).
macro_rules! paged_loop {
    (
        $feature:literal, $load:literal, $v:literal, $line:literal;
        $($i:literal at $page:literal + $more:literal),+
    ) => {
        #[target_feature(enable = $feature)]
        unsafe fn pages(dst: *mut u8, src: *const u8, groups: usize, reps: u64) {
            // SAFETY: the caller guarantees `groups` times four pages, at least once.
            unsafe {
                vector_asm!(
                    "2:",
                    "mov {n}, {groups}",
                    "3:",
                    concat!("mov {k:e}, 4096 / ", $line),
                    ".p2align 6",
                    "4:",
                    $(concat!(
                        $load, " ", $v, $i, ", [{s} + ", $page, "*4096 + ", $more, "]"
                    ),)+
                    $(concat!(
                        "vmovntdq [{d} + ", $page, "*4096 + ", $more, "], ", $v, $i
                    ),)+
                    concat!("add {s}, ", $line),
                    concat!("add {d}, ", $line),
                    "dec {k:e}",
                    "jnz 4b",
                    "add {s}, 3*4096",
                    "add {d}, 3*4096",
                    "dec {n}",
                    "jnz 3b",
                    "sfence",
                    "sub {s}, {len}",
                    "sub {d}, {len}",
                    "dec {reps}",
                    "jnz 2b",
                    "vzeroupper",
                    s = inout(reg) src => _,
                    d = inout(reg) dst => _,
                    n = out(reg) _,
                    k = out(reg) _,
                    groups = in(reg) groups,
                    len = in(reg) groups * 4 * PAGE,
                    reps = inout(reg) reps => _,
                );
            }
        }

        #[target_feature(enable = $feature)]
        pub(super) unsafe fn copy_nt4(dst: *mut u8, src: *const u8, len: usize, reps: u64) {
            let groups = len / (4 * PAGE);
            let paged = groups * 4 * PAGE;
            // SAFETY: both parts lie inside the caller's ranges, and the second is a multiple of
            // the block, since the whole is.
            unsafe {
                if groups == 0 {
                    copy_nt(dst, src, len, reps);
                } else if paged == len {
                    pages(dst, src, groups, reps);
                } else {
                    for _ in 0..reps {
                        pages(dst, src, groups, 1);
                        copy_nt(dst.add(paged), src.add(paged), len - paged, 1);
                    }
                }
            }
        }
    };
}
macro_rules! triad_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $end:literal; $($turn:expr),+) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(
            dst: *mut u8,
            src: *const u8,
            other: *const u8,
            len: usize,
            reps: u64,
        ) {
            let mut state = TriadState { scale: SCALE, flush: FLUSH, kept: 0 };
            // SAFETY: as for a copy. The floating-point control word is restored before compiled
            // code runs again. Changing it takes a third of a pass over 4 KiB, so it is changed
            // once for all passes.
            unsafe {
                vector_asm!(
                    "stmxcsr [{state} + 12]",
                    "ldmxcsr [{state} + 8]",
                    concat!("vbroadcastsd ", $v, "8, qword ptr [{state}]"),
                    ".p2align 6",
                    "2:",
                    $($turn,)+
                    concat!("add {s}, 8*", $w),
                    concat!("add {c}, 8*", $w),
                    concat!("add {d}, 8*", $w),
                    "cmp {s}, {end}",
                    "jne 2b",
                    $end,
                    "sub {s}, {len}",
                    "sub {c}, {len}",
                    "sub {d}, {len}",
                    "dec {reps}",
                    "jnz 2b",
                    "vzeroupper",
                    "ldmxcsr [{state} + 12]",
                    s = inout(reg) src => _,
                    c = inout(reg) other => _,
                    d = inout(reg) dst => _,
                    end = in(reg) src.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                    state = in(reg) &raw mut state,
                );
            }
        }
    };
}
/// A triad with few vectors a turn and an index that ends at 0.
macro_rules! indexed_triad {
    (
        $fn:ident, $feature:literal, $v:literal, $w:literal, $load:literal, $count:literal;
        $($i:literal)+
    ) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(
            dst: *mut u8,
            src: *const u8,
            other: *const u8,
            len: usize,
            reps: u64,
        ) {
            let mut state = TriadState { scale: SCALE, flush: FLUSH, kept: 0 };
            // SAFETY: turns of $count vectors of $w bytes divide a block, so whole ones lie inside the
            // caller's ranges, at least one, in each of at least one pass; the ends are no more than one
            // past them. The control word is treated as in the other triads.
            unsafe {
                vector_asm!(
                    "stmxcsr [{state} + 12]",
                    "ldmxcsr [{state} + 8]",
                    concat!("vbroadcastsd ", $v, "8, qword ptr [{state}]"),
                    ".p2align 6",
                    "2:",
                    "mov {at}, {start}",
                    "3:",
                    indexed_fma!($load, $v, $w; $($i)+),
                    concat!("add {at}, ", $count, "*", $w),
                    "jnz 3b",
                    "dec {reps}",
                    "jnz 2b",
                    "vzeroupper",
                    "ldmxcsr [{state} + 12]",
                    s = in(reg) src.add(len),
                    c = in(reg) other.add(len),
                    d = in(reg) dst.add(len),
                    start = in(reg) len.wrapping_neg(),
                    at = out(reg) _,
                    reps = inout(reg) reps => _,
                    state = in(reg) &raw mut state,
                );
            }
        }
    };
}
macro_rules! write_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $store:literal, $end:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(dst: *mut u8, len: usize, reps: u64) {
            let word = u64::from_ne_bytes([WRITE_BYTE; 8]);
            // SAFETY: len / BLOCK blocks, at least one, lie inside the caller's range, in each of
            // at least one pass.
            unsafe {
                vector_asm!(
                    concat!("vbroadcastsd ", $v, "0, qword ptr [{word}]"),
                    ".p2align 6",
                    "2:",
                    splat!($store, $v, $w; 0 1 2 3 4 5 6 7),
                    concat!("add {d}, 8*", $w),
                    "cmp {d}, {end}",
                    "jne 2b",
                    $end,
                    "sub {d}, {len}",
                    "dec {reps}",
                    "jnz 2b",
                    "vzeroupper",
                    d = inout(reg) dst => _,
                    end = in(reg) dst.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                    word = in(reg) &raw const word,
                );
            }
        }
    };
}
macro_rules! read_loop {
    ($fn:ident, $feature:literal, $v:literal, $w:literal, $load:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $fn(src: *const u8, len: usize, reps: u64) -> u64 {
            let mut sums = [0_u64; BLOCK / 8];
            // SAFETY: as for a write, and the eight vectors fill sums.
            unsafe {
                vector_asm!(
                    load!($load, $v, $w, "d"; 0 1 2 3 4 5 6 7),
                    ".p2align 6",
                    "2:",
                    fold!("vpaddq", $v, $w; 0 1 2 3 4 5 6 7),
                    concat!("add {s}, 8*", $w),
                    "cmp {s}, {end}",
                    "jne 2b",
                    "sub {s}, {len}",
                    "dec {reps}",
                    "jnz 2b",
                    store!($load, $v, $w; 0 1 2 3 4 5 6 7),
                    "vzeroupper",
                    s = inout(reg) src => _,
                    end = in(reg) src.add(len),
                    len = in(reg) len,
                    reps = inout(reg) reps => _,
                    d = in(reg) sums.as_mut_ptr(),
                );
            }
            sums.into_iter().fold(0, u64::wrapping_add)
        }
    };
}
/// All loops of one register width. `near` and `far` are the cache lines of the halves of a block:
/// a `-nta` loop goes by halves, so that prefetches are spread between streaming stores.
macro_rules! family {
    (
        $name:ident, $feature:literal, $v:literal, $w:literal, $load:literal,
        near $($near:literal)+, far $($far:literal)+, triads { $($triads:item)+ },
        pages $line:literal: $($pages:tt)+
    ) => {
        mod $name {
            use super::*;

            /// Bytes per block.
            pub(super) const BLOCK: usize = 8 * $w;
            copy_loop!(copy, $feature, $w, "";
                load!($load, $v, $w, "s"; 0 1 2 3 4 5 6 7),
                store!($load, $v, $w; 0 1 2 3 4 5 6 7));
            copy_loop!(copy_nt, $feature, $w, "sfence";
                load!($load, $v, $w, "s"; 0 1 2 3 4 5 6 7),
                store!("vmovntdq", $v, $w; 0 1 2 3 4 5 6 7));
            copy_loop!(copy_nta, $feature, $w, "sfence";
                ahead!("s"; $($near)+),
                load!($load, $v, $w, "s"; 0 1 2 3),
                store!("vmovntdq", $v, $w; 0 1 2 3),
                ahead!("s"; $($far)+),
                load!($load, $v, $w, "s"; 4 5 6 7),
                store!("vmovntdq", $v, $w; 4 5 6 7));
            copy_loop!(copy_ntl, $feature, $w, "";
                ahead!("s"; $($near)+ $($far)+),
                load!($load, $v, $w, "s"; 0 1 2 3 4 5 6 7),
                store!($load, $v, $w; 0 1 2 3 4 5 6 7));
            paged_loop!($feature, $load, $v, $line; $($pages)+);
            $($triads)+
            triad_loop!(triad_nt, $feature, $v, $w, "sfence";
                fma!($load, "vmovntdq", $v, $w; 0 1 2 3 4 5 6 7));
            triad_loop!(triad_nta, $feature, $v, $w, "sfence";
                ahead!("s"; $($near)+),
                ahead!("c"; $($near)+),
                fma!($load, "vmovntdq", $v, $w; 0 1 2 3),
                ahead!("s"; $($far)+),
                ahead!("c"; $($far)+),
                fma!($load, "vmovntdq", $v, $w; 4 5 6 7));
            write_loop!(write, $feature, $v, $w, $load, "");
            write_loop!(write_nt, $feature, $v, $w, "vmovntdq", "sfence");
            read_loop!(read, $feature, $v, $w, $load);
        }
    };
}
family!(
    avx2, "avx2,fma", "ymm", 32, "vmovdqu", near 0 1, far 2 3,
    triads {
        triad_loop!(triad_by_eight, "avx2,fma", "ymm", 32, "";
            fma!("vmovdqu", "vmovdqu", "ymm", 32; 0 1 2 3 4 5 6 7));
        indexed_triad!(triad_by_one, "avx2,fma", "ymm", 32, "vmovdqu", 1; 0);
    },
    pages 128: 0 at 0 + 0, 1 at 0 + 32, 2 at 0 + 64, 3 at 0 + 96,
        4 at 1 + 0, 5 at 1 + 32, 6 at 1 + 64, 7 at 1 + 96,
        8 at 2 + 0, 9 at 2 + 32, 10 at 2 + 64, 11 at 2 + 96,
        12 at 3 + 0, 13 at 3 + 32, 14 at 3 + 64, 15 at 3 + 96
);
family!(
    avx512, "avx512f", "zmm", 64, "vmovdqu64", near 0 1 2 3, far 4 5 6 7,
    triads { indexed_triad!(triad_by_two, "avx512f", "zmm", 64, "vmovdqu64", 2; 0 1); },
    pages 64: 0 at 0 + 0, 1 at 1 + 0, 2 at 2 + 0, 3 at 3 + 0
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::arch::x86_64::__m256i;

    /// Keeps seven vectors in registers across a loop's assembly and then stores them. With only
    /// vectors 0 to 8 declared, the compiler keeps them in 9 to 15.
    #[target_feature(enable = "avx2")]
    unsafe fn across(values: &[[u64; 4]; 7], out: &mut [[u64; 4]; 7]) {
        macro_rules! read {
            ($($name:ident = $nth:literal)*) => {$(
                let $name: __m256i;
                // SAFETY: 32 bytes of an element.
                unsafe {
                    asm!("vmovdqu {v}, [{at}]", v = out(ymm_reg) $name,
                         at = in(reg) values[$nth].as_ptr(), options(nostack));
                }
            )*};
        }
        macro_rules! write {
            ($($name:ident = $nth:literal)*) => {$(
                // SAFETY: 32 bytes of an element.
                unsafe {
                    asm!("vmovdqu [{at}], {v}", v = in(ymm_reg) $name,
                         at = in(reg) out[$nth].as_mut_ptr(), options(nostack));
                }
            )*};
        }
        read!(a = 0 b = 1 c = 2 d = 3 e = 4 f = 5 g = 6);
        // SAFETY: uses registers only.
        unsafe { vector_asm!("vzeroupper",) };
        write!(a = 0 b = 1 c = 2 d = 3 e = 4 f = 5 g = 6);
    }

    #[test]
    fn vectors_of_the_caller_outlive_a_loop() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let values: [[u64; 4]; 7] = std::array::from_fn(|nth| [nth as u64 + 1; 4]);
        let mut out = [[0; 4]; 7];
        // SAFETY: the processor has AVX2.
        unsafe { across(&values, &mut out) };
        assert_eq!(out, values);
    }

    fn control_word() -> u32 {
        let mut word = 0_u32;
        // SAFETY: stores four bytes to `word`.
        unsafe { asm!("stmxcsr [{at}]", at = in(reg) &raw mut word, options(nostack)) };
        word
    }

    /// `find` takes one of the two by the processor; the other must store the same.
    #[test]
    fn both_avx2_triads_store_b_plus_three_c() {
        if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
            return;
        }
        // Two blocks of 256 B: b[i] + 3 c[i] = i + 3 x 2i = 7i.
        let b: Vec<f64> = (0..64).map(f64::from).collect();
        let c: Vec<f64> = b.iter().map(|x| 2.0 * x).collect();
        for triad in [avx2::triad_by_eight, avx2::triad_by_one] {
            let mut a = [0.0_f64; 64];
            // SAFETY: three arrays of 512 bytes, two blocks; the processor has AVX2 and FMA.
            unsafe { triad(a.as_mut_ptr().cast(), b.as_ptr().cast(), c.as_ptr().cast(), 512, 2) };
            assert!(a.iter().zip(&b).all(|(a, b)| *a == 7.0 * b), "{a:?}");
        }
    }

    #[test]
    fn a_triad_flushes_denormals_and_puts_the_control_word_back() {
        let before = control_word();
        let denormal = f64::from_bits(1);
        let (b, c) = ([denormal; 64], [0.0_f64; 64]);
        for how in [CpuHow::Avx2, CpuHow::Avx2Nta, CpuHow::Avx512, CpuHow::Avx512Nt] {
            let Some(body) = crate::loops::find(CpuWork { op: CpuOp::Triad, how }) else {
                continue;
            };
            let mut a = vec![1.0_f64; 64 + 8];
            let skip = a.as_ptr().align_offset(64);
            let span = crate::loops::LoopSpan {
                dst: a[skip..].as_mut_ptr().cast(),
                src: b.as_ptr().cast(),
                other: c.as_ptr().cast(),
                len: 512,
            };
            // SAFETY: three arrays of at least 512 bytes; `find` returned the loop.
            unsafe { body.passes(span, 2) };
            // A denormal source counts as 0, and 0 + 3 x 0 is 0.
            assert!(a[skip..skip + 64].iter().all(|v| v.to_bits() == 0), "{how}");
            assert_eq!(control_word(), before, "{how}");
        }
    }
}
