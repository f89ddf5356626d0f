//! The random words of a seed.

/// The seed of the pattern whose bytes are all zero: the contribution of a rank to a sum in which
/// only one rank has a nonzero pattern.
pub const ZERO_SEED: u64 = 0;

/// Increment of the seed from one 8-byte word to the next.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Word `index` of the pattern of a seed that stands for no [`crate::ElementPattern`].
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
