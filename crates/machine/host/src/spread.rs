//! Patterns in host memory with all cores of a domain: one core processes a few GB/s, and the
//! buffers of a run have tens of gigabytes.

use std::io;
use std::thread::ScopedJoinHandle;

use crate::thread_piece::{ThreadPiece, split_bytes};
use crate::{cpus, pattern};

/// Bytes below which the calling thread works alone, since starting others costs more.
const MIN_SHARED_BYTES: u64 = 4 << 20;

/// Writes a pattern from `address` on. Pieces start at multiples of `grain`, itself a multiple of
/// 8.
///
/// # Safety
/// The range must be writable, and nothing else may use it during the call.
pub unsafe fn fill(cpus: &[u32], address: u64, bytes: u64, grain: u64, seed: u64) {
    spread(cpus, bytes, grain, |ThreadPiece { offset, len }| {
        // SAFETY: pieces are disjoint and lie in the caller's range.
        unsafe { pattern::fill(address as *mut u8, offset as usize, len as usize, seed) };
    });
}

/// Offset from `address` of the first byte that differs from a pattern. Pieces start at multiples
/// of `grain`, itself a multiple of 8.
///
/// # Safety
/// The range must be readable, and nothing may write to it during the call.
pub unsafe fn check(cpus: &[u32], address: u64, bytes: u64, grain: u64, seed: u64) -> Option<u64> {
    let wrong = spread(cpus, bytes, grain, |ThreadPiece { offset, len }| {
        // SAFETY: pieces lie in the caller's range.
        unsafe { pattern::check(address as *const u8, offset as usize, len as usize, seed) }
    });
    wrong.into_iter().flatten().min()
}

/// The wrapping sum of the 8-byte words of the first `bytes` bytes of a pattern, the last padded by
/// zeros.
pub fn sum(cpus: &[u32], bytes: u64, seed: u64) -> u64 {
    let sums =
        spread(cpus, bytes, 8, |ThreadPiece { offset, len }| pattern::sum(offset, len, seed));
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// The offset from `address` of the first byte that is not of `value.0`, repeated over `bytes.0`, or
/// of `value.1` from there to `bytes.1`. `bytes.0` is a multiple of 4, and pieces start on multiples of
/// `grain`, itself one of 4.
///
/// # Safety
/// The range must be readable, and nobody may write to it meanwhile.
pub unsafe fn check_words(
    cpus: &[u32],
    address: u64,
    bytes: (u64, u64),
    grain: u64,
    value: (u32, u8),
) -> Option<u64> {
    let word = value.0.to_ne_bytes();
    let wrong = spread(cpus, bytes.0, grain, |ThreadPiece { offset, len }| {
        // SAFETY: pieces lie in the caller's range.
        let piece =
            unsafe { std::slice::from_raw_parts((address + offset) as *const u8, len as usize) };
        let (words, _) = piece.as_chunks::<4>();
        let differs = words.iter().position(|stored| *stored != word)?;
        let byte =
            words.get(differs)?.iter().zip(word).position(|(stored, right)| *stored != right)?;
        Some(offset + differs as u64 * 4 + byte as u64)
    });
    let rest = || {
        // SAFETY: the rest of the caller's range.
        let rest = unsafe {
            let len = bytes.1.saturating_sub(bytes.0) as usize;
            std::slice::from_raw_parts((address + bytes.0) as *const u8, len)
        };
        let at = rest.iter().position(|byte| *byte != value.1)?;
        Some(bytes.0 + at as u64)
    };
    wrong.into_iter().flatten().min().or_else(rest)
}

/// Runs `part` over pieces of `bytes` that start at multiples of `grain`, each on one of `cpus`.
/// Returns the results in order.
pub(crate) fn spread<T: Send>(
    cpus: &[u32],
    bytes: u64,
    grain: u64,
    part: impl Fn(ThreadPiece) -> T + Sync,
) -> Vec<T> {
    if bytes < MIN_SHARED_BYTES || cpus.len() < 2 {
        return vec![part(ThreadPiece { offset: 0, len: bytes })];
    }
    let pieces = split_bytes(bytes, cpus.len() as u32, grain);
    std::thread::scope(|scope| {
        let thread = |(piece, &cpu): (ThreadPiece, &u32)| {
            let part = &part;
            let pinned = move || {
                // An unpinned thread is correct too, only slower.
                let _ = cpus::pin(cpu);
                part(piece)
            };
            (piece, std::thread::Builder::new().spawn_scoped(scope, pinned))
        };
        let threads: Vec<_> = pieces.into_iter().zip(cpus).map(thread).collect();
        // If no more threads can start, this one processes their pieces.
        let join =
            |(piece, thread): (ThreadPiece, io::Result<ScopedJoinHandle<'_, T>>)| match thread {
                // A piece that was not compared must not count as correct.
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(_) => part(piece),
            };
        threads.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_write_the_pattern_of_one_and_find_the_first_wrong_byte() {
        let (len, cpus) = (MIN_SHARED_BYTES as usize + 4099, [0, 0, 0]);
        let (mut one, mut many) = (vec![0_u8; len], vec![0_u8; len]);
        // SAFETY: vectors of that length.
        unsafe {
            pattern::fill(one.as_mut_ptr(), 0, len, 7);
            fill(&cpus, many.as_mut_ptr() as u64, len as u64, 4096, 7);
        }
        assert!(one == many);
        // SAFETY: as above.
        let wrong = |bytes: &[u8]| unsafe {
            check(&cpus, bytes.as_ptr() as u64, bytes.len() as u64, 4096, 7)
        };
        assert_eq!(wrong(&many), None);
        // The last byte, and one in the first piece before it.
        for at in [len - 1, 4097] {
            many[at] ^= 1;
            assert_eq!(wrong(&many), Some(at as u64));
        }
    }

    #[test]
    fn a_repeated_word_and_its_rest_are_compared_byte_by_byte() {
        let whole = MIN_SHARED_BYTES as usize + 4096 + 4;
        let word = 0x5061_7468_u32;
        let mut bytes = word.to_ne_bytes().repeat(whole / 4);
        bytes.extend([0x50; 3]);
        let wrong = |bytes: &[u8]| {
            let (at, lengths) = (bytes.as_ptr() as u64, (whole as u64, bytes.len() as u64));
            // SAFETY: a slice of that length.
            unsafe { check_words(&[0, 0, 0], at, lengths, 4096, (word, 0x50)) }
        };
        assert_eq!(wrong(&bytes), None);
        // The last byte of the rest, the last one of the words, and one in the first piece.
        for at in [whole + 2, whole - 1, 4098] {
            bytes[at] ^= 1;
            assert_eq!(wrong(&bytes), Some(at as u64));
        }
    }
}
