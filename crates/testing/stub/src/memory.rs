//! Memory: real bytes, each block with a twin in the simulated machine.

use pathline_schema::{Bytes, MemKind, Place, Unit};

use crate::acts::NodeBlock;
use crate::node::{CallOutcome, StubNode};
use crate::status;

const PAGE: usize = 4096;

/// Pages of zeroes.
fn map(bytes: u64) -> CallOutcome<(u64, usize)> {
    let bytes = usize::try_from(bytes).map_err(|_| status::OUT_OF_MEMORY)?;
    let mapped = bytes.checked_next_multiple_of(PAGE).ok_or(status::OUT_OF_MEMORY)?;
    let (access, how) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, how, -1, 0) };
    if at == libc::MAP_FAILED { Err(status::OUT_OF_MEMORY) } else { Ok((at as u64, mapped)) }
}

fn unmap(address: u64, mapped: usize) {
    if mapped > 0 {
        // SAFETY: the mapping was made by `map`, is given back once, and what was enqueued over it
        // has ended.
        unsafe { libc::munmap(address as *mut libc::c_void, mapped) };
    }
}

/// Whether the process has memory at all pages of a range: `msync` only walks the mappings.
fn is_mapped(address: u64, bytes: u64) -> bool {
    let page = address & !(PAGE as u64 - 1);
    // SAFETY: the kernel reads no byte of it.
    unsafe { libc::msync(page as *mut _, (address - page + bytes) as usize, libc::MS_ASYNC) == 0 }
}

impl StubNode {
    /// Free and total memory of a GPU.
    pub(crate) fn room(&self, gpu: u32) -> CallOutcome<(u64, u64)> {
        let (free, total) = self.sim()?.memory(gpu).map_err(|e| status::of(&e))?;
        let limit = self.gpus.get(gpu as usize).map_or(total, |g| g.memory);
        Ok((limit.0.saturating_sub(total.0 - free.0), limit.0))
    }

    /// Allocates real memory with its twin.
    pub(crate) fn allocate(&mut self, place: Place, bytes: u64) -> CallOutcome<u64> {
        if bytes == 0 {
            return Err(status::INVALID_VALUE);
        }
        if let Unit::Gpu(gpu) = place.unit
            && self.room(gpu)?.0 < bytes
        {
            return Err(status::OUT_OF_MEMORY);
        }
        let twin = self.sim()?.alloc(place, Bytes(bytes)).map_err(|e| status::of(&e))?;
        let (address, mapped) = map(bytes).inspect_err(|_| {
            // The twin was allocated a moment ago, so freeing it works.
            let _ = self.sim().map(|sim| sim.free(twin));
        })?;
        let mapped_for_cpu = self.has_large_bar();
        let block =
            NodeBlock { bytes, twin, place, mapped, mapped_for_cpu, version: 0, made: None };
        self.blocks.by_start.insert(address, block);
        Ok(address)
    }

    /// Frees a block of one of some kinds, after all enqueued operations have ended, as the
    /// runtimes do.
    pub(crate) fn release(&mut self, address: u64, kinds: &[MemKind]) -> CallOutcome {
        let known = self.blocks.by_start.get(&address).map(|b| b.place.mem);
        if !known.is_some_and(|mem| kinds.contains(&mem)) {
            return Err(status::INVALID_VALUE);
        }
        self.drain_all()?;
        let Some(block) = self.blocks.by_start.remove(&address) else {
            return Err(status::INVALID_VALUE);
        };
        unmap(address, block.mapped);
        self.sim()?.free(block.twin).map_err(|e| status::of(&e))
    }

    /// Unmaps all memory, for a node that nobody uses any more.
    pub(crate) fn unmap_all(&mut self) {
        for (address, block) in std::mem::take(&mut self.blocks.by_start) {
            unmap(address, block.mapped);
        }
    }

    /// Registers memory of the caller as page-locked.
    pub(crate) fn register(&mut self, address: u64, bytes: u64) -> CallOutcome {
        if bytes == 0 || !is_mapped(address, bytes) {
            return Err(status::INVALID_VALUE);
        }
        if self.blocks.touches(address, bytes) {
            return Err(status::ALREADY_REGISTERED);
        }
        let numa = self.near();
        let twin =
            self.host().alloc(numa, MemKind::Paged, Bytes(bytes)).map_err(|e| status::of(&e))?;
        self.sim()?.register(twin, Bytes(bytes)).map_err(|e| status::of(&e))?;
        let place = Place::new(Unit::Numa(numa), MemKind::Registered);
        let block = NodeBlock {
            bytes,
            twin,
            place,
            mapped: 0,
            mapped_for_cpu: true,
            version: 0,
            made: None,
        };
        self.blocks.by_start.insert(address, block);
        Ok(())
    }

    /// Undoes `register`.
    pub(crate) fn unregister(&mut self, address: u64) -> CallOutcome {
        let known = self.blocks.by_start.get(&address);
        if known.is_none_or(|b| b.place.mem != MemKind::Registered) {
            return Err(status::NOT_REGISTERED);
        }
        self.drain_all()?;
        if let Some(block) = self.blocks.by_start.remove(&address) {
            self.sim()?.unregister(block.twin).map_err(|e| status::of(&e))?;
            self.host().free(block.twin).map_err(|e| status::of(&e))?;
        }
        Ok(())
    }

    /// The simulated NUMA domain of new host memory: the one that the calling thread is bound to,
    /// else the nearest one to its GPU.
    pub(crate) fn near(&self) -> u32 {
        let domains = self.host().domains();
        let bound = bound_to().filter(|numa| domains.iter().any(|d| d.id == *numa));
        let nearest = self.gpus.get(self.gpu as usize).and_then(|g| g.numa);
        bound.or(nearest).unwrap_or(0)
    }

    /// The twin of an address range for a copy: in one block, else pageable memory. Also returns whether
    /// it is pageable. No range may leave a block or enter one, or lie in memory that was freed.
    pub(crate) fn twin_for_copy(&mut self, address: u64, bytes: u64) -> CallOutcome<(u64, bool)> {
        if let Some((start, block)) = self.blocks.find(address, bytes) {
            return Ok((block.twin + (address - start), false));
        }
        if self.blocks.touches(address, bytes) || !is_mapped(address, bytes) {
            return Err(status::INVALID_VALUE);
        }
        let numa = self.near();
        if let Some(&(twin, _)) = self.blocks.pageable.get(&numa).filter(|(_, size)| *size >= bytes)
        {
            return Ok((twin, true));
        }
        let size = bytes.next_power_of_two().max(1 << 20);
        let twin =
            self.host().alloc(numa, MemKind::Paged, Bytes(size)).map_err(|e| status::of(&e))?;
        if let Some((old, _)) = self.blocks.pageable.insert(numa, (twin, size)) {
            self.host().free(old).map_err(|e| status::of(&e))?;
        }
        Ok((twin, true))
    }

    /// The twin of a range for a kernel of `gpu`; `None` where hardware would fault.
    pub(crate) fn twin_for_kernel(&self, gpu: u32, address: u64, bytes: u64) -> Option<u64> {
        let (start, block) = self.blocks.find(address, bytes)?;
        if let Unit::Gpu(owner) = block.place.unit
            && owner != gpu
            && block.is_device()
            && !self.peers.contains(&(gpu, owner))
        {
            return None;
        }
        Some(block.twin + (address - start))
    }
}

/// The only NUMA domain that the calling thread's memory is bound to, if any.
fn bound_to() -> Option<u32> {
    let mut mode = 0i32;
    let mut mask = [0u64; 16];
    let bits = mask.len() * 64;
    // SAFETY: the kernel stores one number and at most that many bits.
    let code = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), bits, 0, 0)
    };
    let set: u32 = mask.iter().map(|word| word.count_ones()).sum();
    if code != 0 || mode != libc::MPOL_BIND || set != 1 {
        return None;
    }
    let (nth, word) = (0..).zip(mask).find(|(_, word)| *word != 0)?;
    Some(nth * 64 + word.trailing_zeros())
}
