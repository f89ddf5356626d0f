//! Memory of callers that the driver knows while orders use it.

use std::collections::BTreeMap;

use pathline_hal::{CallResult, Machine};
use pathline_schema::{Bytes, MemKind, Place};

use crate::ends::KnownEnd;
use crate::orders::OrderedCopy;

/// Blocks of memory: bytes, and the number of orders that use them, by start.
pub(crate) struct AdoptedMemory<'m> {
    machine: &'m Machine,
    users: BTreeMap<u64, (u64, u32)>,
}

impl<'m> AdoptedMemory<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { machine, users: BTreeMap::new() }
    }

    /// Makes the memory at the ends of a copy known to the driver; its starts.
    pub(crate) fn adopt_ends(&mut self, copy: &OrderedCopy) -> CallResult<Vec<u64>> {
        let mut blocks = Vec::new();
        for end in copy.dst.iter().chain([&copy.src]) {
            match self.adopt(end) {
                Ok(start) => blocks.push(start),
                Err(error) => {
                    self.release(&mut blocks);
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }

    /// Makes memory known to the driver. The start of the block.
    fn adopt(&mut self, known: &KnownEnd) -> CallResult<u64> {
        let (start, bytes) = known.block;
        let before = self.users.range_mut(..=start).next_back();
        if let Some((&at, (size, users))) = before
            && at + *size >= start + bytes
        {
            *users += 1;
            return Ok(at);
        }
        let unit = known.end.unit;
        let mem = if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned };
        self.machine.driver()?.adopt_memory(start, Bytes(bytes), Place::new(unit, mem))?;
        self.users.insert(start, (bytes, 1));
        Ok(start)
    }

    /// Forgets memory that no copy uses any more.
    pub(crate) fn release(&mut self, blocks: &mut Vec<u64>) {
        let Ok(driver) = self.machine.driver() else { return };
        for start in blocks.drain(..) {
            let Some((_, users)) = self.users.get_mut(&start) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&start);
                let _ = driver.forget_memory(start);
            }
        }
    }
}
