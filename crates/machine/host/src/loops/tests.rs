//! Compares every loop with a reference, over lengths and alignments around its block size.

use pathline_schema::{CpuHow, CpuOp, CpuWork};
use proptest::prelude::*;

use super::{CpuLoop, LoopSpan, SCALE, WRITE_BYTE, find};

const LENGTHS: [usize; 15] = [
    0,
    1,
    7,
    63,
    64,
    65,
    511,
    513,
    4095,
    4096,
    4096 + 127,
    // Around the four pages of a `-nt4` loop, and two blocks with a remainder of blocks and bytes.
    4 * 4096,
    4 * 4096 + 63,
    8 * 4096 + 512 + 65,
    (1 << 20) + 17,
];
/// Bytes around the destination that must stay unchanged.
const FENCE: usize = 64;
const UNTOUCHED: u8 = 0x11;

fn loops(op: CpuOp) -> impl Iterator<Item = (CpuHow, CpuLoop)> {
    let found = CpuHow::ALL.iter().filter_map(move |&how| Some((how, find(CpuWork { op, how })?)));
    // Where assembly takes its place, too.
    let portable = super::plain::find_portable(CpuWork { op, how: CpuHow::Plain });
    found.chain(portable.map(|body| (CpuHow::Plain, body)))
}

/// Small whole doubles, so that a triad is exact with and without fused rounding.
fn doubles(len: usize, seed: u64) -> Vec<u8> {
    let word = |i: u64| ((i * 7 + seed) % 1000) as f64;
    (0..len.div_ceil(8) as u64).flat_map(|i| word(i).to_le_bytes()).take(len).collect()
}

fn expected_triad(b: &[u8], c: &[u8]) -> Vec<u8> {
    let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    let mut a: Vec<u8> = b
        .chunks_exact(8)
        .zip(c.chunks_exact(8))
        .flat_map(|(b, c)| (double(b) + SCALE * double(c)).to_le_bytes())
        .collect();
    a.extend(&b[a.len()..]);
    a
}

fn expected_read(src: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    src.chunks(8).fold(0, |sum, bytes| sum.wrapping_add(word(bytes)))
}

/// Sources of one length, and what loops make of them.
struct ExpectedBytes {
    b: Vec<u8>,
    c: Vec<u8>,
    triad: Vec<u8>,
    /// Sum of one pass over `b`.
    sum: u64,
}

impl ExpectedBytes {
    fn of(len: usize) -> Self {
        let (b, c) = (doubles(len, 1), doubles(len, 5));
        Self { triad: expected_triad(&b, &c), sum: expected_read(&b), b, c }
    }
}

/// Runs `reps` passes of a loop and compares the result. Destination and sources lie the given
/// numbers of bytes after a multiple of 64.
fn check_loop(
    op: CpuOp,
    body: &CpuLoop,
    reps: u64,
    expected: &ExpectedBytes,
    (dst_off, src_off): (usize, usize),
) -> Result<(), String> {
    let len = expected.b.len();
    let room = len + 2 * FENCE + 128;
    let place = |bytes: &[u8], off: usize| {
        let mut buffer = vec![0_u8; room];
        let start = buffer.as_ptr().align_offset(64) + off;
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        (buffer, start)
    };
    let (src, src_at) = place(&expected.b, src_off);
    let (other, other_at) = place(&expected.c, src_off);
    let mut dst = vec![UNTOUCHED; room];
    let dst_at = dst.as_ptr().align_offset(64) + FENCE / 2 + dst_off;
    let span = LoopSpan {
        dst: dst[dst_at..].as_mut_ptr(),
        src: src[src_at..].as_ptr(),
        other: other[other_at..].as_ptr(),
        len,
    };
    // SAFETY: three separate vectors with at least len bytes from there; `find` returned the loop.
    let sum = unsafe { body.passes(span, reps) };
    let passes = expected.sum.wrapping_mul(reps);
    if op == CpuOp::Read && sum != passes {
        return Err(format!("sum {sum:#x} for {passes:#x}"));
    }
    let mut wanted = vec![UNTOUCHED; room];
    let stored = &mut wanted[dst_at..dst_at + len];
    match op {
        CpuOp::Read => {}
        CpuOp::Write => stored.fill(WRITE_BYTE),
        CpuOp::Copy => stored.copy_from_slice(&expected.b),
        _ => stored.copy_from_slice(&expected.triad),
    }
    // Slices are compared at memory speed, even without optimisation.
    if dst == wanted {
        return Ok(());
    }
    let at = dst.iter().zip(&wanted).position(|(byte, right)| byte != right).unwrap();
    Err(format!("byte {} is {:#x}, not {:#x}", at as i64 - dst_at as i64, dst[at], wanted[at]))
}

const OPS: [CpuOp; 4] = [CpuOp::Read, CpuOp::Write, CpuOp::Copy, CpuOp::Triad];

#[test]
fn every_loop_is_right_to_the_byte_at_every_length_and_alignment() {
    let mut tried = 0;
    let expected = LENGTHS.map(ExpectedBytes::of);
    for op in OPS {
        for (how, body) in loops(op) {
            for expected in &expected {
                let len = expected.b.len();
                for offsets in [(0, 0), (8, 8), (8, 16), (1, 0), (0, 3), (33, 32)] {
                    // Long lengths use one alignment: blocks and remainders are tested at short
                    // lengths.
                    for reps in 1..=if len < 1 << 20 { 3 } else { 1 } {
                        if let Err(error) = check_loop(op, &body, reps, expected, offsets) {
                            panic!("{reps} {op}-{how}, {len} B, {offsets:?}: {error}");
                        }
                        tried += 1;
                    }
                }
            }
        }
    }
    // Every processor has four plain operations and one by memcpy.
    assert!(tried >= 5 * 6 * (3 * (LENGTHS.len() - 1) + 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_length_and_alignment(
        len in 0_usize..3000, dst_off in 0_usize..32, src_off in 0_usize..64, reps in 1_u64..4,
    ) {
        let expected = ExpectedBytes::of(len);
        for op in OPS {
            for (how, body) in loops(op) {
                let outcome = check_loop(op, &body, reps, &expected, (dst_off, src_off));
                prop_assert!(outcome.is_ok(), "{op}-{how}: {outcome:?}");
            }
        }
    }
}

#[test]
fn the_processor_has_what_its_name_says() {
    for how in [CpuHow::Plain, CpuHow::Memcpy] {
        assert!(super::available(how));
    }
    #[cfg(target_arch = "x86_64")]
    {
        assert!(!super::available(CpuHow::Neon) && !super::available(CpuHow::NeonNt));
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = flags.lines().find(|l| l.starts_with("flags")).unwrap();
        for how in [CpuHow::Movsb, CpuHow::Avx2Ntl, CpuHow::Avx512, CpuHow::Avx512Nt4] {
            let listed = flags.split_whitespace().any(|f| Some(f) == how.feature());
            assert_eq!(super::available(how), listed, "{how}");
        }
    }
    // Every such processor has them; the test above runs the loops.
    #[cfg(target_arch = "aarch64")]
    {
        assert!(super::available(CpuHow::Neon) && super::available(CpuHow::NeonNt));
        assert!(!super::available(CpuHow::Movsb) && !super::available(CpuHow::Avx512));
    }
}

#[test]
fn an_operation_names_the_choices_it_has() {
    assert!(super::supported_variants(CpuOp::Copy).starts_with("plain, memcpy"));
    assert_eq!(super::supported_variants(CpuOp::Chase), "plain");
    assert!(find(CpuWork { op: CpuOp::Read, how: CpuHow::Memcpy }).is_none());
}
