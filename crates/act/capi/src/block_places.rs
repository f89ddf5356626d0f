//! Whether kernels reach the ends of ranges: one question to the runtime for each allocation.

use std::collections::BTreeMap;

use pathline_gpu::{CallerCalls, PointerKind};

/// Addresses outside known allocations, after which the others of a batch are not asked about.
const MISSES: usize = 64;

/// Where one end of a range lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockPlace {
    /// Page-locked memory of the host.
    Host,
    /// Memory of the device with that number.
    Device(i32),
}

/// The places of a range's destination and source.
pub(crate) type BlockEnds = [BlockPlace; 2];

/// An allocation that kernels reach.
#[derive(Debug, Clone, Copy)]
struct KnownBlock {
    start: u64,
    end: u64,
    place: BlockPlace,
    /// What is to be added to an address in it for kernels.
    shift: u64,
}

/// Looks up the addresses of one batch at one of its ends, with the device of its stream current.
pub(crate) struct PlaceFinder<'c> {
    calls: &'c dyn CallerCalls,
    device: i32,
    known: BTreeMap<u64, KnownBlock>,
    last: Option<KnownBlock>,
    misses: usize,
}

impl<'c> PlaceFinder<'c> {
    pub(crate) fn new(calls: &'c dyn CallerCalls, device: i32) -> Self {
        Self { calls, device, known: BTreeMap::new(), last: None, misses: 0 }
    }

    /// The place of a range and its address for kernels of the device; none if they do not reach all of it.
    #[inline]
    pub(crate) fn find(&mut self, address: u64, bytes: u64) -> Option<(BlockPlace, u64)> {
        let end = address.checked_add(bytes)?;
        let holds = |block: &KnownBlock| block.start <= address && end <= block.end;
        let found = |block: &KnownBlock| (block.place, address.wrapping_add(block.shift));
        if let Some(block) = self.last.as_ref().filter(|block| holds(block)) {
            return Some(found(block));
        }
        self.last = Some(self.look_up(address).filter(holds)?);
        self.last.as_ref().map(found)
    }

    #[cold]
    fn look_up(&mut self, address: u64) -> Option<KnownBlock> {
        let before = self.known.range(..=address).next_back().map(|(_, block)| *block);
        if let Some(block) = before.filter(|block| address < block.end) {
            return Some(block);
        }
        if self.misses > MISSES {
            return None;
        }
        let (info, access) = (self.calls.pointer(address), self.calls.kernel_access(address));
        let reached = Some(access.address).filter(|&address| address != 0);
        let place = match info.kind {
            PointerKind::Host => reached.map(|at| (BlockPlace::Host, at)),
            PointerKind::Device(device) if device == self.device => {
                reached.map(|at| (BlockPlace::Device(device), at))
            }
            // It has the same address there. No kernel is chosen where access cannot be enabled.
            PointerKind::Device(device) => {
                access.follows_peers.then_some((BlockPlace::Device(device), address))
            }
            PointerKind::Managed | PointerKind::Unknown => None,
        };
        let allocation = info.allocation();
        let Some((place, in_kernels)) = place.filter(|_| allocation.contains(&address)) else {
            self.misses += 1;
            return None;
        };
        let shift = in_kernels.wrapping_sub(address);
        let block = KnownBlock { start: allocation.start, end: allocation.end, place, shift };
        self.known.insert(block.start, block);
        Some(block)
    }
}
