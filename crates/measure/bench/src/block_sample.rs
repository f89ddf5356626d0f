//! The sample of a destination's blocks that is compared in place of every byte.

use pathline_hal::pattern;

/// Size of a block, bytes.
const BLOCK: u64 = 64 << 10;
/// Drawn blocks, in addition to the first and the last.
const DRAWN: u64 = 4;

/// A part of a destination: offset, a multiple of 8, and bytes.
pub(crate) type SampledBlock = (u64, u64);

/// The first, the last and four drawn blocks of 64 KiB, in order and without overlap; a single part
/// for the whole if that is hardly more.
pub(crate) fn sampled_blocks(bytes: u64, seed: u64) -> Vec<SampledBlock> {
    let whole = bytes / BLOCK;
    if whole < DRAWN + 2 {
        return vec![(0, bytes)];
    }
    // The last block may overlap the one before if the size is no multiple of a block.
    let last = (bytes - BLOCK) / 8 * 8;
    let mut starts: Vec<u64> =
        (0..DRAWN).map(|nth| pattern::word(seed, nth) % whole * BLOCK).collect();
    starts.extend([0, last]);
    starts.sort_unstable();
    starts.dedup();
    let end = |start: u64| if start == last { bytes } else { (start + BLOCK).min(last) };
    starts.into_iter().map(|start| (start, end(start) - start)).filter(|b| b.1 > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_inside_and_have_both_ends() {
        for bytes in [6 * BLOCK, 6 * BLOCK + 17, 64 << 20, (1 << 30) + 5] {
            for seed in 1..50 {
                let blocks = sampled_blocks(bytes, seed);
                assert!((2..=6).contains(&blocks.len()), "{blocks:?}");
                assert_eq!(blocks[0].0, 0);
                assert_eq!(blocks.last().map(|(start, len)| start + len), Some(bytes));
                assert!(blocks.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{blocks:?}");
                assert!(blocks.iter().all(|b| b.0 % 8 == 0 && b.1 <= BLOCK + 8), "{blocks:?}");
            }
        }
        // Of 16384 blocks four drawn ones are hardly ever the same or at an end.
        assert!((1..50).all(|seed| sampled_blocks(1 << 30, seed).len() == 6));
        // Another seed gives other blocks: of 1024 four are the same with a probability of 1e-11.
        assert_ne!(sampled_blocks(64 << 20, 1), sampled_blocks(64 << 20, 2));
        assert_eq!(sampled_blocks(100, 1), [(0, 100)]);
        assert_eq!(sampled_blocks(6 * BLOCK - 1, 1), [(0, 6 * BLOCK - 1)]);
    }
}
