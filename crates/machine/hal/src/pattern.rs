//! The test pattern that is written before a copy and verified after it.
//!
//! Every 8-byte word depends on its position and a seed, so that a shifted, repeated, stale or
//! half-copied buffer differs from a correct one. Some seeds stand for patterns of small numbers of
//! an element type, whose reductions are exact: [`crate::ElementPattern`].

use crate::element_pattern::ElementPattern;

/// The seed of the pattern whose bytes are all zero: the contribution of a rank to a sum in which
/// only one rank has a nonzero pattern.
pub const ZERO_SEED: u64 = 0;

/// Increment of the seed from one 8-byte word to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed with which a part of a buffer verifies like a whole one: word 0 of its pattern is word
/// `words` of the pattern `seed`. May be negative.
pub const fn seed_at(seed: u64, words: i64) -> u64 {
    if seed == ZERO_SEED {
        ZERO_SEED
    } else {
        seed.wrapping_add(words.cast_unsigned().wrapping_mul(STEP))
    }
}

/// The 8-byte word at `index`, counted from the start of the buffer, of the pattern `seed`.
#[inline]
pub const fn word(seed: u64, index: u64) -> u64 {
    match ElementPattern::from_seed(seed) {
        None => random_word(seed, index),
        Some(elements) => elements.word(index),
    }
}

/// [`word`] of a seed that stands for no [`ElementPattern`].
///
/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014).
#[inline]
pub const fn random_word(seed: u64, index: u64) -> u64 {
    if seed == ZERO_SEED {
        return 0;
    }
    let mut z = seed.wrapping_add((index.wrapping_add(1)).wrapping_mul(STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The byte at `offset` of the pattern `seed`.
pub const fn byte(seed: u64, offset: u64) -> u8 {
    word(seed, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_goes_on_with_the_seed_of_a_part() {
        for words in [0, 1, 8191] {
            let part = seed_at(7, words);
            assert!((0..4).all(|i| word(part, i) == word(7, i + words.cast_unsigned())));
            assert_eq!(seed_at(part, -words), 7);
        }
        assert_eq!(seed_at(ZERO_SEED, 5), ZERO_SEED);
    }
}
