//! A copy between pageable memory or a file and a GPU, as the threads of a pool share it.

use std::sync::atomic::{AtomicUsize, Ordering};

use pathline_schema::{Bytes, CpuSet, copy_chunk};

use crate::staged_file::{GRAIN, StagedFile};

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StagedWay {
    /// From host memory to the GPU.
    In,
    /// From the GPU to host memory.
    Out,
}

/// The ends of a copy between pageable memory and a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedEnds {
    pub(crate) way: StagedWay,
    /// Address of the pageable memory.
    pub(crate) host: u64,
    /// Address of the GPU's memory.
    pub(crate) device_memory: u64,
    pub(crate) bytes: usize,
    /// The runtime's number of the GPU.
    pub(crate) device: i32,
}

/// When a copy begins, and what waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StagedOrder {
    /// At once; the caller waits for the last byte.
    Waits,
    /// In the order of a stream. It returns when host memory has been read or written.
    Stream(usize),
}

/// The end that is not a GPU's memory.
#[derive(Debug)]
pub(crate) enum HostEnd {
    /// Pageable memory at an address.
    Memory(u64),
    /// A file, of which copies in read a range.
    File(StagedFile),
}

/// One copy.
#[derive(Debug)]
pub(crate) struct StagedJob {
    pub(crate) way: StagedWay,
    pub(crate) host: HostEnd,
    /// Address of the GPU's memory.
    pub(crate) device_memory: u64,
    pub(crate) bytes: usize,
    /// The runtime's number of the GPU.
    pub(crate) device: i32,
    /// CPUs near the GPU; empty if any will do.
    pub(crate) cpus: CpuSet,
    /// Most threads that take part.
    pub(crate) threads: usize,
    /// For each thread an event of the GPU's context, to be recorded after its last chunk; none for copies out.
    pub(crate) done: Vec<usize>,
    chunk: usize,
    next: AtomicUsize,
}

impl StagedJob {
    /// A copy in chunks of at most `buffer` bytes.
    pub(crate) fn new(
        (way, device, cpus): (StagedWay, i32, CpuSet),
        (host, device_memory, bytes): (HostEnd, u64, usize),
        (threads, done): (usize, Vec<usize>),
        buffer: usize,
    ) -> Self {
        let buffer = match host {
            HostEnd::Memory(_) => buffer,
            // A file is read from a multiple of the grain before the range to one behind it.
            HostEnd::File(_) => buffer - 2 * GRAIN,
        };
        let chunk =
            copy_chunk(Bytes(bytes as u64), threads as u64, Bytes(buffer as u64)).0 as usize;
        let next = AtomicUsize::new(0);
        Self { way, host, device_memory, bytes, device, cpus, threads, done, chunk, next }
    }

    /// The next chunk that nobody has: offset and bytes.
    pub(crate) fn take_chunk(&self) -> Option<(usize, usize)> {
        let offset = self.next.fetch_add(1, Ordering::Relaxed).checked_mul(self.chunk)?;
        (offset < self.bytes).then(|| (offset, self.chunk.min(self.bytes - offset)))
    }

    /// Whether some thread has each chunk.
    pub(crate) fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed).saturating_mul(self.chunk) >= self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(bytes: usize, threads: usize, buffer: usize) -> Vec<(usize, usize)> {
        let about = (StagedWay::In, 0, CpuSet::default());
        let job = StagedJob::new(
            about,
            (HostEnd::Memory(1 << 40), 1 << 41, bytes),
            (threads, Vec::new()),
            buffer,
        );
        std::iter::from_fn(|| job.take_chunk()).collect()
    }

    #[test]
    fn chunks_cover_every_byte_once() {
        for (bytes, threads, buffer) in
            [(1, 1, 4 << 20), ((9 << 20) + 13, 3, 4 << 20), (1 << 30, 16, 4 << 20), (5000, 8, 4096)]
        {
            let all = chunks(bytes, threads, buffer);
            let mut end = 0;
            for (offset, len) in all {
                assert_eq!(offset, end, "{bytes} bytes");
                assert!(len > 0 && len <= buffer);
                end += len;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn a_small_copy_has_small_chunks() {
        // 4 MiB over 4 threads, 4 chunks each: 256 KiB. 1 GiB over 8: 32 MiB a share, more than a buffer.
        assert_eq!(chunks(4 << 20, 4, 4 << 20)[0].1, 256 << 10);
        assert_eq!(chunks(1 << 30, 8, 4 << 20)[0].1, 4 << 20);
    }
}
