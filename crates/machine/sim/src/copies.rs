//! Copies of a simulated runtime.

use std::rc::Rc;

use pathline_flow::FlowOperation;
use pathline_hal::{CallError, CallResult, CopyChoice, KernelId, StreamId};
use pathline_schema::{Bytes, Flow, KernelVariant, Mover, Unit};

use crate::driver::SimDriver;
use crate::memory::BufferSpot;
use crate::world::{CopyList, EffectKind, MemoryEffect, SimWorld, TransferLoad, no_such};

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
        let after = |at: BufferSpot, bytes: Bytes| BufferSpot { offset: at.offset + bytes.0, ..at };
        let mut last = None;
        for ((dst, src), bytes, operation) in ready {
            let does = EffectKind::Copy;
            let effect =
                MemoryEffect { src: Some(src), dst: Some(dst), bytes: bytes.0, does, damages };
            // The engine is started once for copies that continue one another; then it goes down the list. Of an
            // H200 256 of 4 KiB take 24.3 us side by side, 700 us at random places.
            let follows = last == Some((dst, src));
            last = Some((after(dst, bytes), after(src, bytes)));
            let passes = if follows { 0.0 } else { 1.0 };
            let load = TransferLoad { passes, ..TransferLoad::once(bytes) };
            world.enqueue(self.rank, stream.0, operation, load, effect);
        }
        Ok(())
    }

    /// Keeps a list of ranges for [`Self::enqueue_list`].
    pub(crate) fn make_list(
        &self,
        gpu: u32,
        copies: &[(u64, u64, Bytes)],
        thread_blocks: u32,
    ) -> CallResult<KernelId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "block_copies", Some(gpu))?;
        let mut ranges = Vec::new();
        for &(dst, src, bytes) in copies.iter().filter(|(_, _, bytes)| bytes.0 > 0) {
            let find = |address| world.find("block_copies", address, bytes);
            ranges.push((find(dst)?, find(src)?, bytes.0));
        }
        let id = world.timeline.handle();
        world.lists.insert(id, CopyList { gpu, thread_blocks, ranges });
        Ok(KernelId(id))
    }

    /// Enqueues the copies of a list as one kernel; all ranges go the way of the first.
    pub(crate) fn enqueue_list(&self, stream: StreamId, kernel: KernelId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, damages) = self.enter_stream(&mut world, "copy_blocks", stream)?;
        let list = world.lists.get(&kernel.0).filter(|list| list.gpu == gpu);
        let Some(list) = list else {
            return Err(no_such("copy_blocks", &format!("list {} of gpu{gpu}", kernel.0)));
        };
        let Some(&(dst, src, first)) = list.ranges.first() else { return Ok(()) };
        let bytes = Bytes(list.ranges.iter().map(|range| range.2).sum());
        let each = Bytes(bytes.0 / list.ranges.len() as u64);
        let variant = KernelVariant::scattered(list.thread_blocks, each);
        let from = self.reach(&mut world, stream, gpu, src, first)?;
        let to = self.reach(&mut world, stream, gpu, dst, first)?;
        let by = Mover::Kernel { at: Unit::Gpu(gpu), variant };
        let operation = world.operation("copy_blocks", Flow { src: from, dst: to, by, bytes })?;
        world.charge(self.rank, operation.call.0);
        let does = EffectKind::CopyList(kernel.0);
        let effect = MemoryEffect { src: Some(src), dst: Some(dst), bytes: first, does, damages };
        world.enqueue(self.rank, stream.0, operation, TransferLoad::once(bytes), effect);
        Ok(())
    }
}
