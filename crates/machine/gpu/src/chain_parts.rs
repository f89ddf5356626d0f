//! Start addresses of the parts of pointer chains, which a chase follows one after the other.

use pathline_hal::{CallError, CallResult, ChainPart};
use pathline_host::chase;
use pathline_schema::{Bytes, MemKind, Place, Unit};

use super::blocks::GpuBlock;
use super::driver::GpuDriver;

impl GpuDriver {
    /// Start address of a part of a chain. The chain must exist.
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
        // Once the whole parts are used up, the next part starts where the first one did.
        let parts = (elements / part.steps.max(1)).max(1);
        let nth = part.nth % parts;
        if nth == 0 {
            return Ok(address);
        }
        let key = (address, bytes.0, part.steps);
        if !self.chain_starts.borrow().contains_key(&key) {
            // The host wrote the chain and can read it. A chain that this driver wrote for parts of
            // another length may have migrated to a GPU since.
            let block = self.blocks.borrow().holding(address).map(|(_, block)| *block);
            if block.is_some_and(|block| block.place.mem != MemKind::Registered) {
                return refuse("it was written for parts of another length");
            }
            self.note_parts_on_host(address, bytes, part.steps);
        }
        let starts = self.chain_starts.borrow();
        let start = starts.get(&key).and_then(|starts| starts.get(nth as usize).copied());
        start.map_or_else(|| refuse("its parts are not known"), Ok)
    }

    /// Follows a chain that the host wrote and can read, and records the starts of its parts.
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

    /// Writes unrelated memory, twice the size of the chain. The chain's writes stay in the caches,
    /// and a chase by parts would find up to 40 % of 128 MiB in 50 MiB of cache until it has
    /// followed the whole chain.
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

/// Start of each part of a chain. `None` if a step fails.
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

    /// A cycle of 8 elements 128 B apart with stride 3: 0 3 6 1 4 7 2 5. Parts of two loads begin
    /// at its elements number 0, 2, 4 and 6, which are 0, 6, 4 and 2.
    #[test]
    fn parts_of_a_chain_begin_where_the_last_one_ends() {
        let next = |at: u64| Some(0x1000 + ((at - 0x1000) / 128 + 3) % 8 * 128);
        let starts = part_starts(0x1000, 4, 2, next);
        assert_eq!(starts, Some([0, 6, 4, 2].map(|n| 0x1000 + n * 128).to_vec()));
        assert_eq!(part_starts(0x1000, 2, 2, |_| None), None);
    }
}
