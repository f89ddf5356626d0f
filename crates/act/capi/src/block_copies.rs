//! Batches of many ranges: by one kernel in place, one call of the driver, or a call each, as measured.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pathline_gpu::{CAPTURE_RELAXED, CallerCalls, CallerKernels};
use pathline_schema::COPY_UNITS;

use crate::batch_room::BatchRoom;
use crate::block_lists::{BlockLists, BlockRange, PINNED};
use crate::block_places::{BlockEnds, BlockPlace, PlaceFinder};
use crate::block_probe::{BlockChoice, BlockMethod, BlockProbe, SCRATCH, copy_batches};
use crate::ranges::MergedCopy;
use crate::shared_node::{NodeOptions, SharedNode};

/// Fewest ranges of a batch for which anything but a call each is looked at.
const MIN_RANGES: usize = 64;
/// Ranges of at least this keep to engines, which fill a link with them.
const MAX_RANGE: usize = 4 << 20;
/// Most thread blocks of a kernel.
const MAX_THREAD_BLOCKS: i32 = 1024;
/// Longest wait of a caller while a kernel is compiled and methods are measured.
const PREPARATION: Duration = Duration::from_secs(1);
/// Pause before measuring again what could not be measured.
const PAUSE_NS: u64 = 10_000_000_000;
/// The last handle that names a default stream.
const LAST_DEFAULT: usize = 2;
const PEER_ALREADY_ENABLED: i32 = 704;

/// What is known of copies between two places by a device.
#[derive(Debug, Clone, Copy)]
enum DirectionState {
    Measuring,
    Known(BlockChoice),
    /// To be measured again after that time.
    Later(u64),
}

type Lists = Option<Arc<Mutex<BlockLists>>>;

/// Kernels, lists and measurements of a node.
#[derive(Debug)]
pub(crate) struct BlockCopies {
    calls: Arc<dyn CallerCalls>,
    kernels: CallerKernels,
    shared: Arc<SharedNode>,
    /// Thread blocks of a kernel; 0 without kernels.
    thread_blocks: u32,
    /// The method of all ranges, measured without.
    forced: Option<BlockMethod>,
    /// Kernel and lists by device; none where the kernel cannot be loaded.
    lists: Mutex<BTreeMap<i32, Lists>>,
    directions: Mutex<BTreeMap<(i32, BlockEnds), DirectionState>>,
    measured: Condvar,
    /// Memory of probes, two parts in each place.
    scratch: Mutex<BTreeMap<BlockPlace, u64>>,
    probes: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockCopies {
    pub(crate) fn new(
        calls: Arc<dyn CallerCalls>,
        kernels: CallerKernels,
        shared: Arc<SharedNode>,
        options: &NodeOptions,
    ) -> Self {
        let thread_blocks = match options.max_multiprocessors {
            0 => COPY_UNITS,
            most => most.clamp(0, MAX_THREAD_BLOCKS).cast_unsigned(),
        };
        Self {
            calls,
            kernels,
            shared,
            thread_blocks,
            forced: options.blocks,
            lists: Mutex::default(),
            directions: Mutex::default(),
            measured: Condvar::new(),
            scratch: Mutex::default(),
            probes: Mutex::default(),
        }
    }

    /// Whether a batch may hold something for [`Self::copy`].
    pub(crate) fn is_for(&self, merged: &[MergedCopy]) -> bool {
        let sizes = self.sizes();
        self.forced != Some(BlockMethod::Copies)
            && merged.iter().filter(|copy| sizes.contains(&copy.bytes)).count() >= MIN_RANGES
    }

    /// Bytes of ranges that may be copied by anything but a call each.
    fn sizes(&self) -> Range<usize> {
        1..self.shared.threshold.min(MAX_RANGE)
    }

    /// Enqueues what is faster by a kernel or by one call, and leaves the other copies.
    ///
    /// # Safety
    /// Live memory until the stream has passed the copies; a live stream of that device, which is current.
    pub(crate) unsafe fn copy(self: &Arc<Self>, room: &mut BatchRoom, device: i32, stream: usize) {
        let BatchRoom { merged, by_kernel, .. } = room;
        let [mut to, mut from] = [(); 2].map(|()| PlaceFinder::new(&*self.calls, device));
        let mut known: Option<(BlockEnds, BlockChoice)> = None;
        let mut by_batch: Vec<BlockRange> = Vec::new();
        let (mut methods, sizes) = (Vec::with_capacity(merged.len()), self.sizes());
        for copy in &*merged {
            let bytes = copy.bytes as u64;
            let mut method = BlockMethod::Copies;
            if sizes.contains(&copy.bytes)
                && let Some((to, dst)) = to.find(copy.dst, bytes)
                && let Some((from, src)) = from.find(copy.src, bytes)
            {
                let choice = match known {
                    Some((ends, choice)) if ends == [to, from] => choice,
                    _ => self.choice(device, [to, from]),
                };
                known = Some(([to, from], choice));
                method = choice.method(copy.bytes);
                match method {
                    BlockMethod::Kernel => by_kernel.push([dst, src, bytes]),
                    BlockMethod::Batch => by_batch.push([copy.dst, copy.src, bytes]),
                    BlockMethod::Copies => {}
                }
            }
            methods.push(method);
        }
        // SAFETY: the caller's promise.
        let (launched, batched) = unsafe {
            (self.launch(by_kernel, device, stream), self.call_driver(&by_batch, stream))
        };
        let is_left = |method: &BlockMethod| match method {
            BlockMethod::Kernel => !launched,
            BlockMethod::Batch => !batched,
            BlockMethod::Copies => true,
        };
        let mut methods = methods.iter();
        merged.retain(|_| methods.next().is_none_or(is_left));
    }

    /// Whether a kernel copies the ranges. If not, some may be enqueued: to copy them again does no harm.
    unsafe fn launch(&self, ranges: &[BlockRange], device: i32, stream: usize) -> bool {
        if ranges.is_empty() {
            return true;
        }
        let lists = lock(&self.lists).get(&device).cloned().flatten();
        let launched = lists.is_some_and(|lists| {
            // SAFETY: the caller's promise; the kernel is that of the device.
            let copied =
                unsafe { lock(&lists).copy(&*self.calls, ranges, self.thread_blocks, stream) };
            copied.is_ok()
        });
        let counters = &self.shared.counters;
        counters.count_blocks(&counters.blocks, launched, ranges.len());
        launched
    }

    /// Whether calls of the driver copy the ranges; as [`Self::launch`].
    unsafe fn call_driver(&self, ranges: &[BlockRange], stream: usize) -> bool {
        // The driver refuses default streams.
        if ranges.is_empty() || stream <= LAST_DEFAULT {
            return false;
        }
        // SAFETY: the caller's promise.
        let status = unsafe { copy_batches(&*self.calls, ranges, stream) };
        let batched = status.is_some_and(|(_, code)| code == 0);
        let counters = &self.shared.counters;
        counters.count_blocks(&counters.batched_blocks, batched, ranges.len());
        batched
    }

    /// What is fastest between two places. Measures it at first, on another thread: loading code may wait for work
    /// of the GPU that waits for the caller.
    fn choice(self: &Arc<Self>, device: i32, ends: BlockEnds) -> BlockChoice {
        let (key, engines) = ((device, ends), BlockChoice::default());
        if ends == [BlockPlace::Host; 2] {
            return engines;
        }
        let mut states = lock(&self.directions);
        match states.get(&key) {
            Some(DirectionState::Known(choice)) => return *choice,
            Some(DirectionState::Measuring) => return engines,
            Some(DirectionState::Later(after)) if self.shared.origin.ns() < *after => {
                return engines;
            }
            Some(DirectionState::Later(_)) | None => {}
        }
        let own = Arc::clone(self);
        let probe = std::thread::Builder::new().name("pathline-blocks".into()).spawn(move || {
            let known = own.prepare(device, ends);
            let later = || DirectionState::Later(own.shared.origin.ns() + PAUSE_NS);
            let state = known.map_or_else(later, DirectionState::Known);
            lock(&own.directions).insert(key, state);
            own.measured.notify_all();
        });
        let Ok(probe) = probe else { return engines };
        lock(&self.probes).push(probe);
        states.insert(key, DirectionState::Measuring);
        let is_measuring = |states: &mut BTreeMap<_, _>| {
            matches!(states.get(&key), Some(DirectionState::Measuring))
        };
        let waited = self.measured.wait_timeout_while(states, PREPARATION, is_measuring);
        let (states, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match states.get(&key) {
            Some(DirectionState::Known(choice)) => *choice,
            _ => engines,
        }
    }

    /// Loads the kernel and measures; none if that is to be tried again.
    fn prepare(&self, device: i32, ends: BlockEnds) -> Option<BlockChoice> {
        let calls = &*self.calls;
        let entered = calls.enter(device).ok()?;
        // Of this thread, which ends after this.
        calls.exchange_capture_mode(CAPTURE_RELAXED);
        let mut lists = self.loaded(device);
        for place in ends {
            if let BlockPlace::Device(other) = place
                && other != device
                && ![0, PEER_ALREADY_ENABLED].contains(&calls.enable_peer(other).1)
            {
                lists = None;
            }
        }
        let choice = match self.forced {
            Some(BlockMethod::Kernel) if lists.is_none() => Some(BlockChoice::default()),
            Some(method) => Some(BlockChoice::always(method)),
            None => {
                let mut scratch = lock(&self.scratch);
                let [to, from] = ends.map(|place| self.scratch_at(&mut scratch, place));
                let kernel = lists.as_deref().map(|lists| (lists, self.thread_blocks));
                to.zip(from).and_then(|(to, from)| {
                    let (ends, origin) = ([to + SCRATCH as u64, from], self.shared.origin);
                    BlockProbe { calls, kernel, ends, origin }.measure()
                })
            }
        };
        calls.leave(entered);
        choice
    }

    /// The kernel of a device, which is current.
    fn loaded(&self, device: i32) -> Lists {
        if self.thread_blocks == 0 {
            return None;
        }
        if let Some(known) = lock(&self.lists).get(&device) {
            return known.clone();
        }
        let loaded = self.kernels.load(&*self.calls, device).ok();
        let counters = &self.shared.counters;
        counters.count_blocks(&counters.blocks, loaded.is_some(), 0);
        let lists = loaded.map(|kernel| Arc::new(Mutex::new(BlockLists::new(kernel))));
        lock(&self.lists).entry(device).or_insert(lists).clone()
    }

    /// Memory of probes in a place. It is kept: to free it would wait for all work of the GPU.
    fn scratch_at(
        &self,
        scratch: &mut BTreeMap<BlockPlace, u64>,
        place: BlockPlace,
    ) -> Option<u64> {
        if let Some(&known) = scratch.get(&place) {
            return Some(known);
        }
        let (calls, mut address, bytes) = (&*self.calls, 0, 2 * SCRATCH);
        let entered = match place {
            BlockPlace::Host => None,
            BlockPlace::Device(device) => Some(calls.enter(device).ok()?),
        };
        let allocated = match place {
            BlockPlace::Host => {
                // SAFETY: stores an address.
                let code = unsafe { (calls.api().host_alloc.at)(&raw mut address, bytes, PINNED) };
                (code == 0).then_some(address)
            }
            BlockPlace::Device(_) => calls.memory_allocate(bytes).ok(),
        };
        if let Some(entered) = entered {
            calls.leave(entered);
        }
        let address = allocated?;
        scratch.insert(place, address);
        Some(address)
    }

    /// Waits for probes and kernels, and frees everything. `device` is one whose context frees host memory.
    pub(crate) fn close(&self, device: i32) {
        for probe in std::mem::take(&mut *lock(&self.probes)) {
            let _ = probe.join();
        }
        let calls = &*self.calls;
        let in_context = |device: i32, free: &mut dyn FnMut()| {
            if let Ok(entered) = calls.enter(device) {
                free();
                calls.leave(entered);
            }
        };
        for (device, lists) in std::mem::take(&mut *lock(&self.lists)) {
            let mut lists = lists.and_then(Arc::into_inner).and_then(|l| l.into_inner().ok());
            in_context(device, &mut || {
                if let Some(lists) = lists.take() {
                    lists.free(calls);
                }
            });
        }
        for (place, address) in std::mem::take(&mut *lock(&self.scratch)) {
            let (device, free) = match place {
                BlockPlace::Host => (device, calls.api().host_free.at),
                BlockPlace::Device(device) => (device, calls.api().mem_free.at),
            };
            in_context(device, &mut || {
                // SAFETY: memory of this node, freed once, after all probes.
                unsafe { free(address) };
            });
        }
    }
}
