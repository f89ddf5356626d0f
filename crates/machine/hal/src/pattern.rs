//! The test pattern that is written before a copy and verified after it.
//!
//! Every 8-byte word depends on its position and a seed, so that a shifted, repeated, stale or
//! half-copied buffer differs from a correct one. Some seeds stand for patterns of small numbers of
//! an element type, whose reductions are exact: [`crate::ElementPattern`].

use crate::element_pattern::ElementPattern;
use crate::random_word::STEP;
pub use crate::random_word::{ZERO_SEED, random_word};

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
