//! Ranges of memory that callers pass.

use std::ops::Range;

use crate::copy_error::CopyError;

/// Neighbours in different allocations, beyond those in one, after which a batch is not looked through any more: a
/// question about an address costs a tenth of a copy's call.
const MISSES: usize = 4;

/// Whether two ranges of this length share a byte.
pub(crate) fn overlap(a: u64, b: u64, bytes: usize) -> bool {
    a.abs_diff(b) < bytes as u64
}

/// Refuses ranges that no copy can have.
pub(crate) fn check_ranges(dst: u64, src: u64, bytes: usize) -> Result<(), CopyError> {
    if bytes == 0 {
        return Ok(());
    }
    for (name, address) in [("destination", dst), ("source", src)] {
        if address == 0 {
            return Err(CopyError::invalid(format!("the {name} is a null pointer")));
        }
        if address.checked_add(bytes as u64).is_none() {
            let text = format!("{bytes} bytes at {address:#x} go beyond the end of all memory");
            return Err(CopyError::invalid(text));
        }
    }
    if overlap(dst, src, bytes) {
        let text = format!("{bytes} bytes from {src:#x} overlap those at {dst:#x}");
        return Err(CopyError::invalid(text));
    }
    Ok(())
}

/// Copies of a batch that are made as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergedCopy {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) bytes: usize,
    /// Their numbers in the batch.
    pub(crate) parts: Range<usize>,
}

/// Appends copies and merges adjacent ones, if each end lies in one allocation: the runtime refuses a copy that
/// leaves its allocation, even where another follows. `allocation` returns the range around an address, empty if
/// unknown.
pub(crate) fn merge_adjacent(
    merged: &mut Vec<MergedCopy>,
    copies: &[(u64, u64, usize)],
    allocation: impl Fn(u64) -> Range<u64>,
) {
    let mut known = [0..0, 0..0];
    let (mut joined, mut misses) = (0, 0);
    for (nth, &(dst, src, bytes)) in copies.iter().enumerate() {
        let continues = |last: &&mut MergedCopy| {
            let ends = [(last.dst, dst), (last.src, src)];
            let length = last.bytes as u64;
            if ends.iter().any(|(from, to)| from.checked_add(length) != Some(*to))
                || misses > joined + MISSES
            {
                return false;
            }
            let within = ends.iter().zip(&mut known).all(|((from, to), known)| {
                if !known.contains(from) {
                    *known = allocation(*from);
                }
                known.contains(from)
                    && to.checked_add(bytes as u64).is_some_and(|end| end <= known.end)
            });
            *if within { &mut joined } else { &mut misses } += 1;
            within
        };
        match merged.last_mut().filter(continues) {
            Some(last) => {
                last.bytes += bytes;
                last.parts.end = nth + 1;
            }
            None => merged.push(MergedCopy { dst, src, bytes, parts: nth..nth + 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Merged copies as (dst, bytes, parts), and the questions that it took.
    fn merge(
        copies: &[(u64, u64, usize)],
        blocks: &[Range<u64>],
    ) -> (Vec<(u64, usize, Range<usize>)>, usize) {
        let asked = Cell::new(0);
        let mut merged = Vec::new();
        merge_adjacent(&mut merged, copies, |address| {
            asked.set(asked.get() + 1);
            blocks.iter().find(|block| block.contains(&address)).cloned().unwrap_or(0..0)
        });
        (merged.into_iter().map(|c| (c.dst, c.bytes, c.parts)).collect(), asked.get())
    }

    #[test]
    fn copies_that_continue_one_another_are_one() {
        let copies = [(100, 1000, 50), (150, 1050, 50), (200, 1101, 10), (210, 1111, 5)];
        // The third continues the destination only; the fourth both of the third. One question for each end.
        let all = [100..300, 1000..1200];
        assert_eq!(merge(&copies, &all), (vec![(100, 100, 0..2), (200, 15, 2..4)], 2));
        assert_eq!(merge(&[], &all), (Vec::new(), 0));
    }

    #[test]
    fn no_copy_leaves_an_allocation() {
        let copies = [(100, 1000, 50), (150, 1050, 50)];
        let apart = vec![(100, 50, 0..1), (150, 50, 1..2)];
        assert_eq!(merge(&copies, &[100..150, 150..200, 1000..1100]), (apart.clone(), 1));
        assert_eq!(merge(&copies, &[100..200, 1000..1050, 1050..1100]), (apart.clone(), 2));
        // Where the runtime does not know an end, or the second copy goes beyond it.
        assert_eq!(merge(&copies, &[100..200, 0..1]).0, apart);
        assert_eq!(merge(&copies, &[100..199, 1000..1100]).0, apart);
        // A copy up to the last address has no end that can be compared.
        let last = [(100, u64::MAX - 60, 50), (150, u64::MAX - 10, 50)];
        assert_eq!(merge(&last, &[100..200, u64::MAX - 60..u64::MAX]).0, apart);
    }

    /// 64 tensors of 16 KiB that happen to follow one another, each source pinned by itself: one question about the
    /// destination, and one about a source for the first five neighbours. Carved from one allocation each: 2.
    #[test]
    fn questions_are_bounded() {
        let at = |nth: u64| (1 << 40) + (nth << 14);
        let copies: Vec<_> = (0..64).map(|nth| (at(nth), at(nth + 1000), 1 << 14)).collect();
        let device = at(0)..at(64);
        let apart: Vec<_> = (1000..1064).map(|nth| at(nth)..at(nth + 1)).collect();
        let (merged, asked) = merge(&copies, &[std::slice::from_ref(&device), &apart[..]].concat());
        assert_eq!((merged.len(), asked), (64, 6));
        let (merged, asked) = merge(&copies, &[device, at(1000)..at(1064)]);
        assert_eq!((merged.len(), asked), (1, 2));
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let text = |dst, src, bytes| check_ranges(dst, src, bytes).unwrap_err().text;
        assert_eq!(text(0, 16, 8), "the destination is a null pointer");
        assert_eq!(text(16, 0, 8), "the source is a null pointer");
        assert!(text(16, 20, 8).contains("overlap") && text(20, 16, 8).contains("overlap"));
        assert!(text(u64::MAX - 3, 16, 8).contains("beyond the end"));
        assert!(check_ranges(16, 24, 8).is_ok());
        assert!(check_ranges(0, 0, 0).is_ok());
    }
}
