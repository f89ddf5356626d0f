//! Rounds of a worker whose blocks go on to a GPU, or come from one.

use pathline_hal::{CallError, CallResult};
use pathline_schema::Bytes;

use super::{IoSlot, IoWorker};
use crate::round_progress::RoundProgress;

/// With a GPU at the end. A read's slot is: free, flying, copying, free; that of a write: free,
/// copying, ready, flying, free.
impl IoWorker {
    pub(super) fn run_staged(&mut self, progress: &RoundProgress, ops: u64) -> CallResult<()> {
        let (mut left, mut flying, mut done) = (ops, 0u32, 0u64);
        let mut failure: Option<CallError> = None;
        loop {
            if failure.is_none() && progress.has_failed() {
                left = 0;
            }
            let step = self.step(progress, &mut left, &mut flying, &mut done);
            if let Err(error) = step {
                // I/Os and copies in flight use memory: wait for them.
                left = 0;
                self.ready.clear();
                if failure.is_some() {
                    return failure.map_or(Ok(()), Err);
                }
                failure = Some(error);
            }
            let idle = flying == 0 && self.copying.is_empty() && self.ready.is_empty();
            if idle && (left == 0 || failure.is_some()) {
                return failure.map_or(Ok(()), Err);
            }
        }
    }

    /// Starts what can be started, and takes what has ended.
    fn step(
        &mut self,
        progress: &RoundProgress,
        left: &mut u64,
        flying: &mut u32,
        done: &mut u64,
    ) -> CallResult<()> {
        let batch = self.io.batch;
        if *left > 0 && *flying == 0 && self.copying.is_empty() && self.ready.is_empty() {
            self.await_due(progress);
        }
        while *left > 0
            && (self.ready.len() as u32) < batch
            && self.is_due(progress)
            && let Some(slot) = self.free.pop()
        {
            *left -= 1;
            self.choose(slot);
            if self.slot(slot).write {
                self.begin_copy(progress, slot)?;
            } else {
                self.ready.push(slot);
            }
        }
        let noted = batch.min(self.ready.len() as u32);
        for _ in 0..noted {
            let Some(slot) = self.ready.pop() else { break };
            let IoSlot { write, offset, .. } = self.slot(slot);
            self.engine.push(slot, write, offset);
            self.pushed.push(slot);
        }
        *flying += noted;
        if *flying > 0 {
            let more = !self.ready.is_empty() || (*left > 0 && !self.free.is_empty());
            // While copies run it looks for the end of either.
            let wait = if more || !self.copying.is_empty() { 0 } else { batch.min(*flying) };
            self.exchange(progress, wait, flying, done)?;
        } else if let Some(&slot) = self.copying.front() {
            self.wait_for(progress, slot)?;
        }
        self.take_copies(progress, done)?;
        let mut stop = 0;
        self.note(progress, *done, &mut stop);
        Ok(())
    }

    /// Hands over what was noted, and goes on with what has ended.
    fn exchange(
        &mut self,
        progress: &RoundProgress,
        wait: u32,
        flying: &mut u32,
        done: &mut u64,
    ) -> CallResult<()> {
        let before = progress.origin.ns();
        for slot in self.pushed.drain(..) {
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.issued = before;
                if !slot.write {
                    slot.begun = slot.due.unwrap_or(before);
                }
            }
        }
        if let Err(error) = self.engine.enter(wait, &mut self.ended) {
            // The end of the round waits for what flies.
            *flying = 0;
            return Err(self.refused(&error));
        }
        let after = progress.origin.ns();
        self.enters.add(after - before);
        let (whole, mut failure) = (self.block.cast_signed(), None);
        while let Some((slot, result)) = self.ended.pop() {
            *flying -= 1;
            let Some(at) = self.slots.get_mut(slot as usize) else { continue };
            at.reaped = after;
            let at = *at;
            if result != whole {
                failure = Some(self.ended(at, result));
                self.release(slot);
                continue;
            }
            self.device.add(after - at.issued);
            if at.write {
                self.latency.add(after - at.begun);
                *done += 1;
                self.release(slot);
            } else if failure.is_none() {
                failure = self.begin_copy(progress, slot).err();
                *done += u64::from(failure.is_none() && !self.pipelined());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn pipelined(&self) -> bool {
        self.staging.as_ref().is_some_and(|s| s.pipelined)
    }

    /// Starts the copy of a slot, or does it, as elbencho does. A write's slot is ready then.
    fn begin_copy(&mut self, progress: &RoundProgress, slot: u32) -> CallResult<()> {
        let bytes = Bytes(self.block.into());
        let step = u64::from(slot) * bytes.0;
        let Some(staging) = self.staging.as_mut() else { return Ok(()) };
        let Some(at) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        let (host, gpu) = (self.memory + step, staging.memory + step);
        let (dst, src) = if at.write { (host, gpu) } else { (gpu, host) };
        let before = progress.origin.ns();
        at.copied = before;
        if at.write {
            at.begun = at.due.unwrap_or(before);
        }
        let outcome = if staging.pipelined {
            staging.copier.start(slot as usize, dst, src, bytes)
        } else {
            staging.copier.copy(dst, src, bytes)
        };
        let (after, at) = (progress.origin.ns(), *at);
        self.copies.add(after - before);
        if let Err(error) = outcome {
            self.release(slot);
            return Err(error);
        }
        if staging.pipelined {
            self.copying.push_back(slot);
            return Ok(());
        }
        self.copy.add(after - before);
        if at.write {
            self.ready.push(slot);
        } else {
            self.latency.add(after - at.begun);
            self.release(slot);
        }
        Ok(())
    }

    fn wait_for(&mut self, progress: &RoundProgress, slot: u32) -> CallResult<()> {
        let Some(staging) = self.staging.as_mut() else { return Ok(()) };
        let before = progress.origin.ns();
        let outcome = staging.copier.wait(slot as usize);
        self.waits.add(progress.origin.ns() - before);
        if outcome.is_err() {
            self.copying.clear();
        }
        outcome
    }

    /// Takes the copies that have ended, in the order in which they were started.
    fn take_copies(&mut self, progress: &RoundProgress, done: &mut u64) -> CallResult<()> {
        while let Some(&slot) = self.copying.front() {
            let Some(staging) = self.staging.as_mut() else { return Ok(()) };
            match staging.copier.is_done(slot as usize) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.copying.clear();
                    return Err(error);
                }
            }
            self.copying.pop_front();
            let now = progress.origin.ns();
            let at = self.slot(slot);
            self.copy.add(now - at.copied);
            if at.write {
                self.ready.push(slot);
            } else {
                self.latency.add(now - at.begun);
                *done += 1;
                self.release(slot);
            }
        }
        Ok(())
    }
}
