//! The bytes that are written before a copy and looked for after it.
//!
//! Every 8-byte word depends on its position and a seed, so that a shifted, repeated, stale or
//! half-copied buffer is told from a right one.

/// The seed of the pattern whose bytes are all zero: what a rank brings to a sum where another has
/// the bytes.
pub const ZERO: u64 = 0;

/// The word at `index` (8-byte words from the start of the buffer) of the pattern `seed`.
///
/// The finalizer is splitmix64's (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, OOPSLA 2014).
pub const fn word(seed: u64, index: u64) -> u64 {
    if seed == ZERO {
        return 0;
    }
    let mut z = seed.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The byte at `offset` of the pattern `seed`.
pub const fn byte(seed: u64, offset: u64) -> u8 {
    word(seed, offset / 8).to_le_bytes()[(offset % 8) as usize]
}
