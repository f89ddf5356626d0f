//! Where the parts of pointer chains begin, which a chase follows one after the other.

use pathline_hal::{CallError, CallResult, ChainPart};
use pathline_host::chase;
use pathline_schema::{Bytes, MemKind, Place, Unit};

use super::driver::GpuDriver;
use super::memory::GpuBlock;

/// Chains from here on are to be past the caches of their GPU.
pub(crate) const PAST_CACHES: Bytes = Bytes::mib(64);

impl GpuDriver {
    /// Where a part of a chain begins. The chain must lie there.
    pub(crate) fn chain_start(
        &self,
        address: u64,
        bytes: Bytes,
        part: ChainPart,
    ) -> CallResult<u64> {
        let refuse = |reason| {
            let thing = format!("a chain over {bytes} at {address:#x}");
            Err(CallError::unsupported("follow", thing, reason))
        };
        let elements = chase::elements(bytes);
        // After as many parts as there are whole ones the next begins where the first did.
        let parts = (elements / part.steps.max(1)).max(1);
        let nth = part.nth % parts;
        if nth == 0 {
            return Ok(address);
        }
        let key = (address, bytes.0, part.steps);
        if !self.chain_starts.borrow().contains_key(&key) {
            // The host laid it, and may read it. What this driver laid for parts of another length may
            // have moved to a GPU since.
            let block = self.blocks.borrow().holding(address).map(|(_, block)| *block);
            if block.is_some_and(|block| block.place.mem != MemKind::Registered) {
                return refuse("it was laid for parts of another length");
            }
            self.note_parts_on_host(address, bytes, part.steps);
        }
        let starts = self.chain_starts.borrow();
        let start = starts.get(&key).and_then(|starts| starts.get(nth as usize).copied());
        start.map_or_else(|| refuse("its parts are not known"), Ok)
    }

    /// Follows a chain that the host has laid and may read, to find where its parts begin.
    pub(crate) fn note_parts_on_host(&self, address: u64, bytes: Bytes, steps: u64) {
        let next = |at: u64| {
            // SAFETY: an element of a chain that lies there whole, in memory that the host may read.
            let to = unsafe { chase::follow(at, 1) };
            (to >= address && to - address < bytes.0).then_some(to)
        };
        self.note_parts(address, bytes, steps, next);
    }

    pub(crate) fn note_parts(
        &self,
        address: u64,
        bytes: Bytes,
        steps: u64,
        next: impl Fn(u64) -> Option<u64>,
    ) {
        let parts = (chase::elements(bytes) / steps.max(1)).max(1);
        if let Some(starts) = part_starts(address, parts, steps, next) {
            self.chain_starts.borrow_mut().insert((address, bytes.0, steps), starts);
        }
    }

    /// Writes memory that nobody reads, twice as much as the chain that was laid. What is laid stays
    /// in the caches, and a chase that follows parts would find up to 40 % of 128 MiB in 50 MiB of
    /// them until it has followed the whole.
    pub(crate) fn empty_caches(&self, chain: &GpuBlock) -> CallResult<()> {
        let Some(gpu) = chain.place.unit.gpu().filter(|_| self.compiler.is_some()) else {
            return Ok(());
        };
        let bytes = Bytes(chain.bytes.saturating_mul(2));
        let scratch = self.allocate(Place::new(Unit::Gpu(gpu), MemKind::Vram), bytes)?;
        let filled = self.fill_on(gpu, scratch, bytes, 0);
        self.release(scratch)?;
        filled
    }
}

/// Where each part of a chain begins. None if a step fails.
fn part_starts(
    address: u64,
    parts: u64,
    steps: u64,
    next: impl Fn(u64) -> Option<u64>,
) -> Option<Vec<u64>> {
    let mut starts = vec![address];
    let mut at = address;
    for _ in 1..parts {
        for _ in 0..steps {
            at = next(at)?;
        }
        starts.push(at);
    }
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cycle of 8 elements 128 B apart that goes on by 3: 0 3 6 1 4 7 2 5. Parts of two loads begin
    /// at its elements number 0, 2, 4 and 6, which are 0, 6, 4 and 2.
    #[test]
    fn parts_of_a_chain_begin_where_the_last_one_ends() {
        let next = |at: u64| Some(0x1000 + ((at - 0x1000) / 128 + 3) % 8 * 128);
        let starts = part_starts(0x1000, 4, 2, next);
        assert_eq!(starts, Some([0, 6, 4, 2].map(|n| 0x1000 + n * 128).to_vec()));
        assert_eq!(part_starts(0x1000, 2, 2, |_| None), None);
    }
}
