//! Gates: memory words that streams wait for, in a pinned page or in a signal each.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of the page that gates live in.
pub(crate) const SLOTS: u64 = 1024;

/// A gate: a word, and the value that it has once open. Values of a word only grow, so a wait that
/// the hardware has not looked at yet is still satisfied after the word serves another gate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateSlot {
    pub(crate) address: u64,
    pub(crate) opens_at: u32,
    /// Whether the word is a signal of the runtime.
    pub(crate) signal: bool,
}

impl GateSlot {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the address is of an aligned word in a pinned page or signal that the driver frees
        // only after its last gate; host and devices touch it as an atomic word alone.
        unsafe { AtomicU32::from_ptr(self.address as *mut u32) }
    }
    pub(crate) fn open(&self) {
        self.word().store(self.opens_at, Ordering::Release);
    }
}

/// Gates by number, and the words that serve them. A gate has no word until a stream waits for it:
/// words are memory of a GPU's context, and host-only cases have gates as well.
#[derive(Debug, Default)]
pub(crate) struct StreamGates {
    /// Gates without a word, and whether they are open.
    unheld: BTreeMap<u64, bool>,
    /// The pinned page; 0 before the first gate, and where gates are signals.
    pub(crate) page: u64,
    /// Allocated signals.
    pub(crate) signals: Vec<u64>,
    pub(crate) made: BTreeMap<u64, GateSlot>,
    /// Words that no gate uses, open.
    free: Vec<GateSlot>,
}

impl StreamGates {
    /// Whether words are available.
    pub(crate) fn ready(&self) -> bool {
        !self.free.is_empty()
    }
    /// Takes over a pinned page of [`SLOTS`] words, which may hold data of an earlier buffer.
    pub(crate) fn adopt(&mut self, page: u64) {
        self.page = page;
        let slot = |nth| GateSlot { address: page + nth * 4, opens_at: 0, signal: false };
        self.free = (0..SLOTS).rev().map(slot).collect();
        self.free.iter().for_each(GateSlot::open);
    }
    /// Takes over a zeroed signal.
    pub(crate) fn adopt_signal(&mut self, address: u64) {
        self.signals.push(address);
        self.free.push(GateSlot { address, opens_at: 0, signal: true });
    }
    /// Creates a gate without a word.
    pub(crate) fn create(&mut self, id: u64) {
        self.unheld.insert(id, false);
    }
    /// Whether a gate exists that has no word.
    pub(crate) fn is_unheld(&self, id: u64) -> bool {
        self.unheld.contains_key(&id)
    }
    /// Assigns a word to a gate without one; `None` if no word is left.
    pub(crate) fn make(&mut self, id: u64) -> Option<()> {
        let slot = self.free.pop()?;
        // Waits compare signed differences; a reused word must only increase.
        let slot = GateSlot { opens_at: slot.opens_at.wrapping_add(1), ..slot };
        if self.unheld.remove(&id) == Some(true) {
            slot.open();
        }
        self.made.insert(id, slot);
        Some(())
    }
    /// Opens a gate.
    pub(crate) fn release(&mut self, id: u64) -> Option<()> {
        match self.unheld.get_mut(&id) {
            Some(is_open) => *is_open = true,
            None => self.made.get(&id)?.open(),
        }
        Some(())
    }
    /// Opens a gate and returns its word to the free list.
    pub(crate) fn destroy(&mut self, id: u64) -> Option<()> {
        if self.unheld.remove(&id).is_some() {
            return Some(());
        }
        let slot = self.made.remove(&id)?;
        slot.open();
        // The least recently used word is used next.
        self.free.insert(0, slot);
        Some(())
    }
}

/// Blocks the stream's host thread until a slot opens, where the hardware cannot wait.
///
/// # Safety
/// `slot` must come from `Box::into_raw` of a [`GateSlot`], and be passed to one call only.
pub(crate) unsafe extern "C" fn wait(slot: *mut c_void) {
    // SAFETY: the caller's promise.
    let slot = unsafe { Box::from_raw(slot.cast::<GateSlot>()) };
    pathline_host::gate::wait_until(|| {
        slot.word().load(Ordering::Acquire).wrapping_sub(slot.opens_at).cast_signed() >= 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_open_for_every_gate_it_has_served() {
        // Data that a pattern left there.
        let mut words = vec![0x8765_4321u32; SLOTS as usize];
        let mut gates = StreamGates::default();
        gates.adopt(words.as_mut_ptr() as u64);
        gates.make(SLOTS * 3).unwrap();
        assert_eq!(gates.made[&(SLOTS * 3)].word().load(Ordering::Relaxed), 0);
        gates.destroy(SLOTS * 3).unwrap();
        let mut first = None;
        // Twice through all words: each then serves its third gate.
        for id in 0..2 * SLOTS + 1 {
            gates.make(id).unwrap();
            first.get_or_insert(gates.made[&id]);
            gates.destroy(id).unwrap();
        }
        let first = first.unwrap();
        assert!(first.word().load(Ordering::Relaxed) >= first.opens_at);
        gates.make(9999).unwrap();
        assert!(gates.destroy(9998).is_none());
        let raw = Box::into_raw(Box::new(first));
        // SAFETY: fresh from a box; the gate is open, so it returns.
        unsafe { wait(raw.cast()) };
    }

    #[test]
    fn a_gate_gets_its_word_when_it_is_held_and_is_open_if_it_was_opened() {
        let mut words = vec![0u32; SLOTS as usize];
        let mut gates = StreamGates::default();
        (1..=3).for_each(|id| gates.create(id));
        gates.release(1).unwrap();
        gates.destroy(2).unwrap();
        assert!(gates.destroy(2).is_none() && gates.release(2).is_none());
        gates.adopt(words.as_mut_ptr() as u64);
        (gates.make(1), gates.make(3)).0.unwrap();
        let is_open = |id| {
            let slot: GateSlot = gates.made[&id];
            slot.word().load(Ordering::Relaxed) == slot.opens_at
        };
        assert_eq!((is_open(1), is_open(3)), (true, false));
        assert!(!gates.is_unheld(1) && !gates.is_unheld(3));
    }

    #[test]
    fn running_out_of_words_returns_none() {
        let mut words = vec![0u32; SLOTS as usize];
        let mut gates = StreamGates::default();
        gates.adopt(words.as_mut_ptr() as u64);
        assert!((0..SLOTS).all(|id| gates.make(id).is_some()));
        assert!(gates.make(SLOTS).is_none());
    }
}
