//! Copies, kernels and migrations: timed by the simulated machine, with their effects on bytes.

use std::collections::BTreeMap;
use std::ffi::c_void;

use pathline_hal::{ChainPart, CopyChoice, KernelId, KernelLaunch, StreamId, kernel};
use pathline_schema::{
    Bytes, GridSize, KernelOp, KernelVariant, MemKind, MigrateHow, Place, Severity, Unit,
};

use crate::acts::{StoredElement, StreamAct, block_range};
use crate::image;
use crate::node::{CallOutcome, StubFunction, StubKernel, StubModule, StubNode};
use crate::status;
use crate::streams::StubHandle;

/// Dynamic shared memory of a block without an attribute.
const SHARED: u32 = 48 << 10;

/// The elements that a kernel of `kernel::STORED` compares.
fn stored_element(name: &str) -> Option<StoredElement> {
    match name {
        kernel::WRITTEN => Some(StoredElement::Constant),
        kernel::TRIAD_BYTES => Some(StoredElement::Triad { word: 1 }),
        kernel::TRIAD_FLOATS => Some(StoredElement::Triad { word: 4 }),
        kernel::TRIAD_DOUBLES => Some(StoredElement::Triad { word: 8 }),
        _ => None,
    }
}

impl StubNode {
    /// Enqueues an act, with its corruption if that fault is injected.
    fn enqueue(&mut self, stream: StubHandle, act: StreamAct, dst: u64, bytes: u64) {
        self.push(stream, act);
        if std::mem::take(&mut self.corrupt) && bytes > 0 {
            self.push(stream, StreamAct::Damage { dst, bytes });
        }
    }

    /// Enqueues a copy. With a pageable end it waits, as the runtimes do.
    pub(crate) fn copy(
        &mut self,
        handle: StubHandle,
        dst: u64,
        src: u64,
        bytes: u64,
    ) -> CallOutcome {
        let (stream, _, id) = self.ready(handle)?;
        if bytes == 0 {
            return Ok(());
        }
        let (to, to_pageable) = self.twin_for_copy(dst, bytes)?;
        let (from, from_pageable) = self.twin_for_copy(src, bytes)?;
        self.timed_copy((stream, id), (to, from), bytes)?;
        self.enqueue(stream, StreamAct::Copy { dst, src, bytes }, dst, bytes);
        if to_pageable || from_pageable { self.drain(stream) } else { Ok(()) }
    }

    fn timed_copy(
        &mut self,
        (stream, id): (StubHandle, StreamId),
        (to, from): (u64, u64),
        bytes: u64,
    ) -> CallOutcome {
        if to == from {
            // Both ends are pageable: the CPU copies.
            return self.drain(stream);
        }
        let bytes = Bytes(bytes);
        match self.sim()?.copy(id, to, from, bytes, CopyChoice::Auto) {
            Ok(()) => Ok(()),
            // It would wait for the stream, which waits for a memory word.
            Err(error) if error.severity == Severity::Transient => {
                self.drain(stream)?;
                let again = self.sim()?.copy(id, to, from, bytes, CopyChoice::Auto);
                again.map_err(|e| status::of(&e))
            }
            Err(error) => Err(status::of(&error)),
        }
    }

    /// Enqueues a fill with one byte.
    pub(crate) fn set(
        &mut self,
        handle: StubHandle,
        dst: u64,
        value: u8,
        bytes: u64,
    ) -> CallOutcome {
        let (stream, gpu, id) = self.ready(handle)?;
        if bytes == 0 {
            return Ok(());
        }
        let twin = self.twin_for_kernel(gpu, dst, bytes).ok_or(status::INVALID_VALUE)?;
        self.timed(id, gpu, KernelVariant::standard(KernelOp::Write), (0, twin), bytes)?;
        self.enqueue(stream, StreamAct::Set { dst, bytes, value }, dst, bytes);
        Ok(())
    }

    /// Time of a pass of a kernel.
    fn timed(
        &mut self,
        stream: StreamId,
        gpu: u32,
        variant: KernelVariant,
        (src, dst): (u64, u64),
        bytes: u64,
    ) -> CallOutcome {
        let kernel = self.sim_kernel(gpu, variant)?;
        let launch = KernelLaunch { src, dst, bytes: Bytes(bytes) };
        self.sim()?.launch(stream, kernel, &launch).map_err(|e| status::of(&e))
    }

    fn sim_kernel(&mut self, gpu: u32, variant: KernelVariant) -> CallOutcome<KernelId> {
        if let Some(&kernel) = self.kernels.get(&(gpu, variant)) {
            return Ok(kernel);
        }
        let new = self.sim()?.kernel(gpu, &variant).map_err(|e| status::of(&e))?;
        self.kernels.insert((gpu, variant), new);
        Ok(new)
    }

    /// Time of `steps` loads of a chain, one element of which is at `src`.
    fn timed_chase(
        &mut self,
        stream: StreamId,
        gpu: u32,
        variant: KernelVariant,
        src: u64,
        steps: u64,
    ) -> CallOutcome {
        let kernel =
            self.sim_kernel(gpu, KernelVariant { grid: GridSize::Blocks(1), ..variant })?;
        let (start, block) = self.blocks.find(src, 8).ok_or(status::ILLEGAL_ADDRESS)?;
        let bytes = Bytes(block.bytes);
        let twin = self.twin_for_kernel(gpu, start, bytes.0).ok_or(status::ILLEGAL_ADDRESS)?;
        let launch = KernelLaunch { src: twin, dst: 0, bytes };
        let part = ChainPart { nth: 0, steps };
        let driver = self.sim()?;
        let mut launched = driver.follow(stream, kernel, &launch, part);
        if launched.is_err() {
            // The twin does not know of a chain that the program has written.
            let laid = driver.fill(twin, bytes, 0, true);
            launched = laid.and_then(|()| driver.follow(stream, kernel, &launch, part));
        }
        launched.map_err(|e| status::of(&e))
    }

    /// Loads an image.
    pub(crate) fn load(&mut self, code: Option<image::KernelImage>) -> CallOutcome<StubHandle> {
        let image = code.ok_or(status::INVALID_IMAGE)?;
        let arch = self.gpus.get(self.gpu as usize).map(|g| g.arch.as_str());
        let target = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        let virtual_one = image.arch.starts_with("compute_");
        if !virtual_one && arch.map(target) != Some(target(&image.arch)) {
            return Err(status::NO_BINARY);
        }
        let handle = self.handle();
        self.modules.insert(handle, StubModule { gpu: self.gpu, source: image.source });
        Ok(handle)
    }

    /// A function of an image by its name.
    pub(crate) fn function(&mut self, module: StubHandle, name: &str) -> CallOutcome<StubHandle> {
        let source = &self.modules.get(&module).ok_or(status::INVALID_HANDLE)?.source;
        let kernel = match name {
            kernel::ENTRY => image::variant(source).map(StubKernel::Pass),
            kernel::FILL => source.contains(kernel::FILL).then_some(StubKernel::Fill),
            kernel::CHECK => source.contains(kernel::CHECK).then_some(StubKernel::Check),
            kernel::SUM => source.contains(kernel::SUM).then_some(StubKernel::Sum),
            kernel::COPY_BLOCKS => {
                source.contains(kernel::COPY_BLOCKS).then_some(StubKernel::Blocks)
            }
            _ => stored_element(name).filter(|_| source.contains(name)).map(StubKernel::Stored),
        };
        let kernel = kernel.ok_or(status::NOT_FOUND)?;
        let handle = self.handle();
        let function = StubFunction { module, kernel, shared: SHARED };
        self.functions.insert(handle, function);
        Ok(handle)
    }

    pub(crate) fn unload(&mut self, module: StubHandle) -> CallOutcome {
        self.modules.remove(&module).ok_or(status::INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    /// Launches a kernel. An invalid access makes the context unusable, after the call.
    ///
    /// # Safety
    /// `parameters` points to a pointer to 8 bytes for each parameter of the kernel.
    pub(crate) unsafe fn launch(
        &mut self,
        function: StubHandle,
        (grid, block, shared): ([u32; 3], [u32; 3], u32),
        handle: StubHandle,
        parameters: *const *const c_void,
    ) -> CallOutcome {
        let &StubFunction { module, kernel, shared: most_shared } =
            self.functions.get(&function).ok_or(status::INVALID_HANDLE)?;
        let (stream, gpu, id) = self.ready(handle)?;
        let owner = self.modules.get(&module).map(|m| m.gpu);
        if owner != Some(gpu) {
            return Err(status::INVALID_HANDLE);
        }
        if parameters.is_null() || grid.contains(&0) || block.contains(&0) || shared > most_shared {
            return Err(status::INVALID_VALUE);
        }
        let most = match kernel {
            StubKernel::Pass(variant) => u32::from(variant.block),
            StubKernel::Blocks => kernel::COPY_BLOCK,
            StubKernel::Fill | StubKernel::Check | StubKernel::Sum | StubKernel::Stored(_) => {
                kernel::PATTERN_BLOCK
            }
        };
        if block.iter().product::<u32>() > most {
            return Err(status::OUT_OF_RESOURCES);
        }
        if let StubKernel::Pass(variant) = kernel
            && u64::from(shared) < variant.shared().0
        {
            // It would exceed its shared memory.
            self.ruin(gpu, status::ILLEGAL_ADDRESS);
            return Ok(());
        }
        let count = match kernel {
            StubKernel::Blocks => 2,
            StubKernel::Fill => 3,
            _ => 4,
        };
        let mut words = [0u64; 4];
        for (nth, word) in words.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise.
            unsafe {
                let at = parameters.add(nth).read().cast::<u64>();
                if at.is_null() {
                    return Err(status::INVALID_VALUE);
                }
                *word = at.read_unaligned();
            }
        }
        match self.run(kernel, (stream, gpu, id), grid[0], words) {
            Err(status::ILLEGAL_ADDRESS) => {
                self.ruin(gpu, status::ILLEGAL_ADDRESS);
                Ok(())
            }
            other => other,
        }
    }

    fn run(
        &mut self,
        kernel: StubKernel,
        (stream, gpu, id): (StubHandle, u32, StreamId),
        blocks: u32,
        [a, b, c, d]: [u64; 4],
    ) -> CallOutcome {
        let twin = |node: &Self, address, bytes| {
            if bytes == 0 {
                return Ok(0);
            }
            node.twin_for_kernel(gpu, address, bytes).ok_or(status::ILLEGAL_ADDRESS)
        };
        match kernel {
            StubKernel::Fill => {
                let (dst, bytes, seed) = (a, b, c);
                let to = twin(self, dst, bytes)?;
                self.timed(id, gpu, KernelVariant::standard(KernelOp::Write), (0, to), bytes)?;
                self.enqueue(stream, StreamAct::Fill { dst, bytes, seed }, dst, bytes);
            }
            StubKernel::Check => {
                let (src, bytes, seed, first) = (a, b, c, d);
                let from = twin(self, src, bytes)?;
                twin(self, first, 8)?;
                self.timed(id, gpu, KernelVariant::standard(KernelOp::Read), (from, 0), bytes)?;
                self.push(stream, StreamAct::Check { src, bytes, seed, first });
            }
            StubKernel::Stored(element) => {
                let (src, dst, bytes, first) = (a, b, c, d);
                let read = twin(self, dst, bytes)?;
                if element != StoredElement::Constant {
                    twin(self, src, 2 * bytes)?;
                }
                twin(self, first, 8)?;
                self.timed(id, gpu, KernelVariant::standard(KernelOp::Read), (read, 0), bytes)?;
                self.push(stream, StreamAct::Compare { element, src, dst, bytes, first });
            }
            StubKernel::Blocks => {
                let (list, count) = (a, b);
                twin(self, list, count.saturating_mul(24))?;
                self.timed_blocks((gpu, id), blocks, (list, count))?;
                self.enqueue(stream, StreamAct::Blocks { list, count }, list, 0);
            }
            StubKernel::Sum => {
                let (whole, bytes, seed, sum) = (a, b, c, d);
                twin(self, sum, 8)?;
                self.push(stream, StreamAct::PatternSum { whole, bytes, seed, sum });
            }
            StubKernel::Pass(variant) if variant.op == KernelOp::Chase => {
                let (src, block, bytes, sink) = (a, b, c, d);
                twin(self, sink, 8)?;
                // No other block follows it.
                if block >= u64::from(blocks) {
                    return Ok(());
                }
                let steps = (bytes / 128).max(1);
                self.timed_chase(id, gpu, variant, src, steps)?;
                self.enqueue(stream, StreamAct::Chase { src, steps, sink }, 0, 0);
            }
            StubKernel::Pass(variant) => {
                let (src, dst, bytes, sink) = (a, b, c, d);
                let variant = KernelVariant { grid: GridSize::Blocks(blocks), ..variant };
                let effect = variant.effect(Bytes(bytes));
                let from = twin(self, src, effect.reads.0)?;
                let to = twin(self, dst, effect.writes.0)?;
                twin(self, sink, 8)?;
                let align = variant.align();
                let odd = |address: u64, bytes: u64| bytes > 0 && !address.is_multiple_of(align);
                if odd(src, effect.reads.0) || odd(dst, effect.writes.0) {
                    // A misaligned address; hardware has a separate status for it.
                    self.ruin(gpu, 716);
                    return Ok(());
                }
                self.timed(id, gpu, variant, (from, to), bytes)?;
                let (op, word) = (variant.op, align as u8);
                let act = match op {
                    KernelOp::Read if dst != 0 => StreamAct::Sum { word, src, bytes, sum: sink },
                    // An unused sum, and arithmetic in registers.
                    KernelOp::Read | KernelOp::Chase | KernelOp::Fma => return Ok(()),
                    KernelOp::Copy => StreamAct::Copy { dst, src, bytes },
                    KernelOp::Write | KernelOp::Triad => {
                        StreamAct::Pass { op, word, src, dst, bytes }
                    }
                };
                self.enqueue(stream, act, dst, effect.writes.0);
            }
        }
        Ok(())
    }

    /// Time of copies of a list of ranges, which must be reachable: a pass for all bytes between two blocks of memory.
    fn timed_blocks(
        &mut self,
        (gpu, id): (u32, StreamId),
        blocks: u32,
        (list, count): (u64, u64),
    ) -> CallOutcome {
        let mut passes = BTreeMap::<[u64; 2], u64>::new();
        for nth in 0..count {
            // SAFETY: the list lies in memory of this node.
            let [dst, src, bytes] = unsafe { block_range(list, nth) };
            let start = |at| match self.twin_for_kernel(gpu, at, bytes) {
                Some(_) => self.blocks.find(at, bytes).map(|(start, _)| start),
                None => None,
            };
            let ends = start(src).zip(start(dst)).ok_or(status::ILLEGAL_ADDRESS)?;
            *passes.entry(ends.into()).or_default() += bytes;
        }
        let each = passes.values().sum::<u64>() / count.max(1);
        let variant = KernelVariant::scattered(blocks, Bytes(each));
        for (ends, bytes) in passes {
            let known = ends.map(|at| self.blocks.find(at, 1).map(|(_, b)| (b.twin, b.bytes)));
            if let [Some((src, from)), Some((dst, to))] = known {
                self.timed(id, gpu, variant, (src, dst), bytes.min(from).min(to))?;
            }
        }
        Ok(())
    }

    /// Managed memory that a GPU accesses in place, at its home on the host.
    pub(crate) fn stays_home(&mut self, address: u64, bytes: u64, gpu: u32) -> CallOutcome {
        let twin = self.managed(address, bytes)?;
        self.sim()?.advise_zero_copy(twin, Bytes(bytes), gpu).map_err(|e| status::of(&e))
    }

    /// Enqueues the migration of managed pages.
    pub(crate) fn prefetch(
        &mut self,
        handle: StubHandle,
        address: u64,
        bytes: u64,
        to: Unit,
    ) -> CallOutcome {
        let (_, _, id) = self.ready(handle)?;
        let twin = self.managed(address, bytes)?;
        let to = Place::new(to, MemKind::Managed);
        let moved = self.sim()?.migrate(id, twin, Bytes(bytes), to, MigrateHow::Prefetch);
        moved.map_err(|e| status::of(&e))
    }

    /// The twin of a range of managed memory.
    pub(crate) fn managed(&self, address: u64, bytes: u64) -> CallOutcome<u64> {
        let (start, block) = self.blocks.find(address, bytes).ok_or(status::INVALID_VALUE)?;
        if block.place.mem != MemKind::Managed {
            return Err(status::INVALID_VALUE);
        }
        Ok(block.twin + (address - start))
    }
}
