//! Memory of a batch's lists that a thread keeps: new pages for each call would cost more than what fills them.

use std::cell::Cell;

use crate::block_lists::BlockRange;
use crate::ranges::MergedCopy;

/// Most elements of a list that is kept.
const MAX_KEPT: usize = 1 << 16;

/// Lists of a batch, empty between calls.
#[derive(Debug, Default)]
pub(crate) struct BatchRoom {
    pub(crate) copies: Vec<(u64, u64, usize)>,
    pub(crate) merged: Vec<MergedCopy>,
    pub(crate) by_kernel: Vec<BlockRange>,
}

thread_local! {
    static ROOM: Cell<BatchRoom> = Cell::default();
}

fn empty<T>(list: &mut Vec<T>) {
    list.clear();
    list.shrink_to(MAX_KEPT);
}

impl BatchRoom {
    /// The lists of this thread; new ones where they are in use.
    pub(crate) fn take() -> Self {
        ROOM.try_with(Cell::take).unwrap_or_default()
    }

    pub(crate) fn give_back(mut self) {
        empty(&mut self.copies);
        empty(&mut self.merged);
        empty(&mut self.by_kernel);
        // A thread that ends keeps nothing.
        let _ = ROOM.try_with(|room| room.set(self));
    }
}
