//! Patterns and chains in memory of the driver: written and compared by a GPU, or by the host.

use std::ffi::c_void;

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, CHASE_STEPS, MemKind, Unit};

use super::blocks::{GpuBlock, PAST_CACHES};
use super::driver::{GpuDriver, call};
use super::function_table::RuntimeHandle;
use pathline_host::memory::ChaseChain;
use pathline_host::{chase, pattern, spread};

/// Staging bytes where no kernel can write a pattern.
const STAGE: u64 = 8 << 20;

impl GpuDriver {
    /// Whether the host reads and writes a buffer itself: its pages exist, or appear on access.
    fn is_by_host(block: &GpuBlock) -> bool {
        matches!(block.place.unit, Unit::Numa(_))
    }

    /// Whether the host compares a buffer. It reads write-combined memory a hundred times slower than a
    /// GPU does.
    fn compared_by_host(&self, block: &GpuBlock) -> bool {
        let slow = block.place.mem == MemKind::PinnedWc && self.compiler.is_some();
        Self::is_by_host(block) && !slow
    }

    /// The CPUs that compare a buffer of the host, and its page size; `None` if a GPU compares it, or it
    /// is no buffer of this driver.
    pub(crate) fn cpus_that_compare(&self, address: u64) -> Option<(&[u32], u64)> {
        let blocks = self.blocks.borrow();
        let (_, block) = blocks.holding(address)?;
        self.compared_by_host(block).then(|| self.near(block))
    }

    /// The GPU whose memory a buffer is in.
    pub(crate) fn gpu_that_holds(&self, address: u64) -> Option<u32> {
        self.blocks.borrow().holding(address)?.1.place.unit.gpu()
    }

    /// CPUs of a host buffer's domain, and its page size.
    fn near(&self, block: &GpuBlock) -> (&[u32], u64) {
        let cpus = block.place.unit.numa().map_or(&[][..], |numa| self.host.cpus(numa));
        (cpus, self.host.page() as u64)
    }

    pub(crate) fn write_pattern(
        &self,
        address: u64,
        bytes: Bytes,
        seed: u64,
        chain: bool,
    ) -> CallResult<()> {
        let block = self.own("fill", address, bytes)?;
        self.overwritten(address, bytes);
        if chain {
            self.write_chain(&block, address, bytes, seed)?;
            if let Some(block) = self.blocks.borrow_mut().holding_mut(address) {
                block.chain = Some((address, bytes.0));
            }
            self.host.note_chain(address, Some(ChaseChain { address, bytes: bytes.0 }));
            return Ok(());
        }
        if Self::is_by_host(&block) {
            let (cpus, page) = self.near(&block);
            // SAFETY: the range lies in a live buffer that the host may write.
            unsafe { spread::fill(cpus, address, bytes.0, page, seed) };
            return Ok(());
        }
        let gpu = block.place.unit.gpu().unwrap_or(0);
        if self.compiler.is_some() {
            return self.fill_on(gpu, address, bytes, seed);
        }
        self.through_host(gpu, bytes, |offset, stage| {
            // SAFETY: the stage is `stage.len()` bytes; the pattern is counted from `address`.
            unsafe {
                pattern::fill(
                    stage.as_mut_ptr().wrapping_sub(offset as usize),
                    offset as usize,
                    stage.len(),
                    seed,
                );
            };
            self.copy_in("a pattern", address + offset, stage)
        })
    }

    pub(crate) fn find_wrong(
        &self,
        address: u64,
        bytes: Bytes,
        seed: u64,
    ) -> CallResult<Option<u64>> {
        let block = self.own("check", address, bytes)?;
        if self.compared_by_host(&block) {
            let (cpus, page) = self.near(&block);
            // SAFETY: the range lies in a live buffer that the host may read.
            return Ok(unsafe { spread::check(cpus, address, bytes.0, page, seed) });
        }
        let gpu = block.place.unit.gpu().or_else(|| self.opened().first().copied()).unwrap_or(0);
        if self.compiler.is_some() {
            return self.check_on(gpu, address, bytes, seed);
        }
        let mut wrong = None;
        self.through_host(gpu, bytes, |offset, stage| {
            if wrong.is_some() {
                return Ok(());
            }
            call!(
                self,
                copy_out,
                "a pattern",
                stage.as_mut_ptr().cast::<c_void>(),
                address + offset,
                stage.len()
            )?;
            // SAFETY: as for filling.
            wrong = unsafe {
                pattern::check(
                    stage.as_ptr().wrapping_sub(offset as usize),
                    offset as usize,
                    stage.len(),
                    seed,
                )
            };
            Ok(())
        })?;
        Ok(wrong)
    }

    /// Copies host bytes to the current GPU and waits for their arrival: the call alone may return
    /// earlier (CUDA driver API, "API synchronization behavior"), and this driver's streams are not
    /// ordered with it.
    pub(crate) fn copy_in(&self, thing: &str, to: u64, from: &[u8]) -> CallResult<()> {
        call!(self, copy_in, thing, to, from.as_ptr().cast::<c_void>(), from.len())?;
        const LEGACY_STREAM: RuntimeHandle = 0;
        call!(self, stream_wait, thing, LEGACY_STREAM)
    }

    /// Processes a range of device memory piece by piece through a host buffer. Pieces start on
    /// multiples of 8.
    fn through_host(
        &self,
        gpu: u32,
        bytes: Bytes,
        mut piece: impl FnMut(u64, &mut [u8]) -> CallResult<()>,
    ) -> CallResult<()> {
        self.enter("fill", gpu)?;
        let mut stage = vec![0; bytes.0.min(STAGE) as usize];
        let mut offset = 0;
        while offset < bytes.0 {
            let len = (bytes.0 - offset).min(STAGE);
            piece(offset, &mut stage[..len as usize])?;
            offset += len;
        }
        Ok(())
    }

    /// Writes a pointer chain.
    fn write_chain(
        &self,
        block: &GpuBlock,
        address: u64,
        bytes: Bytes,
        seed: u64,
    ) -> CallResult<()> {
        let refuse = |reason| {
            Err(CallError::unsupported(
                "fill",
                format!("a chain over {bytes} at {address:#x}"),
                reason,
            ))
        };
        if bytes.0 < 8 || !address.is_multiple_of(8) {
            return refuse("a chain needs 8 bytes on a boundary of 8");
        }
        if Self::is_by_host(block) {
            // SAFETY: the range lies in a live buffer that the host may write; aligned, long enough.
            let laid = unsafe { chase::write_chain(&[], address, bytes, chase::STRIDE, seed) };
            if !laid {
                return refuse("a chain covers at most 512 GiB");
            }
            self.note_parts_on_host(address, bytes, CHASE_STEPS);
            return Ok(());
        }
        let Some(next) = chase::cycle(chase::elements(bytes), seed) else {
            return refuse("a chain covers at most 512 GiB");
        };
        let step = |at: u64| {
            let nth = usize::try_from((at - address) / chase::STRIDE).ok()?;
            next.get(nth).map(|&n| address + u64::from(n) * chase::STRIDE)
        };
        self.note_parts(address, bytes, CHASE_STEPS, step);
        let mut elements = next.iter().map(|&n| address + u64::from(n) * chase::STRIDE);
        self.through_host(block.place.unit.gpu().unwrap_or(0), bytes, |offset, stage| {
            for (slot, target) in stage.chunks_mut(chase::STRIDE as usize).zip(&mut elements) {
                if let Some(word) = slot.first_chunk_mut() {
                    *word = target.to_le_bytes();
                }
            }
            self.copy_in("a chain", address + offset, stage)
        })?;
        if bytes >= PAST_CACHES { self.empty_caches(block) } else { Ok(()) }
    }
}
