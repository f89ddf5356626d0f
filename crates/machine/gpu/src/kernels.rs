//! Compiles, loads and launches kernels.

use std::ffi::{CString, c_void};

use pathline_hal::{CallError, CallResult, ChainPart, KernelId, KernelLaunch, kernel};
use pathline_schema::{Bytes, KernelOp, KernelVariant, MemKind};

use super::driver::{GpuDriver, call, no_such};
use super::function_table::RuntimeHandle;
use pathline_host::chase;

/// Blocks per multiprocessor for pattern kernels.
const PATTERN_BLOCKS: u32 = 8;

/// Bytes of shared memory that a launch may request on every GPU without an attribute.
const SHARED_ALWAYS: u64 = 40 << 10;

/// Bytes of dynamic shared memory of a variant.
fn shared(variant: &KernelVariant) -> u32 {
    u32::try_from(variant.shared().0).unwrap_or(u32::MAX)
}

/// The compute unit of the `nth` part of chases. Multiples of the golden ratio cover the units
/// evenly for any number of units and parts.
fn spread_unit(nth: u64, units: u32) -> u32 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let fraction = nth.wrapping_mul(GOLDEN) >> 32;
    // Both factors are below 2^32: the high half of the product is below `units`.
    ((fraction * u64::from(units)) >> 32) as u32
}

impl GpuDriver {
    /// The function of a source on a GPU. Loaded at once, since the driver's lazy loading would
    /// wait for streams that a gate may hold.
    pub(crate) fn function(
        &self,
        gpu: u32,
        source: &str,
        name: &'static str,
    ) -> CallResult<RuntimeHandle> {
        let key = (gpu, source.to_owned(), name);
        if let Some(&(_, function)) = self.loaded.borrow().functions.get(&key) {
            return Ok(function);
        }
        let arch = &self.device("kernel", gpu)?.target;
        let compiler = self.compiler.as_ref().ok_or_else(|| {
            let about = self.dialect.about();
            CallError::unsupported("kernel", arch.as_str(), about.no_compiler.0)
                .or_try(about.no_compiler.1)
        })?;
        let mut code = compiler.code(source, arch)?;
        // PTX is text, and the driver reads it up to a zero byte.
        code.push(0);
        self.enter(self.api.module_load.name, gpu)?;
        let thing = || format!("a kernel for {arch}");
        let mut module = 0;
        call!(self, module_load, thing(), &raw mut module, code.as_ptr().cast::<c_void>())?;
        let found = self.entry(module, name, &thing);
        match found {
            Ok(function) => {
                self.loaded.borrow_mut().functions.insert(key, (module, function));
            }
            Err(_) => drop(call!(self, module_unload, thing(), module)),
        }
        found
    }

    /// Gets a function of a module and loads it.
    fn entry(
        &self,
        module: RuntimeHandle,
        name: &str,
        thing: &dyn Fn() -> String,
    ) -> CallResult<RuntimeHandle> {
        let entry = CString::new(name).unwrap_or_default();
        let mut function = 0;
        call!(self, function, thing(), &raw mut function, module, entry.as_ptr())?;
        self.outcome(self.dialect.load_now(function), thing).map(|()| function)
    }

    pub(crate) fn make_kernel(&self, gpu: u32, variant: &KernelVariant) -> CallResult<KernelId> {
        let target = &self.device("kernel", gpu)?.target;
        if let Some(reason) = kernel::unsupported(variant, target) {
            return Err(CallError::unsupported(
                "kernel",
                format!("{variant} for {target}"),
                reason,
            ));
        }
        let function = self.function(gpu, &kernel::source(variant), kernel::ENTRY)?;
        if variant.shared().0 > SHARED_ALWAYS {
            self.enter(self.api.function.name, gpu)?;
            let status = self.dialect.allow_shared(function, shared(variant));
            self.outcome(status, &|| format!("{variant} on gpu{gpu}"))?;
        }
        self.own_work(gpu)?;
        self.ready_to_compare(gpu, variant);
        let id = self.id();
        self.loaded.borrow_mut().kernels.insert(id, (gpu, *variant, function));
        Ok(KernelId(id))
    }

    /// The driver's own stream and eight scratch bytes on a GPU.
    pub(crate) fn own_work(&self, gpu: u32) -> CallResult<(RuntimeHandle, u64)> {
        if let Some(&own) = self.loaded.borrow().own.get(&gpu) {
            return Ok(own);
        }
        let stream = self.new_stream(gpu)?;
        let mut word = 0;
        if let Err(error) = call!(self, mem_alloc, format!("8 B at gpu{gpu}"), &raw mut word, 8) {
            let _ = call!(self, stream_destroy, format!("gpu{gpu}"), stream);
            return Err(error);
        }
        self.loaded.borrow_mut().own.insert(gpu, (stream, word));
        Ok((stream, word))
    }

    /// Runs an operation on the GPU's own stream and waits for it.
    pub(crate) fn on_stream(
        &self,
        gpu: u32,
        work: impl FnOnce(RuntimeHandle) -> CallResult<()>,
    ) -> CallResult<()> {
        let (stream, _) = self.own_work(gpu)?;
        self.enter(self.api.stream_wait.name, gpu)?;
        work(stream)?;
        call!(self, stream_wait, format!("gpu{gpu}"), stream)
    }

    /// Launches with up to four parameters of 8 bytes.
    pub(crate) fn enqueue(
        &self,
        stream: RuntimeHandle,
        function: RuntimeHandle,
        (blocks, threads, shared): (u32, u32, u32),
        parameters: &mut [u64],
    ) -> CallResult<()> {
        let mut pointers: Vec<*mut c_void> =
            parameters.iter_mut().map(|p| (p as *mut u64).cast()).collect();
        let none = std::ptr::null_mut();
        call!(
            self,
            launch,
            format!("{blocks} blocks of {threads}"),
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            pointers.as_mut_ptr(),
            none
        )
    }

    /// One pass of a kernel; for a chase, of the named part, if any.
    pub(crate) fn pass(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: Option<ChainPart>,
    ) -> CallResult<()> {
        let name = self.api.launch.name;
        let known = self.loaded.borrow().kernels.get(&kernel.0).copied();
        let (owner, variant, function) =
            known.ok_or_else(|| no_such(name, &format!("kernel {}", kernel.0)))?;
        let thing = || format!("{variant} over {} on gpu{gpu}", launch.bytes);
        let refuse = |reason: &str| Err(CallError::unsupported(name, thing(), reason));
        if owner != gpu {
            return refuse("it was loaded on another GPU");
        }
        let effect = variant.effect(launch.bytes);
        for (address, bytes) in [(launch.src, effect.reads), (launch.dst, effect.writes)] {
            if bytes.0 > 0 {
                self.reaches_kernel(gpu, address, bytes)?;
                if !address.is_multiple_of(variant.align()) {
                    return refuse("its memory is not aligned to its access width");
                }
            }
        }
        if variant.op == KernelOp::Chase && !self.has_chain(launch.src, launch.bytes) {
            return refuse("there is no chain of that size at that address");
        }
        if let Some(part) = part {
            if variant.op != KernelOp::Chase {
                return refuse("only a chase follows part of its memory");
            }
            return self.follow_part(gpu, stream, (&variant, function), launch, part);
        }
        if effect.writes.0 > 0 {
            self.overwritten(launch.dst, effect.writes);
        }
        self.run(gpu, stream, (&variant, function), launch)
    }

    fn run(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        (variant, function): (&KernelVariant, RuntimeHandle),
        launch: &KernelLaunch,
    ) -> CallResult<()> {
        let units = self.device(self.api.launch.name, gpu)?.info.compute_units;
        let (_, sink) = self.own_work(gpu)?;
        let blocks = kernel::blocks(variant, launch.bytes, units);
        let shape = (blocks, u32::from(variant.block), shared(variant));
        self.enqueue(stream, function, shape, &mut [launch.src, launch.dst, launch.bytes.0, sink])
    }

    /// Follows a part of a chase by one block of a grid with a block per compute unit. The hardware
    /// spreads blocks of one thread over all units, so another block runs on another unit.
    fn follow_part(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        (variant, function): (&KernelVariant, RuntimeHandle),
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()> {
        let units = self.device(self.api.launch.name, gpu)?.info.compute_units.max(1);
        let (_, sink) = self.own_work(gpu)?;
        let start = self.chain_start(launch.src, launch.bytes, part)?;
        let mut loaded = self.loaded.borrow_mut();
        let unit = spread_unit(loaded.followed, units);
        loaded.followed += 1;
        drop(loaded);
        let span = part.steps.saturating_mul(chase::STRIDE);
        let shape = (units, u32::from(variant.block), shared(variant));
        self.enqueue(stream, function, shape, &mut [start, u64::from(unit), span, sink])
    }

    /// Loads the kernel that faults pages in, if managed memory is in use: later a gate may hold
    /// the stream that loading waits for.
    pub(crate) fn ready_for_faults(&self, gpu: u32) {
        let managed = self.blocks.borrow().any(|b| b.place.mem == MemKind::Managed);
        if managed && self.compiler.is_some() {
            // On failure the migration reports the reason.
            let _ = self.toucher(gpu).and_then(|_| self.own_work(gpu));
        }
    }

    fn toucher(&self, gpu: u32) -> CallResult<(KernelVariant, RuntimeHandle)> {
        let variant = KernelVariant::standard(KernelOp::Read);
        Ok((variant, self.function(gpu, &kernel::source(&variant), kernel::ENTRY)?))
    }

    /// Reads managed memory on a GPU, which faults its pages in.
    pub(crate) fn touch(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        address: u64,
        bytes: Bytes,
    ) -> CallResult<()> {
        let (variant, function) = self.toucher(gpu)?;
        self.run(gpu, stream, (&variant, function), &KernelLaunch { src: address, dst: 0, bytes })
    }

    pub(crate) fn pattern_shape(&self, gpu: u32) -> CallResult<(u32, u32, u32)> {
        Ok((
            self.device("fill", gpu)?.info.compute_units.max(1) * PATTERN_BLOCKS,
            kernel::PATTERN_BLOCK,
            0,
        ))
    }

    pub(crate) fn fill_on(
        &self,
        gpu: u32,
        address: u64,
        bytes: Bytes,
        seed: u64,
    ) -> CallResult<()> {
        let function = self.function(gpu, kernel::PATTERN, kernel::FILL)?;
        let shape = self.pattern_shape(gpu)?;
        self.on_stream(gpu, |stream| {
            self.enqueue(stream, function, shape, &mut [address, bytes.0, seed])
        })
    }

    pub(crate) fn check_on(
        &self,
        gpu: u32,
        address: u64,
        bytes: Bytes,
        seed: u64,
    ) -> CallResult<Option<u64>> {
        self.lowest_offset(gpu, (kernel::PATTERN, kernel::CHECK), [address, bytes.0, seed])
    }

    /// Runs a kernel that lowers a 64-bit word to the offset of the first wrong byte; `None` if it
    /// finds none. The word is its last parameter.
    pub(crate) fn lowest_offset(
        &self,
        gpu: u32,
        (source, entry): (&'static str, &'static str),
        [a, b, c]: [u64; 3],
    ) -> CallResult<Option<u64>> {
        let function = self.function(gpu, source, entry)?;
        let shape = self.pattern_shape(gpu)?;
        let (_, word) = self.own_work(gpu)?;
        self.enter("check", gpu)?;
        let mut first = u64::MAX;
        self.copy_in("8 B", word, &first.to_ne_bytes())?;
        self.on_stream(gpu, |stream| self.enqueue(stream, function, shape, &mut [a, b, c, word]))?;
        call!(self, copy_out, "8 B", (&raw mut first).cast::<c_void>(), word, 8)?;
        Ok((first != u64::MAX).then_some(first))
    }

    /// Whether a read kernel computes the sum of a pattern. It is the timed kernel; a non-zero
    /// destination makes it store its sum.
    pub(crate) fn sum_is_right(
        &self,
        kernel: KernelId,
        launch: &KernelLaunch,
        seed: u64,
    ) -> CallResult<bool> {
        let known = self.loaded.borrow().kernels.get(&kernel.0).copied();
        let read = known.filter(|(_, variant, _)| variant.op == KernelOp::Read);
        let (gpu, variant, function) =
            read.ok_or_else(|| no_such("check", &format!("read kernel {}", kernel.0)))?;
        self.reaches_kernel(gpu, launch.src, launch.bytes)?;
        let read = self.sum(gpu, |stream| {
            self.run(gpu, stream, (&variant, function), &KernelLaunch { dst: 1, ..*launch })
        })?;
        let sum = self.function(gpu, kernel::PATTERN, kernel::SUM)?;
        let shape = self.pattern_shape(gpu)?;
        let (_, word) = self.own_work(gpu)?;
        let bytes = launch.bytes.0;
        let whole = bytes / variant.align() * variant.align();
        let expected = self
            .sum(gpu, |stream| self.enqueue(stream, sum, shape, &mut [whole, bytes, seed, word]))?;
        Ok(read == expected)
    }

    /// The sum that kernels on the GPU's own stream add to the scratch bytes.
    fn sum(
        &self,
        gpu: u32,
        kernels: impl FnOnce(RuntimeHandle) -> CallResult<()>,
    ) -> CallResult<u64> {
        let (_, word) = self.own_work(gpu)?;
        self.enter("check", gpu)?;
        let mut sum = 0u64;
        self.copy_in("8 B", word, &sum.to_ne_bytes())?;
        self.on_stream(gpu, kernels)?;
        call!(self, copy_out, "8 B", (&raw mut sum).cast::<c_void>(), word, 8)?;
        Ok(sum)
    }

    /// Frees modules, own streams and scratch memory.
    pub(crate) fn unload(&self) {
        let loaded = std::mem::take(&mut *self.loaded.borrow_mut());
        for ((gpu, ..), (module, _)) in loaded.functions {
            let _ = self.enter(self.api.module_unload.name, gpu);
            let _ = call!(self, module_unload, "a kernel", module);
        }
        for (gpu, (stream, word)) in loaded.own {
            let _ = self.enter(self.api.stream_destroy.name, gpu);
            let _ = call!(self, stream_destroy, "own stream", stream);
            let _ = call!(self, mem_free, "8 B", word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 132 units in 8 parts: each eighth of them (16.5 units) has one; in 132 parts at least 100
    /// have one, where a random choice would leave 1/e of them, 48, out.
    #[test]
    fn parts_of_a_chase_are_spread_over_all_units() {
        let eighths: std::collections::BTreeSet<u32> =
            (0..8).map(|nth| spread_unit(nth, 132) * 8 / 132).collect();
        assert!(eighths.len() >= 6, "{eighths:?}");
        let units: std::collections::BTreeSet<u32> =
            (0..132).map(|nth| spread_unit(nth, 132)).collect();
        assert!(units.len() >= 100 && units.iter().all(|&u| u < 132), "{}", units.len());
        assert_eq!((spread_unit(5, 1), spread_unit(u64::MAX, 132) < 132), (0, true));
    }
}
