//! Creates and follows chains of dependent loads.

use pathline_schema::Bytes;

use crate::spread::spread;
use crate::thread_piece::ThreadPiece;

/// Distance of two elements in bytes: two lines of 64 B, so that the adjacent-line prefetcher loads
/// no other element. The effect of a chase in `schema` counts by the same distance.
pub const STRIDE: u64 = 128;

/// Number of elements of a chain over `bytes`, at least one.
pub fn elements(bytes: Bytes) -> u64 {
    (bytes.0 / STRIDE).max(1)
}

/// The successor of each element: one cycle through all of them, by Sattolo's algorithm (S.
/// Sattolo, An algorithm to generate a random cyclic permutation, Information Processing Letters
/// 22, 1986). `None` beyond 2^32 elements (512 GiB).
pub fn cycle(elements: u64, seed: u64) -> Option<Vec<u32>> {
    let mut next: Vec<u32> = (0..u32::try_from(elements).ok()?).collect();
    for i in (1..next.len()).rev() {
        // The high half of a product maps a random word to 0..i with a bias below 2^-32.
        let random = pathline_hal::pattern::word(seed, i as u64);
        let j = ((u128::from(random) * i as u128) >> 64) as usize;
        next.swap(i, j);
    }
    Some(next)
}

/// Writes the chain: each element holds the address of the next. Each of `cpus` writes the elements of one
/// piece, which starts at a multiple of `grain` bytes: the first write of a page costs most. Returns false
/// beyond 512 GiB.
///
/// # Safety
/// `base` must be a multiple of 8 and writable for `bytes`, at least 8, and nothing else may use the range
/// during the call. `grain` must be a multiple of [`STRIDE`].
pub unsafe fn write_chain(cpus: &[u32], base: u64, bytes: Bytes, grain: u64, seed: u64) -> bool {
    let elements = elements(bytes);
    let Some(next) = cycle(elements, seed) else { return false };
    spread(cpus, bytes.0, grain, |ThreadPiece { offset, len }| {
        // Less than one stride at the end is no element, unless it is the first.
        let first = offset.div_ceil(STRIDE);
        let end = (offset + len).div_ceil(STRIDE).min(elements);
        let links = next.get(first as usize..end as usize).unwrap_or_default();
        for (at, next) in (first..).zip(links) {
            let target = base + u64::from(*next) * STRIDE;
            // SAFETY: element `at` has 8 bytes inside the caller's range; pieces are disjoint and start
            // at elements.
            unsafe { ((base + at * STRIDE) as *mut u64).write(target) };
        }
    });
    true
}

/// Follows the chain for `steps` loads from `start` and returns the final address.
///
/// # Safety
/// `start` must be an element of a complete chain that was not overwritten.
pub unsafe fn follow(start: u64, steps: u64) -> u64 {
    let mut at = start;
    let load = |at: u64| {
        // SAFETY: every element of the chain holds the address of another. Volatile, so that
        // steps are neither dropped nor merged.
        unsafe { (at as *const u64).read_volatile() }
    };
    for _ in 0..steps / 8 {
        at = load(load(load(load(load(load(load(load(at))))))));
    }
    for _ in 0..steps % 8 {
        at = load(at);
    }
    at
}

#[cfg(test)]
mod tests {
    use pathline_schema::{CpuHow, CpuOp, CpuWork};

    use super::*;

    #[test]
    fn a_cycle_passes_every_element_once() {
        for elements in [1_u64, 2, 3, 10, 1000] {
            let next = cycle(elements, 7).unwrap();
            let mut at = 0;
            for step in 1..=elements {
                at = next[at] as usize;
                assert_eq!(at == 0, step == elements, "step {step} of {elements}");
            }
        }
        assert_eq!(cycle(1000, 7), cycle(1000, 7));
        assert_ne!(cycle(1000, 7), cycle(1000, 8));
        assert_eq!(cycle(1 << 32, 7), None);
    }

    /// 8 MiB are 65,536 elements, in 3 pieces. 8 MiB less 100 B have one element less, and 100 B have one.
    #[test]
    fn a_chain_of_many_threads_passes_every_element() {
        let whole = 8_u64 << 20;
        let mut words = vec![0_u64; whole as usize / 8];
        let base = words.as_mut_ptr() as u64;
        for (bytes, elements) in [(whole, 65_536), (whole - 100, 65_535), (100, 1)] {
            // SAFETY: inside the vector, which nothing else uses.
            assert!(unsafe { write_chain(&[0, 0, 0], base, Bytes(bytes), 4096, 7) });
            // SAFETY: a chain was written from there on.
            let ends = |steps: u64| unsafe { follow(base, steps) };
            let returns = (1..=elements).filter(|&steps| steps % 9973 == 0 || steps == elements);
            for steps in returns {
                assert_eq!(ends(steps) == base, steps == elements, "{bytes}: {steps}");
            }
        }
    }

    #[test]
    fn elements_are_counted_as_the_schema_counts_steps() {
        let work = CpuWork { op: CpuOp::Chase, how: CpuHow::Plain };
        for bytes in [1, 127, 128, 129, 1 << 20] {
            assert_eq!(elements(Bytes(bytes)), work.effect(Bytes(bytes)).chain);
        }
    }
}
