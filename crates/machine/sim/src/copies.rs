//! Copies of a simulated runtime.

use std::rc::Rc;

use pathline_flow::FlowOperation;
use pathline_hal::{CallError, CallResult, CopyChoice, StreamId};
use pathline_schema::{Bytes, Flow, Mover, Unit};

use crate::driver::SimDriver;
use crate::memory::BufferSpot;
use crate::world::{EffectKind, MemoryEffect, SimWorld, TransferLoad};

impl SimDriver {
    /// The mover of a runtime's copy.
    pub(crate) fn copy_mover(at: Unit, engine: CopyChoice) -> Mover {
        match engine {
            CopyChoice::Auto => Mover::Dma { at },
            CopyChoice::Blit => Mover::Blit { at },
        }
    }

    /// One operation of a copy between two addresses.
    pub(crate) fn copy_operation(
        world: &mut SimWorld,
        (dst, src): (BufferSpot, BufferSpot),
        bytes: Bytes,
        by: Mover,
    ) -> CallResult<Rc<FlowOperation>> {
        let (src, dst) = (world.place(src), world.place(dst));
        world.operation("copy", Flow { src, dst, by, bytes })
    }

    /// Makes one copy; waits for it if its call blocks.
    pub(crate) fn copy_by(
        &self,
        call: &'static str,
        stream: StreamId,
        (dst, src, bytes): (u64, u64, Bytes),
        by: impl FnOnce(Unit) -> Mover,
    ) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, damages) = self.enter_stream(&mut world, call, stream)?;
        let (dst, src) = (world.find(call, dst, bytes)?, world.find(call, src, bytes)?);
        if bytes.0 == 0 {
            return Ok(());
        }
        let operation = Self::copy_operation(&mut world, (dst, src), bytes, by(Unit::Gpu(gpu)))?;
        world.charge(self.rank, operation.call.0);
        let (blocking, does) = (operation.blocking, EffectKind::Copy);
        let effect = MemoryEffect { src: Some(src), dst: Some(dst), bytes: bytes.0, does, damages };
        world.enqueue(self.rank, stream.0, operation, TransferLoad::once(bytes), effect);
        if !blocking {
            return Ok(());
        }
        let thing = format!("stream {} of gpu{gpu}", stream.0);
        let arrived = world.block(self.rank, call, &thing, |w| w.timeline.lane_idle(stream.0));
        if arrived.is_err()
            && let Some(effect) = world.timeline.take_back(stream.0)
        {
            world.release(&effect);
        }
        arrived
    }

    /// Enqueues copies by one call.
    pub(crate) fn enqueue_batch(
        &self,
        stream: StreamId,
        copies: &[(u64, u64, Bytes)],
    ) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, damages) = self.enter_stream(&mut world, "copy_batch", stream)?;
        let Some(call) = world.batch_call() else {
            let thing = format!("{} copies on gpu{gpu}", copies.len());
            let reason = "this runtime has no call for a batch";
            return Err(CallError::unsupported("copy_batch", thing, reason)
                .or_try("copy one after the other"));
        };
        let mut ready = Vec::new();
        for &(dst, src, bytes) in copies.iter().filter(|(_, _, bytes)| bytes.0 > 0) {
            let spots =
                (world.find("copy_batch", dst, bytes)?, world.find("copy_batch", src, bytes)?);
            let by = Self::copy_mover(Unit::Gpu(gpu), CopyChoice::Auto);
            let operation = Self::copy_operation(&mut world, spots, bytes, by)?;
            ready.push((spots, bytes, operation));
        }
        world.charge(self.rank, call.0);
        for (nth, ((dst, src), bytes, operation)) in ready.into_iter().enumerate() {
            let does = EffectKind::Copy;
            let effect =
                MemoryEffect { src: Some(src), dst: Some(dst), bytes: bytes.0, does, damages };
            // The engine is started once; then it goes down the list.
            let passes = if nth == 0 { 1.0 } else { 0.0 };
            let load = TransferLoad { passes, ..TransferLoad::once(bytes) };
            world.enqueue(self.rank, stream.0, operation, load, effect);
        }
        Ok(())
    }
}
