//! Verifies what write and triad loops stored.

use pathline_schema::CpuOp;

use crate::loops::{SCALE, WRITE_BYTE};
use crate::spread;

/// Results below this may be zero, or computed from a product flushed to zero.
const FLUSHED: f64 = 4.0 * f64::MIN_POSITIVE;

/// The memory of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredSpan {
    /// Address of the destination.
    pub(crate) dst: u64,
    /// Address of the first source of a triad.
    pub(crate) src: u64,
    /// Address of the second source of a triad.
    pub(crate) other: u64,
    /// Size of the destination, in bytes.
    pub(crate) bytes: u64,
}

/// Offset of the first byte that a write or a triad would not have stored. Threads on `cpus`
/// compare pieces of a multiple of `grain`, itself a multiple of 8.
///
/// # Safety
/// The destination, and for a triad both sources, must be readable over the span, and nothing may
/// write to them during the call.
pub(crate) unsafe fn first_wrong(
    cpus: &[u32],
    op: CpuOp,
    span: StoredSpan,
    grain: u64,
) -> Option<u64> {
    let wrong = spread::spread(cpus, span.bytes, grain, |piece| {
        // SAFETY: pieces lie in the caller's ranges.
        unsafe {
            let slice = |address: u64| {
                let start = (address + piece.offset) as *const u8;
                std::slice::from_raw_parts(start, piece.len as usize)
            };
            let at = match op {
                CpuOp::Triad => wrong_triad(slice(span.dst), slice(span.src), slice(span.other)),
                _ => slice(span.dst).iter().position(|&byte| byte != WRITE_BYTE),
            };
            at.map(|at| piece.offset + at as u64)
        }
    });
    wrong.into_iter().flatten().min()
}

/// Trailing bytes, less than a double, equal those of the first source.
fn wrong_triad(stored: &[u8], b: &[u8], c: &[u8]) -> Option<usize> {
    let (stored, stored_rest) = stored.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let (c, _) = c.as_chunks::<8>();
    let double = |bytes: &[u8; 8]| f64::from_ne_bytes(*bytes);
    let right = |((stored, b), c): ((&[u8; 8], &[u8; 8]), &[u8; 8])| {
        is_triad(double(stored), double(b), double(c))
    };
    let wrong = stored.iter().zip(b).zip(c).position(|words| !right(words));
    let rest = || {
        let at = stored_rest.iter().zip(b_rest).position(|(stored, b)| stored != b)?;
        Some(stored.len() * 8 + at)
    };
    wrong.map(|word| word * 8).or_else(rest)
}

/// Whether `stored` is `b + 3 c`, rounded once or twice. Subnormal operands and results may be
/// zero, because of the processor modes DAZ and FTZ.
fn is_triad(stored: f64, b: f64, c: f64) -> bool {
    let normal = |x: f64| if x.is_subnormal() { 0.0 } else { x };
    [(b, c), (normal(b), normal(c))].into_iter().any(|(b, c)| {
        let twice = b + SCALE * c;
        stored == twice
            || stored == SCALE.mul_add(c, b)
            || (stored.is_nan() && twice.is_nan())
            || ((stored - twice).abs() <= FLUSHED && twice.abs() <= FLUSHED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{CpuHow, CpuWork};

    use crate::loops::{self, LoopSpan};
    use crate::pattern;

    /// Every write and triad loop of this processor over patterns, which are doubles of any size,
    /// infinities, subnormals and NaN; then with one byte changed.
    #[test]
    fn what_loops_store_is_right_and_a_changed_byte_is_found() {
        const LEN: usize = 64 << 10;
        let source = |seed| {
            let mut bytes = vec![0_u8; LEN + 5];
            // SAFETY: a vector of that length.
            unsafe { pattern::fill(bytes.as_mut_ptr(), 0, LEN + 5, seed) };
            bytes
        };
        let (b, c) = (source(3), source(4));
        for op in [CpuOp::Write, CpuOp::Triad] {
            let known = CpuHow::ALL.iter().filter_map(|&how| loops::find(CpuWork { op, how }));
            for body in known {
                let mut stored = vec![0_u8; LEN + 5];
                let span = LoopSpan {
                    dst: stored.as_mut_ptr(),
                    src: b.as_ptr(),
                    other: c.as_ptr(),
                    len: LEN + 5,
                };
                // SAFETY: three vectors of that length.
                unsafe { body.passes(span, 1) };
                let wrong = |stored: &[u8]| {
                    let span = StoredSpan {
                        dst: stored.as_ptr() as u64,
                        src: b.as_ptr() as u64,
                        other: c.as_ptr() as u64,
                        bytes: stored.len() as u64,
                    };
                    // SAFETY: as above.
                    unsafe { first_wrong(&[0], op, span, 4096) }
                };
                assert_eq!(wrong(&stored), None, "{op}");
                // The highest byte of a double that is a number, and the last byte, which is part
                // of no double.
                let number = (0..LEN / 8).rfind(|word| {
                    let bytes = stored[word * 8..word * 8 + 8].try_into().unwrap();
                    f64::from_ne_bytes(bytes).is_normal()
                });
                for at in [number.unwrap() * 8, LEN + 4] {
                    stored[at] ^= 1;
                    assert_eq!(wrong(&stored), Some(at as u64), "{op}");
                    stored[at] ^= 1;
                }
            }
        }
    }

    #[test]
    fn one_and_two_roundings_and_flushed_numbers_are_triads() {
        // 0.1 + 3 x 0.1: 0.4 rounded once, 0.4000000000000001 with 0.30000000000000004 in between.
        assert!(is_triad(0.1 + 3.0 * 0.1, 0.1, 0.1) && is_triad(3_f64.mul_add(0.1, 0.1), 0.1, 0.1));
        assert!(!is_triad(0.41, 0.1, 0.1));
        assert!(
            is_triad(f64::NAN, f64::INFINITY, f64::NEG_INFINITY) && !is_triad(0.0, f64::NAN, 1.0)
        );
        assert!(is_triad(0.0, 1e-310, 1e-310), "flushed");
        assert!(!is_triad(0.0, 1e-300, 0.0));
    }
}
