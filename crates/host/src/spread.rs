//! Patterns in host memory with all cores of a domain: one core processes a few GB/s, and the
//! buffers of a run have tens of gigabytes.

use std::io;
use std::thread::ScopedJoinHandle;

use crate::team::{ThreadPiece, split};
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
    let pieces = split(bytes, cpus.len() as u32, grain);
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
}
