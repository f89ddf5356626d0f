//! Writes and verifies `hal::pattern` at memory speed.

use pathline_hal::{ElementPattern, pattern};

/// Words per comparison: differences are accumulated over this many and tested once.
const BLOCK: usize = 512;

/// The body is compiled three times, so that the compiler can use wide multiplies where they exist.
macro_rules! widened {
    ($name:ident, $body:ident($($arg:ident: $t:ty),*) $(-> $out:ty)?) => {
        unsafe fn $name($($arg: $t),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq")]
                unsafe fn avx512($($arg: $t),*) $(-> $out)? {
                    // SAFETY: the caller's guarantee holds here too.
                    unsafe { $body($($arg),*) }
                }
                #[target_feature(enable = "avx2")]
                unsafe fn avx2($($arg: $t),*) $(-> $out)? {
                    // SAFETY: the caller's guarantee holds here too.
                    unsafe { $body($($arg),*) }
                }
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                    // SAFETY: the features were detected; the caller's guarantee holds here too.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was detected; the caller's guarantee holds here too.
                    return unsafe { avx2($($arg),*) };
                }
            }
            // SAFETY: the caller's guarantee holds here too.
            unsafe { $body($($arg),*) }
        }
    };
}
widened!(fill_words, fill_body(at: *mut u64, words: usize, seed: u64, first: u64));
widened!(sum_words, sum_body(words: usize, seed: u64, first: u64) -> u64);
widened!(differs, differs_body(at: *const u64, words: usize, seed: u64, first: u64) -> bool);

#[inline(always)]
unsafe fn fill_body(at: *mut u64, words: usize, seed: u64, first: u64) {
    // Outside of the loop, so that the usual one has no branch.
    if let Some(elements) = ElementPattern::from_seed(seed) {
        for i in 0..words {
            let word = elements.word(first + i as u64).to_le();
            // SAFETY: the caller guarantees `words` words.
            unsafe { at.add(i).write_unaligned(word) };
        }
        return;
    }
    for i in 0..words {
        let word = pattern::random_word(seed, first + i as u64).to_le();
        // SAFETY: the caller guarantees `words` words.
        unsafe { at.add(i).write_unaligned(word) };
    }
}

// Unsafe only because all bodies of `widened` are.
#[inline(always)]
unsafe fn sum_body(words: usize, seed: u64, first: u64) -> u64 {
    let at = |i: usize| first.wrapping_add(i as u64);
    if let Some(elements) = ElementPattern::from_seed(seed) {
        return (0..words).fold(0_u64, |sum, i| sum.wrapping_add(elements.word(at(i))));
    }
    (0..words).fold(0_u64, |sum, i| sum.wrapping_add(pattern::random_word(seed, at(i))))
}

#[inline(always)]
unsafe fn differs_body(at: *const u64, words: usize, seed: u64, first: u64) -> bool {
    let mut difference = 0;
    if let Some(elements) = ElementPattern::from_seed(seed) {
        for i in 0..words {
            // SAFETY: the caller guarantees `words` words.
            let word = unsafe { at.add(i).read_unaligned() };
            difference |= word ^ elements.word(first + i as u64).to_le();
        }
        return difference != 0;
    }
    for i in 0..words {
        // SAFETY: the caller guarantees `words` words.
        let word = unsafe { at.add(i).read_unaligned() };
        difference |= word ^ pattern::random_word(seed, first + i as u64).to_le();
    }
    difference != 0
}

/// Writes bytes `from..from + len` of the pattern to `base + from`; `from` is a multiple of 8.
///
/// # Safety
/// That range must be writable.
pub unsafe fn fill(base: *mut u8, from: usize, len: usize, seed: u64) {
    let words = len / 8;
    // SAFETY: words * 8 + the rest is len.
    unsafe {
        fill_words(base.add(from).cast(), words, seed, from as u64 / 8);
        for at in from + words * 8..from + len {
            base.add(at).write(pattern::byte(seed, at as u64));
        }
    }
}

/// Offset from `base` of the first byte in `from..from + len` that differs from the pattern.
///
/// # Safety
/// That range must be readable.
pub unsafe fn check(base: *const u8, from: usize, len: usize, seed: u64) -> Option<u64> {
    let end = from + len;
    let mut at = from;
    while at < end {
        let bytes = (end - at).min(BLOCK * 8);
        let words = bytes / 8;
        // SAFETY: words * 8 bytes at `at` lie before the end.
        let suspect = unsafe { differs(base.add(at).cast(), words, seed, at as u64 / 8) };
        let looked_at = if suspect { at..at + bytes } else { at + words * 8..at + bytes };
        // SAFETY: before the end.
        let wrong = |o: &usize| unsafe { base.add(*o).read() } != pattern::byte(seed, *o as u64);
        if let Some(offset) = looked_at.into_iter().find(wrong) {
            return Some(offset as u64);
        }
        at += bytes;
    }
    None
}

/// The wrapping sum of the 8-byte words of bytes `from..from + len` of the pattern, the last padded by
/// zeros; `from` is a multiple of 8.
pub fn sum(from: u64, len: u64, seed: u64) -> u64 {
    let (words, rest) = (len / 8, len % 8);
    // SAFETY: uses no memory.
    let sum = unsafe { sum_words(words as usize, seed, from / 8) };
    let last = pattern::word(seed, from / 8 + words) & ((1 << (8 * rest)) - 1);
    sum.wrapping_add(last)
}

/// Fills `part` with the pattern's bytes from `offset` on, a multiple of 8.
pub fn fill_part(part: &mut [u8], offset: u64, seed: u64) {
    let words = part.len() / 8;
    // SAFETY: the slice has at least `words * 8` bytes.
    unsafe { fill_words(part.as_mut_ptr().cast(), words, seed, offset / 8) };
    for (byte, at) in part.iter_mut().zip(offset..).skip(words * 8) {
        *byte = pattern::byte(seed, at);
    }
}

/// Position in the pattern of the first byte of `part` that differs from it. `part` begins at
/// `offset` of the pattern, a multiple of 8.
pub fn check_part(part: &[u8], offset: u64, seed: u64) -> Option<u64> {
    let (mut at, step) = (offset, BLOCK * 8);
    for piece in part.chunks(step) {
        let whole = piece.len() == step;
        // SAFETY: the words lie in the slice.
        let same = whole && !unsafe { differs(piece.as_ptr().cast(), BLOCK, seed, at / 8) };
        let wrong = |(byte, at): (&u8, u64)| (*byte != pattern::byte(seed, at)).then_some(at);
        if !same && let Some(wrong) = piece.iter().zip(at..).find_map(wrong) {
            return Some(wrong);
        }
        at += piece.len() as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_pattern_is_the_definition_byte_for_byte() {
        for len in [0_usize, 1, 7, 8, 9, 4095, 4096, 4097, 100_003] {
            for from in [0_usize, 8, 4096] {
                let mut bytes = vec![0; from + len + 1];
                // SAFETY: the vector is long enough.
                unsafe { fill(bytes.as_mut_ptr(), from, len, 42) };
                for (at, byte) in bytes.iter().enumerate().take(from + len).skip(from) {
                    assert_eq!(*byte, pattern::byte(42, at as u64), "{at} of {len}");
                }
                assert_eq!(bytes[from + len], 0);
                // SAFETY: as above.
                assert_eq!(unsafe { check(bytes.as_ptr(), from, len, 42) }, None);
            }
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found_wherever_it_is() {
        let mut bytes = vec![0; 10_005];
        // SAFETY: the vector is that long.
        unsafe { fill(bytes.as_mut_ptr(), 0, 10_005, 1) };
        for at in [10_004, 10_000, 9_999, 4096, 4095, 8, 0] {
            bytes[at] ^= 1;
            // SAFETY: as above.
            assert_eq!(unsafe { check(bytes.as_ptr(), 0, 10_005, 1) }, Some(at as u64));
        }
    }

    #[test]
    fn a_part_of_the_pattern_is_the_same_wherever_it_is_cut() {
        for (offset, len) in [(0usize, 10_005usize), (4096, 8192), (8, 7), (16, 4097)] {
            let mut part = vec![0; len];
            fill_part(&mut part, offset as u64, 3);
            for (byte, at) in part.iter().zip(offset as u64..) {
                assert_eq!(*byte, pattern::byte(3, at), "{at}");
            }
            assert_eq!(check_part(&part, offset as u64, 3), None);
            for at in [len - 1, len / 2, 0] {
                part[at] ^= 1;
                assert_eq!(check_part(&part, offset as u64, 3), Some((offset + at) as u64));
            }
        }
    }
}
