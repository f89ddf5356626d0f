//! Sizes with which threads carry pageable memory to and from a GPU.

use crate::Bytes;

/// Page-locked buffer of a thread.
pub const COPY_BUFFER: Bytes = Bytes::mib(4);
/// Buffers of a thread: the GPU copies one while the thread copies another.
pub const COPY_BUFFERS: usize = 2;

/// The smallest chunk: a smaller one costs more calls than it saves time at the ends of a copy.
const MIN_CHUNK: u64 = 256 << 10;
/// Chunks that each thread has at least, if they are not the smallest.
const CHUNKS_PER_THREAD: u64 = 4;
/// Chunks are whole pages.
const PAGE: u64 = 4096;

/// Bytes that a thread copies at a time, of a copy by `threads` threads with buffers of `buffer` bytes.
pub fn copy_chunk(bytes: Bytes, threads: u64, buffer: Bytes) -> Bytes {
    let chunks = threads.max(1).saturating_mul(CHUNKS_PER_THREAD);
    let share = bytes.0.div_ceil(chunks).checked_next_multiple_of(PAGE).unwrap_or(buffer.0);
    Bytes(share.clamp(MIN_CHUNK.min(buffer.0), buffer.0))
}
