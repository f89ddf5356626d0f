//! Times of copies of pageable memory: the runtime's own, and with several threads.

use pathline_multipath::CopyTimeModel;
use pathline_schema::{Bytes, Ns};

use crate::node::CopyNode;
use crate::size_classes::SizeClasses;
use crate::staged_copy::StagedFailure;
use crate::staging_job::{HostEnd, StagedEnds, StagedOrder, StagedWay};
use crate::staging_plan::{StagingPlan, thread_counts};

/// Sizes of copies are the largest over these.
const PARTS: [usize; 5] = [32, 16, 8, 4, 1];
/// The largest copy, and the one where a GPU has no memory for that, in bytes.
const LARGEST: [usize; 2] = [64 << 20, 16 << 20];
/// Copies of each size. Of those by threads the median counts, of plain ones the fastest.
const COPIES: usize = 3;
/// Largest copies that fit into the host memory. Copies by threads go through all of it in turn, so that little is in
/// caches; plain ones repeat the same bytes, which they copy twice as fast from a cache.
const HOST_COPIES: usize = 2;

/// What the copies of a probe use.
struct StagingProbe<'n> {
    node: &'n CopyNode,
    device: i32,
    way: StagedWay,
    host: Vec<u8>,
    /// Bytes of host memory that copies have used since its start.
    used: usize,
    stream: usize,
    event: usize,
    device_memory: u64,
}

impl CopyNode {
    /// Compares plain copies with copies by several numbers of threads, in scratch memory.
    ///
    /// # Errors
    /// Memory is short, or the runtime refuses a call.
    pub(crate) fn probe_staging(&self, device: i32, way: StagedWay) -> Result<StagingPlan, String> {
        let refused = |status: (&str, i32)| self.refused(status);
        let entered = self.calls().enter(device).map_err(refused)?;
        let made = (|| {
            let (stream, event) =
                (self.calls().stream_create()?, self.calls().event_create(false)?);
            let most = |bytes: usize| bytes.min(self.shared.probe_bytes);
            let allocated = |bytes| Ok((self.calls().memory_allocate(bytes)?, bytes));
            let [first, second] = LARGEST.map(most);
            let (device_memory, bytes) = allocated(first).or_else(|_| allocated(second))?;
            Ok((stream, event, device_memory, bytes))
        })();
        self.calls().leave(entered);
        let (stream, event, device_memory, bytes) = made.map_err(refused)?;
        let host = vec![1; bytes * HOST_COPIES];
        let (node, used) = (self, 0);
        StagingProbe { node, device, way, host, used, stream, event, device_memory }.measure()
    }

    fn refused(&self, (name, code): (&str, i32)) -> String {
        format!("{name}: {}", self.calls().status_text(code))
    }
}

impl StagingProbe<'_> {
    fn measure(mut self) -> Result<StagingPlan, String> {
        let plain = self.time_copies(None)?;
        let counts = thread_counts(self.node.copy_threads).into_iter();
        let staged = counts.map(|threads| Ok((threads, self.time_copies(Some(threads))?)));
        let staged = staged.collect::<Result<Vec<_>, String>>()?;
        Ok(StagingPlan { plain, staged, classes: SizeClasses::default() })
    }

    fn time_copies(&mut self, threads: Option<usize>) -> Result<CopyTimeModel, String> {
        let largest = self.host.len() / HOST_COPIES;
        let mut model = PARTS.map(|part| (Bytes((largest / part) as u64), Ns::ZERO));
        for (size, time) in &mut model {
            let mut times = [0.0; COPIES];
            for time in &mut times {
                *time = self.time_copy(size.0 as usize, threads)?.0;
            }
            times.sort_by(f64::total_cmp);
            *time = Ns(times[if threads.is_some() { COPIES / 2 } else { 0 }]);
        }
        Ok(CopyTimeModel::through(model))
    }

    fn time_copy(&mut self, bytes: usize, threads: Option<usize>) -> Result<Ns, String> {
        let is_full = self.used + bytes > self.host.len();
        let start = if is_full || threads.is_none() { 0 } else { self.used };
        let host = self.host.as_mut_ptr() as u64 + start as u64;
        self.used = start + bytes;
        let (device_memory, way, device) = (self.device_memory, self.way, self.device);
        let ends = StagedEnds { way, host, device_memory, bytes, device };
        let begun = self.node.shared.now();
        match threads {
            None => self.copy_plainly(&ends)?,
            Some(threads) => {
                // SAFETY: memory of this probe, which nothing else uses.
                let copied = unsafe {
                    let host = HostEnd::Memory(ends.host);
                    self.node.run_staged(host, &ends, StagedOrder::Waits, threads)
                };
                copied.map_err(|failure| match failure {
                    StagedFailure::Order(error) => error.text,
                    StagedFailure::Copy(_) => "no thread copies".to_owned(),
                })?;
            }
        }
        Ok(self.node.shared.now() - begun)
    }

    fn copy_plainly(&self, ends: &StagedEnds) -> Result<(), String> {
        let calls = self.node.calls();
        let (dst, src) = match ends.way {
            StagedWay::In => (ends.device_memory, ends.host),
            StagedWay::Out => (ends.host, ends.device_memory),
        };
        let entered = calls.enter(self.device).map_err(|status| self.node.refused(status))?;
        // SAFETY: memory, a stream and an event of this probe.
        let statuses = unsafe {
            [
                calls.copy_async(dst, src, ends.bytes, self.stream),
                calls.event_record(self.event, self.stream),
                calls.event_wait(self.event),
            ]
        };
        calls.leave(entered);
        let failed = statuses.into_iter().find(|status| status.1 != 0);
        failed.map_or(Ok(()), |status| Err(self.node.refused(status)))
    }
}

impl Drop for StagingProbe<'_> {
    fn drop(&mut self) {
        // SAFETY: made for this probe, whose copies have ended.
        unsafe {
            self.node.calls().event_destroy(self.event);
            self.node.calls().stream_destroy(self.stream);
        }
        self.node.staging.free_later(self.device, self.device_memory);
    }
}
