//! All kinds of GPU-accessible memory: allocation and page migration.

use pathline_hal::{CallError, CallResult, Driver, PeerAccess};
use pathline_schema::{Bytes, MemKind, MigrateHow, Place, Severity, Unit};

use super::blocks::GpuBlock;
use super::driver::{GpuDriver, call, no_such};
use super::function_table::{MemLocation, PORTABLE, RuntimeHandle};
use super::numa_policy::{bind_range, forbidden_policy, node_mask, own_policy, set_policy};
use pathline_host::limits;

// Constants that both runtimes share.
const MAPPED: u32 = 2;
/// `CU_MEM_ATTACH_GLOBAL`, `hipMemAttachGlobal`
const GLOBAL: u32 = 1;
// `CUmem_advise`, `hipMemoryAdvise`
const PREFERRED_LOCATION: i32 = 3;
const ACCESSED_BY: i32 = 5;
/// `CU_DEVICE_CPU`, `hipCpuDeviceId`
const CPU: i32 = -1;
// `CUmemLocationType`, `hipMemLocationType`
const AT_DEVICE: i32 = 1;
const AT_NUMA: i32 = 3;
/// Bytes kept free when managed memory is allocated: a GPU that runs out of memory swaps or hangs.
const MANAGED_MARGIN: u64 = 1 << 30;

fn unknown(call: &str, address: u64) -> CallError {
    CallError::unsupported(call, format!("{address:#x}"), "this driver has no buffer there")
}

impl GpuDriver {
    pub(crate) fn own(&self, call: &str, address: u64, bytes: Bytes) -> CallResult<GpuBlock> {
        self.blocks.borrow().range(call, address, bytes.0)?.ok_or_else(|| unknown(call, address))
    }

    /// Whether a range of a copy is memory of this driver; otherwise it is pageable host memory.
    pub(crate) fn reaches_copy(&self, address: u64, bytes: Bytes) -> CallResult<bool> {
        if self.blocks.borrow().range(self.dialect.copy_name(), address, bytes.0)?.is_some() {
            return Ok(true);
        }
        self.host.range(self.dialect.copy_name(), address, bytes.0).map(|_| false)
    }

    /// Checks that a kernel of `gpu` can access a range: a fault would destroy the process's
    /// context.
    pub(crate) fn reaches_kernel(&self, gpu: u32, address: u64, bytes: Bytes) -> CallResult<()> {
        let name = self.api.launch.name;
        let Some(block) = self.blocks.borrow().range(name, address, bytes.0)? else {
            let pageable = self.device(name, gpu)?.pageable;
            let mapping = self.host.range(name, address, bytes.0)?;
            drop(mapping);
            if pageable {
                return Ok(());
            }
            let thing = format!("pageable memory from gpu{gpu}");
            return Err(CallError::unsupported(
                name,
                thing,
                "this GPU cannot reach pageable memory of the host",
            ));
        };
        match (block.place.mem, block.place.unit.gpu()) {
            (MemKind::Vram | MemKind::VramFine, Some(owner))
                if owner != gpu && !self.peers.borrow().contains(&(gpu, owner)) =>
            {
                if self.peer_access(gpu, owner)? == PeerAccess::Staged {
                    return Err(self.no_peer(gpu, owner));
                }
                let thing = format!("memory of gpu{owner} from gpu{gpu}");
                Err(CallError::new(Severity::Transient, name, thing, "peer access is not enabled")
                    .or_try("enable_peer first"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a chain of exactly that size exists there.
    pub(crate) fn has_chain(&self, address: u64, bytes: Bytes) -> bool {
        let laid = self.blocks.borrow().holding(address).and_then(|(_, block)| block.chain);
        // In its own memory the host writes the chain, page-locked or not.
        let by_host = || {
            let mapping = self.host.range(self.api.launch.name, address, bytes.0).ok()?;
            mapping.chain().map(|chain| (chain.address, chain.bytes))
        };
        // Threads that stored to lent memory have overwritten what lay there.
        if self.host.is_lent(address) {
            return by_host() == Some((address, bytes.0));
        }
        laid.or_else(by_host) == Some((address, bytes.0))
    }

    /// Marks the chain of a written buffer as lost; in a host buffer the host does the same.
    pub(crate) fn overwritten(&self, address: u64, bytes: Bytes) {
        if let Some(block) = self.blocks.borrow_mut().holding_mut(address) {
            block.chain = None;
            if block.place.mem != MemKind::Registered {
                self.host.note_chain(address, None);
                return;
            }
        }
        if let Ok(mapping) = self.host.range(self.dialect.copy_name(), address, bytes.0) {
            mapping.note_written(address + bytes.0);
        }
    }

    /// Makes a block known that other code allocated.
    pub(crate) fn adopt(&self, address: u64, bytes: Bytes, place: Place) -> CallResult<()> {
        let thing = || format!("{bytes} at {address:#x}, {place}");
        let end = address.checked_add(bytes.0).filter(|_| bytes.0 > 0 && address > 0);
        let Some(end) = end else {
            return Err(CallError::unsupported(
                "adopt_memory",
                thing(),
                "no such range of addresses",
            ));
        };
        let mut blocks = self.blocks.borrow_mut();
        let inside = blocks.0.range(address..end).next().is_some();
        if inside || blocks.holding(address).is_some() {
            let reason = "part of it is known already";
            return Err(CallError::unsupported("adopt_memory", thing(), reason));
        }
        blocks.0.insert(address, GpuBlock { bytes: bytes.0, place, chain: None });
        self.adopted_blocks.borrow_mut().insert(address);
        Ok(())
    }

    /// Forgets an adopted block.
    pub(crate) fn forget(&self, address: u64) -> CallResult<()> {
        if !self.adopted_blocks.borrow_mut().remove(&address) {
            return Err(unknown("forget_memory", address));
        }
        self.blocks.borrow_mut().0.remove(&address);
        Ok(())
    }

    pub(crate) fn allocate(&self, place: Place, bytes: Bytes) -> CallResult<u64> {
        let thing = || format!("{bytes} at {place}");
        let refuse = |reason: &str| Err(CallError::unsupported("alloc", thing(), reason));
        if bytes.0 == 0 {
            return refuse("its size is 0");
        }
        let address = match (place.unit, place.mem) {
            (Unit::Gpu(gpu), MemKind::Vram | MemKind::VramFine) => {
                self.vram(gpu, place.mem, bytes, &thing())?
            }
            (
                Unit::Numa(numa),
                MemKind::Pinned | MemKind::PinnedWc | MemKind::PinnedNonCoherent,
            ) => {
                self.near_any_gpu(numa)?;
                self.pinned_on(numa, bytes.0, place.mem, &thing())?
            }
            // Neither a policy of the thread nor a flag of the call: the runtime decides, for the GPU
            // of that domain.
            (Unit::Numa(numa), MemKind::PinnedDefault) => {
                self.near_any_gpu(numa)?;
                self.pinned(bytes.0, place.mem, false, &thing())?
            }
            (Unit::Gpu(_), MemKind::Managed) | (Unit::Numa(_), MemKind::Managed) => {
                self.managed(place, bytes)?
            }
            _ => return refuse("the runtime has no such memory at that place"),
        };
        self.blocks.borrow_mut().0.insert(address, GpuBlock { bytes: bytes.0, place, chain: None });
        Ok(address)
    }

    fn vram(&self, gpu: u32, mem: MemKind, bytes: Bytes, thing: &str) -> CallResult<u64> {
        let name = self.api.mem_alloc.name;
        self.enter(name, gpu)?;
        let total = self.device(name, gpu)?.info.memory;
        if bytes > total {
            return Err(CallError::new(
                Severity::Exhausted,
                name,
                thing,
                format!("the GPU has {}", total.rounded()),
            )
            .or_try("take smaller sizes"));
        }
        if mem == MemKind::VramFine {
            let refused = || CallError::unsupported(name, thing, self.about().no_fine);
            let (status, address) =
                self.dialect.fine_alloc(bytes.0 as usize).ok_or_else(refused)?;
            return self.outcome(status, &|| thing.to_owned()).map(|()| address);
        }
        let mut address = 0;
        call!(self, mem_alloc, thing, &raw mut address, bytes.0 as usize)?;
        Ok(address)
    }

    /// Makes the context of a GPU of that domain current, if there is one: a driver may allocate
    /// near the current device. Refuses a domain that the host lacks.
    fn near_any_gpu(&self, numa: u32) -> CallResult<()> {
        let name = self.api.host_alloc.name;
        if !self.host.domains().contains(&numa) {
            return Err(no_such(name, &format!("numa{numa}")));
        }
        let near = self.devices.iter().find(|d| d.info.numa == Some(numa));
        self.enter(name, near.or(self.devices.first()).map_or(0, |d| d.info.index))
    }

    /// Pinned memory on a domain: the driver's pages follow the policy of the calling thread.
    fn pinned_on(&self, numa: u32, bytes: u64, mem: MemKind, thing: &str) -> CallResult<u64> {
        if self.host.domains().len() < 2 {
            return self.pinned(bytes, mem, false, thing);
        }
        let free = self.host.free(numa);
        if bytes > free.0 {
            // The kernel kills a process whose bound allocation finds no page.
            let reason = format!("numa{numa} has {} free", free.rounded());
            return Err(CallError::new(
                Severity::Exhausted,
                self.api.host_alloc.name,
                thing,
                reason,
            )
            .or_try("take smaller sizes, or --memory"));
        }
        let (mode, mask) = own_policy();
        set_policy(libc::MPOL_BIND, &node_mask(numa))
            .map_err(|e| forbidden_policy("set_mempolicy", thing, &e))?;
        let address = self.pinned(bytes, mem, true, thing);
        // It was allowed a moment ago; a failure affects only the placement of later pages.
        let _ = set_policy(mode, &mask);
        address
    }

    /// `bound` if the pages must follow the NUMA policy of this thread.
    pub(crate) fn pinned(
        &self,
        bytes: u64,
        mem: MemKind,
        bound: bool,
        thing: &str,
    ) -> CallResult<u64> {
        let flags = self
            .dialect
            .host_flags(mem, bound)
            .map_err(|reason| CallError::unsupported(self.api.host_alloc.name, thing, reason))?;
        let free = limits::free_anywhere().unwrap_or(u64::MAX);
        if bytes > free {
            return Err(CallError::new(
                Severity::Exhausted,
                self.api.host_alloc.name,
                thing,
                format!("{} are free", Bytes(free).rounded()),
            )
            .or_try("take smaller sizes, or --memory"));
        }
        let mut address = 0;
        call!(self, host_alloc, thing, &raw mut address, bytes as usize, flags)?;
        Ok(address)
    }

    /// Managed memory at its home: at most the free memory of every open GPU.
    fn managed(&self, place: Place, bytes: Bytes) -> CallResult<u64> {
        let name = self.api.managed_alloc.name;
        let thing = format!("{bytes} at {place}");
        let enter = || match place.unit {
            Unit::Numa(numa) => self.near_any_gpu(numa),
            Unit::Gpu(gpu) => self.enter(name, gpu),
            Unit::Store(_) => Err(no_memory(name, place.unit)),
        };
        enter()?;
        if !self.devices.iter().all(|d| d.concurrent) {
            let reason = "host and GPU cannot access managed memory at the same time here";
            return Err(CallError::unsupported(name, thing, reason));
        }
        let held: u64 = self
            .blocks
            .borrow()
            .0
            .values()
            .filter(|b| b.place.mem == MemKind::Managed)
            .map(|b| b.bytes)
            .sum();
        for gpu in self.opened() {
            let (free, _) = self.memory(gpu)?;
            if held.saturating_add(bytes.0).saturating_add(MANAGED_MARGIN) > free.0 {
                let reason =
                    format!("gpu{gpu} has {} free, and pages may all move there", free.rounded());
                return Err(CallError::new(Severity::Exhausted, name, thing, reason)
                    .or_try("take smaller sizes"));
            }
        }
        // Querying the other GPUs has made them current.
        enter()?;
        let mut address = 0;
        call!(self, managed_alloc, thing, &raw mut address, bytes.0 as usize, GLOBAL)?;
        let settled = match place.unit {
            Unit::Gpu(gpu) => self.keep_at(address, bytes, gpu),
            Unit::Numa(numa)
                if self.about().managed_lies_where_bound && self.host.domains().len() > 1 =>
            {
                bind_range((address, bytes.0), numa, self.host.page() as u64)
                    .map_err(|e| forbidden_policy("mbind", &thing, &e))
            }
            Unit::Numa(_) | Unit::Store(_) => Ok(()),
        };
        if let Err(error) = settled {
            let _ = call!(self, mem_free, thing, address);
            return Err(error);
        }
        Ok(address)
    }

    /// Sets a GPU as the home of managed memory.
    fn keep_at(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()> {
        let device = self.device(self.api.advise.name, gpu)?.handle;
        let thing = format!("{bytes} to gpu{gpu}");
        call!(self, advise, thing, address, bytes.0 as usize, PREFERRED_LOCATION, device)?;
        self.on_stream(gpu, |stream| self.prefetch(stream, (address, bytes), Unit::Gpu(gpu)))
    }

    pub(crate) fn release(&self, address: u64) -> CallResult<()> {
        let block = self.blocks.borrow().0.get(&address).copied();
        let Some(block) = block.filter(|b| b.place.mem != MemKind::Registered) else {
            return Err(unknown(self.api.mem_free.name, address));
        };
        self.host.end_loan(address)?;
        let gpu = block.place.unit.gpu().or_else(|| self.opened().first().copied()).unwrap_or(0);
        self.enter(self.api.mem_free.name, gpu)?;
        self.blocks.borrow_mut().0.remove(&address);
        let thing = format!("{} at {}", Bytes(block.bytes), block.place);
        match block.place.mem {
            MemKind::Pinned
            | MemKind::PinnedWc
            | MemKind::PinnedNonCoherent
            | MemKind::PinnedDefault => {
                call!(self, host_free, thing, address)
            }
            _ => call!(self, mem_free, thing, address),
        }
    }

    pub(crate) fn lock_pages(&self, address: u64, bytes: Bytes) -> CallResult<()> {
        let name = self.api.host_register.name;
        let numa = self.host.range(name, address, bytes.0)?.numa;
        self.near_any_gpu(numa)?;
        let place = Place::new(Unit::Numa(numa), MemKind::Registered);
        let thing = format!("{bytes} at {place}");
        call!(self, host_register, thing, address, bytes.0 as usize, PORTABLE | MAPPED)?;
        self.blocks.borrow_mut().0.insert(address, GpuBlock { bytes: bytes.0, place, chain: None });
        Ok(())
    }

    pub(crate) fn unlock_pages(&self, address: u64) -> CallResult<()> {
        let name = self.api.host_unregister.name;
        let known = self.blocks.borrow().0.get(&address).copied();
        if known.is_none_or(|b| b.place.mem != MemKind::Registered) {
            return Err(unknown(name, address));
        }
        self.enter(name, self.opened().first().copied().unwrap_or(0))?;
        self.blocks.borrow_mut().0.remove(&address);
        call!(self, host_unregister, format!("{address:#x}"), address)
    }

    pub(crate) fn stay_home(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()> {
        let name = self.api.advise.name;
        let block = self.own(name, address, bytes)?;
        let thing = format!("{bytes} at {} for gpu{gpu}", block.place);
        let Unit::Numa(_) = block.place.unit else {
            return Err(CallError::unsupported(name, thing, "its home is not the host")
                .or_try("use numaN.managed"));
        };
        if block.place.mem != MemKind::Managed {
            return Err(CallError::unsupported(name, thing, "it is no managed memory")
                .or_try("use numaN.managed"));
        }
        let device = self.device(name, gpu)?.handle;
        self.enter(name, gpu)?;
        let size = bytes.0 as usize;
        call!(self, advise, thing, address, size, PREFERRED_LOCATION, CPU)?;
        call!(self, advise, thing, address, size, ACCESSED_BY, device)?;
        let back =
            self.on_stream(gpu, |stream| self.prefetch(stream, (address, bytes), block.place.unit));
        match back {
            // Pages that do not migrate have never left the host.
            Err(error)
                if error.severity == Severity::Unsupported
                    && self.about().managed_lies_where_bound =>
            {
                Ok(())
            }
            back => back,
        }
    }

    /// Enqueues the migration of managed pages.
    fn prefetch(
        &self,
        stream: RuntimeHandle,
        (address, bytes): (u64, Bytes),
        to: Unit,
    ) -> CallResult<()> {
        let name = self.api.prefetch.name;
        let thing = format!("{bytes} to {to}");
        let size = bytes.0 as usize;
        let (kind, id, older) = match to {
            Unit::Gpu(gpu) => {
                let device = self.device(name, gpu)?.handle;
                (AT_DEVICE, device, device)
            }
            Unit::Numa(numa) => (AT_NUMA, numa.cast_signed(), CPU),
            Unit::Store(_) => return Err(no_memory(name, to)),
        };
        // With one domain the older call does the same, and also works where the kernel has no NUMA
        // support.
        match self.api.prefetch_to.filter(|_| kind == AT_NUMA && self.host.domains().len() > 1) {
            Some(call) => {
                let at = MemLocation { kind, id };
                // SAFETY: a range inside a buffer of this driver and a live stream.
                let code = unsafe { (call.at)(address, size, at, 0, stream) };
                self.outcome((call.name, code), &|| thing.clone())
            }
            None => {
                call!(self, prefetch, thing, address, size, older, stream)
            }
        }
    }

    pub(crate) fn move_pages(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        (address, bytes): (u64, Bytes),
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()> {
        let name = self.api.prefetch.name;
        let block = self.own(name, address, bytes)?;
        let thing = format!("{bytes} of {} to {to}", block.place);
        if block.place.mem != MemKind::Managed {
            return Err(CallError::unsupported(name, thing, "only managed memory migrates")
                .or_try("use numaN.managed"));
        }
        match how {
            MigrateHow::Prefetch => self.prefetch(stream, (address, bytes), to.unit),
            MigrateHow::Fault if !self.device(name, gpu)?.info.demand_migration => {
                let (why, way_out) = self.about().no_faults;
                Err(CallError::unsupported(name, thing, why).or_try(way_out))
            }
            MigrateHow::Fault if to.unit == Unit::Gpu(gpu) => {
                self.touch(gpu, stream, address, bytes)
            }
            MigrateHow::Fault => Err(CallError::unsupported(
                name,
                thing,
                "faults of a kernel move pages to its own GPU",
            )
            .or_try("use migrate[prefetch], or a migration at that GPU")),
        }
    }
}

fn no_memory(call: &str, unit: Unit) -> CallError {
    CallError::unsupported(call, unit.to_string(), "it has files and no memory")
}
