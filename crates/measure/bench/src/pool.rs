//! Buffers of cases, and which of them a flow needs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pathline_hal::{CallResult, Machine, MachineBuffer};
use pathline_multipath::MultipathEngine;
use pathline_schema::{
    Bytes, Case, Flow, GpuSet, IoSpec, MemKind, MemoryUse, Place, RuntimeCall, Severity, Unit,
};

use crate::lane::{SOURCE_SEED, SPOILT_SEED};
use crate::needs;

/// The end of a flow that a buffer serves. Sources of one place and size are never written, so
/// lanes share them; lanes that are not timed at once share destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum BufferRole {
    Source,
    Chain,
    Destination,
}

/// The identity of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BufferKey {
    /// Its place.
    pub(crate) place: Place,
    bytes: Bytes,
    role: BufferRole,
    /// Managed memory keeps residency and advice of its user: it is not shared between kinds of
    /// movers or between units.
    user: Option<(&'static str, Unit)>,
    /// Number of the lane in its case: lanes of one case run at once and share only device memory
    /// that all of them read. Host memory is not shared, since data that one lane has read would be
    /// in the CPU caches for the next.
    nth: usize,
}

/// A buffer, and the last batch that needed it.
struct PooledBuffer<'m> {
    buffer: Rc<MachineBuffer<'m>>,
    batch: u64,
    /// Bytes in huge pages after the fill, where it requested them and the kernel reports it.
    huge: Option<Bytes>,
    /// Its pages by NUMA domain, where the runtime chose it.
    pages: BTreeMap<u32, u64>,
}

/// Buffers of past and present cases, kept while memory is left: page-locking a buffer takes longer
/// than copying it (353 ms a GiB on a node of H200s), and the 254 batches of one run on four of
/// them would page-lock 56 GiB if each freed the buffers that the next does not need, and 6.7 GiB
/// if none does.
pub(crate) struct BufferPool<'m> {
    /// The machine that allocates them.
    pub(crate) machine: &'m Machine,
    buffers: BTreeMap<BufferKey, PooledBuffer<'m>>,
    /// Buffers of the current batch.
    needed: BTreeSet<BufferKey>,
    batch: u64,
    /// The engine of copies over several paths, with its staging memory.
    engine: Option<Rc<RefCell<MultipathEngine<'m>>>>,
}

impl<'m> BufferPool<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { machine, buffers: BTreeMap::new(), needed: BTreeSet::new(), batch: 0, engine: None }
    }

    /// Begins a batch that needs these buffers. Frees idle ones, oldest batch first, until `fits`
    /// accepts the held and needed buffers together. Idle managed memory is always freed, because
    /// it keeps the state of its user.
    pub(crate) fn begin(
        &mut self,
        needed: &BTreeMap<BufferKey, Bytes>,
        fits: impl Fn(&BTreeMap<BufferKey, Bytes>) -> bool,
    ) {
        self.batch += 1;
        self.needed = needed.keys().copied().collect();
        let batch = self.batch;
        for (_, pooled) in self.buffers.iter_mut().filter(|(key, _)| needed.contains_key(key)) {
            pooled.batch = batch;
        }
        self.buffers.retain(|key, _| needed.contains_key(key) || key.place.mem != MemKind::Managed);
        let mut together = needed.clone();
        together.extend(self.buffers.keys().map(|key| (*key, key.bytes)));
        while !fits(&together) {
            let Some(oldest) = self.oldest_idle() else { break };
            self.buffers.remove(&oldest);
            together.remove(&oldest);
        }
    }

    /// Frees every buffer that the current batch does not need. Returns whether there was one.
    fn free_idle(&mut self) -> bool {
        let before = self.buffers.len();
        self.buffers.retain(|key, _| self.needed.contains(key));
        self.buffers.len() < before
    }

    /// Frees every buffer that no lane holds.
    pub(crate) fn free_all(&mut self) {
        self.buffers.clear();
        self.engine = None;
    }

    /// The engine of copies over several paths, which all lanes share.
    pub(crate) fn engine(&mut self) -> Rc<RefCell<MultipathEngine<'m>>> {
        let made = || Rc::new(RefCell::new(MultipathEngine::new(self.machine)));
        Rc::clone(self.engine.get_or_insert_with(made))
    }

    fn oldest_idle(&self) -> Option<BufferKey> {
        let idle = self.buffers.iter().filter(|(key, _)| !self.needed.contains(key));
        idle.min_by_key(|(_, pooled)| pooled.batch).map(|(key, _)| *key)
    }

    /// The buffer of a key, filled when it is new: a source stays intact, and a destination is
    /// spoiled before it is compared.
    ///
    /// # Errors
    /// Errors of the allocation and of the fill. If memory runs out, idle buffers are freed and the
    /// allocation is retried once.
    pub(crate) fn get(&mut self, key: BufferKey) -> CallResult<Rc<MachineBuffer<'m>>> {
        if let Some(pooled) = self.buffers.get(&key) {
            return Ok(Rc::clone(&pooled.buffer));
        }
        let machine = self.machine;
        let made = match machine.buffer(key.place, key.bytes) {
            Err(error) if error.severity == Severity::Exhausted && self.free_idle() => {
                machine.buffer(key.place, key.bytes)
            }
            made => made,
        };
        let buffer = Rc::new(made?);
        match key.role {
            BufferRole::Source => buffer.fill(SOURCE_SEED, false)?,
            BufferRole::Chain => buffer.fill(SOURCE_SEED, true)?,
            BufferRole::Destination => buffer.fill(SPOILT_SEED, false)?,
        }
        // The kernel grants huge pages as memory is first written, or silently none.
        let asked = key.place.mem == MemKind::Huge && key.place.unit.numa().is_some();
        let huge = asked.then(|| self.machine.host.huge_bytes(buffer.address())).flatten();
        let home = key.place.unit.numa().filter(|_| key.place.mem != MemKind::Managed);
        let mut pages = match home {
            Some(_) => self.machine.host.page_domains(buffer.address(), key.bytes),
            None => None,
        }
        .unwrap_or_default();
        // Where pages lie is recorded if the runtime chose it, or it is not the domain that was asked for.
        let is_chosen = key.place.mem == MemKind::PinnedDefault;
        if !is_chosen && home.is_none_or(|home| other_domain(&pages, home).is_none()) {
            pages.clear();
        }
        let pooled = PooledBuffer { buffer: Rc::clone(&buffer), batch: self.batch, huge, pages };
        self.buffers.insert(key, pooled);
        Ok(buffer)
    }

    /// Share of the `huge` memory of a flow, the `nth` of its case, that is in huge pages; `None`
    /// if it is all of it or unknown.
    pub(crate) fn huge_share(&self, flow: &Flow, nth: usize) -> Option<f64> {
        let ends = [source(flow, nth), destination(flow, nth)];
        let known = ends.into_iter().flatten().filter_map(|key| {
            let granted = self.buffers.get(&key)?.huge?;
            // A buffer is rounded up to whole pages, and the kernel grants those.
            Some((granted.0.min(key.bytes.0), key.bytes.0))
        });
        let (granted, asked) = known.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (granted < asked).then(|| granted as f64 / asked as f64)
    }

    /// Pages of the memory of a flow whose domain the runtime chose, or which lie on another than was asked for, by the
    /// domain where they lie.
    pub(crate) fn page_domains(&self, flow: &Flow, nth: usize) -> BTreeMap<u32, u64> {
        let mut found = BTreeMap::new();
        for key in [source(flow, nth), destination(flow, nth)].into_iter().flatten() {
            let pages = self.buffers.get(&key).map(|pooled| &pooled.pages);
            for (domain, count) in pages.into_iter().flatten() {
                *found.entry(*domain).or_default() += count;
            }
        }
        found
    }
}

/// The domain that has most of these pages, if it is another than `home`: the memory of that may be used up.
pub(crate) fn other_domain(pages: &BTreeMap<u32, u64>, home: u32) -> Option<u32> {
    let all: u64 = pages.values().sum();
    let most = pages.iter().find(|(_, count)| 2 * **count > all);
    most.map(|(domain, _)| *domain).filter(|domain| *domain != home)
}

/// The buffers that a case needs, with their sizes.
pub(crate) fn buffers(case: &Case) -> impl Iterator<Item = (BufferKey, Bytes)> + '_ {
    case.flows()
        .enumerate()
        .flat_map(|(nth, flow)| {
            let ends = [source(flow, nth), destination(flow, nth)];
            ends.into_iter().flatten().chain(further_destinations(flow, nth))
        })
        .map(|key| (key, key.bytes))
}

/// Memory of I/O; its lane manages the contents.
fn of_io(flow: &Flow, io: &IoSpec, place: Place, nth: usize) -> BufferKey {
    BufferKey {
        place,
        bytes: needs::slots(flow, io),
        role: BufferRole::Destination,
        user: None,
        nth,
    }
}

/// The source buffer of a flow, if it needs one; the flow is the `nth` of its case.
pub(crate) fn source(flow: &Flow, nth: usize) -> Option<BufferKey> {
    let (place, bytes, role) = match flow.by.memory() {
        // Messages between processes are in the ranks' memory, not in this process's; workers of
        // metadata operations have their buffers.
        MemoryUse::Ranks(_) | MemoryUse::Workers => return None,
        MemoryUse::Slots(io) => return Some(of_io(flow, io, needs::host_memory(flow, io)?, nth)),
        // Memory to be page-locked and released, or registered; other calls allocate their memory
        // themselves.
        MemoryUse::Subject(call) => {
            let locks = matches!(call, RuntimeCall::Register | RuntimeCall::Unregister);
            let place = flow.subject().filter(|_| locks || call.is_of_adapters())?;
            let (bytes, role) = (flow.bytes, BufferRole::Source);
            return Some(BufferKey { place, bytes, role, user: None, nth });
        }
        MemoryUse::BothEnds | MemoryUse::EndsAndGpus(_) | MemoryUse::SourceOnly => {
            let role = if flow.by.is_chase() { BufferRole::Chain } else { BufferRole::Source };
            (flow.src, needs::source_bytes(flow), role)
        }
    };
    let user = user(flow, place);
    let shared = role == BufferRole::Source && place.mem == MemKind::Vram;
    let nth = if shared { 0 } else { nth };
    (place.mem != MemKind::Reg).then_some(BufferKey { place, bytes, role, user, nth })
}

/// The buffer in which a flow is checked, if it writes one. For I/O the source is the host's memory
/// and the destination the GPU's, in both directions.
pub(crate) fn destination(flow: &Flow, nth: usize) -> Option<BufferKey> {
    if let MemoryUse::Slots(io) = flow.by.memory() {
        return Some(of_io(flow, io, needs::gpu_memory(flow)?, nth));
    }
    let place = needs::written(flow).filter(|place| place.mem != MemKind::Reg)?;
    let (bytes, role) = (needs::destination_bytes(flow), BufferRole::Destination);
    Some(BufferKey { place, bytes, role, user: user(flow, place), nth })
}

/// The buffers like the destination's on further GPUs.
pub(crate) fn further_destinations(flow: &Flow, nth: usize) -> impl Iterator<Item = BufferKey> {
    let gpus = match flow.by.memory() {
        MemoryUse::EndsAndGpus(gpus) => gpus,
        _ => GpuSet::EMPTY,
    };
    let first = destination(flow, nth);
    gpus.iter().filter_map(move |gpu| {
        let place = Place { unit: Unit::Gpu(gpu), ..first?.place };
        Some(BufferKey { place, ..first? })
    })
}

fn user(flow: &Flow, place: Place) -> Option<(&'static str, Unit)> {
    (place.mem == MemKind::Managed).then_some((flow.by.kind(), flow.by.at()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::{MachineDesc, RuntimeEnv};

    fn keys(case: &str) -> BTreeMap<BufferKey, Bytes> {
        buffers(&case.parse().expect("a case")).collect()
    }

    /// Sources in a GPU's memory are shared by the flows of a case; chains of a chase, the host's memory and all
    /// destinations are not. A call has a buffer only if it locks or registers one.
    #[test]
    fn flows_share_sources_in_the_memory_of_a_gpu_only() {
        use BufferRole::{Chain, Destination, Source};
        for (case, expected) in [
            ("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB", &[(Source, 0), (Destination, 3)][..]),
            ("numa0.pinned > gpu1.vram by dma@gpu1 x 1MiB", &[(Source, 3), (Destination, 3)]),
            ("gpu0.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 1MiB", &[(Chain, 3)]),
            ("gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1MiB", &[(Source, 0)]),
            ("numa0.paged > numa0.reg by call@gpu0[register] x 1MiB isolated", &[(Source, 3)]),
            ("numa0.huge > numa0.reg by call@numa0[nic-register] x 1MiB isolated", &[(Source, 3)]),
            ("gpu0.reg > gpu0.vram by call@gpu0[alloc] x 1MiB isolated", &[]),
        ] {
            let case: Case = case.parse().unwrap_or_else(|error| panic!("{case}: {error}"));
            let flow = &case.timed[0];
            let keys = [source(flow, 3), destination(flow, 3)].into_iter().flatten();
            let found: Vec<(BufferRole, usize)> = keys.map(|key| (key.role, key.nth)).collect();
            assert_eq!(found, expected, "{case}");
        }
    }

    /// Three batches of 64 MiB in from pinned memory, each 128 MiB with its destination. With room for
    /// 256 MiB the third leaves the second's and frees the first's.
    #[test]
    fn buffers_stay_until_memory_is_needed_and_the_oldest_are_freed_first() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
        let mut pool = BufferPool::new(&machine);
        let fits = |all: &BTreeMap<BufferKey, Bytes>| {
            all.values().map(|bytes| bytes.0).sum::<u64>() <= 256 << 20
        };
        let batches = [0, 1, 2].map(|gpu| {
            keys(&format!("numa{}.pinned > gpu{gpu}.vram by dma@gpu{gpu} x 64MiB", gpu % 2))
        });
        let mut addresses = Vec::new();
        for needed in &batches[..2] {
            pool.begin(needed, fits);
            for &key in needed.keys() {
                addresses.push((key, pool.get(key).unwrap().address()));
            }
        }
        // The third needs the host memory of the first and new memory of a GPU: 64 MiB too many with
        // all of the others, whose oldest idle one is the first's destination.
        pool.begin(&batches[2], fits);
        let third: Vec<u64> =
            batches[2].keys().map(|&key| pool.get(key).unwrap().address()).collect();
        let host = addresses.iter().find(|(key, _)| batches[2].contains_key(key)).unwrap();
        assert!(third.contains(&host.1), "a source in pinned memory is not page-locked again");
        let held: BTreeSet<BufferKey> = pool.buffers.keys().copied().collect();
        let expected: BTreeSet<BufferKey> =
            batches[1].keys().chain(batches[2].keys()).copied().collect();
        assert_eq!(held, expected);
    }

    #[test]
    fn managed_memory_does_not_outlive_its_batch() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
        let mut pool = BufferPool::new(&machine);
        let case = "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 2MiB";
        let needed = keys(case);
        pool.begin(&needed, |_| true);
        let addresses = |pool: &mut BufferPool<'_>| -> Vec<u64> {
            needed.keys().map(|&key| pool.get(key).unwrap().address()).collect()
        };
        let first = addresses(&mut pool);
        pool.begin(&BTreeMap::new(), |_| true);
        pool.begin(&needed, |_| true);
        assert_ne!(addresses(&mut pool), first);
    }
}
