//! Blocks that are followed by a page, by number, so that a fault there finds its block.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of x86-64; with larger pages, every block has filler only.
pub(crate) const PAGE: usize = 4096;
/// Maximum number at a time.
pub(crate) const SLOTS: usize = 16_384;
/// Number of slots to check for a free one.
const LOOKS: usize = 8;

// Values of a slot other than the address of a block.
const FREE: usize = 0;
const TAKEN: usize = 1;

/// Address and size of a block.
struct BlockSlot {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

static TABLE: [BlockSlot; SLOTS] =
    [const { BlockSlot { at: AtomicUsize::new(FREE), bytes: AtomicUsize::new(0) } }; SLOTS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Takes a free number. Lock-free: a fork then inherits a valid state.
pub(crate) fn take() -> Option<usize> {
    for _ in 0..LOOKS {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS;
        let slot = &TABLE[nth];
        if slot.at.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(nth);
        }
    }
    None
}

/// Stores the block of a number.
pub(crate) fn enter(nth: usize, at: usize, bytes: usize) {
    TABLE[nth].bytes.store(bytes, Ordering::Relaxed);
    TABLE[nth].at.store(at, Ordering::Release);
}

/// Removes the block of a number.
pub(crate) fn leave(nth: usize) {
    TABLE[nth].at.store(TAKEN, Ordering::Release);
}

/// Frees the number.
pub(crate) fn give_back(nth: usize) {
    TABLE[nth].at.store(FREE, Ordering::Release);
}

/// The block whose page contains an address: the distance past it, and its size.
pub(crate) fn behind(address: usize) -> Option<(usize, usize)> {
    TABLE.iter().find_map(|slot| {
        let at = slot.at.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Relaxed);
        let end = at.checked_add(bytes).filter(|_| at > TAKEN)?;
        // Filler may lie between the block and its page.
        let page = end.checked_next_multiple_of(PAGE)?;
        (page..page + PAGE).contains(&address).then(|| (address - end, bytes))
    })
}
