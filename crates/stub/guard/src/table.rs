//! Blocks that have a page behind them, by number: so that a fault there finds its block.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::block::PAGE;

/// The most at a time.
pub(crate) const SLOTS: usize = 16_384;
/// How many are looked at for a free one.
const LOOKS: usize = 8;

// What a slot holds, besides the address of a block.
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

/// A number that nobody has. Without a lock: a fork finds it as it is.
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

/// Notes the block of a number.
pub(crate) fn enter(nth: usize, at: usize, bytes: usize) {
    TABLE[nth].bytes.store(bytes, Ordering::Relaxed);
    TABLE[nth].at.store(at, Ordering::Release);
}

/// The number has no block any more.
pub(crate) fn leave(nth: usize) {
    TABLE[nth].at.store(TAKEN, Ordering::Release);
}

/// The number is free.
pub(crate) fn give_back(nth: usize) {
    TABLE[nth].at.store(FREE, Ordering::Release);
}

/// The block whose page an address lies in: how far behind it that is, and its size.
pub(crate) fn behind(address: usize) -> Option<(usize, usize)> {
    TABLE.iter().find_map(|slot| {
        let at = slot.at.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Relaxed);
        let end = at.checked_add(bytes).filter(|_| at > TAKEN)?;
        // Filling may lie between the block and its page.
        let page = end.checked_next_multiple_of(PAGE)?;
        (page..page + PAGE).contains(&address).then(|| (address - end, bytes))
    })
}
