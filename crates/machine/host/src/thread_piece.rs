//! The pieces of a range that threads share.

/// A thread's piece, as offsets into the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadPiece {
    /// Offset in bytes.
    pub(crate) offset: u64,
    /// Size in bytes; 0 if this thread has no work.
    pub(crate) len: u64,
}

/// Splits `bytes` evenly over threads at multiples of `grain`; the last piece includes the tail.
/// With more threads than grains some pieces are empty.
pub(crate) fn split_bytes(bytes: u64, threads: u32, grain: u64) -> Vec<ThreadPiece> {
    let grains = u128::from(bytes.div_ceil(grain));
    let edge = |i: u32| {
        let grains = (grains * u128::from(i) / u128::from(threads.max(1))) as u64;
        grains.saturating_mul(grain).min(bytes)
    };
    (0..threads).map(|i| ThreadPiece { offset: edge(i), len: edge(i + 1) - edge(i) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once_on_boundaries() {
        for bytes in [0, 1, 63, 64, 65, 4095, 4096, (1 << 20) + 17] {
            for threads in [1, 2, 3, 7, 64] {
                for grain in [64, 4096] {
                    let pieces = split_bytes(bytes, threads, grain);
                    let mut next = 0;
                    for piece in &pieces {
                        assert_eq!(piece.offset, next);
                        assert!(piece.offset.is_multiple_of(grain) || piece.offset == bytes);
                        next += piece.len;
                    }
                    assert_eq!((next, pieces.len()), (bytes, threads as usize));
                }
            }
        }
        // 1 MiB + 17 B over 2 in pages: 257 started pages, 128 and 129 of them, the last with 17 B.
        let lens: Vec<u64> = split_bytes((1 << 20) + 17, 2, 4096).iter().map(|p| p.len).collect();
        assert_eq!(lens, [128 * 4096, 128 * 4096 + 17]);
    }
}
